"""Shards whose documents have active topics, and sweeps of them by the kernels and by the naive versions."""

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from collapsium.storage.corpus.shard import Shard
from collapsium.workers.families.cvb.active_topics import starts_of
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.kernels.cvb import active
from collapsium.workers.kernels.cvb import topic_moves as moves
from collapsium.workers.kernels.cvb.active import STEP
from collapsium.workers.kernels.cvb.background import changes_since, with_long_rows
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics, Priors, RunningCounts, SweepRows
from collapsium.workers.kernels.jit import DocumentPairs
from tests.naive import active as naive
from tests.naive import background as naive_background
from tests.strategies import documents_of, pair_totals, with_token_weights

UNIT = naive.UNIT
# The kernel computes in float32, in which a weight has an error of about 1e-6, and truncates to whole steps. Values near
# a whole step may therefore be truncated either way, which changes later pairs of the shard as much. Tempering uses the
# bits of a float32 as its logarithm, whose exponent leaves fewer digits: an error of about 1e-5 of a weight.
STEPS, TEMPERED_STEPS = 2, 4


@dataclass(frozen=True)
class Listed:
    """A shard whose documents have active topics, and rows of its words that also include counts of other shards."""

    shard: Shard
    topics: int
    lists: np.ndarray
    topic: np.ndarray
    share: np.ndarray
    noise: np.random.Generator

    @property
    def pair_arrays(self):
        return self.shard.offsets, self.shard.position, pair_totals(self.shard)

    @property
    def starts(self):
        return starts_of(self.shard.offsets, self.lists)

    @property
    def where(self):
        return self.lists, self.topic, self.starts, self.share

    @property
    def pairs(self):
        return document_pairs(self.shard)

    @property
    def active(self):
        return ActiveTopics(self.lists, self.topic)

    @property
    def sparse(self):
        return ActiveState(self.starts, self.share, *self.counts)

    @property
    def shape(self):
        return self.shard.words.size, self.topics

    @property
    def counts(self):
        """Return E[n_dk] of the active topics, and the documents' background tokens."""
        return naive.document_counts(self.shard.offsets, pair_totals(self.shard), *self.where)

    def rows(self, extra):
        """Return rows and parameters; `extra` scales the counts of other shards."""
        listed, rest = naive.word_counts(self.shape, *self.pair_arrays, *self.where)
        listed += np.floor(extra * self.noise.random(self.shape) * UNIT) / UNIT
        rest += np.floor(extra * self.noise.random(rest.size) * UNIT) / UNIT
        filled = {"active": listed.astype(np.float32), "rest": rest, "even": 0.4}
        filled.update(a=self.noise.uniform(0.1, 2.0, self.topics), b=self.noise.uniform(0.1, 1.0, rest.size))
        filled["weight"] = filled["a"] / self.noise.uniform(20.0, 40.0, self.topics)
        row_topic = listed + naive_background.parts(listed, rest, filled["even"], filled["weight"])
        filled["totals"] = row_topic.sum(axis=0) + 20.0
        filled["ratio"] = filled["a"] / filled["totals"]
        spread = naive_background.spread(
            filled["active"], rest, filled["even"], filled["b"], filled["weight"], filled["ratio"]
        )
        filled.update(row_topic=in_steps(spread[0]).astype(np.float32), background=spread[1].astype(np.float32))
        return filled


