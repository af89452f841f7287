"""Reports, plots and exports: their contents, and what they refuse. The look of pages is tested in tests/pages."""

import csv
import hashlib
import itertools
import json
import re
import shutil
from base64 import b64encode

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from collapsium.pipeline import Model, edit, export, fit, formatting, infer, ingest, name_topics, plot, report, topics
from collapsium.pipeline import measure as measure_topics
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.reporting.embedding import WEIGHTS, classical_scaling, measure, relevant
from collapsium.pipeline.svg import Chart, ticks
from collapsium.storage.errors import AbsentError, InputError, MismatchError, OccupiedError, OptionError


@pytest.fixture(scope="module")
def run_and_corpus(small, tmp_path_factory):
    """A run whose corpus was removed, and the run from which it was copied."""
    place = tmp_path_factory.mktemp("reporting")
    shutil.copytree(small[0], place / "corpus")
    fit(place / "corpus", place / "run", family="lda", topics=4, iterations=6, heldout=small[1], scheduler="serial")
    shutil.rmtree(place / "corpus")
    return place / "run", small[0]


def parts_of(path):
    """Return the data, the content security policy, the style and the script of a page."""
    text = path.read_text(encoding="utf-8")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', text)[1].replace("&#39;", "'")
    return (
        text,
        data,
        policy,
        {name: re.search(f"<{name}>(.*?)</{name}>", text, re.DOTALL)[1] for name in ("style", "script")},
    )


def test_report__needs_neither_corpus_nor_network(run_and_corpus, tmp_path):
    found = report(run_and_corpus[0], tmp_path / "out.html")
    text, data, policy, inlined = parts_of(tmp_path / "out.html")
    assert (found.topics, found.notes) == (4, [])
    assert found.examples == len(data["documents"]) > 4
    for name, content in inlined.items():
        assert f"{name}-src 'sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", text)
    assert " style=" not in text
    for topic, record in zip(topics(run_and_corpus[0], 3), data["topics"], strict=True):
        assert (record["id"], record["share"]) == (topic.id, pytest.approx(topic.share, rel=1e-3))
        assert [data["words"][word] for word in record["top"]] == [word for word, _ in topic.words]
        assert record["examples"][0][1] == max(share for _, share, _ in record["examples"])


def test_report_of_a_run_without_a_summary__computes_it_or_says_so(run_and_corpus, small, tmp_path):
    shutil.copytree(run_and_corpus[0], tmp_path / "run")
    (tmp_path / "run/model/summary.json").unlink()
    lacking = report(tmp_path / "run", tmp_path / "lacking.html")
    assert lacking.examples == 0
    assert "none could be made from the corpus" in lacking.notes[0]
    with_corpus = report(tmp_path / "run", tmp_path / "with.html", corpus=run_and_corpus[1], workers=1)
    assert with_corpus.notes == []
    report(run_and_corpus[0], tmp_path / "whole.html")
    assert parts_of(tmp_path / "with.html")[1] == parts_of(tmp_path / "whole.html")[1]
    with pytest.raises(MismatchError):
        report(tmp_path / "run", tmp_path / "other.html", corpus=small[1])
    model = report(tmp_path / "run/model", tmp_path / "model.html")
    assert "a model without its run" in model.notes[0]
    with pytest.raises(OccupiedError):
        report(tmp_path / "run", tmp_path / "with.html")
    with pytest.raises(AbsentError):
        report(tmp_path / "nothing", tmp_path / "other.html")
    assert not (tmp_path / "other.html").exists()


