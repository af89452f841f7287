"""Restarts and samples without a consensus: all commands use one model, whose estimates are means over the members."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapsium.pipeline import (
    Corpus,
    Model,
    edit,
    estimate,
    export,
    fit,
    infer,
    info,
    name_topics,
    report,
    resume,
    topics,
    verify,
)
from collapsium.pipeline.engine.consensus import ABSENT, all_columns, join
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.pipeline.models import topics as ranking
from collapsium.storage.errors import DamagedError, MismatchError, OptionError
from collapsium.storage.io.records import DIGEST, dump
from collapsium.storage.runs.members import averaged_models, members_of
from collapsium.storage.runs.run import Run
from tests.conftest import mark_rest_long
from tests.pipeline.engine.conftest import ENSEMBLE_OPTIONS

FAMILIES = {
    "lda": {"topics": 4},
    "hdp": {"topics": 6},
    "gibbs-lda": {"topics": 4, "samples": 2, "sample_every": 2},
    "keyword-lda": {"topics": 4},
    "vb-lda": {"topics": 4},
    "gibbs-hdp": {"init_topics": 5},
}
MEAN = "members/mean/model.json"


def aligned(run):
    """Return a run's members, and for each topic of their mean the column of each member."""
    record = json.loads((run / MEAN).read_text())
    return [(Model(run / "members" / member["folder"]), np.array(member["columns"])) for member in record["members"]]


def mean_of(parts, width, occupied=None):
    """Return the mean by the naive version: add the members' columns, and divide by the number of members that have
    each, among their `occupied` topics if these are given."""
    total, having = np.zeros((len(parts[0][0]), width)), np.zeros(width)
    for number, (values, columns) in enumerate(parts):
        for place, column in enumerate(columns):
            if column != ABSENT and (occupied is None or column in occupied[number]):
                total[:, place] += values[:, column]
                having[place] += 1
    return total, having


@pytest.mark.parametrize("family", mark_rest_long(FAMILIES, retained=range(4)))
def test_the_model_of_restarts__is_the_mean_of_its_members(small, tmp_path, family):
    restarts = 3 if family == "lda" else 2
    options = {"family": family, "iterations": 5, "restarts": restarts, "scheduler": "serial", **FAMILIES[family]}
    if family == "keyword-lda":
        words = Corpus(small[0]).vocabulary.words
        (tmp_path / "seeds.toml").write_text(f'[first]\nwords = ["{words[0]}", "{words[1]}"]\n')
        options["seeds"] = str(tmp_path / "seeds.toml")
    model = fit(small[0], tmp_path / "run", **options)
    members = aligned(tmp_path / "run")
    assert len(members) == restarts * options.get("samples", 1) == len(model.members)
    width = members[0][1].size
    shares, _ = mean_of([(member.document_topic, columns) for member, columns in members], width)
    assert model.document_topic == pytest.approx(shares / len(members), abs=1e-12)
    assert model.document_topic.sum(axis=1) == pytest.approx(
        np.mean([m.document_topic.sum(axis=1) for m, _ in members], axis=0)
    )
    occupied = [set(ranking.occupied(member)) for member, _ in members]
    words, having = mean_of([(member.topic_word.T, columns) for member, columns in members], width, occupied)
    found = [topic.id for topic in topics(tmp_path / "run")]
    assert model.topic_word[found] == pytest.approx((words / np.maximum(having, 1)).T[found], abs=1e-6)
    assert verify(tmp_path / "run").broken == []


@given(seed=st.integers(0, 1000))
@settings(max_examples=5, deadline=None)
def test_topics_of_some_members__have_the_mean_words_of_these(small, tmp_path_factory, seed):
    place = tmp_path_factory.mktemp("mean") / "run"
    options = {"family": "gibbs-hdp", "init_topics": 1, "iterations": 4, "scheduler": "serial"}
    model = fit(small[0], place, restarts=3, seed=seed, **options)
    members = aligned(place)
    occupied = [set(ranking.occupied(member)) for member, _ in members]
    for topic in ranking.occupied(model).tolist():
        having = [
            member.topic_word[columns[topic]]
            for (member, columns), known in zip(members, occupied, strict=True)
            if columns[topic] in known
        ]
        assert model.topic_word[topic] == pytest.approx(np.mean(having, axis=0), abs=1e-9)


