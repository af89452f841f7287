"""Files of topic proportions, in the format that their suffix names."""

import csv
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapsium.pipeline import evaluate, fit, infer, ingest, predict
from collapsium.pipeline.analysis.infer import SCHEMA, largest_first, sparse
from collapsium.pipeline.analysis.metrics.topic_words import coherence
from collapsium.pipeline.cli.main import main
from collapsium.storage.errors import OccupiedError, OptionError
from collapsium.storage.runs.proportions import ending_of, written_to
from tests.pipeline.corpora.test_text_ingest import put_lines

ROWS = [
    {"id": 'a"b,c', "text": "Aa bb. Cc aa.", "topic": "x"},
    {"id": "line\nbreak", "text": "Bb cc. Dd.", "topic": "y"},
    {"id": "=1+1", "text": "", "topic": "x"},
]
WHERE = {"scheduler": "serial"}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    place = tmp_path_factory.mktemp("made")
    put_lines(place / "x.jsonl", ROWS)
    ingest(place / "x.jsonl", place / "c", segments="sentences", labels=["topic"])
    fit(place / "c", place / "run", family="segmented-lda", topics=3, iterations=2, **WHERE)
    fit(place / "c", place / "labelled", family="labeled-lda", iterations=2, **WHERE)
    return place


def matrix_of(path, count):
    """Read a file of `infer` in any format as ids, segments and a dense matrix."""
    name = str(path)
    if name.endswith(".npy"):
        with Path(name[:-4] + ".ids.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        return [row["id"] for row in rows], [int(row.get("segment", 0)) for row in rows], np.load(path, mmap_mode="r")
    if name.endswith(".npz"):
        with np.load(path) as found:
            assert found["topics"].tolist() == list(range(count))
            segments = found["segments"] if "segments" in found else np.zeros(len(found["ids"]))
            return found["ids"].tolist(), segments.tolist(), found["proportions"]
    if name.endswith(".csv"):
        with Path(path).open(newline="") as file:
            rows = list(csv.DictReader(file))
    else:
        rows = pq.read_table(path).to_pylist()
    if "topic_0" in rows[0]:
        values = [[float(row[f"topic_{topic}"]) for topic in range(count)] for row in rows]
        return [row["id"] for row in rows], [int(row.get("segment", 0)) for row in rows], np.array(values)
    if "topic" in rows[0]:
        keys = list(dict.fromkeys((row["id"], int(row.get("segment", 0))) for row in rows))
        pairs = [((row["id"], int(row.get("segment", 0))), row["topic"], row["proportion"]) for row in rows]
    else:
        keys = [(row["id"], row.get("segment", 0)) for row in rows]
        pairs = [
            (key, *pair)
            for key, row in zip(keys, rows, strict=True)
            for pair in zip(row["topics"], row["proportions"], strict=True)
        ]
    dense = np.zeros((len(keys), count))
    for key, topic, share in pairs:
        dense[keys.index(key), int(topic)] = float(share)
    return [name for name, _ in keys], [topic for _, topic in keys], dense


@pytest.mark.parametrize("segments", [False, True])
def test_infer__writes_the_same_proportions_in_every_format(fitted, tmp_path, segments):
    expected = None
    for name, how in (
        ("o.parquet", {"threshold": 0.0}), ("o.csv", {"threshold": 0.0}), ("o.npy", {}), ("o.npz", {}),
        ("dense.parquet", {"dense": True}), ("dense.csv", {"dense": True}), ("plain", {"threshold": 0.0}),
    ):  # fmt: skip
        rows = infer(fitted / "run", fitted / "x.jsonl", tmp_path / name, segments=segments, **how, **WHERE).rows
        found = matrix_of(tmp_path / name, 3)
        expected = expected or found
        assert rows == len(found[0]) == (4 if segments else 3)
        assert found[:2] == expected[:2], name
        np.testing.assert_allclose(found[2], expected[2], atol=1e-6)
        np.testing.assert_allclose(found[2].sum(axis=1), 1, atol=1e-5)
    assert expected[0] == (['a"b,c'] * 2 + ["line\nbreak"] * 2 if segments else [row["id"] for row in ROWS])


def test_an_unknown_suffix__is_refused_before_any_work(fitted, tmp_path, capsys):
    assert main(["infer", str(fitted / "run"), str(tmp_path / "absent.jsonl"), str(tmp_path / "o.xlsx")]) == 2
    assert "o.xlsx: expected a name that ends in .parquet, .csv, .npy, .npz" in capsys.readouterr().err
    with pytest.raises(OptionError, match=r"\.npy"):
        predict(fitted / "labelled", fitted / "c", tmp_path / "o.npy", field="topic")
    for name in ("o.npy", "o.parquet"):
        with pytest.raises(OptionError, match="threshold"):
            infer(fitted / "run", fitted / "c", tmp_path / name, dense=True, threshold=0.1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["o.npy", "o.ids.csv"])
def test_a_file_that_another_process_has_written_meanwhile__is_not_overwritten(tmp_path, name):
    table = pa.table({"id": ["a"], "proportions": pa.FixedSizeListArray.from_arrays(pa.array([0.5, 0.5]), 2)})
    with pytest.raises(OccupiedError, match=name), written_to(tmp_path / "o.npy", SCHEMA, dense=True) as writer:
        writer.write(table)
        (tmp_path / name).write_bytes(b"theirs")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: b"theirs"}


