"""Helpers that the tests of estimators share."""

import numpy as np

from collapsium.pipeline.estimators import CollapsedHDP, CollapsedLDA, GibbsHDP, GibbsLDA, VariationalLDA
from collapsium.pipeline.models.registry import family_names
from collapsium.workers.arrays.state import State

ALL = (CollapsedLDA, CollapsedHDP, VariationalLDA, GibbsLDA, GibbsHDP)
THERE = [estimator for estimator in ALL if estimator.FAMILY in family_names()]
COLLAPSED = [CollapsedLDA, CollapsedHDP]


def small_of(cls, **more):
    """Return an estimator with few topics and iterations."""
    return cls(**{"n_components": 3, "max_iter": 5, "random_state": 0, "n_jobs": 1, **more})


def matrix_of(rows, words=30):
    counts = np.zeros((len(rows), words), dtype=np.int64)
    for number, row in enumerate(rows):
        for word, count in row.items():
            counts[number, word] = count
    return counts


def bits(estimator):
    """Return all arrays that an estimator has fitted, as bytes."""
    parts = [estimator._fitted.global_state, *(block.rows for block in estimator._fitted.blocks)]
    return [(name, np.asarray(part[name]).tobytes()) for part in map(State.to_arrays, parts) for name in sorted(part)]


def model_bits(model):
    parts = [model.global_state, *(model.rows(number) for number in range(len(model.blocks)))]
    return [(name, np.asarray(part[name]).tobytes()) for part in map(State.to_arrays, parts) for name in sorted(part)]
