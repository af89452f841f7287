"""Dates as people write them, and sums by date, which do not depend on how the documents are divided."""

import datetime
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.readers.texts.fields import MAX_EXAMPLES, as_date, is_missing
from collapsium.workers.ingest.dates import (
    DAY,
    END,
    FIRST,
    HOUR,
    MONTH,
    UNITS,
    YEAR,
    counted_dates,
    hours_of,
    ordered_dates,
    read_date,
    tally_of,
)
from collapsium.workers.periods import UNAMBIGUOUS, bounded, coarsened, date_sums, floored, moment, resolved

moments = st.datetimes(datetime.datetime(1000, 1, 1), datetime.datetime(9999, 12, 30))


@pytest.mark.parametrize(
    ("text", "moment_", "unit"),
    [
        ("1987-02-26", "1987-02-26T00", "day"),
        ("1987-2-6", "1987-02-06T00", "day"),
        ("1987/02/26", "1987-02-26T00", "day"),
        ("19870226", "1987-02-26T00", "day"),
        ("1987-W09-4", "1987-02-26T00", "day"),
        ("26-FEB-1987 15:01:01.79", "1987-02-26T15", "hour"),
        (" 5-APR-1987 01:02:03.04 ", "1987-04-05T01", "hour"),
        ("1987-02-26T15:01:01Z", "1987-02-26T15", "hour"),
        ("1987-02-26 15:01:01.123456789+02:00", "1987-02-26T15", "hour"),
        ("1987-02-26 15:01:01 UTC", "1987-02-26T15", "hour"),
        ("Thu, 26 Feb 1987 15:01:01 +0100", "1987-02-26T15", "hour"),
        ("Feb 26, 1987, 3:01 PM", "1987-02-26T15", "hour"),
        ("26 February 1987", "1987-02-26T00", "day"),
        ("2/26/1987", "1987-02-26T00", "day"),
        ("26.2.1987", "1987-02-26T00", "day"),
        ("February 1987", "1987-02-01T00", "month"),
        ("1987-02", "1987-02-01T00", "month"),
        ("1987", "1987-01-01T00", "year"),
        ("1987.0", "1987-01-01T00", "year"),
        ("541350061", "1987-02-26T15", "hour"),
        ("1420070400123", "2015-01-01T00", "hour"),
        ("946684800000000", "2000-01-01T00", "hour"),
        ("-631152000", "1950-01-01T00", "hour"),
        ("-2208988800.0", "1900-01-01T00", "hour"),
        ("-1203041122.5", "1931-11-17T21", "hour"),
        ("-631152000000", "1950-01-01T00", "hour"),
        ("20240305T233000Z", "2024-03-05T23", "hour"),
        ("20240305T2330", "2024-03-05T23", "hour"),
        ("20240305 11:30 PM", "2024-03-05T23", "hour"),
        ("26-FEB-87", "1987-02-26T00", "day"),
        ("2024-01-01T23:30-08:00", "2024-01-01T23", "hour"),
        ("2024-01-01T00:30:00+09:00", "2024-01-01T00", "hour"),
        ("Tue, 05 Mar 2024 23:30:00 -0800", "2024-03-05T23", "hour"),
        ("5 March 2024 23:30 -08:00", "2024-03-05T23", "hour"),
        ("2016-12-31T23:59:60Z", "2016-12-31T23", "hour"),
        ("31 Dec 2016 23:59:60", "2016-12-31T23", "hour"),
    ],
)
def test_forms_of_dates__are_read(text, moment_, unit):
    found = read_date(text)
    assert (f"{moment(found.hour):%Y-%m-%dT%H}", UNITS[found.exact], found.day_first) == (moment_, unit, None)


@pytest.mark.parametrize(
    "text",
    ["", "n.d.", "monday", "10", "198702", "1999-00-00", "2020-13-01", "2020-02-30", "12:30", "27-MAR-1987 02:17:09.88T C",
     "99999-01-01", "-0044", "-0044-03-15", "-120203", "-20010203", "9" * 40, "a" * 1000, "2020-01-02T25:00", "Infinity"],
)  # fmt: skip
def test_texts_that_are_not_dates__are_not_guessed(text):
    assert read_date(text) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(1987.0, "1987"), (float("nan"), None), (1420070400.5, "1420070400.5"), (1987, "1987"), (None, None),
     (datetime.datetime(1987, 2, 26, 15), "1987-02-26T15:00:00"), (datetime.date(1987, 2, 26), "1987-02-26")],
)  # fmt: skip
def test_dates_of_records__are_converted_to_texts_that_can_be_read(value, text):
    assert as_date(value) == text
    assert text is None or read_date(text) is not None


