"""The vocabulary of a corpus: its words in the order of their ids."""

from __future__ import annotations

import hashlib
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from collapsium.storage.corpus.manifest import VocabularyRecord
from collapsium.storage.corpus.parquet import FAULTS, number_column, text_column
from collapsium.storage.corpus.word_rule import RULE, spelled
from collapsium.storage.errors import DamagedError, InputError, near
from collapsium.storage.io.encodings import NAME_IT, decode_text
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.parquet import BoundedFile, number_array, string_array
from collapsium.storage.printable import NUMBER, short

FILE = "vocabulary.parquet"
MOST_COUNTED = 1 << 62  # Largest number of documents or tokens of a word
MAX_NAMED = 5  # Unknown words that a message names

PARQUET_MAGIC = b"PAR1"
_BED_HEADERS = ("#", "track", "browser")  # Beginnings of lines of a BED file that are no regions
COLUMNS = ("word", "words", "term", "terms", "token", "tokens")  # Names of a column of words


@dataclass(frozen=True, repr=False)
class Vocabulary:
    """Words with their numbers of documents and tokens."""

    words: list[str]  # Word of each id
    # Number of documents with each word, and of its tokens; int64 (words,)
    documents: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        shown = short(tuple(self.words)).strip("()").rstrip(",")
        return f"Vocabulary({len(self):,} words: {shown})" if self.words else "Vocabulary(0 words)"

    def write(self, folder: Folder, *, tagged: bool = False) -> VocabularyRecord:
        """Write the vocabulary's file and return its record for the manifest."""
        counts = {"documents": number_array(self.documents), "tokens": number_array(self.tokens)}
        table = pa.table({"word": string_array(self.words), **counts})
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="zstd", store_schema=False)
        digest = hashlib.sha256(sink.getvalue()).hexdigest()
        file = FILE.replace(".", f"-{digest[:12]}.") if tagged else FILE
        folder.write(file, sink.getvalue())
        return VocabularyRecord(file=file, words=len(self), sha256=digest, words_sha256=words_digest(self.words))


def named_unknown(unknown: Sequence[str], words: Sequence[str]) -> str:
    """Return a few of the words that a vocabulary does not have, each with the nearest words that it has."""
    named = []
    for word in unknown[:MAX_NAMED]:
        # Similar words begin alike, and a comparison with all words would take long.
        first = word[:1].lower()
        alike = [word for word in words if word[:1].lower() == first]
        named.append(f"{word!r}{near(word, alike, 2)}")
    more = f" and {len(unknown) - MAX_NAMED:,} more" if len(unknown) > MAX_NAMED else ""
    return f"{', '.join(named)}{more}"


