"""Values of fields: missing values are recognised alike in labels, numbers and dates, and unknown types are refused."""

import datetime
import decimal
import json
import math
import uuid
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas._libs.parsers import STR_NA_VALUES

from collapsium.pipeline import ingest
from collapsium.storage.errors import InputError
from collapsium.storage.readers.texts.fields import (
    MAX_INTEGER,
    MISSING,
    Unsupported,
    as_date,
    as_labels,
    as_number,
    as_text,
    described,
    is_code,
    is_missing,
    is_number,
    signs_in,
)
from collapsium.storage.readers.texts.tables import values_of
from tests.pipeline.corpora.test_text_ingest import put_lines


@given(st.sampled_from(sorted(MISSING)), st.sampled_from(["", " ", "\t "]), st.sampled_from(["", " ", "\r\n"]))
def test_signs_of_missing_values__are_recognised_in_labels_numbers_and_dates(sign, before, after):
    text = before + sign + after
    assert is_missing(text)
    assert (as_labels(text), as_number(text), as_date(text)) == ([], None, None)
    assert as_text(text) == text
    assert list(signs_in(text)) == ([repr(sign)] if sign else [])


@pytest.mark.parametrize("value", [None, math.nan, float("-nan"), np.float64("nan")])
def test_nulls__are_missing(value):
    assert (as_labels(value), as_number(value), as_date(value), as_text(value)) == ([], None, None, None)


def test_the_list_of_signs__includes_those_of_pandas():
    assert STR_NA_VALUES < MISSING


@pytest.mark.parametrize("text", ["none", "na", "Na", "NAN", "0", "false", "N", "--", "unknown", "nan nan"])
def test_words__are_labels(text):
    assert as_labels(text) == [text]


@given(st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-MAX_INTEGER, MAX_INTEGER)))
def test_numbers_in_any_common_notation__are_numbers(number):
    assert is_number(number, written=True)
    assert is_number(number, written=False)
    written = repr(number)
    # Python writes 1e16 as 1e+16; other programs write 1E16, which is also hexadecimal.
    assert is_number(written, written=True)
    assert not is_number(written, written=False)
    assert as_number(written) == number


@pytest.mark.parametrize(
    "text", ["0123", "00", "00501", "-01", "01.5", "+1", "+31", "1e5", "12E3", "9007199254740993", "-9007199254740993", "9" * 5000]
)  # fmt: skip
def test_codes__are_not_numbers_unless_named_as_covariates(text):
    assert is_code(text)
    assert not is_number(text, written=True)
    assert as_labels(text) == [text]
    assert len(text) > 300 or as_number(text) == float(text)


@pytest.mark.parametrize(
    "text", ["x", "1,5", "1 000", "0x1F", "1_000", "\uff11\uff12", "12%", "1.2.3", "2024-01-01", "1/2"]
)
def test_other_texts__are_not_numbers(text):
    assert not is_number(text, written=True)
    assert not is_code(text)


def test_integers_beyond_2_to_53__are_codes():
    assert [is_number(MAX_INTEGER + more, written=False) for more in (0, 1)] == [True, False]
    assert is_number(1e300, written=False)


@pytest.mark.parametrize(
    ("value", "labels"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), (["a", None, "NA", ""], ["a"]), (3, ["3"]), (3.0, ["3"]), (True, ["true"]),
     (2**60 + 1, [str(2**60 + 1)]), (decimal.Decimal("1.50"), ["1.50"]), (datetime.date(2024, 1, 2), ["2024-01-02"]),
     (uuid.UUID(int=1), [str(uuid.UUID(int=1))]), ([1, 2.0, False], ["1", "2", "false"]), ("lone \ud800", ["lone ?"])],
)  # fmt: skip
def test_labels__are_texts_of_the_values(value, labels):
    assert as_labels(value) == labels


@pytest.mark.parametrize(
    ("value", "shown"),
    [([["a"]], "a list with a list in it"), ([{"a": 1}], "a list with an object in it"), ({"a": 1}, "an object"),
     ([("a", "b")], "a list with a pair of a map in it"), (5.5, "5.5"), (1e300, "1e+300"), (b"a", "bytes"), (math.inf, "inf"),
     (datetime.timedelta(1), "a duration"), (Unsupported("a value of type x"), "a value of type x"),
     ([[]], "a list with a list in it"), ([None, [None]], "a list with a list in it")],
)  # fmt: skip
def test_values_of_other_types__are_refused_as_labels_and_not_dropped(value, shown):
    with pytest.raises(ValueError, match="a string or a list of strings, found") as error:
        as_labels(value)
    assert shown in str(error.value)


@pytest.mark.parametrize(
    "value", [["a"], {"a": 1}, b"1", True, "x", math.inf, "inf", 10**400, [1.0], Unsupported("it")]
)
def test_values_of_other_types__are_refused_as_numbers(value):
    with pytest.raises(ValueError, match="number"):
        as_number(value)


