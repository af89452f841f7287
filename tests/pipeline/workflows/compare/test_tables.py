"""The columns and texts that the tables of all comparisons share."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collapsium.pipeline.reporting.plots.comparison import label_of
from collapsium.pipeline.workflows import compare as tables
from collapsium.pipeline.workflows.compare_options import CompareOptions
from collapsium.storage.io.folder import Folder

ROW = {
    "family": "lda", "start": "random", "topics": 40, "restarts": 2, "iterations": 100, "samples": 0,
    "score": -7.25, "score_error": 0.01, "ensemble_score": -7.2, "perplexity": 1408.1, "topics_99": 38.5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [(-7.25, None, "-7.2500"), (-7.25, 0.01, "-7.2500 ± 0.0100"), (None, None, ""), (None, 0.01, "")],
)
def test_numbers__have_standard_errors_if_there_are_any(value, error, text):
    assert tables.number_text(value, ".4f", error) == text


@pytest.mark.parametrize(
    ("row", "topics", "label"),
    [
        (ROW, True, "lda, K = 40"),
        (ROW, False, "lda"),
        ({**ROW, "start": "from 1 topic", "topics": None}, True, "lda, from 1 topic"),
    ],
)
def test_labels__name_the_fit_and_its_differing_options(row, topics, label):
    assert label_of(row, topics=topics) == label


def test_a_table__has_a_heading_per_column_and_right_aligned_numbers():
    more = {
        "npmi": 0.1234,
        "nmi": None,
        "objective": None,
        "objective_error": None,
        "seconds": 1.0,
        "cell_seconds": 2.0,
        "diversity": None,
    }
    rows = [{**ROW, **more}, {**ROW, **more, "topics": None, "samples": 3, "score_error": None}]
    head, *lines = tables.table_text(CompareOptions(families=["lda"], metrics="nmi"), rows).splitlines()
    assert head.startswith("| family | start | K | restarts | iterations | score | ensemble | perplexity | objective |")
    assert head.endswith(" | seconds per fit | of the cell | topics (99%) | npmi |")
    assert lines == [
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| lda | random | 40 | 2 | 100 | -7.2500 ± 0.0100 | -7.2000 | 1408.1 |  | 1.00 | 2.0 | 38.5 | 0.1234 |",
        "| lda | random |  | 2 | 100, 3 samples | -7.2500 | -7.2000 | 1408.1 |  | 1.00 | 2.0 | 38.5 | 0.1234 |",
    ]


def test_schemas__have_common_fields_and_the_fields_of_their_metrics(tmp_path):
    options = CompareOptions(families=["hdsp"], metrics="perplexity,ari")
    tables.write_table(Folder(str(tmp_path)), options, [ROW])
    table = pq.read_table(tmp_path / "table.parquet")
    names = table.schema.names
    assert names[:4] == ["cell", "family", "start", "topics"]
    assert {"scores", "options", "npmi", "ari"} <= set(names)
    assert len(set(names)) == len(names)
    assert set(ROW) < set(names)
    (row,) = table.to_pylist()
    assert {name: row[name] for name in ROW} == ROW
    assert row["options"] is None
    assert table.schema.field("topics_99").type == pa.float64()
