"""Reader of LDA-C files: a line a document, ``PAIRS WORD:COUNT WORD:COUNT ...``, words numbered from 0.

A line ``0`` is an empty document, which is retained.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.writer import numbered_ids
from collapsium.storage.errors import InputError
from collapsium.storage.readers.base import INT32_MAX, open_text, reading, vocabulary_near
from collapsium.storage.readers.read_options import ReadOptions

CHUNK_PAIRS = 1_000_000  # pairs


class LDACSource:
    """One LDA-C file, plain or compressed."""

    def __init__(self, path: str, options: ReadOptions, first_id: int = 1) -> None:
        self.name, self._first_id, self._options = path, first_id, options
        with reading(path), open_text(path, options) as handle:
            handle.read(1)
        self._words = vocabulary_near(path, ["vocab.txt"], options)

    def words(self) -> list[str]:
        """Return the vocabulary in the order of its ids."""
        return self._words

    def documents(self) -> Iterator[Documents]:
        """Yield chunks of documents with about a million pairs each."""
        rows: list[npt.NDArray[np.int64]] = []
        waiting, written = 0, 0
        with reading(self.name), open_text(self.name, self._options) as handle:
            for line, text in enumerate(handle, start=1):
                rows.append(self._parse(text, line))
                waiting += rows[-1].shape[1]
                if waiting >= CHUNK_PAIRS:
                    yield self._documents(rows, written)
                    written, rows, waiting = written + len(rows), [], 0
        if rows:
            yield self._documents(rows, written)

    def _documents(self, rows: list[npt.NDArray[np.int64]], after: int) -> Documents:
        offsets = np.cumsum([0, *(row.shape[1] for row in rows)], dtype=np.int64)
        words, counts = np.concatenate(rows, axis=1).astype(np.int32)
        return Documents(numbered_ids(self._first_id + after, len(rows)), offsets, words, counts)

    def _parse(self, text: bytes, line: int) -> npt.NDArray[np.int64]:
        head, *fields = text.split() or [b""]
        try:
            pairs = int(head)
        except ValueError:
            raise self._error(line, "expected a document's number of pairs first, 0 if it is empty", head) from None
        if pairs != len(fields):
            raise self._error(line, f"expected {pairs} pairs as its first number says, found {len(fields)}")
        row = np.empty((2, pairs), dtype=np.int64)
        for place, field in enumerate(fields):
            word, _, count = field.partition(b":")
            try:
                row[:, place] = int(word), int(count)
            except (ValueError, OverflowError):
                raise self._error(line, "expected WORD:COUNT in whole numbers", field) from None
            if not 0 <= row[0, place] < len(self._words):
                raise self._error(line, f"expected a word from 0 to {len(self._words) - 1}", field)
            if not 1 <= row[1, place] <= INT32_MAX:
                raise self._error(line, "expected a count of 1 or more", field)
        row = row[:, np.argsort(row[0], kind="stable")]
        again = np.flatnonzero(np.diff(row[0]) == 0)
        if again.size:
            raise self._error(line, "expected each word once", str(int(row[0, again[0]])).encode())
        return row

    def _error(self, line: int, expected: str, text: bytes | None = None) -> InputError:
        shown = "" if text is None else f", found {text[:40].decode('utf-8', 'replace')!r}"
        return InputError(self.name, expected + shown, f"line {line}")
