"""The browser itself: it tells what goes wrong in a page, and lets nothing leave the machine."""

import pytest

from tests.pages.browser import leaves

GOOD = "<!doctype html><html lang=en><meta charset=utf-8><title>good</title><link rel=icon href=data:,><p>hello"
BAD = GOOD + (
    "<p style='width:2000px'>wide<img src=https://example.invalid/a.png alt=x>"
    "<script>console.error('said');new WebSocket('wss://example.invalid/');throw new Error('thrown')</script>"
)


def test_pages__that_are_well_are_clean(visits, tmp_path):
    (tmp_path / "good.html").write_text(GOOD)
    seen = visits(tmp_path / "good.html", width=400)
    seen.require_clean()
    assert seen.page.inner_text("p") == "hello"
    assert seen.requests[0].endswith("good.html")
    assert seen.overflow() == []
    assert seen.sizes() == [(16, "hello")]
    assert seen.picture("browser").stat().st_size > 0


def test_faults__are_reported_and_nothing_leaves(visits, tmp_path):
    (tmp_path / "bad.html").write_text(BAD)
    seen = visits(tmp_path / "bad.html", width=400)
    assert any("said" in text for text in seen.console)
    assert any("thrown" in text for text in seen.errors)
    assert set(seen.refused) == {"https://example.invalid/a.png", "wss://example.invalid/"}
    assert any("P." in text for text in seen.overflow())
    with pytest.raises(AssertionError, match="thrown"):
        seen.require_clean()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8787/x", False),
        ("ws://localhost:1/ws", False),
        ("http://[::1]:8787/", False),
        ("data:text/html,x", False),
        ("file:///tmp/x.html", False),
        ("http://127.0.0.1.example.org/", True),
        ("https://cdn.example.org/a.js", True),
    ],
)
def test_leaving__is_known_by_the_host(url, expected):
    assert leaves(url) is expected
