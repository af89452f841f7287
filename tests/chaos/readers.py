"""Every reader of the project as a function of a file's bytes, for hypothesis and the fuzzer."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np

from collapsium.pipeline import ingest
from collapsium.pipeline.engine.setup.limits import read_config
from collapsium.pipeline.models.registry import make_options
from collapsium.storage.building.ingest import ingest_vectors
from collapsium.storage.building.split import exploded
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import LINEAGE, read_steps
from collapsium.storage.corpus.manifest import ShardRecord
from collapsium.storage.corpus.shard import decode
from collapsium.storage.corpus.vectors import decode_columns
from collapsium.storage.corpus.vocabulary import parse_vocabulary, read_words
from collapsium.storage.errors import CollapsiumError, DamagedError
from collapsium.storage.io.arrays import DIGESTS, check_arrays, read_arrays, write_arrays
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump, read_record
from collapsium.storage.readers.open import TEXTS, ReadOptions, open_vectors
from collapsium.storage.readers.proportions_file import read_proportions
from collapsium.storage.runs.checkpoint import RECORD as CHECKPOINT
from collapsium.storage.runs.checkpoint import Checkpoint
from collapsium.storage.runs.comparison import row_of
from collapsium.storage.runs.model import RECORD as MODEL
from collapsium.storage.runs.model import StoredModel
from collapsium.storage.runs.run import Run
from collapsium.storage.runs.summary import MEANS, UNSEGMENTED, parse_summary
from collapsium.storage.runs.topic_names import RECORD as NAMES_RECORD
from collapsium.storage.runs.topic_names import clean_name, read_names
from tests.chaos.seeds import (
    GOOD,
    NAMES,
    OTHERWISE,
    PACKED,
    VECTORS,
    WORDS,
    ZARR,
    named_model,
    write_dense_array,
    write_vector_corpus,
)


def _source(name, data, place):
    """Ingest a file; a refused file must leave nothing behind, and an accepted one must make a valid corpus."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    kind, _, packing = name.partition("-")
    path = place / (NAMES[kind] + (f".{packing}" if packing in PACKED else ""))
    path.write_bytes(data)
    (place / "words").write_bytes(WORDS)
    options = {"vocabulary": str(place / "words")} | ({"covariates": ["n"]} if kind == "csv" else {})
    options |= {"stop_words": "none"} if kind in TEXTS else {}
    try:
        ingest(path, place / "corpus", scheduler="serial", **options)
    except CollapsiumError:
        assert sorted(path.name for path in place.iterdir()) == sorted([path.name, "words"]), (
            "the refused file left something behind"
        )
        raise
    corpus = Corpus(place / "corpus")
    for reference in corpus.references:
        reference.documents()


def _dense(name, data, place):
    """Ingest vectors; a refused file must leave nothing behind, and an accepted one must make a valid corpus."""
    if name in VECTORS:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        path = place / VECTORS[name]
    else:
        version, file = ZARR[name]
        path = write_dense_array(place, version)
    (path / ZARR[name][1] if name in ZARR else path).write_bytes(data)
    options = ReadOptions(id="1", labels=("sort=3",)) if name == "vectors-labels" else None
    try:
        ingest_vectors(open_vectors([str(path)], options), place / "corpus")
    except CollapsiumError:
        assert [path.name for path in place.iterdir()] == [path.name], "the refused file left something behind"
        raise
    for reference in Corpus(place / "corpus").references:
        assert np.isfinite(reference.vectors().values).all()


def _vectors_array(data, place):
    """Read a corpus of vectors that has an untrusted `zarr.json` and correct digests."""
    write_vector_corpus(place)
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
    """Read a group of arrays that has an untrusted `zarr.json` and correct digests."""
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
    **{name: lambda data, place, name=name: _source(name, data, place) for name in OTHERWISE},
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
    """Read a file of weights as the option `weights`: weights must be finite and not negative, and words unique."""
    table = make_options("lda", {"topics": 2, "weights": str(Path(_put(name, data, place).path) / name)}).weights
    assert all(0.0 <= weight < np.inf for weight in table.weights)
    assert len(set(table.words)) == len(table.words) == len(table.weights)


def _read_proportions(data, place):
    """Read a file of proportions: the proportions of each document must sum to 1, and topics must be in range."""
    found = read_proportions(str(Path(_put("x.parquet", data, place).path) / "x.parquet")).proportions
    owner = np.repeat(np.arange(found.documents), np.diff(found.offsets))
    sums = np.bincount(owner, weights=found.shares, minlength=found.documents)
    np.testing.assert_allclose(sums[found.known], 1.0, atol=1e-3)
    assert ((found.topics >= 0) & (found.topics < found.width)).all()


def _flat(documents):
    if "segments" in documents.extras:
        flat = exploded(documents)
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
    """Read names of topics: each must be a clean, non-empty name of another topic."""
    for topic, entry in read_names(_put(NAMES_RECORD, data, place), named_model()).items():
        assert topic == entry.id >= 0
        assert entry.name == clean_name(entry.name) != ""


def _config(data, place):
    _put("fit.toml", data, place)
    read_config(str(place / "fit.toml"), None)


def try_reader(name, data, place):
    """Read bytes with a reader; return whether it accepted them. Only `CollapsiumError` with a message may be raised."""
    try:
        READERS[name](data, place)
    except CollapsiumError as error:
        if not str(error):
            raise RuntimeError("an error without a message") from error
        return False
    return True
