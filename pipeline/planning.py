"""What a fit will take: memory of each process, disk, and bytes that move in an iteration, before anything runs."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from collapsar.pipeline.config import make_config
from collapsar.pipeline.contract import FamilyConfig, Footprint, Summary, load_family
from collapsar.storage.corpus import Corpus
from collapsar.storage.errors import CapacityError, OptionError
from collapsar.storage.manifest import Manifest
from collapsar.workers.tasks import NEARLY_ALL

INTERPRETER = {"threads": 225e6, "serial": 225e6, "worker": 265e6, "driver": 255e6}  # measured: libraries and kernels
READING = 60  # bytes a pair while a shard is read from Parquet
SHARD_PAIR, SHARD_DOCUMENT = 8, 8  # bytes at rest
BLOCK_BYTES = 64_000_000  # of the rows that sweeps see
GROUP = 8  # shards whose deltas are added one after another; above, over a tree
UNITS = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


@dataclass(frozen=True)
class Place:
    """Where a fit would run.

    Attributes
    ----------
    scheduler : str
        As for `fit`.
    processes, threads : int
        Worker processes, and threads in each.
    memory : float
        Bytes that each process may hold.
    scratch : str
        Folder for local states that do not fit.
    """

    scheduler: str
    processes: int
    threads: int
    memory: float
    scratch: str


@dataclass(frozen=True)
class Plan:
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
    moved : float
        Bytes that move between worker processes in an iteration.
    free : float or None
        Bytes that are free where the scratch files would lie; None where that is another machine's.
    """

    place: Place
    memory: dict[str, float] = field(default_factory=dict)
    driver: float = 0.0
    scratch: float = 0.0
    run: float = 0.0
    moved: float = 0.0
    free: float | None = None

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
                "more (--memory), or take fewer topics, a smaller vocabulary or smaller shards"
            )
        if self.free is not None and self.scratch > self.free:
            return (
                f"local states need {size(self.scratch)} of disk, and {size(self.free)} are free in "
                f"{self.place.scratch}; name another folder (--scratch), or give more memory (--memory)"
            )
        return ""

    def table(self) -> str:
        """Return the plan as lines of text."""
        place = self.place
        lines = [f"{place.scheduler}: {place.processes} worker process(es) of {place.threads} thread(s)", ""]
        rows = [(f"  {name}", value) for name, value in self.memory.items()]
        lines += ["memory of each worker process, at its peak"] + [
            f"{name:<58}{size(value):>10}" for name, value in rows
        ]
        lines.append(f"{'  in all, of ' + size(place.memory):<58}{size(self.needed):>10}")
        lines.append(f"{'memory of all processes':<58}{size(self.needed * place.processes + self.driver):>10}")
        if self.driver:
            lines.append(f"{'  of which the driver':<58}{size(self.driver):>10}")
        lines.append(f"{'disk for local states (scratch)':<58}{size(self.scratch):>10}")
        lines.append(f"{'disk for the run: two checkpoints and the model':<58}{size(self.run):>10}")
        lines.append(f"{'moved between processes, an iteration':<58}{size(self.moved):>10}")
        return "\n".join(lines)

    def record(self) -> dict[str, Any]:
        """Return the plan for programs; sizes in bytes."""
        whole = {"needed": self.needed, "fits": not self.problem(), "problem": self.problem()}
        return {**asdict(self), **whole}

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


