"""Other libraries beside ours: fitted each in a process of its own, and told in one text."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from collapsium.pipeline.analysis.topics import topics
from collapsium.pipeline.workflows.compare.baselines.library_hdps import STARTING
from collapsium.pipeline.workflows.compare.cells import RANDOM, PeerCell
from collapsium.pipeline.workflows.compare.tables import iterations_text, label_of
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.runs.run import Run

WORDS, SHOWN = 10, 10  # words of a topic, and topics that are shown
# The libraries spread their work over processes or threads of their own; each of these shall not start more.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
NOTES = """\
Score: document completion, the mean over the held-out tokens of log sum_k theta_dk phi_kw, in nats, for all alike;
perplexity is exp(-score). Of samplers with samples, the mean of their predictions. Seconds: of ours the work of a fit
(see table.md), mean over the restarts; of others their fitting alone, one fit. An iteration of one is not worth one of
another. Restarts averaged: the mean of the predictions of all, and the work of all. Topics (99%): how many of the
largest topics hold 99% of the tokens. The others have a_k = 0.1 (HDPs: alpha = gamma = 1) and b_w = 100/W unless
options said otherwise; those that find the number of topics stand in every table.
"""


def fit_peer(cell: PeerCell, train: Corpus, heldout: Corpus, seed: int, workers: int | None) -> dict[str, Any]:
    """Fit another library to the training tokens in a process of its own, and score it on the held-out ones.

    Parameters
    ----------
    cell : PeerCell
        Which, and its options.
    train, heldout : Corpus
        The two parts of the corpus.
    seed : int
        Of its random numbers.
    workers : int or None
        Cores that it may use; by default all.

    Returns
    -------
    dict
        ``peer``, ``topics``, ``start``, ``iterations``, ``samples``, ``score``, ``perplexity``, ``seconds``,
        ``topics_99`` and ``words``, the top ones of each topic, the largest first; or ``error`` where it failed.
    """
    given = {"train": train.folder.address, "heldout": heldout.folder.address, "seed": seed, **cell.options}
    cores = workers or os.cpu_count() or 1
    given.update(peer=cell.peer, topics=cell.start, workers=cores, words=WORDS)
    found = told_by("collapsium.pipeline.workflows.compare.baselines.libraries", given, "score")
    if "error" in found:
        return found
    start = f"from {cell.start} topic{'s' * (cell.start > 1)}" if cell.peer in STARTING else RANDOM
    row = {"peer": cell.peer, "topics": cell.topics, "start": start, "iterations": cell.options["iterations"]}
    return {**row, **found, "perplexity": math.exp(-found["score"])}


def told_by(module: str, given: Mapping[str, Any], first: str) -> dict[str, Any]:
    """Run a module that takes JSON, and prints a line of it, in a process of its own.

    Parameters
    ----------
    module : str
        Its name.
    given : mapping
        What it is given.
    first : str
        The first name in what it prints.

    Returns
    -------
    dict
        What it said; or ``error`` where it failed.
    """
    command = [sys.executable, "-m", module, json.dumps(given)]
    environment = {**os.environ, **ONE_THREAD}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603
    # A library may fail as its process ends, when all is said: what counts is whether there is a result.
    lines = [line for line in done.stdout.splitlines() if line.startswith(f'{{"{first}"')]
    if not lines:
        return {"error": (done.stderr.strip().splitlines() or [f"its process ended with code {done.returncode}"])[-1]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def peers_text(
    rows: Sequence[Mapping[str, Any]],
    peers: Sequence[Mapping[str, Any]],
    runs: Mapping[str, Run],
    about: Sequence[str] = (),
) -> str:
    """Return the peers' scores, times and topics beside ours, as Markdown.

    Parameters
    ----------
    rows : sequence of mapping
        Of the comparison's table.
    peers : sequence of mapping
        As `fit_peer` made them.
    runs : mapping
        A run of each cell, whose topics are shown.
    about : sequence of str, optional
        What was compared, and what was left out, a paragraph each.

    Returns
    -------
    str
        The text.
    """
    parts = ["# Beside other libraries", "", *(line for one in about for line in (one, "")), NOTES]
    for count in sorted({row["topics"] for row in peers if row["topics"] is not None}) or [None]:
        shown = None if count is None else (count, None)
        ours, theirs = (
            {label_of(row, topics=count is None): row for row in each if shown is None or row["topics"] in shown}
            for each in (rows, peers)
        )
        title = "Topics are found" if count is None else f"{count} topics"
        parts += [f"## {title}", "", *_table(ours, theirs), "", *_topics(ours, theirs, runs)]
    return "\n".join(parts)


def _table(ours: Mapping[str, Mapping[str, Any]], theirs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Tell scores and times, of several restarts also what their mean prediction scores and all of them took."""
    lines = ["| | iterations | score | perplexity | seconds | topics (99%) |", "| --- |" + " ---: |" * 5]
    for name, row in (*ours.items(), *theirs.items()):
        made = iterations_text(row)
        figures = f"{row['score']:.4f} | {row['perplexity']:.1f} | {row['seconds']:.2f} | {row['topics_99']:.0f}"
        lines.append(f"| {name} | {made} | {figures} |")
        if row.get("restarts", 1) > 1:
            score, took = row["ensemble_score"], row["seconds"] * row["restarts"]
            several = f"{name}, {row['restarts']} restarts averaged"
            lines.append(f"| {several} | {made} | {score:.4f} | {math.exp(-score):.1f} | {took:.2f} | |")
    return lines


def _topics(
    ours: Mapping[str, Mapping[str, Any]], theirs: Mapping[str, Mapping[str, Any]], runs: Mapping[str, Run]
) -> list[str]:
    """Show the largest topics of the first that is there, and beside each the others' that share most words with it."""
    found = {name: _words(runs[row["cell"]]) for name, row in ours.items() if row["cell"] in runs}
    found.update({name: row["words"] for name, row in theirs.items()})
    (leader, leading), *others = found.items()
    lines = [f"The largest topics of {leader}, and of the others those that share most of their {WORDS} words.", ""]
    for number, words in enumerate(leading[:SHOWN], start=1):
        lines.append(f"{number}. {leader}: {_shown(words)}")
        for name, each in others:
            if each:
                near = max(each, key=lambda topic: len(set(topic) & set(words)))
                lines.append(f"   * {name} ({len(set(near) & set(words))}): {_shown(near)}")
        lines.append("")
    return lines


def _words(run: Run) -> list[list[str]]:
    return [[word for word, _ in topic.words] for topic in topics(run.folder.url, WORDS) if topic.share > 0]


def _shown(words: Sequence[str]) -> str:
    """Return words as Markdown code, which no word can break out of."""
    return " ".join(f"`{word.replace('`', chr(39))}`" for word in words if word.isprintable())
