"""Scores of predictions: document completion on held-out tokens, and unseen documents given their labels."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import pyarrow as pa

from collapsium.pipeline.analysis.evaluate import evaluate_together
from collapsium.pipeline.analysis.labels.conditional import score_from_labels
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.workflows.compare.fits import CellFits, Resources
from collapsium.pipeline.workflows.compare.metrics.base import Metric, best_of_families
from collapsium.pipeline.workflows.compare.tables import Column, Row, Rows, label_of, number_column
from collapsium.pipeline.workflows.compare.targets import Target
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import DamagedError
from collapsium.storage.runs.members import leaves
from collapsium.storage.runs.run import EVENTS

SCORE_FIELDS = {
    **dict.fromkeys(("score", "score_error", "ensemble_score", "perplexity"), pa.float64()),
    "scores": pa.list_(pa.float64()),
}
SCORE_COLUMNS = (
    number_column("score", "score", ".4f", "score_error"),
    number_column("ensemble", "ensemble_score", ".4f"),
)


def standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of the mean of some values; None for a single one."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def score_fields(scores: Sequence[float], ensemble: float) -> JsonObject:
    """Return the fields of a row on the scores of restarts and of their mean prediction, in nats a token."""
    score = statistics.fmean(scores)
    return {
        "score": score,
        "score_error": standard_error(scores),
        "ensemble_score": ensemble,
        "perplexity": math.exp(-score),
        "scores": list(scores),
    }


class DocumentCompletion(Metric):
    """The score of held-out tokens of the training documents."""

    fields = SCORE_FIELDS
    definition = """\
* **Score**: document completion, the mean over the held-out tokens of the training documents of
  log sum_k theta_dk phi_kw, in nats; higher is better. For each fit it is the score of the last iteration or, with
  samples, of the mean of their predictions. The table has the mean over the restarts and its standard error,
  s / sqrt(R).
* **Ensemble**: the score of the mean prediction of all restarts and samples.
* **Perplexity**: exp(-score), lower is better.
* In series.parquet and in the plots against steps and seconds, scores are those of single iterations, and seconds are
  seconds of work. Lines are means over the restarts; bars and bands are standard errors.
"""

    def measure(self, fits: CellFits, target: Target, resources: Resources) -> JsonObject:
        """Return the scores of the restarts and of their mean prediction."""
        arguments = resources.for_scores()
        if fits.cell.limits.get("samples"):
            scores = [evaluate_together([url], target.scored.url, **arguments).score for url in fits.urls]
        else:
            scores = _last_scores(fits)
        return score_fields(scores, evaluate_together(fits.urls, target.scored.url, **arguments).score)

    def columns(self, rows: Rows) -> tuple[Column, ...]:  # noqa: ARG002
        """Return columns of the score, that of the ensemble, and the perplexity."""
        return (*SCORE_COLUMNS, number_column("perplexity", "perplexity", ".1f"))


def _last_scores(fits: CellFits) -> list[float]:
    scores = []
    for url, event in zip(fits.urls, fits.last_iterations(), strict=True):
        if "score" not in event:
            raise DamagedError(f"{url}/{EVENTS}", "expected a score of the last iteration")
        scores.append(float(event["score"]))
    return scores


class LabelsOnlyScore(Metric):
    """The score of unseen documents given their labels alone."""

    fields = SCORE_FIELDS | dict.fromkeys(("documents", "labelled", "unknown"), pa.int64())
    definition = """\
* **Score**: given labels alone, the mean over all tokens of the unseen documents of log sum_k theta_dk phi_kw, in nats.
  theta_d is the expectation given the document's labels and covariates, without its words; Kim and Oh (2017), eq. (40).
  For families without labels it is the expectation under the prior. Labels that training did not have count as missing.
  The table has the mean over the restarts and its standard error, s / sqrt(R).
* **Perplexity**: exp(-score), lower is better; the best of each family is in bold.
* **Ensemble**: the score of the mean prediction of all restarts and samples.
"""

    def measure(self, fits: CellFits, target: Target, resources: Resources) -> JsonObject:
        """Return the scores of the restarts and of their mean prediction, and counts of the documents."""
        unseen, seed = target.scored, target.options.seed
        named = [(name, Model(url)) for name, url in leaves(fits.folder.url)]
        with resources.scoring() as executor:
            together = score_from_labels(named, unseen, executor, seed)
            scores = [one.score for one in together.members] or [together.score]
            if fits.cell.limits.get("samples"):
                of_restarts: dict[str, list[tuple[str, Model]]] = {}
                for name, model in named:
                    of_restarts.setdefault(name.partition("/")[0], []).append((name, model))
                scores = [score_from_labels(samples, unseen, executor, seed).score for samples in of_restarts.values()]
        counts = {"documents": together.documents, "labelled": together.labelled, "unknown": together.unknown}
        return {**score_fields(scores, together.score), **counts}

    def columns(self, rows: Rows) -> tuple[Column, ...]:
        """Return columns of the perplexity, the best of each family in bold, the score and that of the ensemble."""
        best = {row["cell"] for row in best_of_families(rows).values()}

        def perplexity(row: Row) -> str:
            bold = "**" if row["cell"] in best else ""
            return f"{bold}{row['perplexity']:.1f}{bold}"

        return (Column("perplexity", perplexity), *SCORE_COLUMNS)

    def further_lines(self, rows: Rows, baselines: Rows) -> list[str]:  # noqa: ARG002
        """Return a line on the best of each family."""
        falling = sorted(best_of_families(rows).values(), key=lambda row: float(row["perplexity"]))
        return [
            "Best of each family: " + "; ".join(f"{label_of(row)}: {row['perplexity']:.1f}" for row in falling) + "."
        ]
