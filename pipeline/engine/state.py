"""The problem that a run solves, its division into tasks, and the state and progress of its loop between iterations.

With growing data, a fit begins on a sample of the documents, and takes in more of them as topics form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Literal, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.plan import Scratch
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.pipeline.models.registry import make_family
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import OptionError
from collapsium.storage.runs.members import CONSENSUS
from collapsium.workers import tasks
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import GlobalState
from collapsium.workers.families.family import AnyFamily, FamilyOptions, Footprint, Growing
from collapsium.workers.shard_loading import DocumentSample, ShardOnDisk
from collapsium.workers.tasks import Block, Swept, WarmSource

# Sizes by which work is divided. Results depend on them, so they must not depend on the cluster.
BLOCK_BYTES = 64_000_000  # Bytes of the rows of a block that sweeps see
GROUP_SHARDS = 8  # Shards whose deltas are added one after another; the groups' sums are added over a tree
# Deltas of a group that one task adds to its sum, at most: the sum is read and written once for all of them
MOST_WAITING = 3
WAITING_BYTES = 64_000_000  # Most bytes of their rows, unless a single delta has more
UNSUMMED_SHARDS = 2  # Up to this number of shards, deltas are folded in one by one instead of as a sum


def block_bounds(words: int, footprint: Footprint) -> tuple[int, ...]:
    """Divide the vocabulary into blocks of bounded size."""
    blocks = max(math.ceil(words * footprint.shown / BLOCK_BYTES), 1)
    return tuple(words * block // blocks for block in range(blocks + 1))


def waiting_deltas(words: int, footprint: Footprint) -> int:
    """Return the number of deltas that one task adds to the sum of a group, at least one."""
    return min(max(int(WAITING_BYTES // max(words * footprint.delta, 1)), 1), MOST_WAITING)


def most_from_elsewhere(shards: int, processes: int) -> int:
    """Return the most deltas of a process that wait for the sum of their group from the process before."""
    # Process p begins with shard ceil(p shards / processes); see `Problem.process_of`.
    firsts = [-(-process * shards // processes) for process in range(1, processes + 1)]
    waiting = (min(-first % GROUP_SHARDS, after - first) for first, after in pairwise(firsts))
    return max(waiting, default=0)


Shards = list[Future[AnyShard | ShardOnDisk]]


class StoredBlocks(list[Future[Block]]):
    """The blocks of a checkpoint: each is read in its worker process, and all can be read in any other process."""

    def __init__(self, read: Callable[[int, int], Future[Block]], processes: Sequence[int]) -> None:
        self._read, self._processes = read, processes  # `read` submits the reading of a block in a process
        super().__init__(read(number, process) for number, process in enumerate(processes))

    def read_in(self, process: int) -> list[Future[Block]]:
        """Return the blocks as one process reads them, so that no other process sends them there."""
        return [
            block if process == reader else self._read(number, process)
            for number, (block, reader) in enumerate(zip(self, self._processes, strict=True))
        ]


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
    scratch: Scratch = field(default_factory=Scratch)  # Place of shards and local states between sweeps
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

    def process_of(self, shard: int) -> int:
        """Return the worker process of a shard; neighbours share one, because their deltas are added first."""
        return shard * self.executor.processes // len(self.shards)

    def process_of_block(self, block: int) -> int:
        """Return the worker process of a block of the vocabulary; a single one is where all deltas are summed."""
        return ((block + 1) * self.executor.processes - 1) // (len(self.block_bounds) - 1)

    def initial_state(self, iteration: int = -1) -> State:
        """Return the state before any document was swept."""
        blocks = [
            self.executor.submit(
                tasks.empty_block, self.family, *bounds, self.global_state, process=self.process_of_block(number)
            )
            for number, bounds in enumerate(pairwise(self.block_bounds))
        ]
        return State(iteration, self.global_state, blocks)

    def folded_in(self, state: State) -> State:
        """Return the state with local states: the existing ones, or else states of documents folded in."""
        if state.swept:
            return state
        # The purpose addresses random numbers, on which results depend.
        stream = self.stream.at(purpose="settle")
        swept = [
            self.executor.submit(
                tasks.fold_in_shard,
                self.family,
                shard,
                self.scratch.of(number),
                [*state.blocks],
                state.global_state,
                stream,
                process=self.process_of(number),
            )
            for number, shard in enumerate(self.shards)
        ]
        return replace(state, swept=swept)


@dataclass(frozen=True)
class State:
    """State of a fit between iterations; all but the global state are futures."""

    iteration: int  # Iterations so far; -1 before the start
    global_state: GlobalState  # Global state of the family
    blocks: Sequence[Future[Block]]  # Blocks of the vocabulary
    # Local states of the shards; empty before the start, and between the steps of the stochastic schedule
    swept: Sequence[Future[Swept]] = field(default_factory=list)


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
METRICS = "figures"  # Name of the field `metrics` in checkpoints


@dataclass(frozen=True)
class Progress:
    """Report of one iteration."""

    iteration: int  # 1 for the first; 0 for the start
    elapsed: float  # Seconds since the start began; of a resumed run, without the time between
    change: float | None  # Share of the tokens that moved between topics
    score: float | None  # Mean log probability of a held-out token, in nats
    metrics: dict[str, float]  # The family's hyperparameters and, where it has one, the ``objective``
    # Time of the iteration by use, a mean over the workers: ``kernel`` (sweeps), ``reduce`` (sums and folding),
    # ``score``, the driver's ``update``, and ``wait`` for the rest
    seconds: dict[str, float]
    lost: str = ""  # Reason for which the loop went back to this iteration; empty as a rule
    tokens: float = 0.0  # Tokens swept
    every: int = 1  # One document in `every` was swept
    # Seconds by shard; each entry of ``slowest`` is a shard's number and its seconds
    sweeps: ShardTimes = field(default_factory=ShardTimes)
    # Sizes of the topics; see `collapsium.pipeline.engine.topic_snapshots`
    topics: TopicSizes = field(default_factory=TopicSizes)
    # Top words of topics by id, in iterations whose words were fetched
    words: dict[str, list[str]] = field(default_factory=dict)
    stop_reason: str = ""  # Reason for which the run stops before its last planned iteration; usually empty
    flat: str = ""  # Metric that has just become flat without ending the run; usually empty

    def record(self) -> dict[str, object]:
        """Return the fields that a checkpoint stores."""
        fields = {name: value for name, value in asdict(self).items() if name not in UNRECORDED}
        metrics = fields.pop("metrics")
        return {**fields, METRICS: metrics}

    @classmethod
    def of_record(cls, record: JsonObject) -> Progress:
        """Return the progress that a checkpoint stores, unscored."""
        fields = dict(record)
        return cls(score=None, metrics=fields.pop(METRICS), **fields)


@dataclass(frozen=True)
class Snapshot:
    """A state with its progress, unscored, and the metrics of the previous iterations: the contents of a checkpoint."""

    state: State
    progress: Progress
    previous: dict[str, float]


# For each sample its n, one document in n, and the number of its sweeps; then all documents are swept
Samples: TypeAlias = tuple[tuple[int, int], ...]


# Samples of each plan; the first plan whose first sample is large enough is taken. These rules are measured on the page
# "Growing data".
PLANS: tuple[Samples, ...] = (((8, 12), (4, 6), (2, 4)), ((4, 12), (2, 8)))
MIN_DOCUMENTS = 2  # Documents for each topic that the first sample has, at least
MIN_TOKENS = 900  # Tokens for each topic that the first sample has, at least
# Share of the planned iterations that sweep samples, at most: topics converge over all documents
MAX_SHARE = 1 / 3


@dataclass(frozen=True)
class Growth:
    """Stages of a fit, each over a larger sample of the documents than the one before."""

    # First iteration of each stage, 0 for the first, and the n of its sample: one document in n. The last stage has all
    # documents.
    stages: tuple[tuple[int, int], ...]

    @staticmethod
    def of(samples: Samples) -> Growth:
        """Return the stages of samples, each with its number of sweeps, and all documents from then on."""
        stages, first = [], 0
        for every, count in samples:
            stages.append((first, every))
            # The first stage has the start too, which is iteration 0.
            first = max(first, 1) + count
        return Growth((*stages, (first, 1)))

    @staticmethod
    def from_record(record: Sequence[Sequence[int]] | None) -> Growth | None:
        """Return the stages that `run.json` has; None where it has none."""
        return None if record is None else Growth(tuple((first, every) for first, every in record))

    def record(self) -> list[list[int]]:
        """Return the stages as a run records them."""
        return [list(stage) for stage in self.stages]

    @property
    def complete_from(self) -> int:
        """First iteration over all documents."""
        return self.stages[-1][0]

    def every(self, iteration: int) -> int:
        """Return n if an iteration sweeps one document in n."""
        return next(every for first, every in reversed(self.stages) if first <= max(iteration, 0))

    def sample(self, stream: Stream, iteration: int, number: int = 0) -> DocumentSample | None:
        """Return the sample of documents that a round of sweeps visits."""
        every = self.every(iteration)
        before = every if number else self.every(iteration - 1)
        return None if every == before == 1 else DocumentSample(stream.at(purpose="grow"), every, before)


def planned_growth(
    family: str,
    config: FamilyOptions,
    grow: Literal["auto", "always", "never"],
    *,
    documents: int,
    tokens: int,
    complete_by: int,
    stochastic: bool = False,
    warm: bool = False,
    started: bool = False,
) -> Growth | None:
    """Return the stages of a new fit.

    `complete_by` is the first iteration whose state is saved as a model; `started` a fit that begins from proportions
    that all documents are to have.
    """
    if grow == "never":
        return None
    plans = [Growth.of(samples) for samples in PLANS]
    fitting = [plan for plan in plans if plan.complete_from - 1 <= MAX_SHARE * complete_by]
    fault = ""
    fitted = make_family(family, config)
    if not (isinstance(fitted, Growing) and fitted.can_grow()):
        fault = f"family '{family}' sweeps all documents under these options"
    elif stochastic:
        fault = "the stochastic schedule sweeps minibatches"
    elif started:
        fault = "the start gives all documents their topics"
    elif warm:
        fault = "a warm start has topics already"
    elif not fitting:
        least = math.ceil((min(plan.complete_from for plan in plans) - 1) / MAX_SHARE)
        fault = f"expected at least {least} iterations before the first saved state, found {complete_by}"
    if fault:
        if grow == "always":
            raise OptionError(f"'always' does not apply: {fault}", "grow")
        return None
    topics = max(int(config.model_dump().get("topics") or 1), 1)
    size = min(documents / (topics * MIN_DOCUMENTS), tokens / (topics * MIN_TOKENS))
    for plan in fitting:
        if plan.every(0) <= size:
            return plan
    # The last plan begins with the largest sample.
    return fitting[-1] if grow == "always" else None


def recorded_sample(record: JsonObject, iteration: int) -> DocumentSample | None:
    """Return the sample of documents that a checkpoint counts, from the record of its run; None for all documents."""
    # A consensus begins from members that have swept all documents.
    growth = None if record.get("combine") == CONSENSUS else Growth.from_record(record.get("growth"))
    every = 1 if growth is None else growth.every(iteration)
    return None if growth is None or every == 1 else growth.sample(Stream(record["seed"]), iteration)


def tokens_of_sample(corpus: Corpus, sample: DocumentSample | None) -> npt.NDArray[np.int64]:
    """Return the tokens of each word of the vocabulary in a sample or in all documents, shape (words,)."""
    if sample is None:
        return corpus.vocabulary.tokens
    tokens = np.zeros(corpus.manifest.vocabulary.words, dtype=np.int64)
    for reference in corpus.references:
        shard = sample.of(reference.load())
        np.add.at(tokens, shard.words[shard.position], shard.counts)
    return tokens
