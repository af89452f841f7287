"""Time to load checkpoints and models, and the share of their checks: ``python -m tests.benchmarks.loads OUT``.

Corpora are simulated in OUT, and each family is fitted there with each kind of its states, unless the files exist.
FAMILY... selects families. Checkpoints are then restored as by `fit --resume`, and models are opened with all their
rows and documents, in one thread. The table has medians of processor time in milliseconds: for a corpus, for a
checkpoint without its corpus, for its checks (`ModelChecks`) with their share of the checkpoint and of both, and the
same for a model. Files come from the system's cache.
"""

import argparse
import contextlib
import shutil
import statistics
import time
from pathlib import Path

import numpy as np

from collapsium.pipeline import Model, fit, simulate
from collapsium.pipeline.engine.checkpoints import RunCheckpointer
from collapsium.pipeline.engine.setup.loading import LoadedCorpus
from collapsium.pipeline.engine.setup.request import fingerprint, resumed_request
from collapsium.pipeline.executors.threads import ThreadExecutor
from collapsium.pipeline.models.registry import load_family
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.shard import read_documents
from collapsium.storage.corpus.writer import CorpusWriter
from collapsium.storage.io.folder import Folder, created
from collapsium.storage.runs.run import Run
from collapsium.workers.families.gibbs.states import draw_labels, with_labels
from collapsium.workers.families.model_checks import ModelChecks

CHECKS = ("rows", "local", "documents", "columns", "token_fingerprint", "row_fingerprint", "tallies")
NETWORK = {
    "corpus": {"over": "corpus"},
    "kind": {"over": "label", "field": "label", "parents": ["corpus"]},
    "document": {"over": "document", "parents": ["kind"], "otherwise": ["corpus"], "mixing": 0.5},
    "section": {"over": "segment", "parents": ["document", "section[-1]"]},
}
DENSE = 10
"""Fits that hold numbers of all topics for each pair have a corpus of a tenth of the tokens."""
CASES = {
    "lda": ({}, {"seeds": 2}, {"weights": "idf"}, {"order": 2}, {"responsibilities": "dense"}),
    "hdp": ({}, {"init": "clusters", "init_strength": 2.0}, {"order": 2}),
    "keyword-lda": ({"seeds": 2}, {"seeds": 2, "weights": "idf"}),
    "vb-lda": ({}, {"weights": "idf"}),
    "hdsp": ({}, {"scaling": "linear"}),
    "gibbs-lda": ({},),
    "gibbs-hdp": ({"init_topics": 100},),
    "gibbs-ncrp": ({},),
    "ncrp": ({"max_nodes": 40}, {"form": "factorised", "max_nodes": 40}),
    "hca": ({"max_nodes": 20}, {"form": "factorised", "max_nodes": 20}),
    "author-topic": ({},),
    "labeled-lda": ({},),
    "partially-labeled-lda": ({"topics_per_label": 10},),
    "segmented-lda": ({}, {"inference": "variational"}),
    "sequential-lda": ({}, {"inference": "variational"}),
    "dirichlet-network": ({"network": NETWORK}, {"network": NETWORK, "inference": "variational"}),
}  # fmt: skip


