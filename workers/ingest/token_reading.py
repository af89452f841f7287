"""Read texts as tokens by the options of an ingest: words, their normal forms, and phrases."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.workers.ingest.normal_forms import normalised, require_library
from collapsium.workers.ingest.phrases import joined_by, named_phrases
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
    tokens = tokenize(texts, request.options.tokenizer, request.options.word_rule)
    if request.options.normalise is not None:
        require_library(request.options.normalise, request.options.normalised_by)
        tokens = normalised(tokens, request.options.normalise, request.stops)
    if request.phrases:
        tokens = joined_by(tokens, request.stops, named_phrases(request.scratch.address, PHRASES))
    return tokens
