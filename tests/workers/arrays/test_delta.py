import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers import tasks
from collapsium.workers.arrays import delta as delta_
from collapsium.workers.arrays.delta import Delta, change, fresh, total


@st.composite
def deltas(draw):
    """Draw deltas over a few words, some arrays of which may be missing; values are integers, so that sums are exact."""
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
    """Return all arrays over all words, with zeros where a delta has no values."""
    word = np.zeros((7, 2))
    if "word_topic" in delta:
        word[delta.ids["word"]] = delta["word_topic"]
    tables = delta["tables"] if "tables" in delta else np.zeros(2)
    return np.concatenate([word.ravel(), tables, [delta.number("tokens")]])


@given(st.lists(deltas(), max_size=5))
def test_total__is_the_sum_of_the_deltas(given_deltas):
    expected = sum((dense(delta) for delta in given_deltas), np.zeros(17))
    np.testing.assert_array_equal(dense(total(given_deltas)), expected)


@given(deltas(), deltas(), deltas())
def test_addition__does_not_depend_on_grouping_or_order(first, second, third):
    np.testing.assert_array_equal(dense((first + second) + third), dense(first + (second + third)))
    np.testing.assert_array_equal(dense(first + second), dense(second + first))


@given(deltas())
def test_adding_zero__changes_nothing(delta):
    for found in (delta + Delta(), Delta() + delta):
        np.testing.assert_array_equal(dense(found), dense(delta))
        assert found.seconds == delta.seconds


@given(deltas(), deltas())
def test_addition__does_not_change_its_operands(first, second):
    before = [{name: part.values.copy() for name, part in delta.parts.items()} for delta in (first, second)]
    assert (first + second).seconds == {"kernel": 2.0}
    for delta, values in zip((first, second), before, strict=True):
        for name, part in delta.parts.items():
            np.testing.assert_array_equal(part.values, values[name])


@given(deltas(), st.integers(0, 7))
def test_between__cuts_a_delta_into_parts_that_add_up(delta, cut):
    low, high = delta.between("word", 0, cut), delta.between("word", cut, 7)
    np.testing.assert_array_equal(dense(low + high)[:14], dense(delta)[:14])
    np.testing.assert_array_equal(dense(delta.with_dim("word") + delta.without_dim("word")), dense(delta))


def test_addition__refuses_deltas_that_do_not_fit():
    with pytest.raises(ValueError, match="cannot be added"):
        Delta({"x": fresh(np.zeros(2), "topic")}) + Delta({"x": fresh(np.zeros(3), "topic")})
    with pytest.raises(ValueError, match="cannot be added"):
        Delta({"x": fresh(0.0)}) + Delta({"x": change(0.0)})
    with pytest.raises(ValueError, match=r"has 1 of the dim 'word', which has 2 ids"):
        total([Delta({"x": fresh(np.zeros(1), "word")}, {"word": np.array([1, 2])})] * 2)
    with pytest.raises(TypeError, match="same_kind"):
        Delta({"x": fresh(1)}) + Delta({"x": fresh(0.5)})
    with pytest.raises(ValueError, match="has all of the dim"):
        Delta({"x": fresh(np.zeros(2), "word")}) + Delta({"x": fresh(np.zeros(1), "word")}, {"word": np.array([1])})


def test_addition__aligns_ids_that_only_one_delta_has():
    first = Delta({"node": change(np.array([1.0, 2.0]), "node")}, {"node": np.array([3, 9])})
    second = Delta({"node": change(np.array([10.0]), "node")}, {"node": np.array([5])})
    both = first + second
    np.testing.assert_array_equal(both.ids["node"], [3, 5, 9])
    np.testing.assert_array_equal(both["node"], [1.0, 10.0, 2.0])


def test_addition__aligns_rows_and_columns_that_only_one_delta_has():
    def table(words, topics, *rows):
        ids = {"word": np.array(words), "topic": np.arange(topics)}
        return Delta({"n": change(np.array(rows), "word", "topic"), "m": fresh(np.arange(topics), "topic")}, ids)

    first, second = table([1, 4], 2, [1, 2], [3, 4]), table([0, 4], 3, [10, 20, 30], [40, 50, 60])
    for both in (first + second, second + first):
        np.testing.assert_array_equal(both["n"], [[10, 20, 30], [1, 2, 0], [43, 54, 60]])
        np.testing.assert_array_equal(both["m"], [0, 2, 2])
        np.testing.assert_array_equal(both.ids["word"], [0, 1, 4])
        np.testing.assert_array_equal(both.ids["topic"], [0, 1, 2])
    np.testing.assert_array_equal(first["n"], [[1, 2], [3, 4]])


