"""Number the labels and covariates of a training corpus, and encode the documents' labels by these numbers."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.labels import Labels, Name
from collapsium.storage.errors import InputError, OptionError, suggestion
from collapsium.storage.printable import ShortRepr

if TYPE_CHECKING:
    from collapsium.storage.corpus.corpus import Corpus

MOST_VALUES = 100  # Largest number of distinct values of a covariate that are recorded


@dataclass(frozen=True)
class NumberField:
    """A numeric covariate of a training corpus."""

    name: str  # Name of the field
    documents: int  # Number of documents with a value
    # Mean and standard deviation of the values; a deviation of 0 is recorded as 1
    mean: float
    deviation: float
    largest: float  # Largest distance of a value from the mean, in standard deviations
    values: tuple[float, ...]  # Distinct values, ascending; empty if there are more than 100


@dataclass(frozen=True, repr=False)
class LabelTable(ShortRepr):
    """The labels and covariates of a training corpus: first the labels, sorted, then the covariates."""

    names: tuple[Name, ...] = ()  # Field and value of each label
    documents: tuple[int, ...] = ()  # Number of documents with each label
    numbers: tuple[NumberField, ...] = ()  # The numeric covariates
    max_labels: int = 0  # Largest number of labels of a document
    labelled: int = 0  # Number of documents with a label or covariate

    def __len__(self) -> int:
        return len(self.names) + len(self.numbers)

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of labels, sorted."""
        return tuple(sorted({name for name, _ in self.names}))

    def titles(self) -> list[str]:
        """Return a title for each label, its value or field=value if ambiguous, and each covariate."""
        seen: dict[str, int] = {}
        for _, value in self.names:
            seen[value] = seen.get(value, 0) + 1
        taken = {number.name for number in self.numbers}
        labels = [value if seen[value] == 1 and value not in taken else f"{name}={value}" for name, value in self.names]
        return [*labels, *(number.name for number in self.numbers)]

    def packed(self) -> npt.NDArray[np.uint8]:
        """Return the table as JSON in an array of bytes."""
        numbers = [asdict(number) for number in self.numbers]
        record = [self.names, self.documents, numbers, self.max_labels, self.labelled]
        return np.frombuffer(json.dumps(record, separators=(",", ":")).encode(), dtype=np.uint8)

    @staticmethod
    def unpacked(data: npt.NDArray[np.uint8]) -> LabelTable:
        """Return the table from the result of `packed`."""
        names, documents, numbers, max_labels, labelled = json.loads(data.tobytes())
        return LabelTable(
            tuple((name, value) for name, value in names),
            tuple(documents),
            tuple(NumberField(**{**number, "values": tuple(number["values"])}) for number in numbers),
            max_labels,
            labelled,
        )

    def number_of(self, text: str) -> int:
        """Return the number of a label from its value or field=value."""
        exact = [place for place, (name, value) in enumerate(self.names) if f"{name}={value}" == text]
        matches = exact or [place for place, (_, value) in enumerate(self.names) if value == text]
        if len(matches) == 1:
            return matches[0]
        if matches:
            several = " or ".join("=".join(self.names[place]) for place in matches)
            raise OptionError(f"label '{text}': several fields have it; name one as {several}")
        known = ["=".join(name) for name in self.names] if "=" in text else [value for _, value in self.names]
        raise OptionError(f"unknown label '{text}'{suggestion(text, known, 3)}")


@dataclass(frozen=True)
class Numbered:
    """Labels and covariates of documents, by their numbers in a training corpus's table."""

    offsets: npt.NDArray[np.int64]  # Offsets of the documents; int64 (documents + 1,)
    label: npt.NDArray[np.int32]  # Numbers in the table; labels outside the table are omitted; int32
    # 1 for labels; for covariates the standardised value, so that a missing covariate counts as the mean; float64
    value: npt.NDArray[np.float64]


