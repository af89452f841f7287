"""What families with collapsed updates of bag-of-words topics share beside a shard.

Topic assignments of the HDP are those of LDA with other Dirichlet parameters, so the families differ in the
parameters that they hand to these functions.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.delta import Arrays, Delta, Part, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb import active as listed
from collapsium.workers.families.cvb import active_fold, dense
from collapsium.workers.families.cvb import parameters as rows_
from collapsium.workers.families.cvb import topic_moves as moves
from collapsium.workers.families.cvb.parameters import Parameters
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels.cvb import active, active_sums, predict, stochastic, words
from collapsium.workers.kernels.cvb import dense as dense_kernels
from collapsium.workers.kernels.cvb.records import WordMoments
from collapsium.workers.kernels.jit import Kernel

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

FOLD_IN_SWEEPS = 100


UNSEEN_KERNELS = (predict.fold_in, predict.pair_probability)
"""Kernels that fold in unseen documents and score their tokens."""


def kernels(globals: Arrays) -> list[Kernel[..., Any]]:
    """Name the kernels that a fit calls in every iteration."""
    tables = bool(globals.get("tables", globals.get("learn_alpha", False)))
    named: list[Kernel[..., Any]] = [words.log_eta]
    if globals["stochastic"]:
        return [*named, stochastic.sweep_stochastic, predict.fold_in, *listed.KERNELS]
    if globals["moments"]:
        named += [words.word_tables, words.topic_totals]
    if globals["active"]:
        named += moves.KERNELS if "held_share" in globals else ()
        named += [*listed.KERNELS, active.sweep_active]
        named += [active_sums.active_tables] if tables else []
        return [*named, *([active_sums.active_moments] if globals["moments"] else [])]
    order = int(globals["order"])
    named += [
        dense_kernels.sweep_second if order == 2 else dense_kernels.sweep_zeroth,
        words.add_counts,
        predict.pair_probability,
    ]
    return [*named, *([words.add_log_absent] if globals["moments"] else [])]


def blank(count: int, topics: int, globals: Arrays) -> Arrays:
    """Make the rows of words that have no token yet."""
    moments = bool(globals["moments"])
    if globals["active"]:
        return active_fold.blank(count, topics, moments, bool(globals["momentum"]))
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
        shard = moves.counting(shard, globals)
        most, every = int(globals["most_active"]), int(globals["start_every"])
        return listed.start(shard, topics, stream, moments, most, every)
    return dense.start(shard, topics, stream, moments=moments)


def take(shard: Shard, kept: Arrays, topics: int, globals: Arrays) -> tuple[Arrays, Delta]:
    """Go on from the local state that another run kept of this very shard; see `Sweeps.take`.

    Parameters
    ----------
    shard : Shard
        The documents.
    kept : Arrays
        Their local state.
    topics : int
        K.
    globals : Arrays
        As for `start`.

    Returns
    -------
    local : Arrays
        The same.
    delta : Delta
        Changes from nothing.
    """
    moments = bool(globals["moments"])
    if globals["active"]:
        return listed.take(shard, kept, topics, moments=moments)
    return dense.begun(shard, kept["pair_topic"], moments=moments)


def sweep(
    shard: Shard,
    local: Arrays,
    rows: Arrays,
    totals: npt.NDArray[np.float64],
    parameters: Parameters,
    globals: Arrays | None = None,
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
    globals : Arrays, optional
        Where topics may merge, split and go: say what moves, and what is asked for (`moves.blank_globals`).

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
        now = globals or {}
        moving, judge, shard = moves.moving(shard, now), moves.Judge(shard, now), moves.counting(shard, now)
        local, delta = listed.sweep(shard, local, rows, parameters, moving, judge)
        more = _document_sums(shard, parameters, None, np.zeros(2))
        return local, Delta({**delta.parts, **more}, delta.ids, {"kernel": time.perf_counter() - began})
    new, parts, tables, sums = dense.sweep(shard, local, rows, totals, parameters)
    parts.update(_document_sums(shard, parameters, tables, sums))
    return new, Delta(parts, {"word": shard.words}, {"kernel": time.perf_counter() - began})


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
    if parameters.order == 2:
        parts["bound_documents"] = fresh(eta[1] + sums.sum())
    return parts


def advance(rows: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Arrays]:
    """Return the rows and globals with which a shard sweeps once more before its delta is reduced.

    Parameters
    ----------
    rows : Arrays
        As the sweep had them.
    delta : Delta
        What it changed.
    globals : Arrays
        As the sweep had them.

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
    if "moving" in globals:  # what moves has moved, and tokens that count from now on are counted
        after["moving"] = np.array(False)
    return {**rows, **moved}, after


