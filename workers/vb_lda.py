"""Latent Dirichlet allocation by mean-field variational Bayes, beside a shard (Blei, Ng and Jordan 2003).

theta_d ~ Dir(a_1..a_K), phi_k ~ Dir(b_1..b_W); q(theta_d) = Dir(gamma_d), q(phi_k) = Dir(lambda_k), and

    gamma_dk = a_k + sum_w c q,   lambda_kw = b_w + sum_d c q,
    q_dwk ~ exp( psi(gamma_dk) + psi(lambda_kw) - psi(sum_w lambda_kw) ).

Responsibilities are not kept: they follow from gamma and lambda. A sweep gives its shard's E[n_kw] as a fresh total,
and folding puts the sum over the shards in place of the counts before; what a shard changes acts from the next
iteration on, so that the number of shards changes nothing but rounding. Of the words, sweeps see exp(psi(lambda_kw))
(`word_expected`); the counts stay in their block (`block_topic`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import digamma

from collapsar.storage.shard import Shard
from collapsar.workers import buffers, collapsed
from collapsar.workers.delta import Arrays, Delta, fresh
from collapsar.workers.kernels import mean_field
from collapsar.workers.kernels.compile import Kernel
from collapsar.workers.kernels.predict import pair_probability
from collapsar.workers.parameters import Parameters
from collapsar.workers.streams import Stream

Vector = npt.NDArray[np.float64]

FIRST = 8  # topics that a document begins with where there are more
LEAST = 1e-100  # share of a topic that has none: its product with another is still above zero
FOLD_IN_PASSES, FOLD_IN_TOLERANCE = 100, 1e-4  # over unseen documents


def parameters(rows: Arrays, globals: Arrays) -> Parameters:
    """Take a_k and b_w from the globals."""
    count = len(next(iter(rows.values()))) if rows else 0
    return Parameters(
        topics=np.asarray(globals["alpha"], dtype=np.float64),
        concentration=float(globals["alpha"].sum()),
        words=np.full(count, float(globals["beta"]) / float(globals["vocabulary"])),
        total=float(globals["beta"]),
    )


def kernels(globals: Arrays) -> Sequence[Kernel[..., Any]]:
    """Name the kernels that a fit calls in every iteration."""
    return [mean_field.count_products, mean_field.sweep_mean_field, mean_field.fold_words, pair_probability]


def blank(words: int, globals: Arrays) -> Arrays:
    """Make the rows of `words` words before any document has been seen."""
    shape = (words, globals["alpha"].size)
    return {"block_topic": np.zeros(shape), "word_expected": np.ones(shape)}


def start(
    shard: Shard,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
    warm: Arrays | None = None,
) -> tuple[Arrays, Delta]:
    """Draw a shard's first responsibilities, alike for all pairs of a document, or take another run's; count them.

    Parameters
    ----------
    shard : Shard
        The documents.
    rows : Arrays
        Not used.
    globals : Arrays
        Say how many topics there are.
    stream : Stream
        Addressed to the shard.
    warm : Arrays, optional
        ``document_topic``, proportions theta of shape (documents, K'), and ``word_topic``, probabilities phi of shape
        (shard words, K'), with K' <= K: then q ~ theta phi, and further topics begin empty.

    Returns
    -------
    local : Arrays
        ``document_topic``, E[n_dk], float32; ``even``, how many sweeps are to begin from even proportions.
    delta : Delta
        Fresh ``word_topic``, E[n_kw].

    Raises
    ------
    ValueError
        `warm` has more topics than the globals.
    """
    topics = globals["alpha"].size
    if warm is None:
        shares = _first_shares(shard.documents, topics, stream.generator())
        phi = np.ones((shard.words.size, topics))
    else:
        shares, phi = (_widened(warm[name], topics) for name in ("document_topic", "word_topic"))
    by_document = np.empty((shard.documents, topics), dtype=np.float32)
    by_word = buffers.empty((shard.words.size, topics), np.float64)
    mean_field.count_products(shard.offsets, shard.position, shard.counts, shares, phi, by_document, by_word)
    even = globals["even_sweeps"] if warm is None else np.zeros_like(globals["even_sweeps"])
    return {"document_topic": by_document, "even": even}, _delta(shard, by_word)


def _first_shares(documents: int, topics: int, generator: np.random.Generator) -> Vector:
    """Draw proportions of documents over a few random topics each, or over all if they are few."""
    first = min(FIRST, topics)
    drawn = (
        np.argsort(generator.random((documents, topics)), axis=1)[:, :first] if topics > FIRST else np.arange(topics)
    )
    shares = np.full((documents, topics), LEAST)
    shares[np.arange(documents)[:, np.newaxis], drawn] += generator.random((documents, first)) + 0.1
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def _widened(given: npt.NDArray[Any], topics: int) -> Vector:
    """Give another run's proportions or probabilities further topics, and nothing that is zero."""
    if given.shape[1] > topics:
        raise ValueError(f"expected at most {topics} topics to begin from, found {given.shape[1]}")
    wide = np.full((given.shape[0], topics), LEAST)
    wide[:, : given.shape[1]] = np.maximum(given, LEAST)
    return wide


def _delta(shard: Shard, by_word: Vector, **more: Any) -> Delta:
    return Delta({"word_topic": fresh(by_word, "word", "topic"), **more}, {"word": shard.words})


def sweep(
    shard: Shard,
    local: Arrays,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
) -> tuple[Arrays, Delta]:
    """Pass over a shard, each document until its gamma is settled or its passes are used up.

    Parameters
    ----------
    shard : Shard
        The documents.
    local : Arrays
        Each document begins from its ``document_topic`` or, in the first sweeps, from even proportions: else the
        random start would hold it.
    rows : Arrays
        ``word_expected`` of the shard's words.
    globals : Arrays
        As the iteration began.
    stream : Stream
        Not used.

    Returns
    -------
    local : Arrays
        The new one.
    delta : Delta
        Fresh ``word_topic``, ``bound_documents``, ``documents``, ``tokens``, ``even`` (the number of documents that
        began from even proportions), and where a_k is learned ``log_theta``, sum_d E[log theta_dk], and ``occupied``,
        the number of documents that it is a sum over.
    """
    began = time.perf_counter()
    topics = globals["alpha"].size
    log_theta = np.zeros(topics if globals["learn_alpha"] else 0)
    passes, tolerance = int(globals["document_sweeps"]), float(globals["document_tolerance"])
    even, again = int(local["even"]), bool(globals.get("again", False))
    anew = even > 0 and not again
    before = _even(shard, topics) if anew else local["document_topic"]
    given = rows["word_expected"], globals["topic_log"], globals, passes, tolerance, log_theta
    after, by_word, bound = _swept(shard, before, *given)
    parts = {
        "bound_documents": fresh(bound),
        "documents": fresh(float(shard.documents)),
        "tokens": fresh(float(shard.tokens)),
        "even": fresh(float(shard.documents if even > 0 else 0)),
    }
    if log_theta.size:
        parts.update(log_theta=fresh(log_theta, "topic"), occupied=fresh(float((shard.lengths > 0).sum())))
    delta = _delta(shard, by_word, **parts)
    new = {"document_topic": after, "even": np.array(even - anew)}
    return new, Delta(delta.parts, delta.ids, {"kernel": time.perf_counter() - began})


def _even(shard: Shard, topics: int) -> npt.NDArray[np.float32]:
    """Return E[n_dk] of even proportions."""
    return np.repeat((shard.lengths / topics).astype(np.float32)[:, np.newaxis], topics, axis=1)


def _swept(
    shard: Shard,
    before: npt.NDArray[Any],
    expected: Vector,
    topic_log: Vector,
    globals: Arrays,
    passes: int,
    tolerance: float,
    log_theta: Vector,
) -> tuple[npt.NDArray[np.float32], Vector, float]:
    """Return E[n_dk], E[n_kw], and what the documents add to the bound."""
    after, by_word = np.empty(before.shape, dtype=np.float32), buffers.empty(expected.shape, np.float64)
    bound = np.zeros(1)
    mean_field.sweep_mean_field(
        shard.offsets,
        shard.position,
        shard.counts,
        np.ascontiguousarray(expected),
        np.asarray(globals["alpha"], dtype=np.float64),
        topic_log,
        np.ascontiguousarray(before),
        passes,
        tolerance,
        after,
        by_word,
        log_theta,
        bound,
    )
    return after, by_word, float(bound[0])


def advance(rows: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Arrays]:
    """Give the rows as they were, as what a shard changes acts from the next iteration on; documents go on."""
    return rows, {**globals, "again": np.array(True)}


def fold(block: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Delta]:
    """Put new counts in the place of a block's, and make exp(psi(lambda_kw)) of them.

    Parameters
    ----------
    block : Arrays
        The rows so far.
    delta : Delta
        Fresh ``word_topic``; its word ids count from the block's first word. Words that it does not have are in no
        document.
    globals : Arrays
        As the iteration began.

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
    mean_field.fold_words(after, block["word_expected"], parameters(block, globals).words, expected, sums)
    told = {
        "topic_total": fresh(after.sum(axis=0), "topic"),
        "moved": fresh(np.abs(after - before).sum()),
        "bound_words": fresh(sums[0]),
        "log_phi": fresh(sums[1]),
    }
    return {"block_topic": after, "word_expected": expected}, Delta(told)


def finish(block: Arrays, globals: Arrays) -> Arrays:
    """Give the rows that a finished model keeps: E[n_kw] as ``word_topic``."""
    return {"word_topic": block["block_topic"]}


def settle(shard: Shard, rows: Arrays, globals: Arrays, stream: Stream) -> Arrays:
    """Fit gamma of unseen documents under fixed topics, from even proportions."""
    prior, (total,) = parameters(rows, globals), globals["topic_moments"]
    counts = np.ascontiguousarray(_counted(rows)["word_topic"], dtype=np.float64)
    expected = np.empty(counts.shape)
    mean_field.fold_words(counts, np.ones(counts.shape), prior.words, expected, np.zeros(2))
    limits, log_total = (FOLD_IN_PASSES, FOLD_IN_TOLERANCE), digamma(prior.total + total)
    after, _, _ = _swept(shard, _even(shard, total.size), expected, log_total, globals, *limits, np.zeros(0))
    return {"document_topic": after}


def _counted(rows: Arrays) -> Arrays:
    """Give rows as a finished model has them."""
    return rows if "word_topic" in rows else {"word_topic": rows["block_topic"]}


def predict(heldout: Shard, local: Arrays, rows: Arrays, globals: Arrays) -> Arrays:
    """Give each held-out pair's probability sum_k theta_dk phi_kw, theta and phi being expectations."""
    prior = parameters(rows, globals)
    return collapsed.pair_probability(heldout, local, _counted(rows), globals["topic_moments"], prior)


def probabilities(rows: Arrays, globals: Arrays) -> Arrays:
    """Give phi_kw of the words at hand, which is an expectation."""
    prior = parameters(rows, globals)
    return {"word_topic": collapsed.word_probability(_counted(rows), globals["topic_moments"], prior)}


def infer(local: Arrays, globals: Arrays) -> Arrays:
    """Give the documents' proportions theta_dk = gamma_dk / sum_k gamma_dk."""
    return {"document_topic": collapsed.proportions(local, parameters({}, globals))}


def lengths(local: Arrays) -> Arrays:
    """Give the tokens that are expected of each document in all."""
    return {"document_tokens": collapsed.lengths(local)}
