import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collapsium.storage.errors import OptionError
from collapsium.storage.readers.texts.text import tokenizer
from collapsium.workers.ingest import tokenize as tokenizing
from collapsium.workers.ingest.tokenize import tokenize

letters = st.sampled_from(
    [*"abcABC019_'\u2019-.,:^ \n\t\u00a0", "\u03a3", "\u03b1", "\u0130", "\u00df", "\u4e2d", "e\u0301"]
)
texts = st.lists(st.one_of(st.lists(letters, max_size=20).map("".join), st.text(max_size=12)), max_size=5)


def words_of(found):
    words = found.words.to_pylist()
    assert len(set(words)) == len(words)
    return [[words[n] for n in found.numbers[a:b]] for a, b in zip(found.offsets, found.offsets[1:], strict=False)]


@pytest.mark.parametrize("piece", [1, 1 << 24])
def test_words__are_those_of_scikit_learn(piece, monkeypatch):
    monkeypatch.setattr(tokenizing, "PIECE", piece)
    analyzer = tokenizer("none")

    @given(texts)
    @example(["\u0391\u03a3.\u0391 \u0391\u03a3. \u0391\u03a3", "It's the  Na\u00efve_x 3d d3 \u2019tis"])
    def equal(given_texts):
        clean = [text.encode("utf-8", "replace").decode() for text in given_texts]
        assert words_of(tokenize(pa.array(clean, pa.large_string()))) == [analyzer(text) for text in clean]

    equal()


def test_words__of_a_part_of_an_array():
    whole = pa.array(["one two", "three", "", "two one"], pa.large_string())
    assert words_of(tokenize(whole.slice(1, 3))) == [["three"], [], ["two", "one"]]


def test_tokenizer__is_any_function():
    found = tokenize(pa.array(["b a b", "", "c"], pa.large_string()), "builtins:str.split")
    assert words_of(found) == [["b", "a", "b"], [], ["c"]]


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
def test_tokenizer__that_is_none_is_refused(named, message):
    with pytest.raises(OptionError, match="^tokenizer: ") as raised:
        tokenize(pa.array(["a"], pa.large_string()), named)
    assert message in str(raised.value)
