"""Checkpoints on disk: ``checkpoints/<iteration>/`` with Zarr groups and, last, `checkpoint.json` with their digests.

`latest.json` names the latest checkpoint and is replaced last, so that an interrupted checkpoint is never read. The
previous checkpoint is retained in case the latest is damaged. Workers do not check the run's lock when they write, so
later owners of the run write to separate folders, ``<iteration>-<generation>``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import BaseModel

from collapsium.storage.data_types import AnyArray, JsonObject
from collapsium.storage.errors import AbsentError, DamagedError, StoreError
from collapsium.storage.io.arrays import (
    Rows,
    StoredNumber,
    StoredRows,
    check_arrays,
    open_arrays,
    read_arrays,
    write_arrays,
)
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import Count, Digest, Record, check, dump, read_record

LATEST, RECORD = "latest.json", "checkpoint.json"
KIND = "collapsium-checkpoint"
VERSION = 2
RETAINED = 2  # Number of checkpoints that remain when a new one is published
PARTS = ("global_state", "rows", "local_states", "events.jsonl", RECORD)  # Names in the folder of a checkpoint

_NAME = re.compile(r"([0-9]{8,18})(?:-([0-9]{4,16}))?", re.ASCII)


class LatestRecord(BaseModel):
    """The fields of `latest.json`: the iteration of the latest checkpoint, and the generation that wrote it."""

    iteration: Count
    generation: Count = 0


class CheckpointRecord(Record):
    """The fields of `checkpoint.json`."""

    format: str = KIND
    version: int = VERSION
    iteration: Count  # Number of iterations made
    run: Digest  # Digest of all that determines the run's model
    parts: dict[str, Digest]  # Digests of the groups of arrays
    # Block boundaries: the first word of each block of the vocabulary, then the number of words
    blocks: tuple[Count, ...]
    shards: Count  # Number of shards
    events: tuple[Count, Digest]  # Size in bytes and digest of `events.jsonl` before the event of this iteration
    progress: JsonObject  # Fields of the event of this iteration, without its score
    previous: dict[str, float]  # Metrics of the previous iteration
    generation: Count = 0  # Generation of the lock under which the checkpoint was written


class Checkpoint:
    """One checkpoint: global state, blocks of the vocabulary and local states, each written by its owner."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def write(self, part: str, arrays: Mapping[str, Rows]) -> str:
        """Write a group of arrays, such as ``global_state`` or ``rows/00000``; return its digest."""
        return write_arrays(self.folder / part, arrays, compress=False)

    def read(self, part: str, digest: str) -> dict[str, AnyArray]:
        """Read a group of arrays."""
        return read_arrays(self.folder / part, digest)

    def open(self, part: str, digest: str) -> dict[str, StoredRows | StoredNumber]:
        """Open a group of arrays, whose rows are then read in pieces."""
        return open_arrays(self.folder / part, digest)

    def check(self, part: str, digest: str) -> list[str]:
        """Return the faults of a group of arrays."""
        return check_arrays(self.folder / part, digest)

    def record(self) -> CheckpointRecord:
        """Read and check the checkpoint's record."""
        path = f"{self.folder.url}/{RECORD}"
        try:
            return check(CheckpointRecord, read_record(self.folder, RECORD, KIND, VERSION, oldest=2), path)
        except AbsentError:
            raise DamagedError(path, "the file is missing") from None


