"""Classifiers of scikit-learn to compare with, tuned on a part of the training documents.

The corpora are read into sparse matrices in memory. Classifiers learn from training documents with exactly one value of
the field; the documents to classify may have several.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, hstack, vstack

from collapsium.pipeline.analysis.labels.classification import Tally, Value
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.label_index import LabelTable, numbered
from collapsium.storage.corpus.labels import Labels
from collapsium.storage.errors import InputError
from collapsium.workers.arrays.random_streams import Stream

TUNING_SHARE = 0.1  # Share of the training documents on which parameters are tuned


@dataclass(frozen=True)
class LabelledCorpus:
    """Documents in memory, with their labels."""

    words: csr_matrix  # Word counts; (documents, words)
    labels: csr_matrix  # Other labels, as 1, and covariates, standardised; (documents, labels and covariates)
    values: list[tuple[Value, ...]]  # Values of the field to predict

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each document."""
        return np.asarray(self.words.sum(axis=1), dtype=np.int64).ravel()


def read_known(corpus: Corpus, field: str, *, numeric: bool, table: LabelTable) -> LabelledCorpus:
    """Read documents into memory, with the labels and covariates of a table and the values of a field."""
    words, others, values = [], [], []
    for reference in corpus.references:
        documents, labels = reference.documents(), reference.labels()
        size = len(documents)
        shape = (size, corpus.manifest.vocabulary.words)
        words.append(csr_matrix((documents.counts.astype(np.float64), documents.words, documents.offsets), shape=shape))
        entries = numbered(labels, table, size)
        others.append(csr_matrix((entries.value, entries.label, entries.offsets), shape=(size, len(table))))
        values += values_of(labels, field, numeric=numeric)
    return LabelledCorpus(vstack(words, format="csr"), vstack(others, format="csr"), values)


def values_of(labels: Labels, field: str, *, numeric: bool) -> list[tuple[Value, ...]]:
    """Return the values of a field that each document has: none, one or several."""
    documents = labels.offsets.size - 1
    if numeric:
        numbers = labels.numbers.get(field, np.full(documents, np.nan)).tolist()
        return [() if math.isnan(one) else (one,) for one in numbers]
    values = {number: value for number, (name, value) in enumerate(labels.names) if name == field}
    numbers_of = np.split(labels.position, labels.offsets[1:-1]) if documents else []
    return [tuple(values[one] for one in numbers.tolist() if one in values) for numbers in numbers_of]


@dataclass(frozen=True)
class TrainingExamples:
    """Training documents with words and exactly one value."""

    rows: npt.NDArray[np.int64]  # Numbers of the training documents; int64
    classes: list[Value]  # The values, ascending
    target: npt.NDArray[np.int64]  # Their positions in `classes`; int64 (rows,)
    tuning: npt.NDArray[np.bool_]  # True for the documents on which parameters are tuned; bool (rows,)

    @staticmethod
    def of(train: LabelledCorpus, seed: int, source: str) -> TrainingExamples:
        """Select the training documents, and a random tenth of them for tuning."""
        lengths = train.lengths
        rows = np.array([n for n, own in enumerate(train.values) if len(own) == 1 and lengths[n]], dtype=np.int64)
        values = [train.values[n][0] for n in rows.tolist()]
        classes: list[Value] = sorted(set(values))
        if len(classes) < 2:
            raise InputError(source, f"expected documents with two or more values of the field, found {len(classes)}")
        positions = {value: number for number, value in enumerate(classes)}
        tuning = Stream(seed, "tuning").generator().random(len(train.values))[rows] < TUNING_SHARE
        # With few documents, the random selection may be empty or complete.
        if not tuning.any() or tuning.all():
            tuning = np.arange(rows.size) % 10 == 0
        target = np.array([positions[value] for value in values], dtype=np.int64)
        return TrainingExamples(rows, classes, target, tuning)


def with_labels(theta: npt.NDArray[np.float64], documents: LabelledCorpus) -> csr_matrix:
    """Return topic proportions, shape (documents, topics), with further columns for labels and covariates."""
    return hstack([csr_matrix(theta), documents.labels], format="csr")


def tallied(unseen: LabelledCorpus, predicted: Sequence[Value]) -> Tally:
    """Count pairs of known and predicted values, over documents with words and a value."""
    tally = Tally()
    for known, prediction, length in zip(unseen.values, predicted, unseen.lengths.tolist(), strict=True):
        if known and length:
            tally.documents += 1
            tally.right += prediction in known
            if len(known) == 1:
                tally.pairs[known[0], prediction] += 1
    return tally
