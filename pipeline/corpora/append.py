"""Adding documents to a corpus: new shards behind those that there are, which stay as they are.

Nothing of the corpus is changed before its manifest is replaced, which is the last step: files have names of their own
content, so that neither a reader nor an addition that was cut short meets another's bytes. The history is written just
before; an addition that the manifest does not have is left out when it is read (`History.until`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.pipeline.corpora.additions import (
    LOCK,
    NAMED,
    Added,
    Addition,
    clean,
    clean_hidden,
    refuse_known,
    scratch_inside,
)
from collapsium.pipeline.corpora.append_vectors import append_vectors
from collapsium.pipeline.corpora.passes import Counted, in_order, judge_ids, lay_beside, read_all, write_shards
from collapsium.pipeline.corpora.recorded_reading import history_for, require_named_again
from collapsium.pipeline.corpora.repeated_additions import added_ids, find_earlier
from collapsium.pipeline.corpora.side_files import look_beside_more
from collapsium.pipeline.corpora.text_ingest import (
    drop_stopped,
    leave_phrases,
    look_at,
    numberings_of,
    report_of,
    settled,
)
from collapsium.pipeline.executors.base import TLS, Executor
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.keywords import checked_keywords, paths_of
from collapsium.storage.building.chunks import Chunk, write_table
from collapsium.storage.building.ingest_record import History, Report, read_history
from collapsium.storage.building.vocabulary_cuts import Sieve
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import VECTORS, Manifest, ShardRecord
from collapsium.storage.corpus.vocabulary import Vocabulary
from collapsium.storage.errors import MismatchError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.locks.run_lock import RunLock
from collapsium.storage.readers.base import distinct
from collapsium.storage.readers.dropped_words import NOT_IN_VOCABULARY
from collapsium.storage.readers.open import TEXTS, guess_format, open_source, settled_base
from collapsium.storage.readers.side_files.columns import Wanted
from collapsium.storage.readers.side_files.table import Sides
from collapsium.storage.readers.texts.segment import HEADINGS
from collapsium.storage.units import Counting, parse_size, silent
from collapsium.workers.ingest import tasks as reading
from collapsium.workers.ingest.count import counts_of
from collapsium.workers.ingest.stop_words import StopWords
from collapsium.workers.ingest.tasks import Asked, Note


@checked_keywords()
def append(
    corpus: str | os.PathLike[str],
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    grow: bool = False,
    skip_existing: bool = False,
    format: str | None = None,
    tokenizer: str | None = None,
    max_decompressed: int | str | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    tls: TLS | None = None,
    label_files: str | Sequence[str] = (),
    label_names: str | Sequence[str] = (),
    headings: str | None = None,
    progress: Counting = silent,
) -> Manifest:
    """Add documents, or vectors, to a corpus as new shards, read as those that it was made of.

    Parameters
    ----------
    corpus : str or path-like
        The corpus, local or an fsspec URL.
    sources : path or sequence of paths
        Files, folders or globs, local or fsspec URLs.
    grow : bool, optional
        Give new words ids behind those of the vocabulary, if the corpus's cuts, applied to the new documents, keep
        them; by default they are dropped, and counted in the report.
    skip_existing : bool, optional
        Leave out documents whose id is in the corpus; by default they are refused.
    format : str, optional
        As for `ingest`; by default told from the first name, or else the corpus's own.
    tokenizer : str, optional
        ``module:function``; must be said again where the corpus was made with one, as what a corpus names is not run.
    max_decompressed : int or str, optional
        As for `ingest`.
    scheduler : str, optional
        Where it runs, as for `ingest`; by default ``threads``.
    workers : int, optional
        How many.
    tls : TLS, optional
        Certificates for a cluster whose messages are encrypted.
    label_files, label_names : str or sequence of str, optional
        Side files of the documents that are added, as for `ingest`; their fields are those that the corpus was made
        with. Without, documents that are added to a corpus with side files have no labels and no covariates.
    headings : str, optional
        The regular expression of ``segments="headings:REGEX"``; must be named again where the corpus was made with one.
    progress : callable, optional
        Told the number of documents read so far.

    Returns
    -------
    Manifest
        What the corpus holds now; the one that it had, where nothing is new.

    Raises
    ------
    CollapsiumError
        A source is missing or damaged, an id is there already, or another process appends. The corpus is as it was.
    """
    wanted = Wanted(paths_of(label_files), paths_of(label_names))
    limit = None if max_decompressed is None else parse_size(max_decompressed, "max_decompressed")
    asked = Addition(grow, skip_existing, format, tokenizer, limit, scheduler, workers, tls, wanted, headings)
    return append_told(corpus, sources, asked, progress).manifest


def append_told(
    corpus: str | os.PathLike[str],
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    asked: Addition,
    progress: Counting = silent,
) -> Added:
    """Add documents to a corpus, and report what was dropped; see `append`.

    Parameters
    ----------
    corpus, sources
        As for `append`.
    asked : Addition
        The rest of it.
    progress : callable, optional
        As for `append`.

    Returns
    -------
    Added
        What the corpus holds now, and what was added, left out and dropped.
    """
    paths = [os.fspath(path) for path in ([sources] if isinstance(sources, (str, os.PathLike)) else sources)]
    if not paths:
        raise OptionError("expected at least one source")
    opened = Corpus(corpus)
    opened.require_documents()
    if opened.holds == VECTORS:
        return append_vectors(opened, paths, asked, progress)
    kept = read_history(opened.folder) or History("")
    history = _history_of(opened, kept, paths, asked)
    history, scheduler, stops = settled(history, asked.scheduler, asked.workers)
    sides = look_beside_more(asked.beside, kept.beside, history.options, opened.manifest.fields)
    if sides is not None and sides.by_order and asked.skip_existing:
        raise OptionError(
            "--skip-existing: leaves documents out, and side files have a line for each; give side files with ids"
        )
    with RunLock(opened.folder / LOCK) as lock, scratch_inside(opened.folder.fenced(lock)) as scratch:
        opened = Corpus(corpus)
        opened.folder = opened.folder.fenced(lock)
        kept = read_history(opened.folder) or kept  # with additions that another process has made meanwhile
        kept = kept.until(opened.manifest.documents)
        clean_hidden(opened)
        executor = open_executor(scheduler, asked.workers, tls=asked.tls)
        try:
            adding = _Adding(executor, opened, scratch, history, kept, stops, asked, sides)
            told = adding.read(paths, scheduler, progress)
            if not told.notes:
                return Added(opened.manifest, adding.report, kept)
            if adding.repeats(told):
                return Added(opened.manifest, adding.report, kept, repeated=True)
            clean(opened)
            manifest = adding.write(told)
        finally:
            executor.close()
        lock.require()
        kept = replace(kept, appended=(*kept.appended, adding.report))
        kept.write(opened.folder)
        manifest.write(opened.folder)
    files = frozenset(path for note in told.notes for path, count in note.origins if count)
    return Added(manifest, adding.report, kept, files)


def _history_of(corpus: Corpus, kept: History, paths: list[str], asked: Addition) -> History:
    """Say how sources are to be read: as those of the corpus, as far as their format allows."""
    try:
        kind = asked.format or guess_format(paths[0])
    except OptionError:
        if kept.kind not in TEXTS:
            raise
        kind = kept.kind
    if kind == "vectors":
        raise OptionError(f"--format {kind}: {corpus.url} is a corpus of documents")
    if kept.flattened:
        raise OptionError(
            f"{corpus.url}: its documents are segments that `collapsium flatten` made; append to the corpus that it "
            "was made of, and flatten that again"
        )
    segments = None if asked.headings is None else f"{HEADINGS}{asked.headings}"
    require_named_again(corpus.url, kept.options, asked.tokenizer, segments)
    for name, value, recorded in (
        ("tokenizer", asked.tokenizer, kept.options.tokenizer),
        ("headings", segments, kept.options.segments),
    ):
        if value is not None and value != recorded:
            made = "without it" if recorded is None else f"with {recorded}"
            raise OptionError(
                f"expected what {corpus.url} was made with, found {value}; it was made {made}", parameter=name
            )
    history = history_for(kept, kind)
    return replace(history, options=replace(history.options, max_decompressed=asked.max_decompressed))


def _named_alike(fields: Mapping[str, str]) -> dict[str, str]:
    """Return columns' types with one name for the entries of lists: Parquet's, which split corpora have, or Arrow's."""
    return {name: kind.replace("<element: ", "<item: ") for name, kind in fields.items()}


