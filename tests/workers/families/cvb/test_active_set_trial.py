"""Fits that try small active sets, and compare the held-out scores of four groups of documents."""

import dataclasses
import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import Model, fit, verify
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.models.registry import make_family, make_options
from collapsium.workers.arrays.delta import Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb import active_topics, schedule, updates
from collapsium.workers.families.cvb.global_state import SmallActiveSets
from collapsium.workers.families.cvb.schedule import Phase
from collapsium.workers.families.family import Summary
from tests.conftest import mark_rest_long
from tests.fits import arrays_of, at_iteration, bits, interrupt_and_resume, problem_of
from tests.workers.families.cvb.conftest import check_recount, corpora, iterations_of, shards_of

NOWHERE, IN_HALF, EVERYWHERE = SmallActiveSets
LARGE = 10**7
ITERATIONS, TOPICS = 40, 140
FIT = {"family": "lda", "iterations": ITERATIONS, "seed": 3, "topics": TOPICS, "beta": 3.0, "init": "clusters"}


def state_before(tokens=LARGE, iterations=60, family="lda", **options):
    """Return the global state of a new fit that starts from clusters."""
    sizes = {"documents": tokens // 100, "words": 500, "tokens": tokens, "pairs": tokens}
    summary = Summary(**sizes, shards=1, iterations=iterations, start=5)
    return make_family(family, make_options(family, {"topics": 200, **options})).initialise(summary, Stream(1, "start"))


def after_sweep(state, scores, tokens=5000.0, swept_sums=True):
    """Return the state after a sweep in which the held-out tokens of the four groups had these scores, in nats per
    token."""
    parts = {"search_score": fresh(np.array([np.array(scores) * tokens, np.full(4, tokens)]))}
    if swept_sums:
        parts |= {name: fresh(np.array(1.0)) for name in ("documents", "tokens", "log_eta")}
    return updates.decide(state, state, Delta(parts))


def states_of_search(state, loss, gain, trend=0.0, group=(0.0, 0.0, 0.0, 0.0)):
    """Return all states of a simulated search.

    Documents with small active sets score lower by `loss`; as long as all documents have them, all score higher by
    `gain`.
    """
    states, had = [state], NOWHERE
    while state.searching:
        power, step = state.temperature_search.inverse_temperature, state.temperature_search.spread
        scores = np.array(group) + trend * len(states) - (power + step * np.array([1, -1, 1, -1]) - 0.85) ** 2
        scores -= loss * np.array([had == EVERYWHERE, had == EVERYWHERE, had > NOWHERE, had > NOWHERE])
        scores += gain * (had == EVERYWHERE)
        before, state = state, after_sweep(state, -7.0 + scores)
        # The active sets of the sweep that just ended are those that the state before it requested.
        had = before.trial.trial_small if before.trial.trial_selecting else had
        states.append(state)
    return states


GROUPS = st.tuples(*[st.floats(-0.3, 0.3)] * 4)
ERROR = 0.003  # tolerance for scores that also depend on the inverse temperature, which is searched with them


@given(st.floats(0.0, 0.0199), st.floats(0.03, 0.1), GROUPS, st.integers(60, 300))
def test_active_sets_that_lose_little_and_whose_topics_gain__stay_small(loss, gain, group, iterations):
    states = states_of_search(state_before(iterations=iterations), loss, gain, group=group)
    small = [state.trial.trial_small for state in states]
    assert small == sorted(small)
    assert small[-1] == EVERYWHERE
    assert states[-1].trial.trial_loss == pytest.approx(loss, abs=1e-9)
    assert states[-1].trial.trial_gain == pytest.approx(gain - loss / 2, abs=ERROR)


@given(st.floats(0.0201, 0.5), st.floats(0.0, 1.0), GROUPS, st.floats(-0.05, 0.05))
def test_active_sets_that_lose_much__are_enlarged_again_before_all_documents_have_small_ones(loss, gain, group, trend):
    states = states_of_search(state_before(), loss, gain, trend, group)
    assert {state.trial.trial_small for state in states} == {NOWHERE, IN_HALF}
    assert states[-1].trial.trial_small == NOWHERE
    assert states[-1].trial.trial_loss == pytest.approx(loss, abs=1e-9)


@given(st.floats(0.0, 0.0199), GROUPS, st.floats(-0.01, 0.0002))
def test_small_active_sets_without_gain_for_the_topics__are_enlarged_again(loss, group, trend):
    states = states_of_search(state_before(), loss, gain=0.0, trend=trend, group=group)
    assert states[-1].trial.trial_small == NOWHERE
    assert max(state.trial.trial_small for state in states) == EVERYWHERE


@given(st.floats(0.0, 0.1), st.floats(0.0, 0.1), st.integers(40, 100))
def test_active_sets__are_selected_when_their_size_changes_and_only_then(loss, gain, iterations):
    states = states_of_search(state_before(iterations=iterations), loss, gain)
    for before, after in zip(states[:-1], states[1:], strict=True):
        assert after.trial.trial_selecting == (before.trial.trial_small != after.trial.trial_small)
    assert not states[-1].trial.trial_selecting


@pytest.mark.parametrize(("loss", "sweeps"), [(0.0, schedule.trial_sweeps()), (0.1, schedule.full_selection() - 1)])
def test_a_trial__is_a_phase_within_the_search(loss, sweeps):
    phases = itertools.groupby(state.phase for state in states_of_search(state_before(), loss, 0.1))
    lengths = [(phase, len(list(states))) for phase, states in phases]
    assert lengths[0] == (Phase.FORMING, schedule.FORMING_SWEEPS_CLUSTERS)
    # The first sweep of the trial is also one of the temperature search: its scores are the baseline.
    assert lengths[1:3] == [(Phase.TEMPERATURE_SEARCH, 1), (Phase.ACTIVE_SET_TRIAL, sweeps - 1)]
    assert [phase for phase, _ in lengths[3:]] == [Phase.TEMPERATURE_SEARCH, Phase.CONVERGING]


def test_selection_of_active_sets__waits_for_the_first_sweep():
    """A state whose counts come from the initialisation has no sweep whose active sets could be selected anew."""
    state = state_before()
    state = dataclasses.replace(state, trial=dataclasses.replace(state.trial, trial_selecting=True))
    assert after_sweep(state, [-7.0] * 4, swept_sums=False).trial.trial_selecting
    assert not after_sweep(state, [-7.0] * 4).trial.trial_selecting


@pytest.mark.parametrize(
    ("options", "tries"),
    [
        ({}, True),
        ({"family": "hdp", "split_merge_moves": False}, True),
        ({"tokens": int(schedule.MIN_TRIAL_TOKENS) - 1}, False),
        ({"topics": active_topics.MAX_COMPLETE_TOPICS}, False),
        ({"topics": active_topics.MAX_COMPLETE_TOPICS + 1}, True),
        ({"most_active": 100}, False),
        ({"inverse_temperature": 0.9}, False),
        ({"responsibilities": "dense"}, False),
        ({"iterations": 36}, False),
        ({"iterations": 37}, True),
    ],
    ids=str,
)
def test_fits_of_large_corpora_with_many_topics__try_small_active_sets(options, tries):
    state = state_before(**options)
    assert (state.trial is not None) == tries
    assert ("small_active_sets" in updates.metrics(state)) == tries
    if tries:
        states = states_of_search(state, 0.0, 0.1)
        assert states[-1].trial.trial_small == EVERYWHERE
        assert sum(state.trial.trial_small == EVERYWHERE for state in states) >= schedule.SEARCH_SWEEPS_AFTER_TRIAL


def test_a_trial__waits_until_split_merge_moves_have_ended():
    state = state_before(split_merge_moves=True, family="hdp", iterations=100)
    assert state.phase is Phase.SPLIT_MERGE
    for _ in range(20):
        state = after_sweep(state, [-7.0] * 4)
    assert state.trial.trial_sweeps == 0
    state = updates.continue_search(state)
    assert state.phase is Phase.RELEASE
    state = after_sweep(state, [-7.0] * 4)
    assert state.trial.trial_sweeps == 0
    state = dataclasses.replace(state, held=dataclasses.replace(state.held, held_before=state.held.held_share))
    assert after_sweep(state, [-7.0] * 4).trial.trial_sweeps == 1


def test_groups_without_held_out_tokens__are_not_compared():
    state = state_before()
    for _ in range(20):
        state = after_sweep(state, [-7.0] * 4, tokens=np.array([9.0, 9.0, 0.0, 0.0]))
    assert state.trial.trial_sweeps == 0


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=9))
def test_small_active_sets__have_an_eighth_of_the_room(limits):
    small = active_topics.max_small(np.array(limits))
    assert (small <= limits).all()
    assert (small >= np.minimum(limits, 8)).all()
    assert (np.abs(small - np.array(limits) / 8) <= 8).all()


