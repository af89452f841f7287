"""Mean-field updates of documents over the paths of a tree, sums that score moves, and predictions of paths.

Paths have levels of their own, or paths and levels are apart, as in Wang and Blei (2009).

The probability of a word under a path is a sum over the path's levels, so a child's is its parent's plus one
more product: shared ancestors are summed once. Nodes are ordered level by level, parents first; each is an end too (see
`collapsium.workers.families.ncrp.tree`), where the levels that a path has outside the tree add the prior's probability
of a word.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.jit import (
    Array,
    DocumentPairs,
    Float32Matrix,
    Float32Vector,
    Float64Matrix,
    Float64Vector,
    Int32Vector,
    Int64Matrix,
    Int64Vector,
    OutFloat32Matrix,
    OutFloat64Matrix,
    OutFloat64Vector,
    OutInt32Matrix,
    OutInt64Vector,
    OutUInt8Vector,
    borrower,
    helper,
    kernel,
)
from collapsium.workers.kernels.special import digamma, power


class TreeTopics(NamedTuple):
    """The topics of a tree's nodes over the words at hand."""

    # Index of each node's parent, -1 of the root, and its level; (nodes,)
    parent: Int64Vector
    level: Int64Vector
    word_node: Float64Matrix  # Weight or log weight of each word at each node; see the kernel; (words, nodes)
    outside: Float64Vector  # The same of a word at nodes outside the tree, by level; (depth,)


class DocumentPrior(NamedTuple):
    """Prior of a document's path and of its level proportions."""

    end_log: Float64Vector  # Log prior mass of each end; (nodes,)
    alpha: Float64Vector  # Dirichlet parameters of the level proportions; (depth,)


class StoppingRule(NamedTuple):
    """Limits of the updates of a document's local state."""

    passes: int  # Maximal passes over a document
    tolerance: float  # Expected tokens that change their level in a pass below which there is no further pass


class TreeStatistics(NamedTuple):
    """Sums over the documents of a shard."""

    word_node: OutFloat64Matrix  # Filled with the expected counts; (words, nodes)
    ends: OutFloat64Vector  # Increased by q(c) at each end; (nodes,)
    log_theta: OutFloat64Vector  # Increased by E[log theta] of the documents that have tokens; (depth,)
    bound: OutFloat64Vector  # Increased by the documents' part of the evidence lower bound; see the kernel; (1,)


class LargestEnds(NamedTuple):
    """The most probable ends of each document."""

    # Filled with the ends of largest q(c), and q(c); -1 and 0 where there are no more; (documents, most)
    ends: OutInt32Matrix
    masses: OutFloat32Matrix
    min_share: float  # Least q(c) of an end that is stored, behind the largest


class StoredEnds(NamedTuple):
    """The most probable ends of each document, as a local state has them."""

    offsets: Int64Vector  # Index of each document's first end; the last is the number of ends; (documents + 1,)
    # Index of the end's node, and its q(c); normalised per document where they are used; (ends,)
    ends: Int32Vector
    masses: Float32Vector


FREE = -2  # parent of a free slot; the root's is -1


class TreePriors(NamedTuple):
    """Hyperparameters of a tree."""

    # Dirichlet parameters of the levels in a document, and of each word at the nodes of a level; (levels,)
    alpha: Float64Vector
    eta: Float64Vector
    eta_total: Float64Vector  # W eta; (levels,)
    gamma: float  # Concentration of the nested Chinese restaurant process


class FreeSlots(NamedTuple):
    """Slots that new nodes take."""

    can_grow: int  # Whether there may be new nodes. If not, a document that has nodes to itself stays where it is.
    reusable: Int64Vector  # Not 0 for slots that become free again when no document passes them; (slots,)
    free: OutInt64Vector  # Free slots, of which the last is taken next; changed; (slots,)
    free_count: OutInt64Vector  # Number of free slots; changed; (1,)


class SampledTree(NamedTuple):
    """A tree and its counts, which a sweep changes."""

    # -1 and 0 of the root; -2 and -1 of free slots; (slots,)
    parent: OutInt64Vector
    level: OutInt64Vector
    # Documents that pass each node, and its tokens; (slots,)
    documents: OutInt64Vector
    totals: OutInt64Vector
    row: OutInt32Matrix  # Tokens of each word at each node; (rows, slots)
    slots: FreeSlots  # Slots that new nodes take


