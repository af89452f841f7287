"""What every reader gives: a source of documents that can be read more than once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Protocol, cast

import fsspec

from collapsar.storage.errors import AbsentError, InputError
from collapsar.storage.folder import Folder
from collapsar.storage.shard import Documents
from collapsar.storage.vocabulary import read_words

INT32_MAX = 2**31 - 1


class Source(Protocol):
    """Documents of one or more files of a format."""

    @property
    def name(self) -> str:
        """What to call the source in an error."""

    def words(self) -> list[str]:
        """Return the vocabulary in the order of its ids."""

    def documents(self) -> Iterator[Documents]:
        """Read the documents, in portions that fit in memory; each call starts anew."""


@dataclass(frozen=True)
class ReadOptions:
    """What `collapsar ingest` can say to a reader.

    Attributes
    ----------
    vocabulary : str or None
        File with one word a line.
    id_field, text_field : str
        Fields of JSON lines that hold the document's id and text.
    stop_words : str
        ``english`` or ``none``.
    """

    vocabulary: str | None = None
    id_field: str = "id"
    text_field: str = "text"
    stop_words: str = "english"


def open_input(path: str) -> IO[bytes]:
    """Open a file at any fsspec URL for reading, decompressed as its name says.

    Parameters
    ----------
    path : str
        Local path or URL.

    Returns
    -------
    file
        Binary, at its beginning.

    Raises
    ------
    AbsentError
        There is no such file.
    """
    try:
        return cast(IO[bytes], fsspec.open(path, "rb", compression="infer").open())
    except (FileNotFoundError, NotADirectoryError):
        raise AbsentError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(path, "expected a file, found a folder") from None
    except PermissionError:
        raise InputError(path, "may not be read (permission denied)") from None


def read_vocabulary_file(path: str) -> list[str]:
    """Read a file with one word a line.

    Parameters
    ----------
    path : str
        Local path or URL.

    Returns
    -------
    list of str
        The words, the first line's being word 0.

    Raises
    ------
    AbsentError
        There is no such file.
    InputError
        A line is empty or repeated.
    """
    with reading(path), open_input(path) as handle:
        return read_words(path, handle.read())


def vocabulary_beside(path: str, names: list[str], given: str | None) -> list[str]:
    """Read the vocabulary that is given, or else the first of `names` that lies beside a source.

    Parameters
    ----------
    path : str
        The source.
    names : list of str
        Names under which corpora of its format carry their vocabulary.
    given : str or None
        The file that the user named.

    Returns
    -------
    list of str
        The words.

    Raises
    ------
    InputError
        None is given and none is there.
    """
    if given is not None:
        return read_vocabulary_file(given)
    head, _, _ = path.rpartition("/")
    folder = Folder(head or ".")
    for name in names:
        if folder.exists(name):
            return read_vocabulary_file(f"{head}/{name}" if head else name)
    looked = f" (none of {', '.join(names)} lies beside it)" if names else ""
    raise InputError(path, f"expected a vocabulary; name one with --vocabulary FILE{looked}")


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

        if isinstance(error, (EOFError, zlib.error, lzma.LZMAError)):
            raise InputError(self.path, f"the compressed file is cut short or damaged ({error})") from None
        if isinstance(error, OSError) and type(error).__name__ in ("BadGzipFile", "OSError"):
            raise InputError(self.path, f"cannot be read ({error})") from None
