"""Interface of readers: sources of documents that can be read repeatedly, input files and vocabularies."""

from __future__ import annotations

import codecs
import io
import lzma
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, cast

import numpy as np
from fsspec.implementations.local import LocalFileSystem

from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.vocabulary import PARQUET_MAGIC, read_words, words_of_column
from collapsium.storage.corpus.word_rule import spelled
from collapsium.storage.data_types import DType
from collapsium.storage.errors import AbsentError, InputError, NoVocabularyError
from collapsium.storage.io.encodings import NAME_IT, Recoded, marked_encoding
from collapsium.storage.io.file import locate
from collapsium.storage.io.folder import Folder, is_name
from collapsium.storage.io.parquet import LEAST_LIMIT, RATIO
from collapsium.storage.readers.compression import HEAD, binary_kind, packing_of, unpacked
from collapsium.storage.readers.read_options import Guess, ReadOptions
from collapsium.storage.units import size

NOT_IN_VOCABULARY = "not in the vocabulary"
# Beginnings of the texts of the rules `Cuts.min_documents`, `max_words` and `max_document_share`
TOO_RARE, TOO_MANY, TOO_FREQUENT = "in fewer than ", "beyond ", "in more than "


@dataclass(frozen=True)
class Dropped:
    """Number of words that a rule has dropped, and of their tokens."""

    rule: str
    words: int
    tokens: int

    @property
    def unknown(self) -> bool:
        """True if the words are absent from the vocabulary because they are rare, unlike stop words."""
        return self.rule == NOT_IN_VOCABULARY or self.rule.startswith((TOO_RARE, TOO_MANY))


INT32_MAX = 2**31 - 1
EXCESSIVE = f"expected a count of at most {INT32_MAX:,}"
# Most documents per pair of a file, after 50,000 is added to its number of pairs
EMPTY_PER_PAIR, PAIR_ALLOWANCE = 20, 50_000

SURE = 4  # Characters in UTF-8 beyond ASCII that no text of another encoding makes by chance


class Source(Protocol):
    """Documents of one or more files of one format."""

    name: str  # For error messages
    guesses: tuple[Guess, ...]  # Properties of the source that the reader guessed

    def words(self) -> list[str]:
        """Return the vocabulary in the order of its ids."""

    def documents(self) -> Iterator[Documents]:
        """Yield the documents in chunks that fit in memory; each call starts at the first."""


def open_input(path: str, limit: int | None = None) -> IO[bytes]:
    """Open a file at any fsspec URL for reading, decompressed according to its first bytes."""
    handle, head, packed = _opened(path)
    return unpacked(handle, head, path, lambda: max(LEAST_LIMIT, RATIO * packed()) if limit is None else limit)


