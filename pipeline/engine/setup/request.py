"""The request of a fit, as `run.json` records it, of a new fit and of a resumed one."""

from __future__ import annotations

import functools
import os
import platform
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import accumulate

from collapsium.pipeline.engine.setup.initialisation import StartSource
from collapsium.pipeline.engine.setup.inputs import PREVALENCE, prevalence_of, require_labels, seeds_of, unknown_words
from collapsium.pipeline.engine.setup.limits import LIMIT_NAMES, RUN_NAMES, SHORT, FitOptions, Limits
from collapsium.pipeline.engine.setup.warm_start import WarmSource
from collapsium.pipeline.engine.state import Growth, planned_growth
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import (
    changed_options,
    family_names,
    load_family,
    recorded_options,
    require_corpus,
    require_schedule,
)
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.shard import Documents, Shard
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import AbsentError, DamagedError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder, recorded_url
from collapsium.storage.io.records import LEAST_INTEGER, MOST_INTEGER, digest_of
from collapsium.storage.runs.members import CONSENSUS
from collapsium.storage.runs.model import RECORD as MODEL_RECORD
from collapsium.storage.runs.model import ShardDocuments, StoredModel
from collapsium.storage.runs.run import DONE, RECORD, Run
from collapsium.workers.families.family import FamilyOptions, IntegratesProportions
from collapsium.workers.options import first_names


@dataclass(frozen=True)
class HeldoutReference:
    """Reference to the held-out pairs of a training shard's documents."""

    number: int  # Number of the training shard
    training: ShardDocuments  # Documents of the training shard
    # Shards of the held-out corpus, each with its first document that belongs here and the one after the last
    parts: tuple[tuple[ShardReference, int, int], ...]
    name: str  # Name of the training documents in errors

    def load(self, *, segmented: bool = False) -> Shard:
        """Read the held-out pairs of exactly the training shard's documents."""
        heldout = Documents.join([part.documents().slice(first, last) for part, first, last in self.parts])
        if heldout.ids_sha256() != self.training.ids_sha256:
            raise MismatchError(
                f"{self.parts[0][0].folder.url}: expected the documents of {self.name}, with the same ids in the same "
                f"order; the pairs of shard {self.number} (from {heldout.ids[0].as_py()!r} on) have other ids"
            )
        return Shard.of(self.number, heldout, segmented=segmented)


def require_tokens(heldout: Corpus) -> None:
    """Raise an error if a corpus has no tokens to hold out."""
    if heldout.holds != DOCUMENTS:
        raise OptionError(
            f"{heldout.url}: vectors have no tokens to hold out; hold out vectors by `split` with `documents`, and "
            "score them by `evaluate` with `unseen`",
            "heldout",
        )
    heldout.require_tokens()


def align(training: Sequence[ShardDocuments], heldout: Corpus, name: str) -> list[HeldoutReference]:
    """Return references to the held-out pairs of each training shard."""
    documents = sum(shard.documents for shard in training)
    if heldout.manifest.documents != documents:
        raise MismatchError(
            f"{heldout.url}: expected the {documents} documents of {name}, found {heldout.manifest.documents}; "
            "a held-out corpus has the same documents, some perhaps empty"
        )
    references, aligned, first = heldout.references, [], 0
    starts = [0, *accumulate(reference.record.documents for reference in references)]
    for number, shard in enumerate(training):
        last = first + shard.documents
        places = range(bisect_right(starts, first) - 1, bisect_left(starts, last))
        parts = tuple(
            (references[at], max(first, starts[at]) - starts[at], min(last, starts[at + 1]) - starts[at])
            for at in places
        )
        aligned.append(HeldoutReference(number, shard, parts, name))
        first = last
    return aligned


