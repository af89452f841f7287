"""Readers of the text formats of word counts: UCI bags of words, LDA-C and SVMlight.

A format is a class with `name`, `words` and `documents` (`Source`) in `READERS`, and a line in `FORMATS`.
"""

from __future__ import annotations

import abc
import io
import math
import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from collapsium.storage.corpus.shard import EXTRAS, Documents
from collapsium.storage.corpus.writer import numbered_ids
from collapsium.storage.errors import InputError
from collapsium.storage.io.encodings import NAME_IT
from collapsium.storage.readers.base import (
    EXCESSIVE,
    INT32_MAX,
    open_text,
    reading,
    require_plausible,
    vocabulary_near,
)
from collapsium.storage.readers.compression import PACKED
from collapsium.storage.readers.read_options import Guess, ReadOptions
from collapsium.storage.readers.texts.fields import is_missing

CHUNK_PAIRS = 1_000_000  # Pairs of the documents that are read at once
BLOCK = 1 << 23  # Bytes of a UCI file that are parsed at once
HEADER = ("the number of documents", "the number of words", "the number of pairs")
FIELD = "label"
_ZERO = re.compile(rb"(?:^|\s)0+:")
_PAIR = re.compile(rb"(?:\d+|qid):")  # Begins a pair, or a query's id, where a line has no label


class UCISource:
    """One UCI bag of words: three header lines (documents, words, pairs), then lines ``DOCUMENT WORD COUNT``.

    Ids begin at 1; pairs are sorted by document and word. Documents without a line are empty and are retained.
    """

    guesses: tuple[Guess, ...] = ()

    def __init__(self, path: str, options: ReadOptions) -> None:
        self.name, self._options = path, options
        with reading(path), open_text(path, options) as handle:
            lines = [handle.readline() for _ in HEADER]
        for number, (line, expected) in enumerate(zip(lines, HEADER, strict=True), start=1):
            if not line.strip().isdigit() or len(line.strip()) > 18:
                fault = f"expected {expected}, found {_shown(line)}; is this a UCI bag of words?"
                raise InputError(path, fault, f"line {number}")
        self._shape = tuple(int(line.strip()) for line in lines)
        if self._shape[0] > INT32_MAX or self._shape[1] > INT32_MAX:
            raise InputError(path, f"expected at most {INT32_MAX} documents and words", "header")
        require_plausible(path, self._shape[0], self._shape[2], "line 1")
        stem = path.rsplit("/", 1)[-1].removeprefix("docword.")
        for ending in (*PACKED, ".txt"):
            stem = stem.removesuffix(ending)
        names = [f"vocab.{'.'.join(stem.split('.')[:n])}.txt" for n in range(stem.count(".") + 1, 0, -1)]
        self._words = vocabulary_near(path, names, options)
        if len(self._words) != self._shape[1]:
            raise InputError(
                path, f"the header names {self._shape[1]} words, the vocabulary has {len(self._words)}", "line 2"
            )

    def words(self) -> list[str]:
        """Return the vocabulary in the order of its ids."""
        return self._words

    def documents(self) -> Iterator[Documents]:
        """Yield chunks of documents, each from some megabytes of the file."""
        written, pairs = 0, 0  # documents yielded, pairs read
        rest: npt.NDArray[np.int64] = np.zeros((3, 0), dtype=np.int64)
        with reading(self.name), open_text(self.name, self._options) as handle:
            for _ in range(3):
                handle.readline()
            while block := handle.read(BLOCK):
                block += handle.readline()
                if len(block) < BLOCK:
                    # Empty lines at the end of the file are valid.
                    block = block.rstrip() + b"\n"
                    if block == b"\n":
                        break
                rows = self._parse(block, first_line=pairs + 4)
                previous = (int(rest[0, -1]), int(rest[1, -1])) if rest.size else (written, 0)
                self._check(rows, block, pairs + 4, previous)
                pairs += rows.shape[1]
                rest = np.concatenate([rest, rows], axis=1)
                # The last document may continue in the next block.
                done = int(rest[0, -1]) - 1 if rest.size else written
                cut = int(np.searchsorted(rest[0], done, side="right"))
                require_plausible(self.name, done, pairs, f"line {pairs + 3}")
                if done > written:
                    yield self._documents(rest[:, :cut], written, done)
                    rest, written = rest[:, cut:], done
        if pairs != self._shape[2]:
            raise InputError(self.name, f"expected {self._shape[2]} pairs as line 3 says, found {pairs}; cut short?")
        if self._shape[0] > written:
            yield self._documents(rest, written, self._shape[0])

    def _documents(self, rows: npt.NDArray[np.int64], after: int, last: int) -> Documents:
        offsets = np.searchsorted(rows[0], np.arange(after + 1, last + 2)).astype(np.int64)
        return Documents(
            numbered_ids(1 + after, last - after),
            offsets,
            (rows[1] - 1).astype(np.int32),
            rows[2].astype(np.int32),
        )

    def _parse(self, block: bytes, first_line: int) -> npt.NDArray[np.int64]:
        """Parse a block at once; parse an invalid block again by lines, to find the line for the error."""
        try:
            table = pyarrow.csv.read_csv(
                io.BytesIO(block),
                pyarrow.csv.ReadOptions(column_names=["document", "word", "count"], use_threads=False),
                pyarrow.csv.ParseOptions(delimiter=" ", quote_char=False, ignore_empty_lines=False),
                pyarrow.csv.ConvertOptions(column_types={n: pa.int64() for n in ("document", "word", "count")}),
            )
        except (pa.ArrowException, ValueError):
            return self._parse_slowly(block, first_line)
        if any(column.null_count for column in table.columns):
            return self._parse_slowly(block, first_line)
        return np.stack([np.asarray(column, dtype=np.int64) for column in table.columns])

    def _parse_slowly(self, block: bytes, first_line: int) -> npt.NDArray[np.int64]:
        rows = []
        for line, text in enumerate(block.splitlines(), start=first_line):
            fields = text.split()
            try:
                document, word, count = map(int, fields)
            except ValueError:
                shown = _shown(text) if text else "an empty line"
                expected = f"expected three whole numbers, found {shown}"
                raise InputError(self.name, expected, f"line {line}") from None
            if max(document, word, count, -document, -word, -count) > 2**62:
                raise InputError(self.name, "the number is too large", f"line {line}")
            rows.append((document, word, count))
        return np.array(rows, dtype=np.int64).reshape(-1, 3).T

    def _check(self, rows: npt.NDArray[np.int64], block: bytes, first_line: int, previous: tuple[int, int]) -> None:
        document, word, count = rows
        before = np.concatenate([[previous[0]], document[:-1]])
        word_before = np.concatenate([[previous[1]], word[:-1]])
        faults = (
            ((document < 1) | (document > self._shape[0]), f"expected a document from 1 to {self._shape[0]}"),
            ((word < 1) | (word > self._shape[1]), f"expected a word from 1 to {self._shape[1]}"),
            (count < 1, "expected a count of 1 or more"),
            (count > INT32_MAX, EXCESSIVE),
            (
                (document < before) | ((document == before) & (word <= word_before)),
                "out of order: expected pairs sorted by document, then word, each once",
            ),
        )
        wrong = np.stack([fault for fault, _ in faults])
        if wrong.any():
            row = int(np.flatnonzero(wrong.any(axis=0))[0])
            expected = next(text for fault, text in faults if fault[row])
            text = block.split(b"\n", row + 1)[row]
            raise InputError(self.name, f"{expected}, found {_shown(text)}", f"line {first_line + row}")


