"""Histories: a fit on the simulated cluster, begun again as often as its driver dies, until it ends.

``python -m tests.chaos.histories 0 10000`` runs those seeds, and ``... 4711`` replays one and tells what befell it.
"""

import contextlib
import logging
import sys
import time
from dataclasses import dataclass
from unittest import mock

import fsspec

from collapsium.pipeline import Model, fit, resume
from collapsium.pipeline.analysis.info import info
from collapsium.pipeline.engine import topic_snapshots
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.storage.errors import ClusterError, CollapsiumError, StoreError, TakenOverError
from collapsium.storage.io import file, run_lock
from collapsium.storage.runs.members import leaves, restarts_of
from collapsium.storage.runs.run import Run
from tests.chaos.fate import LASTING, DriverCrash, Fate, FaultyFileSystem
from tests.chaos.simulated import SimulatedExecutor
from tests.conftest import simulated_rows, write_corpus
from tests.fits import TIMES, bits, require_start_at_checkpoint

fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)

RUN = "faulty://store/run"
SESSIONS = 60
KINDS = (
    {"family": "lda", "topics": 3},
    {"family": "hdp", "topics": 4},
    {"family": "vb-lda", "topics": 3, "even_sweeps": 2},
    {"family": "lda", "topics": 3, "order": 2, "learn": ["alpha", "beta"]},
    {"family": "hdp", "topics": 3, "responsibilities": "dense"},
    {"family": "lda", "topics": 3, "schedule": "stochastic", "passes": 2, "batch_shards": 1},
    {"family": "gibbs-lda", "topics": 3, "learn": ["alpha"]},
    {"family": "gibbs-hdp", "init_topics": 1, "beta": 5.0},
    {"family": "gibbs-ncrp", "eta": 0.05, "gamma": 5.0},
    {"family": "lda", "topics": 3, "samples": 2, "sample_every": 2},
    {"family": "hdp", "topics": 3, "restarts": 2},
    {"family": "lda", "topics": 3, "restarts": 2, "combine": "consensus"},
    {"family": "gibbs-lda", "topics": 3, "samples": 2, "sample_every": 1, "combine": "consensus"},
    {"family": "lda", "topics": 3, "weights": "log-tf-idf", "init": "documents", "init_strength": 2.0},
    {"family": "hdp", "topics": 3, "restarts": 2, "init": "clusters", "combine": "consensus"},
    {"corpus": "long", "family": "lda", "topics": 6},
    {"corpus": "long", "family": "hdp", "topics": 6, "init": "documents", "init_strength": 1e6},
    {"corpus": "long", "family": "lda", "topics": 6, "seeds": {"first": {"words": ["w0", "w1"], "strength": 1e4}}},
)
"""Options of fits, and the corpus where it is not ``train``: ``long`` has documents of 100,000 tokens."""


def prepare():
    """Clear the store, and write the corpora into it."""
    FaultyFileSystem.fate = None
    FaultyFileSystem.store.clear()
    write_corpus("faulty://store/corpus/train", simulated_rows(1, documents=16, words=20), 20, shard_tokens=330)
    write_corpus("faulty://store/corpus/heldout", simulated_rows(2, documents=16, words=20), 20, shard_tokens=300)
    long = simulated_rows(3, documents=3, words=20, tokens=100_000) + simulated_rows(4, documents=13, words=20)
    write_corpus("faulty://store/corpus/long", long, 20, shard_tokens=100_330)
    return dict(FaultyFileSystem.store)


@dataclass(frozen=True)
class Ended:
    """The end of a history: the models' bits, and the events without times and returns to checkpoints."""

    bits: list
    events: list


def ended():
    """The present contents of the store."""
    models = [Model(place) for place in (RUN, *(place for _, place in leaves(RUN)))]
    runs = [Run(RUN), *(run for _, run in restarts_of(RUN))]
    recorded = [event for run in runs for event in run.events() if event["event"] != "back"]
    events = [{name: value for name, value in event.items() if name not in TIMES} for event in recorded]
    return Ended([bits(model, len(model.record.shards)) for model in models], events)


def options_of(fate):
    """The fit that a seed tries."""
    kind = KINDS[int(fate.draw("options") * len(KINDS))]
    return {**kind, "iterations": 4 if "schedule" not in kind else 7, "seed": 3}


def calm(base, options):
    """The result of a fit without faults."""
    reset(base)
    with (
        unglanced(),
        mock.patch("collapsium.pipeline.engine.plan.open_executor", return_value=SerialExecutor()),
    ):
        fit(corpus_of(options), RUN, heldout="faulty://store/corpus/heldout", scheduler="serial", **fitted(options))
    return ended()


def corpus_of(options):
    """The training corpus of options."""
    return f"faulty://store/corpus/{options.get('corpus', 'train')}"


def fitted(options):
    """The options of `fit`."""
    return {name: value for name, value in options.items() if name != "corpus"}


