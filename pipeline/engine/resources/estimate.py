"""Estimate of a fit's memory, disk and traffic before it runs."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.partition import PARTITION, block_bounds
from collapsium.pipeline.engine.resources.place import Place, local_place
from collapsium.pipeline.engine.resources.plan import Plan
from collapsium.pipeline.engine.setup.inputs import labels_of
from collapsium.pipeline.engine.setup.limits import EstimateOptions
from collapsium.pipeline.executors.options import MemoryOptions, SchedulerOptions
from collapsium.pipeline.executors.schedulers import check_scheduler
from collapsium.pipeline.families.base import FamilyOptions, Footprint, Summary
from collapsium.pipeline.families.registry import load_family, make_options, require_corpus, require_schedule
from collapsium.pipeline.options import keywords, option_names
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import Manifest
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import OptionError
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.shard_loading import NEARLY_ALL


@dataclass(frozen=True)
class Costs:
    """Bytes that a fit takes besides its family's state, measured on small corpora."""

    processes: Mapping[str, float] = field(
        default_factory=lambda: {"threads": 300e6, "serial": 300e6, "worker": 305e6, "driver": 285e6}
    )
    """A process with its libraries and kernels, by its use."""
    read_pair: int = 60
    """A pair while its shard is read from Parquet."""
    read_value: int = 24
    """A value of a vector while its shard is read: its file, the decoded array, and a copy."""
    vocabulary_word: int = 190
    """A word of the vocabulary, as text, on the driver."""
    pair: int = 8
    """A pair of a shard in memory."""
    document: int = 8
    """A document of a shard in memory."""
    sweeps_per_worker: int = 2
    """Sweeps that keep a worker busy; so many members of an ensemble are fitted at a time as give it these."""


COSTS = Costs()


