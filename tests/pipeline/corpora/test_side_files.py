import csv
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapsium.pipeline import append, info, ingest, split
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.workflows.batch.job_file import read_job
from collapsium.storage.building.ingest_record import read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.list_columns import rows_of
from collapsium.storage.errors import CollapsiumError, InputError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.texts import blocks
from tests.pipeline.corpora.append.test_append import files_of
from tests.pipeline.corpora.test_text_ingest import columns_of, put_lines

TEXTS = ["aa bb cc", "bb", "", "cc dd", "aa dd dd"]
LABELS = st.lists(st.sampled_from(["x", "y z", "u;v", 'q"', "\u00e9,1"]), unique=True, max_size=3)
DOCUMENT = st.tuples(
    st.lists(st.sampled_from(["aa", "bb", "cc"]), max_size=5), LABELS, st.none() | st.floats(-9, 9, width=32)
)


def labels_of(corpus):
    """Return the labels of each document, as texts field:value."""
    return [
        [f"{label['field']}:{label['value']}" for label in labels or ["missing"]] if labels != [] else []
        for labels in columns_of(corpus)["labels"]
    ]


def put(path, text):
    path.write_text(text)
    return str(path)


def put_rows(path, rows):
    """Write rows in the format of the path's suffix; in CSV, a list of labels becomes several rows."""
    if path.suffix == ".parquet":
        types = {"id": pa.string(), "tag": pa.list_(pa.string()), "stars": pa.float64()}
        pq.write_table(pa.table({name: pa.array([row[name] for row in rows], types[name]) for name in types}), path)
    elif path.suffix == ".jsonl":
        put_lines(path, rows)
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writerow(["stars", "id", "tag"])
            for row in rows:
                for tag in row["tag"] or [""]:
                    writer.writerow([row["stars"], row["id"], tag])
    return str(path)


