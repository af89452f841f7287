"""Help pages: plain text in columns, wrapped to the width of the terminal."""

from __future__ import annotations

import shutil
import textwrap
from dataclasses import dataclass

from cyclopts.help import HelpEntry, HelpPanel


@dataclass(frozen=True)
class Layout:
    """Widths of a help page, in characters."""

    widest: int = 110  # Width of a page in a wide terminal; longer lines are hard to read
    narrowest: int = 40  # Width of a page in a terminal that is narrower still
    names: int = 30  # Width of the column of names


LAYOUT = Layout()


class Help:
    """Prints the parts of a help page as the command-line library hands them over."""

    def __init__(self, description: str) -> None:
        self._description = description.strip()
        self._width = max(min(LAYOUT.widest, shutil.get_terminal_size((LAYOUT.widest, 24)).columns), LAYOUT.narrowest)

    def __call__(self, console: object, options: object, panel: HelpPanel) -> None:  # noqa: ARG002
        """Print a group of arguments, options or commands."""
        if not panel.entries:
            return
        lines = [f"{panel.title}:"]
        for entry in panel.entries:
            lines += self._entry(entry)
        print("\n".join(lines), end="\n\n")

    def render_usage(self, console: object, options: object, usage: object) -> None:  # noqa: ARG002
        """Print the usage line."""
        words = str(usage).strip().removeprefix("Usage:").strip()
        print(textwrap.fill(f"usage: {words}", self._width, subsequent_indent="       "), end="\n\n")

    def render_description(self, console: object, options: object, description: object) -> None:  # noqa: ARG002
        """Print the purpose of the command."""
        if self._description:
            paragraphs = self._description.split("\n\n")
            print("\n\n".join(self._wrapped(paragraph) for paragraph in paragraphs), end="\n\n")

    def _wrapped(self, paragraph: str) -> str:
        if any(line.startswith(" ") for line in paragraph.splitlines()):
            return paragraph
        return textwrap.fill(paragraph, self._width, break_on_hyphens=False)

    def _entry(self, entry: HelpEntry) -> list[str]:
        """Return the lines of an argument, an option or a command: its names and its description."""
        names = ", ".join(entry.all_options)
        if entry.positional_label:
            names = entry.metavar or entry.positional_label
        elif entry.metavar:
            names = f"{names} {entry.metavar}"
        column = min(LAYOUT.names, self._width // 3)
        space = " " * (column + 2)
        text = textwrap.wrap(_plain(entry.description), self._width - len(space), break_on_hyphens=False)
        if len(names) + 4 > len(space):
            return [f"  {names}", *(f"{space}{line}" for line in text)]
        return [f"  {names:{column}}{text[0] if text else ''}".rstrip(), *(f"{space}{line}" for line in text[1:])]


def _plain(description: object) -> str:
    """Return the text of a description, which cyclopts wraps into an object."""
    text = getattr(description, "plain", None)
    if text is None:
        primary = getattr(description, "primary_renderable", description)
        text = getattr(primary, "plain", primary)
    return "" if text is None else str(text)
