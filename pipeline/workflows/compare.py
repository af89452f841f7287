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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from collapsium.pipeline.analysis.evaluate import evaluate_together
from collapsium.pipeline.analysis.metrics.catalogue import USES, Metric, Needs, is_all, metrics_of
from collapsium.pipeline.analysis.metrics.labelled import field_of
from collapsium.pipeline.analysis.metrics.measure import REFUSALS, document_sums, measure
from collapsium.pipeline.analysis.scoring import Predicted, Scored, added
from collapsium.pipeline.corpora.new_texts import corpus_of, names_corpus, options_of_reading, reading_of
from collapsium.pipeline.corpora.split import split
from collapsium.pipeline.engine.fit import fit, resume
from collapsium.pipeline.engine.leakage import require_held_out
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.engine.setup.request import require_tokens
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import MemoryOptions, Scheduling, check_scheduler, is_elsewhere
from collapsium.pipeline.fitted_model import load_blocks, require_pandas
from collapsium.pipeline.formatting import counted, duration_text
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import require_corpus
from collapsium.pipeline.models.topics import describe, stability, topics
from collapsium.pipeline.monitoring.console import LogLines
from collapsium.pipeline.monitoring.events import Event, Sink, emit, loss_text, saving_text
from collapsium.pipeline.monitoring.progress import ProgressLine, shows
from collapsium.pipeline.options import keywords, option_names
from collapsium.pipeline.outputs import overwrites, place_for
from collapsium.pipeline.reporting.plots.comparison import TOPICS_SHOWN, comparison_figure
from collapsium.pipeline.reporting.plots.style import can_draw, drawn
from collapsium.pipeline.workflows.compare_options import (
    OTHER_WORK,
    REFERENCE,
    SAMPLE_TOKENS,
    START_WORK,
    Cell,
    CompareOptions,
    cells_of,
    shown,
)
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
    RANDOM,
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
from collapsium.storage.runs.members import leaves
from collapsium.storage.runs.run import EVENTS, JOURNAL, Run, parse_event
from collapsium.storage.units import parse_size
from collapsium.workers.families.description import holding
from collapsium.workers.kernels.compilation_text import progress_text
from collapsium.workers.options import former_names

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


MIN_SHARE_FOR_ESTIMATE = 0.1  # Share of all work that must be done before the remaining time is estimated
LOG_SECONDS = 10.0  # Seconds between two lines of a log on the iterations


