import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collapsium.storage.corpus.list_columns import segment_bounds, segment_counts, segment_lists
from collapsium.storage.corpus.parquet import require_segments
from collapsium.storage.errors import DamagedError, OptionError
from collapsium.storage.readers.texts.segment import ABBREVIATIONS, BEFORE_NUMBERS, cutter_of

PIECES = [
    "The cat", "sat", "on it", ".", "!", "?", "...", " ", "  ", "\n", "\r\n", "\r", "\n\n", "\n \t\n", "\f", "\u2028", "CH 1",
    "see CH", "J.", "e.g.", "et al.", "Fig. 3", "No. 5", "no.", "1.", "2.3.", "\u201cGo!\u201d", "(see it.)", "\u00c9t\u00e9", "\u4e2d\u6587",
    "\u05d0\u05d1", "U.S.", "\u2026", ".)", "x",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=30).map("".join) | st.text(max_size=60)


def dense(text):
    return re.sub(r"\s", "", text)


@pytest.mark.parametrize("how", ["paragraphs", "sentences", "lines", "headings:CH", "headings:.*", "column"])
@given(text=TEXTS)
@example(text="\r\n\r\n")
def test_segments__preserve_everything_but_white_space_in_order(how, text):
    found = cutter_of(how)(text)
    assert dense("".join(found)) == dense(text)
    assert all(dense(segment) for segment in found)
    place = 0
    for segment in found:  # each segment follows the preceding one in the text, with only white space in between
        at = text.index(segment, place)
        assert not dense(text[place:at])
        place = at + len(segment)
    assert bool(found) == bool(dense(text))


def lines_of(text):
    return re.split(r"\r\n|\r|\n", text)


@given(TEXTS)
def test_lines_and_paragraphs__are_separated_by_line_ends_and_blank_lines(text):
    assert list(map(dense, cutter_of("lines")(text))) == [dense(line) for line in lines_of(text) if dense(line)]
    expected = [""]
    for line in lines_of(text):
        if dense(line):
            expected[-1] += dense(line)
        elif expected[-1]:
            expected.append("")
    assert list(map(dense, cutter_of("paragraphs")(text))) == [part for part in expected if part]


@given(TEXTS)
def test_headings__begin_segments_and_the_text_before_them_is_one(text):
    expected = [""]
    for line in lines_of(text):
        if line.startswith("CH"):
            expected.append("")
        expected[-1] += dense(line)
    assert list(map(dense, cutter_of("headings:CH")(text))) == [part for part in expected if part]


@given(TEXTS, TEXTS)
def test_sentences__end_at_blank_lines(first, second):
    cut = cutter_of("sentences")
    assert list(map(dense, cut(f"{first}\n\n{second}"))) == [
        dense(part) for text in (first, second) for part in cut(text)
    ]
    assert [dense(part) for whole in cutter_of("paragraphs")(first) for part in cut(whole)] == list(
        map(dense, cut(first))
    )


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("It works. Then it ends.", 2),
        ("It works? Yes! It does", 3),
        ("It works. then it goes on", 1),
        ("He said \u201cGo!\u201d Then she went.", 2),
        ('He said "Go!" and went.', 1),
        ("(It works.) It ends.", 2),
        ("It works.[1] It ends.", 1),  # a mark between the stop and the white space
        ("It works. (It ends.)", 2),
        ("In 1987. 12 of them left.", 2),
        ("As J. R. Smith says, the U.S. Navy left.", 1),
        ("Use e.g. Python, i.e. What we have.", 1),
        ("As Smith et al. Said, see Fig. A and Eq. 3.", 1),
        ("We took No. 5 on Sept. 9.", 1),
        ("He said no. Then he left in Sept. They stayed.", 3),
        ("1. Introduction. 2.3. Methods are here.", 2),
        ("Wait... Then it ends\u2026 Really.", 3),
        ("Version 2.0 is out.It runs", 1),
        ("One\nsentence on\r\ntwo lines. And another.", 2),
        ("\u00c9t\u00e9. \u00c9t\u00e9. \u05d0\u05d1. \u05d0\u05d1.", 4),
        ("", 0),
        (" \n\n ", 0),
    ],
)
def test_sentences__end_where_a_reader_would_end_them(text, count):
    assert len(cutter_of("sentences")(text)) == count


def test_abbreviations__are_in_lower_case_and_of_a_single_kind():
    assert not ABBREVIATIONS & BEFORE_NUMBERS
    assert all(re.fullmatch("[a-z]{1,10}", word) for word in ABBREVIATIONS | BEFORE_NUMBERS)


@pytest.mark.parametrize("how", ["paragraphs", "sentences", "lines", "headings:Ch"])
@pytest.mark.parametrize(
    "text",
    ["Ch one. " * 30_000, "A b.\n\n" * 30_000, ". " * 100_000, ".)" * 100_000, "\n " * 100_000, "1. " * 100_000],
)
def test_huge_texts__are_cut_in_linear_time(how, text):
    """A rule that searched back to the beginning of the text would take hours."""
    assert dense("".join(cutter_of(how)(text))) == dense(text)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("sentence", r"`segments` sentence: there is no such way to cut texts \(did you mean 'sentences'\?\)"),
        ("heading:x", r"did you mean 'headings:REGEX'"),
        ("words", r"known: column, headings:REGEX, lines, paragraphs, sentences"),
        ("headings", "expected a regular expression, such as headings:'CHAPTER"),
        ("headings:", "expected a regular expression, such as headings:'CHAPTER"),
        ("headings:(", r"`segments` headings:\(: expected a regular expression \(missing \)"),
        ("headings:a{99999999999}", "expected a regular expression"),
        ("", "there is no such way"),
    ],
)
def test_an_unknown_field__is_reported_with_the_nearest_name(how, message):
    with pytest.raises(OptionError, match=message):
        cutter_of(how)


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), max_size=6))
def test_lists_of_lengths__are_read_as_written(lists):
    counts = np.array(list(map(len, lists)), dtype=np.int64)
    column = segment_lists(counts, np.array([length for lengths in lists for length in lengths], dtype=np.int64))
    assert column.to_pylist() == lists
    assert segment_counts(column).tolist() == counts.tolist()
    assert np.diff(segment_bounds(column)).tolist() == [length for lengths in lists for length in lengths]
    offsets = np.cumsum([0, *map(sum, lists)])
    require_segments(column, offsets, "x")
    nulls = pa.array([lengths or None for lengths in lists], column.type)
    require_segments(nulls, offsets, "x")
    assert segment_counts(nulls).tolist() == counts.tolist()
    part = column.slice(len(lists) // 2)
    require_segments(part, offsets[len(lists) // 2 :] - offsets[len(lists) // 2], "x")
    if lists:
        with pytest.raises(DamagedError, match="segments"):
            require_segments(column, offsets + (np.arange(offsets.size) > 0), "x")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1, -1, 2]], pa.list_(pa.int32())),
        pa.array([[2, None]], pa.list_(pa.int32())),
        pa.array([["2"]], pa.list_(pa.string())),
        pa.array([2], pa.int32()),
        pa.array([None], pa.list_(pa.int32())),
        pa.array([[3, -1]], pa.list_(pa.int32())),
    ],
)
def test_columns_of_another_type__are_refused(column):
    with pytest.raises(DamagedError, match="'segments'"):
        require_segments(column, np.array([0, 2]), "x")
