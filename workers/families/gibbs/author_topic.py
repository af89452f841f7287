"""The author-topic model by collapsed Gibbs sampling (Rosen-Zvi, Griffiths, Steyvers and Smyth 2004).

Labels are the authors. Each token has one of its document's authors, all equally likely, and a topic of this author:
theta_a ~ Dir(alpha, ..., alpha), phi_k ~ Dir(eta, ..., eta). Documents without a known author share the last author,
which has no name.

n_ak, ``label_topic``, is global. A shard sweeps against the counts of the iteration's start plus its own changes, and
sends the changes of its own authors: with several shards this is AD-LDA.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from collapsium.storage.corpus.labels import LabelTable
from collapsium.storage.errors import OptionError
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.annotations import SAVED, non_negative, sizes
from collapsium.workers.arrays.delta import Delta, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays, CheckContext, LocalState, State
from collapsium.workers.families import generative
from collapsium.workers.families.dirichlet import pair_probability
from collapsium.workers.families.document_entries import (
    LabelBytes,
    SampledTokens,
    document_pairs,
    length_faults,
    table_faults,
)
from collapsium.workers.families.family import Footprint, Summary
from collapsium.workers.families.gibbs.sampler import (
    SIMULATED_CONCENTRATION,
    SIMULATED_TOKENS,
    GibbsFamily,
    corpus_sums,
    count_words,
    delta_ids,
    draw_initial_topics,
    footprint,
    topics_falling,
    word_changes,
)
from collapsium.workers.families.gibbs.states import (
    Counts,
    Ints,
    LabelLists,
    LabelOptions,
    SampledRows,
    SymmetricGlobalState,
    Vector,
    draw_labels,
    label_count,
    mean_labels,
    require_labels,
    simulated_table,
    with_labels,
)
from collapsium.workers.kernels import prediction
from collapsium.workers.kernels.gibbs.labels import sweep_authors
from collapsium.workers.kernels.gibbs.topics import (
    DocumentAuthors,
    TokenAssignments,
    TopicCounts,
    WordPrior,
    word_rising,
)
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.special_functions import gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents, Shard


@dataclass(frozen=True)
class AuthorTopicGlobalState(SymmetricGlobalState):
    """Global state of the author-topic model."""

    label_table: LabelBytes  # The training corpus's labels, which are the authors
    # n_ak; documents without a known author have the last one
    label_topic: Annotated[Ints, non_negative("author topic", dtypes="i8 f8")]

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of the labels, and of the number of authors: the labels, and one for documents without."""
        yield from super().faults(context)
        yield from table_faults(self.label_table, context)
        if context.sizes["author"] != context.sizes["label"] + 1:
            yield f"expected {context.sizes['label'] + 1} rows of 'label_topic', found {context.sizes['author']}"

    @property
    def labels(self) -> LabelTable:
        """The training corpus's labels."""
        return LabelTable.unpacked(self.label_table)

    def authors_of(self, shard: Shard) -> LabelLists:
        """Return the authors of a shard's documents, at least one of each."""
        table = self.labels
        known = LabelLists.from_shard(shard, table)
        anonymous = np.diff(known.document_labels) == 0
        places = known.document_labels[:-1][anonymous]
        author = np.insert(known.document_label, places, np.int32(len(table.names)))
        return LabelLists(known.document_labels + np.concatenate([[0], np.cumsum(anonymous)]), author)

    def with_authors(self, delta: Delta) -> AuthorTopicGlobalState:
        """Return the state after a delta's changes of n_ak."""
        counts, changes = np.array(self.label_topic), delta.read(AuthorChanges)
        if changes is not None:
            counts[delta.ids["label"]] += changes.label_topic
        return replace(self, label_topic=counts)

    def proportions(self, authors: npt.NDArray[np.integer]) -> Vector:
        """Return theta_ak = (alpha + n_ak) / (K alpha + n_a) of some authors."""
        theta: Vector = self.label_topic[authors] + self.alpha
        theta /= theta.sum(axis=1, keepdims=True)
        return theta


@dataclass(frozen=True)
class AuthorChanges(State):
    """Changes of the counts by author."""

    label_topic: Counts  # Changes of n_ak; int32 (authors, topics)


@dataclass(frozen=True)
class AuthorSums(State):
    """Sums of a sweep, from which the log joint probability of the sample is computed."""

    author_choices: float  # -sum_d n_d log A_d, A_d being the document's number of authors
    word_rising: float  # sum_kw log G(b + n_kw) / G(b)


