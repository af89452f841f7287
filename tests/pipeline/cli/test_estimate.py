"""`collapsium estimate`, and `collapsium fit` when the fit exceeds the resources."""

import json
import sys

import pytest

from collapsium.pipeline.engine.estimate import estimate
from tests.conftest import write_corpus
from tests.pipeline.cli.commands import command, one_line

ASKED = ["--family", "lda", "--topics", 3]


def lines_of(out):
    """Return the sizes of the table, by purpose."""
    found = {}
    for line in out.splitlines():
        name, _, value = line.strip().rpartition("  ")
        if name and value:
            found[name.strip()] = value.strip()
    return found


def test_estimate__prints_memory_disk_and_traffic(capsys, small):
    code, out, err = command(capsys, "estimate", small[0], *ASKED)
    assert (code, err) == (0, "")
    found = lines_of(out)
    assert found["interpreter, libraries and kernels"].endswith("MB")
    for name in ("documents", "counts by words and topics", "changes waiting to be added", "sweeping", "local states"):
        assert found[name].split()[1] in ("B", "KB"), name
    assert found["disk for local states (scratch)"] == "0 B"
    assert found["disk for the run: two checkpoints and the model"].endswith("KB")
    assert found["moved between processes, per iteration"] == "0 B"
    assert "memory of all processes" in found
    assert out.splitlines()[-1] == "fits"


def test_estimate__accepts_workers_and_memory(capsys, small):
    for scheduler, sizes in (("local", (1, 3)), ("tcp://there:8786", (3, 1))):
        where = ["--scheduler", scheduler, "--workers", 3, "--memory", "2GB"]
        code, out, _ = command(capsys, "estimate", small[0], *ASKED, *where)
        assert code == 0
        assert out.startswith("{}: {} worker process(es) of {} thread(s)\n".format(scheduler, *sizes))
        found = lines_of(out)
        assert "in all, of 1.8 GB (90% of 2.0 GB)" in found
        assert "of which the driver" in found
        assert (found["moved between processes, per iteration"] == "0 B") == (scheduler == "local")
    _, out, _ = command(capsys, "estimate", small[0], *ASKED, "--workers", 3)
    assert out.startswith("threads: 1 worker process(es) of 3 thread(s)\n")
    _, out, _ = command(capsys, "estimate", small[0], *ASKED, "--scheduler", "serial")
    assert out.startswith("serial: 1 worker process(es) of 1 thread(s)\n")


def test_estimate_json__is_the_plan_in_bytes(capsys, small):
    where = ["--scheduler", "local", "--workers", 2, "--memory", "2GB", "--scratch", "/there/is/none"]
    code, out, _ = command(capsys, "estimate", small[0], *ASKED, *where, "--json")
    assert code == 0
    output = json.loads(out)
    expected = estimate(
        small[0], family="lda", topics=3, scheduler="local", workers=2, memory="2GB", scratch="/there/is/none"
    ).record()
    free = expected.pop("free"), output.pop("free")
    assert all(size > 0 for size in free)  # other processes may write files meanwhile
    assert output == expected
    assert output["needed"] == sum(output["memory"].values())
    assert (output["fits"], output["problem"]) == (True, "")
    assert {"scheduler": "local", "processes": 1, "threads": 2, "memory": 2e9} | output["place"] == output["place"]
    assert {"needed", "scratch", "run", "moved", "driver"} <= set(output)


def test_estimate__reports_what_does_not_fit(capsys, small):
    """For `estimate`, a fit that exceeds the memory is a result, not an error."""
    code, out, err = command(capsys, "estimate", small[0], *ASKED, "--memory", "10MB")
    assert (code, err) == (0, "")
    last = out.splitlines()[-1]
    assert last.startswith("does not fit: a worker process needs ")
    assert "may use 9.0 MB (90% of 10.0 MB)" in last
    _, out, _ = command(capsys, "estimate", small[0], *ASKED, "--memory", "10MB", "--json")
    output = json.loads(out)
    assert output["fits"] is False
    assert f"does not fit: {output['problem']}" == last


@pytest.mark.parametrize("family", ["lda", "hdp"])
def test_estimate__grows_with_topics(capsys, small, family):
    needed = []
    for topics in (5, 50, 500, 5000):
        _, out, _ = command(capsys, "estimate", small[0], "--family", family, "--topics", topics, "--json")
        needed.append(json.loads(out)["needed"])
    assert needed == sorted(set(needed))


def test_estimate__reads_the_configuration_file_of_a_fit(capsys, small, tmp_path):
    (tmp_path / "f.toml").write_text(
        f'family = "hdp"\ntopics = 9\niterations = 3\nseed = 4\nheldout = "{small[1]}"\nscheduler = "serial"\nmemory = "3GB"\n'
    )
    code, out, _ = command(capsys, "estimate", small[0], "--config", tmp_path / "f.toml", "--topics", 40, "--json")
    assert code == 0
    output = json.loads(out)
    place = output["place"]
    assert (place["scheduler"], place["memory"]) == ("serial", 3e9)
    where = {"scheduler": "serial", "memory": "3GB", "heldout": small[1]}
    assert output["memory"] == estimate(small[0], family="hdp", topics=40, **where).memory


