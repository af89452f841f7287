"""Refuse held-out tokens whose counts show that they are a part of the training tokens, or the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.leakage.lineage import TOKENS_ADVICE
from collapsium.pipeline.executors.base import Executor
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.storage.errors import MismatchError
from collapsium.workers.shard_loading import ShardOnDisk, open_shard

Table = npt.NDArray[np.int64]


class Loadable(Protocol):
    """A reference to the held-out pairs of a training shard's documents."""

    def load(self) -> Shard:
        """Read the pairs."""


@dataclass(frozen=True)
class ContainmentRule:
    """Thresholds by which counts are taken to lie within others, as counts of the same tokens do.

    Of tokens held out at random, the count of a word in a document is now and then larger than the count that stays.
    The share of tokens held out determines how often.
    """

    # Expected number of such pairs from which on their absence is not chance: exp(-25) is 1e-11
    least_expected: float = 25.0
    # Share of the expected pairs that may occur, such as those of a document or two that were edited
    most_share: float = 0.01
    least_pairs: int = 100  # Pairs of two tokens or more that a test of the variance needs
    # Ratio of the variance to a binomial's; counts halved by rule have at most 0.5. Also the ratio of the share held
    # out of single tokens to that of several, or its inverse.
    least_variance: float = 0.7
    # Pairs of as many tokens or more are left out, as there the same count is practically always the larger
    most_count: int = 64


RULE = ContainmentRule()


def require_not_contained(tables: Sequence[Table], scored: Corpus, name: str) -> None:
    """Raise an error if held-out counts lie within those of the training documents, or these within them."""
    if not tables:
        return
    if is_contained(np.sum(tables, axis=0)):
        raise MismatchError(
            f"{scored.url}: shares its tokens with {name}: in all documents, the counts of the one lie within those of "
            f"the other. {TOKENS_ADVICE}"
        )


def is_contained(table: Table) -> bool:
    """Return true if one count of each pair lies within the other, as the count of a part of the same tokens does."""
    return any(_is_part(counts) for counts in (table, table.T))


def _is_part(table: Table) -> bool:
    """Return true if the counts of the columns are a part of those of the rows."""
    total_count, part = np.indices(table.shape)
    tokens = total_count + part
    total = float((tokens * table).sum())
    if total == 0.0:
        return False
    # A fit that holds out nothing, or a split that is recorded, need not wait for this import.
    from scipy import special

    share = float((part * table).sum()) / total
    larger = np.where(tokens > 0, special.bdtrc(np.floor(tokens / 2), tokens, share), 0.0)
    expected, observed = float((larger * table).sum()), float(table[part > total_count].sum())
    if expected < RULE.least_expected or observed > RULE.most_share * expected:
        return False
    return not table[part != total_count].any() or _varies(table)


def _varies(table: Table) -> bool:
    """Return true if the counts of the columns vary about a share of those of the rows as a random part does."""
    rows = np.arange(table.shape[0])
    pairs = table.sum(axis=1)
    several = (rows >= 2) & (pairs >= 2)
    counts, tokens = table[several].astype(np.float64), rows[several]
    if counts.sum() < RULE.least_pairs:
        return False
    number = counts.sum(axis=1)
    mean = counts @ rows / number
    squares = (counts @ rows**2 - number * mean**2).sum()
    share = float((number * mean).sum() / (number * tokens).sum())
    singles = float((table[1] * rows).sum()) / max(int(pairs[1]), 1)
    if not RULE.least_variance * share <= singles <= share / RULE.least_variance:
        return False
    return bool(squares >= RULE.least_variance * ((number - 1.0) * tokens).sum() * share * (1.0 - share))


def count_table(training: AnyShard | ShardOnDisk, heldout: AnyShard | ShardOnDisk) -> Table:
    """Count the pairs of a shard's documents by their training and their held-out tokens."""
    most = RULE.most_count
    shards = [cast(Shard, open_shard(shard)) for shard in (training, heldout)]
    width = 1 + max(int(shard.words[-1]) if shard.words.size else 0 for shard in shards)
    keys = [
        np.repeat(np.arange(shard.documents), np.diff(shard.offsets)) * width + shard.words[shard.position]
        for shard in shards
    ]
    pairs, index = np.unique(np.concatenate(keys), return_inverse=True)
    first = keys[0].size
    counts = [
        np.bincount(index[part], weights=shard.counts, minlength=pairs.size).astype(np.int64)
        for part, shard in zip((slice(None, first), slice(first, None)), shards, strict=True)
    ]
    few = (counts[0] < most) & (counts[1] < most)
    table = np.bincount(counts[0][few] * most + counts[1][few], minlength=most * most)
    return table.reshape(most, most).astype(np.int64)


def tables_of(training: Corpus, held: Sequence[Loadable], executor: Executor) -> list[Table]:
    """Count the pairs of all shards of a training corpus by their training and held-out tokens; see `count_table`."""
    pairs = zip(training.references, held, strict=True)
    return executor.collect([executor.submit(_read_table, reference, part) for reference, part in pairs])


def _read_table(reference: ShardReference, part: Loadable) -> Table:
    return count_table(reference.load(), part.load())
