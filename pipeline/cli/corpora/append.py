"""Add documents, or vectors, to a corpus, as new shards behind those that there are.

They are read and tokenized as the corpus was. Its shards stay as they are, and so
does its vocabulary, unless it grows (--grow). The manifest is replaced last: an
addition that is cut short leaves the corpus as it was.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

from collapsium.pipeline.cli.command import Command, Flags, argument
from collapsium.pipeline.cli.options import JsonOptions
from collapsium.pipeline.cli.output import print_json, say_report
from collapsium.pipeline.corpora.options import AppendOptions, SideFileOptions
from collapsium.pipeline.executors.options import CertificateOptions, SchedulerOptions
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.console import counting

EPILOG = """examples:
  collapsium append reviews today.jsonl
  collapsium append reviews 'new/*.parquet' --skip-existing --grow
  collapsium append digits optdigits.tes
  collapsium append nips docword.more.txt.gz --label-files author=more_authors.txt --label-names author=authors.txt"""


def execute(
    corpus: Annotated[str, argument("CORPUS", "what to add to")],
    sources: Annotated[list[str], argument("SOURCE", "files, folders or globs, local or fsspec URLs")],
    /,
    flags: Flags,
) -> None:
    """Add, and say what came of it."""
    from collapsium.pipeline.corpora.append.additions import Addition
    from collapsium.pipeline.corpora.append.append import append_told
    from collapsium.pipeline.corpora.unknown_words import UnknownWords
    from collapsium.storage.readers.side_files.columns import Wanted

    options, sides, where = flags.of(AppendOptions), flags.of(SideFileOptions), flags.of(SchedulerOptions)
    addition = Addition(
        options.grow,
        options.skip_existing,
        options.format,
        options.tokenizer,
        options.max_decompressed,
        where.scheduler,
        where.workers,
        flags.of(CertificateOptions).tls,
        Wanted(sides.label_files, sides.label_names),
        options.headings,
    )
    with counting("appending") as progress:
        added = append_told(corpus, sources, addition, progress)
    manifest, report, unknown = added.manifest, added.report, UnknownWords.of([added.report])
    if added.repeated and not flags.json:
        there = counted(report.documents, manifest.holds[:-1])
        print(f"{corpus}: {there} were added before, the same as these; nothing is added")
        return
    warning = unknown.warning(added.history, grow=options.grow, option="--grow")
    if warning is not None:
        print(f"collapsium: warning: {warning}", file=sys.stderr)
    if flags.json:
        print_json(manifest.record() | {"append": asdict(report) | unknown.record() | {"repeated": added.repeated}})
        return
    if manifest.vectors is not None:
        print(
            f"{corpus}: {counted(report.documents, 'vector')} added, now {manifest.documents:,} vectors of "
            f"{manifest.vocabulary.words:,} columns, {counted(len(manifest.shards), 'shard')}"
        )
        say_report(report, "vector")
        return
    print(
        f"{corpus}: {counted(report.documents, 'document')} added, now {manifest.documents:,} documents, "
        f"{manifest.vocabulary.words:,} words, {manifest.tokens:,} tokens, {counted(len(manifest.shards), 'shard')}"
    )
    if unknown.tokens:
        print(f"  {unknown.text()}")
    say_report(report)


COMMAND = Command(
    execute, (AppendOptions, SideFileOptions, SchedulerOptions, CertificateOptions, JsonOptions), epilog=EPILOG
)
