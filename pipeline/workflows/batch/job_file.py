"""Read the file of a batch job, and check all that can be checked without its sources."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic
from pydantic import BaseModel

from collapsium.pipeline.corpora.options import FieldOptions, IngestOptions, SideFileOptions, VectorOptions, WordOptions
from collapsium.pipeline.engine.setup.limits import LIMIT_NAMES, Keys, Limits, read_toml
from collapsium.pipeline.families.registry import load_family, require_schedule
from collapsium.pipeline.options import names_of
from collapsium.pipeline.workflows.batch.config import FitTable, IngestTable, Job
from collapsium.storage.corpus.manifest import VECTORS
from collapsium.storage.errors import InputError, OptionError, SettingError, suggestion

READING = (IngestOptions, FieldOptions, SideFileOptions, WordOptions, VectorOptions)
"""Options of `ingest` that the table ``[ingest]`` takes besides its own."""
SEVERAL = ("labels", "covariates", "stop_words")  # lists of names, or a string with commas between
SIDES = ("label_files", "label_names")  # they would have to grow with the sources
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def reading_names() -> tuple[str, ...]:
    """Return the names of what `ingest` can be told of reading."""
    return tuple(name for model in READING for name in model.model_fields)


def read_job(path: str | os.PathLike[str]) -> Job:
    """Read a job and check all that can be checked without its sources.

    Parameters
    ----------
    path : str or path-like
        The TOML file. Paths in it that are relative count from its folder; ``$NAME`` and ``${NAME}`` in strings are
        variables of the environment.

    Returns
    -------
    Job
        The job, its paths absolute.

    Raises
    ------
    AbsentError
        There is no such file.
    InputError
        It is not TOML, or a key is unknown, missing or of another kind.
    """
    file, found = Path(path), read_toml(path)
    try:
        job = Job.model_validate(_listed(_expanded(found, str(path))))
        _require_known(job)
    except pydantic.ValidationError as error:
        raise _explained(error, str(path)) from None
    except InputError:
        raise
    except OptionError as error:
        keys = keys_of(path)
        explained = keys.explain(error)
        raise (SettingError(str(path), keys.as_written(str(error))) if explained is error else explained) from None
    placed = _placed(job, file.resolve().parent)
    placed._name = file.stem
    return placed


def keys_of(path: str | os.PathLike[str]) -> Keys:
    """Return the options of a job by the names that its file gives them; those that it leaves out have their own."""
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
    for table, options in tables.items():
        named |= {name.replace("-", "_"): (f"[{table}]", name) for name in options}
    return Keys(os.fspath(path), named)


@contextlib.contextmanager
def named_as_in(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the options that an error is about as a job's file names them."""
    try:
        yield
    except OptionError as error:
        raise keys_of(path).explain(error) from error
    except InputError as error:
        if type(error) is not InputError:
            raise
        raise InputError(error.path, keys_of(path).renamed(error.expected), error.where) from error


