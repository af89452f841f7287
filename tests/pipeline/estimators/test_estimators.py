"""The estimators with scikit-learn's tools; families that are not installed are skipped."""

import doctest
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

from collapsium.pipeline import Model, evaluate, infer
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.estimators import CollapsedHDP, CollapsedLDA, GibbsHDP
from collapsium.pipeline.estimators import estimators as families
from collapsium.pipeline.models.registry import load_family
from collapsium.storage.errors import InputError, MissingError, OccupiedError, OptionError
from collapsium.storage.runs.members import member_seed
from collapsium.storage.runs.run import Run
from tests.conftest import simulated_rows
from tests.estimating import ALL, COLLAPSED, THERE, bits, matrix_of, model_bits, small_of

# Without the option to round, the estimators refuse fractional counts, which these checks use.
FRACTIONAL = {
    "check_fit_score_takes_y",
    "check_estimators_overwrite_params",
    "check_dont_overwrite_parameters",
    "check_estimators_fit_returns_self",
    "check_readonly_memmap_input",
    "check_n_features_in_after_fitting",
    "check_estimators_dtypes",
    "check_dtype_object",
    "check_pipeline_consistency",
    "check_estimators_nan_inf",
    "check_estimator_sparse_tag",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_transformer_data_not_an_array",
    "check_transformer_general",
    "check_transformer_preserve_dtypes",
    "check_transformer_n_iter",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_fit2d_1sample",
    "check_fit2d_1feature",
    "check_dict_unchanged",
    "check_fit_idempotent",
    "check_fit_check_is_fitted",
    "check_n_features_in",
    "check_fit2d_predict1d",
}


@pytest.fixture(scope="module")
def counts():
    """Sixty documents, some empty, of 30 words."""
    return matrix_of(simulated_rows(1))


# What scikit-learn asks for.


def checks(estimators):
    """Return scikit-learn's checks: all for the first estimator, and a third in turn for the others, which share all
    but options."""
    for number, estimator in enumerate(estimators):
        for place, case in enumerate(estimator_checks_generator(estimator)):
            if not number or place % 3 == number % 3:
                yield case


def named(value):
    return getattr(getattr(value, "func", value), "__name__", type(value).__name__)


@pytest.mark.parametrize(
    ("estimator", "check"),
    list(checks([estimator(2, max_iter=3, fractional="round") for estimator in THERE])),
    ids=named,
)
def test_estimator__rounding__passes_the_checks(estimator, check):
    assert check(estimator) is None  # raises an error if a check fails


@pytest.mark.parametrize(("estimator", "check"), list(estimator_checks_generator(THERE[0](2, max_iter=3))), ids=named)
def test_estimator__without_rounding__passes_the_checks_with_integers(estimator, check):
    if named(check) not in FRACTIONAL:
        assert check(estimator) is None  # raises an error if a check fails
        return
    # Letting the checks fail in pytest would parse scikit-learn's module for each traceback.
    with pytest.raises((InputError, AssertionError)) as refused:
        check(estimator)
    causes = (refused.value, refused.value.__cause__, refused.value.__context__)
    assert any("expected whole counts of words" in str(cause) for cause in causes)


@pytest.mark.parametrize("cls", ALL)
def test_estimator__has_the_options_of_its_family(cls, counts):
    if cls not in THERE:
        pytest.skip(f"there is no family '{cls.FAMILY}'")
    config, estimator = load_family(cls.FAMILY).Options, small_of(cls)
    assert {cls.TOPICS, *cls.family_options()} <= set(config.model_fields)
    for name in cls.family_options():
        assert getattr(estimator, name) == config.model_fields[name].default
    theta = estimator.fit_transform(counts)
    assert theta.shape == (60, estimator.components_.shape[0])
    np.testing.assert_allclose(theta.sum(axis=1), 1)
    assert (theta >= 0).all()
    assert estimator.components_.shape[1] == 30
    assert estimator.perplexity(counts) == np.exp(-estimator.score(counts))


@pytest.mark.parametrize("cls", ALL)
def test_estimator__examples_of_its_docstring_are_true(cls):
    if cls not in THERE:
        pytest.skip(f"there is no family '{cls.FAMILY}'")
    tests = doctest.DocTestFinder(recurse=False).find(cls, cls.__name__, globs={})
    assert tests[0].examples
    found = [doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example) for example in tests]
    assert sum(outcome.failed for outcome in found) == 0


