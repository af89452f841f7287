"""Open models: finished ones, and the latest checkpoints of runs that have not finished."""

from __future__ import annotations

import os
import shutil
import weakref
from functools import cached_property
from typing import TYPE_CHECKING

from collapsium.pipeline.models.averaged_models import AveragedModels
from collapsium.pipeline.models.model_arrays import model_arrays
from collapsium.pipeline.models.registry import load_family, shard_model
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import lineage_of
from collapsium.storage.data_types import AnyArray
from collapsium.storage.errors import AbsentError, ClosedError, DamagedError, OptionError
from collapsium.storage.io.folder import Folder, recorded_url
from collapsium.storage.io.records import check
from collapsium.storage.runs.checkpoint import RECORD as CHECKPOINT
from collapsium.storage.runs.checkpoint import Checkpoint
from collapsium.storage.runs.members import mean_of, reference_of
from collapsium.storage.runs.model import RECORD, ModelRecord, ShardDocuments, StoredModel
from collapsium.storage.runs.run import CHECKPOINTS, Run
from collapsium.storage.runs.topic_names import read_names
from collapsium.workers.families.family_arrays import ModelChecks

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    from collapsium.storage.corpus.vectors import AnyShard
    from collapsium.storage.corpus.vocabulary import Vocabulary
    from collapsium.workers.arrays.state import GlobalState, LocalState, Rows
    from collapsium.workers.families.base import AnyPredicts, AnyShardModel
    from collapsium.workers.families.family import Description


