"""Fits of which nothing is kept on disk: the same loop and the same bits as of a run, without its files."""

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
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.state import GlobalState
from collapsium.workers.families.base import AnyShardModel


def fit_here(request: Request, placement: Placement) -> tuple[Fitted, int]:
    """Fit a model in this process, and keep it in memory only.

    Most of the time of a fit to few documents goes into the files of its run: eight of ten parts of 0.2 s.

    Parameters
    ----------
    request : Request
        What to fit, without a held-out corpus.
    placement : Placement
        In threads, or one task after another.

    Returns
    -------
    fitted : Fitted
        The model, with the same bits as one of a run.
    iterations : int
        How many there were.

    Raises
    ------
    CapacityError
        It does not fit into memory.
    CollapsiumError
        As for `collapsium.pipeline.fit`.
    """
    place = local_place(placement.scheduler, placement.workers, placement.memory, placement.scratch)
    planned = plan(request.corpus, request.family, request.config, place, stochastic=request.stochastic)
    planned.require()
    executor = placement.open(lambda text: None)  # noqa: ARG005
    try:
        with freed_memory(executor), scratch_folder(planned, executor) as folder:
            problem, global_state = LoadedCorpus(request, [], executor, folder).problem(request.seed)
            buffers.pool.lean = planned.on_disk
            compile_for(executor, problem.shard_model, global_state, local=placement.is_local)
            last, schedule = _Last(), run_stochastic if request.stochastic else run
            for _ in schedule(problem, executor, global_state, request.limits, last):
                pass  # the last state is held where it is let go of as soon as the next is there
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
    """Holds the last state."""

    state: State | None = None

    def save_if_due(self, snapshot: Snapshot) -> State:
        """Hold a state in place of the one before."""
        self.state = snapshot.state
        return snapshot.state


def _finished(model: AnyShardModel, block: tasks.Block, global_state: GlobalState) -> tasks.Block:
    return tasks.Block(block.low, block.high, model.finished_rows(block.rows, global_state), Delta())
