"""Options of a comparison, and the grid of its cells: families by numbers of topics and values of options."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from collapsium.pipeline.analysis.metrics.catalogue import is_all, metrics_of, require_used
from collapsium.pipeline.engine.setup.limits import ITERATIONS, FitOptions, Limits, StartOptions
from collapsium.pipeline.models.registry import family_names, load_family, make_options, require_schedule
from collapsium.pipeline.options import Locations, Path, Value, names_of, parse_setting
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.data_types import Json, JsonObject
from collapsium.storage.errors import OptionError, flag_of, suggestion
from collapsium.storage.runs.comparison import RANDOM
from collapsium.workers.families.family import RANDOM_START, FamilyOptions
from collapsium.workers.options import Accepts, Formerly, first_names, former_names, present_names, warn_renamed

NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
SHARE = re.compile(rf"\s*({NUMBER})\s*/\s*K\s*")
COMMA = re.compile(r",(?![^\[]*\])")  # A comma between values, not within a list such as ["kind", "place"]
EVERY = "*"  # All families that have the option, in place of a family's name
# Options of families that are dimensions of the grid, set by the comparison's options of these names
GRID_OPTIONS = ("topics", "init_topics")
# Work of an iteration without topics, in topics; of a fit before its first iteration, and in all besides iterations
# (start, scores, metrics), in iterations; and of a family's iteration, relative to lda (1.2 million tokens of reviews)
WORK_OF_TOKENS, START_WORK, OTHER_WORK = 50, 4, 16
FAMILY_WORK = {"hdp": 1.3}
ESTIMATED_TOPICS = 100  # Number of topics in estimates of the work of families that determine their number
UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]")  # Characters that names of folders do not have


def parse_settings(texts: Sequence[str], flag: str = "--set") -> dict[str, dict[str, Any]]:
    """Read texts such as ``hdp.order=2``, whose values are TOML, and return the values by family and option.

    Texts of ``--vary`` have lists of values, as in ``lda.learn=["alpha"],[]``, and no family for all of them (``*``).
    """
    several, settings = flag == "--vary", dict[str, dict[str, Any]]()
    form = "OPTION=V,V or FAMILY.OPTION=V,V" if several else "FAMILY.OPTION=VALUE"
    for text in texts:
        name, equals, written = text.partition("=")
        owner, dot, option = name.strip().rpartition(".")
        values = [value.strip() for value in COMMA.split(written) if value.strip()] if several else [written]
        if not (equals and option.strip() and values) or bool(dot) != bool(owner) or not (owner or several):
            raise OptionError(f"{flag}: expected {form}, found {text!r}")
        parsed = [parse_setting(f"{option}={value}") for value in values]
        option = parsed[0][0]
        if option in settings.setdefault(owner or EVERY, {}):
            raise OptionError(f"{flag} {name.strip()}: is given twice")
        settings[owner or EVERY][option] = [value for _, value in parsed] if several else parsed[0][1]
    return settings


def number_of(value: Json, topics: int | None, named: str) -> Json:
    """Return a value, with a text such as ``0.1/K`` replaced by its number; nothing else is evaluated."""
    match = SHARE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    if topics is None:
        raise OptionError(f"--set {named}={value}: this family has no K, as it determines the number of topics")
    return float(match.group(1)) / topics


def require_options(flag: str, settings: Mapping[str, Mapping[str, Any]], families: Sequence[str]) -> None:
    """Refuse settings of families that are not compared, and options that no family has or the grid determines."""
    several = flag == "--vary"
    for owner, options in settings.items():
        owners = families if several and owner == EVERY else [owner]
        if not {*owners} <= {*families}:
            name = f"{owner}.{next(iter(options), 'option')}"
            raise OptionError(f"{flag} {name}: '{owner}' is not compared{suggestion(owner, families)}")
        known = {name: None for family in owners for name in load_family(family).Options.model_fields}
        known |= {} if several else dict.fromkeys(Limits.model_fields)
        for option, value in options.items():
            named = option if owner == EVERY else f"{owner}.{option}"
            if option in GRID_OPTIONS:
                raise OptionError(f"{flag} {named}: is a dimension of the grid; use {flag_of(option)}")
            if option not in known:
                of = (
                    "no compared family has such an option" if owner == EVERY else f"unknown option of family '{owner}'"
                )
                raise OptionError(f"{flag} {named}: {of}{suggestion(option, known)}")
            if several and (not value or _repeated(value) is not None):
                raise OptionError(f"{flag} {named}: expected different values, found {shown(value)}")


def _repeated(values: Sequence[object]) -> object:
    """Return the first value that is there before; None if there is none."""
    return next((value for number, value in enumerate(values) if value in values[:number]), None)


def shown(value: object) -> str:
    """Return an option's value as text."""
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, dict):
        settings = ((f"{owner}.{name}", setting) for owner, table in value.items() for name, setting in table.items())
        return " ".join(f"{name}={setting}" for name, setting in settings) or "none"
    return "none" if value is None else str(value)[:40]


