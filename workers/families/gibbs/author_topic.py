"""The author-topic model by collapsed Gibbs sampling, beside a shard (Rosen-Zvi, Griffiths, Steyvers and Smyth 2004).

Each token has one of its document's authors, all as likely, and a topic of this author: theta_a ~ Dir(alpha, ...,
alpha), phi_k ~ Dir(b, ..., b). Labels are the authors; documents without a known one share an author without a name,
the last.

n_ak, ``label_topic``, is global. A shard sweeps against that of the iteration's start plus its own changes, and sends
the changes of its own authors.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.label_index import LabelTable, numbered
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Arrays, Delta, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb import common as collapsed
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.gibbs import common as gibbs
from collapsium.workers.families.gibbs.common import Priors, Topics
from collapsium.workers.families.topic_arrays import AUTHOR_TOPIC_ARRAYS
from collapsium.workers.kernels.cvb import predict as predict_kernels
from collapsium.workers.kernels.gibbs import topics as gibbs_kernels
from collapsium.workers.kernels.gibbs.authors import sweep_authors
from collapsium.workers.kernels.gibbs.records import DocumentAuthors, TokenAssignments, TopicCounts, WordPrior
from collapsium.workers.kernels.jit import Kernel

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

ARRAYS = AUTHOR_TOPIC_ARRAYS

LABELLED = True


def priors(globals: Arrays) -> Priors:
    """Take the Dirichlet parameters from the globals."""
    alpha, beta = float(globals["alpha"]), float(globals["beta"])
    topics = np.full(globals["topic"].size, alpha)
    return Priors(topics, float(topics.sum()), beta / float(globals["vocabulary"]), beta)


def kernels(globals: Arrays) -> Sequence[Kernel[..., Any]]:
    """Name the kernels that a fit calls in every iteration."""
    return (sweep_authors, predict_kernels.pair_probability, gibbs_kernels.word_rising)


def blank(words: int, globals: Arrays) -> Arrays:
    """Make the rows of `words` words before any document has been seen."""
    return gibbs.blank(words, globals["topic"].size)


def authors_of(shard: Shard, globals: Arrays) -> dict[str, npt.NDArray[Any]]:
    """Return what a local state keeps of documents: their authors, one at least, and their lengths."""
    table = LabelTable.unpacked(globals["label_table"])
    found = numbered(shard.labels, table, shard.documents)
    alone = np.diff(found.offsets) == 0
    author = np.insert(found.label, found.offsets[:-1][alone], np.int32(len(table.names)))
    lists = found.offsets + np.concatenate([[0], np.cumsum(alone)])
    return {"document_labels": lists, "document_label": author, "document_tokens": shard.lengths.astype(np.int64)}


def start(
    shard: Shard,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
    warm: Arrays | None = None,
) -> tuple[Arrays, Delta]:
    """Draw each token's first topic, from all alike or by another run's proportions and topics, and its author."""
    topics, known = globals["topic"].size, authors_of(shard, globals)
    token_topic = gibbs.drawn(shard, topics, topics, stream, warm)
    sizes = np.repeat(np.diff(known["document_labels"]), shard.lengths)
    chance = stream.at(purpose=f"{stream.purpose} authors").generator().random(shard.tokens)
    return _begun(shard, token_topic, (chance * sizes).astype(np.uint16), known, topics)


def take(shard: Shard, kept: Arrays, rows: Arrays, globals: Arrays) -> tuple[Arrays, Delta]:
    """Go on from the topics and authors that another run kept of the shard's tokens."""
    known, topics = authors_of(shard, globals), globals["topic"].size
    return _begun(shard, kept["token_topic"], kept["token_author"], known, topics)


def _begun(
    shard: Shard, token_topic: Topics, token_author: Topics, known: dict[str, npt.NDArray[Any]], topics: int
) -> tuple[Arrays, Delta]:
    row = np.zeros((shard.words.size, topics), dtype=np.int32)
    np.add.at(row, (np.repeat(shard.position, shard.counts), token_topic), 1)
    own, place = np.unique(known["document_label"], return_inverse=True)
    author_topic = np.zeros((own.size, topics), dtype=np.int32)
    first = np.repeat(known["document_labels"][:-1], shard.lengths)
    np.add.at(author_topic, (place[first + token_author], token_topic), 1)
    parts = {"word_topic": change(row, "word", "topic"), "label_topic": change(author_topic, "label", "topic")}
    local = {"token_topic": np.array(token_topic), "token_author": np.array(token_author), **known}
    return local, Delta(parts, {**gibbs.ids_of(shard, topics), "label": own})


