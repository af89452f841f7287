"""Classify documents by the value under which their words are most probable: accuracy, F1 and confusion matrices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collapsium.pipeline.analysis.labels.candidates import Candidates, CandidateScores, score_candidates
from collapsium.pipeline.analysis.scoring.predictive import Named
from collapsium.pipeline.executors.base import Executor
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import InputError, optional
from collapsium.storage.printable import ShortRepr

CLASSIFIED = (
    "classification: the predicted value is the one, of all values in the training corpus, under which the document's "
    "perplexity is lowest, with its other labels unchanged; accuracy: share of correct predictions among the documents "
    "with a value and a known word, where any of a document's values is correct; F1, precision and recall: over the "
    "documents with exactly one value; macro: mean over all values that such documents have or that are predicted"
)
MISSING = "scores of classes need scikit-learn, which is not installed: pip install 'collapsium[sklearn]'"
MAX_CLASSES = 200  # Values up to which the confusion matrix is reported

Value = str | float


@dataclass(frozen=True)
class ClassScore:
    """Scores of the prediction of one value, over the documents with exactly one value."""

    value: Value  # The value
    # The scores; 0 if undefined
    precision: float
    recall: float
    f1: float
    support: int  # Number of documents with the value


@dataclass(frozen=True, repr=False)
class Classification(ShortRepr):
    """Scores of the prediction of a field."""

    field: str  # The field
    # Number of documents with a value and a known word, and of those with exactly one value
    documents: int
    single: int
    accuracy: float  # Share of `documents` whose prediction is among their values
    # F1 over the `single` documents; None without such documents
    macro_f1: float | None
    micro_f1: float | None
    classes: tuple[ClassScore, ...]  # Scores of the values that a single document has or that are predicted, in order
    # Documents by actual (rows) and predicted value (columns), in the order of `classes`; None for more than 200
    confusion: tuple[tuple[int, ...], ...] | None
    definition: str  # Definition of the scores


class Tally:
    """Counts of actual and predicted values."""

    def __init__(self) -> None:
        self.documents = 0
        self.right = 0
        self.pairs: Counter[tuple[Value, Value]] = Counter()

    def add(self, scores: CandidateScores, values: Sequence[Value]) -> None:
        """Count documents with words and at least one value; pairs are those of documents with exactly one."""
        for own, best in zip(scores.known, scores.best.tolist(), strict=True):
            if not own or best < 0:
                continue
            self.documents += 1
            self.right += values[best] in own
            if len(own) == 1:
                self.pairs[own[0], values[best]] += 1

    def classes(self) -> list[Value]:
        """Return the actual and predicted values of documents with exactly one value, ascending."""
        values: list[Any] = list({value for pair in self.pairs for value in pair})
        return sorted(values)

    def matrix(self, classes: Sequence[Value]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the numbers of documents by actual (rows) and predicted value (columns)."""
        row = {value: number for number, value in enumerate(classes)}
        matrix = np.zeros((len(classes), len(classes)), dtype=np.int64)
        for (actual, predicted), count in self.pairs.items():
            matrix[row[actual], row[predicted]] = count
        return matrix


def classify(named: Named, corpus: Corpus, candidates: Candidates, executor: Executor, seed: int) -> Classification:
    """Predict a field of documents and compare with their actual values."""
    tally = Tally()
    for _, _, _, scores in score_candidates(named, corpus, candidates, executor, seed):
        tally.add(scores, candidates.values)
    if not tally.documents:
        raise InputError(corpus.url, f"no document with a known word has a value of '{candidates.field}'")
    return scored(candidates.field, tally)


def scored(field: str, tally: Tally) -> Classification:
    """Return the scores of the prediction of a field."""
    with optional("sklearn", MISSING):
        from sklearn import metrics

    classes, single = tally.classes(), tally.pairs.total()
    accuracy = tally.right / tally.documents
    if not single:
        return Classification(field, tally.documents, 0, accuracy, None, None, (), (), CLASSIFIED)
    place = {one: number for number, one in enumerate(classes)}
    known, predicted = np.array([(place[own], place[other]) for own, other in tally.pairs]).T
    weights = np.array(list(tally.pairs.values()))
    options = {"labels": np.arange(len(classes)), "sample_weight": weights, "zero_division": 0.0}
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(known, predicted, **options)
    support = np.bincount(known, weights, len(classes))
    scores = [
        ClassScore(value, float(precision[n]), float(recall[n]), float(f1[n]), int(support[n]))
        for n, value in enumerate(classes)
    ]
    macro, micro = (float(metrics.f1_score(known, predicted, average=kind, **options)) for kind in ("macro", "micro"))
    matrix = None
    if len(classes) <= MAX_CLASSES:
        matrix = tuple(tuple(row) for row in tally.matrix(classes).tolist())
    return Classification(field, tally.documents, single, accuracy, macro, micro, tuple(scores), matrix, CLASSIFIED)
