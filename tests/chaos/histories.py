"""Histories of a fit on the simulated cluster, which is resumed whenever its driver dies, until it ends.

``python -m tests.chaos.histories 0 10000`` runs the seeds from 0 to 9999, and ``... 4711`` replays one seed and prints
its faults.
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
    """Write the corpora into an empty store, and return the store's contents for `reset`."""
    FaultyFileSystem.fate = None
    FaultyFileSystem.store.clear()
    write_corpus("faulty://store/corpus/train", simulated_rows(1, documents=16, words=20), 20, shard_tokens=330)
    write_corpus("faulty://store/corpus/heldout", simulated_rows(2, documents=16, words=20), 20, shard_tokens=300)
    long = simulated_rows(3, documents=3, words=20, tokens=100_000) + simulated_rows(4, documents=13, words=20)
    write_corpus("faulty://store/corpus/long", long, 20, shard_tokens=100_330)
    return dict(FaultyFileSystem.store)


@dataclass(frozen=True)
class Result:
    """The result of a history: the bits of all models, and the events without times and without returns to
    checkpoints."""

    bits: list
    events: list


def read_result():
    """Read the result of the run from the store."""
    models = [Model(place) for place in (RUN, *(place for _, place in leaves(RUN)))]
    runs = [Run(RUN), *(run for _, run in restarts_of(RUN))]
    recorded = [event for run in runs for event in run.events() if event["event"] != "back"]
    events = [{name: value for name, value in event.items() if name not in TIMES} for event in recorded]
    return Result([bits(model, len(model.record.shards)) for model in models], events)


def options_of(fate):
    """Draw the options of the fit."""
    kind = KINDS[int(fate.draw("options") * len(KINDS))]
    return {**kind, "iterations": 4 if "schedule" not in kind else 7, "seed": 3}


def undisturbed_result(base, options):
    """Return the result of a fit without faults."""
    reset(base)
    with (
        without_top_words(),
        mock.patch("collapsium.pipeline.engine.plan.open_executor", return_value=SerialExecutor()),
    ):
        fit(
            corpus_of(options), RUN, heldout="faulty://store/corpus/heldout", scheduler="serial", **fit_options(options)
        )
    return read_result()


def corpus_of(options):
    """Return the URL of the training corpus that the options name."""
    return f"faulty://store/corpus/{options.get('corpus', 'train')}"


def fit_options(options):
    """Return the options without `corpus`, as `fit` accepts them."""
    return {name: value for name, value in options.items() if name != "corpus"}


def reset(base):
    FaultyFileSystem.fate = None
    FaultyFileSystem.store.clear()
    FaultyFileSystem.store.update(base)
    FaultyFileSystem.pseudo_dirs[:] = [""]


def without_top_words():
    """Patch the driver to fetch no top words: whether there is time for them depends on the machine, not on the seed."""
    return mock.patch.multiple(topic_snapshots.TopicSnapshots, submit=lambda *_, **__: [], final_words=lambda *_: {})


@contextlib.contextmanager
def independent_of_time():
    """Make the driver independent of time, so that a seed replays.

    There are no pauses between attempts, and no clock: on a slow machine, a lock that is renewed after some seconds
    would access the store more often. A driver that ended counts as dead although its process, which is this one, is
    alive.
    """
    lock = mock.patch.multiple(run_lock, is_alive=lambda *_: False, clock_seconds=lambda: 0.0, RENEWALS=1e-6)
    with without_top_words(), mock.patch.object(file, "pause"), lock:
        yield


def run_history(base, seed):
    """Run and resume the fit until it ends; return its result and the faults."""
    reset(base)
    fate = Fate(seed)
    options = options_of(fate)
    ends = {name: options.pop(name) for name in ("iterations",)}
    while True:
        assert fate.session < SESSIONS, "the run does not end"
        continues = require_start_at_checkpoint(RUN) if "/store/run/run.json" in FaultyFileSystem.store else None
        FaultyFileSystem.fate = fate
        processes = 1 + int(fate.draw("homes", fate.session) * 4)
        every = 1 + int(fate.draw("every", fate.session) * 5)
        cluster = SimulatedExecutor(fate, processes)
        opened = mock.patch("collapsium.pipeline.engine.plan.open_executor", return_value=cluster)
        try:
            with independent_of_time(), opened:
                if "/store/run/run.json" in FaultyFileSystem.store:
                    resume(RUN, checkpoint_every=every, scheduler="serial", sinks=[continues])
                else:
                    start(options, ends, every)
            FaultyFileSystem.fate = None
            assert not fate.taken_over, "the driver finished although another one had taken over its run"
            return read_result(), fate
        except (DriverCrash, KeyboardInterrupt):
            fate.faults.append("the driver was killed or interrupted")
        except CollapsiumError as error:
            require_cause(error, fate)
        FaultyFileSystem.fate = None
        if "/store/run/run.json" in FaultyFileSystem.store:
            info(RUN)  # what is stored of the run must be readable after each session
        fate.restart()


def start(options, ends, every):
    """Start the fit anew after removing what is left of an earlier attempt."""
    train, heldout = corpus_of(options), "faulty://store/corpus/heldout"
    remnants = [path for path in FaultyFileSystem.store if path.startswith("/store/run/")]
    # left by a driver that died before it wrote the run's record, or before it had removed the run
    for path in remnants:
        del FaultyFileSystem.store[path]
    FaultyFileSystem.pseudo_dirs[:] = [""]
    fit(train, RUN, heldout=heldout, checkpoint_every=every, scheduler="serial", **fit_options(options), **ends)


def require_cause(error, fate):
    """Fail unless the error that ended a session follows from one of the history's faults."""
    fate.faults.append(f"session {fate.session}: {type(error).__name__}: {error}")
    if isinstance(error, TakenOverError):
        assert fate.taken_over, error
        return
    if isinstance(error, StoreError):
        injected = "on purpose" in str(error) and fate.rates["store"] > 0.1
        assert injected or (fate.lasting is not None and LASTING[fate.lasting] in str(error)), error
        return
    assert isinstance(error, ClusterError), error
    assert any(kind in fault for fault in fate.faults for kind in ("scheduler", "task", "gone")), error


def check(base, known, seed):
    """Run the history of a seed; its result must equal the undisturbed one."""
    options = options_of(Fate(seed))
    name = repr(options)
    if name not in known:
        known[name] = undisturbed_result(base, options)
    result, fate = run_history(base, seed)
    assert result.bits == known[name].bits, "the models differ from the undisturbed fit"
    assert result.events == known[name].events, "the events differ from the undisturbed fit"
    return fate


def main(words):
    """Run the histories of some seeds, and print those that fail."""
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
