"""Latent Dirichlet allocation by collapsed variational inference, beside a shard (Teh, Newman and Welling 2007).

theta_d ~ Dir(a_1..a_K), phi_k ~ Dir(b_1..b_W).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb import common as collapsed
from collapsium.workers.families.cvb import stochastic
from collapsium.workers.families.cvb import warm_start as warming
from collapsium.workers.families.cvb.parameters import Parameters, listing
from collapsium.workers.families.topic_arrays import LDA_ARRAYS
from collapsium.workers.kernels.jit import Kernel

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

ARRAYS = LDA_ARRAYS


def parameters(rows: Arrays, globals: Arrays) -> Parameters:
    """Take a_k from the globals, and b_w from there or, where it differs by word, from the tables of the word."""
    words = np.full(len(next(iter(rows.values()))), float(globals["beta"]) / float(globals["vocabulary"]))
    if globals["asymmetric_beta"] and globals["beta_rate"] > 0:
        words = (rows["word_tables"] + float(globals["word_tables_prior"])) / float(globals["beta_rate"])
    topics = np.asarray(globals["alpha"], dtype=np.float64)
    return Parameters(
        topics=topics,
        concentration=float(globals["alpha"].sum()),
        words=words,
        total=float(globals["beta"]),
        order=int(globals["order"]),
        tables=bool(globals["learn_alpha"]),
        moments=bool(globals["moments"]),
        listing=listing(globals, topics, float(globals["beta"])),
    )


UNSEEN_KERNELS = collapsed.UNSEEN_KERNELS


def kernels(globals: Arrays) -> Sequence[Kernel[..., Any]]:
    """Name the kernels that a fit calls in every iteration."""
    return collapsed.kernels(globals)


def blank(words: int, globals: Arrays) -> Arrays:
    """Make the rows of `words` words before any document has been seen."""
    return collapsed.blank(words, globals["alpha"].size, globals)


def start(
    shard: Shard,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
    warm: Arrays | None = None,
) -> tuple[Arrays, Delta]:
    """Draw a shard's first responsibilities, or take them from another run, and count them."""
    if warm is not None:
        return warming.start(shard, parameters(rows, globals), warm)
    return collapsed.start(shard, globals["alpha"].size, stream, globals)


def take(shard: Shard, kept: Arrays, rows: Arrays, globals: Arrays) -> tuple[Arrays, Delta]:
    """Go on from the responsibilities that another run kept of the shard."""
    return collapsed.take(shard, kept, globals["alpha"].size, globals)


def sweep(
    shard: Shard,
    local: Arrays,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
) -> tuple[Arrays, Delta]:
    """Pass once over a shard."""
    return collapsed.sweep(shard, local, rows, globals["topic_moments"], parameters(rows, globals))


def advance(rows: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Arrays]:
    """Give the rows and globals with which a shard sweeps once more before its delta is reduced."""
    return collapsed.advance(rows, delta, globals)


def step(shard: Shard, rows: Arrays, globals: Arrays, stream: Stream) -> Delta:
    """Step on a shard, in the stochastic schedule."""
    return stochastic.step(shard, rows, globals, stream, parameters(rows, globals))


def blend(block: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Delta]:
    """Move a block by a minibatch's steps, in the stochastic schedule."""
    return stochastic.blend(block, delta)


def fold(block: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Delta]:
    """Add the rows of a delta to a block of the vocabulary."""
    return collapsed.fold(block, delta, parameters(block, globals))


def finish(block: Arrays, globals: Arrays) -> Arrays:
    """Give the rows that a finished model keeps."""
    return collapsed.finish(block, parameters(block, globals))


def settle(shard: Shard, rows: Arrays, globals: Arrays, stream: Stream) -> Arrays:
    """Fit the counts of unseen documents under fixed topics."""
    return collapsed.settle(shard, rows, globals["topic_moments"], parameters(rows, globals))


def predict(heldout: Shard, local: Arrays, rows: Arrays, globals: Arrays) -> Arrays:
    """Give each held-out pair's probability sum_k theta_dk phi_kw."""
    return collapsed.pair_probability(heldout, local, rows, globals["topic_moments"], parameters(rows, globals))


def probabilities(rows: Arrays, globals: Arrays) -> Arrays:
    """Give phi_kw of the words at hand, as prediction has it."""
    return {"word_topic": collapsed.word_probability(rows, globals["topic_moments"], parameters(rows, globals))}


def infer(local: Arrays, globals: Arrays) -> Arrays:
    """Give the documents' proportions theta_dk = (a_k + E[n_dk]) / (A + n_d)."""
    empty = {"word_topic": np.zeros((0, 0)), "word_tables": np.zeros(0)}
    return {"document_topic": collapsed.proportions(local, parameters(empty, globals))}


def lengths(local: Arrays) -> Arrays:
    """Give the tokens that are expected of each document in all."""
    return {"document_tokens": collapsed.lengths(local)}
