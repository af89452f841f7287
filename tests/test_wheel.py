"""The wheel contains every subpackage: installed elsewhere, it ingests the sample texts."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# the environment's editable install has an import finder, which would come first
HIDE_EDITABLE = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in (getattr(f, "__module__", "") or "").lower()]
"""
INGEST = """
import collapsium.pipeline
assert collapsium.pipeline.__file__.startswith(sys.argv[1]), collapsium.pipeline.__file__
collapsium.pipeline.write_sample_texts("texts.jsonl")
print(collapsium.pipeline.ingest("texts.jsonl", "corpus").documents)
"""
FAMILIES = """
from collapsium.pipeline.models.registry import family_names
print(*family_names())
"""


def run(*words, **kwargs):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_wheel__installed_elsewhere_ingests_the_sample_texts(tmp_path):
    source = tmp_path / "source"
    rooms = [path for room in ("pipeline", "workers", "storage") for path in (ROOT / room).rglob("*")]
    wanted = [
        path
        for path in rooms
        if path.suffix in (".py", ".xz", ".yaml") or path.name == "py.typed" or path.parent.name == "templates"
    ]
    for path in [*wanted, ROOT / "pyproject.toml", ROOT / "README.md", ROOT / "LICENSE"]:
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, source)
    wheel = next(tmp_path.glob("*.whl"))
    inside = set(zipfile.ZipFile(wheel).namelist())
    for path in wanted:
        assert f"collapsium/{path.relative_to(ROOT).as_posix()}" in inside, path
    place = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", place, wheel)
    env = {**os.environ, "PYTHONPATH": str(place), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    out = run(sys.executable, "-c", HIDE_EDITABLE + INGEST, place, env=env, cwd=tmp_path)
    assert int(out) == 6859
    out = run(sys.executable, "-c", HIDE_EDITABLE + FAMILIES, env=env, cwd=tmp_path)
    named = (
        "author-topic dirichlet-network gibbs-hdp gibbs-lda gibbs-ncrp hca hdp hdsp keyword-lda labeled-lda lda ncrp "
    )
    named += "partially-labeled-lda segmented-lda sequential-lda vb-lda"
    assert out.split() == named.split()
