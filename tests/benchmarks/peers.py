"""The peers, each as its users run it: `python -m tests.benchmarks.peers NAME TRAIN HELDOUT ...` prints JSON lines.

Every line has the seconds that the peer has spent fitting (reading, converting and scoring not counted), its
iterations, and the score of its current state by the one definition that all are measured with: the mean over
held-out tokens of log sum_k theta_dk phi_kw, in nats, with theta = (n_dk + alpha) / (n_d + K alpha) and
phi = (n_kw + beta/W) / (n_k + beta), or the peer's own estimates where it gives those. Words that a peer does not know
get the prior's probability.
"""

import argparse
import json
import logging
import resource
import time

import numpy as np

from collapsar.storage.corpus import Corpus
from collapsar.storage.shard import Documents

EACH = 0.1  # of the iterations, between two scores


class Data:
    """A corpus in memory, as the peers want it."""

    def __init__(self, url):
        corpus = Corpus(url)
        found = Documents.join([one.documents() for one in corpus.references])
        self.offsets, self.words, self.counts = found.offsets, found.words, found.counts
        self.size = corpus.manifest.vocabulary.words

    def tokens(self, document):
        first, last = self.offsets[document], self.offsets[document + 1]
        return np.repeat(self.words[first:last], self.counts[first:last])

    def documents(self):
        return range(self.offsets.size - 1)


def score(held, theta, phi):
    """Mean log probability of a held-out token; `theta` by document, `phi` by topic and word."""
    total, columns = 0.0, np.ascontiguousarray(phi.T)
    for d in held.documents():
        first, last = held.offsets[d], held.offsets[d + 1]
        total += float(held.counts[first:last] @ np.log(columns[held.words[first:last]] @ theta[d]))
    return total / held.counts.sum()


def steps(iterations):
    """Iterations to run between scores: a few early ones, then tenths."""
    early = [at for at in (1, 2, 5, 10, 20, 50) if at < iterations * EACH]
    at = sorted({*early, *(max(round(iterations * EACH * n), 1) for n in range(1, round(1 / EACH) + 1))})
    return np.diff([0, *at]).tolist()


class Tomotopy:
    """Collapsed Gibbs sampling, the last sample alone."""

    def __init__(self, data, given):
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
        self.model.train(0, workers=self.workers)

    def step(self, iterations):
        self.model.train(iterations, workers=self.workers)

    def estimate(self):
        given, words = self.given, np.array([int(word) for word in self.model.used_vocabs])
        total = np.array(self.model.get_count_by_topics(), dtype=np.float64)
        # The peer smooths over the words that it has seen; counts are had back, and smoothed over the vocabulary.
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
    """CVB0 by its Rust core; it cannot go on from where it was, so each point of its curve is a fit of its own."""

    def __init__(self, data, given):
        import topica

        self.given, self.done = given, 0
        texts = [[str(word) for word in data.tokens(d)] for d in data.documents()]
        names = [str(word) for word in range(data.size)]
        self.known = [d for d, text in enumerate(texts) if text]
        self.corpus = topica.Corpus.from_documents([texts[d] for d in self.known], vocabulary=names)
        self.count, self.size = len(texts), data.size
        self.seconds = 0.0

    def step(self, iterations):
        import topica

        self.done += iterations
        given = self.given
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

    def estimate(self):
        theta = np.full((self.count, self.given.topics), 1.0 / self.given.topics)
        theta[self.known] = self.model.doc_topic
        phi = np.full((self.given.topics, self.size), 1.0 / self.size)
        phi[:, [int(word) for word in self.model.vocabulary]] = self.model.topic_word
        return theta, phi


def matrix(data):
    """A corpus as a sparse matrix, documents by words."""
    from scipy.sparse import csr_matrix

    return csr_matrix((data.counts, data.words, data.offsets), shape=(data.offsets.size - 1, data.size))


class Sklearn:
    """Batch variational Bayes."""

    def __init__(self, data, given):
        from sklearn.decomposition import LatentDirichletAllocation

        self.matrix, self.batch = matrix(data).astype(np.float64), data.offsets.size - 1
        self.model = LatentDirichletAllocation(
            given.topics,
            doc_topic_prior=given.alpha,
            topic_word_prior=given.beta / data.size,
            learning_method="batch",
            n_jobs=given.workers,
            random_state=given.seed,
        )
        self.done = 0

    def step(self, iterations):
        self.done += iterations
        self.model.set_params(max_iter=self.done).fit(self.matrix)

    def estimate(self):
        phi = self.model.components_ / self.model.components_.sum(axis=1, keepdims=True)
        theta = self.model.transform(self.matrix)
        return theta / theta.sum(axis=1, keepdims=True), phi


class Gensim:
    """Online variational Bayes on several processes; an iteration is a pass."""

    def __init__(self, data, given):
        from gensim.matutils import Sparse2Corpus

        self.data, self.given, self.done = data, given, 0
        self.corpus = list(Sparse2Corpus(matrix(data).T.tocsc(), documents_columns=True))

    def step(self, iterations):
        from gensim.models import LdaMulticore

        self.done += iterations
        given = self.given
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

    def estimate(self):
        gamma, _ = self.model.inference(self.corpus)
        return gamma / gamma.sum(axis=1, keepdims=True), self.model.get_topics()


PEERS = {"tomotopy": Tomotopy, "topica": Topica, "sklearn": Sklearn, "gensim": Gensim}
RESTARTS = {"topica", "sklearn", "gensim"}  # a longer fit begins anew, so its time is not the sum of the steps


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("train")
    parser.add_argument("heldout")
    parser.add_argument("--topics", type=int, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--beta", type=float, default=100.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--last", action="store_true", help="score the last state only")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    data, held = Data(given.train), Data(given.heldout)
    peer, spent, done = PEERS[given.peer](data, given), 0.0, 0
    for more in [given.iterations] if given.last else steps(given.iterations):
        began = time.perf_counter()
        peer.step(more)
        took = time.perf_counter() - began
        spent, done = (took if given.peer in RESTARTS else spent + took), done + more
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        line = {"seconds": spent, "iterations": done, "score": score(held, *peer.estimate()), "megabytes": memory}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
