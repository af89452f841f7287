"""The comparison's own logic: what it reads, how it watches, and what it makes of the numbers."""

import argparse
import json
import math
import sys

import numpy as np
import pytest

from tests.benchmarks import compare, table
from tests.benchmarks.peers import Data, score, steps

NOISY = """
import json, time
hold = bytearray(1)
print("a library greets", flush=True)
print(json.dumps({"state": "fitting"}), flush=True)
time.sleep(0.2)
print(json.dumps({"state": "fitted"}), flush=True)
hold = bytearray(200_000_000)
time.sleep(0.3)
print(json.dumps({"score": -1.0}), flush=True)
"""


def run_of(who, number=1, points=(), **kwargs):
    points = [{"iteration": at, "seconds": seconds, "score": value} for at, seconds, value in points]
    last = points[-1] if points else {}
    return {
        "who": who,
        "ours": who.startswith("collapsium"),
        "round": number,
        "points": points,
        "seconds": last.get("seconds"),
        "score": last.get("score"),
        "megabytes": 100.0,
        "error": "",
        **kwargs,
    }


@pytest.fixture
def results():
    ours = {"startup_seconds": 3.0, "command_seconds": 9.0}
    runs = [
        run_of("collapsium lda", 1, [(1, 1.0, -8.0), (2, 2.0, -7.0), (3, 3.0, -6.0)], **ours),
        run_of("tomotopy", 1, [(10, 4.0, -7.5), (20, 8.0, -7.0)]),
        run_of("topica", 1, error="it | broke"),
        run_of("tomotopy", 2, [(10, 6.0, -7.5), (20, 12.0, -7.0)]),
        run_of("collapsium lda", 2, [(1, 2.0, -8.0), (2, 4.0, -7.0), (3, 6.0, -6.0)], **ours),
    ]
    return {
        "machine": {"cpu": "a processor", "cores": 2, "gigabytes": 8.0, "versions": {"python": "3"}},
        "corpus": {"drawn": True, "documents": 5, "words": 7, "tokens": 100, "heldout_tokens": 10},
        "options": {"topics": 4, "alpha": 0.1, "beta": 100.0, "workers": 2, "rounds": 2},
        "left_out": ["gensim"],
        "runs": runs,
    }


def test_iterations__a_number_for_all_and_others_by_name():
    found = compare.iterations_of("tomotopy=500,100")
    assert (found["lda"], found["gensim"], found["tomotopy"]) == (100, 100, 500)
    assert all(number >= 1 for number in compare.iterations_of(compare.ITERATIONS).values())


@pytest.mark.parametrize("text", ["", "0", "many", "tomotopy=5", "100,nobody=5", "100,topica="])
def test_iterations__says_what_is_wrong(text):
    with pytest.raises(argparse.ArgumentTypeError):
        compare.iterations_of(text)


def test_some_of__reads_names_once_and_knows_them():
    assert compare.some_of(["a", "b"])("b, a,b") == ["b", "a"]
    assert compare.some_of(["a", "b"])("") == []
    with pytest.raises(argparse.ArgumentTypeError, match="there are a, b"):
        compare.some_of(["a", "b"])("c")


def test_command_line__wants_both_corpora_and_somebody(capsys):
    for words in (["--train", "x"], ["--peers", "", "--families", ""], ["--rounds", "0"]):
        with pytest.raises(SystemExit):
            compare.main(words)
    assert "--train and --heldout" in capsys.readouterr().err


def test_watch__sees_memory_while_it_is_wanted():
    while_fitting = compare.watch([sys.executable, "-c", NOISY], 60, always=False)
    always = compare.watch([sys.executable, "-c", NOISY], 60)
    assert while_fitting.lines == [{"score": -1.0}]
    assert not while_fitting.error
    assert 0 < while_fitting.megabytes < 150 < always.megabytes


def test_watch__tells_why_a_command_failed():
    seen = compare.watch([sys.executable, "-c", "print('{\"score\": -2.0}'); raise ValueError('no such luck')"], 60)
    assert seen.error == "ValueError: no such luck"
    assert seen.lines == [{"score": -2.0}]
    assert compare.watch([sys.executable, "-c", "import sys; sys.exit(3)"], 60).error == "ended with code 3"


def test_watch__ends_what_takes_too_long():
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    assert "more than 0.5 s" in compare.watch([sys.executable, "-c", child], 0.5).error


class Recorded:
    """Stands for a contestant, and remembers when it ran."""

    def __init__(self, who, ran):
        self.who, self.ran = who, ran

    def run(self, number, place):
        self.ran.append(self.who)
        return run_of(self.who, number + 1, [(1, 1.0, -5.0)])


def test_compare__alternates_and_writes(small, tmp_path):
    ran = []
    words = ["--train", small[0], "--heldout", small[1], "--rounds", "3", "--out", str(tmp_path / "out")]
    given = compare.parser_of().parse_args(words)
    given.left_out, given.drawn = [], False
    compare.compare(given, [Recorded(name, ran) for name in ("a", "b")], tmp_path)
    assert ran == ["a", "b", "b", "a", "a", "b"]
    assert len(json.loads((tmp_path / "out/results.json").read_text())["runs"]) == 6
    assert Data.read(tmp_path / "train.npz").counts.sum() == Data.read(small[0]).counts.sum()


def test_summaries__are_medians_over_rounds(results):
    ours, tomotopy, topica = table.summaries(results)
    assert ours.curve() == [(1.5, -8.0), (3.0, -7.0), (4.5, -6.0)]
    assert tomotopy.median("seconds") == 10.0
    assert (topica.runs, topica.error, topica.iterations) == ([], "it | broke", None)


def test_seconds_to__is_the_first_time_that_a_score_is_passed(results):
    ours = table.summaries(results)[0]
    ours.runs.append(run_of("collapsium lda", 3, [(1, 3.0, -8.0), (2, 6.0, -7.0)], startup_seconds=3.0))
    assert ours.seconds_to(-7.0) == 4.0
    assert ours.seconds_to(-7.0, startup=True) == 7.0
    assert ours.seconds_to(-6.0) == 6.0
    assert math.isinf(ours.seconds_to(-5.0))


def test_text__tells_of_all(results):
    found = table.text(results)
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in found.splitlines() if row.startswith("|")]
    assert ["collapsium lda", "3", "4.50", "3.00", "9.00", "100", "-6.0000"] in rows
    assert ["collapsium lda", "tomotopy", "-7.0000", "10.0", "4.00", "7.00", "2.50"] in rows
    assert ["topica", "-", "-", "-", "-", "-", "-"] in rows
    assert "topica failed: it | broke" in found
    assert "gensim is not installed" in found


def test_text__stands_when_all_failed(results):
    results["runs"] = [run_of("collapsium lda", error="no"), run_of("topica", error="no")]
    assert "collapsium lda failed: no" in table.text(results)


def test_draw__writes_both_pictures(results, tmp_path):
    pytest.importorskip("matplotlib")
    table.draw(results, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["score-over-time.png", "score-over-time.svg"]


def test_score__is_the_mean_over_held_out_tokens():
    held = Data(np.array([0, 2, 2]), np.array([0, 2]), np.array([1, 3]), 3)
    theta, phi = np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[0.2, 0.4, 0.4], [0.6, 0.2, 0.2]])
    assert score(held, theta, phi) == pytest.approx((math.log(0.4) + 3 * math.log(0.3)) / 4)


@pytest.mark.parametrize("iterations", [1, 7, 20, 1000])
def test_steps__end_where_they_should(iterations):
    assert sum(steps(iterations)) == iterations
    assert min(steps(iterations)) >= 1
