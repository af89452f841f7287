"""Locks of runs: one owner, dead ones give way, and who has lost it hears of it."""

import json
import subprocess
import sys
import time

import pytest

from collapsar.storage import lock
from collapsar.storage.errors import LockedError
from collapsar.storage.folder import Folder
from collapsar.storage.lock import RunLock
from collapsar.storage.records import dump

HOLD = """
import sys, time
from collapsar.storage.folder import Folder
from collapsar.storage.lock import RunLock
held = RunLock(Folder(sys.argv[1]))
held.acquire()
print("held", flush=True)
time.sleep(60)
"""


def held_elsewhere(folder):
    process = subprocess.Popen([sys.executable, "-c", HOLD, folder.path], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def test_an_owner_that_is_killed__gives_way_at_once(tmp_path):
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
        assert folder.names() == ["00000002.json"]
    assert not folder.exists()


@pytest.mark.parametrize(("age", "held"), [(5.0, True), (61.0, False)])
def test_an_owner_on_another_machine__gives_way_after_its_lease(tmp_path, age, held):
    folder = Folder(tmp_path / "lock")
    with RunLock(folder) as own:
        record = own._record()
    record.update(machine="elsewhere and another boot", renewed=time.time() - age)
    folder.write("00000004.json", dump(record))
    if held:
        with pytest.raises(LockedError, match=r"on elsewhere works on it \(seen 5 s ago\)"):
            RunLock(folder).acquire()
    else:
        with RunLock(folder):
            assert folder.names() == ["00000005.json"]


def test_a_lock__is_renewed_and_its_loss_is_noticed(tmp_path):
    folder = Folder(tmp_path / "lock")
    with RunLock(folder, lease=0.4) as own:
        first = json.loads(folder.read("00000001.json"))["renewed"]
        time.sleep(0.5)
        own.require()
        assert json.loads(folder.read("00000001.json"))["renewed"] > first
        folder.write("00000002.json", folder.read("00000001.json"))
        with pytest.raises(LockedError, match="the lock was lost"):
            own.require()


def test_a_driver_that_slept_too_long__has_lost_its_lock(tmp_path, monkeypatch):
    with RunLock(Folder(tmp_path / "lock"), lease=1000.0) as own:
        own.require()
        now = time.monotonic()
        monkeypatch.setattr(lock.time, "monotonic", lambda: now + 1001)
        with pytest.raises(LockedError, match="was not renewed for 1000 s"):
            own.require()


def test_a_damaged_lock__is_named(tmp_path):
    folder = Folder(tmp_path / "lock")
    folder.write("00000001.json", b"{")
    with pytest.raises(LockedError, match=r"00000001.json.*if no process works on the run, remove the file"):
        RunLock(folder).acquire()
