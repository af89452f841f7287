"""Labels of documents, and the options that families with labels share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from collapsium.storage.corpus.label_index import LabelTable, numbered
from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.annotations import indices, offsets
from collapsium.workers.arrays.state import State
from collapsium.workers.families.family import FamilyOptions, Summary
from collapsium.workers.families.gibbs.states import Ints

if TYPE_CHECKING:
    from collapsium.storage.corpus.labels import Name
    from collapsium.storage.corpus.shard import Documents, Shard


@dataclass(frozen=True)
class LabelLists(State):
    """Labels of documents."""

    document_labels: Annotated[Ints, offsets("document", into="labelled")]  # Index of each document's first label
    # Their numbers in the training corpus's table
    document_label: Annotated[npt.NDArray[np.int32], indices("labelled", below="label")]

    @classmethod
    def from_shard(cls, shard: Shard, table: LabelTable) -> LabelLists:
        """Return the labels of a shard's documents that a table has."""
        labels = numbered(shard.labels, table, shard.documents)
        return cls(labels.offsets, labels.label)


# Number of labels from which simulated documents draw, and which estimates assume for corpora with unknown labels
SIMULATED_LABELS = 8


MEAN_LABELS = 2.0  # Labels of a simulated document in the mean; as many are foreseen where a corpus's are not known


class LabelOptions(FamilyOptions):
    """Options that families with labels share."""

    labels: tuple[str, ...] = Field((), description="fields of labels to use (default: all fields of the corpus)")
    alpha: float = Field(0.1, gt=0, description="Dirichlet parameter alpha of each topic that a document may use")
    eta: float = Field(0.1, gt=0, description="Dirichlet parameter eta of each word in a topic")


def require_labels(summary: Summary) -> LabelTable:
    """Return the labels that a corpus has."""
    if summary.labels is None or not summary.labels.names:
        raise OptionError(
            "the corpus has no labels, and this family needs them: `ingest` with `labels` takes them from columns or "
            "keys of the documents, with `label_files` from files; or use a family without labels"
        )
    return summary.labels


def label_count(summary: Summary) -> int:
    """Return the number of labels, or an estimate where they are not known."""
    known = summary.labels is not None and summary.labels.names
    return len(summary.labels.names) if summary.labels is not None and known else SIMULATED_LABELS


def mean_labels(summary: Summary) -> float:
    """Return the mean number of labels of a document, or an estimate where they are not known."""
    if summary.labels is None:
        return MEAN_LABELS
    return sum(summary.labels.documents) / max(summary.documents, 1)


def simulated_table() -> LabelTable:
    """Return the labels from which simulated documents draw."""
    names = tuple(("label", f"label-{number}") for number in range(1, SIMULATED_LABELS + 1))
    return LabelTable(names, (1,) * SIMULATED_LABELS, (), SIMULATED_LABELS, SIMULATED_LABELS)


def draw_labels(labels: int, documents: int, generator: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Draw the labels of documents, shape (documents, labels): a Poisson number, all equally likely."""
    number = np.minimum(generator.poisson(MEAN_LABELS, documents), labels)
    order = np.argsort(generator.random((documents, labels)), axis=1, kind="stable")
    return np.argsort(order, axis=1, kind="stable") < number[:, np.newaxis]


def with_labels(documents: Documents, has: npt.NDArray[np.bool_], names: Sequence[Name]) -> Documents:
    """Return documents with a column of labels; `has` has the shape (documents, labels)."""
    from collapsium.storage.building import simulated

    return replace(documents, extras={**documents.extras, "labels": simulated.label_column(has, names)})
