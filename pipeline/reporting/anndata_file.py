"""Write the counts of a training corpus and the topics of its model as a file of AnnData, shard by shard."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from collapsium.pipeline.fitted_model import Model, require_pandas, words_of_cells, write_topics
from collapsium.pipeline.models import model as models
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.shard import Documents, merge_segments
from collapsium.storage.errors import OptionError, optional
from collapsium.storage.io.file import File, require_free
from collapsium.storage.readers.annotated_file import NEEDED
from collapsium.storage.units import Counting

SEVERAL = "; "  # Separator of several labels of a field
CHUNK = 1 << 18  # Entries of a chunk of the file


def write_anndata(opened: models.Model, corpus: Corpus, out: str | os.PathLike[str], progress: Counting) -> int:
    """Write X, the counts; obs, the labels and covariates; and what `Model.annotate` writes. Return the cells."""
    with optional("anndata", NEEDED):
        import anndata.io
    path = os.fspath(out).rstrip("/")
    if not path.endswith((".h5ad", ".zarr")):
        raise OptionError(f"expected a name that ends with .h5ad or .zarr for `to` anndata, found {path}")
    require_free(path)
    pd = require_pandas()
    ids: list[str] = []
    lengths: list[npt.NDArray[np.int64]] = []
    columns: dict[str, list[object]] = {}
    for reference in corpus.references:
        documents = merge_segments(reference.documents())
        lengths.append(np.diff(documents.offsets))
        for name, values in _columns_of(documents).items():
            columns.setdefault(name, [None] * len(ids)).extend(values)
        ids += documents.ids.to_pylist()
        for values in columns.values():
            values.extend([None] * (len(ids) - len(values)))
    numbers = {name for name, kind in corpus.manifest.fields.items() if kind == "double"}
    further = {
        name: np.array(values, dtype=np.float64) if name in numbers else _categories(pd, values)
        for name, values in columns.items()
    }
    # `AnnData` would make the names strings of pandas 3, which anndata 0.12 cannot write.
    obs = pd.DataFrame(further, index=_texts(pd, ids))
    var = pd.DataFrame(index=_texts(pd, corpus.vocabulary.words))
    cells = SimpleNamespace(var_names=var.index, obsm={}, varm={}, uns={})
    model = Model(opened)
    write_topics(model, cells, words_of_cells(opened, cells), model.document_topic)
    parts = {"obs": obs, "var": var, "obsm": cells.obsm, "varm": cells.varm, "uns": cells.uns, "layers": {}}
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    with tempfile.TemporaryDirectory(prefix="collapsium-") as place:
        made = Path(place) / path.rpartition("/")[2]
        with _group(made) as group:
            group.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
            for name, part in parts.items():
                anndata.io.write_elem(group, name, part)
            _write_counts(group, corpus, offsets, progress)
        if made.is_file():
            File(path).put(made)
        for file in sorted(made_path for made_path in made.rglob("*") if made_path.is_file()):
            File(f"{path}/{file.relative_to(made)}").put(file)
    return len(ids)


def _texts(pd: Any, texts: list[str]) -> Any:
    return pd.Index(np.array(texts, dtype=object), dtype=object)


def _categories(pd: Any, values: list[object]) -> Any:
    """Return texts as a categorical column; None becomes a missing value."""
    distinct = {value: code for code, value in enumerate(sorted({value for value in values if isinstance(value, str)}))}
    codes = [distinct[value] if isinstance(value, str) else -1 for value in values]
    return pd.Categorical.from_codes(codes, categories=_texts(pd, [*distinct]))


@contextmanager
def _group(path: Path) -> Iterator[Any]:
    """Make a file of HDF5, or a folder of Zarr."""
    if path.suffix == ".h5ad":
        import h5py

        with h5py.File(path, "w") as file:
            yield file
        return
    yield zarr.open_group(path, mode="w")


def _columns_of(documents: Documents) -> dict[str, list[object]]:
    """Return the further columns of documents as columns of obs; a field of labels is a column."""
    columns: dict[str, list[object]] = {}
    for name, column in documents.extras.items():
        if name != "labels":
            columns[name] = column.to_pylist()
            continue
        for row, labels in enumerate(column.to_pylist()):
            for label in labels:
                values = columns.setdefault(label["field"], [None] * len(documents))
                values[row] = label["value"] if values[row] is None else f"{values[row]}{SEVERAL}{label['value']}"
    return columns


def _write_counts(group: Any, corpus: Corpus, offsets: npt.NDArray[np.int64], progress: Counting) -> None:
    """Write X as compressed rows in AnnData's on-disk format, a shard at a time."""
    target = group.create_group("X")
    shape = [offsets.size - 1, corpus.manifest.vocabulary.words]
    target.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": shape})
    create = target.create_dataset if hasattr(target, "id") else target.create_array  # HDF5, or Zarr
    create("indptr", data=offsets)
    pairs = int(offsets[-1])
    how = {"shape": (pairs,), "dtype": np.int32, "chunks": (min(CHUNK, pairs),)}
    indices, data = create("indices", **how), create("data", **how)
    first = 0
    for number, reference in enumerate(corpus.references, start=1):
        documents = merge_segments(reference.documents())
        last = first + documents.words.size
        indices[first:last], data[first:last] = documents.words, documents.counts
        first = last
        progress(number)
