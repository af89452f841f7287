"""The tasks of a run: what executors submit, one function each, pure, with small results where the driver looks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from collapsium.storage.corpus.shard import Shard
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta, bytes_in_memory, total
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.spill import spill
from collapsium.workers.arrays.state import Arrays, GlobalState, LocalState, Rows
from collapsium.workers.families.base import AnyShardModel, Resumable, Stochastic
from collapsium.workers.shard_loading import ShardOnDisk, open_shard

if TYPE_CHECKING:
    pass

SHARD = "shard "  # begins the names under which deltas tell the seconds of single shards


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep leaves: the local state for the next sweep, as arrays where it was spilled, and the delta."""

    local: LocalState | Mapping[str, Any]
    delta: Delta

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays."""
        local = self.local.nbytes if isinstance(self.local, LocalState) else bytes_in_memory(self.local)
        return local + self.delta.__sizeof__()


@dataclass(frozen=True, slots=True)
class Block:
    """A run of the vocabulary: the rows of the words `low` to `high` - 1, and what folding them told."""

    low: int
    high: int
    rows: Rows
    told: Delta

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays."""
        return self.rows.nbytes + self.told.__sizeof__()


@dataclass(frozen=True, slots=True)
class Score:
    """Sum of the log probabilities of bytes_in_memory-out tokens, in nats, and their number."""

    log_probability: float
    tokens: int
    seconds: float = 0.0


class Known(Protocol):
    """Where to read what another run knows of a shard; small, as it travels with the task."""

    def arrays(self, shard: AnyShard, stream: Stream) -> Arrays:
        """Read its proportions of the shard's documents and its topics over the shard's words; as `start` takes it."""

    def local(self, shard: AnyShard) -> Arrays | None:
        """Read the local state that it kept of this very shard, where it is to go on from that."""


def blank(model: AnyShardModel, low: int, high: int, global_state: GlobalState) -> Block:
    """Make a block of the vocabulary before any document has been seen."""
    return Block(low, high, model.initial_rows(high - low, global_state), Delta())


def start(
    model: AnyShardModel,
    shard: AnyShard | ShardOnDisk,
    scratch: str | None,
    blocks: Sequence[Block],
    global_state: GlobalState,
    stream: Stream,
    known: Known | None = None,
) -> Swept:
    """Make a shard's first local state, from another run if one is named; on disk, if there is a folder for it."""
    began, shard, stream = time.perf_counter(), open_shard(shard), stream.at(place=shard.number)
    rows = gather(blocks, shard.words)
    saved = known.local(shard) if known is not None and isinstance(model, Resumable) else None
    if saved is not None and isinstance(model, Resumable):
        local, delta = model.continue_from(shard, saved, rows, global_state)
    else:
        warm = None if known is None else known.arrays(shard, stream.at(purpose="warm"))
        local, delta = model.start(shard, rows, global_state, stream, warm)
    return Swept(_spilled(local, scratch), _timed(delta, shard, began))


def sweep(
    model: AnyShardModel,
    shard: AnyShard | ShardOnDisk,
    before: Swept,
    scratch: str | None,
    blocks: Sequence[Block],
    global_state: GlobalState,
    stream: Stream,
    times: int = 1,
) -> Swept:
    """Pass over a shard, from the local state of its previous sweep; `times` over, before others hear of it."""
    began, shard = time.perf_counter(), open_shard(shard)
    local = local_state(model, _spilled(before.local, scratch))
    rows, stream = gather(blocks, shard.words), stream.at(place=shard.number)
    local, last = model.sweep(shard, local, rows, global_state, stream)
    delta = last
    for number in range(1, times):
        rows, global_state = model.advance(
            rows, last, global_state
        )  # by the last sweep alone: they have the others' changes
        local, last = model.sweep(shard, local, rows, global_state, stream.at(purpose=f"again {number}"))
        delta = delta.then(last)
    return Swept(_spilled(local, scratch), _timed(delta, shard, began))


def step(
    model: Stochastic[Any, Any, Any, Any],
    shard: AnyShard | ShardOnDisk,
    blocks: Sequence[Block],
    global_state: GlobalState,
    stream: Stream,
) -> Delta:
    """Step on a shard, in the stochastic schedule."""
    began, shard = time.perf_counter(), open_shard(shard)
    delta = model.step(shard, gather(blocks, shard.words), global_state, stream.at(place=shard.number))
    return _timed(delta, shard, began)


def rest(delta: Delta) -> Delta:
    """Take from a delta what concerns no word."""
    return delta.without_dim("word")


def between(delta: Delta, low: int, high: int) -> Delta:
    """Take from a delta what concerns a block of the vocabulary."""
    return delta.between("word", low, high)


