"""Corpora of vectors are read exactly as they were written, and damage is detected."""

import hashlib
import json
import shutil

import numpy as np
import pyarrow as pa
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from collapsium.pipeline import info, verify
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.corpus.vectors import Vectors, VectorShard
from collapsium.storage.corpus.writer import MIN_SHARD_TOKENS, VectorWriter
from collapsium.storage.errors import AbsentError, CollapsiumError, DamagedError, InputError, MismatchError
from collapsium.storage.io.folder import Folder, created
from collapsium.storage.io.records import dump
from collapsium.workers.shard_loading import ShardOnDisk, load_shard, open_shard
from tests.conftest import write_corpus

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def vectors_of(values, first=0, labelled=False):
    """Return vectors with numbered ids and optionally a label each."""
    numbers = range(first, first + len(values))
    labels = [[{"field": "parity", "value": str(n % 2)}] if n % 3 else [] for n in numbers]
    extras = {"labels": pa.array(labels, LABELS)} if labelled else {}
    return Vectors(pa.array([f"v{n}" for n in numbers], pa.string()), np.asarray(values, dtype=float), extras)


def write_vectors(path, values, shard_tokens=None, portion=None, labelled=False):
    """Write a corpus of vectors, added in chunks."""
    with created(Folder(path)) as folder:
        writer = VectorWriter(folder, values.shape[1], shard_tokens)
        portion = portion or max(len(values), 1)
        for first in range(0, len(values), portion):
            writer.add(vectors_of(values[first : first + portion], first, labelled))
        writer.finish([f"x{n}" for n in range(1, values.shape[1] + 1)])
    return path


def values_of(corpus):
    """Return all vectors of a corpus, as its shards provide them for sweeps."""
    return np.concatenate([reference.load().values for reference in corpus.references])


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 5)), elements=FINITE),
    st.integers(1, 30),
    st.integers(1, 12),
)
def test_vectors__are_read_as_written_for_any_chunks(tmp_path_factory, values, shard_tokens, portion):
    place = tmp_path_factory.mktemp("vectors")
    corpus = Corpus(write_vectors(place / "c", values, shard_tokens, portion, labelled=True))
    again = Corpus(write_vectors(place / "again", values, shard_tokens, labelled=True))
    assert corpus.manifest.digest == again.manifest.digest
    assert values_of(corpus).tobytes() == values.tobytes()
    manifest, (count, width) = corpus.manifest, values.shape
    assert (manifest.documents, manifest.pairs, manifest.tokens) == (count, values.size, values.size)
    rows = -(-shard_tokens // width)
    assert [row.documents for row in manifest.shards] == [min(rows, count - n) for n in range(0, count, rows)]
    read = Vectors.join([reference.vectors() for reference in corpus.references])
    expected = vectors_of(values, labelled=True)
    assert read.ids.to_pylist() == expected.ids.to_pylist()
    assert read.extras["labels"].to_pylist() == expected.extras["labels"].to_pylist()
    assert manifest.vectors.constant == tuple(np.flatnonzero((values == values[0]).all(axis=0)))
    assert not verify(place / "c").broken
    # Zarr itself reads the same array from the folder.
    np.testing.assert_array_equal(zarr.open_array(str(place / "c/vectors.zarr"), mode="r")[...], values)
    shutil.rmtree(place)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (5, 3)])
def test_a_shard_of_vectors__has_the_attributes_of_a_shard(tmp_path, shape):
    values = np.arange(np.prod(shape), dtype=float).reshape(shape)
    for name, shard_tokens in (("one", None), ("many", shape[1])):
        corpus = Corpus(write_vectors(tmp_path / name, values, shard_tokens))
        assert len(corpus.manifest.shards) == (1 if shard_tokens is None else shape[0])
        for number, reference in enumerate(corpus.references):
            shard = reference.load()
            assert isinstance(shard, VectorShard)
            assert (shard.number, shard.words.dtype, shard.words.tolist()) == (number, np.int32, [*range(shape[1])])
            assert shard.documents == reference.record.documents == len(shard.values)
            assert shard.pairs == shard.tokens == shard.values.size
            assert shard.lengths.tolist() == [shape[1]] * shard.documents
            assert shard.values.dtype == np.float64
            assert shard.values.flags.c_contiguous
            assert shard.__sizeof__() == shard.words.nbytes + shard.values.nbytes


