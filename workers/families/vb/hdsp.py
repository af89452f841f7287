"""The hierarchical Dirichlet scaling process, beside a shard (Kim and Oh 2017).

pi_mk ~ Gamma(beta p_k, rate R_mk), z ~ pi_m / sum_k pi_mk, and log R_mk is linear in what is known of a document. By
mean-field variational Bayes: q(z_mn = k) ~ exp( E[log phi_k,x] + E[log pi_mk] ), q(pi_mk) = Gamma(beta p_k + n_mk,
E[R_mk] + N_m / xi_m) with xi_m = sum_k E[pi_mk]: (28) and (37) of the paper.

What the rates are made of is the driver's affair (`collapsium.pipeline.families.vb.label_scaling`); sweeps see x_jk =
log E[R] of each label (``label_log``). Of each document a local state keeps its labels by their numbers, and E[n_mk].
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.label_index import LabelTable, numbered
from collapsium.workers.arrays.delta import Arrays, Delta, Part, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb import common as collapsed
from collapsium.workers.families.cvb.parameters import Parameters
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.vb import common as variational
from collapsium.workers.families.vb.hdsp_arrays import HDSP_ARRAYS
from collapsium.workers.kernels.cvb.predict import pair_probability
from collapsium.workers.kernels.jit import Kernel
from collapsium.workers.kernels.vb.gamma_proportions import (
    expected_proportions,
    gamma_proportions,
    sweep_gamma_proportions,
)
from collapsium.workers.kernels.vb.records import (
    DocumentLabels,
    ExpectedCounts,
    MeanFieldTopics,
    PassLimits,
    RateStatistics,
)
from collapsium.workers.special_functions import digamma

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

ARRAYS = HDSP_ARRAYS

LABELLED = True

Vector = npt.NDArray[np.float64]

FOLD_IN_PASSES, FOLD_IN_TOLERANCE = 100, 1e-4  # over unseen documents
SUMS = 4  # numbers of each label and topic, for labels that are there; twice as many where values may be negative


def parameters(rows: Arrays, globals: Arrays) -> Parameters:
    """Take eta from the globals, and beta p_k."""
    count = len(next(iter(rows.values()))) if rows else 0
    each = float(globals["eta"])
    prior = np.asarray(globals["prior"], dtype=np.float64)
    return Parameters(prior, float(prior.sum()), np.full(count, each), each * float(globals["vocabulary"]))


def kernels(globals: Arrays) -> Sequence[Kernel[..., Any]]:
    """Name the kernels that a fit calls in every iteration."""
    return [
        *variational.KERNELS,
        sweep_gamma_proportions,
        gamma_proportions,
        expected_proportions,
        pair_probability,
    ]


def blank(words: int, globals: Arrays) -> Arrays:
    """Make the rows of `words` words before any document has been seen."""
    return variational.blank(words, globals["prior"].size)


def start(
    shard: Shard,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
    warm: Arrays | None = None,
) -> tuple[Arrays, Delta]:
    """Draw a shard's first responsibilities, or take another run's, and number the labels of its documents.

    Parameters
    ----------
    shard : Shard
        The documents, with their labels.
    rows : Arrays
        Not used.
    globals : Arrays
        Say how many topics there are, and the training corpus's labels.
    stream : Stream
        Addressed to the shard.
    warm : Arrays, optional
        As for `collapsium.workers.families.vb.common.started`.

    Returns
    -------
    local : Arrays
        ``document_topic``, E[n_mk], float32; ``document_label_offsets``, ``document_label`` and
        ``document_label_value``.
    delta : Delta
        Fresh ``word_topic``, E[n_kw].
    """
    by_document, by_word = variational.started(shard, globals["prior"].size, stream, warm)
    return {"document_topic": by_document, **_known(shard, globals)}, variational.delta_of(shard, by_word)


def _known(shard: Shard, globals: Arrays) -> dict[str, npt.NDArray[Any]]:
    """Give numbers to what is known of the documents as the training corpus's table does."""
    found = numbered(shard.labels, LabelTable.unpacked(globals["label_table"]), shard.documents)
    return {
        "document_label_offsets": found.offsets,
        "document_label": found.label,
        "document_label_value": found.value,
    }


