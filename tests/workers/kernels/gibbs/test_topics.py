import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.shard import Shard
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.kernels import random
from collapsium.workers.kernels.gibbs import topics as gibbs
from collapsium.workers.kernels.gibbs.topics import (
    TALLIED_COUNTS,
    DocumentTopics,
    TopicCounts,
    TopicPrior,
    TopicSlots,
    WordPrior,
)
from tests.naive import gibbs as naive
from tests.naive.random import uniform
from tests.strategies import bags, documents_of

pytestmark = [pytest.mark.kernels, pytest.mark.usefixtures("wrapping")]


@st.composite
def samples(draw):
    """Draw a shard with topics of its tokens, counts of other shards, and priors; some topics are empty, and some
    slots free."""
    rows, _ = draw(bags())
    shard = Shard.of(0, documents_of(rows))
    noise = np.random.default_rng(draw(st.integers(0, 2**31)))
    topics, columns = draw(st.integers(1, 5)), draw(st.sampled_from([32, 64]))
    slots = noise.permutation(columns)[:topics]
    z = noise.choice(slots, shard.tokens).astype(np.uint16)
    elsewhere = np.zeros((shard.words.size, columns), dtype=np.int32)
    elsewhere[:, slots] = noise.poisson(draw(st.sampled_from([0.0, 2.0])), (shard.words.size, topics))
    prior = np.zeros(columns)
    prior[slots] = noise.uniform(0.01, 2.0, topics)
    return shard, z, elsewhere, prior, Stream(draw(st.integers(0, 2**31)), "sweep").key()


WORD_PRIOR = WordPrior(0.3, 1.5)


def counted(shard, z, elsewhere):
    row = elsewhere.copy()
    np.add.at(row, (np.repeat(shard.position, shard.counts), z), 1)
    return row


def swept(sample, gamma, rest, slots):
    """Return the topics, the prior, its remainder, and the free slots after a sweep with some slots."""
    shard, z, elsewhere, prior, key = sample
    row, prior, z, rest = counted(shard, z, elsewhere), prior.copy(), z.copy(), np.array([rest])
    totals, reusable = row.sum(axis=0).astype(np.float64), np.zeros(prior.size, dtype=np.int64)
    free, free_count = np.array(slots, dtype=np.int64), np.array([len(slots)])
    reusable[free] = 1
    gibbs.sweep_tokens(
        document_pairs(shard),
        key,
        WORD_PRIOR,
        TopicPrior(prior, rest),
        TopicSlots(gamma, reusable, free, free_count),
        TopicCounts(totals, row),
        z,
        np.zeros(3, dtype=np.int64),
    )
    np.testing.assert_array_equal(row, counted(shard, z, elsewhere))
    np.testing.assert_array_equal(totals, row.sum(axis=0))
    return z, prior, rest[0], list(free[: free_count[0]])


@given(samples())
def test_sweep__equals_the_naive_version(sample):
    shard, z, elsewhere, prior, key = sample
    found = swept(sample, 0.0, 0.0, [])
    expected, *_ = naive.sweep(*document_pairs(shard)[:3], key, *WORD_PRIOR, 0.0, elsewhere, prior, 0.0, [], z)
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1], prior)


@given(samples(), st.sampled_from([0.3, 1.0, 20.0]), st.sampled_from([1e-3, 1.0, 50.0]))
def test_sweep__of_a_growing_number_of_topics_equals_the_naive_version(sample, gamma, rest):
    """There are more slots than tokens, so that they are never used up; some columns are not slots at all."""
    shard, z, elsewhere, prior, key = sample
    pad = np.zeros((shard.words.size, 128), dtype=np.int32)
    sample = shard, z, np.concatenate([elsewhere, pad], axis=1), np.concatenate([prior, np.zeros(128)]), key
    slots = [int(slot) for slot in np.flatnonzero(sample[3] == 0.0)[::-1] if slot % 3]
    found = swept(sample, gamma, rest, slots)
    expected = naive.sweep(*document_pairs(shard)[:3], key, *WORD_PRIOR, gamma, sample[2], sample[3], rest, slots, z)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-9, atol=1e-15)
    assert found[3] == expected[3]
    np.testing.assert_allclose(found[1].sum() + found[2], prior.sum() + rest)  # breaking the stick conserves its length


