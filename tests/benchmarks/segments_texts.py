"""Segmented and sequential models of texts: the NIPS papers by sentences, The Prince by chapters, and the speed of
sweeps."""

import gzip
import json
import re
import statistics
import time

import numpy as np

from collapsium.pipeline import Corpus, evaluate, explode, ingest, split
from collapsium.pipeline.models.registry import make_family, make_options
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import Summary
from collapsium.workers.shard_loading import document_parts
from tests.benchmarks.labels_kept import fitted
from tests.benchmarks.labels_tables import lines, saved, table, write
from tests.benchmarks.segments_planted import proportions

LAST = re.compile(r"References|REFERENCES|Bibliography|BIBLIOGRAPHY|R ?e ?f ?e ?r ?e ?n ?c ?e ?s")
HYPHEN = re.compile(r"(\w)- ?\n ?([a-z])")
HEAD = 4000  # characters within which a paper's abstract begins
LEARN = ("alpha", "beta")


def body(text):
    """Return a paper from after the word "abstract" up to its references, with hyphenated words joined."""
    found = re.search(r"\babstract\b", text[:HEAD], re.IGNORECASE)
    text = text[found.end() :] if found else text
    last = [match.start() for match in LAST.finditer(text) if match.start() > len(text) / 2]
    return HYPHEN.sub(r"\1\2", text[: last[-1]] if last else text)


def prepare(papers, out, share, seed):
    """Make the corpora: training papers, and two halves of each sentence's words of the others; each also exploded."""
    if (out / "scored-flat").exists():
        return
    opener = gzip.open if papers.suffix == ".gz" else open
    with opener(papers, "rt") as source, (out / "bodies.jsonl").open("w") as target:
        for line in source:
            record = json.loads(line)
            target.write(json.dumps({"id": record["id"], "text": body(record["text"])}) + "\n")
    ingest(out / "bodies.jsonl", out / "all", segments="sentences", min_documents=5, max_document_share=share)
    split(out / "all", out / "train", out / "test", documents=True, fraction=0.2, seed=seed)
    split(out / "test", out / "observed", out / "scored", fraction=0.5, seed=seed)
    for name in ("train", "observed", "scored"):
        explode(out / name, out / f"{name}-flat")


def nips(papers, out, topics, iterations, samples, share, seed):
    """Measure the perplexity of unseen papers after fitting one half of each sentence's words and scoring the other."""
    prepare(papers, out, share, seed)
    rows = []
    for many in topics:
        options = {"topics": many, "iterations": iterations, "samples": samples, "sample_every": 20, "seed": seed}
        cells = (
            ("segmented-lda", "segmented-lda", "", {"learn": (*LEARN, "strength", "discount")}),
            ("LDA on documents", "gibbs-lda", "", {"learn": LEARN}),
            ("LDA on segments", "gibbs-lda", "-flat", {"learn": LEARN}),
        )
        for name, family, flat, cell_options in cells:
            began = time.perf_counter()
            run = fitted(
                out / f"train{flat}", out / f"{name.replace(' ', '-')}-{many}", family=family, **cell_options, **options
            )
            spent = time.perf_counter() - began
            found = evaluate(run, unseen=out / f"observed{flat}", heldout=out / f"scored{flat}")
            row = {"model": name, "K": many, "perplexity": found.perplexity, "seconds": spent}
            row["ratio"] = (
                rows[-1 - (flat == "-flat")]["perplexity"] / found.perplexity if family == "gibbs-lda" else 1.0
            )
            rows.append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    note = "ratio: perplexity of segmented-lda over this one's; the paper's are 0.82 and 0.75 at K=100, 0.81 and 0.69 at 150."
    write(out, "nips", {"rows": rows}, [table(rows, ("model", "K", "perplexity", "ratio", "seconds"))], note)

    def paint(axes):
        for name in dict.fromkeys(row["model"] for row in rows):
            chosen = [row for row in rows if row["model"] == name]
            lines(axes, [row["K"] for row in chosen], [row["perplexity"] for row in chosen], name)
        axes.set_xlabel("topics")
        axes.set_ylabel("perplexity of unseen papers")

    saved(out / "nips.png", [paint])


