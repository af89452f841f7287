"""Side files of documents, and which named fields are theirs and which the documents' own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from collapsium.storage.building.ingest_record import Beside
from collapsium.storage.building.label_split import covariates_of
from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.errors import OptionError, suggestion
from collapsium.storage.readers.open import kind_of_name
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.side_files.columns import Wanted, read_sides
from collapsium.storage.readers.side_files.table import Sides
from collapsium.storage.readers.texts.batches import FIXED, TEXTS
from collapsium.storage.readers.texts.blocks import find_files
from collapsium.storage.readers.texts.fields import Fields, named
from collapsium.storage.readers.texts.tables import columns_of

OWN = (*(kind for kind in TEXTS if kind not in FIXED), "vectors")  # formats whose documents have fields to name


def look_beside(
    wanted: Wanted, paths: list[str], kind: str, options: ReadOptions
) -> tuple[Sides | None, ReadOptions, Beside | None]:
    """Read side files, and say what is left for the documents' own fields.

    A field that is named is a side file's where one has it, and the documents' where they do; of both, labels are
    united.

    Parameters
    ----------
    wanted : Wanted
        The side files.
    paths : list of str
        The sources of the documents.
    kind : str
        Their format.
    options : ReadOptions
        What the user said.

    Returns
    -------
    sides : Sides or None
        The side files; None where there are none.
    options : ReadOptions
        Of the documents.
    beside : Beside or None
        What to remember.

    Raises
    ------
    CollapsiumError
        A side file is missing or damaged, or a field is nowhere.
    """
    if not wanted.files and not wanted.names:
        return None, options, None
    told = read_sides(wanted, options)
    names = Fields.of(options)
    theirs = _columns(paths, kind, options)
    kept = {}
    for flag, said, pairs in (
        ("labels", options.labels, names.labels),
        ("covariates", options.covariates, names.covariates),
    ):
        lost = next((field for _, field in pairs if field not in told.fields), None)
        if lost is not None and kind not in OWN:
            there = f"; there are {named(sorted(told.fields))}" if told.fields else ""
            raise OptionError(f"`{flag}` {lost}: no side file has such a field{suggestion(lost, told.fields)}{there}")
        kept[flag] = tuple(
            text
            for text, (_, field) in zip(said, pairs, strict=True)
            if field not in told.fields or kind == "jsonl" or field in theirs
        )
    sides = Sides(told.files)
    beside = Beside(tuple(sorted(sides.columns)), told.labels, told.covariates, options.id)
    own = replace(options, labels=kept["labels"], covariates=kept["covariates"])
    if kind not in OWN and told.fields:
        own = replace(own, id=None)
    return sides, own, beside


def _columns(paths: list[str], kind: str, options: ReadOptions) -> list[str]:
    """Return the fields that a table of documents has; of other formats none are known before they are read."""
    if kind not in ("csv", "parquet"):
        return []
    files = find_files(paths, kind, kind_of_name)
    return columns_of(files[0], kind, options)


def look_beside_more(
    wanted: Wanted, beside: Beside | None, options: ReadOptions, fields: Mapping[str, str]
) -> Sides | None:
    """Read side files of documents that are added to a corpus, as those that it was made with.

    Parameters
    ----------
    wanted : Wanted
        The side files; where there are none, the documents have no labels and no covariates.
    beside : Beside or None
        What the corpus remembers.
    options : ReadOptions
        How files are read.
    fields : mapping of str to str
        The further columns of the corpus.

    Returns
    -------
    Sides or None
        None where neither the corpus nor these documents have any.

    Raises
    ------
    CollapsiumError
        See `look_beside`.
    """
    if beside is None and not wanted.files and not wanted.names:
        return None
    known = beside or Beside(())
    options = replace(options, labels=known.labels, covariates=known.covariates, id=known.id)
    columns = {name: LABELS if name == "labels" else pa.float64() for name in known.columns}
    covariates = None if known.labels or known.covariates else covariates_of(fields)
    return Sides(read_sides(wanted, options, covariates).files, columns)
