"""Priors of documents that follow a design: kernels against naive versions, derivatives against differences, and
ascent."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import psi

from collapsium.workers.families.cvb import prevalence as family
from collapsium.workers.families.cvb.global_state import LevelState, PrevalenceState, PrevalenceSums
from collapsium.workers.kernels.cvb import active, topic_moves
from collapsium.workers.kernels.cvb import prevalence as kernels
from collapsium.workers.kernels.cvb.active import UNIT
from collapsium.workers.kernels.cvb.records import ActiveState, TopicCounts
from tests.conftest import INTERPRETED, mark_rest_long
from tests.naive import active as naive_active
from tests.naive import active_topics as naive_topics
from tests.naive import prevalence as naive
from tests.naive import topic_moves as naive_moves
from tests.strategies import pair_totals
from tests.workers.kernels.cvb import test_active_selection as selecting
from tests.workers.kernels.cvb.listed import (
    KEYS,
    STEPS,
    difference,
    held_out,
    listed_shards,
    powers_of,
    priors_of,
    running_counts,
    weighed_shards,
)

pytestmark = pytest.mark.kernels
HELD = pytest.mark.parametrize("concentration", [0.0, 1.0, 3.0])


def symmetric_matrices(pairs, columns):
    """Return matrices (topics, columns, columns) from their values for pairs of columns."""
    matrices = np.zeros((pairs.shape[1], columns, columns))
    first, second = np.triu_indices(columns)
    matrices[:, first, second] = matrices[:, second, first] = pairs.T
    return matrices


def example(seed, documents=40, columns=4, topics=5):
    """Draw a design with coefficients, lengths, and moments of counts that such documents could have."""
    noise = np.random.default_rng(seed)
    design = np.column_stack([np.ones(documents), noise.normal(size=(documents, columns - 1))]).astype(np.float32)
    coefficients = noise.normal(size=(columns, topics)) * 0.7
    coefficients[0] -= noise.choice([0.0, 2.0])
    lengths, moments = noise.integers(1, 40, documents).astype(float), np.zeros((3, documents, topics))
    for d, n in enumerate(lengths.astype(int)):
        q = np.clip(noise.dirichlet(np.full(topics, 0.2), n), 1e-12, 1 - 1e-7)
        q /= q.sum(axis=1, keepdims=True)
        moments[:, d] = q.sum(axis=0), (q * (1 - q)).sum(axis=0), np.log1p(-q).sum(axis=0)
    return design, coefficients, lengths, moments


NO_LEVELS = kernels.Levels(np.zeros((40, 0), dtype=np.int32), np.zeros((0, 5)))  # Of an example


def example_levels(seed, documents, fields=1, levels=6):
    """Draw levels of documents, some of which have none."""
    noise = np.random.default_rng(seed + 1)
    places = noise.integers(-1, levels, (documents, fields)).astype(np.int32)
    return kernels.Levels(places, noise.normal(size=(levels, 5)))


def no_sums(columns, topics, levels=0):
    """Return sums over no documents."""
    sizes = (columns, topics), (columns * (columns + 1) // 2, topics), (levels, topics), (levels, topics)
    return kernels.CoefficientSums(*map(np.zeros, sizes))


def summed(design, coefficients, concentration, lengths, moments, least, rest=0.0):
    """Return the gradient and the curvatures by the kernels."""
    (rows, columns), topics = design.shape, coefficients.shape[1]
    priors, log_total = np.empty((rows, topics)), np.empty(rows)
    kernels.design_priors(design, coefficients, NO_LEVELS, concentration, priors, log_total)
    documents = kernels.DocumentPriors(design, priors, np.arange(rows, dtype=np.int32), lengths)
    sums = no_sums(columns, topics)
    places = np.zeros((rows, 0), dtype=np.int32)
    kernels.coefficient_sums(documents, places, kernels.CountMoments(*moments), concentration, rest, least, sums)
    return sums


@HELD
@given(seed=st.integers(0, 10_000), fields=st.integers(0, 2))
def test_design_priors__equal_the_naive_version(concentration, seed, fields):
    design, coefficients, _, _ = example(seed)
    levels = example_levels(seed, len(design), fields)
    priors, log_total = np.empty((len(design), 5)), np.empty(len(design))
    kernels.design_priors(design, coefficients, levels, concentration, priors, log_total)
    expected = naive.design_priors(design, coefficients, concentration, *levels)
    np.testing.assert_allclose(priors, expected[0], rtol=1e-12)
    np.testing.assert_allclose(log_total, expected[1], rtol=1e-12, atol=1e-12)


@HELD
@given(seed=st.integers(0, 10_000), size=st.sampled_from([1e3, 1e10, 1e30]))
def test_design_priors_far_from_the_data__have_the_naive_proportions(concentration, seed, size):
    design, coefficients, _, _ = example(seed)
    design[:, 1:] *= np.float32(size)
    priors, log_total = np.empty((len(design), 5)), np.empty(len(design))
    kernels.design_priors(design, coefficients, NO_LEVELS, concentration, priors, log_total)
    logs = design.astype(np.float64) @ coefficients
    rows = logs.max(axis=1) > 0.0
    expected = np.exp(logs - logs.max(axis=1, keepdims=True))[rows]
    found = priors[rows] / priors[rows].max(axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-12, rtol=1e-9)


@given(listed_shards() | weighed_shards(), st.integers(0, 1000))
def test_count_moments__equal_the_naive_version(state, seed):
    noise, documents = np.random.default_rng(seed), state.shard.documents
    priors, place = noise.gamma(0.5, size=(3, state.topics)) + 1e-3, noise.integers(0, 3, documents).astype(np.int32)
    moments = kernels.CountMoments(*np.full((3, documents, state.topics), np.nan))
    document_priors = kernels.DocumentPriors(np.ones((3, 1), np.float32), priors, place, np.ones(documents))
    kernels.count_moments(state.pairs, state.active, state.sparse, document_priors, moments)
    rest = state.counts[1]
    tokens = pair_totals(state.shard)
    twin = naive.count_moments(state.pair_arrays[0], tokens, *state.where, rest, priors[place])
    for found, expected in zip(moments[:2], twin[:2], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    # The responsibility one of a weighted token counts as slightly less.
    if not state.pairs.weights.size or state.share.max(initial=0) < UNIT:
        np.testing.assert_allclose(np.exp(moments.log_absent), np.exp(twin[2]), rtol=1e-3, atol=1e-4)


@HELD
@given(seed=st.integers(0, 10_000), least=st.sampled_from([0.3, 1.0]))
def test_coefficient_sums__equal_the_naive_version(concentration, seed, least):
    design, coefficients, lengths, moments = example(seed)
    sums = summed(design, coefficients, concentration, lengths, moments, least)
    gradient, curvature = naive.coefficient_sums(design, coefficients, concentration, lengths, moments, least)
    scale = np.abs(gradient).max()
    np.testing.assert_allclose(sums.gradient, gradient, rtol=1e-7, atol=1e-7 * scale)
    np.testing.assert_allclose(
        symmetric_matrices(sums.curvature, 4), curvature, rtol=1e-6, atol=1e-6 * np.abs(curvature).max()
    )


@HELD
@given(seed=st.integers(0, 10_000))
def test_gradient__equals_differences_of_the_objective_at_fixed_moments(concentration, seed):
    design, coefficients, lengths, moments = example(seed)
    gradient = summed(design, coefficients, concentration, lengths, moments, 1.0).gradient
    step, differences = 1e-5, np.zeros_like(gradient)
    for place in np.ndindex(gradient.shape):
        values = []
        for sign in (1.0, -1.0):
            moved = coefficients.copy()
            moved[place] += sign * step
            values.append(naive.objective(design, moved, concentration, lengths, moments))
        differences[place] = (values[0] - values[1]) / (2 * step)
    assert np.abs(gradient - differences).max() < 1e-6 * np.abs(gradient).max()


@HELD
@given(seed=st.integers(0, 10_000), fields=st.integers(1, 2))
def test_levels__have_the_sums_and_steps_of_the_naive_version_which_climb(concentration, seed, fields):
    design, coefficients, lengths, moments = example(seed)
    levels, variance = example_levels(seed, len(design), fields), np.linspace(0.3, 0.9, fields)
    priors, log_total = np.empty((len(design), 5)), np.empty(len(design))
    kernels.design_priors(design, coefficients, levels, concentration, priors, log_total)
    documents = kernels.DocumentPriors(design, priors, np.arange(len(design), dtype=np.int32), lengths)
    sums = no_sums(4, 5, len(levels.effects))
    kernels.coefficient_sums(documents, levels.places, kernels.CountMoments(*moments), concentration, 0.0, 1.0, sums)
    tables, total = naive.tables(priors, moments), priors.sum(axis=1)
    growth = tables.sum(axis=1) / total if concentration else psi(total + lengths) - psi(total)
    twin = naive.level_sums(levels.places, tables, growth[:, np.newaxis] * priors, len(levels.effects))
    np.testing.assert_allclose(sums.level_tables, twin[0], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(sums.level_growth, twin[1], rtol=1e-7, atol=1e-9)
    field = np.arange(len(levels.effects)) % fields
    before = LevelState(level_effects=levels.effects, level_field=field, level_variance=variance)
    state = replace(share_state(design, coefficients), levels=before)
    swept = PrevalenceSums(
        prior_total=np.zeros(5), prior_weight=1.0, log_prior_total=0.0, level_tables=sums.level_tables,
        level_growth=sums.level_growth,
    )  # fmt: skip
    after = family.stepped_levels(state, swept)
    steps = naive.level_steps(levels.effects, *twin, variance[field], 1 / fields)
    np.testing.assert_allclose(after.level_effects - levels.effects, steps, atol=1e-6)

    def value(effects):
        a = naive.design_priors(design, coefficients, concentration, levels.places, effects)[0]
        prior = 0.5 * (effects**2 / variance[field][:, np.newaxis]).sum()
        return naive.objective_of(a, lengths, moments) - prior

    assert value(after.level_effects) > value(levels.effects) - 1e-9 * abs(value(levels.effects))


@given(seed=st.integers(0, 10_000))
def test_newton_steps__equal_the_naive_version(seed):
    design, coefficients, lengths, moments = example(seed)
    sums, precision = summed(design, coefficients, 0.0, lengths, moments, 0.3), np.array([0.1, 1.0, 1.0, 1.0])
    steps = np.empty_like(coefficients)
    kernels.newton_steps(sums.gradient, sums.curvature, precision, steps)
    twin = naive.newton_steps(sums.gradient, symmetric_matrices(sums.curvature, 4), precision)
    np.testing.assert_allclose(steps, twin, rtol=1e-8, atol=1e-10)


@HELD
@pytest.mark.parametrize("seed", mark_rest_long(range(6), retained=(0, 1, 2)))
def test_newton_steps__never_decrease_the_objective_even_from_far_away(concentration, seed):
    design, coefficients, lengths, moments = example(seed)
    noise = np.random.default_rng(seed + 100)
    state = PrevalenceState(
        prevalence_design=np.zeros(0, np.uint8),
        prevalence_reach=np.abs(design).max(axis=0).astype(np.float64),
        prevalence_terms=np.arange(4),
        prevalence_coefficients=coefficients + noise.normal(size=coefficients.shape) * 2.0,
        prevalence_concentration=concentration or 1.0,
        prevalence_free=not concentration,
    )
    precision, means = np.array([0.1, 1.0, 1.0, 1.0])[:, np.newaxis], family.prior_means(state)[:, np.newaxis]

    def value(found):
        prior = 0.5 * (precision * (found - means) ** 2).sum()
        return naive.objective(design, found, concentration, lengths, moments) - prior

    path = [value(state.prevalence_coefficients)]
    for _ in range(3 if INTERPRETED else 200):
        sums = summed(design, state.prevalence_coefficients, concentration, lengths, moments, 1.0)
        state = replace(state, prevalence_coefficients=family.stepped(state, sums.gradient, sums.curvature))
        path.append(value(state.prevalence_coefficients))
    assert np.diff(path).min() > -1e-9 * abs(path[-1])


def share_state(design, coefficients):
    """Return the state of a design that multiplies topic shares."""
    return PrevalenceState(
        prevalence_design=np.zeros(0, np.uint8),
        prevalence_reach=np.abs(design).max(axis=0).astype(np.float64),
        prevalence_terms=np.arange(design.shape[1]),
        prevalence_coefficients=coefficients,
        prevalence_concentration=1.0,
        prevalence_multiplies=True,
    )


def share_sums(design, coefficients, shares, lengths, moments, rest):
    """Return the sums of a shard whose design multiplies shares, and s, h and a, which the naive versions take."""
    priors = np.exp(design.astype(np.float64) @ coefficients) * shares
    documents = kernels.DocumentPriors(design, priors, np.arange(len(design), dtype=np.int32), lengths)
    columns, topics = coefficients.shape
    sums = no_sums(columns, topics)
    places = np.zeros((len(design), 0), dtype=np.int32)
    kernels.coefficient_sums(documents, places, kernels.CountMoments(*moments), 0.0, rest, 1.0, sums)
    total = priors.sum(axis=1) + rest
    return sums, naive.tables(priors, moments), psi(total + lengths) - psi(total), priors


@given(seed=st.integers(0, 10_000), rest=st.sampled_from([0.0, 0.7]))
def test_steps_of_shares__equal_the_naive_version_and_preserve_the_means(seed, rest):
    design, coefficients, lengths, moments = example(seed)
    shares = np.random.default_rng(seed).uniform(0.05, 1.0, 5)
    sums, tables, growth, before = share_sums(design, coefficients, shares, lengths, moments, rest)
    small = 1e-4  # In long steps that are shortened, the second-order intercept is exact enough.
    state = share_state(design, coefficients)
    state = replace(state, prevalence_reach=state.prevalence_reach / small**2)
    steps = family._share_steps(state, sums.gradient, sums.curvature)
    expected = naive.share_steps(design[:, 1:], coefficients[1:], tables, growth)
    for found, twin in zip(steps[1:].T, expected.T, strict=True):
        np.testing.assert_allclose(found / np.abs(found).max(), twin / np.abs(twin).max(), rtol=1e-6, atol=1e-6)
    after = np.exp(design.astype(np.float64) @ (coefficients + steps)) * shares
    np.testing.assert_allclose(growth @ after, growth @ before, rtol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_steps_of_shares__never_decrease_the_objective_even_from_far_away(seed):
    design, coefficients, lengths, moments = example(seed)
    noise, shares = np.random.default_rng(seed + 100), np.full(5, 0.2)
    _, tables, growth, _ = share_sums(design, coefficients, shares, lengths, moments, 0.5)
    found = coefficients + noise.normal(size=coefficients.shape)
    path = [naive.share_objective(design[:, 1:], found[1:], tables, growth)]
    columns = np.triu_indices(4)
    for _ in range(100):
        a = np.exp(design.astype(np.float64) @ found)
        a *= growth.sum() / (growth @ a)
        x, expected = design.astype(np.float64), growth[:, np.newaxis] * a
        gradient = x.T @ (tables - expected)
        curvature = np.einsum("dp,dq,dk->pqk", x, x, expected)[columns]
        found = found + family._share_steps(share_state(design, found), gradient, curvature)
        path.append(naive.share_objective(design[:, 1:], found[1:], tables, growth))
    assert np.diff(path).min() > -1e-9 * abs(path[-1])


@given(listed_shards(), st.integers(0, 1000), st.data())
def test_select__divides_the_background_by_the_documents_own_priors(state, seed, data):
    rows, noise = state.rows(50.0), np.random.default_rng(seed)
    priors_of_rows, place = (
        noise.uniform(0.05, 3.0, (2, state.topics)),
        noise.integers(0, 2, state.shard.documents).astype(np.int32),
    )
    threshold = 0.3 * noise.uniform(0.5, 1.0, state.topics)
    priors = priors_of(rows)._replace(design_priors=priors_of_rows, design_place=place)
    room = np.full(state.shard.documents, state.topics)
    found = selecting.select(state, rows, threshold, room, priors)
    for d, counts in enumerate(selecting.expected(state, rows)):
        inactive = np.setdiff1d(np.arange(state.topics), state.topic[state.lists[d] : state.lists[d + 1]])
        a, mean = priors_of_rows[place[d]][inactive], rows["a"][inactive]
        counts[inactive] *= a / mean * mean.sum() / max(a.sum(), 1e-300)
        if state.shard.lengths[d] and not np.isclose(counts, threshold, rtol=1e-3).any():
            np.testing.assert_array_equal(found[d], naive_topics.select(counts, threshold, state.topics))


# Hashes are products and sums of 64-bit integers, whose overflow NumPy reports for scalars, but not for arrays.
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@given(listed_shards(), st.integers(0, 1000), KEYS)
def test_score_merges__scores_held_out_tokens_by_the_documents_own_priors(state, seed, key):
    rows, noise, held = state.rows(5.0), np.random.default_rng(seed), held_out(state.shard, key, 0.5)
    priors_of_rows, place = (
        noise.uniform(0.05, 3.0, (2, state.topics)),
        noise.integers(0, 2, state.shard.documents).astype(np.int32),
    )
    none, score = np.zeros(0, dtype=np.int64), np.zeros((2, 1))
    candidates = topic_moves.Merges(none, none, np.zeros(0), np.zeros(0), np.zeros(0))
    priors = priors_of(rows, rows["b"].sum())._replace(design_priors=priors_of_rows, design_place=place)
    topics = TopicCounts(rows["row_topic"], rows["totals"])
    topic_moves.score_merges(state.pairs, held, state.active, state.sparse, priors, topics, candidates, score)
    twin = np.zeros(2)
    document = np.repeat(np.arange(state.shard.documents), np.diff(state.shard.offsets))
    for row, a in enumerate(priors_of_rows):
        where = (
            *state.pair_arrays[:2],
            np.where(place[document] == row, held, 0),
            state.lists,
            state.topic,
            *state.counts,
        )
        twin += naive_moves.score(*where, a, rows["b"], rows["totals"], rows["row_topic"])
    np.testing.assert_allclose(score[:, 0], twin, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("shards", [listed_shards, weighed_shards])
@given(data=st.data(), extra=st.sampled_from([0.0, 1.0, 50.0]), seed=st.integers(0, 1000))
def test_sweep__with_priors_of_documents_equals_the_naive_version(shards, data, extra, seed):
    state = data.draw(shards())
    rows, noise = state.rows(extra), np.random.default_rng(seed)
    priors_of_rows, place = (
        noise.uniform(0.05, 3.0, (2, state.topics)),
        noise.integers(0, 2, state.shard.documents).astype(np.int32),
    )
    share, counts = np.full_like(state.share, 77), tuple(np.full_like(array, np.nan) for array in state.counts)
    priors = priors_of(rows)._replace(design_priors=priors_of_rows, design_place=place)
    active.sweep_active(
        state.pairs, state.active, state.sparse, priors, powers_of(1.0), running_counts(rows),
        ActiveState(state.starts, share, *counts),
    )  # fmt: skip
    twin = naive_active.sweep(
        *state.pair_arrays, rows["b"], rows["background"].astype(np.float64), rows["a"], rows["ratio"], powers_of(1.0),
        *state.where, rows["totals"], rows["row_topic"], state.shard.weights, document_priors=priors_of_rows[place],
    )[0]  # fmt: skip
    assert difference(share, twin) <= STEPS
