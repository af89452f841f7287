"""Metrics of the topics' most probable words: diversity, and coherence in documents and in windows of texts.

Coherence in windows of texts is by the confirmation measures of Röder, Both and Hinneburg (2015), "Exploring the space
of topic coherence measures", WSDM 2015. Probabilities are shares of windows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.pipeline.analysis.metrics.catalogue import FREX_WEIGHT, Metric
from collapsium.pipeline.analysis.metrics.measurement import Job, Measurement, measurement
from collapsium.pipeline.corpora.new_texts import DocumentSource, TokenTexts, documents_for
from collapsium.pipeline.corpora.options import ReadingOptions
from collapsium.pipeline.executors.base import Executor, in_order
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import Scheduling
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import describe, frex, topic_rows
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords, without_none
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import InputError, OptionError
from collapsium.storage.printable import ShortRepr
from collapsium.workers.families.family import Description
from collapsium.workers.ingest.tasks import WindowCounts, WindowRequest, WordPairs, count_block, count_windows

DIVERSITY_WORDS = 25
DEFINITION = (
    "coherence: normalised pointwise mutual information (NPMI) of the pairs of each topic's {words} most probable "
    "words, log(p_ij / (p_i p_j)) / -log p_ij, with p the share of the documents that contain a word, or both; -1 for "
    "words that never co-occur, 1 for words that are in every document; mean over the pairs of a topic, then over the "
    "topics. Diversity: share of distinct words among the {diverse} most probable words of all topics. Topics with an "
    "expected count below one token are left out of both"
)

RARE = 0.5  # Share of the topics' words that documents lack at most; beyond, a coherence says little of the topics


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
        Definition of the metrics.
    """

    npmi: float
    diversity: float
    topics: Ints
    topic_npmi: npt.NDArray[np.float64]
    documents: int
    definition: str


@shows("counting words")
@keywords(reading=ReadingOptions, scheduling=Scheduling)
def coherence(
    run: str | os.PathLike[str],
    documents: DocumentSource,
    *,
    words: int = 10,
    reading: ReadingOptions,
    scheduling: Scheduling,
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

    Returns
    -------
    Coherence
        The metrics and their definition; the same bits for any shards and workers.

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
    with documents_for(run, documents, reading=without_none(reading), **dict(scheduling)) as new:
        model, counted = Model(run), new.corpus
        counted.require(DOCUMENTS, "coherence")
        require_words(model, counted)
        described = describe(model, max(words, DIVERSITY_WORDS))
        ids, top, seen = described.ids, described.words, with_tokens(model, described)
        with contextlib.closing(open_executor(**dict(scheduling))) as executor:
            single, both = count(counted, top[seen, :words], executor)
        topic_npmi = np.full(ids.size, np.nan)
        topic_npmi[seen] = npmi(single, both, counted.manifest.documents).mean(axis=1)
        return Coherence(
            npmi=float(topic_npmi[seen].mean()),
            diversity=topic_diversity(top[seen, :DIVERSITY_WORDS]),
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
        f"; {absent:,} of the topics' {every:,} words do not occur in {where}, so that the value says little of the "
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
    submitted = (executor.submit(_count_shard, shard, chosen) for shard in corpus.references)
    for shard_single, shard_both in in_order(executor, submitted, 2 * executor.workers):
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
    # The documents that contain each of the words, one word after another, and the start of each word's.
    known = np.searchsorted(named, shard.words)
    known = np.where(named[np.minimum(known, named.size - 1)] == shard.words, known, -1)
    pair_word = known[shard.position] if shard.pairs else np.zeros(0, np.int64)
    owner = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))[pair_word >= 0]
    pair_word = pair_word[pair_word >= 0]
    order = np.argsort(pair_word, kind="stable")
    documents = owner[order]
    starts = np.concatenate([[0], np.cumsum(np.bincount(pair_word, minlength=named.size))]).astype(np.int64)
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


EPSILON = 1e-12  # Added to joint probabilities, so that their logarithm is finite (Röder et al. 2015, section 3.3).


