"""Start the service of a run or of a job's published version, until it is interrupted."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable

from collapsium.pipeline.options import keywords
from collapsium.pipeline.workflows.serve_options import ServeOptions
from collapsium.storage.errors import MissingError, OptionError
from collapsium.storage.units import size

BACKLOG = 1024  # Most connections that wait to be accepted


@keywords(options=ServeOptions)
def serve(run: str | os.PathLike[str], *, options: ServeOptions, notice: Callable[[str], None] | None = None) -> None:
    """Score texts over HTTP until the process is interrupted.

    ``POST /score`` takes JSON such as ``{"texts": ["We seek a treaty"], "topics": 5, "words": 10}``, and returns the
    largest proportions of each text and the words of their topics; ``"dense": true`` adds all proportions. ``GET
    /topics``, ``/health`` and ``/metrics`` describe the model, the service and its load (for Prometheus). The version
    of a job is replaced when a new one is published or an older one is made current again; requests that have begun
    are finished with the version that they began with.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or model; or the TOML file of a batch job, whose published version is served.
    options : ServeOptions
        Address, limits and reading of the service.
    notice : callable, optional
        Called with lines for the user: the address, and each version that is loaded or cannot be.

    Raises
    ------
    AbsentError
        There is no model, or no version has been published yet.
    MissingError
        Starlette or uvicorn is not installed.
    OptionError
        The address is taken or unknown, or the model takes vectors.
    """
    try:
        from collapsium.pipeline.workflows import serve_app as app
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("collapsium"):
            raise
        raise MissingError(f"the service needs {error.name}; pip install 'collapsium[serve]'") from None
    notify = notice or logging.getLogger("collapsium").info
    service = app.Service(app.ModelSource.of(run, options), options, notify)
    # asyncio sends answers without delay only on sockets that name their protocol.
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listening = socket.socket(family, proto=socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((options.host, options.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        reason = error.strerror or error
        raise OptionError(f"cannot listen on {options.host}:{options.port} ({reason})", "port") from None
    with listening:
        host, port = listening.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        notify(f"{service.scorer.title}: POST {address}/score, at most {size(options.max_bytes)} a request")
        app.server_of(service).run(sockets=[listening])
