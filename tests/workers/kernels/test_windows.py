"""Counts in sliding windows, against a loop over all windows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.ingest.tasks import WordPairs, count_windows
from tests.naive import windows as naive

pytestmark = [pytest.mark.kernels, pytest.mark.usefixtures("wrapping")]


@given(
    st.lists(st.lists(st.integers(-1, 4), max_size=12), max_size=4),
    st.one_of(st.none(), st.integers(1, 6)),
    st.booleans(),
)
def test_counts__match_a_loop_over_all_windows(texts, size, exact):
    pairs = WordPairs.within([np.array([[0, 1, 2], [2, 3, 4]])], 5)
    tokens = np.array([word for text in texts for word in text], dtype=np.int64)
    counts = count_windows(tokens, np.cumsum([0, *map(len, texts)]), pairs, size, exact=exact)
    named = [(int(key) // 5, int(key) % 5) for key in pairs.keys]
    windows, words, both = naive.count(texts, named, size, exact)
    assert (counts.texts, counts.windows) == (len(texts), windows)
    assert counts.word.tolist() == [words.get(word, 0) for word in range(5)]
    assert dict(zip(named, counts.pair.tolist(), strict=True)) == both


def test_counts_without_pairs__equal_counts_of_words():
    counts = count_windows(np.array([0, 0, -1]), np.array([0, 3]), WordPairs.within([np.array([[0]])], 1), 2)
    assert (counts.windows, counts.word.tolist(), counts.pair.tolist()) == (2, [1], [])
