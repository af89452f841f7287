"""Chunks of documents in a scratch folder between two passes of an ingest, in Arrow's IPC format."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.storage.corpus.list_columns import segment_bounds
from collapsium.storage.io.folder import Folder
from collapsium.storage.printable import ShortRepr


@dataclass(frozen=True, repr=False)
class Chunk(ShortRepr):
    """Documents whose words are numbered by the vocabulary of a block of text."""

    words: pa.Array  # The word of each number
    # First pair, or token, of each document, and the end of the last; int64 (documents + 1,)
    offsets: npt.NDArray[np.int64]
    # Words of pairs, ascending in each document or segment; or words of tokens, in the order of the text; int32
    numbers: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]  # Counts of pairs; ones for tokens; int32
    ids: pa.Array | None  # The documents' ids; None if the documents will be numbered
    # Further columns; ``segments`` are numbers of pairs, or of tokens
    extras: dict[str, pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.offsets.size - 1

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Names and types of its further columns."""
        return tuple((name, str(column.type)) for name, column in self.extras.items())

    @property
    def bounds(self) -> npt.NDArray[np.int64]:
        """Offsets of the segments, or of the documents if there are no segments."""
        segments = self.extras.get("segments")
        return self.offsets if segments is None else segment_bounds(segments)

    def write(self, folder: Folder, name: str) -> None:
        """Write the chunk as two files."""
        offsets = pa.array(self.offsets)
        ids = pa.nulls(len(self), pa.string()) if self.ids is None else self.ids
        columns = {
            "id": ids,
            "numbers": pa.LargeListArray.from_arrays(offsets, pa.array(self.numbers)),
            "counts": pa.LargeListArray.from_arrays(offsets, pa.array(self.counts)),
            **{f"extra-{name}": column for name, column in self.extras.items()},
        }
        write_table(folder, f"{name}.documents", pa.table(columns))
        write_table(folder, f"{name}.words", pa.table({"word": self.words}))


def read_chunk(folder: Folder, name: str) -> Chunk:
    """Read a chunk."""
    table = read_table(folder, f"{name}.documents")
    numbers, counts = (_combined(table.column(column)) for column in ("numbers", "counts"))
    ids = _combined(table.column("id"))
    offsets = np.asarray(numbers.offsets, dtype=np.int64) if len(numbers) else np.zeros(1, dtype=np.int64)
    return Chunk(
        _combined(read_table(folder, f"{name}.words").column("word")),
        offsets,
        np.asarray(numbers.values, dtype=np.int32),
        np.asarray(counts.values, dtype=np.int32),
        None if len(ids) and ids.null_count else ids,
        {
            column.removeprefix("extra-"): _combined(table.column(column))
            for column in table.column_names
            if column.startswith("extra-")
        },
    )


def _combined(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def write_table(folder: Folder, name: str, table: pa.Table) -> None:
    """Write a table in Arrow's IPC format, lightly compressed."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    folder.write(name, memoryview(sink.getvalue()))


def read_table(folder: Folder, name: str) -> pa.Table:
    """Read a table that `write_table` wrote."""
    return pa.ipc.open_file(pa.BufferReader(folder.read(name))).read_all()
