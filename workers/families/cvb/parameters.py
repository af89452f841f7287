"""Dirichlet parameters of collapsed updates, and a shard's rows in sweeps over active responsibilities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import BAND, Delta, Part, band_bounds, change, fresh
from collapsium.workers.arrays.state import present
from collapsium.workers.families.cvb.global_state import CollapsedGlobalState, SmallActiveSets
from collapsium.workers.families.cvb.global_state import RowChanges as RowDelta
from collapsium.workers.families.cvb.options import CollapsedOptions
from collapsium.workers.families.cvb.states import BlockCounts, CollapsedRows, Counts
from collapsium.workers.families.document_entries import document_pairs, plain_counts
from collapsium.workers.kernels.cvb import background
from collapsium.workers.kernels.cvb.active import UNIT
from collapsium.workers.kernels.cvb.active_selection import SelectionRows
from collapsium.workers.kernels.cvb.records import Priors, RunningCounts, SpreadRows, SweepRows, TopicCounts

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Vector = npt.NDArray[np.float64]
SeedRows = tuple[npt.NDArray[np.int32], Vector]


@dataclass(frozen=True)
class ActiveSettings:
    """Settings of active responsibilities; see `collapsium.workers.families.cvb.active`."""

    max_topics: int  # Largest number of active topics of a document; 0 for the default, which grows with its pairs
    inverse_temperature: float  # 1 for the plain update, less for tempered responsibilities
    # Whether the first sweeps have an inverse temperature of their own; see
    # `collapsium.workers.families.cvb.active.ANNEALING_INVERSE_TEMPERATURE`
    annealed: bool
    momentum: float  # Share of their last change by which rows run ahead
    totals: Vector  # E[n_k] of the rows as sweeps see them; float64 (topics,)
    even: float  # Keeps a word's background even over the topics while it has no tokens
    # a_k / (B + E[n_k]) by which background is spread: since E[n_k] was last summed, and from the next fold on; float64
    # (topics,)
    weight: Vector
    following: Vector
    # Addition to the inverse temperature in every other document of a shard, from the first; subtracted in the others
    spread: float = 0.0
    small_sets: int = SmallActiveSets.NOWHERE  # Documents whose active sets are small, as `SmallActiveSets`
    selecting: bool = False  # Whether active topics are selected anew, whatever the age of a shard
    count_bits: int = 0  # Bits of whole numbers of steps by which rows change; 0 of floats
    # The totals as moves of topics will leave them, which weigh the background; by default `totals`; float64 (topics,)
    moved_totals: Vector | None = None


def active_settings(
    global_state: CollapsedGlobalState, options: CollapsedOptions, topics: Vector, *, moving: bool = False
) -> ActiveSettings | None:
    """Return the settings of active responsibilities; None where they are dense."""
    if not global_state.active:
        return None
    counted, search, trial = global_state.topic_moments[0], global_state.temperature_search, global_state.trial
    moving = moving or global_state.releasing
    return ActiveSettings(
        max_topics=options.most_active or 0,
        inverse_temperature=(options.inverse_temperature or 1.0) if search is None else search.inverse_temperature,
        spread=0.0 if search is None else search.spread,
        annealed=search is None,
        # Counts of the start are no movement. With momentum, tokens that topics hand over in a move would overshoot.
        momentum=options.momentum if global_state.tokens.any() and not moving else 0.0,
        totals=global_state.topic_ahead,
        moved_totals=global_state.after_moves(global_state.topic_ahead),
        even=options.beta / global_state.vocabulary,
        weight=global_state.spread_weight,
        following=topics / (global_state.beta + global_state.after_moves(counted)),
        small_sets=SmallActiveSets.NOWHERE if trial is None else trial.trial_small,
        count_bits=global_state.count_bits,
        selecting=trial is not None and trial.trial_selecting,
    )


@dataclass(frozen=True)
class DesignPriors:
    """Priors of a shard's documents that follow a design."""

    design: npt.NDArray[np.float32]  # Distinct rows; float32 (design rows, columns)
    levels: npt.NDArray[np.int32]  # Places of their levels of fields of many; int32 (design rows, fields)
    level_count: int  # Levels of all these fields
    place: npt.NDArray[np.int32]  # Row of each document; int32 (documents,)
    priors: Vector  # a_dk of the distinct rows; float64 (design rows, topics)
    log_total: Vector  # log sum_k exp(x_d.lambda_k) of the distinct rows; float64 (design rows,)
    held: float  # A where it is held; 0 where concentrations are free
    learned: bool  # Whether coefficients are learned after the sweep
    # Whether the rows multiply the shares of topics (HDP), whose means they leave as they are; else they have a_dk
    multiplies: bool = False
    rest: float = 0.0  # Part of A_d that belongs to no topic

    @property
    def of_documents(self) -> Vector:
        """a_dk of all documents, shape (documents, topics)."""
        priors: Vector = self.priors[self.place]
        return priors

    @property
    def totals(self) -> Vector:
        """A_d of all documents, shape (documents,)."""
        totals: Vector = self.priors.sum(axis=1)[self.place] + self.rest
        return totals


