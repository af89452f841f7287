"""What a fit was asked for: as `run.json` records it, and as it is taken up again."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from collapsium.pipeline.engine.setup.heldout import require_tokens
from collapsium.pipeline.engine.setup.limits import LIMIT_NAMES, RUN_NAMES, Limits
from collapsium.pipeline.families.base import FamilyConfig, load_family, make_config, require_corpus, require_schedule
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.errors import AbsentError, DamagedError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.recorded_urls import recorded_url
from collapsium.storage.io.records import LEAST_INTEGER, MOST_INTEGER, digest_of
from collapsium.storage.runs.event_records import MAX_RESTARTS
from collapsium.storage.runs.model import RECORD as MODEL_RECORD
from collapsium.storage.runs.model import StoredModel
from collapsium.storage.runs.run import DONE, RECORD, Run

if TYPE_CHECKING:
    from collapsium.pipeline.engine.setup.warm_start import WarmSource
from functools import lru_cache

from collapsium.storage.corpus.label_index import LabelTable, label_table
from collapsium.storage.corpus.segments import COLUMN as SEGMENTS
from collapsium.workers.families.base import is_labelled, wanted_by

VERSIONS = ("collapsium", "dask", "distributed", "numba", "numpy", "pyarrow", "zarr")
BITS = ("collapsium", "numba", "numpy", "python")  # whose other versions may give other bits
# When a run ends and what is told of it may change as it is resumed; what its states are may not.
SHAPING = ("schedule", "local_sweeps", "batch_shards")
SAMPLING = ("samples", "sample_every")  # which states are kept
KEEPS = ("all", "best")


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
    warm : WarmSource or None
        The model to begin from.
    restarts : int
        How many members an ensemble has; 0 for a fit by itself.
    keep : {"all", "best"}
        Which of them to keep.
    begun_with : int or None
        Iterations that were planned as the run began, by which families make theirs; None for a new run.
    """

    corpus: Corpus
    heldout: Corpus | None
    family: str
    config: FamilyConfig
    limits: Limits
    seed: int
    warm: WarmSource | None = None
    restarts: int = 0
    keep: str = "all"
    begun_with: int | None = None

    def __post_init__(self) -> None:
        require_corpus(self.family, self.corpus)
        self.corpus.require_tokens()
        if self.heldout is not None:
            require_tokens(self.heldout)
        if self.warm is not None and self.corpus.holds != DOCUMENTS:
            raise OptionError("--warm: begins from topics over words, and vectors have none")
        require_schedule(self.family, self.limits.schedule)
        require_labels(self.corpus, self.family, self.config)
        if type(self.seed) is not int:
            raise OptionError(f"--seed: expected a whole number, found {self.seed!r}")
        if not LEAST_INTEGER <= self.seed <= MOST_INTEGER:
            raise OptionError(f"--seed: expected a whole number of 64 bits, found {self.seed}")
        if type(self.restarts) is not int or not 0 <= self.restarts <= MAX_RESTARTS:
            raise OptionError(f"--restarts: expected a whole number up to {MAX_RESTARTS}, found {self.restarts!r}")
        if self.keep not in KEEPS:
            raise OptionError(f"--keep: expected {' or '.join(KEEPS)}, found {self.keep!r}")
        if self.keep == "best" and not self.restarts:
            raise OptionError("--keep best: there is one fit only; name how many with --restarts")
        alone = self.warm is not None and not self.warm.members
        if alone and self.restarts > 1 and not load_family(self.family).SAMPLER:
            raise OptionError(
                f"--restarts {self.restarts}: fits of '{self.family}' that begin from one run (--warm) draw nothing, "
                f"and would all be the same; name an ensemble of {self.restarts} restarts, or make a fit from each of "
                "several runs"
            )
        if self.warm is not None and self.stochastic:
            raise OptionError("--warm: the stochastic schedule keeps no responsibilities that could begin from a run")
        self.limits.sampled(len(self.corpus.manifest.shards))
        if self.limits.stop_on == "score" and self.heldout is None:
            raise OptionError("--stop-on score needs a held-out corpus (--heldout)")

    @property
    def stochastic(self) -> bool:
        """Whether the schedule is the stochastic one."""
        return self.limits.schedule == "stochastic"

    @property
    def planned(self) -> int:
        """Iterations that were planned as the run began; it may have been given others since."""
        if self.begun_with is not None:
            return self.begun_with
        return self.limits.planned(len(self.corpus.manifest.shards))

    @property
    def sampled(self) -> tuple[int, ...]:
        """The iterations after which samples are kept."""
        return self.limits.sampled(len(self.corpus.manifest.shards))

    def record(self) -> dict[str, Any]:
        """Return what `run.json` shall say."""
        heldout = self.heldout
        more: dict[str, Any] = {} if self.warm is None else {"warm": self.warm.record()}
        more.update({"restarts": self.restarts, "keep": self.keep} if self.restarts else {})
        return {
            **more,
            "family": self.family,
            "options": self.config.model_dump(mode="json"),
            "limits": asdict(self.limits),
            "planned": self.planned,
            "seed": self.seed,
            "corpus": _corpus_record(self.corpus),
            "heldout": heldout and {"url": heldout.folder.address, "digest": heldout.manifest.digest},
            "versions": {name: version(name) for name in VERSIONS} | {"python": platform.python_version()},
        }


