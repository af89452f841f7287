"""The exchange: hosts sum up the changes of rows, each its part of the vocabulary, and send one another only changes.

With more hosts, a fit must not move more bytes through any of them. So each host sweeps its shards, adds up their
changes, and sends every other host the slice of the words that this one owns. The owner adds the slices, and sends the
sum to all hosts, which apply it to their own copies of the rows. With H hosts, (H - 1) / H of the rows' bytes leave and
reach each of them in an iteration (reduce-scatter and all-gather; Thakur, Rabenseifner and Gropp 2005), and as changes
are encoded (`encode`), a third of that or less. Changes are whole numbers (`Exchanges.integer_changes`), so that
their sums do not depend on the order or the number of the hosts.

This is the one place where workers hold state between tasks. A state is never changed: a turn makes the next one, and
the driver names the oldest that it still needs. All hosts have all rows; the local states of a host are a result of a
task too (`held_of`), so that a worker that retires hands them over. After other losses of a host, the driver begins
anew from a checkpoint.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby, pairwise
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.vectors import AnyShard
from collapsium.storage.errors import ClusterError
from collapsium.workers import tasks
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.bands import BAND, band_bounds
from collapsium.workers.arrays.delta import Delta, change, total
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Array, GlobalState
from collapsium.workers.document_samples import DocumentSample
from collapsium.workers.families.family import Exchanges, IntegerChange
from collapsium.workers.kernels import planes
from collapsium.workers.shard_loading import ShardOnDisk
from collapsium.workers.tasks import Block, Score, Swept, WarmSource

R = TypeVar("R")
Integers: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]
AnyExchanges: TypeAlias = Exchanges[Any, Any, Any, Any]

POLL_SECONDS = 0.5  # Seconds between two looks for whether the exchange was given up
ADDED_ROWS = 1024  # Rows that are added to a table by number at a time, as NumPy copies them

LEVEL = 1  # Zstandard's fastest level: higher ones take more time than they save at 100 Mbit/s
_HEADER = struct.Struct("<QB")  # How many numbers follow, and in how many planes


class Kind(IntEnum):
    """Contents of a message."""

    SLICES = 0  # Changes of the receiver's words, over the shards of the sender
    SUMS = 1  # Changes of the sender's words, over all shards


class Message(NamedTuple):
    """Encoded changes on their way to another host."""

    token: str  # The exchange
    home: int  # The receiver
    turn: int
    kind: Kind
    sender: int
    parts: tuple[bytes, ...]  # An array each, in the order of `Exchanges.integer_changes`


class HostLostError(ClusterError):
    """A host of an exchange is gone, or the exchange was given up for that reason."""


class Links(Protocol):
    """The ways from a host to all others."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Name of each host."""

    def is_at(self, home: int) -> bool:
        """Return whether this task runs where the messages of a host arrive."""

    def open(self) -> None:
        """Begin to receive messages in this process, which go to `deliver`."""

    def send(self, message: Message) -> Future[None]:
        """Send a message; what the network delays is sent again until the exchange is given up."""

    def leave_thread(self) -> None:
        """Let other tasks have the thread of this one, which is going to wait for other hosts."""


@dataclass(frozen=True)
class Part:
    """A host of an exchange: its shards and settings, fixed before the first turn."""

    model: AnyExchanges
    bounds: tuple[int, ...]  # First word of each block of the vocabulary and, last, the size of the vocabulary
    numbers: tuple[int, ...]  # Numbers of the host's shards, which are neighbours
    group: int  # Shards whose sums without words are added one after another; see `grouped`
    threads: int  # Threads that sweep
    scratch: str | None
    local_sweeps: int


@dataclass(frozen=True)
class Order:
    """A turn: a round of sweeps from a state, and the exchange of its changes."""

    turn: int  # Number of the state that it begins from
    keep: int  # Number of the oldest state that is still needed
    global_state: GlobalState
    stream: Stream
    sample: DocumentSample | None


@dataclass(frozen=True)
class Turned:
    """Result of a host's turn."""

    rest: list[tuple[int, Delta]]  # Sums without words: the first shard of each, and the sum
    sums: Delta  # Sums over the rows of the words that the host owns
    sent: int  # Bytes


@dataclass(frozen=True)
class HostState:
    """A host's state between turns."""

    blocks: list[Block]  # The rows of all words
    swept: dict[int, Swept] = field(default_factory=dict)  # Local states of its shards; empty before the start


