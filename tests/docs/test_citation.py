"""The citation file is of the version that is installed, and names the papers of the models."""

from importlib.metadata import version
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_citation__is_of_this_version_and_names_five_papers():
    record = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert record["cff-version"] == "1.2.0"
    assert record["version"] == version("collapsium")
    assert {"message", "title", "authors"} <= set(record)
    assert len(record["references"]) == 5
    assert all({"type", "title", "authors", "year"} <= set(paper) for paper in record["references"])