@st.composite
def listed_shards(draw, max_count=4):
    """Draw documents without pairs, with one, with a few or with more than are processed together, and any active
    topics."""
    noise = np.random.default_rng(draw(st.integers(0, 2**31)))
    topics, sharp = draw(st.integers(1, 6) | st.sampled_from([8, 9, 20])), draw(st.sampled_from([10.0, 0.3, 0.01]))
    pairs = noise.choice([0, 1, 4, 18, 18], size=draw(st.integers(1, 4)))
    rows = [
        {int(word): int(noise.integers(1, max_count + 1)) for word in noise.choice(20, size, replace=False)}
        for size in pairs
    ]
    sizes = np.where(pairs > 0, noise.choice([0, 1, (topics + 1) // 2, topics, topics], pairs.size), 0)
    topic = [np.sort(noise.choice(topics, size, replace=False)) for size in sizes]
    share = []
    for count, size in zip(pairs, sizes, strict=True):
        q = noise.dirichlet(np.full(size + 1, sharp), count)[:, :size]
        if noise.random() < 0.5:  # documents without background
            q /= np.maximum(q.sum(axis=1, keepdims=True), 1e-300)
        share.append(np.floor(np.minimum(q, 1.0) * UNIT).ravel())
    joined = [np.concatenate([np.zeros(0), *arrays]).astype(np.uint16) for arrays in (topic, share)]
    lists = np.cumsum([0, *sizes]).astype(np.int64)
    return Listed(Shard.of(0, documents_of(rows)), topics, lists, *joined, noise)


def weighed_shards(**kwargs):
    """Draw such shards with weighted tokens."""
    return listed_shards(**kwargs).map(
        lambda state: replace(state, shard=with_token_weights(state.shard, state.lists.size))
    )


def priors_of(rows, total=0.0):
    """Return the priors of topics and words."""
    return Priors(rows["a"], rows["b"], total)


def in_steps(values):
    """Round values to the nearest step, as at the beginning of a sweep."""
    return np.round(np.asarray(values, dtype=np.float64) * UNIT) / UNIT


def sweep_rows(row_topic, background=0.0):
    """Return rows as a sweep changes them, in steps or in longer units; `background` is S_w."""
    row_topic, size = np.asarray(row_topic, dtype=np.float64), len(row_topic)
    longer = np.ceil(np.log2(np.maximum(row_topic.max(axis=1, initial=0.0) / 2**15, 1.0)))
    units = STEP * 2**longer
    cells = np.round(row_topic / units[:, np.newaxis]).astype(np.int32)
    none = np.full(size, -1, np.int32), np.zeros((0, row_topic.shape[1]))
    rows = SweepRows(cells, units.astype(np.float32), np.zeros(size) + background, np.zeros(size), *none)
    return with_long_rows(rows)


def running_counts(rows):
    """Return the counts at the beginning of a sweep."""
    return RunningCounts(rows["totals"].copy(), rows["ratio"], sweep_rows(rows["row_topic"], rows["background"]))


def tokens_of(rows, row_topic):
    """Return the changes of E[n_kw] since the beginning of the sweep."""
    changes = np.full(rows.cells.shape, np.nan, np.float32)
    changes_since(sweep_rows(row_topic).cells, rows, changes)
    return changes.astype(np.float64)


def powers_of(power):
    """Return the inverse temperatures of documents with even and with odd indices, from both or from a common one."""
    return np.array(np.broadcast_to(power, 2), dtype=np.float64)


def run(state, rows, power=1.0):
    """Sweep: return the new state, the changes of E[n_kw] and of the words' background, B + E[n_k], and the documents'
    counts."""
    share = np.full_like(state.share, 77)
    counts = tuple(np.full_like(array, np.nan) for array in state.counts)
    running = running_counts(rows)
    active.sweep_active(
        state.pairs, state.active, state.sparse, priors_of(rows, rows.get("least", 0.0)), powers_of(power), running,
        ActiveState(state.starts, share, *counts),
    )  # fmt: skip
    row_change = tokens_of(running.rows, rows["row_topic"])
    return replace(state, share=share), row_change, running.rows.background, running.totals, counts


def run_naive(state, rows, power=1.0):
    """Sweep with the naive version: return the responsibilities, the change of E[n_kw], and B + E[n_k]."""
    return naive.sweep(
        *state.pair_arrays, rows["b"], rows["background"].astype(np.float64), rows["a"], rows["ratio"], powers_of(power), *state.where,
        rows["totals"], rows["row_topic"], state.shard.weights, rows.get("least", 0.0),
    )  # fmt: skip


def difference(first, second):
    """Return the largest difference between two arrays of responsibilities, in steps."""
    return np.abs(first.astype(np.int64) - second.astype(np.int64)).max(initial=0)


def alone(a, steps, listed=None, count=1):
    """Return a document of one pair with the active topics `listed`, and rows that give its topics weights in
    proportion to a."""
    topics = len(a)
    listed = range(topics) if listed is None else listed
    topic, lists = np.array(listed, dtype=np.uint16), np.array([0, len(listed)], dtype=np.int64)
    share = np.array(steps, dtype=np.uint16)
    state = Listed(Shard.of(0, documents_of([{0: count}])), topics, lists, topic, share, np.random.default_rng(0))
    a, big = np.array(a, dtype=np.float64), 1e6
    rows = {"a": a, "b": np.ones(1), "row_topic": np.full((1, topics), big, dtype=np.float32)}
    rows["totals"] = np.full(topics, 10 * big)
    rows["ratio"] = a / rows["totals"]
    rows["background"] = (rows["row_topic"] @ rows["ratio"]).astype(np.float32)
    return state, rows


KEYS = st.integers(0, 2**63 - 1)


def held_out(shard, key, share):
    """Return the number of held-out tokens of each pair."""
    held = np.full(shard.pairs, 77, dtype=np.int32)
    pairs = DocumentPairs(shard.offsets, shard.position, shard.counts)
    moves.hold_out(pairs, shard.words, np.uint64(key), share, held)
    return held
