"""The author-topic model by collapsed Gibbs sampling (Rosen-Zvi, Griffiths, Steyvers and Smyth 2004).

Labels are authors. Each token has one of its document's, all equally likely, and a topic of this author: theta_a ~
Dir(alpha, ..., alpha), phi_k ~ Dir(eta, ..., eta). Documents without a known author share one without a name. With
several shards as AD-LDA.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from collapsium.pipeline.families import generative
from collapsium.pipeline.families.base import Footprint, Summary
from collapsium.pipeline.families.gibbs.label_topics import (
    LabelOptions,
    draw_labels,
    label_count,
    mean_labels,
    require_labels,
    simulated_table,
    with_labels,
)
from collapsium.pipeline.families.gibbs.sampler import (
    SIMULATED_CONCENTRATION,
    SIMULATED_TOKENS,
    GibbsFamily,
    footprint,
    topics_falling,
)
from collapsium.storage.corpus.label_index import LabelTable
from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.gibbs.author_topic import AuthorSums, AuthorTopicGlobalState, AuthorTopicShardModel
from collapsium.workers.families.gibbs.states import Vector
from collapsium.workers.special_functions import gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

MAX_AUTHORS = 1 << 16  # Authors of a document that 16 bits of a token can name
# Tokens of an author from whom documents are simulated: counts are so large that the prior does not show
SIMULATED_AUTHOR_TOKENS = 1e12


class AuthorTopicOptions(LabelOptions, title="author-topic model (labels are authors), collapsed Gibbs sampling"):
    """Options of the family."""

    topics: int = Field(ge=1, le=65_535, description="number of topics K")


class AuthorTopic(GibbsFamily[AuthorTopicOptions, AuthorTopicGlobalState]):
    """The author-topic model."""

    shard_model = AuthorTopicShardModel
    Options = AuthorTopicOptions
    requires_labels = True

    def initialise(self, summary: Summary, options: AuthorTopicOptions, stream: Stream) -> AuthorTopicGlobalState:
        """Return the global state before any document was swept; raise `OptionError` if there are no labels."""
        table = require_labels(summary)
        if table.most > MAX_AUTHORS:
            raise OptionError(
                f"a document has {table.most} labels; expected {MAX_AUTHORS} at most: take fewer fields of labels"
            )
        return AuthorTopicGlobalState(
            vocabulary=float(summary.words),
            beta=options.eta * summary.words,
            topic=np.zeros(options.topics, dtype=np.int64),
            alpha=options.alpha,
            label_table=table.packed(),
            label_topic=np.zeros((len(table.names) + 1, options.topics), dtype=np.int64),
        )

    def carry(
        self,
        global_state: AuthorTopicGlobalState,
        known: AuthorTopicGlobalState,
        options: AuthorTopicOptions,
        before: AuthorTopicOptions,
    ) -> tuple[AuthorTopicGlobalState, int] | None:
        """Return the global state with the authors and topics of another run, if its authors are the same."""
        if options.topics != before.topics or global_state.labels.names != known.labels.names:
            return None
        return global_state, options.topics

    def footprint(self, summary: Summary, options: AuthorTopicOptions) -> Footprint:
        """Return the memory of a state: 4 bytes a token; 4 a label of a document, and 16."""
        memory = footprint(summary, options.topics)
        pair, document = 2.0 * memory.pair, 4.0 * max(mean_labels(summary), 1.0) + 16.0
        authors = 16.0 * options.topics * (label_count(summary) + 1)
        chunk = 2.0 * (pair * summary.pairs + document * summary.documents) + authors
        return replace(memory, pair=pair, document=document, chunk=chunk)

    def update(
        self, global_state: AuthorTopicGlobalState, delta: Delta, options: AuthorTopicOptions, stream: Stream
    ) -> AuthorTopicGlobalState:
        """Return the global state with the changes of the counts."""
        return super().update(global_state, delta, options, stream).with_authors(delta)

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

    def draw_model(
        self, summary: Summary, options: AuthorTopicOptions, stream: Stream
    ) -> tuple[Arrays, AuthorTopicGlobalState]:
        """Draw topics, and the proportions of eight authors and one without a name, for simulation."""
        global_state = self.initialise(replace(summary, labels=simulated_table()), options, stream)
        tokens = np.full(options.topics, SIMULATED_TOKENS / options.topics)
        generator, authors = stream.at(purpose="simulate authors").generator(), len(global_state.label_topic)
        theta = generative.draw_proportions(np.full(options.topics, options.alpha), authors, generator)
        topics = generative.draw_topics(summary.words, tokens, options.eta * summary.words, stream)
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
