"""Declarations of the arrays of samplers whose documents have the topics of their labels."""

from __future__ import annotations

import numpy as np

from collapsium.workers.arrays.array_fields import (
    ArrayGroup,
    CheckContext,
    FamilyArrays,
    ascending,
    counts,
    flags,
    scalars,
)
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.token_topics import TOKEN_TOPICS
from collapsium.workers.families.topic_arrays import (
    LABEL_TABLE,
    LABELS,
    MIN_POSITIVE,
    PRIORS,
    SAMPLED,
    labelled,
    sampled_blocks,
    sampled_rows,
)
from collapsium.workers.kernels.gibbs.consistency import DocumentLabels, find_disallowed


def _topics_of_labels(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the number of topics: those of all labels, and the background's."""
    expected = context.sizes["label"] * int(arrays["label_topics"]) + int(arrays["background_topics"])
    return None if arrays["topic"].size == expected else f"expected {expected} topics, found {arrays['topic'].size}"


def _topics_of_tokens(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the topics of tokens, which their documents must be allowed."""
    if context.shard is None or "token_topic" not in arrays:
        return None
    per_label, background = (int(context.global_state[name]) for name in ("label_topics", "background_topics"))
    disallowed = np.zeros(1, dtype=np.int64)
    find_disallowed(
        DocumentLabels(np.asarray(arrays["document_labels"]), np.asarray(arrays["document_label"])),
        context.shard.lengths,
        np.asarray(arrays["token_topic"]),
        per_label,
        context.sizes["topic"],
        background,
        disallowed,
    )
    return None if disallowed[0] < 0 else "expected topics that the labels of the document have in 'token_topic'"


LABEL_TOPICS_ARRAYS = FamilyArrays(
    ArrayGroup(
        {
            "topic": counts("i8 f8", "topic"),
            **PRIORS,
            **scalars("f8", "alpha", MIN_POSITIVE),
            **scalars("i8", "background_topics", 0, 1 << 16),
            **scalars("i8", "label_topics", 1, 1 << 16),
            **flags("carried single_topics"),
            **LABEL_TABLE,
        },
        (labelled, _topics_of_labels),
    ),
    sampled_rows,
    sampled_blocks,
    lambda global_state: ArrayGroup(  # noqa: ARG005
        {**SAMPLED.fields, **LABELS},
        (*SAMPLED.rules, ascending("document_labels", "document_label"), _topics_of_tokens),
    ),
    TOKEN_TOPICS,
)