@pytest.mark.parametrize("rows", [1, 2, 7, 1000])
def test_total__does_not_depend_on_the_number_of_rows_added_at_a_time(monkeypatch, rows):
    """Arrays have all, some or no words, and may be contiguous or not."""
    monkeypatch.setattr(delta_, "ADDED_BYTES", rows * 3 * 4)
    numbers, words = np.random.default_rng(rows), np.arange(20)
    expected, summands = np.zeros((20, 3), np.float32), []
    for summand_words in (words[::3], words, words[:0], words[5:9], words):
        values = np.asfortranarray(numbers.integers(-9, 9, (summand_words.size, 3)).astype(np.float32))
        summands.append(Delta({"n": change(values, "word", "topic")}, {"word": summand_words}))
        expected[summand_words] += values
    np.testing.assert_array_equal(total(summands)["n"], expected)
    np.testing.assert_array_equal(total(reversed(summands))["n"], expected)
    assert not total([summands[2], summands[2]])["n"].size


# Two successive sweeps -----------------------------------------------------------------------------------------------


@given(deltas(), deltas())
def test_then__adds_changes_and_keeps_the_fresh_sums_of_the_second_sweep(first, second):
    """Changes that a delta lacks count as zero, and fresh sums that only the first sweep has are kept."""
    both = first.then(second)
    np.testing.assert_array_equal(dense(both)[:14], dense(first)[:14] + dense(second)[:14])
    last = Delta({name: part for name, part in {**first.parts, **second.parts}.items() if part.kind == "fresh"})
    np.testing.assert_array_equal(dense(both)[14:], dense(last)[14:])
    for name, part in both.parts.items():
        assert part.kind == {**first.parts, **second.parts}[name].kind
    assert both.seconds == {"kernel": 2.0}


@given(deltas(), deltas(), deltas())
def test_then__does_not_depend_on_grouping(first, second, third):
    np.testing.assert_array_equal(dense(first.then(second).then(third)), dense(first.then(second.then(third))))


@given(deltas(), deltas())
def test_then__does_not_change_its_operands(first, second):
    before = [{name: part.values.copy() for name, part in delta.parts.items()} for delta in (first, second)]
    both = first.then(second)
    for addend in (first, second):  # an array that only one delta has is shared, so it must never be changed
        both = total([both, addend, addend])
    for delta, values in zip((first, second), before, strict=True):
        for name, part in delta.parts.items():
            np.testing.assert_array_equal(part.values, values[name])


@given(deltas())
def test_then__of_nothing(delta):
    np.testing.assert_array_equal(dense(Delta().then(delta)), dense(delta))
    np.testing.assert_array_equal(dense(delta.then(Delta())), dense(delta))


# Many deltas ---------------------------------------------------------------------------------------------------------

STEP = 2.0**-15  # one step of a responsibility


@st.composite
def float_deltas(draw, exact=False, most=12):
    """Draw changes of float32 rows over some of 20 words, as sweeps leave them: steps of few tokens, or any numbers."""
    numbers = np.random.default_rng(draw(st.integers(0, 10**6)))
    sums = []
    for _ in range(draw(st.integers(1, most))):
        words = np.flatnonzero(numbers.random(20) < draw(st.sampled_from([0.2, 0.8, 1.0]))).astype(np.int32)
        values = numbers.normal(scale=10.0, size=(words.size, 3))
        values = np.round(np.clip(values, -30, 30) / STEP) * STEP if exact else values * 10.0 ** numbers.integers(-6, 6)
        rest = numbers.normal(size=words.size)
        parts = {"word_active": change(values.astype(np.float32), "word", "topic"), "word_rest": change(rest, "word")}
        sums.append(Delta({**parts, "moved": fresh(float(numbers.random()))}, {"word": words}))
    return sums


def bits(delta):
    return {name: (part.values.dtype, part.values.tobytes()) for name, part in delta.parts.items()}, delta.ids["word"]


def check_same_bits(first, second):
    assert bits(first)[0] == bits(second)[0]
    np.testing.assert_array_equal(bits(first)[1], bits(second)[1])


def sum_in_random_brackets(given_deltas, data):
    """Return the sum of the deltas in their order, with random brackets."""
    if len(given_deltas) == 1:
        return given_deltas[0]
    cut = data.draw(st.integers(1, len(given_deltas) - 1))
    return sum_in_random_brackets(given_deltas[:cut], data) + sum_in_random_brackets(given_deltas[cut:], data)


@given(float_deltas(exact=True), st.data())
def test_total_of_whole_steps__is_exact_in_any_order_and_grouping(given_deltas, data):
    """Up to 2^9 tokens, steps of 2^-15 and their sums are exact in float32."""
    expected = total(given_deltas)["word_active"]
    order = data.draw(st.permutations(given_deltas))
    np.testing.assert_array_equal(sum_in_random_brackets(given_deltas, data)["word_active"], expected)
    np.testing.assert_array_equal(total(order)["word_active"], expected)


@given(float_deltas(), st.data())
def test_total__adds_from_left_to_right_with_the_same_bits(given_deltas, data):
    expected = given_deltas[0]
    for delta in given_deltas[1:]:
        expected = expected + delta
    check_same_bits(total(given_deltas), expected)
    check_same_bits(total(iter(given_deltas)), expected)
    # Deltas without arrays do not change the brackets.
    place = data.draw(st.integers(0, len(given_deltas)))
    check_same_bits(total([*given_deltas[:place], Delta(), *given_deltas[place:]]), expected)


