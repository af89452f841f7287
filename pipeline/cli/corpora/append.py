"""Add documents, or vectors, to a corpus, as new shards behind those that there are.

They are read and tokenized as the corpus was. Its shards stay as they are, and so
does its vocabulary, unless it grows (--grow). The manifest is replaced last: an
addition that is cut short leaves the corpus as it was.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict

from collapsium.pipeline.cli.options import add_json, add_scheduler, add_sides, tls_of
from collapsium.pipeline.cli.output import print_json, say_report
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.console import counting
from collapsium.storage.choices import FORMATS
from collapsium.storage.units import parse_size

HELP = "add documents or vectors to a corpus"
EPILOG = """examples:
  collapsium append reviews today.jsonl
  collapsium append reviews 'new/*.parquet' --skip-existing --grow
  collapsium append digits optdigits.tes
  collapsium append nips docword.more.txt.gz --label-files author=more_authors.txt --label-names author=authors.txt"""


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("corpus", metavar="CORPUS", help="what to add to")
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="files, folders or globs, local or fsspec URLs")
    parser.add_argument(
        "--grow", action="store_true", help="give new words that the corpus's cuts keep ids behind the others"
    )
    parser.add_argument("--skip-existing", action="store_true", help="leave out documents whose ids are there already")
    parser.add_argument("--format", choices=sorted(FORMATS), help="default: told from the first name, or the corpus's")
    parser.add_argument(
        "--tokenizer",
        metavar="MODULE:FUNCTION",
        help="must be said again where the corpus was made with one: what a corpus names is not run by itself",
    )
    parser.add_argument(
        "--headings",
        metavar="REGEX",
        help="must be named again where the corpus was made with --segments headings:REGEX",
    )
    parser.add_argument("--max-decompressed", metavar="SIZE", help="what may come out of each compressed file")
    add_sides(parser)
    add_scheduler(parser, "threads")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Add, and say what came of it."""
    from collapsium.pipeline.corpora.append.additions import Addition
    from collapsium.pipeline.corpora.append.append import append_told
    from collapsium.pipeline.corpora.unknown_words import UnknownWords
    from collapsium.storage.readers.side_files.columns import Wanted

    limit = arguments.max_decompressed
    asked = Addition(
        arguments.grow,
        arguments.skip_existing,
        arguments.format,
        arguments.tokenizer,
        None if limit is None else parse_size(limit, "--max-decompressed"),
        arguments.scheduler,
        arguments.workers,
        tls_of(arguments),
        Wanted(tuple(arguments.label_files), tuple(arguments.label_names)),
        arguments.headings,
    )
    with counting("appending") as progress:
        added = append_told(arguments.corpus, arguments.sources, asked, progress)
    manifest, report, unknown = added.manifest, added.report, UnknownWords.of([added.report])
    if added.repeated and not arguments.json:
        there = counted(report.documents, manifest.holds[:-1])
        print(f"{arguments.corpus}: {there} were added before, the same as these; nothing is added")
        return
    warning = unknown.warning(added.history, grow=arguments.grow, option="--grow")
    if warning is not None:
        print(f"collapsium: warning: {warning}", file=sys.stderr)
    if arguments.json:
        print_json(manifest.record() | {"append": asdict(report) | unknown.record() | {"repeated": added.repeated}})
        return
    if manifest.vectors is not None:
        print(
            f"{arguments.corpus}: {counted(report.documents, 'vector')} added, now {manifest.documents:,} vectors of "
            f"{manifest.vocabulary.words:,} columns, {counted(len(manifest.shards), 'shard')}"
        )
        say_report(report, "vector")
        return
    print(
        f"{arguments.corpus}: {counted(report.documents, 'document')} added, now {manifest.documents:,} documents, "
        f"{manifest.vocabulary.words:,} words, {manifest.tokens:,} tokens, {counted(len(manifest.shards), 'shard')}"
    )
    if unknown.tokens:
        print(f"  {unknown.text()}")
    say_report(report)
