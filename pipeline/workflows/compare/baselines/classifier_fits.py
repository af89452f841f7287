"""Classifiers to compare with, which learn from the training documents and predict a field of unseen ones."""

from __future__ import annotations

import os
import tempfile
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from collapsium.pipeline.analysis.infer import infer
from collapsium.pipeline.analysis.labels.classification import Value, scored
from collapsium.pipeline.workflows.compare.baselines import classifier_tuning
from collapsium.pipeline.workflows.compare.baselines.base import Baseline, BaselineError, run_module
from collapsium.pipeline.workflows.compare.baselines.classifiers import (
    LabelledCorpus,
    TrainingExamples,
    read_known,
    tallied,
    with_labels,
)
from collapsium.pipeline.workflows.compare.catalogue import LDA_SVM, SUPERVISED_LDA, installed
from collapsium.pipeline.workflows.compare.fits import Fitter
from collapsium.pipeline.workflows.compare.grid import RANDOM
from collapsium.pipeline.workflows.compare.label_fields import side_table
from collapsium.pipeline.workflows.compare.metrics.classification import classification_fields
from collapsium.pipeline.workflows.compare.options import CompareOptions
from collapsium.pipeline.workflows.compare.targets import Target
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import InputError
from collapsium.storage.runs.comparison import RUNS

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
    classifier: str  # One of `collapsium.pipeline.workflows.compare.catalogue.CLASSIFIERS`
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
        return unseen, *classifier_tuning.learned(self.classifier, train.words, unseen.words, examples, seed)


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
        return unseen, *classifier_tuning.learned(
            self.classifier, features, with_labels(theta[1], unseen), examples, options.seed
        )

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
        result = run_module("collapsium.pipeline.workflows.compare.baselines.supervised_lda", arguments, "predicted")
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
