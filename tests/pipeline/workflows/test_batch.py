"""Batch jobs: two days, jobs that are killed at every step, alarms, rollbacks and locks."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from collapsium.pipeline import Corpus, Model, batch, infer, name_topics, rollback, split, topics, versions
from collapsium.pipeline.analysis.evaluate import evaluate
from collapsium.pipeline.analysis.scoring import complete
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.engine.save import Succession
from collapsium.pipeline.workflows.batch.journal import Journal, find_sources
from collapsium.storage.errors import AbsentError, DamagedError, InputError, LockedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.run_lock import RunLock
from collapsium.storage.runs.published import Versions, read_parts
from tests.fits import bits
from tests.pipeline.workflows.conftest import JOB, WORDS, write_day

REPORT = "collapsium.pipeline.reporting.page.report.report"


def write_report(run, out, progress):
    """Write a placeholder for a report, because reports are not tested here."""
    Path(out).write_text(f"<html>{len(topics(run))} topics</html>")


@pytest.fixture(autouse=True)
def reports(monkeypatch):
    monkeypatch.setattr(REPORT, write_report)


@pytest.fixture(scope="module")
def first_day(tmp_path_factory):
    """The folder of a job whose first day is published."""
    place = tmp_path_factory.mktemp("first")
    write_day(place, 1)
    (place / "job.toml").write_text(JOB)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(REPORT, write_report)
        assert batch(place / "job.toml").version == 1
    return place


@pytest.fixture
def published_job(first_day, tmp_path):
    """A job whose first day is published, in a separate folder."""
    return shutil.copytree(first_day, tmp_path / "place", symlinks=True) / "job.toml"


def published(job):
    """Return the current version without its date."""
    place = job.parent / "job/published/current"
    record = json.loads((place / "version.json").read_text())
    model = Model(str(place))
    arrays = bits(model, len(model.record.shards))
    parts = {part.name: part.read_bytes() for part in sorted((place / "proportions.parquet").iterdir())}
    return {**record, "created": "", "sha256": ""}, arrays, parts


def test_two_days__give_two_versions_and_the_second_takes_less_than_half_the_iterations(job):
    first = batch(job)
    assert (first.outcome, first.version, first.new_documents, first.previous_score) == ("published", 1, 40, None)
    assert batch(job).outcome == "nothing-new"
    write_day(job.parent, 2, documents=20)
    second = batch(job)
    assert (second.outcome, second.version, second.documents, second.new_documents) == ("published", 2, 60, 20)
    assert second.iterations < first.iterations / 2
    assert second.score > second.previous_score - 0.1
    again = batch(job)
    assert (again.outcome, again.version, again.seconds >= 0) == ("nothing-new", 2, True)
    found = versions(job)
    assert [(version.number, current) for version, current in found] == [(1, False), (2, True)]
    assert found[1][0].previous == {"version": 1, "score": second.previous_score}
    assert (found[1][0].warm, found[1][0].documents) == (1, 60)
    place = job.parent / "job/published/current"
    table = pq.read_table(place / "proportions.parquet")
    assert table.num_rows == 60
    assert set(table["version"].to_pylist()) == {2}
    for row in table.to_pylist():
        assert (row["topic"], row["share"]) == (row["topics"][0], row["proportions"][0])
    names = {topic.id: ", ".join(topic.names) for topic in topics(place, 5)}
    assert {row["topic"]: row["name"] for row in table.to_pylist()}.items() <= names.items()
    assert (place / "report.html").exists()
    assert len(topics(place)) == 3
    assert not (job.parent / "job/cycles/0001").exists()
    kept = json.loads((job.parent / "job/cycles/0002/run/run.json").read_text())["warm"]
    assert kept["url"].endswith("cycles/0001/run/model")


def test_a_night_with_few_documents__only_folds_them_in_and_writes_their_proportions(job):
    job.write_text(job.read_text().replace('"lda"', '"lda"\nrefit_growth = 0.3'))
    batch(job)
    name_topics(job.parent / "job/published/current", lambda words, documents: f"about {words[0]}")
    write_day(job.parent, 2, documents=5)
    (job.parent / "day-2.jsonl").open("a").write('{"id": "new", "text": "zebra zebra zebra sailor the"}\n')
    second = batch(job)
    write_day(job.parent, 3, documents=4)
    outcome = batch(job)
    places = [job.parent / f"job/published/{number:04d}" for number in (1, 2, 3)]
    tables = [pq.read_table(place / "proportions.parquet").to_pylist() for place in places]
    models = {(place / "model/model.json").read_bytes() for place in places}
    assert (second.version, second.score, len(models)) == (2, second.previous_score, 1)
    assert any("6 documents since the last fit (15.0%) are folded in" in line for line in second.notices)
    assert [len(table) for table in tables] == [40, 46, 50]
    # the topics of the first night had no names yet
    assert {row["version"] for row in tables[1]} == {2}
    assert tables[2][:46] == tables[1]
    assert {row["version"] for row in tables[2][46:]} == {3}
    assert all(row["name"].startswith("about ") for row in tables[2])
    shares = {row["id"]: row["unknown_share"] for row in tables[2]}
    assert (shares["1-0"], shares["new"]) == (0.0, 0.75)
    shared = {part.name: part.stat().st_ino for part in (places[1] / "proportions.parquet").iterdir()}
    latest = {part.name: part.stat().st_ino for part in (places[2] / "proportions.parquet").iterdir()}
    assert shared.items() < latest.items()
    parts = read_parts(Folder(places[2]))
    assert [part.file for part in parts] == sorted(latest)
    assert [part.version for part in parts] == [2] * len(shared) + [3]
    assert outcome.documents == 50
    write_day(job.parent, 4, documents=6)
    refitted = batch(job, accept=True)
    assert not any("folded in" in line for line in refitted.notices)
    assert {part.version for part in read_parts(Folder(job.parent / "job/published/0004"))} == {4}


def test_a_night_that_is_killed_while_it_writes_proportions__keeps_the_version_and_can_be_continued(
    published_job, monkeypatch
):
    job = published_job
    before = published(job)
    write_day(job.parent, 2, documents=20)
    written = []

    def write(folder, name, data):
        if len(written) == 1 and "cycles/0002/proportions.parquet" in folder.url:
            raise Killed
        if "proportions.parquet" in folder.url:
            written.append(name)
        return original(folder, name, data)

    original = Folder.write
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Folder, "write", write)
        batch(job)
    assert published(job) == before
    place = job.parent / "job/cycles/0002/proportions.parquet"
    first = {part.name: part.stat().st_mtime_ns for part in place.iterdir()}
    assert list(first) == written
    assert batch(job).version == 2
    assert first.items() < {part.name: part.stat().st_mtime_ns for part in place.iterdir()}.items()
    assert pq.read_table(job.parent / "job/published/0002/proportions.parquet").num_rows == 60


class Killed(BaseException):
    """Ends a job at once, like a power cut."""


STEPS = ["ingest", "append", "split", "fit", "evaluate", "infer", "publish", "report", "clean"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The result of two uninterrupted days, and a job whose first day is published."""
    place = tmp_path_factory.mktemp("uninterrupted")
    write_day(place, 1)
    (place / "job.toml").write_text(
        JOB.replace('scheduler = "serial"', 'scheduler = "serial"\n[report]\nenabled = false')
    )
    batch(place / "job.toml")
    before = shutil.copytree(place, tmp_path_factory.mktemp("before") / "job")  # lets the link become a folder
    write_day(place, 2, documents=20)
    batch(place / "job.toml")
    return published(place / "job.toml"), before


