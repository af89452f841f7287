"""Collect a report's content from a run: its record, its events, its model, and the summary of its documents."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collapsium.pipeline.analysis.group_words import MAX_GROUPS
from collapsium.pipeline.analysis.labels.conditional import table_of
from collapsium.pipeline.analysis.labels.expected_topics import label_topics
from collapsium.pipeline.analysis.metrics.measurement import Measurement
from collapsium.pipeline.analysis.regression import Effects
from collapsium.pipeline.analysis.topic_shares import (
    SummarySource,
    TimeShares,
    by_period,
    documents_summary,
    with_errors,
)
from collapsium.pipeline.corpora.new_texts import MAX_SHARE
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.rank_options import RankOptions
from collapsium.pipeline.models.topics import Topic, held_by_few, topics
from collapsium.pipeline.reporting.charts import Events, events_of
from collapsium.pipeline.reporting.label_map import LabelMap, label_map, shares_of_labels, unclear_labels
from collapsium.pipeline.reporting.page.fields import FieldSection
from collapsium.pipeline.reporting.topic_map import WORDS, Pool, TopicMap, map_names, relevant, topic_map
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import CollapsiumError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.members import has_consensus, members_of, reference_of, samples_of
from collapsium.storage.runs.published import RECORD, VersionRecord, read_version
from collapsium.storage.runs.run import RECORD as RUN_RECORD
from collapsium.storage.runs.run import Run
from collapsium.storage.runs.summary import SummaryRecord


def facts_of(version: VersionRecord | None) -> list[tuple[str, str]]:
    """Return names and values of a version's publication; an empty list without a version."""
    if version is None:
        return []
    rows = [("job", version.job), ("version", str(version.number)), ("published", version.created)]
    if version.score is not None:
        rows.append(("held-out score", version.score_text))
        rows.append(("definition of the score", version.definition))
    if version.previous is not None:
        rows.append((f"score of version {version.previous['version']}", f"{version.previous['score']:.5g}"))
    if version.members:
        rows.append(("members", f"{len(version.members)}; scored by their mean prediction"))
    for name, ids in (("new topics", version.born), ("topics that are gone", version.gone)):
        if ids:
            rows.append((name, ", ".join(map(str, ids))))
    if version.unknown_share is not None:
        share = f"{version.unknown_share:.1%} ({version.unknown_tokens:,}) of the tokens of appended documents"
        rows.append(("words not in the vocabulary", share))
    return rows


def notes_of(version: VersionRecord | None) -> list[str]:
    """Return a warning if many tokens of the appended documents were dropped as unknown words."""
    if version is None or version.unknown_share is None or version.unknown_share <= MAX_SHARE:
        return []
    note = (
        f"{version.unknown_share:.1%} of the tokens of the appended documents are words outside the vocabulary and "
        "were dropped, so the topics do not show what is new in them. With `grow = true` in [ingest] the vocabulary "
        "takes in new words that pass its pruning rules."
    )
    return [note]


@dataclass(frozen=True)
class Material:
    """The content of a report."""

    name: str  # Name of the run's folder; for a published version its job, number and date
    record: JsonObject  # The content of `run.json`; empty for a model without its run
    # Name and events of each restart of an ensemble, and of its consensus; for a single fit one entry with an empty
    # name
    members: list[tuple[str, Events]]
    # The model; of restarts and samples, their consensus or mean, or the first of those that are not matched
    model: Model
    member: str  # Name of that member; empty for all other models
    topics: list[Topic]  # The result of `collapsium.pipeline.topics`
    pools: list[Pool]  # The most relevant words of each topic; empty for components of vectors
    map: TopicMap | None  # Positions of the topics; None for components of vectors
    figures: dict[str, float]  # The model's hyperparameters
    summary: SummaryRecord | None  # Summary of the documents; None if it can neither be read nor made
    shares: TimeShares | None = None  # Shares of the topics by period; None without dates
    # Half-widths of the 95% intervals of the topics' shares, by field and value
    groups: dict[tuple[str, str], dict[int, float]] = field(default_factory=dict)
    nouns: dict[str, str] = field(default_factory=dict)  # Names of documents, words and so on in this corpus
    labels: LabelMap | None = None  # Positions of labels and topics; None without labels
    samples: int = 0  # Number of saved samples, with which the topics are compared
    joined: int = 0  # Number of models that a consensus or mean combines; 0 for other models
    notes: list[str] = field(default_factory=list)  # Sentences on missing parts of the report, with reasons
    # Passages of example documents, by topic and index of the example; see `collapsium.pipeline.analysis.snippets`
    snippets: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    # Arguments of `collapsium.pipeline.reporting.trees.fold`
    folding: dict[str, Any] = field(default_factory=dict)
    version: VersionRecord | None = None  # The record of a published version
    ranked_by: str = "probability"  # Measure that orders the topics' words
    metrics: list[Measurement] = field(default_factory=list)  # Metrics of the topics
    sections: list[FieldSection] = field(default_factory=list)  # Effects, and words by group and over time

    @property
    def signed(self) -> bool:
        """True if topics are components of vectors, whose loadings have signs."""
        return any(topic.signed for topic in self.topics)

    @property
    def tree(self) -> bool:
        """True if topics are nodes of a tree."""
        return any(topic.level is not None for topic in self.topics)


