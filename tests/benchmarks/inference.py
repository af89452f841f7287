"""Speed of inference: `python -m tests.benchmarks.inference RUN CORPUS` prints documents per second of several
libraries.

RUN is a fit of `lda` to other documents than CORPUS, which has the same vocabulary and is folded in. Collapsium's time
includes everything from opening the run to writing the file of proportions. The other libraries get the documents in
memory in their own format, and their results are discarded. gensim uses the topics of RUN; tomotopy is trained on
CORPUS itself, because it cannot import topics. Each uses `--workers` cores. Repetitions alternate, and the medians of
elapsed and processor time are printed; the latter is more reliable on a busy machine.
"""

import argparse
import json
import tempfile
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil

from collapsium.pipeline import Model, infer
from tests.benchmarks.comparison.base import Data

TRAINING_SWEEPS = (
    50  # training iterations of tomotopy, whose inference takes the same time with any topics of this size
)


def ours(run, corpus, workers):
    """Return a function that infers with Collapsium, from a corpus on disk to a file."""

    def call():
        with tempfile.TemporaryDirectory() as place:
            infer(run, corpus, Path(place) / "proportions.parquet", scheduler="threads", workers=workers)

    return call


def tomotopy_inference(data, topics, workers):
    """Return a function that infers with tomotopy, in its threads."""
    import tomotopy

    words = [list(map(str, data.tokens(number))) for number in data.documents()]
    model = tomotopy.LDAModel(k=topics, alpha=0.1, eta=0.05, seed=1)
    for document in words:
        if document:
            model.add_doc(document)
    model.train(TRAINING_SWEEPS, workers=workers)
    documents = [model.make_doc(document) for document in words if document]
    return lambda: model.infer(documents, workers=workers)


def gensim_chunk(model, chunk):
    """Infer a chunk of documents with gensim."""
    return model.inference(chunk)[0].shape


def gensim_inference(data, run, workers):
    """Return a function that infers with gensim, in processes, because its inference is single-threaded."""
    from gensim.models import LdaModel

    model = Model(run)
    phi = np.concatenate([model.rows(block).word_topic for block in range(len(model.record.blocks) - 1)]).T
    peer = LdaModel(num_topics=phi.shape[0], id2word={number: str(number) for number in range(phi.shape[1])}, alpha=0.1)
    peer.state.sstats = phi
    peer.sync_state()
    bags = []
    for number in data.documents():
        pairs = slice(data.offsets[number], data.offsets[number + 1])
        bags.append(list(zip(data.words[pairs].tolist(), data.counts[pairs].tolist(), strict=True)))
    chunks = [bags[first : first + peer.chunksize] for first in range(0, len(bags), peer.chunksize)]
    pool = get_context("fork").Pool(workers)
    return lambda: pool.map(partial(gensim_chunk, peer), chunks, chunksize=1)


def processor_seconds():
    """Return the processor time of this process and of its living children."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(process.cpu_times().user + process.cpu_times().system for process in processes)


def main():
    """Read the command line and print a line of JSON for each library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("corpus")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", nargs="*", default=["tomotopy", "gensim"])
    arguments = parser.parse_args()
    data, topics = Data.read(arguments.corpus), len(Model(arguments.run).topics())
    calls = {"collapsium": ours(arguments.run, arguments.corpus, arguments.workers)}
    if "tomotopy" in arguments.peers:
        calls["tomotopy"] = tomotopy_inference(data, topics, arguments.workers)
    if "gensim" in arguments.peers:
        calls["gensim"] = gensim_inference(data, arguments.run, arguments.workers)
    # compile or load the kernels first
    calls["collapsium"]()
    spent = {name: [] for name in calls}
    for _ in range(arguments.repeats):
        for name, call in calls.items():
            began, processor = time.perf_counter(), processor_seconds()
            call()
            spent[name].append((time.perf_counter() - began, processor_seconds() - processor))
    documents, tokens = len(data.documents()), int(data.counts.sum())
    for name, pairs in spent.items():
        seconds, processor = np.median(pairs, axis=0).tolist()
        line = {
            "library": name,
            "documents": documents,
            "tokens": tokens,
            "topics": topics,
            "workers": arguments.workers,
        }
        line |= {"seconds": round(seconds, 3), "processor_seconds": round(processor, 3)}
        line |= {"documents_a_second": round(documents / seconds)}
        print(json.dumps({**line, "documents_a_processor_second": round(documents / processor)}), flush=True)


if __name__ == "__main__":
    main()
