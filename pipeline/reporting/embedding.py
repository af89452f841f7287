"""Embed objects in the plane by their distances, and measure how well the plane preserves the distances."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh
from scipy.spatial import cKDTree
from scipy.spatial.distance import pdist, squareform
from threadpoolctl import threadpool_limits

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TSNE, MDS, CLASSICAL = "t-SNE", "multidimensional scaling", "classical scaling"


# The values are from maps of the topics of KOS, Reuters, Yelp and 20 Newsgroups with 10 to 1,000 topics. From about
# 30 topics on, t-SNE preserves more neighbours than multidimensional scaling. Its stress is smallest at a perplexity
# of 8 to 10. 500 iterations preserve as many neighbours as 1,000.
MIN_TSNE_OBJECTS = 30  # Number of objects from which on t-SNE is used; multidimensional scaling below it
PERPLEXITY = 10.0
TSNE_ITERATIONS = 500
SMACOF_ITERATIONS = 300
COMMON_QUANTILE = 0.01  # Quantile of the distances that counts as common to all pairs
# Share of that quantile subtracted from all distances before multidimensional scaling, so that differences between
# large distances become visible
COMMON_SHARE = 0.9
MIN_DISTANCE = 0.02  # Lower bound on the distances after the subtraction
# Weight of a coordinate's rank against its value, so that a remote group does not leave the plane empty. The map
# preserves as many neighbours, with less stress.
RANK_WEIGHT = 0.5


@dataclass(frozen=True)
class MapQuality:
    """Agreement of a map with the distances."""

    method: str  # ``t-SNE``, ``multidimensional scaling`` or ``classical scaling``
    stress: float  # Kruskal's stress-1 of the distances at the map's best scale; 0 if the map preserves all distances
    # Numbers of neighbours compared; 0 if there are fewer than five objects
    near: int
    among: int
    preserved: float  # Mean share of each object's `near` nearest objects that are among its `among` nearest on the map
    chance: float  # Expected value of `preserved` for random positions

    def describe(self, objects: str) -> str:
        """Return sentences on the method and on how to read the map; `objects` is their plural, such as ``topics``."""
        text = f"Positions by {self.method} of Hellinger distances, with stress {self.stress:.2f} (0: exact)."
        if not self.near:
            return text
        return (
            f"{text} {self.preserved:.0%} of the {self.near} nearest {objects} of each are among its {self.among} "
            f"nearest on the map ({self.chance:.0%} by chance). Do not read distances between groups."
        )


def embed(distances: Floats) -> tuple[Floats, str]:
    """Return positions in the plane for objects with known distances.

    Few objects are embedded by SMACOF, many by t-SNE, both starting from classical scaling, which is the result where
    scikit-learn is not installed. The result is rotated so that the longer axis is horizontal, and does not depend on
    the number of threads.
    """
    apart = 0.5 * (distances + distances.T)
    np.fill_diagonal(apart, 0.0)
    count = apart.shape[0]
    method = (TSNE if count >= MIN_TSNE_OBJECTS else MDS) if find_spec("sklearn") is not None else CLASSICAL
    if count < 2 or not apart.any():
        return np.zeros((count, 2)), method
    with threadpool_limits(limits=1):
        if method == TSNE:
            from sklearn import manifold

            begin = classical_scaling(apart)
            begin = 1e-4 * begin / max(float(begin.std(axis=0).max()), 1e-12)
            embedding = manifold.TSNE(
                metric="precomputed",
                init=begin,
                perplexity=min(PERPLEXITY, (count - 1) / 3),
                max_iter=TSNE_ITERATIONS,
                random_state=0,
                n_jobs=1,
            )
            places = np.asarray(embedding.fit_transform(apart), dtype=np.float64)
        else:
            common = COMMON_SHARE * float(np.quantile(squareform(apart, checks=False), COMMON_QUANTILE))
            rest = np.maximum(apart - common, MIN_DISTANCE)
            np.fill_diagonal(rest, 0.0)
            places = scaled(rest)
        # They extend farthest along the first axis.
        centred = places - places.mean(axis=0)
        _, _, axes = np.linalg.svd(centred, full_matrices=False)
        places = _signed(centred @ axes.T if axes.shape == (2, 2) else centred)
        # Coordinates are mixed with their ranks (equal values share a rank); the extent of each axis is unchanged.
        even = np.zeros_like(places)
        for column in range(2):
            values, rank = np.unique(places[:, column], return_inverse=True)
            ranked = RANK_WEIGHT * float(values[-1] - values[0]) * rank / max(len(values) - 1, 1)
            even[:, column] = (1.0 - RANK_WEIGHT) * (places[:, column] - values[0]) + ranked
        return np.round(even, 6), method


def scaled(apart: Floats) -> Floats:
    """Return the positions of smallest stress by SMACOF, started from classical scaling, shape (objects, 2)."""
    begin = classical_scaling(apart)
    if len(begin) < 3 or not begin.any() or find_spec("sklearn") is None:
        return begin
    from sklearn import manifold

    places, _ = manifold.smacof(apart, init=begin, n_init=1, max_iter=SMACOF_ITERATIONS, normalized_stress=False)
    return np.asarray(places, dtype=np.float64)


def classical_scaling(apart: Floats) -> Floats:
    """Return Torgerson's classical scaling to two dimensions, shape (objects, 2); each axis's largest value is > 0."""
    count = apart.shape[0]
    places = np.zeros((count, 2))
    if count < 2:
        return places
    squares = apart**2
    means = squares.mean(axis=0)
    inner = -0.5 * (squares - means[:, None] - means[None, :] + squares.mean())
    values, vectors = eigh(inner, subset_by_index=[max(count - 2, 0), count - 1])
    for column, rank in enumerate(range(vectors.shape[1] - 1, -1, -1)):
        places[:, column] = vectors[:, rank] * math.sqrt(max(float(values[rank]), 0.0))
    return _signed(places)


def _signed(places: Floats) -> Floats:
    """Mirror axes so that the largest coordinate of each is positive, and round off digits below the precision."""
    places = np.round(places, 6)
    for axis in places.T:
        if axis[np.abs(axis).argmax()] < 0.0:
            axis *= -1.0
    return places + 0.0


def separate(places: Floats, radii: Floats, iterations: int = 1000) -> Floats:
    """Move circles apart until none overlaps another."""
    places = places.astype(np.float64, copy=True)
    if len(places) < 2:
        return places
    reach = 2.0 * float(radii.max())
    for iteration in range(iterations):
        pairs = cKDTree(places).query_pairs(reach, output_type="ndarray")
        pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        first, second = pairs[:, 0], pairs[:, 1]
        between = places[second] - places[first]
        length = np.hypot(between[:, 0], between[:, 1])
        lacking = radii[first] + radii[second] - length
        close = lacking > 1e-9
        if not close.any():
            break
        first, second, between, length, lacking = (x[close] for x in (first, second, between, length, lacking))
        # Circles with the same centre move in directions that differ between pairs: multiples of the golden angle.
        angle = 2.399963 * (first + second)
        same = length < 1e-9
        between[same] = np.stack([np.cos(angle[same]), np.sin(angle[same])], axis=1)
        step = between / np.where(same, 1.0, length)[:, None] * (0.5 * lacking + 1e-6 * reach)[:, None]
        for axis in (0, 1):
            places[:, axis] += np.bincount(second, step[:, axis], len(places)) - np.bincount(
                first, step[:, axis], len(places)
            )
        if iteration % 50 == 49:
            middle = places.mean(axis=0)
            places = middle + 1.05 * (places - middle)
    return places


def measure(distances: Floats, places: Floats, method: str) -> MapQuality:
    """Measure how well positions preserve distances."""
    count = len(places)
    apart = 0.5 * (distances + distances.T)
    np.fill_diagonal(apart, 0.0)
    true = squareform(apart, checks=False)
    drawn = pdist(places)
    scale = float(true @ drawn) / max(float(drawn @ drawn), 1e-300)
    stress = math.sqrt(float(((true - scale * drawn) ** 2).sum()) / max(float((true**2).sum()), 1e-300))
    near = min(5, max(count - 1, 0) // 4)
    if not near:
        return MapQuality(method, stress, 0, 0, 1.0, 1.0)
    nearest, on_map = _nearest(apart, near), _nearest(squareform(drawn), 2 * near)
    preserved = float(np.mean([np.isin(*rows).mean() for rows in zip(nearest, on_map, strict=True)]))
    return MapQuality(method, stress, near, 2 * near, preserved, 2 * near / (count - 1))


def _nearest(apart: Floats, count: int) -> Ints:
    apart = apart.copy()
    np.fill_diagonal(apart, np.inf)
    return np.argsort(apart, axis=1, kind="stable")[:, :count]
