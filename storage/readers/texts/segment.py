"""Cut a text into segments: paragraphs, sentences, lines, or sections that begin with headings.

Segments are in the order of the text. Each has a character other than white space, and only white space is lost between
two segments. A text of white space has no segments. Each rule inspects a character once or twice, so the time is linear
in the length of the text.

A line ends at a line feed, a carriage return, or both. A blank line has only white space. A sentence ends

* at ``.``, ``!``, ``?`` or an ellipsis, with the closing quotes and brackets behind it, if white space follows and then
  a letter other than a lower-case one, a digit, a quote or a bracket; or at a blank line;
* but not at the full stop of an initial (``J. Smith``, ``U.S. Navy``), of ``e.g.``, ``i.e.`` and similar ones, or of a
  word of `ABBREVIATIONS`; nor of one of `BEFORE_NUMBERS` if a digit follows (``No. 5``, but ``He said no. Then``);
* and not if it would have no letter, so that ``1.`` or ``2.3.`` belongs to the sentence that it numbers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from collapsium.storage.errors import OptionError, suggestion
from collapsium.storage.readers.compression import PACKED


@dataclass(frozen=True)
class LeftOut:
    """Files of folders that were not read: why, how many, and the names of the first."""

    why: str
    files: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Span:
    """A file, or a part of it."""

    path: str  # Path or URL of the file
    name: str  # Path below the source; it is the id if the file is a document
    size: int  # Bytes of the file, or of its row groups in the span
    source: int = 0  # Number of the source
    # The bytes, or the row groups of Parquet, from `first` to `last` - 1; None for the entire file
    first: int = 0
    last: int | None = None
    # Fields with the same value in all records, from folders such as ``year=1987``
    constants: tuple[tuple[str, str], ...] = ()

    @property
    def packed(self) -> bool:
        """True if the file name has the ending of a compressed file."""
        return self.path.lower().endswith(PACKED)


ENTRIES = "column"
HEADINGS = "headings:"
# fmt: off
ABBREVIATIONS = frozenset({
    "al", "approx", "ca", "capt", "cf", "col", "dr", "eq", "eqn", "eqns", "eqs", "esp", "fig", "figs", "gen", "gov",
    "hon", "lt", "messrs", "mlle", "mme", "mr", "mrs", "ms", "pp", "prof", "resp", "rev", "sect", "sen", "sgt", "st",
    "viz", "vol", "vols", "vs",
})
BEFORE_NUMBERS = frozenset({
    "art", "ch", "chap", "no", "nos", "nr", "p", "par", "pt", "ref", "refs", "sec", "tab", "thm",
    "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec",
})
# fmt: on
_LINE = re.compile(r"[^\r\n]*+(?>\r\n|[\r\n]|\Z)")
_BLANK = re.compile(r"(?>\r\n|[\r\n])[^\S\r\n]*+(?=[\r\n])")
_END = re.compile(r"[.!?\u2026]([\"'\u2019\u201d\u00bb)\]}]*+)\s++")
_OPEN_QUOTES = frozenset("\"'\u2018\u201c\u201e\u00ab([{\u00bf\u00a1")
_CLOSED = frozenset(".!?\u2026")
_LETTER = re.compile(r"[^\W\d_]")
_LAST_WORD = re.compile(r"[^\W\d_]+\Z")
_LONGEST = 12  # Characters of an abbreviation, and more

Cutter = Callable[[str], list[str]]


def cutter_of(how: str) -> Cutter:
    """Return the function that cuts a text into segments."""
    if how.startswith(HEADINGS) and how != HEADINGS:
        try:
            return functools.partial(_by_headings, re.compile(how.removeprefix(HEADINGS)))
        except (re.error, OverflowError, RecursionError) as error:
            raise OptionError(f"`segments` {how}: expected a regular expression ({error})") from None
    if how in (HEADINGS, HEADINGS[:-1]):
        raise OptionError(f"`segments` {how}: expected a regular expression, such as {HEADINGS}'CHAPTER [IVXL]+'")
    if how not in _WAYS:
        near = suggestion(how.partition(":")[0], [*_WAYS, f"{HEADINGS}REGEX"])
        raise OptionError(f"`segments` {how}: there is no such way to cut texts{near}")
    return _WAYS[how]


def _cut(text: str, places: Iterable[int] = ()) -> list[str]:
    """Cut a text at places, without parts of white space."""
    bounds = [0, *places, len(text)]
    parts = [text[first:last] for first, last in pairwise(bounds)]
    return [part for part in parts if part and not part.isspace()]


def _paragraphs(text: str) -> list[str]:
    return _cut(text, (blank.end() for blank in _BLANK.finditer(text)))


def _by_headings(heading: re.Pattern[str], text: str) -> list[str]:
    places, place = [], 0
    for line in _LINE.findall(text):
        if heading.match(line.rstrip("\r\n")):
            places.append(place)
        place += len(line)
    return _cut(text, places)


def _sentences_of_paragraph(text: str) -> list[str]:
    places, seen, lettered = [], 0, False
    for match in _END.finditer(text):
        stop, end = match.start(), match.end()
        lettered = lettered or _LETTER.search(text, seen, stop) is not None
        seen = stop
        first = text[end : end + 1]
        begins = first in _OPEN_QUOTES or first.isdigit() or (first.isalpha() and not first.islower())
        if lettered and begins and (match[1] or not _goes_on(text, stop, first)):
            places.append(end)
            lettered = False
            seen = end
    return _cut(text, places)


def _goes_on(text: str, stop: int, following: str) -> bool:
    """Return True if a full stop belongs to an initial or an abbreviation."""
    before = text[max(stop - _LONGEST, 0) : stop]
    last = _LAST_WORD.search(before)
    if text[stop] != "." or last is None:
        return False
    word, ahead = last[0], before[: last.start()][-1:]
    if len(word) == 1 and (word.isupper() or ahead in _CLOSED):
        return True
    word = word.lower()
    return word in ABBREVIATIONS or (word in BEFORE_NUMBERS and following.isdigit())


_WAYS: dict[str, Cutter] = {
    "paragraphs": _paragraphs,
    "sentences": lambda text: [part for paragraph in _paragraphs(text) for part in _sentences_of_paragraph(paragraph)],
    "lines": lambda text: _cut(text, (line.end() for line in _LINE.finditer(text))),
    ENTRIES: _cut,
}
