"""Fits that try short lists of active topics, by the scores of halves of the documents and of all."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import Model, fit, resume, verify
from collapsium.pipeline.engine.loop.loop import run
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.families.base import Summary
from collapsium.pipeline.families.cvb import cooling, short_lists
from collapsium.pipeline.families.registry import load_family, make_options
from collapsium.workers.arrays.delta import Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb import active_topics
from tests.fits import bits, problem_of
from tests.pipeline.families.cvb.conftest import check_recount, corpora, iterations_of, shards_of

LARGE = 10**7
ITERATIONS, TOPICS = 40, 140
FIT = {"family": "lda", "iterations": ITERATIONS, "seed": 3, "topics": TOPICS, "beta": 3.0, "start": "clusters"}
FINISHED = short_lists.SCHEDULE.sweeps


def state_before(tokens=LARGE, iterations=60, family="lda", **options):
    """The global state of a new fit from clusters."""
    sizes = {"documents": tokens // 100, "words": 500, "tokens": tokens, "pairs": tokens}
    summary = Summary(**sizes, shards=1, iterations=iterations, start=5)
    return load_family(family).initialise(summary, make_options(family, {"topics": 200, **options}), Stream(1, "start"))


def swept(state, scores, tokens=5000.0):
    """The state after a sweep before which the held-out tokens of each of the four groups scored so many nats."""
    delta = Delta({"cooling_score": fresh(np.array([np.array(scores) * tokens, np.full(4, tokens)]))})
    return short_lists.next_state(state, cooling.next_state(state, state, delta), delta)


def tried(state, loss, gain, trend=0.0, group=(0.0, 0.0, 0.0, 0.0)):
    """All states of a search, where short lists cost their documents `loss`, and those of all give everyone `gain`."""
    states, had = [state], 0
    while state.searching:
        power, step = state.cooling.cooling_power, state.cooling.cooling_step
        scores = np.array(group) + trend * len(states) - (power + step * np.array([1, -1, 1, -1]) - 0.85) ** 2
        scores -= loss * np.array([had == 2, had == 2, had > 0, had > 0])
        scores += gain * (had == 2)
        before, state = state, swept(state, -7.0 + scores)
        # The sweep that just began selects what the state before it says.
        had = before.lists.lists_short if before.lists.lists_selecting else had
        states.append(state)
    return states


GROUPS = st.tuples(*[st.floats(-0.3, 0.3)] * 4)


@given(st.floats(0.0, 0.015), st.floats(0.02, 0.1), GROUPS, st.integers(60, 300))
def test_lists_that_lose_little_and_whose_topics_gain__stay_short(loss, gain, group, iterations):
    states = tried(state_before(iterations=iterations), loss, gain, group=group)
    told = [state.lists.lists_short for state in states]
    assert told == sorted(told)
    assert told[-1] == short_lists.ALL
    assert states[-1].lists.lists_gain == pytest.approx(-loss, abs=1e-9)


@given(st.floats(0.025, 0.5), st.floats(0.0, 1.0), GROUPS, st.floats(-0.05, 0.05))
def test_lists_that_lose_much__are_full_again_and_never_short_for_all(loss, gain, group, trend):
    states = tried(state_before(), loss, gain, trend, group)
    assert {state.lists.lists_short for state in states} == {short_lists.NONE, short_lists.HALF}
    assert states[-1].lists.lists_short == short_lists.NONE
    assert states[-1].lists.lists_gain == pytest.approx(-loss, abs=1e-9)


@given(st.floats(0.002, 0.015), GROUPS)
def test_lists_with_which_all_score_lower__are_full_again(loss, group):
    states = tried(state_before(), loss, gain=0.0, group=group)
    assert states[-1].lists.lists_short == short_lists.NONE
    assert max(state.lists.lists_short for state in states) == short_lists.ALL


@given(st.floats(0.0, 0.1), st.floats(0.0, 0.1), st.integers(40, 100))
def test_lists__are_selected_when_their_length_changes_and_only_then(loss, gain, iterations):
    states = tried(state_before(iterations=iterations), loss, gain)
    for before, after in zip(states[:-1], states[1:], strict=True):
        changed = before.lists.lists_short != after.lists.lists_short
        assert after.lists.lists_selecting == changed
    assert not states[-1].lists.lists_selecting


@pytest.mark.parametrize(
    ("given_", "tries"),
    [
        ({}, True),
        ({"family": "hdp", "moves": False}, True),
        ({"tokens": int(short_lists.SCHEDULE.min_tokens) - 1}, False),
        ({"topics": active_topics.SELECTION.max_complete}, False),
        ({"topics": active_topics.SELECTION.max_complete + 1}, True),
        ({"most_active": 100}, False),
        ({"flatten": 0.9}, False),
        ({"responsibilities": "dense"}, False),
        ({"iterations": 19}, False),
    ],
    ids=str,
)
def test_fits_of_large_corpora_with_many_topics__try_short_lists(given_, tries):
    assert (state_before(**given_).lists is not None) == tries


def test_a_trial__waits_for_moves_of_topics_and_begins_in_time_or_not_at_all():
    held = {"moves": True, "family": "hdp"}
    state = state_before(**held)
    assert state.held.held_share > cooling.SCHEDULE.max_held
    for _ in range(20):
        state = swept(state, [-7.0] * 4)
    assert state.lists.lists_sweeps == 0
    late = dataclasses.replace(cooling.resumed(state), cooling=dataclasses.replace(state.cooling, cooling_last=10**4))
    late = dataclasses.replace(late, held=dataclasses.replace(late.held, held_before=late.held.held_share))
    assert swept(late, [-7.0] * 4).lists.lists_sweeps == 1
    states = tried(state_before(iterations=FINISHED + short_lists.SCHEDULE.remaining), 0.0, 0.1)
    assert {one.lists.lists_short for one in states} == {short_lists.NONE}


# Fits ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[0.0125, -np.inf], ids=["accepted", "refused"])
def schedules(request):
    """Trials in small corpora; by chance, tokens of these few documents say anything."""
    schedule = short_lists.TrialSchedule(
        min_tokens=1000.0, begin=3, half=4, all=4, compared=2, remaining=2, max_loss=1e9 if request.param > 0 else -1e9
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cooling, "SCHEDULE", cooling.CoolingSchedule(min_tokens=1000.0))
        patch.setattr(short_lists, "SCHEDULE", schedule)
        yield request.param > 0


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A corpus of documents in four shards, and other tokens of its documents."""
    return corpora(tmp_path_factory.mktemp("planted"), 6, documents=320)


