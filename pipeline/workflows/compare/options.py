"""Options of a comparison."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from collapsium.pipeline.analysis.metrics.catalogue import is_all, metrics_of, require_used
from collapsium.pipeline.engine.setup.limits import ITERATIONS, Limits
from collapsium.pipeline.families.registry import family_names, load_family
from collapsium.pipeline.options import Locations, Options, Value, names_of
from collapsium.pipeline.workflows.compare.catalogue import CLASSIFIERS, LIBRARIES
from collapsium.pipeline.workflows.compare.option_values import parse_settings, parse_vary, require_varied
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import OptionError, suggestion

OF_HELD_OUT_TOKENS = ("heldout", "fraction", "peers", "start_from")  # Options of comparisons by held-out tokens only
# Options of comparisons on unseen documents only
OF_UNSEEN_DOCUMENTS = ("labels", "without", "field", "classifiers", "covariates", "lda_topics", "slda_topics")
TOPICS, RESTARTS, FRACTION = (40, 80, 120), 10, 0.1
UNSEEN_TOPICS, UNSEEN_RESTARTS = (200,), 1


def _names(value: object, info: ValidationInfo) -> tuple[str, ...]:
    """Return names from a sequence, or from a text with commas."""
    names = names_of(value, str(info.field_name))
    _require_distinct(names, info)
    return names


def _numbers(value: object, info: ValidationInfo) -> object:
    """Return whole numbers from a text with commas; a sequence is left to the type's validation."""
    if not isinstance(value, str):
        return value
    try:
        return tuple(int(number) for number in value.split(",") if number.strip())
    except ValueError:
        raise OptionError(f"expected whole numbers separated by commas, found {value!r}", info.field_name) from None


