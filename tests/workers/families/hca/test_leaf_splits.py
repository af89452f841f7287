"""Probes of the residuals of leaves, and the division of a leaf's vectors into two sides."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.corpus import Corpus
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.hca.states import LeafProbes, Splits, other_side
from tests.storage.corpus.test_vectors import write_vectors


def shard_of(place, values):
    return Corpus(write_vectors(place, values, values.size)).references[0].load()


def splits(columns, split=(-1, -1, -1)):
    return replace(Splits.none(columns), split=np.array(split))


@pytest.mark.parametrize("seed", range(3))
def test_probes__converge_to_the_direction_of_the_largest_residual(tmp_path, seed):
    generator = np.random.default_rng(seed)
    scales = np.array([9.0, 2.0, 1.0, 1.0, 0.5, 0.1])
    values = generator.normal(size=(300, 6)) * scales @ np.linalg.qr(generator.normal(size=(6, 6)))[0]
    shard, probe, every = shard_of(tmp_path / "c", values), np.zeros((6, 3)), np.arange(300)
    for _ in range(12):
        probes = LeafProbes(shard, Stream(seed), probe, splits(3))
        probes.step(1, np.zeros(6), np.zeros((1, 6)), every, np.zeros((300, 1)))
        found = probes.probes[:, 1]
        probe = probes.probes / max(float(np.linalg.norm(found)), 1e-300)
    top = np.linalg.svd(values, full_matrices=False)
    assert abs(probe[:, 1] @ top[2][0]) == pytest.approx(1.0, abs=1e-4)
    assert probes.gain[1] == pytest.approx(top[1][0] ** 2, rel=1e-3)
    assert not probe[:, [0, 2]].any()
    assert probes.other_side is None


def test_other_side__separates_two_lines_and_two_clusters(tmp_path):
    generator = np.random.default_rng(5)
    factor, line = generator.normal(size=400), generator.integers(0, 2, 400) * 2 - 1
    # for two lines, the residual is as large as the factor along the bisector
    is_other = other_side(factor, factor * line, lines=True)
    np.testing.assert_array_equal(is_other, line < 0)
    cluster = 3.0 * line + 0.1 * generator.normal(size=400)
    np.testing.assert_array_equal(other_side(factor, cluster, lines=False), line < 0)


@given(st.integers(1, 40), st.integers(0, 100))
def test_probes__do_not_depend_on_the_division_into_shards(tmp_path_factory, cut, seed):
    """A probe is initialised with signs that depend on the vectors' addresses, so the sums of two shards equal one
    shard's."""
    values = np.random.default_rng(seed).normal(size=(41, 3))
    place = tmp_path_factory.mktemp("p")
    sums = []
    for name, parts in (("whole", [values]), ("cut", [values[:cut], values[cut:]])):
        total = np.zeros((3, 2))
        for number, part in enumerate(parts):
            shard = shard_of(place / f"{name}{number}", part)
            probes = LeafProbes(shard, Stream(seed).at(place=number), np.zeros((3, 2)), splits(2, (1, 0, 0)))
            probes.step(1, np.zeros(3), np.zeros((1, 3)), np.arange(len(part)), np.zeros((len(part), 1)))
            assert probes.other_side[0] == 0
            total += probes.probes
        sums.append(total)
    np.testing.assert_allclose(sums[0], sums[1], atol=1e-12)
