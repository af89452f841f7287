"""Hostile records: each field of each record of a run, a comparison or a job is removed or given another value.

``python -m tests.chaos.records FOLDER COMMAND...`` tries all such changes in a folder, and restores its files, with
commands such as ``info``; each must end within seconds with a result or a one-line `CollapsiumError`. A command with arguments is one
word, in which ``{folder}`` stands for the folder and ``{beside}`` for its parent: ``'compare {beside}/corpus {folder}
--topics 2'``.
"""

import contextlib
import copy
import io
import json
import shlex
import shutil
import sys
import time
from pathlib import Path

from collapsium.pipeline.cli.main import main
from collapsium.storage.io.records import DIGEST, dump

VALUES = [
    None, True, -1, 0, 3, 10**9, 10**7, 2**63, -(2**63), 10**30, 0.5, 1e300, -1e300, "", "x", "²", "../x", "\x1b[2J",
    [], [0], [[]], {}, {"x": 1},
]  # fmt: skip
MISSING = object()
SECONDS = 20.0  # time limit of one command on a small folder


def field_paths(record, limit=400):
    """Return the paths of a record's fields, including the first and the last entry of each list."""
    found, waiting = [], [((), record)]
    while waiting and len(found) < limit:
        path, value = waiting.pop(0)
        if path:
            found.append(path)
        if isinstance(value, dict):
            waiting += [((*path, name), item) for name, item in value.items()]
        elif isinstance(value, list) and value:
            waiting += [((*path, place), value[place]) for place in sorted({0, len(value) - 1})]
    return found


def with_value(record, path, value):
    """Return a copy of a record with another value at a path, or without it."""
    found = copy.deepcopy(record)
    *above, last = path
    place = found
    for name in above:
        place = place[name]
    if value is MISSING:
        del place[last]
    else:
        place[last] = value
    return found


def encoded(record):
    """Return a record's bytes with the correct digest, also if a number has no JSON form."""
    try:
        return dump({name: value for name, value in record.items() if name != DIGEST})
    except ValueError:
        return json.dumps(record).encode()


def variants_of(file):
    """Yield the changed field, its value, and the bytes of the file with this change."""
    data = Path(file).read_bytes()
    lines = data.splitlines() if str(file).endswith(".jsonl") else [data]
    kinds = set()
    for number, line in enumerate(lines):
        record = json.loads(line)
        kind = record.get("event", "")
        if kind in kinds:
            continue
        kinds.add(kind)
        for path in field_paths(record):
            for value in (MISSING, *VALUES):
                new = with_value(record, path, value)
                if str(file).endswith(".jsonl"):
                    text = json.dumps(new).encode()
                    yield (kind, *path), value, b"\n".join([*lines[:number], text, *lines[number + 1 :], b""])
                else:
                    yield path, value, encoded(new)


def attempt(words):
    """Run a command in this process; return its fault, or an empty text if it ended well."""
    began, out, err = time.monotonic(), io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
    except SystemExit as error:
        code = error.code
    except BaseException as error:
        return f"raised {error!r}"
    text, spent = err.getvalue(), time.monotonic() - began
    if "this is a bug" in text:
        return text.strip().splitlines()[-1]
    if code not in (0, 1, 2, 3, 4):
        return f"exit code {code}"
    return f"took {spent:.1f} s" if spent > SECONDS else ""


def commands_for(folder, names):
    """Yield the commands on a folder, which write their outputs next to it."""
    beside = Path(folder).parent
    more = {
        "watch": ["--once"], "report": [str(beside / "report.html")], "plot": [str(beside / "plot.svg")],
        "export": [str(beside / "csv"), "--to", "csv"],
    }  # fmt: skip
    for name in names:
        for left in ("report.html", "plot.svg", "csv"):
            place = beside / left
            shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        if " " in name:
            yield shlex.split(name.format(folder=folder, beside=beside))
        else:
            yield [name, str(folder), *more.get(name, [])]


def try_records(words):
    """Try all changes of all records of a folder."""
    folder, names = Path(words[0]), words[1:]
    files = [path for path in sorted(folder.rglob("*.json*")) if path.name not in ("zarr.json", "digests.json")]
    tried, seen = 0, set()
    for file in files:
        whole = file.read_bytes()
        for path, value, data in variants_of(file):
            file.write_bytes(data)
            for command in commands_for(folder, names):
                tried += 1
                fault = attempt(command)
                key = (file.name, command[0], fault[:80])
                if fault and key not in seen:
                    seen.add(key)
                    shown = "missing" if value is MISSING else repr(value)[:40]
                    print(
                        f"{command[0]} {file.relative_to(folder)} {'.'.join(map(str, path))} = {shown}: {fault[:300]}"
                    )
        file.write_bytes(whole)
    print(f"{tried} commands, {len(seen)} faults")


if __name__ == "__main__":
    try_records(sys.argv[1:])
