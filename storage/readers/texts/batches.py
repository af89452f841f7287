"""Read blocks of text files as batches of documents that are not yet tokenized."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from collapsium.storage.errors import OptionError
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts.blocks import Block
from collapsium.storage.readers.texts.fields import DAY_FIRST, MONTH_FIRST, Fields, require_columns
from collapsium.storage.readers.texts.gathering import CHUNK_BYTES, Batch, Gathering, Into
from collapsium.storage.readers.texts.lines import gather_file, gather_json, gather_mallet
from collapsium.storage.readers.texts.segment import ENTRIES, Span, cutter_of
from collapsium.storage.readers.texts.tables import columns_of, gather_arrow, gather_parquet, gather_table, is_numbered

GATHER: dict[str, Callable[[Span, ReadOptions, Into], Iterator[None]]] = {
    "csv": gather_table,
    "jsonl": gather_json,
    "mallet": gather_mallet,
    "parquet": gather_parquet,
    "text": gather_file,
}
TEXTS = tuple(GATHER)  # formats of texts
# Formats whose fields have fixed names, with their labels.
FIXED = {"mallet": ("label=label",), "text": ()}


def fields_of(options: ReadOptions, kind: str) -> ReadOptions:
    """Return the options with the fixed fields of a format."""
    if kind in FIXED:
        for flag, value in (
            ("id", options.id),
            ("text", options.text),
            ("title", options.title),
            ("date", options.date),
            ("date_order", options.date_order),
            ("labels", options.labels not in ((), FIXED[kind])),
            ("covariates", options.covariates),
        ):
            if value:
                raise OptionError(f"documents of the format {kind} have no fields to name", flag)
        if options.segments == ENTRIES:
            raise OptionError(f"`segments` {ENTRIES}: documents of the format {kind} have no fields, and so no lists")
        options = replace(options, labels=FIXED[kind])
    Fields.of(options)
    if options.date_order not in (None, DAY_FIRST, MONTH_FIRST):
        raise OptionError(f"expected {DAY_FIRST} or {MONTH_FIRST}, found {options.date_order!r}", "date_order")
    if options.date_order is not None and options.date is None:
        raise OptionError("requires the field of the dates (`date`)", "date_order")
    if options.segments is not None:
        cutter_of(options.segments)
    return options


def read_batches(block: Block, kind: str, options: ReadOptions, numbered: bool = False) -> Iterator[Batch]:
    """Yield the documents of a block in batches."""
    gathering = Gathering(Fields.of(options), numbered)
    rows = (row for span in block for row in GATHER[kind](span, options, gathering))
    yield from _batches(gathering, rows)


def batches_of_table(table: pa.Table, name: str, options: ReadOptions) -> Iterator[Batch]:
    """Yield the documents of a table in memory, which errors call `name`, in batches."""
    gathering = Gathering(Fields.of(options))
    yield from _batches(gathering, gather_arrow(Span(name, name, table.nbytes), table, gathering))


def _batches(gathering: Gathering, rows: Iterator[None]) -> Iterator[Batch]:
    for _ in rows:
        if gathering.bytes >= CHUNK_BYTES:
            yield gathering.batch()
    if len(gathering):
        yield gathering.batch()


def are_numbered(files: list[Span], kind: str, options: ReadOptions) -> bool:
    """Return True if the first file has no ids, so that documents are numbered."""
    if kind not in ("csv", "parquet"):
        return False
    names, fields = columns_of(files[0], kind, options), Fields.of(options)
    require_columns(files[0].path, names, fields)
    return is_numbered(names, fields)