def as_spelled_in(vocabulary: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return words as a vocabulary spells them, if it contains them in another Unicode form or with other apostrophes.

    Distinct words stay distinct, so that no two of them count as one word of the vocabulary.
    """
    exact, by_spelling = set(vocabulary), {spelled(word, RULE): word for word in vocabulary}
    taken, spellings = set(words), []
    for word in words:
        spelling = word if word in exact else by_spelling.get(spelled(word, RULE), word)
        spellings.append(word if spelling in taken else spelling)
        taken.add(spelling)
    return spellings


def words_digest(words: list[str]) -> str:
    """Return the SHA-256 of the words alone, in their order."""
    digest = hashlib.sha256()
    for word in words:
        digest.update(word.encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def read_vocabulary(folder: Folder, record: VocabularyRecord) -> Vocabulary:
    """Read a vocabulary and check it against the manifest."""
    path = f"{folder.url}/{record.file}"
    data = folder.read(record.file)
    if hashlib.sha256(data).hexdigest() != record.sha256:
        raise DamagedError(path, "the bytes do not have the digest of the manifest; the file is damaged")
    return parse_vocabulary(data, record.words, path)


def parse_vocabulary(data: bytes, words: int, path: str) -> Vocabulary:
    """Decode the bytes of a vocabulary's file, which may be untrusted."""
    try:
        file = BoundedFile(io.BytesIO(data))
        if file.rows != words:
            raise DamagedError(path, f"{file.rows} words, where the manifest has {words}")
        table = file.table()
        if table.num_rows != words:
            raise DamagedError(path, f"{table.num_rows} words, where the manifest has {words}")
        vocabulary = Vocabulary(
            text_column(table, "word", path),
            number_column(table, "documents", MOST_COUNTED, path),
            number_column(table, "tokens", MOST_COUNTED, path),
        )
    except DamagedError:
        raise
    except FAULTS as error:
        raise DamagedError(path, f"expected the columns word, documents, tokens ({error})") from None
    return vocabulary


def read_words(path: str, data: bytes, encoding: str | None = None) -> list[str]:
    """Read a vocabulary file with one word per line; the first line is word 0.

    If lines have tabs, they must be the features of a 10x matrix (``features.tsv``, ``genes.tsv``): an id, a name and
    further columns. The words are then the names, or the ids where several features share a name. The words of a BED
    file (``peaks.bed``) are its regions, as in chr1:500-1000.
    """
    try:
        text = decode_text(data, encoding)
    except UnicodeDecodeError as error:
        raise InputError(path, f"expected {encoding or 'UTF-8'} text ({error}); {NAME_IT}") from None
    # Only line ends separate lines, unlike in `str.splitlines`, which also splits at other Unicode characters.
    words = re.split("\r\n?|\n", text)
    if not words[-1]:
        words.pop()
    has_tabs = any("\t" in word for word in words)
    if has_tabs and ".bed" in path.rpartition("/")[2]:
        lines, words = words, []
        for place, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith(_BED_HEADERS):
                continue
            row = line.split("\t")
            if len(row) < 3 or not (row[1].isdecimal() and row[2].isdecimal()):
                expected = f"expected a chromosome, a start and an end, found {line[:80]!r}"
                raise InputError(path, expected, f"line {place}")
            words.append(f"{row[0]}:{row[1]}-{row[2]}")
    elif has_tabs:
        words = _features(path, words)
    _require_distinct(path, words, "line")
    return words


def _features(path: str, lines: list[str]) -> list[str]:
    """Return the words of lines of columns, as 10x writes features."""
    rows = [line.split("\t") for line in lines]
    width = min(map(len, rows))
    for place, row in enumerate(rows, start=1):
        # A number is a word's count in a table that another program wrote.
        if len(row) > 1 and (len(row) != width or not row[1].strip() or NUMBER.fullmatch(row[1].strip())):
            raise InputError(
                path,
                "expected one word, or id, name and type of a feature as 10x writes them, found "
                f"{lines[place - 1][:80]!r}; write a file with the words alone",
                f"line {place}",
            )
    counts = Counter(name for _, name, *_ in rows)
    return [name if counts[name] == 1 else feature for feature, name, *_ in rows]


def words_of_column(path: str, data: bytes, limit: int | None = None) -> list[str]:
    """Return the words of a Parquet file, such as the vocabulary of a corpus."""
    try:
        file = BoundedFile(io.BytesIO(data), limit)
        plain = {field.name: field.type for field in file.schema}
        plain.update({name: kind.value_type for name, kind in plain.items() if pa.types.is_dictionary(kind)})
        strings = [field.name for field in file.schema if plain[field.name] in (pa.string(), pa.large_string())]
        named = [name for name in COLUMNS if name in strings] or (strings if len(strings) == 1 else [])
        if not named:
            present = ", ".join(file.schema.names[:12]) or "none"
            raise InputError(path, f"expected a column 'word' of strings, found the columns {present}")
        words: list[str | None] = file.table([named[0]]).column(0).to_pylist()
    except InputError:
        raise
    except FAULTS as error:
        raise InputError(path, f"expected Parquet with a column 'word' ({error})") from None
    spelled = ["" if word is None else word for word in words]
    _require_distinct(path, spelled, "row")
    return spelled


def _require_distinct(path: str, words: list[str], unit: str) -> None:
    """Raise an error for an empty or repeated word; `unit` is a line or row of the file."""
    seen: dict[str, int] = {}
    for place, word in enumerate(words, start=1):
        if not word.strip():
            raise InputError(path, f"expected a word, found an empty {unit}", f"{unit} {place}")
        if word in seen:
            raise InputError(path, f"{word!r} is already on {unit} {seen[word]}", f"{unit} {place}")
        seen[word] = place
