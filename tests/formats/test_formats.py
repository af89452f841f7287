"""What release 0.1 wrote is opened by this version: corpora, runs, checkpoints, models, comparisons and published versions."""

import json
import tarfile
from pathlib import Path

import pytest

from tests.formats.make import RESUMABLE, RUNS, is_of_vectors, resume, run, score_of, topics_of

HERE = Path(__file__).parent
RELEASES = sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz"))
LATER = {"0.1": {"keyword-lda"}}
"""Families that a release did not have."""
RELATIVE_ERROR = 1e-6  # of sums that other processors add in another order


def figures_of(release):
    return json.loads((HERE / f"{release}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=RELEASES)
def release(request, tmp_path_factory):
    """The number of a release, with its files in the working directory."""
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(HERE / f"{request.param}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield request.param


def test_archives__hold_every_run_of_every_release():
    assert RELEASES[0] == "0.1"
    for number in RELEASES:
        assert figures_of(number).keys() >= RUNS.keys() - LATER[number]
        assert all("score_resumed" in figures_of(number)[name] for name in {*RESUMABLE} - LATER[number])


@pytest.mark.parametrize("name", sorted(RUNS.keys() - set.intersection(*LATER.values())))
def test_run__is_opened_and_continues_as_in_the_release_that_wrote_it(release, name):
    expected = figures_of(release)[name]
    run(f"verify {name}")
    assert json.loads(run(f"info {name} --json"))
    topics = topics_of(name)
    assert [topic["words"] for topic in topics] == [topic["words"] for topic in expected["topics"]]
    shares = [topic["share"] for topic in expected["topics"]]
    assert [topic["share"] for topic in topics] == pytest.approx(shares, rel=RELATIVE_ERROR, abs=RELATIVE_ERROR)
    assert score_of(name) == pytest.approx(expected["score"], rel=RELATIVE_ERROR)
    unseen = "vectors-unseen" if is_of_vectors(name) else "unseen.jsonl"
    run(f"infer {name} {unseen} {name}.parquet --scheduler serial")
    assert Path(f"{name}.parquet").stat().st_size
    if name in RESUMABLE:
        resume(name)
        assert score_of(name) == pytest.approx(expected["score_resumed"], rel=RELATIVE_ERROR)


@pytest.mark.parametrize("corpus", ["texts", "train", "heldout", "vectors"])
def test_corpus__is_opened_and_split(release, corpus):
    run(f"verify {corpus}")
    assert json.loads(run(f"info {corpus} --json"))["documents"]
    run(f"split {corpus} {corpus}-0 {corpus}-1 --documents --fraction 0.5")
    run(f"verify {corpus}-0")


def test_corpus__takes_further_documents(release):
    before = json.loads(run("info texts --json"))["documents"]
    run("append texts unseen.jsonl")
    run("verify texts")
    assert json.loads(run("info texts --json"))["documents"] > before


def test_comparison__is_opened_and_continued(release):
    run("verify comparison")
    cells = json.loads(run("info comparison --json"))["cells"]
    options = "--families lda,gibbs-lda --topics 3 --iterations 2 --restarts 1 --quiet --json"
    rows = json.loads(run(f"compare train comparison --heldout heldout {options}"))["cells"]
    assert {row["cell"]: row["score"] for row in rows} == cells
    run("verify comparison")


def test_batch_job__continues_from_its_published_versions(release):
    assert len(json.loads(run("versions job.toml --json"))) == 2
    for version in ("0001", "0002"):
        run(f"verify job/published/{version}")
        assert topics_of(f"job/published/{version}")
    run("rollback job.toml")
    later = {"id": "later", "text": "gor mit fos " * 9}
    Path("day-3.jsonl").write_text(json.dumps(later) + "\n", encoding="utf-8")
    run("batch job.toml --accept --quiet")
    assert len(json.loads(run("versions job.toml --json"))) == 3
