"""Rows of words whose counts are partly background: its tokens are spread over the topics.

A word's background tokens are spread in proportion to weight_k (even + active_kw), weight_k being a_k / (B + E[n_k]);
`active` defines the background.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.cvb.active import STEP, UNIT
from collapsium.workers.kernels.cvb.records import SpreadRows, SweepRows
from collapsium.workers.kernels.jit import (
    Array,
    DocumentPairs,
    Float32Matrix,
    Float64Vector,
    Int32Matrix,
    Int64Matrix,
    Int64Vector,
    OutFloat32Matrix,
    OutFloat32Vector,
    OutFloat64Cube,
    OutFloat64Matrix,
    OutFloat64Vector,
    OutInt32Matrix,
    OutInt64Matrix,
    helper,
    kernel,
    token_weight,
)

# Tokens of a unit where tokens have weights, in a row that has room: sums of weights are no multiples of a step
WEIGHTED_UNIT = np.float32(2.0**-20)

MAX_UNITS = 2.0**30  # Most units of a cell, however a shard's tokens move: half of what 32 bits hold


class RowDelta(NamedTuple):
    """Changes of some rows of a block."""

    values: Float32Matrix  # The changes; (rows, topics)
    place: Int64Vector  # Row of `values` for each word of the block; -1 for none; (words,)


@kernel
def spread(
    rows: SpreadRows,
    word_prior: Float64Vector,
    ratio: Float64Vector,
    expected: OutFloat32Matrix,
    background_weight: OutFloat32Vector,
) -> None:
    """Fill E[n_kw] of rows whose background is spread over the topics, and S_w; twin: `naive.background.spread`.

    Shapes: `word_prior`, `background_weight` (rows,); `ratio` (topics,); `expected` (rows, topics).
    """
    active, rest, even, weight, counts = rows.active, rows.background, rows.even, rows.weight, np.empty(ratio.size)
    for row in range(rest.size):
        known, seeds = 0.0, _seeds_of(row, rows)
        if seeds >= 0:
            _spread_seeded(row, seeds, rows, counts)
            for k in range(weight.size):
                counts[k] += rows.seed_counts[seeds, k]
        else:
            factor = _spread_factor(active[row], rest[row], even, weight)
            for k in range(weight.size):
                counts[k] = active[row, k] + factor * weight[k] * (even + active[row, k])
        for k in range(weight.size):
            expected[row, k] = np.float32(counts[k])
        for k in range(weight.size):
            known += ratio[k] * (word_prior[row] + counts[k])
        background_weight[row] = np.float32(known)


@kernel
def begin_rows(
    rows: SpreadRows, word_prior: Float64Vector, ratio: Float64Vector, pairs: DocumentPairs, swept: SweepRows
) -> None:
    """Fill the rows with which a shard's sweep begins, as `spread`, in units; twin: `naive.background.spread`.

    Shapes: `word_prior` (rows,); `ratio` (topics,).
    """
    active, rest, even, weight, cells = rows.active, rows.background, rows.even, rows.weight, swept.cells
    tokens, expected, seeded = np.zeros(rest.size), np.empty(weight.size, dtype=np.float32), np.empty(weight.size)
    # The compiler finds the largest of whole numbers in vectors; bits of numbers have the order of these.
    largest = np.zeros(1, dtype=np.float32)
    bits, largest_bits = expected.view(np.int32), largest.view(np.int32)
    for pair in range(pairs.position.size):
        tokens[pairs.position[pair]] += pairs.counts[pair] * token_weight(pairs.weights, pair)
    for row in range(rest.size):
        factor, known, seeds = _spread_factor(active[row], rest[row], even, weight), 0.0, _seeds_of(row, rows)
        for k in range(weight.size):
            count = active[row, k] + factor * weight[k] * (even + active[row, k])
            expected[k] = np.float32(count)
        if seeds >= 0:
            _spread_seeded(row, seeds, rows, seeded)
            for k in range(weight.size):
                # With momentum, a topic may have fewer tokens than none.
                expected[k] = np.float32(max(seeded[k], 0.0))
            for k in range(weight.size):
                known += ratio[k] * rows.seed_counts[seeds, k]
        largest_bits[0] = 0
        for k in range(weight.size):
            largest_bits[0] = max(largest_bits[0], bits[k])
        unit = WEIGHTED_UNIT if pairs.weights.size else STEP
        while largest[0] + tokens[row] > MAX_UNITS * unit:
            unit *= np.float32(2.0)
        swept.units[row] = unit
        scale = np.float32(1.0) / unit
        for k in range(weight.size):
            cells[row, k] = np.int32(expected[k] * scale + np.float32(0.5))
        # Summed over the stored cells, so that S_w without all active topics is zero where no other topic has a token.
        for k in range(weight.size):
            known += ratio[k] * (word_prior[row] + cells[row, k] * float(unit))
        swept.background_weight[row] = known


def with_long_rows(swept: SweepRows) -> SweepRows:
    """Return rows with changes in tokens for those whose units are longer than a step."""
    long_rows, place = np.flatnonzero(swept.units > STEP), np.full(swept.units.size, -1, dtype=np.int32)
    place[long_rows] = np.arange(long_rows.size)
    changes = np.zeros((long_rows.size, swept.cells.shape[1]))
    return swept._replace(long_place=place, long_changes=changes)


@kernel
def changes_since(start: Int32Matrix, swept: SweepRows, changes: OutFloat32Matrix) -> None:
    """Fill the changes of rows whose tokens have weights, in tokens.

    Shapes: `start`, `changes` (rows, topics).
    """
    for row in range(len(start)):
        unit, long_row = swept.units[row], swept.long_place[row]
        for k in range(start.shape[1]):
            changes[row, k] = np.float32(swept.cells[row, k] - start[row, k]) * unit
        if long_row >= 0:
            for k in range(start.shape[1]):
                changes[row, k] = np.float32(swept.long_changes[long_row, k])


def steps_since(
    start: npt.NDArray[np.int32], swept: SweepRows, dtype: npt.DTypeLike
) -> npt.NDArray[np.int32] | npt.NDArray[np.int64]:
    """Return the changes of rows whose tokens have no weights, in steps; 32 bits take the memory of the start."""
    np.subtract(swept.cells, start, out=start)
    changes = start.astype(dtype, copy=False)
    long_rows = np.flatnonzero(swept.long_place >= 0)
    changes[long_rows] = np.rint(swept.long_changes[swept.long_place[long_rows]] * UNIT)
    return changes


@helper
def _seeds_of(row: int, rows: SpreadRows) -> int:
    """Return the place of a row's pseudo-counts; -1 for none."""
    return int(rows.seed_place[row]) if rows.seed_place.size else -1