@given(samples())
def test_sweep__stops_without_a_free_slot_and_continues_with_one(sample):
    """Giving one slot at a time has the same result as giving all slots at once."""
    shard, z, elsewhere, prior, key = sample
    at_once = swept(sample, 2.0, 5.0, list(np.flatnonzero(prior == 0.0)[::-1][-shard.tokens - 1 :]))
    order = [int(slot) for slot in np.flatnonzero(prior == 0.0)]
    row, prior, z, rest = counted(shard, z, elsewhere), prior.copy(), z.copy(), np.array([5.0])
    totals, reusable = row.sum(axis=0).astype(np.float64), np.zeros(prior.size, dtype=np.int64)
    slots = TopicSlots(2.0, reusable, np.zeros(prior.size, dtype=np.int64), np.zeros(1, dtype=np.int64))
    topic_prior, topic_counts = TopicPrior(prior, rest), TopicCounts(totals, row)
    progress, runs = np.zeros(3, dtype=np.int64), 0
    while progress[0] < shard.documents:
        gibbs.sweep_tokens(document_pairs(shard), key, WORD_PRIOR, topic_prior, slots, topic_counts, z, progress)
        if progress[0] < shard.documents:
            slots.free[0], slots.free_count[0], runs = order.pop(0), 1, runs + 1
            reusable[slots.free[0]] = 1
    np.testing.assert_array_equal(z, at_once[0])
    np.testing.assert_array_equal(prior, at_once[1])
    assert runs >= (shard.tokens > 0)


@given(samples())
def test_lists__equal_the_naive_version(sample):
    shard, z, _, prior, key = sample
    lists, topic = np.zeros(shard.documents + 1, dtype=np.int64), np.zeros(z.size, dtype=np.uint16)
    count, tables, rising = np.zeros(z.size, dtype=np.float32), np.zeros(prior.size), np.zeros(1)
    prior[z] = np.maximum(prior[z], 0.01)
    document_topics = DocumentTopics(lists, topic, count)
    gibbs.list_documents(document_pairs(shard), z, prior, document_topics, tables, rising)
    expected, expected_tables, expected_rising = naive.list_documents(shard.offsets, shard.counts, z, prior)
    for document, found in enumerate(expected):
        part = slice(lists[document], lists[document + 1])
        assert list(zip(topic[part].tolist(), count[part].tolist(), strict=True)) == list(found.items())
    np.testing.assert_allclose(tables, expected_tables, rtol=1e-10)
    np.testing.assert_allclose(rising[0], expected_rising, rtol=1e-10, atol=1e-10)
    drawn = np.zeros(prior.size)
    gibbs.draw_tables(topic[: lists[-1]], count[: lists[-1]], prior, key, drawn)
    np.testing.assert_array_equal(drawn, naive.draw_tables(topic[: lists[-1]], count[: lists[-1]], prior, key))
    assert drawn.sum() <= z.size


@pytest.mark.parametrize("prior", [0.003, 0.5, 7.0])
def test_word_rising__equals_the_naive_version(prior):
    """This includes counts so large that they are not tallied."""
    row = np.random.default_rng(1).poisson(3.0, (5, 7)).astype(np.int32)
    row[2, 3:6] = TALLIED_COUNTS - 1, TALLIED_COUNTS, 10 * TALLIED_COUNTS
    sums = np.zeros(2)
    gibbs.word_rising(row, prior, sums)
    np.testing.assert_allclose(sums, naive.word_rising(row, prior), rtol=1e-10)


@given(samples())
def test_draw_topics__equals_the_naive_version(sample):
    shard, z, elsewhere, _, key = sample
    noise = np.random.default_rng(z.size)
    theta, phi = noise.dirichlet(np.full(3, 0.3), shard.documents), noise.dirichlet(np.full(3, 0.3), shard.words.size)
    phi[0] = 0.0  # a word that the other run lacks
    found = np.empty(z.size, dtype=np.uint16)
    gibbs.draw_topics(document_pairs(shard), theta, phi, key, found)
    np.testing.assert_array_equal(found, naive.draw_topics(*document_pairs(shard)[:3], theta, phi, key))


def test_numbers__equal_the_naive_version_and_are_uniform():
    key = Stream(3, "numbers").key()
    numbers = np.array([random.uniform(key, 10 + n) for n in range(4000)])
    np.testing.assert_array_equal(numbers[:50], [uniform(key, 10 + n) for n in range(50)])
    tallied = np.histogram(numbers, bins=20, range=(0.0, 1.0))[0]
    assert ((tallied - 200.0) ** 2 / 200.0).sum() < 43.8  # p = 0.001 with 19 degrees of freedom
    assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 3.3 / np.sqrt(4000)
    assert len({Stream(3, "numbers", 0, place).key().tobytes() for place in range(9)}) == 9
