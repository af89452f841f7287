"""Curves of time and memory over tokens, words and topics on one core, to which scaling laws are fitted.

Hosts are measured by `make bench-hosts`, which needs root.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from collapsium.pipeline import fit, simulate
from collapsium.storage.data_types import JsonObject
from tests.benchmarks.comparison.base import print_result, run_module
from tests.benchmarks.processes import peak_megabytes

if TYPE_CHECKING:
    from tests.benchmarks.results.__main__ import Results

BASE = {"tokens": 400_000, "words": 10_000, "topics": 100}
CURVES = {
    "tokens": (100_000, 200_000, 400_000, 800_000, 1_600_000),
    "words": (2_500, 5_000, 10_000, 20_000, 40_000),
    "topics": (25, 50, 100, 200, 400),
}
ITERATIONS, LENGTH = 20, 100


def measured(request: SimpleNamespace) -> JsonObject:
    """Fit `lda` to a simulated corpus; return the seconds of an iteration and the peak of memory."""
    ends: list[float] = []

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "iteration":
            ends.append(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))

    with tempfile.TemporaryDirectory(prefix="collapsium-") as place:
        sizes = {"documents": request.tokens // LENGTH, "words": request.words, "tokens": LENGTH, "topics": 100}
        simulate(f"{place}/corpus", family="lda", alpha=0.02, seed=1, **sizes)
        options = {"topics": request.topics, "iterations": ITERATIONS, "scheduler": "serial", "sinks": [listen]}
        fit(f"{place}/corpus", f"{place}/run", family="lda", **options)
    half = ends[len(ends) // 2 :]
    steps = [after - before for before, after in zip(half, half[1:], strict=False)]
    return {
        "seconds": round(statistics.median(steps), 4),
        "megabytes": round(peak_megabytes()),
        "iterations": len(ends),
    }


def run(out: Path, results: Results) -> None:
    """Measure the points of the curves that have no record yet."""
    out.mkdir(parents=True, exist_ok=True)
    for name, values in CURVES.items():
        for value in values:
            sizes = {**BASE, name: value}
            key: list[object] = ["scale", *sizes.values()]
            if not results.has(key):
                result = run_module("tests.benchmarks.results.scale", sizes, "seconds")
                results.add(key, result)
                print(f"{name} {value:,}: {result['seconds']} s an iteration, {result['megabytes']} MB", flush=True)


if __name__ == "__main__":
    print_result(measured)
