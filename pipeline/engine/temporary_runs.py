"""Folders of fits in Python, named or temporary, and corpora made of texts in them."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from collapsium.pipeline.corpora.texts_in_memory import ID, fields_of, named_texts, table_of, write_texts
from collapsium.pipeline.executors.schedulers import Scheduler, is_elsewhere
from collapsium.pipeline.families.model import Model
from collapsium.storage.building import ingest_record
from collapsium.storage.errors import OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.transactions import ensure_free
from collapsium.storage.runs.run import CORPUS, RECORD

PREFIX = "collapsium-"


class RunFolder:
    """The folder of a run."""

    def __init__(self, run: str, temporary: str | None = None, scheduler: Scheduler = "threads") -> None:
        self.run, self.temporary = run, temporary
        self._scheduler = "serial" if scheduler == "serial" else "threads"
        self._made = False

    def ingest(self, texts: object, options: Mapping[str, object]) -> str:
        """Ingest texts into a corpus in the run's folder."""
        from collapsium.pipeline.corpora import ingest as ingesting
        from collapsium.pipeline.corpora import text_sources

        table = table_of(texts, fields_of(options), () if options.get(ID) else (ID,))
        if not table.num_rows:
            raise OptionError("expected at least one text")
        corpus = f"{self.run}/{CORPUS}"
        with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as temporary:
            path = write_texts(table, temporary)
            try:
                with named_texts(path):
                    ingesting.ingest(path, corpus, format="parquet", scheduler=self._scheduler, **options)
                history = ingest_record.read_history(Folder(corpus))
                notice = None if history is None else text_sources.unspaced_notice(history.report, "`tokenizer`")
                if notice is not None:
                    warnings.warn(notice, UserWarning, stacklevel=2)
            except BaseException:
                # Other files in the folder belong to another fit that began at the same time.
                Folder(self.run).remove(known=())
                raise
        self._made = True
        return corpus

    def hand_over(self, model: Model) -> None:
        """Let a model own the folder, if it is temporary."""
        if self.temporary is not None:
            model.own(self.temporary, self.run)

    def discard(self) -> None:
        """Remove a temporary folder, or the corpus of a run that was not begun, after a fit has failed."""
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)
        elif self._made and not Folder(self.run).exists(RECORD):
            Folder(self.run).remove()


@contextmanager
def run_folder(out: str | os.PathLike[str] | None, scheduler: Scheduler) -> Iterator[RunFolder]:
    """Provide the folder of a run; if the fit fails or is stopped, remove a temporary one."""
    if out is None and is_elsewhere(scheduler):
        raise OptionError(
            f"required with scheduler={str(scheduler)!r}, whose workers do not see a temporary folder", "out"
        )
    if out is not None:
        ensure_free(Folder(out))
        folder = RunFolder(os.fspath(out).rstrip("/"), None, scheduler)
    else:
        temporary = tempfile.mkdtemp(prefix=PREFIX)
        folder = RunFolder(os.path.join(temporary, "run"), temporary, scheduler)  # noqa: PTH118
    try:
        yield folder
    except BaseException:
        folder.discard()
        raise
