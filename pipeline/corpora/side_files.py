"""Read side files with labels and covariates, and separate their fields from those of the documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from collapsium.storage.building.ingest_record import SideFileColumns
from collapsium.storage.building.label_split import covariates_of
from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.errors import OptionError, suggestion
from collapsium.storage.readers.open import kind_of_name
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.side_files.columns import SideFileRequest, read_sides
from collapsium.storage.readers.side_files.table import Sides
from collapsium.storage.readers.texts.batches import FIXED, TEXTS
from collapsium.storage.readers.texts.blocks import find_files
from collapsium.storage.readers.texts.fields import Fields, named
from collapsium.storage.readers.texts.tables import columns_of

OWN = (*(kind for kind in TEXTS if kind not in FIXED), "vectors")  # Formats whose documents have fields of their own


def read_side_files(
    files: SideFileRequest, paths: list[str], kind: str, options: ReadOptions
) -> tuple[Sides | None, ReadOptions, SideFileColumns | None]:
    """Read side files, and return the options that are left for the documents' own fields.

    A named field belongs to side files, to the documents, or to both; labels of both are united.
    """
    if not files.files and not files.names:
        return None, options, None
    content = read_sides(files, options)
    names = Fields.of(options)
    theirs = _columns(paths, kind, options)
    left = {}
    for flag, named_fields, pairs in (
        ("labels", options.labels, names.labels),
        ("covariates", options.covariates, names.covariates),
    ):
        lost = next((field for _, field in pairs if field not in content.fields), None)
        if lost is not None and kind not in OWN:
            there = f"; there are {named(sorted(content.fields))}" if content.fields else ""
            raise OptionError(
                f"`{flag}` {lost}: no side file has such a field{suggestion(lost, content.fields)}{there}"
            )
        left[flag] = tuple(
            text
            for text, (_, field) in zip(named_fields, pairs, strict=True)
            if field not in content.fields or kind == "jsonl" or field in theirs
        )
    sides = Sides(content.files, guesses=content.guesses)
    record = SideFileColumns(tuple(sorted(sides.columns)), content.labels, content.covariates, options.id)
    own = replace(options, labels=left["labels"], covariates=left["covariates"])
    if kind not in OWN and content.fields:
        own = replace(own, id=None)
    return sides, own, record


def _columns(paths: list[str], kind: str, options: ReadOptions) -> list[str]:
    """Return the fields of a table of documents; those of other formats are unknown before reading."""
    if kind not in ("csv", "parquet"):
        return []
    files = find_files(paths, kind, kind_of_name)
    return columns_of(files[0], kind, options)


def read_appended_side_files(
    files: SideFileRequest, record: SideFileColumns | None, options: ReadOptions, fields: Mapping[str, str]
) -> Sides | None:
    """Read side files of documents that are added to a corpus, as its own side files were read."""
    if record is None and not files.files and not files.names:
        return None
    known = record or SideFileColumns(())
    options = replace(options, labels=known.labels, covariates=known.covariates, id=known.id)
    columns = {name: LABELS if name == "labels" else pa.float64() for name in known.columns}
    covariates = None if known.labels or known.covariates else covariates_of(fields)
    content = read_sides(files, options, covariates)
    return Sides(content.files, columns, content.guesses)
