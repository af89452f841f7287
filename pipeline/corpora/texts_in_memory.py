"""Convert texts in memory (lists, columns and frames) to tables that are ingested like files."""

from __future__ import annotations

import numbers
import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeGuard, cast, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collapsium.pipeline.corpora.options import MAX_PATH, READING, TextsInMemory, sources_of
from collapsium.pipeline.options import names_of
from collapsium.storage.data_types import has_named_matrix
from collapsium.storage.errors import InputError, OptionError, optional, suggestion
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.texts.fields import as_number, clean
from collapsium.storage.runs.proportions import TOPIC

# A frame of pandas, polars, Arrow or Dask; an array where the documents are a list
Frame: TypeAlias = Any
Library: TypeAlias = Literal["pandas", "polars", "pyarrow"]  # Of frames that results are returned as

NAME, TEXT, ID = "texts", "text", "id"
FILE = f"{NAME}.parquet"
PART = "part-{:07d}.parquet"  # File of a partition
# Options of reading that apply only to files
OF_FILES = ("values", "header", "index_base", "max_decompressed", "separator", "label_separator", "transpose")
OF_WORDS = ("min_documents", "max_document_share", "max_words", "phrases", "phrase_count", "phrase_threshold", "like")
# Options of `collapsium.pipeline.ingest` that texts in memory take too
OPTIONS = (*OF_WORDS, "shard_tokens", *(option for option in READING if option not in OF_FILES))


def is_path(corpus: object) -> TypeGuard[str | os.PathLike[str]]:
    """Return True if an argument is a path rather than texts."""
    if not isinstance(corpus, (str, os.PathLike)):
        return False
    if not isinstance(corpus, str):
        return True
    long = len(corpus) > MAX_PATH or "\n" in corpus
    if not corpus.strip() or long or (len(corpus.split()) > 1 and not Folder(corpus).exists()):
        raise OptionError(
            f"expected a path, or a list of texts, found one string of {len(corpus):,} characters that is no path; put "
            "texts into a list, even a single text"
        )
    return True


def paths_or_texts(documents: object) -> tuple[str, ...] | TextsInMemory:
    """Return paths of documents as a tuple, or texts in memory; refuse a text in place of a path."""
    if isinstance(documents, (str, os.PathLike)):
        is_path(documents)
    return sources_of(documents)


def in_memory(texts: Any) -> Any:
    """Return texts with lazy frames collected."""
    library, kind = type(texts).__module__.partition(".")[0], type(texts).__name__
    if library == "polars" and kind == "LazyFrame":
        return texts.collect()
    _refuse_counts(texts)
    if is_lazy(texts):
        raise OptionError(f"expected texts in memory, found a Dask {kind}; call its compute() first")
    return texts


def is_lazy(texts: object) -> bool:
    """Return True for a collection of Dask."""
    return hasattr(texts, "__dask_graph__") and hasattr(texts, "to_delayed")


def check_lazy(texts: Any, fields: Mapping[str, str]) -> None:
    """Refuse a collection of Dask that has numbers, or a frame without the columns, before any of it is computed."""
    _refuse_counts(texts)
    if hasattr(texts, "columns") and hasattr(texts, "dtypes"):
        _require_columns([str(name) for name in texts.columns], fields)
        name = next(iter(fields))
        dtype = texts.dtypes.get(name) if hasattr(texts.dtypes, "get") else texts.dtypes
        if _is_number(dtype):
            raise OptionError(f"expected strings in the column {name!r}, found {dtype}", fields[name])


class Written(NamedTuple):
    """The documents of a partition that were written."""

    rows: int
    absent: frozenset[str] = frozenset()  # Fields that none of its records has


def write_partition(
    part: Any, number: int, folder: Folder, fields: Mapping[str, str], optional: Sequence[str]
) -> Written:
    """Write the texts of a partition, which Dask has computed, as a file of a folder.

    As in JSON lines, records may lack labels, numbers, dates and titles; all records of a partition may.
    """
    try:
        rows, absent = rows_of(part, {*fields, *optional}), list[str]()
        if rows is not part and isinstance(rows, pa.Table):
            sparse = ("labels", "covariates", "date", "title")
            absent = [field for field, option in fields.items() if option in sparse and field not in rows.column_names]
            for field in absent:
                rows = rows.append_column(field, pa.nulls(len(rows)))
        table = table_of(rows, fields, optional)
        if table.num_rows:
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink, compression="lz4")
            folder.write(PART.format(number), memoryview(sink.getvalue()))
    except OptionError as error:
        raise OptionError(f"partition {number}: {error.message}", error.parameter) from None
    return Written(int(table.num_rows), frozenset(absent))


