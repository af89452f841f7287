"""Additions to a corpus: what is asked for, what comes of it, and what documents and vectors have in common."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from collapsium.pipeline.executors.base import TLS
from collapsium.storage.building.ingest_record import History, Report
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import Manifest
from collapsium.storage.corpus.vectors import ARRAY
from collapsium.storage.errors import MismatchError, StoreError, TakenOverError
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.side_files.columns import Wanted

LOCK, SCRATCH = "lock", "append"
NAMED = 5  # ids that are there already, of a chunk, that an error names


@dataclass(frozen=True)
class Added:
    """Result of an addition.

    Attributes
    ----------
    manifest : Manifest
        What the corpus holds now.
    report : Report
        What was added, left out and dropped.
    history : History
        How the corpus came about, with this addition.
    files : frozenset of str
        Files that documents were added from; of others all documents were in the corpus already.
    repeated : bool
        Whether the very same addition was made before, and nothing is added; `report` is that of the earlier one.
    """

    manifest: Manifest
    report: Report
    history: History
    files: frozenset[str] = frozenset()
    repeated: bool = False


@dataclass(frozen=True)
class Addition:
    """What is asked for of an addition; see `append`."""

    grow: bool = False
    skip_existing: bool = False
    format: str | None = None
    tokenizer: str | None = None
    max_decompressed: int | None = None
    scheduler: str | None = None
    workers: int | None = None
    tls: TLS | None = None
    beside: Wanted = field(default_factory=Wanted)
    headings: str | None = None


@contextmanager
def scratch_inside(folder: Folder) -> Iterator[Folder]:
    """Make a scratch folder inside the corpus, which every worker sees; what an earlier one has left goes first.

    It lies in the scratch folder of this process alone, and goes also if another has taken the corpus over.

    Parameters
    ----------
    folder : Folder
        The corpus's.

    Yields
    ------
    Folder
        The scratch folder, empty.
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
    """Remove files that the manifest does not name, as an addition that was cut short leaves them."""
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
    """Remove files that a process that was killed has left half written; nobody reads them."""
    for folder, within in ((corpus.folder, ""), (corpus.folder / "documents", "documents/")):
        for name in folder.names():
            if name.startswith(".") and name.endswith(".part"):
                with contextlib.suppress(StoreError, IsADirectoryError):  # a folder is somebody's
                    corpus.folder.delete(f"{within}{name}")


def refuse_known(corpus: Corpus, names: Sequence[str]) -> NoReturn:
    """Raise `MismatchError`, as documents of these ids are in the corpus."""
    some = ", ".join(repr(name) for name in names[:NAMED])
    raise MismatchError(
        f"{corpus.url}: has {corpus.holds} of the same ids already, such as {some}; `skip_existing` leaves them out"
    )
