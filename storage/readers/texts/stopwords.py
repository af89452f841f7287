"""Stop words of languages and of the user's files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from collapsium.storage.errors import AbsentError, InputError, MissingError, OptionError, suggestion
from collapsium.storage.io.encodings import NAME_IT, decode_text
from collapsium.storage.readers.base import open_input, reading, require_text

DEFAULT, NONE = "english", "none"
# The list of the Information Retrieval Group of the University of Glasgow, in scikit-learn's edition.
_GLASGOW = """
a about above across after afterwards again against all almost alone along already also although always am among
amongst amoungst amount an and another any anyhow anyone anything anyway anywhere are around as at back be became
because become becomes becoming been before beforehand behind being below beside besides between beyond bill both
bottom but by call can cannot cant co con could couldnt cry de describe detail do done down due during each eg eight
either eleven else elsewhere empty enough etc even ever every everyone everything everywhere except few fifteen
fifty fill find fire first five for former formerly forty found four from front full further get give go had has
hasnt have he hence her here hereafter hereby herein hereupon hers herself him himself his how however hundred i ie
if in inc indeed interest into is it its itself keep last latter latterly least less ltd made many may me meanwhile
might mill mine more moreover most mostly move much must my myself name namely neither never nevertheless next nine
no nobody none noone nor not nothing now nowhere of off often on once one only onto or other others otherwise our
ours ourselves out over own part per perhaps please put rather re same see seem seemed seeming seems serious several
she should show side since sincere six sixty so some somehow someone something sometime sometimes somewhere still
such system take ten than that the their them themselves then thence there thereafter thereby therefore therein
thereupon these they thick thin third this those though three through throughout thru thus to together too top
toward towards twelve twenty two un under until up upon us very via was we well were what whatever when whence
whenever where whereafter whereas whereby wherein whereupon wherever whether which while whither who whoever whole
whom whose why will with within without would yet you your yours yourself yourselves
"""
# That list has only some of the English auxiliaries, pronouns and contractions, so these are added to it.
# Contractions with 's, 're, 've, 'd, 'll and 'm are formed from their words.
_NEGATIONS = (
    "ain't aren't can't couldn't daren't didn't doesn't don't hadn't hasn't haven't isn't mayn't mightn't mustn't "
    "needn't oughtn't shan't shouldn't wasn't weren't won't wouldn't"
)
ENGLISH = frozenset(_GLASGOW.split())
ENGLISH_CONTRACTIONS = frozenset(
    f"did does doing having ought shall anybody everybody somebody theirs let's ll ve n't {_NEGATIONS} "
    f"{_NEGATIONS.replace(chr(39), '')}".split()
)


def parse_stop_words(
    requested: str | Sequence[str] | None, encoding: str | None = None
) -> tuple[str | None, tuple[str, ...]]:
    """Return the languages and the words of files that an option of stop words requests."""
    if requested is None:
        return None, ()
    entries = requested.split(",") if isinstance(requested, str) else list(requested)
    languages: dict[str, None] = {}
    words: set[str] = set()
    for entry in (entry.strip() for entry in entries):
        if not is_file_name(entry):
            list_of(entry)
            languages[entry] = None
            continue
        try:
            with reading(entry), open_input(entry) as handle:
                data = handle.read()
            require_text(entry, data)
            lines = decode_text(data, encoding).splitlines()
        except UnicodeDecodeError as error:
            raise InputError(entry, f"expected stop words as {encoding or 'UTF-8'} text ({error}); {NAME_IT}") from None
        except AbsentError:
            raise OptionError(f"`stop_words` {entry}: no such file") from None
        # Words are separated by white space; a # begins a comment.
        words.update(word.lower() for line in lines for word in line.partition("#")[0].split())
    if len(languages) > 1:
        languages.pop(NONE, None)
    return ",".join(languages) or NONE, tuple(sorted(words))


def is_file_name(entry: str) -> bool:
    """Return True if an entry of the option has a dot or a slash, and so is the name of a file."""
    return re.search(r"[./\\]", entry) is not None


def stop_words(languages: str | None) -> frozenset[str]:
    """Return the stop words of languages."""
    return frozenset().union(*(list_of(language.strip()) for language in (languages or DEFAULT).split(",")))


def list_of(language: str) -> AbstractSet[str]:
    """Return the stop words of one language; see `stop_words`."""
    if language == NONE:
        return frozenset()
    if language == DEFAULT:
        return ENGLISH_CONTRACTIONS.union(ENGLISH)
    try:
        import stopwordsiso
    except ImportError:
        raise MissingError(
            f"`stop_words` {language}: the lists of other languages are not installed; pip install 'collapsium[text]'"
        ) from None
    known = (*stopwordsiso.langs(), DEFAULT, NONE)
    if language not in known:
        raise OptionError(
            f"`stop_words` {language}: no such language{suggestion(language, known)}; expected {DEFAULT}, {NONE} or "
            "codes of ISO 639-1 such as de, or files, whose names have a dot or a slash"
        )
    return frozenset(word.lower() for word in stopwordsiso.stopwords(language))
