"""Comparison with other libraries: their options, their fits, and a report on their scores and topics."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collapsium.pipeline.analysis.topics import topics
from collapsium.pipeline.engine.setup.limits import KINDS, Limits
from collapsium.pipeline.workflows.compare.baselines.base import Baseline, BaselineError, run_module
from collapsium.pipeline.workflows.compare.baselines.library_hdps import ALPHA
from collapsium.pipeline.workflows.compare.catalogue import LIBRARIES, Library, installed
from collapsium.pipeline.workflows.compare.fits import Resources
from collapsium.pipeline.workflows.compare.grid import RANDOM, start_text
from collapsium.pipeline.workflows.compare.option_values import number_of, with_flags
from collapsium.pipeline.workflows.compare.options import CompareOptions
from collapsium.pipeline.workflows.compare.tables import (
    Column,
    Row,
    Rows,
    iterations_text,
    label_of,
    number_column,
    table_lines,
)
from collapsium.pipeline.workflows.compare.targets import Target
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import OptionError, suggestion
from collapsium.storage.runs.run import Run

OPTIONS: dict[str, type] = {"iterations": int, "alpha": float, "beta": float}
SAMPLING: dict[str, type] = {"samples": int, "sample_every": int}  # Further options of libraries that sample
PRIORS = {"alpha": 0.1, "beta": 100.0}  # Default priors, which are those of Collapsium's families
WORDS, SHOWN_TOPICS = 10, 10
NOTES = """\
Score: document completion, the mean over the held-out tokens of log sum_k theta_dk phi_kw, in nats, the same for all;
perplexity is exp(-score). Samplers with several samples are scored on the mean of their predictions. Seconds: for
Collapsium the work of a fit (see table.md), mean over the restarts; for other libraries the time of one fit. Iterations
of different methods are not comparable. Restarts averaged: the mean of all predictions, and the work of all restarts.
Topics (99%): number of the largest topics that hold 99% of the tokens. Other libraries have a_k = 0.1 (HDPs: alpha =
gamma = 1) and b_w = 100/W, unless options set other values; libraries that determine the number of topics are in every
table.
"""


@dataclass(frozen=True)
class LibraryFit(Baseline):
    """One fit of another library."""

    name: str  # Name of its record
    iterations: int  # Iterations of the fit
    library: Library  # The library
    topics: int | None  # Number of topics K; None if the library determines it
    start_topics: int  # Number of topics to start from
    options: JsonObject  # ``iterations``, ``samples``, ``sample_every``, ``alpha``, ``beta`` and the library's own
    target: Target  # Training and held-out tokens
    resources: Resources  # Resources of Collapsium's fits; the library uses as many cores as these have workers

    def measure(self) -> JsonObject:
        """Fit the library's model in a process of its own, and score it on the held-out tokens."""
        if not installed(self.library.module):
            raise BaselineError(f"{self.library.module} is not installed")
        arguments = {
            **self.options,
            "peer": self.library.name,
            "train": self.target.train.folder.address,
            "heldout": self.target.scored.folder.address,
            "seed": self.target.options.seed,
            "topics": self.start_topics,
            "workers": self.resources.workers or os.cpu_count() or 1,
            "words": WORDS,
        }
        result = run_module("collapsium.pipeline.workflows.compare.baselines.libraries", arguments, "score")
        return {
            "cell": self.name,
            "baseline": self.library.name,
            "topics": self.topics,
            "start": start_text(self.start_topics) if self.library.starts_from_topics else RANDOM,
            "iterations": self.iterations,
            **result,
            "perplexity": math.exp(-result["score"]),
        }


def library_fits(options: CompareOptions, target: Target, resources: Resources) -> list[LibraryFit]:
    """Return the fits of other libraries, one for each number of topics, or number to start from."""
    fits: list[LibraryFit] = []
    for library in (LIBRARIES[name] for name in options.peers):
        spans: list[tuple[str, int | None, int]] = [(library.name, None, 1)]
        if not library.finds_topics:
            spans = [(f"{library.name}-{count}", count, count) for count in options.topics]
        elif library.starts_from_topics:
            spans = [(f"{library.name}-from-{count}", None, count) for count in options.start_topics]
        for name, count, start in spans:
            checked = _checked_options(options, library, count)
            fits.append(LibraryFit(name, checked["iterations"], library, count, start, checked, target, resources))
    return fits


