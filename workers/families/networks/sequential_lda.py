"""Sequential LDA (Du, Buntine and Jin 2010), with sampled or expected tables.

Documents have proportions mu_d ~ Dir(alpha); those of the first segment vary about them, nu_d1 ~ PDP(a, b, mu_d), and
those of each other segment about the one before, nu_dj ~ PDP(a, b, nu_d,j-1); z ~ nu_dj, phi_k ~ Dir(B/W, ..., B/W).
"""

from __future__ import annotations

import numpy as np

from collapsium.workers.families.networks.family import NetworkFamily
from collapsium.workers.families.networks.graph import DOCUMENT, SEGMENT, Plan
from collapsium.workers.families.networks.options import NetworkOptions


class SequentialLda(NetworkFamily[NetworkOptions]):
    """Sequential latent Dirichlet allocation."""

    fixed_plan = Plan(
        kinds=np.array([[DOCUMENT, 1, -1], [SEGMENT, 1, -1]]),
        links=np.array([[1, 1, -1, 0], [1, 0, 0, 1]]),
        link_mixing=np.ones(2),
        word_kind=1,
    )

    class Options(NetworkOptions, title="sequential LDA: each segment varies around the one before it"):
        """Options of the family."""
