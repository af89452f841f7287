"""The main job on whatever versions are installed: the demonstration, then each format on disk and each optional library once.

``python -m tests.main_job FOLDER [FEATURE ...]`` runs it with the commands of this interpreter, each warning of ours an
error. Features name what else is installed: the extras of pyproject.toml.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

TEXTS = [
    {"id": f"d{n}", "text": f"{'rivers lakes oceans' if n % 2 else 'kernels threads queues'} word{n % 5} again " * 4}
    | {"kind": "water" if n % 2 else "code", "stars": n % 5, "day": f"2024-{n % 12 + 1:02d}-03"}
    for n in range(40)
]

COMMANDS = """
simulate vectors --family hca --documents 60 --words 6 --set depth=2
split vectors seen unseen --documents
fit seen tree --family hca --set depth=2 --iterations 4 --quiet
verify tree
infer tree unseen unseen.parquet
ingest texts.jsonl texts --labels kind --covariates stars --date day --segments sentences
append texts more.jsonl
split texts train held
fit train run --family hdp --topics 6 --iterations 8 --heldout held --restarts 2 --quiet
fit train network --family labeled-lda --iterations 5 --quiet
verify texts
verify run
evaluate run --heldout held
evaluate run --unseen more.jsonl
infer run more.jsonl more.csv --dense
predict network held kinds.parquet --field kind
topics run
report run run.html
export run tables --to csv
export run/members/001 page.json --to pyldavis
fit train fast --family lda --topics 4 --iterations 4 --scheduler local --workers 2 --quiet
fit train warm --family lda --topics 4 --iterations 4 --warm fast --quiet
info warm
infer fast train theta.parquet
fit train started --family lda --topics 4 --iterations 2 --init theta.parquet --init-strength 20 --quiet
fit train clustered --family lda --topics 4 --iterations 2 --init clusters --scheduler local --workers 2 --quiet
"""

FEATURES = {
    "normalise": [
        "ingest texts.jsonl stems --normalise stem:english",
        "ingest texts.jsonl lemmas --normalise lemma:en",
    ],
    "plots": ["plot run run.svg", "topics tree --picture tree.png"],
    "text": ["ingest texts.jsonl words --stop-words de"],
}

SCRIPTS = {
    "pandas": "from collapsium.pipeline import Model; m = Model('run'); print(m.topics()); print(m.document_topics().head())",
    "sklearn": (
        "import numpy as np; from collapsium.pipeline import estimators; "
        "print(estimators.CollapsedLDA(3, max_iter=3).fit_transform(np.eye(6, dtype=int) * 3).shape)"
    ),
    "s3": "import s3fs; from collapsium.storage.io.folder import Folder; Folder('s3://bucket/corpus')",
    "mlflow": "from collapsium.pipeline.monitoring.mlflow_callback import MLflow; print(MLflow)",
}


def main(folder, features):
    """Run everything; the first failure ends it."""
    place = Path(folder)
    place.mkdir(parents=True)
    for name, rows in (("texts", TEXTS[:30]), ("more", TEXTS[30:])):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    commands = COMMANDS.strip().splitlines()
    commands += [line for name in features for line in FEATURES.get(name, ())]
    commands.append("demo demo")
    for line in commands:
        _run(line, [sys.executable, "-m", "collapsium.pipeline", *line.split()], place)
    scripts = [SCRIPTS[name] for name in features if name in SCRIPTS]
    for script in scripts:
        _run(script, [sys.executable, "-c", script], place)
    print(f"{len(commands) + len(scripts)} passed, 0 failed")


def _run(title, words, place):
    print(f"== {title}", flush=True)
    done = subprocess.run(words, cwd=place, env={**os.environ, "NO_COLOR": "1"}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout[-2000:]}{done.stderr[-4000:]}\nexit code {done.returncode}: {title}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
