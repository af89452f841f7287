"""Read files of a format that corpora are distributed in, and write a corpus.

A corpus is a folder: a manifest with digests, the vocabulary, and Parquet shards
of about equal tokens. Nothing is left behind if an input turns out to be wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from collapsar.pipeline.commands.options import add_json, print_json
from collapsar.pipeline.intake import ingest
from collapsar.pipeline.progress import counted, counting
from collapsar.storage.readers import FORMATS
from collapsar.storage.sizes import parse_size

HELP = "read files into a corpus"
EPILOG = (
    "formats:\n"
    + "\n".join(f"  {name:6} {text}" for name, text in FORMATS.items())
    + """

examples:
  collapsar ingest docword.kos.txt.gz kos --vocabulary vocab.kos.txt
  collapsar ingest articles/ corpus --min-documents 5 --max-document-share 0.5
  collapsar ingest a.jsonl b.jsonl.gz corpus --id key --text body"""
)


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="files or folders, local or fsspec URLs")
    parser.add_argument("corpus", metavar="CORPUS", help="folder to make")
    parser.add_argument("--format", choices=sorted(FORMATS), help="default: told from the first name")
    parser.add_argument(
        "--vocabulary",
        metavar="FILE",
        help="one word a line; for uci, vocab.NAME.txt beside docword.NAME.txt is found by itself",
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
        help="tokens of a shard (default: an eighth of the corpus, between 100,000 and 2,000,000)",
    )
    parser.add_argument(
        "--max-decompressed",
        metavar="SIZE",
        help="what may come out of each compressed file, such as 20GB (default: 200 times its size, at least 256MB)",
    )
    text = parser.add_argument_group("text and jsonl")
    text.add_argument(
        "--id", default="id", metavar="FIELD", dest="id_field", help="field of the document's id (default: id)"
    )
    text.add_argument(
        "--text", default="text", metavar="FIELD", dest="text_field", help="field of the text (default: text)"
    )
    text.add_argument("--stop-words", choices=("english", "none"), default="english", help="words to leave out")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Ingest, and say what came of it."""
    limit = arguments.max_decompressed
    with counting("ingesting") as progress:
        manifest = ingest(
            arguments.sources,
            arguments.corpus,
            format=arguments.format,
            vocabulary=arguments.vocabulary,
            min_documents=arguments.min_documents,
            max_document_share=arguments.max_document_share,
            shard_tokens=arguments.shard_tokens,
            id_field=arguments.id_field,
            text_field=arguments.text_field,
            stop_words=arguments.stop_words,
            max_decompressed=None if limit is None else parse_size(limit, "--max-decompressed"),
            progress=progress,
        )
    if arguments.json:
        print_json(manifest.model_dump())
        return
    print(
        f"{arguments.corpus}: {manifest.documents:,} documents, {manifest.vocabulary.words:,} words, "
        f"{manifest.tokens:,} tokens in {manifest.pairs:,} pairs, {counted(len(manifest.shards), 'shard')}"
    )
