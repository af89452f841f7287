"""The report of a run: one page that holds all it needs, and asks for nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from collapsium.pipeline.analysis.document_summary import Where
from collapsium.pipeline.analysis.labels.lift import by_lift
from collapsium.pipeline.analysis.scoring.targets import HELDOUT
from collapsium.pipeline.analysis.snippets import example_snippets
from collapsium.pipeline.analysis.topic_shares import by_period
from collapsium.pipeline.analysis.topics import Topic
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.families.base import load_family
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.keywords import checked_keywords
from collapsium.pipeline.reporting import charts as figures
from collapsium.pipeline.reporting.curves import charts_of
from collapsium.pipeline.reporting.embedding import MapQuality
from collapsium.pipeline.reporting.page import segments as segmentview
from collapsium.pipeline.reporting.page import time as timeview
from collapsium.pipeline.reporting.page.context import Material, gather
from collapsium.pipeline.reporting.page.publication import facts_of
from collapsium.pipeline.reporting.page.tree import branches, view
from collapsium.pipeline.reporting.topic_map import WEIGHTS, TopicMap, map_names, named
from collapsium.pipeline.reporting.tree_folding import check_folding
from collapsium.storage.errors import OccupiedError, OptionError
from collapsium.storage.io.file import File
from collapsium.storage.units import Counting, silent

TEMPLATES = Path(__file__).parent / "templates"
MAP_WIDTH = 640.0  # in units that are about pixels on a wide screen
MAP_LETTERS = {"wide": 12.0, "narrow": 22.0}  # on wide screens, and on narrow ones, where the map is half as large
NAMED = 3  # words that stand for a topic
TABLE_WORDS = 8
FIRST_VALUES = 20  # of a field, that are shown at once
LABEL_TOPICS = 4  # of a value


@dataclass(frozen=True)
class Report:
    """What a report shows.

    Attributes
    ----------
    topics : int
        Topics, or nodes of a tree.
    examples : int
        Example documents.
    notes : list of str
        What it lacks, and why.
    map : MapQuality or None
        How the map of the topics is made, and how much of their distances it keeps; None where there is no map.
    """

    topics: int
    examples: int
    notes: list[str]
    map: MapQuality | None = None


@checked_keywords()
def report(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    corpus: str | os.PathLike[str] | None = None,
    texts: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    min_share: float | None = None,
    levels: int | None = None,
    scheduler: str = "threads",
    workers: int | None = None,
    tls: TLS | None = None,
    progress: Counting = silent,
) -> Report:
    """Write a page that shows a run: its topics, their map, example documents, labels, and the course of the fit.

    It is made from the run alone: fits keep a summary of their documents beside the model. Where there is none, it is
    made from the corpus that the run was fitted to, if that is still there.

    Parameters
    ----------
    run : str or path-like
        Folder of a run, finished or not, or of a model.
    out : str or path-like
        HTML file to write, local or an fsspec URL.
    corpus : str or path-like, optional
        Where the training corpus lies by now; it is looked at only if there is no summary.
    texts : path or sequence of paths, optional
        The sources that were ingested: passages of the example documents are shown, with the topics' words marked.
        They are read as the corpus was, from the beginning until all examples are found.
    min_share, levels : float and int, optional
        Of trees: branches whose share is less, or that lie below so many levels, are folded at first; by default those
        beyond the largest nodes.
    scheduler, workers, tls : optional
        Who looks at it then, as for `fit`.
    progress : callable, optional
        Told the number of shards read so far.

    Returns
    -------
    Report
        What it shows.

    Raises
    ------
    AbsentError
        There is no model.
    OccupiedError
        The file exists.
    MismatchError
        The corpus that is named is another.
    """
    target = File(out)
    if target.exists():
        raise OccupiedError(f"{os.fspath(out)}: exists already; name a new file or remove this one")
    check_folding(min_share, levels)
    material = gather(run, Where(corpus, scheduler, workers, tls, progress))
    if not material.tree and (min_share is not None or levels is not None):
        raise OptionError("--min-share and --levels: the family's topics are no tree; leave them out")
    if texts is not None:
        sources = [os.fspath(one) for one in ([texts] if isinstance(texts, (str, os.PathLike)) else texts)]
        material = _with_snippets(run, material, sources, progress)
    material = replace(material, folding={"min_share": min_share, "levels": levels})
    with tempfile.TemporaryDirectory(prefix="collapsium-") as place:
        part = Path(place) / "report.html"
        part.write_text(rendered(material), encoding="utf-8", errors="replace")
        target.put(part)
    examples = 0 if material.summary is None else len(material.summary.examples)
    quality = None if material.map is None else material.map.quality
    return Report(len(material.topics), examples, material.notes, quality)


def _with_snippets(
    run: str | os.PathLike[str], material: Material, sources: Sequence[str], progress: Counting
) -> Material:
    """Add passages of the example documents."""
    if material.summary is None or not sources:
        return material
    words = {topic.id: [word for word, _ in topic.words] for topic in material.topics}
    names = material.model.vocabulary.words
    snippets, notes = example_snippets(run, material.summary, words, names, sources, progress)
    return replace(material, snippets=snippets, notes=[*material.notes, *notes])


def rendered(material: Material) -> str:
    """Return the page's text; all that comes from a corpus is escaped."""
    charts, constant = charts_of(material.members, material.figures)
    style, script = (
        (TEMPLATES / name).read_text(encoding="utf-8").replace("</", "<\\/") for name in ("report.css", "report.js")
    )
    context = {
        "material": material,
        "title": plain(material.name),
        "style": Markup(style),  # noqa: S704 - ours, as the next
        "script": Markup(script),  # noqa: S704
        "policy": _policy(style, script),
        "data": _json(_data(material)),
        "what": _what(material),
        "cards": _cards(material),
        "rows": _rows(material),
        "map_width": MAP_WIDTH,
        "map_letters": MAP_LETTERS,
        "circles": [] if material.map is None else _circles(material, material.map),
        "charts": charts,
        "along": [] if material.summary is None else segmentview.views(material.summary.segmented, material.topics),
        "segmentview": segmentview,
        "time": _time(material),
        "tree": view(material.topics, **material.folding) if material.tree else None,
        "branches": branches(material.topics, **material.folding) if material.tree else [],
        "stable": _stable(material),
        "members": _members(material),
        **_lifts(material),
        "facts": _facts(material, constant),
        "score": HELDOUT,
        "first_values": FIRST_VALUES,
    }
    return _environment().get_template("report.html.j2").render(context)


