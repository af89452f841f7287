"""Checkpoints on disk: ``checkpoints/<iteration>/`` with Zarr groups, and `latest.json`, replaced last.

Readers follow only `latest.json`: a checkpoint that was cut short is never looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from collapsar.storage.arrays import Rows, StoredRows, open_arrays, read_arrays, write_arrays
from collapsar.storage.errors import AbsentError, DamagedError
from collapsar.storage.folder import Folder
from collapsar.storage.records import dump, read_record

LATEST = "latest.json"
KIND = "collapsar-checkpoint"
VERSION = 1
KEPT = 2


class Checkpoint:
    """One checkpoint: globals, blocks of the vocabulary, and local states, each written by whoever holds it.

    Parameters
    ----------
    folder : Folder
        The checkpoint's folder.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def write(self, part: str, arrays: Mapping[str, Rows]) -> None:
        """Write a part, such as ``globals``, ``rows/00000`` or ``locals/00000``."""
        write_arrays(self.folder / part, arrays, compress=False)

    def read(self, part: str) -> dict[str, npt.NDArray[Any]]:
        """Read a part."""
        return read_arrays(self.folder / part)

    def open(self, part: str) -> dict[str, StoredRows]:
        """Open the arrays of a part, to be read piece by piece."""
        return open_arrays(self.folder / part)


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

    def publish(self, iteration: int) -> None:
        """Make a checkpoint that is whole the latest, and remove all but the last two.

        Parameters
        ----------
        iteration : int
            The iteration that it holds.
        """
        self.folder.write(LATEST, dump({"format": KIND, "version": VERSION, "iteration": iteration}))
        kept = sorted(name for name in self.folder.names() if name.isdigit() and int(name) <= iteration)[-KEPT:]
        for name in self.folder.names():
            if name.isdigit() and name not in kept:
                (self.folder / name).remove()

    def latest(self) -> int | None:
        """Return the iteration of the latest whole checkpoint; None where there is none.

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
            record = read_record(self.folder, LATEST, KIND, VERSION)
        except AbsentError:
            return None
        iteration = record.get("iteration")
        if type(iteration) is not int or iteration < 0:
            raise DamagedError(
                f"{self.folder.url}/{LATEST}", f"expected a number, found {iteration!r}", "field 'iteration'"
            )
        return iteration
