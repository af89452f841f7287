"""Batch jobs of ensembles, samples and vectors: publishing, warm starts, kills and rollbacks."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr

from collapsium.pipeline import Model, batch, evaluate, name_topics, rollback, topics, verify, versions
from collapsium.pipeline.analysis.scoring import complete
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.workflows.batch.job_file import read_job
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.runs.members import leaves, member_seed
from collapsium.storage.runs.run import Run
from tests.fits import bits
from tests.pipeline.workflows.conftest import JOB, WORDS, write_day
from tests.pipeline.workflows.test_batch import STEPS

QUICK = JOB.replace("iterations = 30", "iterations = 6")
KINDS = {
    "restarts": QUICK + "[report]\nenabled = false\n",
    "samples": QUICK + "[report]\nenabled = false\n",
    "vectors": """[batch]
folder = "job"
[ingest]
sources = ["day-*.csv"]
id = "id"
labels = "kind"
shard_tokens = 60
[heldout]
fraction = 0.2
[fit]
family = "hca"
depth = 2
iterations = 4
[report]
enabled = false
[cluster]
scheduler = "serial"
""",
}
KINDS["restarts"] = KINDS["restarts"].replace('"lda"', '"lda"\nrestarts = 2')
CONSENSUS = KINDS["restarts"].replace("restarts = 2", 'restarts = 2\ncombine = "consensus"')
KINDS["samples"] = KINDS["samples"].replace('"lda"', '"gibbs-lda"\nsamples = 2\nsample_every = 2')


def write_vectors_of(folder, day, count=20, scale=1.0):
    """Write a day's vectors near a line, with an id and a label each."""
    generator = np.random.default_rng(day)
    values = scale * generator.normal(size=(count, 1)) * [1.0, 2.0, 3.0] + generator.normal(size=(count, 3)) / 9
    rows = [f"{day}-{n},k{n % 2}," + ",".join(map(repr, map(float, row))) for n, row in enumerate(values)]
    (folder / f"day-{day}.csv").write_text("id,kind,a,b,c\n" + "\n".join(rows) + "\n")


def write(folder, kind, day, count):
    (write_vectors_of if kind == "vectors" else write_day)(folder, day, count)


def published(job):
    """Return the current version without its date: the record, all models, and the proportions."""
    place = job.parent / "job/published/current"
    record = {**json.loads((place / "version.json").read_text()), "created": "", "sha256": "", "plan": ""}
    arrays = [(name, bits(Model(url), len(Model(url).record.shards))) for name, url in leaves(place)]
    return record, arrays, pq.read_table(place / "proportions.parquet").to_pydict()


class Killed(BaseException):
    """Ends a job at once, like a power cut."""


@pytest.fixture(scope="module", params=sorted(KINDS))
def days(request, tmp_path_factory):
    """For each kind of job: a job whose first day is published, and the result of an uninterrupted second day."""
    kind = request.param
    place = tmp_path_factory.mktemp(kind)
    write(place, kind, 1, 20)
    (place / "job.toml").write_text(KINDS[kind])
    batch(place / "job.toml")
    before = shutil.copytree(place, tmp_path_factory.mktemp("before") / "job")
    write(place, kind, 2, 10)
    outcome = batch(place / "job.toml")
    return kind, before, outcome, published(place / "job.toml"), place


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS[1:])
def test_a_job_killed_at_any_step__ends_with_the_same_bits(days, tmp_path, step):
    kind, before, _, expected, _ = days
    job = shutil.copytree(before, tmp_path / "place") / "job.toml"
    write(job.parent, kind, 2, 10)

    def sink(event):
        if event["event"] == "step" and (event["step"], event["done"]) == (step, True):
            raise Killed
        if step == "fit" and event["event"] == "iteration" and event["iteration"] == 2 and event.get("member") != 0:
            raise KeyboardInterrupt

    with pytest.raises((Killed, KeyboardInterrupt)):
        batch(job, sinks=[sink])
    assert batch(job).version == 2
    assert published(job) == expected
    assert batch(job).outcome == "nothing-new"


def test_a_version__has_all_its_models_and_is_scored_by_their_mean(days):
    kind, _, outcome, (record, arrays, proportions), place = days
    folder, cycle = place / "job/published/0002", place / "job/cycles/0002"
    assert (outcome.outcome, outcome.documents, outcome.new_documents) == ("published", 30, 10)
    assert [name for name, _ in arrays] == ([""] if kind == "vectors" else ["000", "001"])
    assert arrays[0] != arrays[-1] or kind == "vectors"
    assert not list(folder.rglob("checkpoints"))
    assert verify(folder).broken == []
    assert len(topics(folder)) >= 1
    assert len(proportions["id"]) == Corpus(cycle / "train").manifest.documents
    assert record["holds"] == ("vectors" if kind == "vectors" else "documents")
    if kind == "vectors":
        found = evaluate(folder, unseen=cycle / "heldout")
        assert (record["score"], record["scored"]) == (found.reconstruction_error, found.documents)
        assert (
            record["previous"]["score"]
            == evaluate(place / "job/published/0001", unseen=cycle / "heldout").reconstruction_error
        )
        assert "error" in outcome.line()
        assert record["warm"] is None
        return
    found = evaluate(folder, heldout=cycle / "heldout")
    assert record["score"] == pytest.approx(found.score)
    assert [member["score"] for member in record["members"]] == pytest.approx(
        [member.score for member in found.members]
    )
    assert "of an ensemble" in record["definition"]
    assert f"2 models, score {record['score']:.4f} nats over {record['scored']:,} held-out tokens" in outcome.line()


