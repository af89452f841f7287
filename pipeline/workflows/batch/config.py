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

    folder: str = Field(description="where everything of the job lies: corpus, runs, published models, journal")
    keep: Annotated[int, Field(ge=1)] = Field(5, description="published versions to keep; older ones are removed")


class IngestTable(_Open):
    """The table ``[ingest]``: further names are those of `collapsium ingest`."""

    sources: tuple[str, ...] = Field(description="files, folders and globs; new ones are appended")
    grow: bool = Field(False, description="give words of new documents that are not in the vocabulary ids behind it")
    skip_existing: bool = Field(
        False, description="leave out documents whose id is in the corpus; else they are an error"
    )


class HeldoutTable(_Table):
    """The table ``[heldout]``."""

    fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1, description="of each document's tokens, or of the vectors, chosen by address"
    )
    seed: int = Field(0, description="another seed is another split")


class FitTable(_Open):
    """The table ``[fit]``: further names are the options of the family and of the loop."""

    family: str = Field(description="the model family")
    seed: int = Field(0, description="seed of all random numbers")
    warm: bool = Field(True, description="begin from the version that was published before")
    warm_iterations: Annotated[int, Field(ge=1)] | None = Field(
        None, description=f"most iterations of a fit that does; by itself {WARM_SHARE:.0%} of the others'"
    )
    restarts: Annotated[int, Field(ge=0, le=MAX_RESTARTS)] = Field(
        0, description="fits with seeds of their own, published together; member k begins from member k before"
    )
    keep: Literal["all", "best"] = Field("all", description="which of the restarts to keep")
    memory: str | int | None = None
    scratch: str | None = None
    checkpoint_every: int | None = None


class InferTable(_Table):
    """The table ``[infer]``."""

    threshold: Annotated[float, Field(ge=0, lt=1)] = Field(0.001, description="smaller proportions are left out")


class AlarmTable(_Table):
    """The table ``[alarm]``."""

    worse_by: Annotated[float, Field(ge=0)] = Field(
        0.01,
        description="nats a held-out token by which a new model may score worse than the published one (of vectors: "
        "share of its error); chance is allowed for by one over the root of the number of tokens, or vectors, besides",
    )
    command: tuple[str, ...] = Field(
        (), description="program and arguments, run on an alarm with the JSON on its input"
    )


class ReportTable(_Table):
    """The table ``[report]``."""

    out: str | None = Field(None, description="where a copy of the newest version's report goes")
    enabled: bool = Field(True, description="whether there is one")


class ClusterTable(_Table):
    """The table ``[cluster]``: where it runs."""

    scheduler: str = Field("threads", description="threads, local, serial, or a Dask scheduler's address")
    workers: int | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    cluster_timeout: float | None = None
    strict_bits: bool = Field(False, description="whether processors or versions that differ are an error")


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
