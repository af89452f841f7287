"""Collections of Dask as documents, and the active client of a program as executor."""

import asyncio
import copy
import pickle
import time

import dask
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.base import clone

distributed = pytest.importorskip("distributed")
import dask.bag as db  # noqa: E402
import dask.dataframe as dd  # noqa: E402

from collapsium.pipeline import Corpus, Model, fit, infer, ingest, predict  # noqa: E402
from collapsium.pipeline.corpora.texts_in_memory import library_of_frame  # noqa: E402
from collapsium.pipeline.estimators import CollapsedLDA  # noqa: E402
from collapsium.pipeline.executors import dask_collections  # noqa: E402
from collapsium.pipeline.executors.schedulers import as_scheduler  # noqa: E402
from collapsium.pipeline.monitoring import progress  # noqa: E402
from collapsium.storage.errors import InputError, OptionError  # noqa: E402
from tests.waiting import wait_until  # noqa: E402

TEXTS = ["cats and dogs purr" if n % 2 else "stocks and bonds rise" for n in range(12)]
HOW = {"family": "lda", "topics": 2, "iterations": 2}
FRAME = pd.DataFrame(
    {"body": TEXTS, "kind": list("ab") * 6}, index=pd.Index([f"r{n:02}" for n in range(12)], name="row")
)
ARROW = pa.Table.from_pandas(FRAME)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return fit(FRAME, tmp_path_factory.mktemp("eager") / "run", text="body", labels="kind", **HOW, scheduler="serial")


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    run = tmp_path_factory.mktemp("labelled") / "run"
    return fit(FRAME, run, family="labeled-lda", text="body", labels="kind", iterations=2, scheduler="serial")


@pytest.fixture(scope="module")
def client():
    """An active client of a cluster of threads of this process."""
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None, protocol="tcp://"
        ) as cluster,
        distributed.Client(cluster) as active,
    ):
        yield active


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_active_client__is_the_default_executor(client):
    assert as_scheduler(None).source is client
    assert as_scheduler("threads") == "threads"
    with client.as_current():
        assert client.submit(lambda: str(as_scheduler(None)), pure=False).result() == client.scheduler.address


def test_partitions__give_the_corpus_and_model_of_the_frame(client, model, tmp_path):
    with client.as_current():
        lazy = fit(dd.from_pandas(FRAME, npartitions=3), tmp_path / "run", text="body", labels="kind", **HOW)
    np.testing.assert_array_equal(lazy.topic_word, model.topic_word)
    np.testing.assert_array_equal(lazy.document_topic, model.document_topic)
    assert names(tmp_path) == ["run"]
    assert not [name for name in names(tmp_path / "run") if "texts" in name]
    assert '"scheduler": "tcp://' in (tmp_path / "run/events.jsonl").read_text()


def test_bags_and_records__are_ingested_partition_by_partition(tmp_path):
    with dask.config.set(scheduler="synchronous"):
        ingest(db.from_sequence(TEXTS, npartitions=2), tmp_path / "texts", scheduler="serial")
        records = db.from_sequence([{"body": text, "id": str(n)} for n, text in enumerate(TEXTS)], npartitions=2)
        manifest = ingest(records, tmp_path / "records", text="body", id="id", scheduler="serial")
    assert manifest.documents == len(TEXTS)
    assert names(tmp_path) == ["records", "texts"]


