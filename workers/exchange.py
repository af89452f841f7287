"""The exchange: hosts sum changes of the rows, each for its part of the vocabulary, and send one another only changes.

The traffic of a host must not grow with the number of hosts. So each host sweeps its shards, adds up their changes, and
sends every other host the changes of the words that the other host owns. The owner adds them to its changes, and sends
the sum to all hosts, which apply it to their copies of the rows. With H hosts, each of them sends and receives
(H - 1) / H of the rows' bytes per iteration (reduce-scatter and all-gather; Thakur, Rabenseifner and Gropp 2005);
encoding the changes (`encode`) reduces this to a third or less. Changes are whole numbers
(`Exchanges.integer_changes`), so their sums do not depend on the order or the number of the hosts.

Driver and scheduler handle one task per iteration, however many hosts there are: the first host, the lead, passes the
driver's order on to all others, and returns their results as one. A host is a worker process.

Only here do workers hold state between tasks. A state is never changed: each turn creates the next one, and the driver
names the oldest state that it still needs. All hosts have all rows. The local states of a host are also the result of a
task (`Held`), so a worker that retires hands them over. If a host is lost in any other way, the driver starts another
exchange from a checkpoint.
"""

from __future__ import annotations

import itertools
import pickle
import struct
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.vectors import AnyShard
from collapsium.storage.errors import ClusterError
from collapsium.workers import tasks
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import BAND, Delta, band_bounds, change, total
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Array, GlobalState
from collapsium.workers.families.family import AnyFamily, Exchanges, IntegerChange
from collapsium.workers.kernels import planes
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.shard_loading import DocumentSample, ShardOnDisk
from collapsium.workers.tasks import Block, Score, Swept, WarmSource

T = TypeVar("T")
R = TypeVar("R")
Integers: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]
AnyExchanges: TypeAlias = Exchanges[Any, Any, Any, Any]

LEAD = 0  # The host that receives the driver's orders and passes them on
POLL_SECONDS = 0.5  # Seconds between two checks whether the exchange was abandoned

NO_LOCK = nullcontext()  # For numbers to which only one thread adds
LEVEL = 1  # Zstandard's fastest level: higher ones take more time than they save at 100 Mbit/s
# Number of values, number of values other than zero, and number of byte planes that follow
_HEADER = struct.Struct("<QQB")


class Kind(IntEnum):
    """Contents of a message."""

    ORDER = 0  # An order for the receiver, pickled
    SLICES = 1  # Changes of words that the receiver owns, summed over the sender's shards
    SUMS = 2  # Changes of words that the sender owns, summed over all shards
    TURNED = 3  # Result of an order to turn, or its error, pickled
    SCORED = 4  # Result of an order to score, or its error, pickled
    ANSWERED = 5  # Answers to a question about rows, or the error, pickled


class Message(NamedTuple):
    """Encoded changes, an order or a result on the way to another host."""

    token: str  # The exchange
    receiver: int  # Number of the host that receives it
    turn: int
    kind: Kind
    sender: int
    number: int  # Number among the sender's messages, since a message may arrive twice
    parts: tuple[bytes, ...]  # Contents; for changes, an array each, in the order of `Exchanges.integer_changes`


class HostLostError(ClusterError):
    """A host of an exchange was lost, or the exchange ended for that reason."""


Send: TypeAlias = Callable[[Message], "Future[None]"]


class Links(Protocol):
    """Connections from a host to all others."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Name of each host."""

    def is_at(self, host: int) -> bool:
        """Return whether this task runs where the messages of a host arrive."""

    def open(self) -> Send:
        """Begin to pass messages that reach this process to `deliver`; return the function that sends messages.

        A delayed message is sent again until the exchange is abandoned.
        """

    def leave_thread(self) -> None:
        """Free the thread of this task for other tasks while it waits for other hosts."""

    def when_released(self, leave: Callable[[], None]) -> None:
        """Call a function once the result of this task is no longer needed."""


@dataclass(frozen=True)
class Part:
    """A host of an exchange: its shards and settings, fixed before the first turn."""

    model: AnyExchanges
    bounds: tuple[int, ...]  # First word of each block of the vocabulary and, last, the size of the vocabulary
    numbers: tuple[int, ...]  # Numbers of the host's shards, which are neighbours
    group: int  # Shards whose sums without words are added one after another; see `grouped`
    threads: int  # Threads that sweep
    scratch: tuple[str | None, ...]  # Folders of the shards' scratch files; None for shards that stay in memory
    local_sweeps: int


