"""Concurrent restarts and saved samples: fitted, stopped, resumed, scored and compared."""

import io
import json
import shutil
import signal

import numpy as np
import pytest

from collapsium.pipeline import Model, estimate, evaluate, fit, info, resume, topics, verify
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.monitoring.console import RunView
from collapsium.storage.errors import MismatchError, OptionError
from collapsium.storage.runs.members import member_seed
from collapsium.storage.runs.run import Run
from tests.fits import bits, resumed, scores_of
from tests.pipeline.engine.conftest import ENSEMBLE_OPTIONS
from tests.pipeline.engine.model_io.test_checkpoints import StoppedError, events_of


def without_member(events):
    """Return the events of a member from the first iteration on, as in a single fit."""
    recorded = [{name: value for name, value in event.items() if name != "member"} for event in events]
    return [event for event in recorded if event["event"] in ("started", "iteration", "end")]


def same(run, single, members=(0, 1, 2)):
    for number in members:
        member = run / f"members/{number:03d}"
        assert bits(Model(member)) == bits(Model(single / str(number)))
        assert without_member(events_of(member)) == without_member(events_of(single / str(number)))
        assert all(event["member"] == number for event in Run(member).events())


# Restarts --------------------------------------------------------------------------------------------------------------


def test_seeds__differ_between_members_and_ensembles():
    assert member_seed(7, 0) == 7
    seeds = {member_seed(seed, number) for seed in range(5) for number in range(1, 50)}
    assert len(seeds) == 5 * 49
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.long
@pytest.mark.parametrize(
    "where", [("serial", 1), ("threads", 1), ("threads", 3), ("threads", 8), ("processes", 3)], ids=str
)
@pytest.mark.xdist_group("clusters")
def test_members__equal_fits_with_their_seeds(small, single, tmp_path, where, clusters):
    """This holds on all executors, and for any number of concurrent members."""
    kind, workers = where
    scheduler = clusters(workers) if kind == "processes" else kind
    options = {"heldout": small[1], "seed": 4, "restarts": 3, **ENSEMBLE_OPTIONS}
    fit(small[0], tmp_path / "run", scheduler=scheduler, workers=workers if kind == "threads" else None, **options)
    same(tmp_path / "run", single)
    events = Run(tmp_path / "run").events()
    assert [event["event"] for event in events] == ["cluster", "compile", "start", *["member"] * 3, "end"]
    side_by_side = {1: 1, 3: 2, 8: 3}[workers] if kind != "processes" else 2
    assert events[2]["planned"]["members"] == (1 if kind == "serial" else side_by_side)
    ended = sorted((event["member"], event["score"]) for event in events if event["event"] == "member")
    assert ended == [(number, scores_of(single / str(number))[-1]) for number in range(3)]
    assert verify(tmp_path / "run").broken == []
    assert not (tmp_path / "run/lock").exists()
    assert not (tmp_path / "run/members/000/lock").exists()


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize(("member", "iteration"), [(0, 3), (2, 1), (2, 5)])
def test_a_stopped_ensemble__continues_to_the_same_bits_and_events(small, single, tmp_path, workers, member, iteration):
    def sink(event):
        if event["event"] == "iteration" and (event["member"], event["iteration"]) == (member, iteration):
            raise KeyboardInterrupt

    options = {"heldout": small[1], "seed": 4, "restarts": 3, "workers": workers, "sinks": [sink], **ENSEMBLE_OPTIONS}
    with pytest.raises(KeyboardInterrupt):
        fit(small[0], tmp_path / "run", **options)
    end = Run(tmp_path / "run").events()[-1]
    assert (end["event"], end["reason"], end["members"]) == ("end", "interrupt", 3)
    assert end["ended"] < 3
    assert Run(tmp_path / f"run/members/{member:03d}").checkpoints.latest() == iteration
    assert verify(tmp_path / "run").broken == []
    resumed(tmp_path / "run", scheduler="serial")
    same(tmp_path / "run", single)
    events = [event["event"] for event in Run(tmp_path / "run").events()]
    assert events == ["cluster", "compile", "start", *["member"] * 3, "end"]
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("events.jsonl")}
    resume(tmp_path / "run")  # no iterations are left
    assert all(path.read_bytes() == data for path, data in before.items())


def test_an_error_in_a_member__ends_all_members_with_their_checkpoints(small, single, tmp_path):
    def sink(event):
        if event["event"] == "iteration" and (event["member"], event["iteration"]) == (1, 4):
            raise StoppedError("on purpose")

    options = {"heldout": small[1], "seed": 4, "restarts": 3, "workers": 8, "sinks": [sink], **ENSEMBLE_OPTIONS}
    with pytest.raises(StoppedError, match="on purpose"):
        fit(small[0], tmp_path / "run", **options)
    assert Run(tmp_path / "run").events()[-1]["reason"] == "error"
    assert Run(tmp_path / "run/members/001").events()[-1]["reason"] == "error"
    assert Run(tmp_path / "run/members/001").checkpoints.latest() == 4
    resumed(tmp_path / "run")
    same(tmp_path / "run", single)


