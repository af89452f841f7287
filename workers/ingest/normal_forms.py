"""Reduce words to normal forms: to stems, by Snowball, or to lemmas, by Simplemma.

A form is looked up once for each distinct word, not for each token.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import version

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.errors import MismatchError, MissingError, OptionError, near, suggestion
from collapsium.workers.ingest.tokenize import StopWords, Tokens

LIBRARIES = {"stem": "snowballstemmer", "lemma": "simplemma"}
_MAX_CACHED_WORDS = 1 << 18
# ISO 639-1 codes of the languages that Snowball calls by name.
_NAMES = {
    "ar": "arabic",
    "ca": "catalan",
    "cs": "czech",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "eo": "esperanto",
    "es": "spanish",
    "et": "estonian",
    "eu": "basque",
    "fa": "persian",
    "fi": "finnish",
    "fr": "french",
    "ga": "irish",
    "hi": "hindi",
    "hu": "hungarian",
    "hy": "armenian",
    "id": "indonesian",
    "it": "italian",
    "lt": "lithuanian",
    "ne": "nepali",
    "nl": "dutch",
    "no": "norwegian",
    "pl": "polish",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "st": "sesotho",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
    "yi": "yiddish",
}


@functools.cache
def library_of(way: str) -> str:
    """Return the name and version of the library for normal forms, such as ``simplemma 2.0.0``."""
    form_of(way)
    name = LIBRARIES[way.partition(":")[0]]
    return f"{name} {version(name)}"


def require_library(way: str, library: str | None) -> None:
    """Refuse another version of the library than the recorded one, as words could get other forms."""
    installed = library_of(way)
    if library is not None and installed != library:
        requirement = library.replace(" ", "==")
        raise MismatchError(
            f"words were normalised by {library}, but {installed} is installed; pip install '{requirement}'"
        )


def normalised(tokens: Tokens, way: str, stops: StopWords) -> Tokens:
    """Return tokens with words replaced by their normal forms.

    Stop words stay, because they are dropped by their spelling later. A word whose form is spelled like a stop word
    stays, such as "mining", whose stem is "mine".
    """
    if not len(tokens.words):
        return tokens
    function = form_of(way)
    forms = pa.array([function(word) for word in tokens.words.to_pylist()], pa.string())
    stays = stops.dropped(tokens.words) | stops.stopped(forms)
    forms = pc.if_else(pa.array(stays), tokens.words, forms)
    words = pc.unique(forms)
    place = np.asarray(pc.index_in(forms, value_set=words), dtype=np.int32)
    return Tokens(words, place[tokens.numbers], tokens.offsets)


@functools.cache
def form_of(way: str) -> Callable[[str], str]:
    """Return the function from a word to its normal form; raise the errors of `library_of`."""
    kind, _, language = way.partition(":")
    if kind not in LIBRARIES or not language:
        raise OptionError(
            f"expected stem:LANGUAGE or lemma:LANGUAGE, such as lemma:english, found {way!r}{near(kind, LIBRARIES)}",
            "normalise",
        )
    try:
        if kind == "stem":
            import snowballstemmer
        else:
            from simplemma import lemmatize
    except ImportError:
        raise MissingError(
            f"normalise: {LIBRARIES[kind]} is not installed; pip install 'collapsium[normalise]'"
        ) from None
    if kind == "stem":
        name, languages = _NAMES.get(language, language), snowballstemmer.algorithms()
        if name not in languages:
            raise OptionError(f"Snowball has no language {language!r}{suggestion(language, languages)}", "normalise")
        stem = snowballstemmer.stemmer(name).stemWord
        return functools.lru_cache(maxsize=_MAX_CACHED_WORDS)(lambda word: stem(word) or word)
    code = next((code for code, name in _NAMES.items() if name == language), language)
    try:
        lemmatize("a", lang=code)
    except ValueError:
        known = sorted({*_NAMES, *_NAMES.values()})
        raise OptionError(f"Simplemma has no language {language!r}{suggestion(language, known)}", "normalise") from None
    return functools.lru_cache(maxsize=_MAX_CACHED_WORDS)(lambda word: lemmatize(word, lang=code).lower() or word)
