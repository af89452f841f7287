"""Append vectors to a corpus, each addition as a Zarr array of its own, so that existing chunks do not change.

The sources are read twice: first their ids and values are checked, then new vectors are written. As for documents, the
manifest is replaced last, and the next addition removes files that it does not name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.pipeline.corpora.append.additions import (
    LOCK,
    MAX_NAMED_IDS,
    Added,
    Addition,
    clean,
    clean_hidden,
    layout_of,
    refuse_known,
    scratch_inside,
)
from collapsium.pipeline.corpora.append.repeats import Earlier, added_ids, find_earlier
from collapsium.pipeline.corpora.side_files import read_appended_side_files
from collapsium.storage.building.ingest_record import History, Report, read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import APPENDED_VECTORS, VECTORS, AppendedArray, Manifest, VectorsRecord
from collapsium.storage.corpus.shard import digest_of_ids
from collapsium.storage.corpus.vectors import ARRAY, Vectors
from collapsium.storage.corpus.vocabulary import Vocabulary
from collapsium.storage.corpus.writer import SIZES, VectorWriter, WrittenVectors
from collapsium.storage.errors import InputError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.locks.run_lock import RunLock
from collapsium.storage.readers.guesses import distinct_guesses, with_guesses
from collapsium.storage.readers.open import open_vectors
from collapsium.storage.readers.side_files.table import Sides, merged
from collapsium.storage.readers.vectors.base import DenseSource
from collapsium.storage.units import Counting

TAG = 12  # Digits of a digest in a file's name


def append_vectors(corpus: Corpus, paths: list[str], addition: Addition, progress: Counting) -> Added:
    """Add vectors to a corpus of vectors."""
    _require_own(corpus, addition)
    with RunLock(corpus.folder / LOCK) as lock:
        corpus = Corpus(corpus.url)
        corpus.folder = corpus.folder.fenced(lock)
        own_history = (read_history(corpus.folder) or History(VECTORS)).until(corpus.manifest.documents)
        options = with_guesses(replace(own_history.options, **layout_of(addition)), own_history.report.guesses)
        options = replace(options, max_decompressed=addition.max_decompressed)
        sides = read_appended_side_files(addition.side_files, own_history.side_files, options, corpus.manifest.fields)
        if sides is not None and sides.by_order and addition.skip_existing:
            raise OptionError(
                "leaves vectors out, and side files have a line for each vector; use side files with ids",
                "skip_existing",
            )
        sources = open_vectors(paths, options, tagged=True)
        _require_columns(corpus, sources)
        clean_hidden(corpus)
        selection = _select(corpus, sources, sides, addition, own_history)
        if selection.earlier is not None:
            _require_same(corpus, sources, sides, selection, selection.earlier, progress)
            return Added(corpus.manifest, selection.earlier.report, own_history, repeated=True)
        if not selection.count:
            return Added(corpus.manifest, selection.report(len(paths)), own_history)
        clean(corpus)
        written, unmatched = _write(corpus, corpus.folder, sources, sides, selection, progress)
        manifest = _manifest(corpus, written)
        guesses = distinct_guesses(() if sides is None else sides.guesses, sources.guesses)
        report = replace(selection.report(len(paths)), unmatched_rows=unmatched, guesses=guesses)
        lock.require()
        own_history = replace(own_history, appended=(*own_history.appended, report))
        own_history.write(corpus.folder)
        manifest.write(corpus.folder)
    return Added(manifest, report, own_history, selection.files)


@dataclass(frozen=True)
class _Selection:
    """Vectors of the sources that the corpus does not have."""

    keep: tuple[npt.NDArray[np.bool_], ...]  # Of each portion, in their order, which vectors are new; bool
    ids_sha256: str  # Digest of the ids of all vectors of the sources
    new_sha256: str  # Digest of the ids of the new ones
    count: int  # How many are new
    files: frozenset[str]  # Files that they are from
    # The addition of vectors of these ids that the corpus has already, if it is to be compared; all are kept then
    earlier: Earlier | None = None

    def report(self, files: int) -> Report:
        """Return what was read of so many files, and what was left out."""
        every = sum(map(len, self.keep))
        return Report(files=files, documents=self.count, skipped_documents=every - self.count)


def _require_own(corpus: Corpus, addition: Addition) -> None:
    """Refuse options that apply only to documents."""
    if addition.grow:
        raise OptionError(f"{corpus.url} is a corpus of vectors, whose columns are fixed", "grow")
    if addition.tokenizer is not None:
        raise OptionError(f"`tokenizer` {addition.tokenizer}: {corpus.url} is a corpus of vectors, which have no words")
    if addition.headings is not None:
        raise OptionError(f"{corpus.url} is a corpus of vectors, which have no segments", "headings")
    if addition.format not in (None, VECTORS):
        raise OptionError(f"`format` {addition.format}: {corpus.url} is a corpus of vectors")


def _require_columns(corpus: Corpus, sources: DenseSource) -> None:
    """Refuse vectors with other columns; files without names need the same number."""
    own, columns = corpus.vocabulary.words, sources.columns()
    if len(own) != len(columns):
        raise MismatchError(f"{sources.name}: has {len(columns)} columns of values; {corpus.url} has {len(own)}")
    if sources.named and list(own) != columns:
        ours, theirs = next(pair for pair in zip(own, columns, strict=True) if pair[0] != pair[1])
        raise MismatchError(f"{sources.name}: has a column {theirs!r} where {corpus.url} has {ours!r}")


def _sided(sources: DenseSource, sides: Sides | None) -> Iterator[Vectors]:
    """Read all vectors, with the labels and covariates of side files."""
    first = 0
    for part in sources.vectors():
        yield part if sides is None else replace(part, extras=merged(part.extras, sides.of(part.ids, first)))
        first += len(part)


def _select(
    corpus: Corpus, sources: DenseSource, sides: Sides | None, addition: Addition, own_history: History
) -> _Selection:
    """Check the sources, and select the vectors that the corpus does not have."""
    known = pa.concat_arrays([one.documents().ids for one in corpus.references])
    added = added_ids(own_history, known)
    keep, every, files = [], [], set()
    refused: list[pa.Array] = []
    for part in _sided(sources, sides):
        fields = {name: str(column.type) for name, column in part.extras.items()}
        if fields != corpus.manifest.fields:
            own, new = (", ".join(sorted(names)) or "none" for names in (corpus.manifest.fields, fields))
            raise MismatchError(
                f"{sources.file}: expected vectors with the further fields {own}, as in {corpus.url}, found {new}"
            )
        there = pc.is_in(part.ids, value_set=known)
        again = part.ids.filter(there)
        if len(again) and (addition.skip_existing and sources.numbered):
            _refuse(corpus, sources, again)
        if len(again) and not addition.skip_existing:
            refused.append(again[:MAX_NAMED_IDS])
            if not pc.all(pc.is_in(part.ids, value_set=added)).as_py():
                _refuse(corpus, sources, pa.concat_arrays(refused))
        keep.append(np.ones(len(part), dtype=bool) if refused else ~np.asarray(there, dtype=bool))
        every.append(part.ids)
        files.update([sources.file] if keep[-1].any() else [])
    ids = pa.concat_arrays(every) if every else pa.array([], pa.string())
    earlier = find_earlier(corpus.manifest, own_history, known, ids) if refused else None
    if refused and earlier is None:
        _refuse(corpus, sources, pa.concat_arrays(refused))
    mask = np.concatenate(keep) if keep else np.zeros(0, dtype=bool)
    new = ids.filter(pa.array(mask, pa.bool_()))
    return _Selection(tuple(keep), digest_of_ids(ids), digest_of_ids(new), len(new), frozenset(files), earlier)


def _refuse(corpus: Corpus, sources: DenseSource, ids: pa.Array) -> NoReturn:
    """Raise `MismatchError` for ids that the corpus already has."""
    if sources.numbered:
        raise MismatchError(
            f"{corpus.url}: has vectors numbered as these, such as {ids[0].as_py()!r}; rename the file, or "
            "give vectors ids (`id` COLUMN at ingest), by which `skip_existing` leaves them out"
        )
    refuse_known(corpus, ids.to_pylist())


def _require_same(
    corpus: Corpus,
    sources: DenseSource,
    sides: Sides | None,
    selection: _Selection,
    earlier: Earlier,
    progress: Counting,
) -> None:
    """Refuse vectors with the ids of an earlier addition but other content."""
    with scratch_inside(corpus.folder) as scratch:
        written, _ = _write(corpus, scratch, sources, sides, selection, progress)
    if tuple(written.shards) != earlier.shards:
        _refuse(corpus, sources, corpus.references[len(earlier.before)].documents().ids)


def _write(
    corpus: Corpus,
    folder: Folder,
    sources: DenseSource,
    sides: Sides | None,
    selection: _Selection,
    progress: Counting,
) -> tuple[WrittenVectors, int]:
    """Write the new vectors as shards; return them with the number of side-file rows that match no vector."""
    manifest, columns = corpus.manifest, corpus.manifest.vocabulary.words
    before = manifest.shards if selection.earlier is None else selection.earlier.before
    stem, _, ending = ARRAY.partition(".")
    # Shards as large as those that there are, but not tiny ones though the corpus may have begun with few vectors.
    values = min(max(*(row.tokens for row in before), SIZES.least), selection.count * columns)
    array = f"{stem}-{selection.new_sha256[:TAG]}.{ending}"
    writer = VectorWriter(folder, columns, values, array=array, behind=len(before))
    every, read, written = [], 0, 0
    for part, keep in zip(_sided(sources, sides), selection.keep, strict=False):
        every.append(part.ids)
        if len(part) != keep.size:
            break
        writer.add(part.take(keep))
        read, written = read + len(part), written + int(keep.sum())
        progress(written)
    if digest_of_ids(pa.concat_arrays(every)) != selection.ids_sha256:
        raise InputError(sources.name, "has changed while it was read; append it again")
    return writer.close(), 0 if sides is None else sides.judge(read)


def _manifest(corpus: Corpus, written: WrittenVectors) -> Manifest:
    """Return the manifest that names the new shards too."""
    old, vectors = corpus.manifest, corpus.manifest.vectors
    if vectors is None:
        raise MismatchError(f"{corpus.url}: expected a corpus of vectors")
    before = corpus.references[0].vectors().values[0]
    constant = tuple(
        column for column in vectors.constant if written.least[column] == written.most[column] == before[column]
    )
    shards = (*old.shards, *written.shards)
    documents = sum(row.documents for row in shards)
    every = np.full(old.vocabulary.words, documents, dtype=np.int64)
    new = AppendedArray(
        file=written.array.file, sha256=written.array.sha256, rows=written.array.rows, first=len(old.shards)
    )
    return Manifest(
        version=APPENDED_VECTORS,
        documents=documents,
        pairs=documents * old.vocabulary.words,
        tokens=documents * old.vocabulary.words,
        vocabulary=Vocabulary(corpus.vocabulary.words, every, every).write(corpus.folder, tagged=True),
        fields=old.fields,
        shards=shards,
        vectors=VectorsRecord(
            file=vectors.file,
            sha256=vectors.sha256,
            rows=vectors.rows,
            constant=constant,
            appended=(*(vectors.appended or ()), new),
        ),
    )
