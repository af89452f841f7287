"""The peers, each as its users run it: `python -m tests.benchmarks.peers NAME TRAIN HELDOUT ...` prints JSON lines.

TRAIN and HELDOUT are corpora, or files that `Data.save` wrote of them: a peer that reads those does not carry the
memory of our reader. Lines say when a fit begins and ends, so that memory can be watched while it lasts.

Every other line has the seconds that the peer has spent fitting (its initialisation counted; reading, converting and
scoring not), its iterations, and the score of its current state by the one definition that all are measured with: the
mean over held-out tokens of log sum_k theta_dk phi_kw, in nats, with theta = (n_dk + alpha) / (n_d + K alpha) and
phi = (n_kw + beta/W) / (n_k + beta), or the peer's own estimates where it gives those. Words that a peer does not know
get the prior's probability.
"""

import argparse
import importlib.util
import json
import logging
import resource
import time

import numpy as np

EACH = 0.1  # of the iterations, between two scores


class Data:
    """A corpus in memory, as the peers want it.

    Parameters
    ----------
    offsets : ndarray of int64, shape (documents + 1,)
        Where each document's pairs begin.
    words, counts : ndarray of int32, shape (pairs,)
        The distinct words of a document, and how often it has each.
    size : int
        Words in the vocabulary.
    """

    def __init__(self, offsets, words, counts, size):
        self.offsets, self.words, self.counts, self.size = offsets, words, counts, int(size)

    @classmethod
    def read(cls, url):
        """Read a corpus, or a file that `save` wrote."""
        if str(url).endswith(".npz"):
            with np.load(url) as kept:
                return cls(kept["offsets"], kept["words"], kept["counts"], kept["size"])
        from collapsar.storage.corpus import Corpus  # not above: it would count as the peers' memory
        from collapsar.storage.shard import Documents

        corpus = Corpus(url)
        found = Documents.join([one.documents() for one in corpus.references])
        return cls(found.offsets, found.words, found.counts, corpus.manifest.vocabulary.words)

    def save(self, path):
        """Write a file that NumPy alone can read."""
        np.savez(path, offsets=self.offsets, words=self.words, counts=self.counts, size=self.size)

    def tokens(self, document):
        """Return a document's words, each as often as it occurs."""
        first, last = self.offsets[document], self.offsets[document + 1]
        return np.repeat(self.words[first:last], self.counts[first:last])

    def documents(self):
        """Return the documents' numbers."""
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

    def step(self, iterations):
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
    """Batch variational Bayes on several processes, which are there before the time is taken, as ours are."""

    def __init__(self, data, given):
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

    def estimate(self):
        gamma, _ = self.model.inference(self.corpus)
        return gamma / gamma.sum(axis=1, keepdims=True), self.model.get_topics()


PEERS = {"tomotopy": Tomotopy, "topica": Topica, "gensim": Gensim, "scikit-learn": Sklearn}
MODULES = {name: name for name in PEERS} | {"scikit-learn": "sklearn"}
RESTARTS = {"topica", "gensim", "scikit-learn"}  # a longer fit begins anew, so its time is not the sum of the steps


def installed(name):
    """Return whether a peer is installed, without importing it."""
    return importlib.util.find_spec(MODULES[name]) is not None


def tell(**line):
    """Print a line of JSON, at once."""
    print(json.dumps(line), flush=True)


def run(given):
    """Fit a peer step by step, and print where it stands after each."""
    data, held = Data.read(given.train), Data.read(given.heldout)
    peer, spent, done = PEERS[given.peer](data, given), 0.0, 0
    for more in [given.iterations] if given.last else steps(given.iterations):
        tell(state="fitting")
        began = time.perf_counter()
        peer.step(more)
        took = time.perf_counter() - began
        tell(state="fitted")
        spent, done = (took if given.peer in RESTARTS else spent + took), done + more
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        found = score(held, *peer.estimate())
        tell(seconds=spent, iterations=done, score=found, megabytes=memory)


def main():
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("train", help="training corpus, or .npz file of it")
    parser.add_argument("heldout", help="held-out tokens of the same documents")
    parser.add_argument("--topics", type=int, required=True)
    parser.add_argument("--iterations", type=int, required=True, help="of the peer's own kind: samples, sweeps, passes")
    parser.add_argument("--alpha", type=float, default=0.1, help="of each topic (default: 0.1)")
    parser.add_argument("--beta", type=float, default=100.0, help="of a topic over all words (default: 100)")
    parser.add_argument("--workers", type=int, default=2, help="cores (default: 2)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--last", action="store_true", help="score the last state only")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    run(given)


if __name__ == "__main__":
    main()
