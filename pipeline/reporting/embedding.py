"""Embed objects in the plane by their distances, and measure how well the plane preserves the distances.

`topic_map` draws topics as circles, with the words most relevant to each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh
from scipy.spatial import cKDTree
from scipy.spatial.distance import pdist, squareform
from threadpoolctl import threadpool_limits

from collapsium.pipeline.formatting import shortened
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import (
    MIN_EXPECTED_TOKENS,
    RELEVANCE_WEIGHT,
    Topic,
    distances,
    relevance,
    word_shares,
)
from collapsium.pipeline.reporting.text_layout import LINE, Measure, Placed, Placement, Point, place_texts, text_width

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


WEIGHTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # Values of lambda that the page's slider offers
WORDS = 12


# Sizes are in units of the width of the map.
CIRCLES_SHARE = 0.16  # Area of all circles, relative to the bounding box of the topics' positions
MAX_RADIUS = 0.065
# Radius of topics that would otherwise be too small to see or to select; their areas exceed their shares
MIN_RADIUS = 0.0055
CIRCLE_GAP = 0.0012  # Margin around each circle; two circles are at least twice as far apart
EDGE = 0.006  # Margin between circles and the map's edge
NAME_WORDS = 2
NAME_LETTERS = 26


@dataclass(frozen=True)
class TopicMap:
    """Topics as circles in the plane, in units of the map's width."""

    # Centres, from the left and from the top; float64 (topics,)
    x: Floats
    y: Floats
    # Radii; except for the smallest, areas are proportional to the topics' shares. Circles do not overlap.; float64
    # (topics,)
    radius: Floats
    height: float  # Height of the map, just enough for the circles
    quality: MapQuality  # Agreement of the positions with the distances


def topic_map(model: Model, ids: Ints, share: Floats) -> TopicMap:
    """Map topics by the Hellinger distances of their word probabilities."""
    return map_of_distances(distances(model, model)[np.ix_(ids, ids)], share)


def map_of_distances(apart: Floats, share: Floats) -> TopicMap:
    """Map circles by their distances, shape (topics, topics), with areas proportional to their shares."""
    if not share.size:
        return TopicMap(np.zeros(0), np.zeros(0), np.zeros(0), 2 * EDGE, measure(apart, np.zeros((0, 2)), ""))
    places, method = embed(apart)
    share = np.maximum(share, 0.0) if (share > 0).any() else np.ones_like(share)
    share /= float(share.max())
    places = places / max(float(np.ptp(places[:, 0])), 1e-12) if places.any() else places
    tall = max(float(np.ptp(places[:, 1])), 0.3)
    radius = np.sqrt(share * CIRCLES_SHARE * tall / (math.pi * float(share.sum())))
    radius = radius * min(1.0, MAX_RADIUS / float(radius.max()))
    radius = np.maximum(radius, MIN_RADIUS)
    # The centres of circles at the left and right edge lie inside, so that the map is about 1 wide.
    places = separate(places * (1.0 - 2.0 * float(np.median(radius))), radius + CIRCLE_GAP)
    low, high = (places - radius[:, None]).min(axis=0), (places + radius[:, None]).max(axis=0)
    if places.shape[0] == 1:
        scale, low = 1.0, np.array([places[0, 0] - 0.5 + EDGE, low[1]])
    else:
        scale = (1.0 - 2.0 * EDGE) / float(high[0] - low[0])
    x, y = (np.round(scale * (places - low) + EDGE, 5)).T
    height = round(float(scale * (high[1] - low[1])) + 2 * EDGE, 5)
    return TopicMap(x, y, np.round(scale * radius, 5), height, measure(apart, np.stack([x, y], axis=1), method))


@dataclass(frozen=True)
class CircleText:
    """Texts in and next to a circle of the map."""

    inside: bool  # True if the topic's id fits inside the circle
    outside: Placed | None  # Position of the text next to the circle; None if there is no room
    text: str  # That text: the topic's name, preceded by its id if that does not fit inside


