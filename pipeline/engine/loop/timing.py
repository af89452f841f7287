"""Time of an iteration by use and by shard."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from collapsium.pipeline.engine.state import ShardTimes
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta


@dataclass(frozen=True)
class TimingReport:
    """Extent of the report on single shards."""

    slowest_shards: int = 3  # Shards whose seconds are reported one by one


REPORT = TimingReport()


def worker_seconds(statistics: Delta, workers: int, updating: float) -> dict[str, float]:
    """Return the seconds of sweeps and sums, a mean over the workers, and of the driver's update; see `Progress`."""
    spent = {name: statistics.seconds.get(name, 0.0) / workers for name in ("kernel", "reduce")}
    return {**spent, "update": updating, "score": 0.0, "wait": 0.0}


def shard_times(statistics: Delta) -> ShardTimes:
    """Return the seconds of single shards; see `Progress`. Empty where there are none."""
    by_shard = {name: spent for name, spent in statistics.seconds.items() if name.startswith(tasks.SHARD_SECONDS)}
    if not by_shard:
        return {}
    quartiles = np.quantile(list(by_shard.values()), [0.0, 0.25, 0.5, 0.75, 1.0])
    slowest = sorted(by_shard, key=lambda name: -by_shard[name])[: REPORT.slowest_shards]
    return {
        "shards": len(by_shard),
        "total": round(math.fsum(by_shard.values()), 6),
        "quartiles": [round(float(second), 6) for second in quartiles],
        "slowest": [[int(name.removeprefix(tasks.SHARD_SECONDS)), round(by_shard[name], 6)] for name in slowest],
    }
