"""Topic proportions of documents or of their segments, seen or unseen, streamed out to a file."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collapsium.pipeline.analysis.options import InferOptions
from collapsium.pipeline.corpora.new_texts import DocumentSource, UnknownWords, documents_for
from collapsium.pipeline.corpora.options import ReadingOptions
from collapsium.pipeline.corpora.texts_in_memory import Frame, is_lazy, read_table
from collapsium.pipeline.executors.base import Future, T, in_order
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import Scheduling
from collapsium.pipeline.fitted_model import columns_of, lazy_proportions, load_blocks, note_on_fields, parts_for
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import load_family, require_corpus
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords, without_none
from collapsium.pipeline.outputs import overwrites, table_file
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.labels import running
from collapsium.storage.corpus.parquet import UNKNOWN_SHARE
from collapsium.storage.errors import OptionError
from collapsium.storage.io.file import require_free
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.parquet import number_array
from collapsium.storage.io.records import digest_of
from collapsium.storage.runs.members import member_of, reference_of
from collapsium.storage.runs.proportions import (
    MATRICES,
    PROPORTIONS,
    SCHEMA,
    SEGMENT_SCHEMA,
    TOPIC,
    ending_of,
    ids_file,
    written_to,
)
from collapsium.storage.runs.published import PartRecord, part_name
from collapsium.storage.units import Counting, silent
from collapsium.workers import tasks
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import LocalState

THETA, PREFIX = "document_topic", "document_"
SEGMENT_THETA, SEGMENTS = "segment_topic", "segments"


MIN_PROPORTION = 0.001  # Default of `threshold`, the proportion below which sparse output leaves a topic out
SHARE_BITS = 31  # Bits of a positive number of single precision
MAX_SHARE = np.uint64((1 << SHARE_BITS) - 1)


@dataclass(frozen=True)
class Inference:
    """Size of the written file.

    Attributes
    ----------
    rows : int
        Number of documents, or segments.
    unknown : UnknownWords or None
        Number of tokens of texts that are not in the model's vocabulary; None for a corpus.
    models : int
        Number of models over which the proportions are means: restarts or samples whose topics were matched.
    member : str or None
        Folder of the restart that the proportions come from, if topics were not matched.
    """

    rows: int
    unknown: UnknownWords | None = None
    models: int = 1
    member: str | None = None


@shows("inferring proportions")
@overwrites("out", files=True, companion=ids_file)
@keywords(options=InferOptions, reading=ReadingOptions, scheduling=Scheduling)
def infer(
    run: str | os.PathLike[str],
    documents: DocumentSource,
    out: str | os.PathLike[str] | None = None,
    *,
    options: InferOptions,
    reading: ReadingOptions,
    scheduling: Scheduling,
    notice: Callable[[str], None] | None = None,
    progress: Counting = silent,
) -> Inference | Frame:
    """Write the topic proportions of documents or of their segments, or return them as a frame.

    Documents of the training corpus have the proportions of the fit. All others are folded in: their proportions are
    fitted to all their tokens with the topics held fixed. Restarts and samples whose topics were matched give the means
    of their proportions.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or model.
    documents : Corpus, path, sequence of paths or str, column or frame, or Dask frame, column or bag
        A corpus with the model's vocabulary; or texts, in files, folders and globs of any format of `ingest`, or in
        memory, which are read like the model's documents.
    out : str or path-like, optional
        File to write; by default the proportions are returned as a frame. ``.parquet`` has a row for each document: id,
        topics (permanent ids, the largest proportion first), proportions, and a column of lists for each further array
        that the family's `infer` returns. ``.csv`` has a row for each document and topic: id, topic, proportion.
        ``.npy`` is a float32 matrix with a row for each document and a column for each topic; the ids are in
        ``NAME.ids.csv``. ``.npz`` has the arrays ids, topics and proportions, such a matrix.
    options : InferOptions
        Layout of the proportions' file.
    reading : ReadingOptions
        Differences between new texts and the documents that a model was fitted to.
    notice : callable, optional
        Called with lines for the user: on the reading of texts, and a warning of many unknown words.

    Returns
    -------
    Inference or frame
        The number of rows and, for texts, of unknown tokens; or, without `out`, a row for each document and a column
        for each topic, with the index of a pandas frame of documents, or else their ids. Polars and Arrow give frames
        of the same library with the columns ``topic_0`` and so on, and so does a Dask collection, which is not
        computed.

    Raises
    ------
    OccupiedError
        The file exists.
    MismatchError
        The corpus has another vocabulary, or a kind that the family does not take.
    OptionError
        The file has another ending; a threshold is set for dense output; the member does not exist; the family does not
        model segments; or texts cannot be read as recorded.
    """
    dense = options.dense or out is None or ending_of(out) in MATRICES
    if options.threshold is not None and dense:
        raise OptionError(
            f"`threshold` {options.threshold}: applies only to sparse output; dense output has all topics"
        )
    threshold = MIN_PROPORTION if options.threshold is None else options.threshold
    model = Model(run if options.member is None else member_of(run, options.member))
    if options.segments:
        require_segments(model.record.family)
    if is_lazy(documents):
        if out is not None or options.segments:
            name = "segments" if options.segments else "out"
            raise OptionError("does not apply to a Dask collection, whose result is a lazy frame of documents", name)
        return lazy_proportions(model, documents, options.seed, without_none(reading), framed=True)
    if out is not None:
        require_free(out, ids_file(out))
    where = dict(scheduling)
    source = run if options.member is None else model.folder.url
    layout = _Layout(None if dense else threshold, options.seed, options.segments)
    with (
        documents_for(source, documents, reading=without_none(reading), notice=notice, **where) as new,
        table_file(out) as file,
    ):
        if notice is not None and (line := note_on_fields(model, columns_of(new.corpus))):
            notice(line)
        rows, schema = 0, SEGMENT_SCHEMA if layout.segments else SCHEMA
        shards = ((reference, ()) for reference in new.corpus.references)
        with (
            contextlib.closing(_results(model, new.corpus, where, _proportions, layout, shards)) as tables,
            written_to(file, schema, dense=layout.threshold is None) as writer,
        ):
            for table in tables:
                writer.write(table)
                rows += table.num_rows
                progress(rows)
        if out is None:
            table = read_table(file, documents)
            if not hasattr(table, "rename_axis"):
                return table
            names = {name: int(name.removeprefix(TOPIC)) for name in table if str(name).startswith(TOPIC)}
            frame = table.rename(columns=names)
            return frame.rename_axis(columns="topic") if len(names) == frame.shape[1] else frame
    if model.members:
        return Inference(rows, new.unknown, len(model.members))
    return Inference(rows, new.unknown, member=reference_of(run) if options.member is None else None)


@dataclass(frozen=True)
class VersionColumns:
    """Columns that the proportions of a published version have beside `infer`'s."""

    version: int  # Number of the version
    names: Mapping[int, str]  # Name or first words of each topic