# Fits ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["kept", "lost", "refused"])
def decision(request):
    """Fix the outcome of trials, because held-out scores of so few documents are arbitrary."""
    constants = {
        "MIN_SEARCH_TOKENS": 1000.0,
        "MIN_TRIAL_TOKENS": 1000.0,
        "TRIAL_LARGE_SWEEPS": 3,
        "TRIAL_HALF_SWEEPS": 4,
        "TRIAL_SMALL_SWEEPS": 4,
        "TRIAL_COMPARED_SWEEPS": 2,
        "SEARCH_SWEEPS_AFTER_TRIAL": 2,
        "MAX_TRIAL_LOSS": -1e9 if request.param == "refused" else 1e9,
        "MIN_TRIAL_GAIN": -1e9 if request.param == "kept" else 1e9,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in constants.items():
            patch.setattr(schedule, name, value)
        yield request.param


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A training corpus in four shards, and held-out tokens of its documents."""
    return corpora(tmp_path_factory.mktemp("simulated"), 6)


@pytest.fixture(scope="module")
def serial_run(decision, simulated, tmp_path_factory):
    """A serial run."""
    out = tmp_path_factory.mktemp(decision) / "run"
    fit(simulated[0], out, scheduler="serial", **FIT)
    return out


def sizes_of(locals_):
    """Return the largest size of the active sets in each of the four groups of documents."""
    sizes = [np.diff(np.asarray(local["document_lists"])) for local in locals_]
    return [max(int(size[group::4].max(initial=0)) for size in sizes) for group in range(4)]


@pytest.mark.parametrize("local_sweeps", mark_rest_long([1, 2]))
def test_active_sets__have_the_sizes_that_the_trial_decides(decision, simulated, local_sweeps):
    options = {"topics": TOPICS, "beta": 3.0}
    problem = problem_of(simulated[0], "lda", options, iterations=ITERATIONS)
    problem = dataclasses.replace(problem, local_sweeps=local_sweeps)
    small, largest, decided = active_topics.LANES, [], []
    for state, _ in Fit(problem, Limits(iterations=ITERATIONS)):
        decided.append(state.global_state.trial.trial_small)
        if state.iteration % 3 == 0 or decided[-2:-1] != decided[-1:]:
            check_recount(problem, state)
        largest.append(sizes_of([arrays_of(after_sweep.value.local) for after_sweep in state.swept]))
    assert IN_HALF in decided
    assert (EVERYWHERE in decided) == (decision != "refused")
    assert (decided[-1] == EVERYWHERE) == (decision == "kept")
    # A decision after one iteration takes effect in the next one.
    for before, after, sizes in zip(decided[:-1], decided[1:], largest[1:], strict=True):
        if before == after == IN_HALF:
            assert max(sizes[2:]) <= small < max(sizes[:2])
        if before == after == EVERYWHERE:
            assert max(sizes) <= small
    if decision != "kept":
        assert max(largest[-1]) > small


def test_a_run_that_stops_again_and_again_in_a_trial__is_resumed_to_the_same_bits(
    decision, simulated, serial_run, tmp_path
):
    shares = [event["small_active_sets"] for event in iterations_of(serial_run)]
    expected, begin = bits(Model(serial_run), shards_of(simulated[0])), shares.index(0.5) + 1
    # Before, at the start of, within and after a trial; the steps in between are the same whatever the trial decides.
    between = (begin - 1, begin + 1, begin + 6, begin + 10) if decision == "kept" else ()
    stops = map(at_iteration, sorted([begin, begin + 5, begin + 11, *between]))
    start = functools.partial(fit, simulated[0], tmp_path / "run", scheduler="serial", **FIT)
    for _ in interrupt_and_resume(tmp_path / "run", stops, start, scheduler="threads", workers=2):
        assert verify(tmp_path / "run").broken == []
    assert bits(Model(tmp_path / "run"), shards_of(simulated[0])) == expected


def test_a_warm_start__continues_with_the_active_sets_that_the_trial_decided(decision, simulated, serial_run, tmp_path):
    kept = iterations_of(serial_run)[-1]["small_active_sets"]
    assert kept == (decision == "kept")
    warm = {**{name: value for name, value in FIT.items() if name != "init"}, "iterations": 2}
    model = fit(simulated[0], tmp_path / "warm", warm=serial_run, scheduler="serial", **warm)
    assert {event.get("small_active_sets", 0.0) for event in iterations_of(tmp_path / "warm")} == {kept}
    documents = [arrays_of(model.local_state(shard)) for shard in range(shards_of(simulated[0]))]
    assert (max(sizes_of(documents)) <= active_topics.LANES) == kept
    assert verify(tmp_path / "warm").broken == []
