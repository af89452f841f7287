"""Append documents to a corpus as new shards; existing shards do not change.

The last step replaces the manifest, and nothing that it names changes before. The names of new files contain digests of
their content, so neither a reader nor an interrupted addition meets the bytes of another addition. The history is
written just before the manifest; an addition that the manifest lacks is ignored when the history is read
(`History.until`).

Vectors are appended as a separate Zarr array, so that existing chunks do not change. Their sources are read twice:
first their ids and values are checked, then new vectors are written.

An addition that a corpus has already is recognised, as after a process died once its documents were in: they have the
ids of an earlier addition, in the same order, and would be written as the very shards that it has.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.pipeline.corpora.options import AppendOptions, SideFileOptions
from collapsium.pipeline.corpora.recorded_reading import (
    format_of,
    history_for,
    read_appended_side_files,
    require_named_again,
    with_guesses_of_counts,
)
from collapsium.pipeline.corpora.text_ingest import (
    Counted,
    check_reading,
    drop_stopped,
    find_sources,
    leave_phrases,
    left_out_of,
    numberings_of,
    read_all,
    report_of,
    require_distinct_ids,
    write_shards,
    write_side_tables,
)
from collapsium.pipeline.executors.base import Executor, in_order
from collapsium.pipeline.executors.open import open_executor, require_shared
from collapsium.pipeline.executors.schedulers import Scheduler, Scheduling
from collapsium.pipeline.options import keywords, paths_of
from collapsium.storage.building.ingest_record import History, Report, Sieve, read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import (
    APPENDED_VECTORS,
    VECTORS,
    AppendedArray,
    Manifest,
    ShardRecord,
    VectorsRecord,
)
from collapsium.storage.corpus.parquet import UNKNOWN_SHARE
from collapsium.storage.corpus.shard import digest_of_ids
from collapsium.storage.corpus.vectors import ARRAY, Vectors
from collapsium.storage.corpus.vocabulary import Vocabulary
from collapsium.storage.corpus.writer import MIN_SHARD_TOKENS, VectorWriter, WrittenVectors
from collapsium.storage.errors import InputError, MismatchError, OptionError, TakenOverError
from collapsium.storage.io.encodings import checked_encoding
from collapsium.storage.io.folder import Folder, remove_parts
from collapsium.storage.io.run_lock import RunLock
from collapsium.storage.readers.base import NOT_IN_VOCABULARY, distinct
from collapsium.storage.readers.open import TEXTS, open_source, open_vectors
from collapsium.storage.readers.read_options import checked_separator, distinct_guesses, with_guesses
from collapsium.storage.readers.side_files import SideFileRequest, Sides, merged
from collapsium.storage.readers.texts.blocks import require_once
from collapsium.storage.readers.texts.segment import HEADINGS
from collapsium.storage.readers.vectors import DenseSource
from collapsium.storage.units import Counting, silent
from collapsium.workers.ingest import tasks as reading
from collapsium.workers.ingest.chunks import Chunk, counts_of, ids_of_numbers, write_table
from collapsium.workers.ingest.phrases import ReadRequest
from collapsium.workers.ingest.tasks import ChunkRecord
from collapsium.workers.ingest.tokenize import StopWords

TAG = 12  # Digits of a digest in a file's name
ENTRY_NAMES = ("<element: ", "<item: ")  # Names of the entries of lists in types of columns: Parquet's, and Arrow's
LOCK, SCRATCH = "lock", "append"
MAX_NAMED_IDS = 5  # Most ids that an error about existing documents lists


@dataclass(frozen=True)
class Earlier:
    """An earlier addition to a corpus."""

    number: int  # Which of the additions, from 0 on
    report: Report  # What was added then
    # The shards that the corpus had, and those that were added
    before: tuple[ShardRecord, ...]
    shards: tuple[ShardRecord, ...]


def added_ids(history: History, known: pa.Array) -> pa.Array:
    """Return the ids of all documents that were added to a corpus since it was made."""
    return known[max(len(known) - sum(report.documents for report in history.appended), 0) :]


def find_earlier(manifest: Manifest, history: History, known: pa.Array, ids: pa.Array) -> Earlier | None:
    """Find the addition of documents of some ids."""
    bounds = np.concatenate([[0], np.cumsum([row.documents for row in manifest.shards], dtype=np.int64)]).tolist()
    first = len(known) - sum(report.documents for report in history.appended)
    for number, report in enumerate(history.appended):
        end = first + report.documents
        if first in bounds and end in bounds and known[first:end].equals(ids):
            # Empty shards belong to no addition, so the last of equal bounds is the first of the addition.
            start, stop = len(bounds) - 1 - bounds[::-1].index(first), bounds.index(end)
            return Earlier(number, report, manifest.shards[:start], manifest.shards[start:stop])
        first = end
    return None


@dataclass(frozen=True)
class Added:
    """Result of an addition."""

    manifest: Manifest  # The corpus's manifest after the addition
    report: Report  # Numbers of documents and words that were added, skipped and dropped
    history: History  # The history of the corpus, with this addition
    # Files that documents were added from; all documents of other files were in the corpus already
    files: frozenset[str] = frozenset()
    # True if the same addition was made before, so that nothing is added; `report` is then the earlier one
    repeated: bool = False


class Addition(AppendOptions, SideFileOptions, Scheduling):
    """Options of an addition."""

    @property
    def side_files(self) -> SideFileRequest:
        """The side files to read."""
        return SideFileRequest(self.label_files, self.label_names)


def layout_of(addition: Addition) -> dict[str, Any]:
    """Return the options of the layout of files that an addition names, instead of the recorded ones."""
    layout = {
        "encoding": checked_encoding(addition.encoding),
        "separator": checked_separator(addition.separator),
        "label_separator": checked_separator(addition.label_separator, "label_separator"),
    }
    return {name: value for name, value in layout.items() if value is not None}


@contextmanager
def scratch_inside(folder: Folder) -> Iterator[Folder]:
    """Make a scratch folder inside the corpus, which every worker sees, after removing earlier processes' folders.

    The folder belongs to this process only, and is removed even if another process has taken the corpus over.
    """
    (folder / SCRATCH).remove()
    place = Folder((folder / SCRATCH / uuid.uuid4().hex).url)
    place.make()
    try:
        yield place
    finally:
        place.remove()
        with contextlib.suppress(TakenOverError):
            (folder / SCRATCH).remove()


def clean_hidden(corpus: Corpus) -> None:
    """Remove partly written files of processes that were killed; hidden folders in a corpus are somebody's."""
    for folder in (corpus.folder, corpus.folder / "documents"):
        remove_parts(folder, folders=False)