def test_the_next_version__starts_from_the_end_of_the_one_before(days):
    kind, _, _, (record, _, _), place = days
    run = place / "job/cycles/0002/run"
    if kind == "restarts":
        for number in range(2):
            member = Run(run / f"members/00{number}").record()
            assert member["warm"]["url"].endswith(f"cycles/0001/run/members/00{number}/model")
            assert member["seed"] == member_seed(0, number)
        assert record["warm"] == 1
    elif kind == "samples":
        assert Run(run).record()["warm"]["url"].endswith("cycles/0001/run/model")
        # 2.4 iterations are too few for two samples
        assert [Model(url).record.iterations for _, url in leaves(run)] == [1, 3]
    else:
        assert "warm" not in Run(run).record()


def test_after_a_rollback__the_next_version_starts_from_the_current_one(days, tmp_path):
    kind, _, _, _, place = days
    job = shutil.copytree(place, tmp_path / "place", symlinks=True) / "job.toml"
    assert rollback(job) == 1
    write(job.parent, kind, 3, 5)
    assert batch(job).version == 3
    record = versions(job)[-1][0]
    assert record.previous["version"] == 1
    if kind == "restarts":  # the run is missing, but the published members exist
        member = Run(job.parent / "job/cycles/0003/run/members/001").record()
        assert member["warm"]["url"].endswith("published/0001/members/001/model")
    assert record.warm == (None if kind == "vectors" else 1)


@pytest.mark.parametrize("days", ["restarts"], indirect=True)
def test_another_number_of_restarts__starts_anew(days, tmp_path):
    _, before, *_ = days
    job = shutil.copytree(before, tmp_path / "place") / "job.toml"
    job.write_text(KINDS["restarts"].replace("restarts = 2", "restarts = 3"))
    found = batch(job)
    assert (found.version, len(found.members), versions(job)[-1][0].warm) == (2, 3, None)
    assert any("has 2 members, but 3 restarts" in text for text in found.notices)


@pytest.mark.parametrize("days", ["restarts"], indirect=True)
def test_a_version_of_restarts__has_the_mean_of_their_proportions(days):
    _, _, _, (_, _, proportions), place = days
    model = Model(place / "job/published/current")
    assert len(model.members) == 2
    found = [
        dict(zip(*row, strict=True)) for row in zip(proportions["topics"], proportions["proportions"], strict=True)
    ]
    for shares, theta in zip(found, model.document_topic, strict=True):
        assert shares == pytest.approx({topic: theta[topic] for topic in shares}, abs=1e-6)


def test_versions_of_a_consensus__are_scored_by_it_and_carry_names_over(tmp_path):
    """A job that is killed in the last fit ends with the same bits."""
    first = tmp_path / "whole"
    first.mkdir()
    (first / "job.toml").write_text(CONSENSUS)
    write_day(first, 1, 20)
    assert batch(first / "job.toml").outcome == "published"
    name_topics(first / "job/published/current", lambda words, texts: words[0].upper())
    shutil.copytree(first, tmp_path / "killed", symlinks=True)
    for place, killed in (("whole", False), ("killed", True)):
        current = tmp_path / f"{place}/job/published/current"
        names = Model(current).topic_names
        write_day(tmp_path / place, 2, 10)

        def sink(event, killed=killed):
            if killed and event["event"] == "iteration" and "member" not in event:
                raise KeyboardInterrupt

        if killed:
            with pytest.raises(KeyboardInterrupt):
                batch(tmp_path / f"{place}/job.toml", sinks=[sink])
        outcome = batch(tmp_path / f"{place}/job.toml")
        assert (outcome.version, outcome.members) == (2, ())
        record = json.loads((current / "version.json").read_text())
        kept = Model(current).topic_names
        assert kept == {topic: name for topic, name in names.items() if topic not in record["gone"]}
        assert all(topic.support is not None for topic in topics(current))
        assert record["warm"] == 1
        assert verify(current).broken == []
    for name in ("", "members/000", "members/001"):
        model, resumed = (Model(tmp_path / place / "job/published/current" / name) for place in ("whole", "killed"))
        assert bits(model, len(model.record.shards)) == bits(resumed, len(resumed.record.shards))


def test_a_job_with_an_initialisation__equals_new_fits(tmp_path):
    text = QUICK.replace(
        '"lda"', '"lda"\nstart = "documents"\nstart-strength = 2.0\nweights = "weights.csv"'
    )  # names of 0.1
    write_day(tmp_path, 1, 20)
    (tmp_path / "weights.csv").write_text(f"word,weight\n{WORDS[0]},0.5\n")
    (tmp_path / "job.toml").write_text(text)
    assert batch(tmp_path / "job.toml").outcome == "published"
    record = Run(tmp_path / "job/published/current").record()
    assert record["start"] == {"kind": "documents", "strength": 2.0}
    assert record["options"]["weights"] is not None
    write_day(tmp_path, 2, 10)
    assert batch(tmp_path / "job.toml").version == 2
    assert "start" not in Run(tmp_path / "job/published/current").record()