_ELSEWHERE = (
    "other libraries, classifiers and labels are compared by `python -m tests.benchmarks.comparison` in Collapsium's "
    "repository"
)
_FROM_LABELS = "fit each family, and score it with `collapsium evaluate RUN --unseen CORPUS --given-labels`"
TOPICS, RESTARTS, FRACTION = (40, 80, 120), 10, 0.1
# Defaults of a comparison of numbers of topics
OVER_TOPICS: Mapping[str, Any] = {
    "families": ("lda",),
    "topics": (10, 20, 40, 80),
    "restarts": 2,
    "iterations": 50,
    "metrics": ("exclusivity", "dispersion"),
}
# A fit that removes redundant topics, from the largest number that is compared; searches take 100 iterations
REFERENCE, REFERENCE_ITERATIONS = "hdp", 100
SCORE_EVERY = 10  # Iterations between two scores when numbers of topics are compared; only the last score counts
SAMPLE_TOKENS = 2_000_000  # Tokens of the sampled documents over topics, so that numbers of topics take minutes


def _numbers(value: object, info: ValidationInfo) -> object:
    """Return whole numbers from a text with commas; a sequence is left to the type's validation."""
    if not isinstance(value, str):
        return value
    try:
        return tuple(int(number) for number in value.split(",") if number.strip())
    except ValueError:
        raise OptionError(f"expected whole numbers separated by commas, found {value!r}", info.field_name) from None


def _distinct(values: tuple[object, ...], info: ValidationInfo) -> tuple[object, ...]:
    if (repeated := _repeated(values)) is not None:
        raise OptionError(f"{repeated} is named twice", info.field_name)
    return values


def _parsed(value: object, info: ValidationInfo) -> dict[str, Any]:
    """Return settings or varied options, by family, from texts or a mapping, with the options' present names."""
    name = str(info.field_name)
    if not isinstance(value, Mapping):
        value = parse_settings(names_of(value, name), "--vary" if name == "vary" else "--set")
    # What is no mapping is refused later.
    return {
        owner: present_names(settings, former_names(*_options_of(owner)), warn_renamed)
        if isinstance(settings, Mapping)
        else settings
        for owner, settings in value.items()
    }


def _options_of(owner: str) -> list[type[FamilyOptions]]:
    """Return the options of a family, or of every family."""
    return [load_family(name).Options for name in family_names() if owner in (EVERY, name)]


Count = Annotated[int, Field(strict=True, ge=1)]
Names = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value, info: names_of(value, str(info.field_name))),
    AfterValidator(_distinct),
    Accepts(str | Sequence[str]),
]
Counts = Annotated[tuple[Count, ...], BeforeValidator(_numbers), AfterValidator(_distinct)]
Location = Annotated[str, BeforeValidator(os.fspath), Accepts(Path)]
Settings = Annotated[dict[str, JsonObject], BeforeValidator(_parsed)]
Vary = Annotated[dict[str, dict[str, list[Any]]], BeforeValidator(_parsed)]


_GRID, _HELD_OUT = "experiment grid", "held-out data"
_METRICS = "further metrics (see `collapsium evaluate --help`)"


