"""Iterations in threads and on a local cluster: ``python -m tests.benchmarks.executors TRAIN TEST``.

Fits of `lda` over all documents alternate between both, and every iteration is scored. Ratios compare sums over the
iterations from the third on. The seconds to start a cluster are the difference before the first iteration.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path

from collapsium.pipeline import fit

KINDS = ("threads", "local")
SETTLED = 2
"""Iterations before those that are counted."""


def measure(options, kind, place):
    """Return the seconds before the first iteration of a fit and of each later one."""
    began, ends = time.perf_counter(), []

    def note(event):
        if event["event"] == "iteration" and event["iteration"] > 0:
            ends.append(time.perf_counter() - began)

    fit(
        options.train,
        place,
        family="lda",
        topics=options.topics,
        heldout=options.test,
        iterations=options.iterations,
        grow="never",
        scheduler=kind,
        workers=options.workers,
        sinks=[note],
    )
    return ends[0], [after - before for before, after in itertools.pairwise(ends)]


def main():
    """Print the seconds of each fit, and the ratio of both executors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    for name, value in (("topics", 200), ("iterations", 12), ("rounds", 3), ("workers", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    ratios, starts = [], []
    for _ in range(options.rounds):
        sums, first = {}, {}
        for kind in KINDS:
            with tempfile.TemporaryDirectory() as place:
                first[kind], seconds = measure(options, kind, Path(place) / "run")
            sums[kind] = sum(seconds[SETTLED:])
            times = " ".join(f"{value:.2f}" for value in seconds)
            print(f"{kind}: {first[kind]:.2f} s to the end of iteration 1, then {times}", flush=True)
        ratios.append(sums["local"] / sums["threads"])
        starts.append(first["local"] - first["threads"])
    print(f"local / threads: {statistics.median(ratios):.3f} ({', '.join(f'{ratio:.3f}' for ratio in sorted(ratios))})")
    print(f"start of a cluster: {statistics.median(starts):.2f} s")


if __name__ == "__main__":
    main()
