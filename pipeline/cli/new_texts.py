"""Output of commands that accept texts in place of a corpus."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from collapsium.pipeline.cli.command import in_flags

if TYPE_CHECKING:
    from collapsium.pipeline.corpora.unknown_words import UnknownWords

TEXTS = (
    "a corpus with the model's vocabulary; or texts (files, folders or globs of any format of `collapsium ingest`), "
    "which are read as the model's documents were"
)


def print_notice(line: str) -> None:
    """Print a line to standard error."""
    print(f"collapsium: {in_flags(line)}", file=sys.stderr)


def print_unknown(unknown: UnknownWords | None) -> None:
    """Print how many tokens of texts the vocabulary lacks; nothing for a corpus."""
    if unknown is not None:
        print(f"  {unknown.text()}")


def with_unknown(record: Mapping[str, object], unknown: UnknownWords | None) -> dict[str, object]:
    """Return a record for JSON with the number of tokens of texts that the vocabulary lacks."""
    rest = {name: value for name, value in record.items() if name != "unknown"}
    return rest if unknown is None else {**rest, **unknown.record()}
