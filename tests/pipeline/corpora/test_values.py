"""Values of fields in all formats: they are interpreted alike, and guesses about them are reported."""

import csv
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collapsium.pipeline import append, fit, ingest
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.corpora.texts_in_memory import fields_of, table_of, write_texts
from collapsium.storage.building.ingest_record import read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import InputError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.open import ReadOptions, open_vectors
from tests.pipeline.corpora.test_text_ingest import columns_of, put_lines

ROWS = [
    {"id": "a", "text": "ship sea", "who": "Ann", "stars": "4", "on": "2024-01-01T23:30-08:00"},
    {"id": "b", "text": "sea", "who": "NA", "stars": "-", "on": "?"},
    {"id": "c", "text": "NA", "who": "?", "stars": "NaN", "on": "NaT"},
    {"id": "d", "text": "-", "who": "none", "stars": " 0.5 ", "on": "2024"},
]
NAMED = {"labels": ["who"], "covariates": ["stars"], "date": "on"}
SAID = {"'NA' in field 'who'", "'-' in field 'stars'", "'?' in field 'who'", "'NaN' in field 'stars'"}


def report_of(corpus):
    return read_history(Folder(corpus)).report


def guesses_of(corpus, what):
    return {guess.value for guess in report_of(corpus).guesses if guess.what == what}


def put(folder, kind):
    """Write rows in a format; return the path."""
    path = folder / f"t.{kind}"
    if kind == "jsonl":
        return put_lines(path, ROWS)
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif kind == "frame":
        frame = pd.DataFrame(ROWS).astype({"who": "category"})
        return write_texts(table_of(frame, fields_of({"id": "id", "text": "text", **NAMED})), folder)
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ROWS[0], delimiter="\t" if kind == "tsv" else ",")
            writer.writeheader()
            writer.writerows(ROWS)
    return str(path)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet", "frame"])
def test_signs_of_missing_values__are_the_same_in_all_formats(tmp_path, kind):
    ingest(put(tmp_path, kind), tmp_path / "c", **NAMED)
    columns = columns_of(tmp_path / "c")
    assert columns["labels"] == [
        [{"field": "who", "value": "Ann"}], [], [], [{"field": "who", "value": "none"}]
    ]  # fmt: skip
    assert columns["stars"] == [4.0, None, None, 0.5]
    assert columns["date"] == ["2024-01-01T23:30-08:00", None, None, "2024"]
    assert guesses_of(tmp_path / "c", "missing values") == SAID
    assert report_of(tmp_path / "c").dates.missing == 2
    # A document's text is never missing, even if it equals one of the signs.
    assert "na" in Corpus(tmp_path / "c").vocabulary.words
    ingest(put(tmp_path, kind), tmp_path / "like", like=tmp_path / "c")
    assert columns_of(tmp_path / "like") == columns


def test_a_text_that_is_nan__is_missing(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"id": 1, "text": NaN}\n{"id": 2, "text": "NaN"}\n{"id": 3, "text": null}\n')
    ingest(str(tmp_path / "t.jsonl"), tmp_path / "c")
    assert report_of(tmp_path / "c").missing_text == 2
    assert Corpus(tmp_path / "c").vocabulary.words == ["nan"]


def test_labels_of_lines__may_be_missing(tmp_path):
    (tmp_path / "t.mallet").write_text("a x ship sea\nb - sea ship\nc NA sea\n")
    ingest(str(tmp_path / "t.mallet"), tmp_path / "m")
    assert [len(label) for label in columns_of(tmp_path / "m")["labels"]] == [1, 0, 0]
    (tmp_path / "t.svmlight").write_text("1,? 1:2\n? 1:1\n")
    (tmp_path / "vocab.txt").write_text("sea\nship\n")
    ingest(str(tmp_path / "t.svmlight"), tmp_path / "s")
    assert [[label["value"] for label in row] for row in columns_of(tmp_path / "s")["labels"]] == [["1"], []]
    put_lines(tmp_path / "t.jsonl", ROWS)
    (tmp_path / "who.txt").write_text("Ann;NA\n?\n\nBo\n")
    ingest(str(tmp_path / "t.jsonl"), tmp_path / "l", label_files=str(tmp_path / "who.txt"))
    labels = columns_of(tmp_path / "l")["labels"]
    assert [[label["value"] for label in row] for row in labels] == [["Ann"], [], [], ["Bo"]]


