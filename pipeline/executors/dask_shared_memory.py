"""Shared memory between the workers of a local cluster, through which large arrays pass instead of through TLS.

In each iteration the workers of one machine exchange rows and deltas of tens of megabytes. For 30 MB, encryption and
sockets take about 130 ms, and a copy into memory that the receiver reads takes 6 ms.

The frames of a large message are written to an anonymous file (memfd_create(2)). The connection carries its place:
process, descriptor and a random name. The receiver opens it under /proc, which the system permits to no other user, and
reads it into its memory (`workers.arrays.buffer_pool`). No folder has a name of it. The system frees the memory once no
process has it open, also after SIGKILL. A file that was read waits for the next message, because fresh memory takes
longer than the copy. Workers agree on this as they connect: each must be able to open a file of the other. Otherwise
all goes through TLS.

Set up each worker of a local cluster; Dask preloads this module.

Workers ignore SIGINT and SIGTERM, which a terminal or a batch system sends to all processes. The driver handles them:
it needs the workers to save a checkpoint, and then stops them itself.

Workers send messages with little delay. By default Dask batches them for some milliseconds, which costs a chain of
short tasks 6.7 ms a task (measured).

Workers share memory with one another (`dask_shared_memory`).
"""

from __future__ import annotations

import asyncio
import functools
import os
import secrets
import signal
import sys
import threading
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from distributed.comm.core import CommClosedError
from distributed.comm.registry import backends
from distributed.comm.tcp import TLS, TLSBackend, TLSConnector
from distributed.comm.utils import from_frames, to_frames
from distributed.sizeof import safe_sizeof
from distributed.utils import ensure_memoryview, offload

from collapsium.workers.arrays import buffer_pool as buffers

if TYPE_CHECKING:
    import distributed


KEY = "collapsium-shared-memory"  # Key of messages that are places of shared memory, and of the handshake's entry
UNREAD, READ = b"\0", b"\1"  # First byte of a file, which the receiver sets


MIN_SHARED_BYTES = 1 << 20  # Least size: below it, the connection is as fast
# Bytes of which a frame's place is a multiple, as compiled kernels load fastest within a cache line
ALIGNMENT = 64
POLL_SECONDS = 0.005  # Seconds between the sender's checks whether the receiver has read the memory
# The larger of a message and the file that it takes is at most this many times as large as the other
MAX_FILE_RATIO = 2.0
# Files of a process that wait to be written again: rows for sweeps and rows for scores travel together
MAX_WAITING_FILES = 2
MAX_BYTES_AT_ONCE = 1 << 30  # Bytes of a call of the system: it takes less than 2 GiB