def test_report__shows_passages_of_texts_in_memory_and_of_files_in_any_format(tmp_path):
    texts = [
        f"{word} {word} number {n} of {companion}"
        for n in range(12)
        for word, companion in (("ship", "sail"), ("bread", "oven"))
    ]
    frame = pd.DataFrame({"id": [f"d{n}" for n in range(24)], "text": texts})
    frame.to_json(tmp_path / "texts.jsonl", orient="records", lines=True)
    frame.to_csv(tmp_path / "texts.csv", index=False)
    frame.to_json(tmp_path / "texts.txt", orient="records", lines=True)
    ingest(tmp_path / "texts.txt", tmp_path / "corpus", format="jsonl")
    how = {"family": "lda", "topics": 2, "iterations": 4, "scheduler": "serial"}
    runs = [fit(frame, tmp_path / "of-frame", **how), fit(tmp_path / "corpus", tmp_path / "of-lines", **how)]
    sources = [frame, *(tmp_path / f"texts.{ending}" for ending in ("jsonl", "csv", "txt"))]
    for number, (run, source) in enumerate(itertools.product(runs, sources)):
        out = tmp_path / f"{number}.html"
        if source is sources[3] and run is runs[0]:
            continue
        assert report(run, out, texts=source).notes == []
        assert "ship number" in json.dumps(parts_of(out)[1]["topics"]).replace('", "', "")
    unnamed = fit(texts, tmp_path / "of-list", **how)
    assert report(unnamed, tmp_path / "list.html", texts=texts).notes == []
    assert name_topics(unnamed, lambda words, shown: shown[0][:4], texts=frame["text"])[0] in ("ship", "brea")
    with pytest.raises(OptionError, match="texts: the frame has no column 'text'"):
        report(unnamed, tmp_path / "wrong.html", texts=frame[["id"]])
    with pytest.raises(InputError, match="texts: expected the texts that were ingested"):
        report(unnamed, tmp_path / "wrong.html", texts=["of other texts", "and others"])


@given(st.integers(0, 1000), st.integers(3, 12))
def test_classical_scaling__preserves_distances_in_a_plane(seed, count):
    points = np.random.default_rng(seed).normal(size=(count, 2))
    apart = cdist(points, points)
    places = classical_scaling(apart)
    assert np.allclose(cdist(places, places), apart, atol=1e-4)
    assert measure(apart, places, "").stress == pytest.approx(0.0, abs=1e-4)


def test_relevant_words__match_all_probabilities(run_and_corpus):
    model = Model(run_and_corpus[0])
    found = topics(run_and_corpus[0], 1)
    ids, share = np.array([topic.id for topic in found]), np.array([topic.share for topic in found])
    phi = np.concatenate(
        [model.family.probabilities(model.rows(n), model.global_state)["word_topic"] for n in range(len(model.blocks))]
    )
    tokens = model.vocabulary.tokens
    for topic, pool in zip(found, relevant(model, ids, share, 5), strict=True):
        probability = phi[:, topic.id]
        allowed = (probability * topic.share * tokens.sum() >= 0.5) & (tokens > 0)
        for weight in WEIGHTS:
            score = np.log(probability) - (1 - weight) * np.log(np.maximum(tokens, 1) / tokens.sum())
            best = sorted(np.flatnonzero(allowed), key=lambda word: -score[word])[:5]
            assert set(best) <= set(pool.words.tolist())
        assert np.allclose(pool.probability, probability[pool.words])


@given(st.floats(-1e7, 1e7), st.floats(1e-6, 1e6))
def test_ticks__are_in_range_and_few(low, spread):
    found = ticks(low, low + spread)
    assert all(low - 1e-6 * spread - 1e-9 <= value <= low + spread + 1e-6 * spread + 1e-9 for value in found)
    assert len(found) <= 6


@given(st.floats(0.0, 1.0), st.text("0123456789-", min_size=1, max_size=30))
def test_texts_of_ticks__are_inside_the_picture(at, text):
    chart = Chart((0.0, 1.0), (0.0, 1.0))
    [(x, shown)] = re.findall(r'class="across" x="([0-9.]+)"[^>]*>([^<]+)<', chart.drawn("", [(at, text)]))
    half = 4.0 * len(text)
    assert shown == text
    assert half - 0.05 <= float(x) <= chart.width - half + 0.05


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-7.14649, "−7.146"),
        (12345.0, "12,345"),
        (-6.0, "−6.000"),
        (6, "6"),
        (0.0, "0"),
        (0.1, "0.1000"),
        (1.234e-5, "1.2e−05"),
        (-332576.4, "−332,576"),
    ],
)
def test_numbers__are_printed_with_few_digits(value, text):
    assert formatting.number(value) == text


