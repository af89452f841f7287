"""Fits that search for the inverse temperature of their responsibilities by the held-out scores of two halves of the
documents."""

import functools
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import Corpus, Model, evaluate, fit, resume, verify
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.models.registry import recorded_family
from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.delta import Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb import schedule, split_merge, updates
from collapsium.workers.families.cvb.schedule import Phase
from collapsium.workers.families.family import Summary
from tests.fits import at_iteration, bits, interrupt_and_resume, problem_of, scores_of
from tests.workers.families.cvb.conftest import check_recount, corpora, iterations_of, shards_of

ITERATIONS = 40
FIT = {"iterations": ITERATIONS, "seed": 3, "topics": 12, "beta": 3.0}


@pytest.fixture(scope="module", autouse=True)
def search_in_small_corpora():
    """Let fits of small corpora search too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "MIN_SEARCH_TOKENS", 1000.0)
        yield


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A training corpus of three topics, and held-out tokens of its documents."""
    return corpora(tmp_path_factory.mktemp("simulated"), 6, documents=75)


@pytest.fixture(scope="module", params=["lda", "hdp"])
def serial_run(request, simulated, tmp_path_factory):
    """A serial run of each family."""
    out = tmp_path_factory.mktemp("whole") / request.param
    fit(simulated[0], out, family=request.param, heldout=simulated[1], scheduler="serial", **FIT)
    return out


def state_before_search(iterations, tokens=100_000, growing=0, start=0):
    """Return the global state of a new fit."""
    sizes = {"documents": 1000, "words": 500, "tokens": tokens, "pairs": tokens}
    summary = Summary(**sizes, shards=1, iterations=iterations, growing=growing, start=start)
    return recorded_family("lda", {"topics": 5}).initialise(summary, Stream(1, "start"))


def after_sweep(state, scores, tokens=5000.0):
    """Return the state after a sweep in which the held-out tokens of the two halves had these scores, in nats per
    token."""
    log_probability = np.tile(np.broadcast_to(scores, 2), 2) * tokens
    delta = Delta({"search_score": fresh(np.array([log_probability, np.full(4, tokens)]))})
    return updates.decide(state, state, delta)


def after_search(state, score_of):
    """Return the state after the search, and the inverse temperature of each sweep.

    `score_of` returns the score for an inverse temperature and the number of sweeps so far.
    """
    sweeps, powers, scores = 0, [], np.full(2, -8.0)
    while state.searching:
        powers.append(state.temperature_search.inverse_temperature)
        after = after_sweep(state, scores)
        step = state.temperature_search.spread
        scores = np.array([score_of(powers[-1] + sign * step, sweeps) for sign in (1, -1)])
        state, sweeps = after, sweeps + 1
    return state, powers


@pytest.mark.parametrize(
    ("into", "split", "counts"), [([0, 0, 2], -1, False), ([0, 1, 2], 2, False), ([0, 1, 2], -1, True)]
)
def test_scores_of_sweeps_that_merge_or_split_topics__are_ignored(into, split, counts):
    """In such a sweep, the rows are from before the change of topics, but the totals from after it."""
    summary = Summary(1000, 500, 100_000, pairs=100_000, shards=1, iterations=200)
    state = recorded_family("hdp", {"topics": 3}).initialise(summary, Stream(1, "start"))
    moves = replace(split_merge.begin(3, 200), moving=True, moves_into=np.array(into))
    moves = replace(moves, moves_split=np.array([split, -1, -1]))
    search = replace(state.temperature_search, sweeps=100, first=16, scores=np.array([-8.0, -8.0]))
    found = after_sweep(
        replace(state, temperature_search=search, moves=moves), np.array([-7.0, -9.0])
    ).temperature_search
    assert (found.inverse_temperature != search.inverse_temperature) is counts
    assert found.scores.any() == counts
    assert found.sweeps == 101


@given(st.lists(st.floats(-9.0, -5.0), min_size=400, max_size=400), st.integers(20, 200), st.sampled_from([0, 5]))
def test_any_scores__lead_to_an_inverse_temperature_within_bounds_before_the_last_iterations(scores, iterations, start):
    state, sweeps = state_before_search(iterations, start=start), 0
    while state.searching:
        before = state.temperature_search.inverse_temperature
        state = after_sweep(state, scores[2 * sweeps : 2 * sweeps + 2])
        sweeps += 1
        assert (
            schedule.MIN_INVERSE_TEMPERATURE
            <= state.temperature_search.inverse_temperature
            <= schedule.MAX_INVERSE_TEMPERATURE
        )
        assert (
            not state.searching
            or abs(state.temperature_search.inverse_temperature - before) <= schedule.MAX_TEMPERATURE_CHANGE + 1e-9
        )
        assert (state.held.held_share > 0.0) == state.searching
    assert sweeps <= schedule.SEARCH_END * iterations


