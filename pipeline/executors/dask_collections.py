"""Collections of Dask (frames, columns, bags and arrays): functions of their partitions, on their workers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import dask
import dask.array as da
import distributed
import numpy as np
import numpy.typing as npt

from collapsium.pipeline.executors.schedulers import LOCAL_SCHEDULERS, ClientOrCluster, Scheduler
from collapsium.storage.errors import OptionError

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
Collection: TypeAlias = Any  # A collection of Dask, or a part of it


def compute_partitions(
    collection: Collection, function: Callable[..., T], arguments: Sequence[object], scheduler: Scheduler
) -> list[T]:
    """Return the results of a function of each partition, its number and arguments, computed where partitions are."""
    call = dask.delayed(function, pure=False)
    parts = np.ravel(np.array(collection.to_delayed(), dtype=object)).tolist()
    with _client_of(scheduler) as client:
        results: tuple[T, ...] = dask.compute(
            *(call(part, number, *arguments) for number, part in enumerate(parts)), scheduler=client
        )
    return list(results)


@contextlib.contextmanager
def _client_of(scheduler: Scheduler) -> Iterator[distributed.Client | None]:
    """Yield a client of a scheduler; None for Dask's own choice, which is its active client or threads."""
    if not isinstance(scheduler, ClientOrCluster) and scheduler in LOCAL_SCHEDULERS:
        yield None
    elif isinstance(scheduler, ClientOrCluster) and isinstance(scheduler.source, distributed.Client):
        _ = scheduler.address  # Raises an error if the client is closed
        yield scheduler.source
    else:
        address = scheduler.address if isinstance(scheduler, ClientOrCluster) else scheduler
        where = {"address": address} if "://" in address else {"scheduler_file": address}
        security = scheduler.security if isinstance(scheduler, ClientOrCluster) else None
        with distributed.Client(**where, set_as_default=False, security=security) as client:
            yield client


def map_rows(
    collection: Collection, function: Callable[..., npt.NDArray[np.float64]], arguments: Sequence[object], columns: int
) -> Collection:
    """Return a function of the rows of each partition lazily.

    A frame or column becomes a frame with the same index and the columns 0, 1 and so on; a bag becomes an array.
    """
    if hasattr(collection, "map_partitions") and hasattr(collection, "divisions"):
        import pandas as pd

        index = pd.Index([], dtype=collection.index.dtype, name=collection.index.name)
        meta = pd.DataFrame(np.zeros((0, columns)), index=index, columns=pd.RangeIndex(columns, name="topic"))
        return collection.map_partitions(_as_frame, function, tuple(arguments), meta, meta=meta)
    if hasattr(collection, "dtype"):
        raise OptionError(f"expected texts (a Dask frame, column or bag), found a Dask {type(collection).__name__}")
    call = dask.delayed(function)
    rows = [
        da.from_delayed(call(part, *arguments), shape=(np.nan, columns), dtype=np.float64)
        for part in collection.to_delayed()
    ]
    return da.concatenate(rows, allow_unknown_chunksizes=True)


def _as_frame(
    part: Collection,
    function: Callable[..., npt.NDArray[np.float64]],
    arguments: tuple[object, ...],
    meta: pd.DataFrame,
) -> pd.DataFrame:
    return type(meta)(function(part, *arguments), index=part.index, columns=meta.columns)


def map_blocks(
    array: Collection, function: Callable[..., npt.NDArray[np.float64]], argument: object, columns: int
) -> Collection:
    """Return a function of each block of rows, and an argument that all share, lazily as an array."""
    call, shared = dask.delayed(function), dask.delayed(argument)
    blocks, sizes = array.rechunk({1: -1}).to_delayed().ravel(), array.chunks[0]
    return da.concatenate(
        [
            da.from_delayed(call(block, shared), shape=(size, columns), dtype=np.float64)
            for block, size in zip(blocks, sizes, strict=True)
        ],
        allow_unknown_chunksizes=True,
    )
