"""Sections of a report on fields of the documents: effects on topics, words by group, and words over time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import numpy as np
from markupsafe import Markup

from collapsium.pipeline.analysis.effects import RunSource, estimated, open_training
from collapsium.pipeline.analysis.group_words import GroupWords, compared_groups, groups_of, words_by
from collapsium.pipeline.analysis.options import EffectOptions, PosteriorOptions
from collapsium.pipeline.analysis.regression import Effects
from collapsium.pipeline.analysis.topic_shares import SAMPLED, SummarySource
from collapsium.pipeline.analysis.words_over import WordsOver, followed_periods, words_over
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.formatting import percent, plain, shortened
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import topics
from collapsium.pipeline.reporting.options import FieldOptions
from collapsium.pipeline.reporting.page.drawings import TopicChart
from collapsium.pipeline.reporting.plots.effects import curves_of, most_changed, number_along, places_of, rows_of_terms
from collapsium.pipeline.reporting.plots.time import labelled_periods
from collapsium.pipeline.svg import BOTTOM, COLOURS, TOP, Chart, number_ticks, ticks
from collapsium.storage.errors import OptionError
from collapsium.workers.design import check_formula, require_formulaic

MAX_CHARTS = 12  # Terms, or topics with a curve, of a section on effects
MAX_TOPICS = 30  # Topics of a forest; of more the ones that differ most clearly
WORD_TOPICS = 4  # Topics whose words are compared unless others are named
MAX_GROUPS = 6  # Groups whose words are listed, the ones with most documents
GROUP_WORDS, CHANGED_WORDS, PERIOD_WORDS = 10, COLOURS, 8  # Words of a group, lines of a chart, words of a period
ROW, NAMES = 18.0, 164.0  # Height of a row of a forest and width of its names, in the chart's units
NAME_LETTERS, TITLE_LETTERS = 20, 40
CURVE_LEFT = 52.0
PERIOD_ROOM = 0.08  # Room right of the last period, relative to all periods
MAX_PERIODS = 3  # Names of periods below a chart


@dataclass(frozen=True)
class PeriodWords:
    """The most probable words of a topic in each period."""

    topic: int
    title: str
    rows: list[tuple[str, int, str]]  # Period, number of documents, and words


@dataclass(frozen=True)
class FieldSection:
    """A section of the page: its anchor, its title, a paragraph, charts, tables and notes."""

    anchor: str
    title: str
    text: str
    charts: list[TopicChart]
    tables: list[PeriodWords] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def field_sections(
    run: str | os.PathLike[str], fields: FieldOptions, effect: EffectOptions, source: SummarySource
) -> list[FieldSection]:
    """Return the sections that the options ask for."""
    unused = next((name for name in sorted(effect.model_fields_set) if name != "cluster"), None)
    if fields.effects is None and unused is not None:
        raise OptionError("applies only to the section that `effects` adds", unused)
    if fields.word_topics is not None and fields.words_by is None and fields.words_over is None:
        raise OptionError("applies only to the sections that `words_by` and `words_over` add", "word_topics")
    if fields.effects is None and fields.words_by is None and fields.words_over is None:
        return []
    if fields.effects is not None:
        with _named_as("effects", "formula"):
            check_formula(fields.effects)
            require_formulaic()
    shares = {topic.id: topic.share for topic in topics(run, 1)}
    for topic in fields.word_topics or ():
        if topic not in shares:
            raise OptionError(f"{topic}: there is no such topic", "word_topics")
    chosen = list(dict.fromkeys(fields.word_topics or sorted(shares, key=lambda topic: -shares[topic])[:WORD_TOPICS]))
    _check_words(run, fields, chosen, effect.cluster, source)
    documents = sum(shard.documents for shard in Model(run).record.shards)
    sections = []
    if fields.effects is not None:
        corpus = None if source.corpus is None else os.fspath(source.corpus)
        posterior = PosteriorOptions(posteriors="sampled" if documents <= SAMPLED else "fit", corpus=corpus)
        with _named_as("effects", "formula"):
            scheduling, progress, by_field = source.scheduling, source.progress, not (effect.at or effect.contrast)
            views = estimated(run, fields.effects, effect, posterior, scheduling, progress, by_field=by_field)
        sections.append(_effects_section(fields.effects, views, effect.level))
    reading = {"corpus": source.corpus, "progress": source.progress, **dict(source.scheduling)}
    with _named_as("word_topics", "topic", "topics"):
        if fields.words_by is not None:
            with _named_as("words_by", "field"):
                compared = [words_by(run, topic, fields.words_by, **reading) for topic in chosen]
            sections.append(_groups_section(compared))
        if fields.words_over is not None:
            with _named_as("words_over", "period"):
                followed = words_over(run, chosen, fields.words_over, **reading)
            sections.append(_periods_section(followed))
    return sections


def _check_words(
    run: str | os.PathLike[str], fields: FieldOptions, chosen: Sequence[int], cluster: str | None, source: SummarySource
) -> None:
    """Refuse groups, periods and clusters that do not exist before the first section is computed."""
    if fields.words_by is None and fields.words_over is None:
        return
    model, corpus = open_training(run, source.corpus)
    documents = RunSource(model.folder.address, corpus.references, np.array(chosen))
    with closing(open_executor(**dict(source.scheduling))) as executor:
        if fields.words_by is not None:
            with _named_as("words_by", "field"):
                compared_groups(documents, executor, fields.words_by)
        if cluster is not None:
            groups_of(documents, executor, cluster, "cluster")
        if fields.words_over is not None:
            with _named_as("word_topics", "topics"), _named_as("words_over", "period"):
                followed_periods(documents, executor, fields.words_over, len(model.vocabulary.words))


@contextmanager
def _named_as(option: str, *parameters: str) -> Iterator[None]:
    """Name an option of the report in errors on a function's parameters."""
    try:
        yield
    except OptionError as error:
        raise OptionError(
            error.message, option if error.parameter in (None, *parameters) else error.parameter
        ) from None


