"""Designs of models: the rows of documents that lack fields."""

import numpy as np
import pytest

from collapsium.storage.errors import OptionError
from collapsium.workers.design import FieldCounts, check_formula, model_design


def test_documents_without_a_field__have_the_mean_of_numbers_and_the_reference_level():
    counts = {
        "party": FieldCounts(np.array(["a", "b", "c"], dtype=object), np.array([2, 5, 3]), 0),
        "year": FieldCounts(np.array([1990.0, 2000.0]), np.array([5, 5]), 0),
    }
    design = model_design(check_formula("~ party + year"), counts, 10, {"party", "year"})
    known = {"party": np.array(["b", "b"], dtype=object), "year": np.array([1995.0, 1995.0])}
    np.testing.assert_array_equal(design.rows({}, 2), design.rows(known, 2))
    # each document alone, because the result must not depend on which documents share a shard
    partly = {"party": np.array(["c", None], dtype=object), "year": np.array([1990.0, np.nan])}
    np.testing.assert_array_equal(design.rows(partly, 2)[1], design.rows({}, 1)[0])
    changed = {**known, "party": np.array(["b", "c"], dtype=object)}
    assert not np.array_equal(design.rows(changed, 2), design.rows(known, 2))


def test_documents_without_a_field_that_others_lacked_too__have_the_level_of_missing_labels():
    counts = {"party": FieldCounts(np.array(["a", "b"], dtype=object), np.array([2, 5]), 3)}
    design = model_design(check_formula("~ party"), counts, 10, {"party"})
    missing = {"party": np.array([None, None], dtype=object)}
    np.testing.assert_array_equal(design.rows({}, 2), design.rows(missing, 2))
    assert not np.array_equal(design.rows({}, 2), design.rows({"party": np.array(["b", "b"], dtype=object)}, 2))


def test_texts_in_a_field_of_numbers__are_refused_with_its_name():
    counts = {"year": FieldCounts(np.array([1990.0, 2000.0]), np.array([5, 5]), 1)}
    design = model_design(check_formula("~ year"), counts, 11, {"year"})
    with pytest.raises(OptionError, match="year: expected numbers or dates, found '1990-01-01'"):
        design.rows({"year": np.array([None, "1990-01-01"], dtype=object)}, 2)
    lacking = design.rows({"year": np.array([None, None], dtype=object)}, 2)
    np.testing.assert_array_equal(lacking, design.rows({}, 2))


def test_levels_at_which_a_prior_is_shown__may_be_the_missing_level_of_numbers():
    counts = {"code": FieldCounts(np.array([1.0, 2.0]), np.array([5, 5]), 1)}
    design = model_design(check_formula("~ C(code)"), counts, 11, {"code"})
    missing = design.rows({"code": np.array([np.nan])}, 1)[0]
    np.testing.assert_array_equal(design.row_at({"code": "(missing)"})[0], missing)
