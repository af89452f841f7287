"""Relate labels to topics: proportions expected given labels, and the factor by which a label raises each topic."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.label_prediction import (
    expected_proportions,
    require_expectations,
    require_table,
    table_of,
)
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import Topic, topics
from collapsium.pipeline.options import keywords
from collapsium.storage.corpus.labels import Labels, Name
from collapsium.storage.errors import NumericalError, OptionError, suggestion
from collapsium.storage.io.file import File, require_free, scratch_folder
from collapsium.storage.printable import CsvRows, ShortRepr
from collapsium.workers.families.family import WeighsLabels

# Added to both shares before they are compared, so that rare topics do not head a ranking by a few tokens
SMOOTHING = 0.01
MIN_OVERALL = 1e-9  # Lower bound on a topic's share, against division by zero


@dataclass(frozen=True)
class Lifted:
    """A topic and how much a label raises it."""

    topic: int  # The topic's id
    share: float  # Its share conditional on the label
    lift: float  # That share divided by its share of the corpus


def smoothed_lift(share: float, overall: float) -> float:
    """Return the ratio of two shares after one percent is added to both."""
    return (share + SMOOTHING) / (overall + SMOOTHING)


def by_lift(shares: Iterable[tuple[int, float]], overall: Mapping[int, float], count: int) -> list[Lifted]:
    """Return the topics that a label raises most."""
    ranked = sorted(shares, key=lambda pair: (-smoothed_lift(pair[1], overall.get(pair[0], 0.0)), pair[0]))[:count]
    topics = [Lifted(topic, share, share / max(overall.get(topic, 0.0), MIN_OVERALL)) for topic, share in ranked]
    return [topic for rank, topic in enumerate(topics) if rank == 0 or topic.lift > 1.0]


WORDS = 5  # Words of each topic in the table of weights

Floats = npt.NDArray[np.float64]

MIN_PROPORTION = 1e-9  # Lower bound on proportions and shares before logarithms are taken
MIN_SHARE = 1e-4  # Share of the tokens below which a topic is not reported as raised by a label


@dataclass(frozen=True)
class ExpectedTopic:
    """A topic and its expected proportion given some labels.

    Attributes
    ----------
    topic : Topic
        The topic, with its share of the corpus.
    expected : float
        The expected proportion.
    """

    topic: Topic
    expected: float


@keywords()
def expected_topics(run: str | os.PathLike[str], given: Sequence[str], words: int = 10) -> list[ExpectedTopic]:
    """List the topics expected of a document with some labels, the largest proportion first.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or model whose family uses labels; for an ensemble, its first member's.
    given : sequence of str
        Labels, as value or field=value, and covariates, as name=number; empty for a document without labels.
    words : int, optional
        Number of words for each topic.

    Returns
    -------
    list of ExpectedTopic
        The topics that `topics` returns.

    Raises
    ------
    OptionError
        The family does not use labels, a label is unknown, or a covariate is not a number.
    """
    model = Model(run)
    require_expectations(model)
    table = require_table(model)
    numbers = {number.name: math.nan for number in table.numbers}
    names: set[Name] = set()
    for text in given:
        name, equals, value = text.partition("=")
        if name in numbers and equals:
            try:
                number = float(value)
            except ValueError:
                number = math.nan
            if not math.isfinite(number):
                raise OptionError(f"`given` {name}={value}: expected a finite number")
            numbers[name] = number
        elif text in numbers:
            raise OptionError(f"`given` {text}: expected {text}=NUMBER, as it is a covariate")
        elif equals and name not in table.fields and not any(value == text for _, value in table.names):
            raise OptionError(f"`given` {text}: unknown field '{name}'{suggestion(name, [*table.fields, *numbers])}")
        else:
            names.add(table.names[table.number_of(text)])
    position = np.arange(len(names), dtype=np.int32)
    columns = {name: np.array([value]) for name, value in numbers.items()}
    labels = Labels(tuple(sorted(names)), np.array([0, len(names)], dtype=np.int64), position, columns)
    proportions = expected_proportions(model, labels)[0]
    expected = [ExpectedTopic(topic, float(proportions[topic.id])) for topic in topics(run, words)]
    return sorted(expected, key=lambda topic: -topic.expected)


def named_labels(run: str | os.PathLike[str], texts: Sequence[str]) -> list[str]:
    """Split comma-separated labels, except texts that are a label, or field=value, as they are."""
    labels = {text for name, value in table_of(Model(run)).names for text in (value, f"{name}={value}")}
    parts = [part for text in texts for part in ([text] if text in labels else text.split(","))]
    return [part.strip() for part in parts if part.strip()]


@dataclass(frozen=True, repr=False)
class LabelTopics(ShortRepr):
    """Weights of labels on topics.

    Attributes
    ----------
    titles : list of str
        Names of labels and covariates: the value, or field=value if several fields have it; covariates by name.
    documents : list of int
        Number of training documents with each.
    topics : list of Topic
        The topics, in the order of `topics`.
    weights : numpy.ndarray of float64, shape (labels, topics)
        Log of the factor by which a label scales a topic's proportion before proportions are normalised; for a
        covariate, the factor of one standard deviation. For families without such factors, the log of the topic's
        expected proportion given the label alone, divided by its share of the corpus.
    expected : numpy.ndarray of float64, shape (labels, topics), or None
        Expected proportions, for families without such factors.
    """

    titles: list[str]
    documents: list[int]
    topics: list[Topic]
    weights: Floats
    expected: Floats | None = None

    def foremost(self, label: int, count: int) -> list[int]:
        """Return the indices in `topics` of those that a label raises most, without very small topics.

        Topics are ranked by the family's factors or, if it has none, by `smoothed_lift`.

        Parameters
        ----------
        label : int
            The label's index in `titles`.
        count : int
            Maximum number of topics.

        Returns
        -------
        list of int
            Indices; after the first, only topics that the label raises.
        """
        large = [column for column, topic in enumerate(self.topics) if topic.share >= MIN_SHARE]
        ranks = self.weights[label].tolist()
        if self.expected is not None:
            pairs = zip(self.expected[label].tolist(), self.topics, strict=True)
            ranks = [smoothed_lift(share, topic.share) for share, topic in pairs]
        best = sorted(large, key=lambda column: -ranks[column])[:count]
        return [column for column in best if column == best[0] or self.weights[label, column] > 0.0]


@keywords()
def label_topics(run: str | os.PathLike[str], words: int = 10) -> LabelTopics:
    """Return the weights of all labels on all topics.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or model whose family uses labels; for an ensemble, its first member's.
    words : int, optional
        Number of words for each topic.

    Returns
    -------
    LabelTopics
        All labels, in the order of the training corpus's table, and all topics with tokens.

    Raises
    ------
    OptionError
        The family does not use labels, or the training corpus has none.
    """
    model = Model(run)
    table, shown = require_table(model), topics(run, words)
    documents = [*table.documents, *(number.documents for number in table.numbers)]
    expected: Floats | None = None
    family, ids = model.family, np.array([topic.id for topic in shown], dtype=np.int64)
    if isinstance(family, WeighsLabels):
        weights = np.asarray(family.label_weights(model.global_state), dtype=np.float64)[:, ids]
    else:
        require_expectations(model)
        share = np.array([topic.share for topic in shown])
        # A document with each label, and one with each covariate at one standard deviation above its mean.
        labels, size = len(table.names), len(table)
        offsets = np.minimum(np.arange(size + 1), labels).astype(np.int64)
        numbers = {}
        for place, number in enumerate(table.numbers, start=labels):
            numbers[number.name] = np.full(size, np.nan)
            numbers[number.name][place] = number.mean + number.deviation
        each_alone = Labels(table.names, offsets, np.arange(labels, dtype=np.int32), numbers)
        expected = expected_proportions(model, each_alone)[:, ids]
        weights = np.log(np.maximum(expected, MIN_PROPORTION)) - np.log(np.maximum(share, MIN_PROPORTION))
    if not np.isfinite(weights).all():
        raise NumericalError(f"{model.folder.url}: expected finite weights of labels")
    return LabelTopics(table.titles(), documents, shown, weights, expected)


def write_weights(table: LabelTopics, out: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write the weights as CSV, with a row for each label and topic."""
    if not overwrite:
        require_free(out)
    with scratch_folder() as place:
        part = Path(place) / "weights.csv"
        with part.open("w", encoding="utf-8", errors="replace", newline="") as sink:
            tables = {"weight": table.weights} | ({} if table.expected is None else {"expected": table.expected})
            rows = CsvRows(sink, ["label", "documents", "topic", "share", *tables, "words"])
            for row, (title, count) in enumerate(zip(table.titles, table.documents, strict=True)):
                for column, topic in enumerate(table.topics):
                    values = [float(table[row, column]) for table in tables.values()]
                    rows.writerow(
                        [title, count, topic.id, topic.share, *values, rows.text(" ".join(topic.names[:WORDS]))]
                    )
        File(out).put(part)
    return rows.guarded
