"""Estimate of a fit's memory, disk, traffic and time before it runs."""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.plan import Exchange, Place, Plan, Scratch, free_bytes, local_place
from collapsium.pipeline.engine.setup.inputs import labels_of
from collapsium.pipeline.engine.setup.limits import FitOptions
from collapsium.pipeline.engine.setup.request import Request, new_request
from collapsium.pipeline.engine.state import GROUP_SHARDS, block_bounds, most_from_elsewhere, waiting_deltas
from collapsium.pipeline.executors.schedulers import LOCAL_SCHEDULERS, ExecutorOptions, LinkOptions, check_scheduler
from collapsium.pipeline.models.registry import load_family, make_family, make_options
from collapsium.pipeline.options import keywords, option_names
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import Manifest
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import MismatchError, OptionError
from collapsium.storage.runs.run import Run
from collapsium.storage.units import parse_rate
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.families.family import (
    FILE_START,
    QUICK_CLUSTERS_START,
    Footprint,
    IntegratesProportions,
    Summary,
)
from collapsium.workers.initialisation import CLUSTERS, QUICK_CLUSTERS, ClusterSettings
from collapsium.workers.shard_loading import NEARLY_ALL

# Bytes of arrays of a start, as they are allocated
# A pair of words of the vectors: its co-occurrences in double precision, and their information in single
WORD_PAIR = 12
DIRECTION = 5 * 8  # A number of an iterated direction of word vectors, with products and copies
SUMMED_DIRECTION = 4  # A number of the products of directions, summed over a chain of shards
BLOCK_SHARE = 3 * 4  # A document's share of a cluster of words, and its bytes in memory
COORDINATE = 2 * 4  # A number of a document's vector, and its copy while a sample is drawn
WORD_SHARE = 24  # A word in a topic of a mixture: its sums, probability and logarithm
DRAWN_SHARE = 20  # A topic of a document whose proportions are drawn or computed
BEGUN_SHARE = 24  # A topic of a document, and of a word, while its shard's first state is made
EVEN_SHARE = 16  # A topic of a document, where active topics are selected, and topics are even over the words
HELD_SHARE = 8  # A topic of a document, and its proportion, from the end of a start to the first sweep
# Bytes that a fit takes besides its family's state, measured on small corpora
# A process with its libraries and kernels, by its use
PROCESS_BYTES = {"threads": 282e6, "serial": 282e6, "worker": 258e6, "driver": 297e6}
# Bytes that the system's allocator retains of freed rows of held-out words, as a share of them
SCORE_OVERHEAD = 1.0
# Size from which the system's allocator returns an array as soon as it is freed (mallopt(3), M_MMAP_THRESHOLD)
RETAINED_ARRAY = 32e6
PROPORTION_COPIES = 2  # Copies of a shard's proportions while they are summarised
READ_PAIR = 60  # A pair while its shard is read from Parquet
READ_VALUE = 24  # A value of a vector while its shard is read: its file, the decoded array, and a copy
VOCABULARY_WORD = 190  # A word of the vocabulary, as text, on the driver
PAIR = 8  # A pair of a shard in memory
DOCUMENT = 8  # A document of a shard in memory
# Copies of a shard's proportions, or a block's counts, while topics of models are compared: the mean of the models
# and one of them, in double precision, their rounded values, and the model's as they are read
JOINING_COPIES = 6
# Uses of memory that a plan leaves out where they take none
OCCASIONAL = ("reading a shard", "joining the members")
# Seconds of a core of each machine for a byte of the counts of all words: encoding, decoding and adding in an exchange
# among eight, without TLS. Measured on the page "Scale"
CODING_BYTE = 4.9e-9
# Bytes of local states from which sweeps in threads free each one as soon as they have made the next one. An interrupt
# then waits for the end of the iteration; below, two copies are cheap, and an interrupt stops at once.
REPLACED_BYTES = 1 << 28
# Sweeps that keep a worker busy; as many members of an ensemble are fitted at a time as provide them
SWEEPS_PER_WORKER = 2


class StartBytes(NamedTuple):
    """Bytes of a start, by the time when they are taken."""

    computed: float = 0.0  # In a worker process, before the first sweep
    begun: float = 0.0  # In a worker process, in the first sweep, beside what all sweeps take
    held: float = 0.0  # In all worker processes together, from the end of the start to the first sweep


