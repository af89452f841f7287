"""Updates of the global state of collapsed topics after a sweep, with what held-out tokens decide.

The search for the inverse temperature of responsibilities compares two halves of the documents. Tempered
responsibilities are proportional to the weights raised to the inverse temperature; below 1, they spread a token over
more topics. Hofmann (1999, section 3.3) chooses the inverse temperature of his tempered EM by held-out tokens. The
best one grows with the length of documents and with how sharply topics differ.

In each sweep of the search, every other document has a slightly larger inverse temperature, and the rest a smaller one;
in the next sweeps, it is the other way round. Scores rise in both halves as topics form, so that the difference
of the gains shows in which direction the inverse temperature is better (Kiefer and Wolfowitz 1952).

Small active sets are tried in large corpora. A document's active set has room for many more topics than the document
has, as shares of a fraction of a token add up: on texts they predict its other tokens. Where topics are as sharp as in
simulated corpora, they are noise. Sweeps over small active sets then take half of the time or less, and end in topics
that predict better.

For some sweeps, half of the documents have small active sets. Scores rise in both halves as topics form, so that
the change of their difference is what these documents lose. Where that is little, all documents get small active sets.
What topics gain by it shows in all documents alike: active sets stay small if all score higher.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.delta import Delta
from collapsium.workers.families.cvb import schedule
from collapsium.workers.families.cvb.active_topics import MAX_COMPLETE_TOPICS
from collapsium.workers.families.cvb.global_state import (
    COLDER,
    HOTTER,
    LARGE_SETS,
    SMALL_SETS,
    ActiveSetTrial,
    CollapsedGlobalState,
    HeldScoreSums,
    SmallActiveSets,
    StepSums,
    SweepSums,
    TemperatureSearch,
    TopicChanges,
    TopicTotals,
)
from collapsium.workers.families.cvb.options import CollapsedOptions
from collapsium.workers.families.cvb.parameters import Parameters
from collapsium.workers.families.cvb.schedule import Phase
from collapsium.workers.families.document_entries import PlainSums

if TYPE_CHECKING:
    from collapsium.workers.families.family import Summary


GlobalStateT = TypeVar("GlobalStateT", bound=CollapsedGlobalState)


def begin_search(summary: Summary) -> TemperatureSearch | None:
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
    return TemperatureSearch(
        inverse_temperature=inverse if searching else schedule.SHORT_INVERSE_TEMPERATURE,
        spread=schedule.TEMPERATURE_SPREAD if searching else 0.0,
        # Documents that join score low at first, so that scores of other iterations could not be compared.
        first=summary.growing + forming,
        last=summary.growing + int(schedule.SEARCH_END * iterations),
    )


def step_search(before: CollapsedGlobalState, after: GlobalStateT, delta: Delta) -> GlobalStateT:
    """Return the global state with the inverse temperature of the next sweep."""
    old, sums = before.temperature_search, delta.read(HeldScoreSums)
    if old is None or sums is None or not before.searching:
        return after
    state = replace(old, sweeps=old.sweeps + 1)
    if before.changing:
        # What topics gain by the change is not due to the temperature.
        return replace(after, temperature_search=replace(state, scores=np.zeros(2)))
    if state.sweeps % schedule.SWEEPS_PER_TEMPERATURE == 1:
        scores, tokens = sums.in_groups(COLDER, HOTTER)
        inverse = old.inverse_temperature
        # A score is taken before its sweep, so the change of the score belongs to the previous step, whose halves were
        # swapped.
        formed = old.sweeps >= old.first + schedule.SWEEPS_PER_TEMPERATURE
        if old.scores.any() and formed and tokens.all():
            gains = scores - old.scores
            change = schedule.TEMPERATURE_GAIN * (float(gains[1] - gains[0]) / (2.0 * old.spread))
            largest = schedule.MAX_TEMPERATURE_CHANGE
            inverse = _within_bounds(inverse + min(max(change, -largest), largest))
        state = replace(state, inverse_temperature=inverse, scores=scores)
    if state.sweeps % schedule.SWEEPS_PER_TEMPERATURE == 0:
        state = replace(state, spread=-old.spread)
    # At the end, the mean inverse temperature of the last sweeps stays.
    averaged = schedule.AVERAGED_SHARE * max(state.last - state.first, 0)
    if state.sweeps >= state.last - averaged:
        total, count = state.sum + state.inverse_temperature, state.averaged + 1
        state = replace(state, sum=total, averaged=count)
    if state.sweeps >= state.last:
        mean = _within_bounds(state.sum / state.averaged)
        state = replace(state, spread=0.0, inverse_temperature=mean)
    return replace(after, temperature_search=state)


def _within_bounds(inverse: float) -> float:
    return min(max(inverse, schedule.MIN_INVERSE_TEMPERATURE), schedule.MAX_INVERSE_TEMPERATURE)


def end_search(after: GlobalStateT) -> GlobalStateT:
    """Return the global state after a sweep: once the search has ended, the next sweep counts its held-out tokens."""
    if after.held is None or after.searching:
        return after
    return replace(after, held=replace(after.held, held_share=0.0))


def continue_search(after: GlobalStateT) -> GlobalStateT:
    """Return the global state from which the search continues with fewer held-out tokens than split-merge moves had."""
    if after.temperature_search is None or after.held is None:
        return after
    held = replace(after.held, held_share=schedule.search_share(after.corpus_tokens))
    return replace(after, held=held, temperature_search=replace(after.temperature_search, scores=np.zeros(2)))


def begin_trial(summary: Summary, options: CollapsedOptions, search: TemperatureSearch | None) -> ActiveSetTrial | None:
    """Return the state before the trial; None for fits without one."""
    if search is None or not search.spread or summary.tokens < schedule.MIN_TRIAL_TOKENS or options.most_active:
        return None
    if options.topics <= MAX_COMPLETE_TOPICS or search.first > _last_begin(search):
        return None
    return ActiveSetTrial(trial_sweeps=0, trial_small=SmallActiveSets.NOWHERE)


def _last_begin(search: TemperatureSearch) -> int:
    """Return the last sweep of the temperature search after which a trial may begin."""
    return search.last - schedule.trial_sweeps() - schedule.SEARCH_SWEEPS_AFTER_TRIAL


def step_trial(before: CollapsedGlobalState, after: GlobalStateT, delta: Delta) -> GlobalStateT:
    """Return the global state with the active sets of the next sweep."""
    old, search, sums = before.trial, before.temperature_search, delta.read(HeldScoreSums)
    if old is None or delta.read(SweepSums) is None:
        return after
    state = replace(old, trial_selecting=False)
    begins = (
        before.phase is Phase.TEMPERATURE_SEARCH
        and old.trial_sweeps == 0
        and search is not None
        and search.sweeps <= _last_begin(search)
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
        return end_trial(state)
    return state


def end_trial(state: ActiveSetTrial) -> ActiveSetTrial:
    """Return the state after a trial from which all documents have large active sets again."""
    large = SmallActiveSets.NOWHERE
    return replace(state, trial_sweeps=schedule.trial_sweeps(), trial_small=large, trial_selecting=True)


Vector = npt.NDArray[np.float64]

FORGETTING = 0.7  # Exponent of averages over minibatches: minibatch n has the weight n^-FORGETTING
# Share of all tokens by which rounding in the rows of many words may bring a topic without tokens below zero; on
# reviews, 1e-10 was seen after 200 iterations
MAX_ROUNDING = 1e-8


def of_corpus(global_state: GlobalStateT, delta: Delta) -> tuple[GlobalStateT, SweepSums | None]:
    """Return the sums over the documents of the corpus, and the global state with their averages.

    In the stochastic schedule, the sums of a minibatch are scaled to the corpus and averaged with earlier ones, with
    decaying weights. In the batch schedule, the sums are over the corpus.
    """
    swept, step = delta.read(SweepSums), delta.read(StepSums)
    if swept is None or step is None:
        return global_state, swept
    scale, number = global_state.corpus_tokens / max(swept.tokens, 1.0), global_state.minibatches + 1
    weight = number**-FORGETTING
    log_eta, tables = swept.log_eta * scale, None if swept.tables is None else swept.tables * scale
    if number > 1 and global_state.corpus_log_eta is not None:
        log_eta = (1 - weight) * global_state.corpus_log_eta + weight * log_eta
    if number > 1 and tables is not None and global_state.corpus_tables is not None:
        tables = (1 - weight) * global_state.corpus_tables + weight * tables
    after = replace(
        global_state,
        steps=global_state.steps + step.batches / step.shards,
        minibatches=number,
        corpus_log_eta=log_eta,
        corpus_tables=tables,
    )
    return after, replace(swept, log_eta=log_eta, tables=tables)


def counted(before: CollapsedGlobalState, after: GlobalStateT, delta: Delta, parameters: Parameters) -> GlobalStateT:
    """Return the global state with the counts after a delta, and the next steps of what held-out tokens decide."""
    totals, plain = delta.read(TopicTotals), delta.read(PlainSums)
    counted = replace(
        after,
        topic_moments=moved_moments(after, delta),
        topic_log_absent=moved_log_absent(after, delta),
        topic_ahead=after.topic_ahead if totals is None else over_bands(totals.topic_ahead),
        spread_weight=after.spread_weight if parameters.active is None else parameters.active.following,
        topic_plain=after.topic_plain if plain is None else plain.topic_plain,
        # The rows have them from here on.
        first_weights=None,
        first_means=None,
    )
    if before.held is None:
        return decide(before, counted, delta)
    swept, held = delta.read(SweepSums), replace(before.held, held_before=before.held.held_share)
    tokens = 0.0
    if swept is not None:
        tokens = swept.held_out or 0.0
    elif held.held_share:
        # At the start, whose deltas have counts alone.
        counts = counted.tokens if plain is None else plain.topic_plain
        tokens = max(after.corpus_tokens - float(np.rint(counts.sum())), 0.0)
    return decide(before, replace(counted, held=replace(held, held_tokens=tokens)), delta)


def decide(before: CollapsedGlobalState, after: GlobalStateT, delta: Delta) -> GlobalStateT:
    """Return the global state with the temperature and the active sets of the next sweep; see `schedule`."""
    after = step_search(before, after, delta)
    after = step_trial(before, after, delta)
    # Split-merge moves release the tokens that they hold out themselves.
    return after if before.phase is Phase.SPLIT_MERGE else end_search(after)


def carried(global_state: GlobalStateT, known: GlobalStateT, options: CollapsedOptions) -> GlobalStateT:
    """Return the global state of a warm start, with the temperature and the active sets that another run has chosen."""
    if options.inverse_temperature is not None:
        return global_state
    if known.temperature_search is not None:
        global_state = replace(global_state, temperature_search=replace(known.temperature_search, spread=0.0))
    trial = known.trial
    if trial is None or not trial.trial_small or options.most_active:
        return global_state
    if trial.trial_sweeps < schedule.trial_sweeps():
        # The other run stopped in its trial: some documents have small active sets that nothing has confirmed.
        return replace(global_state, trial=end_trial(trial))
    # New documents begin with large active sets, so that the first sweep selects.
    return replace(global_state, trial=replace(trial, trial_selecting=True))


def metrics(global_state: CollapsedGlobalState) -> dict[str, float]:
    """Return the inverse temperature and the share of small active sets from the next sweep on, where fits choose."""
    metrics, trial = {}, global_state.trial
    if global_state.temperature_search is not None:
        metrics["inverse_temperature"] = global_state.temperature_search.inverse_temperature
    if trial is not None:
        metrics["small_active_sets"] = trial.trial_small / SmallActiveSets.EVERYWHERE
    return metrics


def moved_moments(global_state: CollapsedGlobalState, delta: Delta) -> Vector:
    """Return E[n_k] and V[n_k] after a delta, shape (2, topics)."""
    moments = np.array(global_state.topic_moments)
    step, totals = delta.read(StepSums), delta.read(TopicTotals)
    if step is not None:
        moments[0] = (step.decay * moments[0] + step.topic_gain) / step.shards
        return moments
    if totals is not None:
        # With active responsibilities, the background is spread anew.
        counts = over_bands(totals.topic_total)
        # None is below zero by rounding; lower values indicate a damaged checkpoint.
        rounding = MAX_ROUNDING * max(float(counts.sum()), 0.0)
        moments[0] = np.where((counts < 0.0) & (counts >= -rounding), 0.0, counts)
        if totals.topic_variance_total is not None:
            moments[1] = totals.topic_variance_total
        return moments
    changes = delta.read(TopicChanges) or TopicChanges()
    for row, values in enumerate((changes.topic, changes.topic_variance)):
        if values is not None:
            moments[row] += values
    return moments


def over_bands(totals: Vector) -> Vector:
    """Return totals of topics, shape (topics,), from the totals over the bands of the vocabulary, in their order."""
    summed: Vector = totals if totals.ndim == 1 else totals.sum(axis=0)
    return summed


def moved_log_absent(global_state: CollapsedGlobalState, delta: Delta) -> Vector:
    """Return Z[n_k] after a delta, shape (topics,)."""
    totals, changes = delta.read(TopicTotals), delta.read(TopicChanges)
    if totals is not None and totals.topic_log_absent_total is not None:
        return totals.topic_log_absent_total
    if changes is None or changes.topic_log_absent is None:
        return global_state.topic_log_absent
    after: Vector = global_state.topic_log_absent + changes.topic_log_absent
    return after
