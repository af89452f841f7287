"""Collapsed Gibbs sampling in a tree, one document at a time, with all counts recomputed for each step."""

import numpy as np
from scipy.special import gammaln

from tests.naive.gibbs import pick, tokens_of
from tests.naive.random import uniform


class Tree:
    """Nodes as {slot: parent}, documents with paths and levels, and the counts of other shards at each node."""

    def __init__(self, parents, elsewhere, other_documents, paths, z, words, owner, alpha, eta, gamma):
        self.parents, self.elsewhere, self.other_documents = dict(parents), elsewhere, other_documents
        self.paths, self.z = {d: list(map(int, path)) for d, path in enumerate(paths)}, z.astype(int)
        self.words, self.owner, self.alpha, self.eta, self.gamma = words, owner, alpha, eta, gamma
        self.inside = {d for d, path in self.paths.items() if path[0] >= 0}
        self.placed = np.isin(owner, sorted(self.inside))

    def level(self, node):
        return -1 if node == -1 else 1 + self.level(self.parents[node])

    def documents(self, node):
        return int(self.other_documents[node] if node >= 0 else 0) + sum(node in self.paths[d] for d in self.inside)

    def tokens(self, node):
        """Return the counts of the node's words, over all documents that are placed and in the tree."""
        word_counts = (self.elsewhere[:, node] * float(node >= 0)).copy()
        for token in np.flatnonzero(self.placed):
            path = self.paths[self.owner[token]]
            word_counts[self.words[token]] += path[self.z[token]] == node
        return word_counts

    def log_words(self, words, at, tokens):
        """Return log p of some words at a level, given the words of a node."""
        eta = self.eta[at]
        after = tokens.copy()
        np.add.at(after, words, 1.0)
        size = eta * tokens.size
        cells = (gammaln(eta + after) - gammaln(eta + tokens)).sum()
        return cells + gammaln(size + tokens.sum()) - gammaln(size + after.sum())

    def choices(self, document, log_words, log_new, *, births):
        """Return (end, log weight) of each possible path of a document that is outside the tree, level by level.

        `log_words` is a function of node and level, `log_new` one of the level.
        """
        depth, scores, candidates = len(self.alpha), {}, []
        placed, self.placed = self.placed, self.placed & (self.owner != document)
        for node in sorted(self.parents, key=lambda node: (self.level(node), node)):
            at, up = self.level(node), self.parents[node]
            scores[node] = 0.0
            if at:
                scores[node] = scores[up] + np.log(self.documents(node) / (self.gamma + self.documents(up)))
                scores[node] += log_words(node, at)
            if at == depth - 1:
                candidates.append((node, scores[node]))
            elif births:
                leave = np.log(self.gamma / (self.gamma + self.documents(node)))
                candidates.append(
                    (node, scores[node] + leave + sum(log_new(depth_below) for depth_below in range(at + 1, depth)))
                )
        self.placed = placed
        return candidates

    def draw_path(self, document, free, reusable, chance, *, births):
        """Draw a path given the levels."""
        self.leave(document, free, reusable)
        mine = self.owner == document
        by_level = [self.words[mine & (self.z == at)] for at in range(len(self.alpha))]
        none = np.zeros(len(self.elsewhere))
        ends = self.choices(
            document,
            lambda node, at: self.log_words(by_level[at], at, self.tokens(node)),
            lambda at: self.log_words(by_level[at], at, none),
            births=births,
        )
        self.enter(document, draw_end(ends, chance), free)

    def mixtures(self, document):
        """Return {end: log probability of a document's words under the mean mixture of the path's topics}; new topics
        are uniform."""
        placed, self.placed = self.placed, self.placed & (self.owner != document)
        log_likelihoods, share = {}, self.alpha / self.alpha.sum()
        for end in self.parents:
            chance, node = np.zeros(len(self.elsewhere)), end
            while node != -1:
                tokens, at = self.tokens(node), self.level(node)
                chance += share[at] * (tokens + self.eta[at]) / (tokens + self.eta[at]).sum()
                node = self.parents[node]
            chance += share[self.level(end) + 1 :].sum() / chance.size
            log_likelihoods[end] = np.log(chance[self.words[self.owner == document]]).sum()
        self.placed = placed
        return log_likelihoods

    def propose(self, document, chance, *, births):
        """Draw a path by the mixtures; return it and the mixtures."""
        mixed = self.mixtures(document)
        ends = self.choices(document, lambda *_: 0.0, lambda _: 0.0, births=births)
        return draw_end([(end, log + mixed[end]) for end, log in ends], chance), mixed

    def offer(self, document, free, reusable, key, number, every, *, births):
        """Propose another path and other levels, and accept them by the Metropolis-Hastings rule."""
        old = [node for node in self.paths[document] if self.documents(node) > 1 or node == 0][-1]
        before, mine = self.z.copy(), self.owner == document
        self.leave(document, free, reusable)
        new, mixed = self.propose(document, uniform(key, number + self.z.size + document), births=births)
        self.placed[mine] = False
        self.enter(document, old, free)
        stays = self.draw_levels(document, key, None)
        self.leave(document, free, reusable)
        self.placed[mine] = False
        self.enter(document, new, free)
        goes = self.draw_levels(document, key, number)
        ratio = goes - mixed[new] - (stays - mixed[old])
        if np.log(1.0 - uniform(key, number + every + document)) >= ratio:
            self.leave(document, free, reusable)
            self.z = before
            self.enter(document, old, free)

    def leave(self, document, free, reusable):
        self.inside.remove(document)
        for node in reversed(self.paths[document][1:]):
            if self.documents(node) == 0:
                del self.parents[node]
                if node in reusable:
                    free.append(node)

    def enter(self, document, end, free):
        path = [end]
        while path[0] != 0:
            path.insert(0, self.parents[path[0]])
        while len(path) < len(self.alpha):
            slot = free.pop()
            self.parents[slot] = path[-1]
            path.append(slot)
        self.paths[document] = path
        self.inside.add(document)

    def draw_levels(self, document, key, number):
        """Draw levels token by token, or keep them if `number` is None; return the sum of the logs of their weights."""
        path, logs = self.paths[document], 0.0
        for token in np.flatnonzero(self.owner == document):
            self.placed[token] = False
            mine = self.z[(self.owner == document) & self.placed]
            sizes = np.bincount(mine, minlength=len(self.alpha))
            have = [self.tokens(node) for node in path]
            word = [(counts[self.words[token]] + eta) for counts, eta in zip(have, self.eta, strict=True)]
            total = [counts.sum() + counts.size * eta for counts, eta in zip(have, self.eta, strict=True)]
            weights = (self.alpha + sizes) * np.array(word) / np.array(total)
            logs += np.log(weights.sum())
            if number is not None:
                self.z[token] = pick(weights, uniform(key, number + int(token)))
            self.placed[token] = True
        return logs

    def of_nodes(self, upto):
        """Return {node: documents that pass it} for a level."""
        members = {}
        for document in sorted(self.inside):
            members.setdefault(self.paths[document][upto], []).append(document)
        return dict(sorted(members.items()))

    def log_joint(self):
        """Return log p(w, z, c | alpha, eta, gamma) of the present tree, including all documents of other shards."""
        log_probability, none = 0.0, np.zeros(len(self.elsewhere))
        for node in self.parents:
            tokens = self.tokens(node)
            log_probability += self.log_words(
                np.repeat(np.arange(tokens.size), tokens.astype(int)), self.level(node), none
            )
            passing = self.documents(node)
            if self.level(node) < len(self.alpha) - 1 and passing:
                log_probability += gammaln(self.gamma) - gammaln(self.gamma + passing)
            if node:
                log_probability += np.log(self.gamma) + gammaln(passing)
        for document in self.inside:
            sizes = np.bincount(self.z[self.owner == document], minlength=len(self.alpha))
            log_probability += (gammaln(self.alpha + sizes) - gammaln(self.alpha)).sum()
        return log_probability

    def exchange(self, members, upto):
        """Exchange the levels `upto` - 1 and `upto` of some documents."""
        mine = np.isin(self.owner, members)
        lower, upper = mine & (self.z == upto), mine & (self.z == upto - 1)
        self.z[lower], self.z[upper] = upto - 1, upto

    def attach(self, node, members, upto, place, free):
        """Move a node with all its documents to another parent."""
        path = [place]
        while path[0] != 0:
            path.insert(0, self.parents[path[0]])
        while len(path) < upto:
            slot = free.pop()
            self.parents[slot] = path[-1]
            path.append(slot)
        self.parents[node] = path[-1]
        for document in members:
            self.paths[document][:upto] = path


