"""Locks of runs have one owner; dead owners are replaced, and a replaced owner notices before it writes."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid

import pytest

from collapsium.storage.errors import LockedError, StoreError, TakenOverError
from collapsium.storage.io import run_lock
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump
from collapsium.storage.io.run_lock import LEASE, LOOKS, RENEWALS, LockWatch, RunLock
from collapsium.storage.runs.run import Run
from tests.waiting import PATIENCE

HOLD = """
import sys, time
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.run_lock import RunLock
held = RunLock(Folder(sys.argv[1]))
held.acquire()
print("held", flush=True)
time.sleep(60)
"""


class SimulatedClock:
    """A clock that only pauses advance, at each of which other owners may act."""

    def __init__(self):
        self.now, self.acts = 1000.0, []

    def __call__(self):
        return self.now

    def pause(self, seconds):
        self.now += seconds
        for act in self.acts:
            act(self.now)


@pytest.fixture
def clock(monkeypatch):
    simulated = SimulatedClock()
    monkeypatch.setattr(run_lock, "clock_seconds", simulated)
    monkeypatch.setattr(run_lock, "pause", simulated.pause)
    monkeypatch.setattr(run_lock, "notice", lambda text: None)
    return simulated


@pytest.fixture
def on_another_machine(monkeypatch):
    """Make every lock appear to belong to another machine."""
    names = iter(f"machine-{number} boot" for number in range(10_000))
    monkeypatch.setattr(run_lock, "this_machine", lambda: next(names))


@pytest.fixture(params=["local", "memory"])
def folder(request, tmp_path):
    if request.param == "local":
        return Folder(tmp_path / "run/lock")
    return Folder(f"memory://{uuid.uuid4().hex}/run/lock")


def renewing(owner, clock):
    """Let an owner renew its lock, as its thread would."""
    last = [clock()]

    def act(now):
        if now - last[0] >= LEASE / RENEWALS:
            last[0] = now
            with owner.hold():
                owner._write()

    return act


def held_elsewhere(folder):
    process = subprocess.Popen([sys.executable, "-c", HOLD, folder.path], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def test_a_killed_owner__is_replaced_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(run_lock, "pause", lambda seconds: pytest.fail("it waits"))
    folder = Folder(tmp_path / "run/lock")
    process = held_elsewhere(folder)
    try:
        with pytest.raises(LockedError, match=f"{tmp_path}/run: process {process.pid} on .* works on it"):
            RunLock(folder).acquire()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    with RunLock(folder) as taken:
        taken.require()
        assert taken.generation == 2
        assert folder.names() == ["00000002.json", "gate"]


def test_a_suspended_owner__is_replaced_after_its_lease_and_notices(tmp_path, clock):
    folder = Folder(tmp_path / "run/lock")
    process = held_elsewhere(folder)
    try:
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        with RunLock(folder) as taken:
            assert clock() - 1000.0 > LEASE
            os.kill(process.pid, signal.SIGCONT)
            taken.require()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_generations__increase_with_each_takeover(folder, clock, on_another_machine):
    for generation in (1, 2, 3):
        owner = RunLock(folder)
        owner.acquire()
        assert owner.generation == generation
    owner.release()
    assert LockWatch(folder).look() is None
    assert not folder.exists()


def test_generations__exceed_all_generations_of_checkpoints(tmp_path):
    run = Run(tmp_path / "run")
    run.create({})
    for generation in (1, 2, 3):
        with run.held() as owner:
            assert owner.generation == generation
            place = run.checkpoints.writable(12).folder
            place.write("global_state/x", b"")
    assert (run.folder / "checkpoints").names() == ["00000012", "00000012-0002", "00000012-0003"]


@pytest.mark.parametrize("ahead", [300.0, -300.0, 86400.0, -86400.0])
def test_the_wall_clock__neither_admits_nor_excludes_a_second_driver(
    folder, clock, on_another_machine, monkeypatch, ahead
):
    owner = RunLock(folder)
    owner.acquire()
    monkeypatch.setattr(time, "time", lambda: 1e9 + ahead)
    clock.acts.append(renewing(owner, clock))
    with pytest.raises(LockedError, match="works on it"):
        RunLock(folder).acquire()
    assert clock() - 1000.0 <= LEASE / RENEWALS + 2 * LEASE / LOOKS
    owner.require()
    clock.acts.clear()  # as if the owner had died
    began = clock()
    with RunLock(folder):
        assert LEASE < clock() - began < 1.1 * LEASE
        with pytest.raises(TakenOverError, match="the lock was lost"):
            owner.require()
    owner.release()


@pytest.mark.parametrize("ended", [False, True])
def test_a_suspended_owner__writes_nothing_during_or_after_its_successor(folder, clock, on_another_machine, ended):
    run = Run(folder.url.rpartition("/")[0])
    run.create({})
    asleep, later = Run(run.folder.url), Run(run.folder.url)
    with pytest.raises(TakenOverError), asleep.held():
        asleep.append_event({"event": "notice", "text": "begun"})
        asleep.append_journal({"event": "notice", "text": "begun"})
        with later.held() as lock_of_later:
            assert lock_of_later.generation == 2
            later.append_event({"event": "notice", "text": "taken over"})
            if ended:
                lock_of_later.release()
            before = {name: run.folder.read(name) for name in run.folder.files()}
            for write in (
                lambda: asleep.append_event({"event": "iteration"}),
                lambda: asleep.append_journal({"event": "iteration"}),
                lambda: asleep.rewrite({}),
                lambda: asleep.truncate_events(0),
                lambda: asleep.replace_events([]),
                lambda: asleep.model.write("model.json", b"{}"),
                lambda: asleep.member(1).write("run.json", b"{}"),
                lambda: asleep.checkpoints.go_back(0),
                lambda: asleep.in_member(0).create({}),
                lambda: asleep.folder.remove(),
                lambda: asleep.folder.delete("run.json"),
                lambda: asleep.folder.append("model/new", b"x"),
            ):
                with pytest.raises(TakenOverError):
                    write()
            assert {name: run.folder.read(name) for name in run.folder.files()} == before
            if not ended:
                later.append_event({"event": "notice", "text": "more"})
        raise RuntimeError("what it meets then")
    assert [event["generation"] for event in run.events()] == ([1, 2] if ended else [1, 2, 2])


def test_a_suspended_owner_without_a_successor__continues(folder, clock, on_another_machine):
    with RunLock(folder) as owner:
        clock.now += 3 * LEASE
        owner.require()
        clock.now += 3 * LEASE
        with owner.hold():
            assert owner.generation == 1


def test_only_one_of_two_waiting_processes__takes_over_from_a_dead_owner(
    folder, clock, on_another_machine, monkeypatch
):
    RunLock(folder).acquire()
    dead, rival = LockWatch(folder).look(), RunLock(folder)
    rival.acquire()
    monkeypatch.setattr(LockWatch, "wait", lambda watch: dead)
    with pytest.raises(LockedError, match="has just begun to work on it"):
        RunLock(folder).acquire()
    rival.require()
    rival.release()


def test_a_lock_that_is_removed_with_its_run__is_lost_and_not_created_again(tmp_path, clock):
    run = Run(tmp_path / "run")
    run.create({})
    with pytest.raises(TakenOverError), run.held():
        Folder(tmp_path / "run").remove()
        run.append_event({"event": "iteration"})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "data",
    [b"{", b"", b"\xff" * 100, dump({"format": "collapsium-lock", "version": 3}), dump({"format": "x"})]
    + [
        dump({"format": "collapsium-lock", "version": 3, "machine": "m", "process": 1, "started": "0", "lease": lease,
              "nonce": "0" * 32, "renewals": 0})
        for lease in (1e300, -1.0, 601.0)
    ],
)  # fmt: skip
def test_a_damaged_lock__is_replaced_after_its_lease(folder, clock, data):
    folder.write("00000007.json", data)
    with RunLock(folder) as owner:
        assert owner.generation == 8
        assert LEASE < clock() - 1000.0 < 1.1 * LEASE


def test_a_gate_that_is_a_link__is_not_followed(tmp_path, clock):
    (tmp_path / "lock").mkdir()
    (tmp_path / "lock/gate").symlink_to(tmp_path / "thesis.tex")
    with pytest.raises(OSError, match="gate"):
        RunLock(Folder(tmp_path / "lock")).acquire()
    assert not (tmp_path / "thesis.tex").exists()


def interrupt_at(step, after=None):
    """Return a tracer that raises KeyboardInterrupt once, at a line of the lock or its gate, or of the functions
    `after`."""
    left, begun = [step], [after is None]

    def trace(frame, event, _):
        if not frame.f_code.co_filename.endswith(("run_lock.py", "gate.py")):
            return None
        begun[0] = begun[0] or frame.f_code.co_name == after
        if not begun[0]:
            return trace
        left[0] -= event == "line"
        if left[0] == 0 and event == "line":
            raise KeyboardInterrupt
        return trace

    return trace


def test_an_interrupt_at_any_step__leaves_the_lock_usable(tmp_path):
    lock = RunLock(Folder(tmp_path / "lock"), lease=float(PATIENCE))
    with lock:
        interrupted = 0
        for step in range(1, 40):
            with contextlib.suppress(KeyboardInterrupt):
                before = sys.gettrace()
                sys.settrace(interrupt_at(step))
                try:
                    with lock.hold():
                        pass
                    interrupted -= 1
                finally:
                    sys.settrace(before)
                    interrupted += 1
            began = time.monotonic()
            with lock.hold():
                pass
            assert time.monotonic() - began < 60  # no process waits for the lease to end
        assert interrupted > 15


@pytest.mark.parametrize("failing", ["delete", "remove"])
def test_a_failed_release__is_retried_and_leaves_no_file(tmp_path, monkeypatch, clock, failing):
    fails = [2]
    done = getattr(Folder, failing)

    def fail(folder, *args, **kwargs):
        if "lock" in folder.url and fails[0]:
            fails[0] -= 1
            raise StoreError("on purpose")
        return done(folder, *args, **kwargs)

    run = Run(tmp_path / "run")
    run.create({})
    with run.held():
        run.append_event({"event": "notice", "text": "begun"})
        monkeypatch.setattr(Folder, failing, fail)
    assert fails == [0]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["events.jsonl", "run.json"]


def test_a_folder_of_a_lock_that_cannot_be_removed__is_retried(tmp_path, monkeypatch, clock):
    lock, fails, remove = RunLock(Folder(tmp_path / "lock")), [1], shutil.rmtree

    def fail(path, **kwargs):
        fails[0] -= 1
        return None if fails[0] >= 0 else remove(path, **kwargs)

    with lock:
        monkeypatch.setattr(shutil, "rmtree", fail)
    assert fails[0] < 0
    assert not (tmp_path / "lock").exists()


@pytest.mark.parametrize("ended", [False, True])
def test_an_interrupted_release__leaves_no_file(tmp_path, ended):
    interrupted = 0
    for step in range(1, 60):
        lock = RunLock(Folder(tmp_path / "lock"))
        lock.acquire()
        before = sys.gettrace()
        sys.settrace(interrupt_at(step, after="_release"))
        try:
            lock.release() if ended else lock.__exit__(None, None, None)
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            sys.settrace(before)
        assert not (tmp_path / "lock").exists()
    assert interrupted > 15


def test_an_interrupted_acquisition__leaves_no_file(tmp_path, monkeypatch):
    def interrupt(lock):
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupt)
    with pytest.raises(KeyboardInterrupt), RunLock(Folder(tmp_path / "lock")):
        pass
    assert not (tmp_path / "lock").exists()
