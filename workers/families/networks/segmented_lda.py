"""The segmented topic model (Du, Buntine and Jin 2010), with sampled or expected tables.

Documents have proportions mu_d ~ Dir(alpha), and each of their segments its own, nu_dj ~ PDP(a, b, mu_d); z ~ nu_dj,
phi_k ~ Dir(B/W, ..., B/W). With several shards as AD-LDA.
"""

from __future__ import annotations

import numpy as np

from collapsium.workers.families.networks.family import NetworkFamily
from collapsium.workers.families.networks.graph import DOCUMENT, SEGMENT, Plan
from collapsium.workers.families.networks.options import NetworkOptions


class SegmentedLda(NetworkFamily[NetworkOptions]):
    """Segmented topic model."""

    fixed_plan = Plan(
        kinds=np.array([[DOCUMENT, 1, -1], [SEGMENT, 1, -1]]),
        links=np.array([[1, 0, 0, 0]]),
        link_mixing=np.ones(1),
        word_kind=1,
    )

    class Options(NetworkOptions, title="segmented topic model: segments vary around their document"):
        """Options of the family."""
