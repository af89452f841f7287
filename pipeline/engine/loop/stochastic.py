"""The stochastic schedule: minibatches of shards, each of which moves the topics by a decaying step.

No local state is kept: where documents' proportions are asked for, to score or at the end, they are fitted with the
topics held fixed. So a good model stands after one pass, however large the corpus.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from collapsium.pipeline.engine.loop.iteration import require_finite
from collapsium.pipeline.engine.loop.loop import Loop, submit_scores
from collapsium.pipeline.engine.loop.topic_snapshots import Glance
from collapsium.pipeline.engine.model_io.checkpoints import Keeper, NoKeeper
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.engine.state import Kept, Problem, Progress, State
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.families.base import Stochastic
from collapsium.workers import tasks
from collapsium.workers.arrays.state import GlobalState


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
    global_state: GlobalState,
    limits: Limits,
    keeper: Keeper | None = None,
    glance: Glance | None = None,
) -> Iterator[tuple[State, Progress]]:
    """Run the iterations, a minibatch each, giving the state after each; see `loop.run`.

    Parameters
    ----------
    problem, executor, global_state, limits, keeper, glance
        As for `collapsium.pipeline.engine.loop.loop.run`.

    Returns
    -------
    iterator of (State, Progress)
        After each iteration: the state, to go on from or to keep as a model, and what to tell.
    """
    return StochasticLoop(problem, executor, global_state, limits, keeper or NoKeeper(), glance).run()


class StochasticLoop(Loop):
    """The iterations of the stochastic schedule.

    Parameters
    ----------
    problem, executor, global_state, limits, keeper, glance
        As for `collapsium.pipeline.engine.loop.loop.run`.
    """

    def __init__(
        self,
        problem: Problem,
        executor: Executor,
        global_state: GlobalState,
        limits: Limits,
        keeper: Keeper,
        glance: Glance | None = None,
    ) -> None:
        super().__init__(problem, executor, global_state, limits, keeper, glance)
        if not isinstance(problem.family, Stochastic):
            raise TypeError(f"family '{problem.name}' has no stochastic schedule")
        self._family = problem.family
        passes = [minibatches(problem, limits.batch_shards, number) for number in range(limits.passes)]
        self._plan = [one for part in passes for one in part]
        self._ends = set(accumulate(len(part) for part in passes))
        self._last = min(len(self._plan), limits.iterations or len(self._plan))

    def blank(self, global_state: GlobalState) -> State:
        """Return the state before anything has been seen; there is no start to sweep."""
        return replace(super().blank(global_state), iteration=0)

    def ended(self, state: State) -> bool:
        """Say whether all minibatches are done."""
        return state.iteration >= self._last

    def advance(self) -> Progress:
        """Step on the next minibatch, and score what has come of it where that is due."""
        state, progress, again = self.taken()
        if progress is None:
            before = state.global_state
            state, told, updating = step(self.problem, self.executor, state, self._plan[state.iteration])
            progress = self.told(state, before, told, self.problem.family.figures(state.global_state), updating)
            moved = self._family.moved_tokens(told) / max(self._family.corpus_tokens(state.global_state), 1.0)
            progress = replace(progress, change=moved)
            state = self.keeper.keep(Kept(state, progress, self.before()))
        every, scores = self.limits.score_every, list[tasks.Score]()
        due = state.iteration % every == 0 if every else state.iteration in self._ends
        if self.problem.heldout and (due or state.iteration == self._last):
            state = settled(self.problem, self.executor, state)
            scores = self.executor.collect(submit_scores(self.problem, self.executor, state))
            self.keeper.hold(Kept(state, progress, self.before()))
        asked = self.submit_words(state, progress, last=state.iteration == self._last)
        words = self.executor.collect(asked) if asked else []
        self.state = state
        return self.scored(progress, scores, again=again, words=words)


def step(problem: Problem, executor: Executor, state: State, chosen: list[int]) -> tuple[State, Any, float]:
    """Step on a minibatch's shards, all from the same state, and average.

    Parameters
    ----------
    problem : Problem
        With the shards.
    executor : Executor
        Who runs the tasks.
    state : State
        To step from.
    chosen : list of int
        The shards of the minibatch.

    Returns
    -------
    state : State
        After the step; it has no local states.
    told : Delta
        The sums over the minibatch.
    seconds : float
        What the driver's update took.
    """
    stream = problem.stream.at(iteration=state.iteration + 1, purpose="step")
    deltas = [
        executor.submit(
            tasks.step,
            problem.shard_model,
            problem.shards[number],
            state.blocks,
            state.global_state,
            stream,
            home=problem.home(number, executor.homes),
        )
        for number in sorted(chosen)
    ]
    rest = executor.submit(tasks.add, [executor.submit(tasks.without_words, one) for one in deltas])
    blocks = []
    for number, (block, bounds) in enumerate(zip(state.blocks, pairwise(problem.cuts), strict=True)):
        parts = [executor.submit(tasks.word_range, one, *bounds) for one in deltas]
        home = problem.block_home(number, executor.homes)
        blocks.append(
            executor.submit(tasks.blend, problem.shard_model, block, parts, rest, state.global_state, home=home)
        )
    told, *folded = executor.collect([rest, *(executor.submit(tasks.block_sums, block) for block in blocks)])
    for part in folded:
        told = told + part
    began = time.perf_counter()
    after = problem.family.update(state.global_state, told, problem.config, stream.at(purpose="update"))
    require_finite(after.to_arrays(), state.iteration + 1)
    return State(state.iteration + 1, after, blocks), told, time.perf_counter() - began


def settled(problem: Problem, executor: Executor, state: State) -> State:
    """Fit the documents' proportions with the topics held fixed, where the state has none."""
    if state.swept:
        return state
    stream = problem.stream.at(purpose="settle")
    swept = [
        executor.submit(
            tasks.fold_in_shard,
            problem.shard_model,
            shard,
            problem.scratch,
            state.blocks,
            state.global_state,
            stream,
            home=problem.home(number, executor.homes),
        )
        for number, shard in enumerate(problem.shards)
    ]
    return replace(state, swept=swept)
