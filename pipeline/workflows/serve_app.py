"""The service as an ASGI application: requests within limits, metrics, and versions that are replaced while it runs.

A scorer is a model in memory, opened from a run or from the published versions of a job.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import prometheus_client
import pydantic
import uvicorn
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from collapsium.pipeline.fitted_model import TextFolding
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import topics
from collapsium.pipeline.workflows.batch.job_file import read_job
from collapsium.pipeline.workflows.batch.journal import PUBLISHED
from collapsium.pipeline.workflows.serve_options import ServeOptions
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import AbsentError, CollapsiumError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.published import VersionRecord, Versions
from collapsium.storage.units import size
from collapsium.workers.families.description import largest

JSON = "application/json"
MAX_HEADER_BYTES = 1 << 14  # Most bytes of a request's line and headers
KEEP_ALIVE_SECONDS = 30  # Time that an idle connection stays open
STOP_SECONDS = 10  # Time in which requests are finished when the service stops
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # Seconds of a request


DIGITS = 6  # Decimal places of proportions in answers; fold-in moves the last sweep's counts by up to 1e-4 tokens
NO_WORDS: tuple[None, tuple[str, ...]] = None, ()  # In place of name and words of a topic without tokens
MAX_WORDS = 50  # Most words of a topic in an answer, which are looked up when the model is loaded


class ScoreRequest(BaseModel):
    """The body of a request to score texts."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    texts: list[str]
    topics: Annotated[int, Field(ge=0, le=1000)] = 5  # Number of the largest proportions of each text
    words: Annotated[int, Field(ge=0, le=MAX_WORDS)] = 10  # Number of words of each topic that is among them
    dense: bool = False  # Whether all proportions are returned too


@dataclass(frozen=True)
class Scored:
    """An answer, and its numbers for the metrics."""

    body: bytes
    texts: int
    tokens: int  # Tokens of known words
    unknown: int  # Tokens of unknown words


@dataclass(frozen=True)
class Scorer:
    """A model in memory, with the words of its topics."""

    folding: TextFolding
    title: str  # The model, as text
    version: VersionRecord | None  # None for a run
    reading: dict[str, str]  # Options of reading that have to be named again
    words: dict[int, tuple[str | None, tuple[str, ...]]]  # Name and first words of each topic that has tokens

    @classmethod
    def open(cls, url: str, reading: dict[str, str], version: VersionRecord | None = None) -> Scorer:
        """Load a model, and score a text, so that the first request finds all in memory."""
        model = Model(url)
        folding = TextFolding(model)
        words = {topic.id: (topic.title, tuple(topic.names)) for topic in topics(model, MAX_WORDS)}
        scorer = cls(folding, url if version is None else version.title, version, reading, words)
        scorer.score(ScoreRequest(texts=[""]))
        return scorer

    @property
    def number(self) -> int | None:
        """Number of the published version; None for a run."""
        return None if self.version is None else self.version.number

    def describe(self) -> JsonObject:
        """Return the description of the model in answers."""
        model = self.folding.model
        record = model.record
        return {
            "name": self.title,
            "version": self.number,
            "family": record.family,
            "iterations": record.iterations,
            "topics": len(self.words),
            "words": len(model.vocabulary),
        }

    def describe_topics(self, words: int, chosen: Iterable[int] | None = None) -> JsonObject:
        """Return the names and first words of topics, by default of all that have tokens."""
        rows = ((topic, *self.words.get(topic, NO_WORDS)) for topic in (self.words if chosen is None else chosen))
        return {str(topic): {"name": name, "words": names[:words]} for topic, name, names in rows}

    def score(self, request: ScoreRequest) -> Scored:
        """Return the answer to a request."""
        read = self.folding.read(request.texts, self.reading)
        shares = self.folding.proportions(read)
        top = largest(shares, request.topics)
        rounded = np.round(shares, DIGITS)
        known = read.documents.tokens
        rows = zip(
            top.tolist(),
            np.take_along_axis(rounded, top, axis=1).tolist(),
            known.tolist(),
            read.unknown.tolist(),
            strict=True,
        )
        documents = [dict(zip(("topics", "proportions", "tokens", "unknown"), row, strict=True)) for row in rows]
        if request.dense:
            for document, row in zip(documents, rounded.tolist(), strict=True):
                document["dense"] = row
        answer: JsonObject = {"version": self.number, "documents": documents}
        if request.words:
            answer["topics"] = self.describe_topics(request.words, np.unique(top).tolist())
        body = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
        return Scored(body, len(documents), int(known.sum()), int(read.unknown.sum()))


