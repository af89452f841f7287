"""Processors that take part in a run, and the differences by which the last places of results depend on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from collapsium.pipeline.families.registry import load_family
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import MismatchError
from collapsium.storage.runs.processor import Processor
from collapsium.workers.processor import processor

if TYPE_CHECKING:
    from collapsium.pipeline.executors.base import Executor
    from collapsium.storage.runs.run import Run

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
        self._add(recorded_processors(run.record()))

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


def recorded_processors(record: JsonObject) -> tuple[Processor, ...]:
    """Return the processors that a run's record names; runs of older versions name none."""
    return tuple(Processor(**kind) for kind in record.get(FIELD, []))


def differences(processors: Sequence[Processor]) -> str:
    """Return the differences of processors in a line; of instruction sets only where there is no other."""
    lines: list[str] = []
    for name, text in NAMES.items():
        values = list(dict.fromkeys(str(getattr(kind, name)) for kind in processors))
        if len(values) > 1 and (name != "features" or not lines):
            lines.append(f"{text} {' and '.join(value or 'none' for value in values)}")
    return "; ".join(lines)


def _refused(text: str) -> MismatchError:
    return MismatchError(f"{text}: other bits may come out, which strict_bits refuses; leave it out to go on")
