"""What a user says of a run: options of the loop and of the family, from the command line, `--set` and TOML files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from collapsium.pipeline.families.registry import family_names, load_family
from collapsium.storage.errors import AbsentError, InputError, OptionError, SettingError, flag_of, suggestion
from collapsium.storage.io.toml_files import parse_toml, read_toml_text
from collapsium.storage.runs.run import MAX_SAMPLES

StopOn = Literal["counts", "objective", "score"]
Schedule = Literal["batch", "stochastic"]
AUTO = "auto"  # a tolerance that is chosen by rule
ITERATIONS = 200  # of the batch schedule, if nothing else is said
MOST = 1 << 31  # of whatever is counted: checkpoints hold 64-bit numbers, also of products of two


@dataclass(frozen=True)
class Limits:
    """When a run ends, and how often it is scored.

    Attributes
    ----------
    iterations : int or None
        The most sweeps over the corpus, by itself 200; in the stochastic schedule the most minibatches, by itself all.
    tolerance : float or "auto"
        End before, when the relative change of `stop_on` between iterations falls under it; 0 for never. ``auto`` ends
        when the mean of the last quarter of the iterations differs little from that of the quarter before (see
        `collapsium.pipeline.engine.loop.convergence`): of the held-out score where `stop_on` is ``score``, else of the
        objective of a sampler, or of the change of the counts.
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
    tolerance: float | Literal["auto"] = 0.0
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
                raise OptionError(f"expected a whole number of 1 or more, found {value!r}", name)
            if value > MOST:
                raise OptionError(f"expected a whole number of {MOST:,} or less, found {value!r}", name)
        for name in ("samples", "sample_every"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise OptionError(f"expected a whole number of 0 or more, found {value!r}", name)
            most = MAX_SAMPLES if name == "samples" else MOST
            if value > most:
                raise OptionError(f"expected a whole number of {most:,} or less, found {value!r}", name)
        self._require_tolerance()
        if self.stop_on not in get_args(StopOn):
            raise OptionError(_of_choices(self.stop_on, get_args(StopOn)), "stop_on")
        if self.schedule not in get_args(Schedule):
            raise OptionError(_of_choices(self.schedule, get_args(Schedule)), "schedule")
        if self.samples > 1 and not self.sample_every:
            raise OptionError(f"{self.samples} requires `sample_every`, the iterations between two", "samples")
        if self.sample_every and not self.samples:
            raise OptionError(f"{self.sample_every} requires `samples`, how many are kept", "sample_every")
        if self.samples and self.tolerance:
            raise OptionError("counts from the last iteration, so it does not go with `tolerance`", "samples")

    def _require_tolerance(self) -> None:
        value = self.tolerance
        if value == AUTO:
            return
        if isinstance(value, (bool, str)) or not isinstance(value, (int, float)) or not value >= 0:
            raise OptionError(f"expected a number of 0 or more, or {AUTO}, found {value!r}", "tolerance")

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
                f"{self.samples} with `sample_every` {self.sample_every} takes more than "
                f"{(self.samples - 1) * self.sample_every} iterations, found {last}",
                "samples",
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
    "strict_bits",
    *LIMIT_NAMES,
)
KINDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
RUN_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("family", "heldout", "warm", "keep", "scheduler", "stop_on", "scratch", "schedule"), (str,)),
    **dict.fromkeys(("seed", "workers", "iterations", "score_every", "local_sweeps", "passes", "batch_shards"), (int,)),
    **dict.fromkeys(("checkpoint_every", "restarts", "samples", "sample_every"), (int,)),
    "patience": (float, int),
    "tolerance": (float, int, str),
    "memory": (str, int),
    "strict_bits": (bool,),
}


def _of_choices(value: Any, choices: tuple[str, ...]) -> str:
    return f"expected {', '.join(choices)}, found {value!r}{suggestion(str(value), choices)}"


@dataclass(frozen=True)
class Keys:
    """Options as a configuration file writes them.

    Attributes
    ----------
    path : str
        The file.
    written : mapping of str to (str, str)
        For each parameter the table, such as ``[fit]``, or nothing, and the key as it stands there.
    """

    path: str
    written: Mapping[str, tuple[str, str]]

    @staticmethod
    def of(path: str, options: Iterable[str]) -> Keys:
        """Make them of the keys at the top level of a file."""
        return Keys(path, {name.replace("-", "_"): ("", name) for name in options})

    def explain(self, error: OptionError) -> OptionError:
        """Return the error with the file's names, if it is about an option that the file sets; else the error."""
        subject = error.subject
        if isinstance(error, InputError) or subject is None or subject not in self.written:
            return error
        return SettingError(self.path, error.spelled(self._quoted), self.written[subject][0])

    def renamed(self, text: str) -> str:
        """Return a text with the file's names in place of flags."""
        return OptionError(text).spelled(self._quoted)

    def as_written(self, text: str) -> str:
        """Return a text with keys that stand in quotes spelled as the file spells them."""
        for name, (_, key) in self.written.items():
            text = text.replace(f"'{name}'", f"'{key}'", 1)
        return text

    def _quoted(self, name: str) -> str:
        return repr(self.written[name][1]) if name in self.written else flag_of(name)


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML file; what is wrong with it is an `InputError`, `SettingError` or `AbsentError` that names it."""
    try:
        return parse_toml(read_toml_text(path))
    except FileNotFoundError:
        raise AbsentError(f"{os.fspath(path)}: no such file") from None
    except OSError as error:
        raise InputError(os.fspath(path), f"cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise SettingError(os.fspath(path), f"expected TOML ({error})") from None


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
    found = read_toml(path)
    options = {name.replace("-", "_"): value for name, value in found.items()}
    keys = Keys.of(path, found)
    chosen = family or options.get("family")
    if chosen is None:
        raise SettingError(
            path, f"expected a family ({', '.join(family_names())}), here or with --family", "field 'family'"
        )
    try:
        known = (*load_family(str(chosen)).Options.model_fields, *RUN_NAMES)
    except OptionError as error:
        raise (error if family else keys.explain(error)) from None
    for name, value in options.items():
        field = f"field '{keys.written[name][1]}'"
        if name not in known:
            raise SettingError(path, f"unknown option of family '{chosen}'{suggestion(name, known)}", field)
        if name in RUN_KINDS and type(value) not in RUN_KINDS[name]:
            kinds = " or ".join(KINDS[kind] for kind in RUN_KINDS[name])
            raise SettingError(path, f"expected {kinds}, found {value!r}", field)
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
        parsed = parse_toml(f"value = {value}")["value"]
    except ValueError:
        parsed = value
    return name.strip().replace("-", "_"), parsed