def fold(block: Arrays, delta: Delta, parameters: Parameters, globals: Arrays | None = None) -> tuple[Arrays, Delta]:
    """Add the rows of a delta to a block of the vocabulary.

    Parameters
    ----------
    block : Arrays
        The rows so far.
    delta : Delta
        Changes; its word ids count from the block's first word.
    parameters : Parameters
        For the updates, as this iteration's sweeps used them.
    globals : Arrays, optional
        As for `sweep`.

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
        after, parts = active_fold.fold(block, delta, parameters)
        if globals and int(globals.get("ask", 0)) == 1:
            parts.update(moves.products(_counts(after, parameters, folded=True)))
    else:
        after, parts = dense.fold(block, delta)
    if parameters.moments:
        mean = counts(after, parameters, folded=True)
        spread = mean - rows_.counted(after) if parameters.listing is not None else np.zeros(())
        variance, log_absent = after["word_topic_variance"] + spread, after["word_topic_log_absent"] - spread
        tables, bound = np.empty(parameters.words.size), np.zeros(1)
        words.word_tables(WordMoments(mean, variance, log_absent), parameters.words, tables, bound)
        after["word_tables"] = tables
        parts.update(tables_of_words=fresh(tables.sum()), bound_words=fresh(bound[0]))
        if parameters.listing is not None:
            parts["topic_variance_total"] = fresh(variance.sum(axis=0), "topic")
            parts["topic_log_absent_total"] = fresh(log_absent.sum(axis=0), "topic")
    return after, Delta(parts)


def counts(rows: Arrays, parameters: Parameters, *, folded: bool = False) -> npt.NDArray[np.float64]:
    """Return E[n_kw] of rows, shape (words at hand, topics); `folded` rows stand before the next update."""
    if "word_topic" in rows:
        return np.asarray(rows["word_topic"], dtype=np.float64)
    return _counts(rows, parameters, folded=folded).astype(np.float64)


def _counts(rows: Arrays, parameters: Parameters, *, folded: bool = False) -> npt.NDArray[np.float32]:
    """Return E[n_kw] as `counts` does, in the precision in which active responsibilities keep it."""
    if "word_topic" in rows:
        return np.asarray(rows["word_topic"], dtype=np.float32)
    if parameters.listing is None:
        raise ValueError("rows of active responsibilities need a listing")
    weight = parameters.listing.following if folded else parameters.listing.weight
    return rows_.expected(rows, weight, parameters.listing.even)


def finish(block: Arrays, parameters: Parameters) -> Arrays:
    """Return the rows that a finished model keeps: E[n_kw] as ``word_topic``."""
    if parameters.listing is None:
        return block
    kept = {name: values for name, values in block.items() if name == "word_tables"}
    return {"word_topic": _counts(block, parameters), **kept}


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
    predict.fold_in(document_pairs(shard), phi, parameters.topics, FOLD_IN_SWEEPS, result)
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


def lengths(local: Arrays) -> npt.NDArray[np.float64]:
    """Return the tokens that a local state expects of each document in all, shape (documents,)."""
    if "document_lists" not in local:
        whole: npt.NDArray[np.float64] = np.asarray(local["document_topic"], dtype=np.float64).sum(axis=1)
        return whole
    lists = np.asarray(local["document_lists"])
    running = np.concatenate([[0.0], np.cumsum(np.asarray(local["document_counts"], dtype=np.float64))])
    found: npt.NDArray[np.float64] = running[lists[1:]] - running[lists[:-1]] + np.asarray(local["document_rest"])
    return found


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
        found = listed.probability(heldout, local, _counts(rows, parameters), totals, parameters)
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
