"""What a comparison on unseen documents is asked for besides its grid: labels, a field to predict, and classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from collapsium.pipeline.families.registry import load_family
from collapsium.pipeline.workflows.compare.baselines.classifiers import NAMES, SUPERVISED, TOPICS
from collapsium.pipeline.workflows.compare.cells import RANDOM
from collapsium.pipeline.workflows.compare.grid import Cell
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.label_index import MOST_VALUES, LabelTable, label_table
from collapsium.storage.errors import OptionError, suggestion


@dataclass(frozen=True)
class Rival:
    """A classifier beside the families.

    Attributes
    ----------
    name : str
        Of its record.
    classifier : str
        One of `collapsium.pipeline.workflows.compare.baselines.classifiers.NAMES`.
    topics : int or None
        K, of those that have topics.
    start : str
        How it differs from others of the name, for people.
    labels : tuple of str
        The fields of labels that it has beside the words.
    """

    name: str
    classifier: str
    topics: int | None
    start: str
    labels: tuple[str, ...]

    @property
    def label(self) -> str:
        """Its name with K."""
        return self.classifier if self.topics is None else f"{self.classifier}, K = {self.topics}"


@dataclass(frozen=True)
class Classing:
    """What is asked for besides the grid.

    Attributes
    ----------
    field : str or None
        The field of labels, or the number, that is predicted.
    classifiers : tuple of str
        Those beside the families, where there is a field.
    labels : tuple of str
        Fields of labels that are taken; none for all.
    without : tuple of str
        Of these, fields that are left out in a second variant of all that take labels.
    covariates : tuple of str
        Numbers that ``lda-svm`` takes.
    lda_topics, slda_topics : tuple of int
        K of these classifiers.
    """

    field: str | None = None
    classifiers: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    covariates: tuple[str, ...] = ()
    lda_topics: tuple[int, ...] = (200,)
    slda_topics: tuple[int, ...] = (50,)

    def __post_init__(self) -> None:
        for name in self.classifiers:
            if name not in NAMES:
                raise OptionError(f"--classifiers: unknown classifier '{name}'{suggestion(name, NAMES)}")
        if self.classifiers and self.field is None:
            raise OptionError("--classifiers: --field says what they shall predict")
        for flag, numbers in (("--lda-topics", self.lda_topics), ("--slda-topics", self.slda_topics)):
            if not numbers or any(type(one) is not int or one < 1 for one in numbers):
                raise OptionError(f"{flag}: expected whole numbers of 1 or more, found {list(numbers)}")
        if self.field is not None and self.field in self.without:
            raise OptionError(f"--without {self.field}: it is the field to predict (--field)")

    def record(self) -> dict[str, Any]:
        """Return what `compare.json` shall say."""
        return {name: list(one) if isinstance(one, tuple) else one for name, one in asdict(self).items()}


@dataclass(frozen=True)
class Fields:
    """What a training corpus's documents have, and what of it is asked for.

    Attributes
    ----------
    all : tuple of str
        Its fields of labels.
    taken : tuple of str
        Those that are taken.
    kept : tuple of str
        Those that the second variant keeps.
    numeric : bool
        Whether the field to predict is a number.
    """

    all: tuple[str, ...]
    taken: tuple[str, ...]
    kept: tuple[str, ...]
    numeric: bool

    @staticmethod
    def of(corpus: Corpus, asked: Classing) -> Fields:
        """Look them up.

        Parameters
        ----------
        corpus : Corpus
            What is fitted to.
        asked : Classing
            What is asked for.

        Returns
        -------
        Fields
            With the field to predict among those taken.

        Raises
        ------
        OptionError
            There is no such field, none would be left, or a number has too many values to be classes.
        """
        every = label_table(corpus).fields
        table = label_table(corpus, asked.labels, asked.covariates)
        taken, field = asked.labels or every, asked.field
        numeric = field is not None and field not in every
        if field is not None and numeric:
            _require_classes(corpus, field, every)
        elif field is not None and field not in taken:
            raise OptionError(f"--labels: expected '{field}' among them, which is to be predicted (--field)")
        lost = next((name for name in asked.without if name not in taken), None)
        if lost is not None:
            raise OptionError(f"--without {lost}: no such field of labels is taken{suggestion(lost, taken)}")
        kept = tuple(name for name in taken if name not in asked.without)
        if asked.without and not kept:
            raise OptionError("--without: no field of labels would be left")
        if numeric and field in {one.name for one in table.numbers}:
            raise OptionError(f"--covariates {field}: it is the field to predict (--field)")
        return Fields(every, taken, kept, numeric)


def _require_classes(corpus: Corpus, field: str, labels: Sequence[str]) -> None:
    numbers = [name for name, kind in corpus.manifest.fields.items() if kind == "double"]
    if field not in numbers:
        raise OptionError(f"--field {field}: {corpus.url} has no such field{suggestion(field, [*labels, *numbers])}")
    (found,) = label_table(corpus, (), (field,)).numbers
    if not found.values:
        raise OptionError(f"--field {field}: a number of more than {MOST_VALUES} values, or of none, has no classes")


def variants(cells: Sequence[Cell], fields: Fields, asked: Classing) -> list[Cell]:
    """Give the cells of families that take labels those that are asked for, and list their second variants.

    Parameters
    ----------
    cells : sequence of Cell
        The grid.
    fields : Fields
        What is taken.
    asked : Classing
        What is asked for.

    Returns
    -------
    list of Cell
        In their order.
    """
    found = []
    for cell in cells:
        settles = (
            "labels" in load_family(cell.family).Options.model_fields
            and load_family(cell.family).shard_model.uses_labels
        )
        own = tuple(cell.options.get("labels", ())) if settles else ()
        taken = own or fields.taken
        given = cell if own or not asked.labels or not settles else _taking(cell, taken)
        found.append(given)
        kept = tuple(name for name in taken if name not in asked.without)
        if settles and kept and kept != taken:
            start = f"without {', '.join(asked.without)}"
            told = start if cell.start == RANDOM else f"{cell.start}, {start}"
            found.append(replace(_taking(cell, kept), name=cell.name + _suffix(asked.without), start=told))
    return found


def _taking(cell: Cell, labels: tuple[str, ...]) -> Cell:
    return replace(cell, options={**cell.options, "labels": list(labels)})


def _suffix(without: Sequence[str]) -> str:
    return "-without-" + "-".join("".join(c if c.isalnum() else "_" for c in name) for name in without)


def able(cell: Cell, fields: Fields, field: str) -> bool:
    """Say whether a cell's family is fitted with the field to predict."""
    if not load_family(cell.family).shard_model.uses_labels:
        return False
    if fields.numeric:
        return field in _listed(cell.options.get("covariates", ()))
    return field in (_listed(cell.options.get("labels", ())) or fields.all)


