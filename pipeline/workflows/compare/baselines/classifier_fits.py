"""Classifiers to compare with, which learn from the training documents and predict a field of unseen ones.

Supervised LDA of tomotopy, in a process of its own.

`python -m collapsium.pipeline.workflows.compare.baselines.classifier_fits JSON` prints JSON.

Numeric classes are modelled in two ways: by one linear response, standardised, whose estimate is rounded to the nearest
class; and by a binary response for each class, of which the largest estimate wins. The way with the better macro F1 on
the tuning documents is fitted to all. Other classes are modelled in the second way.

Classifiers of scikit-learn to compare with, tuned on a part of the training documents.

The corpora are read into sparse matrices in memory. Classifiers learn from training documents with exactly one value of
the field; the documents to classify may have several.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from scipy.sparse import csr_matrix, hstack, vstack
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from collapsium.pipeline.analysis.infer import infer
from collapsium.pipeline.analysis.labels.classification import Tally, Value, scored
from collapsium.pipeline.workflows.compare.baselines.base import Baseline, BaselineError, print_result, run_module
from collapsium.pipeline.workflows.compare.fits import Fitter
from collapsium.pipeline.workflows.compare.grid import RANDOM
from collapsium.pipeline.workflows.compare.metrics.registry import classification_fields
from collapsium.pipeline.workflows.compare.options import LDA_SVM, SUPERVISED_LDA, CompareOptions, installed
from collapsium.pipeline.workflows.compare.targets import Target, side_table
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.label_index import LabelTable, numbered
from collapsium.storage.corpus.labels import Labels
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import InputError
from collapsium.storage.runs.comparison import RUNS
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


Ints = npt.NDArray[np.int64]
LINEAR, BINARY = "linear", "binary"
COEFFICIENT_VARIANCE = 10.0  # Prior variance of the coefficients; responses are standardised, and proportions are small
FOLD_IN_ITERATIONS = 100  # Iterations in which the topics of an unseen document are sampled


def tokens(known: LabelledCorpus, row: int) -> list[str]:
    """Return a document's tokens, as numbers of words in text."""
    first, last = known.words.indptr[row], known.words.indptr[row + 1]
    counts = known.words.data[first:last].astype(np.int64)
    return [str(word) for word in np.repeat(known.words.indices[first:last], counts).tolist()]


def responses(way: str, classes: Sequence[Value], target: Ints) -> tuple[str, npt.NDArray[np.float64]]:
    """Return the kinds of the response variables, and their values, shape (documents, variables)."""
    if way == BINARY:
        return "b" * len(classes), np.eye(len(classes))[target]
    numbers = np.array([float(one) for one in classes])
    values = numbers[target]
    return "l", ((values - values.mean()) / (values.std() or 1.0))[:, np.newaxis]


def chosen(way: str, classes: Sequence[Value], target: Ints, estimates: npt.NDArray[np.float64]) -> Ints:
    """Return the classes that belong to estimates of shape (documents, variables)."""
    if way == BINARY:
        return np.asarray(estimates.argmax(axis=1), dtype=np.int64)
    numbers = np.array([float(one) for one in classes])
    values = numbers[target]
    value = estimates[:, :1] * (values.std() or 1.0) + values.mean()
    return np.asarray(np.abs(value - numbers).argmin(axis=1), dtype=np.int64)


