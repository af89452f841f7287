"""Topics given labels, one token at a time, with all counts recomputed for each token."""

import numpy as np

from tests.naive.gibbs import pick, tokens_of
from tests.naive.random import uniform


def allowed_of(lists, label, per_label, background, topics):
    """Return the topics that the labels of each document allow."""
    allowed = []
    for first, last in zip(lists, lists[1:], strict=False):
        label_topics = [int(number) * per_label + place for number in label[first:last] for place in range(per_label)]
        rest = list(range(topics - background, topics))
        allowed.append(np.array(label_topics + rest if first < last or background else range(topics), dtype=int))
    return allowed


def disallowed(allowed, lengths, z):
    """Return the first document with a topic that it may not have; -1 if there is none."""
    for document, document_topics in enumerate(np.split(z, np.cumsum(lengths)[:-1])):
        if not np.isin(document_topics, allowed[document]).all():
            return document
    return -1


def sweep(offsets, position, counts, key, allowed, prior, word_prior, total_prior, elsewhere, z):
    """Sweep once; `elsewhere` are the counts of other shards."""
    documents, words = tokens_of(offsets, position, counts)
    z = z.astype(int)
    for token in range(z.size):
        topics, remaining = allowed[documents[token]], np.arange(z.size) != token
        in_document = (z[remaining & (documents == documents[token])][:, np.newaxis] == topics).sum(axis=0)
        word = (z[remaining & (words == words[token])][:, np.newaxis] == topics).sum(axis=0) + elsewhere[
            words[token], topics
        ]
        every = (z[remaining][:, np.newaxis] == topics).sum(axis=0) + elsewhere[:, topics].sum(axis=0)
        z[token] = topics[
            pick((in_document + prior) * (word + word_prior) / (every + total_prior), uniform(key, token))
        ]
    return z


def fold_in(offsets, position, counts, phi, allowed, prior, sweeps):
    """Return E[n_dk] of each document over its allowed topics."""
    proportions = []
    for document, topics in enumerate(allowed):
        pairs = range(offsets[document], offsets[document + 1])
        q, document_counts = {pair: np.zeros(topics.size) for pair in pairs}, np.zeros(topics.size)
        for number in range(sweeps):
            before = document_counts.copy()
            for pair in pairs:
                remaining = np.zeros(topics.size) if number == 0 else np.maximum(document_counts - q[pair], 0.0)
                new = (prior + remaining) * phi[position[pair], topics]
                new /= new.sum()
                document_counts = document_counts + counts[pair] * (new - q[pair])
                q[pair] = new
            if np.abs(document_counts - before).max() < 1e-4:
                break
        proportions.append(document_counts)
    return proportions


def probability(offsets, position, phi, allowed, prior, document_topic):
    """Return sum_k theta_dk phi_kw of each pair."""
    probabilities = []
    for document, topics in enumerate(allowed):
        theta = (document_topic[document, topics] + prior) / (topics.size * prior + document_topic[document].sum())
        probabilities += [
            theta @ phi[position[pair], topics] for pair in range(offsets[document], offsets[document + 1])
        ]
    return np.array(probabilities)


def sweep_authors(
    offsets, position, counts, key, authors, prior, word_prior, total_prior, elsewhere, author_elsewhere, z, a
):
    """Sweep once; `authors` are each document's authors.

    `elsewhere` and `author_elsewhere` are the counts of other shards by word and by author.
    """
    documents, words = tokens_of(offsets, position, counts)
    z, a, topics = z.astype(int), a.astype(int), elsewhere.shape[1]
    for token in range(z.size):
        remaining, candidates = np.arange(z.size) != token, authors[documents[token]]
        by = np.array([authors[document][place] for document, place in zip(documents, a, strict=True)])
        counted = [
            author_elsewhere[author] + np.bincount(z[remaining & (by == author)], minlength=topics)
            for author in candidates
        ]
        word = np.bincount(z[remaining & (words == words[token])], minlength=topics) + elsewhere[words[token]]
        every = np.bincount(z[remaining], minlength=topics) + elsewhere.sum(axis=0)
        phi = (word + word_prior) / (every + total_prior)
        mass = np.array([(counts + prior) / (counts.sum() + topics * prior) * phi for counts in counted])
        a[token] = pick(mass.sum(axis=1), uniform(key, 2 * token))
        z[token] = pick(mass[a[token]], uniform(key, 2 * token + 1))
    return z, a
