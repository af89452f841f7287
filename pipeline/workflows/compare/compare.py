"""Compare families on a corpus: fit and measure each cell once, record the results, and continue where it stopped.

The table has a row for each cell; it is written as Markdown and Parquet, with a plot of the scores. Over numbers of
topics, one is recommended by how much each gains over the one before, with the reason.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from collapsium.pipeline.analysis.evaluate import evaluate_together
from collapsium.pipeline.analysis.metrics.catalogue import USES, Metric, Needs, is_all, metrics_of
from collapsium.pipeline.analysis.metrics.labelled import field_of
from collapsium.pipeline.analysis.metrics.measure import REFUSALS, document_sums, measure
from collapsium.pipeline.analysis.scoring import Scored
from collapsium.pipeline.corpora.documents import corpus_of, options_of_reading, reading_of
from collapsium.pipeline.corpora.new_texts import names_corpus
from collapsium.pipeline.corpora.split import split
from collapsium.pipeline.engine.fit import fit, resume
from collapsium.pipeline.engine.leakage import require_held_out
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.engine.setup.request import require_tokens
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import MemoryOptions, Scheduling, check_scheduler, is_elsewhere
from collapsium.pipeline.fitted_model import load_blocks, require_pandas
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import require_corpus
from collapsium.pipeline.models.topics import describe, stability, topics
from collapsium.pipeline.monitoring.events import Event, Sink, emit
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords, option_names
from collapsium.pipeline.outputs import overwrites, place_for
from collapsium.pipeline.reporting.plots.comparison import TOPICS_SHOWN, comparison_figure
from collapsium.pipeline.reporting.plots.style import can_draw, drawn
from collapsium.pipeline.workflows.compare.options import SAMPLE_TOKENS, Cell, CompareOptions, cells_of, shown
from collapsium.pipeline.workflows.compare.progress import GridView
from collapsium.storage import html
from collapsium.storage.building.split import sample_documents
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import lineage_of
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import (
    CollapsiumError,
    DamagedError,
    InputError,
    MismatchError,
    OccupiedError,
    OptionError,
    flag_of,
    suggestion,
)
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump
from collapsium.storage.io.run_lock import RunLock
from collapsium.storage.printable import ShortRepr
from collapsium.storage.runs.comparison import (
    CELL_KIND,
    CELLS,
    KIND,
    PARTS,
    RECORD,
    RUNS,
    SAMPLE,
    SUFFIX,
    TABLE,
    TEXT,
    VERSION,
    cells_done,
    record_of,
    row_of,
    runs_there,
)
from collapsium.storage.runs.event_records import parse_event
from collapsium.storage.runs.run import EVENTS, JOURNAL, Run
from collapsium.storage.units import parse_size
from collapsium.workers.families.description import holding
from collapsium.workers.options import former_names

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


Floats = npt.NDArray[np.float64]
Row = Mapping[str, Any]

WORDS = 6  # Words of each topic in frames
# Nats per token that twice as many topics must gain: perplexity falls by 2%. On text scores rise far beyond numbers of
# topics that a person reads, by ever less.
LEAST_GAIN = 0.02
ERRORS = 2.0  # Standard errors by which a gain must exceed 0
LEAST_SUPPORT = 0.5  # Share of the topics that another seed must find again, for topics that are to be read


@dataclass(frozen=True)
class Recommendation:
    """The recommended number of topics, with the reason in plain English."""

    topics: int
    reason: str
    reference: str = ""  # How many topics another family finds, as a sentence; empty if it was not fitted

    def __str__(self) -> str:
        return f"recommended: {self.topics} topics. {self.reason}" + (f" {self.reference}" if self.reference else "")


@dataclass(frozen=True)
class DocumentScores:
    """Log probabilities of documents' held-out tokens, mean over the restarts, and the numbers of these tokens."""

    logs: Floats  # (documents,), in nats
    tokens: Floats  # (documents,)

    def mean(self, less: Floats | float = 0.0) -> tuple[float, float]:
        """Return the mean over the tokens, of the difference from other documents' logs, and its standard error.

        The error is for a ratio of sums over documents, whose tokens depend on each other.
        """
        logs, total = self.logs - less, float(self.tokens.sum())
        score = float(logs.sum()) / total
        return score, math.sqrt(float(((logs - score * self.tokens) ** 2).sum())) / total


def document_scores(models: Sequence[Model], heldout: str, executor: Executor) -> DocumentScores:
    """Score the held-out tokens of each document by each model."""
    scored = Scored(Corpus(heldout), True)
    submit, logs, tokens = scored.submit(scored.held(models[0]), executor, 0), [], np.zeros(0)
    for model in models:
        shards = [executor.submit(document_sums, shard) for shard in submit(model, load_blocks(model, executor))]
        sums = executor.collect(shards)
        logs.append(np.concatenate([of_shard for of_shard, _ in sums]))
        tokens = np.concatenate([of_shard for _, of_shard in sums])
    return DocumentScores(np.mean(logs, axis=0), tokens)


