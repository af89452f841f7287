"""The model as users have it in memory: topics and proportions as arrays and frames, also for new documents."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium import pipeline
from collapsium.pipeline.corpora.new_texts import (
    DocumentSource,
    Reading,
    TextReader,
    TextsRead,
    documents_for,
    fields_named,
    table_as_recorded,
)
from collapsium.pipeline.corpora.options import READING
from collapsium.pipeline.corpora.recorded_reading import reading_of_model
from collapsium.pipeline.corpora.texts_in_memory import (
    Frame,
    check_lazy,
    in_memory,
    index_of,
    is_lazy,
    is_path,
    rows_of,
    shares_like,
    topic_columns,
)
from collapsium.pipeline.executors.base import Executor, Future, SerialExecutor
from collapsium.pipeline.executors.open import dask_collections, open_executor, require_readable
from collapsium.pipeline.models import model as models
from collapsium.pipeline.models.model import require_training_corpus
from collapsium.pipeline.models.registry import load_family, require_corpus
from collapsium.pipeline.models.topics import matched, topics
from collapsium.pipeline.monitoring.progress import shown
from collapsium.pipeline.options import Measure, python_number, python_value
from collapsium.pipeline.outputs import overwrites
from collapsium.storage import html
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.shard import Documents, Shard
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.storage.corpus.vocabulary import as_spelled_in
from collapsium.storage.data_types import AnnotatedData, is_annotated
from collapsium.storage.errors import (
    MAX_NAMES,
    AbsentError,
    InputError,
    MismatchError,
    MissingError,
    OptionError,
    near,
    suggestion,
)
from collapsium.storage.html import Html
from collapsium.storage.io.atomic import is_hidden
from collapsium.storage.io.folder import Folder, created
from collapsium.storage.readers.annotated import column_of, matrix_of
from collapsium.storage.runs.checkpoint import RECORD as CHECKPOINT
from collapsium.storage.runs.model import RECORD as MODEL_RECORD
from collapsium.storage.runs.run import RECORD as RUN_RECORD
from collapsium.storage.runs.run import Run
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import LocalState
from collapsium.workers.design import ModelDesign, count_fields, names_in, require_formulaic, unpacked_design
from collapsium.workers.design import fields_of as fields_of_documents
from collapsium.workers.kernels.child_processes import fill_cache
from collapsium.workers.kernels.special import elementary
from collapsium.workers.shard_loading import document_parts

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from collapsium.pipeline import Effects, GroupWords, Report, WordsOver


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TOP_WORDS = 10  # Words of each topic that AnnData objects get
SEPARATOR = ", "  # Between the words of a topic, as text
NAME_WORDS = 5  # Words that name a topic
SHOWN_TOPICS = 20  # Topics of a model in a notebook; the others are folded
TITLE, TOKENS = "title", "tokens"


class Model:
    """A fitted model: its topics and documents as frames, texts, effects, pictures and reports.

    Parameters
    ----------
    run : str or path-like
        Folder of a run, a model, a checkpoint, or a simulated corpus with its ground truth. A run is opened at its
        latest checkpoint if that is newer than its model, or if it has no model. Restarts or samples are opened as
        their consensus or their mean; if their topics cannot be matched (as in trees), as the first restart or the last
        sample.
    texts : paths, sequence of str, column or frame, optional
        Texts that the model was fitted to, for passages and reports. The model that `fit` returns has them already.

    Raises
    ------
    AbsentError
        There is neither a model nor a checkpoint.
    DamagedError
        A file is damaged.
    """

    def __init__(self, run: str | os.PathLike[str], *, texts: DocumentSource = None) -> None:
        self._opened = run if isinstance(run, models.Model) else models.Model(run)
        self._texts, self._index = texts, index_of(texts)
        self._warned_of: set[str] = set()  # Kinds of warnings about new texts that were given

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a part of the open model for other code; such parts are not a public interface."""
            if name.startswith("_") or not hasattr(type(self._opened), name):
                hint = near(name, [public for public in dir(type(self)) if not public.startswith("_")])
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")
            return getattr(self._opened, name)

    def __getstate__(self) -> dict[str, object]:
        """Return the state without texts and large arrays, which are computed again on first use."""
        left_out = ("topic_word", "document_topic", "document_ids", "_folding")
        return {name: value for name, value in vars(self).items() if name not in left_out} | {"_texts": None}

    def __repr__(self) -> str:
        record = self._opened.record
        documents = sum(shard.documents for shard in record.shards)
        return f"{type(self).__name__}({self._opened.location!r}: {record.family}, {documents:,} documents)"

    def __fspath__(self) -> str:
        """Return the path that was opened, so that functions of a run accept the model."""
        return os.fspath(self._opened)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """Return a table of the topics, with options and hyperparameters folded below, for notebooks."""
        model = self._opened
        record, all_topics = model.record, topics(model)
        documents = sum(shard.documents for shard in record.shards)
        max_share = max((topic.share for topic in all_topics), default=0.0)
        named = any(topic.title for topic in all_topics)
        stable = any(topic.stability is not None for topic in all_topics)
        rows = [
            (
                Html(str(topic.id)),
                *([topic.title] if named else []),
                SEPARATOR.join(topic.names),
                html.bar(topic.share, max_share),
                *([] if topic.stability is None else [f"{topic.stability:.2f}"]),
            )
            for topic in all_topics
        ]
        columns = ["topic", *(["title"] if named else []), "words", "share", *(["stability"] if stable else [])]
        texts = [f"{record.family}: {len(all_topics):,} topics"]
        texts += [f"{documents:,} documents"] if documents else []
        texts += [f"{record.vocabulary.words:,} words", f"{record.iterations:,} iterations"]
        options = [(name, str(value)) for name, value in record.options.items() if value is not None]
        metrics = [(name, float(value)) for name, value in model.metrics().items()]
        first, rest = rows[:SHOWN_TOPICS], rows[SHOWN_TOPICS:]
        parts = [html.table(columns, first)]
        parts += [html.details(f"{len(rest):,} more topics", html.table(columns, rest))] if rest else []
        folded = html.facts([("folder", model.location), *options, *metrics])
        return html.block(", ".join(texts), *parts, html.details("options and hyperparameters", folded))

    # Topics

    @property
    def topic_names(self) -> dict[int, str]:
        """Names of topics by permanent id, whether chosen by hand, by a function or from seed words."""
        return self._opened.topic_names

    @cached_property
    def topic_word(self) -> Floats:
        """Probabilities of words, shape (topics, words); each row sums to 1.

        Row k is the topic with the permanent id k, as in `topics` and `infer`. The array takes 8 bytes per topic and
        word. For restarts and samples, it is their mean, or their consensus.

        Returns
        -------
        numpy.ndarray of float64, shape (topics, words)
            Rows of unused ids contain equal probabilities.
        """
        model = self._opened
        if load_family(model.record.family).corpus_kind != DOCUMENTS:
            raise OptionError(
                f"topic_word: '{model.record.family}' has components of vectors, not topics over words; `topics` lists "
                "them"
            )
        words, phi = model.record.blocks[-1], np.zeros((0, model.record.blocks[-1]))
        for number, (low, high) in enumerate(model.blocks):
            described = model.describe(model.rows(number), high - low)
            if not number:
                phi = np.zeros((max(_width(model), int(described.ids.max(initial=-1)) + 1), words))
            phi[described.ids[:, np.newaxis], described.words + low] = described.probability
        sums = phi.sum(axis=1, keepdims=True)
        return np.where(sums > 0.0, phi / np.where(sums > 0.0, sums, 1.0), 1.0 / max(words, 1))

    def topics(
        self, words: int = 10, *, rank_by: Measure = "probability", rank_weight: float | None = None
    ) -> pd.DataFrame:
        """Return the topics that have tokens as a data frame.

        Parameters
        ----------
        words : int, optional
            Number of top words per topic.
        rank_by, rank_weight : str and float, optional
            Measure that orders a topic's words, and its weight; see `collapsium.pipeline.topics`.

        Returns
        -------
        pandas.DataFrame
            A row per topic, the largest first, indexed by permanent id: ``share`` of the tokens and top ``words`` as
            text. Named topics have a ``title``; topics of trees have ``parent``, ``level``, and ``below``, the share
            of the node and all nodes below it; topics of ensembles have ``stability``, and ``support``, the number of
            members that have the topic.
        """
        rows: list[dict[str, Any]] = []
        for topic in topics(self._opened, words, rank_by=rank_by, rank_weight=rank_weight):
            row: dict[str, Any] = {"topic": topic.id, "share": topic.share, "words": SEPARATOR.join(topic.names)}
            further = {"stability": topic.stability, "support": topic.support, "title": topic.title}
            row |= {name: value for name, value in further.items() if value is not None}
            if topic.level is not None:
                row |= {"parent": topic.parent, "level": topic.level, "below": topic.below}
            rows.append(row)
        frame = table_of_texts(rows).set_index("topic")
        if "parent" in frame:
            frame["parent"] = frame["parent"].astype("Int64")
        return frame

    def words(
        self,
        topic: int | None = None,
        n: int = 10,
        *,
        rank_by: Measure = "probability",
        rank_weight: float | None = None,
    ) -> pd.DataFrame:
        """Return the words of a topic, or of all topics, with their probabilities.

        Parameters
        ----------
        topic : int, optional
            Permanent id of the topic.
        n : int, optional
            Number of words per topic.
        rank_by, rank_weight : str and float, optional
            As for `topics`.

        Returns
        -------
        pandas.DataFrame
            A row per word, indexed by topic and rank: ``word`` and ``probability``. For vectors, the words are their
            columns, with a ``loading`` instead of a probability.

        Raises
        ------
        OptionError
            There is no such topic.
        """
        ranked = topics(self._opened, n, rank_by=rank_by, rank_weight=rank_weight)
        chosen = [described for described in ranked if topic is None or described.id == topic]
        if not chosen:
            ids = ", ".join(map(str, sorted(described.id for described in ranked)[:MAX_NAMES]))
            raise OptionError(f"there is no topic {topic!r} with tokens; topics: {ids}", "topic")
        value = "loading" if chosen[0].signed else "probability"
        rows = [
            (described.id, rank, *pair) for described in chosen for rank, pair in enumerate(described.words, start=1)
        ]
        frame: pd.DataFrame = require_pandas().DataFrame(rows, columns=["topic", "rank", "word", value])
        return frame.set_index(["topic", "rank"])

    def compare_with(self, other: str | os.PathLike[str] | Model) -> pd.DataFrame:
        """Match the topics of this model with the topics of another one that has the same words.

        Topics are matched one to one, with the smallest sum of Hellinger distances between their word probabilities.

        Parameters
        ----------
        other : Model, str or path-like
            The other model, or its folder.

        Returns
        -------
        pandas.DataFrame
            A row for each topic of this model, indexed by its id: ``share`` and ``words``; ``other``, ``other_share``
            and ``other_words``, which are the id, share and words of its match; and their ``similarity`` from 0 to 1,
            which is one minus the distance. Topics without a match come last.

        Raises
        ------
        MismatchError
            The vocabularies differ.
        """
        compared = models.Model(other)
        reference, place = self._opened, compared.folder.url
        if compared.record.vocabulary.words_sha256 != reference.record.vocabulary.words_sha256:
            raise MismatchError(f"{place}: its vocabulary differs from this model's; compare models of the same words")
        pairs = {topic: (match, 1.0 - distance) for topic, match, distance in matched(reference, compared)}
        before = {topic.id: topic for topic in topics(compared)}
        rows = []
        for topic in topics(reference):
            match, similarity = pairs.get(topic.id, (-1, None))
            partner = before.get(match)
            rows.append(
                {
                    "topic": topic.id,
                    "share": topic.share,
                    "words": SEPARATOR.join(topic.names),
                    "other": None if partner is None else partner.id,
                    "other_share": None if partner is None else partner.share,
                    "other_words": None if partner is None else SEPARATOR.join(partner.names),
                    "similarity": similarity,
                }
            )
        frame: pd.DataFrame = table_of_texts(rows).astype({"other": "Int64"}).set_index("topic")
        return frame.sort_values("similarity", ascending=False, kind="stable", na_position="last")

    # Documents

    @property
    def index(self) -> pd.Index | None:
        """The index of the pandas frame or column that the model was fitted to; None for any other input."""
        return self._index

    @cached_property
    def document_ids(self) -> list[str]:
        """Ids of the training documents in the order of `document_topic`, read from the training corpus."""
        references = require_training_corpus(self._opened).references
        return [name for reference in references for name in reference.ids().to_pylist()]

    @cached_property
    def document_topic(self) -> Floats:
        """Proportions of the training documents, shape (documents, topics), in the order of the training corpus.

        Column k is the topic with the permanent id k, as in `topic_word`. The array takes 8 bytes per document and
        topic; if that exceeds memory, `infer` writes the proportions to a file. Rows sum to less than 1 in families
        that reserve a share for topics that do not exist yet.

        Returns
        -------
        numpy.ndarray of float64, shape (documents, topics)
            Proportions. For restarts and samples, they are means, or come from the consensus.
        """
        model = self._opened
        if not model.record.shards or not model.fitted:
            raise AbsentError(f"{model.folder.url}: the model holds no proportions of training documents")
        shards = range(len(model.record.shards))
        return np.concatenate([_proportions(model, model.local_state(shard)) for shard in shards])

    def document_topics(self) -> pd.DataFrame:
        """Return `document_topic` as a data frame.

        Returns
        -------
        pandas.DataFrame
            A row for each training document and a column for each topic. If `fit` received a pandas frame or column,
            the rows have its index and can be joined with it; otherwise they are indexed by the documents' ids.
        """
        pd = require_pandas()
        shares = self.document_topic
        columns = pd.RangeIndex(shares.shape[1], name="topic")
        return pd.DataFrame(shares, index=self._document_index(), columns=columns, copy=False)

    def documents(self) -> pd.DataFrame:
        """Return the training documents with their main topics and their fields as a data frame.

        Returns
        -------
        pandas.DataFrame
            A row for each document, indexed as by `document_topics`: ``topic`` with the largest proportion, this
            ``proportion``, and ``words``, the topic's name or first words; then the title, labels, covariates and date
            (a year with a fraction) that the corpus has. Documents without tokens have no topic.
        """
        pd = require_pandas()
        shares = self.document_topic
        named = {topic.id: topic.title or SEPARATOR.join(topic.names) for topic in topics(self._opened, NAME_WORDS)}
        corpus = require_training_corpus(self._opened)
        parts = [_document_fields(reference) for reference in corpus.references]
        main = shares.argmax(axis=1)
        columns: dict[str, Any] = {
            "topic": pd.array(main, dtype="Int64"),
            "proportion": shares[np.arange(len(main)), main],
            "words": [named.get(topic, "") for topic in main.tolist()],
        }
        for name in dict.fromkeys(name for part in parts for name in part):
            columns[name if name not in columns else f"{name}_"] = np.concatenate([part[name] for part in parts])
        frame = table_of_texts(columns, index=self._document_index())
        empty = frame.pop(TOKENS) <= 0
        frame.loc[empty, "topic"] = pd.NA
        frame.loc[empty, ["proportion", "words"]] = [np.nan, None]
        return frame

    def _document_index(self) -> pd.Index:
        return self._index if self._index is not None else require_pandas().Index(self.document_ids, name="id")

    def examples(self, topic: int | None = None, n: int = 3, *, texts: DocumentSource = None) -> pd.DataFrame:
        """Return the documents with the largest proportions of a topic, or of each topic, with a passage of each.

        Parameters
        ----------
        topic : int, optional
            Permanent id of the topic.
        n : int, optional
            Number of documents per topic.
        texts : paths, sequence of str, column or frame, optional
            Texts that the model was fitted to; by default those that it remembers.

        Returns
        -------
        pandas.DataFrame
            A row for each document: ``topic``, ``id``, ``title``, ``proportion`` and ``passage``, which is missing
            without texts. If the model was fitted to a pandas frame, the id is the document's label in its index.

        Raises
        ------
        OptionError
            There is no such topic, or the texts are not the model's.
        """
        texts = self._texts if texts is None else texts
        frame: pd.DataFrame = pipeline.examples(self, topic, n, texts=texts)
        if self._index is not None:
            place = {name: number for number, name in enumerate(self.document_ids)}
            labels = self._index.to_flat_index()
            frame["id"] = [labels[place[name]] for name in frame["id"]]
        return frame

    def find(self, texts: DocumentSource, n: int = 3) -> pd.DataFrame:
        """Return the topics that texts, or a few words to search for, are about.

        Parameters
        ----------
        texts : str, sequence of str, column or frame
            A text, or several.
        n : int, optional
            Number of topics per text.

        Returns
        -------
        pandas.DataFrame
            A row per text and topic, each text's largest topic first: ``topic``, its ``proportion`` in the text, its
            ``share`` of the training tokens, and its ``words``. Rows of several texts are indexed by the text's
            position, or by its label in the index of a frame.

        Raises
        ------
        CollapsiumError
            As for `transform`.
        """
        alone = isinstance(texts, str)
        shares = np.asarray(self.transform([texts] if alone else texts))
        known = self.topics()
        ids = known.index[known.index < shares.shape[1]].to_numpy()
        order = ids[np.argsort(-shares[:, ids], axis=1, kind="stable")[:, : max(n, 0)]]
        pd = require_pandas()
        index = index_of(texts)
        labels = pd.RangeIndex(len(shares), name="text") if index is None else index
        frame = table_of_texts(
            {"topic": order.ravel(), "proportion": np.take_along_axis(shares, order, axis=1).ravel()},
            index=None if alone else labels.repeat(order.shape[1]),
        )
        return frame.join(known[["share", "words"]], on="topic")

    @overload
    def transform(
        self, texts: DocumentSource, *, seed: int = 0, return_unknown: Literal[False] = False, **reading: Any
    ) -> Frame: ...

    @overload
    def transform(
        self, texts: DocumentSource, *, seed: int = 0, return_unknown: Literal[True], **reading: Any
    ) -> tuple[Frame, Ints]: ...

    def transform(
        self, texts: DocumentSource, *, seed: int = 0, return_unknown: bool = False, **reading: Any
    ) -> Frame | tuple[Frame, Ints]:
        """Return the topic proportions of new documents, read like the training documents.

        The first call loads the vocabulary and the topics into memory, and keeps them for the next ones. It warns once
        if many words are not in the vocabulary; `return_unknown` counts them. A text that is missing (None, NaN), empty
        or without a known word gets the mean proportions of the prior.

        Parameters
        ----------
        texts : sequence of str, column, frame, AnnData, path, or Dask frame, column or bag
            Texts; a frame with a column of texts (pandas, polars, Arrow); or the path of a corpus or of files of texts.
            An AnnData object is accepted too; it must have the layer that the training data had.
        seed : int, optional
            Seed of families that draw random numbers.
        return_unknown : bool, optional
            Whether to return the number of unknown words of each document too; not available for a path.
        **reading
            Options of `ingest`, such as ``text="body"``, if they differ from the options for the training documents. A
            ``tokenizer`` or ``segments`` must be repeated if it was a function or a regular expression.

        Returns
        -------
        proportions : numpy.ndarray of float64, shape (documents, topics); or a frame
            Proportions in the order of the documents; column k is the topic with the permanent id k. For a frame or
            column of pandas, polars or Arrow, the result is a frame of the same library with the columns ``topic_0``,
            ``topic_1`` and so on, and with the same index, so that the two can be joined. For a Dask frame or column it
            is such a Dask frame, and for a Dask bag a Dask array, neither of which is computed yet.
        unknown : numpy.ndarray of int64, shape (documents,)
            Number of tokens whose words are neither in the vocabulary nor left out on purpose, like stop words. Only
            with `return_unknown`.

        Raises
        ------
        CollapsiumError
            The texts are not strings, or cannot be read like the training documents. No error quotes a text.
        """
        reading, seed = python_value(reading), python_number(seed)
        _require_known("transform", reading)
        if is_annotated(texts) or is_path(texts):
            if return_unknown:
                raise OptionError("expected texts in memory, found a path or AnnData", "return_unknown")
            return self._transform_path(texts, seed, reading)
        if is_lazy(texts):
            if return_unknown:
                raise OptionError("expected texts in memory, found a Dask collection", "return_unknown")
            return lazy_proportions(self._opened, texts, seed, reading)
        with shown("inferring proportions"):
            read = self._folding.read(texts, reading)
            fields = note_on_fields(self._opened, [(read.documents.extras, len(read.documents), "texts")])
            for kind, line in (("reading", read.notice), ("unknown words", read.warning), ("fields", fields)):
                if line is not None and kind not in self._warned_of:
                    self._warned_of.add(kind)
                    warnings.warn(line, UserWarning, stacklevel=2)
            proportions = shares_like(texts, self._folding.proportions(read, seed))
        return (proportions, read.unknown) if return_unknown else proportions

    def _transform_path(self, path: str | os.PathLike[str], seed: int, reading: Reading) -> Floats:
        """Return the proportions of the documents of a corpus, of files or of an AnnData object."""
        model = self._opened
        if is_annotated(path) and load_family(model.record.family).corpus_kind != DOCUMENTS:
            raise OptionError(f"transform: '{model.record.family}' takes vectors, not counts")
        with shown("inferring proportions"), documents_for(model.folder.url, path, reading=reading) as new:
            # A guess does not deserve a warning.
            guessed = None if new.report is None else new.report.guessed
            lines = [line for line in new.notices if line != guessed]
            for line in filter(None, (*lines, note_on_fields(model, columns_of(new.corpus)))):
                warnings.warn(line, UserWarning, stacklevel=3)
            require_corpus(model.record.family, new.corpus)
            new.corpus.require_vocabulary_of(model.record.vocabulary.words_sha256, model.folder.url)
            return fold_in(model, new.corpus, seed)

    def annotate(self, adata: AnnotatedData, *, obs: bool = False, **reading: Any) -> None:
        """Write the topics into an AnnData object: ``obsm["X_topics"]``, ``varm["topics"]`` and ``uns["collapsium"]``.

        Cells whose names are ids of training documents get the proportions of the fit. If some of them have fewer
        counts than the training documents of these names, a warning says that they may be different cells. The
        proportions of other cells are estimated with the topics held fixed, as by `transform`. The columns of
        ``X_topics`` and ``varm["topics"]`` are the topics that have tokens, ordered by id; rows of ``varm["topics"]``
        are 0 for genes or peaks that are no words of the model.

        Parameters
        ----------
        adata : AnnData
            Object to write into. The results of an earlier call are replaced, its columns of the table ``adata.obs``
            only with ``obs=True``.
        obs : bool, optional
            Also write each topic's proportions as a column ``topic_ID`` of ``adata.obs``, and the id of each cell's
            largest topic as the categorical column ``topic``.
        **reading
            Options of `transform`, such as ``layer``, for cells that were not training documents; ``id`` names the
            column of `obs` with the documents' ids.

        Raises
        ------
        CollapsiumError
            The training corpus no longer exists, or no gene or peak is a word of the model.
        """
        if not is_annotated(adata):
            raise OptionError(f"expected an AnnData object, found {type(adata).__name__}", "annotate")
        _require_known("annotate", reading)
        words, column, layer = words_of_cells(self._opened, adata), reading.get("id"), reading.get("layer")
        cells = adata.obs_names if column is None else column_of(adata, column, "id")
        names = pa.array([str(name) for name in cells], pa.string())
        rows = np.asarray(pc.fill_null(pc.index_in(names, value_set=pa.array(self.document_ids, pa.string())), -1))
        shares, new = self.document_topic[rows], rows < 0
        if np.unique(rows[~new]).size < np.count_nonzero(~new):
            counts = pc.value_counts(names.filter(pa.array(~new))).to_pylist()
            twice = next(entry["values"] for entry in counts if entry["counts"] > 1)
            advice = "; adata.obs_names_make_unique() tells them apart" if column is None else ""
            raise OptionError(f"AnnData: expected distinct names of cells, found {twice!r} twice{advice}")
        smaller = self._smaller_cells(adata.X if layer is None else matrix_of(adata, layer)[0], words, rows)
        if smaller:
            warnings.warn(
                f"AnnData: {smaller:,} of the {np.count_nonzero(~new):,} cells with names of training documents have "
                f"fewer counts than these. They get the proportions of the training documents; if they are other "
                f"cells, give them other names (`obs_names`)",
                UserWarning,
                stacklevel=2,
            )
        if new.any():
            shares[new] = self._transform_path(adata[new], 0, reading)
        write_topics(self, adata, words, shares, obs=obs)

    def _smaller_cells(self, matrix: Any, words: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> int:
        """Return how many cells have fewer counts than the training documents of their names.

        This compares whole counts of all words in memory; 0 if there are none.
        """
        known = rows >= 0
        covered = np.unique(words[words >= 0]).size == len(self._opened.vocabulary.words)
        if not known.any() or not covered or not (isinstance(matrix, np.ndarray) or hasattr(matrix, "tocsr")):
            return 0
        sums = np.asarray(matrix @ (words >= 0).astype(np.float64)).ravel()[known]
        if not np.array_equal(sums, np.rint(sums)):
            return 0
        references = require_training_corpus(self._opened).references
        tokens = np.concatenate([reference.documents().tokens for reference in references])
        return int(np.count_nonzero(tokens[rows[known]] > sums))

    @cached_property
    def _folding(self) -> TextFolding:
        return TextFolding(self._opened)

    # Fields of the documents

    def prevalence(self) -> pd.DataFrame:
        """Return how the documents' priors depend on their fields, in a fit with `prevalence`, as a data frame.

        A coefficient is the change of the logarithm of a topic's Dirichlet parameter, per standard deviation of a
        number, or between a label and the most frequent label of the field.

        Returns
        -------
        pandas.DataFrame
            A row per column of the design that the formula describes, and a column per topic, by permanent id. A field
            with more than 50 levels has a row per level, whose effects are shrunk towards zero.

        Raises
        ------
        AbsentError
            The model was fitted without `prevalence`.
        """
        design, coefficients = self._prevalence()
        frame: pd.DataFrame = require_pandas().DataFrame(coefficients, index=[*design.columns, *design.levels])
        # The HDP deletes topics, whose priors are zero.
        frame = frame.loc[:, np.isfinite(coefficients[0])]
        return frame.rename_axis(index="term", columns="topic")

    def shares_at(self, **values: float | str) -> Floats:
        """Return the topic shares that a fit with `prevalence` expects in a document whose words are not known.

        Parameters
        ----------
        **values
            Values of the formula's fields. For fields without a value, numbers are set to their means, and labels to
            the most frequent one.

        Returns
        -------
        numpy.ndarray of float64, shape (topics,)
            Shares by permanent id.

        Raises
        ------
        AbsentError
            The model was fitted without `prevalence`.
        OptionError
            The formula does not have the field, or no document has the value.
        """
        design, coefficients = self._prevalence()
        row, places = design.row_at({name: str(value) for name, value in values.items()})
        levels = coefficients[len(row) :][places[places >= 0]].sum(axis=0) / max(places.size, 1)
        logs = row @ coefficients[: len(row)] + levels
        shares = np.exp(logs - logs.max())
        return np.asarray(shares / shares.sum(), dtype=np.float64)

    def _prevalence(self) -> tuple[ModelDesign, Floats]:
        model = self._opened
        packed = model.family.design(model.global_state)
        coefficients = model.family.design_coefficients(model.global_state)
        if packed is None or coefficients is None:
            raise AbsentError(f"{model.folder.url}: the model was fitted without `prevalence`")
        require_formulaic()
        return unpacked_design(packed), coefficients

    def effects(self, formula: str, **options: Any) -> Effects:
        """Estimate the effects of fields of the documents on their topics; see `collapsium.pipeline.effects`."""
        return pipeline.effects(self, formula, **options)

    def shares_by(self, field: str, **options: Any) -> Effects:
        """Return the topics' shares by the values of a field; see `collapsium.pipeline.shares_by`."""
        return pipeline.shares_by(self, field, **options)

    def shares_over(self, period: str = "year", **options: Any) -> Effects:
        """Return the topics' shares by period; see `collapsium.pipeline.shares_over`."""
        return pipeline.shares_over(self, period, **options)

    def words_by(self, topic: int, field: str, **options: Any) -> GroupWords:
        """Compare the words that groups use for a topic; see `collapsium.pipeline.words_by`."""
        return pipeline.words_by(self, topic, field, **options)

    def words_over(self, topics: int | Iterable[int] | None = None, period: str = "year", **options: Any) -> WordsOver:
        """Return the words of topics by period; see `collapsium.pipeline.words_over`."""
        return pipeline.words_over(self, topics, period, **options)

    # Pictures, reports and files

    def plot(
        self, what: str | Sequence[str] = "map", out: str | os.PathLike[str] | None = None, **options: Any
    ) -> Figure | list[str]:
        """Draw the model; see `collapsium.pipeline.plot`.

        Parameters
        ----------
        what : str or sequence of str, optional
            ``map`` and ``sizes`` of the topics, ``time`` and ``labels``, ``score`` and other panels of the fit,
            ``segments``, and ``tree`` of trees.
        out : str or path-like, optional
            File to write; by default the figure is returned.
        **options
            Options of `collapsium.pipeline.plot`, such as ``period``.

        Returns
        -------
        matplotlib.figure.Figure or list of str
            The figure, which the caller may change; or, if a file was written, the names of its panels.
        """
        return pipeline.plot(self, out, what=what, **options)

    def report(self, out: str | os.PathLike[str] | None = None, **options: Any) -> Report:
        """Write a report with passages of the remembered texts, or return it for a notebook.

        Parameters
        ----------
        out : str or path-like, optional
            HTML file to write; by default the page is part of the returned report.
        **options
            Options of `collapsium.pipeline.report`.

        Returns
        -------
        Report
            The numbers of topics and examples, notes, and the page unless it was written to a file.
        """
        if self._texts is not None:
            options.setdefault("texts", self._texts)
        return pipeline.report(self, out, **options)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Copy the run to a folder, with the corpus if it was made from texts.

        A model that was fitted without `out` must be saved to outlive the process. The texts themselves are not saved.

        Parameters
        ----------
        path : str or path-like
            New folder; `load` opens it again.
        overwrite : bool, optional
            Replace an existing folder, which is kept if the call fails.

        Raises
        ------
        OccupiedError
            The folder exists.
        """
        save_model(self._opened, path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, texts: DocumentSource = None) -> Model:
        """Open a model that was saved, or any run; see `Model`."""
        return cls(path, texts=texts)

    def close(self) -> None:
        """Remove the temporary folder of a model that was fitted without `out`; the model cannot be used any more."""
        self._opened.close()


def _require_known(function: str, reading: Reading) -> None:
    """Refuse an option that reads no documents."""
    known = ["format", "headings", *READING]
    unknown = next((name for name in reading if name not in known), None)
    if unknown is not None:
        raise OptionError(f"{function}: unknown option {unknown!r}{suggestion(unknown, known)}")


def words_of_cells(model: models.Model, adata: AnnotatedData) -> npt.NDArray[np.int64]:
    """Return the word id of each gene or peak of an AnnData object, -1 if the model does not have the word."""
    if load_family(model.record.family).corpus_kind != DOCUMENTS:
        raise OptionError(f"AnnData: '{model.record.family}' has components of vectors, not topics over words")
    known = {word: number for number, word in enumerate(model.vocabulary.words)}
    spelled = as_spelled_in(model.vocabulary.words, [str(name) for name in adata.var_names])
    rows = np.array([known.get(word, -1) for word in spelled], dtype=np.int64)
    if not (rows >= 0).any():
        raise MismatchError(f"AnnData: none of its {rows.size:,} genes or peaks is a word of {model.folder.url}")
    return rows


def write_topics(
    model: Model, adata: AnnotatedData, words: npt.NDArray[np.int64], shares: Floats, *, obs: bool = False
) -> None:
    """Write the topics of a model into an AnnData object, given its words and proportions; see `Model.annotate`."""
    record = model._opened.record
    active = sorted(topics(model._opened, TOP_WORDS), key=lambda topic: topic.id)
    ids = np.array([topic.id for topic in active], dtype=np.int64)
    varm = np.where(words[:, np.newaxis] >= 0, model.topic_word[ids][:, words].T, 0.0)
    shares = shares[:, ids]
    before = adata.uns.get("collapsium", {})
    # Topics with a column of `obs`, which an earlier call may have written, of another model than the last.
    with_column = np.asarray(before.get("obs_topics", before.get("topics", ())), dtype=np.int64)
    adata.obsm["X_topics"], adata.varm["topics"] = shares, varm
    adata.uns["collapsium"] = {
        "family": record.family,
        "options": json.dumps(record.options, sort_keys=True),
        "iterations": record.iterations,
        "topics": ids,
        "obs_topics": ids if obs else with_column,
        "shares": np.array([topic.share for topic in active]),
        "titles": np.array([topic.title or "" for topic in active], dtype=object),
        "words": np.array([" ".join(topic.names) for topic in active], dtype=object),
    }
    if obs:
        for topic in set(with_column.tolist()) - set(ids.tolist()):
            if f"topic_{topic}" in adata.obs.columns:
                del adata.obs[f"topic_{topic}"]
        for number, topic in enumerate(ids.tolist()):
            adata.obs[f"topic_{topic}"] = shares[:, number]
        pd = require_pandas()
        # anndata cannot write the strings of pandas 3.
        names = pd.Index([str(topic) for topic in ids.tolist()], dtype=object)
        adata.obs["topic"] = pd.Categorical.from_codes(shares.argmax(axis=1), categories=names)


def _document_fields(reference: ShardReference) -> dict[str, Any]:
    """Return the title, the further fields and the tokens of a shard's documents."""
    documents = reference.documents()
    place = f"{reference.folder.url}/{reference.record.file}"
    names = sorted(names_in(documents.extras, len(documents)))
    fields: dict[str, Any] = {}
    if TITLE in documents.extras:
        fields[TITLE] = np.array(documents.extras[TITLE].to_pylist(), dtype=object)
    for name in names:
        # Documents may have several labels of a field, which are no column.
        with contextlib.suppress(InputError):
            fields |= fields_of_documents(documents.extras, len(documents), [name], place)
    return fields | {TOKENS: documents.tokens}


@overwrites("out")
def save_model(model: models.Model, out: str | os.PathLike[str]) -> None:
    """Copy the folder that was opened, with the location of its corpus in the record."""
    source = Folder(os.fspath(model))
    with created(Folder(out)) as target:
        for name in source.files():
            if not is_hidden(name.rpartition("/")[2]) and "lock" not in name.split("/"):
                target.write(name, source.read(name))
    target = Folder(out)
    for name in target.files():
        if name.rpartition("/")[2] != RUN_RECORD:
            continue
        run = Run(f"{target.url}/{name}".rpartition("/")[0])
        record = run.record()
        inside = str(record["corpus"]["url"]).removeprefix(f"{source.address}/")
        if inside != record["corpus"]["url"]:
            run.rewrite({**record, "corpus": {**record["corpus"], "url": f"{target.address}/{inside}"}})


def _width(model: models.Model) -> int:
    """Return the number of columns of proportions."""
    if model.record.shards and model.fitted:
        return int(_proportions(model, model.local_state(0)).shape[1])
    none = Documents(pa.array([""]), np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))
    blocks = [tasks.Block(low, high, model.rows(n), Delta()) for n, (low, high) in enumerate(model.blocks)]
    local = tasks.fold_in(model.family, Shard.of(0, none), blocks, model.global_state, Stream(0, "infer"))
    return int(_proportions(model, local).shape[1])


