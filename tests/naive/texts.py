"""Texts of JSON lines, read one after another and split into words by scikit-learn."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
from sklearn.feature_extraction.text import CountVectorizer

from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.word_rule import FIRST_RULE, word_pattern


def analyzer(stop_words="english"):
    """Return the words of a text by the first word rule, in order, without stop words."""
    pattern = word_pattern(FIRST_RULE).pattern
    return CountVectorizer(token_pattern=pattern, stop_words=stop_words).build_analyzer()


class TextsInTurn:
    """A source of documents that holds all texts in memory, with all words except English stop words."""

    def __init__(self, path):
        records = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
        self.name, analyze = str(path), analyzer()
        self._ids = [record["id"] for record in records]
        self._bags = [Counter(analyze(record["text"])) for record in records]

    def words(self):
        return sorted(set().union(*self._bags))

    def documents(self):
        number = {word: place for place, word in enumerate(self.words())}
        rows = [sorted((number[word], count) for word, count in bag.items()) for bag in self._bags]
        offsets = np.cumsum([0, *map(len, rows)])
        words, counts = (np.array([pair[side] for row in rows for pair in row], dtype=np.int32) for side in (0, 1))
        yield Documents(pa.array(self._ids, pa.string()), offsets, words, counts, {})