def studied(rows: Sequence[JsonObject], urls: Mapping[str, Sequence[str]], heldout: str, executor: Executor) -> None:
    """Add to the rows of each family, by increasing K: the gain over the last K, what another seed finds, and words."""
    before: dict[str, tuple[int, DocumentScores]] = {}
    for row in sorted(rows, key=lambda row: row["topics"] or 0):
        models = [Model(url) for url in urls[row["cell"]]]
        scores = document_scores(models, heldout, executor)
        row["document_error"] = scores.mean()[1]
        if row["family"] in before and row["topics"]:
            fewer, last = before[row["family"]]
            row["gain"], row["gain_error"] = (
                figure / math.log2(row["topics"] / fewer) for figure in scores.mean(last.logs)
            )
        before[row["family"]] = row["topics"], scores
        stabilities = [stability(model, [fit for fit in models if fit is not model]) for model in models]
        matched = [topic for of_model in stabilities for topic in of_model.values()]
        if matched:
            row["stability"] = float(np.mean([topic.value for topic in matched]))
            row["found_again"] = float(np.mean([topic.support for topic in matched])) / (len(models) - 1)
        best = models[int(np.argmax(row["scores"]))]
        row["remark"] = best.family.remark(best.global_state)
        row["words"] = [[word for word, _ in topic.words] for topic in topics(best.folder.url, WORDS)]


def recommended(rows: Sequence[Row]) -> Recommendation:
    """Recommend a number of topics of the first family: the last that gains much, whose topics another seed finds."""
    family = rows[0]["family"]
    candidates = sorted((row for row in rows if row["family"] == family), key=lambda row: int(row["topics"]))
    chosen = 0
    while chosen + 1 < len(candidates) and _gains(candidates[chosen + 1]):
        chosen += 1
    row, reasons = candidates[chosen], []
    if chosen + 1 < len(candidates):
        following = candidates[chosen + 1]
        least = f"less than {LEAST_GAIN:g}" if following["gain"] < LEAST_GAIN else "no more than two standard errors"
        reasons.append(
            f"From {row['topics']} to {following['topics']}, twice as many topics gain {_gain_text(following)}, "
            f"{least}."
        )
    elif len(candidates) > 1:
        reasons.append(
            f"Twice as many topics still gain {_gain_text(row)}; larger numbers predict better, as far as you can read "
            "them."
        )
    stable = [row for row in candidates[: chosen + 1] if row.get("found_again", 1.0) >= LEAST_SUPPORT]
    if stable and stable[-1] is not row:
        reasons.append(
            f"But another seed finds only {row['found_again']:.0%} of {row['topics']} topics again, and "
            f"{stable[-1]['found_again']:.0%} of {stable[-1]['topics']}."
        )
        row = stable[-1]
    elif "found_again" in row:
        reasons.append(f"Another seed finds {row['found_again']:.0%} of the {row['topics']} topics again.")
    coherent = max(candidates, key=lambda row: row["npmi"] or -1.0)
    if coherent is not row and coherent["npmi"] is not None:
        reasons.append(f"Coherence is highest at {coherent['topics']} topics ({coherent['npmi']:.3f}).")
    figures = [f"{name} {row[name]:.3f}" for name in ("npmi", "exclusivity", "dispersion") if row.get(name) is not None]
    reasons.append(f"There, {', '.join(figures)}." if figures else "")
    return Recommendation(int(row["topics"]), " ".join(filter(None, reasons)), _reference_text(rows, family))


def _gains(row: Row) -> bool:
    return bool(row["gain"] >= LEAST_GAIN and row["gain"] > ERRORS * row["gain_error"])


def _gain_text(row: Row) -> str:
    return f"{row['gain']:.3f} ± {row['gain_error']:.3f} nats per token"


def _reference_text(rows: Sequence[Row], family: str) -> str:
    """Return a sentence on the number of topics that the fit found which removes redundant ones."""
    reference = next((row for row in rows if row["family"] != family), None)
    if reference is None:
        return ""
    if reference["remark"] is not None:
        return f"{reference['family']}: {reference['remark']}."
    return f"{reference['family']}, with {reference['topics']} topics at most, finds {reference['topics_99']:.0f}."


SAMPLE_SHARD_TOKENS = SAMPLE_TOKENS // 8  # Tokens of a shard of sampled documents, so that threads share them
WORK = ("kernel", "reduce", "update")  # Activities of an iteration whose time counts as work


