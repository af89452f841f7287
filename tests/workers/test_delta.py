import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsar.workers.delta import Delta, change, fresh, total


@st.composite
def deltas(draw):
    """Deltas over a few words, some arrays of which may be missing; whole numbers, so that sums are exact."""
    words = np.array(sorted(draw(st.sets(st.integers(0, 6)))), dtype=np.int32)
    numbers = np.random.default_rng(draw(st.integers(0, 10**6)))
    parts = {}
    if draw(st.booleans()):
        parts["word_topic"] = change(numbers.integers(-9, 9, (words.size, 2)).astype(float), "word", "topic")
    if draw(st.booleans()):
        parts["tables"] = fresh(numbers.integers(0, 9, 2).astype(float), "topic")
    if draw(st.booleans()):
        parts["tokens"] = fresh(float(numbers.integers(0, 9)))
    return Delta(parts, {"word": words} if "word_topic" in parts else {}, {"kernel": 1.0})


def dense(delta):
    """All arrays over all words, zeros where there is nothing."""
    word = np.zeros((7, 2))
    if "word_topic" in delta:
        word[delta.ids["word"]] = delta["word_topic"]
    tables = delta["tables"] if "tables" in delta else np.zeros(2)
    return np.concatenate([word.ravel(), tables, [delta.number("tokens")]])


@given(st.lists(deltas(), max_size=5))
def test_total__is_the_sum_of_what_each_holds(given_deltas):
    expected = sum((dense(one) for one in given_deltas), np.zeros(17))
    np.testing.assert_array_equal(dense(total(given_deltas)), expected)


@given(deltas(), deltas(), deltas())
def test_addition__does_not_depend_on_grouping_or_order(one, two, three):
    np.testing.assert_array_equal(dense((one + two) + three), dense(one + (two + three)))
    np.testing.assert_array_equal(dense(one + two), dense(two + one))


@given(deltas())
def test_zero__changes_nothing(one):
    for found in (one + Delta(), Delta() + one):
        np.testing.assert_array_equal(dense(found), dense(one))
        assert found.seconds == one.seconds


@given(deltas(), deltas())
def test_addition__leaves_both_alone(one, two):
    before = [{name: part.values.copy() for name, part in delta.parts.items()} for delta in (one, two)]
    assert (one + two).seconds == {"kernel": 2.0}
    for delta, values in zip((one, two), before, strict=True):
        for name, part in delta.parts.items():
            np.testing.assert_array_equal(part.values, values[name])


@given(deltas(), st.integers(0, 7))
def test_between__cuts_into_parts_that_add_up(one, cut):
    low, high = one.between("word", 0, cut), one.between("word", cut, 7)
    np.testing.assert_array_equal(dense(low + high)[:14], dense(one)[:14])
    np.testing.assert_array_equal(dense(one.with_dim("word") + one.without_dim("word")), dense(one))


def test_addition__refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="cannot be added"):
        Delta({"x": fresh(np.zeros(2), "topic")}) + Delta({"x": fresh(np.zeros(3), "topic")})
    with pytest.raises(ValueError, match="cannot be added"):
        Delta({"x": fresh(0.0)}) + Delta({"x": change(0.0)})
    with pytest.raises(ValueError, match="whole"):
        Delta({"x": fresh(np.zeros(2), "word")}) + Delta({"x": fresh(np.zeros(1), "word")}, {"word": np.array([1])})


def test_addition__aligns_ids_that_only_one_side_has():
    one = Delta({"node": change(np.array([1.0, 2.0]), "node")}, {"node": np.array([3, 9])})
    two = Delta({"node": change(np.array([10.0]), "node")}, {"node": np.array([5])})
    both = one + two
    np.testing.assert_array_equal(both.ids["node"], [3, 5, 9])
    np.testing.assert_array_equal(both["node"], [1.0, 10.0, 2.0])
