"""Unknown words of appended documents, copies of sources, and the report of a published version."""

import json

import pytest

from collapsium.pipeline import append, batch, ingest, versions
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.corpora.new_texts import UnknownWords, additions_of
from collapsium.storage.building.ingest_record import read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import Manifest
from collapsium.storage.errors import OptionError
from collapsium.storage.io.folder import Folder
from tests.pipeline.corpora.test_text_ingest import put_lines
from tests.pipeline.workflows.conftest import JOB, WORDS, write_day

QUICK = JOB.replace("iterations = 30", "iterations = 2")
NEW_WORDS = ["harbours", "ovens", "levies", "cranes", "flours", "fines"]


@pytest.fixture
def job(tmp_path):
    """A job of two iterations with its first day's documents."""
    write_day(tmp_path, 1, documents=12)
    path = tmp_path / "harbour.toml"
    path.write_text(QUICK)
    return path


def share_of_new(path):
    """Return the share of tokens that day 1 lacks, counted by hand."""
    texts = [json.loads(line)["text"].split() for line in path.read_text().splitlines()]
    words = [word for text in texts for word in text]
    return sum(word in NEW_WORDS for word in words) / len(words)


def test_a_job_with_a_frozen_vocabulary__reports_the_share_of_unknown_words(job, capsys):
    batch(job)
    write_day(job.parent, 2, documents=12, words=[*WORDS, *NEW_WORDS], noise=1.0)
    expected = share_of_new(job.parent / "day-2.jsonl")
    assert expected > 0.1
    assert main(["batch", str(job), "--json"]) == 0
    output = capsys.readouterr()
    found = json.loads(output.out)
    assert found["unknown_share"] == pytest.approx(expected)
    assert found["unknown_tokens"] == pytest.approx(expected * 12 * 30)
    assert f"({expected:.1%}) are words that are not in the vocabulary" in output.err
    assert [("grow = true in [ingest]" in text, "(first documents: 0.0%)" in text) for text in found["warnings"]] == [
        (True, True)
    ]
    assert f"score {found['score']:.4f} nats" not in output.err
    records = [version for version, _ in versions(job)]
    assert [(record.additions, record.unknown_share) for record in records] == [(0, None), (1, found["unknown_share"])]
    report = (job.parent / "job/published/current/report.html").read_text()
    title = f"harbour, version 2 of {records[1].created[:10]}"
    assert f"<title>{title}: topics</title>" in report
    assert f"<h1>{title}</h1>" in report
    assert f"{expected:.1%} of the tokens of the appended documents" in report
    assert main(["versions", str(job)]) == 0
    assert f"nats over {found['scored']:,} held-out tokens" in capsys.readouterr().out


def test_a_killed_job__reports_the_same_unknown_words(job):
    batch(job)
    write_day(job.parent, 2, documents=12, words=[*WORDS, *NEW_WORDS], noise=1.0)

    class Killed(BaseException):
        pass

    def sink(event):
        if event["event"] == "step" and event["step"] == "evaluate":
            raise Killed

    with pytest.raises(Killed):
        batch(job, sinks=[sink])
    found = batch(job)
    assert found.unknown_share == pytest.approx(share_of_new(job.parent / "day-2.jsonl"))
    assert len(found.warnings) == 1
    assert batch(job).unknown_share is None  # no new documents


def test_a_vocabulary_that_grows__has_no_unknown_words(job):
    job.write_text(QUICK.replace("shard_tokens", "grow = true\nshard_tokens"))
    batch(job)
    write_day(job.parent, 2, documents=12, words=[*WORDS, *NEW_WORDS], noise=1.0)
    found = batch(job)
    assert (found.unknown_tokens, found.unknown_share, found.warnings) == (0, 0.0, ())


