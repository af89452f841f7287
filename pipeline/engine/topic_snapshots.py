"""Snapshots of the topics during a fit: their sizes, those whose share changed most, and now and then their top words.

Sizes follow from the global state. They are reported of each iteration, and are the same for the same state. Words are
stored in the blocks, and reading them takes a worker's time. They are fetched rarely, while the next sweeps run; the
time depends on the clock.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.exchange import HeldParts, links_of
from collapsium.pipeline.engine.state import Problem, State, TopicSizes
from collapsium.pipeline.executors.base import Future
from collapsium.workers.arrays.state import GlobalState
from collapsium.workers.families.description import shape_of
from collapsium.workers.families.family import AnyFamily
from collapsium.workers.tasks import Block

SIZES = 20  # Largest topics whose shares are reported
MOVED = 5  # Topics reported whose shares changed most
NAMED = 200  # Largest topics whose words are fetched, besides those whose shares changed most
WORDS = 6  # Words of a topic
DIGITS = 5  # Decimals of a share
MIN_ACTIVE_SHARE = 1e-6  # Share of the tokens from which on a topic counts as active
MIN_SECONDS = 5.0  # Least time between two fetches of words
MAX_SECONDS = 30.0  # Time after which words are fetched again, at the next iteration
FETCHES = 10  # Fetches over the planned iterations, at least, whatever they cost
COST_FACTOR = 200.0  # Least time between two fetches, as a multiple of the worker time of the last
RUN_SHARE = 0.02  # Least time between two fetches, as a share of the time of the run
CELLS = 1 << 18  # Numbers of a block that are read at a time: few enough to stay in a core's cache
# Numbers of a block for which another task is worth it: they take 10 ms, a task on a cluster 4 ms
TASK_CELLS = 1 << 21


@dataclass(frozen=True)
class TopWords:
    """The largest probabilities or loadings of some topics in a block."""

    ids: npt.NDArray[np.int64]  # Permanent ids of the topics; int64 (topics,)
    words: npt.NDArray[np.int64]  # Ids of words, in no order; -1 where there are fewer; int64 (topics, words)
    values: npt.NDArray[np.float64]  # Their probabilities or loadings; float64 (topics, words)
    seconds: float  # Time that reading them took


def topic_sizes(family: AnyFamily, global_state: GlobalState) -> tuple[dict[int, float], int]:
    """Return the sizes of the topics."""
    # A description of no words has only the sizes.
    rows = family.finished_rows(family.initial_rows(0, global_state), global_state)
    topics = family.describe(rows, global_state, 0)
    shares = topics.share if topics.parent is None else shape_of(topics.ids, topics.parent, topics.share).below
    active = int(np.count_nonzero(shares >= MIN_ACTIVE_SHARE))
    return dict(zip(topics.ids.tolist(), topics.share.tolist(), strict=True)), active


def top_words(
    family: AnyFamily,
    block: Block,
    global_state: GlobalState,
    ids: Sequence[int],
    count: int,
    part: tuple[int, int] = (0, 1),
) -> list[TopWords]:
    """Return the top words of some topics in a part of a block, which is read in pieces to take little memory.

    They are a list of one, as hosts of an exchange make one of each of their blocks.
    """
    began = time.perf_counter()
    words = np.full((len(ids), count), -1, dtype=np.int64)
    values = np.zeros((len(ids), count))
    width = max((rows[:1].size for rows in block.rows.to_arrays().values()), default=1)
    step = max(CELLS // max(width, 1), 1)
    first, last = ((block.high - block.low) * number // part[1] for number in (part[0], part[0] + 1))
    for low in range(first, last, step):
        rows = block.rows.of_words(slice(low, min(low + step, last)), complete=True)
        topics = family.describe(family.finished_rows(rows, global_state), global_state, count)
        row_of = {topic: row for row, topic in enumerate(topics.ids.tolist())}
        known = np.array([number for number, topic in enumerate(ids) if topic in row_of], dtype=np.int64)
        chosen = np.array([row_of[ids[number]] for number in known], dtype=np.int64)
        candidates = np.concatenate([words[known], topics.words[chosen] + block.low + low], axis=1)
        weights = np.concatenate([values[known], topics.probability[chosen]], axis=1)
        words[known], values[known] = _largest(candidates, weights, count)
    return [TopWords(np.array(ids, dtype=np.int64), words, values, time.perf_counter() - began)]


def _largest(
    words: npt.NDArray[np.int64], values: npt.NDArray[np.float64], count: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the words of the largest values of each topic, and these values; a word of -1 is none."""
    order = np.argsort(np.where(words < 0, 1.0, -np.abs(values)), axis=1, kind="stable")[:, :count]
    return np.take_along_axis(words, order, axis=1), np.take_along_axis(values, order, axis=1)