def blend(
    model: Stochastic[Any, Any, Any, Any], block: Block, deltas: Sequence[Delta], rest: Delta, global_state: GlobalState
) -> Block:
    """Move a block of the vocabulary by a minibatch's steps; `rest` is the sum of what concerns no word."""
    began = time.perf_counter()
    rows = total(deltas)
    ids = {dim: values - block.low if dim == "word" else values for dim, values in rows.ids.items()}
    after, told = model.blend(block.rows, Delta({**rows.parts, **rest.parts}, ids), global_state)
    return Block(block.low, block.high, after, Delta(told.parts, told.ids, _spent(told, began)))


def fold_in_shard(
    model: AnyShardModel,
    shard: AnyShard | ShardOnDisk,
    scratch: str | None,
    blocks: Sequence[Block],
    global_state: GlobalState,
    stream: Stream,
) -> Swept:
    """Fit the documents of a training shard with the model bytes_in_memory fixed."""
    shard = open_shard(shard)
    local = fold_in(model, shard, blocks, global_state, stream)
    return Swept(_spilled(local, scratch), Delta())


def local_state(model: AnyShardModel, local: LocalState | Mapping[str, Any]) -> LocalState:
    """Return a local state, which is loaded where it was spilled."""
    if isinstance(local, LocalState):
        return local
    loaded: LocalState = model.load_local(local)
    return loaded


def _spilled(local: LocalState | Mapping[str, Any], scratch: str | None) -> LocalState | Mapping[str, Any]:
    """Spill a local state, if there is a folder for it; what lies there already stays."""
    if scratch is None:
        return local
    return spill(local.to_arrays() if isinstance(local, LocalState) else local, scratch)


def gather(blocks: Sequence[Block], words: Any, *, complete: bool = False) -> Rows:
    """Take the rows of some words, given by sorted ids, out of the blocks that hold them.

    Parameters
    ----------
    blocks : sequence of Block
        All blocks of the vocabulary.
    words : numpy.ndarray of int
        Sorted ids.
    complete : bool, optional
        Whether to take also what stays with the blocks, which no sweep needs.

    Returns
    -------
    Rows
        A row for each word.
    """
    if len(blocks) == 1 and len(words) == blocks[0].high - blocks[0].low:
        return blocks[0].rows.of_words(slice(None), complete=complete)
    bounds = np.searchsorted(words, [block.low for block in blocks] + [blocks[-1].high])
    parts = [
        block.rows.of_words(words[first:last] - block.low, complete=complete)
        for block, first, last in zip(blocks, bounds, bounds[1:], strict=False)
    ]
    return parts[0] if len(parts) == 1 else type(parts[0]).joined(parts)


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


def fold(model: AnyShardModel, block: Block, deltas: Sequence[Delta | Swept], global_state: GlobalState) -> Block:
    """Add deltas, the root of the tree, to a block of the vocabulary; what concerns no word is told on."""
    began = time.perf_counter()
    delta = total(_deltas(deltas))
    rows = delta.with_dim("word")
    ids = {dim: values - block.low if dim == "word" else values for dim, values in rows.ids.items()}
    after, told = model.fold(block.rows, Delta(rows.parts, ids), global_state)
    told = delta.without_dim("word") + told
    return Block(block.low, block.high, after, Delta(told.parts, told.ids, _spent(told, began)))


def _deltas(given: Sequence[Delta | Swept]) -> list[Delta]:
    return [one.delta if isinstance(one, Swept) else one for one in given]


def show(block: Block) -> Block:
    """Take from a block what sweeps see: what stays with the block does not travel."""
    return replace(block, rows=block.rows.of_words(slice(None), complete=False))


def counted(block: Block) -> Block:
    """Take from a block the rows by which bytes_in_memory-out tokens are scored."""
    return replace(block, rows=block.rows.counted())


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
    model: AnyShardModel,
    heldout: AnyShard | ShardOnDisk,
    swept: Swept,
    blocks: Sequence[Block],
    global_state: GlobalState,
) -> Score:
    """Score the bytes_in_memory-out pairs of a shard's documents; vectors have none."""
    return score_local(model, cast(Shard, open_shard(heldout)), local_state(model, swept.local), blocks, global_state)


def score_local(
    model: AnyShardModel,
    heldout: Shard,
    local: LocalState,
    blocks: Sequence[Block],
    global_state: GlobalState,
) -> Score:
    """Score bytes_in_memory-out pairs, given the local state of their documents."""
    began = time.perf_counter()
    if not heldout.pairs:
        return Score(0.0, 0)
    table = model.predict(heldout, local, gather(blocks, heldout.words, complete=True), global_state)
    logs = float((heldout.counts * special.log(table["probability"])).sum())
    return Score(logs, heldout.tokens, time.perf_counter() - began)


def fold_in(
    model: AnyShardModel,
    shard: AnyShard,
    blocks: Sequence[Block],
    global_state: GlobalState,
    stream: Stream,
) -> LocalState:
    """Fit the local state of unseen documents with the model bytes_in_memory fixed."""
    rows = gather(blocks, shard.words)
    local: LocalState = model.fold_in(shard, rows, global_state, stream.at(place=shard.number))
    return local
