"""Proportions along the segments of a document, how far neighbours lie apart, and two runs beside one another."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.pipeline.analysis.stability import matched
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.options import keywords
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.segments import COLUMN, segment_counts
from collapsium.storage.errors import AbsentError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.run import RECORD, Run
from collapsium.workers.document_summaries import mean_hellinger_distance

Floats = npt.NDArray[np.float64]

MOST = 5000  # places that are drawn


@dataclass(frozen=True)
class Along:
    """Proportions at the places of a text: segments of a document, or documents in their order.

    Attributes
    ----------
    name : str
        The run's folder, without those above it.
    family : str
        Its family.
    document : str or None
        The document's id; None where the places are all documents of a corpus.
    places : str
        What the places are: ``segment`` or ``document``.
    proportions : numpy.ndarray of float64, shape (places, topics)
        Columns by permanent ids; rows add up to one.
    """

    name: str
    family: str
    document: str | None
    places: str
    proportions: Floats

    @property
    def distance(self) -> float | None:
        """Mean Hellinger distance between neighbours, in [0, 1]; None of a single place."""
        return mean_hellinger_distance(self.proportions)

    @property
    def said(self) -> str:
        """How far neighbours lie apart, in words."""
        if self.distance is None:
            return f"one {self.places}"
        return f"neighbouring {self.places}s lie {self.distance:.3f} apart"


@keywords()
def neighbour_distance(
    run: str | os.PathLike[str], *, document: str | None = None, corpus: str | os.PathLike[str] | None = None
) -> float:
    """Return the mean Hellinger distance between the proportions of neighbouring segments of a document.

    It does not depend on how topics are numbered, so that runs on the same segments can be compared.

    Parameters
    ----------
    run : str or path-like
        Folder of a run.
    document : str, optional
        The document's id; by default the one of most segments. Of a family without segments, the documents ``ID#1``,
        ``ID#2`` and so on, as `flatten` names them, are taken in their place; by default all documents in their order.
    corpus : str or path-like, optional
        Where the training corpus lies by now.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    OptionError
        There is no such document, or it has less than two segments.
    AbsentError
        There is no model, or the corpus is gone.
    MismatchError
        The corpus that is named is another, or holds vectors.
    """
    found = along(run, document=document, corpus=corpus)
    if found.distance is None:
        raise OptionError(f"{os.fspath(run)}: expected two {found.places}s or more, found {len(found.proportions)}")
    return found.distance


def along(
    run: str | os.PathLike[str], *, document: str | None = None, corpus: str | os.PathLike[str] | None = None
) -> Along:
    """Read the proportions of a document's segments; see `neighbour_distance`.

    Parameters
    ----------
    run : str or path-like
        Folder of a run.
    document : str, optional
        The document.
    corpus : str or path-like, optional
        Where the training corpus lies by now.

    Returns
    -------
    Along
        Of documents in the place of segments, no more than 5,000.
    """
    model, name = Model(run), Folder(run).address.rpartition("/")[2]
    family, training = model.record.family, _training(run, model, corpus)
    if not model.fitted:
        raise AbsentError(f"{os.fspath(run)}: the run is not at its end; it has no documents' proportions yet")
    if model.shard_model.uses_segments and COLUMN in training.manifest.fields:
        document, reference, row = _longest(training) if document is None else _named(training, document)
        found = model.shard_model.infer(model.documents(reference.number), model.global_state)
        ends = np.cumsum(found["segments"])
        shares = found["segment_topic"][ends[row] - found["segments"][row] : ends[row]]
        return Along(name, family, document, "segment", _whole(shares))
    return Along(name, family, document, "document", _whole(_documents(model, training, document)))


def _training(run: str | os.PathLike[str], model: Model, corpus: str | os.PathLike[str] | None) -> Corpus:
    """Open the corpus that a model was fitted to."""
    if corpus is None and Folder(run).exists(RECORD):
        corpus = Run(run).place_of("corpus")
    if corpus is None:
        raise AbsentError(f"{os.fspath(run)}: it does not say where its documents lie; name their corpus (`corpus`)")
    try:
        found = Corpus(corpus)
    except AbsentError as error:
        raise AbsentError(f"{error}; name the place where the training corpus lies by now (`corpus`)") from None
    if found.manifest.digest != model.record.corpus:
        raise MismatchError(f"{found.url}: it is not the corpus that the model was fitted to")
    found.require(DOCUMENTS, "a picture of segments")
    return found


def _longest(corpus: Corpus) -> tuple[str, ShardReference, int]:
    """Find the document of most segments, the first of several: its id, its shard and its row there."""
    most, found = -1, (corpus.references[0], 0)
    for reference in corpus.references:
        counts = segment_counts(reference.further()[COLUMN])
        if counts.size and counts.max() > most:
            most, found = int(counts.max()), (reference, int(counts.argmax()))
    reference, row = found
    return reference.documents().ids[row].as_py(), reference, row


def _named(corpus: Corpus, document: str) -> tuple[str, ShardReference, int]:
    for reference in corpus.references:
        row = reference.documents().ids.index(pa.scalar(document)).as_py()
        if row >= 0:
            return document, reference, row
    raise OptionError(f"`document` {document}: {corpus.url} has no document of this id")


def _documents(model: Model, corpus: Corpus, document: str | None) -> Floats:
    """Return the proportions of documents in their order: of all, or of those that were a document's segments."""
    if document is None and corpus.manifest.documents > MOST:
        raise OptionError(
            f"{corpus.url}: {corpus.manifest.documents:,} documents are too many to stand beside one another, expected "
            f"{MOST:,} at most; name a document (`document` ID) whose segments ID#1, ID#2, ... are among them"
        )
    sweeps, parts = model.shard_model, []
    for reference in corpus.references:
        rows = np.arange(reference.record.documents)
        if document is not None:
            ids = reference.documents().ids.to_pylist()
            rows = np.array([row for row, name in enumerate(ids) if name.rpartition("#")[0] == document], dtype=int)
        if rows.size:
            found = sweeps.infer(model.documents(reference.number), model.global_state)["document_topic"]
            parts.append(np.asarray(found, dtype=np.float64)[rows])
    if not parts:
        raise OptionError(
            f"`document` {document}: {corpus.url} has no documents {document}#1, {document}#2, ..., as "
            f"`flatten` makes them, and {model.record.family} knows no segments"
        )
    return np.concatenate(parts)


