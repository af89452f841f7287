"""Latent Dirichlet allocation by mean-field variational Bayes, beside a shard (Blei, Ng and Jordan 2003).

theta_d ~ Dir(a_1..a_K), phi_k ~ Dir(b_1..b_W); q(theta_d) = Dir(gamma_d), q(phi_k) = Dir(lambda_k), and

    gamma_dk = a_k + sum_w c q,   lambda_kw = b_w + sum_d c q,
    q_dwk ~ exp( psi(gamma_dk) + psi(lambda_kw) - psi(sum_w lambda_kw) ).

Responsibilities are not kept: they follow from gamma and lambda.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Arrays, Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb import common as collapsed
from collapsium.workers.families.cvb.parameters import Parameters
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.topic_arrays import VB_LDA_ARRAYS
from collapsium.workers.families.vb import common as variational
from collapsium.workers.kernels.cvb.predict import pair_probability
from collapsium.workers.kernels.jit import Kernel
from collapsium.workers.kernels.vb import mean_field
from collapsium.workers.kernels.vb.records import ExpectedCounts, MeanFieldTopics, PassLimits
from collapsium.workers.special_functions import digamma

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

ARRAYS = VB_LDA_ARRAYS

Vector = npt.NDArray[np.float64]

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
    return [*variational.KERNELS, mean_field.sweep_mean_field, pair_probability]


def blank(words: int, globals: Arrays) -> Arrays:
    """Make the rows of `words` words before any document has been seen."""
    return variational.blank(words, globals["alpha"].size)


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
    by_document, by_word = variational.started(shard, globals["alpha"].size, stream, warm)
    even = globals["even_sweeps"] if warm is None else np.zeros_like(globals["even_sweeps"])
    return {"document_topic": by_document, "even": even}, variational.delta_of(shard, by_word)


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
    before = variational.even(shard, topics) if anew else local["document_topic"]
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
    delta = variational.delta_of(shard, by_word, **parts)
    new = {"document_topic": after, "even": np.array(even - anew)}
    return new, Delta(delta.parts, delta.ids, {"kernel": time.perf_counter() - began})


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
        document_pairs(shard),
        MeanFieldTopics(np.ascontiguousarray(expected), np.asarray(globals["alpha"], dtype=np.float64), topic_log),
        np.ascontiguousarray(before),
        PassLimits(passes, tolerance),
        ExpectedCounts(after, by_word),
        log_theta,
        bound,
    )
    return after, by_word, float(bound[0])


def advance(rows: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Arrays]:
    """Give the rows as they were, as what a shard changes acts from the next iteration on; documents go on."""
    return rows, {**globals, "again": np.array(True)}


def fold(block: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Delta]:
    """Put new counts in the place of a block's; see `collapsium.workers.families.vb.common.fold`."""
    return variational.fold(block, delta, parameters(block, globals).words)


def finish(block: Arrays, globals: Arrays) -> Arrays:
    """Give the rows that a finished model keeps: E[n_kw] as ``word_topic``."""
    return variational.finish(block)


def settle(shard: Shard, rows: Arrays, globals: Arrays, stream: Stream) -> Arrays:
    """Fit gamma of unseen documents under fixed topics, from even proportions."""
    prior, (total,) = parameters(rows, globals), globals["topic_moments"]
    expected = variational.expected(rows, prior.words)
    limits, log_total = (FOLD_IN_PASSES, FOLD_IN_TOLERANCE), digamma(prior.total + total)
    after, _, _ = _swept(shard, variational.even(shard, total.size), expected, log_total, globals, *limits, np.zeros(0))
    return {"document_topic": after}


def predict(heldout: Shard, local: Arrays, rows: Arrays, globals: Arrays) -> Arrays:
    """Give each held-out pair's probability sum_k theta_dk phi_kw, theta and phi being expectations."""
    prior = parameters(rows, globals)
    return collapsed.pair_probability(heldout, local, variational.counted(rows), globals["topic_moments"], prior)


def probabilities(rows: Arrays, globals: Arrays) -> Arrays:
    """Give phi_kw of the words at hand, which is an expectation."""
    prior = parameters(rows, globals)
    return {"word_topic": collapsed.word_probability(variational.counted(rows), globals["topic_moments"], prior)}


def infer(local: Arrays, globals: Arrays) -> Arrays:
    """Give the documents' proportions theta_dk = gamma_dk / sum_k gamma_dk."""
    return {"document_topic": collapsed.proportions(local, parameters({}, globals))}


def lengths(local: Arrays) -> Arrays:
    """Give the tokens that are expected of each document in all."""
    return {"document_tokens": collapsed.lengths(local)}
