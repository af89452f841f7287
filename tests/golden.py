"""Compare the results of two installations, bit by bit, on small fits of every family.

``python -m tests.golden record OUT.json`` writes digests of models, proportions, scores and objectives of all cases.
``python -m tests.golden compare OTHER`` runs the cases with this interpreter and with the interpreter OTHER, say from a
worktree of an older commit, and prints each difference. Both run on this machine, because results may differ between
processors. ``--only TEXT`` selects the cases whose names contain it.

The cases are command lines, which change less often than the modules behind them. The installation is found by its
console script, so that the package may have another name.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import random
import re
import shlex
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np

SCRIPT = re.compile(r"(\w+)\.pipeline\.[\w.]+:(?:main|start)")  # the console script's entry point, for any package name
WORDS = [f"{a}{b}{c}" for a in "bdfgklmn" for b in "aeiou" for c in "rst"]
TOPICS = 4
DIAMOND = """
[document]
over = "document"
[author]
over = "label"
field = "tag"
[section]
over = "segment"
parents = ["document", "author"]
"""


def draw_sources(folder: Path) -> None:
    """Write the files that `CORPORA` ingests: texts with labels, a covariate and paragraphs, and vectors."""
    draw = random.Random(20)
    topics = [draw.sample(WORDS, 30) for _ in range(TOPICS)]
    for name, documents in (("train", 150), ("unseen", 40)):
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for number in range(documents):
                document_topics = draw.sample(range(TOPICS), 2)
                paragraphs = [
                    " ".join(
                        draw.choice(topics[document_topics[draw.random() < 0.3]]) for _ in range(draw.randint(4, 14))
                    )
                    for _ in range(draw.randint(1, 4))
                ]
                record = {
                    "id": f"{name}-{number}",
                    "text": "\n\n".join(paragraphs),
                    "stars": document_topics[0] + draw.random(),
                }
                record["tag"] = [f"tag{topic}" for topic in document_topics]
                file.write(json.dumps(record) + "\n")
    (folder / "network.toml").write_text(DIAMOND, encoding="utf-8")
    (folder / "seeds.toml").write_text(f"first = {topics[0][:3]}\nsecond = {topics[1][:3]}\n", encoding="utf-8")
    centres = [[draw.gauss(0, 3) for _ in range(6)] for _ in range(4)]
    with (folder / "vectors.csv").open("w", encoding="utf-8") as file:
        file.write(",".join(f"x{column}" for column in range(6)) + "\n")
        for number in range(200):
            file.write(",".join(f"{value + draw.gauss(0, 0.5):.6f}" for value in centres[number % 4]) + "\n")


CORPORA = (
    "ingest train.jsonl texts --stop-words none --shard-tokens 900 --labels tag --covariates stars",
    "ingest unseen.jsonl unseen --like texts --labels tag --covariates stars",
    "ingest train.jsonl segmented --stop-words none --shard-tokens 900 --labels tag --segments paragraphs",
    "ingest unseen.jsonl segmented-unseen --like segmented --labels tag --segments paragraphs",
    "ingest vectors.csv vectors --format vectors",
    "split texts train heldout --fraction 0.2",
    "split segmented segmented-train segmented-heldout --fraction 0.2",
    "split vectors vectors-train vectors-unseen --documents --fraction 0.2",
)

# The options of `fit` for each case. The first word of a case's name is the kind of its corpus.
CASES = {
    "texts lda": "--family lda --topics 4",
    "texts lda many topics": "--family lda --topics 150",
    "texts lda dense": "--family lda --topics 4 --responsibilities dense",
    "texts lda few active": "--family lda --topics 5 --most-active 2 --momentum 0 --flatten 0.9",
    "texts lda second order": "--family lda --topics 3 --order 2",
    "texts lda learned": "--family lda --topics 4 --learn asymmetric-alpha,beta",
    "texts lda learned second order": "--family lda --topics 3 --order 2 --learn alpha,asymmetric-beta",
    "texts lda stochastic": "--family lda --topics 4 --schedule stochastic --passes 2 --batch-shards 2",
    "texts lda local sweeps": "--family lda --topics 4 --local-sweeps 3",
    "texts lda restarts": "--family lda --topics 4 --restarts 3",
    "texts lda samples": "--family lda --topics 4 --samples 3 --sample-every 2",
    "texts lda best restart": "--family lda --topics 4 --restarts 2 --keep best",
    "texts lda tolerance": "--family lda --topics 4 --tolerance 0.01 --iterations 60",
    "texts lda warm": "--family lda --topics 5 --warm 'texts lda'",
    "texts lda weights": "--family lda --topics 4 --weights log-tf-idf",
    "texts lda seeds": "--family lda --topics 4 --seeds seeds.toml --weights idf",
    "texts lda start": "--family lda --topics 4 --start clusters --start-strength 2",
    "texts lda consensus": "--family lda --topics 4 --restarts 3 --combine consensus",
    "texts hdp": "--family hdp --topics 8",
    "texts hdp start": "--family hdp --topics 6 --start tree --weights entropy",
    "texts hdp consensus": "--family hdp --topics 6 --restarts 2 --combine consensus --seeds seeds.toml",
    "texts hdp many topics": "--family hdp --topics 140 --hold 3",
    "texts hdp dense": "--family hdp --topics 6 --responsibilities dense",
    "texts hdp second order": "--family hdp --topics 5 --order 2 --learn alpha,gamma,pi,beta,tau",
    "texts hdp learned": "--family hdp --topics 5 --hold 0 --learn alpha,gamma,pi,beta,tau",
    "texts hdp moves": "--family hdp --topics 12 --moves true --iterations 110",
    "texts hdp stochastic": "--family hdp --topics 6 --schedule stochastic --passes 2 --batch-shards 2",
    "texts hdp warm": "--family hdp --topics 6 --warm 'texts gibbs-hdp'",
    "texts vb-lda": "--family vb-lda --topics 4",
    "texts vb-lda weights": "--family vb-lda --topics 4 --weights idf --start documents",
    "texts keyword-lda": "--family keyword-lda --topics 4 --seeds seeds.toml --learn asymmetric-alpha",
    "texts vb-lda learned": "--family vb-lda --topics 4 --even-sweeps 4 --learn asymmetric-alpha,beta",
    "texts hdsp": "--family hdsp --topics 6",
    "texts hdsp linear": "--family hdsp --topics 5 --scaling linear --labels tag --covariates stars",
    "texts hdsp from lda": "--family hdsp --topics 5 --initial-topics lda --lda-sweeps 1",
    "texts gibbs-lda": "--family gibbs-lda --topics 4",
    "texts gibbs-lda learned": "--family gibbs-lda --topics 4 --learn asymmetric-alpha,beta",
    "texts gibbs-lda samples": "--family gibbs-lda --topics 4 --samples 3 --sample-every 2",
    "texts gibbs-lda consensus": "--family gibbs-lda --topics 4 --samples 3 --sample-every 2 --combine consensus",
    "texts gibbs-lda warm": "--family gibbs-lda --topics 4 --warm 'texts lda'",
    "texts gibbs-hdp": "--family gibbs-hdp",
    "texts gibbs-hdp many topics": "--family gibbs-hdp --start-topics 40 --learn '[]'",
    "texts labeled-lda": "--family labeled-lda",
    "texts partially-labeled-lda": "--family partially-labeled-lda --topics-per-label 2",
    "texts author-topic": "--family author-topic --topics 4",
    "texts ncrp": "--family ncrp --iterations 24",
    "texts ncrp factorised": "--family ncrp --form factorised --depth 2 --learn alpha,gamma",
    "texts ncrp gradual": "--family ncrp --initial-tree gradual --posterior dirichlet --max-nodes 40 --document-sweeps 3 --new-paths 2",
    "texts ncrp pruned": "--family ncrp --depth 4 --max-nodes 9 --leaves 4 --prune 0.5 --compare false",
    "texts gibbs-ncrp": "--family gibbs-ncrp",
    "texts gibbs-ncrp together": "--family gibbs-ncrp --depth 4 --entry together --eta '[1.0, 0.5, 0.3, 0.2]'",
    "segmented segmented-lda": "--family segmented-lda --topics 4",
    "segmented segmented-lda learned": "--family segmented-lda --topics 4 --learn strength,discount,alpha,beta",
    "segmented sequential-lda": "--family sequential-lda --topics 4",
    "segmented sequential-lda variational": "--family sequential-lda --topics 4 --inference variational",
    "segmented dirichlet-network": "--family dirichlet-network --topics 4 --network network.toml --learn strength,discount",
    "segmented dirichlet-network variational": "--family dirichlet-network --topics 4 --network network.toml --inference variational",
    "vectors hca": "--family hca",
    "vectors hca factorised": "--family hca --form factorised --depth 3 --max-nodes 14",
}
HELDOUT = {"texts": "--heldout heldout", "segmented": "--heldout segmented-heldout", "vectors": ""}
TRAIN = {"texts": "train", "segmented": "segmented-train", "vectors": "vectors-train"}
UNSEEN = {"texts": "unseen", "segmented": "segmented-unseen", "vectors": "vectors-unseen"}
ITERATIONS, RESUMED_AT = 12, 5


def digest(*parts: object) -> str:
    """Return a short digest of arrays, by type, shape and bytes, and of other values, by their JSON text."""
    hashed = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            hashed.update(f"{part.dtype}{part.shape}".encode())
            hashed.update(np.ascontiguousarray(part).tobytes())
        else:
            hashed.update(json.dumps(part, sort_keys=True).encode())
    return hashed.hexdigest()[:16]


class Installation:
    """The installation of this interpreter: the command line's function and the package `pipeline`."""

    def __init__(self) -> None:
        found = [
            (match, script)
            for script in entry_points(group="console_scripts")
            if (match := SCRIPT.fullmatch(script.value))
        ]
        if len(found) != 1:
            raise SystemExit(f"expected one installation, found {[script.value for _, script in found]}")
        ((match, script),) = found
        self.main = script.load()
        self.package = __import__(f"{match[1]}.pipeline", fromlist=["Model"])

    def run(self, line: str, *more: str) -> str:
        """Run a command line and return its output; exit with an error if the command fails."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = self.main([*shlex.split(line), *more])
        if status:
            raise SystemExit(f"exit code {status}: {line}")
        return out.getvalue()


def fit_case(installation: Installation, name: str, options: str) -> dict[str, str]:
    """Fit one case and return its digests."""
    kind = name.split(" ", 1)[0]
    if "--iterations" not in options and "stochastic" not in options:
        options = f"--iterations {ITERATIONS} {options}"
    fit = f"fit {TRAIN[kind]} '{name}' --quiet --seed 3 --scheduler serial {HELDOUT[kind]} {options}"
    installation.run(fit)
    return measure_run(installation, name, kind)


def measure_run(installation: Installation, run: str, kind: str) -> dict[str, str]:
    """Return digests of a run's topics, proportions, scores and objectives."""
    digests = {}
    events = [json.loads(line) for file in sorted(Path(run).rglob("events.jsonl")) for line in file.open()]
    scores = [[event.get("score"), event.get("objective")] for event in events if event["event"] == "iteration"]
    digests["iterations"] = digest(scores)
    digests["topics"] = digest(json.loads(installation.run("topics --json", run)))
    installation.run("infer --dense --scheduler serial", run, UNSEEN[kind], f"{run}.npy")
    digests["infer"] = digest(np.load(f"{run}.npy"))
    if kind == "segmented":
        installation.run("infer --segments --dense --scheduler serial", run, UNSEEN[kind], f"{run}-segments.npy")
        digests["infer_segments"] = digest(np.load(f"{run}-segments.npy"))
    evaluated = json.loads(installation.run("evaluate --json --scheduler serial --unseen", UNSEEN[kind], run))
    digests["evaluate"] = digest({key: value for key, value in evaluated.items() if isinstance(value, float)})
    if kind != "vectors":
        model = installation.package.Model(run)
        digests["topic_word"], digests["document_topic"] = digest(model.topic_word), digest(model.document_topic)
    return digests


