"""Read topic proportions along the segments of a document, their mean distance, and those that two runs compare."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.pipeline.models.model import Model, training_corpus_of
from collapsium.pipeline.models.topics import matched
from collapsium.pipeline.options import keywords
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.labels import SEGMENT_COLUMN
from collapsium.storage.corpus.list_columns import segment_counts
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.errors import AbsentError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.workers.document_summaries import mean_hellinger_distance

Floats = npt.NDArray[np.float64]

MAX_DOCUMENTS = 5000  # Documents of a corpus that can be drawn as the segments of one text


@dataclass(frozen=True)
class SegmentProportions:
    """Topic proportions along a text, whose units are segments of a document or documents of a corpus."""

    name: str  # Name of the run's folder
    family: str  # The model's family
    document: str | None  # The document's id; None if the units are all documents of a corpus
    unit: str  # ``segment`` or ``document``
    proportions: Floats  # Columns by permanent ids of topics; rows sum to one; float64 (units, topics)

    @property
    def distance(self) -> float | None:
        """Mean Hellinger distance between neighbours, in [0, 1]; None for a single unit."""
        return mean_hellinger_distance(self.proportions)

    @property
    def distance_text(self) -> str:
        """The distance as a phrase."""
        if self.distance is None:
            return f"one {self.unit}"
        return f"mean distance between neighbouring {self.unit}s {self.distance:.3f}"


@keywords()
def neighbour_distance(
    run: str | os.PathLike[str], *, document: str | None = None, corpus: str | os.PathLike[str] | None = None
) -> float:
    """Return the mean Hellinger distance between the proportions of neighbouring segments of a document.

    The distance does not depend on the numbering of topics, so runs on the same segments can be compared.

    Parameters
    ----------
    run : str or path-like
        Folder of a run.
    document : str, optional
        The document's id; by default the one with most segments. For a family without segments, the documents ``ID#1``,
        ``ID#2`` and so on, as `explode` names them, are the segments; by default all documents in their order.
    corpus : str or path-like, optional
        Present location of the training corpus.

    Returns
    -------
    float
        The distance, in [0, 1].

    Raises
    ------
    OptionError
        The document does not exist, or has fewer than two segments.
    AbsentError
        There is no model, or the corpus is missing.
    MismatchError
        `corpus` is not the training corpus, or holds vectors.
    """
    along = segment_proportions(run, document=document, corpus=corpus)
    if along.distance is None:
        raise OptionError(f"{os.fspath(run)}: expected two {along.unit}s or more, found {len(along.proportions)}")
    return along.distance


def segment_proportions(
    run: str | os.PathLike[str], *, document: str | None = None, corpus: str | os.PathLike[str] | None = None
) -> SegmentProportions:
    """Return the topic proportions of a document's segments; see `neighbour_distance`."""
    model, name = Model(run), Folder(run).address.rpartition("/")[2]
    family, training = model.record.family, training_corpus_of(run, model, corpus)
    training.require(DOCUMENTS, "a picture of segments")
    if not model.fitted:
        raise AbsentError(f"{os.fspath(run)}: the run has not ended; it has no document proportions yet")
    if model.family.uses_segments and SEGMENT_COLUMN in training.manifest.fields:
        document, reference, row = _located(training, document)
        inferred = model.family.infer(model.local_state(reference.number), model.global_state)
        ends = np.cumsum(inferred["segments"])
        shares = inferred["segment_topic"][ends[row] - inferred["segments"][row] : ends[row]]
        unit = "segment"
    else:
        if document is None and training.manifest.documents > MAX_DOCUMENTS:
            raise OptionError(
                f"{training.url}: expected at most {MAX_DOCUMENTS:,} documents along one axis, found "
                f"{training.manifest.documents:,}; name a document (`document` ID) whose segments are ID#1, ID#2, ..."
            )
        sweeps, parts = model.family, []
        for reference in training.references:
            if document is None:
                rows = np.arange(reference.record.documents)
            else:
                ids = reference.documents().ids.to_pylist()
                rows = np.array([row for row, name in enumerate(ids) if name.rpartition("#")[0] == document], dtype=int)
            if rows.size:
                theta = sweeps.infer(model.local_state(reference.number), model.global_state)["document_topic"]
                parts.append(np.asarray(theta, dtype=np.float64)[rows])
        if not parts:
            raise OptionError(
                f"`document` {document}: {training.url} has no documents {document}#1, {document}#2, ..., as "
                f"`explode` makes them, and {model.record.family} does not model segments"
            )
        shares = np.concatenate(parts)
        unit = "document"
    positive = np.maximum(np.asarray(shares, dtype=np.float64), 0.0)
    total = positive.sum(axis=1, keepdims=True)
    return SegmentProportions(name, family, document, unit, positive / np.where(total > 0.0, total, 1.0))


