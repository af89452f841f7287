"""Options of `collapsium ingest` that readers take."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from collapsium.storage.corpus.word_rule import FIRST_RULE
from collapsium.storage.errors import InputError, OptionError
from collapsium.storage.printable import ShortRepr


@dataclass(frozen=True, repr=False)
class ReadOptions(ShortRepr):
    """Options of a reader; command `ingest` sets them."""

    # File with one word per line, or Parquet with a column of words; or the words themselves
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
    # Fewest characters of a word; shorter words are dropped. By default all words of the tokenizer are retained.
    min_characters: int | None = None
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
    layer: str | None = None  # Layer of an AnnData object; by default its X
    # Whether the rows of a matrix are words; by default the numbers of ids and words decide
    transpose: bool | None = None
    binarise: bool = False  # True if each count above 0 counts as 1
    unknown_share: bool = False  # Whether documents have their share of words outside the vocabulary
    optional: tuple[str, ...] = ()  # Fields of titles, dates, labels and covariates that may be absent from all records


# Options for which later documents follow the guess about the first ones
FOLLOWED = ("separator", "label_separator", "header")

MISSING_VALUES = "missing values"  # Property of texts, such as NA, that are read as missing labels and numbers


@dataclass(frozen=True)
class Guess:
    """A property of the input that a reader has guessed."""

    what: str  # The property, such as ``separator``; side files say so, as in ``separator of side files``
    value: str  # What was found
    option: str = ""  # The option that overrides it, by its name in Python; empty if there is none


def distinct_guesses(*groups: Iterable[Guess]) -> tuple[Guess, ...]:
    """Return all guesses of several readers, each once, in the order in which they were made."""
    return tuple(dict.fromkeys(guess for group in groups for guess in group))


def with_guesses(options: ReadOptions, guesses: Iterable[Guess]) -> ReadOptions:
    """Return options in which a guess about earlier documents stands in place of an option that was not set.

    If files differ, such as tables with commas and with semicolons, the option stays unset.
    """
    values: dict[str, set[Any]] = {}
    for guess in guesses:
        if guess.what == guess.option and guess.option in FOLLOWED:
            values.setdefault(guess.option, set()).add(guess.value)
    return replace(
        options,
        **{
            name: distinct.pop()
            for name, distinct in values.items()
            if len(distinct) == 1 and getattr(options, name, None) is None
        },
    )


SEPARATORS = (",", "\t", ";", "|")
TAB_AND_SEMICOLON = "tab and ;"  # Separators of labels in a line of a side file, if it contains one of the two

NAMES = {"tab": "\t", "comma": ",", "semicolon": ";", "bar": "|"}
_TABS = (".tsv", ".tab")
# The line in which Excel writes the separator, above the header
_LINE = re.compile(rb'"?sep=(\\t|[^\r\n])"?[,;\t ]*(?:\r\n?|\n)', re.IGNORECASE)


def checked_separator(value: str | None, option: str = "separator") -> str | None:
    """Return a separator as it is recorded: a character, ``tab`` or ``space``; raise `OptionError` for others."""
    if value is None:
        return None
    sign = {"\\t": "\t", **NAMES}.get(value, value)
    if option == "label_separator" and sign in (" ", "space", TAB_AND_SEMICOLON):
        return "space" if sign == " " else sign
    if len(sign) != 1 or sign in '"\r\n' or sign.isalnum():
        raise OptionError(f"expected a character such as ; or |, or tab, found {value!r}", option)
    return shown(sign)


def shown(separator: str) -> str:
    """Return a separator as people write it."""
    return "tab" if separator == "\t" else separator


def separator_line(head: bytes) -> tuple[str | None, int]:
    """Return the separator in Excel's line ``sep=;``, and the length of that line; None and 0 without it."""
    match = _LINE.match(head)
    if match is None:
        return None, 0
    sign = match[1].decode("latin-1")
    return ("\t" if sign == "\\t" else sign), match.end()


def separator_of(
    path: str, line: str, option: str | None, needed: Collection[str] = (), *, side_file: bool = False
) -> tuple[str, Guess | None]:
    """Return the separator of a table, and the guess if it follows neither from the option nor from the name."""
    if "\t" in line and any(ending in path.lower().rpartition("/")[2] for ending in _TABS):
        return "\t", None
    named = None if option is None else NAMES.get(option, option)

    def worth(separator: str) -> tuple[int, bool, int]:
        try:
            names = [name.strip() for name in next(csv.reader([line], delimiter=separator), [])]
        except csv.Error:
            return -1, False, 0
        return len({*names} & {*needed}), separator == named, len(names)

    # In a tie, the first separator wins, which is the comma.
    sign = max(dict.fromkeys([*SEPARATORS, *([] if named is None else [named])]), key=worth)
    if named is not None and not side_file:
        if not worth(named)[0] and worth(sign)[0]:
            raise InputError(
                path, f"expected {shown(named)} between columns, found {shown(sign)} (`separator` {shown(sign)!r})"
            )
        return named, None
    return sign, Guess("separator of side files" if side_file else "separator", shown(sign), "separator")
