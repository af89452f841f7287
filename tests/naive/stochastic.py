"""Sweeps over batches of documents, one document at a time in float64."""

from itertools import pairwise

import numpy as np

from tests.naive import moments as exact


def document(c, phi, a, passes):
    """Return a document's counts n_k after some passes, and the responsibilities that follow from them.

    `c` are the counts of its pairs and `phi` (pairs, topics) the probabilities of their words.
    """
    n = c.sum() * a / a.sum()
    for _ in range(passes):
        n = c @ responsibilities(n, phi, a)
    return n, responsibilities(n, phi, a)


def responsibilities(n, phi, a):
    """Return q ~ (a_k + n_k) phi_kw."""
    weights = (a + n) * phi
    return weights / weights.sum(axis=1, keepdims=True)


def sweep(offsets, position, counts, b, a, total_prior, batch, rates, scales, passes, row_topic, totals):
    """Sweep once over the batches; return E[n_kw], E[n_k], the factor by which counts decayed, n_dk, and the sums of
    E[s_dk].

    All counts decay by the batch's rate when it begins; the expected counts of its documents are available to the next
    batch.
    """
    row_topic, totals = np.array(row_topic, dtype=np.float64), np.array(totals, dtype=np.float64)
    left, tables, document_topic = 1.0, np.zeros(a.size), np.zeros((len(offsets) - 1, a.size))
    for number, (rate, scale) in enumerate(zip(rates, scales, strict=True)):
        row_topic, totals, left = row_topic * (1 - rate), totals * (1 - rate), left * (1 - rate)
        for d, (first, last) in list(enumerate(pairwise(offsets)))[number * batch : (number + 1) * batch]:
            words, c = position[first:last], counts[first:last].astype(np.float64)
            n, q = document(c, (b[words, np.newaxis] + row_topic[words]) / (total_prior + totals), a, passes)
            row_topic[words] += rate * scale * c[:, np.newaxis] * q  # the pairs of a document have distinct words
            totals = totals + rate * scale * (c @ q)
            document_topic[d] = n
            tables += exact.tables(a, *exact.moments(q, c))
    return row_topic, totals, left, document_topic, tables
