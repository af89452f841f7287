"""Drawing topics and documents of a bag-of-words model, for families to simulate from; topics are kept sparse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

FLOOR = 1e-12  # words of a topic that are less probable are left out
PORTION = 1 << 18  # cells of documents x topics, or tokens, that are drawn at a time
GUIDE = 1 << 21  # at most so many places of the topics' cumulative probabilities are looked up beforehand

Vector = npt.NDArray[np.float64]


def draw_sticks(topics: int, gamma: float, stream: Stream) -> Vector:
    """Draw pi_k = v_k prod_{l<k} (1 - v_l), v_k ~ Beta(1, gamma), of topics of which the last takes the rest."""
    sticks = stream.at(purpose="simulate sticks").generator().beta(1.0, gamma, size=topics)
    sticks[-1] = 1.0
    pi: Vector = sticks * np.concatenate([[1.0], np.cumprod(1.0 - sticks)[:-1]])
    return pi


def draw_topics(words: int, tokens: Vector, concentration: float | Vector, stream: Stream) -> Arrays:
    """Draw phi_k ~ Dir(concentration / W, ..., concentration / W) and keep the words that matter.

    A small concentration leaves few words: with 100, some 2200 of each topic, however many words there are. Each kept
    word takes 20 bytes.

    Parameters
    ----------
    words : int
        W, the size of the vocabulary.
    tokens : numpy.ndarray of float64, shape (topics,)
        How many tokens each topic shall stand for where it is written as expected counts.
    concentration : float or numpy.ndarray of float64, shape (topics,)
        The sum of the Dirichlet parameters, of all topics or of each.
    stream : Stream
        Topic k is drawn from its own address, place k.

    Returns
    -------
    Arrays
        ``word`` and ``probability``, of shape (entries,): the words of topic 0, ascending, then those of topic 1, ...;
        ``start``, of shape (topics + 1,): where each topic's entries begin; ``cumulative``, of shape (entries,): the
        running sum of the probabilities, from k to k + 1 in topic k; ``guide``: the entries in which evenly spaced
        places of that sum fall; ``tokens``.
    """
    address = stream.at(purpose="simulate topics")
    each = np.broadcast_to(concentration, tokens.shape)
    drawn = [_draw_topic(words, float(one), address.at(place=topic).generator()) for topic, one in enumerate(each)]
    start = np.cumsum([0, *(word.size for word, _ in drawn)])
    cumulative = np.concatenate([topic + np.cumsum(probability) for topic, (_, probability) in enumerate(drawn)])
    cumulative[start[1:] - 1] = np.arange(1, tokens.size + 1)  # exactly, whatever the sums were rounded to
    # A power of two, so that positions times it are exact.
    spaced = 1 << (max(GUIDE // tokens.size, 1).bit_length() - 1)
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

    A Gamma variable with the small shape b is H exp(-E / b), with H ~ Gamma(1 + b) and E ~ Exp(1). The least of W such
    E is Exp(1) / W, and by how much each other exceeds it is Exp(1) again; so the words that can reach the floor
    beside the word with the least E are a binomial number, and no other word is drawn at all.
    """
    shape = concentration / words
    first = generator.standard_gamma(1.0 + shape)
    most = 2.0 * (1.0 + shape) + 100.0  # H is above it with a chance below exp(-75)
    reach = shape * special.log(most / (FLOOR * first))
    others = generator.binomial(words - 1, -special.expm1(-reach))
    behind = -special.log1p(special.expm1(-reach) * generator.random(others))
    weight = np.concatenate([[first], generator.standard_gamma(1.0 + shape, others) * special.exp(-behind / shape)])
    word = generator.choice(words, others + 1, replace=False)
    keep = weight >= FLOOR * weight.sum()
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


def portion(topics: Arrays, tokens: float) -> int:
    """Return how many documents to draw at a time, so that memory stays small."""
    return max(int(PORTION / max(tokens, topics["start"].size - 1)), 1)


