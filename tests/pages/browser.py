"""Pages in a headless Chromium that reaches this machine alone: what they show, and what goes wrong in them.

with chromium() as browser, visit(browser, url, width=400) as seen:
    assert seen.page.locator("h1").inner_text() == "..."
    seen.require_clean()
"""

import contextlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HERE = ("localhost", "127.0.0.1", "::1", "[::1]")
PLAIN = ("file", "data", "blob", "about")  # schemes that reach no other machine
PICTURES = Path(__file__).parents[2] / "build" / "pages"
FLAGS = (
    "--no-sandbox",  # root may not use it
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A request that no page makes does not leave the machine either.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
)
# Elements that stick out of the window to the right, unless something around them scrolls or cuts them off.
OVERFLOW = """() => {
    const out = [];
    for (const element of document.body.querySelectorAll("*")) {
        const box = element.getBoundingClientRect();
        if (box.width === 0 || box.right <= document.documentElement.clientWidth + 1) continue;
        let around = element, held = false;
        while (around && around !== document.body) {
            if (getComputedStyle(around).overflowX !== "visible" || around instanceof SVGElement) held = true;
            around = around.parentElement;
        }
        if (!held) out.push(`${element.tagName}.${element.className} to ${Math.round(box.right)}`);
    }
    if (document.documentElement.scrollWidth > window.innerWidth)
        out.push(`the page is ${document.documentElement.scrollWidth} wide in a window of ${window.innerWidth}`);
    return out;
}"""
# The sizes of all text that is shown, the smallest first, each with some of it.
SIZES = """() => {
    const found = new Map();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const element = node.parentElement, text = node.textContent.trim();
        // What a container query hides has no box, but counts as visible.
        if (!text || !element.checkVisibility({visibilityProperty: true}) || !element.getClientRects().length) continue;
        let size = parseFloat(getComputedStyle(element).fontSize);
        const matrix = element instanceof SVGElement && element.getScreenCTM && element.getScreenCTM();
        if (matrix) size *= Math.hypot(matrix.a, matrix.b);
        size = Math.round(10 * size) / 10;
        if (!found.has(size)) found.set(size, text.slice(0, 40));
    }
    return [...found].sort((one, other) => one[0] - other[0]);
}"""


def find_chromium():
    """Return the path of Chromium, which COLLAPSIUM_CHROMIUM may name; None where there is none."""
    named = os.environ.get("COLLAPSIUM_CHROMIUM")
    return named or next((found for found in map(shutil.which, NAMES) if found), None)


@contextlib.contextmanager
def chromium():
    """Start Chromium with a fresh profile."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_chromium(), headless=True, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def leaves(url):
    """Say whether a request for a URL would leave the machine."""
    parts = urlsplit(url)
    return parts.scheme not in PLAIN and (parts.hostname or "") not in HERE


@dataclass
class Seen:
    """An open page (Playwright's, as `page`) and what has been heard of it since it was opened."""

    page: Page
    console: list = field(default_factory=list)  # errors and warnings
    errors: list = field(default_factory=list)  # exceptions that nobody caught
    requests: list = field(default_factory=list)  # URLs, of web sockets too; the page's own is the first
    refused: list = field(default_factory=list)  # those that would have left the machine
    failed: list = field(default_factory=list)  # those that had no answer, or one of 400 and above

    def require_clean(self):
        """Fail if the console had an error or warning, a request failed, or one would have left the machine."""
        faults = {name: getattr(self, name) for name in ("console", "errors", "refused", "failed")}
        assert not any(faults.values()), {name: found for name, found in faults.items() if found}

    def overflow(self):
        """Name what makes the page wider than its window."""
        return self.page.evaluate(OVERFLOW)

    def sizes(self):
        """Return the sizes of the text that is shown, in pixels, the smallest first, each with some of that text."""
        return [tuple(size) for size in self.page.evaluate(SIZES)]

    def picture(self, name, *, whole=True):
        """Write a screenshot to build/pages, of the whole page or of what the window shows; return its path."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        path = PICTURES / f"{name}.png"
        self.page.screenshot(path=path, full_page=whole)
        return path


@contextlib.contextmanager
def visit(browser, url, *, width=1280, height=900, dark=False, wait="load"):
    """Open a page (a URL, or the path of a file) in a window of a width, in pixels, light or dark.

    `wait` says until when: ``load``, ``domcontentloaded``, or ``networkidle`` for pages without web sockets.
    """
    url = url if "://" in str(url) else Path(url).resolve().as_uri()
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        service_workers="block",
    )
    try:
        context.route("**/*", lambda route: _route(route, seen))
        context.route_web_socket(leaves, lambda socket: seen.refused.append(socket.url))
        page = context.new_page()
        seen = Seen(page)
        _listen(page, seen)
        page.goto(url, wait_until=wait)
        yield seen
    finally:
        context.close()


def _route(route, seen):
    if leaves(route.request.url):
        seen.refused.append(route.request.url)
        route.abort()
    else:
        route.continue_()


def _listen(page, seen):
    def record_message(message):
        if message.type in ("error", "warning"):
            seen.console.append(f"{message.type}: {message.text}")

    def answered(response):
        if response.status >= 400:
            seen.failed.append(f"{response.url}: {response.status}")

    page.on("console", record_message)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("websocket", lambda socket: seen.requests.append(socket.url))
    page.on("response", answered)
    page.on("requestfailed", lambda request: seen.failed.append(f"{request.url}: {request.failure}"))
