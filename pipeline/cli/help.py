"""Help pages: plain text in columns, as narrow as the terminal is."""

from __future__ import annotations

import shutil
import textwrap
from typing import Any

from cyclopts.help import HelpEntry, HelpPanel

WIDTH, NAMES, LEAST = 110, 30, 40  # columns of a page, of names beside their descriptions, and what is never undercut


class Help:
    """Prints the parts of a help page as the command-line library hands them over.

    Parameters
    ----------
    description : str
        What the command is for; its lines are kept.
    """

    def __init__(self, description: str) -> None:
        self._description = description.strip()
        self._width = max(min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns), LEAST)

    def __call__(self, console: Any, options: Any, panel: HelpPanel) -> None:  # noqa: ARG002
        """Print a group of arguments, options or commands."""
        if not panel.entries:
            return
        lines = [f"{panel.title}:"]
        for entry in panel.entries:
            lines += self._entry(entry)
        print("\n".join(lines), end="\n\n")

    def render_usage(self, console: Any, options: Any, usage: Any) -> None:  # noqa: ARG002
        """Print how the command is called."""
        words = str(usage).strip().removeprefix("Usage:").strip()
        print(textwrap.fill(f"usage: {words}", self._width, subsequent_indent="       "), end="\n\n")

    def render_description(self, console: Any, options: Any, description: Any) -> None:  # noqa: ARG002
        """Print what the command is for."""
        if self._description:
            print(self._description, end="\n\n")

    def _entry(self, entry: HelpEntry) -> list[str]:
        """Return the lines of one argument, option or command: its names, and beside or below them what it means."""
        names = ", ".join(entry.all_options)
        if entry.positional_label:
            names = entry.metavar or entry.positional_label
        elif entry.metavar:
            names = f"{names} {entry.metavar}"
        column = min(NAMES, self._width // 3)
        space = " " * (column + 2)
        text = textwrap.wrap(_plain(entry.description), self._width - len(space), break_on_hyphens=False)
        if len(names) + 4 > len(space):
            return [f"  {names}", *(f"{space}{line}" for line in text)]
        return [f"  {names:{column}}{text[0] if text else ''}".rstrip(), *(f"{space}{line}" for line in text[1:])]


def _plain(description: Any) -> str:
    """Return the text of a description, which the command-line library wraps into an object of its own."""
    text = getattr(description, "plain", None)
    if text is None:
        primary = getattr(description, "primary_renderable", description)
        text = getattr(primary, "plain", primary)
    return "" if text is None else str(text)
