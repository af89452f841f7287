"""Resuming a run: options that may change, options that may not, and damage."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from collapsium.pipeline import Model, fit, resume, topics, verify
from collapsium.pipeline.engine.checkpoints import RunCheckpointer
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.storage.errors import (
    AbsentError,
    ClusterError,
    CollapsiumError,
    DamagedError,
    LockedError,
    MismatchError,
    OptionError,
    StoreError,
)
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump
from collapsium.storage.runs.checkpoint import RECORD, Checkpoints
from collapsium.storage.runs.run import Run
from collapsium.workers.families.cvb import schedule
from tests.conftest import simulated_rows, write_corpus
from tests.fits import TIMES, bits, problem_of, resumed

OPTIONS = {"family": "hdp", "topics": 4, "iterations": 8}


class StoppedError(Exception):
    """Stops a fit at an iteration."""


def stop_at(iteration, kind=KeyboardInterrupt):
    def sink(event):
        if event["event"] == "iteration" and event["iteration"] == iteration:
            raise kind("on purpose")

    return sink


def events_of(run):
    events = [event for event in Run(run).events() if event["event"] != "back"]
    return [{name: value for name, value in event.items() if name not in TIMES} for event in events]


def stopped(small, place, iteration=5, **options):
    with pytest.raises(KeyboardInterrupt):
        fit(small[0], place, heldout=small[1], sinks=[stop_at(iteration)], **{**OPTIONS, **options})
    return place


@pytest.fixture(scope="module")
def stopped_copy(small, tmp_path_factory):
    """A function that returns a copy of a run that was stopped at an iteration; each such run is fitted once."""
    runs = {}

    def copy(place, iteration=5, **options):
        key = (iteration, *options.items())
        if key not in runs:
            runs[key] = stopped(small, tmp_path_factory.mktemp("stopped") / "run", iteration, **options)
        return shutil.copytree(runs[key], place)

    return copy


class Recorded(SerialExecutor):
    """Records submitted tasks, and the waits for written parts."""

    def __init__(self):
        self.steps = []

    def submit(self, function, *args, process=None):
        self.steps.append(function.__name__)
        return super().submit(function, *args, process=process)

    def collect(self, futures, links=None):
        results = super().collect(futures, links)
        self.steps += ["waited"] if any(isinstance(result, str) for result in results) else []
        return results


def test_the_next_sweeps__are_submitted_before_a_checkpoint_is_waited_for(small, tmp_path):
    executor = Recorded()
    problem = problem_of(small[0], "hdp", {"topics": 4}, executor=executor)
    checkpointer = RunCheckpointer(Run(tmp_path / "run"), problem, every=1)
    for state, _ in Fit(problem, Limits(iterations=3), checkpointer):
        assert (checkpointer.saved_iteration or 0) == state.iteration
    first = executor.steps.index("write_local")
    assert "sweep" in executor.steps[first : executor.steps.index("waited", first)]


@pytest.mark.parametrize("step", ["require_ownership", "writable"])
def test_a_checkpoint_whose_writing_could_not_begin__is_written_completely_later(small, tmp_path, monkeypatch, step):
    problem, run = problem_of(small[0], "lda", {"topics": 4}, executor=SerialExecutor()), Run(tmp_path / "run")
    refused = []

    def refuse_once(*arguments):
        if not refused:
            refused.append(arguments)
            raise StoreError("the storage does not answer")
        return writable(*arguments) if arguments else None

    writable, options = Checkpoints.writable, {}
    if step == "writable":
        monkeypatch.setattr(Checkpoints, "writable", refuse_once)
    else:
        options["require_ownership"] = refuse_once
    checkpointer = RunCheckpointer(run, problem, every=1, **options)
    with pytest.raises(StoreError):
        list(Fit(problem, Limits(iterations=3), checkpointer))
    assert checkpointer.save_last() == 1
    again = RunCheckpointer(run, problem)
    assert again.restore().state.iteration == 1
    assert [state.iteration for state, _ in Fit(problem, Limits(iterations=3), again)] == [1, 2, 3]


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory):
    place = tmp_path_factory.mktemp("whole") / "run"
    fit(small[0], place, heldout=small[1], **OPTIONS)
    return place


def same(run, whole):
    assert bits(Model(run)) == bits(Model(whole))
    assert events_of(run) == events_of(whole)


@pytest.mark.parametrize("iteration", [1, 3, 7])
@pytest.mark.parametrize("every", [None, 2])
def test_a_stopped_run__continues_to_the_same_bits_and_events(small, tmp_path, whole, iteration, every):
    run = stopped(small, tmp_path / "run", iteration, checkpoint_every=every)
    assert Run(run).checkpoints.latest() == iteration
    assert len(topics(run)) == 4  # read from the checkpoint
    assert not (run / "model").exists()
    resumed(run)
    same(run, whole)


def test_fewer_iterations_than_planned__are_refused_if_tokens_are_held_out(small, tmp_path, monkeypatch):
    monkeypatch.setattr(schedule, "MIN_SEARCH_TOKENS", 100.0)
    options = {"family": "lda", "topics": 4, "scheduler": "serial"}
    whole = fit(small[0], tmp_path / "whole", iterations=40, **options)
    with pytest.raises(KeyboardInterrupt):
        fit(small[0], tmp_path / "run", iterations=40, sinks=[stop_at(12)], **options)
    before = Run(tmp_path / "run").record()
    with pytest.raises(OptionError, match="expected at least 40, with which the run was planned, found 20"):
        resume(tmp_path / "run", iterations=20, scheduler="serial")
    assert Run(tmp_path / "run").record() == before
    assert bits(resume(tmp_path / "run", scheduler="serial")) == bits(whole)


def test_a_run__may_be_stopped_repeatedly(stopped_copy, tmp_path, whole):
    run = stopped_copy(tmp_path / "run", 2)
    for iteration in (3, 5, 6):
        with pytest.raises(KeyboardInterrupt):
            resumed(
                run,
                sinks=[stop_at(iteration)],
                workers=iteration % 3 + 1,
                scheduler=("threads", "serial")[iteration % 2],
            )
    resumed(run)
    same(run, whole)
    lines = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    assert sum(line["event"] == "cluster" for line in lines) == 5


def test_a_run_without_a_checkpoint__starts_again_from_its_record(stopped_copy, tmp_path, whole):
    run = stopped_copy(tmp_path / "run", 2)
    shutil.rmtree(run / "checkpoints")
    with (run / "events.jsonl").open("ab") as file:
        file.write(b'{"event": "iterat')  # it was killed while it wrote its first checkpoint
    resume(run)
    same(run, whole)
    assert [event["iteration"] for event in Run(run).events() if event["event"] == "iteration"][:3] == [1, 2, 3]


@pytest.mark.parametrize("damage", ["byte", "cut", "emptied", "removed", "tail"])
@pytest.mark.parametrize("copied", [True, False])
def test_damaged_events__do_not_prevent_a_resume_and_are_restored(stopped_copy, tmp_path, whole, damage, copied):
    run = stopped_copy(tmp_path / "run", 5)
    path, latest = run / "events.jsonl", Checkpoints(Folder(run) / "checkpoints").latest()
    data = path.read_bytes()
    place = len(data) // 2
    damaged = {
        "byte": data[:place] + b"\xff" + data[place + 1 :],
        "cut": data[:place],
        "emptied": b"",
        "tail": data + b"\0\n",
    }
    path.unlink() if damage == "removed" else path.write_bytes(damaged[damage])
    for copy in (run / "checkpoints").glob("*/events.jsonl"):
        copied or copy.unlink()
    notices = []
    resumed(run, sinks=[lambda event: notices.append(event["text"]) if event["event"] == "notice" else None])
    assert bits(Model(run)) == bits(Model(whole))
    assert not any("remove" in text for text in notices)
    if copied or damage == "tail":
        assert events_of(run) == events_of(whole)
    else:
        iterations = [event["iteration"] for event in Run(run).events() if event["event"] == "iteration"]
        assert iterations[-1] == OPTIONS["iterations"]
        assert set(range(latest + 1, OPTIONS["iterations"] + 1)) <= set(iterations)
    assert any("events.jsonl" in text for text in notices) or damage == "tail"
    assert not verify(run).broken or not copied


def test_a_damaged_model__is_restored_from_the_checkpoint(small, tmp_path, whole):
    shutil.copytree(whole, tmp_path / "run")
    record = tmp_path / "run" / "model" / "model.json"
    record.write_bytes(record.read_bytes()[:100])
    resume(tmp_path / "run")
    same(tmp_path / "run", whole)
    assert not verify(tmp_path / "run").broken


def test_an_interrupt_before_the_first_iteration__leaves_a_run_that_can_be_resumed(small, tmp_path, whole):
    def sink(event):
        if event["event"] == "started":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(small[0], tmp_path / "run", heldout=small[1], sinks=[sink], **OPTIONS)
    resume(tmp_path / "run")
    same(tmp_path / "run", whole)


def test_more_iterations__continue_from_the_end(small, tmp_path, whole):
    fit(small[0], tmp_path / "run", heldout=small[1], **{**OPTIONS, "iterations": 5})
    first = Model(tmp_path / "run").rows(0).word_topic
    resumed(tmp_path / "run", iterations=8)
    assert bits(Model(tmp_path / "run")) == bits(Model(whole))
    assert not np.array_equal(first, Model(tmp_path / "run").rows(0).word_topic)
    assert Run(tmp_path / "run").record()["limits"]["iterations"] == 8
    before = (tmp_path / "run/events.jsonl").read_bytes()
    resume(tmp_path / "run")  # no iterations are left
    assert (tmp_path / "run/events.jsonl").read_bytes() == before
    with pytest.raises(OptionError, match="the run has made 8 already"):
        resume(tmp_path / "run", iterations=3)


def test_a_run_that_reached_its_tolerance__is_finished(small, tmp_path):
    options = {**OPTIONS, "iterations": 100, "tolerance": 0.2}
    fit(small[0], tmp_path / "run", **options)
    reached = Model(tmp_path / "run").record.iterations
    assert reached < 100
    resume(tmp_path / "run")
    assert Model(tmp_path / "run").record.iterations == reached
    resume(tmp_path / "run", tolerance=0.0, iterations=reached + 2)
    assert Model(tmp_path / "run").record.iterations == reached + 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"seed": 4}, "seed: expected 0, found 4"),
        ({"topics": 9}, "topics: expected 4, found 9"),
        ({"learn": []}, "learn: expected "),
        ({"family": "lda"}, "family: expected hdp, found lda"),
        ({"local_sweeps": 2}, "local_sweeps: expected 1, found 2"),
        ({"schedule": "stochastic"}, "schedule: expected batch, found stochastic"),
        ({"surprise": 1}, "unknown option 'surprise'"),
    ],
)
def test_options_that_would_change_the_model__are_refused_by_name(stopped_copy, tmp_path, options, text):
    run = stopped_copy(tmp_path / "run", 2)
    with pytest.raises(OptionError) as raised:
        resume(run, **options)
    assert text in str(raised.value)
    # the same options, and options that only determine the end
    resume(run, seed=0, topics=4, iterations=3, score_every=2)


def test_a_moved_corpus__is_accepted_if_it_is_the_same(small, tmp_path, whole):
    train = Path(shutil.copytree(small[0], tmp_path / "train"))
    heldout = Path(shutil.copytree(small[1], tmp_path / "heldout"))
    run = stopped((train, heldout), tmp_path / "run", 3)
    train.rename(tmp_path / "moved")
    with pytest.raises(AbsentError, match="if it was moved, say where with CORPUS"):
        resume(run)
    unrelated = write_corpus(tmp_path / "other", simulated_rows(9), 30, shard_tokens=500)
    with pytest.raises(MismatchError, match="it is not the corpus of the run"):
        resume(run, corpus=unrelated)
    with pytest.raises(MismatchError, match="it is not the held-out corpus of the run"):
        resume(run, corpus=tmp_path / "moved", heldout=unrelated)
    resumed(run, corpus=tmp_path / "moved", heldout=heldout)
    same(run, whole)


def test_a_run_in_use__is_locked(small, tmp_path):
    found = []

    def sink(event):
        if event["event"] == "iteration" and event["iteration"] == 2:
            with pytest.raises(LockedError, match="works on it") as raised:
                resume(tmp_path / "run")
            found.append(str(raised.value))

    fit(small[0], tmp_path / "run", sinks=[sink], **OPTIONS)
    assert found
    assert not (tmp_path / "run/lock").exists()


def test_a_run_whose_lock_was_taken_over__ends_and_saves_nothing_more(small, tmp_path):
    def sink(event):
        if event["event"] == "iteration" and event["iteration"] == 3:
            (tmp_path / "run/lock/00000009.json").write_bytes(next((tmp_path / "run/lock").iterdir()).read_bytes())

    with pytest.raises(LockedError, match="the lock was lost"):
        fit(small[0], tmp_path / "run", sinks=[sink], checkpoint_every=2, **OPTIONS)
    assert Run(tmp_path / "run").checkpoints.latest() == 2


@pytest.mark.parametrize("error", [StoppedError, ClusterError])
def test_an_error__is_reported_and_the_run_can_be_resumed(small, tmp_path, whole, error):
    with pytest.raises(error):
        fit(
            small[0], tmp_path / "run", heldout=small[1], sinks=[stop_at(5, error)], checkpoint_every=3, **OPTIONS
        )  # fmt: skip
    assert Run(tmp_path / "run").events()[-1]["reason"] == "error"
    # Results that a failed cluster held are not requested.
    assert Run(tmp_path / "run").checkpoints.latest() == (5 if error is StoppedError else 3)
    resumed(tmp_path / "run")
    same(tmp_path / "run", whole)


# Damage --------------------------------------------------------------------------------------------------------------


def rewritten(run, iteration, part, name, change):
    """Change an array of a checkpoint and correct its digests."""
    checkpoints = Run(run).checkpoints
    checkpoint = checkpoints.at(iteration)
    record = checkpoint.record()
    arrays = checkpoint.read(part, record.parts[part])
    shutil.rmtree(run / "checkpoints" / f"{iteration:08d}" / part)
    digest = checkpoint.write(part, {**arrays, name: change(np.array(arrays[name]))})
    changed = record.model_copy(update={"parts": {**record.parts, part: digest}})
    checkpoint.folder.write(RECORD, dump(changed.model_dump(mode="json")))


def below_zero(values):
    values[3] = -1e3
    return values


def beyond_topics(values):
    values[-1] = 999
    return values


@pytest.mark.parametrize(
    ("part", "name", "change"),
    [
        ("local_states/00000", "document_counts", below_zero),
        ("local_states/00001", "document_topics", beyond_topics),
        ("rows/00000", "word_active", lambda values: values[:-1]),
        ("global_state", "topic_ahead", lambda values: values * np.nan),
    ],
)
@pytest.mark.parametrize("scheduler", ["serial", "threads"])
def test_a_checkpoint_whose_arrays_fail_their_check__is_skipped_for_the_one_before(
    stopped_copy, tmp_path, whole, scheduler, part, name, change
):
    run = stopped_copy(tmp_path / "run", 5, checkpoint_every=1)
    rewritten(run, 5, part, name, change)
    notices = []
    sink = lambda event: notices.append(event["text"]) if event["event"] == "notice" else None  # noqa: E731
    resume(run, scheduler=scheduler, sinks=[sink])
    same(run, whole)
    assert any(f"{name}" in text and "continuing from the checkpoint of iteration 4" in text for text in notices)


def test_arrays_that_fail_their_check_in_each_checkpoint__are_named(stopped_copy, tmp_path):
    run = stopped_copy(tmp_path / "run", 5, checkpoint_every=1)
    for iteration in (4, 5):
        rewritten(run, iteration, "local_states/00000", "document_counts", below_zero)
    with pytest.raises(DamagedError, match="no checkpoint is complete: .*00000005.*document_counts.*found -1000"):
        resume(run, scheduler="threads", workers=2)


def damages(run):
    """Yield each kind of damage to each file of a run: removed, truncated, one bit flipped."""
    for path in sorted(path for path in run.rglob("*") if path.is_file()):
        data = path.read_bytes()
        name = path.relative_to(run)
        yield name, path, None
        if data:
            yield name, path, data[: len(data) // 2]
            flipped = bytearray(data)
            flipped[len(data) // 2] ^= 1 << (len(data) % 8)
            yield name, path, bytes(flipped)


@pytest.mark.long
@pytest.mark.parametrize("kept", [1, 2])
def test_a_damaged_file__is_named_or_skipped(tmp_path, kept):
    """The run has a single checkpoint, or an older one to return to."""
    corpus = write_corpus(tmp_path / "c", simulated_rows(1, documents=6), 30, shard_tokens=100)
    options = {"family": "lda", "topics": 2, "iterations": 4}
    expected = bits(fit(corpus, tmp_path / "whole", **options), 2)
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fit(corpus, run, sinks=[stop_at(3 if kept == 2 else 1)], checkpoint_every=2, **options)
    assert len(Run(run).checkpoints.candidates()[0]) == kept
    outcomes = {"went on": 0, "said so": 0}
    shutil.copytree(run, tmp_path / "kept")
    for name, path, data in list(damages(run))[:: 2 if kept == 1 else 4]:  # removed, truncated and flipped in turn
        shutil.rmtree(run)
        shutil.copytree(tmp_path / "kept", run)
        path.unlink() if data is None else path.write_bytes(data)
        notices = []
        try:
            found = bits(resume(run, scheduler="serial", sinks=[notices.append]), 2)
            assert found == expected, name
            texts = [event["text"] for event in notices if event["event"] == "notice"]
            # returned to the older checkpoint
            unread = name.name in ("journal.jsonl", "events.jsonl") or "00000002" in name.parts
            assert unread or any(name.name in text for text in texts), name
            outcomes["went on"] += 1
        except CollapsiumError as error:
            texts, outcomes["said so"] = str(error), outcomes["said so"] + 1
            if name.name not in texts or (kept == 2 and name.name != "run.json"):
                pytest.fail(f"{name}: {texts}")
    assert outcomes["went on"] > 20 or kept == 1
    assert outcomes["said so"] > 2 or kept == 2


def test_every_truncation_and_bit_flip_of_a_checkpoint__is_detected(tmp_path):
    """Small files are damaged at every byte, and larger ones at a dense sample."""
    corpus = write_corpus(tmp_path / "c", simulated_rows(1, documents=6), 30)
    run = Run(tmp_path / "run")
    fit(corpus, tmp_path / "run", family="lda", topics=2, iterations=1)
    place = run.checkpoints.at(1)
    parts = place.record().parts
    assert not any(place.check(part, digest) for part, digest in parts.items())
    tried = 0
    for path in sorted(Path(place.folder.path).rglob("*")):
        if path.is_dir() or path.name == "events.jsonl":  # the history of events, which is not needed for a resume
            continue
        data = path.read_bytes()
        for at in range(0, len(data), max(len(data) // 60, 1)):
            flipped = bytearray(data)
            flipped[at] ^= 1 << (at % 8)
            for broken in (data[:at], bytes(flipped)):
                path.write_bytes(broken)
                tried += 1
                assert found_out(place, parts, path), (path, at)
        path.write_bytes(data)
    assert tried > 3000
    assert not any(place.check(part, digest) for part, digest in parts.items())


def found_out(place, parts, path):
    """Return whether a damage is detected; a record with different white space is not damaged."""
    if path.name != "checkpoint.json":
        part = str(path.relative_to(place.folder.path))
        name = next(name for name in parts if part.startswith(f"{name}/"))
        return any(path.name in text for text in place.check(name, parts[name]))
    try:
        return place.record().parts == parts
    except DamagedError as error:
        return path.name in str(error)


@pytest.mark.parametrize(("every", "expected"), [(None, [1, 8]), (1, [*range(1, 9)]), (3, [1, 3, 6, 8])])
@pytest.mark.parametrize("schedule", ["batch", "stochastic"])
def test_the_first_checkpoint__follows_iteration_1_and_does_not_shift_later_ones(
    small, tmp_path, every, expected, schedule
):
    saved, run = [], Run(tmp_path / "run")

    def look(event):
        if event["event"] in ("iteration", "end"):
            saved.extend(number for number in run.checkpoints.candidates()[0][:1] if number not in saved)

    options = {"family": "lda", "topics": 3, "iterations": 8, "schedule": schedule, "scheduler": "serial"}
    if schedule == "stochastic":
        options |= {"passes": 10, "batch_shards": 1}
    fit(small[0], tmp_path / "run", checkpoint_every=every, sinks=[look], **options)
    assert saved == expected


def test_a_run_that_is_stopped_after_iteration_1__continues_from_there(small, tmp_path):
    options = {"family": "lda", "topics": 3, "iterations": 4, "scheduler": "serial"}
    with pytest.raises(StoppedError):
        fit(small[0], tmp_path / "run", sinks=[stop_at(1, StoppedError)], checkpoint_every=100, **options)
    assert Run(tmp_path / "run").checkpoints.latest() == 1
    events = []
    model = resume(tmp_path / "run", scheduler="serial", sinks=[events.append])
    assert [event["iteration"] for event in events if event["event"] == "iteration"] == [1, 2, 3, 4]
    np.testing.assert_array_equal(
        model.rows(0).word_topic, fit(small[0], tmp_path / "calm", **options).rows(0).word_topic
    )
