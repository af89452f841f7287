"""Export models: the input of pyLDAvis, CSV tables, and AnnData."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import zarr

from collapsium.pipeline.analysis.infer import infer
from collapsium.pipeline.executors.schedulers import Scheduling
from collapsium.pipeline.fitted_model import Model as FittedModel
from collapsium.pipeline.fitted_model import require_pandas, words_of_cells, write_topics
from collapsium.pipeline.models.model import Model, training_corpus_of
from collapsium.pipeline.models.topics import Topic, topics
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords
from collapsium.pipeline.outputs import overwrites, place_for
from collapsium.pipeline.reporting.options import ExportOptions, TableOptions
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.shard import Documents, merge_segments
from collapsium.storage.errors import AbsentError, MismatchError, OptionError, optional
from collapsium.storage.io.file import File, require_free, scratch_folder
from collapsium.storage.io.folder import Folder, created, ensure_free
from collapsium.storage.printable import CsvRows, ShortRepr, guarded_note
from collapsium.storage.readers.annotated import NEEDED
from collapsium.storage.units import Counting, silent

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
_Result = TypeVar("_Result")

WORDS = 20  # Words of each topic in topics.csv
MIN_EXPECTED_TOKENS = 0.5  # Expected tokens below which a document counts as empty, as rounding errors are smaller
SEVERAL = "; "  # Separator of several labels of a field in AnnData
CHUNK = 1 << 18  # Entries of a chunk of a file of AnnData


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
@keywords(options=ExportOptions, tables=TableOptions, scheduling=Scheduling)
@overwrites("out", files=True)
def export(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    options: ExportOptions,
    tables: TableOptions,
    scheduling: Scheduling,
    progress: Counting = silent,
) -> Exported:
    """Write a model in another program's format.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or model; for restarts or samples, their means are written.
    out : str or path-like, optional
        Folder to make (``csv``), JSON file to write (``pyldavis``), or ``.h5ad`` or ``.zarr`` (``anndata``). By default
        it is temporary, and is removed when the returned object is collected.
    options : ExportOptions
        Program that a model is exported to.
    tables : TableOptions
        Contents of exported tables.

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
            how = {"progress": progress, **dict(scheduling)}
            with created(folder) as unfinished, scratch_folder() as name:
                scratch = Path(name)

                def put(file: str, write: Callable[[IO[str]], _Result]) -> _Result:
                    with (scratch / file).open("w", encoding="utf-8", newline="", errors="replace") as sink:
                        result = write(sink)
                    File(f"{unfinished.url}/{file}").put(scratch / file)
                    return result

                guarded = put("topics.csv", lambda file: _write_topics(file, run_topics, model.topic_names))
                guarded += put("words.csv", lambda file: _write_words(file, model, run_topics, tables.threshold))
                number, notes = put(
                    "documents.csv", lambda file: _write_documents(file, scratch, run, model, tables, how)
                )
            exported = Exported(len(run_topics), number, [*notes, *guarded_note(guarded)])
        return place.with_temporary(replace(exported, path=place.path))


def _word_topic(model: Model, block: int, ids: Ints) -> npt.NDArray[np.floating]:
    """Return probabilities of a block's words in some topics, shape (words, topics)."""
    return np.asarray(model.family.probabilities(model.rows(block), model.global_state)["word_topic"])[:, ids]


def _to_pyldavis(model: Model, run_topics: list[Topic], out: str | os.PathLike[str], progress: Counting) -> Exported:
    target, ids = File(out), np.array([topic.id for topic in run_topics], dtype=np.int64)
    require_free(out)
    if not model.fitted or not model.record.shards:
        raise AbsentError(f"{model.folder.url}: the model lacks its documents' proportions, which pyLDAvis needs")
    with scratch_folder() as name:
        place = Path(name)
        shape = ids.size, model.record.vocabulary.words
        table: Floats = np.memmap(place / "topic_word", dtype=np.float32, mode="w+", shape=shape)
        for number, (low, high) in enumerate(model.blocks):
            table[:, low:high] = np.maximum(_word_topic(model, number, ids).T, 0.0)
        vocabulary = model.vocabulary
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


def _short(value: float) -> str:
    return f"{value:.7g}"


def _write_documents(
    file: IO[str], place: Path, run: str | os.PathLike[str], model: Model, tables: TableOptions, how: dict[str, Any]
) -> tuple[int, list[str]]:
    """Write a row for each document and topic; return the number of documents, and notes on a missing corpus."""
    writer, part = CsvRows(file, ("document", "topic", "proportion")), place / "documents.parquet"
    try:
        corpus = training_corpus_of(run, model, tables.corpus)
    except (AbsentError, MismatchError) as error:
        if tables.corpus is not None:
            raise
        return 0, [f"documents.csv has no rows: {error}"]
    inference = infer(model.folder.url, corpus, part, threshold=tables.threshold, **how)
    for batch in pq.ParquetFile(part).iter_batches(batch_size=4096, columns=["id", "topics", "proportions"]):
        for row in batch.to_pylist():
            pairs = zip(row["topics"], row["proportions"], strict=True)
            writer.writerows((row["id"], topic, _short(share)) for topic, share in pairs)
    return inference.rows, []


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


