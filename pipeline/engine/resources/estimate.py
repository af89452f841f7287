"""What a fit will take: memory of each process, disk, and bytes that move in an iteration, before anything runs."""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.partition import GROUP, _blocks
from collapsium.pipeline.engine.resources.place import Place, place_of
from collapsium.pipeline.engine.setup.inputs import labels_of
from collapsium.pipeline.engine.setup.limits import EstimateOptions
from collapsium.pipeline.executors.open import check_scheduler
from collapsium.pipeline.executors.options import MemoryOptions, SchedulerOptions
from collapsium.pipeline.families.base import FamilyOptions, Footprint, Summary
from collapsium.pipeline.families.registry import load_family, make_options, require_corpus, require_schedule
from collapsium.pipeline.options import keywords, option_names
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import Manifest
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import CapacityError, OptionError
from collapsium.storage.short_repr import ShortRepr
from collapsium.storage.units import size
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.shard_loading import NEARLY_ALL

INTERPRETER = {"threads": 300e6, "serial": 300e6, "worker": 305e6, "driver": 285e6}  # measured: libraries and kernels
READING = 60  # bytes a pair while a shard is read from Parquet
READING_DENSE = 24  # and a value: its file, what comes out of it, and a copy
WORD = 190  # bytes a word of the vocabulary, as text, on the driver
SHARD_PAIR, SHARD_DOCUMENT = 8, 8  # bytes at rest
BUSY = 2  # sweeps for each worker that shall be under way, where members of an ensemble are side by side


@dataclass(frozen=True, repr=False)
class Plan(ShortRepr):
    """What a fit takes.

    Attributes
    ----------
    place : Place
        Where it runs.
    memory : dict of str to float
        Bytes of each worker process at its peak, by what they are for.
    driver : float
        Bytes of the driver at its peak, where it is a process of its own; else 0.
    scratch : float
        Bytes on the local disks of all machines together; 0 where local states stay in memory.
    run : float
        Bytes of the run's folder: checkpoints and the model.
    moved, moved_scoring : float
        Bytes that move between worker processes in an iteration, and more where held-out tokens are scored after it.
    free : float or None
        Bytes that are free where the scratch files would lie; None where that is another machine's.
    run_free : float or None
        Bytes that are free where the run would lie; None where that is not known.
    members : int
        How many members of an ensemble are worked on side by side; 1 for a fit by itself.
    """

    place: Place
    memory: dict[str, float] = field(default_factory=dict)
    driver: float = 0.0
    scratch: float = 0.0
    run: float = 0.0
    moved: float = 0.0
    moved_scoring: float = 0.0
    free: float | None = None
    run_free: float | None = None
    members: int = 1

    @property
    def needed(self) -> float:
        """Bytes of each worker process at its peak."""
        return sum(self.memory.values())

    @property
    def on_disk(self) -> bool:
        """Whether local states lie on disk."""
        return self.scratch > 0

    def problem(self) -> str:
        """Say what does not fit; empty if all does."""
        if self.needed > self.place.memory:
            return (
                f"a worker process needs {size(self.needed)} of memory and may hold {size(self.place.memory)}; give it "
                "more (`memory`), or take fewer topics, a smaller vocabulary or smaller shards"
            )
        if self.free is not None and self.scratch > self.free:
            return (
                f"local states need {size(self.scratch)} of disk, and {size(self.free)} are free in "
                f"{self.place.scratch}; name another folder (`scratch`), or give more memory (`memory`)"
            )
        if self.run_free is not None and self.run > self.run_free:
            return (
                f"the run needs {size(self.run)} of disk for two checkpoints and the model, and {size(self.run_free)} "
                f"are free in {self.place.run}; write it elsewhere"
            )
        return ""

    def table(self) -> str:
        """Return the plan as lines of text."""
        place = self.place
        where = f"{place.scheduler}: {place.processes} worker process(es) of {place.threads} thread(s)"
        lines = [f"{where}, {self.members} members side by side" if self.members > 1 else where, ""]
        rows = [(f"  {name}", value) for name, value in self.memory.items()]
        lines += ["memory of each worker process, at its peak"] + [
            f"{name:<58}{size(value):>10}" for name, value in rows
        ]
        limit = "  in all" if math.isinf(place.memory) else f"  in all, of {size(place.memory)}"
        lines.append(f"{limit:<58}{size(self.needed):>10}")
        lines.append(f"{'memory of all processes':<58}{size(self.needed * place.processes + self.driver):>10}")
        if self.driver:
            lines.append(f"{'  of which the driver':<58}{size(self.driver):>10}")
        lines.append(f"{'disk for local states (scratch)':<58}{size(self.scratch):>10}")
        lines.append(f"{'disk for the run: two checkpoints and the model':<58}{size(self.run):>10}")
        lines.append(f"{'moved between processes, an iteration':<58}{size(self.moved):>10}")
        if self.moved_scoring:
            lines.append(f"{'  and more if held-out tokens are scored after it':<58}{size(self.moved_scoring):>10}")
        return "\n".join(lines)

    def record(self) -> dict[str, Any]:
        """Return the plan for programs; sizes in bytes, None where there is no limit."""
        whole = {"needed": self.needed, "fits": not self.problem(), "problem": self.problem()}
        plan = asdict(self)
        if math.isinf(self.place.memory):
            plan["place"]["memory"] = None
        return {**plan, **whole}

    def require(self) -> None:
        """Refuse what does not fit.

        Raises
        ------
        CapacityError
            Memory or disk is short; the error holds the table.
        """
        problem = self.problem()
        if problem:
            raise CapacityError(f"this fit does not fit: {problem}\n{self.table()}")


