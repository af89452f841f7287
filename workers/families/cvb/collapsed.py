"""Collapsed variational inference of bag-of-words topics: the base class of its families.

The HDP assigns topics as LDA does, with other Dirichlet parameters. The families differ in the `Parameters`
that they compute from their global state.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import AnyArray
from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.delta import Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays, present
from collapsium.workers.families.cvb import active, dense, schedule, split_merge, updates
from collapsium.workers.families.cvb.active import INITIAL_TOPICS
from collapsium.workers.families.cvb.active_topics import CHUNK_RESPONSIBILITIES, begins_complete, max_active_for
from collapsium.workers.families.cvb.global_state import (
    CollapsedGlobalState,
    HeldTokens,
    MovesState,
    RoundSums,
    RowChanges,
    SweepSums,
    Vector,
    WordSums,
)
from collapsium.workers.families.cvb.options import CollapsedOptions
from collapsium.workers.families.cvb.parameters import (
    DesignPriors,
    Parameters,
    counted_in,
    counts_of,
    fold_active,
    fold_steps,
    plain_rows,
    word_probability,
)
from collapsium.workers.families.cvb.states import (
    ActiveDocuments,
    ActiveLocal,
    CollapsedDocuments,
    CollapsedRows,
    DenseDocuments,
    DenseLocal,
    SpilledLocal,
    in_tokens,
    local_of,
)
from collapsium.workers.families.dirichlet import FOLD_IN_KERNELS, dirichlet_topics, fold_in_counts
from collapsium.workers.families.document_entries import document_pairs, normalised, plain_sums, weighed
from collapsium.workers.families.family import Footprint, IntegratesProportions, Resumable, Summary, weighed_footprint
from collapsium.workers.kernels import prediction
from collapsium.workers.kernels.cvb import active as active_kernels
from collapsium.workers.kernels.cvb import dense as dense_kernels
from collapsium.workers.kernels.cvb import stochastic as stochastic_kernels
from collapsium.workers.kernels.cvb import topic_moves, words
from collapsium.workers.kernels.cvb.records import WordMoments
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.kernels.prediction import DirichletTopics

if TYPE_CHECKING:
    from collapsium.storage.corpus.labels import DocumentRows
    from collapsium.storage.corpus.shard import Shard


OptionsT = TypeVar("OptionsT", bound=CollapsedOptions)
GlobalStateT = TypeVar("GlobalStateT", bound=CollapsedGlobalState)
Local: TypeAlias = DenseDocuments | ActiveLocal | SpilledLocal

START_DOCUMENTS = 10  # Documents for each topic that have topics at the start, at least
MAX_START_EVERY = 8  # At the start, at least one in this number of documents has topics
MIN_PARAMETER = 1e-8  # Smallest Dirichlet parameter that learning may reach
# Encoded bytes of counts in whole steps of a responsibility, as a share of their bytes: a machine's changes, and the
# sums of all machines. Means of iterations 4 to 12 of a fit on eight hosts, measured on the page "Scale"
CHANGE_SHARE, SUM_SHARE = 0.11, 0.21
# Rows without words, for the parameters of topics alone
NO_ROWS = CollapsedRows(word_topic=np.zeros((0, 0)), word_tables=np.zeros(0))


class CollapsedFamily(
    Resumable[OptionsT, GlobalStateT, CollapsedRows, Local],
    IntegratesProportions[OptionsT, GlobalStateT, CollapsedRows, Local],
):
    """Family of collapsed topics."""

    rows_type, local_type, documents_type = CollapsedRows, CollapsedDocuments, CollapsedDocuments

    def footprint(self, summary: Summary) -> Footprint:
        """Return the memory that the state of a fit takes."""
        sizes = footprint(summary, self.options, moments=self.options.needs_moments)
        return weighed_footprint(sizes, summary.pairs, self.options.weights)

    def word_concentration(self, global_state: GlobalStateT) -> float:
        """Return B."""
        return global_state.beta

    @abstractmethod
    def update_parameters(self, rows: CollapsedRows, global_state: GlobalStateT) -> Parameters:
        """Return the Dirichlet parameters of the updates, for the words of the rows."""

    def predictive_parameters(self, rows: CollapsedRows, global_state: GlobalStateT) -> Parameters:
        """Return the Dirichlet parameters of prediction, for the words of the rows."""
        return self.update_parameters(rows, global_state)

    def objective(self, global_state: GlobalStateT, delta: Delta) -> dict[str, float]:
        """Return the second-order bound, in nats; the zeroth order has none.

        sum_d log G(A)/G(A+n_d) + sum_dk F[log G(a_k+n_dk)/G(a_k)] + sum_k F[log G(B)/G(B+n_k)]
        + sum_kw F[log G(b_w+n_kw)/G(b_w)] - sum c q log q.
        """
        sums, of_words = delta.read(SweepSums), delta.read(WordSums)
        if sums is None or sums.bound_documents is None:
            return {}
        moments, log_absent = updates.moved_moments(global_state, delta), updates.moved_log_absent(global_state, delta)
        _, log_rising = topic_totals(moments, log_absent, global_state.beta)
        bound = sums.bound_documents + (0.0 if of_words is None else of_words.bound_words) - float(log_rising.sum())
        return {"objective": bound}

    def weighed(self, shard: Shard, rows: CollapsedRows) -> Shard:
        """Return a shard with the weights of its words, if they have any."""
        return weighed(shard, rows.word_weight, log_counts=self.options.log_counts)

    def design_priors(
        self, design: DocumentRows | None, global_state: GlobalStateT, parameters: Parameters
    ) -> DesignPriors | None:
        """Return the priors of documents, where these follow a design; documents without rows have the mean prior."""
        return None

    def moves(self, global_state: GlobalStateT) -> MovesState | None:
        """Return the state of split-merge moves; None without them."""
        return None

    def load_local(self, arrays: Mapping[str, Any]) -> Local:
        """Return the local state that arrays hold; active responsibilities on disk stay there."""
        return local_of(arrays)

    def documents(self, local: Local) -> CollapsedDocuments:
        """Return the part of a local state that a finished model saves."""
        arrays: Mapping[str, Any] = local.to_arrays()
        documents: CollapsedDocuments = CollapsedDocuments.from_arrays(arrays)
        return documents.rounded()

    def kernels(self, global_state: GlobalStateT) -> Sequence[AnyKernel]:
        """Return the kernels that a fit calls in every iteration."""
        kernels: list[AnyKernel] = [words.log_eta]
        row_kernels = active.ROW_KERNELS[global_state.count_bits]
        if global_state.stochastic:
            return [*kernels, stochastic_kernels.sweep_stochastic, prediction.fold_in, *active.KERNELS, *row_kernels]
        kernels += [words.word_tables, words.topic_totals] if global_state.moments else []
        if global_state.active:
            if self.moves(global_state) is not None:
                kernels += split_merge.KERNELS
            elif global_state.held is not None:
                kernels += split_merge.HOLDING_KERNELS
            kernels += [*active.KERNELS, active_kernels.sweep_active, *row_kernels]
            kernels += [words.active_tables] if self.options.needs_tables else []
            return [*kernels, *([words.active_moments] if global_state.moments else [])]
        sweep: AnyKernel = dense_kernels.sweep_second if self.options.order == 2 else dense_kernels.sweep_zeroth
        kernels += [sweep, words.add_counts, prediction.pair_probability]
        return [*kernels, *([words.add_log_absent] if global_state.moments else [])]

    def fold_in_kernels(self, global_state: GlobalStateT) -> Sequence[AnyKernel]:
        """Return the kernels that folding in and predicting call."""
        return FOLD_IN_KERNELS

    def initial_rows(self, words: int, global_state: GlobalStateT) -> CollapsedRows:
        """Return the rows of words before the first document is counted."""
        shape = words, self.options.topics
        rows = CollapsedRows()
        if global_state.active:
            rows = CollapsedRows(word_active=np.zeros(shape, dtype=np.float32), word_rest=np.zeros(words))
            if global_state.count_bits:
                rows = replace(rows, block_active=np.zeros(shape, dtype=f"i{global_state.count_bits // 8}"))
            elif global_state.rows_ahead:
                rows = replace(rows, block_active=np.zeros(shape, dtype=np.float32))
        else:
            rows = CollapsedRows(word_topic=np.zeros(shape))
        if not global_state.moments:
            return rows
        variance, log_absent = np.zeros(shape), np.zeros(shape)
        return replace(
            rows, word_topic_variance=variance, word_topic_log_absent=log_absent, word_tables=np.zeros(words)
        )

    def start(
        self, shard: Shard, rows: CollapsedRows, global_state: GlobalStateT, stream: Stream, warm: Arrays | None = None
    ) -> tuple[Local, Delta]:
        """Return a shard's first local state, drawn at random or from another run, and its counts."""
        topics, moments, shard = self.options.topics, global_state.moments, self.weighed(shard, rows)
        shard = split_merge.counted_part(shard, split_merge.held_copies(shard, global_state.held))
        local: DenseLocal | ActiveLocal
        if warm is not None:
            local, delta = active.start_from(shard, self.update_parameters(rows, global_state), warm)
        elif global_state.active:
            max_topics, every = self.options.most_active or 0, global_state.start_every
            local, delta = active.start(shard, topics, stream, moments, max_topics, every)
        else:
            local, delta = dense.start(shard, topics, stream, moments=moments)
        return local.with_design(shard.design), counted_in(global_state.count_bits, delta)

    def continue_from(
        self, shard: Shard, saved: Arrays, rows: CollapsedRows, global_state: GlobalStateT
    ) -> tuple[Local, Delta]:
        """Return the local state that another run saved of the shard, and its counts."""
        shard, moments = self.weighed(shard, rows), global_state.moments
        local: Local
        if global_state.active:
            local, delta = active.continue_from(shard, saved, self.options.topics, moments=moments)
        else:
            local, delta = dense.initial_state(shard, DenseLocal.from_arrays(saved).pair_topic, moments=moments)
        return local.with_design(shard.design), counted_in(global_state.count_bits, delta)

    def sweep(
        self,
        shard: Shard,
        local: Local,
        rows: CollapsedRows,
        global_state: GlobalStateT,
        stream: Stream,
        joining: Shard | None = None,
    ) -> tuple[Local, Delta]:
        """Return the result of a sweep over a shard by the zeroth- or second-order update; see `Growing.join`."""
        began, parameters = time.perf_counter(), self.update_parameters(rows, global_state)
        parameters = replace(parameters, design_priors=self.design_priors(local.design, global_state, parameters))
        shard, tables, bound = self.weighed(shard, rows), None, np.zeros(2)
        if isinstance(local, DenseLocal):
            new: Local
            new, parts, tables, bound = dense.sweep(shard, local, rows, global_state.topic_moments, parameters)
        elif isinstance(local, DenseDocuments):
            raise ValueError("expected responsibilities; documents that were folded in have none")
        else:
            held, state = global_state.held, self.moves(global_state)
            moving = split_merge.moving(shard, held, state, self.options.topics)
            copies = split_merge.held_copies(shard, held)
            sums = split_merge.statistics(copies, global_state, state)
            if joining is not None:
                if rows.word_weight is not None:
                    # The rows are the shard's.
                    weights = rows.word_weight[np.searchsorted(shard.words, joining.words)]
                    joining = weighed(joining, weights, log_counts=self.options.log_counts)
                joining = split_merge.counted_part(joining, split_merge.held_copies(joining, held))
            shard = split_merge.counted_part(shard, copies)
            new, delta = active.sweep(shard, local, rows, parameters, moving, sums, joining)
            parts = dict(delta.parts)
            if copies is not None:
                parts["held_out"] = fresh(float(copies.sum()))
        # Where a start stays in the prior, its pseudo-counts have tables, as tokens have.
        pseudo, eta, lengths = new.pseudo_counts(), np.zeros(2), shard.weighted_lengths
        words.log_eta(lengths if pseudo is None else lengths + pseudo, parameters.totals, eta)
        parts.update(documents=fresh(float(shard.documents)), tokens=fresh(float(shard.tokens)))
        if parameters.tables or parameters.order == 2:
            parts["log_eta"] = fresh(eta[0])
            if tables is not None:
                parts["tables"] = fresh(tables, "topic")
        if parameters.order == 2:
            parts["bound_documents"] = fresh(eta[1] + bound.sum())
        return new, Delta(parts, {"word": shard.words}, {"kernel": time.perf_counter() - began})

    def advance(
        self, rows: CollapsedRows, delta: Delta, global_state: GlobalStateT
    ) -> tuple[CollapsedRows, GlobalStateT]:
        """Return the rows and the global state for another sweep of a shard before its delta is reduced."""
        before = rows.to_arrays()
        changes = delta.read(RowChanges) or RowChanges()
        if changes.word_active is not None:
            changes = replace(changes, word_active=in_tokens(changes.word_active))
        moved = {name: before[name] + values for name, values in changes.to_arrays().items()}
        counts = changes.word_topic if changes.word_active is None else changes.word_active
        counted = np.asarray(0.0 if counts is None else counts.sum(axis=0, dtype=np.float64))
        # The background is spread nearly in proportion to the counts.
        if changes.word_rest is not None:
            ahead = global_state.topic_ahead
            counted = counted + changes.word_rest.sum() * ahead / max(ahead.sum(), 1e-300)
        return CollapsedRows.from_arrays({**before, **moved}), global_state.after_shard(counted, counted)

    def fold(
        self, block: CollapsedRows, delta: Delta, global_state: GlobalStateT, bands: slice | None = None
    ) -> tuple[CollapsedRows, Delta]:
        """Return a block of the vocabulary after the changes of its rows, and sums over some bands of it or all.

        Where moments are summed, these are `WordSums` and, where active, totals of the moments.
        """
        parameters = self.update_parameters(block, global_state)
        ids: Mapping[str, AnyArray] = {}
        if parameters.active is not None:
            if global_state.count_bits:
                after, folded = fold_steps(block, delta, parameters, bands)
                parts, ids = dict(folded.parts), folded.ids
            else:
                after, parts = fold_active(block, delta, parameters)
            state = self.moves(global_state)
            # Sums over the complete block go with its first band.
            is_first = bands is None or bands.start == 0 < bands.stop
            if is_first and state is not None and state.ask == RoundSums.PROPOSALS:
                # Sums over the words by which topics are compared.
                products = np.zeros((self.options.topics, self.options.topics))
                topic_moves.gram(counts_of(after, parameters, folded=True), split_merge.MIN_CELL_TOKENS, products)
                parts["topic_products"] = fresh(products)
        else:
            after, parts = dense.fold(block, delta)
        if parameters.moments:
            mean, spread = np.asarray(after.word_topic, dtype=np.float64), np.zeros(())
            if parameters.active is not None:
                mean = counts_of(after, parameters, folded=True).astype(np.float64)
                spread = mean - after.active_counts
            variance = present(after.word_topic_variance) + spread
            log_absent = present(after.word_topic_log_absent) - spread
            tables, bound = np.empty(parameters.words.size), np.zeros(1)
            words.word_tables(WordMoments(mean, variance, log_absent), parameters.words, tables, bound)
            parts.update(tables_of_words=fresh(tables.sum()), bound_words=fresh(bound[0]))
            if parameters.active is not None:
                parts["topic_variance_total"] = fresh(variance.sum(axis=0), "topic")
                parts["topic_log_absent_total"] = fresh(log_absent.sum(axis=0), "topic")
            after = replace(after, word_tables=tables)
        if after.word_mean is not None:
            parts.update(plain_sums(counts_of(after, parameters, folded=True), after.word_mean))
        return after, Delta(parts, ids)

    def finished_rows(self, block: CollapsedRows, global_state: GlobalStateT) -> CollapsedRows:
        """Return the rows that a finished model saves: E[n_kw]."""
        parameters = self.update_parameters(block, global_state)
        if parameters.active is None:
            return block
        settings, counts = parameters.active, counts_of(block, parameters)
        expected: Vector | npt.NDArray[np.float32] = counts
        if parameters.seeds is not None:
            # In double precision, as pseudo-counts were apart.
            (place, seeds), expected = parameters.seeds, counts.astype(np.float64)
            seeded = np.flatnonzero(place >= 0)
            counted = block.active_counts[seeded] + seeds[place[seeded]]
            share = settings.weight * (settings.even + counted)
            expected[seeded] = counted + (block.background[seeded] / share.sum(axis=1))[:, np.newaxis] * share
        return CollapsedRows(
            word_topic=expected,
            word_tables=block.word_tables,
            word_pseudo=block.word_pseudo,
            word_number=None if global_state.seeds_apart else block.word_number,
            word_weight=block.word_weight,
            word_mean=block.word_mean,
        )

    def fold_in(self, shard: Shard, rows: CollapsedRows, global_state: GlobalStateT, stream: Stream) -> Local:
        """Fit the counts of unseen documents under fixed topics."""
        parameters, shard = self.predictive_parameters(rows, global_state), self.weighed(shard, rows)
        document_priors = self.design_priors(shard.design, global_state, parameters)
        phi = word_probability(rows, global_state, parameters)
        priors = (parameters.topics,) if document_priors is None else (document_priors.priors, document_priors.place)
        return DenseDocuments(fold_in_counts(shard, phi, *priors)).with_design(shard.design)

    def predict(self, heldout: Shard, local: Local, rows: CollapsedRows, global_state: GlobalStateT) -> Arrays:
        """Return the probability of each held-out pair, sum_k theta_dk phi_kw + theta_rest tau_w."""
        # The mass beyond the truncation, theta_rest = (A - sum_k a_k) / (A + n_d), predicts with b_w / B, so that
        # probabilities sum to one.
        parameters, documents = self.predictive_parameters(rows, global_state), local.loaded()
        parameters = replace(parameters, design_priors=self.design_priors(documents.design, global_state, parameters))
        rows, ratio = plain_rows(rows, parameters), global_state.plain_ratio
        plain = None if ratio is None else documents.mean(parameters.of_documents, parameters.rest, ratio)
        if isinstance(documents, ActiveDocuments) and parameters.design_priors is None:
            counts, totals = counts_of(rows, parameters), global_state.topic_moments
            probability = active.probability(heldout, documents, counts, totals, parameters)
            return {"probability": normalised(probability, heldout, plain)}
        theta = _proportions(documents, parameters)
        rest, probability = np.maximum(1.0 - theta.sum(axis=1), 0.0), np.empty(heldout.pairs)
        if parameters.design_priors is not None and not parameters.design_priors.rest:
            rest[:] = 0.0
        pairs, phi = document_pairs(heldout), word_probability(rows, global_state, parameters)
        rest_word = parameters.words / parameters.total
        prediction.pair_probability(pairs.offsets, pairs.position, theta, phi, rest, rest_word, probability)
        return {"probability": normalised(probability, heldout, plain)}

    def probabilities(self, rows: CollapsedRows, global_state: GlobalStateT) -> Arrays:
        """Return phi_kw of the words of the rows, as used in prediction."""
        return {"word_topic": word_probability(rows, global_state, self.predictive_parameters(rows, global_state))}

    def dirichlet_topics(self, rows: CollapsedRows, global_state: GlobalStateT) -> DirichletTopics:
        """Return phi_kw and a_k."""
        parameters = self.predictive_parameters(rows, global_state)
        rest_word, ratio = parameters.words / parameters.total, global_state.plain_ratio
        phi = word_probability(plain_rows(rows, parameters), global_state, parameters)
        phi = phi if ratio is None else phi / ratio
        return dirichlet_topics(phi, parameters.topics, parameters.concentration, rest_word)

    def infer(self, local: Local, global_state: GlobalStateT) -> Arrays:
        """Return the documents' proportions theta_dk = (a_k + E[n_dk]) / (A + n_d)."""
        parameters, documents = self.predictive_parameters(NO_ROWS, global_state), local.loaded()
        parameters = replace(parameters, design_priors=self.design_priors(documents.design, global_state, parameters))
        return {"document_topic": _proportions(documents, parameters)}

    def word_tokens(self, rows: CollapsedRows) -> Vector | None:
        """Return the tokens that a finished model expects of each word."""
        if rows.word_topic is None:
            return None
        tokens: Vector = np.asarray(rows.word_topic, dtype=np.float64).sum(axis=1)
        tokens = tokens if rows.word_pseudo is None else tokens - rows.word_pseudo
        return tokens if rows.word_mean is None else tokens / rows.word_mean

    def document_lengths(self, local: Local) -> Vector:
        """Return the expected tokens of each document."""
        return local.loaded().lengths()


