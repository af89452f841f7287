"""Summary of a model's training documents: examples of topics, means by label, sums by date.

A first pass selects the best examples of each topic and adds up labels, shard by shard. A second reads the selected
documents. A third reads the probabilities of their words, a task for each block of the vocabulary. So no worker holds
more than the proportions of a shard or one block, and the driver holds only the examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.executors.base import Executor, Future, in_order
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import has_tokens
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.manifest import VECTORS
from collapsium.storage.corpus.shard import merge_segments
from collapsium.storage.errors import DamagedError, MismatchError
from collapsium.storage.runs.summary import (
    DATED,
    MEANS,
    SEGMENTED,
    UNSEGMENTED,
    DatesSummary,
    Example,
    ExampleDocument,
    FieldSummary,
    LabelSummary,
    SegmentedDocument,
    SummaryRecord,
    TopicSummary,
    digest_of_model,
)
from collapsium.storage.units import Counting, silent
from collapsium.workers.arrays.annotations import ROUNDING_TOLERANCE, value_range
from collapsium.workers.document_summaries import (
    MIN_TOKENS,
    SHOWN_TOPICS,
    Candidates,
    Labelled,
    Segmented,
    ShardSummary,
    explained,
    most_segmented,
    segmented_documents,
    summarise,
)
from collapsium.workers.ingest.dates import UNITS
from collapsium.workers.periods import DateSums, date_sums, resolved

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
T = TypeVar("T")

LABELS, DATE = "labels", "date"


EXAMPLES = 3  # Documents of a topic
MOST_SEGMENTED = 3  # Documents whose segments are reported
WORDS = 6  # Words that explain a topic in a document
CANDIDATE_WORDS = 200  # Most frequent words of a document, from which these are selected
# Words whose probabilities are computed together; all words of KOS take 90 MB with 1000 topics
WORDS_TOGETHER = 512
VALUES = 100  # Labels of a field
MIN_PROPORTION = 0.01  # Smaller proportions are left out
MAX_PROPORTION = 1.001  # Largest proportion that rounding may give
TITLE_LETTERS = 200  # Characters of a title


def summary_of(
    model: Model, corpus: Corpus, executor: Executor, progress: Counting = silent, examples: int = EXAMPLES
) -> SummaryRecord:
    """Summarise the training documents of a model, with a number of example documents of each topic."""
    if corpus.manifest.digest != model.record.corpus:
        raise MismatchError(f"{corpus.url}: it is not the corpus that the model was fitted to")
    named = tuple(name for name in (LABELS, DATE) if name in corpus.manifest.fields)
    # The global state is read once, and travels with the model.
    _ = model.global_state
    total: ShardSummary | None = None
    shown = executor.submit(_shown, model, corpus.manifest.tokens)
    # Only sums by date are of the topics that are shown; all else need not wait for these.
    dated = shown if DATE in named else None
    shards = _collect_in_turn(
        executor,
        corpus.references,
        lambda reference: executor.submit(_summarise, model, reference, named, dated, examples),
    )
    for read, summary in enumerate(shards, start=1):
        total = summary if total is None else _added(total, summary, examples)
        progress(read)
    if total is None:
        total = summarise(np.zeros((0, 0)), np.zeros(0), 0, None, examples)
    [ids] = executor.collect([shown])
    chosen = total.candidates
    chosen = chosen.take(np.flatnonzero(np.isin(chosen.topic, ids)))
    shown_documents, words = _examples(model, corpus, executor, chosen, signed=corpus.holds == VECTORS)
    number_of = {key: number for number, key in enumerate(shown_documents)}
    topics = []
    for topic in ids.tolist():
        chosen_indices = np.flatnonzero(chosen.topic == topic)
        keys = [(int(chosen.shard[index]), int(chosen.row[index])) for index in chosen_indices]
        of_topic = tuple(
            Example(document=number_of[key], share=float(chosen.share[index]), words=words.get((*key, topic), ()))
            for index, key in zip(chosen_indices, keys, strict=True)
        )
        largest = int(total.largest[topic]) if topic < total.largest.size else 0
        mean = float(total.sums[topic]) / max(total.documents, 1) if total.fields and topic < total.sums.size else None
        topics.append(TopicSummary(id=topic, documents=largest, examples=of_topic, mean=mean))
    segmented = _segmented(corpus, executor, total.segmented)
    dates = None if total.dates is None else dates_summary(total.dates, ids)
    without_dates = SEGMENTED if segmented else UNSEGMENTED
    without_means = without_dates if dates is None else DATED
    return SummaryRecord(
        version=MEANS if total.fields else without_means,
        model=digest_of_model(model.record),
        documents=total.documents,
        topics=tuple(topics),
        examples=tuple(shown_documents.values()),
        fields=tuple(_field(name, labels) for name, labels in sorted(total.fields.items())),
        segmented=segmented,
        dates=dates,
    )


def _collect_in_turn(
    executor: Executor, references: Sequence[ShardReference], submit: Callable[[ShardReference], Future[T]]
) -> Iterator[T]:
    """Submit a task for each shard, a bounded number at a time, and yield the results in order."""
    return in_order(executor, map(submit, references), 2 * executor.workers)


def _summarise(
    model: Model, reference: ShardReference, named: Sequence[str], ids: Ints | None, examples: int
) -> ShardSummary:
    """Return the summary of a shard, with the columns `named`, and with sums by date of the topics `ids`, if any."""
    family, local = model.family, model.local_state(reference.number)
    inferred = family.infer(local, model.global_state)
    theta = np.asarray(inferred["document_topic"], dtype=np.float64)
    low, high = value_range(theta)
    if low is not None and not (low >= -ROUNDING_TOLERANCE and high <= MAX_PROPORTION):
        path = f"{model.folder.url}/documents/{reference.number:05d}"
        raise DamagedError(path, f"expected arrays that give proportions from 0 to 1, found {low:g} to {high:g}")
    theta = np.maximum(theta, 0.0)
    tokens = np.asarray(family.document_lengths(local), dtype=np.float64)
    extras = reference.documents().extras if named else {}
    summary = summarise(theta, tokens, reference.number, extras.get(LABELS), examples)
    if ids is not None and DATE in extras:
        dates = date_sums(extras[DATE], theta[:, ids], tokens, tokens >= MIN_TOKENS)
        summary = replace(summary, dates=dates)
    if "segment_topic" not in inferred:
        return summary
    segmented = segmented_documents(inferred["segment_topic"], inferred["segments"], reference.number, MOST_SEGMENTED)
    return replace(summary, segmented=segmented)


def _added(total: ShardSummary, addition: ShardSummary, examples: int) -> ShardSummary:
    """Merge the summary of the shards so far with the next shard's."""
    topics = max(total.largest.size, addition.largest.size)
    largest, sums = np.zeros(topics, dtype=np.int64), np.zeros(topics)
    for part in (total, addition):
        largest[: part.largest.size] += part.largest
        sums[: part.sums.size] += part.sums
    fields = dict(total.fields)
    for name, labelled in addition.fields.items():
        fields[name] = fields[name] + labelled if name in fields else labelled
    candidates = Candidates.join([total.candidates, addition.candidates]).best(examples)
    segmented = most_segmented([*total.segmented, *addition.segmented], MOST_SEGMENTED)
    dates = total.dates or addition.dates
    if total.dates is not None and addition.dates is not None:
        dates = total.dates + addition.dates
    return ShardSummary(total.documents + addition.documents, largest, candidates, fields, segmented, dates, sums)


