import json

import pytest

from collapsium.pipeline import Model, fit, ingest, report, topics
from collapsium.storage.errors import OptionError
from tests.conformance import OptionsConformance, references  # noqa: F401 - fixture


class TestLabeledLDA(OptionsConformance):
    family = "labeled-lda"
    matrix = ({},)
    labelled, word_prior = True, {"eta": 0.1}
    # On a shard, the family is partially-labeled-lda with one topic per label, for which these tests run.
    test_bits__do_not_depend_on_the_executor = None
    test_returning_to_any_checkpoint__gives_the_same_bits = None
    test_lost_work__is_repeated_with_the_same_bits = None

    def sized(self, topics):
        return {}


def test_report__names_topics_by_their_labels(tmp_path):
    rows = [{"id": f"d{n}", "text": "aa bb" if n % 2 else "cc dd", "tag": "<b>" if n % 2 else "wet"} for n in range(8)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ingest(tmp_path / "x.jsonl", tmp_path / "c", labels=["tag"], scheduler="serial")
    fit(tmp_path / "c", tmp_path / "run", family="labeled-lda", iterations=3, scheduler="serial")
    report(tmp_path / "run", tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text()
    for title in ("wet", "&lt;b&gt;"):
        assert f"<strong>{title}:</strong>" in page
    with pytest.raises(OptionError, match="expected a whole number, 1 or more, found 'a'"):
        Model(tmp_path / "run").topics("a")
    for words in (0, True, 1.5, None):
        with pytest.raises(OptionError, match="words: expected a whole number"):
            topics(tmp_path / "run", words)