def gather(
    run: str | os.PathLike[str],
    source: SummarySource,
    ranking: RankOptions,
    cluster: str | None = None,
    *,
    required: bool = True,
) -> Material:
    """Collect the content of a report; without dates, clusters are refused if they are `required` for bands."""
    run_topics = topics(run, WORDS, **dict(ranking))
    model = Model(run)
    ids = np.array([topic.id for topic in run_topics], dtype=np.int64)
    signed = any(topic.signed for topic in run_topics)
    share = np.array([topic.share for topic in run_topics])
    record, members, notes = _record_and_events(run)
    remark = model.remark()
    if remark is not None:
        notes.append(f"{remark[0].upper()}{remark[1:]}.")
    summary = documents_summary(model, (record.get("corpus") or {}).get("url"), source, notes)
    first, version = reference_of(run), read_version(Folder(run)) if Folder(run).exists(RECORD) else None
    pools = [] if signed else relevant(model, ids, share)
    fields = [
        labels.field
        for labels in (() if summary is None else summary.fields)
        if 1 < len(labels.values) + (labels.left_out or 0) <= MAX_GROUPS and labels.field != cluster
    ]
    shares, labels = shares_of_labels(run, fields, source, cluster), None
    if known := table_of(model):
        unclear = unclear_labels(known, shares, run_topics)
        labels = label_map(label_topics(run, WORDS), map_names(model, run_topics, pools), unclear=unclear)
    return Material(
        name=Folder(run).address.rpartition("/")[2] if version is None else version.title,
        record=record,
        members=members,
        model=model,
        member="" if first is None or model.members else first.rstrip("/").rpartition("/")[2],
        topics=run_topics,
        pools=pools,
        map=None if signed else topic_map(model, ids, share),
        figures=model.figures(),
        summary=summary,
        shares=_shares(run, summary, source, cluster, required=required),
        groups=_half_widths(shares),
        labels=labels,
        samples=len(samples_of(run)),
        joined=len(members_of(run)) if has_consensus(run) else len(model.members),
        notes=notes + held_by_few(run_topics, summary) + notes_of(version),
        version=version,
        ranked_by=ranking.rank_by,
    )


def _shares(
    run: str | os.PathLike[str],
    summary: SummaryRecord | None,
    source: SummarySource,
    cluster: str | None,
    *,
    required: bool,
) -> TimeShares | None:
    """Return the topics' shares by period; None if no document has a readable date."""
    dates = None if summary is None else summary.dates
    if summary is None or dates is None or not sum(dates.documents):
        if cluster is not None and required:
            raise OptionError("the documents have no dates, so that the report has no bands over time", "cluster")
        return None
    return with_errors(by_period(dates), run, summary, cluster, source)


def _half_widths(shares_by_field: Mapping[str, Effects]) -> dict[tuple[str, str], dict[int, float]]:
    """Return half-widths of intervals by field and label, and by topic."""
    halves: dict[tuple[str, str], dict[int, float]] = {}
    for field_name, shares in shares_by_field.items():
        for row, values in enumerate(shares.values):
            half = ((shares.high - shares.low)[row] / 2).tolist()
            halves[field_name, str(values[field_name])] = dict(zip(shares.topics.tolist(), half, strict=True))
    return halves


def _record_and_events(run: str | os.PathLike[str]) -> tuple[JsonObject, list[tuple[str, Events]], list[str]]:
    if not Folder(run).exists(RUN_RECORD):
        return {}, [], ["This is a model without its run, so its convergence is not shown."]
    notes: list[str] = []
    try:
        members = events_of(run)
    except CollapsiumError as error:
        members, notes = [], [f"The run's events cannot be read: {error}."]
    if not notes and not any(_ended(events) for _, events in members):
        notes.append("The run has not ended; this page shows its latest checkpoint.")
    return Run(run).record(), members, notes


def _ended(events: Events) -> bool:
    last = next((event for event in reversed(events) if event["event"] in ("end", "iteration")), None)
    return last is not None and last["event"] == "end" and last.get("reason") not in ("interrupt", "error")