def clean(corpus: Corpus) -> None:
    """Remove files that the manifest does not name, which an interrupted addition has left."""
    folder, manifest = corpus.folder, corpus.manifest
    recorded = {row.file for row in manifest.shards} | {manifest.vocabulary.file}
    existing = [f"documents/{name}" for name in (folder / "documents").names() if name.endswith(".parquet")]
    existing += [name for name in folder.names() if name.startswith("vocabulary") and name.endswith(".parquet")]
    for name in existing:
        if name not in recorded:
            folder.delete(name)
    if manifest.vectors is not None:
        arrays = {array.file for array in manifest.vectors.arrays}
        for name in folder.names():
            if name.startswith(f"{ARRAY.partition('.')[0]}-") and name not in arrays:
                (folder / name).remove()


def refuse_known(corpus: Corpus, names: Sequence[str]) -> NoReturn:
    """Raise `MismatchError` for ids that the corpus already has."""
    some = ", ".join(repr(name) for name in names[:MAX_NAMED_IDS])
    raise MismatchError(
        f"{corpus.url}: has {corpus.holds} with the same ids already, such as {some}; `skip_existing` leaves them out"
    )


def append_vectors(corpus: Corpus, paths: list[str], addition: Addition, progress: Counting) -> Added:
    """Add vectors to a corpus of vectors."""
    if addition.grow:
        raise OptionError(f"{corpus.url} is a corpus of vectors, whose columns are fixed", "grow")
    if addition.tokenizer is not None:
        raise OptionError(f"`tokenizer` {addition.tokenizer}: {corpus.url} is a corpus of vectors, which have no words")
    if addition.headings is not None:
        raise OptionError(f"{corpus.url} is a corpus of vectors, which have no segments", "headings")
    if addition.format not in (None, VECTORS):
        raise OptionError(f"`format` {addition.format}: {corpus.url} is a corpus of vectors")
    with RunLock(corpus.folder / LOCK) as lock:
        corpus = Corpus(corpus.url)
        corpus.folder = corpus.folder.fenced(lock)
        history = (read_history(corpus.folder) or History(VECTORS)).until(corpus.manifest.documents)
        options = with_guesses(replace(history.options, **layout_of(addition)), history.report.guesses)
        options = replace(options, max_decompressed=addition.max_decompressed)
        sides = read_appended_side_files(addition.side_files, history.side_files, options, corpus.manifest.fields)
        if sides is not None and sides.by_order and addition.skip_existing:
            raise OptionError(
                "leaves vectors out, and side files have a line for each vector; use side files with ids",
                "skip_existing",
            )
        sources = open_vectors(paths, options, tagged=True)
        # Files without names of columns need the same number.
        names, columns = corpus.vocabulary.words, sources.columns()
        if len(names) != len(columns):
            raise MismatchError(f"{sources.name}: has {len(columns)} columns of values; {corpus.url} has {len(names)}")
        if sources.named and list(names) != columns:
            word, column = next(pair for pair in zip(names, columns, strict=True) if pair[0] != pair[1])
            raise MismatchError(f"{sources.name}: has a column {column!r} where {corpus.url} has {word!r}")
        clean_hidden(corpus)
        selection = _select(corpus, sources, sides, addition, history)
        if selection.earlier is not None:
            # Vectors with the ids of an earlier addition need its content.
            with scratch_inside(corpus.folder) as scratch:
                written, _ = _write(corpus, scratch, sources, sides, selection, progress)
            if tuple(written.shards) != selection.earlier.shards:
                _refuse(corpus, sources, corpus.references[len(selection.earlier.before)].documents().ids)
            return Added(corpus.manifest, selection.earlier.report, history, repeated=True)
        if not selection.count:
            return Added(corpus.manifest, selection.report(len(paths)), history)
        clean(corpus)
        written, unmatched = _write(corpus, corpus.folder, sources, sides, selection, progress)
        manifest = _manifest(corpus, written)
        guesses = distinct_guesses(() if sides is None else sides.guesses, sources.guesses)
        report = replace(selection.report(len(paths)), unmatched_rows=unmatched, guesses=guesses)
        lock.require()
        history = replace(history, appended=(*history.appended, report))
        history.write(corpus.folder)
        manifest.write(corpus.folder)
    return Added(manifest, report, history, selection.files)


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
        """Return a text on the files that were read, and on documents that were left out."""
        every = sum(map(len, self.keep))
        return Report(files=files, documents=self.count, skipped_documents=every - self.count)


