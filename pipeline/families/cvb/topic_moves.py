"""Which topics merge, are deleted or split: proposed and decided between sweeps, by tokens held out of the counts.

A CV-HDP keeps all topics of its truncation. The paper (Teh, Kurihara and Welling, 2007) names splitting and merging as
the remedy. Here a round of it takes three sweeps (`collapsium.workers.families.cvb.topic_moves` says what they add up),
and is judged by what it gains on a small share of the tokens, which count again once no round has found anything for a
while.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.delta import Arrays, Delta

Vector = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Made = dict[str, npt.NDArray[Any]]

SHARE = 0.1  # of the tokens, held out
PRIOR = 0.05  # alpha pi_k of each topic meanwhile
BEGIN, EVERY = 40, 5  # sweeps before the first round, and from one to the next
LAST = 0.75  # of all sweeps: then the tokens count again
LEAST_SWEEPS = 100  # of a run: with fewer, topics have no time to settle after the last round
IDLE, FEW = 4, 0.02  # so many rounds in a row that moved less than this share of the topics end the search
WORTH = 0.07  # of the topics; if the first round is sure of fewer moves, the truncation is not too large
SURE_MERGE, SURE_DELETE = 1.0, 3.0  # standard errors that a move gains which it is sure of
WORST = -1e6  # of scores, in nats a token
FALL = (
    0.5  # nats, over the root of how many are held out: a round whose score lies so far below the best ends the search
)
LIKE = 5  # topics most like each that it may merge with
DELETES, FEWEST, MOST = 0.25, 20, 100  # of the topics, the smallest, may be deleted; at least and at most so many
MOST_TOPICS = 1024  # of a truncation: products of all pairs of topics are made, 8 MB then
MOST_MERGES, MOST_DELETES = 0.2, 0.1  # of the topics, in a round
MERGE_ERRORS, DELETE_ERRORS = 0.5, 0.0  # least gain, in standard errors of the sum
SPLIT, PARTING = 0.5, 15  # share of the topics that are split, the largest; sweeps after which they are judged
SPLIT_ERRORS = -1.0  # they go together again unless that loses more


def begun(iterations: int) -> Made:
    """Return what the globals remember of the rounds.

    Parameters
    ----------
    iterations : int
        Sweeps that are planned.

    Returns
    -------
    dict of str to numpy.ndarray
        ``moves_last`` (the sweep after which there are no rounds), ``moves_idle``, and the numbers of ``merges``,
        ``deletes`` and ``splits`` so far; ``moves_best``, the best that held-out tokens have scored in a round.
    """
    counts = {name: np.array(0) for name in ("moves_idle", "merges", "deletes", "splits", "split_until")}
    split = {"split_pairs": np.zeros((2, 0), dtype=np.int64), "split_tried": np.array(False)}
    last = {"moves_last": np.array(int(LAST * iterations)), "moves_best": np.array(WORST)}
    return {**counts, **split, **last}


def possible(iterations: int) -> bool:
    """Say whether so many sweeps have room for a round, after which all tokens count again."""
    return int(LAST * iterations) > BEGIN


def decided(before: Arrays, after: Arrays, delta: Delta) -> Made:
    """Take the next step of a round.

    Parameters
    ----------
    before : Arrays
        The globals that the sweep was made against.
    after : Arrays
        The globals after it, so far.
    delta : Delta
        What the sweep told.

    Returns
    -------
    dict of str to numpy.ndarray
        What changes of `after`.
    """
    if "held_share" not in before or "tokens" not in delta:
        return {}
    # What was to be carried out has been.
    topics = before["topic_alive"].size
    result: Made = {"held_before": before["held_share"], "ask": np.array(0), "moving": np.array(False)}
    result.update(moves_into=np.arange(topics), moves_split=np.full(topics, -1))
    if not float(before["held_share"]):
        return result
    sweep, ask, last = int(after["sweeps"]), int(before["ask"]), int(before["moves_last"])
    if ask == 1:
        return {**result, **_candidates(before, after, delta)}
    if ask == 2:
        return {**result, **_carried_out(before, after, delta)}
    if int(before["split_until"]) > sweep:  # topics that were split part
        return result
    if before["split_pairs"].size:
        return {**result, "ask": np.array(2), "merge_candidates": before["split_pairs"]}
    idle = int(before["moves_idle"]) >= IDLE
    if idle and int(before["deletes"]) + int(before["merges"]) and not before["split_tried"] and sweep + PARTING < last:
        return {**result, **_split(after, sweep)}
    if idle or sweep >= last:
        return {**result, "held_share": np.array(0.0), "moving": np.array(True)}
    if sweep >= BEGIN and sweep % EVERY == 0:
        return {**result, "ask": np.array(1), **_smallest(after)}
    return result


def _smallest(globals: Arrays) -> Made:
    """Name the topics that may be deleted, the smallest first."""
    alive = np.flatnonzero(globals["topic_alive"])
    size = globals["topic_moments"][0][alive]
    count = min(max(int(DELETES * alive.size), FEWEST), MOST, alive.size - 1)
    chosen = alive[np.argsort(size, kind="stable")[:count]]
    return {"delete_candidates": chosen, "delete_spill": np.zeros((chosen.size, globals["topic_alive"].size))}


def _candidates(before: Arrays, after: Arrays, delta: Delta) -> Made:
    """Name the pairs of topics that may merge: each with those whose words are most like its own."""
    alive = np.flatnonzero(before["topic_alive"])
    upper = delta["topic_products"][np.ix_(alive, alive)]
    both = upper + upper.T - np.diag(np.diag(upper))
    mean = after["topic_moments"][0][alive] / float(before["vocabulary"])
    covariance = both - float(before["vocabulary"]) * np.outer(mean, mean)
    deviation = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
    alike = covariance / np.outer(deviation, deviation)
    np.fill_diagonal(alike, -np.inf)
    count = min(LIKE, alive.size - 1)
    nearest = np.argsort(-alike, axis=1, kind="stable")[:, :count]
    owner = np.repeat(np.arange(alive.size), count)
    pairs = np.sort(np.stack([owner, nearest.ravel()]), axis=0)
    pairs = np.unique(pairs, axis=1) if pairs.size else pairs
    return {
        "ask": np.array(2),
        "merge_candidates": np.ascontiguousarray(alive[pairs]).astype(np.int64),
        "delete_spill": delta["delete_spill"],
    }


@dataclass
class _Chosen:
    """Moves that do not concern one another."""

    into: Ints
    taken: npt.NDArray[np.bool_]
    merges: int = 0
    sure: int = 0  # of all these, those that gain many a standard error
    deletes: int = 0


def _carried_out(before: Arrays, after: Arrays, delta: Delta) -> Made:
    """Choose the moves that gain, the best first, and say what the topics are after them."""
    alive = np.array(before["topic_alive"])
    chosen = _Chosen(np.arange(alive.size), np.zeros(alive.size, dtype=bool))
    were_split = int(before["split_pairs"].shape[1])
    held = max(float(delta["held_score"][1]), 1.0)
    score, fallen = float(delta["held_score"][0]) / held, float(before["moves_best"]) - FALL / np.sqrt(held)
    _choose_merges(chosen, before, after, delta, SPLIT_ERRORS if were_split else MERGE_ERRORS)
    _choose_deletes(chosen, before, delta, int(alive.sum()))
    result: Made = {
        "split_pairs": np.zeros((2, 0), dtype=np.int64),
        "merge_candidates": np.zeros((2, 0), dtype=np.int64),
        "delete_candidates": np.zeros(0, dtype=np.int64),
        "delete_spill": np.zeros((0, alive.size)),
    }
    found = chosen.merges + chosen.deletes
    if not were_split and score < fallen:  # moves that gained one by one have lost together
        return {**result, "moves_idle": np.array(IDLE)}
    result["moves_best"] = np.array(max(score, float(before["moves_best"])))
    if were_split:  # those that go together again have changed nothing
        result["splits"] = before["splits"] + were_split - chosen.merges
        chosen.merges = 0
    first = not int(before["merges"]) + int(before["deletes"])
    if first and chosen.sure < WORTH * alive.sum():  # chance alone finds some; to follow it costs more than it gains
        return {**result, "moves_idle": np.array(IDLE)}
    few = found <= FEW * alive.sum()
    result["moves_idle"] = np.array(int(before["moves_idle"]) + 1 if few and not were_split else 0)
    if not found:
        return result
    gone = np.flatnonzero(chosen.into != np.arange(alive.size))
    alive[gone] = False
    result.update(moving=np.array(True), moves_into=chosen.into, topic_alive=alive)
    result["merges"] = before["merges"] + chosen.merges
    result["deletes"] = before["deletes"] + chosen.deletes
    # What the next sweep goes by. The counts themselves, which scores and models are made of, move in that sweep.
    result["topic_ahead"] = _moved(after["topic_ahead"], gone, chosen.into)
    return result


def _moved(values: npt.NDArray[Any], gone: Ints, into: Ints) -> npt.NDArray[Any]:
    """Give what topics have to those that they become."""
    moved = np.array(values)
    for topic in gone:
        if into[topic] >= 0:
            moved[..., into[topic]] += moved[..., topic]
        moved[..., topic] = 0.0
    return moved


def _split(globals: Arrays, sweep: int) -> Made:
    """Split the largest topics, in so far as there is room, by halves of the documents.

    Each half goes its own way for some sweeps; what then predicts no better goes together again.
    """
    alive = np.array(globals["topic_alive"])
    free, size = np.flatnonzero(~alive), globals["topic_moments"][0]
    count = min(free.size, int(SPLIT * alive.sum()))
    result: Made = {"split_tried": np.array(True)}
    if not count:
        return result
    ranked = np.flatnonzero(alive)[np.argsort(-size[alive], kind="stable")]
    split, new = ranked[:count], free[:count]
    into = np.full(alive.size, -1)
    into[split] = new
    alive[new] = True
    result.update(moving=np.array(True), moves_split=into, topic_alive=alive, moves_idle=np.array(0))
    result.update(split_pairs=np.stack([split, new]).astype(np.int64), split_until=np.array(sweep + PARTING))
    ahead = np.array(globals["topic_ahead"])  # counts that scores are made of move in the sweep, as in `_carried_out`
    ahead[new] = ahead[split] = ahead[split] / 2
    return {**result, "topic_ahead": ahead}


def _choose_merges(chosen: _Chosen, before: Arrays, after: Arrays, delta: Delta, errors: float) -> None:
    gain, square = delta["merge_gain"], delta["merge_square"]
    first, second = before["merge_candidates"]
    size = after["topic_moments"][0]
    most = max(int(MOST_MERGES * before["topic_alive"].sum()), 1)
    for place in np.argsort(-gain, kind="stable"):
        if chosen.merges == most and errors > 0:
            return
        if gain[place] <= errors * np.sqrt(square[place]) or (errors > 0 and gain[place] <= 0):
            continue
        k, m = int(first[place]), int(second[place])
        if chosen.taken[k] or chosen.taken[m]:
            continue
        if size[m] > size[k]:
            k, m = m, k
        chosen.taken[[k, m]] = True
        chosen.into[m] = k
        chosen.merges += 1
        chosen.sure += int(gain[place] > SURE_MERGE * np.sqrt(square[place]))


def _choose_deletes(chosen: _Chosen, before: Arrays, delta: Delta, topics: int) -> None:
    gain, square = delta["delete_gain"], delta["delete_square"]
    most = max(int(MOST_DELETES * topics), 1)
    for place in np.argsort(-gain, kind="stable"):
        topic = int(before["delete_candidates"][place])
        if chosen.deletes == most or topics - chosen.merges - chosen.deletes <= 1:
            return
        if chosen.taken[topic] or gain[place] <= DELETE_ERRORS * np.sqrt(square[place]):
            continue
        chosen.taken[topic] = True
        chosen.into[topic] = -1
        chosen.deletes += 1
        chosen.sure += int(gain[place] > SURE_DELETE * np.sqrt(square[place]))
