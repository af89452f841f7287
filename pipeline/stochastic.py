"""The stochastic schedule: minibatches of shards, each of which moves the topics by a decaying step.

No local state is kept: where documents' proportions are asked for, to score or at the end, they are fitted with the
topics held fixed. So a good model stands after one pass, however large the corpus.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from collapsar.pipeline.checkpointing import Keeper
from collapsar.pipeline.config import Limits
from collapsar.pipeline.executor import Executor
from collapsar.pipeline.loop import (
    LOSSES,
    Progress,
    blank_state,
    is_settled,
    lost,
    mean_score,
    require_finite,
    shares,
    submit_scores,
)
from collapsar.pipeline.state import Problem, State
from collapsar.storage.errors import ClusterError
from collapsar.workers import tasks
from collapsar.workers.delta import Arrays


def minibatches(problem: Problem, size: int, number: int) -> list[list[int]]:
    """Cut a pass over the shards into minibatches.

    Parameters
    ----------
    problem : Problem
        With the shards and the seed.
    size : int
        Shards a minibatch; the very first is one shard, from which the topics start.
    number : int
        Of the pass, 0 for the first.

    Returns
    -------
    list of list of int
        Numbers of shards, each once, in an order of this pass.
    """
    generator = problem.stream.at(iteration=number, purpose="order").generator()
    order = [int(one) for one in generator.permutation(len(problem.shards))]
    first = [order[:1]] if number == 0 and len(order) > 1 else []
    rest = order[len(first) :]
    return first + [rest[at : at + size] for at in range(0, len(rest), size)]


def run_stochastic(
    problem: Problem,
    executor: Executor,
    globals: Arrays,
    limits: Limits,
    keeper: Keeper | None = None,  # noqa: ARG001
    reached: Callable[[State], None] | None = None,
) -> Iterator[tuple[State, Progress]]:
    """Run the iterations, a minibatch each, giving the state after each; see `collapsar.pipeline.loop.run`.

    No checkpoints are kept: after work that is lost for good it begins anew.

    Parameters
    ----------
    problem, executor, globals, limits, keeper, reached
        As for `collapsar.pipeline.loop.run`; the keeper is not asked.

    Yields
    ------
    state : State
        To go on from, or to keep as a model.
    progress : Progress
        What to tell.
    """
    began, losses = time.perf_counter(), 0
    state, clock = replace(blank_state(problem, executor, globals), iteration=0), began
    previous: dict[str, float] = {}
    plan = [one for number in range(limits.passes) for one in minibatches(problem, limits.batch_shards, number)]
    ends = set(accumulate(len(minibatches(problem, limits.batch_shards, number)) for number in range(limits.passes)))
    last = min(len(plan), limits.iterations or len(plan))
    while state.iteration < last:
        try:
            chosen = plan[state.iteration]
            state, told, updating = _step(problem, executor, state, chosen)
            due = state.iteration % limits.score_every == 0 if limits.score_every else state.iteration in ends
            scores: Sequence[tasks.Score] = []
            if problem.heldout and (due or state.iteration == last):
                state = settled(problem, executor, state)
                scores = executor.collect(submit_scores(problem, executor, state))
        except ClusterError as error:
            losses += 1
            if losses == LOSSES:
                raise
            state = replace(blank_state(problem, executor, globals), iteration=0)
            yield state, lost(state, time.perf_counter() - began, error)
            continue
        if reached is not None:
            reached(state)
        losses, now = 0, time.perf_counter()
        figures = problem.family.figures(state.globals)
        seconds = shares(told, executor.workers, now - clock, updating, sum(one.seconds for one in scores))
        clock, score = now, mean_score(scores)
        moved = told.number(problem.family.CHANGE) / max(float(state.globals["corpus_tokens"]), 1.0)
        progress = Progress(state.iteration, now - began, moved, score, figures, seconds)
        yield state, progress
        if is_settled(progress, previous, limits):
            return
        previous = {**previous, **figures, **({"score": score} if score is not None else {})}


def _step(problem: Problem, executor: Executor, state: State, chosen: list[int]) -> tuple[State, Any, float]:
    """Step on a minibatch's shards, all from the same state, and average."""
    stream = problem.stream.at(iteration=state.iteration + 1, purpose="step")
    deltas = [
        executor.submit(
            tasks.step,
            problem.name,
            problem.shards[number],
            state.blocks,
            state.globals,
            stream,
            home=problem.home(number, executor.homes),
        )
        for number in sorted(chosen)
    ]
    rest = executor.submit(tasks.add, [executor.submit(tasks.rest, one) for one in deltas])
    blocks = []
    for number, (block, bounds) in enumerate(zip(state.blocks, pairwise(problem.cuts), strict=True)):
        parts = [executor.submit(tasks.between, one, *bounds) for one in deltas]
        home = problem.block_home(number, executor.homes)
        blocks.append(executor.submit(tasks.blend, problem.name, block, parts, rest, state.globals, home=home))
    told, *folded = executor.collect([rest, *(executor.submit(tasks.tell, block) for block in blocks)])
    for part in folded:
        told = told + part
    began = time.perf_counter()
    after = problem.family.update(state.globals, told, problem.config, stream.at(purpose="update"))
    require_finite(after, state.iteration + 1)
    return State(state.iteration + 1, after, blocks), told, time.perf_counter() - began


def settled(problem: Problem, executor: Executor, state: State) -> State:
    """Fit the documents' proportions with the topics held fixed, where the state has none."""
    if state.swept:
        return state
    stream = problem.stream.at(purpose="settle")
    swept = [
        executor.submit(
            tasks.settled,
            problem.name,
            shard,
            problem.scratch,
            state.blocks,
            state.globals,
            stream,
            home=problem.home(number, executor.homes),
        )
        for number, shard in enumerate(problem.shards)
    ]
    return replace(state, swept=swept)