class Assignments(NamedTuple):
    """Paths of documents and levels of tokens, which a sweep changes."""

    path: OutInt32Matrix  # c; -1 of a document outside the tree; (documents, levels)
    token_level: OutUInt8Vector  # z of each token; the tokens of a pair are neighbours; (tokens,)


class SweepOptions(NamedTuple):
    """Options of one sweep."""

    separate: int  # Whether a document joins the tree on a path of its own
    iteration: int  # Number of the sweep, by which documents take turns in path proposals


class CandidatePaths(NamedTuple):
    """The full paths of a tree."""

    nodes: Int64Matrix  # Nodes of each path; there is one path at least; (paths, levels)
    log_prior: Float64Vector  # log p(c); (paths,)
    phi: Float64Matrix  # Probabilities of words; (rows, nodes)


class TreeDocument(NamedTuple):
    """A document of a shard."""

    number: int  # Its number in the shard
    # Its pairs are `first` to `last` - 1
    first: int
    last: int
    token: int  # Its first token
    # Row and count of each pair of the shard; (pairs,)
    position: Array
    counts: Array


class DocumentState(NamedTuple):
    """Path and levels of a document."""

    path: Array  # Its nodes; (levels,)
    pair_level: Array  # Tokens of each pair at each level; (pairs of the document or more, levels)
    level_tokens: Array  # Its tokens at each level; (levels,)
    token_level: Array  # Levels of all tokens of the shard; (tokens,)


class Workspace(NamedTuple):
    """Working space of a sweep.

    A document's choices are places in a list of all nodes: the path to a leaf, or all paths that leave the tree below
    an inner node.
    """

    # Nodes level by level, and where each level starts; (slots,)
    nodes: Array
    starts: Array
    # By node: log probability of the words and path down to it. By place: mixture weight down to it.; (slots,)
    score: Array
    weight: Array  # By place: log weight of a choice, or what counts of its node are multiplied by; (slots,)
    # By place: product of factors whose logarithm is pending; log probability of the document by its path's mixture;
    # (slots,)
    product: Array
    log_mixture: Array
    new_score: Array  # Log probability of the words of each level and those below at new nodes; (levels + 1,)
    level_weight: Array  # Weights of a token's levels; (levels,)
    saved_levels: Array  # Levels before a proposal; (tokens of the longest document,)
    # Place of the parent of each place's node, and place of each node; (slots,)
    parent_place: Array
    place_of: Array


MIN_SHARE = 2.0**-60  # share of an end below which it changes no sum in double precision
MAX_LOG_PRODUCT = 600.0  # nats that a product of probabilities may be away from one
MIN_PROBABILITY = 1e-145  # of a word at a node, and of a level: products of the two still have an inverse


class LevelWeights(NamedTuple):
    """Probabilities of a word outside of the nodes of a document's paths."""

    theta: Array  # exp(E[log theta]); (depth,)
    outside: Array  # Probability of a word at nodes outside the tree, by level; (depth,)
    remainder: Array  # Probability of a word at the levels below each, outside the tree; (depth,)


@helper
def expected_log_theta(gamma: Array, log_theta: Array) -> None:
    """Fill E[log theta] of theta ~ Dir(gamma)."""
    total = 0.0
    for level in range(gamma.size):
        total += gamma[level]
    total = digamma(total)
    for level in range(gamma.size):
        log_theta[level] = digamma(gamma[level]) - total


@helper
def log_beta(gamma: Array) -> float:
    """Return log prod G(gamma) - log G(sum gamma)."""
    total, value = 0.0, 0.0
    for level in range(gamma.size):
        total += gamma[level]
        value += math.lgamma(gamma[level])
    return value - math.lgamma(total)


@helper
def add_log_theta(gamma: Array, logs: Array, has_tokens: bool, log_theta: Array) -> None:
    """Add E[log theta] of a document that has tokens to a sum."""
    expected_log_theta(gamma, logs)
    if has_tokens:
        for level in range(gamma.size):
            log_theta[level] += logs[level]


@helper
def softmax(score: Array, q: Array) -> float:
    """Fill q with softmax(score), negligible shares with zero; return log sum exp(score)."""
    top, total, retained = score.max(), 0.0, 0.0
    for end in range(score.size):
        q[end] = math.exp(score[end] - top)
    for end in range(score.size):
        total += q[end]
    for end in range(score.size):
        q[end] = q[end] if q[end] > MIN_SHARE * total else 0.0
    for end in range(score.size):
        retained += q[end]
    scale = 1.0 / retained
    for end in range(score.size):
        q[end] *= scale
    return float(top) + math.log(total)


