"""Requests of fits, as `run.json` records them."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from collapsium.pipeline.engine.setup.heldout import require_tokens
from collapsium.pipeline.engine.setup.inputs import require_labels
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.families.base import FamilyOptions
from collapsium.pipeline.families.registry import load_family, require_corpus, require_schedule
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.errors import OptionError
from collapsium.storage.io.records import LEAST_INTEGER, MOST_INTEGER, digest_of
from collapsium.storage.runs.event_records import MAX_RESTARTS

if TYPE_CHECKING:
    from collapsium.pipeline.engine.setup.warm_start import WarmSource


VERSIONS = ("collapsium", "dask", "distributed", "numba", "numpy", "pyarrow", "zarr")
BITS = ("collapsium", "numba", "numpy", "python")  # whose other versions may give other bits
# When a run ends and what is told of it may change as it is resumed; what its states are may not.
SHAPING = ("schedule", "local_sweeps", "batch_shards")
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
    config : FamilyOptions
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
    config: FamilyOptions
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
            raise OptionError("begins from topics over words, and vectors have none", "warm")
        require_schedule(self.family, self.limits.schedule)
        require_labels(self.corpus, self.family, self.config)
        if type(self.seed) is not int:
            raise OptionError(f"expected a whole number, found {self.seed!r}", "seed")
        if not LEAST_INTEGER <= self.seed <= MOST_INTEGER:
            raise OptionError(f"expected a whole number of 64 bits, found {self.seed}", "seed")
        if type(self.restarts) is not int or not 0 <= self.restarts <= MAX_RESTARTS:
            raise OptionError(f"expected a whole number up to {MAX_RESTARTS}, found {self.restarts!r}", "restarts")
        if self.keep not in KEEPS:
            raise OptionError(f"expected {' or '.join(KEEPS)}, found {self.keep!r}", "keep")
        if self.keep == "best" and not self.restarts:
            raise OptionError("`keep` best: there is one fit only; name how many with `restarts`")
        alone = self.warm is not None and not self.warm.members
        if alone and self.restarts > 1 and not load_family(self.family).is_sampler:
            raise OptionError(
                f"`restarts` {self.restarts}: fits of '{self.family}' that begin from one run (`warm`) draw nothing, "
                f"and would all be the same; name an ensemble of {self.restarts} restarts, or make a fit from each of "
                "several runs"
            )
        if self.warm is not None and self.stochastic:
            raise OptionError("the stochastic schedule keeps no responsibilities that could begin from a run", "warm")
        self.limits.sampled(len(self.corpus.manifest.shards))
        if self.limits.stop_on == "score" and self.heldout is None:
            raise OptionError("`stop_on` score needs a held-out corpus (`heldout`)")

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
            "limits": self.limits.model_dump(),
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
        named.update({"local_states": record["warm"]["local_states"]} if "local_states" in record["warm"] else {})
    return digest_of({**named, "limits": limits, "corpus": record["corpus"]["digest"]})


def differing_versions(record: Mapping[str, Any]) -> list[str]:
    """Say which versions differ from those that a run began with, where that may change its bits."""
    began = record.get("versions", {})
    now = {name: version(name) for name in VERSIONS} | {"python": platform.python_version()}
    return [f"{name} {now[name]} instead of {began.get(name)}" for name in BITS if began.get(name) != now[name]]
