"""Compile a family's kernels before the tasks of a run call them: once per machine, with progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collapsium.pipeline.engine.setup.computed_starts import start_kernels
from collapsium.pipeline.families.base import COMPUTED_STARTS
from collapsium.workers.families.base import fit_kernels
from collapsium.workers.kernels.child_processes import (
    Report,
    compile_kernels,
    fill_cache,
    log_compilation,
    missing_kernels,
)

if TYPE_CHECKING:
    from collapsium.pipeline.executors.base import Executor
    from collapsium.pipeline.monitoring.events import Sink
    from collapsium.workers.arrays.state import GlobalState
    from collapsium.workers.families.base import AnyShardModel
    from collapsium.workers.kernels.jit import AnyKernel


def compile_for(
    executor: Executor,
    model: AnyShardModel,
    global_state: GlobalState,
    report: Report = log_compilation,
    *,
    start: str = "",
    local: bool,
) -> None:
    """Compile the kernels that a fit calls, on each machine, and load them in each worker process.

    On this machine, child processes of the driver compile before the workers load the machine code. On other machines,
    child processes of the workers compile.
    """
    if local:
        fill_cache(_kernels(model, global_state, start), report)
    remaining = max(executor.everywhere(_missing, model, global_state, start), default=0)
    if remaining:
        report(0, remaining)
    executor.everywhere(_load, model, global_state, start, joining=True)
    if remaining:
        report(remaining, remaining)


def reporting_to(sink: Sink) -> Report:
    """Return a report that sends a sink ``compiling`` events."""

    def report(compiled: int, total: int) -> None:
        sink({"event": "compiling", "iteration": 0, "elapsed": 0.0, "compiled": compiled, "kernels": total})

    return report


def _kernels(model: AnyShardModel, global_state: GlobalState, start: str) -> list[AnyKernel]:
    return [*fit_kernels(model, global_state), *(start_kernels(start) if start in COMPUTED_STARTS else ())]


def _missing(model: AnyShardModel, global_state: GlobalState, start: str) -> int:
    return len(missing_kernels(_kernels(model, global_state, start)))


def _load(model: AnyShardModel, global_state: GlobalState, start: str) -> None:
    compile_kernels(_kernels(model, global_state, start), lambda compiled, total: None)  # noqa: ARG005