class GridView:
    """A sink that shows a comparison in a line or, without one, in a log."""

    def __init__(self, line: ProgressLine | None = None, *, log: LogLines | None = None) -> None:
        self._line = line
        # A log writes both the lines that stay and the states of the line that is updated.
        write = (log or LogLines()).write
        self.note: Callable[[str], None] = write if line is None else line.note
        self._update: Callable[[str], None] = write if line is None else line.update
        self._cells = self._done = 0
        self._total = self._finished = self._before = 0.0  # Work, in steps of all fits
        self._cell: Event = {}  # The event that began the current cell
        self._reached: dict[int, int] = {}  # Iterations of the cell's fits, by member
        self._opened = self._began = self._last = time.monotonic()
        self._timed = False  # Whether the first fit has begun

    def __call__(self, event: Event) -> None:
        """Show an event, if its kind is shown."""
        kind = event["event"]
        if kind == "grid":
            self._cells, self._done = event["cells"], event["done"]
            self._total, self._finished = max(event["work"], 1.0), event["work_done"]
            self._before, self._began = self._finished, time.monotonic()
            self.note(f"{counted(self._cells, 'cell')}, {self._done} done before")
        elif kind == "compiling" and (self._line is not None or not event["compiled"]):
            self._update(progress_text(event["compiled"], event["kernels"]))
        elif kind == "start" and not self._timed:
            # Kernels are compiled once, so that their time predicts nothing.
            self._began, self._timed = time.monotonic(), True
        elif kind == "cell_begins":
            self._cell, self._reached = event, {}
            fits, iterations = counted(event["fits"], "fit"), counted(event["iterations"], "iteration")
            self._update(f"{self._cell_text()}: {fits} of {iterations}{self._left(self._finished)}")
        elif kind == "iteration" and self._cell:
            self._reached[event.get("member", 0)] = event["iteration"]
            finished, planned = sum(self._reached.values()), self._cell["fits"] * self._cell["iterations"]
            share = min((finished + START_WORK * self._cell["fits"]) / (planned + OTHER_WORK * self._cell["fits"]), 1.0)
            done, now = self._finished + float(self._cell["work"]) * share, time.monotonic()
            if self._line is not None or now - self._last >= LOG_SECONDS:
                self._last = now
                text = f"{self._cell_text()}: {finished:,} of {planned:,} iterations; {done / self._total:.0%} of all"
                self._update(f"{text}{self._left(done)}")
        elif kind == "cell_done":
            error = event.get("score_error")
            score = f"  score {event['score']:.4f}" + ("" if error is None else f" ± {error:.4f}")
            self._done, self._finished, self._cell = self._done + 1, self._finished + event["work"], {}
            text = f"{event['cell']}: {duration_text(event['elapsed'])}{score}"
            self.note(f"{text}  ({self._done} of {self._cells} done{self._left(self._finished)})")
        elif kind == "notice":
            self.note(event["text"])
        elif kind == "back":
            self.note(loss_text(event))
        elif kind == "saving":
            member = f"member {event['member']}: " if "member" in event else ""
            self._update(f"{member}{saving_text(event)}")
        elif kind == "compared" and self._line is not None:
            seconds = duration_text(time.monotonic() - self._opened)
            self._line.finish(f"compared {counted(event['rows'], 'cell')} in {seconds}")

    def _cell_text(self) -> str:
        return f"{self._cell['cell']} ({min(self._done + 1, self._cells)} of {self._cells})"

    def _left(self, done: float) -> str:
        completed = done - self._before
        if completed < MIN_SHARE_FOR_ESTIMATE * self._total or done >= self._total:
            return ""
        spent = time.monotonic() - self._began
        return f", about {duration_text(spent / completed * (self._total - done))} left"


Floats = npt.NDArray[np.float64]
Row = Mapping[str, Any]

WORDS = 6  # Words of each topic in frames
# Nats per token that twice as many topics must gain: perplexity falls by 2%. On text scores rise far beyond numbers of
# topics that a person reads, by ever less.
LEAST_GAIN = 0.02
ERRORS = 2.0  # Standard errors by which a gain must exceed 0
LEAST_SUPPORT = 0.5  # Share of the topics that another seed must find again, for topics that are to be read
SAMPLE_SHARD_TOKENS = SAMPLE_TOKENS // 8  # Tokens of a shard of sampled documents, so that threads share them
WORK = ("kernel", "reduce", "update")  # Activities of an iteration whose time counts as work


@dataclass(frozen=True)
class Recommendation:
    """The recommended number of topics, with the reason in plain English."""

    topics: int
    reason: str
    reference: str = ""  # How many topics another family finds, as a sentence; empty if it was not fitted

    def __str__(self) -> str:
        return f"recommended: {self.topics} topics. {self.reason}" + (f" {self.reference}" if self.reference else "")


def mean_per_token(logs: Floats, tokens: Floats) -> tuple[float, float]:
    """Return the mean of documents' log probabilities over their held-out tokens, and its standard error.

    The error is for a ratio of sums over documents, whose tokens depend on each other.
    """
    total = float(tokens.sum())
    score = float(logs.sum()) / total
    return score, math.sqrt(float(((logs - score * tokens) ** 2).sum())) / total


