"""Declarations of the arrays of families of flat topics: CVB0, mean-field, Gibbs sampling, and topics of labels."""

from __future__ import annotations

import numpy as np

from collapsium.storage.corpus.label_index import LabelTable
from collapsium.workers.arrays.array_fields import (
    ROUNDING_TOLERANCE,
    ArrayField,
    ArrayGroup,
    CheckContext,
    FamilyArrays,
    Rule,
    all_or_none,
    ascending,
    at_most,
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
from collapsium.workers.families.plain_tokens import TOKEN_TOPICS

MAX_SWEEPS = 10_000  # Most sweeps that a state may still have to make; a larger number would only make a fit hang
UNIT = 1 << 15  # Responsibility of 1 in 16 bits, as in `kernels.cvb.active`

# Share of a document's tokens by which its counts may be below zero: more than 1000 iterations of 0.1 had rounded
MAX_DRIFT = 1e-3

MIN_WEIGHT = 1e-30  # Smallest weight of a word: counts are divided by it, in single precision
MIN_POSITIVE = 1e-300  # Smallest parameter of a prior, or rate: kernels divide by it

ACTIVE_TOPICS: dict[str, ArrayField] = {
    "document_lists": offsets("document", "active_entry"),
    "document_topics": indices("u2", "active_entry", "topic"),
    "document_counts": numbers("f4 f8", "active_entry"),
    "document_rest": numbers("f4 f8", "document"),
}
PSEUDO: dict[str, ArrayField] = optional(
    {"start_counts": numbers("f4", "active_entry", 0), "document_pseudo": counts("f4 f8", "document")}
)
TOPICS_ASCEND = ascending("document_lists", "document_topics")
PRIORS = scalars("f8", "beta vocabulary", MIN_POSITIVE)


def responsibilities_fault(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of responsibilities whose number is not one for each pair and active topic of its document."""
    if context.shard is None or context.shard.of_vectors or "pair_shares" not in arrays:
        return None
    expected = int(np.dot(np.diff(context.shard.offsets), np.diff(arrays["document_lists"])))
    count = len(arrays["pair_shares"])
    return None if count == expected else f"expected {expected} numbers in 'pair_shares', found {count}"


def counts_fault(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of counts below zero; releases up to 0.1 have rounded those of long documents."""
    lists, count, rest = (np.asarray(arrays[f"document_{name}"]) for name in ("lists", "counts", "rest"))
    tokens = np.add.reduceat(np.append(np.abs(count), 0.0), lists[:-1]) * (np.diff(lists) > 0) + np.abs(rest)
    least = -(ROUNDING_TOLERANCE + MAX_DRIFT * tokens)
    for name, values, limit in (("counts", count, np.repeat(least, np.diff(lists))), ("rest", rest, least)):
        wrong = np.flatnonzero(values < limit)
        if wrong.size:
            return f"expected numbers of 0 or more in 'document_{name}', found {values[wrong[0]]:g}"
    return None


def has_document_tokens(name: str) -> Rule:
    """Return the rule that an array has the number of tokens of each document."""

    def rule(arrays: Arrays, context: CheckContext) -> str | None:
        if context.shard is None:
            return None
        wrong = np.flatnonzero(np.asarray(arrays[name]) != context.shard.lengths)
        return (
            f"expected the tokens of each document in '{name}'; document {wrong[0]} has others" if wrong.size else None
        )

    return rule


# Families of collapsed topics.

HELD = {
    **scalars("f8", "held_share held_before", 0, 1),
    **scalars("f8", "held_tokens", 0),
    "moves_seed": numbers("i8 u8", low=-np.inf, high=np.inf),
}
COOLING = {
    **scalars("f8", "cooling_power", MIN_POSITIVE, 1),
    **scalars("f8", "cooling_step", -1, 1),
    **scalars("i8", "cooling_sweeps cooling_first cooling_last", 0),
    "cooling_scores": numbers("f8", "2"),
    # Not in checkpoints of earlier releases.
    **optional({**scalars("f8", "cooling_sum", 0), **scalars("i8", "cooling_averaged", 0)}),
}
ACTIVE_SET_TRIAL = {
    **scalars("i8", "trial_sweeps", 0),
    **scalars("i8", "trial_small", 0, 2),
    **flags("trial_selecting"),
    **scalars("f8", "trial_loss trial_gain", -np.inf, np.inf),
}
COLLAPSED = ArrayGroup({
    "alpha": counts("f8", "topic"),
    **PRIORS,
    **flags("active moments rows_ahead stochastic"),
    **scalars("i8", "start_every", 0),
    **scalars("f8", "corpus_tokens minibatches steps", 0),
    **same_field("spread_weight topic_ahead", counts("f8", "topic")),
    "topic_moments": counts("f8", "2 topic"),
    "topic_log_absent": numbers("f8", "topic"),
    "corpus_tables": ArrayField(("f8",), ("topic",), 0, optional=True),
    **optional(scalars("f8", "corpus_log_eta")),
    **optional({
        "seed_words": counts("i8", "seed"),
        "seed_topics": indices("i8", "seed", "topic"),
        "seed_counts": counts("f8", "seed"),
        **flags("seeds_apart"),
    }),
    "topic_plain": ArrayField(("f8",), ("topic",), 0, optional=True),
    **optional(HELD),
    **optional(COOLING),
    **optional(ACTIVE_SET_TRIAL),
})  # fmt: skip
LDA = {**flags("asymmetric_beta"), **scalars("f8", "beta_rate word_tables_prior", 0)}
MOVES = {
    **scalars("i8", "ask moves_idle moves_last merges deletes splits split_until", 0),
    **scalars("f8", "moves_best"),
    **flags("moving split_tried"),
    "topic_alive": numbers("b1", "topic"),
    "moves_into": indices("i8", "topic", "topic", -1),
    "moves_split": indices("i8", "topic", "topic", -1),
    "merge_candidates": indices("i8", "2 merge", "topic"),
    "split_pairs": indices("i8", "2 split", "topic"),
    "delete_candidates": indices("i8", "deleted", "topic"),
    "delete_spill": counts("f8", "deleted topic"),
}
HDP = {
    **{name: field for name, field in COLLAPSED.fields.items() if name != "alpha"},
    **optional(same_field("alpha_prior beta_prior gamma_prior", numbers("f8", "2", MIN_POSITIVE))),
    **same_field("alpha_posterior gamma_posterior", numbers("f8", "2", 0)),
    "beta_posterior": numbers("f8", "beta_posterior", 0),
    **scalars("f8", "alpha alpha_geometric beta_geometric gamma", MIN_POSITIVE),
    **scalars("f8 i8", "hold sweeps tau_prior tau_total", 0),
    **same_field("pi pi_geometric", counts("f8", "topic")),
    "stick_order": indices("i8", "alive", "topic"),
    "stick_posterior": counts("f8", "stick 2"),
    **optional(MOVES),
    # Not in checkpoints of earlier releases, nor always.
    **optional({**flags("superfluous"), "merge_alike": numbers("b1", "merge")}),
}  # fmt: skip


def collapsed_rows(global_state: Arrays) -> ArrayGroup:
    """Return the declaration of a finished model's rows: E[n_kw], and sums for learned parameters of words."""
    active, moments = bool(global_state["active"]), bool(global_state["moments"])
    sums = {"word_tables": counts("f8", "word")} if moments else {}
    sums |= _by_word(global_state)
    if moments and not active:
        sums |= same_field("word_topic_variance word_topic_log_absent", numbers("f8", "word topic"))
    return ArrayGroup({"word_topic": numbers("f4 f8", "word topic"), **sums})


def collapsed_blocks(global_state: Arrays) -> ArrayGroup:
    """Return the declaration of the rows during a fit."""
    fields: dict[str, ArrayField] = {"word_topic": numbers("f4 f8", "word topic")}
    if global_state["active"]:
        fields = {"word_active": numbers("f4", "word topic"), "word_rest": numbers("f8", "word")}
        if global_state["rows_ahead"]:
            fields["block_active"] = numbers("f4", "word topic")
    if global_state["moments"]:
        fields |= same_field("word_topic_variance word_topic_log_absent", numbers("f8", "word topic"))
        fields["word_tables"] = counts("f8", "word")
    if global_state.get("seeds_apart"):
        fields["word_number"] = counts("i8", "word")
    return ArrayGroup({**fields, **_by_word(global_state)})


def _by_word(global_state: Arrays) -> dict[str, ArrayField]:
    """Return the declaration of what families with seeds, keywords or weights keep of each word."""
    pseudo = {"word_pseudo": counts("f8", "word")} if "seed_counts" in global_state else {}
    if "topic_plain" in global_state:
        pseudo |= same_field("word_weight word_mean", numbers("f4", "word", MIN_WEIGHT))
    return pseudo | ({"word_number": counts("i8", "word")} if "keyword_counts" in global_state else {})


def collapsed_local(global_state: Arrays) -> ArrayGroup:
    """Return the declaration of a local state: active topics with their responsibilities, or those of all topics."""
    if global_state["active"]:
        shares = {"pair_shares": numbers("u2", "share", 0, UNIT), **scalars("i8", "age", 0)}
        return ArrayGroup({**ACTIVE_TOPICS, **PSEUDO, **shares}, (TOPICS_ASCEND, counts_fault, responsibilities_fault))
    return ArrayGroup(
        {
            "document_topic": counts("f4", "document topic"),
            "pair_topic": numbers("f4", "pair topic", 0, 1.001),
        }
    )


def _collapsed(global_state: ArrayGroup) -> FamilyArrays:
    return FamilyArrays(global_state, collapsed_rows, collapsed_blocks, collapsed_local)


def hdp_sticks(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of an HDP's sticks, or of its candidates; each are of distinct topics."""
    order = arrays["stick_order"]
    if arrays["stick_posterior"].shape[0] not in (0, order.size):
        return f"expected {order.size} rows of 'stick_posterior', or none"
    if arrays["beta_posterior"].size not in (0, 2):
        return "expected two numbers in 'beta_posterior', or none"
    for name in ("stick_order", "delete_candidates"):
        if np.unique(arrays.get(name, order)).size != arrays.get(name, order).size:
            return f"expected each topic once in '{name}'"
    return None


KEYWORDS = {
    "keyword_words": counts("i8", "keyword"),
    "keyword_topics": indices("i8", "keyword", "topic"),
    "keyword_counts": counts("f8", "keyword"),
    "keyword_means": ArrayField(("f8",), ("keyword",), MIN_WEIGHT, optional=True),
    "switch_prior": numbers("f8", "2", MIN_POSITIVE),
    **scalars("f8", "keyword_beta", MIN_POSITIVE),
}
HOLDING = (
    all_or_none(*sorted(set(HELD) - {"held_tokens"})),
    all_or_none(*sorted(COOLING)),
    all_or_none(*sorted(ACTIVE_SET_TRIAL)),
)
KEYWORD_ARRAYS = _collapsed(ArrayGroup({**COLLAPSED.fields, **KEYWORDS}, HOLDING))
LDA_ARRAYS = _collapsed(ArrayGroup({**COLLAPSED.fields, **LDA}, HOLDING))
HDP_ARRAYS = _collapsed(ArrayGroup({"pi": HDP["pi"], **HDP}, (hdp_sticks, *HOLDING, all_or_none(*sorted(MOVES)))))


# Families of mean-field topics.

MEAN_FIELD_ROWS = ArrayGroup({"word_topic": counts("f8", "word topic")})
MEAN_FIELD_BLOCKS = ArrayGroup(same_field("block_topic word_expected", counts("f8", "word topic")))
BY_DOCUMENT = {"document_topic": counts("f4", "document topic")}
VB_LDA_ARRAYS = FamilyArrays(
    ArrayGroup({
        "alpha": numbers("f8", "topic", MIN_POSITIVE),
        **PRIORS,
        **flags("further_sweep"),
        "topic_log": numbers("f8", "topic"),
        "topic_total": counts("f8", "topic"),
        "topic_plain": ArrayField(("f8",), ("topic",), 0, optional=True),
    }),
    lambda global_state: ArrayGroup({**MEAN_FIELD_ROWS.fields, **_by_word(global_state)}),
    lambda global_state: ArrayGroup({**MEAN_FIELD_BLOCKS.fields, **_by_word(global_state)}),
    lambda global_state: ArrayGroup({**BY_DOCUMENT, **scalars("i8", "even_sweeps_left", 0, MAX_SWEEPS)}),  # noqa: ARG005
)  # fmt: skip


# Labels.


def table_of(global_state: Arrays) -> LabelTable:
    """Return the labels of the training corpus; raise `ValueError` if they are no table."""
    try:
        return LabelTable.unpacked(global_state["label_table"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"expected a table of labels in 'label_table' ({error})") from None


def labelled(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the table of labels; bind the size ``label``, their number."""
    try:
        table = table_of(arrays)
    except ValueError as error:
        return str(error)
    expected = len(table)
    if context.sizes.setdefault("label", expected) != expected:
        return f"expected {context.sizes['label']} labels in 'label_table', found {expected}"
    return None


LABEL_TABLE = {"label_table": numbers("u1", "byte", 0, 255)}
LABELS = {"document_labels": offsets("document", "labelled"), "document_label": indices("i4", "labelled", "label")}


# Samplers.

SAMPLED_BLOCKS = ArrayGroup({"word_topic": counts("i4", "word topic")})
GROWING_BLOCKS = ArrayGroup({"word_topic": counts("i4", "word <topic")})
SAMPLED_ROWS = ArrayGroup({"word_topic": counts("i4 f8", "word topic")})
SAMPLED = ArrayGroup(
    {
        **{name: field for name, field in ACTIVE_TOPICS.items() if name != "document_rest"},
        "document_counts": counts("f4", "active_entry"),
        "token_topic": indices("u2", "token", "topic"),
    },
    (at_most("document_lists", "topic"),),
)


def sampled_rows(global_state: Arrays) -> ArrayGroup:
    """Return the declaration of a finished model's rows: integer counts, or floats in a simulated model."""
    return SAMPLED_ROWS


def sampled_blocks(global_state: Arrays) -> ArrayGroup:
    """Return the declaration of rows of integer counts during a fit."""
    return SAMPLED_BLOCKS


def sampled_local(global_state: Arrays) -> ArrayGroup:
    """Return the declaration of a sampler's local state: the topic of each token, and the documents' counts."""
    return SAMPLED


def some_of(name: str) -> Rule:
    """Return the rule that an array has a positive number, as it is divided by its sum."""

    def rule(arrays: Arrays, context: CheckContext) -> str | None:
        return None if (np.asarray(arrays[name]) > 0).any() else f"expected more than nothing in '{name}'"

    return rule


def free_of(*names: str) -> Rule:
    """Return the rule that free columns have no counts."""

    def rule(arrays: Arrays, context: CheckContext) -> str | None:
        wrong = [name for name in names if (np.asarray(arrays[name])[arrays["free"]] > 0).any()]
        return f"expected nothing of free columns in '{wrong[0]}'" if wrong else None

    return rule


def _shares_of_tokens(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of topic weights pi: topics with tokens have positive ones. Simulated models are exempt."""
    total = np.asarray(arrays["topic"])
    if total.dtype.kind == "i" and (np.asarray(arrays["pi"])[total > 0] <= 0).any():
        return "expected positive shares of the topics that have tokens in 'pi'"
    return None


GIBBS_LDA_ARRAYS = FamilyArrays(
    ArrayGroup({
        "alpha": numbers("f8", "topic", MIN_POSITIVE),
        **PRIORS,
        "topic": counts("i8 f8", "topic"),
    }),
    sampled_rows,
    sampled_blocks,
    sampled_local,
    TOKEN_TOPICS,
)  # fmt: skip
GIBBS_HDP_ARRAYS = FamilyArrays(
    ArrayGroup({
        "pi": counts("f8", "topic"),
        **PRIORS,
        **scalars("f8", "alpha gamma", MIN_POSITIVE),
        **scalars("i8", "lanes start_topics", 1, 1 << 16),
        "topic": counts("i8 f8", "topic"),
        "free": numbers("b1", "topic"),
    }, (free_of("pi", "topic"), _shares_of_tokens)),
    sampled_rows,
    lambda global_state: GROWING_BLOCKS,  # noqa: ARG005
    sampled_local,
    TOKEN_TOPICS,
)  # fmt: skip


def _authors(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of authors: each document has at least one, and each token one of its document's."""
    authors = np.diff(arrays["document_labels"])
    if authors.size and authors.min() < 1:
        return "expected an author of each document in 'document_labels'"
    if context.shard is None or "token_author" not in arrays:
        return None
    lengths, token_author = context.shard.lengths, np.asarray(arrays["token_author"])
    some = lengths > 0
    largest = np.maximum.reduceat(token_author, (np.cumsum(lengths) - lengths)[some]) if some.any() else lengths[some]
    return None if (largest < authors[some]).all() else "expected authors of the document in 'token_author'"


AUTHOR_TOPIC_ARRAYS = FamilyArrays(
    ArrayGroup(
        {
            "topic": counts("i8 f8", "topic"),
            **PRIORS,
            **scalars("f8", "alpha", MIN_POSITIVE),
            **LABEL_TABLE,
            "label_topic": counts("i8 f8", "author topic"),
        },
        (labelled, lambda arrays, context: _number_of_authors(context)),  # noqa: ARG005
    ),
    sampled_rows,
    sampled_blocks,
    lambda global_state: ArrayGroup(  # noqa: ARG005
        {
            "document_labels": offsets("document", "labelled"),
            "document_label": indices("i4", "labelled", "author"),
            "document_tokens": counts("i8", "document"),
            "token_author": counts("u2", "token"),
            "token_topic": indices("u2", "token", "topic"),
        },
        (_authors, has_document_tokens("document_tokens")),
    ),
    TOKEN_TOPICS,
)


def _number_of_authors(context: CheckContext) -> str | None:
    """Return the fault of the number of authors: the labels, and one for documents without labels."""
    if context.sizes["author"] == context.sizes["label"] + 1:
        return None
    return f"expected {context.sizes['label'] + 1} rows of 'label_topic', found {context.sizes['author']}"