@dataclass(frozen=True)
class _Layout:
    """Layout of the output: the threshold of sparse proportions, None for dense ones, the seed, and the row's unit."""

    threshold: float | None
    seed: int
    segments: bool
    columns: VersionColumns | None = None


def infer_version(
    model: Model,
    corpus: Corpus,
    folder: Folder,
    before: Iterable[PartRecord],
    *,
    threshold: float,
    columns: VersionColumns,
    progress: Counting = silent,
    **where: Any,
) -> tuple[PartRecord, ...]:
    """Write the proportions of a job's documents, one file per shard, and return the list of all files.

    A file depends on its shard, the model and the topics' names alone, so files of the version before that have the
    same are not made again, and neither are files of an interrupted job. Workers write the others themselves.
    """
    layout = _Layout(threshold, 0, False, columns)
    earlier = {part.inputs: part for part in before}
    part_records, written, remaining = dict[int, PartRecord](), 0, list[ShardReference]()
    inputs = {reference.number: _inputs_of(model, reference, layout) for reference in corpus.references}
    for reference in corpus.references:
        part = earlier.get(inputs[reference.number])
        if part is None:
            remaining.append(reference)
        else:
            part_records[reference.number] = part
            written += part.documents
    if written:
        progress(written)

    if remaining:
        tasks_of_parts = ((reference, (folder, inputs[reference.number])) for reference in remaining)
        parts: Iterator[PartRecord] = _results(model, corpus, where, _write_part, layout, tasks_of_parts)
        for reference, part in zip(remaining, parts, strict=True):
            part_records[reference.number] = part
            written += part.documents
            progress(written)
    return tuple(part_records[reference.number] for reference in corpus.references)


