"""What each worker process of a local cluster does first: leave Ctrl-C to the driver.

A terminal sends the signal to the workers too; if it stopped them, the driver could not keep what it has.
"""

from __future__ import annotations

import signal
import threading
from typing import Any


def dask_setup(worker: Any) -> None:  # noqa: ARG001 - Dask calls it so
    """Ignore SIGINT."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
