"""Search for the inverse temperature of responsibilities, by held-out tokens of two halves of the documents.

Tempered responsibilities are proportional to the weights raised to the inverse temperature; below 1, they spread a
token over more topics. Hofmann (1999, section 3.3) chooses the inverse temperature of his tempered EM by held-out
tokens. The best one grows with the length of documents and with how sharply topics differ.

In each sweep of the search, every other document has a slightly larger inverse temperature, and the rest a smaller one;
in the next sweeps, it is the other way round. Scores rise in both halves as topics form, so that the difference
of the gains shows in which direction the inverse temperature is better (Kiefer and Wolfowitz 1952).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from collapsium.workers.families.cvb import schedule
from collapsium.workers.families.cvb.global_state import CollapsedGlobalState, CoolingState
from collapsium.workers.families.cvb.sums import COLDER, HOTTER, HeldScoreSums

if TYPE_CHECKING:
    from collapsium.workers.arrays.delta import Delta
    from collapsium.workers.families.family import Summary

GlobalStateT = TypeVar("GlobalStateT", bound=CollapsedGlobalState)


def begin(summary: Summary) -> CoolingState | None:
    """Return the state before the search, or of a fit too short for one; None where the corpus is too small."""
    if summary.tokens < schedule.MIN_SEARCH_TOKENS or summary.warm or summary.stochastic or not summary.iterations:
        return None
    iterations, forming = summary.iterations - summary.growing, schedule.FORMING_SWEEPS_RANDOM
    shortest, inverse = schedule.MIN_SEARCH_ITERATIONS_RANDOM, schedule.RANDOM_INVERSE_TEMPERATURE
    if summary.start > 0:
        shortest, inverse = schedule.MIN_SEARCH_ITERATIONS_CLUSTERS, schedule.CLUSTERS_INVERSE_TEMPERATURE
    if summary.start > 0 or summary.growing:
        forming = schedule.FORMING_SWEEPS_CLUSTERS
    searching = iterations >= shortest
    return CoolingState(
        cooling_power=inverse if searching else schedule.SHORT_INVERSE_TEMPERATURE,
        cooling_step=schedule.TEMPERATURE_SPREAD if searching else 0.0,
        # Documents that join score low at first, so that scores of other iterations could not be compared.
        cooling_first=summary.growing + forming,
        cooling_last=summary.growing + int(schedule.SEARCH_END * iterations),
    )


def step(before: CollapsedGlobalState, after: GlobalStateT, delta: Delta) -> GlobalStateT:
    """Return the global state with the inverse temperature of the next sweep."""
    old, sums = before.cooling, delta.read(HeldScoreSums)
    if old is None or sums is None or not before.searching:
        return after
    state = replace(old, cooling_sweeps=old.cooling_sweeps + 1)
    if before.changing:
        # What topics gain by the change is not due to the temperature.
        return replace(after, cooling=replace(state, cooling_scores=np.zeros(2)))
    if state.cooling_sweeps % schedule.SWEEPS_PER_TEMPERATURE == 1:
        scores, tokens = sums.in_groups(COLDER, HOTTER)
        inverse = old.cooling_power
        # A score is taken before its sweep, so the change of the score belongs to the previous step, whose halves were
        # swapped.
        formed = old.cooling_sweeps >= old.cooling_first + schedule.SWEEPS_PER_TEMPERATURE
        if old.cooling_scores.any() and formed and tokens.all():
            gains = scores - old.cooling_scores
            change = schedule.TEMPERATURE_GAIN * (float(gains[1] - gains[0]) / (2.0 * old.cooling_step))
            largest = schedule.MAX_TEMPERATURE_CHANGE
            inverse = _within_bounds(inverse + min(max(change, -largest), largest))
        state = replace(state, cooling_power=inverse, cooling_scores=scores)
    if state.cooling_sweeps % schedule.SWEEPS_PER_TEMPERATURE == 0:
        state = replace(state, cooling_step=-old.cooling_step)
    return replace(after, cooling=_averaged(state))


def _within_bounds(inverse: float) -> float:
    return min(max(inverse, schedule.MIN_INVERSE_TEMPERATURE), schedule.MAX_INVERSE_TEMPERATURE)


def _averaged(state: CoolingState) -> CoolingState:
    """Return the state after another sweep, with the mean inverse temperature of the last sweeps at the end."""
    averaged = schedule.AVERAGED_SHARE * max(state.cooling_last - state.cooling_first, 0)
    if state.cooling_sweeps >= state.cooling_last - averaged:
        total, count = state.cooling_sum + state.cooling_power, state.cooling_averaged + 1
        state = replace(state, cooling_sum=total, cooling_averaged=count)
    if state.cooling_sweeps < state.cooling_last:
        return state
    mean = _within_bounds(state.cooling_sum / state.cooling_averaged)
    return replace(state, cooling_step=0.0, cooling_power=mean)


def end(after: GlobalStateT) -> GlobalStateT:
    """Return the global state after a sweep: once the search has ended, the next sweep counts its held-out tokens."""
    if after.held is None or after.searching:
        return after
    return replace(after, held=replace(after.held, held_share=0.0))


def continue_alone(after: GlobalStateT) -> GlobalStateT:
    """Return the global state from which the search continues with fewer held-out tokens than split-merge moves had."""
    if after.cooling is None or after.held is None:
        return after
    held = replace(after.held, held_share=schedule.search_share(after.corpus_tokens))
    return replace(after, held=held, cooling=replace(after.cooling, cooling_scores=np.zeros(2)))


def carried(global_state: GlobalStateT, known: GlobalStateT, inverse_temperature: float | None) -> GlobalStateT:
    """Return the global state with the temperature that another run has found, unless the options name one."""
    if inverse_temperature is not None or known.cooling is None:
        return global_state
    return replace(global_state, cooling=replace(known.cooling, cooling_step=0.0))


def figures(global_state: CollapsedGlobalState) -> dict[str, float]:
    """Return the inverse temperature of the next sweep, where a fit chooses it."""
    return {} if global_state.cooling is None else {"power": global_state.cooling.cooling_power}
