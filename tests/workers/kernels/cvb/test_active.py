from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.shard import Shard
from collapsium.workers.kernels.cvb import active, warm_start
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics, RowChanges, RunningCounts
from collapsium.workers.kernels.jit import DocumentPairs
from tests.naive import active as naive
from tests.strategies import documents_of
from tests.workers.kernels.cvb.listed import (
    STEPS,
    TEMPERED_STEPS,
    UNIT,
    Listed,
    alone,
    difference,
    listed_shards,
    priors_of,
    run,
    run_naive,
    running_counts,
    sweep_rows,
    tokens_of,
    weighed_shards,
)

pytestmark = pytest.mark.kernels


@given(listed_shards())
def test_initialise__equals_the_naive_version_and_counts_every_token(state):
    noise = state.noise.uniform(0.1, 1.1, state.topic.size).astype(np.float32)
    share, counts = np.full_like(state.share, 77), tuple(np.full_like(array, np.nan) for array in state.counts)
    listed, rest = np.zeros(state.shape, dtype=np.float32), np.zeros(state.shape[0])
    active_state = ActiveState(state.starts, share, *counts)
    warm_start.initialise(state.pairs, state.active, noise, active_state, RowChanges(listed, rest))
    assert difference(share, naive.initialise(state.shard.offsets, state.lists, noise)) <= 1
    begun = replace(state, share=share)
    for found, exact in zip(counts, begun.counts, strict=True):
        np.testing.assert_array_equal(found, exact)
    for found, exact in zip(
        (listed, rest), naive.word_counts(state.shape, *state.pair_arrays, *begun.where), strict=True
    ):
        np.testing.assert_array_equal(found, exact)
    assert listed.sum() + rest.sum() == state.shard.counts.sum()
    sizes = np.diff(state.lists)  # truncation leaves less than one step per topic to the background
    assert (counts[1] <= np.where(sizes > 0, (sizes + 0.1) / UNIT, 1.0) * state.shard.lengths).all()


@given(listed_shards(), st.sampled_from([0.0, 1.0, 50.0]))
def test_sweep__equals_the_naive_version(state, extra):
    rows = state.rows(extra)
    new, row_change, _, running, _ = run(state, rows)
    share, twin_change, twin_running = run_naive(state, rows)
    assert difference(new.share, share) <= STEPS
    tokens = state.shard.counts.sum()
    np.testing.assert_allclose(row_change, twin_change, atol=STEPS * tokens / UNIT)
    np.testing.assert_allclose(running, twin_running, rtol=1e-9, atol=STEPS * tokens / UNIT)


@pytest.mark.parametrize("power", [1.0, 2.0, 0.975, 0.6])
@given(listed_shards(), st.sampled_from([0.0, 1.0, 50.0]), st.sampled_from([20.0, 1000.0]))
def test_sweep__gives_no_pair_more_than_its_tokens_even_if_rows_lack_tokens_of_the_documents(
    power, state, extra, least
):
    rows = {**state.rows(extra), "least": least}
    rows["totals"] = state.noise.uniform(-100.0, 2.0 * least, state.topics)
    new, *_ = run(state, rows, power)
    assert difference(new.share, run_naive(state, rows, power)[0]) <= (STEPS if power == 1.0 else TEMPERED_STEPS)
    for _, _, q in naive.documents(state.shard.offsets, *new.where):
        assert (q.sum(axis=1) <= 1.0).all()


