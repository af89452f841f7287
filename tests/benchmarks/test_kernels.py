"""Micro-benchmarks of the kernels: `make bench`. `make test` runs each once on tiny data to check that it works.

COLLAPSIUM_BENCH_PAIRS and COLLAPSIUM_BENCH_TOPICS set the size. Kernels over active topics run with 120 and with 1000
topics, and the same mean number of active topics per document: their time should depend on the active topics only.
"""

import os
from dataclasses import dataclass

import numpy as np
import pytest

from collapsium.storage.corpus.shard import Shard
from collapsium.workers.families.cvb.active_topics import MIN_TOKENS, max_active, starts_of
from collapsium.workers.families.cvb.plain_topics import BATCH_DOCUMENTS, DOCUMENT_PASSES
from collapsium.workers.families.dirichlet import SAME_PRIOR
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.kernels.cvb.active import STEP, sweep_active
from collapsium.workers.kernels.cvb.active_selection import Selection, SelectionRows, carry, select
from collapsium.workers.kernels.cvb.background import RowDelta, fold_rows, spread
from collapsium.workers.kernels.cvb.dense import (
    BoundTerms,
    MomentChanges,
    RowMoments,
    Tables,
    sweep_second,
    sweep_zeroth,
)
from collapsium.workers.kernels.cvb.records import (
    ActiveState,
    ActiveTopics,
    DenseState,
    DocumentModel,
    Priors,
    RowChanges,
    RunningCounts,
    SpreadRows,
    SweepRows,
    WordMoments,
)
from collapsium.workers.kernels.cvb.stochastic import Batches, MovingCounts, sweep_stochastic
from collapsium.workers.kernels.cvb.warm_start import expected_counts, initialise, initialise_active, initialise_dense
from collapsium.workers.kernels.cvb.words import add_counts, add_log_absent, word_tables
from collapsium.workers.kernels.jit import UNWEIGHTED
from collapsium.workers.kernels.prediction import fold_in, pair_probability
from collapsium.workers.kernels.vb.mean_field import (
    ExpectedCounts,
    MeanFieldTopics,
    PassLimits,
    fold_words,
    sweep_mean_field,
)
from tests.strategies import documents_of

PAIRS = int(os.environ.get("COLLAPSIUM_BENCH_PAIRS", "2000"))
TOPICS = int(os.environ.get("COLLAPSIUM_BENCH_TOPICS", "16"))
MANY = (120, 1000)
LISTED = 16  # mean number of topics of a document
ROUNDS = 10  # rounds of kernels that change their inputs; each begins with the same inputs