def _shown(text: bytes) -> str:
    shown = text.decode("utf-8", "replace").strip()
    if shown:
        return repr(shown[:40] + ("..." if len(shown) > 40 else ""))
    return "an empty line" if text else "the end of the file"


# Word and count of each pair of a document, as rows; and its labels, if the format has any
Line: TypeAlias = tuple[npt.NDArray[np.int64], list[str] | None]


class LineSource(abc.ABC):
    """A file of counts with a document on each line, which a subclass parses."""

    guesses: tuple[Guess, ...] = ()

    def __init__(self, path: str, options: ReadOptions) -> None:
        self.name, self._options = path, options
        with reading(path), open_text(path, options) as handle:
            handle.read(1)
        self._words = vocabulary_near(path, ["vocab.txt"], options)

    def words(self) -> list[str]:
        """Return the vocabulary in the order of its ids."""
        return self._words

    def documents(self) -> Iterator[Documents]:
        """Yield chunks of documents with about a million pairs each."""
        lines: list[Line] = []
        waiting, written = 0, 0
        with reading(self.name), open_text(self.name, self._options) as handle:
            for number, text in enumerate(handle, start=1):
                line = self._parse(text, number)
                if line is None:
                    continue
                lines.append(line)
                waiting += line[0].shape[1]
                if waiting >= CHUNK_PAIRS:
                    yield self._documents(lines, written)
                    written, lines, waiting = written + len(lines), [], 0
        if lines:
            yield self._documents(lines, written)

    def _documents(self, lines: list[Line], after: int) -> Documents:
        offsets = np.cumsum([0, *(pairs.shape[1] for pairs, _ in lines)], dtype=np.int64)
        words, counts = np.concatenate([pairs for pairs, _ in lines], axis=1).astype(np.int32)
        extras = {}
        if lines[0][1] is not None:
            labels = [[value for value in values or () if not is_missing(value)] for _, values in lines]
            rows = [[{"field": FIELD, "value": value} for value in values] for values in labels]
            extras["labels"] = pa.array(rows, EXTRAS["labels"])
        return Documents(numbered_ids(1 + after, len(lines)), offsets, words, counts, extras)

    @abc.abstractmethod
    def _parse(self, text: bytes, number: int) -> Line | None:
        """Return the document of a line; None if there is none."""

    def _error(self, number: int, expected: str, text: bytes | None = None) -> InputError:
        shown = "" if text is None else f", found {text[:40].decode('utf-8', 'replace')!r}"
        return InputError(self.name, expected + shown, f"line {number}")


