"""Write the report of a run: a self-contained HTML page that makes no requests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from collapsium.pipeline.analysis.expected_topics import by_lift, label_topics
from collapsium.pipeline.analysis.group_words import MAX_GROUPS
from collapsium.pipeline.analysis.label_prediction import table_of
from collapsium.pipeline.analysis.metrics.catalogue import METRICS, Needs
from collapsium.pipeline.analysis.metrics.measure import REFUSALS, measure
from collapsium.pipeline.analysis.metrics.measurement import Measurement
from collapsium.pipeline.analysis.options import EffectOptions
from collapsium.pipeline.analysis.regression import Effects
from collapsium.pipeline.analysis.scoring import HELDOUT
from collapsium.pipeline.analysis.snippets import example_snippets, source_files
from collapsium.pipeline.analysis.topic_shares import (
    SummarySource,
    TimeShares,
    by_period,
    documents_summary,
    with_errors,
)
from collapsium.pipeline.corpora.new_texts import MAX_SHARE
from collapsium.pipeline.executors.schedulers import Scheduling
from collapsium.pipeline.formatting import duration, number, percent, plain, shown_options, times
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import load_family
from collapsium.pipeline.models.topics import Topic, held_by_few, topics, word_shares
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import RankOptions, keywords
from collapsium.pipeline.outputs import overwrites
from collapsium.pipeline.reporting.charts import Events, charts_of, events_of
from collapsium.pipeline.reporting.embedding import (
    WEIGHTS,
    WORDS,
    MapQuality,
    Pool,
    TopicMap,
    circle_texts,
    map_names,
    relevant,
    topic_map,
)
from collapsium.pipeline.reporting.label_map import LabelMap, label_map, shares_of_labels, unclear_labels
from collapsium.pipeline.reporting.options import FieldOptions, FoldingOptions, ReportOptions, nouns_of
from collapsium.pipeline.reporting.page.drawings import branches, segment_view, time_view, tree_view
from collapsium.pipeline.reporting.page.fields import FieldSection, field_sections
from collapsium.pipeline.reporting.trees import check_folding
from collapsium.pipeline.svg import STYLE, Chart, security_policy
from collapsium.storage import html
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import CollapsiumError, OptionError
from collapsium.storage.io.file import File, require_free
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.open import kind_of_name
from collapsium.storage.readers.texts.blocks import find_files
from collapsium.storage.runs.members import has_consensus, members_of, reference_of, samples_of
from collapsium.storage.runs.published import RECORD, VersionRecord, read_version
from collapsium.storage.runs.run import RECORD as RUN_RECORD
from collapsium.storage.runs.run import Run
from collapsium.storage.runs.summary import ExampleDocument, FieldSummary, SummaryRecord
from collapsium.storage.units import Counting, silent

# The map's width, about a pixel a unit on a wide screen, and its font sizes; a narrow screen shows it half as large.
MAP_WIDTH = 640.0
MAP_FONTS = {"wide": 12.0, "narrow": 22.0}
NAME_WORDS = 3
TABLE_WORDS = 8
LABEL_TOPICS = 4


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
    # The model; for restarts or samples, their consensus or mean, or the first restart or last sample if not matched
    model: Model
    member: str  # Name of that member; empty for all other models
    topics: list[Topic]  # The result of `collapsium.pipeline.topics`
    pools: list[Pool]  # The most relevant words of each topic; empty for components of vectors
    map: TopicMap | None  # Positions of the topics; None for components of vectors
    hyperparameters: dict[str, float]
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
    time_shares = None
    if summary is not None and summary.dates is not None and sum(summary.dates.documents) > 0:
        time_shares = with_errors(by_period(summary.dates), run, summary, cluster, source)
    elif cluster is not None and required:
        raise OptionError("the documents have no dates, so that the report has no bands over time", "cluster")
    return Material(
        name=Folder(run).address.rpartition("/")[2] if version is None else version.title,
        record=record,
        members=members,
        model=model,
        member="" if first is None or model.members else first.rstrip("/").rpartition("/")[2],
        topics=run_topics,
        pools=pools,
        map=None if signed else topic_map(model, ids, share),
        hyperparameters=model.metrics(),
        summary=summary,
        shares=time_shares,
        groups=_half_widths(shares),
        labels=labels,
        samples=len(samples_of(run)),
        joined=len(members_of(run)) if has_consensus(run) else len(model.members),
        notes=notes + held_by_few(run_topics, summary) + notes_of(version),
        version=version,
        ranked_by=ranking.rank_by,
    )


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
    kinds, stopped = ("end", "iteration"), ("interrupt", "error")
    ends = [next((event for event in reversed(events) if event["event"] in kinds), {}) for _, events in members]
    if not notes and not any(end.get("event") == "end" and end.get("reason") not in stopped for end in ends):
        notes.append("The run has not ended; this page shows its latest checkpoint.")
    return Run(run).record(), members, notes


def unit_names(material: Material) -> dict[str, str]:
    """Return the names of topics, documents, tokens and words, which differ for trees and for vectors."""
    if material.signed:
        names = {"topics": "nodes", "topic": "Node", "documents": "vectors", "tokens": "vectors", "words": "columns"}
    else:
        topic, topics = ("Node", "nodes") if material.tree else ("Topic", "topics")
        names = {"topics": topics, "topic": topic, "documents": "documents", "tokens": "tokens", "words": "words"}
    return names | material.nouns


def _names(topic: Topic, count: int) -> list[str]:
    """Return a topic's first words, with minus signs before negative loadings."""
    signs = ["\N{MINUS SIGN}" if p < 0.0 else "" for _, p in topic.words[:count]]
    return [sign + plain(word) for sign, (word, _) in zip(signs, topic.words[:count], strict=True)]


