"""Output of commands: JSON, errors, and reports of ingesting."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from collapsium.pipeline.cli.command import in_flags
from collapsium.pipeline.formatting import counted, plain
from collapsium.pipeline.monitoring.console import LogLines
from collapsium.storage.printable import json_text

if TYPE_CHECKING:
    from collapsium.storage.building.ingest_record import Report


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
        from collapsium.pipeline.corpora import text_sources

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