def _expanded(value: Any, path: str) -> Any:
    """Put the environment's variables into strings."""
    if isinstance(value, dict):
        return {name: _expanded(one, path) for name, one in value.items()}
    if isinstance(value, list):
        return [_expanded(one, path) for one in value]
    if not isinstance(value, str):
        return value

    def variable(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in os.environ:
            raise SettingError(path, f"the environment has no variable {name}, which {value!r} names")
        return os.environ[name]

    return VARIABLE.sub(variable, value)


def _listed(found: dict[str, Any]) -> dict[str, Any]:
    """Make tuples of TOML's lists where a tuple is asked for; a string by itself is a list of one."""
    tables = {name: dict(table) if isinstance(table, dict) else table for name, table in found.items()}
    for table, name in (("ingest", "sources"), ("alarm", "command")):
        value = tables.get(table, {}).get(name) if isinstance(tables.get(table), dict) else None
        if isinstance(value, (list, str)):
            tables[table][name] = (value,) if isinstance(value, str) else tuple(value)
    return tables


def _explained(error: pydantic.ValidationError, path: str) -> SettingError:
    """Say the first thing that is wrong, with the known key that is nearest to an unknown one."""
    every = error.errors()
    first = next((one for one in every if one["type"] == "extra_forbidden"), every[0])
    *tables, name = [str(part) for part in first["loc"] if not isinstance(part, int)]
    where = f"[{tables[0]}]" if tables else ""
    if first["type"] == "extra_forbidden":
        model = Job.model_fields[tables[0]].annotation if tables else Job
        known = model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else {}
        return SettingError(path, f"unknown {'key' if tables else 'table'} '{name}'{suggestion(name, known)}", where)
    if first["type"] == "missing":
        return SettingError(path, f"{'key' if tables else 'table'} '{name}' is required", where)
    text = str(first["msg"]).replace("Input should be", "expected").replace("a valid tuple", "a list of strings")
    text = re.sub("a valid dictionary or instance of .*", "a table", text)
    return SettingError(path, f"'{name}': {text[:1].lower()}{text[1:]}, found {first['input']!r}", where)


def _require_known(job: Job) -> None:
    """Refuse further names that nobody knows, and what a batch cannot do."""
    family = load_family(job.fit.family)
    if (job.reading.get("format") == VECTORS) != (job.holds == VECTORS):
        found = job.reading["format"]
        raise OptionError(f"[ingest]: 'format': '{job.fit.family}' takes {job.holds}, found {found!r}")
    if job.ingest.grow and job.holds == VECTORS:
        raise OptionError("[ingest]: 'grow': is of documents; the columns of vectors are fixed")
    if job.fit.keep == "best" and not job.fit.restarts:
        raise OptionError("[fit]: 'keep': there is one fit only; say how many with restarts")
    if not job.ingest.sources:
        raise OptionError("[ingest]: 'sources' names no file")
    names = reading_names()
    for name, value in job.reading.items():
        if name in SIDES:
            raise OptionError(
                f"[ingest]: '{name}': a batch has no side files; 'labels' and 'covariates' are fields of its documents"
            )
        if name not in names:
            raise OptionError(f"[ingest]: unknown key '{name}'{suggestion(name, {*names, *IngestTable.model_fields})}")
        if name in SEVERAL and not isinstance(value, str | list):
            raise OptionError(f"[ingest]: '{name}': expected a list of strings, found {value!r}")
    try:
        for model in READING:
            model(**{name: value for name, value in job.reading.items() if name in model.model_fields})
    except OptionError as error:
        raise OptionError(f"[ingest]: '{error.parameter}': {error.message}") from None
    config = family.Options
    for name in job.fit.more:
        if name not in LIMIT_NAMES and name not in config.model_fields:
            known = {*LIMIT_NAMES, *config.model_fields, *FitTable.model_fields}
            raise OptionError(f"[fit]: unknown key '{name}' of family '{job.fit.family}'{suggestion(name, known)}")
    limits = Limits(**job.limits)
    require_schedule(job.fit.family, limits.schedule)
    if limits.schedule == "batch":
        for warm in (False, job.begins_warm):
            Limits(**job.limits_when(warm)).sampled(1)  # refuses more samples than there are iterations
    _ = job.config, job.tls


def _placed(job: Job, base: Path) -> Job:
    """Make the paths of a job absolute."""

    def at(path: str | None) -> str | None:
        return path if path is None or "://" in path else str(base / Path(path).expanduser())

    def table(model: Any, *names: str) -> Any:
        return model.model_copy(update={name: at(getattr(model, name)) for name in names})

    from collapsium.storage.readers.texts.stopwords import is_file_name

    more = job.ingest.more
    for name in ("vocabulary", "like"):
        if isinstance(more.get(name), str):
            more[name] = at(more[name])
    if "stop_words" in more:
        more["stop_words"] = [at(one) if is_file_name(one) else one for one in names_of(more["stop_words"])]
    ingest = IngestTable.model_construct(
        **{**job.ingest.model_dump(), **more, "sources": tuple(str(at(one)) for one in job.ingest.sources)}
    )
    return job.model_copy(
        update={
            "batch": table(job.batch, "folder"),
            "ingest": ingest,
            "report": table(job.report, "out"),
            "cluster": table(job.cluster, "tls_ca", "tls_cert", "tls_key"),
        }
    )
