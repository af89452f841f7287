"""Every reader of the project, as a function of the bytes of one file: what hypothesis and the fuzzer try."""

import gzip
import hashlib
import io
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse
import zarr

from collapsium.pipeline import ingest
from collapsium.pipeline.engine.setup.limits import read_config
from collapsium.pipeline.families.registry import make_options
from collapsium.storage.building.flatten import flattened
from collapsium.storage.building.ingest import ingest_vectors
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import KIND, LINEAGE, VERSION, read_steps
from collapsium.storage.corpus.manifest import ShardRecord
from collapsium.storage.corpus.parquet import encode_columns
from collapsium.storage.corpus.shard import decode, encode
from collapsium.storage.corpus.vectors import Vectors, decode_columns
from collapsium.storage.corpus.vocabulary import parse_vocabulary, read_words
from collapsium.storage.corpus.writer import VectorWriter
from collapsium.storage.errors import CollapsiumError, DamagedError
from collapsium.storage.io.arrays import DIGESTS, check_arrays, read_arrays, write_arrays
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump, read_record
from collapsium.storage.io.transactions import created
from collapsium.storage.readers.open import TEXTS, ReadOptions, open_vectors
from collapsium.storage.readers.proportions_file import read_proportions
from collapsium.storage.runs.checkpoint import RECORD as CHECKPOINT
from collapsium.storage.runs.checkpoint import Checkpoint
from collapsium.storage.runs.comparison import row_of
from collapsium.storage.runs.model import RECORD as MODEL
from collapsium.storage.runs.model import ModelRecord, StoredModel
from collapsium.storage.runs.run import Run
from collapsium.storage.runs.summary import MEANS, UNSEGMENTED, parse_summary
from collapsium.storage.runs.topic_names import RECORD as NAMES_RECORD
from collapsium.storage.runs.topic_names import TopicName, clean_name, read_names, write_names
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
DENSE = np.array([[1.5, 2.0, 7.0], [-3.0, 4e2, 8.0]])
VECTORS = {"vectors-csv": "x.csv", "vectors-labels": "x.csv", "vectors-npy": "x.npy", "vectors-npz": "x.npz"}
ZARR = {"vectors-zarr": (3, "zarr.json"), "vectors-zarr-2": (2, ".zarray"), "vectors-chunk": (3, "c/0/0")}
NAMES = {"uci": "docword.x.txt", "ldac": "x.ldac", "mtx": "x.mtx", "npz": "x.npz", "text": "x.txt", "jsonl": "x.jsonl"}
NAMES |= {"csv": "x.csv", "mallet": "x.mallet", "svmlight": "x.svmlight", "parquet": "x.parquet"}
MATRIX = scipy.sparse.csr_matrix(np.array([[2, 0, 1], [0, 5, 0]]))


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


def _dense_folder(place, version=3):
    """A Zarr array as anybody may have written it."""
    shutil.rmtree(place, ignore_errors=True)
    zarr.create_array(str(place / "x.zarr"), data=DENSE, chunks=(1, 3), zarr_format=version)
    return place / "x.zarr"


def dense_said(version, name):
    """A file of a Zarr array, such as what Zarr says of it."""
    place = Path(tempfile.mkdtemp(prefix="collapsium-seed-"))
    data = (_dense_folder(place, version) / name).read_bytes()
    shutil.rmtree(place)
    return data


def _vector_corpus(place):
    shutil.rmtree(place, ignore_errors=True)
    with created(Folder(place)) as folder:
        writer = VectorWriter(folder, 3)
        writer.add(Vectors(pa.array(["a", "b"]), DENSE))
        writer.finish(["x", "y", "z"])
    return place


