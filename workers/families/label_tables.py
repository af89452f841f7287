"""Tables of the training corpus's labels in global states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, TypeAlias

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.label_index import LabelTable
from collapsium.workers.arrays.annotations import numbers
from collapsium.workers.arrays.state import CheckContext

LabelBytes: TypeAlias = Annotated[npt.NDArray[np.uint8], numbers("byte", 0, 255)]  # As `LabelTable.packed` has them


def table_faults(packed: npt.NDArray[np.uint8], context: CheckContext) -> Iterator[str]:
    """Yield the fault of bytes that are not a table of labels; bind the size `label`, their number."""
    try:
        expected = len(LabelTable.unpacked(packed))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        yield f"expected a table of labels in 'label_table' ({error})"
        return
    if context.sizes.setdefault("label", expected) != expected:
        yield f"expected {context.sizes['label']} labels in 'label_table', found {expected}"
