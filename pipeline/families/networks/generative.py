"""Drawing documents of segments from a network of probability vectors, for families to simulate from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families import generative as drawing
from collapsium.pipeline.families.base import Summary
from collapsium.pipeline.families.networks.options import NetworkConfig
from collapsium.storage.errors import OptionError
from collapsium.workers.arrays.delta import Arrays
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.networks.graph import LABEL, Graph, Plan, graph_above, graph_of

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

Vector = npt.NDArray[np.float64]

SEGMENT_TOKENS = 20.0  # mean tokens of a segment
LARGE = 1e9  # tokens that a drawn vector is written as, so that priors do not show
STICKS, LEAST = 2000, 1e-4  # of a Pitman-Yor process: how many are broken at most, and the rest that is not broken on
TOGETHER = 200  # sticks that are broken at a time


def truth(summary: Summary, config: NetworkConfig, globals: Arrays, stream: Stream) -> tuple[Arrays, Arrays]:
    """Draw topics, and the vectors above documents; they stand as counts so large that priors do not show.

    Parameters
    ----------
    summary : Summary
        Of the corpus to draw.
    config : NetworkConfig
        The options.
    globals : Arrays
        Before any document has been seen.
    stream : Stream
        Addressed to the corpus.

    Returns
    -------
    rows, globals : Arrays
        As `simulate` takes them.

    Raises
    ------
    OptionError
        Labels have vectors.
    """
    if (Plan.of(globals).kinds[:, 0] == LABEL).any():
        raise OptionError("--network: documents with labels are not drawn; leave out vectors over labels")
    generator = stream.at(purpose="simulate above").generator()
    above = draw_vectors(graph_above(globals), globals, np.zeros((0, config.topics)), generator)
    tokens = np.full(config.topics, LARGE / config.topics)
    counts = {"topic": tokens, "vector_topic": np.rint(LARGE * above).astype(np.int64), "beta": np.array(1e-9)}
    counts["variational"] = np.array(False)
    return drawing.draw_topics(summary.words, tokens, config.beta, stream), {**globals, **counts}


def simulate(
    rows: Arrays, globals: Arrays, documents: int, tokens: float, stream: Stream
) -> tuple[Documents, npt.NDArray[np.float64]]:
    """Draw documents of Poisson numbers of segments, 20 tokens each in the mean.

    Parameters
    ----------
    rows, globals : Arrays
        As `truth` gave them.
    documents : int
        How many.
    tokens : float
        Mean number of tokens of a document.
    stream : Stream
        Addressed to the portion.

    Returns
    -------
    documents : Documents
        Without ids, with segments.
    theta : numpy.ndarray of float64, shape (documents, topics)
        The mean of each document's segments.
    """
    import pyarrow as pa

    from collapsium.storage.corpus.shard import EXTRAS, Documents

    generator, words = stream.generator(), int(globals["vocabulary"])
    many = np.maximum(generator.poisson(tokens / SEGMENT_TOKENS, documents), 1)
    segments = np.concatenate([[0], np.cumsum(many)]).astype(np.int64)
    none = np.zeros(documents + 1, dtype=np.int64)
    graph = graph_of(Plan.of(globals), segments, (none, none[:0]))
    above = np.asarray(globals["vector_topic"], dtype=np.float64)
    above = above / np.maximum(above.sum(axis=1, keepdims=True), 1.0)
    nu = draw_vectors(graph, globals, above, generator)[graph.segment_node]
    owner = np.repeat(np.arange(documents), many)
    drawn = drawing.draw_bags(rows, words, nu, tokens * documents / owner.size, generator)
    lengths = np.diff(drawn.offsets).astype(np.int32)
    extras = {"segments": pa.ListArray.from_arrays(pa.array(segments.astype(np.int32)), pa.array(lengths))}
    extras = {"segments": extras["segments"].cast(EXTRAS["segments"])}
    theta = np.zeros((documents, nu.shape[1]))
    np.add.at(theta, owner, nu)
    found = Documents(pa.nulls(documents, pa.string()), drawn.offsets[segments], drawn.words, drawn.counts, extras)
    return found, theta / many[:, np.newaxis]


def draw_vectors(graph: Graph, globals: Arrays, above: Vector, generator: np.random.Generator) -> Vector:
    """Draw all vectors of a network, parents first.

    Parameters
    ----------
    graph : Graph
        The network.
    globals : Arrays
        With alpha, b and a.
    above : numpy.ndarray of float64, shape (vectors, topics)
        The first vectors, which are known.
    generator : numpy.random.Generator
        Moved.

    Returns
    -------
    numpy.ndarray of float64, shape (nodes, topics)
        nu.
    """
    alpha = np.asarray(globals["alpha"], dtype=np.float64)
    strength, discount = np.asarray(globals["strength"]), np.asarray(globals["discount"])
    nu = np.zeros((graph.node_kind.size, alpha.size))
    nu[: len(above)] = above
    for node in range(len(above), len(nu)):
        first, last = int(graph.node_edges[node]), int(graph.node_edges[node + 1])
        if first == last:
            nu[node] = drawing.draw_proportions(alpha, 1, generator)[0]
            continue
        rho = generator.dirichlet(graph.edge_mixing[first:last]) if last > first + 1 else np.ones(1)
        mean, kind = rho @ nu[graph.edge_parent[first:last]], graph.node_kind[node]
        nu[node] = _draw_about(mean, float(strength[kind]), float(discount[kind]), generator)
    return nu


def _draw_about(mean: Vector, strength: float, discount: float, generator: np.random.Generator) -> Vector:
    """Draw from PDP(a, b, mean): a Dirichlet without discount, else by breaking sticks."""
    if discount == 0.0:
        drawn: Vector = drawing.draw_proportions(strength * mean, 1, generator)[0]
        return drawn
    rest, found, running = 1.0, np.zeros(mean.size), np.cumsum(mean)
    for first in range(1, STICKS, TOGETHER):
        number = np.arange(first, first + TOGETHER)
        left = np.cumprod(1.0 - generator.beta(1.0 - discount, strength + number * discount))
        place = np.searchsorted(running, generator.random(TOGETHER) * running[-1], side="right")
        weight = rest * -np.diff(left, prepend=1.0)
        found += np.bincount(np.minimum(place, mean.size - 1), weight, mean.size)
        rest *= float(left[-1])
        if rest < LEAST:
            break
    whole: Vector = found + rest * mean
    return whole
