import sys

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collapsium.storage.corpus.word_rule import FIRST_RULE, RULE, lower_case, word_pattern
from collapsium.storage.errors import OptionError
from collapsium.workers.ingest import tokenize as tokenizing
from collapsium.workers.ingest.tokenize import tokenize
from tests.naive import texts as naive

ASCII_AND_SPACES = "abcABC019_'-.,:^= \n\t\u00a0"
LETTERS = ["\u03a3", "\u03b1", "\u0130", "\u00df", "\u4e2d", "e\u0301", "\u0915\u093f", "\u1100\u1161", "I\u0307"]
SIGNS = ["\u2019", "\u02bc", "\u00ad", "\u2060", "\u200c", "\u200d", "\u0338", "\u2764\ufe0f"]
letters = st.sampled_from([*ASCII_AND_SPACES, *LETTERS, *SIGNS])
texts = st.lists(st.one_of(st.lists(letters, max_size=20).map("".join), st.text(max_size=12)), max_size=5)


def words_of(found):
    words = found.words.to_pylist()
    assert len(set(words)) == len(words)
    return [[words[n] for n in found.numbers[a:b]] for a, b in zip(found.offsets, found.offsets[1:], strict=False)]


@pytest.mark.parametrize("piece", [1, 1 << 24])
def test_words_of_the_first_rule__match_scikit_learn(piece, monkeypatch):
    monkeypatch.setattr(tokenizing, "PIECE", piece)
    analyzer = naive.analyzer(None)

    @given(texts)
    @example(["\u0391\u03a3.\u0391 \u0391\u03a3. \u0391\u03a3", "It's the  Na\u00efve_x 3d d3 \u2019tis"])
    def equal(given_texts):
        clean = [text.encode("utf-8", "replace").decode() for text in given_texts]
        found = tokenize(pa.array(clean, pa.large_string()), rule=FIRST_RULE)
        assert words_of(found) == [analyzer(text) for text in clean]

    equal()


@given(texts)
@example(
    [
        "\u0391\u03a3.\u0391 \u0391\u03a3. \u0391\u03a3",
        "It's the  Na\u00efve_x 3d d3 \u2019tis",
        "=\u0338ab a\u00ad\u0301b",
    ]
)
def test_words__match_the_whole_text_in_lower_case(given_texts):
    """Texts are processed in runs of bytes for speed; the rule applied to the whole text gives the same words."""
    clean = [text.encode("utf-8", "replace").decode() for text in given_texts]
    expected = [word_pattern(RULE).findall(lower_case(text, RULE)) for text in clean]
    assert words_of(tokenize(pa.array(clean, pa.large_string()))) == expected


def test_a_user_defined_tokenizer__gets_composed_text_and_its_words_are_normalised():
    found = tokenize(pa.array(["cafe\u0301 co\u00adop don\u2019t"], pa.large_string()), f"{__name__}:composed_words")
    assert words_of(found) == [["caf\u00e9", "coop", "don't"]]


def composed_words(text):
    assert "\u0301" not in text
    return text.split()


def test_words_of_a_slice_of_an_array__are_those_of_its_texts():
    whole = pa.array(["one two", "three", "", "two one"], pa.large_string())
    assert words_of(tokenize(whole.slice(1, 3))) == [["three"], [], ["two", "one"]]


def test_tokenizer__may_be_any_function():
    found = tokenize(pa.array(["b a b", "", "c"], pa.large_string()), "builtins:str.split")
    assert words_of(found) == [["b", "a", "b"], [], ["c"]]


def test_tokenizer__may_lie_in_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "letters_of.py").write_text("def split(text):\n    return list(text)\n")
    monkeypatch.chdir(tmp_path)
    before = [*sys.path]
    assert words_of(tokenize(pa.array(["ab"], pa.large_string()), "letters_of:split")) == [["a", "b"]]
    assert sys.path == before


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("split", "expected module:function"),
        ("no_such_module:f", "cannot be imported"),
        ("builtins:no_such", "cannot be imported"),
        ("builtins:__name__", "expected a function, found str"),
        ("builtins:len", "expected a list of words, found int"),
        ("builtins:int", "ValueError: invalid literal"),
    ],
)
def test_a_tokenizer_that_cannot_be_called__is_refused(named, message):
    with pytest.raises(OptionError, match="^tokenizer: ") as raised:
        tokenize(pa.array(["a"], pa.large_string()), named)
    assert message in str(raised.value)
