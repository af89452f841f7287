"""Export models: the input of pyLDAvis, CSV tables, and AnnData."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from collapsium.pipeline.analysis.infer import infer
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.schedulers import Scheduler, SchedulerOptions
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import Topic, topics
from collapsium.pipeline.models.training_corpus import training_corpus_of
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords
from collapsium.pipeline.outputs import overwrites, place_for
from collapsium.pipeline.reporting.anndata_file import write_anndata
from collapsium.pipeline.reporting.options import ExportOptions, TableOptions
from collapsium.storage.errors import AbsentError, CollapsiumError, OptionError
from collapsium.storage.io.file import File, require_free
from collapsium.storage.io.folder import Folder, created, ensure_free
from collapsium.storage.printable import CsvRows, ShortRepr, guarded_note
from collapsium.storage.runs.run import RECORD as RUN_RECORD
from collapsium.storage.runs.run import Run
from collapsium.storage.units import Counting, silent

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
_Result = TypeVar("_Result")

WORDS = 20  # Words of each topic in topics.csv
MIN_EXPECTED_TOKENS = 0.5  # Expected tokens below which a document counts as empty, as rounding errors are smaller


@dataclass(frozen=True, repr=False)
class Exported(ShortRepr):
    """Contents of a written export.

    Attributes
    ----------
    topics, documents : int
        Number of topics, and of documents with proportions.
    notes : list of str
        Sentences on omitted parts, with reasons.
    path : str
        The file or folder; a temporary one is removed when this object is collected.
    """

    topics: int
    documents: int
    notes: list[str] = field(default_factory=list)
    path: str = ""

    def __fspath__(self) -> str:
        """Return the path, so that functions of files accept the object."""
        return self.path


NAMES = {"csv": "tables", "pyldavis": "pyldavis.json", "anndata": "model.h5ad"}  # Of temporary outputs


@shows("exporting")
@keywords(options=ExportOptions, tables=TableOptions, scheduling=SchedulerOptions)
@overwrites("out")
def export(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    options: ExportOptions,
    tables: TableOptions,
    scheduling: SchedulerOptions,
    tls: TLS | None = None,
    progress: Counting = silent,
) -> Exported:
    """Write a model in another program's format.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or model; of restarts and samples, their means are written.
    out : str or path-like, optional
        Folder to make (``csv``), JSON file to write (``pyldavis``), or ``.h5ad`` or ``.zarr`` (``anndata``). By default
        it is temporary, and is removed when the returned object is collected.
    options : ExportOptions
        Program that a model is exported to.
    tables : TableOptions
        Contents of exported tables.
    scheduling : SchedulerOptions
        Executor of the tasks that read the documents, for ``csv``.
    tls : optional
        Certificates for a Dask cluster, as for `fit`.
    progress : callable, optional
        Called with the number of documents, or of shards, written so far.

    Returns
    -------
    Exported
        Path, numbers of topics and documents, and notes.

    Raises
    ------
    OptionError
        The format is unknown, or cannot represent the model.
    OccupiedError
        The file or folder exists.
    """
    model, run_topics = Model(run), topics(run, WORDS)
    applies = {"threshold": ("csv",), "corpus": ("csv", "anndata")}
    for name, kinds in applies.items():
        if options.to not in kinds and getattr(tables, name) != TableOptions.model_fields[name].default:
            raise OptionError(f"applies only to `to` {' and '.join(kinds)}, found {options.to}", name)
    if options.to != "csv" and any(topic.signed for topic in run_topics):
        raise OptionError(
            f"expected csv, found {options.to}: components of vectors have signed loadings, which {options.to} cannot "
            "represent",
            "to",
        )
    with place_for(out, NAMES[options.to]) as place:
        if options.to == "anndata":
            corpus = training_corpus_of(run, model, tables.corpus)
            exported = Exported(len(run_topics), write_anndata(model, corpus, place.path, progress))
        elif options.to == "pyldavis":
            exported = _to_pyldavis(model, sorted(run_topics, key=lambda topic: topic.id), place.path, progress)
        else:
            folder = Folder(place.path)
            ensure_free(folder)
            executor = _Executor(scheduler=scheduling.scheduler, workers=scheduling.workers, tls=tls)
            documents = _Documents(run, tables.corpus, tables.threshold, executor, progress)
            exported = _to_csv(model, run_topics, folder, tables.threshold, documents)
        return place.with_temporary(replace(exported, path=place.path))


def _word_topic(model: Model, block: int, ids: Ints) -> npt.NDArray[np.floating]:
    """Return probabilities of a block's words in some topics, shape (words, topics)."""
    return np.asarray(model.family.probabilities(model.rows(block), model.global_state)["word_topic"])[:, ids]


