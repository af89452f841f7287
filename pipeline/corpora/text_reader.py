"""Read texts in memory for a model as its training documents were read, with its vocabulary in memory too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.pipeline.corpora.new_texts import UnknownWords, as_headings, new_sources, notice_of, warning_of
from collapsium.pipeline.corpora.passes import require_distinct_ids
from collapsium.pipeline.corpora.recorded_reading import RecordedReading, history_like
from collapsium.pipeline.corpora.text_ingest import check_reading
from collapsium.pipeline.corpora.texts_in_memory import NAME
from collapsium.storage.building.explode import exploded
from collapsium.storage.building.ingest_record import History
from collapsium.storage.corpus.segments import running
from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.word_rule import lookup_keys
from collapsium.storage.corpus.writer import even_shard_tokens_of
from collapsium.storage.io.parquet import string_array
from collapsium.storage.readers.texts.batches import batches_of_table
from collapsium.workers.ingest.count import counted_of, stream_of
from collapsium.workers.ingest.phrases import Phrases
from collapsium.workers.ingest.stop_words import StopWords
from collapsium.workers.ingest.tasks import ChunkRecord, PlacedChunk, documents_of, shards_of
from collapsium.workers.ingest.token_reading import tokens_of_texts

Ints = npt.NDArray[np.int64]

NONE = Documents(string_array([]), np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))
UNKNOWN, LEFT_OUT = -1, -2  # In place of the number of a word that the vocabulary lacks, and of one left out on purpose
MAX_REMEMBERED = 1 << 16  # Most words outside the vocabulary whose kind is remembered, a few megabytes


@dataclass(frozen=True)
class TextsRead:
    """Texts in memory as documents."""

    documents: Documents  # Documents with the vocabulary's word ids
    unknown: Ints  # Tokens of each document that are not in the vocabulary, without stop words; int64 (documents,)
    notice: str | None  # A line on the reading of texts, if the record does not determine it
    warning: str | None  # A line on unknown words, if they are many

    def shards(self) -> list[Documents]:
        """Return the documents in the shards that a corpus of them would have."""
        lengths = self.documents.tokens
        shard = shards_of(lengths, PlacedChunk(NAME, 0, 0), even_shard_tokens_of(int(lengths.sum())))
        bounds = np.flatnonzero(np.diff(shard, prepend=-1, append=-1)).tolist()
        return [self.documents.slice(first, last) for first, last in pairwise(bounds)]


@dataclass(frozen=True)
class _Prepared:
    """The parts of reading that all texts with the same options share."""

    reading: dict[str, Any]  # The options that the user named
    history: History
    stops: StopWords
    words: dict[str, int]  # Number of each word of the vocabulary, by its spelling in texts
    phrases: Phrases | None


class TextReader:
    """Reads texts in memory as documents of a model; what depends on the vocabulary is prepared once."""

    def __init__(self, recorded: RecordedReading) -> None:
        self._recorded = recorded
        self._prepared: _Prepared | None = None
        self._outside: dict[str, int] = {}

    def read(self, table: pa.Table, reading: Mapping[str, Any]) -> TextsRead:
        """Return the texts of a table as documents; `reading` has the options of `ingest` that the user names."""
        prepared = self._with_options(dict(reading))
        history, stops = prepared.history, prepared.stops
        parts, unknown, records = list[Documents](), list[Ints](), list[ChunkRecord]()
        for batch in batches_of_table(table, NAME, history.options):
            records.append(ChunkRecord(NAME, batch.ids, batch.origins))
            tokens = tokens_of_texts(batch.texts, history.options, stops, prepared.phrases)
            chunk = counted_of(stream_of(tokens, batch.ids, batch.extras, batch.segments))
            numbers = self._numbers(chunk.words.to_pylist(), prepared)
            documents = documents_of(chunk, numbers)
            before = running(np.where(numbers[chunk.numbers] == UNKNOWN, chunk.counts, 0))
            parts.append(exploded(documents) if history.exploded else documents)
            unknown.append(np.diff(before[chunk.bounds if history.exploded else chunk.offsets]))
        require_distinct_ids(records, [()] * len(records))
        joined, missed = Documents.join(parts or [NONE]), np.concatenate([np.zeros(0, dtype=np.int64), *unknown])
        lost = int(missed.sum())
        count = UnknownWords(lost, lost + int(joined.counts.sum(dtype=np.int64)))
        return TextsRead(joined, missed, notice_of(self._recorded, history), warning_of(self._recorded, count))

    def _with_options(self, reading: dict[str, Any]) -> _Prepared:
        """Return what texts with these options share, and keep it for the next ones."""
        prepared = self._prepared
        if prepared is None or prepared.reading != reading:
            new = new_sources(NAME, reading)
            with as_headings(reading):
                history = history_like(self._recorded, list(new.paths), new.options, new.format)
            history, _, stops = check_reading(history, None, None)
            if prepared is None:
                vocabulary = self._recorded.vocabulary
                # A word with tokens was no stop word when the vocabulary was made, even if a list has it today.
                stops = stops.sparing(pa.array(vocabulary.words, pa.string()).filter(pa.array(vocabulary.tokens > 0)))
                keys = lookup_keys(vocabulary.words, history.options.word_rule)
                stopped = stops.dropped(pa.array(keys, pa.string())).tolist()
                words = {key: number for number, (key, out) in enumerate(zip(keys, stopped, strict=True)) if not out}
                prepared = _Prepared(reading, history, stops, words, _phrases_of(history))
            # Vocabulary, stop words and phrases are the record's, whatever fields a table has.
            prepared = self._prepared = replace(prepared, reading=reading, history=history)
        return prepared

    def _numbers(self, words: list[str], prepared: _Prepared) -> npt.NDArray[np.int32]:
        """Return the number of each word, or a negative code for words without a number."""
        known, outside = prepared.words, self._outside
        numbers = [known.get(word, outside.get(word)) for word in words]
        others = [word for word, number in zip(words, numbers, strict=True) if number is None]
        if others:
            frequent = frozenset(prepared.history.frequent)
            dropped = prepared.stops.dropped(pa.array(others, pa.string())).tolist()
            kinds = {
                word: LEFT_OUT if out or word in frequent else UNKNOWN
                for word, out in zip(others, dropped, strict=True)
            }
            numbers = [kinds[word] if number is None else number for word, number in zip(words, numbers, strict=True)]
            if len(outside) + len(kinds) > MAX_REMEMBERED:
                self._outside = kinds
            else:
                outside.update(kinds)
        return np.array(numbers, dtype=np.int32)


def _phrases_of(history: History) -> Phrases | None:
    """Return the recorded phrases; None where there are none."""
    if history.phrasing is None:
        return None
    first, second = (pa.array([pair[n] for pair in history.phrasing.pairs], pa.string()) for n in range(2))
    return Phrases.of(first, second)
