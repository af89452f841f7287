"""Fits that are initialised from another run."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from collapsium.pipeline import Corpus, Model, fit, resume, split, topics, verify
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.engine.setup.warm_start import WarmSource, warm_references
from collapsium.storage.errors import AbsentError, MismatchError, OptionError
from collapsium.storage.runs.run import Run
from collapsium.workers.families.cvb.active_topics import max_active_for
from collapsium.workers.families.cvb.states import ActiveDocuments
from tests.conftest import mark_rest_long, simulated_rows, write_corpus, write_halves
from tests.counting import document_counts, recount, topic_tokens, word_counts
from tests.fits import arrays_of, bits, problem_of, scores_of, state_bits
from tests.pipeline.engine.model_io.test_checkpoints import events_of, stop_at

WAYS = [
    ("lda", {"topics": 3, "beta": 3.0}),
    ("lda", {"topics": 5, "beta": 3.0, "responsibilities": "dense"}),
    ("lda", {"topics": 3, "beta": 3.0, "order": 2}),
    ("lda", {"topics": 140, "beta": 3.0, "alpha": 0.01}),
    ("lda", {"topics": 3, "beta": 3.0, "most_active": 2, "learn": ("asymmetric-alpha", "beta")}),
    ("hdp", {"topics": 6, "beta": 3.0}),
    ("hdp", {"topics": 6, "beta": 3.0, "responsibilities": "dense"}),
]
NAMES = ["-".join([family, *(f"{key}={value}" for key, value in options.items())]) for family, options in WAYS]
SOURCES = {
    "lda": {"family": "lda", "topics": 3, "beta": 3.0, "iterations": 60},
    "hdp": {"family": "hdp", "topics": 3, "beta": 3.0, "iterations": 60},
}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A corpus in shards whose topics can be recovered, and held-out tokens of its documents."""
    place = tmp_path_factory.mktemp("simulated")
    rows = simulated_rows(5, documents=200, words=30, topics=3, tokens=60)
    return write_halves(place, rows, 30)


@pytest.fixture(scope="module")
def sources(simulated, tmp_path_factory):
    """A run of each family."""
    place = tmp_path_factory.mktemp("sources")
    for name, options in SOURCES.items():
        fit(simulated[0], place / name, heldout=simulated[1], scheduler="serial", **options)
    return {name: place / name for name in SOURCES}


@pytest.mark.parametrize("source", mark_rest_long(["lda", "hdp"]))
@pytest.mark.parametrize(("family", "options"), WAYS, ids=NAMES)
def test_a_warm_start__begins_near_the_score_of_its_source(simulated, sources, tmp_path, source, family, options):
    settings = {"family": family, "heldout": simulated[1], "scheduler": "serial", "iterations": 20, **options}
    fit(simulated[0], tmp_path / "warm", warm=sources[source], seed=9, **settings)
    fit(simulated[0], tmp_path / "cold", seed=9, **{**settings, "iterations": 1, "init": "random"})
    ended, warm = scores_of(sources[source])[-1], scores_of(tmp_path / "warm")
    slack = 0.15 if options.get("order") == 2 else 0.05  # the second order gives documents more topics
    assert warm[0] > ended - slack
    assert min(warm) > warm[0] - 0.03  # the source's score is not lost in later iterations
    assert warm[0] > scores_of(tmp_path / "cold")[0] + 0.1
    assert verify(tmp_path / "warm").broken == []


@pytest.mark.parametrize(("family", "options"), WAYS, ids=NAMES)
def test_counts_of_a_warm_start__equal_a_recount(simulated, sources, family, options):
    problem = problem_of(simulated[0], family, options)
    known = warm_references(WarmSource.of(sources["lda"]), Corpus(simulated[0]), options["topics"])
    assert [reference.number for reference in known] == list(range(len(known)))
    for state, _ in Fit(replace(problem, warm=known), Limits(iterations=3)):
        rows = state.blocks[0].value.rows
        held = word_counts(rows)
        total, background = np.zeros(held.shape), np.zeros(len(held))
        for shard, swept in zip(problem.shards, state.swept, strict=True):
            local = swept.value.local
            by_word, rest, documents = recount(shard.value, local)
            total[np.ix_(shard.value.words, np.arange(by_word.shape[1]))] += by_word
            background[shard.value.words] += rest
            kept = document_counts(local, held.shape[1])[:, : documents.shape[1]]
            np.testing.assert_allclose(kept, documents, rtol=1e-5, atol=1e-5)
            if isinstance(local, ActiveDocuments):
                sizes = np.diff(local.document_lists)
                limits = np.minimum(
                    max_active_for(np.diff(shard.value.offsets), options["topics"], options.get("most_active", 0)),
                    options["topics"],
                )
                assert (sizes <= limits).all()
                assert (sizes[shard.value.lengths > 0] > 0).all()
        np.testing.assert_allclose(held, total, rtol=1e-5, atol=1e-5)
        if rows.word_rest is not None:
            np.testing.assert_allclose(rows.word_rest, background, rtol=1e-6, atol=1e-9)
        assert topic_tokens(state.global_state).sum() == pytest.approx(Corpus(simulated[0]).manifest.tokens)