def test_side_files__give_the_same_columns_as_records(tmp_path_factory, monkeypatch):
    @settings(max_examples=25)
    @given(
        st.lists(DOCUMENT, min_size=1, max_size=7).filter(lambda drawn: any(row[0] for row in drawn)),
        st.sampled_from([".csv", ".tsv", ".jsonl", ".parquet"]),
        st.integers(1, 5),
        st.randoms(use_true_random=False),
    )
    def same(drawn, ending, shard_tokens, random):
        place = tmp_path_factory.mktemp("same")
        rows = [
            {"id": f"d{n}", "text": " ".join(words), "tag": tags, "stars": stars}
            for n, (words, tags, stars) in enumerate(drawn)
        ]
        named = {"labels": ["tag"], "covariates": ["stars"]}
        expected = ingest(put_lines(place / "own.jsonl", rows), place / "own", shard_tokens=shard_tokens, **named)
        beside = [{name: row[name] for name in ("id", "tag", "stars")} for row in rows]
        random.shuffle(beside)
        side = put_rows(place / f"side{ending}", beside)
        texts = put_lines(place / "texts.jsonl", [{name: row[name] for name in ("id", "text")} for row in rows])
        for module, name in ((blocks, "BLOCK"), (blocks, "CHUNK_BYTES")):
            monkeypatch.setattr(module, name, 40)
        monkeypatch.setattr(blocks.cut_blocks, "__defaults__", (40,))
        for scheduler, workers in (("serial", None), ("threads", 3)):
            how = {"shard_tokens": shard_tokens, "scheduler": scheduler, "workers": workers, "label_files": side}
            assert ingest(texts, place / scheduler, **named, **how) == expected
        assert (place / "serial/ingest.json").read_bytes() == (place / "threads/ingest.json").read_bytes()

    same()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sources of five documents in several formats, and side files."""
    place = tmp_path_factory.mktemp("made")
    put_lines(place / "d.jsonl", [{"id": f"d{n}", "text": text, "tag": "own"} for n, text in enumerate(TEXTS)])
    put(place / "d.csv", "text\n" + "".join(f'"{text}"\n' for text in TEXTS))
    put(place / "d.ldac", "2 0:1 1:2\n1 1:1\n1 2:3\n2 0:1 2:1\n1 0:4\n")
    put(place / "vocab.txt", "aa\nbb\ncc\n")
    put(place / "v.csv", "p,q\n" + "".join(f"{n},{n * n}\n" for n in range(5)))
    put(place / "who.txt", "1 2\n3\n\n2\n1 3\n")
    put(place / "names.txt", "Ann B\nC\u00e9d\nDi\n")
    put(place / "side.csv", "id,tag,n,note\n5,x,2,r\n9,lost,1,s\n2,y,,\n3,,4.5,r\n")
    return place


EXPECTED = [["author:Ann B", "author:C\u00e9d"], ["author:Di"], [], ["author:C\u00e9d"], ["author:Ann B", "author:Di"]]
SOURCES = {
    "d.jsonl": {},
    "d.csv": {"phrases": "npmi", "phrase_count": 1},
    "d.ldac": {"vocabulary": "vocab.txt", "min_documents": 2},
    "v.csv": {"format": "vectors"},
}


def options_of(place, source):
    return {name: str(place / value) if name == "vocabulary" else value for name, value in SOURCES[source].items()}


@pytest.mark.parametrize("source", SOURCES)
def test_lines_of_a_side_file__belong_to_the_documents_in_order(folder, tmp_path, source):
    options = options_of(folder, source)
    sides = {"label_files": f"author={folder / 'who.txt'}", "label_names": [f"author={folder / 'names.txt'}"]}
    manifest = ingest(str(folder / source), tmp_path / "c", shard_tokens=3, **options, **sides)
    assert labels_of(tmp_path / "c") == EXPECTED
    assert "labels" in manifest.fields
    assert len(manifest.shards) > 1
    plain = ingest(str(folder / source), tmp_path / "plain", shard_tokens=3, **options)
    assert [row.ids_sha256 for row in plain.shards] == [row.ids_sha256 for row in manifest.shards]
    assert "labels" not in plain.fields
    history = read_history(Folder(tmp_path / "plain"))
    assert history is None or (history.record()["version"], "side_files" in history.record()) == (7, False)
    assert history is None or "unmatched_rows" not in history.record()["report"]


@pytest.mark.parametrize("source", ["d.csv", "d.ldac", "v.csv"])
def test_rows_of_a_side_file__are_matched_by_id_in_any_order(folder, tmp_path, capsys, source):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options_of(folder, source).items()]
    side = str(folder / "side.csv")
    assert main(["ingest", str(folder / source), str(tmp_path / "c"), "--label-files", side, *flags]) == 0
    assert "1 id in side files without a document" in capsys.readouterr().out
    assert labels_of(tmp_path / "c") == [[], ["tag:y"], ["note:r"], [], ["tag:x", "note:r"]]
    assert columns_of(tmp_path / "c")["n"] == [None, None, 4.5, None, 2.0]
    shown = info(tmp_path / "c")
    assert shown["labels"] == {
        "note": {"values": 1, "labels": 2, "documents": 2}, "tag": {"values": 2, "labels": 2, "documents": 2}
    }  # fmt: skip
    assert shown["covariates"] == {"n": {"documents": 2, "least": 2.0, "most": 4.5, "mean": 3.25}}
    assert main(["info", str(tmp_path / "c")]) == 0
    out = capsys.readouterr().out
    assert "tag: 2 values, 2 labels in 2 documents" in out
    assert "n: in 2 documents, from 2 to 4.5, mean 3.25" in out


def test_named_fields__come_from_the_side_files_if_they_have_them(folder, tmp_path):
    rows = [{"key": f"d{n}", "tag": ["own", f"s{n}"], "more": "m", "w": n, "z": "0"} for n in (4, 2, 0)]
    side = put_lines(tmp_path / "s.jsonl", rows)
    options = {"labels": ["tag", "other=more"], "covariates": ["weight=w"], "label_files": [side]}
    with pytest.raises(InputError, match="no field 'id'"):
        ingest(str(folder / "d.jsonl"), tmp_path / "c", **options)
    texts = put_lines(tmp_path / "t.jsonl", [{"key": f"d{n}", "text": "aa", "tag": "own"} for n in range(5)])
    ingest(texts, tmp_path / "c", id="key", **options)
    more = [["tag:own", *([f"tag:s{n}", "other:m"] if n in (0, 2, 4) else [])] for n in range(5)]
    assert labels_of(tmp_path / "c") == more
    assert columns_of(tmp_path / "c")["weight"] == [0.0, None, 2.0, None, 4.0]
    ingest(texts, tmp_path / "two", id="key", label_files=[side, str(folder / "who.txt")])
    assert labels_of(tmp_path / "two")[0] == ["tag:own", "tag:s0", "more:m", "z:0", "who:1", "who:2"]
    assert columns_of(tmp_path / "two")["w"] == [0.0, None, 2.0, None, 4.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b\n c \n\n", ["a", "b"]),
        ("a b, c\nd\n\n", ["a b", "c"]),
        ("a b, c;d\ne f\n\n", ["a b, c", "d"]),
        ("a b\tc\r\nd\r\n\r\n", ["a b", "c"]),
        ("\ufeffa a\nb\n\n", ["a"]),
    ],
)
def test_labels_of_a_line__are_split_as_in_the_rest_of_the_file(tmp_path, text, expected):
    texts = put_lines(tmp_path / "t.jsonl", [{"id": n, "text": "aa"} for n in range(3)])
    (tmp_path / "tag.of.txt").write_bytes(text.encode())
    ingest(texts, tmp_path / "c", label_files=str(tmp_path / "tag.of.txt"))
    assert labels_of(tmp_path / "c")[0] == [f"tag.of:{value}" for value in expected]
    assert labels_of(tmp_path / "c")[2] == []


def test_append__accepts_side_files_of_the_new_documents(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    put(tmp_path / "a.csv", "id,tag,n\nd1,01,4\nd4,02,5\n")
    sides = [str(tmp_path / "a.csv"), f"author={tmp_path / 'who.txt'}"]
    names = [f"author={tmp_path / 'names.txt'}"]
    ingest(
        str(tmp_path / "d.jsonl"), tmp_path / "c", labels=["code=tag"], covariates=["n"], label_files=sides,
        label_names=names,
    )  # fmt: skip
    assert labels_of(tmp_path / "c")[1] == ["code:own", "code:01", "author:Di"]
    rows = put_lines(tmp_path / "new.jsonl", [{"id": f"e{n}", "text": "aa cc", "tag": "t"} for n in range(2)])
    before = files_of(tmp_path / "c")
    more = [put(tmp_path / "b.tsv", "n\ttag\tid\n\t7\te0\n3\t8\te5\n"), put(tmp_path / "author.txt", "2\n1\n")]
    for wrong, message in (
        ({"label_files": [str(tmp_path / "who.txt")]}, "expected 2 lines, one for each document, found 5"),
        ({"label_files": more, "skip_existing": True}, "^skip_existing: "),
        ({"label_files": [str(tmp_path / "a.csv")]}, "expected ids of the documents"),
        ({"label_files": [put(tmp_path / "z.csv", "id,z\ne0,4\n")]}, "further fields"),
    ):
        with pytest.raises(CollapsiumError, match=message):
            append(tmp_path / "c", rows, **wrong)
        assert files_of(tmp_path / "c") == before
    append(tmp_path / "c", rows, label_files=more, label_names=names)
    assert labels_of(tmp_path / "c")[5:] == [["code:t", "code:7", "author:C\u00e9d"], ["code:t", "author:Ann B"]]
    last = put_lines(tmp_path / "last.jsonl", [{"id": "f", "text": "bb"}])
    append(tmp_path / "c", last)
    assert labels_of(tmp_path / "c")[7] == []
    assert columns_of(tmp_path / "c")["n"] == [None, 4.0, None, None, 5.0, None, None, None]
    history = read_history(Folder(tmp_path / "c"))
    assert [report.unmatched_rows for report in history.appended] == [1, 0]
    assert main(["verify", str(tmp_path / "c")]) == 0


def test_append__accepts_side_files_of_counted_documents(folder, tmp_path):
    vocabulary = str(folder / "vocab.txt")
    ingest(str(folder / "d.ldac"), tmp_path / "c", vocabulary=vocabulary, label_files=str(folder / "who.txt"))
    shutil.copy(folder / "vocab.txt", tmp_path / "vocab.txt")
    put(tmp_path / "e.ldac", "1 0:1\n1 1:1\n")
    side = put(tmp_path / "side.csv", "id,who\ne.ldac/1,7\n")
    append(tmp_path / "c", str(tmp_path / "e.ldac"), label_files=side, format="ldac")
    assert labels_of(tmp_path / "c")[4:] == [["who:1", "who:3"], ["who:7"], []]
    with pytest.raises(MismatchError, match="further fields"):
        ingest(str(folder / "d.ldac"), tmp_path / "p", vocabulary=vocabulary)
        append(tmp_path / "p", str(tmp_path / "e.ldac"), label_files=side, format="ldac")


WRONG = {
    "lines": ("d.jsonl", {"label_files": ["names.txt"]}, "expected 5 lines, one for each document, found 3"),
    "lines of vectors": ("v.csv", {"label_files": ["names.txt"]}, "expected 5 lines, one for each document, found 3"),
    "no id": ("d.jsonl", {"label_files": ["d.csv"]}, "no field 'id' (`id`); there are text"),
    "no id matches": ("d.jsonl", {"label_files": ["side.csv"]}, "found none among 4 (such as '5', '9', '2')"),
    "absent": ("d.jsonl", {"label_files": ["none.txt"]}, "none.txt: no such file"),
    "names out of range": ("d.ldac", {"label_files": ["who.txt"], "label_names": ["two"]}, "from 1 to 2"),
    "names of nothing": ("d.ldac", {"label_names": ["names.txt"]}, "`label_files` names them"),
    "names of another": (
        "d.ldac",
        {"label_files": ["who.txt"], "label_names": ["whom=names.txt"]},
        "did you mean 'who'?",
    ),
    "whose names": ("d.csv", {"label_files": ["who.txt", "side.csv"], "label_names": ["names.txt"]}, "name the field"),
    "field": ("d.ldac", {"label_files": ["side.csv"], "labels": ["tags"]}, "did you mean 'tag'?"),
    "covariate": ("d.csv", {"label_files": ["side.csv"], "covariates": ["tag"]}, "expected a number or nothing"),
    "infinite": (
        "d.csv",
        {"label_files": ["inf.csv"]},
        "record 2: expected a finite number, found 'inf', in field 'a'",
    ),
    "two values": ("d.csv", {"label_files": ["two.csv"]}, "the same id has two values in field 'a', 1.0 and 2.0"),
    "only ids": ("d.csv", {"label_files": ["ids.csv"]}, "besides the ids, found none"),
    "no rows": ("d.csv", {"label_files": ["none.csv"]}, "expected records with ids, found none"),
    "numbers": ("d.csv", {"label_files": ["x.npz"]}, "its name says npz"),
    "one name": ("d.csv", {"label_files": ["x=side.csv"]}, "names one field"),
    "no name": ("d.csv", {"label_files": ["=side.csv"]}, "expected FILE or NAME=FILE"),
    "taken": ("d.csv", {"label_files": ["title.csv"]}, "`covariates` NAME=title"),
    "nested": (
        "d.csv",
        {"label_files": ["nested.jsonl"]},
        "expected a string or a list of strings, found an object, in field 'a'",
    ),
    "cut short": ("d.csv", {"label_files": ["cut.csv"]}, "line 2: expected 3 values as in the header, found 2"),
    "bytes": ("d.csv", {"label_files": ["latin.txt"]}, "expected UTF-8 text"),
}
BESIDE = {
    "none.csv": "id,tag\n", "x.npz": "PK", "two": "a\nb\n", "inf.csv": "id,a\n1,2\n2,inf\n", "two.csv": "id,a\n1,1\n1,1\n1,2\n", "ids.csv": "id\n1\n",
    "title.csv": "id,title\n1,4\n", "nested.jsonl": '{"id": 1, "a": {"b": 1}}\n', "cut.csv": "id,a,b\n1,2\n",
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_invalid_side_files__are_reported_and_leave_no_files(folder, tmp_path, monkeypatch, case):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for name, text in BESIDE.items():
        put(tmp_path / name, text)
    (tmp_path / "latin.txt").write_bytes(b"a\n\xe9\n")
    source, options, message = WRONG[case]
    with pytest.raises(CollapsiumError) as error:
        ingest(source, "c", **SOURCES[source], **options)
    assert message in str(error.value)
    assert not (tmp_path / "c").exists()


def test_batch__has_no_side_files(folder, tmp_path):
    job = '[batch]\nfolder = "b"\n[ingest]\nsources = ["x.jsonl"]\nlabel_files = "who.txt"\n[fit]\nfamily = "lda"\n'
    with pytest.raises(InputError, match="a batch has no side files"):
        read_job(put(tmp_path / "job.toml", job))


def test_split__drops_labels_and_keeps_everything_else(folder, tmp_path, capsys):
    side = str(folder / "side.csv")
    ingest(str(folder / "d.csv"), tmp_path / "c", label_files=[side, str(folder / "who.txt")], shard_tokens=3)
    capsys.readouterr()
    parts = [str(tmp_path / name) for name in ("train", "held")]
    assert main(["split", str(tmp_path / "c"), *parts, "--drop-labels", "0.6", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    whole = Corpus(tmp_path / "c").manifest
    for part in ("train", "heldout"):
        assert [row["ids_sha256"] for row in output[part]["shards"]] == [row.ids_sha256 for row in whole.shards]
        assert [row["tokens"] for row in output[part]["shards"]] == [row.tokens for row in whole.shards]
    left, out = (labels_of(part) for part in parts)
    assert [sorted(a + b) for a, b in zip(left, out, strict=True)] == [
        sorted(labels) for labels in labels_of(tmp_path / "c")
    ]
    assert sum(map(len, left))
    assert sum(map(len, out))
    assert main(["split", str(tmp_path / "c"), str(tmp_path / "x"), str(tmp_path / "y"), "--drop-labels", "1"]) == 0
    assert "x: 0 labels, 2 of n in 5 documents" in capsys.readouterr().out
    numbers = np.array(columns_of(tmp_path / "c")["n"], dtype=float)
    split(tmp_path / "c", tmp_path / "n1", tmp_path / "n2", drop_labels=0.5, field="n", seed=2)
    found = [np.array(columns_of(tmp_path / name)["n"], dtype=float) for name in ("n1", "n2")]
    np.testing.assert_array_equal(np.where(np.isnan(found[0]), found[1], found[0]), numbers)
    assert labels_of(tmp_path / "n1") == labels_of(tmp_path / "c")
    assert not any(labels_of(tmp_path / "n2"))
    assert rows_of(Corpus(tmp_path / "n1").references[0].documents().extras["labels"]).num_rows


def test_split__stores_the_labels_of_vectors_separately(folder, tmp_path):
    ingest(str(folder / "v.csv"), tmp_path / "c", format="vectors", label_files=str(folder / "who.txt"), shard_tokens=4)
    split(tmp_path / "c", tmp_path / "a", tmp_path / "b", drop_labels=0.5, field="who")
    both = [sorted(a + b) for a, b in zip(labels_of(tmp_path / "a"), labels_of(tmp_path / "b"), strict=True)]
    assert both == labels_of(tmp_path / "c")
    assert Corpus(tmp_path / "a").manifest.vectors == Corpus(tmp_path / "c").manifest.vectors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drop_labels": 0.5, "documents": True}, "^documents: "),
        ({"drop_labels": 0.5, "fraction": 0.1}, "^fraction: "),
        ({"drop_labels": 0.5, "folds": 2, "fold": 0}, "^folds: "),
        ({"drop_labels": 0.0}, "expected a share above 0"),
        ({"drop_labels": float("nan")}, "expected a share above 0"),
        ({"field": "tag"}, "requires `drop_labels`"),
        ({"drop_labels": 0.5}, "its covariates are dropped by name, `field` stars"),
        ({"drop_labels": 0.5, "field": "star"}, "did you mean 'stars'"),
    ],
)
def test_split_of_labels__reports_what_is_impossible(tmp_path, options, message):
    texts = put_lines(tmp_path / "t.jsonl", [{"id": "a", "text": "aa", "stars": 3}])
    ingest(texts, tmp_path / "c", covariates=["stars"])
    with pytest.raises(OptionError, match=message):
        split(tmp_path / "c", tmp_path / "a", tmp_path / "b", **options)
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()