def _proportions(model: models.Model, local: LocalState) -> Floats:
    """Return the proportions of the documents of a local state."""
    return np.asarray(model.family.infer(local, model.global_state)["document_topic"], dtype=np.float64)


def parts_for(model: models.Model) -> dict[str, Any]:
    """Return the keyword arguments of `Shard.of` and `ShardReference.load` for documents that a model reads."""
    return document_parts(model.family, model.family.design(model.global_state))


DocumentColumns = tuple[Mapping[str, pa.Array], int, str]  # Further columns of documents, their number and their place


def note_on_fields(model: models.Model, parts: Iterable[DocumentColumns]) -> str | None:
    """Return a line on fields that a model's priors follow and no document has; None without such fields."""
    packed = model.family.design(model.global_state)
    if packed is None:
        return None
    absent, documents = unpacked_design(packed).design.formula.names, 0
    for columns, number, place in parts:
        counts, _ = count_fields(columns, number, absent, place)
        absent = [name for name in absent if not counts[name].counts.size]
        documents += number
    if not absent or not documents:
        return None
    return (
        f"no document has {' or '.join(absent)}, which `prevalence` uses: numbers are replaced by their mean, "
        "labels by (missing) or the reference level"
    )


def columns_of(corpus: Corpus) -> Iterator[DocumentColumns]:
    """Provide the further columns of each shard's documents."""
    for reference in corpus.references:
        place = f"{reference.folder.url}/{reference.record.file}"
        yield reference.further(), reference.record.documents, place


