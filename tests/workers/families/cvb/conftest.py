"""Fixtures for fits of the HDP with split-merge moves on a small corpus."""

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
ITERATIONS_WITH_MOVES = 72  # of these iterations; all rounds of moves have ended by then
# Twelve topics suffice: on so small a corpus, topics separate early.
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
def short_rounds():
    """Make rounds of moves begin early and end after one idle round, and accept any share of redundant topics."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "FIRST_ROUND", 20)
        patch.setattr(schedule, "MIN_REDUNDANT_SHARE", 0.0)
        patch.setattr(schedule, "IDLE_ROUNDS", 1)
        patch.setattr(schedule, "SPLIT_SWEEPS", 5)
        yield


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A training corpus of three topics in three shards, some of whose documents are empty, and held-out tokens of the
    same documents."""
    place = tmp_path_factory.mktemp("simulated")
    return corpora(place, 5, documents=90)


def corpora(place, seed, documents=120, topics=3):
    """Write a training corpus, and a held-out corpus of other tokens of the same documents."""
    rows = simulated_rows(seed, documents=documents, words=30, topics=topics, tokens=80)
    return write_halves(place, rows, 30)


def fit_with_moves(corpus, options=OPTIONS, local_sweeps=1, warm=None, limits=None, **where):
    """Return the problem of a serial fit with moves, and an iterator over its states; by default all rounds end within
    it."""
    problem = problem_of(corpus, "hdp", options, iterations=ITERATIONS, **where)
    problem = replace(problem, local_sweeps=local_sweeps, warm=warm)
    limits = limits or Limits(iterations=ITERATIONS_WITH_MOVES)
    return problem, (state for state, _ in Fit(problem, limits))


@pytest.fixture(scope="module")
def run_and_steps(simulated, tmp_path_factory, short_rounds):
    """A serial run in which moves were accepted, and the first iteration after which each step of a round is pending,
    by name."""
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
def run_with_moves(run_and_steps):
    """A serial run in which moves were accepted."""
    return run_and_steps[0]


@pytest.fixture(scope="module")
def steps(run_and_steps):
    """The first iteration of `run_with_moves` after which each step of a round is pending, by name."""
    return {name: run_and_steps[1][name] for name in (*STEPS.values(), "splits", "parting", "judgement")}


def iterations_of(run_):
    """Return the events of a run's iterations, without the fields that depend on time."""
    events = [event for event in Run(run_).events() if event["event"] == "iteration"]
    return [{name: value for name, value in event.items() if name not in TIMES} for event in events]


def shards_of(corpus):
    return len(Corpus(corpus).manifest.shards)


def shards_without_held_out_tokens(problem, state):
    """Return the shards without the tokens that are held out in this state."""
    held = [
        split_merge.held_out(shard.value, state.global_state.held, state.global_state.held.held_before)
        for shard in problem.shards
    ]
    shards = zip(problem.shards, held, strict=True)
    return [replace(shard.value, counts=shard.value.counts - held) for shard, held in shards]


def check_recount(problem, state):
    """Require that all counts of a state equal a recount, from its local states, of the tokens that are not held out."""
    rows, global_state = state.blocks[0].value.rows, state.global_state
    held = rows.active_counts
    total, background, tokens = np.zeros(held.shape), np.zeros(len(held)), 0
    for shard, swept in zip(shards_without_held_out_tokens(problem, state), state.swept, strict=True):
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
    assert math.isclose(global_state.held.held_tokens, tokens_of_corpus(problem) - tokens)


def tokens_of_corpus(problem):
    """Return the number of tokens of the corpus."""
    return sum(shard.value.tokens for shard in problem.shards)
