"""The executor of threads fulfils the contract of executors for any dependencies between tasks."""

import contextlib
import gc
import operator
import queue
import sys
import threading
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import fit
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.threads import ThreadExecutor
from collapsium.storage.corpus.corpus import Corpus
from collapsium.workers import tasks
from tests.waiting import PATIENCE, wait_until


class PlannedError(Exception):
    """Raised by tasks on purpose."""


class Held:
    """A result that supports weak references, unlike plain numbers."""


@pytest.fixture(autouse=True)
def _no_thread_stays():
    """Require that closing the executors of a test ends all of their threads."""
    before = set(threading.enumerate())
    yield
    names = [thread.name for thread in {*threading.enumerate()} - before if thread.name.startswith("collapsium-")]
    # Threads that sync files remain for the process.
    assert not [name for name in names if not name.startswith("collapsium-sync")]


@pytest.fixture
def opened():
    """A function that opens executors, which are closed at the end of each test."""
    created = []

    def open_one(threads):
        created.append(ThreadExecutor(threads))
        return created[-1]

    yield open_one
    for executor in created:
        executor.close()


def in_time(function, *args):
    """Call a function that must not hang; return its result, or raise its error."""
    found = []

    def call():
        try:
            found.append((function(*args), None))
        except BaseException as error:
            found.append((None, error))

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    caller.join(PATIENCE)
    assert found, "it hangs"
    value, error = found[0]
    if error is not None:
        raise error
    return value


def raising(*_):
    raise PlannedError("on purpose")


def first_of(value, *_):
    return value


# Tasks ---------------------------------------------------------------------------------------------------------------


@st.composite
def graphs(draw, failing=False):
    """Draw tasks as (arguments alone, arguments in a list, whether it fails), where arguments are numbers of earlier
    tasks."""
    tasks = []
    for number in range(draw(st.integers(1, 25))):
        before = st.lists(st.integers(0, number - 1), max_size=3) if number else st.just([])
        tasks.append((draw(before), draw(before), failing and draw(st.integers(0, 6)) == 0))
    return tasks


def combine(number, fails, several, *alone):
    """Return a value that depends on the order of the arguments."""
    if fails:
        raise PlannedError(number)
    return hash((number, tuple(several), alone))


def submitted(executor, graph):
    futures = []
    for number, (alone, several, fails) in enumerate(graph):
        taken = [futures[task] for task in several], *(futures[task] for task in alone)
        futures.append(executor.submit(combine, number, fails, *taken, process=number % 3))
    return futures


@given(graphs(), st.integers(1, 5), st.randoms(use_true_random=False))
def test_results__equal_serial_ones_in_the_requested_order(graph, threads, random):
    expected = SerialExecutor().collect(submitted(SerialExecutor(), graph))
    executor = ThreadExecutor(threads)
    try:
        futures = submitted(executor, graph)
        assert in_time(executor.collect, futures) == expected
        order = random.sample(range(len(graph)), len(graph))
        assert executor.collect([futures[node] for node in order]) == [expected[node] for node in order]
        assert executor.collect([]) == []
    finally:
        executor.close()


@given(graphs(failing=True), st.integers(1, 5))
def test_errors__reach_exactly_the_tasks_that_depend_on_them(graph, threads):
    executor = ThreadExecutor(threads)
    try:
        futures, failed = submitted(executor, graph), []
        for number, (alone, several, fails) in enumerate(graph):
            failed.append(fails or any(failed[task] for task in (*several, *alone)))
            if not failed[number]:
                assert in_time(executor.collect, [futures[number]]) != [None]
                continue
            with pytest.raises(PlannedError) as raised:
                in_time(executor.collect, [futures[number]])
            assert graph[raised.value.args[0]][2]  # the error that a task raised, unchanged
    finally:
        executor.close()


def test_errors__are_the_same_objects_that_were_raised(opened):
    error = PlannedError("on purpose", 3)

    def fail():
        raise error

    executor = opened(2)
    future = executor.submit(fail)
    for argument in (future, executor.submit(operator.neg, executor.submit(operator.neg, future))):
        with pytest.raises(PlannedError) as raised:
            in_time(executor.collect, [argument])
        assert raised.value is error


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, MemoryError])
def test_errors_of_any_kind__do_not_end_a_thread(opened, kind):
    def fail():
        raise kind

    executor = opened(1)
    for _ in range(3):
        with pytest.raises(kind):
            in_time(executor.collect, [executor.submit(fail)])
    assert in_time(executor.collect, [executor.submit(operator.neg, 3)]) == [-3]


def test_collect__raises_an_error_before_other_tasks_have_ended(opened):
    executor, gate = opened(2), threading.Event()
    slow = executor.submit(gate.wait, PATIENCE)
    try:
        with pytest.raises(PlannedError):
            in_time(executor.collect, [slow, executor.submit(raising)])
        assert not slow.done
    finally:
        gate.set()
    assert in_time(executor.collect, [slow]) == [True]


