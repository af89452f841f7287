"""Classification of documents by what explains their words best: scores beside what they have, confusion matrices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collapsium.pipeline.analysis.labels.candidates import Candidates, Judged, judge
from collapsium.pipeline.analysis.scoring.predictive import Named
from collapsium.pipeline.executors.base import Executor
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import InputError
from collapsium.storage.short_repr import ShortRepr

CLASSIFIED = (
    "classification: of all values that training had, the one under which the document's perplexity is lowest, its "
    "other labels staying as they are; accuracy: the share of the documents that have a value and a known word whose "
    "prediction is among their values; F1, precision and recall: over the documents of exactly one value; macro: the "
    "mean over all values that such documents have or were given"
)
MOST_CLASSES = 200  # of which a matrix is told whole

Value = str | float


@dataclass(frozen=True)
class ClassScore:
    """How well one value was found, over the documents of exactly one.

    Attributes
    ----------
    value : str or float
        The value.
    precision, recall, f1 : float
        0 where there is nothing to divide by.
    support : int
        Documents that have it.
    """

    value: Value
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True, repr=False)
class Classification(ShortRepr):
    """How well a field was predicted.

    Attributes
    ----------
    field : str
        The field.
    documents, single : int
        Documents that have a value of it and a known word; those with exactly one value.
    accuracy : float
        Share of `documents` whose prediction is among their values.
    macro_f1, micro_f1 : float or None
        Over the `single` documents; None where there are none.
    classes : tuple of ClassScore
        Those values that a single document has or was given, in their order.
    confusion : tuple of tuple of int, or None
        Documents by the value that they have (rows) and that was predicted (columns), in the order of `classes`; None
        where there are more than 200.
    definition : str
        How this is defined.
    """

    field: str
    documents: int
    single: int
    accuracy: float
    macro_f1: float | None
    micro_f1: float | None
    classes: tuple[ClassScore, ...]
    confusion: tuple[tuple[int, ...], ...] | None
    definition: str


class Tally:
    """Counts what was known and what was predicted."""

    def __init__(self) -> None:
        self.documents = 0
        self.right = 0
        self.pairs: Counter[tuple[Value, Value]] = Counter()

    def add(self, judged: Judged, values: Sequence[Value]) -> None:
        """Count documents with words and at least one value; pairs are those of documents with exactly one."""
        for own, best in zip(judged.known, judged.best.tolist(), strict=True):
            if not own or best < 0:
                continue
            self.documents += 1
            self.right += values[best] in own
            if len(own) == 1:
                self.pairs[own[0], values[best]] += 1

    def classes(self) -> list[Value]:
        """Return the values that documents with exactly one have or were given, ascending."""
        values: list[Any] = list({one for pair in self.pairs for one in pair})
        return sorted(values)

    def matrix(self, classes: Sequence[Value]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the documents by the value that they have (rows) and that was predicted (columns)."""
        place = {one: number for number, one in enumerate(classes)}
        found = np.zeros((len(classes), len(classes)), dtype=np.int64)
        for (own, given), count in self.pairs.items():
            found[place[own], place[given]] = count
        return found


def classify(named: Named, corpus: Corpus, candidates: Candidates, executor: Executor, seed: int) -> Classification:
    """Predict a field of documents and compare with what they have.

    Parameters
    ----------
    named : sequence of (str, Model)
        The models, whose probabilities are averaged.
    corpus : Corpus
        The documents.
    candidates : Candidates
        The field, and among what to choose.
    executor : Executor
        Who does the work.
    seed : int
        For families that draw random numbers.

    Returns
    -------
    Classification
        The scores.

    Raises
    ------
    InputError
        No document with words has a value of the field.
    """
    tally = Tally()
    for _, _, _, judged in judge(named, corpus, candidates, executor, seed):
        tally.add(judged, candidates.values)
    if not tally.documents:
        raise InputError(corpus.url, f"no document with a known word has a value of '{candidates.field}'")
    return scored(candidates.field, tally)


def scored(field: str, tally: Tally) -> Classification:
    """Say how well a field was predicted.

    Parameters
    ----------
    field : str
        The field.
    tally : Tally
        What was counted, of one document at least.

    Returns
    -------
    Classification
        The scores.
    """
    from sklearn.metrics import f1_score, precision_recall_fscore_support

    classes, single = tally.classes(), tally.pairs.total()
    accuracy = tally.right / tally.documents
    if not single:
        return Classification(field, tally.documents, 0, accuracy, None, None, (), (), CLASSIFIED)
    place = {one: number for number, one in enumerate(classes)}
    known, given = np.array([(place[own], place[other]) for own, other in tally.pairs]).T
    weights = np.array(list(tally.pairs.values()))
    options = {"labels": np.arange(len(classes)), "sample_weight": weights, "zero_division": 0.0}
    precision, recall, f1, _ = precision_recall_fscore_support(known, given, **options)
    support = np.bincount(known, weights, len(classes))
    scores = [
        ClassScore(value, float(precision[n]), float(recall[n]), float(f1[n]), int(support[n]))
        for n, value in enumerate(classes)
    ]
    macro, micro = (float(f1_score(known, given, average=kind, **options)) for kind in ("macro", "micro"))
    matrix = None
    if len(classes) <= MOST_CLASSES:
        matrix = tuple(tuple(row) for row in tally.matrix(classes).tolist())
    return Classification(field, tally.documents, single, accuracy, macro, micro, tuple(scores), matrix, CLASSIFIED)
