"""Active-set CVB0 on a shard: sparse responsibilities over the topics that each document uses.

An `ActiveLocal` has each document's active topics with their expected counts, the documents' background tokens, and the
responsibilities of the pairs. Rows have the counts of active topics and the words' background tokens, which
`kernels.cvb.background.spread` spreads over the topics.

Four measures make topics separate in few sweeps. All pairs of a document start alike. With few topics, only some
documents have topics at the start, and the first sweep squares responsibilities. The next sweeps temper them
(annealing). Rows run ahead of the counts by a share of their last change (momentum).

In a warm start from another run, q_dwk ~ theta_dk phi_kw, where ``document_topic`` is theta of the shard's documents
and ``word_topic`` phi of its words. The other run may have fewer topics; further topics begin empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from collapsium.workers.families.cvb import dense, prevalence
from collapsium.workers.families.cvb.active_topics import (
    MIN_TOKENS,
    OLD_PSEUDO,
    DocumentChunk,
    Floats,
    Ints,
    LocalStateBuilder,
    Steps,
    begins_complete,
    carry,
    document_chunks,
    max_active,
    select,
    starts_of,
)
from collapsium.workers.families.cvb.parameters import Parameters, SweptRows
from collapsium.workers.families.cvb.split_merge import Moving, Statistics
from collapsium.workers.families.cvb.states import (
    ActiveDocuments,
    ActiveLocal,
    AnyActiveLocal,
    CollapsedRows,
    DenseLocal,
    SpilledLocal,
)
from collapsium.workers.families.dirichlet import proportions_and_topics
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.kernels.cvb import active, active_selection, background
from collapsium.workers.kernels.cvb import warm_start as warming
from collapsium.workers.kernels.cvb import words as sums
from collapsium.workers.kernels.cvb.records import (
    NO_PSEUDO_COUNTS,
    ActiveState,
    ActiveTopics,
    DocumentModel,
    NewActiveState,
    RowChanges,
    TopicCounts,
)
from collapsium.workers.special_functions import digamma, polygamma

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard
    from collapsium.workers.kernels.jit import AnyKernel


Vector = npt.NDArray[np.float64]

KERNELS = (
    warming.initialise,
    background.begin_rows,
    background.spread,
    active_selection.select,
    active_selection.carry,
    active.count_documents,
    sums.active_probability,
)
# Kernels of changes of rows, by the bits of whole counts; 0 of floats
ROW_KERNELS: Mapping[int, tuple[AnyKernel, ...]] = {
    0: (background.changes_since, background.fold_rows),
    32: (background.fold_steps_32,),
    64: (background.fold_steps_64,),
}


INITIAL_TOPICS = 8  # Active topics of a document at the start, where there are too many to begin with all
# First sweeps before which active topics are selected anew
SELECTION_SWEEPS = frozenset((2, 4, 8, 12, 16, 24))
SELECTION_INTERVAL = 16  # Sweeps between later selections
# Inverse temperature in the first sweep where documents begin with all topics: the noise in responsibilities is small
FIRST_INVERSE_TEMPERATURE = 2.0
# Inverse temperature in the first sweeps of fits without a search, and the number of these sweeps
ANNEALING_INVERSE_TEMPERATURE = 0.875
ANNEALING_SWEEPS = 20
SAMPLE_SWEEPS = 6  # Sweeps of the sampled documents, before all others have topics
# Age to which documents that join set a shard back, so that it is annealed and topics selected again
JOIN_AGE = 4


RECOUNT = 1e-3  # Relative change of documents' lengths from which the counts of another run are counted anew


def start(
    shard: Shard, topics: int, stream: Stream, moments: bool, max_topics: int, every: int
) -> tuple[ActiveLocal, Delta]:
    """Return a shard's first local state: a few random active topics per document, or all, nearly uniform."""
    generator, occupied = stream.generator(), np.diff(shard.offsets) > 0
    if begins_complete(np.diff(shard.offsets), topics, max_topics):
        occupied &= np.arange(occupied.size) % every == 0
        sizes = np.where(occupied, topics, 0)
        topic = np.tile(np.arange(topics, dtype=np.uint16), int(occupied.sum()))
    else:
        count = min(INITIAL_TOPICS, max_topics or INITIAL_TOPICS)
        drawn = generator.integers(topics, size=(shard.documents, count), dtype=np.uint16)
        drawn.sort(axis=1)
        distinct = np.concatenate([np.ones((shard.documents, 1), dtype=bool), np.diff(drawn, axis=1) > 0], axis=1)
        distinct &= occupied[:, np.newaxis]
        topic, sizes = drawn[distinct], distinct.sum(axis=1)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    active_topics, state = ActiveTopics(offsets, topic), blank_state(shard, offsets)
    rows = RowChanges(buffers.zeros((shard.words.size, topics), np.float32), np.zeros(shard.words.size))
    noise = generator.random(topic.size, dtype=np.float32) + np.float32(0.1)
    warming.initialise(document_pairs(shard), active_topics, noise, state, rows)
    return initial_state(shard, active_topics, ActiveState(*state), rows, moments=moments)


