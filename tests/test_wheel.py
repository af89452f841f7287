"""The wheel holds every subpackage: it is installed elsewhere and the demo's ingest is run from it."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(*words, **kwargs):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_wheel__installed_elsewhere_ingests_the_demo(tmp_path):
    source = tmp_path / "source"
    tracked = run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).split()
    for name in tracked:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, source)
    wheel = next(tmp_path.glob("*.whl"))
    inside = set(zipfile.ZipFile(wheel).namelist())
    for name in tracked:
        if re.match(r"(pipeline|workers|storage)/.*(\.py|py\.typed)$", name):
            assert f"collapsar/{name}" in inside, name
    place = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", place, wheel)
    code = (
        "import collapsar.pipeline.demonstration as d, sys; assert d.__file__.startswith(sys.argv[1]), d.__file__;"
        "m = d.ingest_docstrings(sys.argv[2]); print(m.documents)"
    )
    # -S -s would hide the requirements too; the wheel's folder only has to come before the editable install.
    env = {**os.environ, "PYTHONPATH": str(place), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    hide = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in getattr(f, '__name__', '').lower() and 'editable' not in getattr(f, '__module__', '').lower()];"
    out = run(sys.executable, "-c", hide + code, place, tmp_path / "corpus", env=env, cwd=tmp_path)
    assert int(out) > 3000
    listed = run(sys.executable, "-c", hide + "from collapsar.pipeline.contract import family_names; print(*family_names())", env=env, cwd=tmp_path)  # fmt: skip
    assert listed.split() == ["hdp", "lda"]
