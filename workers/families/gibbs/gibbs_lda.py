"""Latent Dirichlet allocation by collapsed Gibbs sampling, beside a shard (Griffiths and Steyvers 2004).

theta_d ~ Dir(a_1..a_K), phi_k ~ Dir(b, ..., b); p(z = k) ~ (n_dk' + a_k) (n_kw' + b) / (n_k' + B), a prime meaning
without the token itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb import common as collapsed
from collapsium.workers.families.gibbs import common as gibbs
from collapsium.workers.families.gibbs.common import Priors
from collapsium.workers.families.topic_arrays import GIBBS_LDA_ARRAYS
from collapsium.workers.kernels.jit import Kernel

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

ARRAYS = GIBBS_LDA_ARRAYS


def priors(globals: Arrays) -> Priors:
    """Take the Dirichlet parameters from the globals."""
    topics, beta = np.asarray(globals["alpha"], dtype=np.float64), float(globals["beta"])
    return Priors(topics, float(topics.sum()), beta / float(globals["vocabulary"]), beta)


def kernels(globals: Arrays) -> Sequence[Kernel[..., Any]]:
    """Name the kernels that a fit calls in every iteration."""
    return gibbs.KERNELS


def blank(words: int, globals: Arrays) -> Arrays:
    """Make the rows of `words` words before any document has been seen."""
    return gibbs.blank(words, globals["alpha"].size)


def start(
    shard: Shard,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
    warm: Arrays | None = None,
) -> tuple[Arrays, Delta]:
    """Draw each token's first topic, from all alike or by another run's proportions and topics."""
    topics = globals["alpha"].size
    return gibbs.start(shard, topics, topics, globals["alpha"], stream, warm)


def take(shard: Shard, kept: Arrays, rows: Arrays, globals: Arrays) -> tuple[Arrays, Delta]:
    """Go on from the topics that another run kept of the shard's tokens."""
    return gibbs.begun(shard, kept["token_topic"], globals["alpha"].size, globals["alpha"])


def sweep(
    shard: Shard,
    local: Arrays,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
) -> tuple[Arrays, Delta]:
    """Pass once over a shard; ``tables``, where a_k is learned, is sum_d a_k (psi(a_k + n_dk) - psi(a_k))."""
    began, given = time.perf_counter(), priors(globals)
    topics = given.topics.size
    found = gibbs.swept(shard, local, rows, globals["topic"], given, stream)
    local, sums = gibbs.listed(shard, found.token_topic, given.topics, tables=bool(globals["learn_alpha"]))
    parts = {"word_topic": gibbs.changes(rows, found.row[:, :topics]), **sums}
    parts.update(gibbs.document_sums(shard, given.concentration))
    return local, Delta(parts, gibbs.ids_of(shard, topics), {"kernel": time.perf_counter() - began})


def advance(rows: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Arrays]:
    """Give the rows and globals with which a shard sweeps once more before its delta is reduced."""
    after, moved = gibbs.advance(rows, delta)
    return after, {**globals, "topic": globals["topic"] + moved}


def fold(block: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Delta]:
    """Add the rows of a delta to a block of the vocabulary."""
    return gibbs.fold(block, delta, priors(globals))


def finish(block: Arrays, globals: Arrays) -> Arrays:
    """Give the rows that a finished model keeps."""
    return block


def settle(shard: Shard, rows: Arrays, globals: Arrays, stream: Stream) -> Arrays:
    """Fit the counts of unseen documents under fixed topics, by zeroth-order sweeps."""
    return collapsed.settle(shard, rows, gibbs.moments(globals), priors(globals).over(shard.words.size))


def predict(heldout: Shard, local: Arrays, rows: Arrays, globals: Arrays) -> Arrays:
    """Give each held-out pair's probability sum_k theta_dk phi_kw, of the last sample."""
    given = priors(globals).over(heldout.words.size)
    return collapsed.pair_probability(heldout, local, rows, gibbs.moments(globals), given)


def probabilities(rows: Arrays, globals: Arrays) -> Arrays:
    """Give phi_kw of the words at hand, of the last sample."""
    given = priors(globals).over(len(rows["word_topic"]))
    return {"word_topic": collapsed.word_probability(rows, gibbs.moments(globals), given)}


def infer(local: Arrays, globals: Arrays) -> Arrays:
    """Give the documents' proportions theta_dk = (a_k + n_dk) / (A + n_d)."""
    return {"document_topic": collapsed.proportions(local, priors(globals).over(0))}


def lengths(local: Arrays) -> Arrays:
    """Give the tokens of each document."""
    return {"document_tokens": collapsed.lengths(local)}
