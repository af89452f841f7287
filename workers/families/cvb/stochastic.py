"""Stochastic collapsed variational Bayes, SCVB0: steps on a shard without local state.

Foulds, Boyles, DuBois, Smyth and Welling (2013).

A step moves the rows of the shard's words, batch of documents by batch, each by a smaller share. The counts of other
words only decay. A delta therefore has the factor by which all counts decay (`decay`), and the tokens that the shard's
words gain (`word_gain`). The shards of a minibatch step from the same state, and their results are averaged.
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
from collapsium.workers.families.cvb import active as active_responsibilities
from collapsium.workers.families.cvb.global_state import CollapsedGlobalState, WordGain
from collapsium.workers.families.cvb.parameters import ActiveSettings, Parameters, expected_counts, fold_active
from collapsium.workers.families.cvb.states import AnyActiveLocal, CollapsedRows
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.kernels.cvb import stochastic, words

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Vector = npt.NDArray[np.float64]


BATCH_DOCUMENTS = 32  # Documents of a batch
DOCUMENT_PASSES = 4  # Passes over each document
DECAY_POWER = 0.9  # The step of batch t, 0 for the first, is (1 + t)^-decay_power
# Documents for each topic that the first step of a run sweeps by themselves, and the number of these sweeps
SEED_DOCUMENTS = 20
SEED_SWEEPS = 30
SEED_MOMENTUM = 0.8  # Momentum of these sweeps, except the first


def step(
    shard: Shard, rows: CollapsedRows, global_state: CollapsedGlobalState, stream: Stream, parameters: Parameters
) -> Delta:
    """Return the gains of a shard's words by steps that decay.

    The first step of a run, whose rows are empty, begins with sweeps over a sample of its documents, so that topics
    separate.
    """
    began = time.perf_counter()
    topics, corpus = parameters.topics.size, global_state.corpus_tokens
    before, totals = rows.dense_counts, np.array(global_state.topic_moments[0])
    if not totals.any():
        before = _seed(shard, topics, stream, parameters) * (corpus / max(float(shard.weighted_lengths.sum()), 1e-300))
        totals = before.sum(axis=0, dtype=np.float64)
    moved = buffers.empty(before.shape, np.float32)
    moved[:] = before
    lengths = (
        np.add.reduceat(shard.weighted_lengths, np.arange(0, shard.documents, BATCH_DOCUMENTS))
        if shard.documents
        else np.zeros(0)
    )
    rates = special.exp(-DECAY_POWER * special.log(1.0 + global_state.steps + np.arange(lengths.size)))
    rates = np.where(lengths > 0, np.minimum(rates, 0.999), 0.0)
    scales = corpus / np.where(lengths > 0, lengths, 1.0)
    left, tables = np.ones(1), np.zeros(topics if parameters.tables else 0)
    local = np.zeros((shard.documents, topics), dtype=np.float32)
    stochastic.sweep_stochastic(
        document_pairs(shard),
        parameters.priors,
        stochastic.Batches(BATCH_DOCUMENTS, DOCUMENT_PASSES, rates, scales),
        stochastic.MovingCounts(moved, totals, left),
        local,
        tables,
    )
    moved *= np.float32(left[0])
    # Counts of the seed sweeps are gains too: the block has none of them yet.
    moved -= np.float32(left[0]) * np.asarray(rows.dense_counts, dtype=np.float32)
    gain = totals - left[0] * global_state.topic_moments[0]
    eta = np.zeros(2)
    words.log_eta(shard.weighted_lengths, np.array([parameters.concentration]), eta)
    parts: dict[str, Part] = {"word_gain": fresh(moved, "word", "topic"), "topic_gain": fresh(gain, "topic")}
    numbers = {"decay": left[0], "shards": 1.0, "batches": float(lengths.size), "log_eta": eta[0]}
    numbers.update(documents=float(shard.documents), tokens=float(shard.tokens))
    parts.update({name: fresh(value) for name, value in numbers.items()})
    if parameters.tables:
        parts["tables"] = fresh(tables, "topic")
    return Delta(parts, {"word": shard.words}, {"kernel": time.perf_counter() - began})


def _seed(shard: Shard, topics: int, stream: Stream, parameters: Parameters) -> npt.NDArray[np.float32]:
    """Return expected counts of the shard's words from sweeps over a sample of its documents."""
    every = max(shard.documents // (SEED_DOCUMENTS * topics), 1)
    lengths = np.diff(shard.offsets) * (np.arange(shard.documents) % every == 0)
    keep = np.repeat(lengths > 0, np.diff(shard.offsets))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    weights = None if shard.weights is None else shard.weights[keep]
    position, counts = shard.position[keep], shard.counts[keep]
    sample = replace(
        shard, offsets=offsets, position=position, counts=counts, labels=None, segments=None, weights=weights
    )
    word_active, block_active = (np.zeros((shard.words.size, topics), dtype=np.float32) for _ in range(2))
    block = CollapsedRows(word_active=word_active, block_active=block_active, word_rest=np.zeros(shard.words.size))
    settings = ActiveSettings(
        max_topics=0,
        inverse_temperature=1.0,
        annealed=True,
        momentum=0.0,
        totals=np.zeros(topics),
        even=parameters.total / max(shard.words.size, 1),
        weight=np.ones(topics),
        following=np.ones(topics),
    )
    now = replace(parameters, active=settings, tables=False, moments=False)
    local: AnyActiveLocal
    local, delta = active_responsibilities.start(
        sample, topics, stream.at(purpose="seed"), moments=False, max_topics=0, every=1
    )
    for sweep in range(SEED_SWEEPS):
        ids = Delta(delta.parts, {"word": np.arange(shard.words.size)})
        block, parts = fold_active(block, ids, now)
        following = now.topics / (now.total + parts["topic_total"].values)
        settings = replace(
            settings,
            totals=parts["topic_ahead"].values,
            weight=settings.following,
            following=following,
            momentum=SEED_MOMENTUM if sweep else 0.0,
        )
        now = replace(now, active=settings)
        local, delta = active_responsibilities.sweep(sample, local, block, now)
    block, _ = fold_active(block, Delta(delta.parts, {"word": np.arange(shard.words.size)}), now)
    expected = expected_counts(block, settings.following, settings.even).astype(np.float64)
    tokens = float(shard.weighted_lengths.sum()) / max(float(sample.weighted_lengths.sum()), 1e-300)
    return np.maximum(expected * tokens, 0.0).astype(np.float32)


def blend(block: CollapsedRows, delta: Delta) -> tuple[CollapsedRows, Delta]:
    """Return a block of the vocabulary after the mean of a minibatch's steps."""
    gain, shards = delta.read(WordGain), max(delta.number("shards"), 1.0)
    before = block.dense_counts
    after = buffers.empty(before.shape, np.float32)
    np.multiply(before, np.float32(delta.number("decay") / shards), out=after)
    if gain is not None:
        after[delta.ids["word"]] += gain.word_gain / np.float32(shards)
    moved = float(np.abs(after - before).sum(dtype=np.float64))
    return replace(block, word_topic=np.maximum(after, np.float32(0.0), out=after)), Delta({"moved": fresh(moved)})
