"""Tasks of a run: the pure functions that executors submit.

Local states, blocks and deltas stay on the workers. What the driver collects, such as `block_sums`, is small.
"""

from __future__ import annotations

import functools
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.shard import Shard
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.storage.runs.model import Processor
from collapsium.workers import special_functions as special
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import BAND, Delta, bytes_in_memory, total
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.spill import spill
from collapsium.workers.arrays.state import Arrays, GlobalState, LocalState, Rows
from collapsium.workers.families.family import AnyFamily, AnyPredicts, Growing, Resumable, Stochastic
from collapsium.workers.shard_loading import DocumentSample, ShardOnDisk, open_shard

AnyStochastic: TypeAlias = Stochastic[Any, Any, Any, Any]
Local: TypeAlias = LocalState | Arrays  # A local state, or its arrays where it was spilled
SHARD_SECONDS = "shard "  # Prefix of the names under which a delta stores the seconds of single shards


@dataclass(frozen=True, slots=True)
class Swept:
    """Result of a sweep: the local state for the next sweep, and the delta."""

    local: Local
    delta: Delta

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays."""
        local = self.local.nbytes if isinstance(self.local, LocalState) else bytes_in_memory(self.local)
        return local + self.delta.__sizeof__()


@dataclass(frozen=True, slots=True)
class Block:
    """A block of the vocabulary: the rows of the words `low` to `high` - 1, and the sums of its last fold."""

    low: int
    high: int
    rows: Rows
    sums: Delta

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays."""
        return self.rows.nbytes + self.sums.__sizeof__()


@dataclass(frozen=True, slots=True)
class Score:
    """Sum of the log probabilities of held-out tokens in nats, the number of these tokens, and seconds taken."""

    log_probability: float
    tokens: int
    seconds: float = 0.0


class WarmSource(Protocol):
    """Reader of another run's results for a shard; small, because it is sent with the task."""

    def arrays(self, shard: AnyShard, stream: Stream) -> Arrays:
        """Return the run's proportions and probabilities for a shard, as `Family.start` takes them."""

    def local(self, shard: AnyShard) -> Arrays | None:
        """Return the local state that the run saved for this shard; None if the fit does not continue from it."""


def empty_block(model: AnyFamily, low: int, high: int, global_state: GlobalState) -> Block:
    """Return a block of the vocabulary before the first document is counted."""
    return Block(low, high, model.first_rows(low, high, global_state), Delta())


def start(
    model: AnyFamily,
    shard: AnyShard | ShardOnDisk,
    scratch: str | None,
    blocks: Sequence[Block],
    global_state: GlobalState,
    stream: Stream,
    warm: WarmSource | None = None,
    sample: DocumentSample | None = None,
) -> Swept:
    """Return the first local state and counts of a shard's sample, from another run if `warm`, on disk if `scratch`."""
    buffers.pool.lean = scratch is not None
    began, shard, stream = time.perf_counter(), open_shard(shard), stream.at(place=shard.number)
    shard = shard if sample is None else sample.of(shard)
    rows = gather(blocks, shard.words)
    saved = warm.local(shard) if warm is not None and isinstance(model, Resumable) else None
    if saved is not None and isinstance(model, Resumable):
        local, delta = model.continue_from(shard, saved, rows, global_state)
    else:
        arrays = None if warm is None else warm.arrays(shard, stream.at(purpose="warm"))
        local, delta = model.start(shard, rows, global_state, stream, arrays)
    return Swept(_spilled(local, scratch), _timed(delta, shard, began))


def sweep(
    model: AnyFamily,
    shard: AnyShard | ShardOnDisk,
    before: Swept,
    scratch: str | None,
    blocks: Sequence[Block],
    global_state: GlobalState,
    stream: Stream,
    times: int = 1,
    sample: DocumentSample | None = None,
) -> Swept:
    """Return the result of sweeps over a shard, or over a sample of its documents, as one delta."""
    buffers.pool.lean = scratch is not None
    began, shard = time.perf_counter(), open_shard(shard)
    joining = None if sample is None or not sample.grows else sample.joining(shard)
    shard = shard if sample is None else sample.of(shard)
    local = local_state(model, _spilled(before.local, scratch))
    rows, stream = gather(blocks, shard.words), stream.at(place=shard.number)
    if joining is not None and isinstance(model, Growing):
        local, last = model.join(shard, local, joining, rows, global_state, stream)
    else:
        local, last = model.sweep(shard, local, rows, global_state, stream)
    delta = last
    for number in range(1, times):
        # Advance by the last sweep alone: the rows already contain the changes of earlier sweeps.
        rows, global_state = model.advance(rows, last, global_state)
        local, last = model.sweep(shard, local, rows, global_state, stream.at(purpose=f"again {number}"))
        delta = delta.then(last)
    return Swept(_spilled(local, scratch), _timed(delta, shard, began))


