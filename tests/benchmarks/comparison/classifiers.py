"""Classifiers to compare with, which learn from the training documents and predict a field of unseen ones.

Supervised LDA of tomotopy, in a process of its own.

`python -m tests.benchmarks.comparison.classifiers JSON` prints JSON.

Numeric classes are modelled in two ways: by one linear response, standardised, whose estimate is rounded to the nearest
class; and by a binary response for each class, of which the largest estimate wins. The way with the better macro F1 on
the tuning documents is fitted to all. Other classes are modelled in the second way.

Classifiers of scikit-learn to compare with, tuned on a part of the training documents.

The corpora are read into sparse matrices in memory. Classifiers learn from training documents with exactly one value of
the field; the documents to classify may have several.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
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
from collapsium.pipeline.analysis.label_prediction import Tally, Value, scored
from collapsium.pipeline.engine.fit import fit, resume
from collapsium.pipeline.engine.setup.inputs import label_table
from collapsium.pipeline.workflows.compare_options import RANDOM
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.labels import Labels, LabelTable, numbered
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import InputError, OptionError, suggestion
from collapsium.storage.runs.run import Run
from collapsium.workers.arrays.random_streams import Stream
from tests.benchmarks.comparison.base import BaselineError, print_result, run_module
from tests.benchmarks.comparison.libraries import installed

LDA_SVM = "lda-svm"  # A linear SVM on the proportions of LDA and the other labels
SUPERVISED_LDA = "slda"  # Supervised LDA of tomotopy
WORD_CLASSIFIERS = ("naive-bayes", "svm", "tree")  # Classifiers of scikit-learn on words alone
CLASSIFIERS = (LDA_SVM, *WORD_CLASSIFIERS, SUPERVISED_LDA)
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
        return [() if math.isnan(number) else (number,) for number in numbers]
    values = {number: value for number, (name, value) in enumerate(labels.names) if name == field}
    numbers_of = np.split(labels.position, labels.offsets[1:-1]) if documents else []
    return [tuple(values[number] for number in numbers.tolist() if number in values) for numbers in numbers_of]


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
        rows = np.array([n for n, labels in enumerate(train.values) if len(labels) == 1 and lengths[n]], dtype=np.int64)
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
    numbers = np.array([float(value) for value in classes])
    values = numbers[target]
    return "l", ((values - values.mean()) / (values.std() or 1.0))[:, np.newaxis]


def predicted_classes(way: str, classes: Sequence[Value], target: Ints, estimates: npt.NDArray[np.float64]) -> Ints:
    """Return the classes that estimates (documents, variables) predict."""
    if way == BINARY:
        return np.asarray(estimates.argmax(axis=1), dtype=np.int64)
    numbers = np.array([float(value) for value in classes])
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
    for row, response in zip(rows.tolist(), values.tolist(), strict=True):
        model.add_doc(tokens(train, row), y=response)
    model.train(arguments.iterations, workers=arguments.workers)
    known = set(model.used_vocabs)
    predicted = np.full(len(texts), np.bincount(target).argmax(), dtype=np.int64)
    usable = [number for number, words in enumerate(texts) if known.intersection(words)]
    if usable:
        documents = [model.make_doc(texts[number]) for number in usable]
        model.infer(documents, iterations=FOLD_IN_ITERATIONS, workers=arguments.workers)
        estimates = np.array([model.estimate(document) for document in documents]).reshape(len(usable), len(kinds))
        predicted[usable] = predicted_classes(way, classes, target, estimates)
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
        [float(value) for value in examples.classes]
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
    return {"predicted": [examples.classes[number] for number in predicted.tolist()], "tuned": {"response": way}}


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
    return [examples.classes[number] for number in predicted.tolist()], best


MAX_RESPONSES = 20  # Largest number of classes for supervised LDA, which has a response variable for each


@dataclass(frozen=True)
class LabelledDocuments:
    """The training and unseen documents of classifiers, read into memory when they are needed."""

    train: Corpus
    unseen: Corpus
    field: str  # The field to predict
    seed: int
    iterations: int  # Iterations of fits of topics
    workers: int | None = None  # Cores; by default all

    @property
    def numeric(self) -> bool:
        """Whether the field to predict is a number."""
        return self.field not in label_table(self.train).fields

    @cached_property
    def words_alone(self) -> tuple[TrainingExamples, LabelledCorpus, LabelledCorpus]:
        """The training examples, and the training and unseen documents, without other labels."""
        return self.read((), ())

    def read(
        self, labels: Sequence[str], covariates: Sequence[str]
    ) -> tuple[TrainingExamples, LabelledCorpus, LabelledCorpus]:
        """Read the documents with some fields of labels and covariates."""
        table = label_table(self.train, tuple(labels), tuple(covariates))
        # No fields of labels would stand for all.
        table = table if labels else replace(table, names=(), documents=())
        train, unseen = (
            read_known(corpus, self.field, numeric=self.numeric, table=table) for corpus in (self.train, self.unseen)
        )
        return TrainingExamples.of(train, self.seed, self.train.url), train, unseen


@dataclass(frozen=True)
class ClassifierFit:
    """A classifier that is fitted once."""

    name: str  # Name of its record
    classifier: str  # One of `CLASSIFIERS`
    topics: int | None  # Number of topics K, if it has topics
    documents: LabelledDocuments
    start: str = RANDOM  # Its difference to other fits of this classifier, as text
    labels: tuple[str, ...] = ()  # lda-svm: fields of labels in addition to the proportions
    covariates: tuple[str, ...] = ()  # lda-svm: covariates in addition to the labels
    run: str = ""  # lda-svm: folder of the fit of LDA

    def measure(self) -> JsonObject:
        """Fit the classifier, predict the unseen documents, and return the scores."""
        began = time.perf_counter()
        predict = {LDA_SVM: self._by_topics, SUPERVISED_LDA: self._by_supervised_lda}
        unseen, predicted, tuned = predict.get(self.classifier, self._by_words)()
        tally = tallied(unseen, predicted)
        if not tally.documents:
            field = self.documents.field
            raise InputError(
                self.documents.unseen.url, f"expected documents with words and a value of '{field}', found none"
            )
        found = scored(self.documents.field, tally)
        record = {name: value for name, value in asdict(found).items() if name != "definition"}
        return {
            "cell": self.name,
            "baseline": self.classifier,
            "topics": self.topics,
            "start": self.start,
            "score": None,
            "seconds": time.perf_counter() - began,
            "predict_seconds": None,
            "tuned": tuned,
            "accuracy": found.accuracy,
            "macro_f1": found.macro_f1,
            "micro_f1": found.micro_f1,
            "classified": json.loads(json.dumps(record)),
        }

    def _by_words(self) -> tuple[LabelledCorpus, Sequence[Value], JsonObject]:
        """Fit a classifier of scikit-learn to word counts, and predict."""
        examples, train, unseen = self.documents.words_alone
        return unseen, *learned(self.classifier, train.words, unseen.words, examples, self.documents.seed)

    def _by_topics(self) -> tuple[LabelledCorpus, Sequence[Value], JsonObject]:
        """Fit LDA, unless it is fitted, then a linear SVM on its proportions and the other labels, and predict."""
        known, topics = self.documents, self.topics or 0
        if not Run(self.run).exists():
            options = {"iterations": known.iterations, "seed": known.seed, "workers": known.workers}
            fit(known.train.url, self.run, family="lda", topics=topics, **options)
        elif not Run(self.run).model.exists("model.json"):
            resume(self.run, workers=known.workers)
        theta = []
        for corpus in (known.train, known.unseen):
            with tempfile.TemporaryDirectory(prefix="collapsium-") as scratch:
                path = Path(scratch) / "proportions.parquet"
                infer(self.run, corpus.url, path, threshold=0.0, seed=known.seed, workers=known.workers)
                theta.append(_read_proportions(path, topics))
        examples, train, unseen = known.read(self.labels, self.covariates)
        features = with_labels(theta[0], train)
        return unseen, *learned(self.classifier, features, with_labels(theta[1], unseen), examples, known.seed)

    def _by_supervised_lda(self) -> tuple[LabelledCorpus, Sequence[Value], JsonObject]:
        """Fit supervised LDA of tomotopy to words in a separate process, and predict."""
        if not installed("tomotopy"):
            raise BaselineError("tomotopy is not installed")
        examples, _, unseen = self.documents.words_alone
        if len(examples.classes) > MAX_RESPONSES:
            raise BaselineError(f"expected at most {MAX_RESPONSES} classes, found {len(examples.classes)}")
        arguments = {
            "train": self.documents.train.folder.address,
            "unseen": self.documents.unseen.folder.address,
            "field": self.documents.field,
            "numeric": self.documents.numeric,
            "topics": self.topics,
            "iterations": self.documents.iterations,
            "seed": self.documents.seed,
            "workers": self.documents.workers or os.cpu_count() or 1,
        }
        result = run_module("tests.benchmarks.comparison.classifiers", arguments, "predicted")
        return unseen, result["predicted"], result["tuned"]


def _read_proportions(path: Path, topics: int) -> npt.NDArray[np.float64]:
    """Return the proportions in a file of `infer`, shape (documents, topics)."""
    table = pq.read_table(path)
    ids, shares = (table[name].combine_chunks() for name in ("topics", "proportions"))
    theta = np.zeros((table.num_rows, topics))
    owner = np.repeat(np.arange(table.num_rows), np.diff(np.asarray(ids.offsets)))
    theta[owner, np.asarray(ids.values)] = np.asarray(shares.values)
    return theta


def classifier_fits(
    names: Sequence[str],
    documents: LabelledDocuments,
    out: str,
    *,
    lda_topics: Sequence[int] = (200,),
    slda_topics: Sequence[int] = (50,),
    labels: Sequence[Sequence[str]] = (),
    covariates: Sequence[str] = (),
) -> list[ClassifierFit]:
    """Return the classifiers to compare with; lda-svm has a fit for each of `labels`, by default all other fields."""
    others = tuple(name for name in label_table(documents.train).fields if name != documents.field)
    for name in names:
        if name not in CLASSIFIERS:
            raise OptionError(f"unknown classifier '{name}'{suggestion(name, CLASSIFIERS)}", "classifiers")
    for name in (name for fields in labels for name in fields):
        if name not in others:
            raise OptionError(f"unknown field of labels '{name}'{suggestion(name, others)}", "svm_labels")
    fits: list[ClassifierFit] = []
    for name in names:
        if name == SUPERVISED_LDA:
            fits += [ClassifierFit(f"{name}-{count}", name, count, documents) for count in slda_topics]
        elif name == LDA_SVM:
            for count in lda_topics:
                for fields in labels or (others,):
                    start = f"labels = {'+'.join(fields) or 'none'}" if labels else RANDOM
                    suffix = f"-labels-{'+'.join(fields) or 'none'}" if labels else ""
                    run = f"{out}/{name}-{count}"
                    settings = {"start": start, "labels": tuple(fields), "covariates": tuple(covariates), "run": run}
                    fits.append(ClassifierFit(f"{name}-{count}{suffix}", name, count, documents, **settings))
        else:
            fits.append(ClassifierFit(name, name, None, documents))
    return fits


if __name__ == "__main__":
    print_result(classified)
