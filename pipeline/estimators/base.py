"""The base class of all estimators: `fit`, `partial_fit`, `transform`, `score` and export to pyLDAvis."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import math
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, cast, dataclass_transform

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from collapsium.pipeline.analysis.effects import columns_of_frame, dates_of_frame
from collapsium.pipeline.corpora.options import IngestOptions
from collapsium.pipeline.corpora.text_ingest import SCRATCH, write_shards
from collapsium.pipeline.corpora.texts_in_memory import is_lazy
from collapsium.pipeline.engine.checkpoints import Checkpointer
from collapsium.pipeline.engine.estimate import plan
from collapsium.pipeline.engine.fit import fit
from collapsium.pipeline.engine.loop import Fit, mean_score
from collapsium.pipeline.engine.plan import Placement, freed_memory, local_place, scratch_folder
from collapsium.pipeline.engine.processors import compile_for
from collapsium.pipeline.engine.setup.inputs import PREVALENCE, prevalence_of
from collapsium.pipeline.engine.setup.limits import ITERATIONS, LIMIT_NAMES, FitOptions, PresetName, former_names_of
from collapsium.pipeline.engine.setup.loading import LoadedCorpus
from collapsium.pipeline.engine.setup.request import Request, new_request
from collapsium.pipeline.estimators.fitted_model import Fitted, stepped
from collapsium.pipeline.executors.base import Executor, Future, SerialExecutor, T, in_order
from collapsium.pipeline.executors.open import dask_collections, open_executor, require_shared
from collapsium.pipeline.executors.schedulers import as_scheduler, check_scheduler, is_elsewhere
from collapsium.pipeline.executors.threads import ThreadExecutor
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import make_options
from collapsium.pipeline.models.topics import word_scores
from collapsium.pipeline.monitoring.progress import counter_here, iteration_here, partitions_here, shown, silenced
from collapsium.pipeline.options import Measure, RankOptions, python_number, python_value
from collapsium.pipeline.outputs import TEMPORARY
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.parquet import LABELS, too_long
from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.vocabulary import Vocabulary, words_digest
from collapsium.storage.corpus.word_rule import RULE
from collapsium.storage.corpus.writer import CorpusWriter, finish_corpus, numbered_ids
from collapsium.storage.data_types import has_named_matrix, is_annotated
from collapsium.storage.errors import InputError, MismatchError, OptionError, suggestion
from collapsium.storage.io.file import path_of
from collapsium.storage.io.folder import Folder, created
from collapsium.storage.readers.annotated import AnnotatedSource
from collapsium.storage.readers.base import INT32_MAX
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts.fields import TAKEN
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.state import GlobalState
from collapsium.workers.design import DATE, CheckedFormula, level_text
from collapsium.workers.families.description import largest
from collapsium.workers.families.family import AnyFamily
from collapsium.workers.ingest.chunks import Chunk, counts_of, sum_counts, write_table
from collapsium.workers.ingest.tasks import BlockRead, ChunkRecord, side_table, write_vocabulary
from collapsium.workers.ingest.tokenize import StopWords
from collapsium.workers.options import present_names, warn_renamed


def fit_here(request: Request, placement: Placement) -> tuple[Fitted, int]:
    """Return a model that is fitted in this process and saved nowhere.

    With few documents, the files of a run would take most of the time (80% of 0.2 s).
    """
    place = local_place(placement.scheduler, placement.workers, placement.memory, placement.scratch)
    planned = plan(request, place)
    planned.require()
    with (
        contextlib.closing(placement.open(lambda text: None)) as executor,  # noqa: ARG005
        freed_memory(executor),
        scratch_folder(planned, executor) as folder,
    ):
        problem, start = LoadedCorpus(request, [], executor, folder).problem(request.seed), request.start_kind
        compile_for(executor, problem.family, problem.global_state, start=start, local=placement.is_local)
        # Only this refers to the state, so that each state is freed as soon as the next one exists.
        last = Checkpointer()
        show, iterations = iteration_here(), request.limits.planned(len(request.corpus.manifest.shards))
        for state, progress in Fit(problem, request.limits, last):
            del state
            show(request.family, progress.iteration, iterations)
        if last.last is None:
            raise RuntimeError("the fit gave no state")
        state = last.last.state
        blocks = executor.collect(
            [executor.submit(_finished, problem.family, block, state.global_state) for block in state.blocks]
        )
    manifest = request.corpus.manifest
    fitted = Fitted(
        request.family, problem.family, state.global_state, blocks, manifest.documents, float(manifest.tokens)
    )
    return fitted, state.iteration


def _finished(model: AnyFamily, block: tasks.Block, global_state: GlobalState) -> tasks.Block:
    return tasks.Block(block.low, block.high, model.finished_rows(block.rows, global_state), Delta())


# Number of documents in a chunk when a corpus is written.
WRITTEN = 100_000
# Number of entries of a dense array that are converted to sparse ones at a time.
CELLS = 1 << 24
FRACTIONAL = ("error", "round")
# Checks of scikit-learn. NaN is refused as other numbers that are no counts are, with its place.
CHECKS: dict[str, Any] = {
    "accept_sparse": "csr",
    "accept_large_sparse": True,
    "ensure_all_finite": False,
    "ensure_non_negative": True,
}


def as_corpus(X: Any) -> Corpus | None:
    """Return the corpus of documents that X is, or is the path of; None for a matrix."""
    if not isinstance(X, (Corpus, str, os.PathLike)):
        return None
    corpus = X if isinstance(X, Corpus) else Corpus(X)
    corpus.require(DOCUMENTS, "an estimator of topics")
    return corpus


def validated(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return a checked matrix, and set or compare the columns of the estimator."""
    if estimator.fractional not in FRACTIONAL:
        expected = " or ".join(map(repr, FRACTIONAL))
        raise OptionError(f"fractional: expected {expected}, found {estimator.fractional!r}")
    if not is_lazy(X):
        # NumPy would take containers of matrices apart item by item without end.
        name, expected = type(X).__name__, ""
        if has_named_matrix(X):
            expected = f"counts or AnnData, found {name}; pass its matrix of counts, or its to_adata()"
        elif name == "LazyFrame":
            expected = f"a frame in memory, found a {name}; pass X.collect()"
        elif hasattr(X, "__getitem__") and not (isinstance(X, (list, tuple)) or scipy.sparse.issparse(X)):
            protocols = ("__array__", "__array_interface__", "__dataframe__")
            if not any(hasattr(X, protocol) for protocol in protocols):
                expected = f"an array, a sparse matrix, a frame or a corpus, found {name}"
        if expected:
            raise InputError("X", f"expected {expected}")
        _refuse_masked(X)
        return validate_data(estimator, X, reset=reset, **CHECKS)
    known = None if reset else getattr(estimator, "feature_names_in_", None)
    rows, columns = dask_collections().as_rows(X, known)
    if rows.ndim != 2 or not np.isfinite(rows.shape[1]):
        raise InputError("X", f"expected a Dask array of documents x words, found the shape {rows.shape}")
    named = rows
    if columns is not None:
        import pandas as pd

        # A frame without rows, from which scikit-learn takes the names of columns
        named = pd.DataFrame(columns=list(columns))
    validate_data(estimator, named, reset=reset, skip_check_array=True)
    return rows