@dataclass(frozen=True)
class ScoreOrder:
    """Scores of a state's held-out pairs."""

    answer: ClassVar = Kind.SCORED
    turn: int  # Number of the state
    global_state: GlobalState
    sample: DocumentSample | None


@dataclass(frozen=True)
class Order:
    """A turn: a round of sweeps from a state, and the exchange of its changes."""

    answer: ClassVar = Kind.TURNED
    turn: int  # Number of the state that it begins from
    keep: int  # Number of the oldest state that is still needed
    global_state: GlobalState
    stream: Stream
    sample: DocumentSample | None
    scores: ScoreOrder | None  # Scores to compute while changes are in transit


@dataclass(frozen=True)
class Question:
    """A question about the rows of a state, which each host answers for the words that it owns."""

    answer: ClassVar = Kind.ANSWERED
    turn: int  # Number of the state
    find: Callable[[AnyFamily, Block], list[Any]]


AnyOrder: TypeAlias = Order | ScoreOrder | Question


@dataclass(frozen=True)
class Turned:
    """Result of a host's turn."""

    rest: list[tuple[int, Delta]]  # Sums without words: the first shard of each, and the sum
    sums: Delta  # Sums over the rows of the words that the host owns


@dataclass(frozen=True)
class HostState:
    """A host's state between turns."""

    blocks: list[Block]  # The rows of all words
    swept: dict[int, Swept] = field(default_factory=dict)  # Local states of its shards; empty before the start


class Held:
    """The states of a host as the result of a task; pickling it gives the local states at that moment.

    The scheduler can therefore move them to another worker when a worker retires, without knowing about turns.
    """

    def __init__(self, token: str, host: int, states: dict[int, HostState]) -> None:
        self._token, self._host, self._states = token, host, states

    def __reduce__(self) -> tuple[Callable[..., Held], tuple[str, int, dict[int, HostState]]]:
        """Leave out the rows, which all hosts have."""
        states = {turn: HostState([], state.swept) for turn, state in [*self._states.items()]}
        return _held, (self._token, self._host, states)

    def state(self, turn: int) -> HostState:
        """Return a state that is still needed."""
        try:
            return self._states[turn]
        except KeyError:
            raise HostLostError("a state was lost with an exchange that was abandoned") from None


def _held(token: str, host: int, states: dict[int, HostState]) -> Held:
    """Return the states of a host, which a worker short of memory may have pickled to disk in the meantime."""
    present = _hosts.get((token, host))
    return Held(token, host, states) if present is None else present.held


