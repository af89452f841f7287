"""The file of a batch job: its tables, their validation as far as possible without the sources, and derived options."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from collapsium.pipeline.corpora.options import IngestOptions
from collapsium.pipeline.engine.setup.limits import (
    LIMIT_NAMES,
    EnsembleOptions,
    FitOptions,
    Keys,
    Limits,
    StartOptions,
    former_names_of,
    option_of,
    read_toml,
    written_once,
)
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.schedulers import LOCAL_SCHEDULERS, CertificateOptions
from collapsium.pipeline.models.registry import load_family, make_options, require_schedule
from collapsium.pipeline.options import Options, Value, error_of, names_of
from collapsium.storage.corpus.manifest import DOCUMENTS, VECTORS
from collapsium.storage.data_types import Json, JsonObject
from collapsium.storage.errors import InputError, MismatchError, OptionError, SettingError, suggestion
from collapsium.storage.io.file import path_of
from collapsium.storage.runs.members import CONSENSUS
from collapsium.storage.units import parse_size
from collapsium.workers.families import word_weights
from collapsium.workers.families.family import COMPUTED_STARTS, RANDOM_START, FamilyOptions
from collapsium.workers.options import first_names, former_names


class BatchOptions(Options):
    """Acceptance of the new model."""

    accept: bool = Field(False, description="publish the new model even if it scores worse")


class RollbackOptions(Options):
    """The version to make the current one."""

    to: Annotated[int | None, Value("N")] = Field(
        None, description="number of the version (default: the one before the current version)"
    )


TOLERANCE = 0.01  # Default tolerance: share of the tokens that an iteration moves below which a fit ends
WARM_SHARE = 0.4  # Default limit of a warm-started fit, as a share of the iterations
SIZE = "max_decompressed"  # Option that may be written as ``20GB``


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Open(_Table):
    """A table that accepts further keys, which are validated by the function they are for."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    @property
    def further(self) -> dict[str, Any]:
        """The further keys and their values."""
        return {name.replace("-", "_"): value for name, value in (self.model_extra or {}).items()}


class BatchTable(_Table):
    """The table ``[batch]``."""

    folder: str = Field(description="folder of the job: corpus, runs, published models, journal")
    keep: Annotated[int, Field(ge=1)] = Field(5, description="published versions to keep; older ones are removed")


class IngestTable(_Open):
    """The table ``[ingest]``; further keys are options of `collapsium ingest`."""

    sources: tuple[str, ...] = Field(description="files, folders and globs; new ones are appended")
    grow: bool = Field(False, description="add new words to the vocabulary; the ids of known words stay")
    skip_existing: bool = Field(
        False, description="leave out documents whose ids are already in the corpus; otherwise they are an error"
    )


class HeldoutTable(_Table):
    """The table ``[heldout]``."""

    fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1, description="share of each document's tokens, or of the vectors, to hold out"
    )
    seed: int = Field(0, description="seed of the random split")


class FitTable(EnsembleOptions, StartOptions, Limits):
    """The table ``[fit]``; further keys are options of the family."""

    model_config = ConfigDict(extra="allow")

    family: str = Field(description="the model family")
    warm: bool = Field(True, description="start each fit from the last published version")
    warm_iterations: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description=f"largest number of iterations of a warm-started fit (default: {WARM_SHARE:.0%} of `iterations`)",
    )
    refit_growth: Annotated[float, Field(ge=0, allow_inf_nan=True)] = Field(
        0.0,
        description="share by which the documents must have grown since the last fit before there is another; until "
        "then new documents are folded in with the published topics",
    )
    memory: str | int | None = None
    scratch: str | None = None
    checkpoint_every: int | None = None

    def with_preset(self) -> tuple[FitOptions, dict[str, Any]]:
        """Return the options of a fit that the table names, and the family's, with the preset's beneath."""
        named = self.model_fields_set & (FitOptions.model_fields.keys() - {"warm"})
        family_options = {name.replace("-", "_"): value for name, value in (self.model_extra or {}).items()}
        return FitOptions(**{name: getattr(self, name) for name in named}).with_preset(self.family, family_options)