def _table(model: Model, ids: Ints, place: Path) -> Floats:
    """Return the probabilities of all words, shape (topics, words), in a memory-mapped file."""
    words = model.record.vocabulary.words
    table: Floats = np.memmap(place / "topic_word", dtype=np.float32, mode="w+", shape=(ids.size, words))
    for number, (low, high) in enumerate(model.blocks):
        table[:, low:high] = np.maximum(_word_topic(model, number, ids).T, 0.0)
    return table


def _to_pyldavis(model: Model, run_topics: list[Topic], out: str | os.PathLike[str], progress: Counting) -> Exported:
    target, ids = File(out), np.array([topic.id for topic in run_topics], dtype=np.int64)
    require_free(out)
    if not model.fitted or not model.record.shards:
        raise AbsentError(f"{model.folder.url}: the model lacks its documents' proportions, which pyLDAvis needs")
    with tempfile.TemporaryDirectory(prefix="collapsium-") as name:
        place = Path(name)
        table, vocabulary = _table(model, ids, place), model.vocabulary
        # pyLDAvis takes logarithms of frequencies, so words without tokens are left out.
        used = np.flatnonzero(vocabulary.tokens > 0)
        lengths: list[int] = []
        with (place / "out.json").open("w", encoding="utf-8") as file:
            file.write('{"topic_term_dists": ')
            _write_rows(file, (row[used] / row[used].sum() for row in table))
            file.write(', "doc_topic_dists": ')
            _write_rows(file, _proportions(model, ids, lengths, progress))
            rest = {
                # By default, pyLDAvis numbers topics from 1, by falling size.
                "sort_topics": False,
                "start_index": 0,
                "plot_opts": {"xlab": "PC1", "ylab": "PC2", "topic_ids": ids.tolist()},
                "doc_lengths": lengths,
                "vocab": [vocabulary.words[word] for word in used.tolist()],
                "term_frequency": vocabulary.tokens[used].tolist(),
            }
            for key, value in rest.items():
                file.write(f", {json.dumps(key)}: {json.dumps(value)}")
            file.write("}\n")
        target.put(place / "out.json")
    notes = []
    if not np.array_equal(ids, np.arange(ids.size)):
        numbers = f"from 0 to {ids.size - 1}, without the unused ids"
        notes = [f"pyLDAvis numbers the topics {numbers}; topic_ids in plot_opts has their ids"]
    return Exported(len(run_topics), len(lengths), notes)


def _write_rows(file: IO[str], rows: Iterable[npt.NDArray[np.floating]]) -> None:
    """Write arrays as a JSON list of lists."""
    for number, row in enumerate(rows):
        file.write(("[\n" if number == 0 else ",\n") + "[" + ",".join(f"{value:.7g}" for value in row) + "]")
    file.write("]")


def _proportions(model: Model, ids: Ints, lengths: list[int], progress: Counting) -> Iterator[npt.NDArray[np.float64]]:
    """Yield proportions over some topics for each document that has tokens, and append its length to `lengths`."""
    sweeps = model.family
    for number in range(len(model.record.shards)):
        local = model.local_state(number)
        theta = np.asarray(sweeps.infer(local, model.global_state)["document_topic"], dtype=np.float64)[:, ids]
        tokens = np.asarray(sweeps.document_lengths(local))
        total = theta.sum(axis=1)
        for row in np.flatnonzero((tokens >= MIN_EXPECTED_TOKENS) & (total > 0.0)).tolist():
            lengths.append(round(float(tokens[row])))
            yield theta[row] / total[row]
        progress(number + 1)


class _Executor(TypedDict):
    """Keywords of `infer` that choose the executor."""

    scheduler: Scheduler
    workers: int | None
    tls: TLS | None