VERSIONS = ("collapsium", "dask", "distributed", "numba", "numpy", "pyarrow", "scipy", "zarr")
BITS = ("collapsium", "numba", "numpy", "python", "scipy")  # Packages whose version may affect the bits
NOT_IN_0_1 = ("scipy",)  # Packages among these whose version 0.1 did not record
# Options of the loop that determine its states; they may not change when a run is resumed
SHAPING = ("schedule", "local_sweeps", "batch_shards")
# Options of the loop besides `SHAPING` that may not change when a run is resumed
SAVED = ("samples", "sample_every", "grow")
# Options of families that 0.1 did not have; where they are empty, digests equal 0.1's
ADDED = ("prevalence", "seeds", "weights")


@dataclass(frozen=True)
class Request:
    """The inputs and options of a fit."""

    corpus: Corpus  # The training corpus
    heldout: Corpus | None  # Held-out tokens of the same documents
    family: str  # Name of the family
    config: FamilyOptions  # Options of the family
    limits: Limits  # Options of the loop
    seed: int  # Seed of all random numbers
    warm: WarmSource | None = None  # The model to begin from
    restarts: int = 0  # Members of an ensemble; 0 for a fit by itself
    keep: str = "all"  # The members to retain
    # Iterations that were planned when the run began, on which families may depend; None for a new run
    begun_with: int | None = None
    growth: Growth | None = None  # Stages over samples of the documents; None where all iterations sweep all documents
    # The start of the documents; None where they begin at random, or from another model
    start: StartSource | None = None
    combine: str = "predictions"  # Whether the members are joined into one model of the run
    preset: str | None = None  # The preset that a new fit names, whose options are among the others

    def __post_init__(self) -> None:
        require_corpus(self.family, self.corpus)
        self.corpus.require_tokens()
        if self.heldout is not None:
            require_tokens(self.heldout)
        if self.warm is not None and self.corpus.holds != DOCUMENTS:
            raise OptionError("begins from topics over words, and vectors have none", "warm")
        require_schedule(self.family, self.limits.schedule)
        require_labels(self.corpus, self.family, self.config)
        seeds_of(self.corpus, self.config)
        unknown_words(self.corpus, self.config)
        if prevalence_of(self.config) is not None and self.stochastic:
            raise OptionError("cannot be combined with the stochastic `schedule`", PREVALENCE)
        if not LEAST_INTEGER <= self.seed <= MOST_INTEGER:
            raise OptionError(f"expected a whole number of 64 bits, found {self.seed}", "seed")
        if self.keep == "best" and not self.restarts:
            raise OptionError("'best' requires `restarts`, the number of fits to choose from", "keep")
        if self.has_consensus:
            models = self.restarts * max(self.limits.samples, 1)
            require_combinable(self.family, self.limits.schedule, self.keep, models)
        alone = self.warm is not None and not self.warm.members
        if alone and self.restarts > 1 and not load_family(self.family).is_sampler:
            raise OptionError(
                f"{self.restarts} fits of '{self.family}' from one run (`warm`) would all be the same, as they draw no "
                f"random numbers; name an ensemble of {self.restarts} restarts, or fit from each of several runs",
                "restarts",
            )
        if self.warm is not None and self.stochastic:
            raise OptionError("the stochastic schedule keeps no responsibilities that could begin from a run", "warm")
        if self.start is not None:
            if self.warm is not None:
                raise OptionError("cannot be combined with `warm`, which provides proportions", "init")
            if self.stochastic:
                raise OptionError("the stochastic schedule keeps no responsibilities that could begin from it", "init")
            self.start.require(self.family, self.config)
            if self.start.url and self.restarts > 1 and not load_family(self.family).is_sampler:
                raise OptionError(
                    f"{self.restarts} fits of '{self.family}' from one file (`init`) would all be the same, as they "
                    "draw no random numbers; leave one of the two out",
                    "restarts",
                )
        self.limits.sampled(len(self.corpus.manifest.shards))
        if self.limits.stop_on == "score" and self.heldout is None:
            raise OptionError("'score' requires a held-out corpus (`heldout`)", "stop_on")

    @property
    def has_consensus(self) -> bool:
        """True if the members are joined into one model of the run."""
        return self.combine == CONSENSUS

    @property
    def start_kind(self) -> str:
        """The kind of the start; empty where documents begin at random."""
        return "" if self.start is None else self.start.kind

    @property
    def stochastic(self) -> bool:
        """True of the stochastic schedule."""
        return self.limits.schedule == "stochastic"

    @property
    def planned(self) -> int:
        """Iterations that were planned when the run began; a resumed run may have others."""
        if self.begun_with is not None:
            return self.begun_with
        return self.limits.planned(len(self.corpus.manifest.shards))

    @property
    def sampled(self) -> tuple[int, ...]:
        """The iterations after which samples are saved."""
        return self.limits.sampled(len(self.corpus.manifest.shards))

    @property
    def own_samples(self) -> tuple[int, ...]:
        """The iterations after which the run itself saves samples; a consensus has its members' samples."""
        return () if self.has_consensus else self.sampled

    def with_growth(self) -> Request:
        """Return the request of a new fit with the stages that its option `grow` and its size call for.

        A fit that grows begins at random; from clusters of words, topics form in few sweeps over all documents.
        """
        manifest, last = self.corpus.manifest, self.planned
        growth = planned_growth(
            self.family,
            self.config,
            self.limits.grow,
            documents=manifest.documents,
            tokens=manifest.tokens,
            complete_by=min((*self.sampled, last)),
            stochastic=self.stochastic,
            warm=self.warm is not None,
            started=self.start is not None and not self.start.usual,
        )
        if growth is None or self.start is None:
            return replace(self, growth=growth)
        return replace(self, growth=growth, start=None) if self.limits.grow == "always" else self

    def record(self) -> dict[str, object]:
        """Return the request as `run.json` has it."""
        heldout = self.heldout
        record: dict[str, object] = {"url": self.corpus.folder.address, "digest": self.corpus.manifest.digest}
        if self.corpus.holds == DOCUMENTS:
            record["shards"] = [shard.sha256 for shard in self.corpus.manifest.shards]
        return {
            **({} if self.warm is None else {"warm": self.warm.record()}),
            **({} if self.start is None else {"start": self.start.record()}),
            **({"restarts": self.restarts, "keep": self.keep} if self.restarts else {}),
            **({"combine": self.combine} if self.has_consensus else {}),
            "family": self.family,
            "options": self.config.model_dump(mode="json"),
            "limits": self.limits.model_dump(),
            "planned": self.planned,
            **({} if self.growth is None else {"growth": self.growth.record()}),
            "seed": self.seed,
            "corpus": record,
            "heldout": heldout and {"url": heldout.folder.address, "digest": heldout.manifest.digest},
            "versions": {**_versions()},
        }


