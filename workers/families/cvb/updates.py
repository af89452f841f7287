"""Updates of the global state of collapsed topics after a sweep."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.delta import Delta
from collapsium.workers.families.cvb import active_set_trial, temperature
from collapsium.workers.families.cvb.global_state import CollapsedGlobalState
from collapsium.workers.families.cvb.options import CollapsedOptions
from collapsium.workers.families.cvb.parameters import Parameters
from collapsium.workers.families.cvb.schedule import Phase
from collapsium.workers.families.cvb.sums import StepSums, SweepSums, TopicChanges, TopicTotals
from collapsium.workers.families.plain_tokens import PlainSums

Vector = npt.NDArray[np.float64]
GlobalStateT = TypeVar("GlobalStateT", bound=CollapsedGlobalState)

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
    after = temperature.step(before, after, delta)
    after = active_set_trial.step(before, after, delta)
    # Split-merge moves release the tokens that they hold out themselves.
    return after if before.phase is Phase.SPLIT_MERGE else temperature.end(after)


def carried(global_state: GlobalStateT, known: GlobalStateT, options: CollapsedOptions) -> GlobalStateT:
    """Return the global state of a warm start, with the temperature and the active sets that another run has chosen."""
    after = temperature.carried(global_state, known, options.inverse_temperature)
    return active_set_trial.carried(after, known, options)


def figures(global_state: CollapsedGlobalState) -> dict[str, float]:
    """Return the inverse temperature and the share of small active sets, in fits that choose them."""
    return temperature.figures(global_state) | active_set_trial.figures(global_state)


def moved_moments(global_state: CollapsedGlobalState, delta: Delta) -> Vector:
    """Return E[n_k] and V[n_k] after a delta, shape (2, topics)."""
    moments = np.array(global_state.topic_moments)
    step, totals = delta.read(StepSums), delta.read(TopicTotals)
    if step is not None:
        moments[0] = (step.decay * moments[0] + step.topic_gain) / step.shards
        return moments
    if totals is not None:
        # With active responsibilities, the background is spread anew.
        moments[0] = _without_rounding(over_bands(totals.topic_total))
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


def _without_rounding(totals: Vector) -> Vector:
    """Return totals of topics, none below zero by rounding; lower values indicate a damaged checkpoint."""
    rounding = MAX_ROUNDING * max(float(totals.sum()), 0.0)
    return np.where((totals < 0.0) & (totals >= -rounding), 0.0, totals)


def moved_log_absent(global_state: CollapsedGlobalState, delta: Delta) -> Vector:
    """Return Z[n_k] after a delta, shape (topics,)."""
    totals, changes = delta.read(TopicTotals), delta.read(TopicChanges)
    if totals is not None and totals.topic_log_absent_total is not None:
        return totals.topic_log_absent_total
    if changes is None or changes.topic_log_absent is None:
        return global_state.topic_log_absent
    after: Vector = global_state.topic_log_absent + changes.topic_log_absent
    return after