def test_submit__accepts_futures_in_nested_lists_like_the_serial_executor(opened):
    serial, executor, gate = SerialExecutor(), opened(2), threading.Event()
    expected = serial.collect([serial.submit(list, [[[serial.submit(int, 3)], 4], 5])])
    inner = executor.submit(lambda: gate.wait(PATIENCE) and 3)
    outer = executor.submit(list, [[[inner], 4], 5])
    # all tasks that do not depend on the inner result have run by now
    in_time(executor.collect, [executor.submit(int, 0)])
    assert not outer.done
    gate.set()
    assert in_time(executor.collect, [outer]) == expected == [[[[3], 4], 5]]


def test_tasks__of_one_thread_run_in_the_order_of_submission(opened):
    executor, gate, order = opened(1), threading.Event(), []
    first = executor.submit(gate.wait, PATIENCE)
    # The second task waits for the first; those after it are ready at once, but must run after it.
    rest = [executor.submit(lambda n, *_: order.append(n), n, *([first] if n == 0 else [])) for n in range(9)]
    gate.set()
    in_time(executor.collect, rest)
    assert order == list(range(9))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_all_requested_threads__work_concurrently(opened, threads):
    executor = opened(threads)
    assert executor.workers == threads
    # each task waits for all others, so fewer threads would never finish
    barrier = threading.Barrier(threads)
    futures = [executor.submit(lambda: (barrier.wait(PATIENCE), threading.get_ident())[1]) for _ in range(threads)]
    assert len(set(in_time(executor.collect, futures))) == threads
    assert in_time(executor.collect, [executor.submit(operator.neg, 1)]) == [-1]  # while most threads are idle


def test_executor__is_one_process_without_traffic(opened):
    executor = opened(3)
    assert (executor.processes, executor.dashboard, executor.memory) == (1, None, None)
    in_time(executor.collect, [executor.submit(bytes, 1000, process=0)])
    assert executor.moved() == 0
    calls = []
    assert executor.everywhere(lambda *args: calls.append(args) or len(calls), 1, "a") == [1]
    assert calls == [(1, "a")]


@pytest.mark.parametrize("workers", [None, 1, 4])
def test_open_executor__gives_threads(workers):
    executor = open_executor("threads", workers)
    try:
        assert isinstance(executor, ThreadExecutor)
        assert executor.workers == workers if workers else executor.workers >= 1
    finally:
        executor.close()


# Releasing results ---------------------------------------------------------------------------------------------------


def test_a_released_future__is_not_run(opened):
    executor, gate, ran = opened(1), threading.Event(), []
    first = executor.submit(gate.wait, PATIENCE)
    wanted = executor.submit(ran.append, "wanted")
    unwanted = executor.submit(ran.append, "unwanted")
    waiting = executor.submit(lambda *_: ran.append("waiting"), first)
    chain = executor.submit(lambda *_: ran.append("chain"), executor.submit(ran.append, "inner"))
    del unwanted, waiting, chain
    gate.set()
    in_time(executor.collect, [first, wanted, executor.submit(ran.append, "last")])
    assert ran == ["wanted", "last"]


def test_a_released_task_that_another_needs__is_run(opened):
    executor, gate = opened(1), threading.Event()
    blocking = executor.submit(gate.wait, PATIENCE)
    future = executor.submit(operator.neg, 1)
    for _ in range(5):
        future = executor.submit(operator.sub, future, 1)
    gate.set()
    assert in_time(executor.collect, [future, blocking]) == [-6, True]


def test_results__are_freed_as_soon_as_nothing_refers_to_them(opened):
    """They are freed by reference counts; sweeps do not wait for the garbage collector."""
    executor, held = opened(2), []

    def make(*_):
        held.append(weakref.ref(result := Held()))
        return result

    gc.disable()
    try:
        future = executor.submit(make)
        for number in range(2, 6):
            future = executor.submit(make, future)
            in_time(executor.collect, [future])
            wait_until(
                lambda number=number: [reference() is None for reference in held] == [True] * (number - 1) + [False]
            )
        del future
        wait_until(lambda: held[-1]() is None)  # the waiting thread that computed it does not refer to it either
        assert [reference() for reference in held] == [None] * 5
    finally:
        gc.enable()


def test_results__are_freed_before_the_next_task_begins(opened):
    """The memory of an unreferenced state must be available to the next one."""
    executor, gate, held, seen = opened(1), threading.Event(), [], []

    def make():
        held.append(weakref.ref(result := Held()))
        return result

    def look(*_):
        seen.append(held[0]() is None)

    blocking = executor.submit(gate.wait, PATIENCE)
    dropped = executor.submit(first_of, None, executor.submit(make))
    after = executor.submit(look, dropped)
    gate.set()
    in_time(executor.collect, [blocking, after])
    assert seen == [True]


def test_arguments__are_freed_with_the_task_that_used_them(opened):
    executor, thing = opened(1), Held()
    reference = weakref.ref(thing)
    future = executor.submit(first_of, 7, thing, [thing])
    del thing
    assert in_time(executor.collect, [future]) == [7]
    wait_until(lambda: reference() is None)
    assert executor.collect([future]) == [7]