@given(float_deltas(), st.data())
def test_total_with_other_brackets__differs_by_rounding_only(given_deltas, data):
    size = sum(float(np.abs(delta["word_active"]).max(initial=0.0)) for delta in given_deltas)
    found, expected = sum_in_random_brackets(given_deltas, data), total(given_deltas)
    np.testing.assert_allclose(found["word_active"], expected["word_active"], atol=len(given_deltas) * 2e-7 * size)
    np.testing.assert_allclose(found["word_rest"], expected["word_rest"], atol=1e-12)


@given(float_deltas(exact=True))
def test_total__conserves_sums_over_words(given_deltas):
    found = total(given_deltas)
    for name in ("word_active", "word_rest"):
        expected = sum(delta[name].sum(axis=0, dtype=np.float64) for delta in given_deltas)
        np.testing.assert_allclose(found[name].sum(axis=0, dtype=np.float64), expected, rtol=1e-12, atol=1e-9)
    assert found["word_active"].dtype == np.float32  # arrays must not grow while they are added
    np.testing.assert_array_equal(found.ids["word"], np.unique(np.concatenate([d.ids["word"] for d in given_deltas])))


@given(float_deltas(), st.data())
def test_add__accepts_deltas_and_results_of_sweeps(given_deltas, data):
    mixed = [tasks.Swept({}, delta) if data.draw(st.booleans()) else delta for delta in given_deltas]
    found = tasks.add(mixed)
    check_same_bits(found, total(given_deltas))
    assert found.seconds["reduce"] > 0.0
    again = tasks.add([found, given_deltas[0]])
    assert again.seconds["reduce"] > found.seconds["reduce"]


@given(float_deltas(most=1), st.sets(st.integers(1, 19), max_size=4))
def test_pick__cuts_the_result_of_a_sweep_into_blocks_that_add_up(given_deltas, inner):
    """Arrays without words belong to the first block only."""
    (whole,) = given_deltas
    swept, edges = tasks.Swept({}, whole), [0, *sorted(inner), 20]
    parts = [tasks.delta_part(swept, (low, high, not low)) for low, high in zip(edges, edges[1:], strict=False)]
    for (low, high), part in zip(zip(edges, edges[1:], strict=False), parts, strict=True):
        assert ((part.ids["word"] >= low) & (part.ids["word"] < high)).all()
        assert ("moved" in part) == (low == 0)
    check_same_bits(total(parts), whole)
    assert tasks.delta_part(swept, None) is whole


@given(
    st.integers(0, 60),
    st.integers(120, 300),
    st.sampled_from([0.0, 0.1, 0.4, 0.9]),
    st.sampled_from(["float32", "float64"]),
    st.integers(0, 2**31),
)
def test_pickle__restores_the_delta(rows, columns, share, dtype, seed):
    """This includes tables that are sent without their zeros, which is otherwise done for larger tables only."""
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(rows, columns)).astype(dtype) * (generator.random((rows, columns)) < share)
    given_ = Delta({"word_topic": change(values, "word", "topic")}, {"word": np.arange(rows) * 2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta_, "MIN_PACKED_BYTES", 0)
        patch.setattr(delta_, "PACKED_ROWS_AT_ONCE", 7)
        sent = pickle.dumps(given_, protocol=5)
        found = pickle.loads(sent)
    assert found.parts["word_topic"].kind == "change"
    assert found["word_topic"].dtype == values.dtype
    np.testing.assert_array_equal(found["word_topic"], values)
    np.testing.assert_array_equal(found.ids["word"], given_.ids["word"])
    if columns > 128 and share <= 0.1 and rows > 20:
        assert len(sent) < 0.5 * values.nbytes


@given(st.integers(1, 30), st.integers(1, 7), st.integers(1, 200), st.integers(0, 1000))
def test_rows_added_in_chunks__give_the_same_bits(rows, columns, added_bytes, seed):
    generator = np.random.default_rng(seed)
    words = [np.flatnonzero(generator.random(rows) < 0.7).astype(np.int32) for _ in range(4)]
    terms = [generator.random((ids.size, columns), np.float32) for ids in words]
    expected = np.zeros((rows, columns), np.float32)
    for ids, term in zip(words, terms, strict=True):
        expected[ids] += term
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta_, "ADDED_BYTES", added_bytes)
        summed = total(
            Delta({"counts": change(term, "word", "topic")}, {"word": ids})
            for ids, term in zip(words, terms, strict=True)
        )
    np.testing.assert_array_equal(summed["counts"], expected[summed.ids["word"]])


def test_arrays_without_named_axes__add():
    delta = Delta({"plain": fresh(np.arange(3.0)), "number": fresh(2.0)})
    summed = total([delta, delta, delta])
    np.testing.assert_array_equal(summed["plain"], [0.0, 3.0, 6.0])
    assert summed.number("number") == 6.0
    np.testing.assert_array_equal(delta["plain"], np.arange(3.0))
