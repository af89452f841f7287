"""Measures of how well documents' largest topics agree with labels, and how well proportions predict them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.model_selection import StratifiedKFold, cross_val_predict

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FOLDS = 5
"""Folds of the cross-validation by which the linear classifier is scored."""


def purity(labels: Ints, clusters: Ints) -> float:
    """Return the share of documents whose label is the most frequent one of their cluster (Manning et al. 2008).

    Parameters
    ----------
    labels, clusters : numpy.ndarray of int64, shape (documents,)
        The label and the cluster of each document, such as its largest topic.

    Returns
    -------
    float
        From 0 to 1.
    """
    table = contingency_matrix(labels, clusters)
    return float(table.max(axis=0).sum() / table.sum())


def normalised_mutual_information(labels: Ints, clusters: Ints) -> float:
    """Return the mutual information divided by the mean of both entropies (scikit-learn's definition)."""
    return float(normalized_mutual_info_score(labels, clusters))


def adjusted_rand_index(labels: Ints, clusters: Ints) -> float:
    """Return the share of pairs of documents on which both agree, adjusted for chance (Hubert and Arabie 1985)."""
    return float(adjusted_rand_score(labels, clusters))


def linear_accuracy(labels: Ints, proportions: Floats, seed: int = 0) -> float:
    """Return the accuracy of logistic regression on proportions, by cross-validation.

    Parameters
    ----------
    labels : numpy.ndarray of int64, shape (documents,)
        The label of each document.
    proportions : numpy.ndarray of float64, shape (documents, topics)
        Topic proportions.
    seed : int, optional
        Of the folds.

    Returns
    -------
    float
        Share of documents whose label is predicted by a classifier fitted to the other folds; not a number if some
        label has fewer documents than there are folds.
    """
    _, sizes = np.unique(labels, return_counts=True)
    if sizes.size < 2 or sizes.min() < FOLDS:
        return float("nan")
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    predicted = cross_val_predict(LogisticRegression(max_iter=1000), proportions, labels, cv=folds)
    return float((predicted == labels).mean())
