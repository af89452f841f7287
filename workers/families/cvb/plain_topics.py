"""The family that LDA and the HDP share: growth, steps on minibatches, edits of topics, and simulation."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import OptionError
from collapsium.workers import special_functions as special
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Delta, Part, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families import description
from collapsium.workers.families import generative as drawing
from collapsium.workers.families.cvb import active as active_responsibilities
from collapsium.workers.families.cvb import prevalence
from collapsium.workers.families.cvb.collapsed import NO_ROWS, CollapsedFamily, Local, corpus_fields
from collapsium.workers.families.cvb.global_state import CollapsedGlobalState, PlainTopicsGlobalState, Vector, WordGain
from collapsium.workers.families.cvb.options import PlainTopicsOptions
from collapsium.workers.families.cvb.parameters import (
    ActiveSettings,
    DesignPriors,
    Parameters,
    expected_counts,
    fold_active,
)
from collapsium.workers.families.cvb.states import AnyActiveLocal, CollapsedRows
from collapsium.workers.families.document_entries import DocumentEntries, document_pairs, plain_sums, weighed_rows
from collapsium.workers.families.family import (
    COMPUTED_STARTS,
    FILE_START,
    QUICK_CLUSTERS_START,
    RANDOM_START,
    Description,
    Editable,
    Exchanges,
    Growing,
    IntegerChange,
    Simulates,
    Stochastic,
    Summary,
)
from collapsium.workers.kernels.cvb import stochastic, words
from collapsium.workers.kernels.cvb.active import UNIT

if TYPE_CHECKING:
    from collapsium.storage.corpus.labels import DocumentRows
    from collapsium.storage.corpus.shard import Documents, Shard
    from collapsium.workers.kernels.jit import AnyKernel


BATCH_DOCUMENTS = 32  # Documents of a batch
DOCUMENT_PASSES = 4  # Passes over each document
DECAY_POWER = 0.9  # The step of batch t, 0 for the first, is (1 + t)^-DECAY_POWER
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


OptionsT = TypeVar("OptionsT", bound=PlainTopicsOptions)
GlobalStateT = TypeVar("GlobalStateT", bound=PlainTopicsGlobalState)


class PlainTopicsFamily(
    CollapsedFamily[OptionsT, GlobalStateT],
    Growing[OptionsT, GlobalStateT, CollapsedRows, Local],
    Exchanges[OptionsT, GlobalStateT, CollapsedRows, Local],
    Stochastic[OptionsT, GlobalStateT, CollapsedRows, Local],
    Editable[OptionsT, GlobalStateT, CollapsedRows, Local],
    Simulates[OptionsT, GlobalStateT, CollapsedRows, Local],
):
    """Family of collapsed topics whose words have the same prior in all topics, except for seeds."""

    schedules = ("batch", "stochastic")
    starts = (FILE_START, *COMPUTED_STARTS)

    def with_prevalence(self, global_state: GlobalStateT, summary: Summary, alpha: Vector | None) -> GlobalStateT:
        """Return the first global state with coefficients of the design; `alpha` is as for `prevalence.begin`."""
        if self.options.prevalence is None:
            return global_state
        if summary.design is None:
            raise OptionError("needs a corpus whose documents have the fields", "prevalence")
        begun = prevalence.begin(summary.design, self.options.topics, alpha, summary.iterations)
        return replace(global_state, prevalence=begun)

    def follows_design(self, global_state: GlobalStateT) -> bool:
        """Return true if the documents' priors follow a design in the next sweep."""
        return global_state.prevalence is not None

    def design_priors(
        self, design: DocumentRows | None, global_state: GlobalStateT, parameters: Parameters
    ) -> DesignPriors | None:
        """Return the priors of documents, where these follow a design; documents without rows have the mean prior."""
        state = global_state.prevalence
        if state is None or design is None or not self.follows_design(global_state):
            return None
        return prevalence.design_priors(design, state, parameters)

    def design(self, global_state: GlobalStateT) -> npt.NDArray[np.uint8] | None:
        """Return the packed design that the documents' priors follow."""
        return None if global_state.prevalence is None else global_state.prevalence.prevalence_design

    def design_coefficients(self, global_state: GlobalStateT) -> Vector | None:
        """Return the coefficients and the effects of levels, (columns + levels, topics); None without a design."""
        state = global_state.prevalence
        if state is None or state.levels is None:
            return None if state is None else state.prevalence_coefficients
        return np.concatenate([state.prevalence_coefficients, state.levels.level_effects])

    def kernels(self, global_state: GlobalStateT) -> Sequence[AnyKernel]:
        """Return the kernels that a fit calls in every iteration."""
        return [*super().kernels(global_state), *(prevalence.KERNELS if global_state.prevalence is not None else ())]

    def corpus_tokens(self, global_state: GlobalStateT) -> float:
        """Return the tokens of the whole corpus."""
        return global_state.corpus_tokens

    def is_stochastic(self, global_state: GlobalStateT) -> bool:
        """Return true if a model was fitted by minibatches."""
        return global_state.stochastic

    def global_state_for_steps(self, global_state: GlobalStateT, summary: Summary, minibatches: int) -> GlobalStateT:
        """Return the global state of a fitted model for further steps, with its counts scaled to the new corpus."""
        moments = np.array(global_state.topic_moments)
        scale = summary.tokens / max(float(moments[0].sum()), 1.0)
        moments *= scale
        return replace(
            global_state,
            topic_plain=None if global_state.topic_plain is None else global_state.topic_plain * scale,
            **corpus_fields(summary, self.options),
            minibatches=0.0,
            topic_moments=moments,
            steps=float(minibatches),
        )

    def usual_start(self) -> str:
        """Return quick clusters, unless topics have seeds or responsibilities are dense."""
        return QUICK_CLUSTERS_START if self.options.active and not self.options.seeds else RANDOM_START

    def keeps_start(self) -> bool:
        """Return true of active responsibilities, whose documents' counts change by differences alone."""
        return self.options.active

    def can_grow(self) -> bool:
        """Return true of active responsibilities: documents that join have no active topics at first."""
        return self.options.active

    def integer_changes(self, global_state: GlobalStateT) -> Mapping[str, IntegerChange] | None:
        """Return the changes of counts and of background tokens; None where moments or weights are summed."""
        bits = global_state.count_bits
        if not bits or global_state.moments:
            return None
        return {
            "word_active": IntegerChange(("word", "topic"), (self.options.topics,), f"i{bits // 8}"),
            "word_rest": IntegerChange(("word",), (), "i8", UNIT),
        }

    def can_carry(self, global_state: GlobalStateT, before: OptionsT) -> bool:
        """Return true if a fit can continue from another run, because its responsibilities are of the same kind."""
        return (
            self.options.topics == before.topics
            and self.options.active == before.active
            and not global_state.stochastic
        )

    def uncounted_tokens(self, global_state: GlobalStateT) -> float:
        """Return the number of tokens that are held out of the counts, which have no topic yet."""
        return 0.0 if global_state.held is None else global_state.held.held_tokens

    @abstractmethod
    def simulated_prior(self, global_state: GlobalStateT) -> Vector:
        """Return the Dirichlet parameters of simulated documents."""

    def simulate(
        self, topics: Arrays, global_state: GlobalStateT, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents, Vector]:
        """Draw documents and their proportions from the Dirichlet prior."""
        prior = self.simulated_prior(global_state)
        return drawing.draw_documents(topics, int(global_state.vocabulary), prior, documents, tokens, stream)

    def join(
        self,
        shard: Shard,
        local: Local,
        joining: Shard,
        rows: CollapsedRows,
        global_state: GlobalStateT,
        stream: Stream,
    ) -> tuple[Local, Delta]:
        """Return the result of a sweep over active responsibilities, before which documents join."""
        return self.sweep(shard, local, rows, global_state, stream, joining)

    def first_rows(self, low: int, high: int, global_state: GlobalStateT) -> CollapsedRows:
        """Return the rows of the words `low` to `high` - 1 before the first document, with pseudo-counts of seeds."""
        rows = weighed_rows(self.initial_rows(high - low, global_state), low, high, global_state)
        words, topics, counts = global_state.seed_words, global_state.seed_topics, global_state.seed_counts
        if words is None or topics is None or counts is None:
            return rows
        inside = (words >= low) & (words < high)
        place, values = (words[inside] - low, topics[inside]), counts[inside]
        changed: dict[str, Any] = {"word_pseudo": np.bincount(place[0], weights=values, minlength=high - low)}
        if global_state.seeds_apart:
            return replace(rows, word_number=np.arange(low, high), **changed)
        for name in ("word_topic", "word_active", "block_active"):
            before = getattr(rows, name)
            if before is not None:
                after = np.array(before)
                np.add.at(after, place, values.astype(after.dtype))
                changed[name] = after
        return replace(rows, **changed)

    def describe(self, block: CollapsedRows, global_state: GlobalStateT, count: int) -> Description:
        """Describe the topics, the largest first."""
        words, totals = self.predictive_parameters(block, global_state).words, global_state.topic_moments[0]
        return description.describe(block.dense_counts, words, global_state.beta, totals, count, global_state.tokens)

    def step(self, shard: Shard, rows: CollapsedRows, global_state: GlobalStateT, stream: Stream) -> Delta:
        """Return the stochastic step of a shard."""
        parameters = self.update_parameters(rows, global_state)
        return step(self.weighed(shard, rows), rows, global_state, stream, parameters)

    def blend(self, block: CollapsedRows, delta: Delta, global_state: GlobalStateT) -> tuple[CollapsedRows, Delta]:
        """Return a block after a minibatch's stochastic steps."""
        after, folded = blend(block, delta)
        if after.word_mean is None:
            return after, folded
        return after, folded + Delta(plain_sums(after.dense_counts, after.word_mean))

    def rows_for_steps(self, rows: CollapsedRows, factor: float) -> CollapsedRows:
        """Return the rows of a model that was fitted in batches, scaled to the corpus from which minibatches come."""
        counts = (rows.dense_counts * factor).astype(np.float32)
        return CollapsedRows(word_topic=counts, word_weight=rows.word_weight, word_mean=rows.word_mean)

    def uneditable(self, global_state: GlobalStateT) -> str | None:
        """Return the reason for which the topics of a model cannot be edited; None if they can."""
        if global_state.prevalence is not None:
            return "coefficients of `prevalence` do not add up"
        if global_state.seed_topics is not None:
            return "the word priors of seeded topics do not move with them"
        if global_state.moments:
            return "variances of counts, for `order` 2 or learned parameters of words, do not add up"
        if global_state.stochastic:
            return "models of the stochastic schedule are edited after a fit in batches that begins from them"
        return None

    def topic_prior(self, global_state: GlobalStateT) -> Vector:
        """Return a_k in prediction."""
        return self.predictive_parameters(NO_ROWS, global_state).topics

    def row_counts(self, rows: CollapsedRows) -> npt.NDArray[np.floating]:
        """Return E[n_kw] of a finished model's rows."""
        return rows.dense_counts

    def with_row_counts(self, rows: CollapsedRows, counts: Vector) -> CollapsedRows:
        """Return a finished model's rows with other counts."""
        return replace(rows, word_topic=counts.astype(rows.dense_counts.dtype))

    def plain_tokens(self, rows: CollapsedRows, counts: Vector) -> Vector | None:
        """Return sum_w n_kw / m_w over the rows' words; None without weights of words."""
        return None if rows.word_mean is None else plain_sums(counts, rows.word_mean)["topic_plain"].values

    def entries(self, local: Local) -> DocumentEntries:
        """Return E[n_dk] of the documents of a finished model."""
        return local.loaded().entries()

    def with_entries(self, local: Local, entries: DocumentEntries, topics: int) -> Local:
        """Return the documents of a finished model with other counts, in the same form."""
        documents: Local = local.loaded().with_entries(entries, topics)
        return documents


def with_known_prevalence(global_state: GlobalStateT, known: PlainTopicsGlobalState) -> GlobalStateT:
    """Return the global state with coefficients as another run has learned them, if its design has the same columns."""
    if global_state.prevalence is None or known.prevalence is None:
        return global_state
    return replace(global_state, prevalence=prevalence.carried(global_state.prevalence, known.prevalence))


def edited_counts(
    global_state: PlainTopicsGlobalState, mixing: Vector, tokens: Vector, plain: Vector | None
) -> dict[str, Any]:
    """Return the fields of the global state that follow from the counts after an edit."""
    tables = global_state.corpus_tables
    return {
        "topic_moments": np.stack([tokens, np.zeros(tokens.size)]),
        "topic_plain": plain,
        "topic_log_absent": np.zeros(tokens.size),
        "topic_ahead": tokens,
        "spread_weight": mixed(mixing, global_state.spread_weight),
        "corpus_tables": None if tables is None else mixed(mixing, tables),
    }


def mixed(mixing: Vector, values: Vector) -> Vector:
    """Return the values of topics after an edit, shape (topics,), by the share of each topic before in each."""
    # Libraries of linear algebra add in an order that depends on the processor.
    sums: Vector = (mixing * values).sum(axis=1)
    return sums
