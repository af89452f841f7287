"""Latent Dirichlet allocation by collapsed variational inference, beside a shard (Teh, Newman and Welling 2007).

theta_d ~ Dir(a_1..a_K), phi_k ~ Dir(b_1..b_W).
"""

from __future__ import annotations

import numpy as np

from collapsium.workers.families.cvb.globals import LdaGlobals, Vector
from collapsium.workers.families.cvb.parameters import CollapsedOptions, Parameters, active_settings
from collapsium.workers.families.cvb.shard_model import CollapsedShardModel
from collapsium.workers.families.cvb.states import CollapsedRows
from collapsium.workers.families.topic_arrays import LDA_ARRAYS


def word_parameters(rows: CollapsedRows, globals: LdaGlobals) -> Vector:
    """Return b_w of the words at hand: B / W or, where it differs by word, from the tables of the word."""
    if globals.asymmetric_beta and globals.beta_rate > 0:
        learned: Vector = (rows.tables + globals.word_tables_prior) / globals.beta_rate
        return learned
    return np.full(rows.words, globals.beta / globals.vocabulary)


class LdaShardModel(CollapsedShardModel[CollapsedOptions, LdaGlobals]):
    """Latent Dirichlet allocation by collapsed variational inference, beside a shard."""

    globals_type = LdaGlobals
    arrays = LDA_ARRAYS

    def update_parameters(self, rows: CollapsedRows, globals: LdaGlobals) -> Parameters:
        """Return a_k and b_w."""
        return Parameters(
            topics=globals.alpha,
            concentration=float(globals.alpha.sum()),
            words=word_parameters(rows, globals),
            total=globals.beta,
            order=self.options.order,
            tables=self.options.needs_tables,
            moments=globals.moments,
            active=active_settings(globals, self.options, globals.alpha),
        )

    def predictive_parameters(self, rows: CollapsedRows, globals: LdaGlobals) -> Parameters:
        """Return a_k and b_w."""
        return self.update_parameters(rows, globals)