@dataclass(frozen=True)
class AuthorDocuments(LocalState):
    """Documents with authors."""

    authors: Annotated[LabelLists, sizes(label="author")]  # Their authors, at least one of each
    document_tokens: Annotated[Ints, non_negative("document")]  # Their lengths

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of documents without authors, and of other lengths than the shard's."""
        yield from super().faults(context)
        authors = np.diff(self.authors.document_labels)
        if authors.size and authors.min() < 1:
            yield "expected an author of each document in 'document_labels'"
        yield from length_faults(self.document_tokens, context)


@dataclass(frozen=True)
class AuthorLocal(AuthorDocuments, SampledTokens):
    """Local state of a shard."""

    # Index of each token's author among the authors of its document; None where documents were folded in
    token_author: Annotated[npt.NDArray[np.uint16] | None, non_negative("token"), SAVED] = None

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield a fault if a token's author is not among the authors of its document."""
        yield from super().faults(context)
        if context.shard is None:
            return
        lengths, token_author = context.shard.lengths, np.asarray(self.token_author)
        some, authors = lengths > 0, np.diff(self.authors.document_labels)
        firsts = (np.cumsum(lengths) - lengths)[some]
        largest = np.maximum.reduceat(token_author, firsts) if some.any() else lengths[some]
        if not (largest < authors[some]).all():
            yield "expected authors of the document in 'token_author'"


def _own_authors(local: AuthorDocuments) -> tuple[Ints, npt.NDArray[np.int32], Ints]:
    """Return the index of each document's first author, the distinct authors, and each author's place among these."""
    lists, author = np.asarray(local.authors.document_labels), np.asarray(local.authors.document_label)
    shard_authors, place = np.unique(author, return_inverse=True)
    return lists, shard_authors, place


def _mean_proportions(local: AuthorDocuments, global_state: AuthorTopicGlobalState) -> Vector:
    """Return the means of theta_ak over the authors of each document."""
    lists, shard_authors, place = _own_authors(local)
    sums = np.add.reduceat(global_state.proportions(shard_authors)[place], lists[:-1], axis=0)
    mean: Vector = sums / np.diff(lists)[:, np.newaxis]
    return mean


def _begin(shard: Shard, assignments: TokenAssignments, authors: LabelLists, topics: int) -> tuple[AuthorLocal, Delta]:
    """Return a shard's first local state, and its counts as changes from zero."""
    lengths = shard.lengths.astype(np.int64)
    local = AuthorLocal(authors, lengths, token_topic=assignments.topic, token_author=assignments.author)
    _, shard_authors, place = _own_authors(local)
    author_topic = np.zeros((shard_authors.size, topics), dtype=np.int32)
    first = np.repeat(authors.document_labels[:-1], shard.lengths)
    np.add.at(author_topic, (place[first + assignments.author], assignments.topic), 1)
    parts = {
        "word_topic": count_words(shard, assignments.topic, topics),
        "label_topic": change(author_topic, "label", "topic"),
    }
    return local, Delta(parts, {**delta_ids(shard, topics), "label": shard_authors})


MAX_AUTHORS = 1 << 16  # Authors of a document that 16 bits of a token can name
# Tokens of an author from whom documents are simulated: counts are so large that the prior does not show
SIMULATED_AUTHOR_TOKENS = 1e12


class AuthorTopicOptions(LabelOptions, title="author-topic model (labels are authors), collapsed Gibbs sampling"):
    """Options of the family."""

    topics: int = Field(ge=1, le=65_535, description="number of topics K")


