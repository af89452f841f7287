"""Gibbs sampling of the parents of nodes, each moving with its subtree and all documents that pass it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.jit import Array, DocumentPairs, Number, UInt64Vector, borrower, helper, kernel
from collapsium.workers.kernels.random import uniform
from collapsium.workers.kernels.trees.gibbs_documents import draw_place, list_nodes, log_rising
from collapsium.workers.kernels.trees.paths import FREE, Assignments, SampledTree, TreePriors


class Subtree(NamedTuple):
    """A node, with what moves along."""

    # Its slot and level
    node: int
    level: int
    members: Array  # Documents that pass it, ascending; (n,)
    path: Array  # Path of the first of them; (levels,)


class TokenLevels(NamedTuple):
    """Levels of tokens, shape (tokens,), and each document's first token, shape (documents + 1,)."""

    begins: Array
    level: Array


class SubtreeWords(NamedTuple):
    """Words of a subtree's documents at the levels between the root and the subtree."""

    counts: Array  # Tokens by word and level; in column 0, 1 of the words that have any; (words, levels)
    words: Array  # The words that have any, as many as `_tally_words` returns; (words,)
    tokens: Array  # Tokens by level; (levels,)


class PlaceWeights(NamedTuple):
    """Working space for the places of a subtree; see `Workspace` of `records`."""

    nodes: Array
    starts: Array
    score: Array
    weight: Array
    new_score: Array


@helper
def _first_tokens(offsets: Array, counts: Array) -> Number:
    """Return each document's first token, and the number of tokens; shape (documents + 1,)."""
    begins, token = np.zeros(offsets.size, dtype=np.int64), 0
    for document in range(offsets.size - 1):
        begins[document] = token
        for pair in range(offsets[document], offsets[document + 1]):
            token += counts[pair]
    begins[offsets.size - 1] = token
    return begins


@borrower
def _tally_words(subtree: Subtree, pairs: DocumentPairs, tokens: TokenLevels, words: SubtreeWords) -> int:
    """Tally the words of a subtree's documents at the levels above it; return how many words these are."""
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    begins, token_level, members = tokens.begins, tokens.level, subtree.members
    tally, touched, level_tokens = words.counts, words.words, words.tokens
    filled = 0
    level_tokens[:] = 0
    for entry in range(members.size):
        document = members[entry]
        token = begins[document]
        for pair in range(offsets[document], offsets[document + 1]):
            word = position[pair]
            for _ in range(counts[pair]):
                at = token_level[token]
                token += 1
                if 0 < at < subtree.level:
                    if tally[word, 0] == 0:
                        tally[word, 0] = 1
                        touched[filled] = word
                        filled += 1
                    tally[word, at] += 1
                    level_tokens[at] += 1
    return filled


@borrower
def _swap_log_ratio(subtree: Subtree, tokens: TokenLevels, priors: TreePriors, tree: SampledTree) -> Number:
    """Return the log ratio of probabilities if a node and its only child exchange their words, to as it is."""
    node, lower, upper = subtree.node, subtree.level, subtree.level - 1
    members, up, begins, token_level = subtree.members, subtree.path[upper], tokens.begins, tokens.level
    alpha, eta, total, totals, row = priors.alpha, priors.eta, priors.eta_total, tree.totals, tree.row
    before = after = 0.0
    for word in range(row.shape[0]):
        if row[word, up] != row[word, node]:
            before += log_rising(eta[upper], row[word, up]) + log_rising(eta[lower], row[word, node])
            after += log_rising(eta[upper], row[word, node]) + log_rising(eta[lower], row[word, up])
    before -= log_rising(total[upper], totals[up]) + log_rising(total[lower], totals[node])
    after -= log_rising(total[upper], totals[node]) + log_rising(total[lower], totals[up])
    for entry in range(members.size):
        document, above, below = members[entry], 0, 0
        for token in range(begins[document], begins[document + 1]):
            above += token_level[token] == upper
            below += token_level[token] == lower
        before += log_rising(alpha[upper], above) + log_rising(alpha[lower], below)
        after += log_rising(alpha[upper], below) + log_rising(alpha[lower], above)
    return after - before


