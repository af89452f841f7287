"""What families of collapsed Gibbs sampling share beside a shard: a topic for each token, and whole counts.

A pair with count c is c tokens, each with a topic of its own; in ``token_topic`` those of a pair stand side by side.
Within a shard each token is drawn given all others. Several shards sweep against the counts of the iteration's start
plus their own changes, whose sums are exact: AD-LDA (Newman, Asuncion, Smyth and Welling 2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import NumericalError
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Arrays, Delta, Part, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb.parameters import Parameters
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels.cvb import active_sums, words
from collapsium.workers.kernels.gibbs import topics as gibbs
from collapsium.workers.kernels.gibbs.records import OutDocumentTopics, TopicCounts, TopicPrior, TopicSlots, WordPrior
from collapsium.workers.kernels.gibbs.topics import CHUNK

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Counts = npt.NDArray[np.int32]
Topics = npt.NDArray[np.uint16]
Vector = npt.NDArray[np.float64]

KERNELS = (gibbs.sweep_tokens, gibbs.list_documents, gibbs.word_rising, words.log_eta, active_sums.active_probability)
MOST = 1 << 16  # topics that a token can name


@dataclass(frozen=True)
class Priors:
    """Dirichlet parameters of a sampler.

    Attributes
    ----------
    topics : numpy.ndarray of float64, shape (topics,)
        a_k; 0 of a topic that is not there.
    concentration : float
        A: what it has beyond the sum of a_k is for topics that are not there yet.
    word, total : float
        b of each word, and B.
    """

    topics: Vector
    concentration: float
    word: float
    total: float

    def over(self, words: int) -> Parameters:
        """Return the same for so many words at hand, as predictions take it."""
        return Parameters(self.topics, self.concentration, np.full(words, self.word), self.total)


def padded(topics: int) -> int:
    """Return the columns that the kernels work on."""
    return -(-topics // CHUNK) * CHUNK


def blank(words: int, topics: int) -> Arrays:
    """Make the rows of words that have no token yet."""
    return {"word_topic": np.zeros((words, topics), dtype=np.int32)}


def start(
    shard: Shard, topics: int, columns: int, prior: Vector, stream: Stream, warm: Arrays | None
) -> tuple[Arrays, Delta]:
    """Draw a topic for each token and count them.

    Parameters
    ----------
    shard : Shard
        The documents.
    topics : int
        Topics to draw from, all as likely, where there is no other run to start from.
    columns : int
        Topics that rows have.
    prior : numpy.ndarray of float64, shape (columns,)
        a_k.
    stream : Stream
        Addressed to the shard.
    warm : Arrays or None
        Another run's ``document_topic``, shape (documents, topics of that run), and ``word_topic``, probabilities of
        shape (words of the shard, topics of that run): topics are drawn in proportion to theta_dk phi_kw.

    Returns
    -------
    local : Arrays
        ``token_topic`` and the documents' lists.
    delta : Delta
        Changes from nothing.

    Raises
    ------
    ValueError
        The other run has more topics than there are columns.
    """
    return begun(shard, drawn(shard, topics, columns, stream, warm), columns, prior)


def drawn(shard: Shard, topics: int, columns: int, stream: Stream, warm: Arrays | None) -> Topics:
    """Draw a topic for each token; see `start`."""
    if warm is None:
        return stream.generator().integers(0, topics, shard.tokens, dtype=np.uint16)
    theta, phi = (np.ascontiguousarray(warm[name], dtype=np.float64) for name in ("document_topic", "word_topic"))
    if theta.shape[1] > columns:
        raise ValueError(f"a start from {theta.shape[1]} topics needs as many; there are {columns}")
    token_topic = np.empty(shard.tokens, dtype=np.uint16)
    gibbs.draw_topics(document_pairs(shard), theta, phi, stream.key(), token_topic)
    return token_topic


def begun(shard: Shard, token_topic: Topics, columns: int, prior: Vector) -> tuple[Arrays, Delta]:
    """Return a shard's first local state with the topics that are given to its tokens, and its counts as changes."""
    row = np.zeros((shard.words.size, columns), dtype=np.int32)
    np.add.at(row, (np.repeat(shard.position, shard.counts), token_topic), 1)
    local, _ = listed(shard, token_topic, np.where(prior > 0.0, prior, 1.0), tables=False)
    return local, Delta({"word_topic": change(row, "word", "topic")}, ids_of(shard, columns))


def ids_of(shard: Shard, columns: int) -> dict[str, npt.NDArray[Any]]:
    """Return the ids of a delta's rows and columns; those of shards with other columns add to them."""
    return {"word": shard.words, "topic": np.arange(columns)}


