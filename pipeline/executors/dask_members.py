"""Workers of a Dask cluster that run a driver's tasks; on adaptive clusters they join and leave during a fit.

The versions of a worker that joins are compared with the driver's, and the worker is prepared, both in the background,
before it gets shards.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

import distributed
from distributed.versions import get_versions

from collapsium.pipeline.executors.dask_client import Resources, Signs, first_line, run_all_aside, worker_signs
from collapsium.pipeline.executors.liveness import MEMBER_POLL, WorkerSign
from collapsium.storage.errors import MismatchError

Call: TypeAlias = tuple[Callable[..., object], tuple[object, ...]]

# Packages whose versions must be the same in the driver and in all workers: other versions may compute other bits
REFUSED = ("python", "numpy", "scipy", "numba", "collapsium")
# Packages whose version may differ, with a notice
REPORTED = ("dask", "distributed", "cloudpickle", "msgpack", "pyarrow", "zarr")
ADVICE = "install the same versions for scheduler, workers and driver"
PACKAGES = ("numba", "scipy", "collapsium", "pyarrow", "zarr")  # Packages that Dask does not report by itself


class Members:
    """The workers that are ready for a driver's tasks."""

    def __init__(
        self, token: Callable[[], str], notice: Callable[[str], None], resources: Resources | None = None
    ) -> None:
        self._token, self._notice, self._resources = token, notice, resources or {}
        self.addresses: tuple[str, ...] = ()
        self.threads, self.memory = 0, 0.0
        # Limits of all workers, also of those that have left, whose loss is explained afterwards
        self._limits: dict[str, float] = {}
        self.calls: list[Call] = []
        self._ready: set[str] = set()
        self._lock = threading.Lock()
        self._looked = 0.0
        self._report: Future[Signs] | None = None
        self._welcome: Future[list[str]] | None = None
        self._reported: set[str] = set()

    def take(self, signs: Mapping[str, WorkerSign], welcomed: Sequence[str] = ()) -> list[str]:
        """Update the members from a report of the scheduler."""
        staying = {address for address, sign in signs.items() if not sign.leaving}
        self._ready = (self._ready | set(welcomed)) & staying
        new = iter(sorted(self._ready - set(self.addresses)))
        places = [address if address in self._ready else next(new, None) for address in self.addresses]
        self.addresses = tuple(address for address in (*places, *new) if address is not None)
        limits = [signs[address].memory for address in self.addresses]
        self._limits |= {address: sign.memory for address, sign in signs.items()}
        self.threads = sum(signs[address].threads for address in self.addresses)
        self.memory = min((limit for limit in limits if limit), default=0.0)
        return sorted(staying - self._ready)

    def memory_limit(self, address: str) -> float:
        """Return the memory limit of a worker in bytes, also of one that has gone; 0 without a limit."""
        return self._limits.get(address, self.memory)

    def look(self, client: distributed.Client) -> None:
        """Look for workers that have joined or left; their answers are processed by a later call."""
        # Members of an ensemble wait in several threads, one of which is enough.
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._process_answers(client)
            if self._report is None and time.monotonic() - self._looked >= MEMBER_POLL:
                self._looked = time.monotonic()
                request = client.run_on_scheduler(worker_signs, self._token(), self._resources, asynchronous=True)
                self._report = asyncio.run_coroutine_threadsafe(request, client.loop.asyncio_loop)
        finally:
            self._lock.release()

    def _process_answers(self, client: distributed.Client) -> None:
        if self._report is None or not self._report.done():
            return
        report, self._report = self._report, None
        welcomed: list[str] = []
        if self._welcome is not None and self._welcome.done():
            welcome, self._welcome = self._welcome, None
            # A worker may leave again while it is prepared. Versions that differ end the run.
            error = welcome.exception()
            if isinstance(error, MismatchError):
                raise error
            welcomed = [] if error is not None else welcome.result()
        # A scheduler that does not answer is reported where results are waited for.
        if report.exception() is not None:
            return
        joining = self.take({name: WorkerSign(*sign) for name, sign in report.result()[1].items()}, welcomed)
        if joining and self._welcome is None:
            coroutine = welcome_workers(client, joining, tuple(self.calls), self.report_others)
            self._welcome = asyncio.run_coroutine_threadsafe(coroutine, client.loop.asyncio_loop)

    def reset(self) -> None:
        """Forget pending requests, whose answers are lost with the connection to the scheduler."""
        with self._lock:
            self._report = self._welcome = None

    def report_others(self, text: str) -> None:
        """Report a difference of versions once."""
        if text not in self._reported:
            self._reported.add(text)
            self._notice(text)


async def welcome_workers(
    client: distributed.Client, addresses: Sequence[str], calls: Sequence[Call], notice: Callable[[str], None]
) -> list[str]:
    """Compare the versions of workers with the driver's, and run functions on the workers."""
    message = {"op": "versions", "packages": list(PACKAGES)}
    answers = await client.scheduler.broadcast(msg=message, workers=list(addresses), on_error="ignore")
    driver = get_versions(packages=PACKAGES)["packages"]
    installed = {address: answer["packages"] for address, answer in sorted(answers.items())}
    require_same_versions(installed, driver)
    differing = _differing(installed, driver, REPORTED)
    if differing:
        notice(f"{differing[0]}{_and_more(differing)}")
    if not calls or not installed:
        return list(installed)
    results = await client.run(
        run_all_aside, list(calls), workers=list(installed), on_error="return", asynchronous=True
    )
    failed = {address: error for address, error in results.items() if isinstance(error, Exception)}
    for address, error in failed.items():
        if not isinstance(error, OSError):
            notice(f"worker {address} takes no part yet: {first_line(error)}")
    return [address for address in installed if address in results and address not in failed]


def require_same_versions(installed: Mapping[str, Mapping[str, str | None]], driver: Mapping[str, str | None]) -> None:
    """Raise `MismatchError` if a worker has another version of a package on which results depend."""
    differing = _differing(installed, driver, REFUSED)
    if differing:
        raise MismatchError(f"{differing[0]}{_and_more(differing)}; {ADVICE}")


def require_release(address: str, versions: Mapping[str, Any]) -> None:
    """Raise `MismatchError` unless a scheduler has this release installed, because it runs functions of the release."""
    driver = get_versions(packages=PACKAGES)["packages"]
    lines = _differing({address: versions["packages"]}, driver, ("collapsium",), "the scheduler")
    if lines:
        raise MismatchError(f"{lines[0]}; {ADVICE}")


def _differing(
    installed: Mapping[str, Mapping[str, str | None]],
    driver: Mapping[str, str | None],
    names: Sequence[str],
    role: str = "worker",
) -> list[str]:
    """Return a line for each worker that differs from the driver in some packages."""
    lines = []
    for address, versions in installed.items():
        pairs = [(name, versions.get(name), driver.get(name)) for name in names]
        texts = [
            f"{_package(name, version)}, the driver {_version(expected)}"
            for name, version, expected in pairs
            if version != expected
        ]
        if texts:
            lines.append(f"{role} {address} has {' and '.join(texts)}")
    return lines


def _package(name: str, version: str | None) -> str:
    label = "Python" if name == "python" else name
    return f"no {label}" if version is None else f"{label} {_version(version)}"


def _version(version: str | None) -> str:
    return "none" if version is None else version.removesuffix(".final.0")


def _and_more(lines: Sequence[str]) -> str:
    return f" (and {len(lines) - 1} more workers differ)" if len(lines) > 1 else ""