def step(
    model: AnyStochastic,
    shard: AnyShard | ShardOnDisk,
    blocks: Sequence[Block],
    global_state: GlobalState,
    stream: Stream,
) -> Delta:
    """Return the stochastic step of a shard."""
    began, shard = time.perf_counter(), open_shard(shard)
    delta = model.step(shard, gather(blocks, shard.words), global_state, stream.at(place=shard.number))
    return _timed(delta, shard, began)


def blend(
    model: AnyStochastic, block: Block, deltas: Sequence[Delta], corpus_sums: Delta, global_state: GlobalState
) -> Block:
    """Return a block of the vocabulary after a minibatch's steps; `corpus_sums` are its sums without words."""
    began = time.perf_counter()
    delta = total(deltas)
    steps = Delta({**delta.parts, **corpus_sums.parts}, _ids_within(block, delta))
    rows, sums = model.blend(block.rows, steps, global_state)
    return Block(block.low, block.high, rows, _with_seconds(sums, began))


def fold_in_shard(
    model: AnyFamily,
    shard: AnyShard | ShardOnDisk,
    scratch: str | None,
    blocks: Sequence[Block],
    global_state: GlobalState,
    stream: Stream,
) -> Swept:
    """Fit the local state of a training shard's documents with the model held fixed."""
    shard = open_shard(shard)
    local = fold_in(model, shard, blocks, global_state, stream)
    return Swept(_spilled(local, scratch), Delta())


def local_state(model: AnyPredicts, local: Local) -> LocalState:
    """Return a local state, loaded if it was spilled."""
    if isinstance(local, LocalState):
        return local
    loaded: LocalState = model.load_local(local)
    return loaded


def _spilled(local: Local, scratch: str | None) -> Local:
    """Return a local state, spilled if there is a scratch folder."""
    if scratch is None:
        return local
    return spill(local.to_arrays() if isinstance(local, LocalState) else local, scratch)


def gather(blocks: Sequence[Block], words: npt.NDArray[np.integer], *, complete: bool = False) -> Rows:
    """Return the rows of some words from the blocks of the vocabulary."""
    if len(blocks) == 1 and len(words) == blocks[0].high - blocks[0].low:
        return blocks[0].rows.of_words(slice(None), complete=complete)
    bounds = np.searchsorted(words, [block.low for block in blocks] + [blocks[-1].high])
    parts = [
        block.rows.of_words(words[first:last] - block.low, complete=complete)
        for block, first, last in zip(blocks, bounds, bounds[1:], strict=False)
    ]
    return parts[0] if len(parts) == 1 else type(parts[0]).joined(parts)


def without_delta(swept: Swept) -> Swept:
    """Return a sweep's local state without its delta, whose memory is then freed before the next sweep."""
    return Swept(swept.local, Delta())


def delta_part(swept: Swept, part: tuple[int, int, bool] | None) -> Delta:
    """Return a sweep's delta, or its part for a block of the vocabulary."""
    if part is None:
        return swept.delta
    low, high, with_rest = part
    rows = swept.delta.between("word", low, high)
    return swept.delta.without_dim("word") + rows if with_rest else rows


def add(deltas: Sequence[Delta | Swept]) -> Delta:
    """Return the sum of deltas, an inner node of the reduction's tree."""
    began = time.perf_counter()
    return _with_seconds(total(_deltas(deltas)), began)


def received(result: Delta | Swept) -> Delta:
    """Return a delta unchanged; the task serves to move it to the worker that runs this task."""
    return _deltas([result])[0]


def is_there(result: object) -> None:
    """Do nothing; the task ends once another task's result exists."""


def prefetch(blocks: Sequence[Block]) -> None:
    """Do nothing; the task serves to move blocks to the worker that runs it, for later tasks."""


