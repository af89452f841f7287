"""Declarations of the arrays of samplers whose documents have the topics of their labels."""

from __future__ import annotations

import numpy as np

from collapsium.workers.arrays.array_fields import (
    CHUNK_SIZE,
    ArrayGroup,
    CheckContext,
    FamilyArrays,
    ascending,
    counts,
    flags,
    scalars,
)
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.topic_arrays import (
    LABEL_TABLE,
    LABELS,
    MIN_POSITIVE,
    PRIORS,
    SAMPLED,
    labelled,
    sampled_blocks,
    sampled_rows,
    tokens_of_topics,
)


def _topics_of_labels(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the number of topics: those of all labels, and the background's."""
    expected = context.sizes["label"] * int(arrays["label_topics"]) + int(arrays["background_topics"])
    return None if arrays["topic"].size == expected else f"expected {expected} topics, found {arrays['topic'].size}"


def _topics_of_tokens(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the topics of tokens, which their documents must be allowed."""
    if context.shard is None or "token_topic" not in arrays:
        return None
    per_label, background = (int(context.global_state[name]) for name in ("label_topics", "background_topics"))
    lists, labels, topics = np.asarray(arrays["document_labels"]), context.sizes["label"], context.sizes["topic"]
    owner = np.repeat(np.arange(lists.size - 1), np.diff(lists))
    # Document and label as one number: ascending, with an end that equals none.
    pairs = np.append(owner * labels + arrays["document_label"], -1)
    document = np.repeat(np.arange(lists.size - 1), context.shard.lengths)
    unrestricted = (np.diff(lists) == 0) & (background == 0)
    for first in range(0, document.size, CHUNK_SIZE):
        chunk = slice(first, first + CHUNK_SIZE)
        documents, topic = document[chunk], arrays["token_topic"][chunk].astype(np.int64)
        key = documents * labels + topic // per_label
        has_label = pairs[np.searchsorted(pairs[:-1], key)] == key
        if not (np.where(topic < topics - background, has_label, True) | unrestricted[documents]).all():
            return "expected topics that the labels of the document have in 'token_topic'"
    return None


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
    tokens_of_topics,
)
