"""Experiments on simulated documents: 5 topics of 10 terms, weights from distances in a cube, and perplexity given
labels.

All draw pi_mk ~ Gamma(alpha p_k, prod_j w_kj^-r_mj), fit hdsp with twice as many topics, select the best of several
restarts by the bound, and match topics by KL divergence. A topic that was fitted twice counts as the sum of both. An
effect of a label on all topics alike cannot be seen in proportions, so each label's mean over the topics is subtracted
from the log weights.
"""

import statistics
from pathlib import Path

import numpy as np

from collapsium.pipeline import evaluate, fit
from collapsium.storage.runs.run import Run
from tests.benchmarks.labels_drawing import Truth, agreement, bags, centred, found, matched, pooled, sticks, write
from tests.benchmarks.labels_tables import lines, saved, table
from tests.benchmarks.labels_tables import write as written

NEAR, ORDERED = 0.15, 0.8  # largest total variation distance of recovered topics, and least rho of recovered weights
LEAST = 0.05  # least p of a topic, because a topic that no document has cannot be recovered
# The initialisation of the paper, and the simulated alpha: with larger alpha, topics of neighbouring words merge.
BARS = {"initial_topics": "lda", "alpha": 1.0, "learn": ("gamma", "weights"), "eta": 0.5, "iterations": 200}
# Documents at alpha 1 contain little information on weights: even with known pi, rho is 0.82 with ten labels and 0.91 with
# # five; at alpha 3, 0.93 and 0.96. Alpha is learned, because a fixed one lets copies of topics separate documents instead of labels.
# known, of five 0.91; at 3, 0.93 and 0.96. Alpha is learned: held, copies of topics part documents that labels should.
CUBE = {"initial_topics": "lda", "eta": 0.5, "iterations": 100}
CUBE_WORDS = 20, 0.1  # size of the vocabulary, and the Dirichlet parameter of simulated topics
COMPARED = """rho: of log weights less each label's mean over the topics; rho_raw: as they come; mae: of 1/w, each label's
scale being made the true one; mae_raw: as they come."""
EACH = 2.0  # mean number of labels per document


def recovered(out, truth, counts, has, restarts, seed, **options):
    """Fit the simulated data unless the run exists."""
    corpus, run = out / f"corpus-{seed}", out / f"run-{seed}"
    if not corpus.exists():
        write(corpus, counts, has)
    if not Run(run).model.exists("model.json") and not (Path(run) / "members").exists():
        settings = {"topics": 2 * truth.share.size, "restarts": restarts, "keep": "best", "scheduler": "serial"}
        fit(corpus, run, family="hdsp", seed=seed, **settings, **options)
    return found(run)


def bars():
    """Return five topics (5, 10) over four neighbouring terms each, whose outer terms are shared with the next topic."""
    topics = np.zeros((5, 10))
    for topic in range(5):
        topics[topic, np.arange(2 * topic - 1, 2 * topic + 3) % 10] = 0.1, 0.4, 0.4, 0.1
    return topics


def spread():
    """Return weights of four labels and five topics from 0.1 to 10; some labels raise a topic, and others lower it."""
    scale = np.geomspace(0.1, 10.0, 20)
    return np.array([[scale[4 * ((k + 2 * j) % 5) + j] for k in range(5)] for j in range(4)])


def synthetic(out, documents, tokens, seeds, restarts):
    """Recover five topics over ten terms and the order of four labels' weights, for each seed."""
    rows, last = [], None
    print("seed  worst topic (total variation)  rho of weights  found")
    for seed in range(seeds):
        generator = np.random.default_rng(seed)
        truth = Truth(sticks(5, 1.0, generator, LEAST), spread(), bars())
        has = generator.random((documents, 4)) < 0.5
        counts, _ = bags(truth, has, tokens, 1.0, generator)
        fitted = recovered(out, truth, counts, has, restarts, seed, **BARS)
        matches, far = matched(truth, fitted)
        weights = pooled(truth, fitted)
        row = {"seed": seed, "worst": float(far.max()), **agreement(truth, weights)}
        row["recovered"] = bool(row["worst"] < NEAR and row["rho"] >= ORDERED)
        print(f"{seed:4d}  {row['worst']:29.3f}  {row['rho']:14.3f}  {row['recovered']}", flush=True)
        rows.append(row)
        last = last or (truth, fitted, matches, weights)
    draw_synthetic(*last, out)
    good = sum(row["recovered"] for row in rows)
    note = f"all topics within {NEAR} in total variation, rho of weights at least {ORDERED}: {good} of {seeds} seeds"
    names = "seed", "worst", "rho", "rho_raw", "mae", "mae_raw", "recovered"
    written(out, "synthetic", {"rows": rows, "recovered": good}, [table(rows, names)], f"{note}. {COMPARED}")


