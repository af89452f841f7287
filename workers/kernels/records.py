"""Named tuples of arrays that kernels of several families take."""

from __future__ import annotations

from typing import NamedTuple

from collapsium.workers.kernels.argument_types import Int32Vector, Int64Vector


class DocumentPairs(NamedTuple):
    """The documents of a shard as pairs of a word and its count.

    Attributes
    ----------
    offsets : numpy.ndarray of int64, shape (documents + 1,)
        Document d has the pairs ``offsets[d]`` to ``offsets[d + 1] - 1``.
    position : numpy.ndarray of int32, shape (pairs,)
        Row of each pair's word.
    counts : numpy.ndarray of int32, shape (pairs,)
        Count of each pair.
    """

    offsets: Int64Vector
    position: Int32Vector
    counts: Int32Vector
