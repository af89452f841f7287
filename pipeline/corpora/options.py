"""Options of making corpora: ingesting, appending, splitting, drawing, and of reading texts for a model."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo

from collapsium.pipeline.options import Location, Locations, Names, Options, Value
from collapsium.storage.units import parse_size


def _size(value: Any, info: ValidationInfo) -> Any:
    return parse_size(value, info.field_name or "size") if isinstance(value, str) else value


def _words(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else tuple(value) if isinstance(value, list) else value


Format = Literal["csv", "jsonl", "ldac", "mallet", "mtx", "npz", "parquet", "svmlight", "text", "uci", "vectors"]
"""The names of `FORMATS`."""
Words = Annotated[str | tuple[str, ...] | None, BeforeValidator(_words)]
Size = Annotated[int | None, BeforeValidator(_size)]
Tokenizer = Annotated[str | None, Value("MODULE:FUNCTION")]
Pattern = Annotated[str | None, Value("REGEX")]
FieldName = Annotated[str | None, Value("FIELD")]
Number = Annotated[int | None, Value("N")]


class IngestOptions(Options):
    """What is read, and which words are kept."""

    like: Annotated[Location | None, Value("RUN|CORPUS")] = Field(
        None,
        description="read documents as those of a run, a model or a corpus: its vocabulary, tokenizer, phrases, stop "
        "words and segments, and its fields where the sources have them; a function or a regular expression that it "
        "names runs only if `tokenizer` or `segments` names it again",
    )
    format: Format | None = Field(None, description="default: told from the first name")
    vocabulary: Annotated[Words, Value("FILE|CORPUS|RUN", text=True)] = Field(
        None,
        description="words, one a line or a column 'word' of Parquet, or a corpus, a run or a model that has them; of "
        "vectors names of columns; for uci, vocab.NAME.txt beside docword.NAME.txt is found by itself",
    )
    min_documents: Annotated[int, Value("N", unit="documents")] = Field(0, description="drop words in fewer documents")
    max_document_share: Annotated[float, Value("F")] = Field(
        1.0, description="drop words in a larger share of the documents"
    )
    shard_tokens: Annotated[int | None, Value("N", unit="tokens")] = Field(
        None,
        description="tokens of a shard, values of vectors (default: an eighth of the corpus, between 100,000 and "
        "2,000,000)",
    )
    max_decompressed: Annotated[Size, Value("SIZE", unit="bytes", text=True)] = Field(
        None,
        description="what may come out of each compressed file, such as 20GB (default: 200 times its size, at least "
        "256MB)",
    )
    max_words: Number = Field(None, description="keep only the N words in most documents (ties: tokens, spelling)")
    index_base: Literal[0, 1] | None = Field(
        None, description="the first index of svmlight (default: 0 where a file has it, else 1)"
    )


class FieldOptions(Options):
    """Which fields of a record are what."""

    heading = "fields (jsonl, csv, parquet; columns of vectors)"
    id: FieldName = Field(
        None,
        description="field of the document's id (default: id); for vectors, the column or array of ids (default: they "
        "are numbered)",
    )
    text: FieldName = Field(None, description="field of the text (default: text)")
    title: FieldName = Field(None, description="field of a title to keep")
    date: FieldName = Field(None, description="field of a date to keep")
    labels: Annotated[Names, Value("FIELD,...")] = Field(
        (),
        description="fields of labels, each a string or a list of strings, or NAME=FIELD to name it; may be "
        "repeated; of "
        "vectors columns that are labels and no values, by name or by number from the left (1) or the right (-1)",
    )
    covariates: Annotated[Names, Value("FIELD,...")] = Field(
        (),
        description="fields of numbers to keep, each perhaps NAME=FIELD; what is missing is no zero; may be repeated",
    )


class SideFileOptions(Options):
    """Labels and numbers of documents that lie beside them."""

    heading = "side files (labels and numbers of documents that lie beside them)"
    label_files: Annotated[Locations, Value("FILE")] = Field(
        (),
        description="labels of the documents: a line a document in the order in which they are read, or .csv, .tsv, "
        ".jsonl or .parquet, records with the documents' ids (`id`) in any order, all of whose fields are labels, or "
        "covariates if they are numbers, where `labels` and `covariates` name none of them; NAME=FILE names the field; "
        "may be repeated",
    )
    label_names: Annotated[Locations, Value("FILE")] = Field(
        (),
        description="names, one a line, of labels of side files that are numbers from 1; FIELD=FILE says of which "
        "field; may be repeated",
    )


class WordOptions(Options):
    """How texts become words."""

    heading = "texts (text, jsonl, csv, parquet, mallet)"
    stop_words: Annotated[Words, Value("LIST", text=True)] = Field(
        None,
        description="words to leave out: english (the default), none, languages' codes, or files of words, whose names "
        "have a dot or a slash; with commas between, such as de,fr or english,mine.txt",
    )
    min_letters: Number = Field(None, description="leave out words of fewer letters (default: 2, by the tokenizer)")
    normalise: Annotated[str | None, Value("HOW")] = Field(
        None,
        description="put words in a normal form: stem:LANGUAGE (Snowball) or lemma:LANGUAGE (Simplemma), such as "
        "lemma:english or stem:de (default: as they are written; extra: normalise)",
    )
    tokenizer: Tokenizer = Field(
        None,
        description="a function from a text to a list of words, which the workers import (default: words of two "
        "characters or more in lower case, the first a letter)",
    )
    segments: Annotated[str | None, Value("HOW")] = Field(
        None,
        description="keep what documents are made of, for families that know segments: paragraphs (between blank "
        "lines), sentences, lines, headings:REGEX (a line that the regular expression matches from its beginning "
        "begins "
        "a segment; what stands before the first is one too), or column (the text is a list of strings, each a "
        "segment). White space alone is no segment, but an entry of a list is; a segment whose words are all dropped "
        "stays, empty (default: none)",
    )
    phrases: Literal["npmi", "count"] | None = Field(
        None,
        description="join words that often follow one another (new_york), by normalised pointwise mutual "
        "information or "
        "count",
    )
    phrase_count: Number = Field(None, description="times that a phrase must occur (default: 5)")
    phrase_threshold: Annotated[float | None, Value("X")] = Field(
        None, description="what its score must exceed (default: npmi 0.5, count 10)"
    )
    bad_bytes: Literal["error", "replace"] | None = Field(
        None, description="text that is not UTF-8 is an error (the default), or is replaced"
    )


class VectorOptions(Options):
    """How vectors are read."""

    heading = "vectors"
    values: Annotated[str | None, Value("NAME")] = Field(
        None, description="the array of vectors, where there are several"
    )
    header: Literal["yes", "no"] | None = Field(
        None, description="whether the first line names the columns (default: if it has no number)"
    )


class AppendOptions(Options):
    """What is added to a corpus."""

    grow: bool = Field(False, description="give new words that the corpus's cuts keep ids behind the others")
    skip_existing: bool = Field(False, description="leave out documents whose ids are there already")
    format: Format | None = Field(None, description="default: told from the first name, or the corpus's")
    tokenizer: Tokenizer = Field(
        None,
        description="must be said again where the corpus was made with one: what a corpus names is not run by itself",
    )
    headings: Pattern = Field(
        None, description="must be named again where the corpus was made with `segments` headings:REGEX"
    )
    max_decompressed: Annotated[Size, Value("SIZE", unit="bytes", text=True)] = Field(
        None, description="what may come out of each compressed file"
    )


class SplitOptions(Options):
    """What is held out."""

    fraction: Annotated[float | None, Value("F")] = Field(
        None, description="each token's probability of being held out, or each document's (default: 0.1)"
    )
    documents: bool = Field(False, description="hold out whole documents, or vectors")
    folds: Annotated[int | None, Value("K")] = Field(
        None, description="hold out one of K folds of whole documents, or vectors"
    )
    fold: Annotated[int | None, Value("I")] = Field(None, description="which fold, from 0 to K-1")
    drop_labels: Annotated[float | None, Value("F")] = Field(
        None, description="each label's probability of being dropped; tokens stay"
    )
    field: Annotated[str | None, Value("NAME")] = Field(
        None, description="the field of labels to drop from, or a covariate (default: all labels)"
    )
    seed: Annotated[int, Value("S")] = Field(0, description="another seed is another split")


class SimulateOptions(Options):
    """Sizes of a corpus that is drawn."""

    documents: Annotated[int, Value("D")] = Field(description="number of documents, or vectors")
    words: Annotated[int, Value("W")] = Field(description="size of the vocabulary, or columns")
    tokens: Annotated[float | None, Value("N")] = Field(
        None, description="mean number of tokens of a document; required, but of vectors"
    )
    seed: Annotated[int, Value("S")] = Field(0, description="another seed is another corpus")
    shard_tokens: Annotated[int | None, Value("N", unit="tokens")] = Field(
        None, description="tokens of a shard, about (default: as for ingest)"
    )


class ReadingOptions(Options):
    """Where texts for a model differ from its own documents."""

    heading = "texts for a model (read as its own documents were: these options say where they differ)"
    format: Annotated[str | None, Value("FORMAT")] = Field(
        None, description="as of ingest (default: told from the first name, or the model's own)"
    )
    id: FieldName = Field(None, description="field of the ids")
    text: FieldName = Field(None, description="field of the texts")
    vocabulary: Annotated[Words, Value("FILE", text=True)] = Field(
        None, description="of counted words: the words of their numbers, if none lie beside them"
    )
    tokenizer: Tokenizer = Field(
        None,
        description="must be named again where the model's texts were cut by one: what a model names is not run by "
        "itself",
    )
    headings: Pattern = Field(
        None, description="must be named again where the model's texts were cut into segments by headings:REGEX"
    )
    bad_bytes: Literal["error", "replace"] | None = Field(None, description="text that is not UTF-8")