def shard_of(generator):
    """Return documents of 120 tokens each, with words from Zipf's law."""
    vocabulary = max(PAIRS // 50, 10)
    chance = 1.0 / np.arange(1, vocabulary + 1)
    chance /= chance.sum()
    rows = []
    while sum(map(len, rows)) < PAIRS:
        words, counts = np.unique(generator.choice(vocabulary, size=120, p=chance), return_counts=True)
        rows.append(dict(zip(words.tolist(), counts.tolist(), strict=True)))
    return Shard.of(0, documents_of(rows))


@pytest.fixture(scope="module")
def state():
    generator = np.random.default_rng(0)
    shard = shard_of(generator)
    q = generator.dirichlet(np.full(TOPICS, 0.1), size=shard.pairs).astype(np.float32) + np.float32(1e-6)
    q /= q.sum(axis=1, keepdims=True)
    shape = (shard.words.size, TOPICS)
    mean, variance = np.zeros(shape), np.zeros(shape)
    add_counts(shard.position, shard.counts, UNWEIGHTED, q, mean, variance)
    owner = np.repeat(np.arange(shard.documents, dtype=np.int32), np.diff(shard.offsets))
    documents = np.zeros((shard.documents, TOPICS))
    add_counts(owner, shard.counts, UNWEIGHTED, q, documents, np.zeros((0, 0)))
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
    before, after = DenseState(q, documents), DenseState(new, counts)
    rows = base, Priors(a, b, 10.0), total
    benchmark(sweep_zeroth, document_pairs(shard), *rows, before, after, change, Tables(wanted, found))
    benchmark.extra_info["pairs"] = shard.pairs
    np.testing.assert_allclose(new.sum(axis=1), 1.0, rtol=1e-4)


def test_sweep_second(benchmark, state):
    shard, q, mean, variance, documents = state
    b = np.full(mean.shape[0], 0.1)
    base, totals = mean.astype(np.float32), np.stack([mean.sum(axis=0) + 10.0, variance.sum(axis=0)])
    new, counts, change = outputs(shard, mean.shape)
    spread, tables, sums = np.zeros_like(mean), np.zeros(TOPICS), np.zeros(2)
    rows = RowMoments(base, variance.astype(np.float32)), Priors(np.full(TOPICS, 0.1), b, 10.0), totals
    before, after = DenseState(q, documents), DenseState(new, counts)
    changes, terms = MomentChanges(change, spread), BoundTerms(tables, sums)
    benchmark(sweep_second, document_pairs(shard), *rows, before, after, changes, terms)
    np.testing.assert_allclose(new.sum(axis=1), 1.0, rtol=1e-4)


def test_counts(benchmark, state):
    shard, q, mean, variance, _ = state
    benchmark(add_counts, shard.position, shard.counts, UNWEIGHTED, q, np.zeros_like(mean), np.zeros_like(variance))


def test_log_absent(benchmark, state):
    shard, q, mean, _, _ = state
    found = np.empty_like(mean)
    benchmark(add_log_absent, shard.position, shard.counts, UNWEIGHTED, q, found)
    assert np.isfinite(found).all()


def test_word_tables(benchmark, state):
    shard, q, mean, variance, _ = state
    absent, tables = np.empty_like(mean), np.empty(mean.shape[0])
    add_log_absent(shard.position, shard.counts, UNWEIGHTED, q, absent)
    benchmark(word_tables, WordMoments(mean, variance, absent), np.full(mean.shape[0], 0.1), tables, np.zeros(1))
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
    benchmark(fold_in, document_pairs(shard), phi, np.full((1, TOPICS), 0.1), SAME_PRIOR, 20, found)
    np.testing.assert_allclose(found.sum(axis=1), shard.lengths, rtol=1e-6)


@dataclass(frozen=True)
class Active:
    """A shard whose documents have active topics, and rows of its words that also include counts of other shards."""

    shard: Shard
    topics: int
    lists: np.ndarray
    topic: np.ndarray
    share: np.ndarray
    count: np.ndarray
    rest: np.ndarray
    active: np.ndarray
    row_rest: np.ndarray
    row_topic: np.ndarray
    background: np.ndarray
    prior: np.ndarray
    totals: np.ndarray
    weight: np.ndarray
    even = 0.1

    @property
    def pairs(self):
        return document_pairs(self.shard)

    @property
    def words(self):
        return np.full(self.row_rest.size, 0.1)

    @property
    def priors(self):
        return Priors(self.prior, self.words, 10.0)

    @property
    def active_topics(self):
        return ActiveTopics(self.lists, self.topic)

    @property
    def sparse(self):
        starts, no_start = starts_of(self.shard.offsets, self.lists), np.empty(0, dtype=np.float32)
        return ActiveState(starts, self.share, self.count, self.rest, no_start)

    @property
    def spread_rows(self):
        return SpreadRows(self.active, self.row_rest, self.even, self.weight)

    def tell(self, benchmark):
        benchmark.extra_info.update(pairs=self.shard.pairs, topics=self.topics, listed=self.topic.size / len(self.rest))

    def blank(self):
        """Return arrays for a sweep to fill."""
        no_start = np.empty(0, dtype=np.float32)
        return np.empty_like(self.share), np.empty_like(self.count), np.empty_like(self.rest), no_start

    def running(self):
        """Initial values of the arrays that a sweep changes."""
        units = np.full(self.row_rest.size, STEP)
        cells = np.rint(self.row_topic / STEP).astype(np.int32)
        none = np.full(units.size, -1, np.int32), np.zeros((0, self.topics))
        rows = SweepRows(cells, units, self.background.astype(np.float64), np.zeros_like(self.row_rest), *none)
        return RunningCounts(self.totals.copy(), self.weight, rows)


def active_state(topics, listed=LISTED):
    """Return documents with `listed` active topics on average, or all, which have nearly all tokens, as after some
    sweeps."""
    generator = np.random.default_rng(0)
    shard = shard_of(generator)
    sizes = generator.integers(listed // 2, listed + listed // 2 + 1, shard.documents) if listed else [topics]
    sizes = np.broadcast_to(np.minimum(sizes, topics), shard.documents)
    lists = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    topic = np.concatenate([np.sort(generator.choice(topics, size, replace=False)) for size in sizes]).astype(np.uint16)
    noise = (generator.gamma(0.2, size=topic.size) + 1e-3).astype(np.float32)
    starts = starts_of(shard.offsets, lists)
    share = np.empty(starts[-1], dtype=np.uint16)
    count, rest, no_start = np.empty(topic.size), np.empty(shard.documents), np.empty(0, dtype=np.float32)
    rows, row_rest = np.zeros((shard.words.size, topics), dtype=np.float32), np.full(shard.words.size, 5.0)
    state, changes = ActiveState(starts, share, count, rest, no_start), RowChanges(rows, row_rest)
    initialise(document_pairs(shard), ActiveTopics(lists, topic), noise, state, changes)
    prior, totals = np.full(topics, 0.1), rows.sum(axis=0, dtype=np.float64) + 10.0
    active, filled = rows, [np.empty(rows.shape, np.float32)]
    filled += [np.empty(row_rest.size, np.float32)]
    weight = prior / totals
    spread(SpreadRows(active, row_rest, Active.even, weight), np.full(row_rest.size, 0.1), weight, *filled)
    return Active(shard, topics, lists, topic, share, count, rest, active, row_rest, *filled, prior, totals, weight)


@pytest.fixture(scope="module", params=MANY)
def listed(request):
    return active_state(request.param)


def run_sweep_active(benchmark, state, power):
    running, filled, start = state.running(), state.blank(), state.running()

    def again():
        for values, first in zip((running.totals, *running.rows), (start.totals, *start.rows), strict=True):
            values[:] = first

    arguments = (
        state.pairs,
        state.active_topics,
        state.sparse,
        state.priors,
        np.full(2, power),
        running,
        ActiveState(state.sparse.starts, *filled),
    )
    benchmark.pedantic(sweep_active, args=arguments, setup=again, rounds=ROUNDS, warmup_rounds=1)
    state.tell(benchmark)
    owner = np.repeat(np.arange(state.rest.size), np.diff(state.lists))
    tokens = np.bincount(owner, weights=filled[1], minlength=state.rest.size) + filled[2]
    np.testing.assert_allclose(tokens, state.shard.lengths, rtol=1e-5)
    assert (running.rows.cells != start.rows.cells).any()


@pytest.mark.parametrize("power", [1.0, 0.875])
def test_sweep_active(benchmark, listed, power):
    run_sweep_active(benchmark, listed, power)


def test_sweep_active_of_all_topics(benchmark):
    run_sweep_active(benchmark, active_state(TOPICS, listed=0), 1.0)


def test_select(benchmark, listed):
    most = max_active(listed.shard.offsets, listed.topics, 0).astype(np.int64)
    chosen, sizes = np.empty(most.sum(), dtype=np.uint16), np.empty(listed.rest.size, dtype=np.int64)
    rows = SelectionRows(listed.row_topic, listed.background, listed.totals)
    where, selection = (listed.pairs, listed.active_topics, listed.sparse), Selection(most, chosen, sizes)
    benchmark(select, *where, listed.priors, rows, np.maximum(listed.prior, MIN_TOKENS), selection)
    listed.tell(benchmark)
    assert ((sizes > 0) & (sizes <= most)).all()


def test_carry(benchmark, listed):
    """Carry local states to active topics without the last one of each document."""
    sizes = np.diff(listed.lists)
    keep = np.ones(listed.topic.size, dtype=bool)
    keep[listed.lists[1:] - 1] = False
    new = np.concatenate([[0], np.cumsum(sizes - 1)]).astype(np.int64)
    starts = starts_of(listed.shard.offsets, new)
    share, count, no_start = np.empty(starts[-1], dtype=np.uint16), np.empty(keep.sum()), np.empty(0, np.float32)
    rest, where = np.empty_like(listed.rest), (listed.pairs, listed.active_topics, listed.sparse)
    running, after = listed.running(), ActiveState(starts, share, count, rest, no_start)
    benchmark(carry, *where, ActiveTopics(new, listed.topic[keep]), running, after)
    listed.tell(benchmark)
    owner = np.repeat(np.arange(rest.size), np.diff(new))
    np.testing.assert_allclose(np.bincount(owner, weights=count) + rest, listed.shard.lengths, rtol=1e-5)


def test_spread(benchmark, listed):
    row_topic, background = np.empty_like(listed.row_topic), np.empty_like(listed.background)
    rows = listed.spread_rows, listed.words, listed.weight
    benchmark(spread, *rows, row_topic, background)
    listed.tell(benchmark)
    np.testing.assert_allclose(row_topic.sum(axis=1), listed.active.sum(axis=1) + listed.row_rest, rtol=1e-4)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_fold_rows(benchmark, listed, momentum):
    change, place = listed.active / np.float32(10.0), np.arange(len(listed.active))
    new, ahead = np.empty_like(listed.active), np.empty((len(place) if momentum else 0, listed.topics), np.float32)
    totals = np.zeros((2, listed.topics))
    benchmark.pedantic(
        fold_rows,
        args=(listed.spread_rows, RowDelta(change, place), momentum, new, ahead, totals, np.zeros(1)),
        setup=lambda: totals.fill(0.0),
        rounds=ROUNDS,
        warmup_rounds=1,
    )
    listed.tell(benchmark)
    np.testing.assert_allclose(totals[0].sum(), new.sum(dtype=np.float64) + listed.row_rest.sum(), rtol=1e-6)


def test_sweep_stochastic(benchmark, state):
    shard, _, mean, _, _ = state
    lengths = np.add.reduceat(shard.lengths, np.arange(0, shard.documents, BATCH_DOCUMENTS))
    rates, scales = (2.0 + np.arange(lengths.size)) ** -0.9, shard.tokens / lengths
    moved, totals, left = np.empty(mean.shape, dtype=np.float32), np.empty(TOPICS), np.empty(1)
    found, tables = np.empty((shard.documents, TOPICS), dtype=np.float32), np.zeros(TOPICS)

    def again():
        moved[:], totals[:], left[:] = mean, mean.sum(axis=0), 1.0

    priors = Priors(np.full(TOPICS, 0.1), np.full(mean.shape[0], 0.1), 10.0)
    batches, counts = (
        Batches(BATCH_DOCUMENTS, DOCUMENT_PASSES, rates, scales),
        MovingCounts(moved, totals, left),
    )
    arguments = document_pairs(shard), priors, batches, counts, found, tables
    benchmark.pedantic(sweep_stochastic, args=arguments, setup=again, rounds=ROUNDS, warmup_rounds=1)
    benchmark.extra_info["pairs"] = shard.pairs
    np.testing.assert_allclose(found.sum(axis=1), shard.lengths, rtol=1e-4)
    np.testing.assert_allclose(totals.sum(), shard.tokens, rtol=1e-3)


@pytest.mark.parametrize("passes", [1, 5])
def test_sweep_mean_field(benchmark, state, passes):
    shard, _, mean, _, documents = state
    prior, found, rows = np.full(TOPICS, 0.1), np.empty_like(documents), np.empty_like(mean)
    topics, limits = MeanFieldTopics(mean + 0.1, prior, np.zeros(TOPICS)), PassLimits(passes, 0.0)
    inputs = document_pairs(shard), topics, documents, limits
    benchmark(sweep_mean_field, *inputs, ExpectedCounts(found, rows), np.zeros(0), np.zeros(1))
    benchmark.extra_info["pairs"] = shard.pairs
    np.testing.assert_allclose(found.sum(axis=1), shard.lengths, rtol=1e-5)


def test_fold_words(benchmark, state):
    _, _, mean, _, _ = state
    expected = np.empty_like(mean)
    benchmark(fold_words, mean, np.ones_like(mean), np.full(len(mean), 0.1), expected, np.zeros(2))
    benchmark.extra_info["cells"] = mean.size
    np.testing.assert_allclose(expected.max(axis=1), 1.0)


def known(listed):
    """Return proportions and topics of another run."""
    generator = np.random.default_rng(1)
    theta = generator.dirichlet(np.full(listed.topics, 0.1), size=listed.shard.documents).astype(np.float32)
    phi = generator.dirichlet(np.full(listed.shard.words.size, 0.1), size=listed.topics).T
    return theta, np.ascontiguousarray(phi, dtype=np.float32)


def test_expected_counts(benchmark, listed):
    listed.tell(benchmark)
    shard, (theta, phi) = listed.shard, known(listed)
    found = np.empty(theta.shape)
    benchmark(expected_counts, document_pairs(shard), DocumentModel(theta, phi), found)


def test_initialise_active(benchmark, listed):
    listed.tell(benchmark)
    shard, rows, rest, blank = (
        listed.shard,
        np.zeros_like(listed.active),
        np.zeros_like(listed.row_rest),
        listed.blank(),
    )
    state, changes = ActiveState(starts_of(shard.offsets, listed.lists), *blank), RowChanges(rows, rest)
    model = DocumentModel(*known(listed))
    benchmark(initialise_active, document_pairs(shard), model, listed.active_topics, state, changes)


def test_initialise_dense(benchmark, listed):
    listed.tell(benchmark)
    shard = listed.shard
    found = np.empty((shard.pairs, listed.topics), dtype=np.float32)
    benchmark(initialise_dense, document_pairs(shard), DocumentModel(*known(listed)), found)
