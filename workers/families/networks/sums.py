"""Sums over nodes, by which the hyperparameters of a network are learned and its objective is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Part, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import State
from collapsium.workers.families.networks.states import Ints, NetworkGlobalState, Vector
from collapsium.workers.kernels.networks.records import NodeStatistics
from collapsium.workers.special_functions import digamma, gammaln

CountsT = TypeVar("CountsT", Ints, Vector)

MIN_GAMMA = 1e-300  # Least draw of a Gamma distribution that is divided by


class NodeTotals(NamedTuple, Generic[CountsT]):
    """Customers and tables of nodes over all topics."""

    kind: npt.NDArray[np.int32]  # Kind of each node; (nodes,)
    is_root: npt.NDArray[np.bool_]  # Whether it has no parents; (nodes,)
    # M and T, or their expectations; (nodes,)
    customers: CountsT
    tables: CountsT


@dataclass(frozen=True)
class SharedChanges(State):
    """Changes of the counts of shared nodes."""

    # Changes of m and s; int64 (shared nodes or their edges, topics)
    shared_customers: Ints
    shared_tables: Ints

    def parts(self) -> dict[str, Part]:
        """Return the arrays as parts of a delta."""
        return {
            "shared_customers": change(self.shared_customers, "vector", "topic"),
            "shared_tables": change(self.shared_tables, "link", "topic"),
        }


@dataclass(frozen=True)
class SampledSums(State):
    """Sums over nodes with sampled tables."""

    log_q: Vector  # Sum of log 1/q_j, q_j ~ Beta(b, M_j); float64 (kinds,)
    tables: Ints  # By i, the nodes with more than i tables; int64 (kinds, n)
    falling: Vector  # Sum of log G(b) / G(b + M_j), at roots of log G(A) / G(A + M_j); float64 (kinds,)
    log_eta: float  # Sum over roots of psi(A) - psi(A + M_j)
    stirling: Vector  # Sum of log S^m_t and the other terms of p(n, s) of single topics; float64 (kinds,)
    joins: Vector  # Customers that speak for 1 - a; float64 (kinds,)
    # Sum over roots of a_k (psi(a_k + m_k) - psi(a_k)); None where alpha is not learned; float64 (topics,)
    alpha_numerator: Vector | None = None

    @classmethod
    def of(
        cls, nodes: NodeTotals[Ints], statistics: NodeStatistics, global_state: NetworkGlobalState, stream: Stream
    ) -> Self:
        """Return the sums over nodes, for which q_j are drawn."""
        strength, total = np.asarray(global_state.strength), global_state.concentration
        kinds, kind = strength.size, nodes.kind
        below, top = (nodes.customers > 0) & ~nodes.is_root, (nodes.customers > 0) & nodes.is_root
        b, many = strength[kind[below]], nodes.customers[below].astype(np.float64)
        generator = stream.at(purpose=f"{stream.purpose} strength").generator()
        log_q = special.log1p(generator.standard_gamma(many) / np.maximum(generator.standard_gamma(b), MIN_GAMMA))
        falls = gammaln(b) - gammaln(b + many)
        # Without nodes, the counts of NumPy are integers.
        falling = np.bincount(kind[below], falls, kinds).astype(np.float64)
        large = nodes.customers[top].astype(np.float64)
        falling += np.bincount(kind[top], gammaln(total) - gammaln(total + large), kinds)
        histogram = np.zeros((kinds, int(nodes.tables.max(initial=0)) + 1), dtype=np.int64)
        np.add.at(histogram, (kind[below], nodes.tables[below]), 1)
        numerator, topics = statistics.alpha_numerator, global_state.alpha.size
        return cls(
            log_q=np.bincount(kind[below], log_q, kinds).astype(np.float64),
            tables=histogram[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:],
            falling=falling,
            log_eta=float((digamma(total) - digamma(total + large)).sum()),
            stirling=statistics.kind_sums[:, 0],
            joins=statistics.kind_sums[:, 1],
            alpha_numerator=numerator[:topics] if numerator.size else None,
        )

    def parts(self) -> dict[str, Part]:
        """Return the sums as parts of a delta; `table_ids` has the ids of ``tables``."""
        parts = {name: fresh(getattr(self, name), "kind") for name in ("log_q", "falling", "stirling", "joins")}
        parts.update(tables=fresh(self.tables, "kind", "tables"), log_eta=fresh(self.log_eta))
        if self.alpha_numerator is not None:
            parts["alpha_numerator"] = fresh(self.alpha_numerator, "topic")
        return parts

    @property
    def table_ids(self) -> Ints:
        """Ids of the columns of `tables`, by which deltas align them."""
        return np.arange(self.tables.shape[1])

    def plus(self, other: SampledSums) -> SampledSums:
        """Return the sums over the nodes of both."""
        tables = np.zeros((self.tables.shape[0], max(self.tables.shape[1], other.tables.shape[1])), dtype=np.int64)
        for summand in (self.tables, other.tables):
            tables[:, : summand.shape[1]] += summand
        numerators = [sums.alpha_numerator for sums in (self, other) if sums.alpha_numerator is not None]
        return SampledSums(
            log_q=self.log_q + other.log_q,
            tables=tables,
            falling=self.falling + other.falling,
            log_eta=self.log_eta + other.log_eta,
            stirling=self.stirling + other.stirling,
            joins=self.joins + other.joins,
            alpha_numerator=np.sum(numerators, axis=0) if numerators else None,
        )


@dataclass(frozen=True)
class ExpectedSums(State):
    """Sums over nodes with expected tables."""

    opened: Vector  # Sum of (b/a) (psi(b/a + T) - psi(b/a)), or of T where a = 0; float64 (kinds,)
    log_q: Vector  # Sum of psi(b + M) - psi(b); float64 (kinds,)
    log_eta: float  # Sum over roots of psi(A) - psi(A + M)

    @classmethod
    def of(cls, nodes: NodeTotals[Vector], global_state: NetworkGlobalState) -> Self:
        """Return the sums over nodes; b, a and alpha come from the global state."""
        strength, discount, total = global_state.strength, global_state.discount, global_state.concentration
        occupied = nodes.customers > 0
        below, top = occupied & ~nodes.is_root, occupied & nodes.is_root
        own = nodes.kind[below]
        b, a, opened = strength[own], discount[own], nodes.tables[below].astype(np.float64)
        with_discount = a > 0
        ratio = b[with_discount] / a[with_discount]
        opened[with_discount] = ratio * (digamma(ratio + opened[with_discount]) - digamma(ratio))
        log_q = digamma(b + nodes.customers[below]) - digamma(b)
        return cls(
            opened=np.bincount(own, opened, strength.size).astype(np.float64),
            log_q=np.bincount(own, log_q, strength.size).astype(np.float64),
            log_eta=float((digamma(total) - digamma(total + nodes.customers[top])).sum()),
        )

    def parts(self) -> Mapping[str, Part]:
        """Return the sums as parts of a delta."""
        return {
            "opened": fresh(self.opened, "kind"),
            "log_q": fresh(self.log_q, "kind"),
            "log_eta": fresh(self.log_eta),
        }
