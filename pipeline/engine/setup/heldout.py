"""Align a held-out corpus with the shards of the training corpus, document by document."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.shard import Documents, Shard
from collapsium.storage.errors import MismatchError, OptionError
from collapsium.storage.runs.model import ShardDocuments


@dataclass(frozen=True)
class HeldoutReference:
    """Reference to the held-out pairs of a training shard's documents."""

    number: int  # Number of the training shard
    training: ShardDocuments  # Documents of the training shard
    # Shards of the held-out corpus, each with its first document that belongs here and the one after the last
    parts: tuple[tuple[ShardReference, int, int], ...]
    name: str  # Name of the training documents in errors

    def load(self, *, segmented: bool = False) -> Shard:
        """Read the held-out pairs of exactly the training shard's documents."""
        heldout = Documents.join([part.documents().slice(first, last) for part, first, last in self.parts])
        if heldout.ids_sha256() != self.training.ids_sha256:
            raise MismatchError(
                f"{self.parts[0][0].folder.url}: expected the documents of {self.name}, with the same ids in the same "
                f"order; those of shard {self.number} (from {heldout.ids[0].as_py()!r} on) have other ids"
            )
        return Shard.of(self.number, heldout, segmented=segmented)


def require_tokens(heldout: Corpus) -> None:
    """Raise an error if a corpus has no tokens to hold out."""
    if heldout.holds != DOCUMENTS:
        raise OptionError(
            f"{heldout.url}: vectors have no tokens to hold out; hold out vectors by `split` with `documents`, and "
            "score them by `evaluate` with `unseen`",
            "heldout",
        )
    heldout.require_tokens()


def align(training: Sequence[ShardDocuments], heldout: Corpus, name: str) -> list[HeldoutReference]:
    """Return references to the held-out pairs of each training shard."""
    documents = sum(shard.documents for shard in training)
    if heldout.manifest.documents != documents:
        raise MismatchError(
            f"{heldout.url}: expected the {documents} documents of {name}, found {heldout.manifest.documents}; "
            "a held-out corpus has the same documents, some perhaps empty"
        )
    references, aligned, first = heldout.references, [], 0
    starts = [0, *accumulate(reference.record.documents for reference in references)]
    for number, shard in enumerate(training):
        last = first + shard.documents
        places = range(bisect_right(starts, first) - 1, bisect_left(starts, last))
        parts = tuple(
            (references[at], max(first, starts[at]) - starts[at], min(last, starts[at + 1]) - starts[at])
            for at in places
        )
        aligned.append(HeldoutReference(number, shard, parts, name))
        first = last
    return aligned
