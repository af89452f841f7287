"""Topics as people read them."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsar.pipeline.contract import load_family
from collapsar.pipeline.members import leaves, restarts_of, samples_of
from collapsar.pipeline.opening import Model
from collapsar.pipeline.stability import stability
from collapsar.storage.errors import OptionError


@dataclass(frozen=True)
class Topic:
    """One topic.

    Attributes
    ----------
    id : int
        Its permanent id.
    share : float
        Its share of the training tokens.
    words : list of (str, float)
        Its most probable words with their probabilities, falling.
    stability : float or None
        Of an ensemble's topic, how near its partners in the other members lie, from 0 to 1; see
        `collapsar.pipeline.stability`. None where there are no others, or it has no tokens.
    """

    id: int
    share: float
    words: list[tuple[str, float]]
    stability: float | None = None


def topics(run: str | os.PathLike[str], words: int = 10) -> list[Topic]:
    """List the topics of a model, the largest first; of an ensemble, its first member's, with their stability.

    Parameters
    ----------
    run : str or path-like
        Folder of a run, a model, or a simulated corpus with its truth.
    words : int, optional
        Words to give of each topic.

    Returns
    -------
    list of Topic
        Those that have tokens; all, where none has.

    Raises
    ------
    AbsentError
        There is no model.
    OptionError
        `words` is less than 1.
    """
    if words < 1:
        raise OptionError(f"--words: expected 1 or more, found {words}")
    model, others = _with_others(run)
    stable = stability(model, others)
    ids, share, word, probability = describe(model, words)
    names = model.vocabulary.words
    return [
        Topic(
            int(ids[row]),
            float(share[row]),
            [(names[one], float(p)) for one, p in zip(word[row], probability[row], strict=True)],
            stable.get(int(ids[row])),
        )
        for row in range(ids.size)
        if share[row] > 0.0 or not share.any()
    ]


def describe(
    model: Model, words: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Describe the topics of a model over the whole vocabulary.

    Parameters
    ----------
    model : Model
        The model.
    words : int
        Words to give of each topic; no more than there are.

    Returns
    -------
    ids : numpy.ndarray of int64, shape (topics,)
        Permanent ids, the largest topic first.
    share : numpy.ndarray of float64, shape (topics,)
        Each one's share of the tokens.
    word : numpy.ndarray of int64, shape (topics, words)
        Ids of the most probable words of each, falling.
    probability : numpy.ndarray of float64, shape (topics, words)
        Their probabilities.
    """
    family = load_family(model.record.family)
    found = []
    for number, (low, _) in enumerate(model.blocks):
        part = family.describe(model.rows(number), model.globals, words)
        found.append((part.ids, part.share, part.words + low, part.probability))
    ids, share = found[0][:2]
    word = np.concatenate([part[2] for part in found], axis=1)
    probability = np.concatenate([part[3] for part in found], axis=1)
    top = np.argsort(-probability, axis=1, kind="stable")[:, :words]
    return ids, share, np.take_along_axis(word, top, axis=1), np.take_along_axis(probability, top, axis=1)


def _with_others(run: str | os.PathLike[str]) -> tuple[Model, list[Model]]:
    """Open a model and those that its topics are compared with: the other restarts or, in their place, its samples."""
    restarts = restarts_of(run)
    if restarts:
        leaves(run)  # all must be at their ends
        found = [Model(one.folder.url) for _, one in restarts]
        return found[0], found[1:]
    return Model(run), [Model(place.url) for place in samples_of(run)[:-1]]  # the last sample is the model itself