def sweep(
    shard: Shard,
    local: Arrays,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
) -> tuple[Arrays, Delta]:
    """Pass over a shard, each document until its E[n_mk] are settled or its passes are used up.

    Parameters
    ----------
    shard : Shard
        The documents.
    local : Arrays
        Each document begins from its ``document_topic`` or, in the sweeps of LDA at the start, from even proportions:
        else the random start would hold it.
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
        Fresh ``word_topic``, ``bound_documents``, ``documents``, ``tokens``; ``tables``, sum_m beta p_k (psi(a_mk) -
        psi(beta p_k)), and ``minus_log_rate``, -sum_m log b_mk, by topic; and by label ``label_total``, sum_m r_mj,
        ``label_sums`` and, where it is asked for, ``label_curvature``: see `RateStatistics`.
    """
    began = time.perf_counter()
    even = bool(globals["early"]) and not bool(globals.get("again", False))
    before = variational.even(shard, globals["prior"].size) if even else local["document_topic"]
    limits = PassLimits(int(globals["document_sweeps"]), float(globals["document_tolerance"]))
    found = _swept(shard, before, rows["word_expected"], globals["topic_log"], local, globals, limits)
    sums: dict[str, Part] = {
        "bound_documents": fresh(found["bound"][0]),
        "documents": fresh(float(shard.documents)),
        "tokens": fresh(float(shard.tokens)),
        "tables": fresh(found["topic_sums"][0], "topic"),
        "minus_log_rate": fresh(found["topic_sums"][1], "topic"),
    }
    ids: dict[str, npt.NDArray[Any]] = {"word": shard.words}
    if found["label"].size and not globals["early"]:
        sums["label_total"] = fresh(found["label_total"], "label")
        sums["label_sums"] = fresh(found["label_sums"], "label")
        if found["curvature"].size:
            sums["label_curvature"] = fresh(found["curvature"], "label")
        ids["label"] = found["label"]
    delta = variational.delta_of(shard, found["word_topic"], **sums)
    new = {**local, "document_topic": found["document_topic"]}
    return new, Delta(delta.parts, ids, {"kernel": time.perf_counter() - began})


def _swept(
    shard: Shard,
    before: npt.NDArray[Any],
    expected: Vector,
    topic_log: Vector,
    local: Arrays,
    globals: Arrays,
    limits: PassLimits,
) -> dict[str, npt.NDArray[Any]]:
    """Call the kernel; return what it fills, and which labels are at hand."""
    topics, every = globals["prior"].size, globals["label_log"].shape[0]
    curved = bool(globals["curved"]) and not bool(globals["early"])
    label, row = _at_hand(local, every, whole=curved)
    value = np.asarray(local["document_label_value"])
    found: dict[str, npt.NDArray[Any]] = {
        "document_topic": np.empty(before.shape, dtype=np.float32),
        "word_topic": np.empty(expected.shape),
        "topic_sums": np.zeros((2, topics)),
        "label_sums": np.zeros((label.size, SUMS * (2 if globals["signed"] else 1), topics)),
        "curvature": np.zeros((every, 2 * every, topics) if curved else (0, 0, 0)),
        "bound": np.zeros(1),
    }
    offsets = np.asarray(local["document_label_offsets"])
    if globals["early"] and not globals["led"]:  # LDA knows no labels
        offsets = np.zeros_like(offsets)
    sweep_gamma_proportions(
        document_pairs(shard),
        MeanFieldTopics(np.ascontiguousarray(expected), np.asarray(globals["prior"], dtype=np.float64), topic_log),
        DocumentLabels(offsets, row, value, np.ascontiguousarray(globals["label_log"][label])),
        np.ascontiguousarray(before),
        limits,
        ExpectedCounts(found["document_topic"], found["word_topic"]),
        RateStatistics(found["topic_sums"], found["label_sums"], found["curvature"]),
        found["bound"],
    )
    return {**found, "label": label, "label_total": np.bincount(row, weights=value, minlength=label.size)}


