"""Options of executors: scheduler, certificates, timeout and memory."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from collapsium.pipeline.executors.base import CLUSTER_TIMEOUT, TLS
from collapsium.pipeline.executors.schedulers import ClientOrCluster, as_scheduler
from collapsium.pipeline.options import Location, Options, Value
from collapsium.storage.errors import OptionError

_WHERE = "execution"


class SchedulerOptions(Options):
    """The executor that runs the tasks."""

    heading = _WHERE
    scheduler: Annotated[str | ClientOrCluster, Value("WHERE"), BeforeValidator(as_scheduler)] = Field(
        "threads",
        description="threads: threads of this process; local: a Dask cluster of processes on this machine, "
        "with a dashboard; serial: one task after another; or a Dask scheduler: its address, such as "
        "tcp://host:8786, or the file that `dask scheduler --scheduler-file` writes; in Python also a Dask "
        "client or cluster object, which stays open",
    )
    workers: Annotated[int | None, Value("N")] = Field(
        None,
        description="number of workers to start (default: one for each processor); for a cluster that "
        "runs already, the number to wait for",
    )


class CertificateOptions(Options):
    """Certificate files of an encrypted cluster."""

    heading = _WHERE
    tls_ca: Annotated[Location | None, Value("FILE")] = Field(
        None,
        description="certificate of the authority, for an encrypted cluster (scheduler tls://HOST:PORT, or local)",
    )
    tls_cert: Annotated[Location | None, Value("FILE")] = Field(None, description="certificate of this process")
    tls_key: Annotated[Location | None, Value("FILE")] = Field(None, description="private key of this process")

    @property
    def tls(self) -> TLS | None:
        """The certificates; None if no file is named."""
        files = {"ca": self.tls_ca, "cert": self.tls_cert, "key": self.tls_key}
        paths = {name: path for name, path in files.items() if path is not None}
        if not paths:
            return None
        missing = next((name for name in files if name not in paths), None)
        if missing is not None:
            raise OptionError(f"`tls_{missing}` is required: `tls_ca`, `tls_cert` and `tls_key` belong together")
        return TLS(**paths)


class TimeoutOptions(Options):
    """Timeouts of a silent cluster."""

    heading = _WHERE
    cluster_timeout: Annotated[float, Value("S", unit="seconds", expected="seconds above 0")] = Field(
        CLUSTER_TIMEOUT,
        gt=0,
        description="seconds after which a worker without a sign of life, or a scheduler that does not answer, "
        "counts as lost",
    )


class MemoryOptions(Options):
    """Limits of memory and disk of the workers."""

    heading = "memory and disk"
    memory: Annotated[str | int | None, Value("SIZE", unit="bytes")] = Field(
        None,
        description="memory limit of each worker process, such as 750MB or 1.5GB; threads count as one "
        "process. Local states that exceed it are spilled to disk (default: the machine's free "
        "memory, or the cluster's limit)",
    )
    scratch: Annotated[Location | None, Value("FOLDER")] = Field(
        None, description="folder for spill files, on each machine (default: the system's temporary folder)"
    )
