"""Labels and covariates of whole corpora: what there is of them, and leaving some of them out."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.building.split import GOLDEN, finish_parts, mixed, two_parts
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.label_column import listed, rows_of
from collapsium.storage.corpus.lineage import LABELS, write_parts
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.shard import EXTRAS
from collapsium.storage.corpus.writer import CorpusWriter, VectorWriter
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import OptionError, suggestion
from collapsium.storage.units import Counting, silent

_LABELS = np.uint64(0x8CB92BA72F3D8DD7)  # keeps the draws of labels apart from those of documents and tokens
NUMBER = "double"


def covariates_of(fields: Mapping[str, str]) -> list[str]:
    """Return which of a corpus's further columns are covariates, sorted."""
    return sorted(name for name, kind in fields.items() if kind == NUMBER and name not in EXTRAS)


def summary(corpus: Corpus) -> JsonObject:
    """Count the labels of a corpus by field, and its covariates.

    Parameters
    ----------
    corpus : Corpus
        The corpus.

    Returns
    -------
    dict
        ``labels``: of each field ``values``, distinct ones, ``labels``, all of them, and ``documents`` that have one.
        ``covariates``: of each ``documents`` that have it, and ``least``, ``most`` and ``mean``, None where none has.
        Both only where there are any.

    Raises
    ------
    CollapsiumError
        A shard is missing or damaged.
    """
    if "labels" not in corpus.manifest.fields and not covariates_of(corpus.manifest.fields):
        return {}
    values: dict[str, set[str]] = {}
    counts: dict[str, npt.NDArray[np.int64]] = {}
    numbers: dict[str, list[npt.NDArray[np.float64]]] = {}
    for reference in corpus.references:
        labels = reference.labels()
        for name, column in labels.numbers.items():
            numbers.setdefault(name, []).append(column[~np.isnan(column)])
        fields = np.array([name for name, _ in labels.names], dtype=object)
        owner = np.repeat(np.arange(labels.offsets.size - 1), np.diff(labels.offsets))
        for name in dict.fromkeys(fields):
            mine = (fields == name)[labels.position]
            values.setdefault(name, set()).update(value for own, value in labels.names if own == name)
            more = np.array([mine.sum(), np.unique(owner[mine]).size], dtype=np.int64)
            counts[name] = counts[name] + more if name in counts else more
    found: JsonObject = {}
    if "labels" in corpus.manifest.fields:
        found["labels"] = {
            name: {"values": len(values[name]), "labels": int(counts[name][0]), "documents": int(counts[name][1])}
            for name in sorted(values)
        }
    if numbers:
        found["covariates"] = {name: _figures(np.concatenate(parts)) for name, parts in sorted(numbers.items())}
    return found


def _figures(values: npt.NDArray[np.float64]) -> JsonObject:
    if not values.size:
        return {"documents": 0, "least": None, "most": None, "mean": None}
    least, most, mean = float(values.min()), float(values.max()), float(values.mean())
    return {"documents": values.size, "least": least, "most": most, "mean": mean}


def label_draws(
    documents: npt.NDArray[np.int64], fields: list[str], values: list[str | None], seed: int
) -> npt.NDArray[np.float64]:
    """Draw a number for each label of documents.

    Parameters
    ----------
    documents : numpy.ndarray of int64
        Number in the corpus of each label's document.
    fields, values : list of str
        Each label; of covariates the value is None.
    seed : int
        Another seed gives others.

    Returns
    -------
    numpy.ndarray of float64
        Uniform in [0, 1), by the seed, the document, the field and the value alone.
    """
    known: dict[tuple[str, str | None], int] = {}
    codes = np.empty(len(fields), dtype=np.uint64)
    for place, label in enumerate(zip(fields, values, strict=True)):
        if label not in known:
            known[label] = _code(*label)
        codes[place] = known[label]
    with np.errstate(over="ignore"):
        drawn = mixed(np.uint64(seed % 2**64) + GOLDEN * (documents.astype(np.uint64) + np.uint64(1)))
        drawn = mixed(mixed(drawn + _LABELS) + GOLDEN * (codes + np.uint64(1)))
    draws: npt.NDArray[np.float64] = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return draws


