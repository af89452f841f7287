"""Other libraries, run as their users would: `python -m tests.benchmarks.peers NAME TRAIN HELDOUT ...` prints JSON
lines.

TRAIN and HELDOUT are corpora, or files that `Data.save` wrote of them; a library that reads these files does not
include the memory of our reader. Lines mark the beginning and the end of a fit, so that its memory can be measured.

Every other line has the seconds that the library has spent fitting (including initialisation, but not reading,
converting and scoring), its iterations, and the score of its current state. The score is the same for all: the mean
over held-out tokens of log sum_k theta_dk phi_kw, in nats, with theta = (n_dk + alpha) / (n_d + K alpha) and phi =
(n_kw + beta/W) / (n_k + beta), or the library's own estimates if it has some. Words that a library does not know get
the prior's probability. With `--samples S`, the last line also has the score of the mean prediction of S samples,
`--sample-every` iterations apart, the last of which is the last state.
"""

import argparse
import json
import logging
import time

import numpy as np

from tests.benchmarks.comparison.base import Data
from tests.benchmarks.comparison.libraries import LIBRARIES, PEERS, RESTARTS, installed, probabilities, score_of
from tests.benchmarks.processes import peak_megabytes

__all__ = ["LIBRARIES", "PEERS", "RESTARTS", "Data", "installed"]

EACH = 0.1  # share of the iterations between two scores


def steps(iterations):
    """Return the iterations to run between scores: a few early ones, then tenths."""
    early = [at for at in (1, 2, 5, 10, 20, 50) if at < iterations * EACH]
    at = sorted({*early, *(max(round(iterations * EACH * n), 1) for n in range(1, round(1 / EACH) + 1))})
    return np.diff([0, *at]).tolist()


def print_line(**line):
    """Print a line of JSON, and flush it."""
    print(json.dumps(line), flush=True)


def stops(arguments):
    """Return the iterations after which the fit is scored, and those whose predictions are averaged."""
    last = arguments.iterations
    sampled = [last - back * arguments.sample_every for back in range(arguments.samples)] if arguments.samples else []
    scored = [last] if arguments.last else np.cumsum(steps(last)).tolist()
    return sorted({*scored, *sampled}), set(sampled)


def run(arguments):
    """Fit a library step by step, and print the score of its state after each step."""
    data, held = Data.read(arguments.train), Data.read(arguments.heldout)
    if arguments.eta is not None:
        arguments.beta = arguments.eta * data.size
    peer, spent, done = PEERS[arguments.peer](data, arguments), 0.0, 0
    ends, sampled = stops(arguments)
    averaged = np.zeros(held.words.size)
    for end in ends:
        print_line(state="fitting")
        began = time.perf_counter()
        peer.step(end - done)
        took = time.perf_counter() - began
        print_line(state="fitted")
        spent, done = (took if arguments.peer in RESTARTS else spent + took), end
        memory = peak_megabytes()
        predicted = probabilities(held, *peer.estimate())
        line = {"seconds": spent, "iterations": done, "score": score_of(held, predicted), "megabytes": memory}
        if end in sampled:
            averaged += predicted / len(sampled)
        if sampled and end == ends[-1]:
            line["averaged"] = score_of(held, averaged)
        print_line(**line)


def main():
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("train", help="training corpus, or .npz file of it")
    parser.add_argument("heldout", help="held-out tokens of the same documents")
    parser.add_argument("--topics", type=int, required=True)
    parser.add_argument("--iterations", type=int, required=True, help="of the peer's own kind: samples, sweeps, passes")
    parser.add_argument("--alpha", type=float, default=0.1, help="of each topic (default: 0.1)")
    parser.add_argument("--beta", type=float, default=100.0, help="of a topic over all words (default: 100)")
    parser.add_argument("--workers", type=int, default=2, help="cores (default: 2)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--last", action="store_true", help="score the last state only")
    parser.add_argument("--eta", type=float, help="of a word in a topic, instead of --beta")
    parser.add_argument("--samples", type=int, default=0, help="samples to average (default: 0)")
    parser.add_argument("--sample-every", type=int, default=10, help="iterations between two (default: 10)")
    for library in LIBRARIES.values():
        for name, default in library.options.items():
            flag = f"--{name.replace('_', '-')}"
            parser.add_argument(
                flag, type=type(default), default=default, help=f"of {library.name} (default: {default})"
            )
    arguments = parser.parse_args()
    if (arguments.samples - 1) * arguments.sample_every >= arguments.iterations:
        parser.error(f"{arguments.samples} samples are more than {arguments.iterations} iterations have")
    logging.disable(logging.WARNING)
    run(arguments)


if __name__ == "__main__":
    main()