class Checkpoints:
    """The checkpoints of a run."""

    def __init__(self, folder: Folder, generation: int = 0) -> None:
        self.folder, self._generation = folder, generation
        self._written_generation = max(generation, 1)

    def at(self, iteration: int) -> Checkpoint:
        """Return the newest finished checkpoint of an iteration, else the one that would be written."""
        finished = [place for place in self._places() if place.iteration == iteration and self._is_finished(place)]
        return Checkpoint(self._folder(finished[-1])) if finished else self.writable(iteration)

    def writable(self, iteration: int) -> Checkpoint:
        """Return the checkpoint of an iteration in the folder of this generation."""
        return Checkpoint(Folder(self._folder(_Place(iteration, self._written_generation)).url))

    @property
    def generation(self) -> int:
        """The highest generation that has begun a checkpoint; 0 without checkpoints."""
        with contextlib.suppress(DamagedError):
            named = self._latest()
            return max((place.generation for place in (*self._places(), *([named] if named else []))), default=0)
        return max((place.generation for place in self._places()), default=0)

    def publish(self, record: CheckpointRecord) -> None:
        """Make a complete checkpoint the latest, and remove all but the last two."""
        published = _Place(record.iteration, self._written_generation)
        record = record.model_copy(update={"generation": self._generation})
        self._folder(published).write(RECORD, dump(record.model_dump(mode="json")))
        self._name(record.iteration)
        before = {place.iteration: place for place in self._places() if place != published and self._is_finished(place)}
        retained = [before[number] for number in sorted(before) if number < record.iteration][1 - RETAINED :]
        self._remove(place for place in self._places() if place not in (*retained, published))

    def go_back(self, iteration: int) -> None:
        """Make an older checkpoint the latest, and remove the later ones, which are damaged."""
        later = [place for place in self._places() if place.iteration > iteration]
        named = None
        with contextlib.suppress(DamagedError):
            named = self.latest()
        if later or named != iteration:
            self._name(iteration)
        self._remove(later)

    def _remove(self, places: Iterable[_Place]) -> None:
        for place in places:
            # A leftover folder does no harm and may be removed the next time.
            with contextlib.suppress(StoreError):
                self._folder(place).remove(PARTS)

    def _name(self, iteration: int) -> None:
        record = {"format": KIND, "version": VERSION, "iteration": iteration, "generation": self._generation}
        self.folder.write(LATEST, dump(record))

    def discard(self, iteration: int) -> None:
        """Remove the files of a checkpoint that could not be finished."""
        place = self.writable(iteration).folder
        # A leftover folder does no harm, and another error is being reported.
        with contextlib.suppress(StoreError):
            if not place.exists(RECORD):
                place.remove(PARTS)

    def latest(self) -> int | None:
        """Return the iteration of the latest checkpoint."""
        named = self._latest()
        return None if named is None else named.iteration

    def _latest(self) -> _Place | None:
        """Return the iteration and the generation in `latest.json`."""
        try:
            record = read_record(self.folder, LATEST, KIND, VERSION, oldest=2)
        except AbsentError:
            return None
        latest = check(LatestRecord, record, f"{self.folder.url}/{LATEST}")
        return _Place(latest.iteration, latest.generation)

    def candidates(self) -> tuple[list[int], list[str]]:
        """Return the finished checkpoints, the latest first, and the faults of `latest.json`."""
        finished = [place for place in self._places() if self._is_finished(place)]
        broken = []
        try:
            latest = self._latest()
        except DamagedError as error:
            latest, broken = None, [str(error)]
        if latest is None:
            if finished and not broken:
                broken = [f"{self.folder.url}/{LATEST}: the file is missing"]
            return sorted({place.iteration for place in finished}, reverse=True), broken
        known = {
            place.iteration
            for place in finished
            if place.iteration <= latest.iteration or place.generation > max(latest.generation, 1)
        }
        return sorted({latest.iteration, *known}, reverse=True), broken

    def unfinished(self) -> list[str]:
        """Return the paths of missing records of checkpoints before the latest one."""
        latest = max(self.candidates()[0], default=0)
        places = [self._folder(place) for place in self._places() if place.iteration < latest]
        return [f"{place.url}/{RECORD}" for place in places if not place.exists(RECORD)]

    def _places(self) -> list[_Place]:
        """Return the checkpoints that have a folder, by iteration and generation."""
        matches = {name: _NAME.fullmatch(name) for name in self.folder.names()}
        places = {
            name: _Place(int(match[1]), int(match[2] or 1)) for name, match in matches.items() if match is not None
        }
        return sorted(place for name, place in places.items() if name == place.name)

    def _folder(self, place: _Place) -> Folder:
        return self.folder / place.name

    def _is_finished(self, place: _Place) -> bool:
        return self._folder(place).exists(RECORD)


class _Place(NamedTuple):
    """The iteration of a checkpoint, and the generation that has written it."""

    iteration: int
    generation: int

    @property
    def name(self) -> str:
        """Name of the checkpoint's folder."""
        later = f"-{self.generation:04d}" if self.generation > 1 else ""
        return f"{self.iteration:08d}{later}"
