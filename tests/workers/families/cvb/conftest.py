"""Fits of the HDP whose topics move, on a small corpus."""

import math
from dataclasses import replace

import numpy as np
import pytest

from collapsium.pipeline import Corpus, fit
from collapsium.pipeline.engine.checkpoints import RunCheckpointer
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.storage.runs.run import Run
from collapsium.workers.families.cvb import schedule, split_merge
from tests.conftest import simulated_rows, write_halves
from tests.counting import document_counts, recount
from tests.fits import TIMES, problem_of

ITERATIONS = 90
LIVED = 72  # of these; moves have ended by then
# Few are enough for a test: topics part early on so small a corpus.
OPTIONS = {"topics": 12, "beta": 3.0, "split_merge_moves": True}
FIT = {"family": "hdp", "iterations": ITERATIONS, "seed": 7, **OPTIONS}
STEPS = {
    (1, False, True): "proposals",
    (2, False, True): "scores",
    (0, True, True): "moves",
    (0, True, False): "release",
}
"""Steps of rounds by the request to the next sweep, whether it moves topics, and whether tokens are held out."""


@pytest.fixture(scope="module")
def early():
    """Rounds that begin early and end soon, and follow what little so small a corpus has to tell."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "FIRST_ROUND", 20)
        patch.setattr(schedule, "MIN_REDUNDANT_SHARE", 0.0)
        patch.setattr(schedule, "IDLE_ROUNDS", 1)
        patch.setattr(schedule, "SPLIT_SWEEPS", 5)
        yield


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A corpus of three topics in three shards, some of its documents empty, and tokens of the same documents."""
    place = tmp_path_factory.mktemp("simulated")
    return corpora(place, 5, documents=90)


def corpora(place, seed, documents=120, topics=3):
    """A training corpus, and one of other tokens of the same documents."""
    rows = simulated_rows(seed, documents=documents, words=30, topics=topics, tokens=80)
    return write_halves(place, rows, 30)


def lived(corpus, options=OPTIONS, local_sweeps=1, warm=None, limits=None, **where):
    """The problem, and the states after iterations until moves have ended, run serially."""
    problem = problem_of(corpus, "hdp", options, iterations=ITERATIONS, **where)
    problem = replace(problem, local_sweeps=local_sweeps, warm=warm)
    limits = limits or Limits(iterations=LIVED)
    return problem, (state for state, _ in Fit(problem, limits))


@pytest.fixture(scope="module")
def noted(simulated, tmp_path_factory, early):
    """A serial run in which moves were accepted, and its first iteration after which each step is pending, by name."""
    out, found, hold = tmp_path_factory.mktemp("whole") / "run", {}, RunCheckpointer.hold

    def note(checkpointer, snapshot):
        moves, held = snapshot.state.global_state.moves, snapshot.state.global_state.held.held_share > 0
        step = STEPS.get((moves.ask, moves.moving, held))
        if moves.split_pairs.size:
            step = "splits" if moves.moving else "judgement" if moves.ask else "parting"
        found.setdefault(step, snapshot.state.iteration)
        hold(checkpointer, snapshot)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunCheckpointer, "hold", note)
        fit(simulated[0], out, heldout=simulated[1], scheduler="serial", **FIT)
    iterations = iterations_of(out)
    assert iterations[-1]["merges"] > 0
    assert iterations[-1]["deletes"] > 0
    return out, found


@pytest.fixture(scope="module")
def whole(noted):
    """A serial run in which moves were accepted."""
    return noted[0]


@pytest.fixture(scope="module")
def steps(noted):
    """The first iteration of the run `whole` after which each step is pending, by name."""
    return {name: noted[1][name] for name in (*STEPS.values(), "splits", "parting", "judgement")}


def iterations_of(run_):
    """The events of iterations, without their times."""
    events = [event for event in Run(run_).events() if event["event"] == "iteration"]
    return [{name: value for name, value in event.items() if name not in TIMES} for event in events]


def shards_of(corpus):
    return len(Corpus(corpus).manifest.shards)


def counting(problem, state):
    """The shards with the tokens that count in a state."""
    held = [
        split_merge.held_out(shard.value, state.global_state.held, state.global_state.held.held_before)
        for shard in problem.shards
    ]
    shards = zip(problem.shards, held, strict=True)
    return [replace(shard.value, counts=shard.value.counts - held) for shard, held in shards]


def check_recount(problem, state):
    """All counts of a state equal a recount from its local states, of the tokens that count."""
    rows, global_state = state.blocks[0].value.rows, state.global_state
    held = rows.active_counts
    total, background, tokens = np.zeros(held.shape), np.zeros(len(held)), 0
    for shard, swept in zip(counting(problem, state), state.swept, strict=True):
        local = swept.value.local
        by_word, rest, documents = recount(shard, local)
        total[np.ix_(shard.words, np.arange(by_word.shape[1]))] += by_word
        background[shard.words] += rest
        found = document_counts(local, held.shape[1])[:, : documents.shape[1]]
        np.testing.assert_allclose(found, documents, rtol=1e-5, atol=1e-5)
        left = shard.lengths - documents.sum(axis=1)
        np.testing.assert_allclose(local.document_rest, left, rtol=1e-4, atol=1e-4)
        tokens += shard.tokens
    np.testing.assert_allclose(held, total, rtol=1e-5, atol=2e-3)
    np.testing.assert_allclose(rows.word_rest, background, rtol=1e-6, atol=1e-6)
    of_topics = global_state.topic_moments[0]
    assert math.isclose(of_topics.sum(), tokens, rel_tol=1e-6)
    assert math.isclose(global_state.held.held_tokens, missing(problem) - tokens)


def missing(problem):
    """All tokens of a corpus."""
    return sum(shard.value.tokens for shard in problem.shards)