def studied(rows: Sequence[JsonObject], cells: Sequence[Cell], grid: Grid, executor: Executor) -> None:
    """Add to the rows of each family, by increasing K: the gain over the last K, what another seed finds, and words."""
    before: dict[str, tuple[int, Floats]] = {}
    runs = {cell.name: grid.runs_of(cell) for cell in cells}
    for row in sorted(rows, key=lambda row: row["topics"] or 0):
        models = [Model(run.folder.url) for run in runs[row["cell"]]]
        scored, logs = Scored(Corpus(grid.heldout.url), True), []
        submit = scored.submit(scored.held(models[0]), executor, 0)
        for run in runs[row["cell"]]:
            sums: list[Future[Predicted]] = []
            samples = leaves(run.folder.url)
            for _, url in samples:
                sample = Model(url)
                sums = added(sums, submit(sample, load_blocks(sample, executor)), executor)
            shards = [executor.submit(document_sums, shard, len(samples)) for shard in sums]
            of_shards, tokens_of_shards = zip(*executor.collect(shards), strict=True)
            logs.append(np.concatenate(of_shards))
            tokens = np.concatenate(tokens_of_shards)
        log: Floats = np.mean(logs, axis=0)
        row["document_error"] = mean_per_token(log, tokens)[1]
        if row["family"] in before and row["topics"]:
            fewer, last = before[row["family"]]
            gain, error = mean_per_token(log - last, tokens)
            doublings = math.log2(row["topics"] / fewer)
            row["gain"], row["gain_error"] = gain / doublings, error / doublings
        before[row["family"]] = row["topics"], log
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
    for following in candidates[1:]:
        if not (following["gain"] >= LEAST_GAIN and following["gain"] > ERRORS * following["gain_error"]):
            break
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
    metrics = [f"{name} {row[name]:.3f}" for name in ("npmi", "exclusivity", "dispersion") if row.get(name) is not None]
    reasons.append(f"There, {', '.join(metrics)}." if metrics else "")
    references = [other for other in rows if other["family"] == REFERENCE != family]
    reference = max(references, key=lambda row: int(row["topics"]), default=None)
    sentence = ""
    if reference is not None and reference["remark"] is not None:
        sentence = f"{reference['family']}: {reference['remark']}."
    elif reference is not None:
        sentence = (
            f"{reference['family']}, with {reference['topics']} topics at most, finds {reference['topics_99']:.0f}."
        )
    return Recommendation(int(row["topics"]), " ".join(filter(None, reasons)), sentence)


def _gain_text(row: Row) -> str:
    return f"{row['gain']:.3f} ± {row['gain_error']:.3f} nats per token"


def _require_comparable(corpus: Corpus, options: CompareOptions) -> None:
    """Refuse corpora that cannot be fitted or do not belong together, and metrics that lack data."""
    for name in options.fitted_families:
        require_corpus(name, corpus)
    if corpus.holds != DOCUMENTS:
        raise MismatchError(
            f"{corpus.url}: a corpus of vectors; families are compared by held-out tokens, which vectors do not have: "
            "fit each, and score it with `collapsium evaluate RUN --unseen CORPUS`"
        )
    if options.fraction is None:
        heldout = corpus if options.heldout is None else Corpus(options.heldout)
        if options.sample_documents is not None:
            raise OptionError(
                "draws documents before tokens are split off, so it excludes corpora of tokens", "sample_documents"
            )
        require_tokens(heldout)
        heldout.require_vocabulary_of(corpus.manifest.vocabulary.words_sha256, corpus.url)
        require_held_out(lineage_of(corpus), heldout, f"the training corpus {corpus.url}")
        if heldout.manifest.documents != corpus.manifest.documents:
            raise MismatchError(
                f"{heldout.url}: expected the {corpus.manifest.documents} documents of {corpus.url}, "
                f"found {heldout.manifest.documents}"
            )
    chosen = () if not options.metrics or is_all(options.metrics) else metrics_of(options.metrics)
    needed = {metric.needs: metric.name for metric in reversed(chosen)}
    if Needs.TEXTS in needed and (options.coherence is None or names_corpus(options.coherence)):
        raise OptionError(f"{needed[Needs.TEXTS]}: needs texts, as a corpus has no order of words (`coherence` TEXTS)")
    if Needs.DOCUMENTS in needed:
        how = "measure it with `collapsium evaluate RUN --unseen CORPUS`"
        raise OptionError(f"{needed[Needs.DOCUMENTS]}: needs documents that are not fitted; {how}")
    if Needs.LABELS in needed or Needs.CLASSES in needed:
        field_of(corpus, options.label_field)


