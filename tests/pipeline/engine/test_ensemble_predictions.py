"""Predictions of an ensemble, the stability of its topics, and members that are missing or damaged."""

import math
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from collapsium.pipeline import Model, evaluate, fit, infer, topics, verify
from collapsium.pipeline.models.topics import distances, stability
from collapsium.storage.errors import AbsentError, OptionError
from collapsium.storage.runs.run import Run
from tests.fits import scores_of


def mean_prediction(places, heldout, seed=0):
    """Return the score of the mean of the models' probabilities."""
    from collapsium.pipeline.engine.setup.request import align
    from collapsium.storage.corpus.corpus import Corpus
    from collapsium.workers import tasks
    from collapsium.workers.arrays.delta import Delta

    models = [Model(place) for place in places]
    total = tokens = 0.0
    for reference in align(models[0].record.shards, Corpus(heldout), "x"):
        held, chances = reference.load(), []
        for model in models:
            blocks = [tasks.Block(0, 30, model.rows(0), Delta())]
            states = (
                model.local_state(reference.number),
                tasks.gather(blocks, held.words, complete=True),
                model.global_state,
            )
            chances.append(model.family.predict(held, *states)["probability"])
        total += (held.counts * np.log(np.mean(chances, axis=0))).sum()
        tokens += held.counts.sum()
    return total / tokens


@pytest.mark.parametrize("scheduler", ["serial", "threads"])
def test_evaluate__scores_the_mean_of_the_predictions(small, single, ensemble, scheduler):
    found = evaluate(ensemble, heldout=small[1], scheduler=scheduler)
    assert found.score == pytest.approx(mean_prediction([single / str(n) for n in range(3)], small[1]), rel=1e-12)
    assert [member.member for member in found.members] == ["000", "001", "002"]
    assert [member.score for member in found.members] == pytest.approx(
        [scores_of(single / str(n))[-1] for n in range(3)]
    )
    assert found.score >= min(member.score for member in found.members)
    assert found.score > np.mean([member.score for member in found.members])  # by Jensen's inequality
    unseen = evaluate(ensemble, unseen=small[1], scheduler=scheduler, seed=3)
    alone = [evaluate(single / str(n), unseen=small[1], scheduler="serial", seed=3).score for n in range(3)]
    assert [member.score for member in unseen.members] == pytest.approx(alone, rel=1e-12)
    assert unseen.score > np.mean(alone)


@pytest.mark.long
@pytest.mark.xdist_group("clusters")
def test_evaluate__has_the_same_bits_everywhere(small, ensemble, clusters):
    for options in ({"heldout": small[1]}, {"unseen": small[1]}):
        whole = evaluate(ensemble, scheduler="serial", **options)
        assert evaluate(ensemble, workers=3, **options) == whole
        assert evaluate(ensemble, scheduler=clusters(2), **options) == whole


def test_a_single_run__is_scored_without_members(small, single):
    found = evaluate(single / "0", heldout=small[1])
    assert found.members == ()
    assert found.score == scores_of(single / "0")[-1]


def test_an_unfinished_ensemble__reports_that_it_is_unfinished(small, ensemble, tmp_path):
    run = shutil.copytree(ensemble, tmp_path / "run")
    shutil.rmtree(run / "members/001/model")
    for ask in (lambda: evaluate(run, heldout=small[1]), lambda: topics(run)):
        with pytest.raises(AbsentError, match="2 of 3 members have finished.*members/001"):
            ask()
    assert evaluate(run / "members/000", heldout=small[1]).score == scores_of(run / "members/000")[-1]


def test_infer__can_return_the_proportions_of_one_member(small, single, ensemble, tmp_path):
    infer(ensemble, small[0], tmp_path / "first", member=0)
    infer(ensemble, small[0], tmp_path / "last", member=2)
    for name, number in (("first", 0), ("last", 2)):
        infer(single / str(number), small[0], tmp_path / f"{name}-single")
        assert pq.read_table(tmp_path / name).equals(pq.read_table(tmp_path / f"{name}-single"))
    with pytest.raises(OptionError, match="`member` 3: .* has 0, 1, 2"):
        infer(ensemble, small[0], tmp_path / "none", member=3)


def test_stability_of_topics__is_their_similarity_to_matched_topics(ensemble, single):
    models = [Model(single / str(number)) for number in range(3)]
    phi = []
    for model in models:
        smoothed = np.maximum(model.rows(0).word_topic.astype(float), 0.0) + 3.0 / 30
        phi.append(smoothed / (3.0 + model.global_state.topic_moments[0]))
    mean = Model(ensemble).topic_word.T
    apart = [
        np.sqrt(0.5 * ((np.sqrt(mean)[:, :, None] - np.sqrt(member)[:, None, :]) ** 2).sum(axis=0)) for member in phi
    ]
    for number, model in enumerate(models):
        np.testing.assert_allclose(distances(Model(ensemble), model), apart[number], atol=1e-3)
    import itertools

    best = [
        min(itertools.permutations(range(3)), key=lambda p: sum(distances[k, p[k]] for k in range(3)))
        for distances in apart
    ]
    for topic in topics(ensemble):
        partner_distances = [
            distances[topic.id, matches[topic.id]] for distances, matches in zip(apart, best, strict=True)
        ]
        assert topic.stability == pytest.approx(1.0 - np.mean(partner_distances), abs=1e-3)
        assert topic.support == sum(far <= 0.6 for far in partner_distances)
    assert all(topic.stability is None for topic in topics(ensemble / "members/001"))


def test_topics_of_a_model_and_itself__have_stability_1(single):
    model = Model(single / "0")
    same = stability(model, [model, model])
    assert {topic: stability.value for topic, stability in same.items()} == pytest.approx(
        dict.fromkeys(range(3), 1.0), abs=1e-3
    )
    assert [stability.support for stability in same.values()] == [2, 2, 2]
    assert stability(model, []) == {}


def test_topics_without_tokens__have_no_stability(small, tmp_path):
    """If one fit has ten topics and the other fewer with tokens, some topic has no match."""
    from collapsium.pipeline.models.topics import occupied

    run = tmp_path / "run"
    fit(small[0], run, family="hdp", topics=40, iterations=60, restarts=2, beta=3.0, hold=0)
    reference = Model(run / "members/000")
    ids = occupied(reference)
    tokens = reference.global_state.topic_moments[0]
    assert set(ids) == set(np.flatnonzero(tokens >= 0.5))
    assert 0 < ids.size < 40
    listed, ids = topics(run), occupied(Model(run))
    assert {topic.id for topic in listed if topic.stability is not None} == set(ids.tolist())
    assert all(math.isfinite(topic.stability) for topic in listed if topic.stability is not None)


def test_a_damaged_member__is_found(ensemble, tmp_path):
    run = shutil.copytree(ensemble, tmp_path / "run")
    Run(run / "members/002").rewrite({**Run(run / "members/002").record(), "seed": 1})
    (run / "members/000/run.json").write_bytes(b"{")
    chunk = next(
        path for path in (run / "members/001/model/rows").rglob("*") if path.is_file() and path.name != "digests.json"
    )
    chunk.write_bytes(b"x" + chunk.read_bytes()[1:])
    broken = verify(run).broken
    assert any("it is not member 2 of the ensemble" in text for text in broken)
    assert any("members/001/model/rows" in text for text in broken)
    assert any("members/000/run.json" in text for text in broken)
