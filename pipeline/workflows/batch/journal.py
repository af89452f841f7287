"""The journal of a batch job: what it has read, how far it is, what came of it; and what there is to read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import fsspec
from fsspec.core import url_to_fs
from pydantic import BaseModel, ConfigDict, Field

from collapsium.storage.errors import AbsentError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import Count, Digest, Number, check, dump, read_record

JOURNAL = "state.json"
KIND = "collapsium-batch"
VERSION = 2  # the first with a digest in each record, as everywhere
ZARR = ("zarr.json", ".zarray", ".zgroup")  # files by which a folder is a Zarr array or group
PIECE = 1 << 20  # bytes of a file that are read at a time


class _Source(BaseModel):
    """A file that was read."""

    model_config = ConfigDict(extra="forbid")

    size: Count
    changed: str
    sha256: Digest
    below: str = ""
    copied: bool = Field(False, alias="copy")
    gone: bool = False
    reported: str = ""


class _Pending(BaseModel):
    """Files that are being read, and the digest of the corpus before."""

    sources: dict[str, _Source]
    before: str | None


class _Score(BaseModel):
    """What evaluating told of a model."""

    score: Number
    tokens: Annotated[int, Field(strict=True, ge=1, lt=1 << 63)]
    definition: str
    members: tuple[dict[str, str | Number | None], ...] = ()


class _JournalRecord(BaseModel):
    """What `state.json` says; see `Journal`."""

    model_config = ConfigDict(extra="forbid")

    sources: dict[str, _Source] = {}
    reading: dict[str, Any] = {}
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
    """What `state.json` says; it is written after each step.

    Attributes
    ----------
    sources : dict
        The files that are in the corpus: path, and size, time of change and digest as they were read; ``copy`` where
        they added nothing, ``gone`` where their absence was reported, ``reported`` with the digest of a later content
        that was warned of.
    reading : dict
        How they were read.
    pending : dict or None
        Files that are being read, and the digest of the corpus before; a job that was killed looks at the corpus to see
        whether they got in.
    number : int
        The version that is made, or was made last; 0 before the first.
    plan, corpus : str
        Digests of what it is made of, and of its corpus.
    base : int or None
        The version that was current as it began, which it is compared with.
    warm : bool
        Whether it begins from that.
    done : list of str
        The steps that are done.
    scores : dict
        What evaluating told.
    outcome : str
        ``published`` or ``alarm``; empty while it is being made.
    """

    sources: dict[str, dict[str, Any]] = field(default_factory=dict)
    reading: dict[str, Any] = field(default_factory=dict)
    pending: dict[str, Any] | None = None
    number: int = 0
    plan: str = ""
    corpus: str = ""
    base: int | None = None
    warm: bool = False
    done: list[str] = field(default_factory=list)
    scores: dict[str, Any] = field(default_factory=dict)
    outcome: str = ""

    @classmethod
    def read(cls, folder: Folder) -> Journal:
        """Read a job's journal.

        Parameters
        ----------
        folder : Folder
            The job's folder.

        Returns
        -------
        Journal
            An empty one where there is none.

        Raises
        ------
        DamagedError
            It does not hold what its format asks for.
        """
        try:
            found = read_record(folder, JOURNAL, KIND, VERSION, oldest=2)
        except AbsentError:
            return cls()
        told = {name: value for name, value in found.items() if name not in ("format", "version")}
        check(_JournalRecord, told, f"{folder.url}/{JOURNAL}")
        return cls(**told)

    def write(self, folder: Folder) -> None:
        """Write it, whole."""
        folder.write(JOURNAL, dump({"format": KIND, "version": VERSION, **asdict(self)}))


def find_sources(patterns: Iterable[str], known: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Find the files that patterns name, with size and digest; those that are known by size and time are not read.

    A Zarr array, which is a folder, counts as a file. Names that begin with a dot are left out, but of files that are
    named themselves.

    Parameters
    ----------
    patterns : iterable of str
        Files, folders and globs, local or fsspec URLs.
    known : mapping
        As `Journal.sources` has them.

    Returns
    -------
    dict
        In the order of the patterns, of one by name; ``below`` is a file's path below its folder or pattern.

    Raises
    ------
    AbsentError
        A pattern without wildcards names nothing.
    """
    found: dict[str, dict[str, Any]] = {}
    for pattern in patterns:
        fs, path = url_to_fs(pattern)
        wild = any(sign in pattern for sign in "*?[")
        names = sorted(fs.glob(path)) if wild else [path]
        if not wild and not fs.exists(path):
            raise AbsentError(f"{pattern}: no such file or folder")
        for name in names:
            folder = fs.isdir(name)
            root = re.split(r"[*?[]", path)[0] if wild else f"{name}/" if folder else name
            root = root.rpartition("/")[0]
            for file in _files_in(fs, name) if folder else [name]:
                below = file[len(root) :].lstrip("/")
                if (wild or folder) and any(part.startswith(".") for part in below.split("/")):
                    continue
                url = file if fs.protocol in ("file", ("file", "local")) else fs.unstrip_protocol(file)
                if url not in found:
                    found[url] = {**_described(fs, file, known.get(url)), "below": below}
    return found


def _files_in(fs: fsspec.AbstractFileSystem, folder: str) -> list[str]:
    """List the files of a folder, and its Zarr arrays as one source each."""
    files = sorted(fs.find(folder))
    stores = sorted({file.rpartition("/")[0] for file in files if file.rpartition("/")[2] in ZARR})
    outer = [one for one in stores if not any(one.startswith(f"{other}/") for other in stores)]
    return sorted({next((one for one in outer if file.startswith(f"{one}/")), file) for file in files})


def _described_array(fs: fsspec.AbstractFileSystem, path: str) -> dict[str, Any]:
    """Describe a Zarr array, a folder, as a file of all that its files hold."""
    described = {file[len(path) :]: _described(fs, file, None) for file in sorted(fs.find(path))}
    changed = max((one["changed"] for one in described.values()), default="")
    size = sum(one["size"] for one in described.values())
    digest = hashlib.sha256("".join(f"{name} {one['sha256']}\n" for name, one in described.items()).encode())
    return {"size": size, "changed": changed, "sha256": digest.hexdigest()}


def _described(fs: fsspec.AbstractFileSystem, path: str, known: Mapping[str, Any] | None) -> dict[str, Any]:
    if fs.isdir(path):
        return _described_array(fs, path)
    info = fs.info(path)
    changed = next((str(info[name]) for name in ("mtime", "ETag", "LastModified", "created") if name in info), "")
    if known is not None and known["size"] == info["size"] and known["changed"] == changed and changed:
        return {name: known[name] for name in ("size", "changed", "sha256")}
    digest = hashlib.sha256()
    with fs.open(path, "rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return {"size": int(info["size"]), "changed": changed, "sha256": digest.hexdigest()}
