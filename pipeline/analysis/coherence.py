"""Measure topic coherence (NPMI) and diversity, from co-occurrences of the topics' words in documents."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.corpora.new_texts import DocumentSource, documents_for
from collapsium.pipeline.corpora.options import ReadingOptions
from collapsium.pipeline.executors.base import TLS, Executor
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import Scheduler, SchedulerOptions
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import describe
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords, without_none
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import InputError, OptionError
from collapsium.storage.printable import ShortRepr
from collapsium.workers.families.family import Description

DIVERSITY_WORDS = 25
DEFINITION = (
    "coherence: normalised pointwise mutual information (NPMI) of the pairs of each topic's {words} most probable "
    "words, log(p_ij / (p_i p_j)) / -log p_ij, with p the share of the documents that contain a word, or both; -1 for "
    "words that never co-occur, 1 for words that are in every document; mean over the pairs of a topic, then over the "
    "topics. Diversity: share of distinct words among the {diverse} most probable words of all topics. Topics with an "
    "expected count below one token are left out of both"
)

RARE = 0.5  # Share of the topics' words that documents lack at most; beyond, a coherence says little of the topics
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Coherence(ShortRepr):
    """Coherence and diversity of topics.

    Attributes
    ----------
    npmi : float
        Mean over the topics: -1 if words never co-occur, 0 if they do as by chance, 1 if they always do.
    diversity : float
        Share of distinct words among the 25 most probable words of all topics.
    topics : numpy.ndarray of int64, shape (topics,)
        Permanent ids, in the order of `collapsium.pipeline.topics`.
    topic_npmi : numpy.ndarray of float64, shape (topics,)
        NPMI of each topic; NaN for topics that are left out.
    documents : int
        Number of documents in which words were counted.
    definition : str
        Definition of the figures.
    """

    npmi: float
    diversity: float
    topics: Ints
    topic_npmi: npt.NDArray[np.float64]
    documents: int
    definition: str


@shows("counting words")
@keywords(reading=ReadingOptions, scheduling=SchedulerOptions)
def coherence(
    run: str | os.PathLike[str],
    documents: DocumentSource,
    *,
    words: int = 10,
    reading: ReadingOptions,
    scheduling: SchedulerOptions,
    tls: TLS | None = None,
) -> Coherence:
    """Measure the coherence and diversity of a model's topics.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or model.
    documents : Corpus, path, sequence of paths or str, column or frame
        The documents in which words are counted: a corpus with the model's vocabulary, or texts, as for `infer`.
    words : int, optional
        Number of most probable words of each topic whose pairs are counted.
    reading : ReadingOptions
        Differences between new texts and the documents that a model was fitted to.
    scheduling : SchedulerOptions
        Executor of the tasks.
    tls : optional
        Certificates for a Dask cluster, as for `fit`.

    Returns
    -------
    Coherence
        The figures and their definition; the same bits for any shards and workers.

    Raises
    ------
    OptionError
        `words` is less than 2.
    InputError
        There are fewer than two words, no documents, or no topics with tokens.
    MismatchError
        The corpus holds vectors, or has another vocabulary.
    """
    if words < 2:
        raise OptionError(f"expected 2 or more, found {words}", "words")
    scheduler, workers = scheduling.scheduler, scheduling.workers
    options = without_none(reading)
    with documents_for(run, documents, reading=options, scheduler=scheduler, workers=workers, tls=tls) as new:
        return _coherence(Model(run), new.corpus, words, (scheduler, workers, tls))


def _coherence(model: Model, counted: Corpus, words: int, where: tuple[Scheduler, int | None, TLS | None]) -> Coherence:
    """Measure the coherence of a model's topics in a corpus."""
    counted.require(DOCUMENTS, "coherence")
    counted.require_vocabulary_of(model.record.vocabulary.words_sha256, model.folder.url)
    if len(model.vocabulary) < 2 or not counted.manifest.documents:
        raise InputError(counted.url, "expected at least two words and a document")
    described = describe(model, max(words, DIVERSITY_WORDS))
    ids, top, seen = described.ids, described.words, with_tokens(model, described)
    scheduler, workers, tls = where
    executor = open_executor(scheduler, workers, tls=tls)
    try:
        single, both = count(counted, top[seen, :words], executor)
    finally:
        executor.close()
    topic_npmi = np.full(ids.size, np.nan)
    topic_npmi[seen] = npmi(single, both, counted.manifest.documents).mean(axis=1)
    top_words = top[seen, :DIVERSITY_WORDS]
    return Coherence(
        npmi=float(topic_npmi[seen].mean()),
        diversity=np.unique(top_words).size / top_words.size,
        topics=ids,
        topic_npmi=topic_npmi,
        documents=counted.manifest.documents,
        definition=DEFINITION.format(words=words, diverse=DIVERSITY_WORDS) + lacking(single, "the documents"),
    )


