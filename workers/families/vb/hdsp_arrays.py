"""Declarations of the arrays of the HDSP: weights of labels, and the labels of documents with their values."""

from __future__ import annotations

import numpy as np

from collapsium.workers.arrays.array_fields import (
    ArrayGroup,
    CheckContext,
    FamilyArrays,
    all_or_none,
    ascending,
    counts,
    flags,
    indices,
    numbers,
    offsets,
    optional,
    same_field,
    scalars,
)
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.topic_arrays import (
    BY_DOCUMENT,
    LABEL_TABLE,
    MAX_SWEEPS,
    MEAN_FIELD_BLOCKS,
    MEAN_FIELD_ROWS,
    MIN_POSITIVE,
    labelled,
    some_of,
    table_of,
)

BY_GAMMA, BY_NORMAL = ("weight_prior", "weight_rate", "weight_shape"), ("label_topic", "weight_variance")


def _weights(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the weights of labels, which have one of two forms."""
    forms = ["weight_shape" in arrays, "label_topic" in arrays]
    return None if sum(forms) == 1 else "expected either 'weight_shape' or 'label_topic'"


def _signs(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the flag `signed`, which numbers need: kernels have room for negative sums only with it."""
    numbers_ = table_of(arrays).numbers
    return "expected 'signed' where the table of labels has numbers" if numbers_ and not arrays["signed"] else None


def _values(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the values of labels, which are negative only where the global state is `signed`."""
    if context.global_state["signed"] or np.asarray(arrays["document_label_value"]).min(initial=0.0) >= 0.0:
        return None
    return "expected values that are not negative in 'document_label_value', as 'signed' of the global state is off"


HDSP_ARRAYS = FamilyArrays(
    ArrayGroup(
        {
            "prior": counts("f8", "topic"),
            **scalars("f8", "eta gamma vocabulary", MIN_POSITIVE),
            **scalars("i8", "lda_sweeps_left", 0, MAX_SWEEPS),
            "last": indices("i8", "", "topic"),
            **scalars("f8", "label_least label_most"),
            **flags("another_round carried further_sweep led signed with_curvature"),
            **LABEL_TABLE,
            **same_field("label_log label_mean_log", numbers("f8", "label topic")),
            "label_reach": counts("f8", "label"),
            **optional(same_field("label_topic", numbers("f8", "label topic"))),
            **optional(same_field("weight_rate weight_shape", numbers("f8", "label topic", MIN_POSITIVE))),
            **optional(same_field("weight_prior", numbers("f8", "2", MIN_POSITIVE))),
            **optional(scalars("f8", "weight_variance", MIN_POSITIVE)),
            "topic_log": numbers("f8", "topic"),
            "topic_total": counts("f8", "topic"),
        },
        (labelled, some_of("prior"), all_or_none(*BY_GAMMA), all_or_none(*BY_NORMAL), _weights, _signs),
    ),
    lambda global_state: MEAN_FIELD_ROWS,  # noqa: ARG005
    lambda global_state: MEAN_FIELD_BLOCKS,  # noqa: ARG005
    lambda global_state: ArrayGroup({  # noqa: ARG005
        **BY_DOCUMENT,
        "document_label_offsets": offsets("document", "labelled"),
        "document_label": indices("i4", "labelled", "label"),
        "document_label_value": numbers("f8", "labelled"),
    }, (ascending("document_label_offsets", "document_label"), _values)),
)  # fmt: skip
