"""Collapsed variational inference of bag-of-words topics, on the driver."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families import generative as drawing
from collapsium.workers.families.cvb import active_set_trial, cooling, updates
from collapsium.workers.families.cvb.active import INITIAL_TOPICS
from collapsium.workers.families.cvb.active_topics import CHUNK_RESPONSIBILITIES, begins_complete, max_active_for
from collapsium.workers.families.cvb.global_state import ActiveSetTrial, CollapsedGlobalState, CoolingState, HeldTokens
from collapsium.workers.families.cvb.options import CollapsedOptions
from collapsium.workers.families.cvb.states import CollapsedRows
from collapsium.workers.families.cvb.sums import WordSums
from collapsium.workers.families.family import (
    COMPUTED_STARTS,
    FILE_START,
    QUICK_CLUSTERS_START,
    RANDOM_START,
    Footprint,
    Resumable,
    Simulates,
    Stochastic,
    Summary,
    weighed_footprint,
)
from collapsium.workers.kernels.cvb import words

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

Vector = npt.NDArray[np.float64]


START_DOCUMENTS = 10  # Documents for each topic that have topics at the start, at least
MAX_START_EVERY = 8  # One document in so many has topics at the start, at least
MIN_PARAMETER = 1e-8  # Smallest Dirichlet parameter that learning may reach


OptionsT = TypeVar("OptionsT", bound=CollapsedOptions)
GlobalStateT = TypeVar("GlobalStateT", bound=CollapsedGlobalState)


class CollapsedFamily(
    Resumable[OptionsT, GlobalStateT, CollapsedRows],
    Stochastic[OptionsT, GlobalStateT, CollapsedRows],
    Simulates[OptionsT, GlobalStateT, CollapsedRows],
):
    """Family of collapsed topics."""

    schedules = ("batch", "stochastic")
    starts = (FILE_START, *COMPUTED_STARTS)

    def footprint(self, summary: Summary, options: OptionsT) -> Footprint:
        """Return the memory that the state of a fit takes."""
        sizes = footprint(summary, options, moments=options.needs_moments)
        return weighed_footprint(sizes, summary.pairs, options.weights)

    def corpus_tokens(self, global_state: GlobalStateT) -> float:
        """Return the tokens of the whole corpus."""
        return global_state.corpus_tokens

    def is_stochastic(self, global_state: GlobalStateT) -> bool:
        """Return true if a model was fitted by minibatches."""
        return global_state.stochastic

    def word_concentration(self, global_state: GlobalStateT) -> float:
        """Return B."""
        return global_state.beta

    def global_state_for_steps(
        self, global_state: GlobalStateT, summary: Summary, options: OptionsT, minibatches: int
    ) -> GlobalStateT:
        """Return the global state of a fitted model for further steps, with its counts scaled to the new corpus."""
        moments = np.array(global_state.topic_moments)
        scale = summary.tokens / max(float(moments[0].sum()), 1.0)
        moments *= scale
        return replace(
            global_state,
            topic_plain=None if global_state.topic_plain is None else global_state.topic_plain * scale,
            active=options.active and not summary.stochastic,
            rows_ahead=rows_ahead(summary, options),
            stochastic=summary.stochastic,
            start_every=start_every(summary, options),
            corpus_tokens=float(summary.tokens),
            minibatches=0.0,
            topic_ahead=np.zeros(options.topics),
            spread_weight=np.ones(options.topics),
            topic_moments=moments,
            steps=float(minibatches),
        )

    def usual_start(self, options: OptionsT) -> str:
        """Return quick clusters, unless topics have words of their own or responsibilities are dense."""
        return QUICK_CLUSTERS_START if options.active and not options.seeds else RANDOM_START

    def keeps_start(self, options: OptionsT) -> bool:
        """Return true of active responsibilities, whose documents' counts change by differences alone."""
        return options.active

    def can_grow(self, options: OptionsT) -> bool:
        """Return true of active responsibilities: documents that join have no active topics at first."""
        return options.active

    def can_carry(self, global_state: GlobalStateT, options: OptionsT, before: OptionsT) -> bool:
        """Return true if a fit can go on from another run, as its responsibilities are of the same kind."""
        return options.topics == before.topics and options.active == before.active and not global_state.stochastic

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


class InitialCounts(TypedDict):
    """Fields of a global state that all families of collapsed topics initialise alike."""

    vocabulary: float
    active: bool
    rows_ahead: bool
    stochastic: bool
    moments: bool
    start_every: int
    corpus_tokens: float
    topic_moments: Vector
    topic_log_absent: Vector
    topic_ahead: Vector
    spread_weight: Vector
    topic_plain: Vector | None
    first_weights: npt.NDArray[np.float32] | None
    first_means: npt.NDArray[np.float32] | None
    held: HeldTokens | None
    cooling: CoolingState | None
    trial: ActiveSetTrial | None


