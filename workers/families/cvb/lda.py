"""Latent Dirichlet allocation by collapsed variational inference on a shard (Teh, Newman and Welling 2007).

theta_d ~ Dir(a_1..a_K), phi_k ~ Dir(b_1..b_W).
"""

from __future__ import annotations

import numpy as np

from collapsium.workers.families.cvb.global_state import LdaGlobalState, Vector
from collapsium.workers.families.cvb.parameters import CollapsedOptions, Parameters, active_settings
from collapsium.workers.families.cvb.plain_topics import PlainTopicsShardModel
from collapsium.workers.families.cvb.states import CollapsedRows
from collapsium.workers.families.topic_arrays import LDA_ARRAYS


def word_parameters(rows: CollapsedRows, global_state: LdaGlobalState) -> Vector:
    """Return b_w of the words of the rows: B / W or, with asymmetric beta, from the tables of each word."""
    if global_state.asymmetric_beta and global_state.beta_rate > 0:
        learned: Vector = (rows.tables + global_state.word_tables_prior) / global_state.beta_rate
        return learned
    return np.full(rows.words, global_state.beta / global_state.vocabulary)


class LdaShardModel(PlainTopicsShardModel[CollapsedOptions, LdaGlobalState]):
    """Latent Dirichlet allocation by collapsed variational inference, on a shard."""

    global_state_type = LdaGlobalState
    arrays = LDA_ARRAYS

    def update_parameters(self, rows: CollapsedRows, global_state: LdaGlobalState) -> Parameters:
        """Return a_k and b_w."""
        return Parameters(
            topics=global_state.alpha,
            concentration=float(global_state.alpha.sum()),
            words=word_parameters(rows, global_state),
            total=global_state.beta,
            order=self.options.order,
            tables=self.options.needs_tables,
            moments=global_state.moments,
            seeds=global_state.seed_rows(rows.word_number),
            active=active_settings(global_state, self.options, global_state.alpha),
        )

    def predictive_parameters(self, rows: CollapsedRows, global_state: LdaGlobalState) -> Parameters:
        """Return a_k and b_w."""
        return self.update_parameters(rows, global_state)
