"""The hierarchical Dirichlet process by the direct-assignment Gibbs sampler, beside a shard.

Teh, Jordan, Beal and Blei (2006), section 5.3: theta_d ~ Dir(alpha pi), phi_k ~ Dir(beta tau) with tau_w = 1 / W, and
pi_u is what pi has left for topics that are not there yet:
p(z = k) ~ (n_dk' + alpha pi_k) (n_kw' + beta tau_w) / (n_k' + beta), p(z = new) ~ alpha pi_u tau_w.

A topic is a slot, whose number is its id: a column of the counts. A shard may take free slots whose number leaves the
same remainder as its own by ``lanes``, so topics that are born in different shards in one iteration stay apart; with
more shards than lanes, those of shards that share a lane meet in a slot and are one topic from then on, as all do in
HD-HDP (Newman, Asuncion, Smyth and Welling 2009), whose approximation this is. One shard alone samples exactly.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Arrays, Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb import common as collapsed
from collapsium.workers.families.gibbs import common as gibbs
from collapsium.workers.families.gibbs.common import Priors, Slots
from collapsium.workers.families.topic_arrays import GIBBS_HDP_ARRAYS
from collapsium.workers.kernels.gibbs.topics import draw_tables
from collapsium.workers.kernels.jit import Kernel

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

ARRAYS = GIBBS_HDP_ARRAYS


def priors(globals: Arrays) -> Priors:
    """Take the Dirichlet parameters from the globals: a_k = alpha pi_k."""
    alpha, beta = float(globals["alpha"]), float(globals["beta"])
    return Priors(alpha * globals["pi"], alpha, beta / float(globals["vocabulary"]), beta)


def slots(globals: Arrays, shard: int) -> Slots:
    """Return where a shard's new topics go."""
    lanes, free = int(globals["lanes"]), np.flatnonzero(globals["free"])
    lane, columns = shard % lanes, globals["free"].size
    mine = [int(slot) for slot in free[free % lanes == lane]]
    return Slots(float(globals["gamma"]), mine, columns + (lane - columns) % lanes, lanes)


def kernels(globals: Arrays) -> Sequence[Kernel[..., Any]]:
    """Name the kernels that a fit calls in every iteration."""
    return [*gibbs.KERNELS, draw_tables]


def blank(words: int, globals: Arrays) -> Arrays:
    """Make the rows of `words` words before any document has been seen."""
    return gibbs.blank(words, globals["pi"].size)


def start(
    shard: Shard,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
    warm: Arrays | None = None,
) -> tuple[Arrays, Delta]:
    """Draw each token's first topic, from the first topics alike or by another run's proportions and topics."""
    first = int(globals["start_topics"])
    return gibbs.start(shard, first, globals["pi"].size, globals["pi"], stream, warm)


def take(shard: Shard, kept: Arrays, rows: Arrays, globals: Arrays) -> tuple[Arrays, Delta]:
    """Go on from the topics that another run kept of the shard's tokens."""
    return gibbs.begun(shard, kept["token_topic"], globals["pi"].size, globals["pi"])


def sweep(
    shard: Shard,
    local: Arrays,
    rows: Arrays,
    globals: Arrays,
    stream: Stream,
) -> tuple[Arrays, Delta]:
    """Pass once over a shard, then draw its ``tables``, m_k, and ``log_stick``, the sum of log eta_d."""
    began, given = time.perf_counter(), priors(globals)
    found = gibbs.swept(shard, local, rows, globals["topic"], given, stream, slots(globals, shard.number))
    local, parts = gibbs.listed(shard, found.token_topic, found.prior, tables=False)
    columns, tables = found.prior.size, np.zeros(found.prior.size)
    key = stream.at(purpose=f"{stream.purpose} tables").key()
    draw_tables(local["document_topics"], local["document_counts"], found.prior, key, tables)
    free = np.ones(columns, dtype=bool)
    free[: globals["free"].size] = globals["free"]
    parts.update(gibbs.document_sums(shard, given.concentration))
    parts["word_topic"] = gibbs.changes(rows, found.row)
    parts["tables"] = fresh(tables, "topic")
    # By these `advance` goes on.
    parts["born"] = fresh(np.where(free, found.prior, 0.0) / given.concentration, "topic")
    parts["log_stick"] = fresh(_log_sticks(shard, given.concentration, stream))
    return local, Delta(parts, gibbs.ids_of(shard, columns), {"kernel": time.perf_counter() - began})


