"""Refuse scores of tokens or documents that a model was fitted to, by the lineage of corpora alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.models.model import Model
from collapsium.storage.corpus.corpus import Corpus, ShardReference
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
from collapsium.storage.corpus.manifest import DOCUMENTS, VECTORS
from collapsium.storage.corpus.shard import Documents
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
    lineage = lineage_of(scored)
    relation = shared_documents(trained, lineage, name)
    if relation.shared is None:
        return ""
    if scored.holds == VECTORS:
        return SAME_VECTORS
    if _labels_apart(trained, lineage):
        return OTHER_LABELS
    if shared_tokens(trained, lineage, name).disjoint:
        raise MismatchError(
            f"{scored.url}: has held-out tokens of the documents of {name}, which are scored with `heldout`; documents "
            f"that were fitted are not unseen. {DOCUMENTS_ADVICE}"
        )
    raise MismatchError(
        f"{scored.url}: {relation.shared}; documents that were fitted are not unseen. {DOCUMENTS_ADVICE}"
    )


T = TypeVar("T")


# Thresholds by which unseen documents are taken for training documents, from a sample of them
SAMPLED_SHARDS = 4  # Shards of the unseen documents that are read
SAMPLED_DOCUMENTS = 64  # Documents of each of these that are looked up
LEAST_WORDS = 5  # Distinct words that a document needs to be looked up; shorter documents may agree by chance
LEAST_DOCUMENTS = 5  # Documents of the sample that a decision needs
LEAST_SHARE = 0.5  # Share of training documents in the sample from which on the corpus is refused
TRAINING_SHARDS = 64  # Training shards in which they are looked up


def require_new_documents(
    fitted: Corpus | None, scored: Corpus, name: str, executor: Executor, *, labelled: bool
) -> None:
    """Raise an error if unseen documents are training documents by their ids and their words.

    Where the lineage of the corpora decides, no document is read.
    """
    if fitted is None or fitted.holds != DOCUMENTS or scored.holds != DOCUMENTS:
        return
    if since_common(lineage_of(fitted), lineage_of(scored)) is not None:
        return
    sample: dict[str, bytes] = {}
    for reference in _spread(scored.references, SAMPLED_SHARDS):
        documents = reference.documents()
        long = np.flatnonzero(np.diff(documents.offsets) >= LEAST_WORDS).tolist()
        sample.update(_fingerprints(documents, _spread(long, SAMPLED_DOCUMENTS), labelled=labelled))
    if len(sample) < LEAST_DOCUMENTS:
        return
    references = _spread(fitted.references, TRAINING_SHARDS)
    same = sum(
        executor.collect([executor.submit(_count_same, reference, sample, labelled) for reference in references])
    )
    if same >= LEAST_SHARE * len(sample):
        raise MismatchError(
            f"{scored.url}: of {len(sample)} of its documents, {same} are in {name}, with the same ids and words; "
            f"documents that were fitted are not unseen. {DOCUMENTS_ADVICE}"
        )


def _spread(items: Sequence[T], limit: int) -> Sequence[T]:
    """Return at most `limit` items of a sequence, at equal distances."""
    if not items:
        return []
    return [items[index] for index in sorted({int(index) for index in np.linspace(0, len(items) - 1, limit)})]


def _fingerprints(documents: Documents, numbers: Sequence[int], *, labelled: bool) -> dict[str, bytes]:
    """Return digests of the words and counts of some documents by id, and of their labels where these count."""
    further = [column for name, column in sorted(documents.extras.items()) if name not in ("title", "date", "segments")]
    digests = {}
    for number in numbers:
        low, high = documents.offsets[number], documents.offsets[number + 1]
        digest = hashlib.sha256(documents.words[low:high].tobytes())
        digest.update(documents.counts[low:high].tobytes())
        digest.update(repr([column[number].as_py() for column in further] if labelled else []).encode())
        digests[documents.ids[number].as_py()] = digest.digest()
    return digests


def _count_same(reference: ShardReference, sample: Mapping[str, bytes], labelled: bool) -> int:
    """Return the number of a sample's documents in a shard."""
    documents = reference.documents()
    present = np.flatnonzero(np.asarray(pc.is_in(documents.ids, value_set=pa.array(list(sample)))))
    digests = _fingerprints(documents, present.tolist(), labelled=labelled)
    return sum(sample[identity] == digest for identity, digest in digests.items())
