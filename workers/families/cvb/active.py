"""Active responsibilities beside a shard: sparse responsibilities over the topics that each document uses.

An `ActiveLocal` has the topics of which each document expects more than a little, their expected counts, the documents'
background tokens, and the pairs' responsibilities. Rows have the counts of active topics and the words' background
tokens, which `kernels.cvb.background.spread` spreads over the topics.

Topics separate in few sweeps: all pairs of a document start alike; where documents use all topics, only some documents
have topics at the start, and the first sweep squares responsibilities; the next flatten them (annealing); and rows run
ahead of the counts by a share of their last change (momentum).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Delta, Part, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.spill import SpillFiles
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.cvb.document_lists import (
    WHOLE,
    Floats,
    Gathering,
    Ints,
    Portion,
    Steps,
    carry,
    choose,
    portions,
    starts_of,
)
from collapsium.workers.families.cvb.parameters import Parameters, SweptRows
from collapsium.workers.families.cvb.states import (
    ActiveDocuments,
    ActiveLocal,
    AnyActiveLocal,
    CollapsedRows,
    SpilledLocal,
)
from collapsium.workers.families.cvb.topic_moves import MoveStatistics, Moving
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels.cvb import active, active_selection, background
from collapsium.workers.kernels.cvb import active_sums as sums
from collapsium.workers.kernels.cvb import warm_start as warming
from collapsium.workers.kernels.cvb.records import (
    ActiveState,
    ActiveTopics,
    NewActiveState,
    RowChanges,
    TopicCounts,
)
from collapsium.workers.special_functions import digamma, polygamma

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Vector = npt.NDArray[np.float64]

# What fits of both schedules call.
KERNELS = (
    active.initialise,
    background.spread,
    background.fold_rows,
    active_selection.select,
    active_selection.carry,
    sums.active_probability,
)

FIRST = 8  # topics that it begins with where there are more
CHOICES, EVERY = {2, 4, 8, 12, 16, 24}, 16  # sweeps at which lists are chosen anew, and again every so many
SHARP = 2.0  # power of the first sweep where documents list all topics, as the noise in responsibilities is small
FLAT, FLAT_SWEEPS = 0.875, 20  # power of the next sweeps
SAMPLE_SWEEPS = 6  # of the documents that begin, before all others


def start(shard: Shard, topics: int, stream: Stream, moments: bool, most: int, every: int) -> tuple[ActiveLocal, Delta]:
    """List a few random topics for each document, or all if they are few, and draw near-uniform responsibilities.

    Parameters
    ----------
    shard : Shard
        The documents.
    topics : int
        K.
    stream : Stream
        Addressed to the shard.
    moments : bool
        Whether to give V[n_kw] and Z[n_kw] too.
    most : int
        Most topics that a document may list; 0 for the default, which grows with its pairs.
    every : int
        Where documents list all topics, one in so many begins; the others are background at first.

    Returns
    -------
    local : ActiveLocal
        The shard's state.
    delta : Delta
        Changes from nothing.
    """
    generator = stream.generator()
    topic, sizes = _first_lists(shard, topics, most, every, generator)
    lists_ = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    where, state = ActiveTopics(lists_, topic), blank_state(shard, lists_)
    rows = RowChanges(buffers.zeros((shard.words.size, topics), np.float32), np.zeros(shard.words.size))
    noise = generator.random(topic.size, dtype=np.float32) + np.float32(0.1)
    active.initialise(document_pairs(shard), where, noise, state, rows)
    return initial_state(shard, where, ActiveState(*state), rows, moments=moments)


def blank_state(shard: Shard, offsets: Ints) -> NewActiveState:
    """Return arrays for the state of a shard's documents, from the offsets of their active topics."""
    starts = starts_of(shard.offsets, offsets)
    counts, rest = np.zeros(int(offsets[-1]), dtype=np.float32), np.zeros(shard.documents, dtype=np.float32)
    return NewActiveState(starts, buffers.empty(int(starts[-1]), np.uint16), counts, rest)


