"""Topic shares by period: from proportions, from a run alone, and in plots, tables and reports."""

import csv
import datetime
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import Model, fit, infer, plot, report, topic_shares
from collapsium.pipeline.analysis.topic_shares import by_period
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.engine.summary import dates_summary
from collapsium.storage.corpus.writer import CorpusWriter
from collapsium.storage.errors import DamagedError, OptionError
from collapsium.storage.io.folder import Folder, created
from collapsium.storage.runs.summary import parse_summary, read_summary
from collapsium.workers.ingest.dates import hours_of
from collapsium.workers.periods import NAMES, date_sums, period_of
from tests.conftest import simulated_rows
from tests.strategies import documents_of

HOSTILE = "<script>alert(1)</script>"


def dates_of(count):
    """Return dates of about three years in several forms, and a different kind of date in every tenth document."""
    odd = [None, "1990", HOSTILE, "03/04/1990"]
    forms = ["%Y-%m-%d", "%d-%b-%Y 10:20:30", "%Y-%m-%dT%H:%M:%SZ"]
    first = datetime.datetime(1989, 1, 1)
    dates = [(first + datetime.timedelta(days=17 * n)).strftime(forms[n % 3]) for n in range(count)]
    return [odd[n // 10 % 4] if n % 10 == 9 else text for n, text in enumerate(dates)]


@pytest.fixture(scope="module")
def dated_run(tmp_path_factory):
    """A run on documents with dates, whose corpus was removed; a copy of the corpus; and the dates."""
    place = tmp_path_factory.mktemp("time")
    rows = [row for row in simulated_rows(3, documents=85) if row]
    dates = dates_of(len(rows))
    with created(Folder(place / "kept")) as folder:
        writer = CorpusWriter(folder, 30, 500)
        writer.add(replace(documents_of(rows, None), extras={"date": pa.array(dates, pa.string())}))
        writer.finish([f"w{n}" for n in range(30)])
    shutil.copytree(place / "kept", place / "corpus")
    fit(place / "corpus", place / "run", family="lda", topics=3, iterations=4, scheduler="serial")
    fit(place / "corpus", place / "again", family="lda", topics=3, iterations=4, workers=2)
    shutil.rmtree(place / "corpus")
    return place / "run", place / "kept", dates


def test_shares__are_means_of_proportions_weighted_by_tokens(dated_run, tmp_path):
    run, corpus, dates = dated_run
    infer(run, corpus, tmp_path / "theta.parquet", threshold=0.0, scheduler="serial")
    theta = np.zeros((len(dates), 3))
    for row, record in enumerate(pq.read_table(tmp_path / "theta.parquet").to_pylist()):
        theta[row, record["topics"]] = record["proportions"]
    found = topic_shares(run, period="year")
    assert found.names == ["1989", "1990", "1991", "1992"][: len(found.names)]
    years = [None if date in (None, HOSTILE) else re.search(r"(19\d\d)", date)[1] for date in dates]
    for name, count, tokens, shares in zip(found.names, found.documents, found.tokens, found.shares, strict=True):
        rows = [row for row, year in enumerate(years) if year == name]
        assert (count, tokens) == (len(rows), 40 * len(rows))
        assert np.allclose(shares, theta[rows].mean(axis=0)[found.topics], atol=1e-5)
    assert np.allclose(found.shares.sum(axis=1), 1, atol=1e-5)
    assert found.inexact == 0
    assert found.summary.missing + found.summary.unreadable == years.count(None)


def test_summaries__have_the_same_bits_for_any_number_of_workers(dated_run):
    run = dated_run[0]
    again = run.parent / "again"
    assert (run / "model/summary.json").read_bytes() == (again / "model/summary.json").read_bytes()


def test_periods__are_chosen_automatically_and_report_what_they_omit(dated_run):
    found = topic_shares(dated_run[0])
    assert found.period in ("month", "quarter")
    assert 10 <= len(found.names) <= 60
    notes = " ".join(found.notes)
    assert found.inexact
    assert "without a date" in notes
    assert f"cannot be read (such as '{HOSTILE}')" in notes
    assert found.table().num_rows == 3 * len(found.names)
    with pytest.raises(OptionError, match="expected hour, day"):
        topic_shares(dated_run[0], period="fortnight")


def test_plot__writes_a_plot_and_a_table(dated_run, tmp_path, capsys):
    run = str(dated_run[0])
    picture, table = tmp_path / "time.svg", tmp_path / "time.csv"
    assert main(["plot", run, str(picture), "--what", "time", "--period", "quarter", "--csv", str(table)]) == 0
    output = capsys.readouterr().out
    assert "quarters" in output
    assert "without a date" in output
    rows, expected = list(csv.DictReader(table.open())), topic_shares(run, period="quarter")
    assert [float(row["share"]) for row in rows] == pytest.approx(expected.shares.ravel().tolist(), abs=1e-5)
    assert [row["period"] for row in rows[::3]] == expected.names
    assert "Number of documents" in picture.read_text()
    assert main(["plot", run, str(tmp_path / "one.png"), "--what", "time", "--topics", "1", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (
        sum(period["documents"] for period in record["periods"]) + record["left_out"]["inexact"]
        == expected.documents.sum() + expected.inexact
    )
    for wrong in ({"topics": [7]}, {"what": ["sizes"], "period": "year"}, {"period": "hour", "topics": []}):
        with pytest.raises(OptionError):
            plot(run, tmp_path / "wrong.svg", **{"what": ["time"], **wrong})
    assert not (tmp_path / "wrong.svg").exists()


def test_plot_of_documents_without_dates__is_refused(small, tmp_path):
    fit(small[0], tmp_path / "run", family="lda", topics=2, iterations=1, scheduler="serial")
    with pytest.raises(OptionError, match="date"):
        plot(tmp_path / "run", tmp_path / "out.svg", what=["time"])
    report(tmp_path / "run", tmp_path / "out.html")
    assert 'id="time"' not in (tmp_path / "out.html").read_text()


def test_report__has_a_section_on_time(dated_run, tmp_path):
    report(dated_run[0], tmp_path / "out.html")
    text = (tmp_path / "out.html").read_text()
    found = topic_shares(dated_run[0])
    section = re.search(r'<section id="time".*?</section>', text, re.DOTALL)[0]
    assert section.count("<figure") == 4
    assert section.count("<circle") == 3 * len(found.names)
    assert f"<title>{found.names[0]}: {found.documents[0]}</title>" in section
    assert HOSTILE not in text
    assert "&lt;script&gt;alert(1)" in section


def test_a_summary_with_damaged_dates__is_refused(dated_run):
    model = Model(dated_run[0])
    record = read_summary(model.folder, model.record).model_dump(mode="json")
    assert parse_summary(record, "x").dates is not None
    good = record["dates"]
    for wrong in ({"shares": good["shares"][:-8]}, {"shares": "?"}, {"hour": good["hour"][:-1]}, {"unit": ["era"]},
                  {"hour": [10**12, *good["hour"][1:]]}, {"topics": [*good["topics"], 5]}):  # fmt: skip
        with pytest.raises(DamagedError):
            parse_summary({**record, "dates": {**good, **wrong}}, "x")


@given(
    st.integers(-5_000_000, 5_000_000),
    st.sampled_from([*NAMES, "5 years", "4 years from 1789-03-04", "36 hours", "7 months"]),
)
def test_a_period__includes_its_moment(hour, period):
    texts = pa.array([(datetime.datetime(1970, 1, 1) + datetime.timedelta(hours=hour)).isoformat()])
    ones = np.ones(1)
    found = by_period(
        dates_summary(date_sums(texts, ones[:, None], ones, ones > 0), np.zeros(1, dtype=np.int64)), period
    )
    start, end = hours_of(found.starts[0]), hours_of(found.ends[0])
    assert start <= hour < end
    assert period_of(period).starts(np.array([start, end - 1])).tolist() == [start, start]
    assert period != "week" or found.starts[0].weekday() == 0


@given(st.integers(2, 40), st.integers(0, 100))
def test_errors__decrease_with_the_number_of_documents(count, seed):
    generator = np.random.default_rng(seed)
    theta = np.repeat(generator.dirichlet(np.ones(2), size=count), 5, axis=0)
    dates = pa.array(["1990"] * count + ["1991"] * 4 * count)
    ones = np.ones(5 * count)
    found = by_period(dates_summary(date_sums(dates, theta, ones, ones > 0), np.arange(2)), "year")
    assert (found.errors > 0).all()
    assert found.errors[1, 0] <= max(found.errors[0, 0], theta[:, 0].std()) + 1e-9
    assert np.allclose(found.errors[:, 0], found.errors[:, 1], atol=1e-4)
