"""Types that modules on disk formats share: arrays of any dtype, and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


FORMATS = {
    "uci": "UCI bag of words: docword.NAME.txt or .txt.gz, and a vocabulary file",
    "ldac": "LDA-C: one line for each document, PAIRS WORD:COUNT ...",
    "mtx": "Matrix Market, documents x words",
    "npz": "SciPy sparse matrix, documents x words",
    "svmlight": "SVMlight: one line for each document, LABEL INDEX:COUNT ...",
    "text": "plain text: files, folders or globs; each file is a document",
    "jsonl": "JSON lines with an id and a text",
    "csv": "table with a header; commas, semicolons, tabs or bars",
    "parquet": "Parquet with a column of text; folders year=1987 are a column",
    "mallet": "MALLET's text: one line for each document, NAME LABEL TEXT",
    "vectors": "dense vectors: separated values, .npy, .npz, or a Zarr array",
}
BAD_BYTES = ("error", "replace")
SCORES = {"npmi": 0.5, "count": 10.0}  # of phrases, with their thresholds


AnyArray: TypeAlias = "npt.NDArray[Any]"  # An array whose dtype is checked where it is read, or does not matter
Arrays: TypeAlias = Mapping[str, AnyArray]  # Arrays by name, such as a model's global state

# A value as `json.loads` returns it
Json: TypeAlias = Mapping[str, "Json"] | Sequence["Json"] | str | int | float | bool | None

# A record or an event as JSON; its fields are declared by a pydantic model and checked as it is read
JsonObject: TypeAlias = dict[str, Any]

DType: TypeAlias = "np.dtype[Any]"  # The dtype of an `AnyArray`
