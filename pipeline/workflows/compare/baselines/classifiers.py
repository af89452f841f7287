"""Classifiers of scikit-learn to compare with: documents as its users give them, each tuned on a share of training.

The corpora are read into sparse matrices in memory. Classes are the values of one field that training documents have
alone; the documents that are classified may have several.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, hstack, vstack

from collapsium.pipeline.analysis.labels.classification import Tally, Value
from collapsium.pipeline.workflows.compare.catalogue import LDA_SVM
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.label_index import LabelTable, numbered
from collapsium.storage.corpus.labels import Labels
from collapsium.storage.errors import InputError
from collapsium.workers.arrays.random_streams import Stream

SHARE = 0.1  # of the training documents, on which is tuned
BALANCED = (None, "balanced")
GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "lda-svm": {"C": (0.1, 1.0, 10.0), "class_weight": BALANCED},
    "naive-bayes": {"alpha": (0.01, 0.1, 0.3, 1.0), "fit_prior": (True, False)},
    "svm": {"C": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0), "class_weight": BALANCED},
    "tree": {"min_samples_leaf": (1, 5, 20), "class_weight": BALANCED},
}


@dataclass(frozen=True)
class Known:
    """Documents in memory, and what is known of them.

    Attributes
    ----------
    words : scipy.sparse.csr_matrix, shape (documents, words)
        How often each has each word.
    beside : scipy.sparse.csr_matrix, shape (documents, labels and numbers)
        Their other labels, each 1, and numbers, in standard deviations from the mean.
    values : list of tuple of str or float
        What each has of the field.
    """

    words: csr_matrix
    beside: csr_matrix
    values: list[tuple[Value, ...]]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each document."""
        return np.asarray(self.words.sum(axis=1), dtype=np.int64).ravel()


def read_known(corpus: Corpus, field: str, *, numeric: bool, table: LabelTable) -> Known:
    """Read documents into memory, with the labels and numbers of a table, and what each has of a field."""
    words, beside, values = [], [], []
    for reference in corpus.references:
        documents, labels = reference.documents(), reference.labels()
        size = len(documents)
        shape = (size, corpus.manifest.vocabulary.words)
        words.append(csr_matrix((documents.counts.astype(np.float64), documents.words, documents.offsets), shape=shape))
        found = numbered(labels, table, size)
        beside.append(csr_matrix((found.value, found.label, found.offsets), shape=(size, len(table))))
        values += values_of(labels, field, numeric=numeric)
    return Known(vstack(words, format="csr"), vstack(beside, format="csr"), values)


def values_of(labels: Labels, field: str, *, numeric: bool) -> list[tuple[Value, ...]]:
    """Return what each document has of a field: none, one or several values."""
    documents = labels.offsets.size - 1
    if numeric:
        numbers = labels.numbers.get(field, np.full(documents, np.nan)).tolist()
        return [() if math.isnan(one) else (one,) for one in numbers]
    own = {place: value for place, (name, value) in enumerate(labels.names) if name == field}
    each = np.split(labels.position, labels.offsets[1:-1]) if documents else []
    return [tuple(own[one] for one in places.tolist() if one in own) for places in each]


@dataclass(frozen=True)
class Lesson:
    """What classifiers learn from: training documents with words and one value.

    Attributes
    ----------
    rows : numpy.ndarray of int64
        Which of the training documents.
    classes : list of str or float
        The values, ascending.
    target : numpy.ndarray of int64, shape (rows,)
        Each one's place in `classes`.
    tuning : numpy.ndarray of bool, shape (rows,)
        Whether it is one of those on which is tuned.
    """

    rows: npt.NDArray[np.int64]
    classes: list[Any]
    target: npt.NDArray[np.int64]
    tuning: npt.NDArray[np.bool_]

    @staticmethod
    def of(train: Known, seed: int, source: str) -> Lesson:
        """Choose the training documents of a lesson; a tenth, drawn by their places, is tuned on."""
        lengths = train.lengths
        rows = np.array([n for n, own in enumerate(train.values) if len(own) == 1 and lengths[n]], dtype=np.int64)
        values: list[Any] = [train.values[n][0] for n in rows.tolist()]
        classes = sorted(set(values))
        if len(classes) < 2:
            raise InputError(source, f"expected documents of two values of the field or more, found {len(classes)}")
        place = {value: number for number, value in enumerate(classes)}
        tuning = Stream(seed, "tuning").generator().random(len(train.values))[rows] < SHARE
        if not tuning.any() or tuning.all():  # few documents
            tuning = np.arange(rows.size) % 10 == 0
        return Lesson(rows, classes, np.array([place[value] for value in values], dtype=np.int64), tuning)


def _classifier(name: str, seed: int) -> tuple[Any, str]:
    """Return an estimator, and what stands before the names of its parameters."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC
    from sklearn.tree import DecisionTreeClassifier

    if name == "naive-bayes":
        return MultinomialNB(), ""
    if name == "tree":
        return DecisionTreeClassifier(random_state=seed % 2**32), ""
    machine = LinearSVC(random_state=seed % 2**32, dual="auto")
    if name == LDA_SVM:
        return machine, ""
    return make_pipeline(TfidfTransformer(sublinear_tf=True), machine), "linearsvc__"


def learned(name: str, features: Any, unseen: Any, lesson: Lesson, seed: int) -> tuple[list[Value], dict[str, Any]]:
    """Tune a classifier, fit it to all that there is to learn from, and classify documents.

    Parameters
    ----------
    name : str
        Which.
    features, unseen : array-like, shape (documents, features)
        Of all training documents, and of those to classify.
    lesson : Lesson
        What is learned.
    seed : int
        Of classifiers that draw random numbers.

    Returns
    -------
    list of str or float
        The class of each.
    dict
        The parameters that had the best macro F1 where it was tuned.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import f1_score, make_scorer
    from sklearn.model_selection import GridSearchCV, PredefinedSplit

    model, before = _classifier(name, seed)
    grid = {before + option: list(values) for option, values in GRIDS[name].items()}
    folds = PredefinedSplit(np.where(lesson.tuning, 0, -1))
    judged = make_scorer(f1_score, average="macro", zero_division=0.0)
    search = GridSearchCV(model, grid, scoring=judged, cv=folds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # as good as it came: others of the grid are better
        search.fit(features[lesson.rows], lesson.target)
    found = search.predict(unseen)
    best = {option.removeprefix(before): value for option, value in search.best_params_.items()}
    return [lesson.classes[one] for one in found.tolist()], best


def beside_topics(theta: npt.NDArray[np.float64], known: Known) -> csr_matrix:
    """Put documents' other labels and numbers beside their proportions, shape (documents, topics)."""
    return hstack([csr_matrix(theta), known.beside], format="csr")


def tallied(unseen: Known, predicted: Sequence[Value]) -> Tally:
    """Count what was known and what was predicted, of documents with words and a value."""
    tally = Tally()
    for own, given, length in zip(unseen.values, predicted, unseen.lengths.tolist(), strict=True):
        if own and length:
            tally.documents += 1
            tally.right += given in own
            if len(own) == 1:
                tally.pairs[own[0], given] += 1
    return tally
