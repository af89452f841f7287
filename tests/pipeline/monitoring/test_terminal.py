"""Untrusted names neither control a terminal, nor break JSON, nor run as formulas in a spreadsheet."""

import contextlib
import csv
import io
import json
import sys
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import export, fit, infer
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.monitoring.console import LogLines, counting
from collapsium.pipeline.monitoring.live import GuardedConsole
from collapsium.pipeline.monitoring.terminal import GuardedStream, guarded_streams
from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.corpus.writer import CorpusWriter
from collapsium.storage.errors import DamagedError
from collapsium.storage.io.folder import Folder, created
from collapsium.storage.printable import CONTROLS, CsvRows, csv_cell, guarded_note, json_text, printable
from tests.strategies import documents_of

EVIL = "\x1b]0;pwn\x07\x1b[2J\x9b31m\u202e[/x]\r"
FORMULAS = [
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    " =1",
    "＝1",
    "-",
    "--",
    "-inf",
    "\ufeff=1",
]
NUMBERS = ["-1", "+2.5", "-.5e-3", "7", "-0"]
PLAIN = ["word", "don't", "a=b", "1-2", "", "'quoted", "naïve"]

texts = st.text(st.characters(codec=None), max_size=20)


@given(texts)
def test_printable_texts__have_no_control_characters_and_are_otherwise_unchanged(text):
    shown = printable(text)
    assert not CONTROLS.search(shown)
    assert len(shown) == len(text)
    assert printable(shown) == shown
    assert all(
        character == printed
        for character, printed in zip(text, shown, strict=True)
        if character.isprintable() or character in "\t\n"
    )


@given(st.dictionaries(texts, texts | st.integers(), max_size=3))
def test_json__can_be_printed_and_is_read_unchanged(value):
    text = json_text(value)
    assert not CONTROLS.search(text)
    assert json.loads(text) == value


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas__are_escaped_by_an_apostrophe(text):
    assert csv_cell(text) == f"'{text}"
    assert csv_cell(csv_cell(text)) == csv_cell(text)


@pytest.mark.parametrize("text", [*NUMBERS, *PLAIN])
def test_numbers_and_other_texts__are_unchanged(text):
    assert csv_cell(text) == text


def test_rows__have_unchanged_keys_and_escaped_formulas():
    sink = io.StringIO()
    rows = CsvRows(sink, ["id", "number", "words"], "\n")
    rows.writerows([("=1", -2, rows.text("-a b")), ("-3", None, rows.text("a,b")), ("@x", -0.5, rows.text("-5"))])
    written = list(csv.reader(io.StringIO(sink.getvalue())))
    assert written == [["id", "number", "words"], ["=1", "-2", "'-a b"], ["-3", "", "a,b"], ["@x", "-0.5", "-5"]]
    assert rows.guarded == 1
    assert guarded_note(0) == []
    assert "1 word or name begins as a formula does and has an apostrophe in front" in guarded_note(rows.guarded)[0]
    assert "2,000 words and names begin as formulas do" in guarded_note(2000)[0]


def test_printed_errors__have_no_control_characters():
    error = DamagedError(f"x{EVIL}", "expected more", f"column {EVIL}")
    assert not CONTROLS.search(str(error))
    assert "expected more" in str(error)


def test_streams__are_sanitised_while_a_command_runs_in_any_encoding(monkeypatch):
    raw = io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", raw)
    with guarded_streams(), guarded_streams():
        assert isinstance(sys.stdout, GuardedStream)
        assert sys.stdout.raw is raw
        print(f"naïve {EVIL}")
        sys.stdout.writelines(["a\n", "\x1b"])
    assert sys.stdout is raw
    written = raw.buffer.getvalue().decode()
    assert written.startswith("na\\xefve ")
    assert not CONTROLS.search(written)


