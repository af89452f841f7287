"""Labels and numeric covariates of documents; a document may have several labels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

from collapsium.storage.data_types import AnyArray, Arrays
from collapsium.storage.short_repr import ShortRepr

Name = tuple[str, str]


@dataclass(frozen=True, repr=False)
class Labels(ShortRepr):
    """Labels and covariates of a shard's documents.

    Attributes
    ----------
    names : tuple of (str, str)
        The distinct labels, as field and value, sorted.
    offsets : numpy.ndarray of int64, shape (documents + 1,)
        Offsets of the documents in `position`.
    position : numpy.ndarray of int32, shape (labels of all documents,)
        Indices into `names`, ascending and distinct within a document.
    numbers : mapping of str to numpy.ndarray of float64, shape (documents,)
        The numeric covariates; NaN for missing values.
    """

    names: tuple[Name, ...]
    offsets: npt.NDArray[np.int64]
    position: npt.NDArray[np.int32]
    numbers: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    def __sizeof__(self) -> int:
        return self.offsets.nbytes + self.position.nbytes + sum(one.nbytes for one in self.numbers.values())

    @staticmethod
    def none(documents: int) -> Labels:
        """Return the labels of documents without any."""
        return Labels((), np.zeros(documents + 1, dtype=np.int64), np.zeros(0, dtype=np.int32))

    @staticmethod
    def of(documents: int, extras: Mapping[str, pa.Array]) -> Labels:
        """Return the labels in the further columns of documents.

        Parameters
        ----------
        documents : int
            Number of documents.
        extras : mapping of str to pyarrow.Array
            ``labels``, lists of (field, value), and columns of float64; others are ignored.

        Returns
        -------
        Labels
            Repeated labels of a document count once.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        from collapsium.storage.io.parquet.columns import numbers_of

        floats = {name: one for name, one in extras.items() if pa.types.is_float64(one.type)}
        numbers = {
            name: numbers_of(pc.fill_null(one, np.nan) if one.null_count else one) for name, one in floats.items()
        }
        column = extras.get("labels")
        if column is None:
            none = Labels.none(documents)
            return Labels(none.names, none.offsets, none.position, numbers)
        owner = np.asarray(numbers_of(pc.list_parent_indices(column)), dtype=np.int64)
        flat = pc.list_flatten(column)
        codes, names = _coded(flat)
        pairs = np.unique(owner * max(len(names), 1) + codes) if owner.size else owner
        owner, position = np.divmod(pairs, max(len(names), 1))
        offsets = np.searchsorted(owner, np.arange(documents + 1)).astype(np.int64)
        return Labels(names, offsets, position.astype(np.int32), numbers)

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
        """Return labels with one value of a field for all documents, in place of their own.

        Parameters
        ----------
        name : str
            The field.
        value : str or float
            A label, or the number of a covariate.

        Returns
        -------
        Labels
            The other fields stay as they are.
        """
        documents = self.offsets.size - 1
        if not isinstance(value, str):
            return Labels(self.names, self.offsets, self.position, {**self.numbers, name: np.full(documents, value)})
        others = self.without(name)
        names = (*others.names, (name, value))
        ends = np.full(documents, len(names) - 1, dtype=np.int32)
        position = np.insert(others.position, others.offsets[1:], ends)
        return Labels(names, others.offsets + np.arange(documents + 1), position, others.numbers)

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
        keep = np.array([own != name for own, _ in self.names], dtype=bool)
        if keep.all():
            return Labels(self.names, self.offsets, self.position, numbers)
        retained = keep[self.position]
        running = np.concatenate([[0], np.cumsum(retained)])
        return Labels(self.names, running[self.offsets], self.position[retained], numbers)


def _coded(flat: pa.StructArray) -> tuple[npt.NDArray[np.int64], tuple[Name, ...]]:
    """Return the labels of a flat column as indices into their sorted distinct values, and these."""
    import pyarrow.compute as pc

    from collapsium.storage.io.parquet.columns import numbers_of

    if not len(flat):
        return np.zeros(0, dtype=np.int64), ()
    sides = [flat.field(place) for place in (0, 1)]
    fields, values = (pc.dictionary_encode(pc.fill_null(one, "") if one.null_count else one) for one in sides)
    width = len(values.dictionary)
    raw = np.asarray(numbers_of(fields.indices), dtype=np.int64) * width + numbers_of(values.indices)
    distinct, inverse = np.unique(raw, return_inverse=True)
    own, each = fields.dictionary.to_pylist(), values.dictionary.to_pylist()
    names = [(str(own[code // width]), str(each[code % width])) for code in distinct.tolist()]
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(len(names))
    return rank[inverse], tuple(names[place] for place in order)
