"""Forms of the option `scheduler`: executors of this machine, and ways of naming a Dask scheduler that runs already."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field

from collapsium.pipeline.executors.base import CLUSTER_TIMEOUT, TLS
from collapsium.pipeline.options import Location, Options, Value
from collapsium.storage.errors import OptionError, near
from collapsium.workers.options import Accepts

LOCAL_SCHEDULERS = ("threads", "serial", "local")  # Schedulers whose workers are started by the driver, on its machine

SCHEDULERS = "threads, local, serial, an address such as tcp://host:8786 or a scheduler file"


# Waiting for a scheduler file, in seconds, and its size.
# Limit until it exists: as long as Dask tries to connect to an address (`SETTINGS` of `dask_cluster`)
MAX_SECONDS_TO_APPEAR = 10.0
MAX_SECONDS_TO_COMPLETE = 1.0  # Limit until it is complete, as the scheduler does not write it at once
POLL_SECONDS = 0.1  # Between two looks
MAX_FILE_BYTES = 1 << 20  # Size of the part that is read; the scheduler's file has some hundred bytes


@dataclass(frozen=True, eq=False)
class ClientOrCluster:
    """A Dask client or cluster of the caller, who closes it."""

    # A client, or any object with ``scheduler_address``, as Dask itself accepts: the clusters of `distributed`, dask-
    # gateway, dask-jobqueue, dask-kubernetes and Coiled
    source: Any

    @property
    def address(self) -> str:
        """The scheduler's address; raises `OptionError` if there is none, for example after the object was closed."""
        address = getattr(self.source, "scheduler_address", None)
        if address is None:
            address = getattr(getattr(self.source, "scheduler", None), "address", None)
        status = getattr(getattr(self.source, "status", None), "name", getattr(self.source, "status", None))
        if not isinstance(address, str) or "://" not in address or status in ("closed", "closing"):
            kind = type(self.source).__name__
            raise OptionError(
                f"expected a connected {kind}, found one that is {status or 'not connected'}", "scheduler"
            )
        return address

    @property
    def security(self) -> Any:
        """The certificates by which the object connects; None where it has none."""
        return getattr(self.source, "security", None)

    def __str__(self) -> str:
        return self.address


Scheduler: TypeAlias = str | ClientOrCluster  # A scheduler as options hold it; paths are text


def as_scheduler(value: object) -> Scheduler:
    """Return a value of the option as text, or as a client or cluster; None is the active client, or else threads."""
    if value is None:
        return _active_client() or "threads"
    if isinstance(value, str | ClientOrCluster):
        return value
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(getattr(value, "scheduler_address", None), str) or _is_client(value):
        return ClientOrCluster(value)
    raise OptionError(f"expected {SCHEDULERS}, or a Dask client or cluster, found {value!r}", "scheduler")


def _active_client() -> ClientOrCluster | None:
    """Return the Dask client that is active in this program, or of the worker whose task this is; None without one."""
    distributed = sys.modules.get("distributed")
    # A program that has not imported it has no client.
    if distributed is None or not hasattr(distributed, "get_client"):
        return None
    try:
        client = ClientOrCluster(distributed.get_client())
        _ = client.address
    # There is no client, or one that is closing.
    except (ValueError, OptionError):
        return None
    return client


def _is_client(value: object) -> bool:
    """Return True for a client of `distributed`, which need not be imported for it."""
    kinds = ((kind.__module__.partition(".")[0], kind.__name__) for kind in type(value).__mro__)
    return ("distributed", "Client") in kinds


def is_elsewhere(scheduler: object) -> bool:
    """Return True if the workers are not started by the driver, so that they see no temporary folder of it."""
    return as_scheduler(scheduler) not in LOCAL_SCHEDULERS


def check_scheduler(scheduler: object, workers: int | None) -> None:
    """Raise `OptionError` if `workers` is less than 1 or the scheduler is of no known form; no connection is made."""
    if workers is not None and (type(workers) is not int or workers < 1):
        raise OptionError(f"expected a whole number of 1 or more, found {workers!r}", "workers")
    scheduler = as_scheduler(scheduler)
    if isinstance(scheduler, ClientOrCluster) or scheduler in LOCAL_SCHEDULERS or "://" in scheduler:
        return
    # A file of this name may still be written by the scheduler.
    if not scheduler.endswith(".json") and not Path(scheduler).expanduser().exists():
        hint = near(scheduler, LOCAL_SCHEDULERS)
        raise OptionError(f"expected {SCHEDULERS}, found {scheduler!r}{hint}", "scheduler")


def address_of(scheduler: Scheduler) -> str:
    """Return the address of a scheduler that runs already."""
    if isinstance(scheduler, ClientOrCluster):
        return scheduler.address
    return scheduler if "://" in scheduler else _read_scheduler_file(Path(scheduler).expanduser())