def lacking(single: npt.NDArray[np.integer], where: str) -> str:
    """Return a remark on documents that lack most of the topics' words, given each word's count; empty if few."""
    absent, every = int(np.count_nonzero(single == 0)), single.size
    if absent <= RARE * every:
        return ""
    return (
        f"; {absent:,} of the topics' {every:,} words do not occur in {where}, so that the figure says little of the "
        "topics"
    )


def with_tokens(model: Model, described: Description) -> npt.NDArray[np.bool_]:
    """Return which topics of a model have an expected count of a token or more; refuse a model without any."""
    seen = described.share > 0
    tokens = int(model.vocabulary.tokens.sum())
    # The ground truth of a simulated corpus has no token counts.
    if tokens:
        seen &= described.share * tokens >= 1.0
    if not seen.any():
        raise InputError(model.folder.url, "expected a topic with tokens")
    return seen


def npmi(single: Ints, both: Ints, documents: int) -> npt.NDArray[np.float64]:
    """Return the normalised pointwise mutual information of pairs of words, log(p_ij / (p_i p_j)) / -log p_ij.

    The limits are -1 for p_ij = 0 and 1 for p_ij = 1.
    """
    first, second = _pairs(single.shape[1])
    values = np.full(both.shape, -1.0)
    values[both == documents] = 1.0
    some = (both > 0) & (both < documents)
    joint = np.log(both[some] / documents)
    independent = np.log(single[:, first][some] / documents) + np.log(single[:, second][some] / documents)
    values[some] = (joint - independent) / -joint
    return values


def count(corpus: Corpus, chosen: Ints, executor: Executor) -> tuple[Ints, Ints]:
    """Count the documents that contain topics' words, and pairs of these words.

    Returns single: Numbers of documents that contain each word; both: Numbers of documents that contain both words of
    each pair
    """
    topics, words = chosen.shape
    single, both = np.zeros((topics, words), np.int64), np.zeros((topics, _pairs(words)[0].size), np.int64)
    # A bounded number of shards is in work at once.
    window = 2 * executor.workers
    for start in range(0, len(corpus.references), window):
        shards = corpus.references[start : start + window]
        submitted = [executor.submit(_count_shard, shard, chosen) for shard in shards]
        for shard_single, shard_both in executor.collect(submitted):
            single += shard_single
            both += shard_both
    return single, both


def _pairs(words: int) -> tuple[Ints, Ints]:
    """Return the indices of the first and the second word of each pair."""
    pairs = np.array(list(combinations(range(words), 2)), dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _count_shard(reference: ShardReference, chosen: Ints) -> tuple[Ints, Ints]:
    return count_in(Shard.of(reference.number, reference.documents()), chosen)


def count_in(shard: Shard, chosen: Ints) -> tuple[Ints, Ints]:
    """Count as `count` does in one shard, with a bit for each document and word."""
    named, place = np.unique(chosen, return_inverse=True)
    place = place.reshape(chosen.shape)
    documents, starts = _lists(shard, named)
    first, _ = _pairs(chosen.shape[1])
    both = np.zeros((len(chosen), first.size), np.int64)
    for topic, words in enumerate(place):
        holds = np.zeros((words.size, shard.documents), dtype=bool)
        for row, word in enumerate(words):
            holds[row, documents[starts[word] : starts[word + 1]]] = True
        bits = np.packbits(holds, axis=1)
        for row in range(words.size - 1):
            common = np.bitwise_count(bits[row] & bits[row + 1 :])
            both[topic, first == row] = common.sum(axis=1, dtype=np.int64)
    return np.diff(starts)[place], both


def _lists(shard: Shard, named: Ints) -> tuple[Ints, Ints]:
    """Return the documents that contain each of some words, one word after another, and the start of each word's."""
    known = np.searchsorted(named, shard.words)
    known = np.where(named[np.minimum(known, named.size - 1)] == shard.words, known, -1)
    word = known[shard.position] if shard.pairs else np.zeros(0, np.int64)
    owner = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))[word >= 0]
    word = word[word >= 0]
    order = np.argsort(word, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(word, minlength=named.size))])
    return owner[order], starts.astype(np.int64)
