"""Vectors of leaves that share some directions, and chains of nodes fitted to each leaf, with randomly rotated
factors."""

from dataclasses import dataclass

import numpy as np

from collapsium.workers.families.hca.posterior import Components, Sums, fitted
from collapsium.workers.families.hca.states import Prior
from collapsium.workers.families.ncrp.tree import FREE, ROOT, Tree

PRIOR = Prior(1000.0, 0.001, 0.001)


@dataclass
class Chained:
    """A tree of chains under an unused root, with the sums of a sweep and the optimal q given these."""

    tree: Tree
    sums: Sums
    found: Components
    ends: np.ndarray
    loadings: np.ndarray  # shape (words, columns + 1)


def tree_of(columns, leaves, depth):
    """Return chains of `depth` nodes each under a root."""
    parents = np.full(columns, FREE, dtype=np.int64)
    parents[0] = ROOT
    inner = np.arange(1, 1 + leaves * depth)
    parents[inner] = np.where((inner - 1) % depth == 0, 0, inner - 1)
    return Tree(parents, depth + 1)


def chained(seed, directions, words=30, noise=0.3, chain_vectors=200):
    """Return the chains of leaves with given directions, an array of shape (depth, words) per leaf."""
    generator = np.random.default_rng(seed)
    depth, leaves = len(directions[0]), len(directions)
    tree = tree_of(1 + leaves * depth + 2, leaves, depth)
    size = tree.parents.size + 1
    second, by_node, square, count = np.zeros((size, size)), np.zeros((words, size)), 0.0, 0
    ends = np.zeros(size - 1)
    mean = generator.normal(scale=2.0, size=words)
    for leaf, direction in zip(np.flatnonzero(tree.levels == depth), directions, strict=True):
        number = int(generator.integers(chain_vectors // 2, chain_vectors * 2))
        x = generator.normal(size=(number, depth))
        t = x @ direction + mean + noise * generator.normal(size=(number, words))
        turn = np.linalg.qr(generator.normal(size=(depth, depth)))[0]
        loadings = turn @ direction
        covariance = np.linalg.inv(np.eye(depth) + loadings @ loadings.T / noise**2)
        y = (t - mean) @ loadings.T @ covariance / noise**2
        path = np.append(tree.path(int(leaf))[1:], size - 1)
        factors = np.append(y, np.ones((number, 1)), axis=1)
        chain_second = factors.T @ factors
        chain_second[:depth, :depth] += number * covariance
        second[np.ix_(path, path)] += chain_second
        by_node[:, path] += t.T @ factors
        square, count, ends[leaf] = square + float((t**2).sum()), count + number, number
    sums = Sums(second, by_node.T @ by_node, square, 0.0, float(count), float(words))
    found = fitted(sums, PRIOR, noise**-2)
    return Chained(tree, sums, found, ends, by_node @ found.solve)


def spanned(loadings, nodes):
    """Return an orthonormal basis of the span of some columns."""
    return np.linalg.qr(loadings[:, nodes])[0]
