"""Fits that end, or could end, because they hardly change any more."""

import numpy as np
import pytest

from collapsium.pipeline import fit, resume
from collapsium.pipeline.engine.loop import CHANGE, SCORE, Windows
from collapsium.pipeline.engine.run import FALLEN_SCORES, fallen_score
from collapsium.pipeline.engine.setup.limits import ITERATIONS
from collapsium.storage.errors import OptionError
from collapsium.storage.runs.run import Run
from collapsium.workers.families.cvb import schedule
from tests.conftest import simulated_rows, write_corpus
from tests.fits import resumed


def windows_of(values, name=SCORE):
    windows, flat = Windows(), []
    for iteration, value in enumerate(values, start=1):
        windows = Windows(windows.record())  # as after a resume
        windows.add(iteration, {name: value})
        windows.add(iteration, {name: value})
        if windows.flat(name, iteration):
            flat.append(iteration)
    return flat


def test_windows__are_flat_if_their_means_agree():
    t = np.arange(1, 401)
    assert windows_of(np.full(100, -7.0)) == [60, 80, 100]
    assert windows_of(-7.0 + 0.001 * t) == []
    noise = np.random.default_rng(0).normal(0.0, 0.05, 400)
    assert windows_of(-7.0 + 0.01 * t + noise) == []
    assert windows_of(-7.0 - 2.0 * np.exp(-t / 20.0))[0] > 160
    assert windows_of(0.1 / t, CHANGE) == []
    assert windows_of([None] * 200) == []


def one_label(tmp_path, several=False):
    rows = simulated_rows(4, documents=30)
    labels = [[("kind", f"k{number % 3}")] for number in range(30)]
    if several:
        labels[3].append(("kind", "k1"))
    return write_corpus(tmp_path / "labelled", rows, 30, labels=labels)


def test_a_single_label_per_document__leaves_nothing_to_sample(tmp_path):
    corpus = one_label(tmp_path)
    fit(corpus, tmp_path / "run", family="labeled-lda", scheduler="serial")
    end = Run(tmp_path / "run").events()[-1]
    assert (end["event"], end["reason"], end["iteration"]) == ("end", "converged", 1)
    assert 0.0 < end["saving_seconds"] < 60.0
    assert resume(tmp_path / "run", scheduler="serial").record.iterations == 1
    model = fit(corpus, tmp_path / "more", family="partially-labeled-lda", iterations=3, scheduler="serial")
    assert model.record.iterations == 3


def test_several_labels_per_document__are_sampled_until_the_last_iteration(tmp_path):
    corpus = one_label(tmp_path, several=True)
    model = fit(corpus, tmp_path / "run", family="labeled-lda", iterations=4, scheduler="serial")
    assert model.record.iterations == 4


def notices_of(run):
    return [event for event in Run(run).events() if event["event"] == "notice"]


def test_a_flat_score__is_reported_once_even_after_a_resume(small, tmp_path):
    options = {"family": "lda", "topics": 2, "iterations": 140, "heldout": small[1], "scheduler": "serial"}
    fit(small[0], tmp_path / "whole", **options)
    (notice,) = notices_of(tmp_path / "whole")
    assert "tolerance auto" in notice["text"]

    def stop(event):
        if event["event"] == "iteration" and event["iteration"] == notice["iteration"] + 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(small[0], tmp_path / "run", sinks=[stop], **options)
    resumed(tmp_path / "run", scheduler="serial")
    assert [event["text"] for event in notices_of(tmp_path / "run")] == [notice["text"]]
    assert notices_of(tmp_path / "run")[0]["iteration"] == notice["iteration"]


@pytest.mark.parametrize("more", [{}, {"stop_on": "score"}])
def test_a_tolerance_by_rule__ends_at_the_same_iteration_on_all_executors_and_after_a_resume(small, tmp_path, more):
    options = {"family": "lda", "topics": 2, "iterations": 400, "heldout": small[1], "tolerance": "auto", **more}
    whole = fit(small[0], tmp_path / "whole", scheduler="serial", **options)
    assert 60 <= whole.record.iterations < 400
    assert Run(tmp_path / "whole").events()[-1]["reason"] == "tolerance"
    assert notices_of(tmp_path / "whole") == []

    def stop(event):
        if event["event"] == "iteration" and event["iteration"] == 37:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(small[0], tmp_path / "run", scheduler="threads", workers=2, sinks=[stop], **options)
    again = resumed(tmp_path / "run", scheduler="threads", workers=2)
    assert again.record.iterations == whole.record.iterations
    np.testing.assert_array_equal(again.rows(0).word_topic, whole.rows(0).word_topic)


@pytest.mark.parametrize(("options", "explained"), [({}, True), ({"inverse_temperature": 1.0}, False)])
def test_a_tolerance_that_cannot_end_a_fit_yet__is_explained(small, tmp_path, monkeypatch, options, explained):
    monkeypatch.setattr(schedule, "MIN_SEARCH_TOKENS", 1.0)
    events = []
    fit(small[0], tmp_path / "run", family="lda", topics=3, tolerance=0.9, **options, sinks=[events.append])
    notices = [event["text"] for event in events if event["event"] == "notice"]
    assert any("does not end this fit" in text for text in notices) is explained
    assert (events[-1]["iteration"] >= schedule.SEARCH_END * ITERATIONS) is explained


def test_unknown_rules_for_a_tolerance__are_refused(small, tmp_path):
    with pytest.raises(OptionError, match="or auto"):
        fit(small[0], tmp_path / "run", family="lda", topics=2, tolerance="often")


def scored(scores, **fields):
    return [
        {"event": "iteration", "iteration": number, "score": score, **fields} for number, score in enumerate(scores, 1)
    ]


def test_fallen_score__suggests_the_best_iteration_if_scores_have_decreased_since():
    rising = [-8.0 + 0.1 * number for number in range(10)]
    falling = [rising[-1] - 0.0005 * number for number in range(1, 8)]
    text = fallen_score([{"event": "start"}, *scored(rising + falling)])
    assert "since iteration 10, from -7.1000 to -7.1035" in text
    assert "iterations 10 ends" in text


@pytest.mark.parametrize(
    "scores", [[], [-8.0], [-8.0, -7.0] + [-7.0009] * 9, [-8.0, -7.0] + [-7.1] * (FALLEN_SCORES - 1), [-7.0] * 20]
)
def test_fallen_score__is_silent_if_scores_vary_or_have_only_just_decreased(scores):
    assert fallen_score(scored(scores)) == ""


def test_fallen_score__ignores_iterations_over_a_sample():
    assert fallen_score([*scored([-5.0], documents_share=0.25), *scored([-8.0] * 9)]) == ""
