"""Hostile corpora given to all commands that read corpora or their models, from `info` and `fit` to `report`.

A few columns and records of tiny corpora are changed at random, and all digests are corrected. Each command must end
within seconds with a result or a clear one-line error, never with an index error, a signal or another raw exception.
``python -m tests.chaos.hostile_paths FIRST COUNT`` tries seeds in child processes, with kernels that check bounds
(``NUMBA_BOUNDSCHECK=1``), or with interpreted kernels if ``NUMBA_DISABLE_JIT=1`` is set.
"""

import contextlib
import csv
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from collapsium.storage.printable import CONTROLS, csv_cell

SECONDS = 120  # time limit of a command; these commands take less than one second
PROGRESS_SECONDS = 20  # seconds between two lines of progress
HERE = "here"  # argument that makes a child process try its seeds itself
# Machine code that checks bounds is cached separately from code that does not.
CHECKING = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(Path("build/checking").absolute())}
FAMILIES = {
    "lda": ["--topics", "2"],
    "hdp": ["--topics", "3"],
    "vb-lda": ["--topics", "2"],
    "ncrp": ["--depth", "2"],
    "gibbs-lda": ["--topics", "2"],
    "gibbs-hdp": [],
    "gibbs-ncrp": [],
    "labeled-lda": [],
    "partially-labeled-lda": [],
    "author-topic": ["--topics", "2"],
    "hdsp": ["--topics", "2"],
    "segmented-lda": ["--topics", "2"],
    "sequential-lda": ["--topics", "2"],
    "hca": [],
    "dirichlet-network": ["--topics", "2", "--network", "network.toml"],
}
# Documents depend on their labels, parts of two segments on the document, and segments on their part and predecessor.
NETWORK = """
[corpus]
over = "corpus"
[label]
over = "label"
field = "f"
parents = ["corpus"]
[document]
over = "document"
parents = ["label"]
otherwise = ["corpus"]
[part]
over = "segment"
every = 2
parents = ["document"]
[segment]
over = "segment"
parents = ["part", "segment[-1]"]
"""
NUMBERS = [0, 1, 2, 3, 7, -1, 1000, 2**31 - 1, 2**31, 2**32 + 1, 2**62, -(2**31), -(2**62), 2**63 - 1]
TEXTS = [
    "",
    " ",
    "\x00",
    "\x1b[2J",
    "=1",
    "a" * 5000,
    "\u202e",
    "9" * 400,
    "0000-00-00",
    "1e999",
    "NaN",
    "-1-1-1",
    "99/99/9999",
]
FLOATS = [0.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), -0.0, 1.0]
KINDS = [
    pa.int64(),
    pa.uint8(),
    pa.uint64(),
    pa.int16(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.bool_(),
    pa.date32(),
]


def make_corpus(place, draw, words, name):
    """Write a tiny valid corpus with all kinds of columns; document ids begin with `name`."""
    from collapsium.storage.corpus.parquet import LABELS
    from collapsium.storage.corpus.writer import CorpusWriter
    from collapsium.storage.io.folder import Folder, created
    from tests.strategies import segmented_of

    count = draw.randint(1, 7)
    rows = [
        [
            {draw.randrange(words): draw.randint(1, 3) for _ in range(draw.randint(0, 3))}
            for _ in range(draw.randint(0, 3))
        ]
        for _ in range(count)
    ]
    rows[0] = [{0: 2}]
    labels = [
        [{"field": "f", "value": f"v{draw.randrange(3)}"} for _ in range(draw.randrange(3))] for _ in range(count)
    ]
    extras = {
        "labels": pa.array(labels, LABELS),
        "title": pa.array([f"t{n}" for n in range(count)]),
        "date": pa.array([f"20{n:02d}-01-01" for n in range(count)]),
        "n": pa.array([float(n) for n in range(count)]),
    }
    with created(Folder(place)) as folder:
        writer = CorpusWriter(folder, words, shard_tokens=draw.choice([None, 3]))
        documents = segmented_of(rows, [f"{name}{n}" for n in range(count)])
        writer.add(replace(documents, extras={**documents.extras, **extras}))
        writer.finish([f"w{n}" for n in range(words)])


def make_vectors(place, draw, columns):
    """Write a tiny valid corpus of vectors."""
    from tests.storage.corpus.test_vectors import write_vectors

    values = np.random.default_rng(draw.randrange(2**32)).normal(size=(draw.randint(1, 6), columns))
    if draw.random() < 0.3:
        values[draw.randrange(len(values))] = draw.choice([1e308, -1e308, 0.0, 5e-324, 1e150])
    write_vectors(place, values, draw.choice([2, 4, 100]))


def mutate(place, draw):
    """Change something of a corpus at random, and correct digests and sums."""
    from tests.chaos.hostile_corpora import rewrite_manifest, rewrite_shard, rewrite_vocabulary, table_of, with_column

    record = json.loads((place / "manifest.json").read_text())
    kind = draw.random()
    if kind < 0.1:
        name = draw.choice(["documents", "pairs", "tokens"])
        value = draw.choice(NUMBERS)

        def change(record):
            record["shards"][0][name] += value - record[name]
            record[name] = value

        return rewrite_manifest(place, change)
    if kind < 0.2:
        words = record["vocabulary"]["words"]
        table = pa.table(
            {
                "word": [draw.choice([*TEXTS, f"w{n}"]) for n in range(words)],
                "documents": [1] * words,
                "tokens": [1] * words,
            }
        )
        if draw.random() < 0.5:
            table = with_column(
                table, draw.choice(["word", "documents", "tokens"]), column_of_another_type(words, draw)
            )
        return rewrite_vocabulary(place, table)
    if kind < 0.25:
        return rewrite_manifest(place, lambda record: record["fields"].pop(next(iter(record["fields"]), None), None))
    number = draw.randrange(len(record["shards"]))
    table = table_of(place, number)
    name = draw.choice(table.column_names)
    column = table.column(name).combine_chunks()
    changed = column_of_another_type(len(column), draw) if draw.random() < 0.25 else with_changed_values(column, draw)
    return rewrite_shard(place, with_column(table, name, changed), number)


def column_of_another_type(rows, draw):
    """Return a column of a random type, which is null but perhaps for the last value."""
    kind = draw.choice(KINDS)
    deep = draw.choice([kind, pa.list_(kind), pa.list_(pa.list_(kind)), pa.struct([("field", kind), ("value", kind)])])
    return pa.nulls(rows, deep) if draw.random() < 0.5 else pa.array([None] * (rows - 1) + [_value(deep, draw)], deep)


def _value(kind, draw):
    if pa.types.is_list(kind):
        return [_value(kind.value_type, draw)] * draw.randrange(3)
    if pa.types.is_struct(kind):
        return {"field": _value(kind.field(0).type, draw), "value": _value(kind.field(1).type, draw)}
    return {"string": "a", "binary": b"\xff", "bool": True, "double": 1.5}.get(
        str(kind), 1 if kind != pa.date32() else None
    )


def with_changed_values(column, draw):
    """Return the column with some values changed, or the same column if Arrow cannot represent the new values."""
    values = column.to_pylist()
    for _ in range(draw.randint(1, 3)):
        row = draw.randrange(len(values))
        values[row] = _changed(values[row], draw)
    kind = column.type
    if pa.types.is_list(kind) and pa.types.is_integer(kind.value_type):
        kind = pa.list_(pa.int64())
    with contextlib.suppress(pa.ArrowException, OverflowError):
        return pa.array(values, kind)
    return column


def _changed(value, draw):
    if draw.random() < 0.05:
        return None
    if isinstance(value, float):
        return draw.choice(FLOATS)
    if isinstance(value, str):
        return draw.choice(TEXTS)
    if isinstance(value, int):
        return draw.choice(NUMBERS)
    if isinstance(value, dict):
        return {name: draw.choice(TEXTS) if draw.random() < 0.5 else text for name, text in value.items()}
    if isinstance(value, list):
        value = list(value)
        kind = draw.randrange(5)
        if value and kind == 0:
            place = draw.randrange(len(value))
            value[place] = _changed(value[place], draw)
        elif value and kind == 1:
            value.append(draw.choice(value))
        elif value and kind == 2:
            draw.shuffle(value)
        elif value and kind == 3:
            del value[draw.randrange(len(value))]
        elif value and isinstance(value[0], int):
            value.append(draw.choice(NUMBERS))
        return value
    return draw.choice(TEXTS)


def commands_for(family, draw):
    """Yield commands of one family that read the hostile corpus `c`, or a model of the valid corpus `sound` together
    with it."""
    serial = ["--scheduler", "serial"]
    fit = ["--family", family, *FAMILIES[family], "--iterations", "2", "--quiet", *serial]
    yield from (["info", "c"], ["verify", "c"], ["fit", "c", "run", *fit], ["verify", "run"], ["topics", "run"])
    yield from (["report", "run", "run.html"], ["infer", "run", "c", "own.csv", *serial])
    yield from (["fit", "sound", "other", *fit], ["infer", "other", "c", "out.csv", *serial])
    yield ["evaluate", "other", "--unseen", "c", *serial]
    if family == "hca":
        return
    yield ["evaluate", "other", "--coherence", "c", *serial]
    yield from (["split", "c", "train", "held"], ["fit", "train", "again", "--heldout", "held", *fit])
    yield ["evaluate", "again", "--heldout", "held", *serial]
    yield ["predict", "other", "c", "predicted.csv", "--field", "f", *serial]
    yield from draw.choice(topic_commands(draw.choice(["run", "other"]), fit, serial))
    yield draw.choice([
        ["explode", "c", "flat"],
        ["split", "c", "a", "b", "--documents"],
        ["split", "c", "a", "b", "--drop-labels", "0.5"],
        ["plot", "run", "x.svg", "--what", "time"],
        ["estimate", "c", "--family", family, *FAMILIES[family]],
    ])  # fmt: skip


def hostile_name(words, documents):
    """Return a topic name with characters that control terminals and spreadsheets."""
    return "=\x1b[2Jx\u202e"


def topic_commands(model, fit, serial):
    """Return sequences of commands that use weights, initialisations, consensus, edits and names of topics.

    They read the hostile corpus or the given model; some are refused because the family lacks the option.
    """
    pairs = [("w0", "0.5"), ("w1", "3"), ("=1+1", "2")]
    Path("weights.csv").write_text("".join(f"{word},{weight}\n" for word, weight in pairs))
    Path("seeds.toml").write_text('"=first" = ["w0"]\n')
    named = ["topics", model, "--name", "tests.chaos.hostile_paths:hostile_name"]
    return [
        [named, ["export", model, "csv", "--to", "csv"], ["report", model, "named.html"], ["verify", model]],
        [["edit", model, "merged", "--merge", "0,1", "--rename", "0=\x1b[2J=x"], ["topics", "merged"], ["report", "merged", "m.html"]],
        [["edit", model, "joined", "--merge", "1,0"], ["infer", "joined", "c", "d.csv", *serial]],
        *([["fit", "c", f"weighted-{Path(name).stem}", "--weights", name, *fit]] for name in ("log-tf-idf", "entropy", "weights.csv")),
        *([["fit", "c", f"begun-{name}", "--init", name, *fit]] for name in ("clusters", "documents", "tree")),
        [["infer", model, "c", "s.parquet", *serial], ["fit", "c", "begun", "--init", "s.parquet", "--init-strength", "2", *fit]],
        [["fit", "c", "warmed", "--warm", model, *fit], ["topics", "warmed"]],
        [["fit", "c", "seeded", "--seeds", "seeds.toml", *fit], ["fit", "c", "key", *fit, "--family", "keyword-lda", "--topics", "2", "--seeds", "seeds.toml"]],
        [["fit", "c", "joined", "--restarts", "2", "--combine", "consensus", *fit], ["topics", "joined"], ["infer", "joined", "c", "j.csv", *serial]],
        [["evaluate", model, "--metrics", "all", "--unseen", "c", "--coherence", "c", *serial]],
    ]  # fmt: skip


def unsafe(output, place):
    """Return a description of output that a terminal or a spreadsheet would execute, or None if it is safe."""
    found = CONTROLS.search(output)
    if found is not None:
        return f"the control character {found[0]!r} was printed"
    for path in filter(Path.is_file, sorted(place.rglob("*.csv"))):
        with path.open(newline="", encoding="utf-8") as handle:
            # Ids and labels are keys, which are not escaped.
            texts = [row.get(name) for row in csv.DictReader(handle) for name in ("word", "words")]
            cells = filter(None, texts) if path.name != "weights.csv" else ()
        formula = next((cell for cell in cells if cell != csv_cell(cell)), None)
        if formula is not None:
            return f"{path.name} has the formula {formula[:40]!r}"
    return None


def try_path(seed, place, *, family=None, tell=lambda words: None):
    """Run all commands on the hostile corpus of a seed; return the first fault, or None. `tell` is called before each
    command."""
    from collapsium.pipeline.cli.main import main

    draw = random.Random(seed)
    family = family or draw.choice(list(FAMILIES))
    words = draw.randint(1, 5)
    for name in ("c", "sound"):
        if family == "hca":
            make_vectors(place / name, draw, words)
        else:
            make_corpus(place / name, draw, words, name)
    for _ in range(draw.randint(1, 2)):
        with contextlib.suppress(IndexError):  # the changed column may be the last one that the corpus has left
            mutate(place / "c", draw)
    (place / "network.toml").write_text(NETWORK)
    with contextlib.chdir(place):
        for words in commands_for(family, draw):
            output = io.StringIO()
            tell(f"({family}): {' '.join(words)}")
            signal.alarm(SECONDS)
            try:
                with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), warnings.catch_warnings():
                    # numbers overflow in interpreted kernels, such as hash functions
                    warnings.simplefilter("ignore", RuntimeWarning)
                    code = main(words)
            except SystemExit as error:
                code = error.code
            except BaseException as error:
                return f"seed {seed} ({family}): {' '.join(words)}: raw {type(error).__name__}: {error}"
            finally:
                signal.alarm(0)
            if code not in (0, 1, 2) or "this is a bug" in output.getvalue() or "Error: " in output.getvalue():
                return f"seed {seed} ({family}): {' '.join(words)}: exit {code}: {output.getvalue()[-500:]}"
            fault = unsafe(output.getvalue(), place)
            if fault is not None:
                return f"seed {seed} ({family}): {' '.join(words)}: {fault}"
    return None


