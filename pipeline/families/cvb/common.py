"""What families with collapsed updates of bag-of-words topics share on the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationInfo, field_validator

from collapsium.pipeline.families.base import FamilyConfig, Footprint, Summary
from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.families.cvb.document_lists import PORTION, room_for
from collapsium.workers.families.cvb.parameters import Parameters
from collapsium.workers.kernels.cvb import words

Vector = npt.NDArray[np.float64]

DOCUMENTS_A_TOPIC = 10  # at least, of those that begin
MOST_EVERY = 8  # at most one document in so many begins
FORGETTING = 0.7  # of sums over minibatches: number n counts n^-FORGETTING


class ActiveConfig(FamilyConfig):
    """Options that say how responsibilities are kept; the families' own come before."""

    topics: int
    beta: float
    order: Literal[0, 2]
    responsibilities: Literal["active", "dense"] | None = Field(
        None,
        description="active: each document keeps a list of its topics, and a background share for all others; dense: "
        "all topics of every pair; by itself active with order 0, and dense with order 2, which is dense always",
    )
    most_active: int | None = Field(
        None,
        ge=1,
        description="most topics that a document may list; by itself all where there are at most 128 topics, else 24 "
        "and one for each 8 of its distinct words",
    )
    momentum: float = Field(
        0.8,
        ge=0,
        lt=1,
        description="with active responsibilities: share of their last change by which counts of words run ahead of a "
        "sweep; 0 for the plain update",
    )
    flatten: float = Field(
        1.0,
        gt=0,
        le=1,
        description="with active responsibilities: power to which a token's weights are raised before they are made "
        "responsibilities; less than 1 spreads each token over more topics, which predicts better where there are few "
        "topics or a small alpha (0.875 is worth 0.03 nats on KOS with 120 topics)",
    )

    @field_validator("responsibilities")
    @classmethod
    def _dense_second_order(
        cls, responsibilities: Literal["active", "dense"] | None, info: ValidationInfo
    ) -> Literal["active", "dense"] | None:
        if responsibilities == "active" and info.data.get("order") == 2:
            raise ValueError("expected 'dense' with `order` 2; active responsibilities take `order` 0")
        return responsibilities

    @property
    def active(self) -> bool:
        """Whether documents keep lists of their topics."""
        return (self.responsibilities or ("active" if self.order == 0 else "dense")) == "active"


def moved_moments(globals: Arrays, delta: Delta) -> Vector:
    """Return E[n_k] and V[n_k] after a delta, shape (2, topics)."""
    moments = np.array(globals["topic_moments"])
    if "topic_gain" in delta:  # of a minibatch
        moments[0] = (delta.number("decay") * moments[0] + delta["topic_gain"]) / delta.number("shards")
        return moments
    if "topic_total" in delta:  # active responsibilities: totals, as the background is spread anew
        moments[0] = delta["topic_total"]
        if "topic_variance_total" in delta:
            moments[1] = delta["topic_variance_total"]
        return moments
    for row, name in enumerate(("topic", "topic_variance")):
        if name in delta:
            moments[row] += delta[name]
    return moments


def moved_log_absent(globals: Arrays, delta: Delta) -> Vector:
    """Return Z[n_k] after a delta, shape (topics,)."""
    before = np.asarray(globals["topic_log_absent"])
    if "topic_log_absent_total" in delta:
        return delta["topic_log_absent_total"]
    return before + delta["topic_log_absent"] if "topic_log_absent" in delta else before


def topic_totals(moments: Vector, log_absent: Vector, total: float) -> tuple[Vector, Vector]:
    """Return E[log xi_k] and F[log G(B + n_k) / G(B)] of each topic, both of shape (topics,)."""
    log_xi, log_rising = np.empty(moments.shape[1]), np.empty(moments.shape[1])
    words.topic_totals(
        np.ascontiguousarray(moments[0]),
        np.ascontiguousarray(moments[1]),
        log_absent,
        np.array([total]),
        log_xi,
        log_rising,
    )
    return log_xi, log_rising


def likelihood_bound(globals: Arrays, delta: Delta, total: float) -> float:
    """Return the part of the second-order bound that LDA and the HDP share.

    sum_d log G(A)/G(A+n_d) + sum_dk F[log G(a_k+n_dk)/G(a_k)] + sum_k F[log G(B)/G(B+n_k)]
    + sum_kw F[log G(b_w+n_kw)/G(b_w)] - sum c q log q.

    Parameters
    ----------
    globals : Arrays
        As the sweep was made against.
    delta : Delta
        What the sweep and the folding of its rows told.
    total : float
        B.

    Returns
    -------
    float
        In nats.
    """
    moments, log_absent = moved_moments(globals, delta), moved_log_absent(globals, delta)
    _, log_rising = topic_totals(moments, log_absent, total)
    return delta.number("bound_documents") + delta.number("bound_words") - float(log_rising.sum())


def counted(globals: Arrays, delta: Delta, parameters: Parameters) -> dict[str, npt.NDArray[np.float64]]:
    """Return the globals that follow from a delta alone; `parameters` are those it was swept and folded with."""
    spread = {} if parameters.listing is None else {"spread_weight": parameters.listing.following}
    if "topic_ahead" in delta:
        spread["topic_ahead"] = delta["topic_ahead"]
    return {
        **spread,
        "topic_moments": moved_moments(globals, delta),
        "topic_log_absent": moved_log_absent(globals, delta),
    }


def require_schedule(summary: Summary, *, moments: bool) -> None:
    """Refuse options that a stochastic schedule cannot serve: variances of counts by words are not kept there."""
    if summary.stochastic and moments:
        raise OptionError("--schedule stochastic: takes order 0, and does not learn what concerns words")


