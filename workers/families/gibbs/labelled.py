"""What samplers share, beside a shard, whose documents may have only the topics of their labels, and the background's.

theta_d ~ Dir(a, ..., a) over the topics that document d may have, phi_k ~ Dir(b, ..., b). Label l has the topics l N to
l N + N - 1; the background has the last ones. A document without labels, or with such alone as training did not have,
may have the background's topics or, where there is no background, all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.label_index import LabelTable, numbered
from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.delta import Arrays, Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb import common as collapsed
from collapsium.workers.families.cvb.common import FOLD_IN_SWEEPS
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.gibbs import common as gibbs
from collapsium.workers.families.gibbs.common import Priors, Topics
from collapsium.workers.kernels.gibbs import topics as gibbs_kernels
from collapsium.workers.kernels.gibbs.labels import fold_in_labels, label_probability, sweep_labels
from collapsium.workers.kernels.gibbs.records import (
    DocumentLabels,
    DocumentTopics,
    FixedTopics,
    OutDocumentTopics,
    TopicCounts,
    WordPrior,
)
from collapsium.workers.kernels.jit import Kernel
from collapsium.workers.special_functions import gammaln

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Ints = npt.NDArray[np.int64]
Lists = tuple[Ints, npt.NDArray[np.int32]]


def priors(globals: Arrays) -> Priors:
    """Take the Dirichlet parameters from the globals."""
    alpha, beta = float(globals["alpha"]), float(globals["beta"])
    topics = np.full(globals["topic"].size, alpha)
    return Priors(topics, float(topics.sum()), beta / float(globals["vocabulary"]), beta)


def label_lists(shard: Shard, globals: Arrays) -> Lists:
    """Return where each document's labels begin, and their numbers in the training corpus's table."""
    table = LabelTable.unpacked(globals["label_table"])
    found = numbered(shard.labels, table, shard.documents)
    return found.offsets, found.label


@dataclass(frozen=True)
class Allowed:
    """The topics that documents may have.

    Attributes
    ----------
    lists : numpy.ndarray of int64, shape (documents + 1,)
        Where each document's labels begin.
    label : numpy.ndarray of int32
        Their numbers.
    each, background, topics : int
        Topics of each label, of the background, and of all together.
    """

    lists: Ints
    label: npt.NDArray[np.int32]
    each: int
    background: int
    topics: int

    @staticmethod
    def of(lists: Lists, globals: Arrays) -> Allowed:
        """Make it of documents' labels."""
        sizes = int(globals["label_topics"]), int(globals["background_topics"]), globals["topic"].size
        return Allowed(*lists, *sizes)

    @staticmethod
    def kept(local: Arrays, globals: Arrays) -> Allowed:
        """Make it of what a local state keeps."""
        return Allowed.of((np.asarray(local["document_labels"]), np.asarray(local["document_label"])), globals)

    @property
    def labels(self) -> DocumentLabels:
        """The documents' labels as kernels take them."""
        return DocumentLabels(self.lists, self.label, self.each, self.background)

    def local(self) -> dict[str, npt.NDArray[Any]]:
        """Return what a local state keeps of it."""
        return {"document_labels": self.lists, "document_label": self.label}

    def sizes(self) -> Ints:
        """Return how many topics each document may have."""
        own = np.diff(self.lists) * self.each + self.background
        sizes: Ints = np.where(own > 0, own, self.topics)
        return sizes

    def topic(self, document: Ints, place: Ints) -> Ints:
        """Return the topics at some places of what documents may have."""
        own = np.diff(self.lists)[document] * self.each
        entry = np.minimum(self.lists[document] + place // self.each, self.label.size)
        of_label = np.append(self.label, 0)[entry].astype(np.int64) * self.each + place % self.each
        others = place - own + (self.topics - self.background if self.background else 0)
        found: Ints = np.where(place < own, of_label, others)
        return found

    def flat(self) -> tuple[Ints, Ints, Ints]:
        """Return where each document's topics begin and, of each of them, the document and the topic."""
        starts = np.concatenate([[0], np.cumsum(self.sizes())])
        document = np.repeat(np.arange(self.lists.size - 1), np.diff(starts))
        return starts, document, self.topic(document, np.arange(starts[-1]) - starts[document])

    def has(self, document: Ints, topic: Ints) -> npt.NDArray[np.bool_]:
        """Tell whether documents may have some topics."""
        width = self.topics + 1
        owner = np.repeat(np.arange(self.lists.size - 1), np.diff(self.lists))
        found = np.isin(document * width + topic // self.each, owner * width + self.label)
        free = np.full(self.lists.size - 1, self.background == 0) & (np.diff(self.lists) == 0)
        behind = topic >= self.topics - self.background
        may: npt.NDArray[np.bool_] = found | behind | free[document]
        return may


def kernels(globals: Arrays) -> Sequence[Kernel[..., Any]]:
    """Name the kernels that a fit calls in every iteration."""
    return (sweep_labels, label_probability, gibbs_kernels.list_documents, gibbs_kernels.word_rising)


def blank(words: int, globals: Arrays) -> Arrays:
    """Make the rows of `words` words before any document has been seen."""
    return gibbs.blank(words, globals["topic"].size)


def start(
    shard: Shard,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
    warm: Arrays | None = None,
) -> tuple[Arrays, Delta]:
    """Draw each token's first topic from those that its document may have, all as likely.

    Parameters
    ----------
    shard : Shard
        The documents.
    rows : Arrays
        Not used.
    globals : Arrays
        As `initialise` made them.
    stream : Stream
        Addressed to the shard.
    warm : Arrays, optional
        Another run's proportions and topics, by which they are drawn instead.

    Returns
    -------
    local : Arrays
        ``token_topic``, the documents' lists, and their labels.
    delta : Delta
        Changes from nothing.

    Raises
    ------
    OptionError
        The other run's topics are not those of the same labels.
    """
    allowed = Allowed.of(label_lists(shard, globals), globals)
    owner = np.repeat(np.arange(shard.documents), shard.lengths)
    place = (stream.generator().random(owner.size) * allowed.sizes()[owner]).astype(np.int64)
    token_topic = allowed.topic(owner, place).astype(np.uint16)
    if warm is not None:
        if not globals["carried"]:
            raise OptionError(
                "--warm: a family whose topics are those of labels begins only from a run of its own with the same "
                "labels, and as many topics of each"
            )
        drawn = gibbs.drawn(shard, allowed.topics, allowed.topics, stream, warm)
        # Where the other run had no token of any topic that a document may have, the draw was even over all.
        token_topic = np.where(allowed.has(owner, drawn.astype(np.int64)), drawn, token_topic)
    return _begun(shard, token_topic, allowed, globals)


def take(shard: Shard, kept: Arrays, rows: Arrays, globals: Arrays) -> tuple[Arrays, Delta]:
    """Go on from the topics that another run kept of the shard's tokens."""
    return _begun(shard, kept["token_topic"], Allowed.of(label_lists(shard, globals), globals), globals)


def _begun(shard: Shard, token_topic: Topics, allowed: Allowed, globals: Arrays) -> tuple[Arrays, Delta]:
    local, delta = gibbs.begun(shard, token_topic, allowed.topics, priors(globals).topics)
    return {**local, **allowed.local()}, delta


def sweep(
    shard: Shard,
    local: Arrays,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
) -> tuple[Arrays, Delta]:
    """Pass once over a shard.

    Parameters
    ----------
    shard : Shard
        The documents.
    local : Arrays
        As `start` or a sweep gave it.
    rows : Arrays
        ``word_topic`` of the shard's words.
    globals : Arrays
        As the iteration began.
    stream : Stream
        Addressed to the shard.

    Returns
    -------
    local : Arrays
        The new state.
    delta : Delta
        Changes by word and topic; fresh ``rising``, sum_dk log G(a + n_dk) / G(a), ``falling``, the sum of log G(A_d) /
        G(A_d + n_d), A_d being a times the topics that the document may have, ``documents`` and ``tokens``.
    """
    began, given = time.perf_counter(), priors(globals)
    allowed = Allowed.kept(local, globals)
    token_topic, row = np.array(local["token_topic"]), np.array(rows["word_topic"])
    sweep_labels(
        document_pairs(shard),
        stream.key(),
        allowed.labels,
        float(globals["alpha"]),
        WordPrior(given.word, given.total),
        TopicCounts(globals["topic"].astype(np.float64), row),
        token_topic,
    )
    after, sums = gibbs.listed(shard, token_topic, given.topics, tables=False)
    whole = float(globals["alpha"]) * allowed.sizes()
    parts = {
        "word_topic": gibbs.changes(rows, row),
        **sums,
        "falling": fresh(float((gammaln(whole) - gammaln(whole + shard.lengths)).sum())),
        "documents": fresh(float(shard.documents)),
        "tokens": fresh(float(shard.tokens)),
    }
    ids = gibbs.ids_of(shard, allowed.topics)
    return {**after, **allowed.local()}, Delta(parts, ids, {"kernel": time.perf_counter() - began})


def advance(rows: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Arrays]:
    """Give the rows and globals with which a shard sweeps once more before its delta is reduced."""
    after, moved = gibbs.advance(rows, delta)
    return after, {**globals, "topic": globals["topic"] + moved}


def fold(block: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Delta]:
    """Add the rows of a delta to a block of the vocabulary."""
    return gibbs.fold(block, delta, priors(globals))


def finish(block: Arrays, globals: Arrays) -> Arrays:
    """Give the rows that a finished model keeps."""
    return block


def settle(shard: Shard, rows: Arrays, globals: Arrays, stream: Stream) -> Arrays:
    """Fit the counts of unseen documents, over the topics that their labels let them have, by zeroth-order sweeps."""
    allowed = Allowed.of(label_lists(shard, globals), globals)
    starts, _, topic = allowed.flat()
    document_topics = OutDocumentTopics(
        starts, np.empty(topic.size, dtype=np.uint16), np.empty(topic.size, dtype=np.float32)
    )
    fold_in_labels(
        document_pairs(shard),
        allowed.labels,
        fixed_topics(rows, globals),
        float(globals["alpha"]),
        FOLD_IN_SWEEPS,
        document_topics,
    )
    return {
        "document_lists": document_topics.offsets,
        "document_topics": document_topics.topic,
        "document_counts": document_topics.counts,
        "document_rest": np.zeros(shard.documents, dtype=np.float32),
        **allowed.local(),
    }


def predict(heldout: Shard, local: Arrays, rows: Arrays, globals: Arrays) -> Arrays:
    """Give each held-out pair's probability sum_k theta_dk phi_kw, of the last sample."""
    probability = np.empty(heldout.pairs)
    names = ("document_lists", "document_topics", "document_counts")
    label_probability(
        document_pairs(heldout),
        Allowed.kept(local, globals).labels,
        fixed_topics(rows, globals),
        float(globals["alpha"]),
        DocumentTopics(*(np.asarray(local[name]) for name in names)),
        probability,
    )
    return {"probability": probability}


def fixed_topics(rows: Arrays, globals: Arrays) -> FixedTopics:
    """Return the topics of the last sample as kernels take them."""
    given = priors(globals)
    word_topic = np.ascontiguousarray(rows["word_topic"], dtype=np.float32)
    return FixedTopics(word_topic, given.word, 1.0 / (given.total + gibbs.moments(globals)[0]))


def probabilities(rows: Arrays, globals: Arrays) -> Arrays:
    """Give phi_kw of the words at hand, of the last sample."""
    given = priors(globals).over(len(rows["word_topic"]))
    return {"word_topic": collapsed.word_probability(rows, gibbs.moments(globals), given)}


def infer(local: Arrays, globals: Arrays) -> Arrays:
    """Give theta_dk = (a + n_dk) / (A_d + n_d) over the topics that a document may have; it has 0 of the others."""
    allowed, alpha = Allowed.kept(local, globals), float(globals["alpha"])
    theta = np.zeros((allowed.lists.size - 1, allowed.topics))
    _, document, topic = allowed.flat()
    theta[document, topic] = alpha
    owner = np.repeat(np.arange(len(theta)), np.diff(local["document_lists"]))
    theta[owner, local["document_topics"]] += local["document_counts"]
    theta /= theta.sum(axis=1, keepdims=True)
    return {"document_topic": theta}


def lengths(local: Arrays) -> Arrays:
    """Give the tokens of each document."""
    return {"document_tokens": collapsed.lengths(local)}
