"""Folders of fits in Python: a named one, or a temporary one that the model owns; and corpora made of texts in them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from collapsium.pipeline.corpora.ingest import ingest
from collapsium.pipeline.corpora.texts_in_memory import ID, fields_of, named_texts, table_of, write_texts
from collapsium.pipeline.families.model import Model
from collapsium.storage.errors import OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.transactions import ensure_free
from collapsium.storage.runs.run import CORPUS, RECORD

PREFIX = "collapsium-"


class RunFolder:
    """Where a fit writes its run.

    Parameters
    ----------
    run : str
        The run's folder.
    temporary : str, optional
        The folder that is removed with the model.
    scheduler : str, optional
        Where texts are read: one after another, or on threads.
    """

    def __init__(self, run: str, temporary: str | None = None, scheduler: str = "threads") -> None:
        self.run, self.temporary = run, temporary
        self._scheduler = "serial" if scheduler == "serial" else "threads"
        self._made = False

    def ingest(self, texts: Any, options: Mapping[str, Any]) -> str:
        """Make a corpus of texts in the run's folder.

        Parameters
        ----------
        texts : sequence of str, column or frame
            The texts.
        options : mapping of str to object
            Options of `collapsium.pipeline.ingest`.

        Returns
        -------
        str
            The corpus's folder.

        Raises
        ------
        CollapsiumError
            The texts or an option are wrong; no error holds a text.
        """
        table = table_of(texts, fields_of(options), () if options.get(ID) else (ID,))
        if not table.num_rows:
            raise OptionError("expected at least one text")
        corpus = f"{self.run}/{CORPUS}"
        with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as place:
            path = write_texts(table, place)
            try:
                with named_texts(path):
                    ingest(path, corpus, format="parquet", scheduler=self._scheduler, **options)
            except BaseException:
                # What else is in the folder belongs to another fit that was begun at the same time.
                Folder(self.run).remove(known=())
                raise
        self._made = True
        return corpus

    def hand_over(self, model: Model) -> None:
        """Let a model own the folder, if it is temporary."""
        if self.temporary is not None:
            model.own(self.temporary, self.run)

    def discard(self) -> None:
        """Remove what a fit that has failed leaves: a temporary folder, or the corpus of a run that was not begun."""
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)
        elif self._made and not Folder(self.run).exists(RECORD):
            Folder(self.run).remove()


@contextmanager
def run_folder(out: str | os.PathLike[str] | None, scheduler: str) -> Iterator[RunFolder]:
    """Name the folder of a run, and leave nothing behind of a temporary one whose fit fails or is stopped.

    Parameters
    ----------
    out : str, path-like or None
        The folder; None for a temporary one.
    scheduler : str
        Where the fit runs.

    Yields
    ------
    RunFolder
        The folder.

    Raises
    ------
    OptionError
        Workers elsewhere would not see a temporary folder.
    OccupiedError
        The folder exists.
    """
    if out is None and "://" in scheduler:
        raise OptionError(f"is required with scheduler={scheduler!r}: its workers do not see a temporary folder", "out")
    if out is not None:
        ensure_free(Folder(out))
        place = RunFolder(os.fspath(out).rstrip("/"), None, scheduler)
    else:
        temporary = tempfile.mkdtemp(prefix=PREFIX)
        place = RunFolder(os.path.join(temporary, "run"), temporary, scheduler)  # noqa: PTH118
    try:
        yield place
    except BaseException:
        place.discard()
        raise
