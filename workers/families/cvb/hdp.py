"""The hierarchical Dirichlet process by collapsed variational inference, beside a shard (CV-HDP).

Teh, Kurihara and Welling (2007): theta_d ~ Dir(alpha pi), phi_k ~ Dir(beta tau), with posteriors over alpha, gamma and
pi and, as options, beta and tau. Topic assignments are LDA's with a_k = G[alpha] G[pi_k] and b_w = G[beta] G[tau_w],
where G[y] = exp E[log y]; prediction uses expectations in their place.
"""

from __future__ import annotations

import numpy as np

from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta, Part, fresh
from collapsium.workers.families.cvb.globals import HdpGlobals, MovesState, Vector
from collapsium.workers.families.cvb.parameters import CollapsedOptions, Parameters, active_settings
from collapsium.workers.families.cvb.shard_model import CollapsedShardModel
from collapsium.workers.families.cvb.states import CollapsedRows
from collapsium.workers.families.topic_arrays import HDP_ARRAYS
from collapsium.workers.special_functions import digamma, gammaln


def predictive_words(rows: CollapsedRows, globals: HdpGlobals) -> Vector:
    """Return E[beta] E[tau_w] of the words at hand."""
    tau = _tau(rows, globals)
    share = np.full(rows.words, 1.0 / globals.vocabulary) if tau is None else tau / globals.tau_total
    words: Vector = globals.beta * share
    return words


def _tau(rows: CollapsedRows, globals: HdpGlobals) -> Vector | None:
    """Return the parameters of q(tau) for the words at hand; None while tau is held at 1/W."""
    if globals.tau_total <= 0:
        return None
    tau: Vector = rows.tables + globals.tau_prior
    return tau


class HdpShardModel(CollapsedShardModel[CollapsedOptions, HdpGlobals]):
    """The hierarchical Dirichlet process by collapsed variational inference, beside a shard."""

    globals_type = HdpGlobals
    arrays = HDP_ARRAYS

    def moves(self, globals: HdpGlobals) -> MovesState | None:
        """Return the moves of topics; None where topics do not move."""
        return globals.moves

    def update_parameters(self, rows: CollapsedRows, globals: HdpGlobals) -> Parameters:
        """Return geometric expectations."""
        tau = _tau(rows, globals)
        if tau is None:
            share = np.full(rows.words, 1.0 / globals.vocabulary)
        else:
            share = special.exp(digamma(tau) - digamma(globals.tau_total))
        topics = globals.alpha_geometric * globals.pi_geometric
        moving = globals.moves is not None and globals.moves.moving
        return Parameters(
            topics=topics,
            concentration=globals.alpha,
            words=np.maximum(globals.beta_geometric * share, 1e-12),
            total=globals.beta,
            order=self.options.order,
            tables=self.options.needs_tables,
            moments=globals.moments,
            active=active_settings(globals, self.options, topics, moving=moving),
        )

    def predictive_parameters(self, rows: CollapsedRows, globals: HdpGlobals) -> Parameters:
        """Return expectations."""
        topics = globals.alpha * globals.pi
        moving = globals.moves is not None and globals.moves.moving
        return Parameters(
            topics=topics,
            concentration=globals.alpha,
            words=predictive_words(rows, globals),
            total=globals.beta,
            active=active_settings(globals, self.options, topics, moving=moving),
        )

    def fold(self, block: CollapsedRows, delta: Delta, globals: HdpGlobals) -> tuple[CollapsedRows, Delta]:
        """Add the rows of a delta to a block of the vocabulary; return `TauSums` too where tau is learned."""
        after, folded = super().fold(block, delta, globals)
        tau = _tau(block, globals)
        return after, folded if tau is None else folded + Delta(_divergence(tau, globals.tau_prior))


def _divergence(tau: Vector, prior: float) -> dict[str, Part]:
    """Return `TauSums`: KL(q(tau)|p) needs no more."""
    more = tau - prior
    return {
        "tau_gammaln": fresh(float(gammaln(tau).sum())),
        "tau_digamma": fresh(float((more * digamma(tau)).sum())),
        "tau_more": fresh(float(more.sum())),
    }
