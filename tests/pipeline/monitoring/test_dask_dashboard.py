"""The page, plots and metrics on the dashboard of a running scheduler; tests/pages tests them in a browser."""

import json
import re
import urllib.request
from pathlib import Path

import distributed
import pytest

from collapsium.pipeline.monitoring.dask_dashboard import plugin
from collapsium.pipeline.monitoring.dask_dashboard.plugin import CHARTS, RUNS, TOPIC, Runs, content, install
from collapsium.pipeline.monitoring.events import Feed
from collapsium.pipeline.monitoring.prometheus import RunMetrics
from tests.pipeline.monitoring.test_console import iteration, start

BOARD = Path(__file__).parents[3] / "deploy/grafana/dashboards/collapsium.json"
SWEEPS = {"shards": 2, "total": 0.5, "quartiles": [0.1, 0.2, 0.25, 0.3, 0.4], "slowest": [[1, 0.4]]}
LAST = {
    "score": -5.5,
    "active": 3,
    "tokens": 200.0,
    "tokens_a_second": 400.0,
    "sizes": [[2, 0.75]],
    "moved": [[2, 0.25]],
    "top_words": {"2": ["<b>gene", "dna"]},
    "sweeps": SWEEPS,
    "processes": [{"name": "one:1", "memory": 5_000_000, "doing": ["sweep"]}],
}


def send_events(feed):
    feed({"event": "cluster", "scheduler": "tcp", "workers": 1, "dashboard": None})
    feed(start(holds="documents"))
    feed(iteration(1, score=-6.0, sweeps=SWEEPS))
    feed(iteration(2, **LAST))


@pytest.fixture(scope="module")
def served():
    """A scheduler without workers to which the page was added while it ran, and its URL."""
    cluster = distributed.LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0")
    with cluster, distributed.Client(cluster) as client:
        for _ in range(2):
            client.run_on_scheduler(install)
        send_events(Feed(lambda message: client.log_event(TOPIC, message), "/runs/one", list, 0.0))
        client.log_event(TOPIC, "nonsense")
        yield f"http://127.0.0.1:{cluster.scheduler.http_server.port}", cluster.scheduler


def read(url):
    return urllib.request.urlopen(url, timeout=30).read().decode()


def test_the_page__is_in_the_navigation_of_all_pages(served):
    url, scheduler = served
    assert len(re.findall(r'href="[./]*collapsium"', read(f"{url}/status"))) == 1
    page = read(f"{url}/collapsium")
    assert 'href="status"' in page
    assert "https:" not in page
    assert read(f"{url}/behind/a/proxy/collapsium") == page
    assert "-5.5000" in page
    listed = json.loads(read(f"{url}/individual-plots.json"))
    assert sum(name.startswith("Individual Collapsium") for name in listed) == 5
    for path in listed.values():
        if "collapsium" in path:
            assert "<figure" in read(f"{url}{path}")
    assert any("Task Stream" in name for name in listed)  # Dask's pages are listed too


def test_metrics__are_served_with_those_of_dask(served):
    text = read(f"{served[0]}/metrics")
    run = 'member="",run="/runs/one"'
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("collapsium"))
    assert "dask_scheduler_workers" in text
    assert found[f"collapsium_score{{{run}}}"] == "-5.5"
    assert found[f"collapsium_iteration{{{run}}}"] == "2.0"
    assert found[f"collapsium_tokens_total{{{run}}}"] == "200.0"
    assert found[f"collapsium_kernel_seconds_total{{{run}}}"] == "1.0"
    assert found[f"collapsium_sweep_seconds_count{{{run}}}"] == "4.0"
    assert found['collapsium_sweep_seconds{member="",quantile="0.5",run="/runs/one"}'] == "0.25"
    assert found['collapsium_worker_memory_bytes{run="/runs/one",worker="one:1"}'] == "5e+06"
    assert found['collapsium_run_active{run="/runs/one"}'] == "1.0"


def test_a_limited_number_of_runs__is_remembered(served):
    runs = Runs()
    for number in range(RUNS + 3):
        send_events(Feed(lambda message: runs.log_event(TOPIC, message), f"/runs/{number}", list, 0.0))
    assert list(runs.statuses()) == [f"/runs/{number}" for number in range(3, RUNS + 3)]
    send_events(Feed(lambda message: runs.log_event(TOPIC, message), "/runs/5", list, 0.0))
    assert list(runs.statuses())[-1] == "/runs/5"
    assert runs.statuses()["/runs/5"].fit.iteration == 2


