"""The two experiments of Wang and Blei (2009), with the paper's values, and simulated trees.

``python -m tests.benchmarks.trees jacm CORPUS OUT``: the column of Table 1 on JACM abstracts, five-fold, in-document.
``python -m tests.benchmarks.trees digits TRAIN TEST OUT``: Table 2 on the optical digits, with PCA for comparison.
``python -m tests.benchmarks.trees simulated FAMILY OUT``: the accuracy of topics or loadings fitted to simulated trees
of 3 x 3 leaves, for each seed; ``--documents``, ``--words``, ``--tokens`` and ``--iterations`` set their sizes.

Corpora are folders made by `collapsium ingest`. Files that exist in OUT are not made again.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from collapsium.pipeline import Corpus, Model, evaluate, fit, simulate, split, topics
from collapsium.pipeline.fitted_model import parts_for
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.runs.members import leaves
from collapsium.storage.runs.run import Run
from collapsium.workers import special_functions as special
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.ncrp.tree import Tree

PRIOR = {"depth": 3, "eta": (1.0,), "alpha": (50.0, 20.0, 10.0), "gamma": 1.0}
PAPER = {"variational": -5.433, "Gibbs": -5.392}
RESTARTS, SAMPLES, LAG, SWEEPS = 5, 30, 10, 1000
DIGITS = {  # depth: nodes, and reconstruction errors of HCA and PCA on the training and the test part
    2: (9, 631.6, 699.4, 863.0, 878.5),
    3: (14, 559.8, 585.6, 722.3, 727.7),
    4: (18, 463.4, 506.1, 621.0, 633.0),
    5: (22, 384.8, 461.8, 553.0, 564.2),
}


def fitted(corpus, out, **options):
    """Fit a run unless it exists; return it and the seconds of the fit."""
    began = time.perf_counter()
    if not Run(out).model.exists("model.json") and not (Path(out) / "members").exists():
        fit(corpus, out, **options)
    return out, time.perf_counter() - began


def in_document(run, corpus):
    """Score documents in-document, in nats per token, averaged over the probabilities by a run's models.

    Paths and proportions of each document are fitted to all its tokens with the topics held fixed, and the same tokens
    are scored: log sum_c q(c) prod_m sum_l theta_l phi_{c_l} (section 4.1 of Wang and Blei 2009).
    """
    logs = [document_logs(Model(url), Corpus(corpus)) for _, url in leaves(run)]
    mean = np.logaddexp.reduce(logs) - np.log(len(logs))
    return float(mean.sum()) / Corpus(corpus).manifest.tokens


def document_logs(model, corpus):
    """Return the log probability of each document, with proportions and paths fitted to all its tokens and topics
    fixed."""
    blocks = [tasks.Block(*bounds, model.rows(number), Delta()) for number, bounds in enumerate(model.blocks)]
    found = []
    for reference in corpus.references:
        shard = Shard.of(reference.number, reference.documents(), **parts_for(model))
        local = tasks.fold_in(model.family, shard, blocks, model.global_state, Stream(0, "unseen"))
        rows = tasks.gather(blocks, shard.words, complete=True)
        table = model.family.predict(shard, local, rows, model.global_state)
        owner = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
        logs = np.bincount(owner, shard.counts * special.log(table["probability"]), shard.documents)
        found.append(np.where(shard.lengths > 0, table.get("document_log", logs), 0.0))
    return np.concatenate(found)


def jacm(corpus, out):
    """Print, fold by fold, in-document scores of both families under the paper's prior."""
    print("fold  variational  nodes  seconds   Gibbs  nodes  seconds  (in-document, nats per token)")
    found = {"variational": [], "Gibbs": []}
    for fold in range(5):
        train, test = out / f"train-{fold}", out / f"test-{fold}"
        if not train.exists():
            split(corpus, train, test, folds=5, fold=fold, seed=1)
        fixed = {"restarts": RESTARTS, "keep": "best", "iterations": 100, "tolerance": 1e-5, "stop_on": "objective"}
        runs = {
            "variational": {"family": "ncrp", "posterior": "dirichlet", "compare": False, **fixed},
            "Gibbs": {
                "family": "gibbs-ncrp",
                "learn": (),
                "iterations": SWEEPS,
                "samples": SAMPLES,
                "sample_every": LAG,
            },
        }
        line = f"{fold:4d}"
        for name, options in runs.items():
            run, seconds = fitted(train, out / f"{name}-{fold}", **PRIOR, **options)
            score = in_document(run, test)
            found[name].append(score)
            line += f"  {score:11.4f}  {len(topics(run)):5d}  {seconds:7.1f}"
        print(line, flush=True)
        print("      root:", " ".join(word for word, _ in topics(out / f"variational-{fold}")[0].words))
    for name, scores in found.items():
        error = statistics.stdev(scores) / len(scores) ** 0.5
        print(f"{name}: {statistics.mean(scores):.4f} +- {error:.4f} (the paper: {PAPER[name]})")


def values_of(corpus):
    """Return all vectors of a corpus."""
    return np.concatenate([reference.load().values for reference in Corpus(corpus).references])


