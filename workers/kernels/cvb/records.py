"""Named tuples of arrays that the kernels of collapsed updates take.

With active topics, a document has sparse responsibilities: each pair has some of each active topic of its document, and
what is left belongs to the document's background, which all other topics share (`active`).
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias

import numpy as np

from collapsium.workers.kernels.jit import (
    Array,
    Filled,
    Float32Matrix,
    Float32Vector,
    Float64Matrix,
    Float64Vector,
    Int32Vector,
    Int64Vector,
    Number,
    OutFloat32Matrix,
    OutFloat32Vector,
    OutFloat64Matrix,
    OutFloat64Vector,
    OutInt32Matrix,
    UInt16Vector,
)

NO_PSEUDO_COUNTS = np.zeros(0, dtype=np.float32)  # Pseudo-counts of documents whose start does not stay in the prior

# Pseudo-counts of rows of which none is a seed
NO_SEED_PLACES, NO_SEED_COUNTS = np.zeros(0, dtype=np.int32), np.zeros((0, 0))


# `Priors` of documents that all have the same prior
NO_DESIGN_PRIORS, NO_DESIGN_PLACES = np.zeros((0, 0)), np.zeros(0, dtype=np.int32)


class Priors(NamedTuple):
    """Dirichlet parameters of the documents' topics and of the topics' words."""

    topics: Float64Vector  # a_k, or the mean of a_dk over documents whose priors differ; (topics,)
    words: Float64Vector  # b_w of the words that have a row; (rows,)
    words_total: float  # B, the sum of b_w over the vocabulary
    design_priors: Float64Matrix = NO_DESIGN_PRIORS  # a_dk of each distinct row of the design; (design rows, topics)
    # Row of `design_priors` of each document; empty if all documents have the same prior; (documents,)
    design_place: Int32Vector = NO_DESIGN_PLACES


class TopicCounts(NamedTuple):
    """Expected counts of topics."""

    rows: Float32Matrix  # E[n_kw]; (rows, topics)
    totals: Float64Vector  # B + E[n_k]; (topics,)


class ActiveTopics(NamedTuple):
    """Active topics of documents."""

    offsets: Int64Vector  # Index of each document's first active topic; (documents + 1,)
    topics: UInt16Vector  # The topics, ascending in a document; (active,)


class ActiveState(NamedTuple):
    """Sparse responsibilities of documents, and the counts that follow from them."""

    starts: Int64Vector  # Index of each document's first responsibility; (documents + 1,)
    # q in steps of 2^-15: pair by pair, in the order of the document's active topics; (responsibilities,)
    responsibilities: UInt16Vector
    counts: Float64Vector  # E[n_dk] of the active topics; (active,)
    background: Float64Vector  # Background tokens of each document; (documents,)
    # Pseudo-counts of a start that stays in the prior, which the update adds to the counts; empty without one;
    # (active,)
    pseudo: Float32Vector = NO_PSEUDO_COUNTS


# An `ActiveState` to fill; where active topics are selected anew, with the pseudo-counts too
NewActiveState: TypeAlias = Annotated[ActiveState, Filled(read=("starts",))]


class RowChanges(NamedTuple):
    """Changes of the counts by word."""

    active: OutFloat32Matrix  # Change of the counts of active topics; (rows, topics)
    background: OutFloat64Vector  # Change of each word's background tokens; (rows,)


class SweepRows(NamedTuple):
    """Rows of the shard's words while it is swept."""

    cells: OutInt32Matrix  # E[n_kw], in units of the row; (rows, topics)
    # Tokens of a unit: a step of a responsibility, or less where tokens have weights, and a power of two more where a
    # row would not have room; (rows,)
    units: OutFloat32Vector
    background_weight: OutFloat64Vector  # S_w; (rows,)
    background: OutFloat64Vector  # Change of each word's background tokens since the sweep began; (rows,)
    long_place: Int32Vector  # Row of `long_changes` of a word whose unit is longer than a step; -1 for others; (rows,)
    # Changes of E[n_kw] of such words, in tokens: in their cells they are rounded; (long rows, topics)
    long_changes: OutFloat64Matrix
    # Row of `seed_counts` of a seed word, -1 for others; empty without seeds apart; (rows,)
    seed_place: Int32Vector = NO_SEED_PLACES
    # Pseudo-counts of seed words, which cells do not have; (seed words, topics)
    seed_counts: Float64Matrix = NO_SEED_COUNTS