@dataclass(frozen=True)
class Probabilities:
    """Shares of windows that hold the words of each topic."""

    word: Floats  # p(w_i); float64 (topics, words)
    joint: Floats  # p(w_i, w_j), with p(w_i) on the diagonal; float64 (topics, words, words)

    @staticmethod
    def of(counts: WindowCounts, pairs: WordPairs, topics: Ints) -> Probabilities:
        """Take the shares for `topics`, numbers of counted words, shape (topics, words)."""
        windows = max(counts.windows, 1)
        first, second = np.broadcast_arrays(topics[:, :, np.newaxis], topics[:, np.newaxis, :])
        positions, is_pair = pairs.positions(first.ravel(), second.ravel())
        joint = np.zeros(first.size, dtype=np.int64)
        joint[is_pair] = counts.pair[positions[is_pair]]
        joint = np.where(first == second, counts.word[first], joint.reshape(first.shape))
        return Probabilities(counts.word[topics] / windows, joint / windows)

    @staticmethod
    def of_documents(single: Ints, both: Ints, documents: int) -> Probabilities:
        """Take the shares from numbers of documents, as `count` returns them."""
        topics, words = single.shape
        first, second = np.triu_indices(words, 1)
        joint = np.zeros((topics, words, words))
        joint[:, first, second] = joint[:, second, first] = both / documents
        joint[:, np.arange(words), np.arange(words)] = single / documents
        return Probabilities(single / documents, joint)


def pmi(probabilities: Probabilities) -> Floats:
    """Return log((p_ij + epsilon) / (p_i p_j)) of each two words of a topic; 0 where a word never occurs."""
    product = probabilities.word[:, :, np.newaxis] * probabilities.word[:, np.newaxis, :]
    seen = product > 0
    ratio = (probabilities.joint + EPSILON) / np.where(seen, product, 1.0)
    return np.where(seen, np.log(np.where(seen, ratio, 1.0)), 0.0)


def npmi_of_pairs(probabilities: Probabilities) -> Floats:
    """Return `pmi` divided by -log(p_ij + epsilon)."""
    return pmi(probabilities) / -np.log(probabilities.joint + EPSILON)


def c_uci(probabilities: Probabilities) -> Floats:
    """Return the mean `pmi` over all pairs of different words of each topic, shape (topics,)."""
    return _mean_of_pairs(pmi(probabilities))


def c_npmi(probabilities: Probabilities) -> Floats:
    """Return the mean `npmi` over all pairs of different words of each topic, shape (topics,)."""
    return _mean_of_pairs(npmi_of_pairs(probabilities))


def u_mass(probabilities: Probabilities) -> Floats:
    """Return the mean of log((p_ij + epsilon) / p_j) over words i and more probable words j (Mimno et al. 2011)."""
    later, earlier = np.tril_indices(probabilities.word.shape[1], -1)
    earlier_probability = probabilities.word[:, earlier]
    ratio = (probabilities.joint[:, later, earlier] + EPSILON) / np.where(
        earlier_probability > 0, earlier_probability, 1.0
    )
    mean: Floats = np.where(earlier_probability > 0, np.log(ratio), 0.0).mean(axis=1)
    return mean


def c_v(probabilities: Probabilities) -> Floats:
    """Return the mean cosine of each word's NPMI vector with the sum of all words' vectors, shape (topics,)."""
    vectors = npmi_of_pairs(probabilities)
    total = vectors.sum(axis=1)
    norms = np.linalg.norm(vectors, axis=2) * np.linalg.norm(total, axis=1)[:, np.newaxis]
    products = np.einsum("kij,kj->ki", vectors, total)
    mean: Floats = np.divide(products, norms, out=np.zeros_like(norms), where=norms > 0).mean(axis=1)
    return mean


def _mean_of_pairs(values: Floats) -> Floats:
    first, second = np.triu_indices(values.shape[1], 1)
    mean: Floats = values[:, first, second].mean(axis=1)
    return mean


Words = npt.ArrayLike  # Words as ids or as texts

# Probability of looking at the next rank in rank-biased overlap (Webber, Moffat and Zobel 2010, p = 0.9)
PERSISTENCE = 0.9


def topic_diversity(words: Words) -> float:
    """Return the share of different words among the words of all topics (Dieng, Ruiz and Blei 2020).

    Parameters
    ----------
    words : array-like of int or str, shape (topics, words)
        The most probable words of each topic.

    Returns
    -------
    float
        From 1 / topics to 1.
    """
    words = np.asarray(words)
    return float(np.unique(words).size / words.size)


def strict_diversity(words: Words) -> float:
    """Return the share of the words of all topics that no other topic has (Wu et al. 2023).

    Parameters
    ----------
    words : array-like of int or str, shape (topics, words)
        The most probable words of each topic.

    Returns
    -------
    float
        From 0 to 1.
    """
    words = np.asarray(words)
    _, topics = np.unique(words, return_counts=True)
    return float((topics == 1).sum() / words.size)


