"""Sizes of memory and disk, as users write and read them."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from collapsium.storage.errors import OptionError
from collapsium.storage.units import parse_size, size


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1", 1),
        (12, 12),
        ("750MB", 750_000_000),
        ("750 mb", 750_000_000),
        (" 1.5GB ", 1_500_000_000),
        ("1.5g", 1_500_000_000),
        ("2GiB", 2 * 2**30),
        ("2 gi", 2 * 2**30),
        ("3KIB", 3072),
        ("3k", 3000),
        ("7B", 7),
        ("1e3", 1000),
        (".5TB", 500_000_000_000),
        ("1TiB", 2**40),
        ("1MiB", 2**20),
    ],
)
def test_parse_size__reads_numbers_with_units(text, count):
    found = parse_size(text)
    assert found == count
    assert type(found) is int


@pytest.mark.parametrize(
    "text",
    ["", " ", "B", "MB", "GiB", "much", "12 apples", "1,5GB", "1.5.GB", "5PB", "5BB", "5BMB", "MB5", "0x10", "GB 3"],
)  # fmt: skip
def test_parse_size__refuses_texts_that_are_not_sizes(text):
    with pytest.raises(OptionError) as raised:
        parse_size(text)
    assert str(raised.value) == f"memory: expected a size such as 750MB or 1.5GB, found {text!r}"


@pytest.mark.parametrize("text", [0, -1, "0", "-5MB", "0GB", "nan", "inf", "-inf", "1e400", "nanMB"])
def test_parse_size__refuses_sizes_that_are_not_positive_and_finite(text):
    with pytest.raises(OptionError, match="--disk: expected a size above zero"):
        parse_size(text, "--disk")


@given(st.integers(1, 10**17))
def test_printed_sizes__are_short_and_parsed_as_about_the_same(count):
    written = size(count)
    assert len(written) <= 9
    # one decimal below 100 of a unit, none above
    assert parse_size(written) == pytest.approx(count, rel=0.05)
    assert parse_size(written) == pytest.approx(count, rel=0.0051) or float(written.split()[0]) < 10


@given(st.floats(0, 1e17), st.floats(0, 1e17))
def test_printed_sizes__keep_the_order(first, second):
    low, high = sorted((first, second))
    assume(size(low) != "0 B")
    assert parse_size(size(low)) <= parse_size(size(high))


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (1000, "1.0 KB"),
        (99_400, "99.4 KB"),
        (99_600, "100 KB"),
        (999_400, "999 KB"),
        (999_600, "1.0 MB"),
        (2.5e13, "25.0 TB"),
        (2.5e16, "25000 TB"),
    ],
)
def test_printed_sizes__use_the_most_readable_unit(count, text):
    assert size(count) == text
