"""Checkpoints of a run: states that are saved at intervals, and checked before they are restored.

A sampler's sweeps subtract tokens from integer counts, so the tokens of a checkpoint are compared with its counts.
Equal counts have equal fingerprints (`kernels.gibbs.consistency`). If the fingerprints of the local states and of the
blocks differ, each local state is compared with the blocks, token by token, to name the damaged one. The keys are
random and not recorded, so that other counts with the same fingerprint cannot be constructed.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.exchange import HeldParts
from collapsium.pipeline.engine.state import Problem, Progress, Snapshot, State, StoredBlocks
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.storage.errors import ClusterError, CollapsiumError, DamagedError, MismatchError
from collapsium.storage.io.arrays import DIGESTS, StoredNumber, StoredRows
from collapsium.storage.runs.checkpoint import Checkpoint, CheckpointRecord
from collapsium.storage.runs.run import Run
from collapsium.workers import tasks
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.spill import SpillFiles, SpillWriter
from collapsium.workers.arrays.state import Arrays, LocalState
from collapsium.workers.families.model_checks import ModelChecks
from collapsium.workers.shard_loading import ShardOnDisk, open_shard

SEED_BITS = 128


def require_counted(
    problem: Problem,
    checks: ModelChecks,
    blocks: Sequence[Future[tasks.Block]],
    swept: Sequence[Future[tasks.Swept]],
    places: Sequence[str],
) -> None:
    """Raise an error if the counts of a checkpoint do not have its tokens."""
    if not checks.counts_tokens or not swept:
        return
    seed, executor = secrets.randbits(SEED_BITS), problem.executor
    counted = [
        executor.submit(_row_fingerprint, checks, block, seed, process=problem.process_of_block(number))
        for number, block in enumerate(blocks)
    ]
    taken = [
        executor.submit(_token_fingerprint, checks, local, shard, seed, process=problem.process_of(number))
        for number, (local, shard) in enumerate(zip(swept, problem.shards, strict=True))
    ]
    rows = executor.collect(counted)
    expected, totals = sum(block for block, _ in rows), np.sum([sums for _, sums in rows], axis=0)
    same = (sum(executor.collect(taken)) - expected) % (1 << 64) == 0
    if same and np.array_equal(totals, checks.global_state.topic):
        return
    executor.collect([
        executor.submit(_compare, checks, local, shard, list(blocks), place, process=problem.process_of(number))
        for number, (local, shard, place) in enumerate(zip(swept, problem.shards, places, strict=True))
    ])  # fmt: skip


def _arrays(swept: tasks.Swept) -> Arrays:
    """Return the arrays of a local state, which may be in spill files."""
    return swept.local.to_arrays() if isinstance(swept.local, LocalState) else swept.local


def _row_fingerprint(checks: ModelChecks, block: tasks.Block, seed: int) -> tuple[int, npt.NDArray[np.int64]]:
    """Return the fingerprint of a block of the vocabulary, and the sums of its columns."""
    return checks.row_fingerprint(block.rows.to_arrays(), block.low, seed)


def _token_fingerprint(checks: ModelChecks, swept: tasks.Swept, shard: AnyShard | ShardOnDisk, seed: int) -> int:
    """Return the fingerprint of a shard's tokens."""
    loaded = open_shard(shard)
    return 0 if loaded.of_vectors else checks.token_fingerprint(_arrays(swept), loaded, seed)


def _compare(
    checks: ModelChecks,
    swept: tasks.Swept,
    shard: AnyShard | ShardOnDisk,
    blocks: Sequence[tasks.Block],
    place: str,
) -> None:
    """Refuse a local state with tokens that the blocks do not count."""
    loaded = open_shard(shard)
    checks.tallies(_arrays(swept), tasks.gather(blocks, loaded.words).to_arrays(), loaded, place)