def test_a_live_console__controls_the_terminal_but_sanitises_texts(monkeypatch):
    sink = io.StringIO()
    sink.isatty = lambda: True
    monkeypatch.setenv("TERM", "xterm")
    console = GuardedConsole(GuardedStream(sink), force_terminal=True, color_system="standard", markup=False)
    console.print(f"text {EVIL}", style="red")
    assert sink.getvalue().startswith("\x1b[31m")
    assert "\x1b]" not in sink.getvalue()
    assert "\x07" not in sink.getvalue()
    monkeypatch.setattr(sys, "stderr", sink)
    with counting(f"reading {EVIL}") as count:
        count(3)
    assert "\x1b]" not in sink.getvalue()
    assert "[/x]" in sink.getvalue()


def test_log_lines__are_json_without_control_characters():
    sink = io.StringIO()
    LogLines(sink, "json").write(f"text {EVIL}", field=EVIL)
    assert not CONTROLS.search(sink.getvalue())
    assert json.loads(sink.getvalue())["field"] == EVIL


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A corpus and a run all of whose names try to control terminals and spreadsheets."""
    place = tmp_path_factory.mktemp("hostile")
    documents = documents_of([{0: 2, 1: 1}, {1: 2}, {0: 1, 2: 3}, {2: 1}], [f"={EVIL}{n}" for n in range(3)] + ["-12"])
    extras = {
        "labels": pa.array([[{"field": f"f{EVIL}", "value": f"+{EVIL}{n % 2}"}] for n in range(4)], LABELS),
        "title": pa.array([f"=t{EVIL}{n}" for n in range(4)]),
        f"n{EVIL}": pa.array([-1.0, 2.0, None, 3.0]),
    }
    with created(Folder(place / "c")) as folder:
        writer = CorpusWriter(folder, 3)
        writer.add(replace(documents, extras=extras))
        writer.finish([f"={EVIL}w", f"-{EVIL}", "-5"])
    fit(place / "c", place / "run", family="labeled-lda", iterations=2, scheduler="serial")
    (place / f"x{EVIL.replace('/', '')}.jsonl").write_text(
        json.dumps({"id": EVIL, "text": "a", EVIL: "b", "title": []})
    )
    return place


@pytest.mark.parametrize(
    "words",
    [
        "info c", "info run", "verify c", "topics run", "topics run --labels", "watch run --once", "evaluate run --coherence c",
        "fit c EVIL --family lda --topics 2 --iterations 1 --scheduler serial", "fit c x --family EVIL", "infer run c c", "EVIL",
        "ingest FILE x", "ingest FILE x --title title", "ingest FILE x --labels EVIL", "info EVIL", "fit c x --family lda --config FILE",
        "predict run c x.csv --field EVIL", "info c --json",
    ],
)  # fmt: skip
def test_commands__print_no_control_characters(hostile, words, capsys, monkeypatch):
    monkeypatch.chdir(hostile)
    file = next(path.name for path in hostile.iterdir() if path.suffix == ".jsonl")
    with contextlib.suppress(SystemExit):  # exit code of wrong usage
        main([{"EVIL": EVIL.replace("/", ""), "FILE": file}.get(word, word) for word in words.split()])
    captured = capsys.readouterr()
    assert captured.out + captured.err
    assert not CONTROLS.search(captured.out + captured.err)
    assert "(this is a bug" not in captured.err


@pytest.mark.parametrize("name", ["x.csv", "dense.csv", "x.npy", "export"])
def test_tables__have_unchanged_ids_and_no_formulas_among_words(hostile, tmp_path, name):
    out = tmp_path / name
    if name == "export":
        export(hostile / "run", out, to="csv")
        paths = sorted(out.iterdir())
    else:
        infer(hostile / "run", hostile / "c", out, dense=name == "dense.csv", scheduler="serial")
        paths = [tmp_path / "x.ids.csv" if name == "x.npy" else out]
    rows = [row for path in paths for row in csv.DictReader(path.open(newline=""))]
    ids = [row.get("id", row.get("document")) for row in rows]
    assert set(filter(None, ids)) == {*(f"={EVIL}{n}" for n in range(3)), "-12"}
    words = [row[name] for row in rows for name in ("word", "words") if name in row]
    assert all(csv_cell(cell) == cell for cell in words)
    if name == "export":
        assert "-5" in words
        assert f"'={EVIL}w" in words
        # the topics are labels
        assert {row["title"] for row in rows if "title" in row} == {f"+{EVIL}{n}" for n in range(2)}
