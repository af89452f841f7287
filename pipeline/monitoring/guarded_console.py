"""Consoles of rich that remove control characters from what they draw."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console
from rich.segment import Segment

from collapsium.pipeline.monitoring.terminal import raw_stream
from collapsium.storage.printable import printable


class GuardedConsole(Console):
    """A console that removes control characters from the texts it draws."""

    def __init__(self, stream: IO[str], **options: Any) -> None:
        super().__init__(file=raw_stream(stream), **options)

    def on_broken_pipe(self) -> None:
        """Raise the error, where rich would end the program with exit code 1."""
        raise BrokenPipeError

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(one if one.control else Segment(printable(one.text), one.style) for one in buffer)