def principal(train, test, components):
    """Return the mean squared errors of projections on the first principal components, for both parts."""
    mean = train.mean(axis=0)
    basis = np.linalg.svd(train - mean, full_matrices=False)[2][:components]
    return [
        float((((values - mean) - (values - mean) @ basis.T @ basis) ** 2).sum(axis=1).mean())
        for values in (train, test)
    ]


def digits(train, test, out):
    """Print the reconstruction errors of both forms of HCA, of the paper and of PCA."""
    parts = values_of(train), values_of(test)
    print("depth  form         nodes  seconds  train   test  (the paper: nodes, train, test)    PCA train, test")
    for depth, (nodes, *paper) in DIGITS.items():
        flat = principal(*parts, depth)
        for form in ("conditional", "factorised"):
            options = {"family": "hca", "depth": depth, "max_nodes": nodes, "form": form, "iterations": 60}
            run, seconds = fitted(train, out / f"{form}-{depth}", **options)
            errors = [evaluate(run, unseen=vectors).reconstruction_error for vectors in (train, test)]
            found_nodes = len(topics(run))
            line = f"{depth:5d}  {form:11s}  {found_nodes:5d}  {seconds:7.1f}  {errors[0]:5.1f}  {errors[1]:5.1f}"
            print(f"{line}  ({nodes}, {paper[0]}, {paper[1]})    {flat[0]:.1f}, {flat[1]:.1f}", flush=True)
    print("defined as", evaluate(run, unseen=test).definition)


def shown(model, family):
    """Return a model's tree, the tokens or vectors below each node, and each node's word probabilities or loadings."""
    rows = [model.rows(block) for block in range(len(model.blocks))]
    if family == "hca":
        blocks = [np.abs(block.loadings(model.global_state)) for block in rows]
    else:
        blocks = [model.family.probabilities(block, model.global_state)["word_topic"] for block in rows]
    table = np.concatenate(blocks)
    return *tree_of(model.global_state, family), table / (table.sum(axis=0) + 1e-300)


def tree_of(state, family):
    """Return a model's tree, and the tokens or vectors below each node."""
    if family == "gibbs-ncrp":
        return Tree(state.node_parent, state.alpha.size), state.node_documents
    return state.fitted.tree, state.masses.node_passes if family == "hca" else state.node_passes


def distances(model, truth, family):
    """Return whether the shape of nodes with a hundredth of the tokens is correct, and by level the distance of the
    worst node."""
    tree, passes, found = shown(model, family)
    true, _, drawn = shown(truth, family)
    present = np.flatnonzero((tree.levels >= 0) & (passes >= 0.01 * passes[0]))
    kept = set(present.tolist())
    shape = sorted(
        sum(int(child) in kept for child in tree.children(node)) for node in tree.children(0) if node in kept
    )
    worst = []
    for level in range(int(true.levels.max()) + 1):
        first, second = present[tree.levels[present] == level], np.flatnonzero(true.levels == level)
        far = 0.5 * np.abs(found[:, first, np.newaxis] - drawn[:, np.newaxis, second]).sum(axis=0)
        worst.append(float(far.min(axis=0).max()) if first.size else 1.0)
    return shape == [3, 3, 3], worst


def simulated(family, out, documents, words, tokens, iterations, seeds):
    """Simulate trees, fit them, and print the distances."""
    drawn = {"depth": 3, "documents": documents, "words": words}
    drawn.update({} if family == "hca" else {"tokens": tokens, "eta": [0.05]})
    good = 0
    for seed in range(seeds):
        corpus, began = out / f"{family}-{seed}", time.perf_counter()
        if not corpus.exists():
            simulate(corpus, family=family, seed=seed, **drawn)
        run, _ = fitted(corpus, out / f"{family}-{seed}-run", family=family, depth=3, iterations=iterations, seed=seed)
        right, worst = distances(Model(run), Model(corpus), family)
        good += right and max(worst) <= 0.1
        far = " ".join(f"{value:.3f}" for value in worst)
        print(f"seed {seed}: shape {'3 x 3' if right else 'another'}, worst by level {far}, "
              f"{time.perf_counter() - began:.0f} s", flush=True)  # fmt: skip
    print(f"the shape, and all within 0.1: {good} of {seeds}")


def main():
    """Run the requested experiments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_subparsers(dest="which", required=True)
    for name, arguments in (("jacm", ("corpus", "out")), ("digits", ("train", "test", "out"))):
        command = which.add_parser(name)
        for argument in arguments:
            command.add_argument(argument, type=Path)
    command = which.add_parser("simulated")
    command.add_argument("family", choices=("ncrp", "gibbs-ncrp", "hca"))
    command.add_argument("out", type=Path)
    sizes = {"documents": 5000, "words": 200, "tokens": 200, "iterations": 300, "seeds": 10}
    for name, size in sizes.items():
        command.add_argument(f"--{name}", type=int, default=size)
    parsed = vars(parser.parse_args())
    {"jacm": jacm, "digits": digits, "simulated": simulated}[parsed.pop("which")](**parsed)


if __name__ == "__main__":
    main()
