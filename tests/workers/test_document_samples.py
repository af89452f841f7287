"""Samples of documents are nested, random, and the same on all executors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.labels import Segments
from collapsium.storage.corpus.shard import Shard
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.shard_loading import DocumentSample

STREAM = Stream(3, "grow")


def random_shard(documents, seed, number=2):
    """Return a shard of random documents, some of which are empty."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(0, 6, documents)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    words = np.sort(generator.choice(50, 12, replace=False)).astype(np.int32)
    position = generator.integers(12, size=offsets[-1]).astype(np.int32)
    counts = generator.integers(1, 4, offsets[-1]).astype(np.int32)
    return Shard(number, offsets, words, position, counts)


def pairs_of(shard, document):
    """Return the words and counts of a document."""
    pairs = slice(*shard.offsets[document : document + 2])
    return shard.words[shard.position[pairs]].tolist(), shard.counts[pairs].tolist()


@given(st.integers(0, 40), st.integers(0, 5), st.sampled_from([2, 4, 8]))
def test_a_sample__has_the_words_of_at_most_one_document_in_n(documents, seed, every):
    shard = random_shard(documents, seed)
    sample = DocumentSample(STREAM, every).of(shard)
    assert sample.documents == documents
    retained = [pairs_of(sample, document) != ([], []) for document in range(documents)]
    assert sum(retained) <= -(-documents // every)
    for document in np.flatnonzero(retained):
        assert pairs_of(sample, document) == pairs_of(shard, document)
    assert np.array_equal(sample.words, np.unique(sample.words[sample.position]))


@given(st.integers(0, 40), st.integers(0, 5), st.sampled_from([(8, 4), (4, 2), (4, 1), (2, 1)]))
def test_joining_documents_and_earlier_ones__make_the_sample(documents, seed, sizes):
    shard, (before, every) = random_shard(documents, seed), sizes
    growing = DocumentSample(STREAM, every, before)
    old, joining, new = DocumentSample(STREAM, before).of(shard), growing.joining(shard), growing.of(shard)
    assert growing.grows
    for document in range(documents):
        first, second = pairs_of(old, document), pairs_of(joining, document)
        assert ([], []) in (first, second)
        assert pairs_of(new, document) == (second if first == ([], []) else first)


def test_samples__differ_by_shard_and_seed():
    shard = random_shard(100, 0)
    samples = [
        DocumentSample(stream, 4).of(random_shard(100, 0, number)).lengths.tolist()
        for stream, number in ((STREAM, 2), (STREAM, 3), (Stream(4, "grow"), 2))
    ]
    assert samples[0] == DocumentSample(STREAM, 4).of(shard).lengths.tolist()
    assert samples[0] != samples[1]
    assert samples[0] != samples[2]


def test_a_sample_of_all_documents__is_the_shard_itself():
    shard = random_shard(10, 0)
    assert DocumentSample(STREAM, 1, 2).of(shard) is shard


@pytest.mark.parametrize("keep", [[True, False, True], [False, False, False]])
def test_documents_without_words__retain_their_segments(keep):
    offsets, words = np.array([0, 3, 4, 6]), np.arange(6, dtype=np.int32)
    segments = Segments(np.array([0, 2, 3, 4]), np.array([0, 1, 3, 4, 6]))
    shard = Shard(0, offsets, words, words, np.ones(6, dtype=np.int32), segments=segments)
    part = shard.of_documents(np.array(keep))
    assert np.diff(part.segments.documents).tolist() == [2, 1, 1]
    expected = np.array([1, 2, 1, 2]) * np.repeat(keep, [2, 1, 1])
    assert np.diff(part.segments.pairs).tolist() == expected.tolist()
    assert part.segments.pairs[-1] == part.pairs
