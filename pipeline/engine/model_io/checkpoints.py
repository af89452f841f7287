"""What the loop goes back to: states kept on disk, every so often, checked and loaded again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol

from collapsium.pipeline.engine.state import Kept, Problem, Progress, State
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.storage.errors import ClusterError, CollapsiumError, DamagedError, MismatchError
from collapsium.storage.io.arrays import DIGESTS
from collapsium.storage.runs.checkpoint import Checkpoint, CheckpointRecord
from collapsium.storage.runs.run import Run
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.spill import SpillFiles, SpillWriter
from collapsium.workers.arrays.state import Arrays, LocalState
from collapsium.workers.families.family_arrays import ModelChecks
from collapsium.workers.shard_loading import ShardOnDisk, open_shard

SECONDS = 60.0  # between two checkpoints, at least
SHARE = 0.05  # of the time that checkpoints may take
ITERATIONS = 1000  # between two, at most: until then the scheduler remembers every task


class Keeper(Protocol):
    """Holds the last state, keeps states, and gives them back."""

    def keep(self, kept: Kept) -> State:
        """Hold a state, and keep it if it is time to; the state to go on from has no history."""

    def hold(self, kept: Kept) -> None:
        """Hold a state, to be finished with."""

    def back(self, problem: Problem) -> Kept | None:
        """Return what was kept last; None where there is nothing."""


class NoKeeper:
    """Keeps nothing: whoever goes back begins anew."""

    def keep(self, kept: Kept) -> State:
        """Keep nothing."""
        return kept.state

    def hold(self, kept: Kept) -> None:
        """Hold nothing."""

    def back(self, problem: Problem) -> Kept | None:  # noqa: ARG002
        """Give nothing back."""
        return None


class CheckpointKeeper:
    """Keeps states as checkpoints of a run.

    Parameters
    ----------
    run : Run
        Where.
    executor : Executor
        Whose workers write and read their parts.
    problem : Problem
        Says where the shards live.
    fingerprint : str
        Digest of all that makes the run's model what it is.
    with_locals : bool, optional
        Whether states have local states that are kept.
    every : int, optional
        Iterations between two checkpoints; by default as time allows.
    seconds : float, optional
        Time between two checkpoints, at least.
    share : float, optional
        Share of the time that checkpoints may take.
    owned : callable, optional
        Raises an error where another process has taken the run over.
    notice : callable, optional
        Told in a line what is broken, where a checkpoint is passed over.

    Attributes
    ----------
    last : Kept or None
        The last state that there was.
    """

    def __init__(
        self,
        run: Run,
        executor: Executor,
        problem: Problem,
        fingerprint: str = "0" * 64,
        *,
        with_locals: bool = True,
        every: int | None = None,
        seconds: float = SECONDS,
        share: float = SHARE,
        owned: Callable[[], None] = lambda: None,
        notice: Callable[[str], None] = lambda text: None,  # noqa: ARG005
    ) -> None:
        self._run, self._executor, self._problem = run, executor, problem
        self._fingerprint, self._locals, self._every = fingerprint, with_locals, every
        self._seconds, self._wait, self._share = seconds, seconds, share
        self._owned, self._notice = owned, notice
        self._last, self._iteration = time.monotonic(), 0
        self._origin = self._told = run.events_size()
        self.last: Kept | None = None

    def keep(self, kept: Kept) -> State:
        """Hold a state, and keep it if it is time to; the history of its tasks is then cut, as they load it."""
        self.hold(kept)
        self._told = self._run.events_size()  # what was told before this iteration
        if not kept.state.iteration or not self._due(kept.state.iteration):
            return kept.state
        began = time.monotonic()
        state = self._write(kept)
        self._last = time.monotonic()
        self._wait = max(self._seconds, (self._last - began) / self._share)
        return state

    def hold(self, kept: Kept) -> None:
        """Hold a state, to be finished with."""
        self.last = kept

    def _due(self, iteration: int) -> bool:
        gone = iteration - self._iteration
        if gone >= (ITERATIONS if self._every is None else self._every):
            return True
        return self._every is None and time.monotonic() - self._last >= self._wait

    @property
    def kept(self) -> int | None:
        """The iteration of the last checkpoint, if there is one."""
        return self._iteration or None

    def finish(self) -> int | None:
        """Keep the last state, if it is not kept yet; return the iteration of the last checkpoint, if there is one."""
        if self.last is not None and self.last.state.iteration > self._iteration:
            self._write(self.last)
        return self.kept

    def _write(self, kept: Kept) -> State:
        """Write a checkpoint, publish it once it is whole, and return the state to go on from."""
        self._owned()
        state = kept.state
        place = self._run.checkpoints.own(state.iteration)
        try:
            record = self._record(kept, self._parts(place, state))
            self._owned()
            self._run.checkpoints.publish(record)
        except BaseException:
            self._run.checkpoints.discard(state.iteration)
            raise
        self._iteration = state.iteration
        if not self._executor.keeps_history:
            return state
        state = self._loaded(record)
        self.last = Kept(state, kept.progress, kept.previous)
        return state

    def _parts(self, place: Checkpoint, state: State) -> dict[str, str]:
        """Write all parts where they lie; return their digests."""
        submit = self._executor.submit
        written = {
            f"rows/{number:05d}": submit(write_block, place, number, one) for number, one in enumerate(state.blocks)
        }
        for number, swept in enumerate(state.swept if self._locals else []):
            written[f"local_states/{number:05d}"] = submit(write_local, place, number, swept)
        parts = {"global_state": place.write("global_state", state.global_state.to_arrays())}
        parts.update(zip(written, self._executor.collect(list(written.values())), strict=True))
        missing = [name for name in parts if not place.folder.exists(f"{name}/{DIGESTS}")]
        if missing:
            raise CollapsiumError(
                f"{place.folder.url}: the workers wrote {missing[0]} to a storage of their own; expected a folder that "
                "the driver and all workers share"
            )
        return parts

    def _record(self, kept: Kept, parts: dict[str, str]) -> CheckpointRecord:
        events = self._run.save_events(self._told, self._run.checkpoints.own(kept.state.iteration).folder)
        return CheckpointRecord(
            iteration=kept.state.iteration,
            run=self._fingerprint,
            parts=parts,
            blocks=self._problem.cuts,
            shards=len(self._problem.shards),
            events=(self._told, events),
            progress=kept.progress.record(),
            previous=kept.previous,
        )

    def back(self, problem: Problem) -> Kept | None:
        """Return the latest checkpoint that is whole, and cut the events that came after it.

        Parameters
        ----------
        problem : Problem
            What is fitted.

        Returns
        -------
        Kept or None
            None where there has been no checkpoint.

        Raises
        ------
        DamagedError
            There are checkpoints, and none is whole.
        MismatchError
            The checkpoint is of another model.
        """
        self.last = None
        iterations, broken = self._run.checkpoints.candidates()
        for iteration in iterations:
            faults, record = self._faults(iteration, problem)
            if record is not None and not faults:
                for text in broken:
                    self._notice(f"{text}; going on from the checkpoint of iteration {iteration}")
                self._run.checkpoints.go_back(iteration)
                place = self._run.checkpoints.at(iteration).folder
                self._run.restore_events(*record.events, place, self._notice)
                self._told = self._run.events_size()
                self._iteration, self._last = iteration, time.monotonic()
                progress = Progress(score=None, **record.progress)
                self.last = Kept(self._loaded(record, compare=True), progress, dict(record.previous))
                return self.last
            broken += faults
        if broken:
            raise DamagedError(
                self._run.folder.url,
                f"no checkpoint is whole: {broken[0]}; a fit into another folder begins anew",
            )
        self._run.truncate_events(self._origin)
        return None

    def _faults(self, iteration: int, problem: Problem) -> tuple[list[str], CheckpointRecord | None]:
        """Return what is broken of a checkpoint, all of which is read, and what it says of itself."""
        place = self._run.checkpoints.at(iteration)
        try:
            record = place.record()
        except DamagedError as error:
            return [str(error)], None
        if record.run != self._fingerprint:
            raise MismatchError(f"{place.folder.url}: the checkpoint is not of the model that run.json describes")
        wanted = ["global_state", *(f"rows/{number:05d}" for number in range(len(problem.cuts) - 1))]
        wanted += [f"local_states/{number:05d}" for number in range(len(problem.shards) if self._locals else 0)]
        if sorted(record.parts) != sorted(wanted) or record.blocks != problem.cuts:
            raise MismatchError(f"{place.folder.url}: the checkpoint was cut into other parts, by another release")
        checks = [self._executor.submit(check_part, place, part, digest) for part, digest in record.parts.items()]
        faults = [text for part in self._executor.collect(checks) for text in part]
        if not faults:
            try:
                self._global_state(record)
            except DamagedError as error:
                faults.append(str(error))
        return faults, record

    def _global_state(self, record: CheckpointRecord) -> ModelChecks:
        """Read the global state of a checkpoint and check it."""
        place, problem = self._run.checkpoints.at(record.iteration), self._problem
        read = place.read("global_state", record.parts["global_state"])
        where = f"{place.folder.url}/global_state"
        return ModelChecks.of(problem.shard_model, problem.cuts[-1], read, where, problem.tokens)

    def _loaded(self, record: CheckpointRecord, *, compare: bool = False) -> State:
        """Have a checkpoint read; what was not just written is compared, the tokens with the counts."""
        place, submit = self._run.checkpoints.at(record.iteration), self._executor.submit
        homes, parts, problem = self._executor.homes, record.parts, self._problem
        try:
            checks = self._global_state(record)
        except DamagedError as error:  # what was just written and cannot be read is as good as lost
            raise ClusterError(str(error)) from error
        blocks = []
        for number, bound in enumerate(pairwise(problem.cuts)):
            given = (place, number, *bound, parts[f"rows/{number:05d}"], checks)
            blocks.append(submit(read_block, *given, home=problem.block_home(number, homes)))
        swept: list[Future[tasks.Swept]] = []
        for number in range(len(problem.shards) if self._locals else 0):
            own = (place, number, parts[f"local_states/{number:05d}"], checks, problem.shards[number], problem.scratch)
            compared = blocks if compare else None
            swept.append(submit(read_local, *own, compared, home=problem.home(number, homes)))
        global_state = problem.shard_model.global_state_type.from_arrays(checks.global_state)
        return State(record.iteration, global_state, blocks, swept)


def write_block(place: Checkpoint, number: int, block: tasks.Block) -> str:
    """Write a block of the vocabulary where it lies; return its digest."""
    return place.write(f"rows/{number:05d}", block.rows.to_arrays())


def write_local(place: Checkpoint, number: int, swept: tasks.Swept) -> str:
    """Write a shard's local state where it lies; return its digest."""
    local = swept.local
    if isinstance(local, LocalState):
        return place.write(f"local_states/{number:05d}", local.to_arrays())
    return place.write(f"local_states/{number:05d}", local.lazy_arrays() if isinstance(local, SpillFiles) else local)