@pytest.mark.parametrize(
    "value", [["2024"], {"a": 1}, b"2024", True, datetime.timedelta(1), math.inf, Unsupported("it")]
)
def test_values_of_other_types__are_refused_as_dates(value):
    with pytest.raises(ValueError, match="a date, found"):
        as_date(value)


def test_durations__are_seconds_and_decimals_are_numbers():
    assert as_number(datetime.timedelta(hours=1, microseconds=500_000)) == 3600.5
    assert as_number(decimal.Decimal("2.25")) == 2.25


def test_long_values__are_shortened_in_errors():
    assert len(described("x" * 1000)) < 50
    assert described([1]) == "a list"


# Arrow ----------------------------------------------------------------------------------------------------------------

FREQUENCIES = [
    "D", "h", "min", "s", "ms", "us", "M", "3M", "Y-DEC", "Y-MAR", "Y-JAN", "Q-DEC", "Q-MAR", "Q-JAN", "Q-NOV", "W-SUN",
    "W-MON", "W-THU", "W-FRI", "B", "2W-SUN",
]  # fmt: skip


@given(st.sampled_from(FREQUENCIES), st.dates(datetime.date(1700, 1, 1), datetime.date(2200, 1, 1)))
def test_periods__are_read_as_their_beginning_with_and_without_pandas(freq, day):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas deprecates periods of business days
        period = pd.Period(day, freq=freq)
        column = pa.array(pd.PeriodIndex([period, pd.NaT], freq=freq))
        expected = period.start_time
    field = pa.field("month", column.type)
    metadata = {
        "ARROW:extension:name": "pandas.period",
        "ARROW:extension:metadata": json.dumps({"freq": period.freqstr}),
    }
    for found_ in (
        values_of(column, field),
        values_of(column.storage, pa.field("month", pa.int64(), metadata=metadata)),
    ):
        assert [None if moment is None else pd.Timestamp(moment) for moment in found_] == [expected, None]
        assert len(found_[0]) == 10 or freq in ("h", "min", "s", "ms", "us")


def test_periods_of_unknown_frequency__are_refused():
    for metadata in (b'{"freq": "BQE"}', b"{}", b"[]", b"\xff", b""):
        field = pa.field(
            "p", pa.int64(), metadata={"ARROW:extension:name": "pandas.period", "ARROW:extension:metadata": metadata}
        )
        with pytest.raises(ValueError, match="period of frequency"):
            as_labels(values_of(pa.array([1]), field)[0])


MOMENT = datetime.datetime(2024, 1, 2, 7, 30, 0, 500, tzinfo=datetime.UTC)
ARROW = {
    "nanoseconds": (pa.array([1704180600123456789, -1, None], pa.timestamp("ns")),
                    ["2024-01-02T07:30:00.123456", "1969-12-31T23:59:59.999999", None]),
    "seconds": (pa.array([0, None], pa.timestamp("s")), ["1970-01-01T00:00:00", None]),
    "zone": (pa.array([MOMENT], pa.timestamp("us", "America/Los_Angeles")), ["2024-01-01T23:30:00.000500-08:00"]),
    "offset": (pa.array([MOMENT], pa.timestamp("ns", "+09:00")), ["2024-01-02T16:30:00.000500+09:00"]),
    "date": (pa.array([datetime.date(2024, 1, 2), None]), ["2024-01-02", None]),
    "date64": (pa.array([datetime.date(2024, 1, 2)], pa.date64()), ["2024-01-02"]),
    "time": (pa.array([10**9 * 3600 + 1007], pa.time64("ns")), ["01:00:00.000001"]),
    "duration": (pa.array([1_500_000_001, None], pa.duration("ns")), [datetime.timedelta(seconds=1.5), None]),
    "uuid": (pa.array([uuid.UUID(int=5).bytes, None], pa.uuid()), [str(uuid.UUID(int=5)), None]),
    "bool8": (pa.array([1, 0, None], pa.bool8()), [True, False, None]),
    "json": (pa.array(['"x"', '["a"]', "3", "null", None], pa.json_()), ["x", ["a"], 3, None, None]),
    "identifiers": (pa.array([decimal.Decimal(10**30), None], pa.decimal128(38, 0)), [10**30, None]),
    "decimals": (pa.array([decimal.Decimal("1.50"), None]), [decimal.Decimal("1.50"), None]),
    "categories": (pa.array(["x", None, "x"]).dictionary_encode(), ["x", None, "x"]),
    "times of categories": (pa.array([0, None], pa.timestamp("ns")).dictionary_encode(), ["1970-01-01T00:00:00", None]),
    "lists of times": (pa.array([[0, 1000], [], None], pa.list_(pa.timestamp("ns"))),
                       [["1970-01-01T00:00:00", "1970-01-01T00:00:00.000001"], [], None]),
    "lists of categories": (pa.array([["a", None], None], pa.list_(pa.dictionary(pa.int32(), pa.string()))), [["a", None], None]),
    "fixed lists": (pa.array([["a", "b"], None], pa.list_(pa.string(), 2)), [["a", "b"], None]),
    "fixed lists of dates": (pa.array([[datetime.date(2024, 1, 2)], None], pa.list_(pa.date32(), 1)), [["2024-01-02"], None]),
    "views": (pa.array(["a", None], pa.string_view()), ["a", None]),
    "nulls": (pa.nulls(2), [None, None]),
    "binary": (pa.array([b"a", None]), [b"a", None]),
}  # fmt: skip


