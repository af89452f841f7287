"""Compare consensuses of disjoint sets of seeds with their members: scores, and the stability of their topics.

    collapsium fit TRAIN RUN0 --family lda --topics 50 --restarts 4 --combine consensus --heldout HELDOUT --seed 0
collapsium fit TRAIN RUN1 --family lda --topics 50 --restarts 4 --combine consensus --heldout HELDOUT --seed 1
python -m tests.benchmarks.consensus HELDOUT RUN0 RUN1

Stability is one minus the mean Hellinger distance of matched topics (`collapsium.pipeline.models.topics`). For
members, it is averaged over all pairs of members of two runs; for consensuses, over all pairs of runs.
"""

import argparse
import itertools

import numpy as np

from collapsium.pipeline import Corpus, Model, evaluate
from collapsium.pipeline.analysis.evaluate import evaluate_together
from collapsium.pipeline.models.topics import stability
from collapsium.storage.runs.members import members_of
from collapsium.storage.runs.run import Run

COLUMNS = (
    "held out",
    "runs of members",
    "members: worst, mean, best",
    "consensus",
    "least gain over the mean of its members",
    "predictions averaged",
    "stability of members",
    "stability of consensuses",
)


def agreement(first, second):
    """Return the mean stability of a model's topics in another."""
    return float(np.mean([topic.value for topic in stability(first, [second]).values()]))


def require_disjoint(runs):
    """Exit with an error if two runs have members with the same seed."""
    seeds = [Run(url).record()["seed"] for run in runs for _, url in members_of(run)]
    if len(set(seeds)) < len(seeds):
        raise SystemExit("expected runs whose members have different seeds")


def measure(heldout, runs):
    """Return the metrics of consensuses of one corpus, by name."""
    members = [[url for _, url in members_of(run)] for run in runs]
    scores = [[evaluate(url, heldout=heldout).score for url in urls] for urls in members]
    pairs = list(itertools.combinations(range(len(runs)), 2))
    models = [[Model(url) for url in urls] for urls in members]
    joined = [Model(run) for run in runs]
    apart = [agreement(x, y) for a, b in pairs for x in models[a] for y in models[b]]
    return {
        "corpus": Corpus(heldout).url.rstrip("/").rpartition("/")[2],
        "members": len(members[0]),
        "worst": min(map(min, scores)),
        "mean": float(np.mean(scores)),
        "best": max(map(max, scores)),
        "consensus": float(np.mean([evaluate(run, heldout=heldout).score for run in runs])),
        "averaged": float(np.mean([evaluate_together(urls, heldout).score for urls in members])),
        "member_stability": float(np.mean(apart)),
        "consensus_stability": float(np.mean([agreement(joined[a], joined[b]) for a, b in pairs])),
        "gains": [
            float(evaluate(run, heldout=heldout).score - np.mean(s)) for run, s in zip(runs, scores, strict=True)
        ],
    }


def table(rows):
    """Return the metrics as a table in Markdown."""
    lines = [
        f"| {' | '.join(COLUMNS)} |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        spread = ", ".join(f"{row[name]:.4f}" for name in ("worst", "mean", "best"))
        lines.append(
            f"| {row['corpus']} | {len(row['gains'])} of {row['members']} | {spread} | {row['consensus']:.4f} "
            f"| {min(row['gains']):+.4f} | {row['averaged']:.4f} "
            f"| {row['member_stability']:.3f} | {row['consensus_stability']:.3f} |"
        )
    return "\n".join(lines)


def main(arguments=None):
    """Print the table of the runs that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("heldout", help="corpus of held-out tokens")
    parser.add_argument("runs", nargs="+", help="two consensuses or more of one corpus, of different seeds")
    options = parser.parse_args(arguments)
    if len(options.runs) < 2:
        parser.error("expected two runs or more")
    require_disjoint(options.runs)
    print(table([measure(options.heldout, options.runs)]))


if __name__ == "__main__":
    main()
