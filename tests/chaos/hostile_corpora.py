"""Functions that change columns and records of a corpus and correct all digests, as an attacker would."""

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from collapsium.storage.io.records import dump


def table_of(place, number=0):
    """Read the Parquet file of a shard."""
    record = json.loads((Path(place) / "manifest.json").read_text())
    return pq.read_table(io.BytesIO((Path(place) / record["shards"][number]["file"]).read_bytes()))


def with_column(table, name, column):
    """Replace the column of this name, or append it."""
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, column)
    return table.append_column(name, column)


def rewrite_shard(place, table, number=0):
    """Rewrite the Parquet file of a shard, and correct the manifest as far as possible."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", store_schema=False)

    def change(record):
        row = record["shards"][number]
        (Path(place) / row["file"]).write_bytes(sink.getvalue())
        for name in ("documents", "pairs", "tokens"):
            record[name] -= row[name]
        row.update(sha256=hashlib.sha256(sink.getvalue()).hexdigest(), documents=table.num_rows)
        row.update(pairs=_sum(table, "words", count=True), tokens=_sum(table, "counts"))
        row["ids_sha256"] = _ids_digest(table) or row["ids_sha256"]
        for name in ("documents", "pairs", "tokens"):
            record[name] += row[name]
        further = [name for name in table.column_names if name not in ("id", "words", "counts")]
        record["fields"] = {name: str(table.schema.field(name).type) for name in further}

    rewrite_manifest(place, change)


def rewrite_manifest(place, change):
    """Change the record of a corpus, and correct its digest."""
    path = Path(place) / "manifest.json"
    record = json.loads(path.read_text())
    del record["sha256"]
    change(record)
    path.write_bytes(dump(record))


def rewrite_vocabulary(place, table):
    """Rewrite the table of words, and correct its digest."""
    sink = io.BytesIO()
    pq.write_table(table, sink, store_schema=False)

    def change(record):
        (Path(place) / record["vocabulary"]["file"]).write_bytes(sink.getvalue())
        record["vocabulary"].update(sha256=hashlib.sha256(sink.getvalue()).hexdigest(), words=table.num_rows)

    rewrite_manifest(place, change)


def not_utf8(rows):
    """Return a column of strings, the last of which is not valid UTF-8."""
    data = b"a" * (rows - 1) + b"\xff"
    offsets = np.arange(rows + 1, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _sum(table, name, *, count=False):
    """Sum all entries of a column of lists in 64 bits, or count them; anything else sums to 0."""
    if table.column_names.count(name) != 1:
        return 0
    column = table.column(name).combine_chunks()
    if not pa.types.is_list(column.type):
        return 0
    values = column.flatten()
    if count or not pa.types.is_integer(values.type):
        return len(values)
    return abs(sum(value or 0 for value in values.to_pylist()))


def _ids_digest(table):
    try:
        ids = table.column("id").to_pylist()
        digest = hashlib.sha256()
        for name in ids:
            digest.update(f"{len(name)}:{name}".encode("utf-8", "surrogatepass"))
    except (KeyError, ValueError, TypeError):
        return None
    return digest.hexdigest()
