"""The tasks of a run: what executors submit, one function each, pure, with small results where the driver looks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import pyarrow as pa

from collapsium.storage.corpus.labels import Labels
from collapsium.storage.corpus.segments import Segments
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.corpus.vectors import AnyShard, VectorShard
from collapsium.workers import special_functions as special
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Arrays, Delta, held, total
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.spill import Shelf, shelve
from collapsium.workers.families.base import load_sweeps, wanted_by

if TYPE_CHECKING:
    from collapsium.storage.corpus.corpus import ShardReference

NEARLY_ALL = 0.9  # of the vocabulary's words
SHARD = "shard "  # begins the names under which deltas tell the seconds of single shards


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep leaves: the local state for the next sweep, and the delta for the sum."""

    local: Arrays
    delta: Delta

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays."""
        return held(self.local) + self.delta.__sizeof__()


@dataclass(frozen=True, slots=True)
class Block:
    """A run of the vocabulary: the rows of the words `low` to `high` - 1, and what folding them told."""

    low: int
    high: int
    rows: Arrays
    told: Delta

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays."""
        return held(self.rows) + self.told.__sizeof__()


@dataclass(frozen=True, slots=True)
class Score:
    """Sum of the log probabilities of held-out tokens, in nats, and their number."""

    log_probability: float
    tokens: int
    seconds: float = 0.0


class Known(Protocol):
    """Where to read what another run knows of a shard; small, as it travels with the task."""

    def arrays(self, shard: AnyShard, stream: Stream) -> Arrays:
        """Read its proportions of the shard's documents and its topics over the shard's words; see `Sweeps.start`."""

    def local(self, shard: AnyShard) -> Arrays | None:
        """Read the local state that it kept of this very shard, where it is to go on from that; see `Sweeps.take`."""


@dataclass(frozen=True, slots=True)
class ShardOnDisk:
    """A shard whose arrays lie in scratch files between its sweeps."""

    number: int
    arrays: Shelf


def load(
    reference: ShardReference, scratch: str | None = None, reserve: float = 0.0, family: str | None = None
) -> AnyShard | ShardOnDisk:
    """Read a shard and check its digest; with a folder for scratch files, leave it there.

    Parameters
    ----------
    reference : ShardReference
        The shard.
    scratch : str, optional
        Folder for scratch files.
    reserve : float, optional
        Bytes a pair of the local state to come: in memory, room for two of it is fetched ahead.
    family : str, optional
        Who sweeps it: whether the documents' labels, or their segments, are wanted.

    Returns
    -------
    Shard, VectorShard or ShardOnDisk
        The shard.
    """
    shard = widened(reference.load(**wanted_by(family)), reference.words)
    if scratch is not None:
        buffers.pool.lean = True  # memory is short; also for a worker that came later than the others
    pa.default_memory_pool().release_unused()  # what decompressing took; it would be kept for ever
    if scratch is None and reserve:
        buffers.pool.reserve([int(reserve * shard.pairs)] * 2)
    return stored(shard, scratch)


def widened(shard: AnyShard, words: int) -> AnyShard:
    """Let a shard that has nearly all words of the vocabulary have all: its rows are then those of the blocks."""
    if isinstance(shard, VectorShard) or shard.words.size == words or shard.words.size < NEARLY_ALL * words:
        return shard
    return replace(shard, words=np.arange(words, dtype=np.int32), position=shard.words[shard.position])


def stored(shard: AnyShard, scratch: str | None) -> AnyShard | ShardOnDisk:
    """Keep a shard in memory or, with a folder for scratch files, there."""
    if scratch is None:
        return shard
    names = ("words", "values") if isinstance(shard, VectorShard) else ("offsets", "words", "position", "counts")
    arrays = {name: getattr(shard, name) for name in names}
    for known in () if isinstance(shard, VectorShard) else (shard.labels, shard.segments):
        arrays |= {} if known is None else known.arrays()
    return ShardOnDisk(shard.number, shelve(arrays, scratch))


def opened(shard: AnyShard | ShardOnDisk) -> AnyShard:
    """Bring a shard into memory."""
    if not isinstance(shard, ShardOnDisk):
        return shard
    if "values" in shard.arrays:
        return VectorShard(shard.number, **shard.arrays)
    arrays = dict(shard.arrays)
    labels, segments = (
        {name: arrays.pop(name) for name in list(arrays) if name.startswith(head)} for head in ("label_", "segment_")
    )
    return Shard(
        shard.number,
        **arrays,
        labels=Labels.from_arrays(labels) if labels else None,
        segments=Segments.from_arrays(segments) if segments else None,
    )


