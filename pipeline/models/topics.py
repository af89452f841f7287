"""List the topics of a model, or the nodes of its tree, with their first words by probability or another measure.

The topics of two models are matched by the Hellinger distances of their word probabilities.

FREX is defined by Bischof and Airoldi (2012), relevance by Sievert and Shirley (2014).

With phi_kw = p(w | k) and p(w) the share of a word in the corpus, both of weighted tokens if the fit weighs words:

* probability: phi_kw;
* lift: phi_kw / p(w);
* relevance: lambda log phi_kw + (1 - lambda) log(phi_kw / p(w));
* FREX: 1 / (omega / F(phi_kw / sum_j phi_jw) + (1 - omega) / F(phi_kw)), the harmonic mean of the ranks of a word in a
  topic by exclusivity and by frequency. F(x) is the share of the vocabulary's words with a value of at most x.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.formatting import plain
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.options import RankOptions, keywords
from collapsium.storage.errors import OptionError
from collapsium.storage.runs.members import has_consensus, leaves, members_of, restarts_of, samples_of
from collapsium.storage.runs.summary import SummaryRecord
from collapsium.workers.families.description import largest, shape_of
from collapsium.workers.families.family import Description

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FREX_WEIGHT = 0.5  # omega, the weight of exclusivity in FREX, as in the R package stm
# lambda, the weight of probability in relevance, the best value in the study of Sievert and Shirley (2014)
RELEVANCE_WEIGHT = 0.6
# Expected tokens of a word in a topic below which it comes after all others, because its lift is due to the prior; and
# of a topic below which it has none, because the expected counts of redundant topics need not be exactly zero
MIN_EXPECTED_TOKENS = 0.5
CELLS_IN_MEMORY = 1 << 24  # Probabilities that are held in memory at a time; FREX needs all words of a topic together


BY_PROBABILITY = RankOptions()


class Stability(NamedTuple):
    """Stability of a topic over other fits."""

    value: float  # One minus the mean Hellinger distance to its matches, in [0, 1]
    support: int  # Number of the fits whose match is the same topic, at most `MAX_IDENTITY_DISTANCE` away


def stability(reference: Model, fits: Sequence[Model]) -> dict[int, Stability]:
    """Return the stability of a model's topics over other fits to the same vocabulary.

    Topics are matched one to one, with the smallest sum of Hellinger distances between their word probabilities. A
    topic's stability is one minus the mean distance to its matches; without a match the distance is 1. Topics without
    tokens are left out.
    """
    ids = occupied(reference)
    if not fits or not ids.size:
        return {}
    distance, support = np.zeros(ids.size), np.zeros(ids.size, dtype=np.int64)
    for fit in fits:
        nearest = np.ones(ids.size)
        for topic, _, apart in matched(reference, fit):
            nearest[np.searchsorted(ids, topic)] = apart
        distance += nearest
        support += nearest <= MAX_IDENTITY_DISTANCE
    values = (1.0 - distance / len(fits)).tolist()
    return {
        topic: Stability(*measures) for topic, *measures in zip(ids.tolist(), values, support.tolist(), strict=True)
    }


# A topic is flagged if it has this share of the tokens, and is the main topic of fewer documents than this part of it.
LARGE, FEW = 0.01, 0.1
NAMED = 5  # Flagged topics that are named


@dataclass(frozen=True)
class Topic:
    """One topic, or one node of a tree.

    Attributes
    ----------
    id : int
        Its permanent id.
    share : float
        Its share of the training tokens; for a node, without the nodes below it.
    words : list of (str, float)
        Its first words with their probabilities, in decreasing order of probability or of another measure. If
        `signed`, columns of vectors with their loadings, by decreasing magnitude.
    stability : float or None
        One minus the mean Hellinger distance to the matching topics of the other members of an ensemble; see
        `collapsium.pipeline.models.topics`. None without other members, or without tokens. For a mean or a
        consensus, the distance to the topics of all members.
    support : int or None
        Number of the members of a mean or a consensus in which it was found: in which its match is at most 0.6 away.
        None for other models.
    parent : int or None
        The parent's id; None for a root, and for topics that are not a tree.
    level : int or None
        Depth in the tree, 0 for the root; None for topics that are not a tree.
    below : float or None
        Share of the tokens at the node and at all nodes below it; None for topics that are not a tree.
    signed : bool
        True if `words` are columns with loadings.
    title : str or None
        Its name, such as the label that the topic belongs to, or the name that a namer, a seed or a user gave it; None
        without a name.
    """

    id: int
    share: float
    words: list[tuple[str, float]]
    stability: float | None = None
    parent: int | None = None
    level: int | None = None
    below: float | None = None
    signed: bool = False
    title: str | None = None
    support: int | None = None

    @property
    def label(self) -> str:
        """The node's text in a drawing of a tree: its id and its title."""
        return str(self.id) if self.title is None else plain(f"{self.id} {self.title}")

    @property
    def names(self) -> list[str]:
        """Its words, with minus signs before those with negative loadings."""
        return [("-" if p < 0.0 else "") + word for word, p in self.words]


