"""Figures of the README and of the page of results are those that were measured."""

import re
from pathlib import Path

import pytest

from tests.benchmarks.results import report
from tests.benchmarks.shapes.records import read

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w.]*\w)")
BENCHMARKS = re.compile(r"\]\((docs/benchmarks/\w+\.md)\)")
NOT_MEASURED = {
    "0", "64",  # the default seed, and x86-64
    "95",  # of intervals, by definition
    "50", "750",  # packages and megabytes of an installation, by pip
}  # fmt: skip


def claims():
    """The bullets of the README that have numbers, without code and addresses."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    sections = re.search(r"^## Why Collapsium\n(.*?)^\| your question.*?^## Limits\n(.*?)^## ", text, re.M | re.S)
    bullets = [bullet for section in sections.groups() for bullet in re.split(r"^\* ", section, flags=re.M)]
    return [(bullet, NUMBER.findall(re.sub(r"`[^`]*`|\]\([^)]*\)", "", bullet))) for bullet in bullets]


def test_the_readme__cites_a_page_for_each_number_which_the_page_has():
    checked = 0
    for bullet, numbers in claims():
        measured = [number for number in numbers if number not in NOT_MEASURED]
        if not measured:
            continue
        pages = BENCHMARKS.findall(bullet)
        assert pages, f"no page of benchmarks is named: {bullet}"
        text = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
        for number in measured:
            assert re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d]|[.,]\d)", text), (
                f"{pages}: {number} is not there: {bullet}"
            )
            checked += 1
    assert checked > 5


@pytest.mark.parametrize("page", ["docs/benchmarks/index.md", "docs/benchmarks/shapes.md"])
def test_the_tables_of_pages__match_the_file_of_results(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert report.MARKED.search(text)
    assert report.filled(text, read(ROOT / report.PUBLISHED)) == text


def test_the_page_of_results__is_short():
    assert len(re.findall(r"[^\s|]+", (ROOT / "docs/benchmarks/index.md").read_text(encoding="utf-8"))) <= 1500