def _inputs_of(model: Model, reference: ShardReference, layout: _Layout) -> str:
    """Return the digest of what determines the rows of a shard, apart from the version's number."""
    names = {} if layout.columns is None else {str(topic): name for topic, name in layout.columns.names.items()}
    shard = reference.record.model_dump(mode="json", exclude={"file"})
    inputs = {"model": model.record.digest, "shard": shard, "number": reference.number, "names": names}
    return digest_of({**inputs, "threshold": layout.threshold})


def _write_part(
    url: str,
    reference: ShardReference,
    blocks: list[tasks.Block],
    layout: _Layout,
    seen: bool,
    folder: Folder,
    inputs: str,
) -> PartRecord:
    """Write the proportions of a shard, unless an interrupted job has written them, and return their record."""
    name, version = part_name(reference.number, inputs), 1 if layout.columns is None else layout.columns.version
    if folder.exists(name):
        digest, documents = hashlib.sha256(folder.read(name)).hexdigest(), reference.record.documents
    else:
        table, sink = _proportions(url, reference, blocks, layout, seen), pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        digest, documents = folder.write(name, memoryview(sink.getvalue())), table.num_rows
    return PartRecord(file=name, documents=documents, sha256=digest, inputs=inputs, version=version)


def _results(
    model: Model,
    corpus: Corpus,
    where: Mapping[str, Any],
    task: Callable[..., T],
    layout: _Layout,
    shards: Iterable[tuple[ShardReference, tuple[object, ...]]],
) -> Generator[T]:
    """Yield the results of a task over shards, with further arguments each, while workers process the next ones.

    The tasks receive the blocks of the vocabulary, or none for the documents of the fit, whose counts the model has.
    """
    require_corpus(model.record.family, corpus)
    corpus.require_vocabulary_of(model.record.vocabulary.words_sha256, model.folder.url)
    seen = corpus.manifest.digest == model.record.corpus and model.fitted
    with contextlib.closing(open_executor(**where)) as executor:
        blocks: list[Future[tasks.Block]] = [] if seen else load_blocks(model, executor)
        address = model.folder.address
        futures = (executor.submit(task, address, shard, blocks, layout, seen, *further) for shard, further in shards)
        yield from in_order(executor, futures, 2 * executor.workers)


def require_segments(family: str) -> None:
    """Refuse a family that does not model segments."""
    if not load_family(family).uses_segments:
        raise OptionError(
            f"{family} does not model segments; use a family that does, or infer documents that "
            "`collapsium explode` made of segments",
            "segments",
        )


def _proportions(
    url: str, reference: ShardReference, blocks: list[tasks.Block], layout: _Layout, seen: bool
) -> pa.Table:
    model = Model(url)
    if seen:
        local: LocalState = model.local_state(reference.number)
    else:
        shard = reference.load(**parts_for(model))
        local = tasks.fold_in(model.family, shard, blocks, model.global_state, Stream(layout.seed, "infer"))
    inferred = model.family.infer(local, model.global_state)
    documents = reference.documents()
    ids = documents.ids
    if layout.segments:
        counts = np.asarray(inferred[SEGMENTS], dtype=np.int64)
        owner = np.repeat(np.arange(counts.size), counts)
        number = np.arange(owner.size) - running(counts)[:-1][owner] + 1
        table = _shares(ids.take(pa.array(owner)), inferred[SEGMENT_THETA], layout.threshold)
        return table.add_column(1, SEGMENT_SCHEMA.field("segment"), pa.array(number.astype(np.int32)))
    table = _shares(ids, inferred[THETA], layout.threshold)
    for name, values in inferred.items():
        if name.startswith(PREFIX) and name != THETA:
            rows, width = values.shape
            kind = pa.int32() if np.issubdtype(values.dtype, np.integer) else pa.float32()
            offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * width)
            # The cast refuses what an int32 cannot hold.
            column = pa.ListArray.from_arrays(offsets, pa.array(values.ravel()).cast(kind))
            table = table.append_column(pa.field(name.removeprefix(PREFIX), pa.list_(kind)), column)
    if layout.columns is not None:
        empty = np.zeros(len(documents), dtype=bool) if reference.dense is not None else documents.tokens == 0
        for name, column in _columns_of(layout.columns, inferred[THETA], empty, documents.extras).items():
            table = table.append_column(name, column)
    return table