@keywords(ranking=RankOptions)
def topics(run: str | os.PathLike[str], words: int = 10, *, ranking: RankOptions) -> list[Topic]:
    """List the topics of a model, the largest first, or the nodes of its tree, depth-first.

    For restarts and samples, these are the means of their matching topics, or the topics of their consensus, with their
    stability. Topics of trees, and of families of labels, segments and vectors, are not matched: these are the first
    restart's, or the last sample's.

    Parameters
    ----------
    run : str or path-like
        Folder of a run, a model, or a simulated corpus with its ground truth.
    words : int, optional
        Number of words for each topic.
    ranking : RankOptions
        Measure that orders a topic's words.

    Returns
    -------
    list of Topic
        Topics with tokens, and nodes with tokens at or below them; all topics if none has tokens. A node follows its
        parent or the last node below its previous sibling.

    Raises
    ------
    AbsentError
        There is no model.
    OptionError
        `words` is no whole number, or less than 1; or the components of vectors are to be ranked by another measure
        than their loadings.
    """
    if isinstance(words, bool) or not isinstance(words, (int, np.integer)) or words < 1:
        raise OptionError(f"expected a whole number, 1 or more, found {words!r}", "words")
    model, fits = _with_others(run)
    described = describe(model, words, ranking)
    named = model.topic_names
    stable = {} if described.signed else stability(model, fits)
    shape = None if described.parent is None else shape_of(described.ids, described.parent, described.share)
    if shape is None:
        rows = np.flatnonzero(has_tokens(described.share, model.vocabulary.tokens.sum()))
    else:
        rows = shape.rows[(shape.below[shape.rows] > 0.0) | (not shape.below.any())]
    names = model.vocabulary.words
    joined = has_consensus(run) or bool(model.members)
    entries = []
    for row in rows:
        topic = int(described.ids[row])
        pairs = zip(described.words[row], described.probability[row], strict=True)
        # The model's names take the place of the family's titles.
        title = named.get(topic, None if described.titles is None else described.titles[row])
        entry = Topic(
            topic,
            float(described.share[row]),
            [(names[word], float(p)) for word, p in pairs],
            signed=described.signed,
            title=title,
        )
        if topic in stable:
            entry = replace(entry, stability=stable[topic].value, support=stable[topic].support if joined else None)
        if shape is not None and described.parent is not None:
            parent, level = int(described.parent[row]), int(shape.level[row])
            entry = replace(entry, parent=None if parent < 0 else parent, level=level, below=float(shape.below[row]))
        entries.append(entry)
    return entries