def draw_synthetic(truth, fitted, matches, weights, out):
    """Plot true and fitted topics and centred log weights of the first seed, as heat maps."""
    pairs = [("true topics", truth.topics), ("inferred topics", fitted.topics[matches])]
    logs = [("true weights", centred(np.log(truth.weights)).T), ("inferred weights", centred(weights).T)]

    def painter(title, values, max_labels, kind):
        def paint(axes):
            image = axes.imshow(
                values, cmap=kind, aspect="auto", vmin=min(-max_labels, 0) if kind != "Greys" else 0, vmax=max_labels
            )
            axes.figure.colorbar(image, ax=axes, shrink=0.8)
            axes.set(title=title, ylabel="topic", xlabel="term" if kind == "Greys" else "label (log w)")

        return paint

    max_labels = max(float(np.abs(picture).max()) for _, picture in logs)
    panels = [painter(*pair, 0.5, "Greys") for pair in pairs] + [painter(*pair, max_labels, "RdBu_r") for pair in logs]
    saved(out / "synthetic.png", panels, legend=False)


def cube(out, sides, runs, documents, topics, labels, tokens, alpha, restarts):
    """Compare simulated weights, from distances in a cube, with fitted ones, by the side of the cube."""
    rows = []
    print("side  run  rho  rho raw  mean absolute error of 1/w: scaled, raw  worst topic  median topic")
    for side in sides:
        folder = out / f"side-{side:g}"
        for number in range(runs):
            generator = np.random.default_rng([int(side * 1000), number])
            places = [generator.uniform(0.0, side, (count, 3)) for count in (labels, topics)]
            far = np.linalg.norm(places[0][:, np.newaxis] - places[1], axis=2)
            drawn = generator.dirichlet(np.full(CUBE_WORDS[0], CUBE_WORDS[1]), topics)
            truth = Truth(np.full(topics, 1.0 / topics), 1.0 / far, drawn)
            has = generator.random((documents, labels)) < EACH / labels
            counts, _ = bags(truth, has, tokens, alpha, generator)
            fitted = recovered(folder, truth, counts, has, restarts, number, alpha=alpha, **CUBE)
            distance = matched(truth, fitted)[1]
            row = {"side": side, "run": number, **agreement(truth, pooled(truth, fitted))}
            row.update(worst=float(distance.max()), median=float(np.median(distance)))
            print(f"{side:4g}  {number:3d}  {row['rho']:.2f}  {row['rho_raw']:7.2f}  {row['mae']:33.2f} {row['mae_raw']:5.2f}"
                  f"  {row['worst']:11.2f}  {row['median']:12.2f}", flush=True)  # fmt: skip
            rows.append(row)
    means = by(rows, "side", ("rho", "rho_raw", "mae", "mae_raw", "median"))
    for mean in means:
        mean["rho_median"] = statistics.median(row["rho"] for row in rows if row["side"] == mean["side"])
    draw_cube(means, out)
    shown = table(means, ("side", "rho", "rho_error", "rho_median", "rho_raw", "mae", "mae_raw", "median"))
    print(shown)
    note = f"Means of {runs} runs; median: total variation of the median topic. {COMPARED}"
    written(out, "cube", {"means": means, "rows": rows}, [shown], note)


def by(rows, name, figures):
    """Average rows that have the same value, with standard errors."""
    means = []
    for value in dict.fromkeys(row[name] for row in rows):
        chosen, mean = [row for row in rows if row[name] == value], {name: value}
        for figure in figures:
            found_ = [row[figure] for row in chosen]
            mean[figure] = statistics.mean(found_)
            mean[f"{figure}_error"] = statistics.stdev(found_) / len(found_) ** 0.5 if len(found_) > 1 else 0.0
        means.append(mean)
    return means