def run_seeds(first, count):
    """Try seeds in this process; each command is printed before it runs, because a signal may end the process."""
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 30), resource.RLIM_INFINITY))
    for seed in range(first, first + count):
        place = Path(tempfile.mkdtemp(prefix="collapsium-hostile-"))
        try:
            fault = try_path(seed, place, tell=lambda words, seed=seed: print(f"> {seed} {words}", flush=True))
        finally:
            shutil.rmtree(place, ignore_errors=True)
        if fault is not None:
            print(fault, flush=True)


def follow(first, last):
    """Try seeds in a child process; return the seed after the last one tried, and the number of faults."""
    command = [sys.executable, "-m", "tests.chaos.hostile_paths", str(first), str(last - first), HERE]
    running, faults, reported_at = f"{first}", 0, time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as child:
            for line in child.stdout:
                if not line.startswith("> "):
                    faults += 1
                    print(line, end="", flush=True)
                    continue
                running = line[2:].rstrip()
                if time.monotonic() - reported_at > PROGRESS_SECONDS:
                    reported_at = time.monotonic()
                    print(f"at seed {running.split()[0]} of {first} to {last - 1}", flush=True)
        if child.returncode:
            errors.seek(0)
            print(f"seed {running}: the process ended with {child.returncode}: {errors.read()[-800:]}", flush=True)
            faults += 1
    return int(running.split()[0]) + 1, faults


def main(words):
    """Try seeds in child processes; if a seed ends its process, continue after it."""
    first, count = int(words[0]), int(words[1])
    if words[2:] == [HERE]:
        run_seeds(first, count)
        return 0
    last, faults = first + count, 0
    if not int(os.environ.get("NUMBA_DISABLE_JIT", "0")):
        os.environ.update(CHECKING)
    while first < last:
        first, more = follow(first, last)
        faults += more
    print(f"{count} corpora, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
