"""What labels alone let one expect of documents: their proportions, and a score that looks at none of their words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.scoring.predictive import Chances, MemberScore, Named, chances_of, score_members
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.registry import family_names, load_family
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.label_index import LabelTable, numbered
from collapsium.storage.corpus.labels import Labels, Name
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import InputError, OptionError
from collapsium.storage.short_repr import ShortRepr
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import LocalState
from collapsium.workers.shard_loading import document_parts

GIVEN = (
    "given labels: no word of a document is looked at; its proportions are those that its labels and numbers alone let "
    "one expect, and where it has none that training had, or the family takes none, those of the prior; mean over all "
    "tokens of log sum_k theta_dk phi_kw, in nats; perplexity = exp(-score): (40) of Kim and Oh (2017). Labels that "
    "training did not have count as missing"
)
AVERAGED = "; of an ensemble, the log of the mean over its members of this sum"
LABELS = "labels"
PORTION = 1 << 20  # documents x topics whose proportions are made at once


@dataclass(frozen=True, repr=False)
class GivenLabels(ShortRepr):
    """A model's score on documents of which it sees nothing but their labels and numbers.

    Attributes
    ----------
    score : float
        Mean log probability of a token, in nats.
    perplexity : float
        exp(-score).
    tokens, documents : int
        What was scored: all tokens, and the documents of the corpus.
    labelled : int
        Documents with a label or a number that training had.
    unknown : int
        Distinct labels, of the fields that the model took, that training did not have; they count as missing.
    definition : str
        How the score is defined.
    members : tuple of MemberScore
        Of an ensemble, what each member scores by itself; else empty.
    """

    score: float
    perplexity: float
    tokens: int
    documents: int
    labelled: int
    unknown: int
    definition: str
    members: tuple[MemberScore, ...] = ()


def table_of(model: Model) -> LabelTable:
    """Return the labels and numbers that a model was fitted with; an empty table where it takes none."""
    table = load_family(model.record.family).label_table(model.global_state)
    return LabelTable() if table is None else table


def require_table(model: Model) -> LabelTable:
    """Return the labels and numbers that a model was fitted with, and refuse models that have none.

    Parameters
    ----------
    model : Model
        The model.

    Returns
    -------
    LabelTable
        Not empty.

    Raises
    ------
    OptionError
        Its family takes none, or its corpus had none.
    """
    family = model.record.family
    if not load_family(family).shard_model.uses_labels:
        able = ", ".join(name for name in family_names() if load_family(name).shard_model.uses_labels)
        raise OptionError(f"{model.folder.url}: family '{family}' takes no labels; those that do: {able}")
    table = table_of(model)
    if not len(table):
        raise OptionError(
            f"{model.folder.url}: it was fitted to documents without labels; ingest them with `labels` or `label_files`"
        )
    return table


def require_expectations(model: Model) -> None:
    """Raise `OptionError` where a family cannot say what it expects of documents whose words it does not see."""
    family = model.record.family
    if model.shard_model.folds_in_at_a_point:
        raise OptionError(
            f"{model.folder.url}: family '{family}' puts a document without words at one point of its prior, not at "
            "the mean, so that it has no score given labels alone"
        )


def has_labels(model: Model, corpus: Corpus) -> bool:
    """Tell whether a corpus has labels, or numbers, of the kinds that a model was fitted with."""
    table, fields = table_of(model), corpus.manifest.fields
    return bool(table.names and LABELS in fields) or any(one.name in fields for one in table.numbers)


def score_given(named: Named, corpus: Corpus, executor: Executor, seed: int) -> GivenLabels:
    """Score documents by models that see their labels and numbers alone.

    Parameters
    ----------
    named : sequence of (str, Model)
        The models and their names.
    corpus : Corpus
        The documents.
    executor : Executor
        Who does the work.
    seed : int
        For families that draw random numbers.

    Returns
    -------
    GivenLabels
        The score of the mean of their probabilities.

    Raises
    ------
    OptionError
        A family has no such score.
    InputError
        A number is not finite, or there is no token.
    """
    for _, model in named:
        require_expectations(model)

    def submit(model: Model, blocks: list[Future[tasks.Block]]) -> list[Future[Chances]]:
        url = model.folder.address
        return [executor.submit(_chances, url, one, blocks, seed) for one in corpus.references]

    score, tokens, members = score_members(named, submit, executor)
    if score is None:
        raise InputError(corpus.url, "no token is left to score")
    table = table_of(named[0][1])
    known = executor.collect([executor.submit(_known, one, table) for one in corpus.references]) if len(table) else []
    unknown: set[Name] = set().union(*(names for _, names in known))
    return GivenLabels(
        score,
        math.exp(-score),
        tokens,
        corpus.manifest.documents,
        sum(count for count, _ in known),
        len(unknown),
        GIVEN + (AVERAGED if len(named) > 1 else ""),
        members,
    )


def _chances(url: str, reference: ShardReference, blocks: list[tasks.Block], seed: int) -> Chances:
    model = Model(url)
    shard = load_labelled(model, reference)
    return chances_of(model.shard_model, shard, expected(model, shard, blocks, seed), blocks, model.global_state)


def _known(reference: ShardReference, table: LabelTable) -> tuple[int, set[Name]]:
    """Count the documents with a label or number of a table, and name the labels that it should have and has not."""
    labels = reference.labels()
    found = numbered(labels, table, reference.record.documents)
    taken = set(table.fields)
    return int((np.diff(found.offsets) > 0).sum()), {one for one in labels.names if one[0] in taken} - {*table.names}


def load_labelled(model: Model, reference: ShardReference, first: int = 0, last: int | None = None) -> Shard:
    """Read documents with what the model's family takes of them besides their words.

    Parameters
    ----------
    model : Model
        The model.
    reference : ShardReference
        Their shard.
    first, last : int, optional
        Which of its documents: `first` to `last` - 1; by default all.

    Returns
    -------
    Shard
        Without labels, if the family takes none.

    Raises
    ------
    InputError
        A number that the model was fitted with is not finite.
    """
    documents = reference.documents()
    if last is not None:
        documents = documents.slice(first, last)
    shard = Shard.of(reference.number, documents, **document_parts(model.shard_model))
    if shard.labels is not None:
        for one in table_of(model).numbers:
            if np.isinf(shard.labels.numbers.get(one.name, np.zeros(1))).any():
                raise InputError(reference.folder.url, "expected finite numbers", f"field '{one.name}'")
    return shard


def expected(model: Model, shard: Shard, blocks: Sequence[tasks.Block], seed: int = 0) -> LocalState:
    """Give the local state that documents' labels and numbers let one expect; their words are not looked at."""
    stream = Stream(seed, "given labels")
    return tasks.fold_in(model.shard_model, shard.emptied(), blocks, model.global_state, stream)


def expected_proportions(model: Model, labels: Labels) -> npt.NDArray[np.float64]:
    """Give the topics' proportions that labels and numbers let one expect.

    Parameters
    ----------
    model : Model
        The model.
    labels : Labels
        Of as many documents as are asked about.

    Returns
    -------
    numpy.ndarray of float64, shape (documents, topics)
        Columns by permanent ids.
    """
    rows = model.rows(0).of_words(slice(1), complete=True)
    blocks = [tasks.Block(0, 1, rows, Delta())]  # none of its words is asked for
    half, documents = model.shard_model, labels.offsets.size - 1
    none = np.zeros(0, dtype=np.int32)
    parts: list[npt.NDArray[np.float64]] = []
    first = 0
    while first < documents:
        size = 1 if not parts else max(PORTION // parts[0].shape[1], 1)  # how many topics there are, the first tells
        chosen = np.arange(first, min(first + size, documents))
        shard = Shard(0, np.zeros(chosen.size + 1, dtype=np.int64), none, none, none, labels.take(chosen))
        found = half.infer(expected(model, shard, blocks), model.global_state)["document_topic"]
        parts.append(np.asarray(found, dtype=np.float64))
        first += chosen.size
    return np.concatenate(parts)