@dataclass(frozen=True)
class ModelSource:
    """A run, or the published versions of a job."""

    url: str
    versions: Versions | None
    reading: dict[str, str]

    @classmethod
    def of(cls, run: str | os.PathLike[str], options: ServeOptions) -> ModelSource:
        """Return the source that a user names: the TOML file of a job, or the folder of a run or model."""
        url = os.fspath(run)
        named = {"tokenizer": options.tokenizer, "headings": options.headings}
        reading = {name: value for name, value in named.items() if value is not None}
        if not url.endswith(".toml"):
            return cls(url, None, reading)
        job = read_job(url)
        # A job file belongs to the user, and names how new texts are read.
        recorded = {name: str(job.reading[name]) for name in ("tokenizer", "segments") if job.reading.get(name)}
        return cls(url, Versions(Folder(job.batch.folder) / PUBLISHED), {**recorded, **reading})

    def current(self) -> VersionRecord | None:
        """Return the record of the published version; None for a run, and before the first version."""
        number = None if self.versions is None else self.versions.current()
        return None if self.versions is None or number is None else self.versions.record(number)

    def open(self, version: VersionRecord | None) -> Scorer:
        """Load the run, or a published version."""
        if self.versions is None:
            return Scorer.open(self.url, self.reading)
        if version is None:
            raise AbsentError(f"{self.url}: no version has been published yet; `batch` publishes one")
        return Scorer.open(self.versions.at(version.number).url, self.reading, version)


class RefusedError(Exception):
    """A request is refused, with a status and a line for the client."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        self.status, self.headers = status, headers
        super().__init__(message)


class Metrics:
    """The numbers of the service for Prometheus."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "collapsium_service_requests", "Requests to score texts, by status.", ["status"], registry=registry
        )
        self.texts = Counter("collapsium_service_texts", "Texts scored.", registry=registry)
        self.tokens = Counter(
            "collapsium_service_tokens", "Tokens of scored texts, known or not.", ["vocabulary"], registry=registry
        )
        self.seconds = Histogram(
            "collapsium_service_seconds",
            "Time of a request that was answered, in seconds.",
            registry=registry,
            buckets=BUCKETS,
        )
        self.waiting = Gauge("collapsium_service_waiting", "Requests that wait or are scored.", registry=registry)
        self.version = Gauge("collapsium_service_version", "Published version; 0 for a run.", registry=registry)
        self.loads = Counter("collapsium_service_loads", "Versions loaded, by outcome.", ["outcome"], registry=registry)