class AuthorTopic(GibbsFamily[AuthorTopicOptions, AuthorTopicGlobalState, AuthorLocal]):
    """The author-topic model."""

    global_state_type, local_type, documents_type = AuthorTopicGlobalState, AuthorLocal, AuthorDocuments
    uses_labels = True
    Options = AuthorTopicOptions
    requires_labels = True

    def initialise(self, summary: Summary, stream: Stream) -> AuthorTopicGlobalState:
        """Return the global state before any document was swept; raise `OptionError` if there are no labels."""
        table = require_labels(summary)
        if table.max_labels > MAX_AUTHORS:
            raise OptionError(
                f"a document has {table.max_labels} labels; expected {MAX_AUTHORS} at most: use fewer fields of labels"
            )
        return AuthorTopicGlobalState(
            vocabulary=float(summary.words),
            beta=self.options.eta * summary.words,
            topic=np.zeros(self.options.topics, dtype=np.int64),
            alpha=self.options.alpha,
            label_table=table.packed(),
            label_topic=np.zeros((len(table.names) + 1, self.options.topics), dtype=np.int64),
        )

    def carry(
        self,
        global_state: AuthorTopicGlobalState,
        known: AuthorTopicGlobalState,
        before: AuthorTopicOptions,
    ) -> tuple[AuthorTopicGlobalState, int] | None:
        """Return the global state with the authors and topics of another run, if its authors are the same."""
        if self.options.topics != before.topics or global_state.labels.names != known.labels.names:
            return None
        return global_state, self.options.topics

    def footprint(self, summary: Summary) -> Footprint:
        """Return the memory of a state: 4 bytes per token, 4 per label of a document, and 16."""
        memory = footprint(summary, self.options.topics)
        pair, document = 2.0 * memory.pair, 4.0 * max(mean_labels(summary), 1.0) + 16.0
        authors = 16.0 * self.options.topics * (label_count(summary) + 1)
        chunk = 2.0 * (pair * summary.pairs + document * summary.documents) + authors
        return replace(memory, pair=pair, document=document, chunk=chunk)

    def update(self, global_state: AuthorTopicGlobalState, delta: Delta, stream: Stream) -> AuthorTopicGlobalState:
        """Return the global state with the changes of the counts."""
        return super().update(global_state, delta, stream).with_authors(delta)

    def objective(self, global_state: AuthorTopicGlobalState, delta: Delta) -> dict[str, float]:
        """Return log p(w, z, a) of the sample, in nats, theta and phi summed out.

        -sum_d n_d log A_d + sum_a log G(K alpha)/G(K alpha + n_a) + sum_ak log G(alpha + n_ak)/G(alpha), A_d being the
        number of a document's authors, and what words add as in LDA.
        """
        sums, alpha = delta.read(AuthorSums), global_state.alpha
        if sums is None:
            return {}
        authors, concentration = global_state.with_authors(delta).label_topic, global_state.concentration
        positive, author_tokens = authors[authors > 0], authors.sum(axis=1)
        by_topic = gammaln(alpha + positive) - gammaln(alpha)
        by_author = gammaln(concentration) - gammaln(concentration + author_tokens)
        words = topics_falling(global_state, delta) + sums.word_rising
        return {"objective": sums.author_choices + float(by_topic.sum()) + float(by_author.sum()) + words}

    def label_table(self, global_state: AuthorTopicGlobalState) -> LabelTable:
        """Return the labels of the training corpus, which are the authors."""
        return global_state.labels

    def draw_model(self, summary: Summary, stream: Stream) -> tuple[Arrays, AuthorTopicGlobalState]:
        """Draw topics, and the proportions of eight authors and one without a name, for simulation."""
        global_state = self.initialise(replace(summary, labels=simulated_table()), stream)
        tokens = np.full(self.options.topics, SIMULATED_TOKENS / self.options.topics)
        generator, authors = stream.at(purpose="simulate authors").generator(), len(global_state.label_topic)
        theta = generative.draw_proportions(np.full(self.options.topics, self.options.alpha), authors, generator)
        topics = generative.draw_topics(summary.words, tokens, self.options.eta * summary.words, stream)
        label_topic = np.rint(SIMULATED_AUTHOR_TOKENS * theta).astype(np.int64)
        return topics, replace(global_state, beta=SIMULATED_CONCENTRATION, topic=tokens, label_topic=label_topic)

    def simulate(
        self, topics: Arrays, global_state: AuthorTopicGlobalState, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents, Vector]:
        """Draw documents with authors, and their proportions, the means of the authors'."""
        generator, names = stream.generator(), global_state.labels.names
        has = draw_labels(len(names), documents, generator)
        author = global_state.label_topic / global_state.label_topic.sum(axis=1, keepdims=True)
        weight = np.column_stack([has, ~has.any(axis=1)]).astype(np.float64)
        theta = weight @ author / weight.sum(axis=1, keepdims=True)
        drawn = generative.draw_bags(topics, int(global_state.vocabulary), theta, tokens, generator)
        return with_labels(drawn, has, names), theta

    def kernels(self, global_state: AuthorTopicGlobalState) -> Sequence[AnyKernel]:
        """Return the kernels that a fit calls in every iteration."""
        return (sweep_authors, prediction.pair_probability, word_rising)

    def fold_in_kernels(self, global_state: AuthorTopicGlobalState) -> Sequence[AnyKernel]:
        """Return the kernels that `fold_in` and `predict` call."""
        return (prediction.pair_probability,)

    def start(
        self,
        shard: Shard,
        rows: SampledRows,
        global_state: AuthorTopicGlobalState,
        stream: Stream,
        warm: Arrays | None = None,
    ) -> tuple[AuthorLocal, Delta]:
        """Draw each token's first topic, uniformly or by another run's proportions and topics, and its author."""
        topics, authors = global_state.topic.size, global_state.authors_of(shard)
        token_topic = draw_initial_topics(shard, topics, topics, stream, warm)
        sizes = np.repeat(np.diff(authors.document_labels), shard.lengths)
        numbers = stream.at(purpose=f"{stream.purpose} authors").generator().random(shard.tokens)
        return _begin(shard, TokenAssignments(token_topic, (numbers * sizes).astype(np.uint16)), authors, topics)

    def continue_from(
        self,
        shard: Shard,
        saved: Arrays,
        rows: SampledRows,
        global_state: AuthorTopicGlobalState,
    ) -> tuple[AuthorLocal, Delta]:
        """Continue from the topics and authors of tokens that another run saved."""
        assignments = TokenAssignments(np.array(saved["token_topic"]), np.array(saved["token_author"]))
        return _begin(shard, assignments, global_state.authors_of(shard), global_state.topic.size)

    def sweep(
        self, shard: Shard, local: AuthorLocal, rows: SampledRows, global_state: AuthorTopicGlobalState, stream: Stream
    ) -> tuple[AuthorLocal, Delta]:
        """Return the result of a sweep over a shard."""
        began, priors = time.perf_counter(), global_state.priors
        lists, shard_authors, place = _own_authors(local)
        before = np.ascontiguousarray(global_state.label_topic[shard_authors], dtype=np.int32)
        after, word_topic = before.copy(), np.array(rows.word_topic)
        swept = TokenAssignments(np.array(local.token_topic), np.array(local.token_author))
        sweep_authors(
            document_pairs(shard),
            stream.key(),
            DocumentAuthors(lists, place.astype(np.int32)),
            global_state.alpha,
            WordPrior(priors.word, priors.total),
            TopicCounts(global_state.topic.astype(np.float64), word_topic),
            after,
            swept,
        )
        parts = {
            "word_topic": word_changes(rows.word_topic, word_topic),
            "label_topic": change(after - before, "label", "topic"),
            "author_choices": fresh(-float((shard.lengths * special.log(np.diff(lists))).sum())),
            **corpus_sums(shard),
        }
        ids = {**delta_ids(shard, word_topic.shape[1]), "label": shard_authors}
        seconds = {"kernel": time.perf_counter() - began}
        return replace(local, token_topic=swept.topic, token_author=swept.author), Delta(parts, ids, seconds)

    def advance_global_state(
        self, global_state: AuthorTopicGlobalState, delta: Delta, changes: Counts
    ) -> AuthorTopicGlobalState:
        """Return the global state after the changes of a shard."""
        return super().advance_global_state(global_state, delta, changes).with_authors(delta)

    def fold_in(
        self,
        shard: Shard,
        rows: SampledRows,
        global_state: AuthorTopicGlobalState,
        stream: Stream,
    ) -> AuthorLocal:
        """Return the authors of unseen documents, which determine the proportions whatever the words."""
        return AuthorLocal(global_state.authors_of(shard), shard.lengths.astype(np.int64))

    def predict(
        self, heldout: Shard, local: AuthorDocuments, rows: SampledRows, global_state: AuthorTopicGlobalState
    ) -> Mapping[str, Any]:
        """Return each held-out pair's probability sum_k theta_dk phi_kw, by the last sample."""
        phi = self.word_probability(rows, global_state)
        return {"probability": pair_probability(heldout, _mean_proportions(local, global_state), phi, 0.0)}

    def infer(self, local: AuthorDocuments, global_state: AuthorTopicGlobalState) -> Mapping[str, Any]:
        """Return the documents' proportions, the means of their authors'."""
        return {"document_topic": _mean_proportions(local, global_state)}

    def document_lengths(self, local: AuthorDocuments) -> Vector:
        """Return the tokens of each document."""
        return np.asarray(local.document_tokens, dtype=np.float64)
