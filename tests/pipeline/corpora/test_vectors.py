"""Vectors in all steps of a run: fits, resuming, scores, proportions and checks; and what is refused."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from collapsium.pipeline import Model, coherence, compare, estimate, evaluate, fit, infer, split, verify
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.engine import state as partition
from collapsium.pipeline.engine import topic_snapshots
from collapsium.pipeline.estimators import CollapsedLDA
from collapsium.pipeline.models.registry import load_family
from collapsium.pipeline.workflows.compare_options import default_families
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import CollapsiumError, MismatchError, NumericalError, OptionError
from collapsium.storage.runs.run import Run
from tests import means
from tests.conftest import write_corpus
from tests.fits import resumed
from tests.storage.corpus.test_vectors import write_vectors

VALUES = np.random.default_rng(5).normal(loc=[1.0, -2.0, 30.0, 0.0], size=(23, 4))
SHARDS = 4


@pytest.fixture(autouse=True)
def family(monkeypatch):
    means.known(monkeypatch)


@pytest.fixture
def corpus(tmp_path):
    return write_vectors(tmp_path / "c", VALUES, 24, labelled=True)


@pytest.fixture
def documents(tmp_path):
    return write_corpus(tmp_path / "d", [{0: 1, 1: 2}, {1: 3}], 2)


def fitted(corpus, out, iterations=12, **options):
    return fit(corpus, out, family="means", iterations=iterations, **{"scheduler": "serial", **options})


def bits(model):
    """Return (name, bytes) for all arrays of a model."""
    states = [model.global_state, model.rows(0), *(model.local_state(number) for number in range(SHARDS))]
    parts = [state.to_arrays() for state in states]
    return [(name, part[name].tobytes()) for part in parts for name in sorted(part)]


def mean_of(model):
    return model.rows(0).word_mean


@pytest.mark.xdist_group("clusters")
@pytest.mark.parametrize(("scheduler", "workers"), [("threads", 1), ("threads", 3), ("cluster", 2)])
def test_fits__give_the_same_bits_on_all_executors(corpus, tmp_path, monkeypatch, clusters, scheduler, workers):
    assert len(Corpus(corpus).manifest.shards) == SHARDS
    expected = fitted(corpus, tmp_path / "serial")
    np.testing.assert_allclose(mean_of(expected), VALUES.mean(axis=0), rtol=0.02, atol=0.02)
    if scheduler == "cluster":
        import distributed

        scheduler = clusters(workers)
        with distributed.Client(scheduler) as client:
            client.register_plugin(means.Known())  # for workers that join later
    # top words are fetched from the workers as often as possible
    monkeypatch.setattr(topic_snapshots, "MIN_SECONDS", 0.0)
    found = fitted(corpus, tmp_path / "run", scheduler=scheduler, workers=workers)
    assert bits(found) == bits(expected)
    error = evaluate(tmp_path / "run", unseen=corpus, scheduler=scheduler, workers=workers)
    assert error == evaluate(tmp_path / "serial", unseen=corpus, scheduler="serial")


def test_a_fit_in_scratch_files__gives_the_same_bits(corpus, tmp_path, monkeypatch):
    import dataclasses

    from collapsium.pipeline.engine import estimate as planning
    from collapsium.pipeline.engine import fit as fitting

    expected = bits(fitted(corpus, tmp_path / "memory"))
    found = planning.plan

    def on_disk(*arguments, **options):
        plan = found(*arguments, **options)
        return dataclasses.replace(plan, spilled=plan.shards)

    monkeypatch.setattr(fitting, "plan", on_disk)
    (tmp_path / "scratch").mkdir()
    assert bits(fitted(corpus, tmp_path / "disk", scratch=str(tmp_path / "scratch"))) == expected
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_resumed_run__gives_the_same_bits(corpus, tmp_path):
    expected = bits(fitted(corpus, tmp_path / "whole"))
    seen = []

    def stop(event):
        if event["event"] == "iteration":
            seen.append(event["iteration"])
            if event["iteration"] == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(corpus, tmp_path / "run", sinks=[stop])
    assert seen[-1] == 5
    assert bits(resumed(tmp_path / "run", scheduler="serial")) == expected
    assert not verify(tmp_path / "run").broken


def test_dividing_columns_into_blocks__gives_the_same_numbers(corpus, tmp_path, monkeypatch):
    expected = mean_of(fitted(corpus, tmp_path / "one"))
    monkeypatch.setattr(partition, "BLOCK_BYTES", 16)
    model = fitted(corpus, tmp_path / "two")
    assert len(model.blocks) == 2
    np.testing.assert_array_equal(np.concatenate([model.rows(n).word_mean for n in range(2)]), expected)
    assert evaluate(tmp_path / "two", unseen=corpus) == evaluate(tmp_path / "one", unseen=corpus)


# Scores --------------------------------------------------------------------------------------------------------------


def test_unseen_vectors__are_scored_by_their_residuals(corpus, tmp_path, capsys):
    model = fitted(corpus, tmp_path / "run")
    shifted = write_vectors(tmp_path / "other", VALUES[:7] + 0.5, 8)
    for place, values in ((shifted, VALUES[:7] + 0.5), (corpus, VALUES)):
        found = evaluate(tmp_path / "run", unseen=place)
        assert found.reconstruction_error == pytest.approx(((values - mean_of(model)) ** 2).sum(axis=1).mean())
        assert found.documents == len(values)
        assert "mean over the vectors of |t - t^|^2" in found.definition
        assert ("was fitted to these vectors" in found.definition) == (place == corpus)
        assert not found.members
    assert main(["evaluate", str(tmp_path / "run"), "--unseen", str(shifted), "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert sorted(output) == ["definition", "documents", "reconstruction_error"]
    assert main(["evaluate", str(tmp_path / "run"), "--unseen", str(shifted)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"error      {output['reconstruction_error']:.4f}, mean of |t - t^|^2"
    assert lines[1] == "vectors    7"
    assert lines[2].startswith("defined as reconstruction error of unseen vectors")
    with pytest.raises(OptionError, match="name one corpus"):
        evaluate(tmp_path / "run")


def test_errors_of_members__are_averaged_and_reported(corpus, tmp_path, capsys):
    fitted(corpus, tmp_path / "run", restarts=3)
    found = evaluate(tmp_path / "run", unseen=corpus)
    errors = [evaluate(tmp_path / f"run/members/00{n}", unseen=corpus).reconstruction_error for n in range(3)]
    assert [member.reconstruction_error for member in found.members] == errors
    assert len(set(errors)) == 3
    assert found.reconstruction_error == pytest.approx(np.mean(errors), rel=1e-14)
    assert "the mean of its members' errors" in found.definition
    assert main(["evaluate", str(tmp_path / "run"), "--unseen", str(corpus)]) == 0
    assert f"member     001: {errors[1]:.4f}" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("error", [np.zeros(3), np.zeros((6, 1)), np.full(6, np.nan)])
def test_errors_of_other_shapes_or_not_finite__are_refused(corpus, tmp_path, monkeypatch, error):
    fitted(corpus, tmp_path / "run")
    monkeypatch.setattr(means.Means, "predict", lambda *arguments: {"error": error})
    with pytest.raises(NumericalError, match="expected a finite error of each vector of shard"):
        evaluate(tmp_path / "run", unseen=corpus)


def test_infer__writes_a_row_for_each_vector(corpus, tmp_path):
    fitted(corpus, tmp_path / "run")
    unseen = write_vectors(tmp_path / "other", VALUES[:7], 8)
    for place, count in ((corpus, 23), (unseen, 7)):
        assert infer(tmp_path / "run", place, tmp_path / f"{count}.parquet").rows == count
        table = pq.read_table(tmp_path / f"{count}.parquet")
        assert table.column("id").to_pylist() == [f"v{n}" for n in range(count)]
        assert table.column("proportions").to_pylist() == [[1.0]] * count


def test_verify__finds_damage(corpus, tmp_path, monkeypatch):
    fitted(corpus, tmp_path / "run")
    assert not verify(tmp_path / "run").broken
    monkeypatch.setattr(means.Means, "predict", lambda *arguments: {"error": np.full(6, -1.0)})
    assert any("expected an error of 0 or more" in fault for fault in verify(tmp_path / "run").broken)


def test_estimate__counts_eight_bytes_per_value(tmp_path):
    corpus = write_vectors(tmp_path / "c", np.zeros((5000, 100)), 100_000)
    found = estimate(corpus, family="means", scheduler="serial")
    assert found.memory["documents"] == pytest.approx(8 * 500_000, rel=0.02)
    assert not found.on_disk


# Held-out documents --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["vectors", "documents"])
def test_folds__partition_the_documents_for_any_shards(tmp_path, kind):
    if kind == "vectors":
        corpora = [write_vectors(tmp_path / str(size), VALUES, size, labelled=True) for size in (8, 1000)]
    else:
        rows = [{n % 5: n % 3 + 1} if n % 7 else {} for n in range(40)]
        corpora = [write_corpus(tmp_path / str(size), rows, 5, shard_tokens=size) for size in (8, 1000)]
    held = []
    for corpus in corpora:
        seen = []
        for fold in range(3):
            train, unseen = f"{corpus}-train-{fold}", f"{corpus}-unseen-{fold}"
            split(corpus, train, unseen, folds=3, fold=fold, seed=2)
            parts = [ids_of(train), ids_of(unseen)]
            assert sorted(parts[0] + parts[1], key=ids_of(corpus).index) == ids_of(corpus)
            assert not set(parts[0]) & set(parts[1])
            for part in (train, unseen):
                assert Corpus(part).manifest.vocabulary.words_sha256 == Corpus(corpus).manifest.vocabulary.words_sha256
                assert not verify(part).broken
            seen.append(parts[1])
        assert sorted(name for part in seen for name in part) == sorted(ids_of(corpus))
        held.append(seen)
    assert held[0] == held[1]
    split(corpora[0], tmp_path / "a", tmp_path / "b", documents=True, fraction=1 / 3, seed=2)
    assert ids_of(tmp_path / "b") == held[0][0]  # the held-out share is the first fold of its size


def ids_of(corpus):
    return [name for reference in Corpus(corpus).references for name in reference.documents().ids.to_pylist()]


def test_split__keeps_values_and_labels_with_their_ids(tmp_path, corpus):
    split(corpus, tmp_path / "train", tmp_path / "unseen", documents=True, fraction=0.4)
    whole = rows_of(corpus)
    assert {**rows_of(tmp_path / "train"), **rows_of(tmp_path / "unseen")} == whole
    # as in the whole corpus
    assert max(reference.record.documents for reference in Corpus(tmp_path / "train").references) == 6


def rows_of(corpus):
    found = {}
    for reference in Corpus(corpus).references:
        part = reference.vectors()
        labels = part.extras["labels"].to_pylist()
        found.update(
            {
                name: (row.tobytes(), str(label))
                for name, row, label in zip(part.ids.to_pylist(), part.values, labels, strict=True)
            }
        )
    return found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "vectors have no tokens to split; hold out whole vectors"),
        ({"documents": True, "fraction": 1.0}, "^fraction: "),
        ({"documents": True, "fraction": 1e-9}, "the corpus is empty"),
        ({"folds": 1, "fold": 0}, "folds: expected 2 or more, found 1"),
        ({"folds": 3, "fold": 3}, "fold: expected a number from 0 to 2, found 3"),
        ({"folds": 3, "fold": -1}, "fold: expected a number from 0 to 2, found -1"),
        ({"folds": 3}, "`folds` and `fold` are needed together"),
        ({"fold": 3}, "`folds` and `fold` are needed together"),
        ({"folds": 3, "fold": 1, "fraction": 0.5}, "fraction: 0.5 is not allowed with `folds`"),
    ],
)
def test_impossible_splits__leave_nothing(corpus, tmp_path, options, message):
    with pytest.raises(CollapsiumError, match=message):
        split(corpus, tmp_path / "a", tmp_path / "b", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_the_command__splits_complete_documents(corpus, documents, tmp_path, capsys):
    words = [str(corpus), str(tmp_path / "a"), str(tmp_path / "b"), "--folds", "2", "--fold", "1"]
    assert main(["split", *words]) == 0
    counts = [len(ids_of(tmp_path / name)) for name in "ab"]
    assert sum(counts) == 23
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / name}: {count} vectors" for name, count in zip("ab", counts, strict=True)
    ]
    words = [
        str(documents),
        str(tmp_path / "p"),
        str(tmp_path / "q"),
        "--documents",
        "--fraction",
        "0.5",
        "--seed",
        "4",
    ]
    assert main(["split", *words]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("tokens in 1 document")


# Refusals ------------------------------------------------------------------------------------------------------------


def assert_refused(message, tmp_path, call):
    """Assert that a call is refused in one line and leaves nothing."""
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CollapsiumError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_corpora_of_the_other_kind__are_refused(corpus, documents, tmp_path):
    vectors, texts = str(corpus), str(documents)
    takes_documents = r"a corpus of vectors; family 'lda' takes a corpus of documents"
    takes_vectors = r"a corpus of documents; family 'means' takes a corpus of vectors"
    out = tmp_path / "out"

    def assert_all_refused(path, name, options, message):
        assert_refused(message, tmp_path, lambda: fit(path, out, family=name, scheduler="serial", **options))
        assert_refused(message, tmp_path, lambda: estimate(path, family=name, **options))
        assert_refused(message, tmp_path, lambda: compare(path, out, families=[name], topics=[2]))

    assert_all_refused(vectors, "lda", {"topics": 2}, takes_documents)
    assert_all_refused(texts, "means", {}, takes_vectors)
    fit(texts, tmp_path / "lda", family="lda", topics=2, iterations=1, scheduler="serial")
    fitted(vectors, tmp_path / "means", 1)

    def assert_unseen_refused(run, path, message):
        assert_refused(message, tmp_path, lambda: evaluate(run, unseen=path))
        assert_refused(message, tmp_path, lambda: infer(run, path, out))

    assert_unseen_refused(tmp_path / "lda", vectors, takes_documents)
    assert_unseen_refused(tmp_path / "means", texts, takes_vectors)
    assert_refused(takes_vectors, tmp_path, lambda: evaluate(tmp_path / "means", heldout=texts))
    assert_refused("coherence takes a corpus of documents", tmp_path, lambda: coherence(tmp_path / "lda", vectors))


def test_estimators__accept_documents_only(corpus):
    estimator = CollapsedLDA(n_components=2, max_iter=1).fit(np.ones((3, 4), dtype=int))
    for call in (estimator.transform, estimator.score, estimator.fit):
        with pytest.raises(
            MismatchError, match="a corpus of vectors; an estimator of topics takes a corpus of documents"
        ):
            call(str(corpus))


def test_the_commands__refuse_in_one_line(corpus, tmp_path, capsys):
    out = str(tmp_path / "out")
    assert main(["fit", str(corpus), out, "--family", "lda", "--topics", "2", "--quiet"]) == 1
    assert capsys.readouterr().err == (
        f"collapsium: error: {corpus}: a corpus of vectors; family 'lda' takes a corpus of documents\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_vectors__are_never_held_out_by_tokens(corpus, documents, tmp_path):
    message = "heldout: .*: vectors have no tokens to hold out.*`evaluate` with `unseen`"
    assert_refused(message, tmp_path, lambda: fitted(corpus, tmp_path / "out", heldout=corpus))
    assert_refused(message, tmp_path, lambda: fit(documents, tmp_path / "out", family="lda", topics=2, heldout=corpus))
    assert_refused(message, tmp_path, lambda: compare(documents, tmp_path / "out", families=["lda"], heldout=corpus))
    fitted(corpus, tmp_path / "run", 1)
    assert_refused(message, tmp_path, lambda: evaluate(tmp_path / "run", heldout=corpus))
    message = "families are compared by held-out tokens"
    assert_refused(message, tmp_path, lambda: compare(corpus, tmp_path / "out", families=["means"]))


def test_warm_starts__require_topics_over_words(corpus, documents, tmp_path):
    out, lda = tmp_path / "out", {"family": "lda", "topics": 2, "iterations": 1, "scheduler": "serial"}
    fitted(corpus, tmp_path / "run", 1)
    fit(documents, tmp_path / "lda", **lda)
    message = "family 'means' has no topics over words to begin from"
    assert_refused(message, tmp_path, lambda: fitted(corpus, out, warm=tmp_path / "run"))
    assert_refused(message, tmp_path, lambda: fit(documents, out, warm=tmp_path / "run", **lda))
    message = "warm: begins from topics over words, and vectors have none"
    assert_refused(message, tmp_path, lambda: fitted(corpus, out, warm=tmp_path / "lda"))


def test_other_columns__are_another_vocabulary(corpus, tmp_path):
    fitted(corpus, tmp_path / "run", 1)
    narrower = write_vectors(tmp_path / "other", VALUES[:, :3])
    with pytest.raises(MismatchError, match="its vocabulary"):
        evaluate(tmp_path / "run", unseen=narrower)


def test_comparisons__use_families_of_documents_unless_others_are_named(tmp_path, documents):
    assert "means" not in default_families()
    assert all(load_family(name).corpus_kind == "documents" for name in default_families())
    with pytest.raises(MismatchError, match="family 'means' takes a corpus of vectors"):
        compare(Corpus(documents), tmp_path / "compared", families=["lda", "means"])
    assert not (tmp_path / "compared").exists()


def test_events__have_no_score(corpus, tmp_path):
    model = fitted(corpus, tmp_path / "run", 3)
    events = [event for event in Run(tmp_path / "run").events() if event["event"] == "iteration"]
    assert [event["iteration"] for event in events] == [1, 2, 3]
    assert not any("score" in event for event in events)
    assert all(np.isfinite(event["objective"]) for event in events)
    assert model.record.family == "means"
    assert isinstance(model, Model)
