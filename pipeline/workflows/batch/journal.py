"""The journal of a batch job (sources, completed steps, scores, outcome), and the look-up of its sources."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, NotRequired, TypedDict

import fsspec
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from collapsium.pipeline.monitoring.events import Event, Sink, emit
from collapsium.pipeline.workflows.batch.job_file import Job
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import MANIFEST, VECTORS
from collapsium.storage.data_types import Json
from collapsium.storage.errors import AbsentError
from collapsium.storage.io.file import is_there, locate
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import Count, Digest, Number, check, digest_of, dump, read_record
from collapsium.storage.runs.published import Versions

JOURNAL = "state.json"
KIND = "collapsium-batch"
VERSION = 2
ZARR = ("zarr.json", ".zarray", ".zgroup")  # Files that mark a folder as a Zarr array or group
READ_BYTES = 1 << 20  # Bytes of a file that are read at a time for its digest


class Source(TypedDict):
    """A file that was read: its size, time of change and digest."""

    size: int
    changed: str
    sha256: str
    below: NotRequired[str]  # Path below its folder or pattern
    copy: NotRequired[bool]  # True if it added nothing to the corpus
    gone: NotRequired[bool]  # True if its absence was reported
    reported: NotRequired[str]  # Digest of a later content that was warned of


Sources = dict[str, Source]  # Files by path or URL


class Pending(TypedDict):
    """Files that are being read, and the digest of the corpus before."""

    sources: Sources
    before: str | None


class ScoreRecord(TypedDict):
    """The score of a model: number of tokens (or vectors), definition, and scores of members."""

    score: float
    tokens: int
    definition: str
    members: NotRequired[list[dict[str, Json]]]


class _Source(BaseModel):
    """Validates a `Source`."""

    model_config = ConfigDict(extra="forbid")

    size: Count
    changed: str
    sha256: Digest
    below: str = ""
    copied: bool = Field(False, alias="copy")
    gone: bool = False
    reported: str = ""


class _Pending(BaseModel):
    """Validates a `Pending`."""

    sources: dict[str, _Source]
    before: str | None


class _Score(BaseModel):
    """Validates a `ScoreRecord`."""

    score: Number
    tokens: Annotated[int, Field(strict=True, ge=1, lt=1 << 63)]
    definition: str
    members: tuple[dict[str, str | Number | None], ...] = ()


class _JournalRecord(BaseModel):
    """Validates a `Journal`."""

    model_config = ConfigDict(extra="forbid")

    sources: dict[str, _Source] = {}
    reading: dict[str, JsonValue] = {}
    pending: _Pending | None = None
    number: Annotated[int, Field(strict=True, ge=0, lt=1 << 31)] = 0
    plan: str = ""
    corpus: str = ""
    base: Annotated[int, Field(strict=True, ge=1, lt=1 << 31)] | None = None
    warm: Annotated[bool, Field(strict=True)] = False
    done: list[str] = []
    scores: dict[str, _Score] = {}
    outcome: str = ""


@dataclass
class Journal:
    """The contents of `state.json`, which is written after each step."""

    sources: Sources = field(default_factory=dict)  # The files that are in the corpus, by path
    reading: dict[str, Json] = field(default_factory=dict)  # Options with which they were read
    # Files that are being read. After a kill, the corpus's digest shows whether they were added.
    pending: Pending | None = None
    number: int = 0  # The version that is being made, or was made last; 0 before the first
    # Digests of its options with its corpus, and of its corpus
    plan: str = ""
    corpus: str = ""
    base: int | None = None  # The version that was current at its start, with which it is compared
    warm: bool = False  # Whether its fit starts from that version
    done: list[str] = field(default_factory=list)  # The completed steps
    scores: dict[str, ScoreRecord] = field(default_factory=dict)  # Scores of the ``new`` model and the ``previous`` one
    outcome: str = ""  # ``published`` or ``alarm``; empty while the version is being made

    @classmethod
    def read(cls, folder: Folder) -> Journal:
        """Read a job's journal."""
        try:
            record = read_record(folder, JOURNAL, KIND, VERSION, oldest=VERSION)
        except AbsentError:
            return cls()
        values = {name: value for name, value in record.items() if name not in ("format", "version")}
        check(_JournalRecord, values, f"{folder.url}/{JOURNAL}")
        return cls(**values)

    def write(self, folder: Folder) -> None:
        """Write the journal atomically."""
        folder.write(JOURNAL, dump({"format": KIND, "version": VERSION, **asdict(self)}))