def _vectors_said():
    place = Path(tempfile.mkdtemp(prefix="collapsium-seed-")) / "corpus"
    data = (_vector_corpus(place) / "vectors.zarr/zarr.json").read_bytes()
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
    """Small whole files of a reader's format."""
    if name in GOOD:
        return [GOOD[name]]
    if name.endswith("-gz"):
        return [gzip.compress(GOOD[name[:-3]], mtime=0)]
    return {
        "npz": lambda: [_npz(MATRIX), _npz(MATRIX.tocoo(), compressed=False), _npz(MATRIX.tocsc())],
        "parquet": lambda: [_parquet()],
        "vectors-csv": lambda: [b"a,b\n1.5,2\n-3,4e2\n", b"1,2,0\n3,4,1\n"],
        "vectors-labels": lambda: [b"name,a,kind,b\np,1.5,x,2\nq,-3,,4e2\n"],
        "vectors-npy": lambda: [_npy(DENSE), _npy(DENSE.astype(np.float32).T.copy().T)],
        "vectors-npz": lambda: [_dense_npz(np.savez), _dense_npz(np.savez_compressed)],
        "vectors-zarr": lambda: [dense_said(3, "zarr.json")],
        "vectors-zarr-2": lambda: [dense_said(2, ".zarray")],
        "vectors-chunk": lambda: [dense_said(3, "c/0/0")],
        "vectors-shard": lambda: [encode_columns({"id": pa.array(["a", "b", "c"])})],
        "vectors-array": lambda: [_vectors_said()],
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


def _named_model():
    """The record of a model that has names."""
    return ModelRecord.model_validate({key: value for key, value in json.loads(_model()).items() if key != "sha256"})


def _names():
    names = [{"id": 0, "name": "a name", "by": "hand"}, {"id": 3, "name": "b", "by": "namer", "request": "0" * 64}]
    folder = Folder("memory://seed-names")
    write_names(folder, _named_model(), [TopicName(**one) for one in names])
    return folder.read(NAMES_RECORD)


def _source(name, data, place):
    """Ingest a file; nothing may be left if it is refused, and what is made must be whole."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    kind, _, packed = name.partition("-")
    path = place / (NAMES[kind] + (".gz" if packed else ""))
    path.write_bytes(data)
    (place / "words").write_bytes(WORDS)
    options = {"vocabulary": str(place / "words")} | ({"covariates": ["n"]} if kind == "csv" else {})
    options |= {"stop_words": "none"} if kind in TEXTS else {}
    try:
        ingest(path, place / "corpus", scheduler="serial", **options)
    except CollapsiumError:
        assert sorted(one.name for one in place.iterdir()) == sorted([path.name, "words"]), "it left something behind"
        raise
    corpus = Corpus(place / "corpus")
    for reference in corpus.references:
        reference.documents()


def _dense(name, data, place):
    """Ingest vectors; nothing may be left if they are refused, and what is made must be whole."""
    if name in VECTORS:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        path = place / VECTORS[name]
    else:
        version, file = ZARR[name]
        path = _dense_folder(place, version)
    (path / ZARR[name][1] if name in ZARR else path).write_bytes(data)
    options = ReadOptions(id="1", labels=("sort=3",)) if name == "vectors-labels" else None
    try:
        ingest_vectors(open_vectors([str(path)], options), place / "corpus")
    except CollapsiumError:
        assert [one.name for one in place.iterdir()] == [path.name], "it left something behind"
        raise
    for reference in Corpus(place / "corpus").references:
        assert np.isfinite(reference.vectors().values).all()


def _vectors_array(data, place):
    """A corpus of vectors whose `zarr.json` anybody may have written, with digests that are right."""
    _vector_corpus(place)
    (place / "vectors.zarr/zarr.json").write_bytes(data)
    record = json.loads((place / "manifest.json").read_text())
    record["vectors"]["sha256"] = hashlib.sha256(data).hexdigest()
    del record["sha256"]
    (place / "manifest.json").write_bytes(dump(record))
    for reference in Corpus(place).references:
        reference.load()


def _put(name, data, place):
    place.mkdir(exist_ok=True)
    (place / name).write_bytes(data)
    return Folder(place)


def _cell(data, place):
    (place / "cells").mkdir(parents=True, exist_ok=True)
    _put("lda-40.json", data, place / "cells")
    return Folder(place)


def _arrays(data, place):
    """A group whose `zarr.json` anybody may have written, with digests that are right."""
    shutil.rmtree(place, ignore_errors=True)
    folder = Folder(place)
    write_arrays(folder, {"a": np.arange(3.0)}, compress=False)
    record = json.loads((place / DIGESTS).read_text())
    (place / "a/zarr.json").write_bytes(data)
    record["files"]["a/zarr.json"] = hashlib.sha256(data).hexdigest()
    del record["sha256"]
    (place / DIGESTS).write_bytes(dump(record))
    check_arrays(folder)
    read_arrays(folder)


RECORD = ShardRecord(file="x", documents=3, pairs=3, tokens=8, sha256="0" * 64, ids_sha256="0" * 64)
READERS = {
    **{name: lambda data, place, name=name: _source(name, data, place) for name in (*GOOD, "npz", "parquet")},
    **{f"{name}-gz": lambda data, place, name=f"{name}-gz": _source(name, data, place) for name in ("uci", "jsonl")},
    **{name: lambda data, place, name=name: _dense(name, data, place) for name in (*VECTORS, *ZARR)},
    "vectors-shard": lambda data, place: decode_columns(data, RECORD, "x"),
    "vectors-array": _vectors_array,
    "vocabulary": lambda data, place: read_words("words", data),
    "shard": lambda data, place: decode(data, RECORD, 3, "x"),
    "shard-segments": lambda data, place: _flat(decode(data, RECORD, 3, "x")),
    "vocabulary-table": lambda data, place: parse_vocabulary(data, 2, "x"),
    "manifest": lambda data, place: Corpus(_put("manifest.json", data, place).path),
    "lineage": lambda data, place: read_steps(_put(LINEAGE, data, place)),
    "run": lambda data, place: Run(_put("run.json", data, place).path).record(),
    "events": lambda data, place: _read_events(data, place),
    "comparison-cell": lambda data, place: row_of(_cell(data, place), "lda-40"),
    "checkpoint": lambda data, place: Checkpoint(_put(CHECKPOINT, data, place)).record(),
    "model": lambda data, place: StoredModel(_put(MODEL, data, place).path),
    "names": lambda data, place: _read_names(data, place),
    "summary": lambda data, place: _read_summary(data, place),
    "arrays": _arrays,
    "weights": lambda data, place: _read_weights("weights.csv", data, place),
    "weights-table": lambda data, place: _read_weights("weights.parquet", data, place),
    "proportions": lambda data, place: _read_proportions(data, place),
    "config": lambda data, place: _config(data, place),
}


def _read_weights(name, data, place):
    """Options with a file of weights: those of the options or an error of these."""
    table = make_options("lda", {"topics": 2, "weights": str(Path(_put(name, data, place).path) / name)}).weights
    assert all(0.0 <= weight < np.inf for weight in table.weights)
    assert len(set(table.words)) == len(table.words) == len(table.weights)


def _read_proportions(data, place):
    """Proportions of which each document's add up to 1, of topics that are within the width."""
    found = read_proportions(str(Path(_put("x.parquet", data, place).path) / "x.parquet")).proportions
    owner = np.repeat(np.arange(found.documents), np.diff(found.offsets))
    sums = np.bincount(owner, weights=found.shares, minlength=found.documents)
    np.testing.assert_allclose(sums[found.known], 1.0, atol=1e-3)
    assert ((found.topics >= 0) & (found.topics < found.width)).all()


def _flat(documents):
    if "segments" in documents.extras:
        flat = flattened(documents)
        assert flat.counts.sum() == documents.counts.sum()
        assert flat.offsets[-1] == documents.words.size


def _read_events(data, place):
    run = Run(_put("events.jsonl", data, place).path)
    events, fault = run.events(), run.events_fault()
    assert len(events) <= data.count(b"\n")
    assert all(isinstance(event["event"], str) for event in events)
    if fault is not None:
        raise DamagedError(run.folder.url, fault)


def _read_summary(data, place):
    folder = _put("summary.json", data, place)
    parse_summary(read_record(folder, "summary.json", "collapsium-summary", MEANS, oldest=UNSEGMENTED), "x")


def _read_names(data, place):
    """Names in one line, each of another topic."""
    for topic, one in read_names(_put(NAMES_RECORD, data, place), _named_model()).items():
        assert topic == one.id >= 0
        assert one.name == clean_name(one.name) != ""


def _config(data, place):
    _put("fit.toml", data, place)
    read_config(str(place / "fit.toml"), None)


def try_reader(name, data, place):
    """Read bytes as a reader's; only our own errors may come out."""
    try:
        READERS[name](data, place)
    except CollapsiumError as error:
        if not str(error):
            raise RuntimeError("an error without words") from error
        return False
    return True
