"""Benchmarks of covariates: fits with `prevalence`, and effects with intervals.

``python -m tests.benchmarks.covariates coverage OUT``: coverage and slopes of effects on corpora simulated from known
coefficients, and the number of recovered topics. ``python -m tests.benchmarks.covariates gadarian RESPONSES OUT``: the
effect of a treatment on answers (K = 3). ``python -m tests.benchmarks.covariates yelp REVIEWS OUT``: held-out scores
with and without stars. ``python -m tests.benchmarks.covariates permuted REVIEWS OUT``: how often coefficients of
permuted stars are significant. ``python -m tests.benchmarks.covariates speed REVIEWS OUT``: CPU seconds of alternating
fits with and without 12 columns. ``python -m tests.benchmarks.covariates size REVIEWS OUT``: seconds and memory of
effects of 100,000 reviews, 12 columns.

RESPONSES is a CSV file with columns treatment, pid_rep and text, REVIEWS are JSON lines with stars and text. Results
are printed, one line for each fit, and appended to OUT/covariates.jsonl.
"""

import csv
import gzip
import json
import shutil
import time

import numpy as np
from scipy.optimize import linear_sum_assignment

from collapsium.pipeline import Model, effects, evaluate, fit, ingest, split, table_effects
from tests.benchmarks.commands import run_command
from tests.benchmarks.processes import peak_megabytes

FORMULA = "~ x1 + x2 + bs(day, df=5) + party + source + region"
LABELS, NUMBERS = ("party", "source", "region"), ("x1", "x2", "day")
FOUND = 0.95  # Bhattacharyya coefficient with a true topic above which a topic counts as recovered