def require_comparable(corpus: Corpus, options: CompareOptions) -> None:
    """Refuse a corpus that a family cannot fit, and one of vectors, which has no tokens to score."""
    for name in options.fitted_families:
        require_corpus(name, corpus)
    if corpus.holds != DOCUMENTS:
        raise MismatchError(
            f"{corpus.url}: a corpus of vectors; families are compared by held-out tokens, which vectors do not have: "
            "fit each, and score it with `collapsium evaluate RUN --unseen CORPUS`"
        )


class Corpora:
    """A training corpus, and held-out tokens of its documents."""

    def __init__(self, corpus: Corpus, options: CompareOptions) -> None:
        self.corpus, self.options = corpus, options
        self.train = self.scored = corpus
        if options.heldout is not None:
            self.scored = Corpus(options.heldout)

    @property
    def share(self) -> float:
        """The share of the documents that are drawn to compare on."""
        manifest, documents = self.corpus.manifest, self.options.sample_documents
        if documents is not None:
            return documents / manifest.documents
        over_topics = self.options.over == "topics" and self.options.fraction is not None
        return SAMPLE_TOKENS / max(manifest.tokens, 1) if over_topics else 1.0

    def require(self) -> None:
        """Refuse corpora that do not belong together, before anything is written."""
        corpus, scored, name = self.corpus, self.scored, f"the training corpus {self.corpus.url}"
        if self.options.fraction is not None:
            return
        if self.options.sample_documents is not None:
            raise OptionError(
                "draws documents before tokens are split off, so it excludes corpora of tokens", "sample_documents"
            )
        require_tokens(scored)
        scored.require_vocabulary_of(corpus.manifest.vocabulary.words_sha256, corpus.url)
        require_held_out(lineage_of(corpus), scored, name)
        if scored.manifest.documents != corpus.manifest.documents:
            raise MismatchError(
                f"{scored.url}: expected the {corpus.manifest.documents} documents of {corpus.url}, "
                f"found {scored.manifest.documents}"
            )

    def prepare(self, folder: Folder) -> None:
        """Sample documents and split off held-out tokens into the comparison's folder, unless there are some."""
        share = self.share
        if share < 1.0:
            part = folder / SAMPLE
            if not part.exists():
                sample_documents(self.corpus, part.url, share, shard_tokens=SAMPLE_SHARD_TOKENS, seed=self.options.seed)
            self.corpus = Corpus(part.url)
        if self.options.fraction is not None:
            parts = [folder / part for part in PARTS]
            if not all(part.exists() for part in parts):
                for part in parts:
                    # A process that died may have left one of them.
                    part.remove()
                train, heldout = (part.url for part in parts)
                split(self.corpus.url, train, heldout, fraction=self.options.fraction, seed=self.options.seed)
            self.train, self.scored = (Corpus(part.url) for part in parts)
        for corpus in (self.train, self.scored):
            if not corpus.manifest.tokens:
                raise InputError(corpus.url, "has no tokens to score; hold out another --fraction")


@dataclass(frozen=True)
class Fits:
    """The fits of a cell, which need not be complete: members of an ensemble."""

    cell: Cell  # The cell
    folder: Folder  # Folder of the ensemble

    @property
    def runs(self) -> list[Run]:
        """The runs of the restarts."""
        return [Run(self.folder.url).in_member(number) for number in range(self.cell.restarts)]

    @property
    def urls(self) -> list[str]:
        """The folders of the runs."""
        return [run.folder.url for run in self.runs]

    def iterations(self) -> list[list[JsonObject]]:
        """Return the events of each run's iterations."""
        by_run = [[event for event in run.events() if event["event"] == "iteration"] for run in self.runs]
        for run, events in zip(self.runs, by_run, strict=True):
            if not events:
                raise DamagedError(f"{run.folder.url}/{EVENTS}", "expected iterations of a fit, found none")
        return by_run

    def elapsed_seconds(self) -> float:
        """Return the elapsed seconds; the journal has an end for each time that the ensemble was started."""
        elapsed = 0.0
        for line in self.folder.read(JOURNAL).splitlines():
            # A process that died may have left a line unfinished.
            with contextlib.suppress(DamagedError):
                event = parse_event(line, f"{self.folder.url}/{JOURNAL}", "a line")
                elapsed += float(event["elapsed"]) if event["event"] == "end" and "members" in event else 0.0
        return elapsed


def work_seconds(event: Event) -> float:
    """Return the seconds of work of an iteration, without scoring and waiting."""
    return sum(float(event.get("seconds", {}).get(name, 0.0)) for name in WORK)


