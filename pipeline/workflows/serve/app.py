"""The service as an ASGI application: requests within limits, metrics, and versions that are replaced while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

import prometheus_client
import pydantic
import uvicorn
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from collapsium.pipeline.workflows.serve.options import ServeOptions
from collapsium.pipeline.workflows.serve.scorer import ModelSource, Scored, Scorer, ScoreRequest
from collapsium.storage.errors import CollapsiumError
from collapsium.storage.units import size

JSON = "application/json"
MAX_HEADER_BYTES = 1 << 14  # Most bytes of a request's line and headers
KEEP_ALIVE_SECONDS = 30  # Time that an idle connection stays open
STOP_SECONDS = 10  # Time in which requests are finished when the service stops
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # Seconds of a request


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

    def count(self, scored: Scored) -> None:
        """Count an answer."""
        self.texts.inc(scored.texts)
        self.tokens.labels("known").inc(scored.tokens)
        self.tokens.labels("unknown").inc(scored.unknown)


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
            scored = await self._in_thread(scorer, body)
        except RefusedError as error:
            self._metrics.requests.labels(error.status).inc()
            return JSONResponse({"error": str(error)}, error.status, error.headers)
        # The client has disconnected.
        except ClientDisconnect:
            self._metrics.requests.labels(499).inc()
            return Response(status_code=400)
        self._metrics.requests.labels(200).inc()
        self._metrics.count(scored)
        self._metrics.seconds.observe(time.perf_counter() - began)
        return Response(scored.body, media_type=JSON)

    async def _in_thread(self, scorer: Scorer, body: bytes) -> Scored:
        """Score a request in a thread, unless too many others wait for one."""
        if self._waiting >= self.options.max_waiting:
            raise RefusedError(503, "too many requests are waiting; try again later", **{"Retry-After": "1"})
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._scored, scorer, body)
        finally:
            self._waiting -= 1

    async def _body_of(self, request: Request) -> bytes:
        """Return the body of a request; refuse one that is too large, too slow or no JSON."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON:
            raise RefusedError(
                415, f"expected the content type {JSON}, found {kind[:80] or 'none'}", Connection="close"
            )
        limit = self.options.max_bytes
        large = RefusedError(413, f"expected at most {size(limit)}, found a larger request", Connection="close")
        declared = request.headers.get("content-length", "0")
        if not declared.isdecimal() or int(declared) > limit:
            raise large
        body = bytearray()
        try:
            async with asyncio.timeout(self.options.max_seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > limit:
                        raise large
        except TimeoutError:
            line = f"the request did not arrive within {self.options.max_seconds:g} s"
            raise RefusedError(408, line, Connection="close") from None
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
                number = await asyncio.to_thread(self._source.current)
                if number is None or number == self.scorer.number:
                    continue
                # Requests that have begun hold the scorer that they began with.
                self.scorer = await asyncio.to_thread(self._source.open, number)
            # The version that is served stays, whatever is wrong with the next one.
            except Exception as error:
                self._metrics.loads.labels("failed").inc()
                if self._fault != str(error):
                    self._fault = str(error)
                    self._notice(f"the current version cannot be loaded: {error}")
                continue
            self._fault = None
            self._metrics.loads.labels("loaded").inc()
            self._metrics.version.set(number)
            self._notice(f"{self.scorer.title} is loaded")

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def application(service: Service) -> Starlette:
    """Return the service as an ASGI application."""

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
    return Starlette(routes=routes, lifespan=lifespan)


def server_of(service: Service) -> uvicorn.Server:
    """Return the server of a service, with the limits of connections and of headers."""
    config = uvicorn.Config(
        application(service),
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
