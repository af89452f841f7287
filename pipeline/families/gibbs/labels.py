"""Labels of a corpus for families whose topics depend on them: requirements, memory, and simulated labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pydantic import Field

from collapsium.pipeline.families.base import FamilyOptions, Summary
from collapsium.storage.corpus.label_index import LabelTable
from collapsium.storage.errors import OptionError

if TYPE_CHECKING:
    from collapsium.storage.corpus.labels import Name
    from collapsium.storage.corpus.shard import Documents

# Labels of which simulated documents have some; as many are foreseen where a corpus's are not known
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
            "keys of the documents, with `label_files` from files; or take a family without labels"
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
    """Return the labels of which simulated documents have some."""
    names = tuple(("label", f"label-{number}") for number in range(1, SIMULATED_LABELS + 1))
    return LabelTable(names, (1,) * SIMULATED_LABELS, (), SIMULATED_LABELS, SIMULATED_LABELS)


def draw_labels(labels: int, documents: int, generator: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Draw the labels of documents, shape (documents, labels): a Poisson number, all equally likely."""
    number = np.minimum(generator.poisson(MEAN_LABELS, documents), labels)
    order = np.argsort(generator.random((documents, labels)), axis=1, kind="stable")
    return np.argsort(order, axis=1, kind="stable") < number[:, np.newaxis]


def with_labels(documents: Documents, has: npt.NDArray[np.bool_], names: Sequence[Name]) -> Documents:
    """Return documents with a column of labels; `has` has the shape (documents, labels)."""
    from collapsium.pipeline.families import corpus_columns

    return replace(documents, extras={**documents.extras, "labels": corpus_columns.label_column(has, names)})
