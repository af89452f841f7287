"""Names of topics: their sources, where they are shown, and what they survive."""

import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import Model, export, fit, name_topics, plot, report, resume, topics, verify
from collapsium.pipeline.engine.run import ActiveRun
from collapsium.storage.errors import AbsentError, DamagedError, LockedError, OptionError, TakenOverError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump
from collapsium.storage.io.run_lock import RunLock, file_of
from collapsium.storage.runs.run import Run
from collapsium.storage.runs.topic_names import MAX_LETTERS, RECORD, TopicName, clean_name, read_names, write_names
from tests.pipeline.cli.commands import command, one_line


@pytest.fixture(scope="module")
def fitted(small, tmp_path_factory):
    place = tmp_path_factory.mktemp("naming") / "run"
    fit(small[0], place, family="lda", topics=3, iterations=6, scheduler="serial")
    return place


@pytest.fixture
def run(fitted, tmp_path):
    shutil.copytree(fitted, tmp_path / "run")
    return tmp_path / "run"


def names_of(run):
    return {topic.id: topic.title for topic in topics(run)}


def first_word(words, documents):
    assert documents
    assert all(isinstance(text, str) for text in documents)
    return f"about {words[0]}"


def test_a_function__names_all_topics_and_the_names_are_shown_everywhere(run, tmp_path, capsys):
    named = name_topics(run, first_word)
    assert named == {topic.id: f"about {topic.words[0][0]}" for topic in topics(run)}
    assert names_of(run) == named
    assert Model(run).topics()["title"].to_dict() == named
    code, out, _ = command(capsys, "topics", run)
    assert code == 0
    assert all(f"{name}: " in out for name in named.values())
    report(run, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(name in text for name in named.values())
    export(run, tmp_path / "tables", to="csv")
    assert all(name in (tmp_path / "tables/topics.csv").read_text() for name in named.values())
    plot(run, tmp_path / "map.svg", what=["map"])
    assert verify(run).broken == []


def test_a_namer_that_fails__leaves_the_topics_unnamed_with_one_warning(run, tmp_path, monkeypatch, capsys):
    second = topics(run, 20)[1]
    lines = ["def name(words, documents):", f"    assert words != {second.names!r}, 'no answer'", "    return 'fine'"]
    (tmp_path / "own_namer.py").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    code, _, err = command(capsys, "topics", run, "--name", "own_namer:name")
    assert code == 0
    assert err.count("\n") == 1
    assert f"topic {second.id} was not named and keeps its words" in err
    assert "no answer" in err
    assert names_of(run)[second.id] is None
    assert [title for title in names_of(run).values() if title] == ["fine", "fine"]


@pytest.mark.parametrize("answer", [None, "", " \x00\n\t ", 7, RuntimeError("out of\nreach")])
def test_answers_without_a_name__leave_the_topics_unnamed(run, answer):
    def namer(words, documents):
        if isinstance(answer, Exception):
            raise answer
        return answer

    lines = []
    assert name_topics(run, namer, notice=lines.append) == {}
    assert len(lines) == 3
    assert all("\n" not in line for line in lines)
    assert not (run / "model" / RECORD).exists()


def test_names__are_treated_as_untrusted_text(run, tmp_path):
    name_topics(run, lambda words, documents: "<script>alert(1)</script>\x1b[31m\u202e" + "x" * 500)
    title = topics(run)[0].title
    assert len(title) <= MAX_LETTERS
    assert title.isprintable()
    report(run, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_names_by_hand_and_by_seeds__are_not_replaced_by_a_namer(run):
    model = Model(run)
    write_names(
        model.folder, model.record, [TopicName(id=0, name="mine", by="hand"), TopicName(id=1, name="s", by="seed")]
    )
    named = name_topics(run, first_word)
    assert (named[0], named[1]) == ("mine", "s")
    assert named[2].startswith("about ")


def test_names__persist_in_a_resumed_run_and_in_a_warm_started_fit(run, small, tmp_path):
    named = name_topics(run, first_word)
    resume(run, iterations=8, scheduler="serial")
    assert names_of(run) == named
    fit(small[0], tmp_path / "warm", family="lda", topics=3, iterations=2, warm=run, scheduler="serial")
    assert names_of(tmp_path / "warm") == named
    fit(small[0], tmp_path / "other", family="lda", topics=3, iterations=2, seed=5, scheduler="serial")
    assert set(names_of(tmp_path / "other").values()) == {None}


@pytest.mark.parametrize("namer", ["", "nothing", "command:ls", "absent.module:name", "json:absent", "json:__name__"])
def test_namers_that_cannot_be_loaded__are_refused_in_one_line(run, namer, capsys):
    with pytest.raises(OptionError):
        name_topics(run, namer)
    code, _, err = command(capsys, "topics", run, "--name", namer)
    assert code == 2
    one_line(err)


def test_texts_without_a_namer__are_refused(run, capsys):
    code, _, err = command(capsys, "topics", run, "--texts", "x.jsonl")
    assert code == 2
    assert "--texts requires --name" in one_line(err)


def test_names__survive_a_kill_after_the_model_was_replaced(run, monkeypatch):
    named = name_topics(run, first_word)

    def killed(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ActiveRun, "_inherit_names", killed)
        with pytest.raises(KeyboardInterrupt):
            resume(run, iterations=8, scheduler="serial")
    assert names_of(run) == named
    resume(run, scheduler="serial")
    assert names_of(run) == named


def test_naming__excludes_other_namers_and_fits_of_the_run(run):
    def competing(words, documents):
        with pytest.raises(LockedError):
            resume(run, iterations=8, scheduler="serial")
        with pytest.raises(LockedError):
            name_topics(run, first_word)
        return first_word(words, documents)

    assert all(name.startswith("about ") for name in name_topics(run, competing).values())
    assert not (run / "lock").exists()
    with Run(run).held(), pytest.raises(LockedError):
        name_topics(run, first_word)


def test_naming_of_a_model_outside_a_run__excludes_other_namers(run, tmp_path):
    model = tmp_path / "alone"
    shutil.copytree(run / "model", model)
    (model / ".names.json.0123.part").write_text("{")

    def competing(words, documents):
        with pytest.raises(LockedError):
            name_topics(model, first_word)
        return first_word(words, documents)

    assert all(name.startswith("about ") for name in name_topics(model, competing).values())
    assert not [path for path in model.iterdir() if path.name == "lock" or path.name.startswith(".")]
    assert verify(model).broken == []


def test_a_namer_whose_lock_was_taken_over__writes_nothing(run):
    before = name_topics(run, first_word)

    def asleep(words, documents):
        successor = RunLock(Folder(run / "lock"))
        successor.generation = 99
        Folder(run / "lock").write(file_of(99), dump(successor._record()))
        return "later"

    with pytest.raises(TakenOverError):
        name_topics(run, asleep)
    shutil.rmtree(run / "lock")
    assert names_of(run) == before


def test_names_of_another_model__are_damaged(run, small, tmp_path):
    name_topics(run, first_word)
    fit(small[0], tmp_path / "other", family="lda", topics=3, iterations=2, seed=5, scheduler="serial")
    shutil.copy(run / "model" / RECORD, tmp_path / "other/model" / RECORD)
    with pytest.raises(DamagedError, match="another model"):
        topics(tmp_path / "other")
    assert any(RECORD in line for line in verify(tmp_path / "other").broken)


def test_unfinished_runs__cannot_store_names(run):
    shutil.rmtree(run / "model")
    with pytest.raises(AbsentError, match="has not finished"):
        name_topics(run, first_word)


@given(st.text(max_size=300))
def test_clean_names__are_one_printable_line(text):
    name = clean_name(text)
    assert name.isprintable()
    assert len(name) <= MAX_LETTERS
    assert clean_name(name) == name


@pytest.mark.parametrize("name", ["", " x", "a\nb", "x" * 101, "\x1b[31m"])
def test_stored_names_that_are_not_clean__are_damaged(run, name):
    model = Model(run)
    write_names(model.folder, model.record, [TopicName(id=0, name="mine", by="hand")])
    written = json.loads(model.folder.read(RECORD))
    written["names"][0]["name"] = name
    del written["sha256"]
    model.folder.write(RECORD, dump(written))
    with pytest.raises(DamagedError):
        read_names(model.folder, model.record)
