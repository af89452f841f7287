"""Standard streams of commands: there even if they were closed, and without control characters from names and words."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, cast

from collapsium.storage.errors import StoreError
from collapsium.storage.printable import printable

# The standard streams in the order of their descriptors, with the modes in which they are opened
STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


class LossyStream:
    """A stream that discards text which cannot be written, as on a full disk or after its reader has ended.

    Standard error is one: the work of a command does not depend on its messages.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text, or lose it."""
        with suppress(OSError):
            return self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write the buffered text, or discard it."""
        with suppress(OSError):
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class GuardedStream:
    """A stream that replaces control characters in text; an error in writing has one line."""

    def __init__(self, stream: IO[str]) -> None:
        self.raw = stream

    def write(self, text: str) -> int:
        """Write a text; characters that the stream's encoding lacks are escaped."""
        safe = printable(text)
        try:
            _written(self.raw.write, safe)
        except UnicodeEncodeError:
            encoding = getattr(self.raw, "encoding", None) or "ascii"
            _written(self.raw.write, safe.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        """Write the buffered text."""
        _written(self.raw.flush)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def _written(write: Callable[..., object], *text: str) -> None:
    """Call a method of standard output; a closed pipe raises a separate error, which ends the command in silence."""
    try:
        write(*text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreError(f"standard output: {error.strerror or error}") from error


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Guard standard output and error while a command runs."""
    # The null device takes the place of streams that were closed, as by ``<&-`` or a service manager: the next files
    # that are opened would get their descriptors, and what is printed there.
    for number, (name, mode) in enumerate(STREAMS):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
            descriptor = os.open(os.devnull, os.O_RDWR)
        except OSError:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            descriptor = number
            os.set_inheritable(number, True)
        setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    before = sys.stdout, sys.stderr
    errors: Any = before[1] if isinstance(before[1], GuardedStream) else LossyStream(before[1])
    sys.stdout, sys.stderr = cast(Any, guarded(before[0])), cast(Any, guarded(errors))
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
