"""The kernel that compares tokens read from disk with the counts of the model, beside its twin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels.gibbs.consistency import find_uncounted
from tests.naive import gibbs as naive
from tests.workers.kernels.gibbs.test_topics import counted, samples

pytestmark = [pytest.mark.kernels, pytest.mark.usefixtures("wrapping")]


@given(samples(), st.sampled_from(["nothing", "a token", "no column", "a cell", "a total"]), st.randoms())
def test_find_uncounted__finds_the_token_that_its_twin_finds(sample, change, draw):
    shard, z, elsewhere, _, _ = sample
    word_topic, column = counted(shard, z, elsewhere), z.astype(np.int64)
    totals, cells = word_topic.sum(axis=0, dtype=np.int64), word_topic.reshape(-1)
    if change in ("a token", "no column") and column.size:
        column[draw.randrange(column.size)] = -1 if change == "no column" else draw.randrange(totals.size + 2)
    elif change == "a cell" and cells.size:
        cells[draw.randrange(cells.size)] = 0
    elif change == "a total":
        totals[draw.randrange(totals.size)] //= 2
    expected = naive.uncounted(np.repeat(shard.position, shard.counts), column, word_topic, totals)
    found = np.zeros(1, dtype=np.int64)
    find_uncounted(document_pairs(shard), column, word_topic, totals, found)
    assert found[0] == expected
    if change in ("nothing", "no column"):
        assert found[0] == -1
