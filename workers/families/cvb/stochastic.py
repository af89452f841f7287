"""The stochastic schedule of families of collapsed topics: steps on a shard without local state (SCVB0).

Foulds, Boyles, DuBois, Smyth and Welling (2013).

A step moves the rows of the shard's words, batch of documents by batch, each by a smaller share. All other words only
lose: a delta therefore tells what is left of every count (`decay`) and what has come to the shard's words
(`word_gain`). The shards of a minibatch step from the same state, and their results are averaged.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Delta, Part, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb import active as listed
from collapsium.workers.families.cvb.global_state import CollapsedGlobalState
from collapsium.workers.families.cvb.parameters import ActiveSettings, Parameters, expected_counts, fold_active
from collapsium.workers.families.cvb.states import AnyActiveLocal, CollapsedRows
from collapsium.workers.families.cvb.sums import WordGain
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels.cvb import stochastic, words

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Vector = npt.NDArray[np.float64]

BATCH = 32  # documents
PASSES = 4  # over each document
DECAY = 0.9  # the step of batch t, 0 for the first, is (1 + t)^-DECAY
SEED_DOCUMENTS, SEED_SWEEPS = 20, 30  # documents a topic that the first step sweeps as a whole, and how often


def step(
    shard: Shard, rows: CollapsedRows, global_state: CollapsedGlobalState, stream: Stream, parameters: Parameters
) -> Delta:
    """Move the rows of a shard's words by steps that decay.

    The first step of a run, which meets empty rows, begins with some sweeps over a sample of its documents by
    themselves, so that topics have separated.

    Parameters
    ----------
    shard : Shard
        The documents.
    rows : CollapsedRows
        Of the shard's words.
    global_state : CollapsedGlobalState
        Of the minibatch.
    stream : Stream
        Addressed to the shard.
    parameters : Parameters
        For the updates.

    Returns
    -------
    Delta
        Fresh ``word_gain`` (word, topic), `StepSums` and `SweepSums`.
    """
    began = time.perf_counter()
    topics, corpus = parameters.topics.size, global_state.corpus_tokens
    before, totals = rows.dense_counts, np.array(global_state.topic_moments[0])
    if not totals.any():
        before = _seed(shard, topics, stream, parameters) * (corpus / max(shard.tokens, 1))
        totals = before.sum(axis=0, dtype=np.float64)
    moved = buffers.empty(before.shape, np.float32)
    moved[:] = before
    lengths = np.add.reduceat(shard.lengths, np.arange(0, shard.documents, BATCH)) if shard.documents else np.zeros(0)
    rates = special.exp(-DECAY * special.log(1.0 + global_state.steps + np.arange(lengths.size)))
    rates = np.where(lengths > 0, np.minimum(rates, 0.999), 0.0)
    scales = corpus / np.maximum(lengths, 1.0)
    left, tables = np.ones(1), np.zeros(topics if parameters.tables else 0)
    local = np.zeros((shard.documents, topics), dtype=np.float32)
    stochastic.sweep_stochastic(
        document_pairs(shard),
        parameters.priors,
        stochastic.Batches(BATCH, PASSES, rates, scales),
        stochastic.MovingCounts(moved, totals, left),
        local,
        tables,
    )
    moved *= np.float32(left[0])
    # Rows that the first step made count as come to the shard: the block still has none of them.
    moved -= np.float32(left[0]) * np.asarray(rows.dense_counts, dtype=np.float32)
    gain = totals - left[0] * global_state.topic_moments[0]
    eta = np.zeros(2)
    words.log_eta(shard.lengths.astype(np.float64), np.array([parameters.concentration]), eta)
    parts: dict[str, Part] = {"word_gain": fresh(moved, "word", "topic"), "topic_gain": fresh(gain, "topic")}
    numbers = {"decay": left[0], "shards": 1.0, "batches": float(lengths.size), "log_eta": eta[0]}
    numbers.update(documents=float(shard.documents), tokens=float(shard.tokens))
    parts.update({name: fresh(value) for name, value in numbers.items()})
    if parameters.tables:
        parts["tables"] = fresh(tables, "topic")
    return Delta(parts, {"word": shard.words}, {"kernel": time.perf_counter() - began})


def _seed(shard: Shard, topics: int, stream: Stream, parameters: Parameters) -> npt.NDArray[np.float32]:
    """Sweep a sample of the documents by themselves; return what they expect of the shard's words."""
    from collapsium.storage.corpus.shard import Shard

    wanted = SEED_DOCUMENTS * topics
    every = max(shard.documents // wanted, 1)
    lengths = np.diff(shard.offsets) * (np.arange(shard.documents) % every == 0)
    keep = np.repeat(lengths > 0, np.diff(shard.offsets))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    sample = Shard(shard.number, offsets, shard.words, shard.position[keep], shard.counts[keep])
    blank = (np.zeros((shard.words.size, topics), dtype=np.float32) for _ in range(2))
    word_active, block_active = blank
    block = CollapsedRows(word_active=word_active, block_active=block_active, word_rest=np.zeros(shard.words.size))
    settings = ActiveSettings(
        most=0,
        flatten=1.0,
        momentum=0.0,
        totals=np.zeros(topics),
        even=parameters.total / max(shard.words.size, 1),
        weight=np.ones(topics),
        following=np.ones(topics),
    )
    now = replace(parameters, active=settings, tables=False, moments=False)
    local: AnyActiveLocal
    local, delta = listed.start(sample, topics, stream.at(purpose="seed"), moments=False, most=0, every=1)
    for sweep in range(SEED_SWEEPS):
        ids = Delta(delta.parts, {"word": np.arange(shard.words.size)})
        block, parts = fold_active(block, ids, now)
        following = now.topics / (now.total + parts["topic_total"].values)
        settings = replace(
            settings,
            totals=parts["topic_ahead"].values,
            weight=settings.following,
            following=following,
            momentum=0.8 if sweep else 0.0,
        )
        now = replace(now, active=settings)
        local, delta = listed.sweep(sample, local, block, now)
    block, _ = fold_active(block, Delta(delta.parts, {"word": np.arange(shard.words.size)}), now)
    expected = expected_counts(block, settings.following, settings.even).astype(np.float64)
    return np.maximum(expected * (shard.tokens / max(sample.tokens, 1)), 0.0).astype(np.float32)


def blend(block: CollapsedRows, delta: Delta) -> tuple[CollapsedRows, Delta]:
    """Move a block of the vocabulary by the mean of a minibatch's steps; return fresh ``moved`` too.

    Parameters
    ----------
    block : CollapsedRows
        With ``word_topic``.
    delta : Delta
        The sum over the minibatch; its word ids count from the block's first word.

    Returns
    -------
    block : CollapsedRows
        The new rows.
    delta : Delta
        Fresh ``moved``, the sum of absolute changes.
    """
    gain, shards = delta.read(WordGain), max(delta.number("shards"), 1.0)
    before = block.dense_counts
    after = buffers.empty(before.shape, np.float32)
    np.multiply(before, np.float32(delta.number("decay") / shards), out=after)
    if gain is not None:
        after[delta.ids["word"]] += gain.word_gain / np.float32(shards)
    moved = float(np.abs(after - before).sum(dtype=np.float64))
    return replace(block, word_topic=np.maximum(after, np.float32(0.0), out=after)), Delta({"moved": fresh(moved)})