@pytest.mark.parametrize("distributed", [False, True])
def test_progress__counts_partitions_and_their_documents(distributed, client, tmp_path, monkeypatch):
    texts = []
    monkeypatch.setattr(progress, "_surface", lambda _: progress.Lines())
    monkeypatch.setattr(progress.ProgressLine, "update", lambda _, text: texts.append(text))
    scheduler = client if distributed else "serial"
    with dask.config.set(scheduler=None if distributed else "synchronous"):
        ingest(dd.from_pandas(FRAME, npartitions=3), tmp_path / "corpus", text="body", scheduler=scheduler)
        fit(db.from_sequence(TEXTS, npartitions=2), tmp_path / "run", **HOW, scheduler=scheduler)
        counts = dd.from_pandas(COUNTS, npartitions=2)
        CollapsedLDA(2, max_iter=2, scheduler=scheduler).fit(counts).score(counts)
    assert [text for text in texts if "partition" in text] == [
        *(f"reading documents: {done} of 3 partitions, {4 * done} documents" for done in (1, 2, 3)),
        *(f"reading documents: {done} of 2 partitions, {6 * done} documents" for done in (1, 2)),
        *(f"reading documents: {done} of 2 partitions, {10 * done} documents" for done in (1, 2)),
        "inferring proportions: 1 of 1 partition, 20 documents",
    ]


def _begin_and_end(_part, number, place):
    if not number:
        wait_until(lambda: any(place.iterdir()))
        raise ValueError("the first partition")
    (place / f"{number}.begun").touch()
    time.sleep(0.2)
    (place / f"{number}.ended").touch()


@pytest.mark.parametrize("distributed", [False, True])
def test_a_failing_partition__is_reported_after_those_that_have_begun(distributed, client, tmp_path):
    parts = db.from_sequence(range(6), npartitions=6).to_delayed()
    default = client.as_current() if distributed else dask.config.set(scheduler="threads", num_workers=2)
    with default, pytest.raises(ValueError, match="the first partition"):
        dask_collections.compute_partitions(parts, _begin_and_end, (tmp_path,), "threads")
    at_once = names(tmp_path)
    time.sleep(0.5)
    assert names(tmp_path) == at_once
    assert len([name for name in at_once if "begun" in name]) == len([name for name in at_once if "ended" in name])


def test_transform__of_partitions_is_lazy_and_keeps_the_index(model):
    expected = model.transform(TEXTS)
    lazy = model.transform(dd.from_pandas(FRAME, npartitions=3), text="body")
    assert (lazy.npartitions, list(lazy.columns)) == (3, ["topic_0", "topic_1"])
    with dask.config.set(scheduler="synchronous"):
        frame = lazy.compute()
        assert (list(frame.index), frame.index.name) == (list(FRAME.index), "row")
        np.testing.assert_array_equal(frame.to_numpy(), expected)
        column = model.transform(dd.from_pandas(FRAME["body"], npartitions=2)).compute()
        np.testing.assert_array_equal(column.to_numpy(), expected)
        np.testing.assert_array_equal(model.transform(db.from_sequence(TEXTS, npartitions=2)).compute(), expected)


@pytest.mark.parametrize("form", [FRAME, FRAME["body"], pl.from_pandas(FRAME), pl.Series(TEXTS), ARROW, ARROW["body"]])
def test_transform_of_frames_and_columns__gives_frames_of_the_same_library(form, model):
    shares = model.transform(form)
    assert type(shares) is {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table}[library_of_frame(form)]
    assert list(shares.columns if hasattr(shares, "iloc") else nw.from_native(shares).columns) == ["topic_0", "topic_1"]
    np.testing.assert_array_equal(np.asarray(shares), model.transform(TEXTS))
    if hasattr(form, "iloc"):
        pd.testing.assert_index_equal(shares.index, FRAME.index)


def test_frames_with_a_repeated_index__keep_their_rows_with_a_warning(model):
    doubled = pd.concat([FRAME, FRAME[:1]])
    with pytest.warns(UserWarning, match=r"not unique \(label 'r00'\).*reset_index"):
        shares = model.transform(doubled)
    pd.testing.assert_index_equal(shares.index, doubled.index)


