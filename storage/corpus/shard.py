"""Shards: the documents that one sweep visits, in memory and as a Parquet file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.storage.corpus.labels import DocumentRows, Labels, Segments
from collapsium.storage.corpus.list_columns import labels_of, segment_bounds, segment_counts, segment_lists, segments_of
from collapsium.storage.corpus.manifest import ShardRecord
from collapsium.storage.corpus.parquet import (
    LABELS,
    MAX_COUNT,
    SEGMENTS,
    decode_table,
    encode_columns,
    ids_and_extras,
    integer_lists,
    read_part,
    require_segments,
    shard_damage,
    too_long,
)
from collapsium.storage.errors import DamagedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.printable import ShortRepr

EXTRAS = {"title": pa.string(), "date": pa.string(), "labels": LABELS, "segments": pa.list_(pa.int32())}


@dataclass(frozen=True, repr=False)
class Documents(ShortRepr):
    """Documents as arrays, as they are written to and read from a corpus."""

    ids: pa.Array  # One id a document
    # Offsets of the documents: document d has the pairs ``offsets[d]`` to ``offsets[d + 1] - 1``; int64 (documents +
    # 1,)
    offsets: npt.NDArray[np.int64]
    # Word id and count of each pair; words ascend in a document, or in each of its segments; int32 (pairs,)
    words: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    # Further columns: ``title``, ``date``, ``labels`` as (field, value) lists, ``segments`` as numbers of pairs, and
    # numeric covariates as nullable float64
    extras: Mapping[str, pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.offsets.size - 1

    @property
    def tokens(self) -> npt.NDArray[np.int64]:
        """Number of tokens of each document."""
        running = np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])
        lengths: npt.NDArray[np.int64] = running[self.offsets[1:]] - running[self.offsets[:-1]]
        return lengths

    def ids_sha256(self) -> str:
        """Return the SHA-256 of the ids, in their order."""
        return digest_of_ids(self.ids)

    def slice(self, first: int, last: int) -> Documents:
        """Return the documents `first` to `last` - 1."""
        low, high = int(self.offsets[first]), int(self.offsets[last])
        return Documents(
            ids=self.ids.slice(first, last - first),
            offsets=self.offsets[first : last + 1] - low,
            words=self.words[low:high],
            counts=self.counts[low:high],
            extras={name: column.slice(first, last - first) for name, column in self.extras.items()},
        )

    def with_counts(self, counts: npt.NDArray[np.int32]) -> Documents:
        """Return the documents with other counts; pairs with a count of zero are dropped."""
        keep = counts > 0
        running = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])
        extras = dict(self.extras)
        if "segments" in extras:
            column = extras["segments"]
            extras["segments"] = segment_lists(segment_counts(column), np.diff(running[segment_bounds(column)]))
        return Documents(self.ids, running[self.offsets], self.words[keep], counts[keep], extras)

    def take(self, keep: npt.NDArray[np.bool_]) -> Documents:
        """Return the documents for which `keep` is true."""
        pairs = np.repeat(keep, np.diff(self.offsets))
        chosen = pa.array(keep)
        return Documents(
            ids=self.ids.filter(chosen),
            offsets=np.concatenate([[0], np.cumsum(np.diff(self.offsets)[keep])]).astype(np.int64),
            words=self.words[pairs],
            counts=self.counts[pairs],
            extras={name: column.filter(chosen) for name, column in self.extras.items()},
        )

    @staticmethod
    def join(parts: list[Documents]) -> Documents:
        """Return the concatenation of documents with the same columns."""
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0, *(part.words.size for part in parts)])
        offsets = [part.offsets[1:] + start for part, start in zip(parts, starts, strict=False)]
        return Documents(
            ids=pa.concat_arrays([part.ids for part in parts]),
            offsets=np.concatenate([[0], *offsets]).astype(np.int64),
            words=np.concatenate([part.words for part in parts]),
            counts=np.concatenate([part.counts for part in parts]),
            extras={name: pa.concat_arrays([part.extras[name] for part in parts]) for name in parts[0].extras},
        )


@dataclass(frozen=True, repr=False)
class Shard(ShortRepr):
    """One shard for sweeping: its pairs, with the words of the shard numbered from 0."""

    number: int  # Number of the shard in the corpus
    offsets: npt.NDArray[np.int64]  # Offsets of the documents, in pairs; int64 (documents + 1,)
    words: npt.NDArray[np.int32]  # Sorted ids of the words in the shard; int32 (shard words,)
    position: npt.NDArray[np.int32]  # Index into `words` of each pair; int32 (pairs,)
    counts: npt.NDArray[np.int32]  # Count of each pair; int32 (pairs,)
    labels: Labels | None = None  # Labels and covariates of the documents, for families that use them
    # Segments of the documents, for families that use them. A pair is then a distinct (document, segment, word); pairs
    # are sorted by segment and word.
    segments: Segments | None = None
    # Weight of each token of a pair, in fits with weights of words; None where all weigh one; float32 (pairs,)
    weights: npt.NDArray[np.float32] | None = None
    design: DocumentRows | None = None  # Rows of the documents, in fits whose priors follow a design
    of_vectors: ClassVar[Literal[False]] = False  # False; see `collapsium.storage.corpus.vectors.AnyShard`

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays, which Dask uses to place tasks near their data."""
        known = sum(0 if lists is None else lists.__sizeof__() for lists in (self.labels, self.segments))
        return self.offsets.nbytes + self.words.nbytes + self.position.nbytes + self.counts.nbytes + known

    @property
    def documents(self) -> int:
        """Number of documents."""
        return self.offsets.size - 1

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return self.counts.size

    @cached_property
    def tokens(self) -> int:
        """Number of tokens."""
        return int(self.counts.sum(dtype=np.int64))

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each document."""
        lengths, some = np.zeros(self.documents, dtype=np.int64), self.offsets[1:] > self.offsets[:-1]
        # Differences of a running sum over all pairs would take five times as long.
        lengths[some] = np.add.reduceat(self.counts, self.offsets[:-1][some], dtype=np.int64) if some.any() else 0
        return lengths

    @cached_property
    def weighted_lengths(self) -> npt.NDArray[np.float64]:
        """Sum of the weights of each document's tokens; its tokens where all weigh one."""
        if self.weights is None:
            return self.lengths.astype(np.float64)
        running = np.concatenate([[0.0], np.cumsum(self.counts * self.weights.astype(np.float64))])
        lengths: npt.NDArray[np.float64] = running[self.offsets[1:]] - running[self.offsets[:-1]]
        return lengths

    def emptied(self) -> Shard:
        """Return the same documents without their words."""
        none = np.zeros(0, dtype=np.int32)
        segments = None if self.segments is None else self.segments.emptied()
        return Shard(
            self.number, np.zeros_like(self.offsets), none, none, none, self.labels, segments, design=self.design
        )

    def of_documents(self, keep: npt.NDArray[np.bool_]) -> Shard:
        """Return the same documents; documents that are not in `keep` lose their words."""
        pairs = np.repeat(keep, np.diff(self.offsets))
        running = np.concatenate([[0], np.cumsum(pairs, dtype=np.int64)])
        position, occurs = self.position[pairs], np.zeros(self.words.size, dtype=bool)
        occurs[position] = True
        renumbered = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
        segments = None
        if self.segments is not None:
            segments = Segments(self.segments.documents, running[self.segments.pairs])
        offsets, words = running[self.offsets], self.words[occurs]
        weights = None if self.weights is None else self.weights[pairs]
        counts = self.counts[pairs]
        attached = self.labels, segments, weights, self.design
        return Shard(self.number, offsets, words, renumbered[position], counts, *attached)

    @staticmethod
    def of(
        number: int,
        documents: Documents,
        *,
        labelled: bool = False,
        segmented: bool = False,
        design: Callable[[Mapping[str, pa.Array], int], DocumentRows] | None = None,
    ) -> Shard:
        """Return a shard of documents, whose words are numbered by occurrence.

        `design` makes the rows of the documents from their further columns and their number.
        """
        documents = documents if segmented else merge_segments(documents)
        occurs = np.zeros(int(documents.words.max(initial=-1)) + 1, dtype=bool)
        occurs[documents.words] = True
        # This is faster than sorting the pairs and uses less memory.
        position = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
        return Shard(
            number,
            np.ascontiguousarray(documents.offsets),
            np.flatnonzero(occurs).astype(np.int32),
            position[documents.words],
            np.ascontiguousarray(documents.counts),
            labels_of(len(documents), documents.extras) if labelled else None,
            segments_of(documents.offsets, documents.extras) if segmented else None,
            design=None if design is None else design(documents.extras, len(documents)),
        )