@keywords(options=EstimateOptions, scheduling=SchedulerOptions, memory=MemoryOptions)
def estimate(
    corpus: str | os.PathLike[str],
    *,
    family: str,
    options: EstimateOptions,
    scheduling: SchedulerOptions,
    memory: MemoryOptions,
    **family_options: Any,
) -> Plan:
    """Predict what a fit would take, without running it.

    Parameters
    ----------
    corpus : str or path-like
        Folder of the corpus.
    family : str
        The model family.
    options : EstimateOptions
        What of a fit's options changes what it takes.
    scheduling : SchedulerOptions
        Which executor runs the tasks; of a cluster that runs elsewhere, `workers` are its processes.
    memory : MemoryOptions
        What work may take.
    **family_options
        The family's options.

    Returns
    -------
    Plan
        What the fit takes, and what does not fit.
    """
    config, opened = make_options(family, family_options, option_names(estimate)), Corpus(corpus)
    require_corpus(family, opened)
    opened.require_tokens()
    require_schedule(family, options.schedule)
    check_scheduler(scheduling.scheduler, scheduling.workers)
    place = place_of(scheduling.scheduler, scheduling.workers, memory.memory, memory.scratch)
    more = {"restarts": options.restarts, "samples": options.samples}
    return plan(opened, family, config, place, stochastic=options.schedule == "stochastic", **more)


