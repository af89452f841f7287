"""Summaries of documents: when they cannot be computed, and what is refused when they are read."""

import json
import shutil

import numpy as np
import pytest

from collapsium.pipeline import Corpus, Model, fit, resume, verify
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.engine import summary
from collapsium.pipeline.engine.summary import summary_of
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.models.registry import load_family
from collapsium.storage.errors import AbsentError, DamagedError, MismatchError, TakenOverError
from collapsium.storage.io.records import dump
from collapsium.storage.io.run_lock import RunLock, file_of
from collapsium.storage.runs.members import mean_folder
from collapsium.storage.runs.run import Run
from collapsium.storage.runs.summary import RECORD, read_summary


@pytest.fixture(scope="module")
def run(small, tmp_path_factory):
    place = tmp_path_factory.mktemp("summary") / "run"
    fit(small[0], place, family="lda", topics=3, iterations=2, scheduler="serial")
    return place


def test_a_summary__computed_again_from_the_corpus_is_the_same(small, run):
    model = Model(run)
    executor = open_executor("threads", 2)
    again = summary_of(model, Corpus(small[0]), executor)
    executor.close()
    assert again == read_summary(model.folder, model.record)
    with pytest.raises(MismatchError, match="not the corpus that the model was fitted to"):
        summary_of(model, Corpus(small[1]), open_executor("serial"))


def test_a_summary__does_not_depend_on_the_number_of_words_per_chunk(small, run, monkeypatch):
    monkeypatch.setattr(summary, "WORDS_TOGETHER", 3)
    model = Model(run)
    again = summary_of(model, Corpus(small[0]), open_executor("serial"))
    assert any(example.words for topic in again.topics for example in topic.examples)
    assert again == read_summary(model.folder, model.record)


def test_a_summary_of_another_model_or_a_damaged_one__is_refused(run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "run")
    path = tmp_path / "run/model" / RECORD
    record = json.loads(path.read_text())
    del record["sha256"]
    model = Model(tmp_path / "run")
    for change in ({"model": "0" * 64}, {"examples": []}, {"documents": -1}):
        path.write_bytes(dump({**record, **change}))
        with pytest.raises(DamagedError):
            read_summary(model.folder, model.record)
    assert main(["verify", str(tmp_path / "run")]) == 1
    assert RECORD in capsys.readouterr().err
    path.unlink()
    assert read_summary(model.folder, model.record) is None
    assert main(["verify", str(tmp_path / "run")]) == 1
    assert f"{RECORD}: the file is missing" in capsys.readouterr().err


def test_a_fit_whose_summary_cannot_be_computed__keeps_its_model(small, tmp_path, monkeypatch):
    def gone(*args):
        raise AbsentError("the corpus is gone")

    monkeypatch.setattr("collapsium.pipeline.engine.save.summary_of", gone)
    events = []
    model = fit(
        small[0], tmp_path / "run", family="lda", topics=3, iterations=1, scheduler="serial", sinks=[events.append]
    )
    assert read_summary(model.folder, model.record) is None
    assert any("no summary of its documents: the corpus is gone" in event.get("text", "") for event in events)
    assert events[-1]["event"] == "end"
    assert not verify(tmp_path / "run").broken


def test_models_matched_again_whose_lock_is_lost_during_the_last_write__are_not_finished(small, tmp_path, monkeypatch):
    run = f"memory://{tmp_path}/run"
    fit(small[0], run, family="lda", topics=3, iterations=2, seed=4, restarts=2, scheduler="serial")
    mean_folder(Run(run)).remove()

    def summary_after_takeover(*args):
        made = summary_of(*args)
        successor = RunLock(Run(run).lock._folder)
        successor.generation = 9
        successor._folder.write(file_of(9), dump(successor._record()))
        return made

    with monkeypatch.context() as patched, pytest.raises(TakenOverError):
        patched.setattr("collapsium.pipeline.engine.save.summary_of", summary_after_takeover)
        resume(run)
    Run(run).lock._folder.remove()
    resume(run)
    mean = Model(mean_folder(Run(run)).url)
    assert read_summary(mean.folder, mean.record) is not None


@pytest.mark.parametrize("share", [np.nan, np.inf, -1.0])
def test_invalid_proportions__are_refused_by_name(small, run, monkeypatch, share):
    monkeypatch.setattr(
        load_family("lda"), "infer", lambda self, local, global_state: {"document_topic": np.full((1, 3), share)}
    )
    with pytest.raises(DamagedError, match="documents/00000: expected arrays that give proportions from 0 to 1"):
        summary_of(Model(run), Corpus(small[0]), open_executor("serial"))
