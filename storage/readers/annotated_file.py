"""Open files of AnnData, .h5ad and Zarr, without reading their matrices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import zarr

from collapsium.storage.errors import AbsentError, CollapsiumError, InputError, optional
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.parquet import LEAST_LIMIT, RATIO
from collapsium.storage.readers.base import open_input
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.units import size

NEEDED = "files of AnnData need the package anndata; pip install 'collapsium[anndata]'"


def open_annotated(path: str, options: ReadOptions) -> Any:
    """Open a file of AnnData: the names and the columns of cells in memory, and matrices in the file."""
    with optional("anndata", NEEDED):
        import anndata.io
    try:
        group = _group(path)
        obs, var = anndata.io.read_elem(group["obs"]), anndata.io.read_elem(group["var"])

        def matrix(place: Any) -> Any:
            if hasattr(place, "shape"):
                return place
            _require_plausible_size(path, place, options.max_decompressed)
            return anndata.io.sparse_dataset(place)

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
        text = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise InputError(path, f"expected a file of AnnData; is it cut short? ({text})") from None


def _group(path: str) -> Any:
    folder = Folder(path)
    if not folder.exists():
        raise AbsentError(f"{path}: no such file or folder")
    if folder.is_folder():
        return zarr.open_group(folder.path if folder.local else path, mode="r")
    import h5py

    return h5py.File(folder.path, "r") if folder.local else h5py.File(open_input(path), "r")


def _require_plausible_size(path: str, group: Any, limit: int | None) -> None:
    """Refuse a matrix that expands to far more than its file, a possible attempt to fill the disk."""
    total = sum(group[name].shape[0] * group[name].dtype.itemsize for name in ("indices", "data"))
    if total <= LEAST_LIMIT and limit is None:
        return
    folder = Folder(path)
    allowed = max(LEAST_LIMIT, RATIO * folder.size()) if limit is None else limit
    if total > allowed:
        raise InputError(path, f"decompresses to more than {size(allowed)} (`max_decompressed`)")