def sweep(
    shard: Shard,
    local: Arrays,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
) -> tuple[Arrays, Delta]:
    """Pass once over a shard; ``choosing`` is -sum_d n_d log A_d, A_d being the document's number of authors."""
    began, given = time.perf_counter(), priors(globals)
    names = ("document_labels", "document_label", "document_tokens")
    known = {name: np.asarray(local[name]) for name in names}
    own, place = np.unique(known["document_label"], return_inverse=True)
    before = np.ascontiguousarray(globals["label_topic"][own], dtype=np.int32)
    after, row = before.copy(), np.array(rows["word_topic"])
    token_topic, token_author = np.array(local["token_topic"]), np.array(local["token_author"])
    sweep_authors(
        document_pairs(shard),
        stream.key(),
        DocumentAuthors(known["document_labels"], place.astype(np.int32)),
        float(globals["alpha"]),
        WordPrior(given.word, given.total),
        TopicCounts(globals["topic"].astype(np.float64), row),
        after,
        TokenAssignments(token_topic, token_author),
    )
    parts = {
        "word_topic": gibbs.changes(rows, row),
        "label_topic": change(after - before, "label", "topic"),
        "choosing": fresh(-float((shard.lengths * special.log(np.diff(known["document_labels"]))).sum())),
        "documents": fresh(float(shard.documents)),
        "tokens": fresh(float(shard.tokens)),
    }
    ids = {**gibbs.ids_of(shard, row.shape[1]), "label": own}
    local = {"token_topic": token_topic, "token_author": token_author, **known}
    return local, Delta(parts, ids, {"kernel": time.perf_counter() - began})


def advance(rows: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Arrays]:
    """Give the rows and globals with which a shard sweeps once more before its delta is reduced."""
    after, moved = gibbs.advance(rows, delta)
    return after, {**globals, "topic": globals["topic"] + moved, "label_topic": counted(globals, delta)}


def counted(globals: Arrays, delta: Delta) -> npt.NDArray[np.int64]:
    """Return n_ak after a delta, shape (authors + 1, topics)."""
    found = np.array(globals["label_topic"])
    if "label_topic" in delta:
        found[delta.ids["label"]] += delta["label_topic"]
    return found


def fold(block: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Delta]:
    """Add the rows of a delta to a block of the vocabulary."""
    return gibbs.fold(block, delta, priors(globals))


def finish(block: Arrays, globals: Arrays) -> Arrays:
    """Give the rows that a finished model keeps."""
    return block


def settle(shard: Shard, rows: Arrays, globals: Arrays, stream: Stream) -> Arrays:
    """Name the authors of unseen documents: proportions are theirs, whatever the words."""
    return authors_of(shard, globals)


def predict(heldout: Shard, local: Arrays, rows: Arrays, globals: Arrays) -> Arrays:
    """Give each held-out pair's probability sum_k theta_dk phi_kw, of the last sample."""
    theta, probability = infer(local, globals)["document_topic"], np.empty(heldout.pairs)
    phi, none = probabilities(rows, globals)["word_topic"], np.zeros(heldout.documents)
    beyond = np.zeros(len(phi))
    predict_kernels.pair_probability(heldout.offsets, heldout.position, theta, phi, none, beyond, probability)
    return {"probability": probability}


def probabilities(rows: Arrays, globals: Arrays) -> Arrays:
    """Give phi_kw of the words at hand, of the last sample."""
    given = priors(globals).over(len(rows["word_topic"]))
    return {"word_topic": collapsed.word_probability(rows, gibbs.moments(globals), given)}


def infer(local: Arrays, globals: Arrays) -> Arrays:
    """Give the documents' proportions, the mean over their authors of theta_ak = (alpha + n_ak) / (K alpha + n_a)."""
    lists, author = np.asarray(local["document_labels"]), np.asarray(local["document_label"])
    own, place = np.unique(author, return_inverse=True)
    theta = globals["label_topic"][own] + float(globals["alpha"])
    theta /= theta.sum(axis=1, keepdims=True)
    sums = np.add.reduceat(theta[place], lists[:-1], axis=0)
    return {"document_topic": sums / np.diff(lists)[:, np.newaxis]}


def lengths(local: Arrays) -> Arrays:
    """Give the tokens of each document."""
    return {"document_tokens": np.asarray(local["document_tokens"], dtype=np.float64)}
