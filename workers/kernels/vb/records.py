"""Named tuples of arrays that kernels of mean-field inference take."""

from __future__ import annotations

from typing import NamedTuple

from collapsium.workers.kernels.argument_types import (
    Array,
    Float64Matrix,
    Float64Vector,
    Int32Vector,
    Int64Vector,
    OutFloat32Matrix,
    OutFloat64Cube,
    OutFloat64Matrix,
)


class MeanFieldTopics(NamedTuple):
    """Topics as the documents of a shard see them.

    Attributes
    ----------
    word_expected : numpy.ndarray of float64, shape (words, topics)
        exp(psi(lambda_kw)) of the shard's words, each word's up to a factor.
    prior : numpy.ndarray of float64, shape (topics,)
        a_k, the parameters of the documents' prior.
    topic_log : numpy.ndarray of float64, shape (topics,)
        psi(sum_w lambda_kw).
    """

    word_expected: Float64Matrix
    prior: Float64Vector
    topic_log: Float64Vector


class PassLimits(NamedTuple):
    """Convergence of a document's update.

    Attributes
    ----------
    passes : int
        Largest number of passes over a document.
    tolerance : float
        Change of E[n_dk], in tokens and the mean over the topics, below which no further pass follows.
    """

    passes: int
    tolerance: float


class Workspace(NamedTuple):
    """Arrays that a sweep uses again for each document.

    Attributes
    ----------
    topic_counts : numpy.ndarray of float64, shape (topics,)
        E[n_dk] of the document.
    shape : numpy.ndarray of float64, shape (topics,)
        Parameters of its proportions: the prior's, and E[n_dk].
    weight, log_weight : numpy.ndarray of float64, shape (topics,)
        The document's weights, and their logarithms.
    new, work : numpy.ndarray of float64, shape (topics,)
        Intermediate results.
    bits : numpy.ndarray of int64, shape (topics,)
        `work` as integers.
    norm : numpy.ndarray of float64, shape (pairs,)
        Sum over the topics of each pair's unnormalised responsibilities; as many as the longest document has pairs.
    """

    topic_counts: Array
    shape: Array
    weight: Array
    log_weight: Array
    new: Array
    work: Array
    bits: Array
    norm: Array


class ExpectedCounts(NamedTuple):
    """Expected topic counts that a sweep fills.

    Attributes
    ----------
    document_topic : numpy.ndarray of float32, shape (documents, topics)
        E[n_dk].
    word_topic : numpy.ndarray of float64, shape (words, topics)
        E[n_kw] of the shard's words.
    """

    document_topic: OutFloat32Matrix
    word_topic: OutFloat64Matrix


class DocumentLabels(NamedTuple):
    """The labels of a shard's documents, with the logarithms of the rates that they give the topics.

    Attributes
    ----------
    offsets : numpy.ndarray of int64, shape (documents + 1,)
        Where the labels of each document begin.
    label : numpy.ndarray of int32
        Row in `log_rate` of each.
    value : numpy.ndarray of float64
        r_mj of each.
    log_rate : numpy.ndarray of float64, shape (labels, topics)
        x_jk.
    """

    offsets: Int64Vector
    label: Int32Vector
    value: Float64Vector
    log_rate: Float64Matrix


class RateStatistics(NamedTuple):
    """Sums over documents from which the rates are learned.

    Attributes
    ----------
    topic_sums : numpy.ndarray of float64, shape (2, topics)
        sum_m g_k (psi(g_k + n_mk) - psi(g_k)), and -sum_m log b_mk.
    label_sums : numpy.ndarray of float64, shape (labels, 4 or 8, topics)
        Over the documents with r_mj > 0 the sums of |r| R n / b, |r| R / b, and of both times the sum of |r_mj| over
        the document's labels; with 8, then also over those with r_mj < 0.
    curvature : numpy.ndarray of float64, shape (labels, 2 labels, topics) or (0, 0, 0)
        Unless it is empty, row j and column i of each half are the sums of r_mj r_mi R n / b and r_mj r_mi R / b.
    """

    topic_sums: OutFloat64Matrix
    label_sums: OutFloat64Cube
    curvature: OutFloat64Cube


class Rates(NamedTuple):
    """Rates of a document's gamma variables.

    Attributes
    ----------
    prior, posterior : numpy.ndarray of float64, shape (topics,)
        R_mk, and b_mk = R_mk + u_m.
    """

    prior: Array
    posterior: Array


class PriorTerms(NamedTuple):
    """Functions of the prior's parameters, alike for all documents.

    Attributes
    ----------
    prior, log_gamma, digamma : numpy.ndarray of float64, shape (topics,)
        g_k, log G(g_k), and psi(g_k).
    """

    prior: Array
    log_gamma: Array
    digamma: Array