def test_estimator__of_a_missing_family__says_so(counts, monkeypatch):
    monkeypatch.setattr(CollapsedLDA, "FAMILY", "no-such")
    with pytest.raises(ValueError, match="unknown family 'no-such'"):
        small_of(CollapsedLDA).fit(counts)


def test_pipeline__importing_it__does_not_import_scikit_learn():
    code = "import sys, collapsium.pipeline as p; p.fit, p.infer, p.evaluate; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_estimators__without_scikit_learn__name_the_extra(monkeypatch):
    for name in [module for module in sys.modules if module.startswith("collapsium.pipeline.estimators")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn.utils.validation", None)
    with pytest.raises(MissingError, match=r"collapsium\[sklearn\]") as raised:
        __import__("collapsium.pipeline.estimators")
    assert isinstance(raised.value, ImportError)


def test_estimator__works_in_a_pipeline_and_a_search():
    words = ["ship sail sea wind", "sea sail harbour", "wind ship harbour sea", "sail wind"]
    kitchen = ["bread flour oven", "oven salt bread dough", "flour dough salt", "bread dough oven"]
    texts = [text for pair in zip(words, kitchen, strict=True) for text in pair] * 3
    pipe = make_pipeline(CountVectorizer(), CollapsedLDA(beta=2.0, max_iter=20, random_state=0))
    grid = {"collapsedlda__n_components": np.array([1, 2]), "collapsedlda__alpha": np.array([0.1])}
    search = GridSearchCV(pipe, grid, cv=3).fit(texts)
    assert search.best_params_["collapsedlda__n_components"] == 2
    theta = search.transform(texts)
    assert (theta[::2].argmax(axis=1) == theta[0].argmax()).all()
    assert (theta[1::2].argmax(axis=1) != theta[0].argmax()).all()
    assert list(search.best_estimator_.get_feature_names_out()) == ["collapsedlda0", "collapsedlda1"]


def test_estimator__frames__keep_names(counts):
    frame = pd.DataFrame(counts, columns=[f"word{n}" for n in range(30)])
    estimator = small_of(CollapsedLDA).set_output(transform="pandas").fit(frame)
    assert list(estimator.feature_names_in_[:2]) == ["word0", "word1"]
    assert list(estimator.transform(frame).columns) == ["collapsedlda0", "collapsedlda1", "collapsedlda2"]
    with pytest.raises(ValueError, match="feature names"):
        estimator.transform(frame.iloc[:, ::-1])


def test_estimator__random_state__is_the_seed(counts):
    again = [small_of(CollapsedLDA, random_state=state).fit(counts) for state in (0, np.int64(0), 1)]
    assert bits(again[0]) == bits(again[1]) != bits(again[2])
    drawn = [small_of(CollapsedLDA, random_state=np.random.RandomState(3)).fit(counts) for _ in range(2)]
    assert bits(drawn[0]) == bits(drawn[1])


# the same results as elsewhere


@pytest.mark.parametrize("cls", THERE)
def test_fit__equals_the_command_bit_for_bit(cls, small, shard_tokens, counts, tmp_path):
    topics = f"{cls.TOPICS}=3"
    words = ["fit", small[0], tmp_path / "run", "--family", cls.FAMILY, "--set", topics, "--iterations", 5]
    assert main([str(word) for word in [*words, "--seed", 4, "--scheduler", "serial", "--quiet"]]) == 0
    expected = model_bits(Model(tmp_path / "run"))
    options = {"random_state": 4, "shard_tokens": shard_tokens[0]}
    assert bits(small_of(cls, **options).fit(counts)) == expected
    assert bits(small_of(cls, **options, n_jobs=3).fit(counts)) == expected
    assert bits(small_of(cls, **options, scheduler="serial").fit(small[0])) == expected
    kept = small_of(cls, **options, run=tmp_path / "kept").fit(counts)
    assert bits(kept) == expected == model_bits(Model(tmp_path / "kept"))
    assert kept.n_iter_ == 5


def test_fit__existing_run__is_refused(counts, tmp_path):
    estimator = small_of(CollapsedLDA, run=tmp_path / "run").fit(counts)
    with pytest.raises(OccupiedError, match="run"):
        estimator.fit(counts)


@pytest.mark.parametrize("options", [{"order": 2}, {"learn": ("asymmetric-alpha", "asymmetric-beta")}])
def test_fit__components__include_the_word_prior(options, counts):
    estimator = small_of(CollapsedLDA, **options).fit(counts)
    (block,), state = estimator._fitted.blocks, estimator._fitted.global_state
    prior = np.full(30, state.beta / 30)
    if options.get("learn"):
        prior = (block.rows.word_tables + state.word_tables_prior) / state.beta_rate
    np.testing.assert_allclose(estimator.components_, block.rows.word_topic.T + prior, rtol=1e-5)


@pytest.mark.parametrize("cls", COLLAPSED)
@given(data=st.data())
def test_fit__feature_is_the_word_of_its_number(cls, data):
    shape = (data.draw(st.integers(1, 5)), data.draw(st.integers(1, 7)))
    drawn = data.draw(st.lists(st.integers(0, 3), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    counts = np.array(drawn).reshape(shape)
    counts[-1, data.draw(st.integers(0, shape[1] - 1))] = 1
    estimator = small_of(cls, max_iter=2, beta=1.0).fit(counts)
    assert estimator.n_features_in_ == shape[1]
    expected = counts.sum(axis=0) + 3 * 1.0 / shape[1]
    np.testing.assert_allclose(estimator.components_.sum(axis=0), expected, rtol=1e-4, atol=1e-4)


def test_transform_and_score__match_the_commands(small, counts, tmp_path):
    estimator = small_of(CollapsedLDA, shard_tokens=500, run=tmp_path / "run").fit(small[0])
    infer(tmp_path / "run", small[1], tmp_path / "theta.parquet", threshold=0.0)
    table = pq.read_table(tmp_path / "theta.parquet").to_pydict()
    theta = np.zeros((60, 3))
    for number, (topics, shares) in enumerate(zip(table["topics"], table["proportions"], strict=True)):
        theta[number, topics] = shares
    found = estimator.transform(small[1])
    np.testing.assert_allclose(found, theta, atol=1e-6)
    unseen = matrix_of(simulated_rows(2))
    np.testing.assert_allclose(estimator.transform(unseen), found, rtol=1e-12)
    score = evaluate(tmp_path / "run", unseen=small[1]).score
    assert estimator.score(unseen) == pytest.approx(score, rel=1e-12)
    assert estimator.score(small[1]) == pytest.approx(score, rel=1e-12)


def test_transform__truncated__sums_to_one(counts):
    estimator = small_of(CollapsedHDP, options={"hold": 0}).fit(counts)
    assert estimator._fitted.global_state.pi.sum() < 0.9999
    np.testing.assert_allclose(estimator.transform(counts).sum(axis=1), 1)


def test_transform__does_not_depend_on_the_number_of_threads(counts):
    estimator = small_of(CollapsedHDP, beta=2.0).fit(counts)
    repeated = np.tile(counts, (20, 1))
    found = estimator.transform(repeated)
    assert np.array_equal(clone(estimator).set_params(n_jobs=3).fit(counts).transform(repeated), found)
    assert np.array_equal(np.tile(estimator.transform(counts), (20, 1)), found)
    np.testing.assert_allclose(found[5], estimator.transform(np.zeros((1, 30), dtype=int))[0])


@pytest.mark.parametrize("cls", THERE)
def test_estimator__pickled__is_the_same(cls, counts):
    estimator = small_of(cls).fit(counts)
    again = pickle.loads(pickle.dumps(estimator))
    assert bits(again) == bits(estimator)
    assert np.array_equal(again.transform(counts), estimator.transform(counts))
    assert clone(again).get_params() == estimator.get_params()


# Plots


def valid(topic_term_dists, doc_topic_dists, doc_lengths, vocab, term_frequency, sort_topics, start_index):
    """Require that the input meets pyLDAvis's requirements, including finite logarithms, and has topics in the order
    of rows."""
    assert (sort_topics, start_index) == (False, 0)
    assert topic_term_dists.shape == (doc_topic_dists.shape[1], len(vocab))
    assert len(doc_lengths) == doc_topic_dists.shape[0]
    assert len(term_frequency) == len(vocab)
    assert (topic_term_dists.sum(axis=1) >= 0.999).all()
    assert (doc_topic_dists.sum(axis=1) >= 0.999).all()
    assert (term_frequency > 0).all()
    assert (topic_term_dists > 0).all()
    assert (doc_lengths > 0).all()
    assert ((doc_topic_dists * doc_lengths[:, np.newaxis]).sum(axis=0) > 0).all()


@pytest.mark.parametrize("cls", THERE)
def test_to_pyldavis__returns_valid_input(cls, counts):
    counts = np.concatenate([counts, np.zeros((60, 2), dtype=int)], axis=1)
    names = [f"name{n}" for n in range(32)]
    estimator = small_of(cls, beta=2.0).fit(counts)
    found = estimator.to_pyldavis(counts, vocabulary=names)
    valid(**found)
    present = np.flatnonzero(counts.sum(axis=0))
    assert found["vocab"] == [names[n] for n in present]
    assert found["term_frequency"].tolist() == counts.sum(axis=0)[present].tolist()
    assert found["doc_lengths"].tolist() == [n for n in counts.sum(axis=1).tolist() if n]
    theta = estimator.transform(counts)[counts.sum(axis=1) > 0]
    assert np.array_equal(found["doc_topic_dists"], theta)
    assert estimator.to_pyldavis(scipy.sparse.csr_array(counts))["vocab"][0] == f"x{present[0]}"
    with pytest.raises(ValueError, match="expected 32 words"):
        estimator.to_pyldavis(counts, vocabulary=names[1:])
    with pytest.raises(ValueError, match="at least one document"):
        estimator.to_pyldavis(np.zeros((1, 32)))


def test_a_pipeline__separates_ships_from_bread(capsys):
    texts = ["ship sail sea wind", "sea harbour sail", "bread flour oven", "oven salt bread dough"]
    model = make_pipeline(CountVectorizer(), CollapsedLDA(n_components=2, beta=2.0, max_iter=50, random_state=0))
    print(model.fit_transform(texts).round(2))
    print(model[-1].components_.argmax(axis=1), model.score(texts))
    *theta, last = capsys.readouterr().out.splitlines()
    shares = np.array([[float(number) for number in line.strip(" []").split()] for line in theta])
    assert shares.argmax(axis=1).tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])  # one topic of ships and one of bread
    assert float(last.rpartition("]")[2]) < 0


def test_families__are_all_documented_as_classes():
    for cls in ALL:
        assert cls.__doc__.startswith(("Latent", "The hier"))
        assert getattr(families, cls.__name__) is cls


# Restarts, initialisations and weights -------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [CollapsedLDA, GibbsHDP])
def test_restarts__are_averaged_as_by_the_functions(counts, tmp_path, cls):
    estimator = small_of(cls, random_state=3, restarts=3, run=tmp_path / "run").fit(counts)
    model = Model(tmp_path / "run")
    assert len(model.members) == 3
    theta = estimator.transform(counts)
    assert theta.sum(axis=1) == pytest.approx(1.0)
    assert theta.shape[1] == len(estimator.components_)
    again = pickle.loads(pickle.dumps(small_of(cls, random_state=3, restarts=3).fit(counts)))
    assert again.transform(counts).tobytes() == theta.tobytes()
    assert again.components_.tobytes() == estimator.components_.tobytes()
    alone = [small_of(cls, random_state=member_seed(3, number)).fit(counts) for number in range(3)]
    assert estimator.score(counts) > np.mean([estimator.score(counts) for estimator in alone])  # by Jensen's inequality
    if cls is CollapsedLDA:
        first, *_ = (
            m
            for m, member in zip(alone, model.record.members, strict=True)
            if list(member.columns) == sorted(member.columns)
        )
        shares = [
            estimator.transform(counts)[:, list(member.columns)]
            for estimator, member in zip(alone, model.record.members, strict=True)
        ]
        assert theta == pytest.approx(np.mean(shares, axis=0), abs=1e-6)
        assert first.components_.shape == estimator.components_.shape


def test_a_consensus_and_an_initialisation__match_the_functions(counts, tmp_path):
    options = {"restarts": 2, "combine": "consensus", "init": "documents", "init_strength": 1.0, "weights": "idf"}
    estimator = small_of(CollapsedLDA, random_state=3, run=tmp_path / "run", **options).fit(counts)
    record = Run(tmp_path / "run").record()
    assert (record["combine"], record["start"]["kind"], record["options"]["weights"]) == (
        "consensus",
        "documents",
        "idf",
    )
    loaded = small_of(CollapsedLDA, random_state=3, **options).fit(counts)
    assert loaded.transform(counts).tobytes() == estimator.transform(counts).tobytes()
    for more, text in (
        ({"combine": "consensus"}, "requires 2 models or more"),
        ({"init": "nearby"}, "init: expected random"),
        ({"init_strength": 1.0}, "random proportions are not a prior"),
    ):
        with pytest.raises(OptionError, match=text):
            small_of(CollapsedLDA, **more).fit(counts)
