"""Held-out scores of a state, shard by shard."""

from __future__ import annotations

import math
from collections.abc import Sequence

from collapsium.pipeline.engine.state import Problem, State
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.workers import tasks


def submit_scores(
    problem: Problem, executor: Executor, state: State, scored: list[Future[tasks.Block]]
) -> list[Future[list[tasks.Score]]]:
    """Submit the scoring of the held-out pairs by the rows of all blocks."""
    return [
        executor.submit(
            tasks.score,
            problem.shard_model,
            [problem.heldout[number] for number in numbers],
            [state.swept[number] for number in numbers],
            scored,
            state.global_state,
            problem.sample(state.iteration),
            home=home,
        )
        for home, numbers in _scored_together(problem, executor)
    ]


def _scored_together(problem: Problem, executor: Executor) -> list[tuple[int, list[int]]]:
    """Return groups of shards with their homes: a group for each thread of a worker process.

    A task costs driver, scheduler and worker some 4 ms on a cluster. Threads of one process share the shards better
    one by one.
    """
    numbers = range(len(problem.heldout))
    if executor.homes == 1:
        return [(0, [number]) for number in numbers]
    groups: dict[tuple[int, int], list[int]] = {}
    for number in numbers:
        home = problem.home(number, executor.homes)
        groups.setdefault((home, number % max(executor.workers // executor.homes, 1)), []).append(number)
    return [(home, group) for (home, _), group in groups.items()]


def mean_score(scores: Sequence[tasks.Score]) -> float | None:
    """Return the mean log probability of a token, in nats; None where there is no token."""
    tokens = sum(score.tokens for score in scores)
    return math.fsum(score.log_probability for score in scores) / tokens if tokens else None
