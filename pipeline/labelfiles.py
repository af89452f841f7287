"""The table of labels and topics as comma-separated values."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from collapsar.pipeline.expecting import LabelTopics
from collapsar.storage.errors import OccupiedError
from collapsar.storage.folder import File
from collapsar.storage.printable import CsvRows

WORDS = 5  # of a topic


def write_weights(table: LabelTopics, out: str | os.PathLike[str]) -> None:
    """Write a row for each label and topic.

    Parameters
    ----------
    table : LabelTopics
        The table.
    out : str or path-like
        File to write: label, documents, topic, share, weight, words; and expected, behind weight, of families without
        factors.

    Raises
    ------
    OccupiedError
        The file exists.
    """
    target = File(out)
    if target.exists():
        raise OccupiedError(f"{os.fspath(out)}: exists already; name a new file or remove this one")
    with tempfile.TemporaryDirectory(prefix="collapsar-") as place:
        part = Path(place) / "weights.csv"
        with part.open("w", encoding="utf-8", errors="replace", newline="") as sink:
            rows = CsvRows(sink)
            figures = {"weight": table.weights} | ({} if table.expected is None else {"expected": table.expected})
            rows.writerow(["label", "documents", "topic", "share", *figures, "words"])
            for row, (title, count) in enumerate(zip(table.titles, table.documents, strict=True)):
                for column, topic in enumerate(table.topics):
                    given = [float(one[row, column]) for one in figures.values()]
                    rows.writerow([title, count, topic.id, topic.share, *given, " ".join(topic.names[:WORDS])])
        target.put(part)
