"""Configuration of a batch job: the tables of its file, and what follows from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from collapsium.pipeline.engine.setup.limits import LIMIT_NAMES, Limits
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.families.base import FamilyOptions
from collapsium.pipeline.families.registry import load_family, make_options
from collapsium.storage.corpus.manifest import DOCUMENTS, VECTORS
from collapsium.storage.errors import OptionError
from collapsium.storage.runs.event_records import MAX_RESTARTS
from collapsium.storage.units import parse_size

TOLERANCE = 0.01  # share of the tokens that an iteration moves, under which a fit ends
WARM_SHARE = 0.4  # of the iterations, which a fit that begins from the version before may take at most
SIZE = "max_decompressed"  # may be told as ``20GB``


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Open(_Table):
    """A table that takes further names, which are checked by whoever they are for."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    @property
    def more(self) -> dict[str, Any]:
        """The further names."""
        return {name.replace("-", "_"): value for name, value in (self.model_extra or {}).items()}


class BatchTable(_Table):
    """The table ``[batch]``."""

    folder: str = Field(description="folder of the job: corpus, runs, published models, journal")
    keep: Annotated[int, Field(ge=1)] = Field(
        5, description="number of published versions to keep; older ones are removed"
    )


class IngestTable(_Open):
    """The table ``[ingest]``: further names are those of `collapsium ingest`."""

    sources: tuple[str, ...] = Field(description="files, folders and globs; new ones are appended")
    grow: bool = Field(False, description="add new words to the vocabulary; the ids of known words stay")
    skip_existing: bool = Field(
        False, description="leave out documents whose id the corpus already has; otherwise they are an error"
    )


class HeldoutTable(_Table):
    """The table ``[heldout]``."""

    fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1, description="share of each document's tokens, or of the vectors, to hold out"
    )
    seed: int = Field(0, description="seed of the random split")


class FitTable(_Open):
    """The table ``[fit]``: further names are the options of the family and of the loop."""

    family: str = Field(description="the model family")
    seed: int = Field(0, description="seed of all random numbers")
    warm: bool = Field(True, description="start each fit from the version published last")
    warm_iterations: Annotated[int, Field(ge=1)] | None = Field(
        None, description=f"most iterations of a warm-started fit (default: {WARM_SHARE:.0%} of `iterations`)"
    )
    restarts: Annotated[int, Field(ge=0, le=MAX_RESTARTS)] = Field(
        0,
        description="number of random seeds, published together as an ensemble; member k starts from member k "
        "of the last version",
    )
    keep: Literal["all", "best"] = Field("all", description="restarts to keep: all, or the best")
    memory: str | int | None = None
    scratch: str | None = None
    checkpoint_every: int | None = None


class InferTable(_Table):
    """The table ``[infer]``."""

    threshold: Annotated[float, Field(ge=0, lt=1)] = Field(0.001, description="leave out smaller proportions")


class AlarmTable(_Table):
    """The table ``[alarm]``."""

    worse_by: Annotated[float, Field(ge=0)] = Field(
        0.01,
        description="tolerated loss of a new model against the published one: nats a held-out token or, for "
        "vectors, share of the reconstruction error; a margin for chance is added, one over the "
        "square root of the number of held-out tokens or vectors",
    )
    command: tuple[str, ...] = Field(
        (), description="program and arguments to run on an alarm; it reads the alarm as JSON from standard input"
    )


class ReportTable(_Table):
    """The table ``[report]``."""

    out: str | None = Field(None, description="write a copy of the newest version's report here")
    enabled: bool = Field(True, description="write a report of each version")


class ClusterTable(_Table):
    """The table ``[cluster]``: where it runs."""

    scheduler: str = Field("threads", description="threads, local, serial, or the address of a Dask scheduler")
    workers: int | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    cluster_timeout: float | None = None
    strict_bits: bool = Field(False, description="stop with an error if processors or library versions differ")


class Job(_Table):
    """A batch job.

    Attributes
    ----------
    batch, ingest, heldout, fit, infer, alarm, report, cluster
        The tables of the file.
    """

    batch: BatchTable
    ingest: IngestTable
    heldout: HeldoutTable = HeldoutTable()
    fit: FitTable
    infer: InferTable = InferTable()
    alarm: AlarmTable = AlarmTable()
    report: ReportTable = ReportTable()
    cluster: ClusterTable = ClusterTable()
    _name: str = pydantic.PrivateAttr("")

    @property
    def name(self) -> str:
        """The job's name: that of its file, without the suffix."""
        return self._name

    @property
    def holds(self) -> str:
        """What the family takes: ``documents`` or ``vectors``."""
        return str(load_family(self.fit.family).corpus_kind)

    @property
    def limits(self) -> dict[str, Any]:
        """Options of the loop: what the file says, and a tolerance where it says none and fits have an end by it."""
        # Trees of vectors grow after counts have come to rest, and samples count from the last iteration.
        said = {name: value for name, value in self.fit.more.items() if name in LIMIT_NAMES}
        ends = said.get("schedule") != "stochastic" and not said.get("samples") and self.holds == DOCUMENTS
        return {"tolerance": TOLERANCE, **said} if ends else said

    def limits_when(self, warm: bool) -> dict[str, Any]:
        """Return the options of the loop for a fit that begins from another one, or for one that does not."""
        found = self.limits
        if warm:
            limits = Limits(**found)
            least = max(limits.samples - 1, 0) * limits.sample_every + 1
            found["iterations"] = self.fit.warm_iterations or max(int(WARM_SHARE * limits.sweeps), least)
        return found

    @property
    def options(self) -> dict[str, Any]:
        """Options of the family."""
        return {name: value for name, value in self.fit.more.items() if name not in LIMIT_NAMES}

    @property
    def config(self) -> FamilyOptions:
        """Options of the family, checked."""
        return make_options(self.fit.family, self.options)

    @property
    def begins_warm(self) -> bool:
        """Whether fits may begin from the version before; those of vectors cannot."""
        return self.fit.warm and self.limits.get("schedule") != "stochastic" and self.holds == DOCUMENTS

    @property
    def restarts(self) -> dict[str, Any]:
        """Options of an ensemble; none where there is one fit."""
        return {"restarts": self.fit.restarts, "keep": self.fit.keep} if self.fit.restarts else {}

    @property
    def reading(self) -> dict[str, Any]:
        """What `ingest` is told of the sources, by its own names."""
        found = self.ingest.more
        if self.holds == VECTORS:
            found.setdefault("format", VECTORS)
        if isinstance(found.get(SIZE), str):
            found[SIZE] = parse_size(found[SIZE], SIZE)
        return found

    @property
    def tls(self) -> TLS | None:
        """Certificates of the cluster."""
        named = {name: getattr(self.cluster, f"tls_{name}") for name in ("ca", "cert", "key")}
        missing = [name for name, path in named.items() if path is None]
        if len(missing) == len(named):
            return None
        if missing:
            raise OptionError(f"[cluster]: tls_{missing[0]} is required: tls_ca, tls_cert and tls_key belong together")
        return TLS(**named)

    def plan(self) -> dict[str, Any]:
        """Return what makes a published model what it is, but for the corpus."""
        return {
            "family": self.fit.family,
            "options": self.config.model_dump(mode="json"),
            "limits": self.limits,
            "seed": self.fit.seed,
            "heldout": self.heldout.model_dump(mode="json"),
            "warm": self.begins_warm,
            "warm_iterations": self.fit.warm_iterations,
            "threshold": self.infer.threshold,
            **self.restarts,
        }