def report(out, **figures):
    """Print metrics and append them to the results."""
    shown = {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}
    print(json.dumps(shown), flush=True)
    with (out / "covariates.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(shown) + "\n")


def corpus_of(place, rows, *, labels=(), covariates=(), **options):
    """Write documents, dictionaries with texts and fields, as a corpus."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with (place / "rows.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"id": str(number), **row}) + "\n" for number, row in enumerate(rows))
    ingest(place / "rows.jsonl", place / "corpus", labels=list(labels), covariates=list(covariates), **options)
    return place / "corpus"


def simulated(seed, documents, topics, words, length):
    """Simulate documents with known coefficients; return rows, a frame of fields, expected and drawn proportions, and
    phi."""
    import pandas as pd
    from formulaic import model_matrix

    noise = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "x1": noise.normal(size=documents),
        "x2": noise.uniform(-1.7, 1.7, documents),
        "day": noise.uniform(0, 366, documents),
        "party": noise.choice(["left", "right"], documents, p=[0.6, 0.4]),
        "source": noise.choice(list("abcd"), documents, p=[0.4, 0.3, 0.2, 0.1]),
        "region": noise.choice(["n", "s", "w"], documents),
    })  # fmt: skip
    matrix = model_matrix(FORMULA, frame)
    design, names = np.asarray(matrix, dtype=float), list(matrix.columns)
    coefficients = noise.normal(size=(len(names), topics)) * 0.5
    coefficients[0] = np.log(0.1) + noise.normal(size=topics) * 0.3
    day = [place for place, name in enumerate(names) if name.startswith("bs(")]
    basis = np.column_stack([np.ones(documents), design[:, day]])
    for topic, phase in enumerate(noise.uniform(0, 2 * np.pi, topics)):
        # coefficients of the spline that fit one and a half periods of a sine
        wave = np.sin(3 * np.pi * frame["day"] / 366 + phase)
        coefficients[day, topic] = np.linalg.lstsq(basis, wave, rcond=None)[0][1:]
    prior = np.exp(design @ coefficients)
    theta = np.maximum(noise.gamma(prior), 1e-300)
    theta /= theta.sum(axis=1, keepdims=True)
    phi = noise.dirichlet(np.full(words, 0.05), topics)
    running, rows = phi.cumsum(axis=1), []
    lengths = np.maximum(noise.poisson(length, documents), 2)
    for shares, size, fields in zip(theta, lengths.tolist(), frame.to_dict("records"), strict=True):
        drawn = [
            np.searchsorted(running[topic], noise.random(tokens) * running[topic, -1])
            for topic, tokens in enumerate(noise.multinomial(size, shares))
        ]
        text = " ".join(f"w{min(word, words - 1):05d}x" for word in np.concatenate(drawn).tolist())
        rows.append({"text": text, **fields})
    return rows, frame, prior / prior.sum(axis=1, keepdims=True), theta, phi


def coverage(out, seeds, first, lengths, documents, topics, words, iterations, start, formula, temperature):
    """Measure the coverage of 95% intervals and the slopes of effects on simulated documents."""
    for length in lengths:
        for seed in range(first, first + seeds):
            rows, frame, expected, theta, phi = simulated(seed, documents, topics, words, length)
            place = out / f"coverage-{length}-{seed}"
            corpus = corpus_of(place, rows, labels=LABELS, covariates=NUMBERS, min_documents=1)
            init = None
            if start == "truth":
                init = place / "theta.parquet"
                _write_proportions(init, theta)
            began = time.process_time()
            options = {"topics": topics, "iterations": iterations, "seed": seed, "init": init, "scheduler": "serial"}
            power = {"inverse_temperature": temperature or None}
            fit(corpus, place / "run", family="lda", prevalence=formula or None, **power, **options)
            fitted = time.process_time()
            found = effects(place / "run", FORMULA, scheduler="serial")
            ended = time.process_time()
            true = table_effects(expected, frame, FORMULA)
            figures = _compared(Model(place / "run"), found, true, phi)
            seconds = {"fit_seconds": fitted - began, "effects_seconds": ended - fitted}
            which = {"which": "coverage", "length": length, "seed": seed, "start": start, **power}
            report(out, **which, formula=formula, **figures, **seconds)
            shutil.rmtree(place)


def _write_proportions(path, theta):
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {f"topic_{topic}": theta[:, topic] for topic in range(theta.shape[1])}
    pq.write_table(pa.table({"id": [str(number) for number in range(len(theta))], **columns}), path)


def _compared(model, found, true, phi):
    """Return coverage and slopes over the recovered topics."""
    words = [int(word[1:6]) for word in model.vocabulary.words]
    fitted = np.zeros_like(phi)
    topics = found.topics.tolist()
    fitted[:, words] = model.topic_word[topics]
    alike = np.sqrt(fitted) @ np.sqrt(phi).T
    places, matches = linear_sum_assignment(-alike)
    good = alike[places, matches] > FOUND
    terms = [place for place, term in enumerate(true.terms) if term != "Intercept"]
    order = [found.terms.index(true.terms[place]) for place in terms]
    target = true.estimate[np.ix_(terms, matches)]
    low, high, estimate = (values[np.ix_(order, places)] for values in (found.low, found.high, found.estimate))
    inside = (low <= target) & (target <= high)
    return {
        "found": int(good.sum()),
        "coverage": float(inside[:, good].mean()),
        "alike": float(np.median(alike[places, matches])),
        "slope": float((target[:, good] * estimate[:, good]).sum() / (target[:, good] ** 2).sum()),
    }


def gadarian(responses, out, seeds, iterations):
    """Estimate the effect of the treatment on the topics of raw answers, with default options."""
    with responses.open(encoding="utf-8", newline="") as file:
        rows = [{**row, "treatment": float(row["treatment"])} for row in csv.DictReader(file)]
    for row in rows:
        row["pid_rep"] = float(row["pid_rep"]) if row["pid_rep"] else None
    corpus = corpus_of(out / "gadarian", rows, covariates=("treatment", "pid_rep"), min_documents=2)
    for formula in (None, "~ treatment * pid_rep"):
        for seed in range(seeds):
            run = out / "gadarian" / f"{formula is None}-{seed}"
            options = {"topics": 3, "iterations": iterations, "seed": seed, "scheduler": "serial"}
            fit(corpus, run, family="lda", prevalence=formula, **options)
            result = effects(run, "~ treatment", scheduler="serial")
            term = result.terms.index("treatment")
            pairs = sorted(zip(result.estimate[term].tolist(), result.se[term].tolist(), strict=True))
            report(out, which="gadarian", formula=formula, seed=seed, effects=np.round(pairs, 3).tolist())


def _reviews(reviews, count, seed):
    """Return a random sample of reviews."""
    content = gzip.decompress(reviews.read_bytes()) if reviews.suffix == ".gz" else reviews.read_bytes()
    rows = [json.loads(line) for line in content.decode().splitlines()]
    order = np.random.default_rng(seed).permutation(len(rows))[:count]
    return [{"text": rows[place]["text"], "stars": float(rows[place]["stars"])} for place in order.tolist()]


def _halves(place, rows, covariates=("stars",), labels=()):
    """Write a training corpus and held-out tokens of its documents."""
    corpus = corpus_of(place, rows, covariates=covariates, labels=labels, min_documents=10, max_document_share=0.3)
    split(corpus, place / "train", place / "heldout", fraction=0.1)
    return place / "train", place / "heldout"


def yelp(reviews, out, documents, topics, iterations):
    """Compare held-out scores with and without stars as a number."""
    rows = _reviews(reviews, documents, 0)
    train, heldout = _halves(out / "yelp", rows)
    for family in ("lda", "hdp"):
        for formula in (None, "~ stars"):
            run = out / "yelp" / f"{family}-{formula is None}"
            fit(train, run, family=family, topics=topics, iterations=iterations, prevalence=formula, scheduler="serial")
            figures = {"score": evaluate(run, heldout=heldout, scheduler="serial").score}
            if formula is not None:
                figures["deviation"] = float(Model(run).prevalence().loc["stars"].std())
            report(out, which="yelp", family=family, formula=formula, **figures)


def permuted(reviews, out, documents, topics, iterations, permutations, first):
    """Measure the share of topics with significant coefficients of permuted stars, and the standard deviation of
    lambda."""
    rows = _reviews(reviews, documents, 0)
    for number in range(first, first + permutations):
        order, began = np.random.default_rng(number + 1).permutation(len(rows)), time.process_time()
        mixed = [{**row, "stars": rows[place]["stars"]} for row, place in zip(rows, order.tolist(), strict=True)]
        train, _ = _halves(out / "permuted", mixed)
        run = out / "permuted" / "run"
        fit(train, run, family="lda", topics=topics, iterations=iterations, prevalence="~ stars", scheduler="serial")
        result = effects(run, "~ stars", scheduler="serial", corpus=train)
        term = result.terms.index("stars")
        share = float((np.abs(result.estimate[term] / result.se[term]) > 1.96).mean())
        figures = {"significant": share, "deviation": float(Model(run).prevalence().loc["stars"].std())}
        report(out, which="permuted", number=number, **figures, cpu_seconds=time.process_time() - began)


def _twelve_columns(rows):
    """Add random fields to reviews; return a formula of three fields that gives 12 columns."""
    noise = np.random.default_rng(0)
    for row in rows:
        row.update(day=float(noise.uniform(0, 366)), kind=str(noise.choice(list("abcdefg"))))
    return "~ stars + kind + bs(day, df=4)"


def size(reviews, out, documents, topics, iterations):
    """Measure seconds and memory of the effects of many reviews, which are repeated if there are not enough."""
    rows = _reviews(reviews, documents, 0)
    rows = [dict(rows[number % len(rows)]) for number in range(documents)]
    formula = _twelve_columns(rows)
    names = {"covariates": ("stars", "day"), "labels": ("kind",)}
    corpus = corpus_of(out / "size", rows, min_documents=10, max_document_share=0.3, **names)
    run = out / "size" / "run"
    fit(corpus, run, family="lda", topics=topics, iterations=iterations, inverse_temperature=1.0, scheduler="serial")
    before, wall, began = peak_megabytes(), time.perf_counter(), time.process_time()
    found = effects(run, formula, scheduler="serial")
    seconds = {"cpu_seconds": time.process_time() - began, "seconds": time.perf_counter() - wall}
    memory = {"megabytes": peak_megabytes(), "before": before}
    report(out, which="size", documents=found.documents, columns=len(found.columns), topics=topics, **seconds, **memory)
    shutil.rmtree(out / "size")


def speed(reviews, out, documents, topics, iterations, rounds):
    """Measure CPU seconds of alternating fits without and with 3 covariates of 12 columns."""
    rows = _reviews(reviews, documents, 0)
    informed = _twelve_columns(rows)
    train, _ = _halves(out / "speed", rows, ("stars", "day"), ("kind",))
    for number in range(rounds + 1):
        seconds = []
        for formula in (None, informed):
            shutil.rmtree(out / "speed" / "run", ignore_errors=True)
            began = time.process_time()
            options = {"topics": topics, "iterations": iterations if number else 2, "scheduler": "serial"}
            fit(train, out / "speed" / "run", family="lda", prevalence=formula, **options)
            seconds.append(time.process_time() - began)
        if number:  # the first two fits wait for the compiler
            plain, with_fields = seconds
            report(out, which="speed", topics=topics, lda=plain, prevalence=with_fields, ratio=with_fields / plain)


COMMANDS = {  # each command's function, its paths, and its options with defaults
    "coverage": (
        coverage,
        ("out",),
        {"seeds": 10, "first": 0, "lengths": (15, 60), "documents": 10_000, "topics": 20, "words": 2000,
         "iterations": 100, "start": "default", "formula": FORMULA, "temperature": 0.0},
    ),
    "gadarian": (gadarian, ("responses", "out"), {"seeds": 5, "iterations": 100}),
    "yelp": (
        yelp,
        ("reviews", "out"),
        {"documents": 8000, "topics": 30, "iterations": 100},
    ),
    "permuted": (
        permuted,
        ("reviews", "out"),
        {"documents": 8000, "topics": 30, "iterations": 100, "permutations": 40, "first": 0},
    ),
    "size": (size, ("reviews", "out"), {"documents": 100_000, "topics": 30, "iterations": 4}),
    "speed": (speed, ("reviews", "out"), {"documents": 8000, "topics": 30, "iterations": 60, "rounds": 3}),
}  # fmt: skip


def main(arguments=None):
    """Run the requested experiments."""
    run_command(__doc__, COMMANDS, arguments)


if __name__ == "__main__":
    main()