def test_a_noisy_search__ends_at_the_mean_of_its_last_third():
    state = state_before_search(200, start=5)
    drawn, powers = np.random.default_rng(3), []
    while state.searching:
        state = after_sweep(state, -7.0 + drawn.normal(0.0, 0.01, 2))
        powers.append(state.temperature_search.inverse_temperature)
    last = powers[-1 - (180 - 4) // 3 : -1]
    assert np.std(last) > 0.005
    assert powers[-1] == pytest.approx(np.mean(last), abs=0.002)


@pytest.mark.parametrize("trend", [0.0, 0.02, -0.02])
@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("best", [0.7, 0.85, 0.95])
def test_scores_with_a_trend__lead_to_the_best_inverse_temperature(best, start, trend):
    state, powers = after_search(
        state_before_search(150, start=start), lambda power, sweeps: -7.0 - 2.0 * (power - best) ** 2 + trend * sweeps
    )
    assert state.temperature_search.inverse_temperature == pytest.approx(best, abs=0.01)
    assert powers[0] == (schedule.CLUSTERS_INVERSE_TEMPERATURE if start else schedule.RANDOM_INVERSE_TEMPERATURE)


@pytest.mark.parametrize(("growing", "start"), [(60, 0), (0, 0), (0, 5)])
def test_the_search__begins_when_topics_have_formed_over_all_documents(growing, start):
    state = state_before_search(200, growing=growing, start=start)
    first = state.temperature_search.inverse_temperature
    for number in range(
        growing + (schedule.FORMING_SWEEPS_CLUSTERS if growing or start else schedule.FORMING_SWEEPS_RANDOM)
    ):
        state = after_sweep(state, [-7.0 - 0.1 * (number % 4 < 2), -7.0])
        assert state.temperature_search.inverse_temperature == first
    for number in range(2 * schedule.SWEEPS_PER_TEMPERATURE):
        state = after_sweep(state, [-7.0 - 0.1 * (number % 4 < 2), -7.0])
    assert state.temperature_search.inverse_temperature != first


@pytest.mark.parametrize(
    ("iterations", "tokens", "start", "searching"),
    [
        (29, 10**6, 0, False),
        (30, 10**6, 0, True),
        (19, 10**6, 5, False),
        (20, 10**6, 5, True),
        (100, 999, 0, False),
        (100, 1001, 0, True),
    ],
)
def test_short_fits_and_small_corpora__do_not_search(iterations, tokens, start, searching):
    state = state_before_search(iterations, tokens, start=start)
    assert state.searching == searching
    assert (state.held is not None) == searching


@pytest.mark.parametrize(("tokens", "power"), [(10**6, schedule.SHORT_INVERSE_TEMPERATURE), (999, None)])
def test_short_fits__have_a_fixed_inverse_temperature(tokens, power):
    state = state_before_search(19, tokens)
    assert (None if state.temperature_search is None else state.temperature_search.inverse_temperature) == power
    assert after_sweep(state, -7.0).temperature_search == state.temperature_search


@pytest.mark.parametrize("options", [{}, {"topics": 140}, {"learn": ("asymmetric-alpha", "beta")}], ids=str)
@pytest.mark.parametrize("local_sweeps", [1, 2])
def test_counts__equal_a_recount_after_every_iteration(simulated, options, local_sweeps):
    problem = problem_of(simulated[0], "lda", {"topics": 12, "beta": 3.0, **options}, iterations=ITERATIONS)
    problem = problem.__class__(**{**vars(problem), "local_sweeps": local_sweeps})
    after_search = []
    for state, _ in Fit(problem, Limits(iterations=ITERATIONS)):
        check_recount(problem, state)
        after_search.append(state.global_state.searching)
    assert after_search[0]
    assert not after_search[-1]
    assert state.global_state.held.held_tokens == 0.0
    total = Corpus(simulated[0]).manifest.tokens
    assert math.isclose(state.global_state.topic_moments[0].sum(), total, rel_tol=1e-5)


def test_scores__describe_the_state_at_the_beginning_of_an_iteration(simulated):
    """A score from the second or third local sweep would be attributed to the wrong inverse temperature."""
    found = []
    for local_sweeps in (1, 3):
        problem = problem_of(simulated[0], "lda", {"topics": 12, "beta": 3.0}, iterations=ITERATIONS)
        problem = replace(problem, local_sweeps=local_sweeps)
        states = (state for state, _ in Fit(problem, Limits(iterations=ITERATIONS)))
        state = next(state for state in states if state.iteration == 1)
        assert state.global_state.sweeping_again is None
        found.append(state.global_state.temperature_search.scores)
    assert found[0].all()
    assert found[0].tolist() == found[1].tolist()


def test_the_search__continues_with_fewer_held_out_tokens_after_split_merge_moves(simulated):
    options, iterations = {"topics": 8, "split_merge_moves": True}, 100
    problem = problem_of(simulated[0], "hdp", options, iterations=iterations)
    shares, powers, alphas, phases = [], [], [], []
    for state, _ in Fit(problem, Limits(iterations=iterations)):
        check_recount(problem, state)
        shares.append(state.global_state.held.held_share)
        powers.append(state.global_state.temperature_search.inverse_temperature)
        alphas.append(state.global_state.alpha)
        phases.append(state.global_state.phase)
    assert [phase for phase, _ in itertools.groupby(phases)] == [
        Phase.SPLIT_MERGE,
        Phase.RELEASE,
        Phase.TEMPERATURE_SEARCH,
        Phase.CONVERGING,
    ]
    assert phases.count(Phase.RELEASE) == 1
    assert list(dict.fromkeys(shares)) == [0.1, schedule.MAX_SEARCH_HELD_SHARE, 0.0]
    first = shares.index(schedule.MAX_SEARCH_HELD_SHARE)
    assert len(set(powers[first : shares.index(0.0)])) > 1
    # During the moves, redundant topics have an alpha with which too large inverse temperatures would be found.
    assert alphas[first - 1] != alphas[first + 1]


def test_a_run_that_stops_before_during_and_after_the_release_of_tokens__is_resumed_to_the_same_bits(
    simulated, serial_run, tmp_path
):
    run = tmp_path / "run"
    powers = [event["inverse_temperature"] for event in iterations_of(serial_run)]
    ended = next(number for number in range(6, len(powers)) if len(set(powers[number:])) == 1)
    options = {"family": Model(serial_run).record.family, "heldout": simulated[1], "scheduler": "serial", **FIT}
    start = functools.partial(fit, simulated[0], run, **options)
    stops = map(at_iteration, (3, ended - 1, ended, ended + 1))
    for _ in interrupt_and_resume(run, stops, start, scheduler="threads", workers=2):
        assert verify(run).broken == []
    assert bits(Model(run), shards_of(simulated[0])) == bits(Model(serial_run), shards_of(simulated[0]))
    assert iterations_of(run) == iterations_of(serial_run)


def test_resuming_with_iterations_that_end_during_the_search__is_refused(simulated, tmp_path):
    def stop(event):
        if event["event"] == "iteration" and event["iteration"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(simulated[0], tmp_path / "run", family="lda", sinks=[stop], scheduler="serial", **FIT)
    with pytest.raises(
        OptionError, match=f"iterations: expected at least {ITERATIONS}, with which the run was planned, found 4"
    ):
        resume(tmp_path / "run", iterations=4, scheduler="serial")


def test_a_warm_start__continues_with_the_inverse_temperature_of_its_source(simulated, serial_run, tmp_path):
    found = iterations_of(serial_run)[-1]["inverse_temperature"]
    fit(
        simulated[0],
        tmp_path / "warm",
        family=Model(serial_run).record.family,
        warm=serial_run,
        scheduler="serial",
        **FIT,
    )
    assert {event["inverse_temperature"] for event in iterations_of(tmp_path / "warm")} == {found}
    assert verify(tmp_path / "warm").broken == []


def test_a_model__has_the_score_of_the_last_iteration(simulated, serial_run):
    assert evaluate(serial_run, heldout=simulated[1]).score == pytest.approx(scores_of(serial_run)[-1], rel=1e-6)


def test_slightly_negative_topic_totals__are_set_to_zero():
    """Rounding may leave a slightly negative total, which a model may not have; larger negative values are damage, and
    are kept."""
    for least, left in ((-7e-4, 0.0), (-7.0, -7.0)):
        totals = np.array([5e6, least, 0.0, 2e6, 1.0])
        delta = Delta({name: fresh(totals) for name in ("topic_total", "topic_ahead")})
        moments = updates.moved_moments(state_before_search(ITERATIONS), delta)
        assert moments[0].tolist() == [5e6, left, 0.0, 2e6, 1.0]


def test_hdp__learns_topic_shares_during_the_search(simulated):
    problem = problem_of(simulated[0], "hdp", {"topics": 12, "beta": 3.0, "hold": 2}, iterations=ITERATIONS)
    shares = {True: [], False: []}
    for state, _ in Fit(problem, Limits(iterations=ITERATIONS)):
        shares[state.global_state.searching].append(float(np.ptp(state.global_state.pi)))
    assert shares[True][0] == 0.0
    assert shares[True][-1] > 0.01
    assert len(shares[False]) > 1
