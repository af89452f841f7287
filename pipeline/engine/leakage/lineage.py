"""Refuse scores of tokens or documents that a model was fitted to, by the lineage of corpora alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collapsium.pipeline.families.model import Model
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
    """What lineage says of two corpora: what they share, in words; or that they share nothing; or neither."""

    shared: str | None = None
    disjoint: bool = False


def trained_on(model: Model) -> Lineage | None:
    """Return where the tokens come from that a model was fitted to; None of a model that was drawn."""
    return model.record.lineage if model.record.shards else None


def shared_tokens(trained: Lineage, scored: Lineage, name: str) -> Relation:
    """Tell whether a corpus has tokens that a model was fitted to, by lineage alone.

    Parameters
    ----------
    trained, scored : Lineage
        Of the training corpus, and of the other.
    name : str
        What to call the training corpus.

    Returns
    -------
    Relation
        How they are related.
    """
    found = since_common(trained, scored)
    if found is None:
        same = set(trained.contents) & set(scored.contents)
        return Relation(f"has shards of {name}") if same else Relation()
    if _apart(token_steps(*found)) or _apart(document_steps(*found)):
        return Relation(disjoint=True)
    return Relation(_related(*found, name))


def shared_documents(trained: Lineage, scored: Lineage, name: str) -> Relation:
    """Tell whether a corpus has documents that a model was fitted to, by lineage alone; as `shared_tokens`."""
    found = since_common(trained, scored)
    if found is None:
        same = set(trained.contents) & set(scored.contents)
        return Relation(f"has documents of {name}") if same else Relation()
    if _apart(document_steps(*found)):
        return Relation(disjoint=True)
    return Relation(_related(*found, name))


def _labels_apart(trained: Lineage, scored: Lineage) -> bool:
    """Tell whether two corpora are the two parts of a split of labels."""
    found = since_common(trained, scored)
    if found is None or not (found[0] and found[1]):
        return False
    one, other = found[0][0], found[1][0]
    return one.kind == LABELS and one.excludes(other)


def _apart(pairs: Any) -> bool:
    return any(one.excludes(other) for one, other in pairs)


def _related(trained: Sequence[Step], scored: Sequence[Step], name: str) -> str:
    """Say how a corpus comes to share tokens or documents with a training corpus."""
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
    return "flattened from" if step.kind == SEGMENTS else "split from"


def require_held_out(trained: Lineage | None, scored: Corpus, name: str) -> bool:
    """Refuse held-out tokens that a model was fitted to.

    Parameters
    ----------
    trained : Lineage or None
        Of the training corpus; None of a model that was not fitted.
    scored : Corpus
        The held-out tokens.
    name : str
        What to call the training corpus.

    Returns
    -------
    bool
        Whether it is certain that they are others; else their counts are worth a look.

    Raises
    ------
    MismatchError
        They are tokens that it was fitted to.
    """
    if trained is None:
        return True
    relation = shared_tokens(trained, lineage_of(scored), name)
    if relation.shared is not None:
        raise MismatchError(
            f"{scored.url}: {relation.shared}; tokens that were fitted are not held out. {TOKENS_ADVICE}"
        )
    return relation.disjoint


def require_unseen(trained: Lineage | None, scored: Corpus, name: str) -> str:
    """Refuse documents that a model was fitted to where unseen ones are expected.

    Parameters
    ----------
    trained, scored, name
        As for `require_held_out`.

    Returns
    -------
    str
        What the definition of a score has to add; empty as a rule. The error of vectors that were fitted is worth
        knowing, and is said to be one.

    Raises
    ------
    MismatchError
        It was fitted to these documents, and with all labels that they have.
    """
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