def blank_state(shard: Shard, offsets: Ints) -> NewActiveState:
    """Return arrays for the state of a shard's documents, from the offsets of their active topics."""
    starts = starts_of(shard.offsets, offsets)
    counts, rest = np.zeros(int(offsets[-1])), np.zeros(shard.documents)
    return ActiveState(starts, buffers.empty(int(starts[-1]), np.uint16), counts, rest)


def continue_from(shard: Shard, saved: Arrays, topics: int, *, moments: bool) -> tuple[ActiveLocal, Delta]:
    """Return a shard's first local state with the responsibilities of another run, and its counts."""
    before = ActiveLocal.from_arrays(saved)
    active_topics, starts = before.active, starts_of(shard.offsets, before.document_lists)
    pseudo = NO_PSEUDO_COUNTS if before.start_counts is None else before.start_counts
    counts, rest = (np.asarray(values, dtype=np.float64) for values in (before.document_counts, before.document_rest))
    pairs, state = document_pairs(shard), ActiveState(starts, before.pair_shares, counts, rest, pseudo)
    rows = RowChanges(buffers.zeros((shard.words.size, topics), np.float32), np.zeros(shard.words.size))
    if not np.allclose(before.lengths(), shard.weighted_lengths, rtol=RECOUNT, atol=RECOUNT):
        # The other run had different word weights.
        recounted = blank_state(shard, before.document_lists)
        active.count_documents(pairs, active_topics, state, 1, recounted)
        state = state._replace(counts=recounted.counts, background=recounted.background)
    elif before.document_counts.dtype == np.float32:
        state = DocumentChunk(pairs, active_topics, state).exactly_counted(pairs, before.document_pseudo).state
    warming.count_active(pairs, active_topics, state, rows)
    age = max(before.age, ANNEALING_SWEEPS)
    return initial_state(shard, active_topics, state, rows, moments=moments, age=age)


def initial_state(
    shard: Shard,
    active_topics: ActiveTopics,
    state: ActiveState,
    rows: RowChanges,
    *,
    moments: bool,
    age: int = 0,
) -> tuple[ActiveLocal, Delta]:
    """Return a shard's first local state, and its counts as changes."""
    parts = {"word_active": change(rows.active, "word", "topic"), "word_rest": change(rows.background, "word")}
    if moments:
        arrays = np.zeros((2, *rows.active.shape))
        sums.active_moments(document_pairs(shard), active_topics, state, 1.0, arrays[0], arrays[1])
        parts.update(_moments(arrays))
    pseudo = state.pseudo if state.pseudo.size else None
    local = ActiveLocal(
        *active_topics, state.counts, state.background, state.responsibilities, age, start_counts=pseudo
    )
    return local, Delta(parts, {"word": shard.words})


def _moments(arrays: Vector) -> dict[str, Part]:
    names = ("word_topic_variance", "word_topic_log_absent")
    return {name: change(values, "word", "topic") for name, values in zip(names, arrays, strict=True)}


