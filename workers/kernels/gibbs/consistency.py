"""Compare the topics of tokens that were read from disk with the counts of the model.

A fingerprint of counts n_wk is sum_wk r_w s_k n_wk modulo 2^64, by random keys r and s. Equal counts have the same, and
other counts another one but with a probability of some 2^-60. The fingerprint of tokens takes one pass over them, in
their order, where a comparison of their counts takes a step to a distant place in memory for each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.gibbs.topics import DocumentLabels
from collapsium.workers.kernels.jit import (
    DocumentPairs,
    Int32Matrix,
    Int64Vector,
    OutInt32Matrix,
    OutInt64Vector,
    OutUInt64Vector,
    UInt8Vector,
    UInt16Vector,
    UInt64Vector,
    kernel,
)


class FingerprintKeys(NamedTuple):
    """Random keys of fingerprints."""

    word: UInt64Vector  # r of the word of each row; (rows,)
    column: UInt64Vector  # s; (columns,)


@kernel
def fingerprint_tokens(
    documents: DocumentPairs, token_topic: UInt16Vector, keys: FingerprintKeys, total: OutUInt64Vector
) -> None:
    """Sum the products of the keys of tokens; twin: `naive.gibbs.fingerprint`.

    Shapes: `token_topic` (tokens,); `total` (1,).
    """
    token, fingerprint = 0, np.uint64(0)
    for pair in range(documents.position.size):
        # Most pairs have one token, which takes two thirds of the time outside of the loop.
        part = keys.column[token_topic[token]]
        token += 1
        for _ in range(1, documents.counts[pair]):
            part += keys.column[token_topic[token]]
            token += 1
        fingerprint += part * keys.word[documents.position[pair]]
    total[0] += fingerprint


@kernel
def fingerprint_levels(
    documents: DocumentPairs,
    token_level: UInt8Vector,
    document_path: Int32Matrix,
    keys: FingerprintKeys,
    total: OutUInt64Vector,
) -> None:
    """Do the same for tokens whose columns are the path of their document; twin: `naive.gibbs.fingerprint`.

    Shapes: `token_level` (tokens,); `document_path` (documents, levels); `total` (1,).
    """
    token, fingerprint = 0, np.uint64(0)
    for document in range(documents.offsets.size - 1):
        for pair in range(documents.offsets[document], documents.offsets[document + 1]):
            part = np.uint64(0)
            for _ in range(documents.counts[pair]):
                column = document_path[document, token_level[token]]
                if column >= 0:
                    part += keys.column[column]
                token += 1
            fingerprint += part * keys.word[documents.position[pair]]
    total[0] += fingerprint


@kernel
def fingerprint_rows(
    word_topic: Int32Matrix, keys: FingerprintKeys, totals: OutInt64Vector, total: OutUInt64Vector
) -> None:
    """Sum the products of counts and their keys; twin: `naive.gibbs.fingerprint`.

    Shapes: `word_topic` (rows, columns); `totals` (columns or more,); `total` (1,).
    """
    fingerprint = np.uint64(0)
    for row in range(word_topic.shape[0]):
        part = np.uint64(0)
        for column in range(word_topic.shape[1]):
            count = word_topic[row, column]
            part += np.uint64(count) * keys.column[column]
            totals[column] += count
        fingerprint += part * keys.word[row]
    total[0] += fingerprint


@kernel
def find_disallowed(
    labels: DocumentLabels,
    lengths: Int64Vector,
    token_topic: UInt16Vector,
    topics: int,
    disallowed: OutInt64Vector,
) -> None:
    """Find documents with topics that their labels do not have; twin: `naive.gibbs_labels.disallowed`.

    Each label has separate topics, and the last topics are the background's, which all documents may have. Documents
    without labels may have all topics where there is no background.

    Shapes: `lengths` (documents,); `token_topic` (tokens,); `disallowed` (1,).
    """
    barred, begin, background = np.ones(topics, dtype=np.uint8), 0, labels.background_topics
    barred[topics - background :] = 0
    disallowed[0] = -1
    for document in range(lengths.size):
        end = begin + lengths[document]
        first, last = labels.offsets[document], labels.offsets[document + 1]
        if first < last or background > 0:
            for entry in range(first, last):
                low = labels.label[entry] * labels.topics_per_label
                barred[low : low + labels.topics_per_label] = 0
            any_barred = np.uint8(0)
            for token in range(begin, end):
                any_barred |= barred[token_topic[token]]
            if any_barred:
                disallowed[0] = document
                return
            for entry in range(first, last):
                low = labels.label[entry] * labels.topics_per_label
                barred[low : low + labels.topics_per_label] = 1
        begin = end


@kernel
def find_uncounted(
    documents: DocumentPairs,
    token_column: Int64Vector,
    word_topic: OutInt32Matrix,
    totals: OutInt64Vector,
    uncounted: OutInt64Vector,
) -> None:
    """Find tokens that the counts of the model do not have; twin: `naive.gibbs.uncounted`.

    Shapes: `token_column` (tokens,); `word_topic` (rows, columns); `totals` (columns or more,); `uncounted` (1,).
    """
    token, columns = 0, min(word_topic.shape[1], totals.size)
    uncounted[0] = -1
    for pair in range(documents.position.size):
        row = documents.position[pair]
        for _ in range(documents.counts[pair]):
            column = token_column[token]
            if column >= columns or (column >= 0 and (word_topic[row, column] <= 0 or totals[column] <= 0)):
                uncounted[0] = token
                return
            if column >= 0:
                word_topic[row, column] -= 1
                totals[column] -= 1
            token += 1
