"""Networks of probability vectors on a shard: predictions from the expected vectors of documents and segments."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import MismatchError
from collapsium.workers.families.base import Resumable
from collapsium.workers.families.gibbs.states import SampledRows
from collapsium.workers.families.networks.options import NetworkOptions
from collapsium.workers.families.networks.states import (
    ExpectedNetworkGlobalState,
    ExpectedRows,
    NetworkDocuments,
    SampledNetworkGlobalState,
    Vector,
)
from collapsium.workers.kernels.networks.means import pair_probabilities
from collapsium.workers.kernels.records import DocumentPairs

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard
    from collapsium.workers.families.networks.graph import Graph

GlobalStateT = TypeVar("GlobalStateT", SampledNetworkGlobalState, ExpectedNetworkGlobalState)
RowsT = TypeVar("RowsT", SampledRows, ExpectedRows)
LocalT = TypeVar("LocalT", bound=NetworkDocuments)


class NetworkShardModel(Resumable[NetworkOptions, GlobalStateT, RowsT, LocalT]):
    """Shard model of a network; subclasses sample tables, or expect them."""

    uses_segments = True

    @abstractmethod
    def node_vectors(self, documents: Any, global_state: GlobalStateT) -> npt.NDArray[np.float32]:
        """Return E[nu_j] of the nodes of documents, shape (nodes of documents, topics)."""

    def word_probability(self, rows: RowsT, global_state: GlobalStateT) -> Vector:
        """Return phi_kw, shape (words, topics)."""
        return global_state.priors.word_probability(rows.word_topic, global_state.topic)

    def probabilities(self, rows: RowsT, global_state: GlobalStateT) -> Mapping[str, Any]:
        """Return phi_kw, by the last sample or by expected counts."""
        return {"word_topic": self.word_probability(rows, global_state)}

    def word_tokens(self, rows: RowsT) -> Vector:
        """Return the tokens of each word."""
        tokens: Vector = np.asarray(rows.word_topic, dtype=np.float64).sum(axis=1)
        return tokens

    def document_lengths(self, local: LocalT) -> Vector:
        """Return the tokens of each document."""
        return np.asarray(local.document_tokens, dtype=np.float64)

    def predict(self, heldout: Shard, local: LocalT, rows: RowsT, global_state: GlobalStateT) -> Mapping[str, Any]:
        """Return each held-out pair's probability sum_k E[nu_jk] phi_kw, j being the node of its segment."""
        graph, vectors = local.graph, self.node_vectors(local, global_state)
        if heldout.segments is None:
            vectors, node = (
                document_vectors(graph, vectors, global_state.topic_parameters),
                np.arange(heldout.documents),
            )
            offsets = heldout.offsets
        else:
            _require_segments(heldout, graph)
            node, offsets = graph.segment_node - graph.shared, heldout.segments.pairs
        probability, phi = np.empty(heldout.pairs), self.word_probability(rows, global_state)
        pair_probabilities(DocumentPairs(offsets, heldout.position, heldout.counts), node, vectors, phi, probability)
        return {"probability": probability}

    def infer(self, local: NetworkDocuments, global_state: GlobalStateT) -> Mapping[str, Any]:
        """Return the proportions of documents and of their segments."""
        graph, vectors = local.graph, self.node_vectors(local, global_state)
        return {
            "document_topic": document_vectors(graph, vectors, global_state.topic_parameters),
            "segment_topic": vectors[graph.segment_node - graph.shared],
            "segments": np.diff(graph.document_segments),
        }


def document_vectors(graph: Graph, vectors: npt.NDArray[np.float32], alpha: Vector) -> npt.NDArray[np.float32]:
    """Return the proportions of whole documents: their own vector, or the mean of their segments'."""
    if (graph.document_node >= 0).all():
        return vectors[graph.document_node - graph.shared]
    segments = np.diff(graph.document_segments)
    owner = np.repeat(np.arange(segments.size), segments)
    sums = np.zeros((segments.size, vectors.shape[1]))
    np.add.at(sums, owner, vectors[graph.segment_node - graph.shared])
    sums[segments == 0] = alpha / alpha.sum()
    return (sums / np.maximum(segments, 1)[:, np.newaxis]).astype(np.float32)


def _require_segments(heldout: Shard, graph: Graph) -> None:
    """Refuse held-out pairs of documents that have other segments than they were fitted with."""
    if heldout.segments is None:
        return
    fitted, held_out = np.diff(graph.document_segments), np.diff(heldout.segments.documents)
    different = np.flatnonzero(held_out != fitted)
    if different.size:
        document = int(different[0])
        raise MismatchError(
            f"expected the segments that document {document} of shard {heldout.number} was fitted with, "
            f"{int(fitted[document])}; found {int(held_out[document])} held out"
        )
