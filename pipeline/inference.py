"""Topic proportions of documents or of their segments, seen or unseen, streamed out to Parquet."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from collapsar.pipeline.chances import load_blocks
from collapsar.pipeline.contract import require_corpus
from collapsar.pipeline.executor import TLS, open_executor
from collapsar.pipeline.keywords import checked_keywords
from collapsar.pipeline.members import member_of
from collapsar.pipeline.opening import Model
from collapsar.storage.corpus import Corpus, ShardReference
from collapsar.storage.errors import CollapsarError, OccupiedError, OptionError, StoreError
from collapsar.storage.folder import File
from collapsar.storage.patience import FULL
from collapsar.storage.progress import Counting, silent
from collapsar.storage.segments import running
from collapsar.workers import tasks
from collapsar.workers.contract import load_sweeps, wanted_by
from collapsar.workers.delta import Arrays
from collapsar.workers.streams import Stream

THETA, PREFIX = "document_topic", "document_"
SEGMENT_THETA, SEGMENTS = "segment_topic", "segments"
SHARES = [pa.field("topics", pa.list_(pa.int32())), pa.field("proportions", pa.list_(pa.float32()))]
SCHEMA = pa.schema([("id", pa.string()), *SHARES])
SEGMENT_SCHEMA = pa.schema([("id", pa.string()), ("segment", pa.int32()), *SHARES])


@checked_keywords()
def infer(
    run: str | os.PathLike[str],
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    segments: bool = False,
    threshold: float = 0.001,
    seed: int = 0,
    member: int | None = None,
    scheduler: str = "threads",
    workers: int | None = None,
    tls: TLS | None = None,
    progress: Counting = silent,
) -> int:
    """Write the topic proportions of documents or of their segments.

    The documents of the training corpus have the proportions that they were fitted with; of any other corpus, all
    tokens are used to fit proportions with the topics held fixed.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or model.
    corpus : str or path-like
        The documents; its vocabulary must be the model's.
    out : str or path-like
        Parquet file to write: id, topics (permanent ids, the largest proportion first), proportions, and a column of
        lists for whatever else the family tells of documents; see `collapsar.workers.contract.Sweeps.infer`.
    segments : bool, optional
        Write a row for each segment instead: id, segment (int32, counted from 1 in each document), topics, proportions.
    threshold : float, optional
        Proportions below are left out; what is left out is one minus the sum.
    seed : int, optional
        For families that draw random numbers.
    member : int, optional
        Of an ensemble: which restart's proportions, or which kept sample's; by default the first restart's or, of
        samples, the last one's. Topics of several members are not the same, so that no mean could be taken.
    scheduler, workers, tls : optional
        As for `fit`.
    progress : callable, optional
        Told the number of rows written so far.

    Returns
    -------
    int
        Number of rows: of documents or of segments.

    Raises
    ------
    OccupiedError
        The file exists.
    MismatchError
        The corpus has another vocabulary, or holds what the family does not take.
    OptionError
        The threshold is not in [0, 1), there is no such member, or the family has no segments.
    """
    if not 0 <= threshold < 1:
        raise OptionError(f"--threshold: expected a share in [0, 1), found {threshold}")
    model, documents = Model(run if member is None else member_of(run, member)), Corpus(corpus)
    if segments:
        require_segments(model.record.family)
    require_corpus(model.record.family, documents)
    documents.require_vocabulary_of(model.record.vocabulary.words_sha256, model.folder.url)
    target = File(out)
    if target.exists():
        raise OccupiedError(f"{out}: exists already; name a new file or remove this one")
    seen = documents.manifest.digest == model.record.corpus and model.fitted
    executor = open_executor(scheduler, workers, tls=tls)
    written = 0
    try:
        blocks = [] if seen else load_blocks(model, executor)
        with written_to(target, SEGMENT_SCHEMA if segments else SCHEMA) as writer:
            references = documents.references
            window = 2 * executor.workers  # shards on their way: bounded, however many there are
            for first in range(0, len(references), window):
                submitted = [
                    executor.submit(_proportions, model.folder.address, one, blocks, threshold, seed, seen, segments)
                    for one in references[first : first + window]
                ]
                for table in executor.collect(submitted):
                    writer.write(table)
                    written += table.num_rows
                    progress(written)
    finally:
        executor.close()
    return written


class Writer:
    """Write tables to a Parquet file, whose columns are the first one's, or those of a schema where none comes."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema
        self._file: Any = None

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is None:
            self._open(self._schema)
        self._file.close()

    def _open(self, schema: pa.Schema) -> None:
        self._file = pq.ParquetWriter(self._path, schema, compression="zstd")

    def write(self, table: pa.Table) -> None:
        """Write the next rows."""
        if self._file is None:
            self._open(table.schema)
        self._file.write_table(table)


