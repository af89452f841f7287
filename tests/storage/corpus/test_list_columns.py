import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.building.split import label_draws, part_columns
from collapsium.storage.corpus.list_columns import label_lists, rows_of, union
from collapsium.storage.corpus.parquet import LABELS

LABEL = st.fixed_dictionaries({"field": st.sampled_from(["a", "b", "ab"]), "value": st.sampled_from(["", "x", "bx"])})
COLUMN = st.lists(st.none() | st.lists(LABEL, max_size=4), min_size=1, max_size=6)


@given(COLUMN, st.integers(0, 5))
def test_rows__are_lists_of_labels(drawn, first):
    column = pa.array(drawn, LABELS).slice(min(first, len(drawn)))
    found = label_lists(rows_of(column), len(column))
    assert found.type == LABELS
    assert found.to_pylist() == [row or [] for row in drawn[first:]]


@given(st.lists(COLUMN, min_size=1, max_size=3))
def test_union__has_each_label_once_in_order_of_first_occurrence(drawn):
    count = min(map(len, drawn))
    expected = []
    for document in range(count):
        every = [label for column in drawn for label in column[document] or []]
        expected.append([label for place, label in enumerate(every) if label not in every[:place]])
    assert union([pa.array(column[:count], LABELS) for column in drawn], count).to_pylist() == expected


@given(COLUMN, st.integers(0, 6), st.floats(0.05, 0.95), st.integers(-3, 99), st.sampled_from([None, "a", "n"]))
def test_labels__are_dropped_depending_on_their_address_only(drawn, cut, share, seed, field):
    numbers = pa.array([float(n) if n % 2 else None for n in range(len(drawn))], pa.float64())
    extras = {"labels": pa.array(drawn, LABELS), "n": numbers}
    left, dropped, able = part_columns(extras, 0, share, seed, field)
    cut = min(cut, len(drawn))
    pieces = [
        part_columns({name: column.slice(a, b - a) for name, column in extras.items()}, a, share, seed, field)
        for a, b in ((0, cut), (cut, len(drawn)))
    ]
    for whole, parts in ((left, [piece[0] for piece in pieces]), (dropped, [piece[1] for piece in pieces])):
        for name, column in whole.items():
            assert column.to_pylist() == [value for part in parts for value in part[name].to_pylist()]
    assert able == sum(piece[2] for piece in pieces)
    for name in extras:
        for labels, a, b in zip(*(part[name].to_pylist() for part in (extras, left, dropped)), strict=True):
            if name == "n":
                assert (a if b is None else b) == labels
            else:
                assert [label for label in labels or [] if label in a] == a
                assert [label for label in labels or [] if label not in a] == b
                assert field is None or all(label["field"] == field for label in b)


def test_labels__are_dropped_independently_with_the_given_probability():
    documents = np.repeat(np.arange(20_000), 2)
    draws = label_draws(documents, ["a", "ab"] * 20_000, ["bx", "x"] * 20_000, 3).reshape(-1, 2)
    assert ((draws >= 0) & (draws < 1)).all()
    assert abs((draws < 0.3).mean() - 0.3) < 4 * np.sqrt(0.21 / 40_000)
    assert abs(np.corrcoef(draws.T)[0, 1]) < 4 / np.sqrt(20_000)
    assert not np.isin(draws, label_draws(documents, ["a"] * 40_000, ["x"] * 40_000, 4)).any()