class LDACSource(LineSource):
    """One LDA-C file: one line per document, ``PAIRS WORD:COUNT WORD:COUNT ...``, words numbered from 0.

    A line ``0`` is an empty document, which is retained.
    """

    def _parse(self, text: bytes, number: int) -> Line:
        head, *fields = text.split() or [b""]
        try:
            pairs = int(head)
        except ValueError:
            raise self._error(number, "expected a document's number of pairs first, 0 if it is empty", head) from None
        if pairs != len(fields):
            raise self._error(number, f"expected {pairs} pairs as its first number says, found {len(fields)}")
        row = np.empty((2, pairs), dtype=np.int64)
        for place, field in enumerate(fields):
            word, _, count = field.partition(b":")
            try:
                row[:, place] = int(word), int(count)
            except (ValueError, OverflowError):
                raise self._error(number, "expected WORD:COUNT in whole numbers", field) from None
            if not 0 <= row[0, place] < len(self._words):
                raise self._error(number, f"expected a word from 0 to {len(self._words) - 1}", field)
            if row[1, place] < 1:
                raise self._error(number, "expected a count of 1 or more", field)
            if row[1, place] > INT32_MAX:
                raise self._error(number, EXCESSIVE, field)
        row = row[:, np.argsort(row[0], kind="stable")]
        again = np.flatnonzero(np.diff(row[0]) == 0)
        if again.size:
            raise self._error(number, "expected each word once", str(int(row[0, again[0]])).encode())
        return row, None


def index_base(paths: Sequence[str], options: ReadOptions) -> int:
    """Return the first index of files that share a vocabulary."""
    if options.index_base is not None:
        return options.index_base
    for path in paths:
        with reading(path), open_text(path, options) as handle:
            if any(_ZERO.search(line.partition(b"#")[0]) for line in handle):
                return 0
    return 1


class SVMlightSource(LineSource):
    """One SVMlight file: one line per document, ``LABEL[,LABEL ...] INDEX:COUNT INDEX:COUNT ... # comment``.

    Indices begin at 1, or at 0 if any of the files read together has the index 0. A ``qid`` is ignored. A line that
    begins with a pair has no label, as scikit-learn writes documents without labels.
    """

    def __init__(self, path: str, options: ReadOptions) -> None:
        super().__init__(path, options)
        self._first = index_base([path], options)

    def _parse(self, text: bytes, number: int) -> Line | None:
        head, *fields = text.partition(b"#")[0].split() or [b""]
        if not head:
            return None
        if _PAIR.match(head):
            head, fields = b"", [head, *fields]
        try:
            labels = head.decode().split(",")
        except UnicodeDecodeError as error:
            raise InputError(self.name, f"expected UTF-8 text ({error}); {NAME_IT}", f"line {number}") from None
        row: dict[int, int] = {}
        for field in fields:
            index, colon, value = field.partition(b":")
            if index == b"qid":
                continue
            try:
                word, count = int(index) - self._first, float(value)
            except ValueError:
                raise self._error(number, "expected INDEX:COUNT", field) from None
            if not colon or not 0 <= word < len(self._words):
                last = self._first + len(self._words) - 1
                raise self._error(number, f"expected an index from {self._first} to {last}", field)
            if not 0 <= count < math.inf or count != int(count):
                raise self._error(number, "expected a count, a whole number", field)
            if count > INT32_MAX:
                raise self._error(number, EXCESSIVE, field)
            if word in row:
                raise self._error(number, "expected each index once", field)
            row[word] = int(count)
        pairs = [(word, row[word]) for word in sorted(row) if row[word]]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2).T, labels
