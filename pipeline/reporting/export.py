"""Models for other programs: what pyLDAvis draws, a model that gensim loads, and tables of comma-separated values."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from collapsium.pipeline.analysis.infer import infer
from collapsium.pipeline.analysis.topics import Topic, topics
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.options import SchedulerOptions
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.options import keywords
from collapsium.pipeline.reporting.options import ExportOptions, TableOptions
from collapsium.storage.errors import AbsentError, CollapsiumError, MissingError, OccupiedError, OptionError
from collapsium.storage.io.file import File
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.transactions import created, ensure_free
from collapsium.storage.printable import CsvRows
from collapsium.storage.runs.run import RECORD as RUN_RECORD
from collapsium.storage.runs.run import Run
from collapsium.storage.short_repr import ShortRepr
from collapsium.storage.units import Counting, silent

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

FORMATS = ("csv", "gensim", "pyldavis")
WORDS = 20  # of a topic, in a table
LEAST_TOKENS = 0.5  # documents with fewer are empty


@dataclass(frozen=True, repr=False)
class Exported(ShortRepr):
    """What was written.

    Attributes
    ----------
    topics, documents : int
        How many topics, and documents with their proportions.
    notes : list of str
        What was left out, and why.
    """

    topics: int
    documents: int
    notes: list[str] = field(default_factory=list)


@keywords(options=ExportOptions, tables=TableOptions, scheduling=SchedulerOptions)
def export(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    options: ExportOptions,
    tables: TableOptions,
    scheduling: SchedulerOptions,
    tls: TLS | None = None,
    progress: Counting = silent,
) -> Exported:
    """Write a model as other programs read it.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or model; of an ensemble, its first member is written.
    out : str or path-like
        What to make: of ``csv`` and ``gensim`` a folder, of ``pyldavis`` a JSON file.
    options : ExportOptions
        For whom a model is written.
    tables : TableOptions
        What the tables of an export hold.
    scheduling : SchedulerOptions
        Which executor runs the tasks.
    tls : optional
        Of ``csv``: who reads the documents, as for `fit`.
    progress : callable, optional
        Told the number of documents, or of shards, written so far.

    Returns
    -------
    Exported
        What was written.

    Raises
    ------
    OptionError
        There is no such format, or it has no place for what the model has.
    OccupiedError
        There is something already.
    MissingError
        gensim is not installed.
    """
    model, found = Model(run), topics(run, WORDS)
    if options.to != "csv" and any(topic.signed for topic in found):
        raise OptionError(
            f"`to` {options.to}: components of vectors have loadings, where topics have probabilities; `to` csv"
        )
    if options.to == "pyldavis":
        return _to_pyldavis(model, found, out, progress)
    folder = Folder(out)
    ensure_free(folder)
    if options.to == "gensim":
        return _to_gensim(model, found, folder)
    documents = _Documents(
        run,
        tables.corpus,
        tables.threshold,
        {"scheduler": scheduling.scheduler, "workers": scheduling.workers, "tls": tls},
        progress,
    )
    return _to_csv(model, found, folder, tables.threshold, documents)


def _table(model: Model, ids: Ints, place: Path) -> Floats:
    """Bring topics' probabilities of all words into a file's memory, a block of the vocabulary at a time."""
    words = model.record.vocabulary.words
    table: Floats = np.memmap(place / "topic_word", dtype=np.float32, mode="w+", shape=(ids.size, words))
    sweeps = model.shard_model
    for number, (low, high) in enumerate(model.blocks):
        found = sweeps.probabilities(model.rows(number), model.global_state)["word_topic"]
        table[:, low:high] = np.maximum(np.asarray(found)[:, ids].T, 0.0)
    return table


def _to_pyldavis(model: Model, found: list[Topic], out: str | os.PathLike[str], progress: Counting) -> Exported:
    target, ids = File(out), np.array([topic.id for topic in found], dtype=np.int64)
    if target.exists():
        raise OccupiedError(f"{os.fspath(out)}: exists already; name a new file or remove this one")
    if not model.fitted or not model.record.shards:
        raise AbsentError(f"{model.folder.url}: it does not have its documents' proportions, which pyLDAvis needs")
    with tempfile.TemporaryDirectory(prefix="collapsium-") as name:
        place = Path(name)
        table, vocabulary = _table(model, ids, place), model.vocabulary
        used = np.flatnonzero(vocabulary.tokens > 0)  # pyLDAvis takes logarithms of frequencies
        lengths: list[int] = []
        with (place / "out.json").open("w", encoding="utf-8") as file:
            file.write('{"topic_term_dists": ')
            _write_rows(file, (row[used] / row[used].sum() for row in table))
            file.write(', "doc_topic_dists": ')
            _write_rows(file, _proportions(model, ids, lengths, progress))
            rest = {
                "doc_lengths": lengths,
                "vocab": [vocabulary.words[word] for word in used.tolist()],
                "term_frequency": vocabulary.tokens[used].tolist(),
            }
            for key, value in rest.items():
                file.write(f", {json.dumps(key)}: {json.dumps(value)}")
            file.write("}\n")
        target.put(place / "out.json")
    return Exported(len(found), len(lengths))


def _write_rows(file: IO[str], rows: Any) -> None:
    """Write arrays as a JSON list of lists, one after another."""
    for number, row in enumerate(rows):
        file.write(("[\n" if number == 0 else ",\n") + "[" + ",".join(f"{value:.7g}" for value in row) + "]")
    file.write("]")


def _proportions(model: Model, ids: Ints, lengths: list[int], progress: Counting) -> Iterator[npt.NDArray[np.float64]]:
    """Give each document's proportions of some topics, which sum to one, and note its length; empty ones have none."""
    sweeps = model.shard_model
    for number in range(len(model.record.shards)):
        local = model.documents(number)
        theta = np.asarray(sweeps.infer(local, model.global_state)["document_topic"], dtype=np.float64)[:, ids]
        tokens = np.asarray(sweeps.document_lengths(local))
        total = theta.sum(axis=1)
        for row in np.flatnonzero((tokens >= LEAST_TOKENS) & (total > 0.0)).tolist():
            lengths.append(round(float(tokens[row])))
            yield theta[row] / total[row]
        progress(number + 1)


