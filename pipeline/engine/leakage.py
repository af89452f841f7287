"""Refuse scores of tokens or documents that a model was fitted to, by the lineage of corpora alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
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
from collapsium.storage.corpus.shard import Documents, Shard
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.storage.errors import MismatchError
from collapsium.workers.shard_loading import ShardOnDisk, open_shard

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


def require_held_out(trained: Lineage | None, scored: Corpus, name: str) -> bool:
    """Raise an error if held-out tokens are training tokens by lineage."""
    if trained is None:
        return True
    relation = shared_tokens(trained, lineage_of(scored), name)
    if relation.shared is not None:
        raise MismatchError(
            f"{scored.url}: {relation.shared}; tokens that were fitted are not held out. {TOKENS_ADVICE}"
        )
    return relation.disjoint


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


Table = npt.NDArray[np.int64]


class Loadable(Protocol):
    """A reference to the held-out pairs of a training shard's documents."""

    def load(self) -> Shard:
        """Read the pairs."""


# Thresholds by which counts are taken to lie within others, as counts of the same tokens do. Of tokens held out at
# random, the count of a word in a document is now and then larger than the count that stays. The share of tokens held
# out determines how often.
# Expected number of such pairs from which on their absence is not chance: exp(-25) is 1e-11
LEAST_EXPECTED = 25.0
# Share of the expected pairs that may occur, such as those of a document or two that were edited
MOST_SHARE = 0.01
LEAST_PAIRS = 100  # Pairs of two tokens or more that a test of the variance needs
# Ratio of the variance to a binomial's; counts halved by rule have at most 0.5. Also the ratio of the share held
# out of single tokens to that of several, or its inverse.
LEAST_VARIANCE = 0.7
# Pairs of as many tokens or more are left out, as there the same count is practically always the larger
MOST_COUNT = 64


def require_not_contained(tables: Sequence[Table], scored: Corpus, name: str) -> None:
    """Raise an error if held-out counts lie within those of the training documents, or these within them."""
    if not tables:
        return
    if is_contained(np.sum(tables, axis=0)):
        raise MismatchError(
            f"{scored.url}: shares its tokens with {name}: in all documents, the counts of the one lie within those of "
            f"the other. {TOKENS_ADVICE}"
        )


def is_contained(table: Table) -> bool:
    """Return true if one count of each pair lies within the other, as the count of a part of the same tokens does."""
    return any(_is_part(counts) for counts in (table, table.T))


def _is_part(table: Table) -> bool:
    """Return true if the counts of the columns are a part of those of the rows."""
    total_count, part = np.indices(table.shape)
    tokens = total_count + part
    total = float((tokens * table).sum())
    if total == 0.0:
        return False
    # A fit that holds out nothing, or a split that is recorded, need not wait for this import.
    from scipy import special

    share = float((part * table).sum()) / total
    larger = np.where(tokens > 0, special.bdtrc(np.floor(tokens / 2), tokens, share), 0.0)
    expected, observed = float((larger * table).sum()), float(table[part > total_count].sum())
    if expected < LEAST_EXPECTED or observed > MOST_SHARE * expected:
        return False
    return not table[part != total_count].any() or _varies(table)


def _varies(table: Table) -> bool:
    """Return true if the counts of the columns vary about a share of those of the rows as a random part does."""
    rows = np.arange(table.shape[0])
    pairs = table.sum(axis=1)
    several = (rows >= 2) & (pairs >= 2)
    counts, tokens = table[several].astype(np.float64), rows[several]
    if counts.sum() < LEAST_PAIRS:
        return False
    number = counts.sum(axis=1)
    mean = counts @ rows / number
    squares = (counts @ rows**2 - number * mean**2).sum()
    share = float((number * mean).sum() / (number * tokens).sum())
    singles = float((table[1] * rows).sum()) / max(int(pairs[1]), 1)
    if not LEAST_VARIANCE * share <= singles <= share / LEAST_VARIANCE:
        return False
    return bool(squares >= LEAST_VARIANCE * ((number - 1.0) * tokens).sum() * share * (1.0 - share))


def count_table(training: AnyShard | ShardOnDisk, heldout: AnyShard | ShardOnDisk) -> Table:
    """Count the pairs of a shard's documents by their training and their held-out tokens."""
    most = MOST_COUNT
    shards = [cast(Shard, open_shard(shard)) for shard in (training, heldout)]
    width = 1 + max(int(shard.words[-1]) if shard.words.size else 0 for shard in shards)
    keys = [
        np.repeat(np.arange(shard.documents), np.diff(shard.offsets)) * width + shard.words[shard.position]
        for shard in shards
    ]
    pairs, index = np.unique(np.concatenate(keys), return_inverse=True)
    first = keys[0].size
    counts = [
        np.bincount(index[part], weights=shard.counts, minlength=pairs.size).astype(np.int64)
        for part, shard in zip((slice(None, first), slice(first, None)), shards, strict=True)
    ]
    few = (counts[0] < most) & (counts[1] < most)
    table = np.bincount(counts[0][few] * most + counts[1][few], minlength=most * most)
    return table.reshape(most, most).astype(np.int64)


def tables_of(training: Corpus, held: Sequence[Loadable], executor: Executor) -> list[Table]:
    """Count the pairs of all shards of a training corpus by their training and held-out tokens; see `count_table`."""
    pairs = zip(training.references, held, strict=True)
    return executor.collect([executor.submit(_read_table, reference, part) for reference, part in pairs])


def _read_table(reference: ShardReference, part: Loadable) -> Table:
    return count_table(reference.load(), part.load())
