"""Documents simulated from the hierarchical Dirichlet scaling process with labels, and the accuracy of fits to them."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from scipy.optimize import linear_sum_assignment
from scipy.stats import spearmanr

from collapsium.pipeline import Model
from collapsium.storage.corpus.shard import EXTRAS, Documents
from collapsium.storage.corpus.writer import CorpusWriter, numbered_ids
from collapsium.storage.io.folder import Folder, created
from collapsium.workers.families import generative as drawing

FIELD = "label"


@dataclass
class Truth:
    """The true parameters.

    Attributes
    ----------
    share : numpy.ndarray of float64, shape (topics,)
        p_k.
    weights : numpy.ndarray of float64, shape (labels, topics)
        w_kj, by which a label raises a topic: the rate of pi_mk is prod_j w_kj^(-r_mj).
    topics : numpy.ndarray of float64, shape (topics, words)
        Their words' probabilities.
    """

    share: np.ndarray
    weights: np.ndarray
    topics: np.ndarray


def sticks(topics, gamma, generator, least=0.0):
    """Draw p, repeatedly until every topic has at least `least`."""
    while True:
        parts = np.append(generator.beta(1.0, gamma, topics - 1), 1.0)
        share = parts * np.append(1.0, np.cumprod(1.0 - parts[:-1]))
        if share.min() >= least:
            return share


def bags(truth, has, tokens, alpha, generator):
    """Draw documents with given labels (documents, labels) and a Poisson number of tokens."""
    log_pi = drawing.log_gammas(alpha * truth.share, len(has), generator) + has @ np.log(truth.weights)
    theta = np.exp(log_pi - log_pi.max(axis=1, keepdims=True))
    theta /= theta.sum(axis=1, keepdims=True)
    counts = generator.multinomial(generator.poisson(tokens, len(has)), theta @ truth.topics)
    return counts, theta


def write(folder, counts, has, labelled=True):
    """Write documents, shape (documents, words), with their labels, as a corpus."""
    document, word = np.nonzero(counts)
    words, offsets = counts.shape[1], np.concatenate([[0], np.cumsum((counts > 0).sum(axis=1))])
    listed = [[{"field": FIELD, "value": f"l{label}"} for label in np.flatnonzero(row)] for row in has]
    documents = Documents(
        numbered_ids(1, len(counts)),
        offsets.astype(np.int64),
        word.astype(np.int32),
        counts[document, word].astype(np.int32),
    )
    if labelled:
        documents = replace(documents, extras={"labels": pa.array(listed, EXTRAS["labels"])})
    with created(Folder(folder)) as fresh:
        writer = CorpusWriter(fresh, words)
        writer.add_shard(documents)
        writer.finish([f"w{number:0{len(str(words - 1))}d}" for number in range(words)])


@dataclass
class Found:
    """The result of a fit, with the arrays of `Truth`.

    Attributes
    ----------
    share, topics : numpy.ndarray of float64
        p_k, and words' probabilities.
    log_weights : numpy.ndarray of float64, shape (labels, topics)
        -log E[1/w].
    tokens : numpy.ndarray of float64, shape (topics,)
        Expected tokens.
    """

    share: np.ndarray
    topics: np.ndarray
    log_weights: np.ndarray
    tokens: np.ndarray


def found(run):
    """Read a fit's topics and weights; labels in the order of their numbers."""
    model = Model(run)
    state, half = model.global_state, model.family
    rows = [half.probabilities(model.rows(number), state)["word_topic"] for number in range(len(model.blocks))]
    words = np.concatenate(rows).T
    names = state.labels.names
    order = np.argsort([int(value[1:]) for _, value in names]) if names else np.zeros(0, int)
    words = words / words.sum(axis=1, keepdims=True)
    return Found(state.prior / state.prior.sum(), words, -state.rates.label_log[order], state.topic_total)


def divergences(truth, fit):
    """Return the KL divergences of fitted topics from true ones, shape (true, fitted), in nats."""
    true, fitted = truth.topics[:, np.newaxis] + 1e-12, fit.topics[np.newaxis] + 1e-12
    return (true * np.log(true / fitted)).sum(axis=2)


def matched(truth, fit):
    """Match each true topic with a fitted one at the smallest sum of divergences; also return their total variation
    distances."""
    _, matches = linear_sum_assignment(divergences(truth, fit))
    return matches, 0.5 * np.abs(truth.topics - fit.topics[matches]).sum(axis=1)


def pooled(truth, fit):
    """Return the log of how much each label raises each true topic, pooled over the fitted topics that are nearest to
    it.

    The proportion of a topic that was fitted twice is the sum of both, so a label raises it by the mean of w weighted
    by p.
    """
    nearest = divergences(truth, fit).argmin(axis=0)
    matches, _ = matched(truth, fit)
    nearest[matches] = np.arange(matches.size)
    share = fit.share * (fit.tokens >= 1.0)
    share[matches] = np.maximum(share[matches], 1e-12)
    result = np.empty(truth.weights.shape)
    for topic in range(matches.size):
        part = np.where(nearest == topic, share, 0.0)
        result[:, topic] = np.log(np.exp(fit.log_weights) @ part / part.sum())
    return result


def centred(log_weights):
    """Subtract each label's mean over the topics, because proportions do not change if a label raises all topics
    equally."""
    # rounded so that equal values have equal ranks
    return np.round(log_weights - log_weights.mean(axis=1, keepdims=True), 9)


def agreement(truth, log_weights):
    """Compare 1/w by Spearman's rho and the mean absolute error, unscaled and with each label's true scale."""
    true = np.log(truth.weights)
    scaled = centred(log_weights) + true.mean(axis=1, keepdims=True)
    true_weights = np.exp(-true)
    return {
        "rho": float(spearmanr(centred(true).ravel(), centred(log_weights).ravel()).statistic),
        "rho_raw": float(spearmanr(true.ravel(), log_weights.ravel()).statistic),
        "rho_scaled": float(spearmanr(true.ravel(), scaled.ravel()).statistic),
        "mae": float(np.abs(true_weights - np.exp(-scaled)).mean()),
        "mae_raw": float(np.abs(true_weights - np.exp(-log_weights)).mean()),
    }
