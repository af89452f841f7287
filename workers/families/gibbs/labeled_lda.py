"""Labeled LDA (Ramage, Hall, Nallapati and Manning 2009) and partially labeled LDA (Ramage, Manning and Dumais 2011).

In labeled LDA each label is a topic, and a document's tokens have the topics of its labels; a document without labels
may have all. In partially labeled LDA each label has several topics, and so has a background that all documents share.
Both are fitted by collapsed Gibbs sampling:

theta_d ~ Dir(alpha, ..., alpha) over the topics that document d may have (`AllowedTopics`), phi_k ~ Dir(eta, ..., eta).
With several shards this is AD-LDA.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from collapsium.storage.corpus.labels import LabelTable
from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.annotations import ascending, numbers
from collapsium.workers.arrays.delta import Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays, CheckContext, LocalState
from collapsium.workers.families import generative
from collapsium.workers.families.dirichlet import FOLD_IN_SWEEPS
from collapsium.workers.families.document_entries import LabelBytes, SampledTokens, document_pairs, table_faults
from collapsium.workers.families.family import Description, Footprint, Summary
from collapsium.workers.families.gibbs.sampler import (
    SIMULATED_CONCENTRATION,
    SIMULATED_TOKENS,
    GibbsFamily,
    corpus_sums,
    count_documents,
    count_words,
    delta_ids,
    draw_initial_topics,
    footprint,
    word_changes,
)
from collapsium.workers.families.gibbs.states import (
    MAX_TOPICS,
    ActiveTopics,
    Ints,
    LabelLists,
    LabelOptions,
    SampledRows,
    SymmetricGlobalState,
    TokenTopics,
    Vector,
    draw_labels,
    label_count,
    mean_labels,
    require_labels,
    simulated_table,
    with_labels,
)
from collapsium.workers.kernels.gibbs.consistency import find_disallowed
from collapsium.workers.kernels.gibbs.labels import fold_in_labels, label_probability, sweep_labels
from collapsium.workers.kernels.gibbs.topics import (
    DocumentLabels,
    DocumentTopics,
    FixedTopics,
    TopicCounts,
    WordPrior,
    list_documents,
    word_rising,
)
from collapsium.workers.kernels.jit import AnyKernel
from collapsium.workers.special_functions import gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents, Shard


class TopicSizes(NamedTuple):
    """Numbers of topics: first the topics of each label, then the background's."""

    per_label: int  # N; label l has the topics l N to l N + N - 1
    background: int  # Topics that all documents may have

    def topics(self, labels: int) -> int:
        """Return the number of all topics, with a number of labels."""
        return labels * self.per_label + self.background


