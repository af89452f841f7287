"""Requests and results of additions to a corpus, and the steps that documents and vectors share."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.schedulers import Scheduler
from collapsium.storage.building.ingest_record import History, Report
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import Manifest
from collapsium.storage.corpus.vectors import ARRAY
from collapsium.storage.errors import MismatchError, StoreError, TakenOverError
from collapsium.storage.io.encodings import checked_encoding
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.separators import checked_separator
from collapsium.storage.readers.side_files.columns import SideFileRequest

LOCK, SCRATCH = "lock", "append"
MAX_NAMED_IDS = 5  # Ids that an error about existing documents names


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


@dataclass(frozen=True)
class Addition:
    """Options of an addition; see `append`."""

    grow: bool = False
    skip_existing: bool = False
    format: str | None = None
    tokenizer: str | None = None
    max_decompressed: int | None = None
    scheduler: Scheduler | None = None
    workers: int | None = None
    tls: TLS | None = None
    side_files: SideFileRequest = field(default_factory=SideFileRequest)
    headings: str | None = None
    encoding: str | None = None
    separator: str | None = None
    label_separator: str | None = None


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
    """Make a scratch folder inside the corpus, which every worker sees, after removing those of earlier processes.

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


def clean(corpus: Corpus) -> None:
    """Remove files that the manifest does not name, which an interrupted addition has left."""
    folder, manifest = corpus.folder, corpus.manifest
    ours = {row.file for row in manifest.shards} | {manifest.vocabulary.file}
    there = [f"documents/{name}" for name in (folder / "documents").names() if name.endswith(".parquet")]
    there += [name for name in folder.names() if name.startswith("vocabulary") and name.endswith(".parquet")]
    for name in there:
        if name not in ours:
            folder.delete(name)
    if manifest.vectors is not None:
        arrays = {one.file for one in manifest.vectors.arrays}
        for name in folder.names():
            if name.startswith(f"{ARRAY.partition('.')[0]}-") and name not in arrays:
                (folder / name).remove()


def clean_hidden(corpus: Corpus) -> None:
    """Remove partly written files of processes that were killed."""
    for folder, within in ((corpus.folder, ""), (corpus.folder / "documents", "documents/")):
        for name in folder.names():
            if name.startswith(".") and name.endswith(".part"):
                with contextlib.suppress(StoreError, IsADirectoryError):  # a folder is somebody's
                    corpus.folder.delete(f"{within}{name}")


def refuse_known(corpus: Corpus, names: Sequence[str]) -> NoReturn:
    """Raise `MismatchError` for ids that the corpus already has."""
    some = ", ".join(repr(name) for name in names[:MAX_NAMED_IDS])
    raise MismatchError(
        f"{corpus.url}: has {corpus.holds} with the same ids already, such as {some}; `skip_existing` leaves them out"
    )