# Headings of the words in the table of topics, by the measure that orders them
WORDS_BY = {
    "probability": "Most probable words",
    "frex": "Frequent and exclusive words (FREX)",
    "lift": "Words of the largest lift",
    "relevance": "Most relevant words",
}


def _rounded(value: float, digits: int = 4) -> float:
    return float(f"{value:.{digits}g}")


def script_data(material: Material) -> JsonObject:
    """Return the data of the page's script, as JSON values; texts have no control characters."""
    words: dict[str, int] = {}
    summary, names = material.summary, material.model.vocabulary.words
    summaries = {} if summary is None else {topic.id: topic for topic in summary.topics}

    def index_of(word: str) -> int:
        return words.setdefault(plain(word), len(words))

    topics = []
    for place, topic in enumerate(material.topics):
        if material.signed:
            pool = [[index_of(word), _rounded(value)] for word, value in topic.words]
        else:
            relevant = material.pools[place]
            pairs = zip(relevant.words.tolist(), relevant.probability.tolist(), strict=True)
            pool = [[index_of(names[word]), _rounded(p, 6)] for word, p in pairs]
        topic_summary = summaries.get(topic.id)
        examples = () if topic_summary is None else topic_summary.examples
        topics.append(
            {
                "id": topic.id,
                "share": _rounded(topic.share),
                "below": None if topic.below is None else _rounded(topic.below),
                "parent": topic.parent,
                "stability": None if topic.stability is None else round(topic.stability, 3),
                "most": None if topic_summary is None else topic_summary.documents,
                "words": pool,
                "top": [index_of(word) for word in _names(topic, NAME_WORDS)],
                **({} if topic.title is None else {"title": plain(topic.title)}),
                "examples": [
                    [
                        example.document,
                        _rounded(example.share),
                        [index_of(names[word]) for word in example.words],
                        *([snippet] if (snippet := material.snippets.get((topic.id, example.document))) else []),
                    ]
                    for example in examples
                ],
            }
        )
    return {
        "topics": topics,
        "words": list(words),
        "overall": [] if material.signed else _overall(material, words),
        "tokens": float(material.model.vocabulary.tokens.sum()),
        "weights": list(WEIGHTS),
        "signed": material.signed,
        "map": None if material.map is None else asdict(material.map.quality),
        "documents": [] if summary is None else [_document(example) for example in summary.examples],
        "fields": [] if summary is None else [_field(field) for field in summary.fields],
        "units": unit_names(material),
    }


