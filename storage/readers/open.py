"""Readers of the formats that corpora are distributed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow.compute as pc

from collapsium.storage.corpus.shard import Documents
from collapsium.storage.data_types import FORMATS, is_annotated
from collapsium.storage.errors import AbsentError, CollapsiumError, InputError, OptionError, suggestion
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.annotated import AnnotatedSource
from collapsium.storage.readers.base import Source, distinct, head_of, open_input, reading
from collapsium.storage.readers.compression import PACKED, binary_kind
from collapsium.storage.readers.counts import LDACSource, SVMlightSource, UCISource, index_base
from collapsium.storage.readers.matrices import distinct_ids, matrix_inside, open_matrix
from collapsium.storage.readers.read_options import ReadOptions, distinct_guesses
from collapsium.storage.readers.texts.blocks import TEXTS, find_files, require_once
from collapsium.storage.readers.vectors import (
    HEADERS,
    ArchiveFile,
    DenseFile,
    DenseSource,
    MatrixFile,
    TableFile,
    ZarrFile,
)

# The reader of each format of counts
READERS: dict[str, Callable[[str, ReadOptions], Source]] = {
    "anndata": AnnotatedSource,
    "uci": UCISource,
    "ldac": LDACSource,
    "mtx": open_matrix,
    "npz": open_matrix,
    "svmlight": SVMlightSource,
}


# Files that only a Zarr group has, by the version of the format
ZARR_RECORDS = ("zarr.json", ".zattrs")


class Chained:
    """Several sources with the same vocabulary, read one after another."""

    def __init__(self, sources: Sequence[Source], stems: Sequence[str] = ()) -> None:
        for source in sources[1:]:
            if source.words() != sources[0].words():
                raise InputError(source.name, f"its vocabulary differs from the vocabulary of {sources[0].name}")
        self.name = sources[0].name if len(sources) == 1 else f"{sources[0].name} and {len(sources) - 1} more"
        self.guesses = distinct_guesses(*(source.guesses for source in sources))
        self._sources, self._stems = [*sources], stems

    def words(self) -> list[str]:
        """Return the vocabulary in the order of its ids."""
        return self._sources[0].words()

    def documents(self) -> Iterator[Documents]:
        """Yield the documents of one source after another, with ids prefixed by the stem of their source, if any."""
        for number, source in enumerate(self._sources):
            for part in source.documents():
                ids = pc.binary_join_element_wise(self._stems[number], part.ids, "/") if self._stems else part.ids
                yield replace(part, ids=ids)


__all__ = [
    "FORMATS",
    "TEXTS",
    "ReadOptions",
    "Source",
    "guess_format",
    "kind_of_name",
    "open_source",
    "open_vectors",
    "resolved_index_base",
]


def kind_of_name(path: str) -> str | None:
    """Return the format that a file's name implies, or None."""
    name = path.rstrip("/").rsplit("/", 1)[-1].lower()
    for packed in PACKED:
        name = name.removesuffix(packed)
    if name.startswith("docword."):
        return "uci"
    return next((kind for kind, form in FORMATS.items() if name.endswith(form.endings)), None)


def guess_format(paths: Sequence[str], recorded: str | None = None) -> str:
    """Return the format that the names of sources imply, or the names of the files in them."""
    formats: dict[str, str] = {}
    for path in paths:
        kind = _kind_of_matrix(path) or kind_of_name(path) or _format_inside(path, recorded)
        if kind is None and not formats and recorded in TEXTS:
            kind = recorded
        if kind is None and not formats:
            advice = f"name it with `format` {'|'.join(FORMATS)}"
            with suppress(CollapsiumError), reading(path), open_input(path) as handle:
                binary = binary_kind(head_of(handle))
                advice = advice if binary is None else f"it is {binary}"
            raise OptionError(f"{path}: its format does not follow from its name; {advice}")
        if kind is not None:
            formats.setdefault(kind, path)
    first, *further = formats
    mixed = next((kind for kind in further if kind in TEXTS and first in TEXTS), None)
    if mixed is not None:
        raise OptionError(
            f"{formats[mixed]}: its format is {mixed}, but {formats[first]} has the format {first}; read one after the "
            "other (`ingest`, then `append`), or name the format of all (`format`)"
        )
    return first


