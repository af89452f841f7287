"""Metrics of runs for Prometheus, on the scheduler's ``/metrics`` beside Dask's own."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from collapsium.pipeline.monitoring.run_status import Course, Picture

QUANTILES = ("0", "0.25", "0.5", "0.75", "1")
LABELS = ("run", "member")
COUNTERS = {
    "tokens": ("tokens", "Tokens swept."),
    "kernel": ("kernel_seconds", "Seconds in kernels, a worker's mean."),
    "reduce": ("reduce_seconds", "Seconds in sums of what sweeps changed, a worker's mean."),
    "update": ("update_seconds", "Seconds of the driver's updates."),
    "score": ("score_seconds", "Seconds in which held-out tokens were scored, a worker's mean."),
    "wait": ("wait_seconds", "Seconds that a worker waited, their mean."),
}


class Source(Protocol):
    """Who knows of runs."""

    def pictures(self) -> dict[str, Picture]:
        """Return what is known of each run, by its name."""


class RunMetrics(Collector):
    """Collects the metrics of all runs that the schedulers of this process have been told of."""

    def __init__(self) -> None:
        self.sources: weakref.WeakSet[Any] = weakref.WeakSet()

    def describe(self) -> Iterable[Metric]:
        """Name nothing ahead: what there is depends on the runs."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Give all metrics."""
        pictures = [pair for source in list(self.sources) for pair in source.pictures().items()]
        yield from _of_runs(pictures)
        courses = [
            ([name, "" if member is None else str(member)], picture, course)
            for name, picture in pictures
            for member, course in picture.courses.items()
        ]
        yield from _gauges(courses)
        for name, (metric, text) in COUNTERS.items():
            counter = CounterMetricFamily(f"collapsium_{metric}", text, labels=LABELS)
            for labels, _, course in courses:
                counter.add_metric(labels, course.totals.get(name, 0.0))
            yield counter
        yield _sweeps(courses)


def _of_runs(pictures: list[tuple[str, Picture]]) -> Iterator[Metric]:
    """Give what there is one of for each run."""
    names = ("run", "family", "holds", "documents", "words", "shards")
    info = GaugeMetricFamily("collapsium_run_info", "What a run fits; always 1.", labels=names)
    running = GaugeMetricFamily("collapsium_run_active", "1 while a run goes on, 0 after its end.", labels=["run"])
    memory = GaugeMetricFamily(
        "collapsium_worker_memory_bytes", "What a worker process holds.", labels=["run", "worker"]
    )
    for name, picture in pictures:
        info.add_metric([name, *(str(picture.start.get(one, "")) for one in names[1:])], 1.0)
        running.add_metric([name], 0.0 if picture.ended else 1.0)
        for one in picture.processes:
            memory.add_metric([name, str(one["name"])], float(one["memory"]))
    yield from (info, running, memory)


def _gauges(courses: list[tuple[list[str], Picture, Course]]) -> Iterator[Metric]:
    """Give what was told of last."""
    told = {
        "score": ("score", "Mean log probability of a held-out token, in nats."),
        "objective": ("objective", "The family's objective."),
        "change": ("change", "Share of the tokens that moved between topics in the last iteration."),
        "active": ("topics_active", "Topics that have tokens."),
        "tokens_a_second": ("tokens_per_second", "Tokens swept a second, in the last iteration."),
    }
    for name, (metric, text) in told.items():
        gauge = GaugeMetricFamily(f"collapsium_{metric}", text, labels=LABELS)
        for labels, _, course in courses:
            curve = course.curves.get(name)
            value = course.event.get(name, None if curve is None else curve.last)
            if value is not None:
                gauge.add_metric(labels, float(value))
        yield gauge
    iteration = GaugeMetricFamily("collapsium_iteration", "Iterations made.", labels=LABELS)
    planned = GaugeMetricFamily("collapsium_iterations_planned", "The most iterations there will be.", labels=LABELS)
    elapsed = GaugeMetricFamily("collapsium_elapsed_seconds", "Seconds since the first sweep.", labels=LABELS)
    remaining = GaugeMetricFamily("collapsium_left_seconds", "Seconds until the last iteration.", labels=LABELS)
    for labels, picture, course in courses:
        iteration.add_metric(labels, float(course.iteration))
        planned.add_metric(labels, float(picture.planned))
        elapsed.add_metric(labels, course.elapsed)
        left = course.left(picture.planned)
        if left is not None:
            remaining.add_metric(labels, left)
    yield from (iteration, planned, elapsed, remaining)


def _sweeps(courses: list[tuple[list[str], Picture, Course]]) -> Metric:
    """Give what single shards take: quantiles of the last iteration, and count and sum over all."""
    summary = SummaryMetricFamily("collapsium_sweep_seconds", "Seconds that a sweep of a shard takes.", labels=LABELS)
    for labels, _, course in courses:
        named = dict(zip(LABELS, labels, strict=True))
        quartiles = course.curves["sweeps"].last if "sweeps" in course.curves else None
        for quantile, value in zip(QUANTILES, quartiles or (), strict=False):
            summary.add_sample("collapsium_sweep_seconds", {**named, "quantile": quantile}, value)
        summary.add_metric(labels, int(course.totals.get("sweeps", 0)), course.totals.get("sweep", 0.0))
    return summary


_metrics = RunMetrics()


def publish(source: Source) -> None:
    """Add the runs that somebody knows of to the metrics of this process, so long as he lives."""
    if not len(_metrics.sources):
        _forget()
        prometheus_client.REGISTRY.register(_metrics)
    _metrics.sources.add(source)


def _forget() -> None:
    try:
        prometheus_client.REGISTRY.unregister(_metrics)
    except KeyError:
        return
