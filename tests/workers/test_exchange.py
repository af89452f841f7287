"""Hosts that exchange the changes of their rows, in one process: the bits do not depend on the hosts."""

import pickle
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from threading import Timer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline.engine.exchange import Exchange, HeldParts
from collapsium.pipeline.engine.loop import GROUP_SHARDS, Fit, _Sums
from collapsium.pipeline.engine.save import documents_of
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.engine.setup.loading import load_heldout
from collapsium.pipeline.engine.setup.request import align
from collapsium.pipeline.engine.topic_snapshots import TopicSnapshots
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.pipeline.executors.threads import ThreadExecutor
from collapsium.storage.corpus.corpus import Corpus
from collapsium.workers import exchange, tasks
from collapsium.workers.arrays.delta import Delta, fresh
from tests.fits import problem_of

ITERATIONS = 4
LATE = 0.005
"""Seconds that a message of a slow host takes."""


class LocalLinks:
    """Connections between hosts in this process, on which messages may be lost, delayed or duplicated."""

    def __init__(self, hosts, lost=None, slow=None):
        self.addresses, self._lost, self._slow = tuple(map(str, range(hosts))), lost, slow

    def is_at(self, host):
        return True

    def open(self):
        def send(message):
            if message.sender == self._slow:
                for seconds in (LATE, 2 * LATE):
                    Timer(seconds, deliver_if_there, (message,)).start()
            elif message.sender != self._lost:
                exchange.deliver(message)
            sent = Future()
            sent.set_result(None)
            return sent

        return send

    def leave_thread(self):
        pass

    def when_released(self, leave):
        pass


def deliver_if_there(message):
    """Deliver a message, unless its exchange has ended."""
    with suppress(exchange.HostLostError):
        exchange.deliver(message)


class Hosts(ThreadExecutor):
    """Threads that act as hosts."""

    def __init__(self, hosts, lost=None, slow=None):
        super().__init__(8)
        self.ways = LocalLinks(hosts, lost, slow)

    def links(self):
        return self.ways

    def tell(self, function, *args):
        function(*args)


def states(small, executor, options, family="lda", hosts=()):
    """Return the bits of a fit's states and what they report; the hosts may change after each iteration."""
    hosts, moves = list(hosts), bool(hosts)
    try:
        problem = problem_of(small[0], family, options, executor=executor, iterations=ITERATIONS)
        pairs = align(documents_of(Corpus(small[0])), Corpus(small[1]), str(small[0]))
        problem = replace(
            problem, heldout=[executor.submit(load_heldout, pair, None, problem.family) for pair in pairs]
        )
        found, vocabulary = [], Corpus(small[0]).vocabulary.words
        snapshots = TopicSnapshots(problem, vocabulary, ITERATIONS)  # including top words in each iteration
        for state, progress in Fit(problem, Limits(iterations=ITERATIONS), snapshots=snapshots):
            assert moves or isinstance(state.blocks, HeldParts) == isinstance(executor, Hosts)
            parts = [state.global_state.to_arrays()]
            parts += [block.rows.to_arrays() for block in executor.collect([*state.blocks])]
            parts += [swept.local.to_arrays() for swept in executor.collect([*state.swept])]
            bits = [{name: values.tobytes() for name, values in part.items()} for part in parts]
            assert (progress.score is None) == (not progress.words) == (state.iteration == 0)
            found.append((bits, progress.change, progress.metrics, progress.score, progress.words))
            del state
            if hosts:
                executor.ways = LocalLinks(hosts.pop(0))
        return found
    finally:
        executor.close()


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("lda", {"topics": 4}),
        ("lda", {"topics": 4, "momentum": 0.0, "learn": ["asymmetric-alpha"]}),
        ("hdp", {"topics": 6}),
    ],
    ids=["lda", "lda without momentum", "hdp"],
)
def test_hosts__give_the_bits_of_one_process(small, family, options):
    alone = states(small, ThreadExecutor(1), options, family)
    for hosts in (1, 3, 7):  # the last case has more hosts than shards
        assert states(small, Hosts(hosts), options, family) == alone


def test_hosts_that_join_and_leave__take_over_and_hand_over_shards(small):
    alone = states(small, ThreadExecutor(1), {"topics": 4})
    assert states(small, Hosts(2), {"topics": 4}, hosts=[4, 1, 3]) == alone


@pytest.mark.parametrize("slow", [0, 1], ids=["the lead", "another"])
def test_hosts_with_late_and_duplicate_messages__compute_the_same_bits(small, slow):
    alone = states(small, ThreadExecutor(1), {"topics": 4})
    assert states(small, Hosts(2, slow=slow), {"topics": 4}) == alone


def test_hosts_that_wait_for_a_lost_one__end_and_keep_the_state_before(small):
    executor = Hosts(2, lost=1)
    problem = problem_of(small[0], "lda", {"topics": 4}, executor=executor)
    state = problem.initial_state()
    begun = Exchange.begun(problem, state)
    turn = begun.submit(state, None, problem.stream.at(iteration=0, purpose="start"), None)
    begun.interrupt()
    with pytest.raises(exchange.HostLostError, match="a worker was lost"):
        turn.sums(executor)
    executor.ways = LocalLinks(2)
    again = Exchange.begun(problem, state)
    sums = again.submit(state, None, problem.stream.at(iteration=0, purpose="start"), None).sums(executor)
    assert sums.number("moved") > 0
    begun.close()
    with pytest.raises(exchange.HostLostError):
        executor.collect([turn.blocks[0]])
    again.close()
    executor.close()


def test_the_state_of_a_host__survives_a_spill_to_disk_by_its_worker(small):
    executor = Hosts(2)
    problem = problem_of(small[0], "lda", {"topics": 4}, executor=executor)
    begun = Exchange.begun(problem, problem.initial_state())
    held = executor.collect(begun._held)[1]
    assert pickle.loads(pickle.dumps(held)) is held
    begun.close()
    moved = pickle.loads(pickle.dumps(held))
    assert moved is not held
    assert moved.state(0).blocks == []
    executor.close()


@given(st.integers(1, 40), st.integers(1, 6), st.randoms(use_true_random=False))
def test_sums_of_hosts__are_added_in_the_order_of_the_tree_of_tasks(shards, hosts, draw):
    deltas = [Delta({"tables": fresh([draw.random() * 10 ** draw.randint(-9, 9)], "topic")}) for _ in range(shards)]
    executor = SerialExecutor()
    tree = _Sums(executor)
    for delta in deltas:
        tree.add(executor.hold(delta), 0)
    expected = tasks.add([future.value for future in tree.remaining])["tables"]
    of_hosts = [[n for n in range(shards) if n * hosts // shards == host] for host in range(hosts)]
    sums = [part for numbers in of_hosts for part in exchange.grouped({n: deltas[n] for n in numbers}, GROUP_SHARDS)]
    draw.shuffle(sums)
    assert exchange.summed(sums, GROUP_SHARDS, shards)["tables"] == expected
