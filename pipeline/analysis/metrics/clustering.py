"""Metrics of how well documents' largest topics agree with labels, and how well proportions predict them.

scikit-learn is imported by the functions, as it takes a second that commands without labels need not wait.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import AnyArray
from collapsium.storage.errors import optional

MISSING = "agreement with labels needs scikit-learn, which is not installed: pip install 'collapsium[sklearn]'"


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
AnyLabels = AnyArray

FOLDS = 5  # Folds of the cross-validation of the linear classifier, and least documents of a label
MAX_STEPS = 1000  # Steps of the classifier's fit, at most


def purity(labels: AnyLabels, clusters: Ints) -> float:
    """Return the share of documents whose label is the most frequent one of their cluster (Manning et al. 2008).

    Parameters
    ----------
    labels : numpy.ndarray, shape (documents,)
        Label of each document, a number or a text.
    clusters : numpy.ndarray of int64, shape (documents,)
        Cluster of each document, such as its largest topic.

    Returns
    -------
    float
        From 0 to 1.
    """
    with optional("sklearn", MISSING):
        from sklearn import metrics

    table = metrics.cluster.contingency_matrix(labels, clusters)
    return float(table.max(axis=0).sum() / table.sum())


def normalised_mutual_information(labels: AnyLabels, clusters: Ints) -> float:
    """Return the mutual information divided by the mean of both entropies, as scikit-learn defines it."""
    with optional("sklearn", MISSING):
        from sklearn import metrics

    return float(metrics.normalized_mutual_info_score(labels, clusters))


def adjusted_rand_index(labels: AnyLabels, clusters: Ints) -> float:
    """Return the share of pairs of documents on which both agree, adjusted for chance (Hubert and Arabie 1985)."""
    with optional("sklearn", MISSING):
        from sklearn import metrics

    return float(metrics.adjusted_rand_score(labels, clusters))


def linear_accuracy(labels: AnyLabels, proportions: Floats, seed: int = 0) -> float:
    """Return the accuracy of logistic regression on proportions, by cross-validation.

    Parameters
    ----------
    labels : numpy.ndarray, shape (documents,)
        Label of each document. Labels of fewer documents than there are folds are left out.
    proportions : numpy.ndarray of float64, shape (documents, topics)
        Topic proportions.
    seed : int, optional
        Seed of the folds.

    Returns
    -------
    float
        Share of documents whose label is predicted by a classifier fitted to the other folds; NaN if fewer than two
        labels are left.
    """
    with optional("sklearn", MISSING):
        from sklearn import linear_model, model_selection

    chosen = _frequent(labels)
    labels, proportions = labels[chosen], proportions[chosen]
    if np.unique(labels).size < 2:
        return float("nan")
    folds = model_selection.StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    predicted = model_selection.cross_val_predict(
        linear_model.LogisticRegression(max_iter=MAX_STEPS), proportions, labels, cv=folds
    )
    return float((predicted == labels).mean())


def unseen_accuracy(labels: AnyLabels, proportions: Floats, unseen_labels: AnyLabels, unseen: Floats) -> float:
    """Return the accuracy on unseen documents of logistic regression that is fitted to training documents.

    Parameters
    ----------
    labels : numpy.ndarray, shape (documents,)
        Label of each training document.
    proportions : numpy.ndarray of float64, shape (documents, topics)
        Their topic proportions.
    unseen_labels : numpy.ndarray, shape (unseen documents,)
        Label of each unseen document.
    unseen : numpy.ndarray of float64, shape (unseen documents, topics)
        Their topic proportions.

    Returns
    -------
    float
        Share of unseen documents whose label is predicted; NaN if the training documents have fewer than two labels.
    """
    with optional("sklearn", MISSING):
        from sklearn import linear_model

    if np.unique(labels).size < 2:
        return float("nan")
    classifier = linear_model.LogisticRegression(max_iter=MAX_STEPS).fit(proportions, labels)
    return float((classifier.predict(unseen) == unseen_labels).mean())


def _frequent(labels: AnyLabels) -> npt.NDArray[np.bool_]:
    """Return whether each document's label has as many documents as there are folds."""
    _, place, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    frequent: npt.NDArray[np.bool_] = sizes[place] >= FOLDS
    return frequent
