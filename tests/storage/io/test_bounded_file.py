"""Parquet files are read in the caller's thread, and opened once."""

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collapsium.storage.io.parquet import BoundedFile

READER = """
import os, sys
from pathlib import Path
import pyarrow as pa
from collapsium.storage.io.parquet import BoundedFile

def threads():
    names = [Path("/proc/self/task", thread, "comm").read_text() for thread in os.listdir("/proc/self/task")]
    return sum("jemalloc" not in name for name in names)  # of the allocator, which knows nothing of Python

before = threads()
with open(sys.argv[1], "rb") as file:
    parquet = BoundedFile(file)
    rows = parquet.table().num_rows if sys.argv[2] == "table" else sum(b.num_rows for b in parquet.batches())
print(rows, threads() - before)
"""


@pytest.mark.parametrize("how", ["table", "batches"])
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")
def test_a_parquet_file__is_read_without_threads_of_arrow(how, tmp_path):
    """A thread that releases Python's bytes while the interpreter exits would abort the process."""
    pq.write_table(pa.table({"n": range(1000), "words": [[1, 2]] * 1000}), tmp_path / "file", row_group_size=300)
    command = [sys.executable, "-c", READER, tmp_path / "file", how]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["1000", "0"]


@pytest.mark.parametrize("strings", ["few", "distinct"])
def test_a_file_of_many_row_groups__is_opened_once_per_reader(strings, tmp_path, monkeypatch):
    """Arrow reads the whole footer when it opens a file, so opening it once per group would take quadratic time."""
    words = [[f"word {number if strings == 'distinct' else number % 3}"] for number in range(200)]
    pq.write_table(pa.table({"words": words}), tmp_path / "file", row_group_size=2, dictionary_pagesize_limit=8)
    opened, open_file = [], pq.ParquetFile
    monkeypatch.setattr(pq, "ParquetFile", lambda *args, **more: opened.append(args) or open_file(*args, **more))
    with (tmp_path / "file").open("rb") as file:
        found = [row for batch in BoundedFile(file).batches() for row in batch.column("words").to_pylist()]
    assert found == words
    assert 1 <= len(opened) <= 2
