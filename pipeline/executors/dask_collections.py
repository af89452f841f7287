"""Collections of Dask (frames, columns, bags and arrays): functions of their partitions, on their workers."""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import dask
import dask.array as da
import distributed
import numpy as np
import numpy.typing as npt
import scipy.sparse
from dask.callbacks import Callback
from dask.system import CPU_COUNT

from collapsium.pipeline.executors.schedulers import LOCAL_SCHEDULERS, ClientOrCluster, Scheduler, as_scheduler
from collapsium.storage.data_types import AnyArray
from collapsium.storage.errors import InputError, OptionError

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
Collection: TypeAlias = Any  # A collection of Dask, or a part of it
STOP_SECONDS = 60.0  # Longest wait for partitions that are being computed when another one fails
STOP_POLL = 0.1  # Seconds between two looks at what workers still compute
QUIET_POLLS = 2  # Looks in a row that find nothing, before workers count as done


def compute_partitions(
    parts: Sequence[Collection],
    function: Callable[..., T],
    arguments: Sequence[object],
    scheduler: Scheduler,
    done: Callable[[T], None] | None = None,
) -> list[T]:
    """Return the results of a function of each part, its number and arguments, computed where the parts are.

    `done` is called with each result as soon as it is there, in any order.
    """
    # The graph has the arguments once, as a model among them may be large.
    call, shared = dask.delayed(_applied, pure=False), dask.delayed(tuple(arguments), traverse=False)
    calls = [call(function, part, number, shared) for number, part in enumerate(parts)]
    with client_of(scheduler) as client:
        if client is not None:
            return _collected(client, calls, done)
        with _threads(), contextlib.nullcontext() if done is None else _calling(done, {call.key for call in calls}):
            return list(dask.compute(*calls))


def _collected(client: distributed.Client, calls: Sequence[Collection], done: Callable[[T], None] | None) -> list[T]:
    """Return the results of delayed calls in their order, after each was passed to `done`."""
    futures: list[distributed.Future] = client.compute(calls)
    try:
        for future in distributed.as_completed(futures):
            result = future.result()
            if done is not None:
                done(result)
        return list(client.gather(futures))
    except BaseException:
        _stop(client, futures)
        raise


def _stop(client: distributed.Client, futures: Sequence[distributed.Future]) -> None:
    """Cancel calls, and wait for those that workers have begun, which may still write files that are then removed."""
    keys, deadline = {future.key for future in futures}, time.monotonic() + STOP_SECONDS
    with contextlib.suppress(OSError, TimeoutError, distributed.CancelledError):
        client.cancel(futures)
        # A worker may begin one more call before it learns of the end.
        quiet = 0
        while quiet < QUIET_POLLS and time.monotonic() < deadline:
            time.sleep(STOP_POLL)
            running = {key for stacks in client.call_stack().values() for key in stacks}
            quiet = 0 if keys & running else quiet + 1


@contextlib.contextmanager
def _threads() -> Iterator[None]:
    """Let Dask's threads, if it uses them, end before an error is raised, as they may still write files."""
    has_other_scheduler = dask.config.get("scheduler", None) not in (None, "threads", "threading")
    if has_other_scheduler or dask.config.get("pool", None) is not None:
        yield
        return
    with ThreadPoolExecutor(dask.config.get("num_workers", None) or CPU_COUNT) as pool, dask.config.set(pool=pool):
        yield


def _calling(done: Callable[[T], None], keys: Set[object]) -> Callback:
    """Return a context in which Dask's local schedulers pass the results of some tasks to a function."""

    def finished(key: object, result: T, *_: object) -> None:
        if key in keys:
            done(result)

    return Callback(posttask=finished)


def partitions(collection: Collection) -> list[Collection]:
    """Return the partitions of a frame, column or bag."""
    return list(np.ravel(np.array(collection.to_delayed(), dtype=object)))


def _applied(function: Callable[..., T], part: Collection, number: int, arguments: Sequence[object]) -> T:
    return function(part, number, *arguments)


def row_blocks(rows: Collection) -> list[Collection]:
    """Return the blocks of an array with all of its columns, which workers put beside one another."""
    return [row[0] if len(row) == 1 else joined(row.tolist(), axis=1) for row in rows.to_delayed()]


def joined(blocks: Sequence[Collection], axis: int = 0) -> Collection:
    """Return blocks as one, dense or sparse, which a worker joins."""
    return dask.delayed(_joined)(list(blocks), axis)


def _joined(blocks: Sequence[Collection], axis: int) -> Collection:
    columns = [block.shape[1] for block in blocks]
    if not axis and min(columns) < max(columns):
        raise InputError("X", f"expected {columns[0]} columns, found {next(n for n in columns if n != columns[0])}")
    # Dask joins sparse matrices, but no sparse arrays.
    if any(map(scipy.sparse.issparse, blocks)):
        return (scipy.sparse.hstack if axis else scipy.sparse.vstack)(blocks).tocsr()
    # NumPy would lose masks, for which counts are refused.
    masked = any(isinstance(block, np.ma.MaskedArray) for block in blocks)
    return (np.ma.concatenate if masked else np.concatenate)(blocks, axis=axis)


