import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.shard import Shard
from collapsium.workers.arrays.random_streams import Stream, document_hashes, smallest_hashes
from tests.strategies import bags, documents_of

STREAM = Stream(3, "start", 0)


def of(rows, stream=STREAM, number=0):
    """Return the addresses of documents that make a shard."""
    return document_hashes(Shard.of(number, documents_of(rows)), stream.at(place=number))


@given(bags(), st.data())
def test_addresses__do_not_depend_on_the_order_and_division_of_documents(drawn, data):
    rows, _ = drawn
    whole = of(rows)
    assert whole.dtype == np.int64
    assert (whole >= 0).all()
    order = data.draw(st.permutations(range(len(rows))))
    cut = data.draw(st.integers(0, len(rows)))
    parts = [[rows[n] for n in part] for part in (order[:cut], order[cut:]) if part]
    found = np.concatenate([of(part, number=number) for number, part in enumerate(parts)])
    np.testing.assert_array_equal(found, whole[order])


@given(bags(max_documents=20, max_words=8))
def test_addresses__are_equal_for_equal_documents_only(drawn):
    rows, _ = drawn
    found = of(rows)
    for row, first in zip(rows, found, strict=True):
        for second_row, second in zip(rows, found, strict=True):
            assert (first == second) == (row == second_row)


@given(bags())
def test_addresses__depend_on_seed_purpose_and_iteration(drawn):
    rows, _ = drawn
    for stream in (Stream(4, "start", 0), Stream(3, "sweep", 0), Stream(3, "start", 1)):
        assert (of(rows) != of(rows, stream)).all()


def test_addresses__are_uniformly_distributed():
    """Both their size and their low bits are uniform, even if documents differ in one count or one word only."""
    found = of([{word: count} for word in range(50) for count in range(1, 41)])
    for bits in (found / 2.0**63, (found % 1024) / 1024):
        shares = np.histogram(bits, 10, (0.0, 1.0))[0] / found.size
        assert (np.abs(shares - 0.1) < 0.04).all()


@given(bags(max_documents=12, max_words=3, max_count=2), st.integers(0, 14), st.data())
def test_smallest__of_several_shards_equals_the_corpus(drawn, count, data):
    rows, _ = drawn
    present = np.array([bool(row) for row in rows])
    whole = smallest_hashes(of(rows), count, present)
    assert whole.size == min(count, len({tuple(sorted(row.items())) for row in rows if row}))
    assert (np.diff(whole) > 0).all()
    order = data.draw(st.permutations(range(len(rows))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    parts = [order[low:high] for low, high in zip([0, *cuts], [*cuts, len(rows)], strict=True) if low < high]
    found = [smallest_hashes(of([rows[n] for n in part]), count, present[list(part)]) for part in parts]
    np.testing.assert_array_equal(np.unique(np.concatenate(found))[:count], whole)