class CompareOptions(StartOptions, Limits):
    """Options of a comparison; several names or numbers may also be a text with commas."""

    model_config = ConfigDict(strict=False)
    gone: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("peers", "classifiers", "covariates", "lda_topics", "slda_topics"), _ELSEWHERE),
        **dict.fromkeys(("labels", "without"), """use `vary`, such as labels=["kind","place"]"""),
        "unseen": _FROM_LABELS,
        "field": f"{_FROM_LABELS} --field NAME",
        **dict.fromkeys(("init_from", "start_from"), "fit from another run with `collapsium fit --warm RUN`"),
    }

    over: Annotated[Literal["families", "topics"] | None, Value(heading=_GRID)] = Field(
        None,
        description="families: fit all of them, with many seeds; topics: find the number of topics for one family, in "
        f"minutes: two seeds of {OVER_TOPICS['iterations']} iterations, a sample of the documents if there are many, "
        "the metrics that distinguish numbers of topics, and a recommendation with its reason (default: topics if only "
        "`topics` is given, else families)",
    )
    sample_documents: Annotated[int | None, Value("N", unit="documents", heading=_HELD_OUT)] = Field(
        None,
        ge=1,
        description="documents to compare on, drawn at random (default: all; over topics, as many as have about "
        f"{SAMPLE_TOKENS:,} tokens)",
    )
    families: Annotated[Names, Value("A,B", text=True, heading=_GRID)] = Field(
        (),
        description="families to fit (default: all that need only words and a number of topics; over topics, lda)",
    )
    topics: Annotated[Counts, Value("K,K", text=True, heading=_GRID)] = Field(
        TOPICS,
        description=f"numbers of topics K to fit (default: {','.join(map(str, TOPICS))}; over topics: "
        f"{','.join(map(str, OVER_TOPICS['topics']))})",
    )
    init_topics: Annotated[Counts, Value("N,N", text=True, heading=_GRID), Formerly("start_topics")] = Field(
        (1, 100), description="initial numbers of topics of gibbs-hdp, which has no `topics`"
    )
    restarts: Annotated[Count, Value("R", heading=_GRID)] = Field(
        RESTARTS,
        description=f"number of random seeds for each cell of the grid (default: {RESTARTS}; over topics: "
        f"{OVER_TOPICS['restarts']})",
    )
    settings: Annotated[
        Settings, Value("FAMILY.OPTION=VALUE", flag="--set", heading=_GRID, note="see below, and may be repeated")
    ] = Field({}, description="options of families, or of their fits, by family")
    vary: Annotated[
        Vary, Value("[FAMILY.]OPTION=V,V", heading=_GRID, note="no FAMILY has the same meaning; may be repeated")
    ] = Field(
        {},
        description="values of families' options, by family; each value is a cell of the grid. The family * means all "
        "families that have the option",
    )
    heldout: Annotated[Location | None, Value("CORPUS", heading=_HELD_OUT)] = Field(
        None, description="corpus of held-out tokens of the same documents; then no tokens are split off"
    )
    fraction: Annotated[float | None, Value("F", heading=_HELD_OUT)] = Field(
        FRACTION,
        gt=0,
        lt=1,
        description="share of the tokens to hold out, unless a corpus of held-out tokens is named (default: 0.1)",
    )
    metrics: Annotated[Names, Value("A,B", text=True, heading=_METRICS)] = Field(
        (), description="metrics of topics to add to the table, or all; means over the restarts"
    )
    coherence: Annotated[Locations | None, Value("CORPUS|TEXTS", text=True, heading=_METRICS)] = Field(
        None,
        description="documents in which co-occurrences of the topics' words are counted: texts for c_v, c_npmi and "
        "c_uci (default: the training corpus)",
    )
    label_field: Annotated[str | None, Value("NAME", heading=_METRICS)] = Field(
        None, description="field of labels that purity, nmi, ari and classifier-accuracy compare topics with"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: JsonObject) -> JsonObject:
        """Set the defaults that depend on the kind of comparison."""
        options = {name: value for name, value in values.items() if value is not None}
        if "heldout" in options and "fraction" in options:
            raise OptionError("`fraction` cannot be combined with `heldout`, which replaces the split")
        over = options.setdefault("over", "topics" if "topics" in options and "families" not in options else "families")
        defaults: JsonObject = {"iterations": ITERATIONS} if options.get("schedule", "batch") == "batch" else {}
        defaults |= {"fraction": None} if "heldout" in options else {}
        defaults |= OVER_TOPICS if over == "topics" else {}
        if "families" not in {**defaults, **options}:
            defaults["families"] = default_families()
        return {**defaults, **options}

    @model_validator(mode="after")
    def _require_consistent(self) -> CompareOptions:
        """Refuse unknown names, and options that exclude each other."""
        if not self.families:
            raise OptionError("expected one or more names, separated by commas", "families")
        for name in GRID_OPTIONS:
            if not getattr(self, name):
                raise OptionError("expected one or more, separated by commas", name)
        for family in self.fitted_families:
            require_schedule(family, self.schedule)
        if self.metrics:
            chosen = metrics_of(self.metrics)
            if not is_all(self.metrics):
                require_used(chosen, {"coherence": self.coherence, "label_field": self.label_field})
        elif self.coherence is not None or self.label_field is not None:
            raise OptionError("requires `metrics`", "label_field" if self.coherence is None else "coherence")
        require_options("--set", self.settings, self.fitted_families)
        require_options("--vary", self.vary, self.fitted_families)
        if self.over == "topics":
            self._require_only_topics()
        self.require_used(heldout=True)
        return self

    def _require_only_topics(self) -> None:
        """Refuse fits over topics that differ in more than their family and number of topics, or in other numbers."""
        for family in self.families:
            fields = load_family(family).Options.model_fields
            if "topics" not in fields:
                raise OptionError(f"{family} takes no number of topics; expected families with `topics`", "families")
            for owner in (EVERY, family):
                for option, values in self.vary.get(owner, {}).items():
                    if option in fields and len(values) > 1:
                        raise OptionError(
                            f"a comparison over topics has one value of each option, found {len(values)} of {option}; "
                            "name the `families` to compare options too",
                            "vary",
                        )

    @property
    def fitted_families(self) -> tuple[str, ...]:
        """The families to fit, including the reference of a comparison over topics."""
        return tuple(dict.fromkeys((*self.families, *((REFERENCE,) if self.over == "topics" else ()))))

    @property
    def limits(self) -> JsonObject:
        """The options of the loop that are not the defaults."""
        fields = Limits.model_fields
        return {name: getattr(self, name) for name in fields if getattr(self, name) != fields[name].default}

    @property
    def fit_options(self) -> dict[str, Any]:
        """Options of all fits."""
        return {name: getattr(self, name) for name in StartOptions.model_fields if name != "seed"}

    def record(self) -> JsonObject:
        """Return the options for a comparison's record, which has digests instead of folders of corpora.

        It has the names of 0.1, so that comparisons of 0.1 can be continued.
        """
        record = self.model_dump(mode="json", exclude={"heldout", "coherence"})
        for name in ("settings", "vary"):
            record[name] = {
                owner: first_names(settings, *_options_of(owner)) for owner, settings in record[name].items()
            }
        return first_names(record, CompareOptions)


