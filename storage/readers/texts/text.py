"""Reader of plain text (folders, files or JSON lines), tokenized by scikit-learn's analyzer.

The texts are read twice, for the vocabulary and for the documents, and are never in memory together.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from collapsium.storage.corpus.shard import EXTRAS, Documents
from collapsium.storage.corpus.word_rule import FIRST_RULE, word_pattern
from collapsium.storage.errors import AbsentError, InputError
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.base import open_text, reading, required_words
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts.stopwords import ENGLISH
from collapsium.storage.short_repr import ShortRepr

CHUNK_PAIRS = 1_000_000  # pairs


@dataclass(frozen=True, repr=False)
class Text(ShortRepr):
    """A document that is not yet tokenized.

    Attributes
    ----------
    id : str
        Unique id.
    sections : tuple of str
        Text in one or more sections.
    title : str
        Title, shown next to the id.
    labels : tuple of (str, str)
        Fields and values.
    """

    id: str
    sections: tuple[str, ...]
    title: str = ""
    labels: tuple[tuple[str, str], ...] = ()


def tokenizer(stop_words: str = "english") -> Callable[[str], list[str]]:
    """Return the analyzer of scikit-learn, which yields lower-case words that begin with a letter, without stop words.

    Parameters
    ----------
    stop_words : str, optional
        ``english``, or ``none`` to retain all words.

    Returns
    -------
    callable
        Function from a text to its words, in order.
    """
    find, stops = word_pattern(FIRST_RULE).findall, frozenset() if stop_words == "none" else ENGLISH
    return lambda text: [word for word in find(text.lower()) if word not in stops]


class TextSource:
    """Texts with ids, as a source of documents.

    Parameters
    ----------
    paths : list of str
        Paths that `texts` reads.
    options : ReadOptions
        Stop words, and optionally the vocabulary; words outside it are dropped.
    texts : callable
        Function from a path to its texts.
    structured : bool, optional
        Store titles, labels and sections in the corpus, the sections as segments.

    Raises
    ------
    AbsentError
        A path does not exist.
    """

    def __init__(
        self,
        paths: list[str],
        options: ReadOptions,
        texts: Callable[[str, ReadOptions], Iterator[Text]],
        structured: bool = False,
    ) -> None:
        for path in paths:
            if not Folder(path).exists():
                raise AbsentError(f"{path}: no such file or folder")
        self.name = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
        self._paths, self._options, self._texts, self._structured = paths, options, texts, structured

    @cached_property
    def _analyze(self) -> Callable[[str], list[str]]:
        return tokenizer(self._options.stop_words or "english")

    def _all(self) -> Iterator[Text]:
        seen: set[str] = set()
        for path in self._paths:
            with reading(path):
                for text in self._texts(path, self._options):
                    if text.id in seen:
                        raise InputError(path, f"the document id {text.id!r} occurs twice", "field 'id'")
                    seen.add(text.id)
                    yield text

    @cached_property
    def _words(self) -> list[str]:
        vocabulary = required_words(self._options)
        if vocabulary is not None:
            return vocabulary
        words: set[str] = set()
        for text in self._all():
            for section in text.sections:
                words.update(self._analyze(section))
        return sorted(words)

    def words(self) -> list[str]:
        """Return the vocabulary of the option `vocabulary`, or all words of the texts in sorted order."""
        return self._words

    def documents(self) -> Iterator[Documents]:
        """Yield chunks of documents with about a million pairs each."""
        number = {word: position for position, word in enumerate(self._words)}
        chunk = _Chunk()
        for text in self._all():
            sections = text.sections if self._structured else (" ".join(text.sections),)
            counts = [Counter(number[word] for word in self._analyze(part) if word in number) for part in sections]
            chunk.add(text, counts)
            if len(chunk.words) >= CHUNK_PAIRS:
                yield chunk.documents(self._structured)
                chunk = _Chunk()
        if chunk.texts:
            yield chunk.documents(self._structured)


class _Chunk:
    """Collects tokenized documents and converts them to arrays."""

    def __init__(self) -> None:
        self.texts: list[Text] = []
        self.offsets, self.words, self.counts = [0], list[int](), list[int]()
        self.segments: list[list[int]] = []

    def add(self, text: Text, sections: list[Counter[int]]) -> None:
        for section in sections:
            for word in sorted(section):
                self.words.append(word)
                self.counts.append(section[word])
        self.texts.append(text)
        self.offsets.append(len(self.words))
        self.segments.append([len(section) for section in sections if section])

    def documents(self, structured: bool) -> Documents:
        extras = {}
        if structured:
            labels = [[{"field": name, "value": value} for name, value in text.labels] for text in self.texts]
            columns = {"title": [text.title for text in self.texts], "labels": labels, "segments": self.segments}
            extras = {name: pa.array(column, EXTRAS[name]) for name, column in columns.items()}
        return Documents(
            pa.array([text.id for text in self.texts], pa.string()),
            np.array(self.offsets, dtype=np.int64),
            np.array(self.words, dtype=np.int32),
            np.array(self.counts, dtype=np.int32),
            extras,
        )


def texts_of_files(path: str, options: ReadOptions) -> Iterator[Text]:
    """Yield the text of a file, or of each file below a folder in the order of their names.

    Parameters
    ----------
    path : str
        File or folder.
    options : ReadOptions
        Limit of decompressed bytes.

    Yields
    ------
    Text
        A text whose id is the file's path below the folder.

    Raises
    ------
    InputError
        A file is not UTF-8 text.
    """
    folder = Folder(path)
    if not folder.is_folder():
        yield Text(path.rsplit("/", 1)[-1], (_decoded(path, options),))
        return
    for name in folder.names():
        if name.startswith("."):
            continue
        inner = f"{path.rstrip('/')}/{name}"
        if Folder(inner).is_folder():
            for below in texts_of_files(inner, options):
                yield replace(below, id=f"{name}/{below.id}")
        else:
            yield Text(name, (_decoded(inner, options),))


def _decoded(path: str, options: ReadOptions) -> str:
    with reading(path), open_text(path, options) as handle:
        return handle.read().decode()


def texts_of_lines(path: str, options: ReadOptions) -> Iterator[Text]:
    """Yield the texts of JSON lines, plain or compressed: an object a line, with the document's id and text.

    Parameters
    ----------
    path : str
        The file.
    options : ReadOptions
        Names of the two fields, and limit of decompressed bytes.

    Yields
    ------
    Text
        A text for each line.

    Raises
    ------
    InputError
        A line is not such an object.
    """
    id_field, text_field = options.id or "id", options.text or "text"
    with open_text(path, options) as handle:
        for line, data in enumerate(handle, start=1):
            if not data.strip():
                continue
            try:
                record = json.loads(data)
            except (ValueError, RecursionError) as error:
                raise InputError(path, f"expected a JSON object ({error})", f"line {line}") from None
            if not isinstance(record, dict):
                raise InputError(path, f"expected a JSON object, found {type(record).__name__}", f"line {line}")
            name, text = record.get(id_field), record.get(text_field)
            if not isinstance(name, (str, int)) or isinstance(name, bool):
                raise InputError(
                    path, f"expected a string or whole number in field {id_field!r} (`id`)", f"line {line}"
                )
            if not isinstance(text, str):
                raise InputError(path, f"expected a string in field {text_field!r} (`text`)", f"line {line}")
            yield Text(str(name), (text.encode("utf-8", "replace").decode(),))