def fold(model: AnyFamily, block: Block, deltas: Sequence[Delta | Swept], global_state: GlobalState) -> Block:
    """Add deltas to a block of the vocabulary, at the root of the reduction's tree; other sums are passed on."""
    began = time.perf_counter()
    delta = total(_deltas(deltas))
    by_word = delta.with_dim("word")
    rows, sums = model.fold(block.rows, Delta(by_word.parts, _ids_within(block, by_word)), global_state)
    sums = Delta(sums.parts, {dim: ids + block.low if dim == BAND else ids for dim, ids in sums.ids.items()})
    return Block(block.low, block.high, rows, _with_seconds(delta.without_dim("word") + sums, began))


def _ids_within(block: Block, delta: Delta) -> Arrays:
    """Return a delta's ids, with words counted from the block's first."""
    return {dim: ids - block.low if dim == "word" else ids for dim, ids in delta.ids.items()}


def _deltas(results: Sequence[Delta | Swept]) -> list[Delta]:
    return [result.delta if isinstance(result, Swept) else result for result in results]


def swept_rows(block: Block) -> Block:
    """Return a block without the fields declared by `block_only`, which sweeps do not need."""
    return replace(block, rows=block.rows.of_words(slice(None), complete=False))


def scored_rows(block: Block) -> Block:
    """Return a block with the rows that score held-out tokens."""
    return replace(block, rows=block.rows.counted())


def block_sums(block: Block) -> Delta:
    """Return the sums of a folded block, which are small."""
    return block.sums


def _timed(delta: Delta, shard: AnyShard, began: float) -> Delta:
    """Return a delta with the seconds of its shard: an entry per shard, so that sums of deltas keep them apart."""
    seconds = {**delta.seconds, f"{SHARD_SECONDS}{shard.number}": time.perf_counter() - began}
    return Delta(delta.parts, delta.ids, seconds)


def _with_seconds(delta: Delta, began: float) -> Delta:
    """Return a delta with the seconds of reducing it."""
    spent = delta.seconds.get("reduce", 0.0) + time.perf_counter() - began
    return Delta(delta.parts, delta.ids, {**delta.seconds, "reduce": spent})


def score(
    model: AnyFamily,
    heldout: Sequence[AnyShard | ShardOnDisk],
    swept: Sequence[Swept],
    blocks: Sequence[Block],
    global_state: GlobalState,
    sample: DocumentSample | None = None,
) -> list[Score]:
    """Return the scores of the held-out pairs of some shards' documents, or of a sample of them; vectors have none."""
    scores = []
    for shard, documents in zip(heldout, swept, strict=True):
        pairs = cast(Shard, open_shard(shard))
        pairs = pairs if sample is None else sample.of(pairs)
        scores.append(score_local(model, pairs, local_state(model, documents.local), blocks, global_state))
    return scores


def score_local(
    model: AnyPredicts,
    heldout: Shard,
    local: LocalState,
    blocks: Sequence[Block],
    global_state: GlobalState,
) -> Score:
    """Return the score of held-out pairs by the local state of their documents."""
    began = time.perf_counter()
    if not heldout.pairs:
        return Score(0.0, 0)
    table = model.predict(heldout, local, gather(blocks, heldout.words, complete=True), global_state)
    logs = float((heldout.counts * special.log(table["probability"])).sum())
    return Score(logs, heldout.tokens, time.perf_counter() - began)


def fold_in(
    model: AnyPredicts,
    shard: AnyShard,
    blocks: Sequence[Block],
    global_state: GlobalState,
    stream: Stream,
) -> LocalState:
    """Fit the local state of unseen documents with the model held fixed."""
    rows = gather(blocks, shard.words)
    local: LocalState = model.fold_in(shard, rows, global_state, stream.at(place=shard.number))
    return local


@functools.cache
def processor(blas: bool) -> Processor:
    """Return the description of this process's processor."""
    from collapsium.workers.kernels import target as compilation

    compilation_target = compilation.target()
    return Processor(
        machine=compilation_target.triple,
        kernels=compilation_target.processor,
        features=compilation_target.features,
        library=" ".join(platform.libc_ver()).strip() or platform.system(),
        blas=_blas() if blas else "",
    )


def _blas() -> str:
    """Return the name and the core type of the library that NumPy has loaded."""
    import threadpoolctl

    folder = np.__path__[0].rstrip("/")
    libraries = [library for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
    # SciPy may have loaded another library.
    of_numpy = [library for library in libraries if str(library["filepath"]).startswith((folder, f"{folder}.libs"))]
    names = {
        f"{library['internal_api']} {library.get('architecture', '')}".strip() for library in of_numpy or libraries
    }
    return ", ".join(sorted(names))