def initial_counts(summary: Summary, options: CollapsedOptions, stream: Stream) -> InitialCounts:
    """Return the fields of the global state that describe counts, before any document was swept."""
    search = cooling.initial_state(summary) if options.active and options.inverse_temperature is None else None
    weights = summary.weights
    return {
        "vocabulary": float(summary.words),
        "active": options.active and not summary.stochastic,
        "rows_ahead": rows_ahead(summary, options),
        "stochastic": summary.stochastic,
        "moments": options.needs_moments,
        "start_every": start_every(summary, options),
        "corpus_tokens": float(summary.tokens),
        "topic_moments": np.zeros((2, options.topics)),
        "topic_log_absent": np.zeros(options.topics),
        "topic_ahead": np.zeros(options.topics),
        "spread_weight": np.ones(options.topics),
        "topic_plain": None if weights is None else np.zeros(options.topics),
        "first_weights": None if weights is None else weights.weights,
        "first_means": None if weights is None else weights.means,
        "held": cooling.held_tokens(summary, stream.seed) if search and search.cooling_step else None,
        "cooling": search,
        "trial": active_set_trial.initial_state(summary, options, search),
    }


def rows_ahead(summary: Summary, options: CollapsedOptions) -> bool:
    """Return true if rows are extrapolated ahead of the counts."""
    return options.active and options.momentum > 0 and not summary.stochastic


def start_every(summary: Summary, options: CollapsedOptions) -> int:
    """Return n if one document in n has topics at the start; all have in a sample of the documents."""
    most = 1 if summary.growing else MAX_START_EVERY
    return min(max(summary.documents // (START_DOCUMENTS * options.topics), 1), most)


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


def likelihood_bound(
    global_state: CollapsedGlobalState, delta: Delta, bound_documents: float, words: WordSums | None
) -> float:
    """Return the part of the second-order bound that LDA and the HDP share.

    sum_d log G(A)/G(A+n_d) + sum_dk F[log G(a_k+n_dk)/G(a_k)] + sum_k F[log G(B)/G(B+n_k)]
    + sum_kw F[log G(b_w+n_kw)/G(b_w)] - sum c q log q.
    """
    moments, log_absent = updates.moved_moments(global_state, delta), updates.moved_log_absent(global_state, delta)
    _, log_rising = topic_totals(moments, log_absent, global_state.beta)
    return bound_documents + (0.0 if words is None else words.bound_words) - float(log_rising.sum())


def require_schedule(summary: Summary, *, moments: bool) -> None:
    """Raise an error for options that need variances of word counts, which the stochastic schedule does not have."""
    if summary.stochastic and moments:
        raise OptionError("'stochastic' requires `order` 0, and no parameter of the words in `learn`", "schedule")


def footprint(summary: Summary, config: CollapsedOptions, *, moments: bool) -> Footprint:
    """Return the memory of the state: responsibilities take 2 bytes an active topic, or 4 bytes a topic if dense."""
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
    active, counts = _mean_active(summary, config), 4 * config.topics + 8.0
    if summary.stochastic:
        # At the end, the documents are folded in.
        document, chunk = 4.0 * config.topics, 6.0 * CHUNK_RESPONSIBILITIES
        return Footprint(counts, counts, 2 * counts, counts, 0.0, document, chunk, proportions=proportions)
    return Footprint(
        rows=(8 if config.momentum else 4) * config.topics + 8 + moment_bytes,
        shown=counts + moment_bytes,
        swept=counts + 8 + moment_bytes,
        delta=counts + moment_bytes,
        pair=2.0 * active,
        document=10.0 * active + 24,
        chunk=6.0 * CHUNK_RESPONSIBILITIES,
        first_pair=0.0 if begins_complete(config.topics, config.most_active or 0) else 2.0 * INITIAL_TOPICS,
        # A chunk is cut by the topics before; those that are selected may be several times as many.
        carried=2.0 * CHUNK_RESPONSIBILITIES * max(active / INITIAL_TOPICS, 1.0),
        selected=counts,
        proportions=proportions,
    )


def _mean_active(summary: Summary, config: CollapsedOptions) -> float:
    """Return the largest number of active topics of a document, a mean over the pairs."""
    most = config.most_active or 0
    if summary.lengths is None or not summary.lengths.sum():
        return float(min(max_active_for(summary.pairs / max(summary.documents, 1), config.topics, most), config.topics))
    largest_active = np.minimum(max_active_for(summary.lengths, config.topics, most), config.topics)
    return float((summary.lengths * largest_active).sum() / summary.lengths.sum())