@pytest.mark.parametrize("scratch", [False, True])
def test_tasks__pass_vectors_in_memory_and_in_scratch_files(tmp_path, scratch):
    values = np.random.default_rng(3).normal(size=(9, 4))
    corpus = Corpus(write_vectors(tmp_path / "c", values, 12))
    loaded = [
        load_shard(reference, str(tmp_path / "scratch") if scratch else None, [8.0]) for reference in corpus.references
    ]
    assert all(isinstance(shard, ShardOnDisk if scratch else VectorShard) for shard in loaded)
    opened = [open_shard(shard) for shard in loaded]
    assert [shard.number for shard in opened] == [0, 1, 2]
    assert np.concatenate([shard.values for shard in opened]).tobytes() == values.tobytes()
    assert all(isinstance(shard, VectorShard) for shard in opened)
    assert opened[0].words.tolist() == [0, 1, 2, 3]


def test_default_shards__have_the_size_of_shards_with_as_many_tokens(tmp_path):
    values = np.zeros((9 * MIN_SHARD_TOKENS // 2 // 1000, 1000))
    corpus = Corpus(write_vectors(tmp_path / "c", values))
    assert [row.documents for row in corpus.manifest.shards] == [113, 113, 113, 111]


def test_manifests_of_documents__are_unchanged(tmp_path):
    corpus = Corpus(write_corpus(tmp_path / "c", [{0: 1}, {1: 2}], 2))
    manifest = json.loads((tmp_path / "c/manifest.json").read_text())
    assert manifest["version"] == 2
    assert "vectors" not in manifest
    assert "vectors_sha256" not in manifest["shards"][0]
    assert corpus.manifest.digest == manifest["sha256"]
    assert corpus.holds == "documents"
    with pytest.raises(MismatchError, match="expected a corpus of vectors, found one of documents"):
        corpus.references[0].vectors()


def test_memory_file_system__can_store_vectors():
    values = np.random.default_rng(0).normal(size=(6, 2))
    write_vectors("memory://there/vectors", values, 4)
    corpus = Corpus("memory://there/vectors")
    assert values_of(corpus).tobytes() == values.tobytes()
    assert not verify("memory://there/vectors").broken
    Folder("memory://there").remove()


def test_a_corpus_without_vectors__is_refused(tmp_path):
    for name, shape in (("rows", (0, 3)), ("columns", (0, 0))):
        with pytest.raises(InputError, match="the corpus is empty: expected at least one vector"):
            write_vectors(tmp_path / name, np.zeros(shape))
    assert list(tmp_path.iterdir()) == []


def test_info__describes_a_corpus(tmp_path):
    values = np.array([[1.0, 2.0], [1.0, 3.0]])
    found = info(write_vectors(tmp_path / "c", values, labelled=True))
    assert (found["holds"], found["documents"], found["words"], found["constant"]) == ("vectors", 2, 2, ["x1"])
    assert found["fields"] == ["labels"]
    assert info(write_corpus(tmp_path / "d", [{0: 1}], 1))["holds"] == "documents"


# Damage and foreign files --------------------------------------------------------------------------------------------


@pytest.fixture
def corpus(tmp_path):
    """Three shards, the second of which has only zeros."""
    values = np.arange(1.0, 28.0).reshape(9, 3)
    values[3:6] = 0
    return write_vectors(tmp_path / "c", values, 9, labelled=True)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[:-3])


def extend(path):
    path.write_bytes(path.read_bytes() + b"x")


@pytest.mark.parametrize("file", ["vectors.zarr/c/1/0", "vectors.zarr/zarr.json", "documents/part-00001.parquet"])
@pytest.mark.parametrize("damage", [flip, cut, extend])
def test_damage__is_detected_and_named(corpus, file, damage):
    damage(corpus / file)
    with pytest.raises(DamagedError, match=file):
        Corpus(corpus).references[1].vectors()
    assert any(file in fault for fault in verify(corpus).broken)
    if file != "vectors.zarr/zarr.json":  # which all shards need
        assert Corpus(corpus).references[0].load().documents == 3


def test_a_missing_chunk__is_not_read_as_zeros(corpus):
    assert (Corpus(corpus).references[1].load().values == 0).all()
    (corpus / "vectors.zarr/c/1/0").unlink()
    with pytest.raises(DamagedError, match="c/1/0: the file is missing"):
        Corpus(corpus).references[1].load()
    (corpus / "vectors.zarr/zarr.json").unlink()
    with pytest.raises(DamagedError, match="zarr.json: the file is missing"):
        Corpus(corpus).references[0].load()
    (corpus / "documents/part-00000.parquet").unlink()
    with pytest.raises(AbsentError, match="part-00000"):
        Corpus(corpus).references[0].documents()


def test_exchanged_chunks__are_detected(corpus):
    first, third = corpus / "vectors.zarr/c/0/0", corpus / "vectors.zarr/c/2/0"
    data = first.read_bytes(), third.read_bytes()
    first.write_bytes(data[1])
    third.write_bytes(data[0])
    with pytest.raises(DamagedError, match="c/0/0"):
        Corpus(corpus).references[0].load()


def rewritten(corpus, change):
    """Change the manifest and correct its digest."""
    record = json.loads((corpus / "manifest.json").read_text())
    change(record)
    del record["sha256"]
    (corpus / "manifest.json").write_bytes(dump(record))


def change_manifest(corpus, **changes):
    """Change Zarr's description of the array and correct the digest."""
    path = corpus / "vectors.zarr/zarr.json"
    path.write_bytes(json.dumps({**json.loads(path.read_text()), **changes}).encode())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    rewritten(corpus, lambda record: record["vectors"].update(sha256=digest))


def grid(*shape):
    return {"name": "regular", "configuration": {"chunk_shape": list(shape)}}


@pytest.mark.parametrize(
    "changes",
    [
        {"data_type": "float32"},
        {"data_type": "int64", "fill_value": 0},
        {"shape": [7, 3]},
        {"shape": [9, 4]},
        {"shape": [27]},
        {"chunk_grid": grid(4, 3)},
        {"chunk_grid": grid(10**12, 3), "shape": [10**12, 3]},
        {"codecs": [{"name": "numcodecs.pickle", "configuration": {}}]},
        {"node_type": "group"},
        {"zarr_format": 2},
    ],
)
def test_arrays_in_another_format__are_refused_despite_correct_digests(corpus, changes):
    change_manifest(corpus, **changes)
    with pytest.raises(DamagedError, match="vectors.zarr"):
        Corpus(corpus).references[2].load()


def test_values_that_are_not_finite__are_refused_despite_correct_digests(tmp_path, monkeypatch):
    values = np.array([[1.0, np.inf]])
    path = write_vectors(tmp_path / "c", values)
    with pytest.raises(DamagedError, match=r"c/0/0: expected finite numbers"):
        Corpus(path).references[0].load()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(version=2), "expected version 3 of a corpus of vectors, found 2"),
        (lambda m: m.pop("vectors"), "expected a digest of vectors for each shard, or for none"),
        (lambda m: m["shards"][1].pop("vectors_sha256"), "expected a digest of vectors for each shard, or for none"),
        (lambda m: m["vectors"].update(rows=2), "expected as many vectors in each shard"),
        (lambda m: m["vectors"].update(rows=0), "field 'vectors.rows'"),
        (lambda m: m["vectors"].update(constant=[3]), "expected constant columns from 0 to 2"),
        (lambda m: m["vectors"].update(file="../x"), "would leave the folder"),
        (lambda m: m["vocabulary"].update(words=4), "expected as many values as vectors times columns"),
        (lambda m: m["vectors"].update(more=1), "field 'vectors.more'"),
    ],
)
def test_manifest_of_vectors__is_validated(corpus, change, message):
    rewritten(corpus, change)
    with pytest.raises(DamagedError) as raised:
        Corpus(corpus)
    assert message in str(raised.value)