def held_by_few(topics: Sequence[Topic], summary: SummaryRecord | None) -> list[str]:
    """Return a line on large topics that are the main topic of hardly any document; none without such topics.

    Such a topic comes from a few long documents, or is spread thinly over all of them.
    """
    if summary is None or any(topic.level is not None or topic.signed for topic in topics):
        return []
    main = {topic.id: topic.documents for topic in summary.topics}
    total = sum(main.values())
    flagged = [
        topic
        for topic in topics
        if topic.id in main and topic.share >= LARGE and main[topic.id] < FEW * topic.share * total
    ]
    if not flagged:
        return []
    if len(flagged) == 1:
        [topic] = flagged
        documents = f"{main[topic.id]:,} of {total:,} documents"
        return [f"Topic {topic.id} has {topic.share:.1%} of the tokens, but is the main topic of {documents}."]
    names = ", ".join(f"{topic.id} ({topic.share:.1%})" for topic in flagged[:NAMED])
    more = f" and {len(flagged) - NAMED} more" if len(flagged) > NAMED else ""
    most = max(main[topic.id] for topic in flagged)
    documents = f"{f'at most {most:,}' if most else 'none'} of {total:,} documents"
    return [f"Topics {names}{more} have these shares of the tokens, but each is the main topic of {documents}."]


def describe(model: Model, words: int, ranking: RankOptions = BY_PROBABILITY) -> Description:
    """Describe the topics of a model over the whole vocabulary."""
    parts = [model.describe(model.rows(number), words) for number in range(len(model.blocks))]
    lows = [low for low, _ in model.blocks]
    word = np.concatenate([part.words + low for part, low in zip(parts, lows, strict=True)], axis=1)
    probability = np.concatenate([part.probability for part in parts], axis=1)
    weight = np.abs(probability) if parts[0].signed else probability
    top = largest(weight, words)
    top_words, top_probability = (np.take_along_axis(values, top, axis=1) for values in (word, probability))
    described = replace(parts[0], words=top_words, probability=top_probability)
    if ranking.rank_by != "probability":
        if described.signed:
            raise OptionError(
                f"expected probability, found {ranking.rank_by}: components of vectors have loadings, which have no "
                "other rank than their magnitude",
                "rank_by",
            )
        # The vocabulary is read a block at a time, for as many topics at a time as `CELLS_IN_MEMORY` allows.
        counts, ids, share = model.vocabulary.tokens.astype(np.float64), described.ids, described.share
        overall = word_shares(model)
        rows = [np.zeros((0, min(words, counts.size)), np.int64)]
        probabilities = [np.zeros((0, min(words, counts.size)))]
        for some, probability, exclusivity in topic_rows(model, ids, ids[has_tokens(share, counts.sum())]):
            expected = share[some] * counts.sum()
            top = largest(word_scores(probability, exclusivity, overall, expected, ranking), words)
            rows.append(top)
            probabilities.append(np.take_along_axis(probability, top, axis=1))
        described = replace(described, words=np.concatenate(rows), probability=np.concatenate(probabilities))
    return described


def _with_others(run: str | os.PathLike[str]) -> tuple[Model, list[Model]]:
    """Open a model, and the restarts or samples that its topics are compared with."""
    if has_consensus(run):
        # Raises an error if the members are not joined yet.
        leaves(run)
        return Model(run), [Model(url) for _, url in members_of(run)]
    restarts = restarts_of(run)
    if restarts:
        # Raises an error if a restart has not ended.
        leaves(run)
    model = Model(run)
    if model.members:
        return model, list(model.members)
    if restarts:
        first, *restarted = [Model(restart.folder.url) for _, restart in restarts]
        return first, restarted
    # The last sample is the model itself.
    return model, [Model(sample.url) for sample in samples_of(run)[:-1]]


def relevance(log_probability: Floats, log_overall: Floats, weight: float) -> Floats:
    """Return lambda log p(w | k) + (1 - lambda) log(p(w | k) / p(w))."""
    result: Floats = log_probability - (1.0 - weight) * log_overall
    return result


