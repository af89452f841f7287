"""Interface of readers: sources of documents that can be read repeatedly, input files and vocabularies."""

from __future__ import annotations

import io
import lzma
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol, cast

import fsspec
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.vocabulary import PARQUET_MAGIC, read_words, words_of_column
from collapsium.storage.corpus.word_rule import spelled
from collapsium.storage.errors import AbsentError, InputError, NoVocabularyError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.names import is_name
from collapsium.storage.io.parquet.bounded_file import LEAST_LIMIT, RATIO
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.units import size

INT32_MAX = 2**31 - 1
EMPTY_PER_PAIR, PAIR_ALLOWANCE = 20, 50_000
"""Most documents per pair of a file, after 50,000 is added to its number of pairs."""


class Source(Protocol):
    """Documents of one or more files of one format."""

    @property
    def name(self) -> str:
        """Return the name of the source for error messages."""

    def words(self) -> list[str]:
        """Return the vocabulary in the order of its ids."""

    def documents(self) -> Iterator[Documents]:
        """Yield the documents in chunks that fit in memory; each call starts at the first."""


def open_input(path: str, limit: int | None = None) -> IO[bytes]:
    """Open a file at any fsspec URL for reading, decompressed according to its name.

    Parameters
    ----------
    path : str
        Local path or URL.
    limit : int, optional
        Limit of the decompressed bytes; by default `RATIO` times the size, and at least `LEAST_LIMIT`.

    Returns
    -------
    file
        A binary file. Reading beyond the limit raises `InputError`.

    Raises
    ------
    AbsentError
        The file does not exist.
    InputError
        The path is a folder, a pipe or a device, the file is not readable, or its compression is unknown.
    """
    if not is_name(path):
        raise AbsentError(f"{path[:200]!r}: no file can have a name with NUL or half of a surrogate pair")
    try:
        opened = fsspec.open(path, "rb", compression="infer")
        if isinstance(opened.fs, LocalFileSystem):
            _require_file(path, opened.path)
        handle = cast(IO[bytes], opened.open())
        if opened.compression is None and not path.endswith(".zst"):
            return handle
        # fsspec reads Zstandard only if a further package is installed.
        if opened.compression is None:
            handle = cast(IO[bytes], pa.CompressedInputStream(handle, "zstd"))
        allowed = max(LEAST_LIMIT, RATIO * int(opened.fs.size(opened.path) or 0)) if limit is None else limit
    except (FileNotFoundError, NotADirectoryError):
        raise AbsentError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(path, "expected a file, found a folder") from None
    except PermissionError:
        raise InputError(path, "may not be read (permission denied)") from None
    except InputError:
        raise
    except ValueError as error:
        raise InputError(path, f"cannot be decompressed ({error})") from None
    return cast(IO[bytes], io.BufferedReader(_Limited(handle, path, allowed), 1 << 20))


def _require_file(path: str, place: str) -> None:
    """Refuse folders, pipes and devices, which may never end; names of files may come out of a record."""
    mode = Path(place).stat().st_mode
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise InputError(path, f"expected a file, found {kind}")