def of_corpus(globals: Arrays, delta: Delta) -> tuple[Delta, dict[str, npt.NDArray[np.float64]]]:
    """Give a delta whose sums over documents stand for the whole corpus, and globals that remember them.

    In the stochastic schedule the sums of a minibatch are scaled to the corpus and averaged with those before, with
    weights that decay; else the delta is whole as it is.

    Parameters
    ----------
    globals : Arrays
        As the iteration began.
    delta : Delta
        What its shards' sums come to.

    Returns
    -------
    delta : Delta
        With sums for the corpus.
    kept : Arrays
        What the next minibatch's averages need.
    """
    if "topic_gain" not in delta:
        return delta, {}
    scale, number = (
        float(globals["corpus_tokens"]) / max(delta.number("tokens"), 1.0),
        float(globals["minibatches"]) + 1,
    )
    kept: dict[str, npt.NDArray[np.float64]] = {
        "steps": globals["steps"] + delta.number("batches") / delta.number("shards"),
        "minibatches": np.array(number),
    }
    parts, weight = dict(delta.parts), number**-FORGETTING
    for name in ("tables", "log_eta"):
        if name in parts:
            now = np.asarray(parts[name].values) * scale
            kept[f"corpus_{name}"] = now if number == 1 else (1 - weight) * globals[f"corpus_{name}"] + weight * now
            parts[name] = replace(parts[name], values=kept[f"corpus_{name}"])
    return Delta(parts, delta.ids, delta.seconds), kept


def active_globals(summary: Summary, config: ActiveConfig) -> Arrays:
    """Return the globals that say how responsibilities are kept."""
    every = summary.documents // (DOCUMENTS_A_TOPIC * config.topics)
    return {
        "active": np.array(config.active and not summary.stochastic),
        "stochastic": np.array(summary.stochastic),
        "corpus_tokens": np.array(float(summary.tokens)),
        "steps": np.array(0.0),
        "minibatches": np.array(0.0),
        "most_active": np.array(config.most_active or 0),
        "start_every": np.array(min(max(every, 1), MOST_EVERY)),
        "flatten": np.array(config.flatten),
        "momentum": np.array(config.momentum if config.active and not summary.stochastic else 0.0),
        "topic_ahead": np.zeros(config.topics),
        "spread_even": np.array(config.beta / summary.words),
        "spread_weight": np.ones(config.topics),
    }


def carried(
    globals: Arrays, known: Arrays, config: ActiveConfig, before: ActiveConfig, names: Sequence[str]
) -> tuple[Arrays, int] | None:
    """Let a fit go on from another run of its family, where responsibilities are kept in the same way.

    Parameters
    ----------
    globals, known, config, before
        As for `Family.carry`.
    names : sequence of str
        What of the globals has been learned, and goes on.

    Returns
    -------
    tuple of Arrays and int, or None
        As for `Family.carry`.
    """
    same = config.topics == before.topics and config.active == before.active
    counting = bool(globals["stochastic"]) or "held_share" in globals or float(known.get("unsettled", 0)) > 0
    if not same or counting:
        return None
    return {**globals, **{name: known[name] for name in names}}, config.topics


def stepping(globals: Arrays, summary: Summary, config: ActiveConfig, steps: float) -> Arrays:
    """Return globals with which the stochastic schedule goes on from a fitted model.

    Parameters
    ----------
    globals : Arrays
        The model's.
    summary : Summary
        Of the corpus that is sampled from; its counts are brought to the tokens of that.
    config : ActiveConfig
        The options.
    steps : float
        Batches that the model counts for.

    Returns
    -------
    Arrays
        The globals; the words' rows are to be brought to the same tokens.
    """
    moments = np.array(globals["topic_moments"])
    moments *= summary.tokens / max(float(moments[0].sum()), 1.0)
    return {
        **globals,
        **active_globals(summary, config),
        "topic_moments": moments,
        "steps": np.array(steps),
    }


def footprint(summary: Summary, config: ActiveConfig, *, moments: bool) -> Footprint:
    """Return what the state takes: responsibilities of 2 bytes over lists, or of 4 over all topics."""
    more = 16.0 * config.topics if moments else 0.0
    if not config.active:
        pair, document = 4.0 * config.topics, 4.0 * config.topics
        largest = pair * summary.pairs + document * summary.documents
        return Footprint(
            kept=8 * config.topics + more,
            shown=8 * config.topics + more,
            swept=4 * config.topics + 2 * more,
            delta=8 * config.topics + more,
            pair=pair,
            document=document,
            portion=2 * largest,
        )
    listed = _listed(summary, config)
    if summary.stochastic:
        return Footprint(
            kept=4 * config.topics + 8,
            shown=4 * config.topics + 8,
            swept=8 * config.topics + 16,
            delta=4 * config.topics + 8,
            pair=0.0,
            document=4.0 * config.topics,  # once it has ended, the documents are fitted to the topics
            portion=6.0 * PORTION,
        )
    return Footprint(
        kept=(8 if config.momentum else 4) * config.topics + 8 + more,
        shown=4 * config.topics + 8 + more,
        swept=4 * config.topics + 16 + more,
        delta=4 * config.topics + 8 + more,
        pair=2.0 * listed,
        document=6.0 * listed + 20,
        portion=6.0 * PORTION,
    )


def _listed(summary: Summary, config: ActiveConfig) -> float:
    """Return how many topics a pair's document may list, in the mean over the pairs."""
    most = config.most_active or 0
    if summary.lengths is None or not summary.lengths.sum():
        return float(min(room_for(summary.pairs / max(summary.documents, 1), config.topics, most), config.topics))
    rooms = np.minimum(room_for(summary.lengths, config.topics, most), config.topics)
    return float((summary.lengths * rooms).sum() / summary.lengths.sum())
