"""Fixtures of the checks of pages; each check_*.py is a pytest file that only `make pages` collects."""

import contextlib

import pytest

from tests.pages.browser import chromium, visit


@pytest.fixture(scope="session")
def browser():
    """Chromium, started once."""
    with chromium() as started:
        yield started


@pytest.fixture
def visits(browser):
    """Open pages, as `visit` does, that are closed at the test's end."""
    with contextlib.ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(visit(browser, *args, **options))
