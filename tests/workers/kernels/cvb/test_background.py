import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.kernels.cvb import background
from collapsium.workers.kernels.cvb.background import RowDelta
from collapsium.workers.kernels.cvb.records import SpreadRows, SweepRows
from collapsium.workers.kernels.jit import DocumentPairs
from tests.naive import background as naive

pytestmark = pytest.mark.kernels

UNIT = 2**15


@st.composite
def blocks(draw):
    """Draw rows of words, some of them without tokens, as arguments of `spread`, and a random generator."""
    noise = np.random.default_rng(draw(st.integers(0, 2**31)))
    rows, topics = draw(st.integers(0, 6)), draw(st.integers(1, 5))
    scale = draw(st.sampled_from([0.0, 1.0, 100.0]))
    active = steps(scale * noise.random((rows, topics)) * (noise.random((rows, topics)) < 0.6))
    rest = steps(draw(st.sampled_from([0.0, 1.0, 100.0])) * noise.random(rows) * (noise.random(rows) < 0.8))
    even, weight = np.float64(draw(st.sampled_from([1e-6, 0.4]))), noise.uniform(1e-3, 2.0, topics)
    return active.astype(np.float32), rest, even, weight, noise


def steps(values):
    """Round to whole steps."""
    return np.round(values * UNIT) / UNIT


def spread(active, rest, even, weight, b=None, ratio=None):
    """Return E[n_kw] and S_w by the kernel."""
    rows = rest.size
    b, ratio = np.ones(rows) if b is None else b, np.ones(weight.size) if ratio is None else ratio
    filled = np.full_like(active, np.nan), np.full(rows, np.nan, np.float32)
    background.spread(SpreadRows(active, rest, even, weight), b, ratio, *filled)
    return filled


@given(blocks())
def test_spread__equals_the_naive_version(drawn):
    active, rest, even, weight, noise = drawn
    b, ratio = noise.uniform(0.01, 1.0, rest.size), noise.uniform(1e-3, 1.0, weight.size)
    row_topic, background_weight = spread(active, rest, even, weight, b, ratio)
    twin = naive.spread(active, rest, even, b, weight, ratio)
    np.testing.assert_allclose(row_topic, twin[0], rtol=1e-6)
    np.testing.assert_allclose(background_weight, twin[1], rtol=1e-6)


def rows_at_start(active, rest, even, weight, b, ratio, tokens):
    """Return the rows at the beginning of a sweep of a shard with these numbers of tokens per word."""
    pairs = DocumentPairs(np.array([0, rest.size]), np.arange(rest.size, dtype=np.int32), tokens.astype(np.int32))
    rows = SweepRows(
        np.full(active.shape, 77, np.int32), np.full(rest.size, np.nan, np.float32), np.full(rest.size, np.nan),
        np.zeros(rest.size), np.full(rest.size, -1, np.int32), np.zeros((0, weight.size)),
    )  # fmt: skip
    background.begin_rows(SpreadRows(active, rest, even, weight), b, ratio, pairs, rows)
    return background.with_long_rows(rows)


@given(blocks())
def test_begin_rows__equals_spread_in_steps(drawn):
    active, rest, even, weight, noise = drawn
    b, ratio = noise.uniform(0.01, 1.0, rest.size), noise.uniform(1e-3, 1.0, weight.size)
    rows, twin = (
        rows_at_start(*drawn[:4], b, ratio, np.ones(rest.size)),
        naive.spread(active, rest, even, b, weight, ratio),
    )
    np.testing.assert_array_equal(rows.units, 1 / UNIT)
    np.testing.assert_allclose(rows.cells / UNIT, twin[0], atol=0.51 / UNIT, rtol=1e-6)
    exact = (b[:, np.newaxis] + rows.cells / UNIT) @ ratio
    np.testing.assert_allclose(rows.background_weight, exact, rtol=1e-12)
    # Changes equal the moves of the cells exactly, even if they reuse the memory of the initial cells.
    start, move = rows.cells.copy(), noise.integers(-(2**20), 2**20, active.shape).astype(np.int32)
    rows.cells[:] += move
    background.changes_since(start, rows, start.view(np.float32))
    np.testing.assert_array_equal(start.view(np.float32), move / UNIT)


