"""Matrices of counts: every layout gives the same corpus, for any order of entries and any block size."""

import gzip
import hashlib
from types import SimpleNamespace

import dask.array
import dask.delayed
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import ingest
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.shard import Documents
from collapsium.storage.errors import AbsentError, CollapsiumError, InputError, OptionError
from collapsium.storage.readers import matrices
from collapsium.storage.readers.annotated import AnnotatedSource
from collapsium.storage.readers.read_options import ReadOptions

CELLS, PEAKS = [f"CELL{n}-1" for n in range(7)], [f"chr1:{n}00-{n}50" for n in range(5)]
COUNTS = np.random.default_rng(0).poisson(0.7, (len(CELLS), len(PEAKS)))


def texts(names):
    return pd.Index(np.array(names, dtype=object), dtype=object)


def cells(matrix, obs=None, **layers):
    """Return an object like AnnData."""
    frame = pd.DataFrame(obs or {}, index=texts(CELLS))
    return SimpleNamespace(X=matrix, layers=layers, obs=frame, obs_names=frame.index, var_names=texts(PEAKS))


def lazy(matrix, rows, columns):
    """Return a Dask array of CSR blocks, as `anndata.experimental.read_lazy` makes it."""
    sparse = scipy.sparse.csr_matrix(matrix)

    def block(row, column):
        part = sparse[row : row + rows, column : column + columns]
        return dask.array.from_delayed(
            dask.delayed(part), part.shape, part.dtype, meta=scipy.sparse.csr_matrix((0, 0), dtype=part.dtype)
        )

    return dask.array.block(
        [[block(row, column) for column in range(0, matrix.shape[1], columns)]
         for row in range(0, matrix.shape[0], rows)]
    )  # fmt: skip


def write_10x(folder, matrix, barcodes=CELLS, features=PEAKS):
    """Write a folder like Cell Ranger, with words in rows."""
    folder.mkdir()
    with gzip.open(folder / "matrix.mtx.gz", "wb") as file:
        scipy.io.mmwrite(file, scipy.sparse.coo_matrix(matrix.T), field="integer")
    with gzip.open(folder / "barcodes.tsv.gz", "wt") as file:
        file.writelines(f"{name}\n" for name in barcodes)
    with gzip.open(folder / "features.tsv.gz", "wt") as file:
        file.writelines(f"id{n}\t{name}\tPeaks\n" for n, name in enumerate(features))
    return folder


def write_file(path, matrix):
    """Write an object and its layer as an AnnData file."""
    import anndata

    adata = anndata.AnnData(scipy.sparse.csr_matrix(matrix), pd.DataFrame(index=CELLS), pd.DataFrame(index=PEAKS))
    adata.layers["columns"], adata.layers["dense"] = scipy.sparse.csc_matrix(matrix), matrix
    adata.obs.index, adata.var.index = texts(CELLS), texts(PEAKS)
    adata.write_h5ad(path) if path.suffix == ".h5ad" else adata.write_zarr(path)
    return path


def with_words(folder):
    """Write the words of a matrix, and return options that name them."""
    (folder / "words.txt").write_text("\n".join(PEAKS))
    return ReadOptions(vocabulary=str(folder / "words.txt"))


def digest(corpus):
    files = [
        "manifest.json",
        "vocabulary.parquet",
        *sorted(f"documents/{p.name}" for p in (corpus / "documents").iterdir()),
    ]
    return hashlib.sha256(b"".join((corpus / name).read_bytes() for name in files)).hexdigest()


@st.composite
def sparse_matrices(draw):
    """Draw counts and a layout that SciPy saves, with entries in any order and stored twice."""
    shape = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    places = st.tuples(st.integers(0, shape[0] - 1), st.integers(0, shape[1] - 1), st.integers(0, 3))
    entries = draw(st.lists(places, min_size=1, max_size=20))
    rows, columns, values = np.array([*entries, (0, 0, 1)]).T
    kind = draw(st.sampled_from([np.int32, np.float32, np.int64]))
    return scipy.sparse.coo_matrix((values.astype(kind), (rows, columns)), shape=shape), draw(
        st.sampled_from(["coo", "csr", "csc", "bsr", "mtx", "transposed"])
    )