@helper
def keep_largest(q: Array, min_share: float, ends: Array, masses: Array) -> None:
    """Fill the ends of a document with the largest q and others of at least a share; -1 where there are no more."""
    last_mass = math.inf
    last_end = -1
    for place in range(ends.size):
        least = min_share if place > 0 else 0.0  # none may have the share where there are many
        mass, largest = least, -1
        for end in range(q.size):
            behind = q[end] < last_mass or (q[end] == last_mass and end > last_end)
            if behind and q[end] >= least and (largest < 0 or q[end] > mass):
                mass, largest = q[end], end
        ends[place] = largest
        masses[place] = mass if largest >= 0 else 0.0
        if largest < 0:
            for rest in range(place + 1, ends.size):
                ends[rest], masses[rest] = -1, 0.0
            return
        last_mass, last_end = mass, largest


@borrower
def _fill_level_weights(gamma: Array, logs: Array, levels: LevelWeights) -> None:
    """Fill E[log theta], its exponential, and what the levels below each add outside the tree."""
    theta, outside, remainder = levels.theta, levels.outside, levels.remainder
    expected_log_theta(gamma, logs)
    depth = gamma.size
    for k in range(depth):
        logs[k] = max(logs[k], math.log(MIN_PROBABILITY))
        theta[k] = math.exp(logs[k])
    remainder[depth - 1] = 0.0
    for k in range(depth - 1, 0, -1):
        remainder[k - 1] = remainder[k] + theta[k] * outside[k]


@helper
def _word_probabilities(
    row: Array, parent: Array, level: Array, theta: Array, remainder: Array, probability: Array
) -> float:
    """Fill the probabilities of a word under each end, as multiples of that at the root's end, which is returned."""
    probability[0] = theta[0] * row[0]
    for node in range(1, parent.size):
        probability[node] = probability[parent[node]] + theta[level[node]] * row[node]
    base = float(probability[0] + remainder[0])
    scale = 1.0 / base
    for node in range(parent.size):
        probability[node] = (probability[node] + remainder[level[node]]) * scale
    return base


@borrower
def _add_word_scores(
    position: Array,
    counts: Array,
    topics: TreeTopics,
    levels: LevelWeights,
    probability: Array,
    product: Array,
    score: Array,
) -> float:
    """Add the log probabilities of a document's words to the scores of all ends; return the term common to all ends.

    Probabilities are multiplied, and a logarithm is taken before a product could leave the range of a double.
    """
    parent, level, word_node, theta, remainder = (
        topics.parent, topics.level, topics.word_node, levels.theta, levels.remainder,
    )  # fmt: skip
    common, low, high = 0.0, 0.0, 0.0
    product[:] = 1.0
    for pair in range(position.size):
        count = counts[pair]
        base = _word_probabilities(word_node[position[pair]], parent, level, theta, remainder, probability)
        common += count * math.log(base)
        smallest, largest = 1.0, 1.0
        for end in range(probability.size):
            smallest, largest = min(smallest, probability[end]), max(largest, probability[end])
        down, up = count * math.log(smallest), count * math.log(largest)
        if low + down < -MAX_LOG_PRODUCT or high + up > MAX_LOG_PRODUCT:
            for end in range(probability.size):
                score[end] += math.log(product[end])
                product[end] = 1.0
            low, high = 0.0, 0.0
        if down < -MAX_LOG_PRODUCT or up > MAX_LOG_PRODUCT:
            for end in range(probability.size):
                score[end] += count * math.log(probability[end])
            continue
        low, high = low + down, high + up
        if count == 1:
            for end in range(probability.size):
                product[end] *= probability[end]
        else:
            for end in range(probability.size):
                product[end] *= power(probability[end], count)
    for end in range(probability.size):
        score[end] += math.log(product[end])
    return common


@borrower
def _assign_levels(
    position: Array,
    counts: Array,
    topics: TreeTopics,
    levels: LevelWeights,
    q: Array,
    tokens: Array,
    expected: Array,
    adds_counts: bool,
) -> None:
    """Fill a document's expected tokens by level, and add its expected counts to `expected`, by word and node."""
    parent, level, word_node = topics.parent, topics.level, topics.word_node
    theta, outside, remainder = levels.theta, levels.outside, levels.remainder
    depth = tokens.size
    tokens[:] = 0.0
    for end in range(q.size):
        if q[end] == 0.0:
            continue
        for pair in range(position.size):
            row, value, node = position[pair], remainder[level[end]], end
            while node >= 0:
                value += theta[level[node]] * word_node[row, node]
                node = parent[node]
            weight = q[end] * counts[pair] / value
            for k in range(level[end] + 1, depth):
                tokens[k] += weight * theta[k] * outside[k]
            node = end
            while node >= 0:
                share = weight * theta[level[node]] * word_node[row, node]
                tokens[level[node]] += share
                if adds_counts:
                    expected[row, node] += share
                node = parent[node]