def _shown(model: Model, tokens: int) -> Ints:
    """Return the ids of the topics with tokens, and in a tree of all nodes, ascending."""
    row = model.rows(0).of_words(slice(1), complete=True)
    topics = model.describe(row, 1)
    return np.sort(topics.ids if topics.parent is not None else topics.ids[has_tokens(topics.share, tokens)])


def _field(name: str, labels: Labelled) -> FieldSummary:
    """Return the mean proportions of the most frequent labels of a field."""
    if labels.values is None:
        return FieldSummary(field=name, values=(), left_out=None)
    # Labels ascend, so that the stable order does not depend on the shards.
    order = np.argsort(-labels.documents, kind="stable")[:VALUES]
    values = []
    for row in order.tolist():
        mean = labels.sums[row] / labels.documents[row]
        values.append(
            LabelSummary(value=labels.values[row], documents=int(labels.documents[row]), proportions=_largest(mean))
        )
    return FieldSummary(field=name, values=tuple(values), left_out=len(labels.values) - len(values))


def dates_summary(sums: DateSums, ids: Ints) -> DatesSummary:
    """Return the summary of the sums by date, with the order of day and month that all dates together show."""
    tally, by_date = sums.tally, resolved(sums)
    order = f"{tally.order} first" if tally.order else ""
    return DatesSummary(
        topics=tuple(ids.tolist()),
        hour=tuple(by_date.hour.tolist()),
        unit=tuple(UNITS[unit] for unit in by_date.exact.tolist()),
        documents=tuple(by_date.documents.tolist()),
        tokens=tuple(round(tokens, 3) for tokens in by_date.tokens.tolist()),
        squares=tuple(round(square, 3) for square in by_date.squares.tolist()),
        shares=DatesSummary.packed(by_date.shares),
        weighted=DatesSummary.packed(by_date.weighted),
        squared=DatesSummary.packed(by_date.squared),
        missing=tally.missing,
        unreadable=tally.unreadable,
        examples=tally.examples,
        ambiguous=0 if order else tally.ambiguous,
        ordered=tally.ambiguous if order else 0,
        order=order,
        unix=tally.unix,
        short_years=tally.short_years,
    )


