"""Snapshots of the topics during a fit: sizes, changes, and top words, for all families."""

import contextlib
import itertools

import numpy as np
import pytest

from collapsium.pipeline import Corpus, Model, fit, topics
from collapsium.pipeline.cli.watch import so_far
from collapsium.pipeline.engine import topic_snapshots
from collapsium.pipeline.engine.loop import shard_times
from collapsium.pipeline.engine.topic_snapshots import MIN_ACTIVE_SHARE, SIZES, WORDS
from collapsium.pipeline.models.registry import family_names, load_family
from collapsium.pipeline.monitoring.events import RunStatus
from collapsium.storage.runs.run import Run
from collapsium.workers.arrays.delta import Delta
from tests.fits import resumed
from tests.networks import needed
from tests.workers.families.hca.test_hca import corpus_of, simulated_vectors


@pytest.fixture
def fetch_often(monkeypatch):
    """Fetch top words in each iteration, a few cells of a block at a time."""
    for name, value in (("MIN_SECONDS", 0.0), ("COST_FACTOR", 0.0), ("RUN_SHARE", 0.0), ("CELLS", 40)):
        monkeypatch.setattr(topic_snapshots, name, value)


@pytest.mark.parametrize("family", family_names())
def test_events__have_the_topics_of_the_model(small, labelled_small, tmp_path, fetch_often, family):
    vectors = load_family(family).corpus_kind == "vectors"
    documents = labelled_small if load_family(family).uses_labels else small
    corpus = corpus_of(tmp_path, simulated_vectors(3)) if vectors else documents[0]
    options = needed(load_family(family).Options.model_fields)
    fit(corpus, tmp_path / "run", family=family, iterations=3, scheduler="serial", **options)
    iterations = [event for event in Run(tmp_path / "run").events() if event["event"] == "iteration"]
    found = {topic.id: topic for topic in topics(tmp_path / "run", words=WORDS)}
    last = iterations[-1]
    held = [topic.share if topic.below is None else topic.below for topic in found.values()]
    assert last["active"] == sum(share >= MIN_ACTIVE_SHARE for share in held)
    shares = sorted((topic.share for topic in found.values()), reverse=True)
    sizes = [share for _, share in last["sizes"]]
    np.testing.assert_allclose(sizes, shares[: len(sizes)], atol=1e-5)
    assert len(sizes) == min(SIZES, sum(round(share, 5) > 0.0 for share in shares))
    for number, share in last["sizes"]:
        assert found[number].share == pytest.approx(share, abs=1e-5)
        assert last["top_words"][str(number)] == found[number].names
    before = dict(map(tuple, iterations[-2]["sizes"]))
    for number, change in last["moved"]:
        if number in before and number in found:
            assert found[number].share - before[number] == pytest.approx(change, abs=2.1e-5)
    assert last["tokens_a_second"] > 0.0
    assert last["sweeps"]["shards"] == len(Corpus(corpus).manifest.shards)


@pytest.mark.parametrize("took", [0.001, 1.0])
@pytest.mark.parametrize("second", [0.0, 1.0, 40.0])
def test_words__are_at_most_a_tenth_of_the_iterations_old(small, tmp_path, monkeypatch, took, second):
    """This holds for any duration of iterations and of fetching words."""
    clock, counter = [100.0], itertools.count(0.0, took)

    class Time:
        monotonic = staticmethod(lambda: clock[0])
        perf_counter = staticmethod(lambda: next(counter))

    monkeypatch.setattr(topic_snapshots, "time", Time)

    def later(event):
        clock[0] += second

    options = {"family": "lda", "topics": 3, "iterations": 30, "scheduler": "serial"}
    fit(small[0], tmp_path / "run", sinks=[later], **options)
    events = [event for event in Run(tmp_path / "run").events() if event["event"] == "iteration"]
    fetched = [event["iteration"] for event in events if "top_words" in event]
    assert (fetched[0], fetched[-1]) == (1, 30)
    assert max(after - before for before, after in itertools.pairwise(fetched)) <= (1 if second == 40.0 else 3)
    if second == 0.0:
        assert len(fetched) == 11  # but they are not fetched more often than that


@pytest.mark.parametrize(
    ("options", "stop"),
    [
        ({"tolerance": 0.5}, None),
        ({}, 8),
        ({"restarts": 2, "tolerance": 0.5}, None),
        ({"schedule": "stochastic"}, None),
    ],
)
def test_words_of_a_finished_run__are_those_of_its_model(small, tmp_path, options, stop):
    def sink(event):
        if event["event"] == "iteration" and event["iteration"] == stop:
            raise KeyboardInterrupt

    run = tmp_path / "run"
    with contextlib.suppress(KeyboardInterrupt):
        fit(small[0], run, family="lda", topics=3, iterations=100, scheduler="serial", sinks=[sink], **options)
    status, found = RunStatus(), so_far(run)[0]
    for event in found:
        status.add(event)
    member = status.fit
    place = run / "members/001" if "restarts" in options else run
    assert member.ended
    assert member.words_at == member.iteration == Model(place).record.iterations
    for topic in topics(place, words=WORDS):
        assert member.words[str(topic.id)] == topic.names


@pytest.mark.parametrize("restarts", [0, 2])
def test_words_of_a_resumed_run__are_as_recent_as_without_interruption(small, tmp_path, restarts):
    def sink(event):
        if event["event"] == "iteration" and event["iteration"] == 14:
            raise KeyboardInterrupt

    run = tmp_path / "run"
    options = {"family": "lda", "topics": 3, "iterations": 30, "scheduler": "serial", "restarts": restarts}
    with contextlib.suppress(KeyboardInterrupt):
        fit(small[0], run, sinks=[sink], **options)
    assert so_far(run)[1].startswith("ended (")
    resumed(run, scheduler="serial")
    status, iterations = RunStatus(), 0
    for event in so_far(run)[0]:
        status.add(event)
        member = status.fit
        iterations += event["event"] == "iteration"
        assert 0 <= member.iteration - member.words_at <= 3
    assert iterations >= 30 * max(restarts, 1)
    assert [fit.words_at for fit in status.fits.values()] == [30] * max(restarts, 1)
    for topic in topics(run / "members/000" if restarts else run, words=WORDS):
        assert status.fits[0 if restarts else None].words[str(topic.id)] == topic.names


def test_shard_times__have_quartiles_and_the_slowest_shard():
    statistics = Delta(seconds={"kernel": 9.0, **{f"shard {number}": float(number) for number in range(5)}})
    assert shard_times(statistics) == {
        "shards": 5,
        "total": 10.0,
        "quartiles": [0.0, 1.0, 2.0, 3.0, 4.0],
        "slowest": [[4, 4.0], [3, 3.0], [2, 2.0]],
    }
    assert shard_times(Delta()) == {}
