"""How long work tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

Counting = Callable[[int], None]
"""Told the number of documents done so far."""


def silent(documents: int) -> None:
    """Do nothing with the number of documents."""
