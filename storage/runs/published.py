"""Published models: numbered folders, each complete or absent, and a pointer to the current one.

``published/0001/`` holds `version.json` and the files of a version; its proportions are a folder of Parquet files,
which `proportions.json` lists with the version that wrote each. ``published/current.json`` has the number of the
current version and is replaced atomically. On local disks a symbolic link ``current`` leads to the same folder, for
programs that need a path; the record decides.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from collapsium.storage.corpus.manifest import DOCUMENTS, VECTORS
from collapsium.storage.errors import AbsentError, DamagedError, StoreError
from collapsium.storage.io.atomic import copy_atomically, hidden_path, rename, share_atomically
from collapsium.storage.io.folder import Folder, created, remove_parts
from collapsium.storage.io.records import Count, Digest, Number, Record, check, dump, numbers_of_names, read_record
from collapsium.storage.runs.run import CHECKPOINTS, JOURNAL, Run
from collapsium.storage.runs.run import LOCK as RUN_LOCK

RECORD, CURRENT, LINK = "version.json", "current.json", "current"
PROPORTIONS, PARTS, REPORT = "proportions.parquet", "proportions.json", "report.html"
KIND, CURRENT_KIND, PARTS_KIND = "collapsium-version", "collapsium-current", "collapsium-proportions"
VERSION = 2

VersionNumber = Annotated[int, Field(strict=True, ge=1, lt=1 << 31)]
PreviousVersion = Annotated[dict[Literal["version", "score"], VersionNumber | Number], Field(min_length=2)]


class CurrentRecord(BaseModel):
    """The fields of `current.json`: the number of the current version."""

    number: VersionNumber


class VersionRecord(Record):
    """The fields of `version.json`."""

    format: str = KIND
    version: int = VERSION
    number: VersionNumber  # Number of the version, from 1
    plan: str  # Digest of the corpus and the options
    created: str  # Time of publication, in UTC
    family: str  # The model's family
    corpus: str  # Digest of the corpus
    # Size of the training corpus, and number of iterations
    documents: Count
    tokens: Count
    words: Count
    iterations: Count
    # Mean log probability of a held-out token, in nats; for vectors the mean reconstruction error; smaller is better
    score: Number | None
    scored: Count  # Number of held-out tokens, or vectors, behind the score
    definition: str  # Definition of the score
    previous: PreviousVersion | None = None  # The version that was current before, with its score on the same tokens
    warm: VersionNumber | None = None  # The version of the warm start
    job: str = ""  # Name of the job: its file's name without the suffix
    additions: Count = 0  # Number of times that documents were appended to the corpus
    # Tokens of words outside the vocabulary in the documents appended since the previous version
    unknown_tokens: Count = 0
    unknown_share: Number | None = None  # Their share; None if no documents were appended
    holds: str = DOCUMENTS  # Kind of the corpus
    members: tuple[dict[str, str | Number | None], ...] = ()  # Name and score of each member of an ensemble; else empty
    # Topics without a match in the previous version, and topics of the previous version without a match in this one
    born: tuple[Count, ...] = ()
    gone: tuple[Count, ...] = ()

    @property
    def score_text(self) -> str:
        """The score with its unit, as text; empty without a score."""
        return "" if self.score is None else score_text(self.score, self.scored, self.holds)

    @property
    def title(self) -> str:
        """Job, version and date, as text."""
        return f"{self.job or 'model'}, version {self.number} of {self.created[:10]}"


class PartRecord(Record):
    """One file of a version's proportions, with the rows of a shard's documents."""

    file: Annotated[str, Field(pattern=r"^part-\d{5,}-[0-9a-f]{12}\.parquet$")]  # Name within `proportions.parquet`
    documents: Count
    sha256: Digest  # Digest of the file
    inputs: Digest  # Digest of the shard, the model and the names that determine its rows
    version: VersionNumber  # The version that wrote it; later ones share it


class PartsRecord(Record):
    """The fields of `proportions.json`."""

    format: str = PARTS_KIND
    version: int = VERSION
    parts: tuple[PartRecord, ...]


def part_name(number: int, inputs: str) -> str:
    """Return the name of the file of a shard's proportions, so that names follow the order of the shards."""
    return f"part-{number:05d}-{inputs[:12]}.parquet"


def write_parts(folder: Folder, parts: Iterable[PartRecord]) -> None:
    """Write the list of the files of a version's proportions."""
    folder.write(PARTS, dump(PartsRecord(parts=tuple(parts)).model_dump(mode="json")))


