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
    """Topics as the documents of a shard see them."""

    # exp(psi(lambda_kw)) of the shard's words, each word's up to a factor; float64 (words, topics)
    word_expected: Float64Matrix
    prior: Float64Vector  # a_k, the parameters of the documents' prior; float64 (topics,)
    topic_log: Float64Vector  # psi(sum_w lambda_kw); float64 (topics,)


class PassLimits(NamedTuple):
    """Convergence of a document's update."""

    passes: int  # Largest number of passes over a document
    tolerance: float  # Change of E[n_dk], in tokens and the mean over the topics, below which no further pass follows


class Workspace(NamedTuple):
    """Arrays that a sweep uses again for each document."""

    topic_counts: Array  # E[n_dk] of the document; float64 (topics,)
    shape: Array  # Parameters of its proportions: the prior's, and E[n_dk]; float64 (topics,)
    # The document's weights, and their logarithms; float64 (topics,)
    weight: Array
    log_weight: Array
    # Intermediate results; float64 (topics,)
    new: Array
    work: Array
    bits: Array  # `work` as integers; int64 (topics,)
    # Sum over the topics of each pair's unnormalised responsibilities; as many as the longest document has pairs;
    # float64 (pairs,)
    norm: Array


class ExpectedCounts(NamedTuple):
    """Expected topic counts that a sweep fills."""

    document_topic: OutFloat32Matrix  # E[n_dk]; float32 (documents, topics)
    word_topic: OutFloat64Matrix  # E[n_kw] of the shard's words; float64 (words, topics)


class DocumentLabels(NamedTuple):
    """The labels of a shard's documents, with the logarithms of the rates that they give the topics."""

    offsets: Int64Vector  # Where the labels of each document begin; int64 (documents + 1,)
    label: Int32Vector  # Row in `log_rate` of each; int32
    value: Float64Vector  # r_mj of each; float64
    log_rate: Float64Matrix  # x_jk; float64 (labels, topics)


class RateStatistics(NamedTuple):
    """Sums over documents from which the rates are learned."""

    topic_sums: OutFloat64Matrix  # sum_m g_k (psi(g_k + n_mk) - psi(g_k)), and -sum_m log b_mk; float64 (2, topics)
    # Over the documents with r_mj > 0 the sums of |r| R n / b, |r| R / b, and of both times the sum of |r_mj| over the
    # document's labels; with 8, then also over those with r_mj < 0; float64 (labels, 4 or 8, topics)
    label_sums: OutFloat64Cube
    # Unless it is empty, row j and column i of each half are the sums of r_mj r_mi R n / b and r_mj r_mi R / b; float64
    # (labels, 2 labels, topics)
    curvature: OutFloat64Cube


class Rates(NamedTuple):
    """Rates of a document's gamma variables."""

    # R_mk, and b_mk = R_mk + u_m; float64 (topics,)
    prior: Array
    posterior: Array


class PriorTerms(NamedTuple):
    """Functions of the prior's parameters, alike for all documents."""

    # g_k, log G(g_k), and psi(g_k); float64 (topics,)
    prior: Array
    log_gamma: Array
    digamma: Array
