"""Which topics a document lists, chosen anew every few sweeps; see `listed`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from collapsar.workers import buffers
from collapsar.workers.kernels import lists
from collapsar.workers.parameters import Parameters
from collapsar.workers.portions import Ints, Portion, Steps, starts_of
from collapsar.workers.rows import Rows, listing_of

Chosen = tuple[Steps, Ints]

WHOLE = 128  # up to so many topics a document begins with all of them, and may keep them
ROOM, PAIRS_A_TOPIC = 24, 8  # a document may list 24 topics and one for each 8 of its pairs
LEAST = 0.01  # tokens; a topic is active if more than this, and more than its prior, are expected of it


def room(offsets: Ints, topics: int, most: int) -> Ints:
    """Return how many topics each document may list, shape (documents,), from where its pairs begin."""
    lengths = np.diff(offsets)
    places: Ints = np.minimum(room_for(lengths, topics, most), topics) + np.zeros_like(lengths)
    return places


def room_for(pairs: Any, topics: int, most: int) -> Any:
    """Return how many topics documents of so many pairs may list, of those that there are."""
    if most:
        return most
    return topics if topics <= WHOLE else ROOM + pairs // PAIRS_A_TOPIC


def choose(portion: Portion, working: Rows, parameters: Parameters) -> Chosen:
    """Choose the topics of each document of a portion anew.

    Parameters
    ----------
    portion : Portion
        The documents with their lists.
    working : Rows
        The shard's rows.
    parameters : Parameters
        For the updates.

    Returns
    -------
    topic : numpy.ndarray of uint16, shape (listed,)
        Active topics, ascending in a document.
    sizes : numpy.ndarray of int64, shape (documents,)
        How many each document has.
    """
    most = listing_of(parameters).most
    places = np.concatenate([[0], np.cumsum(room(portion.offsets, parameters.topics.size, most))]).astype(np.int64)
    chosen, sizes = buffers.empty(int(places[-1]), np.uint16), np.empty(portion.rest.size, dtype=np.int64)
    lists.choose(
        portion.offsets,
        portion.position,
        portion.counts,
        parameters.words,
        working.background,
        parameters.topics,
        working.totals,
        np.maximum(parameters.topics, LEAST),
        portion.lists,
        portion.topic,
        portion.starts,
        portion.share,
        portion.count,
        working.active,
        working.spreading,
        working.even,
        working.weight,
        places,
        chosen,
        sizes,
    )
    within = np.arange(chosen.size) - np.repeat(places[:-1], np.diff(places)) < np.repeat(sizes, np.diff(places))
    return chosen[within], sizes


def carry(portion: Portion, working: Rows, chosen: Chosen) -> Portion:
    """Carry a portion's responsibilities over to the lists that were chosen.

    Parameters
    ----------
    portion : Portion
        With its lists so far.
    working : Rows
        The shard's rows; what dropped topics held falls to the background.
    chosen : tuple of numpy.ndarray
        As `choose` gave it.

    Returns
    -------
    Portion
        With the new lists, before the sweep.
    """
    topic, listed = chosen[0], np.concatenate([[0], np.cumsum(chosen[1])]).astype(np.int64)
    if np.array_equal(listed, portion.lists) and np.array_equal(topic, portion.topic):
        return portion
    starts = starts_of(portion.offsets, listed)
    share = buffers.zeros(int(starts[-1]), np.uint16)
    count, rest = np.empty(topic.size, dtype=np.float32), np.empty_like(portion.rest)
    lists.carry(
        portion.offsets,
        portion.position,
        portion.counts,
        portion.lists,
        portion.topic,
        portion.starts,
        portion.share,
        listed,
        topic,
        starts,
        working.change,
        working.rest_change,
        share,
        count,
        rest,
    )
    return replace(portion, lists=listed, topic=topic, count=count, rest=rest, share=share)
