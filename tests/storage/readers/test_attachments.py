import base64
import binascii

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.readers.texts.gathering import without_attachments

BEFORE = "From: somebody\nSubject: a picture\n\nHere it is, as promised:\n\n"
AFTER = "\n\nRegards,\nSomebody"


def uuencoded(data, backtick=True, first="begin 644 ship.gif\n", last="`\nend\n"):
    lines = [binascii.b2a_uu(data[place : place + 45], backtick=backtick).decode() for place in range(0, len(data), 45)]
    return first + "".join(lines) + last


def base64_lines(data):
    return base64.encodebytes(data).decode()


random_bytes = st.binary(min_size=400, max_size=1500)


@given(
    random_bytes,
    st.booleans(),
    st.sampled_from(["begin 644 ship.gif\n", ""]),
    st.sampled_from(["`\nend\n", " \nend\n", ""]),
)
def test_uuencoded_files__are_left_out_and_counted(data, backtick, first, last):
    text, removed = without_attachments(BEFORE + uuencoded(data, backtick, first, last) + AFTER)
    assert (text.replace("\n", ""), removed) == ((BEFORE + AFTER).replace("\n", ""), 1)


def test_a_short_uuencoded_file__is_recognised_by_its_first_and_last_line():
    text, removed = without_attachments(BEFORE + uuencoded(b"Cat") + AFTER)
    assert (text, removed) == (BEFORE + AFTER, 1)


@given(st.binary(min_size=400, max_size=1500), st.sampled_from(["\n", "\r\n"]))
def test_base64__is_left_out_and_counted(data, line_end):
    data = bytes(range(256)) + data
    text, removed = without_attachments((BEFORE + base64_lines(data) + AFTER).replace("\n", line_end))
    assert (text.replace(line_end, "\n"), removed) == (BEFORE + AFTER, 1)


def test_base64_in_one_line_and_in_data_urls__is_left_out():
    data = base64.b64encode(bytes(range(256))).decode()
    assert without_attachments(f"{BEFORE}{data}{AFTER}") == (f"{BEFORE}{AFTER[1:]}", 1)
    assert without_attachments(f'see <img src="data:image/png;base64,{data}"> here') == ('see <img src=""> here', 1)


def test_yenc__is_left_out_up_to_its_last_line_or_the_end_of_the_text():
    body = "=ybegin line=128 size=20 name=ship.gif\n)*+,-./0123\u00e9\n=yend size=20\n"
    assert without_attachments(BEFORE + body + AFTER) == (BEFORE + AFTER, 1)
    assert without_attachments(BEFORE + body.replace("=yend", "yend")) == (BEFORE.removesuffix("\n"), 1)


@pytest.mark.parametrize(
    "text",
    [
        BEFORE + AFTER,
        "begin 644 of the list\nand go on\nend\n",
        "MEN WALKED ON THE MOON IN 1969, AND CAME BACK TO EARTH SAFELY\n" * 2,
        "\n".join(["MKVLAAGIVGLCAKAYLEHGDNPVTLLDRDPTQAVNAELAGKHYVVTAGDLSKTEDVEAL"] * 9),  # a protein sequence
        "\n".join(["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"] * 9),  # digests
        "https://example.org/a/very/long/address/that/stands/alone/on/its/line/with/Names/and/2024",
        "Donaudampfschifffahrtselektrizitaetenhauptbetriebswerkbauunterbeamtengesellschaft1",
    ],
)
def test_texts_without_attachments__are_unchanged(text):
    assert without_attachments(text) == (text, 0)


@given(
    st.lists(st.sampled_from([*"Mabcd 1`\n\r=", "begin 644 x\n", "end\n", "=ybegin ", "=yend", "M" * 61, "aB1+" * 15]))
)
def test_any_text__neither_grows_nor_fails(parts):
    text = "".join(parts)
    left, removed = without_attachments(text)
    assert len(left) <= len(text)
    assert left == text or removed
