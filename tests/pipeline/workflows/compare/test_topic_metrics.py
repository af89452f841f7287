"""Further metrics of topics in the table of a comparison."""

import json
import statistics

import pyarrow.parquet as pq
import pytest

from collapsium.pipeline import compare, measure
from collapsium.pipeline.analysis.metrics import catalogue, topic_words
from collapsium.pipeline.cli.main import main
from collapsium.storage.errors import OptionError
from tests.conftest import simulated_rows, write_corpus

GRID = {"families": "lda,ncrp", "topics": (3,), "restarts": 2, "iterations": 3, "scheduler": "serial"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A corpus with one label per document, and its texts."""
    place = tmp_path_factory.mktemp("metrics")
    rows = simulated_rows(3)
    labels = [[("kind", f"k{number % 3}")] for number in range(len(rows))]
    write_corpus(place / "corpus", rows, 30, labels=labels)
    write_corpus(place / "plain", rows, 30)
    texts = [" ".join(f"w{word}" for word, count in row.items() for _ in range(count)) for row in rows]
    lines = [json.dumps({"id": str(number), "text": text}) for number, text in enumerate(texts)]
    (place / "texts.jsonl").write_text("\n".join(lines))
    return place


def test_the_table__has_means_over_the_restarts_and_definitions(place, tmp_path):
    metrics = "c_v,strict-diversity,nmi,npmi,document-perplexity"
    compared = compare(place / "corpus", tmp_path / "out", metrics=metrics, coherence=place / "texts.jsonl", **GRID)
    table = pq.read_table(tmp_path / "out" / "table.parquet").to_pylist()
    for row in table:
        runs = [f"{tmp_path}/out/runs/{row['cell']}/members/{number:03d}" for number in range(2)]
        options = {"coherence": place / "texts.jsonl", "heldout": tmp_path / "out" / "heldout", "scheduler": "serial"}
        values = [measure(run, metrics="c_v,nmi,document-perplexity", **options) for run in runs]
        for name in ("c_v", "nmi", "document-perplexity"):
            assert row[name.replace("-", "_")] == statistics.fmean(metrics[name].value for metrics in values)
    assert "| npmi | diversity | c_v | strict-diversity | nmi | document-perplexity |" in compared.tables
    text = (tmp_path / "out" / "table.md").read_text()
    assert "* **nmi**: mutual information of largest topic and label" in text
    assert "Röder" in text


def test_a_new_metric__gets_a_column(place, tmp_path, monkeypatch):
    """A metric is an entry of the catalogue with a function; tables, listings and reports follow from it."""
    metric = catalogue.Metric(
        "repeated-words", catalogue.Needs.TOPICS, "repeats", "1 minus diversity, {words} words", "ours", words=5
    )
    monkeypatch.setitem(catalogue.METRICS, metric.name, metric)
    monkeypatch.setitem(topic_words.DIVERSITIES, metric.name, lambda words: 1 - topic_words.topic_diversity(words))
    compared = compare(place / "plain", tmp_path / "out", metrics="repeated_words", **GRID)
    table = pq.read_table(tmp_path / "out" / "table.parquet").to_pylist()
    for row, found in zip(table, compared.rows, strict=True):
        runs = [f"{tmp_path}/out/runs/{row['cell']}/members/{number:03d}" for number in range(2)]
        values = [measure(run, metrics="diversity", top_words=5)["diversity"].value for run in runs]
        assert row["repeated_words"] == found["repeated_words"] == pytest.approx(1 - statistics.fmean(values))
    assert "| diversity | repeated-words |" in compared.tables.splitlines()[0]
    assert "* **repeated-words**: 1 minus diversity, 5 words;" in (tmp_path / "out" / "table.md").read_text()
    assert "repeated-words" in catalogue.listing()


def test_all_metrics__omit_those_that_a_comparison_cannot_compute(place, tmp_path):
    compared = compare(place / "plain", tmp_path / "out", metrics="all", **GRID)
    rows = {row["family"]: row for row in compared.rows}
    assert rows["lda"]["strict_diversity"] > 0
    assert [rows["lda"][name] for name in ("c_v", "nmi", "left_to_right")] == [None] * 3
    assert "| c_v" not in compared.tables


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": "u-mas"}, r"metrics: unknown metric 'u-mas' \(did you mean 'u_mass'\?\)"),
        ({"metrics": "c_v"}, r"c_v: needs texts"),
        ({"metrics": "left-to-right"}, "left-to-right: needs documents that are not fitted"),
        ({"metrics": "nmi", "label_field": "kinds"}, "did you mean 'kind'"),
        ({"coherence": "texts.jsonl"}, "coherence: requires `metrics`"),
    ],
)
def test_metrics_that_cannot_be_computed__are_refused_before_a_fit(place, tmp_path, options, message):
    with pytest.raises(OptionError, match=message):
        compare(place / "corpus", tmp_path / "out", **{**GRID, **options})
    assert not (tmp_path / "out").exists()


def test_a_comparison__can_only_be_continued_with_the_same_metrics(place, tmp_path, capsys):
    common = ["compare", str(place / "corpus"), str(tmp_path / "out"), "--families", "lda", "--topics", "2", "--quiet"]
    common += ["--restarts", "1", "--iterations", "2", "--scheduler", "serial"]
    assert main([*common, "--metrics", "diversity,ari"]) == 0
    assert main([*common, "--metrics", "diversity,ari"]) == 0
    capsys.readouterr()
    assert main(common) == 2
    assert "--metrics: the comparison in" in capsys.readouterr().err