def test_an_error_before_the_first_iteration__leaves_nothing(small, tmp_path):
    def sink(event):
        if event["event"] == "started":
            raise StoppedError

    with pytest.raises(StoppedError):
        fit(small[0], tmp_path / "run", restarts=2, sinks=[sink], **ENSEMBLE_OPTIONS)
    assert not (tmp_path / "run").exists()


def test_a_member_without_a_checkpoint__is_started_again(small, single, ensemble, tmp_path):
    """The ensemble is killed before its record was written, before its first checkpoint, or before its last event."""
    run = shutil.copytree(ensemble, tmp_path / "run")
    shutil.rmtree(run / "members/000")
    (run / "members/000").mkdir()
    shutil.rmtree(run / "members/001/checkpoints")
    shutil.rmtree(run / "members/001/model")
    events = Run(run).events()
    Run(run).replace_events([event for event in events if event["event"] not in ("member", "end")])
    resume(run)
    same(run, single)
    assert [event["event"] for event in Run(run).events()] == [event["event"] for event in events]


def test_a_finished_member_without_reported_iterations__stays_unchanged(small, ensemble, tmp_path):
    shutil.copytree(ensemble, tmp_path / "run")
    member = Run(tmp_path / "run/members/000")
    member.replace_events([event for event in member.events() if event["event"] == "end"])
    shutil.rmtree(tmp_path / "run/members/001")
    resume(tmp_path / "run")
    assert bits(Model(tmp_path / "run/members/001")) == bits(Model(ensemble / "members/001"))


def test_more_iterations__continue_all_members(small, single, ensemble, tmp_path):
    run = shutil.copytree(ensemble, tmp_path / "run")
    resume(run, iterations=8, workers=8)
    fit(small[0], tmp_path / "one", heldout=small[1], seed=member_seed(4, 1), **{**ENSEMBLE_OPTIONS, "iterations": 8})
    assert bits(Model(run / "members/001")) == bits(Model(tmp_path / "one"))
    with pytest.raises(OptionError, match="the run has made 8 already"):
        resume(run, iterations=7)
    for name, value in (("restarts", 4), ("keep", "best"), ("seed", 5)):
        with pytest.raises(OptionError, match=f"{name}: expected .*, found {value}: another would change"):
            resume(run, **{name: value})


def test_a_member__may_be_resumed_by_itself(small, ensemble, tmp_path):
    run = shutil.copytree(ensemble, tmp_path / "run")
    assert resume(run / "members/002", iterations=7).record.iterations == 7


def test_the_best_member__is_kept_alone(small, single, tmp_path):
    options = {"heldout": small[1], "seed": 4, "restarts": 3, "keep": "best", **ENSEMBLE_OPTIONS}
    fit(small[0], tmp_path / "run", **options)
    scores = [scores_of(single / str(number))[-1] for number in range(3)]
    best = int(np.argmax(scores))
    assert [path.name for path in (tmp_path / "run/members").iterdir()] == [f"{best:03d}"]
    same(tmp_path / "run", single, [best])
    end = Run(tmp_path / "run").events()[-1]
    assert (end["best_member"], end["chosen_by"], end["ended"]) == (best, "score", 3)
    assert evaluate(tmp_path / "run", heldout=small[1]).score == pytest.approx(scores[best], rel=1e-9)
    assert all(topic.stability is None for topic in topics(tmp_path / "run"))
    assert verify(tmp_path / "run").broken == []
    assert info(tmp_path / "run")["best_member"] == best
    resume(tmp_path / "run")  # no iterations are left
    with pytest.raises(OptionError, match=f"only its best member was kept.*members/{best:03d}"):
        resume(tmp_path / "run", iterations=9)
    with pytest.raises(OptionError, match="requires `restarts`"):
        fit(small[0], tmp_path / "other", **{**options, "restarts": 0})


def test_the_best_member_without_held_out_tokens__has_the_best_objective(small, tmp_path):
    options = {"family": "vb-lda", "topics": 4, "iterations": 6, "seed": 4, "restarts": 3}
    fit(small[0], tmp_path / "all", **options)
    ends = [Run(tmp_path / f"all/members/{number:03d}").events() for number in range(3)]
    values = [[event for event in events if event["event"] == "iteration"][-1]["objective"] for events in ends]
    fit(small[0], tmp_path / "run", keep="best", **options)
    end = Run(tmp_path / "run").events()[-1]
    assert (end["best_member"], end["chosen_by"]) == (int(np.argmax(values)), "objective")
    assert [path.name for path in (tmp_path / "run/members").iterdir()] == [f"{end['best_member']:03d}"]