@pytest.mark.parametrize("kind", ["active", "dense"])
def test_topics_beyond_the_source__begin_empty(simulated, sources, kind):
    problem = problem_of(simulated[0], "lda", {"topics": 8, "responsibilities": kind})
    known = warm_references(WarmSource.of(sources["lda"]), Corpus(simulated[0]), 8)
    state, _ = next(iter(Fit(replace(problem, warm=known), Limits(iterations=1))))
    held = word_counts(state.blocks[0].value.rows)
    assert (held[:, :3].sum(axis=0) > 100.0).all()
    assert (held[:, 3:] == 0.0).all()


@pytest.mark.parametrize("family", ["lda", "hdp", "vb-lda", "gibbs-lda"])
def test_a_source_with_more_topics__gives_the_largest(simulated, sources, tmp_path, family):
    events = []
    options = {"family": family, "topics": 2, "beta": 3.0, "iterations": 1, "warm": sources["hdp"]}
    model = fit(simulated[0], tmp_path / "run", sinks=[events.append], **options)
    assert arrays_of(model.rows(0))["word_topic"].sum() == pytest.approx(Corpus(simulated[0]).manifest.tokens, rel=1e-4)
    source = topics(sources["hdp"])
    (text,) = [event["text"] for event in events if event["event"] == "notice"]
    share = sum(topic.share for topic in source[:2])
    assert f"the 2 largest of 3 topics of {sources['hdp']}/model ({share:.1%} of its tokens)" in text
    (known,) = {
        reference.topics for reference in warm_references(WarmSource.of(sources["hdp"]), Corpus(simulated[0]), 2)
    }
    assert sorted(known) == sorted(topic.id for topic in source[:2])


def test_the_hdp__does_not_hold_alpha_if_topics_are_separated_already(simulated, sources, tmp_path):
    options = {"family": "hdp", "topics": 5, "iterations": 2, "learn": ("alpha", "gamma", "pi")}
    warm = fit(simulated[0], tmp_path / "warm", warm=sources["hdp"], **options)
    cold = fit(simulated[0], tmp_path / "cold", init="random", **options)
    assert warm.global_state.alpha != 1.0
    assert cold.global_state.alpha == 1.0
    assert fit(simulated[0], tmp_path / "held", warm=sources["hdp"], hold=5, **options).global_state.alpha == 1.0


# Executors and resuming ------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("where", [("threads", 1), ("threads", 3), ("processes", 2)], ids=str)
@pytest.mark.parametrize("known", ["seen", "unseen"])
@pytest.mark.xdist_group("clusters")
def test_bits_of_a_warm_start__do_not_depend_on_the_executor(simulated, sources, tmp_path, where, known, clusters):
    kind, workers = where
    corpus = simulated[0] if known == "seen" else simulated[1]  # the source lacks these shards
    options = {"family": "hdp", "topics": 4, "iterations": 3, "warm": sources["lda"], "beta": 3.0}
    whole = fit(corpus, tmp_path / "serial", scheduler="serial", **options)
    scheduler = clusters(workers) if kind == "processes" else kind
    found = fit(
        corpus, tmp_path / "run", scheduler=scheduler, workers=None if kind == "processes" else workers, **options
    )
    shards = len(whole.record.shards)
    assert bits(found, shards) == bits(whole, shards)


def test_a_warm_start_with_scratch_files__has_the_same_bits(simulated, sources, tmp_path):
    found = []
    for scratch in (None, str(tmp_path / "scratch")):
        problem = problem_of(simulated[0], "lda", {"topics": 4}, scratch=scratch)
        known = warm_references(WarmSource.of(sources["lda"]), Corpus(simulated[0]), 4)
        states = list(Fit(replace(problem, warm=known), Limits(iterations=3)))
        found.append(state_bits(states[-1][0]))
    assert found[0] == found[1]