def test_estimate__leaves_no_files(capsys, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command(capsys, "estimate", small[0], *ASKED, "--memory", "10MB", "--scratch", "not/there")
    assert list(tmp_path.iterdir()) == []


BAD = {
    "no corpus": (["{tmp}/none", *ASKED], "none: no such corpus"),
    "not a corpus": (["{tmp}", *ASKED], "not a corpus"),
    "no family": (["{train}"], "--family is required: author-topic, dirichlet-network, gibbs-hdp, gibbs-lda, gibbs-ncrp, hca, hdp, hdsp, keyword-lda, labeled-lda, lda, ncrp, partially-labeled-lda, segmented-lda, sequential-lda, vb-lda"),
    "unknown family": (["{train}", "--family", "ldb"], "did you mean 'lda'"),
    "no topics": (["{train}", "--family", "lda"], "--topics is required"),
    "K < 1": (["{train}", "--family", "lda", "--topics", "0"], "--topics: expected a whole number of 1 or more"),
    "K is text": (["{train}", "--family", "hdp", "--topics", "many"], "--topics"),
    "no size": (["{train}", *ASKED, "--memory", "lots"], "--memory: expected a size such as 750MB or 1.5GB, found 'lots'"),
    "no memory": (["{train}", *ASKED, "--memory", "0GB"], "--memory: expected a size above zero, found '0GB'"),
    "unknown set": (["{train}", *ASKED, "--set", "alpah=1"], "unknown option 'alpah' of family 'lda' (did you mean 'alpha'?)"),
    "no config": (["{train}", "--config", "{tmp}/no.toml"], "no.toml: no such file"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_invalid_input__is_reported_in_one_line(capsys, small, tmp_path, name):
    words, message = BAD[name]
    code, out, err = command(capsys, "estimate", *(str(word).format(tmp=tmp_path, train=small[0]) for word in words))
    assert (code, out) == (1 if name in ("no corpus", "not a corpus", "no config") else 2, "")
    assert message in one_line(err)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--topcis", "3"], "Unknown option: --topcis. Did you mean --topics? See `collapsium estimate --help`"),
        (["--workers", "x"], "--workers: expected a whole number, found 'x'"),
        (["--iteration", "3"], "Unknown option: --iteration. Did you mean --iterations?"),
        (["--topics", "3", "--tolerance", "-1"], "--tolerance: expected a number of 0 or more, or auto, found -1"),
        (["--memory"], "Parameter --memory requires an argument"),
    ],
)
def test_wrong_usage__is_reported_in_one_line_with_exit_code_2(capsys, small, monkeypatch, words, message):
    words = ["estimate", small[0], "--family", "lda", *words]
    monkeypatch.setattr(sys, "argv", ["collapsium", *words])
    code, out, err = command(capsys, *words)
    assert (code, out) == (2, "")
    assert message in one_line(err)


def test_estimate_without_a_corpus__is_wrong_usage(capsys):
    code, _, err = command(capsys, "estimate", *ASKED)
    assert code == 2
    assert "CORPUS is missing (usage: collapsium estimate [OPTIONS] CORPUS)" in one_line(err)


def test_estimate_of_a_damaged_shard__names_it(capsys, tmp_path):
    corpus = write_corpus(tmp_path / "c", [{0: 1}, {1: 2}], 2)
    shard = corpus / "documents/part-00000.parquet"
    shard.write_bytes(shard.read_bytes()[:-7])
    code, _, err = command(capsys, "estimate", corpus, *ASKED)
    assert code == 1
    assert "part-00000.parquet: the bytes do not have the digest of the manifest" in one_line(err)


def test_estimate__accepts_the_smallest_corpora(capsys, tmp_path):
    for name, rows in (("one", [{0: 1}]), ("some empty", [{}, {0: 1}, {}])):
        corpus = write_corpus(tmp_path / name, rows, 1, shard_tokens=1)
        code, out, _ = command(capsys, "estimate", corpus, *ASKED)
        assert code == 0
        assert out.splitlines()[-1] == "fits"


@pytest.mark.parametrize("more", [[], ["--quiet"], ["--json"]])
def test_a_fit_that_does_not_fit__is_refused_with_the_table_of_estimate(capsys, small, tmp_path, more):
    where = ["--memory", "10MB", "--scratch", tmp_path / "scratch"]
    _, table, _ = command(capsys, "estimate", small[0], *ASKED, *where)
    code, out, err = command(capsys, "fit", small[0], tmp_path / "run", *ASKED, *where, *more)
    assert (code, out) == (1, "")
    first, *rest = err.splitlines()
    *lines, _, last = table.splitlines()
    assert last.startswith("does not fit: ")
    problem = last.removeprefix("does not fit: ")
    assert first == f"collapsium: error: not enough memory or disk for this fit: {problem}"
    assert rest == lines
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_fit_that_was_refused__runs_with_more_memory(capsys, small, tmp_path):
    words = ["fit", small[0], tmp_path / "run", *ASKED, "--iterations", 2, "--scheduler", "serial", "--quiet"]
    assert command(capsys, *words, "--memory", "10MB")[0] == 1
    assert command(capsys, *words, "--memory", "1GB")[0] == 0
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    opening = next(event for event in events if event["event"] == "start")
    assert opening["planned"]["fits"] is True  # planned and actual sizes are shown together
    assert events[-1]["worker_peak_bytes"]
