"""The command `collapsium append`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

from collapsium.pipeline.cli.command import JsonOptions, argument, named_options, print_json, print_report
from collapsium.pipeline.corpora.options import AppendOptions, SideFileOptions
from collapsium.pipeline.executors.schedulers import CertificateOptions, SchedulerOptions
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.console import counting

APPEND_EPILOG = """examples:
  collapsium append reviews today.jsonl
  collapsium append reviews 'new/*.parquet' --skip-existing --grow
  collapsium append digits optdigits.tes
  collapsium append nips docword.more.txt.gz --label-files author=more_authors.txt --label-names author=authors.txt"""


def append(
    corpus: Annotated[str, argument("CORPUS", "corpus to extend")],
    sources: Annotated[list[str], argument("SOURCE", "files, folders or globs, local or fsspec URLs")],
    /,
    *,
    options: AppendOptions,
    side_files: SideFileOptions,
    scheduling: SchedulerOptions,
    certificates: CertificateOptions,
    output: JsonOptions,
) -> None:
    """Add documents, or vectors, to a corpus, as new shards.

    The new documents are read and tokenized like the corpus. Existing shards do not
    change, nor does the vocabulary, unless --grow adds new words. The manifest is
    replaced last, so an interrupted append leaves the corpus unchanged.
    """
    with counting("appending") as progress:
        # Loads the compiler, which takes seconds.
        from collapsium.pipeline.corpora import append as appending
        from collapsium.pipeline.corpora import new_texts

        addition = appending.Addition(**named_options(options, side_files, scheduling), tls=certificates.tls)
        added = appending.append_with_report(corpus, sources, addition, progress)
    manifest, report, unknown = added.manifest, added.report, new_texts.UnknownWords.of([added.report])
    if added.repeated and not output.as_json:
        total = counted(report.documents, manifest.holds[:-1])
        print(f"{corpus}: these {total} were added before; nothing to add")
        return
    warning = unknown.warning(added.history, grow=options.grow, option="--grow")
    if warning is not None:
        print(f"collapsium: warning: {warning}", file=sys.stderr)
    if output.as_json:
        print_json(manifest.record() | {"append": asdict(report) | unknown.record() | {"repeated": added.repeated}})
        return
    if manifest.vectors is not None:
        print(
            f"{corpus}: {counted(report.documents, 'vector')} added, now {manifest.documents:,} vectors of "
            f"{manifest.vocabulary.words:,} columns, {counted(len(manifest.shards), 'shard')}"
        )
        print_report(report, "vector")
        return
    print(
        f"{corpus}: {counted(report.documents, 'document')} added, now {counted(manifest.documents, 'document')}, "
        f"{counted(manifest.vocabulary.words, 'word')}, {counted(manifest.tokens, 'token')}, "
        f"{counted(len(manifest.shards), 'shard')}"
    )
    if unknown.tokens:
        print(f"  {unknown.text()}")
    print_report(report)
