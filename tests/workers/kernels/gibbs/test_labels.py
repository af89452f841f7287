import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus import list_columns
from collapsium.storage.corpus.labels import LabelTable
from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.corpus.shard import Shard
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.families.gibbs.author_topic import AuthorTopic, AuthorTopicGlobalState
from collapsium.workers.families.gibbs.labeled_lda import (
    AllowedTopics,
    LabelTopicsFamily,
    LabelTopicsGlobalState,
    TopicSizes,
)
from collapsium.workers.families.gibbs.states import LabelLists, SampledRows
from collapsium.workers.kernels.gibbs.labels import fold_in_labels, label_probability, sweep_authors, sweep_labels
from collapsium.workers.kernels.gibbs.topics import (
    DocumentAuthors,
    DocumentTopics,
    FixedTopics,
    TokenAssignments,
    TopicCounts,
    WordPrior,
)
from tests.conftest import labels_of
from tests.naive import gibbs_labels as naive
from tests.strategies import bags, documents_of

pytestmark = pytest.mark.usefixtures("wrapping")


@st.composite
def samples(draw):
    """Draw a shard, the topics allowed in its documents, topics of its tokens, and counts of other shards."""
    rows, _ = draw(bags())
    shard = Shard.of(0, documents_of(rows))
    noise = np.random.default_rng(draw(st.integers(0, 2**31)))
    labels, per_label, background = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(0, 2))
    has = noise.random((shard.documents, labels)) < draw(st.sampled_from([0.0, 0.4, 1.0]))
    lists, label = np.concatenate([[0], np.cumsum(has.sum(axis=1))]), np.nonzero(has)[1].astype(np.int32)
    allowed = AllowedTopics(
        LabelLists(lists, label), TopicSizes(per_label, background), labels * per_label + background
    )
    elsewhere = noise.poisson(draw(st.sampled_from([0.0, 2.0])), (shard.words.size, allowed.topics)).astype(np.int32)
    return shard, allowed, elsewhere, noise, Stream(draw(st.integers(0, 2**31)), "sweep").key()


WORD_PRIOR = WordPrior(0.3, 1.5)


def counted(shard, z, elsewhere):
    row = elsewhere.copy()
    np.add.at(row, (np.repeat(shard.position, shard.counts), z), 1)
    return row


def draw_topics(shard, allowed, noise):
    owner = np.repeat(np.arange(shard.documents), shard.lengths)
    place = (noise.random(shard.tokens) * allowed.counts()[owner]).astype(np.int64)
    return owner, allowed.topic(owner, place).astype(np.uint16)


@given(samples())
def test_allowed__are_the_topics_of_the_labels_and_the_background(sample):
    _, allowed, *_ = sample
    expected = naive.allowed_of(*allowed.record, allowed.topics)
    starts, document, topic = allowed.flat()
    assert [topics.tolist() for topics in expected] == [
        topic[a:b].tolist() for a, b in zip(starts, starts[1:], strict=False)
    ]
    every = np.arange(allowed.topics)
    for number, topics in enumerate(expected):
        np.testing.assert_array_equal(allowed.contain(np.full(every.size, number), every), np.isin(every, topics))


@pytest.mark.kernels
@given(samples())
def test_sweep__equals_the_naive_version(sample):
    shard, allowed, elsewhere, noise, key = sample
    _, z = draw_topics(shard, allowed, noise)
    row, found = counted(shard, z, elsewhere), z.copy()
    totals = row.sum(axis=0).astype(np.float64)
    sweep_labels(document_pairs(shard), key, allowed.record, 0.2, WORD_PRIOR, TopicCounts(totals, row), found)
    topics = naive.allowed_of(*allowed.record, allowed.topics)
    expected = naive.sweep(*document_pairs(shard)[:3], key, topics, 0.2, *WORD_PRIOR, elsewhere, z)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(row, counted(shard, found, elsewhere))
    np.testing.assert_array_equal(totals, row.sum(axis=0))