def test_charts__show_the_reported_values(served):
    status = served[1].plugins["collapsium-runs"].statuses()["/runs/one"]
    shown = {name: str(draw(status, status.fit)) for name, draw in CHARTS.items()}
    assert "\N{MINUS SIGN}5.500 after iteration 2" in shown["score"]
    assert "2 &lt;b&gt;gene dna: 75.00%" in shown["sizes"]
    assert shown["sweeps"].count("<path") == 3
    assert ">kernel</title>" in shown["shares"]
    assert "one:1: 5.0 MB" in shown["memory"]
    page = str(content(served[1].plugins["collapsium-runs"]))
    assert "2 of 8" in page
    assert page.count("&lt;b&gt;gene") >= 2
    assert "<b>gene" not in page


def test_the_board__queries_existing_metrics():
    """Each name in the board's queries is one of our metrics or of Dask's."""
    board = json.loads(BOARD.read_text())
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"collapsium_\w+", target["expr"])
    }
    runs = Runs()
    send_events(Feed(lambda message: runs.log_event(TOPIC, message), "one", list, 0.0))
    metrics = RunMetrics()
    metrics.sources.add(runs)
    exported = {sample.name for metric in metrics.collect() for sample in metric.samples}
    unasked = {"collapsium_objective", "collapsium_change"}  # no message has these metrics
    assert asked - unasked <= exported
    places = [panel["gridPos"] for panel in board["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_concurrent_runs__keep_their_order():
    runs = Runs()
    feeds = [Feed(lambda message: runs.log_event(TOPIC, message), name, list, 0.0) for name in ("/runs/a", "/runs/b")]
    for feed in feeds:
        send_events(feed)
    for number in (3, 4):
        for feed in feeds[::-1]:
            feed(iteration(number, **LAST))
        assert list(runs.statuses()) == ["/runs/a", "/runs/b"]
    assert [status.fit.iteration for status in runs.statuses().values()] == [4, 4]


def offered(page, name):
    """Return the options of a selection, and the selected one."""
    select = re.search(rf'<select name="{name}">(.*?)</select>', page)[1]
    return re.findall(r'value="([^"]*)"', select), re.findall(r'value="([^"]*)" selected', select)


def test_the_newest_run__is_shown_until_one_is_chosen():
    runs = Runs()
    assert "No run" in content(runs)
    feed = Feed(lambda message: runs.log_event(TOPIC, message), "/runs/a", list, 0.0)
    send_events(feed)
    send_events(Feed(lambda message: runs.log_event(TOPIC, message), "/runs/b", list, 0.0))
    page = str(content(runs))
    assert offered(page, "run") == (["", "/runs/b", "/runs/a"], [""])
    assert "the newest: /runs/b" in page
    assert offered(str(content(runs, "/runs/a")), "run")[1] == ["/runs/a"]
    feed({"event": "cluster", "scheduler": "tcp", "workers": 1, "dashboard": None})  # the run was resumed
    feed(start(holds="documents", restarts=2))
    for member, score in ((0, -5.0), (1, -6.0)):
        feed({"event": "begin", "member": member, **start()} | {"event": "begin"})
        feed(iteration(1, member=member, score=score))
    page = str(content(runs))
    assert "the newest: /runs/a" in page
    assert offered(page, "member") == (["", "0", "1"], [""])
    assert "-6.0000" in page
    assert "-5.0000" in content(runs, "/runs/a", "0")
    assert "-6.0000" in content(runs, "/runs/a", "nonsense")


def test_a_run_whose_driver_died__is_not_shown_as_running(monkeypatch):
    runs, clock = Runs(), [100.0]
    monkeypatch.setattr(plugin, "time", type("Time", (), {"monotonic": staticmethod(lambda: clock[0])}))
    send_events(Feed(lambda message: runs.log_event(TOPIC, message), "/runs/a", list, 0.0))
    assert runs.state("/runs/a") == "running"
    clock[0] += 3600.0
    assert runs.state("/runs/a") == "no event for 60 min"
