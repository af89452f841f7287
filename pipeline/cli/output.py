"""Output of commands: JSON, errors, and reports of ingesting."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

from cyclopts.help import HelpPanel

from collapsium.pipeline.cli.command import in_flags
from collapsium.pipeline.formatting import counted, plain
from collapsium.pipeline.monitoring.console import LogLines
from collapsium.storage.printable import json_text

if TYPE_CHECKING:
    from collapsium.storage.building.ingest_record import Report


# Widths of a help page, in characters
MAX_WIDTH = 110  # In a wide terminal; longer lines are hard to read
MIN_WIDTH = 40  # In a terminal that is narrower still
NAMES_WIDTH = 30  # Of the column of names


class Help:
    """Prints the parts of a help page as the command-line library hands them over."""

    def __init__(self, description: str) -> None:
        self._description = description.strip()
        self._width = max(min(MAX_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 24)).columns), MIN_WIDTH)

    def __call__(self, console: object, options: object, panel: HelpPanel) -> None:  # noqa: ARG002
        """Print a group of arguments, options or commands."""
        if not panel.entries:
            return
        lines = [f"{panel.title}:"]
        column = min(NAMES_WIDTH, self._width // 3)
        space = " " * (column + 2)
        for entry in panel.entries:
            names = ", ".join(entry.all_options)
            if entry.positional_label:
                names = entry.metavar or entry.positional_label
            elif entry.metavar:
                names = f"{names} {entry.metavar}"
            # Cyclopts wraps the text into an object.
            text = getattr(entry.description, "plain", None)
            if text is None:
                primary = getattr(entry.description, "primary_renderable", entry.description)
                text = getattr(primary, "plain", primary)
            wrapped = textwrap.wrap(str(text or ""), self._width - len(space), break_on_hyphens=False)
            if len(names) + 4 > len(space):
                lines.append(f"  {names}")
            else:
                lines.append(f"  {names:{column}}{wrapped.pop(0) if wrapped else ''}".rstrip())
            lines += [f"{space}{line}" for line in wrapped]
        print("\n".join(lines), end="\n\n")

    def render_usage(self, console: object, options: object, usage: object) -> None:  # noqa: ARG002
        """Print the usage line."""
        words = str(usage).strip().removeprefix("Usage:").strip()
        print(textwrap.fill(f"usage: {words}", self._width, subsequent_indent="       "), end="\n\n")

    def render_description(self, console: object, options: object, description: object) -> None:  # noqa: ARG002
        """Print the purpose of the command."""
        for paragraph in self._description.split("\n\n"):
            # Indented lines are a table or an example.
            if not any(line.startswith(" ") for line in paragraph.splitlines()):
                paragraph = textwrap.fill(paragraph, self._width, break_on_hyphens=False)
            print(paragraph, end="\n\n" if self._description else "")


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