def _columns_of(
    columns: VersionColumns,
    theta: npt.NDArray[np.float64],
    empty: npt.NDArray[np.bool_],
    extras: Mapping[str, pa.Array],
) -> dict[str, pa.Array]:
    """Return the columns of a version; documents without tokens have no main topic."""
    main = theta.argmax(axis=1)
    names = [None if none else columns.names.get(topic, "") for topic, none in zip(main.tolist(), empty, strict=True)]
    table = {
        "topic": pa.array(main.astype(np.int32), mask=empty),
        "name": pa.array(names, pa.string()),
        "share": pa.array(theta[np.arange(main.size), main].astype(np.float32), mask=empty),
    }
    unknown = extras.get(UNKNOWN_SHARE)
    if unknown is None or not pa.types.is_float32(unknown.type):
        unknown = pa.nulls(main.size, pa.float32())  # The corpus does not have the shares
    table |= {name: extras[name] for name in ("title", "date") if name in extras}
    if "labels" in extras:
        labels = extras["labels"]
        pairs = labels.flatten()
        texts = pc.binary_join_element_wise(pc.struct_field(pairs, "field"), pc.struct_field(pairs, "value"), "=")
        lengths = number_array(np.asarray(pc.fill_null(pc.list_value_length(labels), 0), dtype=np.int32))
        table["labels"] = pa.ListArray.from_arrays(number_array(running(np.asarray(lengths)).astype(np.int32)), texts)
    return {**table, UNKNOWN_SHARE: unknown, "version": pa.array(np.full(main.size, columns.version, dtype=np.int32))}


def _shares(ids: pa.Array, theta: npt.NDArray[np.float64], threshold: float | None) -> pa.Table:
    """Return a table of sparse proportions or, without a threshold, of all proportions as lists of equal length."""
    if threshold is not None:
        return sparse(ids, theta, threshold)
    values = pa.array(np.ascontiguousarray(theta, dtype=np.float32).ravel())
    return pa.table({"id": ids, PROPORTIONS: pa.FixedSizeListArray.from_arrays(values, theta.shape[1])})


def sparse(ids: pa.Array, theta: npt.NDArray[np.float64], threshold: float) -> pa.Table:
    """Return a table of the proportions that reach a threshold."""
    document, topic = np.nonzero(theta >= threshold)
    offsets = number_array(running(np.bincount(document, minlength=len(theta))).astype(np.int32))
    sorted_topics, sorted_shares = largest_first(document, topic, theta[document, topic], theta.shape[1])
    topics = pa.ListArray.from_arrays(offsets, number_array(sorted_topics))
    proportions = pa.ListArray.from_arrays(offsets, number_array(sorted_shares))
    return pa.Table.from_arrays([ids, topics, proportions], schema=SCHEMA)


def largest_first(
    document: npt.NDArray[np.int64], topic: npt.NDArray[np.int64], share: npt.NDArray[np.float64], topics: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return the topics and the proportions of documents that follow one another, the largest first, then by number.

    They are sorted as single numbers of 64 bits, seven times as fast as by two keys: document, falling proportion (the
    bits of a positive float rise with it), topic.
    """
    topic_bits = max(topics - 1, 1).bit_length()
    document_bits = 64 - SHARE_BITS - topic_bits
    topics_sorted, shares_sorted = np.empty(topic.size, dtype=np.int32), np.empty(topic.size, dtype=np.float32)
    # The sum has no sign, because the sign of -0.0 is a separate bit.
    falling = MAX_SHARE - (share.astype(np.float32) + np.float32(0.0)).view(np.uint32).astype(np.uint64)
    first_documents = np.arange(0, int(document[-1]) + 1 if document.size else 0, 1 << document_bits)
    bounds = [*np.searchsorted(document, first_documents).tolist(), document.size]
    for first, (low, high) in zip(first_documents, pairwise(bounds), strict=True):
        number, chosen = (document[low:high] - first).astype(np.uint64), topic[low:high].astype(np.uint64)
        keys = (number << (SHARE_BITS + topic_bits)) | (falling[low:high] << topic_bits) | chosen
        keys.sort()
        topics_sorted[low:high] = keys & ((1 << topic_bits) - 1)
        shares_sorted[low:high] = (MAX_SHARE - ((keys >> topic_bits) & MAX_SHARE)).astype(np.uint32).view(np.float32)
    return topics_sorted, shares_sorted
