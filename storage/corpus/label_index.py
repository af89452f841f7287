"""The labels and numbers of a training corpus, numbered for models, and those of documents by these numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.labels import Labels, Name
from collapsium.storage.errors import InputError, OptionError, suggestion
from collapsium.storage.short_repr import ShortRepr

if TYPE_CHECKING:
    from collapsium.storage.corpus.corpus import Corpus

MOST_VALUES = 100  # distinct values of a number that are remembered


@dataclass(frozen=True)
class NumberField:
    """A numeric covariate of a training corpus.

    Attributes
    ----------
    name : str
        The field.
    documents : int
        How many documents have it.
    mean, deviation : float
        Its mean over these, and its standard deviation; 1 where it is the same in all.
    largest : float
        How far a value is from the mean at most, in standard deviations.
    values : tuple of float
        Its distinct values, ascending, where there are at most 100; else empty.
    """

    name: str
    documents: int
    mean: float
    deviation: float
    largest: float
    values: tuple[float, ...]


@dataclass(frozen=True, repr=False)
class LabelTable(ShortRepr):
    """The labels and numbers of a training corpus, numbered: first the labels, sorted, then the numbers.

    Attributes
    ----------
    names : tuple of (str, str)
        Field and value of each label.
    documents : tuple of int
        How many documents have each.
    numbers : tuple of NumberField
        The numeric covariates.
    most : int
        The largest number of labels that a document has.
    labelled : int
        How many documents have a label or a number.
    """

    names: tuple[Name, ...] = ()
    documents: tuple[int, ...] = ()
    numbers: tuple[NumberField, ...] = ()
    most: int = 0
    labelled: int = 0

    def __len__(self) -> int:
        return len(self.names) + len(self.numbers)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of labels, sorted."""
        return tuple(sorted({name for name, _ in self.names}))

    def titles(self) -> list[str]:
        """Return how each label and number is called: by its value where no other field has that, else field=value."""
        seen: dict[str, int] = {}
        for _, value in self.names:
            seen[value] = seen.get(value, 0) + 1
        taken = {one.name for one in self.numbers}
        labels = [value if seen[value] == 1 and value not in taken else f"{name}={value}" for name, value in self.names]
        return [*labels, *(one.name for one in self.numbers)]

    def packed(self) -> npt.NDArray[np.uint8]:
        """Return the table as an array of bytes, which is JSON."""
        numbers = [asdict(one) for one in self.numbers]
        record = [self.names, self.documents, numbers, self.most, self.labelled]
        return np.frombuffer(json.dumps(record, separators=(",", ":")).encode(), dtype=np.uint8)

    @staticmethod
    def unpacked(data: npt.NDArray[np.uint8]) -> LabelTable:
        """Read what `packed` returned."""
        names, documents, numbers, most, labelled = json.loads(data.tobytes())
        return LabelTable(
            tuple((name, value) for name, value in names),
            tuple(documents),
            tuple(NumberField(**{**one, "values": tuple(one["values"])}) for one in numbers),
            most,
            labelled,
        )

    def number_of(self, text: str) -> int:
        """Return the number of a label that a person named.

        Parameters
        ----------
        text : str
            Its value, or field=value.

        Returns
        -------
        int
            Its place among the names.

        Raises
        ------
        OptionError
            There is no such label, or several; near ones are named.
        """
        exact = [place for place, (name, value) in enumerate(self.names) if f"{name}={value}" == text]
        found = exact or [place for place, (_, value) in enumerate(self.names) if value == text]
        if len(found) == 1:
            return found[0]
        if found:
            several = " or ".join("=".join(self.names[place]) for place in found)
            raise OptionError(f"label '{text}': several fields have it; say {several}")
        known = ["=".join(name) for name in self.names] if "=" in text else [value for _, value in self.names]
        raise OptionError(f"unknown label '{text}'{suggestion(text, known, 3)}")


@dataclass(frozen=True)
class Numbered:
    """Labels and numbers of documents by their places in a training corpus's table.

    Attributes
    ----------
    offsets : numpy.ndarray of int64, shape (documents + 1,)
        Where each document's begin.
    label : numpy.ndarray of int32
        Each one's number in the table; those that the table does not have are left out, as if they were missing.
    value : numpy.ndarray of float64
        1 of a label; of a number how many standard deviations it is above the mean, so that a missing one, which is
        left out, counts as the mean.
    """

    offsets: npt.NDArray[np.int64]
    label: npt.NDArray[np.int32]
    value: npt.NDArray[np.float64]


