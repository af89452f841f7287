"""Requests and results of additions to a corpus, and the steps that documents and vectors share.

Additions that a corpus has already: the same documents again, as after a process died once they were in.

An addition is the same if its documents have the ids of an earlier one, in the same order, and would be written as the
very shards that it has.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from collapsium.pipeline.corpora.options import AppendOptions, SideFileOptions
from collapsium.pipeline.executors.schedulers import Scheduling
from collapsium.storage.building.ingest_record import History, Report
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import Manifest, ShardRecord
from collapsium.storage.corpus.vectors import ARRAY
from collapsium.storage.errors import MismatchError, TakenOverError
from collapsium.storage.io.encodings import checked_encoding
from collapsium.storage.io.folder import Folder, remove_parts
from collapsium.storage.readers.read_options import checked_separator
from collapsium.storage.readers.side_files import SideFileRequest


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
            # Empty shards belong to no addition, so the last of equal bounds is the first of the addition.
            start, stop = len(bounds) - 1 - bounds[::-1].index(first), bounds.index(end)
            return Earlier(number, report, manifest.shards[:start], manifest.shards[start:stop])
        first = end
    return None


LOCK, SCRATCH = "lock", "append"
MAX_NAMED_IDS = 5  # Most ids that an error about existing documents lists


@dataclass(frozen=True)
class Added:
    """Result of an addition."""

    manifest: Manifest  # The corpus's manifest after the addition
    report: Report  # Numbers of documents and words that were added, skipped and dropped
    history: History  # The history of the corpus, with this addition
    # Files that documents were added from; all documents of other files were in the corpus already
    files: frozenset[str] = frozenset()
    # True if the same addition was made before, so that nothing is added; `report` is then the earlier one
    repeated: bool = False


class Addition(AppendOptions, SideFileOptions, Scheduling):
    """Options of an addition."""

    @property
    def side_files(self) -> SideFileRequest:
        """The side files to read."""
        return SideFileRequest(self.label_files, self.label_names)


def layout_of(addition: Addition) -> dict[str, Any]:
    """Return the options of the layout of files that an addition names, instead of the recorded ones."""
    layout = {
        "encoding": checked_encoding(addition.encoding),
        "separator": checked_separator(addition.separator),
        "label_separator": checked_separator(addition.label_separator, "label_separator"),
    }
    return {name: value for name, value in layout.items() if value is not None}


@contextmanager
def scratch_inside(folder: Folder) -> Iterator[Folder]:
    """Make a scratch folder inside the corpus, which every worker sees, after removing earlier processes' folders.

    The folder belongs to this process only, and is removed even if another process has taken the corpus over.
    """
    (folder / SCRATCH).remove()
    place = Folder((folder / SCRATCH / uuid.uuid4().hex).url)
    place.make()
    try:
        yield place
    finally:
        place.remove()
        with contextlib.suppress(TakenOverError):
            (folder / SCRATCH).remove()


def clean_hidden(corpus: Corpus) -> None:
    """Remove partly written files of processes that were killed; hidden folders in a corpus are somebody's."""
    for folder in (corpus.folder, corpus.folder / "documents"):
        remove_parts(folder, folders=False)


def clean(corpus: Corpus) -> None:
    """Remove files that the manifest does not name, which an interrupted addition has left."""
    folder, manifest = corpus.folder, corpus.manifest
    recorded = {row.file for row in manifest.shards} | {manifest.vocabulary.file}
    existing = [f"documents/{name}" for name in (folder / "documents").names() if name.endswith(".parquet")]
    existing += [name for name in folder.names() if name.startswith("vocabulary") and name.endswith(".parquet")]
    for name in existing:
        if name not in recorded:
            folder.delete(name)
    if manifest.vectors is not None:
        arrays = {array.file for array in manifest.vectors.arrays}
        for name in folder.names():
            if name.startswith(f"{ARRAY.partition('.')[0]}-") and name not in arrays:
                (folder / name).remove()


def refuse_known(corpus: Corpus, names: Sequence[str]) -> NoReturn:
    """Raise `MismatchError` for ids that the corpus already has."""
    some = ", ".join(repr(name) for name in names[:MAX_NAMED_IDS])
    raise MismatchError(
        f"{corpus.url}: has {corpus.holds} with the same ids already, such as {some}; `skip_existing` leaves them out"
    )