def _to_gensim(model: Model, found: list[Topic], folder: Folder) -> Exported:
    if importlib.util.find_spec("gensim") is None:
        raise MissingError(
            "`to` gensim: gensim is not there; the extra 'gensim' asks for it: pip install 'collapsium[gensim]'"
        )
    if not folder.local:
        raise OptionError(f"{folder.url}: gensim's files can be written to a local folder alone")
    from gensim.corpora import Dictionary
    from gensim.models import LdaModel

    ids, share = (np.array([getattr(topic, name) for topic in found]) for name in ("id", "share"))
    vocabulary = model.vocabulary
    names = Dictionary()
    names.token2id = {word: number for number, word in enumerate(vocabulary.words)}
    names.dfs = dict(enumerate(vocabulary.documents.tolist()))
    names.cfs = dict(enumerate(vocabulary.tokens.tolist()))
    names.num_docs = sum(shard.documents for shard in model.record.shards)
    names.num_pos, names.num_nnz = int(vocabulary.tokens.sum()), int(vocabulary.documents.sum())
    prior = np.maximum(share, 1e-9) / np.maximum(share, 1e-9).sum()
    made = LdaModel(num_topics=len(found), id2word=names, alpha=prior.astype(np.float32), random_state=0)
    with tempfile.TemporaryDirectory(prefix="collapsium-") as place:
        table = _table(model, ids.astype(np.int64), Path(place))
        tokens = max(float(vocabulary.tokens.sum()), 1.0)
        for row in range(len(found)):
            counts = np.asarray(table[row], dtype=np.float64)
            counts *= max(share[row] * tokens, 1.0) / max(counts.sum(), 1e-300)
            made.state.sstats[row] = np.maximum(counts, 1e-12)
    made.eta = np.zeros_like(made.eta)  # the counts have the prior in them
    made.state.eta = made.eta
    made.sync_state()
    with created(folder) as whole:
        made.save(str(Path(whole.path) / "model"), ignore=("state", "dispatcher"))
    return Exported(len(found), 0)


