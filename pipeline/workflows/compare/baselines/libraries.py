"""Other libraries, each as its users run it: fitted to a corpus, with the proportions and topics that they come to.

`python -m collapsium.pipeline.workflows.compare.baselines.libraries JSON` fits one and prints a line of JSON. All are
scored by one definition: the mean over held-out tokens of log sum_k theta_dk phi_kw, in nats, with theta = (n_dk +
alpha) / (n_d + K alpha) and phi = (n_kw + beta/W) / (n_k + beta), or the library's own estimates where it gives those.
Words that it does not know get the prior's probability.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from collapsium.pipeline.workflows.compare.baselines.base import print_result
from collapsium.pipeline.workflows.compare.baselines.corpus_arrays import Data, Floats
from collapsium.pipeline.workflows.compare.baselines.library_hdps import HDPS


def probabilities(held: Data, theta: Floats, phi: Floats) -> Floats:
    """Return the probability of each held-out pair's word.

    Parameters
    ----------
    held : Data
        The held-out tokens.
    theta : numpy.ndarray, shape (documents, topics)
        Proportions of the same documents.
    phi : numpy.ndarray, shape (topics, words)
        Topics.

    Returns
    -------
    numpy.ndarray of float64, shape (pairs,)
        sum_k theta_dk phi_kw.
    """
    found, columns = np.empty(held.words.size), np.ascontiguousarray(phi.T)
    for d in held.documents():
        first, last = held.offsets[d], held.offsets[d + 1]
        found[first:last] = columns[held.words[first:last]] @ theta[d]
    return found


def score_of(held: Data, probability: Floats) -> float:
    """Return the mean log probability of a held-out token, in nats, given each pair's."""
    return float(held.counts @ np.log(probability) / held.counts.sum())


def score(held: Data, theta: Floats, phi: Floats) -> float:
    """Return the mean log probability of a held-out token; `theta` by document, `phi` by topic and word."""
    return score_of(held, probabilities(held, theta, phi))


class Peer(Protocol):
    """A library's model: made of `Data` and of options with the attributes that `main` names."""

    def step(self, iterations: int) -> None:
        """Fit so many iterations more."""

    def estimate(self) -> tuple[Floats, Floats]:
        """Return theta, shape (documents, topics), and phi, shape (topics, words)."""


class Tomotopy:
    """Collapsed Gibbs sampling; its state is a sample."""

    def __init__(self, data: Data, given: Any) -> None:
        import tomotopy

        self.given, self.size, self.workers = given, data.size, given.workers
        self.model = tomotopy.LDAModel(
            tw=tomotopy.TermWeight.ONE, k=given.topics, alpha=given.alpha, eta=given.beta / data.size, seed=given.seed
        )
        self.model.optim_interval = 0
        self.known = [d for d in data.documents() if data.offsets[d + 1] > data.offsets[d]]
        for d in self.known:
            self.model.add_doc([str(word) for word in data.tokens(d)])
        self.count = data.offsets.size - 1

    def step(self, iterations: int) -> None:
        """Draw so many samples more."""
        self.model.train(iterations, workers=self.workers)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return what the last sample says."""
        given, words = self.given, np.array([int(word) for word in self.model.used_vocabs])
        total = np.array(self.model.get_count_by_topics(), dtype=np.float64)
        # It smooths over the words that it has seen; counts are had back, and smoothed over the vocabulary.
        eta = given.beta / self.size
        own = np.stack([self.model.get_topic_word_dist(k) for k in range(given.topics)])
        counts = own * (total + eta * words.size)[:, np.newaxis] - eta
        phi = np.full((given.topics, self.size), eta)
        phi[:, words] += np.maximum(counts, 0.0)
        theta = np.full((self.count, given.topics), 1.0 / given.topics)
        for d, document in zip(self.known, self.model.docs, strict=True):
            theta[d] = document.get_topic_dist()
        return theta, phi / (total + given.beta)[:, np.newaxis]


class Topica:
    """CVB0 by its Rust core; it cannot go on from where it was, so a longer fit begins anew."""

    def __init__(self, data: Data, given: Any) -> None:
        import topica

        self.given, self.done = given, 0
        texts = [[str(word) for word in data.tokens(d)] for d in data.documents()]
        names = [str(word) for word in range(data.size)]
        self.known = [d for d, text in enumerate(texts) if text]
        self.corpus = topica.Corpus.from_documents([texts[d] for d in self.known], vocabulary=names)
        self.count, self.size = len(texts), data.size
        self.model: Any = None

    def step(self, iterations: int) -> None:
        """Fit anew, so many iterations longer."""
        import topica

        self.done += iterations
        given, self.model = self.given, None  # the model before would count as memory of this one
        self.model = topica.LDA(
            given.topics,
            alpha_sum=given.alpha * given.topics,
            beta=given.beta / self.size,
            optimize_interval=0,
            burn_in=0,
            seed=given.seed,
            num_threads=given.workers,
            sampler="cvb0",
            use_symmetric_alpha=True,
        )
        self.model.fit(self.corpus, iters=self.done, num_samples=1, sample_interval=1, keep_theta_draws=False)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return its own estimates."""
        theta = np.full((self.count, self.given.topics), 1.0 / self.given.topics)
        theta[self.known] = self.model.doc_topic
        phi = np.full((self.given.topics, self.size), 1.0 / self.size)
        phi[:, [int(word) for word in self.model.vocabulary]] = self.model.topic_word
        return theta, phi