@borrower
def _swap_with_parent(subtree: Subtree, tokens: TokenLevels, tree: SampledTree) -> None:
    """Let a node and its only child exchange their words."""
    node, lower, upper = subtree.node, subtree.level, subtree.level - 1
    members, up, begins, token_level = subtree.members, subtree.path[upper], tokens.begins, tokens.level
    totals, row = tree.totals, tree.row
    for word in range(row.shape[0]):
        row[word, up], row[word, node] = row[word, node], row[word, up]
    totals[up], totals[node] = totals[node], totals[up]
    for entry in range(members.size):
        document = members[entry]
        for token in range(begins[document], begins[document + 1]):
            if token_level[token] == lower:
                token_level[token] = upper
            elif token_level[token] == upper:
                token_level[token] = lower


@borrower
def _move_words(path: Array, level: int, tree: SampledTree, words: SubtreeWords, filled: int, sign: int) -> None:
    """Add the words above a subtree to the nodes of a path, or take them away."""
    row, totals = tree.row, tree.totals
    tally, touched, level_tokens = words.counts, words.words, words.tokens
    for at in range(1, level):
        node = path[at]
        for entry in range(filled):
            row[touched[entry], node] += sign * tally[touched[entry], at]
        totals[node] += sign * level_tokens[at]


@borrower
def _detach(subtree: Subtree, tree: SampledTree) -> None:
    """Take the subtree's documents, without their words, from the nodes above it; remove those without documents."""
    parent, level, documents, slots, path = tree.parent, tree.level, tree.documents, tree.slots, subtree.path
    reusable, free, free_count, count = slots.reusable, slots.free, slots.free_count, subtree.members.size
    documents[0] -= count
    for at in range(subtree.level - 1, 0, -1):
        node = path[at]
        documents[node] -= count
        if documents[node] == 0:
            parent[node], level[node] = FREE, -1
            if reusable[node]:
                free[free_count[0]] = node
                free_count[0] += 1


@borrower
def _weigh_places(
    subtree: Subtree, tree: SampledTree, priors: TreePriors, words: SubtreeWords, filled: int, places: PlaceWeights
) -> None:
    """Fill the log weight of each place where a subtree may hang, below a node or below new nodes under it."""
    parent, documents, totals, row = tree.parent, tree.documents, tree.totals, tree.row
    eta, total, gamma, can_grow = priors.eta, priors.eta_total, priors.gamma, tree.slots.can_grow
    tally, touched, level_tokens = words.counts, words.words, words.tokens
    nodes, starts, score, weight = places.nodes, places.starts, places.score, places.weight
    new_score, count, level = places.new_score, subtree.members.size, subtree.level
    seats = math.log(gamma) + math.lgamma(count)
    new_score[level], score[0] = 0.0, 0.0
    for at in range(level - 1, 0, -1):
        new = seats - log_rising(gamma, count) - log_rising(total[at], level_tokens[at])
        for entry in range(filled):
            new += log_rising(eta[at], tally[touched[entry], at])
        new_score[at] = new_score[at + 1] + new
    for at in range(level):
        for place in range(starts[at], starts[at + 1]):
            node = nodes[place]
            if at:
                above = parent[node]
                value = score[above] + log_rising(documents[node], count)
                value -= log_rising(gamma + documents[above], count)
                value -= log_rising(total[at] + totals[node], level_tokens[at])
                for entry in range(filled):
                    word = touched[entry]
                    value += log_rising(row[word, node] + eta[at], tally[word, at])
                score[node] = value
            weight[place] = score[node] + seats - log_rising(gamma + documents[node], count)
            if at < level - 1:
                weight[place] = weight[place] + new_score[at + 1] if can_grow else -np.inf