def test_records_of_a_bag__may_lack_fields_that_later_records_have(labelled, tmp_path):
    kinds = FRAME["kind"].where(np.arange(len(FRAME)) > 3)
    frame = pd.DataFrame({"body": FRAME["body"], "kind": kinds}).reset_index(drop=True)
    records = [{name: row[name] for name in row if row[name] == row[name]} for row in frame.to_dict("records")]
    # All records of the first of these partitions lack the field, or the first record of one partition does.
    for bag in (db.from_sequence(records, npartitions=6), db.from_sequence(records, npartitions=1)):
        with dask.config.set(scheduler="synchronous"):
            np.testing.assert_array_equal(labelled.transform(bag).compute(), labelled.transform(frame))
            predicted = predict(labelled, bag, field="kind").compute()
            ingest(bag, tmp_path / "corpus", text="body", labels="kind", scheduler="serial", overwrite=True)
        expected = predict(labelled, frame, field="kind")
        pd.testing.assert_frame_equal(predicted.reset_index(drop=True), expected.reset_index(drop=True))
        labels = Corpus(tmp_path / "corpus").references[0].further()["labels"].to_pylist()
        assert [entry[0]["value"] if entry else None for entry in labels] == frame["kind"].replace(
            {np.nan: None}
        ).tolist()


@pytest.mark.parametrize(
    ("changed", "found"),
    [({"a": 1, "b": 2, "c": 0}, "without 'd'"), ({**dict.fromkeys("abcd", 1), "e": 5}, "with 'e'")],
)
def test_counts_in_records_with_other_fields__are_refused_and_not_dropped(changed, found):
    records = [*COUNTS.to_dict("records"), changed]
    bag, estimator = db.from_sequence(records, npartitions=3), CollapsedLDA(2, max_iter=2)
    message = f"expected records with the 4 fields of the first, found one {found}"
    with dask.config.set(scheduler="synchronous"):
        with pytest.raises(InputError, match=message):
            estimator.fit(bag)
        estimator.fit(COUNTS)
        with pytest.raises(InputError, match=message):
            estimator.transform(bag).compute()


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"body": "cats", "other": "a"}], "labels: no record has the field 'kind'"),
        ([{"body": "cats", "kind": "a"}, "dogs"], "expected records, found str at position 1"),
        ([{"body": "cats", "kind": "a"}, {"body": "dogs", "kind": 2}], "'kind', found int at position 1 after str"),
    ],
)
def test_records_of_a_bag__that_cannot_be_read_are_refused_in_one_line(records, message, tmp_path):
    bag = db.from_sequence(records * 2, npartitions=2)
    with dask.config.set(scheduler="synchronous"), pytest.raises(OptionError, match=message):
        ingest(bag, tmp_path / "corpus", text="body", labels="kind", scheduler="serial")
    assert names(tmp_path) == []


def test_infer_and_predict__of_partitions_are_lazy_frames_with_the_index_of_the_texts(labelled):
    new = FRAME[::-1].assign(body=FRAME["body"][::-1] + " cats")
    parts = dd.from_pandas(new, npartitions=3, sort=False)
    shares, predictions = infer(labelled, parts), predict(labelled, parts, field="kind")
    numbered = infer(labelled, db.from_sequence(new["body"], npartitions=2))
    with dask.config.set(scheduler="synchronous"):
        pd.testing.assert_frame_equal(shares.compute(), labelled.transform(new), check_index_type=False)
        expected = predict(labelled, new, field="kind")
        pd.testing.assert_frame_equal(predictions.compute(), expected, check_index_type=False)
        pd.testing.assert_series_equal(predictions.dtypes, predictions.compute().dtypes)
        assert list(numbered.compute().index[[0, -1]]) == ["part-0000000/1", "part-0000001/6"]
        assert predict(labelled, parts[parts["kind"] == "c"], field="kind").compute().empty
    assert (
        predict(labelled, pl.from_pandas(new), field="kind")["predicted"].to_list() == expected["predicted"].to_list()
    )


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # from Dask
def test_lazy_results__are_written_to_parquet_by_the_workers(model, tmp_path):
    with dask.config.set(scheduler="synchronous"):
        model.transform(dd.from_pandas(FRAME, npartitions=3)).to_parquet(tmp_path)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path), model.transform(FRAME), check_index_type=False)


