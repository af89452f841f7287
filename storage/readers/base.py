"""What every reader gives: a source of documents that can be read more than once."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO, Any, Protocol, cast

import fsspec
import pyarrow as pa

from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.vocabulary import PARQUET_MAGIC, read_words, words_of_column
from collapsium.storage.errors import AbsentError, InputError, NoVocabularyError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.names import is_name
from collapsium.storage.io.parquet.bounded_file import LEAST_LIMIT, RATIO
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.units import size

INT32_MAX = 2**31 - 1
EMPTY, FEW = 20, 50_000  # empty documents for each pair, and pairs that any number of documents may lack


class Source(Protocol):
    """Documents of one or more files of a format."""

    @property
    def name(self) -> str:
        """What to call the source in an error."""

    def words(self) -> list[str]:
        """Return the vocabulary in the order of its ids."""

    def documents(self) -> Iterator[Documents]:
        """Read the documents, in portions that fit in memory; each call starts anew."""


def open_input(path: str, limit: int | None = None) -> IO[bytes]:
    """Open a file at any fsspec URL for reading, decompressed as its name says.

    Parameters
    ----------
    path : str
        Local path or URL.
    limit : int, optional
        Bytes that may come out of a compressed file; by default `RATIO` times its size, and at least `LEAST_LIMIT`.

    Returns
    -------
    file
        Binary, at its beginning. Reading beyond the limit raises `InputError`.

    Raises
    ------
    AbsentError
        There is no such file.
    InputError
        It is a folder, may not be read, or is packed in a way that is not known.
    """
    if not is_name(path):
        raise AbsentError(f"{path[:200]!r}: no file can have a name with NUL or half of a surrogate pair")
    try:
        opened = fsspec.open(path, "rb", compression="infer")
        handle = cast(IO[bytes], opened.open())
        if opened.compression is None and not path.endswith(".zst"):
            return handle
        if opened.compression is None:  # which fsspec knows only with a further package
            handle = cast(IO[bytes], pa.CompressedInputStream(handle, "zstd"))
        allowed = max(LEAST_LIMIT, RATIO * int(opened.fs.size(opened.path) or 0)) if limit is None else limit
    except (FileNotFoundError, NotADirectoryError):
        raise AbsentError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(path, "expected a file, found a folder") from None
    except PermissionError:
        raise InputError(path, "may not be read (permission denied)") from None
    except ValueError as error:
        raise InputError(path, f"cannot be decompressed ({error})") from None
    return cast(IO[bytes], io.BufferedReader(_Limited(handle, path, allowed), 1 << 20))


class _Limited(io.RawIOBase):
    """A file of which no more than so many bytes are read: a small compressed file can hold any number."""

    def __init__(self, handle: IO[bytes], path: str, limit: int) -> None:
        self._handle, self._path, self._left, self._limit = handle, path, limit, limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
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
    """Refuse a number of documents that no file of so many pairs would have: each would be held, though empty.

    Parameters
    ----------
    path : str
        The file.
    documents, pairs : int
        What it says.
    where : str
        What in it says so.

    Raises
    ------
    InputError
        Nearly all of a great many documents would be empty.
    """
    if documents > EMPTY * (pairs + FEW):
        raise InputError(
            path, f"expected about as many documents as its {pairs} pairs can fill, found {documents}", where
        )


def read_vocabulary_file(path: str, limit: int | None = None) -> list[str]:
    """Read a file of words: one a line, or Parquet with a column of them.

    Parameters
    ----------
    path : str
        Local path or URL.
    limit : int, optional
        As for `open_input`.

    Returns
    -------
    list of str
        The words, the first line's or row's being word 0.

    Raises
    ------
    AbsentError
        There is no such file.
    InputError
        A word is empty or repeated, or Parquet has no column of words.
    """
    with reading(path), open_input(path, limit) as handle:
        data = handle.read()
    return words_of_column(path, data, limit) if data.startswith(PARQUET_MAGIC) else read_words(path, data)


def required_words(options: ReadOptions) -> list[str] | None:
    """Return the words that the option `vocabulary` names.

    Parameters
    ----------
    options : ReadOptions
        What the user said.

    Returns
    -------
    list of str or None
        None where the option is not set.

    Raises
    ------
    AbsentError
        There is no such file.
    InputError
        The file is no vocabulary.
    """
    if isinstance(options.vocabulary, tuple):
        return list(options.vocabulary)
    return None if options.vocabulary is None else read_vocabulary_file(options.vocabulary, options.max_decompressed)


def vocabulary_near(path: str, names: list[str], options: ReadOptions) -> list[str]:
    """Read the vocabulary that is given, or else the first of `names` that lies beside a source.

    Parameters
    ----------
    path : str
        The source.
    names : list of str
        Names under which corpora of its format carry their vocabulary.
    options : ReadOptions
        With the file that the user named, if any.

    Returns
    -------
    list of str
        The words.

    Raises
    ------
    NoVocabularyError
        None is given and none is there.
    InputError
        It is no vocabulary.
    """
    given = required_words(options)
    if given is not None:
        return given
    head, _, _ = path.rpartition("/")
    folder = Folder(head or ".")
    for name in names:
        if folder.exists(name):
            return read_vocabulary_file(f"{head}/{name}" if head else name, options.max_decompressed)
    looked = f" (none of {', '.join(names)} lies beside it)" if names else ""
    raise NoVocabularyError(path, f"expected a vocabulary; name one with `vocabulary` FILE{looked}")


def distinct(paths: list[str]) -> list[str]:
    """Return as much of the ends of paths as makes them distinct."""
    parts = [path.rstrip("/").split("/") for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        stems = ["/".join(part[-length:]) for part in parts]
        if len(set(stems)) == len(stems):
            return stems
    again = next(path for number, path in enumerate(paths) if path in paths[:number])
    raise InputError(again, "the same source is given twice")


class reading:  # noqa: N801 - used as a statement: `with reading(path):`
    """Turn what a damaged compressed or unreadable file raises into one error that names the file.

    Parameters
    ----------
    path : str
        The file.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        """Start reading."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Name the file, where the error is not one of ours already."""
        import lzma
        import zlib

        damage = (EOFError, zlib.error, lzma.LZMAError)
        if isinstance(error, damage) or type(error).__name__ == "ZstdError":
            raise InputError(self.path, f"the compressed file is cut short or damaged ({error})") from None
        if isinstance(error, OSError) and type(error).__name__ in ("BadGzipFile", "OSError"):
            raise InputError(self.path, f"cannot be read ({error})") from None