def _segmented(corpus: Corpus, executor: Executor, chosen: Sequence[Segmented]) -> tuple[SegmentedDocument, ...]:
    """Return the selected documents with their segments, ids and titles."""
    references = [corpus.references[document.shard] for document in chosen]
    titles = _collect_in_turn(executor, references, lambda reference: executor.submit(_titles, reference))
    return tuple(
        SegmentedDocument(
            id=names[document.row][0],
            title=names[document.row][1],
            segments=document.segments,
            distance=round(document.distance, 6),
            topics=tuple(document.topics.tolist()),
            shares=tuple(tuple(round(share, 4) for share in row) for row in document.shares.tolist()),
        )
        for document, names in zip(chosen, titles, strict=True)
    )


def _largest(shares: Floats) -> tuple[tuple[int, float], ...]:
    """Return pairs of position and share, descending, without small shares."""
    order = np.argsort(-shares, kind="stable")
    return _proportions(order.tolist(), shares[order].tolist())


def _proportions(topics: Sequence[int], shares: Sequence[float]) -> tuple[tuple[int, float], ...]:
    """Return pairs of id and share, without small shares."""
    pairs = zip(topics, shares, strict=True)
    return tuple((topic, round(share, 6)) for topic, share in pairs if share >= MIN_PROPORTION)


def _examples(
    model: Model, corpus: Corpus, executor: Executor, chosen: Candidates, *, signed: bool
) -> tuple[dict[tuple[int, int], ExampleDocument], dict[tuple[int, int, int], tuple[int, ...]]]:
    """Return the selected documents by shard and row, and the words in them that each topic explains best."""
    _, first = np.unique(np.stack([chosen.shard, chosen.row]), axis=1, return_index=True)
    once = chosen.take(first)
    needed = [corpus.references[number] for number in np.unique(once.shard).tolist()]
    read: list[tuple[str, str | None, Ints, Ints]] = []
    shards = _collect_in_turn(
        executor,
        needed,
        lambda reference: executor.submit(_read, reference, once.row[once.shard == reference.number]),
    )
    for shard_documents in shards:
        read += shard_documents
    keys = list(zip(once.shard.tolist(), once.row.tolist(), strict=True))
    # The largest topics of a candidate are in descending order.
    columns = zip(keys, read, once.tokens.tolist(), once.topics.tolist(), once.shares.tolist(), strict=True)
    documents = {
        key: ExampleDocument(id=name, title=title, tokens=round(tokens, 3), proportions=_proportions(topics, shares))
        for key, (name, title, _, _), tokens, topics, shares in columns
    }
    topics_of: dict[tuple[int, int], list[int]] = {}
    for topic, shard, row in zip(chosen.topic.tolist(), chosen.shard.tolist(), chosen.row.tolist(), strict=True):
        topics_of.setdefault((shard, row), []).append(topic)
    if signed:
        return documents, {}
    expected = _expected_counts(model, executor, once, read)
    explaining = {}
    for number, (key, (_, _, words, _)) in enumerate(zip(keys, read, strict=True)):
        shown = (once.topics[number], once.shares[number])
        by_topic = explained(expected[number], *shown, topics_of[key], WORDS)
        explaining.update({(*key, topic): tuple(words[rows].tolist()) for topic, rows in by_topic.items()})
    return documents, explaining


