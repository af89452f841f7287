"""What a report tells, gathered from a run: its record, its events, its model, and the summary of its documents."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collapsar.pipeline.contract import load_family
from collapsar.pipeline.describing import Topic, topics
from collapsar.pipeline.executor import TLS, open_executor
from collapsar.pipeline.expecting import label_topics
from collapsar.pipeline.givenlabels import table_of
from collapsar.pipeline.labelmap import LabelMap, label_map
from collapsar.pipeline.members import reference_of, restarts_of, samples_of
from collapsar.pipeline.opening import Model
from collapsar.pipeline.reporting.publication import notes_of, version_of
from collapsar.pipeline.reporting.topicmap import WORDS, Pool, TopicMap, map_names, relevant, topic_map
from collapsar.pipeline.summarising import summary_of
from collapsar.storage.corpus import Corpus
from collapsar.storage.errors import ClusterError, CollapsarError
from collapsar.storage.folder import Folder
from collapsar.storage.progress import Counting, silent
from collapsar.storage.published import VersionRecord
from collapsar.storage.run import RECORD as RUN_RECORD
from collapsar.storage.run import Run
from collapsar.storage.summary import SummaryRecord, read_summary

Events = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Where:
    """Where documents are looked at, if the model has no summary of them."""

    corpus: str | os.PathLike[str] | None = None
    scheduler: str = "threads"
    workers: int | None = None
    tls: TLS | None = None
    progress: Counting = silent


@dataclass(frozen=True)
class Material:
    """All that a report tells.

    Attributes
    ----------
    name : str
        The run's folder, without those above it; of a published version its job, number and date.
    record : dict
        What `run.json` says; empty of a model by itself.
    members : list of (str, list of dict)
        The events of each fit: one without a name or, of an ensemble, its restarts.
    model : Model
        The model; of an ensemble, its first member's.
    member : str
        The name of that member; empty where there is one fit.
    topics : list of Topic
        As `collapsar topics` has them.
    pools : list of Pool
        Relevant words of each; none of signed loadings.
    map : TopicMap or None
        None of signed loadings.
    figures : dict of str to float
        The model's hyperparameters.
    summary : SummaryRecord or None
        None where there is none to be had.
    labels : LabelMap or None
        The map of labels and topics; None of families that take no labels, and where there were none.
    samples : int
        Kept samples, with which the topics are compared.
    notes : list of str
        What the report lacks, and why.
    snippets : dict of (int, int) to list of str
        Passages of examples, by topic and place among the examples; see `collapsar.pipeline.snippets`.
    folding : dict
        Which branches of a tree are folded, as `collapsar.pipeline.treefold.fold` takes it.
    version : VersionRecord or None
        Of a published version, its record.
    """

    name: str
    record: dict[str, Any]
    members: list[tuple[str, Events]]
    model: Model
    member: str
    topics: list[Topic]
    pools: list[Pool]
    map: TopicMap | None
    figures: dict[str, float]
    summary: SummaryRecord | None
    labels: LabelMap | None = None
    samples: int = 0
    notes: list[str] = field(default_factory=list)
    snippets: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    folding: dict[str, Any] = field(default_factory=dict)
    version: VersionRecord | None = None

    @property
    def signed(self) -> bool:
        """Whether topics are components of vectors, with loadings."""
        return any(topic.signed for topic in self.topics)

    @property
    def tree(self) -> bool:
        """Whether topics are nodes of a tree."""
        return any(topic.level is not None for topic in self.topics)


def gather(run: str | os.PathLike[str], where: Where) -> Material:
    """Gather what a report tells.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or a model.
    where : Where
        Where to look at documents if there is no summary of them.

    Returns
    -------
    Material
        Of what is not there, a note.

    Raises
    ------
    AbsentError
        There is no model.
    """
    found = topics(run, WORDS)
    model = Model(run)
    ids = np.array([topic.id for topic in found], dtype=np.int64)
    signed = any(topic.signed for topic in found)
    share = np.array([topic.share for topic in found])
    record, members, notes = _told(run)
    summary = documents_summary(model, record, where, notes)
    first, version = reference_of(run), version_of(run)
    pools = [] if signed else relevant(model, ids, share)
    return Material(
        name=Folder(run).address.rpartition("/")[2] if version is None else version.title,
        record=record,
        members=members,
        model=model,
        member="" if first is None else first.rstrip("/").rpartition("/")[2],
        topics=found,
        pools=pools,
        map=None if signed else topic_map(model, ids, share),
        figures=load_family(model.record.family).figures(model.globals),
        summary=summary,
        labels=label_map(label_topics(run, WORDS), map_names(model, found, pools)) if len(table_of(model)) else None,
        samples=len(samples_of(run)),
        notes=notes + notes_of(version),
        version=version,
    )


def events_of(run: str | os.PathLike[str]) -> list[tuple[str, Events]]:
    """Read the events of each fit of a run: one without a name or, of an ensemble, its restarts; none of a model."""
    folder = Folder(run)
    if not folder.exists(RUN_RECORD):
        return []
    restarts = restarts_of(run)
    if restarts:
        return [(f"{number:03d}", one.events()) for number, one in restarts if one.exists()]
    return [("", Run(run).events())]


def _told(run: str | os.PathLike[str]) -> tuple[dict[str, Any], list[tuple[str, Events]], list[str]]:
    if not Folder(run).exists(RUN_RECORD):
        return {}, [], ["This is a model without its run, so that nothing is known of the course of its fit."]
    notes: list[str] = []
    try:
        members = events_of(run)
    except CollapsarError as error:
        members, notes = [], [f"The run's events cannot be read: {error}."]
    if not notes and not any(_ended(events) for _, events in members):
        notes.append("The run is not at its end; this is its latest checkpoint.")
    return Run(run).record(), members, notes


def _ended(events: Events) -> bool:
    last = next((one for one in reversed(events) if one["event"] in ("end", "iteration")), None)
    return last is not None and last["event"] == "end" and last.get("reason") not in ("interrupt", "error")


def documents_summary(model: Model, record: Mapping[str, Any], where: Where, notes: list[str]) -> SummaryRecord | None:
    """Read the summary that lies with the model, or make it from the corpus; note why where neither can be."""
    try:
        found = read_summary(model.folder, model.record)
    except CollapsarError as error:
        notes.append(f"The summary of the documents cannot be read: {error}.")
        found = None
    if found is not None:
        return found
    given = where.corpus if where.corpus is not None else (record.get("corpus") or {}).get("url")
    if given is None or not model.fitted:
        notes.append("There is no summary of the documents, so that no examples and labels are shown.")
        return None
    executor = None
    try:
        corpus = Corpus(model.folder.recorded(given) if where.corpus is None else given)
        executor = open_executor(where.scheduler, where.workers, tls=where.tls)
        return summary_of(model, corpus, executor, where.progress)
    except ClusterError:
        raise
    except CollapsarError as error:
        if where.corpus is not None:
            raise
        notes.append(f"There is no summary of the documents, and none could be made from the corpus: {error}.")
        return None
    finally:
        if executor is not None:
            executor.close()