def _split(corpus: Corpus, options: CompareOptions, folder: Folder) -> tuple[Corpus, Corpus, Corpus]:
    """Return the compared documents, their training and their held-out tokens, which may be in the folder already."""
    manifest, share = corpus.manifest, 1.0
    if options.sample_documents is not None:
        share = options.sample_documents / manifest.documents
    elif options.over == "topics" and options.fraction is not None:
        share = SAMPLE_TOKENS / max(manifest.tokens, 1)
    if share < 1.0:
        sample = folder / SAMPLE
        if not sample.exists():
            sample_documents(corpus, sample.url, share, shard_tokens=SAMPLE_SHARD_TOKENS, seed=options.seed)
        corpus = Corpus(sample.url)
    train, heldout = corpus, corpus if options.heldout is None else Corpus(options.heldout)
    if options.fraction is not None:
        parts = [folder / part for part in PARTS]
        if not all(part.exists() for part in parts):
            for part in parts:
                # A process that died may have left one of them.
                part.remove()
            split(corpus.url, *(part.url for part in parts), fraction=options.fraction, seed=options.seed)
        train, heldout = (Corpus(part.url) for part in parts)
    for tokens in (train, heldout):
        if not tokens.manifest.tokens:
            raise InputError(tokens.url, "has no tokens to score; hold out another --fraction")
    return corpus, train, heldout


def work_seconds(event: Event) -> float:
    """Return the seconds of work of an iteration, without scoring and waiting."""
    return sum(float(event.get("seconds", {}).get(name, 0.0)) for name in WORK)


