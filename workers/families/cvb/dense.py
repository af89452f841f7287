"""Dense responsibilities on a shard: a probability of each pair and topic, for models of few topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.delta import Delta, Part, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import present
from collapsium.workers.families.cvb.global_state import RowChanges
from collapsium.workers.families.cvb.parameters import Parameters
from collapsium.workers.families.cvb.states import CollapsedRows, DenseLocal
from collapsium.workers.families.document_entries import document_pairs, pair_weights
from collapsium.workers.kernels.cvb import dense as kernels
from collapsium.workers.kernels.cvb import words
from collapsium.workers.kernels.cvb.records import DenseState

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

CELLS = 1 << 22  # Responsibilities that the start draws at a time


def start(shard: Shard, topics: int, stream: Stream, *, moments: bool) -> tuple[DenseLocal, Delta]:
    """Return responsibilities q ~ 1 + u with u uniform on [0, 1], and their counts."""
    generator = stream.generator()
    pair_topic = np.empty((shard.pairs, topics), dtype=np.float32)
    chunk = max(CELLS // topics, 1)
    for first in range(0, shard.pairs, chunk):
        part = pair_topic[first : first + chunk]
        generator.random(out=part, dtype=np.float32)
        part += np.float32(1.0)
        part /= part.sum(axis=1, keepdims=True)
    return initial_state(shard, pair_topic, moments=moments)


def initial_state(shard: Shard, pair_topic: npt.NDArray[np.float32], *, moments: bool) -> tuple[DenseLocal, Delta]:
    """Return a shard's first local state from responsibilities, and its counts as changes."""
    local = DenseLocal(_document_topic(shard, pair_topic), pair_topic)
    return local, Delta(_word_changes(shard, None, pair_topic, moments), {"word": shard.words})


def _document_topic(shard: Shard, pair_topic: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    owner = np.repeat(np.arange(shard.documents, dtype=np.int32), np.diff(shard.offsets))
    result = np.zeros((shard.documents, pair_topic.shape[1]))
    words.add_counts(owner, shard.counts, pair_weights(shard), pair_topic, result, np.zeros((0, 0)))
    return result.astype(np.float32)


def _word_changes(
    shard: Shard, old: npt.NDArray[np.float32] | None, new: npt.NDArray[np.float32], moments: bool
) -> dict[str, Part]:
    """Return the counts of new responsibilities by word, minus the counts of old ones if there are any."""
    shape = (shard.words.size, new.shape[1])
    names = ["word_topic", "word_topic_variance", "word_topic_log_absent"] if moments else ["word_topic"]
    sums = []
    for pair_topic in (new, old):
        if pair_topic is None:
            continue
        mean, variance = np.zeros(shape), np.zeros(shape if moments else (0, 0))
        words.add_counts(shard.position, shard.counts, pair_weights(shard), pair_topic, mean, variance)
        arrays = [mean]
        if moments:
            log_absent = np.empty(shape)
            words.add_log_absent(shard.position, shard.counts, pair_weights(shard), pair_topic, log_absent)
            arrays += [variance, log_absent]
        sums.append(arrays)
    changes = sums[0] if old is None else [after - before for after, before in zip(*sums, strict=True)]
    return {name: change(values, "word", "topic") for name, values in zip(names, changes, strict=True)}


def sweep(
    shard: Shard,
    local: DenseLocal,
    rows: CollapsedRows,
    totals: npt.NDArray[np.float64],
    parameters: Parameters,
) -> tuple[DenseLocal, dict[str, Part], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the result of a sweep over a shard."""
    topics = parameters.topics.size
    old = local.pair_topic
    new = DenseLocal(np.empty_like(local.document_topic), np.empty_like(old))
    row_change, tables, sums = np.zeros((shard.words.size, topics)), np.zeros(topics), np.zeros(2)
    base = rows.dense_counts.astype(np.float32)
    before, after = DenseState(old, local.document_topic), DenseState(new.pair_topic, new.document_topic)
    parts: dict[str, Part] = {}
    if parameters.order == 0:
        expected = kernels.Tables(parameters.topics if parameters.tables else np.empty(0), tables)
        running = totals[0] + parameters.total
        pairs, priors = document_pairs(shard), parameters.priors
        kernels.sweep_zeroth(pairs, base, priors, running, before, after, row_change, expected)
        if parameters.moments:
            parts = _word_changes(shard, old, new.pair_topic, moments=True)
    else:
        changes = kernels.MomentChanges(row_change, np.zeros_like(row_change))
        kernels.sweep_second(
            document_pairs(shard),
            kernels.RowMoments(base, present(rows.word_topic_variance).astype(np.float32)),
            parameters.priors,
            totals + np.array([[parameters.total], [0.0]]),
            before,
            after,
            changes,
            kernels.BoundTerms(tables, sums),
        )
        parts["word_topic_variance"] = change(changes.variance, "word", "topic")
        log_absent = np.empty((2, shard.words.size, topics))
        for pair_topic, log in zip((new.pair_topic, old), log_absent, strict=True):
            words.add_log_absent(shard.position, shard.counts, pair_weights(shard), pair_topic, log)
        parts["word_topic_log_absent"] = change(log_absent[0] - log_absent[1], "word", "topic")
    parts["word_topic"] = change(row_change, "word", "topic")
    return new, parts, tables, sums


def fold(block: CollapsedRows, delta: Delta) -> tuple[CollapsedRows, dict[str, Part]]:
    """Return a block of the vocabulary after the changes of its rows, with `TopicChanges` and fresh ``moved``."""
    ids = delta.ids.get("word", np.zeros(0, dtype=np.int64))
    after = {name: np.array(values) for name, values in block.to_arrays().items()}
    parts: dict[str, Part] = {}
    changes = delta.read(RowChanges) or RowChanges()
    for name, values in changes.to_arrays().items():
        after[name][ids] += values
        parts[name.removeprefix("word_")] = change(values.sum(axis=0), "topic")
    parts["moved"] = fresh(0.0 if changes.word_topic is None else np.abs(changes.word_topic).sum())
    return CollapsedRows.from_arrays(after), parts
