"""The interface of what stands beside the families: other libraries, and classifiers."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

# The libraries spread their work over processes or threads of their own; each of these shall not start more.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class BaselineError(Exception):
    """A baseline cannot be fitted; the text says why."""


class Baseline(ABC):
    """Something fitted once beside the families, to the same documents, and scored as they are.

    Attributes
    ----------
    name : str
        Name of its record.
    iterations : int
        Iterations of its fit.
    """

    name: str
    iterations: int

    @abstractmethod
    def measure(self) -> dict[str, Any]:
        """Fit it, and score it.

        Returns
        -------
        dict
            Its row: ``baseline``, ``topics``, ``start``, ``score``, ``seconds`` and further fields.

        Raises
        ------
        BaselineError
            It is not installed, or has failed.
        """


def print_result(function: Callable[[SimpleNamespace], dict[str, Any]]) -> None:
    """Read options as JSON from the command line, and print what a function makes of them as a line of JSON."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    print(json.dumps(function(SimpleNamespace(**json.loads(sys.argv[1])))), flush=True)


def run_module(module: str, arguments: Mapping[str, Any], first: str) -> dict[str, Any]:
    """Run a module that ends with `print_result` in a process of its own, and return what it has printed.

    Parameters
    ----------
    module : str
        The module's name.
    arguments : mapping
        Its options.
    first : str
        The first name in what it prints, which tells it from what a library prints.

    Returns
    -------
    dict
        What it has printed.

    Raises
    ------
    BaselineError
        It has printed no such line.
    """
    command = [sys.executable, "-m", module, json.dumps(arguments)]
    environment = {**os.environ, **ONE_THREAD}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603
    # A library may fail as its process ends, when all is said: what counts is whether there is a result.
    lines = [line for line in done.stdout.splitlines() if line.startswith(f'{{"{first}"')]
    if not lines:
        errors = done.stderr.strip().splitlines()
        raise BaselineError(errors[-1] if errors else f"its process ended with code {done.returncode}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result