def _overall(material: Material, words: Mapping[str, int]) -> list[float]:
    """Return the share of all tokens of each of the page's words, in the order of `words`."""
    by_name: dict[str, float] = {}
    for word, share in zip(material.model.vocabulary.words, word_shares(material.model).tolist(), strict=True):
        if (name := plain(word)) in words:
            by_name[name] = by_name.get(name, 0.0) + share
    return [_rounded(by_name.get(word, 0.0), 6) for word in words]


def _document(example: ExampleDocument) -> dict[str, object]:
    return {
        "id": plain(example.id),
        "title": None if example.title is None else plain(example.title),
        "tokens": round(example.tokens),
        "topics": [[topic, round(share, 4)] for topic, share in example.proportions],
    }


def _field(field: FieldSummary) -> dict[str, object]:
    return {
        "field": plain(field.field),
        "values": [
            {
                "value": plain(value.value),
                "documents": value.documents,
                "topics": [[topic, round(share, 4)] for topic, share in value.proportions],
            }
            for value in field.values
        ],
        "left": field.left_out,
    }


def cards(material: Material) -> list[tuple[str, str, str]]:
    """Return the metrics at the top of the page: name, value, and a note on the value."""
    units = unit_names(material)
    ends = [_last_iteration(events) for _, events in material.members]
    shards = material.model.record.shards
    documents = sum(shard.documents for shard in shards)
    tokens = int(material.model.vocabulary.tokens.sum())
    rows = [(units["topics"].capitalize(), f"{len(material.topics):,}", "")]
    if documents:
        rows.append((units["documents"].capitalize(), f"{documents:,}", ""))
    if not material.signed:
        rows.append(("Tokens", f"{tokens:,}", ""))
    rows.append((units["words"].capitalize(), f"{material.model.record.vocabulary.words:,}", "in the vocabulary"))
    rows.append(("Iterations", f"{material.model.record.iterations:,}", ""))
    scores = [float(event["score"]) for event in ends if "score" in event]
    if scores:
        text = number(scores[0]) if len(scores) == 1 else number(float(np.mean(scores)))
        note = "" if len(scores) == 1 else ", mean of the members"
        rows.append(("Held-out score", text, f"nats per token{note}"))
    times = [float(event["elapsed"]) for event in ends if "elapsed" in event]
    if times:
        rows.append(("Fitting time", duration(max(times)), "without set-up"))
    return rows


def _last_iteration(events: Events) -> Mapping[str, Any]:
    """Return the event of the last iteration of a fit; empty if there is none."""
    return next((event for event in reversed(events) if event["event"] == "iteration"), {})


def topic_rows(material: Material) -> list[JsonObject]:
    """Return the rows of the table of topics."""
    max_share = max((topic.share for topic in material.topics), default=0.0) or 1.0
    documents = {} if material.summary is None else {topic.id: topic.documents for topic in material.summary.topics}
    return [
        {
            "id": topic.id,
            "share": topic.share,
            "bar": 100 * topic.share / max_share,
            "below": topic.below,
            "level": topic.level or 0,
            "most": documents.get(topic.id),
            "stability": topic.stability,
            "support": topic.support,
            "title": None if topic.title is None else plain(topic.title),
            "words": _names(topic, TABLE_WORDS),
        }
        for topic in material.topics
    ]


def circles(material: Material, topics_map: TopicMap) -> list[JsonObject]:
    """Return the map's circles, the largest first, with their texts on wide and narrow screens."""
    topics, names = material.topics, map_names(material.model, material.topics, material.pools)
    title_before = ["" if topic.title is None else f"{plain(topic.title)}: " for topic in topics]
    texts = {kind: circle_texts(topics_map, topics, names, MAP_WIDTH, size) for kind, size in MAP_FONTS.items()}
    return [
        {
            "id": topics[number].id,
            "x": round(MAP_WIDTH * float(topics_map.x[number]), 1),
            "y": round(MAP_WIDTH * float(topics_map.y[number]), 1),
            "r": round(MAP_WIDTH * float(topics_map.radius[number]), 2),
            "share": topics[number].share,
            "words": title_before[number] + " ".join(_names(topics[number], NAME_WORDS)),
            "texts": {kind: topic_texts[number] for kind, topic_texts in texts.items()},
        }
        for number in sorted(range(len(topics)), key=lambda number: -topics[number].share)
    ]


