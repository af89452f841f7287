"""The stochastic schedule: minibatches of shards, each of which moves the topics by a decaying step.

No local state is retained. Where documents' proportions are needed, for a score or at the end, the documents are folded
in. So one pass gives a good model, however large the corpus.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, pairwise

from collapsium.pipeline.engine.loop.iteration import require_finite
from collapsium.pipeline.engine.loop.loop import Loop
from collapsium.pipeline.engine.loop.topic_snapshots import TopicSnapshots
from collapsium.pipeline.engine.model_io.checkpoints import Checkpointer, NoCheckpoints
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.engine.state import Problem, Progress, Snapshot, State
from collapsium.pipeline.executors.base import Executor
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.state import GlobalState
from collapsium.workers.families.family import Stochastic


def minibatches(problem: Problem, size: int, number: int) -> list[list[int]]:
    """Divide a pass over the shards into minibatches."""
    generator = problem.stream.at(iteration=number, purpose="order").generator()
    order = [int(shard) for shard in generator.permutation(len(problem.shards))]
    first = [order[:1]] if number == 0 and len(order) > 1 else []
    rest = order[len(first) :]
    return first + [rest[start : start + size] for start in range(0, len(rest), size)]


def run_stochastic(
    problem: Problem,
    executor: Executor,
    global_state: GlobalState,
    limits: Limits,
    checkpointer: Checkpointer | None = None,
    snapshots: TopicSnapshots | None = None,
) -> Iterator[tuple[State, Progress]]:
    """Run the iterations, a minibatch each, and yield the state after each; see `loop.run`."""
    return StochasticLoop(problem, executor, global_state, limits, checkpointer or NoCheckpoints(), snapshots).run()


class StochasticLoop(Loop):
    """The iterations of the stochastic schedule."""

    def __init__(
        self,
        problem: Problem,
        executor: Executor,
        global_state: GlobalState,
        limits: Limits,
        checkpointer: Checkpointer,
        snapshots: TopicSnapshots | None = None,
    ) -> None:
        super().__init__(problem, executor, global_state, limits, checkpointer, snapshots)
        if not isinstance(problem.family, Stochastic):
            raise TypeError(f"family '{problem.name}' has no stochastic schedule")
        self._family = problem.family
        passes = [minibatches(problem, limits.batch_shards, number) for number in range(limits.passes)]
        self._minibatches = [minibatch for batches in passes for minibatch in batches]
        self._pass_ends = set(accumulate(len(batches) for batches in passes))
        self._last = min(len(self._minibatches), limits.iterations or len(self._minibatches))

    def initial_state(self, global_state: GlobalState) -> State:
        """Return the state before any document was swept; there is no start, so that it counts as iteration 0."""
        return replace(super().initial_state(global_state), iteration=0)

    def is_finished(self, state: State) -> bool:
        """Return true after the last minibatch."""
        return state.iteration >= self._last

    def advance(self) -> Progress:
        """Step on the next minibatch, and score the state where that is due."""
        state, progress, restored = self.take_state()
        if progress is None:
            before = state.global_state
            state, statistics, seconds = step(self.problem, self.executor, state, self._minibatches[state.iteration])
            figures = self.problem.family.figures(state.global_state)
            progress = self.progress_of(state, before, statistics, figures, seconds)
            corpus_tokens = max(self._family.corpus_tokens(state.global_state), 1.0)
            progress = replace(progress, change=self._family.moved_tokens(statistics) / corpus_tokens)
            state = self.checkpointer.save_if_due(Snapshot(state, progress, self.history()))
        every, scores = self.limits.score_every, list[tasks.Score]()
        due = state.iteration % every == 0 if every else state.iteration in self._pass_ends
        if self.problem.heldout and (due or state.iteration == self._last):
            state = folded_in(self.problem, self.executor, state)
            scores = self.scores(state)
            self.checkpointer.hold(Snapshot(state, progress, self.history()))
        submitted = self.submit_words(state, progress, last=state.iteration == self._last)
        words = self.executor.collect(submitted) if submitted else []
        self.state = state
        return self.finished_progress(progress, scores, words, restored=restored)


def step(problem: Problem, executor: Executor, state: State, minibatch: list[int]) -> tuple[State, Delta, float]:
    """Step on the shards of a minibatch, all from the same state, and average.

    Returns state: The state after the step, without local states; statistics: Sums over the minibatch; seconds: Time
    that the update on the driver took
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
        for number in sorted(minibatch)
    ]
    rest = executor.submit(tasks.add, [executor.submit(tasks.without_words, delta) for delta in deltas])
    blocks = []
    for number, (block, bounds) in enumerate(zip(state.blocks, pairwise(problem.block_bounds), strict=True)):
        parts = [executor.submit(tasks.word_range, delta, *bounds) for delta in deltas]
        home = problem.block_home(number, executor.homes)
        blocks.append(
            executor.submit(tasks.blend, problem.shard_model, block, parts, rest, state.global_state, home=home)
        )
    statistics, *folded = executor.collect([rest, *(executor.submit(tasks.block_sums, block) for block in blocks)])
    for part in folded:
        statistics = statistics + part
    began = time.perf_counter()
    updated = problem.family.update(state.global_state, statistics, problem.config, stream.at(purpose="update"))
    require_finite(updated.to_arrays(), state.iteration + 1)
    return State(state.iteration + 1, updated, blocks), statistics, time.perf_counter() - began


def folded_in(problem: Problem, executor: Executor, state: State) -> State:
    """Return the state with local states: those that it has, or else those of documents folded in."""
    if state.swept:
        return state
    # The purpose addresses random numbers, on which results depend.
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
