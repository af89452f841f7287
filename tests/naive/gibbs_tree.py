"""Collapsed Gibbs sampling in a tree, a document at a time, with all counts made anew for each step."""

import numpy as np
from scipy.special import gammaln

from tests.naive.gibbs import pick, tokens_of
from tests.naive.random import uniform


class Tree:
    """Nodes as {slot: parent}, documents with paths and levels, and what other shards have at each node."""

    def __init__(self, parents, elsewhere, others, paths, z, words, owner, alpha, eta, gamma):
        self.parents, self.elsewhere, self.others = dict(parents), elsewhere, others
        self.paths, self.z = {d: list(map(int, path)) for d, path in enumerate(paths)}, z.astype(int)
        self.words, self.owner, self.alpha, self.eta, self.gamma = words, owner, alpha, eta, gamma
        self.inside = {d for d, path in self.paths.items() if path[0] >= 0}
        self.placed = np.isin(owner, sorted(self.inside))

    def level(self, node):
        return -1 if node == -1 else 1 + self.level(self.parents[node])

    def documents(self, node):
        return int(self.others[node]) + sum(node in self.paths[d] for d in self.inside)

    def tokens(self, node):
        """The node's words, of all documents that are placed and in the tree."""
        found = self.elsewhere[:, node].astype(float).copy()
        for token in np.flatnonzero(self.placed):
            path = self.paths[self.owner[token]]
            found[self.words[token]] += path[self.z[token]] == node
        return found

    def log_words(self, words, at, own):
        """log p of some words at a level, given those that a node has."""
        eta = self.eta[at]
        after = own.copy()
        np.add.at(after, words, 1.0)
        size = eta * own.size
        cells = (gammaln(eta + after) - gammaln(eta + own)).sum()
        return cells + gammaln(size + own.sum()) - gammaln(size + after.sum())

    def choices(self, document, *, births):
        """(end, log weight) of each path of a document that is out of the tree, level by level."""
        depth = len(self.alpha)
        mine = (self.owner == document) & self.placed
        by_level = [self.words[mine & (self.z == at)] for at in range(depth)]
        placed, self.placed = self.placed, self.placed & (self.owner != document)
        none = np.zeros(len(self.elsewhere))
        scores, found = {}, []
        for node in sorted(self.parents, key=lambda one: (self.level(one), one)):
            at, up = self.level(node), self.parents[node]
            scores[node] = 0.0
            if at:
                scores[node] = scores[up] + np.log(self.documents(node) / (self.gamma + self.documents(up)))
                scores[node] += self.log_words(by_level[at], at, self.tokens(node))
            if at == depth - 1:
                found.append((node, scores[node]))
            elif births:
                leave = np.log(self.gamma / (self.gamma + self.documents(node)))
                new = sum(self.log_words(by_level[one], one, none) for one in range(at + 1, depth))
                found.append((node, scores[node] + leave + new))
        self.placed = placed
        return found

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
        path = self.paths[document]
        for token in np.flatnonzero(self.owner == document):
            self.placed[token] = False
            mine = self.z[(self.owner == document) & self.placed]
            sizes = np.bincount(mine, minlength=len(self.alpha))
            have = [self.tokens(node) for node in path]
            word = [(one[self.words[token]] + eta) for one, eta in zip(have, self.eta, strict=True)]
            total = [one.sum() + one.size * eta for one, eta in zip(have, self.eta, strict=True)]
            weights = (self.alpha + sizes) * np.array(word) / np.array(total)
            self.z[token] = pick(weights, uniform(key, number + int(token)))
            self.placed[token] = True


def sweep(offsets, position, counts, key, alpha, eta, gamma, births, free, parents, elsewhere, others, paths, z):
    """One pass; `elsewhere` are other shards' words at each slot, `others` their documents.

    Returns the paths, z, the parents and the slots that are left.
    """
    owner, words = tokens_of(offsets, position, counts)
    tree = Tree(parents, elsewhere, others, paths, z, words, owner, alpha, eta, gamma)
    free, reusable, every = list(free), set(free), z.size + len(offsets) - 1
    for document in range(len(offsets) - 1):
        entered = document in tree.inside
        for time in range(1 if entered else 4):
            fresh = not entered and time == 0
            alone = not fresh and any(tree.documents(node) == 1 for node in tree.paths[document][1:])
            if births or not alone:
                if not fresh:
                    tree.leave(document, free, reusable)
                end = 0
                if not fresh or not births:
                    ends = tree.choices(document, births=births)
                    if not ends:
                        break
                    logs = np.array([log for _, log in ends])
                    chance = uniform(key, time * every + z.size + document)
                    end = ends[pick(np.exp(logs - logs.max()), chance)][0]
                tree.enter(document, end, free)
            tree.draw_levels(document, key, time * every)
    found = np.array([tree.paths[d] for d in range(len(paths))]).reshape(len(paths), len(alpha))
    return found, tree.z, tree.parents, free


def tally_cells(row, level, levels):
    """{(level, count): cells} of the cells that hold something."""
    found = {}
    for (_, node), count in np.ndenumerate(row):
        if count > 0 and 0 <= level[node] < levels:
            key = int(level[node]), int(count)
            found[key] = found.get(key, 0) + 1
    return found


def fold_documents(offsets, position, counts, alpha, phi, log_prior, paths):
    """The path of each document, and its expected tokens by level."""
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
