"""Topics and nodes of trees as people read them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np

from collapsium.pipeline.analysis.stability import stability
from collapsium.pipeline.families.base import Description
from collapsium.pipeline.families.description import Shape, shape_of
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.registry import load_family
from collapsium.pipeline.options import keywords
from collapsium.storage.errors import OptionError
from collapsium.storage.runs.members import leaves, restarts_of, samples_of
from collapsium.workers.arrays.ranking import largest


@dataclass(frozen=True)
class Topic:
    """One topic, or one node of a tree.

    Attributes
    ----------
    id : int
        Its permanent id.
    share : float
        Its share of the training tokens; a node's own, without the nodes below it.
    words : list of (str, float)
        Its most probable words with their probabilities, falling. Where `signed`, columns of vectors with their
        loadings, which may be negative, by falling magnitude.
    stability : float or None
        Of an ensemble's topic, how near its partners in the other members lie, from 0 to 1; see
        `collapsium.pipeline.analysis.stability`. None where there are no others, or it has no tokens.
    parent : int or None
        The id of the node above; None of a root, and where topics are flat.
    level : int or None
        Steps from the root, which has level 0; None where topics are flat.
    below : float or None
        Share of the tokens at the node and at all nodes below it; None where topics are flat.
    signed : bool
        Whether `words` are columns with loadings.
    title : str or None
        What it is called, such as the label whose topic it is; None where the family has no names.
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

    @property
    def label(self) -> str:
        """What stands for it in a picture of a tree."""
        return str(self.id)

    @property
    def names(self) -> list[str]:
        """Its words, a minus sign before those with negative loadings."""
        return [("-" if p < 0.0 else "") + word for word, p in self.words]


@keywords()
def topics(run: str | os.PathLike[str], words: int = 10) -> list[Topic]:
    """List the topics of a model, the largest first, or the nodes of its tree, depth-first.

    Of an ensemble, its first member's, with their stability.

    Parameters
    ----------
    run : str or path-like
        Folder of a run, a model, or a simulated corpus with its truth.
    words : int, optional
        Words to give of each topic.

    Returns
    -------
    list of Topic
        Those that have tokens, in a tree at them or below them; all, where none has. A node comes right after its
        parent or after the nodes below an earlier sibling.

    Raises
    ------
    AbsentError
        There is no model.
    OptionError
        `words` is no whole number, or less than 1.
    """
    if isinstance(words, bool) or not isinstance(words, (int, np.integer)) or words < 1:
        raise OptionError(f"expected a whole number, 1 or more, found {words!r}", "words")
    model, others = _with_others(run)
    found = describe(model, words)
    stable = {} if found.signed else stability(model, others)
    shape = None if found.parent is None else shape_of(found.ids, found.parent, found.share)
    held = found.share if shape is None else shape.below
    rows = np.arange(found.ids.size) if shape is None else shape.rows
    names = model.vocabulary.words
    return [
        _topic(found, row, names, stable.get(int(found.ids[row])), shape)
        for row in rows
        if held[row] > 0.0 or not held.any()
    ]


def _topic(found: Description, row: int, names: list[str], stable: float | None, shape: Shape | None) -> Topic:
    words = [(names[one], float(p)) for one, p in zip(found.words[row], found.probability[row], strict=True)]
    title = None if found.titles is None else found.titles[row]
    topic = Topic(int(found.ids[row]), float(found.share[row]), words, stable, signed=found.signed, title=title)
    if shape is None or found.parent is None:
        return topic
    above = int(found.parent[row])
    level, below = int(shape.level[row]), float(shape.below[row])
    return replace(topic, parent=None if above < 0 else above, level=level, below=below)


def describe(model: Model, words: int) -> Description:
    """Describe the topics of a model over the whole vocabulary.

    Parameters
    ----------
    model : Model
        The model.
    words : int
        Words to give of each topic; no more than there are.

    Returns
    -------
    Description
        Its ``words`` are ids; they fall by probability or, of signed loadings, by magnitude.
    """
    family = load_family(model.record.family)
    parts = [family.describe(model.rows(number), model.global_state, words) for number in range(len(model.blocks))]
    lows = [low for low, _ in model.blocks]
    word = np.concatenate([part.words + low for part, low in zip(parts, lows, strict=True)], axis=1)
    probability = np.concatenate([part.probability for part in parts], axis=1)
    weight = np.abs(probability) if parts[0].signed else probability
    top = largest(weight, words)
    return replace(
        parts[0],
        words=np.take_along_axis(word, top, axis=1),
        probability=np.take_along_axis(probability, top, axis=1),
    )


def _with_others(run: str | os.PathLike[str]) -> tuple[Model, list[Model]]:
    """Open a model and those that its topics are compared with: the other restarts or, in their place, its samples."""
    restarts = restarts_of(run)
    if restarts:
        leaves(run)  # all must be at their ends
        found = [Model(one.folder.url) for _, one in restarts]
        return found[0], found[1:]
    return Model(run), [Model(place.url) for place in samples_of(run)[:-1]]  # the last sample is the model itself
