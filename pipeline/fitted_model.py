"""The model as users have it in memory: its topics and proportions as arrays and frames, and those of new documents."""

from __future__ import annotations

import tempfile
import warnings
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.pipeline.corpora.new_texts import documents_for
from collapsium.pipeline.corpora.options import READING
from collapsium.pipeline.corpora.recorded_reading import reading_of_model
from collapsium.pipeline.corpora.texts_in_memory import (
    column_names,
    fields_of,
    in_memory,
    is_path,
    named_texts,
    table_of,
    write_texts,
)
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.models import model as models
from collapsium.pipeline.models.registry import load_family, require_corpus
from collapsium.pipeline.models.topics import topics
from collapsium.pipeline.models.training_corpus import require_training_corpus
from collapsium.pipeline.options import python_number, python_value
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.shard import Documents, Shard
from collapsium.storage.errors import AbsentError, MissingError, OptionError, suggestion
from collapsium.storage.readers.open import ReadOptions
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import LocalState
from collapsium.workers.design import ModelDesign, require_formulaic, unpacked_design
from collapsium.workers.kernels.child_processes import fill_cache
from collapsium.workers.kernels.special import elementary
from collapsium.workers.shard_loading import document_parts

if TYPE_CHECKING:
    import pandas as pd


Floats = npt.NDArray[np.float64]

# Large cached properties that are not pickled; a worker computes them again on first use
CACHED_PROPERTIES = ("topic_word", "document_topic", "document_ids")


