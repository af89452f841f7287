"""Summarise the labels and covariates of a corpus, and split them into two corpora."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.building.split import PartWriter, finish_parts, two_parts
from collapsium.storage.building.splitmix import GOLDEN, mixed
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import Step, write_parts
from collapsium.storage.corpus.list_columns import label_lists, rows_of
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.shard import EXTRAS, Documents
from collapsium.storage.corpus.writer import CorpusWriter, VectorWriter
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import OptionError, suggestion
from collapsium.storage.units import Counting, silent

_LABELS = np.uint64(0x8CB92BA72F3D8DD7)  # Separates the random streams of labels, documents and tokens

NUMBER = "double"


def covariates_of(fields: Mapping[str, str]) -> list[str]:
    """Return the names of a corpus's covariates, sorted."""
    return sorted(name for name, kind in fields.items() if kind == NUMBER and name not in EXTRAS)


def summary(corpus: Corpus) -> JsonObject:
    """Summarise the labels of a corpus by field, and its covariates."""
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
            in_field = (fields == name)[labels.position]
            values.setdefault(name, set()).update(value for field, value in labels.names if field == name)
            more = np.array([in_field.sum(), np.unique(owner[in_field]).size], dtype=np.int64)
            counts[name] = counts[name] + more if name in counts else more
    result: JsonObject = {}
    if "labels" in corpus.manifest.fields:
        result["labels"] = {
            name: {"values": len(values[name]), "labels": int(counts[name][0]), "documents": int(counts[name][1])}
            for name in sorted(values)
        }
    if numbers:
        result["covariates"] = {name: _figures(np.concatenate(parts)) for name, parts in sorted(numbers.items())}
    return result


def _figures(values: npt.NDArray[np.float64]) -> JsonObject:
    if not values.size:
        return {"documents": 0, "least": None, "most": None, "mean": None}
    smallest, largest, mean = float(values.min()), float(values.max()), float(values.mean())
    return {"documents": values.size, "least": smallest, "most": largest, "mean": mean}


def label_draws(
    documents: npt.NDArray[np.int64], fields: list[str], values: list[str | None], seed: int
) -> npt.NDArray[np.float64]:
    """Draw a uniform number for each label."""
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
    """Divide the labels and covariates of documents into retained and dropped ones."""
    left, dropped, able = dict(extras), dict(extras), 0
    for name, column in extras.items():
        count = len(column)
        if name == "labels":
            rows = rows_of(column)
            in_field = np.array([field in (None, name) for name in rows.column("field").to_pylist()], dtype=bool)
            sides = [rows.column(side).to_pylist() for side in ("field", "value")]
            draws = label_draws(np.asarray(rows.column("document")) + first, sides[0], sides[1], seed)
            out = in_field & (draws < share)
            left[name], dropped[name] = (label_lists(rows.filter(pa.array(chosen)), count) for chosen in (~out, out))
            able += int(in_field.sum())
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
    """Split the labels of documents into two corpora, which both have all documents, tokens and shards."""
    if not 0 < share <= 1:
        raise OptionError(f"expected a share above 0, and at most 1, found {share}", "drop_labels")
    words, written, able = corpus.vocabulary.words, 0, 0
    size = max(row.tokens for row in corpus.manifest.shards)
    with two_parts(corpus, train, heldout) as folders:
        kind = CorpusWriter if corpus.holds == DOCUMENTS else VectorWriter
        writers: list[PartWriter] = [kind(folder, len(words), size) for folder in folders]
        for reference in corpus.references:
            part = reference.documents() if corpus.holds == DOCUMENTS else reference.vectors()
            *sides, some = part_columns(part.extras, written, share, seed, field)
            for writer, extras in zip(writers, sides, strict=True):
                labelled = replace(part, extras=extras)
                if isinstance(writer, CorpusWriter) and isinstance(labelled, Documents):
                    writer.add_shard(labelled)
                else:
                    writer.add(labelled)
            able, written = able + some, written + len(part)
            progress(written)
        if not able:
            raise OptionError(_nothing(corpus, field))
        write_parts(folders, corpus, Step(corpus=corpus.manifest.digest, kind="labels", seed=seed, high=share))
        finish_parts(writers, (train, heldout), words)


def _nothing(corpus: Corpus, field: str | None) -> str:
    """Return the message that there is nothing to drop, with the fields of the corpus."""
    fields = summary(corpus)
    names = [*fields.get("labels", {}), *fields.get("covariates", {})]
    named = f"there are {', '.join(names[:12])}" if names else "`ingest` with `labels` gives some"
    if field is None:
        return f"`drop_labels`: {corpus.url} has no labels; " + (
            f"its covariates are dropped by name, `field` {names[0]}" if names else named
        )
    return f"`field` {field}: {corpus.url} has no labels or covariate of this name{suggestion(field, names)}; {named}"
