"""Where topics lie: a map of their Hellinger distances; and the words that tell one from the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh

from collapsar.pipeline.opening import Model
from collapsar.pipeline.stability import distances
from collapsar.workers.contract import load_sweeps

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

WEIGHTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # lambda, of which a page lets its reader choose
WORDS = 12
LEAST_TOKENS = 0.5  # words of which a topic has fewer are not characteristic of it


@dataclass(frozen=True)
class TopicMap:
    """Topics in a plane.

    Attributes
    ----------
    x, y : numpy.ndarray of float64, shape (topics,)
        Where they lie; distances are about the Hellinger distances.
    shown : float
        How much of the scatter (the sum of the squared distances) the plane shows, from 0 to 1.
    """

    x: Floats
    y: Floats
    shown: float


def topic_map(model: Model, ids: Ints) -> TopicMap:
    """Lay topics out by classical scaling of the Hellinger distances of their words' probabilities.

    Parameters
    ----------
    model : Model
        Their model.
    ids : numpy.ndarray of int64, shape (topics,)
        Which topics.

    Returns
    -------
    TopicMap
        The same for the same model.
    """
    return scaled(distances(model, model)[np.ix_(ids, ids)])


def scaled(apart: Floats) -> TopicMap:
    """Scale distances to two dimensions (Torgerson): the largest coordinate along each is positive."""
    count = apart.shape[0]
    if count < 2:
        return TopicMap(np.zeros(count), np.zeros(count), 1.0)
    squares = 0.25 * (apart + apart.T) ** 2  # what rounding leaves uneven is evened out
    np.fill_diagonal(squares, 0.0)
    means = squares.mean(axis=0)
    inner = -0.5 * (squares - means[:, None] - means[None, :] + squares.mean())
    first = max(count - 2, 0)
    values, vectors = eigh(inner, subset_by_index=[first, count - 1])
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    places = np.zeros((count, 2))
    for column in range(min(2, vectors.shape[1])):
        one = vectors[:, column] * np.sqrt(values[column])
        places[:, column] = np.round(one * np.sign(one[np.abs(one).argmax()] or 1.0), 6)
    total = max(float(np.trace(inner)), 1e-300)
    return TopicMap(places[:, 0], places[:, 1], min(float(values.sum()) / total, 1.0))


@dataclass(frozen=True)
class Pool:
    """Words of a topic among which are the most relevant ones for each of `WEIGHTS`.

    Attributes
    ----------
    words : numpy.ndarray of int64, shape (words,)
        Their ids, by falling probability.
    probability : numpy.ndarray of float64, shape (words,)
        Under the topic.
    """

    words: Ints
    probability: Floats


def relevant(model: Model, ids: Ints, share: Floats, count: int = WORDS) -> list[Pool]:
    """Find the words most relevant to topics: lambda log p(w | k) + (1 - lambda) log p(w | k) / p(w).

    Sievert and Shirley (2014). A block of the vocabulary at a time.

    Parameters
    ----------
    model : Model
        Their model, with probabilities.
    ids : numpy.ndarray of int64, shape (topics,)
        Which topics.
    share : numpy.ndarray of float64, shape (topics,)
        Their shares of the tokens.
    count : int, optional
        Words for each of `WEIGHTS`.

    Returns
    -------
    list of Pool
        One a topic.
    """
    tokens = model.vocabulary.tokens.astype(np.float64)
    overall = tokens / max(tokens.sum(), 1.0)
    sweeps = load_sweeps(model.record.family)
    best: list[tuple[Ints, Floats, Floats] | None] = [None] * len(WEIGHTS)
    for number, (low, high) in enumerate(model.blocks):
        phi = np.asarray(sweeps.probabilities(model.rows(number), model.globals)["word_topic"])[:, ids].T
        enough = (phi * share[:, None] * tokens.sum() >= LEAST_TOKENS) & (overall[low:high] > 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs, lift = np.log(phi), -np.log(overall[low:high])
        for place, weight in enumerate(WEIGHTS):
            # lambda log p + (1 - lambda) (log p - log p(w)) = log p + (1 - lambda) (-log p(w))
            score = np.where(enough, logs + (1.0 - weight) * np.where(np.isfinite(lift), lift, 0.0), -np.inf)
            top = np.argpartition(-score, min(count, score.shape[1] - 1), axis=1)[:, :count]
            found = (top + low, np.take_along_axis(score, top, axis=1), np.take_along_axis(phi, top, axis=1))
            best[place] = _better(best[place], found, count)
    pools = []
    for topic in range(ids.size):
        seen: dict[int, float] = {}
        for one in best:
            if one is not None:
                words, score, phi = (values[topic] for values in one)
                seen.update({int(w): float(p) for w, s, p in zip(words, score, phi, strict=True) if np.isfinite(s)})
        order = sorted(seen, key=lambda word: (-seen[word], word))
        pools.append(Pool(np.array(order, dtype=np.int64), np.array([seen[word] for word in order])))
    return pools


def _better(
    one: tuple[Ints, Floats, Floats] | None, other: tuple[Ints, Floats, Floats], count: int
) -> tuple[Ints, Floats, Floats]:
    """Take the words with the largest scores of two blocks."""
    joined = other if one is None else tuple(np.concatenate(pair, axis=1) for pair in zip(one, other, strict=True))
    order = np.lexsort((joined[0], -joined[1]), axis=1)[:, :count]
    words, score, phi = (np.take_along_axis(values, order, axis=1) for values in joined)
    return words, score, phi
