"""Standard output and error of commands, without control characters from names and words."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from collapsium.storage.printable import printable


class GuardedStream:
    """A stream that replaces control characters in text.

    Parameters
    ----------
    stream : file
        Where to write.

    Attributes
    ----------
    raw : file
        The stream itself, for drawing on a terminal.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.raw = stream

    def write(self, text: str) -> int:
        """Write a text; characters that the stream's encoding lacks are escaped."""
        safe = printable(text)
        try:
            self.raw.write(safe)
        except UnicodeEncodeError:
            encoding = getattr(self.raw, "encoding", None) or "ascii"
            self.raw.write(safe.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Guard standard output and error while a command runs.

    Yields
    ------
    None
        Streams that are guarded already stay.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(Any, guarded(one)) for one in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def guarded(stream: IO[str]) -> GuardedStream:
    """Return a guarded stream; a guarded one stays."""
    return stream if isinstance(stream, GuardedStream) else GuardedStream(stream)


def raw_stream(stream: IO[str]) -> IO[str]:
    """Return a stream without its guard, for drawing on a terminal."""
    return stream.raw if isinstance(stream, GuardedStream) else stream