def _sided(sources: DenseSource, sides: Sides | None) -> Iterator[Vectors]:
    """Read all vectors, with the labels and covariates of side files."""
    first = 0
    for part in sources.vectors():
        yield part if sides is None else replace(part, extras=merged(part.extras, sides.of(part.ids, first)))
        first += len(part)


def _select(
    corpus: Corpus, sources: DenseSource, sides: Sides | None, addition: Addition, history: History
) -> _Selection:
    """Check the sources, and select the vectors that the corpus does not have."""
    known = pa.concat_arrays([shard.documents().ids for shard in corpus.references])
    added = added_ids(history, known)
    keep, every, files = [], [], set()
    refused: list[pa.Array] = []
    for part in _sided(sources, sides):
        fields = {name: str(column.type) for name, column in part.extras.items()}
        if fields != corpus.manifest.fields:
            expected, new = (", ".join(sorted(names)) or "none" for names in (corpus.manifest.fields, fields))
            raise MismatchError(
                f"{sources.file}: expected vectors with the further fields {expected}, as in {corpus.url}, found {new}"
            )
        is_known = pc.is_in(part.ids, value_set=known)
        again = part.ids.filter(is_known)
        if len(again) and (addition.skip_existing and sources.numbered):
            _refuse(corpus, sources, again)
        if len(again) and not addition.skip_existing:
            refused.append(again[:MAX_NAMED_IDS])
            if not pc.all(pc.is_in(part.ids, value_set=added)).as_py():
                _refuse(corpus, sources, pa.concat_arrays(refused))
        keep.append(np.ones(len(part), dtype=bool) if refused else ~np.asarray(is_known, dtype=bool))
        every.append(part.ids)
        files.update([sources.file] if keep[-1].any() else [])
    ids = pa.concat_arrays(every) if every else pa.array([], pa.string())
    earlier = find_earlier(corpus.manifest, history, known, ids) if refused else None
    if refused and earlier is None:
        _refuse(corpus, sources, pa.concat_arrays(refused))
    mask = np.concatenate(keep) if keep else np.zeros(0, dtype=bool)
    new = ids.filter(pa.array(mask, pa.bool_()))
    return _Selection(tuple(keep), digest_of_ids(ids), digest_of_ids(new), len(new), frozenset(files), earlier)


