"""The experiment grid: families by numbers of topics and values of options, each with several seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.families.registry import load_family, make_options, require_corpus, require_schedule
from collapsium.pipeline.workflows.compare.option_values import GRID_OPTIONS, named_as_given, number_of, variants_of
from collapsium.pipeline.workflows.compare.options import CompareOptions
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.errors import MismatchError, OptionError, suggestion

RANDOM = "random"
"""Start of fits that begin from a random state, with all options as they are for others of the family."""
LIMITS = ("iterations", "samples", "sample_every", "score_every", "local_sweeps")
"""Limits of a fit that ``--set`` may give a family."""
FORESEEN_TOPICS = 100
"""Topics by which the work of a family that finds their number is foreseen."""


@dataclass(frozen=True)
class Cell:
    """A cell of the grid: fits of a family that differ in their seeds alone.

    Attributes
    ----------
    name : str
        Name of its folder and record.
    family : str
        The family.
    topics : int or None
        Number of topics K, or the most; None where the family finds it.
    start : str
        What the fits begin from, and which of their options vary, for people.
    options : dict
        Options of the family.
    limits : dict
        Fields of `collapsium.pipeline.engine.setup.limits.Limits`.
    restarts : int
        Number of fits.
    warm : bool
        Whether they begin from the fits of another cell.
    """

    name: str
    family: str
    topics: int | None
    start: str
    options: dict[str, Any]
    limits: dict[str, Any]
    restarts: int
    warm: bool = False

    @property
    def iterations(self) -> int:
        """Return the iterations of each fit."""
        return Limits(**self.limits).sweeps

    @property
    def work(self) -> float:
        """Return the work of all fits beside that of other cells: iterations times topics."""
        return float(self.iterations * self.restarts * (self.topics or FORESEEN_TOPICS))


@dataclass(frozen=True)
class _Span:
    """A place of a family in the grid, before its options vary: K, or what the fits start from."""

    name: str
    topics: int | None
    start: str
    options: dict[str, Any]


def cells_of(options: CompareOptions, shards: int) -> list[Cell]:
    """List the cells in the order in which they are fitted, all options checked.

    Parameters
    ----------
    options : CompareOptions
        Options of the comparison.
    shards : int
        Shards of the training corpus.

    Returns
    -------
    list of Cell
        The one that others begin from is the first.

    Raises
    ------
    OptionError
        An option of a family is unknown or out of range.
    """
    cells = [cell for family in options.families for cell in _family_cells(options, family, warm=False)]
    if options.start_from is not None:
        sources = _family_cells(options, options.start_from, warm=False)
        source = max(sources, key=lambda cell: int(cell.options.get("start_topics", cell.topics or 0)))
        cells = [source, *(cell for cell in cells if cell.name != source.name)]
        others = [family for family in options.families if family != options.start_from]
        cells += [cell for family in others for cell in _family_cells(options, family, warm=True)]
    for cell in cells:
        Limits(**cell.limits).sampled(shards)
    return cells


def _family_cells(options: CompareOptions, family: str, *, warm: bool) -> list[Cell]:
    """List a family's cells: a cell for each place in the grid and each variant of its options."""
    require_schedule(family, "batch")
    suffix = f"-from-{options.start_from}" if warm else ""
    cells = []
    for variant in variants_of(options.vary, family):
        for span in _spans(options, family, warm=warm):
            start = ", ".join(text for text in (span.start if span.start != RANDOM else "", variant.label) if text)
            values = {**span.options, **variant.options}
            family_options, limits = _checked_options(options, family, span.topics, values)
            cells.append(
                Cell(
                    name=f"{span.name}{variant.suffix}{suffix}",
                    family=family,
                    topics=span.topics,
                    start=start or RANDOM,
                    options=family_options,
                    limits=limits,
                    restarts=options.restarts,
                    warm=warm,
                )
            )
    if len({cell.name for cell in cells}) < len(cells):
        raise OptionError("--vary: values that differ in signs alone cannot name folders; compare them one by one")
    return cells


def _spans(options: CompareOptions, family: str, *, warm: bool) -> list[_Span]:
    """List a family's places: one a number of topics, if it has that option, else one a number that it starts from."""
    fields = load_family(family).Options.model_fields
    start = f"from {options.start_from}" if warm else RANDOM
    if "topics" in fields:
        return [_Span(f"{family}-{topics}", topics, start, {"topics": topics}) for topics in options.topics]
    if "start_topics" in fields and not warm:
        return [
            _Span(f"{family}-from-{topics}", None, start_text(topics), {"start_topics": topics})
            for topics in options.start_topics
        ]
    return [_Span(family, None, start, {})]


def start_text(topics: int) -> str:
    """Return the text for fits that start from a number of topics."""
    return f"from {topics} topic{'s' * (topics > 1)}"


def _checked_options(
    options: CompareOptions, family: str, topics: int | None, values: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the family's options and the limits of a cell, of what spans the grid, what varies and what is set."""
    half, settings = load_family(family), options.settings.get(family, {})
    limits: dict[str, Any] = {"iterations": options.iterations}
    if half.is_sampler and options.samples:
        limits.update(samples=options.samples, sample_every=options.sample_every)
    checked = {option: number_of(value, topics, f"{family}.{option}") for option, value in values.items()}
    for option, value in settings.items():
        named = f"{family}.{option}"
        if option in GRID_OPTIONS:
            raise OptionError(f"--set {named}: the grid has these; say --{option.replace('_', '-')}")
        if option in values:
            raise OptionError(f"--set {named}: --vary has several values of it; say one of the two")
        if option in LIMITS:
            limits[option] = value
        elif option not in half.Options.model_fields:
            known = (*half.Options.model_fields, *LIMITS)
            raise OptionError(f"--set {named}: unknown option of family '{family}'{suggestion(option, known)}")
        else:
            checked[option] = number_of(value, topics, named)
    try:
        Limits(**limits)
        make_options(family, checked)
    except OptionError as error:
        varied = dict.fromkeys((option for option in values if option not in GRID_OPTIONS), "--vary")
        raise named_as_given(error, family, {**varied, **dict.fromkeys(settings, "--set")}) from None
    return checked, limits


def require_comparable(corpus: Corpus, options: CompareOptions) -> None:
    """Refuse a corpus that a family does not take, and one of vectors, which has no tokens to score."""
    for name in options.fitted_families:
        require_corpus(name, corpus)
    if corpus.holds != DOCUMENTS:
        raise MismatchError(
            f"{corpus.url}: a corpus of vectors; families are compared by held-out tokens, which vectors do not have: "
            "fit each, and score it with `collapsium evaluate RUN --unseen CORPUS`"
        )