@helper
def _seeded_factor(active: Array, row: int, seeds: int, rows: SpreadRows) -> float:
    """Return the factor that spreads a seed word's background tokens over the topics, in proportion to all counts."""
    total = 0.0
    for k in range(rows.weight.size):
        total += rows.weight[k] * (rows.even + (active[k] + rows.seed_counts[seeds, k]))
    return float(rows.background[row]) / max(total, 1e-300)


@helper
def _spread_seeded(row: int, seeds: int, rows: SpreadRows, counts: Array) -> None:
    """Fill E[n_kw] of a seed word without its pseudo-counts, which share in spreading its background tokens."""
    active, seed_counts, even, weight = rows.active[row], rows.seed_counts[seeds], rows.even, rows.weight
    factor = _seeded_factor(active, row, seeds, rows)
    for k in range(weight.size):
        counts[k] = active[k] + factor * weight[k] * (even + (active[k] + seed_counts[k]))


@helper
def _spread_factor(active: Array, rest: float, even: float, weight: Array) -> float:
    """Return the factor that spreads a word's background tokens over the topics."""
    total = 0.0
    for k in range(weight.size):
        total += weight[k] * (even + active[k])
    return rest / max(total, 1e-300)


@kernel
def fold_rows(
    rows: SpreadRows,
    delta: RowDelta,
    momentum: float,
    new_active: OutFloat32Matrix,
    ahead: OutFloat32Matrix,
    totals: OutFloat64Matrix,
    moved: OutFloat64Vector,
) -> None:
    """Add the change of some rows to a block's, and sum the block up by topic; twin: `naive.background.fold_rows`.

    Shapes: `new_active`, `ahead` (words, topics); `totals` (2, topics); `moved` (1,).
    """
    active, rest, even, weight = rows.active, rows.background, rows.even, rows.weight
    change, place = delta.values, delta.place
    for word in range(rest.size):
        row = place[word]
        for k in range(weight.size):
            new_active[word, k] = active[word, k]
        if row >= 0:
            absolute = 0.0
            for k in range(weight.size):
                new_active[word, k] += change[row, k]
            for k in range(weight.size):
                absolute += abs(float(change[row, k]))
            moved[0] += absolute
        seeds = _seeds_of(word, rows)
        if seeds >= 0:
            _add_seeded_row(new_active[word], word, seeds, rows, totals[0])
        else:
            _add_row(new_active[word], rest[word], even, weight, totals[0])
        if ahead.size:
            for k in range(weight.size):
                ahead[word, k] = new_active[word, k]
            if row >= 0:
                for k in range(weight.size):
                    ahead[word, k] = max(new_active[word, k] + np.float32(momentum) * change[row, k], np.float32(0.0))
            if seeds >= 0:
                _add_seeded_row(ahead[word], word, seeds, rows, totals[1])
            else:
                _add_row(ahead[word], rest[word], even, weight, totals[1])