@pytest.mark.parametrize("more", [{}, {"schedule": "stochastic", "passes": 2}])
def test_the_best_member_of_fits_without_scores_and_objectives__is_refused_in_the_first_iteration(
    small, tmp_path, more
):
    seen = []
    options = {"family": "lda", "topics": 4, "restarts": 2, "keep": "best", "sinks": [seen.append], **more}
    with pytest.raises(OptionError, match="no objective under these options"):  # of order 0
        fit(small[0], tmp_path / "run", **options)
    assert not [event for event in seen if event["event"] == "iteration"]
    assert len(list((tmp_path / "run/members").iterdir())) == 2


def test_options_that_make_no_ensemble__are_refused(small, tmp_path):
    for more, text in (
        ({"restarts": -1}, "restarts: expected"),
        ({"restarts": True}, "^restarts: "),
        ({"keep": "some"}, "keep: expected"),
    ):
        with pytest.raises(OptionError, match=text):
            fit(small[0], tmp_path / "run", **ENSEMBLE_OPTIONS, **more)
    assert not (tmp_path / "run").exists()


def test_an_ensemble_of_warm_starts__requires_samplers(small, ensemble, tmp_path):
    """Members differ in their seeds only, and a warm start of LDA is not random."""
    options = {**ENSEMBLE_OPTIONS, "iterations": 2, "restarts": 2, "warm": ensemble}
    with pytest.raises(OptionError, match="restarts: 2 fits of 'lda' from one run .* would all be the same"):
        fit(small[0], tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()
    fit(small[0], tmp_path / "run", **{**options, "family": "gibbs-lda"})  # from its first member
    record = Run(tmp_path / "run/members/001").record()
    assert record["warm"]["url"] == str(ensemble / "members/000/model")
    found = [bits(Model(tmp_path / f"run/members/00{number}")) for number in range(2)]
    assert found[0] != found[1]


def test_a_warm_start_from_as_many_members__starts_each_from_one_of_them(small, ensemble, tmp_path):
    """Member k equals a fit with its seed and a warm start from member k, whether or not the ensemble was stopped."""
    options = {**ENSEMBLE_OPTIONS, "iterations": 3, "seed": 5, "scheduler": "serial"}
    fit(small[0], tmp_path / "run", **options, restarts=3, warm=ensemble)
    for number in range(3):
        alone = {**options, "seed": member_seed(5, number), "warm": ensemble / f"members/{number:03d}"}
        fit(small[0], tmp_path / f"{number}", **alone)
        found = Run(tmp_path / f"run/members/{number:03d}")
        assert bits(Model(found.folder.url)) == bits(Model(tmp_path / f"{number}"))
        assert found.record()["warm"]["url"] == str(ensemble / f"members/{number:03d}/model")

    def sink(event):
        if event.get("member") == 1 and event["event"] == "iteration":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(small[0], tmp_path / "stopped", **options, restarts=3, warm=ensemble, sinks=[sink])
    with pytest.raises(MismatchError, match="not the model that the run begins from"):
        resume(tmp_path / "stopped", warm=ensemble / "members/001", scheduler="serial")
    resume(tmp_path / "stopped", warm=ensemble, scheduler="serial")
    for number in range(3):
        member = f"members/{number:03d}"
        assert bits(Model(tmp_path / "stopped" / member)) == bits(Model(tmp_path / "run" / member))


def test_the_number_of_concurrent_members__keeps_workers_busy_within_the_memory(five_shards):
    options = {"family": "lda", "topics": 500, "workers": 8}
    alone, several = estimate(five_shards[0], **options), estimate(five_shards[0], restarts=10, **options)
    assert (alone.members, several.members) == (1, 4)  # 16 sweeps for 8 workers, 5 shards per member
    assert several.memory["local states"] == 4 * alone.memory["local states"]
    assert several.run == 10 * alone.run
    assert "4 members side by side" in several.table()
    less = estimate(five_shards[0], restarts=10, memory=int((alone.needed + several.needed) / 2 / 0.9), **options)
    assert 1 <= less.members < 4
    assert less.needed <= less.place.usable
    assert estimate(five_shards[0], restarts=10, family="lda", topics=3, scheduler="serial").members == 1


# User interface --------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress__names_members(small, tmp_path):
    plain, drawn = io.StringIO(), Terminal()
    views = [RunView(plain), RunView(drawn)]
    fit(small[0], tmp_path / "run", restarts=3, heldout=small[1], sinks=views, **ENSEMBLE_OPTIONS)
    lines = [line.partition(" ")[2] for line in plain.getvalue().splitlines()]  # after the time of the line
    assert sum(line.startswith("member ") and "6 iterations" in line for line in lines) == 3
    assert any("(3 of 3 members done)" in line for line in lines)
    assert lines[-1] == "3 of 3 members ended (iterations)"
    assert "\x1b" not in plain.getvalue()
    assert "18/18" in drawn.getvalue()  # iterations of all members
    assert "3 of 3 members done" in drawn.getvalue()


def test_commands__work_with_an_ensemble(capsys, small, tmp_path, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.chdir(tmp_path)

    def command(*words):
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out, err

    flags = ["--family", "lda", "--topics", 3, "--iterations", 3, "--heldout", small[1], "--quiet"]
    output = json.loads(command("fit", small[0], "run", *flags, "--restarts", 2, "--json")[0])
    assert [member["member"] for member in output["members"]] == [0, 1]
    assert [member["seed"] for member in output["members"]] == [0, member_seed(0, 1)]
    scored = json.loads(command("evaluate", "run", "--heldout", small[1], "--json")[0])
    assert [member["score"] for member in scored["members"]] == pytest.approx(
        [member["score"] for member in output["members"]]
    )
    assert "members" not in json.loads(command("evaluate", "run/members/000", "--heldout", small[1], "--json")[0])
    assert "member     001: " in command("evaluate", "run", "--unseen", small[1])[0]
    listed = json.loads(command("topics", "run", "--json")[0])
    assert all(0.0 <= topic["stability"] <= 1.0 for topic in listed)
    assert all("stability" not in topic for topic in json.loads(command("topics", "run/members/001", "--json")[0]))
    head, columns = (line.split() for line in command("topics", "run")[0].splitlines()[:2])
    assert head == ["id", "share", "stable", "in", "words"]
    assert float(columns[2]) == pytest.approx(listed[0]["stability"], abs=1e-3)
    assert "documents, means of 2 models" in command("infer", "run", small[0], "out")[0]
    assert json.loads(command("info", "run", "--json")[0])["restarts"] == 2
    assert "2 members in" in command("fit", "--resume", "run", "--iterations", 4, "--quiet")[0]
    assert "the run has ended" in command("fit", "--resume", "run", "--quiet")[0]
    out = command("fit", small[0], "best", *flags, "--restarts", 2, "--keep", "best")[0]
    assert "it was chosen by its score, so that score is optimistic" in out
    assert len(list((tmp_path / "best/members").iterdir())) == 1
    out = command("fit", small[0], "warm", *flags, "--warm", "best")[0]
    assert "3 iterations" in out
    (tmp_path / "fit.toml").write_text('family = "lda"\ntopics = 3\niterations = 4\nsamples = 2\nsample-every = 1\n')
    command("fit", small[0], "sampled", "--config", "fit.toml", "--quiet")
    assert len(json.loads(command("evaluate", "sampled", "--heldout", small[1], "--json")[0])["members"]) == 2
    assert (
        "members side by side"
        in command("estimate", small[0], "--config", "fit.toml", "--restarts", 9, "--workers", 8)[0]
    )


def test_the_mean_of_members__refuses_held_out_tokens_and_names_the_run(small, ensemble):
    with pytest.raises(OptionError, match="is the mean of members; to score held-out tokens, name their run"):
        evaluate(ensemble / "members/mean", heldout=small[1], scheduler="serial")


def test_a_finished_ensemble__is_recognised_whatever_event_comes_last(capsys, ensemble, tmp_path):
    run = shutil.copytree(ensemble, tmp_path / "run")
    with (run / "events.jsonl").open("a") as file:
        file.write('{"event": "notice", "text": "of somebody else"}\n')
    assert main(["fit", "--resume", str(run), "--json", "--quiet"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert len(output["members"]) == 3
    assert output["elapsed"] > 0.0
    assert main(["fit", "--resume", str(run), "--quiet"]) == 0
    assert "the run has ended" in capsys.readouterr().out


def test_a_stopped_ensemble__says_how_to_continue(capsys, small, tmp_path, monkeypatch):
    def interrupted(self, event):
        if event["event"] == "iteration" and event["iteration"] == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(RunView, "__call__", interrupted)
    words = ["fit", small[0], tmp_path / "run", "--family", "lda", "--topics", 3, "--restarts", 2, "--iterations", 4]
    assert main([str(word) for word in words]) == 130
    err = capsys.readouterr()[1]
    assert "0 of 2 members have ended" in err
    assert f"collapsium fit --resume {tmp_path}/run" in err