@dataclass(frozen=True)
class Grid:
    """A comparison in its folder, whose cells are fitted to training tokens and scored on held-out ones."""

    options: CompareOptions
    folder: Folder
    corpus: Corpus  # The compared documents
    train: Corpus
    heldout: Corpus
    execution: Mapping[str, Any]  # Arguments of `fit` for the executor, memory and scratch space
    sinks: Sequence[Sink]  # Receive the events of the fits
    require_lock: Callable[[], None]  # Raises an error if another process has taken over the comparison

    def runs_of(self, cell: Cell) -> list[Run]:
        """Return the runs of a cell's restarts, which need not exist yet."""
        ensemble = Run((self.folder / RUNS / cell.name).url)
        return [ensemble.in_member(number) for number in range(cell.restarts)]

    @property
    def scoring(self) -> dict[str, Any]:
        """The executor of scores; threads replace a local cluster, which would start for each score."""
        where = {name: self.execution[name] for name in ("scheduler", "workers", "tls")}
        return where | {"scheduler": "threads", "tls": None} if where["scheduler"] == "local" else where

    def fit(self, cell: Cell) -> None:
        """Run or resume a cell's fits, in parallel; their events get the name of the cell."""
        self.require_lock()
        folder, options, corpora = self.folder / RUNS / cell.name, self.options, (self.train.url, self.heldout.url)
        where = {**self.execution, "sinks": [lambda event: emit(self.sinks, {**event, "cell": cell.name})]}
        if Run(folder.url).exists():
            resume(folder.url, corpus=corpora[0], heldout=corpora[1], **where)
            return
        if folder.exists():
            # A process died before it wrote the run's record.
            folder.remove()
        named = {**cell.options, **cell.limits, **options.fit_options, "seed": options.seed, "restarts": cell.restarts}
        fit(corpora[0], folder.url, family=cell.family, heldout=corpora[1], **named, **where)


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
COLUMNS: tuple[tuple[str, str, str, str], ...] = (
    ("score", "score", ".4f", "score_error"),
    ("ensemble", "ensemble_score", ".4f", ""),
    ("perplexity", "perplexity", ".1f", ""),
    ("objective", "objective", ",.0f", "objective_error"),
    ("seconds per fit", "seconds", ".2f", ""),
    ("of the cell", "cell_seconds", ".1f", ""),
    ("topics (99%)", "topics_99", ".1f", ""),
)
STUDIED_COLUMNS = (
    ("gain of twice as many", "gain", ".3f", "gain_error"),
    ("stability", "stability", ".2f", ""),
    ("found again", "found_again", ".2f", ""),
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


def measured_row(cell: Cell, grid: Grid) -> JsonObject:
    """Return the row of a cell with completed fits, with scores in nats per token."""
    options, where, heldout, runs = grid.options, grid.scoring, grid.heldout.url, grid.runs_of(cell)
    urls = [run.folder.url for run in runs]
    iterations = [[event for event in run.events() if event["event"] == "iteration"] for run in runs]
    scores: list[float] = []
    for url, events in zip(urls, iterations, strict=True):
        if not events:
            raise DamagedError(f"{url}/{EVENTS}", "expected iterations of a fit, found none")
        if cell.limits.get("samples"):
            scores.append(evaluate_together([url], heldout, **where).score)
        elif "score" in events[-1]:
            scores.append(float(events[-1]["score"]))
        else:
            raise DamagedError(f"{url}/{EVENTS}", "expected a score of the last iteration")
    objectives = [events[-1]["objective"] for events in iterations if "objective" in events[-1]]
    row: JsonObject = {
        "cell": cell.name,
        "family": cell.family,
        "start": _initialisation(runs[0]) if cell.start == RANDOM else cell.start,
        "topics": cell.topics,
        "restarts": cell.restarts,
        "iterations": cell.iterations,
        "samples": int(cell.limits.get("samples", 0)),
        "options": json.dumps({**cell.options, **cell.limits}, sort_keys=True),
        "definitions": {},
        "score": statistics.fmean(scores),
        "score_error": _standard_error(scores),
        "ensemble_score": evaluate_together(urls, heldout, **where).score,
        "perplexity": math.exp(-statistics.fmean(scores)),
        "scores": scores,
        "objective": statistics.fmean(objectives) if objectives else None,
        "objective_error": _standard_error(objectives),
        "seconds": statistics.fmean(sum(map(work_seconds, events)) for events in iterations),
        "cell_seconds": _elapsed_seconds(grid.folder / RUNS / cell.name),
        "topics_99": statistics.fmean(holding(describe(Model(url), 1).share) for url in urls),
    }
    # The words come from the last states, even if samples were saved.
    last_states = [run.model.url for run in runs]
    _add_metrics(row, last_states, metrics_of(TOPIC_METRICS), {"coherence": grid.train.url, **where})
    for needs in Needs:
        used = {name: getattr(options, name) for name in ("label_field", "coherence") if needs in USES[name]}
        chosen = [metric for metric in _further(options) if metric.needs is needs]
        _add_metrics(row, urls, chosen, {"heldout": heldout, **where, "seed": options.seed, **used})
    return row


def _initialisation(run: Run) -> str:
    """Return the initialisation of a fit, such as quick-clusters."""
    return str((run.record().get("start") or {}).get("kind", RANDOM))


def _elapsed_seconds(folder: Folder) -> float:
    """Return the elapsed seconds of an ensemble, whose journal has an end for each time that it was started."""
    elapsed = 0.0
    for line in folder.read(JOURNAL).splitlines():
        # A process that died may have left a line unfinished.
        with contextlib.suppress(DamagedError):
            event = parse_event(line, f"{folder.url}/{JOURNAL}", "a line")
            elapsed += float(event["elapsed"]) if event["event"] == "end" and "members" in event else 0.0
    return elapsed


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


def write_table(folder: Folder, options: CompareOptions, rows: Sequence[Row]) -> None:
    """Write rows as a Parquet file, atomically; fields that no column is for are left out."""
    metrics = (*TOPIC_METRICS, *(metric.field for metric in _further(options)))
    studied_fields = STUDIED if options.over == "topics" else {}
    schema = pa.schema({**CELL_FIELDS, **dict.fromkeys(metrics, pa.float64()), **studied_fields})
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=schema), sink)
    folder.write(TABLE, sink.getvalue())


