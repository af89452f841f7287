"""Read texts as tokens by the options of an ingest: words, their normal forms, and phrases."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.workers.ingest.normal_forms import normalised, require_library
from collapsium.workers.ingest.phrases import Phrases, joined_by, named_phrases
from collapsium.workers.ingest.stop_words import StopWords
from collapsium.workers.ingest.tokenize import Tokens, tokenize

PHRASES = "phrases"  # Name of the table of phrases in the scratch folder


@dataclass(frozen=True)
class ReadRequest:
    """Options that all tasks of reading blocks share."""

    kind: str  # Format of the sources
    options: ReadOptions  # Fields and the tokenizer
    scratch: Folder  # Folder to which chunks are written
    numbered: bool = False  # Whether documents get their ids later, by number
    streams: bool = False  # Whether tokens are written in their order, because phrases are not known yet
    # Whether the words of the phrases in the scratch folder are joined, in tokens without `stops`
    phrases: bool = False
    # Words that are dropped; needed only with `phrases` or normal forms
    stops: StopWords = field(default_factory=StopWords)
    known: bool = False  # Whether the scratch folder has the ids of documents in the corpus
    skip: bool = False  # Whether documents in the corpus are skipped


def read_tokens(texts: pa.Array, request: ReadRequest) -> Tokens:
    """Return the tokens of texts, with joined phrases if the request names them."""
    phrases = named_phrases(request.scratch.address, PHRASES) if request.phrases else None
    return tokens_of_texts(texts, request.options, request.stops, phrases)


def tokens_of_texts(texts: pa.Array, options: ReadOptions, stops: StopWords, phrases: Phrases | None) -> Tokens:
    """Return the tokens of texts as words in their normal forms, with joined phrases."""
    tokens = tokenize(texts, options.tokenizer, options.word_rule)
    if options.normalise is not None:
        require_library(options.normalise, options.normalised_by)
        tokens = normalised(tokens, options.normalise, stops)
    return tokens if phrases is None else joined_by(tokens, stops, phrases)
