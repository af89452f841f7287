"""Draw sparse topics and bags of words, for simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

Vector = npt.NDArray[np.float64]


MIN_PROBABILITY = 1e-12  # Less probable words of a topic are left out
CHUNK_CELLS = 1 << 18  # Cells of documents x topics, or tokens, that are drawn at a time
# Positions in the topics' cumulative probabilities whose entries are tabulated, at most
GUIDE_POSITIONS = 1 << 21


def draw_sticks(topics: int, gamma: float, stream: Stream) -> Vector:
    """Draw pi_k = v_k prod_{l<k} (1 - v_l), v_k ~ Beta(1, gamma); the last topic takes the rest."""
    sticks = stream.at(purpose="simulate sticks").generator().beta(1.0, gamma, size=topics)
    sticks[-1] = 1.0
    pi: Vector = sticks * np.concatenate([[1.0], np.cumprod(1.0 - sticks)[:-1]])
    return pi


def draw_topics(words: int, tokens: Vector, concentration: float | Vector, stream: Stream) -> Arrays:
    """Draw phi_k ~ Dir(concentration / W, ..., concentration / W), without words of negligible probability.

    A small concentration leaves few words: with 100, some 2200 of each topic, for any size of the vocabulary. Each word
    takes 20 bytes.
    """
    address = stream.at(purpose="simulate topics")
    drawn = [
        _draw_topic(words, float(total), address.at(place=topic).generator())
        for topic, total in enumerate(np.broadcast_to(concentration, tokens.shape))
    ]
    start = np.cumsum([0, *(word.size for word, _ in drawn)])
    cumulative = np.concatenate([topic + np.cumsum(probability) for topic, (_, probability) in enumerate(drawn)])
    # The last entry of each topic is exact, without the rounding of the sums.
    cumulative[start[1:] - 1] = np.arange(1, tokens.size + 1)
    # A power of two, so that positions times it are exact.
    spaced = 1 << (max(GUIDE_POSITIONS // tokens.size, 1).bit_length() - 1)
    guide = np.searchsorted(cumulative, np.arange(tokens.size * spaced + 1) / spaced, side="right")
    return {
        "word": np.concatenate([word for word, _ in drawn]),
        "probability": np.concatenate([probability for _, probability in drawn]),
        "start": start,
        "cumulative": cumulative,
        "guide": np.minimum(guide, start[-1] - 1).astype(np.int32),
        "tokens": tokens,
    }


def _draw_topic(
    words: int, concentration: float, generator: np.random.Generator
) -> tuple[npt.NDArray[np.int32], Vector]:
    """Draw one topic's words, ascending, and their probabilities, which sum to one.

    A Gamma variable with a small shape b is H exp(-E / b), with H ~ Gamma(1 + b) and E ~ Exp(1). The least of W such E
    is Exp(1) / W, and each other exceeds it by Exp(1). So the number of further words that can reach the least
    probability is binomial, and no other word is drawn.
    """
    shape = concentration / words
    first = generator.standard_gamma(1.0 + shape)
    # H is larger with a probability below exp(-75).
    bound = 2.0 * (1.0 + shape) + 100.0
    reach = shape * special.log(bound / (MIN_PROBABILITY * first))
    more = generator.binomial(words - 1, -special.expm1(-reach))
    behind = -special.log1p(special.expm1(-reach) * generator.random(more))
    weight = np.concatenate([[first], generator.standard_gamma(1.0 + shape, more) * special.exp(-behind / shape)])
    word = generator.choice(words, more + 1, replace=False)
    keep = weight >= MIN_PROBABILITY * weight.sum()
    word, weight = word[keep], weight[keep]
    order = np.argsort(word)
    return word[order].astype(np.int32), weight[order] / weight.sum()


def expected_counts(topics: Arrays, low: int, high: int) -> Vector:
    """Return the tokens of the words `low` to `high` - 1 in each topic, shape (high - low, topics)."""
    word, start = topics["word"], topics["start"]
    inside = np.flatnonzero((word >= low) & (word < high))
    topic = np.searchsorted(start, inside, side="right") - 1
    counts = np.zeros((high - low, start.size - 1))
    counts[word[inside] - low, topic] = topics["probability"][inside] * topics["tokens"][topic]
    return counts


def chunk_documents(topics: Arrays, tokens: float) -> int:
    """Return the number of documents to draw at a time, which bounds memory."""
    return max(int(CHUNK_CELLS / max(tokens, topics["start"].size - 1)), 1)


def draw_documents(
    topics: Arrays, words: int, prior: Vector, documents: int, tokens: float, stream: Stream
) -> tuple[Documents, Vector]:
    """Draw documents from topics.

    Returns documents: The documents, without ids, which depend on their position in the corpus; theta: Proportions of
    the documents
    """
    generator = stream.generator()
    theta = draw_proportions(prior, documents, generator)
    return draw_bags(topics, words, theta, tokens, generator), theta


def draw_bags(topics: Arrays, words: int, theta: Vector, tokens: float, generator: np.random.Generator) -> Documents:
    """Draw documents with proportions `theta`, shape (documents, topics); see `draw_documents`."""
    from collapsium.storage.corpus import writer

    documents = len(theta)
    owner, topic = _draw_tokens(theta, tokens, generator)
    word = _draw_words(topics, topic, generator)
    # The smaller type sorts in half the time.
    key: Any = np.uint32 if documents * words <= 1 << 32 else np.uint64
    cell = np.sort(owner.astype(key) * key(words) + word.astype(key))
    first = np.flatnonzero(np.concatenate([[True], cell[1:] != cell[:-1]])) if cell.size else np.zeros(0, np.int64)
    counts = np.diff(first, append=cell.size).astype(np.int32)
    cell = cell[first]
    offsets = np.searchsorted(cell, np.arange(documents, dtype=key) * key(words))
    offsets = np.append(offsets, cell.size).astype(np.int64)
    return writer.drawn_documents(offsets, (cell % key(words)).astype(np.int32), counts)


def draw_proportions(prior: Vector, documents: int, generator: np.random.Generator) -> Vector:
    """Draw theta_d ~ Dir(prior), in logarithms, so that small parameters do not underflow."""
    theta = log_gammas(prior, documents, generator)
    theta -= theta.max(axis=1, keepdims=True)
    theta[...] = special.exp(theta)
    theta /= theta.sum(axis=1, keepdims=True)
    return theta


def log_gammas(prior: Vector, documents: int, generator: np.random.Generator) -> Vector:
    """Draw logarithms of Gamma(prior, 1) variables, shape (documents, topics), also where the variables underflow."""
    shape = (documents, prior.shape[-1])
    drawn: Vector = special.log(generator.standard_gamma(1.0 + prior, size=shape))
    drawn -= generator.standard_exponential(shape) / np.maximum(prior, 1e-300)
    return drawn


def _draw_tokens(
    theta: Vector, tokens: float, generator: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Draw the tokens' documents, ascending, and their topics.

    Tokens are a Poisson process on the cumulative sum of all proportions, document by document. So lengths of documents
    are Poisson, and the sorted positions are running sums of exponentials.
    """
    documents, topics = theta.shape
    line = np.cumsum(theta)
    steps = np.cumsum(generator.standard_exponential(int(generator.poisson(documents * tokens)) + 1))
    position = steps[:-1] * (line[-1] / steps[-1])
    cell = np.minimum(np.searchsorted(line, position, side="right"), line.size - 1)
    ends = np.searchsorted(cell, np.arange(1, documents + 1) * topics)
    owner = np.repeat(np.arange(documents), np.diff(ends, prepend=0))
    return owner, cell - owner * topics


def _draw_words(topics: Arrays, topic: npt.NDArray[np.int64], generator: np.random.Generator) -> npt.NDArray[np.int32]:
    """Draw each token's word from its topic; the guide decides all but tokens near the bounds of words."""
    cumulative, guide = topics["cumulative"], topics["guide"]
    # Rounding moves a token to the next topic with probability 1e-13; past the last topic it is moved back.
    position = topic + generator.random(topic.size)
    nearest = (position * ((guide.size - 1) // (topics["start"].size - 1))).astype(np.int64)
    nearest = np.minimum(nearest, guide.size - 2)
    entry = guide[nearest]
    undecided = np.flatnonzero(entry != guide[nearest + 1])
    searched = np.searchsorted(cumulative, position[undecided], side="right")
    entry[undecided] = np.minimum(searched, cumulative.size - 1)
    drawn: npt.NDArray[np.int32] = topics["word"][entry]
    return drawn
