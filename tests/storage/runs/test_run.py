from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from collapsium.storage.errors import AbsentError, DamagedError, NotFiniteError, OccupiedError, OptionError
from collapsium.storage.io.arrays import read_arrays, write_arrays
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump
from collapsium.storage.runs.checkpoint import CheckpointRecord, Checkpoints
from collapsium.storage.runs.model import StoredModel
from collapsium.storage.runs.run import Run
from tests.records import RUN

ARRAYS = {
    "number": np.array(3.5),
    "flag": np.array(True),
    "empty": np.zeros((0, 4)),
    "rows": np.arange(12, dtype=np.float32).reshape(3, 4),
    "turned": np.arange(6).reshape(2, 3).T,
}


@pytest.mark.parametrize("place", ["disk", "memory"])
@pytest.mark.parametrize("compress", [True, False])
def test_arrays__are_read_as_they_were_written(tmp_path, place, compress):
    folder = Folder(tmp_path / "a" if place == "disk" else f"memory://arrays/{compress}")
    for _ in range(2):  # the second write replaces the first
        write_arrays(folder, ARRAYS, compress=compress)
    found = read_arrays(folder)
    assert set(found) == set(ARRAYS)
    for name, values in ARRAYS.items():
        np.testing.assert_array_equal(found[name], values)
        assert found[name].dtype == values.dtype
        assert found[name].shape == values.shape


def test_missing_and_damaged_arrays__are_refused(tmp_path):
    with pytest.raises(AbsentError):
        read_arrays(Folder(tmp_path / "none"))
    (tmp_path / "other").mkdir()
    with pytest.raises(DamagedError, match="digests.json: the file is missing"):
        read_arrays(Folder(tmp_path / "other"))


def test_run__keeps_its_record_and_events(tmp_path):
    run = Run(tmp_path / "run")
    assert run.events() == []
    run.create(RUN)
    assert run.record() == {"format": "collapsium-run", "version": 2, **RUN}
    for number in range(3):
        run.append_event({"event": "iteration", "iteration": number, "elapsed": 1.0})
    with (tmp_path / "run/events.jsonl").open("a") as handle:
        handle.write('{"event": "iter')  # not yet completely written
    assert [event["iteration"] for event in run.events()] == [0, 1, 2]
    with pytest.raises(OccupiedError):
        run.create({})
    (tmp_path / "run/events.jsonl").write_text("not json\n")
    assert run.events() == []
    assert "line 1: expected JSON" in run.events_fault()
    (tmp_path / "run/events.jsonl").write_text('{"event": "started"}\n[]\n{"event": "started"}\n')
    assert run.events() == [{"event": "started"}]
    assert "line 2: expected an event" in run.events_fault()
    with pytest.raises(AbsentError, match="not a run"):
        Run(tmp_path).record()


def test_a_run_with_options_that_could_not_be_read_again__is_not_created(tmp_path):
    words = [f"{number:060d}" for number in range(600_000)]
    with pytest.raises(OptionError, match="expected options that take at most 33,554,432 bytes"):
        Run(tmp_path / "run").create({**RUN, "options": {"weights": {"words": words}}})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("held", [False, True])
def test_clean__removes_remnants_of_killed_processes(tmp_path, held):
    run, left = Run(tmp_path / "run"), []
    run.create(RUN)
    for folder in (".", "members", "checkpoints", "model"):
        (tmp_path / "run" / folder / ".000.12345678.part/inner").mkdir(parents=True)
        (tmp_path / "run" / folder / ".names.json.0123.part").write_text("{")
        left += [f"{folder}/kept.part", f"{folder}/.kept"]
    for name in left:
        (tmp_path / "run" / name).write_text("x")
    with run.held() if held else nullcontext():
        run.clean()
    files = {str(path.relative_to(tmp_path / "run")) for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert files == {"run.json", *(str(Path(name)) for name in left)}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_events_with_figures_that_are_not_finite__are_refused(tmp_path, value):
    run = Run(tmp_path / "run")
    run.create(RUN)
    run.append_event({"event": "iteration", "iteration": 1, "elapsed": 1.0, "change": 0.5})
    with pytest.raises(NotFiniteError, match=f"iteration 2: expected finite metrics, found change {value}"):
        run.append_event({"event": "iteration", "iteration": 2, "elapsed": 1.0, "change": value})
    with pytest.raises(NotFiniteError, match="found others"):
        run.append_event({"event": "iteration", "iteration": 2, "elapsed": 1.0, "sizes": [[0, value]]})
    assert [event["iteration"] for event in run.events()] == [1]


@pytest.mark.parametrize(
    "start",
    [
        3, "clusters", [], {}, {"kind": "tree", "strength": "much"}, {"kind": "tree", "strength": -1.0},
        {"kind": "tree", "strength": 1e300}, {"kind": "worst"}, {"kind": "file"}, {"kind": "file", "url": "x.parquet"},
        {"kind": "file", "url": "x.parquet", "digest": "0"}, {"kind": "clusters", "url": "x", "digest": "0" * 64},
    ],
)  # fmt: skip
def test_a_run_with_an_unknown_initialisation__is_damaged(tmp_path, start):
    run = Run(tmp_path / "run")
    run.create({**RUN, "start": start})
    with pytest.raises(DamagedError, match="start"):
        run.record()


def test_a_run_without_a_model__says_so(tmp_path):
    Run(tmp_path / "run").create({})
    with pytest.raises(AbsentError, match="the run has no model yet"):
        StoredModel(tmp_path / "run")


def recorded(checkpoint, iteration):
    digest = checkpoint.write("global_state", {"x": np.array(iteration)})
    return CheckpointRecord(
        iteration=iteration, run="0" * 64, parts={"global_state": digest}, blocks=(0, 1), shards=0, events=(0, "0" * 64),
        progress={}, previous={},
    )  # fmt: skip


def test_checkpoints__keep_the_last_two_and_ignore_unpublished_ones(tmp_path):
    checkpoints = Checkpoints(Folder(tmp_path / "checkpoints"))
    assert checkpoints.latest() is None
    assert checkpoints.candidates() == ([], [])
    for iteration in (3, 10, 20):
        checkpoints.publish(recorded(checkpoints.at(iteration), iteration))
    recorded(checkpoints.at(25), 25)  # truncated before it was published
    assert checkpoints.latest() == 20
    names = [name for name in checkpoints.folder.names() if name != "latest.json"]
    assert names == ["00000010", "00000020", "00000025"]
    assert checkpoints.candidates() == ([20, 10], [])
    found = checkpoints.at(20)
    assert found.read("global_state", found.record().parts["global_state"])["x"] == 20
    checkpoints.folder.write("latest.json", dump({"format": "collapsium-checkpoint", "version": 2, "iteration": "x"}))
    with pytest.raises(DamagedError, match="field 'iteration'"):
        checkpoints.latest()
    assert checkpoints.candidates()[0] == [20, 10]
    assert "latest.json" in checkpoints.candidates()[1][0]
    checkpoints.discard(25)
    checkpoints.discard(20)  # is complete, so it is kept
    assert [name for name in checkpoints.folder.names() if name != "latest.json"] == ["00000010", "00000020"]
