"""Search for the power to which weights are raised, by held-out tokens of two halves of the documents.

Responsibilities in proportion to a power below 1 of the weights spread a token over more topics. Hofmann (1999, section
3.3) chooses the power of his tempered EM by held-out tokens. The power at which a corpus is predicted best grows with
the length of its documents and with how sharply its topics differ.

In each sweep of the search, every other document has a power a little larger, and the rest one as much smaller; in the
next sweep, it is the other way round. What scores gain as topics form is the same in both halves, so that the
difference of their gains shows in which direction the power is better (Kiefer and Wolfowitz 1952).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from collapsium.workers.families.cvb.global_state import CollapsedGlobalState, CoolingState, HeldTokens
from collapsium.workers.families.cvb.sums import LARGER_POWER, SMALLER_POWER, HeldScoreSums

if TYPE_CHECKING:
    from collapsium.workers.arrays.delta import Delta
    from collapsium.workers.families.family import Summary

GlobalStateT = TypeVar("GlobalStateT", bound=CollapsedGlobalState)


@dataclass(frozen=True)
class CoolingSchedule:
    """Powers of the search, and tokens that are held out for it."""

    # Power in the first sweeps of fits that begin at random: topics that form hot end in better optima
    start: float = 0.8
    start_formed: float = 0.9  # Power in the first sweep of fits that begin from clusters, which have topics already
    # Sweeps before the search in fits that begin at random: until topics have formed, a larger power seems better
    hold: int = 16
    # The same in fits that begin from clusters, or have grown on samples; in sweeps over all documents
    hold_formed: int = 4
    lowest: float = 0.6  # Smallest power between the two halves
    highest: float = 0.975  # Largest power between the two halves: no weight is sharpened
    spread: float = 0.025  # Difference of the powers of the two halves from the power between
    sweeps: int = 2  # Sweeps before the halves change places: in the first, documents follow, in the second, topics
    gain: float = 0.08  # Change of the power for each nat a token by which its increase by one would raise the score
    most: float = 0.04  # Largest change of the power at a time
    # Share of the sweeps of the search, at its end, whose mean power stays: single ones vary by 0.02, by which reviews
    # lose 0.01 nats a token. So are averaged the iterates of stochastic gradients (Polyak and Juditsky 1992).
    averaged: float = 1 / 3
    last: float = 0.9  # Share of the iterations over all documents after which held-out tokens count again
    min_iterations: int = 30  # Iterations over all documents of a fit that searches after a random start, at least
    min_formed: int = 20  # The same after a start from clusters
    # Power of shorter fits: the best one on news and blog entries, between those of reviews and of papers
    short_power: float = 0.85
    # Tokens of a corpus whose fits search, at least: `max_held` of them still tell powers apart
    min_tokens: float = 20_000.0
    held_tokens: float = 20_000.0  # Tokens to hold out, at least
    # Share of the tokens to hold out, at least: large corpora have more to spare, by which scores are less noisy. Moves
    # of topics hold out more, by which the two are told apart.
    held_share: float = 0.005
    max_held: float = 0.05  # Share of the tokens that is held out, at most


SCHEDULE = CoolingSchedule()


def initial_state(summary: Summary) -> CoolingState | None:
    """Return the state before the search, or of a fit too short for one; None where the corpus is too small."""
    if summary.tokens < SCHEDULE.min_tokens or summary.warm or summary.stochastic or not summary.iterations:
        return None
    left, opened = summary.iterations - summary.growing, summary.start > 0
    searching = left >= (SCHEDULE.min_formed if opened else SCHEDULE.min_iterations)
    hold = SCHEDULE.hold_formed if opened or summary.growing else SCHEDULE.hold
    power = SCHEDULE.start_formed if opened else SCHEDULE.start
    return CoolingState(
        cooling_power=power if searching else SCHEDULE.short_power,
        cooling_step=SCHEDULE.spread if searching else 0.0,
        # Documents that join score low at first, so that scores of other iterations could not be compared.
        cooling_first=summary.growing + hold,
        cooling_last=summary.growing + int(SCHEDULE.last * left),
    )


def held_tokens(summary: Summary, seed: int) -> HeldTokens:
    """Return the tokens by which powers are compared; `seed` is the run's."""
    share = held_share(summary.tokens)
    return HeldTokens(moves_seed=np.array(seed), held_share=share, held_before=share)