def continue_from(shard: Shard, saved: Arrays, topics: int, *, moments: bool) -> tuple[ActiveLocal, Delta]:
    """Go on from the sparse responsibilities of another run, and count them."""
    before = ActiveLocal.from_arrays(saved)
    where, starts = before.active, starts_of(shard.offsets, before.document_lists)
    state = ActiveState(starts, before.pair_shares, before.document_counts, before.document_rest)
    rows = RowChanges(buffers.zeros((shard.words.size, topics), np.float32), np.zeros(shard.words.size))
    warming.count_active(document_pairs(shard), where, state, rows)
    return initial_state(shard, where, state, rows, moments=moments, age=max(before.age, FLAT_SWEEPS))


def initial_state(
    shard: Shard,
    where: ActiveTopics,
    state: ActiveState,
    rows: RowChanges,
    *,
    moments: bool,
    age: int = 0,
) -> tuple[ActiveLocal, Delta]:
    """Return a shard's first local state, and its counts as changes.

    Parameters
    ----------
    shard : Shard
        The documents.
    where : ActiveTopics
        Active topics of the documents.
    state : ActiveState
        Their responsibilities and counts.
    rows : RowChanges
        Counts by words and active topics, and the words' background tokens.
    moments : bool
        Whether to give V[n_kw] and Z[n_kw] too.
    age : int, optional
        Sweeps that it counts as having had: the first ones are of another kind.

    Returns
    -------
    local : ActiveLocal
        The shard's state.
    delta : Delta
        Changes from nothing.
    """
    parts = {"word_active": change(rows.active, "word", "topic"), "word_rest": change(rows.background, "word")}
    if moments:
        arrays = np.zeros((2, *rows.active.shape))
        sums.active_moments(document_pairs(shard), where, state, 1.0, arrays[0], arrays[1])
        parts.update(_moments(arrays))
    local = ActiveLocal(*where, state.counts, state.background, state.responsibilities, age)
    return local, Delta(parts, {"word": shard.words})


def _first_lists(
    shard: Shard, topics: int, most: int, every: int, generator: np.random.Generator
) -> tuple[Steps, Ints]:
    """Draw the documents' first lists, and say how long they are; an empty document lists nothing."""
    occupied = np.diff(shard.offsets) > 0
    if topics <= min(WHOLE, most or WHOLE):
        occupied &= np.arange(occupied.size) % every == 0
        sizes = np.where(occupied, topics, 0)
        return np.tile(np.arange(topics, dtype=np.uint16), int(occupied.sum())), sizes
    drawn = generator.integers(topics, size=(shard.documents, min(FIRST, most or FIRST)), dtype=np.uint16)
    drawn.sort(axis=1)
    keep = np.concatenate([np.ones((shard.documents, 1), dtype=bool), np.diff(drawn, axis=1) > 0], axis=1)
    keep &= occupied[:, np.newaxis]
    return drawn[keep], keep.sum(axis=1)


def _moments(arrays: Vector) -> dict[str, Part]:
    names = ("word_topic_variance", "word_topic_log_absent")
    return {name: change(values, "word", "topic") for name, values in zip(names, arrays, strict=True)}


