"""Read counts from AnnData in blocks of bounded memory: objects in memory, backed or lazy, and files (.h5ad and Zarr).

Only attributes that AnnData documents are used, so any object with these attributes is accepted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from collapsium.storage.corpus.shard import EXTRAS
from collapsium.storage.data_types import AnnotatedData
from collapsium.storage.errors import (
    AbsentError,
    CollapsiumError,
    InputError,
    OptionError,
    optional,
    reason_of,
    suggestion,
)
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.base import checked_words, open_input, require_bounded
from collapsium.storage.readers.matrices import (
    BLOCK_ENTRIES,
    CompressedMatrix,
    Entries,
    Matrix,
    MatrixSource,
    distinct_ids,
    repeated,
    sparse_matrix,
)
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts.fields import Fields, as_labels, as_number, named

NAME = "AnnData"


@dataclass(frozen=True)
class DenseMatrix:
    """A dense matrix in memory or in a file, read some rows at a time."""

    array: Any
    ascending = "rows"

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.array.shape[0], self.array.shape[1]

    def blocks(self) -> Iterator[Entries]:
        """Yield the entries that are not zero."""
        step = max(BLOCK_ENTRIES // max(self.shape[1], 1), 1)
        for first in range(0, self.shape[0], step):
            yield _shifted(self.array[first : first + step], first, 0)


@dataclass(frozen=True)
class LazyMatrix:
    """A Dask array of rows x columns, whose blocks are computed one after another."""

    array: Any

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.array.shape[0], self.array.shape[1]

    @property
    def ascending(self) -> str:
        """``rows`` unless a block has only some of the columns."""
        return "rows" if self.array.numblocks[1] == 1 else ""

    def blocks(self) -> Iterator[Entries]:
        """Yield the entries of the blocks."""
        rows, columns = (np.cumsum([0, *chunks]).tolist() for chunks in self.array.chunks)
        for row in range(self.array.numblocks[0]):
            for column in range(self.array.numblocks[1]):
                part = self.array.blocks[row, column].compute()
                if not hasattr(part, "tocsr"):
                    yield _shifted(part, rows[row], columns[column])
                    continue
                for entries in sparse_matrix(part.tocsr()).blocks():
                    yield Entries(entries.rows + rows[row], entries.columns + columns[column], entries.values)


def _shifted(block: Any, first_row: int, first_column: int) -> Entries:
    """Return the entries of a dense block that are not zero, among them NaN; masked ones are refused."""
    if np.ma.is_masked(block):
        row, column = np.argwhere(np.ma.getmaskarray(block))[0].tolist()
        raise InputError(
            NAME,
            "expected counts, found a masked one; X.filled(0) has none in its place",
            f"row {first_row + row + 1}, column {first_column + column + 1}",
        )
    part = np.asarray(block)
    rows, columns = np.nonzero(part)
    return Entries(rows + first_row, columns + first_column, part[rows, columns])


def readable(matrix: Any, name: str) -> Matrix:
    """Return the matrix of an AnnData object as one that is read in blocks."""
    if hasattr(matrix, "numblocks"):
        return LazyMatrix(matrix)
    if hasattr(matrix, "tocsr"):
        return sparse_matrix(matrix)
    if hasattr(matrix, "group") and getattr(matrix, "format", None) in ("csr", "csc"):
        group, by = matrix.group, "rows" if matrix.format == "csr" else "columns"
        offsets = np.asarray(group["indptr"][...], dtype=np.int64)
        return CompressedMatrix(matrix.shape, offsets, group["indices"], group["data"], by=by)
    if len(getattr(matrix, "shape", ())) == 2:
        return DenseMatrix(matrix)
    raise InputError(name, f"expected a matrix of counts, found {type(matrix).__name__}")


class AnnotatedSource(MatrixSource):
    """The rows of an AnnData object, or of its file, as documents."""

    def __init__(self, source: AnnotatedData | str, options: ReadOptions) -> None:
        name, adata = (source, open_annotated(source, options)) if isinstance(source, str) else (NAME, source)
        try:
            matrix, advice = matrix_of(adata, options.layer, name)
            opened = readable(matrix, name)
        except (CollapsiumError, MemoryError):
            raise
        # Parts of matrices on disk are read here; anndata and SciPy raise errors of many kinds.
        except Exception as error:
            raise InputError(name, f"its matrix cannot be read ({reason_of(error)})") from None
        if options.transpose is not None:
            raise OptionError("applies only to mtx and npz; transpose the AnnData object itself (adata.T)", "transpose")
        if options.vocabulary is not None:
            raise OptionError(
                "does not apply to AnnData, whose words are its var_names; select genes or peaks in the object itself "
                "(adata[:, names])",
                "vocabulary",
            )
        names = [str(word) for word in adata.var_names]
        if len(set(names)) < len(names):
            raise InputError(
                name, f"expected distinct names of genes or peaks (var_names), found {repeated(names)!r} twice; "
                "adata.var_names_make_unique() tells them apart"
            )  # fmt: skip
        if options.id is not None:
            ids = distinct_ids(name, [str(value) for value in column_of(adata, options.id, "id", name)])
        else:
            advised = "; adata.obs_names_make_unique() tells them apart"
            ids = distinct_ids(name, [str(cell) for cell in adata.obs_names], advised)
        if tuple(opened.shape) != (len(ids), len(names)):
            shape = " x ".join(map(str, opened.shape))
            raise InputError(
                name,
                f"expected {len(ids):,} cells (obs) x {len(names):,} genes or peaks (var), found a matrix of {shape}; "
                "is it transposed?",
            )
        super().__init__(
            name,
            opened,
            checked_words(name, names, options),
            ids,
            binarise=options.binarise,
            extras=_extras_of(adata, options, name),
            advice=advice,
        )


def matrix_of(adata: AnnotatedData, layer: str | None, name: str = NAME) -> tuple[Any, str]:
    """Return the matrix of a layer, or X, and advice on other layers for errors."""
    layers = [str(key) for key in adata.layers]
    alternatives = [candidate for candidate in layers if candidate != layer]
    advice = f"; counts may be in a layer (`layer`): {named(alternatives)}" if alternatives else ""
    if layer is None:
        if adata.X is None:
            raise InputError(name, f"has no X{advice}")
        return adata.X, advice
    if layer not in adata.layers:
        advice = f"{suggestion(layer, layers)}; there are {named(layers)}" if layers else ", nor any other"
        raise OptionError(f"{name} has no layer {layer!r}{advice}", "layer")
    return adata.layers[layer], advice


def column_of(adata: AnnotatedData, field: str, option: str, name: str = NAME) -> list[object]:
    """Return a column of obs as Python values, None where they are missing."""
    columns = [str(column) for column in adata.obs.columns]
    if field not in columns:
        raise OptionError(
            f"{name} has no column {field!r} of obs{suggestion(field, columns)}; there are {named(columns)}", option
        )
    column = adata.obs[field]
    if not hasattr(column, "isna"):  # A column of a lazy frame
        column = column.to_pandas() if hasattr(column, "to_pandas") else column.to_series()
    missing = column.isna().to_numpy()
    values = [value.item() if isinstance(value, np.generic) else value for value in column.tolist()]
    return [None if none else value for none, value in zip(missing.tolist(), values, strict=True)]


def _extras_of(adata: AnnotatedData, options: ReadOptions, name: str) -> dict[str, pa.Array]:
    """Return titles, dates, labels and covariates from the columns of obs."""
    fields, extras = Fields.of(options), {}
    by_field: dict[str, list[object]] = {}
    for option, pairs in (("labels", fields.labels), ("covariates", fields.covariates)):
        for _, field in pairs:
            if field in fields.optional and field not in adata.obs.columns:
                by_field[field] = [None] * len(adata.obs_names)
            else:
                by_field[field] = column_of(adata, field, option, name)
    try:
        if fields.labels:
            rows = zip(*(by_field[field] for _, field in fields.labels), strict=True)
            extras["labels"] = pa.array(
                [
                    [
                        {"field": label, "value": value}
                        for (label, _), cell in zip(fields.labels, row, strict=True)
                        for value in as_labels(cell)
                    ]
                    for row in rows
                ],
                EXTRAS["labels"],
            )
        for covariate, field in fields.covariates:
            extras[covariate] = pa.array([as_number(value) for value in by_field[field]], pa.float64())
    except ValueError as error:
        raise InputError(name, f"expected {error} in a column of obs") from None
    return extras


MOST_NESTED = 3  # Groups within each other in a frame or matrix: a frame has columns, which have categories and codes


def expanded_size(path: str, root: Any, place: Any, depth: int = MOST_NESTED) -> int:
    """Return the bytes of an array, or of all arrays in a group, in memory; parts in other files are refused.

    HDF5 can name any file of this machine as a part of an untrusted one.
    """
    other = getattr(place, "file", None) != getattr(root, "file", None)
    if other or getattr(place, "external", None) or getattr(place, "is_virtual", False):
        raise InputError(path, "expected all arrays in this file, found one in another file; write it again as a whole")
    if hasattr(place, "shape"):
        return math.prod(place.shape or ()) * int(place.dtype.itemsize)
    if not depth:
        raise InputError(path, "expected frames and matrices, found groups deep within each other")
    return sum(expanded_size(path, root, place[name], depth - 1) for name in place)


NEEDED = "files of AnnData need the package anndata; pip install 'collapsium[anndata]'"


def open_annotated(path: str, options: ReadOptions) -> Any:
    """Open a file of AnnData: the names and the columns of cells in memory, and matrices in the file."""
    with optional("anndata", NEEDED):
        import anndata.io
    folder = Folder(path)
    try:
        if not folder.exists():
            raise AbsentError(f"{path}: no such file or folder")
        if folder.is_folder():
            import zarr

            group: Any = zarr.open_group(folder.path if folder.local else path, mode="r")
        else:
            import h5py

            group = h5py.File(folder.path if folder.local else open_input(path), "r")

        def require_fitting(place: Any) -> None:
            require_bounded(path, expanded_size(path, group, place), folder.size, options.max_decompressed)

        def frame(name: str) -> Any:
            require_fitting(group[name])
            return anndata.io.read_elem(group[name])

        def matrix(place: Any) -> Any:
            if hasattr(place, "shape"):
                expanded_size(path, group, place)  # Its blocks are read one after another, so any size fits.
                return place
            require_fitting(place)
            return anndata.io.sparse_dataset(place)

        obs, var = frame("obs"), frame("var")

        layers = dict.fromkeys(group.get("layers", ()))
        if options.layer in layers:
            layers[options.layer] = matrix(group["layers"][options.layer])
        return SimpleNamespace(
            X=matrix(group["X"]) if options.layer is None and "X" in group else None,
            layers=layers,
            obs=obs,
            obs_names=obs.index,
            var_names=var.index,
        )
    except CollapsiumError:
        raise
    # The parsers of HDF5, Zarr and frames raise exceptions that have no common base class.
    except Exception as error:
        raise InputError(path, f"expected a file of AnnData; is it cut short? ({reason_of(error)})") from None
