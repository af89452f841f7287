"""The command `collapsium ingest`."""

from __future__ import annotations

from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import (
    JsonOptions,
    argument,
    named_options,
    print_json,
    print_notice,
    print_report,
    print_unknown,
    with_unknown,
)
from collapsium.pipeline.corpora.options import IngestOptions
from collapsium.pipeline.executors.schedulers import CertificateOptions, SchedulerOptions
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.console import counting
from collapsium.pipeline.options import OverwriteOptions
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.data_types import FORMATS
from collapsium.storage.io.folder import Folder

MAX_NAMED_COLUMNS = 10  # Constant columns that the output names
INGEST_EPILOG = (
    "formats:\n"
    + "\n".join(f"  {name:8} {form.help}" for name, form in FORMATS.items())
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
  collapsium ingest filtered_feature_bc_matrix/ cells --binarise
  collapsium ingest cells.h5ad cells --layer counts --labels batch
  collapsium ingest measured.csv.gz more.csv corpus --format vectors --id sample --labels species"""
)


def ingest(
    sources: Annotated[
        list[str], argument("SOURCE", "files, folders or (for texts) globs; local paths or fsspec URLs")
    ],
    corpus: Annotated[str, argument("CORPUS", "folder of the new corpus")],
    /,
    *,
    options: IngestOptions,
    replacing: OverwriteOptions,
    scheduling: SchedulerOptions,
    certificates: CertificateOptions,
    output: JsonOptions,
) -> None:
    """Read documents or vectors from files of common formats, and write a corpus.

    A corpus is a folder with the documents in shards (Parquet files of about equally
    many tokens), the vocabulary, and a manifest with a digest of every file. Workers
    read and tokenize the texts; the corpus is the same for any number of workers. Its
    file `ingest.json` records how the files were read and what was dropped.
    If an input is invalid, no corpus is written.
    """
    named = named_options(options, replacing, scheduling)
    with counting("ingesting") as progress:
        manifest = pipeline.ingest(sources, corpus, **named, tls=certificates.tls, progress=progress)
    # The first use of `pipeline` loads the compiler, which takes seconds, as do these imports.
    from collapsium.pipeline.corpora import new_texts, recorded_reading
    from collapsium.storage.building import ingest_record
    from collapsium.storage.readers.open import TEXTS

    history = ingest_record.read_history(Folder(corpus))
    unknown = None
    if history is not None and (options.like or (options.vocabulary is not None and history.kind in TEXTS)):
        unknown = new_texts.UnknownWords.of([history.report])
        if options.like is not None:
            recorded = recorded_reading.recorded_reading(options.like)
            for line in (new_texts.notice_of(recorded, history), new_texts.warning_of(recorded, unknown)):
                if line is not None:
                    print_notice(line)
        unknown = unknown if unknown.tokens else None
    if output.as_json:
        report = {} if history is None else {"ingest": with_unknown(history.record()["report"], unknown)}
        print_json(manifest.record() | report)
        return
    if manifest.vectors is not None:
        shards = counted(len(manifest.shards), "shard")
        columns = f"{manifest.vocabulary.words:,} columns"
        print(f"{corpus}: {manifest.documents:,} vectors of {columns}, {shards}")
        constant = manifest.vectors.constant
        if constant:
            words = Corpus(corpus).vocabulary.words
            shown = ", ".join(words[column] for column in constant[:MAX_NAMED_COLUMNS])
            rest = len(constant) - MAX_NAMED_COLUMNS
            more = f" and {rest} more" if rest > 0 else ""
            print(f"the same in all vectors: {shown}{more} ({counted(len(constant), 'column')}, kept)")
        if history is not None:
            print_report(history.report, "vector")
        return
    print(
        f"{corpus}: {counted(manifest.documents, 'document')}, {counted(manifest.vocabulary.words, 'word')}, "
        f"{counted(manifest.tokens, 'token')} in {counted(manifest.pairs, 'pair')}, "
        f"{counted(len(manifest.shards), 'shard')}"
    )
    print_unknown(unknown)
    if history is not None:
        print_report(history.report)
