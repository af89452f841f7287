import json
import shutil

import numpy as np
import pytest

from collapsium.pipeline import append, ingest
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.corpora import append as appending
from collapsium.storage.building.ingest_record import read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import Manifest
from collapsium.storage.errors import InputError, LockedError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.run_lock import RunLock
from tests.conftest import write_corpus
from tests.pipeline.corpora.test_text_ingest import bags_of, columns_of, put_lines

OLD = [
    {"id": f"o{n}", "text": text, "tag": "t"} for n, text in enumerate(["bb aa cc", "aa bb", "new york cc", "new york"])
]
NEW = [
    {"id": "n1", "text": "cc the dd dd", "tag": "u"},
    {"id": "n2", "text": "dd ee new york"},
    {"id": "n3", "text": ""},
]


@pytest.fixture(scope="module")
def ingested(tmp_path_factory):
    place = tmp_path_factory.mktemp("made")
    ingest(
        put_lines(place / "old.jsonl", OLD),
        place / "c",
        labels=["tag"],
        phrases="npmi",
        phrase_count=2,
        shard_tokens=4,
        min_documents=2,
    )
    put_lines(place / "new.jsonl", NEW)
    return place


@pytest.fixture
def place(ingested, tmp_path):
    shutil.copytree(ingested, tmp_path, dirs_exist_ok=True)
    return tmp_path


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("grow", [False, True])
def test_append__adds_shards_after_existing_ones(place, grow):
    before, old = files_of(place / "c"), Corpus(place / "c")
    manifest = append(place / "c", place / "new.jsonl", grow=grow)
    after = files_of(place / "c")
    assert manifest.shards[: len(old.manifest.shards)] == old.manifest.shards
    assert {name: data for name, data in after.items() if name in before and name[-4:] != "json"} == {
        name: data for name, data in before.items() if name[-4:] != "json"
    }
    extra = {"dd": 2} if grow else {}
    found = bags_of(place / "c")
    assert list(found) == [row["id"] for row in OLD + NEW]
    assert found["n1"] == {"cc": 1, **extra}
    assert found["n2"] == {"new_york": 1, **dict.fromkeys(extra, 1)}
    assert found["n3"] == {}
    assert columns_of(place / "c")["labels"][-3:] == [[{"field": "tag", "value": "u"}], [], []]
    new = Corpus(place / "c").vocabulary
    assert new.words == [*old.vocabulary.words, *extra]
    assert (manifest.vocabulary.words_sha256 == old.manifest.vocabulary.words_sha256) is not grow
    assert main(["verify", str(place / "c")]) == 0
    report = read_history(Folder(place / "c")).appended[-1]
    assert (report.documents, report.empty_documents, report.words) == (3, 1, 3 if grow else 2)
    rule = "in fewer than 2 documents" if grow else "not in the vocabulary"
    assert [(rule.rule, rule.words, rule.tokens) for rule in report.dropped] == [(rule, 1, 1) if grow else (rule, 2, 4)]


def test_append__gives_the_same_bits_for_any_workers_and_division_of_the_sources(place):
    shutil.copytree(place / "c", place / "d")
    serial = append(place / "c", place / "new.jsonl", grow=True, scheduler="serial")
    other = append(place / "d", place / "new.jsonl", grow=True, scheduler="threads", workers=3)
    assert serial == other
    assert files_of(place / "c") == files_of(place / "d")


def test_append__refuses_or_skips_existing_documents(place):
    append(place / "c", place / "new.jsonl")
    before = files_of(place / "c")
    for other in (
        [*NEW[:2], {"id": "n3", "text": "aa"}],
        [NEW[1], NEW[0], NEW[2]],
        NEW[:2],
        [*NEW, {"id": "n4", "text": "aa"}],
    ):
        put_lines(place / "other.jsonl", other)
        with pytest.raises(MismatchError, match="has documents with the same ids already, such as 'n"):
            append(place / "c", place / "other.jsonl")
    with pytest.raises(MismatchError, match="has documents with the same ids already, such as 'o0', 'o1'"):
        append(place / "c", place / "old.jsonl")
    manifest = append(place / "c", place / "new.jsonl", skip_existing=True)
    assert manifest == Corpus(place / "c").manifest
    assert files_of(place / "c") == before
    put_lines(place / "new.jsonl", [*NEW, {"id": "n4", "text": "aa"}])
    assert append(place / "c", place / "new.jsonl", skip_existing=True).documents == 8
    assert read_history(Folder(place / "c")).appended[-1].skipped_documents == 3


