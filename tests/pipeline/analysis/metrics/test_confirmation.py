"""Coherence in sliding windows, against gensim and counts by hand."""

import numpy as np
import pytest

from collapsium.pipeline.analysis.metrics import topic_words
from collapsium.pipeline.analysis.metrics.topic_words import Probabilities
from collapsium.workers.ingest.tasks import WordPairs, count_windows

MEASURES = {"c_v": 110, "c_npmi": 10, "c_uci": 10, "u_mass": None}


def measured(measure, topics, texts, size, *, exact=False):
    """Return a measure of topics, which are lists of words, in tokenized texts."""
    vocabulary = sorted({word for topic in topics for word in topic})
    number = {word: position for position, word in enumerate(vocabulary)}
    rows = np.array([[number[word] for word in topic] for topic in topics])
    tokens = np.array([number.get(word, -1) for text in texts for word in text], dtype=np.int64)
    offsets = np.cumsum([0, *map(len, texts)])
    pairs = WordPairs.within([rows], len(vocabulary))
    counts = count_windows(tokens, offsets, pairs, size, exact=exact)
    return getattr(topic_words, measure)(Probabilities.of(counts, pairs, rows))


def texts_and_topics(seed, documents=60, words=25):
    generator = np.random.default_rng(seed)
    weights = generator.dirichlet(np.full(words, 0.3), size=3)
    texts = [
        [f"w{word}" for word in generator.choice(words, size=int(generator.integers(1, 260)), p=weights[number % 3])]
        for number in range(documents)
    ]
    seen = sorted({word for text in texts for word in text})
    return texts, [list(generator.choice(seen, size=6, replace=False)) for _ in range(4)]


@pytest.mark.parametrize("measure", sorted(MEASURES))
@pytest.mark.parametrize("seed", range(3))
def test_measures__match_gensim(measure, seed):
    models = pytest.importorskip("gensim.models")
    from gensim.corpora import Dictionary

    texts, topics = texts_and_topics(seed)
    dictionary = Dictionary(texts)
    options = {"corpus": [dictionary.doc2bow(text) for text in texts]} if measure == "u_mass" else {"texts": texts}
    expected = models.CoherenceModel(
        topics=topics, dictionary=dictionary, coherence=measure, processes=1, topn=6, **options
    )
    found = measured(measure, topics, texts, MEASURES[measure])
    np.testing.assert_allclose(found, expected.get_coherence_per_topic(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("measure", ["c_npmi", "c_uci", "u_mass", "c_v"])
def test_measures_of_a_word_that_never_occurs__are_finite(measure):
    values = measured(measure, [["a", "b", "z"]], [["a", "b", "a"], ["b", "c"]], MEASURES[measure])
    assert np.isfinite(values).all()


def test_npmi__is_1_for_words_that_always_cooccur_and_near_minus_1_for_words_that_never_do():
    assert measured("c_npmi", [["a", "b"]], [["a", "b"], ["c"]], 10)[0] == pytest.approx(1.0)
    assert measured("c_npmi", [["a", "b"]], [["a"], ["b"]], 10)[0] == pytest.approx(-1.0, abs=0.06)
