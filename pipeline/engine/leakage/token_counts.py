"""Refuse held-out tokens whose counts show that they are a part of the training tokens, or the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy.special import bdtrc

from collapsium.pipeline.engine.leakage.lineage import TOKENS_ADVICE
from collapsium.pipeline.executors.base import Executor
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import MismatchError
from collapsium.workers.shard_loading import open_shard

Table = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ContainmentRule:
    """When counts are taken to lie within others because both are of the same tokens.

    Of tokens that are held out at random, those of a word in a document are now and then more than those that are
    kept; how often is known from the share that is held out.
    """

    least_expected: float = 25.0
    """Pairs of which this is expected, from which on its absence is no chance: exp(-25) is 1e-11."""
    most_share: float = 0.01
    """Of these, the share that may be found yet: a document or two that were edited."""
    least_pairs: int = 100
    """Pairs of two tokens or more that are needed to see how counts vary."""
    least_variance: float = 0.7
    """Of a binomial's variance; counts halved by rule have at most 0.5. Also of the share that single tokens have of
    that of several, or the other way round."""
    most_count: int = 64
    """Pairs of as many tokens or more are left out: there, either count is as good as never the larger."""


RULE = ContainmentRule()


def require_not_contained(tables: Sequence[Table], scored: Corpus, name: str) -> None:
    """Refuse held-out tokens whose counts lie within those of the training documents, or these within them.

    Parameters
    ----------
    tables : sequence of numpy.ndarray of int64
        As `count_table` made them, one a shard.
    scored : Corpus
        The held-out tokens.
    name : str
        What to call the training corpus.

    Raises
    ------
    MismatchError
        No split at random gives such counts.
    """
    if not tables:
        return
    if is_contained(np.sum(tables, axis=0)):
        raise MismatchError(
            f"{scored.url}: shares its tokens with {name}: in all documents, the counts of the one lie within those of "
            f"the other. {TOKENS_ADVICE}"
        )


def is_contained(table: Table) -> bool:
    """Tell whether one count of each pair lies within the other, as a part of the same tokens does.

    Parameters
    ----------
    table : numpy.ndarray of int64
        How many pairs have so many training tokens (rows) and so many held-out ones (columns).

    Returns
    -------
    bool
        Whether one is a part of the other, drawn at random, or the very same. Counts that were halved by rule lie
        within one another too, but hardly vary.
    """
    return any(_is_part(one) for one in (table, table.T))


def _is_part(table: Table) -> bool:
    """Tell whether the counts of the columns are a part of those of the rows."""
    whole, part = np.indices(table.shape)
    tokens = whole + part
    total = float((tokens * table).sum())
    if total == 0.0:
        return False
    share = float((part * table).sum()) / total
    larger = np.where(tokens > 0, bdtrc(np.floor(tokens / 2), tokens, share), 0.0)
    expected, found = float((larger * table).sum()), float(table[part > whole].sum())
    if expected < RULE.least_expected or found > RULE.most_share * expected:
        return False
    return not table[part != whole].any() or _varies(table)


def _varies(table: Table) -> bool:
    """Tell whether the counts of the columns vary about a share of those of the rows as a random part does."""
    rows = np.arange(table.shape[0])
    pairs = table.sum(axis=1)
    several = (rows >= 2) & (pairs >= 2)
    counts, whole = table[several].astype(np.float64), rows[several]
    if counts.sum() < RULE.least_pairs:
        return False
    number = counts.sum(axis=1)
    mean = counts @ rows / number
    squares = (counts @ rows**2 - number * mean**2).sum()
    share = float((number * mean).sum() / (number * whole).sum())
    singles = float((table[1] * rows).sum()) / max(int(pairs[1]), 1)
    if not RULE.least_variance * share <= singles <= share / RULE.least_variance:
        return False
    return bool(squares >= RULE.least_variance * ((number - 1.0) * whole).sum() * share * (1.0 - share))


def count_table(training: Any, heldout: Any) -> Table:
    """Count the pairs of a shard's documents by their training and their held-out tokens, where the shards lie.

    Parameters
    ----------
    training, heldout : Shard or ShardOnDisk
        The same documents.

    Returns
    -------
    numpy.ndarray of int64
        How many pairs have so many training tokens (rows) and so many held-out ones (columns).
    """
    most = RULE.most_count
    shards = [cast(Shard, open_shard(one)) for one in (training, heldout)]
    width = 1 + max(int(one.words[-1]) if one.words.size else 0 for one in shards)
    keys = [
        np.repeat(np.arange(one.documents), np.diff(one.offsets)) * width + one.words[one.position] for one in shards
    ]
    pairs, place = np.unique(np.concatenate(keys), return_inverse=True)
    first = keys[0].size
    counts = [
        np.bincount(place[part], weights=one.counts, minlength=pairs.size).astype(np.int64)
        for part, one in zip((slice(None, first), slice(first, None)), shards, strict=True)
    ]
    few = (counts[0] < most) & (counts[1] < most)
    table = np.bincount(counts[0][few] * most + counts[1][few], minlength=most * most)
    return table.reshape(most, most).astype(np.int64)


def tables_of(training: Corpus, held: Sequence[Any], executor: Executor) -> list[Table]:
    """Count the pairs of all shards of a training corpus by their training and held-out tokens; see `count_table`."""
    pairs = zip(training.references, held, strict=True)
    return executor.collect([executor.submit(_read_table, reference, part) for reference, part in pairs])


def _read_table(reference: Any, part: Any) -> Table:
    return count_table(reference.load(), part.load())
