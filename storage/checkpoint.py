"""Checkpoints on disk: ``checkpoints/<iteration>/`` with Zarr groups and, last, `checkpoint.json` with their digests.

`latest.json` names the latest one, and is replaced last: what was cut short is never looked at.
The one before stays, in case that the latest is damaged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from collapsar.storage.arrays import StoredRows, check_arrays, open_arrays, read_arrays, write_arrays
from collapsar.storage.errors import AbsentError, DamagedError, StoreError
from collapsar.storage.folder import Folder
from collapsar.storage.plain import Rows
from collapsar.storage.records import Count, Digest, check, dump, numbers_of_names, read_record

LATEST, RECORD = "latest.json", "checkpoint.json"
KIND = "collapsar-checkpoint"
VERSION = 2
KEPT = 2
PARTS = ("globals", "rows", "locals", "events.jsonl", RECORD)  # what a checkpoint's folder holds


class LatestRecord(BaseModel):
    """What `latest.json` says: which checkpoint is the latest."""

    iteration: Count


class CheckpointRecord(BaseModel):
    """What `checkpoint.json` says.

    ``run`` is the digest of all that makes the run's model what it is; ``parts`` the digests of the arrays; ``blocks``
    the first words of the blocks of the vocabulary and, last, its size; ``events`` the size in bytes and the digest of
    `events.jsonl` before the iteration was told; ``progress`` what there is to tell of it, but for its score, and
    ``previous`` the figures before it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str = KIND
    version: int = VERSION
    iteration: Count
    run: Digest
    parts: dict[str, Digest]
    blocks: tuple[Count, ...]
    shards: Count
    events: tuple[Count, Digest]
    progress: dict[str, Any]
    previous: dict[str, float]


class Checkpoint:
    """One checkpoint: globals, blocks of the vocabulary, and local states, each written by whoever holds it.

    Parameters
    ----------
    folder : Folder
        The checkpoint's folder.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def write(self, part: str, arrays: Mapping[str, Rows]) -> str:
        """Write a part, such as ``globals``, ``rows/00000`` or ``locals/00000``; return its digest."""
        return write_arrays(self.folder / part, arrays, compress=False)

    def read(self, part: str, digest: str) -> dict[str, npt.NDArray[Any]]:
        """Read a part."""
        return read_arrays(self.folder / part, digest)

    def open(self, part: str, digest: str) -> dict[str, StoredRows]:
        """Open the arrays of a part, to be read piece by piece."""
        return open_arrays(self.folder / part, digest)

    def check(self, part: str, digest: str) -> list[str]:
        """Read a part and say what is broken of it."""
        return check_arrays(self.folder / part, digest)

    def record(self) -> CheckpointRecord:
        """Read what the checkpoint says of itself.

        Returns
        -------
        CheckpointRecord
            Its record.

        Raises
        ------
        DamagedError
            The record is missing or damaged.
        """
        path = f"{self.folder.url}/{RECORD}"
        try:
            return check(CheckpointRecord, read_record(self.folder, RECORD, KIND, VERSION, oldest=2), path)
        except AbsentError:
            raise DamagedError(path, "the file is missing") from None


class Checkpoints:
    """The checkpoints of a run.

    Parameters
    ----------
    folder : Folder
        The run's folder ``checkpoints``.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def at(self, iteration: int) -> Checkpoint:
        """Return the checkpoint of an iteration, whether it is there or not."""
        return Checkpoint(self.folder / f"{iteration:08d}")

    def publish(self, record: CheckpointRecord) -> None:
        """Make a checkpoint that is whole the latest, and remove all but the last two.

        Parameters
        ----------
        record : CheckpointRecord
            What it holds.
        """
        iteration = record.iteration
        self.at(iteration).folder.write(RECORD, dump(record.model_dump(mode="json")))
        self._name(iteration)
        whole = [number for number in self._numbers() if self.at(number).folder.exists(RECORD)]
        kept = [number for number in whole if number <= iteration][-KEPT:]
        for number in self._numbers():
            if number not in kept:
                with contextlib.suppress(StoreError):  # it does no harm; the next time, perhaps
                    self.at(number).folder.remove(PARTS)

    def go_back(self, iteration: int) -> None:
        """Make an older checkpoint the latest, and remove those after it: they are damaged, and so told otherwise."""
        later = [number for number in self._numbers() if number > iteration]
        if later or self._named() != iteration:
            self._name(iteration)
        for number in later:
            with contextlib.suppress(StoreError):
                self.at(number).folder.remove(PARTS)

    def _named(self) -> int | None:
        try:
            return self.latest()
        except DamagedError:
            return None

    def _name(self, iteration: int) -> None:
        self.folder.write(LATEST, dump({"format": KIND, "version": VERSION, "iteration": iteration}))

    def discard(self, iteration: int) -> None:
        """Remove what was written of a checkpoint that could not be finished."""
        place = self.at(iteration).folder
        with contextlib.suppress(StoreError):  # it does no harm, and there is an error to tell already
            if not place.exists(RECORD):
                place.remove(PARTS)

    def latest(self) -> int | None:
        """Return the iteration of the latest checkpoint; None where there is none.

        Returns
        -------
        int or None
            The iteration.

        Raises
        ------
        DamagedError
            `latest.json` does not name one.
        """
        try:
            record = read_record(self.folder, LATEST, KIND, VERSION, oldest=2)
        except AbsentError:
            return None
        return check(LatestRecord, record, f"{self.folder.url}/{LATEST}").iteration

    def candidates(self) -> tuple[list[int], list[str]]:
        """List the checkpoints that were finished once, the latest first, and what is wrong with `latest.json`.

        Returns
        -------
        iterations : list of int
            Up to the one that `latest.json` names; where that is missing or damaged, all that have a record.
        broken : list of str
            What is wrong with `latest.json`; as a rule empty.
        """
        finished = [number for number in self._numbers() if self.at(number).folder.exists(RECORD)]
        broken = []
        try:
            latest = self.latest()
        except DamagedError as error:  # not what a store says that fails
            latest, broken = None, [str(error)]
        if latest is None:
            if finished and not broken:
                broken = [f"{self.folder.url}/{LATEST}: the file is missing"]
            return finished[::-1], broken
        return sorted({latest, *(number for number in finished if number <= latest)}, reverse=True), broken

    def unfinished(self) -> list[str]:
        """Name the records that are missing of checkpoints before the latest one, which were finished once."""
        latest = max(self.candidates()[0], default=0)
        places = [self.at(number).folder for number in self._numbers() if number < latest]
        return [f"{place.url}/{RECORD}" for place in places if not place.exists(RECORD)]

    def _numbers(self) -> list[int]:
        return numbers_of_names(self.folder.names(), 8)
