"""Options of `collapsium ingest` that readers take."""

from __future__ import annotations

from dataclasses import dataclass

from collapsium.storage.corpus.word_rule import FIRST_RULE
from collapsium.storage.short_repr import ShortRepr


@dataclass(frozen=True, repr=False)
class ReadOptions(ShortRepr):
    """Options of a reader; command `ingest` sets them."""

    # File with one word a line, or Parquet with a column of words; or the words themselves
    vocabulary: str | tuple[str, ...] | None = None
    # Field of the document's id, by default ``id``; for vectors the column of ids, by default none
    id: str | None = None
    text: str | None = None  # Field of the text, by default ``text``
    # Fields of the title and the date, by default none
    title: str | None = None
    date: str | None = None
    # ``day`` or ``month``, which stands first in numeric dates; by default other dates show it, or nothing does
    date_order: str | None = None
    stop_words: str | None = None  # ``english`` (the default), ``none``, or codes of languages separated by commas
    stop_list: tuple[str, ...] = ()  # Further stop words of the user
    # Fewest letters of a word; shorter words are dropped. By default all words of the tokenizer are retained.
    min_letters: int | None = None
    # ``stem:LANGUAGE`` or ``lemma:LANGUAGE`` to replace words by stems or lemmas; by default words are unchanged
    normalise: str | None = None
    # Library that computed the stems or lemmas, with its version, which `ingest` records
    normalised_by: str | None = None
    # Fields of labels, each optionally with a name, as in ``topic=topics``; for vectors columns, by name or number, as
    # in ``class=-1``
    labels: tuple[str, ...] = ()
    covariates: tuple[str, ...] = ()  # Fields of numbers, each optionally with a name
    # ``module:function`` of a function from a text to a list of words; by default Unicode words in lower case
    tokenizer: str | None = None
    bad_bytes: str | None = None  # Treatment of text that is not UTF-8: ``error`` (the default) or ``replace``
    values: str | None = None  # Array of the vectors, if a file has several arrays
    header: str | None = None  # ``yes`` or ``no``, for files of vectors; by default the first line decides
    max_decompressed: int | None = None  # Limit of the decompressed bytes of each compressed file; see `open_input`
    # First index of SVMlight files, 0 or 1; by default 0 if a file has the index 0, else 1
    index_base: int | None = None
    encoding: str | None = None  # Encoding of files of text without a byte order mark, by default UTF-8
    # Separator of tables, a character or ``tab``; by default it is found in the first line of each file
    separator: str | None = None
    # Separator of labels in side files of lines; by default it is found in the lines
    label_separator: str | None = None
    # Rule that cuts texts into segments, see `collapsium.storage.readers.texts.segment.cutter_of`; by default texts are
    # not cut
    segments: str | None = None
    # Version of `collapsium.storage.corpus.word_rule`. `ingest` takes the newest; a record without a version means the
    # first.
    word_rule: int = FIRST_RULE
    optional: tuple[str, ...] = ()  # Fields of titles, dates, labels and covariates that may be absent from all records