def size(count: float) -> str:
    """Write a number of bytes for people."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.5 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def parse_size(text: str | int, name: str = "--memory") -> int:
    """Read a number of bytes, such as ``750MB``, ``1.5GB`` or ``2GiB``.

    Parameters
    ----------
    text : str or int
        What was given.
    name : str, optional
        The option, for the error.

    Returns
    -------
    int
        Bytes.

    Raises
    ------
    OptionError
        It is no size.
    """
    written = str(text).strip().upper().replace(" ", "")
    number = written.rstrip("KMGTIB")
    unit = written[len(number) :] or "B"
    unit = unit if unit.endswith("B") else unit + "B"
    try:
        value = float(number) * UNITS[unit]
    except (ValueError, KeyError):
        raise OptionError(f"{name}: expected a size such as 750MB or 1.5GB, found {text!r}") from None
    if not 0 < value < math.inf:
        raise OptionError(f"{name}: expected a size above zero, found {text!r}")
    return int(value)


def free_memory() -> int:
    """Return the bytes that this process may use: what the machine, or its control group, has left."""
    found = int(psutil.virtual_memory().available)
    for limit, used in (("memory.max", "memory.current"),):
        try:
            most = Path("/sys/fs/cgroup", limit).read_text().strip()
            now = Path("/sys/fs/cgroup", used).read_text().strip()
        except OSError:
            continue
        if most.isdigit() and now.isdigit():
            found = min(found, max(int(most) - int(now), 0))
    return found


def estimate(
    corpus: str | os.PathLike[str],
    *,
    family: str,
    scheduler: str = "threads",
    workers: int | None = None,
    memory: str | int | None = None,
    scratch: str | None = None,
    **options: Any,
) -> Plan:
    """Predict what a fit would take, without running it.

    Parameters
    ----------
    corpus : str or path-like
        Folder of the corpus.
    family : str
        The model family.
    scheduler, workers, memory, scratch : optional
        As for `fit`; of a cluster that runs elsewhere, `workers` are its processes.
    **options
        The family's options.

    Returns
    -------
    Plan
        What the fit takes, and what does not fit.
    """
    config, opened = make_config(family, options), Corpus(corpus)
    return plan(opened, family, config, place_of(scheduler, workers, memory, scratch))


def place_of(
    scheduler: str, workers: int | None = None, memory: str | int | None = None, scratch: str | None = None
) -> Place:
    """Say what a scheduler on this machine will have; see `estimate` for the parameters."""
    processors = len(os.sched_getaffinity(0))
    count = workers or (1 if scheduler == "serial" else processors)
    if scheduler in ("threads", "serial"):
        processes, threads = 1, 1 if scheduler == "serial" else count
    else:
        processes, threads = count, 1
    here = free_memory() + int(psutil.Process().memory_info().rss)
    limit = parse_size(memory) if memory is not None else here / (processes if scheduler == "local" else 1)
    return Place(scheduler, processes, threads, float(limit), scratch or tempfile.gettempdir())


def plan(corpus: Corpus, family: str, config: FamilyConfig, place: Place) -> Plan:
    """Predict what a fit takes in a place.

    Parameters
    ----------
    corpus : Corpus
        What to fit; one of its shards is read, to count the words in it.
    family : str
        The model family.
    config : FamilyConfig
        Its options.
    place : Place
        Where.

    Returns
    -------
    Plan
        With local states in memory if they fit there, else on disk.
    """
    manifest = corpus.manifest
    summary = Summary(manifest.documents, manifest.vocabulary.words, manifest.tokens, manifest.pairs)
    footprint = load_family(family).footprint(summary, config)
    words = _words_of_a_shard(corpus)
    words = summary.words if words >= NEARLY_ALL * summary.words else words
    inside = _plan(manifest, footprint, place, words, on_disk=False)
    return inside if not inside.problem() else _plan(manifest, footprint, place, words, on_disk=True)


def _words_of_a_shard(corpus: Corpus) -> int:
    """Return the words of the largest shard, in proportion to what the first has of its pairs."""
    manifest = corpus.manifest
    largest = max((row.pairs for row in manifest.shards), default=0)
    if not largest or manifest.vocabulary.words <= 1:
        return manifest.vocabulary.words
    first = next(one for one in corpus.references if one.record.pairs)
    found = first.load().words.size * largest / first.record.pairs
    return int(min(found, manifest.vocabulary.words))


def _plan(manifest: Manifest, footprint: Footprint, place: Place, words: int, *, on_disk: bool) -> Plan:
    shards, processes, vocabulary = len(manifest.shards), max(place.processes, 1), manifest.vocabulary.words
    own = -(-shards // processes)  # shards of a process
    at_a_time = min(place.threads, max(own, 1))
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
        working += at_a_time * SHARD_PAIR * largest
    memory = {
        "interpreter, libraries and kernels": INTERPRETER.get(place.scheduler, INTERPRETER["worker"]),
        "reading a shard" if on_disk else "documents": READING * largest if on_disk else held / processes,
        "counts by words and topics": 2 * kept * mine + shown * (1 - mine if processes > 1 else 0),
        "changes waiting to be added": deltas * footprint.delta * words,
        "sweeping": working,
        "local states": 0.0 if on_disk else 2 * local / processes,
    }
    if on_disk:  # a shard is read before the first sweep
        memory["reading a shard"] = max(memory["reading a shard"] - sum(list(memory.values())[2:5]), 0.0)
    remote = place.scheduler not in ("threads", "serial", "local")
    return Plan(
        place=place,
        memory=memory,
        driver=INTERPRETER["driver"] if place.scheduler not in ("threads", "serial") else 0.0,
        scratch=2 * local + held if on_disk else 0.0,
        run=2 * (local + kept) + footprint.kept * vocabulary / 2,
        moved=(processes - 1) * (shown + footprint.delta * vocabulary),
        free=None if remote else float(shutil.disk_usage(_existing(place.scratch)).free),
    )


def _blocks(words: int, footprint: Footprint) -> tuple[int, ...]:
    return cuts(words, footprint)[:-1]


def cuts(words: int, footprint: Footprint) -> tuple[int, ...]:
    """Cut the vocabulary into blocks of bounded size; the cuts depend on the sizes alone, never on the cluster.

    Parameters
    ----------
    words : int
        W.
    footprint : Footprint
        The family's.

    Returns
    -------
    tuple of int
        First words of the blocks and, last, the number of words.
    """
    blocks = max(math.ceil(words * footprint.shown / BLOCK_BYTES), 1)
    return tuple(words * block // blocks for block in range(blocks + 1))


def _existing(folder: str) -> Path:
    path = Path(folder).absolute()
    while not path.exists():
        path = path.parent
    return path
