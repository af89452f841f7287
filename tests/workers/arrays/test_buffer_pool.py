"""Reuse of memory: no two live arrays share a piece of memory, and unused pieces do not exceed their limit."""

import gc
import mmap
import sys
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.buffer_pool import Pool, PoolSettings

DTYPES = st.sampled_from([np.uint8, np.uint16, np.int32, np.float32, np.float64]).map(np.dtype)
SETTINGS = PoolSettings()
SMALL, PAGE, WASTE = SETTINGS.min_bytes, SETTINGS.page_bytes, SETTINGS.max_waste
LARGE = 2 * SMALL  # bytes of an array that is large enough for a piece


def large(pool, size=LARGE, dtype=np.uint8):
    """Return an array of `size` bytes."""
    return pool.empty(size // np.dtype(dtype).itemsize, dtype)


def place(array):
    """Return the address of an array's numbers."""
    return array.__array_interface__["data"][0]


def unused_pieces(pool):
    """Return the lengths of unused pieces."""
    return [len(piece) for piece in pool._free]


@pytest.fixture
def pool():
    return Pool()


@pytest.fixture
def no_unused_bytes(pool):
    """Keep no more unused bytes than are in use or were reserved."""
    pool.settings = PoolSettings(idle_bytes=0, slack=0.0)


@given(st.lists(st.integers(0, 40), max_size=3), DTYPES, st.booleans())
def test_empty__returns_an_ordinary_array(shape, dtype, whole):
    shape = (*shape, 1 + SMALL // dtype.itemsize) if whole and 0 not in shape and np.prod(shape) < 20 else tuple(shape)
    array = Pool().empty(shape, dtype)
    assert (array.shape, array.dtype) == (shape, dtype)
    assert array.flags.c_contiguous
    assert array.flags.aligned
    assert array.flags.writeable
    array.fill(3)
    np.testing.assert_array_equal(array, np.full(shape, 3, dtype))


def test_empty__accepts_an_integer_shape_and_uses_pieces_only_for_large_arrays(pool):
    for size, used in ((SMALL - 1, 0), (SMALL, SMALL), (SMALL + 1, SMALL + PAGE), (0, 0)):
        array = pool.empty(size, np.uint8)
        assert array.shape == (size,)
        assert pool._used == used
        del array
    assert pool.empty((SMALL // 8, 0, 9), np.float64).size == 0


def test_zeros__are_zeros_in_reused_memory_too():
    for _ in range(3):
        array = buffers.zeros((LARGE // 8, 2))
        assert array.dtype == np.float64
        assert not array.any()
        array.fill(7)
        del array
    assert not buffers.zeros(3, np.uint16).any()


# Used again ----------------------------------------------------------------------------------------------------------


def test_pieces__are_reused_for_other_shapes_and_types(pool):
    first = pool.empty((SMALL, 2), np.uint8)
    where = place(first)
    del first
    second = pool.empty(LARGE // 8, np.float64)
    assert place(second) == where
    third = large(pool)
    assert place(third) != where
    assert pool._used == 2 * LARGE
    del second, third
    assert unused_pieces(pool) == [LARGE, LARGE]


def test_pieces__with_the_least_waste_are_chosen(pool):
    held = {size: large(pool, size) for size in (3 * SMALL, 2 * SMALL, 4 * SMALL, 10 * SMALL)}
    where = {size: place(array) for size, array in held.items()}
    held.clear()
    assert sorted(unused_pieces(pool)) == sorted(where)
    assert place(first := large(pool, 2 * SMALL - 1)) == where[2 * SMALL]
    assert place(second := large(pool, 2 * SMALL - 1)) == where[3 * SMALL]
    assert place(third := large(pool, 3 * SMALL + 1)) == where[4 * SMALL]
    # The largest piece would be mostly empty, so a new piece is allocated although it is unused.
    assert place(fourth := large(pool, SMALL)) not in where.values()
    assert unused_pieces(pool) == [10 * SMALL]
    # the largest factor by which a reused piece may be too large
    assert place(large(pool, int(10 * SMALL / WASTE) + 1)) == where[10 * SMALL]
    assert [array.size for array in (first, second, third, fourth)] == [
        2 * SMALL - 1,
        2 * SMALL - 1,
        3 * SMALL + 1,
        SMALL,
    ]


@pytest.mark.parametrize(
    "view",
    [
        lambda array: array[5:9],
        lambda array: array.reshape(-1, 2)[:, 1],
        lambda array: array.view(np.uint16).T,
        lambda array: np.asarray(array)[np.newaxis],
        lambda array: memoryview(array)[3:],
        lambda array: np.lib.stride_tricks.sliding_window_view(array, 3),
    ],
)
def test_views__keep_a_piece_in_use(pool, view):
    array = large(pool)
    array.fill(1)
    part = view(array)
    del array
    gc.collect(1)  # of young objects only; a full collection would take half a second
    assert not pool._free
    second = large(pool)
    second.fill(2)
    assert (np.asarray(part).view(np.uint8) == 1).all()
    del part
    assert unused_pieces(pool) == [LARGE]


def test_arrays_in_a_cycle__are_returned_by_the_garbage_collector(pool):
    array = large(pool)
    cycle = {"array": array}
    cycle["self"] = cycle
    del array, cycle
    gc.collect(1)  # of young objects only; a full collection would take half a second
    assert unused_pieces(pool) == [LARGE]
    assert pool._used == 0


class AllocationMachine(RuleBasedStateMachine):
    """Allocates arrays, makes views and drops them in any order; each array must keep its own numbers."""

    def __init__(self):
        super().__init__()
        self.pool, self.held, self.number, self.peak = Pool(), [], 0, 0

    def teardown(self):
        self.held.clear()
        assert self.pool._used == 0

    @rule(size=st.integers(SMALL - PAGE, 6 * SMALL), dtype=DTYPES)
    def take(self, size, dtype):
        self.number += 1
        array = self.pool.empty(size // dtype.itemsize, dtype)
        array.fill(self.number % 256)
        self.held.append((array, self.number % 256, array.nbytes if array.nbytes >= SMALL else 0))
        self.peak = max(self.peak, self.pool._used)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drop(self, data):
        self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def view(self, data):
        index = data.draw(st.integers(0, len(self.held) - 1))
        array, number, size = self.held.pop(index)
        self.held.append((array[array.size // 2 :], number, size))

    @rule(size=st.integers(SMALL, 3 * SMALL), count=st.integers(1, 2))
    def reserve(self, size, count):
        self.pool.reserve([size] * count)

    @invariant()
    def arrays_keep_their_numbers(self):
        for array, number, _ in self.held:
            assert (array == number).all()

    @invariant()
    def bytes_are_counted(self):
        assert self.pool._idle == sum(unused_pieces(self.pool))
        sizes = [size for _, _, size in self.held if size]
        assert sum(sizes) <= self.pool._used <= sum(WASTE * size + PAGE for size in sizes)

    @invariant()
    def unused_bytes_are_limited(self):
        self.peak = self.peak if self.pool._used else 0
        in_all = max((1 + SETTINGS.slack) * self.peak, self.pool._reserved, self.pool._used + SETTINGS.idle_bytes)
        assert self.pool._idle + self.pool._used <= in_all


TestTaking = AllocationMachine.TestCase
TestTaking.settings = settings(max_examples=20, stateful_step_count=25, deadline=None, derandomize=True)


# The limit -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_unused_bytes")
def test_the_limit__is_the_peak_of_use_until_nothing_is_in_use(pool):
    arrays = [large(pool) for _ in range(6)]
    waiting = []
    while arrays:
        arrays.pop()
        waiting.append(len(pool._free))
    assert waiting == [1, 2, 3, 4, 5, 0]
    array = large(pool)
    assert unused_pieces(pool) == []
    del array


@pytest.mark.usefixtures("no_unused_bytes")
def test_the_limit__releases_the_longest_unused_pieces(pool):
    arrays = [large(pool, LARGE + n * PAGE) for n in range(5)]
    for _ in range(4):
        arrays.pop(0)
    assert unused_pieces(pool) == [LARGE + n * PAGE for n in range(4)]
    # One piece is in use and four are unused. A new one, for which none is large enough, leaves room for one unused piece.
    arrays.append(large(pool, 3 * LARGE))
    assert unused_pieces(pool) == [LARGE + 3 * PAGE]


@pytest.mark.usefixtures("no_unused_bytes")
def test_the_limit__decreases_if_less_is_in_use(pool):
    pool.settings = PoolSettings(idle_bytes=0, slack=0.0, peak_arrays=10)
    arrays = [large(pool) for _ in range(8)]
    del arrays[2:]
    assert len(unused_pieces(pool)) == 6
    for _ in range(100):
        large(pool)
    # Two are in use now, and at most three were while these arrays were made.
    assert len(unused_pieces(pool)) == 1


def test_the_limit__does_not_decrease_in_periodic_use(pool, monkeypatch):
    """The use is as in the iterations of a fit; the peak may be measured anew in any phase of them."""
    pool.settings = PoolSettings(idle_bytes=0, peak_arrays=40)
    sizes = [LARGE, 9 * LARGE] * 4
    before = [large(pool, size) for size in sizes]
    fetched = []
    for iteration in range(30):
        for place_of_shard, size in enumerate(sizes):
            for _ in range(3):
                large(pool)  # temporary arrays of a task
            before[place_of_shard] = large(pool, size)
        if iteration == 0:
            monkeypatch.setattr(pool, "_fetch", lambda size: fetched.append(size) or Pool()._fetch(size))
    assert fetched == []


@pytest.mark.usefixtures("no_unused_bytes")
def test_release__keeps_pieces_in_use(pool):
    arrays = [large(pool) for _ in range(4)]
    pool.reserve([LARGE] * 8)
    del arrays[1:]
    assert len(unused_pieces(pool)) == 7
    pool.release()
    assert unused_pieces(pool) == []


def test_the_limit__never_falls_below_the_idle_bytes(pool):
    pool.settings = PoolSettings(idle_bytes=2 * LARGE)
    arrays = [large(pool) for _ in range(5)]
    arrays.clear()
    assert unused_pieces(pool) == [LARGE, LARGE]


def test_the_limit__is_low_when_memory_is_short(pool):
    pool.settings = PoolSettings(idle_bytes=LARGE)
    pool.lean = True
    arrays = [large(pool) for _ in range(6)]
    for _ in range(3):
        arrays.pop()
        assert unused_pieces(pool) == [LARGE]
    pool.lean = False
    arrays.pop()
    assert unused_pieces(pool) == [LARGE] * 2


def test_the_limit_when_memory_is_short__keeps_reserved_pieces(pool):
    """The reservation is for shards that stay in memory while others are in scratch files."""
    pool.settings = PoolSettings(idle_bytes=LARGE)
    pool.lean = True
    pool.reserve([LARGE] * 3)
    assert len(unused_pieces(pool)) == 3
    arrays = [large(pool) for _ in range(6)]
    for waiting in (1, 1, 1, 1, 2, 3):
        arrays.pop()
        assert len(unused_pieces(pool)) == waiting


@pytest.mark.usefixtures("no_unused_bytes")
def test_released_pieces__are_returned_to_the_system(pool, monkeypatch):
    class Piece(mmap.mmap):
        """A piece that supports weak references."""

    allocated = []

    def fetch(*args, **flags):
        allocated.append(weakref.ref(piece := Piece(*args, **flags)))
        return piece

    monkeypatch.setattr(buffers.mmap, "mmap", fetch)
    arrays = [large(pool) for _ in range(3)]
    assert all(reference() is not None for reference in allocated)
    arrays.clear()
    assert [reference() for reference in allocated] == [None] * 3


# Reserving -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_unused_bytes")
@given(st.lists(st.integers(SMALL, 3 * SMALL), min_size=1, max_size=4))
def test_reserve__allocates_the_memory_that_arrays_of_these_sizes_then_use(sizes):
    """Pieces are whole pages, and none of them may be released during the reservation."""
    pool = Pool()
    pool.reserve(sizes)
    assert sorted(unused_pieces(pool)) == sorted(-(-size // PAGE) * PAGE for size in sizes)
    assert pool._used == 0
    where = {place(np.frombuffer(piece, np.uint8)) for piece in pool._free}
    # In descending order, no array takes the piece of a larger one.
    arrays = [large(pool, size) for size in sorted(sizes, reverse=True)]
    assert {place(array) for array in arrays} == where
    assert not pool._free
    arrays.clear()
    assert len(pool._free) == len(sizes)


def test_reserve__allocates_nothing_again_for_an_owner_with_a_reservation(pool):
    """A worker that reads its shards again, after work was lost, would otherwise hold twice the planned memory."""
    for _ in range(3):
        pool.reserve([LARGE] * 2, "one shard")
        pool.reserve([LARGE] * 2, "another")
    assert len(pool._free) == 4
    pool.release()
    pool.reserve([LARGE] * 2, "one shard")
    assert pool._reserved == 2 * LARGE


def test_reserve__allocates_nothing_for_small_arrays(pool):
    pool.reserve([])
    pool.reserve(size for size in (0, 10, SMALL - 1))
    assert (pool._idle, pool._reserved, pool._free) == (0, 0, [])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="page faults are counted on Linux only")
def test_reserve__touches_every_page(pool):
    """Only touching a page allocates it; a mapping alone does not."""
    import resource

    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    pool.reserve([64 * SMALL])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt > faults  # few pages, if they are huge
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    large(pool, 64 * SMALL).fill(1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults < 16


# Threads -------------------------------------------------------------------------------------------------------------


def test_threads__allocate_and_drop_arrays_concurrently(pool):
    wrong, rounds = [], 60

    def work(number):
        generator = np.random.default_rng(number)
        for _ in range(rounds):
            array = large(pool, int(generator.integers(SMALL, 3 * SMALL)))
            array.fill(number)
            if not (array == number).all():
                wrong.append(number)
            del array

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert pool._used == 0
    assert pool._idle == sum(unused_pieces(pool))


def test_arrays_returned_by_another_thread__are_reused_in_this_one(pool):
    holder = [large(pool)]
    where = place(holder[0])
    thread = threading.Thread(target=holder.clear)
    thread.start()
    thread.join()
    assert place(large(pool)) == where