def numbered(labels: Labels | None, table: LabelTable, documents: int) -> Numbered:
    """Give the labels of documents the numbers that they have in a table.

    Parameters
    ----------
    labels : Labels or None
        What is known of the documents; None for nothing.
    table : LabelTable
        The training corpus's.
    documents : int
        How many there are.

    Returns
    -------
    Numbered
        In each document, labels and then numbers ascend.
    """
    labels = labels or Labels.none(documents)
    places = {name: place for place, name in enumerate(table.names)}
    own = np.array([places.get(name, -1) for name in labels.names], dtype=np.int64)
    owner = np.repeat(np.arange(documents), np.diff(labels.offsets))
    label = own[labels.position] if labels.position.size else np.zeros(0, dtype=np.int64)
    owners, numbers, values = [owner[label >= 0]], [label[label >= 0]], [np.ones(int((label >= 0).sum()))]
    for place, one in enumerate(table.numbers, start=len(table.names)):
        column = labels.numbers.get(one.name)
        if column is not None:
            there = np.flatnonzero(~np.isnan(column))
            owners.append(there)
            numbers.append(np.full(there.size, place))
            values.append((column[there] - one.mean) / one.deviation)
    owner, label, value = np.concatenate(owners), np.concatenate(numbers), np.concatenate(values)
    order = np.lexsort((label, owner))
    offsets = np.searchsorted(owner[order], np.arange(documents + 1)).astype(np.int64)
    return Numbered(offsets, label[order].astype(np.int32), value[order])


def label_table(corpus: Corpus, fields: Sequence[str] = (), numbers: Sequence[str] = ()) -> LabelTable:
    """Read which labels and numbers the documents of a corpus have; nothing else of its shards is decoded.

    Parameters
    ----------
    corpus : Corpus
        The corpus.
    fields : sequence of str, optional
        Which fields of labels to take; by default all.
    numbers : sequence of str, optional
        Which numeric covariates to take.

    Returns
    -------
    LabelTable
        The table.

    Raises
    ------
    OptionError
        The corpus has no such field; near ones are named.
    InputError
        A covariate is not finite.
    """
    gathered = _Gathered(tuple(fields), tuple(numbers))
    for reference in corpus.references:
        gathered.add(reference.labels())
    for what, asked, there in (("labels", fields, gathered.fields), ("covariates", numbers, gathered.columns)):
        for name in asked:
            if name not in there:
                raise OptionError(f"`{what}` {name}: {corpus.url} has no such field{suggestion(name, there)}")
    names = tuple(sorted(gathered.counts))
    each = tuple(_number_field(corpus, name, np.concatenate(gathered.values[name])) for name in numbers)
    return LabelTable(names, tuple(gathered.counts[name] for name in names), each, gathered.most, gathered.labelled)


class _Gathered:
    """What the shards' labels and numbers come to."""

    def __init__(self, fields: tuple[str, ...], numbers: tuple[str, ...]) -> None:
        self._taken = fields
        self.counts: dict[Name, int] = {}
        self.values: dict[str, list[npt.NDArray[np.float64]]] = {name: [] for name in numbers}
        self.fields, self.columns = set[str](), set[str]()
        self.most = self.labelled = 0

    def add(self, labels: Labels) -> None:
        """Add a shard's."""
        self.fields |= {name for name, _ in labels.names}
        self.columns |= set(labels.numbers)
        for name in self.fields - set(self._taken) if self._taken else ():
            labels = labels.without(name)
        each = np.diff(labels.offsets)
        for place, count in enumerate(np.bincount(labels.position, minlength=len(labels.names)).tolist()):
            if count:
                self.counts[labels.names[place]] = self.counts.get(labels.names[place], 0) + count
        has = each > 0
        for name, values in self.values.items():
            column = labels.numbers.get(name)
            if column is not None:
                values.append(column[~np.isnan(column)])
                has = has | ~np.isnan(column)
        self.most, self.labelled = max(self.most, int(each.max(initial=0))), self.labelled + int(has.sum())


def _number_field(corpus: Corpus, name: str, values: npt.NDArray[np.float64]) -> NumberField:
    """Sum up a numeric covariate."""
    if not np.isfinite(values).all():
        raise InputError(corpus.url, f"expected finite numbers as covariate '{name}'")
    if not values.size:
        return NumberField(name, 0, 0.0, 1.0, 0.0, ())
    distinct = np.unique(values)
    kept = tuple(distinct.tolist()) if distinct.size <= MOST_VALUES else ()
    deviation = float(values.std()) if distinct.size > 1 else 1.0
    mean = float(values.mean())
    largest = float(np.abs(values - mean).max()) / deviation
    return NumberField(name, int(values.size), mean, deviation, largest, kept)