@dataclass(frozen=True)
class Fitter:
    """Runs the fits of a comparison, or resumes them."""

    folder: Folder  # Folder of the comparison
    corpora: Corpora  # Corpora to fit to and to score
    execution: Mapping[str, Any]  # Arguments of `fit` for the executor, memory and scratch space
    sinks: Sequence[Sink]  # Receive the events of the fits
    require_lock: Callable[[], None]  # Raises an error if another process has taken over the comparison

    def fits_of(self, cell: Cell) -> Fits:
        """Return the fits of a cell, which need not exist yet."""
        return Fits(cell, self.folder / RUNS / cell.name)

    def scoring(self) -> dict[str, Any]:
        """Return the executor of scores; threads replace a local cluster, which would start for each score."""
        where = {name: self.execution[name] for name in ("scheduler", "workers", "tls")}
        return where | {"scheduler": "threads", "tls": None} if where["scheduler"] == "local" else where

    def fit(self, cell: Cell) -> Fits:
        """Run or resume a cell's fits, in parallel; their events get the name of the cell."""
        self.require_lock()
        fits, options = self.fits_of(cell), self.corpora.options
        train, heldout = self.corpora.train.url, self.corpora.scored.url
        where = {**self.execution, "sinks": [lambda event: emit(self.sinks, {**event, "cell": cell.name})]}
        if Run(fits.folder.url).exists():
            resume(fits.folder.url, corpus=train, heldout=heldout, **where)
            return fits
        if fits.folder.exists():
            # A process died before it wrote the run's record.
            fits.folder.remove()
        named = {**cell.options, **cell.limits, **options.fit_options, "seed": options.seed, "restarts": cell.restarts}
        fit(train, fits.folder.url, family=cell.family, heldout=heldout, **named, **where)
        return fits


PLOT, TOPICS_PLOT = "score-by-topics", "number-of-topics"  # Names of the plots

TOPIC_METRICS = ("npmi", "diversity")  # Metrics of every comparison
CELL_FIELDS = {
    **dict.fromkeys(("cell", "family", "start"), pa.string()),
    **dict.fromkeys(("topics", "restarts", "iterations", "samples"), pa.int32()),
    "options": pa.string(),
    **dict.fromkeys(("score", "score_error", "ensemble_score", "perplexity"), pa.float64()),
    "scores": pa.list_(pa.float64()),
    **dict.fromkeys(("objective", "objective_error", "seconds", "cell_seconds", "topics_99"), pa.float64()),
}
# Columns of the table that comparisons over topics add
STUDIED = {
    **dict.fromkeys(("document_error", "gain", "gain_error", "stability", "found_again"), pa.float64()),
    "words": pa.list_(pa.list_(pa.string())),
}
OVER_TOPICS_COLUMNS = (
    "score", "document_error", "gain", "gain_error", "npmi", "exclusivity", "dispersion", "diversity", "stability",
    "found_again", "seconds", "recommended", "words",
)  # fmt: skip
# Columns of numbers in Markdown: head, field, format, and the field of the standard error
COLUMNS: tuple[tuple[str, str, str, str | None], ...] = (
    ("score", "score", ".4f", "score_error"),
    ("ensemble", "ensemble_score", ".4f", None),
    ("perplexity", "perplexity", ".1f", None),
    ("objective", "objective", ",.0f", "objective_error"),
    ("seconds per fit", "seconds", ".2f", None),
    ("of the cell", "cell_seconds", ".1f", None),
    ("topics (99%)", "topics_99", ".1f", None),
)
STUDIED_COLUMNS = (
    ("gain of twice as many", "gain", ".3f", "gain_error"),
    ("stability", "stability", ".2f", None),
    ("found again", "found_again", ".2f", None),
)
DEFINITIONS = """\
* **Score**: document completion, the mean over the held-out tokens of the training documents of
  log sum_k theta_dk phi_kw, in nats; higher is better. For each fit it is the score of the last iteration or, with
  samples, of the mean of their predictions. The table has the mean over the restarts and its standard error,
  s / sqrt(R).
* **Ensemble**: the score of the mean prediction of all restarts and samples.
* **Perplexity**: exp(-score), lower is better.
* **Objective**: the family's objective at the last iteration, in nats, mean over the restarts: a bound on the log
  probability of the training tokens, or log p(w, z) of a sample. Objectives of different families are not comparable.
* **Seconds** of a fit: time in kernels, sums and updates of all iterations with all workers, mean over the restarts;
  scoring and waiting are not counted. **Of the cell**: time from the start of the first fit to the end of the last one,
  with scoring and waiting; fits run in parallel. The time of killed processes is not included.
* **Topics (99%)**: number of the largest topics that hold 99% of the training tokens, mean over the restarts.
* In the plot, bars and bands are standard errors.
"""
OVER_TOPICS_DEFINITIONS = """\
* **Gain of twice as many**: the difference from the scores of the last number of topics, divided by log2 of
  the ratio of the numbers, in nats per token, with its standard error over the documents.
* **Stability**: one minus the Hellinger distance to the matching topics of the other restarts, mean over the topics;
  **found again**: the share of the topics whose match is at most 0.6 away.
"""


