"""Which label, or number, explains a document's words best: the log probability of its tokens under each candidate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.labels.conditional import (
    expected,
    load_labelled,
    require_expectations,
    require_table,
    table_of,
)
from collapsium.pipeline.analysis.scoring.predictive import Named, load_blocks
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.families.model import Model
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.label_index import MOST_VALUES, LabelTable, numbered
from collapsium.storage.corpus.labels import Labels
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import OptionError, suggestion
from collapsium.workers import special_functions as special
from collapsium.workers import tasks
from collapsium.workers.arrays.state import Rows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CELLS = 1 << 20  # documents x candidates that a task looks at
LEAST = 1e-300  # probability


@dataclass(frozen=True)
class Candidates:
    """What a document may have of a field.

    Attributes
    ----------
    field : str
        The field.
    values : tuple of str, or of float
        Labels or, of a numeric covariate, numbers; in the order in which scores are told.
    """

    field: str
    values: tuple[str, ...] | tuple[float, ...]

    @property
    def numeric(self) -> bool:
        """Whether they are numbers."""
        return not isinstance(self.values[0], str)


@dataclass(frozen=True)
class Judged:
    """How well candidates explain some documents.

    Attributes
    ----------
    logs : numpy.ndarray of float64, shape (documents, candidates)
        Log probability of each document's tokens, in nats.
    tokens : numpy.ndarray of int64, shape (documents,)
        The documents' lengths.
    known : list of tuple of str or float
        What each document has of the field.
    """

    logs: Floats
    tokens: Ints
    known: list[tuple[Any, ...]]

    def __sizeof__(self) -> int:
        return self.logs.nbytes + self.tokens.nbytes

    @property
    def best(self) -> Ints:
        """The place of the candidate under which each document is most probable; -1 of documents without words."""
        return np.where(self.tokens > 0, self.logs.argmax(axis=1), -1)


def candidates_of(model: Model, corpus: Corpus, field: str, values: Sequence[str | float] | None = None) -> Candidates:
    """Say among what to choose.

    Parameters
    ----------
    model : Model
        The model.
    corpus : Corpus
        The documents that are asked about; only to say more of an error.
    field : str
        A field of labels, or a number, that the model was fitted with.
    values : sequence of str or float, optional
        Labels that it knows, or numbers; by default all that training had.

    Returns
    -------
    Candidates
        Labels sorted, or numbers ascending; `values` as they are given.

    Raises
    ------
    OptionError
        The family takes no labels, or the model was fitted without the field; a value is not known, or no number; or a
        number had too many values in training to be told them.
    """
    require_expectations(model)
    table = require_table(model)
    own = [value for name, value in table.names if name == field]
    if own:
        return Candidates(field, _labels(field, own, values))
    for number in table.numbers:
        if number.name == field:
            if values is None and not number.values:
                raise OptionError(
                    f"`field` {field}: it had more than {MOST_VALUES} values in training; say among which to choose "
                    "(`values` 1,2,3)"
                )
            return Candidates(field, number.values if values is None else _numbers(field, values))
    taken = [*table.fields, *(one.name for one in table.numbers)]
    there = field in corpus.manifest.fields or any(
        field == name for one in corpus.references for name, _ in one.labels().names
    )
    if there:
        raise OptionError(f"`field` {field}: the model was fitted without it, with {', '.join(taken)} alone")
    raise OptionError(f"`field` {field}: the model was fitted with no such field{suggestion(field, taken)}")


def _labels(field: str, own: list[str], values: Sequence[str | float] | None) -> tuple[str, ...]:
    found = list(dict.fromkeys(own if values is None else [str(one) for one in values]))
    for one in found:
        if one not in own:
            raise OptionError(f"unknown {field} '{one}'{suggestion(one, own)}", "values")
    if not found:
        raise OptionError(f"expected one {field} or more, found none", "values")
    return tuple(found)


def _numbers(field: str, values: Sequence[str | float]) -> tuple[float, ...]:
    found = []
    for one in values:
        try:
            number = float(one)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise OptionError(f"{field} is a number; expected finite numbers, found '{one}'", "values")
        found.append(number)
    if not found:
        raise OptionError("expected one number or more, found none", "values")
    return tuple(dict.fromkeys(found))


def listed(model: Model, field: str, texts: Sequence[str]) -> list[str]:
    """Part lists of values at their commas; what is a label of the field as it stands is left whole."""
    whole = {value for name, value in table_of(model).names if name == field}
    return [one.strip() for text in texts for one in ([text] if text in whole else text.split(",")) if one.strip()]


def judge(
    named: Named, corpus: Corpus, candidates: Candidates, executor: Executor, seed: int
) -> Iterator[tuple[ShardReference, int, int, Judged]]:
    """Judge candidates for all documents of a corpus, a portion after another, in their order.

    Parameters
    ----------
    named : sequence of (str, Model)
        The models, whose probabilities are averaged; the topics of all are held at once.
    corpus : Corpus
        The documents.
    candidates : Candidates
        The candidates.
    executor : Executor
        Who does the work.
    seed : int
        For families that draw random numbers.

    Yields
    ------
    reference : ShardReference
        The portion's shard.
    first, last : int
        It has the shard's documents `first` to `last` - 1.
    judged : Judged
        What was found.
    """
    urls = [model.folder.address for _, model in named]
    blocks = [load_blocks(model, executor) for _, model in named]
    size = max(CELLS // len(candidates.values), 1)
    portions = [
        (one, first, min(first + size, one.record.documents))
        for one in corpus.references
        for first in range(0, one.record.documents, size)
    ]
    window = 2 * executor.workers  # portions on their way: bounded, however many there are
    for begin in range(0, len(portions), window):
        here = portions[begin : begin + window]
        submitted = [executor.submit(_judge, urls, blocks, *portion, candidates, seed) for portion in here]
        for portion, judged in zip(here, executor.collect(submitted), strict=True):
            yield (*portion, judged)


def _judge(
    urls: list[str],
    blocks: list[list[tasks.Block]],
    reference: ShardReference,
    first: int,
    last: int,
    candidates: Candidates,
    seed: int,
) -> Judged:
    """Judge all candidates for some documents, one candidate after another."""
    models = [Model(url) for url in urls]
    shard = load_labelled(models[0], reference, first, last)
    labels = shard.labels or Labels.none(shard.documents)
    asked = _Asked.of(shard, labels.without(candidates.field), require_table(models[0]))
    rows = [tasks.gather(own, shard.words, complete=True) for own in blocks]
    logs = np.empty((shard.documents, len(candidates.values)))
    values: Sequence[str | float] = candidates.values
    for place, value in enumerate(values):
        given = replace(asked.shard, labels=asked.others.set_to(candidates.field, value))
        held = zip(models, blocks, rows, strict=True)
        each = [_probability(model, given, own, words, seed) for model, own, words in held]
        logs[:, place] = asked.logs(sum(each[1:], start=each[0]) / len(each))
    return Judged(logs, shard.lengths, _known(labels, candidates))


def _probability(model: Model, shard: Shard, blocks: list[tasks.Block], rows: Rows, seed: int) -> Floats:
    local = expected(model, shard, blocks, seed)
    found = model.shard_model.predict(shard, local, rows, model.global_state)["probability"]
    return np.asarray(found, dtype=np.float64)


def _known(labels: Labels, candidates: Candidates) -> list[tuple[Any, ...]]:
    """Say what each document has of the field."""
    documents = labels.offsets.size - 1
    if candidates.numeric:
        numbers = labels.numbers.get(candidates.field, np.full(documents, np.nan)).tolist()
        return [() if math.isnan(one) else (one,) for one in numbers]
    value = {place: value for place, (name, value) in enumerate(labels.names) if name == candidates.field}
    each = np.split(labels.position, labels.offsets[1:-1])
    return [tuple(value[one] for one in own.tolist() if one in value) for own in each]


@dataclass(frozen=True)
class _Asked:
    """The probabilities to ask for: of each document's pairs or, if that is less, of all words for each kind of it.

    Documents that have the same other labels are of one kind: a candidate gives them the same proportions.

    Attributes
    ----------
    shard : Shard
        What to predict: its documents are kinds, or the documents.
    others : Labels
        What these have besides the field.
    owner, place : numpy.ndarray of int64, shape (pairs,)
        Each pair's document, and where its probability is found.
    counts : numpy.ndarray of int32, shape (pairs,)
        Each pair's count.
    documents : int
        How many there are.
    """

    shard: Shard
    others: Labels
    owner: Ints
    place: Ints
    counts: npt.NDArray[np.int32]
    documents: int

    @staticmethod
    def of(shard: Shard, others: Labels, table: LabelTable) -> _Asked:
        """Choose what to ask for."""
        owner = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
        kind, chosen = _kinds(others, table, shard.documents)
        words = shard.words.size
        if chosen.size * words >= shard.pairs:
            return _Asked(shard, others, owner, np.arange(shard.pairs), shard.counts, shard.documents)
        grid = Shard(
            shard.number,
            np.arange(chosen.size + 1, dtype=np.int64) * words,
            shard.words,
            np.tile(np.arange(words, dtype=np.int32), chosen.size),
            np.ones(chosen.size * words, dtype=np.int32),
        )
        place = kind[owner] * words + shard.position
        return _Asked(grid, others.take(chosen), owner, place, shard.counts, shard.documents)

    def logs(self, probability: Floats) -> Floats:
        """Return the log probability of each document's tokens."""
        each = self.counts * special.log(np.maximum(probability, LEAST))[self.place]
        return np.bincount(self.owner, each, self.documents).astype(np.float64)


def _kinds(others: Labels, table: LabelTable, documents: int) -> tuple[Ints, Ints]:
    """Return each document's kind, by what a model knows of it, and a document of each kind."""
    found = numbered(others, table, documents)
    seen: dict[bytes, int] = {}
    kind = np.empty(documents, dtype=np.int64)
    chosen: list[int] = []
    for document, (low, high) in enumerate(zip(found.offsets[:-1], found.offsets[1:], strict=True)):
        key = found.label[low:high].tobytes() + found.value[low:high].tobytes()
        if key not in seen:
            seen[key] = len(chosen)
            chosen.append(document)
        kind[document] = seen[key]
    return kind, np.array(chosen, dtype=np.int64)
