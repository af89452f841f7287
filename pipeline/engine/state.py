"""The problem that a run solves, and the state and the progress that its loop holds between iterations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TypedDict

from collapsium.pipeline.engine.growth import Growth
from collapsium.pipeline.executors.base import Future
from collapsium.pipeline.families.base import AnyFamily, FamilyOptions
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import GlobalState
from collapsium.workers.document_samples import DocumentSample
from collapsium.workers.families.base import AnyShardModel
from collapsium.workers.shard_loading import ShardOnDisk
from collapsium.workers.tasks import Block, Swept, WarmSource

Shards = list[Future[AnyShard | ShardOnDisk]]


@dataclass(frozen=True)
class Problem:
    """A corpus with a model family, its options and a seed; fixed before the first sweep.

    Attributes
    ----------
    name : str
        Name of the family.
    family : Family
        The family's driver half.
    shard_model : ShardModel
        The family's half for the shards, which travels with the tasks.
    config : FamilyOptions
        Options of the family.
    shards, heldout : list of futures
        The shards, and the held-out pairs of their documents; `heldout` is empty where nothing is held out.
    block_bounds : tuple of int
        First word of each block of the vocabulary and, last, the size of the vocabulary.
    stream : Stream
        Random stream of the seed.
    scratch : str or None
        Folder for spilled local states, on each machine its own; None where they stay in memory.
    local_sweeps : int
        Sweeps of a shard before its delta is reduced.
    load : callable, optional
        Submits the reading of shards and held-out pairs again, after they were lost.
    warm : sequence of WarmSource, optional
        For each shard, the part of another run from which its first local state is made.
    tokens : int, optional
        Tokens of the corpus, with which counts from disk are compared.
    growth : Growth, optional
        Stages over samples of the documents; by default all iterations sweep all documents.
    waiting_deltas : int, optional
        Number of deltas that wait to be added in one task.
    """

    name: str
    family: AnyFamily
    shard_model: AnyShardModel
    config: FamilyOptions
    shards: Shards
    heldout: Shards
    block_bounds: tuple[int, ...]
    stream: Stream
    scratch: str | None = None
    local_sweeps: int = 1
    load: Callable[[], tuple[Shards, Shards]] | None = None
    warm: Sequence[WarmSource | Future[WarmSource]] | None = None
    tokens: int | None = None
    growth: Growth | None = None
    waiting_deltas: int = 1

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

    def home(self, shard: int, homes: int) -> int:
        """Return the home of a shard among `homes`; neighbours share one, as their deltas are added first."""
        return shard * homes // len(self.shards)

    def block_home(self, block: int, homes: int) -> int:
        """Return the home of a block of the vocabulary; a single block lives where the sum of all deltas is made."""
        return ((block + 1) * homes - 1) // (len(self.block_bounds) - 1)


@dataclass(frozen=True)
class State:
    """State of a fit between iterations; all but the global state are futures.

    Attributes
    ----------
    iteration : int
        Iterations so far; -1 before the start.
    global_state : GlobalState
        Global state of the family.
    blocks : list of futures
        Blocks of the vocabulary.
    swept : list of futures
        Local states of the shards; empty before the start, and between the steps of the stochastic schedule.
    """

    iteration: int
    global_state: GlobalState
    blocks: list[Future[Block]]
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


UNRECORDED = ("score", "lost", "words", "stop_reason", "flat")
"""Fields that follow from the state of a checkpoint, or hold for one process only."""


@dataclass(frozen=True)
class Progress:
    """Report of one iteration.

    Attributes
    ----------
    iteration : int
        1 for the first; 0 for the start.
    elapsed : float
        Seconds since the start began; of a resumed run, without the time between.
    change : float or None
        Share of the tokens that moved between topics.
    score : float or None
        Mean log probability of a held-out token, in nats.
    figures : dict
        The family's hyperparameters and, where it has one, the ``objective``.
    seconds : dict
        Time of the iteration by use, a mean over the workers: ``kernel`` (sweeps), ``reduce`` (sums and folding),
        ``score``, the driver's ``update``, and ``wait`` for the rest.
    lost : str
        Reason for which the loop went back to this iteration; empty as a rule.
    tokens : float
        Tokens swept.
    every : int
        One document in `every` was swept.
    sweeps : dict
        Seconds by shard; each entry of ``slowest`` is a shard's number and its seconds.
    topics : dict
        Sizes of the topics; see `collapsium.pipeline.engine.loop.topic_snapshots`.
    words : dict
        Top words of topics by id, in iterations whose words were fetched.
    stop_reason : str
        Reason for which the run stops before its last planned iteration; empty as a rule.
    flat : str
        Figure that has just become flat, in a run that goes on; empty as a rule.
    """

    iteration: int
    elapsed: float
    change: float | None
    score: float | None
    figures: dict[str, float]
    seconds: dict[str, float]
    lost: str = ""
    tokens: float = 0.0
    every: int = 1
    sweeps: ShardTimes = field(default_factory=ShardTimes)
    topics: TopicSizes = field(default_factory=TopicSizes)
    words: dict[str, list[str]] = field(default_factory=dict)
    stop_reason: str = ""
    flat: str = ""

    def record(self) -> dict[str, object]:
        """Return the fields that a checkpoint stores."""
        return {name: value for name, value in asdict(self).items() if name not in UNRECORDED}


@dataclass(frozen=True)
class Snapshot:
    """A state with its progress, unscored, and the figures of the iterations before: the contents of a checkpoint."""

    state: State
    progress: Progress
    previous: dict[str, float]
