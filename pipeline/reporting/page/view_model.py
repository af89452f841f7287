"""Plain values that fill the report's template and script, made of a run's material."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np

from collapsium.pipeline.analysis.labels.lift import by_lift
from collapsium.pipeline.analysis.topic_shares import by_period
from collapsium.pipeline.analysis.topics import Topic
from collapsium.pipeline.families.registry import load_family
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting import charts as figures
from collapsium.pipeline.reporting.page import time as timeview
from collapsium.pipeline.reporting.page.context import Material
from collapsium.pipeline.reporting.page.publication import facts_of
from collapsium.pipeline.reporting.topic_map import WEIGHTS, TopicMap, map_names, named

MAP_WIDTH = 640.0  # in units that are about pixels on a wide screen
MAP_LETTERS = {"wide": 12.0, "narrow": 22.0}  # on wide screens, and on narrow ones, where the map is half as large
NAMED = 3  # words that stand for a topic
TABLE_WORDS = 8
LABEL_TOPICS = 4  # of a value


def unit_names(material: Material) -> dict[str, str]:
    """Return the words for what is shown."""
    if material.signed:
        return {"topics": "nodes", "topic": "Node", "documents": "vectors", "tokens": "vectors", "words": "columns"}
    one, several = ("Node", "nodes") if material.tree else ("Topic", "topics")
    return {"topics": several, "topic": one, "documents": "documents", "tokens": "tokens", "words": "words"}


def _names(topic: Topic, count: int) -> list[str]:
    """Return its first words as a page shows them."""
    signs = ["\N{MINUS SIGN}" if p < 0.0 else "" for _, p in topic.words[:count]]
    return [sign + plain(word) for sign, (word, _) in zip(signs, topic.words[:count], strict=True)]


def _titled(topic: Topic) -> str:
    """Return its title, where it has one, and its first words."""
    words = " ".join(_names(topic, NAMED))
    return words if topic.title is None else f"{plain(topic.title)}: {words}"


def _rounded(value: float, digits: int = 4) -> float:
    return float(f"{value:.{digits}g}")


def script_data(material: Material) -> dict[str, Any]:
    """Return what the page's script shows when it is asked for; texts without letters that steer."""
    words: dict[str, int] = {}
    summary, names = material.summary, material.model.vocabulary.words
    told = {} if summary is None else {one.id: one for one in summary.topics}

    def place(word: str) -> int:
        return words.setdefault(plain(word), len(words))

    topics = []
    for number, topic in enumerate(material.topics):
        if material.signed:
            pool = [[place(word), _rounded(value)] for word, value in topic.words]
        else:
            one = material.pools[number]
            pairs = zip(one.words.tolist(), one.probability.tolist(), strict=True)
            pool = [[place(names[word]), _rounded(p, 6)] for word, p in pairs]
        found = told.get(topic.id)
        examples = () if found is None else found.examples
        topics.append(
            {
                "id": topic.id,
                "share": _rounded(topic.share),
                "below": None if topic.below is None else _rounded(topic.below),
                "parent": topic.parent,
                "stability": None if topic.stability is None else round(topic.stability, 3),
                "most": None if found is None else found.documents,
                "words": pool,
                "top": [place(word) for word in _names(topic, NAMED)],
                **({} if topic.title is None else {"title": plain(topic.title)}),
                "examples": [
                    [
                        one.document,
                        _rounded(one.share),
                        [place(names[w]) for w in one.words],
                        *([material.snippets[key]] if (key := (topic.id, one.document)) in material.snippets else []),
                    ]
                    for one in examples
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
        "documents": [] if summary is None else [_document(one) for one in summary.examples],
        "fields": [] if summary is None else _fields(material),
        "what": unit_names(material),
    }


def _overall(material: Material, words: Mapping[str, int]) -> list[float]:
    """Return each word's share of all tokens, in the order of `words`."""
    tokens = material.model.vocabulary.tokens
    total = max(float(tokens.sum()), 1.0)
    by_name: dict[str, float] = {}
    for word, count in zip(material.model.vocabulary.words, tokens.tolist(), strict=True):
        if (name := plain(word)) in words:
            by_name[name] = by_name.get(name, 0.0) + count / total
    return [_rounded(by_name.get(word, 0.0), 6) for word in words]


def _document(one: Any) -> dict[str, Any]:
    return {
        "id": plain(one.id),
        "title": None if one.title is None else plain(one.title),
        "tokens": round(one.tokens),
        "topics": [[topic, round(share, 4)] for topic, share in one.proportions],
    }


def _fields(material: Material) -> list[dict[str, Any]]:
    if material.summary is None:
        return []
    return [
        {
            "field": plain(one.field),
            "values": [
                {
                    "value": plain(value.value),
                    "documents": value.documents,
                    "topics": [[topic, round(share, 4)] for topic, share in value.proportions],
                }
                for value in one.values
            ],
            "left": one.left_out,
        }
        for one in material.summary.fields
    ]


def cards(material: Material) -> list[tuple[str, str, str]]:
    """Return the figures at the top: name, value, and what it is."""
    what, events = unit_names(material), _last(material, "iteration")
    shards = material.model.record.shards
    documents = sum(shard.documents for shard in shards)
    tokens = int(material.model.vocabulary.tokens.sum())
    found = [(what["topics"].capitalize(), f"{len(material.topics):,}", "")]
    if documents:
        found.append((what["documents"].capitalize(), f"{documents:,}", ""))
    if not material.signed:
        found.append(("Tokens", f"{tokens:,}", ""))
    found.append((what["words"].capitalize(), f"{material.model.record.vocabulary.words:,}", "in the vocabulary"))
    found.append(("Iterations", f"{material.model.record.iterations:,}", ""))
    scores = [float(one["score"]) for one in events if "score" in one]
    if scores:
        text = figures.number(scores[0]) if len(scores) == 1 else figures.number(float(np.mean(scores)))
        each = "" if len(scores) == 1 else ", mean of the members"
        found.append(("Held-out score", text, f"nats a token{each}"))
    times = [float(one["elapsed"]) for one in events if "elapsed" in one]
    if times:
        found.append(("Time", figures.duration(max(times)), "in the loop"))
    return found


def _last(material: Material, kind: str) -> list[Mapping[str, Any]]:
    """Return the last event of a kind of each fit."""
    found = []
    for _, events in material.members:
        last = next((one for one in reversed(events) if one["event"] == kind), None)
        if last is not None:
            found.append(last)
    return found


def topic_rows(material: Material) -> list[dict[str, Any]]:
    """Return the rows of the table of topics."""
    most = max((topic.share for topic in material.topics), default=0.0) or 1.0
    told = {} if material.summary is None else {one.id: one.documents for one in material.summary.topics}
    return [
        {
            "id": topic.id,
            "share": topic.share,
            "bar": 100 * topic.share / most,
            "below": topic.below,
            "level": topic.level or 0,
            "most": told.get(topic.id),
            "stability": topic.stability,
            "title": None if topic.title is None else plain(topic.title),
            "words": _names(topic, TABLE_WORDS),
        }
        for topic in material.topics
    ]


def circles(material: Material, found: TopicMap) -> list[dict[str, Any]]:
    """Return the map's circles, the largest first, with the texts in and beside them on wide and narrow screens."""
    topics, names = material.topics, map_names(material.model, material.topics, material.pools)
    texts = {kind: named(found, topics, names, MAP_WIDTH, size) for kind, size in MAP_LETTERS.items()}
    return [
        {
            "id": topics[number].id,
            "x": round(MAP_WIDTH * float(found.x[number]), 1),
            "y": round(MAP_WIDTH * float(found.y[number]), 1),
            "r": round(MAP_WIDTH * float(found.radius[number]), 2),
            "share": topics[number].share,
            "words": _titled(topics[number]),
            "texts": {kind: each[number] for kind, each in texts.items()},
        }
        for number in sorted(range(len(topics)), key=lambda one: -topics[one].share)
    ]


def time_view(material: Material) -> timeview.TimeView | None:
    """Lay out shares by period; None where no document has a date that can be read."""
    dates = None if material.summary is None else material.summary.dates
    if dates is None or not sum(dates.documents):
        return None
    return timeview.view(by_period(dates), material.topics)


def label_lifts(material: Material) -> dict[str, Any]:
    """Return what ranks the topics of a label, and whether means over documents are known to compare with."""
    overall = {topic.id: topic.share for topic in material.topics}
    means = {} if material.summary is None else {one.id: one.mean for one in material.summary.topics}
    known = {topic: mean for topic, mean in means.items() if mean is not None}
    overall |= known
    return {
        "lifted": lambda value: by_lift(value.proportions, overall, LABEL_TOPICS),
        "lifts_of_documents": bool(known),
    }


def stability(material: Material) -> dict[str, Any] | None:
    """Return how many topics are how stable."""
    values = [topic.stability for topic in material.topics if topic.stability is not None]
    if not values:
        return None
    counts, _ = np.histogram(values, bins=10, range=(0.0, 1.0))
    bars = [(number / 10, int(count), 100.0 * count / max(int(counts.max()), 1)) for number, count in enumerate(counts)]
    fits = len(material.members) if len(material.members) > 1 else material.samples
    return {
        "bars": bars,
        "mean": float(np.mean(values)),
        "stable": sum(one >= 0.7 for one in values),
        "of": len(values),
        "fits": fits,
    }


def member_rows(material: Material) -> list[dict[str, Any]]:
    """Return a row for each member of an ensemble."""
    if len(material.members) < 2:
        return []
    found = []
    for name, events in material.members:
        last: Mapping[str, Any] = next((one for one in reversed(events) if one["event"] == "iteration"), {})
        begun: Mapping[str, Any] = next((one for one in events if "seed" in one), {})
        found.append(
            {
                "name": name,
                "seed": begun.get("seed"),
                **{key: last.get(key) for key in ("iteration", "score", "objective", "elapsed")},
            }
        )
    return found


def facts(material: Material, constant: Mapping[str, float]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return how the model was made, in groups of names and values."""
    record, model = material.record, material.model.record
    family = load_family(model.family)
    corpus = record.get("corpus") or {}
    made = [
        ("family", f"{model.family}: {family.Options.model_config.get('title') or ''}".rstrip(": ")),
        ("run", material.name),
        *((name, str(record[name])) for name in ("seed", "restarts", "keep") if name in record),
        *((("samples", str(material.samples)),) if material.samples else ()),
        ("corpus", str(corpus.get("url", ""))),
        ("digest of the corpus", model.corpus),
    ]
    held = record.get("heldout")
    if held:
        made.append(("held-out corpus", str(held.get("url", ""))))
    if record.get("warm"):
        made.append(("begins from", str(record["warm"].get("url", ""))))
    groups = [
        ("Publication", _said(facts_of(material.version))),
        ("Fit", _said(made)),
        ("Options", _said(model.options.items())),
        ("Figures that did not change", [(name, figures.number(value)) for name, value in sorted(constant.items())]),
        ("Limits", _said((record.get("limits") or {}).items())),
        ("Versions", _said((record.get("versions") or {"collapsium": version("collapsium")}).items())),
    ]
    return [(name, rows) for name, rows in groups if rows]


def _said(pairs: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    found = []
    for name, value in pairs:
        if value is None or value == "":
            continue
        text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        found.append((plain(str(name).replace("_", " ")), plain(text)))
    return found