class TopicSnapshots:
    """Reports the topics of a problem's states."""

    def __init__(self, problem: Problem, vocabulary: Sequence[str], planned: int = 0) -> None:
        self._problem, self._vocabulary, self._max_age = problem, vocabulary, max(planned // FETCHES, 1)
        self._fetched = -1  # iteration whose words were fetched last
        self._last: tuple[int, dict[int, float]] | None = None  # iteration and shares
        self._began = time.monotonic()
        self._due = self._began

    def topics(self, iteration: int, before: GlobalState, after: GlobalState) -> TopicSizes:
        """Return the sizes of the topics, and those whose shares changed most."""
        if iteration < 1:
            return {}
        family = self._problem.family
        if self._last is None or self._last[0] != iteration - 1:
            self._last = iteration - 1, topic_sizes(family, before)[0]
        old = self._last[1]
        new, active = topic_sizes(family, after)
        self._last = iteration, new
        moved = {topic: new.get(topic, 0.0) - old.get(topic, 0.0) for topic in {**new, **old}}
        return {"active": active, "sizes": _pairs(new, SIZES), "moved": _pairs(moved, MOVED)}

    def submit(
        self, state: State, topics: TopicSizes, scored: Sequence[Future[Block]] = (), *, last: bool
    ) -> list[Future[list[TopWords]]]:
        """Submit the fetching of the top words of the largest and the most changed topics, where it is due."""
        now = time.monotonic()
        outdated = self._fetched < 0 or not 0 <= state.iteration - self._fetched < self._max_age
        if not topics or not (last or outdated or now >= self._due):
            return []
        largest = [] if self._last is None else _largest_topics(self._last[1])
        return self._submit(state, [*largest, *(int(topic) for topic, _ in topics["moved"])], scored)

    def _submit(
        self, state: State, ids: Sequence[int], scored: Sequence[Future[Block]] = ()
    ) -> list[Future[list[TopWords]]]:
        """Submit the fetching of the top words of some topics, a task per block, or more if others have it too.

        The rows that score tokens are the finished model's. Hosts of an exchange read their parts of the vocabulary.
        """
        problem, processes = self._problem, self._problem.executor.processes
        self._fetched, distinct = state.iteration, list(dict.fromkeys(ids))
        if isinstance(state.blocks, HeldParts):
            find = partial(top_words, global_state=state.global_state, ids=distinct, count=WORDS)
            return [state.blocks.exchange.ask(state, find)]
        cells = problem.block_bounds[-1] * len(distinct) // len(state.blocks)
        parts = max(min(processes // len(state.blocks), cells // TASK_CELLS), 1) if scored else 1
        return [
            problem.executor.submit(
                top_words,
                problem.family,
                block,
                state.global_state,
                distinct,
                WORDS,
                (part, parts),
                process=(problem.process_of_block(number) + part) % processes,
            )
            for number, block in enumerate(scored or state.blocks)
            for part in range(parts)
        ]

    def forget(self) -> None:
        """Fetch words again at the next iteration, because the submitted tasks are lost."""
        self._fetched = -1

    def final_words(self, state: State) -> dict[str, list[str]]:
        """Return the top words of the state that a run ends with; none where they were fetched already."""
        if state.iteration < 1 or state.iteration == self._fetched:
            return {}
        problem = self._problem
        largest = _largest_topics(topic_sizes(problem.family, state.global_state)[0])
        return self.words(problem.executor.collect(self._submit(state, largest), links_of(state)))

    def words(self, parts: Sequence[Sequence[TopWords]]) -> dict[str, list[str]]:
        """Return the top words of topics over all blocks, with a minus sign before words of negative loadings."""
        blocks = [block for part in parts for block in part]
        if not blocks:
            return {}
        now, cost = time.monotonic(), sum(block.seconds for block in blocks)
        pause = max(MIN_SECONDS, COST_FACTOR * cost, RUN_SHARE * (now - self._began))
        self._due = now + min(pause, MAX_SECONDS)
        words = np.concatenate([block.words for block in blocks], axis=1)
        values = np.concatenate([block.values for block in blocks], axis=1)
        words, values = _largest(words, values, WORDS)
        return {
            str(topic): [
                ("-" if weight < 0.0 else "") + self._vocabulary[word]
                for word, weight in zip(largest, weights, strict=True)
                if word >= 0
            ]
            for topic, largest, weights in zip(blocks[0].ids.tolist(), words.tolist(), values.tolist(), strict=True)
        }


def _largest_shares(shares: Mapping[int, float], count: int) -> list[tuple[int, float]]:
    """Return the shares of largest magnitude, rounded, without those that round to zero."""
    order = sorted(shares, key=lambda topic: (-abs(shares[topic]), topic))[:count]
    rounded = [(topic, round(shares[topic], DIGITS)) for topic in order]
    return [(topic, share) for topic, share in rounded if abs(share) > 0.0]


def _largest_topics(shares: Mapping[int, float]) -> list[int]:
    return [topic for topic, _ in _largest_shares(shares, NAMED)]


def _pairs(shares: Mapping[int, float], count: int) -> list[list[float]]:
    """Return the largest shares as lists of id and share, as JSON has them."""
    return [[topic, share] for topic, share in _largest_shares(shares, count)]
