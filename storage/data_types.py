"""Types that modules on disk formats share: arrays of any dtype, and JSON."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class FileFormat(NamedTuple):
    """A format of sources: a line of help, and the endings of its files' names."""

    help: str
    endings: tuple[str, ...] = ()


# All formats of sources. Readers of word counts are in `readers/counts.py`, of texts in `readers/texts/blocks.py`.
Format: TypeAlias = Literal[
    "anndata", "csv", "jsonl", "ldac", "mallet", "mtx", "npz", "parquet", "svmlight", "text", "uci", "vectors"
]
FORMATS: dict[Format, FileFormat] = {
    "uci": FileFormat("UCI bag of words: docword.NAME.txt or .txt.gz, and a vocabulary file"),
    "ldac": FileFormat("LDA-C: one line for each document, PAIRS WORD:COUNT ...", (".ldac", ".lda-c")),
    "anndata": FileFormat("AnnData, cells x genes or peaks: .h5ad, or a Zarr store", (".h5ad",)),
    "mtx": FileFormat("Matrix Market, documents x words, or a 10x folder of matrix.mtx.gz", (".mtx",)),
    "npz": FileFormat("SciPy sparse matrix, documents x words", (".npz",)),
    "svmlight": FileFormat("SVMlight: one line for each document, LABEL INDEX:COUNT ...", (".svmlight", ".svm")),
    "text": FileFormat("plain text: files, folders or globs; each file is a document", (".txt", ".md")),
    "jsonl": FileFormat("JSON lines with an id and a text", (".jsonl", ".ndjson", ".json")),
    "csv": FileFormat("table with a header; commas, semicolons, tabs or bars", (".csv", ".tsv")),
    "parquet": FileFormat("Parquet with a column of text; folders year=1987 are a column", (".parquet",)),
    "mallet": FileFormat("MALLET's text: one line for each document, NAME LABEL TEXT", (".mallet",)),
    "vectors": FileFormat("dense vectors: separated values, .npy, .npz, or a Zarr array", (".npy", ".zarr")),
}
BAD_BYTES = ("error", "replace")
SCORES = {"npmi": 0.5, "count": 10.0}  # of phrases, with their thresholds


AnyArray: TypeAlias = "npt.NDArray[Any]"  # An array whose dtype is checked where it is read, or does not matter
Arrays: TypeAlias = Mapping[str, AnyArray]  # Arrays by name, such as a model's global state

# A value as `json.loads` returns it
Json: TypeAlias = Mapping[str, "Json"] | Sequence["Json"] | str | int | float | bool | None

# A record or an event as JSON; its fields are declared by a pydantic model and checked as it is read
JsonObject: TypeAlias = dict[str, Any]
AnnotatedData: TypeAlias = Any  # An AnnData object, in memory, backed or lazy; the library has no types

DType: TypeAlias = "np.dtype[Any]"  # The dtype of an `AnyArray`


def is_annotated(value: object) -> bool:
    """Return True for an AnnData object, or one with its attributes; nothing of it is read."""
    return has_named_matrix(value, "layers", "obs")


def has_named_matrix(value: object, *further: str) -> bool:
    """Return True for an object with a matrix X and names, such as AnnData and its `raw`, and with further attributes.

    Nothing of it is read: `hasattr` would read X where it is a part of a matrix on disk.
    """
    missing, names = object(), ("X", "obs_names", "var_names", *further)
    return all(inspect.getattr_static(value, name, missing) is not missing for name in names)