def _read(reference: ShardReference, rows: Ints) -> list[tuple[str, str | None, Ints, Ints]]:
    """Read the id, the title and the most frequent words with their counts of some documents of a shard."""
    documents = merge_segments(reference.documents())
    titles = documents.extras.get("title")
    read = []
    for row in rows.tolist():
        low, high = int(documents.offsets[row]), int(documents.offsets[row + 1])
        words, counts = documents.words[low:high].astype(np.int64), documents.counts[low:high].astype(np.int64)
        if words.size > CANDIDATE_WORDS:
            frequent = np.sort(np.argsort(-counts, kind="stable")[:CANDIDATE_WORDS])
            words, counts = words[frequent], counts[frequent]
        title = None if titles is None else titles[row].as_py()
        read.append((documents.ids[row].as_py(), title and title[:TITLE_LETTERS], words, counts))
    return read


def _titles(reference: ShardReference) -> list[tuple[str, str | None]]:
    """Read the ids and titles of a shard's documents."""
    documents = reference.documents()
    titles = documents.extras.get("title")
    texts = [None] * len(documents) if titles is None else titles.to_pylist()
    return [
        (name, title and title[:TITLE_LETTERS]) for name, title in zip(documents.ids.to_pylist(), texts, strict=True)
    ]


def _expected_counts(
    model: Model, executor: Executor, documents: Candidates, read: Sequence[tuple[str, str | None, Ints, Ints]]
) -> list[Floats]:
    """Return the counts of each document's words that its largest topics explain, shape (words, topics)."""
    sizes = np.array([words.size for _, _, words, _ in read], dtype=np.int64)
    words, counts = (
        np.concatenate([columns[column] for columns in read] or [np.zeros(0, dtype=np.int64)]) for column in (2, 3)
    )
    topics, shares = np.repeat(documents.topics, sizes, axis=0), np.repeat(documents.shares, sizes, axis=0)
    probability = np.zeros((words.size, SHOWN_TOPICS))
    in_blocks = [np.flatnonzero((words >= low) & (words < high)) for low, high in model.blocks]
    parts = [
        executor.submit(_block_probabilities, model, number, words[rows] - low, topics[rows])
        for number, ((low, _), rows) in enumerate(zip(model.blocks, in_blocks, strict=True))
    ]
    for rows, part in zip(in_blocks, executor.collect(parts), strict=True):
        probability[rows] = part
    weight = probability * shares
    expected = counts.astype(np.float64)[:, None] * weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
    bounds = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    return [expected[low:high] for low, high in pairwise(bounds)]


def _block_probabilities(model: Model, number: int, words: Ints, topics: Ints) -> Floats:
    """Return the probabilities of words of a block, which may be repeated, under topics of each."""
    if not words.size:
        return np.zeros((0, SHOWN_TOPICS))
    needed, rows, probability = np.unique(words), model.rows(number), np.empty(topics.shape)
    for first in range(0, needed.size, WORDS_TOGETHER):
        part = needed[first : first + WORDS_TOGETHER]
        table = model.family.probabilities(rows.of_words(part, complete=True), model.global_state)["word_topic"]
        of_part = np.flatnonzero((words >= part[0]) & (words <= part[-1]))
        probability[of_part] = table[np.searchsorted(part, words[of_part])[:, None], topics[of_part]]
    return probability
