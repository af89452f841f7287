"""Kills and full disks at every file operation of a command: repeating the command must succeed, and leave no
remnants.

A fit whose run has a record is resumed instead, and must give the models of an undisturbed fit.

``python -m tests.chaos.operations [EVERY] [COMMAND ...]`` disturbs each file operation of the commands, or every
EVERY-th. The command runs in a child of this process. An audit hook kills the child before one of its operations, or
makes this and all further operations fail. The command is then repeated on the files that are left, and must give the
same files as an undisturbed one.
"""

import errno
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from collapsium.pipeline import explode, fit, ingest, name_topics
from collapsium.pipeline.cli.main import main as collapsium

EVENTS = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate"}
TEXTS = [{"id": f"d{n}", "text": "aa bb cc. dd ee aa", "tag": f"t{n % 2}"} for n in range(6)]
MORE = [{"id": f"m{n}", "text": "bb dd ff", "tag": "t1"} for n in range(3)]
DONE, KILLED = 0, 99


class Fault:
    """A fault at one file operation of a process: the process is killed before it, or the disk is full from then on."""

    def __init__(self, place, number, kind):
        self.place, self.number, self.kind = str(place), number, kind
        self.met = 0
        self._fsync = os.fsync

    def start(self):
        """Start to count this process's file operations; an audit hook cannot be removed."""
        sys.addaudithook(self._meet)
        os.fsync = self._sync

    def _meet(self, event, arguments):
        writes = event == "open" and arguments[0] is not None and isinstance(arguments[2], int) and arguments[2] & 3
        if (writes or event in EVENTS) and str(arguments[0]).startswith((self.place, ".")):
            self._strike(removal=event in ("os.remove", "os.rmdir"))

    def _sync(self, handle):
        self._strike(removal=False)
        return self._fsync(handle)

    def _strike(self, *, removal):
        self.met += 1
        if self.number is None or self.met <= self.number:
            return
        if self.kind == "kill":
            os._exit(KILLED)
        if not removal:  # files can still be removed on a full disk
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def run(words, place, number=None, kind="kill"):
    """Run a command in a child; return its exit code, its output, and the number of its file operations."""
    output_end, speaks = os.pipe()
    counts, counted = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(speaks, 1)
        os.dup2(speaks, 2)
        fault, code = Fault(place, number, kind), 70
        fault.start()
        try:
            code = collapsium(words)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.write(counted, str(fault.met).encode())
            os._exit(code)
    os.close(speaks)
    os.close(counted)
    with os.fdopen(output_end) as reader, os.fdopen(counts) as number_reader:
        text, met = reader.read(), number_reader.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text, int(met or 0)


