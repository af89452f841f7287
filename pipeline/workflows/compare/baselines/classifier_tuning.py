"""Tune classifiers of scikit-learn on a part of the training documents, and fit them to all."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from collapsium.pipeline.analysis.labels.classification import Value
from collapsium.pipeline.workflows.compare.baselines.classifiers import TrainingExamples
from collapsium.pipeline.workflows.compare.catalogue import LDA_SVM
from collapsium.storage.data_types import JsonObject

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