def require_metrics(options: CompareOptions, corpus: Corpus) -> None:
    """Refuse metrics whose texts, labels or documents are missing, before the first fit."""
    if not options.metrics or is_all(options.metrics):
        return
    needed = {metric.needs: metric.name for metric in reversed(metrics_of(options.metrics))}
    if Needs.TEXTS in needed and (options.coherence is None or names_corpus(options.coherence)):
        raise OptionError(f"{needed[Needs.TEXTS]}: needs texts, as a corpus has no order of words (`coherence` TEXTS)")
    if Needs.DOCUMENTS in needed:
        how = "measure it with `collapsium evaluate RUN --unseen CORPUS`"
        raise OptionError(f"{needed[Needs.DOCUMENTS]}: needs documents that are not fitted; {how}")
    if Needs.LABELS in needed or Needs.CLASSES in needed:
        field_of(corpus, options.label_field)


def measured_row(fits: Fits, fitter: Fitter) -> JsonObject:
    """Return the row of a cell with completed fits."""
    cell, options, corpora, where = fits.cell, fitter.corpora.options, fitter.corpora, fitter.scoring()
    iterations = fits.iterations()
    objectives = [events[-1]["objective"] for events in iterations if "objective" in events[-1]]
    row: JsonObject = {
        "cell": cell.name,
        "family": cell.family,
        "start": cell.start,
        "topics": cell.topics,
        "restarts": cell.restarts,
        "iterations": cell.iterations,
        "samples": int(cell.limits.get("samples", 0)),
        "options": json.dumps({**cell.options, **cell.limits}, sort_keys=True),
        "definitions": {},
        **_scores(fits, fitter),
        "objective": statistics.fmean(objectives) if objectives else None,
        "objective_error": _standard_error(objectives),
        "seconds": statistics.fmean(sum(map(work_seconds, events)) for events in iterations),
        "cell_seconds": fits.elapsed_seconds(),
        "topics_99": statistics.fmean(holding(describe(Model(url), 1).share) for url in fits.urls),
    }
    # The words come from the last states, even if samples were saved.
    last_states = [run.model.url for run in fits.runs]
    _add_metrics(row, last_states, metrics_of(TOPIC_METRICS), {"coherence": corpora.train.url, **where})
    for needs in Needs:
        used = {name: getattr(options, name) for name in ("label_field", "coherence") if needs in USES[name]}
        chosen = [metric for metric in _further(options) if metric.needs is needs]
        _add_metrics(row, fits.urls, chosen, {"heldout": corpora.scored.url, **where, "seed": options.seed, **used})
    return row


def _further(options: CompareOptions) -> list[Metric]:
    """Return the metrics that the user names, without those that the table has anyway."""
    chosen = metrics_of(options.metrics) if options.metrics else ()
    return [metric for metric in chosen if metric.field not in (*CELL_FIELDS, *TOPIC_METRICS)]


def _add_metrics(row: JsonObject, urls: Sequence[str], metrics: Sequence[Metric], how: JsonObject) -> None:
    """Add metrics to a row, as means over the restarts, and their definitions; None if a family does not have them."""
    row.update(dict.fromkeys(metric.field for metric in metrics))
    try:
        results = [measure(url, metrics=[metric.name for metric in metrics], **how) for url in urls if metrics]
    except REFUSALS:
        return
    for metric in metrics:
        row[metric.field] = statistics.fmean(result[metric.name].value for result in results)
        row["definitions"][metric.name] = [results[0][metric.name].definition, metric.source]


