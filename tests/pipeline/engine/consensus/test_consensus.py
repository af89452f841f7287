"""Members combined into one consensus model, with the same bits everywhere and after every stop."""

import functools
import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from collapsium.pipeline import Corpus, Model, evaluate, export, fit, infer, info, report, resume, topics, verify
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.engine.consensus import join
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.pipeline.models.topics import same_topics
from collapsium.storage.errors import AbsentError, OptionError, TakenOverError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump
from collapsium.storage.io.run_lock import RunLock, file_of
from collapsium.storage.runs.members import members_of
from collapsium.storage.runs.run import Run
from collapsium.storage.runs.topic_names import TopicName, read_names, write_names
from collapsium.workers.arrays.random_streams import Stream
from tests.chaos.operations import files_of
from tests.conftest import mark_rest_long
from tests.fits import bits, interrupt_and_resume, resumed
from tests.pipeline.engine.conftest import ENSEMBLE_OPTIONS
from tests.pipeline.engine.model_io.test_checkpoints import StoppedError, events_of

OPTIONS = {**ENSEMBLE_OPTIONS, "seed": 4, "restarts": 3, "combine": "consensus"}


@pytest.fixture(scope="module")
def consensus(small, tmp_path_factory):
    """A finished consensus of three."""
    place = tmp_path_factory.mktemp("consensus") / "run"
    fit(small[0], place, heldout=small[1], scheduler="serial", **OPTIONS)
    return place


def assert_same(run, expected):
    """Require that two consensus runs, their members and their events are the same."""
    for place in ("", "members/000", "members/001", "members/002"):
        assert bits(Model(run / place)) == bits(Model(expected / place))
    recorded = [[event for event in events_of(place) if event["event"] != "notice"] for place in (run, expected)]
    members = [sorted((e for e in events if e["event"] == "member"), key=lambda e: e["member"]) for events in recorded]
    assert members[0] == members[1]
    rest = [[event for event in events if event["event"] not in ("member", "cluster")] for events in recorded]
    assert rest[0] == rest[1]


# Bits ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", mark_rest_long([3, 1, 8]))
def test_a_consensus__has_the_same_bits_with_any_number_of_threads(small, consensus, tmp_path, workers):
    fit(small[0], tmp_path / "run", heldout=small[1], workers=workers, **OPTIONS)
    assert_same(tmp_path / "run", consensus)


@pytest.mark.long
@pytest.mark.xdist_group("clusters")
def test_a_consensus__has_the_same_bits_on_a_cluster(small, consensus, tmp_path, clusters):
    fit(small[0], tmp_path / "run", heldout=small[1], scheduler=clusters(3), **OPTIONS)
    assert_same(tmp_path / "run", consensus)


def is_iteration(number, member=None):
    return lambda event: event["event"] == "iteration" and (event.get("member"), event["iteration"]) == (member, number)


STOPS = {
    "in a member": is_iteration(3, 1),
    "after the last member": lambda event: event["event"] == "member" and event["member"] == 2,
    "after joining": lambda event: event["event"] == "notice" and event["text"].startswith("matched"),
    "after the first iteration": is_iteration(1),
    "in the last fit": is_iteration(4),
    "after the last iteration": is_iteration(6),
}


def test_a_consensus_that_is_stopped_repeatedly__ends_with_the_same_bits(small, consensus, tmp_path):
    run = tmp_path / "run"
    start = functools.partial(fit, small[0], run, heldout=small[1], scheduler="serial", **OPTIONS)
    for _ in interrupt_and_resume(run, STOPS.values(), start, scheduler="serial"):
        assert verify(run).broken == []
        assert not (run / "model").exists()
    assert_same(run, consensus)
    assert verify(run).broken == []


