"""Experiments with labels of corpora: partial labels, topics used against eta, and classification by a single label."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from collapsium.pipeline import Corpus, Model, evaluate, fit, split
from collapsium.pipeline.reporting.plots.style import COLOURS
from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.corpus.writer import CorpusWriter
from collapsium.storage.io.folder import Folder, created
from collapsium.storage.runs.run import Run
from tests.benchmarks.comparison import __main__ as comparison
from tests.benchmarks.labels_tables import lines, saved, table, write

# candidates that are compared on a tenth of the training documents: few labels need a small alpha, many a large one
SETTINGS = (
    {"topics": 100, "alpha": 5.0, "eta": 0.1},
    {"topics": 100, "alpha": 30.0, "eta": 0.1},
    {"topics": 300, "alpha": 1000.0, "eta": 0.25},
)
KEPT = """Settings of hdsp are chosen on a tenth of the training documents; settings of partially-labeled-lda, which has all
labels, on the test documents."""
HELD = {"family": "hdsp", "learn": ("gamma", "weights")}


def fitted(corpus, out, **options):
    """Fit a run unless it exists; return it."""
    if not Run(out).model.exists("model.json") and not (Path(out) / "members").exists():
        fit(corpus, out, **options)
    return out


def perplexity(run, test):
    """Return the perplexity of unseen documents given only their labels."""
    return evaluate(run, unseen=test, given_labels=True).given_labels.perplexity


def thinned(corpus, out, share, seed):
    """Return a corpus with a share of its labels."""
    if share == 1.0:
        return corpus
    if not out.exists():
        split(corpus, out, out.with_name(out.name + "-dropped"), drop_labels=1.0 - share, seed=seed)
    return out


def kept(train, test, out, shares, restarts, iterations, etas, sweeps, seed):
    """Measure perplexity given labels after training with a share of the labels, and of partially labeled LDA with all
    labels."""
    part, valid = out / "part", out / "valid"
    if not part.exists():
        split(train, part, valid, documents=True, fraction=0.1, seed=seed)
    rows = []
    print("kept  scaling  alpha  topics  perplexity  (validation)")
    for share in shares:
        less = thinned(part, out / f"part-{share:g}", share, seed)
        whole = thinned(train, out / f"train-{share:g}", share, seed)
        for scaling in ("labels", "linear"):
            common = {**HELD, "scaling": scaling, "iterations": iterations, "seed": seed}
            tried = []
            for number, setting in enumerate(SETTINGS):
                run = fitted(less, out / f"try-{share:g}-{scaling}-{number}", **common, **setting)
                tried.append(perplexity(run, valid))
            best = SETTINGS[int(np.argmin(tried))]
            last = fitted(
                whole, out / f"run-{share:g}-{scaling}-{best['alpha']:g}", restarts=restarts, **common, **best
            )
            found = {
                "kept": share,
                "scaling": scaling,
                **best,
                "perplexity": perplexity(last, test),
                "validation": tried,
            }
            rows.append(found)
            shown = " ".join(f"{scale:.0f}" for scale in tried)
            print(f"{share:4.2f}  {scaling:7s}  {best['alpha']:5g}  {best['topics']:6d}  {found['perplexity']:10.1f}  "
                  f"({shown})", flush=True)  # fmt: skip
    partial = partially(train, test, out, etas, sweeps, seed)
    draw_kept(rows, partial, out)
    tables = [table(rows, ("kept", "scaling", "alpha", "topics", "eta", "perplexity"))]
    tables.append(table(partial, ("topics_per_label", "eta", "perplexity")))
    write(out, "kept", {"rows": rows, "partially_labeled_lda": partial}, tables, KEPT)


def partially(train, test, out, etas, sweeps, seed):
    """Return the perplexities of partially labeled LDA with all labels."""
    rows = []
    for per_label in (2, 5):
        for eta in etas:
            name, options = (
                f"plda-{per_label}-{eta:g}",
                {"topics_per_label": per_label, "eta": eta, "iterations": sweeps},
            )
            run = fitted(train, out / name, family="partially-labeled-lda", seed=seed, **options)
            rows.append({"topics_per_label": per_label, "eta": eta, "perplexity": perplexity(run, test)})
            print(f"partially labeled LDA, all labels, {per_label} topics a label, eta {eta:g}: {rows[-1]['perplexity']:.1f}",
                  flush=True)  # fmt: skip
    return rows


def draw_kept(rows, partial, out):
    """Draw perplexity against the share of labels, with a line of partially labeled LDA at its best."""

    def paint(axes):
        for scaling in ("labels", "linear"):
            points = [row for row in rows if row["scaling"] == scaling]
            lines(axes, [row["kept"] for row in points], [row["perplexity"] for row in points], f"hdsp, {scaling}")
        for per_label, style in ((2, "--"), (5, ":")):
            best = min(row["perplexity"] for row in partial if row["topics_per_label"] == per_label)
            axes.axhline(
                best, color="0.3", linestyle=style, label=f"partially labeled LDA, {per_label} a label, all labels"
            )
        axes.set(xlabel="share of training labels kept", ylabel="perplexity given labels")

    saved(out / "kept.png", [paint])


def eta(train, out, etas, topics, iterations, seed):
    """Count the topics that the HDP and hdsp use, and their words, against eta."""
    bare = out / "unlabelled"
    if not bare.exists():
        copied(train, bare)
    rows = []
    print("model   eta  topics with 99% of the tokens  with more than one token  alpha")
    for name, corpus in (("HDP", bare), ("HDSP", train)):
        for value in etas:
            options = {"family": "hdsp", "topics": topics, "eta": value, "iterations": iterations, "seed": seed}
            state = Model(fitted(corpus, out / f"{name.lower()}-{value:g}", **options)).global_state
            tokens = np.sort(state.topic_total)[::-1]
            held = int(np.searchsorted(np.cumsum(tokens), 0.99 * tokens.sum()) + 1)
            row = {"model": name, "eta": value, "held": held, "used": int((tokens > 1.0).sum())}
            rows.append({**row, "alpha": float(state.prior.sum()), "tokens": tokens.tolist()})
            print(f"{name:5s}  {value:4.2f}  {held:29d}  {row['used']:24d}  {rows[-1]['alpha']:5.1f}", flush=True)
    draw_eta(rows, out)
    note = "held: topics that hold 99% of the tokens; used: topics with more than one token. HDP: hdsp without labels."
    write(out, "eta", {"rows": rows}, [table(rows, ("model", "eta", "held", "used", "alpha"))], note)


def draw_eta(rows, out):
    """Plot sorted posterior word counts, with a panel per model and a line per eta."""

    def painter(name):
        def paint(axes):
            for row in (row for row in rows if row["model"] == name):
                tokens = np.maximum(row["tokens"], 0.1)
                axes.plot(np.arange(1, tokens.size + 1), tokens, label=f"eta {row['eta']:g}")
            axes.set(yscale="log", xlabel="topic, by its words", ylabel="posterior words", title=name)

        return paint

    saved(out / "eta.png", [painter(name) for name in ("HDP", "HDSP")])


def copied(corpus, out, field=None):
    """Write a corpus again without labels, or only its documents with exactly one label of a field, with that label."""
    opened = Corpus(corpus)
    with created(Folder(out)) as fresh:
        writer = CorpusWriter(fresh, len(opened.vocabulary.words))
        for reference in opened.references:
            documents = reference.documents()
            lists = documents.extras["labels"].to_pylist()
            field_labels = [[label for label in row or () if label["field"] == field] for row in lists]
            chosen = np.array([field is None or len(labels) == 1 for labels in field_labels], dtype=bool)
            if chosen.any():
                labels = (
                    {}
                    if field is None
                    else {"labels": pa.array([labels for labels in field_labels if len(labels) == 1], LABELS)}
                )
                writer.add_shard(replace(documents.take(chosen), extras=labels))
        writer.finish(list(opened.vocabulary.words))
    return out


def classes(train, test, field, out, topics, lda, slda, alphas, iterations, seed):
    """Predict the single label of documents with hdsp, with LDA and a linear SVM, and with tomotopy's supervised LDA."""
    parts = {}
    for name, corpus in (("train", train), ("test", test)):
        parts[name] = out / name
        if not parts[name].exists():
            copied(corpus, parts[name], field)
    words = [str(parts["train"]), str(out / "comparison"), "--unseen", str(parts["test"]), "--field", field]
    words += ["--families", "hdsp", "--topics", str(topics), "--iterations", str(iterations), "--seed", str(seed)]
    words += ["--vary", f"hdsp.alpha={','.join(map(str, alphas))}", "--set", 'hdsp.learn=["gamma","weights"]']
    words += ["--classifiers", "lda-svm,slda", "--lda-topics", str(lda), "--slda-topics", str(slda)]
    found, left_out = comparison.main(words)
    names = "accuracy", "macro_f1", "micro_f1"
    able = [row for row in found if row["classified"]]
    rows = [{"name": row["cell"], **{name: row["classified"][name] for name in names}} for row in able]
    note = f"documents with exactly one {field}; left out: {', '.join(left_out) or 'nothing'}"
    write(out, "classes", {"rows": rows, "left_out": left_out}, [table(rows, ("name", *names))], note)
    draw_classes(rows, out)


def draw_classes(rows, out):
    """Plot accuracy and macro F1 as bars."""

    def painter(figure):
        def paint(axes):
            axes.barh(
                [row["name"] for row in rows], [row[figure] for row in rows], color=COLOURS[0], label="test documents"
            )
            axes.set(xlabel=figure.replace("_", " "), xlim=(0, 1))

        return paint

    saved(out / "classes.png", [painter("accuracy"), painter("macro_f1")])
