"""Edits of topics: counts are exact, ids are kept, and invalid edits are refused before anything is written."""

import shutil

import numpy as np
import pytest

from collapsium.pipeline import Corpus, Model, edit, evaluate, fit, infer, name_topics, topics, verify
from collapsium.pipeline.engine import edit as edit_module
from collapsium.pipeline.engine import save as save_module
from collapsium.storage.errors import MismatchError, OccupiedError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from tests.pipeline.cli.commands import command, one_line

FAMILIES = {
    "lda": {"family": "lda", "topics": 5},
    "dense": {"family": "lda", "topics": 5, "responsibilities": "dense"},
    "asymmetric": {"family": "lda", "topics": 5, "learn": ("asymmetric-alpha",)},
    "hdp": {"family": "hdp", "topics": 6},
    "weighted": {"family": "lda", "topics": 5, "weights": "log-tf-idf"},
    "weighted hdp": {"family": "hdp", "topics": 6, "weights": "idf"},
}


@pytest.fixture(scope="module", params=FAMILIES)
def run(request, small, tmp_path_factory):
    place = tmp_path_factory.mktemp("edits") / "run"
    fit(small[0], place, iterations=20, scheduler="serial", **FAMILIES[request.param])
    return place


@pytest.fixture(scope="module")
def lda(small, tmp_path_factory):
    place = tmp_path_factory.mktemp("edits") / "run"
    fit(small[0], place, iterations=20, scheduler="serial", **FAMILIES["lda"])
    return place


def counts_of(model):
    """Return the counts by word and topic, and the documents' proportions."""
    rows = [model.rows(number).dense_counts for number in range(len(model.blocks))]
    return np.concatenate(rows).astype(np.float64), model.document_topic


def assert_conserved(model, corpus):
    """Require that the sums of counts over topics equal the corpus, for words and for documents."""
    counts, theta = counts_of(model)
    opened = Corpus(corpus)
    rows = [model.rows(number) for number in range(len(model.blocks))]
    weighted = rows[0].word_mean is not None
    means = np.concatenate([block.word_mean for block in rows])[:, np.newaxis] if weighted else 1.0
    assert np.allclose((counts / means).sum(axis=1), opened.vocabulary.tokens, rtol=1e-4, atol=1e-4)
    lengths = [model.family.document_lengths(model.local_state(n)) for n in range(len(model.record.shards))]
    blocks = [
        tasks.Block(low, high, block_rows, Delta()) for (low, high), block_rows in zip(model.blocks, rows, strict=True)
    ]
    shards = [reference.load() for reference in opened.references]
    weighed = [model.family.weighed(shard, tasks.gather(blocks, shard.words, complete=True)) for shard in shards]
    true = [shard.weighted_lengths for shard in weighed]
    assert np.allclose(np.concatenate(lengths), np.concatenate(true), rtol=1e-4, atol=1e-3)
    if weighted:
        assert np.allclose(model.global_state.topic_plain, (counts / means).sum(axis=0), rtol=1e-4)
    assert (theta >= 0).all()
    assert (theta.sum(axis=1) < 1 + 1e-6).all()
    assert (counts >= 0).all()
    assert np.allclose(model.global_state.topic_moments[0], counts.sum(axis=0), rtol=1e-5)
    assert verify(model).broken == []


def largest(run, count):
    return [topic.id for topic in topics(run)][:count]


def test_merges__add_counts_and_proportions(run, small, tmp_path):
    first, second, third = largest(run, 3)
    found = edit(run, tmp_path / "out", merge=[(second, third)])
    assert found.merged == {third: second}
    before, after = (counts_of(Model(place)) for place in (run, tmp_path / "out"))
    for old, new in zip(before, after, strict=True):
        assert np.allclose(new[:, second], old[:, second] + old[:, third], rtol=1e-5, atol=1e-6)
        assert np.allclose(new[:, third], 0.0, atol=1e-12)
        assert np.allclose(new[:, first], old[:, first], rtol=1e-6)
    assert third not in {topic.id for topic in topics(tmp_path / "out")}
    assert_conserved(Model(tmp_path / "out"), small[0])


def test_other_ids__reorder_topics_unchanged(run, small, tmp_path):
    model = Model(run)
    width = model.topic_word.shape[0]
    moved = {0: width + 1, 1: 0, 2: 2}
    edit_module.renumber(model, moved, Folder(tmp_path / "other"), Corpus(small[0]))
    renumbered = Model(tmp_path / "other")
    assert_conserved(renumbered, small[0])
    (counts, theta), (counts_after, theta_after) = counts_of(model), counts_of(renumbered)
    assert counts_after.shape[1] == theta_after.shape[1] == width + 2
    for topic, place in moved.items():
        np.testing.assert_array_equal(counts_after[:, place], counts[:, topic])
        np.testing.assert_allclose(theta_after[:, place], theta[:, topic], atol=1e-6)
    places = {**{topic.id: topic.id for topic in topics(run)}, **moved}
    listed = {places[topic.id]: topic.names for topic in topics(run)}
    assert {topic.id: topic.names for topic in topics(renumbered)} == listed
    rest = sorted(set(range(3, width)) | {1, width})
    assert theta_after[:, rest].sum() == pytest.approx(theta[:, 3:].sum(), rel=1e-5)