def blank(family: str, low: int, high: int, globals: Arrays) -> Block:
    """Make a block of the vocabulary before any document has been seen."""
    return Block(low, high, load_sweeps(family).blank(high - low, globals), Delta())


def start(
    family: str,
    shard: AnyShard | ShardOnDisk,
    scratch: str | None,
    blocks: Sequence[Block],
    globals: Arrays,
    stream: Stream,
    known: Known | None = None,
) -> Swept:
    """Make a shard's first local state, from another run if one is named; on disk, if there is a folder for it."""
    began, shard, stream = time.perf_counter(), opened(shard), stream.at(place=shard.number)
    rows = gather(blocks, shard.words)
    sweeps = load_sweeps(family)
    kept = known.local(shard) if known is not None and hasattr(sweeps, "take") else None
    if kept is not None:
        local, delta = sweeps.take(shard, kept, rows, globals)
    else:
        warm = None if known is None else known.arrays(shard, stream.at(purpose="warm"))
        local, delta = sweeps.start(shard, rows, globals, stream, warm)
    return Swept(local if scratch is None else shelve(local, scratch), _timed(delta, shard, began))


def sweep(
    family: str,
    shard: AnyShard | ShardOnDisk,
    before: Swept,
    scratch: str | None,
    blocks: Sequence[Block],
    globals: Arrays,
    stream: Stream,
    times: int = 1,
) -> Swept:
    """Pass over a shard, from the local state of its previous sweep; `times` over, before others hear of it."""
    began, shard, sweeps = time.perf_counter(), opened(shard), load_sweeps(family)
    local = before.local if scratch is None else shelve(before.local, scratch)
    rows, stream = gather(blocks, shard.words), stream.at(place=shard.number)
    local, last = sweeps.sweep(shard, local, rows, globals, stream)
    delta = last
    for number in range(1, times):
        rows, globals = sweeps.advance(rows, last, globals)  # by the last sweep alone: they have the others' changes
        local, last = sweeps.sweep(shard, local, rows, globals, stream.at(purpose=f"again {number}"))
        delta = delta.then(last)
    return Swept(local if scratch is None else shelve(local, scratch), _timed(delta, shard, began))


def step(family: str, shard: AnyShard | ShardOnDisk, blocks: Sequence[Block], globals: Arrays, stream: Stream) -> Delta:
    """Step on a shard, in the stochastic schedule."""
    began, shard = time.perf_counter(), opened(shard)
    delta = load_sweeps(family).step(shard, gather(blocks, shard.words), globals, stream.at(place=shard.number))
    return _timed(delta, shard, began)


def rest(delta: Delta) -> Delta:
    """Take from a delta what concerns no word."""
    return delta.without_dim("word")


def between(delta: Delta, low: int, high: int) -> Delta:
    """Take from a delta what concerns a block of the vocabulary."""
    return delta.between("word", low, high)


def blend(family: str, block: Block, deltas: Sequence[Delta], rest: Delta, globals: Arrays) -> Block:
    """Move a block of the vocabulary by a minibatch's steps; `rest` is the sum of what concerns no word."""
    began = time.perf_counter()
    rows = total(deltas)
    ids = {dim: values - block.low if dim == "word" else values for dim, values in rows.ids.items()}
    after, told = load_sweeps(family).blend(block.rows, Delta({**rows.parts, **rest.parts}, ids), globals)
    return Block(block.low, block.high, after, Delta(told.parts, told.ids, _spent(told, began)))


def settled(
    family: str,
    shard: AnyShard | ShardOnDisk,
    scratch: str | None,
    blocks: Sequence[Block],
    globals: Arrays,
    stream: Stream,
) -> Swept:
    """Fit the documents of a training shard with the model held fixed."""
    shard = opened(shard)
    local = settle(family, shard, blocks, globals, stream)
    return Swept(local if scratch is None else shelve(local, scratch), Delta())


def gather(blocks: Sequence[Block], words: Any, *, whole: bool = False) -> Arrays:
    """Take the rows of some words, given by sorted ids, out of the blocks that hold them.

    Parameters
    ----------
    blocks : sequence of Block
        All blocks of the vocabulary.
    words : numpy.ndarray of int
        Sorted ids.
    whole : bool, optional
        Whether to take also what a block keeps to itself, which no sweep needs.

    Returns
    -------
    Arrays
        A row for each word.
    """
    names = [name for name in blocks[0].rows if whole or not name.startswith("block_")]
    if len(blocks) == 1 and len(words) == blocks[0].high - blocks[0].low:
        return {name: blocks[0].rows[name] for name in names}
    cuts = np.searchsorted(words, [block.low for block in blocks] + [blocks[-1].high])
    parts = [
        {name: block.rows[name][words[first:last] - block.low] for name in names}
        for block, first, last in zip(blocks, cuts, cuts[1:], strict=False)
    ]
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def keep(swept: Swept) -> Swept:
    """Take the local state from what a sweep left: the delta shall not wait for the next sweep."""
    return Swept(swept.local, Delta())