def _checked_options(options: CompareOptions, library: Library, topics: int | None) -> JsonObject:
    """Return the options of a fit: priors, those of the comparison, and those set for the library."""
    own = {name: type(default) for name, default in library.options.items()}
    known = {**OPTIONS, **(SAMPLING if library.samples else {}), **own}
    checked: JsonObject = {
        **PRIORS,
        "iterations": options.iterations,
        "samples": 0,
        "sample_every": 0,
        **library.options,
    }
    if library.finds_topics:
        checked["alpha"] = ALPHA
    if library.samples:
        checked.update(samples=options.samples, sample_every=options.sample_every)
    settings = options.settings.get(library.name, {})
    for option, value in settings.items():
        named, kind = f"{library.name}.{option}", known.get(option)
        if kind is None:
            raise OptionError(f"--set {named}: unknown option of '{library.name}'{suggestion(option, known)}")
        number = value if kind is str else number_of(value, topics, named)
        kinds = {int: (int,), float: (int, float), str: (str,)}[kind]
        is_too_small = kind is float and isinstance(number, int | float) and not number > 0
        if not isinstance(number, kinds) or isinstance(number, bool) or is_too_small:
            raise OptionError(f"--set {named}: expected {KINDS[kind]}, found {value!r}")
        checked[option] = number
    try:
        Limits(**{name: checked[name] for name in ("iterations", "samples", "sample_every")}).sampled(1)
    except OptionError as error:
        raise with_flags(error, library.name, dict.fromkeys(settings, "--set")) from None
    return checked


def library_report(rows: Rows, baselines: Rows, runs: Mapping[str, Run], about: Sequence[str]) -> str:
    """Return scores, times and topics of the libraries and of a run of each cell, as Markdown."""
    parts = ["# Comparison with other libraries", "", *(line for one in about for line in (one, "")), NOTES]
    for count in sorted({row["topics"] for row in baselines if row["topics"] is not None}) or [None]:
        shown = [[row for row in each if count is None or row["topics"] in (count, None)] for each in (rows, baselines)]
        ours, theirs = ({label_of(row, topics=count is None): row for row in each} for each in shown)
        title = "Number of topics determined by the model" if count is None else f"{count} topics"
        parts += [f"## {title}", "", *_score_lines({**ours, **theirs}), "", *_topic_lines(ours, theirs, runs)]
    return "\n".join(parts)


def _score_lines(fits: Mapping[str, Row]) -> list[str]:
    """Return a table of scores and times; several restarts also have a row for their mean prediction."""
    lines = []
    for name, row in fits.items():
        lines.append({**row, "name": name})
        if row.get("restarts", 1) > 1:
            score = row["ensemble_score"]
            lines.append(
                {
                    **row,
                    "name": f"{name}, {row['restarts']} restarts averaged",
                    "score": score,
                    "perplexity": math.exp(-score),
                    "seconds": row["seconds"] * row["restarts"],
                    "topics_99": None,
                }
            )
    columns = (
        Column("", lambda row: str(row["name"]), number=False),
        Column("iterations", iterations_text),
        number_column("score", "score", ".4f"),
        number_column("perplexity", "perplexity", ".1f"),
        number_column("seconds", "seconds", ".2f"),
        number_column("topics (99%)", "topics_99", ".0f"),
    )
    return table_lines(columns, lines)


def _topic_lines(ours: Mapping[str, Row], theirs: Mapping[str, Row], runs: Mapping[str, Run]) -> list[str]:
    """Return the largest topics of the first fit, each with the topics of other fits that share most words."""
    words_of = {name: _words(runs[row["cell"]]) for name, row in ours.items() if row["cell"] in runs}
    words_of.update({name: row["words"] for name, row in theirs.items()})
    (leader, leading), *others = words_of.items()
    lines = [
        f"The largest topics of {leader}, each with the topics of the others that share most of its {WORDS} words.",
        "",
    ]
    for number, words in enumerate(leading[:SHOWN_TOPICS], start=1):
        lines.append(f"{number}. {leader}: {_code(words)}")
        for name, each in others:
            if each:
                nearest = max(each, key=lambda topic: len(set(topic) & set(words)))
                lines.append(f"   * {name} ({len(set(nearest) & set(words))}): {_code(nearest)}")
        lines.append("")
    return lines


def _words(run: Run) -> list[list[str]]:
    return [[word for word, _ in topic.words] for topic in topics(run.folder.url, WORDS) if topic.share > 0]


def _code(words: Sequence[str]) -> str:
    """Return words as Markdown code, without backticks of their own."""
    return " ".join(f"`{word.replace('`', chr(39))}`" for word in words if word.isprintable())
