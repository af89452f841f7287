"""The inputs that estimators can be fitted to, at once or in steps."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
import sklearn
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from collapsium.pipeline import Corpus, fit
from collapsium.pipeline.estimators import CollapsedLDA, GibbsHDP, GibbsLDA, VariationalLDA
from collapsium.pipeline.estimators.base import document_chunks, fields_of_metadata, with_fields, written
from collapsium.storage.errors import CollapsiumError
from tests.conftest import simulated_rows, write_corpus
from tests.estimating import COLLAPSED, bits, matrix_of, model_bits, small_of


@pytest.fixture(scope="module")
def counts():
    """Sixty documents, some empty, of 30 words."""
    return matrix_of(simulated_rows(1))


# inputs of `fit`


def with_zeros(counts):
    """Return a sparse matrix that stores its zeros explicitly."""
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
    "other byte order": lambda counts: counts.astype(np.dtype(np.int32).newbyteorder()),
    "fortran": np.asfortranarray,
    "list": lambda counts: counts.tolist(),
    "frame": pd.DataFrame,
    "nullable frame": lambda counts: pd.DataFrame(counts).astype("Int64"),
    "sparse frame": lambda counts: pd.DataFrame.sparse.from_spmatrix(scipy.sparse.csr_matrix(counts)),
    "dask": lambda counts: da.from_array(counts, chunks=(7, 11)),
    "dask sparse": lambda counts: da.from_array(counts, chunks=(13, 30)).map_blocks(scipy.sparse.csr_array),
    "dask sparse matrix": lambda counts: da.from_array(counts, chunks=(60, 9)).map_blocks(scipy.sparse.csc_matrix),
    "dask sparse columns": lambda counts: da.from_array(counts, chunks=(25, 9)).map_blocks(scipy.sparse.csr_array),
    "dask of unknown length": lambda counts: (lambda x: x[x[:, 0] >= 0])(da.from_array(counts, chunks=(7, 30))),
}


class Annotated:
    """An object like AnnData with infinitely nested items."""

    def __init__(self, counts):
        self.X, self.obs_names, self.var_names = counts, list(range(60)), list(range(30))
        self.shape = counts.shape

    def __len__(self):
        return len(self.X)

    def __getitem__(self, index):
        return self


class Endless:
    """Another container with an infinite iterator."""

    shape = (60, 30)

    def __len__(self):
        return 60

    def __getitem__(self, index):
        return self


def test_containers_of_counts__are_refused_with_the_attribute_to_pass(counts):
    estimator = small_of(CollapsedLDA).fit(counts)
    for call in (
        small_of(CollapsedLDA).fit_transform,
        small_of(CollapsedLDA).partial_fit,
        estimator.transform,
        estimator.score,
    ):
        with pytest.raises(ValueError, match=r"found Annotated; pass its matrix of counts, or its to_adata\(\)"):
            call(Annotated(counts))
        with pytest.raises(ValueError, match="expected an array, a sparse matrix, a frame or a corpus, found Endless"):
            call(Endless())


@pytest.mark.parametrize("cls", [CollapsedLDA, GibbsLDA, VariationalLDA])
def test_parameters__may_be_numbers_of_numpy(cls, counts):
    number, tokens = np.int64(1), np.int64(500)
    options = {
        "tol": np.float32(0),
        "n_jobs": number,
        "workers": number,
        "shard_tokens": tokens,
        "memory": np.int64(2**31),
    }
    estimator = small_of(cls, restarts=np.int64(0), random_state=np.int64(0), **options).fit(counts)
    assert bits(estimator) == bits(small_of(cls, shard_tokens=500, random_state=0).fit(counts))
    assert len(estimator.top_words(np.int64(3))[0]) == 3


@pytest.fixture(scope="module")
def expected(counts):
    """An estimator that was fitted to the matrix in memory."""
    return small_of(CollapsedLDA, shard_tokens=500).fit(counts)


@pytest.mark.parametrize("name", FORMATS)
def test_fit__any_format__gives_the_same_model(name, counts, expected):
    matrix = FORMATS[name](counts)
    estimator = small_of(CollapsedLDA, shard_tokens=500).fit(matrix)
    assert bits(estimator) == bits(expected)
    assert np.array_equal(np.asarray(estimator.transform(matrix)), expected.transform(counts))
    assert estimator.score(matrix) == expected.score(counts)


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_fit__matrix_of_long_indices_and_duplicates__is_not_changed(dtype):
    ones = np.ones(3, dtype=dtype)
    matrix = scipy.sparse.csr_array((ones, np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    estimator = small_of(CollapsedLDA).fit(matrix)
    assert matrix.indices.tolist() == [2, 0, 2]
    assert bits(estimator) == bits(small_of(CollapsedLDA).fit(np.array([[1, 0, 2]])))


def test_fit__corpus__keeps_its_words(small, counts, tmp_path):
    estimator = small_of(CollapsedLDA).fit(Corpus(small[0]))
    assert estimator.to_pyldavis(small[0])["vocab"][0] == "w0"
    assert estimator.transform(counts).shape == (60, 3)
    narrower = write_corpus(tmp_path / "other", [{0: 1}], 4)
    for fitted in (estimator, small_of(CollapsedLDA).fit(counts)):
        with pytest.raises(ValueError, match="words"):
            fitted.transform(narrower)


WRONG = {
    "negative": (np.array([[1, -1]]), "Negative values in data"),
    "fraction": (np.array([[1.0, 2.0], [0.0, 0.5]]), "row 1, column 1: expected whole counts .* found 0.5"),
    "many": (np.array([[1, 2**31]]), "found 2147483648"),
    "many unsigned": (np.array([[1, 2**64 - 1]], dtype=np.uint64), "row 0, column 1: .* found 18446744073709551615"),
    "masked": (np.ma.masked_equal(np.array([[1, 2], [3, 9]]), 9), "row 1, column 1: expected .* a masked one"),
    "not a number": (np.array([[1.0, np.nan]]), "row 0, column 1: expected whole counts .* found NaN$"),
    "infinite": (np.array([[1.0, np.inf]]), "row 0, column 1: expected whole counts .* found inf$"),
    "dask column": (dd.from_pandas(pd.Series([1, 2]), npartitions=1), "documents x words, found the shape"),
    "no word": (np.zeros((3, 2)), "the corpus is empty"),
    "no document": (np.zeros((0, 2)), "0 sample"),
    "text": (np.array([["a", "b"]]), "could not convert|Unable to convert|dtype"),
    "dask fraction": (
        da.from_array(np.array([[1.0], [2.0], [0.5]]), chunks=1),
        "(partition 2, row 0|row 2), column 0: .* 0.5",
    ),
    "dask negative": (da.from_array(np.array([[1.0], [-2.0]]), chunks=1), "Negative values in data"),
    "dask masked": (
        da.from_array(np.ma.masked_equal(np.array([[1], [9]]), 9), chunks=1),
        "(partition 1, row 0|row 1), column 0: expected .* a masked one",
    ),
    "dask vector": (da.from_array(np.array([1.0]), chunks=1), "documents x words"),
}


@pytest.mark.parametrize("name", WRONG)
def test_fit__invalid_counts__are_refused(name):
    matrix, message = WRONG[name]
    with pytest.raises(ValueError, match=message) as caught:
        small_of(CollapsedLDA).fit(matrix)
    assert "\n" not in str(caught.value)
    if name not in ("no word", "no document"):
        with pytest.raises(ValueError, match=message):
            small_of(CollapsedLDA).partial_fit(matrix)


def test_fit__fractions__are_rounded_on_request():
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
        ({"run": 3}, "expected a path, found int"),
        ({"options": ["momentum"]}, "^options: expected a table of options, found list"),
    ],
)
def test_fit__invalid_parameters__are_named(parameters, message, counts):
    with pytest.raises(ValueError, match=message):
        small_of(CollapsedLDA, **parameters).fit(counts)


def test_fit__leaves_no_files(counts, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    small_of(CollapsedLDA).fit(counts).transform(counts)
    with pytest.raises(ValueError, match="whole"):
        small_of(CollapsedLDA).fit(np.array([[0.5]]))
    assert not list(tmp_path.iterdir())


def test_fit__that_fails__leaves_the_estimator_unfitted(counts):
    estimator = small_of(CollapsedLDA).fit(counts)
    with pytest.raises(ValueError, match="whole"):
        estimator.fit(counts[:, :20] + 0.5)
    with pytest.raises(NotFittedError):
        estimator.transform(counts[:, :20])
    assert not hasattr(estimator, "components_")


# `partial_fit`


@pytest.mark.parametrize("cls", COLLAPSED)
def test_partial_fit__on_all_documents__is_the_stochastic_schedule(cls, counts, tmp_path):
    train = write_corpus(tmp_path / "train", simulated_rows(1), 30)
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
def test_partial_fit__after_a_fit__continues_from_it(cls):
    counts = np.tile(matrix_of(simulated_rows(1)), (10, 1))
    estimator = small_of(cls, beta=1.0, max_iter=30, total_documents=6000).fit(counts)
    before = estimator.components_ / estimator.components_.sum(axis=1, keepdims=True)
    batch = np.zeros((64, 30), dtype=int)
    batch[:, 0] = 40  # with the rate of a first step, only words of this batch would remain
    estimator.partial_fit(batch)
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
def test_partial_fit__is_missing_for_families_without_the_stochastic_schedule(cls):
    assert not hasattr(cls(), "partial_fit")
    with pytest.raises(AttributeError) as raised:
        _ = cls().partial_fit
    assert f"the family '{cls.FAMILY}' is not fitted by minibatches" in str(raised.value.__cause__)


# fields of the documents


@pytest.fixture(scope="module")
def fields():
    """A frame with the fields of the documents, the first half of which belongs to one party."""
    generator = np.random.default_rng(3)
    return pd.DataFrame({"party": np.repeat(["R", "D"], 30), "year": generator.normal(1990.0, 9.0, 60)})


def informed(prevalence="~ party + year"):
    return CollapsedLDA(
        3, prevalence=prevalence, inverse_temperature=1.0, max_iter=9, random_state=1, beta=1.0, shard_tokens=500
    )


def test_metadata__of_any_frame_gives_the_model_of_a_corpus_with_these_fields(counts, fields, tmp_path):
    frames = [fields, pa.table(fields), fields.to_dict("list")]
    expected, *found = (bits(informed().fit(counts, metadata=frame)) for frame in frames)
    assert found == [expected, expected]
    estimator = informed()
    shares = estimator.fit_transform(counts, metadata=fields)
    np.testing.assert_array_equal(shares, estimator.transform(counts, metadata=fields))
    extras = fields_of_metadata(fields, ["party", "year"])
    chunks = with_fields(document_chunks(counts, 25, "error"), extras)
    written(chunks, str(tmp_path / "corpus"), [f"x{number}" for number in range(30)], 500)
    same = informed().fit(tmp_path / "corpus")
    assert bits(same) == expected
    np.testing.assert_array_equal(same.transform(tmp_path / "corpus"), shares)


@pytest.mark.parametrize("formula", ["~ date", "~ `date:decade`"])
def test_metadata__has_dates_of_any_type(counts, formula):
    dates = pd.Series(pd.date_range("1995-01-01", periods=60, freq="60D"))
    expected = bits(informed(formula).fit(counts, metadata={"date": dates.dt.strftime("%Y-%m-%d")}))
    for typed in (dates, dates.dt.date, dates.dt.to_period("D"), dates.dt.tz_localize("America/New_York")):
        assert bits(informed(formula).fit(counts, metadata={"date": typed})) == expected
    years = informed(formula).fit(counts, metadata={"date": dates.dt.year})
    assert years.transform(counts[:1], metadata={"date": [1996]}).shape == (1, 3)


def test_metadata__determines_the_proportions_of_documents_without_words(counts, fields):
    estimator = informed("~ party").fit(counts, metadata=fields)
    empty = np.zeros((3, 30), dtype=int)
    by_party = estimator.transform(empty, metadata={"party": ["R", "D", "R"]})
    assert not np.allclose(by_party[0], by_party[1])
    np.testing.assert_array_equal(by_party[0], by_party[2])
    assert estimator.score(counts, metadata=fields) != estimator.score(counts)
    assert np.isfinite(estimator.perplexity(counts, metadata=fields))


def test_metadata__is_routed_through_a_pipeline(counts, fields):
    with sklearn.config_context(enable_metadata_routing=True):
        last = informed().set_fit_request(metadata=True).set_transform_request(metadata=True)
        pipeline = Pipeline([("same", FunctionTransformer()), ("lda", last)]).fit(counts, metadata=fields)
        shares = pipeline.transform(counts, metadata=fields)
    np.testing.assert_array_equal(shares, informed().fit(counts, metadata=fields).transform(counts, metadata=fields))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda counts, fields: informed().fit(counts), "prevalence: needs the fields of the documents: fit(X, metadata"),
        (lambda counts, fields: informed().fit(counts, metadata=fields[:50]), "a row for each of the 60 documents, found 50"),
        (lambda counts, fields: informed().fit(counts[:50], metadata=fields), "a row for each of the 50 documents, found 60"),
        (lambda counts, fields: informed("~ prty").fit(counts, metadata=fields), "no column 'prty' (did you mean 'party'?)"),
        (lambda counts, fields: informed("~ year + open(party)").fit(counts, metadata=fields), "prevalence: "),
        (lambda counts, fields: informed(None).fit(counts, metadata=fields), "metadata: has no effect with no prevalence"),
        (lambda counts, fields: informed().partial_fit(counts), "prevalence: takes fit, as its steps need all documents"),
        (lambda counts, fields: informed().fit(counts, metadata=fields.assign(year=np.inf)), "year: expected finite numbers"),
        (
            lambda counts, fields: informed().fit(counts, metadata=fields).transform(counts[:5], metadata=fields[:4]),
            "a row for each of the 5 documents, found 4",
        ),
        (
            lambda counts, fields: informed("~ party")
            .fit(counts, metadata=fields)
            .transform(counts[:1], metadata={"party": ["X"]}),
            "'X'",
        ),
    ],
)  # fmt: skip
def test_metadata__that_does_not_fit_ends_in_one_line(counts, fields, call, message):
    with pytest.raises(CollapsiumError) as caught:
        call(counts, fields)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
