"""The columns and texts that tables of all comparisons share."""

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collapsium.pipeline.workflows.compare import tables
from collapsium.pipeline.workflows.compare.metrics.base import Metric
from collapsium.pipeline.workflows.compare.metrics.registry import definitions, metrics_for, row_schema, tables_text
from collapsium.pipeline.workflows.compare.metrics.scores import score_fields
from collapsium.pipeline.workflows.compare.options import CompareOptions
from collapsium.storage.io.folder import Folder

ROW = {
    "family": "lda", "start": "random", "topics": 40, "restarts": 2, "iterations": 100, "samples": 0,
    "score": -7.25, "score_error": 0.01, "ensemble_score": -7.2, "perplexity": 1408.1, "topics_99": 38.5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [(-7.25, None, "-7.2500"), (-7.25, 0.01, "-7.2500 ± 0.0100"), (None, None, ""), (None, 0.01, "")],
)
def test_numbers__have_their_standard_errors_where_there_are_any(value, error, text):
    assert tables.number_text(value, ".4f", error) == text


@pytest.mark.parametrize(
    ("row", "topics", "label"),
    [
        (ROW, True, "lda, K = 40"),
        (ROW, False, "lda"),
        ({**ROW, "start": "from 1 topic", "topics": None}, True, "lda, from 1 topic"),
        ({"baseline": "gensim", "start": "random", "topics": 7}, True, "gensim, K = 7"),
    ],
)
def test_labels__name_the_fit_and_how_it_differs(row, topics, label):
    assert tables.label_of(row, topics=topics) == label


def test_a_table__has_a_column_a_head_with_numbers_at_the_right():
    family, _, topics, _, iterations = tables.CELL_COLUMNS
    columns = (family, topics, iterations, tables.number_column("score", "score", ".4f", "score_error"))
    rows = [ROW, {**ROW, "topics": None, "samples": 3, "score_error": None}]
    assert tables.table_lines(columns, rows) == [
        "| family | K | iterations | score |",
        "| --- | ---: | ---: | ---: |",
        "| lda | 40 | 100 | -7.2500 ± 0.0100 |",
        "| lda |  | 100, 3 samples | -7.2500 |",
    ]


def test_scores__are_summarised_by_their_mean():
    found = score_fields([-7.0, -8.0], -7.25)
    assert (found["score"], found["ensemble_score"], found["scores"]) == (-7.5, -7.25, [-7.0, -8.0])
    assert (found["score_error"], found["perplexity"]) == (pytest.approx(0.5), math.exp(7.5))
    assert score_fields([-7.0], -7.0)["score_error"] is None


def test_reports__say_what_was_compared_and_what_is_left_out():
    text = tables.report_text("Comparison", ["Corpus: kos."], "| a |", "* **A**: a letter.\n", ["gensim"])
    assert text == "# Comparison\n\nCorpus: kos.\n\n| a |\n\n* **A**: a letter.\n* Left out: gensim\n"


@pytest.mark.parametrize("options", [{}, {"unseen": "other"}, {"unseen": "other", "field": "kind"}], ids=str)
def test_schemas__have_what_all_comparisons_tell_and_the_fields_of_their_metrics(options, tmp_path):
    metrics = metrics_for(CompareOptions(families=["hdsp"], **options))
    schema = row_schema(metrics)
    assert schema.names[:4] == ["cell", "family", "start", "topics"]
    assert {"scores", "options", *(name for metric in metrics for name in metric.fields)} <= set(schema.names)
    assert set(ROW) < set(schema.names)
    tables.write_rows(Folder(str(tmp_path)), "table.parquet", [ROW], schema)
    (row,) = pq.read_table(tmp_path / "table.parquet").to_pylist()
    assert {name: row[name] for name in ROW} == ROW
    assert row["options"] is None
    assert schema.field("topics_99").type == pa.float64()


def test_metrics__are_defined_and_have_no_field_of_another_of_the_same_comparison():
    for options in ({}, {"unseen": "other", "field": "kind"}):
        metrics = metrics_for(CompareOptions(families=["hdsp"], **options))
        names = [name for metric in metrics for name in metric.fields]
        assert len(set(names)) == len(names)
        assert all(metric.definition in definitions(metrics) for metric in metrics)


class Doubled(Metric):
    """A metric that somebody adds."""

    fields = dict.fromkeys(("doubled",), pa.float64())
    definition = "* **Doubled**: twice the score.\n"

    def measure(self, fits, target, resources):
        raise NotImplementedError

    def columns(self, rows):
        return (tables.number_column("doubled", "doubled", ".1f"),)

    def further_lines(self, rows, baselines):
        return [f"{len(rows)} rows, {len(baselines)} baselines."]


def test_a_further_metric__has_a_field_a_column_a_line_and_a_definition():
    metrics = (Doubled(),)
    assert row_schema(metrics).names[-1] == "doubled"
    lines = tables_text(metrics, [{**ROW, "doubled": -14.5}], [{}]).splitlines()
    assert lines[0].endswith("| iterations | doubled |")
    assert lines[2].endswith("| 100 | -14.5 |")
    assert lines[-1] == "1 rows, 1 baselines."
    assert definitions(metrics) == Doubled.definition
