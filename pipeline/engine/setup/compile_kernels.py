"""Compile a family's kernels before the tasks of a run call them: once per machine, with progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

HERE = ("threads", "serial", "local")  # schedulers whose workers run on this machine


def compile_for(
    executor: Executor,
    scheduler: str,
    model: AnyShardModel,
    global_state: GlobalState,
    report: Report = log_compilation,
) -> None:
    """Compile the kernels that a fit calls, on each machine, and load them in each worker process.

    On this machine child processes of the driver compile, so that the workers find machine code; on others those of the
    workers do.

    Parameters
    ----------
    executor : Executor
        The workers.
    scheduler : str
        Where they run, as for `collapsium.pipeline.executors.open.open_executor`.
    model : ShardModel
        The family's half beside the shards.
    global_state : GlobalState
        Its global state.
    report : callable, optional
        Called with the number of kernels compiled so far and of all that have to be; not where there are none.
    """
    if scheduler in HERE:
        fill_cache(fit_kernels(model, global_state), report)
    remaining = max(executor.everywhere(_missing, model, global_state), default=0)
    if remaining:
        report(0, remaining)
    executor.everywhere(_load, model, global_state)
    if remaining:
        report(remaining, remaining)


def reporting_to(sink: Sink) -> Report:
    """Return a report that tells a sink events ``compiling``."""

    def report(compiled: int, total: int) -> None:
        sink({"event": "compiling", "iteration": 0, "elapsed": 0.0, "compiled": compiled, "kernels": total})

    return report


def _missing(model: AnyShardModel, global_state: GlobalState) -> int:
    return len(missing_kernels(fit_kernels(model, global_state)))


def _load(model: AnyShardModel, global_state: GlobalState) -> None:
    compile_kernels(fit_kernels(model, global_state), lambda compiled, total: None)  # noqa: ARG005