def frex(probability: Floats, exclusivity: Floats, weight: float) -> Floats:
    """Return the FREX scores of words (Bischof and Airoldi 2012, equation 11)."""
    scores: Floats = 1.0 / (weight / _cumulative(exclusivity) + (1.0 - weight) / _cumulative(probability))
    return scores


def _cumulative(values: Floats) -> Floats:
    """Return the share of each row's values that are at most as large as each of them."""
    return np.stack([np.searchsorted(np.sort(row), row, side="right") / max(row.size, 1) for row in values])


def word_scores(
    probability: Floats, exclusivity: Floats, overall: Floats, expected: Floats, options: RankOptions
) -> Floats:
    """Return the scores by which the words of some topics are ranked."""
    if options.rank_by == "probability":
        return probability
    weight = {"frex": FREX_WEIGHT, "relevance": RELEVANCE_WEIGHT, "lift": 0.0}[options.rank_by]
    weight = weight if options.rank_weight is None else options.rank_weight
    if options.rank_by == "frex":
        scores = frex(probability, exclusivity, weight)
    else:
        tiny = np.finfo(np.float64).tiny
        scores = relevance(np.log(np.maximum(probability, tiny)), np.log(np.maximum(overall, tiny)), weight)
    enough = (probability * expected[:, np.newaxis] >= MIN_EXPECTED_TOKENS) & (overall > 0.0)
    lowest = np.where(enough, scores, np.inf).min(axis=1, keepdims=True)
    below = np.where(np.isfinite(lowest), lowest, 0.0) - 2.0 + probability
    return np.where(enough, scores, below)


