"""Shared memory between the workers of a local cluster, through which large arrays pass instead of through TLS.

In each iteration the workers of one machine exchange rows and deltas of tens of megabytes. Of 30 MB, encryption and
sockets take about 130 ms, a copy into memory that the receiver maps takes 17 ms.

The frames of a large message are written to an anonymous file (memfd_create(2)). The connection carries its place:
process, descriptor and a random name. The receiver opens it under /proc, which the system permits to no other user, and
maps it. No folder has a name of it. The system frees the memory once neither process has it open, also after SIGKILL.
Workers agree on this as they connect: each must be able to open a file of the other. Otherwise all goes through TLS.
"""

from __future__ import annotations

import asyncio
import functools
import mmap
import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, cast

from distributed.comm.core import CommClosedError
from distributed.comm.tcp import TLS, TLSConnector, TLSListener
from distributed.comm.utils import from_frames, to_frames
from distributed.sizeof import safe_sizeof
from distributed.utils import ensure_memoryview, offload

KEY = "collapsium-shared-memory"
"""Key of messages that are places of shared memory, and of the handshake's entry."""


@dataclass(frozen=True)
class SharingRule:
    """Messages that pass through shared memory."""

    min_bytes: int = 1 << 20
    """Least size: below it, the connection is as fast."""

    alignment: int = 64
    """Bytes of which a frame's place is a multiple, as compiled kernels load fastest within a cache line."""

    poll: float = 0.005
    """Seconds between two looks of the sender for whether the receiver has mapped the memory."""

    bytes_at_once: int = 1 << 30
    """Bytes of a call of the system: it takes less than 2 GiB."""


RULE = SharingRule()


class Place(NamedTuple):
    """Place of an anonymous file: process id, descriptor in that process, name, and sizes of its frames in bytes."""

    process: int
    descriptor: int
    name: str
    sizes: tuple[int, ...] = ()

    @property
    def starts(self) -> list[int]:
        """First byte of each frame, and the file's size; byte 0 is set once the receiver has mapped the file."""
        rounded = (-(-size // RULE.alignment) * RULE.alignment for size in self.sizes)
        return list(accumulate(rounded, initial=RULE.alignment))


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
    """Return whether a place that another process has offered can be opened here."""
    try:
        os.close(open_file(Place(*cast(Sequence[Any], place))))
    except (TypeError, OSError):
        return False
    return True


def write_frames(frames: Sequence[memoryview]) -> Place:
    """Write frames to a new file; raises `OSError` where memory is short."""
    place = create_file([frame.nbytes for frame in frames])
    try:
        os.ftruncate(place.descriptor, place.starts[-1])
        for frame, start in zip(frames, place.starts, strict=False):
            written = 0
            while written < frame.nbytes:
                part = frame[written : written + RULE.bytes_at_once]
                written += os.pwrite(place.descriptor, part, start + written)
    except BaseException:
        os.close(place.descriptor)
        raise
    return place


def map_frames(place: Place) -> list[memoryview]:
    """Return the frames of a file as writable memory, which is freed with the last array that refers to it."""
    descriptor, starts = open_file(place), place.starts
    try:
        # All pages at once: one by one they take longer than the copy.
        mapped = mmap.mmap(descriptor, starts[-1], flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    finally:
        os.close(descriptor)
    mapped[0] = 1
    view = memoryview(mapped)
    return [view[start : start + size] for start, size in zip(starts, place.sizes, strict=False)]


class SharedMemoryTLS(TLS):  # type: ignore[misc]
    """A connection over TLS. Large messages pass through shared memory, where each end reaches that of the other."""

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
        shared = self.handshake_options.get(KEY) and safe_sizeof(msg, default_size=0) >= RULE.min_bytes
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
        self._close_when_mapped(place.descriptor)
        await super().write({KEY: place})
        return sum(place.sizes)

    def _close_when_mapped(self, descriptor: int) -> None:
        """Close a file once the receiver has mapped it or is gone."""
        if self.closed() or os.pread(descriptor, 1, 0) != b"\0":
            os.close(descriptor)
        else:
            asyncio.get_running_loop().call_later(RULE.poll, self._close_when_mapped, descriptor)

    async def read(self, deserializers: Any = None) -> Any:
        """Return the next message."""
        msg = await super().read(deserializers=deserializers)
        if not isinstance(msg, dict) or KEY not in msg or len(msg) > 1:
            return msg
        try:
            frames = await offload(map_frames, Place(*msg[KEY]))
        except OSError as error:
            self.abort()
            raise CommClosedError(str(error)) from error
        return await from_frames(
            frames, deserialize=self.deserialize, deserializers=deserializers, allow_offload=self.allow_offload
        )


def share_memory() -> None:
    """Have this process share memory with those on this machine that it connects to later, and that do so too."""
    TLSListener.comm_class = TLSConnector.comm_class = SharedMemoryTLS
