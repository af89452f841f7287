"""Fixtures for the tests of the command line."""

import signal

import pytest


@pytest.fixture(autouse=True)
def _restore_signals():
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
