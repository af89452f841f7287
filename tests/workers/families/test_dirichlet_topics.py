"""Topics and priors over which likelihoods integrate, and the prediction of documents without words."""

import numpy as np
import pytest

from collapsium.pipeline import Corpus, Model, fit
from collapsium.pipeline.models.registry import family_names, load_family
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import IntegratesProportions

OPTIONS = {
    "lda": {"topics": 4, "alpha": 0.3},
    "vb-lda": {"topics": 4},
    "gibbs-lda": {"topics": 4},
    "hdp": {"topics": 6},
    "gibbs-hdp": {},
    "keyword-lda": {"topics": 4, "seeds": {"first": ["w1"]}},
}


def test_families_of_flat_topics_with_one_prior__have_dirichlet_topics():
    able = {name for name in family_names() if issubclass(load_family(name), IntegratesProportions)}
    assert able == set(OPTIONS)


@pytest.mark.parametrize("family", sorted(OPTIONS))
def test_mean_of_the_prior__predicts_a_document_without_words(family, small, tmp_path):
    fit(small[0], tmp_path / "run", family=family, iterations=5, scheduler="serial", **OPTIONS[family])
    model = Model(tmp_path / "run")
    shard = next(iter(Corpus(small[0]).references)).load()
    blocks = [tasks.Block(low, high, model.rows(n), Delta()) for n, (low, high) in enumerate(model.blocks)]
    rows = tasks.gather(blocks, shard.words, complete=True)
    topics = model.family.dirichlet_topics(rows, model.global_state)
    local = tasks.fold_in(model.family, shard.emptied(), blocks, model.global_state, Stream(0))
    expected = model.family.predict(shard, local, rows, model.global_state)["probability"]
    mean = topics.word_topic @ (topics.prior / topics.prior.sum())
    np.testing.assert_allclose(mean[shard.position], expected, rtol=1e-9)
    assert (topics.prior > 0).all()