def test_documents__have_as_many_topics_as_the_trial_says(schedules, planted):
    options = {"topics": TOPICS, "beta": 3.0}
    problem, executor, global_state = problem_of(planted[0], "lda", options, iterations=ITERATIONS)
    global_state = dataclasses.replace(
        global_state, cooling=dataclasses.replace(global_state.cooling, cooling_first=3, cooling_last=36)
    )
    short, largest, seen = active_topics.LANES, [], []
    for state, _ in run(problem, executor, global_state, Limits(iterations=ITERATIONS)):
        check_recount(problem, state)
        lists = state.global_state.lists
        seen.append(lists.lists_short)
        sizes = [np.diff(swept.value.local.to_arrays()["document_lists"]) for swept in state.swept]
        largest.append([max(int(one[group::4].max(initial=0)) for one in sizes) for group in range(4)])
    assert short_lists.HALF in seen
    assert (short_lists.ALL in seen) == schedules
    # What the state after one iteration says, the next carries out.
    for before, after, sizes in zip(seen[:-1], seen[1:], largest[1:], strict=True):
        if before == after == short_lists.HALF:
            assert max(sizes[2:]) <= short < max(sizes[:2])
        if before == after == short_lists.ALL:
            assert max(sizes) <= short


def test_a_run_that_stops_in_a_trial__is_resumed_to_the_same_bits(schedules, planted, tmp_path):
    fit(planted[0], tmp_path / "whole", scheduler="serial", **FIT)
    told = [event["short_lists"] for event in iterations_of(tmp_path / "whole")]
    assert 0.5 in told
    assert (1.0 in told) == schedules
    expected, change = bits(Model(tmp_path / "whole"), shards_of(planted[0])), told.index(0.5) + 1
    for number in (change - 1, change, change + 1, change + 4, change + 6):
        out = tmp_path / str(number)

        def stop(event, number=number):
            if event["event"] == "iteration" and event["iteration"] == number:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(planted[0], out, sinks=[stop], scheduler="serial", **FIT)
        assert verify(out).broken == []
        assert bits(resume(out, scheduler="threads", workers=2), shards_of(planted[0])) == expected


def test_a_warm_start__goes_on_with_short_lists_that_were_kept(schedules, planted, tmp_path):
    fit(planted[0], tmp_path / "first", scheduler="serial", **FIT)
    kept = iterations_of(tmp_path / "first")[-1]["short_lists"]
    warm = {name: value for name, value in FIT.items() if name != "start"}
    fit(planted[0], tmp_path / "warm", warm=tmp_path / "first", scheduler="serial", **warm)
    assert {event.get("short_lists", 0.0) for event in iterations_of(tmp_path / "warm")} == {kept}
    assert verify(tmp_path / "warm").broken == []