class InferTable(_Table):
    """The table ``[infer]``."""

    threshold: Annotated[float, Field(ge=0, lt=1)] = Field(0.001, description="leave out smaller proportions")


class AlarmTable(_Table):
    """The table ``[alarm]``."""

    worse_by: Annotated[float, Field(ge=0)] = Field(
        0.01,
        description="tolerated loss of a new model relative to the published one: nats per held-out token or, for "
        "vectors, share of the reconstruction error; a margin for chance is added, one over the "
        "square root of the number of held-out tokens or vectors",
    )
    command: tuple[str, ...] = Field(
        (), description="program and arguments to run on an alarm; it reads the alarm as JSON from standard input"
    )


class ReportTable(_Table):
    """The table ``[report]``."""

    out: str | None = Field(None, description="write a copy of the newest version's report here")
    enabled: bool = Field(True, description="write a report of each version")


class ClusterTable(_Table):
    """The table ``[cluster]``: the executor of all steps."""

    scheduler: str = Field(
        "threads", description="threads, local, serial, or the address or the file of a Dask scheduler"
    )
    workers: int | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    cluster_timeout: float | None = None
    strict_bits: bool = Field(False, description="stop with an error if processors or library versions differ")


class Job(_Table):
    """A batch job."""

    # The tables of the file
    batch: BatchTable
    ingest: IngestTable
    heldout: HeldoutTable = HeldoutTable()
    fit: FitTable
    infer: InferTable = InferTable()
    alarm: AlarmTable = AlarmTable()
    report: ReportTable = ReportTable()
    cluster: ClusterTable = ClusterTable()
    _name: str = pydantic.PrivateAttr("")

    @property
    def name(self) -> str:
        """The job's name: its file's name without the suffix."""
        return self._name

    @property
    def holds(self) -> str:
        """Contents of the corpus, ``documents`` or ``vectors``, which the family determines."""
        return str(load_family(self.fit.family).corpus_kind)

    @property
    def limits(self) -> dict[str, Any]:
        """Options of the loop from the file, with a default tolerance where fits can end by one."""
        # Trees of vectors grow after counts have converged, and samples count from the last iteration.
        settings, _ = self.fit.with_preset()
        options = {name: getattr(settings, name) for name in LIMIT_NAMES if name in settings.model_fields_set}
        converges = options.get("schedule") != "stochastic" and not options.get("samples") and self.holds == DOCUMENTS
        return {"tolerance": TOLERANCE, **options} if converges else options

    def limits_when(self, warm: bool) -> dict[str, Any]:
        """Return the options of the loop for a warm-started fit, or for another one."""
        options = self.limits
        if warm:
            limits = Limits(**options)
            least = max(limits.samples - 1, 0) * limits.sample_every + 1
            options["iterations"] = self.fit.warm_iterations or max(int(WARM_SHARE * limits.sweeps), least)
        return options

    @property
    def options(self) -> dict[str, Any]:
        """Options of the family."""
        return self.fit.with_preset()[1]

    @property
    def config(self) -> FamilyOptions:
        """Options of the family, validated."""
        return make_options(self.fit.family, self.options)

    @property
    def begins_warm(self) -> bool:
        """True if fits start from the last version, which fits of vectors cannot."""
        return self.fit.warm and self.limits.get("schedule") != "stochastic" and self.holds == DOCUMENTS

    @property
    def ensemble(self) -> dict[str, int | str]:
        """Options of an ensemble; empty for a single fit."""
        options: dict[str, int | str] = {}
        if self.fit.restarts:
            options = {"restarts": self.fit.restarts, "keep": self.fit.keep}
        return options | ({"combine": CONSENSUS} if self.fit.combine == CONSENSUS else {})

    @property
    def init(self) -> dict[str, str | float]:
        """Options of the initialisation of a fit that does not start from a version; empty where none are named."""
        settings, _ = self.fit.with_preset()
        return {} if settings.init is None else {"init": settings.init, "init_strength": settings.init_strength}

    @property
    def reading(self) -> dict[str, Any]:
        """Options of `ingest` for reading the sources."""
        options = self.ingest.further
        if self.holds == VECTORS:
            options.setdefault("format", VECTORS)
        if isinstance(options.get(SIZE), str):
            options[SIZE] = parse_size(options[SIZE], SIZE)
        return options

    @property
    def tls(self) -> TLS | None:
        """Certificates of the cluster."""
        return CertificateOptions(**self.cluster.model_dump(include={*CertificateOptions.model_fields})).tls

    def plan(self) -> dict[str, object]:
        """Return all options that determine a published model, without the corpus, by the names that they had in 0.1.

        Jobs that have begun continue only if the digest of these is the same.
        """
        config = self.config
        plan = {
            "family": self.fit.family,
            "options": first_names(config.model_dump(mode="json"), type(config)),
            "limits": self.limits,
            "seed": self.fit.seed,
            "heldout": self.heldout.model_dump(mode="json"),
            "warm": self.begins_warm,
            "warm_iterations": self.fit.warm_iterations,
            "threshold": self.infer.threshold,
            **self.ensemble,
            **self.init,
        }
        return first_names(plan, FitTable)


