"""The hierarchical Dirichlet process by collapsed variational inference on a shard (CV-HDP).

Teh, Kurihara and Welling (2007): theta_d ~ Dir(alpha pi), phi_k ~ Dir(beta tau), with posteriors over alpha, gamma and
pi and, as options, beta and tau. Topic assignments are LDA's with a_k = G[alpha] G[pi_k] and b_w = G[beta] G[tau_w],
where G[y] = exp E[log y]; prediction uses expectations in their place.
"""

from __future__ import annotations

import numpy as np

from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta, Part, fresh
from collapsium.workers.families.cvb.global_state import HdpGlobalState, MovesState, Vector
from collapsium.workers.families.cvb.parameters import CollapsedOptions, Parameters, active_settings
from collapsium.workers.families.cvb.plain_topics import PlainTopicsShardModel
from collapsium.workers.families.cvb.states import CollapsedRows
from collapsium.workers.families.topic_arrays import HDP_ARRAYS
from collapsium.workers.special_functions import digamma, gammaln


def predictive_words(rows: CollapsedRows, global_state: HdpGlobalState) -> Vector:
    """Return E[beta] E[tau_w] of the words of the rows."""
    tau = _tau(rows, global_state)
    share = np.full(rows.words, 1.0 / global_state.vocabulary) if tau is None else tau / global_state.tau_total
    words: Vector = global_state.beta * share
    return words


def _tau(rows: CollapsedRows, global_state: HdpGlobalState) -> Vector | None:
    """Return the parameters of q(tau) for the words of the rows; None while tau is fixed at 1/W."""
    if global_state.tau_total <= 0:
        return None
    tau: Vector = rows.tables + global_state.tau_prior
    return tau


class HdpShardModel(PlainTopicsShardModel[CollapsedOptions, HdpGlobalState]):
    """The hierarchical Dirichlet process by collapsed variational inference, on a shard."""

    global_state_type = HdpGlobalState
    arrays = HDP_ARRAYS

    def moves(self, global_state: HdpGlobalState) -> MovesState | None:
        """Return the moves of topics; None where topics do not move."""
        return global_state.moves

    def update_parameters(self, rows: CollapsedRows, global_state: HdpGlobalState) -> Parameters:
        """Return the parameters of the updates: geometric expectations G[y] = exp E[log y]."""
        tau = _tau(rows, global_state)
        if tau is None:
            share = np.full(rows.words, 1.0 / global_state.vocabulary)
        else:
            share = special.exp(digamma(tau) - digamma(global_state.tau_total))
        topics = global_state.alpha_geometric * global_state.pi_geometric
        return Parameters(
            topics=topics,
            concentration=global_state.alpha,
            words=np.maximum(global_state.beta_geometric * share, 1e-12),
            total=global_state.beta,
            order=self.options.order,
            tables=self.options.needs_tables,
            moments=global_state.moments,
            seeds=global_state.seed_rows(rows.word_number),
            active=active_settings(global_state, self.options, topics, moving=_moving(global_state)),
        )

    def predictive_parameters(self, rows: CollapsedRows, global_state: HdpGlobalState) -> Parameters:
        """Return the parameters of prediction: expectations."""
        topics = global_state.alpha * global_state.pi
        return Parameters(
            topics=topics,
            concentration=global_state.alpha,
            words=predictive_words(rows, global_state),
            total=global_state.beta,
            seeds=global_state.seed_rows(rows.word_number),
            active=active_settings(global_state, self.options, topics, moving=_moving(global_state)),
        )

    def fold(self, block: CollapsedRows, delta: Delta, global_state: HdpGlobalState) -> tuple[CollapsedRows, Delta]:
        """Return a block of the vocabulary after the changes of its rows, with `TauSums` too where tau is learned."""
        after, folded = super().fold(block, delta, global_state)
        tau = _tau(block, global_state)
        return after, folded if tau is None else folded + Delta(_divergence(tau, global_state.tau_prior))


def _moving(global_state: HdpGlobalState) -> bool:
    """Return whether topics move, or superfluous ones were found and rounds go on."""
    moves = global_state.moves
    return moves is not None and (moves.moving or moves.superfluous)


def _divergence(tau: Vector, prior: float) -> dict[str, Part]:
    """Return `TauSums`, from which KL(q(tau) | p(tau)) is computed."""
    tables = tau - prior
    return {
        "tau_gammaln": fresh(float(gammaln(tau).sum())),
        "tau_digamma": fresh(float((tables * digamma(tau)).sum())),
        "tau_more": fresh(float(tables.sum())),
    }
