"""Seeded topics: raised word priors place a topic at its seeds, and its name is shown wherever topics are listed."""

import json

import numpy as np
import pytest

from collapsium.pipeline import Corpus, Model, evaluate, fit, infer, name_topics, report, resume, topics, verify
from collapsium.pipeline.estimators import CollapsedLDA
from collapsium.storage.errors import OptionError
from tests.conftest import EXECUTORS, mark_rest_long, write_corpus
from tests.fits import bits, resumed
from tests.pipeline.cli.commands import command, one_line

TRUE_TOPICS, WORDS, SEED_WORDS = 8, 160, 3
DOCUMENTS, FEW = 300, 100
FAMILIES = {
    "lda": {"family": "lda", "topics": 8},
    "dense": {"family": "lda", "topics": 8, "responsibilities": "dense"},
    "hdp": {"family": "hdp", "topics": 12},
}


def true_topics():
    """Return topics (topics, words), each of which has some words for itself besides common words."""
    generator = np.random.default_rng(5)
    phi = np.full((TRUE_TOPICS, WORDS), 0.15 / WORDS)
    for topic in range(TRUE_TOPICS):
        topic_words = slice(20 * topic, 20 * topic + 20)
        phi[topic, topic_words] += 0.85 * generator.dirichlet(np.full(20, 1.0))
    return phi / phi.sum(axis=1, keepdims=True)


def seeds_of(chosen, strength=1.0):
    """Return three words of medium probability for each of some true topics."""
    phi = true_topics()
    order = [np.argsort(-phi[topic])[3 : 3 + SEED_WORDS] for topic in chosen]
    return {
        f"true {topic}": {"words": [f"w{word}" for word in words], "strength": strength}
        for topic, words in zip(chosen, order, strict=True)
    }


