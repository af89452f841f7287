"""Hostile replacements of each file and folder of a run or a corpus, given to the commands that read them.

``python -m tests.chaos.hostile_files [SHARE] [NAME ...]`` makes a corpus and runs of several kinds. It replaces each
file by a pipe, a socket, a device, a folder, a link, nothing, or other bytes, and each folder by a link to a foreign
folder, a pipe, nothing, or a file. Each command must end within seconds with a result or a one-line error, and must
not change files outside.
"""

import contextlib
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import sys
import tempfile
import warnings
from pathlib import Path

import pyarrow as pa

from collapsium.pipeline import fit, ingest, name_topics
from collapsium.pipeline.cli.main import main as collapsium

SECONDS = 30  # time limit of a command; these commands take less than one second
PROGRESS = 20  # a line of progress is printed after this many attacks
TEXTS = [{"id": f"d{n}", "text": "aa bb cc. dd ee aa " * (n + 1), "tag": f"t{n % 2}"} for n in range(6)]
HERE = ["--scheduler", "serial"]
FIT = {"iterations": 2, "checkpoint_every": 1, "scheduler": "serial"}
RUNS = {
    "run": {"family": "lda", "topics": 2},
    "mean": {"family": "lda", "topics": 2, "restarts": 2},
    "joined": {"family": "lda", "topics": 2, "restarts": 2, "combine": "consensus"},
    "samples": {"family": "gibbs-lda", "topics": 2, "samples": 2, "sample_every": 1},
}


def make(place):
    """Make the corpus, the runs with named topics, and the folder `outside`."""
    (place / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in TEXTS))
    (place / "more.jsonl").write_text('{"id": "m", "text": "aa bb dd", "tag": "t1"}\n')
    ingest(
        place / "texts.jsonl",
        place / "corpus",
        labels=["tag"],
        segments="sentences",
        shard_tokens=20,
        scheduler="serial",
    )
    for name, options in RUNS.items():
        fit(place / "corpus", place / name, **FIT, **options)
        name_topics(place / name, lambda words, documents: f"about {words[0]}")
    (place / "outside").mkdir()
    (place / "outside" / "thesis.tex").write_text("mine")


def commands(name):
    """Return the commands that read the corpus or run of this name."""
    if name == "corpus":
        return [
            ["info", "corpus"], ["verify", "corpus"], ["split", "corpus", "train", "held"], ["explode", "corpus", "flat"],
            ["fit", "corpus", "new", "--family", "lda", "--topics", "2", "--iterations", "1", "--quiet", *HERE],
            ["infer", "run", "corpus", "own.csv", *HERE], ["evaluate", "run", "--coherence", "corpus", *HERE],
            ["append", "corpus", "more.jsonl", *HERE],
        ]  # fmt: skip
    return [
        ["info", name], ["verify", name], ["topics", name], ["report", name, "page.html"], ["export", name, "tables", "--to", "csv"],
        ["infer", name, "corpus", "seen.csv", *HERE], ["infer", name, "more.jsonl", "new.csv", *HERE],
        ["plot", name, "sizes.svg", "--what", "sizes"], ["topics", name, "--name", "tests.chaos.operations:named"],
        ["fit", "corpus", "warmed", "--warm", name, "--family", "lda", "--topics", "2", "--iterations", "1", "--quiet", *HERE],
        ["edit", name, "edited", "--merge", "0,1", "--workers", "1"],
        ["fit", "--resume", name, "--iterations", "3", "--checkpoint-every", "1", "--quiet", *HERE],
        ["watch", name, "--once"],
    ]  # fmt: skip


def pipe(path):
    """Create a pipe that nothing writes to."""
    os.mkfifo(path)


def listener(path):
    """Create a socket."""
    folder = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as unix_socket:
            unix_socket.bind(path.name)
    finally:
        os.chdir(folder)