def test_estimators__accept_arrays_in_blocks_and_transform_them_lazily():
    counts = np.random.default_rng(0).poisson(1.0, (20, 8))
    array = dask.array.from_array(counts, chunks=(7, 4))
    estimator = CollapsedLDA(2, max_iter=2, random_state=0)
    with dask.config.set(scheduler="synchronous"):
        lazy = estimator.fit(array).transform(array)
        assert lazy.chunks == ((7, 7, 6), (2,))
        np.testing.assert_array_equal(lazy.compute(), estimator.transform(counts))


COUNTS = pd.DataFrame(np.random.default_rng(0).poisson(1.0, (20, 4)), columns=list("abcd"), index=range(5, 25))
ROWS = {
    "frame": lambda: dd.from_pandas(COUNTS, npartitions=3),
    "rows": lambda: db.from_sequence(list(COUNTS.to_numpy()), npartitions=3),
    "sparse rows": lambda: db.from_sequence([scipy.sparse.csr_array(row[None]) for row in COUNTS.to_numpy()]),
    "records": lambda: db.from_sequence(COUNTS.to_dict("records"), npartitions=3),
}


@pytest.fixture(scope="module")
def counted():
    """An estimator that was fitted to `COUNTS`, and must not be changed."""
    estimator = CollapsedLDA(2, max_iter=2, random_state=0, scheduler="serial").fit(COUNTS)
    return estimator.set_params(scheduler=None)


@pytest.mark.parametrize("name", ROWS)
def test_estimators__give_the_same_model_for_frames_and_bags_as_for_the_matrix(name, counted):
    rows, expected = ROWS[name](), counted
    with dask.config.set(scheduler="synchronous"):
        estimator = CollapsedLDA(2, max_iter=2, random_state=0).fit(rows)
        np.testing.assert_array_equal(estimator.components_, expected.components_)
        shares = estimator.transform(rows).compute()
    np.testing.assert_array_equal(shares, expected.transform(COUNTS))
    if name == "frame":
        assert list(shares.columns) == list(expected.get_feature_names_out())
        pd.testing.assert_index_equal(shares.index, COUNTS.index)


def components(estimator, _):
    return {"": estimator.components_}


METHODS = {
    "fit": components,
    "partial_fit": components,
    "score": lambda _, score: {"": score},
    "to_pyldavis": lambda _, drawn: drawn,
}


@pytest.mark.parametrize("method", METHODS)
def test_rows_of_dask_arrays__stay_on_the_workers(method, client, monkeypatch):
    """The driver receives far less than a block, and results have the bits of the matrix in memory."""
    collected, compute = [], dask_collections.compute_partitions

    def computed(*arguments):
        parts = compute(*arguments)
        collected.extend(pickle.dumps(part) for part in parts)
        return parts

    counts = np.random.default_rng(0).poisson(1.0, (1000, 60))
    array = dask.array.from_array(counts, chunks=(500, 25))
    estimator = CollapsedLDA(2, max_iter=2, random_state=0, shard_tokens=20_000)
    same = clone(estimator).set_params(scheduler="serial").fit(counts)
    if method != "fit":
        estimator.fit(counts)
    with client.as_current(), monkeypatch.context() as patch:
        patch.setattr(dask_collections, "compute_partitions", computed)
        patch.setattr(dask.array.Array, "compute", lambda _: pytest.fail("rows are collected"))
        found = METHODS[method](estimator, getattr(estimator, method)(array))
    for name, expected in METHODS[method](same, getattr(same, method)(counts)).items():
        np.testing.assert_array_equal(found[name], expected)
    assert max(map(len, collected)) < 500 * 60