def held_share(tokens: float) -> float:
    """Return the share of a corpus's tokens that the search holds out."""
    return min(max(SCHEDULE.held_tokens / max(tokens, 1.0), SCHEDULE.held_share), SCHEDULE.max_held)


def resumed(after: GlobalStateT) -> GlobalStateT:
    """Return the global state, in which the search goes on with fewer tokens than were held out for moves of topics."""
    if after.cooling is None or after.held is None:
        return after
    held = replace(after.held, held_share=held_share(after.corpus_tokens))
    return replace(after, held=held, cooling=replace(after.cooling, cooling_scores=np.zeros(2)))


def next_state(before: CollapsedGlobalState, after: GlobalStateT, delta: Delta) -> GlobalStateT:
    """Return the global state with the power of the next sweep."""
    old, sums = before.cooling, delta.read(HeldScoreSums)
    if old is None or sums is None or not before.searching:
        return after
    state = replace(old, cooling_sweeps=old.cooling_sweeps + 1)
    if before.changing:
        # What topics gain by the change is not due to powers.
        return replace(after, cooling=replace(state, cooling_scores=np.zeros(2)))
    if state.cooling_sweeps % SCHEDULE.sweeps == 1:
        scores, tokens = sums.in_groups(LARGER_POWER, SMALLER_POWER)
        power = old.cooling_power
        # Scores are those before the sweep, the first of its own step: they gained by steps the other way round.
        if old.cooling_scores.any() and old.cooling_sweeps >= old.cooling_first + SCHEDULE.sweeps and tokens.all():
            gains = scores - old.cooling_scores
            slope = float(gains[1] - gains[0]) / (2.0 * old.cooling_step)
            change = min(max(SCHEDULE.gain * slope, -SCHEDULE.most), SCHEDULE.most)
            power = min(max(power + change, SCHEDULE.lowest), SCHEDULE.highest)
        state = replace(state, cooling_power=power, cooling_scores=scores)
    if state.cooling_sweeps % SCHEDULE.sweeps == 0:
        state = replace(state, cooling_step=-old.cooling_step)
    return replace(after, cooling=_averaged(state))


def _averaged(state: CoolingState) -> CoolingState:
    """Return the state after another sweep, with the mean power of the last ones if it ends the search."""
    averaged = SCHEDULE.averaged * max(state.cooling_last - state.cooling_first, 0)
    if state.cooling_sweeps >= state.cooling_last - averaged:
        total, count = state.cooling_sum + state.cooling_power, state.cooling_averaged + 1
        state = replace(state, cooling_sum=total, cooling_averaged=count)
    if state.cooling_sweeps < state.cooling_last:
        return state
    mean = min(max(state.cooling_sum / state.cooling_averaged, SCHEDULE.lowest), SCHEDULE.highest)
    return replace(state, cooling_step=0.0, cooling_power=mean)


def released(after: GlobalStateT) -> GlobalStateT:
    """Return the global state, from which on held-out tokens count again if the search has ended."""
    if after.held is None or after.searching:
        return after
    return replace(after, held=replace(after.held, held_share=0.0))


def carried(global_state: GlobalStateT, known: GlobalStateT, inverse_temperature: float | None) -> GlobalStateT:
    """Return the global state with the power that another run has found, unless the options name one."""
    if inverse_temperature is not None or known.cooling is None:
        return global_state
    return replace(global_state, cooling=replace(known.cooling, cooling_step=0.0))


def figures(global_state: CollapsedGlobalState) -> dict[str, float]:
    """Return the power of the next sweep, where a fit chooses it."""
    return {} if global_state.cooling is None else {"power": global_state.cooling.cooling_power}
