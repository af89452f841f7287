"""Compare the tokens of a sampler's checkpoint with its counts, from which sweeps take them.

Equal counts have equal fingerprints (`kernels.gibbs.consistency`). Where those of all local states and all blocks
differ, each local state is compared with the blocks, token by token, to name the one that is wrong. The keys are random
and are not recorded, so that nobody can make other counts of the same fingerprint.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.state import Problem
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.workers import tasks
from collapsium.workers.arrays.state import Arrays, LocalState
from collapsium.workers.families.family_arrays import ModelChecks
from collapsium.workers.shard_loading import ShardOnDisk, open_shard

SEED_BITS = 128


def require_counted(
    problem: Problem,
    executor: Executor,
    checks: ModelChecks,
    blocks: Sequence[Future[tasks.Block]],
    swept: Sequence[Future[tasks.Swept]],
    places: Sequence[str],
) -> None:
    """Raise an error if the counts of a checkpoint do not have its tokens."""
    if checks.model.arrays.tokens is None or not swept:
        return
    seed, homes = secrets.randbits(SEED_BITS), executor.homes
    counted = [
        executor.submit(_row_fingerprint, checks, block, seed, home=problem.block_home(number, homes))
        for number, block in enumerate(blocks)
    ]
    taken = [
        executor.submit(_token_fingerprint, checks, local, shard, seed, place, home=problem.home(number, homes))
        for number, (local, shard, place) in enumerate(zip(swept, problem.shards, places, strict=True))
    ]
    rows = executor.collect(counted)
    expected, totals = sum(one for one, _ in rows), np.sum([sums for _, sums in rows], axis=0)
    same = (sum(executor.collect(taken)) - expected) % (1 << 64) == 0
    if same and np.array_equal(totals, checks.global_state["topic"]):
        return
    executor.collect([
        executor.submit(_compare, checks, local, shard, list(blocks), place, home=problem.home(number, homes))
        for number, (local, shard, place) in enumerate(zip(swept, problem.shards, places, strict=True))
    ])  # fmt: skip


def _arrays(swept: tasks.Swept) -> Arrays:
    """Return the arrays of a local state, which may lie in spill files."""
    return swept.local.to_arrays() if isinstance(swept.local, LocalState) else swept.local


def _row_fingerprint(checks: ModelChecks, block: tasks.Block, seed: int) -> tuple[int, npt.NDArray[np.int64]]:
    """Return the fingerprint of a block of the vocabulary, and the sums of its columns."""
    return checks.row_fingerprint(block.rows.to_arrays(), block.low, seed)


def _token_fingerprint(
    checks: ModelChecks, swept: tasks.Swept, shard: AnyShard | ShardOnDisk, seed: int, place: str
) -> int:
    """Return the fingerprint of a shard's tokens, and refuse columns that the global state counts less often."""
    local, loaded = _arrays(swept), open_shard(shard)
    if loaded.of_vectors:
        return 0
    checks.columns(local, place)
    return checks.token_fingerprint(local, loaded, seed)


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