# ---- effects


def _effects_section(formula: str, views: Sequence[Effects], level: float) -> FieldSection:
    """Return forests of differences and coefficients, and curves of predictions."""
    charts: list[TopicChart] = []
    for view in views:
        along = number_along(view)
        charts += _forests(view) if along is None else _curves(view, along)
    first = views[0]
    errors = f"clustered ({first.clusters:,} clusters)" if first.errors == "cluster" else first.errors
    odds = first.link == "logit" and any(view.kind != "prediction" for view in views)
    text = (
        f"Estimates of the formula {plain(formula)} with {level:.0%} intervals and {errors} errors, from "
        f"{first.documents:,} documents. Differences are in {'log odds' if odds else 'percentage points'}; "
        "grey intervals contain zero."
    )
    notes = dict.fromkeys(note for view in views for note in view.notes)
    return FieldSection("effects", "Effects", text, charts, notes=list(notes))


def _scale(effects: Effects) -> float:
    """Return the factor of percentage points, which log odds do not have."""
    return 1.0 if effects.link == "logit" and effects.kind != "prediction" else 100.0


def _forests(effects: Effects) -> list[TopicChart]:
    """Return a forest for each term."""
    rows = rows_of_terms(effects, MAX_CHARTS)
    with np.errstate(divide="ignore", invalid="ignore"):
        clear = np.nan_to_num(np.abs(effects.estimate[rows] / effects.se[rows]).max(axis=0, initial=0.0))
    shown = np.sort(np.argsort(-clear, kind="stable")[:MAX_TOPICS]).tolist()
    names = [f"{effects.topics[column]} {plain(effects.words[column])}" for column in shown]
    caption = "" if len(shown) == effects.topics.size else f"{len(shown)} of {effects.topics.size:,} topics"
    charts = []
    for row in rows:
        values = [
            tuple(_scale(effects) * float(part[row, column]) for part in (effects.estimate, effects.low, effects.high))
            for column in shown
        ]
        title = plain(effects.terms[row])
        charts.append(TopicChart(title, None, _forest(title, names, values), caption))
    return charts


def _forest(title: str, names: Sequence[str], rows: Sequence[tuple[float, ...]]) -> Markup:
    """Draw an estimate with its interval in each row, from the top down."""
    low, high = min(0.0, *(row[1] for row in rows)), max(0.0, *(row[2] for row in rows))
    room, bottom = 0.04 * (high - low or 1.0), float(len(rows))
    chart = Chart((low - room, high + room), (0.0, bottom), height=TOP + BOTTOM + ROW * bottom, left=NAMES)
    chart.line([(0.0, 0.0), (0.0, bottom)], "zero")
    places = [bottom - place - 0.5 for place in range(len(rows))]
    for place, name, (estimate, left, right) in zip(places, names, rows, strict=True):
        style = "c0" if left > 0.0 or right < 0.0 else "unclear"
        chart.line([(left, place), (right, place)], style)
        chart.dot(estimate, place, f"mark {style}", f"{name}: {estimate:.3g} [{left:.3g}, {right:.3g}]")
    labels = [(place, shortened(name, NAME_LETTERS)) for place, name in zip(places, names, strict=True)]
    return chart.drawn(f"{title}: {len(rows)} intervals", number_ticks(ticks(low, high)), labels, grid=False)