def label_lifts(material: Material) -> JsonObject:
    """Return the template's function that ranks the topics of a label, and whether lifts refer to document means."""
    # Models of older releases have no mean proportions over documents; shares of the tokens stand for them.
    overall = {topic.id: topic.share for topic in material.topics}
    means = {} if material.summary is None else {topic.id: topic.mean for topic in material.summary.topics}
    known = {topic: mean for topic, mean in means.items() if mean is not None}
    overall |= known

    lifted = partial(by_lift, overall=overall, count=LABEL_TOPICS)
    return {"lifted": lifted, "lifts_of_documents": bool(known)}


def stability(material: Material) -> JsonObject | None:
    """Return a histogram of the topics' stability with its mean; None if there is no other fit."""
    values = [topic.stability for topic in material.topics if topic.stability is not None]
    if not values:
        return None
    counts, edges = np.histogram(values, bins=10, range=(0.0, 1.0))
    chart = Chart((0.0, 1.0), (0.0, 1.2 * float(counts.max())), height=150.0, left=12.0)
    bins = [
        (low, high, count) for low, high, count in zip(edges[:-1], edges[1:], counts.tolist(), strict=True) if count
    ]
    for low, high, count in bins:
        chart.bar((low + 0.003, high - 0.003), (0.0, count))
        chart.text((low + high) / 2, 1.08 * count, f"{count:,}", "across")
    counted_bins = ", ".join(f"{count} from {low:.1f}" for low, _, count in bins)
    label = f"Number of {unit_names(material)['topics']} by stability: {counted_bins}"
    fits = material.joined or (len(material.members) if len(material.members) > 1 else material.samples)
    return {
        "svg": chart.drawn(label, [(edge, f"{edge:.1g}") for edge in edges.tolist()]),
        "mean": float(np.mean(values)),
        "stable": sum(value >= 0.7 for value in values),
        "of": len(values),
        "fits": fits,
    }


def support_rows(material: Material) -> list[tuple[int, int, float]]:
    """Return how many topics of a consensus or a mean were found in each number of its members, from all to none."""
    rows = []
    for members in range(material.joined, -1, -1):
        shares = [topic.share for topic in material.topics if topic.support == members]
        rows.append((members, len(shares), float(sum(shares))))
    return rows if material.joined else []


def member_rows(material: Material) -> list[JsonObject]:
    """Return a row for each member of an ensemble."""
    if len(material.members) < 2:
        return []
    rows = []
    for name, events in material.members:
        last = _last_iteration(events)
        first: Mapping[str, Any] = next((event for event in events if "seed" in event), {})
        shown = {key: last.get(key) for key in ("iteration", "score", "objective", "elapsed")}
        rows.append({"name": name, "seed": first.get("seed"), **shown})
    return rows


