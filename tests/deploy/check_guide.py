"""DEPLOY.md: its lines of Python and its job are run on a small sample, and the files and commands that it names are there."""

import json
import re
import subprocess
import sys
import tarfile
import tomllib

from tests.deploy.reading import DEPLOY, ROOT, blocks

TEXT = (DEPLOY / "DEPLOY.md").read_text(encoding="utf-8")
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
    (program,) = blocks("python")
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


def test_files__that_are_named_are_there():
    named = set(re.findall(r"\bdeploy/[\w./-]+[\w]", TEXT))
    assert len(named) > 5
    assert not [name for name in named if not (ROOT / name).exists()]
    column = {name for line in TEXT.splitlines() if line.startswith("| [") for name in re.findall("`([^`]+)`", line)}
    assert not [name for name in column if not (DEPLOY / name).exists()]


def test_links__lead_to_headings():
    headings = {line.lstrip("# ").lower().replace(" ", "-") for line in TEXT.splitlines() if line.startswith("#")}
    assert set(re.findall(r"\]\(#([\w-]+)\)", TEXT)) <= headings