def draw_documents(
    topics: Arrays, words: int, prior: Vector, documents: int, tokens: float, stream: Stream
) -> tuple[Documents, Vector]:
    """Draw documents from topics.

    Parameters
    ----------
    topics : Arrays
        From `draw_topics`.
    words : int
        The size of the vocabulary.
    prior : numpy.ndarray of float64, shape (topics,)
        theta_d ~ Dir(prior).
    documents : int
        How many.
    tokens : float
        Mean number of tokens of a document, which is Poisson.
    stream : Stream
        Addressed to the portion.

    Returns
    -------
    documents : Documents
        Without ids, which depend on the place in the corpus.
    theta : numpy.ndarray of float64, shape (documents, topics)
        Their proportions.
    """
    generator = stream.generator()
    theta = draw_proportions(prior, documents, generator)
    return draw_bags(topics, words, theta, tokens, generator), theta


def draw_bags(topics: Arrays, words: int, theta: Vector, tokens: float, generator: np.random.Generator) -> Documents:
    """Draw documents of given proportions, shape (documents, topics); see `draw_documents`."""
    import pyarrow as pa

    from collapsium.storage.corpus.shard import Documents

    documents = len(theta)
    owner, topic = _draw_tokens(theta, tokens, generator)
    word = _draw_words(topics, topic, generator)
    key: Any = np.uint32 if documents * words <= 1 << 32 else np.uint64  # the smaller sorts in half the time
    cell = np.sort(owner.astype(key) * key(words) + word.astype(key))
    first = np.flatnonzero(np.concatenate([[True], cell[1:] != cell[:-1]])) if cell.size else np.zeros(0, np.int64)
    counts = np.diff(first, append=cell.size).astype(np.int32)
    cell = cell[first]
    offsets = np.searchsorted(cell, np.arange(documents, dtype=key) * key(words))
    offsets = np.append(offsets, cell.size).astype(np.int64)
    drawn = (cell % key(words)).astype(np.int32)
    return Documents(pa.nulls(documents, pa.string()), offsets, drawn, counts)


def draw_proportions(prior: Vector, documents: int, generator: np.random.Generator) -> Vector:
    """Draw theta_d ~ Dir(prior) as H exp(-E / a), normalised: in logarithms, where small parameters do not vanish.

    Parameters
    ----------
    prior : numpy.ndarray of float64, shape (topics,) or (documents, topics)
        Of all documents, or of each; one with a prior of 0 has none of the topic.
    documents : int
        How many.
    generator : numpy.random.Generator
        Moved.

    Returns
    -------
    numpy.ndarray of float64, shape (documents, topics)
        theta.
    """
    theta = log_gammas(prior, documents, generator)
    theta -= theta.max(axis=1, keepdims=True)
    theta[...] = special.exp(theta)
    theta /= theta.sum(axis=1, keepdims=True)
    return theta


def log_gammas(prior: Vector, documents: int, generator: np.random.Generator) -> Vector:
    """Draw the logarithms of Gamma(prior, 1), shape (documents, topics), also where the variables themselves vanish."""
    shape = (documents, prior.shape[-1])
    drawn: Vector = special.log(generator.standard_gamma(1.0 + prior, size=shape))
    drawn -= generator.standard_exponential(shape) / np.maximum(prior, 1e-300)
    return drawn


def _draw_tokens(
    theta: Vector, tokens: float, generator: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Draw the tokens' documents, ascending, and their topics.

    Laid end to end, the documents' proportions are a line on which tokens are a Poisson process; so the documents'
    lengths are Poisson, and the positions, which come sorted, are running sums of exponentials.
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
    """Draw each token's word from its topic; most fall between two places of the guide within one word."""
    cumulative, guide = topics["cumulative"], topics["guide"]
    # Rounding moves a token to the next topic with a chance of 1e-13; what it moves past the last one is moved back.
    position = topic + generator.random(topic.size)
    place = (position * ((guide.size - 1) // (topics["start"].size - 1))).astype(np.int64)
    place = np.minimum(place, guide.size - 2)
    entry = guide[place]
    undecided = np.flatnonzero(entry != guide[place + 1])
    found = np.searchsorted(cumulative, position[undecided], side="right")
    entry[undecided] = np.minimum(found, cumulative.size - 1)
    drawn: npt.NDArray[np.int32] = topics["word"][entry]
    return drawn