@given(listed_shards(), st.sampled_from([0.0, 50.0]), st.sampled_from([1.0, 0.875]), st.data())
def test_sweeps_of_successive_documents__equal_one_sweep_of_all(state, extra, power, data):
    rows, cut = state.rows(extra), data.draw(st.integers(0, state.shard.documents))
    whole, row_change, rest_change, running, counts = run(state, rows, power)
    share, found = np.zeros_like(state.share), tuple(np.zeros_like(array) for array in state.counts)
    now = running_counts(rows)
    for first, last in ((0, cut), (cut, state.shard.documents)):
        pairs = slice(state.shard.offsets[first], state.shard.offsets[last])
        listed = slice(state.lists[first], state.lists[last])
        held, run_documents = slice(state.starts[first], state.starts[last]), slice(first, last + 1)
        documents = DocumentPairs(
            state.shard.offsets[run_documents] - pairs.start, state.shard.position[pairs], state.shard.counts[pairs]
        )
        topics = ActiveTopics(state.lists[run_documents] - listed.start, state.topic[listed])
        starts, counts_ = (
            state.starts[run_documents] - held.start,
            (state.counts[0][listed], state.counts[1][first:last]),
        )
        active.sweep_active(
            documents, topics, ActiveState(starts, state.share[held], *counts_), priors_of(rows), np.full(2, power), now,
            ActiveState(starts, share[held], found[0][listed], found[1][first:last]),
        )  # fmt: skip
    for value, expected in zip(
        (share, tokens_of(now.rows, rows["row_topic"]), now.rows.background, now.totals, *found),
        (whole.share, row_change, rest_change, running, *counts),
        strict=True,
    ):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("power", [1.0, 2.0, 0.875])
@given(weighed_shards(max_count=9), st.sampled_from([0.0, 1.0, 50.0]))
def test_sweep_of_weighted_tokens__equals_the_naive_version_and_conserves_weight(power, state, extra):
    rows = state.rows(extra)
    new, row_change, rest_change, running, counts = run(state, rows, power)
    share, _, _ = run_naive(state, rows, power)
    steps = STEPS if power == 1.0 else TEMPERED_STEPS
    assert difference(new.share, share) <= steps
    before, after = (naive.word_counts(state.shape, *state.pair_arrays, *sample.where) for sample in (state, new))
    np.testing.assert_allclose(row_change, after[0] - before[0], atol=1e-4)
    np.testing.assert_allclose(rest_change, after[1] - before[1], atol=1e-4)
    np.testing.assert_allclose(running - rows["totals"], (after[0] - before[0]).sum(axis=0), atol=1e-3)
    for found, exact in zip(counts, new.counts, strict=True):
        np.testing.assert_allclose(found, exact, atol=1e-4)
        assert (found >= 0.0).all()


@given(weighed_shards(max_count=9))
def test_sweep_of_tokens_with_weight_one__gives_the_bits_of_unweighted_tokens(state):
    rows = state.rows(3.0)
    ones = replace(state, shard=replace(state.shard, weights=np.ones(state.shard.pairs, dtype=np.float32)))
    plain = replace(state, shard=replace(state.shard, weights=None))
    for value, plain_value in zip(run(ones, rows), run(plain, rows), strict=True):
        if isinstance(value, Listed):
            np.testing.assert_array_equal(value.share, plain_value.share)
        elif isinstance(value, tuple):
            for found, expected in zip(value, plain_value, strict=True):
                np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_array_equal(value, plain_value)


