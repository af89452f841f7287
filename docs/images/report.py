"""Make the README's picture, its quick start's report in headless Chromium: `python -m docs.images.report`."""

import tempfile
from pathlib import Path

from collapsium.pipeline import fit, ingest, report, split, write_sample_texts
from tests.pages.browser import chromium, visit

OUT = Path(__file__).with_suffix(".png")

with tempfile.TemporaryDirectory() as name, chromium() as browser:
    folder = Path(name)
    write_sample_texts(folder / "texts.jsonl")
    reading = {"title": "title", "labels": ["subject"], "min_documents": 3, "max_document_share": 0.2}
    ingest(folder / "texts.jsonl", folder / "corpus", segments="paragraphs", **reading)
    split(folder / "corpus", folder / "train", folder / "heldout")
    fit(folder / "train", folder / "run", family="hdp", topics=40, iterations=100, heldout=folder / "heldout")
    report(folder / "run", folder / "report.html", texts=folder / "texts.jsonl")
    with visit(browser, folder / "report.html", width=1200, height=900) as seen:
        seen.page.screenshot(path=OUT)
        seen.require_clean()
print(f"{OUT}: {OUT.stat().st_size:,} bytes")
