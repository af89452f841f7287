"""Processors that differ: runs and models record them, and fits report or refuse them."""

import json

import pytest

from collapsium.pipeline import Model, fit, resume
from collapsium.pipeline.engine import processors as module
from collapsium.pipeline.engine.processors import differences
from collapsium.storage.errors import DamagedError, MismatchError
from collapsium.storage.runs.model import Processor
from collapsium.storage.runs.run import Run
from collapsium.workers.tasks import processor

HERE = processor(False)
OTHER = HERE.model_copy(update={"kernels": "znver1", "features": "+avx2,+fma,+sse4a"})


@pytest.fixture
def moved(monkeypatch):
    """A function that makes this process appear to run on another processor."""
    return lambda name: monkeypatch.setattr(module, "processor", lambda blas: name)


def notices(events):
    return [event["text"] for event in events if event["event"] == "notice"]


def fitted(corpus, run, **options):
    return fit(corpus, run, family="lda", topics=3, scheduler="serial", **options)


def test_runs_and_models__name_the_processors(small, tmp_path):
    events = []
    model = fitted(small[0], tmp_path / "run", iterations=2, sinks=[events.append])
    assert json.loads((tmp_path / "run" / "run.json").read_text())["processors"] == [HERE.model_dump()]
    assert model.record.processors == (HERE,)
    assert notices(events) == []


def test_resume__gives_notice_of_another_processor_and_names_both(small, tmp_path, moved):
    fitted(small[0], tmp_path / "run", iterations=2, checkpoint_every=1)
    moved(OTHER)
    events = []
    resume(tmp_path / "run", iterations=3, scheduler="serial", sinks=[events.append])
    (text,) = notices(events)
    assert f"{HERE.kernels} and znver1" in text
    assert set(Model(tmp_path / "run").record.processors) == {HERE, OTHER}
    assert len(Run(tmp_path / "run").record()["processors"]) == 2


def test_strict_bits__refuses_another_processor_and_leaves_the_run_as_it_was(small, tmp_path, moved):
    fitted(small[0], tmp_path / "run", iterations=2, checkpoint_every=1)
    before = Run(tmp_path / "run").record()["processors"]
    moved(OTHER)
    with pytest.raises(MismatchError, match="znver1.*strict_bits"):
        resume(tmp_path / "run", iterations=3, scheduler="serial", strict_bits=True)
    assert Run(tmp_path / "run").record()["processors"] == before
    assert Model(tmp_path / "run").record.iterations == 2


@pytest.mark.parametrize("package", ["numba", "scipy"])
def test_strict_bits__refuses_other_versions(small, tmp_path, package):
    fitted(small[0], tmp_path / "run", iterations=2, checkpoint_every=1)
    run = Run(tmp_path / "run")
    record = run.record()
    run.rewrite({**record, "versions": {**record["versions"], package: "0.1"}})
    with pytest.raises(MismatchError, match=f"{package} .* instead of 0.1"):
        resume(tmp_path / "run", iterations=3, scheduler="serial", strict_bits=True)


def test_strict_bits__accepts_runs_that_do_not_record_scipy(small, tmp_path):
    fitted(small[0], tmp_path / "run", iterations=2, checkpoint_every=1)
    run = Run(tmp_path / "run")
    record = run.record()
    run.rewrite({**record, "versions": {name: text for name, text in record["versions"].items() if name != "scipy"}})
    events = []
    resume(tmp_path / "run", iterations=3, scheduler="serial", strict_bits=True, sinks=[events.append])
    assert notices(events) == []


def test_strict_bits__accepts_the_same_machine_and_versions(small, tmp_path):
    fitted(small[0], tmp_path / "run", iterations=2, checkpoint_every=1, strict_bits=True)
    events = []
    resume(tmp_path / "run", iterations=3, scheduler="serial", strict_bits=True, sinks=[events.append])
    assert notices(events) == []


class Mixed:
    """An executor whose workers have two kinds of processors."""

    def everywhere(self, function, *args):
        return [function(*args), OTHER]


def test_mixed_workers__are_reported_once_or_refused():
    lenient = module.Processors("lda")
    assert "znver1" in lenient.look(Mixed())
    assert lenient.look(Mixed()) is None
    with pytest.raises(MismatchError, match="znver1"):
        module.Processors("lda", strict=True).look(Mixed())


def test_linear_algebra__is_recorded_for_families_that_use_it():
    assert processor(True).blas
    assert processor(False).blas == ""
    assert "BLAS" in differences([processor(True), processor(True).model_copy(update={"blas": "openblas Other"})])


@pytest.mark.parametrize("found", ["x86", [1], [{"kernels": "x"}], [{**HERE.model_dump(), "more": 1}]])
def test_resume__refuses_malformed_processors(small, tmp_path, found):
    fitted(small[0], tmp_path / "run", iterations=1)
    run = Run(tmp_path / "run")
    run.rewrite({**run.record(), "processors": found})
    with pytest.raises(DamagedError, match="run.json.*processors"):
        resume(tmp_path / "run", iterations=2, scheduler="serial")


def test_differences__name_instruction_sets_only_if_everything_else_is_the_same():
    assert "sse4a" not in differences([HERE, OTHER])
    assert "+sse4a" in differences([OTHER, OTHER.model_copy(update={"features": "+avx2"})])
    assert differences([HERE, Processor(**HERE.model_dump())]) == ""
