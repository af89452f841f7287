"""Read files of a format that corpora are distributed in, and write a corpus.

A corpus is a folder: a manifest with digests, the vocabulary, and Parquet shards
of about equal tokens. Texts are read and tokenized on workers, and the corpus is
the same for any number of them; `ingest.json` in it tells how, and what was
dropped. Nothing is left behind if an input turns out to be wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from collapsium.pipeline.cli.options import add_json, add_scheduler, add_sides, tls_of
from collapsium.pipeline.cli.output import print_json, say_report
from collapsium.pipeline.cli.text_options import print_notice, print_unknown, with_unknown
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.keywords import names_of, option_names
from collapsium.pipeline.monitoring.console import counting
from collapsium.storage.choices import BAD_BYTES, FORMATS, SCORES
from collapsium.storage.units import parse_size

if TYPE_CHECKING:
    from collapsium.pipeline.corpora.unknown_words import UnknownWords
    from collapsium.storage.building.ingest_record import History

HELP = "read files into a corpus"
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


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument(
        "sources", nargs="+", metavar="SOURCE", help="files, folders or, of texts, globs, local or fsspec URLs"
    )
    parser.add_argument("corpus", metavar="CORPUS", help="folder to make")
    parser.add_argument(
        "--like",
        metavar="RUN|CORPUS",
        help="read documents as those of a run, a model or a corpus: its vocabulary, tokenizer, phrases, stop words "
        "and segments, and its fields where the sources have them; a function or a regular expression that it names "
        "runs only if --tokenizer or --segments names it again",
    )
    parser.add_argument("--format", choices=sorted(FORMATS), help="default: told from the first name")
    parser.add_argument(
        "--vocabulary",
        metavar="FILE|CORPUS|RUN",
        help="words, one a line or a column 'word' of Parquet, or a corpus, a run or a model that has them; of vectors "
        "names of columns; for uci, vocab.NAME.txt beside docword.NAME.txt is found by itself",
    )
    parser.add_argument("--min-documents", type=int, default=0, metavar="N", help="drop words in fewer documents")
    parser.add_argument(
        "--max-document-share",
        type=float,
        default=1.0,
        metavar="F",
        help="drop words in a larger share of the documents",
    )
    parser.add_argument(
        "--shard-tokens",
        type=int,
        metavar="N",
        help="tokens of a shard, values of vectors (default: an eighth of the corpus, between 100,000 and 2,000,000)",
    )
    parser.add_argument(
        "--max-decompressed",
        metavar="SIZE",
        help="what may come out of each compressed file, such as 20GB (default: 200 times its size, at least 256MB)",
    )
    parser.add_argument(
        "--max-words", type=int, metavar="N", help="keep only the N words in most documents (ties: tokens, spelling)"
    )
    parser.add_argument(
        "--index-base",
        type=int,
        choices=(0, 1),
        help="the first index of svmlight (default: 0 where a file has it, else 1)",
    )
    _add_fields(parser)
    _add_words(parser)
    vectors = parser.add_argument_group("vectors")
    vectors.add_argument("--values", metavar="NAME", help="the array of vectors, where there are several")
    vectors.add_argument(
        "--header",
        choices=("yes", "no"),
        help="whether the first line names the columns (default: if it has no number)",
    )
    add_scheduler(parser, "threads")
    add_json(parser)


def _add_fields(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which fields of a record are what."""
    fields = parser.add_argument_group("fields (jsonl, csv, parquet; columns of vectors)")
    fields.add_argument(
        "--id",
        metavar="FIELD",
        help="field of the document's id (default: id); for vectors, the column or array of ids (default: they are "
        "numbered)",
    )
    fields.add_argument("--text", metavar="FIELD", help="field of the text (default: text)")
    fields.add_argument("--title", metavar="FIELD", help="field of a title to keep")
    fields.add_argument("--date", metavar="FIELD", help="field of a date to keep")
    fields.add_argument(
        "--labels",
        action="extend",
        type=names_of,
        default=[],
        metavar="FIELD,...",
        help="fields of labels, each a string or a list of strings, or NAME=FIELD to name it; may be repeated; of "
        "vectors columns that are labels and no values, by name or by number from the left (1) or the right (-1)",
    )
    fields.add_argument(
        "--covariates",
        action="extend",
        type=names_of,
        default=[],
        metavar="FIELD,...",
        help="fields of numbers to keep, each perhaps NAME=FIELD; what is missing is no zero; may be repeated",
    )
    add_sides(parser)