@given(moments, st.sampled_from(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%d-%b-%Y %H:%M:%S", "%d %B %Y", "%b %d, %Y %H:%M"]))
def test_dates__are_read_as_they_were_written(at, form):
    text = at.strftime(form).replace(at.strftime("%Y"), f"{at.year:04d}")
    found = read_date(text)
    expected = hours_of(at) if "%H" in form else hours_of(at) // 24 * 24
    assert (found.hour, found.exact, found.day_first) == (expected, HOUR if "%H" in form else DAY, None)


@given(st.one_of(st.text(max_size=70), st.from_regex(r"[0-9./: +TZ-]{1,30}", fullmatch=True)))
def test_any_text__is_read_or_refused(text):
    found = read_date(text)
    assert found is None or FIRST <= found.hour < END


@given(st.dates(datetime.date(1000, 1, 1)), st.sampled_from("/.-"))
def test_ambiguous_days_and_months__are_resolved_or_reported(day, between):
    found = read_date(f"{day.day}{between}{day.month}{between}{day.year}")
    if day.day > 12 or day.day == day.month:
        assert (moment(found.hour).date(), found.day_first) == (day, None)
        assert found.order == (day.day > 12)
    else:
        assert moment(found.day_first).date() == day
        assert moment(found.hour).date() == datetime.date(day.year, day.day, day.month)


FORMS = st.sampled_from(
    [
        "1987-02-26",
        "1987-02-27T10:00",
        "1987-02-27T11:30",
        "1987",
        "1988-05",
        "03/04/1987",
        "13/04/1987",
        "4/13/1987",
        None,
        "",
        "?!",
    ]
)


def expected_sums(sums, texts, theta, tokens):
    """Return the expected sums, one document at a time."""
    for row in range(sums.hour.size):
        chosen = [
            n
            for n, text in enumerate(texts)
            if tokens[n] > 0 and text and (date := read_date(text)) is not None
            and (date.hour, date.exact, UNAMBIGUOUS if date.day_first is None else date.day_first)
            == (sums.hour[row], sums.exact[row], sums.day_first[row])
        ]  # fmt: skip
        w = tokens[chosen]
        yield len(chosen), w.sum(), (w**2).sum(), w @ theta[chosen], w**2 @ theta[chosen], w**2 @ theta[chosen] ** 2


@given(st.lists(FORMS, min_size=1, max_size=25), st.integers(0, 1000), st.data())
def test_sums__do_not_depend_on_the_division_of_documents(texts, seed, data):
    generator = np.random.default_rng(seed)
    theta = generator.dirichlet(np.ones(3), size=len(texts))
    tokens = generator.integers(0, 9, len(texts)).astype(float)
    cut = data.draw(st.integers(0, len(texts)))
    dates = pa.array(texts, pa.string())
    parts = [
        date_sums(dates[low:high], theta[low:high], tokens[low:high], tokens[low:high] > 0)
        for low, high in ((0, cut), (cut, len(texts)))
    ]
    found, whole = parts[0] + parts[1], date_sums(dates, theta, tokens, tokens > 0)
    assert found.tally == whole.tally
    names = ("documents", "tokens", "squares", "shares", "weighted", "squared")
    for name in ("hour", "exact", "day_first", *names):
        assert np.allclose(getattr(found, name), getattr(whole, name))
    for row, values in enumerate(expected_sums(whole, texts, theta, tokens)):
        for name, value in zip(names, values, strict=True):
            assert np.allclose(getattr(whole, name)[row], value)
    tally = whole.tally
    assert whole.documents.sum() + tally.missing + tally.unreadable == np.count_nonzero(tokens)


ZONES = st.sampled_from(["", "Z", "+09:00", "-0800", "+05:30", "+24:00", " UTC"])
SECONDS = st.sampled_from(["", ":07", ":60", ":07.5", ":07.123456789", ":7"])


@given(
    st.lists(
        FORMS
        | st.builds("{}-{:02}-{:02}{}{:02}:{:02}{}{}".format, st.sampled_from(["1987", "0000", "2024"]), st.integers(0, 13),
                    st.integers(0, 32), st.sampled_from("T -"), st.integers(0, 25), st.integers(0, 61), SECONDS, ZONES)
        | st.sampled_from(["NA", "none", "1700000000", "5.3.21", "2024-02-30"]),
        max_size=30,
    )
)  # fmt: skip
def test_dates_at_ingest__are_counted_as_each_is_read(texts):
    found = counted_dates(pa.array(texts, pa.string()))
    read = [None if is_missing(text) else read_date(text) for text in texts]
    expected = tally_of(texts, read, [1] * len(texts))
    assert replace(found, examples=()) == replace(expected, examples=())
    unreadable = {text for text, date in zip(texts, read, strict=True) if date is None and not is_missing(text)}
    days = {text[:10] for text in unreadable}
    assert all(any(text.startswith(example) for text in unreadable) for example in found.examples)
    assert min(len(days), MAX_EXAMPLES) <= len(set(found.examples)) == len(found.examples) <= MAX_EXAMPLES


@given(st.dates(datetime.date(1000, 1, 1)), st.sampled_from("/.-"), st.sampled_from(["", " 10:30", ", 10:30:05"]))
def test_ambiguous_dates__are_read_in_the_given_order(day, between, time):
    texts = [
        f"{day.day}{between}{day.month}{between}{day.year}{time}",
        f"{day.month}{between}{day.day}{between}{day.year}{time}",
    ]
    for text, order in zip(texts, ("day", "month"), strict=True):
        written = ordered_dates(pa.array([text, None, "?", "1987"]), order).to_pylist()
        found = read_date(written[0])
        assert written[1:] == [None, "?", "1987"]
        assert (moment(found.hour).date(), found.day_first) == (day, None)
        assert written[0].endswith(time)


@given(st.lists(st.integers(0, 2_000_000), min_size=1, max_size=60), st.integers(1, 100))
def test_many_dates__are_coarsened_until_they_are_few(hours, cells):
    texts = pa.array([f"{moment(hour):%Y-%m-%dT%H}:00" for hour in hours])
    ones = np.ones(len(hours))
    whole = date_sums(texts, ones[:, None], ones, ones > 0)
    found = bounded(whole, cells)
    assert found.hour.size <= cells or set(found.exact.tolist()) == {YEAR}
    assert found.documents.sum() == found.shares.sum() == len(hours)
    again = bounded(bounded(date_sums(texts[:1], ones[:1, None], ones[:1], ones[:1] > 0), cells) + whole, cells)
    assert set(again.hour.tolist()) == set(found.hour.tolist())


def test_units__begin_as_in_the_calendar():
    at = np.array([hours_of(datetime.datetime(1969, 11, 30, 23)), hours_of(datetime.datetime(2020, 2, 29, 5))])
    for unit, expected in ((DAY, ["1969-11-30", "2020-02-29"]), (MONTH, ["1969-11-01", "2020-02-01"]), (YEAR, ["1969-01-01", "2020-01-01"])):  # fmt: skip
        assert [moment(number).date().isoformat() for number in floored(at, unit)] == expected


@pytest.mark.parametrize(
    ("further", "expected", "unit"),
    [(["25/04/1987"], "1987-04-03", DAY), (["04/25/1987"], "1987-03-04", DAY), ([], "1987-01-01", YEAR),
     (["25/04/1987", "04/25/1987"], "1987-01-01", YEAR)],
)  # fmt: skip
def test_the_order_of_day_and_month__follows_from_other_dates(further, expected, unit):
    texts = pa.array(["03/04/1987", *further])
    ones = np.ones(len(texts))
    found = resolved(date_sums(texts, ones[:, None], ones, ones > 0))
    assert (hours_of(datetime.datetime.fromisoformat(expected)), unit) in zip(
        found.hour.tolist(), found.exact.tolist(), strict=True
    )
    assert (found.day_first == UNAMBIGUOUS).all()
    assert found.documents.sum() == len(texts)


def test_years__are_never_ambiguous():
    texts = pa.array(["03/04/1987", "05/06/1987"])
    ones = np.ones(2)
    found = coarsened(date_sums(texts, ones[:, None], ones, ones > 0), YEAR)
    assert found.day_first.tolist() == [UNAMBIGUOUS]
    assert found.documents.tolist() == [2]