@dataclass(frozen=True)
class _Documents:
    """Source of the documents' proportions."""

    run: str | os.PathLike[str]
    corpus: str | os.PathLike[str] | None
    threshold: float
    executor: _Executor
    progress: Counting

    def write(self, file: IO[str], place: Path, model: Model) -> tuple[int, list[str]]:
        """Write a row for each document and topic; return the number of documents, and notes on a missing corpus."""
        corpus = self.corpus
        writer = CsvRows(file, ("document", "topic", "proportion"))
        try:
            if corpus is None and Folder(self.run).exists(RUN_RECORD):
                corpus = Run(self.run).place_of("corpus")
            if corpus is None:
                return 0, ["documents.csv has no rows: the training corpus is not recorded; name it with `corpus`"]
            part = place / "documents.parquet"
            inference = infer(
                model.folder.url, corpus, part, threshold=self.threshold, progress=self.progress, **self.executor
            )
        except CollapsiumError as error:
            if self.corpus is not None or not isinstance(error, AbsentError):
                raise
            return 0, [f"documents.csv has no rows: {error}; if the corpus was moved, name it with `corpus`"]
        for batch in pq.ParquetFile(part).iter_batches(batch_size=4096, columns=["id", "topics", "proportions"]):
            for row in batch.to_pylist():
                pairs = zip(row["topics"], row["proportions"], strict=True)
                writer.writerows((row["id"], topic, _short(share)) for topic, share in pairs)
        return inference.rows, []


def _short(value: float) -> str:
    return f"{value:.7g}"


def _to_csv(model: Model, run_topics: list[Topic], folder: Folder, threshold: float, documents: _Documents) -> Exported:
    with created(folder) as unfinished, tempfile.TemporaryDirectory(prefix="collapsium-") as name:
        place = Path(name)

        def put(file: str, write: Callable[[IO[str]], _Result]) -> _Result:
            with (place / file).open("w", encoding="utf-8", newline="", errors="replace") as sink:
                result = write(sink)
            File(f"{unfinished.url}/{file}").put(place / file)
            return result

        guarded = put("topics.csv", lambda file: _write_topics(file, run_topics, model.topic_names))
        guarded += put("words.csv", lambda file: _write_words(file, model, run_topics, threshold))
        number, notes = put("documents.csv", lambda file: documents.write(file, place, model))
    return Exported(len(run_topics), number, [*notes, *guarded_note(guarded)])


def _write_topics(file: IO[str], run_topics: list[Topic], names: Mapping[int, str]) -> int:
    """Write a row for each topic; parent, level and below for trees, stability, support and titles where known.

    A title is one of the given names or else a label. Return the number of guarded cells, as `_write_words` does.
    """
    tree = any(topic.level is not None for topic in run_topics)
    ensemble = any(topic.stability is not None for topic in run_topics)
    named = any(topic.title is not None for topic in run_topics)
    columns = (("parent", "level", "below") if tree else ()) + (("stability",) if ensemble else ())
    columns += ("support",) if any(topic.support is not None for topic in run_topics) else ()
    columns += ("title",) if named else ()
    writer = CsvRows(file, ("topic", "share", *columns, "words"))
    for topic in run_topics:
        title = topic.title if topic.title is None or topic.id not in names else writer.text(topic.title)
        values = [title if name == "title" else getattr(topic, name) for name in columns]
        texts = ["" if value is None else _short(value) if isinstance(value, float) else value for value in values]
        writer.writerow((topic.id, _short(topic.share), *texts, writer.text(" ".join(topic.names))))
    return writer.guarded


def _write_words(file: IO[str], model: Model, run_topics: list[Topic], threshold: float) -> int:
    """Write a row for each topic and word, by block of the vocabulary; for components, only the largest loadings."""
    signed = any(topic.signed for topic in run_topics)
    writer = CsvRows(file, ("topic", "word", "loading" if signed else "probability"))
    if signed:
        writer.writerows(
            (topic.id, writer.text(word), _short(value)) for topic in run_topics for word, value in topic.words
        )
        return writer.guarded
    ids, names = np.array([topic.id for topic in run_topics], dtype=np.int64), model.vocabulary.words
    for number, (low, _) in enumerate(model.blocks):
        table = _word_topic(model, number, ids)
        words, places = np.nonzero(table >= max(threshold, 1e-12))
        values = table[words, places]
        writer.writerows(
            (topic, writer.text(names[low + word]), _short(value))
            for topic, word, value in zip(ids[places].tolist(), words.tolist(), values.tolist(), strict=True)
        )
    return writer.guarded
