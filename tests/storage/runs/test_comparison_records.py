"""Rows of comparisons are validated when they are read, and refused with the file if tables and plots cannot show
them."""

import pytest

from collapsium.storage.errors import DamagedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump
from collapsium.storage.runs.comparison import CELL_KIND, VERSION, row_of

ROW = {
    "cell": "lda-2",
    "family": "lda",
    "start": "random",
    "topics": 2,
    "restarts": 1,
    "iterations": 2,
    "samples": 0,
    "score": -1.5,
    "score_error": None,
    "ensemble_score": -1.5,
    "perplexity": 4.5,
    "objective": None,
    "objective_error": None,
    "seconds": 0.5,
    "cell_seconds": 0.75,
    "topics_99": 2.0,
    "scores": [-1.5],
    "options": '{"topics": 2}',
}


def read(place, **changed):
    folder = Folder(str(place))
    folder.write("cells/lda-2.json", dump({"format": CELL_KIND, "version": VERSION, "row": {**ROW, **changed}}))
    return row_of(folder, "lda-2")


CLASSES = [{"value": "x", "precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 2}]


def test_a_row__is_read_as_it_was_written(tmp_path):
    assert read(tmp_path) == ROW
    metrics = {"c_v": 0.5, "purity": None, "definitions": {"c_v": ["a definition", "a source"]}}
    classified = {"classified": {"field": "f", "classes": CLASSES, "confusion": [[2]]}}
    assert read(tmp_path, **metrics, **classified) == {**ROW, **metrics, **classified}


@pytest.mark.parametrize(
    "changed",
    [
        {"family": ""},
        {"start": 3},
        {"start": None},
        {"cell": None},
        {"options": "x"},
        {"options": "3"},
        {"options": {}},
        {"definitions": 3},
        {"definitions": {"c_v": "x"}},
        {"definitions": {"c_v": ["x"]}},
        {"c_v": "high"},
        {"c_v": [1]},
        {"c_v": 1e301},
        {"classified": "x"},
    ],
    ids=str,
)
def test_an_invalid_row__is_refused(tmp_path, changed):
    with pytest.raises(DamagedError, match="remove the file, and the cell is measured again"):
        read(tmp_path, **changed)
