"""Labels and numeric covariates of documents; a document may have several labels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import AnyArray, Arrays
from collapsium.storage.printable import ShortRepr

Name = tuple[str, str]


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
