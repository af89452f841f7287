"""Metrics of the fits themselves: their objective, time and number of topics, and the quality of their topics."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import pyarrow as pa

from collapsium.pipeline.analysis.coherence import coherence
from collapsium.pipeline.analysis.metrics.catalogue import USES, Needs, is_all, metrics_of
from collapsium.pipeline.analysis.metrics.labelled import field_of
from collapsium.pipeline.analysis.metrics.measure import REFUSALS, measure
from collapsium.pipeline.analysis.topics import describe
from collapsium.pipeline.corpora.new_texts import names_corpus
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.workflows.compare.fits import CellFits, Resources
from collapsium.pipeline.workflows.compare.metrics.base import Metric
from collapsium.pipeline.workflows.compare.metrics.scores import standard_error
from collapsium.pipeline.workflows.compare.options import CompareOptions
from collapsium.pipeline.workflows.compare.tables import Column, Rows, number_column
from collapsium.pipeline.workflows.compare.targets import Target
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import InputError, OptionError
from collapsium.workers.families.description import holding


class FitFigures(Metric):
    """Objective, time and number of large topics of the fits."""

    fields = dict.fromkeys(("objective", "objective_error", "seconds", "cell_seconds", "topics_99"), pa.float64())
    definition = """\
* **Objective**: the family's objective at the last iteration, in nats, mean over the restarts: a bound on the log
  probability of the training tokens, or log p(w, z) of a sample. Objectives of different families are not comparable.
* **Seconds** of a fit: time in kernels, sums and updates of all iterations with all workers, mean over the restarts;
  scoring and waiting are not counted. **Of the cell**: time from the start of the first fit to the end of the last one,
  with scoring and waiting; fits run in parallel. The time of killed processes, and of the source of warm starts, is not
  included.
* **Topics (99%)**: number of the largest topics that hold 99% of the training tokens, mean over the restarts.
"""

    def measure(self, fits: CellFits, target: Target, resources: Resources) -> JsonObject:  # noqa: ARG002
        """Return the means over the restarts."""
        objectives = [event["objective"] for event in fits.last_iterations() if "objective" in event]
        return {
            "objective": statistics.fmean(objectives) if objectives else None,
            "objective_error": standard_error(objectives),
            "seconds": statistics.fmean(fits.work_seconds()),
            "cell_seconds": fits.elapsed_seconds(),
            "topics_99": statistics.fmean(holding(describe(Model(url), 1).share) for url in fits.urls),
        }

    def columns(self, rows: Rows) -> tuple[Column, ...]:  # noqa: ARG002
        """Return columns of the objective, the time and the topics."""
        return (
            number_column("objective", "objective", ",.0f", "objective_error"),
            number_column("seconds a fit", "seconds", ".2f"),
            number_column("of the cell", "cell_seconds", ".1f"),
            number_column("topics (99%)", "topics_99", ".1f"),
        )


class TopicQuality(Metric):
    """The coherence and diversity of the topics."""

    fields: Mapping[str, pa.DataType] = dict.fromkeys(("npmi", "diversity"), pa.float64())
    definition = """\
* **Coherence**: NPMI of each topic's ten most probable words by co-occurrence in training documents, mean over topics
  and restarts. **Diversity**: the share of distinct words among the 25 most probable ones of all topics. Topics with
  less than one token are left out of both.
"""

    def measure(self, fits: CellFits, target: Target, resources: Resources) -> JsonObject:
        """Return the means over the restarts; None if a corpus or a fit has no topic to measure."""
        arguments = resources.for_scores()
        try:
            coherences = [coherence(url, target.train.url, **arguments) for url in fits.urls]
        except InputError:
            return {"npmi": None, "diversity": None}
        return {
            "npmi": statistics.fmean(one.npmi for one in coherences),
            "diversity": statistics.fmean(one.diversity for one in coherences),
        }

    def columns(self, rows: Rows) -> tuple[Column, ...]:  # noqa: ARG002
        """Return columns of the coherence and the diversity."""
        return number_column("coherence", "npmi", ".4f"), number_column("diversity", "diversity", ".4f")


class TopicMetrics(Metric):
    """Metrics of the catalogue that the user names."""

    definition = ""

    def __init__(self, options: CompareOptions, others: Sequence[str]) -> None:
        self._options = options
        self._metrics = [metric for metric in metrics_of(options.metrics) if metric.field not in others]
        self.fields: Mapping[str, pa.DataType] = {metric.field: pa.float64() for metric in self._metrics}

    def require(self, target: Target) -> None:
        """Refuse metrics whose texts, labels or documents are missing, before the first fit."""
        options = self._options
        if is_all(options.metrics):
            return
        needed = {metric.needs: metric.name for metric in reversed(self._metrics)}
        if Needs.TEXTS in needed and (options.coherence is None or names_corpus(options.coherence)):
            raise OptionError(
                f"{needed[Needs.TEXTS]}: needs texts, as a corpus has no order of words (`coherence` TEXTS)"
            )
        if Needs.DOCUMENTS in needed and target.heldout is not None:
            raise OptionError(f"{needed[Needs.DOCUMENTS]}: needs `unseen`, documents that are not fitted")
        if Needs.LABELS in needed or Needs.CLASSES in needed:
            field_of(target.corpus if target.heldout is not None else target.scored, options.label_field)

    def measure(self, fits: CellFits, target: Target, resources: Resources) -> JsonObject:
        """Return the means over the restarts, and their definitions; None of metrics that a family does not have."""
        documents = {"unseen": target.scored.url} if target.heldout is None else {"heldout": target.heldout}
        how = {**documents, **resources.for_scores(), "seed": self._options.seed}
        given = {name: getattr(self._options, name) for name in ("label_field", "coherence")}
        row: JsonObject = {**dict.fromkeys(self.fields), "definitions": {}}
        for needs in Needs:
            group = [metric for metric in self._metrics if metric.needs is needs]
            used = {name: value for name, value in given.items() if needs in USES[name]}
            try:
                results = [
                    measure(url, metrics=[one.name for one in group], **how, **used) for url in fits.urls if group
                ]
            except REFUSALS:
                continue
            for metric in group:
                row[metric.field] = statistics.fmean(result[metric.name].value for result in results)
                row["definitions"][metric.name] = [results[0][metric.name].definition, metric.source]
        return row

    def columns(self, rows: Rows) -> tuple[Column, ...]:
        """Return a column for each metric that a row has."""
        shown = [one for one in self._metrics if any(row.get(one.field) is not None for row in rows)]
        return tuple(number_column(metric.name, metric.field, ".4f") for metric in shown)

    def further_lines(self, rows: Rows, baselines: Rows) -> list[str]:  # noqa: ARG002
        """Return the definitions and sources of the metrics."""
        texts = {name: text for row in rows for name, text in row.get("definitions", {}).items()}
        return [f"* **{name}**: {definition}. {source}." for name, (definition, source) in texts.items()]