def _read_scheduler_file(path: Path) -> str:
    """Return the address in a file that ``dask scheduler --scheduler-file`` writes, for which it waits a little."""
    began = time.monotonic()
    while True:
        waited = time.monotonic() - began
        try:
            with path.open("rb") as file:
                record = json.loads(file.read(MAX_FILE_BYTES))
            address = record.get("address") if isinstance(record, dict) else None
            if isinstance(address, str) and "://" in address:
                return address
            fault, limit = "it has no address of a scheduler", 0.0
        except FileNotFoundError:
            fault, limit = "no such file", MAX_SECONDS_TO_APPEAR
        except OSError as error:
            fault, limit = f"it cannot be read ({error.strerror})", 0.0
        except (ValueError, RecursionError):
            fault, limit = "it is not JSON", MAX_SECONDS_TO_COMPLETE
        if waited >= limit:
            raise OptionError(
                f"{path}: expected a file that `dask scheduler --scheduler-file` writes; {fault}", "scheduler"
            )
        time.sleep(POLL_SECONDS)


_WHERE = "execution"


class SchedulerOptions(Options):
    """The executor that runs the tasks."""

    heading = _WHERE
    scheduler: Annotated[
        str | ClientOrCluster,
        Value("WHERE"),
        BeforeValidator(as_scheduler),
        Accepts(str | os.PathLike[str] | Any, "str, path-like, or Dask client or cluster"),
    ] = Field(
        None,
        validate_default=True,
        description="threads: threads of this process (the default); local: a Dask cluster on this machine, with a "
        "dashboard and one worker process of `workers` threads; serial: one task after another; or a Dask scheduler: "
        "its address, such as tcp://host:8786, or the file that `dask scheduler --scheduler-file` writes. In Python "
        "also a Dask client or cluster object, which stays open; there, the default is a Dask client if one is active",
    )
    workers: Annotated[int | None, Value("N")] = Field(
        None,
        description="number of threads to start (default: one for each core); for a running cluster, the number of "
        "workers to wait for before the work begins (default: 1)",
    )


class Scheduling(SchedulerOptions):
    """The executor that runs the tasks of a function, with its certificates."""

    tls: TLS | None = Field(None, description="certificates for a cluster whose messages are encrypted")


class CertificateOptions(Options):
    """Certificate files of an encrypted cluster."""

    heading = _WHERE
    tls_ca: Annotated[Location | None, Value("FILE")] = Field(
        None,
        description="certificate of the authority, for a cluster at tls://HOST:PORT; a local cluster makes "
        "certificates of its own unless you name some",
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


class MemoryOptions(Options):
    """Limits of memory and disk of the workers."""

    heading = "memory and disk"
    memory: Annotated[str | int | None, Value("SIZE", unit="bytes")] = Field(
        None,
        description="memory limit of each worker process, such as 750MB or 1.5GB; with threads or a local cluster "
        "there is one process. What the fit stores for each shard (its local states) is spilled to disk where memory "
        "does not suffice (default: the free memory of the machine or container, or the limit of the cluster's "
        "workers)",
    )
    scratch: Annotated[Location | None, Value("FOLDER")] = Field(
        None, description="folder for spill files, on each machine (default: the system's temporary folder)"
    )


class ExecutorOptions(MemoryOptions, SchedulerOptions):
    """Options that say where and how the tasks of a fit run."""

    heading = ""
    cluster_timeout: Annotated[float, Value("S", unit="seconds", expected="seconds above 0", heading=_WHERE)] = Field(
        CLUSTER_TIMEOUT,
        gt=0,
        allow_inf_nan=True,
        description="seconds without an answer after which the scheduler counts as lost. A worker counts as lost when, "
        "for this long, it does not answer, is paused, or holds a task without using its processor",
    )
    checkpoint_every: Annotated[int | None, Value("N", unit="iterations")] = Field(
        None,
        ge=1,
        description="number of iterations between two checkpoints; the first one always follows iteration 1 (default: "
        "by time, every 30 seconds, or less often if the fit would spend more than 5% of its time waiting for them)",
    )
    strict_bits: Annotated[bool, Value(expected="true or false")] = Field(
        False,
        description="stop with an error if processors differ between workers, or if processors or versions have "
        "changed since the run began, in a way that can change the last bits of results (default: print a notice)",
    )


class LinkOptions(Options):
    """The network of a cluster, and a run that measured what sweeps cost; `estimate` has them."""

    heading = "network"
    link: Annotated[str | float | None, Value("RATE", unit="bits per second")] = Field(
        None,
        description="speed of each machine's link, such as 1Gbit or 100Mbit, with a worker process on each machine: "
        "also estimate how many bytes pass through a link in an iteration, and how long that takes",
    )
    measured: Annotated[Location | None, Value("RUN")] = Field(
        None,
        description="with `link`: a run of the same family and number of topics, for example a few iterations on a "
        "part of the corpus. Its times predict how long an iteration takes, and whether `local_sweeps` would balance "
        "exchange and sweeps",
    )