def fitted(
    way: str,
    train: LabelledCorpus,
    rows: Ints,
    target: Ints,
    classes: Sequence[Value],
    texts: list[list[str]],
    arguments: SimpleNamespace,
) -> Ints:
    """Fit to some documents, and classify texts; those without a known word get the most frequent class."""
    import tomotopy

    kinds, values = responses(way, classes, target)
    model = tomotopy.SLDAModel(
        k=arguments.topics,
        vars=kinds,
        alpha=0.1,
        eta=100.0 / train.words.shape[1],
        nu_sq=[COEFFICIENT_VARIANCE] * len(kinds),
        seed=arguments.seed % 2**32,
    )
    for row, own in zip(rows.tolist(), values.tolist(), strict=True):
        model.add_doc(tokens(train, row), y=own)
    model.train(arguments.iterations, workers=arguments.workers)
    known = set(model.used_vocabs)
    predicted = np.full(len(texts), np.bincount(target).argmax(), dtype=np.int64)
    usable = [number for number, words in enumerate(texts) if known.intersection(words)]
    if usable:
        documents = [model.make_doc(texts[number]) for number in usable]
        model.infer(documents, iterations=FOLD_IN_ITERATIONS, workers=arguments.workers)
        estimates = np.array([model.estimate(one) for one in documents]).reshape(len(usable), len(kinds))
        predicted[usable] = chosen(way, classes, target, estimates)
    return predicted


def classified(arguments: SimpleNamespace) -> JsonObject:
    """Fit supervised LDA, and classify the unseen documents."""
    train, unseen = (
        read_known(Corpus(url), arguments.field, numeric=arguments.numeric, table=LabelTable())
        for url in (arguments.train, arguments.unseen)
    )
    examples = TrainingExamples.of(train, arguments.seed, arguments.train)
    ways = [BINARY]
    try:
        [float(one) for one in examples.classes]
        ways.insert(0, LINEAR)
    except ValueError:
        pass
    best = dict.fromkeys(ways, 0.0)
    if len(ways) > 1:
        learning, tuning = ~examples.tuning, examples.tuning
        rows, target = examples.rows[learning], examples.target[learning]
        texts = [tokens(train, row) for row in examples.rows[tuning].tolist()]
        from sklearn import metrics

        for way in ways:
            predicted = fitted(way, train, rows, target, examples.classes, texts, arguments)
            best[way] = float(metrics.f1_score(examples.target[tuning], predicted, average="macro", zero_division=0.0))
    way = max(ways, key=best.__getitem__)
    texts = [tokens(unseen, row) for row in range(unseen.words.shape[0])]
    predicted = fitted(way, train, examples.rows, examples.target, examples.classes, texts, arguments)
    return {"predicted": [examples.classes[one] for one in predicted.tolist()], "tuned": {"response": way}}


if __name__ == "__main__":
    print_result(classified)


BALANCED = (None, "balanced")
GRIDS: dict[str, dict[str, tuple[float | str | None, ...]]] = {
    "lda-svm": {"C": (0.1, 1.0, 10.0), "class_weight": BALANCED},
    "naive-bayes": {"alpha": (0.01, 0.1, 0.3, 1.0), "fit_prior": (True, False)},
    "svm": {"C": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0), "class_weight": BALANCED},
    "tree": {"min_samples_leaf": (1, 5, 20), "class_weight": BALANCED},
}


def _classifier(name: str, seed: int) -> tuple[Any, str]:
    """Return an estimator of scikit-learn, and the prefix of its parameters."""
    if name == "naive-bayes":
        return MultinomialNB(), ""
    if name == "tree":
        return DecisionTreeClassifier(random_state=seed % 2**32), ""
    machine = LinearSVC(random_state=seed % 2**32, dual="auto")
    if name == LDA_SVM:
        return machine, ""
    return make_pipeline(TfidfTransformer(sublinear_tf=True), machine), "linearsvc__"


def learned(
    name: str, features: Any, unseen: Any, examples: TrainingExamples, seed: int
) -> tuple[list[Value], JsonObject]:
    """Tune a classifier, fit it to all training examples, and classify documents.

    Returns the predicted classes. The parameters with the best macro F1 on the tuning documents.
    """
    model, prefix = _classifier(name, seed)
    grid = {prefix + option: list(values) for option, values in GRIDS[name].items()}
    folds = PredefinedSplit(np.where(examples.tuning, 0, -1))
    macro_f1 = make_scorer(f1_score, average="macro", zero_division=0.0)
    search = GridSearchCV(model, grid, scoring=macro_f1, cv=folds)
    with warnings.catch_warnings():
        # Parameters that do not converge score worse than others of the grid.
        warnings.simplefilter("ignore", ConvergenceWarning)
        search.fit(features[examples.rows], examples.target)
    predicted = search.predict(unseen)
    best = {option.removeprefix(prefix): value for option, value in search.best_params_.items()}
    return [examples.classes[one] for one in predicted.tolist()], best