@dataclass(frozen=True)
class Parameters:
    """Dirichlet parameters, as the updates use them or as prediction does."""

    topics: npt.NDArray[np.float64]  # a_k; float64 (topics,)
    concentration: float  # A, the sum of a_k over all topics there could be
    words: npt.NDArray[np.float64]  # b_w; float64 (words at hand,)
    total: float  # B, the sum of b_w over the vocabulary
    order: int = 0  # 0, or 2 with dense responsibilities
    tables: bool = False  # Whether sweeps sum E[s_k]
    moments: bool = False  # Whether the rows carry V[n_kw] and Z[n_kw]
    active: ActiveSettings | None = None  # Settings of active responsibilities; None where they are dense
    # Pseudo-counts of seeds that the rows at hand leave out; see `CollapsedGlobalState.seed_rows`; int32
    seeds: SeedRows | None = None
    # Priors of the documents at hand if they follow a design; `topics` is then their mean
    design_priors: DesignPriors | None = None

    @property
    def priors(self) -> Priors:
        """Dirichlet parameters as kernels take them, of all documents."""
        return Priors(self.topics, self.words, self.total)

    def priors_of(self, first: int, documents: int) -> Priors:
        """Return Dirichlet parameters as kernels take them, of some documents in a row."""
        if self.design_priors is None:
            return self.priors
        place = self.design_priors.place[first : first + documents]
        return self.priors._replace(design_priors=self.design_priors.priors, design_place=np.ascontiguousarray(place))

    @property
    def of_documents(self) -> Vector:
        """a_k, or a_dk of the documents at hand, shape (documents, topics)."""
        return self.topics if self.design_priors is None else self.design_priors.of_documents

    @property
    def rest(self) -> float:
        """Part of A that belongs to no topic there is."""
        return max(self.concentration - float(self.topics.sum()), 0.0)

    @property
    def totals(self) -> Vector:
        """A, shape (1,), or A_d of the documents at hand, shape (documents,)."""
        return np.array([self.concentration]) if self.design_priors is None else self.design_priors.totals

    @property
    def active_settings(self) -> ActiveSettings:
        """Settings of active responsibilities; an error where they are dense."""
        if self.active is None:
            raise ValueError("active responsibilities need settings")
        return self.active


