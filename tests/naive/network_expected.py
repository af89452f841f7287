"""Networks of vectors with expected tables: responsibilities, tables and vectors, one value at a time, in plain
Python."""

import math

import numpy as np

LARGEST, LEAST = 1.0 - 1e-7, 1e-3


def climbed(customers, base, discount):
    """Return expected tables of a number of customers, interpolated linearly; large numbers are added in groups."""
    tables, seated = 1.0, 1.0
    while seated < customers:
        step = min(1.0 if seated < 32 else seated // 16, customers - seated)
        tables += step * base / (base + seated + max(step - 1.0, 0.0) / 2 - discount * tables)
        seated += step
    return tables


def seated(customers, log_absent, base, discount):
    present = 1.0 - math.exp(log_absent)
    if customers <= present:
        return customers
    return present * climbed(customers / present, base, discount)


def choose(weight, size=16, smallest=1 / 256):
    """Return {topic: responsibility} of the most important topics, in steps of 2^-15 that sum to one."""
    order = sorted(range(len(weight)), key=lambda k: -weight[k])
    retained = [k for k in order if weight[k] > smallest * sum(weight)][:size] or order[:1]
    total = sum(weight[k] for k in retained)
    steps = {k: int(weight[k] / total * (32768 - 0.01)) for k in retained}
    steps[retained[0]] += 32768 - sum(steps.values())
    return {k: steps[k] / 32768 for k in sorted(retained)}


def log_absent(q):
    return math.log(1.0 - min(q, LARGEST))


class Document:
    """The nodes of a document; vectors above the document have a known mean and response.

    `parents` has a list of (parent, mixing) for each node; negative parents count from the last vector above.
    """

    def __init__(self, parents, kinds, strength, discount, alpha, mean_above=(), response_above=()):
        self.parents = parents
        self.b, self.a = [[values[kind] for kind in kinds] for values in (strength, discount)]
        self.alpha, self.nodes, self.values = alpha, len(parents), len(alpha)
        shape = (self.nodes + len(mean_above), self.values)
        # Vectors above are the last rows, so that parent -1 is the last of them.
        for name in ("node_tokens", "log_absent", "m", "z", "t", "mu", "rise", "mean", "response"):
            setattr(self, name, np.zeros(shape))
        if len(mean_above):
            self.mean[self.nodes :], self.response[self.nodes :] = mean_above, response_above
        self.rho, self.tables = [], np.zeros(self.nodes)

    def factor(self, j):
        return self.b[j] + self.a[j] * self.tables[j]

    def share(self, j, place, k, first=False):
        """Return the share of a node's tables of value k that goes to one of its parents."""
        if len(self.parents[j]) == 1:
            return 1.0
        return self.rho[j][place] * (1.0 if first else self.mean[self.parents[j][place][0], k] / self.mu[j, k])

    def gather(self, first=False):
        self.m[:], self.z[:] = 0.0, 0.0
        self.m[: self.nodes], self.z[: self.nodes] = self.node_tokens[: self.nodes], self.log_absent[: self.nodes]
        for j in reversed(range(self.nodes)):
            if not self.parents[j]:
                continue
            to, factor = np.zeros(len(self.parents[j])), self.factor(j)
            for k in range(self.values):
                present = 1.0 - math.exp(self.z[j, k])
                self.t[j, k] = seated(self.m[j, k], self.z[j, k], factor * self.mu[j, k], self.a[j])
                if first:
                    self.t[j, k] = min(self.m[j, k], present)
                for place, (parent, _) in enumerate(self.parents[j]):
                    part = self.share(j, place, k, first) if self.t[j, k] else 0.0
                    to[place] += part * self.t[j, k]
                    self.m[parent, k] += part * self.t[j, k]
                    self.z[parent, k] += log_absent(part * present)
            self.tables[j] = self.t[j].sum()
            if to.size > 1:
                weights = np.array([g for _, g in self.parents[j]]) + to
                self.rho[j] = weights / weights.sum()

    def inherit(self, j):
        self.mu[j], self.rise[j] = 0.0, 0.0
        for place, (parent, _) in enumerate(self.parents[j]):
            rho = self.rho[j][place] if len(self.parents[j]) > 1 else 1.0
            self.mu[j] += rho * self.mean[parent]
        for place, (parent, _) in enumerate(self.parents[j]):
            rho = self.rho[j][place] if len(self.parents[j]) > 1 else 1.0
            for k in range(self.values):
                self.rise[j, k] += rho * self.share(j, place, k) * self.response[parent, k]

    def expect(self, j):
        if not self.parents[j]:
            total = sum(self.alpha) + self.m[j].sum()
            self.mean[j], self.response[j] = (self.alpha + self.m[j]) / total, 1.0 / total
            return
        factor, total = self.factor(j), self.b[j] + self.m[j].sum()
        for k in range(self.values):
            base = factor * self.mu[j, k]
            seated = max(self.m[j, k] - 1 - self.a[j] * max(self.t[j, k] - 1, 0), 0)
            opened = base / (base + seated)
            self.mean[j, k] = (self.m[j, k] - self.a[j] * self.t[j, k] + base) / total
            self.response[j, k] = (1 - self.a[j] * opened + factor * self.rise[j, k] * opened) / total

    def spread(self):
        for j in range(self.nodes):
            if self.parents[j]:
                self.inherit(j)
            self.expect(j)

    def fold_in(self, rounds=3):
        """Compute tables and vectors from the nodes' own counts alone."""
        self.rho = [
            np.array([g for _, g in parents]) / max(sum(g for _, g in parents), 1e-9) for parents in self.parents
        ]
        self.tables[:] = 0.0
        for number in range(rounds):
            self.gather(first=number == 0)
            self.spread()

    def without(self, j, k, q, factor):
        """Return E[nu_jk] up to its divisor, without one token of a pair whose responsibility is q."""
        less = max(self.m[j, k] - q, 0.0)
        if not self.parents[j]:
            return less + self.alpha[k]
        base = factor * self.mu[j, k]
        before = seated(self.m[j, k], self.z[j, k], base, self.a[j])
        after = seated(less, min(self.z[j, k] - log_absent(q), 0.0), base, self.a[j])
        above = self.mu[j, k] - max(before - after, 0.0) * self.rise[j, k]
        return less - self.a[j] * after + factor * max(above, LEAST * self.mu[j, k])

    def visit(self, j, pairs, words):
        """Update the pairs [word, count, {topic: q}] of a node; return sum c log of their words' probabilities."""
        factor, total = 1.0, sum(self.alpha) + self.m[j].sum()
        if self.parents[j]:
            self.inherit(j)
            factor, total = self.factor(j), self.b[j] + self.m[j].sum()
        log_likelihood = 0.0
        for pair in pairs:
            word, count, before = pair
            weight = [
                self.without(j, k, before.get(k, 0.0), factor) * words.chance(word, k, before.get(k, 0.0))
                for k in range(self.values)
            ]
            log_likelihood += count * math.log(sum(weight) / (total - 1.0))
            pair[2] = choose(weight)
            for sign, shares in ((-count, before), (count, pair[2])):
                for k, q in shares.items():
                    for array in (self.node_tokens, self.m):
                        array[j, k] = max(array[j, k] + sign * q, 0.0)
                    for array in (self.log_absent, self.z):
                        array[j, k] = min(array[j, k] + sign * log_absent(q), 0.0)
                    words.add(word, k, sign * q)
        if self.parents[j]:
            for k in range(self.values):
                before = self.t[j, k]
                if before or self.m[j, k] > 0:
                    self.t[j, k] = seated(self.m[j, k], self.z[j, k], factor * self.mu[j, k], self.a[j])
                for place, (parent, _) in enumerate(self.parents[j]):
                    if parent >= 0:
                        part = self.share(j, place, k) * (self.t[j, k] - before)
                        self.m[parent, k] = max(self.m[parent, k] + part, 0.0)
            self.tables[j] = self.t[j].sum()
        for parent, _ in self.parents[j]:
            if parent >= 0:
                self.expect(parent)
        self.expect(j)
        return log_likelihood


class Words:
    """The numerators b + E[n_kw] and denominators B + E[n_k], which change during a sweep."""

    def __init__(self, running, totals, prior):
        self.running, self.totals, self.prior = np.array(running, dtype=float), np.array(totals, dtype=float), prior

    def chance(self, word, k, q):
        if not q:
            return self.running[word, k] / self.totals[k]
        return max(self.running[word, k] - q, self.prior) / (self.totals[k] - q)

    def add(self, word, k, moved):
        self.running[word, k] = max(self.running[word, k] + moved, self.prior)
        self.totals[k] += moved


class Held:
    """Fixed phi_kw."""

    def __init__(self, phi):
        self.phi = phi

    def chance(self, word, k, q):
        return float(self.phi[word, k])

    def add(self, word, k, moved):
        pass
