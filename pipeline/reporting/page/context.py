"""What a report tells, gathered from a run: its record, its events, its model, and the summary of its documents."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collapsium.pipeline.analysis.document_summary import Where, documents_summary
from collapsium.pipeline.analysis.labels.conditional import table_of
from collapsium.pipeline.analysis.labels.expected_topics import label_topics
from collapsium.pipeline.analysis.topics import Topic, topics
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.registry import load_family
from collapsium.pipeline.reporting.curves import Events, events_of
from collapsium.pipeline.reporting.label_map import LabelMap, label_map
from collapsium.pipeline.reporting.page.publication import notes_of, version_of
from collapsium.pipeline.reporting.topic_map import WORDS, Pool, TopicMap, map_names, relevant, topic_map
from collapsium.storage.errors import CollapsiumError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.members import reference_of, samples_of
from collapsium.storage.runs.published import VersionRecord
from collapsium.storage.runs.run import RECORD as RUN_RECORD
from collapsium.storage.runs.run import Run
from collapsium.storage.runs.summary import SummaryRecord


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
        As `collapsium topics` has them.
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
        Passages of examples, by topic and place among the examples; see `collapsium.pipeline.analysis.snippets`.
    folding : dict
        Which branches of a tree are folded, as `collapsium.pipeline.reporting.tree_folding.fold` takes it.
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
        figures=load_family(model.record.family).figures(model.global_state),
        summary=summary,
        labels=label_map(label_topics(run, WORDS), map_names(model, found, pools)) if len(table_of(model)) else None,
        samples=len(samples_of(run)),
        notes=notes + notes_of(version),
        version=version,
    )


def _told(run: str | os.PathLike[str]) -> tuple[dict[str, Any], list[tuple[str, Events]], list[str]]:
    if not Folder(run).exists(RUN_RECORD):
        return {}, [], ["This is a model without its run, so that nothing is known of the course of its fit."]
    notes: list[str] = []
    try:
        members = events_of(run)
    except CollapsiumError as error:
        members, notes = [], [f"The run's events cannot be read: {error}."]
    if not notes and not any(_ended(events) for _, events in members):
        notes.append("The run is not at its end; this is its latest checkpoint.")
    return Run(run).record(), members, notes


def _ended(events: Events) -> bool:
    last = next((one for one in reversed(events) if one["event"] in ("end", "iteration")), None)
    return last is not None and last["event"] == "end" and last.get("reason") not in ("interrupt", "error")
