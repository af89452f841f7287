"""Topics as people read them."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from collapsar.pipeline.contract import load_family
from collapsar.pipeline.opening import Model
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
    """

    id: int
    share: float
    words: list[tuple[str, float]]


def topics(run: str | os.PathLike[str], words: int = 10) -> list[Topic]:
    """List the topics of a model, the largest first.

    Parameters
    ----------
    run : str or path-like
        Folder of a run, a model, or a simulated corpus with its truth.
    words : int, optional
        Words to give of each topic.

    Returns
    -------
    list of Topic
        All topics.

    Raises
    ------
    AbsentError
        There is no model.
    OptionError
        `words` is less than 1.
    """
    if words < 1:
        raise OptionError(f"--words: expected 1 or more, found {words}")
    model = Model(run)
    family = load_family(model.record.family)
    found = []
    for number, (low, _) in enumerate(model.blocks):
        part = family.describe(model.rows(number), model.globals, words)
        found.append((part.ids, part.share, part.words + low, part.probability))
    ids, share = found[0][:2]
    word = np.concatenate([part[2] for part in found], axis=1)
    probability = np.concatenate([part[3] for part in found], axis=1)
    top = np.argsort(-probability, axis=1, kind="stable")[:, :words]
    names = model.vocabulary.words
    return [
        Topic(
            int(ids[row]),
            float(share[row]),
            [(names[word[row, place]], float(probability[row, place])) for place in top[row]],
        )
        for row in range(ids.size)
    ]