def _code(field: str, value: str | None) -> int:
    name = field.encode()
    text = b"%d:%b" % (len(name), name) + (b"" if value is None else b"=" + value.encode())
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def part_columns(
    extras: Mapping[str, pa.Array], first: int, share: float, seed: int, field: str | None = None
) -> tuple[dict[str, pa.Array], dict[str, pa.Array], int]:
    """Part the labels and covariates of documents in those that are left and those that are dropped.

    Parameters
    ----------
    extras : mapping of str to pyarrow.Array
        The documents' further columns.
    first : int
        Number of the first of them in its corpus.
    share : float
        Each label's probability of being dropped.
    seed : int
        Another seed is another split.
    field : str, optional
        The field of labels, or the covariate, that is dropped from; by default all labels, and no covariate.

    Returns
    -------
    left, dropped : dict of str to pyarrow.Array
        All columns; each label, and each number, is in one of them.
    able : int
        Labels and numbers that could have been dropped.
    """
    left, dropped, able = dict(extras), dict(extras), 0
    for name, column in extras.items():
        count = len(column)
        if name == "labels":
            rows = rows_of(column)
            mine = np.array([field in (None, one) for one in rows.column("field").to_pylist()], dtype=bool)
            sides = [rows.column(side).to_pylist() for side in ("field", "value")]
            draws = label_draws(np.asarray(rows.column("document")) + first, sides[0], sides[1], seed)
            out = mine & (draws < share)
            left[name], dropped[name] = (listed(rows.filter(pa.array(chosen)), count) for chosen in (~out, out))
            able += int(mine.sum())
        elif name in covariates_of({name: str(column.type)}):
            drawn = label_draws(np.arange(first, first + count), [name] * count, [None] * count, seed) < share
            out = drawn & (name == field)
            missing = pa.scalar(None, column.type)
            left[name], dropped[name] = (pc.if_else(pa.array(chosen), column, missing) for chosen in (~out, out))
            able += (name == field) * (count - column.null_count)
    return left, dropped, able


def split_labels(
    corpus: Corpus,
    train: str | os.PathLike[str],
    heldout: str | os.PathLike[str],
    *,
    share: float,
    field: str | None = None,
    seed: int = 0,
    progress: Counting = silent,
) -> None:
    """Split the labels of documents: both corpora keep the documents, with all of their tokens, and the shards.

    Parameters
    ----------
    corpus : Corpus
        What to split.
    train, heldout : str or path-like
        The folders to make: one has the labels that are left, the other those that were dropped.
    share : float
        Each label's probability of being dropped.
    field : str, optional
        As for `part_columns`.
    seed : int, optional
        Another seed is another split.
    progress : callable, optional
        Told the number of documents written so far.

    Raises
    ------
    OptionError
        The share is not above 0 and at most 1, the corpus has no labels, or not this field, or both folders are the
        same.
    OccupiedError
        A folder exists.
    """
    if not 0 < share <= 1:
        raise OptionError(f"expected a share above 0, and at most 1, found {share}", "drop_labels")
    words, written, able = corpus.vocabulary.words, 0, 0
    size = max(row.tokens for row in corpus.manifest.shards)
    with two_parts(corpus, train, heldout) as folders:
        kind = CorpusWriter if corpus.holds == DOCUMENTS else VectorWriter
        writers: list[Any] = [kind(folder, len(words), size) for folder in folders]
        for reference in corpus.references:
            part = reference.documents() if corpus.holds == DOCUMENTS else reference.vectors()
            *sides, some = part_columns(part.extras, written, share, seed, field)
            for writer, extras in zip(writers, sides, strict=True):
                (writer.add_shard if corpus.holds == DOCUMENTS else writer.add)(replace(part, extras=extras))
            able, written = able + some, written + len(part)
            progress(written)
        if not able:
            raise OptionError(_nothing(corpus, field))
        write_parts(folders, corpus, LABELS, seed=seed, high=share)
        finish_parts(writers, (train, heldout), words)


def _nothing(corpus: Corpus, field: str | None) -> str:
    """Say that there is nothing to drop, and what there would be."""
    found = summary(corpus)
    there = [*found.get("labels", {}), *found.get("covariates", {})]
    named = f"there are {', '.join(there[:12])}" if there else "`ingest` with `labels` gives some"
    if field is None:
        return f"`drop_labels`: {corpus.url} has no labels; " + (
            f"its covariates are dropped by name, `field` {there[0]}" if there else named
        )
    return f"`field` {field}: {corpus.url} has no labels or covariate of this name{suggestion(field, there)}; {named}"