def move_subtrees(offsets, position, counts, key, alpha, eta, gamma, births, shared, free, reusable, parents, elsewhere,
                  other_documents, paths, z):  # fmt: skip
    """Draw the parent of each node by the joint probability of the state; return the parents. Arguments are as in
    `sweep`."""
    owner, words = tokens_of(offsets, position, counts)
    tree, free = Tree(parents, elsewhere, other_documents, paths, z, words, owner, alpha, eta, gamma), list(free)
    slots = len(other_documents)
    for upto in range(2, len(alpha)):
        for node, members in tree.of_nodes(upto).items():
            route, mine = tree.paths[members[0]][:upto], other_documents[node] == 0 and (node in reusable or not shared)
            up = route[-1]
            only = mine and tree.documents(up) == len(members) and (up in reusable or not shared)
            if only and uniform(key, slots + node) < 0.5:
                before = tree.log_joint()
                tree.exchange(members, upto)
                if np.log(1.0 - uniform(key, 2 * slots + node)) >= tree.log_joint() - before:
                    tree.exchange(members, upto)
            alone = any(tree.documents(node) == len(members) for node in route[1:])
            if not mine or (births and len(free) < upto - 1) or (alone and not births):
                continue
            gone = [node for node in reversed(route[1:]) if tree.documents(node) == len(members)]
            for empty in gone:
                del tree.parents[empty]
                free += [empty] if empty in reusable else []
            below = {child for child in tree.parents if child == node or node in ancestors(tree.parents, child)}
            level = {child: -1 if child in below else tree.level(child) for child in tree.parents}
            places = sorted((at, child) for child, at in level.items() if 0 <= at < upto and (births or at == upto - 1))
            logs = []
            for _, place in places:
                state = dict(tree.parents), {d: list(path) for d, path in tree.paths.items()}
                tree.attach(node, members, upto, place, [-10 - number for number in range(upto)])
                logs.append(tree.log_joint())
                tree.parents, tree.paths = state
            probabilities = np.exp(np.array(logs) - max(logs))
            tree.attach(node, members, upto, places[pick(probabilities, uniform(key, node))][1], free)
    final_paths = np.array([tree.paths[d] for d in range(len(paths))]).reshape(len(paths), len(alpha))
    return final_paths, tree.z, tree.parents, free


