"""A run on disk: `run.json`, written once, and `events.jsonl`, which grows."""

from __future__ import annotations

import json
import os
from typing import Any

from collapsar.storage.checkpoint import Checkpoints
from collapsar.storage.errors import AbsentError, DamagedError
from collapsar.storage.folder import Folder, ensure_free
from collapsar.storage.records import dump, read_record

RECORD, EVENTS, MODEL, CHECKPOINTS = "run.json", "events.jsonl", "model", "checkpoints"
KIND = "collapsar-run"
VERSION = 1


class Run:
    """A run's folder.

    Parameters
    ----------
    url : str or path-like
        Local path or fsspec URL.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.folder = Folder(url)

    @property
    def model(self) -> Folder:
        """The folder of the run's model."""
        return self.folder / MODEL

    @property
    def checkpoints(self) -> Checkpoints:
        """The run's checkpoints."""
        return Checkpoints(self.folder / CHECKPOINTS)

    def create(self, record: dict[str, Any]) -> None:
        """Make the folder and write `run.json`.

        Parameters
        ----------
        record : dict
            Configuration, corpus, versions and seed.

        Raises
        ------
        OccupiedError
            The folder exists.
        """
        ensure_free(self.folder)
        self.folder.make()
        self.folder.write(RECORD, dump({"format": KIND, "version": VERSION, **record}))

    def record(self) -> dict[str, Any]:
        """Read `run.json`.

        Returns
        -------
        dict
            What `create` wrote.

        Raises
        ------
        AbsentError
            This is no run.
        DamagedError
            The file is not such a record.
        """
        if not self.folder.exists(RECORD):
            raise AbsentError(f"{self.folder.url}: not a run, it has no {RECORD}")
        return read_record(self.folder, RECORD, KIND, VERSION)

    def tell(self, event: dict[str, Any]) -> None:
        """Append an event to `events.jsonl`."""
        self.folder.append(EVENTS, (json.dumps(event, allow_nan=False) + "\n").encode())

    def events(self) -> list[dict[str, Any]]:
        """Read the events so far, oldest first; a last line that is still being written is left out."""
        if not self.folder.exists(EVENTS):
            return []
        *whole, _ = self.folder.read(EVENTS).split(b"\n")
        found = []
        for number, line in enumerate(whole, start=1):
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise DamagedError(
                    f"{self.folder.url}/{EVENTS}", f"expected JSON ({error})", f"line {number}"
                ) from None
        return found
