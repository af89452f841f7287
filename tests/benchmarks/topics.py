"""Public metrics of topics on public data sets, for Collapsium and other libraries, with published values.

DATA is a folder of data sets in the format of TopMost and HiCOT (train_bow.npz, test_bow.npz, train_labels.txt,
test_labels.txt, vocab.txt and optionally train_texts.txt) or of OCTIS (corpus.tsv, vocabulary.txt). Each model is
fitted to the training documents with each seed. Metrics are computed of the topics' words, and of the largest topics
of the test documents with their labels; proportions of test documents are fitted with fixed topics, by the same method
for all libraries. If the test documents are the training documents, Collapsium's proportions come from the fit.

OUT gets results.json and table.md. Fits that results.json contains are not repeated, so that further models and seeds
can be added: `--name` names Collapsium's row, and `--set` sets options of `collapsium.pipeline.fit`.
"""

import argparse
import json
import math
import statistics
import tempfile
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import scipy.sparse

from collapsium.pipeline import Model, fit, ingest
from collapsium.pipeline.analysis.metrics import labelled, topic_words
from collapsium.pipeline.analysis.metrics.topic_words import count_in, npmi, text_coherence, top_words
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import CollapsiumError
from collapsium.workers.families.description import largest
from collapsium.workers.families.dirichlet import fold_in_counts
from tests.benchmarks.peers import LIBRARIES, PEERS, Data, installed
from tests.benchmarks.topics_data import PUBLISHED, read_data_sets

EXAMPLES = """examples:
  python -m tests.benchmarks.topics data out
  python -m tests.benchmarks.topics data out --name sparse --set alpha=0.02 --set iterations=200
  python -m tests.benchmarks.topics data out --peers tomotopy,gensim --only 20NG --seeds 2"""
FIGURES = {
    "purity": "purity",
    "nmi": "NMI",
    "ari": "ARI",
    "accuracy": "accuracy",
    "strict_diversity": "strict diversity (15)",
    "diversity": "diversity (25)",
    "inverted_rbo": "inverted RBO (10)",
    "npmi": "NPMI in documents",
    "c_v": "c_v in texts",
    "seconds": "seconds",
}
"""Heads of the table's columns."""
ITERATIONS = {"tomotopy": 1000, "topica": 100, "gensim": 20, "scikit-learn": 50}
ALPHA, BETA = 0.1, 100.0
"""Prior of a topic in a document, and of a topic over all words, of the other libraries: the defaults of ours."""


def write_corpora(data, folder):
    """Write both parts of a data set as corpora, and return their paths."""
    folder.mkdir(parents=True)
    (folder / "vocabulary.txt").write_text("\n".join(data.words) + "\n", encoding="utf-8")
    paths = []
    for name, part in (("train", data.train), ("test", data.test)):
        scipy.sparse.save_npz(folder / f"{name}.npz", part.counts)
        (folder / f"{name}.labels").write_text("\n".join(f"c{label}" for label in part.labels) + "\n", encoding="utf-8")
        reading = {"vocabulary": str(folder / "vocabulary.txt"), "label_files": f"label={folder / name}.labels"}
        ingest(folder / f"{name}.npz", folder / name, format="npz", **reading)
        paths.append(folder / name)
    return paths


def fit_ours(data, corpora, place, options, seed):
    """Fit with Collapsium; return proportions of training and test documents, and the topics' words."""
    model = fit(str(corpora[0]), str(place / f"run-{seed}"), seed=seed, **options)
    train = model.document_topic
    test = train if data.tests_on_training else model.transform(corpora[1], seed=seed)
    return train, test, lambda count: top_words(Model(place / f"run-{seed}"), count)[1]


def fit_peer(name, data, corpora, options, seed):
    """Fit another library; return proportions of training and test documents, and the topics' words."""
    # scikit-learn refuses word priors above 1
    prior = {"alpha": ALPHA, "beta": min(BETA, len(data.words))}
    settings = SimpleNamespace(topics=options["topics"], workers=options.get("workers", 1), seed=seed, **prior)
    peer = PEERS[name](Data.read(corpora[0]), settings)
    peer.step(options.get("iterations", ITERATIONS[name]))
    train, phi = peer.estimate()
    return train, folded(Corpus(corpora[1]), phi, settings.alpha), lambda count: largest(phi, count)


def folded(corpus, phi, alpha):
    """Fit proportions of documents with fixed topics of any library."""
    parts = []
    for reference in corpus.references:
        shard = reference.load()
        counts = fold_in_counts(shard, np.ascontiguousarray(phi[:, shard.words].T), np.full(len(phi), alpha))
        parts.append((counts + alpha) / (counts.sum(axis=1, keepdims=True) + alpha * len(phi)))
    return np.concatenate(parts)


def figures_of(data, corpora, train, test, words):
    """Return the metrics of a fit."""
    clusters = test.argmax(axis=1)
    shards = [Shard.of(reference.number, reference.documents()) for reference in Corpus(corpora[0]).references]
    ten = words(10)
    counts = [count_in(shard, ten) for shard in shards]
    single, both = (sum(part[side] for part in counts) for side in (0, 1))
    found = {
        "purity": labelled.purity(data.test.labels, clusters),
        "nmi": labelled.normalised_mutual_information(data.test.labels, clusters),
        "ari": labelled.adjusted_rand_index(data.test.labels, clusters),
        "accuracy": labelled.unseen_accuracy(data.train.labels, train, data.test.labels, test),
        "strict_diversity": topic_words.strict_diversity(words(15)),
        "diversity": topic_words.topic_diversity(words(25)),
        "inverted_rbo": topic_words.inverted_rbo(ten),
        "npmi": float(npmi(single, both, data.train.counts.shape[0]).mean()),
    }
    if data.train.texts is not None:
        names = [[data.words[word] for word in row] for row in ten.tolist()]
        found["c_v"] = float(text_coherence(names, data.train.texts, "c_v").mean())
    return found