def chapters(text, out, seeds):
    """Make a corpus of the book with chapters as segments, and splits that hold out a fifth of the words; each also
    exploded."""
    if (out / f"heldout-{seeds - 1}-flat").exists():
        return
    whole = text.read_text(encoding="utf-8-sig")
    first = re.search(r"^CHAPTER I\b", whole, re.MULTILINE)
    last = re.search(r"^DESCRIPTION OF THE METHODS", whole[first.end() :], re.MULTILINE)
    last = last.start() + first.end() if last else len(whole)
    (out / "prince.txt").write_text(whole[first.start() : last], encoding="utf-8")
    ingest(out / "prince.txt", out / "all", segments="headings:CHAPTER [IVXL]+")
    for seed in range(seeds):
        parts = [out / f"{name}-{seed}" for name in ("train", "heldout")]
        split(out / "all", *parts, fraction=0.2, seed=seed)
        for part in parts:
            explode(part, part.with_name(f"{part.name}-flat"))


def neighbours(theta):
    """Return the mean Hellinger distance between the proportions of consecutive rows."""
    roots = np.sqrt(theta / theta.sum(axis=1, keepdims=True))
    return float(np.sqrt(np.maximum(1.0 - (roots[1:] * roots[:-1]).sum(axis=1), 0.0)).mean())


def prince(text, out, topics, iterations, samples, seeds):
    """Compare sequential-lda with LDA on chapters by consecutive chapters' distances and held-out scores, for each
    split."""
    chapters(text, out, seeds)
    rows = []
    for seed in range(seeds):
        options = {"topics": topics, "iterations": iterations, "seed": seed}
        options.update(samples=samples, sample_every=20)
        for family, flat, cell_options in (
            ("sequential-lda", "", {"learn": ("beta", "strength", "discount")}),
            ("gibbs-lda", "-flat", {"learn": LEARN}),
        ):
            run = fitted(
                out / f"train-{seed}{flat}", out / f"{family}-{seed}", family=family, **cell_options, **options
            )
            score = evaluate(run, heldout=out / f"heldout-{seed}{flat}").score
            name = "segment_topic" if family == "sequential-lda" else "document_topic"
            places = sorted((run / "members").glob("[0-9]*")) if (run / "members").exists() else [run]
            apart = [neighbours(proportions(place, name)) for place in places]
            rows.append({"seed": seed, "family": family, "hellinger": statistics.mean(apart), "score": score})
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    mean = {
        family: [statistics.mean(row[key] for row in rows if row["family"] == family) for key in ("hellinger", "score")]
        for family in ("sequential-lda", "gibbs-lda")
    }
    note = "; ".join(f"{family}: distance {d:.3f}, {s:.4f} nats per token" for family, (d, s) in mean.items())
    more = [row["score"] - other["score"] for row, other in zip(rows[::2], rows[1::2], strict=True)]
    error = statistics.stdev(more) / len(more) ** 0.5 if len(more) > 1 else float("nan")
    note += f"; of one seed sequential-lda has {statistics.mean(more):+.4f} nats more (standard error {error:.4f})."
    write(out, "prince", {"rows": rows}, [table(rows, ("seed", "family", "hellinger", "score"))], note)

    def paint(axes):
        for family in mean:
            chosen = [row for row in rows if row["family"] == family]
            axes.plot([row["hellinger"] for row in chosen], [row["score"] for row in chosen], "o", label=family)
        axes.set_xlabel("mean Hellinger distance of neighbouring chapters")
        axes.set_ylabel("held-out nats per token")

    saved(out / "prince.png", [paint])


def speed(corpus, topics, iterations, rounds):
    """Measure the tokens per second and processor time of alternating sweeps over the corpus's first shard, as
    medians."""
    reference = Corpus(corpus).references[0]
    words = Corpus(corpus).manifest.vocabulary.words
    found = {}
    for _ in range(rounds):
        for family in ("segmented-lda", "sequential-lda", "gibbs-lda"):
            config = make_options(family, {"topics": topics})
            fitted = make_family(family, config)
            shard = reference.load(**document_parts(fitted))
            summary = Summary(shard.documents, words, shard.tokens, pairs=shard.pairs)
            global_state = fitted.initialise(summary, Stream(0))
            table = np.zeros((shard.words.size, topics), dtype=np.int32)
            rows = fitted.rows_type.from_arrays({"word_topic": table})
            local, delta = fitted.start(shard, rows, global_state, Stream(0, "start"))
            seconds = []
            for number in range(iterations):
                rows = {"word_topic": rows["word_topic"] + delta["word_topic"]}
                global_state = {**global_state, "topic": rows["word_topic"].sum(axis=0, dtype=np.int64)}
                began = time.thread_time()
                local, delta = fitted.sweep(shard, local, rows, global_state, Stream(0, "sweep", number))
                seconds.append(time.thread_time() - began)
            found.setdefault(family, []).append(shard.tokens / statistics.median(seconds))
    for family, speeds in found.items():
        print(f"{family:15s} {statistics.median(speeds) / 1e6:6.2f} million tokens a second and processor")
