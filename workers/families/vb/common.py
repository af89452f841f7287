"""What families of mean-field topics share beside a shard: first responsibilities, and rows of words.

A sweep gives its shard's E[n_kw] as a fresh total, and folding puts the sum over the shards in place of the counts
before; what a shard changes acts from the next iteration on, so that the number of shards changes nothing but rounding.
Of the words, sweeps see exp(psi(lambda_kw)) (``word_expected``); the counts stay in their block (``block_topic``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Arrays, Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels.vb import mean_field
from collapsium.workers.kernels.vb.records import ExpectedCounts

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Vector = npt.NDArray[np.float64]

KERNELS = (mean_field.count_products, mean_field.fold_words)
FIRST = 8  # topics that a document begins with where there are more
LEAST = 1e-100  # share of a topic that has none: its product with another is still above zero


def blank(words: int, topics: int) -> Arrays:
    """Make the rows of `words` words before any document has been seen."""
    return {"block_topic": np.zeros((words, topics)), "word_expected": np.ones((words, topics))}


def started(shard: Shard, topics: int, stream: Stream, warm: Arrays | None) -> tuple[npt.NDArray[np.float32], Vector]:
    """Draw a shard's first responsibilities, alike for all pairs of a document, or take another run's; count them.

    Parameters
    ----------
    shard : Shard
        The documents.
    topics : int
        How many topics.
    stream : Stream
        Addressed to the shard.
    warm : Arrays or None
        ``document_topic``, proportions theta of shape (documents, K'), and ``word_topic``, probabilities phi of shape
        (shard words, K'), with K' <= K: then q ~ theta phi, and further topics begin empty.

    Returns
    -------
    document_topic : numpy.ndarray of float32, shape (documents, topics)
        E[n_dk].
    word_topic : numpy.ndarray of float64, shape (shard words, topics)
        E[n_kw].

    Raises
    ------
    ValueError
        `warm` has more topics.
    """
    if warm is None:
        shares = first_shares(shard.documents, topics, stream.generator())
        phi = np.ones((shard.words.size, topics))
    else:
        shares, phi = (widened(warm[name], topics) for name in ("document_topic", "word_topic"))
    by_document = np.empty((shard.documents, topics), dtype=np.float32)
    by_word = buffers.empty((shard.words.size, topics), np.float64)
    mean_field.count_products(document_pairs(shard), shares, phi, ExpectedCounts(by_document, by_word))
    return by_document, by_word


def first_shares(documents: int, topics: int, generator: np.random.Generator) -> Vector:
    """Draw proportions of documents over a few random topics each, or over all if they are few."""
    first = min(FIRST, topics)
    drawn = (
        np.argsort(generator.random((documents, topics)), axis=1, kind="stable")[:, :first]
        if topics > FIRST
        else np.arange(topics)
    )
    shares = np.full((documents, topics), LEAST)
    shares[np.arange(documents)[:, np.newaxis], drawn] += generator.random((documents, first)) + 0.1
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def widened(given: npt.NDArray[Any], topics: int) -> Vector:
    """Give another run's proportions or probabilities further topics, and nothing that is zero."""
    if given.shape[1] > topics:
        raise ValueError(f"expected at most {topics} topics to begin from, found {given.shape[1]}")
    wide = np.full((given.shape[0], topics), LEAST)
    wide[:, : given.shape[1]] = np.maximum(given, LEAST)
    return wide


def even(shard: Shard, topics: int) -> npt.NDArray[np.float32]:
    """Return E[n_dk] of even proportions."""
    return np.repeat((shard.lengths / topics).astype(np.float32)[:, np.newaxis], topics, axis=1)


def delta_of(shard: Shard, by_word: Vector, **more: Any) -> Delta:
    """Return a sweep's delta: fresh E[n_kw], and what else it tells."""
    return Delta({"word_topic": fresh(by_word, "word", "topic"), **more}, {"word": shard.words})


def fold(block: Arrays, delta: Delta, prior: Vector) -> tuple[Arrays, Delta]:
    """Put new counts in the place of a block's, and make exp(psi(lambda_kw)) of them.

    Parameters
    ----------
    block : Arrays
        The rows so far.
    delta : Delta
        Fresh ``word_topic``; its word ids count from the block's first word. Words that it does not have are in no
        document.
    prior : numpy.ndarray of float64, shape (words,)
        b_w.

    Returns
    -------
    block : Arrays
        The new rows.
    delta : Delta
        Fresh ``topic_total`` (E[n_k]), ``moved`` (sum of absolute changes of E[n_kw]), ``bound_words`` and
        ``log_phi`` (sum_kw psi(lambda_kw)).
    """
    before = block["block_topic"]
    after = np.zeros(before.shape)
    if "word_topic" in delta:
        after[delta.ids["word"]] = delta["word_topic"]
    expected, sums = np.empty(after.shape), np.zeros(2)
    mean_field.fold_words(after, block["word_expected"], prior, expected, sums)
    told = {
        "topic_total": fresh(after.sum(axis=0), "topic"),
        "moved": fresh(np.abs(after - before).sum()),
        "bound_words": fresh(sums[0]),
        "log_phi": fresh(sums[1]),
    }
    return {"block_topic": after, "word_expected": expected}, Delta(told)


def finish(block: Arrays) -> Arrays:
    """Give the rows that a finished model keeps: E[n_kw] as ``word_topic``."""
    return {"word_topic": block["block_topic"]}


def counted(rows: Arrays) -> Arrays:
    """Give rows as a finished model has them."""
    return rows if "word_topic" in rows else {"word_topic": rows["block_topic"]}


def expected(rows: Arrays, prior: Vector) -> Vector:
    """Return exp(psi(lambda_kw)) of rows as a block or a finished model has them, each word's scaled."""
    counts = np.ascontiguousarray(counted(rows)["word_topic"], dtype=np.float64)
    made = np.empty(counts.shape)
    mean_field.fold_words(counts, np.ones(counts.shape), prior, made, np.zeros(2))
    return made