def _listed(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def rivals(asked: Classing, fields: Fields) -> list[Rival]:
    """List the classifiers beside the families.

    Parameters
    ----------
    asked : Classing
        What is asked for.
    fields : Fields
        What is taken.

    Returns
    -------
    list of Rival
        None where there is no field to predict.
    """
    found: list[Rival] = []
    beside = tuple(name for name in fields.taken if name != asked.field)
    for name in asked.classifiers:
        if name == SUPERVISED:
            found += [Rival(f"{name}-{k}", name, k, RANDOM, ()) for k in asked.slda_topics]
        elif name == TOPICS:
            kept = tuple(one for one in beside if one not in asked.without)
            for k in asked.lda_topics:
                found.append(Rival(f"{name}-{k}", name, k, RANDOM, beside))
                if kept != beside:
                    start = f"without {', '.join(asked.without)}"
                    found.append(Rival(f"{name}-{k}{_suffix(asked.without)}", name, k, start, kept))
        else:
            found.append(Rival(name, name, None, RANDOM, ()))
    return found


def others_of(corpus: Corpus, labels: Sequence[str], covariates: Sequence[str]) -> LabelTable:
    """Return the table of the labels and numbers that a classifier has beside the words; no fields are none."""
    table = label_table(corpus, tuple(labels), tuple(covariates))
    return table if labels else replace(table, names=(), documents=())


def require_scorable(families: Sequence[str]) -> None:
    """Refuse families that have no score given labels alone, before any is fitted.

    Parameters
    ----------
    families : sequence of str
        Those that are compared.

    Raises
    ------
    OptionError
        One settles documents without words at a point of its prior.
    """
    for name in families:
        if load_family(name).shard_model.folds_in_at_a_point:
            raise OptionError(f"--families: '{name}' has no score of documents whose words it does not see")
