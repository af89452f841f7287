"""Output of commands: JSON, errors, and reports of ingesting."""

from __future__ import annotations

import shutil
import sys
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cyclopts.help import HelpEntry, HelpPanel

from collapsium.pipeline.cli.command import in_flags
from collapsium.pipeline.formatting import counted, plain
from collapsium.pipeline.monitoring.console import LogLines
from collapsium.storage.printable import json_text

if TYPE_CHECKING:
    from collapsium.storage.building.ingest_record import Report


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


def print_error(text: str, form: str | None = None) -> None:
    """Print an error in one line; `form` is as for `collapsium.pipeline.monitoring.console.LogLines`."""
    if form is None:
        print(f"collapsium: error: {plain(text)}", file=sys.stderr)
    else:
        LogLines(form=form).write(text, "error")


def print_json(value: object) -> None:
    """Print JSON with floats in their shortest exact form."""
    print(json_text(value, indent=2))


def print_report(report: Report, unit: str = "document") -> None:
    """Print the numbers of an ingest that are not zero: documents left out, words dropped, and so on."""
    known = "its id is" if report.skipped_documents == 1 else "their ids are"
    remarks = [
        (report.skipped_documents, f"left out, as {known} in the corpus already"),
        (report.missing_text, "without a text, stored empty"),
        (report.replaced_bytes, "with bytes that are not UTF-8, which were replaced"),
        (report.empty_documents, "without any word of the vocabulary, stored empty"),
    ]
    for number, remark in remarks:
        if number:
            print(f"  {counted(number, unit)} {remark}")
    if report.unmatched_rows:
        print(f"  {counted(report.unmatched_rows, 'id')} in side files without a document")
    if report.unspaced_tokens:
        from collapsium.pipeline.corpora import text_ingest as text_sources

        print(f"  {text_sources.unspaced_notice(report, '--tokenizer MODULE:FUNCTION')}")
    if report.attachments:
        print(f"  {counted(report.attachments, 'encoded attachment')} left out")
    if report.phrases:
        print(f"  {counted(report.phrases, 'phrase')} of two words")
    if report.segments:
        print(f"  {counted(report.segments, 'segment')}, {report.segments / max(report.documents, 1):.1f} a document")
    for line in report.remarks:
        print(f"  {in_flags(line)}")
    for rule in report.dropped:
        print(f"  dropped: {counted(rule.words, 'word')} with {counted(rule.tokens, 'token')} ({rule.rule})")