def _refuse_masked(X: Any, where: str = "") -> None:
    """Refuse a masked array with masked counts, which scikit-learn reads as if there were no mask."""
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        row, *column = np.argwhere(np.ma.getmaskarray(X))[0].tolist()
        place = f"row {row}" + "".join(f", column {number}" for number in column)
        raise InputError(
            "X",
            "expected whole counts of words, found a masked one; X.filled(0) has none in its place",
            ", ".join(filter(None, (where, place))),
        )


def annotated_source(X: Any, layer: str | None, binarise: bool, fractional: str) -> AnnotatedSource | None:
    """Return the documents of an AnnData object; None for other data."""
    if not is_annotated(X):
        for name, is_named in (("layer", layer is not None), ("binarise", binarise)):
            if is_named:
                raise OptionError(f"applies only to AnnData, found {type(X).__name__}", name)
        return None
    if fractional != "error":
        raise OptionError(f"expected 'error' for AnnData, found {fractional!r}; its counts must be whole", "fractional")
    return AnnotatedSource(X, ReadOptions(layer=layer, binarise=binarise, word_rule=RULE))


def document_chunks(X: Any, size: int, fractional: str, first: int = 0) -> Iterator[Documents]:
    """Yield the rows of a checked matrix, numbered from `first`, as chunks of documents."""
    rows = size if scipy.sparse.issparse(X) else min(size, max(CELLS // X.shape[1], 1))
    parts = (_documents(X[row : row + rows], first + row, fractional) for row in range(0, X.shape[0], rows))
    return regrouped(parts, size)


def fields_of_metadata(metadata: object, names: Sequence[str]) -> dict[str, pa.Array]:
    """Return the columns of a frame that a formula names, as the further columns of documents."""
    columns = columns_of_frame(metadata, "metadata")
    extras: dict[str, pa.Array] = {}
    labels: dict[str, Sequence[object]] = {}
    for name in dict.fromkeys(name.partition(":")[0] if name.startswith(f"{DATE}:") else name for name in names):
        if name not in columns:
            raise OptionError(f"the frame has no column {name!r}{suggestion(name, columns)}", "metadata")
        values = columns[name]
        if name == DATE:
            extras[DATE] = pa.array(dates_of_frame(metadata, "metadata"), pa.string())
        elif values.dtype == object:
            labels[name] = values.tolist()
        elif name in TAKEN:
            raise OptionError(f"the name {name!r} is reserved in a corpus; rename the column", "metadata")
        else:
            extras[name] = pa.array(values, pa.float64(), from_pandas=True)
    if labels:
        rows = zip(*labels.values(), strict=True)
        extras["labels"] = pa.array(
            [
                [{"field": name, "value": level_text(value)} for name, value in zip(labels, row, strict=True) if value]
                for row in rows
            ],
            LABELS,
        )
    return extras


def with_fields(chunks: Iterable[Documents], extras: Mapping[str, pa.Array]) -> Iterator[Documents]:
    """Yield documents with further columns, which have a row for each document; unchanged without any."""
    if not extras:
        yield from chunks
        return
    first = 0
    for documents in chunks:
        last = first + len(documents)
        if last <= len(next(iter(extras.values()))):
            columns = {name: column.slice(first, len(documents)) for name, column in extras.items()}
            yield dataclasses.replace(documents, extras=columns)
        first = last
    _require_rows(extras, first)


def _require_rows(extras: Mapping[str, pa.Array], documents: int) -> None:
    """Refuse a frame of fields with more or fewer rows than there are documents."""
    rows = len(next(iter(extras.values()))) if extras else documents
    if rows != documents:
        raise OptionError(f"expected a row for each of the {documents:,} documents, found {rows:,}", "metadata")


def regrouped(parts: Iterable[Documents], size: int) -> Iterator[Documents]:
    """Yield documents in chunks of `size`."""
    waiting: list[Documents] = []
    count = 0
    for documents in parts:
        waiting.append(documents)
        count += len(documents)
        while count >= size:
            joined = Documents.join(waiting)
            yield joined.slice(0, size)
            waiting, count = [joined.slice(size, count)], count - size
    if count:
        yield Documents.join(waiting)


def written(chunks: Iterable[Documents], folder: str, words: list[str], shard_tokens: int | None) -> Corpus:
    """Return a corpus that is written from documents."""
    with created(Folder(folder)) as target:
        writer = CorpusWriter(target, len(words), shard_tokens)
        for documents in chunks:
            writer.add(documents)
        try:
            writer.finish(words)
        except InputError as error:
            raise InputError("X", error.expected) from None
    return Corpus(folder)


class RowReading(NamedTuple):
    """Options by which workers read the rows of a Dask collection."""

    columns: int
    fractional: str
    estimator: str  # Name of the class, for errors

    def chunks(self, block: Any, size: int, first: int = 0, where: str = "") -> Iterator[Documents]:
        """Yield the rows of a block, numbered from `first`, as chunks of documents; `where` is the block in errors."""
        if block.shape[1:] != (self.columns,):
            raise InputError("X", f"expected {self.columns} columns, found {block.shape[1]}", where)
        if not block.shape[0]:
            return
        _refuse_masked(block, where)
        checked = check_array(block, **CHECKS, estimator=self.estimator, input_name="X")
        try:
            yield from document_chunks(checked, size, self.fractional, first)
        except InputError as error:
            raise InputError(error.path, error.expected, ", ".join(filter(None, (where, error.where)))) from None


def _write_block(block: Any, number: int, scratch: Folder, reading: RowReading) -> BlockRead:
    """Write the rows of a block to a scratch folder, beside it, with the columns' numbers as words."""
    parts = list(reading.chunks(block, WRITTEN, where=f"partition {number}"))
    if not parts:
        return BlockRead((), sum_counts([]))
    documents = Documents.join(parts)
    if (long := too_long(documents.counts, documents.offsets)) is not None:
        raise InputError("X", long[1], f"partition {number}, row {long[0]}")
    used, numbers = np.unique(documents.words, return_inverse=True)
    words = pa.array(used).cast(pa.string())
    chunk = Chunk(words, documents.offsets, numbers.astype(np.int32), documents.counts, None)
    record = ChunkRecord(f"{number:07d}", None, (("X", len(documents)),))
    chunk.write(scratch, record.name)
    return BlockRead((record,), counts_of(chunk))


def _documents(part: Any, first: int, fractional: str) -> Documents:
    """Return rows as documents, without changing the rows."""
    # SciPy has no matrices of halves, nor of numbers in the other byte order.
    if part.dtype == np.float16:
        part = part.astype(np.float32)
    elif not part.dtype.isnative:
        part = part.astype(part.dtype.newbyteorder("="))
    counts = scipy.sparse.csr_array(part, copy=True)
    counts.check_format(full_check=True)
    if counts.dtype.kind != "f":
        counts = counts.astype(np.uint64 if counts.dtype.kind == "u" else np.int64)
    counts.sum_duplicates()
    values = counts.data
    if fractional == "round" and values.dtype.kind == "f":
        np.rint(values, out=values)
    wrong = (values > INT32_MAX) | ((values != np.floor(values)) if values.dtype.kind == "f" else False)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        row, value = int(np.searchsorted(counts.indptr, at, side="right")) - 1, values[at].item()
        shown_value = "NaN" if math.isnan(value) else repr(value)
        advice = "; fractional='round' takes the nearest whole number" if 0 < value < INT32_MAX else ""
        raise InputError(
            "X",
            f"expected whole counts of words from 0 to {INT32_MAX}, found {shown_value}{advice}",
            f"row {first + row}, column {counts.indices[at]}",
        )
    counts.eliminate_zeros()
    return Documents(
        numbered_ids(first + 1, counts.shape[0]),
        counts.indptr.astype(np.int64),
        counts.indices.astype(np.int32),
        counts.data.astype(np.int32),
    )


# A function of a model, the numbers of a chunk and of its first document, and the chunk
Task: TypeAlias = Callable[[Fitted, int, int, Documents], T]

# Number of documents in a chunk. It is fixed, because the random numbers of a document may depend on it.
FOLD_IN_DOCUMENTS = 512

START_NAMES = ("init", "init_strength")  # Options of the documents' initial proportions
# Names of the options of `Placement` that ``options`` may contain
WHERE = ("scratch", "checkpoint_every", "cluster_timeout", "tls", "strict_bits")


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(dataclasses.field,))
class Parameters:
    """Makes dataclasses of estimators: a field is a parameter, which scikit-learn and editors find in the signature.

    Constructors and `set_params` also take parameters by the names that they had in 0.1.
    """

    FAMILY: ClassVar[str]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        dataclasses.dataclass(eq=False, repr=False, kw_only=True)(cls)
        construct: Callable[..., None] = cls.__init__

        @functools.wraps(construct)
        def by_present_names(self: Self, *args: Any, **parameters: Any) -> None:
            construct(self, *args, **self._by_present_names(parameters))

        cls.__init__ = by_present_names  # type: ignore[assignment, method-assign]

    @classmethod
    def _by_present_names(cls, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters with the present names of options; families are loaded only for unknown ones."""
        if parameters.keys() <= inspect.signature(cls).parameters.keys():
            return {**parameters}
        return present_names(parameters, former_names_of(cls.FAMILY), warn_renamed)


class DocumentEstimator(Parameters, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base class with the parameters that all estimators have, and the reading of their documents.

    The fields of a subclass are options of its family.
    """

    # The option of the family that ``n_components`` sets.
    TOPICS: ClassVar[str] = "topics"
    # True if the family has a stochastic schedule, which `partial_fit` requires.
    STOCHASTIC: ClassVar[bool] = False

    n_components: int = dataclasses.field(default=10, kw_only=False)
    max_iter: int = ITERATIONS
    tol: float = 0.0
    random_state: int | np.random.RandomState | None = None
    n_jobs: int | None = None
    restarts: int = 0
    combine: str = "predictions"
    preset: PresetName | None = None
    init: str | None = None
    init_strength: float = 0.0
    total_documents: int = 1_000_000
    fractional: str = "error"
    layer: str | None = None
    binarise: bool = False
    shard_tokens: int | None = None
    scheduler: object = None
    workers: int | None = None
    memory: str | int | None = None
    run: str | os.PathLike[str] | None = None
    verbose: bool | int | None = None
    options: Mapping[str, object] | None = None

    n_features_in_: int = dataclasses.field(init=False)
    n_iter_: int = dataclasses.field(init=False)
    _fitted: Fitted = dataclasses.field(init=False)
    # The vocabulary of a training corpus; None for a matrix, which may have ``feature_names_in_``.
    _words: list[str] | None = dataclasses.field(init=False)

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters of this estimator."""
        return cast(Self, super().set_params(**self._by_present_names(parameters)))

    @classmethod
    def family_options(cls) -> list[str]:
        """Return the parameters that are options of the family."""
        shared = {field.name for field in dataclasses.fields(DocumentEstimator)}
        return [field.name for field in dataclasses.fields(cls) if field.name not in shared]

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes, with the address of a Dask client or cluster, which cannot be pickled."""
        state: dict[str, Any] = super().__getstate__()
        named = isinstance(self.scheduler, str | None)
        return state if named else {**state, "scheduler": str(as_scheduler(self.scheduler))}

    def __sklearn_clone__(self) -> Self:
        """Return an estimator of the same parameters, with the same Dask client or cluster, which cannot be copied."""
        scheduler = self.scheduler
        if isinstance(scheduler, str | None):
            return cast(Self, super().__sklearn_clone__())
        named = copy.copy(self)
        cloned = cast(Self, super(DocumentEstimator, named).__sklearn_clone__())
        cloned.scheduler = scheduler
        return cloned

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    def _fit_options(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the family's options, and the other options of `fit`."""
        parameters = {name: name for name in self.family_options()}
        parameters |= {"iterations": "max_iter", "tolerance": "tol", self.TOPICS: "n_components"}
        defaults = inspect.signature(type(self)).parameters
        if not isinstance(self.options, Mapping | None):
            raise OptionError(f"expected a table of options, found {type(self.options).__name__}", "options")
        further = self._by_present_names(self.options or {})
        for name in further:
            parameter = parameters.get(name)
            if parameter is None:
                continue
            value = getattr(self, parameter)
            if name == self.TOPICS or not np.array_equal(value, defaults[parameter].default):
                raise OptionError(
                    f"expected no {name!r}, which is the parameter `{parameter}` (found {value!r})", "options"
                )
        chosen = {name: getattr(self, name) for name in (*self.family_options(), "init", "init_strength")}
        if self.preset is not None:
            # Parameters at their defaults are not named; the others take precedence.
            chosen = {
                name: value for name, value in chosen.items() if not np.array_equal(value, defaults[name].default)
            }
        options = {**chosen, **further, self.TOPICS: self.n_components}
        options = {name: python_value(value) for name, value in options.items()}
        names = (*LIMIT_NAMES, *WHERE, *START_NAMES)
        limits = {name: options.pop(name) for name in names if name in options}
        if self.preset is not None:
            named: dict[str, Any] = {name: limits[name] for name in START_NAMES if name in limits}
            settings, options = FitOptions(**{**named, "preset": self.preset}).with_preset(self.FAMILY, options)
            limits |= {name: getattr(settings, name) for name in START_NAMES}
        return options, {"iterations": self.max_iter, "tolerance": self.tol, **limits}

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _threads(self) -> int:
        workers: int | None = python_number(self.workers)
        check_scheduler(self.scheduler, workers)
        if workers is not None and as_scheduler(self.scheduler) == "threads":
            return workers
        return int(effective_n_jobs(python_number(self.n_jobs)))

    def _fields(self, X: Any, metadata: object, formula: CheckedFormula | None) -> dict[str, pa.Array]:
        """Return the fields of documents that a formula names, from a frame beside them or from obs of AnnData."""
        if formula is None or as_corpus(X) is not None:
            if metadata is not None:
                what = "a corpus, whose fields are used" if formula is not None else "no `prevalence`"
                raise OptionError(f"has no effect with {what}", "metadata")
            return {}
        metadata = X.obs if metadata is None and is_annotated(X) else metadata
        return {} if metadata is None else fields_of_metadata(metadata, formula.names)

    def _corpus_of(self, X: Any, place: str, extras: Mapping[str, pa.Array]) -> Corpus:
        """Return the training corpus, opened or written from a matrix, and store its words."""
        corpus = as_corpus(X)
        if corpus is not None:
            self._remember(corpus)
            return corpus
        shard_tokens = self._shard_tokens()
        source = annotated_source(X, self.layer, bool(self.binarise), self.fractional)
        if source is not None:
            self._forget("feature_names_in_")
            self._words, self.n_features_in_ = source.words(), len(source.words())
            chunks = with_fields(source.documents(), extras)
            return written(chunks, f"{place}/corpus", source.words(), shard_tokens)
        X = validated(self, X, reset=True)
        self._words = None
        words = list(self._names())
        if is_lazy(X):
            return self._corpus_of_blocks(X, Folder(f"{place}/corpus"), words, extras)
        chunks = with_fields(document_chunks(X, WRITTEN, self.fractional), extras)
        return written(chunks, f"{place}/corpus", words, shard_tokens)

    def _shard_tokens(self) -> int | None:
        """Return the checked number of tokens per shard."""
        return IngestOptions(shard_tokens=self.shard_tokens).shard_tokens

    def _corpus_of_blocks(self, X: Any, target: Folder, words: list[str], extras: Mapping[str, pa.Array]) -> Corpus:
        """Return the corpus of a Dask array, whose blocks and shards its workers write; no row comes here."""
        scheduler, columns = as_scheduler(self.scheduler), X.shape[1]
        with created(target) as folder:
            scratch = folder / SCRATCH
            dask, arguments = dask_collections(), (scratch, self._row_reading())
            parts = dask.row_blocks(X)
            show = partitions_here("reading documents", len(parts))
            blocks = dask.compute_partitions(
                parts,
                _write_block,
                arguments,
                scheduler,
                lambda block: show(sum(record.documents for record in block.records)),
            )
            records, numberings, first = list[ChunkRecord](), list[tuple[tuple[str, int, int], ...]](), 0
            for record in (record for block in blocks for record in block.records):
                block_columns = {name: column.slice(first, record.documents) for name, column in extras.items()}
                if block_columns:
                    write_table(scratch, side_table(record.name), pa.table(block_columns))
                records.append(dataclasses.replace(record, sided=bool(block_columns)))
                numberings.append((("", first + 1, record.documents),))
                first += record.documents
            _require_rows(extras, first)
            write_vocabulary(scratch, [str(column) for column in range(columns)], StopWords())
            with contextlib.closing(open_executor(scheduler, python_number(self.workers))) as executor:
                shards, _ = write_shards(executor, folder, scratch, records, numberings, self._shard_tokens())
            scratch.remove()
            table = sum_counts([block.counts for block in blocks])
            places, counts = np.asarray(table.column("word").cast(pa.int64())), np.zeros((2, columns), dtype=np.int64)
            for row, name in zip(counts, ("documents", "tokens"), strict=True):
                row[places] = np.asarray(table.column(name))
            try:
                fields = {name: str(column.type) for name, column in extras.items()}
                finish_corpus(folder, Vocabulary(words, counts[0], counts[1]), shards, fields)
            except InputError as error:
                raise InputError("X", error.expected) from None
        return Corpus(target.address)

    @contextmanager
    def _place(self) -> Iterator[str]:
        """Provide a temporary folder that workers read too: on other machines, one beside `run`."""
        scheduler = as_scheduler(self.scheduler)
        if self.run is not None and is_elsewhere(scheduler) and not Folder(self.run).local:
            folder = Folder(f"{Folder(self.run).address}.{uuid.uuid4().hex[:8]}")
            try:
                yield folder.address
            finally:
                folder.remove()
            return
        parent = None
        if self.run is not None and is_elsewhere(scheduler):
            parent = Path(Folder(self.run).path).parent
            parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=parent) as place:
            target = None if self.run is None else path_of(self.run)
            require_shared(Folder(place), scheduler, None, target=target, option="run")
            yield place

    def _remember(self, corpus: Corpus) -> None:
        """Store the words of a training corpus."""
        self._forget("feature_names_in_")
        self._words, self.n_features_in_ = corpus.vocabulary.words, corpus.manifest.vocabulary.words

    def _keep(self, fitted: Fitted, iterations: int) -> None:
        self._fitted, self.n_iter_ = fitted, iterations
        self._n_features_out = fitted.topics.size
        self._forget("_components")

    def _forget(self, name: str) -> None:
        if hasattr(self, name):
            delattr(self, name)

    def _chunks_of(self, X: Any, size: int, *, reset: bool = False) -> Iterator[Documents]:
        """Yield the documents of a matrix in chunks of `size`, or a corpus's documents by shards."""
        corpus, source = as_corpus(X), annotated_source(X, self.layer, bool(self.binarise), self.fractional)
        if source is not None:
            if reset:
                self._words, self.n_features_in_ = source.words(), len(source.words())
            known = self._words if self._words is not None else getattr(self, "feature_names_in_", source.words())
            pairs = zip(source.words(), known, strict=False)
            wrong = next((f"{word!r} for {name!r}" for word, name in pairs if word != name), None)
            if wrong is None and len(source.words()) != self.n_features_in_:
                wrong = f"{len(source.words())} of them"
            if wrong is not None:
                raise MismatchError(
                    f"AnnData: expected the {self.n_features_in_} genes or peaks of this {type(self).__name__}, in "
                    f"their order, found {wrong}"
                )
            yield from regrouped(source.documents(), size)
            return
        if corpus is None:
            if reset:
                self._words = None
            yield from document_chunks(validated(self, X, reset=reset), size, self.fractional)
            return
        if reset:
            self._remember(corpus)
        words = self._words if self._words is not None else getattr(self, "feature_names_in_", None)
        if words is not None:
            corpus.require_vocabulary_of(words_digest(list(words)), f"this {type(self).__name__}")
        elif corpus.manifest.vocabulary.words != self.n_features_in_:
            raise MismatchError(
                f"{corpus.url}: it has {corpus.manifest.vocabulary.words} words, but this {type(self).__name__} was "
                f"fitted to {self.n_features_in_}"
            )
        for reference in corpus.references:
            yield reference.documents()

    def _shown(self, activity: str) -> AbstractContextManager[object]:
        """Show a line while there is work, such as the compilation of kernels, or none if `verbose` is false."""
        verbose = None if self.verbose is None else bool(self.verbose)
        return shown(f"{activity} {type(self).__name__}", verbose)

    def _row_reading(self) -> RowReading:
        return RowReading(self.n_features_in_, self.fractional, type(self).__name__)

    def _each(self, X: Any, task: Task[T], metadata: object = None) -> Iterator[T]:
        """Yield the result of a task for each chunk of documents; rows of a Dask collection stay on its workers."""
        extras, fitted = self._fields(X, metadata, self._fitted.formula), self._fitted
        if is_lazy(X):
            rows, dask, scheduler = validated(self, X, reset=False), dask_collections(), as_scheduler(self.scheduler)
            blocks, bounds = dask.aligned_blocks(rows, FOLD_IN_DOCUMENTS, scheduler)
            _require_rows(extras, bounds[-1])
            arguments = (bounds, self._row_reading(), task, fitted, extras)
            show = partitions_here("inferring proportions", len(blocks))
            parts = dask.compute_partitions(blocks, _results_of_block, arguments, scheduler, lambda part: show(part[0]))
            yield from (result for _, results in parts for result in results)
            return
        count = counter_here("inferring proportions")

        threads = self._threads()
        executor: Executor = SerialExecutor() if threads == 1 else ThreadExecutor(threads)

        def submitted() -> Iterator[Future[T]]:
            first, chunks = 0, self._chunks_of(X, FOLD_IN_DOCUMENTS)
            for number, documents in enumerate(with_fields(chunks, extras)):
                yield executor.submit(task, fitted, number, first, documents)
                first += len(documents)
                count(first)

        try:
            yield from in_order(executor, submitted(), 2 * threads)
        finally:
            executor.close()

    def _names(self) -> Sequence[str]:
        if self._words is not None:
            return self._words
        names = getattr(self, "feature_names_in_", None)
        return [f"x{number}" for number in range(self.n_features_in_)] if names is None else list(names)


# Parameter names of the estimators, by the names of the same options elsewhere.
NAMES = {"topics": "n_components", "iterations": "max_iter", "tolerance": "tol"}


def _can_step(estimator: TopicEstimator) -> bool:
    if estimator.STOCHASTIC:
        return True
    raise AttributeError(
        f"{type(estimator).__name__} has no partial_fit: the family '{estimator.FAMILY}' is not fitted by minibatches; "
        "use fit"
    )


class TopicEstimator(DocumentEstimator):
    """Base class of the estimators of all families; `DocumentEstimator` describes its subclasses."""

    # Fitting.

    def fit(self, X: Any, y: object = None, *, metadata: object = None) -> Self:  # noqa: ARG002
        """Fit the topic model to documents; `metadata` is a frame with their fields that `prevalence` names."""
        with _named():
            options, limits = self._fit_options()
            formula = prevalence_of(make_options(self.FAMILY, options))
            extras = self._fields(X, metadata, formula)
            if formula is not None and not extras and as_corpus(X) is None:
                raise OptionError(
                    "needs the fields of the documents: fit(X, metadata=FRAME), with a row for each document",
                    PREVALENCE,
                )
            seed = self._seed()
            # If this fit fails, an earlier model with other columns must not be used.
            for name in ("_fitted", "n_iter_"):
                self._forget(name)
            with self._shown("fitting"), self._place() as place:
                corpus = self._corpus_of(X, place, extras)
                self._keep(*self._fit(corpus, place, seed, options, limits))
        self._base_seed = seed
        return self

    def _fit(
        self, corpus: Corpus, place: str, seed: int, options: dict[str, Any], limits: dict[str, Any]
    ) -> tuple[Fitted, int]:
        """Return a model of a corpus, and its iterations; a fit in this process without `run` writes no run."""
        where = {name: limits.pop(name) for name in WHERE if name in limits}
        scheduler = as_scheduler(self.scheduler)
        in_process = scheduler in ("threads", "serial")
        where.update(scheduler=scheduler, memory=python_number(self.memory))
        workers = python_number(self.workers)
        where["workers"] = workers if workers is not None or is_elsewhere(scheduler) else self._threads()
        members = {"restarts": python_number(self.restarts), "combine": self.combine}
        init = {name: limits.pop(name) for name in START_NAMES if name in limits}
        alone = not (members["restarts"] or limits.get("samples") or self.combine != "predictions")
        if in_process and self.run is None and alone and not any(init.values()):
            settings, config = FitOptions(seed=seed, **limits), make_options(self.FAMILY, options)
            request = new_request(corpus, self.FAMILY, config, settings)
            return fit_here(request, Placement(**where))
        out = f"{place}/run" if self.run is None else self.run
        named = {**members, **init, **where, **limits, **options}
        opened = Model(fit(corpus.folder.address, out, family=self.FAMILY, seed=seed, **named))
        return Fitted.of(opened, corpus.manifest.documents, corpus.manifest.tokens), opened.record.iterations

    def fit_transform(self, X: Any, y: object = None, *, metadata: object = None) -> Any:
        """Fit the topic model to documents, and return their topic proportions."""
        return self.fit(X, y, metadata=metadata).transform(X, metadata=metadata)

    @available_if(_can_step)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: object = None) -> Self:  # noqa: ARG002
        """Update the model with a minibatch, in one step of the stochastic schedule.

        X is swept in batches of 32 documents. Batch t, counted over all calls, has step size (1 + t)^-0.9, as with
        ``collapsium fit --schedule stochastic`` (SCVB0; Foulds et al., 2013). An earlier `fit` counts as one pass over
        its documents.
        """
        with _named(), self._shown("updating"):
            options, _ = self._fit_options()
            config = make_options(self.FAMILY, options)
            if prevalence_of(config) is not None:
                raise OptionError("takes `fit`, as its steps need all documents", PREVALENCE)
            before = getattr(self, "_fitted", None)
            if before is None:
                self._base_seed = self._seed()
                if getattr(config, "weights", None) is not None:
                    # They are computed from all documents.
                    raise OptionError(
                        "expected an estimator that was fitted, as `partial_fit` sees a minibatch", "weights"
                    )
            step = (before, self.FAMILY, config, self._base_seed, int(self.total_documents))
            if is_lazy(X):
                if before is None:
                    self._words = None
                rows, dask = validated(self, X, reset=before is None), dask_collections()
                block, arguments = dask.joined(dask.row_blocks(rows)), (self._row_reading(), *step)
                [after] = dask.compute_partitions([block], _step_of_block, arguments, as_scheduler(self.scheduler))
            else:
                chunks = list(self._chunks_of(X, FOLD_IN_DOCUMENTS, reset=before is None))
                after = stepped(chunks, self.n_features_in_, *step)
            if after is not None:
                self._keep(after, after.steps)
            elif before is None:
                raise InputError("X", "expected at least one document with a word")
        return self

    # Results.

    @property
    def components_(self) -> npt.NDArray[np.float64]:
        """Pseudo-counts of words, b_w + E[n_kw], shape (topics, words); row k, divided by its sum, is phi_k."""
        if not hasattr(self, "_fitted"):
            raise AttributeError(f"{type(self).__name__} is not fitted: it has no components_")
        if not hasattr(self, "_components"):
            self._components = self._fitted.components(float(getattr(self, "beta", 1.0)))
        components: npt.NDArray[np.float64] = self._components
        return components

    def transform(self, X: Any, *, metadata: object = None) -> Any:
        """Return the topic proportions of documents, seen or unseen, with the topics held fixed.

        With `prevalence`, `metadata` is a frame with the fields of the documents; without one, all documents have the
        prior of mean numbers and the most frequent labels. The proportions of a Dask array, or of a bag of rows, are a
        Dask array, whose blocks its workers compute when they are needed; the proportions of a Dask frame are a Dask
        frame with the same index.
        """
        check_is_fitted(self, "n_iter_")
        if is_lazy(X):
            if metadata is not None:
                raise OptionError("expected documents in memory, found a Dask collection", "metadata")
            rows = validated(self, X, reset=False)
            names, estimator = self.get_feature_names_out(), copy.copy(self)
            if not hasattr(X, "columns"):
                # Blocks of arrays and records have no names, which were compared here.
                estimator._forget("feature_names_in_")
            return dask_collections().map_blocks(X, rows, _block_proportions, estimator, names)
        with self._shown("transforming with"):
            parts = list(self._each(X, _proportions, metadata))
        return np.concatenate(parts) if parts else np.zeros((0, self._n_features_out))

    def score(self, X: Any, y: object = None, *, metadata: object = None) -> float:  # noqa: ARG002
        """Return the mean log probability of held-out tokens by document completion; higher is better.

        Proportions are fitted to a random half of each document's tokens with the topics held fixed. The score is the
        mean over the other half's tokens of log sum_k theta_dk phi_kw, in nats. The halves are the same for all
        models, and the same as for ``collapsium evaluate --unseen``. Unlike the score of scikit-learn's
        `LatentDirichletAllocation`, it is not a bound on the likelihood and does not grow with the number of documents.
        It is a held-out score only for documents that the model was not fitted to. `metadata` is as for `transform`.
        """
        check_is_fitted(self, "n_iter_")
        with self._shown("scoring with"):
            score = mean_score(list(self._each(X, Fitted.score, metadata)))
        if score is None:
            raise InputError("X", "no token is left to score")
        return score

    def perplexity(self, X: Any, y: object = None, *, metadata: object = None) -> float:  # noqa: ARG002
        """Return the perplexity of unseen documents, exp(-score); lower is better."""
        return math.exp(-self.score(X, metadata=metadata))

    def top_words(
        self, count: int = 10, *, rank_by: Measure = "probability", rank_weight: float | None = None
    ) -> list[list[str]]:
        """Return the first words of each topic by a measure."""
        check_is_fitted(self, "n_iter_")
        options = RankOptions(rank_by=rank_by, rank_weight=rank_weight)
        counts = self.components_
        phi, total = counts / counts.sum(axis=1, keepdims=True), counts.sum(axis=0)
        exclusivity = phi / phi.sum(axis=0)
        top = largest(word_scores(phi, exclusivity, total / total.sum(), counts.sum(axis=1), options), count)
        names = self._names()
        return [[str(names[word]) for word in row] for row in top.tolist()]

    def to_pyldavis(self, X: Any, vocabulary: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the arguments of ``pyLDAvis.prepare(**...)``, which draws the topics.

        Documents and words without tokens are left out, because pyLDAvis takes logarithms of their frequencies.
        """
        check_is_fitted(self, "n_iter_")
        names = vocabulary if vocabulary is not None else self._names()
        if len(names) != self.n_features_in_:
            raise OptionError(f"vocabulary: expected {self.n_features_in_} words, found {len(names)}")
        lengths, tokens, shares = [np.zeros(0, np.int64)], np.zeros(self.n_features_in_, np.int64), []
        for length, (words, counts), part in self._each(X, _described):
            lengths.append(length)
            tokens[words] += counts
            shares.append(part)
        length = np.concatenate(lengths)
        if not length.any():
            raise InputError("X", "expected at least one document with a word")
        phi = self.components_[:, tokens > 0]
        return {
            "topic_term_dists": phi / phi.sum(axis=1, keepdims=True),
            "doc_topic_dists": np.concatenate(shares)[length > 0],
            "doc_lengths": length[length > 0],
            "vocab": [str(names[word]) for word in np.flatnonzero(tokens).tolist()],
            "term_frequency": tokens[tokens > 0],
            "sort_topics": False,
            "start_index": 0,
        }


def _block_proportions(block: Any, estimator: DocumentEstimator) -> npt.NDArray[np.float64]:
    # Filters leave blocks without rows.
    if not block.shape[0]:
        return np.zeros((0, len(estimator.get_feature_names_out())))
    # Several blocks at a time would write over one another's lines.
    with silenced():
        proportions: npt.NDArray[np.float64] = estimator.transform(block)
    return proportions


def _results_of_block(
    block: Any,
    number: int,
    bounds: Sequence[int],
    reading: RowReading,
    task: Task[T],
    fitted: Fitted,
    extras: Mapping[str, pa.Array],
) -> tuple[int, list[T]]:
    """Return the documents of a block, which begin and end at `bounds`, and the results of a task for its chunks."""
    results, (first, last) = list[T](), bounds[number : number + 2]
    block_extras = {name: column.slice(first, last - first) for name, column in extras.items()}
    for documents in with_fields(reading.chunks(block, FOLD_IN_DOCUMENTS, first), block_extras):
        results.append(task(fitted, first // FOLD_IN_DOCUMENTS, first, documents))
        first += len(documents)
    return last - bounds[number], results


def _proportions(fitted: Fitted, number: int, _first: int, documents: Documents) -> npt.NDArray[np.float64]:
    return fitted.proportions(number, documents)


def _described(
    fitted: Fitted, number: int, _first: int, documents: Documents
) -> tuple[npt.NDArray[np.int64], tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]], npt.NDArray[np.float64]]:
    """Return lengths of documents, their words with the number of their tokens, and their proportions."""
    words, places = np.unique(documents.words, return_inverse=True)
    counts = np.zeros(words.size, dtype=np.int64)
    np.add.at(counts, places, documents.counts)
    return documents.tokens, (words, counts), fitted.proportions(number, documents)


def _step_of_block(block: Any, _number: int, reading: RowReading, *step: Any) -> Fitted | None:
    return stepped(list(reading.chunks(block, FOLD_IN_DOCUMENTS)), reading.columns, *step)


@contextmanager
def _named() -> Iterator[None]:
    """Rename options in errors to the parameters of the estimators."""
    try:
        yield
    except OptionError as error:
        raise OptionError(error.spelled(lambda name: NAMES.get(name, name))) from None