@pytest.mark.long
@pytest.mark.parametrize(("step", "done"), [*((step, True) for step in STEPS[1:]), ("append", False)])
def test_a_job_killed_at_any_step__ends_with_the_same_bits(uninterrupted, tmp_path, step, done):
    expected, before = uninterrupted
    job = shutil.copytree(before, tmp_path / "place") / "job.toml"
    run = job.parent / "job/cycles/0001/run/run.json"
    assert run.exists()
    write_day(job.parent, 2, documents=20)

    def sink(event):
        if event["event"] == "step" and (event["step"], event["done"]) == (step, done):
            raise Killed
        if step == "fit" and event["event"] == "iteration" and event["iteration"] == 2:
            raise KeyboardInterrupt

    with pytest.raises((Killed, KeyboardInterrupt)):
        batch(job, sinks=[sink])
    outcome = batch(job)
    assert (outcome.outcome, outcome.version) == ("published", 2)
    record, arrays, proportions = published(job)
    assert {**record, "plan": ""} == {**expected[0], "plan": ""}
    assert (arrays, proportions) == expected[1:]
    assert batch(job).outcome == "nothing-new"


@pytest.mark.parametrize("done", [False, True], ids=["begun", "done"])
def test_an_ingest_that_is_killed__adds_its_documents_once(job, done):
    def sink(event):
        if event["event"] == "step" and (event["step"], event["done"]) == ("ingest", done):
            raise Killed

    with pytest.raises(Killed):
        batch(job, sinks=[sink])
    assert batch(job).documents == 40


