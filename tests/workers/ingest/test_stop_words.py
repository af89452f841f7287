import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import append, ingest
from collapsium.pipeline.workflows.batch.job_file import read_job
from collapsium.storage.building.ingest_record import read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.word_rule import RULE
from collapsium.storage.errors import CollapsiumError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts.stopwords import list_of
from collapsium.workers.ingest.tokenize import StopWords, tokenize

NEGATED = ["is", "are", "was", "has", "have", "had", "do", "does", "did", "would", "could", "ca", "wo", "sha", "ai"]
CONTRACTED = [
    *(f"{word}n't" for word in NEGATED),
    *("i'm", "you're", "he's", "it's", "that's", "what's", "there's", "i've", "they've", "could've", "i'd", "they'd"),
    *("i'll", "that'll", "who'll", "let's", "it'd've", "y'all", "somebody's", "everyone's"),
]


def kept(texts, **options):
    words = tokenize(pa.array(texts, pa.large_string()), options.get("tokenizer")).words
    stops = StopWords.of(ReadOptions(**options, word_rule=RULE))
    return sorted(words.filter(pa.array(~stops.dropped(words))).to_pylist())


def write(path, *texts):
    path.write_text("".join(json.dumps({"id": f"{path.stem}{n}", "text": text}) + "\n" for n, text in enumerate(texts)))
    return path


@pytest.mark.parametrize("apostrophe", ["'", "\u2019", "\u02bc"])
def test_contractions__are_stop_words_with_any_apostrophe(apostrophe):
    text = " ".join(CONTRACTED).replace("'", apostrophe)
    assert kept([text, text.upper(), text.title()]) == []


def test_contractions_of_other_words__are_kept():
    words = ["company's", "dog's", "government's", "o'neill", "rock'n'roll"]
    assert kept([" ".join(words), "we are n't who 'll 've"]) == words


def test_contractions_of_other_languages__follow_from_their_lists():
    pytest.importorskip("stopwordsiso")
    assert kept(["c'est d'une lorsqu'on puisqu’elle jusqu'\u00e0 qu'il l'homme d'accord"], stop_words="fr") == [
        "d'accord",
        "l'homme",
    ]
    assert kept(["dell'albero c'\u00e8 dov'\u00e8 nell'aria"], stop_words="it") == ["dell'albero", "nell'aria"]


@pytest.mark.parametrize("language", ["english", "en", "de", "fr", "hi", "bn", "th", "el", "sl"])
def test_every_list__is_matched_after_tokenization(language):
    """No token of a one-word entry is kept, even if the tokenizer splits it at marks or a full stop."""
    pytest.importorskip("stopwordsiso")
    entries = [
        word for word in list_of(language) if not {" ", "-", ".", "/", "\u2206", ",", ":"} & set(word.strip("."))
    ]
    assert kept(entries, stop_words=language) == []


def test_user_defined_tokenizers__use_the_list_too():
    def halves(text):
        return [half for word in text.lower().split() for half in (word[:2], word[2:]) if half]

    globals()["halves"] = halves
    assert kept(["the", "because", "zqqx"], tokenizer=f"{__name__}:halves") == ["qx", "zq"]


@given(st.lists(st.text("abcd", min_size=2, max_size=4), min_size=1, max_size=6, unique=True), st.integers(1, 5))
def test_listed_words_and_short_words__are_left_out_and_no_others(words, letters):
    stop_words = tuple(words[::2])
    expected = sorted(word for word in words if word not in stop_words and len(word) >= letters)
    assert kept([" ".join(words)], stop_words="none", stop_list=stop_words, min_characters=letters) == expected


@pytest.mark.parametrize("together", ["english,{}", "{},english", ["english", "{}"]])
def test_files_and_languages__combine_and_are_recorded_as_words(tmp_path, together):
    (tmp_path / "mine.txt").write_text("# of our own\nApple pear  # fruit\n\nplum\n", encoding="utf-8")
    name = str(tmp_path / "mine.txt")
    asked = together.format(name) if isinstance(together, str) else [pattern.format(name) for pattern in together]
    source = write(tmp_path / "a.jsonl", "the apple and a pear tree", "plums and plum on oak")
    ingest(source, tmp_path / "c", stop_words=asked)
    (tmp_path / "mine.txt").unlink()
    assert Corpus(tmp_path / "c").vocabulary.words == ["oak", "plums", "tree"]
    record = (tmp_path / "c" / "ingest.json").read_text()
    assert json.loads(record)["reading"]["stop_list"] == ["apple", "pear", "plum"]
    assert name not in record
    append(tmp_path / "c", write(tmp_path / "b.jsonl", "the apple of an elm"), grow=True)
    assert Corpus(tmp_path / "c").vocabulary.words == ["oak", "plums", "tree", "elm"]


def test_short_words__are_left_out_before_phrases_and_in_additions(tmp_path):
    source = write(tmp_path / "a.jsonl", *["new xy york", "old zz york"] * 5, "new oak")
    options = {"phrases": "count", "phrase_count": 2, "phrase_threshold": 0.0, "stop_words": "none"}
    ingest(source, tmp_path / "c", min_characters=3, **options)
    assert {"new_york", "old_york"} <= set(Corpus(tmp_path / "c").vocabulary.words)
    report = read_history(Folder(tmp_path / "c")).report
    assert [(rule.words, rule.tokens) for rule in report.dropped if "3 characters" in rule.rule] == [(2, 10)]
    append(tmp_path / "c", write(tmp_path / "b.jsonl", "qq elm"), grow=True)
    assert Corpus(tmp_path / "c").vocabulary.words[-1] == "elm"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stop_words": "english,klingon"}, "`stop_words` klingon: no such language"),
        ({"stop_words": "no/such.txt"}, "`stop_words` no/such.txt: no such file"),
        ({"min_characters": 0}, "min_characters: expected a whole number of 1 or more, found 0"),
        ({"min_characters": True}, "min_characters.*expected .*found True"),
    ],
)
def test_invalid_requests__leave_nothing(tmp_path, options, message):
    with pytest.raises(OptionError, match=message):
        ingest(write(tmp_path / "a.jsonl", "a tree"), tmp_path / "c", **options)
    assert not (tmp_path / "c").exists()


def test_counted_documents__have_no_stop_words(tmp_path):
    (tmp_path / "x.ldac").write_text("1 0:1\n")
    (tmp_path / "words").write_text("the\n")
    with pytest.raises(CollapsiumError, match="stop_words: applies only to texts"):
        ingest(tmp_path / "x.ldac", tmp_path / "c", vocabulary=str(tmp_path / "words"), stop_words="english")


@pytest.mark.parametrize("key", ["stop_words", "stop-words"])
def test_a_job__finds_its_files_relative_to_its_folder(tmp_path, key):
    (tmp_path / "j.toml").write_text(
        f'[batch]\nfolder = "job"\n[ingest]\nsources = ["t.jsonl"]\n{key} = ["english", "./mine.txt"]\n'
        '[fit]\nfamily = "lda"\ntopics = 2\n'
    )
    assert read_job(tmp_path / "j.toml").reading["stop_words"] == ["english", str(tmp_path / "mine.txt")]