def _at_hand(local: Arrays, every: int, *, whole: bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Return the numbers of a shard's labels, sorted, or of all labels, and each label's place among them."""
    label = np.asarray(local["document_label"])
    if whole:
        return np.arange(every), label
    numbers, row = np.unique(label, return_inverse=True)
    return numbers.astype(np.int64), row.astype(np.int32)


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
    """Fit E[n_mk] of unseen documents under fixed topics and label weights; without words that is what labels say."""
    prior, (total,) = parameters(rows, globals), globals["topic_moments"]
    known, log_total = _known(shard, globals), digamma(prior.total + total)
    expected = variational.expected(rows, prior.words)
    limits = PassLimits(FOLD_IN_PASSES, FOLD_IN_TOLERANCE)
    given = {**globals, "curved": np.array(False), "early": np.array(False)}
    found = _swept(shard, variational.even(shard, total.size), expected, log_total, known, given, limits)
    return {"document_topic": found["document_topic"], **known}


def proportions(local: Arrays, globals: Arrays) -> Vector:
    """Return theta_mk = E[pi_mk] / sum_k E[pi_mk] or, without words, E[pi_mk / sum_k pi_mk].

    Words make the sum nearly certain. Labels alone do not: where alpha p_k is small, the topic whose pi happens to be
    large is not the one with the largest mean, and the quotient of means promises too much.

    Parameters
    ----------
    local, globals : Arrays
        As for `infer`.

    Returns
    -------
    numpy.ndarray of float64, shape (documents, topics)
        The proportions.
    """
    counts = np.asarray(local["document_topic"], dtype=np.float64)
    offsets, label = (np.asarray(local[name]) for name in ("document_label_offsets", "document_label"))
    value, theta = np.asarray(local["document_label_value"]), np.empty(counts.shape)
    labels = DocumentLabels(offsets, label, value, np.ascontiguousarray(globals["label_log"]))
    prior = np.asarray(globals["prior"], dtype=np.float64)
    gamma_proportions(labels, prior, np.ascontiguousarray(counts), theta)
    empty = np.flatnonzero(~counts.any(axis=1))
    if empty.size:
        theta[empty] = _expected_proportions(empty, labels, prior)
    return theta


def _expected_proportions(documents: npt.NDArray[np.int64], labels: DocumentLabels, prior: Vector) -> Vector:
    """Return the expected proportions of documents without words, computed once for each set of labels."""
    offsets, label, value, log_rate = labels
    sets: dict[tuple[bytes, bytes], int] = {}
    place, first = np.empty(documents.size, dtype=np.int64), []
    for row, document in enumerate(documents.tolist()):
        mine = slice(int(offsets[document]), int(offsets[document + 1]))
        key = label[mine].tobytes(), value[mine].tobytes()
        if key not in sets:
            sets[key] = len(sets)
            first.append(mine)
        place[row] = sets[key]
    ends = np.cumsum([0, *(one.stop - one.start for one in first)], dtype=np.int64)
    theta = np.empty((len(sets), prior.size))
    labels_of_sets, values_of_sets = (np.concatenate([every[one] for one in first]) for every in (label, value))
    expected_proportions(DocumentLabels(ends, labels_of_sets, values_of_sets, log_rate), prior, theta)
    by_document: Vector = theta[place]
    return by_document


def predict(heldout: Shard, local: Arrays, rows: Arrays, globals: Arrays) -> Arrays:
    """Give each held-out pair's probability sum_k theta_mk phi_kw, theta and phi being expectations: (40)."""
    theta, phi = proportions(local, globals), probabilities(rows, globals)["word_topic"]
    probability, none = np.empty(heldout.pairs), np.zeros(heldout.documents)
    flat = np.zeros(heldout.words.size)
    pair_probability(heldout.offsets, heldout.position, theta, phi, none, flat, probability)
    return {"probability": probability}


def probabilities(rows: Arrays, globals: Arrays) -> Arrays:
    """Give phi_kw of the words at hand, which is an expectation."""
    prior = parameters(rows, globals)
    return {"word_topic": collapsed.word_probability(variational.counted(rows), globals["topic_moments"], prior)}


def infer(local: Arrays, globals: Arrays) -> Arrays:
    """Give the documents' proportions."""
    return {"document_topic": proportions(local, globals)}


def lengths(local: Arrays) -> Arrays:
    """Give the tokens that are expected of each document in all."""
    return {"document_tokens": collapsed.lengths(local)}