def test_documents_that_arrive_while_a_version_is_unfinished__belong_to_the_next_one(job):
    def sink(event):
        if event["event"] == "step" and event["step"] == "evaluate":
            raise Killed

    with pytest.raises(Killed):
        batch(job, sinks=[sink])
    write_day(job.parent, 2, documents=20)
    assert batch(job).version == 2
    assert [version.documents for version, _ in versions(job)] == [40, 60]


def test_a_worse_model__is_not_published_and_raises_the_alarm(published_job, capsys):
    job = published_job
    alarm_file = job.parent / "told.json"
    script = f"import sys, pathlib; pathlib.Path({str(alarm_file)!r}).write_text(sys.stdin.read())"
    text = JOB + f"[alarm]\ncommand = {json.dumps([sys.executable, '-c', script])}\nworse_by = 0.02\n"
    job.write_text(text.replace("beta = 3.0", "beta = 20000.0").replace('"lda"', '"lda"\nwarm = false'))
    assert main(["batch", str(job), "--quiet", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["outcome"], found["version"]) == ("alarm", 1)
    assert found["score"] < found["previous_score"] - 0.02
    alarm = json.loads(alarm_file.read_text())
    assert (alarm["outcome"], alarm["job"]) == ("alarm", str(job))
    assert [version.number for version, _ in versions(job)] == [1]
    alarm_file.unlink()
    assert main(["batch", str(job), "--quiet"]) == 3  # the alarm remains, and nothing is repeated
    assert "ALARM" in capsys.readouterr().out
    assert not alarm_file.exists()
    assert batch(job, accept=True).version == 2
    assert main(["versions", str(job)]) == 0
    assert "* 2" in capsys.readouterr().out


def test_a_job_whose_intermediate_files_were_removed__continues(published_job):
    job, cycles = published_job, published_job.parent / "job/cycles"
    shutil.rmtree(cycles)
    outcome = batch(job)
    assert (outcome.outcome, outcome.version, outcome.iterations) == ("nothing-new", 1, versions(job)[0][0].iterations)

    def sink(event):
        if event["event"] == "iteration":
            raise Killed

    write_day(job.parent, 2, documents=20)
    with pytest.raises(Killed):
        batch(job, sinks=[sink])
    shutil.rmtree(cycles)
    outcome = batch(job)
    assert (outcome.outcome, outcome.version, outcome.documents) == ("published", 2, 60)


def test_a_job_without_a_current_version__says_so_until_rollback_chooses_one(published_job):
    job, current = published_job, published_job.parent / "job/published/current.json"
    current.write_text("{")
    with pytest.raises(DamagedError, match=r"current\.json: .*`rollback` of the job with `to` writes the file anew"):
        batch(job)
    current.unlink()
    assert "no version is current until `rollback` chooses one" in batch(job).line()
    with pytest.raises(AbsentError, match=r"current\.json: the file is missing; name a version \(`to`\)"):
        rollback(job)
    write_day(job.parent, 2, documents=10)
    assert any("scores are not compared" in warning for warning in batch(job).warnings)
    current.write_text("{")
    assert rollback(job, to=1) == 1
    assert [number.number for number, is_current in versions(job) if is_current] == [1]


def test_a_job_whose_versions_were_removed__publishes_again(published_job):
    job, place = published_job, published_job.parent / "job/published"
    write_day(job.parent, 2, documents=10)
    batch(job, accept=True)
    shutil.rmtree(place / "0002")
    assert "no version is current until `rollback` chooses one" in batch(job).line()
    write_day(job.parent, 3, documents=10)
    outcome = batch(job)
    assert (outcome.outcome, outcome.version, outcome.previous_score) == ("published", 2, None)
    assert any("its version is missing, so scores are not compared" in warning for warning in outcome.warnings)
    shutil.rmtree(place)
    assert (batch(job).version, batch(job).outcome) == (1, "nothing-new")


def test_rollback__makes_an_older_version_the_current_one(job, capsys):
    with pytest.raises(AbsentError, match="no version has been published"):
        rollback(job)
    batch(job)
    with pytest.raises(AbsentError, match="no version before 1"):
        rollback(job)
    write_day(job.parent, 2, documents=10)
    batch(job)
    assert main(["rollback", str(job)]) == 0
    assert "version 1 is current" in capsys.readouterr().out
    assert (job.parent / "job/published/current").resolve().name == "0001"
    assert batch(job).outcome == "nothing-new"
    with pytest.raises(AbsentError, match=r"no version 7 \(known: 1, 2\)"):
        rollback(job, to=7)
    write_day(job.parent, 3, documents=10)
    third = batch(job)  # its run is missing, so the fit starts from the published model itself
    assert (third.version, versions(job)[-1][0].warm, versions(job)[-1][0].previous["version"]) == (3, 1, 1)
    assert rollback(job, to=2) == 2


def test_old_versions__are_removed_except_the_current_one(tmp_path):
    place = Versions(Folder(str(tmp_path / "published")))
    record = {"plan": "", "created": "", "family": "lda", "corpus": "", "documents": 1, "tokens": 1, "words": 1}
    record.update({"iterations": 1, "score": None, "scored": 0, "definition": ""})
    from collapsium.storage.io.records import dump

    for number in range(1, 6):
        whole = {"format": "collapsium-version", "version": 2, "number": number, **record}
        with place.made(number) as folder:
            folder.write("version.json", dump(whole))
    assert place.current() is None
    place.point(2)
    assert place.keep(2) == [1, 3]
    assert (place.numbers(), place.current()) == ([2, 4, 5], 2)
    (tmp_path / "published/current.json").write_text("{}")
    with pytest.raises(DamagedError):
        place.current()


def test_a_second_concurrent_job__is_refused_with_a_separate_exit_code(job, capsys):
    folder = Folder(str(job.parent / "job"))
    folder.make()
    with RunLock(folder / "lock"):
        with pytest.raises(LockedError):
            batch(job)
        assert main(["batch", str(job), "--json", "--quiet"]) == 4
    assert json.loads(capsys.readouterr().out)["outcome"] == "locked"


def test_changed_and_missing_files__are_reported(job):
    batch(job)
    write_day(job.parent, 2, documents=10)
    batch(job)
    write_day(job.parent, 1, documents=41)
    (job.parent / "day-2.jsonl").unlink()
    found = batch(job)
    assert found.outcome == "nothing-new"
    assert [text.split("/")[-1].split(" ")[:3] for text in found.warnings] == [["day-1.jsonl:", "has", "changed"]]
    assert len(found.notices) == 1
    assert "day-2.jsonl: no longer exists" in found.notices[0]
    (job.parent / "day-1.jsonl").touch()
    again = batch(job)
    assert (again.documents, again.notices, again.warnings) == (50, (), ())  # each was reported once
    write_day(job.parent, 2, documents=10)
    assert batch(job).notices == ()
    (job.parent / "day-2.jsonl").unlink()
    write_day(job.parent, 1, documents=12)
    last = batch(job)
    assert (len(last.notices), len(last.warnings)) == (1, 1)  # both have changed again


def test_unchanged_sources__are_not_read_again(tmp_path):
    write_day(tmp_path, 1, documents=2)
    (tmp_path / "more").mkdir()
    write_day(tmp_path / "more", 2, documents=2)
    asked = [str(tmp_path / "day-*.jsonl"), str(tmp_path / "more")]
    found = find_sources(asked, {})
    assert [Path(path).name for path in found] == ["day-1.jsonl", "day-2.jsonl"]
    marked = {path: {**record, "sha256": "as it was"} for path, record in found.items()}
    assert find_sources(asked, marked) == marked
    with pytest.raises(AbsentError, match="no such file or folder"):
        find_sources([str(tmp_path / "nothing")], {})


def test_a_damaged_journal__is_named(published_job):
    job = published_job
    folder = Folder(str(job.parent / "job"))
    journal = Journal.read(folder)
    assert journal.outcome == "published"
    (job.parent / "job/state.json").write_text("{")
    with pytest.raises(DamagedError, match=r"state\.json"):
        batch(job)


def test_a_grown_vocabulary__is_compared_by_the_common_words(job, monkeypatch):
    job.write_text(JOB.replace("shard_tokens", "grow = true\nshard_tokens"))
    batch(job)
    write_day(job.parent, 2, documents=20, words=[*WORDS, "harbours", "ovens", "levies"], noise=0.3)
    found = batch(job)
    assert found.outcome == "published"
    place = job.parent / "job"
    assert Corpus(place / "corpus").manifest.vocabulary.words == len(WORDS) + 3
    train, heldout = (place / f"cycles/0002/{name}" for name in ("train", "heldout"))
    every = complete(place / "cycles/0002/run", train, heldout)
    among = complete(place / "cycles/0002/run", train, heldout, words=len(WORDS))
    assert among.score == pytest.approx(found.score)
    assert among.tokens == found.scored < every.tokens
    assert "words that the earlier model knows" in among.definition
    assert among.score > every.score
    assert every.score == pytest.approx(evaluate(place / "cycles/0002/run", heldout=heldout).score)


def test_scores_of_the_first_words__use_normalised_probabilities(small):
    """Given the first words, each document's probabilities over them sum to one."""
    from collapsium.pipeline import fit

    train = small[0]
    place = Path(train).parent / "completed"
    split(train, f"{place}-train", f"{place}-heldout", fraction=0.3)
    fit(f"{place}-train", place, family="lda", topics=3, iterations=3)
    words = 5
    chances = complete(place, f"{place}-train", f"{place}-heldout", words=words)
    assert np.isfinite(chances.score)
    infer(place, train, f"{place}.parquet")
    everything = complete(place, f"{place}-train", f"{place}-heldout")
    assert everything.tokens > chances.tokens > 0
    assert chances.score > everything.score


def test_help__names_all_keys_and_codes(capsys):
    with pytest.raises(SystemExit):
        main(["batch", "--help"])
    text = capsys.readouterr().out
    for part in ("worse_by (0.01)", "another process is working on the job", "[cluster]", "exit codes"):
        assert part in text


def test_folders_of_texts__keep_their_names_and_omit_hidden_files(job):
    texts = job.parent / "texts"
    for name in ("a/1.txt", "b/1.txt", "b/.2.txt.swp", ".DS_Store"):
        (texts / name).parent.mkdir(parents=True, exist_ok=True)
        (texts / name).write_text("sailor baker taxing " * 30)
    job.write_text(JOB.replace("day-*.jsonl", "texts").replace("iterations = 30", "iterations = 2"))
    assert batch(job).documents == 2
    (texts / "c").mkdir()
    (texts / "c/1.txt").write_text("sailor " * 40)
    assert batch(job).documents == 3
    files = sorted((job.parent / "job/corpus/documents").iterdir())
    assert [name for file in files for name in pq.read_table(file)["id"].to_pylist()] == [
        "a/1.txt",
        "b/1.txt",
        "c/1.txt",
    ]


def test_an_empty_file_or_a_replaced_one__is_read_once_it_has_contents(job):
    job.write_text(JOB.replace("iterations = 30", "iterations = 2"))
    folder = job.parent
    content = (folder / "day-1.jsonl").read_bytes()
    (folder / "day-1.jsonl").write_bytes(b"")
    with pytest.raises(InputError, match="the file is empty"):
        batch(job)
    (folder / "day-1.jsonl").write_bytes(content)
    (folder / "day-2.jsonl").write_bytes(b"")
    assert batch(job).documents == 40
    write_day(folder, 2, documents=10)
    assert batch(job).documents == 50
    (folder / "day-2.jsonl").rename(folder / "day-3.jsonl")
    write_day(folder, 4, documents=5)
    (folder / "day-4.jsonl").rename(folder / "day-2.jsonl")
    found = batch(job)
    assert (found.documents, found.warnings) == (55, ())


def test_documents_that_arrive_twice__are_refused_with_the_key_that_leaves_them_out(published_job, capsys):
    day = published_job.parent / "day-1.jsonl"
    (published_job.parent / "day-2.jsonl").write_text(day.read_text() + '{"id": "new", "text": "sailor ship"}\n')
    assert main(["batch", str(published_job)]) == 1
    assert "the same ids already, such as '1-0'" in (line := capsys.readouterr().err.splitlines()[-1])
    assert line.endswith("; 'skip_existing' leaves them out")
    published_job.write_text(JOB.replace("shard_tokens", "skip_existing = true\nshard_tokens"))
    assert batch(published_job).new_documents == 1


def test_a_job_with_too_few_words_to_hold_out__continues_once_there_are_more(job):
    job.write_text(JOB.replace("iterations = 30", "iterations = 2"))
    (job.parent / "day-1.jsonl").write_text('{"id": "x", "text": "sailor"}\n')
    with pytest.raises(InputError, match="empty"):
        batch(job)
    job.write_text(job.read_text().replace("shard_tokens = 600", "grow = true"))
    write_day(job.parent, 2)
    assert batch(job).documents == 41


def test_names_and_ids__carry_over_to_the_next_version(published_job):
    job = published_job
    current = job.parent / "job/published/current"
    named = name_topics(current, lambda words, documents: f"about {words[0]}")
    assert len(named) == 3
    write_day(job.parent, 2, documents=20)
    batch(job)
    assert {topic.id: topic.title for topic in topics(current)} == named
    record = versions(job)[-1][0]
    assert (record.born, record.gone) == ((), ())


COURT = ["judge", "court", "lawyer", "jury", "verdict", "appeal", "witness", "trial", "statute", "clerk"]


def test_a_new_topic__gets_an_unused_id_and_the_others_keep_theirs(job):
    job.write_text(job.read_text().replace("shard_tokens = 600", "shard_tokens = 6000\ngrow = true"))
    batch(job)
    current = job.parent / "job/published/current"
    before = name_topics(current, lambda words, documents: f"about {words[0]}")
    generator = np.random.default_rng(2)
    lines = [{"id": f"2-{n}", "text": " ".join(generator.choice(COURT, size=30))} for n in range(400)]
    (job.parent / "day-2.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    outcome = batch(job, accept=True)
    record, after = versions(job)[-1][0], {topic.id: topic.title for topic in topics(current)}
    assert record.born == (3,)
    assert len(record.gone) == 1
    assert any(f"topics since version 1: new 3; gone {record.gone[0]}" in line for line in outcome.notices)
    assert after == {topic: title for topic, title in before.items() if topic != record.gone[0]} | {3: None}
    assert set(topics(current, 1)[0].names) <= set(COURT)
    assert {n for row in pq.read_table(current / "proportions.parquet")["topics"].to_pylist() for n in row} == set(
        after
    )
    assert main(["verify", str(current)]) == 0
    write_day(job.parent, 3, documents=5)
    batch(job, accept=True)
    assert {topic.id: topic.title for topic in topics(current)} == after
    assert versions(job)[-1][0].born == versions(job)[-1][0].gone == ()


def test_a_new_topic_with_a_former_id__replaces_the_former_topic():
    assert Succession((1, 4), (1, 2)).text() == "new 4; gone 2; replaced 1"
    assert Succession((4,), ()).text() == "new 4"


def test_topics_without_a_match__are_reported_as_new_and_gone(published_job):
    job = published_job
    text = job.read_text()
    write_day(job.parent, 2, documents=20)
    job.write_text(text.replace("topics = 3", "topics = 4"))
    outcome = batch(job, accept=True)
    record = versions(job)[-1][0]
    assert len(record.born) - len(record.gone) == len(topics(job.parent / "job/published/current")) - 3
    assert any("topics since version 1" in line for line in outcome.notices) == bool(record.born or record.gone)