@dataclass
class Slots:
    """Where new topics go while a shard is swept.

    Attributes
    ----------
    gamma : float
        Concentration of the sticks.
    free : list of int
        Slots that this shard may take, ascending.
    first, every : int
        Where these run out: further ones are `first`, `first` + `every`, ...
    """

    gamma: float
    free: list[int]
    first: int
    every: int

    def more(self) -> list[int]:
        """Return some further slots, ascending."""
        count = max(CHUNK // self.every, 1)
        made = [self.first + self.every * place for place in range(count)]
        self.first += self.every * count
        return made


@dataclass
class Sweep:
    """A shard while it is swept, and what it comes to.

    Attributes
    ----------
    token_topic : numpy.ndarray of uint16, shape (tokens,)
        z.
    row : numpy.ndarray of int32, shape (shard words, columns)
        n_kw as the shard sees it.
    prior, totals : numpy.ndarray of float64, shape (columns,)
        a_k and n_k.
    rest : numpy.ndarray of float64, shape (1,)
        a of all topics that are not there yet.
    """

    token_topic: Topics
    row: Counts
    prior: Vector
    totals: Vector
    rest: Vector

    def widen(self, columns: int) -> None:
        """Let there be more topics, all empty; raise `NumericalError` if tokens could not name them."""
        if columns > MOST:
            raise NumericalError(f"more than {MOST} topics are asked for; take a smaller gamma or a larger beta")
        self.row = widened(self.row, columns)
        self.prior, self.totals = _longer(self.prior, columns), _longer(self.totals, columns)

    def run(self, shard: Shard, priors: Priors, stream: Stream, slots: Slots | None) -> None:
        """Draw each token's topic once; where new topics find no slot, make more and go on."""
        documents, key, word_prior = document_pairs(shard), stream.key(), WordPrior(priors.word, priors.total)
        free = np.array(slots.free[::-1] if slots else [], dtype=np.int64)
        free_count, progress = np.array([free.size]), np.zeros(3, dtype=np.int64)
        reusable = np.zeros(self.prior.size, dtype=np.int64)
        reusable[free] = 1
        while True:
            gibbs.sweep_tokens(
                documents,
                key,
                word_prior,
                TopicPrior(self.prior, self.rest),
                TopicSlots(slots.gamma if slots else 0.0, reusable, free, free_count),
                TopicCounts(self.totals, self.row),
                self.token_topic,
                progress,
            )
            if slots is None or progress[0] == shard.documents:
                return
            more = slots.more()
            self.widen(padded(more[-1] + 1))
            reusable = _longer(reusable, self.prior.size)
            reusable[more] = 1
            free = np.concatenate([np.array(more[::-1], dtype=np.int64), np.zeros(free.size, dtype=np.int64)])
            free_count[0] = len(more)


def _longer(values: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    return np.concatenate([values, np.zeros(size - values.size, dtype=values.dtype)])


def widened(row: npt.NDArray[Any], columns: int) -> npt.NDArray[Any]:
    """Return a copy of rows with so many columns, those beyond the old ones zero."""
    made = buffers.empty((len(row), columns), row.dtype)
    made[:, : row.shape[1]] = row
    made[:, row.shape[1] :] = 0
    return made


def swept(
    shard: Shard,
    local: Arrays,
    rows: Arrays,
    totals: npt.NDArray[np.int64],
    priors: Priors,
    stream: Stream,
    slots: Slots | None = None,
) -> Sweep:
    """Pass once over a shard.

    Parameters
    ----------
    shard : Shard
        The documents.
    local : Arrays
        With ``token_topic``.
    rows : Arrays
        ``word_topic`` of the shard's words.
    totals : numpy.ndarray of int64, shape (topics,)
        n_k.
    priors : Priors
        Dirichlet parameters.
    stream : Stream
        Addressed to the shard.
    slots : Slots, optional
        Where new topics go; none where their number is given.

    Returns
    -------
    Sweep
        What it comes to.
    """
    columns = padded(priors.topics.size)
    rest = max(priors.concentration - float(priors.topics.sum()), 0.0) if slots else 0.0
    working = Sweep(
        token_topic=np.array(local["token_topic"]),
        row=widened(rows["word_topic"], columns),
        prior=_longer(priors.topics, columns),
        totals=_longer(totals.astype(np.float64), columns),
        rest=np.array([rest]),
    )
    working.run(shard, priors, stream, slots)
    return working


def listed(shard: Shard, token_topic: Topics, prior: Vector, *, tables: bool) -> tuple[Arrays, dict[str, Part]]:
    """List the documents' topics, and sum over them what updates need.

    Parameters
    ----------
    shard : Shard
        The documents.
    token_topic : numpy.ndarray of uint16, shape (tokens,)
        z.
    prior : numpy.ndarray of float64, shape (topics,)
        a_k, more than 0 where there are tokens.
    tables : bool
        Whether their mean numbers are wanted.

    Returns
    -------
    local : Arrays
        ``token_topic``, and the counts by document and topic as `collapsium.workers.families.cvb.active` keeps them.
    sums : dict of str to Part
        Fresh ``rising``, sum_dk log G(a_k + n_dk) / G(a_k), and ``tables``, sum_d a_k (psi(a_k + n_dk) - psi(a_k)).
    """
    document_topics = OutDocumentTopics(
        offsets=np.zeros(shard.documents + 1, dtype=np.int64),
        topic=np.empty(token_topic.size, dtype=np.uint16),
        counts=np.empty(token_topic.size, dtype=np.float32),
    )
    mean, rising = np.zeros(prior.size if tables else 0), np.zeros(1)
    gibbs.list_documents(document_pairs(shard), token_topic, prior, document_topics, mean, rising)
    entries = document_topics.offsets[-1]
    local: dict[str, npt.NDArray[Any]] = {
        "token_topic": token_topic,
        "document_lists": document_topics.offsets,
        "document_topics": document_topics.topic[:entries].copy(),
        "document_counts": document_topics.counts[:entries].copy(),
        "document_rest": np.zeros(shard.documents, dtype=np.float32),
    }
    return local, {"rising": fresh(rising[0]), **({"tables": fresh(mean, "topic")} if tables else {})}


def changes(rows: Arrays, row: Counts) -> Part:
    """Return how far rows have moved, over the columns of the new ones."""
    moved = buffers.empty(row.shape, np.int32)
    before = rows["word_topic"]
    np.subtract(row[:, : before.shape[1]], before, out=moved[:, : before.shape[1]])
    moved[:, before.shape[1] :] = row[:, before.shape[1] :]
    return change(moved, "word", "topic")


def document_sums(shard: Shard, concentration: float) -> dict[str, Part]:
    """Return the sums over documents that know no topics: ``log_eta`` is sum_d psi(A) - psi(A + n_d)."""
    eta = np.zeros(2)
    words.log_eta(shard.lengths.astype(np.float64), np.array([concentration]), eta)
    numbers = {"log_eta": eta[0], "falling": eta[1]}
    numbers.update(documents=float(shard.documents), tokens=float(shard.tokens))
    return {name: fresh(value) for name, value in numbers.items()}


def fold(block: Arrays, delta: Delta, priors: Priors) -> tuple[Arrays, Delta]:
    """Add the rows of a delta to a block of the vocabulary.

    Parameters
    ----------
    block : Arrays
        The rows so far.
    delta : Delta
        Changes; its word ids count from the block's first word.
    priors : Priors
        With b.

    Returns
    -------
    block : Arrays
        The new rows, with as many columns as the delta has.
    delta : Delta
        Changes of n_k (``topic``); fresh ``moved``, the sum of absolute changes of n_kw, ``word_rising``, the sum of
        log G(b + n_kw) / G(b), and ``tables_of_words``, that of b (psi(b + n_kw) - psi(b)).
    """
    if "word_topic" not in delta:
        return block, Delta()
    after, parts = added(block, delta)
    sums = np.zeros(2)
    gibbs.word_rising(after, priors.word, sums)
    parts.update(word_rising=fresh(sums[0]), tables_of_words=fresh(sums[1]))
    return {"word_topic": after}, Delta(parts, {"topic": np.arange(parts["topic"].values.size)})


def added(block: Arrays, delta: Delta) -> tuple[Counts, dict[str, Part]]:
    """Return the counts of a block after a delta, and by how much n_k changes (``topic``) and n_kw (``moved``)."""
    moved = delta["word_topic"]
    after = widened(block["word_topic"], max(moved.shape[1], block["word_topic"].shape[1]))
    ids = delta.ids["word"]
    if ids.size == len(after):
        after[:, : moved.shape[1]] += moved
    else:
        after[ids, : moved.shape[1]] += moved
    parts = {"topic": change(moved.sum(axis=0, dtype=np.int64), "topic")}
    return after, {**parts, "moved": fresh(float(np.abs(moved).sum(dtype=np.int64)))}


def advance(rows: Arrays, delta: Delta) -> tuple[Arrays, npt.NDArray[np.int64]]:
    """Return a shard's rows after its own changes, and by how much these move n_k."""
    moved = delta["word_topic"]
    return {"word_topic": widened(rows["word_topic"], moved.shape[1]) + moved}, moved.sum(axis=0, dtype=np.int64)


def moments(globals: Arrays) -> Vector:
    """Return n_k as predictions take E[n_k], shape (1, topics)."""
    return np.asarray(globals["topic"], dtype=np.float64)[np.newaxis]