def test_new_documents__have_the_means_of_their_proportions_in_the_members(small, ensemble, tmp_path):
    infer(ensemble, small[1], tmp_path / "all.npy")
    parts = []
    for number, (_, columns) in enumerate(aligned(ensemble)):
        infer(ensemble, small[1], tmp_path / f"{number}.npy", member=number)
        parts.append((np.load(tmp_path / f"{number}.npy").astype(np.float64), columns))
    total, _ = mean_of(parts, parts[0][1].size)
    assert np.load(tmp_path / "all.npy") == pytest.approx(total / 3, abs=1e-6)


@pytest.mark.parametrize("workers", mark_rest_long([3, 1]))
def test_the_mean__has_the_same_bits_with_any_number_of_threads(small, ensemble, tmp_path, workers):
    options = {"heldout": small[1], "seed": 4, "restarts": 3, "workers": workers, **ENSEMBLE_OPTIONS}
    fit(small[0], tmp_path / "run", **options)
    for name in ("model.json", "summary.json"):
        assert (tmp_path / "run/members/mean" / name).read_bytes() == (ensemble / "members/mean" / name).read_bytes()


@pytest.mark.long
@pytest.mark.xdist_group("clusters")
def test_the_mean__has_the_same_bits_on_a_cluster(small, ensemble, tmp_path, clusters):
    options = {"heldout": small[1], "seed": 4, "restarts": 3, **ENSEMBLE_OPTIONS}
    fit(small[0], tmp_path / "run", scheduler=clusters(3), **options)
    for name in ("model.json", "summary.json"):
        assert (tmp_path / "run/members/mean" / name).read_bytes() == (ensemble / "members/mean" / name).read_bytes()
    for scheduler in ("serial", clusters(2)):
        infer(tmp_path / "run", small[1], tmp_path / "out.parquet", scheduler=scheduler)
        (tmp_path / "out.parquet").rename(tmp_path / f"{type(scheduler).__name__}{scheduler == 'serial'}.parquet")
    first, second = sorted(tmp_path.glob("*.parquet"))
    assert first.read_bytes() == second.read_bytes()


def test_topics__are_means_with_their_support(ensemble, tmp_path):
    listed = topics(ensemble)
    assert all(0 <= topic.support <= 3 and 0.0 <= topic.stability <= 1.0 for topic in listed)
    assert sum(topic.share for topic in listed) == pytest.approx(1.0)
    frame = Model(ensemble).topics()
    assert list(frame.index) == [topic.id for topic in listed]
    assert "support" in frame
    report(ensemble, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "means of 3 models" in page
    assert "of 3 members" in page
    export(ensemble, tmp_path / "out", to="csv")


def test_words__are_the_most_probable_of_the_mean(ensemble):
    model = Model(ensemble)
    words = model.vocabulary.words
    for topic in topics(ensemble, words=5):
        phi = model.topic_word[topic.id]
        assert [p for _, p in topic.words] == pytest.approx(np.sort(phi)[::-1][:5].tolist(), rel=1e-6)
        assert all(phi[words.index(word)] == pytest.approx(p, rel=1e-6) for word, p in topic.words)


def test_members_that_were_fitted_further__are_matched_again(small, ensemble, tmp_path):
    run = shutil.copytree(ensemble, tmp_path / "run")
    resume(run / "members/001", iterations=7)
    with pytest.raises(MismatchError, match="001/model: it was fitted further since the members were matched"):
        topics(run)
    assert any("fitted further" in fault for fault in verify(run).broken)
    resume(run, iterations=7)
    assert [model.record.iterations for model in Model(run).members] == [7, 7, 7]
    assert verify(run).broken == []


def test_a_run_stopped_before_its_members_were_matched__can_be_continued(small, ensemble, tmp_path):
    """This is so in runs of 0.1 and in killed runs: until they continue, the first member is used, with a notice."""
    run = shutil.copytree(ensemble, tmp_path / "run")
    shutil.rmtree(run / "members/mean")
    assert not Model(run).members
    assert infer(run, small[1], tmp_path / "out.npy").member == str(run / "members/000")
    resume(run)
    assert (run / MEAN).read_bytes() == (ensemble / MEAN).read_bytes()
    before = (run / MEAN).stat().st_mtime_ns
    resume(run)
    assert (run / MEAN).stat().st_mtime_ns == before


def test_names__persist_when_members_continue(ensemble, tmp_path):
    run = shutil.copytree(ensemble, tmp_path / "run")
    name_topics(run, lambda words, texts: words[0].upper())
    names = Model(run).topic_names
    assert len(names) == len(topics(run))
    resume(run, iterations=7)
    assert Model(run).topic_names == names


def test_a_mean__can_be_neither_edited_nor_resumed(small, ensemble, tmp_path):
    with pytest.raises(OptionError, match="no counts to edit"):
        edit(ensemble, tmp_path / "out", merge=[(0, 1)])
    with pytest.raises(OptionError, match="no state to continue from"):
        fit(small[0], tmp_path / "run", warm=ensemble / "members/mean", **ENSEMBLE_OPTIONS)
    assert not (tmp_path / "out").exists()


def test_unmatched_topics__are_those_of_the_first_member(small, tmp_path):
    fit(small[0], tmp_path / "tree", family="ncrp", depth=2, iterations=3, restarts=2)
    assert not (tmp_path / "tree/members/mean").exists()
    inferred = infer(tmp_path / "tree", small[1], tmp_path / "out.parquet")
    assert (inferred.models, inferred.member) == (1, str(tmp_path / "tree/members/000"))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda record: record["members"][0].update(folder="../../other"), "folder"),
        (lambda record: record["members"][0].update(folder="/etc"), "folder"),
        (lambda record: record["members"][0].update(columns=[0, 0, 1]), "match one topic of the mean at most"),
        (lambda record: record["members"][0].update(columns=[0, 1, 5]), "expected columns below 3"),
        (lambda record: record["members"][0].update(columns=[0, 1]), "as many columns"),
        (lambda record: record["members"][0].update(columns=[0, 1, -2]), "columns"),
        (lambda record: record["members"][0].update(columns=[0, 1, 2**62]), "columns"),
        (lambda record: record["members"][0].update(columns=[0, 1, 2**80]), "does not fit into 64 bits"),
        (lambda record: [member.update(columns=[-1] * 3) for member in record["members"]], "all columns of the mean"),
        (lambda record: [member.update(columns=[]) for member in record["members"]], "all columns of the mean"),
        (
            lambda record: [member.update(columns=list(range(300_000))) for member in record["members"]],
            "columns below 3",
        ),
        (lambda record: record.update(members=record["members"] * 400), "each member once"),
        (lambda record: record.update(family="hdp"), "expected a model of the family"),
    ],
)
def test_a_damaged_mean__is_refused(ensemble, tmp_path, change, text):
    run = shutil.copytree(ensemble, tmp_path / "run")
    record = json.loads((run / MEAN).read_text())
    record = {name: value for name, value in record.items() if name != DIGEST}
    change(record)
    (run / MEAN).write_bytes(dump(record))
    with pytest.raises(DamagedError, match=text):
        topics(run)