def _some_distinct(values: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
    if not values:
        raise OptionError("expected one or more, separated by commas", info.field_name)
    _require_distinct(values, info)
    return values


def _require_distinct(values: tuple[object, ...], info: ValidationInfo) -> None:
    repeated = next((value for number, value in enumerate(values) if value in values[:number]), None)
    if repeated is not None:
        raise OptionError(f"{repeated} is named twice", info.field_name)


def _settings(value: object) -> object:
    """Return settings from texts such as ``hdp.order=2``; a mapping stays."""
    return value if isinstance(value, Mapping) else parse_settings(names_of(value, "settings"))


def _vary(value: object) -> object:
    """Return varied options from texts such as ``eta=0.1,0.5``; a mapping stays."""
    return value if isinstance(value, Mapping) else parse_vary(names_of(value, "vary"))


Integer = Annotated[int, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=1)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
Counts = Annotated[tuple[Count, ...], BeforeValidator(_numbers), AfterValidator(_some_distinct)]
Location = Annotated[str, BeforeValidator(os.fspath)]
Settings = Annotated[dict[str, JsonObject], BeforeValidator(_settings)]
Vary = Annotated[dict[str, dict[str, list[Any]]], BeforeValidator(_vary)]


_GRID, _HELD_OUT = "experiment grid", "held-out data"
_PEERS, _CLASSES = "other libraries", "labels and classification (with --unseen)"
_METRICS = "further metrics (see `collapsium evaluate --help`)"


class CompareOptions(Options):
    """Options of a comparison; several names or numbers may also be a text with commas."""

    model_config = ConfigDict(strict=False)

    families: Annotated[Names, Value("A,B", text=True, heading=_GRID)] = Field(
        (),
        description="families to fit, separated by commas (default: all that need only words and a number of "
        "topics; with `unseen`, all that take labels)",
    )
    topics: Annotated[Counts, Value("K,K", text=True, heading=_GRID)] = Field(
        TOPICS, description=f"numbers of topics K to fit (default: {','.join(map(str, TOPICS))}; with `unseen`: 200)"
    )
    start_topics: Annotated[Counts, Value("N,N", text=True, heading=_GRID)] = Field(
        (1, 100), description="numbers of topics to start from, for families that determine their number of topics"
    )
    restarts: Annotated[Count, Value("R", heading=_GRID)] = Field(
        RESTARTS,
        description=f"number of random seeds for each cell of the grid (default: {RESTARTS}; with `unseen`: 1)",
    )
    start_from: Annotated[str | None, Value("FAMILY", heading=_GRID)] = Field(
        None,
        description="fit this family first, with the largest number of topics; start the others both at "
        "random and from its fits",
    )
    iterations: Annotated[Integer, Value("N", expected="a whole number", heading=_GRID)] = Field(
        ITERATIONS, description="iterations of each fit"
    )
    samples: Annotated[Integer, Value("S", expected="a whole number", heading=_GRID)] = Field(
        0, description="samplers: number of states whose predictions are averaged"
    )
    sample_every: Annotated[Integer, Value("T", expected="a whole number", heading=_GRID)] = Field(
        0, description="samplers: number of iterations between two such states"
    )
    settings: Annotated[Settings, Value("FAMILY.OPTION=VALUE", flag="--set", heading=_GRID)] = Field(
        {},
        description="an option of a family or library, see below; may be repeated",
    )
    vary: Annotated[Vary, Value("[FAMILY.]OPTION=V,V", heading=_GRID)] = Field(
        {},
        description="several values of an option, each a cell of the grid; * or no FAMILY means all families "
        "that have the option; may be repeated",
    )
    heldout: Annotated[Location | None, Value("CORPUS", heading=_HELD_OUT)] = Field(
        None, description="corpus of held-out tokens of the same documents; then no tokens of CORPUS are split off"
    )
    unseen: Annotated[Location | None, Value("CORPUS", heading=_HELD_OUT)] = Field(
        None, description="corpus of other documents, scored given their labels alone"
    )
    fraction: Annotated[float | None, Value("F", heading=_HELD_OUT)] = Field(
        FRACTION,
        gt=0,
        lt=1,
        description="share of the tokens to hold out, unless a corpus of held-out tokens is named (default: 0.1)",
    )
    seed: Annotated[Integer, Value("S", expected="a whole number", heading=_HELD_OUT)] = Field(
        0, description="seed of the split and of all fits"
    )
    peers: Annotated[Names, Value("A,B", text=True, heading=_PEERS)] = Field(
        (), description=f"other libraries to fit on the same grid: {', '.join(LIBRARIES)}"
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
    labels: Annotated[Names, Value("A,B", text=True, heading=_CLASSES)] = Field(
        (), description="fields of labels to use (default: all)"
    )
    without: Annotated[Names, Value("A,B", text=True, heading=_CLASSES)] = Field(
        (), description="also fit each family without these fields of labels"
    )
    field: Annotated[str | None, Value("NAME", heading=_CLASSES)] = Field(
        None, description="the field of labels, or the covariate, to predict"
    )
    classifiers: Annotated[Names, Value("A,B", text=True, heading=_CLASSES)] = Field(
        (), description=f"with `field`: classifiers to compare with (default: {', '.join(CLASSIFIERS)})"
    )
    covariates: Annotated[Names, Value("A,B", text=True, heading=_CLASSES)] = Field(
        (), description="covariates that lda-svm uses in addition to the labels"
    )
    lda_topics: Annotated[Counts, Value("K,K", text=True, heading=_CLASSES)] = Field(
        (200,), description="numbers of topics of lda-svm"
    )
    slda_topics: Annotated[Counts, Value("K,K", text=True, heading=_CLASSES)] = Field(
        (50,), description="numbers of topics of slda"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: JsonObject) -> JsonObject:
        """Refuse options of the other kind of comparison, and set the defaults that depend on the kind."""
        options = {name: value for name, value in values.items() if value is not None}
        on_unseen = "unseen" in options
        for name in OF_HELD_OUT_TOKENS if on_unseen else OF_UNSEEN_DOCUMENTS:
            if options.get(name):
                raise OptionError(f"`{name}` {'cannot be combined with' if on_unseen else 'requires'} `unseen`")
        if "heldout" in options and "fraction" in options:
            raise OptionError("`fraction` cannot be combined with `heldout`, which replaces the split")
        if not on_unseen:
            defaults: JsonObject = {"fraction": None} if "heldout" in options else {}
        else:
            defaults = {"topics": UNSEEN_TOPICS, "restarts": UNSEEN_RESTARTS, "fraction": None}
            defaults["classifiers"] = CLASSIFIERS if "field" in options else ()
        if "families" not in options:
            defaults["families"] = labelled_families() if on_unseen else all_families()
        return {**defaults, **options}

    @model_validator(mode="after")
    def _require_consistent(self) -> CompareOptions:
        """Refuse unknown names, and options that exclude each other."""
        if not self.families and self.start_from is None:
            raise OptionError("expected one or more names, separated by commas", "families")
        for family in self.fitted_families:
            shard_model = load_family(family).shard_model
            if self.unseen is not None and shard_model.folds_in_at_a_point:
                raise OptionError(f"'{family}' cannot score documents without seeing their words", "families")
        for name in self.peers:
            if name not in LIBRARIES:
                raise OptionError(f"unknown library '{name}'{suggestion(name, LIBRARIES)}", "peers")
        Limits(iterations=self.iterations, samples=self.samples, sample_every=self.sample_every)
        if self.metrics:
            chosen = metrics_of(self.metrics)
            if not is_all(self.metrics):
                require_used(chosen, {"coherence": self.coherence, "label_field": self.label_field})
        elif self.coherence is not None or self.label_field is not None:
            raise OptionError("requires `metrics`", "label_field" if self.coherence is None else "coherence")
        compared = (*self.fitted_families, *self.peers)
        for owner, options in self.settings.items():
            if owner not in compared:
                name = next(iter(options), "option")
                raise OptionError(f"--set {owner}.{name}: '{owner}' is not compared{suggestion(owner, compared)}")
        require_varied(self.vary, self.fitted_families)
        self._require_classification()
        return self

    def _require_classification(self) -> None:
        for name in self.classifiers:
            if name not in CLASSIFIERS:
                raise OptionError(f"unknown classifier '{name}'{suggestion(name, CLASSIFIERS)}", "classifiers")
        if self.classifiers and self.field is None:
            raise OptionError("requires `field`, the field to predict", "classifiers")
        if self.field is not None and self.field in self.without:
            raise OptionError(f"'{self.field}' is the field to predict (`field`)", "without")

    @property
    def fitted_families(self) -> tuple[str, ...]:
        """The families to fit, including the source of warm starts."""
        return self.families if self.start_from is None else (*self.families, self.start_from)

    def record(self) -> JsonObject:
        """Return the options for a comparison's record, which has digests instead of folders of corpora."""
        return self.model_dump(mode="json", exclude={"heldout", "unseen", "coherence"})


def all_families() -> tuple[str, ...]:
    """Return the families that need only words, the default."""
    return tuple(name for name in family_names() if _takes_words_alone(name) and fits_by_itself(name))


def labelled_families() -> tuple[str, ...]:
    """Return the families that use labels, the default on unseen documents."""
    return tuple(name for name in family_names() if load_family(name).shard_model.uses_labels and fits_by_itself(name))


def _takes_words_alone(family: str) -> bool:
    model = load_family(family)
    return model.corpus_kind == DOCUMENTS and not (model.shard_model.uses_labels or model.shard_model.uses_segments)


def fits_by_itself(family: str) -> bool:
    """Return whether a family requires no option other than the number of topics."""
    fields = load_family(family).Options.model_fields
    return not any(field.is_required() for name, field in fields.items() if name != "topics")