def plan(
    corpus: Corpus,
    family: str,
    config: FamilyOptions,
    place: Place,
    *,
    stochastic: bool = False,
    restarts: int = 0,
    samples: int = 0,
) -> Plan:
    """Predict what a fit takes in a place.

    Parameters
    ----------
    corpus : Corpus
        What to fit; one of its shards is read, to count the words in it.
    family : str
        The model family.
    config : FamilyOptions
        Its options.
    place : Place
        Where.
    stochastic : bool, optional
        Whether shards are swept in minibatches.
    restarts : int, optional
        Members of an ensemble; 0 for a fit by itself.
    samples : int, optional
        States that are kept as models besides.

    Returns
    -------
    Plan
        With local states in memory if they fit there, else on disk; with as many members side by side as keep all
        workers busy, or as their states fit into memory.

    Raises
    ------
    OptionError
        A number is negative.
    """
    for name, number in (("restarts", restarts), ("samples", samples)):
        if type(number) is not int or number < 0:
            raise OptionError(f"expected a whole number of 0 or more, found {number!r}", name)
    manifest = corpus.manifest
    sizes = manifest.documents, manifest.vocabulary.words, manifest.tokens, manifest.pairs
    words, growth, lengths = _look(corpus)
    labels = labels_of(corpus, family, config)
    summary = Summary(*sizes, shards=len(manifest.shards), stochastic=stochastic, lengths=lengths, labels=labels)
    footprint = load_family(family).footprint(summary, config)
    words = summary.words if words >= NEARLY_ALL * summary.words else words
    given = manifest, footprint, place, words, growth
    models = max(restarts, 1), samples
    busy = 1 if place.scheduler == "serial" else BUSY * place.processes * place.threads
    wanted = min(max(restarts, 1), -(-busy // max(len(manifest.shards), 1)))
    for members in range(wanted, 0, -1):
        inside = _plan(*given, models, members, on_disk=False)
        if inside.needed <= place.memory:
            return inside
    return _plan(*given, models, 1, on_disk=True)


def _look(corpus: Corpus) -> tuple[int, float, npt.NDArray[np.int64] | None]:
    """Look at two shards, to know of what the manifest does not say.

    Returns
    -------
    words : int
        Words of the largest shard, in proportion to what the first has of its pairs.
    growth : float
        Power of their number by which the words of several shards together grow.
    lengths : numpy.ndarray of int64, shape (documents,), or None
        Pairs of each document of the first.
    """
    manifest = corpus.manifest
    largest = max((row.pairs for row in manifest.shards), default=0)
    if not largest:
        return manifest.vocabulary.words, 0.0, None
    width = manifest.vocabulary.words
    if manifest.vectors is not None:  # each has all columns
        return width, 0.0, np.full(manifest.shards[0].documents, width, dtype=np.int64)
    some = [one for one in corpus.references if one.record.pairs]
    shard, growth = cast(Shard, some[0].load()), 0.0
    if len(some) > 1 and shard.words.size < NEARLY_ALL * manifest.vocabulary.words:
        both = np.union1d(shard.words, some[len(some) // 2].load().words).size
        growth = math.log2(max(both / max(shard.words.size, 1), 1.0))
    found = shard.words.size * largest / some[0].record.pairs
    return int(min(found, manifest.vocabulary.words)), growth, np.diff(shard.offsets)


def _plan(
    manifest: Manifest,
    footprint: Footprint,
    place: Place,
    words: int,
    growth: float,
    models: tuple[int, int],
    members: int,
    *,
    on_disk: bool,
) -> Plan:
    shards, processes, vocabulary = len(manifest.shards), max(place.processes, 1), manifest.vocabulary.words
    own = -(-shards // processes)  # shards of a process
    at_a_time = min(place.threads, max(own, 1) * members)
    local = footprint.pair * manifest.pairs + footprint.document * manifest.documents
    held = SHARD_PAIR * manifest.pairs + SHARD_DOCUMENT * manifest.documents
    largest = max((row.pairs for row in manifest.shards), default=0)
    kept, shown = footprint.kept * vocabulary, footprint.shown * vocabulary
    blocks = len(_blocks(vocabulary, footprint))
    mine = -(-blocks // processes) / blocks  # of the blocks, the most that live in one process
    # A group's sum, what waits to be added to it, the sum being made, and the sums of the groups before.
    deltas = min(own, 1 + at_a_time + 1 + math.ceil(math.log2(max(own / GROUP, 1)) if own > GROUP else 0))
    copied = 0 if words >= NEARLY_ALL * vocabulary and blocks == 1 else footprint.shown * words
    working = at_a_time * ((footprint.swept * words + copied) + (footprint.portion if on_disk else 0))
    if on_disk:
        working += at_a_time * SHARD_PAIR * largest + buffers.pool.settings.idle_bytes
    reading = READING if manifest.vectors is None else READING_DENSE
    memory = {
        "interpreter, libraries and kernels": INTERPRETER.get(place.scheduler, INTERPRETER["worker"]),
        "reading a shard" if on_disk else "documents": reading * largest if on_disk else held / processes,
        "counts by words and topics": members * (2 * kept * mine + shown * (1 - mine if processes > 1 else 0)),
        "changes waiting to be added": members * deltas * footprint.delta * words,
        "sweeping": working,
        "local states": 0.0 if on_disk else members * 2 * local / processes,
    }
    if processes > 1:  # what is on its way: rows of a block, and a delta
        memory["moving to and from others"] = shown / blocks + footprint.delta * words
    if on_disk:  # a shard is read before the first sweep
        memory["reading a shard"] = max(memory["reading a shard"] - sum(list(memory.values())[2:5]), 0.0)
    alone = place.scheduler in ("threads", "serial")
    if alone:
        memory["the vocabulary's words"] = float(WORD * vocabulary)
    remote = place.scheduler not in ("threads", "serial", "local")
    return Plan(
        place=place,
        memory=memory,
        driver=0.0 if alone else INTERPRETER["driver"] + WORD * vocabulary,
        scratch=2 * local + held if on_disk else 0.0,
        run=models[0] * (2 * (local + kept) + (1 + models[1]) * footprint.kept * vocabulary / 2),
        moved=members * _moved(manifest, footprint, processes, words, growth, blocks),
        moved_scoring=members * (processes - 1) * shown,
        members=members,
        free=None if remote else _free(place.scratch),
        run_free=None if place.run is None else _free(place.run),
    )


def _moved(manifest: Manifest, footprint: Footprint, processes: int, words: int, growth: float, blocks: int) -> float:
    """Return the bytes that an iteration moves: rows to whoever sweeps with them, and sums of deltas.

    The sums are followed over the tree of `loop._Sums`; what a sum holds grows with the words of its shards.
    """
    shards, vocabulary = len(manifest.shards), manifest.vocabulary.words
    moved: float = 0.0

    def add(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        nonlocal moved  # each is (home, shards summed); the sum is made where the right one is
        moved += sent(left[1]) if left[0] != right[0] else 0.0
        return right[0], left[1] + right[1]

    def sent(count: int) -> float:
        return float(footprint.delta * min(words * count**growth, vocabulary))

    tree: list[tuple[int, int]] = []
    group: tuple[int, int] | None = None
    for number in range(shards):
        one = (number * processes // shards, 1)
        group = one if group is None else add(group, one)
        if (number + 1) % GROUP == 0:
            while tree and tree[-1][1] == group[1]:
                group = add(tree.pop(), group)
            tree.append(group)
            group = None
    for home, count in [*tree, *([group] if group else [])]:  # folded where each block lives
        away = sum(((block + 1) * processes - 1) // blocks != home for block in range(blocks)) / blocks
        moved += away * sent(count)
    return moved + (processes - 1) * footprint.shown * vocabulary


def _free(folder: str) -> float:
    """Return the bytes that are free where a folder is or would be."""
    path = Path(folder).absolute()
    while not path.exists():
        path = path.parent
    return float(shutil.disk_usage(path).free)
