"""Named tuples of arrays that the kernels of collapsed updates take.

With active topics, a document has sparse responsibilities: each pair has some of each active topic of its document, and
what is left belongs to the document's background, which all other topics share (`active`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Array,
    Float32Matrix,
    Float32Vector,
    Float64Matrix,
    Float64Vector,
    Int32Vector,
    Int64Vector,
    Number,
    OutFloat32Matrix,
    OutFloat32Vector,
    OutFloat64Vector,
    OutInt32Matrix,
    OutUInt16Vector,
    UInt16Vector,
)

NO_PSEUDO_COUNTS = np.zeros(0, dtype=np.float32)
"""Pseudo-counts of documents whose start does not stay in the prior."""

NO_SEED_PLACES, NO_SEED_COUNTS = np.zeros(0, dtype=np.int32), np.zeros((0, 0))
"""Pseudo-counts of rows of which none is a seed."""


class Priors(NamedTuple):
    """Dirichlet parameters of the documents' topics and of the topics' words.

    Attributes
    ----------
    topics : float64, shape (topics,)
        a_k.
    words : float64, shape (rows,)
        b_w of the words that have a row.
    words_total : float
        B, the sum of b_w over the vocabulary.
    """

    topics: Float64Vector
    words: Float64Vector
    words_total: float


class TopicCounts(NamedTuple):
    """Expected counts of topics.

    Attributes
    ----------
    rows : float32, shape (rows, topics)
        E[n_kw].
    totals : float64, shape (topics,)
        B + E[n_k].
    """

    rows: Float32Matrix
    totals: Float64Vector


class ActiveTopics(NamedTuple):
    """Active topics of documents.

    Attributes
    ----------
    offsets : int64, shape (documents + 1,)
        Index of each document's first active topic.
    topics : uint16, shape (active,)
        The topics, ascending in a document.
    """

    offsets: Int64Vector
    topics: UInt16Vector


class ActiveState(NamedTuple):
    """Sparse responsibilities of documents, and the counts that follow from them.

    Attributes
    ----------
    starts : int64, shape (documents + 1,)
        Index of each document's first responsibility.
    responsibilities : uint16, shape (responsibilities,)
        q in steps of 2^-15: pair by pair, in the order of the document's active topics.
    counts : float64, shape (active,)
        E[n_dk] of the active topics.
    background : float64, shape (documents,)
        Background tokens of each document.
    pseudo : float32, shape (active,) or (0,)
        Pseudo-counts of a start that stays in the prior, which the update adds to the counts; empty without one.
    """

    starts: Int64Vector
    responsibilities: UInt16Vector
    counts: Float64Vector
    background: Float64Vector
    pseudo: Float32Vector = NO_PSEUDO_COUNTS


class NewActiveState(NamedTuple):
    """An `ActiveState` to fill.

    Attributes
    ----------
    starts : int64, shape (documents + 1,)
        Index of each document's first responsibility; read.
    responsibilities : uint16, shape (responsibilities,)
        Filled with q.
    counts : float64, shape (active,)
        Filled with E[n_dk] of the active topics.
    background : float64, shape (documents,)
        Filled with the background tokens.
    pseudo : float32, shape (active,) or (0,)
        Filled with the pseudo-counts where active topics are selected anew.
    """

    starts: Int64Vector
    responsibilities: OutUInt16Vector
    counts: OutFloat64Vector
    background: OutFloat64Vector
    pseudo: OutFloat32Vector = NO_PSEUDO_COUNTS


class RowChanges(NamedTuple):
    """Changes of the counts by word.

    Attributes
    ----------
    active : float32, shape (rows, topics)
        Change of the counts of active topics.
    background : float64, shape (rows,)
        Change of each word's background tokens.
    """

    active: OutFloat32Matrix
    background: OutFloat64Vector


class SweepRows(NamedTuple):
    """Rows of the shard's words while it is swept.

    Attributes
    ----------
    cells : int32, shape (rows, topics)
        E[n_kw], in units of the row.
    units : float32, shape (rows,)
        Tokens of a unit: a step of a responsibility, or less where tokens have weights, and a power of two more where a
        row would not have room.
    background_weight : float64, shape (rows,)
        S_w.
    background : float64, shape (rows,)
        Change of each word's background tokens since the sweep began.
    long_place : int32, shape (rows,)
        Row of `long_changes` of a word whose unit is longer than a step; -1 for others.
    long_changes : float32, shape (long rows, topics)
        Changes of E[n_kw] of such words, in tokens: in their cells they are rounded.
    seed_place : int32, shape (rows,) or (0,)
        Row of `seed_counts` of a seed word, -1 for others; empty without seeds apart.
    seed_counts : float64, shape (seed words, topics)
        Pseudo-counts of seed words, which cells do not have.
    """

    cells: OutInt32Matrix
    units: OutFloat32Vector
    background_weight: OutFloat64Vector
    background: OutFloat64Vector
    long_place: Int32Vector
    long_changes: OutFloat32Matrix
    seed_place: Int32Vector = NO_SEED_PLACES
    seed_counts: Float64Matrix = NO_SEED_COUNTS


class RunningCounts(NamedTuple):
    """Counts that move from document to document.

    Attributes
    ----------
    totals : float64, shape (topics,)
        B + E[n_k] before these documents; on return, after them.
    ratio : float64, shape (topics,)
        a_k / (B + E[n_k]) of S_w, as the sweep began.
    rows : SweepRows
        Rows of the shard's words.
    """

    totals: OutFloat64Vector
    ratio: Float64Vector
    rows: SweepRows


class SpreadRows(NamedTuple):
    """Rows of words whose background tokens are spread over the topics.

    A word's are spread in proportion to weight_k (even + active_kw).

    Attributes
    ----------
    active : float32, shape (rows, topics)
        Counts of active topics.
    background : float64, shape (rows,)
        Background tokens of each word.
    even : float
        Keeps the spread even where a word has no tokens.
    weight : float64, shape (topics,)
        a_k / (B + E[n_k]), as when E[n_k] was last summed.
    seed_place, seed_counts : int32, shape (rows,) or (0,), and float64, shape (seed words, topics)
        Pseudo-counts of seed words; see `SweepRows`.
    """

    active: Float32Matrix
    background: Float64Vector
    even: float
    weight: Float64Vector
    seed_place: Int32Vector = NO_SEED_PLACES
    seed_counts: Float64Matrix = NO_SEED_COUNTS


class DocumentModel(NamedTuple):
    """A fitted model of documents, from which responsibilities start.

    Attributes
    ----------
    theta : float32, shape (documents, topics)
        Proportions.
    phi : float32, shape (rows, topics)
        Probabilities of words.
    """

    theta: Float32Matrix
    phi: Float32Matrix


class DenseState(NamedTuple):
    """Responsibilities of all topics, and the counts that follow from them.

    Attributes
    ----------
    pair_topic : float32, shape (pairs, topics)
        q.
    document_topic : float32, shape (documents, topics)
        E[n_dk].
    """

    pair_topic: Float32Matrix
    document_topic: Float32Matrix


class NewDenseState(NamedTuple):
    """A `DenseState` to fill.

    Attributes
    ----------
    pair_topic : float32, shape (pairs, topics)
        Filled with q.
    document_topic : float32, shape (documents, topics)
        Filled with E[n_dk].
    """

    pair_topic: OutFloat32Matrix
    document_topic: OutFloat32Matrix


class WordMoments(NamedTuple):
    """Moments of the numbers of tokens by word and topic.

    Attributes
    ----------
    mean, variance, log_absent : float64, shape (words, topics)
        E, V and Z of n_kw.
    """

    mean: Float64Matrix
    variance: Float64Matrix
    log_absent: Float64Matrix


class DocumentCounts(NamedTuple):
    """Exact counts of a document's topics while its pairs are added up.

    Attributes
    ----------
    exact : numpy.ndarray of float64, shape (at least topics,)
        Tokens.
    short : numpy.ndarray of float32, shape (at least topics + 8,)
        Tokens, in steps of a responsibility, that are not yet among them: at most 2^24, up to which float32 is exact.
    """

    exact: Array
    short: Array


class DocumentWorkspace(NamedTuple):
    """Numbers of the active topics of a document, in groups of eight that are filled up with zeros.

    A group has eight topics, and eight numbers of each of E[n_dk] (of long documents up to a limit, and what exceeds it
    beside a_k), a_k with pseudo-counts, 1 / (B + E[n_k]), a_k / (B + E[n_k]) of S_w, the value of a step of a
    responsibility (2^-15, and 0 beyond the list), and a pair's responsibilities before and weights.

    Attributes
    ----------
    places : numpy.ndarray of int32, shape (64 groups,)
        The bits of `cells`, by which topics are read and written.
    cells : numpy.ndarray of float32, shape (64 groups,)
        The groups.
    steps : numpy.ndarray of uint16, shape (8,)
        Responsibilities at the end of their array.
    power : float32
        Power of the weights.
    inside : bool
        Whether eight responsibilities from any of the document's on are within their array.
    """

    places: Array
    cells: Array
    steps: Array
    power: Number
    inside: bool


class FlatRows(NamedTuple):
    """Rows of words, flattened.

    Attributes
    ----------
    topics : int
        Cells of a row.
    cells : numpy.ndarray of int32, shape (rows * topics,)
        E[n_kw], in units of the row.
    units : numpy.ndarray of float32, shape (rows,)
        Tokens of a unit.
    word_prior : numpy.ndarray of float64, shape (rows,)
        b_w.
    background_weight : numpy.ndarray of float64, shape (rows,)
        S_w.
    background_change : numpy.ndarray of float64, shape (rows,)
        Change of each word's background tokens.
    long_place : numpy.ndarray of int32, shape (rows,)
        Row of `long_changes`; see `SweepRows`.
    long_changes : numpy.ndarray of float32, shape (long rows * topics,)
        Changes of rows whose units are longer than a step.
    seed_place : numpy.ndarray of int32, shape (rows,) or (0,)
        Row of `seed_counts`; see `SweepRows`.
    seed_counts : numpy.ndarray of float64, shape (seed words * topics,)
        Pseudo-counts of seed words.
    """

    topics: int
    cells: Array
    units: Array
    word_prior: Array
    background_weight: Array
    background_change: Array
    long_place: Array
    long_changes: Array
    seed_place: Array
    seed_counts: Array