KINDS = {
    "nothing": lambda path: None,
    "a pipe": pipe,
    "a socket": listener,
    "a link to a device without an end": lambda path: path.symlink_to("/dev/zero"),
    "a link outside": lambda path: path.symlink_to(OUTSIDE / "thesis.tex"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a folder": Path.mkdir,
    "no bytes": Path.touch,
    "other bytes": lambda path: path.write_bytes(b"\xff\x00" * 999),
    "a list": lambda path: path.write_text("[" * 5000 + "]" * 5000),
    "numbers": lambda path: path.write_text('{"iteration": ' + "9" * 5000 + ', "score": 1e999}\n'),
}
FOLDER_KINDS = {
    "nothing": lambda path: None,
    "a link outside": lambda path: path.symlink_to(OUTSIDE),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a pipe": pipe,
    "no bytes": Path.touch,
}
OUTSIDE = Path("/nonexistent")


def representative_paths(place):
    """Return files and folders to replace: only one of those whose names differ by digits alone."""
    seen, found = set(), []
    for path in sorted(place.rglob("*")):
        kind = re.sub(r"\d+", "0", str(path.relative_to(place)))
        if kind not in seen and not path.name.startswith("thesis"):
            seen.add(kind)
            found.append(path.relative_to(place))
    return found


def files_of(folder):
    """Return {path: contents} of all files in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(words):
    """Run a command in a child; return its exit code, which is -n if signal n ended it, and its output."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        code, output = 70, io.StringIO()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                code = collapsium(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 71
        except BaseException as error:
            output.write(f"raw {type(error).__name__}: {error}")
        finally:
            os.write(writer, output.getvalue().encode("utf-8", "replace")[-2000:])
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as text:
        output = text.read().decode("utf-8", "replace")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), output


def load(place):
    """Run the commands on valid files in this process, so that its forked children need not import modules again."""
    os.chdir(place)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for name in ("run", "corpus"):
            for words in commands(name):
                assert collapsium(words) == 0, words
    os.chdir("/")


def attack(root, seed, part, kind, change):
    """Replace a file or folder and run each command that reads it; return the faults."""
    place, faults = root / "place", []
    for words in commands(part.parts[0]):
        for path in [
            child for child in place.iterdir() if child.name == part.parts[0] or not (seed / child.name).exists()
        ]:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.copytree(seed / part.parts[0], place / part.parts[0])
        target = place / part
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        change(target)
        before = files_of(root / "outside")
        os.chdir(place)
        code, output = run(words)
        raw = (
            code not in (0, 1, 2, 3, 4, 5) or "Traceback" in output or "this is a bug" in output or "Error: " in output
        )
        if raw or CONTROL.search(output):
            faults.append(f"{part}: {kind}: {' '.join(words)}: {code}: {output.strip()[-400:]}")
        if files_of(root / "outside") != before:
            faults.append(f"{part}: {kind}: {' '.join(words)}: changed what lies outside")
            shutil.rmtree(root / "outside")
            shutil.copytree(seed / "outside", root / "outside")
    os.chdir("/")
    return faults


CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def main(words):
    """Attack files and folders with a random share of the replacements, and print the faults."""
    global OUTSIDE
    pa.set_cpu_count(1)
    share = float(words[0]) if words else 1.0
    draw, faults, tried = random.Random(int(os.environ.get("FUZZ_SEED", "1"))), 0, 0
    root = Path(tempfile.mkdtemp(prefix="collapsium-files-"))
    try:
        seed, OUTSIDE = root / "seed", root / "outside"
        seed.mkdir()
        make(seed)
        shutil.copytree(seed, root / "place")
        load(root / "place")
        shutil.copytree(seed / "outside", OUTSIDE)
        names = ["corpus", *RUNS] if len(words) < 2 else words[1:]
        for part in (path for path in representative_paths(seed) if path.parts[0] in names and len(path.parts) > 1):
            kinds = FOLDER_KINDS if (seed / part).is_dir() else KINDS
            for kind, change in kinds.items():
                if draw.random() >= share:
                    continue
                tried += 1
                for fault in attack(root, seed, part, kind, change):
                    faults += 1
                    print(fault, flush=True)
                if not tried % PROGRESS:
                    print(f"{tried} attacks, at {part}", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"{tried} attacks, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