def inverted_rbo(words: Words, persistence: float = PERSISTENCE) -> float:
    """Return 1 minus the mean rank-biased overlap of two topics' words (Bianchi, Terragni and Hovy 2021).

    Parameters
    ----------
    words : array-like of int or str, shape (topics, words)
        The most probable words of each topic, the most probable first.
    persistence : float, optional
        Probability p of looking at the next rank.

    Returns
    -------
    float
        0 if all topics have the same words in the same order, 1 if no two topics share a word.
    """
    words = np.asarray(words)
    if len(words) < 2:
        return 1.0
    overlaps = [rank_biased_overlap(first, second, persistence) for first, second in combinations(words, 2)]
    return 1.0 - float(np.mean(overlaps))


def rank_biased_overlap(first: Words, second: Words, persistence: float = PERSISTENCE) -> float:
    """Return the extrapolated rank-biased overlap of two rankings: (32) of Webber et al. (2010).

    With X_d the number of words among the first d of both: X_k / k p^k + (1 - p) / p sum_d X_d / d p^d.
    """
    first, second = np.asarray(first), np.asarray(second)
    depth = np.arange(1, first.size + 1)
    rank = {word: position for position, word in enumerate(second.tolist(), 1)}
    both = np.array([max(position, rank.get(word, first.size + 1)) for position, word in enumerate(first.tolist(), 1)])
    shared = np.cumsum(np.bincount(both, minlength=first.size + 2)[1 : first.size + 1]) / depth
    weight = persistence**depth
    return float(shared[-1] * weight[-1] + (1 - persistence) / persistence * (shared * weight).sum())


Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

DIVERSITIES: Mapping[str, Callable[[npt.ArrayLike], float]] = {
    "diversity": topic_diversity,
    "strict-diversity": strict_diversity,
    "inverted-rbo": inverted_rbo,
}
CONFIRMATIONS: Mapping[str, Callable[[Probabilities], Floats]] = {
    "c_v": c_v,
    "c_npmi": c_npmi,
    "c_uci": c_uci,
    "u_mass": u_mass,
}
# Tokens of a window (Röder et al. 2015, table 8); None for complete documents.
WINDOWS: Mapping[str, int | None] = {"c_v": 110, "c_npmi": 10, "c_uci": 10, "u_mass": None}


def top_words(model: Model, words: int) -> tuple[Ints, Ints]:
    """Return the most probable words of the topics that have tokens.

    Parameters
    ----------
    model : Model
        The model; of a tree, all nodes with tokens count as topics.
    words : int
        Number of words of each topic.

    Returns
    -------
    ids : numpy.ndarray of int64, shape (topics,)
        Permanent ids.
    words : numpy.ndarray of int64, shape (topics, words)
        Ids of the words, the most probable first.
    """
    described = describe(model, words)
    seen = with_tokens(model, described)
    return described.ids[seen], described.words[seen]


def measure_words(metrics: Sequence[Metric], job: Job) -> list[Measurement]:
    """Measure the diversity and the exclusivity of topics."""
    measurements = []
    for metric in metrics:
        topics: dict[int, float] = {}
        chosen = [top_words(model, job.words_of(metric)) for _, model in job.named]
        if metric.name == "exclusivity":
            by_model = [exclusivity(model, *of_model) for (_, model), of_model in zip(job.named, chosen, strict=True)]
            values = [float(scores.mean()) for scores in by_model]
            topics = dict(zip(chosen[0][0].tolist(), by_model[0].tolist(), strict=True))
        else:
            values = [DIVERSITIES[metric.name](words) for _, words in chosen]
        measurements.append(measurement(metric, job.named, values, {"words": chosen[0][1].shape[1]}, topics))
    return measurements


def exclusivity(model: Model, ids: Ints, words: Ints) -> Floats:
    """Return the mean FREX score of some words of each topic, shape (topics,)."""
    scores = [
        np.take_along_axis(frex(probability, exclusive, FREX_WEIGHT), words[some], axis=1).mean(axis=1)
        for some, probability, exclusive in topic_rows(model, ids, ids)
    ]
    return np.concatenate(scores)