@pytest.mark.parametrize("name", ARROW)
def test_arrow_types__are_read_by_their_meaning(name):
    column, expected = ARROW[name]
    assert values_of(column, pa.field("x", column.type)) == expected
    padded = pa.concat_arrays([column[:1], column])
    assert values_of(padded.slice(1), pa.field("x", column.type)) == expected


def test_extension_types__are_recognised_by_the_metadata_of_their_field():
    field = pa.field("x", pa.binary(16), metadata={"ARROW:extension:name": "arrow.uuid"})
    assert values_of(pa.array([uuid.UUID(int=5).bytes], pa.binary(16)), field) == [str(uuid.UUID(int=5))]
    inside = pa.field("item", pa.binary(16), metadata={"ARROW:extension:name": "arrow.uuid"})
    column = pa.array([[uuid.UUID(int=5).bytes], None], pa.list_(inside))
    assert values_of(column, pa.field("x", column.type)) == [[str(uuid.UUID(int=5))], None]


@pytest.mark.parametrize(
    ("column", "shown"),
    [(pa.array([[("a", "b")], []], pa.map_(pa.string(), pa.string())), "a map"), (pa.array([{"a": 1}, {"a": 2}]), "an object"),
     (pa.array([[["a"]], []]), "a list with a list in it"), (pa.array([[{"a": 1}], []]), "a list with an object in it"),
     (pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int32(), [1]), pa.array([[1], [2]], pa.list_(pa.int32(), 1))),
      "a value of type arrow.fixed_shape_tensor"),
     (pa.array(pd.interval_range(0, 2)), "a value of type pandas.interval"), (pa.array([b"a", b"b"]), "bytes")],
)  # fmt: skip
@pytest.mark.parametrize("option", ["labels", "covariates", "date", "title"])
def test_arrow_types_without_a_meaning__are_refused_with_file_row_and_field(tmp_path, column, shown, option):
    table = pa.table({"id": ["a", "b"], "text": ["ship sea", "sea"], "x": column})
    pq.write_table(pa.concat_tables([table.slice(0, 0), table]), tmp_path / "t.parquet")
    with pytest.raises(InputError) as error:
        ingest(str(tmp_path / "t.parquet"), tmp_path / "c", **{option: "stars=x" if option == "covariates" else "x"})
    assert "t.parquet: row 1: expected " in str(error.value)
    assert error.value.expected.endswith(f"found {shown if option == 'labels' else found_of(shown)}, in field 'x'")
    assert not (tmp_path / "c").exists()


def found_of(shown):
    return "a list" if shown.startswith("a list") else shown


def test_values_that_python_cannot_represent__are_refused_with_their_row(tmp_path):
    table = pa.table({"id": ["a", "b"], "text": ["ship sea", "sea"], "x": pa.array([0, 10**15], pa.timestamp("ms"))})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"row 2: expected a value of type timestamp\[ms\] in field 'x'"):
        ingest(str(tmp_path / "t.parquet"), tmp_path / "c", date="x")


def test_identifiers_of_databases__can_be_ids(tmp_path):
    ids = pa.array([decimal.Decimal(2**60 + 1), decimal.Decimal(2)], pa.decimal128(38, 0))
    pq.write_table(pa.table({"id": ids, "text": ["ship", "sea"]}), tmp_path / "t.parquet")
    ingest(str(tmp_path / "t.parquet"), tmp_path / "c")
    assert pq.read_table(tmp_path / "c/documents", columns=["id"])["id"].to_pylist() == [str(2**60 + 1), "2"]


def test_nested_lists_in_json__are_refused_with_their_line(tmp_path):
    lines = [{"id": 1, "text": "aa", "tag": ["x"]}, {"id": 2, "text": "bb", "tag": ["x", ["y"]]}]
    with pytest.raises(
        InputError, match=r"line 2: expected a string or a list of strings, found a list with a list in it, in"
    ):
        ingest(put_lines(tmp_path / "t.jsonl", lines), tmp_path / "c", labels="tag")
