import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.vocabulary import as_spelled_in
from collapsium.storage.corpus.word_rule import FIRST_RULE, RULE, lookup_keys, lower_case, spelled, word_pattern
from collapsium.workers.ingest.tokenize import tokenize

SENTENCES = {
    "Latin": ("Déjà vu, señor Ångström", ["déjà", "vu", "señor", "ångström"]),
    "Turkish": ("İstanbul ve IŞIK", ["istanbul", "ve", "işik"]),
    "Vietnamese": ("Tiếng Việt rất đẹp", ["tiếng", "việt", "rất", "đẹp"]),
    "Greek": ("Ὁ λόγος ΤΟΥ ΣΟΦΟΥ ΑΝΔΡΟΣ", ["λόγος", "του", "σοφου", "ανδρος"]),
    "Cyrillic": ("Ёжик м'ята Й̈", ["ёжик", "м'ята", "й̈"]),
    "Devanagari": ("नदी में पानी बहता है।", ["नदी", "में", "पानी", "बहता", "है"]),
    "Bengali": ("মাঝি গান গায়", ["মাঝি", "গান", "গায়"]),
    "Tamil": ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
    "Telugu": ("పిల్లలు పాటలు", ["పిల్లలు", "పాటలు"]),
    "Malayalam": ("മലയാളം ഭാഷ", ["മലയാളം", "ഭാഷ"]),
    "Thai": ("น้ำ ดื่ม", ["น้ำ", "ดื่ม"]),
    "Hebrew with points": ("שָׁלוֹם עוֹלָם", ["שָׁלוֹם", "עוֹלָם"]),
    "Arabic with vowels": ("مُحَمَّدٌ كَتَبَ", ["مُحَمَّدٌ", "كَتَبَ"]),
    "Persian": ("می‌خواهم کتاب‌ها", ["می‌خواهم", "کتاب‌ها"]),
    "Hangul": ("한국어 문장", ["한국어", "문장"]),
    "Georgian": ("ქართული ენა", ["ქართული", "ენა"]),
}


def words_in(text):
    found = tokenize(pa.array([text], pa.large_string()))
    words = found.words.to_pylist()
    return [words[number] for number in found.numbers]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("script", SENTENCES)
def test_words__are_complete_in_every_script_and_unicode_form(script, form):
    text, expected = SENTENCES[script]
    assert words_in(unicodedata.normalize(form, text)) == [unicodedata.normalize("NFC", word) for word in expected]


@given(st.text())
def test_words__are_the_same_in_all_unicode_forms(text):
    text = text.encode("utf-8", "replace").decode()
    assert words_in(unicodedata.normalize("NFC", text)) == words_in(unicodedata.normalize("NFD", text))


@given(st.text())
def test_words__are_spelled_as_they_are_looked_up(text):
    for word in word_pattern(RULE).findall(lower_case(text, RULE)):
        assert spelled(word, RULE) == word


def test_apostrophes__are_normalised():
    assert words_in("don't don’t donʼt ʼtis dogs’ rock’n’roll") == ["don't"] * 3 + ["tis", "dogs", "rock'n'roll"]


def test_soft_hyphens_and_word_joiners__are_removed_and_zero_width_spaces_separate_words():
    assert words_in("co\u00adoperate word\u2060joiner byte\ufeffmark zero\u200bwidth") == [
        *("cooperate", "wordjoiner", "bytemark"),
        *("zero", "width"),
    ]


def test_joiners__are_kept_between_letters_only():
    assert words_in("ab\u200d ab\u200ccd \u200cab") == ["ab", "ab\u200ccd", "ab"]


def test_marks_without_a_letter__do_not_hide_a_word():
    assert words_in("\u2764\ufe0flove 3\u0915\u093fab") == ["love"]


def test_the_first_rule__keeps_the_spelling_of_the_text():
    assert spelled("don’t", FIRST_RULE) == "don’t"
    assert word_pattern(FIRST_RULE).findall("don’t cafe\u0301s") == ["don’t", "cafe"]


def test_lookup_keys_of_a_vocabulary_with_two_spellings__stay_distinct():
    assert lookup_keys(["don’t", "x", "caf\u0065\u0301"], RULE) == ["don't", "x", "café"]
    assert lookup_keys(["don’t", "don't"], RULE) == ["don’t", "don't"]
    assert lookup_keys(["donʼt", "don’t"], RULE) == ["don't", "don’t"]


def test_words_of_another_spelling__match_one_word_of_a_vocabulary():
    vocabulary = ["café", "don’t", "ship"]
    assert as_spelled_in(vocabulary, ["cafe\u0301", "don't", "ship", "unknown"]) == ["café", "don’t", "ship", "unknown"]
    assert as_spelled_in(vocabulary, ["don't", "donʼt", "café", "cafe\u0301"]) == [
        "don’t",
        "donʼt",
        "café",
        "cafe\u0301",
    ]