def merge_segments(documents: Documents) -> Documents:
    """Return documents with the pairs of a word in all segments of a document merged."""
    if "segments" not in documents.extras:
        return documents
    owner = np.repeat(np.arange(len(documents)), np.diff(documents.offsets))
    order = np.lexsort((documents.words, owner))
    owner, words, counts = owner[order], documents.words[order], documents.counts[order]
    first = np.ones(words.size, dtype=bool)
    first[1:] = (np.diff(owner) != 0) | (np.diff(words) != 0)
    starts = np.flatnonzero(first)
    offsets = np.searchsorted(owner[starts], np.arange(len(documents) + 1)).astype(np.int64)
    merged = np.add.reduceat(counts, starts).astype(np.int32) if starts.size else counts
    extras = {name: column for name, column in documents.extras.items() if name != "segments"}
    return Documents(documents.ids, offsets, words[starts], merged, extras)


def digest_of_ids(ids: pa.Array) -> str:
    """Return the SHA-256 of ids, in their order."""
    digest = hashlib.sha256()
    for name in ids.to_pylist():
        digest.update(f"{len(name)}:{name}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def encode(documents: Documents) -> bytes:
    """Return documents as the bytes of a Parquet file, equal for equal documents."""
    offsets = pa.array(documents.offsets.astype(np.int32))
    columns = {
        "id": documents.ids,
        "words": pa.ListArray.from_arrays(offsets, pa.array(documents.words)),
        "counts": pa.ListArray.from_arrays(offsets, pa.array(documents.counts)),
        **documents.extras,
    }
    return encode_columns(columns)


def read_documents(folder: Folder, record: ShardRecord, vocabulary_words: int) -> Documents:
    """Read a shard's file and check it against the manifest."""
    path, data = read_part(folder, record)
    return decode(data, record, vocabulary_words, path)


def read_columns(folder: Folder, record: ShardRecord) -> tuple[pa.Array, dict[str, pa.Array]]:
    """Read the ids and further columns of a shard, without words; see `read_documents`."""
    path, data = read_part(folder, record)
    with shard_damage(path):
        return ids_and_extras(decode_table(data, record.documents, path, without=("words", "counts")), path)


def decode(data: bytes, record: ShardRecord, vocabulary_words: int, path: str) -> Documents:
    """Decode the bytes of a shard's file, which may be untrusted; kernels do not check the bounds of its indices."""
    last_word = vocabulary_words - 1
    with shard_damage(path):
        table = decode_table(data, record.documents, path)
        offsets, words = integer_lists(table, "words", 0, last_word, path, f"word ids from 0 to {last_word}")
        count_offsets, counts = integer_lists(table, "counts", 1, MAX_COUNT, path, f"counts from 1 to {MAX_COUNT}")
        wrong = offsets != count_offsets
        if wrong.any():
            row = int(wrong.argmax())
            raise DamagedError(path, "expected as many counts as words", f"column 'counts', row {row}")
        if (long := too_long(counts, offsets)) is not None:
            raise DamagedError(path, long[1], f"column 'counts', row {long[0] + 1}")
        ids, extras = ids_and_extras(table, path, ("words", "counts"))
        if SEGMENTS in extras:
            require_segments(extras[SEGMENTS], offsets, path)
    totals = (offsets.size - 1, words.size, int(counts.sum(dtype=np.int64)))
    if totals != (record.documents, record.pairs, record.tokens):
        raise DamagedError(path, f"documents, pairs and tokens are {totals}, not as in the manifest")
    return Documents(ids, offsets, words, counts, extras)