def draw_cube(means, out):
    """Plot mean absolute error and rho against the side."""

    def painter(names, title):
        def paint(axes):
            for name, label in names.items():
                error = [row[f"{name}_error"] for row in means]
                lines(axes, [row["side"] for row in means], [row[name] for row in means], label, error)
            axes.set(xlabel="side of the cube", ylabel=title, ylim=(0, 1) if "rho" in names else (0, None))

        return paint

    saved(out / "cube.png", [
        painter({"mae": "each label's scale the true one", "mae_raw": "raw"}, "mean absolute error of 1/w"),
        painter({"rho": "less each label's mean", "rho_raw": "raw"}, "Spearman's rho"),
    ])  # fmt: skip


DEFAULTS = {"length": 50, "labels": 100, "documents": 500}
VARIED = {"length": (10, 25, 50, 100, 200), "labels": (10, 50, 100), "documents": (100, 250, 500, 1000, 2000)}
TEST = 200  # documents
GAMMA = 20.0  # truncation of the sticks, with which some 60 topics have most of the tokens
SHOWN = {"length": "tokens of a document", "labels": "labels", "documents": "training documents"}


def predictive(out, words, topics, runs, iterations, alpha, variance):
    """Measure perplexity given labels with and without labels in training, varying three settings of the simulation."""
    rows = []
    print("varied     value  run    HDP   HDSP")
    for varied, values in VARIED.items():
        for value in values:
            sizes = {**DEFAULTS, varied: value}
            for number in range(runs):
                folder = out / f"{sizes['length']}-{sizes['labels']}-{sizes['documents']}-{number}"
                drawn = _drawn(folder, sizes, words, topics, alpha, variance, number)
                row = {"varied": varied, "value": value, "run": number}
                for name, train in (("HDP", "bare"), ("HDSP", "train")):
                    run = folder / name.lower()
                    if not Run(run).model.exists("model.json"):
                        fit(
                            folder / train,
                            run,
                            family="hdsp",
                            topics=topics,
                            alpha=alpha,
                            seed=number,
                            iterations=iterations,
                        )
                    row[name] = evaluate(run, unseen=drawn, given_labels=True).given_labels.perplexity
                rows.append(row)
                print(f"{varied:9s}  {value:5d}  {number:3d}  {row['HDP']:5.0f}  {row['HDSP']:5.0f}", flush=True)
    panels = {name: by([row for row in rows if row["varied"] == name], "value", ("HDP", "HDSP")) for name in VARIED}
    draw_predictive(panels, out)
    means = [{"varied": name, **row} for name, panel in panels.items() for row in panel]
    note = f"perplexity of {TEST} unseen documents given their labels; HDP: hdsp without labels; else {DEFAULTS}"
    names = "varied", "value", "HDP", "HDP_error", "HDSP", "HDSP_error"
    written(out, "predictive", {"means": means, "rows": rows}, [table(means, names)], note)


def _drawn(folder, sizes, words, topics, alpha, variance, seed):
    """Simulate training documents, the same without labels, and test documents; return their paths."""
    if (folder / "test").exists():
        return folder / "test"
    generator = np.random.default_rng([*sizes.values(), seed])
    weights = np.exp(generator.normal(0.0, variance**0.5, (sizes["labels"], topics)))
    share = sticks(topics, GAMMA, generator)
    truth = Truth(share, weights, generator.dirichlet(np.full(words, 0.1), topics))
    for name, documents in (("train", sizes["documents"]), ("test", TEST)):
        has = generator.random((documents, sizes["labels"])) < EACH / sizes["labels"]
        counts, _ = bags(truth, has, sizes["length"], alpha, generator)
        if name == "train":
            write(folder / "bare", counts, has, labelled=False)
        write(folder / name, counts, has)
    return folder / "test"


def draw_predictive(panels, out):
    """Plot perplexity against each of the three settings."""

    def painter(name):
        def paint(axes):
            for model in ("HDP", "HDSP"):
                error = [row[f"{model}_error"] for row in panels[name]]
                lines(axes, [row["value"] for row in panels[name]], [row[model] for row in panels[name]], model, error)
            axes.set(xlabel=SHOWN[name], ylabel="perplexity given labels")

        return paint

    saved(out / "predictive.png", [painter(name) for name in panels])
