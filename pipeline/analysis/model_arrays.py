"""Return a model's arrays and frames: topics by words, and documents by topics."""

from __future__ import annotations

import tempfile
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.pipeline.analysis.scoring.predictive import load_blocks
from collapsium.pipeline.analysis.topics import topics
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
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import load_family, require_corpus
from collapsium.pipeline.options import python_number, python_value
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.manifest import DOCUMENTS, MANIFEST
from collapsium.storage.corpus.shard import Documents, Shard
from collapsium.storage.errors import AbsentError, MismatchError, MissingError, OptionError, suggestion
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.open import ReadOptions
from collapsium.storage.runs.run import RECORD, Run
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import LocalState
from collapsium.workers.shard_loading import document_parts

if TYPE_CHECKING:
    import pandas as pd


THETA = "document_topic"
Floats = npt.NDArray[np.float64]


def topic_word(model: Model) -> Floats:
    """Return the probability of each word in each topic."""
    if load_family(model.record.family).corpus_kind != DOCUMENTS:
        raise OptionError(
            f"topic_word: '{model.record.family}' has components of vectors, not topics over words; `topics` lists them"
        )
    words, phi = model.record.blocks[-1], np.zeros((0, model.record.blocks[-1]))
    for number, (low, high) in enumerate(model.blocks):
        described = model.describe(model.rows(number), high - low)
        if not number:
            phi = np.zeros((max(_width(model), int(described.ids.max(initial=-1)) + 1), words))
        phi[described.ids[:, np.newaxis], described.words + low] = described.probability
    sums = phi.sum(axis=1, keepdims=True)
    return np.where(sums > 0.0, phi / np.where(sums > 0.0, sums, 1.0), 1.0 / max(words, 1))


def _width(model: Model) -> int:
    """Return the number of columns of proportions."""
    if model.record.shards and model.fitted:
        local: LocalState = model.documents(0)
    else:
        none = Documents(pa.array([""]), np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))
        blocks = [tasks.Block(low, high, model.rows(n), Delta()) for n, (low, high) in enumerate(model.blocks)]
        local = tasks.fold_in(model.family, Shard.of(0, none), blocks, model.global_state, Stream(0, "infer"))
    return int(_theta(model.family.infer(local, model.global_state)).shape[1])


def document_topic(model: Model) -> Floats:
    """Return the proportions of the training documents."""
    if not model.record.shards or not model.fitted:
        raise AbsentError(f"{model.folder.url}: the model holds no proportions of training documents")
    sweeps = model.family
    shards = range(len(model.record.shards))
    return np.concatenate([_theta(sweeps.infer(model.documents(number), model.global_state)) for number in shards])


def _theta(inferred: Any) -> Floats:
    return np.asarray(inferred[THETA], dtype=np.float64)


def training_corpus(model: Model) -> Corpus:
    """Open the corpus that a model was fitted to."""
    place = model.folder
    for _ in range(2):
        parent = place.address.rpartition("/")[0]
        place = Folder(parent or "/")
        if place.exists(RECORD):
            break
    else:
        raise AbsentError(f"{model.folder.url}: no run beside the model names its training corpus")
    named = str(Run(place.url).record()["corpus"]["url"])
    if not Folder(named).exists(MANIFEST):
        raise AbsentError(f"{named}: the training corpus is gone, and with it the documents' ids")
    corpus = Corpus(named)
    if corpus.manifest.digest != model.record.corpus:
        raise MismatchError(f"{named}: it is not the corpus that the model was fitted to")
    return corpus


def document_ids(model: Model) -> list[str]:
    """Return the ids of the training documents, in the order of the training corpus."""
    ids: list[str] = []
    for reference in training_corpus(model).references:
        ids += reference.documents().ids.to_pylist()
    return ids


def fold_in(model: Model, corpus: Corpus, seed: int = 0) -> Floats:
    """Return the proportions of new documents, fitted with the topics held fixed."""
    executor = open_executor("threads", None)
    try:
        blocks = load_blocks(model, executor)
        submitted = [executor.submit(_folded, model, one, blocks, seed) for one in corpus.references]
        return np.concatenate(executor.collect(submitted))
    finally:
        executor.close()


def _folded(model: Model, reference: ShardReference, blocks: list[tasks.Block], seed: int) -> Floats:
    shard = reference.load(**document_parts(model.family))
    local = tasks.fold_in(model.family, shard, blocks, model.global_state, Stream(seed, "infer"))
    return _theta(model.family.infer(local, model.global_state))


def transform(model: Model, texts: Any, *, seed: int = 0, **reading: Any) -> Floats:
    """Return the topic proportions of documents; see `collapsium.pipeline.Model.transform`."""
    reading, seed = python_value(reading), python_number(seed)
    known = ["format", "headings", *READING]
    unknown = next((name for name in reading if name not in known), None)
    if unknown is not None:
        raise OptionError(f"transform: unknown option {unknown!r}{suggestion(unknown, known)}")
    if load_family(model.record.family).corpus_kind != DOCUMENTS and not is_path(texts):
        raise OptionError(f"transform: '{model.record.family}' takes vectors, not texts; name a corpus of vectors")
    with tempfile.TemporaryDirectory(prefix="collapsium-", ignore_cleanup_errors=True) as place:
        path = texts
        if not is_path(texts):
            texts = in_memory(texts)
            table, reading = _as_recorded(model, texts, reading)
            if not table.num_rows:
                return np.zeros((0, model.topic_word.shape[0]))
            path = write_texts(table, place)
        with named_texts(str(path)), documents_for(model.folder.url, path, reading=reading) as new:
            # A guess is no reason for a warning.
            guessed = None if new.report is None else new.report.guessed
            for line in (line for line in new.notices if line != guessed):
                warnings.warn(line, UserWarning, stacklevel=3)
            require_corpus(model.record.family, new.corpus)
            new.corpus.require_vocabulary_of(model.record.vocabulary.words_sha256, model.folder.url)
            return fold_in(model, new.corpus, seed)


def _as_recorded(model: Model, texts: Any, reading: dict[str, Any]) -> tuple[pa.Table, dict[str, Any]]:
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


def topics_frame(model: Model, words: int, **ranking: object) -> pd.DataFrame:
    """Return the topics that have tokens as a frame; see `collapsium.pipeline.Model.topics`."""
    rows: list[dict[str, Any]] = []
    for topic in topics(model, words, **ranking):
        row: dict[str, Any] = {"topic": topic.id, "share": topic.share, "words": topic.names}
        row["probabilities" if not topic.signed else "loadings"] = [value for _, value in topic.words]
        if topic.stability is not None:
            row["stability"] = topic.stability
        if topic.support is not None:
            row["support"] = topic.support
        if topic.title is not None:
            row["title"] = topic.title
        if topic.level is not None:
            row |= {"parent": topic.parent, "level": topic.level, "below": topic.below}
        rows.append(row)
    frame = require_pandas().DataFrame(rows).set_index("topic")
    if "parent" in frame:
        frame["parent"] = frame["parent"].astype("Int64")
    return frame


def document_topics_frame(model: Model) -> pd.DataFrame:
    """Return the proportions of the training documents as a frame; see `collapsium.pipeline.Model.document_topics`."""
    pd = require_pandas()
    shares = model.document_topic
    index = model.index if model.index is not None else pd.Index(document_ids(model), name="id")
    columns = pd.RangeIndex(shares.shape[1], name="topic")
    return pd.DataFrame(shares, index=index, columns=columns, copy=False)
