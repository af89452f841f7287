"""Processors that take part in a run, and the differences by which the last places of results depend on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from collapsium.pipeline.engine.setup.computed_initialisation import start_kernels
from collapsium.pipeline.models.registry import load_family
from collapsium.storage.errors import MismatchError
from collapsium.storage.runs.model import Processor
from collapsium.workers import exchange
from collapsium.workers.families.family import COMPUTED_STARTS
from collapsium.workers.kernels.child_processes import (
    Report,
    compile_kernels,
    fill_cache,
    log_compilation,
    missing_kernels,
)
from collapsium.workers.kernels.special import elementary
from collapsium.workers.tasks import processor

if TYPE_CHECKING:
    from collapsium.pipeline.executors.base import Executor
    from collapsium.pipeline.monitoring.events import Sink
    from collapsium.storage.runs.run import Run
    from collapsium.workers.arrays.state import GlobalState
    from collapsium.workers.families.family import AnyFamily
    from collapsium.workers.kernels.jit import AnyKernel


def compile_for(
    executor: Executor,
    family: AnyFamily,
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
    exchanging = executor.links() is not None
    if local:
        fill_cache(_kernels(family, global_state, start, exchanging), report)
    remaining = max(executor.everywhere(_missing, family, global_state, start, exchanging), default=0)
    if remaining:
        report(0, remaining)
    executor.everywhere(_load, family, global_state, start, exchanging, joining=True)
    if remaining:
        report(remaining, remaining)


def reporting_to(sink: Sink) -> Report:
    """Return a report that sends a sink ``compiling`` events."""

    def report(compiled: int, total: int) -> None:
        sink({"event": "compiling", "iteration": 0, "elapsed": 0.0, "compiled": compiled, "kernels": total})

    return report


def fit_kernels(family: AnyFamily, global_state: GlobalState) -> list[AnyKernel]:
    """Return the kernels that a fit of a family calls, with those that every family calls."""
    return [*family.kernels(global_state), elementary]


def _kernels(family: AnyFamily, global_state: GlobalState, start: str, exchanging: bool) -> list[AnyKernel]:
    return [
        *fit_kernels(family, global_state),
        *(start_kernels(start) if start in COMPUTED_STARTS else ()),
        *(exchange.kernels(family, global_state) if exchanging else ()),
    ]


def _missing(family: AnyFamily, global_state: GlobalState, start: str, exchanging: bool) -> int:
    return len(missing_kernels(_kernels(family, global_state, start, exchanging)))


def _load(family: AnyFamily, global_state: GlobalState, start: str, exchanging: bool) -> None:
    compile_kernels(_kernels(family, global_state, start, exchanging), lambda compiled, total: None)  # noqa: ARG005


FIELD = "processors"  # Field of `run.json`
NAMES = {"machine": "system", "kernels": "kernels for", "features": "with", "library": "C library", "blas": "BLAS"}


class Processors:
    """The kinds of processors that take part in a run."""

    def __init__(self, family: str, *, strict: bool = False) -> None:
        self._blas = load_family(family).uses_linear_algebra
        self._strict, self._looked = strict, False
        self.seen: tuple[Processor, ...] = ()

    def record(self) -> dict[str, object]:
        """Return the processors as `run.json` has them."""
        return {FIELD: [kind.model_dump() for kind in self.seen]}

    def restore(self, run: Run, versions: Sequence[str]) -> None:
        """Add the processors that a resumed run names."""
        if self._strict and versions:
            raise _refused(f"{run.folder.url} began with other versions ({', '.join(versions)})")
        # Runs of older versions name none.
        self._add([Processor(**kind) for kind in run.record().get(FIELD, [])])

    def look(self, executor: Executor) -> str | None:
        """Add the processors of this process and of the workers."""
        known, first, self._looked = self.seen, not self._looked, True
        self._add([processor(self._blas), *executor.everywhere(processor, self._blas)])
        if len(self.seen) < 2:
            return None
        text = f"processors differ ({differences(self.seen)})"
        if self._strict:
            raise _refused(text)
        new = first or self.seen != known
        return f"{text}: the last places of results depend on which of them does what" if new else None

    def _add(self, kinds: Sequence[Processor]) -> None:
        self.seen = tuple(sorted({*self.seen, *kinds}, key=str))


def differences(processors: Sequence[Processor]) -> str:
    """Return the differences of processors in a line; of instruction sets only where there is no other."""
    lines: list[str] = []
    for name, text in NAMES.items():
        values = list(dict.fromkeys(str(getattr(kind, name)) for kind in processors))
        if len(values) > 1 and (name != "features" or not lines):
            lines.append(f"{text} {' and '.join(value or 'none' for value in values)}")
    return "; ".join(lines)


def _refused(text: str) -> MismatchError:
    return MismatchError(f"{text}: the bits of the result may differ, which strict_bits refuses; omit it to continue")
