"""The experiment grid: families by numbers of topics and values of options, each with several seeds."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.models.registry import load_family, make_options, require_corpus, require_schedule
from collapsium.pipeline.workflows.compare.options import EVERY, GRID_OPTIONS, CompareOptions, number_of
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import MismatchError, OptionError, flag_of, suggestion

RANDOM = "random"  # Start of fits from a random state, without varied options
# Options of the loop that ``--set`` may change for a family
LIMITS = ("iterations", "samples", "sample_every", "score_every", "local_sweeps")
ESTIMATED_TOPICS = 100  # Number of topics in estimates of the work of families that determine their number
UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]")  # Characters that names of folders do not have


@dataclass(frozen=True)
class Cell:
    """A cell of the grid: fits of a family that differ only in their seeds."""

    name: str  # Name of its folder and record
    family: str  # The family
    topics: int | None  # Number of topics K, or the truncation; None if the family determines it
    start: str  # Start of the fits, and values of varied options, as text
    options: JsonObject  # Options of the family
    limits: JsonObject  # Fields of `collapsium.pipeline.engine.setup.limits.Limits`
    restarts: int  # Number of fits
    warm: bool = False  # Whether they start from the fits of another cell

    @property
    def iterations(self) -> int:
        """Iterations of each fit."""
        return Limits(**self.limits).sweeps

    @property
    def work(self) -> float:
        """Relative work of all fits: iterations times topics."""
        return float(self.iterations * self.restarts * (self.topics or ESTIMATED_TOPICS))


def cells_of(options: CompareOptions, shards: int) -> list[Cell]:
    """Return the cells in the order of fitting, with validated options."""
    cells = [cell for family in options.families for cell in _family_cells(options, family, warm=False)]
    if options.init_from is not None:
        sources = _family_cells(options, options.init_from, warm=False)
        source = max(sources, key=lambda cell: int(cell.options.get("init_topics", cell.topics or 0)))
        cells = [source, *(cell for cell in cells if cell.name != source.name)]
        others = [family for family in options.families if family != options.init_from]
        cells += [cell for family in others for cell in _family_cells(options, family, warm=True)]
    for cell in cells:
        Limits(**cell.limits).sampled(shards)
    return cells


def _family_cells(options: CompareOptions, family: str, *, warm: bool) -> list[Cell]:
    """Return a family's cells: each point of the grid with each combination of the values that vary."""
    require_schedule(family, "batch")
    fields = load_family(family).Options.model_fields
    varied = {**options.vary.get(EVERY, {}), **options.vary.get(family, {})}
    varied = {option: values for option, values in varied.items() if option in fields}
    suffix = f"-from-{options.init_from}" if warm else ""
    cells = []
    for values in itertools.product(*varied.values()):
        variant = dict(zip(varied, values, strict=True))
        texts = {option: _text(value) for option, value in variant.items()}
        names = "".join(f"-{option}-{UNSAFE.sub('_', text)}" for option, text in texts.items())
        for name, topics, start, point in _points(options, family, warm=warm):
            labels = [start] * (start != RANDOM) + [f"{option} = {text}" for option, text in texts.items()]
            checked, limits = _checked_options(options, family, topics, {**point, **variant})
            cells.append(
                Cell(
                    name=f"{name}{names}{suffix}",
                    family=family,
                    topics=topics,
                    start=", ".join(labels) or RANDOM,
                    options=checked,
                    limits=limits,
                    restarts=options.restarts,
                    warm=warm,
                )
            )
    if len({cell.name for cell in cells}) < len(cells):
        raise OptionError("--vary: values that differ only in punctuation cannot name folders; compare them one by one")
    return cells


def _text(value: Any) -> str:
    return "+".join(map(str, value)) or "none" if isinstance(value, (list, tuple)) else str(value)


def _points(options: CompareOptions, family: str, *, warm: bool) -> Iterator[tuple[str, int | None, str, JsonObject]]:
    """Yield a family's points of the grid, with name, K, start and options: by K, or by the number to start from."""
    fields = load_family(family).Options.model_fields
    start = f"from {options.init_from}" if warm else RANDOM
    if "topics" in fields:
        for topics in options.topics:
            yield f"{family}-{topics}", topics, start, {"topics": topics}
    elif "init_topics" in fields and not warm:
        for topics in options.init_topics:
            text = f"from {topics} topic{'s' * (topics > 1)}"
            yield f"{family}-from-{topics}", None, text, {"init_topics": topics}
    else:
        yield family, None, start, {}


def _checked_options(
    options: CompareOptions, family: str, topics: int | None, values: JsonObject
) -> tuple[JsonObject, JsonObject]:
    """Return the family's options and the limits of a cell: from the grid, ``--vary`` and ``--set``."""
    model, settings = load_family(family), options.settings.get(family, {})
    limits: JsonObject = {"iterations": options.iterations}
    if model.is_sampler and options.samples:
        limits.update(samples=options.samples, sample_every=options.sample_every)
    checked = {option: number_of(value, topics, f"{family}.{option}") for option, value in values.items()}
    for option, value in settings.items():
        named = f"{family}.{option}"
        if option in GRID_OPTIONS:
            raise OptionError(f"--set {named}: these span the grid; use --{option.replace('_', '-')}")
        if option in values:
            raise OptionError(f"--set {named}: --vary has several values of it; use one of the two")
        if option in LIMITS:
            limits[option] = value
        elif option not in model.Options.model_fields:
            known = (*model.Options.model_fields, *LIMITS)
            raise OptionError(f"--set {named}: unknown option of family '{family}'{suggestion(option, known)}")
        else:
            checked[option] = number_of(value, topics, named)
    try:
        Limits(**limits)
        make_options(family, checked)
    except OptionError as error:
        varied = dict.fromkeys((option for option in values if option not in GRID_OPTIONS), "--vary")
        flags = {**varied, **dict.fromkeys(settings, "--set")}

        def spell(option: str) -> str:
            named = f"{family}.{option.replace('_', '-')}"
            return f"{flags[option]} {named}" if option in flags else flag_of(option)

        raise OptionError(error.spelled(spell)) from None
    return checked, limits


def require_comparable(corpus: Corpus, options: CompareOptions) -> None:
    """Refuse a corpus that a family cannot fit, and one of vectors, which has no tokens to score."""
    for name in options.fitted_families:
        require_corpus(name, corpus)
    if corpus.holds != DOCUMENTS:
        raise MismatchError(
            f"{corpus.url}: a corpus of vectors; families are compared by held-out tokens, which vectors do not have: "
            "fit each, and score it with `collapsium evaluate RUN --unseen CORPUS`"
        )
