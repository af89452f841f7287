"""Match the topics of two models by the Hellinger distances of their word probabilities."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.models.model import Model

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
MIN_EXPECTED_TOKENS = 0.5  # Expected count below which a topic counts as empty


MAX_IDENTITY_DISTANCE = 0.6  # Largest Hellinger distance


def matched(reference: Model, model: Model) -> list[tuple[int, int, float]]:
    """Match the topics of two models one to one, with the smallest sum of distances."""
    return list(zip(*_assigned(distances(reference, model), occupied(reference), occupied(model)), strict=True))


def occupied(model: Model) -> Ints:
    """Return the ids of the topics that have tokens, ascending."""
    described = model.describe(model.rows(0).of_words(slice(1), complete=True), 1)
    tokens = described.share * float(model.vocabulary.tokens.sum())
    return np.sort(described.ids[tokens >= MIN_EXPECTED_TOKENS])


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
