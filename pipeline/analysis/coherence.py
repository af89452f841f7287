"""Whether topics' words belong together, counted in documents; no model is asked but for its words."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.topics import describe
from collapsium.pipeline.corpora.new_texts import Paths, documents_for
from collapsium.pipeline.corpora.options import ReadingOptions
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.options import SchedulerOptions
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.options import keywords, without_none
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import InputError, OptionError
from collapsium.storage.short_repr import ShortRepr

DIVERSE = 25  # words of a topic that its diversity looks at
DEFINITION = (
    "coherence: NPMI of each topic's {words} most probable words by co-occurrence in documents; of two words, with p "
    "the share of all documents that hold the word or both, log(p_ij / (p_i p_j)) / -log p_ij, -1 where they never "
    "meet and 1 where both are in all documents; mean over the pairs of a topic, then over the topics. Diversity: how "
    "many different words there are among the {diverse} most probable ones of all topics, as a share of their number. "
    "Topics of which less than one token is expected are left out of both"
)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Coherence(ShortRepr):
    """How far topics' words belong together.

    Attributes
    ----------
    npmi : float
        Mean over the topics, from -1 (words never meet) over 0 (as by chance) to 1 (always together).
    diversity : float
        Share of different words among the 25 most probable ones of all topics.
    topics : numpy.ndarray of int64, shape (topics,)
        Permanent ids, in the order of `collapsium.pipeline.topics`.
    topic_npmi : numpy.ndarray of float64, shape (topics,)
        NPMI of each; not a number for topics that are left out.
    documents : int
        Documents in which words were counted.
    definition : str
        How all this is defined.
    """

    npmi: float
    diversity: float
    topics: Ints
    topic_npmi: npt.NDArray[np.float64]
    documents: int
    definition: str


@keywords(reading=ReadingOptions, scheduling=SchedulerOptions)
def coherence(
    run: str | os.PathLike[str],
    documents: Paths,
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
    documents : path or sequence of paths
        The documents in which words are counted: a corpus with the model's vocabulary, or texts, as for `infer`.
    words : int, optional
        Most probable words of each topic to look at.
    reading : ReadingOptions
        Where texts for a model differ from its own documents.
    scheduling : SchedulerOptions
        Which executor runs the tasks.
    tls : optional
        As for `fit`.

    Returns
    -------
    Coherence
        The figures and their definition; the same bits for any shards and workers.

    Raises
    ------
    OptionError
        `words` is less than 2.
    InputError
        There are no two words, no documents, or no topics that have tokens.
    MismatchError
        The corpus holds vectors, or has another vocabulary.
    """
    if words < 2:
        raise OptionError(f"words: expected 2 or more, found {words}")
    where: dict[str, Any] = {"scheduler": scheduling.scheduler, "workers": scheduling.workers, "tls": tls}
    with documents_for(run, documents, reading=without_none(reading), **where) as found:
        return _coherence(Model(run), found.corpus, words, (scheduling.scheduler, scheduling.workers, tls))


def _coherence(model: Model, counted: Corpus, words: int, where: tuple[str, int | None, TLS | None]) -> Coherence:
    """Measure the coherence of a model's topics in a corpus."""
    counted.require(DOCUMENTS, "coherence")
    counted.require_vocabulary_of(model.record.vocabulary.words_sha256, model.folder.url)
    if len(model.vocabulary) < 2 or not counted.manifest.documents:
        raise InputError(counted.url, "expected two words at least, and a document")
    described = describe(model, max(words, DIVERSE))
    ids, share, top = described.ids, described.share, described.words
    seen = share > 0
    tokens = int(model.vocabulary.tokens.sum())
    if tokens:  # a drawn truth has seen none
        seen &= share * tokens >= 1.0
    if not seen.any():
        raise InputError(model.folder.url, "expected a topic that has tokens")
    chosen = top[seen, :words]
    holding, meeting = count(counted, chosen, *where)
    found = np.full(ids.size, np.nan)
    found[seen] = npmi(holding, meeting, counted.manifest.documents).mean(axis=1)
    different = top[seen, :DIVERSE]
    return Coherence(
        npmi=float(found[seen].mean()),
        diversity=np.unique(different).size / different.size,
        topics=ids,
        topic_npmi=found,
        documents=counted.manifest.documents,
        definition=DEFINITION.format(words=words, diverse=DIVERSE),
    )