def test_plot__draws_the_requested_panels(run_and_corpus, tmp_path, capsys):
    assert plot(run_and_corpus[0], tmp_path / "a.svg") == ["score", "change", "sizes", "map"]
    assert plot(run_and_corpus[0], tmp_path / "b.svg") == ["score", "change", "sizes", "map"]
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert main(["plot", str(run_and_corpus[0]), str(tmp_path / "c.png"), "--what", "score"]) == 0
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert plot(run_and_corpus[0], tmp_path / "e.svg", what="map") == ["map"]
    assert plot(run_and_corpus[0], tmp_path / "f.svg", what="sizes,map") == ["sizes", "map"]
    assert main(["plot", str(run_and_corpus[0]), str(tmp_path / "g.svg"), "--what", "sizes,map"]) == 0
    assert (tmp_path / "g.svg").read_bytes() == (tmp_path / "f.svg").read_bytes()
    for out, what in (("d.gif", None), ("d.svg", ["objective"]), ("d.svg", ["colours"])):
        with pytest.raises(OptionError):
            plot(run_and_corpus[0], tmp_path / out, what=what)
    with pytest.raises(OccupiedError):
        plot(run_and_corpus[0], tmp_path / "a.svg")
    assert not (tmp_path / "d.svg").exists()


def test_export_to_pyldavis__equals_what_it_prepares(run_and_corpus, tmp_path):
    found = export(run_and_corpus[0], tmp_path / "vis.json", to="pyldavis")
    exported = json.loads((tmp_path / "vis.json").read_text())
    phi, theta = np.array(exported["topic_term_dists"]), np.array(exported["doc_topic_dists"])
    assert phi.shape == (4, len(exported["vocab"])) == (4, len(exported["term_frequency"]))
    assert theta.shape == (found.documents, 4) == (len(exported["doc_lengths"]), 4)
    assert np.allclose(phi.sum(axis=1), 1, atol=1e-5)
    assert np.allclose(theta.sum(axis=1), 1, atol=1e-5)
    assert min(exported["term_frequency"]) > 0
    assert sum(exported["doc_lengths"]) == sum(exported["term_frequency"])
    shares = (theta * np.array(exported["doc_lengths"])[:, None]).sum(axis=0) / sum(exported["doc_lengths"])
    by_id = sorted(topics(run_and_corpus[0], 1), key=lambda topic: topic.id)
    assert np.allclose(shares, [topic.share for topic in by_id], atol=0.02)


def test_exports__number_topics_by_their_ids_even_if_some_are_unused(run_and_corpus, tmp_path, capsys):
    edit(run_and_corpus[0], tmp_path / "fewer", merge=[(0, 1)])
    for name, run, ids in (("all", run_and_corpus[0], [0, 1, 2, 3]), ("fewer", tmp_path / "fewer", [0, 2, 3])):
        words = {topic.id: topic.names for topic in topics(run, 5)}
        assert main(["export", str(run), str(tmp_path / f"{name}.json"), "--to", "pyldavis"]) == 0
        output = capsys.readouterr().out
        assert ("from 0 to 2, without the unused ids" in output) == (name == "fewer")
        exported = json.loads((tmp_path / f"{name}.json").read_text())
        assert (exported["plot_opts"]["topic_ids"], exported["sort_topics"], exported["start_index"]) == (ids, False, 0)
        phi = np.array(exported["topic_term_dists"])
        for number, topic in enumerate(ids):
            assert [exported["vocab"][word] for word in np.argsort(-phi[number], kind="stable")[:5]] == words[topic]


def test_export__refuses_options_of_another_format(run_and_corpus, tmp_path):
    for options, formats in (({"threshold": 0.1}, "csv"), ({"corpus": run_and_corpus[1]}, "csv and anndata")):
        with pytest.raises(OptionError, match=f"{next(iter(options))}: applies only to `to` {formats}, found pyldavis"):
            export(run_and_corpus[0], tmp_path / "vis.json", to="pyldavis", **options)