def load_blocks(model: models.Model, executor: Executor) -> list[Future[tasks.Block]]:
    """Load the blocks of the vocabulary on the workers."""
    # Without links tasks run in this process, where an interrupt would wait for the compiler.
    if executor.links() is None:
        family_kernels = model.family.fold_in_kernels(model.global_state)
        fill_cache([*family_kernels, elementary])
    address = model.folder.address
    return [executor.submit(_load_block, address, number, *block) for number, block in enumerate(model.blocks)]


def _load_block(url: str, number: int, low: int, high: int) -> tasks.Block:
    return tasks.Block(low, high, models.Model(url).rows(number), Delta())


def fold_in(model: models.Model, corpus: Corpus, seed: int = 0) -> Floats:
    """Return the proportions of new documents, fitted with the topics held fixed."""
    with contextlib.closing(open_executor("threads", None)) as executor:
        blocks = load_blocks(model, executor)
        submitted = [executor.submit(_folded, model, shard, blocks, seed) for shard in corpus.references]
        return np.concatenate(executor.collect(submitted))


def _folded(model: models.Model, shard: AnyShard | ShardReference, blocks: list[tasks.Block], seed: int) -> Floats:
    """Return the proportions of the documents of a shard, which may be read first."""
    loaded = shard.load(**parts_for(model)) if isinstance(shard, ShardReference) else shard
    local = tasks.fold_in(model.family, loaded, blocks, model.global_state, Stream(seed, "infer"))
    return _proportions(model, local)


