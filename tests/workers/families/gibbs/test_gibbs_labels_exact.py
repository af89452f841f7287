"""The samplers of topics given labels against exact posteriors of corpora small enough to enumerate."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln

from collapsium.pipeline.models.registry import recorded_family
from collapsium.storage.corpus.labels import Labels, LabelTable
from collapsium.storage.corpus.shard import Shard
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import Summary
from tests.strategies import documents_of
from tests.workers.families.gibbs.test_gibbs_exact import WORDS, log_words, p_value, tabulated, tokens_of

ROWS = [{0: 1, 1: 1}, {0: 2}, {2: 1}]
NAMES = (("kind", "a"), ("kind", "b"))
# the first document has label b, the second a and b, the third none
LABELS = Labels(NAMES, np.array([0, 1, 3, 3]), np.array([1, 0, 1], dtype=np.int32))
ALPHA, ETA = 0.4, 0.6


def shard_of():
    return replace(Shard.of(0, documents_of(ROWS)), labels=LABELS)


def sweeps(family, options, count):
    """Yield the local state and the objective after each of several sweeps over one shard."""
    shard, stream = shard_of(), Stream(1)
    fitted = recorded_family(family, {"alpha": ALPHA, "eta": ETA, **options})
    summary = Summary(3, WORDS, shard.tokens, labels=LabelTable(NAMES, (1, 2), (), 2, 2))
    global_state = fitted.initialise(summary, stream)
    block = fitted.initial_rows(WORDS, global_state)
    local, delta = fitted.start(shard, block, global_state, stream)
    for iteration in range(count + 1):
        block, sums = fitted.fold(block, delta.with_dim("word"), global_state)
        sums = delta.without_dim("word") + sums
        if iteration:
            yield local, fitted.objective(global_state, sums)["objective"]
        global_state = fitted.update(global_state, sums, stream)
        local, delta = fitted.sweep(
            shard, local, block, global_state, replace(stream, purpose="sweep", iteration=iteration)
        )


def log_documents(owner, z, allowed):
    """Return log p(z | labels) of tokens whose topics are allowed in their documents."""
    found = 0.0
    for document, topics in enumerate(allowed):
        n = np.array([(z[owner == document] == k).sum() for k in topics])
        found += (gammaln(ALPHA + n) - gammaln(ALPHA)).sum()
        found += gammaln(ALPHA * len(topics)) - gammaln(ALPHA * len(topics) + n.sum())
    return found


def log_authors(z, author, topics):
    """Return log p(z, a) up to a constant, because all authors of a document are equally probable."""
    n = tabulated(author, z, (3, topics))
    authors = (gammaln(ALPHA + n) - gammaln(ALPHA)).sum()
    return authors + (gammaln(topics * ALPHA) - gammaln(topics * ALPHA + n.sum(axis=1))).sum()


@pytest.mark.parametrize(
    ("family", "options", "allowed"),
    [
        ("labeled-lda", {}, [[1], [0, 1], [0, 1]]),
        ("partially-labeled-lda", {"topics_per_label": 1, "background": 1}, [[1, 2], [0, 1, 2], [2]]),
        ("partially-labeled-lda", {"topics_per_label": 2, "background": 0}, [[2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]),
    ],
)
def test_topics_of_labels__are_sampled_from_the_posterior(family, options, allowed):
    owner, words = tokens_of(shard_of())
    topics = 1 + max(map(max, allowed))
    posterior = {
        z: log_documents(owner, np.array(z), allowed) + log_words(words, np.array(z), topics, ETA * WORDS)
        for z in itertools.product(*(allowed[document] for document in owner))
    }
    samples = []
    for local, objective in sweeps(family, options, 3000):
        z = tuple(local.token_topic.tolist())
        np.testing.assert_allclose(objective, posterior[z], rtol=1e-9)
        samples.append(z)
    assert p_value(samples[::2], posterior) > 0.01
    # the test must reject a tempered posterior
    assert p_value(samples[::2], {z: 0.5 * value for z, value in posterior.items()}) < 1e-6


def test_author_topic__samples_from_the_posterior():
    owner, words = tokens_of(shard_of())
    authors = [[1], [0, 1], [2]]
    posterior = {
        (z, a): log_authors(np.array(z), np.array(a), 2) + log_words(words, np.array(z), 2, ETA * WORDS)
        for z in itertools.product(range(2), repeat=words.size)
        for a in itertools.product(*(authors[document] for document in owner))
    }
    samples = []
    for local, objective in sweeps("author-topic", {"topics": 2}, 3000):
        named = [authors[document][place] for document, place in zip(owner, local.token_author, strict=True)]
        samples.append((tuple(local.token_topic.tolist()), tuple(named)))
        np.testing.assert_allclose(objective, posterior[samples[-1]] - 2 * np.log(2.0), rtol=1e-9)
    assert p_value(samples[::2], posterior) > 0.01
    assert p_value(samples[::2], {state: 0.5 * value for state, value in posterior.items()}) < 1e-6
