"""Fixtures of the checks of pages; each check_*.py is a pytest file that only `make pages` collects."""

import contextlib

import pytest

# Playwright is not among what `make test` installs, which passes here on its way: it is imported when it is used.


@pytest.fixture(scope="session")
def browser():
    """Chromium, started once."""
    from tests.pages.browser import chromium

    with chromium() as started:
        yield started


@pytest.fixture
def visits(browser):
    """Open pages, as `visit` does, that are closed at the test's end."""
    from tests.pages.browser import visit

    with contextlib.ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(visit(browser, *args, **options))