def write_documents(place, documents):
    """Write documents simulated from the true topics."""
    generator, phi = np.random.default_rng(7), true_topics()
    rows = []
    for _ in range(documents):
        theta = generator.dirichlet(np.full(TRUE_TOPICS, 0.15))
        counts = generator.multinomial(60, theta @ phi)
        rows.append({int(word): int(counts[word]) for word in np.flatnonzero(counts)})
    return write_corpus(place / "corpus", rows, WORDS, shard_tokens=4000)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus with enough documents to find the topics."""
    return write_documents(tmp_path_factory.mktemp("seeds"), DOCUMENTS)


@pytest.fixture(scope="module")
def small_sample(tmp_path_factory):
    """A corpus of few of these documents, in two shards."""
    return write_documents(tmp_path_factory.mktemp("small_sample"), FEW)


def similarity(model, topic, true):
    """Return the Bhattacharyya coefficient of the word probabilities of a topic and a true topic."""
    return float(np.sqrt(model.topic_word[topic] * true_topics()[true]).sum())


@pytest.mark.parametrize("name", FAMILIES)
def test_seeded_topics__are_found_where_their_seeds_are(corpus, tmp_path, name):
    chosen = (6, 1, 4)
    fit(corpus, tmp_path / "run", iterations=40, scheduler="serial", seeds=seeds_of(chosen), **FAMILIES[name])
    model = Model(tmp_path / "run")
    for topic, true in enumerate(chosen):
        alike = [similarity(model, topic, true_topic) for true_topic in range(TRUE_TOPICS)]
        assert np.argmax(alike) == true
        assert alike[true] > 0.8
    assert verify(tmp_path / "run").broken == []


def test_seeded_topics__are_found_with_every_random_seed(corpus, tmp_path):
    found = []
    for seed in range(4):
        fit(
            corpus,
            tmp_path / f"run{seed}",
            iterations=25,
            seed=seed,
            seeds=seeds_of((2, 5)),
            scheduler="serial",
            **FAMILIES["lda"],
        )
        model = Model(tmp_path / f"run{seed}")
        found += [
            np.argmax([similarity(model, k, true) for true in range(TRUE_TOPICS)]) == expected
            for k, expected in ((0, 2), (1, 5))
        ]
    assert all(found)


@pytest.mark.parametrize("name", FAMILIES)
def test_counts__match_the_corpus_and_pseudo_counts(small_sample, tmp_path, name):
    fit(small_sample, tmp_path / "run", iterations=5, scheduler="serial", seeds=seeds_of((0,), 2.0), **FAMILIES[name])
    model, vocabulary = Model(tmp_path / "run"), Corpus(small_sample).vocabulary
    rows = np.concatenate([model.rows(number).dense_counts for number in range(len(model.blocks))]).astype(np.float64)
    pseudo = np.zeros(rows.shape)
    for word in seeds_of((0,))["true 0"]["words"]:
        number = vocabulary.words.index(word)
        pseudo[number, 0] = 2.0 * vocabulary.tokens[number]
    assert np.allclose(rows.sum(axis=1) - pseudo.sum(axis=1), vocabulary.tokens, rtol=1e-4, atol=1e-3)
    assert (rows >= pseudo - 1e-3).all()
    assert np.allclose(model.global_state.topic_moments[0], rows.sum(axis=0), rtol=1e-4)
    assert sum(topic.share for topic in topics(tmp_path / "run")) == pytest.approx(1.0)
    assert model.global_state.tokens.sum() == pytest.approx(vocabulary.tokens.sum(), rel=1e-4)


@pytest.mark.parametrize(
    ("name", "strength"),
    mark_rest_long(
        [("lda", 1e6), ("dense", 1e4), ("hdp", 1e6), ("lda", 1e4), ("dense", 1e6), ("hdp", 1e4)], retained=range(3)
    ),
)
def test_tokens_of_seed_words__are_all_counted_despite_very_large_pseudo_counts(small_sample, tmp_path, name, strength):
    options = {**FAMILIES[name], "seeds": seeds_of((0, 3), strength), "checkpoint_every": 1}
    model = fit(small_sample, tmp_path / "run", iterations=12, scheduler="serial", **options)
    vocabulary = Corpus(small_sample).vocabulary
    found = np.concatenate([model.family.word_tokens(model.rows(n)) for n in range(len(model.blocks))])
    np.testing.assert_allclose(found, vocabulary.tokens, rtol=1e-5)
    assert verify(tmp_path / "run").broken == []
    assert model.global_state.tokens.sum() == pytest.approx(vocabulary.tokens.sum(), rel=1e-5)
    for topic, seeds in enumerate(options["seeds"].values()):
        assert model.topic_word[topic, [vocabulary.words.index(word) for word in seeds["words"]]].sum() > 0.9
    (tmp_path / "run" / "model" / "model.json").unlink()
    again = resume(tmp_path / "run", scheduler="serial")
    assert bits(again, len(model.record.shards)) == bits(model, len(model.record.shards))


def test_pseudo_counts__are_stored_separately_only_if_counts_would_lose_precision_otherwise(small_sample, tmp_path):
    """At strength 1 rows have no larger numbers than without seeds, so results stay as they were."""
    for strength, apart in ((1.0, None), (2.0, None), (1e3, True)):
        place = tmp_path / str(strength)
        model = fit(
            small_sample, place, iterations=2, seeds=seeds_of((1,), strength), scheduler="serial", **FAMILIES["lda"]
        )
        assert model.global_state.seeds_apart is apart


def test_the_first_update__uses_raised_priors(small_sample, tmp_path):
    """phi_kw = (b_w + s_kw + E[n_kw]) / (B + s_k + E[n_k]), where E[n_kw] excludes the pseudo-counts."""
    fit(small_sample, tmp_path / "run", iterations=3, scheduler="serial", seeds=seeds_of((3,)), **FAMILIES["lda"])
    model, vocabulary = Model(tmp_path / "run"), Corpus(small_sample).vocabulary
    state = model.global_state
    rows = np.concatenate([model.rows(number).dense_counts for number in range(len(model.blocks))]).astype(np.float64)
    seeds = np.zeros(rows.shape)
    np.add.at(seeds, (state.seed_words, state.seed_topics), state.seed_counts)
    counted = rows - seeds
    expected = (state.beta / WORDS + seeds + counted) / (state.beta + seeds.sum(axis=0) + counted.sum(axis=0))
    assert np.allclose(model.topic_word.T, expected / expected.sum(axis=0), rtol=1e-4)
    assert len(vocabulary.words) == WORDS


def test_bits__do_not_depend_on_the_executor_and_survive_a_resume(corpus, tmp_path):
    options = {**FAMILIES["lda"], "seeds": seeds_of((0, 3)), "iterations": 6}
    found = []
    for number, (scheduler, workers) in enumerate(EXECUTORS[:2]):
        fit(corpus, tmp_path / f"run{number}", scheduler=scheduler, workers=workers, **options)
        model = Model(tmp_path / f"run{number}")
        found.append(bits(model, len(model.record.shards)))
    fit(corpus, tmp_path / "part", scheduler="serial", **{**options, "iterations": 3}, checkpoint_every=1)
    assert [topic.title for topic in sorted(topics(tmp_path / "part"), key=lambda topic: topic.id)][:2] == [
        "true 0",
        "true 3",
    ]
    resumed(tmp_path / "part", iterations=6, scheduler="serial")
    model = Model(tmp_path / "part")
    found.append(bits(model, len(model.record.shards)))
    assert found[0] == found[1] == found[2]


def test_names_of_seeded_topics__are_shown_everywhere_and_not_replaced_by_a_namer(small_sample, tmp_path, capsys):
    path = tmp_path / "seeds.toml"
    path.write_text(
        'space = ["w0", "w1"]\n\n[" bad name"]\nwords = ["w40"]\nstrength = 3.5\n'.replace(
            " bad name", "seas & <oceans>"
        )
    )
    code, _, err = command(
        capsys, "fit", small_sample, tmp_path / "run", "--family", "lda", "--topics", 8, "--iterations", 8, "--seeds", path,
        "--scheduler", "serial", "--quiet",
    )  # fmt: skip
    assert (code, err) == (0, "")
    named = {topic.id: topic.title for topic in topics(tmp_path / "run")}
    assert (named[0], named[1], named[2]) == ("space", "seas & <oceans>", None)
    assert Model(tmp_path / "run").record.options["seeds"][1] == {
        "name": "seas & <oceans>",
        "strength": 3.5,
        "words": ["w40"],
    }
    again = name_topics(tmp_path / "run", lambda words, documents: "named")
    assert (again[0], again[1], again[2]) == ("space", "seas & <oceans>", "named")
    report(tmp_path / "run", tmp_path / "report.html")
    assert "seas &amp; &lt;oceans&gt;" in (tmp_path / "report.html").read_text(encoding="utf-8")
    path.unlink()
    resume(tmp_path / "run", iterations=9, scheduler="serial")
    fit(
        small_sample, tmp_path / "warm", family="lda", topics=8, iterations=2, warm=tmp_path / "run", scheduler="serial"
    )
    assert infer(tmp_path / "run", small_sample, tmp_path / "out.csv").rows == FEW


def test_scores__do_not_suffer_from_correct_seeds(corpus, tmp_path):
    from collapsium.pipeline import split

    split(corpus, tmp_path / "train", tmp_path / "heldout")
    scores = []
    for name, seeds in (("plain", {}), ("seeded", seeds_of(range(TRUE_TOPICS), 0.3))):
        fit(tmp_path / "train", tmp_path / name, iterations=30, seeds=seeds, scheduler="serial", **FAMILIES["lda"])
        scores.append(evaluate(tmp_path / name, heldout=tmp_path / "heldout").score)
    assert scores[1] > scores[0] - 0.02


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('space = ["w00x"]', "did you mean 'w"),
        ('space = ["orbit"]', "it has no 'orbit'"),
        ("space = []", "space"),
        ("space = 3", "space"),
        ("space = [3]", "space"),
        ('[space]\nword = ["w1"]', "space"),
        ('[space]\nwords = ["w1"]\nstrength = 0', "strength"),
        ('[space]\nwords = ["w1"]\nstrength = "strong"', "strength"),
        ('" " = ["w1"]', "name"),
        ("".join(f'"t{n}" = ["w{n}"]\n' for n in range(9)), "at most 8 seeded topics"),
        ("space =", "expected TOML"),
    ],
)
def test_invalid_seeds__are_refused_in_one_line_before_anything_is_written(
    small_sample, tmp_path, capsys, text, reason
):
    (tmp_path / "seeds.toml").write_text(text)
    flags = ("--family", "lda", "--topics", 8, "--iterations", 2, "--seeds", tmp_path / "seeds.toml")
    code, _, err = command(capsys, "fit", small_sample, tmp_path / "run", *flags, "--quiet")
    assert code == 2
    assert reason in one_line(err)
    assert not (tmp_path / "run").exists()


def test_seeds__are_refused_with_learned_word_priors_and_with_minibatches(small_sample, tmp_path):
    seeds = seeds_of((0,))
    for options in ({"learn": ("beta",)}, {"order": 2}, {"schedule": "stochastic", "passes": 1}):
        with pytest.raises(OptionError, match="seeds"):
            fit(small_sample, tmp_path / "run", family="lda", topics=8, seeds=seeds, scheduler="serial", **options)
    with pytest.raises(OptionError, match="seeds"):
        fit(
            small_sample,
            tmp_path / "hdp",
            family="hdp",
            topics=8,
            split_merge_moves=True,
            iterations=120,
            seeds=seeds,
            scheduler="serial",
        )
    with pytest.raises(OptionError, match="there is no"):
        fit(
            small_sample,
            tmp_path / "none",
            family="lda",
            topics=8,
            seeds=str(tmp_path / "none.toml"),
            scheduler="serial",
        )
    with pytest.raises(OptionError, match="seeds"):
        fit(small_sample, tmp_path / "gibbs", family="gibbs-lda", topics=8, seeds=seeds, scheduler="serial")


def test_estimators__accept_seeds_as_an_option():
    counts = np.tile([[9, 4, 0, 0], [8, 6, 0, 0], [0, 0, 7, 5], [0, 0, 9, 3]], (20, 1))
    for words, column in ((["x2"], 2), (["x0"], 0)):
        lda = CollapsedLDA(n_components=2, beta=0.1, max_iter=20, random_state=0, options={"seeds": {"first": words}})
        assert lda.fit(counts).components_[0].argmax() == column
    assert json.dumps(lda.top_words(1))
