"""Networks of Dirichlet or Pitman-Yor vectors that a user defines, on a shard (Buntine, Du and Nurmi 2010)."""

from __future__ import annotations

from collapsium.workers.families.networks.sampled import SampledNetworkModel
from collapsium.workers.families.networks.variational import ExpectedNetworkModel


class SampledDirichletNetwork(SampledNetworkModel):
    """Network that a user defines, with sampled tables; vectors may be of labels."""

    uses_labels = True


class ExpectedDirichletNetwork(ExpectedNetworkModel):
    """Network that a user defines, with expected tables; vectors may be of labels."""

    uses_labels = True
