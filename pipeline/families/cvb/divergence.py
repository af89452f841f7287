"""Divergence of the hyperparameters' posteriors from their priors, for the bound of the HDP."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.families.cvb.global_state import HdpGlobalState
from collapsium.workers.families.cvb.sums import TauSums
from collapsium.workers.special_functions import betaln, digamma, gammaln


def geometric_mean(posterior: npt.NDArray[np.float64]) -> float:
    """Return G[y] = exp(psi(a)) / b of a Gamma with shape a and rate b."""
    return float(special.exp(digamma(posterior[0])) / posterior[1])


def divergence(global_state: HdpGlobalState, delta: Delta) -> float:
    """Return the sum of KL(q|p) over the hyperparameters, each from the parameters of its current q."""
    total = 0.0
    for posterior, prior in (
        (global_state.alpha_posterior, global_state.alpha_prior),
        (global_state.gamma_posterior, global_state.gamma_prior),
        (global_state.beta_posterior, global_state.beta_prior),
    ):
        if prior is not None and posterior.size:
            total += _gamma_divergence(posterior, prior)
    sticks = global_state.stick_posterior
    if sticks.size:
        both = sticks.sum(axis=1)
        log_stick, log_rest = digamma(sticks[:, 0]) - digamma(both), digamma(sticks[:, 1]) - digamma(both)
        entropy = betaln(*sticks.T) - (sticks[:, 0] - 1) * log_stick - (sticks[:, 1] - 1) * log_rest
        gamma = global_state.gamma
        log_gamma = special.log(
            gamma if global_state.gamma_prior is None else geometric_mean(global_state.gamma_posterior)
        )
        total += float((-entropy - log_gamma - (gamma - 1.0) * log_rest).sum())
    tau = delta.read(TauSums)
    if tau is not None:
        words, prior_tau, tau_total = global_state.vocabulary, global_state.tau_prior, global_state.tau_total
        total += float(gammaln(tau_total)) - tau.tau_gammaln
        total += words * float(gammaln(prior_tau)) - float(gammaln(words * prior_tau))
        total += tau.tau_digamma - float(digamma(tau_total)) * tau.tau_more
    return total


def _gamma_divergence(q: npt.NDArray[np.float64], p: npt.NDArray[np.float64]) -> float:
    """Return KL between two Gammas given as (shape, rate)."""
    return float(
        (q[0] - p[0]) * digamma(q[0])
        - gammaln(q[0])
        + gammaln(p[0])
        + p[0] * special.log(q[1] / p[1])
        + q[0] * (p[1] - q[1]) / q[1]
    )
