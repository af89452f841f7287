"""Invalid, hostile and damaged files of vectors are reported with file, row and column."""

import contextlib
import io
import json
import pickle
import shutil
import zipfile

import numpy as np
import pytest
import scipy.sparse
import zarr

from collapsium.pipeline import ingest
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import AbsentError, CollapsiumError, InputError, OccupiedError, OptionError
from tests.storage.readers.test_readers import put
from tests.storage.readers.test_vector_readers import FORMATS, SMALL, read, write


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("a,b\n", "the corpus is empty"),
        ("1,2\n3,x\n", "row 2, column 2: expected a number, found 'x'"),
        ("1,2\n\n3,x\n", "column 2: expected a number, found 'x'"),
        ("1,2\n3,\n", "row 2, column 2: expected a number, found ''"),
        ("a,b\n1,2\n3,NA\n", "row 2, column 2: expected a number, found 'NA'"),
        ("5.1,3.5,setosa\n4.9,3.0,setosa\n", "row 1, column 3: expected a number, found 'setosa'"),
        ("1,2\n3\n", "row 2: expected 2 columns as in the first line, found 1"),
        ("1,2\n3,4,5\n", "row 2: expected 2 columns as in the first line, found 3"),
        ("1,2\n3,nan\n", "row 2, column 2 ('x2'): expected a finite number, found nan"),
        ("a,b\n1,2\n-inf,4\n", "row 2, column 1 ('a'): expected a finite number, found -inf"),
        ("1,2\n1e999,4\n", "row 2, column 1 ('x1'): expected a finite number, found inf"),
        ("1,1_0\n", "column 2: expected a number"),
        ("a,a\n1,2\n", "header: expected a distinct name for each column of values, found 'a' twice"),
        ("a,\n1,2\n", "header: expected a distinct name for each column of values, found one without"),
        ("1,\xff\n".encode("latin-1"), "expected UTF-8 text"),
        (b"1,2\n3,\xff\n", "row 2, column 2: expected a number"),
    ],
)
def test_invalid_tables__are_refused(tmp_path, text, message):
    path = put(tmp_path, "x.csv", text)
    for shard_tokens in (None, 1):
        with pytest.raises(InputError) as raised:
            ingest(path, tmp_path / "c", format="vectors", shard_tokens=shard_tokens)
        assert message in str(raised.value)
        assert str(raised.value).startswith(path)
    assert [child.name for child in tmp_path.iterdir()] == ["x.csv"]


@pytest.mark.parametrize("kind", FORMATS)
def test_values_that_are_not_finite__are_named(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("collapsium.storage.readers.vectors.CHUNK_VALUES", 3)
    monkeypatch.setattr("collapsium.storage.readers.vectors.BLOCK", 10)
    values = SMALL.copy()
    values[2, 1] = np.nan
    path, before = write(kind, tmp_path, values), sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=r"row 3, column 2 \('.*'\): expected a finite number, found nan"):
        ingest(path, tmp_path / "c", format="vectors", shard_tokens=3)
    assert sorted(tmp_path.iterdir()) == before


def test_errors__name_columns_by_their_number_in_the_file(tmp_path):
    path = put(tmp_path, "x.csv", "a,1,2\nb,3,nan\n")
    with pytest.raises(InputError, match=r"row 2, column 3 \('x2'\)"):
        read(path, labels=("1",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": ("9",)}, r"`labels` 9: .*x.csv has the columns 1 to 2, or -1 to -2"),
        ({"labels": ("-3",)}, r"`labels` -3: .*x.csv has the columns"),
        ({"labels": ("0",)}, r"`labels` 0: .*x.csv has the columns"),
        ({"labels": ("c",)}, r"`labels` c: .* has no such column"),
        ({"id": "c"}, r"`id` c: .* has no such column"),
        ({"labels": ("a", "1")}, "a column is named twice"),
        ({"labels": ("a",), "id": "a"}, "a column is named twice"),
        ({"header": "perhaps"}, "header: expected yes or no, found 'perhaps'"),
        ({"header": "no", "labels": ("a",)}, "names no columns; expected a number"),
    ],
)
def test_missing_columns__are_refused(tmp_path, options, message):
    with pytest.raises(OptionError, match=message):
        read(put(tmp_path, "x.csv", "a,b\n1,2\n"), **options)


def test_files_without_columns_of_values__are_refused(tmp_path):
    with pytest.raises(InputError, match="expected a column of values"):
        read(put(tmp_path, "x.csv", "1,2\n"), labels=("1", "2"))


def test_ids__must_be_present_and_distinct(tmp_path):
    for text, message in (
        ("a,1\n,2\n", "row 2: expected an id, found none"),
        ("a,1\nb,2\na,3\n", "row 3: the id 'a' occurs twice"),
    ):
        with pytest.raises(InputError, match=message):
            read(put(tmp_path, "x.csv", text), id="1")
    first, second = put(tmp_path, "x.csv", "a,1\n"), put(tmp_path, "y.csv", "a,1\n")
    with pytest.raises(InputError, match=r"y.csv: row 1: the id 'a' occurs twice"):
        read(first, second, id="1")


@pytest.mark.parametrize("values", [np.zeros(3), np.zeros((2, 2, 2)), np.zeros((3, 0)), np.float64(1.0)])
@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_arrays_of_other_shapes__are_refused(tmp_path, values, kind):
    path = tmp_path / f"x.{kind}"
    np.save(path, values) if kind == "npy" else np.savez(path, values)
    with pytest.raises(InputError, match="expected a dense array of vectors x columns, found the shape"):
        read(str(path))


@pytest.mark.parametrize("values", [np.array([["a"]]), np.array([[1j]]), np.zeros((1, 1), dtype="M8[s]")])
def test_arrays_that_are_not_numeric__are_refused(tmp_path, values):
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(InputError, match="expected numbers, found values of type"):
        read(str(tmp_path / "x.npy"))