@pytest.mark.parametrize("iteration", [0, 2])
def test_a_stopped_warm_fit__continues_to_the_same_bits_and_events(simulated, sources, tmp_path, iteration):
    options = {"family": "hdp", "topics": 4, "iterations": 4, "heldout": simulated[1]}
    source = shutil.copytree(sources["lda"], tmp_path / "source")
    whole = fit(simulated[0], tmp_path / "whole", warm=source, **options)

    def sink(event):
        if event["event"] == ("iteration" if iteration else "started") and event["iteration"] == iteration:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(simulated[0], tmp_path / "run", warm=source, sinks=[sink], **options)
    source.rename(tmp_path / "moved")
    if not iteration:  # without a checkpoint, the fit must start again
        with pytest.raises(AbsentError, match="the run begins from it"):
            resume(tmp_path / "run")
        with pytest.raises(MismatchError, match="it is not the model that the run begins from"):
            resume(tmp_path / "run", warm=sources["hdp"])
        found = resume(tmp_path / "run", warm=tmp_path / "moved")
    else:
        found = resume(tmp_path / "run")
    assert bits(found, 3) == bits(whole, 3)
    assert events_of(tmp_path / "run") == events_of(tmp_path / "whole")
    assert verify(tmp_path / "run").broken == []


def test_another_source__changes_the_fingerprint(simulated, sources, tmp_path):
    options = {"family": "lda", "topics": 3, "iterations": 2, "warm": sources["lda"]}
    fit(simulated[0], tmp_path / "run", **options)
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record["warm"]["url"] == str(sources["lda"] / "model")
    assert record["warm"]["digest"] == json.loads((sources["lda"] / "model/model.json").read_text())["sha256"]
    run_ = Run(tmp_path / "run")
    run_.rewrite({**run_.record(), "warm": WarmSource.of(sources["hdp"]).record()})
    with pytest.raises(MismatchError, match="not of the model that run.json describes"):
        resume(tmp_path / "run", iterations=3)


# Sources ---------------------------------------------------------------------------------------------------------------


def test_unseen_documents__start_from_folded_in_proportions(simulated, sources, tmp_path):
    split(simulated[1], tmp_path / "train", tmp_path / "held", fraction=0.3)
    options = {"family": "lda", "topics": 3, "beta": 3.0, "iterations": 1, "heldout": tmp_path / "held"}
    assert all(
        reference.number is None
        for reference in warm_references(WarmSource.of(sources["lda"]), Corpus(simulated[1]), 3)
    )
    fit(tmp_path / "train", tmp_path / "warm", warm=sources["lda"], **options)
    fit(tmp_path / "train", tmp_path / "cold", init="random", **options)
    assert scores_of(tmp_path / "warm")[0] > scores_of(tmp_path / "cold")[0] + 0.1


@pytest.mark.parametrize("schedule", ["batch", "stochastic"])
def test_a_stopped_run__is_a_source_by_its_checkpoint(simulated, tmp_path, schedule):
    minibatches = {"batch_shards": 1} if schedule == "stochastic" else {}
    options = {"family": "lda", "topics": 3, "beta": 3.0, "schedule": schedule, **minibatches}
    with pytest.raises(KeyboardInterrupt):
        fit(simulated[0], tmp_path / "source", sinks=[stop_at(3)], iterations=4, **options)
    known = warm_references(WarmSource.of(tmp_path / "source"), Corpus(simulated[0]), 3)
    assert all((reference.number is None) == (schedule == "stochastic") for reference in known)
    model = fit(simulated[0], tmp_path / "run", warm=tmp_path / "source", family="lda", topics=3, iterations=2)
    assert model.record.iterations == 2


def test_single_words_and_empty_documents__are_supported(tmp_path):
    corpus = write_corpus(tmp_path / "one", [{}, {0: 2}, {}], 1)
    for family in ("lda", "hdp"):
        fit(corpus, tmp_path / family, family=family, topics=1, iterations=1)
        model = fit(corpus, tmp_path / f"{family}-warm", family="lda", topics=2, iterations=2, warm=tmp_path / family)
        assert arrays_of(model.rows(0))["word_topic"].sum() == pytest.approx(2.0, rel=1e-4)


def test_sources_that_do_not_fit__are_refused_before_anything_runs(simulated, sources, tmp_path):
    smaller = write_corpus(tmp_path / "other", [{0: 3}], 29)
    options = {"family": "lda", "topics": 3, "iterations": 2, "warm": sources["lda"]}
    for corpus, more, kind, text in (
        (simulated[0], {"schedule": "stochastic"}, OptionError, "warm: the stochastic schedule"),
        (smaller, {}, MismatchError, "its vocabulary"),
        (simulated[0], {"warm": tmp_path / "nothing"}, AbsentError, "no such run"),
    ):
        with pytest.raises(kind, match=text):
            fit(corpus, tmp_path / "run", **{**options, **more})
        assert not (tmp_path / "run").exists()
    fit(simulated[0], tmp_path / "cold", family="lda", topics=3, iterations=1)
    with pytest.raises(MismatchError, match="does not begin from another"):
        resume(tmp_path / "cold", warm=sources["lda"], iterations=2)
    assert Model(tmp_path / "cold").record.iterations == 1
