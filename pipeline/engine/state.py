"""What a run works on, and what it holds between iterations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from collapsium.pipeline.executors.base import Future
from collapsium.pipeline.families.base import AnyFamily, FamilyOptions
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import GlobalState
from collapsium.workers.families.base import AnyShardModel
from collapsium.workers.shard_loading import ShardOnDisk
from collapsium.workers.tasks import Block, Swept, WarmSource


@dataclass(frozen=True)
class Problem:
    """What a run works on; fixed before the first sweep.

    Attributes
    ----------
    name : str
        The family's name.
    family : Family
        Its half on the driver.
    shard_model : ShardModel
        Its half beside the shards, which tasks are sent.
    config : FamilyOptions
        Its options.
    shards, heldout : list of futures
        The shards, and the held-out pairs of their documents; no held-out ones where there is no such corpus.
    cuts : tuple of int
        First words of the blocks of the vocabulary and, last, its size.
    stream : Stream
        The run's seed.
    scratch : str or None
        Folder, of each machine its own, where local states lie on disk; None where they stay in memory.
    local_sweeps : int
        How often a shard is swept before its delta is reduced.
    load : callable, optional
        Submits the reading of shards and held-out pairs, for when they are lost.
    warm : sequence of WarmSource, optional
        What another run knows of each shard, from which the first states are made.
    tokens : int, optional
        Of the corpus, which counts from disk are compared with.
    """

    name: str
    family: AnyFamily
    shard_model: AnyShardModel
    config: FamilyOptions
    shards: list[Future[AnyShard | ShardOnDisk]]
    heldout: list[Future[AnyShard | ShardOnDisk]]
    cuts: tuple[int, ...]
    stream: Stream
    scratch: str | None = None
    local_sweeps: int = 1
    load: Callable[[], tuple[list[Future[AnyShard | ShardOnDisk]], list[Future[AnyShard | ShardOnDisk]]]] | None = None
    warm: Sequence[WarmSource] | None = None
    tokens: int | None = None

    def reload(self) -> None:
        """Read the shards again, in place: whoever held them is gone."""
        if self.load is not None:
            self.shards[:], self.heldout[:] = self.load()

    def home(self, shard: int, homes: int) -> int:
        """Return which of some homes a shard lives in: neighbours live together, as they are added first."""
        return shard * homes // len(self.shards)

    def block_home(self, block: int, homes: int) -> int:
        """Return which of some homes a block of the vocabulary lives in: one alone, where the sum of all deltas is."""
        return ((block + 1) * homes - 1) // (len(self.cuts) - 1)


@dataclass(frozen=True)
class State:
    """What the loop holds between iterations: globals here, all else as futures.

    Attributes
    ----------
    iteration : int
        How many there were; -1 before the start.
    global_state : GlobalState
        The family's.
    blocks : list of futures
        Blocks of the vocabulary.
    swept : list of futures
        What the shards' last sweeps left; none before the start.
    """

    iteration: int
    global_state: GlobalState
    blocks: list[Future[Block]]
    swept: list[Future[Swept]] = field(default_factory=list)


UNRECORDED = ("score", "lost", "words", "ends", "flat")  # found again from the state that a checkpoint holds


@dataclass(frozen=True)
class Progress:
    """What one iteration told.

    Attributes
    ----------
    iteration : int
        1 for the first; 0 for the start.
    elapsed : float
        Seconds since the start began; of a run that was resumed, without the time between.
    change : float or None
        Share of the tokens that moved between topics.
    score : float or None
        Mean log probability of a held-out token, in nats.
    figures : dict
        The family's hyperparameters and, where it has one, the ``objective``.
    seconds : dict
        Where the iteration's time went, a worker's mean: ``kernel`` (sweeps), ``reduce`` (sums and folding), ``score``,
        the driver's ``update``, and ``wait`` for the rest.
    lost : str
        Why the loop went back to this iteration; empty as a rule.
    tokens : float
        Tokens swept.
    sweeps : dict
        Seconds that the shards took: how many there were (``shards``), their sum (``total``), least, quarters and most
        (``quartiles``), and the slowest, a list of [shard, seconds].
    topics : dict
        How large the topics are and which moved; see `collapsium.pipeline.engine.loop.topic_snapshots`.
    words : dict
        Top words of topics, by id, where it was time to look for them.
    ends : str
        Why the run ends with this iteration, where it ends before its last; empty as a rule.
    flat : str
        The figure that has just been found to be flat, in a run that would go on; empty as a rule.
    """

    iteration: int
    elapsed: float
    change: float | None
    score: float | None
    figures: dict[str, float]
    seconds: dict[str, float]
    lost: str = ""
    tokens: float = 0.0
    sweeps: dict[str, Any] = field(default_factory=dict)
    topics: dict[str, Any] = field(default_factory=dict)
    words: dict[str, list[str]] = field(default_factory=dict)
    ends: str = ""
    flat: str = ""

    def record(self) -> dict[str, Any]:
        """Return what a checkpoint remembers of it."""
        return {name: value for name, value in asdict(self).items() if name not in UNRECORDED}


@dataclass(frozen=True)
class Kept:
    """A state with what there is to tell of it, but for its score, and the figures that were told before."""

    state: State
    progress: Progress
    previous: dict[str, float]