@contextmanager
def written_to(target: File, schema: pa.Schema = SCHEMA) -> Iterator[Writer]:
    """Write a Parquet file aside, and put it in its place once it is whole.

    Parameters
    ----------
    target : File
        Where it shall lie.
    schema : pyarrow.Schema, optional
        Its columns, if no table comes.

    Yields
    ------
    Writer
        Takes the tables.
    """
    with tempfile.TemporaryDirectory(prefix="collapsar-") as place:
        part = Path(place) / "part.parquet"
        with _no_space(place), Writer(part, schema) as writer:
            yield writer
        target.put(part)


@contextmanager
def _no_space(place: str) -> Iterator[None]:
    """Say which disk is full, which Arrow does not."""
    try:
        yield
    except OSError as error:
        if isinstance(error, CollapsarError) or error.errno not in FULL:
            raise
        raise StoreError(f"{place}: no space is left on the disk") from error


def require_segments(family: str) -> None:
    """Refuse a family that knows no segments.

    Parameters
    ----------
    family : str
        Its name.

    Raises
    ------
    OptionError
        It takes whole documents.
    """
    if not wanted_by(family)["segmented"]:
        raise OptionError(
            f"--segments: {family} knows no segments, it takes whole documents; expected a family that does, or "
            "infer documents that `collapsar flatten` made of segments"
        )


def _proportions(
    url: str,
    reference: ShardReference,
    blocks: list[tasks.Block],
    threshold: float,
    seed: int,
    seen: bool,
    segments: bool,
) -> pa.Table:
    model = Model(url)
    family = model.record.family
    if seen:
        local: Arrays = model.documents(reference.number)
    else:
        shard = reference.load(**wanted_by(family))
        local = tasks.settle(family, shard, blocks, model.globals, Stream(seed, "infer"))
    found = load_sweeps(family).infer(local, model.globals)
    ids = reference.documents().ids
    if segments:
        return _by_segment(ids, found, threshold)
    table = sparse(ids, found[THETA], threshold)
    for name, values in found.items():
        if name.startswith(PREFIX) and name != THETA:
            table = table.append_column(*_lists(name, values))
    return table


def _by_segment(ids: pa.Array, found: Arrays, threshold: float) -> pa.Table:
    """Make a table of a row a segment; `found` is as the family's `infer` gives it."""
    counts = np.asarray(found[SEGMENTS], dtype=np.int64)
    owner = np.repeat(np.arange(counts.size), counts)
    number = np.arange(owner.size) - (running(counts)[:-1])[owner] + 1
    table = sparse(ids.take(pa.array(owner)), found[SEGMENT_THETA], threshold)
    return table.add_column(1, SEGMENT_SCHEMA.field("segment"), pa.array(number.astype(np.int32)))


def _lists(name: str, values: npt.NDArray[Any]) -> tuple[pa.Field, pa.Array]:
    """Make a column of lists, one a document, of an array ``document_...`` of shape (documents, n)."""
    documents, width = values.shape
    kind = pa.int32() if np.issubdtype(values.dtype, np.integer) else pa.float32()
    offsets = pa.array(np.arange(documents + 1, dtype=np.int32) * width)
    column = pa.ListArray.from_arrays(offsets, pa.array(values.ravel()).cast(kind))  # refuses what an int32 cannot hold
    return pa.field(name.removeprefix(PREFIX), pa.list_(kind)), column


def sparse(ids: pa.Array, theta: npt.NDArray[np.float64], threshold: float) -> pa.Table:
    """Make a table of the proportions that reach a threshold.

    Parameters
    ----------
    ids : pyarrow.Array of string
        The documents' ids.
    theta : numpy.ndarray, shape (documents, topics)
        Their proportions.
    threshold : float
        The smallest proportion to keep.

    Returns
    -------
    pyarrow.Table
        ``id``, ``topics`` and ``proportions``, the largest first.
    """
    order = np.argsort(-theta, axis=1, kind="stable")
    falling = np.take_along_axis(theta, order, axis=1)
    keep = falling >= threshold
    offsets = pa.array(np.concatenate([[0], np.cumsum(keep.sum(axis=1))]).astype(np.int32))
    topics = pa.ListArray.from_arrays(offsets, pa.array(order[keep].astype(np.int32)))
    proportions = pa.ListArray.from_arrays(offsets, pa.array(falling[keep].astype(np.float32)))
    return pa.Table.from_arrays([ids, topics, proportions], schema=SCHEMA)
