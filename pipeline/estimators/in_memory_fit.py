"""Fit a model in memory, with the same loop and the same bits as a run but without its files."""

from __future__ import annotations

from collapsium.pipeline.engine.loop.loop import run
from collapsium.pipeline.engine.loop.stochastic import run_stochastic
from collapsium.pipeline.engine.model_io.checkpoints import NoCheckpoints
from collapsium.pipeline.engine.resources.estimate import plan
from collapsium.pipeline.engine.resources.place import local_place
from collapsium.pipeline.engine.resources.placement import Placement, freed_memory, scratch_folder
from collapsium.pipeline.engine.setup.compile_kernels import compile_for
from collapsium.pipeline.engine.setup.loading import LoadedCorpus
from collapsium.pipeline.engine.setup.request import Request
from collapsium.pipeline.engine.state import Snapshot, State
from collapsium.pipeline.estimators.fitted_model import Fitted
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.state import GlobalState
from collapsium.workers.families.base import AnyShardModel


def fit_here(request: Request, placement: Placement) -> tuple[Fitted, int]:
    """Return a model that is fitted in this process and saved nowhere.

    With few documents, the files of a run would take most of the time (80% of 0.2 s).
    """
    place = local_place(placement.scheduler, placement.workers, placement.memory, placement.scratch)
    planned = plan(
        request.corpus,
        request.family,
        request.config,
        place,
        stochastic=request.stochastic,
        start=request.start_kind,
    )
    planned.require()
    executor = placement.open(lambda text: None)  # noqa: ARG005
    try:
        with freed_memory(executor), scratch_folder(planned, executor) as folder:
            problem, global_state = LoadedCorpus(request, [], executor, folder).problem(request.seed)
            compile_for(executor, problem.shard_model, global_state, start=request.start_kind, local=placement.is_local)
            last, schedule = _Last(), run_stochastic if request.stochastic else run
            # Only `last` refers to the state, so that each state is freed as soon as the next one exists.
            for _ in schedule(problem, executor, global_state, request.limits, last):
                pass
            state = last.state
            if state is None:
                raise RuntimeError("the loop gave no state")
            blocks = executor.collect(
                [executor.submit(_finished, problem.shard_model, block, state.global_state) for block in state.blocks]
            )
    finally:
        executor.close()
    manifest = request.corpus.manifest
    fitted = Fitted(
        request.family, problem.shard_model, state.global_state, blocks, manifest.documents, float(manifest.tokens)
    )
    return fitted, state.iteration


class _Last(NoCheckpoints):
    """Retains the last state, in place of checkpoints."""

    state: State | None = None

    def save_if_due(self, snapshot: Snapshot) -> State:
        """Retain a state in place of the previous one, and return it."""
        self.state = snapshot.state
        return snapshot.state


def _finished(model: AnyShardModel, block: tasks.Block, global_state: GlobalState) -> tasks.Block:
    return tasks.Block(block.low, block.high, model.finished_rows(block.rows, global_state), Delta())
