"""The page of runs on the Dask dashboard: live, readable, and with the figures of the run's events."""

import json
import threading
import time
import urllib.request

import distributed
import pytest

from collapsium.pipeline import fit
from collapsium.storage.runs.run import Run
from tests.conftest import simulated_rows, write_corpus

ITERATIONS = 40
SCORE = "() => Boolean(document.querySelector('#score svg path'))"
LATER = "before => document.querySelector('#score .last').textContent !== before"
ENDED = "() => document.querySelector('#figures')?.textContent.includes('ended')"


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
    train = write_corpus(place / "train", simulated_rows(1, documents=200, words=60), 60, shard_tokens=1500)
    heldout = write_corpus(place / "heldout", simulated_rows(2, documents=200, words=60), 60, shard_tokens=1500)
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


def titles(seen, chart):
    """The tooltips of the marks of a chart."""
    return seen.page.locator(f"#{chart} title").all_text_contents()


def test_page__shows_a_fit_while_it_runs(fitting, visits):
    _, url, thread = fitting
    seen = visits(f"{url}/collapsium")
    seen.page.wait_for_function(SCORE, timeout=60000)
    assert thread.is_alive()
    before = seen.page.locator("#score .last").text_content()
    seen.page.wait_for_function(LATER, arg=before, timeout=60000)
    seen.require_clean()


def test_page__has_the_figures_of_the_events(fitting, visits):
    run, url, thread = fitting
    thread.join(120)
    shown = iterations(run)
    for width in (1280, 400):
        seen = visits(f"{url}/collapsium", width=width)
        seen.page.wait_for_function(SCORE, timeout=60000)
        seen.page.wait_for_function(ENDED, timeout=60000)
        last = shown[-1]
        assert f"after iteration {ITERATIONS}" in seen.page.locator("#score .last").text_content()
        sizes = [(title.split()[0], title.rpartition(": ")[2]) for title in titles(seen, "sizes")]
        assert sizes == [(str(int(topic)), f"{share:.2%}") for topic, share in last["sizes"][:15]]
        assert seen.page.locator("#sweeps path").count() == 3
        assert titles(seen, "shares") == ["kernel", "reduce", "score", "update", "wait"]
        told_last = [event["processes"] for event in shown if "processes" in event][-1]
        assert [title.rpartition(": ")[0] for title in titles(seen, "memory")] == [
            record["name"] for record in told_last
        ]
        figures = seen.page.locator("#figures").text_content()
        assert f"{last['score']:.4f}" in figures
        assert f"{ITERATIONS} of {ITERATIONS}" in figures
        assert seen.overflow() == []
        assert all(size >= 10 for size, _ in seen.sizes())
        seen.require_clean()
        assert seen.picture(f"dashboard-{width}").stat().st_size > 10000


def test_page__is_in_the_navigation_and_in_lists(fitting, visits):
    _, url, _ = fitting
    seen = visits(f"{url}/status")
    seen.page.click("a[href='collapsium']")
    seen.page.wait_for_url(f"{url}/collapsium")
    listed = json.loads(urllib.request.urlopen(f"{url}/individual-plots.json").read())
    pages = {name: path for name, path in listed.items() if "Collapsium" in name}
    assert len(pages) == 5
    for path in pages.values():
        visit = visits(f"{url}{path}", width=400, height=300)
        assert visit.page.locator("figure svg").count()
        visit.require_clean()
