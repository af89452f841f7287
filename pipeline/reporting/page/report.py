"""Write the report of a run: a self-contained HTML page that makes no requests."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from html import escape
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from collapsium.pipeline.analysis.metrics.catalogue import METRICS, Needs
from collapsium.pipeline.analysis.metrics.measure import REFUSALS, measure
from collapsium.pipeline.analysis.metrics.measurement import Measurement
from collapsium.pipeline.analysis.options import EffectOptions
from collapsium.pipeline.analysis.scoring import HELDOUT
from collapsium.pipeline.analysis.snippets import example_snippets, source_files
from collapsium.pipeline.analysis.topic_shares import SummarySource
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.schedulers import SchedulerOptions
from collapsium.pipeline.formatting import duration, number, percent, plain, times
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.rank_options import RankOptions
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords
from collapsium.pipeline.outputs import overwrites
from collapsium.pipeline.reporting.charts import charts_of
from collapsium.pipeline.reporting.embedding import MapQuality
from collapsium.pipeline.reporting.options import FieldOptions, FoldingOptions, ReportOptions, nouns_of
from collapsium.pipeline.reporting.page.context import Material, gather
from collapsium.pipeline.reporting.page.drawings import branches, segment_views, tree_view
from collapsium.pipeline.reporting.page.fields import field_sections
from collapsium.pipeline.reporting.page.view_model import (
    MAP_FONTS,
    MAP_WIDTH,
    WORDS_BY,
    cards,
    circles,
    facts,
    label_lifts,
    member_rows,
    script_data,
    stability,
    support_rows,
    time_section,
    topic_rows,
    unit_names,
)
from collapsium.pipeline.reporting.trees import check_folding
from collapsium.pipeline.svg import STYLE, security_policy
from collapsium.storage import html
from collapsium.storage.errors import OptionError
from collapsium.storage.io.file import File, require_free
from collapsium.storage.units import Counting, silent

OF_TOPICS = tuple(name for name, metric in METRICS.items() if metric.needs is Needs.TOPICS)
IN_TEXTS = ("c_v", "c_npmi")


def topic_metrics(
    model: Model, texts: Sequence[str] | None, scheduling: SchedulerOptions, tls: TLS | None, progress: Counting
) -> tuple[list[Measurement], list[str]]:
    """Measure the diversity of a model's topics and, if there are texts, their coherence.

    Returns measurements: The figures, with definitions and sources; notes: A sentence on figures that are missing
    """
    where = {"scheduler": scheduling.scheduler, "workers": scheduling.workers, "tls": tls, "progress": progress}
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


@shows("writing a report", "documents read")
@overwrites("out")
@keywords(
    options=ReportOptions, fields=FieldOptions, effect=EffectOptions, ranking=RankOptions, folding=FoldingOptions,
    scheduling=SchedulerOptions,
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
    scheduling: SchedulerOptions,
    tls: TLS | None = None,
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
    scheduling : SchedulerOptions
        Executor of the tasks that make a missing summary.
    tls : optional
        Certificates for a Dask cluster, as for `fit`.
    progress : callable, optional
        Called with the number of shards read so far.

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
    source = SummarySource(options.corpus, scheduling.scheduler, scheduling.workers, tls, progress)
    material = gather(run, source, ranking, effect.cluster, required=fields.effects is None)
    documents = sum(shard.documents for shard in material.model.record.shards)
    sections = field_sections(run, fields, effect, material.topics, documents, source)
    if not material.tree and (folding.min_share is not None or folding.levels is not None):
        raise OptionError("`min_share` and `levels` apply to trees, and this family's topics are not a tree; omit them")
    with source_files(run, options.texts) as sources:
        if sources is not None:
            material = _with_snippets(run, material, sources, progress)
        if not material.signed:
            measured, notes = topic_metrics(material.model, sources, scheduling, tls, progress)
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


def _with_snippets(
    run: str | os.PathLike[str], material: Material, sources: Sequence[str], progress: Counting
) -> Material:
    """Return the material with passages of the example documents."""
    if material.summary is None or not sources:
        return material
    words = {topic.id: [word for word, _ in topic.words] for topic in material.topics}
    names = material.model.vocabulary.words
    snippets, notes = example_snippets(run, material.summary, words, names, sources, progress)
    return replace(material, snippets=snippets, notes=[*material.notes, *notes])


def rendered(material: Material, title: str | None = None) -> str:
    """Return the page's HTML, with all text from the corpus escaped; by default its title is the name of the run."""
    charts, constant = charts_of(material.members, material.figures)
    style, script = (
        (before + (TEMPLATES / name).read_text(encoding="utf-8")).replace("</", "<\\/")
        for before, name in ((STYLE, "report.css"), ("", "report.js"))
    )
    # No character of the JSON may end the script element around it.
    text = json.dumps(script_data(material), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
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
        else segment_views(material.summary.segmented, material.topics, unit_names(material)["topic"]),
        "time": time_section(material),
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
