"""Speed of the service: `python -m tests.benchmarks.service RUN TEXTS.jsonl` measures single texts and batches.

RUN is a fit of `lda`, and TEXTS.jsonl has short texts in the field "text". The service is queried over HTTP by a
client in this process. gensim (with the topics of RUN) and tomotopy (trained on the texts, because it cannot import
topics) are called in this process without HTTP and JSON, from text to proportions. The processor time is that which
the service or the library uses; it is more reliable than elapsed time on a busy machine. `--load SECONDS` then keeps
the service at four fifths of its rate in batches, publishes a new version, a copy of RUN, every `--publish` seconds,
and counts answers by status.
"""

import argparse
import collections
import contextlib
import http.client
import itertools
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil

from collapsium.pipeline import Model
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump
from collapsium.storage.runs.published import RECORD, VersionRecord, Versions, copy_run
from collapsium.storage.runs.run import Run

JOB = '[batch]\nfolder = "job"\n[ingest]\nsources = ["*.jsonl"]\n[fit]\nfamily = "lda"\ntopics = 200\n'
HEADERS = {"Content-Type": "application/json"}
TRAINING_SWEEPS = (
    20  # training iterations of tomotopy, whose inference takes the same time with any topics of this size
)


@contextlib.contextmanager
def service(run, threads):
    """Start `collapsium serve`, and yield its port and its process."""
    command = [sys.executable, "-m", "collapsium.pipeline", "serve", run, "--port", "0", "--threads", str(threads)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            found = next(filter(None, (re.search(r":(\d+)/score", line) for line in process.stderr)))
            yield int(found[1]), psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGINT)


@contextlib.contextmanager
def publishing(run, seconds):
    """Publish copies of a run, one after another; yield the file of their job and the version numbers so far."""
    numbers, stop = [], threading.Event()
    with tempfile.TemporaryDirectory() as place:
        job = Path(place) / "job.toml"
        job.write_text(JOB, encoding="utf-8")
        versions = Versions(Folder(Path(place) / "job/published"))
        record = {
            "plan": "0",
            "created": "",
            "family": "lda",
            "corpus": "0",
            "score": None,
            "definition": "",
            "job": "load",
        }
        record |= dict.fromkeys(("documents", "tokens", "words", "iterations", "scored"), 0)

        def publish():
            for number in itertools.count(1):
                with versions.made(number) as version:
                    copy_run(Run(run), version)
                    version.write(RECORD, dump(VersionRecord(number=number, **record).model_dump(mode="json")))
                versions.point(number)
                versions.keep(2)
                numbers.append(number)
                if stop.wait(seconds):
                    return

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            while not numbers:
                time.sleep(0.01)
            yield job, numbers
        finally:
            stop.set()
            thread.join()


def ask(connection, texts, **options):
    """Request the proportions of texts from the service, and return the status of the answer."""
    connection.request("POST", "/score", json.dumps({"texts": texts, **options}), HEADERS)
    response = connection.getresponse()
    response.read()
    return response.status


def in_batches(port, batches, clients, **options):
    """Request batches of texts by several concurrent clients; return the seconds and the answers by status."""

    def work(batch):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            return [ask(connection, texts, **options) for texts in batch]

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        answers = [status for part in pool.map(work, [batches[n::clients] for n in range(clients)]) for status in part]
    return time.perf_counter() - began, collections.Counter(answers)


def processor_seconds(process):
    """Return the processor time of a process so far."""
    times = process.cpu_times()
    return times.user + times.system


def gensim_inference(run):
    """Return a function from texts to proportions with gensim, using the topics of a run."""
    from gensim.corpora import Dictionary
    from gensim.models import LdaModel
    from gensim.utils import simple_preprocess

    model = Model(run)
    dictionary = Dictionary([model.vocabulary.words])
    order = [dictionary.token2id[word] for word in model.vocabulary.words]
    peer = LdaModel(num_topics=model.topic_word.shape[0], id2word=dictionary, alpha=0.1)
    peer.state.sstats[:, order] = model.topic_word * model.vocabulary.tokens.sum() / len(model.topic_word)
    peer.sync_state()
    return lambda texts: peer.inference([dictionary.doc2bow(simple_preprocess(text)) for text in texts])


