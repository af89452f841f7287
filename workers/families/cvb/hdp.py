"""The hierarchical Dirichlet process by collapsed variational inference, beside a shard (CV-HDP).

Teh, Kurihara and Welling (2007): theta_d ~ Dir(alpha pi), phi_k ~ Dir(beta tau), with posteriors over alpha, gamma and
pi and, as options, beta and tau. Topic assignments are LDA's with a_k = G[alpha] G[pi_k] and b_w = G[beta] G[tau_w],
where G[y] = exp E[log y]; prediction uses expectations in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Arrays, Delta, Part, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb import common as collapsed
from collapsium.workers.families.cvb import stochastic
from collapsium.workers.families.cvb import topic_moves as moves
from collapsium.workers.families.cvb import warm_start as warming
from collapsium.workers.families.cvb.parameters import Parameters, listing
from collapsium.workers.families.topic_arrays import HDP_ARRAYS
from collapsium.workers.kernels.jit import Kernel
from collapsium.workers.special_functions import digamma, gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

ARRAYS = HDP_ARRAYS


def _tau(rows: Arrays, globals: Arrays) -> npt.NDArray[np.float64] | None:
    """Return the parameters of q(tau) for the words at hand; None while tau is held at 1/W."""
    if not globals["learn_tau"] or globals["tau_total"] <= 0:
        return None
    tau: npt.NDArray[np.float64] = rows["word_tables"] + float(globals["tau_prior"])
    return tau


def updating(rows: Arrays, globals: Arrays) -> Parameters:
    """Return the parameters of the updates: geometric expectations."""
    tau = _tau(rows, globals)
    if tau is None:
        share = np.full(len(next(iter(rows.values()))), 1.0 / float(globals["vocabulary"]))
    else:
        share = special.exp(digamma(tau) - digamma(float(globals["tau_total"])))
    topics = float(globals["alpha_geometric"]) * globals["pi_geometric"]
    return Parameters(
        topics=topics,
        concentration=float(globals["alpha"]),
        words=np.maximum(float(globals["beta_geometric"]) * share, 1e-12),
        total=float(globals["beta"]),
        order=int(globals["order"]),
        tables=bool(globals["tables"]),
        moments=bool(globals["moments"]),
        listing=listing(globals, topics, float(globals["beta"])),
    )


def predicting(rows: Arrays, globals: Arrays) -> Parameters:
    """Return the parameters of prediction: expectations."""
    tau = _tau(rows, globals)
    if tau is None:
        share = np.full(len(next(iter(rows.values()))), 1.0 / float(globals["vocabulary"]))
    else:
        share = tau / float(globals["tau_total"])
    topics = float(globals["alpha"]) * globals["pi"]
    return Parameters(
        topics=topics,
        concentration=float(globals["alpha"]),
        words=float(globals["beta"]) * share,
        total=float(globals["beta"]),
        listing=listing(globals, topics, float(globals["beta"])),
    )


UNSEEN_KERNELS = collapsed.UNSEEN_KERNELS


def kernels(globals: Arrays) -> Sequence[Kernel[..., Any]]:
    """Name the kernels that a fit calls in every iteration."""
    return collapsed.kernels(globals)


def blank(words: int, globals: Arrays) -> Arrays:
    """Make the rows of `words` words before any document has been seen."""
    return collapsed.blank(words, globals["pi"].size, globals)


def start(
    shard: Shard,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
    warm: Arrays | None = None,
) -> tuple[Arrays, Delta]:
    """Draw a shard's first responsibilities, or take them from another run, and count them."""
    if warm is not None:
        return warming.start(moves.counting(shard, globals), updating(rows, globals), warm)
    return collapsed.start(shard, globals["pi"].size, stream, globals)


def take(shard: Shard, kept: Arrays, rows: Arrays, globals: Arrays) -> tuple[Arrays, Delta]:
    """Go on from the responsibilities that another run kept of the shard."""
    return collapsed.take(shard, kept, globals["pi"].size, globals)


def sweep(
    shard: Shard,
    local: Arrays,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
) -> tuple[Arrays, Delta]:
    """Pass once over a shard; ``tables`` is E[s_k] and ``log_eta`` is sum_d E[log eta_d]."""
    return collapsed.sweep(shard, local, rows, globals["topic_moments"], updating(rows, globals), globals)


def advance(rows: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Arrays]:
    """Give the rows and globals with which a shard sweeps once more before its delta is reduced."""
    return collapsed.advance(rows, delta, globals)


def step(shard: Shard, rows: Arrays, globals: Arrays, stream: Stream) -> Delta:
    """Step on a shard, in the stochastic schedule."""
    return stochastic.step(shard, rows, globals, stream, updating(rows, globals))


def blend(block: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Delta]:
    """Move a block by a minibatch's steps, in the stochastic schedule."""
    return stochastic.blend(block, delta)


def fold(block: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Delta]:
    """Add the rows of a delta; ``tau_*`` are the sums over words of q(tau)'s divergence from its prior."""
    after, given = collapsed.fold(block, delta, updating(block, globals), globals)
    tau = _tau(block, globals)
    if tau is None:
        return after, given
    return after, given + Delta(_divergence(tau, float(globals["tau_prior"])))


def _divergence(tau: npt.NDArray[np.float64], prior: float) -> dict[str, Part]:
    """Return sum_w of log G(tau_w), of (tau_w - a_w) psi(tau_w) and of (tau_w - a_w): KL(q(tau)|p) needs no more."""
    more = tau - prior
    return {
        "tau_gammaln": fresh(float(gammaln(tau).sum())),
        "tau_digamma": fresh(float((more * digamma(tau)).sum())),
        "tau_more": fresh(float(more.sum())),
    }


def finish(block: Arrays, globals: Arrays) -> Arrays:
    """Give the rows that a finished model keeps."""
    return collapsed.finish(block, updating(block, globals))


def settle(shard: Shard, rows: Arrays, globals: Arrays, stream: Stream) -> Arrays:
    """Fit the counts of unseen documents under fixed topics."""
    return collapsed.settle(shard, rows, globals["topic_moments"], predicting(rows, globals))


def predict(heldout: Shard, local: Arrays, rows: Arrays, globals: Arrays) -> Arrays:
    """Give each held-out pair's probability sum_k theta_dk phi_kw + theta_rest E[tau_w]."""
    return collapsed.pair_probability(heldout, local, rows, globals["topic_moments"], predicting(rows, globals))


def probabilities(rows: Arrays, globals: Arrays) -> Arrays:
    """Give phi_kw of the words at hand, as prediction has it."""
    return {"word_topic": collapsed.word_probability(rows, globals["topic_moments"], predicting(rows, globals))}


def infer(local: Arrays, globals: Arrays) -> Arrays:
    """Give the documents' proportions theta_dk = (E[alpha] E[pi_k] + E[n_dk]) / (E[alpha] + n_d)."""
    empty = {"word_tables": np.zeros(0)}
    return {"document_topic": collapsed.proportions(local, predicting(empty, globals))}


def lengths(local: Arrays) -> Arrays:
    """Give the tokens that are expected of each document in all."""
    return {"document_tokens": collapsed.lengths(local)}
