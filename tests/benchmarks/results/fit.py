"""Fits of one contestant to one corpus in a separate process: curves of scores, memory and metrics.

`python -m tests.benchmarks.results.fit JSON` fits a family or another library on one thread with each seed, and prints
a line of JSON for each. Time is the processor time of the fit, without reading, converting and measuring. A family's
scores are computed by the fit itself, so its time includes them.
"""

from __future__ import annotations

import itertools
import json
import logging
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from collapsium.pipeline import Model, fit
from collapsium.pipeline.analysis.metrics import labelled, topic_words
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.data_types import JsonObject
from collapsium.workers.families.description import largest
from tests.benchmarks.comparison.base import Data, Floats
from tests.benchmarks.comparison.libraries import PEERS, RESTARTS, probabilities, score_of
from tests.benchmarks.processes import peak_megabytes
from tests.benchmarks.results.plan import FLAT, STEPS

SAMPLES, SAMPLE_EVERY = 10, 10
"""Samples whose predictions are averaged, and iterations between them: a sampler's best prediction."""
SAMPLERS = {"tomotopy"}
"""Peers whose states are samples that can be read while they run."""
FOUND = 0.2
"""Largest total variation between a true topic and the fitted one that has found it: they share 80% of their words."""
Point = tuple[int, float, float]  # Iterations, processor seconds, score


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def fit_ours(request: SimpleNamespace) -> tuple[list[Point], Floats, Floats, float]:
    """Fit a family; return its curve, proportions, topics, and the seconds of the whole fit."""
    points: list[Point] = []
    began = [0.0]

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "start":
            began[0] = processor_seconds()
        elif "score" in event and event["event"] == "iteration" and "documents_share" not in event:
            points.append((event["iteration"], processor_seconds() - began[0], event["score"]))

    with tempfile.TemporaryDirectory(prefix="collapsium-") as place:
        options = {
            "iterations": request.iterations,
            "score_every": 1 if request.curve else request.iterations,
            **request.options,
        }
        if request.family != "hdp":
            options["topics"] = request.topics
        where = {"heldout": request.heldout, "scheduler": "serial", "seed": request.seed, "sinks": [listen]}
        fit(request.train, f"{place}/run", family=request.family, **where, **options)
        seconds = processor_seconds() - began[0]
        with Model(f"{place}/run") as model:
            return points, np.array(model.document_topic), np.array(model.topic_word), seconds