@pytest.mark.parametrize("grow", [False, True])
def test_append__reports_documents_that_the_corpus_already_has(place, grow, capsys):
    options = ["--grow"] if grow else []
    first = append(place / "c", place / "new.jsonl", grow=grow)
    assert main(["append", str(place / "c"), str(place / "new.jsonl"), *options]) == 0
    assert "these 3 documents were added before; nothing to add" in capsys.readouterr().out
    put_lines(place / "more.jsonl", [{"id": "m", "text": "aa bb cc aa bb"}])
    append(place / "c", place / "more.jsonl")
    assert append(place / "c", place / "new.jsonl", grow=grow).shards[: len(first.shards)] == first.shards
    assert main(["append", str(place / "c"), str(place / "new.jsonl"), *options, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)["append"]
    assert (output["repeated"], output["documents"]) == (True, 3)
    assert len(Corpus(place / "c").manifest.shards) == len(first.shards) + 1


@pytest.mark.parametrize("where", ["shard", "manifest"])
def test_an_interrupted_append__leaves_the_corpus_as_it_was(place, where, monkeypatch):
    before, digest = bags_of(place / "c"), Corpus(place / "c").manifest.digest
    with monkeypatch.context() as broken:

        def fail(*args, **kwargs):
            raise KeyboardInterrupt

        if where == "manifest":
            broken.setattr(Manifest, "write", fail)
        else:
            broken.setattr("collapsium.pipeline.corpora.text_ingest.reading.write_shard", fail)
        with pytest.raises(KeyboardInterrupt):
            append(place / "c", place / "new.jsonl", scheduler="serial")
    assert Corpus(place / "c").manifest.digest == digest
    assert bags_of(place / "c") == before
    assert not (place / "c/append").exists()
    put_lines(place / "new.jsonl", [{"id": "other", "text": "aa bb"}])
    append(place / "c", place / "new.jsonl")
    assert bags_of(place / "c") == {**before, "other": {"aa": 1, "bb": 1}}
    named = {row.file.split("/")[1] for row in Corpus(place / "c").manifest.shards}
    assert {path.name for path in (place / "c/documents").iterdir()} == named


def test_append__locks_the_corpus(place):
    with RunLock(Folder(place / "c") / "lock"), pytest.raises(LockedError, match="works on it"):
        append(place / "c", place / "new.jsonl")


def test_append__keeps_the_history_of_another_addition_that_ended_meanwhile(place, monkeypatch):
    put_lines(place / "more.jsonl", [{"id": "m1", "text": "aa bb cc"}])
    lock = appending.RunLock

    def locked_late(folder):
        monkeypatch.setattr(appending, "RunLock", lock)
        append(place / "c", place / "more.jsonl")
        return lock(folder)

    monkeypatch.setattr(appending, "RunLock", locked_late)
    append(place / "c", place / "new.jsonl")
    assert [record.documents for record in read_history(Folder(place / "c")).appended] == [1, 3]


def test_append__accepts_other_formats_with_the_same_fields(place):
    (place / "x.csv").write_text("id,text,tag\nx1,aa dd,v\n")
    append(place / "c", place / "x.csv")
    assert bags_of(place / "c")["x1"] == {"aa": 1}
    (place / "x.txt").write_text("aa")
    with pytest.raises(MismatchError, match=r"expected documents with the further fields .*labels.* found none"):
        append(place / "c", place / "x.txt")


def test_append__matches_counted_documents_by_their_words(tmp_path):
    write_corpus(tmp_path / "c", [{0: 2, 1: 1}, {1: 3}], 2)
    (tmp_path / "x.ldac").write_text("2 0:4 1:1\n0\n1 2:5\n")
    (tmp_path / "vocab.txt").write_text("w1\nzz\nw0\n")
    append(tmp_path / "c", tmp_path / "x.ldac")
    expected = {"1": {"w0": 2, "w1": 1}, "2": {"w1": 3}, "x.ldac/1": {"w1": 4}, "x.ldac/2": {}, "x.ldac/3": {"w0": 5}}
    assert bags_of(tmp_path / "c") == expected
    before = files_of(tmp_path / "c")
    append(tmp_path / "c", tmp_path / "x.ldac")
    assert files_of(tmp_path / "c") == before
    (tmp_path / "x.ldac").write_text("2 0:4 1:1\n0\n1 2:6\n")
    with pytest.raises(MismatchError, match="such as 'x.ldac/1'"):
        append(tmp_path / "c", tmp_path / "x.ldac")
    assert np.array_equal(Corpus(tmp_path / "c").vocabulary.tokens, [7, 8])


def test_append__runs_no_function_that_only_the_record_of_the_corpus_names(tmp_path):
    path = put_lines(tmp_path / "x.jsonl", OLD)
    ingest(path, tmp_path / "c", tokenizer="builtins:str.split")
    put_lines(tmp_path / "y.jsonl", NEW)
    with pytest.raises(OptionError, match="function builtins:str.split; if you trust it, name it again"):
        append(tmp_path / "c", tmp_path / "y.jsonl")
    assert append(tmp_path / "c", tmp_path / "y.jsonl", tokenizer="builtins:str.split").documents == 7


def test_append__runs_no_regular_expression_that_only_the_record_of_the_corpus_names(tmp_path, capsys):
    endless = "(a|a)*b"  # takes twice as long with each further letter
    put_lines(tmp_path / "x.jsonl", [{"id": "a", "text": "aa bb"}])
    ingest(tmp_path / "x.jsonl", tmp_path / "c", segments=f"headings:{endless}")
    new = put_lines(tmp_path / "y.jsonl", [{"id": "b", "text": "a" * 60}])
    before = files_of(tmp_path / "c")
    assert main(["append", str(tmp_path / "c"), str(new)]) == 2
    assert f"--headings '{endless}'" in capsys.readouterr().err
    with pytest.raises(OptionError, match="headings: expected the value that .* was made with"):
        append(tmp_path / "c", new, headings="CH")
    assert files_of(tmp_path / "c") == before
    short = put_lines(tmp_path / "z.jsonl", [{"id": "b", "text": "aa bb"}])
    assert main(["append", str(tmp_path / "c"), str(short), "--headings", endless]) == 0


def test_append__reports_errors_clearly(place, capsys):
    assert main(["append", str(place / "c"), str(place / "new.jsonl"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["append"]["documents"] == 3
    put_lines(place / "new.jsonl", [NEW[0] | {"id": "z"}, NEW[0] | {"id": "z"}])
    with pytest.raises(InputError, match="'z' occurs twice"):
        append(place / "c", place / "new.jsonl")
    (place / "c/ingest.json").write_text("{}")
    assert main(["append", str(place / "c"), str(place / "new.jsonl")]) == 1
    assert "ingest.json: field 'format'" in capsys.readouterr().err