def circle_texts(
    topics_map: TopicMap,
    topics: Sequence[Topic],
    names: Sequence[str],
    width: float,
    size: float,
    measure: Measure = text_width,
) -> list[CircleText]:
    """Place ids and names so that texts do not overlap, the largest topics first."""
    inside, points, taken = [], [], []
    order = sorted(range(len(topics)), key=lambda number: (-topics[number].share, number))
    for number, topic in enumerate(topics):
        x, y, radius = (float(values[number]) * width for values in (topics_map.x, topics_map.y, topics_map.radius))
        wide, tall = measure(str(topic.id), size), 0.75 * size
        inside.append(math.hypot(wide / 2, tall / 2) <= radius)
        if inside[-1]:
            taken.append((x - wide / 2, y - LINE * size / 2, x + wide / 2, y + LINE * size / 2))
        name = names[number] if inside[-1] else f"{topic.id} {names[number]}"
        points.append(Point(x, y, radius, name.strip(), size))
    plane = Placement(width, width * topics_map.height, max_covered=0.04)
    placed = place_texts(points, order, plane, taken, measure)
    return [CircleText(*parts) for parts in zip(inside, placed, (point.text for point in points), strict=True)]


def map_names(model: Model, topics: Sequence[Topic], pools: Sequence[Pool]) -> list[str]:
    """Return a name for each topic: its title, or else its most relevant words."""
    overall = word_shares(model)
    words, names = model.vocabulary.words, []
    for topic, pool in zip(topics, pools, strict=True):
        score = relevance(np.log(pool.probability), np.log(overall[pool.words]), RELEVANCE_WEIGHT)
        best = pool.words[np.argsort(-score, kind="stable")[:NAME_WORDS]].tolist()
        names.append(shortened(topic.title or " ".join(words[word] for word in best), NAME_LETTERS))
    return names


@dataclass(frozen=True)
class Pool:
    """The words of a topic that are most relevant for at least one of `WEIGHTS`."""

    words: Ints  # Word ids, by decreasing probability; int64 (words,)
    probability: Floats  # Probabilities in the topic; float64 (words,)


def relevant(model: Model, ids: Ints, share: Floats, count: int = WORDS) -> list[Pool]:
    """Return the words of largest relevance, lambda log p(w | k) + (1 - lambda) log p(w | k) / p(w), for each topic.

    Sievert and Shirley (2014) define it. The vocabulary is read one block at a time.
    """
    tokens, overall = float(model.vocabulary.tokens.sum()), word_shares(model)
    # Ids, relevance and probabilities of the best words, each of shape (topics, words).
    best: list[tuple[npt.NDArray[Any], ...] | None] = [None] * len(WEIGHTS)
    for number, (low, high) in enumerate(model.blocks):
        table = model.family.probabilities(model.rows(number), model.global_state)["word_topic"]
        phi = np.asarray(table)[:, ids].T
        enough = (phi * share[:, None] * tokens >= MIN_EXPECTED_TOKENS) & (overall[low:high] > 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs, log_overall = np.log(phi), np.log(overall[low:high])
        log_overall = np.where(np.isfinite(log_overall), log_overall, 0.0)
        for number_of_weight, weight in enumerate(WEIGHTS):
            scores = np.where(enough, relevance(logs, log_overall, weight), -np.inf)
            top = np.argpartition(-scores, min(count, scores.shape[1] - 1), axis=1)[:, :count]
            block: tuple[npt.NDArray[Any], ...] = (
                top + low,
                np.take_along_axis(scores, top, axis=1),
                np.take_along_axis(phi, top, axis=1),
            )
            before = best[number_of_weight]
            if before is not None:
                block = tuple(np.concatenate(pair, 1) for pair in zip(before, block, strict=True))
            ranks = np.lexsort((block[0], -block[1]), axis=1)[:, :count]
            best[number_of_weight] = tuple(np.take_along_axis(values, ranks, axis=1) for values in block)
    pools = []
    for topic in range(ids.size):
        probability: dict[int, float] = {}
        for ranked in best:
            if ranked is not None:
                rows = zip(*(values[topic].tolist() for values in ranked), strict=True)
                probability.update({word: p for word, score, p in rows if math.isfinite(score)})
        order = sorted(probability, key=lambda word: (-probability[word], word))
        pools.append(Pool(np.array(order, dtype=np.int64), np.array([probability[word] for word in order])))
    return pools