@pytest.mark.long
@pytest.mark.parametrize("kind", [KeyboardInterrupt, StoppedError])
@pytest.mark.parametrize("stop", STOPS)
def test_a_consensus_that_was_stopped__ends_with_the_same_bits(small, consensus, tmp_path, stop, kind):
    def sink(event):
        if STOPS[stop](event):
            raise kind("on purpose")

    with pytest.raises(kind):
        fit(small[0], tmp_path / "run", heldout=small[1], sinks=[sink], scheduler="serial", **OPTIONS)
    assert verify(tmp_path / "run").broken == []
    assert not (tmp_path / "run/model").exists()
    resumed(tmp_path / "run")
    assert_same(tmp_path / "run", consensus)
    assert verify(tmp_path / "run").broken == []


def test_a_consensus_whose_process_was_killed__ends_with_the_same_bits(consensus, tmp_path):
    """The process is killed before the model is written, before the end is reported, or before any checkpoint."""
    run = shutil.copytree(consensus, tmp_path / "run")
    shutil.rmtree(run / "model")
    resume(run)
    assert_same(run, consensus)
    Run(run).replace_events([event for event in Run(run).events() if event["event"] != "end"])
    resume(run)
    assert_same(run, consensus)
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "checkpoints")
    events = [event for event in Run(run).events() if event["event"] not in ("end", "iteration")]
    Run(run).replace_events(events)
    resume(run, workers=3)
    assert_same(run, consensus)


@pytest.mark.parametrize("finished", [False, True])
def test_a_consensus_without_a_valid_checkpoint__is_combined_again(consensus, tmp_path, finished):
    run = shutil.copytree(consensus, tmp_path / "run")
    if not finished:
        shutil.rmtree(run / "model")
    Run(run).replace_events([event for event in Run(run).events() if event["event"] != "end"])
    for place in (run / "checkpoints").glob("0*/rows/00000/digests.json"):
        place.write_bytes(place.read_bytes()[:-9])
    events = []
    resume(run, sinks=[events.append])
    assert any("its members are joined again" in event.get("text", "") for event in events)
    assert_same(run, consensus)


@pytest.mark.parametrize("stop", mark_rest_long(list(STOPS), retained=(0, 5)))
def test_a_consensus_whose_lock_was_taken_over__ends_and_writes_nothing(small, consensus, tmp_path, stop):
    run, before = tmp_path / "run", {}

    def sink(event):
        if STOPS[stop](event) and not before:
            successor = RunLock(Folder(run / "lock"))
            successor.generation = 9
            Folder(run / "lock").write(file_of(9), dump(successor._record()))
            before.update(files_of(run))

    with pytest.raises(TakenOverError):
        fit(small[0], run, heldout=small[1], sinks=[sink], scheduler="serial", checkpoint_every=1, **OPTIONS)
    # A member of the suspended process may still write until it checks the ensemble's lock.
    after = {file: data for file, data in files_of(run).items() if not file.startswith("members/")}
    assert after == {file: data for file, data in before.items() if not file.startswith("members/")}
    shutil.rmtree(run / "lock")
    resume(run)
    assert_same(run, consensus)


def test_a_finished_consensus__is_not_changed_by_resume(consensus, tmp_path):
    run = shutil.copytree(consensus, tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file() and path.name != "lock"}
    resume(run)
    assert all(path.stat().st_mtime_ns == at for path, at in before.items())


def test_more_iterations__continue_the_members_and_combine_them_again(small, consensus, tmp_path):
    run = shutil.copytree(consensus, tmp_path / "run")
    resume(run, iterations=8)
    fit(small[0], tmp_path / "anew", heldout=small[1], **{**OPTIONS, "iterations": 8})
    assert bits(Model(run)) == bits(Model(tmp_path / "anew"))
    assert Model(run).record.iterations == 8
    assert verify(run).broken == []