def _curves(effects: Effects, along: str) -> list[TopicChart]:
    """Return the curves of the topics that change most: a line with a band for each value of the other fields."""
    curves = list(curves_of(effects, along).items())
    lines = [(f"f{number % COLOURS}", plain(name)) for number, (name, _) in enumerate(curves) if name]
    charts = []
    for column in most_changed(effects)[:MAX_CHARTS]:
        low, high = (_scale(effects) * part[:, column] for part in (effects.low, effects.high))
        bottom, top = min(0.0, float(low.min())), max(0.0, float(high.max()))
        at = [float(values[along]) for values in effects.values]
        chart = Chart((min(at), max(at)), (1.05 * bottom, 1.05 * top), left=CURVE_LEFT)
        if bottom < 0.0:
            chart.line([(min(at), 0.0), (max(at), 0.0)], "zero")
        for number, (name, rows) in enumerate(curves):
            estimate = _scale(effects) * effects.estimate[:, column]
            upper, lower = ([(at[row], float(edge[row])) for row in rows] for edge in (high, low))
            chart.area([*upper, *reversed(lower)], f"shade f{number % COLOURS}")
            chart.line([(at[row], float(estimate[row])) for row in rows], f"c{number % COLOURS}", plain(name))
        title = shortened(f"{effects.topics[column]} {plain(effects.words[column])}", TITLE_LETTERS)
        alone = effects.kind == "prediction" and len(curves) == 1 and float(effects.estimate[:, column].min()) >= 0.0
        caption = _extremes(effects, column, along) if alone else ""
        marks = [(mark, f"{mark:g}") for mark in ticks(min(at), max(at))]
        drawn = chart.drawn(f"{title} along {along}", marks, number_ticks(ticks(*chart.y)))
        unit = "percent" if _scale(effects) == 100.0 else "log odds"
        below = ", ".join(filter(None, [f"{unit} along {plain(along)}", caption]))
        charts.append(TopicChart(title, int(effects.topics[column]), drawn, below, lines))
    return charts


def _extremes(effects: Effects, column: int, along: str) -> str:
    """Return the lowest and the highest share of a curve in words."""
    shares = effects.estimate[:, column]
    ends = [(name, int(place)) for name, place in (("lowest", shares.argmin()), ("highest", shares.argmax()))]
    return ", ".join(f"{name} {percent(shares[row])} ({float(effects.values[row][along]):.4g})" for name, row in ends)


# ---- words


def _groups_section(compared: Sequence[GroupWords]) -> FieldSection:
    """Return a forest of the words that each group uses more for a topic."""
    charts = []
    for words in compared:
        rows = words.records(GROUP_WORDS)
        for group in words.groups[:MAX_GROUPS]:
            chosen: list[Mapping[str, str | float]] = [row for row in rows if row["group"] == group]
            ends = [
                tuple(float(row["log_odds"]) + factor * float(row["se"]) for factor in (0.0, -1.96, 1.96))
                for row in chosen
            ]
            title = shortened(f"{words.topic} {words.name}", TITLE_LETTERS)
            drawn = _forest(f"{title}, {group}", [str(row["word"]) for row in chosen], ends)
            documents = f", {words.documents[group]:,} documents" if group in words.documents else ""
            charts.append(TopicChart(title, words.topic, drawn, f"{plain(group)}{documents}"))
    first = compared[0]
    left = len(first.groups) - MAX_GROUPS
    text = (
        f"Words that the groups of {plain(first.field)} use more for a topic than all other documents do: log-odds "
        "with 95% intervals, which allow for words that a document repeats."
    )
    notes = [f"{left:,} groups with fewer documents are not shown."] if left > 0 else []
    return FieldSection("words-by-group", f"Words by {plain(first.field)}", text, charts, notes=notes)


def _periods_section(words: WordsOver) -> FieldSection:
    """Return lines of the words that rise and fall in a topic, and the words of each period."""
    charts, tables, notes = [], [], []
    at = places_of(words.periods)
    span = float(at[-1] - at[0]) or 1.0
    rows = words.records(PERIOD_WORDS)
    named = labelled_periods(((at - at[0]) / span).tolist(), MAX_PERIODS)
    dates = [(float(at[row]), words.periods[row]) for row in named]
    for row, topic in enumerate(words.topics.tolist()):
        title = shortened(f"{topic} {words.names[row]}", TITLE_LETTERS)
        for direction, chosen in (
            ("rising", words.rising(row, CHANGED_WORDS)),
            ("falling", words.falling(row, CHANGED_WORDS)),
        ):
            if not chosen:
                notes.append(f"{title}: no word is clearly {direction}.")
                continue
            shares = 100.0 * words.probability[row][:, chosen]
            # The name of the last period needs room on the right.
            across = float(at[0]), float(at[-1]) + PERIOD_ROOM * span
            chart = Chart(across, (0.0, 1.08 * float(shares.max())), left=CURVE_LEFT)
            lines = []
            for number, (word, share) in enumerate(zip(chosen, shares.T.tolist(), strict=True)):
                chart.line(list(zip(at.tolist(), share, strict=True)), f"c{number}", words.words[word])
                lines.append((f"f{number}", plain(words.words[word])))
            drawn = chart.drawn(f"{title}, {direction}", dates, number_ticks(ticks(*chart.y)))
            charts.append(TopicChart(title, topic, drawn, f"{direction}: percent of the topic's tokens", lines))
        texts = [
            " ".join(
                plain(str(entry["word"])) for entry in rows if (entry["topic"], entry["period"]) == (topic, period)
            )
            for period in words.periods
        ]
        periods = zip(map(plain, words.periods), words.documents.tolist(), texts, strict=True)
        tables.append(PeriodWords(topic, title, list(periods)))
    text = (
        f"Words of topics by {plain(words.period)}: a chain after the fit smooths each period towards its neighbours, "
        "as strongly as predicts the last periods best. The charts have the words that change most clearly."
    )
    return FieldSection("words-over-time", "Words over time", text, charts, tables, notes)