@borrower
def _attach(subtree: Subtree, up: int, tree: SampledTree, path: Array) -> None:
    """Hang a subtree, with its documents, below a node or below new nodes under that node."""
    parent, level, documents, slots = tree.parent, tree.level, tree.documents, tree.slots
    free, free_count, members = slots.free, slots.free_count, subtree.members
    for at in range(level[up] + 1, subtree.level):
        free_count[0] -= 1
        new = free[free_count[0]]
        parent[new], level[new], documents[new] = up, at, 0
        up = new
    parent[subtree.node] = up
    for at in range(subtree.level - 1, -1, -1):
        documents[up] += members.size
        for entry in range(members.size):
            path[members[entry], at] = up
        up = parent[up]


@kernel
def move_subtrees(
    pairs: DocumentPairs,
    key: UInt64Vector,
    priors: TreePriors,
    shared: int,
    tree: SampledTree,
    assignments: Assignments,
) -> None:
    """Draw the parent of each node from level 2 on, given all else; twin: `naive.gibbs_tree.move_subtrees`.

    All documents that pass a node take their paths down to it together, and their words of the levels between it and
    the root along; the paths below it stay. With n documents, the prior of joining a node of m where the one above has
    M is (m)^(n) / (gamma + M)^(n), in rising factors, and a new one's gamma G(n) / (gamma + M)^(n). Before, with
    probability a half, an only child is proposed to exchange all words with the node above, by Metropolis' rule.

    Documents of other shards cannot be taken along: where there are any, the nodes that they share stay where they are,
    as does a node for which too few slots are free. With S slots, random numbers i, S + i and 2 S + i are slot i's.
    """
    path, documents, row, reusable = assignments.path, tree.documents, tree.row, tree.slots.reusable
    can_grow, free_count, depth, slots = tree.slots.can_grow, tree.slots.free_count, priors.eta.size, tree.level.size
    tokens = TokenLevels(_first_tokens(pairs.offsets, pairs.counts), assignments.token_level)
    tally, touched = np.zeros((row.shape[0], depth), dtype=np.int64), np.zeros(row.shape[0], dtype=np.int64)
    words = SubtreeWords(tally, touched, np.zeros(depth, dtype=np.int64))
    nodes, starts = np.zeros(slots, dtype=np.int64), np.zeros(depth + 1, dtype=np.int64)
    places = PlaceWeights(nodes, starts, np.zeros(slots), np.zeros(slots), np.zeros(depth + 1))
    for level in range(2, depth):
        inside = np.flatnonzero(path[:, 0] >= 0)
        order = inside[np.argsort(path[inside, level], kind="mergesort")]
        first = 0
        while first < order.size:
            node, last = path[order[first], level], first + 1
            while last < order.size and path[order[last], level] == node:
                last += 1
            count, current_path = last - first, path[order[first]].copy()
            subtree = Subtree(node, level, order[first:last], current_path)
            alone = False
            for at in range(1, level):
                alone = alone or documents[current_path[at]] == count
            movable = documents[node] == count and (reusable[node] or not shared)
            up = current_path[level - 1]
            only_child = movable and documents[up] == count and (reusable[up] or not shared)
            if only_child and uniform(key, slots + node) < 0.5:
                log_ratio = _swap_log_ratio(subtree, tokens, priors, tree)
                if math.log(1.0 - uniform(key, 2 * slots + node)) < log_ratio:
                    _swap_with_parent(subtree, tokens, tree)
            if movable and (not can_grow or free_count[0] >= level - 1) and (can_grow or not alone):
                filled = _tally_words(subtree, pairs, tokens, words)
                _move_words(current_path, level, tree, words, filled, -1)
                _detach(subtree, tree)
                list_nodes(tree.level, nodes, starts)
                _weigh_places(subtree, tree, priors, words, filled, places)
                place = draw_place(places.weight, starts[level], uniform(key, node))
                _attach(subtree, nodes[place], tree, path)
                _move_words(path[subtree.members[0]], level, tree, words, filled, 1)
                for entry in range(filled):
                    tally[touched[entry], :] = 0
            first = last