@pytest.mark.parametrize(("name", "taken"), [("o.npy", "o.npy"), ("o.npy", "o.ids.csv"), ("o.csv", "o.csv")])
def test_existing_files__are_not_overwritten(fitted, tmp_path, name, taken):
    (tmp_path / taken).write_text("mine")
    with pytest.raises(OccupiedError, match=taken):
        infer(fitted / "run", fitted / "c", tmp_path / name, **WHERE)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(taken, "mine")]


@pytest.mark.parametrize("name", ["o.parquet", "o.csv", "o.npy", "o.npz"])
def test_an_interrupted_command__leaves_no_file(tmp_path, name):
    table = pa.table({"id": ["a"], "proportions": pa.FixedSizeListArray.from_arrays(pa.array([0.5, 0.5]), 2)})
    with pytest.raises(RuntimeError), written_to(tmp_path / name, SCHEMA, dense=True) as writer:
        writer.write(table)
        raise RuntimeError
    assert not list(tmp_path.iterdir())


@given(
    st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0\r")), st.integers(0, 3)), max_size=6)
)
@settings(max_examples=20, deadline=None)
def test_ids__are_written_as_they_are(tmp_path_factory, rows):
    place = tmp_path_factory.mktemp("ids")
    ids = [f"{'=+-@'[shift]}{text}." for text, shift in rows]
    theta = np.array([np.roll([0.7, 0.2, 0.1, 0.0], shift) for _, shift in rows]).reshape(len(rows), 4)
    with written_to(place / "o.csv", SCHEMA) as writer:
        for first in range(0, len(ids), 2):
            writer.write(sparse(pa.array(ids[first : first + 2]), theta[first : first + 2], 0.15))
    with (place / "o.csv").open(newline="", encoding="utf-8") as file:
        found = [(row["id"], int(row["topic"])) for row in csv.DictReader(file)]
    assert found == [
        (name, (topic + shift) % 4) for name, (_, shift) in zip(ids, rows, strict=True) for topic in (0, 1)
    ]
    with written_to(place / "o.npz", SCHEMA, dense=True) as writer:
        for first in range(0, len(ids), 2):
            flat = pa.array(theta[first : first + 2].astype(np.float32).ravel())
            shares = pa.FixedSizeListArray.from_arrays(flat, 4)
            writer.write(pa.table({"id": pa.array(ids[first : first + 2], pa.string()), "proportions": shares}))
    with np.load(place / "o.npz") as archive:
        assert archive["ids"].tolist() == ids
        assert archive["proportions"].shape == (len(ids), 4 if ids else 0)
    assert all(entry.compress_type == zipfile.ZIP_STORED for entry in zipfile.ZipFile(place / "o.npz").infolist())


