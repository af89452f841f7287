"""The page of runs on the Dask dashboard: live, readable, and with the figures of the run's events."""

import json
import threading
import time
import urllib.request

import distributed
import pytest

from collapsium.pipeline import fit
from collapsium.storage.runs.run import Run
from tests.conftest import planted_rows, write_corpus

ITERATIONS = 40
DATA = "name => Bokeh.documents[0].get_model_by_name(name).data"
SCORE = "() => window.Bokeh && Bokeh.documents.length > 0 && Bokeh.documents[0].get_model_by_name('score-data')?.data.value.length > 2"
LATER = "before => Bokeh.documents[0].get_model_by_name('score-data').data.iteration.at(-1) > before"
ENDED = (
    "() => (document.documentElement.outerHTML, Bokeh.documents[0].get_model_by_name('figures').text.includes('ended'))"
)


@pytest.fixture(scope="module")
def cluster():
    """A cluster that knows nothing of Collapsium until a driver comes."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as started:
        yield started


def slowly(event):
    """Let the fit last for as long as it takes to look at it."""
    if event["event"] == "iteration":
        time.sleep(0.25)


@pytest.fixture(scope="module")
def fitting(cluster, tmp_path_factory):
    """A fit on its way: its folder, the page's address and its thread."""
    place = tmp_path_factory.mktemp("dashboard")
    train = write_corpus(place / "train", planted_rows(1, documents=200, words=60), 60, shard_tokens=1500)
    heldout = write_corpus(place / "heldout", planted_rows(2, documents=200, words=60), 60, shard_tokens=1500)
    options = {"family": "lda", "topics": 12, "iterations": ITERATIONS, "heldout": str(heldout)}
    options.update(scheduler=cluster.scheduler_address, sinks=[slowly])
    thread = threading.Thread(target=fit, args=(str(train), str(place / "run")), kwargs=options, daemon=True)
    thread.start()
    port = cluster.scheduler.http_server.port
    deadline = time.monotonic() + 120
    while not (place / "run" / "events.jsonl").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    yield place / "run", f"http://127.0.0.1:{port}", thread
    thread.join(120)


def iterations(run):
    return [event for event in Run(run).events() if event["event"] == "iteration"]


def data(seen, name):
    found = seen.page.evaluate(DATA, f"{name}-data")
    return {key: [float(one) for one in (values.values() if isinstance(values, dict) else values)]
            if key not in ("topic", "words", "worker") else list(values) for key, values in found.items()}  # fmt: skip


def test_page__shows_a_fit_as_it_goes_on(fitting, visits):
    run, url, thread = fitting
    seen = visits(f"{url}/collapsium")
    seen.page.wait_for_function(SCORE, timeout=60000)
    assert thread.is_alive()
    before = data(seen, "score")["iteration"][-1]
    seen.page.wait_for_function(LATER, arg=before, timeout=60000)
    assert data(seen, "score")["iteration"][-1] > before
    seen.require_clean()


def test_page__has_the_figures_of_the_events(fitting, visits):
    run, url, thread = fitting
    thread.join(120)
    told = iterations(run)
    for width in (1280, 400):
        seen = visits(f"{url}/collapsium", width=width)
        seen.page.wait_for_function(SCORE, timeout=60000)
        seen.page.wait_for_function(ENDED, timeout=60000)
        score = data(seen, "score")
        by_iteration = {event["iteration"]: event for event in told}
        assert score["iteration"][-1] == ITERATIONS
        assert score["value"] == [by_iteration[int(one)]["score"] for one in score["iteration"]]
        last = told[-1]
        sizes = data(seen, "sizes")
        assert [[int(one), share] for one, share in zip(sizes["topic"], sizes["share"], strict=True)] == last["sizes"][
            :15
        ]
        sweeps = data(seen, "sweeps")
        assert [sweeps[name][-1] for name in ("least", "low", "half", "high", "most")] == last["sweeps"]["quartiles"]
        shares = data(seen, "shares")
        whole = sum(last["seconds"].values())
        for name, spent in last["seconds"].items():
            assert shares[name][-1] == pytest.approx(spent / whole, abs=1e-6)
        memory = data(seen, "memory")
        told_last = [event["processes"] for event in told if "processes" in event][-1]
        assert memory["bytes"] == [one["memory"] for one in told_last]
        figures = seen.page.evaluate("() => Bokeh.documents[0].get_model_by_name('figures').text")
        assert f"{last['score']:.4f}" in figures
        assert f"{ITERATIONS} of {ITERATIONS}" in figures
        assert seen.overflow() == []
        assert all(size >= 10 for size, _ in seen.sizes())  # of what is not drawn on a canvas
        seen.require_clean()
        assert seen.picture(f"dashboard-{width}").stat().st_size > 10000


def test_page__is_in_the_navigation_and_in_lists(fitting, visits):
    _, url, _ = fitting
    seen = visits(f"{url}/status")
    seen.page.click("a[href='collapsium']")
    seen.page.wait_for_url(f"{url}/collapsium")
    listed = json.loads(urllib.request.urlopen(f"{url}/individual-plots.json").read())
    ours = {name: path for name, path in listed.items() if "Collapsium" in name}
    assert len(ours) == 5
    for path in ours.values():
        one = visits(f"{url}{path}", width=400, height=300)
        one.page.wait_for_function("() => Bokeh.documents.length > 0", timeout=60000)
        one.require_clean()
