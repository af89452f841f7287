"""Segmented and sequential LDA: networks of the segments of documents (Du, Buntine and Jin 2010).

Documents have proportions mu_d ~ Dir(alpha), and each of their segments its own nu_dj, with z ~ nu_dj and phi_k ~
Dir(B/W, ..., B/W). In the segmented model nu_dj ~ PDP(a, b, mu_d). In the sequential model that holds of the first
segment alone, and each other one varies about the segment before it, nu_dj ~ PDP(a, b, nu_d,j-1).
"""

from __future__ import annotations

import numpy as np

from collapsium.storage.corpus.label_index import LabelTable
from collapsium.workers.families.networks.family import NetworkOptions
from collapsium.workers.families.networks.graph import DOCUMENT, SEGMENT, Plan
from collapsium.workers.families.networks.sampled import SampledNetwork


class SegmentedLda(SampledNetwork):
    """Segmented topic model."""

    class Options(NetworkOptions, title="segmented topic model: segments vary around their document"):
        """Options of the family."""

        def plan(self, labels: LabelTable | None) -> Plan:
            """Return documents, and segments below them."""
            return Plan(
                kinds=np.array([[DOCUMENT, 1, -1], [SEGMENT, 1, -1]]),
                links=np.array([[1, 0, 0, 0]]),
                link_mixing=np.ones(1),
                word_kind=1,
            )


class SequentialLda(SampledNetwork):
    """Sequential latent Dirichlet allocation."""

    class Options(NetworkOptions, title="sequential LDA: each segment varies around the one before it"):
        """Options of the family."""

        def plan(self, labels: LabelTable | None) -> Plan:
            """Return documents, and segments below the segment before them or, the first, below the document."""
            return Plan(
                kinds=np.array([[DOCUMENT, 1, -1], [SEGMENT, 1, -1]]),
                links=np.array([[1, 1, -1, 0], [1, 0, 0, 1]]),
                link_mixing=np.ones(2),
                word_kind=1,
            )
