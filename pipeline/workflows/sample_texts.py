"""Sample texts that ship with the package: addresses of the presidents of the United States, in paragraphs.

The annual addresses to Congress, 1945 to 2006, and the inaugural addresses, 1789 to 2021, are in the public domain. The
texts come from NLTK's corpora `state_union` and `inaugural`; the presidents' parties were added, and marks of
applause and laughter removed.
"""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from collapsium.pipeline.analysis.topic_shares import TimeShares, topic_shares
from collapsium.pipeline.corpora.ingest import ingest
from collapsium.pipeline.engine.fit import fit
from collapsium.pipeline.models.topics import Topic, topics
from collapsium.pipeline.monitoring.events import Sink
from collapsium.pipeline.reporting.page.report import report
from collapsium.pipeline.reporting.plots.run import plot
from collapsium.pipeline.reporting.plots.style import can_draw
from collapsium.storage.errors import OccupiedError
from collapsium.storage.io.file import File, require_place
from collapsium.storage.io.folder import Folder, ensure_free

# Lines of fewer words, such as headings and greetings, join the next paragraph: they have no distinct topic
MIN_WORDS = 20


def sample_texts() -> list[dict[str, str | int]]:
    """Return the paragraphs of 124 addresses of presidents of the United States, for tutorials and first trials.

    They are the annual addresses on the state of the union, 1945 to 2006 (5,451 paragraphs), and the inaugural
    addresses, 1789 to 2021 (1,408 paragraphs).

    Returns
    -------
    list of dict
        In the order of the addresses, first the annual and then the inaugural ones. Each has ``id`` (such as
        ``1961-Kennedy/007``), ``title`` (``John F. Kennedy, 1961``), ``text``, ``year`` (a whole number), and the
        labels ``president``, ``party``, ``address`` (``1961-Kennedy``) and ``kind`` (``annual`` or ``inaugural``).

    Examples
    --------
    >>> from collapsium.pipeline import sample_texts
    >>> texts = sample_texts()
    >>> len(texts), sorted(texts[0])
    (6859, ['address', 'id', 'kind', 'party', 'president', 'text', 'title', 'year'])
    """
    packed = resources.files(__package__).joinpath("addresses.jsonl.xz").read_bytes()
    texts: list[dict[str, str | int]] = []
    for line in lzma.decompress(packed).decode().splitlines():
        address = json.loads(line)
        name = address.pop("id") + ("-inaugural" if address["kind"] == "inaugural" else "")
        fields = {"title": f"{address['president']}, {address['year']}", **address, "address": name}
        for number, text in enumerate(_paragraphs(fields.pop("text")), start=1):
            texts.append({"id": f"{name}/{number:03d}", "text": text, **fields})
    return texts


def _paragraphs(text: str) -> list[str]:
    """Return the non-empty lines of a text; a short one joins the next, or the one before if it is the last."""
    paragraphs, short = list[str](), ""
    for line in filter(None, map(str.strip, text.split("\n"))):
        short = f"{short} {line}".lstrip()
        if len(line.split()) >= MIN_WORDS:
            paragraphs.append(short)
            short = ""
    return [*paragraphs[:-1], f"{paragraphs[-1]} {short}".rstrip()] if paragraphs else [short]


def written(texts: Iterable[dict[str, str | int]]) -> str:
    """Return texts as JSON lines."""
    return "".join(json.dumps(text) + "\n" for text in texts)


def write_sample_texts(out: str | os.PathLike[str]) -> int:
    """Write the sample texts as JSON lines, one object per line.

    Parameters
    ----------
    out : str or path-like
        File to write, local or an fsspec URL.

    Returns
    -------
    int
        Number of texts.

    Raises
    ------
    OccupiedError
        The file exists.
    """
    target = File(out)
    if target.exists():
        raise OccupiedError(f"{out}: exists already; remove it, or name another file")
    require_place(os.fspath(out))
    records = sample_texts()
    target.write(written(records).encode())
    return len(records)


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
