"""Trial of small active sets in large corpora, by held-out tokens.

A document's active set has room for many more topics than the document has, as shares of a fraction of a token add up:
on texts they predict its other tokens. Where topics are as sharp as those of drawn corpora, they are noise. Sweeps over
small active sets then take half of the time or less, and end in topics that predict better.

For some sweeps, half of the documents have small active sets. What scores gain as topics form is the same in both
halves, so that the change of their difference is what these documents lose. Where that is little, all documents get
small active sets. What topics gain by it shows in all documents alike: active sets stay small if all score higher.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from collapsium.workers.families.cvb.active_topics import MAX_COMPLETE_TOPICS
from collapsium.workers.families.cvb.global_state import (
    ActiveSetTrial,
    CollapsedGlobalState,
    CoolingState,
    SmallActiveSets,
)
from collapsium.workers.families.cvb.sums import LARGE_SETS, SMALL_SETS, HeldScoreSums, SweepSums
from collapsium.workers.families.cvb.topic_moves import is_held_for_moves

if TYPE_CHECKING:
    from collapsium.workers.arrays.delta import Delta
    from collapsium.workers.families.cvb.options import CollapsedOptions
    from collapsium.workers.families.family import Summary

GlobalStateT = TypeVar("GlobalStateT", bound=CollapsedGlobalState)


@dataclass(frozen=True)
class TrialSchedule:
    """Corpora and sweeps of the trial, and what it decides by."""

    # Tokens of a corpus, at least: fits of smaller ones are over soon, and a trial takes longer than it saves
    min_tokens: float = 4e6
    large: int = 7  # Sweeps in which the halves are compared while all active sets are large
    half: int = 8  # Sweeps in which they are compared while one half has small active sets
    small: int = 8  # Sweeps with small active sets in all documents, before the last comparison
    compared: int = 4  # Last sweeps with small active sets in a half, and in all documents, whose scores are compared
    remaining: int = 4  # Sweeps of the search for the power after the trial, at least
    # Loss of score of documents with small active sets, in nats a token, up to which all get them: reviews, news and
    # blog entries lose 0.03 to 0.065, papers 0.016 to 0.023, drawn corpora 0.017 at most
    max_loss: float = 0.02
    # Gain of score of all documents, in nats a token, from which active sets stay small: scores of papers, whose topics
    # gain nothing, rise by as much in eight sweeps
    min_gain: float = 0.005

    @property
    def second(self) -> int:
        """Sweep that selects the active sets of half of the documents, from 1; scores before it are not compared."""
        return self.large + 1

    @property
    def third(self) -> int:
        """The same of the sweep that selects those of all."""
        return self.second + self.half + 1

    @property
    def sweeps(self) -> int:
        """Sweeps of a trial that does not end with a loss of the half."""
        return self.third + self.small


SCHEDULE = TrialSchedule()


def initial_state(summary: Summary, options: CollapsedOptions, search: CoolingState | None) -> ActiveSetTrial | None:
    """Return the state before the trial; None for fits without one."""
    if search is None or not search.cooling_step or summary.tokens < SCHEDULE.min_tokens or options.most_active:
        return None
    if options.topics <= MAX_COMPLETE_TOPICS or search.cooling_first > _last_begin(search):
        return None
    return ActiveSetTrial(trial_sweeps=0, trial_small=SmallActiveSets.NOWHERE)


def _last_begin(search: CoolingState) -> int:
    """Return the last sweep after which a trial may begin."""
    return search.cooling_last - SCHEDULE.sweeps - SCHEDULE.remaining


def next_state(before: CollapsedGlobalState, after: GlobalStateT, delta: Delta) -> GlobalStateT:
    """Return the global state with the active sets of the next sweep."""
    old, sums = before.trial, delta.read(HeldScoreSums)
    if old is None or delta.read(SweepSums) is None:
        return after
    state = replace(old, trial_selecting=False)
    if sums is not None and _in_trial(before, old):
        scores, tokens = sums.in_groups(LARGE_SETS, SMALL_SETS)
        if tokens.all():
            state = _compared(state, float(scores[1] - scores[0]), float(scores @ tokens / tokens.sum()))
    return replace(after, trial=state)


def _in_trial(before: CollapsedGlobalState, state: ActiveSetTrial) -> bool:
    """Return whether scores are compared: not while topics move, nor where too few sweeps are left."""
    search, held = before.cooling, before.held
    if search is None or held is None or not before.searching or state.trial_sweeps >= SCHEDULE.sweeps:
        return False
    if is_held_for_moves(held.held_share, before.corpus_tokens) or before.releasing:
        return False
    return state.trial_sweeps > 0 or search.cooling_first <= search.cooling_sweeps <= _last_begin(search)


def _compared(state: ActiveSetTrial, difference: float, score: float) -> ActiveSetTrial:
    """Return the state after another sweep.

    Before it, the half that gets small active sets first scored higher by `difference`, and all documents had `score`.
    """
    sweeps, loss, gain = state.trial_sweeps + 1, state.trial_loss, state.trial_gain
    if sweeps <= SCHEDULE.large:
        loss += difference / SCHEDULE.large
    elif SCHEDULE.second < sweeps < SCHEDULE.third:
        loss -= difference / SCHEDULE.half
    if SCHEDULE.third - SCHEDULE.compared <= sweeps < SCHEDULE.third:
        gain -= score / SCHEDULE.compared
    elif sweeps > SCHEDULE.sweeps - SCHEDULE.compared:
        gain += score / SCHEDULE.compared
    state = replace(state, trial_sweeps=sweeps, trial_loss=loss, trial_gain=gain)
    if sweeps == SCHEDULE.large:
        return replace(state, trial_small=SmallActiveSets.IN_HALF, trial_selecting=True)
    if sweeps == SCHEDULE.third - 1 and loss <= SCHEDULE.max_loss:
        return replace(state, trial_small=SmallActiveSets.EVERYWHERE, trial_selecting=True)
    if sweeps == SCHEDULE.third - 1 or (sweeps == SCHEDULE.sweeps and gain < SCHEDULE.min_gain):
        return _ended(state)
    return state


def _ended(state: ActiveSetTrial) -> ActiveSetTrial:
    """Return the state after a trial from which all documents have large active sets again."""
    large = SmallActiveSets.NOWHERE
    return replace(state, trial_sweeps=SCHEDULE.sweeps, trial_small=large, trial_selecting=True)


def carried(global_state: GlobalStateT, known: GlobalStateT, options: CollapsedOptions) -> GlobalStateT:
    """Return the global state of a warm start, with the active sets that another run has decided for."""
    trial = known.trial
    if trial is None or not trial.trial_small or options.most_active or options.inverse_temperature is not None:
        return global_state
    if trial.trial_sweeps < SCHEDULE.sweeps:
        # The other run stopped in its trial: some documents have small active sets that nothing has confirmed.
        return replace(global_state, trial=_ended(trial))
    # New documents begin with large active sets, so that the first sweep selects.
    return replace(global_state, trial=replace(trial, trial_selecting=True))


def figures(global_state: CollapsedGlobalState) -> dict[str, float]:
    """Return the share of the documents that have small active sets from the next sweep on, in fits that try them."""
    trial = global_state.trial
    return {} if trial is None else {"small_active_sets": trial.trial_small / SmallActiveSets.EVERYWHERE}