def numbered(labels: Labels | None, table: LabelTable, documents: int) -> Numbered:
    """Encode the labels and covariates of documents by a table."""
    labels = labels or Labels.none(documents)
    places = {name: place for place, name in enumerate(table.names)}
    table_places = np.array([places.get(name, -1) for name in labels.names], dtype=np.int64)
    owner = np.repeat(np.arange(documents), np.diff(labels.offsets))
    label = table_places[labels.position] if labels.position.size else np.zeros(0, dtype=np.int64)
    owners, numbers, values = [owner[label >= 0]], [label[label >= 0]], [np.ones(int((label >= 0).sum()))]
    for place, number in enumerate(table.numbers, start=len(table.names)):
        column = labels.numbers.get(number.name)
        if column is not None:
            known = np.flatnonzero(~np.isnan(column))
            owners.append(known)
            numbers.append(np.full(known.size, place))
            values.append((column[known] - number.mean) / number.deviation)
    owner, label, value = np.concatenate(owners), np.concatenate(numbers), np.concatenate(values)
    order = np.lexsort((label, owner))
    offsets = np.searchsorted(owner[order], np.arange(documents + 1)).astype(np.int64)
    return Numbered(offsets, label[order].astype(np.int32), value[order])


def label_table(corpus: Corpus, fields: Sequence[str] = (), numbers: Sequence[str] = ()) -> LabelTable:
    """Return the table of the labels and covariates of a corpus, without decoding ids and words."""
    counts = Counter[Name]()
    values: dict[str, list[npt.NDArray[np.float64]]] = {name: [] for name in numbers}
    known_fields, known_columns = set[str](), set[str]()
    max_labels = labelled = 0
    for reference in corpus.references:
        labels = reference.labels()
        known_fields |= {name for name, _ in labels.names}
        known_columns |= set(labels.numbers)
        for name in known_fields - set(fields) if fields else ():
            labels = labels.without(name)
        label_counts = np.diff(labels.offsets)
        occurrences = np.bincount(labels.position, minlength=len(labels.names)).tolist()
        counts.update({name: count for name, count in zip(labels.names, occurrences, strict=True) if count})
        has = label_counts > 0
        for name, parts in values.items():
            column = labels.numbers.get(name)
            if column is not None:
                parts.append(column[~np.isnan(column)])
                has = has | ~np.isnan(column)
        max_labels = max(max_labels, int(label_counts.max(initial=0)))
        labelled += int(has.sum())
    for option, names, known in (("labels", fields, known_fields), ("covariates", numbers, known_columns)):
        for name in names:
            if name not in known:
                raise OptionError(f"`{option}` {name}: {corpus.url} has no such field{suggestion(name, known)}")
    covariates = tuple(_number_field(corpus, name, np.concatenate(values[name])) for name in numbers)
    ordered = tuple(sorted(counts))
    return LabelTable(ordered, tuple(counts[name] for name in ordered), covariates, max_labels, labelled)


def _number_field(corpus: Corpus, name: str, values: npt.NDArray[np.float64]) -> NumberField:
    """Return the summary of a numeric covariate."""
    if not np.isfinite(values).all():
        raise InputError(corpus.url, f"expected finite numbers as covariate '{name}'")
    if not values.size:
        return NumberField(name, 0, 0.0, 1.0, 0.0, ())
    distinct = np.unique(values)
    distinct_values = tuple(distinct.tolist()) if distinct.size <= MOST_VALUES else ()
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = float(values.std()) if distinct.size > 1 else 1.0
        mean = float(values.mean())
    if not (math.isfinite(mean) and 0 < deviation < math.inf):
        raise InputError(
            corpus.url,
            f"the numbers of covariate '{name}' are too large or too close to one another; rescale them",
        )
    largest = float(np.abs(values - mean).max()) / deviation
    return NumberField(name, int(values.size), mean, deviation, largest, distinct_values)