@given(sparse_matrices(), st.integers(1, 7))
def test_sources__give_the_documents_of_any_matrix_in_blocks_of_any_size(tmp_path_factory, drawn, size):
    matrix, layout = drawn
    folder = tmp_path_factory.mktemp("matrix")
    path, transpose = str(folder / "matrix.npz"), None
    if layout in ("mtx", "transposed"):
        path, transpose = str(folder / "x.mtx"), layout == "transposed"
        scipy.io.mmwrite(path, matrix.T if transpose else matrix)
    else:
        scipy.sparse.save_npz(path, matrix if layout == "coo" else matrix.asformat(layout))
    words = tuple(f"w{n}" for n in range(matrix.shape[1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrices, "BLOCK_ENTRIES", size)
        patch.setattr(matrices, "BLOCK_BYTES", size)
        source = matrices.open_matrix(path, ReadOptions(vocabulary=words, transpose=transpose))
        parts = [*source.documents()]
    found = np.zeros(matrix.shape, dtype=int)
    first = 0
    for part in parts:
        rows = np.repeat(np.arange(first, first + len(part)), np.diff(part.offsets))
        assert part.counts.min(initial=1) > 0
        found[rows, part.words] += part.counts
        first += len(part)
    np.testing.assert_array_equal(found, matrix.toarray())


def test_every_layout__gives_exactly_the_same_corpus(tmp_path):
    import anndata

    sparse = scipy.sparse.csr_matrix(COUNTS)
    scipy.sparse.save_npz(tmp_path / "x.npz", sparse)
    (tmp_path / "words").write_text("".join(f"{name}\n" for name in PEAKS))
    (tmp_path / "ids").write_text("".join(f"{name}\n" for name in CELLS))
    h5ad, store = write_file(tmp_path / "x.h5ad", COUNTS), write_file(tmp_path / "x.zarr", COUNTS)
    with h5py.File(h5ad) as file:
        sources = {
            "npz": (tmp_path / "x.npz", {"vocabulary": str(tmp_path / "words"), "id": str(tmp_path / "ids")}),
            "10x": (write_10x(tmp_path / "10x", COUNTS), {}),
            "matrix": (tmp_path / "10x" / "matrix.mtx.gz", {}),
            "h5ad": (h5ad, {}),
            "zarr": (store, {}),
            **{f"{path.name} {layer}": (path, {"layer": layer}) for path in (h5ad, store) for layer in ("columns", "dense")},
            "object": (cells(sparse.astype(np.float32)), {}),
            "columns": (cells(sparse.tocsc()), {}),
            "dense": (cells(COUNTS), {}),
            "layer": (cells(None, counts=sparse), {"layer": "counts"}),
            "backed": (cells(anndata.io.sparse_dataset(file["X"])), {}),
            **{f"lazy {size}": (cells(lazy(COUNTS, *size)), {}) for size in ((3, 5), (7, 2), (2, 2))},
        }  # fmt: skip
        for name, (source, options) in sources.items():
            ingest(source, tmp_path / f"{name} corpus", **options)
    digests = {name: digest(tmp_path / f"{name} corpus") for name in sources}
    assert set(digests.values()) == {digests["npz"]}
    corpus = Corpus(tmp_path / "10x corpus")
    assert corpus.vocabulary.words == PEAKS
    assert corpus.references[0].documents().ids.to_pylist() == CELLS


def test_columns_of_cells__are_labels_covariates_and_ids(tmp_path):
    obs = {
        "type": pd.Categorical(["B", "T", None, "B", "B", "T", "T"]),
        "depth": [1.5, np.nan, 2, 3, 4, 5, 6],
        "key": range(7),
    }
    options = {"labels": "kind=type", "covariates": "depth", "id": "key", "binarise": True}
    ingest(cells(COUNTS, obs), tmp_path / "corpus", **options)
    documents = Corpus(tmp_path / "corpus").references[0].documents()
    assert documents.ids.to_pylist() == [str(n) for n in range(7)]
    assert [[pair["value"] for pair in pairs] for pairs in documents.extras["labels"].to_pylist()][:3] == [
        ["B"],
        ["T"],
        [],
    ]
    assert documents.extras["depth"].to_pylist()[:3] == [1.5, None, 2]
    assert set(documents.counts.tolist()) == {1}


def test_names_of_features__are_regions_of_bed_files_or_ids_if_names_are_ambiguous(tmp_path):
    folder = write_10x(tmp_path / "10x", COUNTS, features=["A", "B", "A", "C", "D"])
    ingest(folder, tmp_path / "shared")
    assert Corpus(tmp_path / "shared").vocabulary.words == ["id0", "B", "id2", "C", "D"]
    (folder / "features.tsv.gz").unlink()
    (folder / "peaks.bed").write_text("# peaks\n" + "".join(f"chr1\t{n}00\t{n}50\n" for n in range(5)))
    ingest(folder, tmp_path / "bed")
    assert Corpus(tmp_path / "bed").vocabulary.words == PEAKS


def test_orientation__follows_from_the_names_or_must_be_declared(tmp_path):
    square = write_10x(tmp_path / "square", COUNTS[:5], barcodes=CELLS[:5])
    with pytest.raises(InputError, match="its 5 rows may be documents or words.*`transpose`"):
        ingest(square, tmp_path / "corpus")
    ingest(square, tmp_path / "right", transpose="yes")
    ingest(square, tmp_path / "wrong", transpose="no")
    right, wrong = (Corpus(tmp_path / name).vocabulary.tokens for name in ("right", "wrong"))
    np.testing.assert_array_equal(right, COUNTS[:5].sum(axis=0))
    np.testing.assert_array_equal(wrong, COUNTS[:5].sum(axis=1))


class Unreadable(SimpleNamespace):
    """An object like a view of a file whose matrix the installed SciPy cannot read."""

    @property
    def X(self):
        raise AttributeError("'backed_csr_matrix' object has no attribute '_validate_indices'\nand more")


NORMALISED, NEGATIVE, MISSING, HUGE = (COUNTS.astype(float) for _ in range(4))
NORMALISED[0, 0], NEGATIVE[2, 1], MISSING[3, 2], HUGE[0, 0] = 0.69, -1, np.nan, 2**31
TWICE = {**vars(cells(COUNTS)), "obs_names": texts(["a", *CELLS[1:-1], "a"])}
SAME = {**vars(cells(COUNTS)), "var_names": texts(["a", *PEAKS[1:-1], "a"])}
BAD = {
    "normalised": (
        cells(NORMALISED, counts=COUNTS),
        {},
        "row 1, column 1: .*0.69; normalised values.*`layer`.: counts",
    ),
    "negative": (cells(scipy.sparse.csc_matrix(NEGATIVE)), {}, "row 3, column 2: expected a whole count.*-1"),
    "huge": (cells(HUGE), {}, "row 1, column 1: expected a count of at most 2,147,483,647, found 2147483648"),
    "NaN": (cells(MISSING), {}, "row 4, column 3: expected a whole count.*nan"),
    "a lazy NaN": (cells(lazy(MISSING, 2, 5)), {}, "row 4, column 3: expected a whole count.*nan"),
    "names twice": (SimpleNamespace(**TWICE), {}, "found 'a' twice.*obs_names_make_unique"),
    "words twice": (SimpleNamespace(**SAME), {}, "found 'a' twice.*var_names_make_unique"),
    "a transposed matrix": (cells(COUNTS.T), {}, "expected 7 cells .* x 5 genes .* 5 x 7; is it transposed"),
    "a view that anndata cannot read": (
        Unreadable(**{name: value for name, value in vars(cells(COUNTS)).items() if name != "X"}),
        {},
        "its matrix cannot be read .*_validate_indices'.$",
    ),
    "no X": (cells(None, counts=COUNTS), {}, "has no X; counts may be in a layer .*counts"),
    "no layer": (cells(COUNTS), {"layer": "counts"}, "has no layer 'counts', nor any other$"),
    "no such layer": (cells(COUNTS, counts=COUNTS), {"layer": "count"}, "no layer 'count' .did you mean 'counts'"),
    "no such column": (cells(COUNTS, {"type": range(7)}), {"labels": "kind"}, "no column 'kind' of obs"),
    "an option of texts": (cells(COUNTS), {"stop_words": "none"}, "applies only to texts"),
    "an option of files": (cells(COUNTS), {"transpose": "yes"}, "applies only to mtx and npz"),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_matrices_of_counts__are_refused_in_one_line_and_leave_nothing(tmp_path, name):
    source, options, message = BAD[name]
    with pytest.raises((InputError, OptionError), match=message) as caught:
        ingest(source, tmp_path / "corpus", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "corpus").exists()


def test_damaged_files__are_refused_in_one_line(tmp_path):
    whole = write_file(tmp_path / "x.h5ad", COUNTS).read_bytes()
    folder = write_10x(tmp_path / "10x", COUNTS, barcodes=[*CELLS, "more"])
    (tmp_path / "cut.h5ad").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.h5ad").write_text("cells")
    with h5py.File(write_file(tmp_path / "turned.h5ad", COUNTS), "r+") as file:
        file["X"].attrs["shape"] = COUNTS.shape[::-1]
    for path, message in (
        ("cut.h5ad", "cut short"),
        ("text.h5ad", "file of AnnData"),
        ("turned.h5ad", "its matrix cannot be read .expected 6 offsets from 0"),
        (folder, "8 documents x 5 words"),
    ):
        with pytest.raises(CollapsiumError, match=message) as caught:
            ingest(tmp_path / path, tmp_path / "corpus")
        assert "\n" not in str(caught.value)
    with pytest.raises(AbsentError):
        ingest(tmp_path / "none.h5ad", tmp_path / "corpus")


def linked(file, name, secret):
    del file[name]
    file[name] = h5py.ExternalLink(str(secret), "/X/data")


def stored_elsewhere(file, name, secret):
    shape, attributes = file[name].shape, dict(file[name].attrs)
    del file[name]
    file.create_dataset(name, shape, dtype="i1", external=[(str(secret), 0, int(np.prod(shape)))]).attrs.update(
        attributes
    )


def virtual(file, name, secret):
    layout = h5py.VirtualLayout(file[name].shape, "i8")
    layout[:] = h5py.VirtualSource(str(secret), "X/data", shape=file[name].shape)
    del file[name]
    file.create_virtual_dataset(name, layout)


@pytest.mark.parametrize("elsewhere", [linked, stored_elsewhere, virtual])
@pytest.mark.parametrize("name", ["X/data", "X/indices"])
def test_arrays_in_other_files__are_not_read(tmp_path, elsewhere, name):
    secret = write_file(tmp_path / "secret.h5ad", COUNTS)
    with h5py.File(write_file(tmp_path / "x.h5ad", COUNTS), "r+") as file:
        elsewhere(file, name, secret)
    with pytest.raises(InputError, match="expected all arrays in this file, found one in another file"):
        ingest(tmp_path / "x.h5ad", tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize("name", ["obs/_index", "var/_index", "X/indptr", "X/data"])
def test_arrays_that_expand_to_far_more_than_their_file__are_refused(tmp_path, name):
    with h5py.File(write_file(tmp_path / "x.h5ad", COUNTS), "r+") as file:
        dtype = file[name].dtype
        del file[name]
        file.create_dataset(name, (1 << 30,), dtype, chunks=(1 << 10,))
    with pytest.raises(InputError, match="decompresses to more than 268 MB"):
        ingest(tmp_path / "x.h5ad", tmp_path / "corpus")


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64", "int64", "float32"])
def test_matrix_market__is_read_as_scipy_writes_any_type_of_counts(tmp_path, dtype):
    path = tmp_path / "counts.mtx"
    scipy.io.mmwrite(path, scipy.sparse.coo_matrix(COUNTS.astype(dtype)))
    documents = Documents.join(list(matrices.open_matrix(str(path), with_words(tmp_path)).documents()))
    csr = scipy.sparse.csr_array(COUNTS)
    assert (documents.words.tolist(), documents.counts.tolist()) == (csr.indices.tolist(), csr.data.tolist())


def test_fractions_in_place_of_rows__are_refused_in_matrix_market(tmp_path):
    path = tmp_path / "counts.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n7 5 2\n1.5 2 3\n2 1 1\n")
    with pytest.raises(InputError, match="rows and columns in whole numbers"):
        list(matrices.open_matrix(str(path), with_words(tmp_path)).documents())


def test_infinite_halves__are_no_counts():
    values = np.array([[1, np.inf], [0, 2]], dtype=np.float16)
    frame = pd.DataFrame(index=texts(["a", "b"]))
    source = SimpleNamespace(X=values, layers={}, obs=frame, obs_names=frame.index, var_names=texts(["x", "y"]))
    with pytest.raises(InputError, match="row 1, column 2: expected a whole count of 0 or more, found inf"):
        list(AnnotatedSource(source, ReadOptions()).documents())


def test_masked_counts__are_refused():
    import anndata

    counts = np.ma.masked_array([[1, 0], [2, 3]], mask=[[False, False], [False, True]])
    adata = anndata.AnnData(counts, pd.DataFrame(index=["a", "b"]), pd.DataFrame(index=["x", "y"]))
    with pytest.raises(InputError, match="row 2, column 2: expected counts, found a masked one"):
        list(AnnotatedSource(adata, ReadOptions()).documents())


def test_binarised_counts__may_be_fractional():
    source = AnnotatedSource(cells(NORMALISED), ReadOptions(binarise=True))
    assert {count for part in source.documents() for count in part.counts.tolist()} == {1}
