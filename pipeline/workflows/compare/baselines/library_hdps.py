"""Other libraries' hierarchical Dirichlet processes, which find the number of topics; see `libraries`.

What a library does not smooth is smoothed as the model says: theta = (n_dk + alpha pi_k) / (n_d + alpha), where pi_k is
the share of topic k in all tables, of which a document has about one for each of its topics, and what gamma leaves to
topics that are not there yet has the words' prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collapsium.pipeline.workflows.compare.baselines.corpus_arrays import Data

Floats = npt.NDArray[np.float64]
ALPHA = GAMMA = 1.0  # where nothing is said: the means of our own priors


def _texts(data: Data) -> tuple[list[int], list[list[str]]]:
    """Return the documents that have a token, and their words' numbers as text."""
    known = [d for d in data.documents() if data.offsets[d + 1] > data.offsets[d]]
    return known, [[str(word) for word in data.tokens(d)] for d in known]


def with_new(counts: Floats, alpha: float, gamma: float, phi: Floats) -> tuple[Floats, Floats]:
    """Smooth proportions, and add a last topic for all that are not there yet.

    Parameters
    ----------
    counts : numpy.ndarray, shape (documents, topics)
        Tokens of a document in each topic.
    alpha, gamma : float
        Concentrations of the documents and of the corpus.
    phi : numpy.ndarray, shape (topics, words)
        Topics.

    Returns
    -------
    theta : numpy.ndarray, shape (documents, topics + 1)
        Proportions; rows sum to one.
    phi : numpy.ndarray, shape (topics + 1, words)
        Topics, the last one even.
    """
    tables = np.append((counts > 0).sum(axis=0), gamma)
    wide = np.pad(counts, ((0, 0), (0, 1)))
    theta = (wide + alpha * tables / tables.sum()) / (counts.sum(axis=1, keepdims=True) + alpha)
    return theta, np.vstack([phi, np.full((1, phi.shape[1]), 1.0 / phi.shape[1])])


class TomotopyHDP:
    """Gibbs sampling with tables, whose concentrations it samples too; its state is a sample."""

    def __init__(self, data: Data, given: Any) -> None:
        import tomotopy

        self.given, self.size, self.count = given, data.size, data.offsets.size - 1
        self.known, texts = _texts(data)
        start = max(given.topics, 2)  # it takes no less
        self.model = tomotopy.HDPModel(
            initial_k=start, alpha=given.alpha, gamma=GAMMA, eta=given.beta / data.size, seed=given.seed
        )
        for text in texts:
            self.model.add_doc(text)

    def step(self, iterations: int) -> None:
        """Draw so many samples more."""
        self.model.train(iterations, workers=self.given.workers)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return what the last sample says."""
        eta, model = self.given.beta / self.size, self.model
        live = [k for k in range(model.k) if model.is_live_topic(k)]
        words = np.array([int(word) for word in model.used_vocabs])
        total = np.array(model.get_count_by_topics(), dtype=np.float64)[live]
        own = np.stack([model.get_topic_word_dist(k) for k in live])
        # It smooths over the words that it has seen; counts are had back, and smoothed over the vocabulary.
        phi = np.full((len(live), self.size), eta)
        phi[:, words] += np.maximum(own * (total + eta * words.size)[:, np.newaxis] - eta, 0.0)
        counts = np.zeros((self.count, len(live)))
        for d, document in zip(self.known, model.docs, strict=True):
            counts[d] = np.bincount(document.topics, minlength=model.k)[live]
        return with_new(counts, model.alpha, model.gamma, phi / (total + self.given.beta)[:, np.newaxis])


class TopicaHDP:
    """Gibbs sampling by its Rust core; it starts from one topic and cannot go on from where it was."""

    def __init__(self, data: Data, given: Any) -> None:
        self.given, self.size, self.count, self.done = given, data.size, data.offsets.size - 1, 0
        self.known, self.texts = _texts(data)
        self.model: Any = None

    def step(self, iterations: int) -> None:
        """Fit anew, so many iterations longer."""
        import topica

        self.done += iterations
        eta = self.given.beta / self.size
        self.model = topica.HDP(alpha=self.given.alpha, gamma=GAMMA, beta=eta, seed=self.given.seed)
        self.model.fit(self.texts, iters=self.done, keep_theta_draws=False)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return its own estimates."""
        theta = np.full((self.count, self.model.num_topics), 1.0 / self.model.num_topics)
        theta[self.known] = self.model.doc_topic
        return theta, _spread(self.model.topic_word, self.model.vocabulary, self.size)


class GensimHDP:
    """Online variational Bayes with a truncation of 150 topics; an iteration is a pass."""

    def __init__(self, data: Data, given: Any) -> None:
        self.given, self.size = given, data.size
        self.model: Any = None
        ends = zip(data.offsets[:-1], data.offsets[1:], strict=True)
        self.bags = [list(zip(data.words[a:b].tolist(), data.counts[a:b].tolist(), strict=True)) for a, b in ends]

    def step(self, iterations: int) -> None:
        """Make so many passes more."""
        from gensim.models import HdpModel

        names = {word: str(word) for word in range(self.size)}
        if self.model is None:
            made = {"alpha": self.given.alpha, "gamma": GAMMA, "eta": self.given.beta / self.size}
            self.model = HdpModel(self.bags, names, random_state=self.given.seed, **made)
            iterations -= 1
        for _ in range(iterations):
            self.model.update(self.bags)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return the means of its posteriors."""
        gamma = self.model.inference(self.bags)
        return gamma / gamma.sum(axis=1, keepdims=True), self.model.get_topics()


def _spread(topics: Floats, words: Sequence[str], size: int) -> Floats:
    """Put a library's columns to the words' numbers; words that it does not know have the least it gives."""
    phi = np.full((topics.shape[0], size), float(np.min(topics)))
    phi[:, [int(word) for word in words]] = topics
    found: Floats = phi / phi.sum(axis=1, keepdims=True)
    return found


HDPS: dict[str, Any] = {"tomotopy-hdp": TomotopyHDP, "topica-hdp": TopicaHDP, "gensim-hdp": GensimHDP}
