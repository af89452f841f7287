"""Memory of a family's state, in bytes a word, a pair and a document."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Footprint:
    """Bytes that a family's state takes, from which a fit is planned.

    Attributes
    ----------
    rows, shown : float
        The rows of a word of the vocabulary in a block, and the part of them that sweeps see.
    swept : float
        A word of a shard during a sweep, besides its rows and the delta.
    delta : float
        A word of a shard in a delta.
    pair, document : float
        A pair and a document of a local state.
    chunk : float
        The chunk of documents that a sweep of a spilled local state holds in memory, besides all this.
    first_pair : float
        A pair of the first local state, where those that follow are of another size.
    carried : float
        Responsibilities that a sweep carries over to newly selected topics, besides all this.
    selected : float
        A word of a shard while topics are selected for local states in memory, besides all this.
    proportions : float
        A document's proportions of all topics.
    """

    rows: float
    shown: float
    swept: float
    delta: float
    pair: float
    document: float
    chunk: float
    first_pair: float = 0.0
    carried: float = 0.0
    selected: float = 0.0
    proportions: float = 0.0


def weighed(footprint: Footprint, pairs: int, weights: object) -> Footprint:
    """Return a footprint with the weights of words, if there are any: 8 bytes a word and, during a sweep, 12 a pair."""
    if weights is None:
        return footprint
    rows, shown, swept = (size + 8.0 for size in (footprint.rows, footprint.shown, footprint.swept))
    return replace(footprint, rows=rows, shown=shown, swept=swept, chunk=footprint.chunk + 12.0 * pairs)
