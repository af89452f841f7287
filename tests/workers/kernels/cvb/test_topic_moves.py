"""Tokens held out, gains of moves on them, and states carried over: kernels beside their twins, and what must hold."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.shard import Shard
from collapsium.workers.families.cvb.active_topics import starts_of
from collapsium.workers.kernels.cvb import deletion_scores, merge_scores
from collapsium.workers.kernels.cvb import topic_moves as moves
from collapsium.workers.kernels.cvb.deletion_scores import Deletions
from collapsium.workers.kernels.cvb.merge_scores import Merges
from collapsium.workers.kernels.cvb.records import ActiveTopics, RowChanges, TopicCounts
from collapsium.workers.kernels.cvb.topic_moves import MovedState, Moves
from collapsium.workers.kernels.records import DocumentPairs
from tests.naive import active as naive_active
from tests.naive import topic_moves as naive
from tests.strategies import bags, documents_of, pair_totals
from tests.workers.kernels.cvb.test_active import UNIT, Listed, listed_shards, priors_of, weighed_shards

# Hashes are sums and products of whole numbers of 64 bits, which NumPy's scalars, not arrays, tell to overflow.
pytestmark = [pytest.mark.kernels, pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")]

KEYS = st.integers(0, 2**63 - 1)


def held_out(shard, key, share):
    """Held-out copies of a shard's pairs."""
    held = np.full(shard.pairs, 77, dtype=np.int32)
    pairs = DocumentPairs(shard.offsets, shard.position, shard.counts)
    moves.hold_out(pairs, shard.words, np.uint64(key), share, held)
    return held


@given(bags(max_documents=8, max_count=30), KEYS, st.sampled_from([0.0, 0.05, 0.1, 0.5, 0.999, 1.0]))
def test_hold_out__equals_its_twin(given_, key, share):
    shard = Shard.of(0, documents_of(given_[0]))
    found = held_out(shard, key, share)
    np.testing.assert_array_equal(
        found, naive.hold_out(shard.offsets, shard.words, shard.position, shard.counts, key, share)
    )
    assert ((found >= 0) & (found <= shard.counts)).all()
    if share in (0.0, 1.0):
        np.testing.assert_array_equal(found, share * shard.counts)


@given(bags(max_documents=6), bags(max_documents=6), KEYS, st.data())
def test_hold_out__depends_on_the_address_of_a_pair_alone(one, other, key, data):
    """Its document's number, its word and its copies' numbers: not on what else there is, nor on how words are numbered."""
    number = data.draw(st.integers(0, min(len(one[0]), len(other[0])) - 1))
    word, count, more = data.draw(st.integers(0, 6)), data.draw(st.integers(1, 20)), data.draw(st.integers(0, 5))
    counts = []
    for (rows, _), size in ((one, count), (other, count), (other, count + more)):
        changed = [*rows[:number], {**rows[number], word: size}, *rows[number + 1 :]]
        shard = Shard.of(0, documents_of(changed))
        pairs = np.arange(*shard.offsets[number : number + 2])
        found = held_out(shard, key, 0.5)
        counts.append(int(found[pairs[shard.words[shard.position[pairs]] == word]][0]))
    assert counts[0] == counts[1]
    assert counts[1] <= counts[2] <= counts[1] + more


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5])
def test_hold_out__takes_the_share_that_it_is_told(share):
    """Within four standard errors: over all, by document, by word, by the place of a copy; and pairs are independent."""
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


def merges(state, rows, held, kept, gone):
    """What merging gains, and squares, by the kernel."""
    return judged(state, rows, held, kept, gone)[0]


def judged(state, rows, held, kept, gone, ratio=None):
    """What merging gains, and squares; and what the tokens score as things are, and their number."""
    ratio = np.zeros(0) if ratio is None else ratio
    gain, square, score = np.ones(len(kept)), np.ones(len(kept)), np.ones(2)
    candidates = Merges(np.array(kept, dtype=np.int64), np.array(gone, dtype=np.int64), ratio, gain, square)
    priors, topics = priors_of(rows, rows["b"].sum()), TopicCounts(rows["row_topic"], rows["totals"])
    merge_scores.score_merges(state.pairs, held, state.active, state.sparse, priors, topics, candidates, score)
    return np.stack([gain, square]) - 1, score - 1


