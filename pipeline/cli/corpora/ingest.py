"""Read files of a format that corpora are distributed in, and write a corpus.

A corpus is a folder: a manifest with digests, the vocabulary, and Parquet shards
of about equal tokens. Texts are read and tokenized on workers, and the corpus is
the same for any number of them; `ingest.json` in it tells how, and what was
dropped. Nothing is left behind if an input turns out to be wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from collapsium.pipeline.cli.command import Command, Flags, argument
from collapsium.pipeline.cli.new_texts import print_notice, print_unknown, with_unknown
from collapsium.pipeline.cli.options import JsonOptions
from collapsium.pipeline.cli.output import print_json, say_report
from collapsium.pipeline.corpora.options import FieldOptions, IngestOptions, SideFileOptions, VectorOptions, WordOptions
from collapsium.pipeline.executors.options import CertificateOptions, SchedulerOptions
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.console import counting
from collapsium.storage.choices import FORMATS
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.io.folder import Folder

if TYPE_CHECKING:
    from collapsium.pipeline.corpora.unknown_words import UnknownWords
    from collapsium.storage.building.ingest_record import History

SHOWN = 10  # constant columns that are named
EPILOG = (
    "formats:\n"
    + "\n".join(f"  {name:8} {text}" for name, text in FORMATS.items())
    + """

examples:
  collapsium ingest docword.kos.txt.gz kos --vocabulary vocab.kos.txt
  collapsium ingest articles/ corpus --min-documents 5 --max-document-share 0.5
  collapsium ingest a.jsonl b.jsonl.gz corpus --id key --text body
  collapsium ingest 's3://bucket/day-*.parquet' corpus --text body --title head --labels topic=tags --covariates stars
  collapsium ingest news.jsonl corpus --stop-words de,fr --phrases npmi --max-words 20000 --scheduler local
  collapsium ingest tomorrow.jsonl corpus --like run
  collapsium ingest other.csv corpus --text body --vocabulary news
  collapsium ingest papers.jsonl papers --segments sentences
  collapsium ingest prince.txt prince --segments 'headings:CHAPTER [IVXL]+'
  collapsium ingest docword.nips.txt.gz nips --label-files author=doc_authors.txt --label-names author=authors.txt
  collapsium ingest docword.yelp.txt yelp --label-files reviews.csv --id review --labels category --covariates stars
  collapsium ingest optdigits.tra digits --format vectors --labels digit=-1
  collapsium ingest measured.csv.gz more.csv corpus --format vectors --id sample --labels species"""
)


def execute(
    sources: Annotated[list[str], argument("SOURCE", "files, folders or, of texts, globs, local or fsspec URLs")],
    corpus: Annotated[str, argument("CORPUS", "folder to make")],
    /,
    flags: Flags,
) -> None:
    """Ingest, and say what came of it."""
    from collapsium.pipeline.corpora.ingest import ingest
    from collapsium.storage.building.ingest_record import read_history

    options = flags.given(IngestOptions, FieldOptions, SideFileOptions, WordOptions, VectorOptions, SchedulerOptions)
    with counting("ingesting") as progress:
        manifest = ingest(sources, corpus, **options, tls=flags.of(CertificateOptions).tls, progress=progress)
    history = read_history(Folder(corpus))
    unknown = _unknown_of(flags, history)
    if flags.json:
        told = {} if history is None else {"ingest": with_unknown(history.record()["report"], unknown)}
        print_json(manifest.record() | told)
        return
    if manifest.vectors is not None:
        shards = counted(len(manifest.shards), "shard")
        columns = f"{manifest.vocabulary.words:,} columns"
        print(f"{corpus}: {manifest.documents:,} vectors of {columns}, {shards}")
        _say_constant(corpus, manifest.vectors.constant)
        if history is not None:
            say_report(history.report, "vector")
        return
    print(
        f"{corpus}: {manifest.documents:,} documents, {manifest.vocabulary.words:,} words, "
        f"{manifest.tokens:,} tokens in {manifest.pairs:,} pairs, {counted(len(manifest.shards), 'shard')}"
    )
    print_unknown(unknown)
    if history is not None:
        say_report(history.report)


def _unknown_of(flags: Flags, history: History | None) -> UnknownWords | None:
    """Return how many tokens the vocabulary lacks, where it was given; of ``--like`` warn if they are many."""
    from collapsium.pipeline.corpora.new_texts import notice_of, warning_of
    from collapsium.pipeline.corpora.recorded_reading import recorded_reading
    from collapsium.pipeline.corpora.unknown_words import UnknownWords
    from collapsium.storage.readers.open import TEXTS

    like = flags.values.get("like")
    given = history is not None and flags.values.get("vocabulary") is not None and history.kind in TEXTS
    if history is None or (like is None and not given):
        return None
    unknown = UnknownWords.of([history.report])
    if like is not None:
        recorded = recorded_reading(like)
        for line in (notice_of(recorded, history), warning_of(recorded, unknown)):
            if line is not None:
                print_notice(line)
    return unknown if unknown.tokens else None


def _say_constant(folder: str, constant: tuple[int, ...]) -> None:
    """Name the columns that are the same in all vectors; they are kept."""
    if not constant:
        return
    words = Corpus(folder).vocabulary.words
    named = ", ".join(words[column] for column in constant[:SHOWN])
    more = f" and {len(constant) - SHOWN} more" if len(constant) > SHOWN else ""
    print(f"the same in all vectors: {named}{more} ({counted(len(constant), 'column')}, kept)")


COMMAND = Command(
    execute,
    (
        IngestOptions,
        FieldOptions,
        SideFileOptions,
        WordOptions,
        VectorOptions,
        SchedulerOptions,
        CertificateOptions,
        JsonOptions,
    ),
    epilog=EPILOG,
)