def tomotopy_inference(texts, topics, threads):
    """Return a function from texts to proportions with tomotopy, trained on the texts."""
    import tomotopy

    words = re.compile(r"\w\w+").findall
    model = tomotopy.LDAModel(k=topics, alpha=0.1, eta=0.05, seed=1)
    for text in texts:
        model.add_doc(words(text.lower()))
    model.train(TRAINING_SWEEPS, workers=threads)
    return lambda texts: model.infer([model.make_doc(words(text.lower())) for text in texts], workers=threads)


def report(library, singles, texts, seconds, processor):
    """Print a line of JSON."""
    line = {"library": library, "single_ms": round(1e3 * float(np.median(singles)), 2), "texts": texts}
    line |= {"texts_a_second": round(texts / seconds), "texts_a_processor_second": round(texts / processor)}
    print(json.dumps(line), flush=True)


def measure_peer(library, infer, singles, batches):
    """Time single texts and batches with a library in this process."""
    infer(batches[0])
    times = []
    for text in singles:
        began = time.perf_counter()
        infer([text])
        times.append(time.perf_counter() - began)
    began, processor = time.perf_counter(), time.process_time()
    for texts in batches:
        infer(texts)
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    report(library, times, sum(map(len, batches)), seconds, processor)


def measure_service(run, singles, batches, threads):
    """Time single texts and batches of the service, and return the seconds of a batch."""
    with service(run, threads) as (port, process):
        in_batches(port, batches[:4], threads)
        times = []
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            for text in singles:
                began = time.perf_counter()
                ask(connection, [text])
                times.append(time.perf_counter() - began)
        for name, options in (("collapsium, all proportions", {"dense": True}), ("collapsium", {})):
            before = processor_seconds(process)
            seconds, _ = in_batches(port, batches, threads, **options)
            report(name, times, sum(map(len, batches)), seconds, processor_seconds(process) - before)
    return seconds / len(batches)


def keep_under_load(run, batches, threads, seconds, pause, publish):
    """Keep the service under load while versions are published, and print its memory and the answers by status."""
    with publishing(run, publish) as (job, numbers), service(str(job), threads) as (port, process):
        end, answers, longest = time.monotonic() + seconds, collections.Counter(), 0.0
        for first in itertools.count(0, threads):
            if time.monotonic() > end:
                break
            chosen = [batches[(first + n) % len(batches)] for n in range(threads)]
            taken, statuses = in_batches(port, chosen, threads)
            answers.update(statuses)
            longest = max(longest, taken)
            time.sleep(pause)
        line = {
            "load_seconds": seconds,
            "versions": len(numbers),
            "answers": dict(answers),
            "longest_s": round(longest, 2),
        }
        line |= {"texts_a_second": round(answers[200] * len(batches[0]) / seconds)}
        print(json.dumps(line | {"megabytes": process.memory_info().rss >> 20}), flush=True)


def main():
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("texts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=500, help="texts of a request")
    parser.add_argument("--singles", type=int, default=300, help="single texts")
    parser.add_argument("--load", type=float, default=0.0, help="seconds of load at four fifths of the rate")
    parser.add_argument("--publish", type=float, default=60.0, help="seconds between two versions under load")
    parser.add_argument("--peers", nargs="*", default=["gensim", "tomotopy"])
    arguments = parser.parse_args()
    texts = [json.loads(line)["text"] for line in Path(arguments.texts).read_text(encoding="utf-8").splitlines()]
    batches = [texts[first : first + arguments.batch] for first in range(0, len(texts), arguments.batch)]
    singles = texts[: arguments.singles]
    batch_seconds = measure_service(arguments.run, singles, batches, arguments.threads)
    if arguments.load:
        keep_under_load(arguments.run, batches, arguments.threads, arguments.load, batch_seconds / 4, arguments.publish)
    if "gensim" in arguments.peers:
        measure_peer("gensim", gensim_inference(arguments.run), singles, batches)
    if "tomotopy" in arguments.peers:
        topics = len(Model(arguments.run).topics())
        measure_peer("tomotopy", tomotopy_inference(texts, topics, arguments.threads), singles, batches)


if __name__ == "__main__":
    main()