def _proportions(documents: CollapsedDocuments, parameters: Parameters) -> Vector:
    """Return theta_dk = (a_k + E[n_dk]) / (A + n_d), shape (documents, topics)."""
    prior = parameters.of_documents
    tokens = documents.counts(prior)
    theta: Vector = (tokens + prior) / (parameters.totals[:, np.newaxis] + tokens.sum(axis=1, keepdims=True))
    return theta


def initial_counts(
    summary: Summary, options: CollapsedOptions, stream: Stream, *, topics_move: bool = False
) -> dict[str, Any]:
    """Return the fields of the global state that describe counts, before any document was swept."""
    if summary.stochastic and options.needs_moments:
        # The stochastic schedule has no variances of counts.
        raise OptionError("'stochastic' requires `order` 0, and no parameter of the words in `learn`", "schedule")
    search = updates.begin_search(summary) if options.active and options.inverse_temperature is None else None
    weights, held = summary.weights, None
    if topics_move or (search is not None and search.spread):
        share = (schedule.split_merge_share if topics_move else schedule.search_share)(summary.tokens)
        held = HeldTokens(moves_seed=np.array(stream.seed), held_share=share, held_before=share)
    return {
        **corpus_fields(summary, options),
        "vocabulary": float(summary.words),
        "moments": options.needs_moments,
        "topic_moments": np.zeros((2, options.topics)),
        "topic_log_absent": np.zeros(options.topics),
        "topic_plain": None if weights is None else np.zeros(options.topics),
        "first_weights": None if weights is None else weights.weights,
        "first_means": None if weights is None else weights.means,
        "held": held,
        "temperature_search": search,
        "trial": updates.begin_trial(summary, options, search),
    }


