"""Labels, numeric covariates and segments of documents, and the numbers of labels in a training corpus.

A document may have several labels. A fit numbers the labels and covariates of its corpus, and encodes documents by
these numbers. Segments, such as paragraphs or chapters, are on disk a column of lists: the number of pairs of each
segment of a document.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import AnyArray, Arrays
from collapsium.storage.errors import OptionError, suggestion
from collapsium.storage.printable import ShortRepr

Name = tuple[str, str]
SEGMENT_COLUMN = "segments"
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Labels(ShortRepr):
    """Labels and covariates of a shard's documents."""

    names: tuple[Name, ...]  # The distinct labels, as field and value, sorted
    offsets: npt.NDArray[np.int64]  # Offsets of the documents in `position`; int64 (documents + 1,)
    # Indices into `names`, ascending and distinct within a document; int32 (labels of all documents,)
    position: npt.NDArray[np.int32]
    # The numeric covariates; NaN for missing values; float64 (documents,)
    numbers: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    def __sizeof__(self) -> int:
        return self.offsets.nbytes + self.position.nbytes + sum(number.nbytes for number in self.numbers.values())

    @staticmethod
    def none(documents: int) -> Labels:
        """Return the labels of documents without any."""
        return Labels((), np.zeros(documents + 1, dtype=np.int64), np.zeros(0, dtype=np.int32))

    def arrays(self) -> dict[str, AnyArray]:
        """Return the labels as plain arrays, for spill files."""
        known = {"names": self.names, "numbers": sorted(self.numbers)}
        width = np.array([self.numbers[name] for name in sorted(self.numbers)]).reshape(
            len(self.numbers), self.offsets.size - 1
        )
        return {
            "label_known": np.frombuffer(json.dumps(known).encode(), dtype=np.uint8),
            "label_offsets": self.offsets,
            "label_position": self.position,
            "label_numbers": width,
        }

    @staticmethod
    def from_arrays(arrays: Arrays) -> Labels:
        """Return labels from the result of `arrays`."""
        known = json.loads(arrays["label_known"].tobytes())
        names = tuple((name, value) for name, value in known["names"])
        numbers = dict(zip(known["numbers"], arrays["label_numbers"], strict=True))
        return Labels(names, arrays["label_offsets"], arrays["label_position"], numbers)

    def set_to(self, name: str, value: str | float) -> Labels:
        """Return labels in which all documents have the same value of a field, which replaces their values."""
        documents = self.offsets.size - 1
        if not isinstance(value, str):
            return Labels(self.names, self.offsets, self.position, {**self.numbers, name: np.full(documents, value)})
        remaining = self.without(name)
        names = (*remaining.names, (name, value))
        ends = np.full(documents, len(names) - 1, dtype=np.int32)
        position = np.insert(remaining.position, remaining.offsets[1:], ends)
        return Labels(names, remaining.offsets + np.arange(documents + 1), position, remaining.numbers)

    def take(self, chosen: npt.NDArray[np.int64]) -> Labels:
        """Return the labels of selected documents, by index, which may repeat."""
        lengths = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        position = self.position[np.repeat(self.offsets[:-1][chosen], lengths) + inside]
        return Labels(self.names, offsets, position, {name: values[chosen] for name, values in self.numbers.items()})

    def without(self, name: str) -> Labels:
        """Return the labels without a field."""
        numbers = {key: values for key, values in self.numbers.items() if key != name}
        keep = np.array([field != name for field, _ in self.names], dtype=bool)
        if keep.all():
            return Labels(self.names, self.offsets, self.position, numbers)
        retained = keep[self.position]
        running = np.concatenate([[0], np.cumsum(retained)])
        return Labels(self.names, running[self.offsets], self.position[retained], numbers)


@dataclass(frozen=True)
class DocumentRows:
    """Rows of a design for the documents of a shard; documents with equal fields share a row."""

    # Distinct rows: the columns of the design and, of each field of many levels, the place of the level, or -1; float32
    # (rows, columns + fields)
    rows: npt.NDArray[np.float32]
    place: npt.NDArray[np.int32]  # Row of each document; int32 (documents,)


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


@dataclass(frozen=True, repr=False)
class Segments(ShortRepr):
    """The segments of a shard's documents, in their order."""

    documents: Numbers  # Offsets of the documents, in segments; int64 (documents + 1,)
    pairs: Numbers  # Offsets of the segments, in pairs; a segment may have no pair; int64 (segments + 1,)

    def __len__(self) -> int:
        return self.pairs.size - 1

    def __sizeof__(self) -> int:
        return self.documents.nbytes + self.pairs.nbytes

    @staticmethod
    def of_documents(offsets: Numbers) -> Segments:
        """Return each document as one segment; `offsets` are the documents' offsets, in pairs."""
        return Segments(np.arange(offsets.size, dtype=np.int64), np.ascontiguousarray(offsets))

    def emptied(self) -> Segments:
        """Return the same segments without their words."""
        return Segments(self.documents, np.zeros_like(self.pairs))

    def arrays(self) -> dict[str, AnyArray]:
        """Return the segments as plain arrays, for spill files."""
        return {"segment_documents": self.documents, "segment_pairs": self.pairs}

    @staticmethod
    def from_arrays(arrays: Arrays) -> Segments:
        """Return segments from the result of `arrays`."""
        return Segments(arrays["segment_documents"], arrays["segment_pairs"])


def running(counts: AnyArray) -> Numbers:
    """Return the offsets of parts from their sizes; there is one more offset than parts."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])