def test_svmlight_lines_without_a_label__keep_their_first_pair(tmp_path):
    (tmp_path / "t.svmlight").write_text("0:3 1:1\n 1:2\n1,2 0:1\nqid:3 1:4\n")
    (tmp_path / "vocab.txt").write_text("sea\nship\n")
    ingest(str(tmp_path / "t.svmlight"), tmp_path / "s")
    [documents] = [reference.documents() for reference in Corpus(tmp_path / "s").references]
    assert documents.offsets.tolist() == [0, 2, 3, 4, 5]
    assert documents.words.tolist() == [0, 1, 1, 0, 1]
    assert documents.counts.tolist() == [3, 1, 2, 1, 4]
    labels = columns_of(tmp_path / "s")["labels"]
    assert [[label["value"] for label in row] for row in labels] == [[], [], ["1", "2"], []]


SIDES = {
    "numbers": (["1", "NA", "4.5", "", "-2e-05"], [1.0, None, 4.5, None, -2e-05], "numbers"),
    "zeros": (["01234", "02345", "00501"], None, "labels, as '01234' in record 1 is a code"),
    "one zero": (["1", "2", "05"], None, "labels, as '05' in record 3 is a code"),
    "large": (["1", "9007199254740993"], None, "labels, as '9007199254740993' in record 2 is a code"),
    "hexadecimal": (["1e5", "22"], None, "labels, as '1e5' in record 1 is a code"),
    "telephones": (["+31", "+49"], None, "labels, as '+31' in record 1 is a code"),
    "mixed": (["1", "NA", "high", "2"], None, "labels, as 'high' in record 3 is no number"),
    "mixed at last": (["low", "high", "2"], None, "labels, as 'low' in record 1 is no number"),
    "words": (["low", "high", "NA"], None, "labels"),
    "nothing": (["", "NA"], None, "labels"),
}


@pytest.mark.parametrize("name", SIDES)
@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_columns_of_side_files__are_numbers_or_labels_with_a_reported_reason(tmp_path, capsys, name, kind):
    values, numbers, message = SIDES[name]
    texts = put_lines(tmp_path / "t.jsonl", [{"id": f"d{n}", "text": "ship sea"} for n in range(len(values))])
    between = "\t" if kind == "tsv" else ","
    lines = [f"d{n}{between}{value}" for n, value in enumerate(values)]
    (tmp_path / f"side.{kind}").write_text("\n".join([f"id{between}score", *lines]) + "\n")
    assert main(["ingest", texts, str(tmp_path / "c"), "--label-files", str(tmp_path / f"side.{kind}")]) == 0
    assert (
        f"type of side file column score {message} (--{'labels' if numbers else 'covariates'})"
        in capsys.readouterr().out
    )
    assert guesses_of(tmp_path / "c", "type of side file column score") == {message}
    columns = columns_of(tmp_path / "c")
    if numbers:
        assert columns["score"] == numbers
    else:
        found = [[label["value"] for label in row] for row in columns["labels"]]
        assert found == [[value] if value not in ("", "NA") else [] for value in values]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_integers_and_texts_of_records__keep_their_type(tmp_path, kind):
    rows = [{"id": "a", "n": 1, "big": 2**53 + 1, "zip": "00501"}, {"id": "b", "n": None, "big": 5, "zip": "1"}]
    texts = put_lines(tmp_path / "t.jsonl", [{"id": row["id"], "text": "ship sea"} for row in rows])
    side = tmp_path / f"side.{kind}"
    if kind == "jsonl":
        put_lines(side, rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), side)
    ingest(texts, tmp_path / "c", label_files=str(side))
    columns = columns_of(tmp_path / "c")
    assert columns["n"] == [1.0, None]
    assert [[(label["field"], label["value"]) for label in row] for row in columns["labels"]] == [
        [("big", str(2**53 + 1)), ("zip", "00501")], [("big", "5"), ("zip", "1")]
    ]  # fmt: skip