def corpus_of(out, kind, tokens):
    """Simulate a corpus of documents with 100 tokens, or of vectors, unless it exists."""
    place = out / f"{kind}-{tokens}"
    family, more = {
        "documents": ("partially-labeled-lda", {"tokens": 100, "words": 20_000}),
        "segments": ("segmented-lda", {"tokens": 100, "words": 20_000, "topics": 20}),
        "vectors": ("hca", {"words": 64}),
    }[kind]
    if not place.exists():
        drawn = out / f"drawn-{tokens}" if kind == "segments" else place
        simulate(drawn, family=family, documents=tokens // 100, seed=1, **more)
        if drawn != place:
            label(Corpus(drawn), place)
            shutil.rmtree(drawn)
    return place


def label(corpus, place):
    """Copy a corpus with a label for each document."""
    generator, names = np.random.default_rng(1), [("label", f"label-{number}") for number in range(8)]
    with created(Folder(place)) as folder:
        words = corpus.vocabulary.words
        writer = CorpusWriter(folder, len(words), max(row.tokens for row in corpus.manifest.shards))
        for row in corpus.manifest.shards:
            documents = read_documents(corpus.folder, row, len(words))
            writer.add_shard(with_labels(documents, draw_labels(len(names), len(documents), generator), names))
        writer.finish(words)


def run_of(out, family, options, tokens, topics):
    """Fit a family for two iterations, unless the run exists."""
    fitted = load_family(family)
    segmented = fitted.uses_segments
    kind = "vectors" if fitted.corpus_kind == "vectors" else "segments" if segmented else "documents"
    corpus = corpus_of(out, kind, tokens // DENSE if {"order", "responsibilities"} & set(options) else tokens)
    words = Corpus(corpus).vocabulary.words
    number = {"topics": topics} if "topics" in fitted.Options.model_fields else {}
    named = {"seeds": {"first": words[:5], "second": words[5:9]}} if "seeds" in options else {}
    run = out / "-".join(
        [family, *map(str, options), *(str(v) for v in options.values() if isinstance(v, str)), str(tokens)]
    )
    if not (run / "model" / "model.json").exists():
        settings = {**number, **options, **named}
        fit(corpus, run, family=family, iterations=2, grow="never", scheduler="threads", workers=1, **settings)
    return run


class Stopwatch:
    """Measures the seconds in the checks of arrays while it is entered."""

    def __enter__(self):
        self.seconds, self._stack = 0.0, contextlib.ExitStack()
        for name in (*CHECKS, "of"):
            self._watch(name)
        return self

    def _watch(self, name):
        before = vars(ModelChecks)[name]
        function = before.__func__ if name == "of" else before

        def timed(*args, **kwargs):
            began = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - began

        setattr(ModelChecks, name, staticmethod(timed) if name == "of" else timed)
        self._stack.callback(setattr, ModelChecks, name, before)

    def __exit__(self, *error):
        self._stack.close()


def restored(run):
    """Restore a run's checkpoint; return the seconds of the corpus, of the checkpoint, and of its checks."""
    target, began = Run(run), time.process_time()
    request, _ = resumed_request(target, None, None, {})
    executor = ThreadExecutor(1)
    try:
        problem = LoadedCorpus(request, [], executor, None).problem(request.seed)
        read = time.process_time()
        with Stopwatch() as watch:
            checkpointer = RunCheckpointer(
                target, problem, fingerprint(request.record()), with_locals=not request.stochastic
            )
            state = checkpointer.restore().state
            executor.collect([executor.submit(_done, part) for part in (*state.blocks, *state.swept)])
        return read - began, time.process_time() - read, watch.seconds
    finally:
        executor.close()


def _done(part):
    """Wait for an asynchronous read."""


def opened(run):
    """Open a model with all its rows and documents; return the seconds, and the seconds of its checks."""
    began = time.process_time()
    with Stopwatch() as watch:
        model = Model(run / "model")
        for block in range(len(model.blocks)):
            model.rows(block)
        for shard in range(len(model.record.shards) if model.fitted else 0):
            model.local_state(shard)
    return time.process_time() - began, watch.seconds


def line(run, rounds):
    """Return the cells of a row of the table."""
    restored(run), opened(run)  # load the kernels first
    first = [statistics.median(values) for values in zip(*(restored(run) for _ in range(rounds)), strict=True)]
    second = [statistics.median(values) for values in zip(*(opened(run) for _ in range(rounds)), strict=True)]
    size = sum(path.stat().st_size for path in (run / "checkpoints").rglob("*") if path.is_file()) / 1e6
    (corpus, load, checks), (open_, checked) = first, second
    cells = [f"{size:.0f}", *(f"{1e3 * seconds:.1f}" for seconds in (corpus, load, checks)), f"{checks / load:.1%}"]
    cells.append(f"{checks / (corpus + load):.1%}")
    return [*cells, *(f"{1e3 * seconds:.1f}" for seconds in (open_, checked)), f"{checked / open_:.1%}"]


def main():
    """Make the missing fits, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("families", nargs="*", metavar="FAMILY", default=list(CASES))
    for name, value in (("tokens", 10_000_000), ("topics", 100), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=value, help="default: %(default)s")
    parser.add_argument("--fit", action="store_true", help="only fit")
    arguments = parser.parse_args()
    print("| family | MB | corpus | checkpoint | checks | share | of both | model | checks | share |")
    print("| --- |" + " ---: |" * 9)
    for family in arguments.families:
        for options in CASES[family]:
            run = run_of(arguments.out, family, options, arguments.tokens, arguments.topics)
            shown = " ".join(str(v) if isinstance(v, str) else k for k, v in options.items() if k != "max_nodes")
            if not arguments.fit:
                print(f"| `{family}` {shown} | {' | '.join(line(run, arguments.rounds))} |", flush=True)


if __name__ == "__main__":
    main()