class Model(models.Model):
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

    def __getstate__(self) -> dict[str, object]:
        """Return the state without large arrays."""
        return {name: value for name, value in super().__getstate__().items() if name not in CACHED_PROPERTIES}

    @cached_property
    def topic_word(self) -> Floats:
        """Probabilities of words, shape (topics, words), of which each row sums to 1.

        Row k is the topic with the permanent id k, as in `topics` and `infer`. The array takes 8 bytes for each topic
        and word. Of restarts and samples it is the mean of theirs, or that of their consensus.

        Returns
        -------
        numpy.ndarray of float64, shape (topics, words)
            Ids that no topic has have rows of equal probabilities.
        """
        if load_family(self.record.family).corpus_kind != DOCUMENTS:
            raise OptionError(
                f"topic_word: '{self.record.family}' has components of vectors, not topics over words; `topics` lists "
                "them"
            )
        words, phi = self.record.blocks[-1], np.zeros((0, self.record.blocks[-1]))
        for number, (low, high) in enumerate(self.blocks):
            described = self.describe(self.rows(number), high - low)
            if not number:
                phi = np.zeros((max(self._width(), int(described.ids.max(initial=-1)) + 1), words))
            phi[described.ids[:, np.newaxis], described.words + low] = described.probability
        sums = phi.sum(axis=1, keepdims=True)
        return np.where(sums > 0.0, phi / np.where(sums > 0.0, sums, 1.0), 1.0 / max(words, 1))

    @cached_property
    def document_topic(self) -> Floats:
        """Proportions of the training documents, shape (documents, topics), in the order of the training corpus.

        Column k is the topic with the permanent id k, as in `topic_word`. The array takes 8 bytes for each document
        and topic; `infer` writes proportions that do not fit into memory. Rows sum to less than 1 where a family leaves
        a share to topics that do not exist yet.

        Returns
        -------
        numpy.ndarray of float64, shape (documents, topics)
            Proportions; of restarts and samples the means of theirs, or those of their consensus.
        """
        if not self.record.shards or not self.fitted:
            raise AbsentError(f"{self.folder.url}: the model holds no proportions of training documents")
        return np.concatenate([_proportions(self, self.documents(n)) for n in range(len(self.record.shards))])

    @cached_property
    def document_ids(self) -> list[str]:
        """Ids of the training documents, in the order of `document_topic`, from the training corpus."""
        references = require_training_corpus(self).references
        return [name for reference in references for name in reference.documents().ids.to_pylist()]

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
        rows: list[dict[str, Any]] = []
        for topic in topics(self, words, rank_by=rank_by, rank_weight=rank_weight):
            row: dict[str, Any] = {"topic": topic.id, "share": topic.share, "words": topic.names}
            row["probabilities" if not topic.signed else "loadings"] = [value for _, value in topic.words]
            further = {"stability": topic.stability, "support": topic.support, "title": topic.title}
            row |= {name: value for name, value in further.items() if value is not None}
            if topic.level is not None:
                row |= {"parent": topic.parent, "level": topic.level, "below": topic.below}
            rows.append(row)
        frame = require_pandas().DataFrame(rows).set_index("topic")
        if "parent" in frame:
            frame["parent"] = frame["parent"].astype("Int64")
        return frame

    def prevalence(self) -> pd.DataFrame:
        """Return the coefficients of the documents' priors in a fit with `prevalence` as a data frame.

        Numbers are in standard deviations from their mean, and levels of labels against the most frequent one. A
        coefficient is the change of the logarithm of a topic's Dirichlet parameter.

        Returns
        -------
        pandas.DataFrame
            A row for each column of the formula, and a column for each topic by its permanent id.

        Raises
        ------
        AbsentError
            The model was fitted without `prevalence`.
        """
        design, coefficients = self._prevalence()
        frame: pd.DataFrame = require_pandas().DataFrame(coefficients, index=design.columns)
        # The HDP deletes topics, whose priors are zero.
        frame = frame.loc[:, np.isfinite(coefficients[0])]
        return frame.rename_axis(index="term", columns="topic")

    def shares_at(self, **values: float | str) -> Floats:
        """Return the topic shares that a fit with `prevalence` expects of a document before any of its words is read.

        Parameters
        ----------
        **values
            Values of fields of the formula; other numbers are at their means, and other labels at the most frequent.

        Returns
        -------
        numpy.ndarray of float64, shape (topics,)
            Shares by permanent id.

        Raises
        ------
        AbsentError
            The model was fitted without `prevalence`.
        OptionError
            A field is not in the formula, or no document has the value.
        """
        design, coefficients = self._prevalence()
        shares = np.exp(design.row_at({name: str(value) for name, value in values.items()}) @ coefficients)
        return np.asarray(shares / shares.sum(), dtype=np.float64)

    def _prevalence(self) -> tuple[ModelDesign, Floats]:
        packed, coefficients = self.family.design(self.global_state), self.family.design_coefficients(self.global_state)
        if packed is None or coefficients is None:
            raise AbsentError(f"{self.folder.url}: the model was fitted without `prevalence`")
        require_formulaic()
        return unpacked_design(packed), coefficients

    def document_topics(self) -> pd.DataFrame:
        """Return `document_topic` as a data frame.

        Returns
        -------
        pandas.DataFrame
            A row for each training document and a column for each topic. The model that `fit` returns for a pandas
            frame or column has its index, so that the two can be joined; others are indexed by the documents' ids.
        """
        pd = require_pandas()
        shares = self.document_topic
        index = self.index if self.index is not None else pd.Index(self.document_ids, name="id")
        columns = pd.RangeIndex(shares.shape[1], name="topic")
        return pd.DataFrame(shares, index=index, columns=columns, copy=False)

    def transform(self, texts: Any, *, seed: int = 0, **reading: Any) -> Floats:
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
        reading, seed = python_value(reading), python_number(seed)
        known = ["format", "headings", *READING]
        unknown = next((name for name in reading if name not in known), None)
        if unknown is not None:
            raise OptionError(f"transform: unknown option {unknown!r}{suggestion(unknown, known)}")
        if load_family(self.record.family).corpus_kind != DOCUMENTS and not is_path(texts):
            raise OptionError(f"transform: '{self.record.family}' takes vectors, not texts; name a corpus of vectors")
        with tempfile.TemporaryDirectory(prefix="collapsium-", ignore_cleanup_errors=True) as place:
            path = texts
            if not is_path(texts):
                table, reading = _as_recorded(self, in_memory(texts), reading)
                if not table.num_rows:
                    return np.zeros((0, self.topic_word.shape[0]))
                path = write_texts(table, place)
            with named_texts(str(path)), documents_for(self.folder.url, path, reading=reading) as new:
                # A guess is no reason for a warning.
                guessed = None if new.report is None else new.report.guessed
                for line in (line for line in new.notices if line != guessed):
                    warnings.warn(line, UserWarning, stacklevel=2)
                require_corpus(self.record.family, new.corpus)
                new.corpus.require_vocabulary_of(self.record.vocabulary.words_sha256, self.folder.url)
                return fold_in(self, new.corpus, seed)

    def _width(self) -> int:
        """Return the number of columns of proportions."""
        if self.record.shards and self.fitted:
            return int(_proportions(self, self.documents(0)).shape[1])
        none = Documents(pa.array([""]), np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))
        blocks = [tasks.Block(low, high, self.rows(n), Delta()) for n, (low, high) in enumerate(self.blocks)]
        local = tasks.fold_in(self.family, Shard.of(0, none), blocks, self.global_state, Stream(0, "infer"))
        return int(_proportions(self, local).shape[1])