def test_codes_in_later_side_files__are_labels_as_before(tmp_path):
    texts = [put_lines(tmp_path / f"{n}.jsonl", [{"id": n, "text": "ship sea"}]) for n in range(2)]
    for n, value in enumerate(("00501", "12345")):
        (tmp_path / f"side{n}.csv").write_text(f"id,zip\n{n},{value}\n")
    ingest(texts[0], tmp_path / "c", label_files=str(tmp_path / "side0.csv"))
    append(tmp_path / "c", texts[1], label_files=str(tmp_path / "side1.csv"))
    assert [[label["value"] for label in row] for row in columns_of(tmp_path / "c")["labels"]] == [["00501"], ["12345"]]


def test_named_covariates__may_look_like_codes(tmp_path):
    lines = [{"id": 1, "text": "aa", "month": "05"}, {"id": 2, "text": "bb", "month": "12"}]
    ingest(put_lines(tmp_path / "t.jsonl", lines), tmp_path / "c", covariates="month")
    assert columns_of(tmp_path / "c")["month"] == [5.0, 12.0]


def put_dates(path, dates):
    rows = [{"id": f"{path.stem}{n}", "text": "ship sea", "on": date} for n, date in enumerate(dates)]
    return put_lines(path, rows)


def test_dates__are_counted_and_reported_with_examples(tmp_path, capsys):
    dates = [
        "2024-02-29",
        "circa 1850",
        None,
        "NA",
        "03/04/2020",
        "2024-02-30",
        "2016-12-31T23:59:60Z",
        1850,
        "1700000000",
    ]
    source = put_dates(tmp_path / "t.jsonl", dates)
    assert main(["ingest", source, str(tmp_path / "c"), "--date", "on"]) == 0
    out = capsys.readouterr().out
    assert "  2 documents without a date\n" in out
    assert "  2 documents with a date that cannot be read, such as 'circa 1850', '2024-02-30'\n" in out
    assert (
        "  1 document with an ambiguous date, such as '03/04/2020', of which only the year counts (--date-order)\n"
        in out
    )
    reported = report_of(tmp_path / "c").dates
    assert (reported.missing, reported.unreadable, reported.ambiguous, reported.unix) == (2, 2, 1, 1)
    assert main(["ingest", source, str(tmp_path / "j"), "--date", "on", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ingest"]["dates"]["unreadable"] == 2
    assert main(["ingest", source, str(tmp_path / "n")]) == 0
    assert " date" not in capsys.readouterr().out
    assert "dates" not in read_history(Folder(tmp_path / "n")).record()["report"]


@pytest.mark.parametrize(
    ("further", "guessed", "message"),
    [(["13/05/2011"], {"day first, as '13/05/2011' shows"}, ""), (["05/13/2011"], {"month first, as '05/13/2011' shows"}, ""),
     ([], set(), "such as '04/08/2011', of which only the year counts (--date-order)\n"),
     (["13/05/2011", "05/13/2011"], set(), "(--date-order); '13/05/2011' and '05/13/2011' have different orders\n")],
)  # fmt: skip
def test_the_order_of_day_and_month__follows_from_all_dates_or_remains_unknown(
    tmp_path, capsys, further, guessed, message
):
    source = put_dates(tmp_path / "t.jsonl", ["04/08/2011", *further])
    assert main(["ingest", source, str(tmp_path / "c"), "--date", "on"]) == 0
    out = capsys.readouterr().out
    assert ("ambiguous" in out, message in out) == (bool(message), True)
    assert guesses_of(tmp_path / "c", "order of days and months") == guessed
    assert columns_of(tmp_path / "c")["date"] == ["04/08/2011", *further]
    # Later documents follow the order that the corpus shows.
    later = put_dates(tmp_path / "more.jsonl", ["05/06/2012"])
    assert main(["append", str(tmp_path / "c"), later]) == 0
    assert ("ambiguous" in capsys.readouterr().out) == bool(message)
    appended = read_history(Folder(tmp_path / "c")).appended[0]
    assert {guess.value for guess in appended.guesses if guess.option == "date_order"} == guessed


@pytest.mark.parametrize(("order", "first"), [("day", "2011-08-04"), ("month", "2011-04-08")])
def test_the_order_of_day_and_month__can_be_given(tmp_path, order, first):
    dates = ["04/08/2011", "04/08/2011 10:30", "13/05/2011", "05/13/2011", "2011", None]
    source = put_dates(tmp_path / "t.jsonl", dates)
    ingest(source, tmp_path / "c", date="on", date_order=order)
    assert columns_of(tmp_path / "c")["date"] == [first, f"{first} 10:30", *dates[2:]]
    assert report_of(tmp_path / "c").dates.ambiguous == 0
    append(tmp_path / "c", put_dates(tmp_path / "more.jsonl", ["04/08/2011"]))
    assert columns_of(tmp_path / "c")["date"][-1] == first
    ingest(source, tmp_path / "like", like=tmp_path / "c")
    assert columns_of(tmp_path / "like")["date"][:2] == [first, f"{first} 10:30"]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"date_order": "day"}, "requires the field"), ({"date": "on", "date_order": "year"}, "date_order")],
)
def test_invalid_orders_of_day_and_month__are_refused(tmp_path, options, message):
    with pytest.raises(OptionError, match=message):
        ingest(put_dates(tmp_path / "t.jsonl", ["2011"]), tmp_path / "c", **options)


