"""Documents as kernels take them, tokens of samplers, weights of words, and predictions of plain tokens.

Expected counts by topic are sparse entries, which edits of topics move.

Fits with and without weights are compared by the probabilities of plain tokens. A fit with weights expects n_kw / m_w
tokens of word w in topic k, where n_kw is the sum of their weights and m_w the mean weight of a token of w in the
corpus. Its topics of plain tokens are phi'_kw = (b_w + n_kw / m_w) / (B + n'_k), with n'_k = sum_w n_kw / m_w. A
document has theta_k of its weights in topic k, and of its tokens theta'_k in proportion to
theta_k (B + n'_k) / (B + n_k). Then sum_k theta'_k phi'_kw is proportional to sum_k theta_k (b_w + n_kw / m_w) /
(B + n_k), and the sum of that over the words is sum_k theta_k (B + n'_k) / (B + n_k).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.labels import LabelTable
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.annotations import SAVED, UNSAVED, indices, numbers
from collapsium.workers.arrays.delta import Part, fresh
from collapsium.workers.arrays.state import CheckContext, GlobalState, LocalState, Rows, State
from collapsium.workers.kernels.gibbs.consistency import FingerprintKeys, fingerprint_tokens
from collapsium.workers.kernels.jit import UNWEIGHTED, DocumentPairs

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Weights = npt.NDArray[np.float32]


def document_pairs(shard: Shard) -> DocumentPairs:
    """Return the documents of a shard as word-count pairs."""
    return DocumentPairs(shard.offsets, shard.position, shard.counts, pair_weights(shard))


def pair_weights(shard: Shard) -> Weights:
    """Return the weights of a shard's tokens as kernels take them."""
    return UNWEIGHTED if shard.weights is None else shard.weights


def weighed(shard: Shard, word_weight: Weights | None, *, log_counts: bool) -> Shard:
    """Return a shard whose tokens have the weights of their words."""
    if word_weight is None:
        return shard
    weights = np.asarray(word_weight, dtype=np.float32)[shard.position]
    if log_counts:
        weights *= (special.log1p(shard.counts.astype(np.float64)) / np.maximum(shard.counts, 1)).astype(np.float32)
    return replace(shard, weights=weights)


Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DocumentEntries:
    """Expected counts E[n_dk] of a shard's documents, sparse."""

    # Document and topic of each count, by document and then by topic, each pair once; int64 (entries,)
    owner: Ints
    topic: Ints
    count: Doubles  # The counts; float64 (entries,)
    # Tokens of each document that its other topics share in proportion to their prior; 0 where all have entries;
    # float64 (documents,)
    rest: Doubles

    @classmethod
    def summed(cls, owner: Ints, topic: Ints, count: Doubles, rest: Doubles) -> DocumentEntries:
        """Return entries in order, with the counts of equal documents and topics added up."""
        order = np.lexsort((topic, owner))
        owner, topic, count = owner[order], topic[order], count[order]
        if not owner.size:
            return cls(owner, topic, count, rest)
        first = np.concatenate([[True], (np.diff(owner) != 0) | (np.diff(topic) != 0)])
        starts = np.flatnonzero(first)
        return cls(owner[starts], topic[starts], np.add.reduceat(count, starts), rest)

    @property
    def documents(self) -> int:
        """Number of documents."""
        return self.rest.size

    def merged(self, topics: list[int], prior: Doubles) -> DocumentEntries:
        """Return the entries after topics were merged into the first of them."""
        left = prior.sum() - np.bincount(self.owner, weights=prior[self.topic], minlength=self.documents)
        growth = np.where(left > 0.0, self.rest / np.where(left > 0.0, left, 1.0), 0.0)
        is_merged = np.isin(self.topic, topics)
        some = np.zeros(self.documents, dtype=bool)
        some[self.owner[is_merged]] = True
        absent = prior[topics].sum() - np.bincount(
            self.owner[is_merged], weights=prior[self.topic[is_merged]], minlength=self.documents
        )
        shares = np.where(some, np.minimum(growth * np.maximum(absent, 0.0), self.rest), 0.0)
        receivers = np.flatnonzero(some)
        return DocumentEntries.summed(
            np.concatenate([self.owner, receivers]),
            np.concatenate([np.where(is_merged, topics[0], self.topic), np.full(receivers.size, topics[0])]),
            np.concatenate([self.count, shares[receivers]]),
            self.rest - shares,
        )


Floats: TypeAlias = npt.NDArray[np.floating]
Counts: TypeAlias = npt.NDArray[np.float32]
Keys: TypeAlias = npt.NDArray[np.uint64]  # Random keys of words, or of columns of rows
Vector: TypeAlias = npt.NDArray[np.float64]

MIN_POSITIVE = 1e-300  # Smallest parameter of a prior, or rate: kernels divide by it
MIN_WEIGHT = 1e-30  # Smallest weight of a word: counts are divided by it, in single precision


class CountedTokens(ABC):
    """Local states whose tokens are counted in the rows, each in a column; sweeps take them out of the counts."""

    @abstractmethod
    def token_columns(self, shard: Shard) -> npt.NDArray[np.int64]:
        """Return the column of each token; -1 of tokens that none counts."""

    @abstractmethod
    def token_fingerprint(self, shard: Shard, words: Keys, columns: Keys) -> int:
        """Return the sum of the products of the keys of each token's word and column, modulo 2^64."""