def _log_sticks(shard: Shard, alpha: float, stream: Stream) -> float:
    """Draw eta_d ~ Beta(alpha, n_d) of the documents that have tokens; return the sum of their logarithms."""
    lengths = shard.lengths[shard.lengths > 0].astype(np.float64)
    generator = stream.at(purpose=f"{stream.purpose} sticks").generator()
    # In logarithms, where a small alpha does not vanish: Gamma(a) is Gamma(a + 1) U^(1/a).
    log_one = special.log(generator.standard_gamma(alpha + 1.0, lengths.size))
    log_one -= generator.standard_exponential(lengths.size) / alpha
    return float((log_one - np.logaddexp(log_one, special.log(generator.standard_gamma(lengths)))).sum())


def advance(rows: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Arrays]:
    """Give the rows and globals with which a shard sweeps once more: with the topics that it has brought forth."""
    after, moved = gibbs.advance(rows, delta)
    grown = with_columns(globals, moved.size)
    topic = grown["topic"] + moved
    pi = np.where(topic > 0, grown["pi"] + delta["born"], 0.0)
    return after, {**grown, "topic": topic, "pi": pi, "free": grown["free"] & (topic == 0)}


def with_columns(globals: Arrays, columns: int) -> Arrays:
    """Return globals with at least so many slots."""
    more = max(columns - globals["pi"].size, 0)
    if not more:
        return globals
    longer = {name: np.concatenate([globals[name], np.zeros(more, globals[name].dtype)]) for name in ("pi", "topic")}
    return {**globals, **longer, "free": np.concatenate([globals["free"], np.ones(more, dtype=bool)])}


def fold(block: Arrays, delta: Delta, globals: Arrays) -> tuple[Arrays, Delta]:
    """Add the rows of a delta to a block of the vocabulary."""
    return gibbs.fold(block, delta, priors(globals))


def finish(block: Arrays, globals: Arrays) -> Arrays:
    """Give the rows that a finished model keeps: with all slots, which a block gets only when it is folded."""
    return _rows(block, globals)


def _rows(rows: Arrays, globals: Arrays) -> Arrays:
    columns = globals["pi"].size
    return (
        rows if rows["word_topic"].shape[1] == columns else {"word_topic": gibbs.widened(rows["word_topic"], columns)}
    )


def settle(shard: Shard, rows: Arrays, globals: Arrays, stream: Stream) -> Arrays:
    """Fit the counts of unseen documents under fixed topics, by zeroth-order sweeps."""
    given = priors(globals).over(shard.words.size)
    return collapsed.settle(shard, _rows(rows, globals), gibbs.moments(globals), given)


def predict(heldout: Shard, local: Arrays, rows: Arrays, globals: Arrays) -> Arrays:
    """Give each held-out pair's probability sum_k theta_dk phi_kw + theta_u tau_w, of the last sample."""
    given = priors(globals).over(heldout.words.size)
    return collapsed.pair_probability(heldout, local, _rows(rows, globals), gibbs.moments(globals), given)


def probabilities(rows: Arrays, globals: Arrays) -> Arrays:
    """Give phi_kw of the words at hand, of the last sample; columns are slots."""
    given = priors(globals).over(len(rows["word_topic"]))
    return {"word_topic": collapsed.word_probability(_rows(rows, globals), gibbs.moments(globals), given)}


def infer(local: Arrays, globals: Arrays) -> Arrays:
    """Give the documents' proportions theta_dk = (alpha pi_k + n_dk) / (alpha + n_d); columns are slots."""
    return {"document_topic": collapsed.proportions(local, priors(globals).over(0))}


def lengths(local: Arrays) -> Arrays:
    """Give the tokens of each document."""
    return {"document_tokens": collapsed.lengths(local)}
