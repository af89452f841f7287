"""What a comparison's cells came to: a row a cell, a series an iteration, and the table of it all."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from collapsium.pipeline.analysis.coherence import Coherence, coherence
from collapsium.pipeline.analysis.evaluate import evaluate_together
from collapsium.pipeline.analysis.topics import describe
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.families.description import holding
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.workflows.compare import tables
from collapsium.pipeline.workflows.compare.grid import Asked, Cell
from collapsium.pipeline.workflows.compare.options import shown
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import DamagedError, InputError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.event_records import parse_event
from collapsium.storage.runs.run import EVENTS, JOURNAL, Run

WORK = ("kernel", "reduce", "update")  # what counts of an iteration's time
ROW = tables.row_schema((name, pa.float64()) for name in ("npmi", "diversity"))
COLUMNS = (
    tables.FAMILY,
    tables.Column("start", lambda row: str(row["start"]), number=False),
    tables.TOPICS,
    tables.RESTARTS,
    tables.ITERATIONS,
    tables.SCORE,
    tables.ENSEMBLE,
    tables.PERPLEXITY,
    tables.figure("objective", "objective", ",.0f", "objective_error"),
    tables.SECONDS,
    tables.figure("of the cell", "cell_seconds", ".1f"),
    tables.TOPICS_99,
    tables.figure("coherence", "npmi", ".4f"),
    tables.figure("diversity", "diversity", ".4f"),
)
SERIES = pa.schema(
    [
        *((name, pa.string()) for name in ("cell", "family", "start")),
        *((name, pa.int32()) for name in ("topics", "restart", "iteration")),
        *((name, pa.float64()) for name in ("steps", "seconds", "score", "objective", "topics_99")),
    ]
)
DEFINITIONS = """\
* **Score**: document completion, the mean over the held-out tokens of the training documents of
  log sum_k theta_dk phi_kw, in nats; higher is better. Of each fit it is that of its last iteration or, where samples
  are kept, of the mean of their predictions. Told are the mean over the restarts and its standard error, s / sqrt(R).
* **Ensemble**: the same, of the mean of the predictions of all restarts and samples.
* **Perplexity**: exp(-score), lower is better.
* **Objective**: the family's own at the last iteration, in nats, mean over the restarts: a bound on the log probability
  of the training tokens, or log p(w, z) of a sample. Those of different families are not comparable.
* **Seconds**: of a fit, the mean over the restarts: kernels, sums and updates of all iterations as if all workers had
  worked on it; scoring and waiting are not counted. Of the cell: from the first fit's beginning to the last one's end,
  scoring and waiting included, fits running side by side; what a process that was killed has spent is not known.
  Of fits that begin from others, the time of those is not counted.
* **Topics (99%)**: how many of the largest topics hold 99% of the training tokens, mean over the restarts.
* **Coherence**: NPMI of each topic's ten most probable words by co-occurrence in training documents, mean over topics
  and restarts. **Diversity**: the share of different words among the 25 most probable ones of all topics. Topics with
  less than one token are left out of both.
* In series.parquet and in the plots against steps and seconds, a score is that of the state of one iteration alone, and
  seconds are those of the work. Lines are means over the restarts, bars and bands standard errors.
"""


@dataclass(frozen=True)
class Reading:
    """Where scores are computed, as for `collapsium.pipeline.evaluate`."""

    scheduler: str
    workers: int | None
    tls: TLS | None

    def options(self) -> dict[str, Any]:
        """Return these as keywords."""
        return {"scheduler": self.scheduler, "workers": self.workers, "tls": self.tls}


def runs_of(cell: Cell, place: Folder) -> list[Run]:
    """Return the runs of a cell's restarts: members of an ensemble or, of warm fits, runs side by side."""
    if cell.warm:
        return [Run((place / f"{number:03d}").url) for number in range(cell.restarts)]
    return [Run(place.url).in_member(number) for number in range(cell.restarts)]


def measure(cell: Cell, place: Folder, train: Corpus, heldout: Corpus, reading: Reading) -> dict[str, Any]:
    """Measure a cell whose fits are all at their ends.

    Parameters
    ----------
    cell : Cell
        The cell.
    place : Folder
        Where its runs lie.
    train, heldout : Corpus
        The two parts of the corpus.
    reading : Reading
        Where it is computed.

    Returns
    -------
    dict
        A row of the table; see `DEFINITIONS`.
    """
    runs, where = runs_of(cell, place), reading.options()
    scores = [_last_score(run) for run in runs]
    if cell.limits.get("samples"):
        scores = [evaluate_together([run.folder.url], heldout.url, **where).score for run in runs]
    together = evaluate_together([run.folder.url for run in runs], heldout.url, **where)
    coherent = _coherent(runs, train, where)
    found = {
        **spent(cell, place),
        **tables.summarise_scores(scores, together.score),
        "npmi": statistics.fmean(one.npmi for one in coherent) if coherent else None,
        "diversity": statistics.fmean(one.diversity for one in coherent) if coherent else None,
    }
    return {name: found[name] for name in ROW.names}