def read_parts(folder: Folder) -> tuple[PartRecord, ...]:
    """Read the list of the files of a version's proportions; earlier releases wrote one file and no list."""
    try:
        record = read_record(folder, PARTS, PARTS_KIND, VERSION, oldest=VERSION)
    except AbsentError:
        return ()
    return check(PartsRecord, record, f"{folder.url}/{PARTS}").parts


def score_text(score: float, scored: int, holds: str) -> str:
    """Return a score with its unit and the number of tokens, or vectors, over which it is a mean."""
    if holds == VECTORS:
        return f"error {score:.5g} over {scored:,} held-out vectors"
    return f"score {score:.4f} nats over {scored:,} held-out tokens"


def read_version(folder: Folder) -> VersionRecord:
    """Read the record of a published model."""
    return check(VersionRecord, read_record(folder, RECORD, KIND, VERSION, oldest=2), f"{folder.url}/{RECORD}")


class Versions:
    """The published models of a job."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def at(self, number: int) -> Folder:
        """Return the folder of a version, which may not exist."""
        return self.folder / f"{number:04d}"

    def numbers(self) -> list[int]:
        """Return the numbers of all versions, ascending."""
        named = numbers_of_names(self.folder.names(), 4)
        return [number for number in named if self.at(number).exists(RECORD)]

    def record(self, number: int) -> VersionRecord:
        """Read the record of a version."""
        place = self.at(number)
        if not place.exists(RECORD):
            known = ", ".join(map(str, self.numbers())) or "none"
            raise AbsentError(f"{self.folder.url}: there is no version {number} (known: {known})")
        return read_version(place)

    def current(self) -> int | None:
        """Return the number of the current version."""
        try:
            record = read_record(self.folder, CURRENT, CURRENT_KIND, VERSION, oldest=2)
            return check(CurrentRecord, record, f"{self.folder.url}/{CURRENT}").number
        except AbsentError:
            return None
        except DamagedError as error:
            expected = f"{error.expected}; `rollback` of the job with `to` writes the file anew"
            raise DamagedError(error.path, expected, error.where) from None

    @contextmanager
    def made(self, number: int) -> Iterator[Folder]:
        """Make the folder of a version atomically; `point` then makes it the current one."""
        self.folder.make()
        if self.folder.local:
            remove_parts(self.folder)
        place = self.at(number)
        # Left by an interrupted process, on a store other than a local disk.
        if place.exists() and not place.exists(RECORD):
            place.remove()
        with created(place) as folder:
            yield folder

    def point(self, number: int) -> None:
        """Make a version the current one."""
        self.record(number)
        self.folder.write(CURRENT, dump({"format": CURRENT_KIND, "version": VERSION, "number": number}))
        if self.folder.local:
            # File systems without links have only the record.
            with contextlib.suppress(OSError):
                link = Path(self.folder.path) / LINK
                new = hidden_path(link)
                # A copy of the job's folder may have turned the link into a folder.
                if link.is_dir() and not link.is_symlink():
                    shutil.rmtree(link)
                new.symlink_to(f"{number:04d}", target_is_directory=True)
                rename(new, link, self.folder.guard)

    def keep(self, count: int) -> list[int]:
        """Remove all versions except the newest ones and the current one."""
        current, numbers = self.current(), self.numbers()
        expired = [number for number in numbers[: max(len(numbers) - count, 0)] if number != current]
        for number in expired:
            with contextlib.suppress(StoreError):
                self.at(number).remove()
        return expired


def copy_run(run: Run, target: Folder) -> None:
    """Copy a run, or a version's, with its members to any store, without checkpoints, locks, journals and results."""
    for name in run.folder.files():
        parts = name.split("/")
        if {CHECKPOINTS, RUN_LOCK, JOURNAL, RECORD, PROPORTIONS, PARTS, REPORT}.isdisjoint(parts) and not any(
            part.startswith(".") for part in parts
        ):
            copy_file(run.folder, target, name)


def copy_file(source: Folder, target: Folder, name: str, *, shared: bool = False) -> None:
    """Copy a file from one folder to another, in bounded memory if both are local.

    A file that never changes may be `shared`: where the file system has hard links, nothing is written.
    """
    if source.local and target.local:
        copy = share_atomically if shared else copy_atomically
        copy(Path(source.path) / name, Path(target.path) / name, target.guard)
    else:
        target.write(name, source.read(name))