def test_more_iterations__keep_the_consensus_and_the_names_of_its_topics(consensus, tmp_path):
    run = shutil.copytree(consensus, tmp_path / "run")
    # Names follow the words of topics, even if their ids change in the next consensus.
    named = {topic.id: TopicName(id=topic.id, name=f"mine {topic.id}", by="hand") for topic in topics(run)}
    write_names(Folder(run / "model"), Model(run).record, named.values())

    def sink(event):
        if is_iteration(7, 1)(event):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resume(run, iterations=8, sinks=[sink], scheduler="serial")
    assert Model(run).record.iterations == 6
    assert verify(run).broken == []
    resume(run, iterations=8, scheduler="serial")
    assert Model(run).record.iterations == 8
    before, after = Model(consensus), Model(run)
    same = same_topics(after, before)
    assert len(same) == 3
    assert read_names(after.folder, after.record) == {
        joined_topic: named[earlier_topic].model_copy(update={"id": joined_topic})
        for joined_topic, earlier_topic in same.items()
    }


def test_a_tolerance__ends_the_last_fit_for_good(small, tmp_path):
    fit(small[0], tmp_path / "run", **{**OPTIONS, "restarts": 2, "tolerance": 0.9, "iterations": 9})
    before = Model(tmp_path / "run").record.iterations
    assert before < 9
    resume(tmp_path / "run")
    assert Model(tmp_path / "run").record.iterations == before


# Kinds of members and families -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", mark_rest_long(["gibbs-hdp", "vb-lda", "hdp", "gibbs-lda"], retained=(0, 1)))
def test_families_of_flat_topics__have_a_consensus(small, tmp_path, family):
    options = {
        "init_topics" if family == "gibbs-hdp" else "topics": 3,
        "iterations": 4,
        "restarts": 2,
        "combine": "consensus",
    }
    options |= {"samples": 2, "sample_every": 1} if family.startswith("gibbs") else {}
    model = fit(small[0], tmp_path / "run", family=family, heldout=small[1], **options)
    assert model.folder.url.endswith("run/model")
    assert model.record.family == family
    assert verify(tmp_path / "run").broken == []
    assert np.isfinite(evaluate(tmp_path / "run", heldout=small[1]).score)


def test_samples_of_one_fit__can_be_combined(small, tmp_path):
    options = {"family": "gibbs-lda", "topics": 3, "iterations": 6, "samples": 3, "sample_every": 2}
    fit(small[0], tmp_path / "run", combine="consensus", **options)
    assert [topic.support for topic in topics(tmp_path / "run")] == [3, 3, 3]
    assert resume(tmp_path / "run").record.iterations == 6


def test_an_initialisation_as_prior_in_the_members__remains_in_their_means(small, tmp_path):
    options = {**OPTIONS, "restarts": 2, "responsibilities": "active", "init": "clusters", "init_strength": 9.0}

    def sink(event):
        if STOPS["in the last fit"](event):
            raise KeyboardInterrupt

    whole = fit(small[0], tmp_path / "whole", workers=3, **options)
    with pytest.raises(KeyboardInterrupt):
        fit(small[0], tmp_path / "stopped", scheduler="serial", sinks=[sink], **options)
    assert bits(resume(tmp_path / "stopped")) == bits(whole)
    reference = join([url for _, url in members_of(tmp_path / "whole")], Corpus(small[0]), SerialExecutor(), 1)
    shard = Corpus(small[0]).references[0].load()
    arrays = [reference.start(Corpus(small[0]), tokens).references[0].arrays(shard, Stream(0)) for tokens in (0.0, 9.0)]
    assert "document_strength" not in arrays[0]
    assert set(arrays[1]["document_strength"].tolist()) == {9.0}


# A model like any other -----------------------------------------------------------------------------------------------


def test_commands__report_the_consensus(small, consensus, tmp_path):
    model = Model(consensus)
    assert model.folder.url.endswith("run/model")
    found = evaluate(consensus, heldout=small[1])
    assert found.members == ()
    ends = [event for event in Run(consensus).events() if event["event"] == "iteration"]
    assert found.score == pytest.approx(ends[-1]["score"])
    infer(consensus, small[0], tmp_path / "all.parquet", dense=True)
    infer(consensus, small[0], tmp_path / "one.parquet", dense=True, member=1)
    tables = [pq.read_table(tmp_path / name) for name in ("all.parquet", "one.parquet")]
    assert tables[0].num_rows == 60
    assert tables[0] != tables[1]
    facts = info(consensus)
    assert facts["combine"] == "consensus"
    assert facts["score"] == ends[-1]["score"]
    assert [member["member"] for member in facts["members"]] == [0, 1, 2]