@pytest.mark.kernels
@given(samples(), st.sampled_from([0.05, 1.0]), st.sampled_from([1, 40]))
def test_fold_in_and_probability__equal_the_naive_version(sample, prior, sweeps):
    shard, allowed, row, noise, _ = sample
    inverse, row = 1.0 / (row.sum(axis=0) + 2.0), row.astype(np.float32)
    phi, allowed_topics = (row + 0.4) * inverse, naive.allowed_of(*allowed.record, allowed.topics)
    topics = FixedTopics(row, 0.4, inverse)
    starts, document, _ = allowed.flat()
    topic, count = np.empty(document.size, np.uint16), np.empty(document.size, np.float32)
    folded_in = DocumentTopics(starts, topic, count)
    fold_in_labels(document_pairs(shard), allowed.record, topics, prior, sweeps, folded_in)
    expected = naive.fold_in(*document_pairs(shard)[:3], phi, allowed_topics, prior, sweeps)
    np.testing.assert_allclose(count, np.concatenate(expected), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(topic, np.concatenate(allowed_topics))
    dense, probability = np.zeros((shard.documents, allowed.topics)), np.empty(shard.pairs)
    dense[document, topic] = count
    document_topics = DocumentTopics(starts, topic, count)
    label_probability(document_pairs(shard), allowed.record, topics, prior, document_topics, probability)
    expected = naive.probability(shard.offsets, shard.position, phi, allowed_topics, prior, dense)
    np.testing.assert_allclose(probability, expected, rtol=1e-6)


@pytest.mark.kernels
@given(samples())
def test_sweep_authors__equals_the_naive_version(sample):
    shard, allowed, elsewhere, noise, key = sample
    authors = [np.flatnonzero(noise.random(4) < 0.5) for _ in range(shard.documents)]
    authors = [document_authors if document_authors.size else np.array([4]) for document_authors in authors]
    lists, author = (
        np.cumsum([0, *(document_authors.size for document_authors in authors)]),
        np.concatenate(authors).astype(np.int32),
    )
    owner = np.repeat(np.arange(shard.documents), shard.lengths)
    z = noise.integers(0, allowed.topics, shard.tokens).astype(np.uint16)
    a = (noise.random(shard.tokens) * np.diff(lists)[owner]).astype(np.uint16)
    counts = noise.poisson(1.0, (5, allowed.topics)).astype(np.int32)

    def by_author(z, a):
        found = counts.copy()
        np.add.at(found, (author[lists[owner] + a], z), 1)
        return found

    row, table, found, chosen = counted(shard, z, elsewhere), by_author(z, a), z.copy(), a.copy()
    totals = row.sum(axis=0).astype(np.float64)
    sweep_authors(
        document_pairs(shard),
        key,
        DocumentAuthors(lists, author),
        0.2,
        WORD_PRIOR,
        TopicCounts(totals, row),
        table,
        TokenAssignments(found, chosen),
    )
    expected = naive.sweep_authors(*document_pairs(shard)[:3], key, authors, 0.2, *WORD_PRIOR, elsewhere, counts, z, a)
    np.testing.assert_array_equal(found, expected[0])
    np.testing.assert_array_equal(chosen, expected[1])
    np.testing.assert_array_equal(row, counted(shard, found, elsewhere))
    np.testing.assert_array_equal(table, by_author(found, chosen))
    np.testing.assert_array_equal(totals, row.sum(axis=0))


TABLE = LabelTable((("kind", "a"), ("kind", "b")), (1, 1), (), 2, 2)
COMMON = {"vocabulary": 4.0, "alpha": 0.5, "beta": 0.4, "label_table": TABLE.packed()}
EACH = [[("kind", "b")], [("kind", "a"), ("kind", "b")], [("kind", "new"), ("other", "a")], []]


def unseen():
    """Return four documents: with one label, with both, with unknown labels, and without labels."""
    column = pa.array([labels_of(labels) for labels in EACH], LABELS)
    shard = Shard.of(0, documents_of([{0: 2, 3: 1}] * 4))
    return Shard(
        0, shard.offsets, shard.words, shard.position, shard.counts, list_columns.labels_of(4, {"labels": column})
    )


def rows_of(shard, topics):
    return SampledRows(np.arange(shard.words.size * topics, dtype=np.int32).reshape(-1, topics))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1, 0), [[0, 1], [1, 1], [1, 1], [1, 1]]),
        ((2, 1), [[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 1]]),
        ((2, 0), [[0, 0, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]),
    ],
)
def test_documents_without_words__have_equal_shares_of_the_topics_of_their_labels(sizes, expected):
    """Labels that training lacked are ignored."""
    topics, shard = 2 * sizes[0] + sizes[1], unseen()
    global_state = LabelTopicsGlobalState(
        **COMMON,
        topic=np.full(topics, 9),
        label_topics=sizes[0],
        background_topics=sizes[1],
        carried=False,
        single_topics=False,
    )
    family = LabelTopicsFamily(None)
    expected = np.array(expected) / np.sum(expected, axis=1, keepdims=True)
    empty = shard.emptied()
    local = family.fold_in(empty, rows_of(empty, topics), global_state, Stream(0))
    np.testing.assert_allclose(family.infer(local, global_state)["document_topic"], expected)
    np.testing.assert_array_equal(family.document_lengths(local), np.zeros(4))
    rows = rows_of(shard, topics)
    phi = family.probabilities(rows, global_state)["word_topic"]
    table = family.predict(shard, local, rows, global_state)
    np.testing.assert_allclose(table["probability"], (expected @ phi.T).ravel(), rtol=1e-6)
    filled = family.infer(family.fold_in(shard, rows, global_state, Stream(0)), global_state)["document_topic"]
    assert ((filled > 0.0) == (expected > 0.0)).all()
    assert not np.allclose(filled[1], expected[1])


def test_author_topic__predicts_the_mean_of_the_authors_for_any_words():
    held = np.array([[4, 0, 0], [0, 1, 5], [2, 2, 0]])
    shard, global_state = unseen(), AuthorTopicGlobalState(**COMMON, label_topic=held, topic=held.sum(axis=0))
    family = AuthorTopic(None)
    theta = (held + 0.5) / (held.sum(axis=1, keepdims=True) + 1.5)
    expected = np.array([theta[1], theta[:2].mean(axis=0), theta[2], theta[2]])
    for part in (shard, shard.emptied()):
        local = family.fold_in(part, rows_of(part, 3), global_state, Stream(0))
        np.testing.assert_allclose(family.infer(local, global_state)["document_topic"], expected)
        np.testing.assert_array_equal(family.document_lengths(local), part.lengths)
