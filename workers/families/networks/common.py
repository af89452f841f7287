"""What sampling and expected tables over networks of vectors share beside a shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.segments import Segments
from collapsium.workers.arrays.delta import Arrays
from collapsium.workers.families.cvb import common as collapsed
from collapsium.workers.families.gibbs import common as gibbs
from collapsium.workers.families.gibbs.common import Priors
from collapsium.workers.families.networks.graph import Graph
from collapsium.workers.kernels.networks.records import Hyperparameters

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Vector = npt.NDArray[np.float64]


def variational(globals: Arrays) -> bool:
    """Say whether a model's tables are expected, not drawn."""
    return bool(globals.get("variational", False))


def priors(globals: Arrays) -> Priors:
    """Take the Dirichlet parameters from the globals."""
    topics, beta = np.asarray(globals["alpha"], dtype=np.float64), float(globals["beta"])
    return Priors(topics, float(topics.sum()), beta / float(globals["vocabulary"]), beta)


def hyperparameters(globals: Arrays) -> Hyperparameters:
    """Return b, a and alpha as kernels take them."""
    return Hyperparameters(*(np.asarray(globals[name]) for name in ("strength", "discount", "alpha")))


def node_pairs(shard: Shard, graph: Graph) -> npt.NDArray[np.int64]:
    """Return where the pairs of each node of documents begin, shape (nodes of documents + 1,)."""
    segments = shard.segments or Segments.of(shard.offsets, {})
    some = np.zeros(int(graph.nodes[-1]) - graph.above + 1, dtype=np.int64)
    np.add.at(some, graph.segment_node - graph.above + 1, np.diff(segments.pairs))
    return np.cumsum(some)


def word_probability(rows: Arrays, globals: Arrays) -> Vector:
    """Return phi_kw of the words at hand, float64, shape (words, topics)."""
    given = priors(globals).over(len(rows["word_topic"]))
    return collapsed.word_probability(rows, gibbs.moments(globals), given)
