"""Runs with split-merge moves: stopped and resumed, on all executors, with options that exclude moves, and by default."""

import math

import numpy as np
import pytest

from collapsium.pipeline import Corpus, Model, fit, resume, verify
from collapsium.pipeline.estimators import CollapsedHDP
from collapsium.storage.errors import OptionError
from collapsium.storage.runs.run import Run
from collapsium.workers.families.cvb import schedule
from tests.conftest import simulated_rows
from tests.fits import bits, problem_of, resumed, scores_of
from tests.workers.families.cvb.conftest import FIT, ITERATIONS, OPTIONS, iterations_of, shards_of

pytestmark = pytest.mark.usefixtures("short_rounds")


@pytest.mark.long
@pytest.mark.parametrize("where", [("threads", 1), ("threads", 3), ("processes", 2)], ids=str)
@pytest.mark.xdist_group("clusters")
def test_bits__do_not_depend_on_the_executor(simulated, run_with_moves, where, tmp_path, clusters):
    kind, workers = where
    scheduler = clusters(workers) if kind == "processes" else kind
    workers = workers if kind == "threads" else None
    model = fit(simulated[0], tmp_path / "run", heldout=simulated[1], scheduler=scheduler, workers=workers, **FIT)
    assert bits(model, shards_of(simulated[0])) == bits(Model(run_with_moves), shards_of(simulated[0]))
    assert iterations_of(tmp_path / "run") == iterations_of(run_with_moves)


@pytest.mark.long
def test_a_run_that_stops_in_any_step_of_a_round__is_resumed_to_the_same_bits_and_events(
    simulated, run_with_moves, steps, tmp_path
):
    expected = bits(Model(run_with_moves), shards_of(simulated[0]))
    for number in steps.values():
        out = stopped(simulated, tmp_path / str(number), number)
        assert Run(out).checkpoints.candidates()[0][0] == number
        assert verify(out).broken == []  # even while tokens are held out
        model = resumed(out, scheduler="serial")
        assert bits(model, shards_of(simulated[0])) == expected
        assert iterations_of(out) == iterations_of(run_with_moves)
        assert verify(out).broken == []


def stopped(simulated, out, number):
    """Return the folder of a run that was stopped after an iteration, which its checkpoint contains."""

    def sink(event):
        if event["event"] == "iteration" and event["iteration"] == number:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(simulated[0], out, heldout=simulated[1], sinks=[sink], scheduler="serial", **FIT)
    return out


def test_metrics__count_topics_and_moves(run_with_moves, simulated, tmp_path):
    iterations = iterations_of(run_with_moves)
    for before, after in zip(iterations, iterations[1:], strict=False):
        pending = after["topics"] + after["merges"] + after["deletes"] - after["splits"] - OPTIONS["topics"]
        assert pending >= 0  # halves of splits count as topics only once they are accepted
        assert after["splits"] >= before["splits"]
        assert after["merges"] >= before["merges"]
        assert after["deletes"] >= before["deletes"]
        assert after["topics_99"] <= max(after["topics"], before["topics"])
    assert pending == 0
    fit(simulated[0], tmp_path / "run", scheduler="serial", **{**FIT, "split_merge_moves": False})
    assert "merges" not in iterations_of(tmp_path / "run")[-1]
    assert "topics_99" in iterations_of(tmp_path / "run")[-1]


def test_a_run_under_its_tolerance__does_not_end_while_tokens_are_held_out(simulated, steps, tmp_path):
    """Nor does it end while moves are pending. Once it ends, every token has a topic."""
    options = {**FIT, "tolerance": 0.5, "scheduler": "serial"}
    for name, stop_on in (("counts", "counts"), ("score", "score")):
        model = fit(simulated[0], tmp_path / name, heldout=simulated[1], stop_on=stop_on, **options)
        assert steps["release"] < model.record.iterations < ITERATIONS
        # a model saved earlier would lack the held-out tenth of the tokens
        assert math.isclose(model.rows(0).word_topic.sum(), Corpus(simulated[0]).manifest.tokens, rel_tol=1e-5)
        assert scores_of(tmp_path / name)[-1] < 0.0
        assert verify(tmp_path / name).broken == []
    model = fit(simulated[0], tmp_path / "off", **{**options, "split_merge_moves": False})
    assert model.record.iterations < schedule.FIRST_ROUND