# Frequency of checkpoints, where `checkpoint_every` does not set it
MIN_SECONDS = 30.0  # Least time between two checkpoints
MAX_TIME_SHARE = 0.05  # Share of the run's time that the loop may wait for checkpoints
MAX_ITERATIONS = 1000  # Most iterations between two; a Dask scheduler remembers every task in between
FIRST_ITERATION = 1  # Iteration after which a run always writes its first checkpoint


class Checkpointer:
    """Holds the last snapshot of a fit, and saves nothing, so that a fit starts again after a loss."""

    def __init__(self) -> None:
        self.last: Snapshot | None = None

    def hold(self, snapshot: Snapshot) -> None:
        """Hold a snapshot in place of the one before."""
        self.last = snapshot

    def save_if_due(self, snapshot: Snapshot) -> State:
        """Hold a snapshot, begin to save it if that is due, and return the state to continue from."""
        self.hold(snapshot)
        return snapshot.state

    def complete(self) -> None:
        """Wait until the snapshot that is being saved is complete, after sweeps were submitted that run meanwhile."""

    def release(self) -> None:
        """Release the last snapshot, because its local states are being replaced; saving it is not affected."""
        self.last = None

    def finishes(self, iteration: int) -> bool:  # noqa: ARG002
        """Return true, and say so, if an interrupted fit is to finish an iteration, whose state will be saved."""
        return False

    def save_last(self) -> int | None:
        """Save the last snapshot, unless it is saved; return the iteration of the last checkpoint, if there is one."""
        return None

    def restore(self) -> Snapshot | None:
        """Return the snapshot that was saved last; None where there is none."""
        self.last = None
        return None