def require_fields(written: Sequence[Written], fields: Mapping[str, str]) -> None:
    """Refuse partitions without a text, and fields that no record of any partition has."""
    filled = [part.absent for part in written if part.rows]
    if not filled:
        raise OptionError("expected at least one text")
    for field in fields:
        if all(field in absent for absent in filled):
            raise OptionError(f"no record has the field {field!r}", fields[field])


def rows_of(part: Any, names: Collection[str] | None = None) -> Any:
    """Return a partition of a bag as a table, if its items are records, or as a list; any other partition unchanged.

    The table has the fields of all records; a field that a record lacks is missing. Only fields among `names` have
    values.
    """
    if hasattr(part, "columns") or hasattr(part, "dtype"):
        return part
    rows = list(part)
    if not rows or not isinstance(rows[0], Mapping):
        return rows
    wrong = next((row for row, value in enumerate(rows) if not isinstance(value, Mapping)), None)
    if wrong is not None:
        raise OptionError(f"expected records, found {type(rows[wrong]).__name__} at position {wrong}", "text")
    fields = dict.fromkeys(field for row in rows for field in row)
    is_read = {field: names is None or field in names for field in fields}
    columns = {
        str(field): _arrow([row.get(field) for row in rows], str(field)) if is_read[field] else pa.nulls(len(rows))
        for field in fields
    }
    return pa.table(columns)


def _refuse_counts(texts: Any) -> None:
    """Refuse numbers in place of texts, without computing any."""
    if _has_missing_column(texts):
        return
    kind, counts = type(texts).__name__, ""
    shape = " x ".join(map(str, getattr(texts, "shape", ())))
    rows = texts if isinstance(texts, (list, tuple)) else []
    if has_named_matrix(texts):
        counts = f"{kind}, whose " + (
            "to_adata() is AnnData" if hasattr(type(texts), "to_adata") else "counts are its X"
        )
    elif hasattr(texts, "tocsr"):
        counts = f"{kind} of {shape}"
    elif hasattr(texts, "columns") and hasattr(texts, "dtypes"):
        dtypes = list(texts.dtypes) if hasattr(texts.dtypes, "__iter__") else [texts.dtypes]
        counts = f"{kind} of {len(dtypes)} columns" if dtypes and all(map(_is_number, dtypes)) else ""
    elif shape and _is_number(getattr(texts, "dtype", None)):
        counts = f"{kind} of {shape}"
    elif rows and isinstance(rows[0], (list, tuple)) and rows[0] and isinstance(rows[0][0], numbers.Real):
        counts = f"{kind} of {len(rows):,} lists"
    if counts:
        raise OptionError(
            f"expected texts, found numbers ({counts}); pass counts to an estimator, such as CollapsedLDA of "
            "collapsium.pipeline.estimators, or `ingest` a file of them, as scipy.sparse.save_npz writes it"
        )


def _has_missing_column(texts: Any) -> bool:
    """Return True if a column of pandas has no value; pandas gives missing texts a type of numbers."""
    return library_of_frame(texts) == "pandas" and bool(np.asarray(texts.isna()).all(axis=0).any())


def _is_number(dtype: object) -> bool:
    """Return True for a type of numbers, of NumPy, pandas or polars."""
    is_numeric = getattr(dtype, "is_numeric", None)
    return getattr(dtype, "kind", None) in ("b", "i", "u", "f") or bool(callable(is_numeric) and is_numeric())


def table_of(texts: Any, fields: Mapping[str, str], optional: Iterable[str] = ()) -> pa.Table:
    """Return texts in memory as a table."""
    name = next(iter(fields))
    columns = _columns_of(texts)
    if columns is None:
        further = [field for field in fields if field != name]
        if further:
            raise OptionError(f"expected a frame with the column {further[0]!r}, found texts alone", fields[further[0]])
        return pa.table({name: _texts(texts, name)})
    names, column_of = columns
    _require_columns(names, fields)
    optional = tuple(optional)
    for field in (*fields, *optional):
        if names.count(field) > 1:
            raise OptionError(f"the frame has {names.count(field)} columns {field!r}", fields.get(field))
    chosen = [*fields, *(field for field in optional if field in names and field not in fields)]
    table = {field: _texts(column_of(field), field) if field == name else _arrow(column_of(field), field)
             for field in chosen}  # fmt: skip
    for field, option in fields.items():
        # Strings have to be numbers or missing; the error does not contain them.
        is_text = option == "covariates" and _is_string(table[field].type)
        for text in pc.unique(table[field]).to_pylist() if is_text else ():
            try:
                as_number(text)
            except ValueError:
                row = pc.index(table[field], pa.scalar(text, table[field].type)).as_py()
                raise OptionError(
                    f"expected numbers in the column {field!r}, found text that is no number at position {row}", option
                ) from None
    lengths = {len(column) for column in table.values()}
    if len(lengths) > 1:
        raise OptionError("expected columns of one length")
    return pa.table(table)