def _refuse(corpus: Corpus, sources: DenseSource, ids: pa.Array) -> NoReturn:
    """Raise `MismatchError` for ids that the corpus already has."""
    if sources.numbered:
        raise MismatchError(
            f"{corpus.url}: has vectors with the same numbers, such as {ids[0].as_py()!r}; rename the file, or "
            "give the vectors ids (`id` COLUMN at ingest), so that `skip_existing` can leave them out"
        )
    refuse_known(corpus, ids.to_pylist())


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
    # Shards as large as the existing ones, but not tiny, even if the corpus began with few vectors.
    values = min(max(*(row.tokens for row in before), MIN_SHARD_TOKENS), selection.count * columns)
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
        column for column in vectors.constant if written.smallest[column] == written.largest[column] == before[column]
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


class DocumentAddition:
    """One addition to a corpus."""

    def __init__(
        self,
        executor: Executor,
        corpus: Corpus,
        scratch: Folder,
        history: History,
        corpus_history: History,
        stops: StopWords,
        addition: Addition,
        sides: Sides | None,
    ) -> None:
        self._executor, self._corpus, self._scratch = executor, corpus, scratch
        self._history, self._stops, self._addition, self._sides = history, stops, addition, sides
        self._corpus_history = corpus_history
        self._numberings: list[tuple[tuple[str, int, int], ...]] = []
        self._known = self._added = pa.array([], pa.string())
        self._again: list[str] = []
        self.report = Report()

    def read(self, paths: list[str], scheduler: Scheduler, progress: Counting) -> Counted:
        """Read the sources, and check their ids."""
        history, scratch = self._history, self._scratch
        futures = (self._executor.submit(reading.ids_of, reference) for reference in self._corpus.references)
        arrays = [*in_order(self._executor, futures), self._known]
        self._known = pa.concat_arrays(arrays)
        self._added = added_ids(self._corpus_history, self._known)
        if history.kind not in TEXTS:
            counted = self._read_counted(paths, progress)
        else:
            write_table(scratch, reading.KNOWN, pa.table({"id": self._known}))
            pairs = () if history.phrasing is None else history.phrasing.pairs
            leave_phrases(scratch, history.phrasing)
            sources = find_sources(paths, history, scheduler)
            skip = self._addition.skip_existing
            request = ReadRequest(
                history.kind, history.options, scratch, sources.numbered, False, bool(pairs), self._stops, True, skip
            )

            def judge(note: ChunkRecord) -> None:
                if note.known_ids:
                    self._meet_again(note.ids, note.known_ids)

            counted = read_all(self._executor, sources.blocks(history.kind, history.options), request, progress, judge)
            earlier = (self._corpus_history.report, *self._corpus_history.appended)
            self.report = report_of(sources, counted, history, self._sides, earlier)
            self._numberings = numberings_of(sources, counted.notes, tagged=True)
        names = ids_of_numbers([part for numbering in self._numberings for part in numbering])
        again = names.filter(pc.is_in(names, value_set=self._known)).to_pylist()
        if again and self._addition.skip_existing:
            raise MismatchError(
                f"{self._corpus.url}: has documents with the same numbers, such as {again[0]!r}; `skip_existing` needs "
                "ids (`id` FIELD at ingest)"
            )
        if again:
            self._meet_again(names, again)
        require_distinct_ids(counted.notes, self._numberings)
        if not counted.notes:
            return counted
        counted, unmatched = write_side_tables(scratch, counted, self._numberings, self._sides)
        self.report = replace(self.report, unmatched_rows=unmatched)
        return counted

    def _meet_again(self, ids: pa.Array, known_ids: Sequence[str]) -> None:
        """Refuse documents of the corpus, unless they may come from an earlier addition."""
        if not pc.all(pc.is_in(ids, value_set=self._added)).as_py():
            refuse_known(self._corpus, known_ids)
        self._again += known_ids[:MAX_NAMED_IDS]

    def _read_counted(self, paths: list[str], progress: Counting) -> Counted:
        """Read documents of word counts; ids of all but cells follow the file's name, because they may be numbers."""
        notes: list[ChunkRecord] = []
        tables: list[pa.Table] = []
        documents = skipped = 0
        self._history = with_guesses_of_counts(self._history, paths)
        options = self._history.options
        require_once(paths)
        for path, stem in zip(paths, distinct(paths), strict=True):
            source = open_source([path], self._history.kind, options)
            spelled = pa.array(source.words(), pa.string())
            for part in source.documents():
                # Cells keep their names, by which they are found in AnnData.
                ids = part.ids if self._history.kind == "anndata" else pc.binary_join_element_wise(stem, part.ids, "/")
                is_known = pc.is_in(ids, value_set=self._known)
                again = int(pc.sum(is_known).as_py() or 0)
                part = replace(part, ids=ids)
                if again and not self._addition.skip_existing:
                    self._meet_again(ids, ids.filter(is_known).to_pylist())
                elif again:
                    part = part.take(~np.asarray(is_known, dtype=bool))
                    skipped += again
                chunk = Chunk(spelled, part.offsets, part.words, part.counts, part.ids, dict(part.extras))
                name = f"{len(notes):07d}"
                chunk.write(self._scratch, name)
                tables.append(counts_of(chunk))
                tokens = int(part.counts.sum(dtype=np.int64))
                notes.append(ChunkRecord(name, part.ids, ((path, len(part)),), tokens=tokens, columns=chunk.columns))
                documents += len(part)
                progress(documents)
        words = reading.merge_counts(tables)
        words = words.take(pc.sort_indices(words.column("word")))
        counted = Counted([note for note in notes if note.documents], words)
        self._numberings = [()] * len(counted.notes)
        self.report = Report(
            files=len(paths),
            documents=documents,
            skipped_documents=skipped,
            source_words=len(counted.words),
            source_tokens=sum(note.tokens for note in notes),
            guesses=distinct_guesses(self._history.report.guesses, () if self._sides is None else self._sides.guesses),
        )
        return counted

    def repeats(self, counted: Counted) -> bool:
        """Return True if the corpus has this addition already; refuse other documents with the same ids.

        If it has, `report` becomes the report of the earlier addition.
        """
        if not self._again:
            return False
        pairs = zip(counted.notes, self._numberings, strict=True)
        ids = [ids_of_numbers(numbering) if note.ids is None else note.ids for note, numbering in pairs]
        earlier = find_earlier(self._corpus.manifest, self._corpus_history, self._known, pa.concat_arrays(ids))
        if earlier is None:
            refuse_known(self._corpus, self._again)
        vocabulary, sieve = self._vocabulary(counted)
        rows, _ = self._write_shards(self._scratch / "again", vocabulary, sieve, counted, earlier.before)
        if tuple(rows) != earlier.shards:
            refuse_known(self._corpus, self._again)
        self.report = earlier.report
        return True

    def _write_shards(
        self, folder: Folder, vocabulary: Vocabulary, sieve: Sieve, counted: Counted, before: Sequence[ShardRecord]
    ) -> tuple[list[ShardRecord], int]:
        """Write the documents as shards after those before; return their records, and the number of empty documents."""
        stops = self._stops if self._history.kind in TEXTS else StopWords()
        frequent = (*self._history.frequent, *sieve.frequent)
        left_out = None
        # Documents of the corpus may have their share of unknown words.
        if self._corpus.manifest.fields.get(UNKNOWN_SHARE) == str(pa.float32()):
            left_out = left_out_of(counted.spelled, stops, frequent)
        reading.write_vocabulary(self._scratch, vocabulary.words, stops, left_out)
        size = max([row.tokens for row in before if row.tokens] or [1])
        notes, numberings = counted.notes, self._numberings
        return write_shards(self._executor, folder, self._scratch, notes, numberings, size, len(before))

    def write(self, counted: Counted) -> Manifest:
        """Write the new shards and the vocabulary, and return the manifest that will name them."""
        corpus, old = self._corpus, self._corpus.manifest
        # All shards of a corpus have the same columns. Split corpora have Parquet's name for the entries of lists.
        fields = {name: kind.replace(*ENTRY_NAMES) for name, kind in old.fields.items()}
        if fields.get(UNKNOWN_SHARE) == str(pa.float32()):
            # The share of unknown words is added later; a covariate of that name is a column like others.
            del fields[UNKNOWN_SHARE]
        for note in counted.notes:
            if {name: kind.replace(*ENTRY_NAMES) for name, kind in note.columns} != fields:
                expected, new = (", ".join(sorted(names)) or "none" for names in (fields, dict(note.columns)))
                raise MismatchError(
                    f"{note.origins[0][0]}: expected documents with the further fields {expected}, as in "
                    f"{corpus.url}, found {new}"
                )
        vocabulary, sieve = self._vocabulary(counted)
        rows, empty = self._write_shards(corpus.folder, vocabulary, sieve, counted, old.shards)
        every = (*old.shards, *rows)
        self.report = replace(
            self.report,
            empty_documents=empty,
            words=int(sieve.retained.sum()),
            tokens=sum(row.tokens for row in rows),
            dropped=tuple(rule for rule in sieve.dropped if rule.words),
        )
        totals = {name: sum(getattr(row, name) for row in every) for name in ("documents", "pairs", "tokens")}
        record = vocabulary.write(corpus.folder, tagged=True)
        return old.model_copy(update={**totals, "vocabulary": record, "shards": every})

    def _vocabulary(self, counted: Counted) -> tuple[Vocabulary, Sieve]:
        """Return the corpus's vocabulary with new counts and, if it grows, new words."""
        old = self._corpus.vocabulary
        words = pa.array(old.words, pa.string())
        spelled, documents, tokens = counted.spelled, counted.column("documents"), counted.column("tokens")
        sieve = Sieve(spelled, documents, tokens)
        if self._history.kind in TEXTS:
            drop_stopped(sieve, spelled, self._stops)
        if self._addition.grow:
            sieve.cut(self._history.cuts, counted.documents, words)
        else:
            sieve.drop_frequent(self._history.cuts, self._history.frequent)
            sieve.drop_named(NOT_IN_VOCABULARY, words, inverted=True)
        fresh = sieve.retained & ~np.asarray(pc.is_in(spelled, value_set=words), dtype=bool)
        every = [*old.words, *spelled.filter(pa.array(fresh)).to_pylist()]
        place = pc.fill_null(
            pc.index_in(pa.array(every, pa.string()), value_set=spelled.filter(pa.array(sieve.retained))), -1
        )
        at = np.asarray(place, dtype=np.int64)
        more: list[Any] = [np.append(counts[sieve.retained], 0)[at] for counts in (documents, tokens)]
        before = [
            np.concatenate([counts, np.zeros(len(every) - len(old), np.int64)])
            for counts in (old.documents, old.tokens)
        ]
        return Vocabulary(every, before[0] + more[0], before[1] + more[1]), sieve