def all_pairs(topics):
    return np.array([(k, m) for k in range(topics) for m in range(topics) if k != m]).reshape(-1, 2).T


@given(listed_shards(), st.sampled_from([0.0, 1.0, 50.0]), KEYS, st.sampled_from([0.1, 0.5, 1.0]))
def test_score_merges__equals_its_twin(state, extra, key, share):
    rows, held = state.rows(extra), held_out(state.shard, key, share)
    kept, gone = all_pairs(state.topics)
    found, score = judged(state, rows, held, kept, gone)
    where = *state.given[:2], held, state.lists, state.topic, *state.counts
    parts = rows["a"], rows["b"], rows["totals"], rows["row_topic"]
    twin = naive.score_merges(*where, *parts, rows["b"].sum(), kept, gone)
    np.testing.assert_allclose(found, twin, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(score, naive.score(*where, *parts), rtol=1e-7, atol=1e-10)


@given(weighed_shards(), KEYS)
def test_score_merges__divides_by_the_plain_tokens_of_topics_of_weighted_words(state, key):
    rows, held = state.rows(5.0), held_out(state.shard, key, 0.5)
    ratio = state.noise.uniform(0.2, 3.0, state.topics)
    score = judged(state, rows, held, [], [], ratio)[1]
    where = *state.given[:2], held, state.lists, state.topic, *state.counts
    twin = naive.score(*where, rows["a"], rows["b"], rows["totals"], rows["row_topic"], ratio)
    np.testing.assert_allclose(score, twin, rtol=1e-7, atol=1e-10)


@given(listed_shards(), st.sampled_from([0.0, 50.0]), KEYS)
def test_score_merges__is_the_same_both_ways_and_nothing_where_nothing_is_held_out(state, extra, key):
    rows, held = state.rows(extra), held_out(state.shard, key, 0.5)
    kept, gone = all_pairs(state.topics)
    np.testing.assert_allclose(
        merges(state, rows, held, kept, gone), merges(state, rows, held, gone, kept), rtol=1e-9, atol=1e-12
    )
    assert not merges(state, rows, np.zeros_like(held), kept, gone).any()


def three_topics(rows, steps):
    """Documents that all list three topics, each with its own responsibilities in all pairs."""
    shard = Shard.of(0, documents_of(rows))
    listed = shard.lengths > 0
    lists = np.concatenate([[0], np.cumsum(np.where(listed, 3, 0))]).astype(np.int64)
    topic = np.tile(np.arange(3, dtype=np.uint16), int(listed.sum()))
    shares = [np.tile(one, size) for one, size in zip(steps, np.diff(shard.offsets), strict=True)]
    return Listed(shard, 3, lists, topic, np.concatenate(shares).astype(np.uint16), np.random.default_rng(0))


HALVES = [UNIT // 2, UNIT // 2, 0]


def test_score_merges__of_two_halves_of_a_topic_gains_nothing_but_the_smoothing():
    """Without b_w and B nothing changes; topics of unlike words lose."""
    state = three_topics([{0: 6, 1: 1}, {}, {1: 1, 2: 6}], [HALVES, HALVES, [0, 0, UNIT]])
    rows = state.rows(0.0)
    column = np.float32([300.0, 20.0, 2.0])
    rows["row_topic"] = np.stack([column, column, column[::-1]], axis=1)
    rows["b"] = np.full(3, 1e-9)
    rows["totals"] = rows["row_topic"].sum(axis=0, dtype=np.float64) + rows["b"].sum()
    gain, square = merges(state, rows, state.shard.counts, [0, 0], [1, 2])
    assert abs(gain[0]) < 1e-9
    assert square[0] < 1e-9
    assert gain[1] < -0.1
    assert square[1] > 0.0


def spilt(state, rows, number):
    """Where the tokens of topics would go, by the kernel."""
    found = np.ones((int(number.max(initial=-1)) + 1, state.topics))
    priors, topics = priors_of(rows), TopicCounts(rows["row_topic"], rows["totals"])
    where = state.pairs, state.active, state.sparse
    deletion_scores.reassign(*where, priors, topics, rows["background"], number, found)
    return found - 1


def deletes(state, rows, held, number, spilt_):
    """What deleting gains, and squares, by the kernel."""
    gain, square = np.ones(len(spilt_)), np.ones(len(spilt_))
    priors, topics = priors_of(rows), TopicCounts(rows["row_topic"], rows["totals"])
    where, candidates = (state.active, state.sparse), Deletions(number, spilt_, gain, square)
    deletion_scores.score_deletions(state.pairs, held, *where, priors, topics, rows["background"], candidates)
    return np.stack([gain, square]) - 1


def drawn_candidates(state, data):
    """Some topics in any order, and the number of each."""
    gone = data.draw(st.permutations(range(state.topics)))[: data.draw(st.integers(0, state.topics))]
    number = np.full(state.topics, -1, dtype=np.int64)
    number[list(gone)] = np.arange(len(gone))
    return list(gone), number


# What is not listed weighs S_w less what is, in float32: some 1e-7 of S_w is lost, and less than 1e-5 of it is nothing.
LOST = {"rtol": 2e-4, "atol": 2e-4}


@given(listed_shards(max_count=9) | weighed_shards(max_count=9), st.sampled_from([0.0, 1.0, 50.0]), st.data())
def test_reassign__equals_its_twin(state, extra, data):
    rows, (gone, number) = state.rows(extra), drawn_candidates(state, data)
    parts = rows["a"], rows["b"], rows["totals"], rows["row_topic"], gone
    twin = naive.reassign(*state.given, *state.where, *state.counts, *parts)
    found = spilt(state, rows, number)
    np.testing.assert_allclose(found, twin, **LOST)
    tokens = np.bincount(state.topic, weights=state.counts[0], minlength=state.topics)
    assert (found.sum(axis=1) <= tokens[gone] + 1e-4).all()  # the rest goes to what is not listed
    assert (found >= -1e-12).all()
    assert not found[np.arange(len(gone)), gone].any()


def test_reassign__gives_all_tokens_to_the_others_where_all_are_listed():
    steps = [UNIT // 4, UNIT // 4, UNIT // 2]
    state = three_topics([{0: 4, 1: 2}, {}, {1: 3, 2: 1}], [steps] * 3)
    found = spilt(state, state.rows(3.0), np.array([-1, 1, 0]))
    np.testing.assert_allclose(found.sum(axis=1), [5.0, 2.5], rtol=1e-12)
    np.testing.assert_array_equal(found[[0, 1], [2, 1]], 0.0)


@given(listed_shards(max_count=9), st.sampled_from([0.0, 1.0, 50.0]), KEYS, st.sampled_from([0.1, 0.5, 1.0]), st.data())
def test_score_deletions__equals_its_twin(state, extra, key, share, data):
    if state.topics == 1:
        return  # the only topic is never deleted
    rows, (gone, number) = state.rows(extra), drawn_candidates(state, data)
    held = held_out(state.shard, key, share)
    given_ = rows["a"], rows["b"], rows["totals"], rows["row_topic"], gone
    # As other shards have it too: topics that no document lists beside a candidate here get tokens of it elsewhere.
    handed = naive.reassign(*state.given, *state.where, *state.counts, *given_)
    handed += extra * state.noise.random(handed.shape) * (np.arange(state.topics) != np.array(gone)[:, np.newaxis])
    found = deletes(state, rows, held, number, handed)
    twin = naive.score_deletions(*state.given, held, *state.where, *state.counts, *given_, handed)
    np.testing.assert_allclose(found, twin, **LOST)


@given(listed_shards(max_count=9), st.sampled_from([1.0, 50.0]), KEYS)
def test_scores__add_up_over_runs_of_documents(state, extra, key):
    rows, held = state.rows(extra), held_out(state.shard, key, 0.5)
    if state.topics == 1:
        return
    kept, gone = all_pairs(state.topics)
    number = np.arange(state.topics)
    handed = np.abs(state.noise.normal(size=(state.topics, state.topics)))
    whole = merges(state, rows, held, kept, gone), deletes(state, rows, held, number, handed)
    halves = [np.zeros_like(one) for one in whole]
    cut = state.shard.documents // 2
    for first, last in ((0, cut), (cut, state.shard.documents)):
        here = np.zeros_like(held)
        pairs = slice(state.shard.offsets[first], state.shard.offsets[last])
        here[pairs] = held[pairs]
        halves[0] += merges(state, rows, here, kept, gone)
        halves[1] += deletes(state, rows, here, number, handed)
    for one, other in zip(whole, halves, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_score_deletions__of_a_topic_without_tokens_gains_what_its_prior_took():
    """No document has tokens of it: theta' is theta without its prior, normalised, and phi is as it was."""
    state = three_topics([{0: 4, 1: 2}, {}, {1: 3, 2: 1}], [[UNIT // 2, 0, UNIT // 2]] * 3)
    shard = state.shard
    rows = state.rows(0.0)
    held = shard.counts.astype(np.int32)
    number = np.array([-1, 0, -1])
    found = deletes(state, rows, held, number, np.zeros((1, 3)))
    expected = 0.0
    probability = (rows["b"][:, np.newaxis] + rows["row_topic"]) / rows["totals"]
    for d in (0, 2):
        theta = rows["a"] + np.array([1.0, 0.0, 1.0]) * shard.lengths[d] / 2
        rest = np.where(np.arange(3) == 1, 0.0, theta)
        for pair in range(shard.offsets[d], shard.offsets[d + 1]):
            p = probability[shard.position[pair]]
            expected += held[pair] * np.log((rest @ p / rest.sum()) / (theta @ p / theta.sum()))
    np.testing.assert_allclose(found[0], [expected], rtol=1e-9)


@st.composite
def moves_of(draw, topics):
    """What topics become, and what in half of the documents: merges, deletes and splits that do not meet."""
    into, split = np.arange(topics), np.full(topics, -1)
    free = list(draw(st.permutations(range(topics))))
    while len(free) >= 2:
        one, other = free.pop(), free.pop()
        kind = draw(st.sampled_from(["merge", "delete", "split", "none"]))
        if kind == "merge":
            into[one] = other
        elif kind == "delete":
            into[one] = -1
        elif kind == "split":
            # The slot of the half is as a rule empty before.
            into[one], split[other] = draw(st.sampled_from([-1, one])), one
    return into, split


def carried(state, more, into, split, key, first=0, pseudo=0.0):
    """New lists, and what `move_responsibilities` makes: of documents the number `first` and on of a shard.

    Before, `more` tokens do not count, and the active topics have so many pseudo-counts.
    """
    counts = pair_totals(replace(state.shard, counts=state.shard.counts - more))
    counted = naive_active.document_counts(state.shard.offsets, counts, *state.where)[0]
    sparse = state.sparse._replace(counts=(counted + pseudo).astype(np.float32))
    chosen, sizes = np.full_like(state.topic, 999), np.full(state.shard.documents, -1, dtype=np.int64)
    accepted = Moves(into, split, np.uint64(key), first)
    moves.move_topics(state.active, accepted, chosen, sizes)
    spans = np.diff(state.lists)
    within = np.arange(chosen.size) - np.repeat(state.lists[:-1], spans) < np.repeat(sizes, spans)
    assert (chosen[~within] == 999).all()
    topic, lists = chosen[within], np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    starts = starts_of(state.shard.offsets, lists)
    share = np.zeros(int(starts[-1]), dtype=np.uint16)
    change, rest_change = np.zeros(state.shape, dtype=np.float32), np.zeros(state.shape[0])
    count, rest = np.zeros(topic.size), np.zeros(state.shard.documents)
    moves.move_responsibilities(
        state.pairs, more, state.active, sparse, accepted, ActiveTopics(lists, topic),
        RowChanges(change, rest_change), MovedState(starts, share, count, rest),
    )  # fmt: skip
    return Listed(state.shard, state.topics, lists, topic, share, state.noise), change, rest_change, count, rest


@given(weighed_shards(max_count=9), KEYS, st.sampled_from([0.0, 0.3, 1.0]), st.data())
def test_moved_states__of_weighted_tokens_equal_their_twin(state, key, share, data):
    into, split = data.draw(moves_of(state.topics))
    more = held_out(state.shard, key, share)
    new, change, rest_change, count, rest = carried(state, more, into, split, key)
    weights = more * state.shard.weights.astype(np.float64)
    _, shares, twin, twin_rest = naive.moved(state.shape, *state.given, weights, *state.where, into, split, key, 0)
    np.testing.assert_array_equal(new.share, shares)
    np.testing.assert_allclose(change, twin, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(rest_change, twin_rest, rtol=1e-5, atol=1e-4)
    for found, exact in zip((count, rest), new.counts, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-4)


@given(listed_shards(max_count=9), KEYS, st.integers(0, 5), st.sampled_from([0.0, 0.3, 1.0]), st.data())
def test_moved_states__equal_their_twin_and_lose_no_token(state, key, first, share, data):
    into, split = data.draw(moves_of(state.topics))
    more = held_out(state.shard, key, share)
    new, change, rest_change, count, rest = carried(state, more, into, split, key, first)
    lists, shares, twin, twin_rest = naive.moved(state.shape, *state.given, more, *state.where, into, split, key, first)
    np.testing.assert_array_equal(np.diff(new.lists), [own.size for own in lists])
    np.testing.assert_array_equal(new.topic, np.concatenate([np.zeros(0), *lists]))
    np.testing.assert_array_equal(new.share, shares)
    np.testing.assert_array_equal(change, twin)
    np.testing.assert_array_equal(rest_change, twin_rest)
    # E[n_dk] and the background, as of all tokens that count now.
    for found, exact in zip((count, rest), naive_active.document_counts(*counts_of(new)), strict=True):
        np.testing.assert_array_equal(found, exact)
    tokens = np.bincount(state.shard.position, weights=more, minlength=state.shape[0])
    np.testing.assert_array_equal(change.sum(axis=1, dtype=np.float64) + rest_change, tokens)
    owner = np.repeat(np.arange(state.shard.documents), np.diff(new.lists))
    listed = np.bincount(owner, weights=count, minlength=state.shard.documents)
    np.testing.assert_array_equal(listed + rest, state.shard.lengths)


@given(listed_shards(max_count=9), KEYS, st.sampled_from([0.0, 0.3]), st.data())
def test_pseudo_counts_of_a_start__go_where_their_topics_go(state, key, share, data):
    into, split = data.draw(moves_of(state.topics))
    more = held_out(state.shard, key, share)
    plain, _, _, count, rest = carried(state, more, into, split, key)
    _, _, _, raised, same = carried(state, more, into, split, key, pseudo=64.0)
    sources = [
        [naive.target(k, into, split, key, d) for k in state.topic[low:high]]
        for d, (low, high) in enumerate(pairwise(state.lists))
    ]
    lists = [plain.topic[low:high] for low, high in pairwise(plain.lists)]
    expected = [64.0 * from_.count(k) for from_, own in zip(sources, lists, strict=True) for k in own]
    np.testing.assert_allclose(raised - count, np.array(expected), atol=1e-3)
    np.testing.assert_array_equal(same, rest)


def counts_of(state):
    return state.shard.offsets, state.shard.counts, *state.where


def dense(state):
    """Responsibilities of all topics, shape (pairs, topics)."""
    blocks = [np.zeros((0, state.topics))]
    for _, own, q in naive_active.documents(state.shard.offsets, *state.where):
        block = np.zeros((len(q), state.topics))
        block[:, own] = q
        blocks.append(block)
    return np.concatenate(blocks)


@given(listed_shards(max_count=9), KEYS, st.data())
def test_moved_states__add_what_merges_drop_what_goes_and_split_whole_documents(state, key, data):
    into, split = data.draw(moves_of(state.topics))
    none = np.zeros(state.shard.pairs, dtype=np.int32)
    new, change, _, _, _ = carried(state, none, into, split, key)
    before, after, expected = dense(state), dense(new), np.zeros((state.shard.pairs, state.topics))
    owner = np.repeat(np.arange(state.shard.documents), np.diff(state.shard.offsets))
    for k in range(state.topics):
        if split[k] >= 0:  # a document keeps it in all its pairs, or has it in the other in all
            left = np.isin(owner, owner[after[:, k] > 0])
            expected[:, k] += np.where(left, before[:, k], 0.0)
            expected[:, split[k]] += np.where(left, 0.0, before[:, k])
        elif into[k] >= 0:
            expected[:, into[k]] += before[:, k]
    np.testing.assert_array_equal(after, expected)
    counts = [naive_active.word_counts(state.shape, *state.given, *one.where)[0] for one in (state, new)]
    np.testing.assert_array_equal(change, counts[1] - counts[0])
    gone = [k for k in range(state.topics) if into[k] != k and k not in split]
    assert not set(new.topic) & set(gone)


@given(listed_shards(max_count=9), KEYS, st.data())
def test_moved_states__in_runs_of_documents_are_those_of_all(state, key, data):
    into, split = data.draw(moves_of(state.topics))
    more, cut = held_out(state.shard, key, 0.3), data.draw(st.integers(0, state.shard.documents))
    whole = carried(state, more, into, split, key)
    parts = []
    for first, last in ((0, cut), (cut, state.shard.documents)):
        pairs = slice(*state.shard.offsets[[first, last]])
        rows = [
            {int(state.shard.words[state.shard.position[p]]): int(state.shard.counts[p]) for p in range(*where)}
            for where in zip(state.shard.offsets[first:last], state.shard.offsets[first + 1 : last + 1], strict=True)
        ]
        listed, held = slice(*state.lists[[first, last]]), slice(*state.starts[[first, last]])
        lists = state.lists[first : last + 1] - state.lists[first]
        one = Listed(
            Shard.of(0, documents_of(rows)), state.topics, lists, state.topic[listed], state.share[held], state.noise
        )
        parts.append(carried(one, more[pairs], into, split, key, first))
    for name in ("topic", "share"):
        found = np.concatenate([getattr(part[0], name) for part in parts])
        np.testing.assert_array_equal(found, getattr(whole[0], name))
    for place in (3, 4):
        np.testing.assert_array_equal(np.concatenate([part[place] for part in parts]), whole[place])
    assert sum(part[2].sum() for part in parts) == whole[2].sum()


@given(listed_shards(max_count=9), KEYS)
def test_moved_states__are_the_same_where_nothing_moves(state, key):
    none = np.zeros(state.shard.pairs, dtype=np.int32)
    into, split = np.arange(state.topics), np.full(state.topics, -1)
    new, change, rest_change, _, _ = carried(state, none, into, split, key)
    for name in ("lists", "topic", "share"):
        np.testing.assert_array_equal(getattr(new, name), getattr(state, name))
    assert not change.any()
    assert not rest_change.any()


def test_a_split__takes_about_half_of_the_documents_and_the_same_ones_again():
    documents = 400
    shard = Shard.of(0, documents_of([{0: 1}] * documents))
    topic = np.zeros(documents, dtype=np.uint16)
    share = np.full(documents, UNIT, dtype=np.uint16)
    state = Listed(shard, 2, np.arange(documents + 1), topic, share, np.random.default_rng(0))
    into, split = np.arange(2), np.array([1, -1])
    none = np.zeros(documents, dtype=np.int32)
    halves = [carried(state, none, into, split, key)[0].topic for key in (1, 1, 2)]
    np.testing.assert_array_equal(halves[0], halves[1])
    for half in halves:
        assert abs(half.mean() - 0.5) < 4 * 0.5 / np.sqrt(documents)
    assert abs((halves[0] == halves[2]).mean() - 0.5) < 4 * 0.5 / np.sqrt(documents)


@given(st.integers(0, 9), st.integers(1, 6), st.sampled_from([0.0, 0.1, 2.0, 100.0]), st.integers(0, 2**31))
def test_gram__equals_its_twin(words, topics, least, seed):
    noise = np.random.default_rng(seed)
    rows = (noise.gamma(0.3, 3.0, (words, topics)) * (noise.random((words, topics)) < 0.7)).astype(np.float32)
    found = np.ones((topics, topics))
    moves.gram(rows, least, found)
    np.testing.assert_allclose(found - 1, naive.gram(rows, np.float32(least)), rtol=1e-9, atol=1e-9)
