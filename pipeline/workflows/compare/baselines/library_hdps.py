"""Hierarchical Dirichlet processes of other libraries, which determine the number of topics; see `libraries`.

Counts that a library does not smooth are smoothed by the model's predictive distribution: theta = (n_dk + alpha pi_k) /
(n_d + alpha). pi_k is the share of topic k among all tables, approximated by one table for each topic of a document.
The remaining mass, from gamma, belongs to new topics, whose words have the prior's probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collapsium.pipeline.workflows.compare.baselines.corpus_arrays import Data

Floats = npt.NDArray[np.float64]
ALPHA = GAMMA = 1.0  # Default concentrations, the means of the priors of Collapsium's families


def _texts(data: Data) -> tuple[list[int], list[list[str]]]:
    """Return the documents with tokens, and their tokens as numbers of words in text."""
    known = [d for d in data.documents() if data.offsets[d + 1] > data.offsets[d]]
    return known, [[str(word) for word in data.tokens(d)] for d in known]


def with_new(counts: Floats, alpha: float, gamma: float, phi: Floats) -> tuple[Floats, Floats]:
    """Return smoothed proportions, and topics with a last one for all new topics."""
    tables = np.append((counts > 0).sum(axis=0), gamma)
    wide = np.pad(counts, ((0, 0), (0, 1)))
    theta = (wide + alpha * tables / tables.sum()) / (counts.sum(axis=1, keepdims=True) + alpha)
    return theta, np.vstack([phi, np.full((1, phi.shape[1]), 1.0 / phi.shape[1])])


class TomotopyHDP:
    """Gibbs sampling with tables and sampled concentrations; the state is a sample."""

    def __init__(self, data: Data, arguments: SimpleNamespace) -> None:
        import tomotopy

        self.arguments, self.size, self.count = arguments, data.size, data.offsets.size - 1
        self.known, texts = _texts(data)
        # The library requires at least two topics.
        start = max(arguments.topics, 2)
        self.model = tomotopy.HDPModel(
            initial_k=start, alpha=arguments.alpha, gamma=GAMMA, eta=arguments.beta / data.size, seed=arguments.seed
        )
        for text in texts:
            self.model.add_doc(text)

    def step(self, iterations: int) -> None:
        """Run some more sweeps."""
        self.model.train(iterations, workers=self.arguments.workers)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return estimates from the last sample."""
        eta, model = self.arguments.beta / self.size, self.model
        live = [k for k in range(model.k) if model.is_live_topic(k)]
        words = np.array([int(word) for word in model.used_vocabs])
        total = np.array(model.get_count_by_topics(), dtype=np.float64)[live]
        probability = np.stack([model.get_topic_word_dist(k) for k in live])
        # The library smooths over the words of the training corpus: recover counts, and smooth over the vocabulary.
        phi = np.full((len(live), self.size), eta)
        phi[:, words] += np.maximum(probability * (total + eta * words.size)[:, np.newaxis] - eta, 0.0)
        counts = np.zeros((self.count, len(live)))
        for d, document in zip(self.known, model.docs, strict=True):
            counts[d] = np.bincount(document.topics, minlength=model.k)[live]
        return with_new(counts, model.alpha, model.gamma, phi / (total + self.arguments.beta)[:, np.newaxis])


class TopicaHDP:
    """Gibbs sampling of the library's Rust core; it starts from one topic, and a fit cannot be continued."""

    def __init__(self, data: Data, arguments: SimpleNamespace) -> None:
        self.arguments, self.size, self.count, self.done = arguments, data.size, data.offsets.size - 1, 0
        self.known, self.texts = _texts(data)
        self.model: Any = None

    def step(self, iterations: int) -> None:
        """Fit afresh, with some more iterations."""
        import topica

        self.done += iterations
        eta = self.arguments.beta / self.size
        self.model = topica.HDP(alpha=self.arguments.alpha, gamma=GAMMA, beta=eta, seed=self.arguments.seed)
        self.model.fit(self.texts, iters=self.done, keep_theta_draws=False)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return the library's own estimates."""
        theta = np.full((self.count, self.model.num_topics), 1.0 / self.model.num_topics)
        theta[self.known] = self.model.doc_topic
        return theta, _spread(self.model.topic_word, self.model.vocabulary, self.size)


class GensimHDP:
    """Online variational Bayes with a truncation of 150 topics; an iteration is a pass."""

    def __init__(self, data: Data, arguments: SimpleNamespace) -> None:
        self.arguments, self.size = arguments, data.size
        self.model: Any = None
        ends = zip(data.offsets[:-1], data.offsets[1:], strict=True)
        self.bags = [list(zip(data.words[a:b].tolist(), data.counts[a:b].tolist(), strict=True)) for a, b in ends]

    def step(self, iterations: int) -> None:
        """Run some more passes."""
        from gensim.models import HdpModel

        names = {word: str(word) for word in range(self.size)}
        if self.model is None:
            priors = {"alpha": self.arguments.alpha, "gamma": GAMMA, "eta": self.arguments.beta / self.size}
            self.model = HdpModel(self.bags, names, random_state=self.arguments.seed, **priors)
            iterations -= 1
        for _ in range(iterations):
            self.model.update(self.bags)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return posterior means."""
        gamma = self.model.inference(self.bags)
        return gamma / gamma.sum(axis=1, keepdims=True), self.model.get_topics()


def _spread(topics: Floats, words: Sequence[str], size: int) -> Floats:
    """Return topics over the complete vocabulary; words unknown to the library have its smallest probability."""
    phi = np.full((topics.shape[0], size), float(np.min(topics)))
    phi[:, [int(word) for word in words]] = topics
    normalised: Floats = phi / phi.sum(axis=1, keepdims=True)
    return normalised


HDPS: dict[str, type[TomotopyHDP | TopicaHDP | GensimHDP]] = {
    "tomotopy-hdp": TomotopyHDP,
    "topica-hdp": TopicaHDP,
    "gensim-hdp": GensimHDP,
}
