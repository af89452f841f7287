"""Refuse scores of tokens or documents that a model was fitted to, by the lineage of corpora alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collapsium.pipeline.models.model import Model
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import (
    LABELS,
    SEGMENTS,
    Lineage,
    Step,
    document_steps,
    lineage_of,
    since_common,
    token_steps,
)
from collapsium.storage.corpus.manifest import VECTORS
from collapsium.storage.errors import MismatchError

OTHER_LABELS = "; the model was fitted to these documents with other labels, so that their words are not unseen"
SAME_VECTORS = "; the model was fitted to these vectors"
TOKENS_ADVICE = "`split` holds tokens out: fit the one part, score the other"
DOCUMENTS_ADVICE = "`split` with `documents` holds documents out: fit the one part, score the other"


@dataclass(frozen=True)
class Relation:
    """Relation of two corpora by lineage: a description of what they share, or that they are disjoint; or neither."""

    shared: str | None = None
    disjoint: bool = False


def trained_on(model: Model) -> Lineage | None:
    """Return the lineage of a model's training corpus; None for a model that was simulated."""
    return model.record.lineage if model.record.shards else None


def shared_tokens(trained: Lineage, scored: Lineage, name: str) -> Relation:
    """Return the relation of two corpora by their tokens."""
    steps = since_common(trained, scored)
    if steps is None:
        same = set(trained.contents) & set(scored.contents)
        return Relation(f"has shards of {name}") if same else Relation()
    if _exclude(token_steps(*steps)) or _exclude(document_steps(*steps)):
        return Relation(disjoint=True)
    return Relation(_related(*steps, name))


def shared_documents(trained: Lineage, scored: Lineage, name: str) -> Relation:
    """Return the relation of two corpora by their documents; see `shared_tokens`."""
    steps = since_common(trained, scored)
    if steps is None:
        same = set(trained.contents) & set(scored.contents)
        return Relation(f"has documents of {name}") if same else Relation()
    if _exclude(document_steps(*steps)):
        return Relation(disjoint=True)
    return Relation(_related(*steps, name))


def _labels_apart(trained: Lineage, scored: Lineage) -> bool:
    """Return true if two corpora are the two parts of a split of labels."""
    steps = since_common(trained, scored)
    if steps is None or not (steps[0] and steps[1]):
        return False
    first, second = steps[0][0], steps[1][0]
    return first.kind == LABELS and first.excludes(second)


def _exclude(pairs: Iterable[tuple[Step, Step]]) -> bool:
    return any(first.excludes(second) for first, second in pairs)


def _related(trained: Sequence[Step], scored: Sequence[Step], name: str) -> str:
    """Return a description of the splits by which a corpus shares tokens or documents with a training corpus."""
    if not trained and not scored:
        return f"is {name} itself"
    if not trained:
        return f"was {_made(scored[0])} {name} itself"
    if not scored:
        return f"is the corpus of which {name} was {_made(trained[0]).split()[0]}"
    if trained[0].seed != scored[0].seed and trained[0].kind == scored[0].kind:
        return (
            f"and {name} were split from one corpus with different seeds ({scored[0].seed} and {trained[0].seed}), "
            "and share some of it"
        )
    return f"and {name} were split from one corpus in different ways, and share some of it"


def _made(step: Step) -> str:
    return "exploded from" if step.kind == SEGMENTS else "split from"


def require_held_out(trained: Lineage | None, scored: Corpus, name: str) -> None:
    """Raise an error if held-out tokens are training tokens by lineage."""
    if trained is None:
        return
    relation = shared_tokens(trained, lineage_of(scored), name)
    if relation.shared is not None:
        raise MismatchError(
            f"{scored.url}: {relation.shared}; tokens that were fitted are not held out. {TOKENS_ADVICE}"
        )


def require_unseen(trained: Lineage | None, scored: Corpus, name: str) -> str:
    """Raise an error if unseen documents are training documents by lineage."""
    if trained is None:
        return ""
    own = lineage_of(scored)
    relation = shared_documents(trained, own, name)
    if relation.shared is None:
        return ""
    if scored.holds == VECTORS:
        return SAME_VECTORS
    if _labels_apart(trained, own):
        return OTHER_LABELS
    if shared_tokens(trained, own, name).disjoint:
        raise MismatchError(
            f"{scored.url}: has held-out tokens of the documents of {name}, which are scored with `heldout`; documents "
            f"that were fitted are not unseen. {DOCUMENTS_ADVICE}"
        )
    raise MismatchError(
        f"{scored.url}: {relation.shared}; documents that were fitted are not unseen. {DOCUMENTS_ADVICE}"
    )