def measure_in_documents(metrics: Sequence[Metric], job: Job, corpus: Corpus) -> list[Measurement]:
    """Measure coherence by co-occurrence in the documents of a corpus."""
    documents = corpus.manifest.documents
    values: dict[str, list[float]] = {metric.name: [] for metric in metrics}
    topics: dict[str, dict[int, float]] = {}
    words, absent = 0, ""
    for _, model in job.named:
        require_words(model, corpus)
        ids, chosen = top_words(model, max(job.words_of(metric) for metric in metrics))
        words = chosen.shape[1]
        single, both = count(corpus, chosen, job.executor)
        absent = absent or lacking(single, "the documents")
        for metric in metrics:
            if metric.name == "npmi":
                by_topic = npmi(single, both, documents).mean(axis=1)
            else:
                by_topic = CONFIRMATIONS[metric.name](Probabilities.of_documents(single, both, documents))
            values[metric.name].append(float(by_topic.mean()))
            topics[metric.name] = dict(zip(ids.tolist(), by_topic.tolist(), strict=True))
    placeholders = {"words": words, "documents": documents}
    return [
        measurement(metric, job.named, values[metric.name], placeholders, topics[metric.name], absent)
        for metric in metrics
    ]


def measure_in_windows(metrics: Sequence[Metric], job: Job, texts: TokenTexts) -> list[Measurement]:
    """Measure coherence by co-occurrence in windows of texts; the words of all models are counted at once."""
    chosen = [top_words(model, max(job.words_of(metric) for metric in metrics)) for _, model in job.named]
    names = [[[model.vocabulary.words[word] for word in row] for row in words.tolist()]
             for (_, model), (_, words) in zip(job.named, chosen, strict=True)]  # fmt: skip
    numbering: dict[str, int] = {}
    numbered = [
        np.array([[numbering.setdefault(word, len(numbering)) for word in row] for row in rows]) for rows in names
    ]
    pairs = WordPairs.within(numbered, len(numbering))
    sizes = tuple(dict.fromkeys(WINDOWS[metric.name] or 0 for metric in metrics))
    request = WindowRequest(pa.array(numbering, pa.string()), pairs, sizes, texts.request, texts.by_segment)
    counts = [WindowCounts.none(pairs) for _ in sizes]
    submitted = (job.executor.submit(count_block, block, request) for block in texts.blocks())
    for block in in_order(job.executor, submitted):
        counts = [total + part for total, part in zip(counts, block, strict=True)]
        job.progress(counts[0].texts)
    if not counts[0].word.any():
        raise InputError(texts.name, "expected texts with words of the topics")
    measurements = []
    for metric in metrics:
        counted = counts[sizes.index(WINDOWS[metric.name] or 0)]
        by_model = [CONFIRMATIONS[metric.name](Probabilities.of(counted, pairs, words)) for words in numbered]
        placeholders = {"words": numbered[0].shape[1], "texts": counted.texts, "size": WINDOWS[metric.name]}
        topics = dict(zip(chosen[0][0].tolist(), by_model[0].tolist(), strict=True))
        values = [float(values.mean()) for values in by_model]
        absent = lacking(counted.word[numbered[0]], "the texts")
        measurements.append(measurement(metric, job.named, values, placeholders, topics, absent))
    return measurements


def require_words(model: Model, corpus: Corpus) -> None:
    """Refuse documents in which no pair of words can be counted."""
    corpus.require_vocabulary_of(model.record.vocabulary.words_sha256, model.folder.url)
    if len(model.vocabulary) < 2 or not corpus.manifest.documents:
        raise InputError(corpus.url, "expected at least two words and a document")


def text_coherence(
    topics: Sequence[Sequence[str]], texts: Sequence[Sequence[str]], metric: str = "c_v", *, exact: bool = False
) -> Floats:
    """Return the coherence of any topics' words in texts in memory.

    Parameters
    ----------
    topics : sequence of sequence of str
        Words of each topic, the most probable first; the same number for each topic.
    texts : sequence of sequence of str
        Tokens of each text.
    metric : str, optional
        ``c_v``, ``c_npmi``, ``c_uci`` or ``u_mass``.
    exact : bool, optional
        Whether windows are counted as Röder et al. define them. By default they are counted as gensim does, where a
        word is out of a window as soon as the first of its tokens leaves, until its next token enters.

    Returns
    -------
    numpy.ndarray of float64, shape (topics,)
        The coherence of each topic.
    """
    numbering: dict[str, int] = {}
    words = np.array([[numbering.setdefault(word, len(numbering)) for word in topic] for topic in topics])
    pairs = WordPairs.within([words], len(numbering))
    tokens = np.array([numbering.get(word, -1) for text in texts for word in text], dtype=np.int64)
    offsets = np.cumsum([0, *map(len, texts)])
    counts = count_windows(tokens, offsets, pairs, WINDOWS[metric], exact=exact)
    return CONFIRMATIONS[metric](Probabilities.of(counts, pairs, words))
