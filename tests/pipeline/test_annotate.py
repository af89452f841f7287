"""Topics in AnnData: fits of cells, annotation, and files that contain counts and topics."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from collapsium.pipeline import Model, export, fit, ingest
from collapsium.pipeline.estimators import CollapsedLDA
from collapsium.storage.errors import CollapsiumError, MismatchError, OccupiedError, OptionError, StoreError
from collapsium.storage.io.file import File

# anndata 0.12 uses an option that pandas 3 deprecates, where an object is sliced.
pytestmark = pytest.mark.filterwarnings("ignore:The .mode.chained_assignment. option")

CELLS, GENES = [f"CELL{n}-1" for n in range(30)], [f"GENE{n}" for n in range(12)]
COUNTS = np.random.default_rng(0).poisson(1.5, (30, 12))
HOW = {"family": "lda", "topics": 3, "iterations": 3, "seed": 1}


def cells(rows=slice(None), columns=slice(None)):
    import anndata

    adata = anndata.AnnData(
        np.log1p(COUNTS[rows, columns]),
        pd.DataFrame(
            {"batch": pd.Categorical(["a", "b"] * 15), "depth": COUNTS.sum(axis=1).astype(float)}, index=CELLS
        )[rows],
        pd.DataFrame(index=GENES[columns]),
    )
    adata.layers["counts"] = COUNTS[rows, columns]
    return adata


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells") / "run"
    fit(cells(), folder, layer="counts", labels="batch", covariates="depth", **HOW)
    return folder


def test_annotate__writes_exact_proportions_and_topics(run):
    model, adata = Model(run), cells(slice(None, None, -1))
    model.annotate(adata, obs=True)
    np.testing.assert_array_equal(adata.obsm["X_topics"], model.document_topic[::-1])
    np.testing.assert_array_equal(adata.varm["topics"], model.topic_word.T)
    assert adata.uns["collapsium"]["topics"].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(adata.obs["topic_1"], model.document_topic[::-1, 1])
    assert adata.obs["topic"].astype(int).tolist() == model.document_topic[::-1].argmax(axis=1).tolist()


@pytest.mark.parametrize("name", ["cells.h5ad", "cells.zarr"])
def test_annotated_cells__can_be_written(run, tmp_path, name):
    import anndata

    adata = cells()
    del adata.obs["batch"]
    for frame in (adata.obs, adata.var):
        frame.index = pd.Index(frame.index.tolist(), dtype=object)
    Model(run).annotate(adata, obs=True)
    write, read = (
        (adata.write_h5ad, anndata.read_h5ad) if name.endswith("h5ad") else (adata.write_zarr, anndata.read_zarr)
    )
    write(tmp_path / name)
    again = read(tmp_path / name)
    assert again.obs["topic"].astype(str).tolist() == adata.obs["topic"].astype(str).tolist()
    np.testing.assert_array_equal(again.obsm["X_topics"], adata.obsm["X_topics"])


def test_cells_without_counts__get_the_mean_proportions_of_the_prior(run):
    model, empty = Model(run), cells(slice(2))
    empty.layers["counts"] = 0 * COUNTS[:2]
    empty.obs_names = ["new 1", "new 2"]
    np.testing.assert_allclose(model.transform(empty), 1 / 3)
    empty.var_names = [f"other {n}" for n in range(12)]
    with pytest.raises(CollapsiumError, match="the corpus is empty"):
        model.transform(empty)


def test_annotate__folds_in_new_cells_with_genes_in_any_order(run):
    model, adata = Model(run), cells(slice(20), slice(None, None, -1))
    adata.obs_names = [*CELLS[:15], *(f"new {n}" for n in range(5))]
    model.annotate(adata)
    np.testing.assert_array_equal(adata.obsm["X_topics"][:15], model.document_topic[:15])
    np.testing.assert_array_equal(adata.obsm["X_topics"][15:], model.transform(cells(slice(15, 20))))
    np.testing.assert_array_equal(adata.varm["topics"], model.topic_word.T[::-1])
    adata.var_names = [name.lower() for name in GENES[::-1]]
    with pytest.raises(MismatchError, match="none of its 12 genes"):
        model.annotate(adata)


def test_new_cells__need_not_have_the_fields_of_the_training_cells(run):
    model, new = Model(run), cells(slice(10))
    expected = model.transform(new)
    del new.obs["batch"], new.obs["depth"]
    np.testing.assert_array_equal(model.transform(new), expected)


def test_annotate__reports_that_cells_named_like_training_documents_may_be_other_cells(run):
    import anndata

    others = np.random.default_rng(1).poisson(1.5, (30, 12)).astype(float)
    for matrix in (others, scipy.sparse.csr_matrix(others)):
        adata = anndata.AnnData(matrix, pd.DataFrame(index=CELLS), pd.DataFrame(index=GENES))
        smaller = int((others.sum(axis=1) < COUNTS.sum(axis=1)).sum())
        with pytest.warns(UserWarning, match=f"AnnData: {smaller} of the 30 cells .* have fewer counts than these"):
            Model(run).annotate(adata)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "AnnData")
        Model(run).annotate(cells())
        Model(run).annotate(cells(), layer="counts")


def test_annotate__refuses_duplicate_names_of_training_documents(run):
    adata = cells()
    adata.obs_names = [*CELLS[:29], CELLS[0]]
    with pytest.raises(OptionError, match=r"distinct names of cells, found 'CELL0-1' twice; adata.obs_names_make_un"):
        Model(run).annotate(adata)


@pytest.mark.parametrize("name", ["cells.h5ad", "cells.zarr"])
def test_export__round_trips_counts_labels_and_topics(run, tmp_path, name):
    import anndata

    exported = export(run, tmp_path / name, to="anndata")
    assert (exported.topics, exported.documents) == (3, 30)
    adata = (anndata.read_h5ad if name.endswith("h5ad") else anndata.read_zarr)(tmp_path / name)
    np.testing.assert_array_equal(adata.X.toarray(), COUNTS)
    np.testing.assert_array_equal(adata.obsm["X_topics"], Model(run).document_topic)
    np.testing.assert_array_equal(adata.varm["topics"], Model(run).topic_word.T)
    assert adata.obs["batch"].tolist() == ["a", "b"] * 15
    ingest(tmp_path / name, tmp_path / "again", labels="batch", covariates="depth")
    assert (tmp_path / "again" / "manifest.json").read_bytes() == (run / "corpus" / "manifest.json").read_bytes()
    with pytest.raises(OccupiedError):
        export(run, tmp_path / name, to="anndata")
    with pytest.raises(OptionError, match=r"ends with .h5ad or .zarr"):
        export(run, tmp_path / "cells", to="anndata")
    with pytest.raises(OptionError, match="threshold: applies only to `to` csv"):
        export(run, tmp_path / "x.h5ad", to="anndata", threshold=0.1)


@pytest.mark.parametrize("name", ["cells.h5ad", "cells.zarr"])
def test_an_export_that_fails_as_it_is_copied__leaves_nothing(run, tmp_path, name, monkeypatch):
    copied = []

    def put(file, source):
        copied.append(source)
        if len(copied) == (3 if name.endswith(".zarr") else 1):
            raise StoreError("no space is left on the disk")
        put_file(file, source)

    put_file = File.put
    monkeypatch.setattr(File, "put", put)
    with pytest.raises(StoreError, match="no space"):
        export(run, tmp_path / name, to="anndata")
    assert list(tmp_path.iterdir()) == []


def test_estimators__accept_cells_like_matrices():
    how = {"n_components": 3, "max_iter": 3, "random_state": 1}
    of_counts, of_cells = CollapsedLDA(**how).fit(COUNTS), CollapsedLDA(**how, layer="counts").fit(cells())
    np.testing.assert_array_equal(of_counts.components_, of_cells.components_)
    np.testing.assert_array_equal(of_counts.transform(COUNTS), of_cells.transform(cells()))
    assert of_cells.top_words(1)[0][0] in GENES
    with pytest.raises(MismatchError, match="expected the 12 genes or peaks.*'GENE11' for 'GENE0'"):
        of_cells.transform(cells(columns=slice(None, None, -1)))
    for wrong in ({"layer": "counts"}, {"binarise": True}):
        with pytest.raises(OptionError, match="applies only to AnnData"):
            CollapsedLDA(**how, **wrong).fit(COUNTS)


def test_the_raw_part_of_backed_cells__is_refused_before_its_matrix_is_read(tmp_path, monkeypatch):
    import anndata
    from anndata import Raw

    names = [pd.DataFrame(index=pd.Index(values, dtype=object)) for values in (CELLS, GENES)]
    adata = anndata.AnnData(COUNTS, *names)
    adata.raw = adata.copy()
    monkeypatch.setattr(anndata.settings, "allow_write_nullable_strings", True)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    raw = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r").raw
    monkeypatch.setattr(Raw, "X", property(lambda _: pytest.fail("X is read")))
    for call in (ingest, lambda part: fit(part, **HOW), CollapsedLDA(3).fit):
        with pytest.raises(CollapsiumError, match=r"found .*Raw.*to_adata\(\)") as caught:
            call(raw)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [pd.DataFrame({"text": ["a b"]}), COUNTS, {"text": ["a b"]}, [1], 3, None], ids=repr)
def test_objects_without_paths__are_refused_by_ingest_in_one_line(wrong, tmp_path):
    with pytest.raises(OptionError, match="sources: expected paths, found .*; `fit` takes texts in memory"):
        ingest(wrong, tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize("between", [False, True])
def test_annotate__replaces_the_columns_of_an_earlier_model_with_more_topics(run, between):
    adata = cells()
    fit(adata, layer="counts", family="lda", topics=5, iterations=2).annotate(adata, obs=True)
    if between:
        Model(run).annotate(adata)
    Model(run).annotate(adata, obs=True)
    assert [name for name in adata.obs.columns if "topic" in name] == ["topic_0", "topic_1", "topic_2", "topic"]


@pytest.mark.parametrize(
    ("reading", "message"),
    [
        ({"layer": "count"}, r"layer: AnnData has no layer 'count' \(did you mean 'counts'\?\)"),
        ({"id": "batsh"}, "id: AnnData has no column 'batsh' of obs .*batch"),
        ({"foo": 1}, "annotate: unknown option 'foo'"),
    ],
)
def test_annotate__refuses_unknown_layers_columns_and_options_in_one_line(run, reading, message):
    with pytest.raises(OptionError, match=message):
        Model(run).annotate(cells(), **reading)


def test_several_objects__become_one_corpus_in_their_order(tmp_path):
    one = ingest(cells(), tmp_path / "one", layer="counts")
    two = ingest([cells(slice(10)), cells(slice(10, 30))], tmp_path / "two", layer="counts")
    assert (two.documents, two.tokens) == (one.documents, one.tokens)
    assert [row.sha256 for row in two.shards] == [row.sha256 for row in one.shards]
    with pytest.raises(CollapsiumError, match="expected distinct ids of documents, found 'CELL0-1' twice"):
        ingest([cells(), cells()], tmp_path / "again", layer="counts")


def test_a_vocabulary__is_refused_for_cells_whose_genes_have_names(tmp_path):
    with pytest.raises(OptionError, match=r"vocabulary: does not apply to AnnData, whose words are its var_names"):
        ingest(cells(), tmp_path / "c", layer="counts", vocabulary=GENES[:3])
