"""Plain text: a folder of files, single files, or JSON lines; tokenized by scikit-learn's analyzer.

The text is read twice, once for the vocabulary and once for the documents, and is never held whole.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa

from collapsar.storage.errors import AbsentError, InputError
from collapsar.storage.folder import Folder
from collapsar.storage.readers.source import ReadOptions, open_input, read_vocabulary_file, reading
from collapsar.storage.shard import Documents

PORTION = 1_000_000  # pairs
WORD = r"(?u)\b[^\W\d_][\w'’]*\w\b"  # two characters or more, the first a letter

Text = tuple[str, str]  # id, text


def tokenizer(stop_words: str = "english") -> Callable[[str], list[str]]:
    """Return scikit-learn's analyzer of words: lower case, Unicode letters first, stop words out.

    Parameters
    ----------
    stop_words : str, optional
        ``english``, or ``none`` to keep all words.

    Returns
    -------
    callable
        From a text to its words, in order.
    """
    from sklearn.feature_extraction.text import CountVectorizer  # slow to import, and needed for text only

    analyzer: Callable[[str], list[str]] = CountVectorizer(
        token_pattern=WORD, stop_words=None if stop_words == "none" else stop_words
    ).build_analyzer()
    return analyzer


class TextSource:
    """Texts with ids, as a source of documents.

    Parameters
    ----------
    paths : list of str
        What to read; `texts` says how.
    options : ReadOptions
        Stop words, and the vocabulary where one is given; words outside it are dropped.
    texts : callable
        From a path to its (id, text) pairs.

    Raises
    ------
    AbsentError
        A path does not exist.
    """

    def __init__(
        self, paths: list[str], options: ReadOptions, texts: Callable[[str, ReadOptions], Iterator[Text]]
    ) -> None:
        for path in paths:
            if not Folder(path).exists():
                raise AbsentError(f"{path}: no such file or folder")
        self.name = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
        self._paths, self._options, self._texts = paths, options, texts

    @cached_property
    def _analyze(self) -> Callable[[str], list[str]]:
        return tokenizer(self._options.stop_words)

    def _all(self) -> Iterator[Text]:
        seen: set[str] = set()
        for path in self._paths:
            with reading(path):
                for name, text in self._texts(path, self._options):
                    if name in seen:
                        raise InputError(path, f"the document id {name!r} occurs twice", "field 'id'")
                    seen.add(name)
                    yield name, text

    @cached_property
    def _words(self) -> list[str]:
        if self._options.vocabulary is not None:
            return read_vocabulary_file(self._options.vocabulary)
        words: set[str] = set()
        for _, text in self._all():
            words.update(self._analyze(text))
        return sorted(words)

    def words(self) -> list[str]:
        """Return the vocabulary: the file's, or all words of the text, sorted."""
        return self._words

    def documents(self) -> Iterator[Documents]:
        """Read the documents, in portions of about a million pairs."""
        number = {word: position for position, word in enumerate(self._words)}
        ids: list[str] = []
        offsets, words, counts = [0], [], []
        for name, text in self._all():
            found = Counter(number[word] for word in self._analyze(text) if word in number)
            for word in sorted(found):
                words.append(word)
                counts.append(found[word])
            ids.append(name)
            offsets.append(len(words))
            if len(words) >= PORTION:
                yield _documents(ids, offsets, words, counts)
                ids, offsets, words, counts = [], [0], [], []
        if ids:
            yield _documents(ids, offsets, words, counts)


def _documents(ids: list[str], offsets: list[int], words: list[int], counts: list[int]) -> Documents:
    return Documents(
        pa.array(ids, pa.string()),
        np.array(offsets, dtype=np.int64),
        np.array(words, dtype=np.int32),
        np.array(counts, dtype=np.int32),
    )


def texts_of_files(path: str, options: ReadOptions) -> Iterator[Text]:  # noqa: ARG001 - the readers' common form
    """Read a text file, or all files below a folder in the order of their names.

    Parameters
    ----------
    path : str
        File or folder.
    options : ReadOptions
        Not used: a file has no fields.

    Yields
    ------
    tuple of str
        Id (the file's path below the folder) and text.

    Raises
    ------
    InputError
        A file is not UTF-8 text.
    """
    folder = Folder(path)
    if not folder.is_folder():
        yield path.rsplit("/", 1)[-1], _decoded(path)
        return
    for name in folder.names():
        if name.startswith("."):
            continue
        inner = f"{path.rstrip('/')}/{name}"
        if Folder(inner).is_folder():
            for below, text in texts_of_files(inner, options):
                yield f"{name}/{below}", text
        else:
            yield name, _decoded(inner)


def _decoded(path: str) -> str:
    with reading(path), open_input(path) as handle:
        data = handle.read()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(path, f"expected UTF-8 text ({error})") from None


def texts_of_lines(path: str, options: ReadOptions) -> Iterator[Text]:
    """Read JSON lines, plain or compressed: an object a line, with the document's id and text.

    Parameters
    ----------
    path : str
        The file.
    options : ReadOptions
        Names of the two fields.

    Yields
    ------
    tuple of str
        Id and text.

    Raises
    ------
    InputError
        A line is not such an object.
    """
    with open_input(path) as handle:
        for line, data in enumerate(handle, start=1):
            if not data.strip():
                continue
            try:
                record = json.loads(data)
            except (ValueError, RecursionError) as error:
                raise InputError(path, f"expected a JSON object ({error})", f"line {line}") from None
            if not isinstance(record, dict):
                raise InputError(path, f"expected a JSON object, found {type(record).__name__}", f"line {line}")
            name, text = record.get(options.id_field), record.get(options.text_field)
            if not isinstance(name, (str, int)) or isinstance(name, bool):
                raise InputError(path, f"expected a string or whole number in field {options.id_field!r} (--id)", f"line {line}")
            if not isinstance(text, str):
                raise InputError(path, f"expected a string in field {options.text_field!r} (--text)", f"line {line}")
            yield str(name), text.encode("utf-8", "replace").decode()