def default_families() -> tuple[str, ...]:
    """Return the families that need only words, and no option other than the number of topics."""
    return tuple(
        name
        for name, family in ((name, load_family(name)) for name in family_names())
        if family.corpus_kind == DOCUMENTS
        and not (family.uses_labels or family.uses_segments)
        and not any(field.is_required() for option, field in family.Options.model_fields.items() if option != "topics")
    )


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
    iterations: int  # Iterations of each fit

    @property
    def work(self) -> float:
        """Relative work of all fits, with their starts and scores."""
        iteration_work = FAMILY_WORK.get(self.family, 1.0) * (WORK_OF_TOKENS + (self.topics or ESTIMATED_TOPICS))
        return (self.iterations + OTHER_WORK) * self.restarts * iteration_work


def cells_of(options: CompareOptions, shards: int) -> list[Cell]:
    """Return the cells in the order of fitting, with validated options."""
    cells = [cell for family in options.families for cell in _family_cells(options, family, shards)]
    if options.over == "topics" and REFERENCE not in options.families:
        largest = {"topics": (max(options.topics),), "restarts": 1, "iterations": REFERENCE_ITERATIONS, "vary": {}}
        cells += _family_cells(options.model_copy(update=largest), REFERENCE, shards)
    return cells


def _family_cells(options: CompareOptions, family: str, shards: int) -> list[Cell]:
    """Return a family's cells: each point of the grid with each combination of the values that vary."""
    fields = load_family(family).Options.model_fields
    varied = {**options.vary.get(EVERY, {}), **options.vary.get(family, {})}
    varied = {option: values for option, values in varied.items() if option in fields}
    # By K, or by the number of topics to start from: name, K, start and options of the family
    points: list[tuple[str, int | None, str, JsonObject]] = [(family, None, RANDOM, {})]
    if "topics" in fields:
        points = [(f"{family}-{topics}", topics, RANDOM, {"topics": topics}) for topics in options.topics]
    elif "init_topics" in fields:
        points = [
            (f"{family}-from-{topics}", None, f"from {topics} topic{'s' * (topics > 1)}", {"init_topics": topics})
            for topics in options.init_topics
        ]
    cells = []
    for values in itertools.product(*varied.values()):
        variant = dict(zip(varied, values, strict=True))
        texts = {
            option: ("+".join(map(str, value)) or "none") if isinstance(value, (list, tuple)) else str(value)
            for option, value in variant.items()
        }
        names = "".join(f"-{option}-{UNSAFE.sub('_', text)}" for option, text in texts.items())
        for name, topics, start, point in points:
            labels = [start] * (start != RANDOM) + [f"{option} = {text}" for option, text in texts.items()]
            checked, limits = _checked_options(options, family, topics, {**point, **variant})
            loop = Limits(**limits)
            loop.sampled(shards)
            cells.append(
                Cell(
                    name=f"{name}{names}",
                    family=family,
                    topics=topics,
                    start=", ".join(labels) or RANDOM,
                    options=checked,
                    limits=limits,
                    restarts=options.restarts,
                    iterations=loop.planned(shards),
                )
            )
    if len({cell.name for cell in cells}) < len(cells):
        raise OptionError("--vary: values that differ only in punctuation cannot name folders; compare them one by one")
    return cells


