"""Trial of small active sets in large corpora, by held-out tokens.

A document's active set has room for many more topics than the document has, as shares of a fraction of a token add up:
on texts they predict its other tokens. Where topics are as sharp as in simulated corpora, they are noise. Sweeps
over small active sets then take half of the time or less, and end in topics that predict better.

For some sweeps, half of the documents have small active sets. Scores rise in both halves as topics form, so that
the change of their difference is what these documents lose. Where that is little, all documents get small active sets.
What topics gain by it shows in all documents alike: active sets stay small if all score higher.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from collapsium.workers.families.cvb import schedule
from collapsium.workers.families.cvb.active_topics import MAX_COMPLETE_TOPICS
from collapsium.workers.families.cvb.global_state import (
    ActiveSetTrial,
    CollapsedGlobalState,
    CoolingState,
    SmallActiveSets,
)
from collapsium.workers.families.cvb.schedule import Phase
from collapsium.workers.families.cvb.sums import LARGE_SETS, SMALL_SETS, HeldScoreSums, SweepSums

if TYPE_CHECKING:
    from collapsium.workers.arrays.delta import Delta
    from collapsium.workers.families.cvb.options import CollapsedOptions
    from collapsium.workers.families.family import Summary

GlobalStateT = TypeVar("GlobalStateT", bound=CollapsedGlobalState)


def begin(summary: Summary, options: CollapsedOptions, search: CoolingState | None) -> ActiveSetTrial | None:
    """Return the state before the trial; None for fits without one."""
    if search is None or not search.cooling_step or summary.tokens < schedule.MIN_TRIAL_TOKENS or options.most_active:
        return None
    if options.topics <= MAX_COMPLETE_TOPICS or search.cooling_first > _last_begin(search):
        return None
    return ActiveSetTrial(trial_sweeps=0, trial_small=SmallActiveSets.NOWHERE)


def _last_begin(search: CoolingState) -> int:
    """Return the last sweep of the temperature search after which a trial may begin."""
    return search.cooling_last - schedule.trial_sweeps() - schedule.SEARCH_SWEEPS_AFTER_TRIAL


def step(before: CollapsedGlobalState, after: GlobalStateT, delta: Delta) -> GlobalStateT:
    """Return the global state with the active sets of the next sweep."""
    old, search, sums = before.trial, before.cooling, delta.read(HeldScoreSums)
    if old is None or delta.read(SweepSums) is None:
        return after
    state = replace(old, trial_selecting=False)
    begins = (
        before.phase is Phase.TEMPERATURE_SEARCH
        and old.trial_sweeps == 0
        and search is not None
        and search.cooling_sweeps <= _last_begin(search)
    )
    if sums is not None and (begins or before.phase is Phase.ACTIVE_SET_TRIAL):
        scores, tokens = sums.in_groups(LARGE_SETS, SMALL_SETS)
        if tokens.all():
            state = _compared(state, float(scores[1] - scores[0]), float(scores @ tokens / tokens.sum()))
    return replace(after, trial=state)


def _compared(state: ActiveSetTrial, difference: float, score: float) -> ActiveSetTrial:
    """Return the state after another sweep.

    Before it, the half that gets small active sets first scored higher by `difference`, and all documents had `score`.
    """
    sweeps, loss, gain = state.trial_sweeps + 1, state.trial_loss, state.trial_gain
    in_half, everywhere, last = schedule.half_selection(), schedule.full_selection(), schedule.trial_sweeps()
    if sweeps < in_half:
        loss += difference / schedule.TRIAL_LARGE_SWEEPS
    elif in_half < sweeps < everywhere:
        loss -= difference / schedule.TRIAL_HALF_SWEEPS
    if everywhere - schedule.TRIAL_COMPARED_SWEEPS <= sweeps < everywhere:
        gain -= score / schedule.TRIAL_COMPARED_SWEEPS
    elif sweeps > last - schedule.TRIAL_COMPARED_SWEEPS:
        gain += score / schedule.TRIAL_COMPARED_SWEEPS
    state = replace(state, trial_sweeps=sweeps, trial_loss=loss, trial_gain=gain)
    if sweeps == in_half - 1:
        return replace(state, trial_small=SmallActiveSets.IN_HALF, trial_selecting=True)
    if sweeps == everywhere - 1 and loss <= schedule.MAX_TRIAL_LOSS:
        return replace(state, trial_small=SmallActiveSets.EVERYWHERE, trial_selecting=True)
    if sweeps == everywhere - 1 or (sweeps == last and gain < schedule.MIN_TRIAL_GAIN):
        return end(state)
    return state


def end(state: ActiveSetTrial) -> ActiveSetTrial:
    """Return the state after a trial from which all documents have large active sets again."""
    large = SmallActiveSets.NOWHERE
    return replace(state, trial_sweeps=schedule.trial_sweeps(), trial_small=large, trial_selecting=True)


def carried(global_state: GlobalStateT, known: GlobalStateT, options: CollapsedOptions) -> GlobalStateT:
    """Return the global state of a warm start, with the active sets that another run has chosen."""
    trial = known.trial
    if trial is None or not trial.trial_small or options.most_active or options.inverse_temperature is not None:
        return global_state
    if trial.trial_sweeps < schedule.trial_sweeps():
        # The other run stopped in its trial: some documents have small active sets that nothing has confirmed.
        return replace(global_state, trial=end(trial))
    # New documents begin with large active sets, so that the first sweep selects.
    return replace(global_state, trial=replace(trial, trial_selecting=True))


def figures(global_state: CollapsedGlobalState) -> dict[str, float]:
    """Return the share of the documents that have small active sets from the next sweep on, in fits that try them."""
    trial = global_state.trial
    return {} if trial is None else {"small_active_sets": trial.trial_small / SmallActiveSets.EVERYWHERE}