class _Limited(io.RawIOBase):
    """A decompressed file with a limit, because a small compressed file can expand to any size."""

    def __init__(self, handle: IO[bytes], path: str, limit: int) -> None:
        self._handle, self._path, self._left, self._limit = handle, path, limit, limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        data = self._handle.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise InputError(
                self._path,
                f"more than {size(self._limit)} come out of the compressed file, as of one that is made to fill "
                "memory and disk; if it is to be trusted, raise the limit (`max_decompressed`)",
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._handle.close()
        super().close()


def require_plausible(path: str, documents: int, pairs: int, where: str) -> None:
    """Raise an error if nearly all documents would be empty, because empty documents use memory.

    Parameters
    ----------
    path : str
        The file.
    documents, pairs : int
        Numbers of documents and of pairs in the file's header.
    where : str
        Place of these numbers in the file, for the error.

    Raises
    ------
    InputError
        The number of documents is implausible for the number of pairs.
    """
    if documents > EMPTY_PER_PAIR * (pairs + PAIR_ALLOWANCE):
        raise InputError(
            path, f"expected about as many documents as its {pairs} pairs can fill, found {documents}", where
        )


def read_vocabulary_file(path: str, limit: int | None = None) -> list[str]:
    """Read a vocabulary from a file with one word a line, or from a column of a Parquet file.

    Parameters
    ----------
    path : str
        Local path or URL.
    limit : int, optional
        As for `open_input`.

    Returns
    -------
    list of str
        The words in the order of their ids; the first line or row is word 0.

    Raises
    ------
    AbsentError
        The file does not exist.
    InputError
        A word is empty or repeated, or the Parquet file has no column of words.
    """
    with reading(path), open_input(path, limit) as handle:
        data = handle.read()
    return words_of_column(path, data, limit) if data.startswith(PARQUET_MAGIC) else read_words(path, data)


def required_names(options: ReadOptions) -> list[str] | None:
    """Return the entries of the option `vocabulary` as they are written; None if the option is not set."""
    if isinstance(options.vocabulary, tuple):
        return list(options.vocabulary)
    return None if options.vocabulary is None else read_vocabulary_file(options.vocabulary, options.max_decompressed)


def required_words(options: ReadOptions) -> list[str] | None:
    """Return the words of the option `vocabulary`, as the word rule spells them; None if the option is not set.

    Raises
    ------
    AbsentError
        The file does not exist.
    InputError
        The file is not a vocabulary, or two of its words differ only in what the word rule makes the same.
    """
    names = required_names(options)
    if names is None:
        return None
    return _spelled(options.vocabulary if isinstance(options.vocabulary, str) else "vocabulary", names, options)


def _spelled(path: str, names: list[str], options: ReadOptions) -> list[str]:
    """Return the words of a vocabulary as the word rule spells them, all distinct."""
    words = [spelled(name, options.word_rule) for name in names]
    if len(set(words)) < len(words):
        first: dict[str, str] = {}
        for name, word in zip(names, words, strict=True):
            if word in first:
                raise InputError(
                    path,
                    f"the words {first[word]!a} and {name!a} are one word, {word!r}: they differ only in their "
                    "Unicode form, apostrophes or invisible characters; keep one of them",
                )
            first[word] = name
    return words


def vocabulary_near(path: str, names: list[str], options: ReadOptions) -> list[str]:
    """Return the words of the option `vocabulary`, or of the first existing file of `names` in the source's folder.

    Parameters
    ----------
    path : str
        The source.
    names : list of str
        Usual names of vocabulary files of the format.
    options : ReadOptions
        Options of reading.

    Returns
    -------
    list of str
        The words.

    Raises
    ------
    NoVocabularyError
        The option is not set, and no such file exists.
    InputError
        The file is not a vocabulary.
    """
    words = required_words(options)
    if words is not None:
        return words
    head, _, _ = path.rpartition("/")
    folder = Folder(head or ".")
    for name in names:
        if folder.exists(name):
            path_of_words = f"{head}/{name}" if head else name
            return _spelled(path_of_words, read_vocabulary_file(path_of_words, options.max_decompressed), options)
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
    raise InputError(again, "the same source is given twice")


class reading:  # noqa: N801 - used as a statement: `with reading(path):`
    """Replace exceptions about a damaged or unreadable file by one error that names the file.

    Parameters
    ----------
    path : str
        The file.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        """Enter the block; nothing is opened."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise an error that names the file, unless the exception is already one of this package."""
        damage = (EOFError, zlib.error, lzma.LZMAError)
        if isinstance(error, damage) or type(error).__name__ == "ZstdError":
            raise InputError(self.path, f"the compressed file is cut short or damaged ({error})") from None
        if isinstance(error, OSError) and type(error).__name__ in ("BadGzipFile", "OSError"):
            raise InputError(self.path, f"cannot be read ({error})") from None
