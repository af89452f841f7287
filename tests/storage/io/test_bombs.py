"""Decompression bombs are refused in one line before they are decoded."""

import hashlib
import io
import json
import resource

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from collapsium.pipeline import ingest
from collapsium.storage.corpus.manifest import ShardRecord
from collapsium.storage.corpus.shard import decode
from collapsium.storage.corpus.vocabulary import parse_vocabulary, words_of_column
from collapsium.storage.errors import DamagedError, InputError
from collapsium.storage.io import parquet
from collapsium.storage.io.arrays import DIGESTS, read_arrays, write_arrays
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.parquet import BoundedFile, SwollenError
from collapsium.storage.io.records import dump

SMALL = 1 << 20  # limit of decompressed bytes in these tests
LONG = "a" * (1 << 16)
LABELS = pa.list_(pa.struct([("field", pa.string()), ("value", pa.string())]))


@pytest.fixture(autouse=True)
def small_limit(monkeypatch):
    monkeypatch.setattr(parquet, "LEAST_LIMIT", SMALL)


def bytes_of(columns, **options):
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="zstd", store_schema=False, **options)
    return sink.getvalue()


def record_of(documents, pairs):
    digests = {"sha256": "0" * 64, "ids_sha256": "0" * 64}
    return ShardRecord(file="x", documents=documents, pairs=pairs, tokens=pairs, **digests)


def shard_of(ids, **more):
    single_words = pa.array([[0]] * len(ids), pa.list_(pa.int32()))
    return {"id": ids, "words": single_words, "counts": pa.array([[1]] * len(ids), pa.list_(pa.int32())), **more}


def test_a_shard_whose_ids_are_one_long_word__is_refused():
    data = bytes_of(shard_of([LONG] * 100))
    assert len(data) < 10_000
    with pytest.raises(DamagedError, match="decompresses to more than"):
        decode(data, record_of(100, 100), 3, "x")


def test_a_shard_of_equal_pairs__is_refused():
    count, offsets = 1_000_000, pa.array([0, 1_000_000], pa.int32())
    lists = {
        name: pa.ListArray.from_arrays(offsets, pa.array(np.ones(count, np.int32))) for name in ("words", "counts")
    }
    data = bytes_of({"id": ["a"], **lists})
    assert len(data) < 5_000
    with pytest.raises(DamagedError, match="decompresses to more than"):
        decode(data, record_of(1, count), 3, "x")


def test_labels_of_one_long_value__are_refused():
    labels = pa.array([[{"field": "f", "value": LONG}]] * 100, LABELS)
    with pytest.raises(DamagedError, match="decompresses to more than"):
        decode(bytes_of(shard_of([str(n) for n in range(100)], labels=labels)), record_of(100, 100), 3, "x")


