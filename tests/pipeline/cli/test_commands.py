import json
import sys
from dataclasses import replace

import distributed
import numpy as np
import pyarrow.parquet as pq
import pytest

from collapsium.pipeline import Model
from collapsium.pipeline.cli.command import COMMANDS
from collapsium.storage.runs.run import Run
from tests.conftest import write_corpus
from tests.pipeline.cli.commands import command, fitted, one_line


@pytest.mark.parametrize("name", COMMANDS)
def test_help__documents_every_option(capsys, name):
    code, out, _ = command(capsys, name, "--help")
    assert code == 0
    lines = out[out.index("options:") :].splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("  --"):
            assert len(line.split("  ")) > 2 or following.startswith("      "), line


@pytest.mark.parametrize("family", ["lda", "hdp"])
def test_help__of_a_family_lists_its_options(capsys, family):
    _, out, _ = command(capsys, "fit", "--family", family, "--help")
    assert f"options of {family}" in out
    assert "--topics" in out
    assert "--order 0|2" in out


@pytest.mark.xdist_group("clusters")
@pytest.mark.parametrize("kind", ["address", "file"])
def test_fit__takes_an_address_or_a_scheduler_file(kind, small, capsys, tmp_path):
    known, path = fitted(tmp_path / "known", small, "--iterations", 3), tmp_path / "scheduler.json"
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        path.write_text(json.dumps({"address": cluster.scheduler_address}))
        scheduler = cluster.scheduler_address if kind == "address" else path
        words = ["fit", small[0], tmp_path / "run", "--family", "lda", "--topics", 3, "--iterations", 3, "--quiet"]
        assert command(capsys, *words, "--scheduler", scheduler)[0] == 0
    np.testing.assert_array_equal(Model(tmp_path / "run").rows(0).word_topic, Model(known).rows(0).word_topic)
    names = [event["scheduler"] for event in Run(tmp_path / "run").events() if event["event"] == "cluster"]
    assert names == [str(scheduler)]


