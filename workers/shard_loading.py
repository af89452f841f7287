"""Load shards on workers: they stay in memory, or in scratch files, between sweeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.storage.corpus.labels import DocumentRows, Labels
from collapsium.storage.corpus.segments import Segments
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.corpus.vectors import AnyShard, VectorShard
from collapsium.workers.arrays import buffer_pool as buffers
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
