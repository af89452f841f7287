"""Lay objects out in the plane by their distances, and measure how much of the distances the plane keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh
from scipy.spatial import cKDTree
from scipy.spatial.distance import pdist, squareform
from threadpoolctl import threadpool_limits

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TSNE, MDS = "t-SNE", "multidimensional scaling"


@dataclass(frozen=True)
class EmbeddingOptions:
    """How distances become places in the plane.

    The values are from maps of the topics of KOS, Reuters, Yelp and 20 Newsgroups with 10 to 1,000 topics: t-SNE keeps
    more neighbours than multidimensional scaling from about 30 topics on, and its stress is least at a perplexity of 8
    to 10. 500 iterations keep as many neighbours as 1,000.
    """

    tsne_from: int = 30
    """Objects from which on t-SNE lays them out; multidimensional scaling below."""
    perplexity: float = 10.0
    tsne_iterations: int = 500
    smacof_iterations: int = 300
    common_quantile: float = 0.01
    """Quantile of the distances that counts as common to all pairs."""
    common_share: float = 0.9
    """Share of that quantile that is taken off all distances before multidimensional scaling, so that differences
    between distances that are all large become visible."""
    least_distance: float = 0.02
    """What is left of a distance at least."""
    ranked: float = 0.5
    """How much of a coordinate is its rank, so that no group far off leaves the plane empty: it keeps as many
    neighbours, and the stress is less."""


OPTIONS = EmbeddingOptions()


@dataclass(frozen=True)
class MapQuality:
    """How much of the distances a map keeps.

    Attributes
    ----------
    method : str
        ``t-SNE`` or ``multidimensional scaling``.
    stress : float
        Kruskal's stress-1 of the distances, the map's scale being the best one: 0 where all distances are kept.
    near, among : int
        Numbers of neighbours; 0 where there are too few objects to ask.
    kept : float
        Of each object's `near` nearest, the mean share that is among its `among` nearest on the map.
    chance : float
        What `kept` would be if the objects lay anywhere.
    """

    method: str
    stress: float
    near: int
    among: int
    kept: float
    chance: float

    def said(self, several: str) -> str:
        """Return the method and how far to trust the map, in a sentence or two; `several` is what the objects are."""
        text = f"Laid out by {self.method} of Hellinger distances, stress {self.stress:.2f}."
        if not self.near:
            return text
        return (
            f"{text} Of the {self.near} {several} nearest to each, {self.kept:.0%} are among its {self.among} nearest "
            f"here ({self.chance:.0%} by chance): trust who lies next to whom, not how far groups lie apart."
        )


def embed(distances: Floats, options: EmbeddingOptions = OPTIONS) -> tuple[Floats, str]:
    """Return places in the plane for objects of which the distances are known.

    Few objects are laid out by SMACOF, many by t-SNE, both from where classical scaling puts them. The result is turned
    so that the longer axis lies across, and is the same for any number of threads.

    Parameters
    ----------
    distances : numpy.ndarray of float64, shape (objects, objects)
        Not negative, symmetric up to rounding.
    options : EmbeddingOptions, optional
        The method's constants.

    Returns
    -------
    places : numpy.ndarray of float64, shape (objects, 2)
        In units of no meaning.
    method : str
        ``t-SNE`` or ``multidimensional scaling``.
    """
    apart = 0.5 * (distances + distances.T)
    np.fill_diagonal(apart, 0.0)
    count = apart.shape[0]
    method = TSNE if count >= options.tsne_from else MDS
    if count < 2 or not apart.any():
        return np.zeros((count, 2)), method
    with threadpool_limits(limits=1):
        places = _tsne(apart, options) if method == TSNE else _smacof(apart, options)
        return _evened(_turned(places), options.ranked), method


def _tsne(apart: Floats, options: EmbeddingOptions) -> Floats:
    from sklearn import manifold

    begin = classical_scaling(apart)
    begin = 1e-4 * begin / max(float(begin.std(axis=0).max()), 1e-12)
    perplexity = min(options.perplexity, (apart.shape[0] - 1) / 3)
    embedding = manifold.TSNE(
        metric="precomputed",
        init=begin,
        perplexity=perplexity,
        max_iter=options.tsne_iterations,
        random_state=0,
        n_jobs=1,
    )
    return np.asarray(embedding.fit_transform(apart), dtype=np.float64)


def _smacof(apart: Floats, options: EmbeddingOptions) -> Floats:
    common = options.common_share * float(np.quantile(squareform(apart, checks=False), options.common_quantile))
    rest = np.maximum(apart - common, options.least_distance)
    np.fill_diagonal(rest, 0.0)
    return scaled(rest, options.smacof_iterations)


def scaled(apart: Floats, iterations: int = OPTIONS.smacof_iterations) -> Floats:
    """Return the places of least stress, found by SMACOF from classical scaling, shape (objects, 2)."""
    from sklearn.manifold import smacof

    begin = classical_scaling(apart)
    if len(begin) < 3 or not begin.any():
        return begin
    places, _ = smacof(apart, init=begin, n_init=1, max_iter=iterations, normalized_stress=False)
    return np.asarray(places, dtype=np.float64)


def classical_scaling(apart: Floats) -> Floats:
    """Scale distances to two dimensions (Torgerson), shape (objects, 2); the largest coordinate of each is positive."""
    count = apart.shape[0]
    places = np.zeros((count, 2))
    if count < 2:
        return places
    squares = apart**2
    means = squares.mean(axis=0)
    inner = -0.5 * (squares - means[:, None] - means[None, :] + squares.mean())
    values, vectors = eigh(inner, subset_by_index=[max(count - 2, 0), count - 1])
    for column, which in enumerate(range(vectors.shape[1] - 1, -1, -1)):
        places[:, column] = vectors[:, which] * math.sqrt(max(float(values[which]), 0.0))
    return _signed(places)


def _turned(places: Floats) -> Floats:
    """Turn places so that they reach farthest along the first axis."""
    centred = places - places.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    return _signed(centred @ axes.T) if axes.shape == (2, 2) else _signed(centred)


def _evened(places: Floats, ranked: float) -> Floats:
    """Mix coordinates with their ranks, equal ones having one rank; the reach of each axis stays as it is."""
    even = np.zeros_like(places)
    for column in range(places.shape[1]):
        values, rank = np.unique(places[:, column], return_inverse=True)
        reach = float(values[-1] - values[0])
        even[:, column] = (1.0 - ranked) * (places[:, column] - values[0]) + ranked * reach * rank / max(
            len(values) - 1, 1
        )
    return np.round(even, 6)


def _signed(places: Floats) -> Floats:
    """Mirror axes so that the farthest coordinate of each is positive, and round off what is not determined."""
    places = np.round(places, 6)
    for axis in places.T:
        if axis[np.abs(axis).argmax()] < 0.0:
            axis *= -1.0
    return places + 0.0


def separate(places: Floats, radii: Floats, iterations: int = 1000) -> Floats:
    """Move circles apart until none overlaps another.

    Parameters
    ----------
    places : numpy.ndarray of float64, shape (circles, 2)
        Their middles; several may be the same.
    radii : numpy.ndarray of float64, shape (circles,)
        Positive, in the units of the places.
    iterations : int, optional
        Passes over all pairs that overlap. All places are spread by 5% after each 50.

    Returns
    -------
    numpy.ndarray of float64, shape (circles, 2)
        The new middles.
    """
    places = places.astype(np.float64, copy=True)
    if len(places) < 2:
        return places
    reach = 2.0 * float(radii.max())
    for iteration in range(iterations):
        pairs = cKDTree(places).query_pairs(reach, output_type="ndarray")
        pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        one, other = pairs[:, 0], pairs[:, 1]
        between = places[other] - places[one]
        length = np.hypot(between[:, 0], between[:, 1])
        lacking = radii[one] + radii[other] - length
        close = lacking > 1e-9
        if not close.any():
            break
        one, other, between, length, lacking = (x[close] for x in (one, other, between, length, lacking))
        # Circles with one middle go in directions that differ from pair to pair: multiples of the golden angle.
        angle = 2.399963 * (one + other)
        same = length < 1e-9
        between[same] = np.stack([np.cos(angle[same]), np.sin(angle[same])], axis=1)
        step = between / np.where(same, 1.0, length)[:, None] * (0.5 * lacking + 1e-6 * reach)[:, None]
        for axis in (0, 1):
            places[:, axis] += np.bincount(other, step[:, axis], len(places)) - np.bincount(
                one, step[:, axis], len(places)
            )
        if iteration % 50 == 49:
            middle = places.mean(axis=0)
            places = middle + 1.05 * (places - middle)
    return places


def measure(distances: Floats, places: Floats, method: str) -> MapQuality:
    """Measure how much of the distances the places keep.

    Parameters
    ----------
    distances : numpy.ndarray of float64, shape (objects, objects)
        As `embed` took them.
    places : numpy.ndarray of float64, shape (objects, 2)
        The map's.
    method : str
        What made them.

    Returns
    -------
    MapQuality
        Of fewer than five objects, without neighbours.
    """
    count = len(places)
    apart = 0.5 * (distances + distances.T)
    np.fill_diagonal(apart, 0.0)
    wanted = squareform(apart, checks=False)
    drawn = pdist(places)
    scale = float(wanted @ drawn) / max(float(drawn @ drawn), 1e-300)
    stress = math.sqrt(float(((wanted - scale * drawn) ** 2).sum()) / max(float((wanted**2).sum()), 1e-300))
    near = min(5, max(count - 1, 0) // 4)
    if not near:
        return MapQuality(method, stress, 0, 0, 1.0, 1.0)
    real, shown = _nearest(apart, near), _nearest(squareform(drawn), 2 * near)
    kept = float(np.mean([np.isin(one, other).mean() for one, other in zip(real, shown, strict=True)]))
    return MapQuality(method, stress, near, 2 * near, kept, 2 * near / (count - 1))


def _nearest(apart: Floats, count: int) -> Ints:
    apart = apart.copy()
    np.fill_diagonal(apart, np.inf)
    return np.argsort(apart, axis=1, kind="stable")[:, :count]