MAX_RESPONSES = 20  # Largest number of classes for supervised LDA, which has a response variable for each


@dataclass(frozen=True)
class LabelledDocuments:
    """The training and unseen documents of classifiers, read into memory when they are needed."""

    target: Target  # The corpora, and the field to predict

    @property
    def field(self) -> str:
        """The field to predict."""
        return self.target.fields.target or ""

    @cached_property
    def words_alone(self) -> tuple[TrainingExamples, LabelledCorpus, LabelledCorpus]:
        """The training examples, and the training and unseen documents, without other labels."""
        return self.read((), ())

    def read(
        self, labels: Sequence[str], covariates: Sequence[str]
    ) -> tuple[TrainingExamples, LabelledCorpus, LabelledCorpus]:
        """Read the documents with some fields of labels and covariates."""
        target = self.target
        table = side_table(target.train, labels, covariates)
        train, unseen = (
            read_known(corpus, self.field, numeric=target.fields.numeric, table=table)
            for corpus in (target.train, target.scored)
        )
        return TrainingExamples.of(train, target.options.seed, target.train.url), train, unseen


@dataclass(frozen=True)
class ClassifierFit(Baseline):
    """A classifier that is fitted once."""

    name: str  # Name of its record
    iterations: int  # Iterations of the fit of its topics, if it has topics
    classifier: str  # One of `collapsium.pipeline.workflows.compare.options.CLASSIFIERS`
    topics: int | None  # Number of topics K, if it has topics
    start: str  # Its difference to other fits of this classifier, as text
    documents: LabelledDocuments  # The documents

    def measure(self) -> JsonObject:
        """Fit the classifier, predict the unseen documents, and return the scores."""
        began = time.perf_counter()
        unseen, predicted, tuned = self.predict()
        tally = tallied(unseen, predicted)
        if not tally.documents:
            url, field = self.documents.target.scored.url, self.documents.field
            raise InputError(url, f"expected documents with words and a value of '{field}', found none")
        return {
            "cell": self.name,
            "baseline": self.classifier,
            "topics": self.topics,
            "start": self.start,
            "score": None,
            "seconds": time.perf_counter() - began,
            "predict_seconds": None,
            "tuned": tuned,
            **classification_fields(scored(self.documents.field, tally)),
        }

    @abstractmethod
    def predict(self) -> tuple[LabelledCorpus, Sequence[Value], JsonObject]:
        """Return the unseen documents, their predicted classes, and the tuned parameters."""


class WordClassifier(ClassifierFit):
    """A classifier of scikit-learn on words alone."""

    def predict(self) -> tuple[LabelledCorpus, Sequence[Value], JsonObject]:
        """Fit the classifier to word counts, and predict."""
        examples, train, unseen = self.documents.words_alone
        seed = self.documents.target.options.seed
        return unseen, *learned(self.classifier, train.words, unseen.words, examples, seed)


