"""Topics of several models: overlaps against plain sums, matching, and averages over documents and words."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from collapsium.pipeline import Corpus, Model
from collapsium.pipeline.engine.consensus import (
    ABSENT,
    ATTEMPTS,
    JoinedModel,
    JoinedReference,
    Overlaps,
    _assigned,
    _matched_again,
    document_overlaps,
    join,
    total_overlaps,
    word_overlaps,
)
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.storage.errors import ClusterError
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.random_streams import Stream
from tests.fits import LosingExecutor


def models_of(single, permutation=(0, 1, 2)):
    """Return three fits with the columns that match each with itself, except that the last one's columns are permuted."""
    models = [replace(JoinedModel.of(str(single / str(n))), columns=(0, 1, 2)) for n in range(3)]
    return [*models[:2], replace(models[2], columns=permutation)]


def test_word_overlaps__are_bhattacharyya_coefficients_with_the_mean(single):
    mean = models_of(single, (2, 0, 1))
    found = word_overlaps(mean, mean, 0)
    phi = [Model(fit.url).topic_word for fit in mean]
    average = np.mean([phi[0], phi[1], phi[2][[2, 0, 1]]], axis=0)
    for member, overlaps in zip(phi, found, strict=True):
        expected = np.sqrt(average) @ np.sqrt(member).T
        assert overlaps.coefficients == pytest.approx(expected, abs=1e-5)


def test_document_overlaps__are_cosines_with_the_mean(small, single):
    mean, corpus = models_of(single, (1, 2, 0)), Corpus(small[0])
    parts = [document_overlaps(mean, mean, shard, 1) for shard in corpus.references]
    lengths = np.concatenate([shard.load().lengths for shard in corpus.references]).astype(float)
    theta = [Model(fit.url).document_topic.astype(float) * np.sqrt(lengths)[:, np.newaxis] for fit in mean]
    average = np.mean([theta[0], theta[1], theta[2][:, [1, 2, 0]]], axis=0)
    for member, overlaps in zip(theta, total_overlaps(parts), strict=True):
        norms = np.outer(np.linalg.norm(average, axis=0), np.linalg.norm(member, axis=0))
        assert overlaps.cosines == pytest.approx(average.T @ member / norms, abs=1e-3)


@given(st.data())
def test_overlaps__add_exactly_in_any_order(data):
    rows = data.draw(st.integers(2, 12))
    steps = hnp.arrays(np.float64, (rows, 3), elements=st.integers(0, 1 << 20).map(float))
    joined, member = data.draw(steps), data.draw(steps)
    order = np.array(data.draw(st.permutations(range(rows))))
    weights, cut = np.ones(rows), data.draw(st.integers(0, rows))
    whole = Overlaps.of(joined, member, weights)
    some, rest = order[:cut], order[cut:]
    added = Overlaps.of(joined[some], member[some], weights[some]) + Overlaps.of(
        joined[rest], member[rest], weights[rest]
    )
    for name in ("products", "joined", "member"):
        assert np.array_equal(getattr(whole, name), getattr(added, name))


@given(st.permutations(range(6)), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_matching__recovers_a_permutation_and_keeps_seeded_topics_in_place(permutation, fixed, seed):
    permutation = [*range(fixed), *(topic for topic in permutation if topic >= fixed)]
    similar = np.random.default_rng(seed).random((6, 6)) * 0.5
    similar[np.arange(6), permutation] += 1.0
    first = JoinedModel("", tuple(range(6)), fixed, tuple(range(6)))
    places, topics = _assigned(similar, first, JoinedModel("", tuple(range(6)), fixed))
    assert dict(zip(places.tolist(), topics.tolist(), strict=True)) == dict(enumerate(permutation))
    # Topics of the same seeds are matched, however different they are.
    places, topics = _assigned(-similar + 2.0, first, JoinedModel("", tuple(range(6)), fixed))
    assert [topic for place, topic in zip(places, topics, strict=True) if place < fixed] == list(range(fixed))


def test_a_model_with_fewer_topics__leaves_some_topics_unmatched(small, single):
    first = replace(JoinedModel.of(str(single / "0")), columns=(0, 1, 2))
    member = JoinedModel.of(str(single / "1"))
    places, topics = _assigned(np.eye(3)[:, [0, 2]], first, replace(member, topics=(0, 2)))
    assert len(places) == 2
    smaller = replace(member, topics=(0, 2), columns=(2, ABSENT, 0))
    shard = Corpus(small[0]).references[0].load()
    reference = JoinedReference(first.url, 0, first.columns, 1.0, models=(first, smaller))
    arrays = reference.arrays(shard, Stream(0))
    theta = [Model(fit.url).document_topic[: shard.documents] for fit in (first, smaller)]
    phi = [Model(fit.url).topic_word[:, shard.words].T for fit in (first, smaller)]
    assert arrays["document_topic"][:, 0] == pytest.approx((theta[0][:, 0] + theta[1][:, 2]) / 2, abs=1e-6)
    assert arrays["document_topic"][:, 1] == pytest.approx(theta[0][:, 1] / 2, abs=1e-6)
    assert arrays["word_topic"][:, 1] == pytest.approx(phi[0][:, 1], abs=1e-6)
    assert arrays["word_topic"][:, 2] == pytest.approx((phi[0][:, 2] + phi[1][:, 0]) / 2, abs=1e-6)


def test_combining__gives_the_same_result_after_work_was_lost(small, single):
    urls, corpus = [str(single / str(n)) for n in range(3)], Corpus(small[0])
    whole, losing = join(urls, corpus, SerialExecutor(), 1), LosingExecutor(SerialExecutor(), 5)
    losing.recover = lambda error: None
    assert join(urls, corpus, losing, 2) == whole
    assert losing.losses


def test_combining__releases_memory_that_is_reserved_for_sweeps(small, single):
    pool = buffers.pool
    pool.reserve([1 << 26])
    assert sum(len(piece) for piece in pool._free) > pool.settings.idle_bytes
    join([str(single / str(n)) for n in range(3)], Corpus(small[0]), SerialExecutor(), 1)
    assert sum(len(piece) for piece in pool._free) <= pool.settings.idle_bytes


def test_work_that_is_lost_repeatedly__ends_the_combining(small, single):
    losing = LosingExecutor(SerialExecutor(), 1)
    recovered = []
    losing.recover = recovered.append
    models = models_of(single)
    with pytest.raises(ClusterError, match="on purpose"):
        _matched_again(models, models, Corpus(small[0]), losing, 1)
    assert len(recovered) == ATTEMPTS - 1


def test_copies_of_a_model__are_matched_topic_by_topic(small, single):
    joined = join([str(single / "0")] * 3, Corpus(small[0]), SerialExecutor(), 1)
    assert joined.overlap == pytest.approx(1.0, abs=1e-4)
    assert {model.columns for model in joined.models} == {(0, 1, 2)}
