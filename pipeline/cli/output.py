"""Output of commands: JSON, errors, and the report of an ingest."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from collapsium.pipeline.formatting import counted, plain
from collapsium.pipeline.monitoring.console import LogLines
from collapsium.storage.printable import json_text

if TYPE_CHECKING:
    from collapsium.storage.building.ingest_record import Report


def print_error(text: str, form: str | None = None) -> None:
    """Write in a line why a command failed; `form` is as for `collapsium.pipeline.monitoring.console.LogLines`."""
    if form is None:
        print(f"collapsium: error: {plain(text)}", file=sys.stderr)
    else:
        LogLines(form=form).write(text, "error")


def print_json(value: Any) -> None:
    """Print JSON with floats in their shortest exact form."""
    print(json_text(value, indent=2))


def say_report(report: Report, one: str = "document") -> None:
    """Print what ingesting left out, and why; nothing where nothing was. `one` is what the corpus holds one of."""
    known = "its id is" if report.skipped_documents == 1 else "their ids are"
    found = [
        (report.skipped_documents, f"left out, as {known} there already"),
        (report.missing_text, "without a text, kept"),
        (report.replaced_bytes, "with bytes that are not UTF-8, which were replaced"),
        (report.empty_documents, "without a word that is kept, kept"),
    ]
    for number, what in found:
        if number:
            print(f"  {counted(number, one)} {what}")
    if report.unmatched_rows:
        print(f"  {counted(report.unmatched_rows, 'id')} of side files that no document has")
    if report.phrases:
        print(f"  {counted(report.phrases, 'phrase')} of two words")
    if report.segments:
        print(f"  {counted(report.segments, 'segment')}, {report.segments / max(report.documents, 1):.1f} a document")
    for rule in report.dropped:
        print(f"  dropped: {counted(rule.words, 'word')} with {counted(rule.tokens, 'token')} ({rule.rule})")
