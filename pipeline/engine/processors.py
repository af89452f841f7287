"""Which processors take part in a run, and whether its results depend on which of them does what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from collapsium.pipeline.families.registry import load_family
from collapsium.storage.errors import MismatchError
from collapsium.storage.runs.processor import Processor
from collapsium.workers.processor import processor

if TYPE_CHECKING:
    from collapsium.pipeline.executors.base import Executor
    from collapsium.storage.runs.run import Run

FIELD = "processors"  # of `run.json`
NAMES = {"machine": "system", "kernels": "kernels for", "features": "with", "library": "C library", "blas": "BLAS"}


class Processors:
    """The kinds of processors that have taken part in a run.

    Parameters
    ----------
    family : str
        The family's name.
    strict : bool
        Whether other bits are an error.

    Attributes
    ----------
    seen : tuple of Processor
        The kinds so far.
    """

    def __init__(self, family: str, *, strict: bool = False) -> None:
        self._blas = load_family(family).uses_linear_algebra
        self._strict, self._looked = strict, False
        self.seen: tuple[Processor, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return what `run.json` says of them."""
        return {FIELD: [one.model_dump() for one in self.seen]}

    def take_up(self, run: Run, versions: Sequence[str]) -> None:
        """Add the processors that a run was worked on with.

        Parameters
        ----------
        run : Run
            The run.
        versions : sequence of str
            Which versions differ from those that it began with.

        Raises
        ------
        MismatchError
            Versions differ, and other bits are an error.
        """
        if self._strict and versions:
            raise _refused(f"{run.folder.url} began with other versions ({', '.join(versions)})")
        self._add(recorded_processors(run.record()))

    def look(self, executor: Executor) -> str | None:
        """Add the processors of this process and of the workers.

        Parameters
        ----------
        executor : Executor
            The workers.

        Returns
        -------
        str or None
            How all that have taken part differ; None where they do not, or it was returned before.

        Raises
        ------
        MismatchError
            They differ, and other bits are an error.
        """
        known, first, self._looked = self.seen, not self._looked, True
        self._add([processor(self._blas), *executor.everywhere(processor, self._blas)])
        if len(self.seen) < 2:
            return None
        text = f"processors differ ({differences(self.seen)})"
        if self._strict:
            raise _refused(text)
        new = first or self.seen != known
        return f"{text}: the last places of results depend on which of them does what" if new else None

    def _add(self, found: Sequence[Processor]) -> None:
        self.seen = tuple(sorted({*self.seen, *found}, key=str))


def recorded_processors(record: Mapping[str, Any]) -> tuple[Processor, ...]:
    """Return the processors that a run's record names; runs of older versions name none."""
    return tuple(Processor(**one) for one in record.get(FIELD, []))


def differences(processors: Sequence[Processor]) -> str:
    """Return in a line by what processors differ; instruction sets only where all else is the same."""
    found: list[str] = []
    for name, text in NAMES.items():
        values = list(dict.fromkeys(str(getattr(one, name)) for one in processors))
        if len(values) > 1 and (name != "features" or not found):
            found.append(f"{text} {' and '.join(value or 'none' for value in values)}")
    return "; ".join(found)


def _refused(text: str) -> MismatchError:
    return MismatchError(f"{text}: other bits may come out, which strict_bits refuses; leave it out to go on")
