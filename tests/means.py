"""A minimal family of vectors: one mean that moves halfway towards the vectors' mean in each iteration, with noise.

It does not belong to the project; `install` registers it in a process of the tests.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import distributed
import numpy as np
import numpy.typing as npt

from collapsium.pipeline.models import registry
from collapsium.storage.corpus.vectors import VectorShard
from collapsium.workers.arrays.annotations import non_negative, numbers
from collapsium.workers.arrays.delta import Delta, change, fresh
from collapsium.workers.arrays.state import GlobalState, LocalState, Rows, block_only
from collapsium.workers.families.family import Description, Family, FamilyOptions, Footprint

Vector = npt.NDArray[np.float64]

NAME = "means"
ADDRESS = f"{__name__}:Means"


class Known(distributed.WorkerPlugin):
    """A plugin that registers the family in each worker of a cluster."""

    name = "means"

    def setup(self, worker):
        install()


@dataclass(frozen=True)
class MeansGlobalState(GlobalState):
    """The sizes of the corpus."""

    documents: Annotated[float, numbers(low=0)]
    vocabulary: Annotated[float, numbers(low=0)]


@dataclass(frozen=True)
class MeansRows(Rows):
    """The mean of each column, and how often it was updated."""

    word_mean: Annotated[Vector, numbers("word")]
    block_seen: Annotated[Vector | None, non_negative("word")] = block_only()

    @classmethod
    def stored(cls, context):
        return {"word_mean"} if context.finished else {"word_mean", "block_seen"}


@dataclass(frozen=True)
class MeansDocuments(LocalState):
    """How often each vector was swept, and that all belong to the single mean."""

    document_sweeps: Annotated[Vector, non_negative("document")]
    document_topic: Annotated[Vector, non_negative("document 1")]


class MeansOptions(FamilyOptions, title="a mean, for tests"):
    """No options."""


class Means(Family):
    """A family whose model is the mean of the vectors."""

    Options, corpus_kind = MeansOptions, "vectors"
    global_state_type, rows_type, local_type, documents_type = (
        MeansGlobalState,
        MeansRows,
        MeansDocuments,
        MeansDocuments,
    )

    def kernels(self, global_state):
        return ()

    def initial_rows(self, words, global_state):
        return MeansRows(np.zeros(words), np.zeros(words))

    def start(self, shard, rows, global_state, stream, warm=None):
        assert isinstance(shard, VectorShard)
        return self.fold_in(shard, rows, global_state, stream), Delta({"tokens": fresh(float(shard.tokens))})

    def sweep(self, shard, local, rows, global_state, stream):
        assert np.isfinite(shard.values).all()
        assert rows.block_seen is None
        shaken = shard.values + stream.generator().normal(scale=1e-3, size=shard.values.shape)
        error = ((shard.values - rows.word_mean) ** 2).sum(axis=1)
        parts = {
            "word_sum": fresh(shaken.sum(axis=0), "word"),
            "word_seen": change(np.ones(shard.words.size), "word"),
            "left": fresh(float(error.sum())),
            "tokens": fresh(float(shard.tokens)),
        }
        return replace(local, document_sweeps=local.document_sweeps + 1), Delta(parts, {"word": shard.words})

    def advance(self, rows, delta, global_state):
        return rows, global_state

    def fold(self, block, delta, global_state):
        if "word_sum" not in delta:
            return block, Delta()
        mean = delta["word_sum"] / global_state.documents
        after = block.word_mean + 0.5 * (mean - block.word_mean)
        moved = float(np.abs(after - block.word_mean).sum())
        return MeansRows(after, block.block_seen + delta["word_seen"]), Delta({"moved": fresh(moved)})

    def finished_rows(self, block, global_state):
        return MeansRows(block.word_mean)

    def fold_in(self, shard, rows, global_state, stream):
        assert isinstance(shard, VectorShard)
        return MeansDocuments(np.zeros(shard.documents), np.ones((shard.documents, 1)))

    def predict(self, heldout, local, rows, global_state):
        assert len(local.document_topic) == heldout.documents
        return {"error": ((heldout.values - rows.word_mean) ** 2).sum(axis=1)}

    def probabilities(self, rows, global_state):
        raise AssertionError("columns of vectors have no probabilities")

    def document_lengths(self, local):
        return np.ones(len(local.document_topic))

    def infer(self, local, global_state):
        return {"document_topic": local.document_topic}

    def initialise(self, summary, stream):
        return MeansGlobalState(float(summary.documents), float(summary.words))

    def footprint(self, summary):
        return Footprint(16.0, 8.0, 8.0, 16.0, 0.0, 16.0, 0.0)

    def update(self, global_state, delta, stream):
        return global_state

    def objective(self, global_state, delta):
        return {"objective": -delta.number("left")}

    def metrics(self, global_state):
        return {"seen": global_state.documents}

    def describe(self, block, global_state, count):
        nothing = np.zeros((1, 1), dtype=np.int64)
        return Description(np.zeros(1, dtype=np.int64), np.ones(1), nothing, block.word_mean[None, :1], signed=True)


def install():
    """Register the family in this process for good, as a worker needs it."""
    registry.FAMILIES[NAME] = ADDRESS


def known(monkeypatch):
    """Register the family in this process until the test ends."""
    monkeypatch.setitem(registry.FAMILIES, NAME, ADDRESS)
