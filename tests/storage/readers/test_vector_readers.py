"""Files of dense vectors: all formats give the same vectors, and faults are reported with file, row and column."""

import gzip
import io
import json
import shutil

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from collapsium.pipeline import ingest
from collapsium.pipeline.cli.main import main
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.vectors import Vectors
from collapsium.storage.errors import CollapsiumError, InputError, OptionError
from collapsium.storage.readers.open import ReadOptions, guess_format, open_vectors
from tests.storage.corpus.test_vectors import FINITE
from tests.storage.readers.test_readers import put

FORMATS = (
    "csv",
    "csv.gz",
    "header.csv",
    "npy",
    "fortran.npy",
    "npy.gz",
    "npz",
    "packed.npz",
    "zarr",
    "2.zarr",
    "group.zarr",
)
SMALL = np.array([[1.5, -2.0, 3.0], [4.0, 5.0, 1e-300], [7.0, 8.25, 9.0]])


def write(kind, folder, values):
    """Write values in a format; return the path."""
    path = str(folder / f"x.{kind}")
    if "csv" in kind:
        lines = [",".join(map(repr, row)) for row in values.tolist()]
        if kind == "header.csv":
            lines.insert(0, ",".join(f"column {n}" for n in range(values.shape[1])))
        text = ("\n".join(lines) + "\n").encode()
        return put(folder, f"x.{kind}", gzip.compress(text) if kind.endswith("gz") else text)
    if "npy" in kind:
        sink = io.BytesIO()
        np.save(sink, np.asfortranarray(values) if kind == "fortran.npy" else values)
        return put(folder, f"x.{kind}", gzip.compress(sink.getvalue()) if kind.endswith("gz") else sink.getvalue())
    if "npz" in kind:
        (np.savez_compressed if kind == "packed.npz" else np.savez)(path, values=values)
        return path
    chunks = (2, max(values.shape[1] - 1, 1))
    if kind == "group.zarr":
        group = zarr.open_group(path, mode="w")
        group.create_array("a", shape=values.shape, chunks=chunks, dtype=values.dtype)[...] = values
        return path
    zarr.create_array(path, data=values, chunks=chunks, zarr_format=2 if kind == "2.zarr" else 3)
    return path


def read(*paths, **options):
    """Return all vectors of some files."""
    return Vectors.join(list(open_vectors(list(paths), ReadOptions(**options)).vectors()))


@settings(max_examples=15)
@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 7), st.integers(1, 4)), elements=FINITE))
def test_formats__give_the_same_vectors(tmp_path_factory, values):
    place = tmp_path_factory.mktemp("formats")
    for kind in FORMATS:
        path = write(kind, place, values)
        found = read(path)
        assert found.values.tobytes() == (values + 0.0 if "csv" in kind else values).tobytes() or (
            np.array_equal(found.values, values)
        )
        assert found.values.dtype == np.float64
        assert found.ids.to_pylist() == [str(n) for n in range(1, len(values) + 1)]
        shutil.rmtree(path) if "zarr" in kind else None
    shutil.rmtree(place)


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i2", "u1", "?", ">i8", "f2"])
@pytest.mark.parametrize("kind", ["npy", "npz", "zarr"])
def test_numbers_of_any_type__become_doubles(tmp_path, dtype, kind):
    values = np.array([[1, 0], [0, 1], [1, 1]], dtype=dtype)
    found = read(write(kind, tmp_path, values)).values
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, values.astype(float))