# Closing -------------------------------------------------------------------------------------------------------------


def test_close__waits_for_running_tasks_and_starts_no_others(opened):
    executor, gate, begun, ran = opened(1), threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        gate.wait(PATIENCE)
        ran.append("slow")
        return 5

    running, pending = executor.submit(slow), executor.submit(ran.append, "pending")
    assert begun.wait(PATIENCE)
    threading.Timer(0.05, gate.set).start()
    in_time(executor.close)
    assert ran == ["slow"]
    assert executor.collect([running]) == [5]  # results that are known can still be collected
    assert not pending.done
    in_time(executor.close)  # closing twice does no harm


def test_collect_of_a_closed_executor__raises_an_error_instead_of_waiting_forever(opened):
    executor, gate, begun = opened(1), threading.Event(), threading.Event()
    running = executor.submit(lambda: (begun.set(), gate.wait(PATIENCE)))
    pending = executor.submit(operator.neg, 1)
    raised = []

    def wait():
        with pytest.raises(RuntimeError, match="closed") as error:
            executor.collect([pending])
        raised.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert begun.wait(PATIENCE)
    threading.Timer(0.05, gate.set).start()
    in_time(executor.close)
    waiting.join(PATIENCE)
    assert raised, "it hangs"
    for future in (pending, executor.submit(operator.neg, 1)):
        with pytest.raises(RuntimeError, match="closed"):
            in_time(executor.collect, [future])
    in_time(executor.collect, [running])


def interrupting(number):
    """Return a profiler that interrupts at the nth point at which Python handles signals, and the points it has seen."""
    seen = []

    def profile(frame, event, function):
        if event in ("call", "c_return"):
            seen.append((frame.f_code.co_name, function))
            if len(seen) == number:
                raise KeyboardInterrupt

    return profile, seen


def test_an_interrupted_executor__can_be_used_further(opened, monkeypatch):
    """Ctrl-C interrupts the waiting thread, but the same executor must still save the model of the last iteration."""
    executor, gate, interrupts = opened(1), threading.Event(), [KeyboardInterrupt]

    class Waiting(queue.SimpleQueue):
        def get(self, *args, **options):
            if interrupts:
                raise interrupts.pop()
            return super().get(*args, **options)

    running = executor.submit(gate.wait, PATIENCE)
    monkeypatch.setattr(queue, "SimpleQueue", Waiting)
    with pytest.raises(KeyboardInterrupt):
        executor.collect([running])
    gate.set()
    assert executor.collect([running, executor.submit(operator.neg, 2)]) == [True, -2]


def test_an_executor_that_is_interrupted_at_any_point__can_be_used_further(opened, monkeypatch):
    """Ctrl-C may come at any point of the main thread, but the same executor still saves the last iteration and ends."""
    # Python ignores an interrupt in a generator that is dropped; the command repeats that one.
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: None)
    number, is_left = 0, True
    while is_left:
        number += 1
        executor, (profile, seen) = opened(2), interrupting(number)
        with contextlib.suppress(KeyboardInterrupt):
            try:
                sys.setprofile(profile)
                first = [executor.submit(operator.neg, operand) for operand in (1, 2)]
                executor.collect([executor.submit(sum, [*first])])
            finally:
                sys.setprofile(None)
        is_left = len(seen) >= number
        assert executor.collect([executor.submit(operator.neg, 3)]) == [-3]
        closing = threading.Thread(target=executor.close, daemon=True)
        closing.start()
        closing.join(PATIENCE)
        assert not closing.is_alive(), seen[-1]
    assert number > 20


def test_interrupting_a_fit__starts_no_pending_sweeps(small, tmp_path, monkeypatch):
    """Otherwise, the model would only be saved after another complete iteration."""
    sweep, collect = tasks.sweep, ThreadExecutor.collect
    shards, begun, gate, notices = len(Corpus(small[0]).manifest.shards), [], threading.Event(), []

    def slow(*args):
        begun.append(len(begun))
        if len(begun) > 2 * shards:  # the first sweep of the third iteration
            gate.wait(PATIENCE)
        return sweep(*args)

    def interrupted(self, futures, links=None):
        if futures and notices and notices[-1].get("iteration") == 2 and notices[-1]["event"] == "iteration":
            wait_until(lambda: len(begun) > 2 * shards)
            raise KeyboardInterrupt
        return collect(self, futures, links)

    def sink(event):
        notices.append(event)
        if event["event"] == "saving":
            gate.set()

    monkeypatch.setattr(tasks, "sweep", slow)
    monkeypatch.setattr(ThreadExecutor, "collect", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(small[0], tmp_path / "run", family="lda", topics=3, iterations=9, workers=1, sinks=[sink])
    assert (notices[-1]["event"], notices[-1]["reason"], notices[-1]["iteration"]) == ("end", "interrupt", 2)
    assert len(begun) == 2 * shards + 1
