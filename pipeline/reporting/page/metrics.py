"""Measure the topics that a report shows."""

from __future__ import annotations

from collections.abc import Sequence

from collapsium.pipeline.analysis.metrics.catalogue import METRICS, Needs
from collapsium.pipeline.analysis.metrics.measure import REFUSALS, measure
from collapsium.pipeline.analysis.metrics.measurement import Measurement
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.options import SchedulerOptions
from collapsium.pipeline.families.model import Model
from collapsium.storage.units import Counting

OF_TOPICS = tuple(name for name, metric in METRICS.items() if metric.needs is Needs.TOPICS)
IN_TEXTS = ("c_v", "c_npmi")


def topic_metrics(
    model: Model, texts: Sequence[str] | None, scheduling: SchedulerOptions, tls: TLS | None, progress: Counting
) -> tuple[list[Measurement], list[str]]:
    """Measure the diversity of a model's topics and, if there are texts, their coherence.

    Returns measurements: The figures, with definitions and sources; notes: A sentence on figures that are missing
    """
    where = {"scheduler": scheduling.scheduler, "workers": scheduling.workers, "tls": tls, "progress": progress}
    groups = [(OF_TOPICS, None)] if texts is None else [(IN_TEXTS, texts), (OF_TOPICS, None)]
    measurements: list[Measurement] = []
    notes: list[str] = []
    for names, counted in groups:
        try:
            measured = measure(model.folder.url, metrics=names, coherence=counted, **where)
            measurements += measured.values()
        except REFUSALS as error:
            notes.append(f"The topics were not measured by {', '.join(names)}: {error}.")
    return measurements, notes
