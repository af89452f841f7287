"""Checkpoints on disk: ``checkpoints/<iteration>/`` with Zarr groups and, last, `checkpoint.json` with their digests.

`latest.json` names the latest one, and is replaced last: what was cut short is never looked at.
The one before stays, in case that the latest is damaged. Workers write without a look at the run's lock, so that owners
of the run after the first have folders of their own: ``<iteration>-<generation>``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from collapsium.storage.data_types import AnyArray, JsonObject
from collapsium.storage.errors import AbsentError, DamagedError, StoreError
from collapsium.storage.io.arrays import StoredRows, check_arrays, open_arrays, read_arrays, write_arrays
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import Count, Digest, check, dump, read_record
from collapsium.storage.io.zarr_fast_path import Rows

LATEST, RECORD = "latest.json", "checkpoint.json"
KIND = "collapsium-checkpoint"
VERSION = 2
KEPT = 2
PARTS = ("global_state", "rows", "local_states", "events.jsonl", RECORD)  # what a checkpoint's folder holds

_NAME = re.compile(r"([0-9]{8,18})(?:-([0-9]{4,16}))?", re.ASCII)


class LatestRecord(BaseModel):
    """What `latest.json` says: which checkpoint is the latest, and the generation that has said so."""

    iteration: Count
    generation: Count = 0


class CheckpointRecord(BaseModel):
    """What `checkpoint.json` says.

    ``run`` is the digest of all that makes the run's model what it is; ``parts`` the digests of the arrays; ``blocks``
    the first words of the blocks of the vocabulary and, last, its size; ``events`` the size in bytes and the digest of
    `events.jsonl` before the iteration was told; ``progress`` what there is to tell of it, but for its score, and
    ``previous`` the figures before it; ``generation`` the number of the lock under which it was written.
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
    progress: JsonObject
    previous: dict[str, float]
    generation: Count = 0


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
        """Write a part, such as ``global_state``, ``rows/00000`` or ``local_states/00000``; return its digest."""
        return write_arrays(self.folder / part, arrays, compress=False)

    def read(self, part: str, digest: str) -> dict[str, AnyArray]:
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
    generation : int, optional
        That of who writes.
    """

    def __init__(self, folder: Folder, generation: int = 0) -> None:
        self.folder, self._generation = folder, generation

    def at(self, iteration: int) -> Checkpoint:
        """Return the checkpoint of an iteration: the newest that was finished, else the one that would be written."""
        finished = [place for place in self._places() if place.iteration == iteration and self._is_finished(place)]
        return Checkpoint(self._folder(finished[-1])) if finished else self.own(iteration)

    def own(self, iteration: int) -> Checkpoint:
        """Return the checkpoint of an iteration that this generation writes; its folder is nobody else's."""
        return Checkpoint(Folder(self._folder(_Place(iteration, self._own)).url))

    @property
    def generation(self) -> int:
        """The highest generation that has begun one; 0 where there is none."""
        with contextlib.suppress(DamagedError):
            named = self._latest()
            return max((place.generation for place in (*self._places(), *([named] if named else []))), default=0)
        return max((place.generation for place in self._places()), default=0)

    @property
    def _own(self) -> int:
        return max(self._generation, 1)

    def publish(self, record: CheckpointRecord) -> None:
        """Make a checkpoint that is whole the latest, and remove all but the last two.

        Parameters
        ----------
        record : CheckpointRecord
            What it holds.
        """
        own = _Place(record.iteration, self._own)
        record = record.model_copy(update={"generation": self._generation})
        self._folder(own).write(RECORD, dump(record.model_dump(mode="json")))
        self._name(record.iteration)
        before = {place.iteration: place for place in self._places() if place != own and self._is_finished(place)}
        kept = [before[number] for number in sorted(before) if number < record.iteration][1 - KEPT :]
        self._remove(place for place in self._places() if place not in (*kept, own))

    def go_back(self, iteration: int) -> None:
        """Make an older checkpoint the latest, and remove those after it: they are damaged, and so told otherwise."""
        later = [place for place in self._places() if place.iteration > iteration]
        if later or self._named() != iteration:
            self._name(iteration)
        self._remove(later)

    def _remove(self, places: Iterable[_Place]) -> None:
        for place in places:
            with contextlib.suppress(StoreError):  # it does no harm; the next time, perhaps
                self._folder(place).remove(PARTS)

    def _named(self) -> int | None:
        try:
            return self.latest()
        except DamagedError:
            return None

    def _name(self, iteration: int) -> None:
        record = {"format": KIND, "version": VERSION, "iteration": iteration, "generation": self._generation}
        self.folder.write(LATEST, dump(record))

    def discard(self, iteration: int) -> None:
        """Remove what was written of a checkpoint that could not be finished."""
        place = self.own(iteration).folder
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
        named = self._latest()
        return None if named is None else named.iteration

    def _latest(self) -> _Place | None:
        """Return the iteration and the generation that `latest.json` names."""
        try:
            record = read_record(self.folder, LATEST, KIND, VERSION, oldest=2)
        except AbsentError:
            return None
        found = check(LatestRecord, record, f"{self.folder.url}/{LATEST}")
        return _Place(found.iteration, found.generation)

    def candidates(self) -> tuple[list[int], list[str]]:
        """List the checkpoints that were finished once, the latest first, and what is wrong with `latest.json`.

        Returns
        -------
        iterations : list of int
            Up to the one that `latest.json` names, and those of later generations; where that is missing or damaged,
            all that have a record.
        broken : list of str
            What is wrong with `latest.json`; as a rule empty.
        """
        finished = [place for place in self._places() if self._is_finished(place)]
        broken = []
        try:
            latest = self._latest()
        except DamagedError as error:  # not what a store says that fails
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
        """Name the records that are missing of checkpoints before the latest one, which were finished once."""
        latest = max(self.candidates()[0], default=0)
        places = [self._folder(place) for place in self._places() if place.iteration < latest]
        return [f"{place.url}/{RECORD}" for place in places if not place.exists(RECORD)]

    def _places(self) -> list[_Place]:
        """Return the checkpoints that have a folder, by iteration and generation."""
        found = {name: _NAME.fullmatch(name) for name in self.folder.names()}
        places = {name: _Place(int(one[1]), int(one[2] or 1)) for name, one in found.items() if one is not None}
        return sorted(place for name, place in places.items() if name == place.name)

    def _folder(self, place: _Place) -> Folder:
        return self.folder / place.name

    def _is_finished(self, place: _Place) -> bool:
        return self._folder(place).exists(RECORD)


class _Place(NamedTuple):
    """A checkpoint's iteration, and the generation that has written it."""

    iteration: int
    generation: int

    @property
    def name(self) -> str:
        """The name of its folder."""
        later = f"-{self.generation:04d}" if self.generation > 1 else ""
        return f"{self.iteration:08d}{later}"
