"""Memory of a start that is computed or read, before the first sweep."""

from __future__ import annotations

from dataclasses import dataclass

from collapsium.pipeline.engine.setup.computed_starts import CLUSTER_SETTINGS
from collapsium.pipeline.families.base import FILE_START, QUICK_CLUSTERS_START
from collapsium.workers.starts.words import VECTORS


@dataclass(frozen=True)
class StartCosts:
    """Bytes of arrays of a start, as they are allocated."""

    word_pair: int = 12
    """A pair of words of the vectors: its co-occurrences in double precision, and their information in single."""
    direction: int = 5 * 8
    """A number of an iterated direction of word vectors, with products and copies."""
    coordinate: int = 2 * 4
    """A number of a document's vector, and its copy while a sample is drawn."""
    word_share: int = 24
    """A word in a topic of a mixture: its sums, probability and logarithm."""
    drawn_share: int = 20
    """A topic of a document whose proportions are drawn or computed."""
    begun_share: int = 24
    """A topic of a document, and of a word, while its shard's first state is made."""
    even_share: int = 8
    """The same where active topics are selected, and topics are even over the words."""
    held_share: int = 8
    """A topic of a document, and its proportion, from the end of a start to the first sweep."""


COSTS = StartCosts()


@dataclass(frozen=True)
class StartSizes:
    """Sizes on which the memory of a start depends.

    Attributes
    ----------
    documents, shard_documents, vocabulary, shard_words : int
        Documents and words of the corpus, and of its largest shard.
    topics : float
        Number of topics.
    processes, tasks : int
        Worker processes, and tasks that run in one at a time.
    """

    documents: int
    shard_documents: int
    vocabulary: int
    shard_words: int
    topics: float
    processes: int
    tasks: int


@dataclass(frozen=True)
class StartBytes:
    """Bytes of a start, by the time when they are taken.

    Attributes
    ----------
    computed : float
        In a worker process, before the first sweep.
    begun : float
        In a worker process, in the first sweep, beside what all sweeps take.
    held : float
        In the driver, from the end of the start to the first sweep.
    """

    computed: float = 0.0
    begun: float = 0.0
    held: float = 0.0


def start_bytes(kind: str, sizes: StartSizes) -> StartBytes:
    """Return the bytes of a start.

    Parameters
    ----------
    kind : str
        One of `COMPUTED_STARTS`, ``file``, or empty for a random start.
    sizes : StartSizes
        Sizes of the corpus, and of the place.

    Returns
    -------
    StartBytes
        0 for a random start.
    """
    if not kind:
        return StartBytes()
    share = COSTS.even_share if kind == QUICK_CLUSTERS_START else COSTS.begun_share
    begun = sizes.tasks * share * sizes.topics * (sizes.shard_documents + sizes.shard_words)
    if kind == FILE_START:
        return StartBytes(0.0, begun)
    settings = CLUSTER_SETTINGS.get(kind)
    vectors = VECTORS if settings is None else settings.vectors
    words = min(sizes.vocabulary, vectors.max_words)
    if settings is None:
        each = COSTS.word_share * words + COSTS.drawn_share * sizes.shard_documents
        return StartBytes(sizes.tasks * each * sizes.topics, begun)
    spread = COSTS.word_pair * words**2 + COSTS.coordinate * vectors.dimensions * sizes.documents
    directions = COSTS.direction * words * (vectors.dimensions + vectors.oversampling)
    held = COSTS.held_share * min(sizes.topics, settings.most_shares) * sizes.documents
    return StartBytes(spread / sizes.processes + directions, begun, held)