@keywords(addition=Addition)
def append(
    corpus: str | os.PathLike[str],
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    addition: Addition,
    progress: Counting = silent,
) -> Manifest:
    """Add documents, or vectors, to a corpus as new shards, read like its documents.

    Parameters
    ----------
    corpus : str or path-like
        The corpus, local or an fsspec URL.
    sources : path or sequence of paths
        Files, folders or globs, local or fsspec URLs.
    addition : Addition
        Treatment of new words and known documents, side files, and the executor.
    progress : callable, optional
        Called with the number of documents read so far.

    Returns
    -------
    Manifest
        The corpus's manifest after the addition, unchanged if nothing is new.

    Raises
    ------
    CollapsiumError
        A source is missing or damaged, the corpus already has an id, or another process appends. The corpus does not
        change.
    """
    return append_with_report(corpus, sources, addition, progress).manifest


def append_with_report(
    corpus: str | os.PathLike[str],
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    addition: Addition,
    progress: Counting = silent,
) -> Added:
    """Add documents to a corpus, and return a report; see `append`."""
    paths = list(paths_of(sources))
    if not paths:
        raise OptionError("expected at least one source")
    opened = Corpus(corpus)
    opened.require_documents()
    if opened.holds == VECTORS:
        return append_vectors(opened, paths, addition, progress)
    recorded = read_history(opened.folder) or History("")
    history = _history_of(opened, recorded, paths, addition)
    history, scheduler, stops = check_reading(history, addition.scheduler, addition.workers)
    sides = read_appended_side_files(addition.side_files, recorded.side_files, history.options, opened.manifest.fields)
    if sides is not None and sides.by_order and addition.skip_existing:
        raise OptionError(
            "leaves documents out, and side files have a line for each document; use side files with ids",
            "skip_existing",
        )
    with RunLock(opened.folder / LOCK) as lock, scratch_inside(opened.folder.fenced(lock)) as scratch:
        opened = Corpus(corpus)
        opened.folder = opened.folder.fenced(lock)
        # Another process may have added documents meanwhile.
        recorded = read_history(opened.folder) or recorded
        recorded = recorded.until(opened.manifest.documents)
        clean_hidden(opened)
        require_shared(scratch, scheduler, addition.tls, target=opened.url, option="corpus")
        with contextlib.closing(open_executor(scheduler, addition.workers, tls=addition.tls)) as executor:
            adding = DocumentAddition(executor, opened, scratch, history, recorded, stops, addition, sides)
            counted = adding.read(paths, scheduler, progress)
            if not counted.notes:
                return Added(opened.manifest, adding.report, recorded)
            if adding.repeats(counted):
                return Added(opened.manifest, adding.report, recorded, repeated=True)
            clean(opened)
            manifest = adding.write(counted)
        lock.require()
        recorded = replace(recorded, appended=(*recorded.appended, adding.report))
        recorded.write(opened.folder)
        manifest.write(opened.folder)
    files = frozenset(path for note in counted.notes for path, count in note.origins if count)
    return Added(manifest, adding.report, recorded, files)