def test_edited_models__work_with_all_commands(run, small, tmp_path):
    first, second, third = largest(run, 3)
    edit(run, tmp_path / "out", merge=[(first, second)], rename={first: "both", third: "half"})
    assert {topic.title for topic in topics(tmp_path / "out")} == {"both", "half", None}
    assert infer(tmp_path / "out", small[0], tmp_path / "out.parquet").rows == 60
    assert np.isfinite(evaluate(tmp_path / "out", heldout=small[1]).score)
    family = Model(run).record.family
    fit(small[0], tmp_path / "warm", family=family, topics=6, iterations=3, warm=tmp_path / "out", scheduler="serial")
    assert "both" in {topic.title for topic in topics(tmp_path / "warm")}
    assert verify(tmp_path / "warm").broken == []


def test_names__follow_merged_topics(lda, tmp_path):
    shutil.copytree(lda, tmp_path / "run")
    named = name_topics(tmp_path / "run", lambda words, documents: words[0])
    first, second, third = largest(lda, 3)
    found = edit(tmp_path / "run", tmp_path / "out", merge=[(first, second)], rename={third: " my \n name "})
    assert found.names[first] == named[first]
    assert second not in found.names
    assert found.names[third] == "my name"
    assert {topic.id: topic.title for topic in topics(tmp_path / "out")} == found.names


def test_the_command__reports_the_new_ids_of_topics(lda, tmp_path, capsys):
    first, second, third = largest(lda, 3)
    flags = ["--merge", f"{first},{second}", "--rename", f"{third}=a=b"]
    code, out, err = command(capsys, "edit", lda, tmp_path / "out", *flags)
    assert (code, err) == (0, "")
    assert f"topic {second} is part of topic {first}" in out
    assert f"topic {third} is named a=b" in out


WRONG = [
    ([], "nothing to edit"),
    (["--merge", "0,0"], "cannot be merged with itself"),
    (["--merge", "0"], "two topics"),
    (["--merge", "0,99"], "no topic 99"),
    (["--merge", "0,x"], "ids of topics"),
    (["--merge", "0,1", "--merge", "1,2"], "named twice"),
    (["--rename", "0="], "expected a name"),
    (["--rename", "0= \t"], "expected a name"),
    (["--rename", "space"], "ID=NAME"),
    (["--rename", "0=a", "--rename", "0=b"], "named twice"),
    (["--rename", "1=a", "--merge", "0,1"], "merged into another"),
    (["--rename", "99=a"], "no topic 99"),
]


@pytest.mark.parametrize(("flags", "reason"), WRONG)
def test_invalid_edits__are_refused_in_one_line_before_anything_is_written(lda, tmp_path, capsys, flags, reason):
    code, out, err = command(capsys, "edit", lda, tmp_path / "out", *flags)
    assert (code, out) == (2, "")
    assert reason in one_line(err)
    assert not (tmp_path / "out").exists()


def test_an_existing_folder__is_not_overwritten(lda, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("mine")
    with pytest.raises(OccupiedError):
        edit(lda, tmp_path / "out", merge=[(0, 1)])
    assert (tmp_path / "out/mine").read_text() == "mine"


def test_of_two_concurrent_edits_into_one_folder__one_is_written_and_the_other_leaves_nothing(
    lda, tmp_path, monkeypatch
):
    first, second = largest(lda, 2)
    plain = edit_module.write_names

    def meanwhile(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr(edit_module, "write_names", plain)
            edit(lda, tmp_path / "out", rename={first: "the other"})
        plain(*arguments)

    monkeypatch.setattr(edit_module, "write_names", meanwhile)
    with pytest.raises(OccupiedError):
        edit(lda, tmp_path / "out", merge=[(first, second)])
    assert Model(tmp_path / "out").topic_names == {first: "the other"}
    assert verify(tmp_path / "out").broken == []
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_edited_model_whose_summary_cannot_be_computed__is_saved_without_it(lda, tmp_path, monkeypatch):
    def broken(*arguments):
        raise ValueError("on purpose")

    monkeypatch.setattr(save_module, "summary_of", broken)
    edited = edit(lda, tmp_path / "out", rename={largest(lda, 1)[0]: "a name"})
    assert any("no summary of its documents" in note and "on purpose" in note for note in edited.notes)
    assert verify(tmp_path / "out").broken == []


def test_other_families__are_refused_in_one_line(small, tmp_path, capsys):
    fit(small[0], tmp_path / "gibbs", family="gibbs-lda", topics=3, iterations=3, scheduler="serial")
    code, _, err = command(capsys, "edit", tmp_path / "gibbs", tmp_path / "out", "--merge", "0,1")
    assert code == 2
    assert "expected a model of lda or hdp" in one_line(err)
    fit(small[0], tmp_path / "second", family="lda", order=2, topics=3, iterations=3, scheduler="serial")
    with pytest.raises(OptionError, match="variances"):
        edit(tmp_path / "second", tmp_path / "out", merge=[(0, 1)])


def test_without_its_corpus__a_merged_model_has_no_summary(small, tmp_path):
    shutil.copytree(small[0], tmp_path / "corpus")
    fit(tmp_path / "corpus", tmp_path / "run", iterations=5, scheduler="serial", **FAMILIES["lda"])
    shutil.move(tmp_path / "corpus", tmp_path / "moved")
    assert edit(tmp_path / "run", tmp_path / "out", merge=[(0, 1)]).notes
    assert not edit(tmp_path / "run", tmp_path / "known", merge=[(0, 1)], corpus=tmp_path / "moved").notes
    with pytest.raises(MismatchError):
        edit(tmp_path / "run", tmp_path / "other", merge=[(0, 1)], corpus=small[1])
