"""Load shards on workers: they stay in memory, or in scratch files, between sweeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.storage.corpus.labels import DocumentRows, Labels, Segments
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.corpus.vectors import AnyShard, VectorShard
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.spill import SpillFiles, spill
from collapsium.workers.design import rows_of_documents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collapsium.storage.corpus.corpus import ShardReference
    from collapsium.workers.families.family import AnyPredicts

# Share of the vocabulary in a shard from which the shard gets all words, so that its rows are the rows of the blocks
NEARLY_ALL = 0.9


@dataclass(frozen=True, slots=True)
class ShardOnDisk:
    """A shard whose arrays are in spill files between its sweeps."""

    number: int
    arrays: SpillFiles


def load_shard(
    reference: ShardReference,
    scratch: str | None = None,
    reserve: Sequence[float] = (),
    model: AnyPredicts | None = None,
    design: npt.NDArray[np.uint8] | None = None,
) -> AnyShard | ShardOnDisk:
    """Read a shard and check its digest; return it in memory or, with a scratch folder, in spill files.

    `reserve` has the bytes of a pair in each of the local states that will be in memory at a time.
    """
    shard = with_all_words(reference.load(**document_parts(model, design)), reference.words)
    # Scratch files mean that memory is short. Fits may share a worker, so each task sets this again.
    buffers.pool.lean = scratch is not None
    # Otherwise Arrow would never return the memory that decompression used.
    pa.default_memory_pool().release_unused()
    if scratch is None and reserve:
        buffers.pool.reserve([int(size * shard.pairs) for size in reserve if size], reference.record.sha256)
    return store_shard(shard, scratch)


def document_parts(
    model: AnyPredicts | type[AnyPredicts] | None, design: npt.NDArray[np.uint8] | None = None
) -> dict[str, Any]:
    """Return the keyword arguments of `Shard.of` and `ShardReference.load` for the parts of documents a family uses.

    `design` is the design of a fit or a model, as `Predicts.design` returns it.
    """
    return {
        "labelled": model is not None and model.uses_labels,
        "segmented": model is not None and model.uses_segments,
        "design": None if design is None else partial(rows_of_documents, design),
    }


def with_all_words(shard: AnyShard, words: int) -> AnyShard:
    """Return a shard with all words of the vocabulary if it has nearly all, so that its rows are the blocks'."""
    if isinstance(shard, VectorShard) or shard.words.size == words or shard.words.size < NEARLY_ALL * words:
        return shard
    return replace(shard, words=np.arange(words, dtype=np.int32), position=shard.words[shard.position])


def store_shard(shard: AnyShard, scratch: str | None) -> AnyShard | ShardOnDisk:
    """Return a shard in memory or, with a scratch folder, in spill files."""
    if scratch is None:
        return shard
    names = ("words", "values") if isinstance(shard, VectorShard) else ("offsets", "words", "position", "counts")
    arrays = {name: getattr(shard, name) for name in names}
    for metadata in () if isinstance(shard, VectorShard) else (shard.labels, shard.segments):
        arrays |= {} if metadata is None else metadata.arrays()
    if not isinstance(shard, VectorShard) and shard.design is not None:
        arrays |= {"design_rows": shard.design.rows, "design_place": shard.design.place}
    return ShardOnDisk(shard.number, spill(arrays, scratch))


def open_shard(shard: AnyShard | ShardOnDisk) -> AnyShard:
    """Return a shard in memory."""
    if not isinstance(shard, ShardOnDisk):
        return shard
    if "values" in shard.arrays:
        return VectorShard(shard.number, **shard.arrays)
    arrays = dict(shard.arrays)
    labels, segments, design = (
        {name: arrays.pop(name) for name in list(arrays) if name.startswith(head)}
        for head in ("label_", "segment_", "design_")
    )
    return Shard(
        shard.number,
        **arrays,
        labels=Labels.from_arrays(labels) if labels else None,
        segments=Segments.from_arrays(segments) if segments else None,
        design=DocumentRows(design["design_rows"], design["design_place"]) if design else None,
    )


@dataclass(frozen=True, slots=True)
class DocumentSample:
    """A random sample of the documents of each shard.

    Samples of one stream are nested: the documents of a smaller one are in every larger one.
    """

    stream: Stream  # Random stream of the sample, the same in all iterations
    every: int  # One document in `every` belongs to the sample, rounded up in each shard
    before: int = 0  # One document in `before` did in the previous iteration; a multiple of `every`, 0 at the start

    @property
    def grows(self) -> bool:
        """True if documents join in this iteration."""
        return self.before > self.every

    def of(self, shard: AnyShard) -> Shard:
        """Return a shard with the words of the sample's documents alone; the others are empty."""
        documents = _documents(shard)
        return documents if self.every == 1 else documents.of_documents(self._contains(documents, self.every))

    def joining(self, shard: AnyShard) -> Shard:
        """Return a shard with the words of the documents alone that join in this iteration."""
        documents = _documents(shard)
        joining = self._contains(documents, self.every) & ~self._contains(documents, self.before)
        return documents.of_documents(joining)

    def _contains(self, shard: Shard, every: int) -> npt.NDArray[np.bool_]:
        """Return whether each of a shard's documents belongs to a sample, shape (documents,)."""
        # The order of documents may follow dates or labels, so every n-th document would be a biased sample.
        order = self.stream.at(place=shard.number).generator().permutation(shard.documents)
        chosen = np.zeros(shard.documents, dtype=bool)
        chosen[order[: -(-shard.documents // every)]] = True
        return chosen


def _documents(shard: AnyShard) -> Shard:
    """Return a shard of documents; raise `TypeError` for vectors, which are never sampled."""
    if isinstance(shard, VectorShard):
        raise TypeError("expected documents, found vectors")
    return shard
