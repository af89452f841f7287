"""Make the archive of everything that a release writes, and what it reads from it: `python -m tests.formats.make`.

`tests/formats/VERSION.tar.xz` holds corpora, runs with checkpoints and models of every family, an ensemble, samples, a
comparison, and the folder of a batch job with two published versions. `VERSION.json` has what this release prints of them.
Both are made once, as a release is made, and never again: later releases must open them.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from collapsium.pipeline.cli.main import main as command
from collapsium.pipeline.models.registry import family_names
from tests.golden import draw_sources

HERE = Path(__file__).parent
ITERATIONS, RESUMED_TO = 3, 6
WORDS_OF_TOPIC = 3
DOCUMENTS, UNSEEN_DOCUMENTS, VECTORS = 30, 10, 40
"""Few, so that the archive stays small: lines of the sources that are drawn for the golden fits."""

CORPORA = (
    "ingest texts.jsonl texts --stop-words none --min-documents 1 --shard-tokens 500 --labels tag --covariates stars --segments paragraphs",
    "split texts train heldout --fraction 0.2",
    "ingest vectors.csv all-vectors --format vectors",
    "split all-vectors vectors vectors-unseen --documents --fraction 0.2",
)
OPTIONS = {
    "author-topic": "--topics 3",
    "dirichlet-network": "--topics 3 --network network.toml",
    "hca": "--depth 2",
    "hdp": "--topics 5",
    "hdsp": "--topics 4",
    "lda": "--topics 3",
    "gibbs-lda": "--topics 3",
    "segmented-lda": "--topics 3",
    "sequential-lda": "--topics 3",
    "vb-lda": "--topics 3",
}
RUNS = {
    **{name: f"--family {name} {OPTIONS.get(name, '')}" for name in family_names()},
    "ensemble": "--family lda --topics 3 --restarts 2",
    "samples": "--family gibbs-lda --topics 3 --samples 2 --sample-every 1",
    "stochastic": "--family lda --topics 3 --schedule stochastic --batch-shards 2 --passes 1",
    "variational": "--family sequential-lda --topics 3 --inference variational",
}
RESUMABLE = sorted(RUNS.keys() - {"ensemble", "samples", "stochastic"})
JOB = """
[batch]
folder = "job"
[ingest]
sources = ["day-*.jsonl"]
min_documents = 1
[fit]
family = "lda"
topics = 3
iterations = 2
"""


def run(line: str, *more: str) -> str:
    """Run a command line in this process and return what it prints."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            status = command([*line.split(), *more])
        except SystemExit as end:  # wrong usage
            status = end.code
    if status:
        raise RuntimeError(f"exit code {status}: collapsium {line}\n{errors.getvalue()}")
    return out.getvalue()


def is_of_vectors(name: str) -> bool:
    """Return whether a run was fitted to vectors."""
    return name == "hca"


def draw_small_sources(folder: Path) -> None:
    """Write the sources of the archive: texts, unseen texts, vectors, a network, and a batch job."""
    draw_sources(folder)
    for source, target, lines in (
        ("train.jsonl", "texts.jsonl", DOCUMENTS),
        ("unseen.jsonl", "unseen.jsonl", UNSEEN_DOCUMENTS),
        ("vectors.csv", "vectors.csv", VECTORS + 1),
    ):
        rows = (folder / source).read_text(encoding="utf-8").splitlines(keepends=True)[:lines]
        (folder / target).write_text("".join(rows), encoding="utf-8")
    (folder / "train.jsonl").unlink()
    (folder / "job.toml").write_text(JOB, encoding="utf-8")


def make_everything() -> None:
    """Write, into the working directory, one of each kind of folder that the program writes."""
    draw_small_sources(Path())
    for line in CORPORA:
        run(line)
    for name, options in RUNS.items():
        where, limit = "--quiet --seed 1 --scheduler serial", f"--iterations {ITERATIONS}"
        if "stochastic" in options:
            limit = ""
        run(f"fit {'vectors' if is_of_vectors(name) else 'train'} {name} {where} {limit} {options}")
    run(
        "compare train comparison --heldout heldout --families lda,gibbs-lda --topics 3 --iterations 2 --restarts 1 --quiet"
    )
    for number, source in enumerate(("texts.jsonl", "unseen.jsonl"), 1):
        shutil.copy(source, f"day-{number}.jsonl")
        run("batch job.toml --accept --quiet")


def score_of(name: str) -> float:
    """Return the score of a run's held-out tokens, or the error that its model leaves of held-out vectors."""
    corpus = "--unseen vectors-unseen" if is_of_vectors(name) else "--heldout heldout"
    evaluation = json.loads(run(f"evaluate {name} --json --scheduler serial {corpus}"))
    return float(evaluation["reconstruction_error" if is_of_vectors(name) else "score"])


def topics_of(name: str) -> list[dict[str, object]]:
    """Return the share and the first words of each topic of a run."""
    topics = json.loads(run(f"topics {name} --json --words {WORDS_OF_TOPIC}"))
    return [{"share": topic["share"], "words": [word["word"] for word in topic["words"]]} for topic in topics]


def resume(name: str) -> None:
    """Resume a run in the working directory, next to its corpus."""
    corpus = "vectors" if is_of_vectors(name) else "train"
    run(f"fit {corpus} --resume {name} --quiet --iterations {RESUMED_TO} --scheduler serial")


def main() -> None:
    """Write the archive and the figures of the installed version."""
    release = ".".join(version("collapsium").split(".")[:2])
    with tempfile.TemporaryDirectory(prefix="collapsium-") as folder, contextlib.chdir(folder):
        make_everything()
        with tarfile.open(HERE / f"{release}.tar.xz", "w:xz") as archive:
            for path in sorted(Path().iterdir()):
                archive.add(path)
        figures: dict[str, dict[str, object]] = {
            name: {"score": score_of(name), "topics": topics_of(name)} for name in RUNS
        }
        for name in RESUMABLE:
            resume(name)
            figures[name]["score_resumed"] = score_of(name)
    text = json.dumps(figures, indent=1, sort_keys=True)
    (HERE / f"{release}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
