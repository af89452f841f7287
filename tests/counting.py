"""The counts in the states of each family, and the same counts recomputed from responsibilities or token assignments."""

from functools import singledispatch

import numpy as np
from scipy import sparse

from collapsium.workers.families.cvb.global_state import CollapsedGlobalState
from collapsium.workers.families.cvb.states import (
    ActiveDocuments,
    ActiveLocal,
    CollapsedRows,
    DenseDocuments,
    DenseLocal,
)
from collapsium.workers.families.document_entries import CountedTokens, WeighedRows
from collapsium.workers.families.gibbs.author_topic import AuthorLocal
from collapsium.workers.families.gibbs.labeled_lda import LabelDocuments
from collapsium.workers.families.gibbs.states import GibbsDocuments
from collapsium.workers.families.ncrp.state import GibbsNcrpDocuments, NcrpGlobalState, NcrpRows
from collapsium.workers.families.networks.states import ExpectedDocuments, ExpectedLocal, SampledLocal
from collapsium.workers.families.vb.states import MeanFieldGlobalState
from collapsium.workers.kernels.cvb.active import UNIT

# Rows and global states --------------------------------------------------------------------------------------------


@singledispatch
def word_counts(rows):
    """Return the counts of a block's rows by word and topic, without background."""
    return rows.word_topic


@word_counts.register
def _(rows: CollapsedRows):
    return rows.dense_counts if rows.word_active is None else rows.active_counts


def background_counts(rows):
    """Return the background tokens of each word; None if documents store all topics."""
    return rows.word_rest if isinstance(rows, CollapsedRows | NcrpRows) else None


@singledispatch
def topic_tokens(global_state):
    """Return the number of tokens of each topic according to a global state."""
    return global_state.topic


@topic_tokens.register
def _(global_state: CollapsedGlobalState):
    return global_state.topic_moments[0]


@topic_tokens.register
def _(global_state: MeanFieldGlobalState):
    return global_state.topic_total


@topic_tokens.register
def _(global_state: NcrpGlobalState):
    return global_state.node_tokens


# Documents ---------------------------------------------------------------------------------------------------------


@singledispatch
def document_counts(local, topics):
    """Return the counts of a shard by document and topic, without background."""
    raise TypeError(f"no recount of {type(local).__name__}")


@document_counts.register
def _(local: DenseDocuments, topics):
    return local.document_topic


@document_counts.register
def _(local: ActiveDocuments, topics):
    counts = np.zeros((local.document_lists.size - 1, topics))
    owner = np.repeat(np.arange(len(counts)), np.diff(local.document_lists))
    counts[owner, local.document_topics] = local.document_counts
    return counts


@document_counts.register
def _(local: GibbsDocuments, topics):
    return local.dense(topics)


@document_counts.register
def _(local: LabelDocuments, topics):
    return local.active.dense(topics)


@document_counts.register
def _(local: AuthorLocal | SampledLocal, topics):
    counts = np.zeros((local.document_tokens.size, topics))
    np.add.at(counts, (np.repeat(np.arange(len(counts)), local.document_tokens), np.asarray(local.token_topic)), 1)
    return counts


@document_counts.register
def _(local: GibbsNcrpDocuments, topics):
    path, counts = np.asarray(local.document_path), np.zeros((len(local.document_path), topics))
    np.add.at(counts, (np.arange(len(path))[:, np.newaxis], path), local.document_level)
    return counts


@document_counts.register
def _(local: ExpectedDocuments, topics):
    graph, counts = local.graph, np.zeros((local.document_tokens.size, topics))
    node = np.repeat(np.arange(local.node_tokens.own_offsets.size - 1), np.diff(local.node_tokens.own_offsets))
    owner = np.searchsorted(graph.document_nodes - graph.shared, node, side="right") - 1
    np.add.at(counts, (owner, local.node_tokens.own_topic), local.node_tokens.own_tokens)
    return counts


# Recounts from responsibilities -----------------------------------------------------------------------------------


@singledispatch
def responsibilities(local, shard):
    """Return the responsibilities of topics for each pair of a shard, shape (pairs, topics)."""
    raise TypeError(f"no recount of {type(local).__name__}")


@responsibilities.register
def _(local: CountedTokens, shard):
    column, pair = local.token_columns(shard), np.repeat(np.arange(shard.pairs), shard.counts)
    q = np.zeros((shard.pairs, int(column.max(initial=0)) + 1))
    np.add.at(q, (pair, column), 1.0 / shard.counts[pair])
    return q


@responsibilities.register
def _(local: DenseLocal, shard):
    return local.pair_topic.astype(np.float64)


@responsibilities.register
def _(local: ActiveLocal, shard):
    q = np.zeros((shard.pairs, int(local.document_topics.max(initial=0)) + 1))
    document = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
    topics = np.diff(local.document_lists)[document]  # of each pair
    pair, first = np.repeat(np.arange(shard.pairs), topics), np.asarray(local.document_lists)[document]
    place = np.arange(pair.size) + np.repeat(first - (np.cumsum(topics) - topics), topics)
    q[pair, np.asarray(local.document_topics)[place]] = local.pair_shares[: pair.size] / UNIT
    return q


@responsibilities.register
def _(local: ExpectedLocal, shard):
    size, topic, share = local.responsibilities.record
    q = np.zeros((shard.pairs, int(topic.max(initial=0)) + 1))
    q[np.repeat(np.arange(shard.pairs), size.astype(int)), topic] = share / UNIT
    return q


def weighs_words(rows):
    """Return whether the words of these rows have weights."""
    return isinstance(rows, WeighedRows) and rows.word_weight is not None


def pair_weights(config, rows, shard):
    """Return the total weight of the tokens of each pair of a shard, from the rows of all words."""
    counts = shard.counts.astype(np.float64)
    if not weighs_words(rows):
        return counts
    return rows.word_weight[shard.words[shard.position]] * (np.log1p(counts) if config.log_counts else counts)


def recount(shard, local, weights=None):
    """A shard's counts by word and topic, of background by word, and by document and topic, from its responsibilities."""
    weights, q = shard.counts if weights is None else weights, responsibilities(local, shard)
    weighted, pairs = weights[:, np.newaxis] * q, np.arange(shard.pairs)
    by_word = sparse.csr_matrix((np.ones(shard.pairs), (shard.position, pairs)), (shard.words.size, shard.pairs))
    by_document = sparse.csr_matrix((np.ones(shard.pairs), pairs, shard.offsets), (shard.documents, shard.pairs))
    return by_word @ weighted, by_word @ (weights - weighted.sum(axis=1)), by_document @ weighted
