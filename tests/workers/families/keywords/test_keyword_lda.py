"""Updates of topics with keywords, which are LDA's with other counts, against the formulas of the Gibbs sampler."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.families.cvb.states import CollapsedRows
from collapsium.workers.families.keywords.keyword_lda import KeywordGlobalState, effective
from tests.naive.keywords import conditional

WORDS, TOPICS = 9, 4
KEYWORDS = {0: [1, 4], 2: [4, 7, 8]}


def simulated_counts(seed):
    """Return simulated counts and keyword counts, with the state and rows that contain them."""
    generator = np.random.default_rng(seed)
    counts = generator.gamma(0.7, 5.0, size=(WORDS, TOPICS)).astype(np.float32).astype(np.float64)
    special = np.zeros((WORDS, TOPICS))
    entries = [(word, topic) for topic, words in KEYWORDS.items() for word in words]
    for word, topic in entries:
        special[word, topic] = generator.uniform(0.0, 1.0) * counts[word, topic]
    priors = {"b": 0.3, "c": 0.1, "yes": 1.5, "no": 0.8}
    state = KeywordGlobalState(
        vocabulary=float(WORDS),
        beta=priors["b"] * WORDS,
        active=False,
        rows_ahead=False,
        stochastic=False,
        moments=False,
        start_every=1,
        corpus_tokens=float(counts.sum()),
        topic_moments=np.stack([counts.sum(axis=0), np.zeros(TOPICS)]),
        topic_log_absent=np.zeros(TOPICS),
        topic_ahead=counts.sum(axis=0),
        spread_weight=np.ones(TOPICS),
        alpha=np.full(TOPICS, 0.1),
        keyword_words=np.array([word for word, _ in entries]),
        keyword_topics=np.array([topic for _, topic in entries]),
        keyword_counts=np.array([special[entry] for entry in entries]),
        keyword_beta=priors["c"],
        switch_prior=np.array([priors["yes"], priors["no"]]),
    )
    rows = CollapsedRows(word_topic=counts.astype(np.float32), word_number=np.arange(WORDS))
    return counts, special, priors, state, rows


@given(st.integers(0, 10_000))
def test_probabilities__match_the_mixture_and_sum_to_one(seed):
    counts, special, priors, state, rows = simulated_counts(seed)
    changed, totals = effective(rows, state)
    found = (changed.dense_counts + priors["b"]) / (totals.topic_moments[0] + state.beta)
    expected = conditional(counts, special, KEYWORDS, priors).sum(axis=0)
    assert np.allclose(found, expected, rtol=1e-5)
    assert np.allclose(expected.sum(axis=0), 1.0)


@given(st.integers(0, 10_000), st.integers(0, 5))
def test_updates_of_some_rows__equal_updates_of_all_rows(seed, first):
    *_, state, rows = simulated_counts(seed)
    some = np.arange(first, WORDS, 2)
    changed, _ = effective(rows, state)
    part, _ = effective(rows.of_words(some, complete=True), state)
    assert np.array_equal(part.dense_counts, changed.dense_counts[some])


@given(st.integers(0, 10_000))
def test_switches__are_a_fixed_point_of_the_conditional(seed):
    counts, _, priors, state, _ = simulated_counts(seed)
    cells = counts[state.keyword_words, state.keyword_topics]
    for _ in range(200):
        state = state.with_switches(cells)
    special = np.zeros(counts.shape)
    special[state.keyword_words, state.keyword_topics] = state.keyword_counts
    both = conditional(counts, special, KEYWORDS, priors)[:, state.keyword_words, state.keyword_topics]
    assert np.allclose(state.keyword_counts, cells * both[1] / both.sum(axis=0), rtol=1e-3, atol=1e-6)
    assert (state.keyword_counts <= cells + 1e-9).all()
