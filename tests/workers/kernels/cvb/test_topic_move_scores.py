"""Held-out tokens and the gains of moves on them: kernels against naive versions, and their properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.shard import Shard
from collapsium.workers.kernels.cvb import topic_moves as kernels
from collapsium.workers.kernels.cvb.records import TopicCounts
from collapsium.workers.kernels.cvb.topic_moves import Deletions, Merges
from tests.naive import topic_moves as naive
from tests.strategies import bags, documents_of
from tests.workers.kernels.cvb.listed import KEYS, UNIT, Listed, held_out, listed_shards, priors_of, weighed_shards

# Hashes are products and sums of 64-bit integers, whose overflow NumPy reports for scalars, but not for arrays.
pytestmark = [pytest.mark.kernels, pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")]


@given(bags(max_documents=8, max_count=30), KEYS, st.sampled_from([0.0, 0.05, 0.1, 0.5, 0.999, 1.0]))
def test_hold_out__equals_the_naive_version(given_, key, share):
    shard = Shard.of(0, documents_of(given_[0]))
    found = held_out(shard, key, share)
    np.testing.assert_array_equal(
        found, naive.hold_out(shard.offsets, shard.words, shard.position, shard.counts, key, share)
    )
    assert ((found >= 0) & (found <= shard.counts)).all()
    if share in (0.0, 1.0):
        np.testing.assert_array_equal(found, share * shard.counts)


@given(bags(max_documents=6), bags(max_documents=6), KEYS, st.data())
def test_hold_out__depends_only_on_the_address_of_a_token(first, second, key, data):
    """It depends on the document's number, the word and the number of the copy, not on other documents or on how words
    are numbered."""
    number = data.draw(st.integers(0, min(len(first[0]), len(second[0])) - 1))
    word, count, more = data.draw(st.integers(0, 6)), data.draw(st.integers(1, 20)), data.draw(st.integers(0, 5))
    counts = []
    for (rows, _), size in ((first, count), (second, count), (second, count + more)):
        changed = [*rows[:number], {**rows[number], word: size}, *rows[number + 1 :]]
        shard = Shard.of(0, documents_of(changed))
        pairs = np.arange(*shard.offsets[number : number + 2])
        found = held_out(shard, key, 0.5)
        counts.append(int(found[pairs[shard.words[shard.position[pairs]] == word]][0]))
    assert counts[0] == counts[1]
    assert counts[1] <= counts[2] <= counts[1] + more


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5])
def test_hold_out__takes_the_given_share(share):
    """The share is within four standard errors overall, by document, by word and by number of the copy; pairs are
    independent."""
    documents, words, copies = 40, 25, 4
    shard = Shard.of(0, documents_of([dict.fromkeys(range(words), copies)] * documents))
    for key in (1, 2**62 + 12345):
        held = held_out(shard, key, share).reshape(documents, words) / copies
        error = 4 * np.sqrt(share * (1 - share) / copies)
        assert abs(held.mean() - share) < error / np.sqrt(held.size)
        assert (abs(held.mean(axis=1) - share) < error * 1.2 / np.sqrt(words)).all()
        assert (abs(held.mean(axis=0) - share) < error * 1.2 / np.sqrt(documents)).all()
        variance = share * (1 - share) / copies
        assert abs(held.var() / variance - 1) < 0.25
        neighbours = ((held[:, 1:] - share) * (held[:, :-1] - share)).mean() / variance
        assert abs(neighbours) < 4 / np.sqrt(held.size)
    assert (held_out(shard, 1, share) != held_out(shard, 2, share)).any()


def merge_gains(state, rows, held, kept, gone):
    """Return the gains of merges and their squares, by the kernel."""
    return merge_gains_and_scores(state, rows, held, kept, gone)[0]


def merge_gains_and_scores(state, rows, held, kept, gone, ratio=None, groups=2):
    """Return the gains of merges and their squares, and the scores and numbers of tokens of groups of documents."""
    ratio = np.zeros(0) if ratio is None else ratio
    gain, square, score = np.ones(len(kept)), np.ones(len(kept)), np.ones((2, groups))
    candidates = Merges(np.array(kept, dtype=np.int64), np.array(gone, dtype=np.int64), ratio, gain, square)
    priors, topics = priors_of(rows, rows["b"].sum()), TopicCounts(rows["row_topic"], rows["totals"])
    kernels.score_merges(state.pairs, held, state.active, state.sparse, priors, topics, candidates, score)
    return np.stack([gain, square]) - 1, score - 1


def all_pairs(topics):
    return np.array([(k, m) for k in range(topics) for m in range(topics) if k != m]).reshape(-1, 2).T


@given(listed_shards(), st.sampled_from([0.0, 1.0, 50.0]), KEYS, st.sampled_from([0.1, 0.5, 1.0]), st.integers(1, 5))
def test_score_merges__equals_the_naive_version(state, extra, key, share, groups):
    rows, held = state.rows(extra), held_out(state.shard, key, share)
    kept, gone = all_pairs(state.topics)
    found, score = merge_gains_and_scores(state, rows, held, kept, gone, groups=groups)
    where = *state.pair_arrays[:2], held, state.lists, state.topic, *state.counts
    parts = rows["a"], rows["b"], rows["totals"], rows["row_topic"]
    twin = naive.score_merges(*where, *parts, rows["b"].sum(), kept, gone)
    np.testing.assert_allclose(found, twin, rtol=1e-7, atol=1e-10)
    group = np.repeat(np.arange(state.shard.documents), np.diff(state.shard.offsets)) % groups
    for place in range(groups):
        some = (*where[:2], np.where(group == place, held, 0), *where[3:])
        np.testing.assert_allclose(score[:, place], naive.score(*some, *parts), rtol=1e-7, atol=1e-10)


@given(weighed_shards(), KEYS)
def test_score_merges__divides_by_the_unweighted_tokens_of_topics_if_words_have_weights(state, key):
    rows, held = state.rows(5.0), held_out(state.shard, key, 0.5)
    ratio = state.noise.uniform(0.2, 3.0, state.topics)
    score = merge_gains_and_scores(state, rows, held, [], [], ratio)[1].sum(axis=1)
    where = *state.pair_arrays[:2], held, state.lists, state.topic, *state.counts
    twin = naive.score(*where, rows["a"], rows["b"], rows["totals"], rows["row_topic"], ratio)
    np.testing.assert_allclose(score, twin, rtol=1e-7, atol=1e-10)


@given(listed_shards(), st.sampled_from([0.0, 50.0]), KEYS)
def test_score_merges__is_symmetric_and_zero_without_held_out_tokens(state, extra, key):
    rows, held = state.rows(extra), held_out(state.shard, key, 0.5)
    kept, gone = all_pairs(state.topics)
    np.testing.assert_allclose(
        merge_gains(state, rows, held, kept, gone), merge_gains(state, rows, held, gone, kept), rtol=1e-9, atol=1e-12
    )
    assert not merge_gains(state, rows, np.zeros_like(held), kept, gone).any()


def three_topics(rows, steps):
    """Return documents with three active topics each, and the same responsibilities in all pairs of a document."""
    shard = Shard.of(0, documents_of(rows))
    listed = shard.lengths > 0
    lists = np.concatenate([[0], np.cumsum(np.where(listed, 3, 0))]).astype(np.int64)
    topic = np.tile(np.arange(3, dtype=np.uint16), int(listed.sum()))
    shares = [np.tile(values, size) for values, size in zip(steps, np.diff(shard.offsets), strict=True)]
    return Listed(shard, 3, lists, topic, np.concatenate(shares).astype(np.uint16), np.random.default_rng(0))


HALVES = [UNIT // 2, UNIT // 2, 0]


def test_merging_two_halves_of_a_topic__gains_nothing():
    """With b_w and B near zero, merging two halves of a topic changes nothing, and merging topics of other words
    loses."""
    state = three_topics([{0: 6, 1: 1}, {}, {1: 1, 2: 6}], [HALVES, HALVES, [0, 0, UNIT]])
    rows = state.rows(0.0)
    column = np.float32([300.0, 20.0, 2.0])
    rows["row_topic"] = np.stack([column, column, column[::-1]], axis=1)
    rows["b"] = np.full(3, 1e-9)
    rows["totals"] = rows["row_topic"].sum(axis=0, dtype=np.float64) + rows["b"].sum()
    gain, square = merge_gains(state, rows, state.shard.counts, [0, 0], [1, 2])
    assert abs(gain[0]) < 1e-9
    assert square[0] < 1e-9
    assert gain[1] < -0.1
    assert square[1] > 0.0


def reassigned(state, rows, number):
    """Return the topics of the tokens of deleted topics after reassignment, by the kernel."""
    found = np.ones((int(number.max(initial=-1)) + 1, state.topics))
    priors, topics = priors_of(rows), TopicCounts(rows["row_topic"], rows["totals"])
    where = state.pairs, state.active, state.sparse
    kernels.reassign(*where, priors, topics, rows["background"], number, found)
    return found - 1


def deletion_gains(state, rows, held, number, spilt_):
    """Return the gains of deletions and their squares, by the kernel."""
    gain, square = np.ones(len(spilt_)), np.ones(len(spilt_))
    priors, topics = priors_of(rows), TopicCounts(rows["row_topic"], rows["totals"])
    where, candidates = (state.active, state.sparse), Deletions(number, spilt_, gain, square)
    kernels.score_deletions(state.pairs, held, *where, priors, topics, rows["background"], candidates)
    return np.stack([gain, square]) - 1


def drawn_candidates(state, data):
    """Draw some topics in random order, and the candidate number of each topic."""
    gone = data.draw(st.permutations(range(state.topics)))[: data.draw(st.integers(0, state.topics))]
    number = np.full(state.topics, -1, dtype=np.int64)
    number[list(gone)] = np.arange(len(gone))
    return list(gone), number


# The weight of inactive topics is S_w minus the active ones in float32: 1e-7 of S_w is lost, and below 1e-5 it counts as zero.
LOST = {"rtol": 2e-4, "atol": 2e-4}


@given(listed_shards(max_count=9) | weighed_shards(max_count=9), st.sampled_from([0.0, 1.0, 50.0]), st.data())
def test_reassign__equals_the_naive_version(state, extra, data):
    rows, (gone, number) = state.rows(extra), drawn_candidates(state, data)
    parts = rows["a"], rows["b"], rows["totals"], rows["row_topic"], gone
    twin = naive.reassign(*state.pair_arrays, *state.where, *state.counts, *parts)
    found = reassigned(state, rows, number)
    np.testing.assert_allclose(found, twin, **LOST)
    tokens = np.bincount(state.topic, weights=state.counts[0], minlength=state.topics)
    assert (found.sum(axis=1) <= tokens[gone] + 1e-4).all()  # the remaining tokens go to inactive topics
    assert (found >= -1e-12).all()
    assert not found[np.arange(len(gone)), gone].any()


def test_reassign__conserves_tokens_if_all_topics_are_active():
    steps = [UNIT // 4, UNIT // 4, UNIT // 2]
    state = three_topics([{0: 4, 1: 2}, {}, {1: 3, 2: 1}], [steps] * 3)
    found = reassigned(state, state.rows(3.0), np.array([-1, 1, 0]))
    np.testing.assert_allclose(found.sum(axis=1), [5.0, 2.5], rtol=1e-12)
    np.testing.assert_array_equal(found[[0, 1], [2, 1]], 0.0)


@given(listed_shards(max_count=9), st.sampled_from([0.0, 1.0, 50.0]), KEYS, st.sampled_from([0.1, 0.5, 1.0]), st.data())
def test_score_deletions__equals_the_naive_version(state, extra, key, share, data):
    if state.topics == 1:
        return  # the only topic is never deleted
    rows, (gone, number) = state.rows(extra), drawn_candidates(state, data)
    held = held_out(state.shard, key, share)
    given_ = rows["a"], rows["b"], rows["totals"], rows["row_topic"], gone
    # Sums include other shards, where topics may get tokens that no document here gives them.
    handed = naive.reassign(*state.pair_arrays, *state.where, *state.counts, *given_)
    handed += extra * state.noise.random(handed.shape) * (np.arange(state.topics) != np.array(gone)[:, np.newaxis])
    found = deletion_gains(state, rows, held, number, handed)
    twin = naive.score_deletions(*state.pair_arrays, held, *state.where, *state.counts, *given_, handed)
    np.testing.assert_allclose(found, twin, **LOST)


@pytest.mark.parametrize("words", [2 * kernels.SAMPLED_PAIRS - 1, 6 * kernels.SAMPLED_PAIRS - 5])
def test_deletions_in_a_long_document__equal_the_naive_version_with_sampled_pairs(words):
    noise = np.random.default_rng(words)
    documents = [dict.fromkeys(range(words), 2), {}, {0: 2, 7: 1}]
    state = three_topics(documents, [HALVES] * 3)
    shares = noise.multinomial(UNIT, [0.2, 0.3, 0.5], state.shard.pairs)
    state = Listed(state.shard, 3, state.lists, state.topic, shares.ravel().astype(np.uint16), noise)
    rows, number, gone = state.rows(3.0), np.array([1, -1, 0]), [2, 0]
    parts = rows["a"], rows["b"], rows["totals"], rows["row_topic"], gone
    twin = naive.reassign(*state.pair_arrays, *state.where, *state.counts, *parts)
    found = reassigned(state, rows, number)
    np.testing.assert_allclose(found, twin, **LOST)
    np.testing.assert_allclose(found.sum(axis=1), state.counts[0].reshape(2, 3).sum(axis=0)[gone], rtol=0.05)
    held = held_out(state.shard, 3, 0.1)
    scored = deletion_gains(state, rows, held, number, twin)
    expected = naive.score_deletions(*state.pair_arrays, held, *state.where, *state.counts, *parts, twin)
    np.testing.assert_allclose(scored, expected, **LOST)


@given(listed_shards(max_count=9), st.sampled_from([1.0, 50.0]), KEYS)
def test_scores__are_sums_over_documents(state, extra, key):
    rows, held = state.rows(extra), held_out(state.shard, key, 0.5)
    if state.topics == 1:
        return
    kept, gone = all_pairs(state.topics)
    number = np.arange(state.topics)
    handed = np.abs(state.noise.normal(size=(state.topics, state.topics)))
    whole = merge_gains(state, rows, held, kept, gone), deletion_gains(state, rows, held, number, handed)
    halves = [np.zeros_like(array) for array in whole]
    cut = state.shard.documents // 2
    for first, last in ((0, cut), (cut, state.shard.documents)):
        held_of_run = np.zeros_like(held)
        pairs = slice(state.shard.offsets[first], state.shard.offsets[last])
        held_of_run[pairs] = held[pairs]
        halves[0] += merge_gains(state, rows, held_of_run, kept, gone)
        halves[1] += deletion_gains(state, rows, held_of_run, number, handed)
    for sums, half_sums in zip(whole, halves, strict=True):
        np.testing.assert_allclose(sums, half_sums, rtol=1e-9, atol=1e-9)


def test_deleting_a_topic_without_tokens__gains_the_share_of_its_prior():
    """No document has tokens of the topic: theta' is theta without its prior, normalised, and phi does not change."""
    state = three_topics([{0: 4, 1: 2}, {}, {1: 3, 2: 1}], [[UNIT // 2, 0, UNIT // 2]] * 3)
    shard = state.shard
    rows = state.rows(0.0)
    held = shard.counts.astype(np.int32)
    number = np.array([-1, 0, -1])
    found = deletion_gains(state, rows, held, number, np.zeros((1, 3)))
    expected = 0.0
    probability = (rows["b"][:, np.newaxis] + rows["row_topic"]) / rows["totals"]
    for d in (0, 2):
        theta = rows["a"] + np.array([1.0, 0.0, 1.0]) * shard.lengths[d] / 2
        rest = np.where(np.arange(3) == 1, 0.0, theta)
        for pair in range(shard.offsets[d], shard.offsets[d + 1]):
            p = probability[shard.position[pair]]
            expected += held[pair] * np.log((rest @ p / rest.sum()) / (theta @ p / theta.sum()))
    np.testing.assert_allclose(found[0], [expected], rtol=1e-9)
