"""What families of collapsed Gibbs sampling share on the driver."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families import description
from collapsium.pipeline.families.base import Description, Footprint, Summary
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.families.gibbs.common import Priors, padded
from collapsium.workers.special_functions import gammaln

SCHEDULES = ("batch",)


def footprint(summary: Summary, topics: int) -> Footprint:
    """Return what the state takes: 2 bytes a token, 6 a topic that a document has, whole counts of 4."""
    tokens = summary.tokens / max(summary.documents, 1)
    pair, document = 2.0 * summary.tokens / max(summary.pairs, 1), 6.0 * min(topics, tokens) + 20.0
    return Footprint(
        kept=4.0 * topics,
        shown=4.0 * topics,
        swept=4.0 * padded(topics),
        delta=4.0 * topics,
        pair=pair,
        document=document,
        portion=2.0 * (pair * summary.pairs + document * summary.documents) + 6.0 * summary.tokens,
    )


def counted(globals: Arrays, delta: Delta) -> npt.NDArray[np.int64]:
    """Return n_k after a delta, which may have more topics than there were."""
    before = np.asarray(globals["topic"], dtype=np.int64)
    if "topic" not in delta:
        return before
    moved = delta["topic"]
    after = np.zeros(max(moved.size, before.size), dtype=np.int64)
    after[: before.size] = before
    after[: moved.size] += moved
    return after


def objective(globals: Arrays, delta: Delta, priors: Priors) -> dict[str, float]:
    """Give log p(w, z | a, b), in nats: of tokens and topics, with theta and phi summed out.

    sum_d log G(A)/G(A+n_d) + sum_dk log G(a_k+n_dk)/G(a_k) + sum_k log G(B)/G(B+n_k) + sum_kw log G(b+n_kw)/G(b).

    Parameters
    ----------
    globals : Arrays
        As the sweep was made against.
    delta : Delta
        What the sweep and the folding of its rows told.
    priors : Priors
        With B.

    Returns
    -------
    dict of str to float
        ``objective``; none before the first sweep.
    """
    if "tokens" not in delta:
        return {}
    topic = counted(globals, delta)
    fall = float((gammaln(priors.total) - gammaln(priors.total + topic)).sum())
    documents = delta.number("falling") + delta.number("rising")
    return {"objective": documents + fall + delta.number("word_rising")}


def describe(block: Arrays, globals: Arrays, priors: Priors, count: int) -> Description:
    """Describe the topics that are there, the largest first, by phi_kw = (b + n_kw) / (B + n_k)."""
    word_topic, topic = np.asarray(block["word_topic"], dtype=np.float64), np.asarray(globals["topic"], np.float64)
    there = np.flatnonzero(priors.topics > 0.0)
    prior = np.full(len(word_topic), priors.word)
    found = description.describe(word_topic[:, there], prior, priors.total, topic[there], count)
    return Description(there[found.ids], found.share, found.words, found.probability)
