"""Rows whose background is spread over the topics, for a sweep of a shard and for reading a block."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.shard import Shard
from collapsium.workers.families.cvb.parameters import ActiveSettings, Parameters, SweptRows, expected_counts
from collapsium.workers.families.cvb.states import CollapsedRows
from tests.naive import background as naive
from tests.strategies import documents_of

STEP = 2.0**-15


@st.composite
def blocks(draw):
    """Draw rows of a few words, some without a token: their arrays, and parameters for them."""
    noise = np.random.default_rng(draw(st.integers(0, 2**31)))
    words, topics = draw(st.integers(0, 6)), draw(st.integers(1, 5))
    active = np.round(9 * noise.random((words, topics)) * (noise.random((words, topics)) < 0.6) / STEP) * STEP
    rest = np.round(9 * noise.random(words) * (noise.random(words) < 0.7) / STEP) * STEP
    a, total = noise.uniform(0.1, 2.0, topics), draw(st.sampled_from([0.5, 30.0]))
    totals = active.sum(axis=0) + noise.uniform(0.0, 5.0, topics)
    settings = ActiveSettings(
        max_topics=0, inverse_temperature=1.0, annealed=True, momentum=0.8, totals=totals, even=draw(st.sampled_from([1e-6, 0.4])),
        weight=noise.uniform(1e-3, 2.0, topics), following=np.ones(topics),
    )  # fmt: skip
    parameters = Parameters(a, float(a.sum()), noise.uniform(0.01, 1.0, words), total, active=settings)
    return CollapsedRows(word_active=active.astype(np.float32), word_rest=rest), parameters


def read_only(rows):
    """Make arrays read-only, as they are after a transfer from another worker."""
    for values in rows.to_arrays().values():
        values.flags.writeable = False
    return rows


def shard_of(rows):
    """Return a shard of one document with each word once."""
    return Shard.of(0, documents_of([dict.fromkeys(range(len(rows.word_rest)), 1)]))


@given(blocks())
def test_swept_rows__contain_the_values_that_a_sweep_reads(drawn):
    rows, parameters = drawn
    settings, working = parameters.active, SweptRows(shard_of(rows), read_only(rows), parameters)
    swept, ratio = working.running.rows, working.running.ratio
    np.testing.assert_array_equal(working.topics.totals, settings.totals + parameters.total)
    np.testing.assert_array_equal(ratio, parameters.topics / working.topics.totals)
    given_ = rows.word_active, rows.word_rest, settings.even, parameters.words, settings.weight, ratio
    row_topic, background = naive.spread(*given_)
    np.testing.assert_allclose(working.topics.rows, row_topic, rtol=1e-6)
    np.testing.assert_allclose(working.selection.background_weight, background, rtol=1e-6)
    np.testing.assert_allclose(swept.background_weight, background, rtol=1e-3)
    np.testing.assert_array_equal(swept.units, STEP)
    np.testing.assert_allclose(swept.cells * STEP, row_topic, atol=0.51 * STEP, rtol=1e-6)


@given(blocks())
def test_swept_rows__start_without_changes_and_do_not_change_their_inputs(drawn):
    rows, parameters = drawn
    given_ = shard_of(rows), read_only(rows), parameters
    working, parts = SweptRows(*given_), SweptRows(*given_).changes()
    assert {name: (part.dims, part.kind) for name, part in parts.items()} == {
        "word_active": (("word", "topic"), "change"),
        "word_rest": (("word",), "change"),
    }
    for name, part in parts.items():
        assert part.values.shape == rows.to_arrays()[name].shape
        assert not part.values.any()
    swept, totals = working.running.rows, working.running.totals
    swept.cells[:] += 2**14  # half a token
    swept.background[:] -= 0.25
    totals += 1.0  # like a sweep, which does not change the totals it started with
    np.testing.assert_array_equal(working.topics.totals, parameters.active_settings.totals + parameters.total)
    parts = working.changes()
    assert (parts["word_active"].values == 0.5).all()
    assert (parts["word_rest"].values == -0.25).all()


@given(blocks())
def test_expected__returns_the_counts_including_their_background(drawn):
    rows, parameters = drawn
    found = expected_counts(read_only(rows), parameters.active_settings.weight, parameters.active_settings.even)
    assert (found.dtype, found.shape) == (np.float32, rows.word_active.shape)
    np.testing.assert_allclose(found.sum(axis=1), rows.word_active.sum(axis=1) + rows.word_rest, rtol=1e-5)
    assert (found >= rows.word_active).all()
    # sweeps read the same values
    np.testing.assert_array_equal(found, SweptRows(shard_of(rows), rows, parameters).topics.rows)


@given(blocks(), st.booleans())
def test_counted__returns_the_counts_themselves_if_rows_are_extrapolated(drawn, ahead):
    rows, parameters = drawn
    if ahead:
        rows = replace(rows, block_active=rows.word_active, word_active=rows.word_active + np.float32(1.0))
    assert rows.active_counts is (rows.block_active if ahead else rows.word_active)
    # The rows that are read from a block at the end are the counts themselves.
    plain = rows.counted()
    assert plain.block_active is None
    assert plain.word_active is rows.active_counts
    weight, even = parameters.active_settings.weight, parameters.active_settings.even
    np.testing.assert_array_equal(expected_counts(rows, weight, even), expected_counts(plain, weight, even))


@given(blocks())
def test_missing_settings__are_an_error(drawn):
    _, parameters = drawn
    assert parameters.active_settings is parameters.active
    dense = Parameters(parameters.topics, 1.0, parameters.words, 1.0)
    with pytest.raises(ValueError, match="need settings"):
        _ = dense.active_settings
    rows = CollapsedRows(word_active=np.zeros((1, 1), np.float32), word_rest=np.zeros(1))
    with pytest.raises(ValueError, match="need settings"):
        SweptRows(shard_of(rows), rows, dense)
