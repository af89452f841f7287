"""The problem that a run solves, and the state and the progress that its loop holds between iterations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import TypedDict

from collapsium.pipeline.engine.growth import Growth
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.workers import tasks
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import GlobalState
from collapsium.workers.document_samples import DocumentSample
from collapsium.workers.families.family import AnyFamily, FamilyOptions
from collapsium.workers.shard_loading import ShardOnDisk
from collapsium.workers.tasks import Block, Swept, WarmSource

Shards = list[Future[AnyShard | ShardOnDisk]]


@dataclass(frozen=True)
class Problem:
    """A corpus on the workers with a model family, its options and a seed; fixed before the first sweep."""

    name: str  # Name of the family
    family: AnyFamily  # The family, which travels with the tasks
    config: FamilyOptions  # Options of the family
    # The shards, and the held-out pairs of their documents; `heldout` is empty where nothing is held out
    shards: Shards
    heldout: Shards
    block_bounds: tuple[int, ...]  # First word of each block of the vocabulary and, last, the size of the vocabulary
    stream: Stream  # Random stream of the seed
    executor: Executor  # Holds the shards and runs the tasks
    global_state: GlobalState  # Before any document was swept
    # Folder for spilled local states, on each machine its own; None where they stay in memory
    scratch: str | None = None
    local_sweeps: int = 1  # Sweeps of a shard before its delta is reduced
    # Submits the reading of shards and held-out pairs again, after they were lost
    load: Callable[[], tuple[Shards, Shards]] | None = None
    # For each shard, the part of another run from which its first local state is made
    warm: Sequence[WarmSource | Future[WarmSource]] | None = None
    tokens: int | None = None  # Tokens of the corpus, with which counts from disk are compared
    growth: Growth | None = None  # Stages over samples of the documents; by default all iterations sweep all documents
    waiting_deltas: int = 1  # Number of deltas that wait to be added in one task

    def sample(self, iteration: int, number: int = 0) -> DocumentSample | None:
        """Return the sample of documents that a round of an iteration sweeps; None for all."""
        return None if self.growth is None else self.growth.sample(self.stream, iteration, number)

    def is_complete(self, iteration: int) -> bool:
        """Return true if an iteration sweeps all documents, and so did the one before."""
        return self.growth is None or iteration > self.growth.complete_from

    def reload(self) -> None:
        """Read the shards again, in place, after the workers that held them were lost."""
        if self.load is not None:
            self.shards[:], self.heldout[:] = self.load()

    def home(self, shard: int) -> int:
        """Return the home of a shard; neighbours share one, as their deltas are added first."""
        return shard * self.executor.homes // len(self.shards)

    def block_home(self, block: int) -> int:
        """Return the home of a block of the vocabulary; a single block lives where the sum of all deltas is made."""
        return ((block + 1) * self.executor.homes - 1) // (len(self.block_bounds) - 1)

    def initial_state(self, iteration: int = -1) -> State:
        """Return the state before any document was swept."""
        blocks = [
            self.executor.submit(
                tasks.empty_block, self.family, *bounds, self.global_state, home=self.block_home(number)
            )
            for number, bounds in enumerate(pairwise(self.block_bounds))
        ]
        return State(iteration, self.global_state, blocks)

    def folded_in(self, state: State) -> State:
        """Return the state with local states: those that it has, or else those of documents folded in."""
        if state.swept:
            return state
        # The purpose addresses random numbers, on which results depend.
        stream = self.stream.at(purpose="settle")
        swept = [
            self.executor.submit(
                tasks.fold_in_shard,
                self.family,
                shard,
                self.scratch,
                state.blocks,
                state.global_state,
                stream,
                home=self.home(number),
            )
            for number, shard in enumerate(self.shards)
        ]
        return replace(state, swept=swept)


@dataclass(frozen=True)
class State:
    """State of a fit between iterations; all but the global state are futures."""

    iteration: int  # Iterations so far; -1 before the start
    global_state: GlobalState  # Global state of the family
    blocks: list[Future[Block]]  # Blocks of the vocabulary
    # Local states of the shards; empty before the start, and between the steps of the stochastic schedule
    swept: list[Future[Swept]] = field(default_factory=list)


class ShardTimes(TypedDict, total=False):
    """Seconds that the sweeps of single shards took: their number, sum, quartiles (with both extremes), and slowest."""

    shards: int
    total: float
    quartiles: list[float]
    slowest: list[list[float]]


class TopicSizes(TypedDict, total=False):
    """Number of active topics; and as pairs of id and share the largest topics, and those whose share changed most."""

    active: int
    sizes: list[list[float]]
    moved: list[list[float]]


# Fields that follow from the state of a checkpoint, or hold for one process only
UNRECORDED = ("score", "lost", "words", "stop_reason", "flat")


@dataclass(frozen=True)
class Progress:
    """Report of one iteration."""

    iteration: int  # 1 for the first; 0 for the start
    elapsed: float  # Seconds since the start began; of a resumed run, without the time between
    change: float | None  # Share of the tokens that moved between topics
    score: float | None  # Mean log probability of a held-out token, in nats
    figures: dict[str, float]  # The family's hyperparameters and, where it has one, the ``objective``
    # Time of the iteration by use, a mean over the workers: ``kernel`` (sweeps), ``reduce`` (sums and folding),
    # ``score``, the driver's ``update``, and ``wait`` for the rest
    seconds: dict[str, float]
    lost: str = ""  # Reason for which the loop went back to this iteration; empty as a rule
    tokens: float = 0.0  # Tokens swept
    every: int = 1  # One document in `every` was swept
    # Seconds by shard; each entry of ``slowest`` is a shard's number and its seconds
    sweeps: ShardTimes = field(default_factory=ShardTimes)
    # Sizes of the topics; see `collapsium.pipeline.engine.loop.topic_snapshots`
    topics: TopicSizes = field(default_factory=TopicSizes)
    # Top words of topics by id, in iterations whose words were fetched
    words: dict[str, list[str]] = field(default_factory=dict)
    stop_reason: str = ""  # Reason for which the run stops before its last planned iteration; empty as a rule
    flat: str = ""  # Figure that has just become flat, in a run that goes on; empty as a rule

    def record(self) -> dict[str, object]:
        """Return the fields that a checkpoint stores."""
        return {name: value for name, value in asdict(self).items() if name not in UNRECORDED}


@dataclass(frozen=True)
class Snapshot:
    """A state with its progress, unscored, and the figures of the iterations before: the contents of a checkpoint."""

    state: State
    progress: Progress
    previous: dict[str, float]
