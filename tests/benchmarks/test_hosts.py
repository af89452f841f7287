"""The benchmark of hosts: its options, the evaluation of the switch's counts, and its table."""

import math

import pytest

from tests.benchmarks.hosts import __main__ as bench
from tests.benchmarks.hosts import network, records
from tests.benchmarks.hosts.records import Cell

SETTINGS = {"words": 250, "topics": 4}
"""Rows of 4000 bytes."""


def record_of(cell, seconds, moved=(0, 0), bits="same", iterations=20):
    """Return a record as `run` writes it, with equal iterations."""
    rows = [
        {"iteration": number, "elapsed": 3.0 + seconds * number, "score": -7.0, "out": moved[0], "in": moved[1]}
        for number in range(1, iterations + 1)
    ]
    return {"cell": vars(cell), "settings": SETTINGS, "iterations": rows, "driving": 0.02, "bits": bits}


def by_name(*pairs):
    return {cell.name: record_of(cell, *fields) for cell, *fields in pairs}


def test_busiest__sums_the_traffic_of_each_host_in_both_directions():
    before = {("a", "b"): 10, ("b", "a"): 5}
    after = {("a", "b"): 110, ("a", "c"): 30, ("b", "a"): 25, ("c", "b"): 70}
    assert records.busiest(before, after) == {"out": 130, "in": 170}
    assert records.busiest(after, after) == {"out": 0, "in": 0}


def test_traffic__is_a_multiple_of_the_rows_bytes():
    record = record_of(Cell(2, 0.2, 100.0), 1.0, moved=(2000, 8000))
    assert records.traffic(record) == {"out": (0.5, 0.5, 0.5), "in": (2.0, 2.0, 2.0)}
    short = record_of(Cell(2, 0.2, 100.0), 1.0, iterations=5)
    assert all(math.isnan(value) for value in records.traffic(short)["out"][1:])


def test_table__compares_with_one_host_and_reports_equal_bits():
    text, same = records.table(by_name((Cell(0, 0.2), 4.5), (Cell(1, 0.2, 100.0), 4.0), (Cell(8, 0.2, 100.0), 0.5)))
    assert same
    assert "| 8 hosts | 0.2 | 100 | 0.500 | 8.00 |" in text
    assert "| threads | 0.2 |  | 4.500 |  |" in text
    assert "All 3 fits have the same model" in text


def test_table__names_fits_whose_bits_differ_and_failed_fits():
    found = by_name((Cell(1, 0.2, 100.0), 4.0), (Cell(2, 0.2, 100.0), 2.0, (0, 0), "other"))
    found["8-hosts"] = {**record_of(Cell(8, 0.2, 100.0), 1.0), "error": "took more than 9 s", "bits": ""}
    text, same = records.table(found)
    assert not same
    assert "The fits differ in their bits: 2-hosts-0.2-cores-100-mbit; 1-hosts-0.2-cores-100-mbit." in text
    assert "8-hosts: took more than 9 s" in text


def test_records__are_read_as_they_were_written(tmp_path):
    cell, result = Cell(3, 0.5, 10.0, loses=True), {"iterations": [], "bits": "b"}
    written = records.write(tmp_path, cell, SETTINGS, result)
    assert records.read(tmp_path) == {"3-hosts-0.5-cores-10-mbit-loss": written}
    assert Cell(**written["cell"]) == cell


def test_cells__begin_with_threads_and_end_with_a_lost_host():
    cells = bench.cells_of(bench.parser_of().parse_args(["folder"]))
    assert cells[0] == Cell(0, 1.0)
    assert cells[-1] == Cell(4, 0.2, 1000.0, loses=True)
    assert Cell(16, 0.1, 100.0) in cells
    assert len({cell.name for cell in cells}) == len(cells)


@pytest.mark.parametrize("text", ["8", "8x", "0x0.2", "8x0.2;2x0.1", "axb"])
def test_malformed_hosts__are_refused(text, capsys):
    with pytest.raises(SystemExit):
        bench.parser_of().parse_args(["folder", "--hosts", text])
    assert "expected HOSTSxCORES" in capsys.readouterr().err


def test_the_benchmark__is_skipped_with_a_reason(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(network.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(network.sys, "platform", "linux")
    assert bench.main([str(tmp_path / "bench")]) == 0
    assert capsys.readouterr().out == "bench-hosts is skipped: network namespaces and control groups need root\n"
    assert not (tmp_path / "bench").exists()
