"""The command `collapsium effects`."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from collapsium import pipeline
from collapsium.pipeline.analysis.options import EffectOptions, PosteriorOptions
from collapsium.pipeline.cli.command import JsonOptions, UsageError, argument, in_flags, named_options, print_json
from collapsium.pipeline.engine.edit_options import names_by_topic
from collapsium.pipeline.executors.schedulers import CertificateOptions, SchedulerOptions
from collapsium.pipeline.formatting import counted, plain
from collapsium.pipeline.monitoring.console import counting
from collapsium.pipeline.options import Location, Options, OverwriteOptions, Value
from collapsium.storage.errors import OptionError, flag_of
from collapsium.storage.io.file import require_free

EFFECTS_EPILOG = """examples:
  collapsium effects RUN --formula '~ party + bs(year, df=5)' --cluster speech
  collapsium effects RUN --formula '~ party * bs(date, df=5)' --at date --contrast party=R,D --picture gap.svg
  collapsium effects RUN --formula '~ president' --permutations 40
  collapsium effects RUN --formula '~ party' --words 7 --contrast party=R,D
  collapsium effects RUN --words 7 --over '5 years' --picture words.pdf
  collapsium effects --proportions theta.csv --data table.csv --formula '~ treatment'"""


class FormulaOptions(Options):
    """The fields of the documents."""

    formula: Annotated[str | None, Value("FORMULA")] = Field(
        None, description="fields and their terms, such as '~ party + bs(year, df=5)'; required, except with `over`"
    )


class PictureOptions(OverwriteOptions):
    """A figure of the estimates."""

    picture: Annotated[Location | None, Value("FILE")] = Field(
        None,
        description="draw the estimates with their intervals, as .png, .svg or .pdf: a curve for each topic along a "
        "number (`at`), else a forest plot of all terms; with `words`, the words",
    )
    title: Annotated[str | None, Value("TEXT")] = Field(None, description="title of the picture")
    names: Annotated[dict[int, str], BeforeValidator(names_by_topic), Value("ID=NAME", note="may be repeated")] = Field(
        {}, description="names of topics by id in the picture, in place of their words"
    )


class WordsOptions(Options):
    """A topic whose words are compared."""

    heading = "words"
    words: Annotated[int | None, Value("TOPIC")] = Field(
        None, description="compare the words of the topic with this id between groups, in place of the proportions"
    )
    over: Annotated[str | None, Value("PERIOD")] = Field(
        None, description="with `words`: follow them over periods of the date, or over the values of a field of numbers"
    )
    strength: Annotated[float | None, Value("TOKENS", unit="tokens")] = Field(
        None,
        gt=0,
        allow_inf_nan=True,
        description="with `over`: strength, in tokens, by which a period's words are smoothed towards the previous "
        "period (default: the strength that best predicts the last periods)",
    )


class TableOptions(Options):
    """Tables of any tool, in place of a run."""

    heading = "tables"
    proportions: Annotated[Location | None, Value("FILE")] = Field(
        None, description="CSV file with a row for each document and a column for each topic"
    )
    data: Annotated[Location | None, Value("FILE")] = Field(
        None, description="CSV file with a row for each document and a column for each field"
    )


def effects(
    run: Annotated[str | None, argument("RUN", "a run or a model")] = None,
    /,
    *,
    formula: FormulaOptions,
    options: EffectOptions,
    posterior: PosteriorOptions,
    words: WordsOptions,
    tables: TableOptions,
    scheduling: SchedulerOptions,
    certificates: CertificateOptions,
    output: JsonOptions,
    figure: PictureOptions,
) -> None:
    """Estimate how topic proportions differ by labels, numbers and dates of the documents, with intervals.

    The documents' proportions are regressed on fields that are stored with the corpus
    (`ingest --labels`, `--covariates` and `--date`; a date is a year with a fraction).
    The fit need not have used them. Estimates are shares: 0.05 means five percentage
    points.

    Formulas are written as in R. ~ party + year adds effects, ~ party * year lets the
    slope of year differ by party, bs(year, df=5) is a smooth curve, and C(year) has one
    effect per year. The operators are + - * : ^ ( ), and the functions bs, cr, cs, poly,
    C, I, scale, center, exp, log, log2, log10 and sqrt. Put names that are not plain
    words in backquotes. Each label of a field is compared with the most frequent one.
    Documents without a label have the level (missing); documents without a number have
    the mean and an indicator column.

    Without further options, the estimates are the formula's coefficients. With --at they
    are the proportions at certain values, averaged over all documents, and with
    --contrast differences of such proportions. For example, --at year gives a curve, and
    --contrast party=R,D --at year a difference along it.

    Standard errors include the uncertainty about each document's proportions, which are
    sampled with the topics fixed (in families with Dirichlet proportions; for others a
    notice says that this uncertainty is missing). Standard errors are robust to unequal
    variances. Documents that belong together, such as paragraphs of a speech, need
    --cluster FIELD, or the intervals are too narrow.

    --words TOPIC compares words instead: it shows, by log-odds, the words that each group
    of the formula's only field uses more often for a topic than all other documents or,
    with --contrast FIELD=A,B, than the other group. Standard errors treat documents, not
    tokens, as independent.

    --words TOPIC --over PERIOD follows the words of a topic over time, without a formula:
    the most probable words of each period (decade, '5 years', or a field of numbers), and
    the words that rise and fall. Neighbouring periods are smoothed towards one another,
    as strongly as best predicts the last ones.

    Without RUN, --proportions and --data name CSV files from any tool, with one row per
    document. Rows are matched by ids if the first column of the proportions contains
    ids and the data has a column of the same name, and by their order otherwise.

    The printed table has p-values adjusted over the topics by Holm's method. --json prints
    rows with topic, words, term, estimate, se, low, high, p (unadjusted) and p_adjusted.
    """
    # A picture that could not be written is refused before any work is done.
    if figure.picture is not None:
        from collapsium.pipeline.reporting.plots import effects as plots
        from collapsium.pipeline.reporting.plots.style import picture_kind

        picture_kind(figure.picture, "picture")
        if not figure.overwrite:
            require_free(figure.picture)
    elif named_options(figure):
        raise UsageError(f"{flag_of(next(iter(named_options(figure))))} requires --picture")
    execution = {**named_options(scheduling), "tls": certificates.tls}
    if words.over is not None or words.strength is not None:
        named = named_options(options, posterior, tables, formula)
        _require_only(named, ("corpus",), "--over")
        _follow_words(run, words, {**named, **execution}, figure, output.as_json)
        return
    if formula.formula is None:
        raise UsageError("--formula is required, such as --formula '~ party'")
    if words.words is not None:
        if run is None:
            raise UsageError("--words requires a RUN")
        named = named_options(options, posterior, tables)
        _require_only(named, ("contrast", "corpus"), "--words")
        _compare_words(run, words.words, formula.formula, {**named, **execution}, figure, output.as_json)
        return
    if (run is None) != (tables.proportions is not None and tables.data is not None):
        raise UsageError("expected either a RUN, or --proportions and --data")
    if run is None:
        unused = next(iter(named_options(posterior, scheduling)), None)
        if unused is not None:
            raise UsageError(f"{flag_of(unused)} requires a RUN")
        estimates = pipeline.table_effects(tables.proportions, tables.data, formula.formula, **named_options(options))
    else:
        named = named_options(options, posterior)
        with counting("estimating", "read") as progress:
            estimates = pipeline.effects(run, formula.formula, **named, **execution, progress=progress)
    if figure.picture is not None:
        plots.write_effects(estimates, figure.picture, title=figure.title, names=figure.names)
    if output.as_json:
        names = ("kind", "errors", "documents", "clusters")
        facts = {"formula": formula.formula, **{name: getattr(estimates, name) for name in names}}
        print_json({**facts, "rows": estimates.records(), "notes": estimates.notes})
        return
    _print(estimates, options.level)
    if figure.picture is not None:
        print(f"{figure.picture}: estimates with intervals")


@contextlib.contextmanager
def _flags(**flags: str) -> Iterator[None]:
    """Name the flags of this command in errors of functions whose parameters have other names."""
    try:
        yield
    except OptionError as error:
        if error.parameter not in flags:
            raise
        raise OptionError(error.message, flags[error.parameter]) from None


def _require_only(named: Mapping[str, object], applicable: Sequence[str], flag: str) -> None:
    unused = next((name for name in named if name not in applicable), None)
    if unused is not None:
        raise UsageError(f"{flag_of(unused)} does not apply to {flag}")


def _compare_words(
    run: str, topic: int, formula: str, named: dict[str, Any], figure: PictureOptions, as_json: bool
) -> None:
    """Print the words of each group, and draw them."""
    contrasts = named.pop("contrast", ())
    if len(contrasts) > 1:
        raise UsageError("--words takes one --contrast")
    field = formula.strip().removeprefix("~").strip().strip("`")
    if contrasts:
        # The two groups of a contrast such as ``party=R,D``; groups may contain the sign, too
        groups = contrasts[0].strip().removeprefix(f"`{field}`=").removeprefix(f"{field}=")
        named["contrast"] = groups.split(",")
    with _flags(topic="words", field="formula"), counting("comparing", "read") as progress:
        compared = pipeline.words_by(run, topic, field, **named, progress=progress)
    if figure.picture is not None:
        from collapsium.pipeline.reporting.plots.effects import write_words

        write_words(compared, figure.picture, title=figure.title, names=figure.names)
    rows = compared.records()
    if as_json:
        names = {"topic": compared.topic, "field": compared.field, "documents": compared.documents}
        print_json({**names, "rows": rows})
        return
    print(plain(f"topic {compared.topic}: {compared.name}"))
    for group in compared.groups:
        print(plain(group))
        print(f"  {'log-odds':>9} {'se':>8} {'z':>7} {'tokens':>9}  word")
        for row in rows:
            if row["group"] == group:
                columns = f"{row['log_odds']:9.3f} {row['se']:8.3f} {row['z']:7.2f} {row['tokens']:9.1f}"
                print(f"  {columns}  {plain(str(row['word']))}")


def _follow_words(
    run: str | None, words: WordsOptions, named: dict[str, Any], figure: PictureOptions, as_json: bool
) -> None:
    """Print the words of each period, and those that rise and fall, and draw them."""
    if run is None or words.words is None or words.over is None:
        needed = "--strength requires --over" if words.over is None else "--over requires a RUN and --words"
        raise UsageError(needed)
    named |= {} if words.strength is None else {"strength": words.strength}
    with _flags(topics="words", period="over"), counting("following", "read") as progress:
        followed = pipeline.words_over(run, words.words, words.over, **named, progress=progress)
    if figure.picture is not None:
        from collapsium.pipeline.reporting.plots.effects import write_words

        write_words(followed, figure.picture, title=figure.title, names=figure.names)
    [topic], [strength], [gain] = followed.topics.tolist(), followed.strength.tolist(), followed.gain.tolist()
    rows, changes = followed.records(), followed.changes()
    if as_json:
        # Infinite strengths and missing gains have no JSON.
        columns = {"strength": strength if strength < math.inf else None, "gain": None if math.isnan(gain) else gain}
        print_json({"topic": topic, "period": followed.period, **columns, "rows": rows, "changes": changes})
        return
    print(plain(f"topic {topic}: {followed.names[0]}"))
    width = max(map(len, followed.periods))
    for period, documents in zip(followed.periods, followed.documents.tolist(), strict=True):
        shown = " ".join(str(row["word"]) for row in rows if row["period"] == period)
        print(plain(f"  {period:>{width}} {documents:>9,}  {shown}"))
    print(f"  {'change':>7} {'first':>8} {'last':>8} {'peak':>{width}}  word")
    for row in changes:
        shares = f"{row['change']:7.2f} {row['first']:8.2%} {row['last']:8.2%}"
        print(plain(f"  {shares} {row['peak']:>{width}}  {row['word']}"))
    held = "words held constant" if math.isinf(strength) else f"strength {strength:,.0f} tokens"
    better = (
        ""
        if math.isnan(gain)
        else f"; the last periods are predicted {gain:.4f} nats per token better than if constant"
    )
    print(f"{held}{better}")


def _print(estimates: pipeline.Effects, level: float) -> None:
    """Print a block of lines for each term, a line for each topic."""
    width = max(len(str(topic)) for topic in estimates.topics.tolist())
    adjusted = estimates.p_adjusted
    for row, term in enumerate(estimates.terms):
        print(plain(term))
        tested = "" if estimates.kind == "prediction" else f" {'p':>8}"
        print(f"  {'id':>{width}} {'estimate':>9} {'se':>8} {f'{level:.0%} interval':>19}{tested}  words")
        for column, topic in enumerate(estimates.topics.tolist()):
            interval = f"[{estimates.low[row, column]:8.4f}, {estimates.high[row, column]:7.4f}]"
            known = "-" if math.isnan(adjusted[row, column]) else f"{adjusted[row, column]:.4f}"
            p = "" if estimates.kind == "prediction" else f" {known:>8}"
            estimate = f"{estimates.estimate[row, column]:9.4f} {estimates.se[row, column]:8.4f}"
            print(f"  {topic:>{width}} {estimate} {interval}{p}  {plain(estimates.words[column])}")
    errors = {"cluster": f"clustered ({estimates.clusters:,} clusters)", "robust": "robust (HC1)"}.get(
        estimates.errors, estimates.errors
    )
    tested = "" if estimates.kind == "prediction" else "; p adjusted over the topics by Holm's method"
    print(f"{counted(estimates.documents, 'document')}; errors {errors}{tested}")
    for note in estimates.notes:
        print(plain(in_flags(note)))