class Host:
    """A host: its shards, its states, and the messages that it has yet to process."""

    def __init__(
        self,
        token: str,
        host: int,
        links: Links,
        part: Part,
        shards: Sequence[AnyShard | ShardOnDisk],
        heldout: Sequence[AnyShard | ShardOnDisk],
        warm: Sequence[WarmSource],
        state: HostState,
    ) -> None:
        self._token, self._host, self.links, self.part = token, host, links, part
        self._shards = dict(zip(part.numbers, shards, strict=True))
        self._heldout = dict(zip(part.numbers, heldout, strict=False))
        self._warm = dict(zip(part.numbers, warm, strict=False))
        self._states = {0: state}
        self.held = Held(token, host, self._states)
        self._changed = threading.Condition()
        self._orders: deque[AnyOrder] = deque()
        self._inbox: dict[tuple[int, Kind], dict[int, tuple[bytes, ...]]] = {}
        # Senders and numbers of messages that have arrived, by turn; messages for turns before the oldest are ignored
        self._arrived: dict[int, set[tuple[int, int]]] = {}
        self._oldest, self._numbers = 0, itertools.count()
        self._closed = False
        words = [
            low
            for block in itertools.pairwise(part.bounds)
            for low in (band_bounds(block[1] - block[0])[:-1] + block[0])
        ]
        hosts = len(links.addresses)
        firsts = [-(-host * len(words) // hosts) for host in range(hosts + 1)]
        ends = [*words, part.bounds[-1]]
        self._owned = [(int(ends[first]), int(ends[last])) for first, last in itertools.pairwise(firsts)]
        self._send_message = links.open()
        threading.Thread(target=self._obey, name=f"collapsium-host-{host}", daemon=True).start()

    def deliver(self, message: Message) -> None:
        """Queue a message until its turn needs it, or an order until earlier orders are done; ignore repetitions."""
        with self._changed:
            key = (message.sender, message.number)
            if message.turn < self._oldest or key in self._arrived.setdefault(message.turn, set()):
                return
            self._arrived[message.turn].add(key)
            if message.kind is Kind.ORDER:
                self._orders.append(pickle.loads(message.parts[0]))  # noqa: S301
            else:
                self._inbox.setdefault((message.turn, message.kind), {})[message.sender] = message.parts
            self._changed.notify_all()

    def close(self) -> None:
        """Abandon the exchange: every thread that waits for a message raises an error."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def command(self, order: AnyOrder) -> None:
        """Send an order to all hosts."""
        order_bytes = pickle.dumps(order)
        for host in range(len(self.links.addresses)):
            self._send(host, order.turn, Kind.ORDER, order_bytes)

    def answers(self, turn: int, kind: Kind) -> list[Any]:
        """Wait for the results of all hosts, and return them in the order of the hosts."""
        self.links.leave_thread()
        hosts, results = range(len(self.links.addresses)), {}
        for host, parts in self._arriving(turn, kind, hosts):
            results[host] = pickle.loads(parts[0])  # noqa: S301
            if isinstance(results[host], BaseException):
                raise results[host]
        return [results[host] for host in hosts]

    def _obey(self) -> None:
        """Follow orders until the exchange is abandoned."""
        while True:
            with self._changed:
                while not self._orders and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                order = self._orders.popleft()
            self._follow(order)

    def _follow(self, order: AnyOrder) -> None:
        """Follow an order, and send the result to the lead."""
        try:
            match order:
                case Order():
                    answer = pickle.dumps(self._turn(order))
                case ScoreOrder():
                    answer = pickle.dumps(self._score(order))
                case Question():
                    answer = pickle.dumps(self._answers(order))
        # The lead's task raises the error.
        except BaseException as error:
            answer = _pickled(error)
        self._send(LEAD, order.turn, order.answer, answer)

    def _send(self, receiver: int, turn: int, kind: Kind, *parts: bytes) -> Future[None] | None:
        message = Message(self._token, receiver, turn, kind, self._host, next(self._numbers), parts)
        if receiver != self._host:
            return self._send_message(message)
        self.deliver(message)
        return None

    def _turn(self, order: Order) -> Turned:
        """Sweep the shards, exchange their changes, and create the next state."""
        state = self.held.state(order.turn)
        for number in [number for number in self._states if number < order.keep]:
            del self._states[number]
        with self._changed:
            self._oldest = order.keep
            self._arrived = {number: keys for number, keys in self._arrived.items() if number >= order.keep}
        kinds = self.part.model.integer_changes(order.global_state)
        if kinds is None:
            raise ValueError("expected changes that are whole numbers")
        changes = {name: buffers.zeros((self.part.bounds[-1], *kind.shape), kind.dtype) for name, kind in kinds.items()}
        swept, rest = self._sweep(state, order, kinds, changes)
        self._exchange(order, list(changes.values()))
        began = time.perf_counter()
        blocks, sums = self._fold(state, order, kinds, changes)
        self._states[order.turn + 1] = HostState(blocks, swept)
        sums = Delta(sums.parts, sums.ids, {"reduce": time.perf_counter() - began})
        return Turned(grouped(rest, self.part.group), sums)

    def _score(self, order: ScoreOrder) -> list[Score]:
        """Return the scores of the held-out pairs of the shards' documents."""
        state = self.held.state(order.turn)

        def score(number: int) -> list[Score]:
            inputs = ([self._heldout[number]], [state.swept[number]], state.blocks, order.global_state, order.sample)
            return tasks.score(self.part.model, *inputs)

        return [score for scores in self._in_threads(score, list(self._heldout)) for score in scores]

    def _answers(self, question: Question) -> list[Any]:
        """Return the answers to a question, from each block with words that the host owns."""
        first, last = self._owned[self._host]
        answers: list[Any] = []
        for block in self.held.state(question.turn).blocks:
            low, high = max(first, block.low), min(last, block.high)
            if low < high:
                rows = block.rows.of_words(slice(low - block.low, high - block.low), complete=True)
                answers += question.find(self.part.model, Block(low, high, rows, Delta()))
        return answers

    def _in_threads(self, call: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Call a function for each item as soon as it is available; return the results in the order of the items."""
        if self.part.threads == 1:
            return [call(item) for item in items]
        with ThreadPoolExecutor(self.part.threads) as threads:
            return list(threads.map(call, items))

    def _sweep(
        self, state: HostState, order: Order, kinds: Mapping[str, IntegerChange], changes: Mapping[str, Array]
    ) -> tuple[dict[int, Swept], dict[int, Delta]]:
        """Sweep the shards and add up their changes; return their local states, and each shard's sums without words."""
        part, adding = self.part, threading.Lock()
        folders = dict(zip(part.numbers, part.scratch, strict=True))

        def sweep(number: int) -> tuple[Swept, Delta]:
            shard, inputs = self._shards[number], (folders[number], state.blocks, order.global_state, order.stream)
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

    def _exchange(self, order: Order, changes: Sequence[Integers]) -> None:
        """Replace the changes of the host's shards by the changes of all hosts."""
        hosts, this_host, turn, adding = len(self.links.addresses), self._host, order.turn, threading.Lock()
        other_hosts = [(this_host + distance) % hosts for distance in range(1, hosts)]

        def encoded(owner: int) -> tuple[bytes, ...]:
            low, high = self._owned[owner]
            return tuple(encode(values[low:high]) for values in changes)

        def send_slices(owner: int) -> Future[None] | None:
            return self._send(owner, turn, Kind.SLICES, *encoded(owner))

        def add_slices(message: tuple[int, tuple[bytes, ...]]) -> None:
            low, high = self._owned[this_host]
            for values, part in zip(changes, message[1], strict=True):
                add_encoded(part, values[low:high], adding)

        def put_sums(message: tuple[int, tuple[bytes, ...]]) -> None:
            low, high = self._owned[message[0]]
            for values, part in zip(changes, message[1], strict=True):
                values[low:high] = 0
                add_encoded(part, values[low:high])

        sending = self._in_threads(send_slices, other_hosts)
        self._in_threads(add_slices, self._arriving(turn, Kind.SLICES, other_hosts))
        sums = encoded(this_host) if other_hosts else ()
        sending += [self._send(receiver, turn, Kind.SUMS, *sums) for receiver in other_hosts]
        if order.scores is not None:
            self._follow(order.scores)
        self._in_threads(put_sums, self._arriving(turn, Kind.SUMS, other_hosts))
        for future in sending:
            if future is not None:
                self._wait_for(future)

    def _arriving(self, turn: int, kind: Kind, senders: Iterable[int]) -> Iterator[tuple[int, tuple[bytes, ...]]]:
        """Yield the messages of a kind from all other hosts, in the order in which they arrive."""
        missing = set(senders)
        while missing:
            with self._changed:
                while not (present := missing & self._inbox.get((turn, kind), {}).keys()):
                    self._require_open()
                    self._changed.wait(POLL_SECONDS)
                arrived = [(sender, self._inbox[turn, kind][sender]) for sender in sorted(present)]
                missing -= present
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
        first, last = self._owned[self._host]
        blocks, sums = [], Delta()
        for block in state.blocks:
            parts = {}
            for name, kind in kinds.items():
                values: Array = changes[name][block.low : block.high]
                parts[name] = change(values if kind.steps == 1 else values / kind.steps, *kind.dims)
            delta = Delta(parts, {"word": np.arange(block.high - block.low)})
            bands = band_bounds(block.high - block.low) + block.low
            owned_bands = slice(*(int(np.searchsorted(bands[:-1], end)) for end in (first, last)))
            rows, folded = self.part.model.fold(block.rows, delta, order.global_state, owned_bands)
            ids = {dim: ids + block.low if dim == BAND else ids for dim, ids in folded.ids.items()}
            sums = sums + Delta(folded.parts, ids)
            blocks.append(Block(block.low, block.high, rows, Delta()))
        return blocks, sums


def _add_rows(table: Integers, rows: Array, values: Integers) -> None:
    """Add values to rows of a table, which are named in ascending order."""
    if len(rows) == len(table):
        np.add(table, values, out=table)
        return
    if len(rows) and not 0 <= rows[0] <= rows[-1] < len(table):
        raise ValueError(f"expected rows of {len(table)} words, found {rows[0]} to {rows[-1]}")
    add = planes.add_rows_32 if table.dtype == np.int32 else planes.add_rows_64
    width = table[:1].size
    add(table.reshape(-1, width), np.asarray(rows, np.int64), np.ascontiguousarray(values).reshape(-1, width))


def grouped(by_shard: Mapping[int, Delta], size: int) -> list[tuple[int, Delta]]:
    """Return the sums of complete groups of neighbouring shards, and the other deltas, each with its first shard."""
    sums: list[tuple[int, Delta]] = []
    for _, group in itertools.groupby(sorted(by_shard), key=lambda number: number // size):
        numbers = list(group)
        if len(numbers) == size:
            sums.append((numbers[0], total(by_shard[number] for number in numbers)))
        else:
            sums += [(number, by_shard[number]) for number in numbers]
    return sums


def summed(sums: Iterable[tuple[int, Delta]], size: int, shards: int) -> Delta:
    """Return the sum over all shards from the `grouped` sums of all hosts: a binary tree of groups."""
    tree: list[tuple[int, Delta]] = []
    ordered = sorted(sums, key=lambda item: item[0])
    for number, group in itertools.groupby(ordered, key=lambda item: item[0] // size):
        height, delta = 0, total(delta for _, delta in group)
        is_complete = (number + 1) * size <= shards
        while is_complete and tree and tree[-1][0] == height:
            delta, height = total([tree.pop()[1], delta]), height + 1
        tree.append((height, delta))
    return total(delta for _, delta in tree)


def kernels(family: AnyFamily, global_state: GlobalState) -> tuple[AnyKernel, ...]:
    """Return the kernels that encode and add a family's changes; none if these are not whole numbers."""
    changes = family.integer_changes(global_state) if isinstance(family, Exchanges) else None
    return () if changes is None else planes.KERNELS


def encode(values: Integers) -> bytes:
    """Encode whole numbers of 32 or 64 bits; equal numbers of either type give equal bytes."""
    from numcodecs import zstd

    flat, sums = np.ascontiguousarray(values).reshape(-1), np.zeros(2, np.int64)
    fold, split = (planes.fold_32, planes.split_32) if flat.dtype == np.int32 else (planes.fold_64, planes.split_64)
    mask, folded = np.empty(-(-flat.size // 8), np.uint8), buffers.empty(flat.size + 1, flat.dtype)
    fold(flat, mask, folded, sums)
    nonzero, bits = map(int, sums)
    count = 8 if bits < 0 else -(-bits.bit_length() // 8)
    header = _HEADER.pack(flat.size, nonzero, count)
    if not nonzero:
        return header
    encoded = buffers.empty(mask.size + count * nonzero, np.uint8)
    encoded[: mask.size] = mask
    split(folded[:nonzero], encoded[mask.size :])
    return header + bytes(zstd.compress(encoded, LEVEL))


def add_encoded(data: bytes, values: Integers, adding: AbstractContextManager[object] = NO_LOCK) -> None:
    """Add encoded numbers to as many contiguous values, while holding the lock `adding`."""
    from numcodecs import zstd

    size, nonzero, count = _HEADER.unpack_from(data)
    if size != values.size or count > values.itemsize or nonzero > size:
        raise ValueError(
            f"expected {values.size} numbers of {values.itemsize} bytes, found {nonzero} of {size} of {count}"
        )
    if not nonzero:
        return
    mask_bytes = -(-size // 8)
    encoded = buffers.empty(mask_bytes + count * nonzero, np.uint8)
    zstd.decompress(memoryview(data)[_HEADER.size :], encoded)
    mask = encoded[:mask_bytes]
    masked_numbers = int(np.bitwise_count(mask).sum(dtype=np.int64))
    if masked_numbers != nonzero:
        raise ValueError(f"expected {nonzero} numbers other than zero, found {masked_numbers}")
    add = planes.add_32 if values.dtype == np.int32 else planes.add_64
    with adding:
        add(mask, encoded[mask_bytes:], count, values.reshape(-1))


_hosts: dict[tuple[str, int], Host] = {}  # The hosts of this process


def join(
    token: str,
    host: int,
    links: Links,
    part: Part,
    shards: Sequence[AnyShard | ShardOnDisk],
    heldout: Sequence[AnyShard | ShardOnDisk],
    warm: Sequence[WarmSource],
    begin: GlobalState | Sequence[Block],
    swept: Sequence[Swept],
) -> Held:
    """Task: take part in an exchange that begins from blocks, or from a global state before any document was read."""
    # Dask runs the task again elsewhere if the worker is lost.
    _require_at(links, host)
    if isinstance(begin, GlobalState):
        blocks = [tasks.empty_block(part.model, low, high, begin) for low, high in itertools.pairwise(part.bounds)]
    else:
        blocks = list(begin)
    state = HostState(blocks, dict(zip(part.numbers, swept, strict=False)))
    joined = _hosts[token, host] = Host(token, host, links, part, shards, heldout, warm, state)
    links.when_released(lambda: _forget((token, host), joined))
    return joined.held


def leave(token: str) -> None:
    """Abandon an exchange, and drop its states."""
    for key, host in [*_hosts.items()]:
        if key[0] == token:
            _forget(key, host)


def _forget(key: tuple[str, int], host: Host) -> None:
    """Close a host and drop its states; do not drop another host that has replaced it."""
    host.close()
    if _hosts.get(key) is host:
        del _hosts[key]


def interrupt(token: str) -> None:
    """Abandon the turns of an exchange that are waiting, but retain its states."""
    for key, host in [*_hosts.items()]:
        if key[0] == token:
            host.close()


def has_ended(token: str) -> bool:
    """Return whether this process no longer has a host of an exchange."""
    return all(key[0] != token for key in [*_hosts])


def deliver(message: Message) -> None:
    """Pass a message to its host in this process."""
    _host(message.token, message.receiver).deliver(message)


def turn(token: str, order: Order, shards: int) -> Delta:
    """Task: have all hosts take a turn; return the sums over all shards that the global update needs."""
    lead = _lead(token)
    lead.command(order)
    hosts: list[Turned] = lead.answers(order.turn, Kind.TURNED)
    sums = summed((rest for host in hosts for rest in host.rest), lead.part.group, shards)
    for host in hosts:
        sums = sums + host.sums
    return sums


def score(token: str, order: ScoreOrder, is_ordered: bool) -> list[Score]:
    """Task: return the scores of all shards; order them first unless they were part of a turn (`is_ordered`)."""
    lead = _lead(token)
    if not is_ordered:
        lead.command(order)
    return [score for scores in lead.answers(order.turn, Kind.SCORED) for score in scores]


def ask(token: str, question: Question) -> list[Any]:
    """Task: return the answers to a question about the rows of all words, in the order of the vocabulary."""
    lead = _lead(token)
    lead.command(question)
    return [answer for answers in lead.answers(question.turn, Kind.ANSWERED) for answer in answers]


def swept_of(held: Held, turn: int, number: int) -> Swept:
    """Task: return the local state of a shard."""
    return held.state(turn).swept[number]


def block_of(token: str, turn: int, number: int) -> Block:
    """Task: return a block of the vocabulary, which every host has."""
    host = next((host for key, host in [*_hosts.items()] if key[0] == token), None) or _host(token, -1)
    return host.held.state(turn).blocks[number]


def _lead(token: str) -> Host:
    """Return the lead of an exchange; raise an error if its worker is lost, as several workers may share a process."""
    lead = _host(token, LEAD)
    _require_at(lead.links, LEAD)
    return lead


def _pickled(error: BaseException) -> bytes:
    """Pickle an error with its traceback as a note; an error that cannot be pickled becomes a `RuntimeError`."""
    error.add_note(f"in another thread: {traceback.format_exc()}")
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # noqa: S301
    # Whatever the error is, the other hosts must not wait for its host.
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return data


def _require_at(links: Links, host: int) -> None:
    """Raise an error if Dask has moved this task from a lost worker to another one."""
    if not links.is_at(host):
        raise HostLostError("a worker was lost, and another one runs its task")


def _host(token: str, number: int) -> Host:
    host = _hosts.get((token, number))
    if host is None:
        raise HostLostError("a worker was lost, and with it its part of an exchange of changes")
    return host
