"""Topics that labels let one expect: proportions given any set of them, and how much each raises which topic."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.labels.conditional import (
    expected_proportions,
    require_expectations,
    require_table,
    table_of,
)
from collapsium.pipeline.analysis.labels.lift import smoothed_lift
from collapsium.pipeline.analysis.topics import Topic, topics
from collapsium.pipeline.families.base import WeighsLabels
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.registry import load_family
from collapsium.pipeline.options import keywords
from collapsium.storage.corpus.label_index import LabelTable
from collapsium.storage.corpus.labels import Labels, Name
from collapsium.storage.errors import NumericalError, OccupiedError, OptionError, suggestion
from collapsium.storage.io.file import File
from collapsium.storage.printable import CsvRows
from collapsium.storage.short_repr import ShortRepr

WORDS = 5  # of a topic

Floats = npt.NDArray[np.float64]

LEAST = 1e-9  # proportion and share, of which logarithms are taken
LEAST_SHARE = 1e-4  # a topic with less of the tokens is no label's foremost


@dataclass(frozen=True)
class ExpectedTopic:
    """A topic and the proportion of it that some labels let one expect.

    Attributes
    ----------
    topic : Topic
        As `topics` has it, with its share of the corpus.
    expected : float
        The expected proportion.
    """

    topic: Topic
    expected: float


@keywords()
def expected_topics(run: str | os.PathLike[str], given: Sequence[str], words: int = 10) -> list[ExpectedTopic]:
    """List the topics that a document with some labels is expected to have, the largest proportion first.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or model whose family takes labels; of an ensemble, its first member's.
    given : sequence of str
        Labels, as value or field=value, and numbers, as name=number; with none, what is expected without labels.
    words : int, optional
        Words to give of each topic.

    Returns
    -------
    list of ExpectedTopic
        Those that `topics` has.

    Raises
    ------
    OptionError
        The family takes no labels; or there is no such label, of which near ones are named; or a number is none.
    """
    model = Model(run)
    require_expectations(model)
    labels = _labels(require_table(model), given)
    proportions = expected_proportions(model, labels)[0]
    found = [ExpectedTopic(one, float(proportions[one.id])) for one in topics(run, words)]
    return sorted(found, key=lambda one: -one.expected)


def named_labels(run: str | os.PathLike[str], texts: Sequence[str]) -> list[str]:
    """Part lists of labels at their commas; what is a label as it stands, or such a field=value, is left whole.

    Parameters
    ----------
    run : str or path-like
        As for `expected_topics`.
    texts : sequence of str
        The lists.

    Returns
    -------
    list of str
        Labels and numbers for `expected_topics`, known or not.
    """
    whole = {text for name, value in table_of(Model(run)).names for text in (value, f"{name}={value}")}
    return [one.strip() for text in texts for one in ([text] if text in whole else text.split(",")) if one.strip()]


def _labels(table: LabelTable, given: Sequence[str]) -> Labels:
    """Make one document's labels and numbers of what a person named."""
    numbers = {one.name: math.nan for one in table.numbers}
    names: set[Name] = set()
    for text in given:
        name, equals, value = text.partition("=")
        if name in numbers and equals:
            numbers[name] = _number(name, value)
        elif text in numbers:
            raise OptionError(f"`given` {text}: it is a number; say {text}=NUMBER")
        elif equals and name not in table.fields and not any(value == text for _, value in table.names):
            raise OptionError(f"`given` {text}: unknown field '{name}'{suggestion(name, [*table.fields, *numbers])}")
        else:
            names.add(table.names[table.number_of(text)])
    position = np.arange(len(names), dtype=np.int32)
    columns = {name: np.array([value]) for name, value in numbers.items()}
    return Labels(tuple(sorted(names)), np.array([0, len(names)], dtype=np.int64), position, columns)


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise OptionError(f"`given` {name}={text}: expected a finite number")
    return value


