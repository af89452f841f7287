"""Waits for other threads and processes, with timeouts that suffice on the busiest machine."""

import time

PATIENCE = 300
"""Seconds that anything here may take on a machine that many share; what takes longer hangs."""


def wait_until(condition):
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition did not hold before the timeout"
        time.sleep(0.005)