def test_dates__are_interpreted_alike_with_any_number_of_workers(tmp_path):
    source = put_dates(tmp_path / "t.jsonl", ["04/08/2011", "x", None, "13/05/2011"] * 9)
    for scheduler, workers in (("serial", None), ("threads", 3)):
        ingest(source, tmp_path / scheduler, date="on", scheduler=scheduler, workers=workers)
    assert (tmp_path / "serial/ingest.json").read_bytes() == (tmp_path / "threads/ingest.json").read_bytes()


def test_frames__support_periods_times_and_signs_like_files(tmp_path):
    frame = pd.DataFrame({
        "text": ["ship sea sail", "sea ship", "sail sea"],
        "who": ["x", pd.NA, "NA"],
        "stars": ["1", "-", "2.5"],
        "on": pd.period_range("2024-01", periods=3, freq="Q"),
    })  # fmt: skip
    model = fit(
        frame,
        tmp_path / "run",
        family="lda",
        topics=2,
        iterations=2,
        labels="who",
        covariates="stars",
        date="on",
        scheduler="serial",
    )
    assert model is not None
    for wrong, message in (
        ("x", "found text that is no number at position 1"),
        (["x"], "found list at position 1 after str"),
    ):
        with pytest.raises(OptionError, match=message):
            table_of(pd.DataFrame({"text": ["a", "b"], "n": ["1", wrong]}), {"text": "text", "n": "covariates"})
    nested = pa.table({"text": ["aa", "bb"], "tag": [[["x"]], []]})
    with pytest.raises(
        InputError, match="texts: row 1: expected a string or a list of strings, found a list with a list"
    ):
        fit(nested, tmp_path / "other", family="lda", topics=2, iterations=2, labels="tag", scheduler="serial")
    intervals = pa.table({"text": ["aa"], "x": pa.nulls(1, pa.month_day_nano_interval())})
    with pytest.raises(OptionError, match="month_day_nano_interval"):
        fit(intervals, tmp_path / "other", family="lda", topics=2, iterations=2, labels="x", scheduler="serial")


