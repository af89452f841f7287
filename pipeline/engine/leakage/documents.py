"""Refuse unseen documents that are training documents by their ids and their words."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.pipeline.engine.leakage.lineage import DOCUMENTS_ADVICE
from collapsium.pipeline.executors.base import Executor
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.lineage import lineage_of, since_common
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.shard import Documents
from collapsium.storage.errors import MismatchError


@dataclass(frozen=True)
class SameDocumentsRule:
    """When unseen documents are taken for training documents, by a sample of them."""

    shards: int = 4
    """Shards of the unseen documents that are read."""
    documents: int = 64
    """Documents of each of these that are looked up."""
    least_pairs: int = 5
    """Different words that a document needs to be looked up; shorter ones may be the same by chance."""
    least_documents: int = 5
    """Documents that are needed to decide anything."""
    least_share: float = 0.5
    """Share of the documents that were looked up from which on they are refused."""
    training_shards: int = 64
    """Training shards in which they are looked up."""


SAME_DOCUMENTS = SameDocumentsRule()


def require_new_documents(
    fitted: Corpus | None, scored: Corpus, name: str, executor: Executor, *, labelled: bool
) -> None:
    """Refuse unseen documents that are training documents by their ids and their words.

    Where lineage tells how the corpora are related, it has been decided already; here nothing is read then.

    Parameters
    ----------
    fitted : Corpus or None
        The training corpus; None where it cannot be read any more.
    scored : Corpus
        The documents, with the same vocabulary.
    name : str
        What to call the training corpus.
    executor : Executor
        Reads the training shards.
    labelled : bool
        Whether documents with other labels are others.

    Raises
    ------
    MismatchError
        Half of a sample of them, or more, are training documents.
    """
    if fitted is None or fitted.holds != DOCUMENTS or scored.holds != DOCUMENTS:
        return
    if since_common(lineage_of(fitted), lineage_of(scored)) is not None:
        return
    sample: dict[str, bytes] = {}
    for reference in _spread(scored.references, SAME_DOCUMENTS.shards):
        documents = reference.documents()
        long = np.flatnonzero(np.diff(documents.offsets) >= SAME_DOCUMENTS.least_pairs).tolist()
        sample.update(_fingerprints(documents, _spread(long, SAME_DOCUMENTS.documents), labelled=labelled))
    if len(sample) < SAME_DOCUMENTS.least_documents:
        return
    places = _spread(fitted.references, SAME_DOCUMENTS.training_shards)
    same = sum(executor.collect([executor.submit(_count_same, place, sample, labelled) for place in places]))
    if same >= SAME_DOCUMENTS.least_share * len(sample):
        raise MismatchError(
            f"{scored.url}: of {len(sample)} of its documents, {same} are in {name}, with the same ids and words; "
            f"documents that were fitted are not unseen. {DOCUMENTS_ADVICE}"
        )


def _spread(every: Sequence[Any], most: int) -> Sequence[Any]:
    """Return at most so many of a sequence, at equal distances."""
    return (
        [every[place] for place in sorted({int(one) for one in np.linspace(0, len(every) - 1, most)})] if every else []
    )


def _fingerprints(documents: Documents, numbers: Sequence[int], *, labelled: bool) -> dict[str, bytes]:
    """Return a digest of the words and counts of some documents, and of their labels where these count, by their ids.

    Parameters
    ----------
    documents : Documents
        The documents.
    numbers : sequence of int
        Which of them.
    labelled : bool
        Whether labels and covariates count.
    """
    further = [column for name, column in sorted(documents.extras.items()) if name not in ("title", "date", "segments")]
    found = {}
    for number in numbers:
        low, high = documents.offsets[number], documents.offsets[number + 1]
        digest = hashlib.sha256(documents.words[low:high].tobytes())
        digest.update(documents.counts[low:high].tobytes())
        digest.update(repr([column[number].as_py() for column in further] if labelled else []).encode())
        found[documents.ids[number].as_py()] = digest.digest()
    return found


def _count_same(reference: ShardReference, sample: Mapping[str, bytes], labelled: bool) -> int:
    """Return how many documents of a sample a shard has."""
    documents = reference.documents()
    there = np.flatnonzero(np.asarray(pc.is_in(documents.ids, value_set=pa.array(list(sample)))))
    found = _fingerprints(documents, there.tolist(), labelled=labelled)
    return sum(sample[identity] == one for identity, one in found.items())
