import numpy as np
import pyarrow as pa
import pytest
from gensim.models.phrases import Phrases as GensimPhrases
from gensim.models.phrases import npmi_scorer, original_scorer
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import ingest
from collapsium.pipeline.corpora.text_ingest import phrase_scores
from collapsium.storage.building.ingest_record import Phrasing, read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.workers.ingest.phrases import Phrases, joined_by
from collapsium.workers.ingest.tokenize import StopWords, tokenize
from tests.workers.ingest.test_tokenize import words_of

sentences = st.lists(st.lists(st.sampled_from(["aa", "bb", "cc", "dd"]), max_size=14), min_size=1, max_size=8)


def test_scores__equal_gensim():
    pairs, first, second = (np.array(column) for column in ([3, 5, 7], [9, 5, 70], [4, 5, 8]))
    for score, scorer in (("npmi", npmi_scorer), ("count", original_scorer)):
        found = phrase_scores(Phrasing(score, 2, 0.0), pairs, first, second, 100, 20)
        expected = [scorer(*map(float, (*row, 20, 2, 100))) for row in zip(first, second, pairs, strict=True)]
        np.testing.assert_allclose(found, expected)


@given(sentences, st.sets(st.tuples(*[st.sampled_from(["aa", "bb", "cc"])] * 2), max_size=5))
def test_phrases__are_joined_as_gensim_joins_them(given_sentences, pairs):
    class DocumentSource(GensimPhrases):
        def score_candidate(self, a, b, in_between):
            return (f"{a}_{b}", 1.0) if (a, b) in pairs else (None, None)

    sides = (pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1))
    tokens = tokenize(pa.array([" ".join(sentence) for sentence in given_sentences], pa.large_string()))
    joined = joined_by(tokens, StopWords(("dd",)), Phrases.of(*sides))
    kept = [[word for word in sentence if word != "dd"] for sentence in given_sentences]
    assert words_of(joined) == [DocumentSource(delimiter="_")[phrase] for phrase in kept]


@pytest.mark.parametrize("parts", [1, 3])
def test_phrases__are_found_as_gensim_finds_them(tmp_path, parts, monkeypatch):
    from collapsium.pipeline.corpora import text_ingest as passes

    generator = np.random.default_rng(0)
    lines = [[f"w{chr(97 + n)}" for n in generator.integers(0, 8, 12)] for _ in range(60)]
    lines = [[*line, "new", "york", *line[:2]] for line in lines]
    (tmp_path / "t.mallet").write_text("".join(f"d{n} x {' '.join(line)}\n" for n, line in enumerate(lines)))
    monkeypatch.setattr(passes, "TOKENS_PER_PART", sum(map(len, lines)) // parts)
    ingest(
        tmp_path / "t.mallet", tmp_path / "c", phrases="npmi", phrase_count=3, phrase_threshold=0.1, stop_words="none"
    )
    model = GensimPhrases(lines, min_count=3, threshold=0.1, scoring="npmi", delimiter="_")
    found = read_history(Corpus(tmp_path / "c").folder).phrasing.pairs
    assert {"_".join(pair) for pair in found} == set(model.export_phrases())
    assert ("new", "york") in found
    counts = {}
    for line in lines:
        for word in model[line]:
            counts[word] = counts.get(word, 0) + 1
    vocabulary = Corpus(tmp_path / "c").vocabulary
    assert dict(zip(vocabulary.words, vocabulary.tokens.tolist(), strict=True)) == counts
