"""Opening models: finished ones and, of runs that are going on or were stopped, what their latest checkpoint holds."""

from __future__ import annotations

import importlib
import os
import shutil
import weakref
from functools import cached_property
from typing import TYPE_CHECKING, Any

from collapsium.pipeline.families.registry import shard_model
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import lineage_of
from collapsium.storage.errors import AbsentError, ClosedError, CollapsiumError, DamagedError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.recorded_urls import recorded_url
from collapsium.storage.io.records import check
from collapsium.storage.runs.checkpoint import RECORD as CHECKPOINT
from collapsium.storage.runs.checkpoint import Checkpoint
from collapsium.storage.runs.members import reference_of
from collapsium.storage.runs.model import RECORD, ModelRecord, ShardDocuments, StoredModel
from collapsium.storage.runs.run import CHECKPOINTS, Run
from collapsium.workers.families.family_arrays import ModelChecks

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    from collapsium.storage.corpus.vectors import AnyShard
    from collapsium.storage.corpus.vocabulary import Vocabulary
    from collapsium.workers.arrays.state import GlobalState, LocalState, Rows
    from collapsium.workers.families.base import AnyShardModel


class Model(StoredModel):
    """A model, finished or not.

    Parameters
    ----------
    url : str or path-like
        The folder of a run, of a model, of a checkpoint, or of a simulated corpus with its truth. A run that has
        no model, or one older than its latest checkpoint, is opened as that checkpoint has it; for an ensemble of
        restarts its first member is opened.

    Attributes
    ----------
    folder : Folder
        The model's folder, or the checkpoint's.
    record : ModelRecord
        What the model says of itself.

    Raises
    ------
    AbsentError
        There is no model, and no checkpoint.
    DamagedError
        A file does not hold what its format asks for.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self._checkpoint: Checkpoint | None = None
        self._given = os.fspath(url)
        self._place: weakref.finalize[[str, int], Model] | None = None
        url = reference_of(url) or url
        given = Folder(url)
        if given.exists(CHECKPOINT):
            self._open(given)
            return
        latest = _latest(given)
        try:
            super().__init__(url)
        except AbsentError:
            if latest is None:
                raise
            self._open(Run(url).checkpoints.at(latest).folder)
            return
        if latest is not None and latest > self.record.iterations:
            self._open(Run(url).checkpoints.at(latest).folder)

    @property
    def folder(self) -> Folder:
        """The model's folder, or the checkpoint's; `ClosedError` where it was removed as the model was closed."""
        self._require_open()
        return self._folder

    @folder.setter
    def folder(self, folder: Folder) -> None:
        self._folder = folder

    def _require_open(self) -> None:
        if self._place is not None and not self._place.alive:
            raise ClosedError(
                "the model is closed, and its temporary folder is removed; use it before `close`, or name a folder as "
                "it is fitted (`out`)"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._folder.url!r})"

    def __fspath__(self) -> str:
        """Return what was opened, so that functions that take a run take the model."""
        self._require_open()
        return self._given

    def __getstate__(self) -> dict[str, Any]:
        """Return what goes along to a worker; whoever has opened the model goes on owning its folder."""
        return {**super().__getstate__(), "_place": None}

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def own(self, place: str, run: str) -> None:
        """Remove a folder when the model is closed or collected, or the process ends.

        Parameters
        ----------
        place : str
            A temporary folder on this machine.
        run : str
            The run in it that the model stands for.
        """
        self._given = run
        self._place = weakref.finalize(self, _remove, place, os.getpid())

    def close(self) -> None:
        """Remove what lies on disk of a model that was fitted without a folder, which is of no use then.

        Of others nothing is removed.
        """
        if self._place is not None:
            self._place()

    @cached_property
    def topic_word(self) -> npt.NDArray[np.float64]:
        """Probabilities of words, shape (topics, words), of which each row sums to 1.

        Row k is the topic with the permanent id k, as `topics` and `infer` name it. It is held in memory: 8 bytes for
        each topic and word. Of an ensemble it is the first member's, of samples the last one's.

        Returns
        -------
        numpy.ndarray of float64, shape (topics, words)
            Ids that no topic has have rows of equal probabilities.
        """
        found: npt.NDArray[np.float64] = _model_arrays().topic_word(self)
        return found

    @cached_property
    def document_topic(self) -> npt.NDArray[np.float64]:
        """Proportions of the training documents, shape (documents, topics), in the order of the training corpus.

        Column k is the topic with the permanent id k, as in `topic_word`. A row is what `infer` writes; where a family
        leaves a share to topics that there are none of yet, it sums to less than 1. It is held in memory: 8 bytes for
        each document and topic; `infer` writes those of a corpus that is too large for that.

        Returns
        -------
        numpy.ndarray of float64, shape (documents, topics)
            Of the first member of an ensemble, or the last sample.
        """
        found: npt.NDArray[np.float64] = _model_arrays().document_topic(self)
        return found

    @cached_property
    def document_ids(self) -> list[str]:
        """Ids of the training documents, in the order of `document_topic`, from the training corpus."""
        found: list[str] = _model_arrays().document_ids(self)
        return found

    def topics(self, words: int = 10) -> pd.DataFrame:
        """Return the topics that have tokens as a frame of pandas.

        Parameters
        ----------
        words : int, optional
            Words to list of each.

        Returns
        -------
        pandas.DataFrame
            Indexed by permanent id: share of the tokens, words and their probabilities; of trees also parent, level,
            and the share at and below the node; of ensembles also stability.
        """
        return _model_arrays().topics_frame(self, words)

    def document_topics(self) -> pd.DataFrame:
        """Return `document_topic` as a frame of pandas, indexed by the documents' ids."""
        return _model_arrays().document_topics_frame(self)

    def transform(self, texts: Any, *, seed: int = 0, **reading: Any) -> npt.NDArray[np.float64]:
        """Return the topic proportions of new documents, read as the model's own were.

        A warning says if many of their tokens are not in the vocabulary. A text that is missing (None, NaN), empty or
        without a known word has the proportions of the prior.

        Parameters
        ----------
        texts : sequence of str, column, frame or path
            Texts; a frame with a column of texts (pandas, polars, Arrow); or the path of a corpus or of files of texts.
        seed : int, optional
            For families that draw random numbers.
        **reading
            Options of `ingest`, such as ``text="body"``, where the frame or the files differ from what the model
            recorded; and ``tokenizer`` or ``segments``, which must be named again where a function or a regular
            expression was recorded.

        Returns
        -------
        numpy.ndarray of float64, shape (documents, topics)
            In the order of the documents; column k is the topic with the permanent id k. Held in memory.

        Raises
        ------
        CollapsiumError
            The texts are no strings, or cannot be read as recorded. No error holds a text.
        """
        found: npt.NDArray[np.float64] = _model_arrays().transform(self, texts, seed=seed, **reading)
        return found

    def _open(self, folder: Folder) -> None:
        """Make of a checkpoint's and its run's records what a model says of itself."""
        place = Checkpoint(folder)
        found = place.record()
        run = Run(folder.address.rsplit("/", 2)[0])
        record = run.record()
        self._corpus = Corpus(recorded_url(run.folder, record["corpus"]["url"]))
        if self._corpus.manifest.digest != record["corpus"]["digest"]:
            raise DamagedError(self._corpus.url, "it is not the corpus that the run was fitted to")
        self._checkpoint, self.folder = place, folder
        rows = self._corpus.manifest.shards
        said = {
            "family": record["family"],
            "options": record["options"],
            "iterations": found.iteration,
            "corpus": record["corpus"]["digest"],
            "vocabulary": self._corpus.manifest.vocabulary,
            "blocks": found.blocks,
            "shards": tuple(ShardDocuments(documents=row.documents, ids_sha256=row.ids_sha256) for row in rows),
            "parts": {name.replace("local_states/", "documents/"): digest for name, digest in found.parts.items()},
            "lineage": lineage_of(self._corpus),
        }
        self.record = check(ModelRecord, said, f"{folder.url}/{CHECKPOINT}")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the training corpus."""
        return super().vocabulary if self._checkpoint is None else self._corpus.vocabulary

    @property
    def fitted(self) -> bool:
        """Whether the training documents' proportions are there; the stochastic schedule has them only in the end."""
        return any(name.startswith("documents/") for name in self.record.parts)

    @cached_property
    def shard_model(self) -> AnyShardModel:
        """The family's half beside the shards, with the options of the model."""
        try:
            return shard_model(self.record.family, self.record.options)
        except OptionError as error:
            raise DamagedError(f"{self._folder.url}/{RECORD}", str(error)) from None

    @cached_property
    def global_state(self) -> GlobalState:
        """The global state, which was checked."""
        return self.shard_model.global_state_type.from_arrays(self.checks.global_state)

    @cached_property
    def checks(self) -> ModelChecks:
        """The checks of what is read, by the global state, which is read and checked first."""
        record, where = self.record, f"{self.folder.url}/global_state"
        tokens = None if self._checkpoint is None else self._corpus.manifest.tokens
        return ModelChecks.of(self.shard_model, record.blocks[-1], self.global_arrays, where, tokens)

    def rows(self, block: int) -> Rows:
        """Read the rows of one block of the vocabulary, and check them."""
        arrays, (low, high) = self.row_arrays(block), self.blocks[block]
        finished = self._checkpoint is None
        self.checks.rows(arrays, high - low, f"{self.folder.url}/rows/{block:05d}", finished=finished)
        rows = self.shard_model.rows_type.from_arrays(arrays)
        return rows if finished else self.shard_model.finished_rows(rows, self.global_state)

    def documents(self, shard: int) -> LocalState:
        """Read what is kept of one training shard's local state, and check it."""
        kept = self.document_arrays(shard)
        where = f"{self.folder.url}/documents/{shard:05d}"
        self.checks.documents(kept, self.record.shards[shard].documents, where)
        return self.shard_model.documents_type.from_arrays(kept)

    def check_local(self, number: int, shard: AnyShard) -> None:
        """Refuse a local state of a checkpoint that is not of its shard; a finished model has none.

        Parameters
        ----------
        number : int
            The shard's number.
        shard : Shard or VectorShard
            The shard.

        Raises
        ------
        DamagedError
            An array does not hold what it must.
        """
        part = f"documents/{number:05d}"
        if self._checkpoint is not None and part in self.record.parts:
            name = f"local_states/{number:05d}"
            local = self._checkpoint.read(name, self.record.parts[part])
            self.checks.local(local, shard, f"{self.folder.url}/{name}")

    def _read(self, part: str) -> dict[str, npt.NDArray[Any]]:
        if self._checkpoint is None:
            return super()._read(part)
        if part not in self.record.parts:
            raise AbsentError(f"{self.folder.url}: the run is not at its end; it has no {part} yet")
        name = part.replace("documents/", "local_states/")
        found = self._checkpoint.read(name, self.record.parts[part])
        saved = self.shard_model.documents_type.array_names()
        return {array: found[array] for array in found if array in saved} if name != part else found


def _model_arrays() -> Any:
    """Import what makes arrays of a model, when it is first asked for."""
    return importlib.import_module("collapsium.pipeline.analysis.model_arrays")


def _remove(place: str, process: int) -> None:
    """Remove a folder, but not from a process that was forked off."""
    if os.getpid() == process:
        shutil.rmtree(place, ignore_errors=True)


def _latest(folder: Folder) -> int | None:
    """Return the iteration of a run's latest checkpoint; None where there is none that can be named."""
    if not folder.exists(CHECKPOINTS):
        return None
    try:
        return Run(folder.url).checkpoints.latest()
    except DamagedError:
        return None


def training_corpus(model: Model) -> Corpus | None:
    """Return the corpus that a model was fitted to; None where it lies there no more, or no run names it."""
    folder = model.folder
    for _ in range(2):
        folder = Folder(folder.address.rpartition("/")[0])
        run = Run(folder.url)
        if run.exists():
            break
    else:
        return None
    try:
        corpus = Corpus(run.record()["corpus"]["url"])
    except (CollapsiumError, KeyError, TypeError):
        return None
    return corpus if corpus.manifest.digest == model.record.corpus else None