class RunCheckpointer(Checkpointer):
    """Saves snapshots as checkpoints of a run."""

    def __init__(
        self,
        run: Run,
        problem: Problem,
        fingerprint: str = "0" * 64,
        *,
        with_locals: bool = True,
        every: int | None = None,
        min_seconds: float = MIN_SECONDS,
        max_time_share: float = MAX_TIME_SHARE,
        require_ownership: Callable[[], None] = lambda: None,
        notice: Callable[[str], None] = lambda text: None,  # noqa: ARG005
    ) -> None:
        super().__init__()
        self._run, self._executor, self._problem = run, problem.executor, problem
        self._fingerprint, self._locals, self._every = fingerprint, with_locals, every
        self._min_seconds, self._pause, self._max_time_share = min_seconds, min_seconds, max_time_share
        self._require_ownership, self._notice = require_ownership, notice
        self._saved_at, self._iteration = time.monotonic(), 0
        self._first_events = self._events_before = run.events_size()
        self._saving: Snapshot | None = None  # The snapshot that is being saved, without its blocks and local states
        self._writing: dict[str, Future[str]] = {}  # The parts of it that workers are writing
        self._waited = 0.0  # Seconds that the loop has waited for it

    def save_if_due(self, snapshot: Snapshot) -> State:
        """Hold a snapshot, begin to save it if that is due, and return the state to continue from, loaded if needed."""
        self.hold(snapshot)
        self._events_before = self._run.events_size()
        if not snapshot.state.iteration or not self._due(snapshot.state.iteration):
            return snapshot.state
        self._submit(snapshot)
        # States on hosts have no history of tasks. Workers that have joined since take part after this checkpoint.
        held = isinstance(snapshot.state.blocks, HeldParts) and snapshot.state.blocks.exchange.is_current
        if held or not self._executor.keeps_history:
            return snapshot.state
        self.complete()
        try:
            record = self._run.checkpoints.at(snapshot.state.iteration).record()
            checks = self._checks_of(record)
        except DamagedError as error:
            # A checkpoint that was just written and cannot be read is as good as lost.
            raise ClusterError(str(error)) from error
        state = self._load(record, checks)
        self.last = Snapshot(state, snapshot.progress, snapshot.previous)
        return state

    def complete(self) -> None:
        """Wait until the snapshot that is being saved is complete, after sweeps were submitted that run meanwhile."""
        if self._saving is None:
            return
        began, iteration = time.monotonic(), self._saving.state.iteration
        # After an interrupt, the parts are still being written, and the next call completes them.
        with self._discarding(iteration, Exception):
            record = self._record(self._saving, self._written(self._saving.state))
            self._require_ownership()
            self._run.checkpoints.publish(record)
        self._saving, self._writing = None, {}
        self._iteration, self._saved_at = iteration, time.monotonic()
        self._pause = max(self._min_seconds, (self._waited + self._saved_at - began) / self._max_time_share)

    def _due(self, iteration: int) -> bool:
        # A run that is stopped or lost early can then continue.
        if iteration == FIRST_ITERATION:
            return True
        # The first checkpoint does not shift the others.
        passed = iteration - (0 if self._iteration == FIRST_ITERATION else self._iteration)
        if passed >= (MAX_ITERATIONS if self._every is None else self._every):
            return True
        return self._every is None and time.monotonic() - self._saved_at >= self._pause

    @property
    def saved_iteration(self) -> int | None:
        """Iteration of the last checkpoint, if there is one."""
        return self._iteration or None

    def save_last(self) -> int | None:
        """Save the last snapshot, unless it is saved; return the iteration of the last checkpoint, if there is one."""
        self.complete()
        if self.last is not None and self.last.state.iteration > self._iteration:
            self._submit(self.last)
            self.complete()
        return self.saved_iteration

    @property
    def reached(self) -> int | None:
        """Iteration of the last snapshot that is there or being saved, if there is one."""
        snapshot = self._saving if self.last is None else self.last
        return None if snapshot is None else snapshot.state.iteration

    def finishes(self, iteration: int) -> bool:
        """Return true, and say so, if an interrupted fit is to finish an iteration, whose state will be saved."""
        saved = f"with the checkpoint of iteration {self._iteration}" if self._iteration else "without a checkpoint"
        self._notice(
            f"interrupted: iteration {iteration} is finished first, because its sweeps replace the state in memory; "
            f"interrupt again to stop at once, {saved}"
        )
        return True

    @contextlib.contextmanager
    def _discarding(self, iteration: int, errors: type[BaseException] = BaseException) -> Iterator[None]:
        """Discard the checkpoint of an iteration after some errors."""
        try:
            yield
        except errors:
            self._saving, self._writing = None, {}
            self._run.checkpoints.discard(iteration)
            raise

    def _submit(self, snapshot: Snapshot) -> None:
        """Submit the writing of each part by the worker that holds it."""
        began, submit, state = time.monotonic(), self._executor.submit, snapshot.state
        self._require_ownership()
        checkpoint = self._run.checkpoints.writable(state.iteration)
        with self._discarding(state.iteration):
            for number, block in enumerate(state.blocks):
                self._writing[_rows(number)] = submit(write_block, checkpoint, number, block)
            for number, swept in enumerate(state.swept if self._locals else []):
                self._writing[_locals(number)] = submit(write_local, checkpoint, number, swept)
            # Only now: a checkpoint of which some parts were never submitted must not be completed.
            self._saving = replace(snapshot, state=replace(state, blocks=[], swept=[]))
        self._waited = time.monotonic() - began

    def _written(self, state: State) -> dict[str, str]:
        """Wait for the parts; return their digests."""
        checkpoint, writing = self._run.checkpoints.writable(state.iteration), self._writing
        parts = {"global_state": checkpoint.write("global_state", state.global_state.to_arrays())}
        parts.update(zip(writing, self._executor.collect(list(writing.values())), strict=True))
        missing = [name for name in parts if not checkpoint.folder.exists(f"{name}/{DIGESTS}")]
        if missing:
            raise CollapsiumError(
                f"{checkpoint.folder.url}: the workers wrote {missing[0]} to a storage that this process cannot see; "
                f"expected a folder "
                "that the driver and all workers share"
            )
        return parts

    def _record(self, snapshot: Snapshot, parts: dict[str, str]) -> CheckpointRecord:
        folder = self._run.checkpoints.writable(snapshot.state.iteration).folder
        events = self._run.save_events(self._events_before, folder)
        return CheckpointRecord(
            iteration=snapshot.state.iteration,
            run=self._fingerprint,
            parts=parts,
            blocks=self._problem.block_bounds,
            shards=len(self._problem.shards),
            events=(self._events_before, events),
            progress=snapshot.progress.record(),
            previous=snapshot.previous,
        )

    def restore(self) -> Snapshot | None:
        """Return the latest complete checkpoint, and cut the events that came after it."""
        if self._saving is not None:
            self._run.checkpoints.discard(self._saving.state.iteration)
        self.last, self._saving, self._writing = None, None, {}
        iterations, faults = self._run.checkpoints.candidates()
        for iteration in iterations:
            checkpoint_faults, sound = self._examine(iteration)
            if sound is not None:
                record, state = sound
                for fault in faults:
                    self._notice(f"{fault}; continuing from the checkpoint of iteration {iteration}")
                self._run.checkpoints.go_back(iteration)
                folder = self._run.checkpoints.at(iteration).folder
                self._run.restore_events(*record.events, folder, self._notice)
                self._events_before = self._run.events_size()
                self._iteration, self._saved_at = iteration, time.monotonic()
                self.last = Snapshot(state, Progress.of_record(record.progress), dict(record.previous))
                return self.last
            faults += checkpoint_faults
        if faults:
            raise DamagedError(
                self._run.folder.url,
                f"no checkpoint is complete: {faults[0]}; a fit into another folder begins anew",
            )
        self._run.truncate_events(self._first_events)
        return None

    def _examine(self, iteration: int) -> tuple[list[str], tuple[CheckpointRecord, State] | None]:
        """Read all of a checkpoint, and have the workers check it; return its faults, or its record and state."""
        checkpoint, problem = self._run.checkpoints.at(iteration), self._problem
        try:
            record = checkpoint.record()
        except DamagedError as error:
            return [str(error)], None
        if record.run != self._fingerprint:
            raise MismatchError(f"{checkpoint.folder.url}: the checkpoint is not of the model that run.json describes")
        expected = ["global_state", *(_rows(number) for number in range(len(problem.block_bounds) - 1))]
        expected += [_locals(number) for number in range(len(problem.shards) if self._locals else 0)]
        if sorted(record.parts) != sorted(expected) or record.blocks != problem.block_bounds:
            raise MismatchError(
                f"{checkpoint.folder.url}: the checkpoint is divided into other parts, by another release"
            )
        faults = part_faults(checkpoint, record, self._executor)
        if faults:
            return faults, None
        try:
            return [], (record, self._load(record, self._checks_of(record), compare=True))
        except DamagedError as error:
            return [str(error)], None

    def _checks_of(self, record: CheckpointRecord) -> ModelChecks:
        """Read the global state of a checkpoint, check it, and return the checks of the other parts."""
        checkpoint, problem = self._run.checkpoints.at(record.iteration), self._problem
        arrays = checkpoint.read("global_state", record.parts["global_state"])
        path = f"{checkpoint.folder.url}/global_state"
        return ModelChecks.of(problem.family, problem.block_bounds[-1], arrays, path, problem.tokens)

    def _load(self, record: CheckpointRecord, checks: ModelChecks, *, compare: bool = False) -> State:
        """Submit the reading of a checkpoint.

        With `compare`, wait until the workers have checked all of it, and compare its tokens with the counts of the
        blocks.
        """
        checkpoint, submit = self._run.checkpoints.at(record.iteration), self._executor.submit
        parts, problem = record.parts, self._problem
        bounds = [*pairwise(problem.block_bounds)]

        def read(number: int, process: int) -> Future[tasks.Block]:
            return submit(
                read_block, checkpoint, number, *bounds[number], parts[_rows(number)], checks, process=process
            )

        blocks = StoredBlocks(read, [problem.process_of_block(number) for number in range(len(bounds))])
        swept: list[Future[tasks.Swept]] = []
        for number in range(len(problem.shards) if self._locals else 0):
            local = (checkpoint, number, parts[_locals(number)], checks, problem.shards[number])
            swept.append(submit(read_local, *local, problem.scratch.of(number), process=problem.process_of(number)))
        if compare:
            complete = [submit(_is_read, block, process=problem.process_of_block(n)) for n, block in enumerate(blocks)]
            complete += [submit(_is_read, local, process=problem.process_of(n)) for n, local in enumerate(swept)]
            self._executor.collect(complete)
            places = [f"{checkpoint.folder.url}/{_locals(number)}" for number in range(len(swept))]
            require_counted(problem, checks, blocks, swept, places)
        return State(record.iteration, checks.global_state, blocks, swept)


