"""Fits that choose the power of their weights: topics are cooled until held-out tokens score worse."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import Corpus, Model, evaluate, fit, resume, verify
from collapsium.pipeline.engine.loop.loop import run
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.families.base import Summary
from collapsium.pipeline.families.cvb import cooling
from collapsium.pipeline.families.registry import load_family, make_options
from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.delta import Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from tests.fits import bits, problem_of, scores_of
from tests.pipeline.families.cvb.conftest import check_recount, corpora, iterations_of, shards_of

ITERATIONS = 40
FIT = {"iterations": ITERATIONS, "seed": 3, "topics": 12, "beta": 3.0}


@pytest.fixture(scope="module", autouse=True)
def soon():
    """Searches on small corpora too."""
    schedule = cooling.CoolingSchedule(min_tokens=1000.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cooling, "SCHEDULE", schedule)
        yield


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A corpus of three topics, and other tokens of its documents."""
    return corpora(tmp_path_factory.mktemp("planted"), 6)


@pytest.fixture(scope="module", params=["lda", "hdp"])
def whole(request, planted, tmp_path_factory):
    """A serial run of a family."""
    out = tmp_path_factory.mktemp("whole") / request.param
    fit(planted[0], out, family=request.param, heldout=planted[1], scheduler="serial", **FIT)
    return out


def state_before_search(iterations, tokens=100_000, growing=0):
    """The global state of a new fit."""
    sizes = {"documents": 1000, "words": 500, "tokens": tokens, "pairs": tokens}
    summary = Summary(**sizes, shards=1, iterations=iterations, growing=growing)
    family, options = load_family("lda"), make_options("lda", {"topics": 5})
    return family.initialise(summary, options, Stream(1, "start"))


def stepped(state, score, tokens=5000.0):
    """The state after a sweep before which held-out tokens scored so many nats each."""
    delta = Delta({"cooling_score": fresh(np.array([score * tokens, tokens]))})
    return cooling.released(cooling.next_state(state, state, delta))


@given(st.lists(st.floats(-9.0, -5.0), min_size=200, max_size=200), st.integers(30, 200))
def test_any_scores__lead_to_a_power_within_bounds_before_the_last_iterations(scores, iterations):
    state, schedule, sweeps = state_before_search(iterations), cooling.SCHEDULE, 0
    step = state.cooling.cooling_step
    while state.searching:
        before = state.cooling.cooling_power
        state = stepped(state, scores[sweeps])
        sweeps += 1
        assert schedule.lowest <= state.cooling.cooling_power <= 1.0
        assert abs(state.cooling.cooling_power - before) < step + 1e-9 or not state.searching
        assert (state.held.held_share > 0.0) == state.searching
    assert sweeps <= schedule.last * iterations


@pytest.mark.parametrize("best", [0.7, 0.85, 0.95])
def test_scores_that_rise_and_fall__lead_to_the_best_power(best):
    state, schedule, powers = state_before_search(150), cooling.SCHEDULE, []
    while state.searching:
        powers.append(state.cooling.cooling_power)
        used = powers[-2] if len(powers) > 1 else schedule.start
        state = stepped(state, -7.0 - (used - best) ** 2)
    assert state.cooling.cooling_power == pytest.approx(max(best, 0.5 * (best + schedule.start)), abs=0.011)
    assert max(powers) < max(best, schedule.start) + 0.07
    assert min(powers) > min(best, schedule.start) - 0.07


def test_scores_that_rise_as_topics_converge__lead_no_higher_than_the_best_power_by_much():
    """The way up finds too high a power, the way down one as much too low."""
    state, used, sweeps, best = state_before_search(150), cooling.SCHEDULE.start, 0, 0.85
    while state.searching:
        power = state.cooling.cooling_power
        state = stepped(state, -7.0 - 20.0 * (used - best) ** 2 + 0.01 * sweeps)
        used, sweeps = power, sweeps + 1
    assert state.cooling.cooling_power == pytest.approx(best, abs=0.015)


