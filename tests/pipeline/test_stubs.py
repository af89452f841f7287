"""Editors and mypy know the options of public functions, including the options of each family."""

import inspect
import os
import subprocess
import sys

import pytest

from collapsium import pipeline
from collapsium.pipeline.fitted_model import Model
from collapsium.pipeline.models.model import Model as OpenModel
from tests.stubs import FILE, stub

jedi = pytest.importorskip("jedi")

COMPLETED = {
    'from collapsium.pipeline import fit\nfit("corpus", "run", family="lda", ': "inverse_temperature most_active iterations heldout",
    'from collapsium import pipeline\npipeline.fit("corpus", family="hdp", gamma_': "gamma_shape gamma_rate",
    'from collapsium.pipeline import estimate\nestimate("corpus", family="gibbs-hdp", init_': "init_topics",
    'from collapsium.pipeline import ingest\ningest("texts", "corpus", min_': "min_documents min_characters",
    "from collapsium.pipeline.estimators import CollapsedLDA\nCollapsedLDA(": "n_components init inverse_temperature workers",
    "from collapsium.pipeline.estimators import GibbsHDP\nGibbsHDP(gamma_": "gamma_shape gamma_rate",
}

CALLS = {
    'fit("corpus", "run", family="lda", topics=3, alpha=0.1, iterations=5, workers=2)': "",
    'fit("corpus", "run", family="hdp", gamma_shape=1.0)': "",
    'infer("run", "corpus", "out.csv", dense=True)': "",
    'infer("run", "corpus", "out.csv", dence=True)': 'Unexpected keyword argument "dence" for "infer"; did you mean "dense"',
    'infer("run", "corpus", "out.csv", seed="x")': 'Argument "seed" to "infer" has incompatible type',
    'ingest("texts", "corpus", labels=["a"], min_documents="x")': 'No overload variant of "ingest" matches',
    'ingest("texts", "corpus").documents + ingest("texts").manifest.documents': "",
}


def test_the_types__match_the_declarations():
    """`python -m tests.stubs` rewrites the stubs.

    They are made in a new process, as `typing` gives equal choices the order in which this one wrote them first.
    """
    command = [
        sys.executable,
        "-c",
        "import sys; from tests.stubs import stub; sys.stdout.buffer.write(stub().encode())",
    ]
    made = subprocess.run(command, stdout=subprocess.PIPE, cwd=FILE.parents[1], check=True).stdout.decode()
    assert FILE.read_text(encoding="utf-8") == made


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    """Return the messages of mypy by line."""
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
def test_mypy__checks_options(messages, call):
    expected, text = CALLS[call], messages[list(CALLS).index(call) + 2]
    assert (expected in text) if expected else (text == "")


def test_each_family__has_its_options_completed(messages):
    signatures = messages[len(CALLS) + 2]
    lda = signatures.partition("family: Literal['lda'], ")[2].partition("family: ")[0]
    assert ", alpha: " in lda
    assert ", iterations: " in lda
    assert "gamma_shape" not in lda


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """Make a script in an editor that finds the package by its name."""
    folder = tmp_path_factory.mktemp("editor")
    (folder / "collapsium").symlink_to(FILE.parents[1])
    jedi.settings.cache_directory = str(folder / "cache")
    project = jedi.Project(folder, added_sys_path=[str(folder)])
    return lambda text: jedi.Script(text, path=folder / "script.py", project=project)


@pytest.mark.parametrize("text", COMPLETED)
def test_an_editor__completes_options_and_shows_plain_types(script, text):
    found = script(text).complete()
    assert {f"{name}=" for name in COMPLETED[text].split()} <= {completion.name for completion in found}
    signatures = [signature.to_string() for signature in script(text).get_signatures()]
    assert signatures
    assert not any("Annotated" in signature for signature in signatures)


@pytest.mark.parametrize("name", [name for name in pipeline.__all__ if inspect.isfunction(getattr(pipeline, name))])
def test_signatures__have_plain_types(name):
    text = str(inspect.signature(getattr(pipeline, name)))
    assert not any(word in text for word in ("Annotated", "Validator", "Pydantic"))


def test_a_model__completes_what_analysts_need_and_no_internals(script):
    code = 'from collapsium.pipeline import fit\nmodel = fit("corpus", family="lda", topics=3)\nmodel.'
    names = [completion.name for completion in script(code).complete()]
    public = [name for name in names if not name.startswith("_")]
    assert names[: len(public)] == public
    assert {"topics", "documents", "examples", "find", "report", "effects", "save"} <= {*public}
    internals = {*dir(OpenModel)} - {*dir(Model)}
    assert {"rows", "global_state", "local_state"} <= internals
    assert not internals & {*public}


HOVERED = ["fit", "infer", "compare", "Model", "Corpus", "Effects", "ingest"]


@pytest.mark.parametrize("name", HOVERED)
def test_hover_texts__have_plain_types(script, name):
    code = f"from collapsium.pipeline import {name}\n{name}"
    [hovered] = script(code).help(2, len(name))
    assert hovered.docstring()
    assert "Annotated" not in hovered.docstring()


METHODS = ["topics", "examples", "find", "transform", "effects", "report", "save"]


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_a_model__have_plain_signatures_and_texts(script, name):
    code = f'from collapsium.pipeline import Model\nModel("run").{name}('
    signatures = script(code).get_signatures()
    assert signatures
    assert not any("Annotated" in signature.to_string() for signature in signatures)
    assert all(signature.docstring() for signature in signatures)
