"""Options of a run, from keywords, flags and TOML files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field
from pydantic.fields import FieldInfo

from collapsium.pipeline.executors.schedulers import ExecutorOptions
from collapsium.pipeline.models.registry import elsewhere, family_names, load_family
from collapsium.pipeline.options import Location, Options, Value, kinds_of
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import AbsentError, InputError, OptionError, SettingError, flag_of, suggestion
from collapsium.storage.io.encodings import parse_toml, read_toml_text
from collapsium.storage.runs.run import MAX_RESTARTS, MAX_SAMPLES, MAX_START_STRENGTH
from collapsium.workers.options import Formerly, former_names, present_names, warn_renamed

PresetName = Literal["defaults", "clusters", "short-texts"]
# Options by preset: of `fit`, and of the families `lda` and `hdp`
PRESETS: Mapping[str, Mapping[str, object]] = {
    "defaults": {},
    "clusters": {
        "weights": "log-tf-idf",
        "init": "clusters",
        "init_strength": 300,
        "inverse_temperature": 0.75,
    },
    "short-texts": {"weights": "log-tf-idf", "init": "clusters", "init_strength": 20},
}
# The purpose of each, for help
PURPOSES: Mapping[str, str] = {
    "defaults": "to predict words",
    "clusters": "to group documents that are each about a single subject",
    "short-texts": "for documents of a few words",
}
PRESET_TEXT = "; ".join(
    f"{name}: {PURPOSES[name]} ({', '.join(f'`{option}` {value}' for option, value in chosen.items()) or 'no options'})"
    for name, chosen in PRESETS.items()
)
SHORT = 30  # Tokens of a document, on average, below which short-texts predicts and groups documents better


StopOn = Literal["counts", "objective", "score"]
Schedule = Literal["batch", "stochastic"]
Keep = Literal["all", "best"]
Combine = Literal["predictions", "consensus"]
Grow = Literal["auto", "always", "never"]
Tolerance = Annotated[float, Field(ge=0, le=1e300)] | Literal["auto"]
SCHEDULE, ENSEMBLES = "schedule", "ensembles"  # Headings in help
# The tolerance by which `collapsium.pipeline.engine.loop` stops a run, and local sweeps that are suggested
AUTO = "auto"
ITERATIONS = 200  # Iterations of the batch schedule by default
# The schedule that uses an option
OF_SCHEDULES = {"local_sweeps": "batch", "passes": "stochastic", "batch_shards": "stochastic"}
MOST = 1 << 31  # Largest value of a count: products of two fit into the 64-bit numbers of checkpoints
LocalSweeps = Annotated[int, Field(ge=1, le=MOST)] | Literal["auto"]


class Limits(Options):
    """Options of the loop: its end, the frequency of scores, the schedule of sweeps, and the samples.

    A tolerance of ``auto`` ends when the mean of the last quarter of the iterations differs little from the mean of the
    quarter before (see `collapsium.pipeline.engine.loop`): of the held-out score where `stop_on` is
    ``score``, else of the objective of a sampler, or of the change of the counts.
    """

    iterations: Annotated[int | None, Value("N")] = Field(
        None,
        ge=1,
        le=MOST,
        description=f"largest number of iterations: sweeps over the corpus (default: {ITERATIONS}), or "
        "minibatches of the stochastic schedule (default: as many as `passes` needs)",
    )
    tolerance: Annotated[Tolerance, Value("T", expected=f"a number of 0 or more, or {AUTO}")] = Field(
        0.0,
        description="stop before `iterations`. A number T: stop when an iteration moves less than this share of the "
        "tokens between topics or, with `stop_on` objective or score, changes this quantity by less than this share of "
        "its value. auto: stop when the quantity of `stop_on` has levelled off: its means over the last quarter of the "
        "iterations and over the quarter before differ by at most 5% (moved tokens), 0.25% (objective, which samplers "
        "use instead of moved tokens) or 0.05% (score), or by at most one standard error. Fits of lda and hdp that "
        "search for their inverse temperature run for at least 90% of the iterations (default: 0, never)",
    )
    stop_on: StopOn = Field(
        "counts",
        description="the quantity that the tolerance applies to: the expected counts, the family's objective, "
        "or the held-out score",
    )
    score_every: Annotated[int | None, Value("N", unit="iterations")] = Field(
        None,
        ge=1,
        le=MOST,
        description="number of iterations between two held-out scores (default: 1, or a pass of the "
        "stochastic schedule)",
    )
    local_sweeps: Annotated[
        LocalSweeps, Value("N|auto", heading=SCHEDULE, expected=f"a whole number of 1 or more, or {AUTO}")
    ] = Field(
        1,
        description="batch schedule: number of sweeps of each shard (a part of the corpus) before the shards exchange "
        "their counts. More than one saves traffic, but each sweep then improves the model a little less. auto: one "
        "sweep; if the exchange takes longer than the sweep, a notice says after the first iterations how many sweeps "
        "would take as long as the exchange",
    )
    schedule: Annotated[Schedule, Value(heading=SCHEDULE)] = Field(
        "batch",
        description="batch: each iteration sweeps all shards; stochastic: each iteration sweeps a minibatch of shards "
        "and moves the topics by a decreasing step, for corpora so large that one pass is enough",
    )
    grow: Annotated[Grow, Value(heading=SCHEDULE)] = Field(
        "auto",
        description="batch schedule: begin at random on a sample of the documents, and add the others as topics form, "
        "which reaches the same score with a third to three quarters of the work. auto: in large corpora, if the fit "
        "begins at random (`init`)",
    )
    passes: Annotated[int, Value("N", heading=SCHEDULE)] = Field(
        1, ge=1, le=MOST, description="stochastic schedule: passes over the corpus"
    )
    batch_shards: Annotated[int, Value("N", unit="shards", heading=SCHEDULE)] = Field(
        4, ge=1, le=MOST, description="stochastic schedule: shards in a minibatch, swept in parallel"
    )
    samples: Annotated[int, Value("S", heading=ENSEMBLES)] = Field(
        0,
        ge=0,
        le=MAX_SAMPLES,
        description="number of states of the fit, `sample_every` iterations apart, to save as models whose "
        "predictions are averaged; the last one is the final state (default: 0, only the final model)",
    )
    sample_every: Annotated[int, Value("T", unit="iterations", heading=ENSEMBLES)] = Field(
        0,
        ge=0,
        le=MOST,
        description="number of iterations between two saved states; required if `samples` is 2 or more",
    )

    @pydantic.model_validator(mode="after")
    def _go_together(self) -> Limits:
        if self.samples > 1 and not self.sample_every:
            raise OptionError(f"{self.samples} requires `sample_every`, the iterations between two", "samples")
        if self.sample_every and not self.samples:
            raise OptionError(f"{self.sample_every} requires `samples`, the number of saved states", "sample_every")
        if self.samples and self.tolerance:
            raise OptionError("counts from the last iteration, so it cannot be combined with `tolerance`", "samples")
        return self

    def require_used(self, *, heldout: bool) -> None:
        """Refuse options of a new fit, with or without held-out tokens, that have no effect on it.

        Records of earlier fits may have them.
        """
        for name, schedule in OF_SCHEDULES.items():
            if schedule != self.schedule and getattr(self, name) != type(self).model_fields[name].default:
                raise OptionError(f"applies only to `schedule` {schedule}, found {self.schedule}", name)
        if self.stop_on != "counts" and not self.tolerance:
            raise OptionError(f"{self.stop_on} requires `tolerance`, below which the fit stops", "stop_on")
        if self.score_every is not None and not heldout:
            raise OptionError(f"{self.score_every} requires a held-out corpus (`heldout`) to score", "score_every")

    @property
    def sweeps_per_exchange(self) -> int:
        """Sweeps of a shard before its counts are exchanged with the others."""
        return self.local_sweeps if isinstance(self.local_sweeps, int) else 1

    @property
    def sweeps(self) -> int:
        """Planned iterations of the batch schedule."""
        return ITERATIONS if self.iterations is None else self.iterations

    def planned(self, shards: int) -> int:
        """Return the planned iterations of a run over a number of shards."""
        if self.schedule == "batch":
            return self.sweeps
        # The first minibatch is one shard.
        first = 1 + -(-(shards - 1) // self.batch_shards)
        steps = first + (self.passes - 1) * -(-shards // self.batch_shards)
        return steps if self.iterations is None else min(steps, self.iterations)

    def sampled(self, shards: int) -> tuple[int, ...]:
        """Return the iterations after which a sample is saved."""
        last = self.planned(shards)
        sampled = tuple(last - back * self.sample_every for back in reversed(range(self.samples)))
        if sampled and sampled[0] < 1:
            raise OptionError(
                f"{self.samples} with `sample_every` {self.sample_every} requires more than "
                f"{(self.samples - 1) * self.sample_every} iterations, found {last}",
                "samples",
            )
        return sampled


class StartOptions(Options):
    """Options that choose other options, and from which state a fit begins."""

    preset: Annotated[PresetName | None, Value("PRESET")] = Field(
        None,
        description=f"set several options for a purpose; options that you set yourself take precedence. {PRESET_TEXT}",
    )
    seed: Annotated[int, Value("S")] = Field(0, description="seed of all random numbers")
    init: Annotated[Location | None, Value("INIT"), Formerly("start")] = Field(
        None,
        description="initial topic proportions of each document; the default rarely needs to be changed. "
        "quick-clusters: the document's shares of clusters of words or, if documents are short, the clusters of "
        "documents that are nearest to it; clusters: the single cluster that is nearest to the document's words, to "
        "group short documents; documents: the document's component in a mixture with one topic per document; tree: "
        "like documents, with a root topic for common words; random; or a Parquet file of proportions, as `collapsium "
        "infer` writes it (default: quick-clusters with lda and hdp, but random with seed words, dense "
        "responsibilities, the stochastic schedule, or fewer than two documents per topic; random with other families)",
    )
    init_strength: Annotated[float, Value("TOKENS"), Formerly("start_strength")] = Field(
        0.0,
        ge=0,
        le=MAX_START_STRENGTH,
        description="lda, hdp: weight, in tokens, of the initial proportions in each document's prior: as if the "
        "document had this many more tokens with these proportions",
    )


class EnsembleOptions(Options):
    """Options of several fits that differ in their seeds."""

    restarts: Annotated[int, Value("R", heading=ENSEMBLES, expected=f"a whole number up to {MAX_RESTARTS}")] = Field(
        0,
        ge=0,
        le=MAX_RESTARTS,
        description="number of fits with different seeds, in parallel, as separate runs under RUN/members/; "
        "`collapsium evaluate RUN` averages their predictions",
    )
    keep: Annotated[Keep, Value(heading=ENSEMBLES)] = Field(
        "all",
        description="all: keep every restart; best: keep only the one with the best held-out score, or with "
        "the best objective if nothing is held out. A score that chose the run is no longer an "
        "unbiased test of it",
    )
    combine: Annotated[Combine, Value(heading=ENSEMBLES)] = Field(
        "predictions",
        description="predictions: the restarts remain separate models, whose predictions are averaged; consensus: "
        "the topics of all restarts and samples are matched, their proportions and topics are averaged, and one more "
        "fit begins from the averages; all commands use the model of this fit. Only gibbs-hdp, gibbs-lda, hdp, "
        "keyword-lda, lda and vb-lda have a consensus",
    )


class FitOptions(EnsembleOptions, StartOptions, Limits):
    """Options of a fit, besides the options of the family and of execution."""

    heldout: Annotated[Location | None, Value("CORPUS")] = Field(
        None, description="corpus of held-out tokens of the same documents, scored during the fit"
    )
    warm: Annotated[Location | None, Value("RUN")] = Field(
        None,
        description="start from the topics and proportions of another run, of any family but hca. Its vocabulary must "
        "equal the vocabulary of the corpus, except for words that were appended since; if it has more topics than "
        "the fit, the largest are used. With the same family and `topics`, shards that both runs share continue from "
        "their saved states. With `resume`: the new location of the other run, if it was moved",
    )

    @property
    def limits(self) -> Limits:
        """Only the options of the loop, which a run records."""
        return Limits(**{name: getattr(self, name) for name in LIMIT_NAMES})

    def with_preset(self, family: str, options: Mapping[str, Any]) -> tuple[FitOptions, dict[str, Any]]:
        """Return these options and a family's, with the preset's beneath the ones that are named."""
        chosen = {} if self.preset is None else dict(PRESETS[self.preset])
        if not chosen:
            return self, dict(options)
        declared = load_family(family).Options
        loop_options = {name: chosen.pop(name) for name in list(chosen) if name in FitOptions.model_fields}
        unknown = next((name for name in chosen if name not in declared.model_fields), None)
        if unknown is not None:
            raise OptionError(
                f"{self.preset} sets `{unknown}`, and family '{family}' has none{elsewhere(unknown)}", "preset"
            )
        named = {name: getattr(self, name) for name in self.model_fields_set}
        options = present_names(options, former_names(declared), warn_renamed)
        return FitOptions(**{**loop_options, **named}), {**chosen, **options}


class MovedOptions(Options):
    """Locations of the inputs of a resumed run, where they were moved."""

    corpus: Annotated[Location | None, Value("CORPUS")] = Field(
        None, description="location of the run's corpus, if it was moved"
    )
    heldout: Annotated[Location | None, Value("CORPUS")] = Field(
        None, description="location of the run's held-out corpus, if it was moved"
    )
    warm: Annotated[Location | None, Value("RUN")] = Field(
        None, description="location of the run that this run started from, if it was moved"
    )
    init: Annotated[Location | None, Value("INIT"), Formerly("start")] = Field(
        None, description="location of the file of proportions that this run started from, if it was moved"
    )


LIMIT_NAMES = tuple(Limits.model_fields)
# Options of a run without the family's options, as a configuration file may name them
RUN_MODELS: tuple[type[Options], ...] = (FitOptions, ExecutorOptions)
RUN_NAMES = ("family", *(name for model in RUN_MODELS for name in model.model_fields))
KINDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def _toml_kinds(field: FieldInfo) -> tuple[type, ...]:
    """Return the types of an option's value in a TOML file."""
    kinds: list[type] = []
    for kind in kinds_of(field.annotation):
        kinds += [float, int] if kind is float else [kind if kind in KINDS else str]
    return tuple(dict.fromkeys(kinds))


