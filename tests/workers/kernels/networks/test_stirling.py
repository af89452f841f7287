import functools
import math
import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln, gammasgn

from collapsium.workers.families.networks import sampled as sampler
from collapsium.workers.families.networks.sampled import tables_for
from collapsium.workers.kernels.networks.stirling import fill_ratios, log_stirling, stirling_ratio

pytestmark = pytest.mark.kernels

DISCOUNTS = [Fraction(0), Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)]
EMPTY = np.zeros(0)


@functools.cache
def exact(a, end):
    """Return rows of S^m_t as exact integers, multiplied by q^(m-t) for a = p/q."""
    rows = [[1]]
    for m in range(end):
        last = [*rows[-1], 0]
        rows.append([(last[t - 1] if t else 0) + (m * a.denominator - t * a.numerator) * last[t] for t in range(m + 2)])
    return rows


def by_recursion(a, end):
    """Return V^m_t for m = `end` and t = 2 ... m, by the recursion."""
    v = np.zeros(end + 2)
    v[1] = np.inf
    for m in range(1, end):
        t = np.arange(2, m + 2)
        v[2 : m + 2] = (1 + (m - t * a) * v[2 : m + 2]) / (1 / v[1 : m + 1] + m - (t - 1) * a)
    return v[2 : end + 1]


def second(a, m):
    """Return V^m_2 by its closed form."""
    if a == 0:
        return sum(1 / j for j in range(1, m))
    risen = gammaln(m - 2 * a) - gammaln(1 - 2 * a) - gammaln(m - a) + gammaln(1 - a) if a != 0.5 else -np.inf
    return (1 - gammasgn(1 - 2 * a) * np.exp(risen)) / a


def ratios(table, a, m, t):
    pairs = zip(*map(np.ravel, np.broadcast_arrays(np.int64(m), np.int64(t))), strict=True)
    return np.array([stirling_ratio(table, float(a), *pair) for pair in pairs])


def table_to(a, end):
    table = np.empty(end * (end - 1) // 2)
    fill_ratios(float(a), 1, end, table)
    return table


@pytest.mark.parametrize("a", DISCOUNTS)
def test_tables__are_exact_fractions_to_1e_10(a):
    end, table, rows = 200, table_to(a, 200), exact(a, 200)
    m, t = (indices + 2 for indices in np.tril_indices(end - 1))
    expected = [float(Fraction(rows[i][j] * a.denominator, rows[i][j - 1])) for i, j in zip(m, t, strict=True)]
    np.testing.assert_allclose(table, expected, rtol=1e-10)
    np.testing.assert_array_equal(ratios(table, a, m, t), table)


@pytest.mark.parametrize("a", DISCOUNTS)
def test_ratios__beyond_the_table_continue_the_recursion(a):
    for m in (50, 400):
        t = np.arange(2, m + 1)
        np.testing.assert_allclose(ratios(EMPTY, a, m, t), by_recursion(float(a), m), rtol=5e-9)


@settings(deadline=None, max_examples=200)
@given(st.data(), st.floats(0, 0.999), st.integers(2, 100_000))
def test_ratios__are_finite_positive_and_correct_at_both_ends_up_to_100000(data, a, m):
    t = np.array([2, m, max(m - 1, 2), data.draw(st.integers(2, m))])
    found = ratios(EMPTY, a, m, t)
    assert (np.isfinite(found) & (found > 0)).all()
    assert found[1] == pytest.approx(2 / (m * (m - 1) * (1 - a)), rel=1e-7)  # S^m_m-1 is a sum of m (m-1) / 2 terms


@pytest.mark.parametrize("a", [0.0, 0.1, 0.5, 0.9])
def test_ratios_at_two_tables__equal_closed_forms_up_to_100000(a):
    for m in (2049, 20_000, 100_000):
        assert ratios(EMPTY, a, m, 2)[0] == pytest.approx(second(a, m), rel=1e-8)


def test_ratios__decrease_with_tables_and_increase_with_customers():
    t = np.arange(2, 5001, 7)
    found = ratios(EMPTY, 0.3, 5000, t)
    assert (np.diff(found) < 0).all()  # because S^m_t is log-concave in t
    assert (ratios(EMPTY, 0.3, 5001, t) > found).all()


def test_ratios__are_zero_for_more_tables_than_customers():
    assert ratios(EMPTY, 0.5, [1, 3, 3000], [2, 4, 3001]).tolist() == [0, 0, 0]


@pytest.mark.parametrize("a", DISCOUNTS)
def test_log_stirling__equals_the_logarithm_of_exact_fractions(a):
    rows, table = exact(a, 200), table_to(a, 30)
    m, t = np.tril_indices(36)
    for i, j in zip(m, t, strict=True):
        value = log_stirling(table, float(a), i, j)
        if rows[i][j]:
            assert value == pytest.approx(math.log(rows[i][j]) - (i - j) * math.log(a.denominator), rel=1e-8, abs=1e-8)
        else:
            assert value == -math.inf
    assert log_stirling(table, float(a), 2, 3) == -math.inf


@pytest.fixture
def empty_cache(monkeypatch):
    """Start without cached tables, and with small sizes."""
    monkeypatch.setattr(sampler, "_tables", type(sampler._tables)())
    monkeypatch.setattr(sampler, "MAX_COUNT", 256)


def test_growing_tables__does_not_change_their_entries(empty_cache):
    small, large = tables_for((0.0, 0.3), 65), tables_for((0.0, 0.3), 200)
    assert small.shape == (2, 128 * 127 // 2)
    assert large.shape == (2, 256 * 255 // 2)
    np.testing.assert_array_equal(small, large[:, : small.shape[1]])
    assert tables_for((0.0, 0.3), 3) is large
    np.testing.assert_array_equal(large[1], table_to(0.3, 256))


def test_tables_for__returns_read_only_tables_up_to_a_maximum(empty_cache):
    found = tables_for((0.5,), 10**9)
    assert found.shape == (1, 256 * 255 // 2)
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 1


def test_tables_for__shares_tables_between_threads(empty_cache):
    found, start = [], threading.Barrier(4)

    def ask():
        start.wait()
        found.append(tables_for((0.25, 0.0), 100))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(table is found[0] for table in found)


def test_tables_for__caches_the_latest_tables_within_a_limit(empty_cache, monkeypatch):
    first = tables_for((0.5,), 64)
    monkeypatch.setattr(sampler, "MAX_CACHED_BYTES", 3 * first.nbytes)
    for a in (0.1, 0.2, 0.5, 0.3):
        tables_for((a,), 64)
    assert list(sampler._tables) == [(0.2,), (0.5,), (0.3,)]
    assert tables_for((0.5,), 64) is first
    tables_for((0.4,), 256)  # the latest tables are kept even if they exceed the limit
    assert list(sampler._tables) == [(0.4,)]


def test_tables__use_the_documented_memory():
    assert 8 * sampler._size(sampler.MAX_COUNT) < 16.8e6


@pytest.mark.parametrize("a", [-0.1, 1.0, math.nan])
def test_tables_for__refuses_discounts_outside_the_range(a):
    with pytest.raises(ValueError, match="less than 1"):
        tables_for((0.5, a), 10)
