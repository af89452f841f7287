import json

import pytest

from collapsium.pipeline import sample_texts, write_sample_texts
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.workflows.sample_texts import MIN_WORDS
from collapsium.storage.errors import OccupiedError


@pytest.fixture(scope="module")
def texts():
    return sample_texts()


def test_sample_texts__are_the_paragraphs_of_all_addresses_in_order(texts):
    assert len({text["id"] for text in texts}) == len(texts)
    assert len({text["address"] for text in texts}) == 124
    annual = [text["year"] for text in texts if text["kind"] == "annual"]
    inaugural = [text["year"] for text in texts if text["kind"] == "inaugural"]
    assert (annual, min(annual), max(annual)) == (sorted(annual), 1945, 2006)
    assert (inaugural, min(inaugural), max(inaugural)) == (sorted(inaugural), 1789, 2021)


def test_sample_texts__are_labelled(texts):
    texts = {text["id"]: text for text in texts}
    address = [text for text in texts.values() if text["address"] == "1961-Kennedy-inaugural"]
    assert {(text["president"], text["party"], text["year"]) for text in address} == {
        ("John F. Kennedy", "Democratic", 1961)
    }
    (asked,) = [text for text in address if "ask not what your country can do for you" in text["text"]]
    assert asked["title"] == "John F. Kennedy, 1961"


def test_sample_texts__are_long_enough_for_a_topic_and_contain_every_line(texts):
    assert min(len(text["text"].split()) for text in texts) >= MIN_WORDS
    first = next(text["text"] for text in texts if text["address"] == "1945-Truman")
    assert first.startswith("PRESIDENT HARRY S. TRUMAN'S ADDRESS BEFORE A JOINT SESSION OF THE CONGRESS April 16, 1945")
    assert sum(len(text["text"].split()) for text in texts) == 487_325


def test_sample_texts__are_deterministic_and_written_as_json_lines(texts, tmp_path, capsys):
    out = tmp_path / "texts.jsonl"
    assert main(["sample-texts", str(out)]) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert lines == texts
    assert capsys.readouterr().out == f"{out}: {len(lines):,} texts\n"
    with pytest.raises(OccupiedError, match="exists already"):
        write_sample_texts(out)
