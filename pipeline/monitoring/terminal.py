"""Standard output and error of commands, through which nothing that a name holds steers a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

from collapsium.storage.printable import printable

if TYPE_CHECKING:
    from rich.console import Console


class GuardedStream:
    """A stream for text whose characters that would steer a terminal are replaced.

    Parameters
    ----------
    stream : file
        Where to write.

    Attributes
    ----------
    raw : file
        The same, for what draws on a terminal on purpose.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.raw = stream

    def write(self, text: str) -> int:
        """Write a text; letters that the stream's encoding lacks are escaped."""
        shown = printable(text)
        try:
            self.raw.write(shown)
        except UnicodeEncodeError:
            encoding = getattr(self.raw, "encoding", None) or "ascii"
            self.raw.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Put guards before standard output and error while a command runs.

    Yields
    ------
    None
        Inside another guard nothing changes.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(Any, guarded(one)) for one in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def guarded(stream: IO[str]) -> GuardedStream:
    """Return a stream behind a guard, once."""
    return stream if isinstance(stream, GuardedStream) else GuardedStream(stream)


def raw_stream(stream: IO[str]) -> IO[str]:
    """Return a stream without its guard, for what draws on a terminal on purpose."""
    return stream.raw if isinstance(stream, GuardedStream) else stream


def guarded_console(stream: IO[str], **options: Any) -> Console:
    """Return a console of rich that steers the terminal itself, while texts that it draws cannot.

    Parameters
    ----------
    stream : file
        Where to write.
    **options
        As for `rich.console.Console`.

    Returns
    -------
    Console
        The console.
    """
    from rich.console import Console
    from rich.segment import Segment

    class GuardedConsole(Console):
        def _render_buffer(self, buffer: Iterable[Segment]) -> str:
            return super()._render_buffer(
                one if one.control else Segment(printable(one.text), one.style) for one in buffer
            )

    return GuardedConsole(file=raw_stream(stream), **options)
