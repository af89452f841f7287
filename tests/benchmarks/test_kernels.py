"""Micro-benchmarks of the kernels: `make bench`. `make test` runs each once, tiny, to see that it works.

COLLAPSAR_BENCH_PAIRS and COLLAPSAR_BENCH_TOPICS set the size.
"""

import os

import numpy as np
import pytest

from collapsar.storage.shard import Shard
from collapsar.workers.kernels.assign import sweep_second, sweep_zeroth
from collapsar.workers.kernels.predict import fold_in, pair_probability
from collapsar.workers.kernels.words import add_counts, add_log_absent, word_tables
from tests.strategies import documents_of

PAIRS = int(os.environ.get("COLLAPSAR_BENCH_PAIRS", "2000"))
TOPICS = int(os.environ.get("COLLAPSAR_BENCH_TOPICS", "16"))


@pytest.fixture(scope="module")
def state():
    generator = np.random.default_rng(0)
    vocabulary = max(PAIRS // 50, 10)
    chance = 1.0 / np.arange(1, vocabulary + 1)
    chance /= chance.sum()
    rows = []
    while sum(map(len, rows)) < PAIRS:
        words, counts = np.unique(generator.choice(vocabulary, size=120, p=chance), return_counts=True)
        rows.append(dict(zip(words.tolist(), counts.tolist(), strict=True)))
    shard = Shard.of(0, documents_of(rows))
    q = generator.dirichlet(np.full(TOPICS, 0.1), size=shard.pairs).astype(np.float32) + np.float32(1e-6)
    q /= q.sum(axis=1, keepdims=True)
    shape = (shard.words.size, TOPICS)
    mean, variance = np.zeros(shape), np.zeros(shape)
    add_counts(shard.position, shard.counts, q, mean, variance)
    owner = np.repeat(np.arange(shard.documents, dtype=np.int32), np.diff(shard.offsets))
    documents = np.zeros((shard.documents, TOPICS))
    add_counts(owner, shard.counts, q, documents, np.zeros((0, 0)))
    return shard, q, mean, variance, documents.astype(np.float32)


def outputs(shard, shape):
    return np.empty((shard.pairs, TOPICS), np.float32), np.empty((shard.documents, TOPICS), np.float32), np.zeros(shape)


@pytest.mark.parametrize("tables", [False, True])
def test_sweep_zeroth(benchmark, state, tables):
    shard, q, mean, _, documents = state
    a = np.full(TOPICS, 0.1)
    base, total, b = mean.astype(np.float32), mean.sum(axis=0) + 10.0, np.full(mean.shape[0], 0.1)
    new, counts, change = outputs(shard, mean.shape)
    wanted, found = a if tables else np.empty(0), np.zeros(TOPICS)
    given = (
        shard.offsets,
        shard.position,
        shard.counts,
        base,
        b,
        a,
        total,
        q,
        documents,
        wanted,
        new,
        counts,
        change,
        found,
    )
    benchmark(sweep_zeroth, *given)
    benchmark.extra_info["pairs"] = shard.pairs
    np.testing.assert_allclose(new.sum(axis=1), 1.0, rtol=1e-4)


def test_sweep_second(benchmark, state):
    shard, q, mean, variance, documents = state
    b = np.full(mean.shape[0], 0.1)
    base, totals = mean.astype(np.float32), np.stack([mean.sum(axis=0) + 10.0, variance.sum(axis=0)])
    new, counts, change = outputs(shard, mean.shape)
    spread, tables, sums = np.zeros_like(mean), np.zeros(TOPICS), np.zeros(2)
    common = (
        shard.offsets,
        shard.position,
        shard.counts,
        base,
        b,
        variance.astype(np.float32),
        np.full(TOPICS, 0.1),
        totals,
    )
    benchmark(sweep_second, *common, q, documents, new, counts, change, spread, tables, sums)
    np.testing.assert_allclose(new.sum(axis=1), 1.0, rtol=1e-4)


def test_counts(benchmark, state):
    shard, q, mean, variance, _ = state
    benchmark(add_counts, shard.position, shard.counts, q, np.zeros_like(mean), np.zeros_like(variance))


def test_log_absent(benchmark, state):
    shard, q, mean, _, _ = state
    found = np.empty_like(mean)
    benchmark(add_log_absent, shard.position, shard.counts, q, found)
    assert np.isfinite(found).all()


def test_word_tables(benchmark, state):
    shard, q, mean, variance, _ = state
    absent, tables = np.empty_like(mean), np.empty(mean.shape[0])
    add_log_absent(shard.position, shard.counts, q, absent)
    benchmark(word_tables, mean, variance, absent, np.full(mean.shape[0], 0.1), tables, np.zeros(1))
    assert (tables > 0).all()


def test_prediction(benchmark, state):
    shard, _, mean, _, documents = state
    theta = (documents + 0.1) / (documents + 0.1).sum(axis=1, keepdims=True)
    phi, found = (mean + 0.1) / (mean + 0.1).sum(axis=0), np.empty(shard.pairs)
    none = np.zeros(shard.documents), np.zeros(mean.shape[0])
    benchmark(pair_probability, shard.offsets, shard.position, theta.astype(np.float64), phi, *none, found)
    assert (found > 0).all()


def test_fold_in(benchmark, state):
    shard, _, mean, _, _ = state
    phi, found = (mean + 0.1) / (mean + 0.1).sum(axis=0), np.empty((shard.documents, TOPICS))
    benchmark(fold_in, shard.offsets, shard.position, shard.counts, phi, np.full(TOPICS, 0.1), 20, found)
    np.testing.assert_allclose(found.sum(axis=1), shard.lengths, rtol=1e-6)