@dataclass(frozen=True)
class AllowedTopics:
    """Topics that documents may have: their labels' and the background's.

    A document without labels that training had may have the background's topics or, where there are none, all.
    """

    labels: LabelLists  # Labels of the documents
    sizes: TopicSizes  # Topics of a label, and of the background
    topics: int  # Number of all topics

    @property
    def record(self) -> DocumentLabels:
        """The documents' labels as kernels take them."""
        return DocumentLabels(
            np.asarray(self.labels.document_labels), np.asarray(self.labels.document_label), *self.sizes
        )

    def counts(self) -> Ints:
        """Return how many topics each document may have."""
        allowed = np.diff(self.labels.document_labels) * self.sizes.per_label + self.sizes.background
        counts: Ints = np.where(allowed > 0, allowed, self.topics)
        return counts

    def topic(self, document: Ints, index: Ints) -> Ints:
        """Return topics by their index among those that a document may have."""
        per_label, background = self.sizes
        first, label = self.labels.document_labels, self.labels.document_label
        label_topics = np.diff(first)[document] * per_label
        entry = np.minimum(first[document] + index // per_label, label.size)
        of_label = np.append(label, 0)[entry].astype(np.int64) * per_label + index % per_label
        unlabelled = index - label_topics + (self.topics - background if background else 0)
        topic: Ints = np.where(index < label_topics, of_label, unlabelled)
        return topic

    def flat(self) -> tuple[Ints, Ints, Ints]:
        """Return the index of each document's first topic, and the document and topic of each entry."""
        starts = np.concatenate([[0], np.cumsum(self.counts())])
        document = np.repeat(np.arange(starts.size - 1), np.diff(starts))
        return starts, document, self.topic(document, np.arange(starts[-1]) - starts[document])

    def contain(self, document: Ints, topic: Ints) -> npt.NDArray[np.bool_]:
        """Return whether each of some documents may have each of some topics."""
        width, sizes = self.topics + 1, np.diff(self.labels.document_labels)
        owner = np.repeat(np.arange(sizes.size), sizes)
        of_label = np.isin(document * width + topic // self.sizes.per_label, owner * width + self.labels.document_label)
        unrestricted = (sizes == 0) & (self.sizes.background == 0)
        in_background = topic >= self.topics - self.sizes.background
        allowed: npt.NDArray[np.bool_] = of_label | in_background | unrestricted[document]
        return allowed


@dataclass(frozen=True)
class LabelTopicsGlobalState(SymmetricGlobalState):
    """Global state of topics of labels."""

    label_table: LabelBytes  # The training corpus's labels
    # Topics of each label, and of the background
    label_topics: Annotated[int, numbers("", 1, MAX_TOPICS)]
    background_topics: Annotated[int, numbers("", 0, MAX_TOPICS)]
    carried: bool  # Whether the fit starts from one whose topics belong to the same labels
    single_topics: bool  # Whether each document may have one topic alone

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of the labels, and of the number of topics: the labels' and the background's."""
        yield from super().faults(context)
        yield from table_faults(self.label_table, context)
        expected = self.sizes.topics(context.sizes["label"])
        if self.topic.size != expected:
            yield f"expected {expected} topics, found {self.topic.size}"

    @property
    def labels(self) -> LabelTable:
        """The training corpus's labels."""
        return LabelTable.unpacked(self.label_table)

    @property
    def sizes(self) -> TopicSizes:
        """Topics of each label, and of the background."""
        return TopicSizes(self.label_topics, self.background_topics)

    def allowed(self, labels: LabelLists) -> AllowedTopics:
        """Return the topics that documents with some labels may have."""
        return AllowedTopics(labels, self.sizes, self.topic.size)


@dataclass(frozen=True)
class LabelDocuments(LocalState):
    """Documents with labels."""

    active: ActiveTopics  # Their topics
    labels: LabelLists  # Their labels

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the fault of labels that do not ascend."""
        yield from super().faults(context)
        yield from ascending(self.labels, "document_labels", "document_label")


@dataclass(frozen=True)
class LabelLocal(LabelDocuments, SampledTokens):
    """Local state of a shard."""

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the fault of topics that their documents may not have."""
        yield from super().faults(context)
        if context.shard is None:
            return
        allowed, disallowed = context.global_state.allowed(self.labels), np.zeros(1, dtype=np.int64)
        token_topic = np.asarray(self.token_topic)
        find_disallowed(allowed.record, context.shard.lengths, token_topic, allowed.topics, disallowed)
        if disallowed[0] >= 0:
            yield "expected topics that the labels of the document have in 'token_topic'"


def _begin(shard: Shard, token_topic: TokenTopics, allowed: AllowedTopics) -> tuple[LabelLocal, Delta]:
    """Return a shard's first local state, and its counts as changes from zero."""
    active, _ = count_documents(shard, token_topic, np.ones(allowed.topics), tables=False)
    parts = {"word_topic": count_words(shard, token_topic, allowed.topics)}
    return LabelLocal(active, allowed.labels, token_topic=token_topic), Delta(parts, delta_ids(shard, allowed.topics))


def _fixed_topics(rows: SampledRows, global_state: LabelTopicsGlobalState) -> FixedTopics:
    """Return the topics of the last sample as kernels take them."""
    priors, word_topic = global_state.priors, np.ascontiguousarray(rows.word_topic, dtype=np.float32)
    return FixedTopics(word_topic, priors.word, 1.0 / (priors.total + np.asarray(global_state.topic, dtype=np.float64)))


class LabelTopicsOptions(LabelOptions):
    """Options from which the numbers of topics follow."""

    @property
    @abstractmethod
    def sizes(self) -> TopicSizes:
        """Topics of each label, and of the background."""


LabelTopicsOptionsT = TypeVar("LabelTopicsOptionsT", bound=LabelTopicsOptions)


class LabelTopicsFamily(GibbsFamily[LabelTopicsOptionsT, LabelTopicsGlobalState, LabelLocal]):
    """Family whose topics belong to labels, and to a background that all documents share."""

    global_state_type, local_type, documents_type = LabelTopicsGlobalState, LabelLocal, LabelDocuments
    uses_labels = True
    requires_labels = True
    # Its topics belong to labels, not to an initialisation.
    starts = ()

    def initialise(self, summary: Summary, stream: Stream) -> LabelTopicsGlobalState:
        """Return the global state before any document was swept."""
        table, sizes = require_labels(summary), self.options.sizes
        topics = sizes.topics(len(table.names))
        if topics > MAX_TOPICS:
            raise OptionError(
                f"{len(table.names)} labels of {sizes.per_label} topics each, and {sizes.background} of the "
                f"background, are {topics} topics; expected {MAX_TOPICS} at most: use fewer fields (`labels`), or "
                "fewer topics of each label"
            )
        # A document without labels may have all topics.
        max_labels = table.max_labels if table.labelled == summary.documents else len(table.names)
        return LabelTopicsGlobalState(
            vocabulary=float(summary.words),
            beta=self.options.eta * summary.words,
            topic=np.zeros(topics, dtype=np.int64),
            alpha=self.options.alpha,
            label_table=table.packed(),
            label_topics=sizes.per_label,
            background_topics=sizes.background,
            carried=False,
            single_topics=sizes.topics(max_labels) == 1,
        )

    def carry(
        self,
        global_state: LabelTopicsGlobalState,
        known: LabelTopicsGlobalState,
        before: LabelTopicsOptionsT,
    ) -> tuple[LabelTopicsGlobalState, int] | None:
        """Return the global state with another run's topics, if it has the same labels."""
        if global_state.labels.names != known.labels.names or global_state.sizes != known.sizes:
            return None
        return replace(global_state, carried=True), global_state.topic.size

    def footprint(self, summary: Summary) -> Footprint:
        """Return the memory of a sampler of all topics, and 4 bytes per label of a document."""
        memory = footprint(summary, self.options.sizes.topics(label_count(summary)))
        labels = 4.0 * mean_labels(summary) + 8.0
        chunk = memory.chunk + 2.0 * labels * summary.documents
        return replace(memory, document=memory.document + labels, chunk=chunk)

    def cannot_change(self, global_state: LabelTopicsGlobalState) -> bool:
        """Return true if each document may have one topic alone."""
        return global_state.single_topics

    def label_table(self, global_state: LabelTopicsGlobalState) -> LabelTable:
        """Return the labels of the training corpus."""
        return global_state.labels

    def describe(self, block: SampledRows, global_state: LabelTopicsGlobalState, count: int) -> Description:
        """Describe the topics, the largest first, with their labels."""
        topics, titles = super().describe(block, global_state, count), _titles(global_state)
        return replace(topics, titles=tuple(titles[topic] for topic in topics.ids))

    def draw_model(self, summary: Summary, stream: Stream) -> tuple[Arrays, LabelTopicsGlobalState]:
        """Draw the topics of eight labels, and of the background, for simulation."""
        global_state = self.initialise(replace(summary, labels=simulated_table()), stream)
        tokens = np.full(global_state.topic.size, SIMULATED_TOKENS / global_state.topic.size)
        topics = generative.draw_topics(summary.words, tokens, self.options.eta * summary.words, stream)
        return topics, replace(global_state, beta=SIMULATED_CONCENTRATION, topic=tokens)

    def simulate(
        self, topics: Arrays, global_state: LabelTopicsGlobalState, documents: int, tokens: float, stream: Stream
    ) -> tuple[Documents, Vector]:
        """Draw documents with labels, theta_d ~ Dir(a, ..., a) over the topics that they may have, and theta.

        Returns documents: Without ids; theta: Their proportions
        """
        generator, names = stream.generator(), global_state.labels.names
        has = draw_labels(len(names), documents, generator)
        offsets = np.concatenate([[0], np.cumsum(has.sum(axis=1))])
        allowed = global_state.allowed(LabelLists(offsets, np.nonzero(has)[1].astype(np.int32)))
        prior: npt.NDArray[np.float64] = np.zeros((documents, allowed.topics))
        _, document, topic = allowed.flat()
        prior[document, topic] = global_state.alpha
        theta = generative.draw_proportions(prior, documents, generator)
        drawn = generative.draw_bags(topics, int(global_state.vocabulary), theta, tokens, generator)
        return with_labels(drawn, has, names), theta

    def kernels(self, global_state: LabelTopicsGlobalState) -> Sequence[AnyKernel]:
        """Return the kernels that a fit calls in every iteration."""
        return (sweep_labels, label_probability, list_documents, word_rising)

    def fold_in_kernels(self, global_state: LabelTopicsGlobalState) -> Sequence[AnyKernel]:
        """Return the kernels that `fold_in` and `predict` call."""
        return (fold_in_labels, label_probability)

    def start(
        self,
        shard: Shard,
        rows: SampledRows,
        global_state: LabelTopicsGlobalState,
        stream: Stream,
        warm: Arrays | None = None,
    ) -> tuple[LabelLocal, Delta]:
        """Draw each token's first topic from those that its document may have.

        Returns local: The local state; delta: Changes from nothing
        """
        allowed = global_state.allowed(LabelLists.from_shard(shard, global_state.labels))
        owner = np.repeat(np.arange(shard.documents), shard.lengths)
        index = (stream.generator().random(owner.size) * allowed.counts()[owner]).astype(np.int64)
        token_topic = allowed.topic(owner, index).astype(np.uint16)
        if warm is not None:
            if not global_state.carried:
                raise OptionError(
                    "a family whose topics belong to labels begins only from a run of the same family, with the same "
                    "labels and as many topics for each",
                    "warm",
                )
            drawn = draw_initial_topics(shard, allowed.topics, allowed.topics, stream, warm)
            # Where no topic that a document may have had a token in the other run, the draw was uniform over all.
            token_topic = np.where(allowed.contain(owner, drawn.astype(np.int64)), drawn, token_topic)
        return _begin(shard, token_topic, allowed)

    def continue_from(
        self,
        shard: Shard,
        saved: Arrays,
        rows: SampledRows,
        global_state: LabelTopicsGlobalState,
    ) -> tuple[LabelLocal, Delta]:
        """Continue from the topics of tokens that another run saved."""
        return _begin(
            shard, saved["token_topic"], global_state.allowed(LabelLists.from_shard(shard, global_state.labels))
        )

    def sweep(
        self, shard: Shard, local: LabelLocal, rows: SampledRows, global_state: LabelTopicsGlobalState, stream: Stream
    ) -> tuple[LabelLocal, Delta]:
        """Return the result of a sweep over a shard."""
        began, priors, allowed = time.perf_counter(), global_state.priors, global_state.allowed(local.labels)
        token_topic, word_topic = np.array(local.token_topic), np.array(rows.word_topic)
        sweep_labels(
            document_pairs(shard),
            stream.key(),
            allowed.record,
            global_state.alpha,
            WordPrior(priors.word, priors.total),
            TopicCounts(global_state.topic.astype(np.float64), word_topic),
            token_topic,
        )
        active, sums = count_documents(shard, token_topic, priors.topics, tables=False)
        concentration = global_state.alpha * allowed.counts()
        falling = gammaln(concentration) - gammaln(concentration + shard.lengths)
        parts = {
            "word_topic": word_changes(rows.word_topic, word_topic),
            **sums,
            "falling": fresh(float(falling.sum())),
            **corpus_sums(shard),
        }
        seconds = {"kernel": time.perf_counter() - began}
        return LabelLocal(active, local.labels, token_topic=token_topic), Delta(
            parts, delta_ids(shard, allowed.topics), seconds
        )

    def fold_in(
        self,
        shard: Shard,
        rows: SampledRows,
        global_state: LabelTopicsGlobalState,
        stream: Stream,
    ) -> LabelLocal:
        """Fit the counts of unseen documents over the topics that they may have, by zeroth-order sweeps."""
        allowed = global_state.allowed(LabelLists.from_shard(shard, global_state.labels))
        starts, _, topic = allowed.flat()
        topics, counts = np.empty(topic.size, dtype=np.uint16), np.empty(topic.size, dtype=np.float32)
        fold_in_labels(
            document_pairs(shard),
            allowed.record,
            _fixed_topics(rows, global_state),
            global_state.alpha,
            FOLD_IN_SWEEPS,
            DocumentTopics(starts, topics, counts),
        )
        return LabelLocal(ActiveTopics(starts, topics, counts), allowed.labels)

    def predict(
        self, heldout: Shard, local: LabelDocuments, rows: SampledRows, global_state: LabelTopicsGlobalState
    ) -> Mapping[str, Any]:
        """Return each held-out pair's probability sum_k theta_dk phi_kw, by the last sample."""
        probability = np.empty(heldout.pairs)
        label_probability(
            document_pairs(heldout),
            global_state.allowed(local.labels).record,
            _fixed_topics(rows, global_state),
            global_state.alpha,
            local.active.record,
            probability,
        )
        return {"probability": probability}

    def infer(self, local: LabelDocuments, global_state: LabelTopicsGlobalState) -> Mapping[str, Any]:
        """Return theta_dk = (a + n_dk) / (A_d + n_d) over the topics that a document may have; 0 of the others."""
        allowed, active = global_state.allowed(local.labels), local.active
        theta = np.zeros((allowed.labels.document_labels.size - 1, allowed.topics))
        _, document, topic = allowed.flat()
        theta[document, topic] = global_state.alpha
        theta[active.owner, active.document_topics] += active.document_counts
        theta /= theta.sum(axis=1, keepdims=True)
        return {"document_topic": theta}

    def document_lengths(self, local: LabelDocuments) -> Vector:
        """Return the tokens of each document."""
        return local.active.lengths()


def _titles(global_state: LabelTopicsGlobalState) -> list[str]:
    """Return the title of each topic: its label's name and, where that has several topics, its number."""
    titles: list[str] = []
    counts = [(name, global_state.sizes.per_label) for name in global_state.labels.titles()]
    for name, count in [*counts, ("(background)", global_state.sizes.background)]:
        titles += [name] if count == 1 else [f"{name} {number}" for number in range(1, count + 1)]
    return titles


class LabeledLdaOptions(LabelTopicsOptions, title="labeled LDA (one topic for each label), collapsed Gibbs sampling"):
    """Options of the family."""

    @property
    def sizes(self) -> TopicSizes:
        """Topics of each label, and of the background."""
        return TopicSizes(per_label=1, background=0)


class LabeledLda(LabelTopicsFamily[LabeledLdaOptions]):
    """Labeled LDA."""

    Options = LabeledLdaOptions


class PartiallyLabeledLdaOptions(
    LabelTopicsOptions, title="partially labeled LDA (several topics for each label), collapsed Gibbs sampling"
):
    """Options of the family."""

    topics_per_label: int = Field(2, ge=1, le=MAX_TOPICS, description="number of topics N of each label")
    background: int | None = Field(
        None,
        ge=0,
        le=MAX_TOPICS,
        description="number of topics that all documents share (default: the number of topics per label); with 0, "
        "documents without labels may use all topics",
    )

    @property
    def sizes(self) -> TopicSizes:
        """Topics of each label, and of the background."""
        background = self.topics_per_label if self.background is None else self.background
        return TopicSizes(self.topics_per_label, background)


class PartiallyLabeledLda(LabelTopicsFamily[PartiallyLabeledLdaOptions]):
    """Partially labeled LDA."""

    Options = PartiallyLabeledLdaOptions
