"""The word rule: what counts as a word of a text, and the one spelling under which a word is stored.

Corpora record the version of the rule that they were read by, so that later documents are read in the same way.
"""

from __future__ import annotations

import functools
import re
import unicodedata

# Rule of corpora whose record names none. It cuts words at combining marks and keeps the spelling of the text.
FIRST_RULE = 1
RULE = 2  # Rule of new corpora; 2 since release 0.2

# Zero-width non-joiner and joiner, which choose the shape of letters in Persian and in Indic scripts
JOINERS = "\u200c\u200d"
# Soft hyphen, word joiner, and the zero-width no-break space that the word joiner replaced.
_INVISIBLE = ("\u00ad", "\u2060", "\ufeff")
_APOSTROPHES = ("\u2019", "\u02bc")
_DOTTED_I = "i\u0307"  # Lower case of the Turkish capital I with a dot


@functools.cache
def word_pattern(rule: int) -> re.Pattern[str]:
    """Return the pattern whose first group is a word: two characters or more, of which the first is a letter.

    By rule 2, a word continues across combining marks, and across zero-width joiners that something follows. Marks may
    precede a word, as a variation selector does that belongs to an emoji.
    """
    if rule == FIRST_RULE:
        return re.compile(r"\b([^\W\d_][\w'\u2019]*\w)\b")
    # The combining marks (categories Mn and Mc), as ranges. Scripts are below 0x20000, followed by ideographs and
    # variation selectors.
    codes = [
        code for code in (*range(0x20000), *range(0xE0100, 0xE01F0)) if unicodedata.category(chr(code)) in ("Mn", "Mc")
    ]
    starts = [code for code, before in zip(codes, [-2, *codes], strict=False) if code != before + 1]
    ends = [code for code, after in zip(codes, [*codes[1:], -2], strict=True) if code != after - 1]
    marks = "".join(f"{chr(start)}-{chr(end)}" for start, end in zip(starts, ends, strict=True))
    inside = rf"[\w{marks}]"
    middle = rf"(?:[\w'{marks}]|[{JOINERS}]+(?={inside}))*"
    return re.compile(rf"(?<!{inside})[{marks}]*([^\W\d_]{middle}{inside})(?!{inside})")


def with_plain_apostrophes(text: str) -> str:
    """Return a text of the same length in which every apostrophe is ``'``."""
    for apostrophe in _APOSTROPHES:
        text = text.replace(apostrophe, "'")
    return text


def composed(text: str) -> str:
    """Return a text as a reader sees it: normalised to NFC, without soft hyphens and word joiners."""
    for character in _INVISIBLE:
        text = text.replace(character, "")
    return unicodedata.normalize("NFC", text)


def spelled(word: str, rule: int) -> str:
    """Return the spelling under which a word of a vocabulary, a seed or a stop list is looked up."""
    return word if rule == FIRST_RULE or word.isascii() else composed(with_plain_apostrophes(word))


def lookup_keys(words: list[str], rule: int) -> list[str]:
    """Return the spellings under which the words of a vocabulary are found in texts, all distinct.

    A vocabulary that was not made of texts may have two spellings of a word; the second one is found by itself alone.
    """
    if rule == FIRST_RULE:
        return words
    keys = [spelled(word, rule) for word in words]
    if len(set(keys)) == len(keys):
        return keys
    taken = set(words)
    for number, (word, key) in enumerate(zip(words, keys, strict=True)):
        keys[number] = word if key != word and key in taken else key
        taken.add(keys[number])
    return keys


def lower_case(text: str, rule: int) -> str:
    """Return a text in lower case, in the spelling of its words."""
    lower = text.lower()
    return lower if rule == FIRST_RULE else spelled(lower.replace(_DOTTED_I, "i"), rule)