def test_all_commands__work_from_text_to_proportions(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = [
        {"id": f"d{n}", "text": "apple pear fruit juice" if n % 2 else "engine wheel motor road"} for n in range(20)
    ]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    assert command(capsys, "ingest", "x.jsonl", "corpus")[0] == 0
    assert command(capsys, "split", "corpus", "train", "held", "--fraction", 0.25, "--seed", 1)[0] == 0
    fit = ["fit", "train", "run", "--family", "lda", "--topics", 2, "--iterations", 30, "--heldout", "held"]
    code, out, err = command(capsys, *fit, "--scheduler", "serial", "--alpha", 0.1, "--set", "beta=1.0", "--json")
    assert code == 0
    output = json.loads(out)
    assert output["iteration"] == 30
    assert "iteration 30/30" in err  # plain lines, because this is not a terminal
    assert "\x1b" not in err
    code, out, _ = command(capsys, "evaluate", "run", "--heldout", "held", "--json")
    found = json.loads(out)
    assert found["score"] == pytest.approx(output["score"])
    assert "document completion" in found["definition"]
    code, _, err = command(capsys, "evaluate", "run", "--unseen", "held")
    assert code == 1
    assert "held-out tokens of the documents" in err
    assert len(err.splitlines()) == 1
    code, out, _ = command(capsys, "topics", "run", "--words", 4, "--json")
    topics = [{entry["word"] for entry in topic["words"]} for topic in json.loads(out)]
    assert sorted(map(sorted, topics)) == [["apple", "fruit", "juice", "pear"], ["engine", "motor", "road", "wheel"]]
    code, out, _ = command(capsys, "topics", "run", "--words", 2)
    assert len(out.splitlines()) == 2
    code, out, _ = command(capsys, "infer", "run", "corpus", "out.parquet")
    table = pq.read_table("out.parquet").to_pylist()
    assert [row["id"] for row in table] == [f"d{n}" for n in range(20)]
    assert {row["topics"][0] for row in table[::2]} != {row["topics"][0] for row in table[1::2]}
    for path, kind in (("corpus", "corpus"), ("run", "run"), ("run/model", "model")):
        code, out, _ = command(capsys, "info", path, "--json")
        assert json.loads(out)["kind"] == kind
        assert command(capsys, "info", path)[0] == 0


def test_topics_json__contains_the_model_only(capsys, small, tmp_path):
    outs = []
    for place in ("one", "other/deeper"):
        run = fitted(tmp_path / place, small, "--iterations", 2)
        capsys.readouterr()
        outs.append(command(capsys, "topics", run, "--json")[1])
    assert outs[0] == outs[1]
    first = json.loads(outs[0])[0]
    assert set(first) == {"id", "share", "words"}
    assert float(repr(first["share"])) == first["share"]


def test_events__have_the_fields_that_programs_read(small, tmp_path):
    run = fitted(tmp_path, small, "--iterations", 3, "--heldout", small[1])
    events = Run(run).events()
    assert [event["event"] for event in events] == ["cluster", "compile", "start", "started", *["iteration"] * 3, "end"]
    for event in events:
        assert {"event", "iteration", "elapsed"} <= set(event)
    for event in events[4:-1]:
        assert event["score"] < 0
        assert set(event["seconds"]) == {"kernel", "reduce", "update", "score", "wait"}
    elapsed = [event["elapsed"] for event in events[3:]]
    assert elapsed == sorted(elapsed)


def test_score_every__scores_every_nth_and_the_last_iteration(small, tmp_path):
    run = fitted(tmp_path, small, "--iterations", 5, "--heldout", small[1], "--score-every", 2)
    scored = [event["iteration"] for event in Run(run).events() if "score" in event]
    assert scored == [2, 4, 5]


@pytest.mark.parametrize(
    ("more", "reached"),
    [
        (["--tolerance", 0.5], True),
        (["--tolerance", 1e-12], False),
        (["--tolerance", 0.01, "--stop-on", "score", "--heldout"], True),
        (["--tolerance", 0.01, "--stop-on", "objective", "--order", 2], True),
    ],
)
def test_tolerance__ends_a_fit_early(small, tmp_path, more, reached):
    more = [*more, small[1]] if more[-1] == "--heldout" else more
    run = fitted(tmp_path, small, "--iterations", 12, *more)
    end = Run(run).events()[-1]
    assert (end["reason"] == "tolerance") is reached
    assert (end["iteration"] < 12) is reached


@pytest.mark.parametrize("error", [RuntimeError("on purpose"), OSError(28, "No space left on device")])
def test_a_failure_during_a_fit__keeps_the_last_checkpoint(capsys, small, tmp_path, monkeypatch, error):
    from collapsium.workers.families.cvb.lda import Lda

    update, calls = Lda.update, []

    def failing(*arguments):
        calls.append(1)
        if len(calls) == 6:
            raise error
        return update(*arguments)

    monkeypatch.setattr(Lda, "update", failing)
    words = ["fit", small[0], tmp_path / "run", "--family", "lda", "--topics", 3, "--scheduler", "serial"]
    code, _, err = command(capsys, *words)
    assert code == 1
    assert "Traceback" not in err
    assert "saving iteration 4" in err
    assert "interrupt" not in err
    assert str(error.args[-1]) in err.splitlines()[-1]
    assert f"iteration 4 is saved; continue with `collapsium fit --resume {tmp_path / 'run'}`" in err
    end = Run(tmp_path / "run").events()[-1]
    assert (end["event"], end["reason"], end["iteration"]) == ("end", "error", 4)
    assert command(capsys, "topics", tmp_path / "run")[0] == 0


def test_numbers_out_of_range__are_a_clear_error(capsys, small, tmp_path, monkeypatch):
    from collapsium.workers.families.cvb.lda import Lda

    update = Lda.update

    def broken(family, global_state, *rest):
        return replace(update(family, global_state, *rest), alpha=global_state.alpha * float("nan"))

    monkeypatch.setattr(Lda, "update", broken)
    words = ["fit", small[0], tmp_path / "run", "--family", "lda", "--topics", 3, "--scheduler", "serial", "--quiet"]
    code, _, err = command(capsys, *words)
    assert code == 1
    assert "iteration 0: alpha is no longer finite" in one_line(err)
    assert not (tmp_path / "run").exists()


def test_stop_on_objective__requires_an_objective(capsys, small, tmp_path):
    words = ["fit", small[0], tmp_path / "run", "--family", "hdp", "--tolerance", 0.1, "--stop-on", "objective"]
    code, _, err = command(capsys, *words, "--scheduler", "serial", "--quiet")
    assert code == 2
    assert "the family has no objective under these options" in one_line(err)
    assert not (tmp_path / "run").exists()


def test_the_configuration_file__sets_options_that_flags_do_not(capsys, small, tmp_path):
    (tmp_path / "f.toml").write_text('family = "lda"\ntopics = 3\niterations = 2\nscheduler = "serial"\nbeta = 7.0\n')
    words = [
        "fit",
        small[0],
        tmp_path / "run",
        "--config",
        tmp_path / "f.toml",
        "--topics",
        2,
        "--alpha",
        0.3,
        "--quiet",
    ]
    assert command(capsys, *words)[0] == 0
    record = Run(tmp_path / "run").record()
    assert record["options"]["topics"] == 2
    assert record["options"]["beta"] == 7.0
    assert record["options"]["alpha"] == 0.3
    assert record["limits"]["iterations"] == 2


BAD = {
    "no corpus": (["fit", "{tmp}/none", "{tmp}/run", "--family", "lda", "--topics", "2"], "none: no such corpus"),
    "not a corpus": (["fit", "{tmp}", "{tmp}/run", "--family", "lda", "--topics", "2"], "holds files of several formats"),
    "no family": (["fit", "{train}", "{tmp}/run"], "--family is required: author-topic, dirichlet-network, gibbs-hdp, gibbs-lda, gibbs-ncrp, hca, hdp, hdsp, keyword-lda, labeled-lda, lda, ncrp, partially-labeled-lda, segmented-lda, sequential-lda, vb-lda"),
    "unknown family": (["fit", "{train}", "{tmp}/run", "--family", "ldb"], "did you mean 'lda'"),
    "no topics": (["fit", "{train}", "{tmp}/run", "--family", "lda"], "--topics is required"),
    "K < 1": (["fit", "{train}", "{tmp}/run", "--family", "hdp", "--topics", "0"], "--topics: expected a whole number of 1 or more"),
    "K is text": (["fit", "{train}", "{tmp}/run", "--family", "hdp", "--topics", "many"], "--topics"),
    "unknown set": (
        ["fit", "{train}", "{tmp}/run", "--family", "hdp", "--set", "alpha_shap=1"],
        "unknown option 'alpha_shap' of family 'hdp' (did you mean 'alpha_shape'?)",
    ),
    "set without value": (["fit", "{train}", "{tmp}/run", "--family", "hdp", "--set", "alpha"], "expected name=VALUE"),
    "no config": (["fit", "{train}", "{tmp}/run", "--config", "{tmp}/no.toml"], "no.toml: no such file"),
    "zero iterations": (["fit", "{train}", "{tmp}/run", "--family", "hdp", "--iterations", "0"], "--iterations"),
    "zero workers": (["fit", "{train}", "{tmp}/run", "--family", "hdp", "--workers", "0"], "--workers"),
    "no such scheduler": (["fit", "{train}", "{tmp}/run", "--family", "hdp", "--scheduler", "lokal"], "--scheduler: expected"),
    "stop on no score": (
        ["fit", "{train}", "{tmp}/run", "--family", "hdp", "--stop-on", "score", "--tolerance", "1"], "requires a held-out corpus",
    ),
    "other vocabulary": (
        ["fit", "{train}", "{tmp}/run", "--family", "hdp", "--heldout", "{other}"], "its vocabulary (3 words) differs from",
    ),
    "other documents": (["fit", "{train}", "{tmp}/run", "--family", "hdp", "--heldout", "{fewer}"], "expected the 60 documents"),
    "other ids": (
        ["fit", "{train}", "{tmp}/run", "--family", "hdp", "--scheduler", "serial", "--heldout", "{ids}"], "have other ids",
    ),
    "output exists": (["fit", "{train}", "{train}", "--family", "hdp"], "exists already"),
    "no run": (["topics", "{tmp}/none"], "no such run or model"),
    "a corpus is no run": (["topics", "{train}"], "neither a run nor a model"),
    "no words": (["topics", "{train}", "--words", "0"], "--words: expected a whole number, 1 or more"),
    "no source": (["ingest", "{tmp}/none.jsonl", "{tmp}/run"], "none.jsonl: no such file"),
    "negative cut": (["ingest", "{tmp}", "{tmp}/run", "--format", "text", "--min-documents", "-1"], "--min-documents"),
    "share": (["ingest", "{tmp}", "{tmp}/run", "--format", "text", "--max-document-share", "1.5"], "--max-document-share"),
    "no shard": (["ingest", "{tmp}", "{tmp}/run", "--format", "text", "--shard-tokens", "0"], "--shard-tokens"),
    "fraction": (["split", "{train}", "{tmp}/run", "{tmp}/b", "--fraction", "1"], "--fraction"),
    "no documents": (
        ["simulate", "{tmp}/run", "--family", "hdp", "--documents", "0", "--words", "3", "--tokens", "5"], "--documents",
    ),
    "nothing there": (["info", "{tmp}/none"], "no such folder"),
}  # fmt: skip
FAILED = {  # exit code 1 for missing or mismatching inputs, and 2 for wrong usage
    *("no corpus", "no config", "other vocabulary", "other documents", "other ids", "output exists"),
    *("no run", "a corpus is no run", "no source", "nothing there"),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_input__is_reported_in_one_line_and_leaves_nothing(capsys, small, tmp_path, name):
    words, message = BAD[name]
    write_corpus(tmp_path / "other", [{0: 1}] * 60, 3)
    write_corpus(tmp_path / "fewer", [{0: 1}] * 59, 30)
    write_corpus(tmp_path / "ids", [{0: 1}] * 60, 30, ids=[f"x{n}" for n in range(60)])
    places = {"tmp": tmp_path, "train": small[0], **{name: tmp_path / name for name in ("other", "fewer", "ids")}}
    before = sorted(path.name for path in tmp_path.iterdir())
    code, out, err = command(capsys, *(word.format(**places) for word in words))
    assert code == (1 if name in FAILED else 2)
    lines = [line for line in err.splitlines() if line.startswith("collapsium: error: ")]
    assert len(lines) == 1
    assert message in lines[0]
    assert "Traceback" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "a", "b", "--family", "lda", "--alpa", "3"], "Unknown option: --alpa. Did you mean --alpha? See `collapsium fit --help`"),
        (["fit", "a", "b", "--iteration", "3"], "Unknown option: --iteration. Did you mean --iterations?"),
        (["fti"], "unknown command 'fti' (did you mean 'fit'?); see `collapsium --help`"),
        (["fit", "a", "b", "--stop-on", "SCORE"], "--stop-on: expected counts, objective, score, found 'SCORE' (did you mean 'score'?)"),
        (["fit", "a", "b", "--family", "LDA", "--alpha", "3"], "unknown family 'LDA' (did you mean 'lda'?)"),
        (["fit", "a", "b", "--alpha", "3"], "Options of a family need --family"),
        (["info", "a", "b"], "unexpected argument 'b'; see `collapsium info --help`"),
        (["fit", "a"], "the following arguments are required: RUN"),
        (["fit", "a", "b", "--seed", "x"], "--seed: expected a whole number, found 'x'"),
        (["fit", "a", "b", "--tolerance", "Auto"], "--tolerance: expected a number of 0 or more, or auto, found 'Auto'"),
        (["watch", "a", "--every", "x"], "--every: expected seconds above 0, found 'x'"),
        (["evaluate", "run"], "one of the arguments --heldout --unseen --coherence --metrics is required"),
    ],
)  # fmt: skip
def test_wrong_usage__is_reported_in_one_line_with_the_nearest_option(capsys, monkeypatch, words, message):
    monkeypatch.setattr(sys, "argv", ["collapsium", *words])
    code, _, err = command(capsys, *words)
    assert code == 2
    assert message in one_line(err)