def sweep(
    shard: Shard,
    local: AnyActiveLocal,
    rows: CollapsedRows,
    parameters: Parameters,
    moving: Moving | None = None,
    statistics: MoveStatistics | None = None,
) -> tuple[AnyActiveLocal, Delta]:
    """Pass once over a shard; every few sweeps, choose the documents' lists anew before.

    Parameters
    ----------
    shard : Shard
        The documents.
    local : ActiveLocal or SpilledLocal
        After the previous sweep.
    rows : CollapsedRows
        Of the shard's words.
    parameters : Parameters
        For the updates.
    moving : Moving, optional
        Moves of topics to carry out before.
    statistics : MoveStatistics, optional
        Sums, before, by which moves are proposed or accepted.

    Returns
    -------
    local : ActiveLocal or SpilledLocal
        The new state.
    delta : Delta
        `RowChanges`, and fresh ``tables``.
    """
    before_sweep = local.to_arrays()
    age, prior = int(before_sweep["age"]) + 1, parameters.topics
    relisting = moving is not None or _choosing(age, prior.size)
    choose_, carry_ = (choose, carry) if moving is None else (moving.choose, moving.carry)
    working = SweptRows(rows, parameters)
    tables, grown = np.zeros(prior.size), np.zeros(prior.size + 1)
    moved = np.zeros((2, *working.row_changes.active.shape)) if parameters.moments else np.zeros((2, 0, 0))
    if statistics is not None:
        for portion in portions(shard, before_sweep):
            statistics.add(portion, working, parameters)
    # Lists are chosen by the rows as they were, so that all may be chosen first; on disk, that would read it all twice.
    ahead = relisting and not isinstance(local, SpilledLocal)
    chosen = [choose_(portion, working, parameters) for portion in portions(shard, before_sweep)] if ahead else []
    after = Gathering(shard, before_sweep, chosen, same=not relisting)
    for number, before in enumerate(portions(shard, before_sweep)):
        portion = before
        if relisting:
            portion = carry_(before, working, chosen[number] if ahead else choose_(before, working, parameters))
        new = _sweep(portion, working, parameters, _power(age, parameters), after.blank(portion))
        if parameters.tables:
            sums.active_tables(new.pairs, new.active, new.state, prior, tables, grown)
        if parameters.moments:
            old = before.pairs if moving is None else moving.before(before)
            sums.active_moments(old, before.active, before.state, -1.0, moved[0], moved[1])
            sums.active_moments(new.pairs, new.active, new.state, 1.0, moved[0], moved[1])
        after.add(new)
    parts = {**working.changes(), **(statistics.parts() if statistics is not None else {})}
    if parameters.moments:
        parts.update(_moments(moved))
    if parameters.tables:
        documents = int((shard.lengths > 0).sum())
        parts["tables"] = fresh(tables + _background_tables(grown, prior, documents), "topic")
    arrays = after.finish(age)
    new_local = SpilledLocal(arrays) if isinstance(arrays, SpillFiles) else ActiveLocal.from_arrays(arrays)
    return new_local, Delta(parts, {"word": shard.words})


def _choosing(age: int, topics: int) -> bool:
    """Say whether lists are chosen anew before a shard's sweep number `age`, 1 for the first."""
    if topics > WHOLE:
        return age in CHOICES or age % EVERY == 0
    return age == SAMPLE_SWEEPS + 1 or (age > FLAT_SWEEPS and (age in CHOICES or age % EVERY == 0))


def _power(age: int, parameters: Parameters) -> float:
    """Return the power to which weights are raised in a shard's sweep number `age`."""
    if age == 1 and parameters.topics.size <= WHOLE:
        return SHARP
    return FLAT if age <= FLAT_SWEEPS else parameters.active_settings.flatten


def _sweep(
    portion: Portion, working: SweptRows, parameters: Parameters, power: float, after: NewActiveState
) -> Portion:
    """Update the responsibilities of a portion."""
    active.sweep_active(
        portion.pairs,
        portion.active,
        portion.state,
        parameters.priors,
        working.sweep,
        power,
        working.running,
        after,
    )
    return replace(portion, state=ActiveState(*after))


def _background_tables(grown: Vector, prior: Vector, documents: int) -> Vector:
    """Return the sums over documents of E[s_dk] where a topic is not listed.

    It has about a_k E[n_d,rest] / a_rest tokens there, spread thin over the pairs: a Poisson number, of which the
    tables are taken at its mean over the documents.
    """
    tables = np.zeros_like(prior)
    mean = prior * np.maximum(grown[:-1] + grown[-1], 0.0) / max(documents, 1)
    present = -special.expm1(-mean)
    some = present > 1e-12
    count = np.maximum(mean[some] / present[some], 1.0)
    variance = np.maximum(count - special.exp(-mean[some]) * count * count, 0.0)
    argument = prior[some] + count
    curve = digamma(argument) - digamma(prior[some]) + 0.5 * variance * polygamma(2, argument)
    tables[some] = documents * np.clip(prior[some] * present[some] * curve, 0.0, mean[some])
    return tables


def probability(
    heldout: Shard, local: ActiveDocuments, row_topic: Floats, totals: Vector, parameters: Parameters
) -> npt.NDArray[np.float64]:
    """Return the probability of each held-out pair's word in its document, shape (held-out pairs,)."""
    probability = np.empty(heldout.pairs)
    rest = np.array([max(parameters.concentration - parameters.topics.sum(), 0.0), parameters.total])
    topics = TopicCounts(row_topic, totals[0] + parameters.total)
    counts = local.document_counts, local.document_rest
    sums.active_probability(
        document_pairs(heldout), local.active, *counts, parameters.priors, topics, rest, probability
    )
    return probability
