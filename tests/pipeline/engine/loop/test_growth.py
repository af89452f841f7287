"""Fits that begin on a sample of the documents and add the others in stages."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest

from collapsium.pipeline import Corpus, Model, fit, resume, simulate, split, verify
from collapsium.pipeline.engine import state as growth
from collapsium.pipeline.engine.checkpoints import Checkpointer, RunCheckpointer
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.engine.state import MIN_DOCUMENTS, MIN_TOKENS, PLANS, Growth, planned_growth
from collapsium.pipeline.estimators import CollapsedLDA
from collapsium.pipeline.models.registry import make_options
from collapsium.storage.errors import DamagedError, OptionError
from collapsium.storage.runs.members import restarts_in
from collapsium.storage.runs.run import Run
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb.plain_topics import PlainTopicsFamily
from collapsium.workers.families.family import RANDOM_START
from collapsium.workers.shard_loading import open_shard
from tests.conftest import mark_rest_long
from tests.fits import (
    TIMES,
    LosingExecutor,
    arrays_of,
    at_iteration,
    bits,
    interrupt_and_resume,
    problem_of,
    resumed,
    scores_of,
    state_bits,
)

SHORT = ((4, 3), (2, 2))
"""Stages of tests: a quarter of the documents for three sweeps, half of them for two."""

FAMILIES = [
    ("lda", {"topics": 3}),
    ("lda", {"topics": 140}),
    ("lda", {"topics": 3, "learn": ["alpha", "beta"]}),
    ("hdp", {"topics": 6}),
    ("hdp", {"topics": 6, "split_merge_moves": True}),
]


def growing(corpus, family, options, **more):
    """Return a problem with the stages of `SHORT`, its executor and its initial global state."""
    return problem_of(corpus, family, options, iterations=80, growth=Growth.of(SHORT), **more)


def first(problem, iterations, checkpointer=None):
    """Return the states and progress of the first iterations; the fit is planned for more, because moves of topics
    need many."""
    history = []
    for state, progress in Fit(problem, Limits(iterations=80), checkpointer):
        history.append((state, progress))
        if state.iteration == iterations:
            break
    return history


@pytest.fixture
def short(monkeypatch):
    """Let all fits that can grow begin at random, and grow in the stages of `SHORT`."""
    monkeypatch.setattr(PlainTopicsFamily, "usual_start", lambda self: RANDOM_START)
    rules = {"PLANS": (SHORT,), "MIN_DOCUMENTS": 1, "MIN_TOKENS": 1, "MAX_SHARE": 0.7}
    for name, value in rules.items():
        monkeypatch.setattr(growth, name, value)


@pytest.mark.parametrize(("family", "options"), FAMILIES)
def test_documents_that_join__are_counted(small, family, options):
    problem = growing(small[0], family, options)
    for state, progress in first(problem, 9):
        assert progress.every == (4 if state.iteration <= 3 else 2 if state.iteration <= 5 else 1)
        sample = problem.sample(state.iteration)
        shards = [open_shard(shard.value) for shard in problem.shards]
        parts = shards if sample is None else [sample.of(shard) for shard in shards]
        tokens = sum(part.tokens for part in parts)
        counted = arrays_of(state.global_state)["topic_moments"][0].sum()
        if not options.get("split_merge_moves"):
            assert math.isclose(counted, tokens, rel_tol=1e-5)
            assert progress.tokens == (tokens if state.iteration else 0.0)
        for part, swept in zip(parts, state.swept, strict=True):
            sizes = np.diff(arrays_of(swept.value.local)["document_lists"])
            assert np.array_equal(sizes > 0, part.lengths > 0)


@pytest.mark.parametrize(("family", "options"), mark_rest_long(FAMILIES, retained=(0, 4)))
def test_returning_to_a_checkpoint_of_any_stage__gives_the_same_bits(small, family, options, tmp_path):
    problem = growing(small[0], family, options)
    uninterrupted = first(problem, 8)[-1][0]
    for last in range(1, 8):
        checkpointer = RunCheckpointer(Run(tmp_path / str(last)), problem, every=1)
        first(problem, last, checkpointer)
        then = [state for state, _ in first(problem, 8, checkpointer)]
        assert [state.iteration for state in then] == list(range(last, 9))
        assert state_bits(then[-1]) == state_bits(uninterrupted)


def test_lost_work_of_any_stage__is_repeated_with_the_same_bits(small, tmp_path):
    problem = growing(small[0], "lda", {"topics": 3})
    uninterrupted = [state for state, _ in Fit(problem, Limits(iterations=8))][-1]
    checkpointer = RunCheckpointer(Run(tmp_path / "c"), problem, every=1)
    for every, used in ((3, checkpointer), (4, Checkpointer())):
        history = list(
            Fit(replace(problem, executor=LosingExecutor(problem.executor, every)), Limits(iterations=8), used)
        )
        assert state_bits(history[-1][0]) == state_bits(uninterrupted)


@pytest.mark.parametrize(("family", "options"), FAMILIES)
def test_bits__do_not_depend_on_where_local_states_are_stored(small, family, options, tmp_path, monkeypatch):
    monkeypatch.setattr("collapsium.workers.families.cvb.active_topics.CHUNK_RESPONSIBILITIES", 500)
    final_bits = []
    for scratch in (None, str(tmp_path / "scratch")):
        problem = growing(small[0], family, options, scratch=scratch)
        final_bits.append(state_bits(first(problem, 9)[-1][0]))
    assert final_bits[0] == final_bits[1]


def test_local_sweeps__conserve_counts(small):
    problem = growing(small[0], "lda", {"topics": 3})
    *_, (state, _) = Fit(replace(problem, local_sweeps=3), Limits(iterations=8))
    assert math.isclose(state.global_state.topic_moments[0].sum(), Corpus(small[0]).manifest.tokens, rel_tol=1e-6)


@pytest.mark.parametrize("family", mark_rest_long(["lda", "hdp"]))
def test_a_run_that_is_stopped_in_each_stage__is_resumed_to_the_same_bits_and_events(small, short, family, tmp_path):
    options = {"family": family, "topics": 3, "iterations": 8, "heldout": small[1], "seed": 5}
    uninterrupted = fit(small[0], tmp_path / "uninterrupted", scheduler="threads", workers=2, **options)
    start = functools.partial(fit, small[0], tmp_path / "run", scheduler="threads", workers=2, **options)
    stops = map(at_iteration, (2, 3, 4, 5, 6))
    for _ in interrupt_and_resume(tmp_path / "run", stops, start, scheduler="serial"):
        pass
    assert bits(Model(tmp_path / "run")) == bits(uninterrupted)
    events = [
        [{name: value for name, value in event.items() if name not in TIMES} for event in Run(run).events()]
        for run in (tmp_path / "run", tmp_path / "uninterrupted")
    ]
    assert events[0] == events[1]
    shares = [event.get("documents_share") for event in events[0] if event["event"] == "iteration"]
    assert shares == [0.25] * 3 + [0.5] * 2 + [None] * 3
    assert verify(tmp_path / "run").broken == []


def test_a_run_that_is_stopped_while_it_grows__is_valid(tmp_path):
    """All held-out tokens belong to the sample; other documents are not expected yet."""

    def sink(event):
        if event["event"] == "iteration" and event["iteration"] == 5:
            raise KeyboardInterrupt

    simulate(tmp_path / "all", family="lda", documents=600, words=200, tokens=70, topics=10, seed=1)
    options = {"family": "lda", "topics": 10, "iterations": 60, "init": "random", "grow": "always"}
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "all", tmp_path / "run", sinks=[sink], scheduler="serial", **options)
    assert next(e for e in Run(tmp_path / "run").events() if e["event"] == "iteration")["documents_share"] < 1
    assert verify(tmp_path / "run").broken == []


def test_scores_of_a_sample__depend_on_its_documents_only(small, short, tmp_path):
    """With one topic, the score depends only on the word frequencies in the sample."""
    fit(small[0], tmp_path / "run", family="lda", topics=1, iterations=8, heldout=small[1], seed=5)
    scores = scores_of(tmp_path / "run")
    assert len(set(scores[:3])) == 1
    assert len({scores[0], scores[3], scores[5]}) == 3
    assert len(set(scores[5:])) == 1


@pytest.mark.long
def test_growing__predicts_better_with_the_same_work(tmp_path):
    """The corpus is simulated with 20 topics; an eighth of it has 200 documents and 4000 tokens per topic."""
    simulate(tmp_path / "all", family="lda", documents=32_000, words=2000, tokens=20, topics=20, seed=1)
    split(tmp_path / "all", tmp_path / "train", tmp_path / "heldout")
    tokens, curves = Corpus(tmp_path / "train").manifest.tokens, {}
    for grow, iterations in (("always", 70), ("never", 16)):
        fit(
            tmp_path / "train",
            tmp_path / grow,
            family="lda",
            topics=20,
            iterations=iterations,
            heldout=tmp_path / "heldout",
            init="random",
            grow=grow,
        )
        swept = [event for event in Run(tmp_path / grow).events() if event["event"] == "iteration"]
        work = np.cumsum([event["tokens"] for event in swept]) / tokens
        curves[grow] = work, np.array([event["score"] for event in swept])
    for budget in (9, 12, 16):
        growing, all_documents = (score[work <= budget + 1e-9][-1] for work, score in curves.values())
        assert growing > all_documents


def test_the_option__switches_growing_off(small, short, tmp_path):
    model = fit(small[0], tmp_path / "run", family="lda", topics=3, iterations=8, grow="never")
    assert "growth" not in Run(tmp_path / "run").record()
    assert not any("documents_share" in event for event in Run(tmp_path / "run").events())
    assert model.record.iterations == 8


def test_members__grow_on_different_samples(small, short, tmp_path):
    ensemble = {"family": "lda", "topics": 3, "iterations": 8, "restarts": 2, "seed": 5}
    uninterrupted = fit(small[0], tmp_path / "uninterrupted", **ensemble)

    def sink(event):
        if event["event"] == "iteration" and event["iteration"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(small[0], tmp_path / "run", sinks=[sink], checkpoint_every=1, **ensemble)
    assert bits(resumed(tmp_path / "run")) == bits(uninterrupted)
    members = [run for _, run in restarts_in(Run(tmp_path / "run"))]
    assert [run.record()["growth"] for run in members] == [[[0, 4], [4, 2], [6, 1]]] * 2
    shard = Corpus(small[0]).references[0].load()
    seeds = [run.record()["seed"] for run in members]
    samples = [Growth.of(SHORT).sample(Stream(seed), 1).of(shard).lengths.tolist() for seed in seeds]
    assert samples[0] != samples[1]


def test_a_fit_in_memory__grows_like_a_run(small, short, tmp_path):
    in_memory = CollapsedLDA(3, max_iter=8, random_state=5).fit(small[0])
    as_run = CollapsedLDA(3, max_iter=8, random_state=5, run=tmp_path / "run").fit(small[0])
    assert Run(tmp_path / "run").record()["growth"] == [[0, 4], [4, 2], [6, 1]]
    np.testing.assert_array_equal(in_memory.components_, as_run.components_)


def test_a_run__continues_with_its_recorded_stages(small, short, tmp_path, monkeypatch):
    options = {"family": "lda", "topics": 3, "seed": 5}
    fit(small[0], tmp_path / "run", iterations=8, **options)
    monkeypatch.setattr(growth, "PLANS", PLANS)
    longer = resume(tmp_path / "run", iterations=10)
    monkeypatch.setattr(growth, "PLANS", (SHORT,))
    at_once = fit(small[0], tmp_path / "other", iterations=10, **options)
    assert bits(longer) == bits(at_once)
    with pytest.raises(OptionError, match="another would change the run's results"):
        resume(tmp_path / "run", grow="never")


def test_a_run__does_not_end_before_all_documents_have_joined(small, short, tmp_path):
    def sink(event):
        if event["event"] == "iteration" and event["iteration"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(small[0], tmp_path / "run", family="lda", topics=3, iterations=8, sinks=[sink])
    with pytest.raises(OptionError, match="expected at least 6, found 4"):
        resume(tmp_path / "run", iterations=4)
    assert resume(tmp_path / "run", iterations=8).record.iterations == 8


def test_a_tolerance__does_not_end_a_run_before_all_documents_have_joined(small, short, tmp_path):
    fit(small[0], tmp_path / "run", family="lda", topics=1, iterations=20, tolerance=0.5)
    end = Run(tmp_path / "run").events()[-1]
    assert (end["iteration"], end["reason"]) == (7, "tolerance")


def inputs(**changes):
    """Return the inputs of a plan for 100,000 documents, 10 million tokens, 100 topics and 200 iterations."""
    known = {"family": "lda", "config": make_options("lda", {"topics": 100}), "documents": 100_000, "tokens": 10**7}
    known |= {"stochastic": False, "warm": False, "complete_by": 200}
    known |= changes
    if "options" in known:
        known["config"] = make_options(known["family"], known.pop("options"))
    return known


def test_large_corpora__begin_with_an_eighth_of_the_documents():
    assert [every for _, every in planned_growth(grow="auto", **inputs()).stages] == [8, 4, 2, 1]


def test_few_iterations__have_fewer_stages():
    assert [every for _, every in planned_growth(grow="auto", **inputs(complete_by=65)).stages] == [4, 2, 1]
    assert planned_growth(grow="auto", **inputs(complete_by=59)) is None


def test_the_first_sample__has_enough_documents_and_tokens_per_topic():
    documents, tokens = 5 * 100 * MIN_DOCUMENTS, 4 * 100 * MIN_TOKENS
    assert [every for _, every in planned_growth(grow="auto", **inputs(documents=documents)).stages] == [4, 2, 1]
    assert [every for _, every in planned_growth(grow="auto", **inputs(tokens=tokens)).stages] == [4, 2, 1]
    assert planned_growth(grow="auto", **inputs(tokens=tokens - 1)) is None
    assert [every for _, every in planned_growth(grow="always", **inputs(tokens=tokens - 1)).stages] == [4, 2, 1]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"options": {"topics": 5, "responsibilities": "dense"}}, "sweeps all documents under these options"),
        ({"family": "gibbs-lda", "options": {"topics": 5}}, "family 'gibbs-lda' sweeps all documents"),
        ({"stochastic": True}, "sweeps minibatches"),
        ({"warm": True}, "a warm start has topics already"),
        ({"complete_by": 59}, "expected at least 60 iterations before the first saved state, found 59"),
    ],
)
def test_other_fits__sweep_all_documents(changes, text):
    assert planned_growth(grow="auto", **inputs(**changes)) is None
    assert planned_growth(grow="never", **inputs(**changes)) is None
    with pytest.raises(OptionError, match=text):
        planned_growth(grow="always", **inputs(**changes))


def test_stages__follow_from_the_numbers_of_sweeps():
    stages = Growth.of(SHORT)
    assert stages.stages == ((0, 4), (4, 2), (6, 1))
    assert [stages.every(iteration) for iteration in range(8)] == [4, 4, 4, 4, 2, 2, 1, 1]
    assert Growth.from_record(stages.record()) == stages
    assert Growth.from_record(None) is None


@pytest.mark.parametrize("record", [3, [], [[0]], [[0, 2]], [[1, 1]], [[0, 2], [0, 1]], [[0, 1], [3, 2]], [[0, "1"]]])
def test_invalid_records_of_stages__are_refused(small, short, tmp_path, record):
    fit(small[0], tmp_path / "run", family="lda", topics=2, iterations=8)
    target = Run(tmp_path / "run")
    target.rewrite({**target.record(), "growth": record})
    with pytest.raises(DamagedError, match="growth"):
        resume(tmp_path / "run")