class Service:
    """Scores texts with the version that is current."""

    def __init__(self, source: ModelSource, options: ServeOptions, notice: Callable[[str], None]) -> None:
        self.options = options
        self._source, self._notice, self._metrics = source, notice, Metrics()
        self._threads = ThreadPoolExecutor(
            options.threads or len(os.sched_getaffinity(0)), thread_name_prefix="collapsium-score"
        )
        self._waiting = 0
        self._fault: str | None = None  # Why the newest version could not be loaded
        self.scorer: Scorer = source.open(source.current())
        self._metrics.version.set(self.scorer.number or 0)

    async def score(self, request: Request) -> Response:
        """Answer a request to score texts."""
        began, scorer = time.perf_counter(), self.scorer
        try:
            body = await self._body_of(request)
            if self._waiting >= self.options.max_waiting:
                raise RefusedError(503, "too many requests are waiting; try again later", **{"Retry-After": "1"})
            self._waiting += 1
            try:
                loop = asyncio.get_running_loop()
                scored = await loop.run_in_executor(self._threads, self._scored, scorer, body)
            finally:
                self._waiting -= 1
        except RefusedError as error:
            self._metrics.requests.labels(error.status).inc()
            return JSONResponse({"error": str(error)}, error.status, error.headers)
        # The client has disconnected.
        except ClientDisconnect:
            self._metrics.requests.labels(499).inc()
            return Response(status_code=400)
        self._metrics.requests.labels(200).inc()
        self._metrics.texts.inc(scored.texts)
        self._metrics.tokens.labels("known").inc(scored.tokens)
        self._metrics.tokens.labels("unknown").inc(scored.unknown)
        self._metrics.seconds.observe(time.perf_counter() - began)
        return Response(scored.body, media_type=JSON)

    async def _body_of(self, request: Request) -> bytes:
        """Return the body of a request; refuse one that is too large, too slow or no JSON."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        limit, declared = self.options.max_bytes, request.headers.get("content-length", "0")
        large = RefusedError(413, f"expected at most {size(limit)}, found a larger request", Connection="close")
        refusal: RefusedError | None = None
        if kind != JSON:
            line = f"expected the content type {JSON}, found {kind[:80] or 'none'}"
            refusal = RefusedError(415, line, Connection="close")
        elif not declared.isdecimal() or int(declared) > limit:
            refusal = large
        waits = request.headers.get("expect", "").lower() == "100-continue"
        body = bytearray()
        try:
            async with asyncio.timeout(self.options.max_seconds):
                # The rest of a refused request is discarded: a client that is still sending would see the connection
                # reset, not the answer. One that waits for permission sends nothing more.
                if refusal is None or not waits:
                    async for chunk in request.stream():
                        if refusal is None:
                            body += chunk
                            refusal = large if len(body) > limit else None
        except TimeoutError:
            line = f"the request did not arrive within {self.options.max_seconds:g} s"
            refusal = refusal or RefusedError(408, line, Connection="close")
        if refusal is not None:
            raise refusal
        return bytes(body)

    def _scored(self, scorer: Scorer, body: bytes) -> Scored:
        """Parse and score a request, in a thread."""
        try:
            request = ScoreRequest.model_validate_json(body)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise RefusedError(400, f"{place}: {first['msg']}" if place else first["msg"]) from None
        if len(request.texts) > self.options.max_texts:
            message = f"expected at most {self.options.max_texts:,} texts, found {len(request.texts):,}"
            raise RefusedError(413, message)
        try:
            return scorer.score(request)
        except CollapsiumError as error:
            raise RefusedError(400, str(error)) from None

    async def topics(self, request: Request) -> Response:  # noqa: ARG002
        """Return the names and words of all topics."""
        return JSONResponse({"version": self.scorer.number, "topics": self.scorer.describe_topics(10)})

    async def health(self, request: Request) -> Response:  # noqa: ARG002
        """Return what is served, and why a newer version is not."""
        return JSONResponse({"status": "ok", **self.scorer.describe(), "fault": self._fault})

    async def metrics(self, request: Request) -> Response:  # noqa: ARG002
        """Return the metrics."""
        self._metrics.waiting.set(self._waiting)
        text = prometheus_client.generate_latest(self._metrics.registry)
        return Response(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    async def watch(self) -> None:
        """Replace the version whenever another one is current."""
        while True:
            await asyncio.sleep(self.options.every)
            try:
                version = await asyncio.to_thread(self._source.current)
                if version is None:
                    continue
                # A job that was started anew has the same numbers again.
                if version == self.scorer.version:
                    self._fault = None  # A newer version that could not be loaded is no longer current
                    continue
                # Requests that have begun hold the scorer that they began with.
                self.scorer = await asyncio.to_thread(self._source.open, version)
            # The version that is served stays, whatever is wrong with the next one.
            except Exception as error:
                self._metrics.loads.labels("failed").inc()
                if self._fault != str(error):
                    self._fault = str(error)
                    self._notice(f"the current version cannot be loaded: {error}")
                continue
            self._fault = None
            self._metrics.loads.labels("loaded").inc()
            self._metrics.version.set(version.number)
            self._notice(f"{self.scorer.title} is loaded")

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


async def _refused(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """Answer a request for an unknown path or method in the form of all errors."""
    if not isinstance(error, HTTPException):
        raise error
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


def server_of(service: Service) -> uvicorn.Server:
    """Return the server of a service, with the limits of connections and of headers."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(service.watch())
        try:
            yield
        finally:
            watching.cancel()
            service.close()

    routes = [
        Route("/score", service.score, methods=["POST"]),
        Route("/topics", service.topics),
        Route("/health", service.health),
        Route("/metrics", service.metrics),
    ]
    config = uvicorn.Config(
        Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _refused}),
        http=_protocol_within(service.options.max_seconds),
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        limit_concurrency=service.options.max_connections,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    return uvicorn.Server(config)


def _protocol_within(seconds: float) -> type[H11Protocol]:
    """Return uvicorn's protocol, with a limit for the headers of a request, which uvicorn itself waits for for ever."""

    class Protocol(H11Protocol):
        deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.deadline = self.loop.call_later(seconds, transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            waits = self.cycle is None or self.cycle.response_complete
            if self.deadline is not None and not waits:
                self.deadline.cancel()
                self.deadline = None
            elif self.deadline is None and waits:
                self.deadline = self.loop.call_later(seconds, self.transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            if self.deadline is not None:
                self.deadline.cancel()
            super().connection_lost(exc)

    return Protocol
