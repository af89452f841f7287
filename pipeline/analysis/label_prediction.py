"""Predict documents from their labels alone, and a field of documents from their words.

Given labels alone, a score ignores the words. A field is predicted by scoring its values by the probability of each
document's tokens: the predicted value is the one under which a document's words are most probable. Predictions are
compared with the actual values by accuracy, F1 and confusion matrices.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import tee
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.scoring import MemberScore, Named, Predicted, predict_pairs, score_members
from collapsium.pipeline.executors.base import Executor, Future, in_order
from collapsium.pipeline.fitted_model import load_blocks, parts_for
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import family_names, load_family
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.labels import MOST_VALUES, Labels, LabelTable, Name, numbered
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import InputError, OptionError, optional, suggestion
from collapsium.storage.printable import ShortRepr
from collapsium.workers import special_functions as special
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import LocalState
from collapsium.workers.design import split_values

FROM_LABELS = (
    "given labels: proportions expected from a document's labels and covariates alone, without its words, or under "
    "the prior for documents without known labels and families without labels; mean over all tokens of "
    "log sum_k theta_dk phi_kw, in nats; perplexity = exp(-score): (40) of Kim and Oh (2017). Labels that the training "
    "corpus lacks count as missing"
)
AVERAGED = "; of an ensemble, the log of the mean over its members of this sum"
LABELS = "labels"
MAX_CELLS = 1 << 20  # Documents times topics, or times candidates, that are computed at a time, to bound memory


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


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MIN_PROBABILITY = 1e-300


@dataclass(frozen=True)
class Candidates:
    """Candidate values of a field."""

    field: str  # The field
    values: tuple[str, ...] | tuple[float, ...]  # Labels, or numbers for a covariate, in the order of the scores

    @property
    def numeric(self) -> bool:
        """True if the values are numbers."""
        return not isinstance(self.values[0], str)


@dataclass(frozen=True)
class CandidateScores:
    """Scores of the candidates for some documents."""

    logs: Floats  # Log probability of each document's tokens, in nats; float64 (documents, candidates)
    tokens: Ints  # The documents' lengths; int64 (documents,)
    known: list[tuple[Any, ...]]  # The documents' actual values of the field

    def __sizeof__(self) -> int:
        return self.logs.nbytes + self.tokens.nbytes

    @property
    def best(self) -> Ints:
        """Index of the candidate under which each document is most probable; -1 for documents without words."""
        return np.where(self.tokens > 0, self.logs.argmax(axis=1), -1)


def candidates_of(
    model: Model, corpus: Corpus | None, field: str, values: Sequence[str | float] | None = None
) -> Candidates:
    """Return the candidate values of a field; an error says more where the documents are known."""
    require_expectations(model)
    table = require_table(model)
    known_values = [value for name, value in table.names if name == field]
    if known_values:
        labels = list(dict.fromkeys(known_values if values is None else [str(label) for label in values]))
        for label in labels:
            if label not in known_values:
                raise OptionError(f"unknown {field} '{label}'{suggestion(label, known_values)}", "values")
        if not labels:
            raise OptionError(f"expected one {field} or more, found none", "values")
        return Candidates(field, tuple(labels))
    for number in table.numbers:
        if number.name == field:
            if values is None and not number.values:
                raise OptionError(
                    f"`field` {field}: the training corpus has more than {MOST_VALUES} values; name the values to "
                    "choose from (`values` 1,2,3)"
                )
            return Candidates(field, number.values if values is None else _numbers(field, values))
    taken = [*table.fields, *(number.name for number in table.numbers)]
    is_covariate = corpus is not None and (
        field in corpus.manifest.fields
        or any(field == name for shard in corpus.references for name, _ in shard.labels().names)
    )
    if is_covariate:
        raise OptionError(f"`field` {field}: the model was fitted without it, with {', '.join(taken)} alone")
    raise OptionError(f"`field` {field}: the model was fitted with no such field{suggestion(field, taken)}")


def _numbers(field: str, values: Sequence[str | float]) -> tuple[float, ...]:
    numbers = []
    for value in values:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise OptionError(f"{field} is a number; expected finite numbers, found '{value}'", "values")
        numbers.append(number)
    if not numbers:
        raise OptionError("expected one number or more, found none", "values")
    return tuple(dict.fromkeys(numbers))


def candidate_values(model: Model, field: str, texts: Sequence[str]) -> list[str]:
    """Return the values of lists with commas, which labels of the field may contain too."""
    labels = {value for name, value in table_of(model).names if name == field}
    return [value for text in texts for value in split_values(text, labels)]


def score_candidates(
    named: Named, corpus: Corpus, candidates: Candidates, executor: Executor, seed: int
) -> Iterator[tuple[ShardReference, int, int, CandidateScores]]:
    """Score the candidates for all documents of a corpus in order, a range of documents at a time."""
    urls = [model.folder.address for _, model in named]
    blocks = [load_blocks(model, executor) for _, model in named]
    size = max(MAX_CELLS // len(candidates.values), 1)
    # Made one by one: the manifest's number of documents may be wrong, and is checked as the shard is read.
    ranges, scored = tee(
        (reference, first, min(first + size, reference.record.documents))
        for reference in corpus.references
        for first in range(0, reference.record.documents, size)
    )
    submitted = (executor.submit(_score_range, urls, blocks, *documents, candidates, seed) for documents in ranges)
    for documents, scores in zip(scored, in_order(executor, submitted, 2 * executor.workers), strict=True):
        yield (*documents, scores)


def _score_range(
    urls: list[str],
    blocks: list[list[tasks.Block]],
    reference: ShardReference,
    first: int,
    last: int,
    candidates: Candidates,
    seed: int,
) -> CandidateScores:
    """Score all candidates for a range of documents, one candidate after another."""
    models = [Model(url) for url in urls]
    shard = load_labelled(models[0], reference, first, last)
    labels = shard.labels or Labels.none(shard.documents)
    grid = _ProbabilityGrid.of(shard, labels.without(candidates.field), require_table(models[0]))
    rows = [tasks.gather(member_blocks, shard.words, complete=True) for member_blocks in blocks]
    logs = np.empty((shard.documents, len(candidates.values)))
    values: Sequence[str | float] = candidates.values
    for column, value in enumerate(values):
        labelled = replace(grid.shard, labels=grid.known_labels.set_to(candidates.field, value))
        probabilities = []
        for model, member_blocks, words in zip(models, blocks, rows, strict=True):
            local = expected(model, labelled, member_blocks, seed)
            predicted = model.family.predict(labelled, local, words, model.global_state)["probability"]
            probabilities.append(np.asarray(predicted, dtype=np.float64))
        logs[:, column] = grid.logs(sum(probabilities[1:], start=probabilities[0]) / len(probabilities))
    known: list[tuple[Any, ...]]
    if candidates.numeric:
        numbers = labels.numbers.get(candidates.field, np.full(shard.documents, np.nan)).tolist()
        known = [() if math.isnan(number) else (number,) for number in numbers]
    else:
        texts = {place: text for place, (name, text) in enumerate(labels.names) if name == candidates.field}
        by_document = np.split(labels.position, labels.offsets[1:-1])
        known = [tuple(texts[label] for label in positions.tolist() if label in texts) for positions in by_document]
    return CandidateScores(logs, shard.lengths, known)


@dataclass(frozen=True)
class _ProbabilityGrid:
    """The smaller set of probabilities to compute: for all pairs, or for all words for each kind of document.

    Documents with the same other labels are of one kind, as a candidate gives them the same proportions.
    """

    shard: Shard  # The pairs to predict, of documents or of kinds
    known_labels: Labels  # Their labels and covariates except the field
    # Each pair's document, and the index of its probability; int64 (pairs,)
    owner: Ints
    place: Ints
    counts: npt.NDArray[np.int32]  # Number of tokens of each pair; int32 (pairs,)
    documents: int  # Number of documents

    @staticmethod
    def of(shard: Shard, known_labels: Labels, table: LabelTable) -> _ProbabilityGrid:
        """Return the smaller of the two sets."""
        owner = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
        known = numbered(known_labels, table, shard.documents)
        seen: dict[bytes, int] = {}
        kind = np.empty(shard.documents, dtype=np.int64)  # Each document's kind, by its other labels
        firsts: list[int] = []  # A document of each kind
        for document, (low, high) in enumerate(zip(known.offsets[:-1], known.offsets[1:], strict=True)):
            key = known.label[low:high].tobytes() + known.value[low:high].tobytes()
            if key not in seen:
                seen[key] = len(firsts)
                firsts.append(document)
            kind[document] = seen[key]
        chosen, words = np.array(firsts, dtype=np.int64), shard.words.size
        if chosen.size * words >= shard.pairs:
            return _ProbabilityGrid(shard, known_labels, owner, np.arange(shard.pairs), shard.counts, shard.documents)
        grid = Shard(
            shard.number,
            np.arange(chosen.size + 1, dtype=np.int64) * words,
            shard.words,
            np.tile(np.arange(words, dtype=np.int32), chosen.size),
            np.ones(chosen.size * words, dtype=np.int32),
        )
        place = kind[owner] * words + shard.position
        return _ProbabilityGrid(grid, known_labels.take(chosen), owner, place, shard.counts, shard.documents)

    def logs(self, probability: Floats) -> Floats:
        """Return the log probability of each document's tokens."""
        token_logs = self.counts * special.log(np.maximum(probability, MIN_PROBABILITY))[self.place]
        return np.bincount(self.owner, token_logs, self.documents).astype(np.float64)


