"""Options of making corpora: ingest, append, split and simulate, and of reading texts for a fitted model."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from collapsium.pipeline.options import Location, Locations, Names, Options, Value, path_text
from collapsium.storage.data_types import Format, is_annotated
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.units import parse_size
from collapsium.workers.options import Accepts, Formerly

MAX_PATH = 255  # Characters of a path at most; longer strings are texts


@dataclass(frozen=True)
class TextsInMemory:
    """A list, column or frame of texts in place of their files."""

    texts: Any


def sources_of(value: object) -> tuple[str, ...] | TextsInMemory:
    """Return paths as a tuple, and any texts in memory as such; strings of a list are paths if all of them may be.

    An AnnData object stands for the path of its file.
    """
    if isinstance(value, TextsInMemory):
        return value
    if isinstance(value, (str, os.PathLike)):
        return (os.fspath(value),)
    if is_annotated(value):
        return (value,)  # type: ignore[return-value]
    if isinstance(value, (list, tuple)) and value and all(map(_is_path, value)):
        return tuple(os.fspath(path) for path in value)
    return TextsInMemory(value)


# An ending of a file's name, a folder, a URL or a glob
_PATH = re.compile(r"\S*(?:\.\w{1,10}|[/\\*]\S*)")


def _is_path(text: object) -> bool:
    """Return True for a path, and for a string that names what exists or looks like a path, a glob or a URL."""
    if not isinstance(text, str):
        return isinstance(text, os.PathLike)
    if len(text) > MAX_PATH or "\n" in text or not text.strip():
        return False
    return _PATH.fullmatch(text) is not None or os.path.exists(text)  # noqa: PTH110


# Files, folders and globs of texts or, in Python, texts in memory
Sources = Annotated[
    tuple[str, ...] | TextsInMemory | None,
    BeforeValidator(lambda value: None if value is None else sources_of(value)),
    Accepts(Any, "path, sequence of paths or str, column or frame"),
]
Words = Annotated[
    str | tuple[str, ...] | None,
    BeforeValidator(lambda words: tuple(words) if isinstance(words, list) else path_text(words)),
]
Size = Annotated[
    int | None,
    BeforeValidator(lambda size, info: parse_size(size, info.field_name or "size") if isinstance(size, str) else size),
    Accepts(int | str | None),
]
Tokenizer = Annotated[
    str | None, Value("MODULE:FUNCTION", expected="module:function, the name of a function that workers can import")
]
Pattern = Annotated[str | None, Value("REGEX")]
FieldName = Annotated[str | None, Value("FIELD")]
MOST = (1 << 63) - 1  # Largest value of a number that is recorded, or that numbers of 64 bits are divided by
Number = Annotated[int | None, Value("N"), Field(le=MOST)]
ShardTokens = Annotated[int | None, Value("N", unit="tokens"), Field(ge=1, le=MOST)]


class SourceOptions(Options):
    """Format of the sources, pruning of the vocabulary, and size of shards."""

    like: Annotated[Location | None, Value("RUN|CORPUS")] = Field(
        None,
        description="read documents like those in a run, a model or a corpus: with the same vocabulary, tokenizer, "
        "phrases, stop words and segments, and the same fields if the sources have them. A function or regular "
        "expression that its record names is used only if `tokenizer` "
        "or `segments` names it again",
    )
    format: Annotated[Format | None, Value(note="see the list below")] = Field(
        None, description="format of the sources (default: recognised by the name of the first)"
    )
    encoding: Annotated[str | None, Value("NAME")] = Field(
        None,
        description="encoding of files of text that have no byte order mark, such as cp1252, shift_jis or utf-16-le "
        "(default: UTF-8)",
    )
    separator: Annotated[str | None, Value("SIGN")] = Field(
        None,
        description="separator of tables: a character such as `;` or `|`, or tab (default: detected in their first "
        "lines)",
    )
    vocabulary: Annotated[Words, Value("FILE|CORPUS|RUN", text=True)] = Field(
        None,
        description="use these words: a file with one word per line, a Parquet file with a column 'word', or a "
        "corpus, run or model to take the vocabulary from. For vectors, the names of the columns. "
        "For uci, vocab.NAME.txt next to docword.NAME.txt is used by default",
    )
    min_documents: Annotated[int, Value("N", unit="documents")] = Field(
        0, le=MOST, description="drop words that occur in fewer than N documents"
    )
    max_document_share: Annotated[float, Value("F", expected="a share in (0, 1]")] = Field(
        1.0, description="drop words that occur in more than this share of the documents"
    )
    shard_tokens: ShardTokens = Field(
        None,
        description="tokens per shard, or values for vectors (default: an eighth of the corpus, but at "
        "least 100,000 and at most 2,000,000)",
    )
    max_decompressed: Annotated[Size, Value("SIZE", unit="bytes", text=True)] = Field(
        None,
        description="refuse a compressed file that expands to more than this, such as 20GB (default: 200 "
        "times its size, at least 256MB)",
    )
    max_words: Number = Field(
        None,
        description="keep only the N words that occur in most documents; ties are broken by number of tokens, "
        "then by spelling",
    )
    index_base: Literal[0, 1] | None = Field(
        None, description="first index of svmlight files (default: 0 if the file has an index 0, else 1)"
    )
    layer: FieldName = Field(None, description="layer of AnnData that contains the counts (default: its X)")
    transpose: Literal["yes", "no"] | None = Field(
        None,
        description="whether the rows of a matrix (mtx, npz) are words and its columns documents (default: determined "
        "from the numbers of barcodes and features beside it, else no)",
    )
    binarise: bool = Field(
        False,
        description="count each word of a document once, as for the peaks of a cell (formats of word counts)",
    )


class FieldOptions(Options):
    """Fields of the records that hold ids, texts, labels and covariates."""

    heading = "fields (jsonl, csv, parquet; columns of AnnData's obs; columns of vectors)"
    id: FieldName = Field(
        None,
        description="field of the document's id (default: id); for vectors, the column or array of ids "
        "(default: vectors are numbered); for AnnData, the column of obs (default: obs_names); for mtx and npz, a "
        "file with one id per line (default: barcodes.tsv beside a matrix.mtx, or numbers)",
    )
    text: FieldName = Field(None, description="field of the text (default: text)")
    title: FieldName = Field(None, description="field of a title, stored with the document")
    date: FieldName = Field(None, description="field of a date, stored with the document")
    date_order: Literal["day", "month"] | None = Field(
        None,
        description="what comes first in numeric dates such as 03/04/2020 (default: the order that dates such as "
        "13/04/2020 in the same field show; if none shows an order, or they differ, only the year of such a date is "
        "used)",
    )
    labels: Annotated[Names, Value("FIELD,...", note="may be repeated")] = Field(
        (),
        description="fields of labels, each a string or a list of strings; for AnnData, columns of obs; for vectors, "
        "the columns that are labels, by name or by number from the left (1) or the right (-1). NAME=FIELD stores a "
        "field under another name",
    )
    covariates: Annotated[Names, Value("FIELD,...", note="may be repeated")] = Field(
        (),
        description="fields of numbers, stored as covariates; for AnnData, columns of obs. NAME=FIELD stores a field "
        "under another name; a missing number stays missing",
    )


class SideFileOptions(Options):
    """Files with labels and covariates of documents, separate from the documents."""

    heading = "side files (labels and covariates in separate files)"
    label_files: Annotated[Locations, Value("FILE", note="may be repeated")] = Field(
        (),
        description="labels of the documents. Either one line per document, in the order of the documents; or "
        ".csv, .tsv, .jsonl or .parquet records in any order, matched by document id (`id`). All "
        "fields of such records become labels, or covariates if they are numbers, unless `labels` "
        "and `covariates` choose some. NAME=FILE names the field of labels",
    )
    label_names: Annotated[Locations, Value("FILE", note="may be repeated")] = Field(
        (),
        description="for label files with numbers from 1: a file with the names, one per line; FIELD=FILE sets the "
        "field that the names are for",
    )
    label_separator: Annotated[str | None, Value("SIGN")] = Field(
        None,
        description="separator of labels in files with one line per document: a character, tab or space (default: tabs "
        "and semicolons if there are any, else commas, else white space)",
    )


class WordOptions(Options):
    """Tokenization of texts."""

    heading = "texts (text, jsonl, csv, parquet, mallet)"
    stop_words: Annotated[Words, Value("LIST", text=True)] = Field(
        None,
        description="words to leave out: english (the default), none, language codes, files of words (names with a dot "
        "or a slash), or several of these, such as de,fr or english,mine.txt",
    )
    min_characters: Annotated[Number, Formerly("min_letters")] = Field(
        None, description="leave out words of fewer than N characters (default: 2, set by the tokenizer)"
    )
    normalise: Annotated[str | None, Value("HOW")] = Field(
        None,
        description="reduce words to a normal form: stem:LANGUAGE (Snowball) or lemma:LANGUAGE (Simplemma), "
        "such as lemma:english or stem:de (default: words as written; needs the extra "
        "'normalise')",
    )
    tokenizer: Tokenizer = Field(
        None,
        description="Python function that turns a text into a list of words; the workers must be able to "
        "import it (default: lower-case words of two or more characters that begin with a letter)",
    )
    segments: Annotated[str | None, Value("RULE")] = Field(
        None,
        description="store the segments of each document, for families that model them: paragraphs (separated "
        "by blank lines), sentences, lines, headings:REGEX (each line that begins with a match "
        "starts a segment; the text before the first match is a segment too), or column (the text is a list of "
        "strings, one per segment). Segments of white space are skipped, except "
        "entries of a list; a segment without any word of the vocabulary is stored empty "
        "(default: none)",
    )
    phrases: Literal["npmi", "count"] | None = Field(
        None,
        description="join words that often follow one another, such as new_york: by normalised pointwise "
        "mutual information (npmi) or by count",
    )
    phrase_count: Number = Field(None, description="how often a phrase must occur (default: 5)")
    phrase_threshold: Annotated[float | None, Value("X")] = Field(
        None, description="score that a phrase must exceed (default: 0.5 for npmi, 10 for count)"
    )
    bad_bytes: Literal["error", "replace"] | None = Field(
        None, description="text that is not UTF-8: stop with an error (the default), or replace the invalid bytes"
    )
    unknown_share: bool = Field(
        False,
        description="store with each document its share of words that are not in the vocabulary, not counting stop "
        "words and too frequent words; documents that are appended later get it too",
    )


class VectorOptions(Options):
    """Arrays and columns of vectors."""

    heading = "vectors"
    values: Annotated[str | None, Value("NAME")] = Field(
        None, description="name of the array of vectors, if the source has several arrays"
    )
    header: Literal["yes", "no"] | None = Field(
        None,
        description="whether the first line names the columns (default: yes if none of its values is a number, or if "
        "it numbers the columns and the second line has fractions)",
    )


class IngestOptions(VectorOptions, WordOptions, SideFileOptions, FieldOptions, SourceOptions):
    """Options of `ingest`, in the order of help from the last base to the first."""


class AppendOptions(Options):
    """Treatment of new words and of documents that the corpus already has."""

    grow: bool = Field(
        False,
        description="add new words to the vocabulary if they pass the corpus's pruning rules; the ids of "
        "known words stay",
    )
    skip_existing: bool = Field(False, description="leave out documents whose ids are already in the corpus")
    format: Format | None = Field(
        None, description="format of the sources (default: recognised by the name of the first, or the corpus's)"
    )
    encoding: Annotated[str | None, Value("NAME")] = Field(
        None,
        description="encoding of files of text that have no byte order mark, such as cp1252, shift_jis or utf-16-le "
        "(default: as in the corpus)",
    )
    separator: Annotated[str | None, Value("SIGN")] = Field(
        None,
        description="separator of tables: a character such as `;` or `|`, or tab (default: as in the corpus)",
    )
    tokenizer: Tokenizer = Field(
        None,
        description="needed again if the corpus was ingested with `tokenizer`: code named in a corpus never runs "
        "without your request",
    )
    headings: Pattern = Field(
        None, description="needed again if the corpus was ingested with `segments` headings:REGEX"
    )
    max_decompressed: Annotated[Size, Value("SIZE", unit="bytes", text=True)] = Field(
        None, description="refuse a compressed file that expands to more than this (default: as for ingest)"
    )


class SplitOptions(Options):
    """Held-out tokens, documents or labels."""

    fraction: Annotated[float | None, Value("F", expected="a share between 0 and 1")] = Field(
        None, description="probability that a token is held out, or a document with `documents` (default: 0.1)"
    )
    documents: bool = Field(False, description="hold out complete documents, or vectors, instead of tokens")
    folds: Annotated[int | None, Value("K")] = Field(
        None, description="cross-validation: divide the documents, or vectors, into K folds and hold out one of them"
    )
    fold: Annotated[int | None, Value("I")] = Field(None, description="the fold to hold out, from 0 to K-1")
    drop_labels: Annotated[float | None, Value("F", expected="a share above 0, and at most 1")] = Field(
        None, description="probability that a label is held out; all tokens stay in both parts"
    )
    field: Annotated[str | None, Value("NAME")] = Field(
        None,
        description="with `drop_labels`: the field of labels, or the covariate, to drop from (default: all labels)",
    )
    seed: Annotated[int, Value("S")] = Field(0, description="seed of the random split")


class SimulateOptions(Options):
    """Size of a corpus drawn from a family's generative model."""

    documents: Annotated[int, Value("D")] = Field(description="number of documents, or vectors")
    words: Annotated[int, Value("W")] = Field(description="size of the vocabulary, or number of columns")
    tokens: Annotated[float | None, Value("N")] = Field(
        None, description="mean number of tokens of a document; required unless the family models vectors"
    )
    seed: Annotated[int, Value("S")] = Field(0, description="seed of the random numbers")
    shard_tokens: ShardTokens = Field(
        None, description="approximate number of tokens in a shard (default: as for ingest)"
    )


