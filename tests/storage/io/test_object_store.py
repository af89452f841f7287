"""Object stores give the same guarantees as a disk: a real S3 server (moto) and a store in memory."""

import os
import socket
import subprocess
import sys
import threading

import pytest

from collapsium.pipeline import Model, evaluate, fit, infer, resume, topics, verify
from collapsium.storage.errors import AbsentError, LockedError, OccupiedError, StoreError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.run_lock import RunLock
from collapsium.storage.runs.run import Run
from tests.conftest import simulated_rows, write_corpus
from tests.fits import bits
from tests.pipeline.engine.model_io.test_checkpoints import events_of, stop_at
from tests.waiting import wait_until

OPTIONS = {"family": "lda", "topics": 4, "iterations": 5}


def answers(port):
    """Return whether a server on this machine listens at a port."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def s3():
    """The URL of a bucket on a local server, which this process and its children can access."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    serve = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    server = subprocess.Popen([sys.executable, "-c", serve], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    settings = {
        "AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }  # fmt: skip
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        wait_until(lambda: server.poll() is not None or answers(port))
        assert server.poll() is None, "the server has ended"
        import s3fs

        s3fs.S3FileSystem().mkdir("bucket")
        yield "s3://bucket"
    finally:
        server.kill()
        server.wait()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture(params=["memory", "s3"])
def store(request):
    """The URL of a separate folder for each test, on each kind of store."""
    name = request.node.name.split("[")[0]
    return f"memory://{name}" if request.param == "memory" else f"{request.getfixturevalue('s3')}/{name}"


def test_files__are_written_completely_once_or_repeatedly(store):
    folder = Folder(store)
    assert not folder.exists()
    assert folder.names() == []
    assert folder.create("a/b", b"first")
    assert not folder.create("a/b", b"second")
    assert folder.create("a/b", b"first")  # a write whose response was lost is repeated
    assert folder.read("a/b") == b"first"
    folder.write("a/b", b"third")
    folder.append("a/b", b" and more")
    assert folder.read("a/b") == b"third and more"
    folder.truncate("a/b", 5)
    assert folder.read("a/b") == b"third"
    assert (folder / "a").names() == ["b"]
    folder.delete("a/b")
    folder.delete("a/b")
    with pytest.raises(AbsentError):
        folder.read("a/b")
    folder.write("c", b"")
    folder.remove()
    assert not folder.exists("c")


def test_only_one_of_several_creators_of_a_file__succeeds(store):
    folder, begin, creators = Folder(store), threading.Barrier(6), []

    def create(number):
        begin.wait()
        if folder.create("lock", b"%d" % number):
            creators.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if store.startswith("s3"):  # in memory, checking and writing are not atomic
        assert len(creators) == 1
    assert folder.read("lock") in {b"%d" % number for number in creators}


def test_a_lock__is_held_by_one_owner(store):
    with RunLock(Folder(f"{store}/lock")) as held:
        held.require()
        with pytest.raises(LockedError, match="works on it"):
            RunLock(Folder(f"{store}/lock")).acquire()
    with RunLock(Folder(f"{store}/lock")):
        pass
    assert Folder(f"{store}/lock").names() == []


@pytest.mark.long
def test_a_run__can_be_made_stopped_resumed_and_read(store):
    train, heldout = f"{store}/train", f"{store}/heldout"
    write_corpus(train, simulated_rows(1), 30, shard_tokens=1200)
    write_corpus(heldout, simulated_rows(2), 30)
    with pytest.raises(OccupiedError):
        write_corpus(train, simulated_rows(1), 30)
    whole = fit(train, f"{store}/whole", heldout=heldout, **OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        fit(train, f"{store}/run", heldout=heldout, sinks=[stop_at(4)], checkpoint_every=3, **OPTIONS)
    assert len(topics(f"{store}/run")) == 4
    # The latest checkpoint is damaged, and the one before is valid.
    latest = Run(f"{store}/run").checkpoints.at(4).folder
    latest.write("rows/00000/digests.json", b"{}")
    resume(f"{store}/run")
    assert bits(Model(f"{store}/run"), 2) == bits(whole, 2)
    assert events_of(f"{store}/run") == events_of(f"{store}/whole")
    assert verify(f"{store}/run").broken == []
    assert verify(train).broken == []
    resume(f"{store}/run", iterations=6)  # replaces the existing model
    assert Model(f"{store}/run").record.iterations == 6
    assert infer(f"{store}/run", train, f"{store}/proportions.parquet").rows == 60
    assert evaluate(f"{store}/run", heldout=heldout).tokens > 0


def test_a_store_that_cannot_be_reached__is_a_clear_error(s3, monkeypatch):
    monkeypatch.setattr("collapsium.storage.io.file.pause", lambda seconds: None)
    with pytest.raises((StoreError, AbsentError), match="s3://no-such-bucket/x"):
        Folder("s3://no-such-bucket/x").write("a", b"1")