def part_faults(checkpoint: Checkpoint, record: CheckpointRecord, executor: Executor) -> list[str]:
    """Read all parts of a checkpoint by tasks, and return their faults."""
    checks = [executor.submit(Checkpoint.check, checkpoint, part, digest) for part, digest in record.parts.items()]
    return [text for part in executor.collect(checks) for text in part]


def _rows(number: int) -> str:
    """Return the name of the part that holds a block of the vocabulary."""
    return f"rows/{number:05d}"


def _locals(number: int) -> str:
    """Return the name of the part that holds a shard's local state."""
    return f"local_states/{number:05d}"


def _is_read(part: tasks.Block | tasks.Swept) -> None:
    """Do nothing; the task ends once a part of a checkpoint was read and checked."""


def write_block(checkpoint: Checkpoint, number: int, block: tasks.Block) -> str:
    """Write a block of the vocabulary and return its digest."""
    return checkpoint.write(_rows(number), block.rows.to_arrays())


def write_local(checkpoint: Checkpoint, number: int, swept: tasks.Swept) -> str:
    """Write a shard's local state and return its digest."""
    local = swept.local
    if isinstance(local, LocalState):
        return checkpoint.write(_locals(number), local.to_arrays())
    return checkpoint.write(_locals(number), local.lazy_arrays() if isinstance(local, SpillFiles) else local)


