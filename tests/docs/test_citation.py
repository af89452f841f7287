"""The citation file has the version and authors of the package, and names the papers of the models."""

import tomllib
from importlib.metadata import version
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_citation__is_of_this_version_and_names_five_papers():
    record = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert record["cff-version"] == "1.2.0"
    assert record["version"] == version("collapsium")
    assert {"message", "title"} <= set(record)
    distribution = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [cited_name(author) for author in record["authors"]] == [
        person["name"] for person in distribution["authors"]
    ]
    assert record.get("repository-code") == distribution.get("urls", {}).get("Repository")
    assert len(record["references"]) == 5
    assert all({"type", "title", "authors", "year"} <= set(paper) for paper in record["references"])


def cited_name(author: dict[str, str]) -> str:
    """Return the full name of a person or a group in the citation file."""
    return author["name"] if "name" in author else f"{author['given-names']} {author['family-names']}"
