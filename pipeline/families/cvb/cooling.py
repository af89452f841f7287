"""Search for the power to which weights are raised: topics form hot and are cooled until held-out tokens score worse.

Responsibilities in proportion to a power below 1 of the weights spread a token over more topics. Hofmann (1999, section
3.3) chooses the power of his tempered EM in this way. The power at which a corpus is predicted best grows with the
length of its documents and with how sharply its topics differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from collapsium.workers.families.cvb.global_state import CollapsedGlobalState, CoolingState, HeldTokens
from collapsium.workers.families.cvb.sums import HeldScoreSums

if TYPE_CHECKING:
    from collapsium.pipeline.families.base import Summary
    from collapsium.workers.arrays.delta import Delta

GlobalStateT = TypeVar("GlobalStateT", bound=CollapsedGlobalState)
WORST_SCORE = -1e6
"""Score below all others, in nats a token."""


@dataclass(frozen=True)
class CoolingSchedule:
    """Powers of the search, and tokens that are held out for it."""

    start: float = 0.8
    """Power in the first sweeps."""
    hold: int = 16
    """Sweeps with this power: before topics have formed, scores rise at any power."""
    hold_grown: int = 4
    """The same where topics have formed on samples, in sweeps over all documents."""
    lowest: float = 0.6
    """Smallest power."""
    step: float = 0.01
    """Change of the power from sweep to sweep, at least."""
    pace: float = 0.5
    """Change of the power from sweep to sweep times the planned iterations, at least: short fits take larger steps."""
    last: float = 0.7
    """Share of the iterations over all documents after which held-out tokens count again."""
    min_iterations: int = 30
    """Iterations over all documents of a fit that searches, at least."""
    short_power: float = 0.85
    """Power of shorter fits: the best one on news and blog entries, between those of reviews and of papers."""
    min_tokens: float = 20_000.0
    """Tokens of a corpus whose fits search, at least: `max_held` of them still tell powers apart."""
    held_tokens: float = 20_000.0
    """Tokens to hold out."""
    max_held: float = 0.05
    """Share of the tokens that is held out, at most."""
    falls: int = 2
    """Scores in a row below the best that turn the search."""
    fall: float = 0.05
    """Least fall of a score, in nats a token times the root of the held-out tokens."""


SCHEDULE = CoolingSchedule()


def initial_state(summary: Summary) -> CoolingState | None:
    """Return the state before the search, or of a fit too short for one; None where the corpus is too small."""
    if summary.tokens < SCHEDULE.min_tokens or summary.warm or summary.stochastic or not summary.iterations:
        return None
    left = summary.iterations - summary.growing
    searching, hold = left >= SCHEDULE.min_iterations, SCHEDULE.hold_grown if summary.growing else SCHEDULE.hold
    return CoolingState(
        cooling_power=SCHEDULE.start if searching else SCHEDULE.short_power,
        cooling_step=max(SCHEDULE.step, SCHEDULE.pace / left) if searching else 0.0,
        # Documents that join score low at first, so that scores of other iterations could not be compared.
        cooling_first=summary.growing + hold,
        cooling_last=summary.growing + int(SCHEDULE.last * left),
        cooling_best=WORST_SCORE,
        cooling_best_power=SCHEDULE.start,
        cooling_high=SCHEDULE.start,
    )


def held_tokens(summary: Summary, seed: int) -> HeldTokens:
    """Return the tokens by which powers are compared; `seed` is the run's."""
    share = min(SCHEDULE.held_tokens / max(summary.tokens, 1), SCHEDULE.max_held)
    return HeldTokens(moves_seed=np.array(seed), held_share=share, held_before=share)


def next_state(before: CollapsedGlobalState, after: GlobalStateT, delta: Delta) -> GlobalStateT:
    """Return the global state with the power of the next sweep.

    Parameters
    ----------
    before, after : CollapsedGlobalState
        The global state before the sweep, and after it so far.
    delta : Delta
        `HeldScoreSums`, of the state that the sweep began with.

    Returns
    -------
    CollapsedGlobalState
        `after` with the next step of the search.
    """
    old, sums = before.cooling, delta.read(HeldScoreSums)
    if old is None or sums is None or not before.searching:
        return after
    state = replace(old, cooling_sweeps=old.cooling_sweeps + 1)
    if state.cooling_sweeps <= old.cooling_first:
        return replace(after, cooling=state)
    state = _scored(state, float(sums.cooling_score[0]), max(float(sums.cooling_score[1]), 1.0))
    rising, late = state.cooling_step > 0.0, state.cooling_sweeps >= old.cooling_last
    bound = 1.0 if rising else SCHEDULE.lowest
    turning = state.cooling_falls >= SCHEDULE.falls or old.cooling_power == bound
    if not turning and not late:
        return replace(after, cooling=_stepped(state))
    best = state.cooling_best_power
    if rising and not late:
        state = replace(state, cooling_high=best, cooling_step=-state.cooling_step)
        return replace(after, cooling=_stepped(replace(state, cooling_best=WORST_SCORE, cooling_falls=0)))
    # Scores also rise as topics converge: the best power seems larger than it is on the way up, and smaller on the way
    # down.
    power = best if rising else 0.5 * (state.cooling_high + best)
    return replace(after, cooling=replace(state, cooling_power=power, cooling_step=0.0))


def _scored(state: CoolingState, log_probability: float, tokens: float) -> CoolingState:
    """Return the state with a score; it belongs to the power of the sweep before."""
    score = log_probability / tokens
    if score > state.cooling_best:
        power = min(max(state.cooling_power - state.cooling_step, SCHEDULE.lowest), 1.0)
        return replace(state, cooling_best=score, cooling_best_power=power, cooling_falls=0)
    fallen = score < state.cooling_best - SCHEDULE.fall / math.sqrt(tokens)
    return replace(state, cooling_falls=state.cooling_falls + 1) if fallen else state


def _stepped(state: CoolingState) -> CoolingState:
    """Return the state with the next power."""
    power = state.cooling_power + state.cooling_step
    return replace(state, cooling_power=min(max(power, SCHEDULE.lowest), 1.0))


def released(after: GlobalStateT) -> GlobalStateT:
    """Return the global state, from which on held-out tokens count again if the search has ended."""
    if after.held is None or after.searching:
        return after
    return replace(after, held=replace(after.held, held_share=0.0))


def carried(global_state: GlobalStateT, known: GlobalStateT, flatten: float | None) -> GlobalStateT:
    """Return the global state with the power that another run has found, unless the options name one."""
    if flatten is not None or known.cooling is None:
        return global_state
    return replace(global_state, cooling=replace(known.cooling, cooling_step=0.0))


def figures(global_state: CollapsedGlobalState) -> dict[str, float]:
    """Return the power of the next sweep, where a fit chooses it."""
    return {} if global_state.cooling is None else {"power": global_state.cooling.cooling_power}