def check_part(place: Checkpoint, part: str, digest: str) -> list[str]:
    """Read a part of a checkpoint, and say what is broken of it."""
    return place.check(part, digest)


def read_block(place: Checkpoint, number: int, low: int, high: int, digest: str, checks: ModelChecks) -> tasks.Block:
    """Read a block of the vocabulary, and check it."""
    part = f"rows/{number:05d}"
    rows = place.read(part, digest)
    checks.rows(rows, high - low, f"{place.folder.url}/{part}", finished=False)
    return tasks.Block(low, high, checks.model.rows_type.from_arrays(rows), Delta())


def read_local(
    place: Checkpoint,
    number: int,
    digest: str,
    checks: ModelChecks,
    shard: AnyShard | ShardOnDisk,
    scratch: str | None = None,
    blocks: Sequence[tasks.Block] | None = None,
) -> tasks.Swept:
    """Read a shard's local state, as a sweep that changed nothing would have left it, and check it.

    Parameters
    ----------
    place : Checkpoint
        The checkpoint.
    number : int
        The shard's number.
    digest : str
        Of the part.
    checks : ModelChecks
        Of the checkpoint's global state.
    shard : Shard, VectorShard or ShardOnDisk
        The shard.
    scratch : str, optional
        Folder for scratch files, where local states lie on disk.
    blocks : sequence of Block, optional
        All blocks of the vocabulary, to compare the tokens with.

    Returns
    -------
    Swept
        The local state.
    """
    part = f"local_states/{number:05d}"
    if scratch is None:
        local: Arrays = place.read(part, digest)
    else:
        writer = SpillWriter(scratch)
        for name, rows in place.open(part, digest).items():
            for piece in rows.pieces():
                writer.add({name: piece})
        local = writer.finish()
    where, whole = f"{place.folder.url}/{part}", open_shard(shard)
    checks.local(local, whole, where)
    if blocks is not None:
        checks.tallies(local, tasks.gather(blocks, whole.words).to_arrays(), whole, where)
    return tasks.Swept(local if scratch is not None else checks.model.load_local(local), Delta())
