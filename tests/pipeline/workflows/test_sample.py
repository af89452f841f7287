import json

import pytest

from collapsium.pipeline import sample_texts, write_sample_texts
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.workflows.demo.sample import MIN_WORDS, SUBJECTS
from collapsium.storage.errors import OccupiedError

pytestmark = pytest.mark.xdist_group("sample")  # what these tests look at is made once


@pytest.fixture(scope="module")
def texts():
    return sample_texts()


def test_sample_texts__are_labelled_and_in_order(texts):
    ids = [text["id"] for text in texts]
    assert len(texts) > 700
    assert ids == sorted(set(ids))
    assert {text["subject"] for text in texts} == {*SUBJECTS}
    assert all(text["package"] in SUBJECTS[text["subject"]].split() for text in texts)
    assert all(text["module"].partition(".")[0] == text["package"] for text in texts)
    assert all(len(text["text"].split()) >= MIN_WORDS for text in texts)


def test_sample_texts__of_a_class_have_those_of_its_methods(texts):
    texts = {text["id"]: text for text in texts}
    assert texts["threading.Thread"]["text"].startswith("A class that represents a thread of control.")
    assert "Wait until the thread terminates." in texts["threading.Thread"]["text"].split("\n\n")
    assert "threading.Thread.join" not in texts


def test_sample_texts__are_the_same_each_time_and_written_as_json_lines(texts, tmp_path, capsys):
    out = tmp_path / "texts.jsonl"
    assert main(["sample-texts", str(out)]) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert lines == texts
    assert capsys.readouterr().out == f"{out}: {len(lines):,} texts\n"
    with pytest.raises(OccupiedError, match="exists already"):
        write_sample_texts(out)
