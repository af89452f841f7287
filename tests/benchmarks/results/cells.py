"""Recovery of known topics of single cells from binary counts of peaks, by `lda` and other libraries in equal time.

Each of 20 topics is open at a tenth of the peaks, and 30 to 40% of a cell's counts are background. The recovery of a
topic is the correlation, over cells, of its true proportions with those that are fitted to the matched topic.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from collapsium.pipeline import Model, fit, ingest, split
from collapsium.storage.data_types import JsonObject
from tests.benchmarks.comparison.base import Data, Floats, print_result, run_module
from tests.benchmarks.comparison.libraries import LIBRARIES, PEERS, RESTARTS, installed, probabilities, score_of
from tests.benchmarks.processes import peak_megabytes
from tests.benchmarks.results.fit import Point, processor_seconds
from tests.benchmarks.results.plan import HELD_OUT

if TYPE_CHECKING:
    from tests.benchmarks.results.__main__ import Results

SIZES = {"5,000 cells": (5_000, 50_000), "20,000 cells": (20_000, 100_000)}  # Cells and peaks
TOPICS = 20
PEAKS_OF_A_CELL = 4_900
DRAWN_CELLS = 200  # cells that are simulated at a time
NEAR = 0.005  # a fit has nearly converged when its score is within this many nats of the last
TIMES = (1, 4)  # time that other libraries get, in multiples of the time of `lda`
OTHERS = ("tomotopy", "scikit-learn", "gensim")
# priors of other libraries, as for short documents in `plan`
SETTINGS = {"alpha": 0.1, "beta": 100.0, "optim_interval": 10}


def drawn(cells: int, peaks: int, seed: int) -> tuple[sparse.csr_matrix, Floats]:
    """Return simulated binary counts (cells, peaks), and the true proportions (cells, topics)."""
    generator = np.random.default_rng(seed)
    topics = np.zeros((TOPICS, peaks))
    for topic in topics:
        open_peaks = generator.choice(peaks, peaks // 10, replace=False)
        topic[open_peaks] = generator.dirichlet(np.full(peaks // 10, 0.5))
    background = generator.dirichlet(np.ones(peaks))
    proportions = generator.dirichlet(np.full(TOPICS, 0.1), size=cells)
    share = generator.uniform(0.3, 0.4, (cells, 1))
    depth = generator.lognormal(np.log(PEAKS_OF_A_CELL), 0.3, cells)
    rows = []
    for first in range(0, cells, DRAWN_CELLS):
        part = slice(first, first + DRAWN_CELLS)
        rate = ((1.0 - share[part]) * (proportions[part] @ topics) + share[part] * background).astype(np.float32)
        rate *= fragments(rate, depth[part])[:, np.newaxis]
        rows.append(sparse.csr_matrix(generator.random(rate.shape, np.float32) < -np.expm1(-rate), dtype=np.int32))
    return sparse.vstack(rows, "csr"), proportions


def fragments(rate: npt.NDArray[np.float32], depth: Floats) -> npt.NDArray[np.float32]:
    """Return the number of fragments per cell that hit as many distinct peaks as its depth requires, by fixed-point
    iteration."""
    count = (1.2 * depth).astype(np.float32)
    for _ in range(3):
        count *= (depth / -np.expm1(-count[:, np.newaxis] * rate).sum(axis=1)).astype(np.float32)
    return count


def prepared(name: str, folder: Path) -> Path:
    """Simulate, ingest and split a matrix, unless that is done; return its folder."""
    place = folder / name.replace(",", "").replace(" ", "-")
    if not (place / "done").exists():
        place.mkdir(parents=True, exist_ok=True)
        counts, proportions = drawn(*SIZES[name], seed=list(SIZES).index(name))
        sparse.save_npz(place / "counts.npz", counts)
        (place / "vocab.txt").write_text("".join(f"peak-{peak}\n" for peak in range(counts.shape[1])))
        np.save(place / "proportions.npy", proportions)
        ingest(place / "counts.npz", place / "whole", overwrite=True)
        split(place / "whole", place / "train", place / "heldout", fraction=HELD_OUT, seed=1, overwrite=True)
        (place / "done").touch()
    return place


def recovered(truth: Floats, found: Floats) -> npt.NDArray[np.float64]:
    """Return the correlation of each true topic's proportions with the matched topic's."""
    apart = found.std(axis=0)
    truth, found = (
        (part - part.mean(axis=0)) / np.where(part.std(axis=0) > 0, part.std(axis=0), 1.0) for part in (truth, found)
    )
    correlations = truth.T @ found[:, apart > 0] / len(truth)
    return correlations[linear_sum_assignment(-correlations)]


def fit_lda(place: Path) -> tuple[list[Point], Floats]:
    """Fit with the defaults; return the curve and the proportions."""
    points: list[Point] = []
    began = 0.0

    def listen(event: dict[str, Any]) -> None:
        nonlocal began
        if event["event"] == "start":
            began = processor_seconds()
        elif event["event"] == "iteration" and "score" in event:
            points.append((event["iteration"], processor_seconds() - began, event["score"]))

    with tempfile.TemporaryDirectory(prefix="collapsium-") as run:
        where = {"heldout": str(place / "heldout"), "scheduler": "threads", "workers": 1, "sinks": [listen]}
        fit(str(place / "train"), run, family="lda", topics=TOPICS, seed=1, overwrite=True, **where)
        with Model(run) as model:
            return points, np.array(model.document_topic)


def fit_other(place: Path, library: str, limit: float) -> tuple[list[Point], Floats]:
    """Fit another library for as many iterations as fit into a time, and at least one."""
    data, held = Data.read(place / "train"), Data.read(place / "heldout")
    began = processor_seconds()
    peer = PEERS[library](data, SimpleNamespace(topics=TOPICS, workers=1, seed=1, **SETTINGS))
    build_seconds, spent, done = processor_seconds() - began, 0.0, 0
    # The first iterations take longer, so each step computes anew how many more fit. A library that restarts at each step
    # # (`RESTARTS`) only does so if it can run at least a tenth more iterations.
    # again at each step (`RESTARTS`) does not for less than a tenth more.
    more, again = 1, library in RESTARTS
    while more > (done / 10 if again else 0):
        began = processor_seconds()
        peer.step(more)
        took, done = processor_seconds() - began, done + more
        spent = took if again else spent + took
        more = int((limit - build_seconds - spent) * (done if again else more) / took)
    theta, phi = peer.estimate()
    return [(done, build_seconds + spent, score_of(held, probabilities(held, theta, phi)))], theta


def measured(request: SimpleNamespace) -> JsonObject:
    """Fit; return the time, memory, score and recovery."""
    place = Path(request.place)
    points, theta = fit_other(place, request.library, request.limit) if request.library else fit_lda(place)
    iterations, seconds, score = points[-1]
    correlations = recovered(np.load(place / "proportions.npy"), theta)
    return {
        "iterations": iterations,
        "seconds": round(seconds, 1),
        "nearly_done": round(next(spent for _, spent, reached in points if reached >= score - NEAR), 1),
        "megabytes": round(peak_megabytes()),
        "score": round(score, 4),
        "recovered": round(float(correlations.mean()), 4),
        "above_95": int((correlations > 0.95).sum()),
    }


def run(out: Path, results: Results) -> None:
    """Make the fits that have no record yet."""
    for name in SIZES:
        place = prepared(name, out / "corpora")
        key: list[object] = ["cells", name, "lda"]
        if not results.has(key):
            results.add(key, _fitted(place, "", 0.0))
        seconds = next(record["seconds"] for record in results.records if record["key"] == key)
        for library in OTHERS:
            if not installed(LIBRARIES[library].module):
                print(f"{library} is not installed: left out", flush=True)
                continue
            for times in TIMES:
                key = ["cells", name, library, f"{times} x"]
                if not results.has(key):
                    results.add(key, _fitted(place, library, times * seconds))


def _fitted(place: Path, library: str, limit: float) -> JsonObject:
    options = {"place": str(place), "library": library, "limit": limit}
    result = run_module("tests.benchmarks.results.cells", options, "iterations")
    print(f"{place.name}, {library or 'lda'}: {result['recovered']}, {result['seconds']} s", flush=True)
    return result


if __name__ == "__main__":
    print_result(measured)