class SweptRows:
    """A shard's rows while it is swept."""

    def __init__(self, shard: Shard, rows: CollapsedRows, parameters: Parameters) -> None:
        settings, active = parameters.active_settings, present(rows.word_active)
        self._totals, self._count_bits = settings.totals + parameters.total, settings.count_bits
        self._spread = SpreadRows(active, rows.background, settings.even, settings.weight, *(parameters.seeds or ()))
        moved = settings.totals if settings.moved_totals is None else settings.moved_totals
        self._words, ratio, size = parameters.words, parameters.topics / (moved + parameters.total), len(active)
        cells = buffers.empty(active.shape, np.int32)
        none = np.full(size, -1, dtype=np.int32), np.zeros((0, active.shape[1]))
        swept = SweepRows(
            cells, np.empty(size, np.float32), np.empty(size), np.zeros(size), *none, *(parameters.seeds or ())
        )
        background.begin_rows(self._spread, self._words, ratio, document_pairs(shard), swept)
        swept = background.with_long_rows(swept)
        self.running = RunningCounts(self._totals.copy(), ratio, swept)
        self._selection: SelectionRows | None = None
        self._start = buffers.empty(active.shape, np.int32)
        np.copyto(self._start, swept.cells)

    @property
    def selection(self) -> SelectionRows:
        """The rows as the sweep began, made when they are first asked for."""
        if self._selection is None:
            expected = buffers.empty(self._start.shape, np.float32)
            background_weight = np.empty(len(expected), dtype=np.float32)
            background.spread(self._spread, self._words, self.running.ratio, expected, background_weight)
            self._selection = SelectionRows(expected, background_weight, self._totals)
        return self._selection

    def release(self) -> None:
        """Free the memory of `selection`."""
        self._selection = None

    @property
    def topics(self) -> TopicCounts:
        """Counts of topics as the sweep began."""
        return TopicCounts(self.selection.expected, self._totals)

    def changes(self) -> dict[str, Part]:
        """Return the changes of the rows since the sweep began, once."""
        active: BlockCounts
        if self._count_bits:
            active = background.steps_since(self._start, self.running.rows, np.dtype(f"i{self._count_bits // 8}"))
        else:
            active = self._start.view(np.float32)
            background.changes_since(self._start, self.running.rows, active)
        return {
            "word_active": change(active, "word", "topic"),
            "word_rest": change(self.running.rows.background, "word"),
        }


def expected_counts(
    rows: CollapsedRows, weight: Vector, even: float, seeds: SeedRows | None = None
) -> npt.NDArray[np.float32]:
    """Return E[n_kw] of rows whose background is spread over the topics, shape (words, topics)."""
    active = rows.active_counts
    expected, unused = buffers.empty(active.shape, np.float32), np.empty(len(active), dtype=np.float32)
    spread_rows = SpreadRows(active, rows.background, even, weight, *(seeds or ()))
    background.spread(spread_rows, np.zeros(len(active)), np.zeros(active.shape[1]), expected, unused)
    return expected


def counted_in(bits: int, delta: Delta) -> Delta:
    """Return a delta whose counts of active topics are whole numbers of `bits` bits; with 0 they stay floats."""
    part = delta.parts.get("word_active")
    if not bits or part is None:
        return delta
    steps = np.rint(part.values * np.float32(UNIT)).astype(f"i{bits // 8}")
    return replace(delta, parts={**delta.parts, "word_active": replace(part, values=steps)})


def fold_steps(
    block: CollapsedRows, delta: Delta, parameters: Parameters, summed: slice | None = None
) -> tuple[CollapsedRows, Delta]:
    """Return a block of the vocabulary after changes of its rows in steps, and its sums.

    The sums have the totals of topics over some bands of the block, by default over all.
    """
    settings, before = parameters.active_settings, block.block_active
    changes, ids = delta.read(RowDelta) or RowDelta(), delta.ids.get("word", np.zeros(0, dtype=np.int64))
    if before is None:
        raise ValueError("expected rows with whole counts")
    words, topics = before.shape
    place = np.full(words, -1, dtype=np.int64)
    place[ids] = np.arange(ids.size)
    changed = np.zeros((0, topics), before.dtype) if changes.word_active is None else changes.word_active
    bounds = band_bounds(words)
    numbers = np.arange(bounds.size - 1)[summed if summed is not None else slice(None)]
    row_of_band = np.full(bounds.size - 1, -1)
    row_of_band[numbers] = np.arange(numbers.size)
    new, ahead = buffers.empty(before.shape, before.dtype), buffers.empty(before.shape, np.float32)
    after = replace(
        block,
        block_active=new,
        word_active=ahead,
        word_rest=_added(block.word_rest, ids, changes.word_rest),
        word_topic_variance=_added(block.word_topic_variance, ids, changes.word_topic_variance),
        word_topic_log_absent=_added(block.word_topic_log_absent, ids, changes.word_topic_log_absent),
    )
    totals, moved = np.zeros((2, numbers.size, topics)), np.zeros(1)
    rows = SpreadRows(ahead[:0], after.background, settings.even, settings.following, *(parameters.seeds or ()))
    inputs = (rows, settings.momentum, np.repeat(row_of_band, np.diff(bounds)), ahead, totals, moved)
    if before.dtype == np.int64:
        background.fold_steps_64(background.Steps64(before, changed, place, new), *inputs)
    else:
        background.fold_steps_32(background.Steps32(before, changed, place, new), *inputs)
    parts = {
        "topic_total": fresh(totals[0], BAND, "topic"),
        "topic_ahead": fresh(totals[1], BAND, "topic"),
        "moved": fresh(moved[0]),
    }
    return after, Delta(parts, {BAND: bounds[numbers]})


