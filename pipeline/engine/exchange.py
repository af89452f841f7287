"""The driver's side of an exchange between hosts: it begins with a state, and each turn creates the next state.

The worker processes of `Executor.links` are the hosts. Blocks and local states remain on them; the driver creates
futures for these only when a checkpoint, a model or a score needs them.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast, overload

from collapsium.pipeline.engine.state import GROUP_SHARDS, Problem, State, StoredBlocks
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.workers import exchange, tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import GlobalState
from collapsium.workers.families.family import AnyFamily, Exchanges
from collapsium.workers.shard_loading import DocumentSample

T = TypeVar("T")


class HeldParts(Sequence[Future[T]], Generic[T]):
    """Parts of the state after a turn, which remain on the hosts; looking one up submits a future for it."""

    def __init__(self, owner: Exchange, turn: int, size: int, submit: Callable[[int], Future[T]]) -> None:
        self.exchange, self.turn, self._size, self._submit = owner, turn, size, submit

    @overload
    def __getitem__(self, number: int) -> Future[T]: ...

    @overload
    def __getitem__(self, number: slice) -> list[Future[T]]: ...

    def __getitem__(self, number: int | slice) -> Future[T] | list[Future[T]]:
        if isinstance(number, slice):
            return [self._submit(index) for index in range(*number.indices(self._size))]
        if not -self._size <= number < self._size:
            raise IndexError(number)
        return self._submit(number % self._size)

    def __len__(self) -> int:
        return self._size


def links_of(state: State) -> exchange.Links | None:
    """Return the links between the hosts that hold a state; None where no exchange does."""
    return state.blocks.exchange.links if isinstance(state.blocks, HeldParts) else None


@dataclass(frozen=True)
class Turn:
    """A submitted turn of all hosts."""

    turned: Future[Delta]
    scores: list[Future[list[tasks.Score]]]  # Scores of the state before
    links: exchange.Links
    blocks: HeldParts[tasks.Block]  # The blocks of the vocabulary after it
    swept: HeldParts[tasks.Swept]  # The shards' next local states

    def sums(self, executor: Executor) -> Delta:
        """Wait for the sums that the update of the global state needs."""
        return executor.collect([self.turned], self.links)[0]


class Exchange:
    """An exchange between the worker processes that were present when it began."""

    def __init__(self, problem: Problem, state: State, links: exchange.Links, family: exchange.AnyExchanges) -> None:
        self._problem, self.links, self._token = problem, links, secrets.token_hex(8)
        executor = problem.executor
        # States refer to the exchange. Once the driver has dropped all of them, the hosts drop theirs.
        self._leave = weakref.finalize(self, executor.tell, exchange.leave, self._token)
        self._leave.atexit = False
        local = [*state.swept]
        self._held: list[Future[exchange.Held]] = []
        for host in range(self._hosts):
            numbers = self._shards(host)
            part = exchange.Part(
                family,
                problem.block_bounds,
                tuple(numbers),
                GROUP_SHARDS,
                max(executor.workers // executor.processes, 1),
                tuple(problem.scratch.of(number) for number in numbers),
                problem.local_sweeps,
            )
            shards = [problem.shards[number] for number in numbers]
            heldout = [problem.heldout[number] for number in numbers] if problem.heldout else []
            warm = [problem.warm[number] for number in numbers] if problem.warm is not None and not local else []
            swept = [local[number] for number in numbers] if local else []
            given: GlobalState | list[Future[tasks.Block]] = problem.global_state
            if state.swept:
                given = state.blocks.read_in(host) if isinstance(state.blocks, StoredBlocks) else [*state.blocks]
            inputs: tuple[object, ...] = (self._token, host, links, part, shards, heldout, warm, given, swept)
            self._held.append(executor.submit(exchange.join, *inputs, process=host))
        placed = [
            executor.submit(tasks.is_there, held, process=host, strict=True) for host, held in enumerate(self._held)
        ]
        executor.collect(placed)

    @staticmethod
    def links_for(problem: Problem, global_state: GlobalState) -> exchange.Links | None:
        """Return the links of an exchange from a state; None in one process or without whole-number changes."""
        links, family = problem.executor.links(), problem.family
        if not isinstance(family, Exchanges) or family.integer_changes(global_state) is None:
            return None
        return links

    @staticmethod
    def begun(problem: Problem, state: State) -> Exchange | None:
        """Return an exchange that continues from a state; None where none is possible (`links_for`)."""
        links = Exchange.links_for(problem, state.global_state)
        return None if links is None else Exchange(problem, state, links, cast(exchange.AnyExchanges, problem.family))

    @property
    def _hosts(self) -> int:
        return len(self.links.addresses)

    @property
    def is_current(self) -> bool:
        """True if all present worker processes take part, and no other one does."""
        return self._problem.executor.links() == self.links

    def submit(
        self, state: State, last: State | None, stream: Stream, sample: DocumentSample | None, *, scored: bool = False
    ) -> Turn:
        """Submit a turn from a state, which may be scored too; hosts retain the earlier state `last` until it ends."""
        problem, token, submit = self._problem, self._token, self._problem.executor.submit
        turn = self.turn_of(state) + 1
        keep = turn - 1 if last is None else min(self.turn_of(last), turn - 1)
        scored_sample, scored = problem.sample(state.iteration), scored and bool(problem.heldout)
        scoring = exchange.ScoreOrder(turn - 1, state.global_state, scored_sample) if scored else None
        order = exchange.Order(turn - 1, keep, state.global_state, stream, sample, scoring)
        turned = submit(exchange.turn, token, order, len(problem.shards), process=exchange.LEAD, strict=True)

        def block(number: int) -> Future[tasks.Block]:
            # All hosts have the block. A future in the process of the block's tasks avoids sending it there.
            present, process = self._present_processes(), problem.process_of_block(number)
            process = process if process in present else present[number % len(present)]
            return submit(exchange.block_of, token, turn, number, process=process, strict=True)

        def swept(number: int) -> Future[tasks.Swept]:
            # Other tasks would use a copy on another worker, which does not have later states.
            host = number * self._hosts // len(self._problem.shards)
            process = self._present_process(host)
            return submit(
                exchange.swept_of, self._held[host], turn, number, process=process, strict=process is not None
            )

        blocks = HeldParts(self, turn, len(problem.block_bounds) - 1, block)
        scores = self.scores(state, scored_sample, is_ordered=True) if scored else []
        return Turn(turned, scores, self.links, blocks, HeldParts(self, turn, len(problem.shards), swept))

    def scores(
        self, state: State, sample: DocumentSample | None, *, is_ordered: bool = False
    ) -> list[Future[list[tasks.Score]]]:
        """Submit the scoring of held-out pairs, if there are any; `is_ordered` if it is part of a turn."""
        order = exchange.ScoreOrder(self.turn_of(state), state.global_state, sample)
        submit, has_pairs = self._problem.executor.submit, bool(self._problem.heldout)
        if not has_pairs:
            return []
        return [submit(exchange.score, self._token, order, is_ordered, process=exchange.LEAD, strict=True)]

    def ask(self, state: State, find: Callable[[AnyFamily, tasks.Block], list[T]]) -> Future[list[T]]:
        """Submit a question about the rows of a state, which each host answers for its part of the vocabulary."""
        question = exchange.Question(self.turn_of(state), find)
        return self._problem.executor.submit(exchange.ask, self._token, question, process=exchange.LEAD, strict=True)

    def turn_of(self, state: State) -> int:
        """Return the number of a state on the hosts; 0 for the state with which the exchange began."""
        return state.blocks.turn if isinstance(state.blocks, HeldParts) and state.blocks.exchange is self else 0

    def interrupt(self) -> None:
        """Abandon turns that are waiting; the hosts retain their states."""
        self._problem.executor.tell(exchange.interrupt, self._token)

    def close(self) -> None:
        """Abandon the exchange: no turn waits any longer, and hosts drop their states."""
        self._leave()

    def _present_processes(self) -> list[int]:
        """Return the worker processes, as the executor numbers them now, of all hosts that are not lost."""
        present = [process for process in map(self._present_process, range(self._hosts)) if process is not None]
        if not present:
            raise exchange.HostLostError("all workers of an exchange of changes were lost")
        return sorted(present)

    def _present_process(self, host: int) -> int | None:
        """Return the worker process of a host, as the executor numbers it now; None if the host is lost."""
        links, address = self._problem.executor.links(), self.links.addresses[host]
        return links.addresses.index(address) if links is not None and address in links.addresses else None

    def _shards(self, host: int) -> range:
        """Return the numbers of a host's shards."""
        shards = len(self._problem.shards)
        return range(-(-host * shards // self._hosts), -(-(host + 1) * shards // self._hosts))
