"""Time from a command to the first topics, with a cold and a warm cache of machine code, and of other libraries'
scripts.

All read the sample texts, fit 20 topics and print their words. Time is the processor time, user and system, of a
command and its children.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.comparison.libraries import LIBRARIES, installed

if TYPE_CHECKING:
    from tests.benchmarks.results.__main__ import Results

COMMAND = str(Path(sysconfig.get_path("scripts")) / "collapsium")
TOPICS, ROUNDS = 20, 3
STEPS = {
    "help": ("", ["--help"]),
    "ingest": ("corpus", ["ingest", "texts.jsonl", "corpus", "--min-documents", "5", "--max-document-share", "0.2"]),
    "fit": ("run", ["fit", "corpus", "run", "--family", "lda", f"--topics={TOPICS}", "--quiet"]),
    "topics": ("", ["topics", "run"]),
    "report": ("report.html", ["report", "run", "report.html", "--texts", "texts.jsonl"]),
    "infer": ("proportions.parquet", ["infer", "run", "corpus", "proportions.parquet"]),
}
"""What each command writes, and its arguments; the first time, its compiled code is not there yet."""
READING = """
import json
texts = [json.loads(line)["text"] for line in open("texts.jsonl", encoding="utf-8")]
from sklearn.feature_extraction.text import CountVectorizer
vectorizer = CountVectorizer(min_df=5, max_df=0.2, stop_words="english")
counts = vectorizer.fit_transform(texts)
words = vectorizer.get_feature_names_out()
documents = [[words[w] for w, n in zip(row.indices, row.data) for _ in range(n)] for row in counts]
"""
SCRIPTS = {
    "scikit-learn": """
from sklearn.decomposition import LatentDirichletAllocation
model = LatentDirichletAllocation(20, max_iter=100, random_state=0).fit(counts)
print([[words[w] for w in row.argsort()[::-1][:10]] for row in model.components_])
""",
    "gensim": """
from gensim.corpora import Dictionary
from gensim.models import LdaModel
names = Dictionary(documents)
bags = [names.doc2bow(document) for document in documents]
model = LdaModel(bags, 20, id2word=names, passes=20, iterations=400, alpha="auto", eta="auto", random_state=0, eval_every=None)
print(model.print_topics(20))
""",
    "tomotopy": """
import tomotopy
model = tomotopy.LDAModel(k=20, seed=0)
for document in documents:
    model.add_doc(document)
model.train(1000, workers=1)
print([model.get_topic_words(k) for k in range(20)])
""",
}
"""Scripts for the same job, with the passes of each library's own guide, or as many iterations as it needs to be flat."""


def seconds_of(words: list[str], place: str, environment: dict[str, str]) -> tuple[float, float]:
    """Run a command; return its processor time and elapsed time."""
    began, before = time.perf_counter(), os.times()
    subprocess.run(words, cwd=place, env={**os.environ, **environment}, check=True, capture_output=True)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return round(spent, 2), round(time.perf_counter() - began, 2)


def run(out: Path, results: Results) -> None:
    """Measure the commands and scripts that have no record yet."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="collapsium-bench-") as place:
        subprocess.run([COMMAND, "sample-texts", "texts.jsonl"], cwd=place, check=True, capture_output=True)
        environment = {"NUMBA_CACHE_DIR": f"{place}/cache"}
        for name, (written, words) in STEPS.items():
            times = []
            for _ in range(1 + ROUNDS):
                subprocess.run(["rm", "-rf", written or "nothing"], cwd=place, check=True)
                times.append(seconds_of([COMMAND, *words], place, environment))
            (cold, cold_wall), (warm, warm_wall) = times[0], sorted(times[1:])[ROUNDS // 2]
            if not results.has(["commands", name]):
                result = {"cold": cold, "warm": warm, "cold_wall": cold_wall, "warm_wall": warm_wall}
                results.add(["commands", name], result)
                print(f"{name}: {cold} s, then {warm} s", flush=True)
        for name, script in SCRIPTS.items():
            if results.has(["commands", name]) or not installed(LIBRARIES[name].module):
                continue
            alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            spent, passed = seconds_of([sys.executable, "-c", READING + script], place, alone)
            results.add(["commands", name], {"cold": spent, "warm": spent, "cold_wall": passed, "warm_wall": passed})
            print(f"{name}: {spent} s", flush=True)