CLASSIFIED = (
    "classification: the predicted value is the one, of all values in the training corpus, under which the document's "
    "perplexity is lowest, with its other labels unchanged; accuracy: share of correct predictions among the documents "
    "with a value and a known word, where any of a document's values is correct; F1, precision and recall: over the "
    "documents with exactly one value; macro: mean over all values that such documents have or that are predicted"
)
MISSING = "scores of classes need scikit-learn, which is not installed: pip install 'collapsium[sklearn]'"
MAX_CLASSES = 200  # Values up to which the confusion matrix is reported

Value = str | float


@dataclass(frozen=True)
class ClassScore:
    """Scores of the prediction of one value, over the documents with exactly one value."""

    value: Value  # The value
    # The scores; 0 if undefined
    precision: float
    recall: float
    f1: float
    support: int  # Number of documents with the value


@dataclass(frozen=True, repr=False)
class Classification(ShortRepr):
    """Scores of the prediction of a field."""

    field: str  # The field
    # Number of documents with a value and a known word, and of those with exactly one value
    documents: int
    single: int
    accuracy: float  # Share of `documents` whose prediction is among their values
    # F1 over the `single` documents; None without such documents
    macro_f1: float | None
    micro_f1: float | None
    classes: tuple[ClassScore, ...]  # Scores of the values that a single document has or that are predicted, in order
    # Documents by actual (rows) and predicted value (columns), in the order of `classes`; None for more than 200
    confusion: tuple[tuple[int, ...], ...] | None
    definition: str  # Definition of the scores


