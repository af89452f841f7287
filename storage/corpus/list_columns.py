"""Convert columns of lists, of labels and of segments, to arrays and tables and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.corpus.labels import SEGMENT_COLUMN, Labels, Name, Numbers, Segments, running
from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.io.parquet import numbers_of


def rows_of(labels: pa.Array) -> pa.Table:
    """Return the labels as a table with a row for each label."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(labels), 0), dtype=np.int64)
    field, value = labels.flatten().flatten()
    document = pa.array(np.repeat(np.arange(len(labels), dtype=np.int64), lengths))
    return pa.table({"document": document, "field": field.cast(pa.string()), "value": value.cast(pa.string())})


def label_lists(rows: pa.Table, documents: int) -> pa.Array:
    """Return the labels as lists, from a table with a row for each label."""
    document = np.asarray(rows.column("document"), dtype=np.int64)
    order = np.argsort(document, kind="stable")
    offsets = np.searchsorted(document[order], np.arange(documents + 1)).astype(np.int32)
    taken = rows.take(pa.array(order))
    columns = [taken.column(name).combine_chunks() for name in ("field", "value")]
    pairs = pa.StructArray.from_arrays(columns, fields=list(LABELS.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), pairs).cast(LABELS)


def union(columns: Sequence[pa.Array], documents: int) -> pa.Array:
    """Return the labels of documents in several columns, without repetitions."""
    return label_lists(once(pa.concat_tables([rows_of(column) for column in columns])), documents)


def once(rows: pa.Table) -> pa.Table:
    """Return the rows without repetitions."""
    key = np.asarray(rows.column("document"), dtype=np.int64)
    for name in ("field", "value"):
        coded = rows.column(name).combine_chunks().dictionary_encode()
        key = key * max(len(coded.dictionary), 1) + np.asarray(coded.indices, dtype=np.int64)
    return rows.take(pa.array(np.sort(np.unique(key, return_index=True)[1])))


def labels_of(documents: int, extras: Mapping[str, pa.Array]) -> Labels:
    """Return the labels and covariates in the further columns of documents."""
    floats = {name: column for name, column in extras.items() if pa.types.is_float64(column.type)}
    numbers = {
        name: numbers_of(pc.fill_null(column, np.nan) if column.null_count else column)
        for name, column in floats.items()
    }
    column = extras.get("labels")
    if column is None:
        none = Labels.none(documents)
        return Labels(none.names, none.offsets, none.position, numbers)
    owner = np.asarray(numbers_of(pc.list_parent_indices(column)), dtype=np.int64)
    flat = pc.list_flatten(column)
    codes, names = _coded(flat)
    pairs = np.unique(owner * max(len(names), 1) + codes) if owner.size else owner
    owner, position = np.divmod(pairs, max(len(names), 1))
    offsets = np.searchsorted(owner, np.arange(documents + 1)).astype(np.int64)
    return Labels(names, offsets, position.astype(np.int32), numbers)


def _coded(flat: pa.StructArray) -> tuple[npt.NDArray[np.int64], tuple[Name, ...]]:
    """Return the labels of a flat column as indices into their sorted distinct values, and these."""
    if not len(flat):
        return np.zeros(0, dtype=np.int64), ()
    sides = [flat.field(place) for place in (0, 1)]
    fields, values = (pc.dictionary_encode(pc.fill_null(side, "") if side.null_count else side) for side in sides)
    width = len(values.dictionary)
    raw = np.asarray(numbers_of(fields.indices), dtype=np.int64) * width + numbers_of(values.indices)
    distinct, inverse = np.unique(raw, return_inverse=True)
    field_names, value_texts = fields.dictionary.to_pylist(), values.dictionary.to_pylist()
    names = [(str(field_names[code // width]), str(value_texts[code % width])) for code in distinct.tolist()]
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(len(names))
    return rank[inverse], tuple(names[place] for place in order)


def segments_of(offsets: Numbers, extras: Mapping[str, pa.Array]) -> Segments:
    """Return the segments in the further columns of documents."""
    column = extras.get(SEGMENT_COLUMN)
    if column is None:
        return Segments.of_documents(offsets)
    return Segments(running(segment_counts(column)), segment_bounds(column))


def segment_counts(segments: pa.Array) -> Numbers:
    """Return the number of segments of each document."""
    lengths = pc.list_value_length(segments)
    counts: Numbers = np.asarray(numbers_of(pc.fill_null(lengths, 0) if lengths.null_count else lengths), np.int64)
    return counts


def segment_bounds(segments: pa.Array) -> Numbers:
    """Return the offsets of all segments, in pairs."""
    return running(numbers_of(segments.flatten()))


def segment_lists(counts: Numbers, lengths: Numbers) -> pa.Array:
    """Return the column of segments."""
    offsets = pa.array(running(counts).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(lengths.astype(np.int32)))
