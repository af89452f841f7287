"""What families with collapsed updates of bag-of-words topics share beside a shard.

Topic assignments of the HDP are those of LDA with other Dirichlet parameters, so the families differ in the
parameters that they hand to these functions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsar.storage.shard import Shard
from collapsar.workers import listed
from collapsar.workers import rows as rows_
from collapsar.workers.delta import Arrays, Delta, Part, change, fresh
from collapsar.workers.kernels import active, active_second, assign, lists, predict, stochastic, words
from collapsar.workers.kernels.compile import Kernel
from collapsar.workers.streams import Stream

FOLD_IN_SWEEPS = 100
CELLS = 1 << 22  # responsibilities that the start draws at a time


@dataclass(frozen=True)
class Listing:
    """How active responsibilities are kept; see `collapsar.workers.listed`.

    Attributes
    ----------
    most, every : int
        As for `listed.start`.
    flatten : float
        Power of the weights once topics have parted: 1 for the plain update.
    momentum : float
        Share of their last change by which rows run ahead.
    totals : numpy.ndarray of float64, shape (topics,)
        E[n_k] of the rows as sweeps see them.
    even : float
        What keeps a word's background even over the topics while it has no tokens.
    weight, following : numpy.ndarray of float64, shape (topics,)
        a_k / (B + E[n_k]) by which background is spread: since E[n_k] was last summed, and from the next fold on.
    variance : numpy.ndarray of float64, shape (topics,), or None
        V[n_k]; the second order needs it.
    """

    most: int
    every: int
    flatten: float
    momentum: float
    totals: npt.NDArray[np.float64]
    even: float
    weight: npt.NDArray[np.float64]
    following: npt.NDArray[np.float64]
    variance: npt.NDArray[np.float64] | None = None


def listing(globals: Arrays, topics: npt.NDArray[np.float64], total: float) -> Listing | None:
    """Take from the globals how responsibilities are kept; None where they are dense."""
    if not globals["active"]:
        return None
    counted, variance = globals["topic_moments"]
    return Listing(
        most=int(globals["most_active"]),
        every=int(globals["start_every"]),
        flatten=float(globals["flatten"]),
        momentum=float(globals["momentum"]) if counted.any() else 0.0,  # the start is no movement
        totals=globals["topic_ahead"],
        even=float(globals["spread_even"]),
        weight=globals["spread_weight"],
        following=topics / (total + counted),
        variance=variance,
    )


@dataclass(frozen=True)
class Parameters:
    """Dirichlet parameters, as the updates use them or as prediction does.

    Attributes
    ----------
    topics : numpy.ndarray of float64, shape (topics,)
        a_k.
    concentration : float
        A, the sum of a_k over all topics there could be.
    words : numpy.ndarray of float64, shape (words at hand,)
        b_w.
    total : float
        B, the sum of b_w over the vocabulary.
    order : int
        0 or 2.
    tables : bool
        Whether E[s_k] is asked for.
    moments : bool
        Whether the rows carry V[n_kw] and Z[n_kw].
    listing : Listing or None
        How active responsibilities are kept; None where they are dense.
    """

    topics: npt.NDArray[np.float64]
    concentration: float
    words: npt.NDArray[np.float64]
    total: float
    order: int = 0
    tables: bool = False
    moments: bool = False
    listing: Listing | None = None


def kernels(globals: Arrays) -> list[Kernel[..., Any]]:
    """Name the kernels that a fit calls in every iteration."""
    tables = bool(globals.get("tables", globals.get("learn_alpha", False)))
    order = int(globals["order"])
    named: list[Kernel[..., Any]] = [words.log_eta]
    if globals["stochastic"]:
        return [*named, stochastic.sweep_stochastic, predict.fold_in, *listed.KERNELS]
    if globals["moments"]:
        named += [words.word_tables, words.topic_totals]
    if globals["active"]:
        named += [*listed.KERNELS, active_second.sweep_active_second if order == 2 else active.sweep_active]
        named += [lists.listed_tables] if tables else []
        return [*named, *([lists.listed_moments] if globals["moments"] else [])]
    named += [assign.sweep_second if order == 2 else assign.sweep_zeroth, words.add_counts, predict.pair_probability]
    return [*named, *([words.add_log_absent] if globals["moments"] else [])]


def blank(count: int, topics: int, globals: Arrays) -> Arrays:
    """Make the rows of words that have no token yet."""
    moments = bool(globals["moments"])
    if globals["active"]:
        return listed.blank(count, topics, moments, bool(globals["momentum"]))
    names = ["word_topic", *(["word_topic_variance", "word_topic_log_absent"] if moments else [])]
    return {
        **{name: np.zeros((count, topics)) for name in names},
        **({"word_tables": np.zeros(count)} if moments else {}),
    }


def start(shard: Shard, topics: int, stream: Stream, globals: Arrays) -> tuple[Arrays, Delta]:
    """Draw near-uniform responsibilities, q ~ 1 + u with u uniform on [0, 1], and count them.

    Active ones are drawn over a few random topics of each document (`listed.start`).

    Parameters
    ----------
    shard : Shard
        The documents.
    topics : int
        K.
    stream : Stream
        Addressed to the shard.
    globals : Arrays
        Say whether responsibilities are active, and whether V[n_kw] and Z[n_kw] are wanted.

    Returns
    -------
    local : Arrays
        ``pair_topic`` and ``document_topic``, float32; or what `listed` keeps.
    delta : Delta
        Changes from nothing.
    """
    moments = bool(globals["moments"])
    if globals["active"]:
        most, every = int(globals["most_active"]), int(globals["start_every"])
        return listed.start(shard, topics, stream, moments, most, every)
    generator = stream.generator()
    pair_topic = np.empty((shard.pairs, topics), dtype=np.float32)
    portion = max(CELLS // topics, 1)
    for first in range(0, shard.pairs, portion):
        part = pair_topic[first : first + portion]
        generator.random(out=part, dtype=np.float32)
        part += np.float32(1.0)
        part /= part.sum(axis=1, keepdims=True)
    local = {"pair_topic": pair_topic, "document_topic": _document_topic(shard, pair_topic)}
    return local, Delta(_word_changes(shard, None, pair_topic, moments), {"word": shard.words})


def _document_topic(shard: Shard, pair_topic: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    owner = np.repeat(np.arange(shard.documents, dtype=np.int32), np.diff(shard.offsets))
    result = np.zeros((shard.documents, pair_topic.shape[1]))
    words.add_counts(owner, shard.counts, pair_topic, result, np.zeros((0, 0)))
    return result.astype(np.float32)


def _word_changes(
    shard: Shard, old: npt.NDArray[np.float32] | None, new: npt.NDArray[np.float32], moments: bool
) -> dict[str, Part]:
    """Count by words what responsibilities amount to, minus what the old ones did."""
    shape = (shard.words.size, new.shape[1])
    names = ["word_topic", "word_topic_variance", "word_topic_log_absent"] if moments else ["word_topic"]
    sums = []
    for pair_topic in (new, old):
        if pair_topic is None:
            continue
        mean, variance = np.zeros(shape), np.zeros(shape if moments else (0, 0))
        words.add_counts(shard.position, shard.counts, pair_topic, mean, variance)
        arrays = [mean]
        if moments:
            log_absent = np.empty(shape)
            words.add_log_absent(shard.position, shard.counts, pair_topic, log_absent)
            arrays += [variance, log_absent]
        sums.append(arrays)
    changes = sums[0] if old is None else [after - before for after, before in zip(*sums, strict=True)]
    return {name: change(values, "word", "topic") for name, values in zip(names, changes, strict=True)}


def sweep(
    shard: Shard, local: Arrays, rows: Arrays, totals: npt.NDArray[np.float64], parameters: Parameters
) -> tuple[Arrays, Delta]:
    """Pass once over a shard by the zeroth- or second-order update.

    Parameters
    ----------
    shard : Shard
        The documents.
    local : Arrays
        As `start` or a sweep gave it.
    rows : Arrays
        Rows of the shard's words.
    totals : numpy.ndarray of float64, shape (2, topics)
        E[n_k] and V[n_k].
    parameters : Parameters
        For the updates.

    Returns
    -------
    local : Arrays
        The new state.
    delta : Delta
        Changes by word and topic; fresh ``tables`` (E[s_k]), ``log_eta``, ``bound_documents`` (order 2),
        ``documents`` and ``tokens``.
    """
    began = time.perf_counter()
    if parameters.listing is not None:
        local, delta = listed.sweep(shard, local, rows, parameters)
        more = _document_sums(shard, parameters, None, np.zeros(2))
        return local, Delta({**delta.parts, **more}, delta.ids, {"kernel": time.perf_counter() - began})
    topics = parameters.topics.size
    old = local["pair_topic"]
    new = {"pair_topic": np.empty_like(old), "document_topic": np.empty_like(local["document_topic"])}
    row_change, tables, sums = np.zeros((shard.words.size, topics)), np.zeros(topics), np.zeros(2)
    base = rows["word_topic"].astype(np.float32)
    common = (shard.offsets, shard.position, shard.counts, base, parameters.words)
    outputs = (new["pair_topic"], new["document_topic"], row_change)
    parts: dict[str, Part] = {}
    if parameters.order == 0:
        wanted = parameters.topics if parameters.tables else np.empty(0)
        assign.sweep_zeroth(
            *common,
            parameters.topics,
            totals[0] + parameters.total,
            old,
            local["document_topic"],
            wanted,
            *outputs,
            tables,
        )
        if parameters.moments:
            parts = _word_changes(shard, old, new["pair_topic"], moments=True)
    else:
        variance_change = np.zeros_like(row_change)
        variance = rows["word_topic_variance"].astype(np.float32)
        running = totals + np.array([[parameters.total], [0.0]])
        assign.sweep_second(
            *common,
            variance,
            parameters.topics,
            running,
            old,
            local["document_topic"],
            *outputs,
            variance_change,
            tables,
            sums,
        )
        parts["word_topic_variance"] = change(variance_change, "word", "topic")
        parts["word_topic_log_absent"] = _log_absent_change(shard, old, new["pair_topic"])
    parts["word_topic"] = change(row_change, "word", "topic")
    parts.update(_document_sums(shard, parameters, tables, sums))
    return new, Delta(parts, {"word": shard.words}, {"kernel": time.perf_counter() - began})


def _log_absent_change(shard: Shard, old: npt.NDArray[Any], new: npt.NDArray[Any]) -> Part:
    after, before = (np.empty((shard.words.size, new.shape[1])) for _ in range(2))
    words.add_log_absent(shard.position, shard.counts, new, after)
    words.add_log_absent(shard.position, shard.counts, old, before)
    return change(after - before, "word", "topic")


def _document_sums(
    shard: Shard, parameters: Parameters, tables: npt.NDArray[np.float64] | None, sums: npt.NDArray[np.float64]
) -> dict[str, Part]:
    eta = np.zeros(2)
    words.log_eta(shard.lengths.astype(np.float64), np.array([parameters.concentration]), eta)
    parts = {"documents": fresh(float(shard.documents)), "tokens": fresh(float(shard.tokens))}
    if parameters.tables or parameters.order == 2:
        parts["log_eta"] = fresh(eta[0])
        if tables is not None:
            parts["tables"] = fresh(tables, "topic")
    if parameters.order == 2 and parameters.listing is None:
        parts["bound_documents"] = fresh(eta[1] + sums.sum())
    return parts


def advance(rows: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Arrays]:
    """Return the rows and globals with which a shard sweeps once more before its delta is reduced.

    Parameters
    ----------
    rows, globals : Arrays
        As the sweep had them.
    delta : Delta
        What it changed.

    Returns
    -------
    rows, globals : Arrays
        The same with the changes of the shard itself.
    """
    moved = {name: rows[name] + part.values for name, part in delta.with_dim("word").parts.items()}
    counted = delta["word_active" if "word_active" in delta else "word_topic"].sum(axis=0, dtype=np.float64)
    if "word_rest" in delta:  # background is spread, nearly, as the counts are
        before = globals["topic_ahead"]
        counted = counted + delta["word_rest"].sum() * before / max(before.sum(), 1e-300)
    moments = np.array(globals["topic_moments"])
    moments[0] = np.maximum(moments[0] + counted, 0.0)
    after = {**globals, "topic_moments": moments, "topic_ahead": np.maximum(globals["topic_ahead"] + counted, 0.0)}
    return {**rows, **moved}, after


def fold(block: Arrays, delta: Delta, parameters: Parameters) -> tuple[Arrays, Delta]:
    """Add the rows of a delta to a block of the vocabulary.

    Parameters
    ----------
    block : Arrays
        The rows so far.
    delta : Delta
        Changes; its word ids count from the block's first word.
    parameters : Parameters
        For the updates, as this iteration's sweeps used them.

    Returns
    -------
    block : Arrays
        The new rows; ``word_tables`` is sum_k E[t_kw].
    delta : Delta
        Changes by topic (``topic``, ``topic_variance``, ``topic_log_absent``), or fresh totals where responsibilities
        are active; fresh ``moved`` (sum of absolute changes of E[n_kw]) and, with moments, ``tables_of_words`` and
        ``bound_words``.
    """
    if parameters.listing is not None:
        after, parts = listed.fold(block, delta, parameters)
    else:
        after, parts = _fold_dense(block, delta)
    if parameters.moments:
        mean = counts(after, parameters, folded=True)
        spread = mean - rows_.counted(after) if parameters.listing is not None else np.zeros(())
        variance, log_absent = after["word_topic_variance"] + spread, after["word_topic_log_absent"] - spread
        tables, bound = np.empty(parameters.words.size), np.zeros(1)
        words.word_tables(mean, variance, log_absent, parameters.words, tables, bound)
        after["word_tables"] = tables
        parts.update(tables_of_words=fresh(tables.sum()), bound_words=fresh(bound[0]))
        if parameters.listing is not None:
            parts["topic_variance_total"] = fresh(variance.sum(axis=0), "topic")
            parts["topic_log_absent_total"] = fresh(log_absent.sum(axis=0), "topic")
    return after, Delta(parts)


def _fold_dense(block: Arrays, delta: Delta) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Part]]:
    ids = delta.ids.get("word", np.zeros(0, dtype=np.int64))
    after = {name: np.array(values) for name, values in block.items()}
    parts: dict[str, Part] = {}
    for name, part in delta.parts.items():
        after[name][ids] += part.values
        parts[name.removeprefix("word_")] = change(part.values.sum(axis=0), "topic")
    parts["moved"] = fresh(np.abs(delta["word_topic"]).sum() if "word_topic" in delta else 0.0)
    return after, parts


def counts(rows: Arrays, parameters: Parameters, *, folded: bool = False) -> npt.NDArray[np.float64]:
    """Return E[n_kw] of rows, shape (words at hand, topics); `folded` rows stand before the next update."""
    if "word_topic" in rows:
        return np.asarray(rows["word_topic"], dtype=np.float64)
    if parameters.listing is None:
        raise ValueError("rows of active responsibilities need a listing")
    weight = parameters.listing.following if folded else parameters.listing.weight
    return rows_.expected(rows, weight, parameters.listing.even).astype(np.float64)


def finish(block: Arrays, parameters: Parameters) -> Arrays:
    """Return the rows that a finished model keeps: E[n_kw] as ``word_topic``."""
    if parameters.listing is None:
        return block
    kept = {name: values for name, values in block.items() if name == "word_tables"}
    return {"word_topic": counts(block, parameters).astype(np.float32), **kept}


def settle(shard: Shard, rows: Arrays, totals: npt.NDArray[np.float64], parameters: Parameters) -> Arrays:
    """Fit the counts of unseen documents under fixed topics by zeroth-order sweeps.

    Parameters
    ----------
    shard : Shard
        The documents.
    rows : Arrays
        Rows of their words.
    totals : numpy.ndarray of float64, shape (2, topics)
        E[n_k] and V[n_k].
    parameters : Parameters
        For prediction.

    Returns
    -------
    Arrays
        ``document_topic``, E[n_dk].
    """
    result = np.zeros((shard.documents, parameters.topics.size))
    phi = word_probability(rows, totals, parameters)
    predict.fold_in(shard.offsets, shard.position, shard.counts, phi, parameters.topics, FOLD_IN_SWEEPS, result)
    return {"document_topic": result.astype(np.float32)}


def word_probability(rows: Arrays, totals: npt.NDArray[np.float64], parameters: Parameters) -> npt.NDArray[np.float64]:
    """Return phi_kw = (b_w + E[n_kw]) / (B + E[n_k]), shape (words at hand, topics)."""
    smoothed = np.maximum(counts(rows, parameters), 0.0) + parameters.words[:, np.newaxis]
    probability: npt.NDArray[np.float64] = smoothed / (parameters.total + totals[0])
    return probability


def proportions(local: Arrays, parameters: Parameters) -> npt.NDArray[np.float64]:
    """Return theta_dk = (a_k + E[n_dk]) / (A + n_d), shape (documents, topics)."""
    if "document_lists" in local:
        tokens = listed.document_topic(local, parameters.topics)
    else:
        tokens = np.asarray(local["document_topic"], dtype=np.float64)
    theta: npt.NDArray[np.float64] = (tokens + parameters.topics) / (
        parameters.concentration + tokens.sum(axis=1, keepdims=True)
    )
    return theta


def pair_probability(
    heldout: Shard, local: Arrays, rows: Arrays, totals: npt.NDArray[np.float64], parameters: Parameters
) -> Arrays:
    """Return the probability of each held-out pair's word in its document.

    The mass beyond the truncation, theta_rest = (A - sum_k a_k) / (A + n_d), predicts with b_w / B, so that
    probabilities sum to one.

    Parameters
    ----------
    heldout : Shard
        The held-out pairs of the same documents as `local`.
    local : Arrays
        With ``document_topic``.
    rows : Arrays
        Rows of the held-out words.
    totals : numpy.ndarray of float64, shape (2, topics)
        E[n_k] and V[n_k].
    parameters : Parameters
        For prediction.

    Returns
    -------
    Arrays
        ``probability``, shape (held-out pairs,).
    """
    if "document_lists" in local:
        found = listed.probability(heldout, local, counts(rows, parameters), totals, parameters)
        return {"probability": found}
    theta = proportions(local, parameters)
    rest = np.maximum(1.0 - theta.sum(axis=1), 0.0)
    probability = np.empty(heldout.pairs)
    predict.pair_probability(
        heldout.offsets,
        heldout.position,
        theta,
        word_probability(rows, totals, parameters),
        rest,
        parameters.words / parameters.total,
        probability,
    )
    return {"probability": probability}