def test_vocabularies_of_one_long_word__are_refused():
    counts = pa.array([1] * 100)
    with pytest.raises(DamagedError, match="decompresses to more than"):
        parse_vocabulary(bytes_of({"word": [LONG] * 100, "documents": counts, "tokens": counts}), 100, "x")
    with pytest.raises(InputError, match="decompresses to more than"):
        words_of_column("x", bytes_of({"word": [LONG] * 100}))


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}])
@pytest.mark.parametrize("listed", [False, True])
def test_texts_of_parquet__are_bounded_unless_they_are_trusted(tmp_path, options, listed):
    texts = pa.array([[LONG] * 100]) if listed else pa.array([LONG] * 100)
    ids = ["a"] if listed else [str(n) for n in range(100)]
    (tmp_path / "x.parquet").write_bytes(bytes_of({"id": ids, "text": texts}, **options))
    how = {"segments": "column"} if listed else {}
    with pytest.raises(InputError, match=r"decompresses to more than.*`max_decompressed`"):
        ingest(tmp_path / "x.parquet", tmp_path / "corpus", scheduler="serial", **how)
    assert not (tmp_path / "corpus").exists()
    ingest(tmp_path / "x.parquet", tmp_path / "corpus", scheduler="serial", max_decompressed="100MB", **how)


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_bounded_file__returns_what_arrow_reads(compression, version):
    table = pa.table({
        "id": [str(n) for n in range(300)],
        "text": [None if n % 7 == 0 else "word " * (n % 50) for n in range(300)],
        "list": [None if n % 5 == 0 else ["a", None, "b" * n][: n % 4] for n in range(300)],
        "labels": pa.array([[{"field": "f", "value": str(n)}] * (n % 3) for n in range(300)], LABELS),
        "number": pa.array([None if n % 2 else n / 3 for n in range(300)], pa.float64()),
        "counts": pa.array([[n] * (n % 3) for n in range(300)], pa.list_(pa.int32())),
    })  # fmt: skip
    for options in ({}, {"use_dictionary": False}, {"row_group_size": 70, "data_page_size": 100}):
        sink = io.BytesIO()
        pq.write_table(table, sink, compression=compression, data_page_version=version, **options)
        expected = pq.read_table(io.BytesIO(sink.getvalue()))
        file = BoundedFile(io.BytesIO(sink.getvalue()), 1 << 28)
        assert file.table().to_pylist() == expected.to_pylist()
        assert file.table().schema.equals(expected.schema)
        batches = list(file.batches(["list", "text"]))
        assert pa.Table.from_batches(batches).to_pylist() == expected.select(["list", "text"]).to_pylist()


SOUND = bytes_of({"id": [LONG[:9]] * 3, "list": pa.array([["x"], [], ["y"]])})


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.integers(0, len(SOUND) - 1), st.binary(min_size=1, max_size=6))
def test_damaged_files__raise_the_errors_of_arrow_and_its_readers(place, piece):
    data = SOUND[:place] + piece + SOUND[place + len(piece) :]
    try:
        outcome = BoundedFile(io.BytesIO(data)).table()
    except Exception as error:
        outcome = error
    assert isinstance(outcome, (pa.Table, pa.ArrowException, ValueError, OSError, KeyError, MemoryError))


def test_a_page_that_declares_less_than_it_contains__is_refused():
    data = bytes_of({"id": [f"{n}{LONG}" for n in range(100)]}, use_dictionary=False, data_page_size=1 << 30)
    with pytest.raises(SwollenError):
        BoundedFile(io.BytesIO(data)).table()


def test_arrays_much_larger_than_their_files__are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("collapsium.storage.io.arrays.LEAST_LIMIT", 1 << 16)
    monkeypatch.setattr("collapsium.storage.io.arrays.RATIO", 10)
    write_arrays(Folder(tmp_path / "a"), {"x": np.zeros(100_000)})
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DamagedError, match="decompresses to more than"):
        read_arrays(Folder(tmp_path / "a"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 100_000
    write_arrays(Folder(tmp_path / "b"), {"x": np.random.default_rng(0).random(100_000)})
    assert read_arrays(Folder(tmp_path / "b"))["x"].size == 100_000


def test_a_chunk_that_decompresses_to_too_much__is_refused(tmp_path):
    folder = Folder(tmp_path / "a")
    write_arrays(folder, {"x": np.zeros(8)})
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:  # without the declared decompressed size
        stream.write(b"\0" * (1 << 24))
    record, data = json.loads(folder.read(DIGESTS)), sink.getvalue().to_pybytes()
    folder.write("x/c.0", data)
    record["files"]["x/c.0"] = hashlib.sha256(data).hexdigest()
    folder.write(DIGESTS, dump({name: value for name, value in record.items() if name != "sha256"}))
    with pytest.raises(DamagedError):
        read_arrays(folder)


def test_a_zarr_array_of_missing_chunks__is_refused_at_once(tmp_path):
    zarr.create_array(str(tmp_path / "x.zarr"), shape=(900 << 10, 1 << 10), chunks=(1 << 10, 1 << 10), dtype="float64")
    with pytest.raises(InputError, match=r"decompresses to more than.*`max_decompressed`"):
        ingest(tmp_path / "x.zarr", tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()
