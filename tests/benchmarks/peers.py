"""The peers, each as its users run it: `python -m tests.benchmarks.peers NAME TRAIN HELDOUT ...` prints JSON lines.

TRAIN and HELDOUT are corpora, or files that `Data.save` wrote of them: a peer that reads those does not carry the
memory of our reader. Lines say when a fit begins and ends, so that memory can be watched while it lasts.

Every other line has the seconds that the peer has spent fitting (its initialisation counted; reading, converting and
scoring not), its iterations, and the score of its current state by the one definition that all are measured with: the
mean over held-out tokens of log sum_k theta_dk phi_kw, in nats, with theta = (n_dk + alpha) / (n_d + K alpha) and
phi = (n_kw + beta/W) / (n_k + beta), or the peer's own estimates where it gives those. Words that a peer does not know
get the prior's probability.
"""

import argparse
import json
import logging
import resource
import time

import numpy as np

from collapsium.pipeline.workflows.compare.baselines.corpus_arrays import Data
from collapsium.pipeline.workflows.compare.baselines.libraries import PEERS, RESTARTS, score
from collapsium.pipeline.workflows.compare.catalogue import LIBRARIES, installed

__all__ = ["LIBRARIES", "PEERS", "RESTARTS", "Data", "installed", "score"]

EACH = 0.1  # of the iterations, between two scores


def steps(iterations):
    """Iterations to run between scores: a few early ones, then tenths."""
    early = [at for at in (1, 2, 5, 10, 20, 50) if at < iterations * EACH]
    at = sorted({*early, *(max(round(iterations * EACH * n), 1) for n in range(1, round(1 / EACH) + 1))})
    return np.diff([0, *at]).tolist()


def tell(**line):
    """Print a line of JSON, at once."""
    print(json.dumps(line), flush=True)


def run(given):
    """Fit a peer step by step, and print where it stands after each."""
    data, held = Data.read(given.train), Data.read(given.heldout)
    peer, spent, done = PEERS[given.peer](data, given), 0.0, 0
    for more in [given.iterations] if given.last else steps(given.iterations):
        tell(state="fitting")
        began = time.perf_counter()
        peer.step(more)
        took = time.perf_counter() - began
        tell(state="fitted")
        spent, done = (took if given.peer in RESTARTS else spent + took), done + more
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        found = score(held, *peer.estimate())
        tell(seconds=spent, iterations=done, score=found, megabytes=memory)


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
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    run(given)


if __name__ == "__main__":
    main()