def option(text):
    """Return the name and the value of an option, such as ``alpha=0.1``; a value that is not TOML is a text."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, found {text!r}")
    try:
        return name.strip().replace("-", "_"), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip().replace("-", "_"), value.strip()


def mean_and_deviation(values):
    """Return the mean of some values with their standard deviation, as text."""
    numbers = [value for value in values if value is not None and math.isfinite(value)]
    if not numbers:
        return ""
    spread = f" ± {statistics.stdev(numbers):.3f}" if len(numbers) > 1 else ""
    return f"{statistics.fmean(numbers):.3f}{spread}"


def table(results):
    """Return the results as Markdown: a table for each data set, with published values and their sources."""
    lines = ["Means over the seeds and their standard deviations. Proportions of test documents, topics of all.", ""]
    for name in sorted({result["data"] for result in results}):
        rows = [result for result in results if result["data"] == name]
        shown = [figure for figure in FIGURES if any(figure in row["figures"] for row in rows)]
        lines += [f"## {name}", "", f"| model | seeds | {' | '.join(FIGURES[figure] for figure in shown)} | source |"]
        lines.append(f"| --- | ---: | {' | '.join('---:' for _ in shown)} | --- |")
        for model, options in dict.fromkeys((row["model"], row["options"]) for row in rows):
            measured = [row["figures"] for row in rows if (row["model"], row["options"]) == (model, options)]
            cells = [mean_and_deviation([figures.get(figure) for figures in measured]) for figure in shown]
            lines.append(f"| {model} | {len(measured)} | {' | '.join(cells)} | {options} |")
        for model, published, source in PUBLISHED.get(name, []):
            cells = [f"{published[figure]:.3f}" if figure in published else "" for figure in shown]
            lines.append(f"| {model} | | {' | '.join(cells)} | {source} |")
        lines.append("")
    return "\n".join(lines)


def run(arguments):
    """Make the missing fits, and write the results after each."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "results.json"
    results = json.loads(path.read_text()) if path.exists() else []
    options = {"family": arguments.family, "topics": arguments.topics, **dict(arguments.set)}
    contestants = [arguments.name, *arguments.peers] if not arguments.without_ours else arguments.peers
    for data in read_data_sets(arguments.data):
        if arguments.only and data.name not in arguments.only:
            continue
        with tempfile.TemporaryDirectory(prefix="collapsium-") as name:
            place = Path(name)
            corpora = write_corpora(data, place / "corpora")
            for model in contestants:
                model_options = options if model == arguments.name else {"topics": options["topics"]}
                shown = ", ".join(f"{key} = {value}" for key, value in model_options.items())
                for seed in range(arguments.seeds):
                    key = {"data": data.name, "model": model, "seed": seed, "options": shown}
                    if any(key.items() <= result.items() for result in results):
                        continue
                    began = time.perf_counter()
                    if model == arguments.name:
                        parts = fit_ours(data, corpora, place, model_options, seed)
                    else:
                        parts = fit_peer(model, data, corpora, model_options, seed)
                    seconds = time.perf_counter() - began
                    figures = {**figures_of(data, corpora, *parts), "seconds": seconds}
                    results.append({**key, "figures": figures})
                    path.write_text(json.dumps(results, indent=1))
                    (arguments.out / "table.md").write_text(table(results))
                    text = ", ".join(f"{FIGURES[figure]} {value:.3f}" for figure, value in figures.items())
                    print(f"{data.name}, {model}, seed {seed}: {text}", flush=True)
    print((arguments.out / "table.md").read_text() if results else "nothing was fitted")


def names(text):
    """Return names separated by commas, of libraries that are installed."""
    chosen = [name.strip() for name in text.split(",") if name.strip()]
    for name in chosen:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"unknown library {name!r}; known: {', '.join(PEERS)}")
        if not installed(LIBRARIES[name].module):
            raise argparse.ArgumentTypeError(f"{name} is not installed")
    return chosen


def main(arguments=None):
    """Read the command line and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="a folder of data sets, or a data set")
    parser.add_argument("out", type=Path, help="folder of the results")
    parser.add_argument("--name", default="collapsium", help="name of ours in the table (default: %(default)s)")
    parser.add_argument("--family", default="lda", help="family of ours (default: %(default)s)")
    parser.add_argument("--topics", type=int, default=50, help="number of topics (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default: %(default)s)")
    parser.add_argument("--set", type=option, action="append", default=[], metavar="NAME=VALUE",
                        help="an option of `collapsium.pipeline.fit`; may be repeated")  # fmt: skip
    parser.add_argument("--peers", type=names, default=[], help=f"libraries to fit too: {', '.join(PEERS)}")
    parser.add_argument("--without-ours", action="store_true", help="fit the other libraries alone")
    parser.add_argument("--only", type=lambda text: text.split(","), help="data sets, separated by commas")
    try:
        run(parser.parse_args(arguments))
    except CollapsiumError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
