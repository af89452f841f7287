"""Requests to a scheduler that does not respond: the driver retries, whether Dask's or our timeout ends first."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from collapsium.pipeline.executors import dask, dask_client
from collapsium.pipeline.executors.dask import DaskExecutor
from collapsium.pipeline.executors.dask_client import answer_within, cluster_errors
from collapsium.pipeline.executors.liveness import Watch
from collapsium.storage.errors import ClusterError, ClusterGoneError, MismatchError

CONNECT = "Timed out trying to connect to tls://127.0.0.1:8786 after 10 s"


@pytest.fixture
def client():
    """A client that consists only of an event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield SimpleNamespace(loop=SimpleNamespace(asyncio_loop=loop), scheduler=object())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def request_with_answers(*answers):
    """Return a request that gives these answers in turn, and then the last one repeatedly; errors are raised."""
    left = list(answers)

    async def request():
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return request


def test_a_connection_timeout_of_dask__is_retried_until_the_limit(client, monkeypatch):
    monkeypatch.setattr(dask_client, "WORKER_POLL", 0.01)
    assert answer_within(client, request_with_answers(OSError(CONNECT), OSError(CONNECT), 7), 30.0) == 7
    with pytest.raises(TimeoutError, match=CONNECT):
        answer_within(client, request_with_answers(OSError(CONNECT)), 1.0)


def test_a_scheduler_that_does_not_answer__is_an_error_after_the_limit(client):
    with pytest.raises(TimeoutError, match=r"no answer within 0.05 s"):
        answer_within(client, lambda: asyncio.sleep(60), 0.05)


def test_a_client_that_has_given_up__is_an_error(client):
    error = AttributeError("'NoneType' object has no attribute 'run_function'")
    with pytest.raises(AttributeError):
        answer_within(client, request_with_answers(error), 1.0)
    client.scheduler = None
    with pytest.raises(TimeoutError, match="the connection to the scheduler is closed"):
        answer_within(client, request_with_answers(error), 1.0)


@pytest.mark.parametrize("error", [MismatchError("other versions"), ClusterError("lost"), ValueError("a defect")])
def test_other_errors__are_raised_as_they_are(client, error):
    with pytest.raises(type(error), match=str(error)):
        answer_within(client, request_with_answers(error), 30.0)


class AskedExecutor(DaskExecutor):
    """An executor whose scheduler is a list of answers, and which counts its checks."""

    def __init__(self, client, *answers):
        self._client, self._answers, self.checks = client, request_with_answers(*answers), []

    def wait(self, is_of_task=lambda: False):
        with cluster_errors():
            return self._awaited(self._answers, lambda *, unanswered: self.checks.append(unanswered), is_of_task)


def test_failed_requests_for_results__are_repeated(client, monkeypatch):
    monkeypatch.setattr(dask, "RESULT_POLL", 0.01)
    executor = AskedExecutor(client, OSError(CONNECT), TimeoutError("no handshake"), [1, 2])
    assert executor.wait() == [1, 2]
    assert executor.checks.count(True) == 2


def test_an_error_of_a_task__is_no_error_of_the_cluster(client):
    with pytest.raises(FileNotFoundError):
        AskedExecutor(client, FileNotFoundError("spill")).wait(lambda: True)


class LostExecutor(DaskExecutor):
    """An executor whose scheduler has ended for good."""

    def __init__(self, client, reach):
        self._client, self._reach, self._gone, self._watch = client, reach, False, Watch(0.2, [].append)
        self._resources = {}
        client.run_on_scheduler = lambda *args, **options: request_with_answers(AttributeError("'NoneType' object"))()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_cluster_that_is_lost__is_reported_with_the_reason_of_the_last_attempt_to_connect(client, monkeypatch):
    monkeypatch.setattr(dask, "RESULT_POLL", 0.01)
    client.scheduler = None

    def reach(seconds):
        raise OSError(CONNECT)

    with pytest.raises(ClusterGoneError) as caught:
        LostExecutor(client, reach)._recover(ClusterError("all workers were lost"))
    assert str(caught.value) == (
        f"the cluster cannot be reached again within 0 s ({CONNECT}) after: all workers were lost"
    )
    with pytest.raises(ClusterGoneError, match="the connection to the scheduler is closed"):
        LostExecutor(client, None)._recover(ClusterError("lost"))