@given(blocks(), st.sampled_from([1.0, 6e8]))
def test_pseudo_counts_of_seeds__influence_the_background_but_are_not_among_the_counts(drawn, strength):
    active, rest, even, weight, noise = drawn
    seeds = np.where(noise.random(active.shape) < 0.4, strength, 0.0)
    words = np.flatnonzero(seeds.any(axis=1))
    place = np.full(rest.size, -1, np.int32)
    place[words] = np.arange(words.size)
    b, ratio = noise.uniform(0.01, 1.0, rest.size), noise.uniform(1e-3, 1.0, weight.size)
    rows = SpreadRows(active, rest, even, weight, place, seeds[words])
    expected, background_weight = np.full_like(active, np.nan), np.full(rest.size, np.nan, np.float32)
    background.spread(rows, b, ratio, expected, background_weight)
    twin = naive.spread(active + seeds, rest, even, b, weight, ratio)
    np.testing.assert_allclose(expected, twin[0], rtol=1e-6)
    np.testing.assert_allclose(background_weight, twin[1], rtol=1e-6)

    pairs = DocumentPairs(np.array([0, rest.size]), np.arange(rest.size, dtype=np.int32), np.ones(rest.size, np.int32))
    swept = SweepRows(
        np.full(active.shape, 77, np.int32), np.full(rest.size, np.nan, np.float32), np.full(rest.size, np.nan),
        np.zeros(rest.size), np.full(rest.size, -1, np.int32), np.zeros((0, weight.size)),
    )  # fmt: skip
    background.begin_rows(rows, b, ratio, pairs, swept)
    np.testing.assert_array_equal(swept.units, 1 / UNIT)
    alone = active + naive.parts(active + seeds, rest, even, weight)
    np.testing.assert_allclose(swept.cells / UNIT, alone, atol=0.51 / UNIT, rtol=1e-6)
    np.testing.assert_allclose(swept.background_weight, twin[1], rtol=1e-4)

    new, ahead = (np.full_like(active, np.nan) for _ in range(2))
    totals, moved = np.zeros((2, weight.size)), np.zeros(1)
    change, none = steps(noise.random(active.shape)).astype(np.float32), np.arange(rest.size)
    background.fold_rows(rows, background.RowDelta(change, none), 0.5, new, ahead, totals, moved)
    np.testing.assert_array_equal(new, active + change)
    whole = [counts + seeds + naive.parts(counts + seeds, rest, even, weight) for counts in (new, ahead)]
    np.testing.assert_allclose(totals, [table.sum(axis=0) for table in whole], rtol=1e-9, atol=1e-6)


@given(st.floats(0.0, 1e9), st.integers(0, 2**31 - 1))
def test_begin_rows__chooses_units_in_which_a_cell_can_hold_all_tokens(count, tokens):
    active = np.array([[1.0, count, 0.25]], dtype=np.float32)
    none = np.zeros(1)
    rows = rows_at_start(active, none, 0.4, np.ones(3), none, np.ones(3), np.array([tokens]))
    unit = float(rows.units[0])
    assert (active.max() + tokens) / unit <= background.MAX_UNITS
    # Units are no longer than necessary.
    assert unit == 1 / UNIT or 2 * (active.max() + tokens) / unit > background.MAX_UNITS
    assert np.log2(unit) % 1 == 0
    np.testing.assert_allclose(rows.cells * unit, active, atol=0.5 * unit, rtol=1e-6)


@given(blocks())
def test_spread__conserves_tokens_and_satisfies_its_definition(drawn):
    active, rest, even, weight, _ = drawn
    row_topic, _ = spread(active, rest, even, weight)
    np.testing.assert_allclose(row_topic.sum(axis=1), active.sum(axis=1) + rest, rtol=1e-6)
    assert (row_topic >= active).all()
    factor = rest / (weight * (even + active.astype(np.float64))).sum(axis=1)
    put_together = active + factor[:, np.newaxis] * weight * (even + active)
    np.testing.assert_allclose(put_together, row_topic, rtol=1e-5)