def _require_columns(names: list[str], fields: Mapping[str, str]) -> None:
    """Refuse a frame without a column that an option names."""
    for field, option in fields.items():
        if field not in names:
            raise OptionError(f"the frame has no column {field!r}{suggestion(field, names)}", option)


def _columns_of(texts: Any) -> tuple[list[str], Any] | None:
    """Return the names of a frame's columns and a function that returns one; None for a list or a column."""
    if isinstance(texts, (pa.Table, pa.RecordBatch)):
        return list(texts.schema.names), texts.column
    if isinstance(texts, (pa.Array, pa.ChunkedArray, list, tuple)):
        return None
    library = library_of_frame(texts)
    if library in ("pandas", "polars"):
        if not hasattr(texts, "columns"):
            return None
        names = [str(column) for column in texts.columns]
        # Columns of pandas may have numbers as names.
        return names, (lambda name: texts.iloc[:, names.index(name)]) if library == "pandas" else texts.__getitem__
    if hasattr(texts, "__arrow_c_stream__"):
        try:
            table = pa.table(texts)
        except (pa.ArrowException, TypeError, ValueError):
            return None
        return list(table.schema.names), table.column
    return None


def _arrow(values: Any, name: str) -> pa.ChunkedArray:
    """Return a column as an Arrow array, with nulls for missing values."""
    try:
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            column = values
        # Polars returns no string views from this method.
        elif hasattr(values, "to_arrow"):
            column = values.to_arrow()
        elif hasattr(values, "__arrow_c_stream__") and type(values).__module__.partition(".")[0] != "pandas":
            column = pa.chunked_array(values)
        else:
            values = values.sparse.to_dense() if hasattr(values, "sparse") else values
            column = pa.array(values, from_pandas=True)
            if pa.types.is_list(column.type) and any(isinstance(value, (set, frozenset)) for value in values):
                # The order of a set of strings differs from process to process.
                rows = [sorted(value, key=str) if isinstance(value, (set, frozenset)) else value for value in values]
                column = pa.array(rows, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise OptionError(f"expected values of one kind in the column {name!r}, found {_kinds_of(values)}") from None
    column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    if pa.types.is_dictionary(column.type):
        chunks = [chunk.dictionary.take(chunk.indices) for chunk in column.chunks]
        column = pa.chunked_array(chunks, column.type.value_type)
    if pa.types.is_run_end_encoded(column.type):
        column = pa.chunked_array([pc.run_end_decode(chunk) for chunk in column.chunks], column.type.value_type)
    return column.cast(pa.large_string()) if str(column.type) == "string_view" else column


def _kinds_of(values: Iterable[object]) -> str:
    """Return the types of values that have no common Arrow type, with the position of the first that differs."""
    kinds: dict[str, int] = {}
    for row, value in enumerate(values):
        if value is not None and type(value).__name__ not in ("NaTType", "NAType") and not _is_nan(value):
            kinds.setdefault(type(value).__name__, row)
    if len(kinds) < 2:
        return f"values of type {', '.join(kinds) or 'none'}, which differ or are unknown"
    (first, _), (second, row) = list(kinds.items())[:2]
    return f"{second} at position {row} after {first}"


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and value != value


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _texts(values: Any, name: str) -> pa.ChunkedArray:
    """Return a column of strings, or of lists of strings."""
    if isinstance(values, (Mapping, set, frozenset, bytes)) or not isinstance(values, Iterable):
        kind = type(values).__name__
        raise OptionError(f"expected a list of strings, a column or a frame, found {kind}", "text")
    if not hasattr(values, "__len__"):
        values = list(values)
    if isinstance(values, (list, tuple)):
        wrong = next((row for row, value in enumerate(values) if not _is_text(value)), None)
        if wrong is not None:
            raise OptionError(f"expected strings, found {type(values[wrong]).__name__} at position {wrong}", "text")
        # UTF-8 cannot encode lone surrogates: they become question marks, as in files.
        values = [
            None if isinstance(value, float) else (clean(value) if isinstance(value, str) else value)
            for value in values
        ]
        if all(value is None for value in values):
            return pa.chunked_array([pa.nulls(len(values), pa.large_string())])
    column = _arrow(values, name)
    if pa.types.is_null(column.type) or (pa.types.is_floating(column.type) and column.null_count == len(column)):
        return pa.chunked_array([pa.nulls(len(column), pa.large_string())])
    item = column.type.value_type if pa.types.is_list(column.type) or pa.types.is_large_list(column.type) else None
    if not any(_is_string(kind) for kind in (column.type, item) if kind is not None):
        raise OptionError(f"expected strings in the column {name!r}, found {column.type}", "text")
    return column


def _is_text(value: Any) -> bool:
    if isinstance(value, (str, type(None))) or _is_nan(value):
        return True
    return isinstance(value, (list, tuple)) and all(isinstance(part, str | None) for part in value)


def fields_of(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns that options of reading name, each with its option; the column of texts is first."""
    for name in ("text", "id", "title", "date"):
        if not isinstance(options.get(name), str | None):
            raise OptionError(f"expected the name of a column, found {options[name]!r}", name)
    fields = {options.get("text") or TEXT: "text"}
    fields.update({options[name]: name for name in ("id", "title", "date") if options.get(name)})
    for name in ("labels", "covariates"):
        for side_field in names_of(options.get(name) or (), name):
            fields[side_field.partition("=")[2] or side_field] = name
    return fields


def library_of_frame(texts: object) -> Library | None:
    """Return the library that a frame or column belongs to, such as ``polars``; None for other texts.

    Frames of further libraries are read, and therefore returned, as Arrow tables.
    """
    texts = texts.texts if isinstance(texts, TextsInMemory) else texts
    roots = {kind.__module__.partition(".")[0] for kind in type(texts).__mro__}
    library = next((name for name in get_args(Library) if name in roots), None)
    if library == "pandas":
        return library if hasattr(texts, "index") else None
    return library or ("pyarrow" if hasattr(texts, "__arrow_c_stream__") else None)


def index_of(texts: object) -> Any:
    """Return the index of a pandas frame or column, which its documents keep; None for other documents."""
    if library_of_frame(texts) != "pandas":
        return None
    index = (texts.texts if isinstance(texts, TextsInMemory) else cast(Frame, texts)).index
    if not index.is_unique:
        label = index[index.duplicated()].tolist()[0]  # a value of Python, which is shown as it is written
        warnings.warn(
            f"the frame's index is not unique (label {label!r}): results are in the order of its rows, but a join by "
            "the index would repeat rows; reset_index() numbers them",
            UserWarning,
            stacklevel=3,
        )
    return index


def read_table(path: str | os.PathLike[str], texts: object) -> Frame:
    """Read a table of results as a frame like the texts; as a frame of pandas with the ids as its index for others."""
    table, library = pq.read_table(path), library_of_frame(texts)
    if library in ("polars", "pyarrow"):
        import narwhals as nw

        return nw.from_arrow(table.drop_columns(["id"]), backend=library).to_native()
    with optional("pandas", "frames need pandas; pip install 'collapsium[pandas]'"):
        frame = table.to_pandas().set_index("id")
    index = index_of(texts)
    return frame if index is None or len(index) != len(frame) else frame.set_axis(index, axis=0)


def shares_like(texts: object, shares: npt.NDArray[np.float64]) -> Frame:
    """Return proportions as a frame like the texts; as an array for other texts."""
    library = library_of_frame(texts)
    if library is None:
        return shares
    import narwhals as nw

    frame: Frame = nw.from_numpy(shares, topic_columns(shares.shape[1]), backend=library).to_native()
    return frame if library != "pandas" else frame.set_axis(index_of(texts), axis=0)


def topic_columns(topics: int) -> list[str]:
    """Return the names of the columns of proportions in frames."""
    return [f"{TOPIC}{topic}" for topic in range(topics)]


def write_texts(table: pa.Table, folder: str | os.PathLike[str]) -> str:
    """Write texts to a file for ingestion, and return its path."""
    path = Path(folder) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        pq.write_table(table, path, compression="lz4")
    except pa.ArrowNotImplementedError as error:
        kinds = ", ".join(f"{field.name!r} of {field.type}" for field in table.schema)
        raise OptionError(f"expected columns of types that Parquet has, found {kinds} ({error})") from None
    return str(path)


@contextmanager
def named_texts(path: str) -> Iterator[None]:
    """Replace the path of a temporary file of texts in errors by ``texts``."""
    try:
        yield
    except InputError as error:
        if path not in str(error):
            raise
        raise InputError(NAME, error.expected.replace(path, NAME), error.where) from None


def column_names(texts: Any) -> list[str]:
    """Return the names of a frame's columns; none for a list or a column."""
    if is_lazy(texts):
        return [str(name) for name in texts.columns] if hasattr(texts, "dtypes") and hasattr(texts, "columns") else []
    columns = _columns_of(texts)
    return [] if columns is None else columns[0]
