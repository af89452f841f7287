"""Predict documents from their labels alone: expected proportions, and a score that ignores the words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.scoring import MemberScore, Named, Predicted, predict_pairs, score_members
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.pipeline.fitted_model import parts_for
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import family_names, load_family
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.label_index import LabelTable, numbered
from collapsium.storage.corpus.labels import Labels, Name
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import InputError, OptionError
from collapsium.storage.printable import ShortRepr
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import LocalState

FROM_LABELS = (
    "given labels: proportions expected from a document's labels and covariates alone, without its words, or under "
    "the prior for documents without known labels and families without labels; mean over all tokens of "
    "log sum_k theta_dk phi_kw, in nats; perplexity = exp(-score): (40) of Kim and Oh (2017). Labels that the training "
    "corpus lacks count as missing"
)
AVERAGED = "; of an ensemble, the log of the mean over its members of this sum"
LABELS = "labels"
MAX_CELLS = 1 << 20  # Proportions, documents times topics, that are computed at a time, to bound memory


@dataclass(frozen=True, repr=False)
class LabelScore(ShortRepr):
    """Score of a model that predicts documents from their labels and covariates alone."""

    score: float  # Mean log probability of a token, in nats
    perplexity: float  # exp(-score)
    # Numbers of scored tokens and documents
    tokens: int
    documents: int
    labelled: int  # Documents with a label or covariate that the training corpus has
    unknown: int  # Distinct labels, of the model's fields, that the training corpus lacks; they count as missing
    definition: str  # The score's definition
    members: tuple[MemberScore, ...] = ()  # Scores of an ensemble's members; empty for a single model


def table_of(model: Model) -> LabelTable:
    """Return the labels and covariates that a model was fitted with; an empty table for models without labels."""
    table = model.family.label_table(model.global_state)
    return LabelTable() if table is None else table


def require_table(model: Model) -> LabelTable:
    """Return the labels and covariates that a model was fitted with; refuse models without any."""
    family = model.record.family
    if not load_family(family).uses_labels:
        able = ", ".join(name for name in family_names() if load_family(name).uses_labels)
        raise OptionError(f"{model.folder.url}: family '{family}' does not use labels; families that do: {able}")
    table = table_of(model)
    if not len(table):
        raise OptionError(
            f"{model.folder.url}: the training documents have no labels; ingest them with `labels` or `label_files`"
        )
    return table


def require_expectations(model: Model) -> None:
    """Raise `OptionError` for families that cannot predict documents without their words."""
    family = model.record.family
    if model.family.folds_in_at_a_point:
        raise OptionError(
            f"{model.folder.url}: family '{family}' places a document without words at a single point of its prior "
            "instead of its mean, so it has no score given labels alone"
        )


def has_labels(model: Model, corpus: Corpus) -> bool:
    """Return True if a corpus has labels or covariates of the fields that a model was fitted with."""
    table, fields = table_of(model), corpus.manifest.fields
    return bool(table.names and LABELS in fields) or any(number.name in fields for number in table.numbers)


def score_from_labels(named: Named, corpus: Corpus, executor: Executor, seed: int) -> LabelScore:
    """Score documents that models predict from their labels and covariates alone."""
    for _, model in named:
        require_expectations(model)

    def submit(model: Model, blocks: list[Future[tasks.Block]]) -> list[Future[Predicted]]:
        url = model.folder.address
        return [executor.submit(_predict, url, reference, blocks, seed) for reference in corpus.references]

    score, tokens, members = score_members(named, submit, executor)
    if score is None:
        raise InputError(corpus.url, "no token is left to score")
    table = table_of(named[0][1])
    known = (
        executor.collect([executor.submit(_known, shard, table) for shard in corpus.references]) if len(table) else []
    )
    unknown: set[Name] = set().union(*(names for _, names in known))
    return LabelScore(
        score,
        math.exp(-score),
        tokens,
        corpus.manifest.documents,
        sum(count for count, _ in known),
        len(unknown),
        FROM_LABELS + (AVERAGED if len(named) > 1 else ""),
        members,
    )


def _predict(url: str, reference: ShardReference, blocks: list[tasks.Block], seed: int) -> Predicted:
    model = Model(url)
    shard = load_labelled(model, reference)
    return predict_pairs(model.family, shard, expected(model, shard, blocks, seed), blocks, model.global_state)


def _known(reference: ShardReference, table: LabelTable) -> tuple[int, set[Name]]:
    """Return the number of documents with known labels or covariates, and the unknown labels of known fields."""
    labels = reference.labels()
    known = numbered(labels, table, reference.record.documents)
    unknown = {name for name in labels.names if name[0] in table.fields} - set(table.names)
    return int((np.diff(known.offsets) > 0).sum()), unknown


def load_labelled(model: Model, reference: ShardReference, first: int = 0, last: int | None = None) -> Shard:
    """Load documents with the labels, covariates and segments that the model's family uses."""
    documents = reference.documents()
    if last is not None:
        documents = documents.slice(first, last)
    shard = Shard.of(reference.number, documents, **parts_for(model))
    if shard.labels is not None:
        for number in table_of(model).numbers:
            if np.isinf(shard.labels.numbers.get(number.name, np.zeros(1))).any():
                raise InputError(reference.folder.url, "expected finite numbers", f"field '{number.name}'")
    return shard


def expected(model: Model, shard: Shard, blocks: Sequence[tasks.Block], seed: int = 0) -> LocalState:
    """Return the local state expected from the documents' labels and covariates, without their words."""
    stream = Stream(seed, "given labels")
    return tasks.fold_in(model.family, shard.emptied(), blocks, model.global_state, stream)


def expected_proportions(model: Model, labels: Labels) -> npt.NDArray[np.float64]:
    """Return the topic proportions expected from labels and covariates."""
    rows = model.rows(0).of_words(slice(1), complete=True)
    # The documents have no words, so a block of a single word is enough.
    blocks = [tasks.Block(0, 1, rows, Delta())]
    half, documents = model.family, labels.offsets.size - 1
    none = np.zeros(0, dtype=np.int32)
    parts: list[npt.NDArray[np.float64]] = []
    first = 0
    while first < documents:
        # The first document's result shows the number of topics.
        size = 1 if not parts else max(MAX_CELLS // parts[0].shape[1], 1)
        chosen = np.arange(first, min(first + size, documents))
        shard = Shard(0, np.zeros(chosen.size + 1, dtype=np.int64), none, none, none, labels.take(chosen))
        theta = half.infer(expected(model, shard, blocks), model.global_state)["document_topic"]
        parts.append(np.asarray(theta, dtype=np.float64))
        first += chosen.size
    return np.concatenate(parts)
