"""The number of topics that `hdp` recovers: ``python -m tests.benchmarks.numbers 10 30 --seeds 10``.

For each number and seed, a corpus is simulated, a tenth of its tokens is held out, and `hdp` is fitted twice: from its
default truncation, and from the true number without split-merge moves. The true number is the number of simulated
topics with 99% of the tokens.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from collapsium.pipeline import fit, infer, simulate, split
from collapsium.storage.runs.run import Run


def holding(share):
    """Return how many of the largest topics hold 99% of the tokens."""
    running = np.cumsum(np.sort(share)[::-1])
    return int(np.searchsorted(running, 0.99 * running[-1]) + 1)


def true_number(corpus, place, topics):
    """Return the number of topics that hold 99% of the tokens, by the simulated proportions of the documents."""
    infer(corpus, corpus, place / "truth.parquet", threshold=0.0)
    table, share = pq.read_table(place / "truth.parquet"), np.zeros(topics)
    for ids, proportions in zip(table["topics"].to_pylist(), table["proportions"].to_pylist(), strict=True):
        share[ids] += proportions
    return holding(share)


def last(run):
    """Return the last iteration among a run's events."""
    return [event for event in Run(run).events() if event["event"] == "iteration"][-1]


def measure(topics, documents, alpha, seed, place):
    """Return the true number, the recovered number and both scores of one corpus."""
    drawn = {"documents": documents, "words": 500, "tokens": 100, "topics": topics, "alpha": alpha, "seed": seed}
    simulate(place / "corpus", family="lda", **drawn)
    split(place / "corpus", place / "train", place / "heldout", seed=1)
    options = {"family": "hdp", "heldout": place / "heldout", "seed": seed, "score_every": 200}
    fit(place / "train", place / "known", topics=topics, split_merge_moves=False, **options)
    fit(place / "train", place / "found", **options)
    known, found = last(place / "known"), last(place / "found")
    return true_number(place / "corpus", place, topics), int(found["topics_99"]), found["score"], known["score"]


def main():
    """Measure, with a line for each corpus, and summarise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topics", type=int, nargs="+", help="numbers of simulated topics")
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--alpha", type=float, default=0.1, help="a_k of the documents that are drawn (default: 0.1)")
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    for topics in arguments.topics:
        near, worse = 0, []
        for seed in range(arguments.seeds):
            with tempfile.TemporaryDirectory() as place:
                truth, found, score, known = measure(topics, arguments.documents, arguments.alpha, seed, Path(place))
            near += abs(found - truth) <= 0.1 * truth
            worse.append(known - score)
            print(
                f"{topics} simulated, seed {seed}: {found} of {truth}, {score:.4f}; from the number {known:.4f}",
                flush=True,
            )
        nearly_equal = sum(loss <= 0.005 for loss in worse)
        print(
            f"{topics} simulated: {near} of {arguments.seeds} within 10%; {nearly_equal} at most 0.005 worse, mean {np.mean(worse):.4f}"
        )


if __name__ == "__main__":
    main()