def test_a_search_in_a_growing_fit__begins_when_all_documents_have_joined():
    state, schedule = state_before_search(200, growing=60), cooling.SCHEDULE
    for _ in range(60 + schedule.hold_grown):
        state = stepped(state, -7.0)
        assert state.cooling.cooling_power == schedule.start
    assert stepped(state, -7.0).cooling.cooling_power > schedule.start


@pytest.mark.parametrize(
    ("iterations", "tokens", "searching"), [(29, 10**6, False), (30, 10**6, True), (100, 999, False), (100, 1001, True)]
)
def test_fits_that_are_short_or_small__search_for_no_power(iterations, tokens, searching):
    state = state_before_search(iterations, tokens)
    assert state.searching == searching
    assert (state.held is not None) == searching


@pytest.mark.parametrize(("tokens", "power"), [(10**6, cooling.SCHEDULE.short_power), (999, None)])
def test_short_fits__keep_one_power(tokens, power):
    state = state_before_search(20, tokens)
    assert (None if state.cooling is None else state.cooling.cooling_power) == power
    assert stepped(state, -7.0).cooling == state.cooling


@pytest.mark.parametrize("options", [{}, {"topics": 140}, {"learn": ("asymmetric-alpha", "beta")}], ids=str)
@pytest.mark.parametrize("local_sweeps", [1, 2])
def test_counts__equal_a_recount_after_every_iteration(planted, options, local_sweeps):
    problem, executor, global_state = problem_of(
        planted[0], "lda", {"topics": 12, "beta": 3.0, **options}, iterations=ITERATIONS
    )
    problem = problem.__class__(**{**vars(problem), "local_sweeps": local_sweeps})
    searched = []
    for state, _ in run(problem, executor, global_state, Limits(iterations=ITERATIONS)):
        check_recount(problem, state)
        searched.append(state.global_state.searching)
    assert searched[0]
    assert not searched[-1]
    assert state.global_state.held.held_tokens == 0.0
    total = Corpus(planted[0]).manifest.tokens
    assert math.isclose(state.global_state.topic_moments[0].sum(), total, rel_tol=1e-5)


def test_a_run_that_stops_before_while_and_after_tokens_are_released__is_resumed_to_the_same_bits(
    planted, whole, tmp_path
):
    powers = [event["power"] for event in iterations_of(whole)]
    ended = next(number for number in range(6, len(powers)) if len(set(powers[number:])) == 1)
    expected, family = bits(Model(whole), shards_of(planted[0])), Model(whole).record.family
    for number in (3, ended - 1, ended, ended + 1):
        out = tmp_path / str(number)

        def stop(event, number=number):
            if event["event"] == "iteration" and event["iteration"] == number:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(planted[0], out, family=family, heldout=planted[1], sinks=[stop], scheduler="serial", **FIT)
        assert verify(out).broken == []
        assert bits(resume(out, scheduler="threads", workers=2), shards_of(planted[0])) == expected
        assert iterations_of(out) == iterations_of(whole)


def test_a_run_that_ends_during_the_search__is_refused(planted, tmp_path):
    def stop(event):
        if event["event"] == "iteration" and event["iteration"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(planted[0], tmp_path / "run", family="lda", sinks=[stop], scheduler="serial", **FIT)
    with pytest.raises(OptionError, match="iterations: expected as many as the run was planned with, found 4"):
        resume(tmp_path / "run", iterations=4, scheduler="serial")


def test_a_warm_start__goes_on_with_the_power_that_was_found(planted, whole, tmp_path):
    found = iterations_of(whole)[-1]["power"]
    fit(planted[0], tmp_path / "warm", family=Model(whole).record.family, warm=whole, scheduler="serial", **FIT)
    assert {event["power"] for event in iterations_of(tmp_path / "warm")} == {found}
    assert verify(tmp_path / "warm").broken == []


def test_a_model__scores_as_the_last_iteration(planted, whole):
    assert evaluate(whole, heldout=planted[1]).score == pytest.approx(scores_of(whole)[-1], rel=1e-6)