RUN_KINDS: dict[str, tuple[type, ...]] = {
    "family": (str,),
    **{name: _toml_kinds(field) for model in RUN_MODELS for name, field in model.model_fields.items()},
}


@dataclass(frozen=True)
class Keys:
    """Options as a configuration file writes them."""

    path: str  # The file
    # For each parameter the table, such as ``[fit]``, or an empty text, and the key as it is written there
    written: Mapping[str, tuple[str, str]]

    @staticmethod
    def of(path: str, options: Iterable[str], former: Mapping[str, str]) -> Keys:
        """Return the keys at the top level of a file, some by the former names of options."""
        return Keys(path, written_once(path, {"": list(options)}, former))

    def explain(self, error: OptionError) -> OptionError:
        """Return the error with the file's names if the file sets the option that it is about, and else unchanged."""
        subject = error.subject
        if isinstance(error, InputError) or subject is None or subject not in self.written:
            return error
        return SettingError(self.path, error.spelled(self._quoted), self.written[subject][0])

    def renamed(self, text: str) -> str:
        """Return a text with the file's names in place of flags."""
        return OptionError(text).spelled(self._quoted)

    def as_written(self, text: str) -> str:
        """Return a text with quoted keys spelled as in the file."""
        for name, (_, key) in self.written.items():
            text = text.replace(f"'{name}'", f"'{key}'", 1)
        return text

    def _quoted(self, name: str) -> str:
        return repr(self.written[name][1]) if name in self.written else flag_of(name)