def sweep(
    shard: Shard,
    local: AnyActiveLocal,
    rows: CollapsedRows,
    parameters: Parameters,
    moving: Moving | None = None,
    statistics: Sequence[Statistics] = (),
    joining: Shard | None = None,
) -> tuple[AnyActiveLocal, Delta]:
    """Return the result of a sweep over a shard, before which active topics are selected anew every few sweeps.

    Documents that join have no active topics yet: all their tokens are background, from which topics are selected.
    """
    before_sweep = local.to_arrays()
    age, prior = int(before_sweep["age"]) + 1, parameters.topics
    age = age if joining is None else min(age, JOIN_AGE)
    selecting = moving is not None or joining is not None or _selects(age, shard, parameters)
    select_, carry_ = (select, carry) if moving is None else (moving.select, moving.carry)
    working = SweptRows(shard, rows, parameters)
    if joining is not None:
        place = np.searchsorted(shard.words, joining.words)
        weighted = joining.counts if joining.weights is None else joining.counts * joining.weights.astype(np.float64)
        tokens = np.bincount(joining.position, weights=weighted, minlength=place.size)
        working.running.rows.background[place] += tokens
    tables, grown = np.zeros(prior.size), np.zeros(prior.size + 1)
    moved = np.zeros((2, *working.running.rows.cells.shape)) if parameters.moments else np.zeros((2, 0, 0))
    learning = prevalence.Learning(parameters.design_priors)
    if statistics:
        for chunk in _chunks(shard, before_sweep, moving):
            for sums_before in statistics:
                sums_before.add(chunk, working, parameters)
    # Selection depends on the rows before the sweep alone, so all chunks may be selected first. On disk, that would
    # read the local state twice.
    ahead = selecting and not isinstance(local, SpilledLocal)
    selected = [select_(chunk, working, parameters) for chunk in _chunks(shard, before_sweep, moving)] if ahead else []
    working.release()
    after = LocalStateBuilder(shard, before_sweep, selected, same=not selecting)
    for number, before in enumerate(_chunks(shard, before_sweep, moving)):
        chunk = before
        if selecting:
            chosen = selected[number] if ahead else select_(before, working, parameters)
            working.release()
            chunk = carry_(before, working, chosen)
        new = _sweep(chunk, working, parameters, _inverse(age, shard, chunk, parameters), after.allocate(chunk))
        if parameters.tables:
            priors = parameters.priors_of(new.document, new.documents)
            sums.active_tables(new.pairs, new.active, new.state, priors, tables, grown)
        if parameters.moments:
            old = before.pairs if moving is None else moving.before(before)
            sums.active_moments(old, before.active, before.state, -1.0, moved[0], moved[1])
            sums.active_moments(new.pairs, new.active, new.state, 1.0, moved[0], moved[1])
        learning.add(new)
        after.add(new)
    parts = {**working.changes(), **learning.parts()}
    for sums_before in statistics:
        parts.update(sums_before.parts())
    if parameters.moments:
        parts.update(_moments(moved))
    if parameters.tables:
        documents = int((shard.lengths > 0).sum())
        parts["tables"] = fresh(tables + _background_tables(grown, prior, documents), "topic")
    arrays = after.finish(age)
    new_local = SpilledLocal(arrays) if isinstance(arrays, SpillFiles) else ActiveLocal.from_arrays(arrays)
    return new_local, Delta(parts, {"word": shard.words})


def _chunks(shard: Shard, local: Arrays, moving: Moving | None) -> Iterator[DocumentChunk]:
    """Yield the documents chunk by chunk, with exact counts also where a checkpoint up to release 0.1 has others."""
    rounded, pseudo = local["document_counts"].dtype == np.float32, local.get(OLD_PSEUDO)
    for chunk in document_chunks(shard, local):
        if rounded:
            counted = chunk.pairs if moving is None else moving.before(chunk)
            chunk_pseudo = None if pseudo is None else pseudo[chunk.document : chunk.document + chunk.documents]
            yield chunk.exactly_counted(counted, chunk_pseudo)
        else:
            yield chunk


def _selects(age: int, shard: Shard, parameters: Parameters) -> bool:
    """Return whether active topics are selected before a shard's sweep number `age`, 1 for the first."""
    scheduled = age in SELECTION_SWEEPS or age % SELECTION_INTERVAL == 0
    if not _begins_complete(shard, parameters):
        return scheduled or parameters.active_settings.selecting
    return age == SAMPLE_SWEEPS + 1 or (age > ANNEALING_SWEEPS and scheduled)


def _begins_complete(shard: Shard, parameters: Parameters) -> bool:
    """Return whether the documents of a shard begin with all topics."""
    return begins_complete(np.diff(shard.offsets), parameters.topics.size, parameters.active_settings.max_topics)


def _inverse(age: int, shard: Shard, chunk: DocumentChunk, parameters: Parameters) -> Vector:
    """Return the inverse temperatures of a chunk's documents in turn, in a shard's sweep number `age`; shape (2,)."""
    settings = parameters.active_settings
    if age == 1 and _begins_complete(shard, parameters):
        return np.full(2, FIRST_INVERSE_TEMPERATURE)
    if settings.annealed and age <= ANNEALING_SWEEPS:
        return np.full(2, ANNEALING_INVERSE_TEMPERATURE)
    step = settings.spread if chunk.document % 2 == 0 else -settings.spread
    return np.array([settings.inverse_temperature + step, settings.inverse_temperature - step])


def _sweep(
    chunk: DocumentChunk,
    working: SweptRows,
    parameters: Parameters,
    inverse_temperatures: Vector,
    after: NewActiveState,
) -> DocumentChunk:
    """Return a chunk with updated responsibilities."""
    active.sweep_active(
        chunk.pairs,
        chunk.active,
        chunk.state,
        parameters.priors_of(chunk.document, chunk.documents),
        inverse_temperatures,
        working.running,
        after,
    )
    return replace(chunk, state=ActiveState(*after))