def facts(material: Material, constant: Mapping[str, float]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the settings and versions that made the model, in groups of names and values."""
    record, model = material.record, material.model.record
    family = load_family(model.family)
    corpus = record.get("corpus") or {}
    fit = [
        ("family", f"{model.family}: {family.Options.model_config.get('title') or ''}".rstrip(": ")),
        ("run", material.name),
        *((name, str(record[name])) for name in ("seed", "restarts", "keep") if name in record),
        *((("samples", str(material.samples)),) if material.samples else ()),
        ("corpus", str(corpus.get("url", ""))),
        ("corpus digest", model.corpus),
    ]
    heldout = record.get("heldout")
    if heldout:
        fit.append(("held-out corpus", str(heldout.get("url", ""))))
    if record.get("warm"):
        fit.append(("warm start from", str(record["warm"].get("url", ""))))
    if record.get("start"):
        fit.append(("start", str(record["start"].get("url") or record["start"].get("kind", ""))))
    groups = [
        ("Publication", _texts(facts_of(material.version))),
        ("Fit", _texts(fit)),
        ("Options", _texts(shown_options(model.options).items())),
        ("Constant hyperparameters", [(name, number(value)) for name, value in sorted(constant.items())]),
        ("Limits", _texts((record.get("limits") or {}).items())),
        ("Versions", _texts((record.get("versions") or {"collapsium": version("collapsium")}).items())),
    ]
    return [(name, rows) for name, rows in groups if rows]


def _texts(pairs: Iterable[tuple[str, object]]) -> list[tuple[str, str]]:
    """Return names and values as texts, without empty values."""
    rows = []
    for name, value in pairs:
        if value is None or value in ("", [], ()):
            continue
        text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        rows.append((plain(str(name).replace("_", " ")), plain(text)))
    return rows


OF_TOPICS = tuple(name for name, metric in METRICS.items() if metric.needs is Needs.TOPICS)
IN_TEXTS = ("c_v", "c_npmi")


def topic_metrics(
    model: Model, texts: Sequence[str] | None, scheduling: Scheduling, progress: Counting
) -> tuple[list[Measurement], list[str]]:
    """Measure the diversity of a model's topics and, if there are texts, their coherence.

    Returns measurements: The metrics, with definitions and sources; notes: A sentence on each that is missing
    """
    where = {**dict(scheduling), "progress": progress}
    groups = [(OF_TOPICS, None)] if texts is None else [(IN_TEXTS, texts), (OF_TOPICS, None)]
    measurements: list[Measurement] = []
    notes: list[str] = []
    for names, counted in groups:
        try:
            measured = measure(model.folder.url, metrics=names, coherence=counted, **where)
            measurements += measured.values()
        except REFUSALS as error:
            notes.append(f"The topics were not measured by {', '.join(names)}: {error}.")
    return measurements, notes


TEMPLATES = Path(__file__).parent / "templates"
MAX_LABELS = 20  # Labels of a field that the page lists
FRAME_HEIGHT = 720  # Pixels of a page in a notebook


@dataclass(frozen=True)
class Report:
    """Contents of a written report.

    Attributes
    ----------
    topics : int
        Number of topics, or nodes of a tree.
    examples : int
        Number of example documents.
    notes : list of str
        Sentences on missing parts of the report, with reasons.
    map : MapQuality or None
        Method of the topic map and how well it preserves distances; None without a map.
    page : str or None
        The page, if it was not written to a file. Notebooks show it, and `save` writes it.
    """

    topics: int
    examples: int
    notes: list[str]
    map: MapQuality | None = None
    page: str | None = field(default=None, repr=False)

    def save(self, out: str | os.PathLike[str]) -> None:
        """Write a page that is not in a file yet; `OccupiedError` if the file exists."""
        if self.page is None:
            raise OptionError("the report has been written to a file already")
        require_free(out)
        File(out).write(self.page.encode(errors="replace"))

    def _repr_html_(self) -> str:
        """Return the page in a frame, for notebooks, or what was written."""
        if self.page is None:
            return html.block(f"report: {self.topics:,} topics, {self.examples:,} example documents")
        style = f"width:100%;height:{FRAME_HEIGHT}px;border:1px solid {html.FAINT}"
        return f'<iframe style="{style}" sandbox="allow-scripts" srcdoc="{escape(self.page)}"></iframe>'


@shows("writing a report")
@overwrites("out", files=True)
@keywords(
    options=ReportOptions, fields=FieldOptions, effect=EffectOptions, ranking=RankOptions, folding=FoldingOptions,
    scheduling=Scheduling,
)  # fmt: skip
def report(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    options: ReportOptions,
    fields: FieldOptions,
    effect: EffectOptions,
    ranking: RankOptions,
    folding: FoldingOptions,
    scheduling: Scheduling,
    progress: Counting = silent,
) -> Report:
    """Write an HTML page on a run: topics, their map, example documents, labels, and the fit's convergence.

    A run contains all that the page needs: fits save a summary of their documents with the model. If the summary is
    missing, it is made from the training corpus, provided that is still there.

    Parameters
    ----------
    run : str or path-like
        Folder of a run, finished or not, or of a model.
    out : str or path-like, optional
        HTML file to write, local or an fsspec URL; by default the report has the page, which notebooks show.
    options : ReportOptions
        Sources of example documents and their passages.
    fields : FieldOptions
        Sections on fields of the documents.
    effect : EffectOptions
        What the section on effects estimates, and with which errors; clusters also widen the bands over time.
    ranking : RankOptions
        Measure that orders a topic's words.
    folding : FoldingOptions
        Branches of a tree that are folded into a single entry.

    Returns
    -------
    Report
        Numbers of topics and examples, notes, and the map's quality.

    Raises
    ------
    AbsentError
        There is no model.
    OccupiedError
        The file exists.
    MismatchError
        `corpus` is not the corpus that the model was fitted to.
    OptionError
        An option has no effect here, or a field, a topic or a period does not exist.
    """
    require_free(out)
    check_folding(folding.min_share, folding.levels)
    nouns = nouns_of(options.noun)
    source = SummarySource(options.corpus, scheduling, progress)
    folded = folding.min_share is not None or folding.levels is not None
    if folded and all(topic.level is None for topic in topics(run, 1)):
        raise OptionError("`min_share` and `levels` apply to trees, and this family's topics are not a tree; omit them")
    with source_files(run, options.texts) as sources:
        if sources is not None:
            find_files(sources, None, kind_of_name)  # refuses missing files before anything is computed
        sections = field_sections(run, fields, effect, source)  # first, as their errors need not wait for the rest
        material = gather(run, source, ranking, effect.cluster, required=fields.effects is None)
        if sources and material.summary is not None:
            words = {topic.id: [word for word, _ in topic.words] for topic in material.topics}
            names = material.model.vocabulary.words
            snippets, notes = example_snippets(run, material.summary, words, names, sources, progress)
            material = replace(material, snippets=snippets, notes=[*material.notes, *notes])
        if not material.signed:
            measured, notes = topic_metrics(material.model, sources, scheduling, progress)
            material = replace(material, metrics=measured, notes=[*material.notes, *notes])
    material = replace(
        material, nouns=nouns, sections=sections, folding={"min_share": folding.min_share, "levels": folding.levels}
    )
    page = rendered(material, options.title)
    if out is not None:
        File(out).write(page.encode(errors="replace"))
    examples = 0 if material.summary is None else len(material.summary.examples)
    quality = None if material.map is None else material.map.quality
    return Report(len(material.topics), examples, material.notes, quality, page if out is None else None)


def rendered(material: Material, title: str | None = None) -> str:
    """Return the page's HTML, with all text from the corpus escaped; by default its title is the name of the run."""
    charts, constant = charts_of(material.members, material.hyperparameters)
    style, script = (
        (before + (TEMPLATES / name).read_text(encoding="utf-8")).replace("</", "<\\/")
        for before, name in ((STYLE, "report.css"), ("", "report.js"))
    )
    # No character of the JSON may end the script element around it.
    text = json.dumps(script_data(material), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    known = {topic.id: topic for topic in material.topics}
    context = {
        "material": material,
        "title": plain(title or material.name),
        "style": Markup(style),  # noqa: S704 - from our template folder, as the next
        "script": Markup(script),  # noqa: S704
        "policy": security_policy(style, script),
        "data": Markup(text),  # noqa: S704 - all characters with a meaning in HTML are escaped
        "units": unit_names(material),
        "words_by": WORDS_BY[material.ranked_by],
        "cards": cards(material),
        "rows": topic_rows(material),
        "map_width": MAP_WIDTH,
        "map_fonts": MAP_FONTS,
        "circles": [] if material.map is None else circles(material, material.map),
        "charts": charts,
        "segmented": []
        if material.summary is None
        else [segment_view(document, known, unit_names(material)["topic"]) for document in material.summary.segmented],
        "time": None
        if material.shares is None
        else time_view(material.shares, material.topics, unit_names(material)["documents"]),
        "tree": tree_view(material.topics, **material.folding) if material.tree else None,
        "branches": branches(material.topics, **material.folding) if material.tree else [],
        "stable": stability(material),
        "members": member_rows(material),
        "support": support_rows(material),
        **label_lifts(material),
        "facts": facts(material, constant),
        "score": HELDOUT,
        "max_labels": MAX_LABELS,
    }
    return _environment().get_template("report.html.j2").render(context)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, percent=percent, duration=duration, times=times, plain=plain)
    return environment
