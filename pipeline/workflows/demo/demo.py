"""The demonstration: topics of the presidents' annual addresses over time, fitted on a local Dask cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from collapsium.pipeline.analysis.topic_shares import TimeShares, topic_shares
from collapsium.pipeline.analysis.topics import Topic, topics
from collapsium.pipeline.corpora.ingest import ingest
from collapsium.pipeline.engine.fit import fit
from collapsium.pipeline.monitoring.events import Sink
from collapsium.pipeline.reporting.page.report import report
from collapsium.pipeline.reporting.plots.run import plot
from collapsium.pipeline.reporting.plots.style import can_draw
from collapsium.pipeline.workflows.demo.sample import sample_texts, written
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.transactions import ensure_free

FAMILY, TOPICS, ITERATIONS = "lda", 20, 100
READING = {"title": "title", "date": "year", "labels": ["party", "president"]}
CUTS = {"min_documents": 5, "max_document_share": 0.2}
TITLE = "Topics of US presidents' annual addresses, 1945 to 2006"
NAMED = 3  # Topics that the demonstration names: those that change most over the decades
DRAWN = 5  # Topics in the picture, beside the number of documents: two rows of panels


@dataclass(frozen=True)
class Demonstration:
    """Results of the demonstration."""

    topics: list[Topic]  # All topics, the largest first
    changing: list[Topic]  # The topics that change most
    shares: TimeShares  # Shares of all topics by decade
    report: Path  # The report, an HTML page
    picture: Path | None  # The topics that change most, by decade; None without matplotlib


def demonstrate(folder: str | os.PathLike[str], sinks: list[Sink]) -> Demonstration:
    """Ingest the annual addresses, fit LDA on a local Dask cluster, and write a report and a picture.

    The folder then has ``texts.jsonl``, ``corpus``, ``run``, ``report.html`` and, with matplotlib, ``topics.png``.
    """
    root = Path(folder)
    ensure_free(Folder(root))
    texts = root / "texts.jsonl"
    root.mkdir(parents=True)
    texts.write_text(written(text for text in sample_texts() if text["kind"] == "annual"), encoding="utf-8")
    ingest(texts, root / "corpus", **READING, **CUTS)
    run = root / "run"
    fit(root / "corpus", run, family=FAMILY, topics=TOPICS, iterations=ITERATIONS, scheduler="local", sinks=sinks)
    shares = topic_shares(run, period="decade")
    known = {topic.id: topic for topic in topics(run)}
    # Half of the foremost topics are the largest ones; then come those that change most.
    changing = [int(shares.topics[column]) for column in shares.foremost(2 * DRAWN)[DRAWN:]]
    report(run, root / "report.html", texts=texts, title=TITLE)
    picture = root / "topics.png" if can_draw() else None
    if picture is not None:
        plot(run, picture, what=["time"], period="decade", topics=changing, title=TITLE)
    named = [known[topic] for topic in changing[:NAMED]]
    return Demonstration(list(known.values()), named, shares, root / "report.html", picture)