def test_predict__writes_csv_without_lists(fitted, tmp_path):
    found = predict(fitted / "labelled", fitted / "x.jsonl", tmp_path / "o.csv", field="topic", **WHERE)
    assert (found.documents, found.unknown.unknown) == (3, 0)
    table = pacsv.read_csv(tmp_path / "o.csv", parse_options=pacsv.ParseOptions(newlines_in_values=True))
    assert table.column_names == ["id", "predicted", "score", "perplexity", "known"]
    assert table.column("known").to_pylist() == ["x", "y", "x"]


def test_scores_of_texts__equal_scores_of_their_corpus(fitted, tmp_path, capsys):
    put_lines(tmp_path / "new.jsonl", [{"id": "n", "text": "aa bb cc. dd zz zz."}])
    ingest(tmp_path / "new.jsonl", tmp_path / "new", like=fitted / "run")
    texts, corpus = (evaluate(fitted / "run", unseen=tmp_path / name, **WHERE) for name in ("new.jsonl", "new"))
    assert (texts.score, texts.tokens, texts.documents) == (corpus.score, corpus.tokens, corpus.documents)
    assert (texts.unknown.unknown, texts.unknown.tokens, corpus.unknown) == (2, 6, None)
    assert coherence(fitted / "run", tmp_path / "new.jsonl", **WHERE) is not None
    assert main(["infer", str(fitted / "run"), f"{tmp_path}/new.json*", str(tmp_path / "o.csv"), "--json"]) == 0
    output = capsys.readouterr()
    assert '"unknown_tokens": 2' in output.out
    assert "warning: 2 of 6 tokens (33.3%)" in output.err


def test_formats__are_recognised_by_the_suffix():
    assert [ending_of(f"s3://a.b/c/{name}") for name in ("x.CSV", "x", "x.y.npz")] == [".csv", ".parquet", ".npz"]


THETA_ROWS = st.lists(st.sampled_from([0.0, 1e-4, 0.05, 0.1, 0.1, 0.25, 0.4, 1.0]), min_size=5, max_size=5)


@given(st.lists(THETA_ROWS, max_size=12), st.sampled_from([0.0, 0.05, 0.2]))
def test_sparse_proportions__exceed_the_threshold_in_descending_order(rows, threshold):
    theta = np.array(rows, dtype=float).reshape(-1, 5)
    table = sparse(pa.array([str(number) for number in range(len(rows))], pa.string()), theta, threshold)
    for row, listed in zip(rows, table.to_pylist(), strict=True):
        expected = sorted((-share, topic) for topic, share in enumerate(row) if share >= threshold)
        assert listed["topics"] == [topic for _, topic in expected]
        assert listed["proportions"] == [float(np.float32(-share)) for share, _ in expected]


@given(st.lists(st.integers(0, 40), max_size=60).map(sorted), st.integers(0, 1000))
def test_documents_with_many_topics__are_sorted_in_several_parts(documents, seed):
    """The sort key leaves few bits for the document's number if there are many topics."""
    generator = np.random.default_rng(seed)
    document, topics = np.array(documents, dtype=np.int64), 1 << 30
    topic = generator.choice(topics, document.size, replace=False)
    share = generator.choice([0.1, 0.2, 0.7], document.size)
    expected = np.lexsort((topic, -share, document))
    found_topics, found_shares = largest_first(document, topic, share, topics)
    np.testing.assert_array_equal(found_topics, topic[expected])
    np.testing.assert_array_equal(found_shares, share[expected].astype(np.float32))
