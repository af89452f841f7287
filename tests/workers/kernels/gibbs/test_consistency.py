"""Kernels that compare tokens read from disk with counts and with labels, against naive versions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.kernels.gibbs.consistency import (
    FingerprintKeys,
    find_disallowed,
    find_uncounted,
    fingerprint_levels,
    fingerprint_rows,
    fingerprint_tokens,
)
from collapsium.workers.kernels.gibbs.topics import DocumentLabels
from tests.naive import gibbs as naive
from tests.naive import gibbs_labels
from tests.workers.kernels.gibbs.test_topics import counted, samples

pytestmark = [pytest.mark.kernels, pytest.mark.usefixtures("wrapping")]


@given(samples(), st.sampled_from(["nothing", "a token", "no column", "a cell", "a total"]), st.randoms())
def test_find_uncounted__finds_the_token_that_the_naive_version_finds(sample, change, draw):
    shard, z, elsewhere, _, _ = sample
    word_topic, column = counted(shard, z, elsewhere), z.astype(np.int64)
    totals, cells = word_topic.sum(axis=0, dtype=np.int64), word_topic.reshape(-1)
    if change in ("a token", "no column") and column.size:
        column[draw.randrange(column.size)] = -1 if change == "no column" else draw.randrange(totals.size + 2)
    elif change == "a cell" and cells.size:
        cells[draw.randrange(cells.size)] = 0
    elif change == "a total":
        totals[draw.randrange(totals.size)] //= 2
    expected = naive.uncounted(np.repeat(shard.position, shard.counts), column, word_topic, totals)
    found = np.zeros(1, dtype=np.int64)
    find_uncounted(document_pairs(shard), column, word_topic, totals, found)
    assert found[0] == expected
    if change in ("nothing", "no column"):
        assert found[0] == -1


def keys_of(draw, rows, columns):
    """Return random keys of rows and columns."""
    generator = np.random.default_rng(draw.randrange(1 << 32))
    return FingerprintKeys(*(generator.integers(0, 1 << 64, size, dtype=np.uint64) for size in (rows, columns)))


def fingerprint_of(shard, z, keys):
    """Return the fingerprint of tokens."""
    total = np.zeros(1, dtype=np.uint64)
    fingerprint_tokens(document_pairs(shard), z, keys, total)
    return int(total[0])


@given(samples(), st.randoms())
def test_fingerprints_of_tokens_and_of_their_counts__equal_the_naive_version(sample, draw):
    shard, z, elsewhere, _, _ = sample
    keys, words = keys_of(draw, *elsewhere.shape), np.repeat(shard.position, shard.counts)
    counts, totals, total = (
        counted(shard, z, 0 * elsewhere),
        np.zeros(elsewhere.shape[1], np.int64),
        np.zeros(1, np.uint64),
    )
    fingerprint_rows(counts, keys, totals, total)
    assert fingerprint_of(shard, z, keys) == int(total[0]) == naive.fingerprint(words, z, *keys)
    assert totals.tolist() == counts.sum(axis=0).tolist()


@given(samples(), st.randoms())
def test_fingerprints_of_tokens__differ_if_the_counts_do(sample, draw):
    shard, z, elsewhere, _, _ = sample
    keys, shuffled = keys_of(draw, *elsewhere.shape), z.copy()
    draw.shuffle(shuffled)
    same = np.array_equal(counted(shard, z, elsewhere), counted(shard, shuffled, elsewhere))
    assert (fingerprint_of(shard, z, keys) == fingerprint_of(shard, shuffled, keys)) is same


@given(samples(), st.integers(1, 4), st.randoms())
def test_fingerprint_levels__equals_the_naive_version(sample, levels, draw):
    shard, _, elsewhere, _, _ = sample
    generator, columns = np.random.default_rng(draw.randrange(1 << 32)), elsewhere.shape[1]
    path = generator.integers(-1, columns, (shard.documents, levels), dtype=np.int32)
    level, total = generator.integers(0, levels, shard.tokens, dtype=np.uint8), np.zeros(1, dtype=np.uint64)
    keys = keys_of(draw, *elsewhere.shape)
    fingerprint_levels(document_pairs(shard), level, path, keys, total)
    column = path[np.repeat(np.arange(shard.documents), shard.lengths), level]
    assert int(total[0]) == naive.fingerprint(np.repeat(shard.position, shard.counts), column, *keys)


@given(samples(), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), st.randoms())
def test_find_disallowed__finds_the_document_that_the_naive_version_finds(sample, labels, per_label, background, draw):
    shard, topics = sample[0], labels * per_label + background
    document_labels = [sorted(draw.sample(range(labels), draw.randint(0, labels))) for _ in range(shard.documents)]
    lists, label = (
        np.cumsum([0, *map(len, document_labels)]),
        np.array([label for row in document_labels for label in row], dtype=np.int32),
    )
    allowed = gibbs_labels.allowed_of(lists, label, per_label, background, topics)
    z = [draw.choice(allowed[d].tolist()) for d, length in enumerate(shard.lengths) for _ in range(length)]
    for change in (False, True):
        if change and z:
            z[draw.randrange(len(z))] = draw.randrange(topics)
        found, token_topic = np.zeros(1, dtype=np.int64), np.array(z, dtype=np.uint16)
        given_labels = DocumentLabels(lists.astype(np.int64), label, per_label, background)
        find_disallowed(given_labels, shard.lengths, token_topic, topics, found)
        assert found[0] == gibbs_labels.disallowed(allowed, shard.lengths, token_topic)
        assert change or found[0] == -1