def write_anndata(opened: Model, corpus: Corpus, out: str | os.PathLike[str], progress: Counting) -> int:
    """Write X, the counts; obs, the labels and covariates; and what `Model.annotate` writes. Return the cells."""
    with optional("anndata", NEEDED):
        import anndata.io
        import h5py
    path = os.fspath(out).rstrip("/")
    if not path.endswith((".h5ad", ".zarr")):
        raise OptionError(f"expected a name that ends with .h5ad or .zarr for `to` anndata, found {path}")
    require_free(path)
    pd = require_pandas()
    ids: list[str] = []
    lengths: list[npt.NDArray[np.int64]] = []
    columns: dict[str, list[object]] = {}
    for reference in corpus.references:
        documents = merge_segments(reference.documents())
        lengths.append(np.diff(documents.offsets))
        for name, values in _columns_of(documents).items():
            columns.setdefault(name, [None] * len(ids)).extend(values)
        ids += documents.ids.to_pylist()
        for values in columns.values():
            values.extend([None] * (len(ids) - len(values)))
    numbers = {name for name, kind in corpus.manifest.fields.items() if kind == "double"}
    further = {
        name: np.array(values, dtype=np.float64) if name in numbers else _categories(pd, values)
        for name, values in columns.items()
    }
    # `AnnData` would make the names strings of pandas 3, which anndata 0.12 cannot write.
    obs = pd.DataFrame(further, index=_texts(pd, ids))
    var = pd.DataFrame(index=_texts(pd, corpus.vocabulary.words))
    fitted, cells = FittedModel(opened), SimpleNamespace(var_names=var.index, obsm={}, varm={}, uns={})
    write_topics(fitted, cells, words_of_cells(opened, cells), fitted.document_topic)
    parts = {"obs": obs, "var": var, "obsm": cells.obsm, "varm": cells.varm, "uns": cells.uns, "layers": {}}
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    with scratch_folder() as place:
        local = Path(place) / path.rpartition("/")[2]
        is_hdf5 = local.suffix == ".h5ad"
        with h5py.File(local, "w") if is_hdf5 else nullcontext(zarr.open_group(local, mode="w")) as group:
            group.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
            for name, part in parts.items():
                anndata.io.write_elem(group, name, part)
            _write_counts(group, corpus, offsets, progress)
        if local.is_file():
            File(path).put(local)
        else:
            with created(Folder(path)) as unfinished:
                for file in sorted(path_in for path_in in local.rglob("*") if path_in.is_file()):
                    File(f"{unfinished.url}/{file.relative_to(local)}").put(file)
    return len(ids)


def _texts(pd: Any, texts: list[str]) -> Any:
    return pd.Index(np.array(texts, dtype=object), dtype=object)


def _categories(pd: Any, values: list[object]) -> Any:
    """Return texts as a categorical column; None becomes a missing value."""
    distinct = {value: code for code, value in enumerate(sorted({value for value in values if isinstance(value, str)}))}
    codes = [distinct[value] if isinstance(value, str) else -1 for value in values]
    return pd.Categorical.from_codes(codes, categories=_texts(pd, [*distinct]))


def _columns_of(documents: Documents) -> dict[str, list[object]]:
    """Return the further columns of documents as columns of obs; a field of labels is a column."""
    columns: dict[str, list[object]] = {}
    for name, column in documents.extras.items():
        if name != "labels":
            columns[name] = column.to_pylist()
            continue
        for row, labels in enumerate(column.to_pylist()):
            for label in labels:
                values = columns.setdefault(label["field"], [None] * len(documents))
                values[row] = label["value"] if values[row] is None else f"{values[row]}{SEVERAL}{label['value']}"
    return columns


def _write_counts(group: Any, corpus: Corpus, offsets: npt.NDArray[np.int64], progress: Counting) -> None:
    """Write X as compressed rows in AnnData's on-disk format, a shard at a time."""
    target = group.create_group("X")
    shape = [offsets.size - 1, corpus.manifest.vocabulary.words]
    target.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": shape})
    create = target.create_dataset if hasattr(target, "id") else target.create_array  # HDF5, or Zarr
    create("indptr", data=offsets)
    pairs = int(offsets[-1])
    how = {"shape": (pairs,), "dtype": np.int32, "chunks": (min(CHUNK, pairs),)}
    indices, data = create("indices", **how), create("data", **how)
    first = 0
    for number, reference in enumerate(corpus.references, start=1):
        documents = merge_segments(reference.documents())
        last = first + documents.words.size
        indices[first:last], data[first:last] = documents.words, documents.counts
        first = last
        progress(number)
