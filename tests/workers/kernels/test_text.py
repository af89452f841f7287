import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.kernels.text import expand_runs, number_runs
from tests.naive import runs as naive

pytestmark = pytest.mark.kernels

INSIDE = np.zeros(256, dtype=np.uint8)
INSIDE[list(b"abc'\xc3\xa9")] = 1
texts = st.lists(st.text("abc' .\u00e9-", max_size=30).map(str.encode), max_size=6)


def cut(given_texts, slots):
    data = np.frombuffer(b"".join(given_texts), dtype=np.uint8)
    offsets = np.cumsum([0, *map(len, given_texts)]).astype(np.int64)
    numbers, ends = np.empty(data.size + 1, dtype=np.int32), np.empty(len(given_texts), dtype=np.int64)
    first, length = np.empty((2, data.size + 1), dtype=np.int64)
    distinct = number_runs(data, offsets, INSIDE, np.array([slots]), numbers, ends, first, length)
    runs = [data[a : a + n].tobytes() for a, n in zip(first[:distinct], length[:distinct], strict=True)]
    return numbers, ends, runs


@given(texts, st.sampled_from([2, 8, 64]))
def test_runs__are_numbered_by_first_occurrence(given_texts, slots):
    numbers, ends, runs = cut(given_texts, slots)
    found, expected = naive.number_runs(given_texts, INSIDE)
    assert runs == expected
    assert [numbers[a:b].tolist() for a, b in zip([0, *ends], ends, strict=False)] == found


@given(texts, st.data())
def test_runs__are_replaced_by_their_words(given_texts, data):
    numbers, ends, runs = cut(given_texts, 4)
    words = [data.draw(st.lists(st.integers(0, 9), max_size=3)) for _ in runs]
    starts = np.cumsum([0, *map(len, words)]).astype(np.int64)
    flat = np.array([word for letters in words for word in letters], dtype=np.int32)
    tokens = np.empty(3 * sum(map(len, given_texts)) + 1, dtype=np.int32)
    lengths = np.empty(len(given_texts), dtype=np.int64)
    expand_runs(numbers[: ends[-1] if ends.size else 0], ends, starts, flat, tokens, lengths)
    expected = naive.expand_runs(naive.number_runs(given_texts, INSIDE)[0], words)
    assert lengths.tolist() == [len(text) for text in expected]
    assert tokens[: lengths.sum()].tolist() == [word for text in expected for word in text]