def test_verify__recounts_the_numbers_of_the_manifest(corpus):
    rewritten(corpus, lambda record: record["vectors"].update(constant=[0]))
    assert verify(corpus).broken == [f"{corpus}/manifest.json: the constant columns differ from the vectors'"]
    rewritten(corpus, lambda record: record["vectors"].update(constant=[]))
    rewritten(corpus, lambda record: record["shards"][0].update(ids_sha256="0" * 64))
    assert verify(corpus).broken == [
        f"{corpus}/documents/part-00000.parquet: the vectors' ids do not have the digest of the manifest"
    ]


@given(data=st.data())
def test_any_change_of_a_byte__raises_a_collapsium_error(tmp_path_factory, data):
    place = tmp_path_factory.mktemp("bytes")
    path = write_vectors(place / "c", np.arange(12.0).reshape(4, 3), 6)
    files = ["manifest.json", "vectors.zarr/zarr.json", "vectors.zarr/c/0/0", "documents/part-00000.parquet"]
    file = path / data.draw(st.sampled_from(files))
    held = bytearray(file.read_bytes())
    at = data.draw(st.integers(0, len(held) - 1))
    held[at] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(held)
    with pytest.raises(CollapsiumError):
        Corpus(path).references[0].vectors()
    shutil.rmtree(place)
