import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.kernels.prediction import fold_in, pair_probability
from collapsium.workers.kernels.records import DocumentPairs
from tests.naive import predict as naive
from tests.strategies import shards

pytestmark = pytest.mark.kernels


@given(shards(some_token=False), st.integers(0, 1000))
def test_pair_probability__equals_its_twin(drawn, seed):
    shard, q = drawn
    generator = np.random.default_rng(seed)
    theta = generator.dirichlet(np.ones(q.shape[1] + 1), size=shard.documents)
    theta, rest = np.ascontiguousarray(theta[:, 1:]), np.ascontiguousarray(theta[:, 0])
    phi, tau = generator.random((shard.words.size, q.shape[1])), generator.random(shard.words.size)
    found = np.empty(shard.pairs)
    pair_probability(shard.offsets, shard.position, theta, phi, rest, tau, found)
    np.testing.assert_allclose(found, naive.pair_probability(shard.offsets, shard.position, theta, phi, rest, tau))


@given(shards(some_token=False), st.integers(0, 1000), st.sampled_from([1, 3, 100]))
def test_fold_in__equals_its_twin_and_counts_every_token(drawn, seed, sweeps):
    shard, q = drawn
    generator = np.random.default_rng(seed)
    phi = (
        generator.dirichlet(np.ones(shard.words.size), size=q.shape[1]).T.copy()
        if shard.words.size
        else np.zeros((0, q.shape[1]))
    )
    prior = generator.uniform(0.01, 1.0, q.shape[1])
    found = np.empty((shard.documents, q.shape[1]))
    fold_in(DocumentPairs(shard.offsets, shard.position, shard.counts), phi, prior, sweeps, found)
    twin = naive.fold_in(shard.offsets, shard.position, shard.counts, phi, prior, sweeps)
    np.testing.assert_allclose(found, twin, rtol=1e-6, atol=2e-4)
    np.testing.assert_allclose(found.sum(axis=1), shard.lengths, rtol=1e-9, atol=1e-9)
