"""Rank the words of topics by probability, FREX, lift or relevance.

FREX is that of Bischof and Airoldi (2012), relevance that of Sievert and Shirley (2014).

With phi_kw = p(w | k) and p(w) the share of a word in the corpus:

* probability: phi_kw;
* lift: phi_kw / p(w);
* relevance: lambda log phi_kw + (1 - lambda) log(phi_kw / p(w));
* FREX: 1 / (omega / F(phi_kw / sum_j phi_jw) + (1 - omega) / F(phi_kw)), the harmonic mean of the ranks of a word in a
  topic by exclusivity and by frequency. F(x) is the share of the vocabulary's words with a value of at most x.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.options import RankOptions
from collapsium.pipeline.models.model import Model
from collapsium.workers.arrays.ranking import largest

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


FREX_WEIGHT = 0.5  # omega, the weight of exclusivity in FREX, as in the R package stm
# lambda, the weight of probability in relevance, the best value in the study of Sievert and Shirley (2014)
RELEVANCE_WEIGHT = 0.6
# Expected tokens of a word in a topic below which it comes after all others, as its lift is due to the prior
MIN_EXPECTED_TOKENS = 0.5
CELLS_IN_MEMORY = 1 << 24  # Probabilities that are held in memory at a time; FREX needs all words of a topic together


BY_PROBABILITY = RankOptions()


def relevance(log_probability: Floats, log_overall: Floats, weight: float) -> Floats:
    """Return lambda log p(w | k) + (1 - lambda) log(p(w | k) / p(w))."""
    result: Floats = log_probability - (1.0 - weight) * log_overall
    return result


def frex(probability: Floats, exclusivity: Floats, weight: float) -> Floats:
    """Return the FREX scores of words (Bischof and Airoldi 2012, equation 11)."""
    scores: Floats = 1.0 / (weight / _cumulative(exclusivity) + (1.0 - weight) / _cumulative(probability))
    return scores


def _cumulative(values: Floats) -> Floats:
    """Return the share of each row's values that are at most as large as each of them."""
    return np.stack([np.searchsorted(np.sort(row), row, side="right") / max(row.size, 1) for row in values])


def _weight(options: RankOptions) -> float:
    """Return the weight of the measure, or its default."""
    if options.rank_weight is not None:
        return options.rank_weight
    return FREX_WEIGHT if options.rank_by == "frex" else RELEVANCE_WEIGHT


def word_scores(
    probability: Floats, exclusivity: Floats, overall: Floats, expected: Floats, options: RankOptions
) -> Floats:
    """Return the scores by which the words of some topics are ranked."""
    if options.rank_by == "probability":
        return probability
    if options.rank_by == "frex":
        scores = frex(probability, exclusivity, _weight(options))
    else:
        weight = 0.0 if options.rank_by == "lift" else _weight(options)
        tiny = np.finfo(np.float64).tiny
        scores = relevance(np.log(np.maximum(probability, tiny)), np.log(np.maximum(overall, tiny)), weight)
    enough = (probability * expected[:, np.newaxis] >= MIN_EXPECTED_TOKENS) & (overall > 0.0)
    lowest = np.where(enough, scores, np.inf).min(axis=1, keepdims=True)
    below = np.where(np.isfinite(lowest), lowest, 0.0) - 2.0 + probability
    return np.where(enough, scores, below)


def ranked_words(model: Model, ids: Ints, share: Floats, count: int, options: RankOptions) -> tuple[Ints, Floats]:
    """Return the first words of topics by a measure, and their probabilities.

    The vocabulary is read a block at a time, for as many topics at a time as `CELLS_IN_MEMORY` allows.
    """
    tokens = model.vocabulary.tokens.astype(np.float64)
    overall, width = tokens / max(float(tokens.sum()), 1.0), tokens.size
    group = max(CELLS_IN_MEMORY // max(width, 1), 1)
    words, probabilities = [np.zeros((0, min(count, width)), np.int64)], [np.zeros((0, min(count, width)))]
    occupied = ids[share > 0.0]
    for first in range(0, ids.size, group):
        some = slice(first, first + group)
        probability, total = np.empty((ids[some].size, width)), np.empty(width)
        for low, high, table in _tables(model):
            probability[:, low:high] = table[:, ids[some]].T
            total[low:high] = table[:, occupied].sum(axis=1)
        exclusivity = np.minimum(probability / np.maximum(total, np.finfo(np.float64).tiny), 1.0)
        expected = share[some] * tokens.sum()
        top = largest(word_scores(probability, exclusivity, overall, expected, options), count)
        words.append(top)
        probabilities.append(np.take_along_axis(probability, top, axis=1))
    return np.concatenate(words), np.concatenate(probabilities)


def _tables(model: Model) -> Iterator[tuple[int, int, Floats]]:
    """Yield the blocks of the vocabulary: first and last-plus-one word, and probabilities, shape (words, topics)."""
    for number, (low, high) in enumerate(model.blocks):
        table = model.family.probabilities(model.rows(number), model.global_state)["word_topic"]
        yield low, high, np.maximum(np.asarray(table, dtype=np.float64), 0.0)