@kernel
def sweep_paths(
    pairs: DocumentPairs,
    topics: TreeTopics,
    prior: DocumentPrior,
    previous: Float64Matrix,
    stopping: StoppingRule,
    document_level: OutFloat64Matrix,
    statistics: TreeStatistics,
    largest: LargestEnds,
) -> None:
    """Update q(c) q(z | c) and q(theta) of each document in turn; twin: `naive.tree.sweep_paths`.

    log S_c = E[log p(c | V)] + sum_m log sum_l exp(E[log theta_l] + E[log w_{c_l, t_m}]), q(c) = S_c / sum S.

    Shapes: `previous`, `document_level` (documents, depth).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    alpha, end_log = prior.alpha, prior.end_log
    ends, bound, expected = statistics.ends, statistics.bound, statistics.word_node
    nodes, depth = topics.parent.size, alpha.size
    # One array of each length: loops over two that lie side by side are compiled twice, and sums might differ.
    of_nodes, of_levels = np.empty((4, nodes)), np.empty((6, depth))
    probability, score, product, q = of_nodes[0], of_nodes[1], of_nodes[2], of_nodes[3]
    gamma, logs, tokens = of_levels[0], of_levels[1], of_levels[4]
    levels = LevelWeights(of_levels[2], of_levels[5], of_levels[3])
    log_prior, total = log_beta(alpha), 0.0
    levels.outside[:] = topics.outside
    expected[:] = 0.0
    for document in range(offsets.size - 1):
        first, last = offsets[document], offsets[document + 1]
        rows, times = position[first:last], counts[first:last]
        tokens[:] = previous[document]
        number, change = 0, math.inf
        while number < stopping.passes and change >= stopping.tolerance:
            number += 1
            for k in range(depth):
                gamma[k] = alpha[k] + tokens[k]
            _fill_level_weights(gamma, logs, levels)
            score[:] = end_log
            total = _add_word_scores(rows, times, topics, levels, probability, product, score)
            total += softmax(score, q)
            _assign_levels(rows, times, topics, levels, q, tokens, expected, number == stopping.passes)
            change = 0.0
            for k in range(depth):
                change += abs(alpha[k] + tokens[k] - gamma[k])
        if number < stopping.passes:
            _assign_levels(rows, times, topics, levels, q, tokens, expected, True)
        for k in range(depth):
            total -= tokens[k] * logs[k]
        for k in range(depth):
            gamma[k] = alpha[k] + tokens[k]
        document_level[document] = tokens
        bound[0] += total + log_beta(gamma) - log_prior
        add_log_theta(gamma, logs, last > first, statistics.log_theta)
        for end in range(nodes):
            ends[end] += q[end]
        keep_largest(q, largest.min_share, largest.ends[document], largest.masses[document])


class LevelCounts(NamedTuple):
    """Levels of the documents' tokens."""

    document_level: OutFloat64Matrix  # Filled with the expected tokens by level; (documents, depth)
    pair_level: OutFloat32Matrix  # Filled with q(z); (pairs, depth)


class Document(NamedTuple):
    """A document: rows and counts of its pairs, and q(z) of each, shape (pairs, depth)."""

    rows: Array
    counts: Array
    pair_level: Array


class Passing(NamedTuple):
    """The part of a document that passes each node, shape (nodes,), and that is outside the tree, shape (depth,)."""

    nodes: Array
    outside: Array


class LevelVectors(NamedTuple):
    """Numbers of a document by level, shape (depth,)."""

    outside: Array  # E[log w] of nodes outside the tree
    logs: Array  # E[log theta]
    weights: Array  # Working space
    tokens: Array  # Filled with the expected tokens