def test_other_files__are_refused(tmp_path):
    with pytest.raises(AbsentError, match="no such file"):
        read(str(tmp_path / "x.csv"))
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.csr_matrix(SMALL))
    with pytest.raises(InputError, match="found a sparse matrix; see `format` npz"):
        read(str(tmp_path / "x.npz"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="expected a Zarr array"):
        read(str(tmp_path / "folder"))
    zarr.create_array(str(tmp_path / "v.zarr"), data=np.arange(3.0))
    with pytest.raises(InputError, match="found the shape 3"):
        read(str(tmp_path / "v.zarr"))
    np.save(tmp_path / "x.npy", SMALL)
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-4])
    with pytest.raises(InputError, match="bytes more of numbers"):
        read(str(tmp_path / "x.npy"))
    (tmp_path / "there").mkdir()
    with pytest.raises(OccupiedError):
        ingest(write("csv", tmp_path, SMALL), tmp_path / "there", format="vectors")


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("x.csv", {"format": "vectors", "stop_words": "none"}, "stop_words: applies only to documents"),
        ("x.csv", {"format": "vectors", "min_documents": 2}, "min_documents: applies only to documents"),
        ("x.csv", {"format": "vectors", "max_document_share": 0.5}, "max_document_share: applies only to documents"),
        ("x.csv", {"format": "vectors", "text": "text"}, "text: applies only to documents"),
        ("x.mtx", {"labels": "1"}, "labels: applies only to texts, vectors and AnnData"),
        ("x.txt", {"values": "a"}, "values: applies only to vectors"),
        ("x.txt", {"header": "no"}, "header: applies only to vectors"),
        ("x.csv", {"format": "vectors", "shard_tokens": 0}, "^shard_tokens: "),
    ],
)
def test_options_of_the_other_kind__are_refused(tmp_path, source, options, message):
    with pytest.raises(OptionError, match=message):
        ingest(put(tmp_path, source, "1,2\n"), tmp_path / "c", **options)
    assert not (tmp_path / "c").exists()


class Trap:
    """Detects that it is unpickled."""

    def __reduce__(self):
        return (open, ("unpickled", "w"))


def test_nothing_is_unpickled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sink = io.BytesIO()
    np.save(sink, np.array([[Trap()]], dtype=object), allow_pickle=True)
    put(tmp_path, "x.npy", sink.getvalue())
    with zipfile.ZipFile("x.npz", "w") as archive:
        archive.writestr("x.npy", sink.getvalue())
    zarr.create_array("x.zarr", shape=(1, 1), chunks=(1, 1), dtype="f8", zarr_format=2, compressors=None)
    record = json.loads((tmp_path / "x.zarr/.zarray").read_text())
    (tmp_path / "x.zarr/.zarray").write_text(json.dumps({**record, "filters": [{"id": "pickle"}]}))
    (tmp_path / "x.zarr/0.0").write_bytes(pickle.dumps(Trap()))
    shutil.copytree("x.zarr", "y.zarr")
    (tmp_path / "y.zarr/.zarray").write_text(json.dumps({**record, "compressor": {"id": "pickle"}}))
    put(tmp_path, "x.csv", pickle.dumps(Trap()))
    for name in ("x.npy", "x.npz", "x.zarr", "y.zarr", "x.csv"):
        with pytest.raises(InputError, match=name):
            read(name)
    assert not (tmp_path / "unpickled").exists()


def test_arrays_that_declare_too_large_a_shape__are_refused(tmp_path, monkeypatch):
    zarr.create_array(str(tmp_path / "x.zarr"), shape=(10**9, 2), chunks=(10, 2), dtype="f8")
    with pytest.raises(InputError, match="expected most of its 100000000 chunks, found 0"):
        read(str(tmp_path / "x.zarr"))
    zarr.create_array(str(tmp_path / "y.zarr"), shape=(10**12, 2), chunks=(10**12, 2), dtype="f8")
    with pytest.raises(InputError, match="expected chunks of at most"):
        read(str(tmp_path / "y.zarr"))
    monkeypatch.setattr("collapsium.storage.readers.base.LEAST_LIMIT", 1 << 10)
    np.savez_compressed(tmp_path / "x.npz", np.zeros((10**5, 4)))
    monkeypatch.setattr("collapsium.storage.readers.base.RATIO", 2)
    with pytest.raises(InputError, match=r"decompresses to more than .* \(`max_decompressed`\)"):
        read(str(tmp_path / "x.npz"))
    assert len(read(str(tmp_path / "x.npz"), max_decompressed=10**8)) == 10**5


@pytest.mark.parametrize("kind", FORMATS)
def test_any_change_of_a_byte__gives_a_result_or_a_collapsium_error(tmp_path, kind):
    path = tmp_path / write(kind, tmp_path, SMALL).rpartition("/")[2]
    files = sorted(child for child in path.rglob("*") if child.is_file()) if path.is_dir() else [path]
    held = {file: file.read_bytes() for file in files}
    generator = np.random.default_rng(0)
    for trial in range(30):
        file = files[trial % len(files)]
        data = bytearray(held[file])
        data[generator.integers(len(data))] ^= 1 << generator.integers(8)
        file.write_bytes(data)
        with contextlib.suppress(CollapsiumError):
            ingest(str(path), tmp_path / "c", format="vectors", max_decompressed=10**6)
        if (tmp_path / "c").exists():
            assert np.isfinite(Corpus(tmp_path / "c").references[0].load().values).all()
            shutil.rmtree(tmp_path / "c")
        assert not [child for child in tmp_path.iterdir() if child != path]
        file.write_bytes(held[file])