def ancestors(parents, node):
    """Return the ancestors of a node."""
    return [] if parents[node] not in parents else [parents[node], *ancestors(parents, parents[node])]


def draw_end(ends, chance):
    """Draw one of (end, log weight), or return None if there is none."""
    logs = np.array([log for _, log in ends])
    return ends[pick(np.exp(logs - logs.max()), chance)][0] if ends else None


def sweep(
    offsets, position, counts, key, alpha, eta, gamma, births, apart, turn, free, parents, elsewhere, other_documents,
    paths, z,
):  # fmt: skip
    """Sweep once; `elsewhere` are other shards' words at each slot, and `other_documents` their documents.

    Returns the paths, z, the parents and the remaining slots.
    """
    owner, words = tokens_of(offsets, position, counts)
    tree = Tree(parents, elsewhere, other_documents, paths, z, words, owner, alpha, eta, gamma)
    free, reusable, every = list(free), set(free), z.size + len(offsets) - 1
    for document in range(len(offsets) - 1):
        times = range(1)
        if document not in tree.inside:
            times = range(1, 4)
            end = 0
            if not (apart and births):
                end, _ = tree.propose(document, uniform(key, every + z.size + document), births=births)
            if end is None:
                continue
            tree.enter(document, end, free)
            tree.draw_levels(document, key, every)
        for time in times:
            first = time * (2 * every + len(offsets) - 1)
            if births or all(tree.documents(node) > 1 for node in tree.paths[document][1:]):
                if (document + time + turn) % 8 == 0:
                    tree.offer(document, free, reusable, key, first + every, every, births=births)
                tree.draw_path(document, free, reusable, uniform(key, first + z.size + document), births=births)
            tree.draw_levels(document, key, first)
    final_paths = np.array([tree.paths[d] for d in range(len(paths))]).reshape(len(paths), len(alpha))
    return final_paths, tree.z, tree.parents, free


def count_histogram(row, level, levels):
    """Return {(level, count): words and nodes} for all counts above zero."""
    tally = {}
    for (_, node), count in np.ndenumerate(row):
        if count > 0 and 0 <= level[node] < levels:
            key = int(level[node]), int(count)
            tally[key] = tally.get(key, 0) + 1
    return tally


def fold_documents(offsets, position, counts, alpha, phi, log_prior, paths):
    """Return the path of each document, and its expected tokens by level."""
    chosen, mean = [], []
    for first, last in zip(offsets, offsets[1:], strict=False):
        words, times = phi[position[first:last]], counts[first:last]
        theta = alpha / alpha.sum()
        on_paths = words[:, paths]  # (pairs, paths, levels)
        for _ in range(4):
            score = log_prior + times @ np.log(on_paths @ theta)
            q = np.exp(score - score.max())
            q /= q.sum()
            share = on_paths * theta / (on_paths @ theta)[..., np.newaxis]
            theta = alpha + np.einsum("c,m,mcl->l", q, times, share)
            theta = theta / theta.sum()
        best = int(score.argmax())
        for _ in range(20):
            share = on_paths[:, best] * theta
            expected = times @ (share / share.sum(axis=1, keepdims=True))
            theta = (alpha + expected) / (alpha.sum() + expected.sum())
        chosen.append(best)
        mean.append(expected)
    return np.array(chosen), np.array(mean)