def matrix(data: Data) -> Any:
    """Return a corpus as a sparse matrix, documents by words."""
    from scipy.sparse import csr_matrix

    return csr_matrix((data.counts, data.words, data.offsets), shape=(data.offsets.size - 1, data.size))


class Sklearn:
    """Batch variational Bayes on several processes, which are there before the time is taken, as ours are."""

    def __init__(self, data: Data, given: Any) -> None:
        from sklearn.decomposition import LatentDirichletAllocation

        self.matrix = matrix(data).astype(np.float64)
        self.model = LatentDirichletAllocation(
            given.topics,
            doc_topic_prior=given.alpha,
            topic_word_prior=given.beta / data.size,
            learning_method="batch",
            n_jobs=given.workers,
            random_state=given.seed,
        )
        LatentDirichletAllocation(2, max_iter=1, n_jobs=given.workers).fit(np.ones((2 * given.workers, 2)))
        self.done = 0

    def step(self, iterations: int) -> None:
        """Fit anew, so many iterations longer."""
        self.done += iterations
        self.model.set_params(max_iter=self.done).fit(self.matrix)

    def estimate(self) -> tuple[Floats, Floats]:
        """Return the means of its posteriors."""
        phi = self.model.components_ / self.model.components_.sum(axis=1, keepdims=True)
        theta = self.model.transform(self.matrix)
        return theta / theta.sum(axis=1, keepdims=True), phi


class Gensim:
    """Online variational Bayes on several processes; an iteration is a pass."""

    def __init__(self, data: Data, given: Any) -> None:
        from gensim.matutils import Sparse2Corpus

        self.data, self.given, self.done = data, given, 0
        self.corpus = list(Sparse2Corpus(matrix(data).T.tocsc(), documents_columns=True))
        self.model: Any = None

    def step(self, iterations: int) -> None:
        """Fit anew, so many passes longer."""
        from gensim.models import LdaMulticore

        self.done += iterations
        given, self.model = self.given, None  # the model before would count as memory of this one
        self.model = LdaMulticore(
            corpus=self.corpus,
            id2word={word: str(word) for word in range(self.data.size)},
            num_topics=given.topics,
            alpha=[given.alpha] * given.topics,
            eta=given.beta / self.data.size,
            passes=self.done,
            workers=given.workers,
            random_state=given.seed,
            eval_every=None,
        )

    def estimate(self) -> tuple[Floats, Floats]:
        """Return the means of its posteriors."""
        gamma, _ = self.model.inference(self.corpus)
        return gamma / gamma.sum(axis=1, keepdims=True), self.model.get_topics()


PEERS: dict[str, Any] = {"scikit-learn": Sklearn, "gensim": Gensim, "tomotopy": Tomotopy, "topica": Topica}
ALL: dict[str, Any] = {**PEERS, **HDPS}
RESTARTS = {"topica", "gensim", "scikit-learn"}  # a longer fit begins anew, so its time is not the sum of the steps


def fitted(given: SimpleNamespace) -> dict[str, Any]:
    """Fit a library, and say what came of it.

    Parameters
    ----------
    given : types.SimpleNamespace
        ``peer``, ``train``, ``heldout``, ``topics``, ``iterations``, ``samples``, ``sample_every``, ``alpha``,
        ``beta``, ``workers``, ``seed`` and ``words``, how many to name of a topic.

    Returns
    -------
    dict
        ``score``, ``seconds``, ``samples`` that were averaged, ``topics_99``, how many of the largest topics hold 99%
        of the tokens, and ``words``, those of the largest topic first.
    """
    from collapsium.storage.corpus.corpus import Corpus

    data, held = Data.read(given.train), Data.read(given.heldout)
    peer: Peer = ALL[given.peer](data, given)
    last, samples = given.iterations, given.samples
    ends = [last - back * given.sample_every for back in reversed(range(samples))] or [last]
    probability, seconds = np.zeros(held.words.size), 0.0
    theta, phi = np.empty(0), np.empty(0)
    for more in np.diff([0, *ends]).tolist():
        began = time.perf_counter()
        peer.step(more)
        seconds += time.perf_counter() - began
        theta, phi = peer.estimate()
        probability += probabilities(held, theta, phi) / len(ends)
    lengths = np.bincount(np.repeat(np.arange(data.offsets.size - 1), np.diff(data.offsets)), weights=data.counts)
    lengths = np.pad(lengths, (0, data.offsets.size - 1 - lengths.size))
    names, sizes = Corpus(given.train).vocabulary.words, lengths @ theta
    falling, held_by = np.argsort(-sizes, kind="stable"), np.cumsum(np.sort(sizes)[::-1])
    enough = int(np.searchsorted(held_by, 0.99 * held_by[-1])) + 1
    words = [[names[word] for word in np.argsort(-phi[k], kind="stable")[: given.words]] for k in falling]
    found = {"score": score_of(held, probability), "seconds": seconds, "samples": samples}
    return {**found, "topics_99": enough, "words": words}


if __name__ == "__main__":
    print_result(fitted)
