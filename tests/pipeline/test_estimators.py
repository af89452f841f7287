"""The estimators in scikit-learn's company; a family that is not there is skipped."""

import doctest
import pickle
import subprocess
import sys
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from collapsar.pipeline import Corpus, Model, evaluate, fit, infer
from collapsar.pipeline.commands.main import main
from collapsar.pipeline.contract import family_names, load_family
from collapsar.pipeline.estimators import CollapsedHDP, CollapsedLDA, GibbsHDP, GibbsLDA, VariationalLDA, families
from collapsar.pipeline.estimators.matrices import portions, validated
from collapsar.storage.errors import MissingError, OccupiedError
from tests.conftest import planted_rows, write_corpus

ALL = (CollapsedLDA, CollapsedHDP, VariationalLDA, GibbsLDA, GibbsHDP)
THERE = [one for one in ALL if one.FAMILY in family_names()]
COLLAPSED = [CollapsedLDA, CollapsedHDP]

# Without being told to round, the estimators refuse counts that are not whole, which these checks feed them.
FRACTIONAL = dict.fromkeys(
    [
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
    ],
    "the check fits to fractions, and a count of words is a whole number",
)


def small_of(cls, **more):
    """An estimator of few topics and sweeps."""
    return cls(**{"n_components": 3, "max_iter": 5, "random_state": 0, "n_jobs": 1, **more})


def matrix_of(rows, words=30):
    counts = np.zeros((len(rows), words), dtype=np.int64)
    for number, row in enumerate(rows):
        for word, count in row.items():
            counts[number, word] = count
    return counts


@pytest.fixture(scope="module")
def counts():
    """Sixty documents, some empty, of 30 words."""
    return matrix_of(planted_rows(1))


def bits(estimator):
    """All that an estimator has fitted, as bytes."""
    parts = [estimator._fitted.globals, *(block.rows for block in estimator._fitted.blocks)]
    return [(name, np.asarray(part[name]).tobytes()) for part in parts for name in sorted(part)]


def model_bits(model):
    parts = [model.globals, *(model.rows(number) for number in range(len(model.blocks)))]
    return [(name, np.asarray(part[name]).tobytes()) for part in parts for name in sorted(part)]


# What scikit-learn asks for.


@parametrize_with_checks([one(2, max_iter=3, fractional="round") for one in THERE])
def test_estimator__rounding__passes_the_checks(estimator, check):
    check(estimator)


@parametrize_with_checks(
    [one(2, max_iter=3) for one in THERE[:1]], expected_failed_checks=lambda _: FRACTIONAL, xfail_strict=True
)
def test_estimator__as_it_is__passes_the_checks_with_whole_numbers(estimator, check):
    check(estimator)


@pytest.mark.parametrize("cls", ALL)
def test_estimator__has_the_options_of_its_family(cls, counts):
    if cls not in THERE:
        pytest.skip(f"there is no family '{cls.FAMILY}'")
    config, estimator = load_family(cls.FAMILY).Config, small_of(cls)
    assert {cls.TOPICS, *cls.OPTIONS} <= set(config.model_fields)
    for name in cls.OPTIONS:
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
    found = [doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(one) for one in tests]
    assert sum(one.failed for one in found) == 0


def test_estimator__family_that_is_not_there__says_so(counts, monkeypatch):
    monkeypatch.setattr(CollapsedLDA, "FAMILY", "no-such")
    with pytest.raises(ValueError, match="unknown family 'no-such'"):
        small_of(CollapsedLDA).fit(counts)