def test_export_to_csv__has_the_proportions_of_infer(run_and_corpus, tmp_path, capsys):
    assert main(["export", str(run_and_corpus[0]), str(tmp_path / "alone"), "--to", "csv"]) == 0
    assert "documents.csv has no rows" in capsys.readouterr().out
    export(run_and_corpus[0], tmp_path / "out", to="csv", corpus=run_and_corpus[1], threshold=0.0, workers=1)
    tables = {
        name: list(csv.DictReader((tmp_path / f"out/{name}.csv").open())) for name in ("topics", "words", "documents")
    }
    listed = topics(run_and_corpus[0], 20)
    assert [row["words"].split() for row in tables["topics"]] == [topic.names for topic in listed]
    sums = {topic.id: 0.0 for topic in listed}
    for row in tables["words"]:
        sums[int(row["topic"])] += float(row["probability"])
    assert np.allclose(list(sums.values()), 1, atol=1e-5)
    infer(run_and_corpus[0], run_and_corpus[1], tmp_path / "theta.parquet", threshold=0.0, scheduler="serial")
    import pyarrow.parquet as pq

    expected = pq.read_table(tmp_path / "theta.parquet").to_pylist()
    assert [row["document"] for row in tables["documents"]] == [
        document["id"] for document in expected for _ in document["topics"]
    ]
    assert np.allclose(
        [float(row["proportion"]) for row in tables["documents"]],
        [share for document in expected for share in document["proportions"]],
    )


def test_export_to_csv__lists_no_documents_of_another_corpus(small, tmp_path):
    run, corpus = tmp_path / "run", shutil.copytree(small[0], tmp_path / "corpus")
    fit(corpus, run, family="lda", topics=3, iterations=2, scheduler="serial")
    assert export(run, tmp_path / "whole", to="csv", scheduler="serial").documents == 60
    shutil.rmtree(corpus)
    shutil.copytree(small[1], corpus)
    found = export(run, tmp_path / "replaced", to="csv", scheduler="serial")
    assert (found.documents, "it is not the corpus that the model was fitted to" in found.notes[0]) == (0, True)
    with pytest.raises(MismatchError, match="it is not the corpus that the model was fitted to"):
        export(run, tmp_path / "named", to="csv", corpus=corpus, scheduler="serial")


def test_export__refuses_unknown_formats(run_and_corpus, tmp_path):
    with pytest.raises(OptionError, match="word2vec"):
        export(run_and_corpus[0], tmp_path / "out", to="word2vec")
    assert not (tmp_path / "out").exists()


def test_report__has_metrics_of_topics_with_their_sources(run_and_corpus, tmp_path):
    report(run_and_corpus[0], tmp_path / "plain.html")
    section = parts_of(tmp_path / "plain.html")[0].partition('id="metrics"')[2].partition("</section>")[0]
    values = dict(re.findall(r'<th scope="row">([^<]+)</th><td class="n">([^<]+)</td>', section))
    expected = measure_topics(
        run_and_corpus[0], metrics=["exclusivity", "diversity", "strict-diversity", "inverted-rbo"]
    )
    assert values == {name: f"{metric.value:.3f}" for name, metric in expected.items()}
    assert "Dieng, Ruiz and Blei (2020)" in section


def test_report_of_texts__has_their_coherence(tmp_path):
    lines = [{"id": str(n), "text": "ship sea sail wave" if n % 2 else "star moon sky sun"} for n in range(20)]
    (tmp_path / "texts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    ingest(tmp_path / "texts.jsonl", tmp_path / "corpus")
    fit(tmp_path / "corpus", tmp_path / "run", family="lda", topics=2, iterations=10, scheduler="serial")
    report(tmp_path / "run", tmp_path / "out.html", texts=tmp_path / "texts.jsonl")
    coherent = measure_topics(tmp_path / "run", metrics="c_v", coherence=tmp_path / "texts.jsonl")["c_v"]
    assert f'<th scope="row">c_v</th><td class="n">{coherent.value:.3f}</td>' in parts_of(tmp_path / "out.html")[0]
