"""Samples of one fit: models whose predictions are averaged."""

import shutil

import pytest

from collapsium.pipeline import Model, evaluate, fit, infer, info, resume, topics, verify
from collapsium.storage.errors import AbsentError, DamagedError, OptionError
from collapsium.storage.runs.members import leaves
from tests.fits import SUMMARY, bits, resumed
from tests.pipeline.engine.model_io.test_checkpoints import stop_at
from tests.pipeline.engine.test_ensemble_predictions import mean_prediction

OPTIONS = {"family": "lda", "topics": 3, "beta": 3.0, "iterations": 6}
SAMPLED = {**OPTIONS, "iterations": 8, "samples": 3, "sample_every": 2}


@pytest.fixture(scope="module", params=["batch", "stochastic"])
def sampled(request, five_shards, tmp_path_factory):
    """A run with three samples, and the options of its schedule."""
    place = tmp_path_factory.mktemp(request.param) / "run"
    minibatches = {"batch_shards": 1, "passes": 2} if request.param == "stochastic" else {}
    schedule = {"schedule": request.param, **minibatches}
    fit(five_shards[0], place, heldout=five_shards[1], **SAMPLED, **schedule)
    return place, schedule


def arrays(model):
    """Return the bits of a model without its summary of documents, which samples lack."""
    return [(name, value) for name, value in bits(model) if name != SUMMARY]


def test_samples__are_the_states_of_their_iterations(five_shards, sampled, tmp_path):
    run, schedule = sampled
    options = {**OPTIONS, **schedule}
    for number, iterations in enumerate((4, 6, 8)):
        fit(five_shards[0], tmp_path / str(iterations), **{**options, "iterations": iterations})
        found = Model(run / f"members/{number:03d}")
        assert found.record.iterations == iterations
        assert arrays(found) == arrays(Model(tmp_path / str(iterations)))
    assert arrays(Model(run / "model")) == arrays(Model(run / "members/002"))
    assert [member.record.iterations for member in Model(run).members] == [4, 6, 8]
    score = evaluate(run, heldout=five_shards[1]).score
    assert score == pytest.approx(mean_prediction([tmp_path / str(n) for n in (4, 6, 8)], five_shards[1]), rel=1e-12)
    assert verify(run).broken == []
    assert info(run)["samples"] == [4, 6, 8]
    assert all(0.0 <= topic.stability <= 1.0 for topic in topics(run) if topic.stability is not None)
    infer(run, five_shards[0], tmp_path / "first", member=0)
    assert [name for name, _ in leaves(run)] == ["000", "001", "002"]


@pytest.mark.long
@pytest.mark.parametrize("iteration", [1, 4, 5, 6, 7])
@pytest.mark.parametrize("every", [None, 3])
def test_a_stopped_run__ends_with_the_same_samples(five_shards, sampled, tmp_path, iteration, every):
    run, schedule = sampled
    options = {"heldout": five_shards[1], "checkpoint_every": every, **SAMPLED, **schedule}
    with pytest.raises(KeyboardInterrupt):
        fit(five_shards[0], tmp_path / "run", sinks=[stop_at(iteration)], **options)
    assert verify(tmp_path / "run").broken == []
    if iteration == 7:  # after a return to an earlier checkpoint, later samples are made again
        shutil.rmtree(tmp_path / "run/checkpoints/00000007")
        (tmp_path / "run/checkpoints/latest.json").unlink()
        if every is None:
            shutil.rmtree(tmp_path / "run/checkpoints")
    (tmp_path / "run/members").mkdir(exist_ok=True)
    (tmp_path / "run/members/.001.abcdef.part").mkdir()  # a process was killed while it wrote this sample
    resumed(tmp_path / "run")
    for name in ("members/000", "members/001", "members/002", "model"):
        assert bits(Model(tmp_path / "run" / name)) == bits(Model(run / name))
    assert sorted(path.name for path in (tmp_path / "run/members").iterdir()) == ["000", "001", "002", "mean"]
    assert (tmp_path / "run/members/mean/model.json").read_bytes() == (run / "members/mean/model.json").read_bytes()
    assert verify(tmp_path / "run").broken == []


def test_samples__are_counted_back_from_the_planned_end(five_shards, sampled, tmp_path):
    run, _ = sampled
    resume(run, iterations=8, samples=3)  # the same again
    for more, text in (
        ({"iterations": 10}, "the run's samples, after 4, 6, 8"),
        ({"samples": 2}, "samples: expected 3, found 2"),
        ({"sample_every": 1}, "sample_every: expected 2, found 1"),
    ):
        with pytest.raises(OptionError, match=text):
            resume(run, **more)
    for more, text in (
        ({"samples": 5}, "requires more than 8 iterations, found 8"),
        ({"sample_every": 0}, "3 requires `sample_every`"),
        ({"tolerance": 0.1}, "cannot be combined with `tolerance`"),
        ({"samples": -1}, "samples: expected"),
    ):
        with pytest.raises(OptionError, match=text):
            fit(five_shards[0], tmp_path / "other", **{**SAMPLED, **more})


def test_a_missing_sample__is_reported(five_shards, sampled, tmp_path):
    run = shutil.copytree(sampled[0], tmp_path / "run")
    shutil.rmtree(run / "members/001")
    assert any("members/001/model.json: the file is missing" in text for text in verify(run).broken)
    for read in (topics, info, lambda run: evaluate(run, heldout=five_shards[1])):
        with pytest.raises(AbsentError, match=r"members/001/model\.json: the sample is missing, so the samples of"):
            read(run)
    assert evaluate(run / "model", heldout=five_shards[1]).members == ()
    with pytest.raises(DamagedError, match="the sample of iteration 6 is missing"):
        resume(run)


def test_restarts_with_samples__are_all_averaged(five_shards, tmp_path):
    fit(five_shards[0], tmp_path / "run", heldout=five_shards[1], restarts=2, **SAMPLED)
    places = [tmp_path / f"run/members/00{m}/members/00{s}" for m in range(2) for s in range(3)]
    found = evaluate(tmp_path / "run", heldout=five_shards[1])
    assert [member.member for member in found.members] == [f"00{m}/00{s}" for m in range(2) for s in range(3)]
    assert found.score == pytest.approx(mean_prediction(places, five_shards[1]), rel=1e-12)
    assert verify(tmp_path / "run").broken == []
    assert any(topic.stability is not None for topic in topics(tmp_path / "run"))