def resume_case(installation: Installation, family: str, options: str, kind: str) -> dict[str, str]:
    """Fit some iterations, resume the run, and return its digests."""
    run = f"{kind} {family} resumed"
    fit = f"fit {TRAIN[kind]} '{run}' --quiet --seed 3 --scheduler serial {HELDOUT[kind]} --family {family} {options}"
    installation.run(f"{fit} --iterations {RESUMED_AT}")
    installation.run(f"fit --quiet --iterations {ITERATIONS} --scheduler threads --workers 2 --resume", run)
    return measure_run(installation, run, kind)


RESUMED = (
    ("lda", "--topics 4", "texts"),
    ("hdp", "--topics 8", "texts"),
    ("gibbs-hdp", "", "texts"),
    ("ncrp", "", "texts"),
    ("hdsp", "--topics 5", "texts"),
    ("sequential-lda", "--topics 4", "segmented"),
    ("hca", "", "vectors"),
)


def record(out: Path, only: str) -> None:
    """Run all cases whose names contain `only`, and write their digests."""
    installation, results = Installation(), {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        draw_sources(Path())
        for line in CORPORA:
            installation.run(line)
        needed = {
            case for case, options in CASES.items() for name in CASES if f"'{case}'" in CASES[name] and only in name
        }
        for name, options in sorted(CASES.items(), key=lambda item: "--warm" in item[1]):
            if only in name or name in needed:
                results[name] = fit_case(installation, name, options)
                print(name, *results[name].values(), file=sys.stderr, flush=True)
        for family, options, kind in RESUMED:
            if only in (name := f"{kind} {family} resumed"):
                results[name] = resume_case(installation, family, options, kind)
                print(name, *results[name].values(), file=sys.stderr, flush=True)
    out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def compare(other: str, only: str) -> int:
    """Run all cases with another interpreter and with this one; print the differences and return their number."""
    with tempfile.TemporaryDirectory() as folder:
        results = []
        for number, interpreter in enumerate((other, sys.executable)):
            file = Path(folder) / f"{number}.json"
            subprocess.run([interpreter, __file__, "record", str(file), "--only", only], check=True)
            results.append(json.loads(file.read_text(encoding="utf-8")))
    before, after = results
    differences = [
        f"{case}: {what} differs"
        for case in sorted(before.keys() | after.keys())
        for what in sorted(before.get(case, {}).keys() | after.get(case, {}).keys())
        if before.get(case, {}).get(what) != after.get(case, {}).get(what)
    ]
    print(*differences, f"{len(before)} and {len(after)} cases, {len(differences)} differences", sep="\n")
    return len(differences)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(required=True, dest="action")
    for action, argument in (("record", "out"), ("compare", "other")):
        chosen = actions.add_parser(action)
        chosen.add_argument(argument)
        chosen.add_argument("--only", default="", metavar="TEXT", help="cases whose names contain this")
    args = parser.parse_args()
    if args.action == "record":
        record(Path(args.out).resolve(), args.only)
        return 0
    return min(compare(args.other, args.only), 1)


if __name__ == "__main__":
    raise SystemExit(main())