def _whole(shares: npt.NDArray[np.floating]) -> Floats:
    """Let rows add up to one."""
    found = np.maximum(np.asarray(shares, dtype=np.float64), 0.0)
    total = found.sum(axis=1, keepdims=True)
    return found / np.where(total > 0.0, total, 1.0)


def beside(
    run: str | os.PathLike[str],
    other: str | os.PathLike[str],
    *,
    document: str | None = None,
    corpus: str | os.PathLike[str] | None = None,
) -> tuple[Along, Along, dict[int, int]]:
    """Read the proportions of two runs along the same text, and say which of their topics are the same.

    Topics are matched one to one, so that the sum of the Hellinger distances of their words' probabilities is least.

    Parameters
    ----------
    run, other : str or path-like
        Folders of runs on the same vocabulary.
    document : str, optional
        As for `neighbour_distance`; by default that of most segments in the first of the runs that has segments, and
        of the other what `flatten` made of it, if it has that.
    corpus : str or path-like, optional
        Where the training corpus of `run` lies by now.

    Returns
    -------
    one, another : Along
        With as many places.
    partner : dict of int to int
        By ids of topics of `other`, those of `run`.

    Raises
    ------
    MismatchError
        The runs have other vocabularies, or another number of places.
    """
    models = Model(run), Model(other)
    if models[0].record.vocabulary.words_sha256 != models[1].record.vocabulary.words_sha256:
        raise MismatchError(
            f"{os.fspath(other)}: its vocabulary is not that of {os.fspath(run)}; expected runs on corpora of the same "
            "words, such as one and what `collapsium flatten` made of it"
        )
    one = along(run, document=document, corpus=corpus)
    another = _likewise(other, document or one.document)
    if document is None and one.document is None and another.document is not None:
        one = _likewise(run, another.document, corpus)
    if len(one.proportions) != len(another.proportions):
        raise MismatchError(
            f"{os.fspath(other)}: expected {len(one.proportions):,} places, as {os.fspath(run)} has {one.places}s; "
            f"found {len(another.proportions):,} {another.places}s"
        )
    return one, another, {theirs: ours for ours, theirs, _ in matched(*models)}


def _likewise(run: str | os.PathLike[str], document: str | None, corpus: str | os.PathLike[str] | None = None) -> Along:
    """Read the proportions along a document that another run has, or else along all that there is."""
    if document is not None:
        try:
            return along(run, document=document, corpus=corpus)
        except OptionError:
            pass
    return along(run, corpus=corpus)


def largest(pictures: Sequence[Along], partner: dict[int, int], count: int) -> list[int]:
    """Name the topics of the first of one or two pictures that have most of both, falling.

    Parameters
    ----------
    pictures : sequence of Along
        One, or two with as many places.
    partner : dict of int to int
        By topics of the second, those of the first.
    count : int
        How many.

    Returns
    -------
    list of int
        Ids; topics that have nothing are left out.
    """
    total = pictures[0].proportions.sum(axis=0)
    for other in pictures[1:]:
        theirs = other.proportions.sum(axis=0)
        for topic, ours in partner.items():
            total[ours] += theirs[topic]
    order = np.argsort(-total, kind="stable")[:count]
    return [int(topic) for topic in order if total[topic] > 0.0]


def colours_of(drawn: Sequence[int], order: Sequence[int], count: int) -> dict[int, int]:
    """Give topics that are drawn together colours of their own, as far as can be the same in all pictures of a model.

    Parameters
    ----------
    drawn : sequence of int
        Ids of topics, `count` at most.
    order : sequence of int
        Ids of all topics of the model, the largest first.
    count : int
        Colours that there are.

    Returns
    -------
    dict of int to int
        Numbers of colours: a topic's place in `order`, modulo `count`, or where a larger topic of those that are drawn
        has that, the next that is free.
    """
    place = {topic: number for number, topic in enumerate(order)}
    found: dict[int, int] = {}
    for topic in sorted(drawn, key=place.__getitem__):
        taken = set(found.values())
        found[topic] = next(
            one % count for one in range(place[topic], place[topic] + count) if one % count not in taken
        )
    return found
