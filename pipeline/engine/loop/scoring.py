"""Held-out scores of a state, shard by shard."""

from __future__ import annotations

import math
from collections.abc import Sequence

from collapsium.pipeline.engine.state import Problem, State
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.workers import tasks


def submit_scored(problem: Problem, executor: Executor, state: State) -> list[Future[tasks.Block]]:
    """Submit the rows that score held-out tokens, of all blocks; none where nothing is held out."""
    return [
        executor.submit(tasks.scored_rows, block, home=problem.block_home(number, executor.homes))
        for number, block in enumerate(state.blocks if problem.heldout else [])
    ]


def submit_scores(
    problem: Problem, executor: Executor, state: State, scored: list[Future[tasks.Block]] | None = None
) -> list[Future[tasks.Score]]:
    """Submit the scoring of the held-out pairs, a task a shard; `scored` is the result of `submit_scored`, if known."""
    blocks = submit_scored(problem, executor, state) if scored is None else scored
    return [
        executor.submit(
            tasks.score,
            problem.shard_model,
            heldout,
            state.swept[number],
            blocks,
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
