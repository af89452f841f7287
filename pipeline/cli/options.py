"""Options that several commands share: the scheduler, memory, callbacks, the log's format and side files."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from collapsium.pipeline.executors.base import PATIENCE, TLS
from collapsium.pipeline.monitoring.console import LOG_FORMS
from collapsium.storage.errors import OptionError

if TYPE_CHECKING:
    from collapsium.pipeline.monitoring.events import Sink


def add_scheduler(parser: argparse.ArgumentParser, default: str, *, patience: bool = False) -> None:
    """Add ``--scheduler``, ``--workers``, the certificates, and ``--patience`` where it is wanted."""
    group = parser.add_argument_group("where it runs")
    group.add_argument(
        "--scheduler",
        default=default,
        metavar="WHERE",
        help="threads: worker threads in this process; local: a Dask cluster of worker processes on this machine, with "
        "its dashboard; serial: one task after another; or a Dask scheduler's address such as tcp://host:8786 "
        f"(default: {default})",
    )
    group.add_argument(
        "--workers", type=int, metavar="N", help="workers to start (default: one a processor), or to wait for"
    )
    group.add_argument(
        "--tls-ca",
        metavar="FILE",
        help="certificate of the authority, for a cluster whose messages are encrypted (tls://..., or local)",
    )
    group.add_argument("--tls-cert", metavar="FILE", help="this side's certificate")
    group.add_argument("--tls-key", metavar="FILE", help="its private key")
    if patience:
        group.add_argument(
            "--patience",
            type=float,
            metavar="S",
            help="seconds after which a worker without a sign of life is given up, and a cluster that does not answer "
            f"(default: {PATIENCE:.0f})",
        )


def tls_of(arguments: argparse.Namespace) -> TLS | None:
    """Return the certificates that were named.

    Parameters
    ----------
    arguments : argparse.Namespace
        Of a parser with `add_scheduler`.

    Returns
    -------
    TLS or None
        None where none was.

    Raises
    ------
    OptionError
        Only some of them were.
    AbsentError
        One is not there.
    """
    named = {name: getattr(arguments, f"tls_{name}") for name in ("ca", "cert", "key")}
    missing = [name for name, path in named.items() if path is None]
    if len(missing) == len(named):
        return None
    if missing:
        raise OptionError(f"--tls-{missing[0]} is required: --tls-ca, --tls-cert and --tls-key belong together")
    return TLS(**named)


def add_memory(parser: argparse.ArgumentParser) -> None:
    """Add ``--memory`` and ``--scratch``."""
    group = parser.add_argument_group("what it may take")
    group.add_argument(
        "--memory",
        metavar="SIZE",
        help="what each worker process may hold, such as 750MB or 1.5GB (threads are one process); local states that "
        "do not fit lie on disk (default: what the machine has left, or what the cluster says)",
    )
    group.add_argument(
        "--scratch", metavar="FOLDER", help="where they lie, on each machine (default: the system's temporary folder)"
    )


def add_callbacks(parser: argparse.ArgumentParser) -> None:
    """Add ``--callback``."""
    parser.add_argument(
        "--callback",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="call this function, or what this class makes, with each event, a dict; may be given again; an error in "
        "it is told and does not end the run. collapsium.pipeline.monitoring.mlflow_callback:MLflow logs to MLflow "
        "(extra: mlflow)",
    )


def callbacks_of(arguments: argparse.Namespace, run: str, notice: Callable[[str], None]) -> list[Sink]:
    """Import the callbacks that were named, and tell them what run they will hear of.

    Parameters
    ----------
    arguments : argparse.Namespace
        Of a parser with `add_callbacks`.
    run : str
        The run's folder.
    notice : callable
        Told in a line what one of them raised.

    Returns
    -------
    list of callable
        Sinks for `fit`.

    Raises
    ------
    OptionError
        One cannot be imported.
    """
    if not arguments.callback:
        return []
    from collapsium.pipeline.monitoring.callbacks import guarded

    found = guarded(arguments.callback, notice)
    for sink in found:
        sink({"event": "run", "iteration": 0, "elapsed": 0.0, "run": run})
    return found


def add_log_format(parser: argparse.ArgumentParser) -> None:
    """Add ``--log-format``."""
    parser.add_argument(
        "--log-format",
        choices=LOG_FORMS,
        help="lines on standard error: text, each with its time (ISO 8601), or json, an object a line with time, "
        "level, message and figures (default: a live view in a terminal, else text)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def add_sides(parser: argparse.ArgumentParser) -> None:
    """Add the options of side files."""
    sides = parser.add_argument_group("side files (labels and numbers of documents that lie beside them)")
    sides.add_argument(
        "--label-files",
        action="append",
        default=[],
        metavar="FILE",
        help="labels of the documents: a line a document in the order in which they are read, or .csv, .tsv, .jsonl or "
        ".parquet, records with the documents' ids (--id) in any order, all of whose fields are labels, or covariates "
        "if they are numbers, where --labels and --covariates name none of them; NAME=FILE names the field; may be "
        "repeated",
    )
    sides.add_argument(
        "--label-names",
        action="append",
        default=[],
        metavar="FILE",
        help="names, one a line, of labels of side files that are numbers from 1; FIELD=FILE says of which field",
    )