def topic_rows(model: Model, ids: Ints, occupied: Ints) -> Iterator[tuple[slice, Floats, Floats]]:
    """Yield some topics at a time: which, p(w | k), and the share of k in the sum of p(w | j) of `occupied` topics."""
    width = model.record.blocks[-1]
    group = max(CELLS_IN_MEMORY // max(width, 1), 1)
    for first in range(0, ids.size, group):
        some = slice(first, first + group)
        probability, total = np.empty((ids[some].size, width)), np.empty(width)
        for low, high, table in word_tables(model):
            probability[:, low:high] = table[:, ids[some]].T
            total[low:high] = table[:, occupied].sum(axis=1)
        yield some, probability, np.minimum(probability / np.maximum(total, np.finfo(np.float64).tiny), 1.0)


def word_shares(model: Model) -> Floats:
    """Return p(w), the share of each word in the corpus, of tokens that weigh as much as in the fit; shape (words,)."""
    tokens, weights = model.vocabulary.tokens.astype(np.float64), mean_weights(model)
    if weights is not None:
        tokens *= weights
    return np.asarray(tokens / max(float(tokens.sum()), 1.0))


def mean_weights(model: Model) -> Floats | None:
    """Return the mean weight of each word's tokens in the corpus, shape (words,); None if the fit weighs no words."""
    parts = [model.rows(number).mean_weights for number in range(len(model.blocks))]
    known = [np.asarray(part, dtype=np.float64) for part in parts if part is not None]
    return np.concatenate(known) if known else None


def word_tables(model: Model) -> Iterator[tuple[int, int, Floats]]:
    """Yield the blocks of the vocabulary: first and last-plus-one word, and probabilities, shape (words, topics)."""
    for number, (low, high) in enumerate(model.blocks):
        table = model.family.probabilities(model.rows(number), model.global_state)["word_topic"]
        yield low, high, np.maximum(np.asarray(table, dtype=np.float64), 0.0)


MAX_IDENTITY_DISTANCE = 0.6  # Largest Hellinger distance


def matched(reference: Model, model: Model) -> list[tuple[int, int, float]]:
    """Match the topics of two models one to one, with the smallest sum of distances."""
    return list(zip(*_assigned(distances(reference, model), occupied(reference), occupied(model)), strict=True))


def occupied(model: Model) -> Ints:
    """Return the ids of the topics that have tokens, ascending."""
    described = model.describe(model.rows(0).of_words(slice(1), complete=True), 1)
    tokens = described.share * float(model.vocabulary.tokens.sum())
    return np.sort(described.ids[tokens >= MIN_EXPECTED_TOKENS])


def has_tokens(share: Floats, tokens: float) -> npt.NDArray[np.bool_]:
    """Return which topics have tokens, given their shares of all `tokens`; all topics if none has."""
    enough = share * tokens >= MIN_EXPECTED_TOKENS
    # Ground truths have no counts of tokens, and tiny corpora may have less for each topic.
    some = enough if enough.any() else share > 0.0
    return some | (not some.any())


def distances(first: Model, second: Model) -> Floats:
    """Return the Hellinger distances of two models' topics, sqrt(1 - sum_w sqrt(phi_kw phi_lw))."""
    overlap: Floats | None = None
    # Words that were added to the vocabulary of one of the models are left out.
    words = min(first.record.blocks[-1], second.record.blocks[-1])
    cuts = sorted(cut for cut in {*first.record.blocks, *second.record.blocks} if cut < words)
    for low, high in zip(cuts, [*cuts[1:], words], strict=True):
        parts = [np.sqrt(_probability(model, low, high)) for model in (first, second)]
        part_overlap = parts[0].T @ parts[1]
        overlap = part_overlap if overlap is None else overlap + part_overlap
    if overlap is None:
        raise ValueError("a model has at least one block")
    result: Floats = np.sqrt(np.clip(1.0 - overlap, 0.0, 1.0))
    return result


def _probability(model: Model, low: int, high: int) -> Floats:
    """Return the probabilities of the words `low` to `high` - 1 of one block, shape (words, topics)."""
    number = next(block for block, (first, last) in enumerate(model.blocks) if first <= low < last)
    first = model.blocks[number][0]
    rows = model.rows(number).of_words(slice(low - first, high - first), complete=True)
    phi = model.family.probabilities(rows, model.global_state)["word_topic"]
    return np.maximum(np.asarray(phi, dtype=np.float64), 0.0)


def same_topics(model: Model, before: Model) -> dict[int, int]:
    """Return the topics of an earlier model that live on in a later one."""
    apart = distances(model, before)
    topics, earlier = occupied(model), occupied(before)
    shared = np.intersect1d(topics, earlier)
    same = {int(topic): int(topic) for topic in shared if apart[topic, topic] <= MAX_IDENTITY_DISTANCE}
    unmatched = [np.setdiff1d(ids, list(same)) for ids in (topics, earlier)]
    pairs = zip(*_assigned(apart, *unmatched), strict=True)
    return same | {topic: match for topic, match, distance in pairs if distance <= MAX_IDENTITY_DISTANCE}


def lasting_ids(model: Model, before: Model) -> dict[int, int]:
    """Return the ids that topics of a model have as the successor of an earlier one, by their present ids.

    A topic that lives on has the id that it had. A new topic keeps its id, unless a topic of the earlier model had it:
    then it gets the first that neither has.
    """
    same, topics = same_topics(model, before), occupied(model).tolist()
    taken = set(occupied(before).tolist())
    ids = {topic: same.get(topic, topic) for topic in topics if topic in same or topic not in taken}
    free = (number for number in itertools.count() if number not in taken and number not in ids.values())
    for topic in topics:
        if topic not in ids:
            ids[topic] = next(free)
    return ids


def _assigned(apart: Floats, first: Ints, second: Ints) -> tuple[list[int], list[int], list[float]]:
    """Return the ids of topics matched one to one with the smallest sum of distances, and their distances."""
    from scipy import optimize

    selected = apart[np.ix_(first, second)]
    rows, columns = optimize.linear_sum_assignment(selected)
    return first[rows].tolist(), second[columns].tolist(), selected[rows, columns].tolist()
