"""Metrics of runs for Prometheus, on the Dask scheduler's ``/metrics`` together with Dask's metrics."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Protocol

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from collapsium.pipeline.monitoring.events import FitStatus, RunStatus

QUANTILES = ("0", "0.25", "0.5", "0.75", "1")
LABELS = ("run", "member")
COUNTERS = {
    "tokens": ("tokens", "Tokens swept since the start."),
    "kernel": ("kernel_seconds", "Time in compiled kernels in seconds, mean over the workers."),
    "reduce": ("reduce_seconds", "Time spent summing the changes of sweeps in seconds, mean over the workers."),
    "update": ("update_seconds", "Time of the driver's global updates in seconds."),
    "score": ("score_seconds", "Time spent scoring held-out tokens in seconds, mean over the workers."),
    "wait": ("wait_seconds", "Idle time in seconds, mean over the workers."),
}


class Source(Protocol):
    """Has the status of some runs."""

    def statuses(self) -> dict[str, RunStatus]:
        """Return the status of each run by its folder."""


class RunMetrics(Collector):
    """Collects the metrics of all runs known to the schedulers of this process."""

    def __init__(self) -> None:
        self.sources: weakref.WeakSet[Source] = weakref.WeakSet()

    def describe(self) -> Iterable[Metric]:
        """Return no descriptions, because the metrics depend on the runs."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        statuses = [pair for source in list(self.sources) for pair in source.statuses().items()]
        yield from _of_runs(statuses)
        fits = [
            ([name, "" if member is None else str(member)], status, fit)
            for name, status in statuses
            for member, fit in status.fits.items()
        ]
        for metric, (text, figure) in GAUGES.items():
            gauge = GaugeMetricFamily(f"collapsium_{metric}", text, labels=LABELS)
            for labels, status, fit in fits:
                if isinstance(figure, str):
                    value = fit.event.get(figure, fit.curves[figure].last if figure in fit.curves else None)
                else:
                    value = figure(status, fit)
                if value is not None:
                    gauge.add_metric(labels, float(value))
            yield gauge
        for name, (metric, text) in COUNTERS.items():
            counter = CounterMetricFamily(f"collapsium_{metric}", text, labels=LABELS)
            for labels, _, fit in fits:
                counter.add_metric(labels, fit.totals.get(name, 0.0))
            yield counter
        summary = SummaryMetricFamily(
            "collapsium_sweep_seconds", "Time of a sweep of one shard in seconds.", labels=LABELS
        )
        for labels, _, fit in fits:
            named = dict(zip(LABELS, labels, strict=True))
            for quantile, value in zip(QUANTILES, fit.sweeps.last or (), strict=False):
                summary.add_sample("collapsium_sweep_seconds", {**named, "quantile": quantile}, value)
            summary.add_metric(labels, int(fit.totals.get("sweeps", 0)), fit.totals.get("sweep", 0.0))
        yield summary


def _of_runs(statuses: list[tuple[str, RunStatus]]) -> Iterator[Metric]:
    """Yield the metrics of runs, as opposed to members."""
    names = ("run", "family", "holds", "documents", "words", "shards")
    info = GaugeMetricFamily(
        "collapsium_run_info", "Family and corpus of a run, in the labels; the value is always 1.", labels=names
    )
    running = GaugeMetricFamily(
        "collapsium_run_active", "1 while a run is in progress, 0 after its end.", labels=["run"]
    )
    memory = GaugeMetricFamily(
        "collapsium_worker_memory_bytes", "Memory of a worker process.", labels=["run", "worker"]
    )
    for name, status in statuses:
        info.add_metric([name, *(str(status.start.get(name, "")) for name in names[1:])], 1.0)
        running.add_metric([name], 0.0 if status.ended else 1.0)
        for process in status.processes:
            memory.add_metric([name, str(process["name"])], float(process["memory"]))
    yield from (info, running, memory)


# Texts of the gauges, and the figure that they have of the last iteration, or of the last one that has it
GAUGES: dict[str, tuple[str, str | Callable[[RunStatus, FitStatus], float | None]]] = {
    "score": ("Mean log predictive probability of a held-out token, in nats.", "score"),
    "objective": ("Objective of the family, such as a variational bound, in nats.", "objective"),
    "change": ("Share of the tokens that changed topic in the last iteration.", "change"),
    "topics_active": ("Number of active topics, which have tokens.", "active"),
    "tokens_per_second": ("Tokens swept per second in the last iteration.", "tokens_a_second"),
    "iteration": ("Number of completed iterations.", lambda _, fit: fit.iteration),
    "iterations_planned": ("Largest number of iterations.", lambda status, _: status.planned),
    "elapsed_seconds": ("Time since the first sweep in seconds.", lambda _, fit: fit.elapsed),
    "remaining_seconds": (
        "Estimated time to the last iteration in seconds.",
        lambda status, fit: fit.left(status.planned),
    ),
}


_metrics = RunMetrics()


def publish(source: Source) -> None:
    """Add the runs of a source to the metrics of this process, for as long as the source exists."""
    if not len(_metrics.sources):
        with suppress(KeyError):
            prometheus_client.REGISTRY.unregister(_metrics)
        prometheus_client.REGISTRY.register(_metrics)
    _metrics.sources.add(source)