@dataclass(frozen=True)
class TopicClassifier(ClassifierFit):
    """A linear SVM on the proportions of LDA and the other labels."""

    labels: tuple[str, ...]  # Fields of labels in addition to the proportions
    fitter: Fitter  # Fits LDA

    def predict(self) -> tuple[LabelledCorpus, Sequence[Value], JsonObject]:
        """Fit LDA, unless it is fitted, then the classifier, and predict."""
        options = self.documents.target.options
        theta = self._proportions()
        examples, train, unseen = self.documents.read(self.labels, options.covariates)
        features = with_labels(theta[0], train)
        return unseen, *learned(self.classifier, features, with_labels(theta[1], unseen), examples, options.seed)

    def _proportions(self) -> list[npt.NDArray[np.float64]]:
        """Return the proportions of the training and the unseen documents."""
        target, fitter, topics = self.documents.target, self.fitter, self.topics or 0
        run = fitter.folder / RUNS / f"{self.classifier}-{topics}"
        options = {"family": "lda", "topics": topics, "iterations": self.iterations, "seed": target.options.seed}
        fitter.fit(run, options, {"cell": self.name})
        proportions = []
        for corpus in (target.train, target.scored):
            with tempfile.TemporaryDirectory(prefix="collapsium-") as scratch:
                path = Path(scratch) / "proportions.parquet"
                resources = fitter.resources.for_scores()
                infer(run.url, corpus.url, path, threshold=0.0, seed=target.options.seed, **resources)
                proportions.append(_read_proportions(path, topics))
        return proportions


def _read_proportions(path: Path, topics: int) -> npt.NDArray[np.float64]:
    """Return the proportions in a file of `infer`, shape (documents, topics)."""
    table = pq.read_table(path)
    ids, shares = (table[name].combine_chunks() for name in ("topics", "proportions"))
    theta = np.zeros((table.num_rows, topics))
    owner = np.repeat(np.arange(table.num_rows), np.diff(np.asarray(ids.offsets)))
    theta[owner, np.asarray(ids.values)] = np.asarray(shares.values)
    return theta


@dataclass(frozen=True)
class SupervisedLDA(ClassifierFit):
    """Supervised LDA of tomotopy, in a process of its own."""

    workers: int | None  # Number of cores; by default all

    def predict(self) -> tuple[LabelledCorpus, Sequence[Value], JsonObject]:
        """Fit the model to words, and predict."""
        if not installed("tomotopy"):
            raise BaselineError("tomotopy is not installed")
        examples, _, unseen = self.documents.words_alone
        if len(examples.classes) > MAX_RESPONSES:
            raise BaselineError(f"expected at most {MAX_RESPONSES} classes, found {len(examples.classes)}")
        target = self.documents.target
        arguments = {
            "train": target.train.folder.address,
            "unseen": target.scored.folder.address,
            "field": self.documents.field,
            "numeric": target.fields.numeric,
            "topics": self.topics,
            "iterations": self.iterations,
            "seed": target.options.seed,
            "workers": self.workers or os.cpu_count() or 1,
        }
        result = run_module("collapsium.pipeline.workflows.compare.baselines.classifier_fits", arguments, "predicted")
        return unseen, result["predicted"], result["tuned"]


def classifier_fits(options: CompareOptions, target: Target, fitter: Fitter) -> list[ClassifierFit]:
    """Return the classifiers to compare with; none without a field to predict."""
    fits: list[ClassifierFit] = []
    documents, fields, iterations = LabelledDocuments(target), target.fields, options.iterations
    others = tuple(name for name in fields.taken if name != fields.target)
    variants = [("", RANDOM, others)]
    if fields.remaining(others) != others:
        variants.append((fields.variant_suffix, fields.variant_start, fields.remaining(others)))
    for name in options.classifiers:
        if name == SUPERVISED_LDA:
            for k in options.slda_topics:
                workers = fitter.resources.workers
                fits.append(SupervisedLDA(f"{name}-{k}", iterations, name, k, RANDOM, documents, workers))
        elif name == LDA_SVM:
            for k in options.lda_topics:
                for suffix, start, labels in variants:
                    cell = f"{name}-{k}{suffix}"
                    fits.append(TopicClassifier(cell, iterations, name, k, start, documents, labels, fitter))
        else:
            fits.append(WordClassifier(name, iterations, name, None, RANDOM, documents))
    return fits
