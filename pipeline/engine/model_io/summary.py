"""Summaries of the documents that a model was fitted to: made beside the shards, merged in their order, kept with it.

A first pass finds each topic's best examples and adds up labels, shard by shard; a second reads the few documents that
were chosen; a third looks up the probabilities of their words, a task a block of the vocabulary. So no worker holds
more than a shard's proportions or one block, and the driver holds the examples alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.registry import load_family
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
from collapsium.workers.arrays.array_fields import ROUNDING_TOLERANCE, value_range
from collapsium.workers.date_sums import DateSums, date_sums, resolved
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

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

EXAMPLES = 3  # documents of a topic
LONGEST = 3  # documents whose segments are told
WORDS = 6  # of a document and topic
READ_WORDS = 200  # of a document, its most frequent, among which these are looked for
VALUES = 100  # of a field
LEAST = 0.01  # smaller proportions are not told
LARGEST_SHARE = 1.001  # by how much rounding may leave a proportion above one
TITLE = 200  # letters
LABELS, DATE = "labels", "date"


def summary_of(model: Model, corpus: Corpus, executor: Executor, progress: Counting = silent) -> SummaryRecord:
    """Summarise the training documents of a model.

    Parameters
    ----------
    model : Model
        Fitted, with its documents' local states.
    corpus : Corpus
        What it was fitted to.
    executor : Executor
        Whose workers read the shards.
    progress : callable, optional
        Told the number of shards read so far.

    Returns
    -------
    SummaryRecord
        The same for any number of workers.

    Raises
    ------
    MismatchError
        It is another corpus.
    DamagedError, AbsentError
        A file of either is damaged or missing.
    """
    if corpus.manifest.digest != model.record.corpus:
        raise MismatchError(f"{corpus.url}: it is not the corpus that the model was fitted to")
    named = tuple(name for name in (LABELS, DATE) if name in corpus.manifest.fields)
    _ = model.global_state  # read once, and sent along with the model
    total: ShardSummary | None = None
    ids = _shown(model)
    each = _each(executor, corpus.references, lambda reference: (_summarise, model, reference, named, ids))
    for read, one in enumerate(each, start=1):
        total = one if total is None else _added(total, one)
        progress(read)
    if total is None:
        total = summarise(np.zeros((0, 0)), np.zeros(0), 0, None, EXAMPLES)
    chosen = total.candidates
    chosen = chosen.take(np.flatnonzero(np.isin(chosen.topic, ids)))
    examples, words = _examples(model, corpus, executor, chosen, signed=corpus.holds == VECTORS)
    place = {key: number for number, key in enumerate(examples)}
    topics = []
    for topic in ids.tolist():
        own = np.flatnonzero(chosen.topic == topic)
        keys = [(int(chosen.shard[one]), int(chosen.row[one])) for one in own]
        given = tuple(
            Example(document=place[key], share=float(chosen.share[one]), words=words.get((*key, topic), ()))
            for one, key in zip(own, keys, strict=True)
        )
        held = int(total.largest[topic]) if topic < total.largest.size else 0
        mean = float(total.sums[topic]) / max(total.documents, 1) if total.fields and topic < total.sums.size else None
        topics.append(TopicSummary(id=topic, documents=held, examples=given, mean=mean))
    segmented = _segmented(corpus, executor, total.segmented)
    dates = None if total.dates is None else dates_summary(total.dates, ids)
    without_dates = SEGMENTED if segmented else UNSEGMENTED
    without_means = without_dates if dates is None else DATED
    return SummaryRecord(
        version=MEANS if total.fields else without_means,
        model=digest_of_model(model.record),
        documents=total.documents,
        topics=tuple(topics),
        examples=tuple(examples.values()),
        fields=tuple(_field(name, one) for name, one in sorted(total.fields.items())),
        segmented=segmented,
        dates=dates,
    )


def _each(
    executor: Executor, references: Sequence[ShardReference], task: Callable[[ShardReference], tuple[Any, ...]]
) -> Any:
    """Run a task for each shard, a bounded number at a time, and give the results in order."""
    window = 2 * executor.workers
    for first in range(0, len(references), window):
        submitted = [executor.submit(*task(one)) for one in references[first : first + window]]
        yield from executor.collect(submitted)


def _summarise(model: Model, reference: ShardReference, named: Sequence[str], ids: Ints) -> ShardSummary:
    """Summarise a shard; of its columns those that are named are read, and of its topics `ids` are summed by date."""
    sweeps, local = model.shard_model, model.documents(reference.number)
    found = sweeps.infer(local, model.global_state)
    theta = np.asarray(found["document_topic"], dtype=np.float64)
    low, high = value_range(theta)
    if low is not None and not (low >= -ROUNDING_TOLERANCE and high <= LARGEST_SHARE):
        where = f"{model.folder.url}/documents/{reference.number:05d}"
        raise DamagedError(where, f"expected arrays that give proportions from 0 to 1, found {low:g} to {high:g}")
    theta = np.maximum(theta, 0.0)
    tokens = np.asarray(sweeps.document_lengths(local), dtype=np.float64)
    extras = reference.documents().extras if named else {}
    summary = summarise(theta, tokens, reference.number, extras.get(LABELS), EXAMPLES)
    if DATE in extras:
        dates = date_sums(extras[DATE], theta[:, ids], tokens, tokens >= MIN_TOKENS)
        summary = replace(summary, dates=dates)
    if "segment_topic" not in found:
        return summary
    segmented = segmented_documents(found["segment_topic"], found["segments"], reference.number, LONGEST)
    return replace(summary, segmented=segmented)


def _added(one: ShardSummary, other: ShardSummary) -> ShardSummary:
    """Merge what is told of the shards so far with the next one's."""
    topics = max(one.largest.size, other.largest.size)
    largest, sums = np.zeros(topics, dtype=np.int64), np.zeros(topics)
    for part in (one, other):
        largest[: part.largest.size] += part.largest
        sums[: part.sums.size] += part.sums
    fields = dict(one.fields)
    for name, labelled in other.fields.items():
        fields[name] = fields[name] + labelled if name in fields else labelled
    candidates = Candidates.join([one.candidates, other.candidates]).best(EXAMPLES)
    segmented = most_segmented([*one.segmented, *other.segmented], LONGEST)
    dates = one.dates + other.dates if one.dates is not None and other.dates is not None else one.dates or other.dates
    return ShardSummary(one.documents + other.documents, largest, candidates, fields, segmented, dates, sums)


