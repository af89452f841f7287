"""Progress of compilation as a line of text, for processes that load no compiler."""

from __future__ import annotations


def progress_text(compiled: int, total: int) -> str:
    """Return how many kernels are compiled, in a line."""
    return f"compiling kernels, once per machine: {compiled} of {total}"
