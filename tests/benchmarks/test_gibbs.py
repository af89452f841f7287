"""Micro-benchmarks of the Gibbs kernels, like `tests.benchmarks.test_kernels`."""

import numpy as np
import pytest

from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.families.gibbs.sampler import padded
from collapsium.workers.kernels.gibbs.topics import (
    DocumentTopics,
    TopicCounts,
    TopicPrior,
    TopicSlots,
    WordPrior,
    draw_tables,
    list_documents,
    sweep_tokens,
    word_rising,
)
from tests.benchmarks.test_kernels import MANY, ROUNDS, shard_of


@pytest.fixture(scope="module", params=MANY)
def sample(request):
    """Return a shard, topics of its tokens, counts by word and topic, and a_k, with two topics per document."""
    generator = np.random.default_rng(0)
    shard, topics = shard_of(generator), request.param
    document_topics = np.repeat(generator.integers(0, topics, (shard.documents, 2)), shard.lengths, axis=0)
    z = document_topics[np.arange(shard.tokens), generator.integers(0, 2, shard.tokens)].astype(np.uint16)
    row = np.zeros((shard.words.size, padded(topics)), dtype=np.int32)
    np.add.at(row, (np.repeat(shard.position, shard.counts), z), 1)
    prior = np.zeros(padded(topics))
    prior[:topics] = 0.1
    return shard, z, row, prior


def listed(shard, z, prior, tables):
    lists, count = np.zeros(shard.documents + 1, dtype=np.int64), np.zeros(z.size, dtype=np.float32)
    topic, mean = np.zeros(z.size, dtype=np.uint16), np.zeros(prior.size if tables else 0)
    return document_pairs(shard), z, prior, DocumentTopics(lists, topic, count), mean, np.zeros(1)


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_sweep_tokens(benchmark, sample, gamma):
    shard, z, row, prior = sample
    none, key = np.zeros(prior.size, dtype=np.int64), Stream(0).key()
    common = document_pairs(shard), key, WordPrior(0.1, 0.1 * len(row))

    def again():
        free = np.flatnonzero(prior == 0.0)
        slots, topic_prior = TopicSlots(gamma, none, free, np.array([free.size])), TopicPrior(prior.copy(), np.ones(1))
        topic_counts = TopicCounts(row.sum(axis=0).astype(np.float64), row.copy())
        return (*common, topic_prior, slots, topic_counts, z.copy(), np.zeros(3, dtype=np.int64)), {}

    benchmark.pedantic(sweep_tokens, setup=again, rounds=ROUNDS, warmup_rounds=1)
    benchmark.extra_info.update(tokens=shard.tokens)


@pytest.mark.parametrize("tables", [False, True])
def test_list_documents(benchmark, sample, tables):
    shard, z, _, prior = sample
    benchmark(list_documents, *listed(shard, z, prior, tables))


def test_draw_tables(benchmark, sample):
    shard, z, _, prior = sample
    arguments = listed(shard, z, prior, False)
    list_documents(*arguments)
    offsets, topic, count = arguments[3]
    benchmark(draw_tables, topic[: offsets[-1]], count[: offsets[-1]], prior, Stream(0).key(), np.zeros(prior.size))


def test_word_rising(benchmark, sample):
    benchmark(word_rising, sample[2], 0.1, np.zeros(2))