@cache
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        number=figures.number, percent=figures.percent, duration=figures.duration, times=figures.times, plain=plain
    )
    found.globals.update(WIDTH=figures.WIDTH, HEIGHT=figures.HEIGHT, LEFT=figures.LEFT, RIGHT=figures.RIGHT)
    found.globals.update(TOP=figures.TOP, BOTTOM=figures.BOTTOM)
    return found


def _policy(style: str, script: str) -> str:
    """Return the page's Content-Security-Policy: this style and this script, and nothing else from anywhere."""
    hashes = {
        name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for name, text in (("style", style), ("script", script))
    }
    own = "; ".join(f"{name}-src 'sha256-{digest}'" for name, digest in hashes.items())
    return f"default-src 'none'; {own}; img-src data:; base-uri 'none'; form-action 'none'"


def _json(data: Mapping[str, Any]) -> Markup:
    """Write JSON that no text in it can end."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)  # noqa: S704 - it has none of the letters that mean something in HTML


def _what(material: Material) -> dict[str, str]:
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


def _data(material: Material) -> dict[str, Any]:
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
        "what": _what(material),
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


def _cards(material: Material) -> list[tuple[str, str, str]]:
    """Return the figures at the top: name, value, and what it is."""
    what, events = _what(material), _last(material, "iteration")
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


def _rows(material: Material) -> list[dict[str, Any]]:
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


def _circles(material: Material, found: TopicMap) -> list[dict[str, Any]]:
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


def _time(material: Material) -> timeview.TimeView | None:
    """Lay out shares by period; None where no document has a date that can be read."""
    dates = None if material.summary is None else material.summary.dates
    if dates is None or not sum(dates.documents):
        return None
    return timeview.view(by_period(dates), material.topics)


def _lifts(material: Material) -> dict[str, Any]:
    """Return what ranks the topics of a label, and whether means over documents are known to compare with."""
    overall = {topic.id: topic.share for topic in material.topics}
    means = {} if material.summary is None else {one.id: one.mean for one in material.summary.topics}
    known = {topic: mean for topic, mean in means.items() if mean is not None}
    overall |= known
    return {
        "lifted": lambda value: by_lift(value.proportions, overall, LABEL_TOPICS),
        "lifts_of_documents": bool(known),
    }


def _stable(material: Material) -> dict[str, Any] | None:
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


def _members(material: Material) -> list[dict[str, Any]]:
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


def _facts(material: Material, constant: Mapping[str, float]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return how the model was made, in groups of names and values."""
    record, model = material.record, material.model.record
    family = load_family(model.family)
    corpus = record.get("corpus") or {}
    made = [
        ("family", f"{model.family}: {family.Config.model_config.get('title') or ''}".rstrip(": ")),
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
