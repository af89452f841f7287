"""Fits that the tests of ensembles share."""

import pytest

from collapsium.pipeline import fit
from collapsium.storage.runs.members import member_seed

ENSEMBLE_OPTIONS = {"family": "lda", "topics": 3, "beta": 3.0, "iterations": 6}


@pytest.fixture(scope="package")
def single(small, tmp_path_factory):
    """Single fits, with which the members of an ensemble of three must agree."""
    place = tmp_path_factory.mktemp("single")
    for number in range(3):
        seed = member_seed(4, number)
        fit(small[0], place / str(number), heldout=small[1], seed=seed, scheduler="serial", **ENSEMBLE_OPTIONS)
    return place


@pytest.fixture(scope="package")
def ensemble(small, tmp_path_factory):
    """A finished ensemble of three."""
    place = tmp_path_factory.mktemp("ensemble") / "run"
    fit(small[0], place, heldout=small[1], seed=4, restarts=3, workers=8, **ENSEMBLE_OPTIONS)
    return place