class TextFolding:
    """Folds texts in memory into a model, whose vocabulary and topics are loaded once and stay in memory."""

    def __init__(self, model: models.Model) -> None:
        family = model.record.family
        if load_family(family).corpus_kind != DOCUMENTS:
            raise OptionError(f"transform: '{family}' takes vectors, not texts; name a corpus of vectors")
        self.model = model
        self._recorded = reading_of_model(model)
        self._reader = TextReader(self._recorded)

    @cached_property
    def _blocks(self) -> list[tasks.Block]:
        model = self.model
        # Tasks run in this process, where an interrupt would wait for the compiler.
        fill_cache([*model.family.fold_in_kernels(model.global_state), elementary])
        return [tasks.Block(low, high, model.rows(n), Delta()) for n, (low, high) in enumerate(model.blocks)]

    def read(self, texts: DocumentSource, reading: Reading) -> TextsRead:
        """Return texts as documents; `reading` are options of `ingest`."""
        return self._reader.read(*table_as_recorded(self._recorded.history, in_memory(texts), reading))

    def proportions(self, read: TextsRead, seed: int = 0) -> Floats:
        """Return the proportions of documents, fitted with the topics held fixed."""
        model, parts, documents = self.model, parts_for(self.model), read.shards()
        if not documents:
            return np.zeros((0, _width(model)))
        shards = [Shard.of(number, some, **parts) for number, some in enumerate(documents)]
        with contextlib.closing(SerialExecutor() if len(shards) == 1 else open_executor("threads", None)) as executor:
            submitted = [executor.submit(_folded, model, shard, self._blocks, seed) for shard in shards]
            return np.concatenate(executor.collect(submitted))