@pytest.mark.parametrize("days", ["restarts"], indirect=True)
def test_the_prediction_of_known_words__is_the_mean_over_the_members(days):
    """A model that is counted twice predicts like the model by itself, for any scored words."""
    *_, place = days
    parts = [place / f"job/cycles/0002/{name}" for name in ("train", "heldout")]
    run = place / "job/cycles/0002/run"
    for words in (None, 9):
        alone = [complete(run / f"members/00{n}", *parts, words=words) for n in range(2)]
        mean = complete(run, *parts, words=words)
        assert [member.score for member in mean.members] == [score.score for score in alone]
        assert min(score.score for score in alone) <= mean.score
        assert mean.tokens == alone[0].tokens


def test_worse_vectors__raise_the_alarm(tmp_path, capsys):
    write_vectors_of(tmp_path, 1, 40)
    job = tmp_path / "job.toml"
    job.write_text(KINDS["vectors"])
    batch(job)
    job.write_text(KINDS["vectors"].replace("depth = 2", "depth = 1\nsplit = false\nmax_nodes = 1"))
    assert main(["batch", str(job), "--quiet", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["score"] > found["previous_score"]
    assert (found["outcome"], found["holds"], found["version"]) == ("alarm", "vectors", 1)
    assert batch(job, accept=True).version == 2


def test_zarr_arrays_as_sources__count_as_single_files(tmp_path):
    (tmp_path / "incoming").mkdir()
    generator = np.random.default_rng(1)
    for day in (1, 2):
        zarr.save_array(str(tmp_path / f"incoming/day-{day}.zarr"), generator.normal(size=(15, 3)))
        (tmp_path / "job.toml").write_text(
            KINDS["vectors"].replace("day-*.csv", "incoming").replace('id = "id"\nlabels = "kind"\n', "")
        )
        assert batch(tmp_path / "job.toml").documents == 15 * day
    assert batch(tmp_path / "job.toml").outcome == "nothing-new"
    shutil.rmtree(tmp_path / "incoming/day-1.zarr")
    found = batch(tmp_path / "job.toml")
    assert ["day-1.zarr" in text for text in found.notices] == [True]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (QUICK.replace('"lda"', '"lda"\nsamples = 2'), "'samples': 2 requires 'sample_every'"),
        (KINDS["samples"].replace("sample_every = 2", "sample_every = 9"), "requires more than 9 iterations, found 6"),
        (
            KINDS["samples"].replace("sample_every", "tolerance = 0.1\nsample_every"),
            "cannot be combined with 'tolerance'",
        ),
        (KINDS["restarts"].replace("restarts = 2", "restarts = -1"), "'restarts'"),
        (KINDS["restarts"].replace("restarts = 2", 'keep = "best"'), "set 'restarts' to fit several seeds"),
        (KINDS["vectors"].replace("id =", 'format = "csv"\nid ='), "'hca' takes vectors, found 'csv'"),
        (QUICK.replace("shard_tokens", 'format = "vectors"\nshard_tokens'), "'lda' takes documents, found 'vectors'"),
        (QUICK.replace('"lda"', '"lda"\ncombine = "consensus"'), "requires 2 models or more"),
        (CONSENSUS.replace("restarts = 2", 'restarts = 2\nkeep = "best"'), "cannot be combined with 'keep' 'best'"),
        (QUICK.replace('"lda"', '"lda"\ninit = "cluster"'), "did you mean 'clusters'"),
        (QUICK.replace('"lda"', '"lda"\ninit = "gone.parquet"'), "gone.parquet"),
        (QUICK.replace('"lda"', '"lda"\ninit_strength = 2.0'), "random proportions are not a prior"),
        (KINDS["vectors"].replace("id =", "grow = true\nid ="), "the columns of vectors are fixed"),
    ],
)
def test_options_that_a_kind_of_job_does_not_support__are_refused_before_anything_runs(tmp_path, capsys, text, where):
    (tmp_path / "job.toml").write_text(text)
    assert main(["batch", str(tmp_path / "job.toml")]) != 0
    error = capsys.readouterr().err
    assert where in error
    assert error.count("\n") == 1
    assert not (tmp_path / "job").exists()


def test_fits_of_vectors_and_samples__have_no_tolerance_by_default(tmp_path):
    found = {}
    for kind, text in {**KINDS, "plain": QUICK}.items():
        (tmp_path / f"{kind}.toml").write_text(text)
        job = read_job(tmp_path / f"{kind}.toml")
        found[kind] = (job.limits.get("tolerance"), job.begins_warm, job.limits_when(True)["iterations"])
    assert found == {
        "plain": (0.01, True, 2),
        "restarts": (0.01, True, 2),
        "samples": (None, True, 3),
        "vectors": (None, False, 1),
    }
