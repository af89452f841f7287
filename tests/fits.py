"""Helpers that run, interrupt and resume fits, and return their states, models and events for comparison."""

import cloudpickle
import pytest

from collapsium.pipeline import Corpus, resume
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.plan import Scratch
from collapsium.pipeline.engine.setup.inputs import design_of, labels_of, reached, weights_of
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.engine.state import Problem
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.pipeline.models.registry import make_family, make_options
from collapsium.storage.errors import ClusterError
from collapsium.storage.runs.members import restarts_in
from collapsium.storage.runs.run import Run
from collapsium.storage.runs.summary import RECORD as SUMMARY
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import State
from collapsium.workers.families.family import Summary
from collapsium.workers.shard_loading import load_shard

# Fields of events that depend on time and machine, and therefore differ between runs with equal results.
TIMES = ("elapsed", "seconds", "start_seconds", "compile_seconds", "saving_seconds", "dashboard", "planned", "workers")
# `top_words` is among them because top words are only fetched if there is time.
TIMES += ("tokens_a_second", "sweeps", "top_words", "processes", "generation")
TIMES += ("worker_peak_bytes", "driver_peak_bytes", "moved_bytes", "moved_bytes_an_iteration")


def problem_of(
    corpus,
    family,
    options,
    cuts=None,
    executor=None,
    scratch=None,
    stochastic=False,
    iterations=0,
    growth=None,
    spilled=None,
):
    """Return the problem of fitting a family to a corpus, on the given executor or serially.

    With a `scratch` folder, `spilled = (m, n)` puts m of every n shards into scratch files; by default all of them.
    """
    opened, executor = Corpus(corpus), executor or SerialExecutor()
    manifest = opened.manifest
    config, stream = make_options(family, options), Stream(7)
    fitted = make_family(family, config)
    words = manifest.vocabulary.words
    more = {"shards": len(manifest.shards), "stochastic": stochastic, "iterations": iterations}
    more |= {"labels": labels_of(opened, family, config), "growing": growth is not None}
    design = design_of(opened, config, executor)
    packed = None if design is None else design.packed
    place = Scratch(scratch, *(spilled or (1, 1)))
    shards = [
        executor.submit(load_shard, reference, place.of(number), (), fitted, packed)
        for number, reference in enumerate(opened.references)
    ]
    more["design"] = None if design is None else reached(design, executor, shards)
    more["weights"] = weights_of(opened, config, executor, shards)
    summary = Summary(manifest.documents, words, manifest.tokens, **more)
    global_state = fitted.initialise(summary, stream)
    bounds = cuts or (0, words)
    sizes = (shards, [], bounds, stream, executor, global_state, place)
    return Problem(family, fitted, config, *sizes, growth=growth)


def states(corpus, family, options, iterations, cuts=None):
    """Fit serially; return the problem and the list of (state, progress), which begins with the initial state."""
    problem = problem_of(corpus, family, options, cuts)
    return problem, list(Fit(problem, Limits(iterations=iterations)))


def arrays_of(state):
    """Return the arrays of a state by name; a spilled state is a dictionary of arrays already."""
    return state.to_arrays() if isinstance(state, State) else state


def state_bits(state):
    """Return (name, bytes) for all arrays of the global state, the blocks' rows and the local states."""
    parts = [
        state.global_state,
        *(block.value.rows for block in state.blocks),
        *(swept.value.local for swept in state.swept),
    ]
    return [(name, part[name].tobytes()) for part in map(arrays_of, parts) for name in sorted(part)]


class LosingExecutor(SerialExecutor):
    """A serial executor that raises `ClusterError` in every n-th `collect`, at most four times, as if work were lost."""

    def __init__(self, executor, every):
        self.calls, self.every, self.losses = 0, every, 0

    def collect(self, futures, links=None):
        self.calls += 1
        if self.calls % self.every == 0 and self.losses < 4:
            self.losses += 1
            raise ClusterError("on purpose")
        return super().collect(futures, links)


def at_iteration(number):
    """Return a predicate that is true for the event `iteration` with this number."""
    return lambda event: (event["event"], event.get("iteration")) == ("iteration", number)


def require_start_at_checkpoint(run):
    """Return a sink that fails unless the resumed run, and each of its members, continues from its last checkpoint."""
    runs = {None: Run(run), **dict(restarts_in(Run(run)))}
    checkpoints = {member: stopped.checkpoints.candidates()[0] for member, stopped in runs.items()}
    expected = {member: iterations[0] for member, iterations in checkpoints.items() if iterations}

    def sink(event):
        member = event.get("member")
        if event["event"] in ("started", "iteration") and member in expected:
            reached = expected.pop(member)
            assert event["iteration"] == reached, f"resumed at {event['iteration']}, not at the checkpoint of {reached}"

    return sink


def resumed(run, **options):
    """Resume a stopped run and return its model; fail unless the run continues from its last checkpoint."""
    return resume(run, sinks=[require_start_at_checkpoint(run), *options.pop("sinks", ())], **options)


def interrupt_and_resume(run, stops, start, **options):
    """Start a fit that is interrupted at the event that matches each predicate of `stops` in turn, and resumed each time.

    Yields after each interruption; the run is then resumed, the last time to its end.
    """
    remaining = list(stops)

    def sink(event):
        if remaining and remaining[0](event):
            del remaining[0]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(sinks=[sink])
    yield
    while remaining:
        with pytest.raises(KeyboardInterrupt):
            resumed(run, sinks=[sink], **options)
        yield
    resumed(run, **options)


class PicklingExecutor(SerialExecutor):
    """A serial executor that pickles and unpickles tasks and their results, as on the way to worker processes."""

    def submit(self, function, *args, **place):
        function, arguments = cloudpickle.loads(cloudpickle.dumps((function, self._resolved([*args]))))
        return cloudpickle.loads(cloudpickle.dumps(super().submit(function, *arguments, **place)))


def bits(model, shards=None):
    """Return (name, bytes) for all arrays of a model and of its local states, and for its summary file.

    By default, local states of all training shards are among them.
    """
    shards = len(model.record.shards) if shards is None else shards
    parts = [model.global_state, *(model.rows(block) for block in range(len(model.blocks)))]
    parts += [model.local_state(shard) for shard in range(shards)]
    summary = model.folder.read(SUMMARY) if model.folder.exists(SUMMARY) else b""
    arrays = [(name, part[name].tobytes()) for part in map(arrays_of, parts) for name in sorted(part)]
    return [*arrays, (SUMMARY, summary)]


def scores_of(run):
    """Return the held-out scores in the `iteration` events of a run, in order."""
    return [event["score"] for event in Run(run).events() if event["event"] == "iteration" and "score" in event]
