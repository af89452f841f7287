"""Memory that the workers of a local cluster share: messages arrive unchanged, and no file remains."""

import asyncio
import os
import signal
from pathlib import Path

import distributed
import numpy as np
import pytest
from distributed.comm import connect, listen
from distributed.comm.registry import backends
from distributed.comm.tcp import TLSListener
from distributed.protocol import to_serialize
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import Model, fit
from collapsium.pipeline.executors import dask_shared_memory as shared
from tests.fits import bits
from tests.waiting import PATIENCE

pytestmark = [
    pytest.mark.xdist_group("clusters"),
    pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no anonymous files"),
]


@pytest.fixture(autouse=True)
def files(monkeypatch):
    """The files of this process, none of which waits."""
    files = shared._Files()
    monkeypatch.setattr(shared, "_files", files)
    yield files
    for place in files._waiting:
        os.close(place.descriptor)


def shared_files():
    """Descriptors of files with frames that this process has open."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            name, size = str(entry.readlink()), entry.stat().st_size
        except FileNotFoundError:
            continue
        found += [int(entry.name)] if "/memfd:collapsium-" in name and size else []
    return found


@given(st.lists(st.binary(max_size=200)), st.integers(1, 64))
def test_frames__are_read_as_they_were_written(frames, bytes_at_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "MAX_BYTES_AT_ONCE", bytes_at_once)
        place = shared.write_frames([memoryview(frame) for frame in frames])
        assert os.pread(place.descriptor, 1, 0) == shared.UNREAD
        views = shared.read_frames(place)
    assert os.pread(place.descriptor, 1, 0) == shared.READ
    os.close(place.descriptor)
    assert [bytes(view) for view in views] == frames
    assert not any(view.readonly for view in views)
    addresses = [np.frombuffer(view, np.uint8).ctypes.data for view in views if view.nbytes]
    assert all(address % shared.ALIGNMENT == 0 for address in addresses)


def read(frames):
    """Write frames to a file, read them, and have the file wait; return its name, size, and what was read."""
    place = shared.write_frames([memoryview(frame) for frame in frames])
    views = shared.read_frames(place)
    size = os.fstat(place.descriptor).st_size
    shared._files.give(place)
    return place.name, size, [bytes(view) for view in views]


def test_a_file_that_was_read__is_written_again_by_messages_about_as_large():
    first, _, _ = read([b"a" * 1000])
    again, size, views = read([b"b" * 500, b"c" * 700])
    assert again == first
    assert views == [b"b" * 500, b"c" * 700]
    assert size == shared.Place(0, 0, "", (500, 700)).starts[-1]
    assert read([b"d" * 10])[0] != first
    assert read([b"e" * 10_000])[0] != first


def test_files_that_wait__are_few_and_none_where_memory_is_short(files, monkeypatch):
    for size in (1000, 10_000, 100_000):
        read([b"a" * size])
    assert [place.sizes for place in files._waiting] == [(10_000,), (100_000,)]
    assert len(shared_files()) == 2
    monkeypatch.setattr(shared.buffers.pool, "lean", True)
    read([b"a" * 10_000])
    assert shared_files() == []


def test_a_file_that_is_too_short__is_an_error():
    place = shared.write_frames([memoryview(b"abc")])
    with pytest.raises(OSError, match="shorter than its frames"):
        shared.read_frames(place._replace(sizes=(100,)))
    os.close(place.descriptor)


def test_a_file_that_is_closed_or_another_now__is_not_opened():
    place = shared.create_file()
    assert shared.is_reachable(tuple(place))
    os.close(place.descriptor)
    assert not shared.is_reachable(tuple(place))
    other = shared.create_file()
    assert not shared.is_reachable(tuple(place._replace(descriptor=other.descriptor)))
    assert not shared.is_reachable(tuple(other._replace(process=2**30)))
    os.close(other.descriptor)
    for nothing in (None, (), "text", (1, "2", 3), (1, 2, 3, 4, 5)):
        assert not shared.is_reachable(nothing)
    assert shared_files() == []


async def exchanged(message, before=None):
    """The message that one end of a connection receives back from the other, and the end that sent it."""
    ends = []

    async def answer(comm):
        ends.append(comm)
        await comm.write({"data": to_serialize((await comm.read())["data"])})
        await comm.read()

    security = distributed.Security.temporary()
    listener = listen("tls://127.0.0.1", answer, **security.get_listen_args("worker"))
    async with listener:
        comm = await connect(listener.contact_address, **security.get_connection_args("worker"))
        if before is not None:
            before(comm)
        await comm.write({"data": to_serialize(message)})
        result = (await comm.read())["data"]
        # The other end looks a moment later that this one has read its file.
        await asyncio.sleep(5 * shared.POLL_SECONDS)
        await comm.close()
    return (
        result,
        [end.handshake_options[shared.KEY] for end in (comm, *ends) if shared.KEY in end.handshake_options],
    )


@pytest.fixture
def sharing(monkeypatch):
    monkeypatch.setattr(TLSListener, "comm_class", shared.SharedMemoryTLS)
    monkeypatch.setitem(backends, "tls", shared.SharedMemoryBackend())


ARRAYS = {"large": np.arange(400_000.0), "table": np.ones((1000, 300), np.float32), "small": np.arange(3), "text": "x"}


def assert_same(result):
    assert result["text"] == "x"
    for name in ("large", "table", "small"):
        np.testing.assert_array_equal(result[name], ARRAYS[name])
        assert result[name].flags.writeable


def test_large_messages__pass_through_shared_memory(sharing, files):
    result, agreed = asyncio.run(exchanged(ARRAYS))
    assert agreed == [True, True]
    assert_same(result)
    # Files of a message and its answer, both ends being in this process; the answer may reuse the file.
    assert len(files._waiting) == len(shared_files()) in {1, 2}
    other, _ = asyncio.run(exchanged({**ARRAYS, "large": -ARRAYS["large"]}))
    np.testing.assert_array_equal(other["large"], -ARRAYS["large"])
    assert len(shared_files()) in {1, 2}
    assert_same(result)


def test_small_messages__pass_through_the_connection(sharing, monkeypatch):
    monkeypatch.setattr(shared, "write_frames", None)
    result, agreed = asyncio.run(exchanged({**ARRAYS, "large": 1, "table": 2}))
    assert agreed == [True, True]
    np.testing.assert_array_equal(result["small"], ARRAYS["small"])


def test_an_end_that_shares_no_memory__gets_all_through_the_connection(monkeypatch):
    monkeypatch.setattr(TLSListener, "comm_class", shared.SharedMemoryTLS)
    result, agreed = asyncio.run(exchanged(ARRAYS))
    assert agreed == [False]
    assert_same(result)
    assert shared_files() == []


@pytest.mark.parametrize("error", [OSError("memory is short"), AttributeError("memfd_create")])
def test_a_system_without_anonymous_files__sends_all_through_the_connection(sharing, monkeypatch, error):
    def create(name):
        raise error

    shared.offer.cache_clear()
    monkeypatch.setattr(os, "memfd_create", create)
    try:
        result, agreed = asyncio.run(exchanged(ARRAYS))
    finally:
        shared.offer.cache_clear()
    assert agreed == [False, False]
    assert_same(result)


def test_memory_that_is_short__lets_a_message_pass_through_the_connection(sharing, monkeypatch):
    def write(frames):
        raise OSError("memory is short")

    monkeypatch.setattr(shared, "write_frames", write)
    result, agreed = asyncio.run(exchanged(ARRAYS))
    assert agreed == [True, True]
    assert_same(result)


def test_an_end_that_closes_before_it_has_read__frees_the_memory(sharing):
    async def leave():
        async def answer(comm):
            await comm.write({"data": to_serialize(ARRAYS)})

        security = distributed.Security.temporary()
        async with listen("tls://127.0.0.1", answer, **security.get_listen_args("worker")) as listener:
            comm = await connect(listener.contact_address, **security.get_connection_args("worker"))
            while not shared_files():
                await asyncio.sleep(0.001)
            comm.abort()
            while shared_files():
                await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(leave(), PATIENCE))
    assert not shared_files()


def test_a_message_whose_file_is_missing__closes_the_connection(sharing, monkeypatch):
    def write(frames):
        return shared.create_file([frame.nbytes for frame in frames])._replace(name="another")

    monkeypatch.setattr(shared, "write_frames", write)
    with pytest.raises(distributed.comm.CommClosedError):
        asyncio.run(exchanged(ARRAYS))


def share_all():
    """Let every message pass through shared memory, and count those that do."""
    write = shared.write_frames

    def counted(frames):
        share_all.messages = getattr(share_all, "messages", 0) + 1
        return write(frames)

    shared.MIN_SHARED_BYTES, shared.write_frames = 0, counted


def messages():
    return getattr(share_all, "messages", 0)


def test_fits__have_the_same_bits_with_shared_memory(small, tmp_path, monkeypatch):
    """Also when one of the two workers is killed on the way."""
    from collapsium.pipeline.executors import dask_cluster

    executors, processes = [], []
    start = dask_cluster.start_cluster

    def started(*args):
        executors.append(start(*args))
        assert executors[0].workers == executors[0].homes == 2
        executors[0].everywhere(share_all)
        processes.extend(executors[0].everywhere(os.getpid))
        return executors[0]

    def look(event):
        # The fit goes back, and reports the iteration once more.
        if event["event"] == "iteration" and event["iteration"] == 4 and len(processes) == 2:
            assert min(executors[0].everywhere(messages)) > 4
            os.kill(processes.pop(), signal.SIGKILL)

    monkeypatch.setattr(dask_cluster, "start_cluster", started)
    options = {"family": "lda", "topics": 5, "iterations": 8, "heldout": small[1]}
    fit(small[0], tmp_path / "run", scheduler="local", workers=2, sinks=[look], **options)
    assert (len(executors), len(processes)) == (1, 1)
    fit(small[0], tmp_path / "calm", scheduler="threads", workers=2, **options)
    assert bits(Model(tmp_path / "run"), 5) == bits(Model(tmp_path / "calm"), 5)
