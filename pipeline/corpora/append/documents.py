"""Append documents to a corpus: read new sources as it was read itself, and write them as shards behind its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.pipeline.corpora.append.additions import MAX_NAMED_IDS, Addition, refuse_known
from collapsium.pipeline.corpora.append.repeats import added_ids, find_earlier
from collapsium.pipeline.corpora.passes import (
    Counted,
    in_order,
    read_all,
    require_distinct_ids,
    write_shards,
    write_side_tables,
)
from collapsium.pipeline.corpora.recorded_reading import with_guesses_of_counts
from collapsium.pipeline.corpora.text_ingest import drop_stopped, leave_phrases
from collapsium.pipeline.corpora.text_sources import find_sources, numberings_of, report_of
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.executors.schedulers import Scheduler
from collapsium.storage.building.chunks import Chunk, write_table
from collapsium.storage.building.ingest_record import History, Report
from collapsium.storage.building.vocabulary_cuts import Sieve
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import Manifest, ShardRecord
from collapsium.storage.corpus.vocabulary import Vocabulary
from collapsium.storage.errors import MismatchError
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.base import distinct
from collapsium.storage.readers.dropped_words import NOT_IN_VOCABULARY
from collapsium.storage.readers.guesses import distinct_guesses
from collapsium.storage.readers.open import TEXTS, open_source
from collapsium.storage.readers.side_files.table import Sides
from collapsium.storage.readers.texts.blocks import require_once
from collapsium.storage.units import Counting
from collapsium.workers.ingest import tasks as reading
from collapsium.workers.ingest.count import counts_of, ids_of_numbers
from collapsium.workers.ingest.stop_words import StopWords
from collapsium.workers.ingest.tasks import ChunkRecord
from collapsium.workers.ingest.token_reading import ReadRequest


def _named_alike(fields: Mapping[str, str]) -> dict[str, str]:
    """Return columns' types with one name for the entries of lists: Parquet's, which split corpora have, or Arrow's."""
    return {name: kind.replace("<element: ", "<item: ") for name, kind in fields.items()}


class DocumentAddition:
    """One addition to a corpus."""

    def __init__(
        self,
        executor: Executor,
        corpus: Corpus,
        scratch: Folder,
        history: History,
        own_history: History,
        stops: StopWords,
        addition: Addition,
        sides: Sides | None,
    ) -> None:
        self._executor, self._corpus, self._scratch = executor, corpus, scratch
        self._history, self._stops, self._addition, self._sides = history, stops, addition, sides
        self._own_history = own_history
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
        self._added = added_ids(self._own_history, self._known)
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
            counted = read_all(
                self._executor, sources.blocks(history.kind, history.options), request, progress, self._judge
            )
            earlier = (self._own_history.report, *self._own_history.appended)
            self.report = report_of(sources, counted, history, self._sides, earlier)
            self._numberings = numberings_of(sources, counted.notes, tagged=True)
        self._judge_numbered()
        require_distinct_ids(counted.notes, self._numberings)
        if not counted.notes:
            return counted
        counted, unmatched = write_side_tables(scratch, counted, self._numberings, self._sides)
        self.report = replace(self.report, unmatched_rows=unmatched)
        return counted

    def _judge(self, note: ChunkRecord) -> None:
        if note.there:
            self._meet_again(note.ids, note.there)

    def _meet_again(self, ids: pa.Array, there: Sequence[str]) -> None:
        """Refuse documents of the corpus, unless they may be those of an earlier addition."""
        if not pc.all(pc.is_in(ids, value_set=self._added)).as_py():
            refuse_known(self._corpus, there)
        self._again += there[:MAX_NAMED_IDS]

    def _judge_numbered(self) -> None:
        names = ids_of_numbers([part for one in self._numberings for part in one])
        again = names.filter(pc.is_in(names, value_set=self._known)).to_pylist()
        if again and self._addition.skip_existing:
            raise MismatchError(
                f"{self._corpus.url}: has documents numbered as these, such as {again[0]!r}; `skip_existing` needs ids "
                "(`id` FIELD at ingest)"
            )
        if again:
            self._meet_again(names, again)

    def _read_counted(self, paths: list[str], progress: Counting) -> Counted:
        """Read documents of word counts, whose ids are numbers after the file's name."""
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
                ids = pc.binary_join_element_wise(stem, part.ids, "/")
                there = pc.is_in(ids, value_set=self._known)
                again = int(pc.sum(there).as_py() or 0)
                part = replace(part, ids=ids)
                if again and not self._addition.skip_existing:
                    self._meet_again(ids, ids.filter(there).to_pylist())
                elif again:
                    part = part.take(~np.asarray(there, dtype=bool))
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

        If so, `report` becomes that of the earlier addition.
        """
        if not self._again:
            return False
        pairs = zip(counted.notes, self._numberings, strict=True)
        ids = [ids_of_numbers(numbering) if note.ids is None else note.ids for note, numbering in pairs]
        earlier = find_earlier(self._corpus.manifest, self._own_history, self._known, pa.concat_arrays(ids))
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
        """Write the documents as shards after those before; return their records, and the number of empty documents."""
        stops = self._stops if self._history.kind in TEXTS else StopWords()
        reading.write_vocabulary(self._scratch, vocabulary.words, stops)
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
            words=int(sieve.retained.sum()),
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
                own, new = (", ".join(sorted(names)) or "none" for names in (fields, dict(note.columns)))
                raise MismatchError(
                    f"{note.origins[0][0]}: expected documents with the further fields {own}, as in "
                    f"{self._corpus.url}, found {new}"
                )

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
            sieve.drop_named(NOT_IN_VOCABULARY, words, others=True)
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