def new_request(
    corpus: Corpus,
    family: str,
    config: FamilyOptions,
    options: FitOptions,
) -> Request:
    """Return the request of a new fit."""
    heldout = None if options.heldout is None else Corpus(options.heldout)
    warm = None if options.warm is None else WarmSource.of(options.warm, options.restarts)
    # The samples of a single fit are joined like the samples of an ensemble of one.
    restarts = options.restarts or int(options.combine == CONSENSUS)
    start = StartSource.of_fit(
        options.init,
        options.init_strength,
        family,
        config,
        corpus.manifest.documents,
        elsewhere=options.schedule != "batch" or warm is not None,
    )
    inputs = (corpus, heldout, family, config, options.limits, options.seed, warm, restarts, options.keep)
    return Request(*inputs, combine=options.combine, start=start, preset=options.preset).with_growth()


def offered_presets(request: Request) -> list[str]:
    """Return a line on the presets that suit a corpus of short documents, where none is named."""
    manifest = request.corpus.manifest
    length = manifest.tokens / max(manifest.documents, 1)
    usual = request.start is not None and request.start.usual
    if request.preset is not None or not usual or length >= SHORT:
        return []
    text = (
        f"documents have {length:.0f} words on average: `preset` short-texts is made for such documents, and `preset` "
    )
    return [f"{text}clusters groups them; `preset` defaults leaves this line out"]