class RunningCounts(NamedTuple):
    """Counts that move from document to document."""

    totals: OutFloat64Vector  # B + E[n_k] before these documents; on return, after them; (topics,)
    ratio: Float64Vector  # a_k / (B + E[n_k]) of S_w, as the sweep began; (topics,)
    rows: SweepRows  # Rows of the shard's words


class SpreadRows(NamedTuple):
    """Rows of words whose background tokens are spread over the topics.

    A word's are spread in proportion to weight_k (even + active_kw).
    """

    active: Float32Matrix  # Counts of active topics; (rows, topics)
    background: Float64Vector  # Background tokens of each word; (rows,)
    even: float  # Keeps the spread even where a word has no tokens
    weight: Float64Vector  # a_k / (B + E[n_k]), as when E[n_k] was last summed; (topics,)
    # Pseudo-counts of seed words; see `SweepRows`; (rows,)
    seed_place: Int32Vector = NO_SEED_PLACES
    seed_counts: Float64Matrix = NO_SEED_COUNTS


class DocumentModel(NamedTuple):
    """A fitted model of documents, from which responsibilities start."""

    theta: Float32Matrix  # Proportions; (documents, topics)
    phi: Float32Matrix  # Probabilities of words; (rows, topics)


class DenseState(NamedTuple):
    """Responsibilities of all topics, and the counts that follow from them."""

    pair_topic: Float32Matrix  # q; (pairs, topics)
    document_topic: Float32Matrix  # E[n_dk]; (documents, topics)


NewDenseState: TypeAlias = Annotated[DenseState, Filled()]


class WordMoments(NamedTuple):
    """Moments of the numbers of tokens by word and topic."""

    # E, V and Z of n_kw; (words, topics)
    mean: Float64Matrix
    variance: Float64Matrix
    log_absent: Float64Matrix


class DocumentCounts(NamedTuple):
    """Exact counts of a document's topics while its pairs are added up."""

    exact: Array  # Tokens; float64 (at least topics,)
    # Tokens, in steps of a responsibility, that are not yet among them: at most 2^24, up to which float32 is exact;
    # float32 (at least topics + 8,)
    short: Array


class DocumentWorkspace(NamedTuple):
    """Numbers of the active topics of a document, in groups of eight that are filled up with zeros.

    A group has eight topics, and eight numbers of each of E[n_dk] (of long documents up to a limit, and what exceeds it
    beside a_k), a_k with pseudo-counts, 1 / (B + E[n_k]), a_k / (B + E[n_k]) of S_w, the value of a step of a
    responsibility (2^-15, and 0 beyond the list), and a pair's responsibilities before and weights.
    """

    places: Array  # The bits of `cells`, by which topics are read and written; int32 (64 groups,)
    cells: Array  # The groups; float32 (64 groups,)
    steps: Array  # Responsibilities at the end of their array; uint16 (8,)
    inverse_temperature: Number
    inside: bool  # Whether eight responsibilities from any of the document's on are within their array


class FlatRows(NamedTuple):
    """Rows of words, flattened."""

    topics: int  # Cells of a row
    cells: Array  # E[n_kw], in units of the row; int32 (rows * topics,)
    units: Array  # Tokens of a unit; float32 (rows,)
    word_prior: Array  # b_w; float64 (rows,)
    background_weight: Array  # S_w; float64 (rows,)
    background_change: Array  # Change of each word's background tokens; float64 (rows,)
    long_place: Array  # Row of `long_changes`; see `SweepRows`; int32 (rows,)
    long_changes: Array  # Changes of rows whose units are longer than a step; float64 (long rows * topics,)
    seed_place: Array  # Row of `seed_counts`; see `SweepRows`; int32 (rows,)
    seed_counts: Array  # Pseudo-counts of seed words; float64 (seed words * topics,)
