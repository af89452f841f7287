"""Refuse unseen documents that are training documents by their ids and their words."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

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

T = TypeVar("T")


@dataclass(frozen=True)
class SameDocumentsRule:
    """Thresholds by which unseen documents are taken for training documents, from a sample of them."""

    shards: int = 4  # Shards of the unseen documents that are read
    documents: int = 64  # Documents of each of these that are looked up
    least_pairs: int = 5  # Distinct words that a document needs to be looked up; shorter documents may agree by chance
    least_documents: int = 5  # Documents of the sample that a decision needs
    least_share: float = 0.5  # Share of training documents in the sample from which on the corpus is refused
    training_shards: int = 64  # Training shards in which they are looked up


SAME_DOCUMENTS = SameDocumentsRule()


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
    for reference in _spread(scored.references, SAME_DOCUMENTS.shards):
        documents = reference.documents()
        long = np.flatnonzero(np.diff(documents.offsets) >= SAME_DOCUMENTS.least_pairs).tolist()
        sample.update(_fingerprints(documents, _spread(long, SAME_DOCUMENTS.documents), labelled=labelled))
    if len(sample) < SAME_DOCUMENTS.least_documents:
        return
    references = _spread(fitted.references, SAME_DOCUMENTS.training_shards)
    same = sum(
        executor.collect([executor.submit(_count_same, reference, sample, labelled) for reference in references])
    )
    if same >= SAME_DOCUMENTS.least_share * len(sample):
        raise MismatchError(
            f"{scored.url}: of {len(sample)} of its documents, {same} are in {name}, with the same ids and words; "
            f"documents that were fitted are not unseen. {DOCUMENTS_ADVICE}"
        )


def _spread(items: Sequence[T], most: int) -> Sequence[T]:
    """Return at most so many items of a sequence, at equal distances."""
    if not items:
        return []
    return [items[index] for index in sorted({int(index) for index in np.linspace(0, len(items) - 1, most)})]


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