def option_of(key: str, former: Mapping[str, str]) -> str:
    """Return the option that a key of a file means, also by a former name."""
    name = key.replace("-", "_")
    return former.get(name, name)


def written_once(
    path: str, tables: Mapping[str, Iterable[str]], former: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Return the table and the key of each option of a file; refuse an option that is spelled in two ways."""
    written: dict[str, tuple[str, str]] = {}
    for table, keys in tables.items():
        spelled: dict[str, str] = {}
        for key in keys:
            before = spelled.setdefault(option_of(key, former), key)
            if before != key:
                raise SettingError(path, f"expected {before!r} or {key!r}, which are one option, found both", table)
        written |= {name: (table, key) for name, key in spelled.items()}
    return written


def former_names_of(family: str) -> dict[str, str]:
    """Return the former names of the options of a family and of its fits."""
    return former_names(load_family(family).Options, *RUN_MODELS)


def read_toml(path: str | os.PathLike[str]) -> JsonObject:
    """Read a TOML file; its faults are an `InputError`, `SettingError` or `AbsentError` with its path."""
    try:
        return parse_toml(read_toml_text(path))
    except FileNotFoundError:
        raise AbsentError(f"{os.fspath(path)}: no such file") from None
    except OSError as error:
        raise InputError(os.fspath(path), f"cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise SettingError(os.fspath(path), f"expected TOML ({error})") from None


def read_config(path: str, family: str | None) -> JsonObject:
    """Read options of the loop and of the family from the top level of a TOML file."""
    table = read_toml(path)
    chosen = family or table.get("family")
    if chosen is None:
        raise SettingError(
            path, f"expected a family ({', '.join(family_names())}), here or with `family`", "field 'family'"
        )
    try:
        former = former_names_of(str(chosen))
        known = (*load_family(str(chosen)).Options.model_fields, *RUN_NAMES)
    except OptionError as error:
        raise (error if family else Keys.of(path, table, {}).explain(error)) from None
    keys = Keys.of(path, table, former)
    options = {option_of(key, former): value for key, value in table.items()}
    for name, value in options.items():
        field = f"field '{keys.written[name][1]}'"
        if name not in known:
            raise SettingError(path, f"unknown option of family '{chosen}'{suggestion(name, known)}", field)
        if name in RUN_KINDS and type(value) not in RUN_KINDS[name]:
            kinds = " or ".join(KINDS[kind] for kind in RUN_KINDS[name])
            raise SettingError(path, f"expected {kinds}, found {value!r}", field)
    return options