def spent(cell: Cell, place: Folder) -> dict[str, Any]:
    """Say what the fits of a cell took and came to, but how they predict.

    Parameters
    ----------
    cell : Cell
        The cell; its fits are all at their ends.
    place : Folder
        Where its runs lie.

    Returns
    -------
    dict
        Those fields of a row that need no other documents.
    """
    runs = runs_of(cell, place)
    told = [_iterations(run) for run in runs]
    objectives = [events[-1]["objective"] for events in told if "objective" in events[-1]]
    return {
        "cell": cell.name,
        "family": cell.family,
        "start": cell.start,
        "topics": cell.topics,
        "restarts": cell.restarts,
        "iterations": cell.iterations,
        "samples": int(cell.limits.get("samples", 0)),
        "objective": statistics.fmean(objectives) if objectives else None,
        "objective_error": tables.standard_error(objectives),
        "seconds": statistics.fmean(sum(_work(event) for event in events) for events in told),
        "cell_seconds": _cell_seconds(cell, place, runs),
        "topics_99": statistics.fmean(holding(describe(Model(run.folder.url), 1).share) for run in runs),
        "options": json.dumps({**cell.options, **cell.limits}, sort_keys=True),
    }


def _coherent(runs: Sequence[Run], train: Corpus, where: Mapping[str, Any]) -> list[Coherence]:
    """Measure the topics of all fits; nothing where a corpus or a fit has none to measure."""
    try:
        return [coherence(run.folder.url, train.url, **where) for run in runs]
    except InputError:
        return []


def _iterations(run: Run) -> list[dict[str, Any]]:
    told = [event for event in run.events() if event["event"] == "iteration"]
    if not told:
        raise DamagedError(f"{run.folder.url}/{EVENTS}", "expected iterations of a fit, found none")
    return told


def _work(event: Mapping[str, Any]) -> float:
    return sum(float(event.get("seconds", {}).get(name, 0.0)) for name in WORK)


def _last_score(run: Run) -> float:
    """Return the score of the last iteration of a run."""
    last = _iterations(run)[-1]
    if "score" not in last:
        raise DamagedError(f"{run.folder.url}/{EVENTS}", "expected a score of the last iteration")
    return float(last["score"])


def _cell_seconds(cell: Cell, place: Folder, runs: Sequence[Run]) -> float:
    """Return the time from beginnings to ends: an ensemble's journal has one end for each time that it was begun."""
    if cell.warm:
        return sum(float(run.events()[-1]["elapsed"]) for run in runs)
    spent = 0.0
    for line in place.read(JOURNAL).splitlines():
        with contextlib.suppress(DamagedError):  # a line that a process that died has not finished
            event = parse_event(line, f"{place.url}/{JOURNAL}", "a line")
            spent += float(event["elapsed"]) if event["event"] == "end" and "members" in event else 0.0
    return spent


def series_of(cell: Cell, place: Folder) -> list[dict[str, Any]]:
    """Return a cell's course, a row a restart and iteration.

    Parameters
    ----------
    cell : Cell
        The cell.
    place : Folder
        Where its runs lie.

    Returns
    -------
    list of dict
        ``steps`` are iterations times topics; where the family finds their number, the sum of those there were.
    """
    rows = []
    for restart, run in enumerate(runs_of(cell, place)):
        events = _iterations(run)
        seconds = itertools.accumulate(_work(event) for event in events)
        topics = [cell.topics if cell.topics is not None else event.get("topics", math.nan) for event in events]
        steps = itertools.accumulate(float(number) for number in topics)
        for event, spent, made in zip(events, seconds, steps, strict=True):
            named = {"cell": cell.name, "family": cell.family, "start": cell.start, "topics": cell.topics}
            told = {name: event.get(name) for name in ("score", "objective", "topics_99")}
            count = {"restart": restart, "iteration": event["iteration"]}
            rows.append({**named, **count, "steps": None if math.isnan(made) else made, "seconds": spent, **told})
    return rows


def about(corpus: Corpus, train: Corpus, heldout: Corpus, asked: Asked) -> list[str]:
    """Say what is compared.

    Parameters
    ----------
    corpus, train, heldout : Corpus
        The whole corpus, what is fitted to, and what is held out.
    asked : Asked
        What was asked for.

    Returns
    -------
    list of str
        Paragraphs.
    """
    manifest, tokens = corpus.manifest, f"{heldout.manifest.tokens:,}"
    where = f"of {heldout.url}" if asked.fraction is None else f"({asked.fraction:g} of all, split off)"
    what = (
        f"Corpus: {corpus.url}, {manifest.documents:,} documents, {manifest.vocabulary.words:,} words; fitted to "
        f"{train.manifest.tokens:,} tokens in {len(train.manifest.shards)} shards, scored on {tokens} tokens {where}. "
        f"Seed {asked.seed}."
    )
    named = shown(asked.record()["settings"])
    return [what] if named == "none" else [what, f"Options: {named}; all else by default."]


def table_text(rows: Sequence[Mapping[str, Any]], left_out: Sequence[str], about: Sequence[str] = ()) -> str:
    """Return the table as Markdown, with the definitions under it.

    Parameters
    ----------
    rows : sequence of mapping
        As `measure` made them.
    left_out : sequence of str
        What there is to say of cells that are not in it.
    about : sequence of str, optional
        What was compared, a paragraph each.

    Returns
    -------
    str
        The text.
    """
    return tables.report_text("Comparison", about, [*tables.table_lines(COLUMNS, rows), ""], DEFINITIONS, left_out)