def files_of(folder, name=""):
    """Return {path: contents} of all files in a folder; for a run only the models, because its other files contain
    times."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {file: data for file, data in files.items() if name not in FITS or "model" in file.split("/")}


def repeated(name, words, place):
    """Return the command line that repeats or resumes a command."""
    if name in FITS and "--resume" not in words and (place / "made/run.json").exists():
        return ["fit", "--resume", "made", "--checkpoint-every", "1", "--scheduler", "serial", "--quiet"]
    return words


def make_inputs(place):
    """Create the inputs of the commands."""
    for name, rows in (("old", TEXTS), ("new", MORE)):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ingest(
        place / "old.jsonl", place / "corpus", labels=["tag"], segments="sentences", shard_tokens=12, scheduler="serial"
    )
    (place / "old.csv").write_text("".join(f"{n},{n * n}\n" for n in range(4)))
    (place / "new.csv").write_text("1,2\n3,4\n")
    ingest(place / "old.csv", place / "vectors", format="vectors")
    explode(place / "corpus", place / "sentences")
    fit(place / "corpus", place / "run", family="lda", topics=3, iterations=2, scheduler="serial")
    name_topics(place / "run", lambda words, documents: f"about {words[0]}")


FIT = ["--topics", "3", "--iterations", "2", "--checkpoint-every", "1", "--scheduler", "serial", "--quiet"]
COMMANDS = {
    "append": ["append", "corpus", "new.jsonl", "--grow", "--scheduler", "serial"],
    "append-vectors": ["append", "vectors", "new.csv"],
    "ingest": ["ingest", "old.jsonl", "made", "--labels", "tag", "--scheduler", "serial"],
    "ingest-vectors": ["ingest", "old.csv", "made", "--format", "vectors"],
    "split": ["split", "corpus", "train", "held", "--fraction", "0.4"],
    "split-documents": ["split", "corpus", "train", "held", "--documents", "--fraction", "0.5", "--seed", "3"],
    "split-labels": ["split", "corpus", "train", "held", "--drop-labels", "0.5"],
    "explode": ["explode", "corpus", "made"],
    "ingest-normalised": [
        "ingest", "old.jsonl", "made", "--normalise", "stem:english", "--phrases", "count", "--phrase-count", "2",
        "--segments", "sentences", "--scheduler", "serial",
    ],
    "edit": ["edit", "run", "made", "--merge", "0,1", "--rename", "2=by hand", "--workers", "1"],
    "name": ["topics", "run", "--name", "tests.chaos.operations:named"],
    "fit": ["fit", "corpus", "made", "--family", "lda", *FIT, "--weights", "idf", "--init", "documents"],
    "fit-named": ["fit", "--resume", "run", "--iterations", "4", "--checkpoint-every", "1", "--scheduler", "serial", "--quiet"],
    "consensus": ["fit", "corpus", "made", "--family", "lda", *FIT, "--restarts", "2", "--combine", "consensus"],
    "samples": [
        "fit", "corpus", "made", "--family", "gibbs-lda", *FIT, "--samples", "2", "--sample-every", "1",
        "--combine", "consensus",
    ],
}  # fmt: skip
FITS = ("fit", "fit-named", "consensus", "samples")
FIT_STEP = 40
"""Only every 40th operation of a fit is disturbed: fits have hundreds of operations and take seconds each."""
APPENDING = ("append", "append-vectors")
REPEATED = (*APPENDING, *FITS, "name")
"""x."""
ATOMIC = tuple(name for name in COMMANDS if name not in REPEATED)


def named(words, documents):
    """Name a topic, as a function for `topics --name`."""
    return "named"


def judge(name, words, expected, code, place):
    """Repeat a disturbed command on the files that it left; return the fault of the result, or an empty text."""
    again, output, _ = run(repeated(name, words, place), place)
    # An output that has its final name is complete; the exit code of the killed process does not tell whether it has.
    if again != DONE and not (code == KILLED and name in ATOMIC and "exists already" in output):
        return f"the repeated command: exit code {again}, {output.strip()[-300:]}"
    found = files_of(place, name)
    if found != expected:
        differing = {name for name in {*found, *expected} if found.get(name) != expected.get(name)}
        return f"files differ from an undisturbed command: {sorted(differing)[:5]}"
    return None


def try_all(name, kinds=("kill", "full"), every=1):
    """Disturb a command at each of its operations; return the number of disturbances, and the faults."""
    root = Path(tempfile.mkdtemp(prefix="operations-"))
    seed, place, words = root / "seed", root / "place", COMMANDS[name]
    wrong, tried = [], 0

    def restore_inputs():
        """Restore the command's inputs in an empty folder."""
        os.chdir(root)
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(seed, place)
        os.chdir(place)

    try:
        seed.mkdir()
        make_inputs(seed)
        restore_inputs()
        code, output, operations = run(words, place)
        assert code == DONE, output
        expected = files_of(place, name)
        for kind in kinds:
            for number in range(0, operations, every):
                restore_inputs()
                code, output, _ = run(words, place, number, kind)
                tried += 1
                raw = code not in (DONE, 1, KILLED) or "Traceback" in output or "this is a bug" in output
                fault = f"exit code {code}: {output.strip()[-300:]}" if raw else None
                # The next `append` cleans up what an interrupted one has left, so it is repeated in any case.
                if kind == "full" and code == DONE and name not in REPEATED and files_of(place) != expected:
                    fault = "exit code 0, but files are missing or left over"
                if code != DONE or name in REPEATED:
                    fault = fault or judge(name, words, expected, code, place)
                if fault is not None:
                    wrong.append(f"{kind} at {number} of {operations}: {fault}")
    finally:
        os.chdir("/")
        shutil.rmtree(root, ignore_errors=True)
    return tried, wrong


def main(words):
    """Try commands with a fault at every operation, or at every n-th, and print the faults."""
    pa.set_cpu_count(1)
    failed, every = 0, int(words[0]) if words and words[0].isdigit() else 1
    for name in [word for word in words if word in COMMANDS] or COMMANDS:
        tried, wrong = try_all(name, every=every * (FIT_STEP if name in FITS else 1))
        print(f"{name}: {tried} operations disturbed, {len(wrong)} failed", *wrong[:8], sep="\n  ", flush=True)
        failed += len(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