def _proportions(model: models.Model, local: LocalState) -> Floats:
    """Return the proportions of the documents of a local state."""
    return np.asarray(model.family.infer(local, model.global_state)["document_topic"], dtype=np.float64)


def parts_for(model: models.Model) -> dict[str, Any]:
    """Return the keyword arguments of `Shard.of` and `ShardReference.load` for documents that a model reads."""
    return document_parts(model.family, model.family.design(model.global_state))


def load_blocks(model: models.Model, executor: Executor) -> list[Future[tasks.Block]]:
    """Load the blocks of the vocabulary on the workers."""
    # Without a dashboard tasks run in this process, where an interrupt would wait for the compiler.
    if executor.dashboard is None:
        family_kernels = model.family.fold_in_kernels(model.global_state)
        fill_cache([*family_kernels, elementary])
    return [
        executor.submit(_load_block, model.folder.address, number, low, high)
        for number, (low, high) in enumerate(model.blocks)
    ]


def _load_block(url: str, number: int, low: int, high: int) -> tasks.Block:
    return tasks.Block(low, high, models.Model(url).rows(number), Delta())


def fold_in(model: models.Model, corpus: Corpus, seed: int = 0) -> Floats:
    """Return the proportions of new documents, fitted with the topics held fixed."""
    executor = open_executor("threads", None)
    try:
        blocks = load_blocks(model, executor)
        submitted = [executor.submit(_folded, model, one, blocks, seed) for one in corpus.references]
        return np.concatenate(executor.collect(submitted))
    finally:
        executor.close()


def _folded(model: models.Model, reference: ShardReference, blocks: list[tasks.Block], seed: int) -> Floats:
    shard = reference.load(**parts_for(model))
    local = tasks.fold_in(model.family, shard, blocks, model.global_state, Stream(seed, "infer"))
    return _proportions(model, local)


def _as_recorded(model: models.Model, texts: Any, reading: dict[str, Any]) -> tuple[pa.Table, dict[str, Any]]:
    """Return texts as a table, and how it is read: by the recorded fields where the frame has them."""
    history = reading_of_model(model).history
    options = ReadOptions() if history is None else history.options
    named = {name: value for name, value in reading.items() if value is not None}
    columns = column_names(texts)
    for name in ("text", "id"):
        recorded = getattr(options, name)
        if name not in named and recorded is not None and recorded in columns:
            named[name] = recorded
    fields = fields_of(named)
    every = [options.title, options.date, *options.labels, *options.covariates]
    optional = [one.partition("=")[2] or one for one in every if one]
    table = table_of(texts, fields, optional)
    text = next(iter(fields))
    named |= {"text": text, "format": "parquet"}
    if "id" not in named:
        named["id"] = next(name for name in ("id", "document", "number") if name not in (text, *table.schema.names))
        numbers = pa.array([str(number) for number in range(1, table.num_rows + 1)], pa.string())
        table = table.append_column(named["id"], numbers)
    return table, named


def require_pandas() -> Any:
    """Import pandas, which is optional."""
    try:
        import pandas as pd
    except ImportError:
        raise MissingError("frames need pandas; pip install 'collapsium[pandas]'") from None
    return pd
