"""Commands import libraries only when they need them, so that help, errors and small commands are fast."""

import json
import subprocess
import sys

import pytest

from collapsium.pipeline import fit
from collapsium.storage.io.records import dump
from collapsium.storage.runs.comparison import KIND, RECORD, VERSION

HEAVY = ("bokeh", "distributed", "matplotlib", "numba", "pandas", "pyarrow", "scipy", "sklearn", "zarr")
COMPARISON = {
    "format": KIND,
    "version": VERSION,
    "families": ["lda"],
    "topics": [3],
    "start_topics": [],
    "restarts": 1,
    "iterations": 2,
    "samples": 1,
    "sample_every": 1,
    "settings": {},
    "seed": 0,
    "corpus": "0" * 64,
    "heldout": None,
    "unseen": None,
}
SCRIPT = """
import contextlib, json, os, sys
from collapsium.pipeline.cli.main import main
for words in sys.stdin:
    if os.fork() == 0:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            try:
                code = main(json.loads(words))
            except SystemExit as exit:
                code = exit.code
        print(json.dumps([code, sorted(name for name in sys.modules if "." not in name)]), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def imported():
    """Return the exit code of a command, and the packages that a process has imported for it.

    The processes are forks of one that has imported what every command needs.
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", SCRIPT], text=True, bufsize=1, **pipes) as process:

        def answer(*words):
            process.stdin.write(json.dumps([str(word) for word in words]) + "\n")
            code, names = json.loads(process.stdout.readline())
            return code or 0, set(names)

        yield answer
        process.stdin.close()


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
    ids=lambda words: " ".join(words) if isinstance(words, list) else None,
)
def test_help_and_wrong_usage__import_no_slow_packages(imported, words, expected):
    code, names = imported(*words)
    assert code == expected
    assert names.isdisjoint(HEAVY)


@pytest.mark.parametrize("command", ["info", "topics", "versions"])
def test_missing_inputs__are_reported_without_slow_imports(imported, command, tmp_path):
    code, names = imported(command, tmp_path / "absent")
    assert code == 1
    assert names.isdisjoint(HEAVY)


def test_a_fit__imports_no_library_that_it_does_not_need(imported, small, tmp_path):
    """pandas and Zarr took a third of the time that a small fit takes besides its iterations."""
    words = ["fit", str(small[0]), tmp_path / "run", "--family", "lda", "--topics", "3", "--iterations", "2", "--quiet"]
    code, names = imported(*words)
    assert code == 0
    assert names.isdisjoint({"distributed", "pandas", "sklearn", "zarr"})


def test_families__are_described_without_slow_imports():
    script = (
        "import json, sys\n"
        "from collapsium.pipeline.models.registry import family_names, load_family\n"
        "print(json.dumps([[load_family(one).Options.__name__ for one in family_names()], sorted(sys.modules)]))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    configs, names = json.loads(run.stdout)
    assert len(configs) > 10
    assert set(names).isdisjoint(HEAVY)


@pytest.fixture(scope="module")
def places(tmp_path_factory, small, labelled_small, segmented_small):
    """A corpus, one with labels, one with segments too, a run, its model, a comparison and a job."""
    place = tmp_path_factory.mktemp("places")
    fit(small[0], place / "run", family="lda", topics=3, iterations=2, scheduler="threads", workers=1)
    (place / "comparison").mkdir()
    (place / "comparison" / RECORD).write_bytes(dump(COMPARISON))
    (place / "job.toml").write_text(
        f"[batch]\nfolder = '{place / 'job'}'\n[ingest]\nsources = ['none/*.txt']\n[fit]\nfamily = 'hdp'\n"
    )
    return {
        "corpus": small[0],
        "labelled": labelled_small[0],
        "segmented": segmented_small[0],
        "run": place / "run",
        "model": place / "run" / "model",
        "comparison": place / "comparison",
        "job": place / "job.toml",
    }


@pytest.mark.parametrize(
    ("words", "may"),
    [
        (["info", "corpus"], set()),
        (["info", "labelled"], {"numpy", "pyarrow"}),
        (["info", "segmented"], {"numpy", "pyarrow"}),
        (["info", "run"], {"numpy"}),
        (["info", "model"], {"numpy"}),
        (["info", "comparison"], set()),
        (["watch", "run", "--once"], set()),
        (["versions", "job"], {"numpy", "pyarrow"}),
        (["topics", "run"], {"numpy", "pyarrow"}),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else None,
)
def test_small_commands__import_only_what_they_read_with(imported, words, may, places):
    code, names = imported(*(places.get(word, word) for word in words))
    assert code == 0
    assert names & {"numpy", *HEAVY} <= may


def test_verify_of_a_corpus__imports_neither_numba_nor_zarr(imported, places):
    code, names = imported("verify", places["corpus"])
    assert code == 0
    assert names.isdisjoint({"distributed", "numba", "scipy", "sklearn", "zarr"})


def test_the_package__imports_nothing_on_its_own():
    script = "import sys, collapsium.pipeline; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"