def check_lazy_texts(model: models.Model, texts: DocumentSource, reading: Reading) -> None:
    """Refuse a Dask collection that a model cannot read, before any of it is computed."""
    if load_family(model.record.family).corpus_kind != DOCUMENTS:
        raise OptionError(f"'{model.record.family}' takes vectors, not texts")
    check_lazy(texts, fields_named(reading_of_model(model).history, texts, reading))
    require_readable(model.folder, next(name for name in (MODEL_RECORD, CHECKPOINT) if model.folder.exists(name)))


def lazy_proportions(
    model: models.Model, texts: DocumentSource, seed: int, reading: Reading, *, framed: bool = False
) -> Frame:
    """Return the proportions of a Dask collection of texts lazily; `framed` gives bags a frame too."""
    check_lazy_texts(model, texts, reading)
    arguments = (model.folder.address, model.record.digest, seed, tuple(sorted(reading.items())))
    collections, width = dask_collections(), _width(model)
    if not framed and not collections.is_frame(texts):
        return collections.map_arrays(texts, _partition_proportions, arguments, width)
    meta = require_pandas().DataFrame(np.zeros((0, width)), columns=topic_columns(width))
    return collections.map_frames(texts, _partition_proportions, (*arguments, True), meta)


def _partition_proportions(
    part: DocumentSource, url: str, digest: str, seed: int, reading: tuple[tuple[str, Any], ...], framed: bool = False
) -> Any:
    """Return the proportions of a partition, with a model that the process keeps for the next ones."""
    folding = _folding_at(url, digest)
    shares = folding.proportions(folding.read(rows_of(part), dict(reading)), seed)
    return require_pandas().DataFrame(shares, columns=topic_columns(shares.shape[1])) if framed else shares


@lru_cache(maxsize=2)
def _folding_at(url: str, digest: str) -> TextFolding:
    """Return a model in memory; `digest` differs where another model has replaced it in its folder."""
    model = models.Model(url)
    if model.record.digest != digest:
        raise MismatchError(f"{url}: the model was replaced since `transform` was called; call it again")
    return TextFolding(model)


def table_of_texts(data: Any, **how: Any) -> pd.DataFrame:
    """Return a frame whose texts notebooks show complete."""
    require_pandas()
    from collapsium.pipeline.frames import Table

    return Table(data, **how)


def require_pandas() -> Any:
    """Import pandas, which is optional."""
    try:
        import pandas as pd
    except ImportError:
        raise MissingError("frames need pandas; pip install 'collapsium[pandas]'") from None
    return pd
