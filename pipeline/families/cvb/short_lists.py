"""Trial of short lists of active topics in large corpora, by held-out tokens.

A document's list has room for many more topics than it has, as shares of a fraction of a token add up: on texts they
predict its other tokens. Where topics are as sharp as those of drawn corpora, they are noise. Sweeps over short lists
then take half of the time or less, and end in topics that predict better.

At first half of the documents have short lists. What scores gain as topics form is the same in both halves, so that the
change of their difference is what these documents lose. Where that is little, all get short lists. What topics gain
shows in all documents alike: lists stay short if the scores of all have not fallen by then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from collapsium.pipeline.families.cvb import cooling
from collapsium.workers.families.cvb.active_topics import SELECTION
from collapsium.workers.families.cvb.global_state import CollapsedGlobalState, CoolingState, ListsState
from collapsium.workers.families.cvb.sums import FULL_LISTS, SHORT_LISTS, HeldScoreSums

if TYPE_CHECKING:
    from collapsium.pipeline.families.base import Summary
    from collapsium.workers.arrays.delta import Delta
    from collapsium.workers.families.cvb.parameters import CollapsedOptions

GlobalStateT = TypeVar("GlobalStateT", bound=CollapsedGlobalState)


@dataclass(frozen=True)
class TrialSchedule:
    """Corpora and sweeps of the trial, and what it decides by."""

    min_tokens: float = 4e6
    """Tokens of a corpus, at least: fits of smaller ones are over soon, and topics of few tokens lose by short lists."""
    begin: int = 8
    """Sweeps in which the halves are compared before lists are shortened; the last of them shortens those of a half."""
    half: int = 8
    """Sweeps in which half of the documents have short lists, and the halves are compared."""
    all: int = 8
    """Sweeps in which all have short lists, before the last comparison."""
    compared: int = 4
    """Last sweeps with short lists of a half, and of all, whose scores are compared."""
    remaining: int = 4
    """Sweeps of the search for the power after the trial, at least."""
    max_loss: float = 0.02
    """Loss of score of documents with short lists, in nats a token, at which all get them: reviews, news and blog entries
    lose 0.03 to 0.065, papers 0.018 to 0.023, drawn corpora up to 0.015 or nothing."""

    @property
    def sweeps(self) -> int:
        """Sweeps of a trial that shortens the lists of all."""
        return self.begin + self.half + 1 + self.all


SCHEDULE = TrialSchedule()
NONE, HALF, ALL = range(3)
"""Documents with short lists."""


def initial_state(summary: Summary, options: CollapsedOptions, search: CoolingState | None) -> ListsState | None:
    """Return the state before the trial; None for fits without one."""
    if search is None or not search.cooling_step or summary.tokens < SCHEDULE.min_tokens or options.most_active:
        return None
    return ListsState(lists_sweeps=0, lists_short=NONE) if options.topics > SELECTION.max_complete else None


def next_state(before: CollapsedGlobalState, after: GlobalStateT, delta: Delta) -> GlobalStateT:
    """Return the global state with the lists of the next sweep.

    Parameters
    ----------
    before, after : CollapsedGlobalState
        The global state before the sweep, and after it so far.
    delta : Delta
        `HeldScoreSums`, of the state that the sweep began with.

    Returns
    -------
    CollapsedGlobalState
        `after` with the next step of the trial.
    """
    old, sums = before.lists, delta.read(HeldScoreSums)
    if old is None:
        return after
    state = replace(old, lists_selecting=False)
    if sums is not None and _in_trial(before, old):
        scores, tokens = sums.in_groups(FULL_LISTS, SHORT_LISTS)
        state = _compared(state, float(scores[1] - scores[0]), float(scores @ tokens / max(tokens.sum(), 1.0)))
    return replace(after, lists=state)


def _in_trial(before: CollapsedGlobalState, state: ListsState) -> bool:
    """Return whether scores are compared: not while topics move, nor where too few sweeps are left."""
    search, held = before.cooling, before.held
    if search is None or held is None or not before.searching or state.lists_sweeps >= SCHEDULE.sweeps:
        return False
    if held.held_share > cooling.SCHEDULE.max_held or before.releasing:
        return False
    last = search.cooling_last - SCHEDULE.sweeps - SCHEDULE.remaining
    return state.lists_sweeps > 0 or search.cooling_first <= search.cooling_sweeps <= last


def _compared(state: ListsState, difference: float, score: float) -> ListsState:
    """Return the state after another sweep.

    Before it, the half that has short lists first scored higher by `difference`, and all documents scored `score`.
    Scores are those before a sweep: those of new lists come two sweeps after the decision.
    """
    sweeps, gain, change = state.lists_sweeps + 1, state.lists_gain, state.lists_change
    first, second = SCHEDULE.begin, SCHEDULE.begin + SCHEDULE.half
    if sweeps <= first:
        gain -= difference / SCHEDULE.begin
    elif sweeps <= second:
        gain += difference / SCHEDULE.half
    if second + 1 - SCHEDULE.compared < sweeps <= second + 1:
        change -= score / SCHEDULE.compared
    elif sweeps > SCHEDULE.sweeps - SCHEDULE.compared:
        change += score / SCHEDULE.compared
    state = replace(state, lists_sweeps=sweeps, lists_gain=gain, lists_change=change)
    if sweeps == first - 1:
        return replace(state, lists_short=HALF, lists_selecting=True)
    if sweeps == second:
        if gain >= -SCHEDULE.max_loss:
            return replace(state, lists_short=ALL, lists_selecting=True)
        return replace(state, lists_short=NONE, lists_selecting=True, lists_sweeps=SCHEDULE.sweeps)
    if sweeps == SCHEDULE.sweeps and change < 0.0:
        return replace(state, lists_short=NONE, lists_selecting=True)
    return state


def carried(global_state: GlobalStateT, known: GlobalStateT, options: CollapsedOptions) -> GlobalStateT:
    """Return the global state with short lists if another run has found that they lose nothing."""
    if known.lists is None or known.lists.lists_short != ALL or options.most_active:
        return global_state
    return replace(global_state, lists=replace(known.lists, lists_selecting=False))


def figures(global_state: CollapsedGlobalState) -> dict[str, float]:
    """Return the share of the documents with short lists, in fits that try them."""
    return {} if global_state.lists is None else {"short_lists": global_state.lists.lists_short / ALL}
