"""The request of a resumed run: its record, with the options that may change."""

from __future__ import annotations

import os
from dataclasses import replace

from collapsium.pipeline.engine.growth import Growth
from collapsium.pipeline.engine.setup.limits import LIMIT_NAMES, RUN_NAMES, Limits
from collapsium.pipeline.engine.setup.request import SHAPING, Request
from collapsium.pipeline.engine.setup.starts import StartSource
from collapsium.pipeline.engine.setup.warm_start import WarmSource
from collapsium.pipeline.models.registry import changed_options, recorded_options
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import AbsentError, DamagedError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder, recorded_url
from collapsium.storage.runs.model import RECORD as MODEL_RECORD
from collapsium.storage.runs.model import StoredModel
from collapsium.storage.runs.run import DONE, RECORD, Run
from collapsium.workers.families.family import FamilyOptions

# Options of the loop besides `SHAPING` that may not change when a run is resumed
SAVED = ("samples", "sample_every", "grow")


def resumed_request(
    run: Run,
    corpus: str | os.PathLike[str] | None,
    heldout: str | os.PathLike[str] | None,
    options: JsonObject,
    warm: WarmSource | None = None,
    start: StartSource | None = None,
) -> tuple[Request, JsonObject]:
    """Return the request of a resumed run."""
    record = run.record()
    path = f"{run.folder.url}/{RECORD}"
    try:
        family, limits = str(record["family"]), Limits(**record["limits"])
        config = recorded_options(family, record["options"])
        seed, planned = record["seed"], record.get("planned")
        corpus_record, heldout_record = record["corpus"], record["heldout"]
        growth = Growth.from_record(record.get("growth"))
        restarts, keep = record.get("restarts", 0), record.get("keep", "all")
        combine = record.get("combine", "predictions")
        source = _warm(run.folder, record.get("warm"), warm)
        begun = _start(StartSource.from_record(run.folder, record.get("start")), start)
    except (KeyError, TypeError, OptionError) as error:
        raise DamagedError(path, f"expected the record of a fit ({error})") from None
    changes = dict(options)
    for name, recorded in (("restarts", restarts), ("keep", keep), ("combine", combine)):
        value = changes.pop(name, recorded)
        if value != recorded:
            raise _differs(name, value, recorded)
    before, limits = limits, _changed_limits(changes, family, config, seed, limits)
    training = _open_corpus(run.folder, corpus, corpus_record, "CORPUS", "corpus")
    _require_same_samples(before, limits, len(training.manifest.shards))
    held = None
    if heldout_record is not None:
        held = _open_corpus(run.folder, heldout, heldout_record, "`heldout` CORPUS", "held-out corpus")
    elif heldout is not None:
        raise OptionError(f"the run has none, found {os.fspath(heldout)}; start a new run to have it scored", "heldout")
    after = {**record, "limits": limits.model_dump()}
    after["corpus"] = {**corpus_record, "url": training.folder.address}
    if held is not None:
        after["heldout"] = {"url": held.folder.address, "digest": held.manifest.digest}
    if source is not None:
        after["warm"] = source.record()
    if begun is not None:
        after["start"] = begun.record()
    retained = (source, restarts, keep, planned, growth, begun, combine)
    return Request(training, held, family, config, limits, seed, *retained), after


def _differs(name: str, value: object, recorded: object) -> OptionError:
    return OptionError(
        f"expected {recorded}, found {value}: another would change the run's results; start a new run, or leave the "
        "option out",
        name,
    )


def _warm(folder: Folder, record: JsonObject | None, moved: WarmSource | None) -> WarmSource | None:
    """Return the model that a run begins from, at its new location if it was moved; refuse another model."""
    if record is None:
        if moved is not None:
            raise MismatchError(f"`warm` {moved.url}: the run does not begin from another; start a new run")
        return None
    recorded = WarmSource.from_record(folder, record)
    if moved is None:
        return recorded
    pairs = zip((moved, *moved.members), (recorded, *recorded.members), strict=False)
    if len(moved.members) != len(recorded.members) or any(new.digest != old.digest for new, old in pairs):
        raise MismatchError(f"`warm` {moved.url}: it is not the model that the run begins from")
    members = (
        replace(new, local_states=old.local_states) for new, old in zip(moved.members, recorded.members, strict=True)
    )
    return replace(moved, local_states=recorded.local_states, members=tuple(members))


def _start(recorded: StartSource | None, moved: StartSource | None) -> StartSource | None:
    """Return the start of a run, at its new location if it was moved; refuse another start."""
    if moved is None:
        return recorded
    if recorded is None:
        raise MismatchError(f"`start` {moved.url or moved.kind}: the run begins otherwise; start a new run")
    if (moved.kind, moved.digest) != (recorded.kind, recorded.digest):
        raise MismatchError(f"`start` {moved.url or moved.kind}: it is not what the run begins from; start a new run")
    return replace(moved, strength=recorded.strength)


def _require_same_samples(before: Limits, after: Limits, shards: int) -> None:
    if before.sampled(shards) != after.sampled(shards):
        iterations = ", ".join(str(iteration) for iteration in before.sampled(shards)) or "no iteration"
        raise OptionError(
            f"{after.planned(shards)} does not go with the run's samples, after {iterations}, which are counted from "
            "its end; start a new run",
            "iterations",
        )


def _changed_limits(changes: JsonObject, family: str, config: FamilyOptions, seed: int, limits: Limits) -> Limits:
    """Return the limits with their changes; refuse, by name, options that would change the model."""
    new_limits = {name: changes.pop(name) for name in list(changes) if name in LIMIT_NAMES}
    before = {"family": family, "seed": seed, **{name: getattr(limits, name) for name in SHAPING}}
    after = {name: new_limits.pop(name, before[name]) for name in SHAPING}
    after.update({name: changes.pop(name, before[name]) for name in ("family", "seed")})
    if after["family"] == family:
        before.update(config.model_dump(mode="json"))
        checked = changed_options(family, config, changes, RUN_NAMES)
        after.update(checked.model_dump(mode="json"))
    for name in SAVED:
        before[name] = getattr(limits, name)
        after[name] = new_limits.pop(name, before[name])
    for name, value in after.items():
        if value != before[name]:
            raise _differs(name, value, before[name])
    return Limits(**{**limits.model_dump(), **new_limits})


def _open_corpus(
    folder: Folder, moved: str | os.PathLike[str] | None, record: JsonObject, argument: str, name: str
) -> Corpus:
    """Open a corpus of a run at its new location, or where the run's record has it; refuse another corpus."""
    try:
        corpus = Corpus(recorded_url(folder, record["url"]) if moved is None else moved)
    except AbsentError as error:
        if moved is not None:
            raise
        raise AbsentError(f"{error} (it was the run's {name}); if it was moved, say where with {argument}") from None
    if corpus.manifest.digest != record["digest"]:
        raise MismatchError(
            f"{corpus.url}: it is not the {name} of the run, whose digest begins with {record['digest'][:12]}; this "
            f"one's with {corpus.manifest.digest[:12]}"
        )
    return corpus


def is_finished(target: Run, request: Request) -> bool:
    """Return true if a run has nothing more to do."""
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
    if not all(target.member(number).exists(MODEL_RECORD) for number in range(len(request.own_samples))):
        return False
    unchanged = Limits(**target.record()["limits"]) == request.limits
    return end_reason(target) in DONE and (model.record.iterations == planned or unchanged)


def end_reason(target: Run) -> str | None:
    """Return the reason of the last end that a run reports; None where it reports none."""
    return next((event.get("reason") for event in reversed(target.events()) if event.get("event") == "end"), None)
