"""Small valid files of every format that a reader accepts, as starting points for hypothesis and the fuzzer."""

import bz2
import gzip
import io
import json
import lzma
import shutil
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse
import zarr

from collapsium.storage.corpus.lineage import KIND, VERSION
from collapsium.storage.corpus.parquet import encode_columns
from collapsium.storage.corpus.shard import encode
from collapsium.storage.corpus.vectors import Vectors
from collapsium.storage.corpus.writer import VectorWriter
from collapsium.storage.io.folder import Folder, created
from collapsium.storage.io.records import dump
from collapsium.storage.runs.model import ModelRecord
from collapsium.storage.runs.topic_names import RECORD as NAMES_RECORD
from collapsium.storage.runs.topic_names import TopicName, write_names
from tests.records import CELL, RUN, START
from tests.strategies import documents_of

WORDS = b"apple\nbread\ncheese\n"
GOOD = {
    "uci": b"2\n3\n3\n1 1 2\n1 3 1\n2 2 5\n",
    "ldac": b"2 0:2 2:1\n1 1:5\n0\n",
    "mtx": b"%%MatrixMarket matrix coordinate integer general\n% a comment\n2 3 3\n1 1 2\n1 3 1\n2 2 5\n",
    "text": b"apple bread apple cheese\n",
    "jsonl": b'{"id": "a", "text": "apple bread"}\n{"id": 2, "text": "cheese"}\n',
    "csv": b'id,text,n\na,"apple, bread",1.5\nb,cheese,\n',
    "mallet": b"a x apple bread\nb y cheese\n",
    "svmlight": b"1 1:2 3:1 # a comment\n-1,2 2:5\n",
}
PACKED = {
    "gz": lambda data: gzip.compress(data, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: _by_arrow("zstd", data),
    "lz4": lambda data: _by_arrow("lz4", data),
    "zip": lambda data: _zipped(data),
}
ENCODED = {
    "utf16": lambda data: data.decode().encode("utf-16"),
    "utf32": lambda data: data.decode().encode("utf-32"),
    "excel": lambda data: b"sep=;\r\n" + data.replace(b",", b";"),
}
OTHERWISE = {
    **{
        f"{kind}-{packing}": (kind, packing)
        for kind, packing in zip(("uci", "jsonl", *["csv"] * 5), ("gz", *PACKED), strict=True)
    },
    **{f"{kind}-{encoding}": (kind, encoding) for kind, encoding in zip(("csv", "jsonl", "csv"), ENCODED, strict=True)},
}
"""Files of the formats above in other guises: their format, and what is done with their bytes."""
DENSE = np.array([[1.5, 2.0, 7.0], [-3.0, 4e2, 8.0]])
VECTORS = {"vectors-csv": "x.csv", "vectors-labels": "x.csv", "vectors-npy": "x.npy", "vectors-npz": "x.npz"}
ZARR = {"vectors-zarr": (3, "zarr.json"), "vectors-zarr-2": (2, ".zarray"), "vectors-chunk": (3, "c/0/0")}
NAMES = {"uci": "docword.x.txt", "ldac": "x.ldac", "mtx": "x.mtx", "npz": "x.npz", "text": "x.txt", "jsonl": "x.jsonl"}
NAMES |= {"csv": "x.csv", "mallet": "x.mallet", "svmlight": "x.svmlight", "parquet": "x.parquet"}
MATRIX = scipy.sparse.csr_matrix(np.array([[2, 0, 1], [0, 5, 0]]))


def _by_arrow(codec, data):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def _zipped(data):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("x", data)
    return sink.getvalue()


def _npz(matrix, **options):
    sink = io.BytesIO()
    scipy.sparse.save_npz(sink, matrix, **options)
    return sink.getvalue()


def _npy(values):
    sink = io.BytesIO()
    np.save(sink, values)
    return sink.getvalue()


def _dense_npz(save):
    sink = io.BytesIO()
    save(sink, values=DENSE)
    return sink.getvalue()


def write_dense_array(place, version=3):
    """Write a Zarr array of vectors, some file of which a test will replace."""
    shutil.rmtree(place, ignore_errors=True)
    zarr.create_array(str(place / "x.zarr"), data=DENSE, chunks=(1, 3), zarr_format=version)
    return place / "x.zarr"


def dense_file(version, name):
    """Return a file of a Zarr array, such as its description."""
    place = Path(tempfile.mkdtemp(prefix="collapsium-seed-"))
    data = (write_dense_array(place, version) / name).read_bytes()
    shutil.rmtree(place)
    return data


def write_vector_corpus(place):
    shutil.rmtree(place, ignore_errors=True)
    with created(Folder(place)) as folder:
        writer = VectorWriter(folder, 3)
        writer.add(Vectors(pa.array(["a", "b"]), DENSE))
        writer.finish(["x", "y", "z"])
    return place


def _vectors_metadata():
    place = Path(tempfile.mkdtemp(prefix="collapsium-seed-")) / "corpus"
    data = (write_vector_corpus(place) / "vectors.zarr/zarr.json").read_bytes()
    shutil.rmtree(place.parent)
    return data


def _parquet():
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": ["a", "b", "c"], "text": ["apple bread", "cheese", None]}), sink, row_group_size=2)
    return sink.getvalue()


def _shard():
    return encode(documents_of([{0: 2, 2: 1}, {1: 5}, {}]))


def _segmented():
    column = pa.array([[1, 1], [0, 1], None], pa.list_(pa.int32()))
    return encode(replace(documents_of([{0: 2, 2: 1}, {1: 5}, {}]), extras={"segments": column}))


def seeds_of(name):
    """Return small valid files of a reader's format."""
    if name in GOOD:
        return [GOOD[name]]
    if name in OTHERWISE:
        kind, guise = OTHERWISE[name]
        return [(PACKED | ENCODED)[guise](GOOD[kind])]
    return {
        "npz": lambda: [_npz(MATRIX), _npz(MATRIX.tocoo(), compressed=False), _npz(MATRIX.tocsc())],
        "parquet": lambda: [_parquet()],
        "vectors-csv": lambda: [b"a,b\n1.5,2\n-3,4e2\n", b"1,2,0\n3,4,1\n"],
        "vectors-labels": lambda: [b"name,a,kind,b\np,1.5,x,2\nq,-3,,4e2\n"],
        "vectors-npy": lambda: [_npy(DENSE), _npy(DENSE.astype(np.float32).T.copy().T)],
        "vectors-npz": lambda: [_dense_npz(np.savez), _dense_npz(np.savez_compressed)],
        "vectors-zarr": lambda: [dense_file(3, "zarr.json")],
        "vectors-zarr-2": lambda: [dense_file(2, ".zarray")],
        "vectors-chunk": lambda: [dense_file(3, "c/0/0")],
        "vectors-shard": lambda: [encode_columns({"id": pa.array(["a", "b", "c"])})],
        "vectors-array": lambda: [_vectors_metadata()],
        "vocabulary": lambda: [WORDS],
        "shard": lambda: [_shard()],
        "shard-segments": lambda: [_segmented()],
        "vocabulary-table": lambda: [_table()],
        "manifest": lambda: [_manifest()],
        "lineage": lambda: [
            dump({"format": KIND, "version": VERSION, "steps": [{"corpus": "0" * 64, "kind": "tokens", "high": 0.1}]})
        ],
        "run": lambda: [dump({"format": "collapsium-run", "version": 2, **RUN})],
        "events": lambda: [_events()],
        "checkpoint": lambda: [_checkpoint()],
        "comparison-cell": lambda: [dump({"format": "collapsium-comparison-cell", "version": 3, "row": CELL})],
        "model": lambda: [_model()],
        "names": lambda: [_names()],
        "summary": lambda: [_summary(), _summary(dates=_dates())],
        "arrays": lambda: [json.dumps({"a": [1.5, 2.5]}).encode()],
        "weights": lambda: [b"word,weight\na,1.5\nb,2\n", b"a\t0\nb\t1e3\n"],
        "weights-table": lambda: [_weights()],
        "proportions": lambda: [_proportions(name) for name in PROPORTIONS],
        "config": lambda: [b'family = "lda"\ntopics = 3\niterations = 5\n'],
    }[name]()


PROPORTIONS = {
    "columns": {"topic_0": [0.25, 1.0], "topic_1": [0.75, 0.0]},
    "lists": {"proportions": [[0.25, 0.75], [1.0, 0.0]]},
    "sparse": {"topics": [[0, 1], [0]], "proportions": [[0.25, 0.75], [1.0]]},
}


def _proportions(name):
    return encode_columns(
        {"id": pa.array(["a", "b"]), **{key: pa.array(value) for key, value in PROPORTIONS[name].items()}}
    )


def _weights():
    return encode_columns({"word": pa.array(["a", "b"]), "weight": pa.array([1.5, 2.0])})


def _events():
    iteration = {"event": "iteration", "iteration": 1, "elapsed": 0.5, "score": -7.5, "seconds": {"kernel": 0.1}}
    end = {"event": "end", "iteration": 1, "elapsed": 0.5, "reason": "iterations"}
    return b"".join(json.dumps(event).encode() + b"\n" for event in (START, iteration, end))


def _table():
    from collapsium.storage.corpus.vocabulary import Vocabulary

    folder = Folder("memory://seed-vocabulary")
    Vocabulary(["a", "b"], np.array([1, 2]), np.array([2, 3])).write(folder)
    return folder.read("vocabulary.parquet")


def _dates():
    from collapsium.storage.runs.summary import DatesSummary

    table = DatesSummary.packed(np.ones((2, 1)))
    sums = {"shares": table, "weighted": table, "squared": table, "tokens": [3.0, 4.0], "squares": [9.0, 16.0]}
    read = {"missing": 1, "unreadable": 1, "examples": ["?"], "ambiguous": 0, "ordered": 0, "order": "", "unix": 0}
    which = {"topics": [0], "hour": [150000, 160000], "unit": ["day", "month"], "documents": [1, 2], "short_years": 0}
    return {**which, **sums, **read}


def _summary(**more):
    example = {"id": "a", "title": None, "tokens": 3.0, "proportions": [[0, 0.75]]}
    topic = {"id": 0, "documents": 1, "examples": [{"document": 0, "share": 0.75, "words": [1]}]}
    value = {"value": "x", "documents": 1, "proportions": [[0, 0.75]]}
    field = {"field": "f", "values": [value], "left_out": 0}
    rest = {"examples": [example], "topics": [topic], "fields": [field]}
    version = 4 if more else 2
    return dump({"format": "collapsium-summary", "version": version, "model": "0", "documents": 1, **rest, **more})


def _manifest():
    row = {"file": "documents/part-00000.parquet", "documents": 1, "pairs": 1, "tokens": 1, "sha256": "0" * 64}
    return dump({
        "format": "collapsium-corpus", "version": 2, "documents": 1, "pairs": 1, "tokens": 1, "fields": {},
        "vocabulary": {"file": "vocabulary.parquet", "words": 1, "sha256": "0" * 64, "words_sha256": "0" * 64},
        "shards": [{**row, "ids_sha256": "0" * 64}],
    })  # fmt: skip


def _checkpoint():
    return dump({
        "format": "collapsium-checkpoint", "version": 2, "iteration": 3, "run": "0" * 64, "parts": {"global_state": "0" * 64},
        "blocks": [0, 3], "shards": 1, "events": [10, "0" * 64], "progress": {"iteration": 3}, "previous": {"score": -7.0},
    })  # fmt: skip


def _model():
    return dump({
        "format": "collapsium-model", "version": 2, "family": "lda", "options": {}, "iterations": 3, "corpus": "0" * 64,
        "vocabulary": {"file": "vocabulary.parquet", "words": 3, "sha256": "0" * 64, "words_sha256": "0" * 64},
        "blocks": [0, 3], "shards": [], "parts": {"global_state": "0" * 64},
    })  # fmt: skip


def named_model():
    """Return the record of a model whose topics can be named."""
    return ModelRecord.model_validate({key: value for key, value in json.loads(_model()).items() if key != "sha256"})


def _names():
    names = [{"id": 0, "name": "a name", "by": "hand"}, {"id": 3, "name": "b", "by": "namer", "request": "0" * 64}]
    folder = Folder("memory://seed-names")
    write_names(folder, named_model(), [TopicName(**record) for record in names])
    return folder.read(NAMES_RECORD)
