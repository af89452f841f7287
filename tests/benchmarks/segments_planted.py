"""Simulated segmented and sequential corpora, and their recovery by fits."""

import shutil
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy.optimize import linear_sum_assignment

from collapsium.pipeline import Corpus, Model
from collapsium.pipeline.models.registry import make_family, make_options
from collapsium.storage.building.split import explode_corpus
from collapsium.storage.corpus.list_columns import segment_lists
from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.writer import CorpusWriter, even_shard_tokens
from collapsium.storage.io.folder import Folder, created
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import Summary
from collapsium.workers.families.networks.family import draw_vectors
from collapsium.workers.families.networks.graph import graph_of
from tests.benchmarks.labels_kept import fitted
from tests.benchmarks.labels_tables import saved, table, write

MODELS = {"segmented-lda": 5.0, "sequential-lda": 20.0}  # families with the strengths of their simulation
FOUND = 0.15  # total variation distance within which a topic counts as recovered
WITHIN = 1.5  # factor within which a strength counts as recovered


@dataclass(frozen=True)
class Truth:
    """Topics (topics, words), the segments' proportions (segments, topics), and b."""

    topics: np.ndarray
    segments: np.ndarray
    strength: float


def draw(family, out, documents, segments, tokens, topics, words, seed):
    """Write a simulated corpus with equal numbers of segments and tokens; return the true parameters."""
    stream, strength = Stream(seed, "planted"), MODELS[family]
    generator = stream.generator()
    config = make_options(family, {"topics": topics, "alpha": 0.3, "strength": strength})
    global_state = make_family(family, config).initialise(Summary(documents, words, 0), stream)
    bounds, none = np.arange(documents + 1) * segments, np.zeros(documents + 1, dtype=np.int64)
    graph = graph_of(global_state.plan, bounds, (none, none[:0]))
    nu = draw_vectors(graph, global_state, np.zeros((0, topics)), generator)[graph.segment_node]
    phi = generator.dirichlet(np.full(words, 0.1), topics)
    counts = generator.multinomial(tokens, nu @ phi)
    segment, word = np.nonzero(counts)
    lengths = np.bincount(segment, minlength=len(counts))
    offsets = np.concatenate([[0], np.cumsum(lengths)])[bounds]
    column = segment_lists(np.diff(bounds), lengths)
    ids = pa.array([str(number + 1) for number in range(documents)], pa.string())
    drawn = Documents(ids, offsets, word.astype(np.int32), counts[segment, word].astype(np.int32), {"segments": column})
    with created(Folder(out)) as folder:
        writer = CorpusWriter(folder, words, even_shard_tokens(int(counts.sum())))
        writer.add(drawn)
        writer.finish([f"w{number:04d}" for number in range(words)])
    return Truth(phi, nu, strength)


def proportions(run, name):
    """Return the topic proportions of a run's documents, or of their segments."""
    model = Model(run)
    half = model.family
    found = [half.infer(model.local_state(n), model.global_state)[name] for n in range(len(model.record.shards))]
    return np.concatenate(found)


def compared(run, truth, name):
    """Return the mean total variation distances of topics and of segments' proportions, and the largest one of a
    topic."""
    model = Model(run)
    phi = np.concatenate([model.family.probabilities(model.rows(n), model.global_state)["word_topic"] for n in [0]]).T
    apart = 0.5 * np.abs(truth.topics[:, np.newaxis] - phi).sum(axis=2)
    rows, columns = linear_sum_assignment(apart)
    theta = proportions(run, name)[:, columns]
    return {
        "topics": float(apart[rows, columns].mean()),
        "worst": float(apart[rows, columns].max()),
        "segments": float(0.5 * np.abs(theta - truth.segments[:, rows]).sum(axis=1).mean()),
    }


def planted(out, seeds, documents, segments, tokens, topics, words, iterations):
    """Measure the recovery of topics, strength and segments' proportions, compared with LDA on the segments."""
    rows = []
    for family in MODELS:
        for seed in range(seeds):
            place = out / f"{family}-{seed}"
            place.mkdir(exist_ok=True)
            for old in (place / "corpus", place / "flat"):
                shutil.rmtree(old, ignore_errors=True)  # simulated again, identically
            truth = draw(family, place / "corpus", documents, segments, tokens, topics, words, seed)
            explode_corpus(Corpus(place / "corpus"), place / "flat")
            options = {"topics": topics, "iterations": iterations, "seed": seed}
            learn = ("alpha", "beta", "strength")
            segment_run = fitted(place / "corpus", place / "run", family=family, learn=learn, **options)
            lda = fitted(place / "flat", place / "lda", family="gibbs-lda", learn=("alpha", "beta"), **options)
            found, beside = compared(segment_run, truth, "segment_topic"), compared(lda, truth, "document_topic")
            strength = float(Model(segment_run).global_state.strength[1])
            row = {"family": family, "seed": seed, "b": truth.strength, "found b": strength, **found}
            row["LDA's segments"] = beside["segments"]
            row["holds"] = bool(
                found["worst"] < FOUND
                and 1 / WITHIN < strength / truth.strength < WITHIN
                and found["segments"] < beside["segments"]
            )
            rows.append(row)
            print("  ".join(f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}"
                            for name, value in row.items()), flush=True)  # fmt: skip
    held = {family: sum(row["holds"] for row in rows if row["family"] == family) for family in MODELS}
    note = "; ".join(f"{family}: {count} of {seeds} seeds hold" for family, count in held.items())
    names = ("family", "seed", "b", "found b", "topics", "worst", "segments", "LDA's segments", "holds")
    write(out, "planted", {"rows": rows, "held": held}, [table(rows, names)], note + ".")

    def paint(axes):
        for family in MODELS:
            chosen = [row for row in rows if row["family"] == family]
            axes.plot([row["LDA's segments"] for row in chosen], [row["segments"] for row in chosen], "o", label=family)
        axes.axline((0.1, 0.1), slope=1, color="0.7")
        axes.set_xlabel("LDA on segments: distance from the truth")
        axes.set_ylabel("distance of segments' proportions from the truth")

    saved(out / "planted.png", [paint])
