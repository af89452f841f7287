"""Additions that a corpus has already: the same documents again, as after a process died once they were in.

An addition is the same if its documents have the ids of an earlier one, in the same order, and would be written as the
very shards that it has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from collapsium.storage.building.ingest_record import History, Report
from collapsium.storage.corpus.manifest import Manifest, ShardRecord


@dataclass(frozen=True)
class Earlier:
    """An earlier addition to a corpus."""

    number: int  # Which of the additions, from 0 on
    report: Report  # What was added then
    # The shards that the corpus had, and those that were added
    before: tuple[ShardRecord, ...]
    shards: tuple[ShardRecord, ...]


def added_ids(history: History, known: pa.Array) -> pa.Array:
    """Return the ids of all documents that were added to a corpus since it was made."""
    return known[max(len(known) - sum(report.documents for report in history.appended), 0) :]


def find_earlier(manifest: Manifest, history: History, known: pa.Array, ids: pa.Array) -> Earlier | None:
    """Find the addition of documents of some ids."""
    bounds = np.concatenate([[0], np.cumsum([row.documents for row in manifest.shards], dtype=np.int64)]).tolist()
    first = len(known) - sum(report.documents for report in history.appended)
    for number, report in enumerate(history.appended):
        end = first + report.documents
        if first in bounds and end in bounds and known[first:end].equals(ids):
            # Shards without documents belong to nobody, so the last of equal bounds is the first of the addition.
            start, stop = len(bounds) - 1 - bounds[::-1].index(first), bounds.index(end)
            return Earlier(number, report, manifest.shards[:start], manifest.shards[start:stop])
        first = end
    return None