def find_sources(
    patterns: Iterable[str], known: Mapping[str, Source], kind: str | None = None, left_out: list[str] | None = None
) -> Sources:
    """Return the files that patterns match, with size and digest.

    A file whose size and time of change are known is not read again. A Zarr array, which is a folder, counts as a file.
    Names that begin with a dot or an underscore are left out, unless they are named themselves.
    """
    from collapsium.storage.readers import open as readers

    sources: Sources = {}
    for pattern in patterns:
        fs, path = locate(pattern)
        exists = is_there(fs, path)
        wild = not exists and any(sign in pattern for sign in "*?[")
        names = sorted(fs.glob(path)) if wild else [path]
        if not wild and not exists:
            raise AbsentError(f"{pattern}: no such file or folder")
        below: dict[str, str] = {}
        for name in names:
            folder = fs.isdir(name)
            root = re.split(r"[*?[]", path)[0] if wild else f"{name}/" if folder else name
            root = root.rpartition("/")[0]
            files = [name]
            if folder:
                # Each Zarr array counts as one file.
                inside = fs.find(name)
                stores = sorted({file.rpartition("/")[0] for file in inside if file.rpartition("/")[2] in ZARR})
                outer = [store for store in stores if not any(store.startswith(f"{other}/") for other in stores)]
                files = sorted(
                    {next((store for store in outer if file.startswith(f"{store}/")), file) for file in inside}
                )
            for file in files:
                name_below = file[len(root) :].lstrip("/")
                if not (wild or folder) or not any(part[:1] in ("_", ".") for part in name_below.split("/")):
                    below[file] = name_below
        kinds = {kind for kind in map(readers.kind_of_name, below) if kind is not None}
        retained = kind if kind in kinds and kind != VECTORS else next(iter(kinds)) if len(kinds) == 1 else None
        for file, name_below in below.items():
            if retained is not None and readers.kind_of_name(file) != retained:
                (left_out if left_out is not None else []).append(file)
                continue
            url = file if fs.protocol in ("file", ("file", "local")) else fs.unstrip_protocol(file)
            if url not in sources:
                sources[url] = {**_described(fs, file, known.get(url)), "below": name_below}
    return sources


def _described(fs: fsspec.AbstractFileSystem, path: str, known: Source | None) -> Source:
    """Return size, time and digest of a file; of a known one that has not changed, the known digest."""
    if fs.isdir(path):
        # A Zarr array, over all its files
        parts = {file[len(path) :]: _described(fs, file, None) for file in sorted(fs.find(path))}
        changed = max((part["changed"] for part in parts.values()), default="")
        total = hashlib.sha256("".join(f"{name} {part['sha256']}\n" for name, part in parts.items()).encode())
        size = sum(part["size"] for part in parts.values())
        return {"size": size, "changed": changed, "sha256": total.hexdigest()}
    info = fs.info(path)
    changed = next((str(info[name]) for name in ("mtime", "ETag", "LastModified", "created") if name in info), "")
    if known is not None and known["size"] == info["size"] and known["changed"] == changed and changed:
        return {"size": known["size"], "changed": known["changed"], "sha256": known["sha256"]}
    digest = hashlib.sha256()
    with fs.open(path, "rb") as file:
        while chunk := file.read(READ_BYTES):
            digest.update(chunk)
    return {"size": int(info["size"]), "changed": changed, "sha256": digest.hexdigest()}


CYCLES, PUBLISHED, CORPUS = "cycles", "published", "corpus"


@dataclass
class JobContext:
    """A running job, whose lock this process holds."""

    job: Job  # Its configuration
    folder: Folder  # Its folder
    sinks: Sequence[Sink]  # Receive each event
    owned: Callable[[], None]  # Raises an error if another process has taken over the job
    warnings: list[str] = field(default_factory=list)  # Messages that need attention
    notices: list[str] = field(default_factory=list)  # Messages for information, each reported once

    def __post_init__(self) -> None:
        self.journal = Journal.read(self.folder)
        self.versions = Versions(self.folder / PUBLISHED)
        self.corpus_folder = self.folder / CORPUS

    @property
    def corpus(self) -> Corpus | None:
        """The corpus; None before the first ingest."""
        return Corpus(self.corpus_folder.url) if self.corpus_folder.exists(MANIFEST) else None

    @property
    def execution(self) -> dict[str, Any]:
        """Arguments of functions that choose the executor."""
        cluster = self.job.cluster
        return {"scheduler": cluster.scheduler, "workers": cluster.workers, "tls": self.job.tls}

    def plan(self) -> str:
        """Return the digest of the options and the corpus of the next version; empty without a corpus."""
        corpus = self.corpus
        return "" if corpus is None else digest_of({**self.job.plan(), "corpus": corpus.manifest.digest})

    def write(self) -> None:
        """Write the journal."""
        self.owned()
        self.journal.write(self.folder)

    def warn(self, text: str) -> None:
        """Report a message that needs attention."""
        self.warnings.append(text)
        self.emit({"event": "warning", "text": text})

    def note(self, text: str) -> None:
        """Report a message for information."""
        self.notices.append(text)
        self.emit({"event": "notice", "text": text})

    def emit(self, event: Event) -> None:
        """Send an event to all sinks."""
        emit(self.sinks, event)

    def emit_step(self, step: str, *, done: bool) -> None:
        """Report the start or the end of a step."""
        self.emit({"event": "step", "step": step, "done": done, "version": self.journal.number})

    def progress(self, step: str) -> Callable[[int], None]:
        """Return a function that reports the number of documents of a step."""
        return lambda number: self.emit({"event": "documents", "step": step, "documents": number})