class Tally:
    """Counts of actual and predicted values."""

    def __init__(self) -> None:
        self.documents = 0
        self.right = 0
        self.pairs: Counter[tuple[Value, Value]] = Counter()

    def add(self, scores: CandidateScores, values: Sequence[Value]) -> None:
        """Count documents with words and at least one value; pairs are counted in documents with exactly one."""
        for actual, best in zip(scores.known, scores.best.tolist(), strict=True):
            if not actual or best < 0:
                continue
            self.documents += 1
            self.right += values[best] in actual
            if len(actual) == 1:
                self.pairs[actual[0], values[best]] += 1

    def classes(self) -> list[Value]:
        """Return the actual and predicted values of documents with exactly one value, ascending."""
        values: list[Any] = list({value for pair in self.pairs for value in pair})
        return sorted(values)

    def matrix(self, classes: Sequence[Value]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the numbers of documents by actual (rows) and predicted value (columns)."""
        row = {value: number for number, value in enumerate(classes)}
        matrix = np.zeros((len(classes), len(classes)), dtype=np.int64)
        for (actual, predicted), count in self.pairs.items():
            matrix[row[actual], row[predicted]] = count
        return matrix


def classify(named: Named, corpus: Corpus, candidates: Candidates, executor: Executor, seed: int) -> Classification:
    """Predict a field of documents and compare with their actual values."""
    tally = Tally()
    for _, _, _, scores in score_candidates(named, corpus, candidates, executor, seed):
        tally.add(scores, candidates.values)
    if not tally.documents:
        raise InputError(corpus.url, f"no document with a known word has a value of '{candidates.field}'")
    return scored(candidates.field, tally)


def scored(field: str, tally: Tally) -> Classification:
    """Return the scores of the prediction of a field."""
    with optional("sklearn", MISSING):
        from sklearn import metrics

    classes, single = tally.classes(), tally.pairs.total()
    accuracy = tally.right / tally.documents
    if not single:
        return Classification(field, tally.documents, 0, accuracy, None, None, (), (), CLASSIFIED)
    place = {value: number for number, value in enumerate(classes)}
    known, predicted = np.array([(place[actual], place[chosen]) for actual, chosen in tally.pairs]).T
    weights = np.array(list(tally.pairs.values()))
    options = {"labels": np.arange(len(classes)), "sample_weight": weights, "zero_division": 0.0}
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(known, predicted, **options)
    support = np.bincount(known, weights, len(classes))
    scores = [
        ClassScore(value, float(precision[n]), float(recall[n]), float(f1[n]), int(support[n]))
        for n, value in enumerate(classes)
    ]
    macro, micro = (float(metrics.f1_score(known, predicted, average=kind, **options)) for kind in ("macro", "micro"))
    matrix = None
    if len(classes) <= MAX_CLASSES:
        matrix = tuple(tuple(row) for row in tally.matrix(classes).tolist())
    return Classification(field, tally.documents, single, accuracy, macro, micro, tuple(scores), matrix, CLASSIFIED)