@dataclass(frozen=True, kw_only=True)
class SampledTokens(CountedTokens, LocalState):
    """Local states that have a topic of each token."""

    # z of each token, the tokens of a pair side by side; None where documents were folded in
    token_topic: Annotated[npt.NDArray[np.uint16] | None, indices("token", below="topic"), SAVED] = None

    def token_columns(self, shard: Shard) -> npt.NDArray[np.int64]:
        """Return the topic of each token."""
        return np.asarray(self.token_topic).astype(np.int64)

    def token_fingerprint(self, shard: Shard, words: Keys, columns: Keys) -> int:
        """Return the sum of the products of the keys of each token's word and topic, modulo 2^64."""
        total, topics = np.zeros(1, dtype=np.uint64), np.asarray(self.token_topic)
        fingerprint_tokens(document_pairs(shard), topics, FingerprintKeys(words, columns), total)
        return int(total[0])


def length_faults(document_tokens: npt.NDArray[np.int64], context: CheckContext) -> Iterator[str]:
    """Yield the fault of tokens of documents that are not their shard's."""
    if context.shard is None:
        return
    wrong = np.flatnonzero(np.asarray(document_tokens) != context.shard.lengths)
    if wrong.size:
        yield f"expected the tokens of each document in 'document_tokens'; document {wrong[0]} has others"


@dataclass(frozen=True)
class WordWeights:
    """Weights by which the tokens of words count."""

    weights: npt.NDArray[np.float32]  # Weight of each word; float32 (words,)
    # Mean weight of its tokens in the corpus, which differs where the tokens of a pair weigh log(1 + c); float32
    # (words,)
    means: npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class WeighedGlobalState(GlobalState):
    """Global state of families that take weights of words."""

    vocabulary: Annotated[float, numbers(low=MIN_POSITIVE)]  # W, the number of words
    # With weights of words, the expected tokens of each topic without them
    topic_plain: Annotated[Vector | None, numbers("topic", low=0)] = None
    # Before the first update, `word_weight` and `word_mean` of the rows to come, shape (words,)
    first_weights: Annotated[Counts | None, UNSAVED] = None
    first_means: Annotated[Counts | None, UNSAVED] = None

    def ratio_of_plain(self, prior_total: float, topic_total: Vector) -> Vector | None:
        """Return (B + n'_k) / (B + E[n_k]) of each topic; None without weights of words."""
        if self.topic_plain is None:
            return None
        ratio: Vector = (prior_total + np.maximum(self.topic_plain, 0.0)) / (prior_total + topic_total)
        return ratio


@dataclass(frozen=True, kw_only=True)
class WeighedRows(Rows):
    """Rows of families that take weights of words."""

    # With weights of words, the weight of each, and the mean weight of its tokens in the corpus
    word_weight: Annotated[Counts | None, numbers("word", low=MIN_WEIGHT)] = None
    word_mean: Annotated[Counts | None, numbers("word", low=MIN_WEIGHT)] = None

    @property
    def mean_weights(self) -> Counts | None:
        """Mean weight of each word's tokens, if words have weights."""
        return self.word_mean


RowsT = TypeVar("RowsT", bound=WeighedRows)


def weighed_rows(rows: RowsT, low: int, high: int, global_state: WeighedGlobalState) -> RowsT:
    """Return the first rows of the words `low` to `high` - 1 with their weights, if words have any."""
    if global_state.topic_plain is None:
        return rows
    if global_state.first_weights is None or global_state.first_means is None:
        # The words joined the vocabulary after the model was fitted.
        ones = np.ones(high - low, dtype=np.float32)
        return replace(rows, word_weight=ones, word_mean=ones)
    weights, means = global_state.first_weights[low:high], global_state.first_means[low:high]
    return replace(rows, word_weight=weights, word_mean=means)


@dataclass(frozen=True)
class PlainSums(State):
    """Sums over words where these are weighted."""

    topic_plain: Vector  # Expected tokens of each topic without the weights; float64 (topics,)


def plain_counts(counts: Floats, word_mean: Floats) -> npt.NDArray[np.float32]:
    """Return the expected plain tokens of words by topic, n_kw / m_w, shape (words, topics)."""
    return (np.maximum(counts, 0.0) / word_mean[:, np.newaxis]).astype(np.float32)


def plain_sums(counts: Floats, word_mean: Floats) -> dict[str, Part]:
    """Return the sums of `plain_counts` over the words, ``topic_plain``."""
    return {"topic_plain": fresh(plain_counts(counts, word_mean).sum(axis=0, dtype=np.float64), "topic")}


def normalised(probability: Vector, heldout: Shard, sums: Vector | None) -> Vector:
    """Return numbers of held-out pairs divided by the sums of their documents, if there are any; shape (pairs,)."""
    if sums is None:
        return probability
    result: Vector = probability / np.repeat(sums, np.diff(heldout.offsets))
    return result


LabelBytes: TypeAlias = Annotated[npt.NDArray[np.uint8], numbers("byte", 0, 255)]  # As `LabelTable.packed` has them


def table_faults(packed: npt.NDArray[np.uint8], context: CheckContext) -> Iterator[str]:
    """Yield the fault of bytes that are not a table of labels; bind the size `label`, their number."""
    try:
        expected = len(LabelTable.unpacked(packed))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        yield f"expected a table of labels in 'label_table' ({error})"
        return
    if context.sizes.setdefault("label", expected) != expected:
        yield f"expected {context.sizes['label']} labels in 'label_table', found {expected}"
