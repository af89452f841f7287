"""Reader of SVMlight and libsvm files: a line a document, ``LABEL[,LABEL ...] INDEX:COUNT INDEX:COUNT ... # comment``.

Indices begin at 1, or at 0 if any of the files read together has the index 0. A ``qid`` is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from collapsium.storage.corpus.shard import EXTRAS, Documents
from collapsium.storage.corpus.writer import numbered_ids
from collapsium.storage.errors import InputError
from collapsium.storage.io.encodings import NAME_IT
from collapsium.storage.readers.base import INT32_MAX, open_text, reading, vocabulary_near
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts.values import is_missing

CHUNK_PAIRS = 1_000_000  # pairs
FIELD = "label"
_ZERO = re.compile(rb"\s0+:")


def index_base(paths: Sequence[str], options: ReadOptions) -> int:
    """Return the first index of files that share a vocabulary."""
    if options.index_base is not None:
        return options.index_base
    for path in paths:
        with reading(path), open_text(path, options) as handle:
            if any(_ZERO.search(line.partition(b"#")[0]) for line in handle):
                return 0
    return 1


class SVMlightSource:
    """One SVMlight file, plain or compressed."""

    def __init__(self, path: str, options: ReadOptions) -> None:
        self.name, self._options = path, options
        self._first = index_base([path], options)
        self._words = vocabulary_near(path, ["vocab.txt"], options)

    def words(self) -> list[str]:
        """Return the vocabulary in the order of its ids."""
        return self._words

    def documents(self) -> Iterator[Documents]:
        """Yield chunks of documents with about a million pairs each."""
        rows: list[dict[int, int]] = []
        labels: list[list[str]] = []
        waiting, written = 0, 0
        with reading(self.name), open_text(self.name, self._options) as handle:
            for line, data in enumerate(handle, start=1):
                text = data.partition(b"#")[0].split()
                if not text:
                    continue
                labels.append(self._decoded(text[0], line).split(","))
                rows.append(self._parse(text[1:], line))
                waiting += len(rows[-1])
                if waiting >= CHUNK_PAIRS:
                    yield _documents(rows, labels, written)
                    written, rows, labels, waiting = written + len(rows), [], [], 0
        if rows:
            yield _documents(rows, labels, written)

    def _decoded(self, label: bytes, line: int) -> str:
        try:
            return label.decode()
        except UnicodeDecodeError as error:
            raise InputError(self.name, f"expected UTF-8 text ({error}); {NAME_IT}", f"line {line}") from None

    def _parse(self, pairs: list[bytes], line: int) -> dict[int, int]:
        row: dict[int, int] = {}
        for pair in pairs:
            index, colon, value = pair.partition(b":")
            if index == b"qid":
                continue
            try:
                word, count = int(index) - self._first, float(value)
            except ValueError:
                raise self._error(line, "expected INDEX:COUNT", pair) from None
            if not colon or not 0 <= word < len(self._words):
                last = self._first + len(self._words) - 1
                raise self._error(line, f"expected an index from {self._first} to {last}", pair)
            if not 0 <= count <= INT32_MAX or count != int(count):
                raise self._error(line, "expected a count, a whole number", pair)
            if word in row:
                raise self._error(line, "expected each index once", pair)
            row[word] = int(count)
        return {word: row[word] for word in sorted(row) if row[word]}

    def _error(self, line: int, expected: str, text: bytes) -> InputError:
        return InputError(self.name, f"{expected}, found {text[:40].decode('utf-8', 'replace')!r}", f"line {line}")


def _documents(rows: list[dict[int, int]], labels: list[list[str]], after: int) -> Documents:
    pairs_of_labels = [[{"field": FIELD, "value": value} for value in one if not is_missing(value)] for one in labels]
    return Documents(
        numbered_ids(1 + after, len(rows)),
        np.cumsum([0, *map(len, rows)], dtype=np.int64),
        np.array([word for row in rows for word in row], dtype=np.int32),
        np.array([count for row in rows for count in row.values()], dtype=np.int32),
        {"labels": pa.array(pairs_of_labels, EXTRAS["labels"])},
    )