NAME_LISTS = ("labels", "covariates", "stop_words")  # Options that are lists of names, or strings with commas
# Options that a job cannot have, as these files would have to grow with the sources
SIDE_FILES = ("label_files", "label_names")
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
Table = TypeVar("Table", bound=BaseModel)


def read_job(path: str | os.PathLike[str]) -> Job:
    """Read a job, and validate it as far as possible without its sources."""
    file, tables = Path(path_of(path)), read_toml(path)
    # Refuses an option that is spelled in two ways.
    keys_of(path)
    try:
        former = _former_names(tables)
        present = {
            name: {option_of(key, former): value for key, value in table.items()} if isinstance(table, dict) else table
            for name, table in tables.items()
        }
        expanded = {name: _expanded(table, str(path)) for name, table in present.items()}
        # TOML has lists where options are tuples; a single string is a tuple of one.
        converted: dict[str, object] = dict(expanded)
        for name, key in (("ingest", "sources"), ("alarm", "command")):
            table = expanded.get(name)
            value = table.get(key) if isinstance(table, dict) else None
            if isinstance(table, dict) and isinstance(value, list | str):
                converted[name] = {**table, key: (value,) if isinstance(value, str) else tuple(value)}
        job = _with_fit_files(Job.model_validate(converted), file.resolve().parent)
        _require_known(job)
    except pydantic.ValidationError as error:
        raise _explained(error, path) from None
    except InputError:
        raise
    except OptionError as error:
        raise _as_written(error, path) from None
    resolved = _with_absolute_paths(job, file.resolve().parent)
    resolved._name = file.stem
    return resolved


def _as_written(error: OptionError, path: str | os.PathLike[str]) -> SettingError:
    """Return an error of an option with its table and its key, as the file spells it."""
    keys = keys_of(path)
    explained = keys.explain(error)
    return (
        explained if isinstance(explained, SettingError) else SettingError(os.fspath(path), keys.as_written(str(error)))
    )


def keys_of(path: str | os.PathLike[str]) -> Keys:
    """Return the options of a job as its file spells them; options that it leaves out keep their names."""
    tables = read_toml(path)
    tables = {name: table for name, table in tables.items() if isinstance(table, dict)}
    named: dict[str, tuple[str, str]] = {}
    for table, field in Job.model_fields.items():
        model = field.annotation
        fields = model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else {}
        named = {name: (f"[{table}]", name) for name in fields} | named
    with contextlib.suppress(OptionError):
        config = load_family(str(tables.get("fit", {}).get("family"))).Options
        named |= {name: ("[fit]", name) for name in config.model_fields}
    named |= {name: ("[ingest]", name) for name in IngestOptions.model_fields if name not in named}
    of_tables = {f"[{table}]": options for table, options in tables.items()}
    return Keys(os.fspath(path), named | written_once(os.fspath(path), of_tables, _former_names(tables)))