class Steps32(NamedTuple):
    """Counts of active topics of a block, in steps of a responsibility and 32 bits, and their changes."""

    before: Int32Matrix  # (words, topics)
    changes: Int32Matrix  # Changes of some rows; (rows, topics)
    place: Int64Vector  # Row of `changes` for each word; -1 for none; (words,)
    after: OutInt32Matrix  # Filled with the counts after them; (words, topics)


class Steps64(NamedTuple):
    """The same in 64 bits, of corpora with a word whose tokens do not fit into 32."""

    before: Int64Matrix
    changes: Int64Matrix
    place: Int64Vector
    after: OutInt64Matrix


@kernel
def fold_steps_32(
    steps: Steps32,
    rows: SpreadRows,
    momentum: float,
    band: Int64Vector,
    ahead: OutFloat32Matrix,
    totals: OutFloat64Cube,
    moved: OutFloat64Vector,
) -> None:
    """Add the changes of some rows to a block's, as `fold_steps_64`; twin: `naive.background.fold_steps`."""
    _fold_steps(steps, rows, momentum, band, ahead, totals, moved)


@kernel
def fold_steps_64(
    steps: Steps64,
    rows: SpreadRows,
    momentum: float,
    band: Int64Vector,
    ahead: OutFloat32Matrix,
    totals: OutFloat64Cube,
    moved: OutFloat64Vector,
) -> None:
    """Add the changes of some rows to a block's, and sum up its bands by topic; twin: `naive.background.fold_steps`.

    `band` names the row of `totals` to which a word is added, -1 for words that are not summed. The counts in `rows`
    are not read.

    Shapes: `band` (words,); `ahead` (words, topics); `totals` (2, bands, topics); `moved` (1,).
    """
    _fold_steps(steps, rows, momentum, band, ahead, totals, moved)


@helper
def _fold_steps(
    steps: Steps32 | Steps64,
    rows: SpreadRows,
    momentum: float,
    band: Array,
    ahead: Array,
    totals: Array,
    moved: Array,
) -> None:
    before, changes, place, after = steps.before, steps.changes, steps.place, steps.after
    rest, even, weight, tokens = rows.background, rows.even, rows.weight, float(STEP)
    share, zero, counts = np.float32(momentum), np.float32(0.0), np.empty(rows.weight.size)
    for word in range(rest.size):
        row, owned_band = place[word], band[word]
        for k in range(weight.size):
            after[word, k] = before[word, k]
        if row >= 0:
            # Sums of whole numbers are exact, in any order.
            absolute = 0.0
            for k in range(weight.size):
                after[word, k] += changes[row, k]
            for k in range(weight.size):
                absolute += abs(float(changes[row, k]))
            moved[0] += absolute * tokens if owned_band >= 0 else 0.0
            for k in range(weight.size):
                more = share * (np.float32(changes[row, k]) * STEP)
                ahead[word, k] = max(np.float32(after[word, k]) * STEP + more, zero)
        else:
            for k in range(weight.size):
                ahead[word, k] = max(np.float32(after[word, k]) * STEP, zero)
        if owned_band >= 0:
            for k in range(weight.size):
                counts[k] = float(after[word, k]) * tokens
            seeds = _seeds_of(word, rows)
            if seeds >= 0:
                _add_seeded_row(counts, word, seeds, rows, totals[0, owned_band])
                _add_seeded_row(ahead[word], word, seeds, rows, totals[1, owned_band])
            else:
                _add_row(counts, rest[word], even, weight, totals[0, owned_band])
                _add_row(ahead[word], rest[word], even, weight, totals[1, owned_band])


@helper
def _add_row(active: Array, rest: float, even: float, weight: Array, total: Array) -> None:
    factor = _spread_factor(active, rest, even, weight)
    for k in range(weight.size):
        total[k] += active[k] + factor * weight[k] * (even + active[k])


@helper
def _add_seeded_row(active: Array, row: int, seeds: int, rows: SpreadRows, total: Array) -> None:
    seed_counts, even, weight = rows.seed_counts[seeds], rows.even, rows.weight
    factor = _seeded_factor(active, row, seeds, rows)
    for k in range(weight.size):
        total[k] += (active[k] + seed_counts[k]) + factor * weight[k] * (even + (active[k] + seed_counts[k]))
