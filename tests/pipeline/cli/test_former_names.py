"""Options, commands and functions by their names in 0.1: accepted with a notice from users, and silently in records."""

import pytest

from collapsium import pipeline
from collapsium.pipeline import estimate, fit, resume
from collapsium.pipeline.engine.setup.limits import read_config
from collapsium.pipeline.engine.setup.request import SHAPING, fingerprint
from collapsium.pipeline.estimators import CollapsedLDA
from collapsium.pipeline.models.registry import make_options, recorded_options
from collapsium.pipeline.workflows.batch.job_file import read_job
from collapsium.pipeline.workflows.compare_options import CompareOptions
from collapsium.storage.building.ingest_record import History, read_history
from collapsium.storage.errors import OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.runs.run import Run
from collapsium.workers.options import RenamedWarning
from tests.pipeline.cli.commands import command, one_line

LDA = {"family": "lda", "topics": 2}
FIT = ["--family", "lda", "--topics", 2, "--iterations", 1, "--scheduler", "serial", "--quiet"]


def test_former_flags__are_accepted_with_one_notice_each(small, tmp_path, capsys):
    code, _, err = command(capsys, "fit", small[0], tmp_path / "run", *FIT, "--flatten", 0.9, "--start=clusters")
    assert (code, err.splitlines()) == (
        0,
        [
            "collapsium: --flatten is now called --inverse-temperature; the former name works until 0.3",
            "collapsium: --start is now called --init; the former name works until 0.3",
        ],
    )
    record = Run(tmp_path / "run").record()
    assert (record["options"]["inverse_temperature"], record["start"]) == (0.9, {"kind": "clusters"})


@pytest.mark.parametrize("former", [["--flatten", "0.8"], ["--flatten=0.8"], ["--set", "flatten=0.8"]], ids=" ".join)
def test_a_flag_by_both_names__is_refused_in_one_line(small, tmp_path, capsys, former):
    code, _, err = command(capsys, "fit", small[0], tmp_path / "run", *FIT, "--inverse-temperature", 0.9, *former)
    assert code == 2
    assert "--inverse-temperature" in one_line(err)
    assert "--flatten" in err
    assert not (tmp_path / "run").exists()


def test_a_former_command__runs_the_present_one(small, tmp_path, capsys):
    code, _, err = command(capsys, "flatten", small[0], tmp_path / "flat")
    assert code == 1
    notice, error = err.splitlines()
    assert notice.startswith("collapsium: `collapsium flatten` is now called `collapsium explode`; ")
    assert "its documents have no segments" in error


def test_former_keywords__are_accepted_with_a_warning(small):
    present = estimate(small[0], **LDA, inverse_temperature=0.9, init="documents")
    with pytest.warns(RenamedWarning) as caught:
        former = estimate(small[0], **LDA, flatten=0.9, start="documents")
    assert former.memory == present.memory
    assert {str(warning.message).split(" is now")[0] for warning in caught} == {"`flatten`", "`start`"}
    assert {warning.filename for warning in caught} == {__file__}
    with pytest.raises(OptionError, match="^init: was also given by its former name, `start`"):
        estimate(small[0], **LDA, start="documents", init="documents")


def test_a_former_function__calls_the_present_one():
    with pytest.warns(RenamedWarning, match="`flatten` is now called `explode`"):
        former = pipeline.flatten
    assert former is pipeline.explode


def test_former_parameters_of_estimators__are_accepted_with_a_warning():
    with pytest.warns(RenamedWarning, match="`flatten` is now called"):
        model = CollapsedLDA(flatten=0.9)
    with pytest.warns(RenamedWarning, match="`start` is now called"):
        model.set_params(start="documents")
    assert (model.inverse_temperature, model.init) == (0.9, "documents")


def test_former_names_in_a_comparison__match_its_record():
    present = CompareOptions(families=["hdp"], init_topics=(3,), settings={"hdp": {"split_merge_moves": False}})
    with pytest.warns(RenamedWarning, match="`moves` is now called"):
        former = CompareOptions(families=["hdp"], init_topics=(3,), settings={"hdp": {"moves": False}})
    assert former.record() == present.record()
    assert former.record()["settings"] == {"hdp": {"moves": False}}
    assert former.record()["start_topics"] == [3]


def test_runs_with_former_names__are_resumed_without_a_notice(small, tmp_path):
    options = {**LDA, "inverse_temperature": 0.9, "iterations": 2, "seed": 1, "scheduler": "serial"}
    whole = fit(small[0], tmp_path / "whole", **{**options, "iterations": 4})
    fit(small[0], tmp_path / "run", **options)
    run = Run(tmp_path / "run")
    record = run.record()
    record["options"]["flatten"] = record["options"].pop("inverse_temperature")
    run.rewrite(record)
    resumed = resume(tmp_path / "run", iterations=4, scheduler="serial")
    assert [topic.words for topic in pipeline.topics(resumed)] == [topic.words for topic in pipeline.topics(whole)]


def test_the_digest_of_a_run__is_the_same_with_both_names():
    """Checkpoints contain the digest of their run's record, so this is what lets runs of 0.1 continue."""
    options = make_options("ncrp", {"initial_tree": "gradual"}).model_dump(mode="json")
    former = dict(options)
    former["start"], former["grow"] = former.pop("initial_tree"), former.pop("new_paths")
    assert recorded_options("ncrp", former) == recorded_options("ncrp", options)
    record = {"limits": dict.fromkeys(SHAPING, 1), "corpus": {"digest": "0"}, "family": "ncrp", "seed": 0}
    assert fingerprint({**record, "options": options}) == fingerprint({**record, "options": former})
    assert fingerprint({**record, "options": options}) != fingerprint({**record, "options": {**former, "grow": 3}})


def test_records_of_corpora__have_the_names_of_0_1(tmp_path):
    history = History("jsonl", ReadOptions(min_characters=3))
    assert history.record()["reading"]["min_letters"] == 3
    folder = Folder(tmp_path)
    history.write(folder)
    assert read_history(folder).options.min_characters == 3


def test_files_of_options_and_jobs__may_have_former_names(tmp_path):
    (tmp_path / "fit.toml").write_text('family = "lda"\nstart-strength = 2.0\nflatten = 0.9\n')
    assert read_config(str(tmp_path / "fit.toml"), None) == {
        "family": "lda",
        "init_strength": 2.0,
        "inverse_temperature": 0.9,
    }
    tables = {
        "batch": 'folder = "job"',
        "ingest": 'sources = ["a.jsonl"]\nmin-letters = 3',
        "fit": 'family = "lda"\ntopics = 2\nstart = "documents"\nflatten = 0.9',
    }
    job = tmp_path / "job.toml"
    job.write_text("".join(f"[{name}]\n{text}\n" for name, text in tables.items()))
    found = read_job(job)
    assert (found.fit.init, found.config.inverse_temperature) == ("documents", 0.9)
    assert found.reading["min_characters"] == 3
    assert found.plan()["start"] == "documents"
    job.write_text(job.read_text() + 'init = "tree"\n')
    with pytest.raises(OptionError, match="expected 'start' or 'init', which are one option, found both"):
        read_job(job)
