"""Refuse scores of tokens or documents that a model was fitted to.

Two corpora that were split from one another, or from a common one, are compared by their lineage, which is exact.
Where no common corpus is known, a corpus of held-out tokens is compared with the training corpus count by count:
tokens that were held out at random do not lie within the counts of the training documents. Of unseen documents, some
are looked up by their ids among the training documents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import bdtrc

from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.families.model import Model
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
from collapsium.storage.errors import MismatchError
from collapsium.workers import tasks

Table = npt.NDArray[np.int64]

OTHER_LABELS = "; the model was fitted to these documents with other labels, so that their words are not unseen"
SAME_VECTORS = "; the model was fitted to these vectors"
TOKENS_ADVICE = "`collapsium split WHOLE TRAIN HELDOUT` holds tokens out: fit TRAIN, score HELDOUT"
DOCUMENTS_ADVICE = "`collapsium split WHOLE TRAIN TEST --documents` holds documents out: fit TRAIN, score TEST"


@dataclass(frozen=True)
class ContainmentRule:
    """When counts are taken to lie within others because both are of the same tokens.

    Of tokens that are held out at random, those of a word in a document are now and then more than those that are
    kept; how often is known from the share that is held out.
    """

    least_expected: float = 25.0
    """Pairs of which this is expected, from which on its absence is no chance: exp(-25) is 1e-11."""
    most_share: float = 0.01
    """Of these, the share that may be found yet: a document or two that were edited."""
    least_pairs: int = 100
    """Pairs of two tokens or more that are needed to see how counts vary."""
    least_variance: float = 0.7
    """Of a binomial's variance; counts halved by rule have at most 0.5. Also of the share that single tokens have of
    that of several, or the other way round."""
    most_count: int = 64
    """Pairs of as many tokens or more are left out: there, either count is as good as never the larger."""


RULE = ContainmentRule()


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
            f"{scored.url}: has held-out tokens of the documents of {name}, which are scored with --heldout; documents "
            f"that were fitted are not unseen. {DOCUMENTS_ADVICE}"
        )
    raise MismatchError(
        f"{scored.url}: {relation.shared}; documents that were fitted are not unseen. {DOCUMENTS_ADVICE}"
    )


def require_not_contained(tables: Sequence[Table], scored: Corpus, name: str) -> None:
    """Refuse held-out tokens whose counts lie within those of the training documents, or these within them.

    Parameters
    ----------
    tables : sequence of numpy.ndarray of int64
        As `count_table` made them, one a shard.
    scored : Corpus
        The held-out tokens.
    name : str
        What to call the training corpus.

    Raises
    ------
    MismatchError
        No split at random gives such counts.
    """
    if not tables:
        return
    if is_contained(np.sum(tables, axis=0)):
        raise MismatchError(
            f"{scored.url}: shares its tokens with {name}: in all documents, the counts of the one lie within those of "
            f"the other. {TOKENS_ADVICE}"
        )


def is_contained(table: Table) -> bool:
    """Tell whether one count of each pair lies within the other, as a part of the same tokens does.

    Parameters
    ----------
    table : numpy.ndarray of int64
        How many pairs have so many training tokens (rows) and so many held-out ones (columns).

    Returns
    -------
    bool
        Whether one is a part of the other, drawn at random, or the very same. Counts that were halved by rule lie
        within one another too, but hardly vary.
    """
    return any(_is_part(one) for one in (table, table.T))


def _is_part(table: Table) -> bool:
    """Tell whether the counts of the columns are a part of those of the rows."""
    whole, part = np.indices(table.shape)
    tokens = whole + part
    total = float((tokens * table).sum())
    if total == 0.0:
        return False
    share = float((part * table).sum()) / total
    larger = np.where(tokens > 0, bdtrc(np.floor(tokens / 2), tokens, share), 0.0)
    expected, found = float((larger * table).sum()), float(table[part > whole].sum())
    if expected < RULE.least_expected or found > RULE.most_share * expected:
        return False
    return not table[part != whole].any() or _varies(table)


def _varies(table: Table) -> bool:
    """Tell whether the counts of the columns vary about a share of those of the rows as a random part does."""
    rows = np.arange(table.shape[0])
    pairs = table.sum(axis=1)
    several = (rows >= 2) & (pairs >= 2)
    counts, whole = table[several].astype(np.float64), rows[several]
    if counts.sum() < RULE.least_pairs:
        return False
    number = counts.sum(axis=1)
    mean = counts @ rows / number
    squares = (counts @ rows**2 - number * mean**2).sum()
    share = float((number * mean).sum() / (number * whole).sum())
    singles = float((table[1] * rows).sum()) / max(int(pairs[1]), 1)
    if not RULE.least_variance * share <= singles <= share / RULE.least_variance:
        return False
    return bool(squares >= RULE.least_variance * ((number - 1.0) * whole).sum() * share * (1.0 - share))


def count_table(training: Any, heldout: Any) -> Table:
    """Count the pairs of a shard's documents by their training and their held-out tokens, where the shards lie.

    Parameters
    ----------
    training, heldout : Shard or ShardOnDisk
        The same documents.

    Returns
    -------
    numpy.ndarray of int64
        How many pairs have so many training tokens (rows) and so many held-out ones (columns).
    """
    most = RULE.most_count
    shards = [cast(Shard, tasks.opened(one)) for one in (training, heldout)]
    width = 1 + max(int(one.words[-1]) if one.words.size else 0 for one in shards)
    keys = [
        np.repeat(np.arange(one.documents), np.diff(one.offsets)) * width + one.words[one.position] for one in shards
    ]
    pairs, place = np.unique(np.concatenate(keys), return_inverse=True)
    first = keys[0].size
    counts = [
        np.bincount(place[part], weights=one.counts, minlength=pairs.size).astype(np.int64)
        for part, one in zip((slice(None, first), slice(first, None)), shards, strict=True)
    ]
    few = (counts[0] < most) & (counts[1] < most)
    table = np.bincount(counts[0][few] * most + counts[1][few], minlength=most * most)
    return table.reshape(most, most).astype(np.int64)


def tables_of(training: Corpus, held: Sequence[Any], executor: Executor) -> list[Table]:
    """Count the pairs of all shards of a training corpus by their training and held-out tokens; see `count_table`."""
    pairs = zip(training.references, held, strict=True)
    return executor.collect([executor.submit(_read_table, reference, part) for reference, part in pairs])


def _read_table(reference: Any, part: Any) -> Table:
    return count_table(reference.load(), part.load())


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
