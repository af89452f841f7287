"""Segments of documents in shards."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.list_columns import segments_of
from collapsium.storage.corpus.shard import EXTRAS, Documents, Shard
from collapsium.workers.shard_loading import open_shard, store_shard

SEGMENT = st.dictionaries(st.integers(0, 9), st.integers(1, 4), max_size=4)
DOCUMENTS = st.lists(st.one_of(st.none(), st.lists(SEGMENT, max_size=4)), min_size=1, max_size=5)


def documents_of_segments(rows):
    """Return documents of lists of segments, each a {word number: count}."""
    documents = [row or [] for row in rows]
    pairs = [(word, part[word]) for document in documents for part in document for word in sorted(part)]
    lengths = [sum(map(len, document)) for document in documents]
    words, counts = (np.array([pair[place] for pair in pairs], dtype=np.int32) for place in (0, 1))
    segments = pa.array([None if row is None else [len(part) for part in row] for row in rows], EXTRAS["segments"])
    ids = pa.array([str(n) for n in range(len(rows))], pa.string())
    return Documents(ids, np.cumsum([0, *lengths]), words, counts, {"segments": segments})


@given(DOCUMENTS)
def test_shards__keep_each_segment_with_its_words(rows):
    shard = Shard.of(0, documents_of_segments(rows), segmented=True)
    found = []
    for document in range(shard.documents):
        first, last = shard.segments.documents[document], shard.segments.documents[document + 1]
        bounds = [(shard.segments.pairs[g], shard.segments.pairs[g + 1]) for g in range(first, last)]
        found.append([{shard.words[shard.position[p]]: shard.counts[p] for p in range(*bound)} for bound in bounds])
    assert found == [row or [] for row in rows]
    assert len(shard.segments) == sum(map(len, found))


@given(DOCUMENTS)
def test_segments__are_preserved_in_scratch_files(tmp_path_factory, rows):
    shard = Shard.of(3, documents_of_segments(rows), segmented=True)
    again = open_shard(store_shard(shard, str(tmp_path_factory.mktemp("scratch"))))
    np.testing.assert_array_equal(again.segments.documents, shard.segments.documents)
    np.testing.assert_array_equal(again.segments.pairs, shard.segments.pairs)
    assert again.labels is None


@given(DOCUMENTS)
def test_families_without_segments__get_them_merged(rows):
    shard = Shard.of(0, documents_of_segments(rows))
    assert shard.segments is None
    whole = Shard.of(0, documents_of_segments(rows), segmented=True)
    np.testing.assert_array_equal(shard.lengths, whole.lengths)
    assert shard.pairs <= whole.pairs


def test_documents_without_the_column__have_a_single_segment_each():
    offsets = np.array([0, 2, 2, 5])
    found = segments_of(offsets, {})
    np.testing.assert_array_equal(found.documents, [0, 1, 2, 3])
    np.testing.assert_array_equal(found.pairs, offsets)


@given(DOCUMENTS)
def test_emptied_shards__have_the_same_number_of_segments(rows):
    shard = Shard.of(0, documents_of_segments(rows), segmented=True)
    empty = shard.emptied()
    assert len(empty.segments) == len(shard.segments)
    assert not empty.segments.pairs.any()
