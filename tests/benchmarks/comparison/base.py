"""Corpora in memory, and separate processes for other libraries and classifiers."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus import corpus as corpora
from collapsium.storage.corpus import shard
from collapsium.storage.data_types import JsonObject

Floats = npt.NDArray[np.float64]


class Data:
    """A corpus in memory."""

    def __init__(
        self, offsets: npt.NDArray[np.int64], words: npt.NDArray[np.int32], counts: npt.NDArray[np.int32], size: int
    ) -> None:
        self.offsets, self.words, self.counts, self.size = offsets, words, counts, int(size)

    @classmethod
    def read(cls, url: str | Path) -> Data:
        """Read a corpus, or a file that `save` wrote."""
        if str(url).endswith(".npz"):
            with np.load(url) as arrays:
                return cls(arrays["offsets"], arrays["words"], arrays["counts"], arrays["size"])
        corpus = corpora.Corpus(url)
        documents = shard.Documents.join([reference.documents() for reference in corpus.references])
        return cls(documents.offsets, documents.words, documents.counts, corpus.manifest.vocabulary.words)

    def save(self, path: str | Path) -> None:
        """Write a file that NumPy alone can read."""
        np.savez(path, offsets=self.offsets, words=self.words, counts=self.counts, size=self.size)

    def tokens(self, document: int) -> npt.NDArray[np.int32]:
        """Return a document's tokens, as numbers of words."""
        first, last = self.offsets[document], self.offsets[document + 1]
        return np.repeat(self.words[first:last], self.counts[first:last])

    def documents(self) -> range:
        """Return the documents' numbers."""
        return range(self.offsets.size - 1)


# Environment that limits numerical libraries to one thread for each process or thread of a peer
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class BaselineError(Exception):
    """A baseline cannot be fitted, for the reason in the text."""


def print_result(function: Callable[[SimpleNamespace], JsonObject]) -> None:
    """Call a function with JSON arguments from the command line, and print its result as a line of JSON."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    print(json.dumps(function(SimpleNamespace(**json.loads(sys.argv[1])))), flush=True)


def run_module(module: str, arguments: Mapping[str, object], first: str) -> JsonObject:
    """Run a module that calls `print_result` in a separate process, and return the result."""
    command = [sys.executable, "-m", module, json.dumps(arguments)]
    environment = {**os.environ, **ONE_THREAD}
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    # A library may crash at exit, after its result is printed, so the exit code does not matter.
    lines = [line for line in process.stdout.splitlines() if line.startswith(f'{{"{first}"')]
    if not lines:
        errors = process.stderr.strip().splitlines()
        raise BaselineError(errors[-1] if errors else f"its process ended with code {process.returncode}")
    result: JsonObject = json.loads(lines[-1])
    return result
