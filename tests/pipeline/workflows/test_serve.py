"""The service: its answers, its limits, and versions that are published while it answers."""

import contextlib
import http.client
import itertools
import json
import shutil
import socket
import threading

import numpy as np
import pytest

from collapsium.pipeline import Model, fit, serve, topics
from collapsium.storage.errors import AbsentError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump
from collapsium.storage.runs.published import RECORD, VersionRecord, Versions, copy_run
from collapsium.storage.runs.run import Run

app = pytest.importorskip("collapsium.pipeline.workflows.serve_app", reason="the extra serve is not installed")
from collapsium.pipeline.workflows.serve_options import ServeOptions  # noqa: E402
from tests.waiting import PATIENCE, wait_until  # noqa: E402

ANIMALS, MARKETS = "cats and dogs purr and bark", "stocks and bonds rise on markets"
TEXTS = [ANIMALS if n % 2 else MARKETS for n in range(8)]
HEADERS = {"Content-Type": "application/json"}
RECORDED = {
    "plan": "0", "created": "2026-01-01T00:00:00+00:00", "family": "lda", "corpus": "0", "documents": 8, "tokens": 40,
    "words": 8, "iterations": 4, "score": None, "scored": 0, "definition": "", "job": "news",
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    how = {"family": "lda", "iterations": 4, "scheduler": "serial"}
    return [fit(TEXTS, place / str(topics), topics=topics, **how) for topics in (2, 3)]


@pytest.fixture
def job(tmp_path, runs):
    """The file of a job, and a function that publishes its next version, alternating between two and three topics."""
    path, versions, numbers = tmp_path / "job.toml", Versions(Folder(tmp_path / "job/published")), itertools.count(1)
    path.write_text('[batch]\nfolder = "job"\n[ingest]\nsources = ["*.jsonl"]\n[fit]\nfamily = "lda"\ntopics = 2\n')

    def publish():
        number = next(numbers)
        with versions.made(number) as version:
            copy_run(Run(runs[(number - 1) % 2]), version)
            version.write(RECORD, dump(VersionRecord(number=number, **RECORDED).model_dump(mode="json")))
        versions.point(number)
        versions.keep(1)
        return number

    return path, publish


@contextlib.contextmanager
def running(source, notice=lambda _: None, **options):
    """Run the service of a run or job in a thread, and yield its port."""
    options = ServeOptions(port=0, threads=2, every=0.05, **options)
    service = app.Service(app.ModelSource.of(source, options), options, notice)
    server = app.server_of(service)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(timeout=PATIENCE)
    assert not thread.is_alive()


def ask(port, method="POST", path="/score", body=None, headers=HEADERS):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request(method, path, json.dumps(body) if isinstance(body, dict) else body, headers)
        response = connection.getresponse()
        return response.status, response.read()


def test_answers__equal_the_proportions_of_transform(runs):
    texts = ["Cats purr", "stocks rise, gnus too", ""]
    with running(runs[0]) as port:
        status, body = ask(port, body={"texts": texts, "topics": 1, "words": 2, "dense": True})
        assert status == 200
        with pytest.warns(UserWarning, match="1 of 5 tokens"):
            answer, shares = json.loads(body), runs[0].transform(texts)
        np.testing.assert_allclose([row["dense"] for row in answer["documents"]], shares, atol=1e-6)
        for row, expected in zip(answer["documents"], shares, strict=True):
            assert row["topics"] == [expected.argmax()]
            assert row["proportions"] == [round(expected.max(), 6)]
        assert [(row["tokens"], row["unknown"]) for row in answer["documents"]] == [(2, 0), (2, 1), (0, 0)]
        words = {str(topic.id): topic.names for topic in topics(runs[0], 2)}
        assert {topic: described["words"] for topic, described in answer["topics"].items()}.items() <= words.items()
        assert json.loads(ask(port, body={"texts": []})[1])["documents"] == []
        assert json.loads(ask(port, "GET", "/health")[1])["family"] == "lda"
        assert set(json.loads(ask(port, "GET", "/topics")[1])["topics"]) == {"0", "1"}
        metrics = ask(port, "GET", "/metrics")[1].decode()
        assert 'collapsium_service_tokens_total{vocabulary="unknown"} 1.0' in metrics
        assert "collapsium_service_texts_total 3.0" in metrics


WRONG = {
    "no JSON": (b'{"texts": ["secret', 400, "Invalid JSON"),
    "nesting": (b"[" * 100_000, 400, "Invalid JSON"),
    "numbers": ({"texts": ["a", 1]}, 400, "texts.1: Input should be a valid string"),
    "half a character": (b'{"texts": ["\\ud83d"]}', 400, "Invalid JSON"),
    "no texts": ({"text": ["secret"]}, 400, "texts: Field required"),
    "a wrong field": ({"texts": [], "topic": 3}, 400, "topic: Extra inputs are not permitted"),
    "too many words": ({"texts": [], "words": 51}, 400, "words: Input should be less than or equal to 50"),
    "too many texts": ({"texts": ["a"] * 9}, 413, "expected at most 8 texts, found 9"),
    "too many bytes": ({"texts": ["a" * 200_000]}, 413, "expected at most 100 KB"),
}


def test_invalid_requests__are_refused_in_one_line_and_do_not_affect_the_next(runs):
    with running(runs[0], max_texts=8, max_bytes=100_000) as port:
        for name, (body, status, text) in WRONG.items():
            found, answer = ask(port, body=body)
            line = json.loads(answer)["error"]
            assert (found, text in line, "secret" in line) == (status, True, False), (name, line)
        assert ask(port, body=b"{}", headers={})[0] == 415
        assert ask(port, "GET") == (405, b'{"error":"Method Not Allowed"}')
        assert ask(port, path="/nowhere", body=b"") == (404, b'{"error":"Not Found"}')
        assert ask(port, body={"texts": TEXTS})[0] == 200


def test_senders_of_refused_requests__get_the_answer_and_no_reset(runs):
    body = b'{"texts": ["' + b"a" * 20_000_000
    with running(runs[0], max_bytes=1000) as port:
        for headers, status in (({"Content-Type": "application/json"}, 413), ({"Content-Type": "text/plain"}, 415)):
            assert ask(port, body=body, headers=headers)[0] == status


def test_slow_and_endless_requests__are_cut_off(runs):
    head = b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    beginnings = {
        "headers": (b"POST /sco", b""),
        "body": (head + b"Content-Length: 100\r\n\r\n{", b"HTTP/1.1 408"),
        "chunks": (head + b"Transfer-Encoding: chunked\r\n\r\n" + b"800\r\n" + b"x" * 2048 + b"\r\n", b"HTTP/1.1 413"),
        "long headers": (head + b"X: " + b"x" * 40_000, b"HTTP/1.1 400"),
    }
    with running(runs[0], max_seconds=2.0, max_bytes=1000) as port:
        with contextlib.ExitStack() as stack:
            slow = {}
            for name, (beginning, _) in beginnings.items():
                slow[name] = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
                slow[name].sendall(beginning)
            assert ask(port, body={"texts": ["cats"]})[0] == 200  # other requests are answered meanwhile
            for name, (_, answer) in beginnings.items():
                with contextlib.suppress(ConnectionResetError):
                    received = b"".join(iter(lambda name=name: slow[name].recv(4096), b""))
                    assert received.startswith(answer), name
        assert ask(port, body={"texts": ["cats"]})[0] == 200


def test_too_many_concurrent_requests__are_refused_with_503(runs, monkeypatch):
    scorer, gate = app.Service._scored, threading.Event()
    monkeypatch.setattr(app.Service, "_scored", lambda *args: (gate.wait(PATIENCE), scorer(*args))[1])
    statuses = []
    with running(runs[0], max_waiting=2) as port:
        threads = [
            threading.Thread(target=lambda: statuses.append(ask(port, body={"texts": ["cats"]})[0])) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(statuses) >= 2)
        gate.set()
        for thread in threads:
            thread.join()
    assert sorted(statuses) == [200, 200, 503, 503]


def test_versions__can_be_published_under_load_without_a_failed_request(job):
    path, publish = job
    publish()
    answers, notices, stop = [], [], threading.Event()

    def load(port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        with contextlib.closing(connection):
            while not stop.is_set():
                connection.request("POST", "/score", json.dumps({"texts": TEXTS, "dense": True}), HEADERS)
                response = connection.getresponse()
                answers.append((response.status, json.loads(response.read())))

    with running(path, notices.append) as port:
        threads = [threading.Thread(target=load, args=(port,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            number = publish()
            wait_until(lambda number=number: any(answer["version"] == number for _, answer in answers[-8:]))
        stop.set()
        for thread in threads:
            thread.join()
    assert {status for status, _ in answers} == {200}
    served = [(answer["version"], len(answer["documents"][0]["dense"])) for _, answer in answers]
    assert {number for number, _ in served} == {1, 2, 3, 4}
    assert all(topics == 2 + (number - 1) % 2 for number, topics in served)
    assert notices[-1] == "news, version 4 of 2026-01-01 is loaded"


def test_a_job_that_is_started_anew__replaces_a_version_of_the_same_number(job, runs):
    path, publish = job
    publish()
    notices, changed = [], {"number": 1, **RECORDED, "created": "2026-02-02T00:00:00+00:00"}
    with running(path, notices.append) as port:
        shutil.rmtree(path.parent / "job")
        versions = Versions(Folder(path.parent / "job/published"))
        with versions.made(1) as version:
            copy_run(Run(runs[1]), version)
            version.write(RECORD, dump(VersionRecord(**changed).model_dump(mode="json")))
        versions.point(1)
        wait_until(lambda: notices)
        assert json.loads(ask(port, "GET", "/health")[1])["topics"] == 3
    assert notices == ["news, version 1 of 2026-02-02 is loaded"]


def test_a_damaged_version__is_reported_and_the_preceding_one_stays(job):
    path, publish = job
    publish()
    versions, notices = Versions(Folder(path.parent / "job/published")), []
    with running(path, notices.append) as port:
        with versions.made(2) as version:
            version.write(RECORD, dump(VersionRecord(number=2, **RECORDED).model_dump(mode="json")))
        versions.point(2)
        wait_until(lambda: notices)
        health = json.loads(ask(port, "GET", "/health")[1])
        assert (health["version"], "there is no model" in health["fault"].lower() or "0002" in health["fault"]) == (
            1,
            True,
        )
        assert ask(port, body={"texts": ["cats"]})[0] == 200
        versions.point(1)
        wait_until(lambda: json.loads(ask(port, "GET", "/health")[1])["fault"] is None)
    assert len(notices) == 1


def test_runs_that_cannot_be_served__are_refused_in_one_line(job, runs, tmp_path):
    with pytest.raises(AbsentError, match="no version has been published yet; `batch` publishes one"):
        serve(job[0], port=0)
    with pytest.raises(AbsentError):
        serve(tmp_path / "nothing", port=0)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OptionError, match="cannot listen on 127"):
        serve(Model(runs[0]), port=taken.getsockname()[1])
