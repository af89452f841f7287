"""The results of the benchmark of shapes on disk: one record per line, appended after each cell."""

import json
import os


def read(path):
    """Return the records of a file, none if it does not exist, without an incomplete last line."""
    if not path.exists():
        return []
    records = []
    for line in path.read_bytes().split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "key" in record:
            records.append(record)
    return records


def append(path, record):
    """Append a record on a separate line, even if the line before was cut short."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as lines:
        lines.seek(0, os.SEEK_END)
        if lines.tell():
            with path.open("rb") as before:
                before.seek(-1, os.SEEK_END)
                if before.read(1) != b"\n":
                    lines.write(b"\n")
        lines.write(json.dumps(record).encode() + b"\n")
        lines.flush()
        os.fsync(lines.fileno())