def _kind_of_matrix(path: object) -> str | None:
    """Return the format of an AnnData object, of its Zarr store and of a 10x folder; None for all others."""
    if not isinstance(path, str):
        return "anndata" if is_annotated(path) else None
    folder = Folder(path)
    record = next((name for name in ZARR_RECORDS if folder.is_folder() and folder.exists(name)), None)
    if record is not None and b'"anndata"' in folder.read(record):
        return "anndata"
    return "mtx" if matrix_inside(path) is not None else None


def _format_inside(path: str, recorded: str | None) -> str | None:
    """Return the format of the files in a folder or glob; None for a file."""
    folder = Folder(path)
    if not folder.is_folder() and (folder.exists() or not any(letter in path for letter in "*?[")):
        if not folder.exists():
            raise AbsentError(f"{path}: no such file or folder")
        return None
    names: dict[str, list[str]] = {}
    for file in find_files([path], None, kind_of_name):
        kind = kind_of_name(file.name)
        if kind is not None:
            names.setdefault(kind, []).append(file.name)
    if recorded in names and recorded in TEXTS:
        return recorded
    if len(names) > 1:
        counted = [f"{len(some):,} of {kind} (such as {some[0]})" for kind, some in names.items()]
        raise OptionError(
            f"{path}: holds files of several formats: {', '.join(counted)}; choose one with `format`, which leaves the "
            "others out"
        )
    only = next(iter(names), "text")
    if only not in TEXTS:
        raise OptionError(f"{path}: holds files of the format {only}; name the files themselves")
    return only


def resolved_index_base(paths: list[str], kind: str, options: ReadOptions) -> ReadOptions:
    """Return the options with the first index of the files, which later files of the corpus share."""
    if options.index_base not in (None, 0, 1):
        raise OptionError(f"expected 0 or 1, found {options.index_base}", "index_base")
    return replace(options, index_base=index_base(paths, options)) if kind == "svmlight" else options


def open_source(paths: list[str], kind: str | None = None, options: ReadOptions | None = None) -> Source:
    """Open files or folders of one format."""
    options = options or ReadOptions()
    kind = kind or guess_format(paths)
    require_once(paths)
    options = resolved_index_base(paths, kind, options)
    if kind not in READERS:
        raise OptionError(f"expected a format of word counts, found '{kind}'{suggestion(kind, READERS)}")
    if len(paths) == 1:
        return READERS[kind](paths[0], options)
    if kind == "anndata":
        # Names of cells are not prefixed, so that a model's documents can be found in the objects again.
        sources = [AnnotatedSource(path, options) for path in paths]
        distinct_ids(
            ", ".join(dict.fromkeys(source.name for source in sources)),
            [name for source in sources for name in source.ids.to_pylist()],
        )
        return Chained(sources)
    # Numeric ids are prefixed with the file's name, so that the ids of several sources differ.
    stems = distinct(paths)
    return Chained([READERS[kind](path, options) for path in paths], stems)


def open_vectors(
    paths: list[str], options: ReadOptions | None = None, *, tagged: bool = False, strict: bool = False
) -> DenseSource:
    """Open files of dense vectors, whose formats may differ."""
    options = options or ReadOptions()
    if options.header not in (None, *HEADERS):
        raise OptionError(f"expected {' or '.join(HEADERS)}, found {options.header!r}", "header")
    require_once(paths)
    stems = distinct(paths)
    files: list[DenseFile] = []
    for path in paths:
        if Folder(path).is_folder():
            files.append(ZarrFile(path, options))
            continue
        with reading(path), open_input(path, options.max_decompressed) as handle:
            magic = handle.read(6)
        kind = MatrixFile if magic == b"\x93NUMPY" else ArchiveFile if magic[:4] == b"PK\x03\x04" else TableFile
        files.append(kind(path, options))
    if strict and options.values is not None and all(isinstance(file, (MatrixFile, TableFile)) for file in files):
        raise OptionError(
            f"applies only to .npz files and Zarr groups, whose arrays have names, found {paths[0]}", "values"
        )
    if strict and options.header is not None and not any(isinstance(file, TableFile) for file in files):
        raise OptionError(f"applies only to comma-separated values, found {paths[0]}", "header")
    return DenseSource(files, stems, options, tagged=tagged)