def test_samples__are_averaged_and_the_run_continues_from_its_last_state(small, tmp_path):
    options = {"family": "gibbs-lda", "topics": 3, "iterations": 6, "samples": 3, "sample_every": 2}
    model = fit(small[0], tmp_path / "run", **options)
    assert [member.record.iterations for member in model.members] == [2, 4, 6]
    shutil.rmtree(tmp_path / "run/members/mean")
    resume(tmp_path / "run")
    assert len(Model(tmp_path / "run").members) == 3
    assert info(tmp_path / "run")["samples"] == [2, 4, 6]
    fit(small[0], tmp_path / "warm", warm=tmp_path / "run", family="gibbs-lda", topics=3, iterations=2)
    assert Run(tmp_path / "warm").record()["warm"]["url"] == str(tmp_path / "run/model")


def test_columns_of_members__are_permutations(ensemble, small):
    consensus = join([url for _, url in members_of(ensemble)], Corpus(small[0]), SerialExecutor(), 1)
    for columns in all_columns(consensus):
        assert sorted(columns.tolist()) == [0, 1, 2]
    assert averaged_models(ensemble) == ["000/model", "001/model", "002/model"]


def test_a_table_of_proportions__has_the_ids_of_topics(small, ensemble, tmp_path):
    infer(ensemble, small[0], tmp_path / "out.parquet", threshold=0.0)
    table = pq.read_table(tmp_path / "out.parquet")
    ids = {topic for row in table["topics"].to_pylist() for topic in row}
    assert {topic.id for topic in topics(ensemble)} <= ids


def test_estimates__count_the_memory_of_all_models_for_new_documents(small):
    options = {"family": "lda", "topics": 50, "workers": 1}
    alone, several = (estimate(small[0], restarts=restarts, **options) for restarts in (0, 4))
    joined = estimate(small[0], restarts=4, combine="consensus", **options)
    assert (alone.inferring, joined.inferring) == (0.0, 0.0)
    more = estimate(small[0], restarts=8, **options)
    rows = 50 * 4 * Corpus(small[0]).manifest.vocabulary.words
    assert more.inferring - several.inferring >= 4 * rows
    assert "memory of infer, which folds into all models" in several.table()
    assert "memory of infer" not in alone.table()