def number_text(value: float | None, form: str, error: float | None = None) -> str:
    """Return a formatted number with its standard error, if it has one; an empty text for None."""
    if value is None:
        return ""
    return format(value, form) + ("" if error is None else f" ± {error:{form}}")


def table_text(options: CompareOptions, rows: Sequence[Row]) -> str:
    """Return the table of cells as Markdown."""
    metrics = [*metrics_of(TOPIC_METRICS), *_further(options)]
    columns = [*COLUMNS, *((metric.name, metric.field, ".4f", "") for metric in metrics), *STUDIED_COLUMNS]
    optional = {field for _, field, *_ in columns[len(COLUMNS) :]}
    measured = {field for field in optional if any(row.get(field) is not None for row in rows)}
    columns = [column for column in columns if column[1] not in optional - measured]
    heads = ["family", "start", "K", "restarts", "iterations", *(head for head, *_ in columns)]
    body = [heads, ["---", "---", *["---:"] * (len(heads) - 2)]]
    for row in rows:
        samples = f", {row['samples']} samples" if row["samples"] else ""
        cell = [row["family"], row["start"], number_text(row["topics"], "d"), str(row["restarts"])]
        cell.append(f"{row['iterations']}{samples}")
        cell += [number_text(row.get(field), form, row.get(error)) for _, field, form, error in columns]
        body.append(cell)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in body)


def report_text(grid: Grid, rows: Sequence[Row]) -> str:
    """Return a report as Markdown: the comparison, its table, and the definitions of its columns."""
    options, corpus, heldout, train = grid.options, grid.corpus, grid.heldout.manifest, grid.train.manifest
    origin = f"of {grid.heldout.url}" if options.fraction is None else f"({options.fraction:g} of all, split off)"
    about = (
        f"Corpus: {corpus.url}, {corpus.manifest.documents:,} documents, "
        f"{corpus.manifest.vocabulary.words:,} words; fitted to {train.tokens:,} tokens in {len(train.shards)} "
        f"shards, scored on {heldout.tokens:,} tokens {origin}. Seed {options.seed}."
    )
    chosen = (("Options", options.settings, "; defaults otherwise."), ("Varied", options.vary, "."))
    paragraphs = ["# Comparison", about, *(f"{name}: {shown(value)}{end}" for name, value, end in chosen if value)]
    notes = DEFINITIONS + (OVER_TOPICS_DEFINITIONS if options.over == "topics" else "")
    texts = {name: text for row in rows for name, text in row.get("definitions", {}).items()}
    for name, (text, source) in texts.items():
        notes += f"* **{name}**: {text}; mean over the restarts. {source}.\n"
    return "\n\n".join([*paragraphs, table_text(options, rows), notes])


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
        return comparison_figure(self.rows, None if self.recommendation is None else self.recommendation.topics)

    def _repr_html_(self) -> str:
        """Return a table with a row for each cell, for notebooks."""

        def cell(value: Any) -> html.Cell:
            if isinstance(value, float):
                return None if math.isnan(value) else html.Html(f"{value:.3f}")
            topics = value.split("; ") if isinstance(value, str) else []
            return value if len(topics) <= SHOWN_TOPICS else "; ".join([*topics[:SHOWN_TOPICS], "…"])

        frame = self.frame()
        columns = [name for name in SHOWN_COLUMNS if name in frame and frame[name].notna().any()]
        rows = [[str(name), *(cell(row[field]) for field in columns)] for name, row in frame.iterrows()]
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

    `settings` and `vary` are mappings by family, such as ``settings={"hdp": {"order": 2}}`` and
    ``vary={"*": {"beta": [50, 100]}}``.

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
    with place_for(out, "comparison") as place, corpus_of(corpus, words, scheduling.scheduler) as source:
        # All checks come before anything is written.
        _require_comparable(source, options)
        cells = cells_of(options, len(source.manifest.shards))
        check_scheduler(scheduling.scheduler, scheduling.workers)
        if memory.memory is not None:
            parse_size(memory.memory)
        folder = Folder(place.path)
        heldout = None if options.heldout is None else Corpus(options.heldout).manifest.digest
        record = {**options.record(), "corpus": source.manifest.digest, "heldout": heldout}
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
                    f"{flag}: the comparison in {folder.url} was begun with {shown(recorded)}, found "
                    f"{shown(value)}; name a new folder, or use the same value"
                )
        with RunLock(folder / "lock") as lock:
            fenced = folder.fenced(lock)
            try:
                grid = Grid(options, fenced, *_split(source, options, fenced), execution, sinks, lock.require)
                return place.with_temporary(_compare(cells, grid))
            except CollapsiumError:
                if is_new and not cells_done(fenced) and not any(True for _ in runs_there(fenced)):
                    fenced.remove()
                raise


