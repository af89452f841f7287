"""The report of a run: one page that holds all it needs, and asks for nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from collapsium.pipeline.analysis.document_summary import Where
from collapsium.pipeline.analysis.scoring.targets import HELDOUT
from collapsium.pipeline.analysis.snippets import example_snippets
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.options import SchedulerOptions
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.options import keywords
from collapsium.pipeline.reporting import charts as figures
from collapsium.pipeline.reporting.curves import charts_of
from collapsium.pipeline.reporting.embedding import MapQuality
from collapsium.pipeline.reporting.options import FoldingOptions, ReportOptions
from collapsium.pipeline.reporting.page import segments as segmentview
from collapsium.pipeline.reporting.page.context import Material, gather
from collapsium.pipeline.reporting.page.tree import branches, view
from collapsium.pipeline.reporting.page.view_model import (
    MAP_LETTERS,
    MAP_WIDTH,
    cards,
    circles,
    facts,
    label_lifts,
    member_rows,
    script_data,
    stability,
    time_view,
    topic_rows,
    unit_names,
)
from collapsium.pipeline.reporting.tree_folding import check_folding
from collapsium.storage.errors import OccupiedError, OptionError
from collapsium.storage.io.file import File
from collapsium.storage.units import Counting, silent

TEMPLATES = Path(__file__).parent / "templates"
FIRST_VALUES = 20  # of a field, that are shown at once


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


@keywords(options=ReportOptions, folding=FoldingOptions, scheduling=SchedulerOptions)
def report(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    options: ReportOptions,
    folding: FoldingOptions,
    scheduling: SchedulerOptions,
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
    options : ReportOptions
        What a report shows besides.
    folding : FoldingOptions
        Which branches of a tree are folded.
    scheduling : SchedulerOptions
        Which executor runs the tasks.
    tls : optional
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
    check_folding(folding.min_share, folding.levels)
    material = gather(run, Where(options.corpus, scheduling.scheduler, scheduling.workers, tls, progress))
    if not material.tree and (folding.min_share is not None or folding.levels is not None):
        raise OptionError("`min_share` and `levels`: the family's topics are no tree; leave them out")
    if options.texts is not None:
        sources = [os.fspath(one) for one in options.texts]
        material = _with_snippets(run, material, sources, progress)
    material = replace(material, folding={"min_share": folding.min_share, "levels": folding.levels})
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
        "data": _json(script_data(material)),
        "what": unit_names(material),
        "cards": cards(material),
        "rows": topic_rows(material),
        "map_width": MAP_WIDTH,
        "map_letters": MAP_LETTERS,
        "circles": [] if material.map is None else circles(material, material.map),
        "charts": charts,
        "along": [] if material.summary is None else segmentview.views(material.summary.segmented, material.topics),
        "segmentview": segmentview,
        "time": time_view(material),
        "tree": view(material.topics, **material.folding) if material.tree else None,
        "branches": branches(material.topics, **material.folding) if material.tree else [],
        "stable": stability(material),
        "members": member_rows(material),
        **label_lifts(material),
        "facts": facts(material, constant),
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