class Model(StoredModel):
    """A model: finished, or as a checkpoint has it.

    Parameters
    ----------
    url : str or path-like
        Folder of a run, a model, a checkpoint, or a simulated corpus with its ground truth. A run is opened at its
        latest checkpoint if it has no model, or an older one. Of restarts or samples that were matched, their mean is
        opened; of restarts whose topics cannot be matched, such as trees, the first.

    Attributes
    ----------
    folder : Folder
        Folder of the model, or of the checkpoint.
    record : ModelRecord
        Record of the model.

    Raises
    ------
    AbsentError
        There is no model, and no checkpoint.
    DamagedError
        A file is not of its format.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self._checkpoint: Checkpoint | None = None
        self._opened = os.fspath(url)
        self.index: pd.Index | None = None
        self._place: weakref.finalize[[str, int], Model] | None = None
        url = mean_of(url) or reference_of(url) or url
        folder = Folder(url)
        if folder.exists(CHECKPOINT):
            self._open(folder)
            return
        latest = _latest(folder)
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
        """Folder of the model, or of the checkpoint; `ClosedError` if it was removed when the model was closed."""
        self._require_open()
        return self._folder

    @folder.setter
    def folder(self, folder: Folder) -> None:
        self._folder = folder

    def _require_open(self) -> None:
        if self._place is not None and not self._place.alive:
            raise ClosedError(
                "the model is closed, and its temporary folder is removed; use it before `close`, or name a folder for "
                "the fit (`out`)"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._folder.url!r})"

    def __fspath__(self) -> str:
        """Return the path that was opened, so that functions of a run accept the model."""
        self._require_open()
        return self._opened

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the ownership of a temporary folder, which stays with this process."""
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
            Folder of the run in it.
        """
        self._opened = run
        self._place = weakref.finalize(self, _remove, place, os.getpid())

    def close(self) -> None:
        """Remove the temporary folder of a model that was fitted without `out`, which cannot be used after that."""
        if self._place is not None:
            self._place()

    @cached_property
    def topic_word(self) -> npt.NDArray[np.float64]:
        """Probabilities of words, shape (topics, words), of which each row sums to 1.

        Row k is the topic with the permanent id k, as in `topics` and `infer`. The array takes 8 bytes for each topic
        and word. Of restarts and samples it is the mean of theirs, or that of their consensus.

        Returns
        -------
        numpy.ndarray of float64, shape (topics, words)
            Ids that no topic has have rows of equal probabilities.
        """
        return model_arrays().topic_word(self)

    @cached_property
    def document_topic(self) -> npt.NDArray[np.float64]:
        """Proportions of the training documents, shape (documents, topics), in the order of the training corpus.

        Column k is the topic with the permanent id k, as in `topic_word`. The array takes 8 bytes for each document
        and topic; `infer` writes proportions that do not fit into memory. Rows sum to less than 1 where a family leaves
        a share to topics that do not exist yet.

        Returns
        -------
        numpy.ndarray of float64, shape (documents, topics)
            Proportions; of restarts and samples the means of theirs, or those of their consensus.
        """
        return model_arrays().document_topic(self)

    @cached_property
    def document_ids(self) -> list[str]:
        """Ids of the training documents, in the order of `document_topic`, from the training corpus."""
        return model_arrays().document_ids(self)

    @property
    def topic_names(self) -> dict[int, str]:
        """Names of topics by permanent id, as they were given by hand, by a namer or by seeds."""
        names = dict(self.seed_names)
        if self._checkpoint is None:
            names |= {topic: one.name for topic, one in read_names(self.folder, self.record).items()}
        return names

    @property
    def seed_names(self) -> dict[int, str]:
        """Names of the topics that were seeded, by permanent id."""
        return dict(enumerate(self.shard_model.options.topic_names))

    def topics(
        self, words: int = 10, *, rank_by: str = "probability", rank_weight: float | None = None
    ) -> pd.DataFrame:
        """Return the topics that have tokens as a data frame.

        Parameters
        ----------
        words : int, optional
            Top words of each topic.
        rank_by, rank_weight : str and float, optional
            Measure that orders a topic's words, and its weight; see `collapsium.pipeline.topics`.

        Returns
        -------
        pandas.DataFrame
            Indexed by permanent id: share of the tokens, words and their probabilities; of trees also parent, level,
            and the share of the node with those below; of ensembles also stability, and the number of members in
            which each topic was found.
        """
        return model_arrays().topics_frame(self, words, rank_by=rank_by, rank_weight=rank_weight)

    def document_topics(self) -> pd.DataFrame:
        """Return `document_topic` as a data frame.

        Returns
        -------
        pandas.DataFrame
            A row for each training document and a column for each topic. The model that `fit` returns for a pandas
            frame or column has its index, so that the two can be joined; others are indexed by the documents' ids.
        """
        return model_arrays().document_topics_frame(self)

    def transform(self, texts: object, *, seed: int = 0, **reading: object) -> npt.NDArray[np.float64]:
        """Return the topic proportions of new documents, read like the training documents.

        A warning is given if many of their tokens are not in the vocabulary. A text that is missing (None, NaN), empty
        or without a known word has the proportions of the prior.

        Parameters
        ----------
        texts : sequence of str, column, frame or path
            Texts; a frame with a column of texts (pandas, polars, Arrow); or the path of a corpus or of files of texts.
        seed : int, optional
            Seed of families that draw random numbers.
        **reading
            Options of `ingest`, such as ``text="body"``, where the frame or the files differ from the model's record;
            and ``tokenizer`` or ``segments``, which must be named again if they were functions or regular expressions.

        Returns
        -------
        numpy.ndarray of float64, shape (documents, topics)
            Proportions in the order of the documents; column k is the topic with the permanent id k.

        Raises
        ------
        CollapsiumError
            The texts are no strings, or cannot be read as recorded. No error quotes a text.
        """
        return model_arrays().transform(self, texts, seed=seed, **reading)

    def _open(self, folder: Folder) -> None:
        """Open a checkpoint, with a record made of the checkpoint's and the run's."""
        checkpoint = Checkpoint(folder)
        saved = checkpoint.record()
        run = Run(folder.address.rsplit("/", 2)[0])
        record = run.record()
        self._corpus = Corpus(recorded_url(run.folder, record["corpus"]["url"]))
        if self._corpus.manifest.digest != record["corpus"]["digest"]:
            raise DamagedError(self._corpus.url, "it is not the corpus that the run was fitted to")
        self._checkpoint, self.folder = checkpoint, folder
        rows = self._corpus.manifest.shards
        fields = {
            "family": record["family"],
            "options": record["options"],
            "iterations": saved.iteration,
            "corpus": record["corpus"]["digest"],
            "vocabulary": self._corpus.manifest.vocabulary,
            "blocks": saved.blocks,
            "shards": tuple(ShardDocuments(documents=row.documents, ids_sha256=row.ids_sha256) for row in rows),
            "parts": {name.replace("local_states/", "documents/"): digest for name, digest in saved.parts.items()},
            "lineage": lineage_of(self._corpus),
        }
        self.record = check(ModelRecord, fields, f"{folder.url}/{CHECKPOINT}")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the training corpus."""
        return super().vocabulary if self._checkpoint is None else self._corpus.vocabulary

    @cached_property
    def averaged(self) -> AveragedModels[Model] | None:
        """The models whose mean this one is; None for others. `MismatchError` if one was fitted further since then."""
        if not self.record.members:
            return None
        members = self.folder.address.rpartition("/")[0]
        return AveragedModels([Model(f"{members}/{one.folder}") for one in self.record.members], self.record)

    @property
    def fitted(self) -> bool:
        """True if the model has the training documents' proportions; checkpoints of the stochastic schedule do not."""
        if self.averaged is not None:
            return all(model.fitted for model in self.averaged.models)
        return any(name.startswith("documents/") for name in self.record.parts)

    @property
    def shard_model(self) -> AnyPredicts:
        """The family's half for the shards that predicts with the model, or the mean of several models'."""
        return self.fitted_model if self.averaged is None else self.averaged.shard_model

    @cached_property
    def fitted_model(self) -> AnyShardModel:
        """The family's half for the shards, with the options of the model."""
        try:
            return shard_model(self.record.family, self.record.options)
        except OptionError as error:
            raise DamagedError(f"{self._folder.url}/{RECORD}", str(error)) from None

    @cached_property
    def global_state(self) -> GlobalState:
        """The global state, checked."""
        if self.averaged is not None:
            return self.averaged.global_state
        return self.fitted_model.global_state_type.from_arrays(self.checks.global_state)

    @cached_property
    def checks(self) -> ModelChecks:
        """The checks of further parts by the global state, which is read and checked first."""
        record, path = self.record, f"{self.folder.url}/global_state"
        tokens = None if self._checkpoint is None else self._corpus.manifest.tokens
        return ModelChecks.of(self.fitted_model, record.blocks[-1], self.global_arrays, path, tokens)

    def rows(self, block: int) -> Rows:
        """Read the rows of one block of the vocabulary, and check them."""
        if self.averaged is not None:
            return self.averaged.rows(block)
        arrays, (low, high) = self.row_arrays(block), self.blocks[block]
        finished = self._checkpoint is None
        self.checks.rows(arrays, high - low, f"{self.folder.url}/rows/{block:05d}", finished=finished)
        rows = self.fitted_model.rows_type.from_arrays(arrays)
        return rows if finished else self.fitted_model.finished_rows(rows, self.global_state)

    def documents(self, shard: int) -> LocalState:
        """Read the documents of one training shard, and check them."""
        if self.averaged is not None:
            return self.averaged.documents(shard)
        arrays = self.document_arrays(shard)
        path = f"{self.folder.url}/documents/{shard:05d}"
        self.checks.documents(arrays, self.record.shards[shard].documents, path)
        return self.shard_model.documents_type.from_arrays(arrays)

    def describe(self, rows: Rows, count: int) -> Description:
        """Describe the topics by the `count` most probable words of the rows; of a mean by their mean probabilities."""
        if self.averaged is not None:
            return self.averaged.describe(rows, count)
        return load_family(self.record.family).describe(rows, self.global_state, count)

    def figures(self) -> dict[str, float]:
        """Return the hyperparameters; of a mean the means of its models'."""
        if self.averaged is not None:
            return self.averaged.figures()
        return load_family(self.record.family).figures(self.global_state)

    def remark(self) -> str | None:
        """Return what a reader has to know about the topics; None for nothing, and for means of models."""
        if self.averaged is not None:
            return None
        return load_family(self.record.family).remark(self.global_state)

    def check_local(self, number: int, shard: AnyShard) -> None:
        """Check that a checkpoint's local state is of its shard; a finished model has none.

        Parameters
        ----------
        number : int
            The shard's number.
        shard : Shard or VectorShard
            The shard.

        Raises
        ------
        DamagedError
            An array does not agree with the shard.
        """
        part = f"documents/{number:05d}"
        if self._checkpoint is not None and part in self.record.parts:
            name = f"local_states/{number:05d}"
            local = self._checkpoint.read(name, self.record.parts[part])
            self.checks.local(local, shard, f"{self.folder.url}/{name}")

    def _read(self, part: str) -> dict[str, AnyArray]:
        if self._checkpoint is None:
            return super()._read(part)
        if part not in self.record.parts:
            raise AbsentError(f"{self.folder.url}: the run is not at its end; it has no {part} yet")
        name = part.replace("documents/", "local_states/")
        arrays = self._checkpoint.read(name, self.record.parts[part])
        saved = self.shard_model.documents_type.array_names()
        return {array: arrays[array] for array in arrays if array in saved} if name != part else arrays


def _remove(place: str, process: int) -> None:
    """Remove a folder, except from a forked process."""
    if os.getpid() == process:
        shutil.rmtree(place, ignore_errors=True)


def _latest(folder: Folder) -> int | None:
    """Return the iteration of a run's latest checkpoint; None if there is none, or its name cannot be read."""
    if not folder.exists(CHECKPOINTS):
        return None
    try:
        return Run(folder.url).checkpoints.latest()
    except DamagedError:
        return None
