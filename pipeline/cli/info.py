"""The commands `collapsium info` and `collapsium verify`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import JsonOptions, argument, print_json
from collapsium.pipeline.formatting import counted, plain
from collapsium.pipeline.monitoring.console import counting
from collapsium.storage.data_types import JsonObject

_FIELD_TEXTS: dict[str, Callable[[JsonObject], str]] = {
    "labels": lambda counts: (
        f"{counted(counts['values'], 'value')}, {counted(counts['labels'], 'label')} in "
        f"{counted(counts['documents'], 'document')}"
    ),
    "covariates": lambda counts: (
        f"in {counted(counts['documents'], 'document')}"
        + (f", from {counts['least']:g} to {counts['most']:g}, mean {counts['mean']:g}" if counts["documents"] else "")
    ),
}


def info(
    path: Annotated[str, argument("PATH", "a folder")],
    /,
    *,
    output: JsonOptions,
) -> None:
    """Print the kind of a folder (corpus, run, comparison or model) and its contents."""
    record = pipeline.info(path)
    if output.as_json:
        print_json(record)
        return
    for name, value in record.items():
        if record["kind"] == "corpus" and name in _FIELD_TEXTS:
            for field, counts in value.items():
                print(f"{name:11} {plain(field)}: {_FIELD_TEXTS[name](counts)}")
            continue
        if record["kind"] == "corpus" and name == "segments":
            print(
                f"{name:11} {value['count']:,}, {value['mean']:.1f} a document, {value['most']:,} at most; "
                f"{value['empty']:,} empty"
            )
            continue
        number = type(value) is int and name != "seed"
        shown = f"{value:,}" if number else value if isinstance(value, str) else json.dumps(value)
        print(f"{name:11} {shown}")


def verify(
    path: Annotated[str, argument("PATH", "a folder")],
    /,
    *,
    output: JsonOptions,
) -> int:
    """Check a corpus, run, comparison, checkpoint or model for damage.

    The command compares all files with their digests, and checks that a corpus's counts
    add up, that expected counts are conserved and that probabilities sum to one. It
    prints each damaged file, and then exits with 1.
    """
    with counting("verifying", "parts") as progress:
        findings = pipeline.verify(path, progress=progress)
    if output.as_json:
        print_json(asdict(findings))
        return bool(findings.broken)
    for text in findings.notes:
        print(f"note: {text}")
    for text in findings.broken:
        print(f"broken: {text}", file=sys.stderr)
    if findings.broken:
        print(f"{path}: {counted(len(findings.broken), 'fault')} in a {findings.kind}", file=sys.stderr)
        return 1
    print(f"{path}: a {findings.kind}, no faults ({counted(findings.parts, 'part')} checked)")
    return 0
