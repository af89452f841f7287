"""Named tuples of arrays that kernels of several families take."""

from __future__ import annotations

from typing import NamedTuple

from collapsium.workers.kernels.argument_types import Int32Vector, Int64Vector


class DocumentPairs(NamedTuple):
    """Documents as pairs of a word and its count.

    Attributes
    ----------
    offsets : int64, shape (documents + 1,)
        Index of each document's first pair; the last is the number of pairs.
    position : int32, shape (pairs,)
        Row of each pair's word, in arrays that have a row a word.
    counts : int32, shape (pairs,)
        Tokens of each pair.
    """

    offsets: Int64Vector
    position: Int32Vector
    counts: Int32Vector
