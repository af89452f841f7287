"""Lineage of a corpus: the splits that it comes from, and the part of each split that it contains.

The record is stored beside the manifest and is copied with the folder. The digest of a corpus does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import Digest, Record, check, dump, read_record

LINEAGE = "lineage.json"
KIND = "collapsium-lineage"
VERSION = 2
TOKENS, DOCUMENT_SPLIT, LABELS, SEGMENTS = "tokens", "documents", "labels", "segments"

MAX_STEPS = 1000  # Largest number of successive splits; corpora are compared step by step

Draw = Annotated[float, Field(ge=0.0, le=1.0)]


class Step(Record):
    """One split of a corpus, and the part that this corpus holds.

    ``corpus`` is the digest of the corpus that was split. A uniform number in [0, 1) was drawn, by the seed, for each
    token, document or label; those in [``low``, ``high``) were held out. ``heldout`` is True for the held-out part. A
    corpus whose documents are the segments of another has the kind ``segments`` and all tokens.
    """

    corpus: Digest
    kind: Literal["tokens", "documents", "labels", "segments"]
    seed: Annotated[int, Field(strict=True)] = 0
    low: Draw = 0.0
    high: Draw = 1.0
    heldout: bool = False

    def excludes(self, other: Step) -> bool:
        """Return True if the two parts are disjoint when they use the same draws."""
        if (self.kind, self.seed) != (other.kind, other.seed) or self.kind == SEGMENTS:
            return False
        if self.heldout and other.heldout:
            return self.high <= other.low or other.high <= self.low
        if not self.heldout and not other.heldout:
            return False
        held, train = (self, other) if self.heldout else (other, self)
        return train.low <= held.low and held.high <= train.high


class StepsRecord(BaseModel):
    """The fields of `lineage.json`: the splits that lead to a corpus, the earliest first."""

    steps: Annotated[tuple[Step, ...], Field(max_length=MAX_STEPS)]


class Lineage(Record):
    """The origin of the tokens of a corpus.

    ``corpus`` is its digest, ``steps`` are the splits that lead to it, the earliest first, and ``contents`` are the
    digests of its shards with tokens.
    """

    corpus: Digest
    steps: tuple[Step, ...] = ()
    contents: tuple[Digest, ...] = ()


def lineage_of(corpus: Corpus) -> Lineage:
    """Return the lineage of a corpus."""
    rows = corpus.manifest.shards
    contents = tuple(row.vectors_sha256 or row.sha256 for row in rows if row.tokens)
    return Lineage(corpus=corpus.manifest.digest, steps=read_steps(corpus.folder), contents=contents)


def read_steps(folder: Folder) -> tuple[Step, ...]:
    """Read the splits that led to a corpus; empty without a record."""
    if not folder.exists(LINEAGE):
        return ()
    record = read_record(folder, LINEAGE, KIND, VERSION, oldest=VERSION)
    return check(StepsRecord, record, f"{folder.url}/{LINEAGE}").steps


def write_part(folder: Folder, corpus: Corpus, step: Step) -> None:
    """Write the lineage of a part of a corpus."""
    steps = [entry.model_dump(mode="json") for entry in (*read_steps(corpus.folder), step)]
    folder.write(LINEAGE, dump({"format": KIND, "version": VERSION, "steps": steps}))


def write_parts(folders: Sequence[Folder], corpus: Corpus, step: Step) -> None:
    """Write the lineage of the training and the held-out part of a corpus."""
    for folder, heldout in zip(folders, (False, True), strict=True):
        write_part(folder, corpus, step.model_copy(update={"heldout": heldout}))


def token_steps(first: Sequence[Step], second: Sequence[Step]) -> Iterator[tuple[Step, Step]]:
    """Pair the splits that decide which tokens two corpora have, until the corpora hold different parts."""
    return _paired(first, second, (LABELS,))


def document_steps(first: Sequence[Step], second: Sequence[Step]) -> Iterator[tuple[Step, Step]]:
    """Pair the splits that decide which documents two corpora have, until the corpora hold different parts."""
    return _paired(first, second, (LABELS, TOKENS))


def _paired(first: Sequence[Step], second: Sequence[Step], without: Sequence[str]) -> Iterator[tuple[Step, Step]]:
    left, right = ([step for step in steps if step.kind not in without] for steps in (first, second))
    for left_step, right_step in zip(left, right, strict=False):
        yield left_step, right_step
        if left_step.model_copy(update={"corpus": right_step.corpus}) != right_step:
            return


def since_common(first: Lineage, second: Lineage) -> tuple[tuple[Step, ...], tuple[Step, ...]] | None:
    """Return the splits of two corpora since their last common ancestor; None if none is known."""
    # The corpora that each comes from, the earliest first, and last the corpus itself
    ancestors, others = ([*(step.corpus for step in of.steps), of.corpus] for of in (first, second))
    for place in range(len(ancestors) - 1, -1, -1):
        if ancestors[place] in others:
            return first.steps[place:], second.steps[others.index(ancestors[place]) :]
    return None