def _add_words(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how texts become words."""
    words = parser.add_argument_group("texts (text, jsonl, csv, parquet, mallet)")
    words.add_argument(
        "--stop-words",
        metavar="LIST",
        help="words to leave out: english (the default), none, languages' codes, or files of words, whose names have a "
        "dot or a slash; with commas between, such as de,fr or english,mine.txt",
    )
    words.add_argument(
        "--min-letters", type=int, metavar="N", help="leave out words of fewer letters (default: 2, by the tokenizer)"
    )
    words.add_argument(
        "--normalise",
        metavar="HOW",
        help="put words in a normal form: stem:LANGUAGE (Snowball) or lemma:LANGUAGE (Simplemma), such as "
        "lemma:english or stem:de (default: as they are written; extra: normalise)",
    )
    words.add_argument(
        "--tokenizer",
        metavar="MODULE:FUNCTION",
        help="a function from a text to a list of words, which the workers import (default: words of two characters or "
        "more in lower case, the first a letter)",
    )
    words.add_argument(
        "--segments",
        metavar="HOW",
        help="keep what documents are made of, for families that know segments: paragraphs (between blank lines), "
        "sentences, lines, headings:REGEX (a line that the regular expression matches from its beginning begins a "
        "segment; what stands before the first is one too), or column (the text is a list of strings, each a segment). "
        "White space alone is no segment, but an entry of a list is; a segment whose words are all dropped stays, "
        "empty (default: none)",
    )
    words.add_argument(
        "--phrases",
        choices=sorted(SCORES),
        help="join words that often follow one another (new_york), by normalised pointwise mutual information or count",
    )
    words.add_argument("--phrase-count", type=int, metavar="N", help="times that a phrase must occur (default: 5)")
    words.add_argument(
        "--phrase-threshold", type=float, metavar="X", help="what its score must exceed (default: npmi 0.5, count 10)"
    )
    words.add_argument(
        "--bad-bytes", choices=BAD_BYTES, help="text that is not UTF-8 is an error (the default), or is replaced"
    )


def run(arguments: argparse.Namespace) -> None:
    """Ingest, and say what came of it."""
    from collapsium.pipeline.corpora.ingest import ingest
    from collapsium.storage.building.ingest_record import read_history
    from collapsium.storage.io.folder import Folder

    options = {name: getattr(arguments, name) for name in option_names(ingest) if hasattr(arguments, name)}
    if arguments.max_decompressed is not None:
        options["max_decompressed"] = parse_size(arguments.max_decompressed, "--max-decompressed")
    with counting("ingesting") as progress:
        manifest = ingest(**options, tls=tls_of(arguments), progress=progress)
    history = read_history(Folder(arguments.corpus))
    unknown = _unknown_of(arguments, history)
    if arguments.json:
        told = {} if history is None else {"ingest": with_unknown(history.record()["report"], unknown)}
        print_json(manifest.record() | told)
        return
    if manifest.vectors is not None:
        shards = counted(len(manifest.shards), "shard")
        columns = f"{manifest.vocabulary.words:,} columns"
        print(f"{arguments.corpus}: {manifest.documents:,} vectors of {columns}, {shards}")
        _say_constant(arguments.corpus, manifest.vectors.constant)
        if history is not None:
            say_report(history.report, "vector")
        return
    print(
        f"{arguments.corpus}: {manifest.documents:,} documents, {manifest.vocabulary.words:,} words, "
        f"{manifest.tokens:,} tokens in {manifest.pairs:,} pairs, {counted(len(manifest.shards), 'shard')}"
    )
    print_unknown(unknown)
    if history is not None:
        say_report(history.report)


def _unknown_of(arguments: argparse.Namespace, history: History | None) -> UnknownWords | None:
    """Return how many tokens the vocabulary lacks, where it was given; of ``--like`` warn if they are many."""
    from collapsium.pipeline.corpora.new_texts import notice_of, warning_of
    from collapsium.pipeline.corpora.recorded_reading import recorded_reading
    from collapsium.pipeline.corpora.unknown_words import UnknownWords
    from collapsium.storage.readers.open import TEXTS

    given = history is not None and arguments.vocabulary is not None and history.kind in TEXTS
    if history is None or (arguments.like is None and not given):
        return None
    unknown = UnknownWords.of([history.report])
    if arguments.like is not None:
        recorded = recorded_reading(arguments.like)
        for line in (notice_of(recorded, history), warning_of(recorded, unknown)):
            if line is not None:
                print_notice(line)
    return unknown if unknown.tokens else None


def _say_constant(folder: str, constant: tuple[int, ...]) -> None:
    """Name the columns that are the same in all vectors; they are kept."""
    from collapsium.storage.corpus.corpus import Corpus

    if not constant:
        return
    words = Corpus(folder).vocabulary.words
    named = ", ".join(words[column] for column in constant[:SHOWN])
    more = f" and {len(constant) - SHOWN} more" if len(constant) > SHOWN else ""
    print(f"the same in all vectors: {named}{more} ({counted(len(constant), 'column')}, kept)")
