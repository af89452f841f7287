"""Requests of runs that are resumed: what was recorded, with what may change since."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from collapsium.pipeline.engine.setup.limits import LIMIT_NAMES, RUN_NAMES, Limits
from collapsium.pipeline.engine.setup.request import SHAPING, Request
from collapsium.pipeline.engine.setup.warm_start import WarmSource
from collapsium.pipeline.families.base import FamilyOptions
from collapsium.pipeline.families.registry import make_options
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import AbsentError, DamagedError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.recorded_urls import recorded_url
from collapsium.storage.runs.model import RECORD as MODEL_RECORD
from collapsium.storage.runs.model import StoredModel
from collapsium.storage.runs.run import DONE, RECORD, Run

SAMPLING = ("samples", "sample_every")  # which states are kept


def resumed_request(
    run: Run,
    corpus: str | os.PathLike[str] | None,
    heldout: str | os.PathLike[str] | None,
    options: Mapping[str, Any],
    warm: WarmSource | None = None,
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
    warm : WarmSource, optional
        Where the model lies by now that it begins from.

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
        config = make_options(family, record["options"])
        seed, planned, wheres = record["seed"], record.get("planned"), (record["corpus"], record["heldout"])
        restarts, keep = record.get("restarts", 0), record.get("keep", "all")
        source = _warm(run.folder, record.get("warm"), warm)
    except (KeyError, TypeError, OptionError) as error:
        raise DamagedError(path, f"expected the record of a fit ({error})") from None
    said = dict(options)
    for name, had in (("restarts", restarts), ("keep", keep)):
        now = said.pop(name, had)
        if now != had:
            raise OptionError(f"`{name}` {now}: the run has {name} = {had}; start a new run, or leave the option out")
    before, limits = limits, _changed(said, family, config, seed, limits)
    train = _found(run.folder, corpus, wheres[0], "CORPUS", "corpus")
    _require_same_samples(before, limits, len(train.manifest.shards))
    held = None if wheres[1] is None else _found(run.folder, heldout, wheres[1], "`heldout` CORPUS", "held-out corpus")
    if wheres[1] is None and heldout is not None:
        raise OptionError(f"`heldout` {os.fspath(heldout)}: the run has none; start a new run to have it scored")
    after = {**record, "limits": limits.model_dump()}
    after["corpus"] = {**wheres[0], "url": train.folder.address}
    if held is not None:
        after["heldout"] = {"url": held.folder.address, "digest": held.manifest.digest}
    if source is not None:
        after["warm"] = source.record()
    return Request(train, held, family, config, limits, seed, source, restarts, keep, planned), after


def _warm(folder: Folder, record: Mapping[str, Any] | None, given: WarmSource | None) -> WarmSource | None:
    """Name the model that a run begins from, where it lies by now; refuse another."""
    if record is None:
        if given is not None:
            raise MismatchError(f"`warm` {given.url}: the run does not begin from another; start a new run")
        return None
    recorded = WarmSource.from_record(folder, record)
    if given is None:
        return recorded
    pairs = zip((given, *given.members), (recorded, *recorded.members), strict=False)
    if len(given.members) != len(recorded.members) or any(one.digest != other.digest for one, other in pairs):
        raise MismatchError(f"`warm` {given.url}: it is not the model that the run begins from")
    members = (
        replace(one, local_states=other.local_states)
        for one, other in zip(given.members, recorded.members, strict=True)
    )
    return replace(given, local_states=recorded.local_states, members=tuple(members))


def _require_same_samples(before: Limits, after: Limits, shards: int) -> None:
    if before.sampled(shards) != after.sampled(shards):
        when = ", ".join(str(iteration) for iteration in before.sampled(shards)) or "no iteration"
        raise OptionError(
            f"`iterations` {after.planned(shards)}: the run keeps samples after {when}, counted from its end; start a "
            "new run"
        )


def _changed(options: dict[str, Any], family: str, config: FamilyOptions, seed: int, limits: Limits) -> Limits:
    """Return the limits with what is said anew; refuse, by name, what would change the model."""
    said = {name: options.pop(name) for name in list(options) if name in LIMIT_NAMES}
    had = {"family": family, "seed": seed, **{name: getattr(limits, name) for name in SHAPING}}
    now = {name: said.pop(name, had[name]) for name in SHAPING}
    now.update({name: options.pop(name, had[name]) for name in ("family", "seed")})
    if now["family"] == family:
        had.update(config.model_dump(mode="json"))
        known = make_options(family, {**config.model_dump(), **options}, RUN_NAMES)
        now.update(known.model_dump(mode="json"))
    for name in SAMPLING:
        had[name], now[name] = getattr(limits, name), said.pop(name, getattr(limits, name))
    for name, value in now.items():
        if value != had[name]:
            raise OptionError(
                f"`{name}` {value}: the run has {name} = {had[name]}, and another would change "
                "its results; start a new run, or leave the option out"
            )
    return Limits(**{**limits.model_dump(), **said})


def _found(
    folder: Folder, given: str | os.PathLike[str] | None, record: Mapping[str, Any], name: str, what: str
) -> Corpus:
    """Open the corpus that is given, or where the record of a run's folder says that it was; refuse another."""
    try:
        corpus = Corpus(recorded_url(folder, record["url"]) if given is None else given)
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


def is_finished(target: Run, request: Request) -> bool:
    """Return true if a run has nothing more to do.

    Parameters
    ----------
    target : Run
        The run.
    request : Request
        The request, as it is now.

    Returns
    -------
    bool
        True if the run has a model, and that is what the request describes.

    Raises
    ------
    OptionError
        The run has more iterations than the request.
    """
    planned = request.limits.planned(len(request.corpus.manifest.shards))
    latest = target.checkpoints.candidates()[0][:1]
    if latest and latest[0] > planned:
        raise OptionError(
            f"expected at least {latest[0]}, as the run has made {latest[0]} already, found {planned}", "iterations"
        )
    if not target.model.exists(MODEL_RECORD):
        return False
    try:
        model = StoredModel(target.model.url)
    except DamagedError:
        # It is written again, from the checkpoint.
        return False
    if latest and latest[0] != model.record.iterations:
        return False
    if not all(target.member(number).exists(MODEL_RECORD) for number in range(request.limits.samples)):
        return False
    unchanged = Limits(**target.record()["limits"]) == request.limits
    return end_reason(target) in DONE and (model.record.iterations == planned or unchanged)


def end_reason(target: Run) -> str | None:
    """Return the reason of the last end that a run reports; None where it reports none."""
    return next((event.get("reason") for event in reversed(target.events()) if event.get("event") == "end"), None)