def _compare(cells: Sequence[Cell], grid: Grid) -> Comparison:
    """Fit and measure the cells that are not done, and write the table and the plot."""
    options, folder = grid.options, grid.folder

    def report(event: str, **fields: object) -> None:
        emit(grid.sinks, {"event": event, **fields})

    done = [cell for cell in cells if (folder / CELLS).exists(cell.name + SUFFIX)]
    work, work_done = (sum(cell.work for cell in some) for some in (cells, done))
    report("grid", cells=len(cells), done=len(done), work=work, work_done=work_done)
    rows: list[JsonObject] = []
    for cell in cells:
        if cell in done:
            rows.append(row_of(folder, cell.name))
        else:
            report("cell_begins", cell=cell.name, fits=cell.restarts, iterations=cell.iterations, work=cell.work)
            began = time.perf_counter()
            grid.fit(cell)
            rows.append(measured_row(cell, grid))
            grid.require_lock()
            record = {"format": CELL_KIND, "version": VERSION, "row": rows[-1]}
            (folder / CELLS).write(cell.name + SUFFIX, dump(record))
            score = {name: rows[-1][name] for name in ("score", "score_error")}
            report("cell_done", cell=cell.name, work=cell.work, elapsed=time.perf_counter() - began, **score)
        write_table(folder, options, rows)
        folder.write(TEXT, report_text(grid, rows).encode())
    choice = None
    if options.over == "topics":
        with contextlib.closing(open_executor(**grid.scoring)) as executor:
            studied(rows, cells, grid, executor)
        choice = recommended(rows)
        write_table(folder, options, rows)
        folder.write(TEXT, f"{report_text(grid, rows)}\n{choice}\n".encode())
    comparison = Comparison(folder.url, tuple(rows), (), table_text(options, rows), choice)
    if can_draw():
        comparison = replace(comparison, plots=(PLOT if choice is None else TOPICS_PLOT,))
        for suffix in ("png", "svg"):
            (folder / "plots").write(f"{comparison.plots[0]}.{suffix}", drawn(comparison.plot, suffix))
    else:
        report("notice", text="no plots: matplotlib is not installed (pip install 'collapsium[plots]')")
    report("compared", rows=len(rows), plots=len(comparison.plots))
    return comparison
