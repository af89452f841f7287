"""Results for segments: proportions, plots, the report, and scores of the same tokens for all models."""

import json
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import (
    Corpus,
    Model,
    evaluate,
    explode,
    fit,
    infer,
    neighbour_distance,
    plot,
    report,
    simulate,
    split,
    topics,
    verify,
)
from collapsium.pipeline.analysis.scoring import complete
from collapsium.pipeline.analysis.segments import colours_of, compare_runs, segment_proportions
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.models.topics import distances, matched
from collapsium.pipeline.workflows.compare_options import default_families
from collapsium.storage.corpus.labels import running
from collapsium.storage.corpus.list_columns import segment_counts
from collapsium.storage.corpus.writer import CorpusWriter
from collapsium.storage.errors import AbsentError, DamagedError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder, created
from collapsium.storage.runs.summary import SegmentedDocument, parse_summary, read_summary
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.document_summaries import (
    MAX_RUNS,
    mean_hellinger_distance,
    means_over_runs,
    segmented_documents,
)
from collapsium.workers.shard_loading import document_parts

OPTIONS = {"topics": 3, "iterations": 4, "scheduler": "serial"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Corpora of documents with segments, each also exploded: training ones, and unseen ones in two parts; and runs on
    them."""
    found = tmp_path_factory.mktemp("segments")
    simulate(
        found / "all", family="segmented-lda", documents=24, words=40, tokens=50, topics=3, shard_tokens=500, seed=3
    )
    split(found / "all", found / "train", found / "new", documents=True, fraction=0.3)
    split(found / "new", found / "observed", found / "scored", fraction=0.4)
    for name in ("train", "observed", "scored"):
        explode(found / name, found / f"{name}-flat")
    fit(found / "train", found / "run", family="segmented-lda", **OPTIONS)
    fit(found / "train", found / "both", family="sequential-lda", restarts=2, **OPTIONS)
    fit(found / "train-flat", found / "flat", family="gibbs-lda", **OPTIONS)
    return found


def counts_of(corpus):
    """Return the ids of documents, and their numbers of segments."""
    parts = [reference.documents() for reference in Corpus(corpus).references]
    ids = [name for part in parts for name in part.ids.to_pylist()]
    return ids, np.concatenate([segment_counts(part.extras["segments"]) for part in parts])


def dense(table, width):
    found = np.zeros((table.num_rows, width))
    for row, record in enumerate(table.to_pylist()):
        found[row, record["topics"]] = record["proportions"]
    return found


def renamed(corpus, out):
    """Write the same documents with other ids."""
    corpus = Corpus(corpus)
    with created(Folder(out)) as folder:
        writer = CorpusWriter(folder, len(corpus.vocabulary.words))
        for reference in corpus.references:
            part = reference.documents()
            writer.add_shard(replace(part, ids=pc.binary_join_element_wise(part.ids, "x", "")))
        writer.finish(corpus.vocabulary.words)
    return out


@pytest.mark.parametrize("corpus", ["train", "observed"])
def test_infer__writes_a_row_per_segment(place, tmp_path, corpus, capsys):
    ids, counts = counts_of(place / corpus)
    out = tmp_path / "out.parquet"
    assert main(["infer", str(place / "run"), str(place / corpus), str(out), "--segments", "--threshold", "0"]) == 0
    assert f"proportions of {counts.sum()} segments" in capsys.readouterr().out
    table = pq.read_table(out)
    assert table.schema.names == ["id", "segment", "topics", "proportions"]
    assert str(table.schema.field("segment").type) == "int32"
    assert table["id"].to_pylist() == np.repeat(ids, counts).tolist()
    assert table["segment"].to_pylist() == [number + 1 for count in counts for number in range(count)]
    assert np.allclose(dense(table, 3).sum(axis=1), 1.0, atol=1e-5)
    rows = infer(place / "run", place / corpus, tmp_path / "documents.parquet", threshold=0.0).rows
    documents = pq.read_table(tmp_path / "documents.parquet")
    assert rows == documents.num_rows == len(ids)
    assert documents.schema.names == ["id", "topics", "proportions"]


def test_infer_of_the_training_corpus__returns_the_fitted_proportions(place, tmp_path):
    model = Model(place / "run")
    infer(place / "run", place / "train", tmp_path / "out.parquet", segments=True, threshold=0.0, scheduler="serial")
    shares = [
        model.family.infer(model.local_state(number), model.global_state)["segment_topic"]
        for number in range(len(model.record.shards))
    ]
    assert len(shares) > 1
    assert np.array_equal(dense(pq.read_table(tmp_path / "out.parquet"), 3), np.concatenate(shares))


def test_infer_of_segments__is_refused_for_families_without_segments(place, tmp_path, capsys):
    with pytest.raises(OptionError, match="gibbs-lda does not model segments"):
        infer(place / "flat", place / "train-flat", tmp_path / "out.parquet", segments=True)
    assert main(["infer", str(place / "flat"), str(place / "train"), str(tmp_path / "o"), "--segments"]) == 2
    assert "does not model segments" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def score_naive(run, observed, scored, seed):
    """Return the score computed directly, from pairs of shards that have the same documents."""
    model, total, tokens = Model(run), 0.0, 0
    half = model.family
    parts = document_parts(half)
    for seen, heldout in zip(Corpus(observed).references, Corpus(scored).references, strict=True):
        shard, held = seen.load(**parts), heldout.load(**parts)
        rows = model.rows(0).of_words(shard.words, complete=True)
        local = half.fold_in(shard, rows, model.global_state, Stream(seed, "unseen", place=shard.number))
        rows = model.rows(0).of_words(held.words, complete=True)
        chance = half.predict(held, local, rows, model.global_state)["probability"]
        total, tokens = total + float(held.counts @ np.log(chance)), tokens + held.tokens
    return total / tokens, tokens


@pytest.mark.parametrize(("run", "tail"), [("run", ""), ("flat", "-flat")])
def test_evaluate__fits_unseen_documents_on_one_corpus_and_scores_them_on_another(place, run, tail):
    observed, scored = place / f"observed{tail}", place / f"scored{tail}"
    found = evaluate(place / run, unseen=observed, heldout=scored, seed=2, scheduler="serial")
    score, tokens = score_naive(place / run, observed, scored, 2)
    assert found.score == pytest.approx(score, abs=1e-9)
    assert found.perplexity == pytest.approx(np.exp(-found.score))
    assert found.tokens == tokens == Corpus(place / "scored").manifest.tokens
    assert found.documents == Corpus(observed).manifest.documents
    assert found.definition.startswith(
        "document completion of unseen documents: proportions fitted to the documents' tokens"
    )
    assert evaluate(place / run, unseen=observed, heldout=scored, seed=2, workers=2) == found


def test_completion_with_the_first_words__uses_the_renormalised_probabilities_of_segments(place):
    limit, model, logs, tokens = 25, Model(place / "run"), 0.0, 0
    half = model.family
    phi = half.probabilities(model.rows(0), model.global_state)["word_topic"]
    pairs = zip(Corpus(place / "observed").references, Corpus(place / "scored").references, strict=True)
    for shard, held in ((first.load(segmented=True), heldout.load(segmented=True)) for first, heldout in pairs):
        rows = model.rows(0).of_words(shard.words, complete=True)
        local = half.fold_in(shard, rows, model.global_state, Stream(0, "complete", place=shard.number))
        owner = np.repeat(np.arange(len(held.segments)), np.diff(held.segments.pairs))
        expected = half.infer(local, model.global_state)["segment_topic"].astype(float) @ phi.T
        expected[:, :limit] /= expected[:, :limit].sum(axis=1, keepdims=True)
        word = held.words[held.position]
        logs += float((held.counts * np.log(expected[owner, word]))[word < limit].sum())
        tokens += int(held.counts[word < limit].sum())
    found = complete(place / "run", place / "observed", place / "scored", words=limit, scheduler="serial")
    assert found.tokens == tokens
    assert found.score == pytest.approx(logs / tokens, abs=1e-6)


def test_families_that_need_more_than_words_and_topics__are_not_compared_by_default():
    assert "gibbs-lda" in default_families()
    assert not {"segmented-lda", "sequential-lda", "hdsp"} & set(default_families())
    assert not {"labeled-lda", "dirichlet-network"} & set(default_families())


def test_evaluate__averages_members_on_two_corpora(place, capsys):
    two = ["--unseen", str(place / "observed"), "--heldout", str(place / "scored")]
    assert main(["evaluate", str(place / "both"), *two, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    by_member = [
        evaluate(place / f"both/members/00{n}", unseen=place / "observed", heldout=place / "scored") for n in range(2)
    ]
    assert [member["score"] for member in found["members"]] == [score.score for score in by_member]
    assert found["score"] >= np.mean([score.score for score in by_member])
    assert "log of the mean over its members" in found["definition"]
    assert {score.tokens for score in by_member} == {found["tokens"]}
    assert main(["evaluate", str(place / "both"), *two, "--given-labels"]) == 0
    assert "given labels" in capsys.readouterr().out


def test_evaluate__reports_corpora_that_do_not_belong_together(place, small, tmp_path, capsys):
    run = place / "run"
    with pytest.raises(MismatchError, match="expected the .* documents of .*observed"):
        evaluate(run, unseen=place / "observed", heldout=place / "scored-flat")
    with pytest.raises(MismatchError, match="expected the documents of .*observed, with the same ids"):
        evaluate(run, unseen=place / "observed", heldout=renamed(place / "scored", tmp_path / "other"))
    for unseen, heldout in ((small[0], place / "scored"), (place / "observed", small[1])):
        with pytest.raises(MismatchError, match="its vocabulary"):
            evaluate(run, unseen=unseen, heldout=heldout)
    with pytest.raises(OptionError, match="name one corpus.* or two"):
        evaluate(run)


def test_plot__shows_the_document_with_the_most_segments(place, tmp_path, capsys):
    ids, counts = counts_of(place / "train")
    found = segment_proportions(place / "run")
    assert found.document == ids[int(counts.argmax())]
    assert found.proportions.shape == (counts.max(), 3)
    assert np.allclose(found.proportions.sum(axis=1), 1.0)
    for name in ("a.svg", "b.png"):
        assert main(["plot", str(place / "run"), str(tmp_path / name), "--what", "segments"]) == 0
    printed = capsys.readouterr().out
    assert printed.count(f"mean distance between neighbouring segments {neighbour_distance(place / 'run'):.3f}") == 2
    drawn = (tmp_path / "a.svg").read_text()
    for topic in topics(place / "run", 5):
        assert f"{topic.id}: {' '.join(topic.names)}" in drawn
    assert (tmp_path / "b.png").read_bytes()[:4] == b"\x89PNG"
    plot(
        place / "run",
        tmp_path / "c.svg",
        what=["segments"],
        document=found.document,
        topics=[1],
        corpus=place / "train",
    )
    assert "other topics" in (tmp_path / "c.svg").read_text()
    assert "other topics" not in drawn


def test_plot__puts_two_runs_side_by_side_with_the_same_colours(place, tmp_path):
    first, second, partner = compare_runs(place / "run", place / "flat")
    assert (first.unit, second.unit, second.document) == ("segment", "document", first.document)
    assert len(first.proportions) == len(second.proportions)
    models = Model(place / "run"), Model(place / "flat")
    apart = distances(*models)
    assert partner == {second_topic: first_topic for first_topic, second_topic, _ in matched(*models)}
    assert (
        sum(apart[first_topic, second_topic] for second_topic, first_topic in partner.items())
        <= np.trace(apart) + 1e-12
    )
    lines = plot(place / "run", tmp_path / "x.svg", what=["segments"], compare_with=place / "flat")
    assert len(lines) == 2
    assert f"{neighbour_distance(place / 'flat', document=first.document):.3f}" in lines[1]
    back, _, again = compare_runs(place / "flat", place / "run")
    assert (back.document, back.unit) == (first.document, "document")
    assert again == {first_topic: second_topic for second_topic, first_topic in partner.items()}


def test_neighbour_distance_of_a_family_without_segments__uses_documents(place):
    ids, counts = counts_of(place / "train")
    number = int(counts.argmax())
    model, ends = Model(place / "flat"), running(counts)
    half = model.family
    shares = np.concatenate(
        [
            half.infer(model.local_state(shard), model.global_state)["document_topic"]
            for shard in range(len(model.record.shards))
        ]
    )
    segment_shares = shares[ends[number] : ends[number + 1]]
    expected = np.mean(
        [np.sqrt(1 - np.sqrt(a * b).sum()) for a, b in zip(segment_shares, segment_shares[1:], strict=False)]
    )
    assert neighbour_distance(place / "flat", document=ids[number]) == pytest.approx(expected, abs=1e-7)
    assert len(segment_proportions(place / "flat").proportions) == counts.sum()


def test_plot__reports_missing_documents_and_segments(place, small, tmp_path):
    run, out = place / "run", tmp_path / "x.svg"
    cases = [
        ({"document": "nobody"}, OptionError, "no document with this id"),
        ({"topics": [0, 99]}, OptionError, "`topics` 99: run has no topic 99"),
        ({"topics": list(range(11))}, OptionError, "expected 1 to 10 topics, found 11"),
        ({"corpus": place / "new"}, MismatchError, "not the corpus that the model was fitted to"),
        ({"corpus": place / "gone"}, AbsentError, "`corpus`"),
        ({"what": ["segments", "map"]}, OptionError, "a separate picture"),
        ({"what": ["map"], "document": "x"}, OptionError, "document: applies only to `what` segments"),
    ]
    for given_, error, text in cases:
        with pytest.raises(error, match=text):
            plot(run, out, **{"what": ["segments"], **given_})
    with pytest.raises(OptionError, match="gibbs-lda does not model segments"):
        plot(place / "flat", out, what=["segments"], document="nobody")
    fit(small[0], tmp_path / "small", family="gibbs-lda", **OPTIONS)
    with pytest.raises(MismatchError, match="its vocabulary differs from"):
        plot(run, out, what=["segments"], compare_with=tmp_path / "small")
    fit(place / "new", tmp_path / "new", family="gibbs-lda", **OPTIONS)
    with pytest.raises(MismatchError, match="expected .* as many as"):
        plot(place / "flat", out, what=["segments"], compare_with=tmp_path / "new")
    assert not out.exists()


@given(st.lists(st.integers(0, 40), max_size=10, unique=True), st.permutations(range(41)))
def test_colours__are_distinct_and_constant_for_the_largest_topics(drawn, order):
    found = colours_of(drawn, order, 10)
    assert sorted(found) == sorted(drawn)
    assert len(set(found.values())) == len(drawn)
    assert all(found[topic] == place for place, topic in enumerate(order[:10]) if topic in found)


@given(st.integers(2, 400), st.integers(0, 5))
def test_segments__are_grouped_in_runs_with_the_same_mean(number, seed):
    shares = np.random.default_rng(seed).dirichlet(np.ones(4), size=number)
    found = means_over_runs(shares)
    assert len(found) == min(number, MAX_RUNS)
    assert np.allclose(found.sum(axis=1), 1.0)
    assert found.min() >= shares.min() - 1e-12
    assert 0.0 <= mean_hellinger_distance(shares) <= 1.0
    assert mean_hellinger_distance(shares[:1]) is None
    assert mean_hellinger_distance(np.repeat(shares[:1], 3, axis=0)) == pytest.approx(0.0, abs=1e-7)
    longest, *none = segmented_documents(np.concatenate([shares[:1], shares]), np.array([0, 1, number]), 7, 3)
    assert not none
    assert (longest.shard, longest.row, longest.segments) == (7, 2, number)
    assert np.array_equal(longest.shares, means_over_runs(shares[:, longest.topics]).T)


def test_report__shows_the_documents_with_the_most_segments(place, tmp_path):
    model = Model(place / "run")
    summary = read_summary(model.folder, model.record)
    ids, counts = counts_of(place / "train")
    order = np.argsort(-counts, kind="stable")[:3]
    assert summary.version == 3
    assert [(document.id, document.segments) for document in summary.segmented] == [(ids[n], counts[n]) for n in order]
    assert summary.segmented[0].distance == pytest.approx(neighbour_distance(place / "run"), abs=1e-5)
    report(place / "run", tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text()
    for document in summary.segmented:
        assert f"{document.segments:,} segments; mean distance between neighbours" in page
    assert page.count('<figure class="segments">') == 3
    assert not verify(place / "run").broken
    flat = Model(place / "flat")
    assert read_summary(flat.folder, flat.record).segmented == ()
    assert json.loads(flat.folder.read("summary.json"))["version"] == 2
    assert "segmented" not in json.loads(flat.folder.read("summary.json"))
    report(place / "flat", tmp_path / "flat.html")
    assert 'id="segments"' not in (tmp_path / "flat.html").read_text()


@pytest.mark.parametrize("shares", [((0.5,),), ((0.5, 0.5), (0.5,)), ((), ()), ((0.1,) * 3, (0.1,) * 3)])
def test_a_summary_whose_segments_do_not_fit__is_refused(place, shares):
    model = Model(place / "run")
    record = read_summary(model.folder, model.record).model_dump(mode="json")
    wrong = SegmentedDocument(id="x", title=None, segments=2, distance=0.1, topics=(0, 1), shares=shares)
    with pytest.raises(DamagedError, match="a row of shares for each topic"):
        parse_summary({**record, "segmented": [wrong.model_dump(mode="json")]}, "summary.json")