class Place(NamedTuple):
    """Place of an anonymous file: process id, descriptor in that process, name, and sizes of its frames in bytes."""

    process: int
    descriptor: int
    name: str
    sizes: tuple[int, ...] = ()

    @property
    def starts(self) -> list[int]:
        """First byte of each frame, and the file's size; byte 0 is set once the receiver has read the file."""
        rounded = (-(-size // ALIGNMENT) * ALIGNMENT for size in self.sizes)
        return list(accumulate(rounded, initial=ALIGNMENT))


def create_file(sizes: Sequence[int] = ()) -> Place:
    """Create an anonymous file in memory, for frames of some sizes in bytes."""
    name = f"collapsium-{secrets.token_hex(16)}"
    return Place(os.getpid(), os.memfd_create(name), name, tuple(sizes))


def open_file(place: Place) -> int:
    """Return a descriptor of a file of this process or another; raises `OSError` where it is closed or out of reach."""
    descriptor = os.open(f"/proc/{place.process}/fd/{place.descriptor}", os.O_RDWR | os.O_NONBLOCK)
    # Another file may have got the number since.
    if Path(f"/proc/self/fd/{descriptor}").readlink() != Path(f"/memfd:{place.name} (deleted)"):
        os.close(descriptor)
        raise FileNotFoundError(f"process {place.process} has closed the shared memory {place.name}")
    return descriptor


@functools.cache
def offer() -> Place | None:
    """Return the place of a file by which others learn whether they reach ours; None where the system has none."""
    try:
        place = create_file()
        os.close(open_file(place))
    except (AttributeError, OSError):
        return None
    return place


def is_reachable(place: object) -> bool:
    """Return whether this process can open a place that another process has offered."""
    try:
        os.close(open_file(Place(*cast(Sequence[Any], place))))
    except (TypeError, OSError):
        return False
    return True


class _Files:
    """Files of this process that were read and wait to be written again."""

    def __init__(self) -> None:
        self._waiting: list[Place] = []
        # Messages are written in threads beside the event loop.
        self._lock = threading.Lock()

    def take(self, sizes: Sequence[int]) -> Place:
        """Return a file for frames of some sizes in bytes: one that waits and is about as large, or a new one."""
        needed = Place(0, 0, "", tuple(sizes)).starts[-1]
        with self._lock:
            for number, place in enumerate(self._waiting):
                size = place.starts[-1]
                if max(size, needed) <= MAX_FILE_RATIO * min(size, needed):
                    return self._waiting.pop(number)._replace(sizes=tuple(sizes))
        return create_file(sizes)

    def give(self, place: Place) -> None:
        """Keep a file for reuse, and close the oldest files if there are too many or memory is short."""
        with self._lock:
            self._waiting.append(place)
            while len(self._waiting) > (0 if buffers.pool.lean else MAX_WAITING_FILES):
                os.close(self._waiting.pop(0).descriptor)


_files = _Files()


def write_frames(frames: Sequence[memoryview]) -> Place:
    """Write frames to a file; raises `OSError` where memory is short."""
    place = _files.take([frame.nbytes for frame in frames])
    try:
        os.ftruncate(place.descriptor, place.starts[-1])
        os.pwrite(place.descriptor, UNREAD, 0)
        for frame, start in zip(frames, place.starts, strict=False):
            written = 0
            while written < frame.nbytes:
                part = frame[written : written + MAX_BYTES_AT_ONCE]
                written += os.pwrite(place.descriptor, part, start + written)
    except BaseException:
        os.close(place.descriptor)
        raise
    return place


def read_frames(place: Place) -> list[memoryview]:
    """Return the frames of a file as writable memory of this process; its owner may then write it again."""
    descriptor, starts = open_file(place), place.starts
    try:
        # What no frame takes at the beginning of the file leaves room to align the first one.
        memory = buffers.empty(starts[-1], np.uint8)
        shift, view = -memory.ctypes.data % ALIGNMENT - ALIGNMENT, memory.data
        frames = [view[start + shift : start + shift + size] for start, size in zip(starts, place.sizes, strict=False)]
        for frame, start in zip(frames, starts, strict=False):
            read = 0
            while read < frame.nbytes:
                count = os.preadv(descriptor, [frame[read : read + MAX_BYTES_AT_ONCE]], start + read)
                if not count:
                    raise OSError(f"the shared memory {place.name} is shorter than its frames")
                read += count
        os.pwrite(descriptor, READ, 0)
    finally:
        os.close(descriptor)
    return frames


class SharedMemoryTLS(TLS):  # type: ignore[misc]
    """A connection over TLS. Large messages pass through shared memory, where each end reaches the other's."""

    def handshake_info(self) -> dict[str, Any]:
        """Return the settings that the other end receives, with the place of a file."""
        return {**super().handshake_info(), KEY: offer()}

    @staticmethod
    def handshake_configuration(local: dict[str, Any], remote: dict[str, Any]) -> dict[str, Any]:
        """Return what both ends have in common; memory is shared where the file of the other can be opened."""
        shared = local.get(KEY) is not None and is_reachable(remote.get(KEY))
        return {**TLS.handshake_configuration(local, remote), KEY: shared}

    async def write(self, msg: Any, serializers: Any = None, on_error: Any = "message") -> int:
        """Send a message, a large one through shared memory."""
        shared = self.handshake_options.get(KEY) and safe_sizeof(msg, default_size=0) >= MIN_SHARED_BYTES
        if not shared:
            return cast(int, await super().write(msg, serializers=serializers, on_error=on_error))
        context = {"sender": self.local_info, "recipient": self.remote_info, **self.handshake_options}
        frames = await to_frames(
            msg,
            allow_offload=self.allow_offload,
            serializers=serializers,
            on_error=on_error,
            context=context,
            frame_split_size=sys.maxsize,
        )
        views = [ensure_memoryview(frame) for frame in frames]
        try:
            place = await offload(write_frames, views)
        except OSError:
            return cast(int, await super().write(msg, serializers=serializers, on_error=on_error))
        self._give_when_read(place)
        await super().write({KEY: place})
        return sum(place.sizes)

    def _give_when_read(self, place: Place) -> None:
        """Let a file wait for another message once the receiver has read it; close it if the receiver is gone."""
        if os.pread(place.descriptor, 1, 0) == READ:
            _files.give(place)
        elif self.closed():
            os.close(place.descriptor)
        else:
            asyncio.get_running_loop().call_later(POLL_SECONDS, self._give_when_read, place)

    async def read(self, deserializers: Any = None) -> Any:
        """Return the next message."""
        msg = await super().read(deserializers=deserializers)
        if not isinstance(msg, dict) or KEY not in msg or len(msg) > 1:
            return msg
        try:
            frames = await offload(read_frames, Place(*msg[KEY]))
        except OSError as error:
            self.abort()
            raise CommClosedError(str(error)) from error
        return await from_frames(
            frames, deserialize=self.deserialize, deserializers=deserializers, allow_offload=self.allow_offload
        )


class SharedMemoryConnector(TLSConnector):  # type: ignore[misc]
    """Connects over TLS, with shared memory."""

    comm_class = SharedMemoryTLS


class SharedMemoryBackend(TLSBackend):  # type: ignore[misc]
    """Dask's backend of addresses that begin with ``tls://``, with shared memory."""

    def get_connector(self) -> SharedMemoryConnector:
        """Return a connector."""
        return SharedMemoryConnector()


MESSAGE_BATCH_SECONDS = 0.0005


def dask_setup(worker: distributed.Worker) -> None:
    """Ignore signals that the driver handles, send messages with little delay, and share memory."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    worker.batched_stream.interval = MESSAGE_BATCH_SECONDS
    backends["tls"] = SharedMemoryBackend()
    # The worker listens already, and is not announced to others yet.
    for listener in worker.listeners:
        listener.comm_class = SharedMemoryTLS
