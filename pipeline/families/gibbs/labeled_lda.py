"""Labeled LDA by collapsed Gibbs sampling (Ramage, Hall, Nallapati and Manning 2009).

Each label is a topic, and a document's tokens have those of its labels; a document without labels may have all.
theta_d ~ Dir(alpha, ..., alpha) over these, phi_k ~ Dir(eta, ..., eta). With several shards as AD-LDA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.base import Description, Footprint, Summary
from collapsium.pipeline.families.gibbs import common as gibbs
from collapsium.pipeline.families.gibbs import labelled as gibbs_labels
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.arrays.random_streams import Stream

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

CORPUS = "documents"
CHANGE = "moved"
SCHEDULES = gibbs.SCHEDULES
SAMPLER = True
NEEDS_LABELS = True


class Config(gibbs_labels.LabelConfig, title="labeled LDA, a topic for each label, collapsed Gibbs sampling"):
    """Options of the family."""


def initialise(summary: Summary, config: Config, stream: Stream) -> Arrays:
    """Make the globals before any document has been seen."""
    return gibbs_labels.initialise(summary, config, 1, 0)


def carry(globals: Arrays, known: Arrays, config: Config, before: Config) -> tuple[Arrays, int] | None:
    """Go on from another run's topics, where its labels are the same."""
    return gibbs_labels.carry(globals, known)


def footprint(summary: Summary, config: Config) -> Footprint:
    """Say what the state of a fit takes."""
    return gibbs_labels.footprint(summary, 1, 0)


def update(globals: Arrays, delta: Delta, config: Config, stream: Stream) -> Arrays:
    """Add the changes of the counts."""
    return gibbs_labels.update(globals, delta)


def objective(globals: Arrays, delta: Delta) -> dict[str, float]:
    """Give log p(w, z | labels) of the sample, in nats."""
    return gibbs_labels.objective(globals, delta)


def figures(globals: Arrays) -> dict[str, float]:
    """Give nothing: no parameter is learned."""
    return {}


def describe(block: Arrays, globals: Arrays, count: int) -> Description:
    """Describe the topics, the largest first, by their labels."""
    return gibbs_labels.describe(block, globals, count)


def truth(summary: Summary, config: Config, stream: Stream) -> tuple[Arrays, Arrays]:
    """Draw the topics of eight labels to simulate from."""
    return gibbs_labels.truth(summary, config, 1, 0, stream)


def simulate(
    rows: Arrays,
    globals: Arrays,
    documents: int,
    tokens: float,
    stream: Stream,
) -> tuple[Documents, npt.NDArray[np.float64]]:
    """Draw documents with labels, and their proportions."""
    return gibbs_labels.simulate(rows, globals, documents, tokens, stream)