def _located(corpus: Corpus, document: str | None) -> tuple[str, ShardReference, int]:
    """Return id, shard and row of a document; by default of the first with the largest number of segments."""
    length, reference, row = -1, corpus.references[0], 0
    for candidate in corpus.references:
        if document is not None:
            row = candidate.documents().ids.index(pa.scalar(document)).as_py()
            if row >= 0:
                return document, candidate, row
            continue
        counts = segment_counts(candidate.further()[SEGMENT_COLUMN])
        if counts.size and counts.max() > length:
            length, reference, row = int(counts.max()), candidate, int(counts.argmax())
    if document is not None:
        raise OptionError(f"`document` {document}: {corpus.url} has no document with this id")
    return reference.documents().ids[row].as_py(), reference, row


def compare_runs(
    run: str | os.PathLike[str],
    second_run: str | os.PathLike[str],
    *,
    document: str | None = None,
    corpus: str | os.PathLike[str] | None = None,
) -> tuple[SegmentProportions, SegmentProportions, dict[int, int]]:
    """Return the proportions of two runs along the same text, and the matching of their topics.

    Topics are matched one to one, with the smallest sum of Hellinger distances between their word probabilities.
    """
    models = Model(run), Model(second_run)
    if models[0].record.vocabulary.words_sha256 != models[1].record.vocabulary.words_sha256:
        raise MismatchError(
            f"{os.fspath(second_run)}: its vocabulary differs from {os.fspath(run)}'s; expected runs on corpora with "
            "the same words, such as a corpus and the one that `collapsium explode` made of it"
        )
    first = segment_proportions(run, document=document, corpus=corpus)
    second = _same_document(second_run, document or first.document)
    if document is None and first.document is None and second.document is not None:
        first = _same_document(run, second.document, corpus)
    if len(first.proportions) != len(second.proportions):
        raise MismatchError(
            f"{os.fspath(second_run)}: expected {len(first.proportions):,} {second.unit}s, as many as "
            f"{os.fspath(run)} has {first.unit}s; found {len(second.proportions):,}"
        )
    return first, second, {second_topic: first_topic for first_topic, second_topic, _ in matched(*models)}


def _same_document(
    run: str | os.PathLike[str], document: str | None, corpus: str | os.PathLike[str] | None = None
) -> SegmentProportions:
    """Return the proportions along a document of another run or, if this run lacks it, along the default."""
    if document is not None:
        try:
            return segment_proportions(run, document=document, corpus=corpus)
        except OptionError:
            pass
    return segment_proportions(run, corpus=corpus)


def largest(panels: Sequence[SegmentProportions], matches: dict[int, int], count: int) -> list[int]:
    """Return the first panel's topics that have the largest shares in all panels, descending."""
    total = panels[0].proportions.sum(axis=0)
    for panel in panels[1:]:
        panel_total = panel.proportions.sum(axis=0)
        for topic, match in matches.items():
            total[match] += panel_total[topic]
    order = np.argsort(-total, kind="stable")[:count]
    return [int(topic) for topic in order if total[topic] > 0.0]


def colours_of(drawn: Sequence[int], order: Sequence[int], count: int) -> dict[int, int]:
    """Return different colours for the topics of a chart, as far as possible the same in all charts of a model."""
    rank = {topic: number for number, topic in enumerate(order)}
    colours: dict[int, int] = {}
    for topic in sorted(drawn, key=rank.__getitem__):
        taken = set(colours.values())
        candidates = (number % count for number in range(rank[topic], rank[topic] + count))
        colours[topic] = next(colour for colour in candidates if colour not in taken)
    return colours