def fold_active(block: CollapsedRows, delta: Delta, parameters: Parameters) -> tuple[CollapsedRows, dict[str, Part]]:
    """Return a block of the vocabulary after changes of its rows in tokens."""
    settings, before, changes = parameters.active_settings, block.active_counts, delta.read(RowDelta) or RowDelta()
    ids = delta.ids.get("word", np.zeros(0, dtype=np.int64))
    place = np.full(len(before), -1, dtype=np.int64)
    place[ids] = np.arange(ids.size)
    changed = changes.word_active
    if changed is None:
        changed = np.zeros((0, before.shape[1]), dtype=np.float32)
    new, ahead = buffers.empty(before.shape, np.float32), np.zeros((0, before.shape[1]), dtype=np.float32)
    if block.block_active is not None:
        ahead = buffers.empty(before.shape, np.float32)
    after = replace(
        block,
        word_rest=_added(block.word_rest, ids, changes.word_rest),
        word_topic_variance=_added(block.word_topic_variance, ids, changes.word_topic_variance),
        word_topic_log_absent=_added(block.word_topic_log_absent, ids, changes.word_topic_log_absent),
    )
    totals, moved = np.zeros((2, before.shape[1])), np.zeros(1)
    rows = SpreadRows(before, after.background, settings.even, settings.following, *(parameters.seeds or ()))
    background.fold_rows(rows, background.RowDelta(changed, place), settings.momentum, new, ahead, totals, moved)
    after = replace(after, block_active=new, word_active=ahead) if ahead.size else replace(after, word_active=new)
    parts = {"topic_total": fresh(totals[0], "topic"), "moved": fresh(moved[0])}
    return after, {**parts, "topic_ahead": fresh(totals[1] if ahead.size else totals[0], "topic")}


def _added(values: Vector | None, ids: npt.NDArray[np.int64], changes: Vector | None) -> Vector | None:
    """Return values of a block after changes of some rows; None where there are none."""
    if values is None or changes is None:
        return values
    after = np.array(values)
    after[ids] += changes
    return after


def counts_of(rows: CollapsedRows, parameters: Parameters, *, folded: bool = False) -> Counts:
    """Return E[n_kw] of rows, shape (words, topics); `folded` rows are those before the next update."""
    if rows.word_topic is not None:
        return np.asarray(rows.word_topic, dtype=np.float32)
    settings = parameters.active_settings
    return expected_counts(rows, settings.following if folded else settings.weight, settings.even, parameters.seeds)


def word_probability(rows: CollapsedRows, global_state: CollapsedGlobalState, parameters: Parameters) -> Vector:
    """Return phi_kw = (b_w + E[n_kw]) / (B + E[n_k]), shape (words, topics)."""
    counts = counts_of(rows, parameters) if rows.word_topic is None else rows.word_topic
    smoothed = np.maximum(np.asarray(counts, dtype=np.float64), 0.0) + parameters.words[:, np.newaxis]
    probability: Vector = smoothed / (parameters.total + global_state.topic_moments[0])
    return probability


def plain_rows(rows: CollapsedRows, parameters: Parameters) -> CollapsedRows:
    """Return rows with counts of plain tokens; the same rows without weights of words."""
    if rows.word_mean is None:
        return rows
    return CollapsedRows(word_topic=plain_counts(counts_of(rows, parameters), rows.word_mean))