def sample_shards(corpus: Corpus) -> tuple[int, float, npt.NDArray[np.int64] | None]:
    """Estimate from two shards the numbers that the manifest does not contain.

    Returns words: Words of the largest shard, extrapolated from the first by the number of pairs; growth: Exponent g: n
    shards together have n^g times the words of one; lengths: Pairs of each document of the first shard
    """
    manifest = corpus.manifest
    largest = max((row.pairs for row in manifest.shards), default=0)
    if not largest:
        return manifest.vocabulary.words, 0.0, None
    width = manifest.vocabulary.words
    if manifest.vectors is not None:
        # Each vector has all columns.
        return width, 0.0, np.full(manifest.shards[0].documents, width, dtype=np.int64)
    filled = [reference for reference in corpus.references if reference.record.pairs]
    shard, growth = cast(Shard, filled[0].load()), 0.0
    if len(filled) > 1 and shard.words.size < NEARLY_ALL * manifest.vocabulary.words:
        union = np.union1d(shard.words, filled[len(filled) // 2].load().words).size
        growth = math.log2(max(union / max(shard.words.size, 1), 1.0))
    words = shard.words.size * largest / filled[0].record.pairs
    return int(min(words, manifest.vocabulary.words)), growth, np.diff(shard.offsets)


@dataclass(frozen=True)
class HeldOut:
    """Pairs and documents of the held-out tokens, and the words of one of their shards."""

    pairs: int = 0
    documents: int = 0
    words: int = 0


def held_out(corpus: Corpus | None) -> HeldOut:
    """Return the sizes of the held-out tokens; all are 0 without a corpus."""
    if corpus is None:
        return HeldOut()
    filled = [reference for reference in corpus.references if reference.record.pairs]
    words = cast(Shard, filled[0].load()).words.size if filled and corpus.manifest.vectors is None else 0
    return HeldOut(corpus.manifest.pairs, corpus.manifest.documents, words)


class MeasuredCosts(NamedTuple):
    """Seconds of a thread for each training token, in the later half of a run's iterations."""

    sweeping: float
    scoring: float


def measured_costs(url: str | os.PathLike[str], family: str, topics: object) -> MeasuredCosts:
    """Return the costs of sweeps and scores of a run with the same family and number of topics."""
    run = Run(url)
    record = run.record()
    expected = _model_name(family, topics)
    measured = _model_name(record["family"], record["options"].get("topics"))
    if measured != expected:
        raise MismatchError(
            f"{run.folder.url}: expected a run of {expected}, whose sweeps cost as much, found {measured}"
        )
    workers, rows = 1, []
    for event in run.events():
        if event["event"] == "start" and "planned" in event:
            place = event["planned"]["place"]
            workers = place["processes"] * place["threads"]
        if event["event"] == "iteration" and event.get("tokens") and event.get("sweeps"):
            score = event["seconds"].get("score", 0.0) * workers
            rows.append((event["tokens"], event["sweeps"]["total"], score))
    if not rows:
        raise OptionError(
            f"{run.folder.url}: expected a run with iterations of the batch schedule, found none", "measured"
        )
    tokens, sweeping, scoring = np.sum(rows[len(rows) // 2 :], axis=0)
    return MeasuredCosts(float(sweeping / tokens), float(scoring / tokens))


def _model_name(family: str, topics: object) -> str:
    """Return the name of a family with its number of topics, if it has one."""
    return family if topics is None else f"{family} with {topics} topics"


@keywords(settings=FitOptions, execution=ExecutorOptions, exchange=LinkOptions)
def estimate(
    corpus: str | os.PathLike[str],
    *,
    family: str,
    settings: FitOptions,
    execution: ExecutorOptions,
    exchange: LinkOptions,
    **options: object,
) -> Plan:
    """Estimate the memory, disk, traffic and time of a fit, without running it.

    It accepts the arguments of `fit`, some of which do not affect resources.

    Parameters
    ----------
    corpus : str or path-like
        Folder of the corpus.
    family : str
        The model family.
    settings : FitOptions
        Options of the fit.
    execution : ExecutorOptions
        Where and how the tasks run; of a cluster on other machines, `workers` are its processes.
    exchange : LinkOptions
        Speed of the machines' links, and a run that measured what sweeps cost.
    **options
        The family's options.

    Returns
    -------
    Plan
        The estimate.

    Raises
    ------
    OptionError
        `link` is stated for workers on one machine, or `measured` without `link`.
    MismatchError
        The run `measured` is of another family, or has another number of topics.
    """
    settings, options = settings.with_preset(family, options)
    config = make_options(family, options, option_names(estimate))
    check_scheduler(execution.scheduler, execution.workers)
    request = new_request(Corpus(corpus), family, config, settings)
    place = local_place(execution.scheduler, execution.workers, execution.memory, execution.scratch)
    planned = plan(request, place)
    if exchange.link is None:
        if exchange.measured is not None:
            raise OptionError("requires `link`, the speed of the machines' links", "measured")
        return planned
    link = parse_rate(exchange.link)
    if place.scheduler in LOCAL_SCHEDULERS:
        raise OptionError(f"applies to workers on several machines, found `scheduler` {place.scheduler}", "link")
    topics = config.model_dump().get("topics")
    costs = None if exchange.measured is None else measured_costs(exchange.measured, family, topics)
    return replace(planned, exchange=_exchange(_sizes(request, place), link, costs, request.limits.sweeps_per_exchange))


class Models(NamedTuple):
    """The models of a run."""

    restarts: int = 0  # Members of an ensemble; 0 for a fit by itself
    samples: int = 0  # States that each fit saves as models
    consensus: bool = False  # Whether they are joined by one more fit


def plan(request: Request, place: Place) -> Plan:
    """Estimate the resources of a requested fit in a place."""
    sizes = _sizes(request, place)
    sweeps = 1 if place.scheduler == "serial" else SWEEPS_PER_WORKER * place.processes * place.threads
    max_members = min(max(sizes.models.restarts, 1), -(-sweeps // max(len(sizes.manifest.shards), 1)))
    for members in range(max_members, 0, -1):
        in_memory = _plan(sizes, members, spilled=0)
        if in_memory.needed <= place.usable:
            return in_memory
    shards = len(sizes.manifest.shards)
    # The fewest shards in scratch files with which the others fit; all of them where nothing fits.
    spilled = bisect_left(range(1, shards), -place.usable, key=lambda count: -_plan(sizes, 1, spilled=count).needed)
    return _plan(sizes, 1, spilled=spilled + 1)


def _sizes(request: Request, place: Place) -> FitSizes:
    """Return the sizes of a requested fit in a place."""
    corpus, family, config = request.corpus, request.family, request.config
    models = Models(request.restarts, request.limits.samples, request.has_consensus)
    manifest, restarts = corpus.manifest, max(models.restarts, 1)
    sizes = manifest.documents, manifest.vocabulary.words, manifest.tokens, manifest.pairs
    words, growth, lengths = sample_shards(corpus)
    labels = labels_of(corpus, family, config)
    summary = Summary(
        *sizes,
        shards=len(manifest.shards),
        stochastic=request.stochastic,
        lengths=lengths,
        labels=labels,
        most_tokens=int(corpus.vocabulary.tokens.max(initial=0)),
    )
    footprint = make_family(family, config).footprint(summary)
    words = summary.words if words >= NEARLY_ALL * summary.words else words
    matched = restarts * max(models.samples, 1) if issubclass(load_family(family), IntegratesProportions) else 1
    held, start = held_out(request.heldout), request.start_kind
    return FitSizes(manifest, footprint, place, words, growth, held, models, start, matched, request.stochastic)


@dataclass(frozen=True)
class FitSizes:
    """Sizes of a fit, from which its memory follows."""

    manifest: Manifest  # The corpus
    footprint: Footprint  # The family's state
    place: Place  # Processes and threads
    words: int  # Words of the largest shard
    growth: float  # Exponent by which the words of several shards grow
    held: HeldOut  # The held-out tokens
    models: Models  # The models of the run
    start: str  # Kind of a start, empty for a random one
    matched: int  # Models whose topics are matched; 1 where there is nothing to match
    stochastic: bool = False  # Whether sweeps retain no local states

    @property
    def processes(self) -> int:
        """Worker processes."""
        return max(self.place.processes, 1)

    @property
    def vocabulary(self) -> int:
        """Words of the vocabulary."""
        return self.manifest.vocabulary.words

    @property
    def topics(self) -> float:
        """Number of topics, as a document's proportions have 8 bytes for each."""
        return self.footprint.proportions / 8.0

    @property
    def shard_documents(self) -> int:
        """Documents of the largest shard."""
        return max((row.documents for row in self.manifest.shards), default=0)

    @property
    def blocks(self) -> int:
        """Blocks of the vocabulary."""
        return len(block_bounds(self.vocabulary, self.footprint)) - 1

    @property
    def local(self) -> float:
        """Bytes of all local states."""
        return self.footprint.pair * self.manifest.pairs + self.footprint.document * self.manifest.documents

    @property
    def replaced(self) -> bool:
        """True if each local state is freed as soon as its sweep has made the next one; threads lose none of them."""
        return self.place.scheduler == "threads" and not self.stochastic and self.local >= REPLACED_BYTES

    def copies(self, tasks: float) -> float:
        """Return the copies of the local states that exist at a time, with so many tasks of a fit at a time."""
        largest = max((row.pairs for row in self.manifest.shards), default=0)
        return 1.0 + min(tasks * largest / max(self.manifest.pairs, 1), 1.0) if self.replaced else 2.0

    @property
    def documents(self) -> float:
        """Bytes of all documents, with their held-out tokens."""
        pairs, documents = self.manifest.pairs + self.held.pairs, self.manifest.documents + self.held.documents
        return float(PAIR * pairs + DOCUMENT * documents)

    def resident_share(self, spilled: int) -> float:
        """Return the share of all pairs whose shards stay in memory if `spilled` shards are in scratch files."""
        scratch = Scratch("", spilled, max(len(self.manifest.shards), 1))
        resident = sum(row.pairs for number, row in enumerate(self.manifest.shards) if scratch.of(number) is None)
        return resident / max(self.manifest.pairs, 1)

    @property
    def is_alone(self) -> bool:
        """True if the driver is the only process."""
        return self.place.scheduler in ("threads", "serial")

    @property
    def block_share(self) -> float:
        """The share of the blocks that one process holds at most."""
        return -(-self.blocks // self.processes) / self.blocks

    @property
    def exchanges(self) -> bool:
        """True if worker processes exchange encoded changes, a part of the vocabulary each."""
        return self.processes > 1 and self.footprint.change_share is not None

    @property
    def sent(self) -> float:
        """Bytes that leave the process that sends most in an iteration.

        In an exchange each process sends the changes of all other parts of the vocabulary to their owners, and the sum
        of its part to all others. Otherwise the process with most blocks sends their rows to all others, for sweeps and
        for scores.
        """
        footprint, processes = self.footprint, self.processes
        if footprint.change_share is None:
            uses = 1 + (self.held.pairs > 0)
            rows = (processes - 1) * uses * self.block_share * footprint.shown * self.vocabulary
            return rows + (footprint.delta * self.words if processes > 1 else 0.0)
        process_shards = -(-len(self.manifest.shards) // processes)
        words: float = min(self.words * float(process_shards) ** self.growth, self.vocabulary)
        changes = footprint.change_share * words
        sums = footprint.sum_share * self.vocabulary
        return (processes - 1) / processes * footprint.delta * (changes + sums)

    def memory(self, members: int, spilled: int) -> dict[str, float]:
        """Return the bytes of a worker process at its peak, by use, with `members` members side by side.

        Between their sweeps, `spilled` shards are in scratch files.
        """
        footprint, processes, words, blocks = self.footprint, self.processes, self.words, self.blocks
        process_shards = -(-len(self.manifest.shards) // processes)
        tasks = min(self.place.threads, max(process_shards, 1) * members)
        largest = max((row.pairs for row in self.manifest.shards), default=0)
        rows, shown = footprint.rows * self.vocabulary, footprint.shown * self.vocabulary
        block_share = self.block_share
        # The sum of a group, the deltas to be added to it, the sum being made, and the sums of the groups before.
        groups, alone = max(process_shards / GROUP_SHARDS, 1), waiting_deltas(self.vocabulary, footprint)
        waiting = max(alone, most_from_elsewhere(len(self.manifest.shards), processes))
        deltas = min(process_shards + 1, waiting + tasks + 1 + math.ceil(math.log2(groups)))
        changes = members * deltas * footprint.delta * words
        reading = READ_PAIR if self.manifest.vectors is None else READ_VALUE
        on_disk, resident = spilled > 0, self.resident_share(spilled)
        places = {False} if not spilled else {True} if not resident else {False, True}
        sweeping = tasks * max(self._swept(largest, on_disk=place) for place in places)
        first = resident * self._first_pair(largest) * self.manifest.pairs
        counts = members * (2 * rows * block_share + shown * (1 - block_share if processes > 1 else 0))
        if self.exchanges:
            # All rows before and after a turn; and the sum of the changes of all words, beside the shards' changes.
            counts = members * 2 * rows
            changes = members * footprint.delta * (self.vocabulary + tasks * words)
        if on_disk:
            sweeping += buffers.pool.settings.idle_bytes
        # A shard is read before the first sweep, when the memory of sweeps is free.
        read = max(reading * largest - counts - changes - sweeping, 0.0) if on_disk else 0.0
        local = resident * self.local
        swept, scored, saved = changes + sweeping, footprint.shown * self.held.words, self._largest(1, 0)
        memory = {
            "interpreter, libraries and kernels": PROCESS_BYTES.get(self.place.scheduler, PROCESS_BYTES["worker"]),
            "documents": resident * self.documents / processes,
            "reading a shard": read,
            "counts by words and topics": counts,
            "changes waiting to be added": changes,
            "sweeping": sweeping,
            "scoring held-out tokens": _after(swept, tasks * (1 + SCORE_OVERHEAD) * scored, scored),
            "saving the model": _after(swept, tasks * PROPORTION_COPIES * saved, saved),
            "local states": members * (self.copies(tasks / members) * local + first) / processes,
        }
        started, task_local = self.started(tasks), (1 if self.replaced else 2) * local / processes
        # The memory of local states is fetched as shards are read, so that a start is computed beside it, but for
        # the memory of other members that begin at the same time. The first local states replace sweeps.
        computed = max(started.computed, members * started.computed - (members - 1) * task_local)
        begun = members * (started.begun + started.held / processes) + tasks * self._copied()
        free = members * first / processes
        memory["the start"] = max(computed - free - swept, begun - free - sweeping, 0.0)
        if self.exchanges:
            # What has come, and the changes of a part of the vocabulary while they are encoded.
            memory["moving to and from others"] = self.sent + footprint.delta * self.vocabulary / processes
        elif processes > 1:
            # Rows of a block and a delta.
            memory["moving to and from others"] = shown / blocks + footprint.delta * words
        if self.is_alone:
            memory["the vocabulary's words"] = float(VOCABULARY_WORD * self.vocabulary)
        return memory

    def _first_pair(self, largest: int) -> float:
        """Return the bytes by which a pair of the first local states adds to the states before and after a sweep."""
        first, pair = self.footprint.first_pair, self.footprint.pair
        if first >= pair:
            return first - pair
        # What the system's allocator retains of small arrays is of no use to larger ones; the pool retains nothing.
        return first if first * largest < buffers.pool.settings.min_bytes else 0.0

    def _swept(self, largest: int, *, on_disk: bool) -> float:
        """Return the bytes that the sweep of a shard takes, besides its delta and its local states."""
        footprint, words = self.footprint, self.words
        copied = self._copied()
        if on_disk:
            return footprint.swept * words + copied + footprint.chunk + PAIR * largest
        # Where active topics are selected anew, responsibilities are carried over before they are swept.
        carried = min(footprint.carried, self.local / max(len(self.manifest.shards), 1))
        return (footprint.swept + footprint.selected) * words + copied + carried

    def _copied(self) -> float:
        """Return the bytes of a shard's rows, unless these are the rows of the only block."""
        all_words = self.words >= NEARLY_ALL * self.vocabulary and self.blocks == 1
        return 0.0 if all_words else self.footprint.shown * self.words

    def started(self, tasks: int) -> StartBytes:
        """Return the bytes of the initialisation, with `tasks` tasks at a time in a process."""
        kind, documents, topics = self.start, self.manifest.documents, self.topics
        if not kind:
            return StartBytes()
        cells, shard_documents = tasks * topics, self.shard_documents
        if kind == QUICK_CLUSTERS_START:
            held = self._held(QUICK_CLUSTERS.begun_by(self.manifest.pairs, documents))
            return StartBytes(self._quick_clusters(tasks), cells * EVEN_SHARE * shard_documents, held)
        begun = cells * BEGUN_SHARE * (shard_documents + self.words)
        if kind == FILE_START:
            return StartBytes(0.0, begun)
        vectors = CLUSTERS.vectors
        words = min(self.vocabulary, vectors.max_words)
        if kind != "clusters":
            return StartBytes(tasks * (WORD_SHARE * words + DRAWN_SHARE * shard_documents) * topics, begun)
        spread = WORD_PAIR * words**2 + COORDINATE * vectors.dimensions * documents
        directions = DIRECTION * words * (vectors.dimensions + vectors.oversampling)
        return StartBytes(spread / self.processes + directions, begun, self._held(CLUSTERS))

    def _quick_clusters(self, tasks: int) -> float:
        """Return the bytes of coordinates of words, of documents if they are clustered, and of a block's shares."""
        documents, topics = self.manifest.documents, self.topics
        words = min(self.vocabulary, QUICK_CLUSTERS.max_words)
        dimensions = min(QUICK_CLUSTERS.dimensions, math.isqrt(words))
        numbers = words * (dimensions + QUICK_CLUSTERS.oversampling)
        clustered = QUICK_CLUSTERS.of_documents(self.manifest.pairs, documents, words, topics) * documents
        vectors = COORDINATE * dimensions * clustered
        every = max(int(self.manifest.tokens / QUICK_CLUSTERS.sample_tokens), 1)
        chains = min(QUICK_CLUSTERS.chains, -(-len(self.manifest.shards) // every))
        # Sums of chains, those that tasks make anew, and the directions that they multiply; later the directions alone.
        sums = SUMMED_DIRECTION * numbers * (chains / self.processes + tasks + 2)
        block = min(QUICK_CLUSTERS.documents.block, self.shard_documents)
        shares = tasks * BLOCK_SHARE * block * topics
        return max(sums, DIRECTION * numbers) + vectors / self.processes + shares

    def _held(self, settings: ClusterSettings) -> float:
        """Return the bytes of the documents' proportions."""
        return HELD_SHARE * min(self.topics, settings.max_shares) * self.manifest.documents

    def matching(self, memory: dict[str, float]) -> tuple[int, float]:
        """Return the tasks of a process that compare topics of several models at a time, and their bytes.

        They come when the states of the models are gone, and as many are made at a time as fit in their memory, but one
        at least.
        """
        if self.matched <= 1:
            return 1, 0.0
        freed = sum(memory[name] for name in ("counts by words and topics", "sweeping", "local states"))
        task_bytes = self._largest(JOINING_COPIES, -(-self.vocabulary // self.blocks))
        tasks = int(min(max(freed / max(task_bytes, 1.0), 1.0), self.place.threads))
        return tasks, max(tasks * task_bytes - freed, 0.0)

    def inferring(self) -> float:
        """Return the bytes of a process that folds new documents into all models of a mean.

        It has the rows of each; and for each thread the rows of a shard's words and the documents' proportions of each,
        and what sweeping takes.
        """
        if self.matched <= 1 or self.models.consensus:
            return 0.0
        process = PROCESS_BYTES.get(self.place.scheduler, PROCESS_BYTES["worker"])
        shard = self.matched * (self.footprint.shown * self.words + self._largest(1, 0))
        tasks = self.place.threads * (shard + self.footprint.swept * self.words)
        rows = self.matched * self.footprint.shown * self.vocabulary
        return process + VOCABULARY_WORD * self.vocabulary + rows + tasks

    def _largest(self, copies: int, words: int) -> float:
        """Return the bytes of some copies of the proportions of the largest shard, or of as many rows of words."""
        return copies * self.footprint.proportions * max(self.shard_documents, words)


def _after(freed: float, amount: float, array: float) -> float:
    """Return the bytes that a later step adds to the peak, from its total and the bytes of each of its arrays.

    Large arrays reuse memory that was freed before; small ones do not, because the system's allocator retains it.
    """
    return amount if array < RETAINED_ARRAY else max(amount - freed, 0.0)


def _plan(sizes: FitSizes, members: int, spilled: int) -> Plan:
    """Return the plan for some members side by side, with some shards in scratch files."""
    fits, samples, joining = max(sizes.models.restarts, 1), sizes.models.samples, sizes.models.consensus
    place, footprint, processes = sizes.place, sizes.footprint, sizes.processes
    rows, shown = footprint.rows * sizes.vocabulary, footprint.shown * sizes.vocabulary
    remote = place.scheduler not in ("threads", "serial", "local")
    memory = sizes.memory(members, spilled)
    matching, memory["joining the members"] = sizes.matching(memory)
    on_disk = 1.0 - sizes.resident_share(spilled)
    return Plan(
        place=place,
        memory={name: value for name, value in memory.items() if value or name not in OCCASIONAL},
        driver=0.0 if sizes.is_alone else PROCESS_BYTES["driver"] + VOCABULARY_WORD * sizes.vocabulary,
        scratch=on_disk * (sizes.copies(place.threads) * sizes.local + sizes.documents),
        run=(fits + joining) * 2 * (sizes.local + rows) + (fits * (1 + samples) + joining) * rows / 2,
        moved=members * (processes * sizes.sent if sizes.exchanges else _summed_over_tree(sizes)),
        moved_scoring=0.0 if sizes.exchanges else members * (processes - 1) * shown,
        members=members,
        matching=matching * processes,
        inferring=sizes.inferring(),
        free=None if remote else free_bytes(place.scratch),
        run_free=None if place.run is None else free_bytes(place.run),
        shards=len(sizes.manifest.shards),
        spilled=spilled,
        replaced=sizes.replaced,
    )


def _summed_over_tree(sizes: FitSizes) -> float:
    """Return the bytes that an iteration moves without an exchange: rows to the sweeps, and sums of deltas.

    The sums are followed over the tree of `loop._Sums`; a sum grows with the words of its shards.
    """
    footprint, processes, vocabulary, blocks = sizes.footprint, sizes.processes, sizes.vocabulary, sizes.blocks
    shards, moved = len(sizes.manifest.shards), 0.0

    def add(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        # Each is (process, shards summed); the sum is made in the process of the right one.
        nonlocal moved
        moved += sent(left[1]) if left[0] != right[0] else 0.0
        return right[0], left[1] + right[1]

    def sent(count: int) -> float:
        return float(footprint.delta * min(sizes.words * count**sizes.growth, vocabulary))

    tree: list[tuple[int, int]] = []
    group: tuple[int, int] | None = None
    for number in range(shards):
        delta = (number * processes // shards, 1)
        group = delta if group is None else add(group, delta)
        if (number + 1) % GROUP_SHARDS == 0:
            while tree and tree[-1][1] == group[1]:
                group = add(tree.pop(), group)
            tree.append(group)
            group = None
    # What remains is folded in, in the process of each block.
    for process, count in [*tree, *([group] if group else [])]:
        away = sum(((block + 1) * processes - 1) // blocks != process for block in range(blocks)) / blocks
        moved += away * sent(count)
    return moved + (processes - 1) * footprint.shown * vocabulary


def _exchange(sizes: FitSizes, link: float, costs: MeasuredCosts | None, local_sweeps: int) -> Exchange:
    """Return the exchange of an iteration between machines, and the time of the iteration by measured costs."""
    machines, shards = sizes.processes, len(sizes.manifest.shards)
    coding = CODING_BYTE * sizes.footprint.delta * sizes.vocabulary / sizes.place.threads if sizes.exchanges else 0.0
    exchange = Exchange(machines, link, sizes.sent, coding, local_sweeps)
    if costs is None:
        return exchange
    # The worker with the most shards is waited for.
    slots = machines * sizes.place.threads
    tokens = sizes.manifest.tokens * -(-shards // slots) / shards
    scoring = costs.scoring * tokens if sizes.held.pairs else None
    return replace(exchange, sweeping=costs.sweeping * tokens, scoring=scoring)
