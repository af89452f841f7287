"""Glances at the topics while a fit goes on: sizes, what moved, and words, for all families."""

import itertools

import numpy as np
import pytest

from collapsar.pipeline import fit, glancing, topics
from collapsar.pipeline.contract import family_names, load_family
from collapsar.pipeline.loop import sweep_times
from collapsar.storage.run import Run
from collapsar.workers.contract import is_labelled
from collapsar.workers.delta import Delta
from tests.networks import needed
from tests.pipeline.test_hca import corpus_of, drawn


@pytest.fixture
def often(monkeypatch):
    """Words are looked for in each iteration, a few cells of a block at a time."""
    for name in ("FIRST", "SECONDS", "COST", "SHARE"):
        monkeypatch.setattr(glancing, name, 0.0)
    monkeypatch.setattr(glancing, "PIECE", 40)


@pytest.mark.parametrize("family", family_names())
def test_events__tell_the_topics_that_the_model_has(small, labelled_small, tmp_path, often, family):
    vectors = load_family(family).CORPUS == "vectors"
    documents = labelled_small if is_labelled(family) else small
    corpus = corpus_of(tmp_path, drawn(3)) if vectors else documents[0]
    options = needed(load_family(family).Config.model_fields)
    fit(corpus, tmp_path / "run", family=family, iterations=3, scheduler="serial", **options)
    told = [event for event in Run(tmp_path / "run").events() if event["event"] == "iteration"]
    found = {topic.id: topic for topic in topics(tmp_path / "run", words=glancing.WORDS)}
    last = told[-1]
    held = [topic.share if topic.below is None else topic.below for topic in found.values()]
    assert last["active"] == sum(one >= glancing.HELD for one in held)
    shares = sorted((topic.share for topic in found.values()), reverse=True)
    sizes = [share for _, share in last["sizes"]]
    np.testing.assert_allclose(sizes, shares[: len(sizes)], atol=1e-5)
    assert len(sizes) == min(glancing.SIZES, sum(round(share, 5) > 0.0 for share in shares))
    for number, share in last["sizes"]:
        assert found[number].share == pytest.approx(share, abs=1e-5)
        assert last["top_words"][str(number)] == found[number].names
    before = dict(map(tuple, told[-2]["sizes"]))
    for number, change in last["moved"]:
        if number in before and number in found:
            assert found[number].share - before[number] == pytest.approx(change, abs=2.1e-5)
    assert last["tokens_a_second"] > 0.0
    assert last["sweeps"]["shards"] == (3 if vectors else 5)


@pytest.mark.parametrize(("took", "often"), [(0.001, glancing.SECONDS), (0.05, 10.0), (1.0, None)])
def test_words__are_looked_for_rarely(small, tmp_path, monkeypatch, took, often):
    """Two times lie apart as long as is asked for, and as what they take allows for."""
    clock, counter = [100.0], itertools.count(0.0, took)

    class Time:
        monotonic = staticmethod(lambda: clock[0])
        perf_counter = staticmethod(lambda: next(counter))

    monkeypatch.setattr(glancing, "time", Time)

    def later(event):
        clock[0] += 1.0

    options = {"family": "lda", "topics": 3, "iterations": 30, "scheduler": "serial"}
    fit(small[0], tmp_path / "run", sinks=[later], **options)
    events = [event for event in Run(tmp_path / "run").events() if event["event"] == "iteration"]
    told = [event["iteration"] for event in events if "top_words" in event]
    assert told[0] <= 3
    if often is None:
        assert len(told) == 1  # the last ones too would take more than the run has time for
        return
    assert len(told) > 2
    assert all(after - before >= often for before, after in zip(told[:-1], told[1:-1], strict=False))
    assert told[-1] == 30  # the last ones stay to be seen


def test_sweep_times__tell_quartiles_and_the_slowest():
    told = Delta(seconds={"kernel": 9.0, **{f"shard {number}": float(number) for number in range(5)}})
    assert sweep_times(told) == {
        "shards": 5,
        "total": 10.0,
        "quartiles": [0.0, 1.0, 2.0, 3.0, 4.0],
        "slowest": [[4, 4.0], [3, 3.0], [2, 2.0]],
    }
    assert sweep_times(Delta()) == {}