class _Adding:
    """One addition to a corpus."""

    def __init__(
        self,
        executor: Executor,
        corpus: Corpus,
        scratch: Folder,
        history: History,
        kept: History,
        stops: StopWords,
        asked: Addition,
        sides: Sides | None,
    ) -> None:
        self._executor, self._corpus, self._scratch = executor, corpus, scratch
        self._history, self._stops, self._asked, self._sides = history, stops, asked, sides
        self._kept = kept
        self._numberings: list[tuple[tuple[str, int, int], ...]] = []
        self._known = self._added = pa.array([], pa.string())
        self._again: list[str] = []
        self.report = Report()

    def read(self, paths: list[str], scheduler: str, progress: Counting) -> Counted:
        """Read the sources, and judge their ids."""
        history, scratch = self._history, self._scratch
        futures = (self._executor.submit(reading.ids_of, reference) for reference in self._corpus.references)
        arrays = [*in_order(self._executor, futures), self._known]
        self._known = pa.concat_arrays(arrays)
        self._added = added_ids(self._kept, self._known)
        if history.kind not in TEXTS:
            counted = self._read_counted(paths, progress)
        else:
            write_table(scratch, reading.KNOWN, pa.table({"id": self._known}))
            pairs = () if history.phrasing is None else history.phrasing.pairs
            leave_phrases(scratch, history.phrasing)
            sources = look_at(paths, history, scheduler)
            skip = self._asked.skip_existing
            how = Asked(
                history.kind, history.options, scratch, sources.numbered, False, bool(pairs), self._stops, True, skip
            )
            counted = read_all(self._executor, sources.blocks(history.kind), how, progress, self._judge)
            self.report = report_of(sources, counted)
            self._numberings = numberings_of(sources, counted.notes, tagged=True)
        self._judge_numbered()
        judge_ids(counted.notes, self._numberings)
        if not counted.notes:
            return counted
        counted, unmatched = lay_beside(scratch, counted, self._numberings, self._sides)
        self.report = replace(self.report, unmatched_rows=unmatched)
        return counted

    def _judge(self, note: Note) -> None:
        if note.there:
            self._meet_again(note.ids, note.there)

    def _meet_again(self, ids: pa.Array, there: Sequence[str]) -> None:
        """Refuse documents that are in the corpus, unless they may be those of an earlier addition."""
        if not pc.all(pc.is_in(ids, value_set=self._added)).as_py():
            refuse_known(self._corpus, there)
        self._again += there[:NAMED]

    def _judge_numbered(self) -> None:
        names = reading.ids_of_numbers([part for one in self._numberings for part in one])
        again = names.filter(pc.is_in(names, value_set=self._known)).to_pylist()
        if again and self._asked.skip_existing:
            raise MismatchError(
                f"{self._corpus.url}: has documents numbered as these, such as {again[0]!r}; --skip-existing needs ids "
                "(--id FIELD at ingest)"
            )
        if again:
            self._meet_again(names, again)

    def _read_counted(self, paths: list[str], progress: Counting) -> Counted:
        """Read documents that are counted already; their ids, which are numbers, begin with the file's name."""
        notes: list[Note] = []
        tables: list[pa.Table] = []
        documents = skipped = 0
        options = settled_base(paths, self._history.kind, self._history.options)
        for path, stem in zip(paths, distinct(paths), strict=True):
            source = open_source([path], self._history.kind, options)
            spelled = pa.array(source.words(), pa.string())
            for part in source.documents():
                ids = pc.binary_join_element_wise(stem, part.ids, "/")
                there = pc.is_in(ids, value_set=self._known)
                again = int(pc.sum(there).as_py() or 0)
                part = replace(part, ids=ids)
                if again and not self._asked.skip_existing:
                    self._meet_again(ids, ids.filter(there).to_pylist())
                elif again:
                    part = part.take(~np.asarray(there, dtype=bool))
                    skipped += again
                chunk = Chunk(spelled, part.offsets, part.words, part.counts, part.ids, dict(part.extras))
                name = f"{len(notes):07d}"
                chunk.write(self._scratch, name)
                tables.append(counts_of(chunk))
                tokens = int(part.counts.sum(dtype=np.int64))
                notes.append(Note(name, part.ids, ((path, len(part)),), tokens=tokens, columns=chunk.columns))
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
            words_found=len(counted.words),
            tokens_found=sum(note.tokens for note in notes),
        )
        return counted

    def repeats(self, counted: Counted) -> bool:
        """Tell whether the corpus has this very addition already; refuse what only has the same ids.

        Then `report` is that of the earlier one.
        """
        if not self._again:
            return False
        pairs = zip(counted.notes, self._numberings, strict=True)
        ids = [reading.ids_of_numbers(numbering) if note.ids is None else note.ids for note, numbering in pairs]
        earlier = find_earlier(self._corpus.manifest, self._kept, self._known, pa.concat_arrays(ids))
        if earlier is None:
            refuse_known(self._corpus, self._again)
        vocabulary, _ = self._vocabulary(counted)
        rows, _ = self._write_shards(self._scratch / "again", vocabulary, counted, earlier.before)
        if tuple(rows) != earlier.shards:
            refuse_known(self._corpus, self._again)
        self.report = earlier.report
        return True

    def _write_shards(
        self, folder: Folder, vocabulary: Vocabulary, counted: Counted, before: Sequence[ShardRecord]
    ) -> tuple[list[ShardRecord], int]:
        """Write the documents as shards behind those before; return their records, and how many documents are empty."""
        stops = self._stops if self._history.kind in TEXTS else StopWords()
        reading.leave_words(self._scratch, vocabulary.words, stops)
        size = max([row.tokens for row in before if row.tokens] or [1])
        notes, numberings = counted.notes, self._numberings
        return write_shards(self._executor, folder, self._scratch, notes, numberings, size, len(before))

    def write(self, counted: Counted) -> Manifest:
        """Write the new shards and the vocabulary, and return the manifest that will name them."""
        corpus, old = self._corpus, self._corpus.manifest
        self._require_fields(counted)
        vocabulary, sieve = self._vocabulary(counted)
        rows, empty = self._write_shards(corpus.folder, vocabulary, counted, old.shards)
        every = (*old.shards, *rows)
        self.report = replace(
            self.report,
            empty_documents=empty,
            words=int(sieve.kept.sum()),
            tokens=sum(row.tokens for row in rows),
            dropped=tuple(one for one in sieve.dropped if one.words),
        )
        totals = {name: sum(getattr(row, name) for row in every) for name in ("documents", "pairs", "tokens")}
        record = vocabulary.write(corpus.folder, tagged=True)
        return old.model_copy(update={**totals, "vocabulary": record, "shards": every})

    def _require_fields(self, counted: Counted) -> None:
        """Refuse documents of other columns: all shards of a corpus have the same."""
        fields = self._corpus.manifest.fields
        for note in counted.notes:
            if _named_alike(dict(note.columns)) != _named_alike(fields):
                has, given = (", ".join(sorted(names)) or "none" for names in (fields, dict(note.columns)))
                path = note.origins[0][0]
                raise MismatchError(
                    f"{path}: its documents have the further fields {given}; those of {self._corpus.url} {has}"
                )

    def _vocabulary(self, counted: Counted) -> tuple[Vocabulary, Sieve]:
        """Add what is new to the corpus's vocabulary: counts of its words and, if it grows, words."""
        old = self._corpus.vocabulary
        words = pa.array(old.words, pa.string())
        spelled, documents, tokens = counted.spelled, counted.column("documents"), counted.column("tokens")
        sieve = Sieve(spelled, documents, tokens)
        if self._history.kind in TEXTS:
            drop_stopped(sieve, spelled, self._stops)
        if self._asked.grow:
            sieve.cut(self._history.cuts, counted.documents, words)
        else:
            sieve.drop_frequent(self._history.cuts, self._history.frequent)
            sieve.drop_named(NOT_IN_VOCABULARY, words, others=True)
        fresh = sieve.kept & ~np.asarray(pc.is_in(spelled, value_set=words), dtype=bool)
        every = [*old.words, *spelled.filter(pa.array(fresh)).to_pylist()]
        place = pc.fill_null(
            pc.index_in(pa.array(every, pa.string()), value_set=spelled.filter(pa.array(sieve.kept))), -1
        )
        at = np.asarray(place, dtype=np.int64)
        more: list[Any] = [np.append(counts[sieve.kept], 0)[at] for counts in (documents, tokens)]
        before = [
            np.concatenate([counts, np.zeros(len(every) - len(old), np.int64)])
            for counts in (old.documents, old.tokens)
        ]
        return Vocabulary(every, before[0] + more[0], before[1] + more[1]), sieve
