"""What a user says of a run: options of the loop and of the family, from the command line, `--set` and TOML files."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

import pydantic

from collapsar.pipeline.contract import FamilyConfig, family_names, load_family
from collapsar.storage.errors import AbsentError, InputError, OptionError, suggestion

StopOn = Literal["counts", "objective", "score"]
Schedule = Literal["batch", "stochastic"]
ITERATIONS = 200  # of the batch schedule, if nothing else is said


@dataclass(frozen=True)
class Limits:
    """When a run ends, and how often it is scored.

    Attributes
    ----------
    iterations : int or None
        The most sweeps over the corpus, by itself 200; in the stochastic schedule the most minibatches, by itself all.
    tolerance : float
        End before, when the relative change of `stop_on` between iterations falls under it; 0 for never.
    stop_on : {"counts", "objective", "score"}
        What the tolerance is compared with: the expected counts, the family's objective, or the held-out score.
    score_every : int or None
        Score the held-out corpus every so many iterations, and after the last; by itself every iteration or, in the
        stochastic schedule, after each pass.
    local_sweeps : int
        In the batch schedule: sweeps of a shard in an iteration, before the others hear of what it changed.
    schedule : {"batch", "stochastic"}
        Whether an iteration sweeps all shards, or a minibatch of them by a decaying step.
    passes, batch_shards : int
        In the stochastic schedule: passes over the corpus, and shards a minibatch.
    samples, sample_every : int
        How many states to keep as samples beside the model, the last one at the end, and the iterations between two; no
        samples by itself.
    """

    iterations: int | None = None
    tolerance: float = 0.0
    stop_on: StopOn = "counts"
    score_every: int | None = None
    local_sweeps: int = 1
    schedule: Schedule = "batch"
    passes: int = 1
    batch_shards: int = 4
    samples: int = 0
    sample_every: int = 0

    def __post_init__(self) -> None:
        for name in ("iterations", "score_every", "local_sweeps", "passes", "batch_shards"):
            value = getattr(self, name)
            if value is None and name in ("iterations", "score_every"):
                continue
            if type(value) is not int or value < 1:
                raise OptionError(f"--{name.replace('_', '-')}: expected a whole number of 1 or more, found {value!r}")
        for name in ("samples", "sample_every"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise OptionError(f"--{name.replace('_', '-')}: expected a whole number of 0 or more, found {value!r}")
        if isinstance(self.tolerance, bool) or not isinstance(self.tolerance, (int, float)) or not self.tolerance >= 0:
            raise OptionError(f"--tolerance: expected a number of 0 or more, found {self.tolerance!r}")
        if self.stop_on not in get_args(StopOn):
            raise OptionError(f"--stop-on: expected {', '.join(get_args(StopOn))}, found {self.stop_on!r}")
        if self.schedule not in get_args(Schedule):
            raise OptionError(f"--schedule: expected {', '.join(get_args(Schedule))}, found {self.schedule!r}")
        if self.samples > 1 and not self.sample_every:
            raise OptionError(f"--samples {self.samples}: say with --sample-every how many iterations lie between two")
        if self.sample_every and not self.samples:
            raise OptionError(f"--sample-every {self.sample_every}: say with --samples how many are kept")
        if self.samples and self.tolerance:
            raise OptionError("--samples: counts from the last iteration, so it does not go with --tolerance")

    @property
    def sweeps(self) -> int:
        """The most iterations of the batch schedule."""
        return ITERATIONS if self.iterations is None else self.iterations

    def planned(self, shards: int) -> int:
        """Return the most iterations of a run over so many shards."""
        if self.schedule == "batch":
            return self.sweeps
        first = 1 + -(-(shards - 1) // self.batch_shards)  # the first minibatch is one shard
        steps = first + (self.passes - 1) * -(-shards // self.batch_shards)
        return steps if self.iterations is None else min(steps, self.iterations)

    def sampled(self, shards: int) -> tuple[int, ...]:
        """Return the iterations after which a sample is kept, of a run over so many shards.

        Parameters
        ----------
        shards : int
            Of the corpus.

        Returns
        -------
        tuple of int
            Rising; the last is the run's last.

        Raises
        ------
        OptionError
            There are too few iterations.
        """
        last = self.planned(shards)
        found = tuple(last - back * self.sample_every for back in reversed(range(self.samples)))
        if found and found[0] < 1:
            raise OptionError(
                f"--samples {self.samples} --sample-every {self.sample_every}: expected more than "
                f"{(self.samples - 1) * self.sample_every} iterations, found {last}"
            )
        return found


LIMIT_NAMES = tuple(field.name for field in fields(Limits))
RUN_NAMES = (
    "family",
    "seed",
    "heldout",
    "warm",
    "restarts",
    "keep",
    "scheduler",
    "workers",
    "memory",
    "scratch",
    "checkpoint_every",
    "patience",
    *LIMIT_NAMES,
)
KINDS = {str: "a string", int: "a whole number", float: "a number"}
RUN_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("family", "heldout", "warm", "keep", "scheduler", "stop_on", "scratch", "schedule"), (str,)),
    **dict.fromkeys(("seed", "workers", "iterations", "score_every", "local_sweeps", "passes", "batch_shards"), (int,)),
    **dict.fromkeys(("checkpoint_every", "restarts", "samples", "sample_every"), (int,)),
    "patience": (float, int),
    "tolerance": (float, int),
    "memory": (str, int),
}


def make_config(family: str, options: Mapping[str, Any]) -> FamilyConfig:
    """Check a family's options.

    Parameters
    ----------
    family : str
        The family's name.
    options : mapping
        Options by name; what is left out has its default.

    Returns
    -------
    FamilyConfig
        All options.

    Raises
    ------
    OptionError
        An option is unknown, missing or out of range.
    """
    config = load_family(family).Config
    for name in options:
        if name not in config.model_fields:
            known = (*config.model_fields, *RUN_NAMES)
            raise OptionError(f"unknown option '{name}' of family '{family}'{suggestion(name, known)}")
    try:
        return config.model_validate(dict(options))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "options"
        flag = name.replace("_", "-")
        if first["type"] == "missing":
            raise OptionError(f"--{flag} is required: {config.model_fields[name].description}") from None
        raise OptionError(f"--{flag}: {_expected(first)}, found {first['input']!r}") from None


def _expected(error: Any) -> str:
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "expected")
    return message.replace("expected greater", "expected a value greater").replace(
        "expected less", "expected a value less"
    )


def read_config(path: str, family: str | None) -> dict[str, Any]:
    """Read options from a TOML file: names of the loop's and the family's options at the top level.

    Parameters
    ----------
    path : str
        The file.
    family : str or None
        The family that was named elsewhere; else the file's key ``family`` counts.

    Returns
    -------
    dict
        Options by name.

    Raises
    ------
    AbsentError
        There is no such file.
    InputError
        It is not TOML, or a key is unknown.
    """
    try:
        found = tomllib.loads(Path(path).read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise AbsentError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(path, f"expected TOML ({error})") from None
    options = {name.replace("-", "_"): value for name, value in found.items()}
    chosen = family or options.get("family")
    if chosen is None:
        raise InputError(
            path, f"expected a family ({', '.join(family_names())}), here or with --family", "field 'family'"
        )
    known = (*load_family(str(chosen)).Config.model_fields, *RUN_NAMES)
    for name, value in options.items():
        if name not in known:
            raise InputError(path, f"unknown option of family '{chosen}'{suggestion(name, known)}", f"field '{name}'")
        if name in RUN_KINDS and type(value) not in RUN_KINDS[name]:
            kinds = " or ".join(KINDS[kind] for kind in RUN_KINDS[name])
            raise InputError(path, f"expected {kinds}, found {value!r}", f"field '{name}'")
    return options


def parse_setting(text: str) -> tuple[str, Any]:
    """Read ``name=VALUE``, the value being TOML; what is not TOML is taken as a string.

    Parameters
    ----------
    text : str
        Such as ``alpha=0.1``, ``learn=["alpha"]`` or ``scaling=labels``.

    Returns
    -------
    name : str
        With ``_`` for ``-``.
    value : object
        What TOML makes of it.

    Raises
    ------
    OptionError
        There is no ``=``.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise OptionError(f"--set: expected name=VALUE, found {text!r}")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        parsed = value
    return name.strip().replace("-", "_"), parsed
