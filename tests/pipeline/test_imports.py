"""Commands import what they need when they run: help, errors and small commands answer at once."""

import json
import subprocess
import sys

import pytest

HEAVY = ("bokeh", "distributed", "matplotlib", "numba", "pandas", "pyarrow", "scipy", "sklearn", "zarr")
SCRIPT = """
import json, sys
from collapsar.pipeline.commands.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as exit:
    code = exit.code
print(json.dumps([code, sorted(name for name in sys.modules if "." not in name)]))
"""


def imported(*words):
    """Return the exit code of a command, and the packages that a new process has imported for it."""
    run = subprocess.run([sys.executable, "-c", SCRIPT, *map(str, words)], capture_output=True, text=True)
    code, names = json.loads(run.stdout.splitlines()[-1])
    return code or 0, set(names)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["igest"], 2),
        (["fit", "--help"], 0),
        (["fit", "--family", "sequential-lda", "--help"], 0),
        (["fit", "--family", "LDA", "a", "b"], 2),
        (["fit", "a", "b", "--famly", "hdp"], 2),
        (["ingest", "--help"], 0),
        (["append", "--help"], 0),
        (["compare", "--help"], 0),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else None,
)
def test_help_and_wrong_usage__import_nothing_that_takes_long(words, expected):
    code, names = imported(*words)
    assert code == expected
    assert names.isdisjoint(HEAVY)


@pytest.mark.parametrize("command", ["info", "topics", "verify", "versions"])
def test_small_commands__import_no_compiler_and_no_optimiser(command, tmp_path):
    """Of what is not there; what is there is read by PyArrow."""
    code, names = imported(command, tmp_path / "absent")
    assert code == 1
    assert names.isdisjoint(set(HEAVY) - {"pyarrow"})


def test_the_package__imports_nothing_by_itself():
    script = "import sys, collapsar.pipeline; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"