def _corpus_record(corpus: Corpus) -> dict[str, Any]:
    """Name a training corpus; by the digests of its shards' files a later fit finds what was kept of each."""
    found: dict[str, Any] = {"url": corpus.folder.address, "digest": corpus.manifest.digest}
    if corpus.holds == DOCUMENTS:
        found["shards"] = [row.sha256 for row in corpus.manifest.shards]
    return found


def fingerprint(record: Mapping[str, Any]) -> str:
    """Return the digest of all that makes a run's states what they are, given its record."""
    limits = {name: record["limits"][name] for name in SHAPING}
    named = {name: record[name] for name in ("family", "options", "seed", "planned") if name in record}
    if "warm" in record:
        named["warm"] = record["warm"]["digest"]
        named.update({"locals": record["warm"]["locals"]} if "locals" in record["warm"] else {})
    return digest_of({**named, "limits": limits, "corpus": record["corpus"]["digest"]})


def taken_up(
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
        config = make_config(family, record["options"])
        seed, planned, wheres = record["seed"], record.get("planned"), (record["corpus"], record["heldout"])
        restarts, keep = record.get("restarts", 0), record.get("keep", "all")
        source = _warm(run.folder, record.get("warm"), warm)
    except (KeyError, TypeError, OptionError) as error:
        raise DamagedError(path, f"expected the record of a fit ({error})") from None
    said = dict(options)
    for name, had in (("restarts", restarts), ("keep", keep)):
        now = said.pop(name, had)
        if now != had:
            raise OptionError(f"--{name} {now}: the run has {name} = {had}; start a new run, or leave the option out")
    before, limits = limits, _changed(said, family, config, seed, limits)
    train = _found(run.folder, corpus, wheres[0], "CORPUS", "corpus")
    _require_same_samples(before, limits, len(train.manifest.shards))
    held = None if wheres[1] is None else _found(run.folder, heldout, wheres[1], "--heldout CORPUS", "held-out corpus")
    if wheres[1] is None and heldout is not None:
        raise OptionError(f"--heldout {os.fspath(heldout)}: the run has none; start a new run to have it scored")
    after = {**record, "limits": asdict(limits)}
    after["corpus"] = {**wheres[0], "url": train.folder.address}
    if held is not None:
        after["heldout"] = {"url": held.folder.address, "digest": held.manifest.digest}
    if source is not None:
        after["warm"] = source.record()
    return Request(train, held, family, config, limits, seed, source, restarts, keep, planned), after


def _warm(folder: Folder, record: Mapping[str, Any] | None, given: WarmSource | None) -> WarmSource | None:
    """Name the model that a run begins from, where it lies by now; refuse another."""
    from collapsium.pipeline.engine.setup.warm_start import WarmSource

    if record is None:
        if given is not None:
            raise MismatchError(f"--warm {given.url}: the run does not begin from another; start a new run")
        return None
    recorded = WarmSource.from_record(folder, record)
    if given is None:
        return recorded
    pairs = zip((given, *given.members), (recorded, *recorded.members), strict=False)
    if len(given.members) != len(recorded.members) or any(one.digest != other.digest for one, other in pairs):
        raise MismatchError(f"--warm {given.url}: it is not the model that the run begins from")
    members = (replace(one, locals=other.locals) for one, other in zip(given.members, recorded.members, strict=True))
    return replace(given, locals=recorded.locals, members=tuple(members))


def _require_same_samples(before: Limits, after: Limits, shards: int) -> None:
    if before.sampled(shards) != after.sampled(shards):
        when = ", ".join(str(iteration) for iteration in before.sampled(shards)) or "no iteration"
        raise OptionError(
            f"--iterations {after.planned(shards)}: the run keeps samples after {when}, counted from its end; start a "
            "new run"
        )


def _changed(options: dict[str, Any], family: str, config: FamilyConfig, seed: int, limits: Limits) -> Limits:
    """Return the limits with what is said anew; refuse, by name, what would change the model."""
    said = {name: options.pop(name) for name in list(options) if name in LIMIT_NAMES}
    had = {"family": family, "seed": seed, **{name: getattr(limits, name) for name in SHAPING}}
    now = {name: said.pop(name, had[name]) for name in SHAPING}
    now.update({name: options.pop(name, had[name]) for name in ("family", "seed")})
    if now["family"] == family:
        had.update(config.model_dump(mode="json"))
        known = make_config(family, {**config.model_dump(), **options}, RUN_NAMES)
        now.update(known.model_dump(mode="json"))
    for name in SAMPLING:
        had[name], now[name] = getattr(limits, name), said.pop(name, getattr(limits, name))
    for name, value in now.items():
        if value != had[name]:
            raise OptionError(
                f"--{name.replace('_', '-')} {value}: the run has {name} = {had[name]}, and another would change "
                "its results; start a new run, or leave the option out"
            )
    return replace(limits, **said)


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
    try:
        model = StoredModel(target.model.url)
    except DamagedError:  # it is written again, from the checkpoint
        return False
    if latest and latest[0] != model.record.iterations:
        return False
    if not all(target.member(number).exists(MODEL_RECORD) for number in range(request.limits.samples)):
        return False
    last: dict[str, Any] = next((event for event in reversed(target.events()) if event.get("event") == "end"), {})
    unchanged = Limits(**target.record()["limits"]) == request.limits
    return last.get("reason") in DONE and (model.record.iterations == planned or unchanged)


def labels_of(corpus: Corpus, family: str, config: FamilyConfig) -> LabelTable | None:
    """Read which labels and numbers a corpus has, of the fields that a family is asked to take.

    Parameters
    ----------
    corpus : Corpus
        The training corpus.
    family : str
        The family's name.
    config : FamilyConfig
        Its options; ``labels`` names fields, none for all, and ``covariates`` those of numbers.

    Returns
    -------
    LabelTable or None
        None of a family that takes none.

    Raises
    ------
    OptionError
        The corpus has no such field.
    """
    if not is_labelled(family):
        return None
    fields, numbers = (tuple(getattr(config, name, ())) for name in ("labels", "covariates"))
    return _read(corpus.folder.address, corpus.manifest.digest, fields, numbers)


@lru_cache(maxsize=4)
def _read(address: str, digest: str, fields: tuple[str, ...], numbers: tuple[str, ...]) -> LabelTable:  # noqa: ARG001
    """Read a table once for the plan and the fit; a corpus that has changed has another digest."""
    return label_table(Corpus(address), fields, numbers)


def require_labels(corpus: Corpus, family: str, config: FamilyConfig) -> None:
    """Refuse a corpus without labels where a family is nothing without them.

    Parameters
    ----------
    corpus, family, config
        As for `labels_of`.

    Raises
    ------
    OptionError
        The family needs labels, and the corpus has none, or none of the fields that are taken.
    """
    if not getattr(load_family(family), "NEEDS_LABELS", False):
        return
    table = labels_of(corpus, family, config)
    if table is None or not table.names:
        raise OptionError(
            f"{corpus.url}: has no labels, and family '{family}' needs them; `collapsium ingest --labels NAME` takes "
            "those of documents, `--label-files FILE` those of side files"
        )


def missing_inputs(corpus: Corpus, family: str, config: FamilyConfig) -> list[str]:
    """Return a line for what a family takes of documents and a corpus does not have.

    Parameters
    ----------
    corpus, family, config
        As for `labels_of`.

    Returns
    -------
    list of str
        Nothing, where the family has all that it takes.
    """
    lines = []
    if wanted_by(family)["segmented"] and config.takes_segments and SEGMENTS not in corpus.manifest.fields:
        lines.append(
            f"{corpus.url}: has no segments, so that each document is one segment of '{family}'; "
            "`collapsium ingest --segments` keeps those of texts"
        )
    table = labels_of(corpus, family, config) if config.takes_labels else None
    if table is not None and not len(table):
        lines.append(
            f"{corpus.url}: has no labels, so that '{family}' is fitted as if there were none; `collapsium ingest "
            "--labels NAME` takes those of documents"
        )
    return lines
