"""Hostile input: any bytes give a clear error or a result, and no partial output."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import re
import resource
import zipfile

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from collapsium.pipeline import ingest
from collapsium.pipeline.cli.main import main
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import DamagedError, InputError
from collapsium.storage.io.arrays import DIGESTS, read_arrays, write_arrays
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump
from tests.chaos.readers import READERS, try_reader
from tests.chaos.seeds import dense_file, seeds_of
from tests.deploy.reading import ROOT


@st.composite
def mutations(draw, name):
    """Draw a small file of a reader's format with some bytes changed, removed, inserted or repeated, or any bytes."""
    data = bytearray(draw(st.sampled_from(seeds_of(name))))
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(data)))
        kind = draw(st.integers(0, 4))
        if kind == 0 and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == 1:
            del data[at : at + draw(st.integers(1, 9))]
        elif kind == 2:
            data[at:at] = draw(st.binary(max_size=9))
        elif kind == 3:
            data[at:at] = data[at : at + draw(st.integers(1, 40))]
        else:
            number = str(draw(st.sampled_from([-1, 0, 2**31, 2**63, 10**18, 10**40, 1e300, 0.5])))
            data[at:at] = number.encode()
    return bytes(data)


def test_make_fuzz__includes_all_readers():
    listed = re.search(r"^READERS := ([^\\\n]*(?:\\\n[^\\\n]*)*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert sorted(listed.replace("\\\n", " ").split()) == sorted(READERS)


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
def test_readers__give_a_clear_error_or_a_result(name, tmp_path):
    place, outcomes = tmp_path / "place", []

    @settings(max_examples=150, deadline=None, database=None, derandomize=True)
    @given(mutations(name))
    def try_one(data):
        outcomes.append(try_reader(name, data, place))

    for data in seeds_of(name):
        assert try_reader(name, data, place) or name == "arrays"
    try_one()
    assert False in outcomes


# Inputs that the fuzzer found ----------------------------------------------------------------------------------------

BANNER = b"%%MatrixMarket matrix coordinate integer general\n"
FOUND = [
    ("mtx", BANNER + b"4 3 3\n1 1 2\n1 3 1\n2 2 3 "),  # SciPy 1.17 reads beyond the end
    ("mtx", BANNER + b"1 3 3\n1 1 2\0\0\0\0\0\0\0\0 2 5\n"),
    ("mtx", BANNER + b"2000000000 3 1\n1 1 2\n"),
    ("mtx", BANNER + b"2 3 1000000000000000\n1 1 2\n"),
    ("uci", b"2000000000\n3\n1\n1 1 1\n"),
    ("uci", b"2000000000\n3\n2000000000\n1999999999 1 1\n"),
    ("npz", b"PK\x03\x04"),
    ("ldac", b"1 0:" + b"9" * 5000 + b"\n"),
    ("jsonl", b"[" * 100_000),
    ("jsonl", b'{"id": ' + b"9" * 5000 + b', "text": "a"}'),
    ("manifest", b"[" * 100_000),
    ("run", b'{"format": "collapsium-run", "version": ' + b"9" * 5000 + b"}"),
    ("events", b"5\n"),
    ("vectors-array", b"9"),
    ("vectors-zarr", b"9"),
    ("vectors-zarr", dense_file(3, "zarr.json").replace(b"        1,\n", b"        0,\n")),
    ("vectors-zarr-2", dense_file(2, ".zarray").replace(b"    1,\n", b"    0,\n")),
    ("config", b"a = " + b"[" * 3000),
]


@pytest.mark.parametrize(("name", "data"), FOUND, ids=lambda value: value if isinstance(value, str) else "")
def test_inputs_that_the_fuzzer_found__give_a_clear_error(name, data, tmp_path):
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try_reader(name, data, tmp_path / "place")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 500_000  # kilobytes


# Compressed input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)])
def test_a_small_file_with_large_contents__is_refused_unless_it_is_trusted(tmp_path, ending, pack, monkeypatch, capsys):
    monkeypatch.setattr("collapsium.storage.readers.base.LEAST_LIMIT", 1 << 16)
    lines = b'{"id": 0, "text": "%s"}\n' % (b"word " * 1_000_000)
    path = tmp_path / f"bomb.jsonl.{ending}"
    path.write_bytes(pack(lines))
    with pytest.raises(InputError, match=r"decompresses to more than .*`max_decompressed`"):
        ingest(path, tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()
    assert main(["ingest", str(path), str(tmp_path / "corpus"), "--max-decompressed", "10MB"]) == 0
    assert Corpus(tmp_path / "corpus").manifest.tokens == 1_000_000
    assert main(["ingest", str(path), str(tmp_path / "again"), "--max-decompressed", "much"]) == 2
    assert "--max-decompressed: expected a size" in capsys.readouterr().err


def test_an_archive_of_a_matrix_with_large_contents__is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("collapsium.storage.readers.base.LEAST_LIMIT", 1 << 16)
    monkeypatch.setattr("collapsium.storage.readers.base.RATIO", 10)
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.csr_matrix(np.ones((200_000, 2), dtype=np.int64)))
    with pytest.raises(InputError, match="decompresses to more than"):
        ingest(tmp_path / "x.npz", tmp_path / "corpus")
    ingest(tmp_path / "x.npz", tmp_path / "corpus", max_decompressed=10**8)


# Pickles and paths ---------------------------------------------------------------------------------------------------


class Trap:
    """Detects that it is unpickled."""

    def __reduce__(self):
        return (open, ("unpickled", "w"))


def test_nothing_is_unpickled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vocab.txt").write_text("a\n")
    sink = io.BytesIO()
    np.save(sink, np.array([Trap()], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for name in ("format", "shape", "data", "row", "col"):
            archive.writestr(f"{name}.npy", sink.getvalue())
    with pytest.raises(InputError, match="holds a pickle"):
        ingest("x.npz", "corpus")
    for name, data in (("x.jsonl", pickle.dumps(Trap())), ("x.ldac", pickle.dumps(Trap()))):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError):
            ingest(name, "corpus")
    assert not (tmp_path / "unpickled").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"codecs": [{"name": "numcodecs.pickle", "configuration": {}}]},
        {"data_type": "variable_length_bytes", "fill_value": ""},
        {"shape": [10**12]},
        {"shape": [10**12], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10**12]}}},
    ],
)
def test_arrays_in_another_format__are_refused_despite_correct_digests(tmp_path, change):
    folder = Folder(tmp_path / "a")
    write_arrays(folder, {"x": np.arange(3.0)})
    import hashlib

    data = json.dumps({**json.loads(folder.read("x/zarr.json")), **change}).encode()
    record = json.loads(folder.read(DIGESTS))
    del record["sha256"]
    record["files"]["x/zarr.json"] = hashlib.sha256(data).hexdigest()
    folder.write("x/zarr.json", data)
    folder.write(DIGESTS, dump(record))
    with pytest.raises(DamagedError, match=str(tmp_path)):
        read_arrays(folder)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "C:\\x", "memory://x", "."])
def test_digests_that_name_files_outside_of_the_folder__are_refused(tmp_path, name):
    folder = Folder(tmp_path / "a")
    write_arrays(folder, {"x": np.arange(3.0)})
    record = json.loads(folder.read(DIGESTS))
    del record["sha256"]
    record["files"][f"{name}/zarr.json"] = "0" * 64
    folder.write(DIGESTS, dump(record))
    with pytest.raises(DamagedError):
        read_arrays(folder)


def test_words_with_control_characters__are_shown_as_text(tmp_path, capsys):
    (tmp_path / "words").write_bytes(b"evil\x1b]0;title\x07\nplain\n")
    (tmp_path / "x.ldac").write_text("2 0:3 1:2\n1 0:1\n")
    ingest(tmp_path / "x.ldac", tmp_path / "c", vocabulary=str(tmp_path / "words"))
    assert main(["fit", str(tmp_path / "c"), str(tmp_path / "r"), "--family", "lda", "--topics", "1", "--quiet"]) == 0
    assert main(["topics", str(tmp_path / "r")]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "plain" in out