class ReadingOptions(Options):
    """Differences between new texts and the documents that a model was fitted to."""

    heading = "texts for a model (by default read like the model's documents)"
    format: Annotated[str | None, Value("FORMAT")] = Field(
        None,
        description="format of the texts (default: recognised by the name of the first, or the format of the "
        "model's documents)",
    )
    encoding: Annotated[str | None, Value("NAME")] = Field(
        None,
        description="encoding of files of text that have no byte order mark, such as cp1252, shift_jis or utf-16-le "
        "(default: as the model's documents)",
    )
    separator: Annotated[str | None, Value("SIGN")] = Field(
        None,
        description="separator of tables: a character such as `;` or `|`, or tab (default: as the model's documents)",
    )
    id: FieldName = Field(None, description="field of the document's id")
    text: FieldName = Field(None, description="field of the text")
    vocabulary: Annotated[Words, Value("FILE", text=True)] = Field(
        None,
        description="for files of word counts: the words that their numbers stand for, if there is no vocabulary file "
        "next to them",
    )
    tokenizer: Tokenizer = Field(
        None,
        description="needed again if the model's documents were read with `tokenizer`: code named in a model never "
        "runs without your request",
    )
    headings: Pattern = Field(
        None, description="needed again if the model's documents were read with segments headings:REGEX"
    )
    bad_bytes: Literal["error", "replace"] | None = Field(
        None, description="text that is not UTF-8: stop with an error, or replace the invalid bytes"
    )


# Options of `ingest` that readers take; the other fields of `ReadOptions` follow from them
READING = tuple(field.name for field in fields(ReadOptions) if field.name in IngestOptions.model_fields)
