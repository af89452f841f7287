"""What the arrays of the HDSP must hold: weights of labels, and the labels of documents with their values."""

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
    MEAN_FIELD_BLOCKS,
    MEAN_FIELD_ROWS,
    MOST_SWEEPS,
    POSITIVE,
    labelled,
    some_of,
    table_of,
)

BY_GAMMA, BY_NORMAL = ("weight_prior", "weight_rate", "weight_shape"), ("label_topic", "weight_variance")


def _weights(arrays: Arrays, context: CheckContext) -> str | None:
    """Return what is wrong with the weights of labels: those of one of the two ways are there."""
    there = ["weight_shape" in arrays, "label_topic" in arrays]
    return None if sum(there) == 1 else "expected either 'weight_shape' or 'label_topic'"


def _signs(arrays: Arrays, context: CheckContext) -> str | None:
    """Return what is wrong with the sign of values: kernels have room for sums of negative ones only if it is on."""
    numbers_ = table_of(arrays).numbers
    return "expected 'signed' where the table of labels has numbers" if numbers_ and not arrays["signed"] else None


def _values(arrays: Arrays, context: CheckContext) -> str | None:
    """Return what is wrong with the values of labels: none is negative unless the global state say so."""
    if context.global_state["signed"] or np.asarray(arrays["document_label_value"]).min(initial=0.0) >= 0.0:
        return None
    return "expected values that are not negative in 'document_label_value', as 'signed' of the global state is off"


HDSP_ARRAYS = FamilyArrays(
    ArrayGroup(
        {
            "prior": counts("f8", "topic"),
            **scalars("f8", "eta gamma vocabulary", POSITIVE),
            **scalars("i8", "lda_sweeps_left", 0, MOST_SWEEPS),
            "last": indices("i8", "", "topic"),
            **scalars("f8", "label_least label_most"),
            **flags("another_round carried further_sweep led signed with_curvature"),
            **LABEL_TABLE,
            **same_field("label_log label_mean_log", numbers("f8", "label topic")),
            "label_reach": counts("f8", "label"),
            **optional(same_field("label_topic", numbers("f8", "label topic"))),
            **optional(same_field("weight_rate weight_shape", numbers("f8", "label topic", POSITIVE))),
            **optional(same_field("weight_prior", numbers("f8", "2", POSITIVE))),
            **optional(scalars("f8", "weight_variance", POSITIVE)),
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