VALUES = np.array([[0.126, -0.132, 0.64, 0.105], [-0.536, 0.362, 1.304, 0.947]])
HEADERS = {
    "pandas": ("0,1,2,3", {}, "yes", ["0", "1", "2", "3"]),
    "from one": ("1,2,3,4", {}, "yes", ["1", "2", "3", "4"]),
    "years": ("1987,1988,1989,1990", {}, "no", None),
    "counts": ("3,0,1,2", {}, "no", None),
    "named": ("0,1,2,3", {"header": "no"}, None, None),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_line_of_integers_above_fractions__is_a_header_unless_declared_as_values(tmp_path, name):
    line, options, message, names = HEADERS[name]
    path = tmp_path / "v.csv"
    path.write_text("\n".join([line, *(",".join(map(str, row)) for row in VALUES.tolist())]) + "\n")
    source = open_vectors([str(path)], ReadOptions(**options))
    assert [guess.value for guess in source.guesses if guess.option == "header"] == ([message] if message else [])
    found = np.concatenate([part.values for part in source.vectors()])
    if names is None:
        assert np.array_equal(found, [[float(number) for number in line.split(",")], *VALUES])
    else:
        assert source.columns() == names
        assert np.array_equal(found, VALUES)


def test_sets_of_labels__are_sorted():
    who = [{f"person {n}" for n in range(9, 0, -1)}, None, {"Bo", None}]
    table = table_of(pd.DataFrame({"text": ["sea", "ship", "sea"], "who": who}), {"text": "text", "who": "labels"})
    assert table["who"].to_pylist() == [[f"person {n}" for n in range(1, 10)], None, ["Bo", None]]


def test_sparse_columns_of_pandas__are_read():
    frame = pd.DataFrame({"text": ["sea", "ship", "sea"], "stars": pd.arrays.SparseArray([0, 2.5, np.nan])})
    table = table_of(frame, {"text": "text", "stars": "covariates"})
    assert table["stars"].to_pylist() == [0.0, 2.5, None]


def test_frames_with_an_index__have_a_header_too(tmp_path):
    pd.DataFrame(VALUES).to_csv(tmp_path / "v.csv")
    with pytest.raises(InputError, match="one without; if the first column is an index, `id` -5 makes ids of it"):
        open_vectors([str(tmp_path / "v.csv")])
    source = open_vectors([str(tmp_path / "v.csv")], ReadOptions(id="-5"))
    assert np.array_equal(next(source.vectors()).values, VALUES)


def test_integers_without_fractions_below__are_values(tmp_path):
    (tmp_path / "v.csv").write_text("0,1,2\n3,4,5\n")
    assert len(next(open_vectors([str(tmp_path / "v.csv")]).vectors()).values) == 2
    (tmp_path / "w.csv").write_text("0,1\n0.5,0.5\n")
    assert len(next(open_vectors([str(tmp_path / "w.csv")]).vectors()).values) == 2
    (tmp_path / "u.csv").write_text("0,1,2\n")
    assert len(next(open_vectors([str(tmp_path / "u.csv")]).vectors()).values) == 1


def test_labels_of_vectors__may_be_missing(tmp_path):
    (tmp_path / "v.csv").write_text("a,b,kind\n1,2,x\n3,4,NA\n5,6,?\n7,8,\n")
    ingest(str(tmp_path / "v.csv"), tmp_path / "c", format="vectors", labels="kind")
    assert [[label["value"] for label in row] for row in columns_of(tmp_path / "c")["labels"]] == [["x"], [], [], []]
    np.save(tmp_path / "v.npy", np.array([[1.0, 2.0, 3.0], [4.0, 5.0, np.nan]]))
    ingest(str(tmp_path / "v.npy"), tmp_path / "n", labels="kind=-1")
    assert [[label["value"] for label in row] for row in columns_of(tmp_path / "n")["labels"]] == [["3"], []]
    with pytest.raises(InputError, match="expected an id, found none"):
        ingest(str(tmp_path / "v.npy"), tmp_path / "i", id="-1")