class Host:
    """A host: its shards, its states, and the messages that wait for it."""

    def __init__(
        self,
        token: str,
        home: int,
        links: Links,
        part: Part,
        shards: Sequence[AnyShard | ShardOnDisk],
        warm: Sequence[WarmSource],
        state: HostState,
    ) -> None:
        self._token, self._home, self._links, self._part = token, home, links, part
        self._shards = dict(zip(part.numbers, shards, strict=True))
        self._warm = dict(zip(part.numbers, warm, strict=False))
        self.states = {0: state}
        self._changed = threading.Condition()
        self._inbox: dict[tuple[int, Kind], dict[int, tuple[bytes, ...]]] = {}
        self._closed = False
        words = [low for block in pairwise(part.bounds) for low in (band_bounds(block[1] - block[0])[:-1] + block[0])]
        homes = len(links.addresses)
        firsts = [-(-host * len(words) // homes) for host in range(homes + 1)]
        ends = [*words, part.bounds[-1]]
        self._owned = [(int(ends[first]), int(ends[last])) for first, last in pairwise(firsts)]

    def deliver(self, message: Message) -> None:
        """Have a message wait for the turn that takes it."""
        with self._changed:
            self._inbox.setdefault((message.turn, message.kind), {})[message.sender] = message.parts
            self._changed.notify_all()

    def close(self) -> None:
        """Give up: turns that wait raise an error."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def turn(self, order: Order) -> Turned:
        """Sweep the shards, exchange their changes, and make the next state."""
        # Several workers may share a process, so that a task of one that is gone would find its host.
        if not self._links.is_at(self._home):
            raise HostLostError("a worker was lost, and another one runs its task")
        state = self.state(order.turn)
        for number in [number for number in self.states if number < order.keep]:
            del self.states[number]
        kinds = self._part.model.integer_changes(order.global_state)
        if kinds is None:
            raise ValueError("expected changes that are whole numbers")
        changes = {
            name: buffers.zeros((self._part.bounds[-1], *kind.shape), kind.dtype) for name, kind in kinds.items()
        }
        swept, rest = self._sweep(state, order, kinds, changes)
        self._links.leave_thread()
        sent = self._exchange(order.turn, list(changes.values()))
        began = time.perf_counter()
        blocks, sums = self._fold(state, order, kinds, changes)
        self.states[order.turn + 1] = HostState(blocks, swept)
        sums = Delta(sums.parts, sums.ids, {"reduce": time.perf_counter() - began})
        return Turned(grouped(rest, self._part.group), sums, sent)

    def score(
        self,
        turn: int,
        swept: Mapping[int, Swept],
        heldout: Sequence[AnyShard | ShardOnDisk],
        global_state: GlobalState,
        sample: DocumentSample | None,
    ) -> list[Score]:
        """Return the scores of the held-out pairs of some shards' documents."""
        model, blocks, pairs = self._part.model, self.state(turn).blocks, dict(zip(swept, heldout, strict=True))

        def score(number: int) -> list[Score]:
            return tasks.score(model, [pairs[number]], [swept[number]], blocks, global_state, sample)

        return [score for scores in self._in_threads(score, list(pairs)) for score in scores]

    def state(self, turn: int) -> HostState:
        """Return a state that is still needed."""
        if turn not in self.states:
            raise HostLostError("a state was lost with an exchange that was given up")
        return self.states[turn]

    def _in_threads(self, call: Callable[[int], R], numbers: Sequence[int]) -> list[R]:
        """Call a function for each of the host's shards; return the results in their order."""
        if self._part.threads == 1 or len(numbers) < 2:
            return [call(number) for number in numbers]
        with ThreadPoolExecutor(self._part.threads) as threads:
            return list(threads.map(call, numbers))

    def _sweep(
        self, state: HostState, order: Order, kinds: Mapping[str, IntegerChange], changes: Mapping[str, Array]
    ) -> tuple[dict[int, Swept], dict[int, Delta]]:
        """Sweep the shards and add up their changes; return local states, and each shard's sums without words."""
        part, adding = self._part, threading.Lock()
        inputs = (part.scratch, state.blocks, order.global_state, order.stream)

        def sweep(number: int) -> tuple[Swept, Delta]:
            shard = self._shards[number]
            if state.swept:
                last = (part.local_sweeps, order.sample)
                result = tasks.sweep(part.model, shard, state.swept[number], *inputs, *last)
            else:
                result = tasks.start(part.model, shard, *inputs, self._warm.get(number), order.sample)
            if result.delta.with_dim("word").parts.keys() != kinds.keys():
                raise ValueError(f"expected changes of {', '.join(kinds)} alone")
            with adding:
                for name, kind in kinds.items():
                    values = result.delta.parts[name].values
                    values = values if kind.steps == 1 else np.rint(values * kind.steps).astype(kind.dtype)
                    _add_rows(changes[name], result.delta.ids["word"], values)
            return tasks.without_delta(result), result.delta.without_dim("word")

        results = dict(zip(part.numbers, self._in_threads(sweep, part.numbers), strict=True))
        return {n: swept for n, (swept, _) in results.items()}, {n: rest for n, (_, rest) in results.items()}

    def _exchange(self, turn: int, changes: Sequence[Integers]) -> int:
        """Replace the changes of the host's shards by the changes of all hosts; return the bytes that were sent."""
        homes, own = len(self._links.addresses), self._home
        others = [(own + distance) % homes for distance in range(1, homes)]
        sending: list[Future[None]] = []
        sent = 0

        def send(kind: Kind, receiver: int, parts: tuple[bytes, ...]) -> None:
            nonlocal sent
            sending.append(self._links.send(Message(self._token, receiver, turn, kind, own, parts)))
            sent += sum(map(len, parts))

        for owner in others:
            low, high = self._owned[owner]
            send(Kind.SLICES, owner, tuple(encode(values[low:high]) for values in changes))
        low, high = self._owned[own]
        for _, parts in self._arriving(turn, Kind.SLICES, others):
            for values, part in zip(changes, parts, strict=True):
                add_encoded(part, values[low:high])
        sums = tuple(encode(values[low:high]) for values in changes) if others else ()
        for receiver in others:
            send(Kind.SUMS, receiver, sums)
        for owner, parts in self._arriving(turn, Kind.SUMS, others):
            low, high = self._owned[owner]
            for values, part in zip(changes, parts, strict=True):
                values[low:high] = 0
                add_encoded(part, values[low:high])
        for future in sending:
            self._wait_for(future)
        return sent

    def _arriving(self, turn: int, kind: Kind, senders: Iterable[int]) -> Iterator[tuple[int, tuple[bytes, ...]]]:
        """Yield the messages of a kind from all other hosts, in the order in which they arrive."""
        missing = set(senders)
        while missing:
            with self._changed:
                while not (here := missing & self._inbox.get((turn, kind), {}).keys()):
                    self._require_open()
                    self._changed.wait(POLL_SECONDS)
                arrived = [(sender, self._inbox[turn, kind][sender]) for sender in sorted(here)]
                missing -= here
                if not missing:
                    del self._inbox[turn, kind]
            yield from arrived

    def _wait_for(self, future: Future[None]) -> None:
        while True:
            try:
                return future.result(POLL_SECONDS)
            except TimeoutError:
                with self._changed:
                    self._require_open()

    def _require_open(self) -> None:
        if self._closed:
            raise HostLostError("a worker was lost in an exchange of changes")

    def _fold(
        self, state: HostState, order: Order, kinds: Mapping[str, IntegerChange], changes: Mapping[str, Integers]
    ) -> tuple[list[Block], Delta]:
        """Return the rows after the changes, and the sums over the words that the host owns."""
        first, last = self._owned[self._home]
        blocks, sums = [], Delta()
        for block in state.blocks:
            parts = {}
            for name, kind in kinds.items():
                values: Array = changes[name][block.low : block.high]
                parts[name] = change(values if kind.steps == 1 else values / kind.steps, *kind.dims)
            delta = Delta(parts, {"word": np.arange(block.high - block.low)})
            bands = band_bounds(block.high - block.low) + block.low
            own = slice(*(int(np.searchsorted(bands[:-1], end)) for end in (first, last)))
            rows, folded = self._part.model.fold(block.rows, delta, order.global_state, own)
            ids = {dim: ids + block.low if dim == BAND else ids for dim, ids in folded.ids.items()}
            sums = sums + Delta(folded.parts, ids)
            blocks.append(Block(block.low, block.high, rows, Delta()))
        return blocks, sums


def _add_rows(table: Integers, rows: Array, values: Integers) -> None:
    """Add values to rows of a table, which are named in ascending order."""
    if len(rows) == len(table):
        np.add(table, values, out=table)
        return
    for first in range(0, len(rows), ADDED_ROWS):
        table[rows[first : first + ADDED_ROWS]] += values[first : first + ADDED_ROWS]


def grouped(by_shard: Mapping[int, Delta], size: int) -> list[tuple[int, Delta]]:
    """Return the sums of complete groups of neighbours, and the deltas of other shards, each with its first shard."""
    sums: list[tuple[int, Delta]] = []
    for _, group in groupby(sorted(by_shard), key=lambda number: number // size):
        numbers = list(group)
        if len(numbers) == size:
            sums.append((numbers[0], total(by_shard[number] for number in numbers)))
        else:
            sums += [(number, by_shard[number]) for number in numbers]
    return sums


def summed(sums: Iterable[tuple[int, Delta]], size: int, shards: int) -> Delta:
    """Return the sum over all shards, from the `grouped` ones of all hosts: groups are added as a tree, two by two."""
    tree: list[tuple[int, Delta]] = []
    ordered = sorted(sums, key=lambda item: item[0])
    for number, group in groupby(ordered, key=lambda item: item[0] // size):
        height, delta = 0, total(delta for _, delta in group)
        is_complete = (number + 1) * size <= shards
        while is_complete and tree and tree[-1][0] == height:
            delta, height = total([tree.pop()[1], delta]), height + 1
        tree.append((height, delta))
    return total(delta for _, delta in tree)


def encode(values: Integers) -> bytes:
    """Return whole numbers of 32 or 64 bits as bytes, which do not depend on the number of bits."""
    from numcodecs import zstd

    flat = np.ascontiguousarray(values).reshape(-1)
    bits_of, split = (planes.bits_32, planes.split_32) if flat.dtype == np.int32 else (planes.bits_64, planes.split_64)
    bits = bits_of(flat)
    count = 8 if bits < 0 else -(-int(bits).bit_length() // 8)
    header = _HEADER.pack(flat.size, count)
    if not count:
        return header
    split_planes = buffers.empty(count * flat.size, np.uint8)
    split(flat, split_planes)
    return header + bytes(zstd.compress(split_planes, LEVEL))


def add_encoded(data: bytes, values: Integers) -> None:
    """Add the numbers of encoded bytes to contiguous values, of which there have to be as many."""
    from numcodecs import zstd

    size, count = _HEADER.unpack_from(data)
    if size != values.size or count > values.itemsize:
        raise ValueError(f"expected {values.size} numbers of {values.itemsize} bytes, found {size} of {count}")
    if not count:
        return
    split_planes = buffers.empty(count * size, np.uint8)
    zstd.decompress(memoryview(data)[_HEADER.size :], split_planes)
    flat = values.reshape(-1)
    (planes.add_32 if values.dtype == np.int32 else planes.add_64)(split_planes, flat)


_hosts: dict[tuple[str, int], Host] = {}  # The hosts of this process


def join(
    token: str,
    home: int,
    links: Links,
    part: Part,
    shards: Sequence[AnyShard | ShardOnDisk],
    warm: Sequence[WarmSource],
    given: GlobalState | Sequence[Block],
    swept: Sequence[Swept],
) -> None:
    """Task: take part in an exchange, from given blocks or from the state before the first document."""
    links.open()
    if isinstance(given, GlobalState):
        blocks = [tasks.empty_block(part.model, low, high, given) for low, high in pairwise(part.bounds)]
    else:
        blocks = list(given)
    state = HostState(blocks, dict(zip(part.numbers, swept, strict=False)))
    _hosts[token, home] = Host(token, home, links, part, shards, warm, state)


def leave(token: str) -> None:
    """Give an exchange up, and forget its states."""
    interrupt(token)
    for key in [key for key in _hosts if key[0] == token]:
        del _hosts[key]


def interrupt(token: str) -> None:
    """Have no turn of an exchange wait any more; its states stay."""
    for key, host in [*_hosts.items()]:
        if key[0] == token:
            host.close()


def has_ended(token: str) -> bool:
    """Return whether no host of this process takes part in an exchange any more."""
    return all(key[0] != token for key in _hosts)


def deliver(message: Message) -> None:
    """Give a message to its host, in this process."""
    _host(message.token, message.home).deliver(message)


def turn(token: str, home: int, order: Order) -> Turned:
    """Task: a host's turn."""
    return _host(token, home).turn(order)


def held_of(turned: Turned, token: str, home: int, turn: int) -> dict[int, Swept]:  # noqa: ARG001
    """Task: the local states of a host after a turn; as a result, they survive the worker's retirement."""
    return _host(token, home).state(turn).swept


def swept_of(held: Mapping[int, Swept], number: int) -> Swept:
    """Task: the local state of a shard."""
    return held[number]


def block_of(token: str, turn: int, number: int) -> Block:
    """Task: a block of the vocabulary, from any host."""
    return _any_host(token).state(turn).blocks[number]


def score(
    token: str,
    turn: int,
    held: Mapping[int, Swept],
    heldout: Sequence[AnyShard | ShardOnDisk],
    global_state: GlobalState,
    sample: DocumentSample | None,
) -> list[Score]:
    """Task: the scores of a host's shards, by the rows of any host."""
    return _any_host(token).score(turn, held, heldout, global_state, sample)


def _host(token: str, home: int) -> Host:
    host = _hosts.get((token, home))
    if host is None:
        raise HostLostError("a worker was lost, and with it its part of an exchange of changes")
    return host


def _any_host(token: str) -> Host:
    return next((host for key, host in [*_hosts.items()] if key[0] == token), None) or _host(token, -1)