def _checked_options(
    options: CompareOptions, family: str, topics: int | None, values: JsonObject
) -> tuple[JsonObject, JsonObject]:
    """Return the family's options and the limits of a cell: from the grid, ``--vary`` and ``--set``."""
    from collapsium.pipeline.engine.setup.initialisation import StartSource

    model, settings = load_family(family), options.settings.get(family, {})
    limits: JsonObject = {"score_every": SCORE_EVERY} if options.over == "topics" else {}
    limits.update(options.limits)
    if not model.is_sampler:
        limits = {name: value for name, value in limits.items() if name not in ("samples", "sample_every")}
    checked = {option: number_of(value, topics, f"{family}.{option}") for option, value in values.items()}
    for option, value in settings.items():
        if option in values:
            raise OptionError(f"--set {family}.{option}: --vary has several values of it; use one of the two")
        if option in Limits.model_fields:
            limits[option] = value
        else:
            checked[option] = number_of(value, topics, f"{family}.{option}")
    try:
        Limits(**limits)
        beneath, full = FitOptions(**options.fit_options).with_preset(family, checked)
        start = StartSource.of(beneath.init or RANDOM_START, beneath.init_strength)
        config = make_options(family, full)
        if start is not None:
            start.require(family, config)
    except OptionError as error:
        varied = dict.fromkeys((option for option in values if option not in GRID_OPTIONS), "--vary")
        flags = {**varied, **dict.fromkeys(settings, "--set")}

        def spell(option: str) -> str:
            named = f"{family}.{option.replace('_', '-')}"
            return f"{flags[option]} {named}" if option in flags else flag_of(option)

        raise OptionError(error.spelled(spell)) from None
    return checked, limits
