"""Lists of stop words."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from collapsar.storage.errors import MissingError, OptionError, suggestion


def stop_words(said: str | None) -> frozenset[str]:
    """Return the words to leave out.

    Parameters
    ----------
    said : str or None
        ``english``, the default, for scikit-learn's list; ``none``; or languages' codes of ISO 639-1 with commas
        between, such as ``de,fr``, for the lists of Stopwords ISO.

    Returns
    -------
    frozenset of str
        The words, in lower case.

    Raises
    ------
    OptionError
        There is no such language.
    MissingError
        Languages are named, and the lists are not installed.
    """
    if said == "none":
        return frozenset()
    found: set[str] = set()
    for language in (said or "english").split(","):
        found |= _list_of(language.strip())
    return frozenset(found)


def _list_of(language: str) -> AbstractSet[str]:
    if language == "english":
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS  # slow to import, and needed for text only

        return frozenset(ENGLISH_STOP_WORDS)
    try:
        import stopwordsiso
    except ImportError:
        raise MissingError(
            f"--stop-words {language}: the lists of other languages are not installed; pip install 'collapsar[text]'"
        ) from None
    if language not in stopwordsiso.langs():
        raise OptionError(f"--stop-words {language}: no such language{suggestion(language, stopwordsiso.langs())}")
    return frozenset(word.lower() for word in stopwordsiso.stopwords(language))
