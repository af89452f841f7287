"""Second-order sweeps over active topics, a pair at a time in float64."""

import numpy as np

from tests.naive.active import NEARLY, UNIT, documents, in_steps


def sweep(
    offsets, position, counts, b, background, a, ratio, lists, topic, starts, share, running, row_topic, row_variance,
    total_variance, made=None,
):  # fmt: skip
    """One pass over the documents: new responsibilities, the change of E[n_kw], and B + E[n_k].

    As `naive.active.sweep`, with `ratio` a_k / (B + E[n_k]) as S_w was made with, whose weights of active topics are corrected by their variances. V[n_kw] and V[n_k] stay
    as they were given. With `made`, the sweep goes on from those responsibilities after each pair: its own are then
    what each pair should have become, given what was made of the pairs before.
    """
    first_rows, row_topic = row_topic, np.array(row_topic, dtype=np.float64)
    running, blocks = np.array(running, dtype=np.float64), []
    followed = documents(offsets, lists, topic, starts, share if made is None else made)
    for (pairs, own, q), (_, _, other) in zip(documents(offsets, lists, topic, starts, share), followed, strict=True):
        c_all, updated = counts[pairs].astype(np.float64), q.copy()
        here, variance = c_all @ q, c_all @ (q * (1 - q))
        rest, before = c_all @ (1 - q.sum(axis=1)), here
        a_own, a_rest, total = a[own], np.delete(a, own).sum(), running[own]
        for i, (w, c) in enumerate(zip(position[pairs], c_all, strict=True)):
            old, n_kw = q[i], row_topic[w, own]
            single = old * (1 - old)
            in_document, of_word, of_all = (
                a_own + np.maximum(here - old, 0), b[w] + np.maximum(n_kw - old, 0), total - old,
            )  # fmt: skip
            exponent = (
                -np.maximum(variance - single, 0) / (2 * in_document**2)
                - np.maximum(row_variance[w, own] - single, 0) / (2 * of_word**2)
                + np.maximum(total_variance[own] - single, 0) / (2 * of_all**2)
            )
            weights = in_document * of_word / of_all * np.exp(np.clip(exponent, -60, 60))
            weights, others = np.maximum(weights, 1e-30), 0.0
            if own.size < a.size:
                others = max(background[w] - (ratio[own] * (b[w] + first_rows[w, own])).sum(), 0.0)
                others = others if others > 1e-5 * background[w] else 0.0
                others *= 1 + max(rest - (1 - old.sum()), 0.0) / a_rest
            updated[i] = np.floor(weights / (weights.sum() + others) * NEARLY) / UNIT
            new = updated[i] if made is None else other[i]
            here = here + c * (new - old)
            variance = variance + c * (new * (1 - new) - single)
            row_topic[w, own] += c * (new - old)
            rest += c * (old.sum() - new.sum())
        running[own] += here - before
        blocks.append(updated)
    return in_steps(blocks), row_topic - first_rows, running