@pytest.mark.parametrize("method", ["score", "to_pyldavis"])
def test_blocks_with_other_rows_than_declared__are_refused(method):
    counts = np.random.default_rng(0).poisson(0.6, (900, 12))
    estimator = CollapsedLDA(3, max_iter=2, random_state=0, scheduler="serial").fit(counts).set_params(scheduler=None)
    blocks = [
        dask.array.from_delayed(dask.delayed(part), (rows, 12), counts.dtype)
        for part, rows in ((counts[:600], 500), (counts[600:], 400))
    ]
    with pytest.raises(InputError, match="rows, as the collection declares, found [36]00"):
        getattr(estimator, method)(dask.array.concatenate(blocks))


def test_fields_beside_a_dask_array__match_its_rows():
    counts, frame = COUNTS.to_numpy(), pd.DataFrame({"size": np.arange(20.0), "kind": list("ab") * 10})
    array, options = dask.array.from_array(counts, chunks=(7, 4)), {"max_iter": 2, "random_state": 0}
    options |= {"prevalence": "~ size + kind"}
    with dask.config.set(scheduler="synchronous"):
        found = CollapsedLDA(2, **options).fit(array, metadata=frame)
        score = found.score(array, metadata=frame)
        for call in (CollapsedLDA(2, **options).fit, found.score):
            with pytest.raises(OptionError, match="expected a row for each of the 20 documents, found 19"):
                call(array, metadata=frame[:19])
    expected = CollapsedLDA(2, **options, scheduler="serial").fit(counts, metadata=frame)
    assert score == expected.score(counts, metadata=frame)
    np.testing.assert_array_equal(found.components_, expected.components_)


@pytest.mark.parametrize(
    ("value", "fit", "score"),
    [(-1, "Negative values", "Negative values"), (0.5, "partition 1, row 2, column 3", "row 9, column 3")],
)
def test_an_invalid_count_in_a_dask_array__is_reported_in_one_line(value, fit, score):
    counts = COUNTS.to_numpy().astype(float)
    estimator = CollapsedLDA(2, max_iter=2, scheduler="serial").fit(counts).set_params(scheduler=None)
    counts[9, 3] = value
    array = dask.array.from_array(counts, chunks=(7, 4))
    for method, text in (("score", score), ("fit", fit)):
        with dask.config.set(scheduler="synchronous"), pytest.raises((InputError, ValueError), match=text) as caught:
            getattr(estimator, method)(array)
        assert "\n" not in str(caught.value)


OTHERS = {"fewer": COUNTS.drop(columns="d"), "reordered": COUNTS[list("abdc")]}


@pytest.mark.parametrize("wrong", OTHERS)
@pytest.mark.parametrize("method", ["fit", "partial_fit", "score", "transform"])
def test_estimators__refuse_partitions_of_other_columns(wrong, method, counted):
    frames = [COUNTS, OTHERS[wrong]]
    parts = dd.from_map(lambda n: frames[n], [0, 1], meta=COUNTS, enforce_metadata=False)
    estimator, text = copy.deepcopy(counted), "partition 1: expected 4 columns, found (3|'d' for 'c')"
    with dask.config.set(scheduler="synchronous"), pytest.raises(InputError, match=text) as caught:
        dask.compute(getattr(estimator, method)(parts))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", OTHERS)
@pytest.mark.parametrize("method", ["partial_fit", "score", "transform"])
def test_estimators__refuse_frames_of_other_columns_than_at_fit(wrong, method, counted):
    frame, estimator = dd.from_pandas(OTHERS[wrong], npartitions=2), copy.deepcopy(counted)
    with pytest.raises(InputError, match="X: expected the 4 columns of the fit, found (3|'d' for 'c')") as caught:
        getattr(estimator, method)(frame)
    assert "\n" not in str(caught.value)


def test_fields_of_records__are_matched_by_name_in_any_order():
    records = [db.from_sequence(frame.to_dict("records"), npartitions=3) for frame in (COUNTS, COUNTS[list("dbca")])]
    with dask.config.set(scheduler="synchronous"):
        estimator = CollapsedLDA(2, max_iter=2, random_state=0).fit(records[0])
        assert list(estimator.feature_names_in_) == list("abcd")
        np.testing.assert_array_equal(*(estimator.transform(bag).compute() for bag in records))
        assert estimator.score(records[0]) == estimator.score(records[1])
        with pytest.raises(InputError, match="X: expected the 4 columns of the fit, found 'c' for 'b'"):
            estimator.transform(db.from_sequence(COUNTS[list("acd")].to_dict("records")))