@keywords(options=EstimateOptions, scheduling=SchedulerOptions, memory=MemoryOptions)
def estimate(
    corpus: str | os.PathLike[str],
    *,
    family: str,
    options: EstimateOptions,
    scheduling: SchedulerOptions,
    memory: MemoryOptions,
    **family_options: object,
) -> Plan:
    """Estimate the memory, disk and traffic of a fit, without running it.

    Parameters
    ----------
    corpus : str or path-like
        Folder of the corpus.
    family : str
        The model family.
    options : EstimateOptions
        Options of a fit on which its resources depend.
    scheduling : SchedulerOptions
        Executor that runs the tasks; of a cluster on other machines, `workers` are its processes.
    memory : MemoryOptions
        Memory and disk of the workers.
    **family_options
        The family's options.

    Returns
    -------
    Plan
        The estimate.
    """
    config, opened = make_options(family, family_options, option_names(estimate)), Corpus(corpus)
    require_corpus(family, opened)
    opened.require_tokens()
    require_schedule(family, options.schedule)
    check_scheduler(scheduling.scheduler, scheduling.workers)
    place = local_place(scheduling.scheduler, scheduling.workers, memory.memory, memory.scratch)
    return plan(
        opened,
        family,
        config,
        place,
        stochastic=options.schedule == "stochastic",
        restarts=options.restarts,
        samples=options.samples,
    )


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
    """Estimate the resources of a fit in a place.

    Parameters
    ----------
    corpus : Corpus
        The corpus; two of its shards are read, to count their words.
    family : str
        The model family.
    config : FamilyOptions
        Its options.
    place : Place
        Processes, threads and memory that the fit may use.
    stochastic : bool, optional
        Whether shards are swept in minibatches.
    restarts : int, optional
        Members of an ensemble; 0 for a fit by itself.
    samples : int, optional
        States that are saved as models besides.

    Returns
    -------
    Plan
        Local states are in memory if they fit there, else on disk. As many members are fitted at a time as keep all
        workers busy, or as fit into memory.

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
    words, growth, lengths = _sample_shards(corpus)
    labels = labels_of(corpus, family, config)
    summary = Summary(*sizes, shards=len(manifest.shards), stochastic=stochastic, lengths=lengths, labels=labels)
    footprint = load_family(family).footprint(summary, config)
    words = summary.words if words >= NEARLY_ALL * summary.words else words
    inputs = manifest, footprint, place, words, growth
    models = max(restarts, 1), samples
    sweeps = 1 if place.scheduler == "serial" else COSTS.sweeps_per_worker * place.processes * place.threads
    most_members = min(max(restarts, 1), -(-sweeps // max(len(manifest.shards), 1)))
    for members in range(most_members, 0, -1):
        in_memory = _plan(*inputs, models, members, on_disk=False)
        if in_memory.needed <= place.memory:
            return in_memory
    return _plan(*inputs, models, 1, on_disk=True)


def _sample_shards(corpus: Corpus) -> tuple[int, float, npt.NDArray[np.int64] | None]:
    """Estimate from two shards the figures that the manifest does not have.

    Returns
    -------
    words : int
        Words of the largest shard, extrapolated from the first by the number of pairs.
    growth : float
        Exponent g: n shards together have n^g times the words of one.
    lengths : numpy.ndarray of int64, shape (documents,), or None
        Pairs of each document of the first shard.
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
    shards_each = -(-shards // processes)
    at_a_time = min(place.threads, max(shards_each, 1) * members)
    local = footprint.pair * manifest.pairs + footprint.document * manifest.documents
    documents = COSTS.pair * manifest.pairs + COSTS.document * manifest.documents
    largest = max((row.pairs for row in manifest.shards), default=0)
    rows, shown = footprint.rows * vocabulary, footprint.shown * vocabulary
    blocks = len(block_bounds(vocabulary, footprint)) - 1
    # The share of the blocks that one process holds at most.
    block_share = -(-blocks // processes) / blocks
    # The sum of a group, the deltas to be added to it, the sum being made, and the sums of the groups before.
    groups = max(shards_each / PARTITION.group_shards, 1)
    deltas = min(shards_each, 1 + at_a_time + 1 + math.ceil(math.log2(groups)))
    copied = 0 if words >= NEARLY_ALL * vocabulary and blocks == 1 else footprint.shown * words
    working = at_a_time * ((footprint.swept * words + copied) + (footprint.chunk if on_disk else 0))
    if on_disk:
        working += at_a_time * COSTS.pair * largest + buffers.pool.settings.idle_bytes
    reading = COSTS.read_pair if manifest.vectors is None else COSTS.read_value
    memory = {
        "interpreter, libraries and kernels": COSTS.processes.get(place.scheduler, COSTS.processes["worker"]),
        "reading a shard" if on_disk else "documents": reading * largest if on_disk else documents / processes,
        "counts by words and topics": members
        * (2 * rows * block_share + shown * (1 - block_share if processes > 1 else 0)),
        "changes waiting to be added": members * deltas * footprint.delta * words,
        "sweeping": working,
        "local states": 0.0 if on_disk else members * 2 * local / processes,
    }
    if processes > 1:
        # Rows of a block and a delta.
        memory["moving to and from others"] = shown / blocks + footprint.delta * words
    if on_disk:
        # A shard is read before the first sweep, when the memory of sweeps is free.
        memory["reading a shard"] = max(memory["reading a shard"] - sum(list(memory.values())[2:5]), 0.0)
    alone = place.scheduler in ("threads", "serial")
    if alone:
        memory["the vocabulary's words"] = float(COSTS.vocabulary_word * vocabulary)
    remote = place.scheduler not in ("threads", "serial", "local")
    return Plan(
        place=place,
        memory=memory,
        driver=0.0 if alone else COSTS.processes["driver"] + COSTS.vocabulary_word * vocabulary,
        scratch=2 * local + documents if on_disk else 0.0,
        run=models[0] * (2 * (local + rows) + (1 + models[1]) * rows / 2),
        moved=members * _moved(manifest, footprint, processes, words, growth, blocks),
        moved_scoring=members * (processes - 1) * shown,
        members=members,
        free=None if remote else _free(place.scratch),
        run_free=None if place.run is None else _free(place.run),
    )


def _moved(manifest: Manifest, footprint: Footprint, processes: int, words: int, growth: float, blocks: int) -> float:
    """Return the bytes that an iteration moves: rows to the sweeps, and sums of deltas.

    The sums are followed over the tree of `iteration._Sums`; a sum grows with the words of its shards.
    """
    shards, vocabulary = len(manifest.shards), manifest.vocabulary.words
    moved: float = 0.0

    def add(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        # Each is (home, shards summed); the sum is made at the home of the right one.
        nonlocal moved
        moved += sent(left[1]) if left[0] != right[0] else 0.0
        return right[0], left[1] + right[1]

    def sent(count: int) -> float:
        return float(footprint.delta * min(words * count**growth, vocabulary))

    tree: list[tuple[int, int]] = []
    group: tuple[int, int] | None = None
    for number in range(shards):
        delta = (number * processes // shards, 1)
        group = delta if group is None else add(group, delta)
        if (number + 1) % PARTITION.group_shards == 0:
            while tree and tree[-1][1] == group[1]:
                group = add(tree.pop(), group)
            tree.append(group)
            group = None
    # What remains is folded in at the home of each block.
    for home, count in [*tree, *([group] if group else [])]:
        away = sum(((block + 1) * processes - 1) // blocks != home for block in range(blocks)) / blocks
        moved += away * sent(count)
    return moved + (processes - 1) * footprint.shown * vocabulary


def _free(folder: str) -> float:
    """Return the free bytes of the disk on which a folder is or would be."""
    path = Path(folder).absolute()
    while not path.exists():
        path = path.parent
    return float(shutil.disk_usage(path).free)
