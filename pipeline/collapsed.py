"""What families with collapsed updates of bag-of-words topics share on the driver."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsar.pipeline.contract import Description
from collapsar.storage.shard import Documents
from collapsar.workers.delta import Arrays, Delta
from collapsar.workers.kernels import words
from collapsar.workers.streams import Stream

Vector = npt.NDArray[np.float64]


def moved_moments(globals: Arrays, delta: Delta) -> Vector:
    """Return E[n_k] and V[n_k] after a delta, shape (2, topics)."""
    moments = np.array(globals["topic_moments"])
    for row, name in enumerate(("topic", "topic_variance")):
        if name in delta:
            moments[row] += delta[name]
    return moments


def moved_log_absent(globals: Arrays, delta: Delta) -> Vector:
    """Return Z[n_k] after a delta, shape (topics,)."""
    before = np.asarray(globals["topic_log_absent"])
    return before + delta["topic_log_absent"] if "topic_log_absent" in delta else before


def topic_totals(moments: Vector, log_absent: Vector, total: float) -> tuple[Vector, Vector]:
    """Return E[log xi_k] and F[log G(B + n_k) / G(B)] of each topic, both of shape (topics,)."""
    log_xi, log_rising = np.empty(moments.shape[1]), np.empty(moments.shape[1])
    words.topic_totals(
        np.ascontiguousarray(moments[0]),
        np.ascontiguousarray(moments[1]),
        log_absent,
        np.array([total]),
        log_xi,
        log_rising,
    )
    return log_xi, log_rising


def likelihood_bound(globals: Arrays, delta: Delta, total: float) -> float:
    """Return the part of the second-order bound that LDA and the HDP share.

    sum_d log G(A)/G(A+n_d) + sum_dk F[log G(a_k+n_dk)/G(a_k)] + sum_k F[log G(B)/G(B+n_k)]
    + sum_kw F[log G(b_w+n_kw)/G(b_w)] - sum c q log q.

    Parameters
    ----------
    globals : Arrays
        As the sweep was made against.
    delta : Delta
        What the sweep and the folding of its rows told.
    total : float
        B.

    Returns
    -------
    float
        In nats.
    """
    moments, log_absent = moved_moments(globals, delta), moved_log_absent(globals, delta)
    _, log_rising = topic_totals(moments, log_absent, total)
    return delta.number("bound_documents") + delta.number("bound_words") - float(log_rising.sum())


def counted(globals: Arrays, delta: Delta) -> dict[str, npt.NDArray[np.float64]]:
    """Return the globals that follow from the changes of a delta alone."""
    return {
        "topic_moments": moved_moments(globals, delta),
        "topic_log_absent": moved_log_absent(globals, delta),
    }


def describe(word_topic: Vector, prior: Vector, total: float, topic: Vector, count: int) -> Description:
    """Describe topics, the largest first, by phi_kw = (b_w + E[n_kw]) / (B + E[n_k])."""
    order = np.argsort(-topic, kind="stable")
    phi = ((np.maximum(word_topic, 0.0) + prior[:, np.newaxis]) / (total + topic))[:, order].T
    count = min(count, phi.shape[1])
    top = np.argsort(-phi, axis=1, kind="stable")[:, :count]
    share = topic[order] / max(float(topic.sum()), 1e-300)
    return Description(order.astype(np.int64), share, top.astype(np.int64), np.take_along_axis(phi, top, axis=1))


def simulate_topics(words_count: int, topics: int, concentration: float, stream: Stream) -> Vector:
    """Draw phi_k ~ Dir(concentration / W, ...), shape (topics, words)."""
    generator = stream.at(purpose="simulate topics").generator()
    gamma = generator.standard_gamma(concentration / words_count, size=(topics, words_count)) + 1e-300
    phi: Vector = gamma / gamma.sum(axis=1, keepdims=True)
    return phi


def simulate_documents(
    phi: Vector, prior: Vector, documents: int, tokens: float, stream: Stream
) -> tuple[Documents, Vector]:
    """Draw documents from topics.

    Parameters
    ----------
    phi : numpy.ndarray of float64, shape (topics, words)
        The topics.
    prior : numpy.ndarray of float64, shape (topics,)
        theta_d ~ Dir(prior).
    documents : int
        How many.
    tokens : float
        Mean number of tokens of a document, which is Poisson.
    stream : Stream
        Addressed to the portion.

    Returns
    -------
    documents : Documents
        Without ids, which depend on the place in the corpus.
    theta : numpy.ndarray of float64, shape (documents, topics)
        Their proportions.
    """
    generator = stream.generator()
    gamma = generator.standard_gamma(prior, size=(documents, prior.size)) + 1e-300
    theta = gamma / gamma.sum(axis=1, keepdims=True)
    lengths = generator.poisson(tokens, size=documents)
    by_topic = generator.multinomial(lengths, theta)
    owner, word = [], []
    for topic in range(prior.size):
        chance = np.cumsum(phi[topic])
        drawn = generator.random(int(by_topic[:, topic].sum())) * chance[-1]
        word.append(np.minimum(np.searchsorted(chance, drawn, side="right"), phi.shape[1] - 1))
        owner.append(np.repeat(np.arange(documents), by_topic[:, topic]))
    cell = np.concatenate(owner) * phi.shape[1] + np.concatenate(word)
    cell, counts = np.unique(cell, return_counts=True)
    offsets = np.searchsorted(cell, np.arange(documents + 1) * phi.shape[1]).astype(np.int64)
    ids = pa.nulls(documents, pa.string())
    drawn_words = (cell % phi.shape[1]).astype(np.int32)
    return Documents(ids, offsets, drawn_words, counts.astype(np.int32)), theta