def require_combinable(family: str, schedule: str, keep: str, models: int) -> None:
    """Refuse a consensus of models that cannot be joined."""
    if not issubclass(load_family(family), IntegratesProportions):
        able = [name for name in family_names() if issubclass(load_family(name), IntegratesProportions)]
        raise OptionError(
            f"'consensus' is for families of flat topics ({', '.join(able)}), found family '{family}'", "combine"
        )
    if schedule == "stochastic":
        raise OptionError(
            "'consensus' ends with a fit that begins from the members' responsibilities, which the stochastic "
            "schedule does not keep",
            "combine",
        )
    if keep == "best":
        raise OptionError("'consensus' joins all members, so it cannot be combined with `keep` 'best'", "combine")
    if models < 2:
        raise OptionError("'consensus' requires 2 models or more, by `restarts` or `samples`", "combine")


def fingerprint(record: JsonObject) -> str:
    """Return the digest of all fields of a run's record that determine its states."""
    limits = {name: record["limits"][name] for name in SHAPING}
    names = ("family", "options", "seed", "planned", "growth", "combine")
    named: JsonObject = {name: record[name] for name in names if name in record}
    options = first_names(record["options"], load_family(record["family"]).Options)
    named["options"] = {name: value for name, value in options.items() if value or name not in ADDED}
    if "warm" in record:
        named["warm"] = record["warm"]["digest"]
        named.update({"local_states": record["warm"]["local_states"]} if "local_states" in record["warm"] else {})
    if "start" in record:
        named["start"] = {name: value for name, value in record["start"].items() if name != "url"}
    if "combine" in record:
        # The models that are joined.
        named.update({name: record["limits"][name] for name in ("samples", "sample_every")})
        named["restarts"] = record["restarts"]
    return digest_of({**named, "limits": limits, "corpus": record["corpus"]["digest"]})


@functools.cache
def _versions() -> dict[str, str]:
    """Return the versions of this process, which takes 20 ms the first time: their metadata are parsed."""
    return {name: version(name) for name in VERSIONS} | {"python": platform.python_version()}


def differing_versions(record: JsonObject) -> list[str]:
    """Return the packages whose version differs from that which a run began with, and may change its bits."""
    now = _versions()
    began = {name: now[name] for name in NOT_IN_0_1} | record.get("versions", {})
    return [f"{name} {now[name]} instead of {began.get(name)}" for name in BITS if began.get(name) != now[name]]


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
    shards = len(training.manifest.shards)
    if before.sampled(shards) != limits.sampled(shards):
        iterations = ", ".join(str(iteration) for iteration in before.sampled(shards)) or "no iteration"
        raise OptionError(
            f"{limits.planned(shards)} would move the run's samples, after {iterations}, which are counted from "
            "its end; start a new run",
            "iterations",
        )
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
        raise MismatchError(
            f"`init` {moved.url or moved.kind}: the run has a different initialisation; start a new run"
        )
    if (moved.kind, moved.digest) != (recorded.kind, recorded.digest):
        raise MismatchError(f"`init` {moved.url or moved.kind}: it is not the run's initialisation; start a new run")
    return replace(moved, strength=recorded.strength)


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
    growth = request.growth
    if growth is not None and planned < growth.complete_from:
        raise OptionError(
            f"expected at least {growth.complete_from}, found {planned}: the run sweeps all documents from then on",
            "iterations",
        )
    before = Limits(**target.record()["limits"]).planned(len(request.corpus.manifest.shards))
    if latest and planned < before:
        stopped = Model(target.folder.url)
        if stopped.family.uncounted_tokens(stopped.global_state) > 0:
            raise OptionError(
                f"expected at least {before}, with which the run was planned, found {planned}: some tokens do not "
                "count until shortly before",
                "iterations",
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
