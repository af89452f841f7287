"""Fields of labels that fits use, and the variants of the grid that leave some of them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from collapsium.pipeline.families.registry import load_family
from collapsium.pipeline.workflows.compare.grid import RANDOM, Cell
from collapsium.pipeline.workflows.compare.options import CompareOptions
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.label_index import MOST_VALUES, LabelTable, label_table
from collapsium.storage.errors import OptionError, suggestion


@dataclass(frozen=True)
class LabelFields:
    """Fields of labels of a training corpus, and those that are used."""

    all: tuple[str, ...]  # The corpus's fields of labels
    taken: tuple[str, ...]  # Fields that are used
    without: tuple[str, ...]  # Fields that the second variant of a fit leaves out
    target: str | None  # The field to predict
    numeric: bool  # Whether the field to predict is a number

    @staticmethod
    def of(corpus: Corpus, options: CompareOptions) -> LabelFields:
        """Look up the fields in a training corpus; the field to predict must be used, unless it is a number."""
        every = label_table(corpus).fields
        numbers = {one.name for one in label_table(corpus, options.labels, options.covariates).numbers}
        taken, target = options.labels or every, options.field
        numeric = target is not None and target not in every
        if target is not None and numeric:
            _require_classes(corpus, target, every)
        elif target is not None and target not in taken:
            raise OptionError(f"expected '{target}' among them, the field to predict (`field`)", "labels")
        unknown = next((name for name in options.without if name not in taken), None)
        if unknown is not None:
            raise OptionError(f"unknown field of labels '{unknown}'{suggestion(unknown, taken)}", "without")
        if options.without and not set(taken) - set(options.without):
            raise OptionError("no field of labels would be left", "without")
        if numeric and target in numbers:
            raise OptionError(f"'{target}' is the field to predict (`field`)", "covariates")
        return LabelFields(every, taken, options.without, target, numeric)

    def remaining(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return those of some fields that the second variant of a fit uses."""
        return tuple(name for name in names if name not in self.without)

    @property
    def variant_start(self) -> str:
        """The start of fits of the second variant, as text."""
        return f"without {', '.join(self.without)}"

    @property
    def variant_suffix(self) -> str:
        """The end of the names of the second variant's cells."""
        return "-without-" + "-".join("".join(c if c.isalnum() else "_" for c in name) for name in self.without)

    def variants(self, cells: Sequence[Cell]) -> list[Cell]:
        """Set the fields of cells whose families use labels, and add the second variant after each."""
        every = []
        for cell in cells:
            family = load_family(cell.family)
            if not (family.shard_model.uses_labels and "labels" in family.Options.model_fields):
                every.append(cell)
                continue
            own = _names(cell.options.get("labels", ()))
            taken = own or self.taken
            every.append(cell if own or taken == self.all else _with_labels(cell, taken))
            remaining = self.remaining(taken)
            if remaining and remaining != taken:
                start = self.variant_start if cell.start == RANDOM else f"{cell.start}, {self.variant_start}"
                every.append(replace(_with_labels(cell, remaining), name=cell.name + self.variant_suffix, start=start))
        return every

    def can_predict(self, cell: Cell) -> bool:
        """Return whether a cell's family is fitted with the field to predict."""
        if self.target is None or not load_family(cell.family).shard_model.uses_labels:
            return False
        if self.numeric:
            return self.target in _names(cell.options.get("covariates", ()))
        return self.target in (_names(cell.options.get("labels", ())) or self.all)


def _require_classes(corpus: Corpus, field: str, labels: Sequence[str]) -> None:
    """Refuse a field that is neither of labels nor a number of few values."""
    numbers = [name for name, kind in corpus.manifest.fields.items() if kind == "double"]
    if field not in numbers:
        raise OptionError(f"{corpus.url} has no field '{field}'{suggestion(field, [*labels, *numbers])}", "field")
    (column,) = label_table(corpus, (), (field,)).numbers
    if not column.values:
        raise OptionError(f"'{field}', a number of more than {MOST_VALUES} values, or of none, has no classes", "field")


def _with_labels(cell: Cell, labels: tuple[str, ...]) -> Cell:
    return replace(cell, options={**cell.options, "labels": list(labels)})


def _names(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def side_table(corpus: Corpus, labels: Sequence[str], covariates: Sequence[str]) -> LabelTable:
    """Return the table of the labels and covariates that a classifier uses in addition to the words."""
    table = label_table(corpus, tuple(labels), tuple(covariates))
    return table if labels else replace(table, names=(), documents=())
