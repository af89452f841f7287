"""The guides to deployment: their Python and their job are run on a small sample, and the files that they name are there."""

import json
import re
import subprocess
import sys
import tarfile
import tomllib

from tests.deploy.reading import DEPLOY, GUIDES, ROOT, blocks

INDEX = (DEPLOY / "DEPLOY.md").read_text(encoding="utf-8")
SGML = """<!DOCTYPE lewis SYSTEM "lewis.dtd">
<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" CGISPLIT="TRAINING-SET" OLDID="5544" NEWID="{number}">
<DATE>{date}</DATE>
<TOPICS><D>cocoa</D><D>coffee</D></TOPICS>
<PLACES><D>el-salvador</D></PLACES>
<PEOPLE><D>nobody</D></PEOPLE>
<TEXT>&#2;
<TITLE>A &lt;B> &amp; C</TITLE>
<BODY>Showers
continued.</BODY></TEXT>
</REUTERS>
"""


def test_sgml__becomes_json_lines(tmp_path):
    (program,) = [block for block in blocks("python") if "sys.argv" in block]
    (tmp_path / "sgml.py").write_text(program)
    for name, number, date in (
        ("reut2-000.sgm", 7, " 2-MAR-1987 08:22:57.75"),
        ("reut2-021.sgm", 9, "19-OCT-1987 23:59:59.99"),
    ):
        (tmp_path / name).write_text(SGML.format(number=number, date=date), encoding="latin-1")
    (tmp_path / "README.txt").write_text("none")
    with tarfile.open(tmp_path / "archive.tar.gz", "w:gz") as archive:
        for path in (*sorted(tmp_path.glob("*.sgm")), tmp_path / "README.txt"):
            archive.add(path, path.name)
    subprocess.run([sys.executable, "sgml.py", "archive.tar.gz"], cwd=tmp_path, check=True)
    lines = [json.loads((tmp_path / f"news-{day}.jsonl").read_text()) for day in (1, 2)]
    assert lines[0] == {
        "id": "7",
        "date": "1987-03-02",
        "title": "A <B> & C",
        "text": "A <B> & C\nShowers\ncontinued.",
        "topics": ["cocoa", "coffee"],
        "places": ["el-salvador"],
    }
    assert (lines[1]["id"], lines[1]["date"]) == ("9", "1987-10-19")


def test_job__is_toml_with_the_tables_of_a_job():
    (job,) = blocks("toml")
    assert set(tomllib.loads(job)) == {"batch", "ingest", "fit", "cluster"}


def test_files_that_are_named__exist():
    text = "\n".join(guide.read_text(encoding="utf-8") for guide in GUIDES)
    named = set(re.findall(r"\bdeploy/[\w./-]+[\w]", text))
    assert len(named) > 5
    assert not [name for name in named if not (ROOT / name).exists()]
    column = {name for line in INDEX.splitlines() if line.startswith("| [") for name in re.findall("`([^`]+)`", line)}
    assert len(column) > 8
    assert not [name for name in column if not (DEPLOY / name).exists()]


def test_index__links_to_the_guides():
    links = {link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", INDEX)}
    assert {(DEPLOY / link).resolve() for link in links} == {guide.resolve() for guide in GUIDES}


def test_links__lead_to_headings():
    for guide in GUIDES:
        text = guide.read_text(encoding="utf-8")
        for name, heading in re.findall(r"\]\(([\w.]*)#([\w-]+)\)", text):
            page = (guide.parent / name if name else guide).read_text(encoding="utf-8")
            lines = [line.lstrip("# ") for line in page.splitlines() if line.startswith("#")]
            headings = {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}
            assert heading in headings, (guide.name, name, heading)
