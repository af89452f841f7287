"""Rows of words whose counts are partly background: what lists do not hold is spread over the topics.

A word's background tokens are spread in proportion to weight_k (even + active_kw), weight_k being a_k / (B + E[n_k]);
`active` says what the background is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.jit import F4_2, F8, I8, OUT_F4, OUT_F4_2, OUT_F8, OUT_F8_2, f8, helper, kernel

Array = npt.NDArray[Any]


@kernel(F4_2, F8, f8, F8, F8, F8, OUT_F4_2, OUT_F4, OUT_F4)
def spread(
    active: Array,
    rest: Array,
    even: float,
    word_prior: Array,
    weight: Array,
    ratio: Array,
    row_topic: Array,
    background: Array,
    spreading: Array,
) -> None:
    """Fill E[n_kw] of rows whose background is spread over the topics, and S_w; twin: `naive.background.spread`.

    Parameters
    ----------
    active : float32, shape (rows, topics)
        Counts that documents give to their listed topics.
    rest : float64, shape (rows,)
        Background tokens of each word, spread in proportion to weight_k (even + active_kw).
    even : float
        What keeps the spread even where a word has no tokens.
    word_prior : float64, shape (rows,)
        b_w.
    weight, ratio : float64, shape (topics,)
        a_k / (B + E[n_k]), as when E[n_k] was last summed, and now.
    row_topic : float32, shape (rows, topics)
        Filled with E[n_kw].
    background : float32, shape (rows,)
        Filled with S_w = sum_k ratio_k (b_w + E[n_kw]).
    spreading : float32, shape (rows,)
        Filled with the factors by which E[n_kw] = active_kw + factor_w weight_k (even + active_kw).
    """
    for row in range(rest.size):
        each, known = _each(active[row], rest[row], even, weight), 0.0
        for k in range(weight.size):
            count = active[row, k] + each * weight[k] * (even + active[row, k])
            row_topic[row, k] = np.float32(count)
            known += ratio[k] * (word_prior[row] + count)
        background[row], spreading[row] = np.float32(known), np.float32(each)


@helper
def _each(active: Array, rest: float, even: float, weight: Array) -> float:
    """Return the factor that spreads a word's background tokens over the topics."""
    total = 0.0
    for k in range(weight.size):
        total += weight[k] * (even + active[k])
    return rest / max(total, 1e-300)


@kernel(F4_2, F8, f8, F8, F4_2, I8, f8, OUT_F4_2, OUT_F4_2, OUT_F8_2, OUT_F8)
def fold_rows(
    active: Array,
    rest: Array,
    even: float,
    weight: Array,
    change: Array,
    place: Array,
    momentum: float,
    new_active: Array,
    ahead: Array,
    totals: Array,
    moved: Array,
) -> None:
    """Add the change of some rows to a block's, and sum the block up by topic; twin: `naive.background.fold_rows`.

    Parameters
    ----------
    active : float32, shape (words, topics)
        The block.
    rest, even, weight
        As for `spread`, of the new rows.
    change : float32, shape (rows, topics)
        What to add.
    place : int64, shape (words,)
        Row of `change` for each word; -1 for none.
    momentum : float
        Share of the change by which `ahead` goes beyond the new rows; 0 or more.
    new_active : float32, shape (words, topics)
        Filled.
    ahead : float32, shape (words, topics) or (0, topics)
        Filled with max(new_active + momentum change, 0), unless it is empty.
    totals : float64, shape (2, topics)
        Zero on entry; increased by the sums of E[n_kw] of the new rows and of those ahead.
    moved : float64, shape (1,)
        Increased by the sum of the absolute changes.
    """
    for word in range(rest.size):
        row = place[word]
        for k in range(weight.size):
            new_active[word, k] = active[word, k]
        if row >= 0:
            absolute = 0.0
            for k in range(weight.size):
                new_active[word, k] += change[row, k]
                absolute += abs(float(change[row, k]))
            moved[0] += absolute
        _add_row(new_active[word], rest[word], even, weight, totals[0])
        if ahead.size:
            for k in range(weight.size):
                ahead[word, k] = new_active[word, k]
            if row >= 0:
                for k in range(weight.size):
                    ahead[word, k] = max(new_active[word, k] + np.float32(momentum) * change[row, k], np.float32(0.0))
            _add_row(ahead[word], rest[word], even, weight, totals[1])


@helper
def _add_row(active: Array, rest: float, even: float, weight: Array, total: Array) -> None:
    each = _each(active, rest, even, weight)
    for k in range(weight.size):
        total[k] += active[k] + each * weight[k] * (even + active[k])
