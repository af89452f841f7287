"""Waits of tests for what other threads and processes do, so long that no machine is too busy."""

import time

PATIENCE = 300
"""Seconds that anything here may take on a machine that many share; what takes longer hangs."""


def wait_until(condition):
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it does not come to pass"
        time.sleep(0.005)