def wrong_partitions():
    frames = [pd.DataFrame({"text": ["a b"]}), pd.DataFrame({"txt": ["a b"]})]
    return dd.from_map(lambda n: frames[n], [0, 1], meta=frames[0], enforce_metadata=False)


WRONG = {
    "no column": (lambda: dd.from_pandas(FRAME, npartitions=2), r"^text: the frame has no column 'text'"),
    "no texts": (
        lambda: dd.from_pandas(FRAME.assign(text=1), npartitions=2),
        r"^text: expected strings in the column 'text', found int64",
    ),
    "numbers": (lambda: dask.array.ones((4, 3)), "expected texts, found numbers"),
    "other columns": (wrong_partitions, "partition 1: the frame has no column 'text'"),
    "other items": (lambda: db.from_sequence(["a b", 3], npartitions=2), "partition 1: expected strings, found int"),
    "nothing": (lambda: db.from_sequence([], npartitions=1), "expected at least one text"),
    "no words": (lambda: db.from_sequence(["", ""], npartitions=2), "^texts: the corpus is empty"),
}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_collections__are_refused_in_one_line_before_anything_is_written(name, tmp_path):
    make, text = WRONG[name]
    with dask.config.set(scheduler="synchronous"), pytest.raises((InputError, OptionError), match=text) as caught:
        ingest(make(), tmp_path / "corpus", scheduler="serial")
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == []


def test_a_closed_client__is_refused_and_not_the_active_client(tmp_path):
    cluster = distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None)
    with cluster, distributed.Client(cluster, set_as_default=False) as closed:
        pass
    with pytest.raises(OptionError, match="expected a connected Client, found one that is closed"):
        fit(TEXTS, tmp_path / "run", scheduler=closed, **HOW)
    assert names(tmp_path) == []


def test_a_folder_that_workers_cannot_see__is_refused_before_texts_are_read(client, tmp_path, monkeypatch):
    monkeypatch.setattr("collapsium.pipeline.executors.open._reads", lambda *_: False)
    monkeypatch.setattr("collapsium.pipeline.engine.fit.ingest_documents", lambda *_: pytest.fail("texts are read"))
    for out, text in ((None, "temporary folder of this machine; name a folder"), (tmp_path / "run", "cannot read it")):
        with pytest.raises(OptionError, match=rf"^out: .*{text}"):
            fit(TEXTS, out, scheduler=client, **HOW)
    assert names(tmp_path) == []


@pytest.mark.parametrize("call", [Model.transform, infer, lambda run, parts: predict(run, parts, field="kind")])
def test_a_model_that_workers_cannot_see__is_refused_before_anything_is_computed(call, client, labelled, monkeypatch):
    parts, run = dd.from_pandas(FRAME, npartitions=2), labelled if call is Model.transform else labelled.folder.url
    with client.as_current():
        call(run, parts)
        monkeypatch.setattr("collapsium.pipeline.executors.open._reads", lambda *_: False)
        with pytest.raises(OptionError, match="/model: the worker tcp://.* cannot read it; move it to a folder"):
            call(run, parts)
        with dask.config.set(scheduler="synchronous"):  # computed in this process
            call(run, parts)


def test_a_fit_without_a_folder__runs_on_workers_that_see_temporary_files(client, caplog):
    with client.as_current(), fit(TEXTS, **HOW) as found:
        assert isinstance(found, Model)
        assert found.transform(TEXTS[:1]).shape == (1, 2)
    client.sync(asyncio.sleep, 0)  # the worker has released its data
    assert not [record.message for record in caplog.records if record.levelname == "ERROR"]
