"""Configuration of a batch job: the tables of its file, and the options derived from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from collapsium.pipeline.engine.setup.limits import LIMIT_NAMES, Limits
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.models.registry import load_family, make_options
from collapsium.pipeline.options import Options, Value
from collapsium.storage.corpus.manifest import DOCUMENTS, VECTORS
from collapsium.storage.errors import OptionError
from collapsium.storage.runs.event_records import MAX_RESTARTS
from collapsium.storage.runs.members import CONSENSUS
from collapsium.storage.units import parse_size
from collapsium.workers.families.family import FamilyOptions
from collapsium.workers.options import Formerly, first_names


class BatchOptions(Options):
    """Acceptance of the new model."""

    accept: bool = Field(False, description="publish the new model even if it scores worse")


class RollbackOptions(Options):
    """The version to make the current one."""

    to: Annotated[int | None, Value("N")] = Field(
        None, description="number of the version (default: the one before the current version)"
    )


TOLERANCE = 0.01  # Default tolerance: share of the tokens that an iteration moves below which a fit ends
WARM_SHARE = 0.4  # Default limit of a warm-started fit, as a share of the iterations
SIZE = "max_decompressed"  # Option that may be written as ``20GB``


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Open(_Table):
    """A table that accepts further keys, which are validated by the function they are for."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    @property
    def further(self) -> dict[str, Any]:
        """The further keys and their values."""
        return {name.replace("-", "_"): value for name, value in (self.model_extra or {}).items()}


class BatchTable(_Table):
    """The table ``[batch]``."""

    folder: str = Field(description="folder of the job: corpus, runs, published models, journal")
    keep: Annotated[int, Field(ge=1)] = Field(5, description="published versions to keep; older ones are removed")


class IngestTable(_Open):
    """The table ``[ingest]``; further keys are options of `collapsium ingest`."""

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
    """The table ``[fit]``; further keys are options of the family and of the loop."""

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
    combine: Literal["predictions", "consensus"] = Field(
        "predictions",
        description="predictions: a version's restarts or samples stay apart, and their predictions are averaged; "
        "consensus: they are joined by one more fit",
    )
    init: Annotated[str | None, Formerly("start")] = Field(
        None,
        description="as for `collapsium fit`: random, quick-clusters, clusters, documents, tree, or a Parquet file of "
        "proportions; of fits that do not start from a version",
    )
    init_strength: Annotated[float, Field(ge=0), Formerly("start_strength")] = Field(
        0.0, description="tokens with which the initial proportions stay in each document's prior"
    )
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
    """The table ``[cluster]``: the executor of all steps."""

    scheduler: str = Field(
        "threads", description="threads, local, serial, or the address or the file of a Dask scheduler"
    )
    workers: int | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    cluster_timeout: float | None = None
    strict_bits: bool = Field(False, description="stop with an error if processors or library versions differ")


class Job(_Table):
    """A batch job."""

    # The tables of the file
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
        """Contents of the corpus, ``documents`` or ``vectors``, which the family determines."""
        return str(load_family(self.fit.family).corpus_kind)

    @property
    def limits(self) -> dict[str, Any]:
        """Options of the loop from the file, with a default tolerance where fits can end by one."""
        # Trees of vectors grow after counts have converged, and samples count from the last iteration.
        options = {name: value for name, value in self.fit.further.items() if name in LIMIT_NAMES}
        converges = options.get("schedule") != "stochastic" and not options.get("samples") and self.holds == DOCUMENTS
        return {"tolerance": TOLERANCE, **options} if converges else options

    def limits_when(self, warm: bool) -> dict[str, Any]:
        """Return the options of the loop for a warm-started fit, or for another one."""
        options = self.limits
        if warm:
            limits = Limits(**options)
            least = max(limits.samples - 1, 0) * limits.sample_every + 1
            options["iterations"] = self.fit.warm_iterations or max(int(WARM_SHARE * limits.sweeps), least)
        return options

    @property
    def options(self) -> dict[str, Any]:
        """Options of the family."""
        return {name: value for name, value in self.fit.further.items() if name not in LIMIT_NAMES}

    @property
    def config(self) -> FamilyOptions:
        """Options of the family, validated."""
        return make_options(self.fit.family, self.options)

    @property
    def begins_warm(self) -> bool:
        """True if fits start from the last version, which those of vectors cannot."""
        return self.fit.warm and self.limits.get("schedule") != "stochastic" and self.holds == DOCUMENTS

    @property
    def ensemble(self) -> dict[str, int | str]:
        """Options of an ensemble; empty for a single fit."""
        options: dict[str, int | str] = {}
        if self.fit.restarts:
            options = {"restarts": self.fit.restarts, "keep": self.fit.keep}
        return options | ({"combine": CONSENSUS} if self.fit.combine == CONSENSUS else {})

    @property
    def init(self) -> dict[str, str | float]:
        """Options of the initialisation of a fit that does not start from a version; empty where none are named."""
        return {} if self.fit.init is None else {"init": self.fit.init, "init_strength": self.fit.init_strength}

    @property
    def reading(self) -> dict[str, Any]:
        """Options of `ingest` for reading the sources."""
        options = self.ingest.further
        if self.holds == VECTORS:
            options.setdefault("format", VECTORS)
        if isinstance(options.get(SIZE), str):
            options[SIZE] = parse_size(options[SIZE], SIZE)
        return options

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

    def plan(self) -> dict[str, object]:
        """Return all options that determine a published model, without the corpus, by the names that they had in 0.1.

        Jobs that have begun go on only where the digest of these is the same.
        """
        config = self.config
        plan = {
            "family": self.fit.family,
            "options": first_names(config.model_dump(mode="json"), type(config)),
            "limits": self.limits,
            "seed": self.fit.seed,
            "heldout": self.heldout.model_dump(mode="json"),
            "warm": self.begins_warm,
            "warm_iterations": self.fit.warm_iterations,
            "threshold": self.infer.threshold,
            **self.ensemble,
            **self.init,
        }
        return first_names(plan, FitTable)