def fit_peer(request: SimpleNamespace, held: Data) -> tuple[list[Point], Floats, Floats, float, float | None]:
    """Fit another library until its score is flat; return the same as `fit_ours`, and the score of averaged samples."""
    data = Data.read(request.train)
    options = {"alpha": 0.1, "beta": 100.0, **request.options}
    if "eta" in options and not isinstance(options["eta"], str):
        options["beta"] = options["eta"] * data.size
    began = processor_seconds()
    arguments = SimpleNamespace(topics=request.topics, workers=1, seed=request.seed, **options)
    peer, done, spent = PEERS[request.peer](data, arguments), 0, processor_seconds() - began
    points: list[Point] = []
    theta, phi = np.empty(0), np.empty(0)

    def advance(end: int) -> None:
        nonlocal done, spent, theta, phi
        began = processor_seconds()
        peer.step(end - done)
        took, done = processor_seconds() - began, end
        spent = took if request.peer in RESTARTS else spent + took
        theta, phi = peer.estimate()

    for end in [at for at in STEPS if at < request.iterations] * request.curve + [request.iterations]:
        advance(end)
        points.append((done, spent, score_of(held, probabilities(held, theta, phi))))
        if is_flat(points, request.iterations // 5):
            break
    if request.peer not in SAMPLERS:
        return points, theta, phi, spent, None
    averaged = probabilities(held, theta, phi) / SAMPLES
    for _ in range(SAMPLES - 1):
        advance(done + SAMPLE_EVERY)
        averaged += probabilities(held, theta, phi) / SAMPLES
    return points, theta, phi, spent, score_of(held, averaged)


def is_flat(points: list[Point], least: int) -> bool:
    """Return whether twice the iterations raised the score by less than `FLAT`; never before `least` iterations."""
    done, _, last = points[-1]
    before = [score for iterations, _, score in points if iterations <= done / 2]
    return done >= least and bool(before) and last - before[-1] < FLAT


def figures_of(request: SimpleNamespace, theta: Floats, phi: Floats, texts: list[list[str]] | None) -> JsonObject:
    """Return metrics of topics and of documents' proportions."""
    corpus, data = Corpus(request.train), Data.read(request.train)
    lengths = np.add.reduceat(np.append(data.counts, 0), data.offsets[:-1]) * (np.diff(data.offsets) > 0)
    share = lengths @ theta / lengths.sum()
    alive = np.flatnonzero(share > 1e-6)
    ten = largest(phi[alive], 10)
    counts = [topic_words.count_in(Shard.of(shard.number, shard.documents()), ten) for shard in corpus.references]
    single, both = (sum(part[side] for part in counts) for side in (0, 1))
    figures: JsonObject = {
        "topics": holding(share),
        "npmi": float(topic_words.npmi(single, both, int((lengths > 0).sum())).mean()),
        "diversity": topic_words.topic_diversity(largest(phi[alive], 25)),
    }
    if texts is not None:
        names = corpus.vocabulary.words
        figures["c_v"] = float(
            topic_words.text_coherence([[names[w] for w in row] for row in ten.tolist()], texts).mean()
        )
    if request.labels is not None:
        with np.load(request.labels) as arrays:
            labels = arrays["labels"]
        main = theta.argmax(axis=1)
        figures["purity"] = labelled.purity(labels, main)
        figures["nmi"] = labelled.normalised_mutual_information(labels, main)
    if request.truth is not None:
        with np.load(request.truth) as arrays:
            figures["found"] = found(arrays["phi"], phi[alive])
    return figures


def holding(share: npt.NDArray[np.float64]) -> int:
    """Return the number of the largest topics that hold 99% of the tokens."""
    running = np.cumsum(np.sort(share)[::-1])
    return int(np.searchsorted(running, 0.99 * running[-1]) + 1)


def found(truth: Floats, phi: Floats) -> float:
    """Return the share of true topics that are matched by different fitted topics within `FOUND`."""
    apart = np.stack([np.abs(phi - topic).sum(axis=1) / 2 for topic in truth])
    rows, columns = linear_sum_assignment(apart)
    return float((apart[rows, columns] <= FOUND).sum() / len(truth))


def agreement(fits: list[Floats]) -> float:
    """Return the mean similarity of matched topics over pairs of fits: one minus their Hellinger distance.

    A topic without a match counts as zero.
    """
    values = []
    for first, second in itertools.combinations(fits, 2):
        near = 1.0 - np.sqrt(np.clip(1.0 - np.sqrt(first) @ np.sqrt(second).T, 0.0, 1.0))
        rows, columns = linear_sum_assignment(-near)
        values.append(near[rows, columns].sum() / max(near.shape))
    return float(np.mean(values))


def measured(request: SimpleNamespace) -> tuple[JsonObject, Floats]:
    """Fit; return the curve, time, memory and metrics, and the topics."""
    held, began = Data.read(request.heldout), time.time()
    averaged: float | None = None
    if request.family:
        points, theta, phi, seconds = fit_ours(request)
    else:
        points, theta, phi, seconds, averaged = fit_peer(request, held)
    peak = peak_megabytes()
    texts = None if request.texts is None else json.loads(Path(request.texts).read_text(encoding="utf-8"))
    figures = figures_of(request, theta, phi, texts)
    result: JsonObject = {
        "seed": request.seed,
        "points": [[n, round(s, 3), round(score, 4)] for n, s, score in thinned(points)],
        "iterations": points[-1][0],
        "seconds": round(seconds, 2),
        "wall": round(time.time() - began, 1),
        "megabytes": round(peak),
        "score": round(points[-1][2], 4),
        **({} if averaged is None else {"averaged": round(averaged, 4)}),
        **{name: round(value, 4) for name, value in figures.items()},
    }
    return result, phi


def thinned(points: list[Point]) -> list[Point]:
    """Return the points at the iterations of `STEPS`, and the last one."""
    return [point for point in points if point[0] in STEPS or point is points[-1]]


def main() -> None:
    """Fit with all seeds; the first fit records the curve and ends when it is flat, and all others end there too."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    options = json.loads(sys.argv[1])
    fits = []
    for seed in options.pop("seeds"):
        result, phi = measured(SimpleNamespace(**options, curve=not fits, seed=seed))
        options["iterations"] = result["iterations"]
        fits.append(phi)
        if len(fits) > 1:
            result["points"] = []
        print(json.dumps(result), flush=True)
    print(json.dumps({"stability": round(agreement(fits), 4)}), flush=True)


if __name__ == "__main__":
    main()