def reset(base):
    FaultyFileSystem.fate = None
    FaultyFileSystem.store.clear()
    FaultyFileSystem.store.update(base)
    FaultyFileSystem.pseudo_dirs[:] = [""]


def unglanced():
    """Fetch no top words, because whether there is time to fetch them does not follow from a seed."""
    return mock.patch.multiple(topic_snapshots.TopicSnapshots, submit=lambda *_, **__: [], final_words=lambda *_: {})


@contextlib.contextmanager
def unhurried():
    """No pauses between attempts, no clock, and a driver that ended counts as dead, although its process is this one.

    A lock that is renewed after some seconds asks the store more often on a slow machine, and a seed would not replay.
    """
    lock = mock.patch.multiple(run_lock, is_alive=lambda *_: False, clock_seconds=lambda: 0.0, RENEWALS=1e-6)
    with unglanced(), mock.patch.object(file, "pause"), lock:
        yield


def live(base, seed):
    """Live through a history, and return what it ended with and its fate."""
    reset(base)
    fate = Fate(seed)
    options = options_of(fate)
    ends = {name: options.pop(name) for name in ("iterations",)}
    while True:
        assert fate.session < SESSIONS, "it does not come to an end"
        continues = require_start_at_checkpoint(RUN) if "/store/run/run.json" in FaultyFileSystem.store else None
        FaultyFileSystem.fate = fate
        processes = 1 + int(fate.draw("homes", fate.session) * 4)
        every = 1 + int(fate.draw("every", fate.session) * 5)
        cluster = SimulatedExecutor(fate, processes)
        opened = mock.patch("collapsium.pipeline.engine.plan.open_executor", return_value=cluster)
        try:
            with unhurried(), opened:
                if "/store/run/run.json" in FaultyFileSystem.store:
                    resume(RUN, checkpoint_every=every, scheduler="serial", sinks=[continues])
                else:
                    begin(options, ends, every)
            FaultyFileSystem.fate = None
            assert not fate.taken_over, "it went on beside its successor"
            return ended(), fate
        except (DriverCrash, KeyboardInterrupt):
            fate.faults.append("the driver ends")
        except CollapsiumError as error:
            require_called_for(error, fate)
        FaultyFileSystem.fate = None
        if "/store/run/run.json" in FaultyFileSystem.store:
            info(RUN)  # what stands can be read
        fate.again()


def begin(options, ends, every):
    train, heldout = corpus_of(options), "faulty://store/corpus/heldout"
    remnants = [path for path in FaultyFileSystem.store if path.startswith("/store/run/")]
    for path in remnants:  # a driver that died before its first record, or whose run could not be removed
        del FaultyFileSystem.store[path]
    FaultyFileSystem.pseudo_dirs[:] = [""]
    fit(train, RUN, heldout=heldout, checkpoint_every=every, scheduler="serial", **fitted(options), **ends)


def require_called_for(error, fate):
    """A clear error may end a session only if its faults call for that one."""
    fate.faults.append(f"session {fate.session}: {type(error).__name__}: {error}")
    if isinstance(error, TakenOverError):
        assert fate.taken_over, error
        return
    if isinstance(error, StoreError):
        called = "on purpose" in str(error) and fate.rates["store"] > 0.1
        assert called or (fate.lasting is not None and LASTING[fate.lasting] in str(error)), error
        return
    assert isinstance(error, ClusterError), error
    assert any(kind in fault for fault in fate.faults for kind in ("scheduler", "task", "gone")), error


def check(base, known, seed):
    """Live through a seed's history; it must end as the undisturbed one."""
    options = options_of(Fate(seed))
    name = repr(options)
    if name not in known:
        known[name] = calm(base, options)
    found, fate = live(base, seed)
    assert found.bits == known[name].bits, "other bits"
    assert found.events == known[name].events, "other events"
    return fate


def main(words):
    """Run seeds, and say which fail."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    base, known, failed, faults, sessions = prepare(), {}, [], 0, 0
    first, last = int(words[0]), int(words[1]) if len(words) > 1 else int(words[0]) + 1
    step = int(words[2]) if len(words) > 2 else 1
    began = time.monotonic()
    for number, seed in enumerate(range(first, last, step), start=1):
        try:
            fate = check(base, known, seed)
        except Exception as error:
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
            if last == first + 1:
                raise
            continue
        faults, sessions = faults + len(fate.faults), sessions + fate.session + 1
        if last == first + 1:
            print("\n".join(fate.faults))
        if number % 500 == 0:
            print(f"{number} histories, {time.monotonic() - began:.0f} s, {len(failed)} failed", flush=True)
    print(f"{number - len(failed)} passed, {len(failed)} failed; {faults} faults, {sessions} lives of the driver")
    if failed:
        print(f"replay one with: python -m tests.chaos.histories {failed[0]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
