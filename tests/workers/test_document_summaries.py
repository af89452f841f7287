"""Examples of topics and sums of labels do not depend on how the documents are divided into shards."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.parquet import LABELS
from collapsium.workers.document_summaries import MAX_CELLS, Candidates, Labelled, explained, summarise, too_many

sizes = st.integers(1, 40)


def random_documents(seed, documents, topics):
    """Return random proportions with ties, numbers of tokens, some of them zero, and labels."""
    generator = np.random.default_rng(seed)
    theta = np.round(generator.dirichlet(np.full(topics, 0.3), size=documents), 1)
    tokens = generator.integers(0, 5, documents).astype(float)
    labels = pa.array(
        [
            [{"field": "f", "value": "abc"[letter]} for letter in generator.integers(0, 3, generator.integers(0, 3))]
            or None
            for _ in range(documents)
        ],
        LABELS,
    )
    return theta, tokens, labels


@given(st.integers(0, 10_000), sizes, st.integers(1, 6), st.integers(1, 4))
def test_examples__have_the_largest_shares_over_all_shards(seed, documents, topics, count):
    theta, tokens, labels = random_documents(seed, documents, topics)
    cut = documents // 2
    parts = [
        summarise(theta[low:high], tokens[low:high], shard, labels[low:high], count)
        for shard, (low, high) in enumerate(((0, cut), (cut, documents)))
    ]
    best = Candidates.join([part.candidates for part in parts]).best(count)
    for topic in range(topics):
        order = sorted(
            (document for document in range(documents) if tokens[document] > 0 and theta[document, topic] >= 0.01),
            key=lambda document: (-theta[document, topic], -tokens[document], document),
        )[:count]
        examples = best.take(np.flatnonzero(best.topic == topic))
        assert (examples.shard * cut + examples.row).tolist() == order
        assert np.allclose(examples.share, theta[order, topic])
        assert np.allclose(examples.shares[:, 0], theta[order].max(axis=1))
    whole = summarise(theta, tokens, 0, labels, count)
    assert whole.documents == sum(part.documents for part in parts) == np.count_nonzero(tokens)
    assert np.array_equal(whole.largest, parts[0].largest + parts[1].largest)


@given(st.integers(0, 10_000), sizes, st.integers(1, 6))
def test_labels__are_counted_once_per_document(seed, documents, topics):
    theta, tokens, labels = random_documents(seed, documents, topics)
    cut = documents // 3
    parts = [
        summarise(theta[low:high], tokens[low:high], 0, labels[low:high], 1).fields.get("f")
        for low, high in ((0, cut), (cut, documents))
    ]
    found = [part for part in parts if part is not None]
    total = (
        found[0]
        if len(found) == 1
        else found[0] + found[1]
        if found
        else Labelled([], np.zeros(0), np.zeros((0, topics)))
    )
    for place, value in enumerate(total.values):
        labelled = [
            document
            for document in range(documents)
            if tokens[document] > 0 and any(pair["value"] == value for pair in labels[document].as_py() or ())
        ]
        assert total.documents[place] == len(labelled) > 0
        assert np.allclose(total.sums[place], theta[labelled].sum(axis=0))
    assert total.values == sorted(total.values)


def test_labels_with_too_many_values__are_not_summed():
    single = Labelled(["a"], np.ones(1, dtype=np.int64), np.ones((1, MAX_CELLS // 2 + 1)))
    large = Labelled(["b"], np.ones(1, dtype=np.int64), np.ones((1, MAX_CELLS // 2 + 1)))
    assert (single + large).values is None
    assert (too_many(3) + single).values is None
    assert (single + single).documents.tolist() == [2]


def test_words__are_those_that_a_topic_explains():
    expected = np.array([[5.0, 0.0], [1.5, 1.5], [0.0, 2.0], [0.0, 0.0]])
    shares, topics = np.array([0.5, 0.5]), np.array([7, 2])
    found = explained(expected, topics, shares, [7, 2, 9], 2)
    assert {topic: words.tolist() for topic, words in found.items()} == {7: [0, 1], 2: [2, 1]}