def test_spread_of_a_word_without_active_tokens__follows_the_weights():
    active, rest = np.zeros((2, 3), dtype=np.float32), np.array([6.0, 0.0])
    row_topic, _ = spread(active, rest, 0.4, np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(row_topic, [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])


def test_spread_with_zero_weights__is_finite():
    row_topic, background_weight = spread(np.zeros((1, 2), np.float32), np.zeros(1), 0.4, np.zeros(2))
    np.testing.assert_array_equal(row_topic, np.zeros((1, 2)))
    assert np.isfinite(background_weight).all()


@given(blocks(), st.sampled_from([0.0, 0.5, 2.0]))
def test_fold_rows__equals_the_naive_version_and_conserves_tokens(drawn, momentum):
    active, rest, even, weight, noise = drawn
    words = np.flatnonzero(noise.random(rest.size) < 0.6)  # the delta's words, in any order
    noise.shuffle(words)
    place = np.full(rest.size, -1, dtype=np.int64)
    place[words] = np.arange(words.size)
    change = steps(noise.normal(size=(words.size, weight.size)))
    change = np.maximum(change, -active[words]).astype(np.float32)
    new, ahead, totals = fold_rows(active, rest, even, weight, change, place, momentum)
    twin = naive.fold_rows(active, rest, even, weight, change, place, momentum)
    np.testing.assert_array_equal(new, twin[0])
    np.testing.assert_allclose(totals[0], twin[2][0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(totals[0].sum(), new.sum(dtype=np.float64) + rest.sum(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(totals[0], spread(new, rest, even, weight)[0].sum(axis=0), rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(ahead, twin[1], rtol=1e-6, atol=1e-6)
    assert (ahead >= 0.0).all()
    np.testing.assert_allclose(totals[1], twin[2][1], rtol=1e-5, atol=1e-5)
    if not momentum:
        np.testing.assert_array_equal(ahead, new)
        np.testing.assert_array_equal(totals[1], totals[0])


def fold_rows(active, rest, even, weight, change, place, momentum, wanted=True):
    """Fold a change with the kernel: return the new block, its extrapolation if requested, and the sums of both."""
    new, totals = np.full_like(active, np.nan), np.zeros((2, weight.size))
    ahead = np.full_like(active if wanted else active[:0], np.nan)
    moved = np.ones(1)
    rows = SpreadRows(active, rest, even, weight)
    background.fold_rows(rows, RowDelta(change, place), momentum, new, ahead, totals, moved)
    np.testing.assert_allclose(moved, 1.0 + np.abs(change[place[place >= 0]]).sum(dtype=np.float64), rtol=1e-9)
    return new, ahead, totals


@given(blocks(), st.sampled_from([0.0, 0.5]))
def test_fold_rows__computes_no_extrapolated_rows_unless_requested(drawn, momentum):
    active, rest, even, weight, noise = drawn
    change, place = steps(noise.random(active.shape)).astype(np.float32), np.arange(rest.size)
    new, ahead, totals = fold_rows(active, rest, even, weight, change, place, momentum, wanted=False)
    full = fold_rows(active, rest, even, weight, change, place, momentum)
    assert ahead.shape == (0, weight.size)
    np.testing.assert_array_equal(new, full[0])
    np.testing.assert_array_equal(totals[0], full[2][0])
    np.testing.assert_array_equal(totals[1], 0.0)


@given(blocks(), st.sampled_from([0.0, 0.5]))
def test_fold_rows_without_a_change__returns_the_same_block(drawn, momentum):
    active, rest, even, weight, _ = drawn
    none, place = np.zeros((0, weight.size), dtype=np.float32), np.full(rest.size, -1, dtype=np.int64)
    new, ahead, totals = fold_rows(active, rest, even, weight, none, place, momentum)
    np.testing.assert_array_equal(new, active)
    np.testing.assert_array_equal(ahead, active)
    np.testing.assert_array_equal(totals[1], totals[0])


@given(blocks(), st.sampled_from([0.0, 0.5, 2.0]), st.booleans())
def test_fold_steps__equals_the_naive_version_for_32_and_64_bits_and_any_bands(drawn, momentum, wide):
    active, rest, even, weight, noise = drawn
    before = np.round(active * UNIT).astype(np.int64 if wide else np.int32)
    words = np.flatnonzero(noise.random(rest.size) < 0.6)
    place = np.full(rest.size, -1, dtype=np.int64)
    place[words] = np.arange(words.size)
    change = np.maximum(noise.integers(-UNIT, 2 * UNIT, (words.size, weight.size)), -before[words]).astype(before.dtype)
    bands = np.array_split(np.arange(rest.size), 3)
    # The second band is summed by another call.
    band = np.repeat([0, -1, 1], [len(band) for band in bands])
    new, ahead = np.full_like(before, 77), np.full(before.shape, np.nan, np.float32)
    totals, moved = np.zeros((2, 2, weight.size)), np.zeros(1)
    kernel, steps_ = background.fold_steps_32, background.Steps32(before, change, place, new)
    if wide:
        kernel, steps_ = background.fold_steps_64, background.Steps64(*steps_)
    kernel(steps_, SpreadRows(ahead[:0], rest, even, weight), momentum, band, ahead, totals, moved)
    twin = naive.fold_steps(before, rest, even, weight, change, place, momentum, [bands[0], bands[2]])
    np.testing.assert_array_equal(new, twin[0])
    np.testing.assert_allclose(ahead, twin[1], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(totals, twin[2], rtol=1e-5, atol=1e-5)
    assert moved[0] == twin[3]


@given(blocks(), st.sampled_from([np.int32, np.int64]))
def test_steps_since__is_exact_in_rows_of_longer_units_too(drawn, dtype):
    active, rest, even, weight, noise = drawn
    tokens = np.where(noise.random(rest.size) < 0.5, 1.0, 40_000.0)
    rows = rows_at_start(*drawn[:4], np.ones(rest.size), np.ones(weight.size), tokens)
    start, move = rows.cells.copy(), noise.integers(-(2**20), 2**20, active.shape)
    long_rows = rows.long_place >= 0
    np.testing.assert_array_equal(long_rows, tokens > 1)
    rows.cells[~long_rows] += move[~long_rows].astype(np.int32)
    rows.long_changes[:] = move[long_rows] / UNIT
    found = background.steps_since(start, rows, np.dtype(dtype))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, move)
