"""Other libraries, fitted to a corpus as their users would, with their topic proportions and topics.

`python -m collapsium.pipeline.workflows.compare.baselines.libraries JSON` fits one and prints a line of JSON. All are
scored by the same definition: the mean over held-out tokens of log sum_k theta_dk phi_kw, in nats, with theta = (n_dk +
alpha) / (n_d + K alpha) and phi = (n_kw + beta/W) / (n_k + beta), or the library's own estimates if it has some. Words
that it does not know have the prior's probability.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from collapsium.pipeline.workflows.compare.baselines.base import print_result
from collapsium.pipeline.workflows.compare.baselines.corpus_arrays import Data, Floats
from collapsium.pipeline.workflows.compare.baselines.library_hdps import HDPS
from collapsium.storage.corpus import corpus as corpora
from collapsium.storage.data_types import JsonObject

if TYPE_CHECKING:
    from scipy import sparse


def probabilities(held: Data, theta: Floats, phi: Floats) -> Floats:
    """Return the probability of each held-out pair's word."""
    probability, columns = np.empty(held.words.size), np.ascontiguousarray(phi.T)
    for d in held.documents():
        first, last = held.offsets[d], held.offsets[d + 1]
        probability[first:last] = columns[held.words[first:last]] @ theta[d]
    return probability


def score_of(held: Data, probability: Floats) -> float:
    """Return the mean log probability of a held-out token, in nats, from the probabilities of the pairs."""
    return float(held.counts @ np.log(probability) / held.counts.sum())


def score(held: Data, theta: Floats, phi: Floats) -> float:
    """Return the mean log probability of a held-out token; `theta` by document, `phi` by topic and word."""
    return score_of(held, probabilities(held, theta, phi))


class Peer(Protocol):
    """A library's model, constructed from `Data` and the arguments of `fitted`."""

    def step(self, iterations: int) -> None:
        """Run some more iterations."""

    def estimate(self) -> tuple[Floats, Floats]:
        """Return theta, shape (documents, topics), and phi, shape (topics, words)."""


class Tomotopy:
    """Collapsed Gibbs sampling, with an asymmetric alpha learned every few sweeps; the state is a sample."""

    def __init__(self, data: Data, arguments: SimpleNamespace) -> None:
        import tomotopy

        self.arguments, self.size, self.workers = arguments, data.size, arguments.workers
        self.model = tomotopy.LDAModel(
            tw=tomotopy.TermWeight.ONE,
            k=arguments.topics,
            alpha=arguments.alpha,
            eta=arguments.beta / data.size,
            seed=arguments.seed,
        )
        self.model.optim_interval = arguments.optim_interval
        self.known = [d for d in data.documents() if data.offsets[d + 1] > data.offsets[d]]
        for d in self.known:
            self.model.add_doc([str(word) for word in data.tokens(d)])
        self.count = data.offsets.size - 1

    def step(self, iterations: int) -> None:
        """Run some more sweeps."""
        self.model.train(iterations, workers=self.workers)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return estimates from the last sample."""
        arguments, words = self.arguments, np.array([int(word) for word in self.model.used_vocabs])
        total = np.array(self.model.get_count_by_topics(), dtype=np.float64)
        # The library smooths over the words of the training corpus: recover counts, and smooth over the vocabulary.
        eta = arguments.beta / self.size
        probability = np.stack([self.model.get_topic_word_dist(k) for k in range(arguments.topics)])
        counts = probability * (total + eta * words.size)[:, np.newaxis] - eta
        phi = np.full((arguments.topics, self.size), eta)
        phi[:, words] += np.maximum(counts, 0.0)
        alpha = np.asarray(self.model.alpha, dtype=np.float64)
        theta = np.tile(alpha / alpha.sum(), (self.count, 1))
        for d, document in zip(self.known, self.model.docs, strict=True):
            theta[d] = document.get_topic_dist()
        return theta, phi / (total + arguments.beta)[:, np.newaxis]


class Topica:
    """LDA of the library's Rust core, by the sampler that `sampler` names; a longer fit starts afresh."""

    def __init__(self, data: Data, arguments: SimpleNamespace) -> None:
        import topica

        self.arguments, self.done = arguments, 0
        texts = [[str(word) for word in data.tokens(d)] for d in data.documents()]
        names = [str(word) for word in range(data.size)]
        self.known = [d for d, text in enumerate(texts) if text]
        self.corpus = topica.Corpus.from_documents([texts[d] for d in self.known], vocabulary=names)
        self.count, self.size = len(texts), data.size
        self.model: Any = None

    def step(self, iterations: int) -> None:
        """Fit afresh, with some more iterations."""
        import topica

        self.done += iterations
        arguments, self.model = self.arguments, None
        self.model = topica.LDA(
            arguments.topics,
            alpha_sum=arguments.alpha * arguments.topics,
            beta=arguments.beta / self.size,
            optimize_interval=0,
            burn_in=0,
            seed=arguments.seed,
            num_threads=arguments.workers,
            sampler=arguments.sampler,
            use_symmetric_alpha=True,
        )
        self.model.fit(self.corpus, iters=self.done, num_samples=1, sample_interval=1, keep_theta_draws=False)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return the library's own estimates."""
        theta = np.full((self.count, self.arguments.topics), 1.0 / self.arguments.topics)
        theta[self.known] = self.model.doc_topic
        phi = np.full((self.arguments.topics, self.size), 1.0 / self.size)
        phi[:, [int(word) for word in self.model.vocabulary]] = self.model.topic_word
        return theta, phi


