"""Active-set CVB0 updates: sparse responsibilities over the topics that a document uses.

The responsibility of all other topics together is a pair's background. Zeroth order (CVB0; Asuncion, Welling, Smyth and
Teh 2009): an active topic weighs (a_k + E'[n_dk]) (b_w + E'[n_kw]) / (B + E'[n_k]) as in `dense`, and the background
(S_w - sum over active a_k phi_kw) (1 + E'[n_d,rest] / a_rest), with phi_kw = (b_w + E[n_kw]) / (B + E[n_k]) and
S_w = sum_k a_k phi_kw, of E[n_k] as the sweep began: inactive topics share the document's background in proportion to
a_k.

Responsibilities are multiples of 2^-15 in 16 bits, so that counts of tokens are exact sums: they do not drift, and no
order of addition changes them. Counts of documents are float64, exact up to 2^38 tokens. While a document is updated,
they are float32, which is exact up to 512 tokens. In longer documents, a topic's excess over 256 tokens is therefore
added to its prior, and gains are added to the exact counts before 256 tokens have passed. Rows of words are whole
numbers of such steps in 32 bits, which hold a count with all its changes. A row with 2^15 tokens in a cell, or as many
to come, has units that are longer by a power of two, and its changes are summed apart. The rest that truncation leaves
belongs to the background. Where tokens are weighted, responsibilities are multiplied by the weight of a token as they
are read: the own copy that is excluded is one token of that weight, and counts are sums of weights, which are rounded
to shorter units; long documents are counted anew.

Topics of a document are processed eight at a time (`lanes`), in groups that have all their numbers side by side. Rows
of the next pairs are prefetched, as a document's pairs have different words. A helper updates all pairs of a document
and indexes flat arrays: a slice for each pair would count references, which costs more than the arithmetic.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.cvb.records import (
    ActiveState,
    ActiveTopics,
    DocumentCounts,
    DocumentWorkspace,
    FlatRows,
    NewActiveState,
    Priors,
    RunningCounts,
)
from collapsium.workers.kernels.jit import (
    LANES,
    Array,
    DocumentPairs,
    Float64Vector,
    Number,
    borrower,
    helper,
    kernel,
    token_weight,
)
from collapsium.workers.kernels.lanes import (
    Lanes,
    first_of,
    gather_counts,
    larger,
    load,
    load_counts,
    load_steps,
    prefetch,
    replace_counts,
    scatter_counts,
    spread_evenly,
    store,
    store_steps,
    sum_of,
    to_power,
    truncate,
)

UNIT = 32768  # Steps of a responsibility of one

STEP = np.float32(1.0 / UNIT)

EXACT_TOKENS = 512  # Tokens whose responsibilities add up exactly in float32: 2^24 steps

# Tokens of a topic in float32, and tokens updated together, of a document that has more than `EXACT_TOKENS`
WINDOW = EXACT_TOKENS // 2

# A little less than `UNIT`: rounding in float32 never makes the sum of a pair's steps exceed `UNIT`
NEARLY = np.float32(UNIT - 0.01)

AHEAD = 4  # Pairs ahead of the update whose rows are prefetched
CACHE_LINE = 16  # Numbers of 4 bytes in a cache line of most processors
FIELDS = 8  # Numbers of an active topic; see `DocumentWorkspace`

# Offsets of the numbers in a group of eight active topics
PLACES, COUNTS, PRIOR, INVERSE, RATIO, UNITS, BEFORE, WEIGHT = (LANES * field for field in range(FIELDS))

ZERO, HALF, ONE, TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)
MIN_PRIOR, MIN_TOTAL = np.float32(1e-12), np.float32(1e-37)

ROUNDING = np.float32(1e-5)  # Share of S_w below which a background weight is rounding error alone
MIN_INACTIVE_PRIOR = 1e-9  # Share of the prior below which the inactive topics of a document have no background


@kernel
def sweep_active(
    pairs: DocumentPairs,
    active: ActiveTopics,
    before: ActiveState,
    priors: Priors,
    inverse_temperatures: Float64Vector,
    running: RunningCounts,
    after: NewActiveState,
) -> None:
    """Update the responsibilities of a run of documents by the zeroth order; twin: `naive.active.sweep`.

    Shapes: `inverse_temperatures` (2,).
    """
    rows, topics, offsets, starts = running.rows, priors.topics.size, pairs.offsets, before.starts
    active_offsets, counts = active.offsets, before.counts
    background_before, background_after = before.background, after.background
    weighted, responsibilities, pair_counts = pairs.weights.size > 0, before.responsibilities, pairs.counts
    exact, document_prior = np.zeros(topics + LANES), np.zeros(topics + LANES, np.float32)
    recounted = DocumentCounts(exact, np.empty(topics + LANES, np.float32))
    cells = np.zeros((topics + LANES - 1) // LANES * LANES * FIELDS, dtype=np.float32)
    # True and False are constants, for each of which the compiler makes code of its own.
    places, steps = cells.view(np.int32), np.zeros(LANES, dtype=np.uint16)
    row_cells, long_changes, weight = rows.cells.reshape(-1), rows.long_changes.reshape(-1), rows.background_weight
    words, seeds = (rows.units, priors.words, weight, rows.background), (rows.seed_place, rows.seed_counts.reshape(-1))
    flat = FlatRows(topics, row_cells, *words, rows.long_place, long_changes, *seeds)
    all_prior, growth, tokens, windows = priors.topics.sum(), ZERO, ZERO, _windows(pairs, active_offsets, starts)
    share = ONE
    documents, window_offsets, is_long = windows.documents, windows.offsets, windows.long
    for window in range(documents.size):
        document, long = documents[window], is_long[window] and not weighted
        begin, size = active_offsets[document], active_offsets[document + 1] - active_offsets[document]
        first, last = window_offsets[window], window_offsets[window + 1]
        if first == offsets[document]:
            left = _begin_document((begin, size), all_prior, active, before, priors, running, cells, places)
            tokens, growth = np.float32(background_before[document]), np.float32(1.0 / max(left, 1e-9))
            if priors.design_place.size:
                share = _begin_own(document, (begin, size), left, active, before, priors, cells)
            if long:
                _begin_window(begin, size, before, cells, exact, document_prior)
        inverse_temperature, background = np.float32(inverse_temperatures[document % 2]), (tokens, growth, share)
        if starts[document + 1] + LANES <= responsibilities.size:
            work = DocumentWorkspace(places, cells, steps, inverse_temperature, True)
            tokens = _update_pairs((window, size), windows, pairs, background, before, after, work, flat)
        else:
            at_end = DocumentWorkspace(places, cells, steps, inverse_temperature, False)
            tokens = _update_pairs((window, size), windows, pairs, background, before, after, at_end, flat)
        if long:
            if pair_counts[first] > WINDOW:
                _gain_of_long_pair(pair_counts[first], windows.starts[window], size, before, after, exact)
            else:
                _add_gains(size, cells, exact)
            _fill_window(size, cells, exact, document_prior)
        if last < offsets[document + 1]:
            continue
        rest = float(tokens)
        if long:
            rest = background_before[document]
            for j in range(size):
                rest -= exact[j] - counts[begin + j]
        elif is_long[window]:
            at_end = DocumentWorkspace(places, cells, steps, inverse_temperature, False)
            rest = recount(document, size, pairs, after.starts, after.responsibilities, recounted, at_end)
        background_after[document] = max(rest, 0.0)
        _end_document((begin, size), (is_long[window], weighted), active, before, after, running, cells, exact)


@borrower
def _begin_document(
    span: tuple[int, int],
    all_prior: float,
    active: ActiveTopics,
    before: ActiveState,
    priors: Priors,
    running: RunningCounts,
    cells: Array,
    places: Array,
) -> float:
    """Fill the numbers of a document's active topics, a span of the list; return the prior of the others."""
    begin, size = span
    prior, totals, left = priors.topics, running.totals, all_prior
    for j in range(size):
        left -= prior[active.topics[begin + j]]
    for j in range((size + LANES - 1) // LANES * LANES):
        # Beyond the list, a place whose cache line is read anyway.
        at, k = place_of(j), active.topics[begin + (j if j < size else size - 1)]
        places[at + PLACES] = k
        cells[at + COUNTS] = np.float32(before.counts[begin + j]) if j < size else ZERO
        cells[at + PRIOR] = max(np.float32(prior[k]), MIN_PRIOR) if j < size else ZERO
        if before.pseudo.size and j < size:
            cells[at + PRIOR] += before.pseudo[begin + j]
        # With momentum, rows may have fewer tokens of a topic than its documents, which may take it below zero.
        cells[at + INVERSE] = np.float32(1.0 / max(totals[k], priors.words_total)) if j < size else ZERO
        cells[at + RATIO] = np.float32(running.ratio[k]) if j < size else ZERO
        cells[at + UNITS] = STEP if j < size else ZERO
    return left


@borrower
def _begin_own(
    document: int,
    span: tuple[int, int],
    left: float,
    active: ActiveTopics,
    before: ActiveState,
    priors: Priors,
    cells: Array,
) -> Number:
    """Fill a document's own a_dk of its active topics; return the sum over its inactive topics, divided by `left`."""
    (begin, size), prior, inactive = span, priors.design_priors[priors.design_place[document]], 0.0
    if size < prior.size:
        inactive = prior.sum()
    for j in range(size):
        a = prior[active.topics[begin + j]]
        inactive -= a
        cells[place_of(j) + PRIOR] = max(np.float32(a), MIN_PRIOR)
        if before.pseudo.size:
            cells[place_of(j) + PRIOR] += before.pseudo[begin + j]
    return np.float32(max(inactive, 0.0) / max(left, 1e-9))


@borrower
def _end_document(
    span: tuple[int, int],
    kind: tuple[bool, bool],
    active: ActiveTopics,
    before: ActiveState,
    after: NewActiveState,
    running: RunningCounts,
    cells: Array,
    exact: Array,
) -> None:
    """Fill a document's new counts, and change the totals; its kind is whether it is long, and weighted."""
    (begin, size), (long, weighted) = span, kind
    for j in range(size):
        topic, old = active.topics[begin + j], before.counts[begin + j]
        if long:
            running.totals[topic] += exact[j] - old
            after.counts[begin + j] = exact[j]
        else:
            count = cells[place_of(j) + COUNTS]
            if weighted:
                # Sums of weights are rounded.
                count = max(count, ZERO)
            running.totals[topic] += np.float32(count - np.float32(old))
            after.counts[begin + j] = count


class _Windows(NamedTuple):
    """Runs of pairs that are updated together: documents, or parts of those with more than `EXACT_TOKENS`."""

    documents: Array  # Document of each; int64 (windows,)
    offsets: Array  # First pair of each; int64 (windows + 1,)
    starts: Array  # Index of its first responsibility; int64 (windows,)
    long: Array  # Whether its document has more than `EXACT_TOKENS`; bool (windows,)


@helper
def _windows(pairs: DocumentPairs, lists: Array, starts: Array) -> _Windows:
    """Cut documents with more than `EXACT_TOKENS` into runs of at most `WINDOW` tokens, or of one pair with more."""
    offsets, counts, number = pairs.offsets, pairs.counts, 0
    documents = offsets.size - 1
    of_window, first_pair = np.empty(documents + counts.size, np.int64), np.empty(documents + counts.size + 1, np.int64)
    is_long = np.empty(documents, np.bool_)
    for document in range(documents):
        tokens, passed = np.int64(0), np.int64(0)
        for pair in range(offsets[document], offsets[document + 1]):
            tokens += counts[pair]
        is_long[document] = tokens > EXACT_TOKENS
        of_window[number], first_pair[number] = document, offsets[document]
        number += 1
        if is_long[document] and pairs.weights.size == 0:
            for pair in range(offsets[document], offsets[document + 1]):
                if passed > 0 and passed + counts[pair] > WINDOW:
                    of_window[number], first_pair[number], passed = document, pair, np.int64(0)
                    number += 1
                passed += counts[pair]
    first_pair[number] = offsets[documents]
    first_share, long = np.empty(number, np.int64), np.empty(number, np.bool_)
    for window in range(number):
        document = of_window[window]
        within = first_pair[window] - offsets[document]
        first_share[window] = starts[document] + within * (lists[document + 1] - lists[document])
        long[window] = is_long[document]
    return _Windows(of_window[:number].copy(), first_pair[: number + 1].copy(), first_share, long)


@kernel
def count_documents(
    pairs: DocumentPairs, active: ActiveTopics, before: ActiveState, every: int, after: NewActiveState
) -> None:
    """Fill the counts of documents' active topics from their responsibilities; twin: `naive.active.document_counts`."""
    places, steps, nothing = active.offsets, np.zeros(LANES, np.uint16), np.empty(0, np.float32)
    max_topics = 0
    for document in range(pairs.offsets.size - 1):
        max_topics = max(max_topics, places[document + 1] - places[document])
    counts = DocumentCounts(np.empty(max_topics), np.empty(max_topics + LANES, np.float32))
    inside = DocumentWorkspace(nothing.view(np.int32), nothing, steps, ONE, True)
    last = DocumentWorkspace(nothing.view(np.int32), nothing, steps, ONE, False)
    for document in range(pairs.offsets.size - 1):
        begin, size = places[document], places[document + 1] - places[document]
        if every == 0 and before.pseudo.size == 0 and not has_more_than_exact(document, pairs):
            after.background[document] = before.background[document]
            for j in range(size):
                after.counts[begin + j] = before.counts[begin + j]
            continue
        if before.starts[document + 1] + LANES <= before.responsibilities.size:
            rest = recount(document, size, pairs, before.starts, before.responsibilities, counts, inside)
        else:
            rest = recount(document, size, pairs, before.starts, before.responsibilities, counts, last)
        after.background[document] = rest
        for j in range(size):
            after.counts[begin + j] = counts.exact[j]


@borrower
def has_more_than_exact(document: int, pairs: DocumentPairs) -> bool:
    """Return whether a document has more tokens than float32 adds up exactly."""
    tokens = np.int64(0)
    for pair in range(pairs.offsets[document], pairs.offsets[document + 1]):
        tokens += pairs.counts[pair]
    return bool(tokens > EXACT_TOKENS)


@borrower
def recount(
    document: int,
    size: int,
    pairs: DocumentPairs,
    starts: Array,
    responsibilities: Array,
    counts: DocumentCounts,
    work: DocumentWorkspace,
) -> float:
    """Count a document's tokens by its active topics, exactly; return its background tokens."""
    at, rest, short, tokens = starts[document], 0.0, np.int64(0), np.int64(0)
    clear_counts(size, counts)
    for pair in range(pairs.offsets[document], pairs.offsets[document + 1]):
        count, weight = np.int64(pairs.counts[pair]), token_weight(pairs.weights, pair)
        tokens += count
        if pairs.weights.size or count > EXACT_TOKENS:
            rest += count * weight * add_long_pair(at, size, count * weight, responsibilities, counts)
        else:
            if short + count > EXACT_TOKENS:
                flush_counts(size, counts)
                short = np.int64(0)
            short += count
            lanes = spread_evenly(np.float32(count))
            for j in range(0, size, LANES):
                store(
                    counts.short, j, load(counts.short, j) + lanes * steps_at(responsibilities, at + j, size - j, work)
                )
        at += size
    flush_counts(size, counts)
    if pairs.weights.size:
        return rest
    held = 0.0
    for j in range(size):
        held += counts.exact[j]
    return tokens - held


@borrower
def clear_counts(size: int, counts: DocumentCounts) -> None:
    """Begin to count a document."""
    for j in range(size):
        counts.exact[j] = 0.0
    for j in range(size + LANES):
        counts.short[j] = ZERO


@borrower
def add_long_pair(at: int, size: int, tokens: float, responsibilities: Array, counts: DocumentCounts) -> float:
    """Add a pair to the exact counts one topic at a time; return the share of its background."""
    left = np.int64(UNIT)
    for j in range(size):
        steps = np.int64(responsibilities[at + j])
        left -= steps
        counts.exact[j] += tokens / UNIT * steps
    return left / UNIT


@borrower
def flush_counts(size: int, counts: DocumentCounts) -> None:
    """Add the tokens that are not yet among the exact counts to them."""
    for j in range(size):
        counts.exact[j] += float(counts.short[j]) / UNIT
        counts.short[j] = ZERO


@helper
def rounding_of(weights: Array, unit: Number) -> Number:
    """Return what is added before a count in units of a row is cut: whole steps need no rounding."""
    return HALF if weights.size or unit != STEP else ZERO


@helper
def place_of(j: int) -> int:
    """Return the index of the numbers of a document's active topic number j, counted from 0."""
    return j % LANES + j // LANES * LANES * FIELDS


@borrower
def _update_pairs(
    place: tuple[int, int],
    windows: _Windows,
    pairs: DocumentPairs,
    background: tuple[Number, Number, Number],
    before: ActiveState,
    after: NewActiveState,
    work: DocumentWorkspace,
    rows: FlatRows,
) -> Number:
    """Update the pairs of a window over the active topics of its document, eight at a time.

    The place is the window's number and the number of its document's topics. The document's background is three
    numbers: its tokens, 1 / a_rest, and by how much its own a_rest differs, a_d,rest / a_rest. Return its tokens after
    the update.
    """
    (window, size), (tokens, growth, share) = place, background
    at = windows.starts[window]
    for pair in range(windows.offsets[window], windows.offsets[window + 1]):
        ahead = min(pair + AHEAD, pairs.position.size - 1)
        _prefetch_row(np.int64(pairs.position[ahead]) * rows.topics, size, work, rows)
        row, count, weight = np.int64(pairs.position[pair]), np.float32(pairs.counts[pair]), ONE
        if pairs.weights.size:
            weight = pairs.weights[pair]
            _weigh_steps(size, weight, work)
        total, known, held = _weigh(row, at, size, before.responsibilities, work, rows)
        if rows.seed_place.size and rows.seed_place[row] >= 0:
            total, known = _add_seeds(row, size, total, known, work.cells, work.places, rows)
        background_total = ZERO
        if size < rows.topics:
            more = share + max(tokens - weight + held, ZERO) * growth
            background_total = _background_weight(np.float32(rows.background_weight[row]), known, more)
        if work.inverse_temperature != ONE:
            total, background_total = _temper(size, rows.topics, total, background_total, work)
        scale, unit = NEARLY / max(total + background_total, MIN_TOTAL), rows.units[row]
        half = rounding_of(pairs.weights, unit)
        now, known = _assign(row, at, size, (scale, count, count / unit, half), after.responsibilities, work, rows)
        change = held - now
        rows.background_weight[row] += float(known)
        tokens += count * change
        rows.background_change[row] += float(count) * float(change)
        at += size
    return tokens


@borrower
def _begin_window(begin: int, size: int, before: ActiveState, cells: Array, exact: Array, prior: Array) -> None:
    """Fill the exact counts of a long document's topics and their priors, and the counts of its first window."""
    for j in range((size + LANES - 1) // LANES * LANES):
        exact[j] = before.counts[begin + j] if j < size else 0.0
        prior[j] = cells[place_of(j) + PRIOR]
    _fill_window(size, cells, exact, prior)


@borrower
def _fill_window(size: int, cells: Array, exact: Array, prior: Array) -> None:
    """Fill the counts of a long document's topics up to the window, and put what exceeds it into the prior."""
    for group in range((size + LANES - 1) // LANES):
        count_place, prior_place, j = group * LANES * FIELDS + COUNTS, group * LANES * FIELDS + PRIOR, group * LANES
        for lane in range(LANES):
            inside = min(exact[j + lane], float(WINDOW))
            cells[count_place + lane] = np.float32(inside)
            cells[prior_place + lane] = np.float32(prior[j + lane] + (exact[j + lane] - inside))


@borrower
def _add_gains(size: int, cells: Array, exact: Array) -> None:
    """Add to the exact counts of a long document what its topics have gained since they were filled."""
    for group in range((size + LANES - 1) // LANES):
        count_place, j = group * LANES * FIELDS + COUNTS, group * LANES
        for lane in range(LANES):
            exact[j + lane] += cells[count_place + lane] - min(exact[j + lane], float(WINDOW))


@borrower
def _gain_of_long_pair(
    tokens: int, at: int, size: int, before: ActiveState, after: NewActiveState, exact: Array
) -> None:
    """Add to the exact counts what a pair of more tokens than the window gives to its topics."""
    for j in range(size):
        steps = np.int64(after.responsibilities[at + j]) - np.int64(before.responsibilities[at + j])
        exact[j] += np.int64(tokens) * steps / UNIT


@borrower
def _weigh_steps(size: int, weight: Number, work: DocumentWorkspace) -> None:
    """Set the value of a responsibility's step for a pair whose tokens have a weight."""
    step, complete = spread_evenly(STEP * weight), size // LANES
    for group in range(complete):
        store(work.cells, group * LANES * FIELDS + UNITS, step)
    for j in range(complete * LANES, size):
        work.cells[place_of(j) + UNITS] = STEP * weight


@borrower
def _prefetch_row(first: int, size: int, work: DocumentWorkspace, rows: FlatRows) -> None:
    """Prefetch a row: its cache lines, or where these are more, its cells of the active topics."""
    if size * CACHE_LINE < rows.topics:
        for group in range((size + LANES - 1) // LANES):
            for lane in range(LANES):
                place = np.int64(work.places[group * LANES * FIELDS + PLACES + lane])
                prefetch(rows.cells, first + place)
    else:
        for k in range(0, rows.topics, CACHE_LINE):
            prefetch(rows.cells, first + k)


@borrower
def _weigh(
    row: int, at: int, size: int, responsibilities: Array, work: DocumentWorkspace, rows: FlatRows
) -> tuple[Number, Number, Number]:
    """Fill a pair's responsibilities before, and its weights.

    Return the sums of the weights, of a_k phi_kw, and of the responsibilities.
    """
    first, total = row * rows.topics, spread_evenly(ZERO)
    known, held, b = total, total, spread_evenly(max(np.float32(rows.word_prior[row]), MIN_PRIOR))
    unit = spread_evenly(rows.units[row])
    groups, complete = (size + LANES - 1) // LANES, size // LANES if size == rows.topics else 0
    for group in range(complete):
        j = group * LANES
        q = steps_at(responsibilities, at + j, size - j, work)
        cell = load_counts(rows.cells, first + j) * unit
        weight, more, q = _weigh_group(j * FIELDS, q, cell, b, work.cells)
        total, known, held = total + weight, known + more, held + q
    for group in range(complete, groups):
        j = group * LANES
        q = steps_at(responsibilities, at + j, size - j, work)
        cell = gather_counts(rows.cells, first, work.cells, j * FIELDS + PLACES) * unit
        weight, more, q = _weigh_group(j * FIELDS, q, cell, b, work.cells)
        total, known, held = total + weight, known + more, held + q
    return sum_of(total), sum_of(known), sum_of(held)


@borrower
def steps_at(responsibilities: Array, at: int, size: int, work: DocumentWorkspace) -> Lanes:
    """Return eight steps from an index on; beyond `size` they belong to the next pair, or are arbitrary."""
    if work.inside:
        return load_steps(responsibilities, at)
    for lane in range(min(size, LANES)):
        work.steps[lane] = responsibilities[at + lane]
    return load_steps(work.steps, 0)


@borrower
def _weigh_group(at: int, steps: Lanes, cell: Lanes, b: Lanes, cells: Array) -> tuple[Lanes, Lanes, Lanes]:
    """Fill the weights of eight topics; return these, a_k phi_kw, and the responsibilities before.

    Excluding the own copy from N = B + E[n_k] takes no division: with y = q/N, 1 / (N - q) is (1 + y) (1 + y^2) / N to
    within y^4.
    """
    zero, one = spread_evenly(ZERO), spread_evenly(ONE)
    # Steps beyond the list are multiplied by zero.
    q, inverse = steps * load(cells, at + UNITS), load(cells, at + INVERSE)
    y = q * inverse
    weight = larger(load(cells, at + COUNTS) - q, zero) + load(cells, at + PRIOR)
    weight = weight * (larger(cell - q, zero) + b) * inverse * ((one + y) * (one + y * y))
    store(cells, at + BEFORE, q)
    store(cells, at + WEIGHT, weight)
    return weight, load(cells, at + RATIO) * (cell + b), q


@borrower
def _add_seeds(
    row: int, size: int, total: Number, known: Number, cells: Array, places: Array, rows: FlatRows
) -> tuple[Number, Number]:
    """Weigh the active topics of which a word is a seed with their pseudo-counts; return the sums of `_weigh`."""
    seeds, b = rows.seed_place[row] * rows.topics, max(np.float32(rows.word_prior[row]), MIN_PRIOR)
    for j in range(size):
        at = place_of(j)
        k = np.int64(places[at + PLACES])
        seed = np.float32(rows.seed_counts[seeds + k])
        if seed > ZERO:
            q, inverse = cells[at + BEFORE], cells[at + INVERSE]
            y, cell = q * inverse, np.float32(rows.cells[row * rows.topics + k]) * rows.units[row]
            weight = (max(cells[at + COUNTS] - q, ZERO) + cells[at + PRIOR]) * (max(cell + seed - q, ZERO) + b)
            weight = weight * inverse * ((ONE + y) * (ONE + y * y))
            total += weight - cells[at + WEIGHT]
            known += cells[at + RATIO] * seed
            cells[at + WEIGHT] = weight
    return total, known


@helper
def _background_weight(total: Number, known: Number, more: Number) -> Number:
    """Return the weight of the background: S_w without the active topics, times 1 + E'[n_d,rest] / a_rest.

    With priors of its own, the document's background weighs (a_d,rest + E'[n_d,rest]) / a_rest.
    """
    weight = total - known
    if weight <= max(total, ZERO) * ROUNDING:
        weight = ZERO
    return weight * more


@borrower
def _temper(
    size: int, topics: int, total: Number, background_total: Number, work: DocumentWorkspace
) -> tuple[Number, Number]:
    """Raise a pair's weights to the inverse temperature, up to a factor; return their sum and the background's weight.

    Inactive topics are taken as equal. A square is computed as such, of weights scaled to about 1.
    """
    inactive, tempered = np.float32(topics - size), spread_evenly(ZERO)
    inactive_weight = background_total / max(inactive, ONE)
    scale = spread_evenly(np.float32(size + 1) / max(total + inactive_weight, MIN_TOTAL))
    for group in range((size + LANES - 1) // LANES):
        at = group * LANES * FIELDS + WEIGHT
        if work.inverse_temperature == TWO:
            weight = load(work.cells, at) * scale
            weight = weight * weight
        else:
            weight = to_power(load(work.cells, at), work.inverse_temperature)
        store(work.cells, at, weight)
        tempered = tempered + weight
    equal = spread_evenly(inactive_weight) * scale
    equal = (
        equal * equal
        if work.inverse_temperature == TWO
        else to_power(spread_evenly(inactive_weight), work.inverse_temperature)
    )
    return sum_of(tempered), first_of(equal) * inactive


@borrower
def _assign(
    row: int,
    at: int,
    size: int,
    factors: tuple[Number, Number, Number, Number],
    responsibilities: Array,
    work: DocumentWorkspace,
    rows: FlatRows,
) -> tuple[Number, Number]:
    """Fill a pair's responsibilities, and change counts by them; return their sum and the change of S_w.

    Its factors are of weights to responsibilities, tokens, the same in units of the row, and what rounds these.
    """
    first, held = row * rows.topics, spread_evenly(ZERO)
    scale, count, units, half = (
        spread_evenly(factors[0]),
        spread_evenly(factors[1]),
        spread_evenly(factors[2]),
        spread_evenly(factors[3]),
    )
    known = held
    groups, complete = (size + LANES - 1) // LANES, size // LANES if size == rows.topics else 0
    for group in range(complete):
        j = group * LANES
        steps = truncate(load(work.cells, j * FIELDS + WEIGHT) * scale)
        _write_steps(responsibilities, at + j, size - j, steps, work)
        before, q, more = _assign_group(j * FIELDS, steps, count, work.cells)
        replace_counts(rows.cells, first + j, before * units + half, q * units + half)
        held, known = held + q, known + more
    for group in range(complete, groups):
        j = group * LANES
        steps = truncate(load(work.cells, j * FIELDS + WEIGHT) * scale)
        _write_steps(responsibilities, at + j, size - j, steps, work)
        before, q, more = _assign_group(j * FIELDS, steps, count, work.cells)
        scatter_counts(rows.cells, first, work.cells, j * FIELDS + PLACES, before * units + half, q * units + half)
        held, known = held + q, known + more
    if rows.long_place[row] >= 0:
        _change_exactly(row, size, (factors[0], factors[1]), work, rows)
    return sum_of(held), sum_of(known)


@borrower
def _change_exactly(
    row: int, size: int, factors: tuple[Number, Number], work: DocumentWorkspace, rows: FlatRows
) -> None:
    """Add the changes of a pair to its word's changes, in tokens; its factors are the first two of `_assign`."""
    first = np.int64(rows.long_place[row]) * rows.topics
    for j in range(size):
        at = place_of(j)
        q = np.float32(np.int32(work.cells[at + WEIGHT] * factors[0])) * work.cells[at + UNITS]
        change = float(q - work.cells[at + BEFORE])
        rows.long_changes[first + work.places[at + PLACES]] += float(factors[1]) * change


@borrower
def _write_steps(responsibilities: Array, at: int, size: int, steps: Lanes, work: DocumentWorkspace) -> None:
    """Write eight steps from an index on; the next pair overwrites those beyond `size`."""
    if work.inside:
        store_steps(responsibilities, at, steps)
    else:
        store_steps(work.steps, 0, steps)
        for lane in range(min(size, LANES)):
            responsibilities[at + lane] = work.steps[lane]


@borrower
def _assign_group(at: int, steps: Lanes, count: Lanes, cells: Array) -> tuple[Lanes, Lanes, Lanes]:
    """Change the document's counts of eight topics.

    Return their responsibilities before and after, and the change of a_k phi_kw.
    """
    q, before = steps * load(cells, at + UNITS), load(cells, at + BEFORE)
    change = count * (q - before)
    store(cells, at + COUNTS, load(cells, at + COUNTS) + change)
    return before, q, change * load(cells, at + RATIO)