def test_append__reports_the_share_of_unknown_words_and_names_grow(tmp_path, capsys):
    put_lines(tmp_path / "old.jsonl", [{"id": "a", "text": "aa bb the"}, {"id": "b", "text": "aa bb"}])
    put_lines(tmp_path / "new.jsonl", [{"id": "c", "text": "aa bb cc the"}])
    put_lines(tmp_path / "more.jsonl", [{"id": "d", "text": "aa bb cc dd"}])
    ingest(tmp_path / "old.jsonl", tmp_path / "c")
    assert main(["append", str(tmp_path / "c"), str(tmp_path / "new.jsonl")]) == 0
    output = capsys.readouterr()
    assert "1 of 3 tokens (33.3%) are words that are not in the vocabulary" in output.out
    assert "warning: added documents" in output.err
    assert "--grow adds new words" in output.err
    assert main(["append", str(tmp_path / "c"), str(tmp_path / "more.jsonl"), "--grow", "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["append"]["unknown_share"] == 0.0
    assert output.err == ""


def test_words_that_were_dropped_as_too_frequent__are_not_unknown(tmp_path):
    """Words above the user's maximum document share are dropped again; dropped rare words count as unknown."""
    put_lines(tmp_path / "old.jsonl", [{"id": str(n), "text": f"so so w{n % 2} w{n % 3}"} for n in range(6)])
    put_lines(tmp_path / "new.jsonl", [{"id": "x", "text": "so so so w0 w9 w8"}])
    ingest(tmp_path / "old.jsonl", tmp_path / "c", max_document_share=0.7, stop_words="none")
    assert "so" not in Corpus(tmp_path / "c").vocabulary.words
    append(tmp_path / "c", tmp_path / "new.jsonl")
    report = additions_of(Corpus(tmp_path / "c"))[0]
    assert [(rule.rule, rule.tokens) for rule in report.dropped] == [
        ("in more than 0.7 of the documents", 3),
        ("not in the vocabulary", 2),
    ]
    assert UnknownWords.of([report]) == UnknownWords(2, 3)


def test_an_addition_that_is_interrupted_before_the_manifest__is_not_reported(tmp_path, monkeypatch):
    put_lines(tmp_path / "old.jsonl", [{"id": "a", "text": "aa bb"}])
    put_lines(tmp_path / "new.jsonl", [{"id": "c", "text": "aa cc"}])
    ingest(tmp_path / "old.jsonl", tmp_path / "c")
    with monkeypatch.context() as broken:

        def fail(*args):
            raise KeyboardInterrupt

        broken.setattr(Manifest, "write", fail)
        with pytest.raises(KeyboardInterrupt):
            append(tmp_path / "c", tmp_path / "new.jsonl")
    assert additions_of(Corpus(tmp_path / "c")) == ()
    append(tmp_path / "c", tmp_path / "new.jsonl")
    assert len(read_history(Folder(tmp_path / "c")).appended) == 1


def test_a_copy_of_a_file__is_never_reported_as_missing(job, capsys):
    day = job.parent / "day-1.jsonl"
    (job.parent / "day-1-again.jsonl").write_bytes(day.read_bytes())
    assert batch(job).documents == 12
    copy = job.parent / "day-1-copy.jsonl"
    copy.write_bytes(day.read_bytes())
    found = batch(job)
    assert (found.outcome, len(found.notices)) == ("nothing-new", 1)
    copy.unlink()
    assert batch(job).notices == ()
    day.unlink()  # its copy still exists
    assert batch(job).notices == ()
    (job.parent / "day-1-again.jsonl").rename(job.parent / "day-9.jsonl")
    assert batch(job).notices == ()
    write_day(job.parent, 5, documents=3)
    batch(job)
    (job.parent / "day-9.jsonl").unlink()
    capsys.readouterr()
    assert main(["batch", str(job), "--quiet", "--json"]) == 0
    output = capsys.readouterr()
    assert (output.err, len(json.loads(output.out)["notices"])) == ("", 1)
    assert main(["batch", str(job)]) == 0
    assert "gone" not in capsys.readouterr().err


def test_a_file_without_new_documents__is_not_reported_as_missing(job):
    job.write_text(QUICK.replace("shard_tokens", "skip_existing = true\nshard_tokens"))
    batch(job)
    lines = (job.parent / "day-1.jsonl").read_text().splitlines()
    part = job.parent / "day-1-part.jsonl"
    part.write_text("\n".join(lines[:3]) + "\n")
    assert "added nothing" in batch(job).notices[0]
    part.unlink()
    assert batch(job).notices == ()


def unknown_shares(corpus):
    documents = [reference.documents() for reference in Corpus(corpus).references]
    return {
        name: share
        for part in documents
        for name, share in zip(part.ids.to_pylist(), part.extras["unknown_share"].to_pylist(), strict=True)
    }


def test_each_document__has_its_share_of_unknown_words_including_appended_ones(tmp_path):
    # `the` is a stop word, `harbour` is in most documents, and the other words are rare.
    texts = ["the harbour ship ship crane", "harbour ship quay quay quay", "the the the", "harbour ship", "harbour tug"]
    put_lines(tmp_path / "first.jsonl", [{"id": str(n), "text": text} for n, text in enumerate(texts)])
    options = {"min_documents": 2, "max_document_share": 0.7, "scheduler": "serial"}
    manifest = ingest(tmp_path / "first.jsonl", tmp_path / "corpus", unknown_share=True, **options)
    assert manifest.fields["unknown_share"] == "float"
    expected = {"0": 1 / 3, "1": 3 / 4, "2": None, "3": 0.0, "4": 1.0}
    assert unknown_shares(tmp_path / "corpus") == pytest.approx(expected)
    put_lines(tmp_path / "second.jsonl", [{"id": "5", "text": "the harbour ship zebra zebra"}])
    append(tmp_path / "corpus", tmp_path / "second.jsonl", scheduler="serial")
    assert unknown_shares(tmp_path / "corpus") == pytest.approx({**expected, "5": 2 / 3})
    append(tmp_path / "corpus", tmp_path / "second.jsonl", scheduler="serial")  # has no new documents, and adds nothing
    assert len(unknown_shares(tmp_path / "corpus")) == 6


def test_the_share_of_unknown_words__is_no_covariate_and_requires_texts(tmp_path):
    put_lines(tmp_path / "texts.jsonl", [{"id": "a", "text": "ship ship", "unknown_share": 1}])
    with pytest.raises(OptionError, match="unknown_share: is a reserved name"):
        ingest(tmp_path / "texts.jsonl", tmp_path / "corpus", covariates="unknown_share", unknown_share=True)
    ingest(tmp_path / "texts.jsonl", tmp_path / "own", covariates="unknown_share", scheduler="serial")
    assert Corpus(tmp_path / "own").manifest.fields == {"unknown_share": "double"}
    (tmp_path / "counts.txt").write_text("1 0:2\n")
    with pytest.raises(OptionError, match="applies only to texts"):
        ingest(tmp_path / "counts.txt", tmp_path / "counts", format="svmlight", unknown_share=True)