@borrower
def _score_ends(document: Document, topics: TreeTopics, outside: Array, score: Array, left: Array) -> None:
    """Fill sum_m sum_l q(z_m = l) E[log w_{c_l}] of each end."""
    rows, counts, pair_level = document.rows, document.counts, document.pair_level
    parent, level, log_node = topics.parent, topics.level, topics.word_node
    score[:] = 0.0
    left[:] = 0.0  # of the levels that a path has outside the tree, by the level at which it leaves
    for pair in range(rows.size):
        row, count = rows[pair], float(counts[pair])
        for node in range(parent.size):
            score[node] += count * pair_level[pair, level[node]] * log_node[row, node]
        below = 0.0
        for k in range(outside.size - 1, 0, -1):
            below += count * pair_level[pair, k] * outside[k]
            left[k - 1] += below
    for node in range(1, parent.size):
        score[node] += score[parent[node]]
    for node in range(parent.size):
        score[node] += left[level[node]]


@borrower
def _pass_down(q: Array, topics: TreeTopics, passing: Passing) -> None:
    """Fill how much of a document passes each node, and is outside the tree at each level."""
    parent, level, nodes, outside = topics.parent, topics.level, passing.nodes, passing.outside
    outside[:] = 0.0
    for end in range(q.size):
        nodes[end] = q[end]
        for k in range(level[end] + 1, outside.size):
            outside[k] += q[end]
    for node in range(q.size - 1, 0, -1):
        nodes[parent[node]] += nodes[node]


@borrower
def _assign_levels_apart(
    document: Document,
    topics: TreeTopics,
    passing: Passing,
    levels: LevelVectors,
    expected: Array,
    adds_counts: bool,
) -> float:
    """Fill q(z) and the tokens by level, and add to the expected counts by word and node.

    The return is H(q(z)) and E[log w] of the tokens outside the tree.
    """
    rows, counts, pair_level = document.rows, document.counts, document.pair_level
    level, log_node, nodes, mean = topics.level, topics.word_node, passing.nodes, passing.outside
    outside, logs, weights, tokens = levels.outside, levels.logs, levels.weights, levels.tokens
    value = 0.0
    tokens[:] = 0.0
    for pair in range(rows.size):
        row, count = rows[pair], float(counts[pair])
        for k in range(outside.size):
            weights[k] = logs[k] + mean[k] * outside[k]
        for node in range(nodes.size):
            if nodes[node] > 0.0:
                weights[level[node]] += nodes[node] * log_node[row, node]
        softmax(weights, weights)
        for k in range(outside.size):
            pair_level[pair, k] = weights[k]
        for k in range(outside.size):
            z = float(pair_level[pair, k])
            value += count * z * mean[k] * outside[k] - (count * z * math.log(z) if z > 0.0 else 0.0)
        for k in range(outside.size):
            weights[k] = count * float(pair_level[pair, k])
            tokens[k] += weights[k]
        if adds_counts:
            for node in range(nodes.size):
                expected[row, node] += weights[level[node]] * nodes[node]
    return value