def read_block(
    checkpoint: Checkpoint, number: int, low: int, high: int, digest: str, checks: ModelChecks
) -> tasks.Block:
    """Read a block of the vocabulary, and check it."""
    part = _rows(number)
    rows = checks.rows(checkpoint.read(part, digest), high - low, f"{checkpoint.folder.url}/{part}", finished=False)
    return tasks.Block(low, high, rows, Delta())


def _in_memory(opened: Mapping[str, StoredRows | StoredNumber]) -> Arrays:
    """Return arrays in memory that sweeps have freed or will use, because the fit has planned for no more."""
    arrays = {}
    for name, rows in opened.items():
        if not rows.shape:
            arrays[name] = rows[...]
            continue
        values, done = buffers.empty(rows.shape, rows.dtype), 0
        for piece in rows.pieces():
            values[done : done + len(piece)] = piece
            done += len(piece)
        arrays[name] = values
    return arrays


def _in_files(opened: Mapping[str, StoredRows | StoredNumber], scratch: str) -> Arrays:
    """Return arrays in spill files."""
    writer = SpillWriter(scratch)
    for name, rows in opened.items():
        for piece in rows.pieces():
            writer.add({name: piece})
    return writer.finish()


def read_local(
    checkpoint: Checkpoint,
    number: int,
    digest: str,
    checks: ModelChecks,
    shard: AnyShard | ShardOnDisk,
    scratch: str | None = None,
) -> tasks.Swept:
    """Read a shard's local state and check it; the result looks like a sweep that changed nothing."""
    part = _locals(number)
    opened = checkpoint.open(part, digest)
    local = _in_memory(opened) if scratch is None else _in_files(opened, scratch)
    checks.local(local, open_shard(shard), f"{checkpoint.folder.url}/{part}")
    return tasks.Swept(local if scratch is not None else checks.model.load_local(local), Delta())
