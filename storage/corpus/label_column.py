"""Convert the column of labels, a list for each document, to rows of document, field and value, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.corpus.parquet import LABELS


def rows_of(labels: pa.Array) -> pa.Table:
    """Return the labels as a table with a row for each label.

    Parameters
    ----------
    labels : pyarrow.Array of list
        A list of (field, value) a document, or null.

    Returns
    -------
    pyarrow.Table
        Columns ``document``, counted from 0, ``field`` and ``value``.
    """
    lengths = np.asarray(pc.fill_null(pc.list_value_length(labels), 0), dtype=np.int64)
    field, value = labels.flatten().flatten()
    document = pa.array(np.repeat(np.arange(len(labels), dtype=np.int64), lengths))
    return pa.table({"document": document, "field": field.cast(pa.string()), "value": value.cast(pa.string())})


def label_lists(rows: pa.Table, documents: int) -> pa.Array:
    """Return the labels as lists, from a table with a row for each label.

    Parameters
    ----------
    rows : pyarrow.Table
        A table as `rows_of` returns it, in any order.
    documents : int
        Number of documents.

    Returns
    -------
    pyarrow.Array of list
        A list a document, with the labels in the order of the rows.
    """
    document = np.asarray(rows.column("document"), dtype=np.int64)
    order = np.argsort(document, kind="stable")
    offsets = np.searchsorted(document[order], np.arange(documents + 1)).astype(np.int32)
    taken = rows.take(pa.array(order))
    columns = [_combined(taken.column(name)) for name in ("field", "value")]
    pairs = pa.StructArray.from_arrays(columns, fields=list(LABELS.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), pairs).cast(LABELS)


def _combined(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def union(columns: Sequence[pa.Array], documents: int) -> pa.Array:
    """Return the labels of documents in several columns, without repetitions.

    Parameters
    ----------
    columns : sequence of pyarrow.Array
        Lists of labels, or nulls, of the same documents.
    documents : int
        Number of documents.

    Returns
    -------
    pyarrow.Array of list
        The labels, in the order of their first occurrence.
    """
    return label_lists(once(pa.concat_tables([rows_of(one) for one in columns])), documents)


def once(rows: pa.Table) -> pa.Table:
    """Return the rows without repetitions."""
    key = np.asarray(rows.column("document"), dtype=np.int64)
    for name in ("field", "value"):
        coded = _combined(rows.column(name)).dictionary_encode()
        key = key * max(len(coded.dictionary), 1) + np.asarray(coded.indices, dtype=np.int64)
    return rows.take(pa.array(np.sort(np.unique(key, return_index=True)[1])))