def _standard_error(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def _scores(fits: Fits, fitter: Fitter) -> JsonObject:
    """Score held-out tokens, in nats per token: of the last iteration or the mean of the samples, and of all fits."""
    where, heldout = fitter.scoring(), fitter.corpora.scored.url
    if fits.cell.limits.get("samples"):
        scores = [evaluate_together([url], heldout, **where).score for url in fits.urls]
    else:
        last = [events[-1] for events in fits.iterations()]
        for url, event in zip(fits.urls, last, strict=True):
            if "score" not in event:
                raise DamagedError(f"{url}/{EVENTS}", "expected a score of the last iteration")
        scores = [float(event["score"]) for event in last]
    score = statistics.fmean(scores)
    return {
        "score": score,
        "score_error": _standard_error(scores),
        "ensemble_score": evaluate_together(fits.urls, heldout, **where).score,
        "perplexity": math.exp(-score),
        "scores": scores,
    }


def row_schema(options: CompareOptions) -> pa.Schema:
    """Return the schema of the table of cells."""
    metrics = (*TOPIC_METRICS, *(metric.field for metric in _further(options)))
    return pa.schema({**CELL_FIELDS, **dict.fromkeys(metrics, pa.float64())})


def write_rows(folder: Folder, name: str, rows: Sequence[Row], schema: pa.Schema) -> None:
    """Write rows as a Parquet file, atomically; fields that the schema lacks are left out."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=schema), sink)
    folder.write(name, sink.getvalue())


def number_text(value: float | None, form: str, error: float | None = None) -> str:
    """Return a formatted number with its standard error, if it has one; an empty text for None."""
    if value is None:
        return ""
    return format(value, form) + ("" if error is None else f" ± {error:{form}}")


def table_text(options: CompareOptions, rows: Sequence[Row]) -> str:
    """Return the table of cells as Markdown."""
    metrics = [*metrics_of(TOPIC_METRICS), *_further(options)]
    columns = [*COLUMNS, *((metric.name, metric.field, ".4f", None) for metric in metrics), *STUDIED_COLUMNS]
    optional = {field for _, field, *_ in columns[len(COLUMNS) :]}
    measured = {field for field in optional if any(row.get(field) is not None for row in rows)}
    columns = [column for column in columns if column[1] not in optional - measured]
    heads = ["family", "start", "K", "restarts", "iterations", *(head for head, *_ in columns)]
    body = [heads, ["---", "---", *["---:"] * (len(heads) - 2)]]
    for row in rows:
        samples = f", {row['samples']} samples" if row["samples"] else ""
        cell = [row["family"], row["start"], number_text(row["topics"], "d"), str(row["restarts"])]
        cell.append(f"{row['iterations']}{samples}")
        cell += [number_text(row.get(field), form, row.get(error or "")) for _, field, form, error in columns]
        body.append(cell)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in body)


def report_text(corpora: Corpora, rows: Sequence[Row]) -> str:
    """Return a report as Markdown: the comparison, its table, and the definitions of its columns."""
    options, scored, train = corpora.options, corpora.scored.manifest, corpora.train.manifest
    fraction = options.fraction
    origin = f"of {corpora.scored.url}" if fraction is None else f"({fraction:g} of all, split off)"
    about = (
        f"Corpus: {corpora.corpus.url}, {corpora.corpus.manifest.documents:,} documents, "
        f"{corpora.corpus.manifest.vocabulary.words:,} words; fitted to {train.tokens:,} tokens in {len(train.shards)} "
        f"shards, scored on {scored.tokens:,} tokens {origin}. Seed {options.seed}."
    )
    chosen = (("Options", options.settings, "; defaults otherwise."), ("Varied", options.vary, "."))
    paragraphs = ["# Comparison", about, *(f"{name}: {shown(value)}{end}" for name, value, end in chosen if value)]
    notes = DEFINITIONS + (OVER_TOPICS_DEFINITIONS if options.over == "topics" else "")
    texts = {name: text for row in rows for name, text in row.get("definitions", {}).items()}
    for name, (text, source) in texts.items():
        notes += f"* **{name}**: {text}; mean over the restarts. {source}.\n"
    return "\n\n".join([*paragraphs, table_text(options, rows), notes])


def draw_plot(rows: Sequence[Row], folder: Folder, chosen: int | None = None) -> tuple[str, ...] | None:
    """Draw the picture of a comparison as PNG and SVG, and return its name; None without matplotlib."""
    if not can_draw():
        return None
    name = PLOT if chosen is None else TOPICS_PLOT
    for suffix in ("png", "svg"):
        folder.write(f"{name}.{suffix}", drawn(lambda: comparison_figure(rows, chosen), suffix))
    return (name,)


FLAGS = {"corpus": "CORPUS", "settings": "--set"}  # Flags of recorded options whose flag is not their name
# Options that earlier releases alone have and that changed what was fitted, with the values of comparisons without them
FORMER: Mapping[str, Any] = {"labels": [], "without": [], "start_from": None, "field": None, "unseen": None}
# Options that some records lack or have as null, with the values that they stand for
ABSENT: Mapping[str, Any] = {
    **FORMER,
    **{name: field.default for name, field in Limits.model_fields.items()},
    "metrics": [],
    "over": "families",
    "start_strength": 0.0,
}


# Columns of the table in a notebook, which is to fit into its width, and the topics whose words it has
SHOWN_COLUMNS = ("score", "gain", "npmi", "exclusivity", "found_again", "words")
SHOWN_TOPICS = 5


def _cell(value: Any) -> html.Cell:
    """Return a value of a frame for a table of a notebook: numbers with three digits, words of the largest topics."""
    if isinstance(value, float):
        return None if math.isnan(value) else html.Html(f"{value:.3f}")
    topics = value.split("; ") if isinstance(value, str) else []
    return value if len(topics) <= SHOWN_TOPICS else "; ".join([*topics[:SHOWN_TOPICS], "…"])


@dataclass(frozen=True, repr=False)
class Comparison(ShortRepr):
    """Results of a comparison.

    Attributes
    ----------
    folder : str
        Folder of the comparison.
    rows : tuple of dict
        A row for each cell, as in ``table.parquet``.
    plots : tuple of str
        Names of the plots, without suffix.
    tables : str
        The table as Markdown.
    recommendation : Recommendation or None
        The recommended number of topics with its reason, as text by ``str``; None for other comparisons.
    """

    folder: str
    rows: tuple[JsonObject, ...]
    plots: tuple[str, ...]
    tables: str
    recommendation: Recommendation | None = None

    def frame(self) -> pd.DataFrame:
        """Return the table as a data frame.

        Returns
        -------
        pandas.DataFrame
            A row for each cell, by its name. Over topics, a row for each number of topics: the score with its standard
            error over documents, in nats per token; the gain over the number before for twice as many topics;
            coherence, exclusivity, dispersion of the residuals, diversity; the stability of the topics, and the share
            that another seed found again; whether the number is recommended; and the first words of the largest topics.
        """
        frame = require_pandas().DataFrame(self.rows)
        if self.recommendation is None:
            return frame.drop(columns=["definitions"]).set_index("cell")
        frame = frame[frame["family"] == self.rows[0]["family"]].sort_values("topics").set_index("topics")
        frame["recommended"] = frame.index == self.recommendation.topics
        frame["words"] = ["; ".join(" ".join(topic[:3]) for topic in words[:TOPICS_SHOWN]) for words in frame["words"]]
        return frame[[name for name in OVER_TOPICS_COLUMNS if name in frame]]

    def plot(self) -> Figure:
        """Return the picture of the comparison, which its folder has in `plots`, as a Matplotlib figure."""
        chosen = None if self.recommendation is None else self.recommendation.topics
        return comparison_figure(self.rows, chosen)

    def _repr_html_(self) -> str:
        """Return a table with a row for each cell, for notebooks."""
        frame = self.frame()
        columns = [name for name in SHOWN_COLUMNS if name in frame and frame[name].notna().any()]
        rows = [[str(name), *(_cell(row[field]) for field in columns)] for name, row in frame.iterrows()]
        table = html.table([str(frame.index.name), *(field.replace("_", " ") for field in columns)], rows)
        title = "Comparison" if self.recommendation is None else str(self.recommendation)
        return html.block(title[:1].upper() + title[1:], table)

    def __str__(self) -> str:
        return self.tables if self.recommendation is None else f"{self.tables}\n\n{self.recommendation}"


@shows("comparing", view=GridView)
@overwrites("out")
@keywords(options=CompareOptions, scheduling=Scheduling, memory=MemoryOptions)
def compare(
    corpus: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    options: CompareOptions,
    scheduling: Scheduling,
    memory: MemoryOptions,
    sinks: Sequence[Sink] = (),
    **reading: Any,
) -> Comparison:
    """Compare numbers of topics, or families over numbers of topics and restarts, by held-out tokens.

    Over topics, a family is fitted with several numbers of topics, and one is recommended. An interrupted comparison is
    continued by a call with the same options.

    Parameters
    ----------
    corpus : Corpus, path, sequence of paths or str, column or frame
        A corpus, or texts, as `fit` takes them.
    out : str or path-like, optional
        Folder of the comparison, new or to be continued. By default nothing stays on disk: a temporary folder is
        removed when the comparison is collected.
    options : CompareOptions
        Families, grid, iterations and held-out data.
    memory : MemoryOptions
        Memory and scratch space.
    sinks
        As for `fit`.
    **reading
        Options of `ingest` for texts, as for `fit`.

    Returns
    -------
    Comparison
        The results; the folder also has the runs of all fits and a plot.

    Raises
    ------
    OptionError
        An option is invalid, or differs from the comparison to continue.
    MismatchError
        The corpora have different vocabularies or documents.
    LockedError
        Another process is working on the comparison.
    CollapsiumError
        As for `fit`.
    """
    if out is None and is_elsewhere(scheduling.scheduler):
        raise OptionError("required with workers that do not see a temporary folder", "out")
    words = reading_of(reading, corpus, ())
    unknown = next(iter(reading), None)
    if unknown is not None and unknown in CompareOptions.gone:
        raise OptionError(f"is no longer an option: {CompareOptions.gone[unknown]}", unknown)
    if unknown is not None:
        known = (*option_names(compare), *options_of_reading(corpus))
        raise OptionError(f"compare: unknown option {unknown!r}{suggestion(unknown, known)}")
    execution = {**dict(scheduling), **dict(memory)}
    # The comparison has split the corpus of texts into separate corpora, and no longer needs it.
    with place_for(out, "comparison") as place, corpus_of(corpus, words, scheduling.scheduler) as train:
        return place.with_temporary(_run(train, Folder(place.path), options, execution, sinks))


def _run(
    train: Corpus, folder: Folder, options: CompareOptions, execution: Mapping[str, Any], sinks: Sequence[Sink]
) -> Comparison:
    # All checks come before anything is written.
    require_comparable(train, options)
    cells = cells_of(options, len(train.manifest.shards))
    corpora = Corpora(train, options)
    corpora.require()
    require_metrics(options, train)
    check_scheduler(execution["scheduler"], execution["workers"])
    if execution["memory"] is not None:
        parse_size(execution["memory"])
    heldout = None if options.heldout is None else corpora.scored.manifest.digest
    is_new = _begin(folder, {**options.record(), "corpus": train.manifest.digest, "heldout": heldout})
    with RunLock(folder / "lock") as lock:
        fenced = folder.fenced(lock)
        try:
            corpora.prepare(fenced)
            return _compare(cells, Fitter(fenced, corpora, execution, sinks, lock.require))
        except CollapsiumError:
            if is_new and not cells_done(fenced) and not any(True for _ in runs_there(fenced)):
                fenced.remove()
            raise


def _begin(folder: Folder, record: Mapping[str, Any]) -> bool:
    """Write the record, or require the record of the comparison to continue; return whether it is new."""
    is_new = not folder.exists(RECORD)
    if is_new:
        if folder.exists() and folder.names():
            raise OccupiedError(f"{folder.url}: exists, and is not a comparison; name a new folder")
        folder.make()
        folder.create(RECORD, dump({"format": KIND, "version": VERSION, **record}))
    before = record_of(folder)
    for name, value in {**FORMER, **record}.items():
        recorded = before.get(name)
        if (ABSENT.get(name) if recorded is None else recorded) != value:
            flag = FLAGS.get(name, flag_of(former_names(CompareOptions).get(name, name)))
            raise OptionError(
                f"{flag}: the comparison in {folder.url} was begun with {shown(before.get(name))}, found "
                f"{shown(value)}; name a new folder, or use the same value"
            )
    return is_new


def _compare(cells: Sequence[Cell], fitter: Fitter) -> Comparison:
    """Fit and measure the cells that are not done, and write the table and the plot."""
    corpora, folder = fitter.corpora, fitter.folder
    options = corpora.options

    def report(event: str, **fields: object) -> None:
        emit(fitter.sinks, {"event": event, **fields})

    done = [cell for cell in cells if (folder / CELLS).exists(cell.name + SUFFIX)]
    work, work_done = (sum(cell.work for cell in some) for some in (cells, done))
    report("grid", cells=len(cells), done=len(done), work=work, work_done=work_done)
    rows: list[JsonObject] = []
    schema = row_schema(options)
    for cell in cells:
        if cell in done:
            rows.append(row_of(folder, cell.name))
        else:
            report("cell_begins", cell=cell.name, fits=cell.restarts, iterations=cell.iterations, work=cell.work)
            began = time.perf_counter()
            rows.append(measured_row(fitter.fit(cell), fitter))
            fitter.require_lock()
            record = {"format": CELL_KIND, "version": VERSION, "row": rows[-1]}
            (folder / CELLS).write(cell.name + SUFFIX, dump(record))
            score = {name: rows[-1][name] for name in ("score", "score_error")}
            report("cell_done", cell=cell.name, work=cell.work, elapsed=time.perf_counter() - began, **score)
        write_rows(folder, TABLE, rows, schema)
        folder.write(TEXT, report_text(corpora, rows).encode())
    choice = None
    if options.over == "topics":
        urls = {cell.name: fitter.fits_of(cell).urls for cell in cells}
        with contextlib.closing(open_executor(**fitter.scoring())) as executor:
            studied(rows, urls, corpora.scored.url, executor)
        choice = recommended(rows)
        write_rows(folder, TABLE, rows, pa.schema([*schema, *map(pa.field, STUDIED, STUDIED.values())]))
        folder.write(TEXT, f"{report_text(corpora, rows)}\n{choice}\n".encode())
    chosen = None if choice is None else choice.topics
    plots = draw_plot(rows, folder / "plots", chosen)
    if plots is None:
        report("notice", text="no plots: matplotlib is not installed (pip install 'collapsium[plots]')")
    report("compared", rows=len(rows), plots=len(plots or ()))
    return Comparison(folder.url, tuple(rows), tuple(plots or ()), table_text(options, rows), choice)