def _former_names(tables: JsonObject) -> dict[str, str]:
    """Return the former names of options in the tables ``[ingest]`` and ``[fit]``."""
    fit, former = tables.get("fit"), former_names(IngestOptions, FitTable)
    with contextlib.suppress(OptionError):
        former |= former_names_of(str(fit.get("family") if isinstance(fit, dict) else None))
    return former


@contextlib.contextmanager
def named_as_in(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let errors name options as a job's file spells them."""
    try:
        yield
    except OptionError as error:
        raise keys_of(path).explain(error) from error
    except MismatchError as error:
        if type(error) is not MismatchError:
            raise
        raise MismatchError(keys_of(path).renamed(str(error))) from error
    except InputError as error:
        if type(error) is not InputError:
            raise
        raise InputError(error.path, keys_of(path).renamed(error.expected), error.where) from error


def _expanded(value: Json, path: str) -> Json:
    """Replace environment variables in all strings."""
    if isinstance(value, dict):
        return {name: _expanded(item, path) for name, item in value.items()}
    if isinstance(value, list):
        return [_expanded(item, path) for item in value]
    if not isinstance(value, str):
        return value

    def variable(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in os.environ:
            raise SettingError(path, f"the environment has no variable {name}, which {value!r} contains")
        return os.environ[name]

    return VARIABLE.sub(variable, value)


def _explained(error: pydantic.ValidationError, path: str | os.PathLike[str]) -> SettingError:
    """Return the first error, with the nearest known key for an unknown one."""
    every = error.errors()
    first = next((error for error in every if error["type"] == "extra_forbidden"), every[0])
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, OptionError):
        return _as_written(cause, path)
    path = os.fspath(path)
    *tables, name = [str(part) for part in first["loc"] if not isinstance(part, int)]
    where = f"[{tables[0]}]" if tables else ""
    table = Job.model_fields[tables[0]].annotation if tables else Job
    model = table if isinstance(table, type) and issubclass(table, BaseModel) else Job
    if first["type"] == "extra_forbidden":
        known = model.model_fields
        return SettingError(path, f"unknown {'key' if tables else 'table'} '{name}'{suggestion(name, known)}", where)
    if first["type"] == "missing":
        return SettingError(path, f"{'key' if tables else 'table'} '{name}' is required", where)
    first["loc"] = first["loc"][len(tables) :]
    return SettingError(path, f"'{name}': {error_of(first, model).message}", where)


def _require_known(job: Job) -> None:
    """Refuse unknown keys, and options that a job cannot have."""
    from collapsium.pipeline.engine.setup import initialisation, request

    family = load_family(job.fit.family)
    if (job.reading.get("format") == VECTORS) != (job.holds == VECTORS):
        kind = job.reading["format"]
        raise OptionError(f"[ingest]: 'format': '{job.fit.family}' takes {job.holds}, found {kind!r}")
    if job.ingest.grow and job.holds == VECTORS:
        raise OptionError("[ingest]: 'grow': applies to documents; the columns of vectors are fixed")
    if job.fit.keep == "best" and not job.fit.restarts:
        raise OptionError("[fit]: 'keep': there is one fit only; set 'restarts' to fit several seeds")
    if job.fit.combine == CONSENSUS:
        models = max(job.fit.restarts, 1) * max(int(job.limits.get("samples", 0)), 1)
        request.require_combinable(job.fit.family, job.limits.get("schedule", "batch"), job.fit.keep, models)
    # Raises an error if it is neither a known initialisation nor a file that is there.
    settings, _ = job.fit.with_preset()
    start = initialisation.StartSource.of(settings.init or RANDOM_START, settings.init_strength)
    if start is not None:
        start.require(job.fit.family, job.config)
    if not job.ingest.sources:
        raise OptionError("[ingest]: 'sources' names no file")
    names = IngestOptions.model_fields
    for name, value in job.reading.items():
        if name in SIDE_FILES:
            raise OptionError(
                f"[ingest]: '{name}': a batch has no side files; 'labels' and 'covariates' are fields of its documents"
            )
        if name not in names:
            raise OptionError(f"[ingest]: unknown key '{name}'{suggestion(name, {*names, *IngestTable.model_fields})}")
        if name in NAME_LISTS and not isinstance(value, str | list):
            raise OptionError(f"[ingest]: '{name}': expected a list of strings, found {value!r}")
    try:
        IngestOptions(**job.reading)
    except OptionError as error:
        raise OptionError(f"[ingest]: '{error.parameter}': {error.message}") from None
    config = family.Options
    for name in job.options:
        if name not in config.model_fields:
            known = {*config.model_fields, *FitTable.model_fields}
            raise OptionError(f"[fit]: unknown key '{name}' of family '{job.fit.family}'{suggestion(name, known)}")
    limits = Limits(**job.limits)
    require_schedule(job.fit.family, limits.schedule)
    if limits.schedule == "batch":
        for warm in (False, job.begins_warm):
            # Raises if there are more samples than iterations.
            Limits(**job.limits_when(warm)).sampled(1)
    # These raise if the options or the certificates are invalid.
    _ = job.config, job.tls


def _absolute(path: str | None, base: Path) -> str | None:
    return path if path is None or "://" in path else str(base / Path(path).expanduser())


def _with_fit_files(job: Job, base: Path) -> Job:
    """Return a job with absolute paths of the files of its fit, which are read as it is checked."""
    from collapsium.pipeline.engine.setup import initialisation

    further, formulas = job.options, {"seeds": (), "weights": word_weights.FORMULAS}
    files: dict[str, object] = {
        name: _absolute(further[name], base)
        for name, words in formulas.items()
        if isinstance(further.get(name), str) and further[name] not in words
    }
    init = job.fit.init or RANDOM_START
    if init not in (RANDOM_START, *COMPUTED_STARTS) and init.lower().endswith(initialisation.ENDING):
        files["init"] = _absolute(init, base)
    return (
        job.model_copy(update={"fit": FitTable(**{**job.fit.model_dump(exclude_unset=True), **files})})
        if files
        else job
    )


def _with_absolute_paths(job: Job, base: Path) -> Job:
    """Return a job with absolute paths."""

    def table(model: Table, *names: str) -> Table:
        return model.model_copy(update={name: _absolute(getattr(model, name), base) for name in names})

    further = job.ingest.further
    for name in ("vocabulary", "like"):
        if isinstance(further.get(name), str):
            further[name] = _absolute(further[name], base)
    if "stop_words" in further:
        from collapsium.storage.readers.texts import stopwords

        lists = names_of(further["stop_words"])
        further["stop_words"] = [_absolute(entry, base) if stopwords.is_file_name(entry) else entry for entry in lists]
    sources = tuple(str(_absolute(source, base)) for source in job.ingest.sources)
    ingest = IngestTable.model_construct(**{**job.ingest.model_dump(), **further, "sources": sources})
    files = ["tls_ca", "tls_cert", "tls_key"]
    scheduler = job.cluster.scheduler
    # The file that `dask scheduler --scheduler-file` writes; a misspelled name stays as it is.
    if scheduler not in LOCAL_SCHEDULERS and (scheduler.endswith(".json") or (base / scheduler).exists()):
        files.append("scheduler")
    return job.model_copy(
        update={
            "batch": table(job.batch, "folder"),
            "ingest": ingest,
            "report": table(job.report, "out"),
            "cluster": table(job.cluster, *files),
        }
    )
