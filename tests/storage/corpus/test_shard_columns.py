"""Columns of untrusted corpora: each fault is reported in one line with file, column and row."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import append, evaluate, fit, infer, split
from collapsium.pipeline.cli.main import main
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.parquet import LABELS, column_of
from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.writer import CorpusWriter
from collapsium.storage.errors import AbsentError, CollapsiumError, DamagedError, InputError
from collapsium.storage.io.folder import Folder, created
from tests.chaos.hostile_corpora import (
    not_utf8,
    rewrite_manifest,
    rewrite_shard,
    rewrite_vocabulary,
    table_of,
    with_column,
)
from tests.conftest import write_corpus
from tests.storage.corpus.test_vectors import write_vectors
from tests.strategies import documents_of

MOST = 2**31 - 1
PART = "documents/part-00000.parquet"
ROWS = [[{0: 1, 2: 2}, {1: 1}], [{1: 3}], [{0: 2}]]  # documents with segments
WORDS, COUNTS = [[0, 2, 1], [1], [0]], [[1, 2, 1], [3], [2]]


def lists(values, kind):
    return pa.array(values, pa.list_(kind))


def labels(values):
    return pa.array(values, LABELS)


COLUMNS = [
    ("segments", lists([[2**62, 2**62, 2**62, 2**62 + 3], [1], [1]], pa.int64()), 1),
    ("segments", lists([[MOST, MOST, 5], [1], [1]], pa.int64()), 1),
    ("segments", lists([[2, 1], [2, -1], [1]], pa.int32()), 2),
    ("segments", lists([[2, 1], [1, None], [1]], pa.int32()), 2),
    ("segments", lists([[2, 1], [2], [0]], pa.int32()), 2),
    ("segments", lists([[2, 1], [1], None], pa.int32()), 3),
    ("segments", lists([["2"], ["1"], ["1"]], pa.string()), None),
    ("segments", pa.array([3, 1, 1], pa.int32()), None),
    ("words", lists([[0, 2, 1], [1], [2**32]], pa.int64()), 3),
    ("words", lists([[0, 2, 1], [-(2**32) + 1], [0]], pa.int64()), 2),
    ("words", lists([[0, 2, 2**63 + 1], [1], [0]], pa.uint64()), 1),
    ("words", lists([[0, 2, 1], [3], [0]], pa.int32()), 2),
    ("words", lists([[0, 2, 1], None, [0]], pa.int32()), 2),
    ("words", lists([[0, 2, 1], [None], [0]], pa.int32()), 2),
    ("words", lists([[0.0, 2.0, 1.0], [1.0], [0.0]], pa.float64()), None),
    ("counts", lists([[1, 2, 1], [3], [2**32 + 2]], pa.int64()), 3),
    ("counts", lists([[1, 2, 1], [3], [0]], pa.int32()), 3),
    ("counts", lists([[MOST, MOST, 1], [3], [2]], pa.int32()), 1),
    ("counts", lists([[1, 2], [1, 3], [2]], pa.int32()), 1),
    ("counts", pa.array(["1", "2", "3"]), None),
    ("id", not_utf8(3), 3),
    ("id", pa.array(["a", None, "c"]), 2),
    ("id", pa.array([b"a", b"b", b"c"]), None),
    ("id", pa.array([1, 2, 3]), None),
    ("title", lists([["a"], ["b"], ["c"]], pa.string()), None),
    ("title", not_utf8(3), 3),
    ("title", pa.array([1.5, None, 2.0]), None),
    ("date", pa.array([1, 2, 3]), None),
    ("labels", pa.array(["a", "b", "c"]), None),
    ("labels", lists([["a"], ["b"], ["c"]], pa.string()), None),
    ("labels", pa.array([[{"field": "f", "value": 1}]] * 3), None),
    ("labels", pa.array([[{"value": "v", "field": "f"}]] * 3, pa.list_(pa.struct([("value", pa.string()), ("field", pa.string())]))), None),
    ("labels", labels([[{"field": "f", "value": "v"}], [], [{"field": "f", "value": None}]]), 3),
    ("labels", labels([[{"field": "f", "value": "v"}], [None], []]), 2),
    ("year", pa.array(["1", "2", "3"]), None),
    ("year", pa.array([1.0, float("inf"), None]), 2),
]  # fmt: skip


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "c", ROWS, 3, segmented=True)


@pytest.mark.parametrize(("name", "column", "row"), COLUMNS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_column_of_another_type__is_reported_with_file_column_and_row(corpus, name, column, row):
    rewrite_shard(corpus, with_column(table_of(corpus), name, column))
    with pytest.raises(DamagedError) as found:
        Corpus(corpus).references[0].documents()
    text = str(found.value)
    assert text.startswith(f"{corpus}/{PART}: column {name!r}")
    assert "\n" not in text
    assert row is None or f", row {row}:" in text


def test_numbers_of_other_types__are_read_if_they_fit(corpus):
    expected = Corpus(corpus).references[0].documents()
    table = table_of(corpus)
    for name, kind in (("words", pa.uint8()), ("counts", pa.int64()), ("segments", pa.uint16())):
        table = with_column(table, name, table.column(name).cast(pa.list_(kind)))
    rewrite_shard(corpus, table)
    found = Corpus(corpus).references[0].load(segmented=True)
    assert found.counts.tolist() == expected.counts.tolist()
    assert np.diff(found.segments.pairs).tolist() == [2, 1, 1, 1]
    again = Corpus(corpus).references[0].documents()
    assert len(Documents.join([expected, again])) == 6


def test_duplicate_missing_and_unknown_columns__are_refused(corpus):
    table = table_of(corpus)
    twice = pa.Table.from_arrays([*table.columns, pa.array(["a", "b", "c"])], names=[*table.column_names, "id"])
    for changed, message in ((twice, "column 'id'"), (table.drop_columns("words"), "column 'words'")):
        rewrite_shard(corpus, changed)
        with pytest.raises(DamagedError, match=message):
            Corpus(corpus).references[0].documents()
    rewrite_shard(corpus, table)
    rewrite_manifest(corpus, lambda record: record.update(fields={"labels": "x"}))
    for read in ("documents", "labels", "load"):
        with pytest.raises(
            DamagedError, match="expected the further columns of the manifest, 'labels', found 'segments'"
        ):
            getattr(Corpus(corpus).references[0], read)()


@pytest.mark.parametrize(
    ("name", "column", "row"),
    [
        ("word", not_utf8(3), 3),
        ("word", pa.array(["a", None, "c"]), 2),
        ("word", pa.array([1, 2, 3]), None),
        ("tokens", pa.array([1, -1, 2]), 2),
        ("tokens", pa.array([1, 2**63 + 5, 2], pa.uint64()), 2),
        ("documents", pa.array([1.0, np.nan, 2.0]), None),
    ],
)
def test_a_vocabulary_with_columns_of_another_type__is_reported_in_one_line(corpus, name, column, row):
    words = {"word": pa.array(["a", "b", "c"]), "documents": pa.array([1, 1, 1]), "tokens": pa.array([1, 1, 1])}
    rewrite_vocabulary(corpus, pa.table({**words, name: column}))
    with pytest.raises(DamagedError, match=f"column '{name}'{'' if row is None else f', row {row}'}:"):
        _ = Corpus(corpus).vocabulary


@pytest.mark.parametrize("file", ["documents/part\0.parquet", "documents/\ud800", "../x", "a\\b"])
def test_impossible_file_names__are_refused(corpus, file):
    def change(record):
        record["shards"][0]["file"] = file
        record["sha256"] = "0" * 64

    path = Path(corpus) / "manifest.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    with pytest.raises(DamagedError, match="the name"):
        Corpus(corpus)
    for open_location in (lambda: Folder("x\0y"), lambda: Corpus("x\ud800")):
        with pytest.raises(AbsentError, match="NUL or half"):
            open_location()


def test_documents_with_more_tokens_than_32_bits_can_count__are_not_written(tmp_path):
    with (
        pytest.raises(InputError, match="document 'long': expected documents of at most"),
        created(Folder(tmp_path / "c")) as folder,
    ):
        writer = CorpusWriter(folder, 2)
        writer.add(documents_of([{0: 1}, {0: MOST, 1: 1}], ["short", "long"]))
        writer.finish(["a", "b"])
    assert not list(tmp_path.iterdir())


# Corpora without documents -------------------------------------------------------------------------------------------


def emptied(source, target, **changes):
    shutil.copytree(source, target)
    rewrite_manifest(target, lambda record: record.update(documents=0, pairs=0, tokens=0, shards=[], **changes))
    return target


FAMILIES = ("lda", "hdp", "vb-lda", "ncrp", "gibbs-lda", "gibbs-hdp", "gibbs-ncrp", "labeled-lda", "author-topic", "hdsp",
            "segmented-lda", "sequential-lda", "hca")  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_corpus_without_documents__is_refused_before_a_fit(tmp_path, family, capsys):
    if family == "hca":
        source = write_vectors(tmp_path / "c", np.arange(6.0).reshape(3, 2), 2) and tmp_path / "c"
    else:
        source = write_corpus(tmp_path / "c", ROWS, 3, segmented=True)
    empty = emptied(source, tmp_path / "empty")
    topics = [] if family in ("hca", "labeled-lda", "ncrp", "gibbs-ncrp", "gibbs-hdp") else ["--topics", "2"]
    code = main(["fit", str(empty), str(tmp_path / "run"), "--family", family, *topics, "--scheduler", "serial"])
    assert code == 1
    assert "the corpus is empty: expected at least one" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_commands_on_a_corpus_without_documents__report_it(tmp_path):
    source = write_corpus(tmp_path / "c", [{0: 1, 1: 2}, {1: 1}], 2)
    empty, run = emptied(source, tmp_path / "empty"), tmp_path / "run"
    (tmp_path / "x.jsonl").write_text('{"id": "a", "text": "w0 w1"}\n')
    fit(source, run, family="lda", topics=1, iterations=1, scheduler="serial")
    for refused in (
        lambda: split(empty, tmp_path / "a", tmp_path / "b"),
        lambda: split(empty, tmp_path / "a", tmp_path / "b", documents=True),
        lambda: append(empty, tmp_path / "x.jsonl"),
        lambda: infer(run, empty, tmp_path / "out.csv", scheduler="serial"),
        lambda: evaluate(run, unseen=empty, scheduler="serial"),
        lambda: evaluate(run, heldout=empty, scheduler="serial"),
        lambda: fit(source, tmp_path / "r", family="lda", topics=1, heldout=empty, scheduler="serial"),
    ):
        with pytest.raises(InputError, match="the corpus is empty"):
            refused()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "empty", "run", "x.jsonl"]


def test_a_shard_without_documents__is_refused(corpus):
    rewrite_manifest(
        corpus, lambda record: record["shards"].append({**record["shards"][0], "documents": 0, "pairs": 0, "tokens": 0})
    )
    with pytest.raises(DamagedError, match="documents"):
        Corpus(corpus)


# Summaries -----------------------------------------------------------------------------------------------------------


def test_the_model__is_saved_even_if_its_summary_fails(tmp_path, monkeypatch):
    source, events = write_corpus(tmp_path / "c", [{0: 1, 1: 2}, {1: 1}], 2), []

    def fails(*_):
        raise TypeError("'NoneType' object is not subscriptable")

    monkeypatch.setattr("collapsium.pipeline.engine.save.summary_of", fails)
    model = fit(
        source, tmp_path / "run", family="lda", topics=2, iterations=2, scheduler="serial", sinks=[events.append]
    )
    assert model.topics
    assert any("no summary" in event.get("text", "") and "TypeError" in event["text"] for event in events)


def test_a_title_that_is_a_list__is_reported_in_one_line(tmp_path, capsys):
    source = write_corpus(tmp_path / "c", [{0: 1, 1: 2}, {1: 1}], 2)
    rewrite_shard(source, with_column(table_of(source), "title", pa.array([["a"], ["b"]])))
    assert main(["fit", str(source), str(tmp_path / "run"), "--family", "lda", "--topics", "1"]) == 1
    assert "column 'title': expected strings, found list" in capsys.readouterr().err
    with pytest.raises(CollapsiumError):
        fit(source, tmp_path / "run", family="lda", topics=1)


@given(st.lists(st.lists(st.text(max_size=3), max_size=3), max_size=4))
def test_column_of__joins_all_chunks(pieces):
    table = pa.table({"id": pa.chunked_array([pa.array(piece, pa.string()) for piece in pieces], pa.string())})
    assert column_of(table, "id").to_pylist() == [text for piece in pieces for text in piece]
