"""Mixtures of one topic a document, with or without a root that all documents share."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Float32Matrix,
    Float64Vector,
    Int64Vector,
    OutFloat32Matrix,
    OutFloat64Matrix,
    OutFloat64Vector,
)
from collapsium.workers.kernels.jit import kernel
from collapsium.workers.kernels.records import DocumentPairs


class Mixture(NamedTuple):
    """Topics of the words that count, and their shares."""

    leaf: Float32Matrix  # phi_wk; (words, topics)
    root: Float64Vector  # Probability of each word in the root; (words,)
    log_share: Float64Vector  # log of each topic's number of documents, up to a constant; (topics,)
    root_share: float  # Share of a document's tokens that are the root's; 0 without a root
    power: float  # Power of the likelihood, up to 1


@kernel
def document_shares(pairs: DocumentPairs, number: Int64Vector, mixture: Mixture, shares: OutFloat32Matrix) -> None:
    """Fill the probability of each document's topic; twin: `naive.starts.document_shares`.

    r_dk ~ (m_k prod over pairs of ((1 - s) phi_wk + s root_w)^c)^power.

    Shapes: `number` (rows,); `shares` (documents, topics).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    leaf, topics = mixture.leaf, mixture.leaf.shape[1]
    score, log_word = np.empty(topics), np.empty(leaf.shape)
    for word in range(leaf.shape[0]):
        for k in range(topics):
            word_share = (1.0 - mixture.root_share) * leaf[word, k] + mixture.root_share * mixture.root[word]
            log_word[word, k] = math.log(word_share)
    for document in range(offsets.size - 1):
        for k in range(topics):
            score[k] = mixture.log_share[k]
        for pair in range(offsets[document], offsets[document + 1]):
            word = number[position[pair]]
            if word >= 0:
                count = float(counts[pair])
                for k in range(topics):
                    score[k] += count * log_word[word, k]
        largest = score[0]
        for k in range(topics):
            largest = max(largest, score[k])
        total = 0.0
        for k in range(topics):
            score[k] = math.exp((score[k] - largest) * mixture.power)
            total += score[k]
        for k in range(topics):
            shares[document, k] = np.float32(score[k] / total)


@kernel
def count_words(
    pairs: DocumentPairs,
    number: Int64Vector,
    mixture: Mixture,
    shares: Float32Matrix,
    leaf: OutFloat64Matrix,
    root: OutFloat64Vector,
) -> None:
    """Add the tokens of words in topics and in the root; twin: `naive.starts.count_words`.

    Shapes: `number` (rows,); `shares` (documents, topics); `leaf` (words, topics); `root` (words,).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    topics = shares.shape[1]
    for document in range(offsets.size - 1):
        for pair in range(offsets[document], offsets[document + 1]):
            word = number[position[pair]]
            if word < 0:
                continue
            count = float(counts[pair])
            known = 0.0
            for k in range(topics):
                known += shares[document, k] * mixture.leaf[word, k]
            own, others = (1.0 - mixture.root_share) * known, mixture.root_share * mixture.root[word]
            held = count * own / (own + others) if own + others > 0.0 else 0.0
            root[word] += count - held
            for k in range(topics):
                leaf[word, k] += held * shares[document, k]
