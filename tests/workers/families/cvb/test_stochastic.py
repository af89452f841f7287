from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.shard import Shard
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.kernels.cvb import stochastic
from collapsium.workers.kernels.cvb.records import Priors
from collapsium.workers.kernels.jit import DocumentPairs
from tests.naive import stochastic as naive
from tests.strategies import bags, documents_of, pair_totals, with_token_weights

pytestmark = pytest.mark.kernels


@dataclass(frozen=True)
class Steps:
    """A shard, rows of its words that also include counts of other shards, and the arguments of a sweep."""

    shard: Shard
    topics: int
    batch: int
    passes: int
    rates: np.ndarray
    scales: np.ndarray
    left: float
    rows: dict

    @property
    def arguments(self):
        return self.shard.offsets, self.shard.position, pair_totals(self.shard), self.rows["b"], self.rows["a"]


@st.composite
def steps(draw, passes=(1, 2, 4), **kwargs):
    """Draw shards with and without empty documents, rows with no or many tokens, and batches of one to four documents."""
    shard = Shard.of(0, documents_of(draw(bags(some_token=False, **kwargs))[0]))
    noise, topics = np.random.default_rng(draw(st.integers(0, 2**31))), draw(st.integers(1, 5))
    batch = draw(st.integers(1, 4))
    lengths = np.add.reduceat(shard.lengths, np.arange(0, shard.documents, batch)).astype(np.float64)
    rates = np.where(
        lengths > 0, np.minimum((1.0 + draw(st.sampled_from([0, 7])) + np.arange(lengths.size)) ** -0.9, 0.999), 0.0
    )
    # The totals also include counts of words that the shard lacks.
    row_topic = draw(st.sampled_from([0.0, 1.0, 30.0])) * noise.random((shard.words.size, topics))
    row_topic *= noise.random(row_topic.shape) < 0.7
    rows = {"row_topic": row_topic, "totals": row_topic.sum(axis=0) + noise.uniform(0.0, 9.0, topics)}
    rows.update(a=noise.uniform(0.05, 2.0, topics), b=noise.uniform(0.1, 1.0, shard.words.size), total=12.0)
    scales = draw(st.sampled_from([1.0, 40.0])) * max(shard.tokens, 1) / np.maximum(lengths, 1.0)
    chosen = draw(st.sampled_from(passes))
    return Steps(shard, topics, batch, chosen, rates, scales, draw(st.sampled_from([1.0, 0.25])), rows)


def run(state, tables=True):
    """Sweep with the kernel: return E[n_kw], E[n_k], the factor by which old counts have decayed, n_dk, and the sums
    of E[s_dk]."""
    stored = (state.rows["row_topic"] / state.left).astype(np.float32)
    totals, left = state.rows["totals"].copy(), np.array([state.left])
    found = np.full((state.shard.documents, state.topics), np.nan, dtype=np.float32)
    sums = np.zeros(state.topics if tables else 0)
    *_, b, a = state.arguments
    stochastic.sweep_stochastic(
        document_pairs(state.shard),
        Priors(a, b, state.rows["total"]),
        stochastic.Batches(state.batch, state.passes, state.rates, state.scales),
        stochastic.MovingCounts(stored, totals, left),
        found,
        sums,
    )
    return stored.astype(np.float64) * left[0], totals, left[0] / state.left, found, sums


def run_naive(state):
    return naive.sweep(
        *state.arguments, state.rows["total"], state.batch, state.rates, state.scales, state.passes,
        state.rows["row_topic"], state.rows["totals"],
    )  # fmt: skip