@dataclass(frozen=True)
class _Documents:
    """How the documents' proportions are found, and where from."""

    run: str | os.PathLike[str]
    corpus: str | os.PathLike[str] | None
    threshold: float
    where: dict[str, Any]
    progress: Counting

    def write(self, file: IO[str], place: Path, model: Model) -> tuple[int, list[str]]:
        """Write a row for each document and topic; where there is no corpus, say so instead."""
        corpus = self.corpus
        writer = CsvRows(file)
        writer.writerow(("document", "topic", "proportion"))
        try:
            if corpus is None and Folder(self.run).exists(RUN_RECORD):
                corpus = Run(self.run).place_of("corpus")
            if corpus is None:
                return 0, ["documents.csv has no rows: the training corpus is not known; name it with `corpus`"]
            part = place / "documents.parquet"
            options: dict[str, Any] = {"threshold": self.threshold, "progress": self.progress, **self.where}
            number = infer(model.folder.url, corpus, part, **options).rows
        except CollapsiumError as error:
            if self.corpus is not None or not isinstance(error, AbsentError):
                raise
            return 0, [f"documents.csv has no rows: {error}; if the corpus was moved, name it with `corpus`"]
        for batch in pq.ParquetFile(part).iter_batches(batch_size=4096, columns=["id", "topics", "proportions"]):
            for one in batch.to_pylist():
                pairs = zip(one["topics"], one["proportions"], strict=True)
                writer.writerows((one["id"], topic, _short(share)) for topic, share in pairs)
        return number, []


def _short(value: float) -> str:
    return f"{value:.7g}"


def _to_csv(model: Model, found: list[Topic], folder: Folder, threshold: float, documents: _Documents) -> Exported:
    with created(folder) as whole, tempfile.TemporaryDirectory(prefix="collapsium-") as name:
        place = Path(name)

        def put(file: str, write: Callable[[IO[str]], Any]) -> Any:
            with (place / file).open("w", encoding="utf-8", newline="", errors="replace") as opened:
                result = write(opened)
            File(f"{whole.url}/{file}").put(place / file)
            return result

        put("topics.csv", lambda file: _write_topics(file, found))
        put("words.csv", lambda file: _write_words(file, model, found, threshold))
        number, notes = put("documents.csv", lambda file: documents.write(file, place, model))
    return Exported(len(found), number, notes)


def _write_topics(file: IO[str], found: list[Topic]) -> None:
    """Write a row a topic; a tree's nodes have parent, level and below, those of ensembles stability."""
    tree, several = any(one.level is not None for one in found), any(one.stability is not None for one in found)
    more = (("parent", "level", "below") if tree else ()) + (("stability",) if several else ())
    writer = CsvRows(file)
    writer.writerow(("topic", "share", *more, "words"))
    for topic in found:
        values = [getattr(topic, name) for name in more]
        shown = ["" if one is None else _short(one) if isinstance(one, float) else one for one in values]
        writer.writerow((topic.id, _short(topic.share), *shown, " ".join(topic.names)))


def _write_words(file: IO[str], model: Model, found: list[Topic], threshold: float) -> None:
    """Write a row for each topic and word, by block of the vocabulary; of signed loadings the largest alone."""
    writer = CsvRows(file)
    if any(topic.signed for topic in found):
        writer.writerow(("topic", "word", "loading"))
        writer.writerows((topic.id, word, _short(value)) for topic in found for word, value in topic.words)
        return
    writer.writerow(("topic", "word", "probability"))
    ids, names = np.array([topic.id for topic in found], dtype=np.int64), model.vocabulary.words
    sweeps = model.shard_model
    for number, (low, _) in enumerate(model.blocks):
        table = np.asarray(sweeps.probabilities(model.rows(number), model.global_state)["word_topic"])[:, ids]
        words, places = np.nonzero(table >= max(threshold, 1e-12))
        values = table[words, places]
        writer.writerows(
            (topic, names[low + word], _short(value))
            for topic, word, value in zip(ids[places].tolist(), words.tolist(), values.tolist(), strict=True)
        )
