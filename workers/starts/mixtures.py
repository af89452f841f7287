"""Mixtures of one topic a document, alone or under a root that all documents share: tasks on shards.

`documents` is the Dirichlet mixture of Nigam, McCallum, Thrun and Mitchell (2000), `tree` adds the root. Likelihoods
are raised to a power that grows to 1 (Ueda and Nakano 1998), so that topics form together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collapsium.storage.readers.proportions_file import DocumentProportions, sparse_proportions
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels.starts import mixture as kernels
from collapsium.workers.kernels.starts.mixture import Mixture
from collapsium.workers.starts.words import AnyTrainingShard, StartWords, opened

Vector = npt.NDArray[np.float64]


KERNELS = (kernels.document_shares, kernels.count_words)


# Priors and annealing; chosen by purity and NMI on SearchSnippets and AG News.
ROUNDS = 40  # Rounds over all documents
FIRST_POWER = 0.3  # Power of the likelihood in the first round
ANNEALED_SHARE = 0.6  # Share of the rounds after which the power is 1
TOPIC_PRIOR = 1.0  # Documents that each topic has more
WORD_PRIOR = 100.0  # Tokens that each topic has more, over all words
ROOT_PRIOR = 0.1  # Tokens that the root has more of each word
ROOT_SHARE = 0.5  # Share of a document's tokens that are the root's, in a tree
MIN_SHARE = 1e-3  # Proportions below are left out at the end


class MixtureSums(NamedTuple):
    """Sums over documents."""

    leaf: npt.NDArray[np.float64]  # Tokens of words in topics; float64 (words, topics)
    root: Vector  # Tokens of words in the root; float64 (words,)
    documents: Vector  # Expected documents of each topic; float64 (topics,)


def power_of(iteration: int) -> float:
    """Return the power of the likelihood in a round, 0 for the first."""
    grown = iteration / (ROUNDS * ANNEALED_SHARE)
    return min(1.0, FIRST_POWER + (1.0 - FIRST_POWER) * grown)


def even_mixture(words: int, topics: int, root_share: float) -> Mixture:
    """Return a mixture of even topics, under which tokens are shared evenly."""
    each = 1.0 / max(words, 1)
    leaf = np.full((words, topics), each, dtype=np.float32)
    return Mixture(leaf, np.full(words, each), np.zeros(topics), root_share, 1.0)


def first_sums(
    shard: AnyTrainingShard, words: StartWords, topics: int, root_share: float, stream: Stream
) -> MixtureSums:
    """Return the sums of documents whose proportions are drawn."""
    documents = opened(shard).documents
    # Squares of exponential draws are nearly as sparse as Dirichlet draws of parameter 0.5.
    weights = special.log(1.0 - stream.generator().random((documents, topics))) ** 2 + 1e-12
    shares = weights / weights.sum(axis=1, keepdims=True)
    return _sums(shard, words, even_mixture(words.ids.size, topics, root_share), shares.astype(np.float32))


def next_sums(shard: AnyTrainingShard, words: StartWords, mixture: Mixture) -> MixtureSums:
    """Return the sums of documents under a mixture."""
    return _sums(shard, words, mixture, _shares(shard, words, mixture))


def next_mixture(sums: MixtureSums, root_share: float, power: float) -> Mixture:
    """Return the mixture that sums give."""
    words = max(sums.leaf.shape[0], 1)
    leaf = (sums.leaf + WORD_PRIOR / words) / (sums.leaf.sum(axis=0) + WORD_PRIOR)
    root = (sums.root + ROOT_PRIOR) / (sums.root.sum() + ROOT_PRIOR * words)
    log_share = special.log(sums.documents + TOPIC_PRIOR)
    return Mixture(leaf.astype(np.float32), root, log_share, root_share, power)


def size(mixture: Mixture) -> int:
    """Return the number of topics."""
    return int(mixture.leaf.shape[1])


def mixture_proportions(shard: AnyTrainingShard, words: StartWords, mixture: Mixture) -> DocumentProportions:
    """Return the probabilities of the topics of a shard's documents; those without known words have none."""
    loaded, shares = opened(shard), _shares(shard, words, mixture)
    known = np.zeros(loaded.documents, dtype=bool)
    owners = np.repeat(np.arange(loaded.documents), np.diff(loaded.offsets))
    known[owners[words.numbers(loaded)[loaded.position] >= 0]] = True
    owner, topic = np.nonzero((shares >= MIN_SHARE) & known[:, np.newaxis])
    return sparse_proportions(owner, topic, shares[owner, topic], loaded.documents, shares.shape[1])


def _shares(shard: AnyTrainingShard, words: StartWords, mixture: Mixture) -> npt.NDArray[np.float32]:
    loaded = opened(shard)
    shares = np.empty((loaded.documents, mixture.leaf.shape[1]), dtype=np.float32)
    kernels.document_shares(document_pairs(loaded), words.numbers(loaded), mixture, shares)
    return shares


def _sums(shard: AnyTrainingShard, words: StartWords, mixture: Mixture, shares: npt.NDArray[np.float32]) -> MixtureSums:
    leaf, root = np.zeros(mixture.leaf.shape), np.zeros(mixture.leaf.shape[0])
    loaded = opened(shard)
    kernels.count_words(document_pairs(loaded), words.numbers(loaded), mixture, shares, leaf, root)
    return MixtureSums(leaf, root, shares.sum(axis=0, dtype=np.float64))
