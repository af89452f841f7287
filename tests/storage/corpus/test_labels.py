import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.list_columns import labels_of
from collapsium.storage.corpus.parquet import LABELS


@given(st.lists(st.frozensets(st.integers(0, 4), max_size=4), min_size=1, max_size=6), st.data())
def test_take__returns_documents_in_any_order_and_repeatedly(rows, data):
    listed = [[{"field": "x", "value": str(value)} for value in sorted(row)] for row in rows]
    numbers = pa.array([float(n) if n % 2 else None for n in range(len(rows))], pa.float64())
    labels = labels_of(len(rows), {"labels": pa.array(listed, LABELS), "y": numbers})
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9))
    found = labels.take(np.array(chosen, dtype=np.int64))
    for place, document in enumerate(chosen):
        positions = found.position[found.offsets[place] : found.offsets[place + 1]]
        assert {labels.names[number] for number in positions} == {("x", str(value)) for value in rows[document]}
    assert np.array_equal(found.numbers["y"], labels.numbers["y"][chosen], equal_nan=True)
    assert found.offsets.size == len(chosen) + 1
