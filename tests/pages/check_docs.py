"""The site of `make docs`, in Chromium: at two widths, light and dark, by keyboard, and its search."""

import functools
import http.server
import threading
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "build" / "docs"
PAGES = [
    "index.html",
    "start/index.html",
    "choosing.html",
    "auto_tutorials/index.html",
    "auto_tutorials/t1_texts.html",
    "auto_tutorials/t8_notebooks.html",
    "auto_gallery/index.html",
    "auto_gallery/report_page.html",
    "auto_gallery/topic_tree.html",
    "auto_gallery/score_over_time.html",
    "howto/index.html",
    "algorithms/index.html",
    "algorithms/hdp.html",
    "algorithms/networks.html",
    "reference/index.html",
    "reference/commands/fit.html",
    "reference/families/hdp.html",
    "reference/python.html",
    "reference/api/collapsium.pipeline.fit.html",
    "reference/api/collapsium.pipeline.Model.html",
    "reference/api/collapsium.pipeline.estimators.CollapsedLDA.html",
    "reference/formats.html",
    "reference/events.html",
    "benchmarks/papers.html",
    "benchmarks/shapes.html",
    "project/index.html",
]

# Text that is cut off at the right: in no box that scrolls, and beyond the window's edge.
CUT_OFF = """() => {
    const cut = [];
    for (const element of document.querySelectorAll(".bd-article :is(h1, h2, h3, p, dt, li)")) {
        const right = element.getBoundingClientRect().left + element.scrollWidth;
        if (right <= document.documentElement.clientWidth + 1) continue;
        if (!element.closest("table, pre, .math, .sphx-glr-thumbcontainer, [style*=overflow]"))
            cut.push(`${element.tagName} to ${Math.round(right)}: ${element.textContent.slice(0, 40)}`);
    }
    return cut;
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a line a request."""

    def log_message(self, *_):
        """Write nothing."""


@pytest.fixture(scope="module")
def site():
    """The site's address on this machine."""
    if not (SITE / "index.html").exists():
        pytest.skip("build/docs is not there: `make docs` makes it")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("page", PAGES)
def test_page__fits_its_window_and_asks_no_other_machine(site, visits, page, width, dark):
    seen = visits(f"{site}/{page}", width=width, dark=dark)
    name = page.removesuffix(".html").replace("/", "-")
    seen.picture(f"docs-{name}-{width}-{'dark' if dark else 'light'}", whole=False)
    assert seen.overflow() == []
    assert seen.page.evaluate(CUT_OFF) == []
    assert seen.page.evaluate("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    seen.require_clean()


def test_navigation__is_reached_by_keyboard(site, visits):
    seen = visits(f"{site}/index.html")
    reached = []
    for _ in range(20):
        seen.page.keyboard.press("Tab")
        reached.append(seen.page.evaluate("document.activeElement.innerText.trim()"))
    assert reached[0] == "Skip to main content"
    assert {"Start", "Tutorials", "Gallery"} <= set(reached)


def test_navigation__opens_by_keyboard_on_a_telephone(site, visits):
    seen = visits(f"{site}/index.html", width=390)
    link = seen.page.get_by_role("link", name="Reference").first
    assert not link.is_visible()
    seen.page.locator("button.primary-toggle").focus()
    seen.page.keyboard.press("Enter")
    link.wait_for(state="visible", timeout=5000)
    assert link.is_visible()


@pytest.mark.parametrize("word", ["hyperparameter", "checkpoint", "--min-documents"])
def test_search__finds_pages(site, visits, word):
    seen = visits(f"{site}/search.html?q={word}")
    seen.page.locator("#search-results li").first.wait_for(timeout=20000)
    assert seen.page.locator("#search-results li").count() > 0
    seen.require_clean()