@pytest.mark.parametrize("weights", [False, True])
@given(state=steps(), seed=st.integers(0, 1000))
def test_sweep__equals_the_naive_version(state, seed, weights):
    state = replace(state, shard=with_token_weights(state.shard, seed)) if weights else state
    row_topic, totals, left, document_topic, tables = run(state)
    twin = run_naive(state)
    largest = max(twin[1].max(), 1.0)
    np.testing.assert_allclose(row_topic, twin[0], rtol=1e-4, atol=1e-6 * largest)
    np.testing.assert_allclose(totals, twin[1], rtol=1e-5)
    assert left == pytest.approx(twin[2], rel=1e-12)
    np.testing.assert_allclose(document_topic, twin[3], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(tables, twin[4], rtol=1e-4, atol=1e-6)


@given(steps(max_count=900))
def test_sweep__conserves_the_number_of_tokens(state):
    """Batches scaled to the whole corpus leave its number of tokens unchanged."""
    corpus = float(state.rows["totals"].sum())
    lengths = np.add.reduceat(state.shard.lengths, np.arange(0, state.shard.documents, state.batch))
    state = Steps(**{**vars(state), "scales": corpus / np.maximum(lengths, 1.0)})
    row_topic, totals, left, document_topic, _ = run(state)
    assert totals.sum() == pytest.approx(corpus, rel=1e-5)
    np.testing.assert_allclose(document_topic.sum(axis=1, dtype=np.float64), state.shard.lengths, rtol=1e-5)
    assert (document_topic >= 0.0).all()
    assert (row_topic >= 0.0).all()
    # The totals only gain what the rows of the shard's words gain; counts of all other words decay.
    gained = row_topic.sum(axis=0) - left * state.rows["row_topic"].sum(axis=0)
    np.testing.assert_allclose(totals - left * state.rows["totals"], gained, rtol=1e-4, atol=1e-5 * corpus)


@given(steps(), st.data())
def test_sweeps_over_successive_batches__equal_one_sweep_over_all(state, data):
    cut = data.draw(st.integers(0, state.rates.size))
    whole = run(state)
    stored = (state.rows["row_topic"] / state.left).astype(np.float32)
    totals, left = state.rows["totals"].copy(), np.array([state.left])
    found, sums = np.zeros((state.shard.documents, state.topics), dtype=np.float32), np.zeros(state.topics)
    for batches in (slice(0, cut), slice(cut, state.rates.size)):
        first, last = (min(number * state.batch, state.shard.documents) for number in (batches.start, batches.stop))
        pairs = slice(state.shard.offsets[first], state.shard.offsets[last])
        documents = DocumentPairs(
            state.shard.offsets[first : last + 1] - pairs.start, state.shard.position[pairs], state.shard.counts[pairs]
        )
        priors = Priors(state.rows["a"], state.rows["b"], state.rows["total"])
        schedule = stochastic.Batches(state.batch, state.passes, state.rates[batches], state.scales[batches])
        counts = stochastic.MovingCounts(stored, totals, left)
        stochastic.sweep_stochastic(documents, priors, schedule, counts, found[first:last], sums)
    parts = stored.astype(np.float64) * left[0], totals, left[0] / state.left, found, sums
    for part, expected in zip(parts, whole, strict=True):
        np.testing.assert_array_equal(part, expected)


@given(steps())
def test_sweep__gives_the_same_counts_without_table_sums(state):
    for found, expected in zip(run(state, tables=False)[:-1], run(state)[:-1], strict=True):
        np.testing.assert_array_equal(found, expected)


def steps_with_equal_topics(rows, topics=3, passes=3, batch=1, word=2.0):
    """Draw documents over rows in which each word has the same count in all topics, and all topics are equally large."""
    shard = Shard.of(0, documents_of(rows))
    batches = -(-shard.documents // batch)
    rates, scales = np.linspace(0.5, 0.1, batches), np.linspace(2.0, 3.0, batches)
    row_topic = np.full((shard.words.size, topics), word)
    given_ = {"row_topic": row_topic, "totals": np.full(topics, 10.0), "total": 4.0}
    given_.update(a=np.linspace(0.1, 0.9, topics), b=np.full(shard.words.size, 0.5))
    return Steps(shard, topics, batch, passes, rates, scales, 1.0, given_)


@pytest.mark.parametrize("passes", [1, 5])
def test_sweep__of_equal_topics_follows_the_prior(passes):
    """The tokens of a document are divided among the topics in proportion to a_k, for any number of words and of
    passes."""
    for rows in ([{0: 7}], [{0: 1, 1: 3, 2: 2}]):
        state = steps_with_equal_topics(rows, passes=passes)
        row_topic, totals, left, document_topic, _ = run(state)
        share = state.rows["a"] / state.rows["a"].sum()
        np.testing.assert_allclose(document_topic, state.shard.lengths[:, np.newaxis] * share, rtol=1e-5)
        assert left == 0.5
        np.testing.assert_allclose(totals, 5.0 + 0.5 * 2.0 * state.shard.tokens * share, rtol=1e-5)
        came = 0.5 * 2.0 * state.shard.counts[:, np.newaxis] * share
        np.testing.assert_allclose(row_topic[state.shard.position], 1.0 + came, rtol=1e-5)


@given(steps(max_words=1))
def test_sweep__of_a_single_word_equals_the_naive_version(state):
    row_topic, totals, _, document_topic, tables = run(state)
    twin = run_naive(state)
    np.testing.assert_allclose(document_topic, twin[3], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(row_topic, twin[0], rtol=1e-4, atol=1e-6 * max(totals.max(), 1.0))
    np.testing.assert_allclose(tables, twin[4], rtol=1e-4, atol=1e-6)


def test_sweep__of_a_single_topic_counts_tokens():
    state = steps_with_equal_topics([{0: 2, 1: 1}, {}, {1: 4}], topics=1)
    row_topic, totals, left, document_topic, tables = run(state)
    np.testing.assert_allclose(document_topic, [[3.0], [0.0], [4.0]], rtol=1e-6)
    (first, second, third), (scale, _, last) = state.rates, state.scales
    came = np.array([2.0, 1.0]) * first * scale * (1 - second) * (1 - third) + np.array([0.0, 4.0]) * third * last
    np.testing.assert_allclose(row_topic[:, 0], 2.0 * left + came, rtol=1e-5)
    np.testing.assert_allclose(totals, 10.0 * left + came.sum(), rtol=1e-6)
    a = state.rows["a"][0]  # all tokens belong to the topic: a (psi(a + n) - psi(a)) tables per document
    np.testing.assert_allclose(tables, sum(a / (a + i) for n in (3, 4) for i in range(n)), rtol=1e-4)


def test_sweep__of_empty_documents_only_decays_counts():
    state = steps_with_equal_topics([{}, {0: 1}, {}])
    state = Steps(**{**vars(state), "shard": Shard.of(0, documents_of([{}, {}, {}]))})
    state.rows.update(row_topic=np.zeros((0, 3)), b=np.zeros(0))
    row_topic, totals, left, document_topic, tables = run(state)
    assert row_topic.shape == (0, 3)
    assert left == pytest.approx(np.prod(1 - state.rates))
    np.testing.assert_allclose(totals, 10.0 * left)
    np.testing.assert_array_equal(document_topic, 0.0)
    np.testing.assert_array_equal(tables, 0.0)


def test_passes__concentrate_a_documents_tokens_on_its_largest_topic():
    """Each pass continues from the previous pass's proportions, so the share of a document's largest topic grows."""
    found = []
    for passes in (1, 2, 4, 8):
        state = steps_with_equal_topics([{0: 5, 1: 1}], topics=2, passes=passes)
        state.rows.update(a=np.full(2, 0.1), row_topic=np.array([[9.0, 1.0], [4.0, 6.0]]))
        found.append(run(state)[3][0, 0])
    assert found == sorted(found)
    assert found[0] < found[-1] - 0.3


@pytest.mark.parametrize("small", [1e-30, 1e-12, 1e-3])
def test_sweep__is_finite_with_vanishing_priors_and_new_words(small):
    """Sticks of topics without tokens vanish, and a word that never occurred has only its prior."""
    state = steps_with_equal_topics([{0: 1}, {}, {2: 3}, {0: 2, 1: 1}], word=0.0)
    state.rows.update(a=np.array([0.5, 0.5, small]), b=np.full(3, max(small, 1e-12)), totals=np.zeros(3))
    row_topic, totals, _, document_topic, tables = run(state)
    for values in (row_topic, totals, document_topic, tables):
        assert np.isfinite(values).all()
    np.testing.assert_allclose(document_topic.sum(axis=1), state.shard.lengths, rtol=1e-5)


def test_sweep__does_not_change_its_inputs():
    state = steps_with_equal_topics([{0: 2, 1: 1}, {1: 4}])
    held = [*state.arguments, state.rates, state.scales]
    before = [values.copy() for values in held]
    for values in held:
        values.flags.writeable = False
    run(state)
    for values, copy in zip(held, before, strict=True):
        np.testing.assert_array_equal(values, copy)
