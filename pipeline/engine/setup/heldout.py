"""Bringing a held-out corpus to the shards of the training corpus, document by document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.shard import Documents, Shard
from collapsium.storage.errors import MismatchError, OptionError
from collapsium.storage.runs.model import ShardDocuments


@dataclass(frozen=True)
class HeldoutReference:
    """Where the held-out pairs of a training shard's documents lie.

    Attributes
    ----------
    number : int
        Which training shard.
    training : ShardDocuments
        Its documents.
    parts : tuple of (ShardReference, int, int)
        Shards of the held-out corpus, each with the first and last-plus-one of its documents that belong here.
    name : str
        What the training documents are called in an error.
    """

    number: int
    training: ShardDocuments
    parts: tuple[tuple[ShardReference, int, int], ...]
    name: str

    def load(self, *, segmented: bool = False) -> Shard:
        """Read the held-out pairs of exactly the training shard's documents.

        Parameters
        ----------
        segmented : bool, optional
            Whether their segments are wanted.

        Returns
        -------
        Shard
            As many documents as the training shard has, in its order.

        Raises
        ------
        MismatchError
            The documents have other ids.
        """
        heldout = Documents.join([part.documents().slice(first, last) for part, first, last in self.parts])
        if heldout.ids_sha256() != self.training.ids_sha256:
            raise MismatchError(
                f"{self.parts[0][0].folder.url}: expected the documents of {self.name}, with the same ids in the same "
                f"order; those of shard {self.number} (from {heldout.ids[0].as_py()!r} on) have other ids"
            )
        return Shard.of(self.number, heldout, segmented=segmented)


def require_tokens(heldout: Corpus) -> None:
    """Refuse a corpus of vectors, or without tokens, as one of held-out tokens.

    Parameters
    ----------
    heldout : Corpus
        The corpus.

    Raises
    ------
    OptionError
        It holds vectors.
    InputError
        It holds no token.
    """
    if heldout.holds != DOCUMENTS:
        raise OptionError(
            f"`heldout` {heldout.url}: vectors have no tokens to hold out; score vectors that were not fitted, "
            "as `split` with `documents` holds out, by `evaluate` with `unseen`"
        )
    heldout.require_tokens()


def align(training: Sequence[ShardDocuments], heldout: Corpus, name: str) -> list[HeldoutReference]:
    """Find the held-out pairs of each training shard's documents.

    Parameters
    ----------
    training : sequence of ShardDocuments
        The documents of the training shards.
    heldout : Corpus
        Further tokens of the same documents; its shards may be cut at other places.
    name : str
        What to call the training documents in an error.

    Returns
    -------
    list of HeldoutReference
        One a training shard.

    Raises
    ------
    MismatchError
        The number of documents differs.
    """
    documents = sum(shard.documents for shard in training)
    if heldout.manifest.documents != documents:
        raise MismatchError(
            f"{heldout.url}: expected the {documents} documents of {name}, found {heldout.manifest.documents}; "
            "a held-out corpus has the same documents, some perhaps empty"
        )
    found = []
    first = 0
    for number, shard in enumerate(training):
        last = first + shard.documents
        found.append(HeldoutReference(number, shard, _parts(heldout, first, last), name))
        first = last
    return found


def _parts(corpus: Corpus, first: int, last: int) -> tuple[tuple[ShardReference, int, int], ...]:
    parts, start = [], 0
    for reference in corpus.references:
        end = start + reference.record.documents
        if start < last and first < end:
            parts.append((reference, max(first, start) - start, min(last, end) - start))
        start = end
    return tuple(parts)
