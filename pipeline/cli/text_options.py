"""Options of commands that take texts where a corpus is expected, and lines on what came of reading them."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collapsium.pipeline.corpora.unknown_words import UnknownWords

TEXTS = (
    "a corpus with the model's vocabulary; or texts, files, folders or globs of any format of `collapsium ingest`, "
    "read as the model's own documents were"
)
_NAMES = ("format", "id", "text", "vocabulary", "tokenizer", "bad_bytes", "headings")


def add_texts(parser: argparse.ArgumentParser) -> None:
    """Add the options of reading texts for a model."""
    group = parser.add_argument_group(
        "texts for a model (read as its own documents were: these options say where they differ)"
    )
    group.add_argument("--format", help="as of ingest (default: told from the first name, or the model's own)")
    group.add_argument("--id", metavar="FIELD", help="field of the ids")
    group.add_argument("--text", metavar="FIELD", help="field of the texts")
    group.add_argument(
        "--vocabulary", metavar="FILE", help="of counted words: the words of their numbers, if none lie beside them"
    )
    group.add_argument(
        "--tokenizer",
        metavar="MODULE:FUNCTION",
        help="must be named again where the model's texts were cut by one: what a model names is not run by itself",
    )
    group.add_argument(
        "--headings",
        metavar="REGEX",
        help="must be named again where the model's texts were cut into segments by headings:REGEX",
    )
    group.add_argument("--bad-bytes", choices=("error", "replace"), help="text that is not UTF-8")


def reading_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of reading texts that were named.

    Parameters
    ----------
    arguments : argparse.Namespace
        Of a parser with `add_texts`.

    Returns
    -------
    dict
        By name, as of `collapsium.pipeline.corpora.new_texts.documents_for`.
    """
    return {name: getattr(arguments, name) for name in _NAMES if getattr(arguments, name) is not None}


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