@dataclass(frozen=True, repr=False)
class LabelTopics(ShortRepr):
    """How much each label raises each topic.

    Attributes
    ----------
    titles : list of str
        What labels and numbers are called: by value, or field=value where several fields have it; numbers by name.
    documents : list of int
        Training documents that have each.
    topics : list of Topic
        Those that `topics` has, in its order.
    weights : numpy.ndarray of float64, shape (labels, topics)
        log of the factor by which a label scales a topic's proportion before proportions are normalised; of a number,
        for one standard deviation more. Where a family has no such factors: log of the topic's expected proportion
        given the label alone over its share of the corpus.
    expected : numpy.ndarray of float64, shape (labels, topics), or None
        Of families without such factors, the expected proportions.
    """

    titles: list[str]
    documents: list[int]
    topics: list[Topic]
    weights: Floats
    expected: Floats | None = None

    def foremost(self, label: int, count: int) -> list[int]:
        """Return the places in `topics` of those that a label raises most; topics with hardly a token are left out.

        They are ranked by the family's factors or, where it has none, by lift, smoothed as `smoothed_lift` does.

        Parameters
        ----------
        label : int
            The label's place in `titles`.
        count : int
            Topics at most.

        Returns
        -------
        list of int
            The first is always there, the others only if the label raises them.
        """
        large = [place for place, one in enumerate(self.topics) if one.share >= LEAST_SHARE]
        best = sorted(large, key=lambda place: -self._rank(label, place))[:count]
        return [place for place in best if place == best[0] or self.weights[label, place] > 0.0]

    def _rank(self, label: int, place: int) -> float:
        if self.expected is None:
            return float(self.weights[label, place])
        return smoothed_lift(float(self.expected[label, place]), self.topics[place].share)


@keywords()
def label_topics(run: str | os.PathLike[str], words: int = 10) -> LabelTopics:
    """Give the weights of labels and topics.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or model whose family takes labels; of an ensemble, its first member's.
    words : int, optional
        Words to give of each topic.

    Returns
    -------
    LabelTopics
        All labels, in the order of the training corpus's table, and all topics that have tokens.

    Raises
    ------
    OptionError
        The family takes no labels, or its corpus had none.
    """
    model = Model(run)
    table, shown = require_table(model), topics(run, words)
    documents = [*table.documents, *(one.documents for one in table.numbers)]
    return LabelTopics(table.titles(), documents, shown, *_weights(model, table, shown))


def _weights(model: Model, table: LabelTable, shown: Sequence[Topic]) -> tuple[Floats, Floats | None]:
    """Ask the family, or compare the proportions that each label alone lets one expect with the topics' shares."""
    expected: Floats | None = None
    family, ids = load_family(model.record.family), np.array([one.id for one in shown], dtype=np.int64)
    if isinstance(family, WeighsLabels):
        found = np.asarray(family.label_weights(model.global_state), dtype=np.float64)[:, ids]
    else:
        require_expectations(model)
        share = np.array([one.share for one in shown])
        expected = expected_proportions(model, _each_alone(table))[:, ids]
        found = np.log(np.maximum(expected, LEAST)) - np.log(np.maximum(share, LEAST))
    if not np.isfinite(found).all():
        raise NumericalError(f"{model.folder.url}: expected finite weights of labels")
    return found, expected


def _each_alone(table: LabelTable) -> Labels:
    """Make a document of each label, and of each number one standard deviation above its mean."""
    labels, size = len(table.names), len(table)
    offsets = np.minimum(np.arange(size + 1), labels).astype(np.int64)
    numbers = {}
    for place, one in enumerate(table.numbers, start=labels):
        numbers[one.name] = np.full(size, np.nan)
        numbers[one.name][place] = one.mean + one.deviation
    return Labels(table.names, offsets, np.arange(labels, dtype=np.int32), numbers)


def write_weights(table: LabelTopics, out: str | os.PathLike[str]) -> None:
    """Write a row for each label and topic.

    Parameters
    ----------
    table : LabelTopics
        The table.
    out : str or path-like
        File to write: label, documents, topic, share, weight, words; and expected, behind weight, of families without
        factors.

    Raises
    ------
    OccupiedError
        The file exists.
    """
    target = File(out)
    if target.exists():
        raise OccupiedError(f"{os.fspath(out)}: exists already; name a new file or remove this one")
    with tempfile.TemporaryDirectory(prefix="collapsium-") as place:
        part = Path(place) / "weights.csv"
        with part.open("w", encoding="utf-8", errors="replace", newline="") as sink:
            rows = CsvRows(sink)
            figures = {"weight": table.weights} | ({} if table.expected is None else {"expected": table.expected})
            rows.writerow(["label", "documents", "topic", "share", *figures, "words"])
            for row, (title, count) in enumerate(zip(table.titles, table.documents, strict=True)):
                for column, topic in enumerate(table.topics):
                    given = [float(one[row, column]) for one in figures.values()]
                    rows.writerow([title, count, topic.id, topic.share, *given, " ".join(topic.names[:WORDS])])
        target.put(part)
