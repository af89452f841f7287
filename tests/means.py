"""A small family of vectors: one mean, which goes half of the way to that of the vectors in each iteration, and shakes.

It is no family of the project's: `install` makes it one, in a process of tests.
"""

import sys
import types

import distributed
import numpy as np

from collapsium.pipeline.families import base as contract
from collapsium.storage.corpus.vectors import VectorShard
from collapsium.workers.arrays.array_fields import FamilyArrays, Part, counts, numbers
from collapsium.workers.arrays.delta import Delta, change, fresh
from collapsium.workers.families import base as worker_contract

NAME = "means"


class Known(distributed.WorkerPlugin):
    """Makes the family known to each worker of a cluster."""

    name = "means"

    def setup(self, worker):
        install()


# The half beside a shard ---------------------------------------------------------------------------------------------

_ROWS = {"word_mean": numbers("f8", "word")}
ARRAYS = FamilyArrays(
    Part({"documents": counts("f8"), "vocabulary": counts("f8")}),
    lambda globals: Part(_ROWS),
    lambda globals: Part({**_ROWS, "block_seen": counts("f8", "word")}),
    lambda globals: Part({"document_sweeps": counts("f8", "document"), "document_topic": counts("f8", "document 1")}),
)


def kernels(globals):
    return ()


def blank(words, globals):
    return {"word_mean": np.zeros(words), "block_seen": np.zeros(words)}


def start(shard, rows, globals, stream, warm=None):
    assert isinstance(shard, VectorShard)
    return settle(shard, rows, globals, stream), Delta({"tokens": fresh(float(shard.tokens))})


def sweep(shard, local, rows, globals, stream):
    assert np.isfinite(shard.values).all()
    shaken = shard.values + stream.generator().normal(scale=1e-3, size=shard.values.shape)
    error = ((shard.values - rows["word_mean"]) ** 2).sum(axis=1)
    parts = {
        "word_sum": fresh(shaken.sum(axis=0), "word"),
        "word_seen": change(np.ones(shard.words.size), "word"),
        "left": fresh(float(error.sum())),
        "tokens": fresh(float(shard.tokens)),
    }
    local = {**local, "document_sweeps": local["document_sweeps"] + 1}
    return local, Delta(parts, {"word": shard.words})


def advance(rows, delta, globals):
    return rows, globals


def fold(block, delta, globals):
    if "word_sum" not in delta:
        return dict(block), Delta()
    mean = delta["word_sum"] / globals["documents"]
    after = block["word_mean"] + 0.5 * (mean - block["word_mean"])
    moved = float(np.abs(after - block["word_mean"]).sum())
    told = Delta({"moved": fresh(moved)})
    return {"word_mean": after, "block_seen": block["block_seen"] + delta["word_seen"]}, told


def finish(block, globals):
    return {"word_mean": block["word_mean"]}


def settle(shard, rows, globals, stream):
    assert isinstance(shard, VectorShard)
    return {"document_sweeps": np.zeros(shard.documents), "document_topic": np.ones((shard.documents, 1))}


def predict(heldout, local, rows, globals):
    assert len(local["document_topic"]) == heldout.documents
    return {"error": ((heldout.values - rows["word_mean"]) ** 2).sum(axis=1)}


def lengths(local):
    return {"document_tokens": np.ones(len(local["document_topic"]))}


def infer(local, globals):
    return {"document_topic": local["document_topic"]}


# The half on the driver ----------------------------------------------------------------------------------------------


class Config(contract.FamilyConfig, title="a mean, for tests"):
    """No options."""


def _update(globals, delta, config, stream):
    return dict(globals)


driver = types.ModuleType("collapsium.pipeline.families.means")
driver.CORPUS, driver.CHANGE, driver.SCHEDULES, driver.SAMPLER = "vectors", "moved", ("batch",), False
driver.Config, driver.update = Config, _update
driver.initialise = lambda summary, config, stream: {
    "documents": np.array(float(summary.documents)),
    "vocabulary": np.array(float(summary.words)),
}
driver.footprint = lambda summary, config: contract.Footprint(16.0, 8.0, 8.0, 16.0, 0.0, 16.0, 0.0)
driver.objective = lambda globals, delta: {"objective": -delta.number("left")}
driver.describe = lambda block, globals, count: contract.Description(
    np.zeros(1, dtype=np.int64), np.ones(1), np.zeros((1, 1), dtype=np.int64), block["word_mean"][None, :1], signed=True
)
driver.figures = lambda globals: {"seen": float(globals["documents"])}


def install():
    """Let this process know both halves for good: a worker looks for words with the driver's, where there is time to."""
    worker_contract.FAMILIES[NAME] = __name__
    sys.modules[driver.__name__] = driver
    contract.FAMILIES[NAME] = driver.__name__


def known(monkeypatch):
    """Let this process know both halves, until the test ends."""
    monkeypatch.setitem(worker_contract.FAMILIES, NAME, __name__)
    monkeypatch.setitem(sys.modules, driver.__name__, driver)
    monkeypatch.setitem(contract.FAMILIES, NAME, driver.__name__)
