"""Predict labels or covariates of documents from their words, and write them to Parquet or CSV."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from collapsium.pipeline.analysis.label_prediction import (
    Candidates,
    CandidateScores,
    Tally,
    candidates_of,
    require_expectations,
    score_candidates,
)
from collapsium.pipeline.corpora.new_texts import DocumentSource, Reading, UnknownWords, documents_for
from collapsium.pipeline.corpora.options import ReadingOptions
from collapsium.pipeline.corpora.texts_in_memory import Frame, is_lazy, read_table, rows_of
from collapsium.pipeline.executors.open import dask_collections, open_executor
from collapsium.pipeline.executors.schedulers import Scheduling
from collapsium.pipeline.fitted_model import check_lazy_texts
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import require_corpus
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords, without_none
from collapsium.pipeline.outputs import overwrites, table_file
from collapsium.pipeline.reporting.options import PredictOptions
from collapsium.pipeline.reporting.plots.comparison import draw_confusion
from collapsium.pipeline.reporting.plots.style import picture_kind
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import InputError, OptionError
from collapsium.storage.io.file import File, require_free
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.members import leaves
from collapsium.storage.runs.proportions import ending_of, written_to
from collapsium.storage.units import Counting, silent

if TYPE_CHECKING:
    import pandas as pd

ENDINGS = (".parquet", ".csv")
LISTS = ("labels", "scores")  # Columns of lists, which CSV does not have


@dataclass(frozen=True)
class Prediction:
    """Numbers of predicted documents.

    Attributes
    ----------
    field : str
        The field.
    documents : int
        Number of documents written.
    known : int
        Number of those with an actual value of the field and a known word.
    right : int
        Number of those whose prediction is among their actual values.
    unknown : UnknownWords or None
        Number of tokens of texts that are not in the model's vocabulary; None for a corpus.
    """

    field: str
    documents: int
    known: int
    right: int
    unknown: UnknownWords | None = None


@shows("predicting")
@overwrites("out", "confusion", files=True)
@keywords(options=PredictOptions, reading=ReadingOptions, scheduling=Scheduling)
def predict(
    run: str | os.PathLike[str],
    documents: DocumentSource,
    out: str | os.PathLike[str] | None = None,
    *,
    options: PredictOptions,
    reading: ReadingOptions,
    scheduling: Scheduling,
    notice: Callable[[str], None] | None = None,
    progress: Counting = silent,
) -> Prediction | Frame:
    """Predict a label or covariate of documents: the value under which each document's perplexity is lowest.

    A document's other labels and covariates stay as they are; its actual value is not used. For restarts and saved
    samples, the probabilities are averaged.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or model whose family uses labels.
    documents : Corpus, path, sequence of paths or str, column or frame, or Dask frame, column or bag
        A corpus with the model's vocabulary; or texts, in files, folders and globs of any format of `ingest`, or in
        memory, which are read like the model's documents.
    out : str or path-like, optional
        Parquet file to write, or CSV without the lists; by default a frame without the lists is returned. Columns: id;
        predicted, a string for labels or a double for covariates; score, the prediction's softmax of the candidates'
        log probabilities of the document's tokens; perplexity, given the prediction; known, the actual value (of
        several, the predicted one if it is among them, else the first; null without one); and lists labels and scores
        of all candidates. For documents without a known word, predicted and perplexity are null, and all scores are
        equal.
    options : PredictOptions
        Field to predict, and the values to choose from.
    reading : ReadingOptions
        Differences between new texts and the documents that a model was fitted to.
    notice : callable, optional
        Called with lines for the user: on the reading of texts, and a warning of many unknown words.

    Returns
    -------
    Prediction or frame
        Numbers of documents and of correct predictions; or, without `out`, the columns without the id, with the index
        of a pandas frame of documents, or else their ids. Polars and Arrow give frames of their own; a Dask collection
        is not computed, and gives a Dask frame.

    Raises
    ------
    OccupiedError
        A file exists.
    MismatchError
        The corpus has another vocabulary, or a kind that the family does not take.
    OptionError
        The family does not use labels, the model was fitted without the field, or a value is unknown.
    InputError
        `confusion` is set, and no document has exactly one value.
    """
    lists = out is not None and ending_of(out, ENDINGS) != ".csv"
    kind = None if options.confusion is None else picture_kind(options.confusion, "confusion")
    require_free(out, options.confusion)
    named = [(name, Model(url)) for name, url in leaves(run)]
    require_expectations(named[0][1])
    if is_lazy(documents):
        if out is not None or options.confusion is not None:
            raise OptionError(
                "does not apply to a Dask collection, whose result is a lazy frame",
                "confusion" if out is None else "out",
            )
        return _lazy(run, named[0][1], documents, options, without_none(reading))
    where = dict(scheduling)
    with (
        documents_for(run, documents, reading=without_none(reading), notice=notice, **where) as new,
        table_file(out) as file,
    ):
        for _, model in named:
            require_corpus(model.record.family, new.corpus)
            new.corpus.require_vocabulary_of(model.record.vocabulary.words_sha256, model.folder.url)
        candidates = candidates_of(named[0][1], new.corpus, options.field, options.values)
        if kind is not None:
            _require_known(new.corpus, candidates)
        executor, tally, written = open_executor(**where), Tally(), 0
        try:
            with written_to(file, _schema(candidates, lists)) as writer:
                held = None
                ranges = score_candidates(named, new.corpus, candidates, executor, options.seed)
                for reference, first, last, candidate_scores in ranges:
                    if held is None or held[0] is not reference:
                        held = reference, reference.documents().ids
                    table = _table(held[1].slice(first, last - first), candidate_scores, candidates)
                    writer.write(table if lists else table.drop_columns(list(LISTS)))
                    tally.add(candidate_scores, candidates.values)
                    written += last - first
                    progress(written)
                picture = None if kind is None else _picture(new.corpus, tally, candidates, kind)
        finally:
            executor.close()
        frame = read_table(file, documents) if out is None else None
    if picture is not None and options.confusion is not None:
        File(options.confusion).write(picture)
    if frame is not None:
        return frame
    return Prediction(options.field, written, tally.documents, tally.right, new.unknown)


def _lazy(
    run: str | os.PathLike[str], model: Model, documents: DocumentSource, options: PredictOptions, reading: Reading
) -> Frame:
    """Return the predictions for a Dask collection lazily, partition by partition."""
    check_lazy_texts(model, documents, reading)
    candidates = candidates_of(model, None, options.field, options.values)
    meta = _schema(candidates, lists=False).empty_table().to_pandas().drop(columns="id")
    arguments = (Folder(run).address, without_none(options), reading)
    return dask_collections().map_frames(documents, _partition_predictions, arguments, meta)


def _partition_predictions(part: DocumentSource, url: str, options: Reading, reading: Reading) -> pd.DataFrame:
    frame: Frame = predict(url, rows_of(part), **options, **reading, scheduler="serial")
    # Records are a table of Arrow.
    predictions: pd.DataFrame = frame.to_pandas() if hasattr(frame, "to_pandas") else frame
    return predictions


def _require_known(corpus: Corpus, candidates: Candidates) -> None:
    """Refuse a confusion matrix of documents without actual values, before they are scored."""
    for reference in corpus.references:
        labels = reference.labels()
        numbers = labels.numbers.get(candidates.field, np.zeros(0))
        if any(name == candidates.field for name, _ in labels.names) or not np.isnan(numbers).all():
            return
    raise InputError(corpus.url, f"`confusion`: no document has a value of '{candidates.field}'")


def _picture(corpus: Corpus, tally: Tally, candidates: Candidates, kind: str) -> bytes:
    if not tally.pairs:
        raise InputError(corpus.url, f"`confusion`: no document with a known word has one '{candidates.field}' alone")
    return draw_confusion(tally, f"{candidates.field}: actual and predicted values", kind)


def _schema(candidates: Candidates, lists: bool = True) -> pa.Schema:
    kind = pa.float64() if candidates.numeric else pa.string()
    columns = [
        ("id", pa.string()),
        ("predicted", kind),
        ("score", pa.float64()),
        ("perplexity", pa.float64()),
        ("known", kind),
        ("labels", pa.list_(kind)),
        ("scores", pa.list_(pa.float64())),
    ]
    return pa.schema([column for column in columns if lists or column[0] not in LISTS])


def _table(ids: pa.Array, candidate_scores: CandidateScores, candidates: Candidates) -> pa.Table:
    """Return the rows of a range of documents."""
    schema, best, values = _schema(candidates), candidate_scores.best, candidates.values
    rows, several = np.arange(best.size), len(values)
    empty = best < 0
    logs = np.where(empty[:, np.newaxis], 0.0, candidate_scores.logs)
    scores = np.exp(logs - logs.max(axis=1, keepdims=True))
    scores /= scores.sum(axis=1, keepdims=True)
    perplexity = np.exp(-logs[rows, best] / np.maximum(candidate_scores.tokens, 1))
    offsets = pa.array(np.arange(best.size + 1, dtype=np.int32) * several)
    kinds = pa.array(values, schema.field("predicted").type)
    columns = [
        ids,
        kinds.take(pa.array(best, mask=empty)),
        pa.array(scores.max(axis=1)),
        pa.array(perplexity, mask=empty),
        pa.array(
            [_shown(actual, place, values) for actual, place in zip(candidate_scores.known, best.tolist(), strict=True)]
        ),
        pa.ListArray.from_arrays(offsets, kinds.take(pa.array(np.tile(np.arange(several), best.size)))),
        pa.ListArray.from_arrays(offsets, pa.array(scores.ravel())),
    ]
    return pa.Table.from_arrays(
        [column.cast(expected.type) for column, expected in zip(columns, schema, strict=True)], schema=schema
    )


def _shown(actual: tuple[Any, ...], best: int, values: Sequence[Any]) -> Any:
    """Return a document's actual value; if it has several, the predicted value if that is among them."""
    if best >= 0 and values[best] in actual:
        return values[best]
    return actual[0] if actual else None