@kernel
def sweep_levels(
    pairs: DocumentPairs,
    topics: TreeTopics,
    prior: DocumentPrior,
    previous: Float32Matrix,
    passes: int,
    levels: LevelCounts,
    statistics: TreeStatistics,
    largest: LargestEnds,
) -> None:
    """Update q(c), q(z) and q(theta) of each document in turn, all apart; twin: `naive.tree.sweep_levels`.

    q(c) ~ exp(E[log p(c | V)] + sum_m sum_l q(z_m = l) E[log w_{c_l, t_m}]), then q(z_m = l) ~ exp(E[log theta_l] +
    sum_c q(c) E[log w_{c_l, t_m}]), then theta, `passes` times.

    Shapes: `previous` (pairs, depth).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    alpha, end_log, pair_level = prior.alpha, prior.end_log, levels.pair_level
    ends, bound, expected = statistics.ends, statistics.bound, statistics.word_node
    nodes, depth = topics.parent.size, alpha.size
    of_nodes, of_levels = np.empty((4, nodes)), np.empty((6, depth))  # one array of each length, as in `sweep_paths`
    evidence, score, q, gamma, left = of_nodes[0], of_nodes[1], of_nodes[2], of_levels[0], of_levels[3]
    passing = Passing(of_nodes[3], of_levels[2])
    vectors = LevelVectors(of_levels[5], of_levels[1], gamma, of_levels[4])
    log_prior, total = log_beta(alpha), 0.0
    vectors.outside[:] = topics.outside
    expected[:] = 0.0
    pair_level[:] = previous
    for number in range(offsets.size - 1):
        first, last = offsets[number], offsets[number + 1]
        document = Document(position[first:last], counts[first:last], pair_level[first:last])
        for done in range(passes):
            gamma[:] = alpha
            for pair in range(first, last):
                for k in range(depth):
                    gamma[k] += counts[pair] * pair_level[pair, k]
            expected_log_theta(gamma, vectors.logs)
            _score_ends(document, topics, vectors.outside, evidence, left)
            for end in range(nodes):
                score[end] = end_log[end] + evidence[end]
            total = softmax(score, q)
            for end in range(nodes):
                total -= q[end] * evidence[end]
            _pass_down(q, topics, passing)
            total += _assign_levels_apart(document, topics, passing, vectors, expected, done == passes - 1)
        for k in range(depth):
            gamma[k] = alpha[k] + vectors.tokens[k]
        levels.document_level[number] = vectors.tokens
        bound[0] += total + log_beta(gamma) - log_prior
        add_log_theta(gamma, vectors.logs, last > first, statistics.log_theta)
        for end in range(nodes):
            ends[end] += q[end]
        keep_largest(q, largest.min_share, largest.ends[number], largest.masses[number])


MIN_COUNT = 1e-9  # expected tokens of a word below which it is taken not to occur


@kernel
def root_products(word_node: Float64Matrix, gram: OutFloat64Matrix) -> None:
    """Fill sum_w sqrt(n_iw n_jw) of all pairs of nodes; twin: `naive.tree.root_products`.

    Shapes: `word_node` (words, nodes); `gram` (nodes, nodes).
    """
    nodes = word_node.shape[1]
    occurring, root = np.empty(nodes, dtype=np.int64), np.empty(nodes)
    gram[:] = 0.0
    for word in range(word_node.shape[0]):
        count = 0
        for node in range(nodes):
            if word_node[word, node] > MIN_COUNT:
                occurring[count], root[count] = node, math.sqrt(word_node[word, node])
                count += 1
        for i in range(count):
            for j in range(i + 1):
                gram[occurring[i], occurring[j]] += root[i] * root[j]
    for i in range(nodes):
        for j in range(i):
            gram[j, i] = gram[i, j]


@kernel
def merge_gains(
    word_node: Float64Matrix, first: Int64Vector, second: Int64Vector, prior: Float64Vector, gain: OutFloat64Vector
) -> None:
    """Fill sum_w log G(a + n_iw + n_jw) G(a) / (G(a + n_iw) G(a + n_jw)) of pairs; twin: `naive.tree.merge_gains`.

    Shapes: `word_node` (words, nodes); `first`, `second`, `prior`, `gain` (pairs,).
    """
    gain[:] = 0.0
    for word in range(word_node.shape[0]):
        for pair in range(first.size):
            n_i, n_j = word_node[word, first[pair]], word_node[word, second[pair]]
            if n_i > MIN_COUNT and n_j > MIN_COUNT:
                a = prior[pair]
                gain[pair] += math.lgamma(a + n_i + n_j) + math.lgamma(a)
                gain[pair] -= math.lgamma(a + n_i) + math.lgamma(a + n_j)


@kernel
def path_probability(
    pairs: DocumentPairs,
    topics: TreeTopics,
    theta: Float64Matrix,
    stored: StoredEnds,
    probability: OutFloat64Vector,
    document_log: OutFloat64Vector,
) -> None:
    """Predict pairs, and whole documents, by the paths of each document; twin: `naive.tree.path_probability`.

    Shapes: `theta` (documents, depth); `probability` (pairs,); `document_log` (documents,).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    parent, level, word_node, outside = topics.parent, topics.level, topics.word_node, topics.outside
    lists, ends, masses = stored.offsets, stored.ends, stored.masses
    probability[:] = 0.0
    for document in range(offsets.size - 1):
        total = 0.0
        for place in range(lists[document], lists[document + 1]):
            total += float(masses[place])
        document_log[document] = -math.inf
        for place in range(lists[document], lists[document + 1]):
            share, end, left, score = float(masses[place]) / total, ends[place], 0.0, 0.0
            for k in range(level[end] + 1, theta.shape[1]):
                left += theta[document, k] * outside[k]
            for pair in range(offsets[document], offsets[document + 1]):
                value, node = left, int(end)
                while node >= 0:
                    value += theta[document, level[node]] * word_node[position[pair], node]
                    node = parent[node]
                probability[pair] += share * value
                score += counts[pair] * math.log(value)
            score += math.log(share)
            high = max(score, document_log[document])
            low = min(score, document_log[document])
            document_log[document] = high + math.log1p(math.exp(low - high))