def _shown(model: Model) -> Ints:
    """Return the ids of the topics that are shown, ascending: those with tokens, and in a tree all nodes."""
    row = model.rows(0).of_words(slice(1), complete=True)
    found = load_family(model.record.family).describe(row, model.global_state, 1)
    held = found.share > 0.0 if found.parent is None and found.share.any() else np.ones(found.ids.size, dtype=bool)
    return np.sort(found.ids[held])


def _field(name: str, found: Labelled) -> FieldSummary:
    if found.values is None:
        return FieldSummary(field=name, values=(), left_out=None)
    order = np.argsort(-found.documents, kind="stable")[:VALUES]  # values ascend, so that these are settled
    values = []
    for row in order.tolist():
        mean = found.sums[row] / found.documents[row]
        values.append(
            LabelSummary(
                value=found.values[row], documents=int(found.documents[row]), proportions=_proportions(None, mean)
            )
        )
    return FieldSummary(field=name, values=tuple(values), left_out=len(found.values) - len(values))


def dates_summary(sums: DateSums, ids: Ints) -> DatesSummary:
    """Write the sums by date, once it is known which of day and month stands first."""
    tally, found = sums.tally, resolved(sums)
    order = {(True, False): "day first", (False, True): "month first"}.get(
        (tally.day_first > 0, tally.month_first > 0), ""
    )
    return DatesSummary(
        topics=tuple(ids.tolist()),
        hour=tuple(found.hour.tolist()),
        unit=tuple(UNITS[one] for one in found.exact.tolist()),
        documents=tuple(found.documents.tolist()),
        tokens=tuple(round(one, 3) for one in found.tokens.tolist()),
        squares=tuple(round(one, 3) for one in found.squares.tolist()),
        shares=DatesSummary.packed(found.shares),
        weighted=DatesSummary.packed(found.weighted),
        squared=DatesSummary.packed(found.squared),
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
    """Name the documents whose segments are told."""
    each = _each(executor, [corpus.references[one.shard] for one in chosen], lambda one: (_titles, one))
    return tuple(
        SegmentedDocument(
            id=names[one.row][0],
            title=names[one.row][1],
            segments=one.segments,
            distance=round(one.distance, 6),
            topics=tuple(one.topics.tolist()),
            shares=tuple(tuple(round(share, 4) for share in row) for row in one.shares.tolist()),
        )
        for one, names in zip(chosen, each, strict=True)
    )


def _proportions(topics: Ints | None, shares: Floats) -> tuple[tuple[int, float], ...]:
    """Pair ids with shares, falling, without small ones; by default the ids are the places."""
    order = np.argsort(-shares, kind="stable")
    ids = order if topics is None else topics[order]
    found = zip(ids.tolist(), shares[order].tolist(), strict=True)
    return tuple((topic, round(share, 6)) for topic, share in found if share >= LEAST)


def _examples(
    model: Model, corpus: Corpus, executor: Executor, chosen: Candidates, *, signed: bool
) -> tuple[dict[tuple[int, int], ExampleDocument], dict[tuple[int, int, int], tuple[int, ...]]]:
    """Read the documents that were chosen, by shard and row; and the words that each topic explains most of in them."""
    _, first = np.unique(np.stack([chosen.shard, chosen.row]), axis=1, return_index=True)
    once = chosen.take(first)  # by shard and row
    needed = [corpus.references[number] for number in np.unique(once.shard).tolist()]
    read: list[tuple[str, str | None, Ints, Ints]] = []
    for found in _each(executor, needed, lambda one: (_read, one, once.row[once.shard == one.number])):
        read += found
    documents = {}
    for number, (name, title, _, _) in enumerate(read):
        shown = _proportions(once.topics[number], once.shares[number])
        key = (int(once.shard[number]), int(once.row[number]))
        documents[key] = ExampleDocument(
            id=name, title=title, tokens=round(float(once.tokens[number]), 3), proportions=shown
        )
    wanted: dict[tuple[int, int], list[int]] = {}
    for topic, shard, row in zip(chosen.topic.tolist(), chosen.shard.tolist(), chosen.row.tolist(), strict=True):
        wanted.setdefault((shard, row), []).append(topic)
    if signed:
        return documents, {}
    looked = _probabilities(model, executor, [words for _, _, words, _ in read], once.topics)
    explaining = {}
    for number, (_, _, words, counts) in enumerate(read):
        key = (int(once.shard[number]), int(once.row[number]))
        parts = (looked[number], once.shares[number], once.topics[number])
        found = explained(counts.astype(np.float64), *parts, wanted[key], WORDS)
        explaining.update({(*key, topic): tuple(words[places].tolist()) for topic, places in found.items()})
    return documents, explaining


def _read(reference: ShardReference, rows: Ints) -> list[tuple[str, str | None, Ints, Ints]]:
    """Read the id, the title and the most frequent words with their counts of some documents of a shard."""
    documents = merge_segments(reference.documents())
    titles = documents.extras.get("title")
    found = []
    for row in rows.tolist():
        low, high = int(documents.offsets[row]), int(documents.offsets[row + 1])
        words, counts = documents.words[low:high].astype(np.int64), documents.counts[low:high].astype(np.int64)
        most = np.sort(np.argsort(-counts, kind="stable")[:READ_WORDS])
        title = None if titles is None else titles[row].as_py()
        found.append((documents.ids[row].as_py(), title and title[:TITLE], words[most], counts[most]))
    return found


def _titles(reference: ShardReference) -> list[tuple[str, str | None]]:
    """Read the ids and titles of a shard's documents."""
    documents = reference.documents()
    titles = documents.extras.get("title")
    told = [None] * len(documents) if titles is None else titles.to_pylist()
    return [(name, title and title[:TITLE]) for name, title in zip(documents.ids.to_pylist(), told, strict=True)]


def _probabilities(model: Model, executor: Executor, words: Sequence[Ints], topics: Ints) -> list[Floats]:
    """Look up the probabilities of the documents' words under their topics: an array a document."""
    found = [np.zeros((one.size, SHOWN_TOPICS)) for one in words]
    submitted = []
    for number, (low, high) in enumerate(model.blocks):
        inside = [one[(one >= low) & (one < high)] - low for one in words]
        submitted.append(executor.submit(_look_up, model, number, inside, topics))
    for (low, high), parts in zip(model.blocks, executor.collect(submitted), strict=True):
        for own, one, part in zip(words, found, parts, strict=True):
            one[(own >= low) & (own < high)] = part
    return found


def _look_up(model: Model, number: int, words: Sequence[Ints], topics: Ints) -> list[Floats]:
    needed = np.unique(np.concatenate([*words, np.zeros(0, dtype=np.int64)]))
    if not needed.size:
        return [np.zeros((0, SHOWN_TOPICS)) for _ in words]
    rows = model.rows(number).of_words(needed, complete=True)
    table = model.shard_model.probabilities(rows, model.global_state)["word_topic"]
    places = [np.searchsorted(needed, one) for one in words]
    return [
        np.asarray(table[place[:, None], row[None, :]], dtype=np.float64)
        for place, row in zip(places, topics, strict=True)
    ]