def _opened(path: str) -> tuple[IO[bytes], bytes, Callable[[], int]]:
    """Return an open file with its first bytes and a function that returns its size."""
    if not is_name(path):
        raise AbsentError(f"{path[:200]!r}: no file can have a name with NUL or half of a surrogate pair")
    try:
        fs, place = locate(path)
        if isinstance(fs, LocalFileSystem):
            # Folders, pipes and devices are refused, because they may never end, and file names may come from a record.
            mode = Path(place).stat().st_mode
            if not stat.S_ISREG(mode):
                kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
                raise InputError(path, f"expected a file, found {kind}")
        handle = cast(IO[bytes], fs.open(place, "rb"))
        try:
            head = head_of(handle)
        except ValueError:
            # A stream of unknown length cannot be rewound.
            handle = cast(IO[bytes], io.BufferedReader(fs.open(place, "rb")))
            head = head_of(handle)
        return handle, head, lambda: int(fs.size(place) or 0)
    except (FileNotFoundError, NotADirectoryError):
        raise AbsentError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(path, "expected a file, found a folder") from None
    except PermissionError:
        raise InputError(path, "may not be read (permission denied)") from None
    except (ValueError, ImportError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(path, f"cannot be opened ({error})") from None


def head_of(handle: IO[bytes]) -> bytes:
    """Return the next few thousand bytes of a file without advancing its position."""
    peek = getattr(handle, "peek", None)
    if peek is not None:
        return bytes(peek(HEAD)[:HEAD])
    place = handle.tell()
    head = handle.read(HEAD)
    handle.seek(place)
    return head


def open_text(path: str, options: ReadOptions, guesses: dict[Guess, None] | None = None) -> IO[bytes]:
    """Open a file of text for reading, decompressed and in UTF-8 without a byte order mark."""
    handle = open_input(path, options.max_decompressed)
    head = head_of(handle)
    marked = marked_encoding(head)
    if marked == "utf-8-sig":
        handle.read(len(codecs.BOM_UTF8))
        return handle
    require_text(path, head)
    encoding = marked or options.encoding
    if encoding is None or encoding == "utf-8":
        # UTF-16 and UTF-32 without a mark would be read as characters with NUL between them.
        zeros = head[::2].count(0), head[1::2].count(0)
        if len(head) >= 4 and b"\0" in head and max(zeros) * 5 >= len(head) // 2 * 2:
            width = 32 if min(zeros) * 5 > len(head) // 2 else 16
            order = "le" if head[width // 8 - 1] == 0 else "be"
            raise InputError(
                path,
                f"expected UTF-8 text, found what looks like UTF-{width} without a byte order mark; name it "
                f"(`encoding` utf-{width}-{order})",
            )
        return handle
    if marked is not None and guesses is not None:
        guesses[Guess("encoding", marked, "encoding")] = None
    # Several characters in UTF-8, which other encodings do not make by chance
    with suppress(UnicodeDecodeError):
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
        if not encoding.startswith("utf") and sum(not letter.isascii() for letter in text) >= SURE:
            expected = f"expected text in {encoding} (`encoding`), found UTF-8; read such files separately"
            raise InputError(path, expected)
    return cast(IO[bytes], io.BufferedReader(Recoded(handle, encoding), 1 << 20))


def encoding_guesses(paths: Sequence[str]) -> tuple[Guess, ...]:
    """Return the encodings of files, other than UTF-8, by their byte order marks."""
    guesses: dict[Guess, None] = {}
    for path in paths:
        with reading(path), open_input(path) as handle:
            marked = marked_encoding(head_of(handle))
        if marked not in (None, "utf-8-sig"):
            guesses[Guess("encoding", str(marked), "encoding")] = None
    return tuple(guesses)


def may_be_cut(path: str, options: ReadOptions) -> bool:
    """Return True if a file of text can be read from any of its lines: it is neither compressed nor recoded."""
    if options.encoding not in (None, "utf-8"):
        return False
    handle, head, _ = _opened(path)
    handle.close()
    return packing_of(head) is None and marked_encoding(head) in (None, "utf-8-sig")


def require_plausible(path: str, documents: int, pairs: int, where: str) -> None:
    """Raise an error if nearly all documents would be empty, because empty documents use memory."""
    if documents > EMPTY_PER_PAIR * (pairs + PAIR_ALLOWANCE):
        raise InputError(path, f"expected no more documents than its {pairs} pairs can fill, found {documents}", where)


def read_vocabulary_file(path: str, limit: int | None = None, encoding: str | None = None) -> list[str]:
    """Read a vocabulary from a file with one word per line, or from a column of a Parquet file."""
    with reading(path), open_input(path, limit) as handle:
        data = handle.read()
    kind = binary_kind(data[:HEAD])
    if kind is not None and data.startswith(PARQUET_MAGIC):
        return words_of_column(path, data, limit)
    require_text(path, data)
    return read_words(path, data, encoding)


def require_text(path: str, data: bytes) -> None:
    """Refuse bytes whose beginning shows that they are not text."""
    kind = None if marked_encoding(data[:4]) else binary_kind(data[:HEAD])
    if kind is not None:
        raise InputError(path, f"expected text, found {kind}")


def required_names(options: ReadOptions) -> list[str] | None:
    """Return the entries of the option `vocabulary` as they are written; None if the option is not set."""
    if isinstance(options.vocabulary, tuple):
        return list(options.vocabulary)
    if options.vocabulary is None:
        return None
    return read_vocabulary_file(options.vocabulary, options.max_decompressed, options.encoding)


def required_words(options: ReadOptions) -> list[str] | None:
    """Return the words of the option `vocabulary`, as the word rule spells them; None if the option is not set."""
    names = required_names(options)
    if names is None:
        return None
    return checked_words(options.vocabulary if isinstance(options.vocabulary, str) else "vocabulary", names, options)


def checked_words(path: str, names: list[str], options: ReadOptions) -> list[str]:
    """Return the words of a vocabulary as the word rule spells them, all distinct."""
    words = [spelled(name, options.word_rule) for name in names]
    if len(set(words)) < len(words):
        first: dict[str, str] = {}
        for name, word in zip(names, words, strict=True):
            if first.get(word) == name:
                raise InputError(path, f"the word {name!a} is given twice")
            if word in first:
                raise InputError(
                    path,
                    f"the words {first[word]!a} and {name!a} are one word, {word!r}: they differ only in their "
                    "Unicode form, apostrophes or invisible characters; keep one of them",
                )
            first[word] = name
    return words


def vocabulary_near(path: str, names: list[str], options: ReadOptions) -> list[str]:
    """Return the words of the option `vocabulary`, or of the first existing file of `names` in the source's folder."""
    words = required_words(options)
    if words is not None:
        return words
    head, _, _ = path.rpartition("/")
    folder = Folder(head or ".")
    for name in names:
        if folder.exists(name):
            path_of_words = f"{head}/{name}" if head else name
            words = read_vocabulary_file(path_of_words, options.max_decompressed, options.encoding)
            return checked_words(path_of_words, words, options)
    looked = f" (none of {', '.join(names)} lies beside it)" if names else ""
    raise NoVocabularyError(path, f"expected a vocabulary; name one with `vocabulary` FILE{looked}")


def distinct(paths: list[str]) -> list[str]:
    """Return the shortest endings of the paths that are distinct."""
    parts = [path.rstrip("/").split("/") for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        stems = ["/".join(part[-length:]) for part in parts]
        if len(set(stems)) == len(stems):
            return stems
    again = next(path for number, path in enumerate(paths) if path in paths[:number])
    raise InputError(again, "the same file is given twice")


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Replace exceptions about a damaged or unreadable file by one error that names the file."""
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(path, f"the compressed file is cut short or damaged ({error})") from None
    except UnicodeDecodeError as error:
        raise InputError(path, f"expected UTF-8 text ({error}); {NAME_IT}") from None
    except OSError as error:
        if type(error) is not OSError:
            raise
        raise InputError(path, f"cannot be read ({error})") from None


def require_bounded(path: str, expanded: int, packed: Callable[[], int], limit: int | None) -> None:
    """Refuse content that expands to far more than the bytes of its file, and may be made to fill memory or a disk."""
    if expanded > LEAST_LIMIT or limit is not None:
        allowed = max(LEAST_LIMIT, RATIO * packed()) if limit is None else limit
        if expanded > allowed:
            raise InputError(
                path,
                f"decompresses to more than {size(allowed)}; refusing a possible decompression bomb. If you trust the "
                "file, raise the limit (`max_decompressed`)",
            )


def read_npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, DType]:
    """Read the header of an array in NumPy's format: its shape, whether columns come first, and its dtype."""
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version}")
    header: tuple[tuple[int, ...], bool, DType] = readers[version](file)
    return header