def test_fewer_iterations_than_planned__are_refused_on_resuming_and_leave_no_model(
    simulated, run_with_moves, steps, tmp_path
):
    within = steps["release"] - 2  # tokens are still held out
    out = stopped(simulated, tmp_path / "run", within)
    message = f"iterations: expected at least {ITERATIONS}, with which the run was planned, found {within + 1}"
    with pytest.raises(OptionError, match=message):
        resume(out, iterations=within + 1, scheduler="serial")
    assert not (out / "model").exists()
    model = resumed(out, iterations=ITERATIONS, scheduler="serial")
    assert bits(model, shards_of(simulated[0])) == bits(Model(run_with_moves), shards_of(simulated[0]))


def test_a_resumed_run_of_more_iterations__continues_with_all_tokens(simulated, run_with_moves, steps, tmp_path):
    """Rounds end as planned for the original number of iterations."""
    out = stopped(simulated, tmp_path / "run", steps["scores"])
    model = resumed(out, iterations=ITERATIONS + 20, scheduler="serial")
    assert iterations_of(out)[: len(iterations_of(run_with_moves))] == iterations_of(run_with_moves)
    assert model.record.iterations == ITERATIONS + 20
    assert verify(out).broken == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"responsibilities": "dense"}, "split_merge_moves: true requires active responsibilities"),
        ({"order": 2}, "split_merge_moves: true requires active responsibilities"),
        ({"schedule": "stochastic"}, "split_merge_moves: true requires active responsibilities, the batch schedule"),
        ({"learn": ("alpha", "gamma")}, "pi in `learn`"),
        (
            {"iterations": 20},
            "split_merge_moves: true requires more iterations, found 20: they end before moves can be scored",
        ),
        ({"iterations": 1}, "split_merge_moves: true requires more iterations, found 1"),
    ],
    ids=str,
)
def test_moves__are_refused_with_options_that_exclude_them(simulated, tmp_path, options, text):
    with pytest.raises(OptionError) as raised:
        fit(simulated[0], tmp_path / "run", scheduler="serial", **{**FIT, **options})
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "iterations", "on"),
    [
        ({}, 99, False),
        ({}, 100, True),
        ({}, 0, False),  # number of iterations unknown
        ({"split_merge_moves": False}, 500, False),
        ({"split_merge_moves": True}, 62, True),
        ({"responsibilities": "dense"}, 500, False),
        ({"order": 2}, 500, False),
        ({"learn": ("alpha",)}, 500, False),
        ({"topics": 1}, 500, False),
    ],
    ids=str,
)
def test_moves__are_made_by_default_if_there_are_enough_iterations(simulated, options, iterations, on):
    global_state = problem_of(simulated[0], "hdp", {"topics": 12, **options}, iterations=iterations).global_state
    assert (global_state.moves is not None) == on


def test_moves__are_off_by_default_in_the_stochastic_schedule(simulated):
    global_state = problem_of(simulated[0], "hdp", {"topics": 12}, iterations=500, stochastic=True).global_state
    assert global_state.moves is None


def test_an_estimator__has_the_topics_that_remain(simulated):
    """It can also continue from these topics with `partial_fit`: deleted topics stay empty."""
    rows = simulated_rows(5, documents=120, words=30, topics=3, tokens=40)
    counts = np.array([[row.get(word, 0) for word in range(30)] for row in rows])
    model = CollapsedHDP(n_components=12, beta=3.0, max_iter=100, random_state=0).fit(counts)
    shape = model.components_.shape
    assert 3 <= shape[0] < 12
    np.testing.assert_allclose(model.components_.sum(), counts.sum() + 3.0 * shape[0], rtol=1e-5)
    np.testing.assert_allclose(model.transform(counts).sum(axis=1), 1.0, rtol=1e-6)
    model.partial_fit(counts[:40])
    assert model.components_.shape == shape
    np.testing.assert_allclose(model.transform(counts).sum(axis=1), 1.0, rtol=1e-6)


def test_samples_and_restarts__are_complete_models(simulated, tmp_path):
    """`verify` accepts all models, although some samples are due while tokens are held out."""
    options = {**FIT, "scheduler": "serial"}
    fit(simulated[0], tmp_path / "samples", samples=3, sample_every=35, **options)
    fit(simulated[0], tmp_path / "restarts", restarts=2, **options)
    for name in ("samples", "restarts"):
        assert verify(tmp_path / name).broken == []
