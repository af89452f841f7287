"""Read the file of a batch job, and validate it as far as possible without its sources."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import pydantic
from pydantic import BaseModel

from collapsium.pipeline.corpora.options import FieldOptions, IngestOptions, SideFileOptions, VectorOptions, WordOptions
from collapsium.pipeline.engine.setup.limits import LIMIT_NAMES, Keys, Limits, former_names_of, read_toml, written_once
from collapsium.pipeline.executors.schedulers import LOCAL_SCHEDULERS
from collapsium.pipeline.models.registry import load_family, require_schedule
from collapsium.pipeline.options import error_of, names_of
from collapsium.pipeline.workflows.batch.config import FitTable, IngestTable, Job
from collapsium.storage.corpus.manifest import VECTORS
from collapsium.storage.data_types import Json, JsonObject
from collapsium.storage.errors import InputError, OptionError, SettingError, suggestion
from collapsium.storage.runs.members import CONSENSUS
from collapsium.workers.families import word_weights
from collapsium.workers.families.family import COMPUTED_STARTS, RANDOM_START
from collapsium.workers.options import former_names

# Options of `ingest` that the table ``[ingest]`` accepts in addition to its own
READING = (IngestOptions, FieldOptions, SideFileOptions, WordOptions, VectorOptions)
NAME_LISTS = ("labels", "covariates", "stop_words")  # Options that are lists of names, or strings with commas
# Options that a job cannot have, as these files would have to grow with the sources
SIDE_FILES = ("label_files", "label_names")
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
Table = TypeVar("Table", bound=BaseModel)


def reading_names() -> tuple[str, ...]:
    """Return the names of the options of `ingest` for reading."""
    return tuple(name for model in READING for name in model.model_fields)


def read_job(path: str | os.PathLike[str]) -> Job:
    """Read a job, and validate it as far as possible without its sources."""
    file, tables = Path(path), read_toml(path)
    # Refuses an option that is spelled in two ways.
    keys_of(path)
    try:
        former = _former_names(tables)
        expanded = {name: _expanded(_with_present_names(table, former), str(path)) for name, table in tables.items()}
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
        raise _explained(error, str(path)) from None
    except InputError:
        raise
    except OptionError as error:
        keys = keys_of(path)
        explained = keys.explain(error)
        raise (SettingError(str(path), keys.as_written(str(error))) if explained is error else explained) from None
    resolved = _with_absolute_paths(job, file.resolve().parent)
    resolved._name = file.stem
    return resolved


def keys_of(path: str | os.PathLike[str]) -> Keys:
    """Return the options of a job as its file spells them; options that it leaves out have their own names."""
    tables = read_toml(path)
    tables = {name: table for name, table in tables.items() if isinstance(table, dict)}
    named: dict[str, tuple[str, str]] = {}
    for table, field in Job.model_fields.items():
        model = field.annotation
        own = model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else {}
        named = {name: (f"[{table}]", name) for name in own} | named
    with contextlib.suppress(OptionError):
        config = load_family(str(tables.get("fit", {}).get("family"))).Options
        named |= {name: ("[fit]", name) for name in (*config.model_fields, *LIMIT_NAMES)}
    named |= {name: ("[ingest]", name) for name in reading_names() if name not in named}
    of_tables = {f"[{table}]": options for table, options in tables.items()}
    return Keys(os.fspath(path), named | written_once(os.fspath(path), of_tables, _former_names(tables)))


def _former_names(tables: JsonObject) -> dict[str, str]:
    """Return the former names of options in the tables ``[ingest]`` and ``[fit]``."""
    fit, former = tables.get("fit"), former_names(*READING, FitTable)
    with contextlib.suppress(OptionError):
        former |= former_names_of(str(fit.get("family") if isinstance(fit, dict) else None))
    return former


def _with_present_names(table: Json, former: Mapping[str, str]) -> Json:
    """Return a table with the present names of options in place of former ones."""
    if not isinstance(table, dict):
        return table
    return {former.get(key.replace("-", "_"), key): value for key, value in table.items()}


@contextlib.contextmanager
def named_as_in(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let errors name options as a job's file spells them."""
    try:
        yield
    except OptionError as error:
        raise keys_of(path).explain(error) from error
    except InputError as error:
        if type(error) is not InputError:
            raise
        raise InputError(error.path, keys_of(path).renamed(error.expected), error.where) from error


def _expanded(value: Json, path: str) -> Json:
    """Replace environment variables in all strings."""
    if isinstance(value, dict):
        return {name: _expanded(one, path) for name, one in value.items()}
    if isinstance(value, list):
        return [_expanded(one, path) for one in value]
    if not isinstance(value, str):
        return value

    def variable(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in os.environ:
            raise SettingError(path, f"the environment has no variable {name}, which {value!r} contains")
        return os.environ[name]

    return VARIABLE.sub(variable, value)


def _explained(error: pydantic.ValidationError, path: str) -> SettingError:
    """Return the first error, with the nearest known key for an unknown one."""
    every = error.errors()
    first = next((one for one in every if one["type"] == "extra_forbidden"), every[0])
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
    from collapsium.pipeline.engine.setup import request, starts

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
    start = starts.StartSource.of(job.fit.init or RANDOM_START, job.fit.init_strength)
    if start is not None:
        start.require(job.fit.family, job.config)
    if not job.ingest.sources:
        raise OptionError("[ingest]: 'sources' names no file")
    names = reading_names()
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
        for model in READING:
            model(**{name: value for name, value in job.reading.items() if name in model.model_fields})
    except OptionError as error:
        raise OptionError(f"[ingest]: '{error.parameter}': {error.message}") from None
    config = family.Options
    for name in job.fit.further:
        if name not in LIMIT_NAMES and name not in config.model_fields:
            known = {*LIMIT_NAMES, *config.model_fields, *FitTable.model_fields}
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
    from collapsium.pipeline.engine.setup import starts

    further, formulas = job.fit.further, {"seeds": (), "weights": word_weights.FORMULAS}
    files: dict[str, object] = {
        name: _absolute(further[name], base)
        for name, words in formulas.items()
        if isinstance(further.get(name), str) and further[name] not in words
    }
    init = job.fit.init or RANDOM_START
    if init not in (RANDOM_START, *COMPUTED_STARTS) and init.lower().endswith(starts.ENDING):
        files["init"] = _absolute(init, base)
    return job.model_copy(update={"fit": FitTable(**{**job.fit.model_dump(), **files})}) if files else job


def _with_absolute_paths(job: Job, base: Path) -> Job:
    """Return a job with absolute paths."""

    def absolute(path: str | None) -> str | None:
        return _absolute(path, base)

    def table(model: Table, *names: str) -> Table:
        return model.model_copy(update={name: absolute(getattr(model, name)) for name in names})

    further = job.ingest.further
    for name in ("vocabulary", "like"):
        if isinstance(further.get(name), str):
            further[name] = absolute(further[name])
    if "stop_words" in further:
        from collapsium.storage.readers.texts import stopwords

        lists = names_of(further["stop_words"])
        further["stop_words"] = [absolute(one) if stopwords.is_file_name(one) else one for one in lists]
    ingest = IngestTable.model_construct(
        **{**job.ingest.model_dump(), **further, "sources": tuple(str(absolute(one)) for one in job.ingest.sources)}
    )
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