def aligned_blocks(rows: Collection, step: int, scheduler: Scheduler) -> tuple[list[Collection], list[int]]:
    """Return blocks of rows that begin at multiples of `step`, and the rows at which they begin and the last one ends.

    Blocks of unknown length, as frames have them, are counted first.
    """
    blocks, lengths = row_blocks(rows), rows.chunks[0]
    if np.isnan(lengths).any():
        lengths = compute_partitions(blocks, _rows_of, (), scheduler)
    bounds = [0, *accumulate(map(int, lengths))]
    cuts = sorted({*(begin // step * step for begin in bounds[:-1]), bounds[-1]})
    return [_rows_between(blocks, bounds, *pair) for pair in pairwise(cuts)], cuts


def _rows_of(block: Collection, _number: int) -> int:
    return int(block.shape[0])


def _rows_between(blocks: Sequence[Collection], bounds: Sequence[int], low: int, high: int) -> Collection:
    """Return the rows from `low` to `high` of blocks that begin and end at `bounds`."""
    pieces = []
    for number in range(bisect_right(bounds, low) - 1, bisect_left(bounds, high)):
        begin, end = bounds[number : number + 2]
        start, stop = max(low - begin, 0), min(high, end) - begin
        if start < stop:
            pieces.append(dask.delayed(_cut)(blocks[number], end - begin, start, stop))
    return pieces[0] if len(pieces) == 1 else joined(pieces)


def _cut(block: Collection, rows: int, start: int, stop: int) -> Collection:
    """Return some rows of a block; a block may have other rows than its collection declares."""
    if block.shape[0] != rows:
        raise InputError("X", f"expected a block of {rows} rows, as the collection declares, found {block.shape[0]}")
    if (start, stop) == (0, rows):
        return block
    return (block.tocsr() if scipy.sparse.issparse(block) else block)[start:stop]


def is_overridden() -> bool:
    """Return true if Dask's configuration names another scheduler than the active client, such as `synchronous`."""
    return dask.config.get("scheduler", None) not in (None, "dask.distributed", "distributed")


@contextlib.contextmanager
def client_of(scheduler: Scheduler) -> Iterator[distributed.Client | None]:
    """Yield a client of a scheduler, or for a local one the active client; None without one, or if it is overridden."""
    if not isinstance(scheduler, ClientOrCluster) and scheduler in LOCAL_SCHEDULERS:
        active = None if is_overridden() else as_scheduler(None)
        yield active.source if isinstance(active, ClientOrCluster) else None
    elif isinstance(scheduler, ClientOrCluster) and isinstance(scheduler.source, distributed.Client):
        _ = scheduler.address  # Raises an error if the client is closed
        yield scheduler.source
    else:
        address = scheduler.address if isinstance(scheduler, ClientOrCluster) else scheduler
        where = {"address": address} if "://" in address else {"scheduler_file": address}
        security = scheduler.security if isinstance(scheduler, ClientOrCluster) else None
        with distributed.Client(**where, set_as_default=False, security=security) as client:
            yield client


def is_frame(collection: Collection) -> bool:
    """Return True for a frame or column, False for a bag; refuse an array."""
    if hasattr(collection, "map_partitions") and hasattr(collection, "divisions"):
        return True
    if hasattr(collection, "dtype"):
        raise OptionError(f"expected texts (a Dask frame, column or bag), found a Dask {type(collection).__name__}")
    return False


def map_frames(
    collection: Collection, function: Callable[..., pd.DataFrame], arguments: Sequence[object], meta: pd.DataFrame
) -> Collection:
    """Return the frames that a function makes of partitions lazily, with the columns of `meta`.

    A frame or column keeps its index. The items of a bag are numbered as ingested ones are: ``part-0000003/17``.
    """
    import dask.dataframe as dd
    import pandas as pd

    arguments = (function, tuple(arguments))
    if is_frame(collection):
        index = pd.Index([], dtype=collection.index.dtype, name=collection.index.name)
        meta = meta.set_axis(index, axis=0)
        return collection.map_partitions(_with_index, *arguments, meta, meta=meta)
    meta = meta.set_axis(pd.Index([], dtype=str, name="id"), axis=0)
    call = dask.delayed(_with_numbers)
    parts = [call(part, number, *arguments, meta) for number, part in enumerate(collection.to_delayed())]
    return dd.from_delayed(parts, meta=meta)


def _with_index(
    part: Collection, function: Callable[..., pd.DataFrame], arguments: tuple[object, ...], meta: pd.DataFrame
) -> pd.DataFrame:
    # Filters leave partitions without rows.
    return function(part, *arguments).set_axis(part.index, axis=0) if len(part) else meta


def _with_numbers(
    part: Collection,
    number: int,
    function: Callable[..., pd.DataFrame],
    arguments: tuple[object, ...],
    meta: pd.DataFrame,
) -> pd.DataFrame:
    items = list(part)
    if not items:
        return meta
    frame = function(items, *arguments)
    ids = [f"part-{number:07d}/{row}" for row in range(1, len(items) + 1)]
    return frame.set_axis(ids, axis=0).rename_axis(meta.index.name)


def map_arrays(
    bag: Collection, function: Callable[..., npt.NDArray[np.float64]], arguments: Sequence[object], columns: int
) -> Collection:
    """Return a function of each partition of a bag lazily, as an array with a row for each item."""
    call = dask.delayed(function)
    rows = [
        da.from_delayed(call(part, *arguments), shape=(np.nan, columns), dtype=np.float64) for part in bag.to_delayed()
    ]
    return da.concatenate(rows, allow_unknown_chunksizes=True)


def as_rows(collection: Collection, known: Sequence[str] | None = None) -> tuple[Collection, list[object] | None]:
    """Return a frame of numbers, or a bag of rows or records, as an array in blocks of rows, and its columns' names.

    An array is unchanged. Columns of arrays and of bags of rows have no names. A frame has to have the `known` columns
    in their order; records may have their fields in any.
    """
    if hasattr(collection, "chunks"):
        return collection, None
    if not hasattr(collection, "to_dask_array"):
        first: Collection = next(iter(collection.take(1, npartitions=-1, warn=False)), None)
        if not isinstance(first, Mapping):
            width = np.ravel(first).size if not scipy.sparse.issparse(first) else first.shape[-1]
            return map_arrays(collection, _stacked, (width,), width), None
        same = known is not None and {*known} == {*first}
        fields = list(known) if known is not None and same else list(first)
        if known is not None and (wrong := _other_columns(fields, known)) is not None:
            raise InputError("X", f"expected the {len(known)} columns of the fit, found {wrong}")
        return map_arrays(collection, _stacked_records, (fields,), len(fields)), fields
    if collection.ndim == 1:
        # A column of numbers is refused later, by its shape.
        return collection.to_dask_array(), None
    columns = list(collection.columns)
    if known is not None and (wrong := _other_columns(columns, known)) is not None:
        raise InputError("X", f"expected the {len(known)} columns of the fit, found {wrong}")
    return _checked(collection).to_dask_array(), columns


def _checked(frame: Collection) -> Collection:
    """Return a frame that refuses partitions with other columns, whose counts would be taken for other words'."""
    return frame.map_partitions(_with_columns, list(frame.columns), enforce_metadata=False)


def _with_columns(part: pd.DataFrame, columns: list[object], partition_info: Any = None) -> pd.DataFrame:
    wrong = _other_columns(list(part.columns), columns)
    if wrong is not None:
        number = "a partition" if partition_info is None else f"partition {partition_info['number']}"
        raise InputError("X", f"expected {len(columns)} columns, found {wrong}", number)
    return part


def _other_columns(columns: Sequence[object], expected: Sequence[object]) -> str | None:
    """Return the first column that is not the expected one, or else the number of columns; None if all are the same."""
    if list(columns) == list(expected):
        return None
    pairs = zip(columns, expected, strict=False)
    return next((f"{column!r} for {name!r}" for column, name in pairs if column != name), str(len(columns)))


def _stacked(items: Iterable[Collection], width: int) -> Collection:
    """Return rows, dense or sparse, as a matrix."""
    rows = list(items)
    if rows and scipy.sparse.issparse(rows[0]):
        return scipy.sparse.vstack(rows).tocsr()
    return np.vstack(rows) if rows else np.zeros((0, width))


def _stacked_records(items: Iterable[Mapping[object, object]], fields: list[object]) -> AnyArray:
    """Return the values of records as a matrix; refuse records with other fields than the first of the bag."""
    rows, expected = list(items), {*fields}
    for number, row in enumerate(rows):
        if row.keys() != expected:
            further = next((field for field in row if field not in expected), None)
            lacking = next((field for field in fields if field not in row), None)
            difference = f"one without {lacking!r}" if further is None else f"one with {further!r}"
            fault = f"expected records with the {len(fields)} fields of the first, found {difference}"
            raise InputError("X", fault, f"row {number} of its partition")
    return np.array([[row[field] for field in fields] for row in rows]).reshape(len(rows), len(fields))


def map_blocks(
    collection: Collection,
    rows: Collection,
    function: Callable[..., npt.NDArray[np.float64]],
    argument: object,
    names: Sequence[str],
) -> Collection:
    """Return a function of each block of a collection's rows, and an argument that all share, lazily.

    A frame gives a frame with the same index and the columns `names`; arrays and bags give an array.
    """
    if hasattr(collection, "columns"):
        import pandas as pd

        meta = pd.DataFrame(np.zeros((0, len(names))), columns=list(names))
        return map_frames(_checked(collection), _framed, (function, argument, meta.columns), meta)
    call, shared = dask.delayed(function), dask.delayed(argument)
    return da.concatenate(
        [
            da.from_delayed(call(block, shared), shape=(length, len(names)), dtype=np.float64)
            for block, length in zip(row_blocks(rows), rows.chunks[0], strict=True)
        ],
        allow_unknown_chunksizes=True,
    )


def _framed(
    part: pd.DataFrame, function: Callable[..., npt.NDArray[np.float64]], argument: object, columns: pd.Index
) -> pd.DataFrame:
    return type(part)(function(part, argument), columns=columns)
