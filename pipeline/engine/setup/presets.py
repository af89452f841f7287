"""Presets: options of a fit under one name, which apply where a user names no others.

They were chosen on two public data sets each and measured on others; `docs/howto/presets.md` has the figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

PresetName = Literal["defaults", "clusters", "short-texts"]
# Options by preset: of `fit`, and of the families `lda` and `hdp`
PRESETS: Mapping[str, Mapping[str, object]] = {
    "defaults": {},
    "clusters": {
        "weights": "log-tf-idf",
        "init": "clusters",
        "init_strength": 300.0,
        "inverse_temperature": 0.75,
    },
    "short-texts": {"weights": "log-tf-idf", "init": "clusters", "init_strength": 20.0},
}
# The purpose of each, for help and notices
PURPOSES: Mapping[str, str] = {
    "defaults": "words are predicted as well as possible",
    "clusters": "a document is about one thing, and documents are grouped",
    "short-texts": "documents have a few words each",
}
PRESET_TEXT = "; ".join(
    f"{name}: {PURPOSES[name]} ({', '.join(f'{option} {value}' for option, value in options.items()) or 'no options'})"
    for name, options in PRESETS.items()
)
SHORT = 30  # Tokens of a document, on average, below which short-texts predicts and groups documents better