@pytest.mark.parametrize("kind", FORMATS)
def test_chunks_of_any_size__make_the_complete_vectors(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("collapsium.storage.readers.vectors.CHUNK_VALUES", 7)
    monkeypatch.setattr("collapsium.storage.readers.vectors.BLOCK", 50)
    values = np.random.default_rng(1).normal(size=(23, 3))
    path = write(kind, tmp_path, values)
    parts = list(open_vectors([path]).vectors())
    assert len(parts) > 1
    assert Vectors.join(parts).values.tobytes() == values.tobytes()
    assert Vectors.join(parts).ids.to_pylist() == [str(n) for n in range(1, 24)]


def test_formats__are_recognised_by_the_name_if_possible(tmp_path):
    assert [guess_format([f"a/x.{end}"]) for end in ("npy", "NPY.gz", "zarr", "npz")] == [
        "vectors",
        "vectors",
        "vectors",
        "npz",
    ]
    ingest(write("npy", tmp_path, SMALL), tmp_path / "c")
    np.testing.assert_array_equal(Corpus(tmp_path / "c").references[0].load().values, SMALL)
    assert Corpus(tmp_path / "c").vocabulary.words == ["x1", "x2", "x3"]
    with pytest.raises(CollapsiumError, match="text"):  # a table is one of texts unless it is declared to have vectors
        ingest(write("csv", tmp_path, SMALL), tmp_path / "d")
    assert not (tmp_path / "d").exists()


# Ids, labels and names -----------------------------------------------------------------------------------------------

TABLE = "name,length,kind,width\na,1,x,2\nb,3,,4\nc,5,y,6\n"


@pytest.mark.parametrize(
    "text",
    [TABLE, "\ufeff" + TABLE, TABLE.replace("\n", "\r\n"), TABLE.replace("kind", '"kind"'), TABLE.replace(",", " , ")],
)
@pytest.mark.parametrize(("id_field", "label"), [("name", "kind"), ("1", "3"), ("-4", "-2"), ("name", "kind=3")])
def test_columns_of_ids_and_labels__are_given_by_name_or_number(tmp_path, text, id_field, label):
    path = put(tmp_path, "t.csv", text)
    found = read(path, id=id_field, labels=(label,))
    assert found.ids.to_pylist() == ["a", "b", "c"]
    assert found.values.tolist() == [[1, 2], [3, 4], [5, 6]]
    labels = [{"field": "kind", "value": "x"}], [], [{"field": "kind", "value": "y"}]
    assert found.extras["labels"].to_pylist() == [*labels]
    source = open_vectors([path], ReadOptions(id=id_field, labels=(label,)))
    assert source.columns() == ["length", "width"]


def test_labels_of_files_without_a_header__have_names_too(tmp_path):
    path = put(tmp_path, "t.data", "1,2,a,0\n3,4,b,7\n")
    assert read(path, labels=("-2", "-1")).extras["labels"].to_pylist() == [
        [{"field": "label1", "value": "a"}, {"field": "label2", "value": "0"}],
        [{"field": "label1", "value": "b"}, {"field": "label2", "value": "7"}],
    ]
    labels = read(put(tmp_path, "s.tra", "1,a\n2,b\n"), labels=("-1",)).extras["labels"].to_pylist()
    assert labels == [[{"field": "label", "value": "a"}], [{"field": "label", "value": "b"}]]
    named = read(path, labels=("kind=3", "-1")).extras["labels"].to_pylist()
    assert [pair["field"] for pair in named[0]] == ["kind", "label2"]


@pytest.mark.parametrize("kind", ["npy", "npz", "zarr"])
def test_labels__can_be_columns_of_an_array(tmp_path, kind):
    path = write(kind, tmp_path, np.array([[1.0, 0.5, 7.0], [2.0, 0.25, 8.5]]))
    found = read(path, labels=("digit=-1",), id="1")
    assert found.values.tolist() == [[0.5], [0.25]]
    assert found.ids.to_pylist() == ["1", "2"]
    assert [pairs[0] for pairs in found.extras["labels"].to_pylist()] == [
        {"field": "digit", "value": "7"},
        {"field": "digit", "value": "8.5"},
    ]


def test_labels_and_ids__can_be_arrays_of_an_archive(tmp_path, monkeypatch):
    monkeypatch.setattr("collapsium.storage.readers.vectors.CHUNK_VALUES", 4)
    path = tmp_path / "x.npz"
    np.savez(path, X=SMALL, y=np.array([1, 0, 2]), kind=np.array(["a", "b", "c"]), ids=np.array(["p", "q", "r"]))
    found = read(str(path), labels=("y", "sort=kind"), id="ids")
    assert found.ids.to_pylist() == ["p", "q", "r"]
    assert found.values.tobytes() == SMALL.tobytes()
    assert found.extras["labels"].to_pylist()[2] == [
        {"field": "y", "value": "2"},
        {"field": "sort", "value": "c"},
    ]
    with pytest.raises(InputError, match=r"expected one array of vectors, found X, y, kind, ids \(`values` NAME\)"):
        read(str(path))
    assert read(str(path), values="X").values.tobytes() == SMALL.tobytes()
    with pytest.raises(OptionError, match="`values` Y: .* has no such array"):
        read(str(path), values="Y")
    np.savez(path, X=SMALL, y=np.arange(4))
    with pytest.raises(InputError, match="array 'y': expected one value for each of 3 vectors, found 4"):
        read(str(path), labels=("y",))


def test_groups__require_the_name_of_an_array(tmp_path):
    path = str(tmp_path / "g.zarr")
    group = zarr.open_group(path, mode="w")
    for name in ("a", "b"):
        group.create_array(name, data=SMALL + (name == "b"))
    assert read(path, values="b").values.tobytes() == (SMALL + 1).tobytes()
    with pytest.raises(InputError, match=r"expected one array of vectors, found a, b \(`values` NAME\)"):
        read(path)
    with pytest.raises(OptionError, match="`values` c: .* has no such array"):
        read(path, values="c")
    with pytest.raises(OptionError, match="is one array, which has no name"):
        read(f"{path}/a", values="a")


def test_zarr__can_be_read_from_any_store():
    zarr.create_array(zarr.storage.FsspecStore.from_url("memory://arrays/x.zarr"), data=SMALL)
    assert read("memory://arrays/x.zarr").values.tobytes() == SMALL.tobytes()


@pytest.mark.parametrize(
    ("text", "header", "columns"),
    [
        ("a,b\n1,2\n", None, ["a", "b"]),
        ("1,2\n3,4\n", None, ["x1", "x2"]),
        ("1,2\n3,4\n", "yes", ["1", "2"]),
        ("1,2\n3,4\n", "no", ["x1", "x2"]),
        ("nan,inf\n3,4\n", "yes", ["nan", "inf"]),
    ],
)
def test_a_header__is_detected_or_declared(tmp_path, text, header, columns):
    source = open_vectors([put(tmp_path, "x.csv", text)], ReadOptions(header=header))
    assert source.columns() == columns
    assert sum(len(part) for part in source.vectors()) == text.count("\n") - (columns[0] != "x1")


def test_the_vocabulary__gives_the_names_of_columns(tmp_path):
    path, names = write("npy", tmp_path, SMALL), put(tmp_path, "names", "p\nq\nr\n")
    assert open_vectors([path], ReadOptions(vocabulary=names)).columns() == ["p", "q", "r"]
    with pytest.raises(InputError, match="expected names of the 3 columns of values, found 2"):
        open_vectors([path], ReadOptions(vocabulary=put(tmp_path, "few", "p\nq\n")))


def test_several_files__are_read_in_order(tmp_path):
    paths = [put(tmp_path, "a/x.tra", "1,2,0\n3,4,1\n"), write("npy", tmp_path, np.array([[5.0, 6.0, 1.0]]))]
    found = read(*paths, labels=("digit=-1",))
    assert found.values.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert found.ids.to_pylist() == ["x.tra/1", "x.tra/2", "x.npy/1"]
    narrower = put(tmp_path, "b.csv", "1,2,3,4\n")
    with pytest.raises(InputError, match=r"b.csv: expected 2 columns of values as in .*x.tra, found 3"):
        read(*paths, narrower, labels=("-1",))
    named = [put(tmp_path, "n.csv", "p,q\n1,2\n"), put(tmp_path, "m.csv", "p,r\n3,4\n")]
    with pytest.raises(InputError, match=r"m.csv: expected the columns of .*n.csv, found 'r' for 'q'"):
        read(*named)
    with pytest.raises(InputError, match="the same file is given twice"):
        read(paths[0], paths[0])


# Refusals ------------------------------------------------------------------------------------------------------------


def test_the_command__reports_what_it_made(tmp_path, capsys):
    path = put(tmp_path, "x.tra", "1,2,0\n1,4,1\n")
    assert main(["ingest", path, str(tmp_path / "c"), "--format", "vectors", "--labels", "digit=-1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / 'c'}: 2 vectors of 2 columns, 1 shard",
        "the same in all vectors: x1 (1 column, kept)",
        "  guessed: separator , (--separator), header no (--header)",
    ]
    assert main(["ingest", path, str(tmp_path / "d"), "--format", "vectors", "--labels", "-1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["vectors"]["constant"] == [0]
    assert main(["ingest", path, str(tmp_path / "e"), "--format", "vectors", "--stop-words", "english"]) == 2
    assert "--stop-words: applies only to documents" in capsys.readouterr().err
    assert not (tmp_path / "e").exists()


def test_a_column_of_ids__that_is_read_as_a_value_is_reported(tmp_path):
    path = put(tmp_path, "x.csv", b"a,ID\n1,7\n2.5,8\n")
    guess = ("column ID", "one of the values", "id")
    for options, expected in ((ReadOptions(), True), (ReadOptions(id="ID"), False)):
        found = open_vectors([path], options).guesses
        assert (guess in [(each.what, each.value, each.option) for each in found]) is expected