@given(weighed_shards())
def test_initialise__of_weighted_tokens_equals_a_recount(state):
    noise = state.noise.uniform(0.1, 1.1, state.topic.size).astype(np.float32)
    share, counts = np.full_like(state.share, 77), tuple(np.full_like(array, np.nan) for array in state.counts)
    changes = RowChanges(np.zeros(state.shape, dtype=np.float32), np.zeros(state.shape[0]))
    warm_start.initialise(state.pairs, state.active, noise, ActiveState(state.starts, share, *counts), changes)
    begun = replace(state, share=share)
    for found, exact in zip(counts, begun.counts, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)
    recount = naive.word_counts(state.shape, *state.pair_arrays, *begun.where)
    for found, exact in zip(changes, recount, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("power", [2.0, 0.875, 0.5, (0.95, 0.6)])
@given(listed_shards(), st.sampled_from([0.0, 50.0]))
def test_tempered_sweep__equals_the_naive_version(power, state, extra):
    rows = state.rows(extra)
    assert difference(run(state, rows, power)[0].share, run_naive(state, rows, power)[0]) <= TEMPERED_STEPS


@given(listed_shards(max_count=9), st.sampled_from([0.0, 50.0]), st.sampled_from([1.0, 2.0, 0.875]))
def test_sweep__conserves_tokens(state, extra, power):
    rows = state.rows(extra)
    new, row_change, rest_change, running, counts = run(state, rows, power)
    # Multiples of 2^-15 below 512 are exact in float32, and so are their sums.
    for found, exact in zip(counts, new.counts, strict=True):
        np.testing.assert_array_equal(found, exact)
    owner = np.repeat(np.arange(state.shard.documents), np.diff(state.lists))
    listed = np.bincount(owner, weights=counts[0], minlength=state.shard.documents)
    np.testing.assert_array_equal(listed + counts[1], state.shard.lengths)

    before, after = (naive.word_counts(state.shape, *state.pair_arrays, *sample.where) for sample in (state, new))
    np.testing.assert_array_equal(row_change, after[0] - before[0])
    np.testing.assert_array_equal(rest_change, after[1] - before[1])
    np.testing.assert_array_equal(row_change.sum(axis=1) + rest_change, 0.0)
    np.testing.assert_allclose(running - rows["totals"], row_change.sum(axis=0), atol=1e-9)
    assert (rows["active"] + row_change).min(initial=0.0) >= 0.0
    assert (rows["row_topic"] + row_change).min(initial=0.0) >= -1e-6 * rows["row_topic"].max(initial=0.0)
    held = [q.sum(axis=1) for _, _, q in naive.documents(state.shard.offsets, *new.where)]
    assert np.concatenate([np.zeros(1), *held]).max() <= 1.0


@given(listed_shards(max_count=3000))
def test_sweep__rounds_rows_beyond_512_tokens_as_float32_does(state):
    rows = state.rows(0.0)
    new, row_change, rest_change, _, counts = run(state, rows)
    before, after = (naive.word_counts(state.shape, *state.pair_arrays, *sample.where) for sample in (state, new))
    tokens = max(state.shard.tokens, 1)
    np.testing.assert_allclose(row_change, after[0] - before[0], atol=1e-6 * tokens)
    np.testing.assert_allclose(rest_change, after[1] - before[1], atol=1e-9 * tokens)
    for found, exact in zip(counts, new.counts, strict=True):
        np.testing.assert_array_equal(found, exact)


@st.composite
def long_shards(draw):
    """Draw documents of a few pairs, some of which have more tokens than float32 can sum exactly."""
    state = draw(listed_shards())
    lengths = [draw(st.sampled_from([1, 500, 513, 5_000, 100_000])) for _ in range(state.shard.documents)]
    counts = np.array(state.shard.counts)
    for tokens, (first, last) in zip(lengths, pairwise(state.shard.offsets), strict=True):
        if last > first:
            shares = state.noise.dirichlet(np.full(last - first, draw(st.sampled_from([0.1, 5.0]))))
            counts[first:last] = np.maximum(np.round(tokens * shares), 1)
    return replace(state, shard=replace(state.shard, counts=counts))


@given(long_shards(), st.sampled_from([1.0, 2.0, 0.875]), st.booleans())
def test_sweeps__count_documents_of_any_length_exactly(state, power, weighted):
    """After many sweeps, counts are the exact sums of the responsibilities, and sum to the documents' tokens."""
    if weighted:
        state = replace(state, shard=replace(state.shard, weights=np.full(state.shard.pairs, 0.5, np.float32)))
    rows = state.rows(50.0)
    counts = state.counts
    for _ in range(12):
        share, found = np.full_like(state.share, 77), tuple(np.full_like(array, np.nan) for array in counts)
        running = running_counts(rows)
        active.sweep_active(
            state.pairs, state.active, ActiveState(state.starts, state.share, *counts), priors_of(rows), np.full(2, power),
            running, ActiveState(state.starts, share, *found),
        )  # fmt: skip
        state, counts = replace(state, share=share), found
        rows["row_topic"] = np.maximum(rows["row_topic"] + tokens_of(running.rows, rows["row_topic"]), 0.0)
        rows["totals"] = running.totals
    exact = state.counts
    np.testing.assert_array_equal(counts[0], exact[0])
    np.testing.assert_array_equal(counts[1], exact[1])
    assert min(array.min(initial=0.0) for array in counts) >= 0.0
    owner = np.repeat(np.arange(state.shard.documents), np.diff(state.lists))
    listed = np.bincount(owner, weights=counts[0], minlength=state.shard.documents)
    np.testing.assert_array_equal(listed + counts[1], state.shard.weighted_lengths)


@given(long_shards(), st.sampled_from([1.0, 2.0]))
def test_sweep__of_long_documents_equals_the_naive_version(state, power):
    rows = state.rows(50.0)
    new, _, _, running, _ = run(state, rows, power)
    share, _, twin_running = run_naive(state, rows, power)
    # In pairs with many tokens, one step of a responsibility changes later counts by many steps.
    assert difference(new.share, share) <= 40
    np.testing.assert_allclose(running, twin_running, rtol=1e-3)


@given(long_shards(), st.booleans())
def test_count_documents__equals_a_recount_and_does_not_change_short_documents(state, every):
    off = np.full(state.topic.size, 1e-3)
    before = state.sparse._replace(counts=state.counts[0] - off)
    count, rest = (np.full_like(array, np.nan) for array in state.counts)
    after = ActiveState(state.starts, np.array(state.share), count, rest)
    active.count_documents(state.pairs, state.active, before, int(every), after)
    again = every | (state.shard.lengths > active.EXACT_TOKENS)
    np.testing.assert_array_equal(count, state.counts[0] - np.where(np.repeat(again, np.diff(state.lists)), 0.0, off))
    np.testing.assert_array_equal(rest, state.counts[1])


@given(listed_shards(), st.sampled_from([0.5, 30.0, 6e8]))
def test_sweep__adds_separate_pseudo_counts_to_the_counts_of_their_words(state, strength):
    """It equals the naive version with pseudo-counts among the counts, but changes of counts stay exact beside large
    ones."""
    rows = state.rows(3.0)
    seeds = np.where(state.noise.random(state.shape) < 0.3, strength, 0.0)
    place = np.full(state.shape[0], -1, np.int32)
    words = np.flatnonzero(seeds.any(axis=1))
    place[words] = np.arange(words.size)
    whole = {**rows, "row_topic": rows["row_topic"] + seeds}
    whole["totals"] = rows["totals"] + seeds.sum(axis=0)
    whole["ratio"] = rows["a"] / whole["totals"]
    whole["background"] = ((rows["b"][:, np.newaxis] + whole["row_topic"]) @ whole["ratio"]).astype(np.float32)
    counts = tuple(np.full_like(array, np.nan) for array in state.counts)
    swept = sweep_rows(rows["row_topic"], whole["background"])._replace(seed_place=place, seed_counts=seeds[words])
    running, share = RunningCounts(whole["totals"].copy(), whole["ratio"], swept), np.full_like(state.share, 77)
    active_state = ActiveState(state.starts, share, *counts)
    active.sweep_active(state.pairs, state.active, state.sparse, priors_of(rows), np.ones(2), running, active_state)
    steps = 2 if strength < 100.0 else 40  # S_w without the active topics loses precision beside large pseudo-counts
    assert difference(share, run_naive(state, whole)[0]) <= steps or strength > 100.0
    new = replace(state, share=share)
    before, after = (naive.word_counts(state.shape, *state.pair_arrays, *sample.where) for sample in (state, new))
    np.testing.assert_array_equal(tokens_of(swept, rows["row_topic"]), after[0] - before[0])
    for found, exact in zip(counts, new.counts, strict=True):
        np.testing.assert_array_equal(found, exact)


@given(listed_shards(), st.sampled_from([0.0, 50.0]))
def test_successive_sweeps__do_not_drift(state, extra):
    """After several sweeps, the counts that they update still equal a recount exactly."""
    rows = state.rows(extra)
    for _ in range(3):
        new, row_change, _, running, counts = run(state, rows)
        state, rows = new, {**rows, "row_topic": rows["row_topic"] + row_change, "totals": running}
    for found, exact in zip(counts, state.counts, strict=True):
        np.testing.assert_array_equal(found, exact)


@given(listed_shards(), st.sampled_from([0.0, 50.0]))
def test_an_inverse_temperature_near_one__gives_the_untempered_update(state, extra):
    rows = state.rows(extra)
    assert difference(run(state, rows, 1 - 1e-6)[0].share, run(state, rows)[0].share) <= TEMPERED_STEPS


@given(
    st.lists(st.floats(-4.0, 4.0), min_size=2, max_size=5), st.sampled_from([2.0, 0.875, 0.5]), st.booleans(), st.data()
)
def test_tempered_sweep__raises_ratios_of_weights_to_the_inverse_temperature(logarithms, power, every, data):
    """The power 2 is exact; for others, approximate logarithms have an error of up to 0.0861 before and after
    multiplication."""
    a = np.exp2(logarithms)
    listed = list(range(a.size)) if every else sorted(data.draw(st.sets(st.integers(0, a.size - 1), min_size=2)))
    state, rows = alone(a, [0] * len(listed), listed)
    steps = run(state, rows, power)[0].share.astype(np.float64)
    for i, topics in enumerate(listed):
        for j, second_topic in enumerate(listed):
            least = min(steps[i], steps[j])
            if least >= 30:  # few steps are too coarse for a ratio
                found, exact = np.log2(steps[i] / steps[j]), power * (logarithms[topics] - logarithms[second_topic])
                assert abs(found - exact) <= (0.0 if power == 2 else 0.0861 * (1 + power)) + 1.5 / least + 1e-3


@pytest.mark.parametrize("listed", [[0, 1, 2], [0, 1]])
@pytest.mark.parametrize("wide", [8.0, 20.0])
def test_sweep__is_sharpened_by_inverse_temperatures_above_one_and_flattened_below(listed, wide):
    state, rows = alone([1.0, wide, wide / 2], [0] * len(listed), listed)
    ratios = []
    for power in (0.5, 0.875, 1.0, 2.0):
        steps = run(state, rows, power)[0].share.astype(np.float64)
        ratios.append(steps[1] / steps[0])
    assert ratios == sorted(ratios)
    assert ratios[2] == pytest.approx(wide, rel=2e-2)
    assert ratios[0] < 0.7 * ratios[2]
    assert ratios[3] > 1.4 * ratios[2]


def test_sweep_of_the_only_pair_of_a_corpus__follows_the_prior():
    """If not all topics are active, the background weighs as much as the inactive topics."""
    for steps in ([29000, 3000, 700], [0, 0, 0]):
        state, rows = alone([0.2, 0.6, 0.8], steps)
        np.testing.assert_allclose(run(state, rows)[0].share / UNIT, [0.125, 0.375, 0.5], atol=1e-4)
    state, rows = alone([0.2, 0.6, 0.8], [3000, 700], [0, 2])
    new, _, rest_change, _, counts = run(state, rows)
    np.testing.assert_allclose(new.share / UNIT, [0.125, 0.5], atol=1e-4)
    np.testing.assert_allclose(counts[1], [0.375], atol=1e-4)
    np.testing.assert_allclose(rest_change, counts[1] - (1 - 3700 / UNIT), atol=1e-9)


def test_sweep__reinforces_a_documents_background():
    """The weight of the background increases by the factor 1 + E[n_d,rest] / a_rest, here due to other tokens of the
    pair."""
    state, rows = alone([0.2, 0.6, 0.8], [0, 0], [0, 2], count=4)
    np.testing.assert_allclose(run(state, rows)[0].share[0] / UNIT, 0.2 / (1.0 + 0.6 * (1 + 3 / 0.6)), atol=1e-4)


@pytest.mark.parametrize("power", [1.0, 0.875])
@pytest.mark.parametrize("small", [1e-30, 1e-12, 1e-3])
@pytest.mark.parametrize("certain", [True, False])
@pytest.mark.parametrize("topic", [[0, 1, 2], [0, 1], [2]])
def test_sweep__is_finite_with_vanishing_priors(power, small, certain, topic):
    """Priors of topics without tokens may vanish, and documents may have a single token."""
    shard = Shard.of(0, documents_of([{0: 1}, {}, {2: 1}, {0: 2, 1: 1}]))
    sizes = np.array([len(topic), 0, len(topic), len(topic)])
    lists = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    steps = [UNIT] + [0] * (len(topic) - 1) if certain else [UNIT // 3] * len(topic)
    share = np.tile(np.array(steps, dtype=np.uint16), shard.pairs)
    listed = np.tile(np.array(topic, dtype=np.uint16), 3)
    state = Listed(shard, 3, lists, listed, share, np.random.default_rng(0))
    for a in (np.array([0.5, 0.5, small]), np.full(3, small)):
        rows = {**state.rows(0.0), "a": a, "b": np.full(3, max(small, 1e-12))}
        rows["ratio"] = a / rows["totals"]
        rows["background"] = ((rows["b"][:, np.newaxis] + rows["row_topic"]) @ rows["ratio"]).astype(np.float32)
        new, row_change, rest_change, running, counts = run(state, rows, power)
        assert all(np.isfinite(values).all() for values in (row_change, rest_change, running, *counts))
        for found, exact in zip(counts, new.counts, strict=True):
            np.testing.assert_array_equal(found, exact)


def test_sweep__squares_even_very_small_weights():
    state, rows = alone([1e-9, 3e-9, 2e-9], [UNIT, 0, 0])
    rows.update(b=np.full(1, 1e-9), row_topic=np.float32([[1.0, 0.0, 0.0]]), totals=np.full(3, 1000.0))
    assert difference(run(state, rows, 2.0)[0].share, run_naive(state, rows, 2.0)[0]) <= TEMPERED_STEPS


def test_sweep__does_not_change_its_inputs():
    state, rows = alone([0.2, 0.6, 0.8], [3000, 700], [0, 2])
    held = [*state.pair_arrays, *state.where, *state.counts]
    held += [rows[name] for name in ("a", "b", "background", "ratio", "row_topic")]
    before = [values.copy() for values in held]
    for values in held:
        values.flags.writeable = False
    run(state, rows)
    for values, copy in zip(held, before, strict=True):
        np.testing.assert_array_equal(values, copy)


@given(listed_shards(), st.sampled_from([1.0, 0.875]))
def test_sweep__changes_rows_with_many_tokens_exactly(state, power):
    """Their cells have longer units, but the changes that a shard returns are exact."""
    rows = state.rows(1.0)
    rows["row_topic"] = (rows["row_topic"] + np.float32(2**17)).astype(np.float32)
    rows["totals"] = rows["totals"] + 2.0**17 * state.shape[0]
    rows["ratio"] = rows["a"] / rows["totals"]
    rows["background"] = ((rows["b"][:, np.newaxis] + rows["row_topic"]) @ rows["ratio"]).astype(np.float32)
    new, row_change, rest_change, _, _ = run(state, rows, power)
    before, after = (naive.word_counts(state.shape, *state.pair_arrays, *sample.where) for sample in (state, new))
    np.testing.assert_array_equal(row_change, after[0] - before[0])
    np.testing.assert_array_equal(rest_change, after[1] - before[1])
    share, _, _ = run_naive(state, rows, power)
    assert difference(new.share, share) <= TEMPERED_STEPS