def pick(swept: Swept, part: tuple[int, int, bool] | None) -> Delta:
    """Take a sweep's delta, or of it what concerns a block of the vocabulary.

    Parameters
    ----------
    swept : Swept
        What a sweep left.
    part : tuple of (int, int, bool), optional
        First and last-plus-one word of the block, and whether to take what concerns no word too; by default all.

    Returns
    -------
    Delta
        The part.
    """
    if part is None:
        return swept.delta
    low, high, with_rest = part
    rows = swept.delta.between("word", low, high)
    return swept.delta.without_dim("word") + rows if with_rest else rows


def add(deltas: Sequence[Delta | Swept]) -> Delta:
    """Add deltas, a node of the reduction's tree."""
    began = time.perf_counter()
    result = total(_deltas(deltas))
    return Delta(result.parts, result.ids, _spent(result, began))


def fold(family: str, block: Block, deltas: Sequence[Delta | Swept], globals: Arrays) -> Block:
    """Add deltas, the root of the tree, to a block of the vocabulary; what concerns no word is told on."""
    began = time.perf_counter()
    delta = total(_deltas(deltas))
    rows = delta.with_dim("word")
    ids = {dim: values - block.low if dim == "word" else values for dim, values in rows.ids.items()}
    after, told = load_sweeps(family).fold(block.rows, Delta(rows.parts, ids), globals)
    told = delta.without_dim("word") + told
    return Block(block.low, block.high, after, Delta(told.parts, told.ids, _spent(told, began)))


def _deltas(given: Sequence[Delta | Swept]) -> list[Delta]:
    return [one.delta if isinstance(one, Swept) else one for one in given]


def show(block: Block) -> Block:
    """Take from a block what sweeps see: what it keeps to itself does not travel."""
    return replace(block, rows={name: values for name, values in block.rows.items() if not name.startswith("block_")})


def counted(block: Block) -> Block:
    """Take from a block what is true of it: where it keeps ``block_x`` to itself, sweeps see another ``word_x``."""
    rows = {name: values for name, values in block.rows.items() if name.replace("word_", "block_", 1) not in block.rows}
    own = {name: values for name, values in block.rows.items() if name.startswith("block_")}
    return replace(block, rows={**rows, **own})


def tell(block: Block) -> Delta:
    """Take from a block what folding it told: small."""
    return block.told


def _timed(delta: Delta, shard: AnyShard, began: float) -> Delta:
    """Note how long a shard took: one entry a shard, so that sums keep them apart."""
    seconds = {**delta.seconds, f"{SHARD}{shard.number}": time.perf_counter() - began}
    return Delta(delta.parts, delta.ids, seconds)


def _spent(delta: Delta, began: float) -> dict[str, float]:
    return {**delta.seconds, "reduce": delta.seconds.get("reduce", 0.0) + time.perf_counter() - began}


def score(
    family: str,
    heldout: AnyShard | ShardOnDisk,
    swept: Swept,
    blocks: Sequence[Block],
    globals: Arrays,
) -> Score:
    """Score the held-out pairs of a shard's documents; vectors have none."""
    return score_local(family, cast(Shard, opened(heldout)), swept.local, blocks, globals)


def score_local(
    family: str,
    heldout: Shard,
    local: Arrays,
    blocks: Sequence[Block],
    globals: Arrays,
) -> Score:
    """Score held-out pairs, given the local state of their documents."""
    began = time.perf_counter()
    if not heldout.pairs:
        return Score(0.0, 0)
    table = load_sweeps(family).predict(heldout, local, gather(blocks, heldout.words, whole=True), globals)
    logs = float((heldout.counts * special.log(table["probability"])).sum())
    return Score(logs, heldout.tokens, time.perf_counter() - began)


def settle(
    family: str,
    shard: AnyShard,
    blocks: Sequence[Block],
    globals: Arrays,
    stream: Stream,
) -> Arrays:
    """Fit the local state of unseen documents with the model held fixed."""
    rows = gather(blocks, shard.words)
    return load_sweeps(family).settle(shard, rows, globals, stream.at(place=shard.number))
