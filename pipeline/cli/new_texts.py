"""Options of commands that take texts where a corpus is expected, and lines on what came of reading them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collapsium.pipeline.corpora.unknown_words import UnknownWords

TEXTS = (
    "a corpus with the model's vocabulary; or texts, files, folders or globs of any format of `collapsium ingest`, "
    "read as the model's own documents were"
)


def print_notice(line: str) -> None:
    """Print a line for the user on standard error."""
    print(f"collapsium: {line}", file=sys.stderr)


def print_unknown(unknown: UnknownWords | None) -> None:
    """Print how many tokens of texts are unknown; nothing of a corpus."""
    if unknown is not None:
        print(f"  {unknown.text()}")


def with_unknown(found: dict[str, Any], unknown: UnknownWords | None) -> dict[str, Any]:
    """Return what JSON says, with how many tokens of texts are unknown."""
    return {name: value for name, value in found.items() if name != "unknown"} | (unknown.record() if unknown else {})
