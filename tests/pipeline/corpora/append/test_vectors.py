"""Appending vectors: the resulting corpus, interrupted additions, and what is refused."""

import json
import shutil

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from collapsium.pipeline import append, evaluate, fit, infer, info, ingest, split, verify
from collapsium.pipeline.cli.main import main
from collapsium.storage.building.ingest_record import read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import Manifest
from collapsium.storage.corpus.vectors import ArrayWriter, Vectors
from collapsium.storage.errors import DamagedError, InputError, LockedError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.run_lock import RunLock

SMALL = st.floats(-9, 9, width=16)


def put_rows(path, values, first=0, header=True):
    """Write vectors as comma-separated values with an id and a label each."""
    lines = ["id,kind," + ",".join(f"c{n}" for n in range(values.shape[1]))] if header else []
    lines += [
        f"v{first + n},k{(first + n) % 2}," + ",".join(map(repr, map(float, row))) for n, row in enumerate(values)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def put_corpus(place, values, shard_tokens=None):
    path = put_rows(place / "first.csv", values)
    ingest(path, place / "c", format="vectors", labels=["kind"], shard_tokens=shard_tokens, **IDS)
    return place / "c"


IDS = {"id": "id"}


def all_of(corpus):
    """Return all vectors of a corpus: ids, labels and values."""
    every = Vectors.join([reference.vectors() for reference in Corpus(corpus).references])
    return every.ids.to_pylist(), every.extras["labels"].to_pylist(), every.values.tolist()


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def corpus(tmp_path):
    """Seven vectors in shards of three, so that the last shard is not full, and a file of four more vectors."""
    values = np.random.default_rng(2).normal(size=(11, 2))
    values[:, 1] = 4.0
    put_rows(tmp_path / "more.csv", values[7:], first=7)
    return put_corpus(tmp_path, values[:7], shard_tokens=6)


@settings(max_examples=25)
@given(
    hnp.arrays(np.float64, st.tuples(st.integers(2, 14), st.integers(1, 3)), elements=SMALL),
    st.integers(1, 9),
    st.data(),
)
def test_appended_vectors__are_read_as_if_all_had_been_ingested_at_once(tmp_path_factory, values, shard_tokens, data):
    place = tmp_path_factory.mktemp("appended")
    whole = put_corpus(place, values, shard_tokens)
    shutil.move(whole, place / "whole")
    bounds = sorted(data.draw(st.sets(st.integers(1, len(values) - 1), min_size=1, max_size=3)))
    corpus = put_corpus(place, values[: bounds[0]], shard_tokens)
    for number, (first, last) in enumerate(zip(bounds, [*bounds[1:], len(values)], strict=True)):
        append(corpus, put_rows(place / f"more{number}.csv", values[first:last], first))
    assert all_of(corpus) == all_of(place / "whole")
    appended, expected = Corpus(corpus).manifest, Corpus(place / "whole").manifest
    assert (appended.documents, appended.tokens, appended.fields) == (
        expected.documents,
        expected.tokens,
        expected.fields,
    )
    assert appended.vectors.constant == expected.vectors.constant
    assert appended.vocabulary == expected.vocabulary.model_copy(update={"file": appended.vocabulary.file})
    assert verify(corpus).broken == []
    read = [zarr.open_array(str(corpus / array.file), mode="r")[...] for array in appended.vectors.arrays]
    # each addition is an array that other programs can read
    np.testing.assert_array_equal(np.concatenate(read), values)
    shutil.rmtree(place)


def test_an_addition__changes_no_existing_file_except_the_manifest_and_the_history(corpus):
    before, reader = files_of(corpus), Corpus(corpus)
    manifest = append(corpus, corpus.parent / "more.csv")
    assert manifest.shards[:3] == reader.manifest.shards
    assert [row.documents for row in manifest.shards] == [3, 3, 1, 4]
    assert manifest.vectors.constant == (1,)
    after = files_of(corpus)
    assert {name for name in before if after[name] != before[name]} == {"manifest.json", "ingest.json"}
    assert sum(len(reference.vectors()) for reference in reader.references) == 7  # a corpus opened before is unchanged
    assert info(corpus)["documents"] == 11


@pytest.mark.parametrize("where", ["chunk", "history", "manifest"])
def test_an_interrupted_addition__leaves_the_corpus_as_it_was_and_can_be_repeated(corpus, where, monkeypatch):
    digest, whole = Corpus(corpus).manifest.digest, corpus.parent / "whole"
    shutil.copytree(corpus, whole)
    append(whole, corpus.parent / "more.csv")

    def fail(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        if where == "chunk":
            broken.setattr(ArrayWriter, "finish", fail)
        elif where == "history":
            broken.setattr("collapsium.storage.building.ingest_record.History.write", fail)
        else:
            broken.setattr(Manifest, "write", fail)
        with pytest.raises(KeyboardInterrupt):
            append(corpus, corpus.parent / "more.csv")
    assert Corpus(corpus).manifest.digest == digest
    assert len(all_of(corpus)[0]) == 7
    other = put_rows(corpus.parent / "other.csv", np.ones((1, 2)), first=20)
    shutil.copytree(corpus, corpus.parent / "elsewhere")
    append(corpus.parent / "elsewhere", other)  # the next addition removes remnants of an interrupted one
    assert len([path for path in (corpus.parent / "elsewhere").iterdir() if path.name.startswith("vectors")]) == 2
    append(corpus, corpus.parent / "more.csv")
    assert files_of(corpus) == files_of(whole)
    assert [record.documents for record in read_history(Folder(corpus)).appended] == [4]


def test_the_same_addition_again__is_refused_or_adds_nothing(corpus, capsys):
    more = str(corpus.parent / "more.csv")
    assert main(["append", str(corpus), more]) == 0
    assert "4 vectors added, now 11 vectors of 2 columns, 4 shards" in capsys.readouterr().out
    before = files_of(corpus)
    assert main(["append", str(corpus), more]) == 0
    assert "these 4 vectors were added before; nothing to add" in capsys.readouterr().out
    assert files_of(corpus) == before
    other = str(put_rows(corpus.parent / "changed.csv", np.ones((4, 2)), first=7))
    assert main(["append", str(corpus), other]) == 1
    assert "has vectors with the same ids already, such as 'v7'" in capsys.readouterr().err
    assert main(["append", str(corpus), more, "--skip-existing", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["append"]["skipped_documents"] == 4
    assert main(["append", str(corpus), more, "--skip-existing"]) == 0
    assert "vectors left out, as their ids are in the corpus already" in capsys.readouterr().out
    assert files_of(corpus) == before


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        ("id,kind,c0\nx,a,1\n", {}, MismatchError, "has 1 columns of values; .* has 2"),
        ("id,kind,c0,other\nx,a,1,2\n", {}, MismatchError, "has a column 'other' where .* has 'c1'"),
        ("id,kind,c0,c1\nx,a,1,inf\n", {}, InputError, "expected a finite number"),
        ("id,kind,c0,c1\nx,a,1,2\nx,a,1,2\n", {}, InputError, "the id 'x' occurs twice"),
        ("id,kind,c0,c1\nx,a,1,2\n", {"grow": True}, OptionError, "grow: .* whose columns are fixed"),
        ("id,kind,c0,c1\nx,a,1,2\n", {"format": "jsonl"}, OptionError, "`format` jsonl: .* a corpus of vectors"),
        ("id,kind,c0,c1\nx,a,1,2\n", {"tokenizer": "a:b"}, OptionError, "`tokenizer` a:b: .* have no words"),
    ],
)
def test_vectors_that_do_not_fit__are_refused_and_change_nothing(corpus, text, options, error, message):
    before = files_of(corpus)
    (corpus.parent / "wrong.csv").write_text(text)
    with pytest.raises(error, match=message):
        append(corpus, corpus.parent / "wrong.csv", **options)
    assert files_of(corpus) == before
    with RunLock(Folder(corpus) / "lock"), pytest.raises(LockedError, match="works on it"):
        append(corpus, corpus.parent / "more.csv")


def test_vectors_without_ids__are_numbered_by_their_files(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(3, 2))
    np.save(tmp_path / "b.npy", np.arange(4.0).reshape(2, 2))
    ingest(tmp_path / "a.npy", tmp_path / "c")
    append(tmp_path / "c", tmp_path / "b.npy")
    ids = [name for reference in Corpus(tmp_path / "c").references for name in reference.documents().ids.to_pylist()]
    assert ids == ["1", "2", "3", "b.npy/1", "b.npy/2"]
    with pytest.raises(MismatchError, match="has vectors with the same numbers, such as 'b.npy/1'"):
        append(tmp_path / "c", tmp_path / "b.npy", skip_existing=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(version=3), "expected version 4 of vectors with additions"),
        (lambda m: m["vectors"]["appended"][0].update(first=4), "in the order of their shards"),
        (lambda m: m["vectors"]["appended"][0].update(first=2), "expected as many vectors in each shard"),
        (lambda m: m["vectors"]["appended"][0].update(rows=3), "no more vectors in the last shard"),
        (lambda m: m["vectors"]["appended"][0].update(file="../x"), "would leave the folder"),
    ],
)
def test_a_manifest_with_additions__is_checked(corpus, change, message):
    append(corpus, corpus.parent / "more.csv")
    record = json.loads((corpus / "manifest.json").read_text())
    change(record)
    (corpus / "manifest.json").write_text(json.dumps(record))
    with pytest.raises(DamagedError, match=message):
        Corpus(corpus)


def test_a_corpus_with_additions__can_be_split_fitted_inferred_and_evaluated(corpus):
    append(corpus, corpus.parent / "more.csv")
    place = corpus.parent
    split(corpus, place / "train", place / "unseen", documents=True, fraction=0.3)
    fit(place / "train", place / "run", family="hca", depth=2, iterations=2, scheduler="serial")
    inferred = infer(place / "run", place / "train", place / "p.parquet")
    assert inferred.rows == Corpus(place / "train").manifest.documents
    assert evaluate(place / "run", unseen=place / "unseen").documents == Corpus(place / "unseen").manifest.documents
    fit(corpus, place / "whole", family="hca", depth=2, iterations=2, scheduler="serial")
    assert infer(place / "whole", corpus, place / "w.parquet").rows == 11
