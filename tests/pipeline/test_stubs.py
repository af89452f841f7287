"""Editors and mypy know the options of public functions, those of each family among them."""

import os
import subprocess
import sys

import pytest

from tests.stubs import FILE, stub

CALLS = {
    'fit("corpus", "run", family="lda", topics=3, alpha=0.1, iterations=5, workers=2)': "",
    'fit("corpus", "run", family="hdp", gamma_shape=1.0)': "",
    'infer("run", "corpus", "out.csv", dense=True)': "",
    'infer("run", "corpus", "out.csv", dence=True)': 'Unexpected keyword argument "dence" for "infer"; did you mean "dense"',
    'ingest("texts", "corpus", labels=["a"], min_documents="x")': 'Argument "min_documents" to "ingest" has incompatible type',
}


def test_the_types__are_those_of_the_declarations():
    """`python -m tests.stubs` writes them anew."""
    assert FILE.read_text(encoding="utf-8") == stub()


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What mypy tells about each call, by its line."""
    folder = tmp_path_factory.mktemp("types")
    (folder / "public.pyi").write_text(stub(), encoding="utf-8")
    lines = ["from public import fit, infer, ingest", *CALLS, "reveal_type(fit)"]
    (folder / "calls.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ["--follow-imports=skip", "--ignore-missing-imports", "--cache-dir", str(folder / "cache"), "calls.py"]
    words += ["--config-file", os.devnull]
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    found = dict.fromkeys(range(1, len(lines) + 1), "")
    for line in run.stdout.splitlines():
        if line.startswith("calls.py:"):
            found[int(line.split(":")[1])] += line.partition(": ")[2]
    return found


@pytest.mark.parametrize("call", CALLS)
def test_mypy__checks_options(told, call):
    expected, text = CALLS[call], told[list(CALLS).index(call) + 2]
    assert (expected in text) if expected else (text == "")


def test_each_family__completes_its_options(told):
    signatures = told[len(CALLS) + 2]
    lda = signatures.partition("family: Literal['lda'], ")[2].partition("family: ")[0]
    assert "'alpha'" in lda
    assert "'iterations'" in lda
    assert "gamma_shape" not in lda
