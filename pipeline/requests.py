"""What a fit was asked for: as `run.json` records it, and as it is taken up again."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any

from collapsar.pipeline.config import LIMIT_NAMES, Limits, make_config
from collapsar.pipeline.contract import FamilyConfig, require_schedule
from collapsar.storage.corpus import Corpus
from collapsar.storage.errors import AbsentError, DamagedError, MismatchError, OptionError
from collapsar.storage.model import RECORD as MODEL_RECORD
from collapsar.storage.model import StoredModel
from collapsar.storage.records import digest_of
from collapsar.storage.run import RECORD, Run

VERSIONS = ("collapsar", "dask", "distributed", "numba", "numpy", "pyarrow", "zarr")
BITS = ("collapsar", "numba", "numpy", "python")  # whose other versions may give other bits
DONE = ("iterations", "tolerance")  # why a run is at its end
# When a run ends and what is told of it may change as it is resumed; what its states are may not.
SHAPING = ("schedule", "local_sweeps", "batch_shards")


@dataclass(frozen=True)
class Request:
    """All that a fit was asked for.

    Attributes
    ----------
    corpus : Corpus
        What to fit.
    heldout : Corpus or None
        What to score.
    family : str
        The family's name.
    config : FamilyConfig
        Its options.
    limits : Limits
        When to end.
    seed : int
        Seed of all random numbers.
    """

    corpus: Corpus
    heldout: Corpus | None
    family: str
    config: FamilyConfig
    limits: Limits
    seed: int

    def __post_init__(self) -> None:
        require_schedule(self.family, self.limits.schedule)
        if type(self.seed) is not int:
            raise OptionError(f"--seed: expected a whole number, found {self.seed!r}")
        if self.limits.stop_on == "score" and self.heldout is None:
            raise OptionError("--stop-on score needs a held-out corpus (--heldout)")

    @property
    def stochastic(self) -> bool:
        """Whether the schedule is the stochastic one."""
        return self.limits.schedule == "stochastic"

    def record(self) -> dict[str, Any]:
        """Return what `run.json` shall say."""
        heldout = self.heldout
        return {
            "family": self.family,
            "options": self.config.model_dump(mode="json"),
            "limits": asdict(self.limits),
            "seed": self.seed,
            "corpus": {"url": self.corpus.folder.address, "digest": self.corpus.manifest.digest},
            "heldout": heldout and {"url": heldout.folder.address, "digest": heldout.manifest.digest},
            "versions": {name: version(name) for name in VERSIONS} | {"python": platform.python_version()},
        }


def fingerprint(record: Mapping[str, Any]) -> str:
    """Return the digest of all that makes a run's states what they are, given its record."""
    limits = {name: record["limits"][name] for name in SHAPING}
    named = {name: record[name] for name in ("family", "options", "seed")}
    return digest_of({**named, "limits": limits, "corpus": record["corpus"]["digest"]})


def taken_up(
    run: Run,
    corpus: str | os.PathLike[str] | None,
    heldout: str | os.PathLike[str] | None,
    options: Mapping[str, Any],
) -> tuple[Request, dict[str, Any]]:
    """Make the request of a run that is resumed.

    Parameters
    ----------
    run : Run
        The run.
    corpus, heldout : str or path-like, optional
        Where its corpora lie by now.
    options : mapping
        Options that are said again: those that only say when to end may be others than before.

    Returns
    -------
    request : Request
        What the run was asked for, with what has changed.
    record : dict
        What `run.json` shall say from now on.

    Raises
    ------
    OptionError
        An option would change the model.
    MismatchError
        A corpus is not the run's.
    DamagedError
        `run.json` does not hold what it must.
    """
    record = run.record()
    path = f"{run.folder.url}/{RECORD}"
    try:
        family, limits = str(record["family"]), Limits(**record["limits"])
        config = make_config(family, record["options"])
        seed, wheres = record["seed"], (record["corpus"], record["heldout"])
    except (KeyError, TypeError, OptionError) as error:
        raise DamagedError(path, f"expected the record of a fit ({error})") from None
    limits = _changed(dict(options), family, config, seed, limits)
    train = _found(corpus, wheres[0], "CORPUS", "corpus")
    held = None if wheres[1] is None else _found(heldout, wheres[1], "--heldout CORPUS", "held-out corpus")
    if wheres[1] is None and heldout is not None:
        raise OptionError(f"--heldout {os.fspath(heldout)}: the run has none; start a new run to have it scored")
    after = {**record, "limits": asdict(limits)}
    for name, one in (("corpus", train), ("heldout", held)):
        if one is not None:
            after[name] = {"url": one.folder.address, "digest": one.manifest.digest}
    return Request(train, held, family, config, limits, seed), after


