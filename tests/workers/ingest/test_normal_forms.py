import json
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import append, ingest
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import CollapsiumError, MismatchError, MissingError, OptionError
from collapsium.workers.ingest import normal_forms
from collapsium.workers.ingest.normal_forms import library_of, normalised
from collapsium.workers.ingest.tokenize import StopWords, tokenize

TEXTS = ["The miners were mining mines; trees, a tree, indices of an index", "wolves and a wolf, companies, company"]


def write(path, texts):
    path.write_text("".join(json.dumps({"id": f"{path.stem}{n}", "text": text}) + "\n" for n, text in enumerate(texts)))
    return path


def words_of(tokens):
    words = tokens.words.to_pylist()
    assert len(set(words)) == len(words)
    return [[words[n] for n in tokens.numbers[a:b]] for a, b in zip(tokens.offsets, tokens.offsets[1:], strict=False)]


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("lemma:english", ["company", "index", "miner", "tree", "wolf"]),
        ("lemma:en", ["company", "index", "miner", "tree", "wolf"]),
        ("stem:en", ["compani", "index", "miner", "tree", "wolf"]),
    ],
)
def test_words__are_replaced_by_their_normal_form(tmp_path, way, expected):
    ingest(write(tmp_path / "a.jsonl", TEXTS), tmp_path / "c", normalise=way)
    assert set(expected) <= set(Corpus(tmp_path / "c").vocabulary.words)
    assert not {"trees", "miners", "companies"} & set(Corpus(tmp_path / "c").vocabulary.words)
    reading = json.loads((tmp_path / "c" / "ingest.json").read_text())["reading"]
    assert (reading["normalise"], reading["normalised_by"]) == (way, library_of(way))


def test_a_normal_form_that_is_a_stop_word__is_not_used():
    tokens = tokenize(pa.array(["mining being trees"], pa.large_string()))
    assert words_of(normalised(tokens, "stem:english", StopWords(("being", "mine")))) == [["mining", "being", "tree"]]


@given(st.lists(st.lists(st.sampled_from(["trees", "tree", "wolf", "wolves", "the", "mining"])).map(" ".join)))
def test_tokens__keep_their_number_and_order(texts):
    tokens = tokenize(pa.array(texts, pa.large_string()))
    forms = {"trees": "tree", "tree": "tree", "wolf": "wolf", "wolves": "wolv", "the": "the", "mining": "mining"}
    found = words_of(normalised(tokens, "stem:english", StopWords(("the", "mine"))))
    assert found == [[forms[word] for word in text.split()] for text in texts]


def test_phrases_and_additions__use_normal_forms(tmp_path):
    source = write(tmp_path / "a.jsonl", ["oak trees", "an oak tree", "oaks tree"] * 2 + ["a pine", "pines grow"])
    options = {"phrases": "count", "phrase_count": 2, "phrase_threshold": 0.0, "normalise": "stem:en"}
    ingest(source, tmp_path / "c", **options)
    assert "oak_tree" in Corpus(tmp_path / "c").vocabulary.words
    append(tmp_path / "c", write(tmp_path / "b.jsonl", ["elms and oak trees"]), grow=True)
    added = Corpus(tmp_path / "c").vocabulary
    assert added.words[-1] == "elm"
    assert added.tokens[added.words.index("oak_tree")] == 7


def test_workers__do_not_change_the_corpus(tmp_path):
    source = write(tmp_path / "a.jsonl", TEXTS * 20)
    corpora = [ingest(source, tmp_path / name, normalise="lemma:en", scheduler=name) for name in ("serial", "threads")]
    assert corpora[0] == corpora[1]


def test_another_version_of_the_library__is_refused(tmp_path, monkeypatch):
    ingest(write(tmp_path / "a.jsonl", TEXTS), tmp_path / "c", normalise="stem:en")
    monkeypatch.setattr(normal_forms, "version", lambda name: "0.1")
    monkeypatch.setattr(normal_forms, "library_of", normal_forms.library_of.__wrapped__)
    with pytest.raises(
        MismatchError, match="normalised by snowballstemmer .*, but snowballstemmer 0.1 is installed; pip install"
    ):
        append(tmp_path / "c", write(tmp_path / "b.jsonl", ["elms"]))


@pytest.mark.parametrize(("way", "library"), [("stem:en", "snowballstemmer"), ("lemma:en", "simplemma")])
def test_without_the_extra__is_a_clear_error(monkeypatch, way, library):
    normal_forms.form_of.cache_clear()
    library_of.cache_clear()
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingError, match=f"{library} is not installed; pip install 'collapsium.normalise.'"):
        library_of(way)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("stem", "normalise: expected stem:LANGUAGE or lemma:LANGUAGE, .*found 'stem'"),
        ("root:en", "normalise: expected stem:LANGUAGE"),
        ("stem:Englsh", "normalise: Snowball has no language 'Englsh' .did you mean 'english'"),
        ("lemma:klingon", "normalise: Simplemma has no language 'klingon'"),
    ],
)
def test_invalid_options__leave_nothing(tmp_path, way, message):
    with pytest.raises(OptionError, match=message):
        ingest(write(tmp_path / "a.jsonl", TEXTS), tmp_path / "c", normalise=way)
    assert not (tmp_path / "c").exists()


def test_counted_documents__are_not_normalised(tmp_path):
    (tmp_path / "x.ldac").write_text("1 0:1\n")
    (tmp_path / "words").write_text("trees\n")
    with pytest.raises(CollapsiumError, match="normalise: applies only to texts"):
        ingest(tmp_path / "x.ldac", tmp_path / "c", vocabulary=str(tmp_path / "words"), normalise="stem:en")