def npmi(holding: Ints, meeting: Ints, documents: int) -> npt.NDArray[np.float64]:
    """Return the normalised pointwise mutual information of pairs of words.

    log(p_ij / (p_i p_j)) / -log p_ij; its limits, -1 where p_ij = 0 and 1 where p_ij = 1.

    Parameters
    ----------
    holding : numpy.ndarray of int64, shape (topics, words)
        Documents that hold each topic's words.
    meeting : numpy.ndarray of int64, shape (topics, pairs)
        Documents that hold both of two of them, in the order of `itertools.combinations`.
    documents : int
        All documents.

    Returns
    -------
    numpy.ndarray of float64, shape (topics, pairs)
        From -1 to 1.
    """
    first, second = _pairs(holding.shape[1])
    found = np.full(meeting.shape, -1.0)
    found[meeting == documents] = 1.0
    some = (meeting > 0) & (meeting < documents)
    both = np.log(meeting[some] / documents)
    apart = np.log(holding[:, first][some] / documents) + np.log(holding[:, second][some] / documents)
    found[some] = (both - apart) / -both
    return found


def count(
    corpus: Corpus, chosen: Ints, scheduler: str, workers: int | None = None, tls: TLS | None = None
) -> tuple[Ints, Ints]:
    """Count in how many documents topics' words are, and pairs of them.

    Parameters
    ----------
    corpus : Corpus
        The documents.
    chosen : numpy.ndarray of int64, shape (topics, words)
        Ids of each topic's words.
    scheduler, workers, tls
        As for `fit`.

    Returns
    -------
    holding : numpy.ndarray of int64, shape (topics, words)
        Documents that hold the word.
    meeting : numpy.ndarray of int64, shape (topics, pairs)
        Documents that hold both words.
    """
    topics, words = chosen.shape
    holding, meeting = np.zeros((topics, words), np.int64), np.zeros((topics, _pairs(words)[0].size), np.int64)
    executor = open_executor(scheduler, workers, tls=tls)
    try:
        window = 2 * executor.workers  # shards on their way: bounded, however many there are
        for start in range(0, len(corpus.references), window):
            submitted = [
                executor.submit(_count_shard, one, chosen) for one in corpus.references[start : start + window]
            ]
            for more_holding, more_meeting in executor.collect(submitted):
                holding += more_holding
                meeting += more_meeting
    finally:
        executor.close()
    return holding, meeting


def _pairs(words: int) -> tuple[Ints, Ints]:
    """Return the places of the first and the second word of each pair."""
    pairs = np.array(list(combinations(range(words), 2)), dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _count_shard(reference: ShardReference, chosen: Ints) -> tuple[Ints, Ints]:
    return count_in(Shard.of(reference.number, reference.documents()), chosen)


def count_in(shard: Shard, chosen: Ints) -> tuple[Ints, Ints]:
    """Count as `count` does, in one shard; a bit a document says whether it holds a word."""
    named, place = np.unique(chosen, return_inverse=True)
    place = place.reshape(chosen.shape)
    documents, starts = _lists(shard, named)
    first, _ = _pairs(chosen.shape[1])
    meeting = np.zeros((len(chosen), first.size), np.int64)
    for topic, words in enumerate(place):
        holds = np.zeros((words.size, shard.documents), dtype=bool)
        for row, word in enumerate(words):
            holds[row, documents[starts[word] : starts[word + 1]]] = True
        bits = np.packbits(holds, axis=1)
        for row in range(words.size - 1):
            both = np.bitwise_count(bits[row] & bits[row + 1 :])
            meeting[topic, first == row] = both.sum(axis=1, dtype=np.int64)
    return np.diff(starts)[place], meeting


def _lists(shard: Shard, named: Ints) -> tuple[Ints, Ints]:
    """Return the documents of some words, those of the first word before those of the second, and where each begin."""
    known = np.searchsorted(named, shard.words)
    known = np.where(named[np.minimum(known, named.size - 1)] == shard.words, known, -1)
    word = known[shard.position] if shard.pairs else np.zeros(0, np.int64)
    owner = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))[word >= 0]
    word = word[word >= 0]
    order = np.argsort(word, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(word, minlength=named.size))])
    return owner[order], starts.astype(np.int64)