def _changed(options: dict[str, Any], family: str, config: FamilyConfig, seed: int, limits: Limits) -> Limits:
    """Return the limits with what is said anew; refuse, by name, what would change the model."""
    said = {name: options.pop(name) for name in list(options) if name in LIMIT_NAMES}
    had = {"family": family, "seed": seed, **{name: getattr(limits, name) for name in SHAPING}}
    now = {name: said.pop(name, had[name]) for name in SHAPING}
    now.update({name: options.pop(name, had[name]) for name in ("family", "seed")})
    if now["family"] == family:
        had.update(config.model_dump(mode="json"))
        now.update(make_config(family, {**config.model_dump(), **options}).model_dump(mode="json"))
    for name, value in now.items():
        if value != had[name]:
            raise OptionError(
                f"--{name.replace('_', '-')} {value}: the run has {name} = {had[name]}, and another would change its "
                "model; start a new run, or leave the option out"
            )
    return replace(limits, **said)


def _found(given: str | os.PathLike[str] | None, record: Mapping[str, Any], name: str, what: str) -> Corpus:
    """Open the corpus that is given, or where it was; refuse another."""
    try:
        corpus = Corpus(record["url"] if given is None else given)
    except AbsentError as error:
        if given is not None:
            raise
        raise AbsentError(f"{error} (it was the run's {what}); if it was moved, say where with {name}") from None
    if corpus.manifest.digest != record["digest"]:
        raise MismatchError(
            f"{corpus.url}: it is not the {what} of the run, whose digest begins with {record['digest'][:12]}; this "
            f"one's with {corpus.manifest.digest[:12]}"
        )
    return corpus


def differing_versions(record: Mapping[str, Any]) -> list[str]:
    """Say which versions differ from those that a run began with, where that may change its bits."""
    began = record.get("versions", {})
    now = {name: version(name) for name in VERSIONS} | {"python": platform.python_version()}
    return [f"{name} {now[name]} instead of {began.get(name)}" for name in BITS if began.get(name) != now[name]]


def is_done(target: Run, request: Request) -> bool:
    """Say whether there is nothing more to do for a run.

    Parameters
    ----------
    target : Run
        The run.
    request : Request
        What it is asked for now.

    Returns
    -------
    bool
        Whether its model stands, and is what is asked for.

    Raises
    ------
    OptionError
        It has more iterations than are asked for.
    """
    planned = request.limits.planned(len(request.corpus.manifest.shards))
    latest = target.checkpoints.candidates()[0][:1]
    if latest and latest[0] > planned:
        raise OptionError(f"--iterations {planned}: the run has made {latest[0]} already; name more, or a new run")
    if not target.model.exists(MODEL_RECORD):
        return False
    model = StoredModel(target.model.url)
    if latest and latest[0] != model.record.iterations:
        return False
    last: dict[str, Any] = next((event for event in reversed(target.events()) if event.get("event") == "end"), {})
    unchanged = target.record()["limits"] == asdict(request.limits)
    return last.get("reason") in DONE and (model.record.iterations == planned or unchanged)