def _background_tables(grown: Vector, prior: Vector, documents: int) -> Vector:
    """Return the sums of E[s_dk] over the documents in which a topic is inactive.

    An inactive topic has about a_k E[n_d,rest] / a_rest tokens, spread thin over the pairs. Their number is taken as
    Poisson, and the tables at its mean over the documents.
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
    rest = np.array([parameters.rest, parameters.total])
    topics = TopicCounts(row_topic, totals[0] + parameters.total)
    counts = local.expected, np.asarray(local.document_rest, dtype=np.float64)
    sums.active_probability(
        document_pairs(heldout), local.active, *counts, parameters.priors, topics, rest, probability
    )
    return probability


# Least share of an active topic in a document that begins with even topics, so that shares have a positive sum
MIN_START_SHARE = np.float32(1e-6)
MIN_PSEUDO_COUNT = 1.0  # Smaller pseudo-counts of a start are left out, in tokens: they say less than a token would


def start_from(shard: Shard, parameters: Parameters, warm: Arrays) -> tuple[ActiveLocal | DenseLocal, Delta]:
    """Return a shard's first local state from another run's proportions and topics."""
    even = parameters.active is not None and "word_topic" not in warm
    # Where all tokens of a document begin alike, no weights of its words are needed.
    theta, phi = proportions_and_topics(warm, 0 if even else shard.words.size, np.float32)
    pairs, topics, model = document_pairs(shard), parameters.topics.size, DocumentModel(theta, phi)
    if parameters.active is None:
        pair_topic = np.empty((shard.pairs, topics), dtype=np.float32)
        warming.initialise_dense(pairs, model, pair_topic)
        return dense.initial_state(shard, pair_topic, moments=parameters.moments)
    expected = shard.weighted_lengths[:, np.newaxis] * theta.astype(np.float64)
    if not even:
        warming.expected_counts(pairs, model, expected)
    known, strength = theta.shape[1], warm.get("document_strength")
    pseudo = None if strength is None else strength[:, np.newaxis] * theta
    if pseudo is not None:
        pseudo[pseudo < MIN_PSEUDO_COUNT] = 0.0
        expected += pseudo
    limits = max_active(shard.offsets, topics, parameters.active.max_topics)
    topic, sizes = first_lists(expected, parameters.topics, limits, shard.lengths > 0)
    lists = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    active_topics, state = ActiveTopics(lists, topic), blank_state(shard, lists)
    rows = RowChanges(buffers.zeros((shard.words.size, topics), np.float32), np.zeros(shard.words.size))
    owner = np.repeat(np.arange(shard.documents), sizes)
    if even:
        # All tokens of a document begin alike, which takes no pass over all topics of each pair.
        shares = np.where(topic < known, theta[owner, np.minimum(topic, known - 1)], np.float32(0.0))
        warming.initialise(pairs, active_topics, np.maximum(shares, MIN_START_SHARE), state, rows)
    else:
        warming.initialise_active(pairs, model, active_topics, state, rows)
    stays = NO_PSEUDO_COUNTS
    if pseudo is not None and pseudo.any():
        stays = np.where(topic < known, pseudo[owner, np.minimum(topic, known - 1)], np.float32(0.0))
    begun = ActiveState(*state)._replace(pseudo=stays)
    return initial_state(shard, active_topics, begun, rows, moments=parameters.moments, age=ANNEALING_SWEEPS)


def first_lists(expected: Vector, prior: Vector, limits: Ints, occupied: npt.NDArray[np.bool_]) -> tuple[Steps, Ints]:
    """Select documents' active topics by expected counts, as `kernels.cvb.active_selection.select` does.

    Returns topic: Topics, ascending in a document; sizes: Number of active topics of each document
    """
    documents, known = expected.shape
    passing = (expected > np.maximum(prior[:known], MIN_TOKENS)) & occupied[:, np.newaxis]
    none = np.flatnonzero(occupied & ~passing.any(axis=1))
    passing[none, expected[none].argmax(axis=1)] = True
    owner, topic = np.nonzero(passing)
    # The most expected first, the first topics among equals; few of all topics pass.
    order = np.lexsort((topic, -expected[owner, topic], owner))
    owner, topic, passed = owner[order], topic[order], passing.sum(axis=1)
    rank = np.arange(owner.size) - np.repeat(np.cumsum(passed) - passed, passed)
    number, chosen = np.minimum(passed, limits), rank < limits[owner]
    is_active = np.zeros((documents, prior.size), dtype=bool)
    is_active[owner[chosen], topic[chosen]] = True
    # A sweep over more than half of the topics is faster over all, whose cells lie side by side.
    is_active[(limits == prior.size) & (2 * number > prior.size)] = True
    return np.nonzero(is_active)[1].astype(np.uint16), is_active.sum(axis=1)