def test_errors__quote_at_most_some_thousand_characters_of_a_file(capsys, small, tmp_path):
    (tmp_path / "weights.csv").write_text("a" * 300_000 + ",1\n")
    flags = ["--family", "lda", "--topics", "2", "--weights", tmp_path / "weights.csv", "--quiet"]
    code, _, err = command(capsys, "fit", small[0], tmp_path / "run", *flags)
    assert code == 2
    assert len(one_line(err)) < 4100
    assert "it lacks 1 of 1: 'aaaa" in err


def test_an_unreachable_scheduler__is_a_clear_error(capsys, small, tmp_path, monkeypatch):
    import dask

    from collapsium.pipeline.executors import dask_cluster as clusters

    monkeypatch.setitem(clusters.SETTINGS, "distributed.comm.timeouts.connect", "1s")
    words = ["fit", small[0], tmp_path / "run", "--family", "hdp", "--scheduler", "tcp://127.0.0.1:1"]
    with dask.config.set({}):
        code, _, err = command(capsys, *words)
    assert code == 1
    assert "tcp://127.0.0.1:1: the scheduler cannot be reached" in err.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_a_damaged_shard__is_named_and_leaves_no_run(capsys, tmp_path):
    corpus = write_corpus(tmp_path / "c", [{0: 1}, {1: 2}], 2)
    shard = corpus / "documents/part-00000.parquet"
    shard.write_bytes(shard.read_bytes()[:-7])
    words = ["fit", corpus, tmp_path / "run", "--family", "hdp", "--scheduler", "serial"]
    code, _, err = command(capsys, *words)
    assert code == 1
    assert "part-00000.parquet: the bytes do not have the digest of the manifest" in err
    assert not (tmp_path / "run").exists()