def test_pipeline__importing_it__does_not_import_scikit_learn():
    code = "import sys, collapsar.pipeline as p; p.fit, p.infer, p.evaluate; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_estimators__without_scikit_learn__name_the_extra(monkeypatch):
    for name in [one for one in sys.modules if one.startswith("collapsar.pipeline.estimators")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn.utils.validation", None)
    with pytest.raises(MissingError, match=r"collapsar\[sklearn\]") as raised:
        __import__("collapsar.pipeline.estimators")
    assert isinstance(raised.value, ImportError)


def test_estimator__in_a_pipeline_and_a_search():
    words = ["ship sail sea wind", "sea sail harbour", "wind ship harbour sea", "sail wind"]
    others = ["bread flour oven", "oven salt bread dough", "flour dough salt", "bread dough oven"]
    texts = [text for pair in zip(words, others, strict=True) for text in pair] * 3
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


# The same as elsewhere.


@pytest.mark.parametrize("cls", THERE)
def test_fit__is_that_of_the_command_bit_for_bit(cls, small, counts, tmp_path):
    topics = f"{cls.TOPICS}=3"
    words = ["fit", small[0], tmp_path / "run", "--family", cls.FAMILY, "--set", topics, "--iterations", 5]
    assert main([str(word) for word in [*words, "--seed", 4, "--scheduler", "serial", "--quiet"]]) == 0
    expected = model_bits(Model(tmp_path / "run"))
    given = {"random_state": 4, "shard_tokens": 500}
    assert bits(small_of(cls, **given).fit(counts)) == expected
    assert bits(small_of(cls, **given, n_jobs=3).fit(counts)) == expected
    assert bits(small_of(cls, **given, scheduler="serial").fit(small[0])) == expected
    kept = small_of(cls, **given, run=tmp_path / "kept").fit(counts)
    assert bits(kept) == expected == model_bits(Model(tmp_path / "kept"))
    assert kept.n_iter_ == 5


def test_fit__run_that_is_there__is_refused(counts, tmp_path):
    estimator = small_of(CollapsedLDA, run=tmp_path / "run").fit(counts)
    with pytest.raises(OccupiedError, match="run"):
        estimator.fit(counts)


@pytest.mark.parametrize("options", [{"order": 2}, {"learn": ("asymmetric-alpha", "asymmetric-beta")}])
def test_fit__components__are_the_pseudo_counts(options, counts):
    estimator = small_of(CollapsedLDA, **options).fit(counts)
    (block,), state = estimator._fitted.blocks, estimator._fitted.globals
    prior = np.full(30, state["beta"] / 30)
    if options.get("learn"):
        prior = (block.rows["word_tables"] + state["word_tables_prior"]) / state["beta_rate"]
    np.testing.assert_allclose(estimator.components_, block.rows["word_topic"].T + prior, rtol=1e-5)


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


def test_transform_and_score__are_those_of_the_commands(small, counts, tmp_path):
    estimator = small_of(CollapsedLDA, shard_tokens=500, run=tmp_path / "run").fit(small[0])
    infer(tmp_path / "run", small[1], tmp_path / "theta.parquet", threshold=0.0)
    table = pq.read_table(tmp_path / "theta.parquet").to_pydict()
    theta = np.zeros((60, 3))
    for number, (topics, shares) in enumerate(zip(table["topics"], table["proportions"], strict=True)):
        theta[number, topics] = shares
    found = estimator.transform(small[1])
    np.testing.assert_allclose(found, theta, atol=1e-6)
    other = matrix_of(planted_rows(2))
    np.testing.assert_allclose(estimator.transform(other), found, rtol=1e-12)
    score = evaluate(tmp_path / "run", unseen=small[1]).score
    assert estimator.score(other) == pytest.approx(score, rel=1e-12)
    assert estimator.score(small[1]) == pytest.approx(score, rel=1e-12)


def test_transform__truncated__sums_to_one(counts):
    estimator = small_of(CollapsedHDP, options={"hold": 0}).fit(counts)
    assert estimator._fitted.globals["pi"].sum() < 0.9999
    np.testing.assert_allclose(estimator.transform(counts).sum(axis=1), 1)


def test_transform__does_not_depend_on_the_threads(counts):
    estimator = small_of(CollapsedHDP, beta=2.0).fit(counts)
    many = np.tile(counts, (20, 1))
    found = estimator.transform(many)
    assert np.array_equal(clone(estimator).set_params(n_jobs=3).fit(counts).transform(many), found)
    assert np.array_equal(np.tile(estimator.transform(counts), (20, 1)), found)
    np.testing.assert_allclose(found[5], estimator.transform(np.zeros((1, 30), dtype=int))[0])


@pytest.mark.parametrize("cls", THERE)
def test_estimator__pickled__is_the_same(cls, counts):
    estimator = small_of(cls).fit(counts)
    again = pickle.loads(pickle.dumps(estimator))
    assert bits(again) == bits(estimator)
    assert np.array_equal(again.transform(counts), estimator.transform(counts))
    assert clone(again).get_params() == estimator.get_params()


# What can be fitted to.


def with_zeros(counts):
    """A sparse matrix that stores its zeros."""
    words = np.indices(counts.shape)[1]
    return scipy.sparse.csr_array((counts.ravel(), words.ravel(), np.arange(0, counts.size + 1, 30)), counts.shape)


FORMATS = {
    "stored zeros": with_zeros,
    "csr": scipy.sparse.csr_array,
    "csc": scipy.sparse.csc_array,
    "coo": scipy.sparse.coo_array,
    "lil matrix": scipy.sparse.lil_matrix,
    "float": lambda counts: counts.astype(np.float32),
    "unsigned": lambda counts: counts.astype(np.uint64),
    "fortran": np.asfortranarray,
    "list": lambda counts: counts.tolist(),
    "frame": pd.DataFrame,
    "nullable frame": lambda counts: pd.DataFrame(counts).astype("Int64"),
    "sparse frame": lambda counts: pd.DataFrame.sparse.from_spmatrix(scipy.sparse.csr_matrix(counts)),
    "dask": lambda counts: da.from_array(counts, chunks=(7, 11)),
    "dask sparse": lambda counts: da.from_array(counts, chunks=(13, 30)).map_blocks(scipy.sparse.csr_array),
    "dask sparse matrix": lambda counts: da.from_array(counts, chunks=(60, 9)).map_blocks(scipy.sparse.csc_matrix),
    "dask of unknown length": lambda counts: (lambda x: x[x[:, 0] >= 0])(da.from_array(counts, chunks=(7, 30))),
}


@pytest.mark.parametrize("name", FORMATS)
def test_fit__any_format__is_the_same(name, counts):
    matrix = FORMATS[name](counts)
    estimator = small_of(CollapsedLDA, shard_tokens=500).fit(matrix)
    expected = small_of(CollapsedLDA, shard_tokens=500).fit(counts)
    assert bits(estimator) == bits(expected)
    assert np.array_equal(estimator.transform(matrix), expected.transform(counts))
    assert estimator.score(matrix) == expected.score(counts)


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_fit__matrix_of_long_indices_and_duplicates__is_left_as_it_is(dtype):
    ones = np.ones(3, dtype=dtype)
    matrix = scipy.sparse.csr_array((ones, np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    estimator = small_of(CollapsedLDA).fit(matrix)
    assert matrix.indices.tolist() == [2, 0, 2]
    assert bits(estimator) == bits(small_of(CollapsedLDA).fit(np.array([[1, 0, 2]])))


def test_fit__dask_array__comes_a_row_of_blocks_at_a_time(counts):
    made = []

    def block(rows):
        made.append(rows.shape[0])
        return rows

    matrix = da.from_array(counts, chunks=(10, 30)).map_blocks(block, meta=np.zeros((0, 0), dtype=int))
    parts = portions(validated(small_of(CollapsedLDA), matrix, reset=True), 10, "error", "CollapsedLDA")
    for number, part in enumerate(parts):
        assert len(part) == 10
        assert len(made) == number + 1
        assert part.ids[0].as_py() == str(10 * number + 1)
    assert len(made) == 6


def test_fit__corpus__keeps_its_words(small, counts, tmp_path):
    estimator = small_of(CollapsedLDA).fit(Corpus(small[0]))
    assert estimator.to_pyldavis(small[0])["vocab"][0] == "w0"
    assert estimator.transform(counts).shape == (60, 3)
    other = write_corpus(tmp_path / "other", [{0: 1}], 4)
    for fitted in (estimator, small_of(CollapsedLDA).fit(counts)):
        with pytest.raises(ValueError, match="words"):
            fitted.transform(other)


WRONG = {
    "negative": (np.array([[1, -1]]), "Negative values in data"),
    "fraction": (np.array([[1.0, 2.0], [0.0, 0.5]]), "row 1, column 1: expected whole counts .* found 0.5"),
    "many": (np.array([[1, 2**31]]), "found 2147483648"),
    "not a number": (np.array([[1.0, np.nan]]), "NaN"),
    "infinite": (np.array([[1.0, np.inf]]), "infinity"),
    "no word": (np.zeros((3, 2)), "the corpus is empty"),
    "no document": (np.zeros((0, 2)), "0 sample"),
    "text": (np.array([["a", "b"]]), "could not convert|Unable to convert|dtype"),
    "dask fraction": (da.from_array(np.array([[1.0], [2.0], [0.5]]), chunks=1), "row 2, column 0"),
    "dask negative": (da.from_array(np.array([[1.0], [-2.0]]), chunks=1), "Negative values in data"),
    "dask vector": (da.from_array(np.array([1.0]), chunks=1), "documents x words"),
}


@pytest.mark.parametrize("name", WRONG)
def test_fit__wrong_counts__are_refused(name):
    matrix, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        small_of(CollapsedLDA).fit(matrix)
    if name not in ("no word", "no document"):
        with pytest.raises(ValueError, match=message):
            small_of(CollapsedLDA).partial_fit(matrix)


def test_fit__fractions__are_rounded_when_asked_for():
    rounding = small_of(CollapsedLDA, fractional="round")
    assert bits(rounding.fit(np.array([[0.5, 1.5, 2.2]]))) == bits(small_of(CollapsedLDA).fit(np.array([[0, 2, 2]])))
    with pytest.raises(ValueError, match="fractional: expected 'error' or 'round'"):
        small_of(CollapsedLDA, fractional="floor").fit(np.ones((1, 1)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0}, "^n_components: "),
        ({"max_iter": 0}, "^max_iter: "),
        ({"tol": -1.0}, "^tol: "),
        ({"alpha": 0.0}, "^alpha: "),
        ({"learn": ("gamma",)}, "^learn: "),
        ({"options": {"momentun": 0.5}}, "momentum"),
        ({"workers": 0}, "^workers: "),
        ({"shard_tokens": 0}, "^shard_tokens: "),
        ({"scheduler": "nowhere"}, "^scheduler: "),
    ],
)
def test_fit__wrong_parameters__are_named(parameters, message, counts):
    with pytest.raises(ValueError, match=message):
        small_of(CollapsedLDA, **parameters).fit(counts)


def test_fit__what_is_left_of_it__is_nothing(counts, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    small_of(CollapsedLDA).fit(counts).transform(counts)
    with pytest.raises(ValueError, match="whole"):
        small_of(CollapsedLDA).fit(np.array([[0.5]]))
    assert not list(tmp_path.iterdir())


def test_fit__that_fails__leaves_it_unfitted(counts):
    estimator = small_of(CollapsedLDA).fit(counts)
    with pytest.raises(ValueError, match="whole"):
        estimator.fit(counts[:, :20] + 0.5)
    with pytest.raises(NotFittedError):
        estimator.transform(counts[:, :20])
    assert not hasattr(estimator, "components_")


# Steps.


@pytest.mark.parametrize("cls", COLLAPSED)
def test_partial_fit__on_all__is_the_stochastic_schedule(cls, counts, tmp_path):
    train = write_corpus(tmp_path / "train", planted_rows(1), 30)
    model = fit(train, tmp_path / "run", family=cls.FAMILY, topics=3, seed=5, schedule="stochastic", passes=3)
    estimator = small_of(cls, random_state=5, total_documents=60)
    for _ in range(3):
        estimator.partial_fit(counts)
    assert bits(estimator) == model_bits(model)
    assert estimator.n_iter_ == 3
    assert bits(small_of(cls, random_state=5, options={"schedule": "stochastic", "passes": 3}).fit(counts)) == bits(
        estimator
    )


@pytest.mark.parametrize("cls", COLLAPSED)
def test_partial_fit__after_a_fit__goes_on_from_it(cls):
    counts = np.tile(matrix_of(planted_rows(1)), (10, 1))
    estimator = small_of(cls, beta=1.0, max_iter=30, total_documents=6000).fit(counts)
    before = estimator.components_ / estimator.components_.sum(axis=1, keepdims=True)
    others = np.zeros((64, 30), dtype=int)
    others[:, 0] = 40  # steps as large as a first one's would leave no other word
    estimator.partial_fit(others)
    after = estimator.components_ / estimator.components_.sum(axis=1, keepdims=True)
    assert 0.1 < np.abs(after - before).sum(axis=1).max() < 1.0
    assert estimator.components_.sum() == pytest.approx(10 * counts.sum(), rel=0.01)
    assert estimator.n_iter_ == 1


def test_partial_fit__no_words__changes_nothing(counts):
    none = np.zeros((2, 30), dtype=int)
    with pytest.raises(ValueError, match="at least one document with a word"):
        small_of(CollapsedLDA).partial_fit(none)
    estimator = small_of(CollapsedLDA).partial_fit(counts)
    before = bits(estimator)
    assert bits(estimator.partial_fit(none)) == before


def test_partial_fit__order_2__is_refused(counts):
    with pytest.raises(ValueError, match="order 0"):
        small_of(CollapsedLDA, order=2).partial_fit(counts)
    with pytest.raises(ValueError, match="order 0"):
        small_of(CollapsedLDA, order=2).fit(counts).partial_fit(counts)


@pytest.mark.parametrize("cls", [VariationalLDA, GibbsLDA, GibbsHDP])
def test_partial_fit__families_without_steps__have_none(cls):
    assert not hasattr(cls(), "partial_fit")
    with pytest.raises(AttributeError) as raised:
        _ = cls().partial_fit
    assert f"the family '{cls.FAMILY}' is not fitted by minibatches" in str(raised.value.__cause__)


# Drawing.


def valid(topic_term_dists, doc_topic_dists, doc_lengths, vocab, term_frequency):
    """What pyLDAvis asks of its input, and what its logarithms do."""
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
def test_to_pyldavis__is_what_it_takes(cls, counts):
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


def test_readme__its_example_runs(capsys):
    blocks = (Path(__file__).parents[2] / "README.md").read_text().split("```python\n")[1:]
    (example,) = [block.partition("```")[0] for block in blocks if "estimators" in block]
    exec(compile(example, "README.md", "exec"), {})
    *theta, last = capsys.readouterr().out.splitlines()
    shares = np.array([[float(one) for one in line.strip(" []").split()] for line in theta])
    assert shares.argmax(axis=1).tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])  # ships, and bread
    assert float(last.rpartition("]")[2]) < 0


def test_families__each_class_is_documented():
    for cls in ALL:
        assert cls.__doc__.startswith(("Latent", "The hier"))
        assert getattr(families, cls.__name__) is cls
