"""Cells of a comparison that are fits of other libraries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RANDOM, WARM = "random", "warm"


@dataclass(frozen=True)
class PeerCell:
    """One fit of another library: its name, K (None where it finds it), what it starts from, and the options."""

    name: str
    peer: str
    topics: int | None
    start: int
    options: dict[str, Any]