def matrix(data: Data) -> sparse.csr_matrix:
    """Return a corpus as a sparse matrix, documents by words."""
    from scipy import sparse

    return sparse.csr_matrix((data.counts, data.words, data.offsets), shape=(data.offsets.size - 1, data.size))


class Sklearn:
    """Batch variational Bayes in several processes, which are started before the time is measured."""

    def __init__(self, data: Data, arguments: SimpleNamespace) -> None:
        from sklearn import decomposition

        self.matrix = matrix(data).astype(np.float64)
        self.model = decomposition.LatentDirichletAllocation(
            arguments.topics,
            doc_topic_prior=arguments.alpha,
            topic_word_prior=arguments.beta / data.size,
            learning_method="batch",
            n_jobs=arguments.workers,
            random_state=arguments.seed,
        )
        decomposition.LatentDirichletAllocation(2, max_iter=1, n_jobs=arguments.workers).fit(
            np.ones((2 * arguments.workers, 2))
        )
        self.done = 0

    def step(self, iterations: int) -> None:
        """Fit afresh, with some more iterations."""
        self.done += iterations
        self.model.set_params(max_iter=self.done).fit(self.matrix)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return posterior means."""
        phi = self.model.components_ / self.model.components_.sum(axis=1, keepdims=True)
        theta = self.model.transform(self.matrix)
        return theta / theta.sum(axis=1, keepdims=True), phi


# Pairs of documents and words that gensim has as Python lists, which take 130 bytes a pair and copies of pages in each
# of its processes; of more, each document is made as it is read
MOST_PAIRS_AS_LISTS = 20_000_000


class Gensim:
    """Online variational Bayes in several processes; an iteration is a pass."""

    def __init__(self, data: Data, arguments: SimpleNamespace) -> None:
        from gensim.matutils import Sparse2Corpus

        self.data, self.arguments, self.done = data, arguments, 0
        stream = Sparse2Corpus(matrix(data).T.tocsc(), documents_columns=True)
        self.corpus = list(stream) if data.words.size <= MOST_PAIRS_AS_LISTS else stream
        self.model: Any = None

    def step(self, iterations: int) -> None:
        """Fit afresh, with some more passes."""
        from gensim.models import LdaMulticore

        self.done += iterations
        arguments, self.model = self.arguments, None
        self.model = LdaMulticore(
            corpus=self.corpus,
            id2word={word: str(word) for word in range(self.data.size)},
            num_topics=arguments.topics,
            alpha=[arguments.alpha] * arguments.topics,
            eta=arguments.beta / self.data.size,
            passes=self.done,
            workers=arguments.workers,
            random_state=arguments.seed,
            eval_every=None,
        )

    def estimate(self) -> tuple[Floats, Floats]:
        """Return posterior means."""
        gamma, _ = self.model.inference(self.corpus)
        return gamma / gamma.sum(axis=1, keepdims=True), self.model.get_topics()


PEERS: dict[str, Callable[[Data, SimpleNamespace], Peer]] = {
    "scikit-learn": Sklearn,
    "gensim": Gensim,
    "tomotopy": Tomotopy,
    "topica": Topica,
}
ALL: dict[str, Callable[[Data, SimpleNamespace], Peer]] = {**PEERS, **HDPS}
# Libraries whose longer fits start afresh, so that their time is not the sum of the steps
RESTARTS = {"topica", "gensim", "scikit-learn"}


def fitted(arguments: SimpleNamespace) -> JsonObject:
    """Fit a library's model, and return its score, time and topics."""
    data, held = Data.read(arguments.train), Data.read(arguments.heldout)
    peer: Peer = ALL[arguments.peer](data, arguments)
    last, samples = arguments.iterations, arguments.samples
    ends = [last - back * arguments.sample_every for back in reversed(range(samples))] or [last]
    probability, seconds = np.zeros(held.words.size), 0.0
    theta, phi = np.empty(0), np.empty(0)
    for iterations in np.diff([0, *ends]).tolist():
        began = time.perf_counter()
        peer.step(iterations)
        seconds += time.perf_counter() - began
        theta, phi = peer.estimate()
        probability += probabilities(held, theta, phi) / len(ends)
    lengths = np.bincount(np.repeat(np.arange(data.offsets.size - 1), np.diff(data.offsets)), weights=data.counts)
    lengths = np.pad(lengths, (0, data.offsets.size - 1 - lengths.size))
    names, sizes = corpora.Corpus(arguments.train).vocabulary.words, lengths @ theta
    falling, cumulative = np.argsort(-sizes, kind="stable"), np.cumsum(np.sort(sizes)[::-1])
    topics_99 = int(np.searchsorted(cumulative, 0.99 * cumulative[-1])) + 1
    words = [[names[word] for word in np.argsort(-phi[k], kind="stable")[: arguments.words]] for k in falling]
    figures = {"score": score_of(held, probability), "seconds": seconds, "samples": samples}
    return {**figures, "topics_99": topics_99, "words": words}


if __name__ == "__main__":
    print_result(fitted)