def corpus_fields(summary: Summary, options: CollapsedOptions) -> dict[str, Any]:
    """Return the fields of the global state that depend on the corpus and the schedule, before a sweep."""
    # One document in n has topics at the start; in a sample of the documents, all have.
    max_every = 1 if summary.growing else MAX_START_EVERY
    return {
        "active": options.active and not summary.stochastic,
        "rows_ahead": options.active and options.momentum > 0 and not summary.stochastic,
        "stochastic": summary.stochastic,
        "count_bits": count_bits(summary, options),
        "start_every": min(max(summary.documents // (START_DOCUMENTS * options.topics), 1), max_every),
        "corpus_tokens": float(summary.tokens),
        "topic_ahead": np.zeros(options.topics),
        "spread_weight": np.ones(options.topics),
    }


def count_bits(summary: Summary, options: CollapsedOptions) -> int:
    """Return the bits of counts in steps of a responsibility; 0 where they are no whole numbers of these.

    Results do not depend on the number of bits.
    """
    if not options.active or summary.stochastic or options.weights is not None:
        return 0
    return 32 if (summary.most_tokens or summary.tokens) <= np.iinfo(np.int32).max // active_kernels.UNIT else 64


def topic_totals(moments: Vector, log_absent: Vector, total: float) -> tuple[Vector, Vector]:
    """Return E[log xi_k] and F[log G(B + n_k) / G(B)] of each topic, both of shape (topics,)."""
    log_xi, log_rising = np.empty(moments.shape[1]), np.empty(moments.shape[1])
    words.topic_totals(
        np.ascontiguousarray(moments[0]),
        np.ascontiguousarray(moments[1]),
        log_absent,
        np.array([total]),
        log_xi,
        log_rising,
    )
    return log_xi, log_rising


def footprint(summary: Summary, config: CollapsedOptions, *, moments: bool) -> Footprint:
    """Return the memory of the state: responsibilities take 2 bytes per active topic, or 4 bytes per topic if dense."""
    moment_bytes = 16.0 * config.topics if moments else 0.0
    proportions = 8.0 * config.topics
    if not config.active:
        pair = document = 4.0 * config.topics
        return Footprint(
            rows=8 * config.topics + moment_bytes,
            shown=8 * config.topics + moment_bytes,
            swept=4 * config.topics + 2 * moment_bytes,
            delta=8 * config.topics + moment_bytes,
            pair=pair,
            document=document,
            chunk=2 * (pair * summary.pairs + document * summary.documents),
            proportions=proportions,
        )
    lengths = summary.lengths
    if lengths is None or not lengths.sum():
        lengths = np.array([summary.pairs / max(summary.documents, 1)])
    complete = begins_complete(lengths, config.topics, config.most_active or 0)
    active, counts = _mean_active(lengths, config), 4 * config.topics + 8.0
    in_steps = config.weights is None and not moments
    bits = count_bits(summary, config)
    # Counts and their changes; where they are floats, rows have both only with momentum.
    changed = (bits or 32) // 8 * config.topics + 8.0
    between_sweeps = changed if bits or config.momentum else 0.0
    if summary.stochastic:
        # At the end, the documents are folded in.
        document, chunk = 4.0 * config.topics, 6.0 * CHUNK_RESPONSIBILITIES
        return Footprint(counts, counts, 2 * counts, counts, 0.0, document, chunk, proportions=proportions)
    return Footprint(
        rows=4 * config.topics + max(between_sweeps, 8.0) + moment_bytes,
        shown=counts + moment_bytes,
        swept=counts + 8 + moment_bytes,
        delta=changed + moment_bytes,
        pair=2.0 * active,
        document=10.0 * active + 24,
        chunk=6.0 * CHUNK_RESPONSIBILITIES,
        first_pair=2.0 * (config.topics if complete else INITIAL_TOPICS),
        # A chunk is cut by the topics before; those that are selected may be several times as many.
        carried=2.0 * CHUNK_RESPONSIBILITIES * max(active / INITIAL_TOPICS, 1.0),
        selected=counts,
        proportions=proportions,
        change_share=CHANGE_SHARE if in_steps else None,
        sum_share=SUM_SHARE,
    )


def _mean_active(lengths: npt.NDArray[np.number], config: CollapsedOptions) -> float:
    """Return the largest number of active topics of documents of these lengths, a mean over the pairs."""
    largest = np.minimum(max_active_for(lengths, config.topics, config.most_active or 0), config.topics)
    return float((lengths * largest).sum() / max(lengths.sum(), 1e-300) if lengths.any() else largest.mean())