def test_topics__show_the_number_of_members_in_which_they_were_found(consensus, single):
    for topic in topics(consensus):
        assert topic.support in range(4)
        assert 0.0 <= topic.stability <= 1.0
    assert all(topic.support is None for topic in topics(single / "0"))
    assert "support" in Model(consensus).topics().columns


def test_members_that_are_not_combined_yet__are_refused_in_one_line(small, tmp_path):
    def sink(event):
        if is_iteration(2)(event):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(small[0], tmp_path / "run", sinks=[sink], **{**OPTIONS, "restarts": 2, "iterations": 3})
    with pytest.raises(AbsentError, match="its members are not joined yet; continue with `resume`"):
        evaluate(tmp_path / "run", heldout=small[1])


def test_a_report__shows_the_number_of_members_in_which_topics_were_found(consensus, tmp_path):
    report(consensus, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "the topics of a consensus" in page
    assert "3 of 3 members" in page
    assert ">consensus<" in page
    found = [topic.support for topic in topics(consensus)]
    assert all(f'<td class="n">{members}</td>' in page for members in found)


def test_exports__have_the_members_in_which_topics_were_found(consensus, tmp_path):
    export(consensus, tmp_path / "tables", to="csv")
    header = (tmp_path / "tables/topics.csv").read_text().splitlines()[0]
    assert header == "topic,share,stability,support,words"


def test_the_command_line__prints_the_consensus(small, consensus, tmp_path, capsys):
    main(["topics", str(consensus)])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["id", "share", "stable", "in", "words"]
    assert len(printed) == 4
    main(["topics", str(consensus), "--json"])
    assert all(topic["support"] in range(4) for topic in json.loads(capsys.readouterr().out))
    options = ["--family", "lda", "--topics", "3", "--iterations", "3", "--restarts", "2", "--combine", "consensus"]
    main(["fit", small[0], str(tmp_path / "run"), *options, "--heldout", small[1], "--quiet"])
    assert "consensus of 2 members, score -" in capsys.readouterr().out


# Bad input -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"combine": "mean"}, "mean"),
        ({"restarts": 0}, "'consensus' requires 2 models or more, by `restarts` or `samples`"),
        ({"restarts": 1}, "'consensus' requires 2 models or more, by `restarts` or `samples`"),
        ({"keep": "best"}, "'consensus' joins all members"),
        ({"schedule": "stochastic", "iterations": None}, "'consensus' .* stochastic"),
    ],
)
def test_models_that_cannot_be_combined__are_refused_before_anything_is_written(small, tmp_path, changes, message):
    with pytest.raises(OptionError, match=message):
        fit(small[0], tmp_path / "run", **{**OPTIONS, **changes})
    assert not (tmp_path / "run").exists()


def test_trees__have_no_consensus(small, tmp_path):
    with pytest.raises(
        OptionError, match="combine: 'consensus' is for families of flat topics .*hdp.*, found .*'ncrp'"
    ):
        fit(small[0], tmp_path / "run", family="ncrp", restarts=2, combine="consensus")


def test_resume__does_not_change_how_members_are_combined(consensus, ensemble, tmp_path):
    for place, value in ((consensus, "predictions"), (ensemble, "consensus")):
        run = shutil.copytree(place, tmp_path / value)
        with pytest.raises(OptionError, match=f"combine: expected .*, found {value}: another would change"):
            resume(run, combine=value)


def test_a_record_with_an_unknown_combination__is_damaged(consensus, tmp_path):
    run = shutil.copytree(consensus, tmp_path / "run")
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "combine": "sum"}))
    assert verify(run).broken
