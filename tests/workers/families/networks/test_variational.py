"""Variational inference for networks: conformance, and recovery of simulated topics."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from collapsium.pipeline import Corpus, Model, evaluate, fit, simulate
from collapsium.storage.corpus.shard import EXTRAS
from collapsium.storage.corpus.writer import CorpusWriter
from collapsium.storage.errors import OptionError
from collapsium.storage.io.folder import Folder, created
from tests.conformance import Conformance, references  # noqa: F401 - fixture
from tests.conftest import simulated_rows
from tests.strategies import documents_of

EXPECTED = {"inference": "variational"}


def write_segmented(path, rows, vocabulary, shard_tokens=None):
    """Write a corpus in which document n is cut into 1 + n % 3 segments, some of them empty."""
    generator, parts, lengths = np.random.default_rng(len(rows)), [], []
    for number, row in enumerate(rows):
        count_of_segments = 1 + number % 3
        segments = [{} for _ in range(count_of_segments)]
        for word, count in row.items():
            for place, some in enumerate(
                generator.multinomial(count, np.full(count_of_segments, 1 / count_of_segments))
            ):
                if some:
                    segments[place][word] = int(some)
        parts += segments
        lengths.append([len(topics) for topics in segments])
    whole, ends = documents_of(parts), np.cumsum([0, *(len(segment_lengths) for segment_lengths in lengths)])
    ids = pa.array([str(number + 1) for number in range(len(rows))])
    documents = replace(whole, ids=ids, offsets=whole.offsets[ends])
    documents = replace(documents, extras={"segments": pa.array(lengths, EXTRAS["segments"])})
    with created(Folder(path)) as folder:
        writer = CorpusWriter(folder, vocabulary, shard_tokens)
        writer.add(documents)
        writer.finish([f"w{n}" for n in range(vocabulary)])
    return path


@pytest.fixture(scope="session")
def segmented_small(tmp_path_factory, shard_tokens):
    """A training and a held-out corpus of 60 documents with segments."""
    place = tmp_path_factory.mktemp("segmented")
    train = write_segmented(place / "train", simulated_rows(1), 30, shard_tokens=shard_tokens[0])
    return str(train), str(write_segmented(place / "heldout", simulated_rows(2), 30, shard_tokens=shard_tokens[1]))


class TestExpectedTables(Conformance):
    family = "segmented-lda"
    matrix = ({"topics": 4, **EXPECTED, "learn": ("strength", "alpha", "beta")},)

    @pytest.fixture
    def small(self, segmented_small):
        return segmented_small

    def corpus(self, path, rows, vocabulary, shard_tokens=None, theta=None):
        return write_segmented(path, rows, vocabulary, shard_tokens)


NETWORKS = {
    "segmented": ("segmented-lda", {}),
    "sequential": ("sequential-lda", {"discount": 0.2}),
    "diamond": (
        "dirichlet-network",
        {
            "network": {
                "whole": {"over": "corpus"},
                "document": {"over": "document", "parents": ["whole"]},
                "section": {"over": "segment", "every": 2, "parents": ["document"]},
                "segment": {"over": "segment", "parents": ["section", "segment[-1]"], "otherwise": ["section"]},
            },
        },
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_simulated_topics__are_recovered(name, tmp_path):
    family, options = NETWORKS[name]
    settings = {"family": family, "topics": 3, "beta": 6.0, "alpha": 0.3, "seed": 4, **options}
    simulate(tmp_path / "c", documents=60, words=60, tokens=100, **{**settings, "strength": 5.0})
    model = fit(tmp_path / "c", tmp_path / "run", iterations=60, scheduler="serial", **settings, **EXPECTED)
    word_topic = np.asarray(model.rows(0).word_topic)
    assert np.isclose(word_topic.sum(), Corpus(tmp_path / "c").manifest.tokens)
    found = (word_topic / word_topic.sum(axis=0)).T
    true = np.asarray(Model(tmp_path / "c/truth").rows(0).word_topic)
    true = (true / true.sum(axis=0)).T
    distance = 0.5 * np.abs(found[:, np.newaxis] - true).sum(axis=2)
    assert sorted(distance.argmin(axis=1)) == [0, 1, 2]
    assert distance.min(axis=1) @ word_topic.sum(axis=0) / word_topic.sum() < 0.12  # a topic may have few tokens


def test_a_discount__is_not_learned(segmented_small, tmp_path):
    with pytest.raises(OptionError, match="learn: discount is fixed with `inference` variational"):
        fit(
            segmented_small[0], tmp_path / "run", family="segmented-lda", topics=2, learn=("strength", "discount"),
            scheduler="serial", **EXPECTED,
        )  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_variational_fits__warm_start_from_samplers_and_the_reverse(segmented_small, tmp_path):
    """Topics are transferred in both directions, and the held-out score hardly decreases."""
    options = {"family": "segmented-lda", "topics": 3, "beta": 3.0, "scheduler": "serial"}
    ways = ({}, EXPECTED, {})
    for number, way in enumerate(ways):
        warm = {"warm": tmp_path / str(number - 1)} if number else {}
        fit(segmented_small[0], tmp_path / str(number), iterations=15, **options, **way, **warm)
    scores = [evaluate(tmp_path / str(n), heldout=segmented_small[1], scheduler="serial").score for n in range(3)]
    assert max(scores) - min(scores) < 0.25
