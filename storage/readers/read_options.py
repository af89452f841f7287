"""Options of `collapsium ingest` that readers take."""

from __future__ import annotations

from dataclasses import dataclass

from collapsium.storage.short_repr import ShortRepr


@dataclass(frozen=True, repr=False)
class ReadOptions(ShortRepr):
    """Options of a reader, as `ingest` sets them.

    Attributes
    ----------
    vocabulary : str, tuple of str or None
        File with one word a line, or Parquet with a column of words; or the words themselves.
    id : str or None
        Field that holds the document's id, by default ``id``; of vectors the column of ids, by default none.
    text : str or None
        Field that holds the text, by default ``text``.
    title, date : str or None
        Fields of the title and the date, by default none.
    stop_words : str or None
        ``english``, the default, ``none``, or codes of languages with commas between.
    stop_list : tuple of str
        One's own stop words, besides.
    min_letters : int or None
        Shorter words are left out; by default none, of those that the tokenizer yields.
    normalise : str or None
        ``stem:LANGUAGE`` or ``lemma:LANGUAGE``: words stand in their normal form; by default as they are written.
    normalised_by : str or None
        The library that made the forms, with its version, as `ingest` records it.
    labels : tuple of str
        Fields that are labels, each perhaps with a name for it, ``topic=topics``; of vectors columns, by name or
        number, ``class=-1``.
    covariates : tuple of str
        Fields of numbers, each perhaps with a name for it.
    tokenizer : str or None
        ``module:function``, from a text to a list of words; by default Unicode words in lower case.
    bad_bytes : str or None
        ``error``, the default, or ``replace``: what to do with text that is not UTF-8.
    values : str or None
        Of vectors: the array that holds them, where there are several.
    header : str or None
        Of vectors: ``yes`` or ``no``; by default what the first line looks like.
    max_decompressed : int or None
        Bytes that may come out of each compressed file; see `open_input`.
    index_base : int or None
        Of SVMlight: the first index, 0 or 1; by default 0 where a file has it.
    segments : str or None
        How texts are cut into segments; see `collapsium.storage.readers.texts.segment.cutter_of`. By default they are
        not.
    optional : tuple of str
        Those of the fields of titles, dates, labels and covariates that no record needs to have.
    """

    vocabulary: str | tuple[str, ...] | None = None
    id: str | None = None
    text: str | None = None
    title: str | None = None
    date: str | None = None
    stop_words: str | None = None
    stop_list: tuple[str, ...] = ()
    min_letters: int | None = None
    normalise: str | None = None
    normalised_by: str | None = None
    labels: tuple[str, ...] = ()
    covariates: tuple[str, ...] = ()
    tokenizer: str | None = None
    bad_bytes: str | None = None
    values: str | None = None
    header: str | None = None
    max_decompressed: int | None = None
    index_base: int | None = None
    segments: str | None = None
    optional: tuple[str, ...] = ()