def _history_of(corpus: Corpus, corpus_history: History, paths: list[str], addition: Addition) -> History:
    """Return the reading of new sources: the corpus's, as far as their format allows."""
    kind, guesses = format_of(paths, addition.format, corpus_history.kind)
    if kind == "vectors":
        raise OptionError(f"`format` {kind}: {corpus.url} is a corpus of documents")
    if corpus_history.exploded:
        raise OptionError(
            f"{corpus.url}: its documents are segments made by `collapsium explode`; append to the original corpus, "
            "and explode that again"
        )
    segments = None if addition.headings is None else f"{HEADINGS}{addition.headings}"
    require_named_again(corpus.url, corpus_history.options, addition.tokenizer, segments)
    for name, value, recorded in (
        ("tokenizer", addition.tokenizer, corpus_history.options.tokenizer),
        ("headings", segments, corpus_history.options.segments),
    ):
        if value is not None and value != recorded:
            how = "without it" if recorded is None else f"with {recorded}"
            raise OptionError(
                f"expected the value that {corpus.url} was made with, found {value}; it was made {how}", parameter=name
            )
    history = history_for(corpus_history, kind)
    options = with_guesses(replace(history.options, **layout_of(addition)), corpus_history.report.guesses)
    report = Report(guesses=guesses)
    return replace(history, options=replace(options, max_decompressed=addition.max_decompressed), report=report)
