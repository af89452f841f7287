"""The command `collapsium serve`."""

from __future__ import annotations

import sys
from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import argument, named_options
from collapsium.pipeline.workflows.serve_options import ServeOptions

SERVE_EPILOG = """examples:
  collapsium serve run
  collapsium serve job.toml --port 8080
  curl -H 'Content-Type: application/json' -d '{"texts": ["We seek a treaty"]}' http://127.0.0.1:8642/score"""


def serve(
    run: Annotated[str, argument("RUN|JOB.toml", "folder of a run or model, or configuration of a job")],
    /,
    *,
    options: ServeOptions,
) -> None:
    """Score texts over HTTP, with a run or the published version of a batch job.

    POST /score takes {"texts": ["...", ...]} and returns, for each text, its largest
    topics with their proportions and words, and its numbers of known and unknown words.
    "topics" and "words" set how many are returned; "dense": true adds all proportions. GET
    /topics, /health and /metrics (Prometheus) describe model and load.

    With the file of a job, a newly published version replaces its predecessor without
    refusing a request. The service has no login: it listens only on this machine unless
    --host says otherwise, and should be run behind a proxy with a login. Ctrl-C or SIGTERM
    stops it; requests in progress are finished within ten seconds, or dropped.
    """
    pipeline.serve(run, **named_options(options), notice=lambda line: print(line, file=sys.stderr, flush=True))
