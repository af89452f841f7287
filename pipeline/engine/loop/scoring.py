"""Held-out scores of a state, shard by shard."""

from __future__ import annotations

import math
from collections.abc import Sequence

from collapsium.pipeline.engine.state import Problem, State
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.workers import tasks


def submit_scores(
    problem: Problem, executor: Executor, state: State, scored: list[Future[tasks.Block]]
) -> list[Future[tasks.Score]]:
    """Submit the scoring of the held-out pairs by the rows of all blocks, a task a shard."""
    return [
        executor.submit(
            tasks.score,
            problem.shard_model,
            heldout,
            state.swept[number],
            scored,
            state.global_state,
            problem.sample(state.iteration),
            home=problem.home(number, executor.homes),
        )
        for number, heldout in enumerate(problem.heldout)
    ]


def mean_score(scores: Sequence[tasks.Score]) -> float | None:
    """Return the mean log probability of a token, in nats; None where there is no token."""
    tokens = sum(score.tokens for score in scores)
    return math.fsum(score.log_probability for score in scores) / tokens if tokens else None
