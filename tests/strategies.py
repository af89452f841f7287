"""Hypothesis strategies for small corpora, shards and trees, and helpers that build shards.

Corpora may have empty documents, a single word, words that never occur, and counts above one.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from collapsium.storage.corpus.labels import running
from collapsium.storage.corpus.list_columns import segment_lists
from collapsium.storage.corpus.shard import Documents, Shard
from collapsium.workers.families.ncrp.tree import FREE, ROOT, Tree


def documents_of(rows, ids=None):
    """Convert a list of documents {word: count} to `Documents`."""
    ids = [str(n + 1) for n in range(len(rows))] if ids is None else ids
    words = [word for row in rows for word in sorted(row)]
    counts = [row[word] for row in rows for word in sorted(row)]
    return Documents(
        pa.array(ids, pa.string()),
        np.cumsum([0, *(len(row) for row in rows)]).astype(np.int64),
        np.array(words, dtype=np.int32),
        np.array(counts, dtype=np.int32),
    )


def segmented_of(documents, ids=None):
    """Convert documents, each a list of segments {word: count}, to `Documents`."""
    joined = documents_of([segment for document in documents for segment in document])
    ids = [str(n + 1) for n in range(len(documents))] if ids is None else ids
    counts = np.array([len(document) for document in documents], dtype=np.int64)
    extras = {"segments": segment_lists(counts, np.diff(joined.offsets))}
    return Documents(pa.array(ids, pa.string()), joined.offsets[running(counts)], joined.words, joined.counts, extras)


def shard_of(documents):
    """Return a shard of documents, each a list of segments {word: count}."""
    return Shard.of(0, segmented_of(documents), segmented=True)


@st.composite
def bags(draw, max_documents=6, max_words=5, max_count=4, some_token=True):
    """Draw a list of documents {word: count}, and the size of the vocabulary."""
    vocabulary = draw(st.integers(1, max_words))
    row = st.dictionaries(st.integers(0, vocabulary - 1), st.integers(1, max_count), max_size=vocabulary)
    rows = draw(st.lists(row, min_size=1, max_size=max_documents))
    if some_token and not any(rows):
        rows[0] = {0: 1}
    return rows, vocabulary


@st.composite
def segmented(draw, max_documents=3, max_segments=4, max_words=3, max_count=2):
    """Draw documents as lists of segments {word: count}; some documents lack segments, and some segments lack words."""
    words = draw(st.integers(1, max_words))
    segment = st.dictionaries(st.integers(0, words - 1), st.integers(1, max_count), max_size=2)
    documents = draw(st.lists(st.lists(segment, max_size=max_segments), min_size=1, max_size=max_documents))
    return documents if any(map(any, documents)) else [*documents, [{0: 1}]]


@st.composite
def shards(draw, **kwargs):
    """Draw a shard and responsibilities q (pairs, topics) whose rows sum to one."""
    rows, _ = draw(bags(**kwargs))
    shard = Shard.of(0, documents_of(rows))
    topics = draw(st.integers(1, 4))
    seed = draw(st.integers(0, 2**31))
    sharp = draw(st.sampled_from([1.0, 0.1, 0.01]))
    q = np.random.default_rng(seed).dirichlet(np.full(topics, sharp), size=shard.pairs).astype(np.float32)
    q /= q.sum(axis=1, keepdims=True)
    return shard, q.reshape(shard.pairs, topics)


def with_token_weights(shard, seed):
    """Return the shard with a random token weight for each pair of document and word."""
    weights = np.random.default_rng(seed).choice([0.01, 0.3, 1.0, 2.7], shard.pairs)
    return replace(shard, weights=weights.astype(np.float32))


def pair_totals(shard):
    """Return the total weight of each pair's tokens, or their number if tokens have no weights."""
    return shard.counts if shard.weights is None else shard.counts * shard.weights.astype(np.float64)


@st.composite
def trees(draw, max_nodes=10, depths=(2, 5), spare=3):
    """Draw a tree whose nodes are columns in random order, some of them free.

    It may be a lone root, and inner nodes may lack children.
    """
    depth = draw(st.integers(*depths))
    picks = draw(st.lists(st.integers(0, 1000), max_size=max_nodes - 1))
    places = draw(st.permutations(range(1, len(picks) + 1 + draw(st.integers(0, spare)))))
    parents = np.full(len(places) + 1, FREE, dtype=np.int64)
    parents[0], levels = ROOT, {0: 0}
    for pick, column in zip(picks, places, strict=False):
        above = [node for node, level in levels.items() if level < depth - 1]
        parents[column] = above[pick % len(above)]
        levels[column] = levels[parents[column]] + 1
    return Tree(parents, depth)
